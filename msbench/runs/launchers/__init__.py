"""Where runs execute: one module a place."""

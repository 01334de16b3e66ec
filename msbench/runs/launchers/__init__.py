"""Launchers: one module for each way of executing runs."""

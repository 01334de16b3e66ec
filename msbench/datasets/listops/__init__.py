"""ListOps: generated here, or imported as published."""

"""PTB-XL: twelve-lead electrocardiograms from WFDB records, and their labels."""

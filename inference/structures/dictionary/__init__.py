"""Dictionaries whose rows use few columns: codes, starts, alternating minimisation."""

"""Sections of a page that a kind of description says better, each file named after its kind."""

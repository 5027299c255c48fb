"""Sections of pages by kind of description, each file named after its kind."""

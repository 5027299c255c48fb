"""Conversion of a user's data: tables, sequences, files, and the families of columns."""

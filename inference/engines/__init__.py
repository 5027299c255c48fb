"""Engines: they know a problem and its structure, never a family."""

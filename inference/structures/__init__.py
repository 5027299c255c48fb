"""Structures of models, one folder a kind; only the registry imports them all."""

"""Factorizations: monotone updates, starts, usage, factor analysis."""

"""Sequences of states and actions: checks, packing, and marginal distributions."""

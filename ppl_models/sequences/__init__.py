"""Sequences of states and actions: checks, packing, and their laws with the hidden part summed
out.
"""

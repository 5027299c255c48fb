"""Kinds of description whose identifiability is decided by theorems of their own: every file here
registers one, and is found by itself.
"""

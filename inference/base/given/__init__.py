"""Columns of a table that are given and not drawn: covariates in units in which engines work, and
what the rows leave open of their coefficients.
"""

"""``fit``, the fit it returns, and the ways in and out of it: rows, draws, tables, ArviZ, files."""

from inference.fitting.export import rhat as rhat

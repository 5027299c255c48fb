"""``fit``, the fit it returns, and the ways in and out of it: rows, draws, ArviZ, files."""

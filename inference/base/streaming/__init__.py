"""Rows read block by block, from disk and by several processes, and sums over them."""

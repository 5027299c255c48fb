"""Maximisers of the children of a layer, given expected statistics."""

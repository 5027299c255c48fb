"""A Pyro program as a density: traces, elimination, coordinates, curvature."""

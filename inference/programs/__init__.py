"""A Pyro program as a density: traces, elimination, coordinates, curvature."""

from inference.programs.program import Program as Program, simulate as simulate

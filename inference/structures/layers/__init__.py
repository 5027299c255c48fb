"""Layers of binary latents with generalised-linear children: steps, draws, starts, names."""

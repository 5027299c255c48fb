"""Component distributions of mixtures and hidden Markov models."""

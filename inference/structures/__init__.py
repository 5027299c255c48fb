"""What engines make of a model's description of itself, one folder a kind."""

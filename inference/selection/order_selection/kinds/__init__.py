"""Order selection of each kind of model, registered on its structure."""

"""Independent classifiers: costs, regularizers, networks in training, starts."""

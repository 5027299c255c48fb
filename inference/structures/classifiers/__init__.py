"""Independent classifiers: costs, wishes, networks in training, starts and names."""

"""Order selection: the number and the distribution of components, with confidence."""

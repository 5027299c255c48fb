"""Independent binary causes joined by noisy ORs: exact and truncated EM, search, guides."""

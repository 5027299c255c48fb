"""Hidden options along sequences: expected counts, moments, paths."""

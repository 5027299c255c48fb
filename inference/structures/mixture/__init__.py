"""Finite mixtures: closed-form EM steps, starts, labels, noise."""

"""Rows simulated from a known dictionary."""

from __future__ import annotations

from ppl_models.datasets import paired_dictionary, sample_sparse_codes


def case(num_pairs=4, num_items=12, num_rows=600, sparsity=2, angle=20.0, noise=0.0, seed=0):
    truth = paired_dictionary(angle, num_pairs, num_items, seed)
    return truth, *sample_sparse_codes(truth, num_rows, sparsity, noise, seed)

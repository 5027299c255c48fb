"""Sparse coding with pairs of near columns.

The benchmark of Buhai, Halpern, Kim, Risteski and Sontag (ICML 2020, arXiv:1907.00030).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.validation import Seed, as_seed, check_size, is_integer


def paired_dictionary(
    angle: float, num_pairs: int = 12, num_items: int = 100, seed: Seed = 0
) -> Tensor:
    r"""Dictionary of unit columns in near pairs, (J, m).

    A random direction a, and :math:`a \cos\gamma + b \sin\gamma` with b random orthogonal to a.

    Args:
        angle: gamma, in degrees, in (0, 90].
        num_pairs: half of m.
        num_items: J, at least 2.
        seed: of the directions; the published dictionaries are in :func:`load_paired_dictionary`.

    Raises:
        ValueError: for settings out of range.
    """
    seed = as_seed("paired_dictionary", seed)
    if not 0 < angle <= 90:
        raise ValueError(f"paired_dictionary: angle must lie in (0, 90] degrees, got {angle!r}")
    for name, value, least in (("num_pairs", num_pairs, 1), ("num_items", num_items, 2)):
        check_size("paired_dictionary", name, value, least, f"an integer of at least {least}")
    random = np.random.default_rng(seed)
    columns = []
    for _ in range(num_pairs):
        a, b = random.standard_normal(num_items), random.standard_normal(num_items)
        a /= np.linalg.norm(a)
        b -= (a @ b) * a
        b /= np.linalg.norm(b)
        columns += [a, math.cos(math.radians(angle)) * a + math.sin(math.radians(angle)) * b]
    return torch.from_numpy(np.stack(columns, 1))


def sample_sparse_codes(
    dictionary: Tensor, num_rows: int, sparsity: int = 5, noise: float = 0.0, seed: Seed = 0
) -> tuple[Tensor, Tensor]:
    """Sample rows (N, J) and codes (N, m) of uniform supports and normalised amounts.

    Without noise these are the rows of the released sampler, bit for bit; the published benchmark
    has 10,000 rows of sparsity 5 and holds out the first 1,000.

    Args:
        dictionary: (J, m).
        num_rows: N.
        sparsity: k.
        noise: standard deviation of Normal noise added to every entry.
        seed: of NumPy's legacy generator.

    Raises:
        ValueError: for settings out of range.
    """
    seed = as_seed("sample_sparse_codes", seed)
    num_columns = dictionary.shape[1]
    check_size("sample_sparse_codes", "num_rows", num_rows)
    if not is_integer(sparsity) or sparsity > num_columns:
        raise ValueError(
            f"sample_sparse_codes: sparsity must lie in 1..{num_columns}, got {sparsity!r}"
        )
    if not noise >= 0:
        raise ValueError(f"sample_sparse_codes: noise must not be negative, got {noise!r}")
    random = np.random.RandomState(seed)
    codes = np.zeros((num_rows, num_columns))
    for row in codes:
        support = random.choice(num_columns, sparsity, replace=False)
        amounts = random.random_sample(sparsity)
        row[support] = amounts / amounts.sum()
    rows = codes @ dictionary.numpy().T
    if noise > 0:
        rows = rows + noise * random.standard_normal(rows.shape)
    return torch.from_numpy(rows), torch.from_numpy(codes)

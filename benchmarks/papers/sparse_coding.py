"""Published dictionaries of the sparse-coding benchmark of Buhai et al. (2020)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inference.structures.dictionary.decoders import unit_columns
from ppl_models.datasets.fetch import needed_file

FILE = "noisy_or_overparam.npz"
ANGLES = (5, 10)


def load_paired_dictionary(angle: int) -> Tensor:
    """The published dictionary (100, 24) of pairs ``angle`` = 5 or 10 degrees apart, from the
    repository clinicalml/overparam.

    Looked for in ``noisy_or_overparam.npz`` in the folder that ``PPL_MODELS_DATA`` names.

    Raises:
        ValueError: for another angle.
        FileNotFoundError: if the file is not there.
    """
    if angle not in ANGLES:
        raise ValueError(f"load_paired_dictionary: angle must be one of {ANGLES}, got {angle!r}")
    path = needed_file(FILE, "paired_dictionary() draws one of the same distribution")
    with np.load(path, allow_pickle=False) as file:
        return torch.from_numpy(file[f"sparse_gamma{angle}_columns"])


def rotated(
    truth: Tensor, rows: Tensor, num_columns: int, restarts: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Truth, rows and the paper's starts (R, rank + m, m) in coordinates of the rows' span and of
    what lies outside it.
    """
    rank = truth.shape[1]
    basis = torch.linalg.svd(rows, full_matrices=False)[2][:rank]  # (rank, J)
    generator = torch.Generator().manual_seed(seed)
    start = unit_columns(
        torch.randn(restarts, truth.shape[0], num_columns, generator=generator, dtype=torch.float64)
    )
    outside = torch.linalg.qr(
        start - basis.mT @ (basis @ start)
    ).R  # (R, m, m): lengths and angles are kept
    pad = torch.zeros(len(rows), num_columns, dtype=rows.dtype)
    truth = torch.cat([basis @ truth, rows.new_zeros(num_columns, truth.shape[1])])
    return truth, torch.cat([rows @ basis.mT, pad], 1), torch.cat([basis @ start, outside], 1)

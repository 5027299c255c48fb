"""Published dictionaries of the sparse-coding benchmark of Buhai et al. (2020)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

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

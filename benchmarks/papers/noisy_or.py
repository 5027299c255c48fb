"""Noisy-OR truths of Buhai et al. (2020) that only their study needs: plants, rare latents, flips.

They continue :mod:`ppl_models.datasets.noisy_or`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.datasets.fetch import needed_file, prepared
from ppl_models.datasets.noisy_or import SAMPLES_FILE, image_design, network, uniform_design
from ppl_models.parts.repr import shows_briefly

PLANTS_FILE = "plants.npz"
PLANTS_DIGEST = "160cc616913293643bf28d369880e33502d0168f6c35bcba53853fdfc46a4458"  # of the arrays
FLIPPED = slice(0, None, 4)  # the variables that IMG-FLIP flips together


@shows_briefly
@dataclass(frozen=True, eq=False)
class PlantRegions:
    """Where plants of North America grow.

    Args:
        items: (34781, 70) float64 of 0 and 1, one row a species or genus.
        item_names: the regions; row_names: the plants.
    """

    items: np.ndarray
    item_names: tuple[str, ...]
    row_names: tuple[str, ...]


def load_plant_regions() -> PlantRegions:
    """Plants by region (W. Hamalainen, 2008, UCI Machine Learning Repository, doi:10.24432/C59K6M),
    the data behind PLNT.

    Looked for in ``plants.npz`` in the folder that ``PPL_MODELS_DATA`` names: packed bits ``x``,
    ``n_cols``, ``regions``, ``names``.

    Raises:
        FileNotFoundError: if the file is not there; ValueError: if it is another.
    """
    source = "Plants, UCI Machine Learning Repository, doi:10.24432/C59K6M, as packed bits"
    file = prepared(PLANTS_FILE, source, ("x", "n_cols", "regions", "names"), PLANTS_DIGEST)
    bits = np.unpackbits(file["x"], axis=1)[:, : int(file["n_cols"])]
    regions, plants = (tuple(str(name) for name in file[key]) for key in ("regions", "names"))
    return PlantRegions(bits.astype(np.float64), regions, plants)


def load_plant_base() -> dict[str, Tensor]:
    """The network of 20 latents that the authors fitted to :func:`load_plant_regions`;
    :func:`thresholded` makes PLNT of it.

    Looked for where :func:`load_noisy_or_sample` looks.

    Raises:
        FileNotFoundError: if the file is not there.
    """
    path = needed_file(SAMPLES_FILE, "see load_noisy_or_sample")
    with np.load(path, allow_pickle=False) as file:
        return network(
            file["plnt_base_priors"], file["plnt_base_failure"], 1 - file["plnt_base_off_noise"]
        )


def thresholded(
    params: dict[str, Tensor], smallest_prior: float = 0.01, largest_failure: float = 0.5
) -> dict[str, Tensor]:
    """A fitted network made a truth as PLNT was: rare latents dropped, weak edges too, and then
    latents without edges.

    Args:
        params: ``prior`` (m,), ``failure`` (m, J), ``leak`` (J,).
        smallest_prior: priors up to it are dropped; largest_failure: failures from it on become 1.
    """
    failure = torch.where(params["failure"] >= largest_failure, 1.0, params["failure"])
    kept = (params["prior"] > smallest_prior) & (failure < 1).any(1)
    return {"prior": params["prior"][kept], "failure": failure[kept], "leak": params["leak"]}


def image_uniform_design() -> dict[str, Tensor]:
    """IMG-UNIF: the eight latents of IMG, and the patterns of UNIF as eight rare ones of prior
    0.05.
    """
    image, tail = image_design(), uniform_design()
    return {
        "prior": torch.cat([image["prior"], torch.full_like(tail["prior"], 0.05)]),
        "failure": torch.cat([image["failure"], tail["failure"]]),
        "leak": image["leak"],
    }


def flip_columns(items: Tensor, share: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """IMG-FLIP: in a random share of the rows variables 0, 4, 8, ... are all flipped; the rows, and
    which were flipped.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"flip_columns: share must lie in [0, 1], got {share!r}")
    flipped = (
        torch.rand(len(items), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        < share
    )
    out = items.clone()
    out[flipped, FLIPPED] = 1 - out[flipped, FLIPPED]
    return out, flipped

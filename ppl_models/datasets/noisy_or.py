r"""Noisy-OR networks with a known truth, and published samples of them.

The benchmark of Buhai, Halpern, Kim, Risteski and Sontag (ICML 2020, arXiv:1907.00030).

Designs with a known truth, made from their definitions, and the samples the authors published
(clinicalml/overparam). "Noise 0.001" of the paper is the leak, the probability of a one with every
latent off; the released files hold one minus that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ppl_models.datasets.fetch import needed_file
from ppl_models.descriptions.noisy_or import weight_of_failure, weight_of_leak
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_size

SAMPLES_FILE = "noisy_or_overparam.npz"
NUM_HELD_OUT = 1000
LEAK, FAILURE = 0.001, 0.1
DIGESTS = {  # sha256 of the unpacked 0/1 matrix
    "img": "23a271b303d4447e49733d1d19aa5729757f82e440181d29c0461df81c9bfc7a",
    "plnt": "853178184a65d9f4750e7fcae44448dfe20ee40e972f4e5d9504c612ee11f9c5",
    "unif": "509fe18782bbb36f99f3de46ef002d2687d46d09db2eec8f73421db094eed9bc",
    "con8": "f24e2faa8afd7926788cbfc83324ae85d2b562789f6a7115318a1a04ac194088",
    "con24": "6a06f9eed7a22524dd7290f06d60b20b73454d654e90744b2d4973d95fd351fe",
    "img_flip": "a1d734254b2cce46867062aa6aedde1d248288769de25f4234635a1755855dfb",
    "img_unif": "bad5d6ca7f6153b3d2b8fc9d75a43744a01b71df0851c16744e9430f33947a71",
}
# rows of 8 pixels, written as one hexadecimal byte each, the leftmost pixel first
IMAGES = (
    "1824428181422418",
    "1010101ff8080808",
    "ff818181818181ff",
    "8040201008040201",
    "0102040810204080",
    "007e424242427e00",
    "00003c24243c0000",
    "0000000070707000",
)


@shows_briefly
@dataclass(frozen=True, eq=False)
class NoisyOrSample:
    """Published sample of a noisy-OR network with its true parameters.

    Args:
        items: (10000, J) float64 of 0 and 1, in the published order.
        truth: ``prior`` (8,), ``failure`` (8, J), ``leak`` (J,), which recovery is scored against,
            float64.
        generator: the parameters that made the data; more latents than ``truth`` for img_unif, else
            the same.
        flipped: (10000,) bool, rows whose every fourth variable was flipped; None but for img_flip.
        item_names: column names.
    """

    items: np.ndarray
    truth: dict[str, Tensor]
    generator: dict[str, Tensor]
    flipped: np.ndarray | None
    item_names: tuple[str, ...]

    @property
    def held_out(self) -> Tensor:
        """Held-out rows: the first 1,000, float64."""
        return torch.from_numpy(self.items[:NUM_HELD_OUT])

    @property
    def train(self) -> Tensor:
        """Training rows: the other 9,000."""
        return torch.from_numpy(self.items[NUM_HELD_OUT:])


def load_noisy_or_sample(name: str) -> NoisyOrSample:
    """Load a published sample of 10,000 rows with its true parameters.

    Looked for in ``noisy_or_overparam.npz`` in the folder that ``PPL_MODELS_DATA`` names: packed
    bits ``<name>_x``, ``<name>_priors``, ``<name>_failure`` and ``<name>_off_noise``, converted
    from the authors' repository clinicalml/overparam.

    Args:
        name: "img", "plnt", "unif", "con8", "con24", "img_flip" or "img_unif".
    """
    if name not in DIGESTS:
        raise ValueError(f"name: one of {', '.join(DIGESTS)} was expected, got {name!r}")
    path = needed_file(
        SAMPLES_FILE,
        "convert it from the files of clinicalml/overparam, "
        "or draw data of the same designs with image_design(), uniform_design() or random_design()",
    )
    with np.load(path, allow_pickle=False) as file:
        num_items = int(file[f"{name}_num_observed"])
        bits = np.unpackbits(file[f"{name}_x"], axis=1)[:, :num_items]
        found = hashlib.sha256(np.ascontiguousarray(bits).tobytes()).hexdigest()
        if found != DIGESTS[name]:
            raise ValueError(
                f"{path}: sha256 {DIGESTS[name]} was expected of {name}, got {found}: not the"
                " published sample"
            )
        truth = network(
            file[f"{name}_priors"], file[f"{name}_failure"], 1 - file[f"{name}_off_noise"]
        )
        generator, flipped = truth, None
        if name == "img_unif":
            generator = network(
                file["img_unif_generator_priors"],
                file["img_unif_generator_failure"],
                truth["leak"].numpy(),
            )
        if name == "img_flip":
            flipped = np.unpackbits(file["img_flip_row_flipped"])[: len(bits)].astype(bool)
        names = (
            tuple(str(region) for region in file["plnt_regions"])
            if name == "plnt"
            else _pixel_names(num_items)
        )
    return NoisyOrSample(bits.astype(np.float64), truth, generator, flipped, names)


# ---------------------------------------------------------------- designs


def image_design() -> dict[str, Tensor]:
    """Design IMG: eight patterns on 8 x 8 pixels, priors 0.25, failures 0.1, leak 0.001."""
    bits = np.array([[int(c) for c in f"{int(image, 16):064b}"] for image in IMAGES])
    return network(np.full(8, 0.25), np.where(bits == 1, FAILURE, 1.0), np.full(64, LEAK))


def uniform_design(seed: int = 1, num_latents: int = 8, num_items: int = 64) -> dict[str, Tensor]:
    """Design UNIF: random edges with probability 0.25.

    Failures are uniform on (0.05, 0.20), priors on (0.1, 0.3).

    Args:
        seed: of NumPy's legacy generator; 1 gives the published parameters at the default sizes.
        num_latents: m.
        num_items: J, at most 256.
    """
    if not 1 <= num_items <= 256:
        raise ValueError(f"uniform_design: num_items must lie in 1..256, got {num_items}")
    random = np.random.RandomState(seed)
    edges = [random.binomial(1, 0.25, (16, 16)).ravel()[:num_items] for _ in range(num_latents)]
    prior, failure = [], []
    for edge in edges:
        prior.append(random.uniform(0.1, 0.3))
        failure.append(np.where(edge == 1, 1 - random.uniform(0.80, 0.95, num_items), 1.0))
    return network(np.array(prior), np.array(failure), np.full(num_items, LEAK))


def random_design(
    num_edges: int, seed: int = 0, num_latents: int = 8, num_items: int = 64
) -> dict[str, Tensor]:
    """Designs CON8 and CON24: exactly ``num_edges`` random edges a latent.

    Failures are 0.1, priors 0.125, leak 0.001.

    The published patterns cannot be made from a seed: load them with :func:`load_noisy_or_sample`.
    """
    if not 1 <= num_edges <= num_items:
        raise ValueError(f"random_design: num_edges must lie in 1..{num_items}, got {num_edges}")
    random = np.random.default_rng(seed)
    failure = np.ones((num_latents, num_items))
    for row in failure:
        row[random.choice(num_items, num_edges, replace=False)] = FAILURE
    return network(np.full(num_latents, 0.125), failure, np.full(num_items, LEAK))


def sample_noisy_or(
    params: dict[str, Tensor], num_rows: int, seed: Seed = 0
) -> tuple[Tensor, Tensor]:
    """Sample rows (N, J) and their latents (N, m), float64 of 0 and 1.

    Args:
        params: ``prior`` (m,), ``failure`` (m, J) and ``leak`` (J,).
        num_rows: N.
        seed: of the draws.
    """
    seed = as_seed("sample_noisy_or", seed)
    check_size("sample_noisy_or", "num_rows", num_rows)
    generator = torch.Generator().manual_seed(seed)
    prior = params["prior"].expand(num_rows, -1)
    latents = (torch.rand(prior.shape, generator=generator, dtype=torch.float64) < prior).to(
        torch.float64
    )
    weights = latents @ weight_of_failure(params["failure"]) + weight_of_leak(params["leak"])
    uniform = torch.rand(weights.shape, generator=generator, dtype=torch.float64)
    return (uniform < -torch.expm1(-weights)).to(torch.float64), latents


def network(prior: np.ndarray, failure: np.ndarray, leak: np.ndarray) -> dict[str, Tensor]:
    """Parameters of a network by site name."""
    return {
        "prior": torch.from_numpy(prior),
        "failure": torch.from_numpy(failure),
        "leak": torch.from_numpy(leak),
    }


def _pixel_names(num_items: int) -> tuple[str, ...]:
    return tuple(f"r{j // 8}c{j % 8}" for j in range(num_items))

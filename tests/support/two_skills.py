"""Six answers that show two skills, three each, and the encoder that knows which."""

from __future__ import annotations

import numpy as np
import torch

from inference import EM
from ppl_models import DeepDiscreteEncoder

TIGHT = EM(tolerance=1e-13, parameter_tolerance=1e-8, max_iterations=5000)
GRAPH = ((1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1))


def answers(num_rows, seed):
    generator = np.random.default_rng(seed)
    latents = (generator.random((num_rows, 2)) < [0.4, 0.6]).astype(float)
    eta = -1.5 + 3 * latents @ np.array(GRAPH).T
    return (generator.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)


def encoder(response=None):
    return (
        DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
        if response is None
        else DeepDiscreteEncoder(6, (2,), response, graphs=(GRAPH,))
    )


def encoder_truth():
    return {
        "proportions": torch.tensor([0.4, 0.6], dtype=torch.float64),
        "loadings_1": 3.0 * torch.tensor(GRAPH, dtype=torch.float64),
        "intercepts_1": torch.full((6,), -1.5, dtype=torch.float64),
    }

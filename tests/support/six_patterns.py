"""Rows of six patterns, whose every division among components can be tried."""

from __future__ import annotations

from itertools import product

import torch
from support.own_programs import F64
from torch import Tensor

from inference import EM
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from ppl_models import Bernoulli, Mixture

PATTERNS = torch.tensor(
    [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 1],
        [0, 0, 0, 1, 1, 1],
        [0, 1, 1, 1, 1, 0],
        [1, 0, 1, 0, 1, 0],
        [0, 0, 1, 1, 0, 1],
    ]
)
COUNTS = torch.tensor([14, 9, 12, 8, 6, 7])
MODEL = Mixture(3, Bernoulli(), 6, concentration=1.2)


def answers() -> Tensor:
    return PATTERNS.repeat_interleave(COUNTS, 0).to(F64)


def brute_force(model: Mixture) -> Tensor:
    """Objectives that EM reaches from every way to divide the six patterns among components."""
    k, problem = model.num_components, problem_of(model, answers(), 0)
    steps = problem.structure.steps(problem, 2**22, 1)
    which = torch.tensor(
        [(0, *rest) for rest in product(range(k), repeat=5) if len({0, *rest}) == k]
    )
    share = 0.98 * torch.nn.functional.one_hot(which, k).to(F64) + 0.02 / k
    blank = {
        name: value.expand(len(which), *value.shape[1:])
        for name, value in problem.program().draw_prior(1, 0).items()
    }
    start = steps.first(share.repeat_interleave(COUNTS, 1), blank)
    return EM().run(problem, start, NoProgress(), None).objective

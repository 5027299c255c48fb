"""One unknown share seen through an erring test: a program, its data, and its posterior by a fine
grid.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy import stats
from scipy.special import logsumexp

from inference import NUTS, Fit, fit

F64 = torch.float64
CHANCES = torch.tensor([0.2, 0.8], dtype=F64)


def screening(data=None, num_rows=None):
    """One unknown: the share of cases, seen through a test that errs in a fifth of the rows."""
    share = pyro.sample(
        "share", dist.Beta(torch.tensor(2.0, dtype=F64), torch.tensor(3.0, dtype=F64))
    )
    with pyro.plate("rows", num_rows if data is None else len(data)):
        case = pyro.sample("case", dist.Bernoulli(share))
        return pyro.sample("test", dist.Bernoulli(CHANCES[case.long()]), obs=data)


def results(num_rows=40, share=0.35, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(
        (rng.random(num_rows) < 0.2 + 0.6 * (rng.random(num_rows) < share)).astype(float)
    )


def exact_share(data, weights=None):
    """Posterior mean, spread and 2.5 and 97.5 per cent of the share, by a fine grid."""
    grid = np.linspace(0, 1, 20001)[1:-1]
    chance = 0.2 + 0.6 * grid
    ones = float(data.sum())
    log = (
        stats.beta.logpdf(grid, 2, 3)
        + ones * np.log(chance)
        + (len(data) - ones) * np.log1p(-chance)
    )
    weight = np.exp(log - logsumexp(log))
    mean = weight @ grid
    at = np.interp([0.025, 0.975], weight.cumsum(), grid)
    return mean, math.sqrt(weight @ (grid - mean) ** 2), at


QUICK = NUTS(num_chains=4, warmup_steps=150, num_samples=400)


@functools.cache
def screened_fit() -> tuple[Fit, torch.Tensor]:
    data = results()
    return fit(screening, data, QUICK), data

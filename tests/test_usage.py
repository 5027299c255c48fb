"""Binary usage of components: the sampler against exact sums over all ways to allot the counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy import stats
from scipy.special import gammaln, logsumexp

from inference.usage_gibbs import UsageGibbs
from ppl_models import UsageFactorization

F64 = torch.float64
PHI = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
PI, AMOUNTS = np.array([0.4, 0.7, 0.5]), np.array([5.0, 2.0, 3.0])
ROWS = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [0.0, 4.0, 0.0]])


def splits(count: int, parts: int) -> list[tuple[int, ...]]:
    return [c for c in itertools.product(range(count + 1), repeat=parts) if sum(c) == count]


def exactly(x: np.ndarray, shape: float, seen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log p(x, b) of every b, the configurations, and E[b z | x, b]: sums over the allotments of every count.

    Given b the allotted totals are negative binomial, and their columns multinomial.
    """
    seen = np.ones(len(x), bool) if seen is None else seen
    configurations, logs, means = list(itertools.product((0, 1), repeat=len(PI))), [], []
    for b in configurations:
        on = np.flatnonzero(b)
        terms, amount = [], []
        for choice in itertools.product(*[splits(int(v), len(on)) for v in x[seen]]):
            y = np.array(choice).reshape(seen.sum(), len(on)).T  # (on, J)
            value = 0.0
            rate, mass = shape / AMOUNTS[on], PHI[on][:, seen].sum(1)
            total = y.sum(1)
            value += (stats.poisson.logpmf(0, 0.0) + (y * np.log(PHI[on][:, seen]) - gammaln(y + 1)).sum()) if len(on) else 0.0
            value += (gammaln(shape + total) - gammaln(shape) + shape * np.log(rate) - (shape + total) * np.log(rate + mass)).sum()
            terms.append(value)
            full = np.zeros(len(PI))
            full[on] = (shape + total) / (rate + mass)
            amount.append(full)
        if not len(on) and x[seen].sum() > 0:
            terms, amount = [-math.inf], [np.zeros(len(PI))]
        weight = np.exp(np.array(terms) - logsumexp(terms)) if np.isfinite(logsumexp(terms)) else np.ones(1)
        means.append(weight @ np.array(amount))
        logs.append(logsumexp(terms) + stats.bernoulli.logpmf(b, PI).sum())
    return np.array(logs), np.array(configurations), np.array(means)


def params(num: int = 1) -> dict[str, torch.Tensor]:
    one = {"signatures": PHI, "proportions": PI, "amounts": AMOUNTS}
    return {name: torch.tensor(value, dtype=F64).expand(num, *value.shape) for name, value in one.items()}


def test_draws_have_the_exact_posterior() -> None:
    for shape, gone in ((1.0, False), (2.5, True)):
        data = torch.tensor(ROWS).clone()
        if gone:
            data[torch.arange(5), torch.tensor([2, 0, 0, 2, 0])] = math.nan
        gibbs = UsageGibbs.build(UsageFactorization(3, 3, shape=shape).usage(), data)
        generator, at = torch.Generator().manual_seed(0), params(50)
        latents = gibbs.begin(at, generator)
        bits, joint, amounts = [], [], []
        for t in range(700):
            latents, chances = gibbs.sweep(at, latents, generator, backwards=t % 2 == 1)
            if t >= 50:
                joint.append(latents["usage"])
                bits.append(chances["usage"])
                amounts.append(chances["activities"])
        code = (torch.stack(joint) * torch.tensor([4.0, 2.0, 1.0], dtype=F64)[:, None]).sum(-2).long()  # (T, R, N)
        for n, row in enumerate(data.numpy()):
            seen = ~np.isnan(row)
            logs, configurations, means = exactly(np.nan_to_num(row), shape, seen)
            posterior = np.exp(logs - logsumexp(logs))
            found = torch.bincount(code[:, :, n].flatten(), minlength=8).numpy() / code[:, :, n].numel()
            spread = (torch.nn.functional.one_hot(code[:, :, n], 8).double().mean(0).std(0) / math.sqrt(50)).numpy()  # chains
            assert (np.abs(found - posterior) < 5 * spread + 2e-3).all(), (n, found, posterior)
            rao = torch.stack(bits)[:, :, :, n].mean((0, 1)).numpy()
            assert np.abs(rao - posterior @ configurations).max() < 0.01
            mean = torch.stack(amounts)[:, :, :, n].mean((0, 1)).numpy()
            assert np.abs(mean - posterior @ means).max() < 0.03 * (1 + (posterior @ means).max())

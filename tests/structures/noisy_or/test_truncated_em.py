"""Truncated EM against enumeration, and the edges that are not worth their price."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from inference.base.progress import NoProgress
from inference.structures.noisy_or.em_steps import CauseRows, CauseSteps
from inference.structures.noisy_or.grow_and_prune import Polish
from inference.structures.noisy_or.likelihood import summed_rows
from inference.structures.noisy_or.truncated_em import TruncatedSteps
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
CAUSES = NoisyOr(30, 6).causes()


def truth() -> dict[str, Tensor]:
    """Six latents, one of them rare."""
    params = random_design(6, seed=4, num_latents=6, num_items=30)
    return {
        name: value.unsqueeze(0)
        for name, value in (
            params | {"prior": torch.tensor([0.3, 0.25, 0.2, 0.2, 0.15, 0.05])}
        ).items()
    }


def rows(missing: bool = False) -> CauseRows:
    data = sample_noisy_or(
        {name: value[0].double() for name, value in truth().items()}, 700, seed=0
    )[0]
    if missing:
        data = data.masked_fill(
            torch.rand(data.shape, generator=torch.Generator().manual_seed(1)) < 0.1, math.nan
        )
    return CauseRows.merge(data)


def start() -> dict[str, Tensor]:
    """The truth, blurred: every state has some mass."""
    params = {name: value.double() for name, value in truth().items()}
    return params | {"failure": 0.15 + 0.8 * params["failure"], "leak": params["leak"] + 0.02}


@pytest.mark.parametrize("missing", [False, True])
def test_the_states_found_hold_the_posterior(missing: bool) -> None:
    """From the empty state alone, exchanges find what enumeration finds; the bound grows and stays
    below.
    """
    every = binary_configurations(6, F64, "cpu")
    exact = CauseSteps(CAUSES, rows(missing), every, 1)
    params = start()
    expected, total, prior = exact.e_step(params)
    steps = TruncatedSteps.begin(CAUSES, rows(missing), every[:1], params)
    bounds = []
    for _ in range(6):
        steps = steps.refreshed(params)
        bounds.append(float(steps.e_step(params)[1]))
    assert bounds == sorted(bounds)
    assert bounds[-1] <= float(total) + 1e-9
    assert bounds[-1] == pytest.approx(float(total), abs=0.02)
    found, _, same_prior = steps.e_step(params)
    assert torch.equal(prior, same_prior)
    place = [int(i) for i in steps.configurations @ 2.0 ** torch.arange(6, dtype=F64)]
    code = [int(i) for i in every @ 2.0 ** torch.arange(6, dtype=F64)]
    for name in ("per_configuration", "ones", "seen"):
        left, right = getattr(found, name), getattr(expected, name)
        if right is None:
            assert left is None
            continue
        scattered = torch.zeros_like(right)
        scattered[0, [code.index(c) for c in place]] = left[0]
        torch.testing.assert_close(scattered, right, atol=0.05, rtol=1e-3)
    own = summed_rows(CAUSES, rows(missing), {name: value[0] for name, value in params.items()})
    assert float(own @ rows(missing).counts) == pytest.approx(float(total), rel=1e-12)


def test_truncated_em_never_falls() -> None:
    params = start()
    steps = TruncatedSteps.begin(CAUSES, rows(), binary_configurations(6, F64, "cpu")[:8], params)
    polish = Polish(steps, params, NoProgress())
    polish.climb(25, 1e-9)
    course = torch.tensor(polish.objectives)
    assert bool((course.diff() > -1e-3).all())
    whole = Polish(
        CauseSteps(CAUSES, rows(), binary_configurations(6, F64, "cpu"), 2), params, NoProgress()
    )
    whole.climb(25, 1e-9)
    assert polish.log_likelihood == pytest.approx(whole.log_likelihood, abs=2)


def test_edges_without_worth_are_taken_away_and_no_others() -> None:
    """No likelihood is lost beyond the price, all true edges stay, and what is gone stays gone."""
    params = {name: value.double() for name, value in truth().items()}
    params["failure"] = params["failure"].clamp(max=0.995)
    steps = CauseSteps(CAUSES, rows(), binary_configurations(6, F64, "cpu"), 2)
    polish = Polish(steps, params, NoProgress())
    polish.climb(30, 1e-7)
    before, likelihood = polish.objectives[-1], polish.log_likelihood
    assert polish.thin()
    polish.climb(30, 1e-7)
    edges = polish.steps.edges
    assert edges is not None
    assert bool(edges[truth()["failure"][0] < 1].all())
    assert int(edges.sum()) < int((truth()["failure"] < 1).sum()) + 4
    assert polish.objectives[-1] > before
    assert likelihood - polish.log_likelihood < polish.edge_price * float((~edges).sum())
    assert float(polish.params["failure"][0][~edges].min()) > 1 - 1e-5

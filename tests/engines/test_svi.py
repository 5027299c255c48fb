"""SVI, and Laplace beside it: against quadrature, with importance ratios; guides of one's own;
mini-batches.
"""

from __future__ import annotations

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from support.screening import exact_share, results, screening
from support.two_skills import GRAPH, encoder_truth
from torch.distributions import constraints

from inference import SVI, Fit, FullRank, Laplace, LowRank, MeanField, fit
from inference.base.diagnostics import psis
from inference.programs.global_state import quiet
from inference.programs.program import simulate
from ppl_models import DeepDiscreteEncoder, FactorAnalysis, UsageFactorization

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
F64 = torch.float64


@pytest.mark.parametrize(
    "engine",
    [
        Laplace(2000),
        SVI(FullRank(), 150, num_draws=2000),
        *(
            pytest.param(SVI(guide, 150, num_draws=2000), marks=pytest.mark.slow)
            for guide in (MeanField(), LowRank(1))
        ),
    ],
    ids=["laplace", "full", "mean", "low"],
)
def test_approximations_come_near_with_a_k_hat_that_says_so(engine):
    data = results(1000)
    mean, spread, _ = exact_share(data)
    result = fit(screening, data, engine)
    draws = result.draws["share"]
    assert draws.shape[:2] == (1, 2000)
    assert abs(float(draws.mean()) - mean) < 0.25 * spread
    assert abs(float(draws.std()) / spread - 1) < 0.15
    ratio = result.sample_stats["log_importance"]
    weights = torch.softmax(ratio[0], 0)
    assert float(weights @ draws[0]) == pytest.approx(
        mean, abs=0.15 * spread
    )  # ratios correct the approximation
    assert float(psis(ratio.numpy())[1][0]) < 0.7
    evidence = float(torch.logsumexp(ratio, 1)) - math.log(2000)
    grid = np.linspace(0, 1, 20001)[1:-1]
    ones = float(data.sum())
    log = (
        stats.beta.logpdf(grid, 2, 3)
        + ones * np.log(0.2 + 0.6 * grid)
        + (1000 - ones) * np.log(0.8 - 0.6 * grid)
    )
    assert evidence == pytest.approx(logsumexp(log) - math.log(20000), abs=0.02)
    if isinstance(engine, SVI):
        assert result.elbo < evidence + 0.02
        assert result.objective_name == "ELBO"


def test_a_guide_of_ones_own_and_what_it_may_leave_out():
    data = results(200)

    def guide(data=None, num_rows=None):
        a = pyro.param("a", torch.tensor(3.0, dtype=F64), constraint=dist.constraints.positive)
        b = pyro.param("b", torch.tensor(3.0, dtype=F64), constraint=dist.constraints.positive)
        pyro.sample("share", dist.Beta(a, b))

    mean, spread, _ = exact_share(data)
    result = fit(screening, data, SVI(guide, 400, learning_rate=0.05, num_particles=8))
    assert abs(float(result.draws["share"].mean()) - mean) < 0.5 * spread
    assert not list(pyro.get_param_store().keys())  # nothing is left behind

    def empty(data=None, num_rows=None):
        pyro.param("a", torch.tensor(3.0, dtype=F64))

    with pytest.raises(ValueError, match="guide does not draw 'share'"):
        fit(screening, data, SVI(empty))

    def strange(data=None, num_rows=None):
        guide(data, num_rows)
        pyro.sample("other", dist.Normal(torch.zeros((), dtype=F64), 1.0))

    with pytest.raises(ValueError, match="'other'.*does not have"):
        fit(screening, data, SVI(strange))


def test_svi_on_mini_batches_and_after_an_interruption(tmp_path, monkeypatch):
    data = simulate(DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,)), encoder_truth(), 0, None, 300)[
        "items"
    ]
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    whole = fit(model, data, SVI(num_steps=60, num_draws=50))
    part = fit(model, data, SVI(num_steps=60, num_draws=50, batch_size=100))
    gap = (whole.params["loadings_1"] - part.params["loadings_1"]).abs().max()
    assert float(gap) < 0.7
    from pyro.infer import SVI as PyroSVI

    original, left = PyroSVI.step, [30]

    def broken(self, *args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PyroSVI, "step", broken)
    path = tmp_path / "svi.safetensors"
    for method, straight in (
        (SVI(num_steps=60, num_draws=50), whole),
        (SVI(num_steps=60, num_draws=50, batch_size=100), part),
    ):
        left[0] = 30
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, method, checkpoint=path)
        resumed = fit(model, data, method, checkpoint=path)
        assert left[0] == -40  # the steps after the twentieth, which the file holds
        assert torch.equal(resumed.trace.objective, straight.trace.objective)
        assert torch.equal(resumed.draws["loadings_1"], straight.draws["loadings_1"])
        again = fit(model, data, method, checkpoint=path)
        assert torch.equal(again.draws["loadings_1"], straight.draws["loadings_1"])
        assert left[0] == -40  # all is in the file
        path.unlink()


def test_a_fit_with_a_guide_of_the_users_is_saved_without_its_code(tmp_path):
    def own_guide(data=None):
        spread = pyro.param(
            "spread", torch.tensor([2.0, 3.0], dtype=F64), constraint=constraints.positive
        )
        pyro.sample("share", dist.Beta(spread[0], spread[1]))

    data = results(40)
    result = fit(screening, data, SVI(own_guide, 60, num_draws=50))
    result.save(tmp_path / "fit")
    back = Fit.load(tmp_path / "fit", model=screening)
    assert torch.equal(back.draws["share"], result.draws["share"])
    assert "own_guide" in repr(back.method)
    with pytest.raises(ValueError, match="own_guide is needed again"):
        fit(screening, data, back.method)


def test_amounts_of_rows_are_drawn_and_renamed_with_their_components() -> None:
    """Failed before: a KeyError for the amounts, which a start by EM does not hold."""
    counts = torch.poisson(
        torch.full((12, 4), 3.0, dtype=torch.float64), generator=torch.Generator().manual_seed(0)
    )
    with quiet():
        result = fit(UsageFactorization(4, 2), counts, SVI(num_steps=10, num_draws=6))
        again = fit(FactorAnalysis(4, 1), counts, SVI(num_steps=10, num_draws=6))
    assert result.draws is not None
    assert result.draws["signatures"].shape == (1, 6, 2, 4)
    assert again.draws is not None
    assert again.draws["signatures"].shape == (1, 6, 1, 4)
    structure = result.structure
    draws = {
        "signatures": torch.rand(3, 2, 4),
        "activities": torch.rand(3, 2, 2),
    }  # as many rows as components
    order = torch.tensor([1, 0])
    renamed = structure.labels()[0].rename(draws, order, torch.zeros(2, dtype=torch.bool))
    assert torch.equal(
        renamed["activities"] @ renamed["signatures"],
        renamed["activities"] @ draws["signatures"][:, order],
    )
    torch.testing.assert_close(
        renamed["activities"] @ renamed["signatures"], draws["activities"] @ draws["signatures"]
    )

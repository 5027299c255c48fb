"""Simulation-based calibration tells the posterior from a narrow one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from support.screening import QUICK, screening

from inference import EM, NUTS, Laplace
from inference.calibration import Calibration, _Design, simulation_based_calibration

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
ZERO, ONE = (torch.tensor(value, dtype=torch.float64) for value in (0.0, 1.0))


@pytest.mark.slow
def test_calibration_passes_the_posterior_and_fails_a_narrow_one():
    good = simulation_based_calibration(
        screening, 15, NUTS(1, 40, 80, warm_start=None), 40, num_draws=9
    )
    assert isinstance(good, Calibration)
    assert min(good.p_values.values()) > 1e-3
    assert 0.85 < good.coverage["share"] <= 1.0
    assert good.num_failed == 0
    figure = good.plot()
    assert sum(len(ax.patches) > 3 for ax in figure.axes) == 2

    @dataclasses.dataclass(frozen=True)
    class Narrow:
        """The posterior, its spread a fifth."""

        def run(self, problem, start, progress, checkpoint):
            outcome = Laplace(200).run(problem, start, progress, checkpoint)
            center = outcome.params["share"][:, None]
            return dataclasses.replace(
                outcome, draws={"share": center + 0.2 * (outcome.draws["share"] - center)}
            )

    bad = simulation_based_calibration(screening, 15, Narrow(), 40, num_draws=9)
    assert bad.p_values["share"] < 1e-3
    assert bad.coverage["share"] < 0.6
    with pytest.raises(ValueError, match="engine that draws"):
        simulation_based_calibration(screening, 15, EM(), 2)
    with pytest.raises(ValueError, match="level"):
        simulation_based_calibration(screening, 15, QUICK, 2, level=2.0)


def test_data_sets_left_out_are_said():
    @dataclasses.dataclass(frozen=True)
    class Failing:
        """Laplace, which fails where there are many ones."""

        def run(self, problem, start, progress, checkpoint):
            if float(problem.data.mean()) > 0.5:
                raise ValueError("too many ones")
            return Laplace(20).run(problem, start, progress, checkpoint)

    with pytest.warns(UserWarning, match="of 12 data sets have no fit and are left out.*too many"):
        found = simulation_based_calibration(screening, 15, Failing(), 12, num_draws=9)
    assert 0 < found.num_failed == 12 - found.num_replicates < 12


@pytest.mark.parametrize("method", [Laplace(20), NUTS(1, 20, 20, warm_start=None)], ids=repr)
def test_fewer_draws_than_ranks_are_refused(method):
    """Draws taken twice would pile ranks up in every other place, with a p-value near zero."""
    with pytest.raises(ValueError, match="at least num_draws = 99 times"):
        simulation_based_calibration(screening, 15, method, 2)


def unknown_mean(data=None, num_rows=None):
    mean = pyro.sample("mean", dist.Uniform(ZERO, ONE))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        pyro.sample("answers", dist.Bernoulli(mean), obs=data)


def unknown_level(data=None, num_rows=None):
    mean = pyro.sample("mean", dist.Normal(ZERO, ONE))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        pyro.sample("heights", dist.Normal(mean, ONE), obs=data)


@pytest.mark.parametrize(
    ("program", "site"), [(unknown_mean, "answers"), (unknown_level, "heights")]
)
def test_data_are_drawn_with_other_numbers_than_the_truth(program, site):
    """Residuals of rows know nothing of the truth: with one stream their correlation was -.5."""
    design = _Design(program, 5, site, 9, 0.95, None)
    pairs = [design.replicate(seed) for seed in range(300)]
    truths = [float(truth["mean"]) for truth, _ in pairs]
    residuals = [float(data.double().mean()) - float(truth["mean"]) for truth, data in pairs]
    assert abs(np.corrcoef(truths, residuals)[0, 1]) < 0.25

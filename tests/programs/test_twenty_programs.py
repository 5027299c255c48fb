"""Twenty programs as people write them: fitted as they are, and their answers checked by hand and
by plain Pyro.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from support.everyday import by_hand
from support.everyday.table import BITS, TWENTY
from torch import Tensor

from inference import EM, NUTS, SAEM, SVI, Laplace, fit
from inference.programs.data import checked
from inference.programs.global_state import in_dtype, quiet
from inference.programs.program import Program

every_program = pytest.mark.parametrize("name", TWENTY)
LONG = {
    "hmm, masked",
    "hmm, sequences in a loop",
    "factorial hmm",
    "autoregressive hmm",
    "hierarchical Dawid and Skene",
    "Dirichlet process, truncated",
}
EXACT = [
    pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])
    for name, row in TWENTY.items()
    if "EM" in row.engines
]
INTEGRATED = {"Rasch", "eight schools"}  # by quadrature, which has tests of its own
QUICK: dict[str, Any] = {
    "EM": EM(),
    "SAEM": SAEM(max_iterations=30),
    "Laplace": Laplace(num_draws=20),
    "SVI": SVI(num_steps=30, num_draws=20),
    "NUTS": NUTS(num_chains=2, warmup_steps=20, num_samples=6, max_depth=4),
}


def program_of(name: str) -> tuple[Program, Any]:
    row = TWENTY[name]
    data = row.data()
    return Program(row.program, checked(row.program, data)[0]), data


def points(program: Program, count: int) -> dict[str, Tensor]:
    draws = program.draw_prior(count, 3, local=True)
    free = {
        site: value.nan_to_num().clamp(-1.5, 1.5)
        for site, value in program.unconstrained(draws).items()
    }
    return program.constrained(free)


def as_arrays(params: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {site: value.detach().numpy() for site, value in params.items()}


@every_program
def test_log_likelihoods_are_those_by_hand(name: str) -> None:
    """At three points, alone and as a batch."""
    program, data = program_of(name)
    several = points(program, 3)
    together = program.log_marginal(several)
    for r in range(3):
        one = {site: value[r] for site, value in several.items()}
        expected = TWENTY[name].log_likelihood(as_arrays(one), data)
        assert float(program.log_marginal(one)) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert float(together[r]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", EXACT)
def test_em_climbs_to_an_optimum_that_plain_pyro_knows(name: str) -> None:
    """Its objective is minus the loss of Pyro's own enumeration at the estimate, its log-likelihood
    that by hand, and its slope there is nought.
    """
    row = TWENTY[name]
    program, data = program_of(name)
    with quiet():
        result = fit(row.program, data, EM(), num_restarts=3)
    assert bool((result.trace.objective.diff() > -1e-8).all())
    assert result.log_likelihood == pytest.approx(
        row.log_likelihood(as_arrays(result.params), data), rel=1e-9
    )
    assert result.objective == pytest.approx(-_loss_of_pyro(program, result.params), rel=1e-9)
    free = {
        site: value.clone().requires_grad_()
        for site, value in program.unconstrained(result.params).items()
    }
    params = program.constrained(free)
    (program.log_marginal(params) + program.log_prior(params)).backward()
    if result.converged:
        assert (
            max(float(value.grad.abs().max()) for value in free.values() if value.grad is not None)
            < 0.02
        )


def _loss_of_pyro(program: Program, params: dict[str, Tensor]) -> float:
    """Of TraceEnum_ELBO with the parameters given; the library's own handling of missing entries
    stays on.
    """
    model = config_enumerate(poutine.condition(program.model, params), default="parallel")
    with in_dtype(torch.float64), pyro.validation_enabled(False), quiet():
        return float(
            TraceEnum_ELBO(max_plate_nesting=program.max_plate_nesting).loss(
                model, lambda *_: None, *program.args
            )
        )


@every_program
def test_engines_that_do_not_fit_it_say_so(name: str) -> None:
    row = TWENTY[name]
    others = set(BITS) - set(row.engines) - ({"EM", "Laplace"} if name in INTEGRATED else set())
    for engine in others:
        with pytest.raises(ValueError, match="use|expected|cannot|draw it by") as caught, quiet():
            fit(row.program, row.data(), QUICK[engine])
        assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, engine) for name, row in TWENTY.items() for engine in row.engines if engine != "EM"],
)
def test_engines_fit_it(name: str, engine: str) -> None:
    row = TWENTY[name]
    data = row.data()
    with quiet():
        result = fit(row.program, data, QUICK[engine])
    assert all(bool(value.isfinite().all()) for value in result.params.values())
    if engine in ("SVI", "NUTS", "Laplace"):
        assert result.draws is not None
    program, _ = program_of(name)
    by = row.log_likelihood(as_arrays(result.params | (result.local or {})), data)
    assert float(program.log_marginal(result.params | (result.local or {}))) == pytest.approx(
        by, rel=1e-8
    )


@pytest.mark.slow
def test_the_posterior_of_the_schools_is_that_of_a_grid() -> None:
    row = TWENTY["eight schools"]
    with quiet():
        result = fit(row.program, row.data(), NUTS(warmup_steps=500, num_samples=1000))
    mean_mu, mean_tau = by_hand.mean_of_schools(row.data())
    assert float(result.params["mu"]) == pytest.approx(mean_mu, abs=0.6)
    assert float(result.params["tau"]) == pytest.approx(mean_tau, abs=0.6)

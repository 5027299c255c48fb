"""Networks of several sizes as one tensor program, against one fit a size."""

from __future__ import annotations

import math

import pytest
import torch
from papers.noisy_or_sizes import fit_sizes

from inference import EM, SAEM, ConvergenceWarning, fit
from ppl_models import DeepNoisyOr, NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import random_design

METHOD = EM(
    max_iterations=25, tolerance=1e-5, parameter_tolerance=1e-2, acceleration=None
)  # what is tried ahead is rounded, and so differs in its last digits
DATA = sample_noisy_or(random_design(4, seed=3, num_latents=3, num_items=10), 150, seed=3)[0]


@pytest.mark.parametrize(
    "concentrations", [{}, {"prior_concentration": (0.8, 1.0), "failure_concentration": (1.5, 1.2)}]
)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_each_size_is_what_it_is_alone(missing: bool, concentrations: dict) -> None:
    gone = torch.rand(DATA.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    data = DATA.masked_fill(gone, math.nan) if missing else DATA

    def family(size: int) -> NoisyOr:
        return NoisyOr(10, size, **concentrations)

    together = fit_sizes(family, data, (4, 2, 3), METHOD, num_restarts=3, seed=5)
    for size, found in zip((4, 2, 3), together, strict=True):
        alone = fit(family(size), data, METHOD, init="random", num_restarts=3, seed=5)
        assert found.model == alone.model
        assert found.num_iterations == alone.num_iterations
        torch.testing.assert_close(
            found.restarts.objective, alone.restarts.objective, rtol=1e-9, atol=1e-7
        )
        torch.testing.assert_close(
            found.restarts.log_likelihood, alone.restarts.log_likelihood, rtol=1e-9, atol=1e-7
        )
        torch.testing.assert_close(
            found.trace.objective, alone.trace.objective, rtol=1e-9, atol=1e-7
        )
        for name, value in alone.restarts.params.items():
            torch.testing.assert_close(found.restarts.params[name], value, rtol=0, atol=2e-6)
        assert found.bic == pytest.approx(alone.bic, abs=1e-4)


def test_a_size_that_has_not_converged_says_so() -> None:
    with pytest.warns(ConvergenceWarning, match="3 latents: the best start did not converge"):
        fit_sizes(lambda m: NoisyOr(10, m), DATA, (3,), EM(max_iterations=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": ()}, "distinct positive integers"),
        ({"sizes": (3, 3)}, "distinct positive integers"),
        ({"sizes": (0, 3)}, "distinct positive integers"),
        ({"sizes": (3, 17)}, "num_latents = 17 asks exact EM"),
        ({"method": SAEM()}, "method must be EM"),
        ({"num_restarts": 0}, "num_restarts must be a positive integer"),
        ({"family": lambda m: DeepNoisyOr(10, (m, 1))}, "models that offer causes"),
        ({"family": lambda m: NoisyOr(10, m + 1)}, "a model of 2 latents, got 3"),
    ],
)
def test_bad_input(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_sizes(
            **{"family": lambda m: NoisyOr(10, m), "data": DATA, "sizes": (2, 3), **arguments}
        )

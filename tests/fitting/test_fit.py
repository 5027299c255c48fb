"""What fit() promises around its engines: restarts, starts, warnings, random states, checkpoints of
users' programs.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from support.answer_tables import ANSWERS, RESPONSES, SHORT, name_of, table
from support.fitted_examples import mixture_fit

from inference import EM, fit
from inference.base.steps import GenericSteps
from inference.fitting.fit import _start
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


# ---------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("response", RESPONSES, ids=name_of)
def test_parameters_are_counted_free_of_zeros(response):
    dispersed = response.num_dispersed(6)
    result = fit(DeepDiscreteEncoder(6, (3, 1), response), table(response), SHORT)
    assert result.num_parameters == 1 + 6 * (3 + 1) + 3 * (1 + 1) + dispersed
    params = {name: value.clone() for name, value in result.params.items()}
    params["loadings_1"][:4, 0] = 0.0
    params["loadings_2"][2, 0] = 0.0
    params["intercepts_1"][0] = 0.0  # an intercept counts whatever it is
    sparse = dataclasses.replace(result, params=params)
    assert sparse.num_parameters == result.num_parameters - 5
    assert sparse.bic == pytest.approx(
        -2 * sparse.log_likelihood + sparse.num_parameters * math.log(40), rel=1e-14
    )


def test_the_best_restart_is_the_one_reported():
    model = DeepDiscreteEncoder(6, (2,), bound=4.0)
    result = fit(model, ANSWERS, EM(max_iterations=15), init="random", num_restarts=6, seed=3)
    assert result.objective == float(result.restarts.objective.max())
    assert result.restarts.best == int(result.restarts.objective.argmax())
    assert len(set(result.restarts.objective.tolist())) == 6
    program = Program(model, torch.from_numpy(ANSWERS))
    own = {name: value[result.restarts.best] for name, value in result.restarts.params.items()}
    assert float(program.log_marginal(own)) == pytest.approx(result.log_likelihood, rel=1e-12)
    assert torch.allclose(
        program.log_marginal(result.restarts.params), result.restarts.log_likelihood, rtol=1e-12
    )


def test_latents_are_named_so_that_loadings_sum_to_a_positive_number():
    for seed in range(5):
        result = fit(
            DeepDiscreteEncoder(6, (3, 1)), ANSWERS, EM(max_iterations=10), init="random", seed=seed
        )
        assert (result.params["loadings_1"].sum(0) > 0).all()
        assert (result.params["loadings_2"].sum(0) > 0).all()
        assert result.log_likelihood == pytest.approx(
            float(result.log_likelihood_rows(ANSWERS).sum()), rel=1e-12
        )


def test_warnings_are_given_once_and_kept():
    frame = pd.DataFrame(ANSWERS, columns=list("abcdef")).assign(c=1.0)
    with pytest.warns(UserWarning, match=".") as caught:
        result = fit(DeepDiscreteEncoder(6, (1,)), frame, SHORT, num_restarts=2)
    assert tuple(str(w.message) for w in caught) == result.warnings
    assert any(text.endswith("one value only: c") for text in result.warnings)
    assert {Path(w.filename).name for w in caught} == {
        Path(__file__).name
    }  # they point at the caller


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT, num_restarts=2, seed=1)
    result.simulate(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT, num_restarts=2, seed=1)
    assert torch.equal(again.restarts.objective, result.restarts.objective)
    assert len(pyro.get_param_store()) == 0
    assert torch.get_default_dtype() == torch.float32


def test_a_start_may_be_arrays_of_any_precision():
    model = DeepDiscreteEncoder(6, (2,))
    first = fit(model, ANSWERS, SHORT)
    arrays = {name: value.numpy() for name, value in first.params.items()}
    single = {name: value.float() for name, value in first.params.items()}
    ours, theirs, coarse = (
        fit(model, ANSWERS, SHORT, init=init) for init in (first, arrays, single)
    )
    assert ours.objective == theirs.objective
    assert coarse.params["loadings_1"].dtype == torch.float64
    assert coarse.objective == pytest.approx(ours.objective, abs=1e-3)


def test_restarts_from_a_given_start_begin_there_and_nearby():
    model = DeepDiscreteEncoder(6, (2,))
    first = fit(model, ANSWERS, EM(max_iterations=300))
    problem = problem_of(model, ANSWERS, 0)
    start = _start(problem, None, first, 4)
    for name, value in first.params.items():
        assert torch.allclose(start[name][0], value, atol=1e-9)
        assert all((start[name][r] - value).abs().max() > 1e-3 for r in (1, 2, 3))
        assert all((start[name][r] - start[name][1]).abs().max() > 1e-3 for r in (2, 3))
    other = _start(dataclasses.replace(problem, seed=1), None, first, 4)
    assert not torch.equal(other["loadings_1"][1], start["loadings_1"][1])


def test_progress_is_shown_on_standard_error_only(capfd):
    fit(DeepDiscreteEncoder(6, (1,)), ANSWERS, SHORT, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "objective -" in shown.err
    fit(DeepDiscreteEncoder(6, (1,)), ANSWERS, SHORT)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------- programs of users

SOURCE = """
def make(scale):
    def program(data):
        ones = torch.ones(2, dtype=torch.float64)
        weights = pyro.sample("weights", dist.Dirichlet({prior} * ones))
        rate = pyro.sample("rate", dist.Gamma(scale * ones, 1.0).to_event(1))
        with pyro.plate("rows", len(data)):
            group = pyro.sample("group", dist.Categorical(weights))
            pyro.sample("count", dist.{family}(Vindex(rate)[..., group]), obs=data)
    return program
"""


def written(prior="1.0", family="Poisson", scale=1.5):
    """The program as another process would define it: a new object of the same source."""
    scope = {"pyro": pyro, "dist": dist, "torch": torch, "Vindex": Vindex}
    exec(SOURCE.format(prior=prior, family=family), scope)
    return scope["make"](scale)


def test_a_users_program_resumes_in_another_process(tmp_path, monkeypatch):
    """A function has another address there: only its code may tell whether it is the same."""
    counts = torch.from_numpy(
        np.random.default_rng(1).poisson([[1.0], [6.0]], (2, 20)).ravel().astype(float)
    )
    method = EM(max_iterations=8)
    whole = fit(written(), counts, method)
    original, calls = GenericSteps.m_step, []

    def interrupted(self, statistics, params):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, statistics, params)

    monkeypatch.setattr(GenericSteps, "m_step", interrupted)
    path = tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(written(), counts, method, checkpoint=path)
    resumed = fit(written(), counts, method, checkpoint=path)
    assert len(calls) == 5 + 4  # the four iterations on disk are not done again
    assert torch.equal(resumed.trace.objective, whole.trace.objective)
    for other in (written(prior="2.0"), written(family="Exponential"), written(scale=2.5)):
        with pytest.raises(ValueError, match="another fit"):
            fit(other, counts, method, checkpoint=path)


def test_a_probability_vector_of_a_users_program_has_one_free_number_less():
    result, data = mixture_fit()  # three groups of four answers
    assert result.num_parameters == (3 - 1) + 3 * 4
    assert result.bic == pytest.approx(-2 * result.log_likelihood + 14 * math.log(len(data)))

"""What holds of every small model and its data, drawn by hypothesis: EM climbs, the order of the
rows is nothing, files keep everything.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from fuzz import oracle, records, tables
from fuzz.draw import Draw
from hypothesis import HealthCheck, Phase, assume, given, settings, strategies as st

from inference import EM, Factorize, Fit, fit

# nothing is shrunk: a case is one seed already, which hypothesis prints, and a fit a step would
# take minutes
small = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
seeds = st.integers(0, 2**32 - 1)
names = st.sampled_from(records.FAMILIES)


def drawn(name: str, seed: int, num_rows: int = 8) -> tuple[Any, Any]:
    """A sound model of a family, and rows it could have made."""
    draw = Draw(seed)
    model = records.sound(draw, name)
    for _ in range(20):
        data = tables.plain(draw, model)
        if len(data["state"] if isinstance(data, dict) else data) >= num_rows:
            return model, data
    assume(False)
    raise AssertionError


def quietly(model: Any, data: Any, method: Any, **settings: Any) -> Fit:
    """A fit without its warnings; a model that refuses these rows is no case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fit(model, data, method, **settings)
        except ValueError as error:
            if oracle.is_own(error):
                assume(False)
            raise


def engine(name: str, iterations: int = 4) -> Any:
    if name.endswith("Factorization") and name != "UsageFactorization":
        return Factorize(max_sweeps=15 * iterations, race=False)
    return (
        records.RECORDS["AlternatingMinimization"](max_iterations=iterations)
        if name == "SparseCoding"
        else EM(max_iterations=iterations)
    )


@small
@given(names, seeds)
def test_the_objective_never_falls(name, seed):
    assume(name != "UsageFactorization")  # its engine is stochastic
    model, data = drawn(name, seed)
    result = quietly(model, data, engine(name, 8), init="random", num_restarts=2)
    course = result.trace.objective
    course = course[~course.isnan()]
    loss = course[:-1] - course[1:]
    assert bool((loss <= 1e-7 * (1 + course[1:].abs())).all()), course


@small
@given(names, seeds)
def test_the_order_of_the_rows_is_nothing(name, seed):
    assume(name not in ("UsageFactorization", "NoisyOr"))  # their engines draw rows
    model, data = drawn(name, seed)
    if name == "HiddenMarkov":  # a table's rows are steps, and sequences what has no order
        data = np.array_split(data, 4)
    order = np.random.default_rng(seed).permutation(
        len(data["state"] if isinstance(data, dict) else data)
    )
    if isinstance(data, dict):
        turned: Any = {key: np.asarray(value)[order] for key, value in data.items()}
    else:
        turned = [data[i] for i in order] if isinstance(data, list) else data[order]
    first = quietly(model, data, engine(name, 1), init="random")
    assume(not first.local)  # whose start is of the rows
    one, other = (quietly(model, rows, engine(name), init=first.params) for rows in (data, turned))
    close = (
        1e-5 if name == "DeepNoisyOr" else 1e-8
    )  # whose M-step is a search that stops at a tolerance
    assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=close, abs=close)
    for site, value in one.params.items():
        torch.testing.assert_close(
            other.params[site], value, rtol=100 * close, atol=10 * close, msg=site
        )


@small
@given(names, seeds)
def test_saved_and_loaded_are_one(name, seed):
    model, data = drawn(name, seed)
    result = quietly(model, data, records.engine(Draw(seed), model, hostile=0.0))
    with tempfile.TemporaryDirectory() as folder:
        result.save(folder)
        again = Fit.load(folder)
    assert oracle.same(result, again) is None
    assert again.model == result.model
    assert again.warnings == result.warnings


@small
@given(names, seeds)
def test_one_seed_gives_one_answer(name, seed):
    model, data = drawn(name, seed)
    method = records.engine(Draw(seed), model, hostile=0.0)
    one, other = (quietly(model, data, method, seed=seed % 1000) for _ in range(2))
    assert oracle.same(one, other) is None

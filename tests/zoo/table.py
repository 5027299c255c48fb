"""The table: every family has a row, and the helpers of the laws that are asked of all of them."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import pyro
import pytest
import torch
from support.brute_force import BruteForce, brute_force, plain_trace
from torch import Tensor
from torch.distributions import constraints
from zoo.row import F64, Params, Row
from zoo.rows_attributes import attribute_rows
from zoo.rows_classifiers import classifier_rows
from zoo.rows_continuous_options import continuous_rows
from zoo.rows_encoder import encoders
from zoo.rows_encoder_categories import encoders_of_categories
from zoo.rows_encoder_covariates import encoders_given
from zoo.rows_factorization import factorization_rows
from zoo.rows_hidden_markov import hidden_markov_rows
from zoo.rows_measurement import bottom_rows
from zoo.rows_mixture import mixture_rows
from zoo.rows_noisy_or import noisy_or_cases
from zoo.rows_options import options_rows
from zoo.rows_programs import plain_programs

from inference import EM, Fit, fit
from inference.programs.program import Program
from ppl_models.parts.probability_tables import Simplexes, segments_of
from ppl_models.sequences.hidden_chain import AllowedRows
from ppl_models.sequences.option_chain import MatrixSimplex

NUM_ROWS = 10
NUM_RESTARTS = 2
ZOO = (
    *encoders(),
    *encoders_given(),
    *encoders_of_categories(),
    *bottom_rows(Row),
    *attribute_rows(Row),
    *plain_programs(),
    *(Row(**case) for case in noisy_or_cases()),
    *options_rows(Row),
    *continuous_rows(Row),
    *mixture_rows(Row),
    *hidden_markov_rows(Row),
    *classifier_rows(Row),
)
WITH_LOCAL = (*ZOO, *factorization_rows(Row))
LAYERED = tuple(row for row in ZOO if hasattr(row.model, "layers"))
UNPENALISED = tuple(
    row for row in LAYERED if all(layer.penalty is None for layer in row.model.layers())
)
DRAWN = tuple(row for row in WITH_LOCAL if row.data is None)
rows_that_draw = pytest.mark.parametrize("row", DRAWN, ids=lambda row: row.name)
every_row = pytest.mark.parametrize("row", WITH_LOCAL, ids=lambda row: row.name)
SWEPT = "factorization-usage-shape"  # is asked by Gibbs sweeps as its sister is, seconds a question
every_row_but_swept = pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[pytest.mark.slow] if row.name == SWEPT else [])
        for row in WITH_LOCAL
    ],
    ids=lambda row: row.name,
)
rows_without_local = pytest.mark.parametrize(
    "row", ZOO, ids=lambda row: row.name
)  # EM has nothing but parameters to move
layered_rows = pytest.mark.parametrize("row", LAYERED, ids=lambda row: row.name)


def simulated(row: Row, num_rows: int, seed: int) -> Tensor:
    """Data of the truth, by a plain run of the program, with missing entries where the row asks for
    them; given rows where it draws none.
    """
    if row.data is not None:
        return row.data(num_rows, seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        data = pyro.poutine.condition(row.model, row.truth | local_of(row, num_rows))(
            None, num_rows
        )
        if row.missing:
            gone = torch.rand(data.shape) < row.missing
            gone[torch.arange(num_rows), torch.arange(num_rows) % data.shape[1]] = (
                False  # no empty row or column
            )
            data = data.masked_fill(gone, math.nan)
        if row.local:
            empty = (data == 0) | data.isnan()
            data = torch.where(
                empty.all(-1, keepdim=True) & ~data.isnan(), 1.0, data
            )  # a row without counts is refused
    return data


def local_of(row: Row, num_rows: int = NUM_ROWS) -> Params:
    """Values of the rows' continuous latents."""
    generator = torch.Generator().manual_seed(5)
    shapes = {name: (num_rows, *row.event_shapes[name]) for name in row.local}
    return {
        name: on_support(name, 3 - 15 * torch.rand(shape, generator=generator, dtype=F64).log())
        for name, shape in shapes.items()
    }


def on_support(name: str, value: Tensor) -> Tensor:
    """Values above zero of a continuous latent of the rows; shares sum to one."""
    return value / value.sum(-1, keepdim=True) if name == "abundances" else value


def near(row: Row, num: int, seed: int, size: float = 0.3) -> Params:
    """``num`` parameter values scattered about the truth, inside the supports, zeros left alone,
    (num, ...).
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = plain_trace(
        row.model, row.truth, *((None, 2) if row.data is None else (row.data(3, 0),))
    ).nodes
    out = {}
    for name, value in row.truth.items():
        support = nodes[name]["fn"].support
        base = getattr(support, "base_constraint", support)
        noise = size * torch.randn(num, *value.shape, generator=generator, dtype=F64)
        if base is constraints.simplex or isinstance(base, AllowedRows):
            out[name] = (value.log() + noise).softmax(-1)
        elif isinstance(base, Simplexes):
            items, moved = segments_of(base.sizes, value.device), value.log() + noise
            out[name] = (moved - items.spread(items.log_total(moved))).exp()
        elif isinstance(base, MatrixSimplex):
            out[name] = (value.log() + noise).flatten(1).softmax(-1).reshape(noise.shape)
        elif base is constraints.unit_interval:
            out[name] = (value.logit() + noise).sigmoid()
        elif isinstance(base, type(constraints.positive_definite)):
            turn = torch.eye(value.shape[-1], dtype=F64) + noise / 2
            out[name] = turn @ value @ turn.mT
        elif (value > 0).all() and bool(
            (torch.as_tensor(getattr(base, "lower_bound", -1.0)) >= 0).all()
        ):
            ends = (
                torch.as_tensor(getattr(base, side, end), dtype=F64)
                for side, end in (("lower_bound", 0.0), ("upper_bound", math.inf))
            )
            out[name] = (value * noise.exp()).clamp(*ends)
        else:
            low = torch.as_tensor(
                getattr(base, "lower_bound", -1.0), dtype=F64
            )  # gaps of ordinal items stay positive, steps beside them need not
            out[name] = torch.where(
                (low >= 0) & (value > 0), value * noise.exp(), value + noise * (value != 0)
            )
    return out


@functools.cache
def data_of(row: Row) -> Tensor:
    return simulated(row, NUM_ROWS, seed=1)


@functools.cache
def program_of(row: Row) -> Program:
    return Program(row.model, data_of(row))


@functools.cache
def params_of(row: Row) -> Params:
    """Several parameter values, as a batch of restarts; with values of the rows' continuous
    latents.
    """
    generator = torch.Generator().manual_seed(9)
    local = {
        name: on_support(
            name,
            value
            * (0.3 * torch.randn(NUM_RESTARTS, *value.shape, generator=generator, dtype=F64)).exp(),
        )
        for name, value in local_of(row).items()
    }
    return near(row, NUM_RESTARTS, seed=2) | local


def at(params: Params, restart: int) -> Params:
    return {name: value[restart] for name, value in params.items()}


@functools.cache
def truth_by_hand(row: Row, restart: int) -> BruteForce:
    """Every configuration, at one of the parameter values."""
    return brute_force(row.model, at(params_of(row), restart), data_of(row))


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    actual, expected = (torch.as_tensor(value, dtype=F64).detach() for value in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def quick_fit(row: Row) -> Fit:
    """A few iterations from random starts; what it warns of is kept in the fit. Made once a
    process, for all tests that only look at a fit and ask it questions.
    """
    result, copies = _quick_fit(row)
    for name, value in (result.params | (result.local or {})).items():
        assert torch.equal(value, copies[name]), f"a test changed {name} of the fit of {row.name}"
    return result


@functools.cache
def _quick_fit(row: Row) -> tuple[Fit, Params]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(
            row.model,
            data_of(row),
            row.method or EM(max_iterations=1),
            init="random",
            num_restarts=2,
            seed=3,
        )
    everything = result.params | (result.local or {})
    return result, {name: value.clone() for name, value in everything.items()}


@functools.cache
def rows_of_quick_fit(row: Row) -> tuple[Tensor, Params]:
    """Log-likelihood of each row and posterior means of its latents: sweeps, for some models."""
    result, data = quick_fit(row), data_of(row)
    return result.log_likelihood_rows(data), result.posterior_latents(data)

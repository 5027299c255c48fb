"""A user's own program from rows in blocks: the answer of rows in memory, and what it may not make
of its rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from support import own_programs
from support.own_programs import F64
from torch import Tensor

from inference import EM, OnlineEM, RowBlocks, fit
from ppl_models import Mixture, NegativeBinomial


def counted(data: Tensor) -> None:
    """Zero-inflated counts of one column."""
    own_programs.inflated(data[:, 0])


def grouped(data: Any) -> None:
    """Two kinds of rows; the chance of each is that of the row's group, a whole number in a column
    of its own.
    """
    chance = pyro.sample("chance", dist.Beta(torch.ones(3, dtype=F64), 1.0).to_event(1))
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 10.0).to_event(1))
    with pyro.plate("rows", len(data)):
        kind = pyro.sample("kind", dist.Bernoulli(chance[..., data["group"]]))
        pyro.sample(
            "x",
            dist.Normal(torch.where(kind > 0.5, mean[..., 1:], mean[..., :1]), 1.0),
            obs=data["x"],
        )


def groups() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=150)
    kind = rng.random(150) < np.array([0.2, 0.5, 0.8])[group]
    x = rng.normal(3.0 * kind)
    x[149] = np.nan
    return pd.DataFrame({"note": ["a"] * 150, "group": group, "x": x})


def lines() -> pd.DataFrame:
    return pd.DataFrame({name: value.numpy() for name, value in own_programs.lines().items()})


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "counts": (counted, own_programs.zeros_and_counts()[:, None]),
    "hidden chain": (own_programs.chain, own_programs.walks()),
    "columns by name": (own_programs.regression_mixture, lines()),
    "whole numbers and gaps": (grouped, groups()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_program_is_fitted_from_blocks_as_from_rows_in_memory(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same iterations where M-steps in closed form, which want all rows at once, are left."""
    monkeypatch.setattr("inference.programs.expectation.closed_form", lambda *_: None)
    model, rows = CASES[case]
    method = EM(max_iterations=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three iterations are few
        whole = fit(model, rows, method, num_restarts=2, seed=1)
        found = fit(model, RowBlocks.of(rows, 41), method, num_restarts=2, seed=1)
    assert found.objective == pytest.approx(whole.objective, rel=1e-12)
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    for name, value in whole.params.items():
        assert torch.allclose(found.params[name], value, rtol=1e-9, atol=1e-11), name
    assert (found.num_rows, found.bic, found.latents) == (
        whole.num_rows,
        pytest.approx(whole.bic, rel=1e-12),
        whole.latents,
    )
    assert found.item_names == whole.item_names


def test_what_is_asked_afterwards_goes_by_block(tmp_path: Path) -> None:
    model, rows = CASES["columns by name"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(
            model, RowBlocks.of(rows, 41), EM(max_iterations=2), checkpoint=tmp_path / "fit.ckpt"
        )
        again = fit(
            model, RowBlocks.of(rows, 50), EM(max_iterations=2), checkpoint=tmp_path / "fit.ckpt"
        )
    assert torch.equal(found.params["slope"], again.params["slope"])
    blocks = RowBlocks.of(rows, 50)
    assert torch.allclose(
        found.log_likelihood_rows(blocks), found.log_likelihood_rows(rows), atol=1e-12
    )
    assert torch.allclose(
        found.posterior_latents(blocks, out=tmp_path)["group"],
        found.posterior_latents(rows)["group"],
        atol=1e-12,
    )
    moved = rows.assign(x=rows["y"], y=rows["x"])
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(model, RowBlocks.of(moved, 50), EM(max_iterations=2), checkpoint=tmp_path / "fit.ckpt")


def test_a_start_is_looked_for_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.base.streaming.row_blocks.SAMPLE_ROWS", 60)
    model, rows = CASES["counts"]
    found, whole = fit(model, RowBlocks.of(rows, 64)), fit(model, rows)
    assert found.num_rows == len(rows)
    assert found.objective == pytest.approx(whole.objective, rel=1e-6)


def mean_of_all(data: Tensor) -> None:
    spread = pyro.sample("spread", dist.Gamma(torch.tensor(2.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(data[:, 0].mean(), spread), obs=data[:, 0])


def given_size(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", 200):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data[:, 0])


def size_by_rows(data: Tensor) -> None:
    rate = pyro.sample(
        "rate", dist.Gamma(torch.ones(int(data.max()) + 1, dtype=F64), 1.0).to_event(1)
    )
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Poisson(rate[..., data[:, 0].long()]), obs=data[:, 0])


def prior_by_rows(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(data.mean(), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data[:, 0])


def observed_outside(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    pyro.sample("once", dist.Normal(mean, 1.0), obs=torch.tensor(1.0, dtype=F64))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data[:, 0])


def with_abilities(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        ability = pyro.sample("ability", dist.Normal(mean, 1.0))
        pyro.sample("x", dist.Normal(ability, 1.0), obs=data[:, 0])


def positive(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(torch.tensor(1.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Poisson(rate), obs=data[:, 0])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (mean_of_all, "takes something from all rows together"),
        (
            given_size,
            "values of shape .200,. were expected, as its distribution and plates have them, got"
            " .64,.",
        ),
        (size_by_rows, "the same parameters and latents whatever its rows"),
        (prior_by_rows, "priors that do not depend on the rows"),
        (observed_outside, "observes something outside the plate over rows"),
        (with_abilities, "RowBlocks: EM sums discrete latents out and cannot integrate 'ability'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_programs_that_know_more_than_rows_are_refused(model: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(model, RowBlocks.of(own_programs.zeros_and_counts()[:, None], 64), EM())


def test_rows_that_a_program_cannot_have_made_are_named() -> None:
    rows = own_programs.zeros_and_counts()[:, None].clone()
    rows[170] = -1.0
    with pytest.raises(ValueError, match="got -1 .rows 128 to 192 of the data"):
        fit(positive, RowBlocks.of(rows, 64), EM())


def test_engines_are_refused_before_any_row_is_read() -> None:
    class Unread:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: slice) -> Any:
            if index.stop > 1:
                raise AssertionError("a row was read")
            return np.zeros((1, 3))

    from inference import NUTS

    for model, method, words in [
        (counted, NUTS(), "EM\\(\\) is fitted from rows in blocks"),
        (Mixture(2, NegativeBinomial(), 3), EM(), "without negative binomial"),
    ]:
        with pytest.raises(ValueError, match=words):
            fit(model, RowBlocks.of(Unread()), method)


def test_stepwise_passes_want_sums() -> None:
    with pytest.raises(ValueError, match="OnlineEM: mixtures"):
        fit(counted, RowBlocks.of(CASES["counts"][1], 64), EM(start=OnlineEM()))

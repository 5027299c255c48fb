"""Leave-one-out and folds against refits without the rows, and against quadrature."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from support.screening import results, screened_fit, screening

from inference import EM, NUTS, Fit, fit
from inference.base.diagnostics import load_arviz
from inference.comparison import compare
from inference.loo import cross_validate, loo
from ppl_models import HiddenMarkov, Normal

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
F64 = torch.float64


@pytest.fixture(scope="module")
def screened() -> tuple[Fit, torch.Tensor]:
    return screened_fit()


def test_loo_is_what_refits_without_each_row_give(screened):
    result, data = screened
    exact = []
    for i in range(len(data)):  # by quadrature
        grid = np.linspace(0, 1, 4001)[1:-1]
        rest = float(data.sum() - data[i])
        log = (
            stats.beta.logpdf(grid, 2, 3)
            + rest * np.log(0.2 + 0.6 * grid)
            + (len(data) - 1 - rest) * np.log(0.8 - 0.6 * grid)
        )
        own = np.log(0.2 + 0.6 * grid) if data[i] == 1 else np.log(0.8 - 0.6 * grid)
        exact.append(logsumexp(log + own) - logsumexp(log))
    estimate = loo(result, data)
    assert estimate.elpd == pytest.approx(sum(exact), abs=0.1)
    np.testing.assert_allclose(estimate.rows, exact, atol=0.03)  # some 500 independent draws
    assert estimate.num_bad == 0
    assert 0.3 < estimate.effective_parameters < 2
    with pytest.raises(ValueError, match="point estimate"):
        loo(fit(screening, data, EM()), data)
    few = dataclasses.replace(result, draws={"share": result.draws["share"][:, :5]})
    with pytest.raises(ValueError, match="at least 100 draws.*20"):
        loo(few, data)


def test_moved_draws_repair_an_outlier():
    """A Normal mean and one row far off: exact by conjugacy; parts of the data that are no rows."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.concatenate([[9.0], rng.normal(size=9)]))
    data = {"data": x, "parts": torch.tensor([0.2, 0.8], dtype=F64)}

    def model(data, parts):
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 10.0))
        with pyro.plate("rows", len(data)):
            side = pyro.sample("side", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
            whole = mean * parts.sum() + 1e-9 * side
            return pyro.sample("x", dist.Normal(whole, 1.0), obs=data)

    result = fit(model, data, NUTS(num_chains=4, warmup_steps=100, num_samples=500))
    precision = 9 + 0.01
    exact = stats.norm.logpdf(9.0, float(x[1:].sum()) / precision, math.sqrt(1 + 1 / precision))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = loo(result, data, move=False)
    moved = loo(result, data)
    assert plain.k_hat[0] > 0.7
    assert moved.num_moved >= 1
    assert moved.k_hat[0] < 0.7
    assert abs(moved.rows[0] - exact) < 0.3 < abs(plain.rows[0] - exact)


def test_an_argument_as_long_as_the_rows_that_is_none_of_them():
    """Failed before: it was cut to the row, which was then predicted from a tenth of it."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.concatenate([[9.0], rng.normal(size=9)]))
    data = {"data": x, "parts": torch.full((10,), 0.1, dtype=F64)}

    def model(data, parts):
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 10.0))
        with pyro.plate("rows", len(data)):
            side = pyro.sample("side", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
            whole = mean * parts.sum() + 1e-9 * side
            return pyro.sample("x", dist.Normal(whole, 1.0), obs=data)

    result = fit(model, data, NUTS(num_chains=4, warmup_steps=100, num_samples=500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = loo(result, data, move=False)
    with pytest.warns(UserWarning, match="k-hat is above"):
        moved = loo(result, data)
    np.testing.assert_allclose(moved.rows, plain.rows, rtol=1e-12)
    with pytest.raises(ValueError, match="Every argument with 10 entries is taken to have one"):
        loo(result, data, refit=True)
    with pytest.raises(ValueError, match="Every argument with 10 entries is taken to have one"):
        cross_validate(result, data)


def test_folds_of_one_row_are_leave_one_out():
    data = results(12)
    result = fit(screening, data, EM())
    out = cross_validate(result, data, 12)
    alone = [
        float(
            fit(
                screening, torch.cat([data[:i], data[i + 1 :]]), EM(), init=result.params
            ).log_likelihood_rows(data[i : i + 1])
        )
        for i in range(12)
    ]
    np.testing.assert_allclose(out.rows, alone, atol=1e-6)
    few = fit(screening, data[:6], EM(), init=result.params)
    assert cross_validate(few, data[:6]).how == "6-fold"  # ten, or one a row where there are fewer
    with pytest.raises(ValueError, match="num_folds"):
        cross_validate(result, data, 1)


def test_what_to_pass_is_said_where_it_is_missing(screened):
    """Failed before: TypeErrors, and ArviZ took a number among our attributes for the
    log-likelihood of the rows.
    """
    result, data = screened
    idata = result.to_arviz()
    for ask, name in ((loo, "loo"), (cross_validate, "cross_validate")):
        with pytest.raises(
            ValueError,
            match=rf"{name}: the data of the fit were expected, got None.*{name}\(fit, data\)",
        ):
            ask(result)
        with pytest.raises(
            ValueError, match=rf"{name}: a fit was expected, got InferenceData|DataTree"
        ):
            ask(idata, data)
        for nothing in (3, {}, iter([1.0])):
            with pytest.raises(
                ValueError, match=f"{name}: the rows that the fit was made of were expected, got"
            ):
                ask(result, nothing)
    with pytest.raises(ValueError, match=r"compare\(fits, data\)"):
        compare({"one": result, "two": result})
    with pytest.raises(ValueError, match="a dict of at least two fits"):
        compare(3)
    with pytest.raises(Exception, match="log likelihood not found|log_likelihood"):
        load_arviz().loo(idata)
    assert "fit.to_arviz(data)" in idata["posterior"].attrs["leave_one_out"]
    assert "cross_validate(fit, data)" in idata["posterior"].attrs["leave_one_out"]


def one_regime(first: torch.Tensor, second: torch.Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(torch.tensor([2.0, 8.0]), 1.0).to_event(1))
    regime = pyro.sample("regime", dist.Categorical(torch.ones(2)))
    with pyro.plate("a", len(first)):
        pyro.sample("x", dist.Poisson(rate[regime]), obs=first)
    with pyro.plate("b", len(second)):
        pyro.sample("v", dist.Poisson(rate[regime]), obs=second)


def by_columns(data: torch.Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", data.shape[1]):
        pyro.sample("y", dist.Normal(mean, 1.0).expand([4]).to_event(1), obs=data.T)


def held() -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 12):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=torch.linspace(-1.0, 1.0, 12))


def test_rows_that_cannot_be_left_out_are_refused() -> None:
    counts = np.arange(12.0), np.arange(12.0)
    with pytest.raises(ValueError, match="the log-likelihood of this one is no sum over such rows"):
        cross_validate(fit(one_regime, counts, EM()), counts)
    table = np.random.default_rng(0).normal(size=(4, 12))
    with pytest.raises(ValueError, match="the 12 rows of the program along the first dim"):
        cross_validate(fit(by_columns, table, EM()), table)
    own = fit(held, None, EM())
    with pytest.raises(ValueError, match="and held holds its data itself"):
        cross_validate(own, ())
    compared = compare({"one": own, "other": own}, (), num_folds=0).table
    assert compared["log_likelihood"].tolist() == [own.log_likelihood] * 2


def test_folds_of_sequences_leave_out_sequences_whatever_form_they_come_in():
    """Lines of a frame, or of one table, are steps and no rows."""
    rng = np.random.default_rng(0)
    lengths = [30, 22, 22, 25, 22, 22]
    parts = [rng.normal(np.repeat([0, 3, 0], [10, 10, n - 20]), 1.0)[:, None] for n in lengths]
    frame = pd.DataFrame(
        {
            "sequence": np.repeat(range(6), lengths),
            "time": np.concatenate([np.arange(n) for n in lengths]),
            "x": np.concatenate(parts)[:, 0],
        }
    )
    model, engine = HiddenMarkov(2, Normal()), EM(max_iterations=200)
    listed, framed = (fit(model, data, engine, num_restarts=2) for data in (parts, frame))
    rows = cross_validate(framed, frame, 3).rows
    np.testing.assert_allclose(rows, cross_validate(listed, parts, 3).rows, atol=1e-6)
    with pytest.raises(ValueError, match="2 to 6, got 100"):
        cross_validate(framed, frame, 100)
    one = fit(model, parts[0], engine, num_restarts=2)
    with pytest.raises(ValueError, match="two rows or more.*got 1 .a sequence is one row"):
        cross_validate(one, parts[0], 5)
    table = compare({"one": framed, "other": framed}, frame, num_folds=3).table
    assert table["elpd"].tolist() == pytest.approx([rows.sum()] * 2)
    labels = np.full(len(frame), -1)
    labels[:3] = 0
    told = fit(model, frame, engine, num_restarts=2, labels=labels)
    assert cross_validate(told, frame, 6).rows.shape == (6,)  # shorter without the longest

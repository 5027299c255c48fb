"""What a fit reports, family by family, against computations that share nothing with it: the
likelihood written by hand, Pyro's own densities, and a count of the free numbers.
"""

from __future__ import annotations

import math

import pyro
import pytest
import torch
from torch.distributions import constraints
from zoo.row import Row
from zoo.table import data_of, every_row, quick_fit, rows_of_quick_fit

from inference import Fit
from ppl_models.parts.probability_tables import Simplexes
from ppl_models.sequences.hidden_chain import AllowedRows
from ppl_models.sequences.option_chain import MatrixSimplex


def by_hand(row: Row, fit: Fit) -> float:
    """The log-likelihood of the rows, given the activities where the fit holds them."""
    params = {name: value.numpy() for name, value in (fit.params | (fit.local or {})).items()}
    if row.integrated is not None:
        return float(row.integrated(params, data_of(row).numpy()).sum())
    total = float(
        row.log_likelihood(params, data_of(row).numpy()).sum()
    )  # by the table's convention with the distribution of activities
    return total - (log_prior(row, fit, set(fit.local)) if fit.local else 0.0)


def log_prior(row: Row, fit: Fit, names: set[str]) -> float:
    """Pyro's own log density of the sites that were estimated."""
    point = fit.params | (fit.local or {})
    with torch.random.fork_rng(devices=[]):
        trace = pyro.poutine.trace(pyro.poutine.condition(fit.model, point)).get_trace(data_of(row))
    return sum(
        float(trace.nodes[name]["fn"].log_prob(trace.nodes[name]["value"]).sum()) for name in names
    )


def free_numbers(row: Row, fit: Fit) -> int:
    """Entries that are not exactly at zero (of loadings) or one (of failures), less one a
    probability vector; symmetric matrices once.
    """
    with torch.random.fork_rng(devices=[]):
        trace = pyro.poutine.trace(row.model).get_trace(data_of(row))
    total = 0
    for name, value in (fit.params | (fit.local or {})).items():
        if name in row.statistics:
            continue
        support = trace.nodes[name]["fn"].support
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        if isinstance(support, Simplexes):
            total += value.numel() - math.prod(value.shape[:-1]) * len(support.sizes)
        elif support is constraints.simplex or isinstance(support, MatrixSimplex):
            vectors = (
                math.prod(value.shape[:-1])
                if support is constraints.simplex
                else math.prod(value.shape[:-2])
            )
            total += value.numel() - vectors
        elif isinstance(support, AllowedRows):
            total += int((value > 0).sum()) - value.numel() // value.shape[-1]
        elif isinstance(support, type(constraints.positive_definite)):
            size = value.shape[-1]
            total += math.prod(value.shape[:-2]) * size * (size + 1) // 2
        elif name.startswith(("loadings", "layer_")):  # of columns that a variate does not have
            total += int((value != 0).sum())
        elif name == "failure":
            total += int((value < 1 - 1e-5).sum())
        else:
            total += value.numel()
    if (
        row.local and "scales" in fit.params and "signatures" in fit.params
    ):  # the same product of activities and signatures: rescaled, or turned
        size = len(fit.params["signatures"])
        if fit.local is None:
            return total - size * (size - 1) // 2
        return total - (size if row.model.nonnegative else size**2)
    return total


@every_row
def test_the_log_likelihood_is_the_one_written_by_hand(row: Row) -> None:
    fit = quick_fit(row)
    if math.isnan(fit.log_likelihood):
        assert fit.elbo is not None
        pytest.skip("a bound, which is named as one")
    if fit.log_likelihood_error is not None:
        pytest.skip("an estimate by draws: see tests/structures/factorization/test_usage.py")
    expected = by_hand(row, fit)
    assert fit.log_likelihood == pytest.approx(expected, rel=1e-8, abs=row.tolerance)
    rows = float(rows_of_quick_fit(row)[0].sum())
    if fit.local is None:
        assert rows == pytest.approx(expected, rel=1e-8, abs=row.tolerance)
    else:  # activities of rows are solved for, to the end
        assert rows >= expected - 1e-6 * abs(expected)


@every_row
def test_the_objective_adds_the_prior_and_nothing_else(row: Row) -> None:
    fit = quick_fit(row)
    if not fit.objective_name.startswith("log-posterior") or "length" in fit.objective_name:
        pytest.skip(fit.objective_name)
    if fit.log_likelihood_error is not None:
        pytest.skip("an estimate by draws")
    estimated = {*fit.params, *(fit.local or {})}
    assert fit.objective == pytest.approx(
        by_hand(row, fit) + log_prior(row, fit, estimated),
        rel=1e-8,
        abs=max(1e-7, row.tolerance),
    )


@every_row
def test_bic_is_made_of_the_numbers_beside_it(row: Row) -> None:
    fit = quick_fit(row)
    if fit.structure.why_no_criteria(fit.params) is not None:
        with pytest.raises(ValueError, match="bic: "):
            _ = fit.bic
        assert fit.num_parameters == free_numbers(row, fit)
        return
    assert fit.bic == pytest.approx(-2 * fit.log_likelihood + fit.price, nan_ok=True)
    if fit.bic_price is None:
        assert fit.num_parameters == free_numbers(row, fit)
        assert fit.price == pytest.approx(
            fit.num_parameters * math.log(fit.num_observations or fit.num_rows)
        )
    else:
        assert (
            fit.price
            <= free_numbers(row, fit) * math.log(fit.num_observations or fit.num_rows) + 1e-9
        )

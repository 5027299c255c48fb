"""With few rows a choice is made, or refused before the first fit; no fit is lost."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import EM
from inference.base.outcome import DegenerateWarning, RowsWarning
from inference.programs.global_state import quiet
from inference.report.answers import answer_of
from inference.selection import (
    HeldOut,
    LikelihoodRatio,
    fit_grid,
    reproducibility,
    select_dimension,
)
from inference.selection.dimension import NAMED
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    GaussianFactorization,
    Mixture,
    MultivariateNormal,
    Normal,
    PoissonFactorization,
)

pytestmark = pytest.mark.usefixtures("unpainted")
SIZES = (1, 2, 3)
FAMILIES = {
    "factorization": lambda size: PoissonFactorization(4, size),
    "mixture": lambda size: Mixture(size, Normal(), 3),
    "rows that vary together": lambda size: Mixture(size, MultivariateNormal(), 3),
    "encoder": lambda size: DeepDiscreteEncoder(4, (size,), Bernoulli()),
}


def rows_for(name, num_rows):
    rng = np.random.default_rng(num_rows)
    group = rng.random((num_rows, 1)) < 0.5
    if name == "factorization":
        return rng.poisson(np.where(group, [[6.0, 1, 6, 1]], [[1.0, 6, 1, 6]])).astype(float) + 1
    if name == "encoder":
        return (rng.random((num_rows, 4)) < np.where(group, 0.8, 0.2)).astype(float)
    return np.where(group, 2.0, -2.0) + rng.standard_normal((num_rows, 3))


@pytest.fixture
def made(monkeypatch):
    """The fits made so far."""
    fits = []
    module = sys.modules["inference.fitting.fit"]
    assemble = module.assemble

    def kept(*arguments):
        fits.append(assemble(*arguments))
        return fits[-1]

    monkeypatch.setattr(module, "assemble", kept)
    return fits


@pytest.mark.parametrize("criterion", NAMED)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_criterion_answers_or_refuses_before_any_fit(name, criterion, made):
    """Failed before: "held_out" after the fits of smaller sizes, "lrt" of factorizations."""
    asked = LikelihoodRatio(0.5, 1, 1) if criterion == "lrt" else criterion
    method = EM(max_iterations=20) if name != "factorization" else None
    for num_rows in (1, 2, 3) if criterion == "rule" else (1, 2, 3, 4):
        made.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = SIZES[: min(3, num_rows + 1)]
            family, data = FAMILIES[name], rows_for(name, num_rows)
            try:
                found = select_dimension(family, data, sizes, asked, method, num_restarts=1)
            except ValueError:
                found = None
            assert (found is None) == (not made) or (found is not None and criterion == "spectral")
            if found is None:
                continue
            assert found.table["chosen"].sum() == 1
            assert answer_of(found).verdict.headline


def test_sizes_that_the_kept_rows_cannot_hold_are_left_out_and_said(made):
    data = rows_for("mixture", 4)
    with (
        pytest.warns(
            RowsWarning,
            match=(
                r"the 3 rows of 4 that are not held out: size 4 cannot be fitted to them and is "
                r"left out of the comparison: .*got 3"
            ),
        ),
        quiet(DegenerateWarning),
    ):
        found = select_dimension(
            FAMILIES["mixture"], data, (1, 2, 3, 4), "held_out", num_restarts=1
        )
    assert found.sizes == (1, 2, 3)
    assert [fit.model.num_components for fit in found.fits] == [1, 2, 3]
    words = " ".join(finding.answer for finding in answer_of(found).verdict.findings)
    assert "Size 4 was left out: too few rows were fitted for it." in words
    with quiet(DegenerateWarning):
        assert found.by("bic").sizes == (1, 2, 3, 4)  # to all rows
    made.clear()
    with pytest.raises(
        ValueError,
        match=(
            "HeldOut: the 2 rows of 4 that are not held out: rows to which some size can be fitted "
            "were expected"
        ),
    ):
        select_dimension(FAMILIES["mixture"], data, (3, 4), HeldOut(0.5), num_restarts=1)
    assert not made


def test_rows_left_out_of_a_factorization_are_refused(made):
    """Their activities were fitted to them, so that every component more predicted them better."""
    rng = np.random.default_rng(0)
    data = rng.poisson(rng.gamma(1.0, 30.0, (60, 2)) @ rng.dirichlet(np.ones(8), 2)).astype(float)
    for family in (PoissonFactorization, GaussianFactorization):
        with pytest.raises(ValueError, match="HeldOut: parameters alone were expected, and activ"):
            select_dimension(family, data, (1, 2, 3, 4), "held_out")
    assert not made


def test_halves_are_fitted_of_the_numbers_that_they_can_hold():
    """Failed before: "fits[3] was fitted to 5 rows and needs at least 6", nothing of the others."""
    data = rows_for("factorization", 5)
    fits = fit_grid(FAMILIES["factorization"], data, SIZES, num_restarts=1)
    with pytest.warns(
        RowsWarning,
        match=(
            "K = 3: left out of the fits to halves, for 2 of the 5 rows cannot hold so many "
            "components"
        ),
    ):
        found = reproducibility(fits, data, 1, 1)
    assert sorted(found.errors) == [1, 2]
    with pytest.raises(
        ValueError,
        match="at least 6 rows were expected, so that each half can hold 3 components, got 5",
    ):
        reproducibility({3: fits[3]}, data)


@pytest.mark.parametrize("criterion", ["rule", "acdc", "bic", "aic"])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 9])
def test_select_pmf_of_few_rows(num_rows, criterion, made, tmp_path):
    """Failed before with fewer than 2K rows, after all fits: nothing was written."""
    table, out = tmp_path / "counts.csv", tmp_path / "out"
    pd.DataFrame(rows_for("factorization", num_rows)).to_csv(table, index=False)
    done = run(
        "select",
        "pmf",
        table,
        "--out",
        out,
        "--restarts",
        1,
        "--halves",
        1,
        "--no-progress",
        "--criterion",
        criterion,
    )
    if done.exit_code:
        assert done.exit_code == 2, done.output
        assert not made, done.output
        return
    record = json.loads((out / "selection.json").read_text())
    criteria = pd.read_csv(out / "criteria.csv", index_col="criterion")
    largest = max(int(name) for name in criteria.columns if name.isdigit())
    assert ("the largest number compared was chosen" in done.stderr) == (
        record["chosen"] == largest
    )
    held = record["return_error"]
    assert (held is None) == (num_rows // 2 < 2)
    assert ("halves" in done.stderr or "half" in done.stderr) == (
        largest < min(4, num_rows) or held is None
    ) or record["chosen"] == largest
    assert held is None or sorted(map(int, held)) == list(range(1, largest + 1))
    assert (out / "report.html").exists()
    assert (out / "fit").exists()
    assert (out / "distributions.csv").exists() == (criterion == "rule")


def test_more_components_than_rows_are_refused_before_any_fit(made, tmp_path):
    data = rows_for("factorization", 3)
    pd.DataFrame(data).to_csv(tmp_path / "counts.csv", index=False)
    asked = ("select", "pmf", tmp_path / "counts.csv", "--k", "2:4", "--halves", 0)
    for criterion in ("rule", "bic"):
        done = run(*asked, "--criterion", criterion, "--out", tmp_path / "out")
        assert done.exit_code == 2
        assert "needs at least as many rows, got 3" in done.stderr
    with pytest.raises(ValueError, match="needs at least as many rows, got 3"):
        fit_grid(FAMILIES["factorization"], data, (1, 2, 4))
    assert not made


def test_what_was_fitted_is_kept_where_a_later_step_fails(tmp_path, monkeypatch):
    table, out = tmp_path / "counts.csv", tmp_path / "out"
    pd.DataFrame(rows_for("factorization", 12)).to_csv(table, index=False)

    def fails(*_, **__):
        raise ValueError("halves: no luck")

    monkeypatch.setattr(
        sys.modules["inference.selection.reproducibility"], "reproducibility", fails
    )
    done = run("select", "pmf", table, "--k", "1:2", "--out", out, "--restarts", 1, "--no-progress")
    assert done.exit_code == 2
    found = {path.name for path in out.iterdir()}
    assert found >= {"fit", "criteria.csv", "distributions.csv", "summary.json", "posterior.csv"}
    assert "report.html" not in found
    assert pd.read_csv(out / "distributions.csv")["chosen"].sum() == 1

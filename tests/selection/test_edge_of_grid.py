"""What is said of the end of a grid agrees with the table that is shown, whatever its figures."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from support.counts import counts

from inference import EM
from inference.acdc import acdc
from inference.report.answers import answer_of
from inference.report.components import selection_verdict, why, write_selection_report
from inference.report.how_many import _how_sure
from inference.selection import HeldOut, Selection, compare_criteria, fit_grid
from inference.selection.order_selection.counting import Grid
from inference.selection.order_selection.kinds import factorization, mixture, options
from inference.structures.factorization.factorize import Factorize
from inference.structures.registry import structure_of
from ppl_models import Mixture, Normal, OptionsHMM, PoissonFactorization

pytestmark = pytest.mark.usefixtures("unpainted")
END = "the largest number"


def said_of(answer):
    """The sentences of a terminal, and the finding of the page."""
    return answer.verdict, _how_sure(answer, sorted({size for _, size in answer.fits})).answer


def figures(rng, sizes, steep):
    """Log-likelihoods that rise with the size, as steeply as the penalties fall, or not."""
    return dict(zip(sizes, np.cumsum(rng.exponential(steep, len(sizes))) - 500, strict=True))


def sizes_of(rng):
    first = int(rng.integers(1, 4))
    return list(range(first, first + int(rng.integers(2, 6))))


def agrees(answer, sizes, at_end):
    table = answer.table.reset_index()
    chosen = table[table["chosen"]]
    assert len(chosen) == 1
    for words in said_of(answer):
        assert (END in words) == at_end, words
    assert (answer.status == "grid too short") == at_end
    return int(chosen["num_components"].iloc[0])


@pytest.mark.parametrize("seed", range(25))
def test_of_factorizations(seed, monkeypatch):
    """Failed before: of 1 to 8 the largest "was still chosen", beside a table that chooses 4."""
    rng = np.random.default_rng(seed)
    sizes = sizes_of(rng)
    distributions = [
        SimpleNamespace(name=name, num_dispersions=number)
        for name, number in (("Poisson", 0), ("linear", 1))
    ]
    fits = {}
    for distribution in distributions:
        for size, value in figures(rng, sizes, rng.choice([20.0, 60.0, 120.0])).items():
            fits[distribution.name, size] = SimpleNamespace(log_likelihood=value, params={})
    monkeypatch.setattr(
        factorization, "misfit_of", lambda *_: (float(rng.choice([0.0, 9.0])), 100.0)
    )
    monkeypatch.setattr(factorization, "left_out", lambda *_: int(rng.choice(sizes)))
    data = torch.ones(21, 16)
    grid = Grid(distributions, sizes, data, data, 1, 0, Factorize())
    answer = factorization.CountingTerms().answer(grid, fits)
    table = answer.table
    strict, lenient = table["strict"].idxmin()[1], table["lenient"].idxmin()[1]
    chosen = agrees(answer, sizes, lenient == sizes[-1])
    assert chosen == answer.num_components
    if lenient == sizes[-1]:
        assert chosen == strict
        for words in said_of(answer):
            assert f"the lenient penalty takes {lenient}, the largest number compared" in words
            assert (f"where the strict one takes {strict}" in words) == (strict < lenient)
        assert answer.verdict.startswith(f"At least {strict} component")


@pytest.mark.parametrize("seed", range(25))
def test_of_groups(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = sizes_of(rng)
    structure = structure_of(Mixture(2, Normal(), 3))
    fits = {
        ("normal", size): SimpleNamespace(
            log_likelihood=value, num_parameters=7 * size, num_rows=80, num_observations=None,
            restarts=SimpleNamespace(faults=()), structure=structure, size=size,
        )
        for size, value in figures(rng, sizes, rng.choice([5.0, 15.0, 40.0])).items()
    }  # fmt: skip
    monkeypatch.setattr(mixture, "misfit_of", lambda *_: (float(rng.choice([0.0, 9.0])), 100.0))
    monkeypatch.setattr(mixture, "shares_of", lambda one, _: one.size)
    monkeypatch.setattr(mixture, "entropy", lambda _: 0.0)
    separated = int(rng.integers(1, 3))

    def groups(size):
        apart = min(size, separated)
        return SimpleNamespace(num_fitted=size, num_separated=apart, num_clear=size)

    monkeypatch.setattr(mixture, "groups_of", groups)
    answer = mixture.CountingGroups().answer(
        Grid([SimpleNamespace(name="normal")], sizes, None, None, 1, 0, EM()), fits
    )
    best = answer.table["bic"].idxmin()[1]
    chosen = agrees(answer, sizes, best == sizes[-1])
    assert chosen == best
    if best == sizes[-1]:
        for words in said_of(answer):
            assert (
                f"{best}, the largest number of components compared, has the smallest BIC" in words
            )
        lenient = answer.table["lenient"].idxmin()[1]
        assert (f"a lenient penalty takes {lenient}" in answer.verdict) == (lenient < best)


@pytest.mark.parametrize("seed", range(25))
def test_of_options(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = sizes_of(rng)
    structure = structure_of(OptionsHMM(2, 2, 2))
    fits = {
        ("options", size): SimpleNamespace(
            log_likelihood=value,
            num_parameters=6 * size,
            bic=-2 * value + 4.5 * 6 * size,
            structure=structure,
            size=size,
        )
        for size, value in figures(rng, sizes, rng.choice([4.0, 10.0, 40.0])).items()
    }
    monkeypatch.setattr(options, "checked_as_fitted", lambda *_: (torch.zeros(3, 4, 2), None))
    monkeypatch.setattr(
        options, "log_likelihood_parts", lambda *_: SimpleNamespace(actions=torch.zeros(3))
    )
    monkeypatch.setattr(options, "_memory", lambda *_: {})
    monkeypatch.setattr(options, "misfit_of", lambda *_: (float(rng.choice([0.0, 9.0])), 100.0))
    monkeypatch.setattr(
        options, "distinct_options", lambda one, _: tuple((i,) for i in range(one.size))
    )
    answer = options.CountingOptions().answer(
        Grid([SimpleNamespace(name="options")], sizes, None, None, 1, 0, EM()), fits
    )
    lenient = answer.table["lenient"].idxmin()[1]
    assert agrees(answer, sizes, lenient == sizes[-1]) == lenient
    if lenient == sizes[-1]:
        strict = answer.table["bic"].idxmin()[1]
        assert answer.verdict.startswith(f"At least {lenient} option")
        assert (f"where the strict one takes {strict}" in answer.verdict) == (strict < lenient)


@pytest.mark.parametrize("score", ["ebic", "bic", "aic", "p_value", "held_out", "ratio", "left"])
def test_of_one_criterion(score):
    fitted = SimpleNamespace(converged=True)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = tuple(sizes_of(rng))
        chosen = int(rng.choice(sizes))
        values = [float(abs(size - chosen)) * 20 for size in sizes]
        larger = score in ("held_out", "ratio")
        columns = {score: [-value for value in values] if larger else values}
        record = Selection(chosen, HeldOut(), sizes, columns, score, larger, (fitted,) * len(sizes))
        verdict = answer_of(record).verdict
        words = " ".join(
            [verdict.headline, *(found.answer for found in verdict.findings), *verdict.steps]
        )
        assert record.table["chosen"].sum() == 1
        assert ("the largest size compared" in words) == bool(record.table["chosen"].iloc[-1]), (
            seed,
            words,
        )
        is_first = bool(record.table["chosen"].iloc[0]) and chosen > 1  # there is nothing below one
        assert ("the smallest size compared" in words) == is_first, (seed, words)


@pytest.fixture(scope="module")
def grid():
    x = counts(seed=2)[:24]
    fits = fit_grid(lambda size: PoissonFactorization(16, size), x, (1, 2, 3), num_restarts=1)
    result = acdc(fits, x, num_draws=2, max_draws=2)
    return fits, result, compare_criteria(fits, x, result)


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_of_the_page_of_components(grid, chosen, tmp_path):
    fits, result, table = grid
    verdict = selection_verdict(result, chosen, table)
    told = " ".join(found.answer for found in verdict.findings)
    assert ("It is the largest number compared." in told) == (chosen == 3)
    words = " ".join(why(result, chosen))
    assert ("It is the largest number compared: try larger ones." in words) == (chosen == 3)
    assert (
        "the smallest number compared: try smaller ones" not in words
    )  # there is nothing below one
    page = write_selection_report(
        fits, result, table, tmp_path / "page.html", chosen=chosen
    ).read_text()
    note = re.search(r"([^<>]*): the largest number compared, so no answer", page)
    named = {name for name in table.index if note is not None and name in note[1]}
    compared = table[["1", "2", "3"]].notna().any(axis=1)
    assert named == set(
        table.index[(table["chosen"] == 3) & compared]
    )  # parallel analysis compares no numbers


def test_parallel_analysis_is_left_out_where_there_is_none(grid):
    """Failed before: two rows raised after all fits."""
    fits, _, _ = grid
    assert "parallel analysis" not in compare_criteria(fits, np.ones((2, 16))).index
    assert (
        "parallel analysis" not in compare_criteria(fits, pd.DataFrame(np.full((9, 3), 0.5))).index
    )

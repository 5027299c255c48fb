"""How many components, in words: each judgement with a record where it stands and one where it does
not.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pandas as pd
import pytest
import torch

from inference.acdc import acdc
from inference.report.components import selection_verdict, why
from inference.report.how_many import how_many_answer, how_many_verdict
from inference.selection import fit_grid, select_components
from inference.selection.order_selection.result import HowManyGroups
from inference.selection.reproducibility import reproducibility
from ppl_models import PoissonFactorization
from ppl_models.parts.repr import counted

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(scope="module")
def counts():
    generator = torch.Generator().manual_seed(1)
    rates = torch.tensor([[9.0, 1, 1, 9, 1], [1.0, 9, 9, 1, 1]])[torch.arange(24) % 2] * 4
    return torch.poisson(rates, generator=generator)


@pytest.fixture(scope="module")
def answer(counts):
    return select_components(PoissonFactorization, counts, [1, 2], num_restarts=1)


def judged(answer, **own):
    usual = {
        "status": "confident",
        "num_components": 2,
        "interval": (2, 2),
        "reasons": (),
        "misfit": 1.0,
        "detectable_variance": 1.5,
    }
    return how_many_verdict(replace(answer, **(usual | own)))


@pytest.mark.parametrize(
    ("own", "mark", "headline", "step"),
    [
        ({}, "good", "2 components (confident", "Read the page of the chosen fit"),
        (
            {"status": "unsure", "reasons": ("it leads by little",), "interval": (1, 2)},
            "care",
            "Between 1 and 2 components",
            "Fit 1 and 2 components",
        ),
        (
            {"status": "unsure", "reasons": ("it leads by little",)},
            "care",
            "2 components (unsure",
            "its doubt: it leads by little",
        ),
        (
            {"status": "grid too short"},
            "bad",
            "At least 2 components",
            "Compare more: from 1 to 4.",
        ),
        (
            {"status": "misfit", "misfit": 9.0},
            "bad",
            "which is a guess",
            "offer other distributions",
        ),
    ],
)
def test_the_word_decides_mark_and_step(answer, own, mark, headline, step):
    verdict = judged(answer, **own)
    assert verdict.mark == mark
    assert headline in verdict.headline
    assert step in " ".join(verdict.steps)
    if own:
        assert step not in " ".join(judged(answer).steps)
    assert ("No check on this page speaks against this number." in verdict.headline) == (not own)
    assert verdict.findings[-1].answer == answer.unseen


def test_a_distribution_that_could_not_be_tested_is_not_called_good(answer):
    assert [found.mark for found in judged(answer).findings][2] == "good"
    assert [found.mark for found in judged(answer, detectable_variance=float("inf")).findings][
        2
    ] == ""


def test_a_choice_by_one_criterion_says_what_speaks_against_it(counts):
    fits = fit_grid(lambda k: PoissonFactorization(5, k), counts, [1, 2, 3], 1)
    result = acdc(fits, counts, seed=0)
    halves = reproducibility(fits, counts, 1)
    own, other = result.chosen, 3
    agreed = selection_verdict(result, own, pd.DataFrame({"chosen": [own, own]}))
    said = agreed.findings[1].answer
    assert "Other criteria" not in said
    assert agreed.headline.startswith(f"{own} component")
    verdict = selection_verdict(result, other, pd.DataFrame({"chosen": [own, other]}))
    assert f"Other criteria choose {own}." in verdict.findings[1].answer
    assert "It is the largest number compared." in verdict.findings[1].answer
    assert f"leads to {own}." in verdict.findings[1].answer
    assert "Compare more, up to 6." in " ".join(verdict.steps)
    assert verdict.mark == "care"
    assert "component(s)" not in " ".join(why(result, other, halves))


@pytest.mark.parametrize("status", ["confident", "unsure", "misfit", "grid too short"])
def test_one_noun_for_what_the_number_counts(answer, status):
    """Failed: "How many components? 2" above "at least 2 separated groups" of 4 components."""
    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    groups = HowManyGroups(**(values | {"status": status}))
    number = answer.num_components
    is_groups = status in ("misfit", "grid too short")
    assert groups.counts == ("separated group" if is_groups else "component")
    if is_groups:
        assert counted(number, groups.counts) in groups._number_in_grid()
    title = how_many_answer(replace(answer, status=status)).title
    least = "at least " if status == "grid too short" else ""
    assert title.startswith(f"How many components? {least}{number}, for 24 rows")

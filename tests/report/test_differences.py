"""Pages of tests: words from the numbers of the record, each with a case where they stand and one
where they do not; the same sentences at a prompt.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from inference.relations import ClassOutcomes, ClassRegression
from inference.report.answers import answer_of
from inference.selection.attribute_groups import DifferentialItems, GroupComparison, ItemScores
from inference.selection.likelihood_ratio import RatioTest

pytestmark = pytest.mark.usefixtures("unpainted")

GROUPS = GroupComparison(
    ("north", "south"),
    np.array([200, 300]),
    ("add", "sub"),
    np.array([[0.5, 0.4], [0.8, 0.4]]),
    np.full((2, 2), 0.03),
    np.array([1e-4, 0.9]),
    np.array([2e-4, 0.9]),
    np.array([[0, 0], [1, 1]]),
    np.array([[0.5, 0.5], [0.2, 0.8]]),
    25.0,
    3,
    1e-4,
    12.0,
)
ITEMS = ItemScores(
    ("q1", "q2"),
    np.array([20.0, 1.0]),
    np.array([2.0, 2.0]),
    np.array([1e-4, 0.6]),
    np.array([2e-4, 0.6]),
)
COST = np.array([0.3, 0.05])
FREED = DifferentialItems(
    ITEMS.items,
    ITEMS.statistic,
    ITEMS.degrees,
    ITEMS.p_value,
    ITEMS.p_adjusted,
    COST,
    COST,
    COST,
    COST,
    COST,
    np.array(["A", "B"], dtype=object),
)
RATIO = RatioTest(40.0, 0.01, torch.linspace(0, 10, 99), 0, 0, 99)
DEPENDS = ClassRegression(
    ("intercept", "age"),
    np.array([[0.2, 0.5]]),
    np.diag([0.01, 0.01]),
    "two-step",
    "",
    np.eye(2),
    0.8,
    400,
)
OUTCOME = ClassOutcomes(
    "grade",
    (),
    np.array([[1.0], [2.0]]),
    np.diag([0.01, 0.01]),
    np.array([100.0, 80.0]),
    "bch",
    "proportional",
    np.eye(2),
    0.8,
    180,
    20,
)
EVERY = (GROUPS, ITEMS, FREED, RATIO, DEPENDS, OUTCOME)


def said(record):
    verdict = answer_of(record).verdict
    return " ".join(
        [verdict.headline, *(found.answer for found in verdict.findings), *verdict.steps]
    )


@pytest.mark.parametrize(
    ("record", "other", "mark", "words"),
    [
        (
            GROUPS,
            replace(GROUPS, p_distribution=0.4, bic_gain=-9.0),
            "good",
            "Shares that have an attribute differ for add (north 50 %, south 80 %)",
        ),
        (
            replace(GROUPS, bic_gain=-9.0),
            GROUPS,
            "care",
            "BIC prefers one distribution for all, by 9.0, against the test",
        ),
        (
            replace(GROUPS, errors=np.array([[0.1, np.nan], [0.1, 0.1]])),
            GROUPS,
            "care",
            "The answers do not determine those of sub",
        ),
        (
            ITEMS,
            replace(ITEMS, p_adjusted=np.ones(2)),
            "care",
            "1 item of 2 functions differently in another group",
        ),
        (
            FREED,
            replace(FREED, p_adjusted=np.ones(2)),
            "care",
            "what is expected of people with the same attributes: q1 (0.30, lowest for A)",
        ),
        (replace(ITEMS, p_adjusted=np.ones(2)), ITEMS, "good", "Go on with the items as they are"),
        (
            replace(ITEMS, p_value=np.array([np.nan, 0.6])),
            ITEMS,
            "care",
            "Not q1: the rows do not determine these tests",
        ),
        (
            RATIO,
            replace(RATIO, p_value=0.5, num_exceeding=10, null=torch.linspace(0, 90, 20)),
            "good",
            "Take the larger size, and test it against the next",
        ),
        (
            replace(RATIO, p_value=0.05, null=torch.linspace(0, 10, 19)),
            RATIO,
            "care",
            "It is open whether the larger size is needed (p = 0.05)",
        ),
        (
            replace(RATIO, num_negative=30),
            RATIO,
            "care",
            "so that p is too small rather than too large",
        ),
        (
            DEPENDS,
            replace(DEPENDS, covariance=np.eye(2)),
            "good",
            (
                "one more multiplies the odds of class 1, against class 0, by "
                "1.65 (95 % from 1.36 to 2.01)"
            ),
        ),
        (
            replace(DEPENDS, entropy_r2=0.4),
            DEPENDS,
            "care",
            "The classes are poorly separated (entropy R2 0.40",
        ),
        (replace(DEPENDS, method="none"), DEPENDS, "care", "differences are biased towards zero"),
        (OUTCOME, replace(OUTCOME, covariance=np.eye(2)), "good", "The classes differ in grade."),
    ],
)
def test_words_stand_where_the_numbers_say_so(record, other, mark, words):
    assert answer_of(record).verdict.mark == mark
    assert words in said(record)
    assert words not in said(other)


@pytest.mark.parametrize("record", EVERY, ids=lambda record: type(record).__name__)
def test_a_prompt_and_the_page_say_the_same(record, tmp_path):
    """Failed before: a prompt listed the fields of the record, and there was no page."""
    if isinstance(record, GroupComparison | ItemScores):
        text = record.text()
        assert record.headline in text
    assert repr(record).splitlines()[0].startswith(record.headline[:40])
    assert record.headline.split("(")[0] in " ".join(repr(record).split())
    assert all(
        sentence.split("\n")[0] in said(record)
        for sentence in record.sentences
        if not sentence.startswith("Items are tested")
    )
    page = record.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What could not have been seen?" in page
    assert "What to do next" in page
    assert record._repr_html_().count("<tr") == len(record.table) + 1 + (
        record.table.index.name is not None or record.table.index.nlevels > 1
    )

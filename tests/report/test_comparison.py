"""Who wins a comparison, in words that come from its numbers alone: each sentence with a case where
it stands and one where it does not.
"""

from __future__ import annotations

import math

import pytest

from inference.comparison import Comparison
from inference.report.comparison import comparison_verdict, in_words, write_comparison_report

pytestmark = pytest.mark.usefixtures("unpainted")


def record(**own):
    usual = {
        "family": "Mixture",
        "engine": "EM",
        "elpd": -100.0,
        "se": 5.0,
        "elpd_diff": 0.0,
        "diff_se": 0.0,
        "weight": 0.5,
        "how": "10-fold",
        "bad_rows": 0,
        "p_eff": 3.0,
        "num_parameters": 4,
        "likelihood": "marginal",
        "log_likelihood": -99.0,
        "bic": 210.0,
        "test_log_likelihood": math.nan,
        "discrepancy": math.nan,
        "misfitting": math.nan,
        "identifiability": "generic",
        "converged": True,
        "seconds": 0.5,
    }
    return usual | own


def compared(*records, warnings=()):
    names = tuple("abcd"[: len(records)])
    return Comparison(
        names, tuple(record(**own) for own in records), dict.fromkeys(names), tuple(warnings)
    )


CLEAR = {"elpd_diff": 30.0, "diff_se": 4.0}


@pytest.mark.parametrize(
    ("behind", "is_clear"),
    [
        ((30.0, 4.0), True),
        ((30.0, 20.0), False),
        ((3.9, 0.1), False),
        ((0.0, 0.0), False),
        ((30.0, math.nan), True),
    ],
)
def test_one_sentence_says_who_wins(behind, is_clear):
    difference, error = behind
    found = compared({}, {"elpd_diff": difference, "diff_se": error})
    says = in_words(found)[0]
    if math.isnan(error):  # an error that is not known makes nothing clear
        is_clear = False
    assert says.startswith("a predicts unseen rows best, ")
    assert ("by more than chance" in says, "too close to call" in says) == (is_clear, not is_clear)
    own = comparison_verdict(found)
    assert own.headline.startswith(says)
    assert (own.mark == "care") == (not is_clear)


def test_all_that_are_near_are_named():
    says = in_words(
        compared({}, {"elpd_diff": 1.0, "diff_se": 2.0}, {"elpd_diff": 2.0, "diff_se": 3.0}, CLEAR)
    )[0]
    assert "b is 1.0 nats behind" in says
    assert "c is 2.0" in says
    assert "d is" not in says


def test_nothing_is_ranked_where_nothing_is_predicted():
    none = {"how": "none", "elpd_diff": math.nan, "diff_se": math.nan}
    assert "no winner" in in_words(compared(none, none))[0]
    alone = comparison_verdict(compared({}, none))
    assert alone.headline.startswith("a is the only fit here that predicts")
    assert "b could not be ranked" in alone.findings[-1].answer
    assert "ranked, for" not in comparison_verdict(compared({}, CLEAR)).findings[-1].answer


@pytest.mark.parametrize(
    ("first", "second", "mark", "words"),
    [
        ({}, {}, "good", "All fits converged."),
        ({"converged": False}, {}, "bad", "Not converged: a."),
        ({}, {"converged": False}, "care", "Not converged: b."),
        ({}, {"identifiability": "not identified"}, "care", "do not determine the estimates of b"),
        ({"bad_rows": 2}, {}, "care", "cannot be trusted (a)"),
        ({}, {"how": "loo"}, "care", "in different ways"),
        (
            {"misfitting": 1.0},
            {},
            "good",
            "In a, some component's noise",
        ),  # said, but no alarm: right models look like this too
        ({}, {"misfitting": 1.0}, "good", "In b, some component's noise"),
    ],
)
def test_each_doubt_is_said_where_the_numbers_have_it(first, second, mark, words):
    verdict = comparison_verdict(compared(first, CLEAR | second))
    said = " ".join(found.answer for found in verdict.findings)
    assert verdict.mark == mark
    assert words in said
    if words != "All fits converged.":
        assert words not in " ".join(
            found.answer for found in comparison_verdict(compared({}, CLEAR)).findings
        )
    assert verdict.steps


def test_every_column_is_explained_and_stands_in_a_card_on_a_phone(tmp_path):
    page = write_comparison_report(
        compared({}, CLEAR, warnings=["log densities are not comparable"]), tmp_path / "page.html"
    ).read_text()
    assert "<li>behind the best: nats" in page
    assert 'data-head="behind the best"' in page
    assert "test rows" not in page  # a column that nobody filled
    assert "Log densities are not comparable." in page

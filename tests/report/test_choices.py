"""Pages of choices: words from the numbers of the record, each with a case where they stand and one
where they do not.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from inference import PenaltyChoice
from inference.inspection import QValidation
from inference.report import write_choice_report
from inference.report.answers import answer_of
from inference.selection import HeldOut, InformationCriterion, Selection
from inference.selection.saturation import Saturation
from inference.selection.sparsity import Path
from ppl_models import DeepDiscreteEncoder, Mixture, Normal

pytestmark = pytest.mark.usefixtures("unpainted")

FIT = SimpleNamespace(converged=True)
FITTED = SimpleNamespace(log_likelihood=-1.0, num_parameters=2)


def sized(
    chosen=2,
    bic=(400.0, 300.0, 350.0),
    aic=(390.0, 280.0, 330.0),
    fits=(FIT, FIT, FIT),
    sizes=(1, 2, 3),
    ebic=None,
):
    columns = {"bic": list(bic), "aic": list(aic)} | ({} if ebic is None else {"ebic": list(ebic)})
    return Selection(chosen, InformationCriterion("bic"), sizes, columns, "bic", False, fits)


def said(record):
    verdict = answer_of(record).verdict
    return " ".join(
        [verdict.headline, *(found.answer for found in verdict.findings), *verdict.steps]
    )


@pytest.mark.parametrize(
    ("own", "mark", "words"),
    [
        ({}, "good", "every other size is at least 10 behind"),
        ({"bic": (400.0, 300.0, 305.0)}, "care", "Too close to call against 3"),
        ({"ebic": (400.0, 320.0, 310.0)}, "care", "EBIC would take 3."),
        (
            {"chosen": 3, "bic": (400.0, 350.0, 300.0), "aic": (390.0, 330.0, 280.0)},
            "care",
            "It is the largest size compared",
        ),
        (
            {"sizes": (2, 3, 4), "bic": (300.0, 350.0, 400.0), "aic": (280.0, 330.0, 390.0)},
            "care",
            "It is the smallest size compared",
        ),
        (
            {"chosen": 2, "sizes": (2,), "bic": (300.0,), "aic": (280.0,), "fits": (FIT,)},
            "care",
            "It is the only size compared.",
        ),
        ({"fits": (FIT, SimpleNamespace(converged=False), FIT)}, "bad", "did not converge"),
    ],
)
def test_a_size(own, mark, words):
    record = sized(**own)
    assert answer_of(record).verdict.mark == mark
    assert words in said(record)
    if own:
        assert words not in said(sized())


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([Mixture(k, Normal(), 4) for k in (1, 2, 3)], "2 components, by BIC."),
        ([DeepDiscreteEncoder(18, (k, 2)) for k in (4, 5, 6)], "Latent sizes 5, 2, by BIC."),
        ([Mixture(k, Normal(), 4, bound=k) for k in (1, 2, 3)], "Size 2, by BIC."),
        (["a", "b", "c"], "Size 2, by BIC."),
    ],
)
def test_a_size_says_of_what(models, words):
    record = replace(sized(), study=SimpleNamespace(models=models, sizes=(1, 2, 3), below=[]))
    assert answer_of(record).verdict.headline.startswith(words)


def test_one_is_not_called_the_smallest_of_those_compared():
    record = sized(chosen=1, bic=(300.0, 350.0, 400.0), aic=(280.0, 330.0, 390.0))
    assert answer_of(record).verdict.mark == "good"
    assert "smallest" not in said(record)  # nothing lies beyond


def test_aic_that_takes_more_is_no_alarm():
    assert answer_of(sized(aic=(390.0, 280.0, 270.0))).verdict.mark == "good"


def test_a_size_without_known_chance_is_not_called_sure():
    record = Selection(
        2, HeldOut(), (1, 2, 3), {"held_out": [-4.0, -3.0, -3.5]}, "held_out", True, (FIT, FIT, FIT)
    )
    assert "the sampling error of the figures was not assessed" in said(record)
    assert [found.mark for found in answer_of(record).verdict.findings] == ["", "", "good", ""]


def test_components_of_classifiers(tmp_path):
    record = Saturation(
        2,
        (1, 2, 3),
        (0.0, -0.5, -0.5),
        (0.0, 0.01, 0.01),
        (0.5, 0.0, 0.0),
        (0.01, 0.0, 0.0),
        None,
        100,
    )
    assert answer_of(record).verdict.mark == "good"
    assert "2 components: more do not predict held-out rows better." in said(record)
    assert "At least" not in said(record)
    last = replace(record, chosen=3, costs=(0.0, -0.5, -0.6), behind=(0.6, 0.1, 0.0))
    assert answer_of(last).verdict.mark == "care"
    assert "At least 3 components." in said(last)
    assert (
        "negative held-out log-likelihood of a row, in nats"
        in write_choice_report(record, tmp_path / "page.html").read_text()
    )


def test_rows_of_a_q_matrix(tmp_path):
    one = np.array([[1], [1]])
    sets = (np.array([[1]]), np.array([[1]]))
    shares = (np.ones(1), np.ones(1))
    record = QValidation(
        None,
        None,
        ("a", "b"),
        ("skill",),
        one,
        one,
        sets,
        shares,
        np.ones(2),
        np.ones(2),
        np.zeros(2),
        1,
        True,
    )
    assert answer_of(record).verdict.mark == "good"
    assert "Keep the Q-matrix." in said(record)
    changed = replace(record, suggested=np.array([[1], [0]]), gain=np.array([0.0, 25.0]))
    assert answer_of(changed).verdict.mark == "care"
    assert "clearly contradict 1 of 2 rows" in said(changed)
    assert "suggested rows of b" in said(changed)
    assert "clearly contradict no row" in said(replace(changed, gain=np.array([0.0, 3.0])))
    assert "still changed after 1 round." in said(replace(record, settled=False))
    assert "still changed" not in said(record)
    page = write_choice_report(record, tmp_path / "page.html").read_text()
    assert page.index("Verdict") < page.index("Numbers")
    for words in ("variance explained, suggested", "fall of BIC: by how much BIC falls"):
        assert words in page
    twice = replace(
        record, suggested=np.array([[0], [0]]), gain=np.array([12.0, 25.0]), settled=False
    )
    assert re.search(
        r"read its wording first\. [ab]: drop skill \([^)]*\); [ab]: drop skill \([^)]*\)\. After 1"
        r" round",
        said(twice),
    )


def test_a_penalty():
    record = Path(("weak", "middle", "strong"), (FITTED,) * 3, (), (200.0, 100.0, 150.0), 1)
    assert answer_of(record).verdict.mark == "good"
    assert "No other penalty comes near." in said(record)
    assert "1 other penalty of the grid within 10 of its EBIC" in said(
        replace(record, scores=(200.0, 100.0, 105.0))
    )
    assert "It lies at an end of the grid" in said(replace(record, chosen=0))


def test_the_penalty_of_a_fit(tmp_path):
    counts = torch.tensor([9, 7, 7, 4])
    record = PenaltyChoice(
        ("weak", "middle", "strong"),
        torch.tensor([0, 1, 1, 2]),
        counts,
        -counts.double(),
        torch.tensor([200.0, 100.0, 101.0, 150.0]),
        1,
    )
    assert answer_of(record).verdict.mark == "good"
    assert "middle, by EBIC." in said(record)
    assert "No other penalty comes near." in said(record)
    assert "1 other penalty within 10 of its EBIC" in said(
        replace(record, ebic=torch.tensor([200.0, 100.0, 101.0, 105.0]))
    )
    assert "It lies at an end of the penalties" in said(replace(record, best=3))
    assert "How sparse a graph?" in write_choice_report(record, tmp_path / "page.html").read_text()
    assert "at an end" not in said(record)


def test_another_record_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="a record of a choice was expected .*Selection.*got float"
    ):
        write_choice_report(math.pi, tmp_path / "page.html")

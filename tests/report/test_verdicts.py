"""Verdicts: each answer where it is known what it must be."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from support.fitted_examples import bernoulli_table, encoder_fit

from inference import EM, Fit, fit
from inference.identifiability import identifiability_of
from inference.inspection.classification import ClassAccuracy
from inference.report.kinds.hidden_markov import Residuals
from inference.report.kinds.options import _on_length
from inference.report.latent_use import LatentUse, certainty, latent_means, latent_use
from inference.report.parts import Finding, Verdict
from inference.report.sections import Subject, determined
from inference.report.verdicts import (
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    verdict_of,
)
from ppl_models import Bernoulli, Mixture, Normal

RNG = np.random.default_rng(0)
GROUP = RNG.random(300) < 0.4
ANSWERS = (RNG.random((300, 6)) < np.where(GROUP[:, None], 0.8, 0.2)).astype(float)


def subject_of(
    found: Fit, data: Any = None, identifiability: Any = None, uses: list[LatentUse] | None = None
) -> Subject:
    subject = Subject(found, data, None, None, identifiability)
    if uses is not None:
        subject.found[latent_use] = uses
    return subject


@pytest.fixture(scope="module")
def classes() -> Fit:
    return fit(Mixture(2, Bernoulli(), 6), ANSWERS, EM(), num_restarts=1)


@pytest.mark.filterwarnings("ignore::inference.EstimateWarning")
def test_the_report_of_latent_classes_is_heard(classes: Fit) -> None:
    found = on_determination(subject_of(classes, ANSWERS, identifiability_of(classes, ANSWERS)))
    assert found.mark == "good"
    assert "any small change" in found.answer
    same = Mixture(
        2, Bernoulli(), 2
    )  # three numbers cannot be had from a table of four cells beside the classes' own
    few = fit(same, ANSWERS[:, :2], EM(), num_restarts=1)
    assert (
        on_determination(
            subject_of(few, ANSWERS[:, :2], identifiability_of(few, ANSWERS[:, :2]))
        ).mark
        == "bad"
    )


def test_standard_errors_say_that_the_data_determine_the_estimates(classes: Fit) -> None:
    subject = subject_of(classes, ANSWERS)
    subject.found[determined] = None  # no theorem, and too few rows to judge by their scores
    assert "every change of it lowers the likelihood" in on_determination(subject).answer
    other = subject_of(classes, ANSWERS, "as somebody wrote")
    other.__dict__["estimates"] = dataclasses.replace(subject.estimates, source="")
    assert "That was not decided" in on_determination(other).answer


def test_what_is_hardly_determined_is_no_good_news() -> None:
    class Report:
        def text(self) -> str:
            return ""

        def to_dict(self) -> dict[str, Any]:
            return {
                "is_full_rank": True,
                "is_faint": True,
                "weakest": {
                    "eigenvalue": 1e-9,
                    "coefficients": {"leak[2]": 1.0, "failure[0,2]": -1.0},
                },
            }

    found = on_determination(subject_of(encoder_fit(), bernoulli_table(), Report()))
    assert found.mark == "care"
    assert "leak[2], failure[0,2]" in found.answer


def test_latents_that_say_nothing_or_the_same_are_named(classes: Fit) -> None:
    sure = GROUP.astype(float)
    on = np.stack([sure, np.clip(sure, 0.02, 0.98), np.full(300, 0.002), np.full(300, 0.5)], 1)
    found = on_latents(
        subject_of(classes, ANSWERS, uses=[LatentUse("a", ("0", "1", "2", "3"), False, on, "row")])
    )
    assert found is not None
    assert found.mark == "care"
    for words in (
        "Nearly always on and off together: a[0] and a[1].",
        "On in almost none or almost all of them: a[2].",
        "Unsure in most rows: a[3]",
        "Fit fewer latents",
    ):
        assert words in found.answer + found.step, words
    kept = on_latents(
        subject_of(classes, ANSWERS, uses=[LatentUse("a", ("0",), False, on[:, :1], "row")])
    )
    assert kept is not None
    assert (kept.mark, kept.step) == ("good", "")


def test_options_that_alternate_are_said_to(classes: Fit) -> None:
    for period, length, words in (
        (1, 100, "They alternate"),
        (5, 100, "kept for 5 steps"),
        (200, 5, "kept for 5 steps"),  # one option all along, in sequences of five steps
    ):
        first = (np.arange(200) // period) % 2
        on = np.stack([1.0 - first, first], 1)
        ended = np.concatenate([on.reshape(-1, length, 2), np.zeros((200 // length, 3, 2))], 1)
        use = LatentUse("options", ("0", "1"), True, on, "step")
        subject = subject_of(classes, ANSWERS, uses=[use])
        subject.found[latent_means] = {"options": torch.from_numpy(ended)}
        found = _on_length(subject)
        assert found is not None
        assert (found.mark, words in found.answer) == ("care" if period == 1 else "good", True)
        assert ("They alternate" in found.answer) == (period == 1)


def test_values_that_are_nowhere_the_most_probable_are_named(classes: Fit) -> None:
    on = np.tile([0.6, 0.1, 0.3], (50, 1))
    subject = subject_of(classes, ANSWERS, uses=[LatentUse("z", ("0", "1", "2"), True, on, "step")])
    subject.found[certainty] = None
    found = on_latents(subject)
    assert found is not None
    assert "60 % of the steps are expected to be classified correctly" in found.answer
    assert "No step most probably has the value 1, 2." in found.answer
    assert on_latents(subject_of(classes, ANSWERS, uses=[])) is None


def test_steps_that_are_classified_no_better_than_by_the_largest_class_get_a_cross(
    classes: Fit,
) -> None:
    on = np.tile([0.95, 0.05], (50, 1))
    subject = subject_of(classes, ANSWERS, uses=[LatentUse("states", ("0", "1"), True, on, "step")])
    subject.found[certainty] = ClassAccuracy(
        0.62, 0.95, 0.02, np.array([0.7, 0.5]), 0.6, 0.1, 0.8, 0.2, "", largest=0.9
    )
    found = on_latents(subject)
    assert found is not None
    assert found.mark == "bad"
    assert (
        "62 % of the steps are expected to be classified correctly (standard error 2.0),"
        in found.answer
    )
    assert "right for 60 % in these refits (it holds 90 % in this fit)." in found.answer
    subject.found[certainty] = ClassAccuracy(
        0.92, 0.95, 0.02, np.array([0.9, 0.9]), 0.6, 0.1, 0.8, 1.0, ""
    )
    sure = on_latents(subject)
    assert sure is not None
    assert "Do not report" not in sure.step
    assert "worthless" not in sure.answer


def test_a_distribution_with_the_wrong_correlations_is_named() -> None:
    pair = RNG.normal(size=(300, 1)) + 0.3 * RNG.normal(size=(300, 2))
    found = fit(Mixture(1, Normal(), 2), pair, EM())
    answer = on_prediction(subject_of(found, pair))
    assert answer.mark == "care"
    assert "the correlation of 0 with 1 (0.9" in answer.answer
    alone = RNG.normal(size=(300, 2))
    assert (
        on_prediction(subject_of(fit(Mixture(1, Normal(), 2), alone, EM()), alone)).mark == "good"
    )


def test_a_fit_that_did_not_converge_says_how_to_let_it_run_on() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = on_convergence(subject_of(encoder_fit()))
    assert found.mark == "bad"
    assert "EM(max_iterations=...)" in found.step
    drawn = dataclasses.replace(encoder_fit(), draws={}, warnings=("R-hat of a is 1.2",))
    assert on_convergence(subject_of(drawn)).answer == "No: R-hat of a is 1.2."


def test_headlines_and_steps() -> None:
    good, care, bad = (
        Finding(mark, "?", "!", step)
        for mark, step in (("good", ""), ("care", "look"), ("bad", "stop"))
    )
    assert verdict_of([good, None], nothing="go on") == Verdict((good,), ("go on",))
    assert verdict_of([care, care, bad], "choose").steps == ("look", "stop", "choose")
    assert (
        Verdict((good, care, bad), ()).headline
        == "Do not build on this fit yet: 1 answer below says why."
    )
    assert (
        Verdict((care, care), ()).headline
        == "To be read with care: 2 answers below ask for a closer look."
    )
    assert "speaks against" in Verdict((good,), ()).headline


def test_residuals_are_judged_by_how_many_there_are() -> None:
    def faults(
        spread: float = 1.0,
        memory: float = 0.0,
        num: int = 100,
        num_far: int = 0,
        num_items: int = 1,
    ) -> list[str]:
        return Residuals("x", 0.0, spread, memory, num, num_far).faults(num_items)

    assert faults(spread=1.15, memory=0.2, num_far=1) == []
    assert faults(spread=1.15, num=2000) == ["spread 1.15 (1 is right)"]
    assert faults(memory=-0.2, num=2000) == ["correlation -0.20 with the step before (0 is right)"]
    assert faults(num=10_000, num_far=11) == []
    assert faults(num=10_000, num_far=12) == ["12 steps far from all predictions"]
    assert faults(num=10_000, num_far=12, num_items=9) == []


@pytest.mark.parametrize("num_items", [1, 30])
def test_few_right_models_have_a_misfit_of_residuals(num_items: int) -> None:
    """Of 400 tables of independent standard normal residuals 1 % may have one."""
    rng = np.random.default_rng(0)
    misfits = 0
    for _ in range(400):
        x = rng.normal(size=(1500, num_items))
        memory = [float(np.corrcoef(own[:-1], own[1:])[0, 1]) for own in x.T]
        found = [
            Residuals(
                str(j), 0.0, float(own.std()), memory[j], len(own), int((abs(own) > 3.5).sum())
            )
            for j, own in enumerate(x.T)
        ]
        misfits += any(own.faults(num_items) for own in found)
    assert misfits <= 10

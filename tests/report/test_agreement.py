"""Pages against themselves: what the sections of a page find of one question, over the zoo and over
fits that something is wrong with.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from support.pages import assert_agreement, assert_one_voice
from torch import Tensor
from zoo.row import Row
from zoo.table import WITH_LOCAL, data_of, quick_fit, simulated

from inference import EM, Fit, fit
from inference.report.fit import _answer
from inference.report.parts import Table
from inference.report.sections import Subject
from inference.selection import select_dimension
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    ExpDINA,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    Poisson,
)

F64 = torch.float64
NUM_ROWS = 150


@pytest.fixture(autouse=True)
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Painting takes most of a page's time, and says nothing."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


def fitted(model: Any, data: Any, method: Any = None, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(
            model,
            data,
            method or EM(max_iterations=300),
            **({"num_restarts": 1, "seed": 3} | settings),
        )


# ---------------------------------------------------------------- the zoo


def of_row(row: Row) -> tuple[Fit, Tensor]:
    """A short fit to more rows than the distributions of the table take; what they have where rows
    have latents of their own.
    """
    if row.local:
        return quick_fit(row), data_of(row)
    data = simulated(row, NUM_ROWS, 5)
    return fitted(row.model, data, row.method or EM(max_iterations=100)), data


FEW = (
    "encoder-confirmatory",
    "dina-Poisson-2-missing",
    "encoder-recovers-missing",
    "hidden-markov-one-step",
    "options-one-step",
)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[] if row.name in FEW else [pytest.mark.slow]) for row in WITH_LOCAL],
    ids=lambda row: row.name,
)
@pytest.mark.filterwarnings("ignore")
def test_no_section_of_a_page_denies_another(row: Row) -> None:
    assert_agreement(*of_row(row))


# ---------------------------------------------------------------- fits that something is wrong with


@functools.cache
def skills() -> np.ndarray:
    """Answers to six items, two of each of three skills."""
    rng = np.random.default_rng(0)
    bits = (rng.random((200, 3)) < 0.5).repeat(2, 1)
    return (rng.random((200, 6)) < 0.15 + 0.7 * bits).astype(float)


def one_item_each() -> tuple[Fit, Any]:
    model = DeepDiscreteEncoder(4, (4,), Bernoulli(), graphs=(np.eye(4, dtype=int).tolist(),))
    return (
        fitted(model, skills()[:, ::2][:, [0, 1, 2, 0]].copy()),
        skills()[:, ::2][:, [0, 1, 2, 0]].copy(),
    )


def one_count_each() -> tuple[Fit, Any]:
    data = np.random.default_rng(1).poisson(1 + 4 * skills()[:, :3]).astype(float)
    return (
        fitted(
            DeepDiscreteEncoder(3, (3, 2), Poisson(), graphs=(np.eye(3, dtype=int).tolist(), None)),
            data,
        ),
        data,
    )


def a_hierarchy_of_saturated_items() -> tuple[Fit, Any]:
    from ppl_models import Hierarchy

    matrix = [[1, 0], [0, 1]] * 3 + [[1, 1], [1, 1]]
    rng = np.random.default_rng(2)
    bits = np.array([[0, 0], [1, 0], [1, 1]])[rng.integers(0, 3, 300)]
    data = (
        rng.random((300, 8)) < 0.15 + 0.7 * (bits @ np.transpose(matrix)) / np.sum(matrix, 1)
    ).astype(float)
    return (
        fitted(LatentAttributeModel(matrix, items="saturated", root=Hierarchy(((0, 1),))), data),
        data,
    )


def too_few_rows() -> tuple[Fit, Any]:
    matrix = np.eye(3, dtype=int).tolist() * 2 + [[1, 1, 1]]
    data = np.column_stack([skills(), skills()[:, 0]])[:9]
    return fitted(LatentAttributeModel(matrix, items="saturated"), data), data


def few_different_rows() -> tuple[Fit, Any]:
    data = np.tile(skills()[:4], (30, 1))
    return (
        fitted(
            LatentAttributeModel(np.eye(3, dtype=int).repeat(2, 0).tolist(), items="dina"), data
        ),
        data,
    )


def a_column_twice() -> tuple[Fit, Any]:
    data = np.column_stack([skills(), skills()[:, 0]])
    return fitted(Mixture(2, Bernoulli(), 7), data), data


def too_many_classes() -> tuple[Fit, Any]:
    data = skills()[:, :3]
    return fitted(Mixture(3, Bernoulli(), 3), data), data


def stopped_early() -> tuple[Fit, Any]:
    data = np.random.default_rng(3).normal(size=(120, 3)) + 2 * skills()[:120, :3]
    return fitted(Mixture(3, MultivariateNormal(), 3), data, EM(max_iterations=2)), data


def stopped_early_in_layers() -> tuple[Fit, Any]:
    return (
        fitted(
            DeepDiscreteEncoder(
                6,
                (3,),
                Bernoulli(),
                graphs=(np.eye(3, dtype=int).repeat(2, 0).tolist(),),
                bottom=ExpDINA(),
            ),
            skills(),
            EM(max_iterations=2),
        ),
        skills(),
    )


def idle_causes() -> tuple[Fit, Any]:
    return fitted(NoisyOr(6, 2), skills()), skills()


def groups_that_are_one() -> tuple[Fit, Any]:
    data = np.random.default_rng(4).normal(size=(100, 2))
    return fitted(Mixture(3, Normal(), 2), data), data


DAMAGED: tuple[Callable[[], tuple[Fit, Any]], ...] = (
    one_item_each,
    one_count_each,
    a_hierarchy_of_saturated_items,
    too_few_rows,
    few_different_rows,
    a_column_twice,
    too_many_classes,
    stopped_early,
    stopped_early_in_layers,
    idle_causes,
    groups_that_are_one,
)


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda make: make.__name__)
@pytest.mark.filterwarnings("ignore")
def test_no_section_of_a_page_of_a_damaged_fit_denies_another(
    damaged: Callable[[], tuple[Fit, Any]],
) -> None:
    assert_agreement(*damaged())


@pytest.mark.filterwarnings("ignore")
def test_the_page_of_a_choice_shows_its_table_and_does_not_ask_for_it_again() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(90, 2)) + 5.0 * rng.integers(0, 2, (90, 1))
    choice = select_dimension(lambda k: Mixture(k, Normal(), 2), data, [1, 2, 3], "bic", seed=0)
    subject = Subject(choice.best, data, None, None, choice=choice)
    assert_one_voice(subject)
    page = _answer(subject)
    (asked,) = [own for own in page.verdict.findings if own.question == "Is this the right number?"]
    assert "2 components" in asked.answer
    tables = [
        part
        for own in page.sections
        if "How many?" in own.title
        for part in own.parts
        if isinstance(part, Table)
    ]
    assert [row[0] for row in tables[0].rows] == ["1", "2", "3"]
    alone = _answer(Subject(choice.best, data, None, None))
    assert any(step.startswith("Ask whether") for step in alone.verdict.steps)

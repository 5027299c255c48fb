"""Pages against themselves: what the sections of a page find of one question, over the zoo and over
fits that something is wrong with.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor
from zoo.row import Row
from zoo.table import WITH_LOCAL, data_of, quick_fit, simulated

from inference import EM, Fit, fit
from inference.base.plugins import load_modules
from inference.fitting.columns import with_names
from inference.report.fit import _answer, _identifiability, _numbers
from inference.report.kinds.attributes import attributes_of, falls, graph, is_scaled
from inference.report.parts import Details, Finding, Note, Paragraph, Table, Verbatim, Verdict
from inference.report.sections import Refused, Subject, identified, locally
from inference.report.verdicts import record_of, verdict
from inference.selection import select_dimension
from inference.structures.layers.attributes import AttributeStructure
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
YES = (
    "determine every parameter",
    "every free number has a standard error",
    "any small change of it changes",
    "rows determine all ",
    "every small change",
)
NO = (
    "singular along",
    "not locally identified",
    "can change together",
    "can be changed together",
    "do not determine",
)
load_modules("inference.report.kinds")


@pytest.fixture(autouse=True)
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Painting takes most of a page's time, and says nothing."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


# what one sentence of a page says, and what none may say beside it
DENIALS = (
    ("No check on this page speaks against", "warnings below"),
    ("Nearly.", "the estimates are not final"),
    ("No pair of items is associated beyond", "shares more than the attributes explain: "),
    (
        "is expected to be done worse by those who have one attribute more",
        "Falls that may be noise",
    ),
    ("is expected to be done worse by those who have one attribute more", "to do clearly worse"),
    ("The answers contradict no row of it", " rows of it: "),
    ("No two attributes are joined", "joined directly"),
    ("are kept for a while", "only a mixture of ways to act"),
    ("kept for a while.", "They alternate"),
    ("No pair of columns", "correlate inside the groups:"),
    ("the residuals contradict the model", "No misfit found"),
    ("is not looked at here", "No misfit found"),
    ("latents summed out", "cannot be summed out"),
    ("Not decided: ", "Are the factors determined?"),
    ("Not decided: ", "Are the signatures determined?"),
    ("leave next to nothing to take off", "That is too many where"),
    ("The answers clearly contradict no row of it", "It was found in this fit"),
    ("the classes do not overlap", "group 0"),
)
# what no sentence of a page may look like
SLIPS = {
    "a tuple or a list of the code": r"\('\w+',|\['\w+'",
    "the name of a function before what it says": r"(computed|decided|drawn): [a-z]+_[a-z_]+: ",
    "a number that is no number": r"\bnan\b|\binf\b",
    "a number below all that is said": r"\de-\d{3}",
    "one of many": r"(?<![\d.,])1 (rows|items|latents|groups|components|attributes|columns) ",
    "two words for one place": r"\S  \S",
    "a choice of nothing": r": try or |; try or |, or \.",
}
BARE = ("Yes.", "No.", "Nearly.", "Yes. ", "")  # answers that say nothing


def words_of(part: Any) -> list[str]:
    """All that is written in a part."""
    if isinstance(part, Finding):
        return [part.answer, part.step]
    if isinstance(part, Verdict):
        return [part.headline, *part.steps, *(w for own in part.findings for w in words_of(own))]
    if isinstance(part, Table):
        return [*part.head, *(cell for row in part.rows for cell in row)]
    if isinstance(part, Details):
        return []  # the engine's settings
    return list(getattr(part, "texts", ())) or [getattr(part, "text", "")]


def assert_one_voice(subject: Subject) -> None:
    """What a page says in one place, no other denies or names otherwise."""
    page, fit_ = _answer(subject), subject.fit
    said = [
        words for section in page.sections for part in section.parts for words in words_of(part)
    ]
    everything = "\n".join(said)
    for one, other in DENIALS:
        assert not (one in everything and other in everything), (one, other)
    assert with_names(fit_, everything, subject.names) == everything  # no numbers for names
    assert not (fit_.warnings and page.verdict.mark == "good")
    for name, slip in SLIPS.items():
        found = re.search(slip, everything)
        assert found is None, (name, everything[max(0, found.start() - 80) : found.end() + 40])
    assert not [own.question for own in page.verdict.findings if own.answer in BARE]
    assert len(set(page.verdict.steps)) == len(page.verdict.steps), page.verdict.steps
    titles = [section.title for section in page.sections if section.parts]
    assert len(set(titles)) == len(titles), titles
    assert_intervals(page)
    if subject.choice is not None:
        assert not any(step.startswith("Ask whether") for step in page.verdict.steps)
    if isinstance(fit_.structure, AttributeStructure):
        named = set(attributes_of(subject))
        report = subject.once(graph)
        if not isinstance(report, Refused):
            assert set(report.causal.graph.names) == named
            best = report.on_rows.best.graph
            ranked = [found.graph for found in report.on_rows.ranked]
            if best is not None and report.causal.graph in ranked and report.determined:
                is_other = best != report.causal.graph and bool(report.causal.edges)
                assert ("another graph does better" in everything) == is_other
        fallen = subject.once(falls)
        if not isinstance(fallen, Refused) and not is_scaled(subject):
            items = " ".join(
                own.answer for own in page.verdict.findings if "items work" in own.question
            )
            assert all(own.item in items for own in fallen) or not items


def assert_intervals(page: Any) -> None:
    """Entries are said to have no interval only where one is shown without."""
    for section in page.sections:
        if section.title == "Estimates":
            table = next(part for part in section.parts if isinstance(part, Table))
            bare = [row for row in table.rows if row[1] and not row[-1]]
            said = any("Entries without an interval" in text for text in texts(section.parts))
            assert not said or bare or any("more of" in row[0] for row in table.rows)


def texts(parts: Any) -> list[str]:
    return [part.text for part in parts if isinstance(part, Paragraph | Note | Verbatim)]


def assert_agreement(found: Fit, data: Any) -> None:
    """No section denies another: verdict, identifiability, standard errors, number of parameters,
    convergence.
    """
    subject = Subject(found, data, None, None)
    findings = verdict(found.structure, subject).findings
    answers = [finding for finding in findings if "determine" in finding.question]
    estimates, local, record = subject.estimates, subject.once(locally), record_of(subject)
    (table,) = (part for part in _numbers(subject) if isinstance(part, Table))
    numbers = {row[0]: row for row in table.rows}
    section = " ".join(texts(_identifiability(subject, identified(found.structure, subject))))
    is_open = local is not None and local.num_open > 0
    doubted = (
        is_open
        or estimates.is_flat
        or record.get("is_full_rank") is False
        or record.get("verdict") == "not identified"
    )

    # what is determined
    marks = {finding.mark for finding in answers}
    assert "good" not in marks or not doubted, answers
    assert not doubted or not answers or marks & {"care", "bad"}, answers
    num_seen = found.num_observations or found.num_rows
    if found.local is None and found.draws is None and num_seen < found.num_parameters:
        assert "good" not in marks or estimates.source, answers
    if estimates.source and not doubted:
        assert "bad" not in marks, answers
        assert not any(finding.answer.startswith("No") for finding in answers), answers
    if is_open:
        assert not estimates.source or "standard errors" not in section
        assert f"{local.rank:,} of {local.num_judged:,}" in section, section
    for answer in answers:  # and in its own words
        said = (
            f"{answer.answer} {section if record.get('verdict') is None else ''} {estimates.note}"
        )
        assert not (any(words in said for words in YES) and any(words in said for words in NO)), (
            said
        )

    # how many they are
    if "free parameters" in numbers:
        assert numbers["free parameters"][1] == f"{found.num_parameters:,}"
        assert "of these, told by the data" not in numbers or is_open or not estimates.is_flat
        if local is not None and not estimates.is_flat and found.bic_price is None:
            assert ("of these, told by the data" in numbers) == (
                local.rank is not None and local.rank < found.num_parameters
            )
    if local is not None and found.bic_price is None:
        assert local.num_judged + local.num_held == found.num_parameters, local
        if is_open:
            assert numbers["of these, told by the data"][1] == f"{local.rank:,}"
            assert f"{local.num_open:,} direction" in numbers["of these, told by the data"][2]
            assert (
                f"for {found.num_parameters:,} parameters" in numbers["BIC (smaller is better)"][2]
                if found.why_no_criteria is None
                else True
            )
        if local.num_held:
            assert f"The other {local.num_held:,} of {found.num_parameters:,}" in section

    # whether it converged
    assert numbers["converged"][1] == ("yes" if found.converged else "no")
    (ended,) = [finding for finding in findings if finding.question == "Did the fit converge?"] or [
        None
    ]
    if ended is not None:
        assert not (ended.mark == "good" and not found.converged)
        assert ended.answer.startswith(("No", "Nearly")) == (not found.converged)
    assert_one_voice(subject)


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

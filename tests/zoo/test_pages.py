"""Law of pages: no sentence of the page of a zoo row denies another, and all name one thing alike.

The record of a page is made without drawing: the verdict, and the sections that it is made from.
"""

from __future__ import annotations

import sys

import pytest
from support.pages import assert_agreement, names_of
from zoo.row import Row
from zoo.table import WITH_LOCAL, data_of, quick_fit

from inference.report.parts import Note

# rows whose record takes about a second or more; the others together take half a minute
LONG = frozenset(
    {
        "attributes-categories",
        "attributes-categories-covariates",
        "attributes-dag-Poisson",
        "attributes-dag-chances-recovers-Bernoulli",
        "attributes-independent-Blocks",
        "attributes-saturated-NegativeBinomial",
        "attributes-saturated-chances-Bernoulli",
        "attributes-trait-Bernoulli",
        "attributes-trait-recovers-Normal",
        "hidden-markov-left-right-Blocks",
        "hidden-markov-stationary",
        "hidden-semi-markov-Poisson",
        "hidden-semi-markov-free",
        "hidden-semi-markov-negative-binomial",
        "mixture-MultivariateNormal-missing",
        "mixture-NegativeBinomial-Blocks",
        "mixture-NegativeBinomial-missing",
        "mixture-Ordinal-Blocks",
        "mixture-Ordinal-missing",
        "mixture-covariates-missing",
        "options-2",
        "options-3-sticky",
        "options-termination",
    }
)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a page's time, and says nothing."""
    for name, module in list(sys.modules.items()):
        if name.startswith("inference.report") and hasattr(module, "picture"):
            monkeypatch.setattr(module, "picture", lambda draw, alt: Note(alt))


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.slow] * (row.name in LONG)) for row in WITH_LOCAL],
    ids=lambda row: row.name,
)
@pytest.mark.filterwarnings("ignore")
def test_no_sentence_of_a_page_denies_another(row: Row) -> None:
    found = quick_fit(row)
    assert_agreement(found, data_of(row), names_of(found))

"""Questions about the rows of a fit refuse other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from inference import fit
from inference.base.streaming.row_blocks import RowBlocks
from inference.bootstrap import bootstrap
from inference.fitting.same_data import refuse_other_data
from inference.inspection import item_fit, local_dependence
from inference.selection import at_least, compare_groups, differential_items, fit_grid, item_scores
from inference.selection.likelihood_ratio import likelihood_ratio_test
from inference.uncertainty import standard_errors
from ppl_models import AttributeGroups, LatentAttributeModel, Mixture, NegativeBinomial, Poisson
from ppl_models.parts.blocks import Blocks

Q = ((1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (1, 1))
NAMES = tuple(f"q{j}" for j in range(len(Q)))


def answers(seed: int, num_rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    bits = rng.random((num_rows, 2)) < 0.5
    right = np.where(bits @ np.array(Q).T > 0, 0.85, 0.2)
    frame = pd.DataFrame((rng.random(right.shape) < right).astype(float), columns=list(NAMES))
    return frame.assign(group=np.where(rng.random(num_rows) < 0.5, "late", "early"))


def test_questions_about_the_rows_of_a_fit_refuse_another_number_of_rows() -> None:
    rows, rng = answers(0)[list(NAMES)], np.random.default_rng(0)
    attributes = fit(LatentAttributeModel(Q, item_names=NAMES), rows, progress=False)
    few = rows[:200]
    asked: dict[str, Any] = {
        "standard_errors": lambda: standard_errors(attributes, few),
        "bootstrap": lambda: bootstrap(attributes, few, 2),
        "item_fit": lambda: item_fit(attributes, few),
        "local_dependence": lambda: local_dependence(attributes, few),
    }
    for name, ask in asked.items():
        with pytest.raises(ValueError, match=f"{name}: .*300 rows of the fit.*200 rows"):
            ask()
    assert standard_errors(attributes, RowBlocks.of(rows))
    for ask in (attributes.summary, lambda data: standard_errors(attributes, data)):
        with pytest.raises(ValueError, match="300 rows of the fit.*200 rows"):
            ask(RowBlocks.of(few))
    labels = pd.Series(np.where(rng.random(300) < 0.2, (rows.sum(axis=1) > 4).astype(int), -1))
    labelled = fit(Mixture(2), rows, labels=labels, progress=False)
    with pytest.raises(ValueError, match="summary: data: the 300 rows of the fit"):
        labelled.summary(few)


def test_comparisons_with_fits_of_other_rows_are_refused() -> None:
    """As many rows that are others: a refit of them gains what a fit of its own rows cannot."""
    rows, others = answers(0), answers(1)
    grid = fit_grid(Mixture, rows[list(NAMES)], (1, 2), 3)
    groups = fit(
        AttributeGroups(LatentAttributeModel(Q, item_names=NAMES), ("early", "late")),
        rows,
        progress=False,
    )
    asked: dict[str, Any] = {
        "likelihood_ratio_test": lambda data: likelihood_ratio_test(
            grid[1], grid[2], data[list(NAMES)], 5
        ),
        "at_least": lambda data: at_least(grid, data[list(NAMES)], num_sets=19),
        "compare_groups": lambda data: compare_groups(groups, data),
        "differential_items": lambda data: differential_items(groups, data, (0,)),
        "item_scores": lambda data: item_scores(groups, data),
    }
    for name, ask in asked.items():
        with pytest.raises(ValueError, match=f"{name}: data: .*whose log-likelihood is"):
            ask(others)
        assert ask(rows)


def test_the_rows_of_a_fit_pass_in_any_order_with_weights_and_in_single_precision() -> None:
    rows = answers(0)[list(NAMES)]
    weights = np.random.default_rng(0).integers(1, 4, len(rows)).astype(float)
    weighted = fit(Mixture(2), rows, weights=weights, progress=False)
    refuse_other_data("here", weighted, rows)
    classes = fit(Mixture(2), rows, progress=False)
    refuse_other_data("here", classes, rows[::-1])
    refuse_other_data("here", classes, rows.astype("float32"))


def test_fits_of_columns_in_another_order_are_refused_where_both_see_one_table() -> None:
    """The larger model would take each column by the family of another."""
    rng = np.random.default_rng(0)
    group = rng.random(150) < 0.5
    spread = rng.gamma(1, 8, 150)
    rows = pd.DataFrame({"few": rng.poisson(1 + 5 * group), "spread": rng.poisson(spread)})
    in_order = [(Poisson(), 1), (NegativeBinomial(), 1)]
    small = fit(Mixture(1, Blocks(*in_order)), rows, num_restarts=2)
    turned = fit(Mixture(2, Blocks(*in_order[::-1])), rows[["spread", "few"]], num_restarts=2)
    for ask in (
        lambda: likelihood_ratio_test(small, turned, rows, 5),
        lambda: at_least({1: small, 2: turned}, rows, num_sets=19),
    ):
        with pytest.raises(ValueError, match="columns in one order .* few, spread and spread, few"):
            ask()

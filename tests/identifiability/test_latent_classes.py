"""Latent classes: ranks of published cases, the condition on three groups against all splits, and
words.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch

from inference import EM, EstimateWarning, Fit, compare, fit
from inference.identifiability import check_identifiability
from inference.identifiability.latent_classes import three_groups
from ppl_models import Bernoulli, Categorical, Mixture, Ordinal

F64 = torch.float64


def fitted(component, num_items: int, num_classes: int, names: bool = False) -> Fit:
    generator = torch.Generator().manual_seed(1)
    chances = 0.1 + 0.8 * torch.rand(num_classes, num_items, generator=generator, dtype=F64)
    data = torch.bernoulli(
        chances[torch.randint(num_classes, (400,), generator=generator)], generator=generator
    )
    rows = (
        pd.DataFrame(data.numpy(), columns=[f"item{j}" for j in range(num_items)]).replace(
            {0: "no", 1: "yes"}
        )
        if names
        else data
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(
            Mixture(num_classes, component, num_items),
            rows,
            EM(max_iterations=100, tolerance=1e-9),
            num_restarts=1,
            init="random",
        )


@pytest.mark.parametrize(
    ("component", "num_items", "num_classes", "rank", "free"),
    [
        (Categorical(2), 4, 3, 13, 14),  # Goodman's case
        (Bernoulli(), 4, 3, 13, 14),
        (Categorical(2), 5, 3, 17, 17),
        (Categorical(2), 5, 4, 23, 23),
        (Categorical(2), 2, 2, 3, 5),  # three free cells
    ],
)
def test_ranks(component, num_items: int, num_classes: int, rank: int, free: int) -> None:
    report = check_identifiability(fitted(component, num_items, num_classes))
    assert (report.rank, report.num_parameters) == (rank, free)
    assert report.is_full_rank == (rank == free)
    assert ("do not determine" in report.text()) == (rank < free)
    assert report.verdict == (
        "not identified" if rank < free else "generic" if report.groups else "local"
    )


def test_words_name_items_and_categories() -> None:
    result = fitted(Categorical(("no", "yes")), 5, 2, names=True)
    report = check_identifiability(result)
    assert "item0" in report.text()
    assert any("item" in name and name.endswith("=no]") for name in report.information.names)
    assert "three groups of items" in report.text()
    assert report.to_dict()["information"]["rank"] == report.rank


def test_a_comparison_says_the_verdict() -> None:
    data = torch.bernoulli(
        torch.full((40, 4), 0.5, dtype=F64), generator=torch.Generator().manual_seed(0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {
            str(k): fit(
                Mixture(k, Bernoulli(), 4), data, EM(max_iterations=20), num_restarts=1, seed=1
            )
            for k in (1, 3)
        }
        found = compare(fits, data, num_folds=0)
    assert list(found.table["identifiability"]) == ["local", "not identified"]


def test_the_condition_speaks_of_free_tables() -> None:
    assert check_identifiability(fitted(Ordinal(3, link="adjacent"), 4, 2)).groups is None
    assert check_identifiability(
        fitted(Ordinal(2, link="adjacent"), 5, 2)
    ).groups  # no thresholds: the tables are free
    assert check_identifiability(fitted(Categorical(2), 4, 1)).groups is None


@pytest.mark.parametrize(
    "sizes", [(2, 2, 2), (2, 2, 2, 2), (3, 2, 2), (4, 3), (2, 2, 2, 2, 2, 2), (5, 2, 3, 2)]
)
@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_three_groups_are_found_where_there_are_any(
    sizes: tuple[int, ...], num_classes: int
) -> None:
    def total(owners: tuple[int, ...]) -> int:
        return sum(
            min(num_classes, math.prod(c for c, g in zip(sizes, owners, strict=True) if g == group))
            for group in range(3)
        )

    possible = any(
        total(owners) >= 2 * num_classes + 2
        for owners in itertools.product(range(3), repeat=len(sizes))
    )
    groups = three_groups(sizes, num_classes)
    assert bool(groups) == possible
    if groups:
        assert (
            sum(min(num_classes, math.prod(sizes[j] for j in group)) for group in groups)
            >= 2 * num_classes + 2
        )
        members = [j for group in groups for j in group]
        assert len(members) == len(set(members))


def test_a_table_with_too_few_cells_is_said_at_the_fit_and_on_the_page(tmp_path: Path) -> None:
    rows = torch.tensor(
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=F64
    ).repeat_interleave(torch.tensor([40, 10, 15, 35]), 0)
    words = r"\(2 × 2\) has only 4 cells, whose shares are 3 free numbers, and the model has 5\."
    with pytest.warns(
        EstimateWarning,
        match=(
            f"cannot determine these 2 classes: the table of all possible answers {words}.*at most"
            " 1 from these items"
        ),
    ):
        result = fit(Mixture(2, Bernoulli(), 2), rows, EM(), num_restarts=2)
    report = check_identifiability(result)
    assert report.is_too_small
    assert (report.num_free, report.num_cells, report.rank) == (5, 4, 3)
    page = html.unescape(result.report(tmp_path / "page.html", rows).read_text(encoding="utf-8"))
    assert re.search(
        "Do the data determine the estimates\\?.*No\\. The answers do not determine these 2"
        f" classes.*{words}",
        page,
        re.DOTALL,
    )
    assert "Read no single one of these estimates before" in page
    fine = check_identifiability(fitted(Bernoulli(), 3, 2))
    assert not fine.is_too_small
    goodman = check_identifiability(fitted(Bernoulli(), 4, 3))
    assert not goodman.is_too_small  # 14 free numbers, 15 free shares, and yet rank 13
    assert "of 14 free numbers only 13 can be learned" in goodman.text()

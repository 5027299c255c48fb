"""Columns that what is hidden depends on: options and steps of the commands that take covariates."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from inference.cli.app import columns_of, names_of, read_mixed
from ppl_models.parts.showing import counted

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.descriptions.covariates import Covariates

__all__ = ["CovariateColumns", "CovariatesMissing", "Gaps", "item_columns", "joined", "listed", "read_covariates", "with_covariates"]

MOST_NAMED = 6


class Gaps(StrEnum):
    """What becomes of rows that lack a covariate."""

    refuse = "refuse"
    drop = "drop"


CovariateColumns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...", help="Columns, beside those of --columns, that the group or the deepest latents of a row depend on; those of texts count as categories."
    ),
]
CovariatesMissing = Annotated[
    Gaps, typer.Option("--covariates-missing", help="Where rows lack a covariate: refuse the table, or drop these rows and say how many.")
]


def read_covariates(data: str, covariates: str | None) -> pd.DataFrame | None:
    """The columns named, None where none are."""
    return None if covariates is None else read_mixed(data, names_of(covariates, "--covariates"))


def item_columns(data: str, columns: str | None, given: pd.DataFrame | None) -> str | list[str] | None:
    """The columns of the items: those asked for, or all but the covariates.

    Raises:
        ValueError: for a column that is asked for as both.
    """
    if given is None:
        return columns
    names = list(columns_of(data)) if columns is None else names_of(columns, "--columns")
    both = [name for name in given if name in names]
    if columns is not None and both:
        raise ValueError(f"--covariates: {listed(both)} cannot be among --columns too: what a row depends on is not what it is made of")
    return [name for name in names if name not in list(given)]


def with_covariates(frame: pd.DataFrame, given: pd.DataFrame | None, gaps: Gaps) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Items and covariates of the rows that have all of these, where others are to be dropped.

    Raises:
        ValueError: where they are not, naming the first.
    """
    if given is None:
        return frame, given
    kept = given.notna().all(axis=1)
    if gaps is Gaps.refuse:
        if not kept.all():
            row = int((~kept).to_numpy().argmax())
            name = given.columns[given.iloc[row].isna().to_numpy().argmax()]
            raise ValueError(
                f"--covariates: covariate {name!r} is missing in row {row} ({int((~kept).sum())} of {len(kept):,} rows lack a covariate): fill the entries, or leave these "
                "rows out by --covariates-missing drop"
            )
        return frame, given
    typer.echo(f"{counted(int((~kept).sum()), 'row')} of {len(kept):,} that lack a covariate {'is' if (~kept).sum() == 1 else 'are'} left out.")
    return frame[kept], given[kept]


def joined(frame: pd.DataFrame, given: pd.DataFrame | None) -> tuple[pd.DataFrame, Covariates | None]:
    """Items with the covariates beside them, and these as a model takes them."""
    from ppl_models.descriptions.covariates import Covariates

    if given is None:
        return frame, None
    return frame.assign(**{str(name): given[name] for name in given}), Covariates.from_frame(given)


def listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")

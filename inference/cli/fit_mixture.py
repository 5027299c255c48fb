"""``ppl-models fit mixture``: groups of rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    RESPONSES,
    BlockRows,
    CheckpointFile,
    Columns,
    CovariateColumns,
    CovariatesMissing,
    Gaps,
    NoProgress,
    Out,
    Overwrite,
    Restarts,
    Seed,
    Table,
    Verbose,
    blocks_of,
    check_out,
    columns_of,
    deliver,
    fit_app,
    item_columns,
    joined,
    listed,
    names_of,
    one_line_errors,
    range_of,
    read_covariates,
    read_frame,
    read_mixed,
    response_of,
    run,
    say_blocks,
    warn,
    with_covariates,
    write_csv,
)
from ppl_models.parts.frames import holds_texts, kind_of_column, misread_numbers

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.parts.responses import ResponseFamily


ROW_LAWS = {
    "multivariate-normal": "MultivariateNormal",
    "multivariate-t": "MultivariateT",
    "skew-normal": "SkewNormal",
}
CATEGORIES = "categorical"
AS_CATEGORIES = ", or say --response {name}=categorical if it holds names of categories"
FAMILIES = (*RESPONSES, CATEGORIES)
ORDERED = {"ordinal": "cumulative", "partial-credit": "adjacent"}  # and their links
Orders = Annotated[
    list[str] | None,
    typer.Option(
        "--order",
        metavar="LOW,...,HIGH",
        help=(
            "Names of the categories of columns of texts, which are then "
            "ordinal, from the lowest to the highest: "
            "never,rarely,often,always. Once for each scale."
        ),
    ),
]
Response = Annotated[
    str | None,
    typer.Option(
        help=(
            f"Law of the columns inside a group: {', '.join((*FAMILIES, *ROW_LAWS))}; or column by"
            " column, age=normal,visits=poisson; or in blocks, bernoulli:3,normal:2. What is not"
            " said is taken as it looks: 0 and 1 as bernoulli, counts with zeros among them as"
            " poisson, texts as categorical, other numbers as normal."
        ),
    ),
]
KINDS = {
    "bernoulli": "yes or no (Bernoulli)",
    "poisson": "counts (Poisson)",
    CATEGORIES: "categories (Categorical)",
    "normal": "measurements (Normal)",
}
FEW_CATEGORIES, MOST_CATEGORIES = (
    10,
    50,
)  # of a column of texts: so many always may be, and never more (else half of the rows)


@fit_app.command("mixture")
def fit_mixture(
    data: Table,
    out: Out,
    components: Annotated[
        int | None, typer.Option(min=1, help="Number of groups (components).")
    ] = None,
    choose: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST..LAST",
            help=(
                "Instead of --components: fit each of these numbers and take the one with the"
                " smallest BIC."
            ),
        ),
    ] = None,
    response: Response = None,
    columns: Columns = None,
    covariates: CovariateColumns = None,
    covariates_missing: CovariatesMissing = Gaps.refuse,
    restarts: Restarts = None,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    block_rows: BlockRows = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Find groups of similar rows: a mixture (latent class or latent profile model), the group of
    every row, and a report.

    For example: ppl-models fit mixture data.csv --components 3 --columns age,visits,smokes --out
    groups
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from inference.cli.blocks.fitted import goes_in_blocks
        from inference.cli.blocks.looked import look_through
        from inference.cli.blocks.opened import open_blocks
        from ppl_models.mixture import Mixture

        if (components is None) == (choose is None):
            raise ValueError(
                "--components K (a number of groups) or --choose FIRST..LAST (numbers to compare)"
                " was expected, one of the two"
            )
        if checkpoint is not None and choose is not None:
            raise ValueError(
                "--checkpoint: one fit is kept in it, and --choose makes several; give --components"
                " with it"
            )
        sizes = None if choose is None else range_of(choose, "--choose")
        check_out(out, overwrite, checkpoint)
        asked = None if response is None or "=" not in response else asked_of(response)
        why = (
            "--covariates reads rows in memory"
            if covariates is not None
            else (
                "--choose compares fits of rows in memory; give --components"
                if choose is not None
                else ""
            )
        )
        blocks = open_blocks(
            data, None if columns is None else names_of(columns, "--columns"), block_rows, why
        )
        if blocks is not None:
            seen = look_through(blocks, seed)
            component = component_of(response, asked, _as_said(seen.frame, response, asked))
            whole = Mixture(components or 1, component, seen.frame.shape[1])
            if goes_in_blocks(whole, seen.frame, block_rows):
                for text in _counting(seen.counting):
                    warn(text)
                say_blocks(blocks)
                result = run(whole, blocks, None, restarts, seed, checkpoint, not no_progress)
                deliver(result, blocks, out, None)
                return
        given = read_covariates(data, covariates)
        frame = read_as_asked(data, item_columns(data, columns, given), response, asked)
        frame, given = with_covariates(frame, given, covariates_missing)
        component = component_of(response, asked, frame)
        for text in doubts_of(frame):
            warn(text)

        num_items = frame.shape[1]
        frame, known = joined(frame, given)

        def model(size: int) -> Any:
            return Mixture(size, component, num_items, covariates=known)

        if sizes is None:
            result = run(
                model(components or 1), frame, None, restarts, seed, checkpoint, not no_progress
            )
        else:
            from inference.programs.global_state import listening
            from inference.selection.dimension import select_dimension

            with listening() as caught:
                found = select_dimension(
                    model,
                    frame,
                    sizes,
                    "bic",
                    num_restarts=restarts,
                    seed=seed,
                    progress=not no_progress,
                )
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                warn(text)
            result = found.best
        deliver(result, frame, out, None)
        if sizes is not None:
            write_csv(found.table, out / "sizes.csv", index_label="components")
            typer.echo(found.table[["bic", "aic", "chosen"]].round(2).to_string())
            typer.echo(
                f"{found.chosen} groups have the smallest BIC of {sizes[0]} to {sizes[-1]}; all"
                f" figures are in {out / 'sizes.csv'}"
            )
            if found.chosen == sizes[-1] and len(sizes) > 1:
                warn(
                    "the largest number compared was chosen; try --choose"
                    f" {sizes[0]}..{2 * sizes[-1]}"
                )


# ---------------------------------------------------------------- what the columns are


def read_as_asked(
    data: str, columns: str | list[str] | None, response: str | None, asked: dict[str, str] | None
) -> pd.DataFrame:
    """The table; columns of texts are categories, unless a law of numbers is asked for all
    columns.
    """
    if response == CATEGORIES:
        names = (
            list(columns_of(data))
            if columns is None
            else names_of(columns, "--columns")
            if isinstance(columns, str)
            else columns
        )
        return read_mixed(data, names, names)
    if response is not None and asked is None:
        return read_frame(data, columns, can_choose=True)
    return read_mixed(
        data,
        columns,
        [name for name, family in (asked or {}).items() if family == CATEGORIES],
        AS_CATEGORIES,
    )


def _as_said(
    frame: pd.DataFrame, response: str | None, asked: dict[str, str] | None
) -> pd.DataFrame:
    """A frame whose columns of texts are refused where a law of numbers is asked for all
    columns.
    """
    if response is not None and asked is None and response != CATEGORIES:
        refuse_texts(frame)
    return frame


def refuse_texts(frame: pd.DataFrame) -> None:
    """Refuse a column of texts.

    Raises:
        ValueError: naming the first.
    """
    for name in frame.columns:
        if holds_texts(frame[name]) and frame[name].notna().any():
            raise ValueError(
                f"column {name!r} holds texts, such as {frame[name].dropna().iloc[0]!r}; name the"
                " columns to use with --columns, without those of texts"
            )


def component_of(text: str | None, asked: dict[str, str] | None, frame: pd.DataFrame) -> Any:
    """The law of the columns, said where it was not asked for."""
    import ppl_models

    if text == CATEGORIES:
        return _blocks(frame, [CATEGORIES] * frame.shape[1])
    if text in ROW_LAWS:
        return getattr(ppl_models, ROW_LAWS[text])()
    if text is not None and asked is None:
        return response_of(text, (CATEGORIES, *ROW_LAWS))
    asked = asked or {}
    for name in asked:
        if name not in frame.columns:
            raise ValueError(
                f"--response: {name!r} is no column of the table; the columns used are"
                f" {listed(list(frame.columns))}"
            )
    kinds = [asked.get(name) or kind_of_column(frame[name]) for name in frame.columns]
    left = [
        (name, kind) for name, kind in zip(frame.columns, kinds, strict=True) if name not in asked
    ]
    said = [
        f"{listed([name for name, own in left if own == kind])} as {words}"
        for kind, words in KINDS.items()
        if any(own == kind for _, own in left)
    ]
    if said:
        typer.echo(
            "By their values, the columns are taken as follows (--response says otherwise):"
            f" {'; '.join(said)}."
        )
    return _blocks(frame, kinds)


def _blocks(frame: pd.DataFrame, kinds: list[str]) -> ResponseFamily:
    """Families of neighbouring columns of one kind."""
    import ppl_models

    runs: list[tuple[ResponseFamily, int]] = []
    for kind, own in groupby(zip(kinds, frame.columns, strict=True), key=itemgetter(0)):
        names = [name for _, name in own]
        for name in names:
            if kind == CATEGORIES and frame[name].nunique() > max(
                FEW_CATEGORIES, min(MOST_CATEGORIES, len(frame) // 2)
            ):
                values = frame[name].dropna().unique()
                many = f"{len(values):,} different texts, too many for categories"
                held = misread_numbers(values) or f"{many}; leave it out with --columns"
                raise ValueError(f"column {name!r} holds {held}")
            if kind != CATEGORIES and kind not in ORDERED and holds_texts(frame[name]):
                raise ValueError(
                    f"--response: column {name!r} holds texts, which {kind} items cannot be; leave"
                    f" it out with --columns, or say {name}={CATEGORIES}"
                )
        family: ResponseFamily
        if kind in ORDERED:
            family = ppl_models.Ordinal.from_frame(frame[names], link=ORDERED[kind])  # type: ignore[arg-type]
        else:
            family = (
                ppl_models.Categorical.from_frame(frame[names])
                if kind == CATEGORIES
                else getattr(ppl_models, RESPONSES[kind])()
            )
        runs.append((family, len(names)))
    return runs[0][0] if len(runs) == 1 else ppl_models.Blocks(*runs)


def items_of_layers(
    data: str,
    columns: str | list[str] | None,
    response: str | None,
    orders: list[str] | None,
    seen: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, ResponseFamily]:
    """The table of the items, and their family where predictors are linear in latents: categories,
    in order or not, beside numbers.

    Args:
        data: the file; columns: text of ``--columns``, or names; response: text of ``--response``;
            orders: texts of ``--order``.
        seen: rows that stand for those of the file, where it is read in blocks; None to read it.
    """
    by_column = response is None or "=" in response
    blocks = [] if response is None or by_column else blocks_of(response, "--response")
    for name, _ in blocks:
        if name not in (*FAMILIES, *ORDERED):
            raise ValueError(
                f"--response: {', '.join((*FAMILIES, *ORDERED))}, or blocks of them, were expected,"
                f" got {name!r}"
            )
    if response is not None and not by_column and all(name in RESPONSES for name, _ in blocks):
        if seen is not None:
            refuse_texts(seen)
        return read_frame(data, columns, can_choose=True) if seen is None else seen, response_of(
            response
        )
    if seen is not None:
        names = [str(name) for name in seen.columns]
    else:
        names = (
            list(columns_of(data))
            if columns is None
            else names_of(columns, "--columns")
            if isinstance(columns, str)
            else columns
        )
    asked = (
        {}
        if response is None
        else asked_of(response, ORDERED)
        if by_column
        else _of_blocks(blocks, names)
    )
    frame = (
        read_mixed(
            data,
            names,
            [name for name, family in asked.items() if family == CATEGORIES],
            AS_CATEGORIES,
        )
        if seen is None
        else seen.copy()
    )
    known = [names_of(text, "--order") for text in orders or ()]
    texts = {
        name: set(map(str, frame[name].dropna().unique()))
        for name in map(str, frame.columns)
        if holds_texts(frame[name])
    }
    for order in known:
        fitting = [name for name, held in texts.items() if held <= set(order)]
        if not fitting:
            raise ValueError(
                f"--order: no column of texts holds {listed(order)} and nothing else; the columns"
                f" of texts are {listed(list(texts))}"
            )
        asked = dict.fromkeys(fitting, "ordinal") | asked
    for name, family in asked.items():
        if family in ORDERED and name in frame.columns and holds_texts(frame[name]):
            frame[name] = _in_order(frame[name], known)
    family = component_of(None, asked, frame)
    return frame, family


def _of_blocks(blocks: list[tuple[str, int | None]], names: list[str]) -> dict[str, str]:
    """Families by column of blocks of columns, or of one family for all."""
    kinds = [
        family for family, number in blocks for _ in range(len(names) if number is None else number)
    ]
    if len(kinds) != len(names):
        raise ValueError(
            f"--response: the blocks hold {len(kinds)} columns, and the table has {len(names)}:"
            f" {listed(names)}"
        )
    return dict(zip(names, kinds, strict=True))


def _in_order(column: pd.Series, orders: list[list[str]]) -> pd.Series:
    """A column of texts as categories in the order that knows all of them."""
    import pandas as pd

    held = {str(value) for value in column.dropna().unique()}
    for order in orders:
        if held <= set(order):
            return pd.Series(
                pd.Categorical(column, [name for name in order if name in held], ordered=True),
                column.index,
            )
    words = (
        f"--order: column {column.name!r} holds {listed(sorted(held))}, whose order is not known"
    )
    raise ValueError(
        f"{words}: give them from the lowest to the highest, as in --order"
        " never,rarely,often,always"
    )


def asked_of(text: str, others: Collection[str] = ()) -> dict[str, str]:
    """Families by column, NAME=FAMILY,NAME=FAMILY; ``others`` are families that the command knows
    beside the usual ones.
    """
    out: dict[str, str] = {}
    for part in names_of(text, "--response"):
        name, _, family = part.rpartition("=")
        if not name:
            raise ValueError(f"--response: {part!r} should read COLUMN=FAMILY")
        if family not in (*FAMILIES, *others):
            raise ValueError(
                f"--response: column {name!r}: one of {', '.join((*FAMILIES, *others))} was"
                f" expected, got {family!r}"
            )
        if name in out:
            raise ValueError(f"--response: column {name!r} is named twice")
        out[name] = family
    return out


def doubts_of(frame: pd.DataFrame) -> list[str]:
    """What a stranger to the table would ask."""
    import numpy as np

    columns = {
        name: frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in frame.columns
        if not holds_texts(frame[name]) and len(frame) > 2
    }
    return _counting([name for name, values in columns.items() if (np.diff(values) == 1).all()])


def _counting(names: Sequence[str]) -> list[str]:
    return [
        f"column {name!r} counts the rows; it says nothing of groups, and --columns leaves it out"
        for name in names
    ]

"""``ppl-models fit attributes``: cognitive diagnosis, items that ask for binary attributes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    RESPONSES,
    BlockRows,
    CheckpointFile,
    Columns,
    CovariateColumns,
    CovariatesMissing,
    Engine,
    Gaps,
    NoProgress,
    Out,
    Overwrite,
    Restarts,
    Seed,
    Verbose,
    blocks_of,
    check_out,
    deliver,
    engine_in_memory,
    fit_app,
    item_columns,
    joined,
    names_of,
    one_line_errors,
    read_covariates,
    read_csv,
    read_frame,
    response_of,
    run,
    say_blocks,
    with_covariates,
)
from inference.cli.fit_mixture import CATEGORIES, ORDERED, Orders, items_of_layers

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.descriptions.attribute_law import AttributeLaw
    from ppl_models.descriptions.covariates import Covariates
    from ppl_models.parts.responses import ResponseFamily


ROOTS = "saturated, independent, higher-order, hierarchy:A>B,B>C, dag:A>C,B>C"
MOST_NAMED = 4
MOST_GROUPS = 50


@fit_app.command("attributes")
def fit_attributes(
    data: Annotated[
        str,
        typer.Argument(
            help=(
                "Table with one row a person and one column an item: csv, tsv, parquet, arrow, npy,"
                " npz (file.npz:array), or a folder of parquet files."
            )
        ),
    ],
    out: Out,
    q: Annotated[
        str | None,
        typer.Option(
            "--q",
            metavar="FILE",
            help=(
                "Q-matrix, 0/1, a row an item and a column an attribute; the head names the"
                " attributes, a first column of texts the items."
            ),
        ),
    ] = None,
    attributes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Find the Q-matrix of so many attributes, where none is known (additive items).",
        ),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(
            help=(
                "Rule of the items: dina, dino, additive, acdm, rrum, saturated; or blocks:"
                " dina:10,saturated:5. Saturated where it is left "
                "out, additive with --attributes."
            )
        ),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            help=(
                f"Law of the attributes: {ROOTS}. Saturated where it is left out, independent with"
                " --covariates."
            ),
            show_default=False,
        ),
    ] = None,
    response: Annotated[
        str,
        typer.Option(
            help=(
                f"Family of the items: {', '.join((*RESPONSES, *ORDERED, CATEGORIES))}; or blocks,"
                " bernoulli:20,lognormal:20; or column by column, q1=ordinal,q2=bernoulli. "
                "ordinal is the graded response model, partial-credit has adjacent categories."
            )
        ),
    ] = "bernoulli",
    order: Orders = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups",
            metavar="COLUMN",
            help=(
                "Column of the table that says to which group a row belongs; each group has a law"
                " of the attributes of its own. Needs --q."
            ),
        ),
    ] = None,
    free: Annotated[
        str | None,
        typer.Option(
            "--free",
            metavar="ITEM,ITEM,...",
            help="Items that have parameters of their own in each group; needs --groups.",
        ),
    ] = None,
    monotone: Annotated[
        bool,
        typer.Option(
            "--monotone", help="No attribute may lower what is expected of an item; needs --q."
        ),
    ] = False,
    columns: Columns = None,
    covariates: CovariateColumns = None,
    covariates_missing: CovariatesMissing = Gaps.refuse,
    restarts: Restarts = None,
    seed: Seed = 0,
    engine: Annotated[
        Engine,
        typer.Option(
            help=(
                "Exact EM, stochastic EM for many attributes; or posterior draws: laplace, svi,"
                " nuts."
            )
        ),
    ] = Engine.auto,
    checkpoint: CheckpointFile = None,
    block_rows: BlockRows = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit a model of latent attributes (cognitive diagnosis) to answers and a Q-matrix, and write
    fit, ArviZ file, report and summary.
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from inference.cli.blocks.fitted import goes_in_blocks
        from inference.cli.blocks.looked import look_through
        from inference.cli.blocks.opened import open_blocks
        from inference.structures.layers.choose_penalty import is_open

        check_out(out, overwrite, checkpoint)
        if groups is not None and q is None:
            raise ValueError(
                "--groups needs --q FILE: without a Q-matrix the attributes of two groups have no"
                " common names"
            )
        if free is not None and groups is None:
            raise ValueError(
                "--free names items that differ between groups, and needs --groups COLUMN"
            )
        if groups is not None and covariates is not None:
            raise ValueError(
                "--covariates and --groups were expected one at a time: each group has a law of the"
                " attributes of its own, which depends on nothing else"
            )
        law = _root(root or ("saturated" if covariates is None else "independent"))
        why = (
            "--groups reads labels of rows in memory"
            if groups is not None
            else (
                "--covariates reads rows in memory"
                if covariates is not None
                else engine_in_memory(engine)
            )
        )
        blocks = open_blocks(
            data, None if columns is None else names_of(columns, "--columns"), block_rows, why
        )
        if blocks is not None:
            seen, family = items_of_layers(
                data, columns, response, order, look_through(blocks, seed).frame
            )
            model = _model(seen, q, attributes, items, law, family, monotone, None)
            if goes_in_blocks(model, seen, block_rows):
                say_blocks(blocks, "the Q-matrix" if is_open(model) else "")
                deliver(
                    run(model, blocks, "spectral", restarts, seed, checkpoint, not no_progress),
                    blocks,
                    out,
                    None,
                )
                return
        if groups is None:
            given = read_covariates(data, covariates)
            answers, family = items_of_layers(
                data, item_columns(data, columns, given), response, order
            )
            answers, given = with_covariates(answers, given, covariates_missing)
            frame, known = joined(answers, given)
            model = _model(answers, q, attributes, items, law, family, monotone, known)
        else:
            frame = _with_labels(data, groups, columns)
            answers = frame.drop(columns=groups)
            model = _of_groups(
                _model(answers, q, attributes, items, law, response_of(response), monotone, None),
                frame,
                groups,
                free,
            )
        result = run(model, frame, "spectral", restarts, seed, checkpoint, not no_progress, engine)
        deliver(result, frame, out, None)


def _model(
    frame: pd.DataFrame,
    q: str | None,
    attributes: int | None,
    items: str | None,
    root: AttributeLaw,
    family: ResponseFamily,
    monotone: bool,
    covariates: Covariates | None,
) -> Any:
    from ppl_models.latent_attributes import LatentAttributeModel

    if (q is None) == (attributes is None):
        raise ValueError(
            "--q FILE (a Q-matrix) or --attributes K (to find one) was expected, one of the two"
        )
    num_items = frame.shape[1]
    if q is not None:
        rules = _rules(items or "saturated", num_items)
        return LatentAttributeModel(
            _q_matrix(q, frame), family, rules, root, monotone=monotone, covariates=covariates
        )
    return LatentAttributeModel(
        None,
        family,
        _rules(items or "additive", num_items),
        root,
        num_attributes=attributes,
        num_items=num_items,
        monotone=monotone,
        covariates=covariates,
    )


def _with_labels(file: str, column: str, columns: str | None) -> pd.DataFrame:
    """The table of a file in which one column holds labels, texts in a csv or tsv file and numbers
    in others; that column stands last.
    """
    from ppl_models.datasets.files import MISSING, SEPARATORS

    separator = SEPARATORS.get(Path(file).suffix.lower())
    every = read_frame(file) if separator is None else read_csv(Path(file), str, separator)
    names = [str(name).strip() for name in every.columns]
    if column not in names:
        shown = ", ".join(map(repr, names[:MOST_NAMED])) + (
            f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        )
        raise ValueError(f"--groups: {file} has no column {column!r}; its columns are {shown}")
    labels = every.iloc[:, names.index(column)].tolist()
    texts = [label.strip() if isinstance(label, str) else f"{label:g}" for label in labels]
    answers = read_frame(file, columns or [name for name in names if name != column])
    return answers.assign(**{column: [None if text in MISSING else text for text in texts]})


def _of_groups(model: Any, frame: pd.DataFrame, column: str, free: str | None) -> Any:
    """The model of several groups: those that the column names, in the order of their names."""
    from ppl_models.attribute_groups import AttributeGroups

    labels = sorted({label for label in frame[column] if label is not None})
    if not 2 <= len(labels) <= MOST_GROUPS:
        shown = ", ".join(map(repr, labels[:MOST_NAMED])) + (
            ", ..." if len(labels) > MOST_NAMED else ""
        )
        raise ValueError(
            f"--groups: from 2 to {MOST_GROUPS} groups were expected in column {column!r}, got"
            f" {len(labels)}: {shown}"
        )
    return AttributeGroups(
        model, tuple(labels), () if free is None else tuple(names_of(free, "--free")), column
    )


def _q_matrix(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The Q-matrix of a file, its rows in the order of the columns of the answers."""
    import pandas as pd

    from ppl_models.datasets import read_table

    table = read_table(file, row_names=True)
    columns = [str(name) for name in frame.columns]
    (num_rows, num_attributes), expected = table.values.shape, len(columns)
    if table.row_names is not None:
        for here, there, what in (
            (table.row_names, columns, "columns of the answers"),
            (columns, table.row_names, f"rows of {file}"),
        ):
            absent = [name for name in here if name not in there]
            if absent:
                shown = ", ".join(map(repr, absent[:MOST_NAMED])) + (
                    f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
                )
                raise ValueError(
                    f"--q: items {shown} are not among the {what}; give items the same names in"
                    " both files"
                )
    elif num_rows != expected:
        turned = (
            "; it seems to lie on its side: rows are items, columns attributes"
            if num_attributes == expected
            else ""
        )
        raise ValueError(
            f"--q: {file} has {num_rows} rows, and the answers have {expected} items; one row an"
            f" item was expected{turned}"
        )
    matrix = pd.DataFrame(
        table.values, index=list(table.row_names or columns), columns=list(table.names)
    )
    return matrix.loc[columns]


def _rules(text: str, num_items: int) -> str | list[str]:
    blocks = blocks_of(text, "--items")
    if blocks[0][1] is None:
        return text
    rules = [name for name, count in blocks for _ in range(count or 0)]
    if len(rules) != num_items:
        raise ValueError(
            f"--items: the blocks of {text!r} hold {len(rules)} items, and the answers have"
            f" {num_items}"
        )
    return rules


def _root(text: str) -> AttributeLaw:
    import ppl_models

    plain: dict[str, AttributeLaw] = {
        "saturated": ppl_models.Saturated(),
        "independent": ppl_models.Independent(),
        "higher-order": ppl_models.HigherOrder(),
    }
    if text in plain:
        return plain[text]
    kind, _, listed = text.partition(":")
    pairs = tuple(
        tuple(part.strip() for part in pair.split(">"))
        for pair in listed.split(",")
        if pair.strip()
    )
    if (
        kind not in ("hierarchy", "dag")
        or not pairs
        or any(len(pair) != 2 or not all(pair) for pair in pairs)
    ):
        raise ValueError(
            f"--root: one of {ROOTS} was expected (A, B, C are attributes), got {text!r}"
        )
    return ppl_models.Hierarchy(pairs) if kind == "hierarchy" else ppl_models.Dag(pairs)  # type: ignore[arg-type]

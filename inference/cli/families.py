"""``ppl-models fit``: the families of models, their options, and how their tables are read.

A family is one function of a call under ``@command(fit_app, name, options, ...)``; those of rows
go through :func:`_fit_rows`, which reads large files in blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inference.base.streaming.column_scan import scan_columns
from inference.cli.app import (
    ROWS,
    Call,
    command,
    deliver,
    fit_app,
    run,
    warn,
    warned,
    write_csv,
    write_rows,
)
from inference.cli.reading import (
    blocks_of,
    categories_said,
    columns_of,
    family_said,
    item_columns,
    joined,
    names_of,
    range_of,
    read_counts,
    read_covariates,
    read_frame,
    read_items,
    read_mixed,
    settled,
    shape_of,
    sizes_of,
    whole_times,
    with_covariates,
)
from inference.cli.streaming import (
    engine_in_memory,
    goes_in_blocks,
    open_source,
    say_blocks,
)
from ppl_models.data.frames import holds_texts
from ppl_models.data.items import counting_columns, refuse_few_rows, refuse_texts
from ppl_models.data.sequences import places_in
from ppl_models.parts.repr import listed

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.fitting.result import Fit
    from ppl_models.descriptions.attribute_distribution import AttributeDistribution

# of rows whose items hang on layers of latents
ROOTS = "saturated, independent, higher-order, hierarchy:A>B,B>C, dag:A>C,B>C"
MOST_NAMED, MOST_GROUPS = 4, 50
COUNTS = "counts the rows; it says nothing of groups, and --columns leaves it out"

# ---------------------------------------------------------------- rows


def _fit_rows(
    call: Call,
    read: Callable[[list[str] | None, pd.DataFrame | None], tuple[pd.DataFrame, Any]],
    build: Callable[[pd.DataFrame, Any, Any], Any],
    init: str | None = None,
    why: str = "",
    chosen: str = "",
    shape: tuple[int, int] | None = None,
    fit_rows: Callable[[Any, Any, Call, Any], Fit] = run,
) -> None:
    """Read a table, in blocks if it is large, fit a model to it, and write the results.

    Args:
        call: the command line.
        read: of columns of the file, or of rows that stand for those of a file in blocks, the
            items, and their distribution or a function of the items that gives it.
        build: the model, of items, distribution and covariates.
        init: where the fit starts.
        why: why the rows are wanted in memory; "" where they are not.
        chosen: what is chosen on a sample of rows in blocks, where the model leaves that open.
        shape: of an image.
        fit_rows: the fit of rows in memory.
    """
    from inference.structures.layers.choose_penalty import is_open

    by_rows = call.covariates is not None and not why
    why = "--covariates reads rows in memory" if by_rows else why
    blocks = open_source(call.data, call.columns, call.block_rows, why or _in_memory(call))
    if blocks is not None:
        scan = scan_columns(blocks, call.seed)
        seen, distribution = read(None, scan.frame)
        model = build(seen, settled(distribution, seen), None)
        if goes_in_blocks(model, seen, call.block_rows):
            for name in scan.counting if callable(distribution) else ():
                warn(f"column {name!r} {COUNTS}")
            say_blocks(blocks, chosen if is_open(model) else "")
            deliver(run(model, blocks, call, init), blocks, call, shape)
            return
    given = read_covariates(call)
    frame, distribution = read(item_columns(call, given), None)
    frame, given = with_covariates(frame, given, call.covariates_missing)
    turned = "leave --transpose out" if call.transpose else "say --transpose"
    if refuse_few_rows(frame, vars(call).get("components") or 1, turned, call.data):
        warn(
            f"the table has {len(frame):,} rows and {frame.shape[1]:,} columns: where its rows are"
            f" the columns of the file, {turned}"
        )
    component = settled(distribution, frame)
    for name in counting_columns(frame) if callable(distribution) else ():
        warn(f"column {name!r} {COUNTS}")
    rows, covariates = joined(frame, given)
    result = fit_rows(build(frame, component, covariates), rows, call, init)
    deliver(result, rows, call, shape)


@command(fit_app, "mixture")
def fit_mixture(call: Call) -> None:
    """Fit a mixture."""
    from ppl_models.mixture import Mixture

    if (call.components is None) == (call.choose is None):
        raise ValueError(
            "--components K (a number of groups) or --choose FIRST..LAST (numbers to compare)"
            " was expected, one of the two"
        )
    if call.checkpoint is not None and call.choose is not None:
        raise ValueError(
            "--checkpoint: one fit is kept in it, and --choose makes several; give --components"
            " with it"
        )
    if call.labels is not None and call.choose is not None:
        raise ValueError("--labels name the groups, whose number --components says, not --choose")
    for option, given in (("--fixed", call.fixed), ("--tied", call.tied)):
        if given is not None and call.choose is not None:
            raise ValueError(
                f"{option} is of one number of groups: give --components, not --choose"
            )
    sizes = None if call.choose is None else range_of(call.choose, "--choose")

    def build(frame: pd.DataFrame, component: Any, covariates: Any) -> Mixture:
        return Mixture(call.components or 1, component, frame.shape[1], covariates=covariates)

    def fit_rows(model: Mixture, rows: Any, call: Call, init: Any) -> Fit:
        if sizes is None:
            return run(model, rows, call, init)
        from inference.selection.dimension import select_dimension

        with warned():
            call.choice = select_dimension(
                lambda size: dataclasses.replace(model, num_components=size),
                rows,
                sizes,
                "bic",
                num_restarts=call.restarts,
                seed=call.seed,
                progress=not call.no_progress,
            )
        return call.choice.best

    why = "--choose compares fits of rows in memory; give --components" if sizes else ""
    if call.covariates is not None:
        why = ""
    _fit_rows(call, partial(read_items, call), build, why=why, fit_rows=fit_rows)
    if sizes is not None:
        choice = call.choice
        typer.echo(choice.table[["bic", "aic", "chosen"]].round(2).to_string())
        typer.echo(
            f"{choice.chosen} groups have the smallest BIC of {sizes[0]} to {sizes[-1]}; all"
            f" figures are in {call.out / 'sizes.csv'}"
        )
        if choice.chosen == sizes[-1] and len(sizes) > 1:
            warn(
                f"the largest number compared was chosen; try --choose {sizes[0]}..{2 * sizes[-1]}"
            )


def _in_memory(call: Call) -> str:
    """Why rows that are named, or columns of the file, are wanted in memory; "" if they are not."""
    told = getattr(call, "labels", None)
    options = {
        "--transpose": call.transpose,
        "--long": call.long,
        "--id": call.id,
        "--labels": told,
        "--fixed": getattr(call, "fixed", None),
        "--tied": getattr(call, "tied", None),
    }
    option = next((name for name, given in options.items() if given), "")
    return option and f"{option} reads rows in memory"


def _numbers(call: Call, why: str = "") -> tuple[pd.DataFrame, RowBlocks | None]:
    """A table of numbers, or a sample of one that is read in blocks, and these."""
    blocks = open_source(call.data, call.columns, call.block_rows, why or _in_memory(call))
    if blocks is None:
        frame = read_counts(call)
    else:
        frame = blocks.sample(seed=call.seed)
    refuse_texts(frame)
    return frame, blocks


@command(fit_app, "pmf")
def fit_pmf(call: Call) -> None:
    """Fit a matrix factorization."""
    from ppl_models.matrix_factorization import (
        GaussianFactorization,
        NegativeBinomialFactorization,
        PoissonFactorization,
    )
    from ppl_models.unmixing import Unmixing
    from ppl_models.usage_factorization import UsageFactorization

    if call.law is not None:
        warn("--law is deprecated: write --distribution; the next version has that name alone")
        call.distribution = call.law
    if call.usage and call.distribution != "poisson":
        raise ValueError(
            "--usage: signatures may be absent from Poisson counts only, and --distribution"
            f" {call.distribution} was asked for; leave one of them out"
        )
    seen, blocks = _numbers(call, "--usage wants its rows in memory" if call.usage else "")
    sizes = (seen.shape[1], call.components)
    reference = read_reference(call, list(map(str, seen.columns)))
    if call.usage:
        model: Any = UsageFactorization(*sizes)
    elif call.distribution == "poisson":
        model = PoissonFactorization(*sizes)
    elif call.distribution.startswith("nb-"):
        model = NegativeBinomialFactorization(
            *sizes, variance=call.distribution.removeprefix("nb-")
        )
    elif call.distribution.startswith("mixed"):
        is_correlated = call.distribution == "mixed-correlated"
        model = Unmixing(*sizes, "correlated" if is_correlated else "independent")
    else:
        model = GaussianFactorization(*sizes, nonnegative=call.distribution == "normal-nonnegative")
    if blocks is not None:
        say_blocks(blocks)
    rows = seen if blocks is None else blocks
    result = run(model, rows, call)
    deliver(result, rows, call, more=signature_files(result, rows, reference), reference=reference)


def read_reference(call: Call, columns: list[str]) -> pd.DataFrame | None:
    """Reference signatures of a file: mutation types (columns of the data) by signatures."""
    if call.reference is None:
        return None
    import pandas as pd

    from ppl_models.datasets import read_table

    found = read_table(call.reference, row_names=True)
    table = pd.DataFrame(found.values, list(found.row_names or ()) or None, list(found.names))
    table.index = table.index.map(str)
    absent = [name for name in columns if name not in table.index]
    if absent or len(table) != len(columns):
        raise ValueError(
            f"--reference: {call.reference}: one row for each of the {len(columns)} columns of the"
            f" data was expected, under the same names, got {len(table)} rows"
            + (f", and none for {absent[0]!r}" if absent else "")
        )
    return table


def signature_files(
    result: Fit, rows: Any, reference: pd.DataFrame | None
) -> dict[str, Callable[[Path], str]]:
    """Files of a factorization: of rows, signatures (or endmembers), activities and matches."""
    from inference.inspection.signatures import match_signatures

    site = "endmembers" if "endmembers" in result.frames else "signatures"

    def signatures(path: Path) -> str:
        table = result.frames[site].T.add_prefix("component_")
        write_csv(table, path, index_label="column")
        return f"one line a column of the data, with its entry in each of the {site}"

    def activities(path: Path) -> str:
        import pandas as pd

        amounts = (result.local or {})["activities"].detach().cpu().double().numpy()
        names = [f"component_{k}" for k in range(amounts.shape[1])]
        index = getattr(rows, "index", None)
        table = pd.DataFrame(amounts, columns=names, index=index)
        write_csv(table, path, index_label=table.index.name or "row")
        return "one line a row, with its amount of each component"

    def matches(path: Path) -> str:
        assert reference is not None
        write_csv(match_signatures(result, reference), path, index_label="component")
        return "one line a component, with the signatures of the reference most like it"

    files: dict[str, Callable[[Path], str]] = {
        ROWS: partial(write_rows, result, rows),
        f"{site}.csv": signatures,
    }
    amounts = (result.local or {}).get("activities")
    if amounts is not None and len(amounts) == result.num_rows:
        files["activities.csv"] = activities
    return files if reference is None else {**files, "matches.csv": matches}


# ---------------------------------------------------------------- layers of latents


@command(fit_app, "attributes")
def fit_attributes(call: Call) -> None:
    """Fit a model of latent attributes."""
    if call.groups is not None and call.q is None:
        raise ValueError(
            "--groups needs --q FILE: without a Q-matrix the attributes of two groups have no"
            " common names"
        )
    if call.free is not None and call.groups is None:
        raise ValueError("--free names items that differ between groups, and needs --groups COLUMN")
    if call.groups is not None and call.covariates is not None:
        raise ValueError(
            "--covariates and --groups were expected one at a time: each group has a"
            " distribution of the"
            " attributes of its own, which depends on nothing else"
        )
    root = root_of(call.root or ("saturated" if call.covariates is None else "independent"))

    def read(columns: list[str] | None, seen: pd.DataFrame | None) -> tuple[pd.DataFrame, Any]:
        if call.groups is not None:
            frame = _with_labels(call)
            return frame, family_said(call, frame.drop(columns=call.groups))[1]
        return read_items(call, columns, seen)

    def build(frame: pd.DataFrame, family: Any, covariates: Any) -> Any:
        answers = frame if call.groups is None else frame.drop(columns=call.groups)
        model = _attribute_model(call, answers, root, family, covariates)
        return model if call.groups is None else _of_groups(model, frame, call.groups, call.free)

    why = "" if call.groups is None else "--groups reads labels of rows in memory"
    if call.groups is None and call.covariates is None:
        why = engine_in_memory(call.engine)
    _fit_rows(call, read, build, "spectral", why, "the Q-matrix")


def _attribute_model(
    call: Call, frame: pd.DataFrame, root: AttributeDistribution, family: Any, covariates: Any
) -> Any:
    from ppl_models.latent_attributes import LatentAttributeModel

    if (call.q is None) == (call.attributes is None):
        raise ValueError(
            "--q FILE (a Q-matrix) or --attributes K (to find one) was expected, one of the two"
        )
    settings: dict[str, Any] = {"monotone": call.monotone, "covariates": covariates}
    if call.q is None:
        settings |= {"num_attributes": call.attributes, "num_items": frame.shape[1]}
    matrix = None if call.q is None else _q_matrix(call.q, frame)
    rules = rules_of(call.items or ("additive" if call.q is None else "saturated"), frame.shape[1])
    return LatentAttributeModel(matrix, family, rules, root, **settings)


def _with_labels(call: Call) -> pd.DataFrame:
    """Table of numbers beside one column of labels, texts whatever it holds, which stands last."""
    names, column = columns_of(call), call.groups
    if column not in names:
        shown = listed(list(map(repr, names)), MOST_NAMED)
        raise ValueError(f"--groups: {call.data} has no column {column!r}; its columns are {shown}")
    answers = read_frame(call, [name for name in call.columns or names if name != column])
    labels = read_mixed(call, [column], [column])[column]
    if labels.dtype.kind == "f":  # of an array, which has no texts
        labels = labels.map("{:.15g}".format, na_action="ignore")
    return answers.assign(**{column: labels})


def _of_groups(model: Any, frame: pd.DataFrame, column: str, free: str | None) -> Any:
    """Model of the groups that a column names, in the order of their names."""
    from ppl_models.attribute_groups import AttributeGroups

    labels = sorted(set(frame[column].dropna()))
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
    """Q-matrix of a file, its rows in the order of the columns of the answers."""
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
                shown = listed(list(map(repr, absent)), MOST_NAMED)
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


def rules_of(text: str, num_items: int) -> str | list[str]:
    """Rule of all items, or of each."""
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


def root_of(text: str) -> AttributeDistribution:
    """Distribution of the attributes that ``--root`` names."""
    import ppl_models

    plain: dict[str, AttributeDistribution] = {
        "saturated": ppl_models.Saturated(),
        "independent": ppl_models.Independent(),
        "higher-order": ppl_models.HigherOrder(),
    }
    if text in plain:
        return plain[text]
    kind, _, edges = text.partition(":")
    pairs = tuple(
        tuple(part.strip() for part in pair.split(">")) for pair in edges.split(",") if pair.strip()
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


@command(fit_app, "dde")
def fit_dde(call: Call) -> None:
    """Fit a deep discrete encoder."""
    from ppl_models.datasets import read_table
    from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
    from ppl_models.parts.measurement import Additive, ExpDINA, ExpGDM

    sizes, shape = sizes_of(call.latents, "--latents"), shape_of(call.image_shape)
    graphs: Any = None
    if call.graph is not None:
        graphs = (read_table(call.graph).values, *[None] * (len(sizes) - 1))
    bottoms: dict[str, Any] = {"additive": Additive, "dina": ExpDINA, "gdm": ExpGDM}

    def build(frame: pd.DataFrame, family: Any, covariates: Any) -> DeepDiscreteEncoder:
        shape_of(call.image_shape, frame.shape[1])
        return DeepDiscreteEncoder(
            num_items=frame.shape[1],
            latent_sizes=sizes,
            response=family,
            penalty=penalty_of(call.penalty),
            graphs=graphs,
            covariates=covariates,
            bottom=bottoms[call.bottom](),
        )

    def fit_rows(model: Any, rows: Any, call: Call, init: Any) -> Fit:
        if not (
            call.penalty == "auto"
            and call.graph is None
            and call.engine in ("laplace", "svi", "nuts")
        ):
            return run(model, rows, call, init)
        beside = call.checkpoint and call.checkpoint.with_name(f"{call.checkpoint.name}.graph")
        first = Call(**vars(call) | {"checkpoint": beside, "engine": "auto"})
        chosen = run(model, rows, first, init)  # posteriors on its graph
        result = run(chosen.model, rows, call, chosen)
        return dataclasses.replace(result, choice=chosen.choice)

    why = "" if call.covariates is not None else engine_in_memory(call.engine)
    _fit_rows(call, partial(read_items, call), build, call.init, why, "its graph", shape, fit_rows)


def penalty_of(text: str) -> Any:
    """Penalty that ``--penalty`` names."""
    from ppl_models.parts.penalties import ToBeChosen, TruncatedLasso

    if text in ("none", "auto"):
        return None if text == "none" else ToBeChosen()
    try:
        slope, threshold = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--penalty: auto, none or SLOPE,THRESHOLD was expected, got {text!r}"
        ) from None
    return TruncatedLasso(slope, threshold)


@command(fit_app, "noisy-or")
def fit_noisy_or(call: Call) -> None:
    """Fit a noisy-OR network."""
    from inference import fit
    from inference.inspection.noisy_or import trim
    from inference.programs.global_state import quiet
    from ppl_models.noisy_or import NoisyOr

    shape = shape_of(call.image_shape)
    frame, blocks = _numbers(call)
    shape_of(call.image_shape, frame.shape[1])
    model = NoisyOr(frame.shape[1], call.latents)
    if blocks is not None:
        goes_in_blocks(model, frame, call.block_rows)
        say_blocks(blocks, "the number of latents")
    with quiet():  # kept by the fit, and said below in one line each
        result = fit(
            model,
            frame,
            num_restarts=call.restarts,
            seed=call.seed,
            progress=not call.no_progress,
        )
        warnings = result.warnings
        if not call.keep_empty:
            result = trim(result)
    for text in dict.fromkeys((*warnings, *result.warnings)):
        warn(text)
    if blocks is not None:
        result = run(result.model, blocks, call, first=result)
    deliver(result, frame if blocks is None else blocks, call, shape)


# ---------------------------------------------------------------- sequences


@command(fit_app, "hmm")
def fit_hmm(call: Call) -> None:
    """Fit a hidden Markov model."""
    from ppl_models.hidden_markov import HiddenMarkov

    frame, items, places = read_sequences(call)
    component = settled(family_said(call, items)[1], items)
    model = HiddenMarkov(call.states, component, items.shape[1], call.initial)
    read_as = {"columns": {place: column for column, place in places.items()}}
    deliver(run(model, frame, call), frame, call, None, read_as)


def read_sequences(call: Call) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str]]:
    """Read a table with a row a step.

    Returns:
        The table with its columns of places named ``sequence`` and ``time``, the items alone, and
        the places by the names of their columns in the file.

    Raises:
        ValueError: for columns that the table lacks, or names twice.
    """
    columns = call.columns
    places = {
        column: place
        for column, place in ((call.sequence, "sequence"), (call.time, "time"))
        if column is not None
    }
    if len(places) < (call.sequence is not None) + (call.time is not None):
        raise ValueError(
            f"--sequence and --time: two columns were expected, got {call.sequence!r} for both"
        )
    chosen = (
        None if columns is None else [*places, *(name for name in columns if name not in places)]
    )
    texts = categories_said(call) + ([] if call.sequence is None else [call.sequence])
    frame = read_mixed(call, chosen, texts)
    for column in places:
        if column not in frame.columns:
            raise ValueError(
                f"--{places[column]}: {column!r} is no column of the table; the columns are"
                f" {', '.join(map(str, frame.columns[:6]))}"
            )
    clash = [name for name in places.values() if name in frame.columns and name not in places]
    if clash:
        raise ValueError(
            f"column {clash[0]!r} would be taken for the place of a row; name it with --{clash[0]},"
            " or leave it out with --columns"
        )
    if columns is None:
        found = places_in(frame.rename(columns=places))
        told = [
            f"{place} by {name!r}"
            for place, name in found.items()
            if place not in places.values() and place != name
        ]
        if told:
            typer.echo(
                f"Where rows belong is read off the table: {listed(told)} (--sequence and --time"
                " say otherwise)."
            )
        places |= {n: place for place, n in found.items() if place not in places.values()}
    items = frame.drop(columns=list(places))
    if not items.shape[1]:
        raise ValueError("at least one column beside --sequence and --time was expected")
    return whole_times(frame.rename(columns=places)), items, places


@command(fit_app, "options-hmm")
def fit_options(call: Call) -> None:
    """Fit an options hidden Markov model."""
    from ppl_models.continuous_options import ContinuousOptionsHMM
    from ppl_models.parts.policies import Network, SoftmaxLinear

    features = [] if call.features is None else _features(call)
    places = step_places(call) | ({} if features else {"state": call.state})
    frame, codes = read_steps(call.data, places, features)
    if features:
        policy = SoftmaxLinear() if call.network is None else Network(call.network)
        num_actions = call.actions or max(2, _largest(frame, "action") + 1)
        model: Any = ContinuousOptionsHMM(len(features), num_actions, call.options, policy)
    elif call.network is not None:
        raise ValueError(
            "--network: policies see a continuous state through it; give its columns with"
            " --features"
        )
    else:
        settings = {"stickiness": call.stickiness, "termination": call.termination}
        model = tabular_model(call, frame, call.options, **settings)
    packed = model.check_data(frame, for_fit=False)[0]
    result = run(model, frame, call, "random" if call.random else "spectral")
    read_as = {"columns": places, "codes": codes}
    deliver(
        result,
        packed,
        call,
        read_as=read_as,
        more={"options.csv": partial(write_options, result, frame, packed, codes)},
    )


def tabular_model(call: Call, frame: pd.DataFrame, num_options: int, **settings: Any) -> Any:
    """Options HMM of states and actions that are numbers."""
    from ppl_models.options_hmm import OptionsHMM

    num_states = call.states or _largest(frame, "state") + 1
    num_actions = call.actions or _largest(frame, "action") + 1
    return OptionsHMM(num_states, num_actions, num_options, **settings)


def step_places(call: Call) -> dict[str, str]:
    """Columns of sequence, time and action; that there is none of the time is said."""
    places = {"sequence": call.sequence, "time": call.time or "time", "action": call.action}
    if call.time is None and "time" not in columns_of(call):
        del places["time"]
        typer.echo(
            "The steps of a sequence follow each other as they stand in the file; --time names a"
            " column that counts them."
        )
    return places


def read_steps(
    data: str, places: dict[str, str], features: list[str]
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """Read steps under the names of the models, and the codes of texts among them."""
    import numpy as np

    from ppl_models.data.sequences import with_places

    numbered: dict[str, dict[str, int]] = {}
    if len(set(places.values())) < len(places):
        raise ValueError(
            f"{', '.join(f'--{place}' for place in places)}: different columns were expected, got"
            f" {', '.join(places.values())}"
        )
    names, wanted = (
        columns_of(data),
        {name: f"--{place}" for place, name in places.items()}
        | dict.fromkeys(features, "--features"),
    )
    for name, place in wanted.items():
        if name not in names:
            shown = f"{', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
            raise ValueError(
                f"{data}: no column is named {name!r}; {place} says which column is meant; the"
                f" columns are {shown}"
            )
    own_names = {name: place for place, name in places.items()}
    read = read_mixed(data, list(wanted), [places["sequence"]]).rename(columns=own_names)
    frame = with_places(whole_times(read))
    for place in ("state", "action"):
        if place in frame and holds_texts(frame[place]):
            codes = numbered[place] = {
                name: code for code, name in enumerate(sorted(set(frame[place].dropna())))
            }
            frame[place] = [float(codes.get(name, np.nan)) for name in frame[place]]
            shown = ", ".join(f"{name} is {code}" for name, code in list(codes.items())[:20])
            typer.echo(f"The {place}s are numbered: {shown}{', ...' if len(codes) > 20 else ''}.")
    return frame, numbered


def _features(call: Call) -> list[str]:
    """Columns of the state; options for a state that is a number are refused."""
    names = [name.strip() for name in call.features.split(",")]
    others = {call.sequence, call.time or "time", call.action}
    if not all(names) or len(set(names)) < len(names) or others & set(names):
        raise ValueError(
            "--features: names of different columns of the state, as x,y, were expected, got"
            f" {call.features!r}"
        )
    for name, is_given in (
        ("--states", call.states is not None),
        ("--stickiness", call.stickiness > 0),
        ("--termination", call.termination),
    ):
        if is_given:
            raise ValueError(
                f"{name} is for a state that is one whole number; leave it out, or --features"
            )
    return names


def _largest(frame: pd.DataFrame, column: str) -> int:
    import pandas as pd

    values = pd.to_numeric(frame[column], errors="coerce")
    if not values.notna().any() or values.max() < 0:
        raise ValueError(
            f"data: column {column!r}: whole numbers from 0 on were expected, got none"
        )
    return int(values.max())


def write_options(
    fit: Fit, frame: pd.DataFrame, packed: Tensor, codes: dict[str, dict[str, int]], path: Path
) -> str:
    """Write the steps in order of time, with options: the best path and the posterior.

    Returns:
        What the file holds, in words.
    """
    import numpy as np

    inside = (
        (packed[..., 0].isnan() if packed.is_floating_point() else packed[..., 0] < 0)
        .logical_not()
        .numpy()
    )
    first = {key: i for i, key in enumerate(dict.fromkeys(frame["sequence"].tolist()))}
    order = np.lexsort((frame["time"].to_numpy(), frame["sequence"].map(first).to_numpy()))
    places = [name for name in ("sequence", "time", "state", "action") if name in frame]
    table = frame[[*places, *(name for name in frame if name not in places)]].iloc[order].copy()
    for place in ("state", "action"):
        if place in table:
            words = {code: name for name, code in codes.get(place, {}).items()}
            table[place] = table[place].map(words) if words else table[place].astype("Int64")
    table["option"] = fit.decode_latents(packed)["options"].numpy()[inside]
    posterior = fit.posterior_latents(packed)["options"].numpy()[inside]
    for number in range(posterior.shape[1]):
        table[f"probability_{number}"] = posterior[:, number].round(6)
    write_csv(table, path)
    return "options of every step"


# ---------------------------------------------------------------- variates


@command(fit_app, "inclass")
def fit_inclass(call: Call) -> None:
    """Fit independent classifier networks."""
    from ppl_models.inclass_net import InClassNet
    from ppl_models.networks.dense import Dense

    frame = read_frame(call, call.columns, can_choose=True)
    names = [str(name) for name in frame.columns]
    groups = tuple((name,) for name in names)
    if call.variates is not None:
        parts = call.variates.split(";")
        groups = tuple(tuple(name.strip() for name in part.split(",")) for part in parts)
    absent = [name for group in groups for name in group if name not in names]
    if absent:
        raise ValueError(
            f"--variates: columns {absent} are not in the table, which has {names[:20]}"
        )
    network = Dense(sizes_of(call.hidden, "--hidden"))
    model = InClassNet(groups, call.components, network, call.shared, call.weights)
    rows = frame[[name for group in groups for name in group]]
    deliver(run(model, rows, call, "spectral"), rows, call)

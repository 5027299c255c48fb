"""The command ``ppl-models fit options-hmm``; everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inference.cli.app import (
    CheckpointFile,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    columns_of,
    deliver,
    fit_app,
    one_line_errors,
    read_mixed,
    run,
    write_csv,
)
from ppl_models.parts.frames import holds_texts

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from inference.fitting.result import Fit
    from ppl_models.continuous_options import ContinuousOptionsHMM
    from ppl_models.options_hmm import OptionsHMM


StepTime = Annotated[
    str | None,
    typer.Option(
        help=(
            "Column that counts the steps of a sequence; if not given, the one called time, and"
            " where there is none the steps follow each other as they stand."
        )
    ),
]


@fit_app.command("options-hmm")
def fit_options(
    data: Table,
    options: Annotated[int, typer.Option(min=1, help="Number of hidden options.")],
    out: Out,
    states: Annotated[
        int | None,
        typer.Option(min=1, help="Number of states; the largest seen plus one if not given."),
    ] = None,
    actions: Annotated[int | None, typer.Option(min=1, help="Number of actions; likewise.")] = None,
    sequence: Annotated[
        str, typer.Option(help="Column that says which sequence a step belongs to.")
    ] = "sequence",
    time: StepTime = None,
    state: Annotated[
        str, typer.Option(help="Column of the state: whole numbers from 0, or names.")
    ] = "state",
    action: Annotated[
        str, typer.Option(help="Column of the action, likewise; an empty one is missing.")
    ] = "action",
    features: Annotated[
        str | None,
        typer.Option(
            metavar="X,Y,...",
            help=(
                "Columns of a continuous state, instead of --state: policies are then functions of"
                " the state."
            ),
        ),
    ] = None,
    network: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --features: units of a hidden layer through which policies see the state.",
        ),
    ] = None,
    stickiness: Annotated[
        float, typer.Option(min=0.0, help="Prior counts of keeping an option, in every state.")
    ] = 0.0,
    termination: Annotated[
        bool,
        typer.Option(
            "--termination",
            help="An option ends with a chance of its own; the next is chosen then.",
        ),
    ] = False,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts", "--starts", min=1, help="Starts run as one batch; the best is reported."
        ),
    ] = 4,
    random: Annotated[
        bool, typer.Option("--random", help="All starts at random, none from moments.")
    ] = False,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Find the sub-tasks (options) behind steps and decisions: an options hidden Markov model, the
    option of every step, and a report.

    For example: ppl-models fit options-hmm walks.csv --options 2 --sequence episode --time step
    --out walks
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        check_out(out, overwrite, checkpoint)
        tabular = {
            "--states": states is not None,
            "--stickiness": stickiness > 0,
            "--termination": termination,
        }
        names = (
            [state]
            if features is None
            else _names(features, tabular, (sequence, time or "time", action))
        )
        places = step_places(data, sequence, time, action) | (
            {"state": state} if features is None else {}
        )
        frame, codes = read_steps(data, places, [] if features is None else names)
        model: OptionsHMM | ContinuousOptionsHMM
        if features is None:
            model = tabular_model(frame, options, states, actions, stickiness, termination, network)
        else:
            model = _continuous(frame, len(names), options, actions, network)
        packed = model.check_data(frame, for_fit=False)[0]
        result = run(
            model,
            frame,
            "random" if random else "spectral",
            restarts,
            seed,
            checkpoint,
            not no_progress,
        )
        deliver(result, packed, out, None, {"columns": places, "codes": codes}, of_rows=False)
        write_options(result, frame, packed, codes, out / "options.csv")
        typer.echo(f"options of every step: {out / 'options.csv'}")


def tabular_model(
    frame: pd.DataFrame,
    options: int,
    states: int | None,
    actions: int | None,
    stickiness: float,
    termination: bool,
    network: int | None,
) -> OptionsHMM:
    from ppl_models.options_hmm import OptionsHMM

    if network is not None:
        raise ValueError(
            "--network: policies see a continuous state through it; give its columns with"
            " --features"
        )
    num_states, num_actions = (
        states or _largest(frame, "state") + 1,
        actions or _largest(frame, "action") + 1,
    )
    return OptionsHMM(
        num_states, num_actions, options, stickiness=stickiness, termination=termination
    )


def _continuous(
    frame: pd.DataFrame, num_features: int, options: int, actions: int | None, network: int | None
) -> ContinuousOptionsHMM:
    from ppl_models.continuous_options import ContinuousOptionsHMM
    from ppl_models.parts.policies import Network, SoftmaxLinear

    policy = SoftmaxLinear() if network is None else Network(network)
    return ContinuousOptionsHMM(
        num_features, actions or max(2, _largest(frame, "action") + 1), options, policy
    )


def step_places(data: str, sequence: str, time: str | None, action: str) -> dict[str, str]:
    """Which column of a file says what of a step; that there is none of the time is said."""
    places = {"sequence": sequence, "time": time or "time", "action": action}
    if time is None and "time" not in columns_of(data):
        del places["time"]
        typer.echo(
            "The steps of a sequence follow each other as they stand in the file; --time names a"
            " column that counts them."
        )
    return places


def read_steps(
    data: str, places: dict[str, str], features: list[str]
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    """The columns of the steps under the names that the models know; states and actions that are
    texts are numbered, which is said, and the numbers.
    """
    import numpy as np

    from ppl_models.sequences.trajectories import with_places

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
    for name, option in wanted.items():
        if name not in names:
            shown = f"{', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
            raise ValueError(
                f"{data}: no column is named {name!r}; {option} says which column is meant; the"
                f" columns are {shown}"
            )
    frame = with_places(
        read_mixed(data, list(wanted), [places["sequence"]]).rename(
            columns={name: place for place, name in places.items()}
        )
    )
    for place in ("state", "action"):
        if place in frame and holds_texts(frame[place]):
            codes = numbered[place] = {
                name: code for code, name in enumerate(sorted(set(frame[place].dropna())))
            }
            frame[place] = [float(codes.get(name, np.nan)) for name in frame[place]]
            shown = ", ".join(f"{name} is {code}" for name, code in list(codes.items())[:20])
            typer.echo(f"The {place}s are numbered: {shown}{', ...' if len(codes) > 20 else ''}.")
    return frame, numbered


def _names(features: str, tabular: dict[str, bool], others: tuple[str, ...]) -> list[str]:
    """The columns of the state; options for a state that is a number are refused."""
    names = [name.strip() for name in features.split(",")]
    if not all(names) or len(set(names)) < len(names) or set(others) & set(names):
        raise ValueError(
            "--features: names of different columns of the state, as x,y, were expected, got"
            f" {features!r}"
        )
    for option, is_given in tabular.items():
        if is_given:
            raise ValueError(
                f"{option} is for a state that is one whole number; leave it out, or --features"
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
) -> None:
    """The data under their own words, with the most probable path of options and the posterior of
    each, one row a step in order of time.
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
    for option in range(posterior.shape[1]):
        table[f"probability_{option}"] = posterior[:, option].round(6)
    write_csv(table, path)

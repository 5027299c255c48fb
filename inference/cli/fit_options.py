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
    Verbose,
    check_out,
    deliver,
    fit_app,
    one_line_errors,
    read_csv,
    run,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from inference.fitting.result import Fit
    from ppl_models.continuous_options import ContinuousOptionsHMM
    from ppl_models.options_hmm import OptionsHMM

__all__ = ["fit_options"]


@fit_app.command("options-hmm")
def fit_options(
    data: Annotated[Path, typer.Argument(help="csv with columns sequence, time, state, action (or, with --features, several of the state), one row a step; an empty action is missing.")],
    options: Annotated[int, typer.Option(min=1, help="Number of hidden options.")],
    out: Out,
    states: Annotated[int | None, typer.Option(min=1, help="Number of states; the largest seen plus one if not given.")] = None,
    actions: Annotated[int | None, typer.Option(min=1, help="Number of actions; likewise.")] = None,
    features: Annotated[str | None, typer.Option(help="Columns of a continuous state, as x,y: policies are then functions of the state.")] = None,
    network: Annotated[int | None, typer.Option(min=1, help="With --features: units of a hidden layer through which policies see the state.")] = None,
    stickiness: Annotated[float, typer.Option(min=0.0, help="Prior counts of keeping an option, in every state.")] = 0.0,
    termination: Annotated[bool, typer.Option("--termination", help="An option ends with a chance of its own; the next is chosen then.")] = False,
    restarts: Annotated[int, typer.Option("--restarts", "--starts", min=1, help="Starts run as one batch; the best is reported.")] = 4,
    random: Annotated[bool, typer.Option("--random", help="All starts at random, none from moments.")] = False,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit an options hidden Markov model to demonstrations by EM, and write fit, ArviZ file, report and options.csv."""
    with one_line_errors(checkpoint, verbose):
        check_out(out, overwrite, checkpoint)
        frame = read_csv(data)
        model: OptionsHMM | ContinuousOptionsHMM
        given = frame
        if features is None:
            model = _tabular(frame, options, states, actions, stickiness, termination, network)
        else:
            names = _names(features, {"--states": states is not None, "--stickiness": stickiness > 0, "--termination": termination})
            given = _columns(frame, ("sequence", "time", *names, "action"))
            model = _continuous(given, len(names), options, actions, network)
        packed = model.check_data(given, for_fit=False)[0]
        result = run(model, given, "random" if random else "spectral", restarts, seed, checkpoint, not no_progress)
        deliver(result, packed, out, None)
        _write_options(result, frame, packed, out / "options.csv")
        typer.echo(f"options of every step: {out / 'options.csv'}")


def _tabular(
    frame: pd.DataFrame, options: int, states: int | None, actions: int | None, stickiness: float, termination: bool, network: int | None
) -> OptionsHMM:
    from ppl_models.options_hmm import OptionsHMM

    if network is not None:
        raise ValueError("--network: policies see a continuous state through it; give its columns with --features")
    num_states, num_actions = states or _largest(frame, "state") + 1, actions or _largest(frame, "action") + 1
    return OptionsHMM(num_states, num_actions, options, stickiness=stickiness, termination=termination)


def _continuous(
    frame: pd.DataFrame, num_features: int, options: int, actions: int | None, network: int | None
) -> ContinuousOptionsHMM:
    from ppl_models.continuous_options import ContinuousOptionsHMM
    from ppl_models.parts.policies import Network, SoftmaxLinear

    policy = SoftmaxLinear() if network is None else Network(network)
    return ContinuousOptionsHMM(num_features, actions or max(2, _largest(frame, "action") + 1), options, policy)


def _names(features: str, tabular: dict[str, bool]) -> list[str]:
    """The columns of the state; options for a state that is a number are refused."""
    names = [name.strip() for name in features.split(",")]
    if not all(names) or len(set(names)) < len(names) or {"sequence", "time", "action"} & set(names):
        raise ValueError(f"--features: names of different columns of the state, as x,y, were expected, got {features!r}")
    for option, is_given in tabular.items():
        if is_given:
            raise ValueError(f"{option} is for a state that is one whole number; leave it out, or --features")
    return names


def _columns(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(f"data: columns {', '.join(names)} were expected; {', '.join(missing)} not found among {', '.join(map(str, frame.columns))}")
    return frame[list(names)]


def _largest(frame: pd.DataFrame, column: str) -> int:
    import pandas as pd

    if column not in frame:
        names = ", ".join(map(str, frame.columns))
        raise ValueError(f"data: columns sequence, time, state, action were expected, got {names} (--features names those of a continuous state)")
    values = pd.to_numeric(frame[column], errors="coerce")
    if not values.notna().any() or values.max() < 0:
        raise ValueError(f"data: column {column!r}: whole numbers from 0 on were expected, got none")
    return int(values.max())


def _write_options(fit: Fit, frame: pd.DataFrame, packed: Tensor, path: Path) -> None:
    """The data, with the most probable path of options and the posterior of each, one row a step in order of time."""
    import numpy as np

    inside = (packed[..., 0].isnan() if packed.is_floating_point() else packed[..., 0] < 0).logical_not().numpy()
    first = {key: i for i, key in enumerate(dict.fromkeys(frame["sequence"].tolist()))}
    order = np.lexsort((frame["time"].to_numpy(), frame["sequence"].map(first).to_numpy()))
    table = frame.iloc[order].copy()
    table["option"] = fit.decode_latents(packed)["options"].numpy()[inside]
    posterior = fit.posterior_latents(packed)["options"].numpy()[inside]
    for option in range(posterior.shape[1]):
        table[f"probability_{option}"] = posterior[:, option].round(6)
    write_csv(table, path)

"""``ppl-models select``: how many groups, signatures, hidden states, options or latents?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inference.cli.app import (
    ROWS,
    Call,
    command,
    select_app,
    warn,
    warned,
    write_csv,
    write_json,
    write_picture,
    write_rows,
)
from inference.cli.families import (
    COUNTS,
    penalty_of,
    read_reference,
    read_sequences,
    read_steps,
    signature_files,
    step_places,
    tabular_model,
    write_options,
)
from inference.cli.reading import (
    family_said,
    item_columns,
    joined,
    range_of,
    read_counts,
    read_covariates,
    read_frame,
    read_items,
    settled,
    with_covariates,
)
from ppl_models.data.items import counting_columns
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.fitting.result import Fit
    from inference.selection.order_selection.result import HowMany

CRITERIA = {"acdc": "ACDC", "bic": "BIC, log N", "aic": "AIC"}  # rows of the table


def _sizes(text: str | None, name: str) -> list[int] | None:
    return None if text is None else range_of(text, name)


def _keep(
    fit: Fit,
    rows: Any,
    call: Call,
    more: Mapping[str, Callable[[Path], str]] | None = None,
    read_as: dict[str, Any] | None = None,
) -> None:
    """Write the results of the chosen fit, those of ``fit``, before anything that can fail."""
    from inference.report.results_folder import write_results

    files = {ROWS: partial(write_rows, fit, rows)} if more is None else more
    write_results(fit, rows, call.out, None, read_as, files, report=False)


# ---------------------------------------------------------------- signatures


@command(select_app, "pmf")
def select_pmf(call: Call) -> None:
    """Choose the number of signatures."""
    import pandas as pd

    from inference.acdc.choice import taken_beyond
    from inference.acdc.criterion import acdc
    from inference.plots.components import plot_choice, plot_discrepancies, plot_signatures
    from inference.report.components import write_selection_report
    from inference.selection.factorization_criteria import (
        compare_criteria,
        fit_grid,
        parallel_analysis,
    )
    from inference.selection.order_selection.counting import LARGEST
    from inference.selection.order_selection.select_components import (
        plain_grids,
        select_components,
    )
    from inference.selection.reproducibility import reproducibility
    from ppl_models.matrix_factorization import PoissonFactorization
    from ppl_models.usage_factorization import UsageFactorization

    criterion, out = call.criterion, call.out
    if call.usage and criterion == "rule":
        criterion = "acdc"
    if call.usage and criterion != "acdc":
        raise ValueError(
            "--usage: its likelihood is known by a bound only, which --criterion"
            f" {criterion} cannot use; use acdc"
        )
    family, num_starts = (
        (UsageFactorization, 1) if call.usage else (PoissonFactorization, call.restarts)
    )
    if call.bootstrap and criterion != "rule":
        raise ValueError(
            f"--bootstrap: it belongs to --criterion rule, got {criterion}; leave it out"
        )
    sizes = _sizes(call.k, "--components")
    frame = read_counts(call)
    reference = read_reference(call, list(map(str, frame.columns)))
    compared, halves, left_out = _for_halves(
        sizes or list(range(1, min(LARGEST[-1], *frame.shape) + 1)), len(frame), call.halves
    )
    if left_out:
        warn(left_out)
    answer: HowMany | None = None
    result = None
    with warned():
        if criterion == "rule":
            for numbers in plain_grids(compared[-1]) if sizes is None else [compared]:
                answer = select_components(
                    family,
                    frame,
                    numbers,
                    num_restarts=num_starts,
                    bootstrap=call.bootstrap,
                    seed=call.seed,
                    progress=not call.no_progress,
                )
                if answer.word != "grid too short":
                    break
            assert answer is not None
            fits = {
                n: fit
                for (distribution, n), fit in answer.fits.items()
                if distribution == answer.distribution
            }
        else:
            fits = fit_grid(
                lambda n: family(frame.shape[1], n),
                frame,
                compared,
                num_starts,
                call.seed,
                not call.no_progress,
            )
        if criterion == "acdc":
            result = acdc(fits, frame, min_share=call.min_share, seed=call.seed)
        table = compare_criteria(fits, frame, result)
        chosen = (
            int(table.loc[CRITERIA[criterion], "chosen"])
            if answer is None
            else answer.num_components
        )
        files = signature_files(fits[chosen], frame, reference)
        _keep(fits[chosen], frame, call, files)
        write_csv(table, out / "criteria.csv", index_label="criterion")
        if answer is not None:
            write_csv(answer.table.reset_index(), out / "distributions.csv")
        if result is None:
            result = acdc(fits, frame, min_share=call.min_share, seed=call.seed)
            table = compare_criteria(fits, frame, result)
            write_csv(table, out / "criteria.csv", index_label="criterion")
        returning = reproducibility(fits, frame, halves, seed=call.seed) if halves else None
    choice = result.select()
    write_csv(result.to_frame(), out / "components.csv")
    page = out / "report.html"
    complete = frame.notna().to_numpy().all() and len(frame) > 2
    names = [str(name) for name in frame.columns]
    if not call.no_report:
        write_selection_report(
            fits,
            result,
            table,
            page,
            chosen=chosen,
            channels=names,
            analysis=parallel_analysis(frame) if complete else None,
            halves=returning,
            answer=answer,
        )
        signatures = fits[chosen].params["signatures"]
        write_picture(plot_choice(result), out / "choice.png")
        write_picture(plot_discrepancies(result, chosen), out / "discrepancies.png")
        write_picture(plot_signatures(signatures, names), out / "signatures.png")
    if call.usage:
        chances = pd.DataFrame(
            fits[chosen].posterior_latents(frame)["usage"].numpy(), index=frame.index
        )
        write_csv(chances.add_prefix("component_"), out / "usage.csv", index_label="row")
    best, share = taken_beyond(result.left, chosen)
    record = {
        "criterion": str(criterion),
        "chosen": chosen,
        "acdc_finished": choice.finished,
        "acdc_taken_beyond": share,
        "acdc_left": {str(n): v for n, v in result.left.items()},
        "acdc_by_share": {str(s): n for s, n in result.sensitivity().items()},
        "convention": result.convention,
        "penalty": result.penalty,
        "seed": call.seed,
        "return_error": None
        if returning is None
        else {str(n): value for n, value in returning.worst.items()},
    } | ({} if answer is None else _record(answer))
    write_json(record, out / "selection.json")
    typer.echo(f"chosen by {criterion}: K = {chosen}" if answer is None else answer.verdict)
    others = ", ".join(f"{name} {number}" for name, number in table["chosen"].items())
    typer.echo(f"What other criteria would take: {others}.")
    if answer is None and not choice.finished:
        warn(
            (
                "ACDC finds no clear step, or one at the largest number compared"
                if choice.rival is None
                else f"the noise says nothing against K = {choice.num_components}, but BIC is"
                f" clearly smaller at K = {choice.rival}"
            )
            + ("" if call.no_report else "; report.html says more")
        )
    if answer is None and share > result.min_share:
        warn(
            f"larger numbers, up to K = {best}, leave {share:.0%} less in small steps"
            + ("" if call.no_report else "; report.html says more")
        )
    if chosen == max(fits):
        most = len(frame) // 2 if halves else len(frame)
        more = (
            f"try --components {min(fits)}:{min(2 * chosen, most)}"
            if chosen < most
            else "the rows hold no more" + (" in each half" if halves else "")
        )
        warn(f"the largest number compared was chosen; {more}")
    _say_files(call, ["criteria.csv", *files])


def _for_halves(sizes: list[int], num_rows: int, halves: int) -> tuple[list[int], int, str]:
    """Numbers that half of the rows can hold, pairs of halves, and a sentence on the rest.

    Where halves hold fewer than two of the numbers all numbers stay, and the halves are left out.
    """
    most = num_rows // 2
    kept = [size for size in sizes if size <= most]
    if not halves or kept == sizes:
        return sizes, halves, ""
    if len(kept) < 2:
        words = f"halves of the {num_rows:,} rows are not fitted, for they cannot hold the numbers"
        return sizes, 0, f"{words}: which components return is not looked at"
    words = f"numbers of components above {most} are left out, for half of the {num_rows:,} rows"
    return kept, halves, f"{words} cannot hold them; --halves 0 compares them, without the halves"


def _record(answer: HowMany) -> dict[str, Any]:
    """Answer of the rule as a file holds it."""
    names = "word distribution interval reasons misfit contradicted verdict"
    values = {name: getattr(answer, name) for name in names.split()}
    climb = answer.climb
    return (
        {"chosen": answer.num_components}
        | values
        | {
            "climb": None
            if climb is None
            else {"num_components": climb.num_components, "null_gain": climb.null_gain}
        }
    )


# ---------------------------------------------------------------- groups, states, options


@command(select_app, "mixture")
def select_mixture(call: Call) -> None:
    """Choose the number of components."""
    from ppl_models.mixture import Mixture

    sizes = _sizes(call.k, "--components")
    _check_values(call)
    if call.values is not None and call.covariance is not None:
        raise ValueError("--values and --covariance both say how rows vary; give one of them")
    if call.values is not None:
        frame = read_frame(call, call.columns, can_choose=True)
        distribution = _distribution(call.values)
    else:
        frame, distribution = read_items(call, call.columns)
        distribution = settled(distribution, frame)
    for name in counting_columns(frame):
        warn(f"column {name!r} {COUNTS}")
    _select(call, Mixture(2, distribution, frame.shape[1]), frame, sizes)


@command(select_app, "hmm")
def select_hmm(call: Call) -> None:
    """Choose the number of hidden states."""
    from ppl_models.hidden_markov import HiddenMarkov

    sizes = _sizes(call.states, "--states")
    _check_values(call)
    frame, items, places = read_sequences(call)
    if call.values is None:
        distribution = settled(family_said(call, items)[1], items)
    else:
        distribution = _distribution(call.values)
    read_as = {"columns": {place: column for column, place in places.items()}}
    _select(call, HiddenMarkov(2, distribution, items.shape[1]), frame, sizes, read_as=read_as)


@command(select_app, "options-hmm")
def select_options(call: Call) -> None:
    """Choose the number of hidden options."""
    sizes = _sizes(call.options, "--options")
    places = step_places(call) | {"state": call.state}
    frame, codes = read_steps(call.data, places, [])
    model = tabular_model(call, frame, 2)
    packed = model.check_data(frame, for_fit=False)[0]
    _select(
        call,
        model,
        frame,
        sizes,
        lambda fit: {"options.csv": partial(write_options, fit, frame, packed, codes)},
        {"columns": places, "codes": codes},
    )


def _check_values(call: Call) -> None:
    if call.values is not None and call.response is not None:
        raise ValueError(
            "--values and --response both name the distribution of the columns; give one of them"
        )


def _distribution(values: str) -> Any:
    """Narrowest distribution of columns of a kind."""
    from ppl_models.parts.responses import Bernoulli, Normal, Poisson

    return {"real": Normal(), "counts": Poisson(), "binary": Bernoulli()}[values]


def _select(
    call: Call,
    model: Any,
    frame: pd.DataFrame,
    sizes: list[int] | None,
    files: Callable[[Fit], Mapping[str, Callable[[Path], str]]] | None = None,
    read_as: dict[str, Any] | None = None,
) -> None:
    """Choose the number of components, write and say the answer."""
    from inference.acdc.criterion import acdc
    from inference.report.how_many import write_how_many_report
    from inference.selection.order_selection.select_components import select_components

    out = call.out
    with warned():
        answer = select_components(
            model,
            frame,
            sizes,
            num_restarts=call.restarts,
            seed=call.seed,
            progress=not call.no_progress,
        )
        chosen = answer.fit
        more = None if files is None else files(chosen)
        _keep(chosen, frame, call, more, read_as)
        write_csv(answer.table.reset_index(), out / "distributions.csv")
        result = acdc({chosen.model.num_components: chosen}, frame, seed=call.seed)  # type: ignore[attr-defined]
    write_csv(result.to_frame(), out / "components.csv")
    if not call.no_report:
        write_how_many_report(answer, out / "report.html", result)
        write_picture(answer.plot(), out / "distributions.png")
    write_json(_record(answer) | {"seed": call.seed}, out / "selection.json")
    typer.echo(answer.verdict)
    _say_files(call, ["distributions.csv", *([ROWS] if more is None else more)])


def _say_files(call: Call, files: list[str], fit: str = "fit/ (Fit.load)") -> None:
    """Say what the folder holds, the page first."""
    page = [] if call.no_report else ["report.html (open it in a browser)"]
    typer.echo(f"results in {call.out}: {', '.join([*page, *files, *([fit] if fit else [])])}")


# ---------------------------------------------------------------- latents of a layer


@command(select_app, "dde")
def select_dde(call: Call) -> None:
    """Choose the size of a layer."""
    from inference.report.answers import write_choice_report
    from inference.selection.dimension import select_dimension
    from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder

    out, parts = call.out, call.latents.split(",")
    ranged = [place for place, part in enumerate(parts) if ":" in part]
    if len(ranged) != 1:
        raise ValueError(
            f"--latents: sizes with one range were expected, such as 4:8,2, got {call.latents!r}"
        )
    grid = range_of(parts[ranged[0]], "--latents")
    others = [
        0 if place in ranged else int(part) if part.isdigit() else -1
        for place, part in enumerate(parts)
    ]
    if min(others) < 0:
        raise ValueError(
            f"--latents: whole numbers and one range were expected, got {call.latents!r}"
        )
    given = read_covariates(call)
    columns = item_columns(call, given)
    frame, family = read_items(call, columns)
    family = settled(family, frame)
    frame, given = with_covariates(frame, given, call.covariates_missing)
    num_items = frame.shape[1]
    frame, covariates = joined(frame, given)
    penalty = penalty_of(call.penalty)

    def model(size: int) -> DeepDiscreteEncoder:
        sizes = tuple(size if place in ranged else other for place, other in enumerate(others))
        return DeepDiscreteEncoder(num_items, sizes, family, penalty, covariates=covariates)

    with warned():
        choice = select_dimension(
            model,
            frame,
            grid,
            call.criterion.value,
            num_restarts=call.restarts,
            seed=call.seed,
            progress=not call.no_progress,
        )
    out.mkdir(parents=True, exist_ok=True)
    if choice.fits:
        _keep(choice.best, frame, call)
    write_csv(choice.table, out / "sizes.csv", index_label=choice.table.index.name or "")
    if not call.no_report:
        write_picture(choice.plot().figure, out / "selection.png")
        write_choice_report(choice, out / "report.html")
    record = {
        "criterion": call.criterion.value,
        "layer": ranged[0] + 1,
        "chosen": choice.chosen,
        "grid": grid,
        "seed": call.seed,
    }
    write_json(record, out / "selection.json")
    typer.echo(choice.table.to_string(float_format="{:,.2f}".format))
    typer.echo(
        f"chosen by {call.criterion}: {counted(choice.chosen, 'latent')} in layer {ranged[0] + 1}"
    )
    if len(choice.sizes) > 1 and choice.chosen == choice.sizes[-1]:
        warn(f"the largest size compared was chosen; try up to {2 * choice.chosen}")
    kept = [ROWS] if choice.fits else []
    _say_files(call, ["sizes.csv", *kept], "fit/ (Fit.load)" if choice.fits else "")

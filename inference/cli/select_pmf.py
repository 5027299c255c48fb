"""``ppl-models select pmf``: how many signatures does a table of counts hold?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    Columns,
    Components,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    grid_of,
    one_line_errors,
    read_frame,
    select_app,
    warn,
    write_csv,
    write_json,
    write_picture,
)

if TYPE_CHECKING:
    from inference.selection.order_selection.result import HowMany


class Criterion(StrEnum):
    """What chooses; the table shows the others beside it."""

    rule = "rule"
    acdc = "acdc"
    bic = "bic"
    aic = "aic"


ROW = {Criterion.acdc: "ACDC", Criterion.bic: "BIC, log N", Criterion.aic: "AIC"}


@select_app.command("pmf")
def select_pmf(
    data: Table,
    out: Out,
    k: Components = None,
    criterion: Annotated[
        Criterion,
        typer.Option(
            help=(
                "What chooses: rule compares laws and numbers together; acdc, the clear step, where"
                " --usage is given. All but rule compare 1:12 at once where --components is left"
                " out."
            )
        ),
    ] = Criterion.rule,
    restarts: Annotated[
        int, typer.Option("--restarts", "--starts", min=1, help="Starts of each fit.")
    ] = 10,
    min_share: Annotated[
        float,
        typer.Option(
            min=0.01, max=0.99, help="Share of the discrepancy left that a clear step takes away."
        ),
    ] = 0.5,
    bootstrap: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="TABLES",
            help=(
                "Tables drawn from the strict choice and fitted again, to climb from it; 6 for what"
                " is published."
            ),
        ),
    ] = 0,
    halves: Annotated[
        int,
        typer.Option(
            min=0,
            help=(
                "Pairs of halves of the rows fitted anew to see which components return; 0 leaves"
                " that out."
            ),
        ),
    ] = 3,
    usage: Annotated[
        bool,
        typer.Option(
            "--usage", help="Let components be absent from rows; writes the chances, usage.csv."
        ),
    ] = False,
    columns: Columns = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many signatures? Poisson factorizations of a table of counts: the chosen number, the
    rivals' choices, the chosen fit, and a page that says why.

    For example: ppl-models select pmf counts.csv --out signatures
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        import pandas as pd

        from inference.acdc.choice import taken_beyond
        from inference.acdc.criterion import acdc
        from inference.plots.components import plot_choice, plot_discrepancies, plot_signatures
        from inference.programs.global_state import listening
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

        if usage and criterion is Criterion.rule:
            criterion = Criterion.acdc
        if usage and criterion is not Criterion.acdc:
            raise ValueError(
                "--usage: its likelihood is known by a bound only, which --criterion"
                f" {criterion.value} cannot use; use acdc"
            )
        family, starts = (UsageFactorization, 1) if usage else (PoissonFactorization, restarts)
        if bootstrap and criterion is not Criterion.rule:
            raise ValueError(
                f"--bootstrap: it belongs to --criterion rule, got {criterion.value}; leave it out"
            )
        sizes = grid_of(k, "--components")
        check_out(out, overwrite)
        frame = read_frame(data, columns, can_choose=True)
        compared, halves, left_out = _for_halves(
            sizes or list(range(1, min(LARGEST[-1], *frame.shape) + 1)), len(frame), halves
        )
        if left_out:
            warn(left_out)
        with listening() as caught:
            answer, result = None, None
            if criterion is Criterion.rule:
                for numbers in plain_grids(compared[-1]) if sizes is None else [compared]:
                    answer = select_components(
                        family,
                        frame,
                        numbers,
                        num_restarts=starts,
                        bootstrap=bootstrap,
                        seed=seed,
                        progress=not no_progress,
                    )
                    if answer.word != "grid too short":
                        break
                assert answer is not None
                fits = {n: one for (law, n), one in answer.fits.items() if law == answer.law}
            else:
                fits = fit_grid(
                    lambda n: family(frame.shape[1], n),
                    frame,
                    compared,
                    starts,
                    seed,
                    not no_progress,
                )
            if criterion is Criterion.acdc:
                result = acdc(fits, frame, min_share=min_share, seed=seed)
            table = compare_criteria(fits, frame, result)
            chosen = (
                int(table.loc[ROW[criterion], "chosen"])
                if answer is None
                else answer.num_components
            )
            out.mkdir(parents=True, exist_ok=True)  # the fit is kept before anything that can fail
            fits[chosen].save(out / "fit")
            write_csv(table, out / "criteria.csv", index_label="criterion")
            if answer is not None:
                write_csv(answer.table.reset_index(), out / "laws.csv")
            if result is None:
                result = acdc(fits, frame, min_share=min_share, seed=seed)
                table = compare_criteria(fits, frame, result)
                write_csv(table, out / "criteria.csv", index_label="criterion")
            returning = reproducibility(fits, frame, halves, seed=seed) if halves else None
        for text in dict.fromkeys(str(found.message) for found in caught):
            warn(text)
        choice = result.select()
        write_csv(result.to_frame(), out / "components.csv")
        page = out / "report.html"
        analysis = (
            parallel_analysis(frame) if frame.notna().to_numpy().all() and len(frame) > 2 else None
        )
        names = [str(name) for name in frame.columns]
        write_selection_report(
            fits,
            result,
            table,
            page,
            chosen=chosen,
            channels=names,
            analysis=analysis,
            halves=returning,
            answer=answer,
        )
        write_picture(plot_choice(result), out / "choice.png")
        write_picture(plot_discrepancies(result, chosen), out / "discrepancies.png")
        write_picture(
            plot_signatures(fits[chosen].params["signatures"], names), out / "signatures.png"
        )
        if usage:
            chance = fits[chosen].posterior_latents(frame)["usage"].numpy()
            labels = [f"component_{i}" for i in range(chosen)]
            write_csv(
                pd.DataFrame(chance, columns=labels, index=frame.index),
                out / "usage.csv",
                index_label="row",
            )
        record = {
            "criterion": criterion.value,
            "chosen": chosen,
            "acdc_finished": choice.finished,
            "acdc_taken_beyond": taken_beyond(result.left, chosen)[1],
            "acdc_left": {str(n): v for n, v in result.left.items()},
            "acdc_by_share": {str(s): n for s, n in result.sensitivity().items()},
            "convention": result.convention,
            "penalty": result.penalty,
            "seed": seed,
            "return_error": None
            if returning is None
            else {str(n): value for n, value in returning.worst.items()},
        } | ({} if answer is None else record_of(answer))
        write_json(record, out / "selection.json")
        typer.echo(
            f"chosen by {criterion.value}: K = {chosen}" if answer is None else answer.verdict
        )
        typer.echo(
            "What other criteria would take:"
            f" {', '.join(f'{name} {number}' for name, number in table['chosen'].items())}."
        )
        if answer is None and not choice.finished:
            warn(
                "ACDC finds no clear step, or one at the largest number compared; report.html says"
                " more"
            )
        best, share = taken_beyond(result.left, chosen)
        if answer is None and share > result.min_share:
            warn(
                f"larger numbers, up to K = {best}, leave {share:.0%} less in small steps;"
                " report.html says more"
            )
        if chosen == max(fits):
            most = len(frame) // 2 if halves else len(frame)
            more = (
                f"try --components {min(fits)}:{min(2 * chosen, most)}"
                if chosen < most
                else "the rows hold no more" + (" in each half" if halves else "")
            )
            warn(f"the largest number compared was chosen; {more}")
        typer.echo(
            f"results in {out}: {page.name} (open it in a browser), criteria.csv, fit/ (Fit.load)"
        )


def _for_halves(sizes: list[int], num_rows: int, halves: int) -> tuple[list[int], int, str]:
    """Numbers that half of the rows can hold, pairs of halves, and in a sentence what is left out.

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


def record_of(answer: HowMany) -> dict[str, Any]:
    """What a file says of the rule's answer."""
    return {
        "chosen": answer.num_components,
        "word": answer.word,
        "law": answer.law,
        "interval": list(answer.interval),
        "reasons": list(answer.reasons),
        "misfit": answer.misfit,
        "contradicted": answer.contradicted,
        "verdict": answer.verdict,
        "climb": None
        if answer.climb is None
        else {"num_components": answer.climb.num_components, "null_gain": answer.climb.null_gain},
    }

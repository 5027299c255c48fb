"""``ppl-models causal``: a graph of causes among the attributes of a fitted folder."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inference.cli.app import Seed, Verbose, app, one_line_errors, write_json, write_picture

GRAPH, PAGE, PICTURE = "graph.json", "causal.html", "causal.png"


class GraphScore(StrEnum):
    """What graphs are ranked by."""

    bdeu = "bdeu"
    bic = "bic"


@app.command()
def causal(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder that fit attributes wrote, with a saturated root."
        ),
    ],
    draws: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "Completions of the rows that probabilities are averaged over; without, they are"
                " those given the table itself."
            ),
        ),
    ] = None,
    score: Annotated[
        GraphScore, typer.Option(help="Marginal likelihood (BDeu) or BIC.")
    ] = GraphScore.bdeu,
    seed: Seed = 0,
    verbose: Verbose = False,
) -> None:
    """Find what may cause what among fitted attributes, with probabilities of edges; writes
    graph.json, causal.html and causal.png into DIR.
    """
    with one_line_errors(None, verbose):
        from inference.causal.of_fit import discover_attributes
        from inference.causal.scores import BIC, BDeu
        from inference.report.causal import causal_record, verdict_in_words, write_causal_report
        from inference.report.results_folder import read_results, refuse_sample
        from inference.structures.attribute_groups import AttributeGroupsStructure

        fit, frame, summary = read_results(folder)
        refuse_sample(folder, fit, summary, "a graph of causes")
        if isinstance(fit.structure, AttributeGroupsStructure):
            raise ValueError(
                f"{folder}: a fit of several groups, each with a law of its own; a graph is looked"
                " for in one of them: fit its rows by themselves"
            )
        root = fit.structure.root
        if (
            root is not None
            and fit.structure.layers
            and root.num_free < 2 ** fit.structure.layers[-1].num_parents - 1
        ):
            raise ValueError(
                f"{folder}: the attributes of this fit follow a law of their own shape"
                f" ({root.law}), so a graph found in it would only repeat what that law assumes;"
                " fit again with --root saturated, and then ask for the graph"
            )
        found = discover_attributes(
            fit,
            frame,
            score=BIC() if score is GraphScore.bic else BDeu(),
            num_draws=draws,
            seed=seed,
        )
        write_json(causal_record(found), folder / GRAPH)
        write_causal_report(found, folder / PAGE)
        written = [GRAPH, PAGE]
        if found.determined:
            write_picture(found.plot().figure, folder / PICTURE)
            written.append(PICTURE)
        typer.echo(" ".join(verdict_in_words(found)))
        if found.determined and found.causal.edges:
            typer.echo("what is firm:\n" + found.causal.firm.text())
        typer.echo(f"in {folder}: {', '.join(written)}")

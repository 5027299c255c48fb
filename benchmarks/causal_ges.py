"""Graphs of attributes: seconds of greedy and exact search beside causal-learn, and how often the
manuscript's structures are recovered.

Speed: one JSON line a number of attributes, on a sample of 2,000 rows from a random sparse graph;
the searches see its table, causal-learn its rows (BDeu with its prior on graphs, which is ours with
``edge_penalty=log(K - 2)``). Where causal-learn is not installed, its columns are null.

Accuracy: one JSON line a structure, number of rows and way of making the sample from known
profiles: the true table at N rows; the shares of profiles at N rows (method 6 of the manuscript,
what a perfect classification would give); the same shares claimed to be more rows (method 4); as
many draws from them (method 5). Recovery is equality of CPDAGs, in percent. ``published`` is the
manuscript's, where it has the cell; compare it with "BDeu legacy, GES", the score that it used (an
edge cost log(N' - 2) nats). Run: ``python benchmarks/causal_ges.py``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from _bench import Lines, command_line, fastest, run, seeds
from papers.profile_counts import redrawn_counts, rows_of_counts
from papers.studies.causal import published_cells, structure

from inference.causal import BIC, GES, BDeu, ExactSearch, cpdag_of
from inference.causal.graphs import shd
from inference.causal.tables import dag_table

ROWS_OF_SPEED = 2000


def sparse_graph(num_attributes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A DAG with up to three parents, 1.5 on average, and a table of it."""
    dag = np.zeros((num_attributes, num_attributes), dtype=bool)
    for k in range(1, num_attributes):
        dag[rng.choice(k, min(k, int(rng.integers(0, 4))), replace=False), k] = True
    chances = [
        rng.choice([0.2, 0.4, 0.6, 0.8], (2,) * int(dag[:, k].sum())) for k in range(num_attributes)
    ]
    return dag, dag_table(dag, chances)


def theirs() -> Callable[[np.ndarray], Any] | None:
    """causal-learn's greedy search, None where it is not installed."""
    try:
        from causallearn.search.ScoreBased.GES import ges
    except ImportError:
        return None
    return lambda rows: ges(rows, "local_score_BDeu")["G"].graph


def speed(args: argparse.Namespace) -> Lines:
    other = theirs()
    for size in args.attributes:
        rng = np.random.default_rng(size)
        dag, table = sparse_graph(size, rng)
        counts = rng.multinomial(ROWS_OF_SPEED, table)
        rows = rows_of_counts(counts)
        given = (
            counts / counts.sum(),
            float(ROWS_OF_SPEED),
            BDeu(edge_penalty=math.log(max(size - 2, 1))),
        )
        truth = cpdag_of(dag).matrix
        line: dict[str, Any] = {"attributes": size, "rows": ROWS_OF_SPEED, "edges": int(dag.sum())}
        found = GES(turning=False).best(*given)
        line["ges_seconds"] = round(
            fastest(partial(GES(turning=False).best, *given), args.repeats), 5
        )
        line["ges_turning_seconds"] = round(fastest(partial(GES().best, *given), args.repeats), 5)
        ours = found.graph.matrix
        line["ges_shd"] = shd(ours, truth)
        if size <= args.exact_up_to:
            best = ExactSearch().best(*given)
            line["exact_seconds"] = round(fastest(partial(ExactSearch().best, *given), 1), 5)
            line["exact_shd"] = shd(best.graph.matrix, truth)
            line["score_gap_of_ges"] = round(best.score - found.score, 6)
        line |= {"causal_learn_seconds": None, "times_faster": None, "same_graph": None}
        if other is not None and size <= args.theirs_up_to:
            graph = other(rows)
            line["causal_learn_seconds"] = round(fastest(partial(other, rows), 1), 4)
            line["times_faster"] = round(line["causal_learn_seconds"] / line["ges_seconds"], 1)
            line["same_graph"] = bool(
                np.array_equal(
                    ours, ((graph == -1) & (graph.T == 1)) | ((graph == -1) & (graph.T == -1))
                )
            )
        yield {"what": "speed", **line}


def accuracy(args: argparse.Namespace) -> Lines:
    for name in ("1", "2", "3"):
        dag, table = structure(name)
        truth = cpdag_of(dag).matrix
        for num_rows in args.rows:
            counts = np.stack(
                [np.random.default_rng(seed).multinomial(num_rows, table) for seed in seeds(args)]
            )
            ways = [("true table", table[None], 1), ("6: true profiles", counts / num_rows, 1)]
            for times in args.claims:
                drawn = np.stack(
                    [
                        _redrawn(own, times * num_rows, seed)
                        for own, seed in zip(counts, seeds(args), strict=True)
                    ]
                )
                ways.append(("5: draws from the true profiles", drawn / (times * num_rows), times))
                if times > 1:
                    ways.append(("4: true profiles, scaled", counts / num_rows, times))
            for way, tables, times in ways:
                yield {
                    "what": "accuracy",
                    "structure": name,
                    "rows": num_rows,
                    "way": way,
                    "claimed_rows": times * num_rows,
                    "replicates": len(tables),
                    **_recovered(tables, float(times * num_rows), truth),
                    "published": _published(name, num_rows, way, times * num_rows),
                }


def _recovered(tables: np.ndarray, claimed: float, truth: np.ndarray) -> dict[str, float]:
    """Percent of tables whose best graph is the true one, by score and search; "legacy" is what
    causal-learn's BDeu was until December 2025.
    """
    rules = {"BDeu": BDeu(), "BDeu legacy": BDeu(edge_penalty=math.log(claimed - 2)), "BIC": BIC()}
    found = {}
    for label, rule in rules.items():
        for search in (ExactSearch(), GES()):
            right = [
                np.array_equal(graph.matrix, truth)
                for graph in search.best_of_each(tables, claimed, rule)
            ]
            found[f"{label}, {type(search).__name__}"] = round(100 * float(np.mean(right)), 1)
    return found


def _published(name: str, num_rows: int, way: str, claimed: int) -> float | None:
    """The manuscript's percentage (BDeu as it was, greedy search), None where it has no such
    cell.
    """
    for _, own, rows, q, method, times, score, percent in published_cells():
        cell = (own, rows, q, score, method, rows * times)
        if cell == (name, num_rows, "known", "BDeu", way[0], claimed):
            return percent
    return None


def _redrawn(counts: np.ndarray, num_rows: int, seed: int) -> np.ndarray:
    return redrawn_counts(rows_of_counts(counts), num_rows, seed + 1_000_003)


def measure(args: argparse.Namespace) -> Lines:
    yield from speed(args)
    yield from accuracy(args)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=400)
    parser.add_argument(
        "--attributes",
        type=int,
        nargs="+",
        default=[5, 10, 15, 20],
        help="numbers of attributes that are timed",
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[1000, 2000, 5000, 10_000],
        help="numbers of rows of the accuracy",
    )
    parser.add_argument(
        "--claims", type=int, nargs="+", default=[1, 5, 10], help="N' / N of methods 4 and 5"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="of our searches; the fastest counts"
    )
    parser.add_argument(
        "--exact-up-to",
        type=int,
        default=15,
        metavar="K",
        help="attributes that are searched exactly",
    )
    parser.add_argument(
        "--theirs-up-to",
        type=int,
        default=20,
        metavar="K",
        help="attributes that causal-learn is given",
    )
    run(
        parser,
        measure,
        argv,
        {
            "replicates": 5,
            "attributes": [5, 8],
            "rows": [1000],
            "claims": [1, 5],
            "repeats": 1,
            "exact_up_to": 8,
            "theirs_up_to": 5,
        },
    )


if __name__ == "__main__":
    main()

"""One pass of stepwise EM against iterations of exact EM: the objective against the rows that were
read.

Two fits of one model from one start (random, or ``--init spectral``). The line ``exact EM`` has the
log-posterior of all rows before each of its plain iterations, each of which reads all rows once.
``online EM`` has that of the iterates of one pass, at a few points of the pass: reading all rows to
judge an iterate is not counted, and not in its seconds. ``online, then exact`` is the whole fit
``EM(start=OnlineEM())``, beside ``exact EM`` run to its end. The rows are those of ``scale.py``:
six binary latents, items of 0 and 1. ``--picture`` draws the first two.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from _bench import command_line, run
from scale import made

from inference import EM, OnlineEM
from inference.base.progress import NoProgress
from inference.engines.online_em import OnlineState
from inference.fitting.problem import problem_of
from ppl_models import DeepDiscreteEncoder


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    warnings.simplefilter("ignore")  # runs that are stopped early say that they did not converge
    model = DeepDiscreteEncoder(args.items, (6, 2), penalty=None)
    problem = problem_of(model, made(args.rows, args.items, 0), 0)
    start = problem.structure.start(problem, args.init, 1)
    assert start is not None
    plain = EM(max_iterations=args.iterations, acceleration=None)
    steps, method = plain.steps(problem), OnlineEM(batch_rows=args.batch_rows)

    def judged(params: dict[str, torch.Tensor]) -> float:
        _, log_likelihood, log_prior = steps.e_step(params)
        return float(log_likelihood + log_prior)

    about = {"rows": args.rows, "items": args.items, "init": args.init}
    began = time.process_time()
    exact = plain.run(problem, start, NoProgress(), None)
    seconds = time.process_time() - began
    history = exact.history[:, 0].tolist()
    curves = {"exact EM": ([args.rows * i for i in range(len(history))], history)}
    yield {
        "what": "exact EM",
        **about,
        "iterations": len(history),
        "processor": round(seconds, 2),
        "rows_read": curves["exact EM"][0],
        "objective": history,
    }

    num_batches = max(1, args.rows // args.batch_rows)
    looks = {round(num_batches * share) for share in (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)} - {
        0
    }
    seen, spent, began = [(0, judged(start))], 0.0, time.process_time()
    for state in method.iterates(problem, steps, OnlineState.begin(start)):
        if state.batch in looks:
            spent += time.process_time() - began
            seen.append(
                (
                    args.rows if state.batch == num_batches else state.batch * args.batch_rows,
                    judged(state.params),
                )
            )
            began = time.process_time()
    curves["online EM"] = ([rows for rows, _ in seen], [value for _, value in seen])
    reached = next((i for i, value in enumerate(history) if value >= seen[-1][1]), None)
    yield {
        "what": "online EM",
        **about,
        "batch_rows": args.batch_rows,
        "processor": round(spent, 2),
        "rows_read": curves["online EM"][0],
        "objective": curves["online EM"][1],
        "exact_iterations_to_there": reached,
    }
    for what, whole in (
        ("online, then exact", EM(max_iterations=args.most, start=method)),
        ("exact EM to the end", EM(max_iterations=args.most)),
    ):
        began = time.process_time()
        found = whole.run(problem, start, NoProgress(), None)
        yield {
            "what": what,
            **about,
            "processor": round(time.process_time() - began, 2),
            "iterations": int(found.num_iterations[0]),
            "converged": bool(found.converged[0]),
            "objective": float(found.objective[0]),
        }
    if args.picture is not None:
        draw(args.picture, curves, args.rows)


def draw(path: Path, curves: dict[str, tuple[list[int], list[float]]], num_rows: int) -> None:
    """Both curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, (rows, values) in curves.items():
        axes.plot(
            [count / num_rows for count in rows], values, marker="o", markersize=3, label=name
        )
    axes.set_xlabel(f"passes over {num_rows:,} rows")
    axes.set_ylabel("log-posterior of all rows")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    """The curves of both."""
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=18)
    parser.add_argument("--batch-rows", type=int, default=1_000)
    parser.add_argument("--iterations", type=int, default=25, help="of exact EM, for the curve")
    parser.add_argument(
        "--most", type=int, default=100, help="iterations of each of the two whole fits"
    )
    parser.add_argument("--init", choices=["random", "spectral"], default="random")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where the curves are drawn")
    run(parser, measure, argv, {"rows": 20_000, "iterations": 10, "most": 30})


if __name__ == "__main__":
    main()

"""Independent classifier networks on the examples of their paper, over seeds.

``--example two_gaussians | checkerboard | trivariate`` draws ``--rows`` rows (the paper's number by
default) and prints one JSON line a seed and way of training:

- ``published``: the paper's settings: random start, the cost of the mini-batch by itself, a fixed
  number of epochs, nothing held out;
- ``anchored``: the same from the start that the variates have in common, with estimates of the
  means over all rows that leave the gradient unbiased;
- ``finished``: as ``anchored``, and Newton's method for the output layers at the end, as far as
  held-out rows do not clearly lose by it (a tenth);
- ``plain``: ``fit(model, data)``, as a user calls it (four starts, early stopping by held-out rows,
  the same end).

``weight_error`` is the largest error of a weight after matching; ``cost`` the mean negative
log-ratio on 100,000 new rows, ``gap`` how far that lies above that of the true densities on the
same rows, ``accuracy`` the share of new rows whose component is found, ``best_accuracy`` that of
the exact posterior; ``possible`` the weights of the first component that theorem 1 allows, of two
components in two variates, and ``middle_error`` the error of their middle. ``--example
mnist_pairs``: the share of single test images whose digit is found after learning from noisy
labels, after going on with pairs and no labels, and of the same network with all labels ("with
them": the pairs whose images have one keep their noisy labels in the cost).
``--race`` measures instead, in one run, the seconds of the processor and steps until the cost of
all training rows comes within ``--within`` nats of where full-batch training ended, for batches of
50 and 500 and each kind of estimate.

Source: K. T. Matchev and P. Shyamsundar (2022), doi:10.1088/2632-2153/ac6483, section 3. Run:
``python benchmarks/inclass.py --example two_gaussians --seeds 10 [--rows N] [--batch B] [--cost ctc
| unnorm] [--ways published,anchored,finished,plain] [--quick]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds, timed
from papers.mnist_pairs import mnist_pairs
from papers.studies.classifiers import EXAMPLES, PUBLISHED, TEST_ROWS, TEST_SEED, scores

from inference import CrossTotalCorrelation, Labels, TrainClassifiers, fit
from inference.fitting.problem import problem_of
from inference.fitting.record import FitRecord
from inference.identifiability import identifiability_of
from inference.inspection import read_classifiers
from ppl_models import Dense, InClassNet
from ppl_models.datasets import (
    load_mnist_images,
)


def method_of(
    way: str, batch: int, epochs: int, cost: CrossTotalCorrelation
) -> TrainClassifiers | None:
    """The engine of one way of training; None for the plain call."""
    if way == "plain":
        return None
    estimates: Any = "batch" if way == "published" else "anchored"
    own = replace(
        PUBLISHED,
        estimates=estimates,
        average=way != "published",
        batch_size=batch,
        max_epochs=epochs,
        cost=cost,
    )
    return (
        replace(own, validation_share=0.1, last_steps=TrainClassifiers().last_steps)
        if way == "finished"
        else own
    )


def example_lines(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    simulate, variates, components, rows, batch = EXAMPLES[args.example]
    rows, batch = args.rows or rows, args.batch or batch
    model = InClassNet((1,) * variates, components)
    cost = CrossTotalCorrelation(1.0 if args.cost == "unnorm" else 0.0)
    for seed in seeds(args):
        data = simulate(rows, seed).data.astype(np.float32)
        test = simulate(args.test_rows, TEST_SEED + seed)
        for way in args.ways.split(","):
            method = method_of(way, batch, args.epochs, cost)
            settings = (
                {}
                if way == "plain"
                else {"num_restarts": 1, "init": "random" if way == "published" else "spectral"}
            )
            result, seconds = timed(
                lambda m=method, s=settings, d=data, k=seed: fit(model, d, m, seed=k, **s)
            )
            yield {
                "example": args.example,
                "way": way,
                "seed": seed,
                "rows": rows,
                "batch": result.method.batch_size,
                "cost_name": args.cost,
                **scores(result, test),
                **possible(result, data, test.truth.weights),
                "seconds": seconds,
            }


def possible(result: FitRecord, data: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Weights that give the same distribution of the data, and the error of their middle."""
    found = identifiability_of(result, data)
    if found.possible_weights is None:
        return {}
    middle = np.mean(found.possible_weights)
    error = np.abs(np.sort([middle, 1 - middle]) - np.sort(truth)).max()
    return {"possible": list(found.possible_weights), "middle_error": float(error)}


# ---------------------------------------------------------------- seconds to a given cost


class Clock:
    """Seconds of the processor at the end of every epoch: those on the wall mean little on a busy
    machine.
    """

    def __init__(self) -> None:
        self.began, self.seconds = time.process_time(), [0.0]

    def update(self, iteration: int, objective: float, active: int) -> None:
        self.seconds.append(time.process_time() - self.began)

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *error: object) -> None: ...


def race_lines(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    simulate, variates, components, rows, _ = EXAMPLES[args.example]
    rows = args.rows or rows
    model = InClassNet((1,) * variates, components)
    for seed in seeds(args):
        problem = problem_of(model, simulate(rows, seed).data.astype(np.float32), seed)
        start = problem.structure.start(problem, "spectral", 1)
        full = replace(PUBLISHED, batch_size=None, max_epochs=args.full_epochs, learning_rate=3e-3)
        target = course(full, problem, start)
        goal = min(target["costs"]) + args.within
        yield {
            "example": args.example,
            "way": "all rows",
            "seed": seed,
            "rows": rows,
            "cost": min(target["costs"]),
            "seconds": target["seconds"][-1],
        }
        for batch in (50, 500):
            for estimates in ("anchored", "moving", "batch"):
                method = replace(
                    PUBLISHED, batch_size=batch, estimates=estimates, max_epochs=args.epochs
                )
                found = course(method, problem, start)
                reached = next(
                    (epoch for epoch, value in enumerate(found["costs"]) if value <= goal), None
                )
                yield {
                    "example": args.example,
                    "way": estimates,
                    "batch": batch,
                    "seed": seed,
                    "rows": rows,
                    "goal": goal,
                    "best": min(found["costs"]),
                    "last": found["costs"][-1],
                    "epochs_to_goal": None if reached is None else reached + 1,
                    "seconds_to_goal": None
                    if reached is None
                    else round(found["seconds"][reached + 1], 2),
                    "microseconds_a_step": round(
                        1e6
                        * found["seconds"][-1]
                        / (len(found["costs"]) * steps_an_epoch(rows, batch))
                    ),
                }


def steps_an_epoch(rows: int, batch: int) -> int:
    """Whole passes, until there are twenty steps."""
    whole = max(1, rows // batch)
    return whole * -(-20 // whole)


def course(method: TrainClassifiers, problem: Any, start: Any) -> dict[str, list[float]]:
    """The cost of all training rows after every epoch, and the seconds until then."""
    clock = Clock()
    outcome = method.run(problem, start, clock, None)
    return {
        "costs": [
            -value / problem.num_rows for value in outcome.history_log_likelihood[:, 0].tolist()
        ],
        "seconds": clock.seconds,
    }


# ---------------------------------------------------------------- pairs of digits


def digit_lines(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    test = load_mnist_images()
    images = test.test_images.reshape(len(test.test_images), -1).astype(np.float32) / 255
    rows = args.rows or 100_000
    for seed in seeds(args):
        pairs = mnist_pairs(rows, seed=seed)
        model = InClassNet((784, 784), 10, networks=Dense(), shared=True)
        some = pairs.rows(pairs.labelled)
        noisy = Labels(
            pairs.given_labels,
            on="variates",
            confusion=pairs.confusion if args.known_confusion else None,
        )
        before = replace(
            PUBLISHED, cost=None, labels=noisy, batch_size=20, max_epochs=args.pretrain_epochs
        )
        taught, first = timed(
            lambda s=some, m=before, k=seed, net=model: fit(net, (s, s), m, init="random", seed=k)
        )
        pair_method = replace(
            PUBLISHED,
            estimates="anchored",
            average=True,
            batch_size=args.batch or 100,
            max_epochs=args.digit_epochs,
            validation_share=0.1,
        )
        both = pairs.variates()
        kept = Labels(pairs.pair_labels, confusion=pairs.confusion)
        ways = {
            "labels, then pairs": pair_method,
            "labels, then pairs with them": replace(pair_method, labels=kept),
        }
        going_on = {
            name: timed(
                lambda p=both, m=m, t=taught, k=seed, net=model: fit(net, p, m, init=t, seed=k)
            )
            for name, m in ways.items()
        }
        whole = pairs.rows(np.arange(min(len(pairs.images), rows)))
        labels = Labels(pairs.labels[: len(whole)], on="variates")
        twin = replace(
            PUBLISHED,
            cost=None,
            labels=labels,
            batch_size=args.batch or 100,
            max_epochs=args.digit_epochs,
        )
        supervised, third = timed(
            lambda w=whole, m=twin, k=seed, net=model: fit(net, (w, w), m, init="random", seed=k)
        )
        for name, result, seconds in (
            ("labels", taught, first),
            *((name, *found) for name, found in going_on.items()),
            ("all labels", supervised, third),
        ):
            found = read_classifiers(result, (images, images)).variates[0].argmax(-1).numpy()
            by_output = (
                result.model.log_scores(torch.from_numpy(images).repeat(1, 2), result.params)[0]
                .argmax(-1)
                .numpy()
            )  # type: ignore[attr-defined]
            yield {
                "example": "mnist_pairs",
                "way": name,
                "seed": seed,
                "rows": rows,
                "accuracy": round(float((found == test.test_labels).mean()), 4),
                "accuracy_of_outputs": round(float((by_output == test.test_labels).mean()), 4),
                "objective": result.objective,
                "objective_name": result.objective_name,
                "weights": [round(w, 3) for w in result.params["weights"].tolist()],
                "seconds": seconds,
            }


def measure(args: argparse.Namespace) -> Lines:
    if args.example == "mnist_pairs":
        yield from digit_lines(args)
    elif args.race:
        yield from race_lines(args)
    else:
        yield from example_lines(args)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=10)
    parser.add_argument("--example", choices=[*EXAMPLES, "mnist_pairs"], default="two_gaussians")
    parser.add_argument(
        "--rows", type=int, metavar="N", help="rows or pairs; the paper's number by default"
    )
    parser.add_argument(
        "--test-rows",
        type=int,
        default=TEST_ROWS,
        metavar="N",
        help="new rows that fits are judged on",
    )
    parser.add_argument(
        "--batch", type=int, metavar="B", help="rows a step; the paper's number by default"
    )
    parser.add_argument(
        "--epochs", type=int, default=15, metavar="N", help="passes through the rows"
    )
    parser.add_argument(
        "--cost", choices=["ctc", "unnorm"], default="ctc", help="normalised or not"
    )
    parser.add_argument(
        "--ways", default="published,anchored,finished,plain", help="ways of training, by commas"
    )
    parser.add_argument(
        "--race", action="store_true", help="seconds to the cost of full-batch training"
    )
    parser.add_argument("--within", type=float, default=0.002, metavar="NATS", help="of that cost")
    parser.add_argument(
        "--full-epochs",
        type=int,
        default=30,
        metavar="N",
        help="of full-batch training, twenty steps each",
    )
    parser.add_argument(
        "--pretrain-epochs", type=int, default=30, metavar="N", help="on labelled digits"
    )
    parser.add_argument(
        "--digit-epochs", type=int, default=20, metavar="N", help="on pairs of digits"
    )
    parser.add_argument(
        "--known-confusion",
        action="store_true",
        help="tell the labels' cost how often they are wrong",
    )
    quick = {
        "rows": 2000,
        "test_rows": 2000,
        "epochs": 2,
        "replicates": 1,
        "full_epochs": 2,
        "pretrain_epochs": 1,
        "digit_epochs": 1,
    }
    run(parser, measure, argv, quick=quick)


if __name__ == "__main__":
    main()

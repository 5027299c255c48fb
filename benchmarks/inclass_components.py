"""How many components: held-out cost of independent classifiers, its bound, and what is chosen,
beside a parametric mixture, latent classes and kernels.

Four examples with known numbers of components and two real tables of mixed columns, one line a
method and number of components, and one with the choice. The cost is minus the mean log-ratio of
held-out rows to independent variates, each method relative to its own marginals; all choose by the
rule of one standard error. Where the truth is known, the lines of the true number have the largest
error of a weight, the mean absolute error of the posterior of held-out rows, and their accuracy.
The rivals need variates of one column, so pairs of images have none. Latent classes see columns in
ten bins. Run: ``python benchmarks/inclass_components.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from _bench import Lines, command_line, run, timed
from papers.kernels import KernelEM, kernel_em
from scipy.optimize import linear_sum_assignment

from inference import TrainClassifiers, fit
from inference.selection import saturation
from inference.selection.saturation import choose_components
from ppl_models import Bernoulli, Blocks, Dense, InClassNet, Mixture, Normal
from ppl_models.datasets import (
    image_pairs,
    load_diabetes_table,
    load_timss_table,
    simulate_checkerboard,
    simulate_trivariate,
    simulate_two_gaussians,
)
from ppl_models.datasets.independent_classifiers import IndependentSample
from ppl_models.datasets.mixed_tables import MixedTable

SIMULATED = {
    "two_gaussians": (simulate_two_gaussians, 2),
    "checkerboard": (simulate_checkerboard, 2),
    "trivariate": (simulate_trivariate, 4),
}
TABLES = {"diabetes": load_diabetes_table, "timss": load_timss_table}
EXAMPLES = (*SIMULATED, "digit_pairs", *TABLES)
BINS, STARTS, HELD_OUT = 10, 10, 0.2


class Answer(NamedTuple):
    """Of one method with one number of components: log-ratios (n,) and posterior (n, C) of the
    held-out rows, and weights (C,).
    """

    ratio: np.ndarray
    posterior: np.ndarray
    weights: np.ndarray


def latent_classes(
    table: np.ndarray,
    test: np.ndarray,
    size: int,
    seed: int,
    edges: list[np.ndarray],
    rounds: int = 300,
) -> Answer:
    """EM of latent classes on binned columns, the best of several starts."""
    rng = np.random.default_rng(seed)

    def coded(rows: np.ndarray) -> list[np.ndarray]:
        return [
            np.searchsorted(own, column, side="right")
            for own, column in zip(edges, rows.T, strict=True)
        ]

    codes = coded(table)
    one_hot = [np.eye(len(own) + 1)[code] for own, code in zip(edges, codes, strict=True)]
    best: tuple[float, np.ndarray, list[np.ndarray]] | None = None
    for _ in range(STARTS):
        posterior = rng.dirichlet(np.ones(size), len(table))
        before = -np.inf
        for _ in range(rounds):
            weights = posterior.mean(0)
            distributions = [
                (posterior.T @ own + 0.5) / (posterior.sum(0)[:, None] + 0.5 * own.shape[1])
                for own in one_hot
            ]  # (C, bins)
            joint = np.log(weights + 1e-300) + sum(
                np.log(distribution)[:, code].T
                for distribution, code in zip(distributions, codes, strict=True)
            )
            value = np.logaddexp.reduce(joint, 1)
            posterior = np.exp(joint - value[:, None])
            if value.mean() - before < 1e-7:
                break
            before = value.mean()
        if best is None or value.mean() > best[0]:
            best = (float(value.mean()), weights, distributions)
    assert best is not None
    _, weights, distributions = best

    own = coded(test)
    joint = np.log(weights + 1e-300) + sum(
        np.log(distribution)[:, code].T
        for distribution, code in zip(distributions, own, strict=True)
    )
    apart = sum(
        np.log(weights @ distribution)[code]
        for distribution, code in zip(distributions, own, strict=True)
    )
    value = np.logaddexp.reduce(joint, 1)
    return Answer(value - apart, np.exp(joint - value[:, None]), weights)


def parametric(
    train: np.ndarray, test: np.ndarray, size: int, kinds: Sequence[int], seed: int
) -> Answer:
    """A mixture of normals and Bernoullis; marginals from rows of which all other columns are
    missing.
    """
    order = np.argsort(np.asarray(kinds) == 0, kind="stable")  # columns of two values first
    num_bits = int((np.asarray(kinds) > 0).sum())
    parts = [(Bernoulli(), num_bits), (Normal(), len(kinds) - num_bits)]
    used = [(family, count) for family, count in parts if count]
    distribution = used[0][0] if len(used) == 1 else Blocks(*used)
    result = fit(Mixture(size, distribution, len(kinds)), train[:, order], seed=seed)
    rows = test[:, order]
    ratio = result.log_likelihood_rows(rows)
    for j in range(len(kinds)):
        alone = np.full_like(rows, np.nan)
        alone[:, j] = rows[:, j]
        ratio = ratio - result.log_likelihood_rows(alone)
    (posterior,) = result.posterior_latents(rows).values()
    return Answer(ratio.numpy(), posterior.numpy(), result.params["weights"].numpy())


def rivals(
    table: np.ndarray,
    kinds: Sequence[int],
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
    starts: int,
) -> dict[str, Callable[[int], Answer]]:
    """By name: number of components -> answer."""
    edges = [
        (
            np.arange(1, size) - 0.5
            if size
            else np.unique(np.quantile(column, np.arange(1, BINS) / BINS))
        )
        for column, size in zip(table.T, kinds, strict=True)
    ]

    def kernels(method: KernelEM, size: int) -> Answer:
        found = kernel_em(train, size, method, seed)
        return Answer(
            found.log_ratio(test).numpy(), found.posterior(test).numpy(), found.weights.numpy()
        )

    return {
        "mixture": lambda size: parametric(train, test, size, kinds, seed),
        "latent_classes": lambda size: latent_classes(train, test, size, seed, edges),
        "npem": partial(kernels, KernelEM(num_restarts=starts)),
        "smoothed_npem": partial(kernels, KernelEM(smoothed=True, num_restarts=starts)),
    }


def errors(
    posterior: np.ndarray, weights: np.ndarray, truth: Any, test: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """How far an answer lies from the truth, its components in the order that agrees best; nothing
    where the truth is not known or has another size.
    """
    if truth is None or len(weights) != len(truth.weights):
        return {}
    exact = truth.aggregate(test)
    _, order = linear_sum_assignment(-(exact.T @ posterior))
    return {
        "weight_error": round(float(np.abs(weights[order] - truth.weights).max()), 4),
        "posterior_error": round(float(np.abs(posterior[:, order] - exact).mean()), 4),
        "accuracy": round(float((posterior[:, order].argmax(1) == labels).mean()), 4),
        "best_accuracy": round(float((exact.argmax(1) == labels).mean()), 4),
    }


def measure(args: argparse.Namespace) -> Lines:
    grid = range(2, args.largest + 1)
    method = TrainClassifiers(max_epochs=args.epochs)
    for name in args.examples:
        for seed in range(args.first_seed, args.first_seed + args.replicates):
            data, kinds, about, sample = _rows(name, args, seed)
            truth, labels = (
                (None, np.zeros(0)) if sample is None else (sample.truth, sample.components)
            )
            shared = kinds is None
            num_columns = [part.shape[1] for part in data] if shared else [1] * data.shape[1]
            networks = Dense((64, 64)) if name == "checkerboard" else Dense()
            family = partial(_family, tuple(num_columns), networks, shared)
            found, seconds = timed(
                partial(
                    saturation,
                    family,
                    data,
                    grid,
                    method,
                    args.restarts,
                    HELD_OUT,
                    not args.no_bound,
                    seed,
                )
            )
            own = {"example": name, "seed": seed, **about}
            num_rows = len(data[0]) if kinds is None else len(data)
            order = torch.randperm(
                num_rows, generator=torch.Generator().manual_seed(seed)
            ).numpy()  # the split of saturation
            held = max(2, round(HELD_OUT * num_rows))
            for size, cost, error in zip(found.sizes, found.costs, found.errors, strict=True):
                line = {
                    **own,
                    "method": "independent_classifiers",
                    "components": size,
                    "held_out_cost": round(cost, 5),
                    "error": round(error, 5),
                }
                if truth is not None and size == len(truth.weights):
                    result, test = found.fits[size], data[order[:held]]
                    posterior = result.posterior_latents(test)["components"].numpy()
                    line |= errors(
                        posterior,
                        result.params["weights"].numpy(),
                        truth,
                        test,
                        labels[order[:held]],
                    )
                yield line
            bound = None if found.bound is None else round(-found.bound.estimate, 5)
            bound_error = None if found.bound is None else round(found.bound.error, 5)
            yield {
                **own,
                "method": "independent_classifiers",
                "chosen": found.chosen,
                "bound": bound,
                "bound_error": bound_error,
                "saturated": found.is_saturated,
                "seconds": seconds,
            }
            if kinds is None:
                continue
            train, test = data[order[held:]], data[order[:held]]
            for rival, answer in rivals(data, kinds, train, test, seed, args.kernel_starts).items():
                costs = [torch.zeros(held, dtype=torch.float64)]
                for size in grid:
                    found_there, seconds = timed(partial(answer, size))
                    costs.append(-torch.as_tensor(found_there.ratio).double())
                    error = float(costs[-1].std()) / held**0.5
                    yield {
                        **own,
                        "method": rival,
                        "components": size,
                        "held_out_cost": round(float(costs[-1].mean()), 5),
                        "error": round(error, 5),
                        **errors(
                            found_there.posterior,
                            found_there.weights,
                            truth,
                            test,
                            labels[order[:held]] if truth is not None else labels,
                        ),
                        "seconds": seconds,
                    }
                yield {**own, "method": rival, "chosen": choose_components([1, *grid], costs)[0]}


def _family(num_columns: tuple[int, ...], networks: Dense, shared: bool, size: int) -> InClassNet:
    return InClassNet(num_columns, size, networks=networks, shared=shared)


def _rows(
    name: str, args: argparse.Namespace, seed: int
) -> tuple[Any, Sequence[int] | None, dict[str, Any], IndependentSample | None]:
    """Rows, the number of values of each column (0 for measurements; None for images), what is
    known of the truth, and the sample where it was simulated.
    """
    if name in SIMULATED:
        simulate, size = SIMULATED[name]
        sample = simulate(args.rows, seed)
        known = {
            "rows": args.rows,
            "true_components": size,
            "true_bound": round(-sample.truth.total_correlation(), 5),
        }
        return sample.data, [0] * sample.data.shape[1], known, sample
    if name == "digit_pairs":
        from sklearn.datasets import load_digits

        digits = load_digits()
        pairs = image_pairs(digits.images, digits.target, args.rows, largest=16.0, seed=seed)
        return (
            pairs.variates(),
            None,
            {
                "rows": args.rows,
                "true_components": 10,
                "true_bound_at_least": round(-float(np.log(10)), 5),
            },
            None,
        )
    table: MixedTable = TABLES[name]()
    return table.data, table.num_values, {"rows": len(table.data)}, None


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=1, threads=1)
    parser.add_argument("--examples", nargs="+", default=list(EXAMPLES), choices=EXAMPLES)
    parser.add_argument("--rows", type=int, default=20_000, help="of the simulated examples")
    parser.add_argument("--largest", type=int, default=8, help="number of components")
    parser.add_argument(
        "--restarts", type=int, default=4, help="of every fit of independent classifiers"
    )
    parser.add_argument("--kernel-starts", type=int, default=10, help="of the kernel rivals")
    parser.add_argument("--epochs", type=int, default=300, help="at most")
    parser.add_argument("--no-bound", action="store_true", help="leave the discriminator out")
    run(
        parser,
        measure,
        argv,
        {
            "examples": ["two_gaussians", "diabetes"],
            "rows": 300,
            "largest": 2,
            "restarts": 1,
            "kernel_starts": 2,
            "epochs": 3,
        },
    )


if __name__ == "__main__":
    main()

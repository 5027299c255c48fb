"""Do edges found by data splitting keep their promised error rate, and their intervals cover?

``split_inference`` on fresh rows of a fresh truth, at a nominal false share of 10 %. One line a
cell, means over data sets with their standard errors: ``false_share``, the share of false edges
among those kept (0 where none is); ``any_false_share`` the same under any dependence;
``chosen_false_share`` of the graph that half of the rows chose, without a test; ``power`` and
``chosen_power``, the shares of true edges kept and chosen; with ``--whole`` ``whole_false_share``
and ``whole_power`` of the plain fit to all rows; ``coverage_true`` and ``coverage_false`` of 95 %
intervals over the true and the false edges of the chosen graph; ``refused``, data sets without an
answer.

Cells: encoders of 15 items and three latents, one or two parents an item, whose loadings are
uniform on [.5, 2] (yes-no items; ``strong``: [1.5, 3]; Normal items with variance 1: [1.5, 3]),
with a chosen graph and with all edges tested (``every``); two layers (18; 6, 2); attributes without
a Q-matrix; noisy-OR networks of 12 items and three causes, failures uniform on [.1, .7]; graphs of
five attributes with three DINA items each, edges being adjacencies. Run: ``python
benchmarks/split_edges.py --cells encoder --rows 1000``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds, values_of
from attribute_networks import network_items

from inference import EM, fit
from inference.alignment import align
from inference.causal import discover_attributes
from inference.causal.graphs import pdag_of
from inference.causal.independence import strengths
from inference.causal.tables import Marginals, profiles
from inference.programs import simulate
from inference.selection import split_inference
from inference.selection.splitting import SplitInference, _adjusted
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    NoisyOr,
    Normal,
)
from ppl_models.datasets import strict_design

TARGET = 0.1
NUM_ITEMS, NUM_LATENTS = 15, 3


def tensor(values: Any) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def encoder_truth(seed: int, low: float, high: float, normal: bool) -> dict[str, torch.Tensor]:
    """Two items of each latent alone, the others with one or two latents."""
    rng = np.random.default_rng([seed, 1])
    loadings = np.zeros((NUM_ITEMS, NUM_LATENTS))
    for j in range(NUM_ITEMS):
        alone = j < 2 * NUM_LATENTS
        number = 1 if alone else rng.choice([1, 2], p=[0.6, 0.4])
        parents = [j % NUM_LATENTS] if alone else rng.choice(NUM_LATENTS, number, replace=False)
        size = rng.uniform((low + high) / 2 if alone else low, high, number)
        loadings[j, parents] = size * np.where(rng.random(number) < 0.8, 1, -1)
    out = {
        "loadings_1": tensor(loadings),
        "intercepts_1": tensor(-loadings.sum(1) / 2),
        "proportions": tensor(rng.uniform(0.35, 0.65, NUM_LATENTS)),
    }
    return out | ({"dispersion": tensor(np.ones(NUM_ITEMS))} if normal else {})


def network_truth(seed: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng([seed, 2])
    failure = np.ones((3, 12))
    for j in range(12):
        parents = [j % 3] if j < 6 else rng.choice(3, rng.choice([1, 2]), replace=False)
        failure[parents, j] = rng.uniform(0.1, 0.7 if j >= 6 else 0.4, len(parents))
    return {
        "prior": tensor(rng.uniform(0.2, 0.5, 3)),
        "failure": tensor(failure),
        "leak": tensor(rng.uniform(0.02, 0.1, 12)),
    }


def score(kept: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """False share and power of bool (children, parents)."""
    return {
        "false_share": float((kept & ~truth).sum() / max(kept.sum(), 1)),
        "power": float((kept & truth).sum() / truth.sum()),
    }


def summary(
    found: SplitInference,
    edges: Sequence[tuple[int, int, float]],
    truth: np.ndarray,
    whole: np.ndarray | None,
) -> dict[str, Any]:
    """Scores of one data set, ``edges``: child, parent and true value of each."""
    kept = np.zeros((3, *truth.shape), dtype=bool)
    any_dependence = _adjusted(found.edges, found.target, True)
    for edge, other, (j, k, _) in zip(found.edges, any_dependence, edges, strict=True):
        kept[:, j, k] = edge.kept, other.kept, True
    inside, outside = [0, 0], [0, 0]
    for edge, (j, k, value) in zip(found.edges, edges, strict=True):
        if np.isfinite(edge.low) and np.isfinite(value):
            own = inside if truth[j, k] else outside
            own[0] += edge.low <= value <= edge.high
            own[1] += 1
    out: dict[str, Any] = {"inside": inside, "outside": outside}
    for name, matrix in zip(("", "any_", "chosen_"), kept, strict=True):
        out |= {f"{name}{key}": value for key, value in score(matrix, truth).items()}
    if whole is not None:
        out |= {f"whole_{key}": value for key, value in score(whole, truth).items()}
    return out


def layered(
    model: Any, data: torch.Tensor, truth: dict[str, torch.Tensor], seed: int, with_whole: bool
) -> dict[str, Any]:
    """One data set of an encoder, attributes or a network; the first layer's edges."""
    method = EM() if getattr(model, "penalty", 0) is None else None
    found = split_inference(model, data, TARGET, method=method, seed=seed)
    is_network = "failure" in truth
    site = "failure" if is_network else "loadings_1" if "loadings_1" in truth else "loadings"
    values = truth[site].mT if is_network else truth[site]
    joined = (values < 1 if is_network else values != 0).numpy()
    whole = None
    if with_whole:
        whole = align(fit(model, data, method, seed=seed), truth).graphs[site].numpy() > 0
    matched = align(found.second, truth)
    latent = next(iter(matched.permutations))
    order, flips = matched.permutations[latent].tolist(), matched.flips[latent].tolist()
    new = {old: place for place, old in enumerate(order)}
    edges = []
    for edge in found.edges:
        if edge.site != site:
            continue
        j, k = int(edge.child), new[int(edge.parent.split()[-1])]
        value = float(values[j, k]) * (-1 if flips[k] else 1)
        edges.append((j, k, value if not is_network or value < 1 else np.nan))
    own = tuple(edge for edge in found.edges if edge.site == site)
    return summary(replace(found, edges=own), edges, joined, whole)


def attribute_table(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A DAG of five attributes with effects of 1 to 2 logits, and its table, (32,)."""
    rng = np.random.default_rng([seed, 3])
    size = 5
    dag = np.zeros((size, size), dtype=bool)
    bits = profiles(size)
    table = np.ones(len(bits))
    for k in range(size):
        parents = rng.choice(k, min(k, rng.choice([0, 1, 2], p=[0.2, 0.5, 0.3])), replace=False)
        dag[parents, k] = True
        effects = rng.choice([-1, 1], len(parents), p=[0.2, 0.8]) * rng.uniform(1, 2, len(parents))
        logit = (bits[:, parents] - 0.5) @ effects + rng.uniform(-0.3, 0.3)
        chance = 1 / (1 + np.exp(-logit))
        table *= np.where(bits[:, k] == 1, chance, 1 - chance)
    return dag, table


def causal(seed: int, rows: int, with_whole: bool) -> dict[str, Any]:
    """One data set of five attributes; edges are adjacencies, (smaller, larger)."""
    dag, table = attribute_table(seed)
    rng = np.random.default_rng([seed, 4])
    bits = profiles(5)[rng.choice(len(table), rows, p=table)]
    q_matrix, items = network_items(bits, rng, 0.1, 0.2)
    model = LatentAttributeModel(q_matrix, items="dina")
    found = split_inference(model, items, TARGET, seed=seed)
    assert found.graph is not None
    place = {name: k for k, name in enumerate(found.graph.names)}
    true, _, _ = strengths(pdag_of(found.graph.matrix), Marginals(table), 1e6, 0.05, 0.95)
    value = {edge.pair: edge.direct.information for edge in true}
    pairs = [sorted((place[edge.child], place[edge.parent])) for edge in found.edges]
    whole = None
    if with_whole:
        graph = discover_attributes(fit(model, items, seed=seed), items).causal.graph.matrix
        whole = np.triu(graph | graph.T)
    edges = [(i, k, value[i, k]) for i, k in pairs]
    return summary(found, edges, np.triu(dag | dag.T), whole)


def encoder(
    seed: int, rows: int, with_whole: bool, response: Any, low: float, high: float, every: bool
) -> dict[str, Any]:
    model = DeepDiscreteEncoder(NUM_ITEMS, (NUM_LATENTS,), response)
    wide = replace(model, penalty=None)
    truth = encoder_truth(seed, low, high, isinstance(response, Normal))
    data = simulate(wide, truth, seed, None, rows)["items"]
    return layered(wide if every else model, data, truth, seed, with_whole)


def estimated_q(seed: int, rows: int, with_whole: bool) -> dict[str, Any]:
    truth = encoder_truth(seed, 1.0, 2.5, False)
    wide = DeepDiscreteEncoder(NUM_ITEMS, (NUM_LATENTS,), penalty=None)
    data = simulate(wide, truth, seed, None, rows)["items"]
    bits = profiles(NUM_LATENTS)
    chances = truth["proportions"].numpy()
    own = {
        "profiles": tensor(np.where(bits == 1, chances, 1 - chances).prod(1)),
        "loadings": truth["loadings_1"],
        "intercepts": truth["intercepts_1"],
    }
    model = LatentAttributeModel(num_items=NUM_ITEMS, num_attributes=NUM_LATENTS)
    return layered(model, data, own, seed, with_whole)


def deep(seed: int, rows: int, with_whole: bool) -> dict[str, Any]:
    truth, model = strict_design(2), DeepDiscreteEncoder(18, (6, 2))
    data = simulate(model, truth, seed, None, rows)["items"]
    return layered(model, data, truth, seed, with_whole)


def network(seed: int, rows: int, with_whole: bool) -> dict[str, Any]:
    truth, model = network_truth(seed), NoisyOr(12, 3)
    data = simulate(model, truth, seed, None, rows)["items"]
    return layered(model, data, truth, seed, with_whole)


CELLS: dict[str, Callable[[int, int, bool], dict[str, Any]]] = {
    "encoder": partial(encoder, response=Bernoulli(), low=0.5, high=2.0, every=False),
    "encoder strong": partial(encoder, response=Bernoulli(), low=1.5, high=3.0, every=False),
    "encoder normal": partial(encoder, response=Normal(), low=1.5, high=3.0, every=False),
    "every": partial(encoder, response=Bernoulli(), low=0.5, high=2.0, every=True),
    "every normal": partial(encoder, response=Normal(), low=1.5, high=3.0, every=True),
    "deep": deep,
    "estimated q": estimated_q,
    "noisy-or": network,
    "causal": causal,
}


def replicate(cell: str, rows: int, with_whole: bool, seed: int) -> dict[str, Any]:
    """One data set of a cell; the reason where the library refuses to answer."""
    torch.set_num_threads(1)
    try:
        return CELLS[cell](seed, rows, with_whole)
    except ValueError as reason:
        return {"refused": str(reason)[:120]}


def ratio(pairs: np.ndarray) -> tuple[float | None, float | None]:
    """Covered over all, (sets, 2), and its standard error over data sets; None where none is."""
    covered, number = pairs.sum(0)
    if number == 0:
        return None, None
    rate = covered / number
    spread = (pairs[:, 0] - rate * pairs[:, 1]).std() * len(pairs) ** 0.5
    return float(rate), float(spread / number)


def lines(args: argparse.Namespace) -> Lines:
    """Line by line: a cell, a number of rows."""
    for cell in args.cells:
        for rows in args.rows:
            setting = {"cell": cell, "rows": rows, "with_whole": args.whole}
            runs = values_of(args, replicate, [{**setting, "seed": seed} for seed in seeds(args)])
            done = [value for value in runs if "refused" not in value]
            line: dict[str, Any] = {"cell": cell, "rows": rows, "replicates": len(done)}
            line["refused"] = Counter(value["refused"] for value in runs if "refused" in value)
            for name in sorted(done[0]) if done else ():
                values = np.array([value[name] for value in done], dtype=float)
                if name in ("inside", "outside"):
                    key = "coverage_true" if name == "inside" else "coverage_false"
                    line[key], line[f"{key}_error"] = ratio(values)
                    line[f"{key}_number"] = int(values[:, 1].sum())
                else:
                    values = values[~np.isnan(values)]  # graphs without an edge have no power
                    line[name] = values.mean()
                    line[f"{name}_error"] = values.std(ddof=1) / max(len(values), 1) ** 0.5
            yield {
                key: round(float(value), 4) if isinstance(value, float) else value
                for key, value in line.items()
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = command_line(__file__, __doc__, replicates=200, threads=1, jobs=True)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=list(CELLS), help="what")
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000], help="of all")
    parser.add_argument("--whole", action="store_true", help="fit all rows as well")
    run(parser, lines, argv, quick={"cells": ["every normal"], "rows": [300], "replicates": 2})


if __name__ == "__main__":
    main()

"""Graphs among many attributes: structural EM on items beside the same search on the attributes.

One JSON line a network: random DAGs with up to three parents an attribute and effects of 1 to 2
logits, four DINA items an attribute (two that ask for it alone, two for it and another), guess and
slip drawn from an interval, 5,000 rows. ``distance`` is the structural Hamming distance to the true
CPDAG, ``extra`` and ``missing`` are edges; ``climb`` the same of one hill climb by BIC on the true
attributes, ``ratio`` of the two distances; ``on_attributes`` that of the search that structural EM
does, on the true attributes; ``worth`` the rows with known attributes that the items are worth, and
``at_worth`` the distance of that search on so many rows of true attributes: what could be hoped
for. With ``--effects tables`` each state of the parents has a chance of its own, uniform on
.1 to .9, in the place of logistic regressions; ``tables`` is then what structural EM finds by
``score=BIC()``. With ``--bootstrap M`` the probabilities over as many replicates are scored:
``brier`` of edges and arrows over all pairs, and how many of those given .99 or more are true. With
``--bif`` the DAGs are those of published networks, read from files in that
format (the wheel of pgmpy 0.1.25 has ``alarm``, 37 nodes, Beinlich et al. 1989; ``hailfinder``, 56,
Abramson et al. 1996; ``win95pts``, 76); effects and items are drawn as of random ones. Run:
``python benchmarks/attribute_networks.py [--bif alarm.bif.gz]``.
"""

from __future__ import annotations

import argparse
import gzip
import re
import time
from collections.abc import Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference.causal import BIC, structural_em
from inference.causal.edges import EdgeProbabilities
from inference.causal.hill_climbing import RowScores, hill_climb, local_search
from inference.causal.knowledge import Constraints
from inference.causal.pdags import class_of, masks_of_columns
from inference.causal.scores import LogisticBIC
from ppl_models import Independent, LatentAttributeModel

NUM_PARENTS = (0.2, 0.4, 0.3, 0.1)  # chances of 0, 1, 2, 3
NOISE = ((0.15, 0.2), (0.28, 0.32))
EFFECTS = ("logistic", "tables")


def random_network(
    num_attributes: int, num_rows: int, rng: np.random.Generator, effects: str = EFFECTS[0]
) -> tuple[np.ndarray, np.ndarray]:
    """A DAG, bool (K, K), and attributes of rows drawn from it, (N, K)."""
    dag = np.zeros((num_attributes, num_attributes), dtype=bool)
    order = rng.permutation(num_attributes)
    bits = np.zeros((num_rows, num_attributes), dtype=np.uint8)
    for place, k in enumerate(order):
        number = min(place, int(rng.choice(len(NUM_PARENTS), p=NUM_PARENTS)))
        parents = rng.choice(order[:place], number, replace=False)
        dag[parents, k] = True
        bits[:, k] = child(bits[:, parents], rng, effects)
    return dag, bits


def child(parents: np.ndarray, rng: np.random.Generator, effects: str) -> np.ndarray:
    """An attribute drawn from its parents, (N, P), by a logistic regression or a table, (N,)."""
    num_rows, number = parents.shape
    if effects == "tables" and number:
        table = rng.uniform(0.1, 0.9, 2**number)
        return np.asarray(rng.random(num_rows) < table[parents @ (1 << np.arange(number))])
    signs = rng.choice([-1, 1], number, p=[0.2, 0.8])
    logits = (parents - 0.5) @ (signs * rng.uniform(1, 2, number))
    chance = 1 / (1 + np.exp(-logits - rng.uniform(-0.3, 0.3)))
    drawn: np.ndarray = rng.random(num_rows) < chance
    return drawn


def published_network(
    path: Path, num_rows: int, rng: np.random.Generator, effects: str = EFFECTS[0]
) -> tuple[np.ndarray, np.ndarray]:
    """The DAG of a file in the interchange format BIF, and attributes drawn from it."""
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
    found = re.findall(r"probability \(\s*(\S+?)\s*(?:\|([^)]*))?\)", text)
    parents = {
        name: [own.strip() for own in given.split(",") if own.strip()] for name, given in found
    }
    names = list(TopologicalSorter(parents).static_order())
    dag = np.zeros((len(names), len(names)), dtype=bool)
    bits = np.zeros((num_rows, len(names)), dtype=np.uint8)
    for k, name in enumerate(names):
        dag[[names.index(own) for own in parents[name]], k] = True
        bits[:, k] = child(bits[:, dag[:, k]], rng, effects)
    return dag, bits


def network_items(
    bits: np.ndarray, rng: np.random.Generator, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Q-matrix (3K, K) and answers of DINA items, guess and slip uniform on an interval."""
    size = bits.shape[1]
    ring = rng.permutation(size)
    pairs = np.zeros((size, size), dtype=int)
    pairs[np.arange(size), ring] = pairs[np.arange(size), np.roll(ring, 1)] = 1
    q_matrix = np.concatenate([np.eye(size, dtype=int), np.eye(size, dtype=int), pairs])
    masters = bits @ q_matrix.T == q_matrix.sum(1)
    guess, slip = rng.uniform(low, high, (2, len(q_matrix)))
    chance = np.where(masters, 1 - slip, guess)
    return q_matrix, (rng.random(chance.shape) < chance).astype(float)


def distances(found: np.ndarray, truth: np.ndarray) -> dict[str, int]:
    """Pairs whose mark differs, and edges too many and too few, of two CPDAGs."""
    ours, theirs = np.triu(found | found.T), np.triu(truth | truth.T)
    differs = np.triu((found != truth) | (found != truth).T)
    return {
        "distance": int(differs.sum()),
        "extra": int((ours & ~theirs).sum()),
        "missing": int((theirs & ~ours).sum()),
    }


def on_attributes(bits: np.ndarray, truth: np.ndarray, climb: bool = False) -> dict[str, int]:
    """What the same search, or one climb by BIC, finds on the true attributes."""
    known = Constraints.none(bits.shape[1])
    if climb:
        parents, _ = hill_climb(RowScores(bits, len(bits), BIC()), known)
    else:
        scores = RowScores(bits, len(bits), LogisticBIC())
        parents, _ = local_search(scores, known, [None], np.random.default_rng(0))
    return distances(class_of(parents).matrix, truth)


def calibration(found: EdgeProbabilities, truth: np.ndarray) -> dict[str, Any]:
    """Brier scores of probabilities over replicates, and [true, all] of what is given .99."""
    pairs, others = np.triu_indices(len(truth), 1), ~np.eye(len(truth), dtype=bool)
    out: dict[str, Any] = {}
    for name, chance, right in (
        ("edges", found.adjacent[pairs], (truth | truth.T)[pairs]),
        ("arrows", found.arrow[others], (truth & ~truth.T)[others]),
    ):
        sure = chance >= 0.99
        out[f"brier_{name}"] = float(((chance - right) ** 2).mean())
        out[f"sure_{name}"] = [int(right[sure].sum()), int(sure.sum())]
    return out


def lines(args: argparse.Namespace) -> Lines:
    """Line by line: a size or published network, an interval of noise, a replicate."""
    for source in args.bif or args.attributes:
        for low, high in NOISE:
            for seed in seeds(args):
                if isinstance(source, Path):
                    rng = np.random.default_rng([len(source.name), seed])
                    dag, bits = published_network(source, args.rows, rng, args.effects)
                else:
                    rng = np.random.default_rng([source, seed])
                    dag, bits = random_network(source, args.rows, rng, args.effects)
                q_matrix, items = network_items(bits, rng, low, high)
                truth = class_of(masks_of_columns(dag)).matrix
                model = LatentAttributeModel(q_matrix, items="dina", root=Independent())
                clock = time.process_time()
                found = structural_em(model, items, num_replicates=args.bootstrap, seed=seed)
                seconds = time.process_time() - clock
                ours = distances(found.graph.matrix, truth)
                climb = on_attributes(bits, truth, climb=True)
                more = {}
                if args.effects == "tables":
                    by_tables = structural_em(model, items, score=BIC(), seed=seed)
                    more = {"tables": distances(by_tables.graph.matrix, truth)}
                if found.probabilities is not None:
                    more |= calibration(found.probabilities, truth)
                yield {
                    "network": source.name.split(".")[0] if args.bif else "random",
                    "effects": args.effects,
                    "attributes": len(dag),
                    "noise": [low, high],
                    "rows": args.rows,
                    "seed": seed,
                    "edges": int(dag.sum()),
                    **ours,
                    "climb": climb,
                    "ratio": ours["distance"] / max(climb["distance"], 1),
                    "on_attributes": on_attributes(bits, truth),
                    "worth": round(found.worth),
                    "at_worth": on_attributes(bits[: round(found.worth)], truth),
                    "cycles": found.num_cycles,
                    "processor_seconds": seconds,
                    **more,
                }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = command_line(__file__, __doc__, replicates=3, threads=1)
    parser.add_argument(
        "--attributes", type=int, nargs="+", default=[37, 50, 100], help="sizes of networks"
    )
    parser.add_argument("--rows", type=int, default=5000, help="of items (by default 5000)")
    parser.add_argument("--effects", choices=EFFECTS, default=EFFECTS[0], help="of parents")
    parser.add_argument("--bootstrap", type=int, default=0, metavar="M", help="replicates")
    parser.add_argument("--bif", type=Path, nargs="+", help="files of published networks")
    run(parser, lines, argv, quick={"attributes": [8], "rows": 500, "replicates": 1})


if __name__ == "__main__":
    main()

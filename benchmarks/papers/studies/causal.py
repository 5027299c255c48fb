"""Tables of the manuscript on causal discovery of latent attributes.

Five attributes, twenty Normal items, Q known (three identity blocks and one band) or left to the
plain call and its attributes matched to the true ones. Numbers are percentages of data sets whose
graph, as an equivalence class, is the true one. Protocol "paper": methods 1 to 6
(:mod:`papers.profile_counts`) of a fit by the library, greedy search, the manuscript's scores:
"BDeu legacy" (an edge costs log(N' - 2) nats, as causal-learn had it until December 2025) and "BIC
Gaussian" (of a linear model of the bits, an edge costs log N'). Protocol "ours": the fitted table
at its effective number of rows, searched as ``discover_attributes`` does; beside methods that know
no true profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from inference import fit
from inference.causal import BIC, GES, BDeu, ExactSearch, cpdag_of, dag_of_edges
from inference.causal.of_fit import profile_posterior
from inference.causal.rows import effective_rows
from inference.causal.tables import dag_table, profiles
from papers.cells import Cell, Setting, Study, Table, percent_error, published, repeated
from papers.profile_counts import (
    classified_counts,
    drawn_counts,
    profile_counts,
    redrawn_counts,
    rounded_counts,
    scaled_counts,
)
from ppl_models import LatentAttributeModel, Normal

NAME = "latent_attributes"
VERSION = 1  # raised where numbers have changed
RUNS = 10  # of a replicate
OURS = ("table at N", "table at its effective rows")
AS_PUBLISHED = {"BDeu": "BDeu legacy", "BIC": "BIC Gaussian"}
WITHOUT_TRUTH = ("1", "2", "3")  # methods that know no true profile


@dataclass(frozen=True)
class GaussianBIC:
    """The BIC of a linear Gaussian model of the bits, with the manuscript's price of an edge: log
    n.
    """

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        bits, shares = (
            profiles(size).astype(float),
            counts / num_rows,
        )  # (2^size, size), (..., 2^size)
        mean = shares @ bits
        covariance = (
            np.einsum("...c,ci,cj->...ij", shares, bits, bits)
            - mean[..., :, None] * mean[..., None, :]
        )
        value: np.ndarray = (
            -0.5 * num_rows * np.linalg.slogdet(covariance)[1]
            - math.log(num_rows) * size * (size - 1) / 2
        )
        return value


SCORES: dict[str, Callable[[float], Any]] = {
    "BDeu": lambda rows: BDeu(),
    "BDeu log 3": lambda rows: BDeu(edge_penalty=math.log(3)),
    "BIC": lambda rows: BIC(),
    "BDeu legacy": lambda rows: BDeu(edge_penalty=math.log(rows - 2)),
    "BIC Gaussian": lambda rows: GaussianBIC(),
}


def structure(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The DAG and the table of one of the manuscript's structures."""
    record = published(NAME)["structures"][name]
    dag = dag_of_edges(5, [(i - 1, j - 1) for i, j in record["edges"]])
    chances = [np.full((2,) * int(dag[:, k].sum()), np.nan) for k in range(5)]
    for k, chance in record["root"].items():
        chances[int(k) - 1] = np.array(chance)
    for label, chance in record["conditional"].items():
        child, given = label.split("|")
        chances[int(child) - 1][tuple(int(part.split("=")[1]) for part in given.split(","))] = (
            chance
        )
    return dag, dag_table(dag, chances)


def design() -> np.ndarray:
    """Q, (20, 5)."""
    own = np.eye(5)
    return np.concatenate([own, own, own, own + np.eye(5, k=1) + np.eye(5, k=-1)]).astype(int)


def fitted(answers: torch.Tensor, q: np.ndarray | None, seed: int) -> Any:
    """The plain call with Q, or without."""
    model = (
        LatentAttributeModel(q, Normal())
        if q is not None
        else LatentAttributeModel(response=Normal(), num_attributes=5, num_items=answers.shape[1])
    )
    return fit(model, answers, seed=seed)


def matched(posterior: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The posterior (N, 32) with attributes in the order, and of the orientation, of the true
    profiles (N, 5).
    """
    chances = posterior @ profiles(5)  # (N, 5)
    alike = np.corrcoef(true.T, chances.T)[:5, 5:]
    order = linear_sum_assignment(-np.abs(alike))[1]
    codes = profiles(5) != (
        alike[range(5), order] < 0
    )  # the estimate's bits of each true profile, its attributes in our order
    back = np.empty_like(codes)
    back[:, order] = codes
    return posterior[:, back @ (1 << np.arange(4, -1, -1))]


def tables(
    name: str, num_rows: int, claims: Sequence[int], known: bool, seed: int
) -> tuple[dict[tuple[str, int], tuple[np.ndarray, float]], dict[str, float]]:
    """By way and N' / N: a table and the rows that it is said to be worth; and how good the fit
    is.
    """
    rng, q = np.random.default_rng(seed), design()
    true = profiles(5)[rng.choice(32, num_rows, p=structure(name)[1])]
    answers = torch.from_numpy(
        -1 + true @ (3 * q / q.sum(1, keepdims=True)).T + rng.standard_normal((num_rows, len(q)))
    )
    posterior = profile_posterior(fitted(answers, q if known else None, seed), answers).posterior
    if not known:
        posterior = matched(posterior, true)
    table = posterior.mean(0)
    worth = effective_rows(posterior, table).num_rows
    counts = {("3", 1): classified_counts(posterior), ("6", 1): profile_counts(true)}
    for times in claims:
        claimed = times * num_rows
        counts["1", times] = rounded_counts(table, claimed)
        counts["2", times] = drawn_counts(table, claimed, seed)
        counts["4", times] = scaled_counts(true, claimed)
        counts["5", times] = redrawn_counts(true, claimed, seed)
    made = {key: (value / value.sum(), float(value.sum())) for key, value in counts.items()}
    made[OURS[0], 1] = (table, float(num_rows))
    made[OURS[1], 1] = (table, worth)
    places = true @ (1 << np.arange(4, -1, -1))
    return made, {
        "classified": float((posterior.argmax(1) == places).mean()),
        "effective_share": worth / num_rows,
    }


def is_right(name: str, way: str, table: np.ndarray, worth: float, score: str) -> bool:
    """Whether the graph that a score chooses on a table is the true one."""
    search = ExactSearch() if way in OURS else GES()
    graph = search.best(table, worth, SCORES[score](worth)).graph
    return bool(np.array_equal(graph.matrix, cpdag_of(structure(name)[0]).matrix))


def replicate(structure: str, num_rows: int, q: str, runs: int, seed: int) -> dict[str, Any]:
    """Whether the graph is the true one: of each way, N' / N and score that the manuscript has of
    the setting, and ours.
    """
    wanted = sorted(
        {
            (way, times, AS_PUBLISHED[score])
            for _, *own, way, times, score, _ in published_cells()
            if own == [structure, num_rows, q]
        }
    )
    claims = sorted({times for _, times, _ in wanted})

    def one(seed: int) -> dict[str, float]:
        made, _ = tables(structure, num_rows, claims, q == "known", seed)
        return {
            entry(way, times, score): int(is_right(structure, way, *made[way, times], score))
            for way, times, score in [*wanted, (OURS[1], 1, "BDeu")]
        }

    return repeated(one, runs, seed)


def entry(way: str, times: int, score: str) -> str:
    """The name of a number of a replicate."""
    return f"{way}, {times}N, {score}"


def published_cells() -> Iterator[tuple[str, str, int, str, str, int, str, float]]:
    """Table, structure, rows, whether Q is known, way, N' / N, score and percentage of each."""
    record = published(NAME)["published"]
    blocks: list[tuple[str, str, int, str, str, dict[str, Any]]] = []
    for name in ("1", "2"):
        block = record[f"structure_{name}_200_replicates_BDeu"]
        blocks.append((f"structure {name}", name, 2000, "known", "BDeu", block))
    for label, block in record["structure_3_100_replicates"].items():
        rows, score = label.removeprefix("N=").split()
        blocks.append(("structure 3", "3", int(rows), "known", score, block))
    growing = record["structure_2_growing_N_200_replicates"]
    for place, rows in enumerate(growing["num_rows"]):
        own = {key: value[place] for key, value in growing.items() if key != "num_rows"}
        blocks.append(("structure 2, growing N", "2", rows, "known", "BDeu", own))
    for label, block in record["q_estimated_200_replicates"].items():
        name, rows = label.removeprefix("structure_").split(" N=")
        blocks.append(("Q estimated", name, int(rows), "estimated", "BDeu", block))
    for table, name, rows, q, score, block in blocks:
        for label, value in block.items():
            ways, _, claimed = label.partition(" N'=")
            if claimed.endswith("N"):
                times = int(claimed[:-1] or 1)
            else:
                times = int(claimed) // rows if claimed else 1
            both = value if isinstance(value, list) else [value]
            for way, percent in zip(ways.split(" / "), both, strict=True):
                yield table, name, rows, q, way, times, score, float(percent)


def _tables() -> Iterator[Table]:
    cells = list(published_cells())
    for caption in dict.fromkeys(table for table, *_ in cells):
        out = []
        for table, name, rows, q, way, times, score, percent in cells:
            if table != caption:
                continue
            replicates = 100 if name == "3" and q == "known" else 200
            setting = Setting(
                NAME,
                {
                    "structure": name,
                    "num_rows": rows,
                    "q": q,
                    "runs": RUNS,
                },
                replicates,
                RUNS * 0.1 * (1 + rows / 2000),
                VERSION,
            )
            label = f"method {way}" + (f", N' = {times}N" if times > 1 else "")
            column = f"N = {rows}, {score}"
            if table == "Q estimated":
                column = f"structure {name}, N = {rows}"
            number, settings = {"paper": entry(way, times, AS_PUBLISHED[score])}, {"paper": setting}
            if way in WITHOUT_TRUTH and times == 1:
                number["ours"], settings["ours"] = entry(OURS[1], 1, "BDeu"), setting
            error = percent_error(percent, replicates)
            out.append(
                Cell(label, column, number, percent, settings, "percent", error=error, digits=1)
            )
        yield Table(caption, "percentage of data sets whose graph is the true one", out)


STUDY = Study(
    NAME,
    "Causal discovery for latent attributes, manuscript of November 2024",
    "Paper: methods 1 to 6 with the manuscript's scores and greedy search, on the library's fit."
    " Ours: the fitted table at its effective number of rows, BDeu, exact search.",
    tuple(_tables()),
    replicate,
)

"""Graphs of causes: tables of profiles, sound and odd, and the questions that are asked of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from fuzz import oracle
from fuzz.draw import Draw
from papers.profile_counts import profile_counts, redrawn_counts, rounded_counts, scaled_counts

from inference.causal import (
    BIC,
    GES,
    BDeu,
    ExactSearch,
    compare_graphs,
    cpdag_of,
    dag_of_edges,
    discover,
    edge_probabilities,
    pc,
)
from inference.causal.graphs import consistent_extension, shd, topological_order
from inference.causal.rows import dirichlet_tables, effective_rows, imputed_tables, resampled_tables
from inference.identifiability import check_graph


def table_of(draw: Draw) -> Any:
    """Probabilities of profiles of up to four attributes, in the forms that users have them; now
    and then no table at all.
    """
    num = draw.choice((1, 2, 2, 3, 3, 4))
    table: Any = draw.rng.dirichlet(np.full(2**num, draw.choice((0.05, 1.0, 1.0, 50.0))))
    what = draw.integer(0, 13)
    if what == 0:
        table = table * draw.choice((0.5, 100.0, 1e300, 1e-300, -1.0, 0.0))
    elif what == 1:
        table[draw.integer(0, len(table) - 1)] = draw.choice((math.nan, math.inf, -0.1, 0.0, 1.0))
    elif what == 2:
        table = table[:-1]
    elif what == 3:
        table = np.eye(len(table))[draw.integer(0, len(table) - 1)]
    elif what == 4:
        table = np.full(len(table), 1.0 / len(table))
    forms = (
        lambda x: x,
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: torch.from_numpy(np.array(x)),
        lambda x: x.astype(np.float32),
        lambda x: x[None],
        lambda x: x.reshape((2,) * num) if len(x) == 2**num else x,
        lambda x: draw.hostile(),
    )
    return forms[draw.integer(0, 7) if draw.chance(0.5) else 0](table)


def rows_of(draw: Draw, num: int) -> np.ndarray:
    """Posterior probabilities of profiles, row by row."""
    return draw.rng.dirichlet(np.full(2**num, draw.choice((0.05, 1.0))), draw.choice((1, 2, 8, 20)))


def graph_of(draw: Draw) -> Any:
    """The adjacency matrix of a DAG, most often; with a circle, a loop or a half-edge now and
    then.
    """
    num = draw.integer(1, 4)
    matrix = np.triu(draw.rng.random((num, num)) < 0.5, 1).astype(int)
    if draw.chance(0.2):
        matrix[tuple(draw.integer(0, num - 1) for _ in range(2))] = draw.choice((1, -1, 2))
    if draw.chance(0.05):
        return [matrix] * draw.integer(1, 3) + [matrix[:1], matrix[:, :1]][: draw.integer(0, 2)]
    return draw.hostile() if draw.chance(0.05) else matrix.tolist() if draw.chance(0.2) else matrix


def _odd(draw: Draw, plain: Any) -> Any:
    return draw.hostile() if draw.chance(0.15) else plain


def _few(value: Any) -> Any:
    """A number of draws that fits into memory."""
    return 3 if isinstance(value, int) and value > 50 else value


def _score(draw: Draw) -> Any:
    return _odd(draw, draw.choice((None, BDeu(), BIC(), BDeu(draw.choice((0.1, 10.0, 1e-9, 1e9))))))


def _search(draw: Draw) -> Any:
    return _odd(
        draw, draw.choice((None, ExactSearch(), ExactSearch(draw.integer(0, 3)), GES(), GES(False)))
    )


def _discover(draw: Draw) -> None:
    draws = draw.rng.dirichlet(np.ones(8), 5) if draw.chance(0.3) else None
    found = discover(
        table_of(draw),
        _odd(draw, draw.choice((1.0, 50, 1000.0, 1e9))),
        score=_score(draw),
        search=_search(draw),
        draws=_odd(draw, draws),
        draw_rows=_odd(draw, None),
        level=_odd(draw, 0.05),
        confidence=_odd(draw, 0.9),
        names=_odd(draw, None),
    )
    oracle.finite("score", float(found.score))
    oracle.require("nan" not in found.text().lower(), f"NaN in the words: {found.text()}")
    if found.probabilities is not None:
        oracle.probabilities(
            "edges", torch.as_tensor(np.asarray(found.probabilities.adjacent)), False
        )


def _pc(draw: Draw) -> None:
    found = pc(
        table_of(draw),
        _odd(draw, 200.0),
        level=_odd(draw, 0.05),
        max_given=_odd(draw, None),
        names=_odd(draw, None),
    )
    oracle.require(
        bool(np.isin(np.asarray(found.graph.matrix), (0, 1)).all()), "a graph of zeros and ones"
    )


def _edges(draw: Draw) -> None:
    found = edge_probabilities(
        np.stack([draw.rng.dirichlet(np.ones(8)) for _ in range(3)]),
        _odd(draw, 50.0),
        score=_score(draw),
        search=_search(draw),
    )
    oracle.probabilities("edges", torch.as_tensor(np.asarray(found.adjacent)), False)


def _worth(draw: Draw) -> None:
    posterior = rows_of(draw, draw.integer(1, 3))
    found = effective_rows(posterior if draw.chance(0.8) else draw.hostile(), _odd(draw, None))
    oracle.finite("rows", float(found.num_rows))


def _tables(draw: Draw) -> None:
    posterior: Any = rows_of(draw, draw.integer(1, 3))
    how = draw.choice((imputed_tables, resampled_tables))
    found = how(_odd(draw, posterior), _odd(draw, None), _few(_odd(draw, 3)), _odd(draw, 0))
    oracle.probabilities("tables", torch.from_numpy(found), True)


def _dirichlet(draw: Draw) -> None:
    found = dirichlet_tables(
        table_of(draw), _odd(draw, 30.0), _few(_odd(draw, 4)), _odd(draw, 1), _odd(draw, 1.0)
    )
    oracle.probabilities("tables", torch.from_numpy(found), True)


def _counts(draw: Draw) -> None:
    rows = (draw.rng.random((draw.integer(1, 9), draw.integer(1, 3))) < 0.5).astype(int)
    counted = profile_counts(_odd(draw, rows))
    oracle.require(counted.sum() == len(rows), "counts of all rows")
    for made in (
        scaled_counts(_odd(draw, rows), _odd(draw, 40)),
        redrawn_counts(_odd(draw, rows), _odd(draw, 40)),
        rounded_counts(table_of(draw), _odd(draw, 40)),
    ):
        oracle.require(bool(np.isfinite(made).all() and (made >= 0).all()), f"counts {made}")


def _graphs(draw: Draw) -> None:
    graph, other = graph_of(draw), graph_of(draw)
    topological_order(graph)
    found = cpdag_of(graph)
    oracle.require(
        shd(found, cpdag_of(np.asarray(consistent_extension(found)))) == 0,
        "the class of an extension",
    )
    compare_graphs(found, other)
    dag_of_edges(_odd(draw, 3), _odd(draw, [(0, 1), (draw.integer(0, 3), draw.integer(0, 3))]))


def _identified(draw: Draw) -> None:
    """A graph of items and latents, which is none now and then."""
    graph = (draw.rng.random((draw.integer(1, 6), draw.integer(1, 3))) < 0.6).astype(int)
    loadings = draw.choice((None, graph * 0.5, graph_of(draw)))
    asked = draw.choice(
        (graph, graph_of(draw), [graph, graph], [graph, graph[:1]], _odd(draw, graph))
    )
    check_graph(
        asked,
        loadings,
        bottom=draw.choice(("additive", "additive", "dina", "gdm", "x")),
        predictors=_odd(draw, None),
    )


QUESTIONS = (
    _discover,
    _discover,
    _discover,
    _pc,
    _edges,
    _worth,
    _tables,
    _dirichlet,
    _counts,
    _graphs,
    _graphs,
    _identified,
    _identified,
)


def causes(draw: Draw) -> bool:
    """A question of :mod:`inference.causal`."""
    draw.choice(QUESTIONS)(draw)
    return True

r"""Rivals of an edge among attributes: an item of one of them that asks for the other too.

Two attributes look dependent where an item that is said to ask for one asks for both. Beside an
edge i -> j, the model without it is extended by one coefficient in two ways, and both are judged by
the score test of the observed data there: by an effect of i on the log-odds of j given its other
parents, and by an effect of the other attribute on the predictor of one item. With
:math:`u_n(a)` the complete-data score of the coefficient and :math:`v_n(a)` those of what it is
confounded with (the table of j; intercept and loadings of the item), :math:`s_n` and :math:`t_n`
their means over the attributes given row n,

.. math:: T = \frac{(\sum_n s_n - S_{st} S_{tt}^{-1} \sum_n t_n)^2}{S_{ss} - S_{st} S_{tt}^{-1}
    S_{ts}}, \quad S_{st} = \sum_n s_n t_n^\top ,

and :math:`T / 2` is about the log-likelihood that the coefficient gains. Means are over M draws
under the graph with the edge, weighted by what the table of j without i makes of them, and S is the
cross-product of two halves of the draws, whose noise is independent.

Source: C. R. Rao (1948), doi:10.1017/S0305004100023987. The comparison is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inference.base.structure import Problem, draw_steps_of
from inference.causal.pdags import members
from inference.programs.program import Params
from inference.structures.layers.gibbs import predictor

CLEAR = 3.0  # nats between two gains, below which neither is preferred
SMOOTH = 0.5  # added to each cell of a table
RIDGE = 1e-9


@dataclass(frozen=True)
class ItemAlternative:
    """An edge, and the item whose asking for both attributes would explain most of it.

    Args:
        pair: (cause, effect).
        item: its name; "" where every item of the two asks for both.
        edge_gain, item_gain: of either coefficient over none, nats.
    """

    pair: tuple[int, int]
    item: str
    edge_gain: float
    item_gain: float

    @property
    def disputed(self) -> bool:
        """Item that explains the dependence as well, or better, by three nats or less."""
        return self.item_gain > self.edge_gain - CLEAR

    def text(self) -> str:
        """Comparison in words."""
        if not self.item:
            return "no item of the two can ask for both"
        return (
            f"the edge gains {self.edge_gain:.1f} nats, item {self.item} that asks for both"
            f" {self.item_gain:.1f}{' (disputed)' if self.disputed else ''}"
        )


def item_alternatives(
    problem: Problem, params: Params, bits: np.ndarray, parents: Sequence[int]
) -> tuple[ItemAlternative, ...]:
    """Rivals of every edge of a DAG; none for items whose predictors are several.

    Args:
        problem: attributes and their items.
        params: estimates, without leading dims.
        bits: draws of the attributes of all rows, (M, N, K), M at least 2.
        parents: of each attribute in the DAG.
    """
    steps = draw_steps_of(problem.structure, problem)
    layer = problem.structure.layers[0]
    plain = layer.items is None and not any(part.tabled for part in layer.parts())
    if steps is None or not plain or not hasattr(steps.gibbs, "statistic"):
        return ()
    asks = problem.structure.graphs(params)[layer.loadings].bool().cpu().numpy()
    residual = _residuals(steps.gibbs, params, bits)
    found = []
    for j, mask in enumerate(parents):
        for i in members(mask):
            rest = members(mask & ~(1 << i))
            weights, table, edge = _without(bits, i, j, rest)
            gain = _gain(edge, table, weights)
            best, name = 0.0, ""
            for item, other in _candidates(asks, i, j):
                own = residual[:, item]
                used = [own] + [own * bits[:, :, k] for k in np.flatnonzero(asks[item])]
                value = _gain(own * bits[:, :, other], [*table, *used], weights)
                if not name or value > best:
                    best, name = value, problem.item_names[item]
            found.append(ItemAlternative((i, j), name, gain, best))
    return tuple(found)


def _candidates(asks: np.ndarray, i: int, j: int) -> Iterator[tuple[int, int]]:
    """Items that ask for one of two attributes, and the other of these."""
    for own, other in ((i, j), (j, i)):
        for item in np.flatnonzero(asks[:, own] & ~asks[:, other]):
            yield int(item), other


def _residuals(gibbs: Any, params: Params, bits: np.ndarray) -> np.ndarray:
    """Answers less their means given each draw, (M, J, N), zero where missing."""
    layer = gibbs.layers[0]
    lead = {name: value.unsqueeze(0) for name, value in params.items()}
    out = []
    for drawn in bits:
        latents = {layer.parent: torch.from_numpy(drawn.T.copy())[None].to(gibbs.statistic)}
        eta = predictor(layer, lead, latents)[0]
        mean = torch.empty_like(eta)
        for family, columns, _ in layer.response.blocks(len(eta)):
            mean[columns] = family.mean(eta[columns])
        mask = 1.0 if gibbs.mask is None else gibbs.mask
        out.append((gibbs.statistic - mean * mask).cpu().numpy())
    return np.stack(out)


def _without(
    bits: np.ndarray, i: int, j: int, rest: Sequence[int]
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Weights of draws if i were no parent of j, scores of j's table, and of the edge, (M, N)."""
    codes = np.zeros(bits.shape[:2], dtype=np.int64)
    for k in rest:
        codes = 2 * codes + bits[:, :, k]
    wide = 2 * codes + bits[:, :, i]

    def chances(states: np.ndarray, number: int) -> np.ndarray:
        cells = np.bincount((2 * states + bits[:, :, j]).ravel(), minlength=2 * number)
        on, all_rows = cells.reshape(-1, 2)[:, 1], cells.reshape(-1, 2).sum(1)
        chance: np.ndarray = ((on + SMOOTH) / (all_rows + 2 * SMOOTH))[states]
        return chance

    number = 2 ** len(rest)
    narrow, full = chances(codes, number), chances(wide, 2 * number)
    child = bits[:, :, j]
    weights = np.where(child == 1, narrow / full, (1 - narrow) / (1 - full))
    left = child - narrow
    return weights, [left * (codes == code) for code in range(number)], left * bits[:, :, i]


def _gain(target: np.ndarray, nuisance: Sequence[np.ndarray], weights: np.ndarray) -> float:
    """Half the score statistic of a coefficient, from complete-data scores (M, N)."""
    total = weights.mean(0)
    half = len(weights) // 2
    scores = np.stack([target, *nuisance])
    parts = [
        (scores[:, draws] * weights[draws]).mean(1) / total
        for draws in (slice(0, half), slice(half, None))
    ]
    sums = (half * parts[0] + (len(weights) - half) * parts[1]).sum(1) / len(weights)
    cross = parts[0] @ parts[1].T
    cross = (cross + cross.T) / 2
    inner = cross[1:, 1:]
    inner = inner + RIDGE * max(float(np.trace(inner)), RIDGE) * np.eye(len(inner))
    slope = np.linalg.solve(inner, cross[1:, 0])
    information = cross[0, 0] - slope @ cross[1:, 0]
    if not information > RIDGE * cross[0, 0]:
        return 0.0
    return float((sums[0] - slope @ sums[1:]) ** 2 / information / 2)

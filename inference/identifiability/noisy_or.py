r"""Anchors of noisy-OR latents: which latents the moments of the items determine, one by one.

With causes of prior :math:`\pi_i`, failures :math:`f_{ij}` (1 for no edge) and leaks :math:`l_j`
the probability that all items of a set S are zero is

.. math:: P(x_S = 0) = \prod_{j \in S} (1 - l_j) \prod_i M_i(S), \qquad
    M_i(S) = 1 - \pi_i + \pi_i \prod_{j \in S} f_{ij}.

An *anchor* of latent i is an item that no other latent switches on. Given the graph (the edges),

* **triple**: three items of i, no two of which share another latent, are independent given
  :math:`h_i`, so they are a latent class model of two classes, which determines :math:`\pi_i` and
  the three failures; f < 1 says which class is "on". Three anchors are such a triple;
* **extension**: with :math:`\pi_i` and one :math:`f_{ia} < 1` known, :math:`P(x_a = x_c = 0) /
  P(x_a = 0) P(x_c = 0)` falls strictly in :math:`f_{ic}`, for an item c that shares no other latent
  with a, and so determines it;
* **subtraction**: a latent whose prior and failures are known for the items of S is divided out of
  :math:`P(x_S = 0)`, so that items which share it no longer share anything.

The three are repeated until nothing is added. A latent with one or two items is *not determined*,
whatever the rest: its three numbers enter through the ratios :math:`M_i(S) / \prod_{j \in S}
M_i(\{j\})` alone, for the leaks absorb the rest, and two items have one such ratio. What neither
shows is left open.

Sources: Y. Halpern and D. Sontag (2013), arXiv:1309.6834 (singly coupled triples, quartets, which
also find the graph); Y. Jernite, Y. Halpern and D. Sontag (2013), Discovering hidden variables in
noisy-or networks using quartet tests (subtraction). Extension by one item and the proof for two
items are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from inference.base.frames import pd
from inference.base.structure import Structure
from inference.fitting.record import FitRecord
from inference.identifiability.fisher import InformationReport
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.structures.noisy_or.structure import NoisyOrStructure
from ppl_models.parts.repr import listed, shows_briefly

AnchorVerdict = Literal["determined", "in part", "open", "not determined"]
LEAST_ITEMS = 3  # of a latent, below which nothing determines it
MOST_NAMED = 6


@dataclass(frozen=True)
class LatentAnchors:
    """Anchors of one latent, and what the moments say of it.

    Args:
        latent: its place.
        num_items: items that it may switch on.
        anchors: those that no other latent does, the surest first.
        triple: three items that determine its prior; () where there are none.
        after: latents that had to be divided out before.
        unknown: items whose failures are not shown to be determined.
        verdict: "determined"; "in part", where its prior is and some failures are not; "open"; or
            "not determined", which is proved.
    """

    latent: int
    num_items: int
    anchors: tuple[str, ...]
    triple: tuple[str, ...]
    after: tuple[int, ...]
    unknown: tuple[str, ...]
    verdict: AnchorVerdict


@shows_briefly
@dataclass(frozen=True, eq=False)
class AnchorReport:
    """Identifiability of the latents of a noisy-OR network.

    Args:
        latents: one record a latent that is in use.
        information: rank of the Fisher information at the estimate; None where it was not looked
            at.
    """

    latents: tuple[LatentAnchors, ...]
    information: InformationReport | None

    @property
    def table(self) -> pd.DataFrame:
        """One row a latent: items, anchors, the triple that determines it, and the verdict."""
        rows = [
            {
                "items": own.num_items,
                "anchors": len(own.anchors),
                "anchor items": _few(own.anchors),
                "determined by": _few(own.triple),
                "after latents": ", ".join(map(str, own.after)),
                "verdict": own.verdict,
            }
            for own in self.latents
        ]
        return pd.DataFrame(rows, index=pd.Index([o.latent for o in self.latents], name="latent"))

    def text(self) -> str:
        """The report in words, one line a latent."""
        by = {
            verdict: [str(own.latent) for own in self.latents if own.verdict == verdict]
            for verdict in ("determined", "in part", "open", "not determined")
        }
        lines = [
            f"Given this graph, the moments of the items determine {len(by['determined'])} of"
            f" {len(self.latents)} latents, prior and failures, whatever the rest of the network."
        ]
        if by["in part"]:
            lines[0] += f" Of {listed(by['in part'])} they determine the prior and some failures."
        if by["open"]:
            lines[0] += (
                f" Nothing is shown for {listed(by['open'])}: too few of their items are without"
                " another latent in common."
            )
        if by["not determined"]:
            lines[0] += (
                f" They cannot determine {listed(by['not determined'])}: a latent of fewer than"
                " three items has other priors and failures with the same distribution."
            )
        lines += [_line(own) for own in self.latents]
        return "\n".join(lines + ([self.information.text()] if self.information else []))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values, those of the information among them."""
        record = {} if self.information is None else self.information.to_dict()
        return {**record, "latents": [asdict(own) for own in self.latents], "text": self.text()}


def check_anchors(failure: np.ndarray | Tensor, names: Sequence[str]) -> tuple[LatentAnchors, ...]:
    """Decide for every latent whether the items' moments determine it, given the graph.

    Args:
        failure: (m, J), 1 where there is no edge; latents without edges are left out.
        names: J names of the items.
    """
    fails = np.asarray(failure, dtype=float)
    edges = fails < 1
    known, has_prior = np.zeros_like(edges), np.zeros(len(edges), dtype=bool)
    triples = dict[int, tuple[int, ...]]()
    after = {i: set[int]() for i in range(len(edges))}
    grows = True
    while grows:
        grows = False
        for i in np.flatnonzero((edges & ~known).any(1)).tolist():
            own = np.flatnonzero(edges[i])
            own = own[fails[i, own].argsort(kind="stable")]  # the surest first
            pure = _uncoupled(edges, known, i, own)
            if not has_prior[i]:
                place = _triangle(pure)
                if place is None:
                    continue
                has_prior[i], grows = True, True
                triples[i] = tuple(own[list(place)].tolist())
                known[i, list(triples[i])] = True
                after[i] |= _divided(edges, i, itertools.combinations(triples[i], 2))
            for c, a in np.argwhere(pure & known[i, own][None] & ~known[i, own][:, None]):
                grows |= not known[i, own[c]]
                if not known[i, own[c]]:
                    after[i] |= _divided(edges, i, [(int(own[a]), int(own[c]))])
                known[i, own[c]] = True
    alone = edges.sum(0) == 1
    found = []
    for i in np.flatnonzero(edges.any(1)).tolist():
        own = np.flatnonzero(edges[i])
        own = own[fails[i, own].argsort(kind="stable")]
        unknown = own[~known[i, own]]
        verdict: AnchorVerdict = "in part" if has_prior[i] else "open"
        if len(own) < LEAST_ITEMS:
            verdict = "not determined"
        elif not len(unknown):
            verdict = "determined"
        found.append(
            LatentAnchors(
                i,
                len(own),
                tuple(names[j] for j in own[alone[own]]),
                tuple(names[j] for j in triples.get(i, ())),
                tuple(sorted(after[i])),
                tuple(names[j] for j in unknown),
                verdict,
            )
        )
    return tuple(found)


def _uncoupled(edges: np.ndarray, known: np.ndarray, latent: int, items: np.ndarray) -> np.ndarray:
    """Pairs of items that share no latent but this one, unless it is known for both, bool."""
    others = np.arange(len(edges)) != latent
    has, left = edges[others][:, items], (edges & ~known)[others][:, items]
    # a shared latent couples where it is not known for one of the two
    coupled = (has.T.astype(int) @ left + left.T.astype(int) @ has) > 0
    np.fill_diagonal(coupled, True)
    return ~coupled


def _triangle(pairs: np.ndarray) -> tuple[int, int, int] | None:
    """First three places of which all pairs hold; None where there are none."""
    for a in range(len(pairs)):
        for b in np.flatnonzero(pairs[a, a + 1 :]) + a + 1:
            third = np.flatnonzero(pairs[a] & pairs[b])
            if len(third[third > b]):
                return a, int(b), int(third[third > b][0])
    return None


def _divided(edges: np.ndarray, latent: int, pairs: Any) -> set[int]:
    """Other latents that some pair of items shares, which were divided out."""
    shared = {int(k) for a, b in pairs for k in np.flatnonzero(edges[:, a] & edges[:, b])}
    return shared - {latent}


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _line(own: LatentAnchors) -> str:
    words = f"  latent {own.latent}: {own.verdict}; {len(own.anchors)} of {own.num_items} items"
    words += " are anchors" + (f" ({_few(own.anchors)})" if own.anchors else "")
    if own.triple:
        words += f"; its prior by {_few(own.triple)}"
    if own.after:
        words += f", after latents {', '.join(map(str, own.after))} are divided out"
    return words + (f"; open: {_few(own.unknown)}" if own.verdict == "in part" else "")


@report_of.register
def _(structure: NoisyOrStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    information = report_of.dispatch(Structure)(structure, fit, data)
    causes = structure.causes
    if fit.draws is not None or causes.spared is not None:  # draws have every edge
        return information
    graph = structure.graphs(fit.params)[causes.failure].mT.bool()  # (m, J)
    failure = fit.params[causes.failure].masked_fill(~graph, 1.0).detach().cpu()
    names = list(fit.item_names) or [str(j) for j in range(failure.shape[1])]
    found = check_anchors(failure, names)
    return AnchorReport(found, information if isinstance(information, InformationReport) else None)

"""Causal graphs among the attributes of a fit: table, effective rows, draws, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from inference.causal.discovery import CausalReport, discover
from inference.causal.edges import MOST_SAMPLED
from inference.causal.graphs import as_names, pdag_of
from inference.causal.item_alternatives import ItemAlternative, item_alternatives
from inference.causal.knowledge import BackgroundKnowledge, constraints_of
from inference.causal.pdags import extension_of
from inference.causal.rows import (
    MOST_PROFILES,
    EffectiveRows,
    RowComparison,
    compare_on_rows,
    completed_rows,
    effective_rows,
    imputed_tables,
)
from inference.causal.scores import Score, Search
from inference.causal.structural_em import AttributeNetwork, rows_needed, structural_em
from inference.causal.tables import MOST_ATTRIBUTES, profiles
from inference.fitting.columns import as_fitted, dims_of, labels_of
from inference.fitting.posterior import chunks, sums_out
from inference.fitting.problem import problem_of
from inference.fitting.record import FitRecord
from inference.identifiability.scores import MOST_PARAMETERS, MOST_WORK, row_scores
from inference.programs.program import Program
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_size

LEAST_ROWS = 2.0  # that a table must be worth
LEAST_SHARE = 0.05  # of the rows that a table must be worth for a graph to be drawn
MANY_DRAWS = 200  # completions of the rows of many attributes
MOST_RIVALS = 5  # graphs that are refitted to the rows beside the best
MOST_SUMMED = 14  # attributes whose table is held; structural EM finds the graph of more
NUM_REPLICATES = 20  # bootstrap samples for the probabilities of edges among more
NUM_DRAWN = 20  # draws of the attributes of each row, for the items beside an edge
CHUNK = 2**22  # probabilities that are summed up at once
NOT_DETERMINED = (
    "No graph is drawn: with this Q-matrix the answers do not tell enough profiles apart, so that"
    " very different tables of the attributes fit alike, and with them very different graphs. Each"
    " attribute needs items that ask for it alone; the section on identifiability says which ones"
    " lack them."
)


@shows_briefly
@dataclass(frozen=True, eq=False)
class ProfilePosterior:
    """Posterior probabilities of the profiles of the rows.

    Args:
        latent: the site of the attributes.
        names: of the attributes.
        posterior: P(profile | row), (N, 2^K), attribute 1 the most significant bit of a profile's
            place.
        table: P(profile), (2^K,): their mean.
    """

    latent: str
    names: tuple[str, ...]
    posterior: np.ndarray
    table: np.ndarray


@shows_briefly
@dataclass(frozen=True)
class AttributeReport:
    """A graph of causes among the attributes of a fit.

    Args:
        causal: the graph and what is firm in it.
        rows: what the rows tell of the attributes, in rows with known profiles; None where the
            number was given or there are too many profiles.
        on_rows: the graph, its ties and the most probable others, each refitted to the rows.
        profiles: the posterior and the table that it came from.
        alternatives: beside each edge of a DAG of the class, the item that asks for both of its
            attributes instead; empty where items have several predictors.
    """

    causal: CausalReport
    rows: EffectiveRows | None
    on_rows: RowComparison
    profiles: ProfilePosterior
    alternatives: tuple[ItemAlternative, ...] = ()

    @property
    def determined(self) -> bool:
        """A table worth two rows and a twentieth of the rows; below it no graph should be drawn.

        The items then do not tell profiles apart, or rows are very few.
        """
        if self.rows is None:
            return True
        return self.rows.num_rows >= max(LEAST_ROWS, LEAST_SHARE * self.rows.observed_rows)

    def rows_needed(self, information: float, level: float = 0.05, power: float = 0.8) -> float:
        """Rows that a test needs to see an edge, when they tell as much as these do.

        Arguments and errors: :meth:`inference.causal.structural_em.AttributeNetwork.rows_needed`.
        """
        share = min(1.0, self.causal.num_rows / len(self.profiles.posterior))
        return rows_needed(information, share, level, power)

    def text(self) -> str:
        """Report in words: effective rows, graph, and comparison with its rivals on the rows."""
        parts = [] if self.rows is None else [self.rows.text()]
        if not self.determined:
            return "\n\n".join([*parts, NOT_DETERMINED])
        parts += [self.causal.text(), self.on_rows.text()]
        if self.alternatives:
            names = self.causal.graph.names
            lines = [
                f"  {names[own.pair[0]]}, {names[own.pair[1]]}: {own.text()}"
                for own in self.alternatives
            ]
            parts.append(
                "\n".join(["An item that asks for both, in the place of an edge:", *lines])
            )
        return "\n\n".join(parts)

    @property
    def disputed(self) -> np.ndarray:
        """Edges that an item explains as well, bool (K, K), symmetric."""
        found = np.zeros_like(self.causal.open_edges)
        for own in self.alternatives:
            i, j = own.pair
            found[i, j] = found[j, i] = found[i, j] | own.disputed
        return found

    def plot(self, ax: Any = None) -> Any:
        """Plot the graph: dotted where an edge is in doubt, or an item explains it as well.

        See :func:`inference.plots.causal.plot_causal_graph`.
        """
        open_edges = self.causal.open_edges | self.disputed
        return replace(self.causal, open_edges=open_edges).plot(ax=ax)


def profile_posterior(fit: FitRecord, data: Any, latent: str | None = None) -> ProfilePosterior:
    """Posterior probabilities of all profiles of attributes, row by row.

    Args:
        fit: of a model with a vector of binary latents that can be summed over.
        data: the rows that were fitted.
        latent: the site of the attributes; None for the deepest.

    Raises:
        ValueError: for a model without such a site, another site's name, attributes that are too
            many to sum over, a fit with labels, or data that does not fit.
    """
    owner = "profile_posterior"
    fit.refuse_weights(owner)
    if fit.labels:
        raise ValueError(
            f"{owner}: a fit without labels was expected, whose posterior of a row knows no more"
            " than its entries"
        )
    parts: list[np.ndarray] = []
    site, places, num_attributes = "", np.zeros(0, dtype=np.int64), 0
    for program in chunks(fit, data):
        if not parts:
            site = _site(owner, fit, program, latent)
            values = program.latent_values(fit.params)[site].long().cpu().numpy()  # (C, K)
            num_attributes = values.shape[1]
            if num_attributes > MOST_ATTRIBUTES:
                raise ValueError(
                    f"{owner}: at most {MOST_ATTRIBUTES} attributes can be looked at together, got"
                    f" {num_attributes}"
                )
            places = values @ (1 << np.arange(num_attributes - 1, -1, -1))
        with torch.no_grad():
            shares = program.latent_marginals(fit.params)[site].double().cpu().numpy()  # (N, C)
        part = np.zeros((len(shares), 2**num_attributes))
        part[:, places] = shares / shares.sum(1, keepdims=True)
        parts.append(part)
    posterior = np.concatenate(parts)
    return ProfilePosterior(site, _names(fit, site, num_attributes), posterior, posterior.mean(0))


def _site(owner: str, fit: FitRecord, program: Program, latent: str | None) -> str:
    """The site of the attributes: the one named, the root's, or the only vector of bits."""
    sites = [
        site.name
        for site in program.sites
        if site.kind == "latent" and site.is_binary and len(site.shape) and site.shape[-1] > 1
    ]
    root, chosen = fit.structure.root, latent
    if chosen is None and root is not None and root.latent in sites:
        chosen = root.latent
    if chosen is None and len(sites) == 1:
        chosen = sites[0]
    if chosen is None or chosen not in sites:
        if latent is not None:
            raise ValueError(f"{owner}: latent must be one of {sites}, got {latent!r}")
        raise ValueError(
            f"{owner}: a model with one vector of binary latents was expected, got those at"
            f" {sites}; name one with latent="
        )
    if not sums_out(fit, program):
        raise ValueError(
            f"{owner}: the profiles of {chosen!r} are too many to sum over; up to about 14"
            " attributes can be asked. inference.causal.structural_em(model, data) finds the graph"
            " of more"
        )
    return chosen


def _names(fit: FitRecord, site: str, num_attributes: int) -> tuple[str, ...]:
    """Names that the model gives its attributes; A1, A2, ... where it numbers them."""
    (dim,) = dims_of(fit, site, (num_attributes,))[:1]
    labels = tuple(str(label) for label in labels_of(fit, dim, num_attributes))
    if labels == tuple(str(k) for k in range(num_attributes)):
        return tuple(f"A{k + 1}" for k in range(num_attributes))
    return labels


def discover_attributes(
    fit: FitRecord,
    data: Any,
    *,
    num_rows: float | None = None,
    score: Score | None = None,
    search: Search | None = None,
    num_draws: int | None = None,
    seed: Seed = 0,
    latent: str | None = None,
    level: float = 0.05,
    confidence: float = 0.95,
    knowledge: BackgroundKnowledge | None = None,
    names: Sequence[str] | None = None,
) -> AttributeReport | AttributeNetwork:
    """Discover the causal graph among a fit's attributes, with probabilities of edges.

    With fifteen attributes or more, :func:`inference.causal.structural_em` finds it, whatever their
    distribution in the fit; the rest of this text is about fewer.

    The table of profiles is scored at its effective number of rows
    (:func:`inference.causal.rows.effective_rows`; the item parameters' share in the uncertainty
    counts where they are few enough to differentiate by), and probabilities of graphs and edges are
    those given the same table at the same rows, so that the graph drawn is the most probable one.
    With ``num_draws`` they come from the rows completed with profiles many times
    (:func:`inference.causal.rows.imputed_tables`), the items held at their estimates, and the graph
    is the most probable one over these: single edges then count a little better, the graph as a
    whole is the true one less often.

    Args:
        fit: of a model whose attributes have a free table of profiles (``LatentAttributeModel(...,
            root=Saturated())``), so that the data decide what depends on what; of fifteen
            attributes or more with any distribution.
        data: the rows that were fitted.
        num_rows: what the table is worth; None to find out.
        score: as in :func:`inference.causal.discover`; of fifteen attributes or more as in
            :func:`inference.causal.structural_em`.
        search: likewise.
        level: likewise.
        confidence: likewise.
        num_draws: completions of the rows; None for none, and 200 where more than twelve attributes
            are too many to sum over graphs. Of fifteen attributes or more, bootstrap replicates for
            the probabilities of edges; 20 if None.
        seed: of them.
        latent: the site of the attributes; None for the deepest.
        knowledge: required and forbidden edges, and tiers.
        names: of the attributes; None for the model's.

    Raises:
        ValueError: as :func:`profile_posterior` and :func:`inference.causal.discover`; for a
            distribution of the attributes that is not free, or depends on other columns.
    """
    seed = as_seed("discover_attributes", seed)
    owner = "discover_attributes"
    if num_draws is not None:
        check_size(owner, "num_draws", num_draws)
    root = fit.structure.root
    if root is not None and len(fit.structure.layers) == 1 and root.num_latents > MOST_SUMMED:
        refused = {"num_rows": num_rows, "search": search, "latent": latent}
        for name, value in refused.items():
            if value is not None:
                raise ValueError(
                    f"{owner}: {name} is for at most {MOST_SUMMED} attributes, got"
                    f" {root.num_latents}"
                )
        fit.refuse_labels(owner)
        return structural_em(
            fit.model,
            as_fitted(fit, data),
            score=score,
            knowledge=knowledge,
            num_replicates=NUM_REPLICATES if num_draws is None else num_draws,
            seed=seed,
            names=names,
        )
    return report_of_table(
        fit,
        data,
        num_rows=num_rows,
        score=score,
        search=search,
        num_draws=num_draws,
        seed=seed,
        latent=latent,
        level=level,
        confidence=confidence,
        knowledge=knowledge,
        names=names,
    )


def report_of_table(
    fit: FitRecord,
    data: Any,
    *,
    num_rows: float | None = None,
    score: Score | None = None,
    search: Search | None = None,
    num_draws: int | None = None,
    seed: int = 0,
    latent: str | None = None,
    level: float = 0.05,
    confidence: float = 0.95,
    knowledge: BackgroundKnowledge | None = None,
    names: Sequence[str] | None = None,
) -> AttributeReport:
    """Graph from a table of profiles; arguments of :func:`discover_attributes`."""
    owner = "discover_attributes"
    if fit.structure.num_given:
        given = fit.item_names[-fit.structure.num_given :]
        raise ValueError(
            f"{owner}: one distribution of the attributes for all rows was expected, and here it"
            f" depends on {', '.join(given)}: what differs with that would look like a dependence;"
            " fit rows that are alike in it by themselves"
        )
    found = profile_posterior(fit, data, latent)
    root = fit.structure.root
    num_attributes = len(found.names)
    if root is not None and root.latent == found.latent and root.num_free < 2**num_attributes - 1:
        raise ValueError(
            f"{owner}: a free table over the {2**num_attributes:,} profiles was expected"
            f" (root=Saturated()); the distribution of {found.latent!r} has {root.num_free} free"
            " parameter(s), and a graph drawn from it would repeat what it assumes"
        )
    labels = as_names(owner, found.names if names is None else names, num_attributes)
    constraints_of(owner, knowledge, labels)  # refused before any work
    rows = None
    if num_rows is None:
        rows = effective_rows_of(fit, data, found)
        num_rows = max(1.0, rows.num_rows)  # fewer than one are none: see determined
    if num_draws is None and num_attributes > MOST_SAMPLED:
        num_draws = MANY_DRAWS
    draws = None
    if num_draws is not None:
        draws = imputed_tables(found.posterior, found.table, num_draws, seed)
    causal = discover(
        found.table,
        num_rows,
        score=score,
        search=search,
        draws=draws,
        draw_rows=completed_rows(len(found.posterior), num_rows),
        level=level,
        confidence=confidence,
        knowledge=knowledge,
        names=labels,
    )
    rivals = [causal.graph, causal.searched, *causal.ties]
    if causal.probabilities is not None:
        rivals += [graph for graph, _ in causal.probabilities.classes[:MOST_RIVALS]]
    on_rows = compare_on_rows(rivals, found.posterior, found.table, names=labels)
    rivals_of_edges = _alternatives(fit, data, found, causal, seed)
    return AttributeReport(causal, rows, on_rows, found, rivals_of_edges)


def _alternatives(
    fit: FitRecord, data: Any, found: ProfilePosterior, causal: CausalReport, seed: int
) -> tuple[ItemAlternative, ...]:
    """Items beside the edges of a DAG of the class, from draws of the rows' profiles."""
    structure = fit.structure
    if len(structure.layers) != 1 or structure.layers[0].parent != found.latent:
        return ()
    rng = np.random.default_rng(seed)
    bits = profiles(len(found.names)).astype(np.uint8)
    drawn = []
    step = max(1, CHUNK // len(found.table))
    for start in range(0, len(found.posterior), step):
        reached = found.posterior[start : start + step].cumsum(1)
        places = [(reached < u[:, None]).sum(1) for u in rng.random((NUM_DRAWN, len(reached)))]
        drawn.append(bits[np.minimum(places, len(bits) - 1)])
    problem = problem_of(fit.model, as_fitted(fit, data), seed)
    parents = extension_of(pdag_of(causal.graph.matrix)) or ()
    return item_alternatives(problem, fit.params, np.concatenate(drawn, 1), parents)


def effective_rows_of(fit: FitRecord, data: Any, found: ProfilePosterior) -> EffectiveRows:
    """Effective rows of a fit's table of profiles, the items' share in its uncertainty counted.

    Raises:
        ValueError: for too many profiles.
    """
    size = len(found.table)
    if size > MOST_PROFILES:
        raise ValueError(
            f"discover_attributes: give num_rows; what {size:,} profiles are worth in rows cannot"
            f" be worked out (at most {MOST_PROFILES:,})"
        )
    return effective_rows(
        found.posterior, found.table, _item_scores(fit, data, len(found.posterior))
    )


def _item_scores(fit: FitRecord, data: Any, num_rows: int) -> np.ndarray | None:
    """Scores of the rows by all but the attributes' distribution; None if too slow."""
    root = fit.structure.root
    if root is None:
        return None
    entries = sum(value.numel() for name, value in fit.params.items() if name not in root.sites())
    if entries > MOST_PARAMETERS or entries * num_rows > MOST_WORK or fit.draws is not None:
        return None
    scores, names = row_scores(fit, data, hold_bounds=True)
    own = [k for k, name in enumerate(names) if name.split("[")[0] not in root.sites()]
    return scores[:, own].double().cpu().numpy()

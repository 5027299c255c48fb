"""Identifiability of a latent attribute model from its Q-matrix, with proofs and defects.

An item is *pure* if it asks for one attribute alone; it is then the same under every rule. A pure
item of k distinguishes who has k from who has not, whatever else they have, and so does one that
does the same on the profiles that there are (under a hierarchy in which b needs a, a conjunctive
item of a and b is a pure one of b). Up to the names of the attributes:

* **conjunctive** items only (or disjunctive ones only), all :math:`2^K` profiles with a probability
  of their own: *strict* if every attribute has a pure item (A), the columns of Q differ once one
  pure item of each is taken away (B), and every attribute is asked for by three items (C). For 0/1
  items the three are also necessary.
* **any rules**: *strict* if every attribute has two pure items, and the other items distinguish
  any two profiles. The two blocks of K items have linearly independent distributions, and no two
  columns of the rest are equal: J. B. Kruskal's theorem, to which the rules of the rest do not
  matter.
* **additive and saturated items**: *generic* (outside a set of parameters of measure zero) if there
  are two disjoint blocks of K items, each with an item for every attribute (a matching), and the
  rest asks for every attribute. Beside items of other rules, the blocks are made of additive,
  saturated and pure ones, and the rest must distinguish any two profiles for almost all
  parameters.
* **continuous responses and counts**: *strict* as soon as the Normal, LogNormal, Poisson and
  negative binomial items hold one pure item of every attribute. Mixtures of products of these
  families determine their components and weights, and one pure item an attribute says which
  component is which.
* *not identified*, if two profiles that there are have the same distribution in every item whatever
the
  parameters (Q is not *complete*); for 0/1 items also if an attribute is asked for by one item
  alone, or there are more parameters than patterns of answers. All this where each profile has a
  probability of its own.
* else *not established*. That is no proof that it is not identified.

All of this supposes that every profile has a positive probability, and that every attribute matters
to its items. What fewer profiles, or a distribution with fewer parameters, can do without is not
decided here: for those the conditions are sufficient, and no more.

Source: Y. Gu and G. Xu (2019), doi:10.1007/s11336-018-9619-8, and (2021),
doi:10.5705/ss.202018.0410 (conjunctive items, necessity; two blocks; matchings); S. Lee and Y. Gu
(2024), doi:10.1007/s11336-024-09983-4 (general responses); J. B. Kruskal (1977),
doi:10.1016/0024-3795(77)90069-6; H. Teicher (1967), doi:10.1214/aoms/1177698805, and S. J. Yakowitz
and J. D. Spragins (1968), doi:10.1214/aoms/1177698520 (mixtures of products). Rules side by side,
profiles that there are not, and the consequence of Teicher's theorem are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from inference.identifiability.conditions import configurations, cover
from inference.identifiability.verdicts import ALMOST, DETERMINES, join, plain_values, some
from ppl_models.parts.repr import profile_name

ItemKind = Literal["pure", "conjunctive", "disjunctive", "additive", "general"]
KINDS: dict[str, ItemKind] = {
    "additive": "additive",
    "acdm": "additive",
    "rrum": "additive",
    "dina": "conjunctive",
    "dino": "disjunctive",
    "gdm": "general",
    "saturated": "general",
}
VERDICTS = ("not identified", "not established", "generic", "strict")  # weakest first
MEANING = {
    "strict": DETERMINES,
    "generic": ALMOST,
    "not established": (
        "no known sufficient condition holds; that is no proof that the parameters are not"
        " determined"
    ),
    "not identified": (
        "different parameters have the same distribution of the items, and no number of rows"
        " distinguishes them"
    ),
}
GROUNDS = {
    "conjunctive": (
        "A pure item for each attribute, different columns of Q once these are taken away, and"
        " three items for each attribute: Gu and Xu's conditions."
    ),
    "continuous": (
        "One pure item with a continuous response or a count for each attribute: mixtures of such"
        " items determine their parts (Teicher)."
    ),
    "matchings": (
        "Two disjoint blocks with an item for each attribute, and the rest distinguishes almost"
        " surely any two profiles (matchings)."
    ),
}
NOT_FREE = (
    " The distribution of the attributes has fewer parameters than the table of profiles that this"
    " speaks of; whether the table determines them is another question."
)
NECESSARY = (
    "For right-wrong items of this rule the conditions are necessary: some parameter values are not"
    " determined. Whether almost all others are is not decided here; the information of the data at"
    " the estimate says whether yours are, locally."
)
FEWER_PROFILES = (
    "A hierarchy leaves fewer profiles, and may need fewer items than these conditions ask for;"
    " that is not decided here."
)
FEWER_PARAMETERS = (
    "The distribution of the attributes has fewer parameters than a table of profiles, and may make"
    " up for missing items; that is not decided here."
)
MAX_LISTED = 14  # attributes whose profiles are listed
MAX_PAIRS = 1024  # profiles whose pairs are looked at
NUM_CHOICES = 40  # of two blocks, where other rules stand beside
SAME = 1e-9  # relative difference of predictors that are equal
MOST_NAMES = 6


@dataclass(frozen=True)
class QMatrixReport:
    """Identifiability of a model by its Q-matrix; items and attributes by number.

    Args:
        verdict: "strict", "generic", "not established" or "not identified".
        ground: the condition that the verdict rests on, a sentence.
        q_matrix: Q, (J, K) of 0 and 1.
        kinds: of each item: "pure", "conjunctive", "disjunctive", "additive" or "general".
        first, second: an item for each attribute that makes up the two blocks of the proof; the
            second is empty where the proof has one block, and both are where there is no proof.
        alike: groups of profiles that no item distinguishes whatever the parameters, (K,) of 0 and
            1 each; None where there are too many profiles to list. Q is complete where there are
            none.
        reasons: what breaks a better verdict, one sentence a piece.
        item_names: J names.
        attribute_names: K names.
    """

    verdict: str
    ground: str
    q_matrix: tuple[tuple[int, ...], ...]
    kinds: tuple[ItemKind, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    alike: tuple[tuple[tuple[int, ...], ...], ...] | None
    reasons: tuple[str, ...]
    item_names: tuple[str, ...]
    attribute_names: tuple[str, ...]

    @property
    def is_complete(self) -> bool | None:
        """Completeness of Q: any two profiles differ; None where there are too many to list."""
        return None if self.alike is None else not self.alike

    def text(self) -> str:
        """The report in plain sentences."""
        lines = [f"Identifiability: {self.verdict}: {MEANING[self.verdict]}.", self.ground]
        for name, block in (("first", self.first), ("second", self.second)):
            if block:
                pairs = [
                    f"{self.item_names[j]} for {attribute}"
                    for j, attribute in zip(block, self.attribute_names, strict=True)
                ]
                lines.append(f"Items of the {name} block: {', '.join(some(pairs, 16))}.")
        if self.first and self.verdict in VERDICTS[2:]:
            rest = [
                self.item_names[j]
                for j in range(len(self.kinds))
                if j not in {*self.first, *self.second}
            ]
            lines.append(f"The rest: {', '.join(some(rest, 16)) or 'none'}.")
        if self.alike:
            lines.append(
                "The Q-matrix is not complete. No item distinguishes these profiles, whatever"
                " the parameters:"
            )
            names = [
                [profile_name(self.attribute_names, own) for own in group] for group in self.alike
            ]
            groups = [" = ".join(some(group, MOST_NAMES)) for group in names]
            lines += [f"  {group}" for group in some(groups, MOST_NAMES)]
        elif self.alike is not None:
            lines.append("The Q-matrix is complete: any two profiles differ in some item.")
        return "\n".join([*lines, *self.reasons])

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        record = asdict(self) | {"complete": self.is_complete, "text": self.text()}
        del record["item_names"], record["attribute_names"]
        plain: dict[str, Any] = plain_values(record)
        return plain


def check_q_matrix(
    q_matrix: Any,
    items: str | Sequence[str] = "additive",
    binary: bool | Sequence[bool] = True,
    item_names: Sequence[str] | None = None,
    attribute_names: Sequence[str] | None = None,
) -> QMatrixReport:
    """Decide identifiability from a Q-matrix alone, before any fit.

    Each of the :math:`2^K` profiles has a probability of its own.

    For a model (with its distribution of the attributes and its responses) or a fit of one:
    :func:`check_identifiability`.

    Args:
        q_matrix: Q, (J, K) of 0 and 1: an array, or a data frame whose columns name the attributes
            and whose index names the items.
        items: the rule of all items, or one for each: ``"additive"``, ``"acdm"``, ``"rrum"``,
            ``"dina"``, ``"dino"``, ``"gdm"``, ``"saturated"``.
        binary: whether items are right or wrong, all alike or one for each; False for Normal,
            LogNormal and Poisson items.
        item_names: J names; None for those of a data frame, else ``item 0``, ...
        attribute_names: K names; likewise.

    Raises:
        ValueError: for a Q-matrix that is not a table of 0 and 1 or has an empty row or column, a
            rule that there is none of, or sizes that do not agree.
    """
    owner = "check_q_matrix"
    if hasattr(q_matrix, "columns") and hasattr(q_matrix, "to_numpy"):
        if attribute_names is None:
            attribute_names = [str(name) for name in q_matrix.columns]
        named = all(isinstance(name, str) for name in q_matrix.index)
        item_names = list(q_matrix.index) if item_names is None and named else item_names
        q_matrix = q_matrix.to_numpy()
    try:
        matrix = np.array(q_matrix, dtype=float)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    if matrix.ndim != 2 or not matrix.size or not np.isin(matrix, (0, 1)).all():
        raise ValueError(
            f"{owner}: q_matrix must be a table (items, attributes) of 0 and 1, got {q_matrix!r}"
        )
    graph = matrix.astype(bool)
    for axis, what in ((1, "item"), (0, "attribute")):
        empty = np.flatnonzero(~graph.any(axis))
        if len(empty):
            raise ValueError(
                f"{owner}: q_matrix has an empty {'row' if axis else 'column'}: {what} {empty[0]};"
                " drop it or give it a 1"
            )
    rules = _each(owner, "items", items, str, len(graph))
    unknown = [rule for rule in rules if rule not in KINDS]
    if unknown:
        raise ValueError(
            f"{owner}: items must be of {', '.join(map(repr, KINDS))}, got {unknown[0]!r}"
        )
    kinds: list[ItemKind] = [
        "pure" if row.sum() == 1 else KINDS[rule] for row, rule in zip(graph, rules, strict=True)
    ]
    bits = np.array(_each(owner, "binary", binary, bool, len(graph)))
    return judge(
        graph,
        kinds,
        bits,
        None,
        True,
        None,
        _named(owner, "item", item_names, len(graph)),
        _named(owner, "attribute", attribute_names, graph.shape[1]),
    )


def judge(
    graph: np.ndarray,
    kinds: Sequence[ItemKind],
    binary: np.ndarray,
    profiles: np.ndarray | None,
    free: bool,
    predictors: np.ndarray | None,
    item_names: tuple[str, ...],
    attribute_names: tuple[str, ...],
    several: np.ndarray | None = None,
) -> QMatrixReport:
    """The verdict.

    Args:
        graph: Q, bool (J, K).
        kinds: of each item.
        binary: bool (J,), whether an item is right or wrong, or one of several categories; the
            others are Normal, LogNormal or Poisson.
        profiles: those that there are, (C, K) of 0 and 1; None for all.
        free: whether each has a probability of its own.
        predictors: (C, J) at an estimate; None to judge for all values.
        item_names: J names.
        attribute_names: K names.
        several: bool (J,), items of more than two categories. What is enough for right-wrong items
            is enough for them, for each of their splits in two is such an item; what right-wrong
            items need, they may do without.
    """
    num_items, size = graph.shape
    coarse = binary if several is None else binary & ~several
    full = profiles is None
    if profiles is None and size <= MAX_LISTED:
        profiles = configurations(size)
    pure = _pure_items(graph, kinds, profiles)
    alike = None
    if profiles is not None:
        every = np.ones(num_items, dtype=bool)
        alike = _alike(profiles, _signature(graph, kinds, profiles, every))

    def said(
        verdict: str,
        ground: str,
        first: Sequence[int] = (),
        second: Sequence[int] = (),
        reasons: Sequence[str] = (),
    ) -> QMatrixReport:
        return QMatrixReport(
            verdict,
            ground,
            tuple(map(tuple, graph.astype(int).tolist())),
            tuple(kinds),
            tuple(map(int, first)),
            tuple(map(int, second)),
            alike,
            tuple(reasons),
            item_names,
            attribute_names,
        )

    against = _against(
        graph, coarse, kinds, pure, profiles, alike, free, full, item_names, attribute_names
    )
    if against:
        ground = "Every distribution of the items has many sets of parameters."
        return said("not identified", ground, reasons=against)
    table = "" if free else NOT_FREE
    rules = {kind for kind in kinds if kind != "pure"}
    is_gate = rules <= {"conjunctive", "disjunctive"}
    broken = []
    if full and len(rules) <= 1 and is_gate:
        broken = _conjunctive(graph, pure, attribute_names)
        if not broken:
            first = [items[0] for items in pure if items]
            return said("strict", GROUNDS["conjunctive"] + table, first)
    continuous = [[j for j in items if not binary[j]] for items in pure]
    if all(continuous):
        block = [items[0] for items in continuous]
        return said("strict", GROUNDS["continuous"] + table, block)
    reasons = broken or [
        _lacking(name, items, item_names)
        for name, items in zip(attribute_names, pure, strict=True)
        if len(items) < 2
    ]
    if broken and coarse.all() and free:
        reasons = [*reasons, NECESSARY]
    if not reasons:
        first, second = [items[0] for items in pure], [items[1] for items in pure]
        rest = np.setdiff1d(np.arange(num_items), first + second)
        given = None if predictors is None else predictors[:, rest]
        confounded = _confounded(
            graph[rest], [kinds[j] for j in rest], profiles, given, attribute_names
        )
        if confounded is None:
            ground = (
                "Two pure items for each attribute, and the rest distinguishes any two profiles"
            )
            where = ", at the estimate" if predictors is not None else ""
            return said("strict", f"{ground}{where} (Kruskal).{table}", first, second)
        reasons = [f"Each attribute has two pure items, but {confounded}."]
    if not is_gate or len(rules) > 1:
        blocks = _generic_blocks(graph, kinds, profiles)
        if blocks is not None:
            shown = some(reasons, MOST_NAMES)
            return said("generic", GROUNDS["matchings"] + table, *blocks, reasons=shown)
        reasons = [*reasons, _no_blocks(graph, kinds, attribute_names)]
    reasons = reasons + [FEWER_PROFILES] * (not full) + [FEWER_PARAMETERS] * (not free)
    return said("not established", "No sufficient condition holds.", reasons=some(reasons, 12))


def _pure_items(
    graph: np.ndarray, kinds: Sequence[ItemKind], profiles: np.ndarray | None
) -> list[list[int]]:
    """For each attribute the items that tell it alone, pure in Q first."""
    out = [
        [j for j in np.flatnonzero(graph[:, k]).tolist() if kinds[j] == "pure"]
        for k in range(graph.shape[1])
    ]
    if profiles is not None and len(profiles) < 2 ** graph.shape[1]:
        for j, kind in enumerate(kinds):
            if kind in ("conjunctive", "disjunctive"):
                ideal = _ideal(graph[j], kind, profiles)
                for k in range(graph.shape[1]):
                    if (ideal == profiles[:, k]).all():
                        out[k].append(j)
    return out


def _ideal(row: np.ndarray, kind: ItemKind, profiles: np.ndarray) -> np.ndarray:
    asked = profiles[:, row].astype(bool)
    return np.asarray(asked.any(1) if kind == "disjunctive" else asked.all(1))


def _signature(
    graph: np.ndarray, kinds: Sequence[ItemKind], profiles: np.ndarray, use: np.ndarray
) -> np.ndarray:
    """Distinctions that the items make of each profile for almost all parameters, (C, S)."""
    seen = np.zeros(graph.shape[1], dtype=bool)
    columns = []
    for j in np.flatnonzero(use).tolist():
        if kinds[j] in ("conjunctive", "disjunctive"):
            columns.append(_ideal(graph[j], kinds[j], profiles))
        else:
            seen |= graph[j]
    if not columns and not seen.any():
        return np.zeros((len(profiles), 1), dtype=bool)
    return np.column_stack([profiles[:, seen].astype(bool), *columns])


def _alike(profiles: np.ndarray, signature: np.ndarray) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Groups of profiles with the same signature."""
    _, group, counts = np.unique(signature, axis=0, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    return tuple(tuple(map(tuple, profiles[group.ravel() == g].tolist())) for g in repeated)


def _against(
    graph: np.ndarray,
    binary: np.ndarray,
    kinds: Sequence[ItemKind],
    pure: Sequence[Sequence[int]],
    profiles: np.ndarray | None,
    alike: Any,
    free: bool,
    full: bool,
    item_names: tuple[str, ...],
    attribute_names: tuple[str, ...],
) -> list[str]:
    """Proofs that the parameters are not determined."""
    out: list[str] = []
    if not free:
        return out
    multiple = {kind for kind in kinds if kind != "pure"}
    missing = [attribute_names[k] for k, own in enumerate(pure) if not own]
    one_rule = multiple in ({"conjunctive"}, {"disjunctive"})
    if alike or (alike is None and missing and one_rule):
        add = f"add a pure item for {'it' if len(missing) == 1 else 'each'}."
        out.append(
            "Of profiles that no item distinguishes, the data determine the sum of the"
            " probabilities alone."
            + (f" No item asks for {join(missing)} alone: {add}" if missing else "")
        )
    if full:
        for k in np.flatnonzero(graph.sum(0) == 1):
            (j,) = np.flatnonzero(graph[:, k])
            if binary[j]:
                out.append(
                    f"{attribute_names[k]} is asked for by {item_names[j]} alone: its share among"
                    " the rows and its effect on that right-wrong item are confounded. It needs"
                    " three items."
                )
    if binary.all() and graph.shape[0] < 60:
        num_profiles = 2 ** graph.shape[1] if profiles is None else len(profiles)
        pairs = zip(graph, kinds, strict=True)
        of_items = sum(_num_coefficients(row, kind, profiles) for row, kind in pairs)
        num_free = num_profiles - 1 + of_items
        free_shares = 2 ** graph.shape[0] - 1
        if num_free > free_shares:
            out.append(
                f"There are {num_free:,} parameters, and {graph.shape[0]} right-wrong items have"
                f" only {free_shares:,} free shares of patterns."
            )
    return out


def _num_coefficients(row: np.ndarray, kind: ItemKind, profiles: np.ndarray | None) -> int:
    """Coefficients of an item with its intercept.

    A saturated one has one for each profile of its attributes that there is.
    """
    size = int(row.sum())
    if kind == "additive":
        return 1 + size
    if kind != "general":
        return 2
    return 2**size if profiles is None else len(np.unique(profiles[:, row], axis=0))


def _conjunctive(
    graph: np.ndarray, pure: Sequence[Sequence[int]], names: tuple[str, ...]
) -> list[str]:
    """Defects of Gu and Xu's conditions, one sentence each."""
    missing = [names[k] for k, own in enumerate(pure) if not own]
    out = [f"(A) fails: no item asks for {join(missing)} alone."] if missing else []
    if not missing:
        rest = np.delete(graph, [own[0] for own in pure], axis=0)
        _, group = np.unique(rest, axis=1, return_inverse=True)
        for g in np.unique(group):
            same = [names[k] for k in np.flatnonzero(group.ravel() == g)]
            if len(same) > 1:
                out.append(
                    f"(B) fails: beside one pure item each, {join(same)} are asked for by the same"
                    " items."
                )
    few = [f"{names[k]} ({n})" for k, n in enumerate(graph.sum(0).tolist()) if n < 3]
    return [*out, f"(C) fails: fewer than three items ask for {join(few)}."] if few else out


def _confounded(
    graph: np.ndarray,
    kinds: Sequence[ItemKind],
    profiles: np.ndarray | None,
    predictors: np.ndarray | None,
    attribute_names: Sequence[str],
) -> str | None:
    """None if any two profiles differ in some item; else the confounded ones, in words."""
    alone = graph[[kind == "pure" for kind in kinds]]
    if len(alone) and alone.any(0).all():
        return None
    if profiles is None or len(profiles) > MAX_PAIRS:
        if len(graph):
            return "there are too many profiles to see whether the rest distinguishes all of them"
        return "there is no other item"
    if predictors is not None:
        scale = np.abs(predictors).max(initial=0.0)
        differs = (np.abs(predictors[:, None] - predictors) > SAME * max(scale, 1e-300)).any(-1)
    else:
        differs = np.zeros((len(profiles), len(profiles)), dtype=bool)
        for row, kind in zip(graph, kinds, strict=True):
            if kind == "additive":
                # effects of several may cancel
                differs |= (profiles[:, None, row] != profiles[None, :, row]).sum(-1) == 1
            else:
                # of a saturated item only that those with all of its attributes differ from the
                # others
                ideal = _ideal(row, kind, profiles)
                differs |= ideal[:, None] != ideal
    differs |= np.eye(len(differs), dtype=bool)
    if differs.all():
        return None
    first, second = np.argwhere(~differs)[0]
    names = [f"'{profile_name(attribute_names, profiles[c])}'" for c in (first, second)]
    sure = "at the estimate" if predictors is not None else "for every value of the parameters"
    return f"the other items do not distinguish the profiles {names[0]} and {names[1]} {sure}"


def _generic_blocks(
    graph: np.ndarray, kinds: Sequence[ItemKind], profiles: np.ndarray | None
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Two blocks of items with generically independent distributions, and a rest.

    The rest distinguishes profiles for almost all parameters.
    """
    from scipy.optimize import linear_sum_assignment

    rows = np.flatnonzero([kind not in ("conjunctive", "disjunctive") for kind in kinds])
    size = graph.shape[1]
    if not graph[rows].any(0).all():
        return None
    found = cover(graph[rows]).certificate
    if found is not None:
        return tuple(int(rows[j]) for j in found.first), tuple(int(rows[j]) for j in found.second)
    if len(rows) == len(graph) or len(rows) < 2 * size or profiles is None:
        return None
    generator = np.random.default_rng(0)
    edges = np.tile(graph[rows].T, (2, 1))  # (2K, rows)
    for _ in range(NUM_CHOICES):
        cost = np.where(edges, generator.random(len(rows)), 1e3)
        _, chosen = linear_sum_assignment(cost)
        if not edges[np.arange(2 * size), chosen].all():
            return None
        blocks = rows[chosen]
        rest = ~np.isin(np.arange(len(graph)), blocks)
        if not _alike(profiles, _signature(graph, kinds, profiles, rest)):
            return tuple(blocks[:size].tolist()), tuple(blocks[size:].tolist())
    return None


def _no_blocks(graph: np.ndarray, kinds: Sequence[ItemKind], names: tuple[str, ...]) -> str:
    usable = graph[[kind not in ("conjunctive", "disjunctive") for kind in kinds]]
    counts = usable.sum(0)
    needed = 3 if len(usable) == len(graph) else 2
    few = [f"{names[k]} ({int(n)})" for k, n in enumerate(counts) if n < needed]
    which = "items" if needed == 3 else "pure, additive or saturated items"
    start = "No two blocks with an item for each attribute leave a rest that distinguishes profiles"
    if few:
        return f"{start}: fewer than {needed} {which} ask for {join(few)}."
    return f"{start}: several attributes share too few items."


def _lacking(name: str, own: Sequence[int], item_names: tuple[str, ...]) -> str:
    has = f"one pure item ({item_names[own[0]]})" if own else "no pure item"
    return (
        f"{name} has {has}, and strict identification of these rules is known with two of each"
        " attribute."
    )


def _each(owner: str, argument: str, given: Any, kind: type, size: int) -> list[Any]:
    if isinstance(given, kind):
        return [given] * size
    values = list(given) if isinstance(given, Sequence | np.ndarray) else []
    if len(values) != size or not all(isinstance(value, kind | np.bool_) for value in values):
        raise ValueError(
            f"{owner}: {argument} must be one value, or one for each of {size} items, got {given!r}"
        )
    return values


def _named(owner: str, what: str, names: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{what} {i}" for i in range(size))
    if isinstance(names, str) or len(names) != size:
        raise ValueError(f"{owner}: {what}_names must hold {size} names, got {names!r}")
    return tuple(str(name) for name in names)

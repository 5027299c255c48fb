"""Is the Q-matrix right? What the answers say of each of its rows: empirical validation, repeated
until nothing changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from inference.base.drawing import draw
from inference.fitting.columns import checked_as_fitted
from inference.fitting.names import labels_of
from inference.fitting.record import FitRecord
from inference.inspection.attributes import moment_model
from inference.inspection.item_tables import RULES, Answers, Candidates, ItemTables, tables_of
from inference.inspection.q_criteria import ItemBIC, ItemEvidence, QCriterion, WaldSteps
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.validation import check_flag, check_size

if TYPE_CHECKING:
    import pandas as pd


MAX_ATTRIBUTES = 12  # whose profiles are listed
MAX_ALL = 8  # attributes all of whose sets are looked at; beyond, those near the one that is there
MIN_GAIN = 0.1  # of BIC
MOST_SHOWN = 30
PACES = (1.0, 0.3)  # shares of the moves of a round that are made
STEP_ROUNDS = 6  # of steps by Wald tests, from whose end the search is made once more


@dataclass(frozen=True)
class QChange:
    """A row of the Q-matrix that should be another.

    Args:
        item: its name.
        given, suggested: names of the attributes.
        pvaf_given, pvaf_suggested: shares of the variance of the item's means that they account
            for.
        gain: by how much BIC falls with the change, everything else as it is suggested; 10 is
            strong evidence.
    """

    item: str
    given: tuple[str, ...]
    suggested: tuple[str, ...]
    pvaf_given: float
    pvaf_suggested: float
    gain: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class QValidation:
    """What the answers say of a Q-matrix.

    Args:
        model: the model that was validated, with its own Q.
        criterion: by which rows were chosen.
        items, attributes: J and K names.
        given, suggested: Q, (J, K) of 0 and 1.
        candidates: of each item the sets of attributes that were compared, (M_j, K) of 0 and 1;
            pvaf: of each, (M_j,).
        pvaf_given, pvaf_suggested, gain: (J,), see :class:`QChange`.
        num_rounds: of choosing and fitting again; settled: whether the last one changed nothing, or
            one was all that was asked for.
        stability: share of bootstrap replicates whose suggestion has each entry, (J, K); None
            without bootstrap.
    """

    model: Any
    criterion: QCriterion
    items: tuple[str, ...]
    attributes: tuple[str, ...]
    given: np.ndarray
    suggested: np.ndarray
    candidates: tuple[np.ndarray, ...]
    pvaf: tuple[np.ndarray, ...]
    pvaf_given: np.ndarray
    pvaf_suggested: np.ndarray
    gain: np.ndarray
    num_rounds: int
    settled: bool
    stability: np.ndarray | None = field(default=None)

    @property
    def changes(self) -> tuple[QChange, ...]:
        """The rows that should be others, the largest gain first."""
        rows = [j for j in range(len(self.items)) if (self.given[j] != self.suggested[j]).any()]
        return tuple(
            QChange(
                self.items[j],
                self._asked(self.given[j]),
                self._asked(self.suggested[j]),
                float(self.pvaf_given[j]),
                float(self.pvaf_suggested[j]),
                float(self.gain[j]),
            )
            for j in sorted(rows, key=lambda j: -float(self.gain[j]))
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line an item: given and suggested attributes, their PVAF, the gain, and the least
        stable entry where there are replicates.
        """
        import pandas as pd

        columns = {
            "given": [", ".join(self._asked(row)) for row in self.given],
            "suggested": [", ".join(self._asked(row)) for row in self.suggested],
            "changed": (self.given != self.suggested).any(1),
            "pvaf_given": self.pvaf_given,
            "pvaf_suggested": self.pvaf_suggested,
            "gain": self.gain,
        }
        if self.stability is not None:
            agrees = np.where(self.suggested == 1, self.stability, 1 - self.stability)
            columns["stability"] = agrees.min(1)
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))

    def apply(self) -> Any:
        """The model with the suggested Q-matrix, to be fitted anew."""
        return self.model.restricted((self.suggested.tolist(),))

    def plot(self, item: Any = None, ax: Any = None) -> Any:
        """The mesa picture of one item, by name or number; of the item with the largest gain if
        None.

        See :func:`inference.plots.plot_mesa`.
        """
        return draw("plot_mesa", self, item, ax)

    def text(self) -> str:
        """The findings in plain sentences."""
        changes = self.changes
        if not changes:
            lines = ["The answers suggest no change of the Q-matrix."]
        else:
            lines = [
                f"The answers suggest another row of the Q-matrix for {len(changes)} of"
                f" {len(self.items)} items. Change a row only if it makes sense for the item: read"
                " its wording first."
            ]
        for change in changes[:MOST_SHOWN]:
            gone = [name for name in change.given if name not in change.suggested]
            come = [name for name in change.suggested if name not in change.given]
            moves = [f"add {', '.join(come)}"] if come else []
            moves += [f"drop {', '.join(gone)}"] if gone else []
            sure = ""
            if self.stability is not None:
                j = self.items.index(change.item)
                agrees = np.where(self.suggested[j] == 1, self.stability[j], 1 - self.stability[j])
                sure = (
                    "; in at least"
                    f" {100 * float(agrees[self.given[j] != self.suggested[j]].min()):.0f} % of the"
                    " replicates"
                )
            lines.append(
                f"  {change.item}: {' and '.join(moves)} (share of variance {change.pvaf_given:.2f}"
                f" -> {change.pvaf_suggested:.2f}, BIC {'falls' if change.gain > 0 else 'rises'} by"
                f" {abs(change.gain):.1f}{sure})"
            )
        if len(changes) > MOST_SHOWN:
            lines.append(f"  and {len(changes) - MOST_SHOWN} more")
        if not self.settled:
            lines.append(
                f"After {counted(self.num_rounds, 'round')} the suggestions still changed: take"
                " them with care."
            )
        return "\n".join(lines)

    def _asked(self, row: np.ndarray) -> tuple[str, ...]:
        return tuple(name for name, asked in zip(self.attributes, row, strict=True) if asked)


def validate_q(
    fit: FitRecord,
    data: Any,
    criterion: QCriterion | None = None,
    max_rounds: int = 20,
    at_once: bool = True,
    num_bootstrap: int = 0,
    seed: int = 0,
) -> QValidation:
    """Which rows of the Q-matrix the answers speak against, and what they speak for.

    Each item's attributes are chosen by the criterion, the model is fitted with the rows that were
    chosen, and so on until nothing changes. All sets of attributes are compared where there are at
    most eight, beyond that those within two attributes of the present one. With :class:`ItemBIC` a
    round that does not lower the extended BIC of the whole model is taken back, all but its best
    item; and the search is made three times, of whose ends the one with the least extended BIC
    counts: with all changes of a round, with the clearest three in ten, and from the Q-matrix that
    steps by Wald tests make of the given one with saturated items. Where a fifth of the entries is
    wrong, the attributes of a fit under a conjunctive rule are mixed up, and a search from there
    can end at a Q-matrix that fits worse than the right one; under saturated items they are less
    so.

    Items of rules with a curve (``"acdm"``, ``"rrum"``), saturated items with a limited order and
    additive NegativeBinomial items are taken as saturated; the sizes of NegativeBinomial items stay
    as the fit has them.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` with a Q-matrix.
        data: the rows of the fit, (N, J), NaN where missing.
        criterion: :class:`ItemBIC`, :class:`VarianceShare`, :class:`VarianceHull`,
            :class:`WaldSteps` or :class:`LikelihoodRatioSteps`; ``ItemBIC()`` if None.
        max_rounds: of choosing and fitting again, at most; 1 for the usual validation without
            repetition.
        at_once: change all items of a round; if False, the one with the largest gain of BIC.
        num_bootstrap: replicates of the rows on which all is done again, for
            :attr:`QValidation.stability`; 0 for none.
        seed: of the replicates.

    Raises:
        ValueError: for another model or one without a Q-matrix, more than twelve attributes, data
            that do not fit it, or settings out of range.
    """
    owner = "validate_q"
    structure = moment_model(fit, owner)
    layer = structure.layers[0]
    if layer.edges is None:
        raise ValueError(
            f"{owner}: a fit with a Q-matrix was expected, and this model leaves it open:"
            " fit.model.restricted(...) gives it one"
        )
    if layer.num_parents > MAX_ATTRIBUTES and structure.root.profiles is None:
        raise ValueError(
            f"{owner}: at most {MAX_ATTRIBUTES} attributes were expected, got {layer.num_parents}:"
            " their profiles are too many to list"
        )
    criterion = ItemBIC() if criterion is None else criterion
    if isinstance(criterion, type) or not callable(getattr(criterion, "choose", None)):
        raise ValueError(
            f"{owner}: criterion must be ItemBIC(), VarianceShare() or another of"
            f" inference.inspection, got {criterion!r}"
        )
    check_size(owner, "max_rounds", max_rounds)
    check_size(owner, "num_bootstrap", num_bootstrap, least=0)
    check_size(owner, "seed", seed, least=0)
    check_flag(owner, "at_once", at_once)
    rows = checked_as_fitted(fit, data)[0]
    with torch.no_grad():
        answers = Answers.of(structure, rows.cpu())
        declared = (
            ("saturated",) * layer.num_children if criterion.saturated else structure.item_rules()
        )
        rules = tuple(
            rule if rule in _allowed(answers, j, "saturated") else "saturated"
            for j, rule in enumerate(declared)
        )
        first = tables_of(fit, structure, answers, rules)
        search = _Search(criterion, rules, max_rounds, at_once)
        last, num_rounds, settled = search.run(answers, first)
        stability = None
        if num_bootstrap:
            generator = torch.Generator().manual_seed(seed)
            total = torch.zeros(first.q_matrix.shape)
            for _ in range(num_bootstrap):
                chosen = torch.randint(len(answers.x), (len(answers.x),), generator=generator)
                again = replace(first, posterior=first.posterior[chosen])
                total += search.run(answers.rows(chosen), again)[0].q_matrix
            stability = (total / num_bootstrap).double().numpy()
        return _record(fit, answers, first.q_matrix, last, search, num_rounds, settled, stability)


def _record(
    fit: FitRecord,
    answers: Answers,
    given: Tensor,
    last: ItemTables,
    search: _Search,
    num_rounds: int,
    settled: bool,
    stability: np.ndarray | None,
) -> QValidation:
    num_items, size = given.shape
    saturated = (
        last
        if search.criterion.saturated
        else last.under(answers, last.q_matrix, ("saturated",) * num_items)
    )
    candidates, shares, pairs, gains = [], [], [], []
    for j in range(num_items):
        vectors = _near(last.q_matrix[j], given[j])
        own = ItemEvidence(
            answers,
            saturated,
            j,
            ("saturated",),
            vectors,
            search.made.setdefault(_key(vectors), {}),
        ).pvaf
        places = [int((vectors == row).all(1).nonzero()[0]) for row in (given[j], last.q_matrix[j])]
        gain = 0.0
        if places[0] != places[1]:
            allowed = _allowed(answers, j, search.rules[j])
            two = ItemEvidence(
                answers, last, j, allowed, torch.stack([given[j], last.q_matrix[j]]), {}
            )
            gain = two.least_bic(0) - two.least_bic(1)
        candidates.append(vectors.long().numpy())
        shares.append(own)
        pairs.append(own[places].tolist())
        gains.append(gain)
    before, after = np.array(pairs).T
    own_names = getattr(fit.model, "item_names", None)
    items, attributes = (
        tuple(str(name) for name in labels_of(fit, dim, n))
        for dim, n in (("item", num_items), ("attribute", size))
    )
    return QValidation(
        fit.model,
        search.criterion,
        own_names or items,
        attributes,
        given.long().numpy(),
        last.q_matrix.long().numpy(),
        tuple(candidates),
        tuple(shares),
        before,
        after,
        np.array(gains),
        num_rounds,
        settled,
        stability,
    )


class Move(NamedTuple):
    """Another row of Q, and another rule, for an item."""

    gain: float
    item: int
    row: Tensor
    rule: str


@dataclass(frozen=True, eq=False)
class _Search:
    """Choosing and fitting again; ``made`` keeps candidates that items share."""

    criterion: QCriterion
    rules: tuple[str, ...]
    max_rounds: int
    at_once: bool
    made: dict[Any, dict[str, Candidates]] = field(default_factory=dict)

    def run(self, answers: Answers, first: ItemTables) -> tuple[ItemTables, int, bool]:
        """The last estimate, the rounds, and whether nothing changed in the last one; of several
        runs the one with the least extended BIC.
        """
        guard = self.criterion if isinstance(self.criterion, ItemBIC) else None
        if guard is None or not self.at_once or self.max_rounds == 1:
            return self._at_pace(answers, first, 1.0)
        ends = [self._at_pace(answers, first, pace) for pace in PACES]
        by_steps = _Search(
            WaldSteps(),
            ("saturated",) * answers.num_items,
            min(STEP_ROUNDS, self.max_rounds),
            True,
            self.made,
        )
        ends.append(self._at_pace(answers, by_steps._at_pace(answers, first, 1.0)[0], 1.0))
        return min(ends, key=lambda end: _score(guard, answers, end[0]))

    def _at_pace(
        self, answers: Answers, first: ItemTables, pace: float
    ) -> tuple[ItemTables, int, bool]:
        """One run, in whose rounds a share of the moves is made, the largest gains first."""
        tables = first.under(answers, first.q_matrix, self.rules)
        guard = self.criterion if isinstance(self.criterion, ItemBIC) else None
        met = {_key(tables.q_matrix)}
        for done in range(1, self.max_rounds + 1):
            moves = self._moves(answers, tables)
            if not moves:
                return tables, done, True
            new = _changed(
                answers,
                tables,
                moves[: math.ceil(pace * len(moves))] if self.at_once else moves[:1],
            )
            if guard is not None:
                bar = _score(guard, answers, tables) - MIN_GAIN
                if self.at_once and len(moves) > 1 and _score(guard, answers, new) >= bar:
                    new = _changed(answers, tables, moves[:1])
                if _score(guard, answers, new) >= bar:
                    return tables, done, True
            if _key(new.q_matrix) in met and guard is None:  # it goes round in a circle
                return new, done, torch.equal(new.q_matrix, tables.q_matrix)
            tables = new
            met.add(_key(tables.q_matrix))
        return tables, self.max_rounds, self.max_rounds == 1

    def _moves(self, answers: Answers, tables: ItemTables) -> list[Move]:
        """The items whose choice is another than what they have, the largest gain first."""
        out = []
        for j in range(answers.num_items):
            vectors = _near(tables.q_matrix[j])
            allowed = (
                _allowed(answers, j, self.rules[j])
                if isinstance(self.criterion, ItemBIC)
                else (self.rules[j],)
            )
            item = ItemEvidence(
                answers, tables, j, allowed, vectors, self.made.setdefault(_key(vectors), {})
            )
            place, rule, gain = self.criterion.choose(item)
            if place != item.given or rule != tables.rules[j]:
                out.append(Move(gain, j, vectors[place], rule))
        return sorted(out, key=lambda move: -move.gain)


def _allowed(answers: Answers, j: int, rule: str) -> tuple[str, ...]:
    """The rules that an item given under one may turn out to follow; additive only where its
    predictor is the natural parameter.
    """
    if rule != "saturated":
        return (rule,)
    return (
        RULES
        if answers.blocks[j][0].is_canonical
        else tuple(own for own in RULES if own != "additive")
    )


def _changed(answers: Answers, tables: ItemTables, moves: Sequence[Move]) -> ItemTables:
    """Fitted again with these rows; an attribute keeps an item."""
    q_matrix, rules = tables.q_matrix.clone(), list(tables.rules)
    for move in moves:
        before = q_matrix[move.item].clone()
        q_matrix[move.item] = move.row
        if bool(q_matrix.any(0).all()):
            rules[move.item] = move.rule
        else:
            q_matrix[move.item] = before
    return tables.under(answers, q_matrix, rules)


def _score(criterion: ItemBIC, answers: Answers, tables: ItemTables) -> float:
    """Extended BIC of the whole model, up to what does not change."""
    return (
        -2 * tables.log_likelihood
        + math.log(len(answers.x)) * tables.num_free
        + float(criterion.prices(tables.q_matrix.numpy()).sum())
    )


def _near(row: Tensor, other: Tensor | None = None) -> Tensor:
    """Sets of attributes that an item is compared with, bool (M, K): all of them, or those within
    two of its own.
    """
    size = len(row)
    if size <= MAX_ALL:
        codes = torch.arange(1, 2**size)
        return ((codes[:, None] >> torch.arange(size - 1, -1, -1)) & 1).bool()
    found = {tuple(row.tolist())} | ({tuple(other.tolist())} if other is not None else set())
    for number in (1, 2):
        for turned in itertools.combinations(range(size), number):
            new = row.clone()
            new[list(turned)] = ~new[list(turned)]
            found.add(tuple(new.tolist()))
    found |= {tuple(k == own for k in range(size)) for own in range(size)}
    return torch.tensor(sorted(own for own in found if any(own)))


def _key(matrix: Tensor) -> Any:
    return tuple(map(tuple, matrix.int().tolist()))

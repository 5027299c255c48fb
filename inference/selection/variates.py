r"""Partition of columns into variates that are independent inside each of some components.

Column j is cut into cells, and :math:`n_{ij}(a, b)` rows lie in cell a of column i and in cell b of
column j. For columns of different variates the chances of these pairs are

.. math:: P_{ij}(a, b) = \sum_{c=1}^{C} w_c \, f_{ic}(a) \, f_{jc}(b),

and for columns of one variate they are anything. So for a partition G the weights and the chances
of cells maximise the composite log-likelihood of the pairs that G keeps apart,

.. math:: \ell(w, f) = \sum_{i < j \text{ apart}} \sum_{ab} n_{ij}(a, b) \log P_{ij}(a, b),

by EM from several starts, and :math:`G^2_{ij} = 2 \sum_{ab} n_{ij} \log(n_{ij} / (N_{ij} P_{ij}))`
of every such pair, compared with chi-square of :math:`(B_i - 1)(B_j - 1)` degrees of freedom, B the
numbers of cells, tests whether i and j are independent inside the components. The test is
conservative, for the fit takes degrees of freedom. Its critical value :math:`q_{ij}` is that of the
level over the number of all pairs (Bonferroni).

At first every column is a variate of its own. As long as a pair is significant, two variates with
one of the most dependent pairs are merged. Then merges, splits in two and moves of a column go on
as long as they lower

.. math:: \sum_{i < j \text{ apart}} G^2_{ij} + \sum_{i < j \text{ together}} q_{ij}.

The components of a fit that holds dependent columns apart absorb a part of their dependence. So the
partition is safe where at least three variates are left and columns have more cells than there are
components; pairs of yes-no columns tell little. With fewer components than there are, columns are
put together that share one.

Source: composite likelihood of pairs after B. G. Lindsay (1988), doi:10.1090/conm/080/999014; its
residuals after D. J. Bartholomew and S. O. Leung (2002), doi:10.1348/000711002159617.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy
from scipy.stats import chi2

from inference.base.frames import pd
from inference.selection.joint_rank import FEWEST_ROWS, cells_of
from ppl_models.data.tables import as_table
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

MOST_CELLS = 5  # of a column
NUM_STARTS, SHORT, NUM_LONG, LONG = 6, 40, 2, 500  # starts, iterations of each and of the best
NUM_MERGES, NUM_FITTED = 6, 10  # partitions tried at a merge, and fitted at a later change
NUM_PAIRS = 20  # the most dependent, whose variates are merged or columns moved
LARGEST_SPLIT = 8  # columns of a variate whose splits in two are all tried
LOOK, LEAST_GAIN = 5, 2e-2  # iterations between two looks at the log-likelihood, and its gain
TINY = 1e-300


@shows_briefly
@dataclass(frozen=True, eq=False)
class Variates:
    """Partition of columns into variates, by :func:`find_variates`.

    Args:
        variates: names of the columns of each, as :class:`ppl_models.InClassNet` takes them.
        num_components: C; level: of the tests together.
        table: one row a pair of columns of different variates, the most dependent first: both
            names, G2, degrees of freedom, and p-value times the number of all pairs, at most 1.
    """

    variates: tuple[tuple[str, ...], ...]
    num_components: int
    level: float
    table: pd.DataFrame

    @property
    def fits(self) -> bool:
        """Tell whether no columns of different variates are dependent inside the components."""
        return bool(self.table["p_value"].min() > self.level)

    def text(self) -> str:
        """The partition in words."""
        groups = "; ".join(", ".join(own) for own in self.variates)
        found = f"{counted(len(self.variates), 'variate')}: {groups}."
        inside = f"inside {counted(self.num_components, 'component')}, at level {self.level:g}"
        if self.fits:
            return f"{found} No columns of different variates are dependent {inside}."
        first, second = self.table.loc[0, ["first", "second"]]
        return (
            f"{found} {first} and {second}, of different variates, are dependent {inside}: more"
            " components may be needed."
        )


def find_variates(
    data: Any, num_components: int, *, level: float = 0.01, seed: Seed = 0
) -> Variates:
    """Find which columns belong together, given the number of components.

    Args:
        data: rows, independent of each other: a table (N, J), NaN where missing. Columns of more
            than five values are cut at their quintiles.
        num_components: C; 1 asks which columns are dependent at all.
        level: of all tests of a step together.
        seed: of the starts.

    Raises:
        ValueError: for fewer than three columns or 100 rows, a column of one value, a number of
            components below 1, or a level outside (0, 1).

    Example:
        >>> import numpy as np, pandas as pd
        >>> from inference.selection import find_variates
        >>> rng = np.random.default_rng(0)
        >>> which = rng.integers(2, size=(3000, 1))
        >>> rows = pd.DataFrame(2.0 * which + rng.normal(size=(3000, 4)), columns=list("abcd"))
        >>> rows["b"] += rows["a"] * np.where(which[:, 0], 0.8, -0.8)
        >>> find_variates(rows, 2).variates
        (('a', 'b'), ('c',), ('d',))
    """
    check_size("find_variates", "num_components", num_components)
    check_number("find_variates", "level", level, "lie in (0, 1)", above=0, below=1)
    rng = np.random.default_rng(as_seed("find_variates", seed))
    table, names = as_table(data)
    rows = np.asarray(table.cpu(), dtype=float)
    names = names or tuple(str(j) for j in range(rows.shape[1]))
    if len(rows) < FEWEST_ROWS or rows.shape[1] < 3:
        raise ValueError(
            "find_variates: data must hold three columns or more, and at least"
            f" {FEWEST_ROWS} rows, got a table of {rows.shape}"
        )
    tables = PairTables.of(rows, names, rng, level)
    labels = np.arange(len(names))
    classes = tables.fit(labels, num_components, rng, None)
    while labels.max() > 1 and len(tables.dependent(labels, classes)):
        near = partitions(merges(labels, tables.apart(labels, classes)))[:NUM_MERGES]
        _, labels, classes = tables.best(near, classes, rng, 1)
    value = tables.criterion(labels, classes)
    while True:
        near = partitions(neighbours(labels, tables.apart(labels, classes)[:NUM_PAIRS]))
        found = tables.best(near, classes, rng, NUM_FITTED)
        if not found[0] < value - LEAST_GAIN:
            break
        value, labels, classes = found
    groups = (tuple(np.array(names)[labels == own].tolist()) for own in range(labels.max() + 1))
    first, second = tables.apart(labels, classes).T
    statistic, freedom = tables.statistics(classes)[first, second], tables.freedom[first, second]
    table = pd.DataFrame({
        "first": [names[i] for i in first],
        "second": [names[j] for j in second],
        "statistic": statistic,
        "degrees_of_freedom": freedom,
        "p_value": np.minimum(chi2.sf(statistic, freedom) * comb(len(names), 2), 1.0),
    })  # fmt: skip
    return Variates(tuple(groups), num_components, level, table)


Classes = tuple[np.ndarray, np.ndarray]  # weights (C,) and chances of cells (C, S)


@dataclass(frozen=True, eq=False)
class PairTables:
    """Tables of all pairs of columns.

    Args:
        counts: (S, S), by cells of all J columns side by side; column: of each cell, (S,).
        freedom, critical: degrees of freedom of each pair's test, and its critical value, (J, J).
    """

    counts: np.ndarray
    column: np.ndarray
    freedom: np.ndarray
    critical: np.ndarray

    @classmethod
    def of(
        cls, rows: np.ndarray, names: tuple[str, ...], rng: np.random.Generator, level: float
    ) -> PairTables:
        """Tables of rows (N, J).

        Raises:
            ValueError: for a column of one value.
        """
        where, which, column, num = [], [], list[int](), 0
        for j, name in enumerate(names):
            known = np.flatnonzero(~np.isnan(rows[:, j]))
            codes = cells_of(rows[known, j, None], MOST_CELLS, rng) if len(known) else known
            size = len(set(codes.tolist()))
            if size < 2:
                raise ValueError(
                    "find_variates: data: columns of two values or more were expected, and column"
                    f" {name!r} has {size}"
                )
            where.append(known)
            which.append(num + np.unique(codes, return_inverse=True)[1])
            column += [j] * size
            num += size
        row, cell = np.concatenate(where), np.concatenate(which)
        is_in = csr_array((np.ones(len(row)), (row, cell)), shape=(len(rows), num))
        sizes = np.bincount(column) - 1
        freedom = np.outer(sizes, sizes)
        critical = chi2.isf(level / comb(len(names), 2), freedom)
        return cls(np.asarray((is_in.T @ is_in).todense()), np.array(column), freedom, critical)

    def _by_column(self, values: np.ndarray) -> np.ndarray:
        """Sums over the cells of each column, of the last dim."""
        first = np.flatnonzero(np.diff(self.column, prepend=-1))
        return np.asarray(np.add.reduceat(values, first, axis=-1))

    def climb(self, labels: np.ndarray, classes: Classes, most: int) -> tuple[float, Classes]:
        """EM steps on the pairs apart: twice the composite log-likelihood, and the classes."""
        of_cell = labels[self.column]
        counts = np.where(of_cell[:, None] != of_cell, self.counts, 0.0)
        weights, cells = classes
        value, before = 0.0, -np.inf
        for step in range(most + 1):
            chances = np.maximum((cells.T * weights) @ cells, TINY)
            if step % LOOK == 0 or step == most:
                value = float(xlogy(counts, chances).sum())
                if value - before < LEAST_GAIN or step == most:
                    break
                before = value
            share = weights[:, None] * cells * (cells @ (counts / chances))
            total = share.sum(1)
            weights = total / total.sum()
            cells = share / np.maximum(self._by_column(share), TINY)[:, self.column]
        return value, (weights, cells)

    def fit(
        self, labels: np.ndarray, num: int, rng: np.random.Generator, near: Classes | None
    ) -> Classes:
        """Classes of the largest composite log-likelihood from random starts, and from some."""
        shares = np.diag(self.counts)
        starts = [] if near is None else [near]
        for _ in range(NUM_STARTS):
            cells = shares * (0.2 + rng.gamma(1.0, size=(num, len(shares))))
            cells /= self._by_column(cells)[:, self.column]
            starts.append((np.full(num, 1 / num), cells))
        short = sorted((self.climb(labels, own, SHORT) for own in starts), key=lambda own: -own[0])
        long = (self.climb(labels, own, LONG) for _, own in short[:NUM_LONG])
        return max(long, key=lambda own: own[0])[1]

    def statistics(self, classes: Classes) -> np.ndarray:
        """G2 of each pair, (J, J)."""
        weights, cells = classes
        chances = np.maximum((cells.T * weights) @ cells, TINY)
        together = self._by_column(self._by_column(self.counts).T)
        ratio = self.counts / chances / np.maximum(together, 1)[self.column][:, self.column]
        parts = 2 * xlogy(self.counts, np.where(self.counts > 0, ratio, 1.0))
        return self._by_column(self._by_column(parts).T)

    def apart(self, labels: np.ndarray, classes: Classes) -> np.ndarray:
        """Pairs of different variates, (n, 2), the most dependent inside the components first."""
        excess = (self.statistics(classes) - self.freedom) / np.sqrt(2 * self.freedom)
        first, second = np.nonzero(np.triu(labels[:, None] != labels))
        order = np.argsort(-excess[first, second], kind="stable")
        return np.stack([first, second], 1)[order]

    def dependent(self, labels: np.ndarray, classes: Classes) -> np.ndarray:
        """Statistics of pairs of different variates that are significant, (n,)."""
        statistics = self.statistics(classes)
        return statistics[np.triu(labels[:, None] != labels) & (statistics >= self.critical)]

    def criterion(self, labels: np.ndarray, classes: Classes) -> float:
        """Sum of G2 over pairs of different variates, and of critical values over the others."""
        chosen = np.where(labels[:, None] != labels, self.statistics(classes), self.critical)
        return float(np.triu(chosen, 1).sum())

    def best(
        self,
        partitions: list[np.ndarray],
        classes: Classes,
        rng: np.random.Generator,
        num_fitted: int,
    ) -> tuple[float, np.ndarray, Classes]:
        """Partition of the lowest criterion, of those that are the best after a few steps."""
        near = []
        for labels in partitions:
            own = self.climb(labels, classes, SHORT)[1]
            near.append((self.criterion(labels, own), labels, own))
        found = []
        for _, labels, own in sorted(near, key=lambda own: own[0])[:num_fitted]:
            fitted = self.fit(labels, len(classes[0]), rng, own)
            found.append((self.criterion(labels, fitted), labels, fitted))
        return min(found, key=lambda own: own[0])


def partitions(candidates: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Partitions of two variates or more, each once, labelled in the order of first columns."""
    found = dict[tuple[int, ...], None]()
    for labels in candidates:
        _, first, which = np.unique(labels, return_index=True, return_inverse=True)
        if len(first) > 1:
            found[tuple(np.argsort(np.argsort(first))[which].tolist())] = None
    return [np.array(labels) for labels in found]


def merges(labels: np.ndarray, pairs: np.ndarray) -> Iterator[np.ndarray]:
    """Partitions in which the variates of a pair of columns are one."""
    for i, j in pairs:
        yield np.where(labels == labels[j], labels[i], labels)


def neighbours(labels: np.ndarray, pairs: np.ndarray) -> Iterator[np.ndarray]:
    """Partitions with variates of some pairs merged, a column of them moved, or a variate split."""
    yield from merges(labels, pairs)
    for i, j in (*pairs, *pairs[:, ::-1]):
        changed = labels.copy()
        changed[i] = labels[j]
        yield changed
    for own in range(labels.max() + 1):
        (columns,) = np.nonzero(labels == own)
        for size in range(1, len(columns) // 2 + 1 if len(columns) <= LARGEST_SPLIT else 2):
            for part in combinations(columns.tolist(), size):
                changed = labels.copy()
                changed[list(part)] = labels.max() + 1
                yield changed

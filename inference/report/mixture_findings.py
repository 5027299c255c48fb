r"""Groups of a mixture as the rows show them: profiles, accuracy, dependence.

With r the chance of row n to be in component k, and m the mean of item j over rows weighted by r,
the groups separate an item as far as the share of its variance that lies between them.
Items that are independent inside the components have, at the truth,

.. math:: E \sum_k r_{nk} (x_{ni} - m_{ki})(x_{nj} - m_{kj}) = 0

so that the sum over rows, over the root of the sum of its squared terms, is about standard normal;
a pair that is far from it is dependent inside the groups, and the residual correlation says how
much, over rows that have both.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from inference.fitting.columns import as_matrix
from inference.report.sections import Subject
from inference.report.words import entry

MOST_COLUMNS = 60  # whose pairs are looked at
CHUNK = 2**20  # numbers at once
LEVEL = 0.01  # of all pairs together
CLEAR = 0.1  # correlation below which a dependence is none to speak of


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups as the rows show them.

    Args:
        chances: of each row to be in each group, (N, K).
        values: the items, (N, J), NaN where missing, where an item of categories is one column of 0
            and 1 for each; names: of these columns.
        items: the item that each column belongs to, J names.
        means: of each column in each group, (K, J).
        overall: (J,).
        spread: standard deviation over all rows, (J,).
        between: share of a column's variance that lies between the groups, (J,).
    """

    chances: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]
    items: tuple[str, ...]
    means: np.ndarray
    overall: np.ndarray
    spread: np.ndarray
    between: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """Expected share of rows in the group they are put into, NaN without rows, (K,)."""
        put, most = self.chances.argmax(-1), self.chances.max(-1)
        own = [most[put == k] for k in range(self.chances.shape[1])]
        return np.array([chances.mean() if len(chances) else np.nan for chances in own])

    def between_by_item(self) -> dict[str, float]:
        """Return the share of an item's variance between groups (Goodman-Kruskal tau)."""
        out = {}
        for item in dict.fromkeys(self.items):
            own = [j for j, name in enumerate(self.items) if name == item]
            total = (self.spread[own] ** 2).sum()
            out[item] = (
                float((self.between[own] * self.spread[own] ** 2).sum() / total)
                if total > 0
                else 0.0
            )
        return out


@dataclass(frozen=True)
class Dependent:
    """Two columns that go together inside groups, and their correlation there."""

    one: str
    other: str
    correlation: float


def groups_of(subject: Subject) -> Groups | None:
    """The groups of a fitted mixture; None without rows."""
    fit, data = subject.fit, subject.data
    if data is None:
        return None
    (chances,) = (
        value.detach().cpu().double().numpy() for value in fit.posterior_latents(data).values()
    )
    values, names, items = _columns(
        subject, as_matrix(fit, data)
    )  # not the covariates, which no component has a distribution of
    seen = ~np.isnan(values)
    filled = np.where(seen, values, 0.0)
    counts = np.maximum(seen.sum(0), 1)
    overall = filled.sum(0) / counts
    spread = np.sqrt((np.where(seen, values - overall, 0.0) ** 2).sum(0) / counts)
    weight = chances.T @ seen  # (K, J)
    means = np.where(weight > 0, (chances.T @ filled) / np.maximum(weight, 1e-300), overall)
    total = spread**2 * counts
    between = (weight * (means - overall) ** 2).sum(0) / np.where(total > 0, total, 1.0)
    return Groups(chances, values, names, items, means, overall, spread, between)


def shares_of(subject: Subject) -> np.ndarray | None:
    """Return the share of the rows in each group, (K,); None without rows."""
    if "weights" in subject.fit.params:
        weights: np.ndarray = subject.fit.params["weights"].detach().cpu().double().numpy()
        return weights
    groups = subject.once(groups_of)
    return None if groups is None else groups.chances.mean(0)


def _columns(
    subject: Subject, table: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return a table with one column a category, names of columns, and their items."""
    fit = subject.fit
    known = (fit.item_names or tuple(map(str, range(table.shape[1]))))[
        : table.shape[1] - fit.structure.num_given
    ]
    categories = fit.category_names
    columns, names, items = [], [], []
    for j, item in enumerate(known):
        values, own = table[:, j], categories.get(item)
        is_missing = np.isnan(values)
        for code, category in enumerate(own or ("",)):
            columns.append(values if own is None else np.where(is_missing, np.nan, values == code))
            names.append(item if own is None else f"{item}={category}")
            items.append(item)
    return np.stack(columns, 1), tuple(names), tuple(items)


def dependent_items(groups: Groups) -> tuple[Dependent, ...] | None:
    """Return pairs of items that depend inside the groups, most first; None if not tried."""
    num_columns = len(groups.names)
    pairs = [
        (i, j) for i in range(num_columns) for j in range(i) if groups.items[i] != groups.items[j]
    ]
    if not pairs or num_columns > MOST_COLUMNS:
        return None
    sums, squares, own = np.zeros((3, num_columns, num_columns))
    step = max(1, CHUNK // num_columns**2)
    for start in range(0, len(groups.values), step):
        x, r = groups.values[start : start + step], groups.chances[start : start + step]
        off = np.nan_to_num(x[:, None] - groups.means)  # (n, K, J)
        own += np.einsum("nk,nki->in", r, off**2) @ ~np.isnan(x)  # of i, in rows that have j
        terms = np.einsum("nk,nki,nkj->nij", r, off, off)
        sums += terms.sum(0)
        squares += (terms**2).sum(0)
    sizes = np.sqrt(own * own.T)
    correlations = np.where(sizes > 0, sums / np.where(sizes > 0, sizes, 1.0), 0.0)
    scores = np.where(squares > 0, np.abs(sums) / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    limit = NormalDist().inv_cdf(1 - LEVEL / (2 * len(pairs)))
    clear = [(i, j) for i, j in pairs if scores[i, j] > limit and abs(correlations[i, j]) >= CLEAR]
    clear.sort(key=lambda pair: -abs(correlations[pair]))
    found: dict[tuple[str, str], Dependent] = {}  # of two items the columns that go together most
    for i, j in clear:
        pair = Dependent(groups.names[j], groups.names[i], float(correlations[i, j]))
        found.setdefault((groups.items[j], groups.items[i]), pair)
    return tuple(found.values())


def meanings_of(noun: str) -> dict[str, str]:
    """Return meanings of the estimates of components; ``noun`` names a component."""
    words: dict[str, str] = entry("mixture.meanings")
    return {name: text.format(noun=noun) for name, text in words.items()}

r"""Rank of joint tables: components that variates independent inside each of them show.

Let the variates be independent inside each of C components, and let A and B be two groups of them,
each cut into cells. The chances of the pairs of cells are

.. math:: P_{ab} = \sum_{i=1}^{C} w_i \, P(A \in a \mid i) \, P(B \in b \mid i),

a matrix of rank at most C, and of rank C where the chances of the C components are linearly
independent on both sides. So the rank bounds the number of components from below, without any
distribution for the variates and without a fit; one is independence of A and B.

**Test of rank k.** With :math:`r_a` and :math:`c_b` the margins,
:math:`T = (P_{ab} / \sqrt{r_a c_b}) = U S V^\top`, and :math:`U_0, V_0` the singular vectors after
the first k, :math:`\lambda = \mathrm{vec}(U_0^\top T V_0)`, the singular values left on a diagonal.
Where the rank is k, estimates of margins and vectors move :math:`\lambda` in second order only, so

.. math::

    N \lambda^\top \Omega^{-1} \lambda \to \chi^2_{(p - k)(q - k)}, \qquad
    \Omega = \sum_{ab} P_{ab} \, w_{ab} w_{ab}^\top, \quad
    w_{ab} = \frac{u_a}{\sqrt{r_a}} \otimes \frac{v_b}{\sqrt{c_b}},

with :math:`u_a, v_b` the rows of :math:`U_0, V_0`. :math:`\Omega` is taken at the table of rank k,
whose noise is less than that of the table itself.

**Limit.** For k = 1, 2, ... the least p-value over the pairs of groups, times their number, is
compared with the level; the first k that is not rejected is the limit. It exceeds C only if C
itself is rejected, as in :mod:`inference.selection.lower_limit`.

Sources: H. Kasahara and K. Shimotsu (2014), doi:10.1111/rssb.12022, the rank and groups; F.
Kleibergen and R. Paap (2006), doi:10.1016/j.jeconom.2005.02.011, the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.base.frames import pd
from ppl_models.data.tables import as_table
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number

FEWEST_ROWS = 100
ROWS_A_CELL = 20  # of the table of two groups, on average
FEWEST_CELLS, MOST_CELLS = 4, 32  # of a group
CELLS_OF_ONE = 8  # of a measurement: a finer table has more noise and little more to show
NUM_PAIRS = 8  # of groups drawn at random, where there are more than three variates
FEWEST_EXPECTED = 5.0  # counts in directions of the table that are tested
ROWS_OF_CELLS = 20_000  # from which the cells of a vector are found
COLUMNS = (
    ["first", "second", "first_cells", "second_cells"]
    + ["rank", "statistic", "degrees_of_freedom", "p_value"]
)  # fmt: skip


@shows_briefly
@dataclass(frozen=True, eq=False)
class JointRank:
    """Lower confidence limit for the number of components, by :func:`joint_rank`.

    Args:
        number: the limit; level: the confidence.
        table: one row a test: both groups, cells of each, the rank tested, statistic, degrees of
            freedom and p-value.
        is_at_end: whether every rank that the cells allow was rejected.
    """

    number: int
    level: float
    table: pd.DataFrame
    is_at_end: bool

    def text(self) -> str:
        """The limit in words."""
        end = " More could not have been seen in so few cells." if self.is_at_end else ""
        return (
            f"The variates show at least {counted(self.number, 'component')}, at"
            f" {100 * self.level:g}% confidence, by the rank of their joint distributions.{end}"
        )


def joint_rank(data: Any, *, level: float = 0.95, seed: Seed = 0) -> JointRank:
    """Bound the number of components of conditionally independent variates from below.

    Args:
        data: rows, independent of each other: a table (N, V), NaN where missing; or a sequence of V
            variates, each (N,) or (N, D). A missing entry is a value of its own.
        level: confidence of the limit.
        seed: of the groups, where there are more than three variates, and of the cells of vectors.

    Raises:
        ValueError: for fewer than two variates, variates of unlike numbers of rows, fewer than 100
            rows, or a level outside (0, 1).

    Example:
        >>> import numpy as np
        >>> from inference.selection import joint_rank
        >>> rng = np.random.default_rng(0)
        >>> which = rng.integers(3, size=(5000, 1))
        >>> joint_rank(3.0 * which + rng.normal(size=(5000, 3))).number
        3
    """
    check_number("joint_rank", "level", level, "lie in (0, 1)", above=0, below=1)
    variates = _variates(data)
    rng = np.random.default_rng(as_seed("joint_rank", seed))
    most = int(np.clip(np.sqrt(len(variates[0]) / ROWS_A_CELL), FEWEST_CELLS, MOST_CELLS))
    pairs = _pairs(len(variates), most, rng)
    coded: dict[tuple[int, int], np.ndarray] = {}

    def cells(group: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray]:
        """Leading variates of a group whose cells are few enough, and their cells."""
        own = int(most ** (1 / len(group)) + 1e-9)
        codes, used = np.zeros(len(variates[0]), dtype=np.int64), tuple[int, ...]()
        for v in group:
            if (v, own) not in coded:
                coded[v, own] = cells_of(variates[v], own, rng)
            both = codes * (coded[v, own].max() + 1) + coded[v, own]
            both = np.unique(both, return_inverse=True)[1]
            if v != group[0] and both.max() >= most:
                break
            codes, used = both, (*used, v)
        return used, codes

    tables = []
    for place, pair in enumerate(pairs):
        (first, left), (second, right) = map(cells, pair)
        pairs[place] = (first, second)
        counts = np.zeros((left.max() + 1, right.max() + 1))
        np.add.at(counts, (left, right), 1)
        tables.append(counts)
    rows, number, rejected = [], 1, True
    largest = max(min(table.shape) for table in tables)
    while rejected and number < largest:
        chances = []
        for (first, second), table in zip(pairs, tables, strict=True):
            if number >= min(table.shape):
                continue
            statistic, freedom, p_value = rank_test(table, number)
            chances.append(p_value)
            rows.append((first, second, *table.shape, number, statistic, freedom, p_value))
        rejected = min(chances) * len(pairs) <= 1 - level
        number += rejected
    return JointRank(number, level, pd.DataFrame(rows, columns=COLUMNS), rejected)


def rank_test(counts: np.ndarray, rank: int) -> tuple[float, int, float]:
    """Test the rank of a table of counts (p, q): statistic, degrees of freedom and p-value.

    Args:
        counts: every row and column has some.
        rank: of the hypothesis, 1 to min(p, q) - 1; 1 is independence.
    """
    from scipy.stats import chi2

    num_rows = counts.sum()
    share = counts / num_rows
    rows, columns = np.sqrt(share.sum(1)), np.sqrt(share.sum(0))
    root = np.outer(rows, columns)  # the first pair of singular vectors is theirs, of value one
    left, singular, right = np.linalg.svd(share / root - root)
    kept = rank - 1
    near = root**2 + (left[:, :kept] * singular[:kept]) @ right[:kept] * root
    near = np.maximum(near, 0.0) / np.maximum(near, 0.0).sum()
    u, v = (
        _after(left, kept, rows) / rows[:, None],
        _after(right.T, kept, columns) / columns[:, None],
    )
    # sums over one side, then the other: of (p - k)^2 (q - k)^2 numbers none is made pq times
    half = np.einsum("ab,bj,bl->ajl", near, v, v, optimize=True)
    omega = np.einsum("ajl,ai,ak->ijkl", half, u, u, optimize=True)
    size = u.shape[1] * v.shape[1]
    values, vectors = np.linalg.eigh(omega.reshape(size, size))
    kept = values * num_rows >= FEWEST_EXPECTED * share.size
    score = (u.T @ share @ v).ravel() @ vectors[:, kept]
    statistic, freedom = float(num_rows * (score**2 / values[kept]).sum()), int(kept.sum())
    return statistic, freedom, float(chi2.sf(statistic, freedom)) if freedom else 1.0


def _after(vectors: np.ndarray, num: int, first: np.ndarray) -> np.ndarray:
    """Basis of what is orthogonal to a vector and to the first of some others."""
    known = np.column_stack([first, vectors[:, :num]])
    return np.linalg.qr(known, mode="complete")[0][:, known.shape[1] :]


def _variates(data: Any) -> list[np.ndarray]:
    """Variates, (N, D) each."""
    if isinstance(data, Sequence):
        columns = [part if np.ndim(part) > 1 else np.asarray(part)[:, None] for part in data]
        tables = [as_table(part)[0] for part in columns]
    else:
        tables = [*as_table(data)[0].split(1, dim=1)]
    variates = [np.asarray(table.cpu(), dtype=float) for table in tables]
    sizes = sorted({len(part) for part in variates})
    if len(variates) < 2 or len(sizes) > 1 or sizes[0] < FEWEST_ROWS:
        raise ValueError(
            "joint_rank: data must hold two variates or more, with one number of rows of at least"
            f" {FEWEST_ROWS}, got {counted(len(variates), 'variate')} of {sizes} rows"
        )
    return variates


def _pairs(
    num: int, most: int, rng: np.random.Generator
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of groups of variates without a common one."""
    if num == 2:
        return [((0,), (1,))]
    if num == 3:
        return [((v,), tuple(w for w in range(3) if w != v)) for v in range(3)]
    largest = max(1, min(int(np.log2(most)), num // 2))
    pairs = []
    for _ in range(NUM_PAIRS):
        order = rng.permutation(num)
        first, second = rng.integers(min(2, largest), largest + 1, size=2)
        pairs.append(
            (
                tuple(map(int, np.sort(order[:first]))),
                tuple(map(int, np.sort(order[first : first + second]))),
            )
        )
    return list(dict.fromkeys(pairs))


def cells_of(variate: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Cells of a variate (N, D), at most so many, one of them for what is missing."""
    missing = np.isnan(variate).any(1)
    most = max(2, most - bool(missing.any()))
    codes = np.full(len(variate), most, dtype=np.int64)
    known = variate[~missing]
    if variate.shape[1] > 1:
        from sklearn.cluster import KMeans

        scale = known.std(0)
        known = known / np.where(scale > 0, scale, 1.0)
        some = known[rng.permutation(len(known))[:ROWS_OF_CELLS]]
        num = min(most, len(np.unique(some, axis=0)))
        cells = KMeans(num, n_init=1, random_state=int(rng.integers(2**31))).fit(some)
        codes[~missing] = cells.predict(known)
        return codes
    column = known[:, 0]
    values, which = np.unique(column, return_inverse=True)
    if len(values) > min(most, CELLS_OF_ONE):
        num = min(most, CELLS_OF_ONE)
        edges = np.unique(np.quantile(column, np.arange(1, num) / num))
        which = np.searchsorted(edges, column, side="right")
    codes[~missing] = which
    return codes

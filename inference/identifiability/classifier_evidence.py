r"""Evidence of rows: certainty of classifiers, differences of densities, weights.

Notation: :math:`\alpha_t^{(i)}(x) = P(\text{component } i \mid x_t)` for variate t, :math:`w_i =
E\,\alpha_t^{(i)}`.

No maximum of the outputs of a network is ever taken: the largest of N noisy numbers lies near one
whatever the truth. The essential supremum is met from below by means over the rows of the highest
outputs, and where there are several members (refits of the same model), one member chooses the rows
and the others say how sure they are there.

How well any method could know the weights of components whose densities are free is the
semiparametric bound. A row tells of its component through :math:`(\alpha_v(x_v))_v` alone, so each
variate may be cut into cells by its classifier values without losing more than the cells' width. In
cells the mixture is latent class analysis: with chances :math:`p_v^{(i)}(k)` of cell k and
posterior r of the components the scores are

.. math::

    \partial_{w_i} = \frac{r_i}{w_i} - \frac{r_C}{w_C}, \qquad \partial_{v i k} = r_i \bigl(1[k_v =
    k] - p_v^{(i)}(k)\bigr),

and what the weights' scores have that the others' do not explain, :math:`I_w - I_{wp} I_{pp}^{-1}
I_{pw}`, is the information that N rows hold N times. The square root of its inverse bounds the
standard error of every regular estimator from below (cells make it larger by some per cent).

Source: P. J. Bickel, C. A. J. Klaassen, Y. Ritov and J. A. Wellner (1993), Efficient and adaptive
estimation for semiparametric models (the bound); the cells are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["supported", "refuted at this resolution", "too few rows"]
SHARES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)  # of the rows that are surest
LEAST_ROWS = 30
NUM_BLOCKS, NUM_RESAMPLES = 500, 200


@dataclass(frozen=True)
class Purity:
    """Certainty of a classifier where it is surest.

    Args:
        variate: t.
        component: i.
        against: None for alpha_i itself; j for alpha_i / (alpha_i + alpha_j).
        share: of the mass of the denominator that lies in the rows looked at.
        rows: the rows looked at, each counted with its denominator.
        mean: of the ratio over these rows.
        lower, upper: one-sided bounds of the mean, each at the stated level for all shares tried
            together.
        best_lower: the largest lower bound over all shares: the supremum is at least that.
        verdict: about the supremum being one.
    """

    variate: int
    component: int
    against: int | None
    share: float
    rows: float
    mean: float
    lower: float
    upper: float
    best_lower: float
    verdict: Verdict


@dataclass(frozen=True)
class CrossCheck:
    r"""Rows that one variate calls i and another calls j, counted without using any label.

    With sets X_i and Y_j on which the two classifiers are at least 1 - eps,

    .. math::

        \frac{P(X_i \times Y_j)}{P(X_i) P(Y_j)} = \sum_k \frac{\bar\alpha_k(X_i)
        \bar\alpha_k(Y_j)}{w_k},

    at most eps (1 / w_i + 1 / w_j) + eps^2 sum_{k other} 1 / w_k where i and j differ.

    Args:
        variates: t, u; components: i, j.
        rows: in both sets; expected: were the two variates independent.
        lower, upper: Clopper-Pearson bounds of the ratio.
        allowed: the largest ratio that classifiers as sure as they say would give.
        verdict: "agrees", "disagrees" (the certainty is the network's own), or "too few rows".
    """

    variates: tuple[int, int]
    components: tuple[int, int]
    rows: int
    expected: float
    lower: float
    upper: float
    allowed: float
    verdict: Literal["agrees", "disagrees", "too few rows"]


@dataclass(frozen=True)
class LabelFreeWeight:
    """Share of a component from counts alone.

    Rows of X_i times rows of Y_i, over N times rows of both.

    Args:
        variates: t, u; component: i.
        estimate, lower, upper: of w_i, Clopper-Pearson.
        fitted: the weight of the fit.
    """

    variates: tuple[int, int]
    component: int
    estimate: float
    lower: float
    upper: float
    fitted: float


@dataclass(frozen=True)
class Independence:
    r"""Linear independence of the C densities of a variate.

    :math:`G_{ij} = E[\alpha^{(i)} \alpha^{(j)}] / (w_i w_j)` is the Gram matrix of :math:`f_i /
    \sqrt{P}`; ``smallest`` is the smallest eigenvalue of G scaled to ones on its diagonal, 1 where
    densities do not overlap and 0 where they are dependent.

    Args:
        variate: v.
        singular_values: of G, falling.
        smallest, lower, upper: of the scaled matrix, with one-sided bounds.
        verdict: "independent" or "near-dependent".
    """

    variate: int
    singular_values: tuple[float, ...]
    smallest: float
    lower: float
    upper: float
    verdict: Literal["independent", "near-dependent"]


def one_sided(variance_rows: float, by_member: np.ndarray, level: float) -> float:
    """Half-width of a one-sided bound from rows and members (Student's t, M - 1 degrees)."""
    from scipy.stats import norm, t

    num = len(by_member)
    if num < 2:
        return float(norm.ppf(level)) * math.sqrt(variance_rows)
    variance = variance_rows + float(by_member.var(ddof=1)) * (1 + 1 / num)
    return float(t.ppf(level, num - 1)) * math.sqrt(variance)


def certainty(
    members: np.ndarray,
    variate: int,
    component: int,
    against: int | None,
    delta: float,
    level: float,
) -> Purity:
    """Mean of alpha_i, or of alpha_i / (alpha_i + alpha_j), over the rows where it is largest.

    Args:
        members: (M, N, C), the classifier of one variate in each of M matched fits.
        variate: see :class:`Purity`.
        component: likewise.
        against: likewise.
        delta: the supremum counts as one from 1 - delta on.
        level: of the bounds, for example 0.95.
    """
    found = certainty_by_share(members, component, against, level)
    if not found:
        mass = np.ones(members.shape[1])
        if against is not None:
            mass = members[..., [component, against]].sum(-1).mean(0)
        numbers = (math.nan, float(mass.sum()), math.nan, math.nan, math.nan, 0.0)
        return Purity(variate, component, against, *numbers, "too few rows")
    best_lower = max(row[3] for row in found)
    good = [row for row in found if row[3] >= 1 - delta]
    chosen = good[0] if good else found[-1]
    verdict: Verdict = "supported" if good else "too few rows"
    if not good and chosen[4] < 1 - delta:
        verdict = "refuted at this resolution"
    return Purity(variate, component, against, *chosen, best_lower, verdict)


def certainty_by_share(
    members: np.ndarray, component: int, against: int | None = None, level: float = 0.95
) -> list[tuple[float, float, float, float, float]]:
    """Share of the mass, rows, mean, lower and upper bound of the ratio, by share.

    For every share that is small enough and holds thirty rows, falling.

    Args:
        members: (M, N, C), the classifier of one variate in each of M matched fits.
        component: see :class:`Purity`.
        against: likewise.
        level: of the bounds of all shares together.
    """
    top = members[..., component]
    mass = np.ones_like(top) if against is None else top + members[..., against]
    num_members = len(top)
    ratio = top / np.maximum(mass, 1e-300)
    # rows by falling certainty of the member that chooses
    order = np.argsort(-ratio, axis=1, kind="stable")
    usual = float(top.mean() / mass.mean())
    total = mass.mean(0).sum()
    shares = [q for q in SHARES if q <= usual / 2 and q * total >= LEAST_ROWS]
    if not shares:
        return []
    strict = 1 - (1 - level) / len(shares)
    found = []
    for share in shares:
        values = np.full((num_members, num_members), np.nan)  # (chooser, judge)
        errors, counts = np.zeros(num_members), np.zeros(num_members)
        for m in range(num_members):
            own = order[m]
            num = int(np.searchsorted(mass[m, own].cumsum(), share * mass[m].sum())) + 1
            rows = own[:num]
            judges = [k for k in range(num_members) if k != m or num_members == 1]
            over = mass[np.ix_(judges, rows)]
            sums = over.sum(1)
            values[m, judges] = top[np.ix_(judges, rows)].sum(1) / np.maximum(sums, 1e-300)
            mean_top, mean_over = top[np.ix_(judges, rows)].mean(0), over.mean(0)
            level_here = mean_top.sum() / max(mean_over.sum(), 1e-300)
            squares = np.square(mean_top - level_here * mean_over).sum()
            errors[m] = squares / max(mean_over.sum(), 1e-300) ** 2
            counts[m] = mean_over.sum()
        by_judge = np.nanmean(values, 0)
        mean = float(np.nanmean(values))
        half = one_sided(float(errors.mean()), by_judge, strict)
        found.append(
            (share, float(counts.mean()), mean, max(0.0, mean - half), min(1.0, mean + half))
        )
    return found


def cross_checks(
    alphas: list[np.ndarray], weights: np.ndarray, eps: float, level: float
) -> tuple[list[CrossCheck], list[LabelFreeWeight]]:
    """Counts of pure rows in two variates against those that sure classifiers would give.

    Args:
        alphas: V arrays (N, C).
        weights: (C,).
        eps: a row is pure where alpha is at least 1 - eps.
        level: of all bounds together.
    """
    num_rows, size = alphas[0].shape
    pure = [alpha >= 1 - eps for alpha in alphas]
    pairs = [(t, u) for u in range(len(alphas)) for t in range(u)]
    checks, shares = [], []
    tail = (1 - level) / (2 * size * size * len(pairs))
    for t, u in pairs:
        counts = pure[t].astype(float).T @ pure[u].astype(float)  # (C, C)
        first, second = pure[t].sum(0), pure[u].sum(0)
        for i in range(size):
            for j in range(size):
                expected = float(first[i]) * float(second[j]) / num_rows
                rows = int(counts[i, j])
                if expected == 0:
                    continue
                low, high = (
                    num_rows * bound / expected for bound in clopper_pearson(rows, num_rows, tail)
                )
                if i == j:
                    if rows:
                        own, least, most = (
                            1 / value if value > 0 else 1.0
                            for value in (rows / expected, high, low)
                        )
                        bounds = (min(1.0, own), least, min(1.0, most))
                        shares.append(LabelFreeWeight((t, u), i, *bounds, float(weights[i])))
                    continue
                two = 1 / weights[i] + 1 / weights[j]
                allowed = float(eps * two + eps**2 * ((1 / weights).sum() - two))
                verdict: Literal["agrees", "disagrees", "too few rows"] = "too few rows"
                if high <= allowed or low > allowed:
                    verdict = "agrees" if high <= allowed else "disagrees"
                numbers = (rows, expected, low, high, allowed)
                checks.append(CrossCheck((t, u), (i, j), *numbers, verdict))
    return checks, shares


def clopper_pearson(successes: int, trials: int, tail: float) -> tuple[float, float]:
    """Exact bounds of a probability, each missed with probability at most ``tail``.

    Source: C. J. Clopper and E. S. Pearson (1934), doi:10.2307/2331986.
    """
    from scipy.stats import beta

    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = (
        1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    )
    return low, high


def independence(
    members: np.ndarray, variate: int, tolerance: float, level: float, seed: int
) -> Independence:
    """Eigenvalues of the Gram matrix of a variate's densities, with a bootstrap of rows.

    With several members each product takes two different ones, so that their noise does not pass
    for a difference.

    Args:
        members: (M, N, C).
        variate: v.
        tolerance: densities count as dependent where the lower bound of ``smallest`` does not
            exceed it.
        level: of the bounds.
        seed: of the bootstrap.
    """
    num_members, num_rows, size = members.shape
    mean = members.mean(0)
    generator = np.random.default_rng(seed)
    # rows are exchangeable: blocks of them are resampled
    block = generator.permutation(num_rows) % min(NUM_BLOCKS, num_rows)
    by_member, products = [], []
    for m in range(num_members):
        rest = mean if num_members == 1 else (mean * num_members - members[m]) / (num_members - 1)
        sums = _sums_by_block(members[m], rest, block)
        products.append(sums)
        by_member.append(_smallest(sums.mean(0)))
    blocks = np.mean(products, 0)  # (blocks, C, C)
    gram = blocks.mean(0) * len(blocks) / num_rows
    smallest = _smallest(gram)
    num, even = len(blocks), np.full(len(blocks), 1 / len(blocks))
    resampled = [
        _smallest(np.tensordot(generator.multinomial(num, even), blocks, 1))
        for _ in range(NUM_RESAMPLES)
    ]
    half = one_sided(float(np.var(resampled, ddof=1)), np.asarray(by_member), level)
    lower, upper = smallest - half, min(1.0, smallest + half)
    weights = mean.mean(0)
    values = np.linalg.svd(gram / np.maximum(np.outer(weights, weights), 1e-300), compute_uv=False)
    verdict: Literal["independent", "near-dependent"] = (
        "independent" if lower > tolerance else "near-dependent"
    )
    return Independence(
        variate, tuple(float(value) for value in values), smallest, lower, upper, verdict
    )


def _sums_by_block(first: np.ndarray, second: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Symmetrised sums of outer products over the rows of each block, (blocks, C, C)."""
    size = first.shape[1]
    out = np.empty((int(block.max()) + 1, size, size))
    for i in range(size):
        for j in range(size):
            product = 0.5 * (first[:, i] * second[:, j] + first[:, j] * second[:, i])
            out[:, i, j] = np.bincount(block, product, len(out))
    return out


def _smallest(gram: np.ndarray) -> float:
    """Smallest eigenvalue of a Gram matrix scaled to ones on its diagonal."""
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    return float(np.linalg.eigvalsh(gram / np.outer(scale, scale))[0])


def weight_interval(weights: np.ndarray, suprema: np.ndarray) -> tuple[float, float]:
    """Interval of the weights of component 0 that have the same distribution of two variates.

    One point if, and only if, all suprema are one; see :func:`equal_mixtures`.

    Args:
        weights: (2,), of the components.
        suprema: (2, 2), of variate t and component i; a lower bound of each gives an interval that
            is too wide, never too narrow.

    Raises:
        ValueError: for other shapes, weights that do not sum to one, or suprema outside (0, 1].
    """
    corners = equal_mixtures(weights, suprema)
    return float(corners[:, 0].min()), float(corners[:, 0].max())


def equal_mixtures(weights: np.ndarray, suprema: np.ndarray) -> np.ndarray:
    r"""Corners of all mixtures of two components with the same distribution of two variates.

    With :math:`w = w_1` and :math:`a(x), b(y)` the classifiers of component 1 the distribution is
    that of the product of the margins times :math:`1 + (a - w)(b - w) / (w (1 - w))`. So a mixture
    with weight w' has the same distribution if, and only if,

    .. math::

        a' = w' + s (a - w), \quad b' = w' + t (b - w), \quad
        s t = \frac{w' (1 - w')}{w (1 - w)},

    and all are mixtures for which a' and b' stay in [0, 1]. With :math:`\mu_{ti} =
    \operatorname{ess\,sup} \alpha_t^{(i)}` this is :math:`s \le \min\{(1 - w') / (\mu_{x1} - w),
    w' / (\mu_{x2} - w_2)\}`, concave in w', and the same of t bounds s from below by a convex
    function: a polygon in (w', s), over which a'(x) is linear for each x. Its four corners are the
    ends of the weights, where

    .. math::

        \frac{(\mu_{x2} - w_2)(\mu_{y2} - w_2)}{w_1 w_2} \le \frac{w_1'}{w_2'} \le \frac{w_1
        w_2}{(\mu_{x1} - w_1)(\mu_{y1} - w_1)},

    and the two weights at which a' or b' reaches 0 and 1.

    Args:
        weights: (2,), of the components.
        suprema: (2, 2), of variate t and component i.

    Returns:
        (4, 3): w', s and t of each corner; the extremes of w', of a'(x) for every x and of b'(y)
        for every y are among these.

    Raises:
        ValueError: as of :func:`weight_interval`.
    """
    weights, suprema = np.asarray(weights, float), np.asarray(suprema, float)
    if weights.shape != (2,) or suprema.shape != (2, 2):
        raise ValueError(
            f"weight_interval: weights (2,) and suprema (2, 2) were expected, got {weights.shape}"
            f" and {suprema.shape}"
        )
    if not ((weights > 0).all() and math.isclose(weights.sum(), 1, abs_tol=1e-6)):
        raise ValueError(
            f"weight_interval: weights must be positive and sum to 1, got {weights.tolist()}"
        )
    if not ((suprema > 0) & (suprema <= 1)).all():
        raise ValueError(f"weight_interval: suprema must lie in (0, 1], got {suprema.tolist()}")
    product = float(weights.prod())
    above, below = np.maximum(suprema - weights, TINY).T  # mu - w of the components, (variates,)
    lower, upper = float(below.prod()) / product, product / float(above.prod())
    ends = np.array([lower / (1 + lower), upper / (1 + upper), *below / (above + below)])
    # of the other component: 1 - ends is nought by rounding where upper is large
    others = np.array([1 / (1 + lower), 1 / (1 + upper), *above / (above + below)])
    # the two last within the first, which a supremum that is no bound may break
    ends = ends.clip(min(ends[:2]), max(ends[:2]))
    others = others.clip(min(others[:2]), max(others[:2]))
    most = np.minimum(others[:, None] / above, ends[:, None] / below)  # of s and of t, (4, 2)
    products = ends * others / product  # of s and t
    least = products[:, None] / most[:, ::-1]
    # the third corner has the largest s, the fourth the largest t
    s = np.array([*most[:3, 0], least[3, 0]])
    return np.stack([ends, s, products / s], 1)


def classifier_bounds(
    alphas: np.ndarray, variate: int, weight: float, corners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest chance of component 0 in all mixtures with the same distribution, (N,).

    Args:
        alphas: (N,), chance of component 0 given values of a variate.
        variate: 0 or 1, of the two.
        weight: of component 0 in the fit.
        corners: of :func:`equal_mixtures`.
    """
    values = corners[:, :1] + corners[:, 1 + variate : 2 + variate] * (alphas - weight)
    return values.min(0).clip(0, 1), values.max(0).clip(0, 1)


TINY = 1e-12
NUM_CELLS = 16  # of a variate
LOOKED_AT = 20_000  # rows, evenly spaced, that cells are found from
MOST_CONFIGURATIONS = 2**15  # of cells that are summed over; beyond, so many rows are drawn
EMPTY = 1e-6  # chance of a cell in a component that does not reach it
SINGULAR = 1e-9


def weight_errors(alphas: Sequence[np.ndarray], weights: np.ndarray, seed: int = 0) -> np.ndarray:
    """Least standard errors of the weights, (C,), for as many rows as there are.

    Infinite where the cells do not determine them.

    Args:
        alphas: V arrays (N, C), the classifier of each variate.
        weights: (C,).
        seed: of cells and draws.
    """
    generator = np.random.default_rng(seed)
    cells = [_cells(np.asarray(alpha, float), generator) for alpha in alphas]
    size, num_rows = len(weights), len(alphas[0])
    tables = []
    for alpha, own in zip(alphas, cells, strict=True):
        count = np.stack(
            [np.bincount(own, column, own.max() + 1) for column in np.asarray(alpha, float).T]
        )  # (C, K)
        tables.append(count / count.sum(1, keepdims=True))
    if np.prod([table.shape[1] for table in tables], dtype=float) <= MOST_CONFIGURATIONS:
        rows = np.array(list(itertools.product(*(range(table.shape[1]) for table in tables))))
        share = None
    else:
        component = generator.choice(size, MOST_CONFIGURATIONS, p=weights / weights.sum())
        rows = np.stack([_drawn(table, component, generator) for table in tables], 1)
        share = np.full(len(rows), 1 / len(rows))
    # (rows, C)
    joint = weights * np.prod([table[:, k].T for table, k in zip(tables, rows.T, strict=True)], 0)
    mixture = joint.sum(1)
    known = mixture > 0
    rows, joint, mixture = rows[known], joint[known], mixture[known]
    share = mixture if share is None else share[known]
    posterior = joint / mixture[:, None]
    of_weights = posterior[:, :-1] / weights[:-1] - posterior[:, -1:] / weights[-1]
    others = []
    for table, k in zip(tables, rows.T, strict=True):
        for i in range(size):
            # cells that the component reaches, but one
            free = (table[i] > EMPTY) & (np.arange(table.shape[1]) != table[i].argmax())
            others.append(
                posterior[:, i : i + 1] * ((k[:, None] == np.flatnonzero(free)) - table[i, free])
            )
    rest = np.concatenate(others, 1)
    weighted = rest * share[:, None]
    information = (of_weights * share[:, None]).T @ of_weights
    shared = of_weights.T @ weighted
    inverse = np.linalg.pinv(rest.T @ weighted, rcond=1e-12, hermitian=True)
    left = information - shared @ inverse @ shared.T
    values, vectors = np.linalg.eigh(left)
    if values[0] <= SINGULAR * np.trace(information):
        return np.full(size, np.inf)
    covariance = vectors / values @ vectors.T / num_rows
    return np.sqrt(np.append(np.diag(covariance), covariance.sum()))


def _cells(alpha: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The cell of every row, (N,): rows of like classifier values."""
    from scipy.cluster.vq import kmeans2, vq

    looked = alpha[:: max(1, len(alpha) // LOOKED_AT)]
    if len(np.unique(looked.round(6), axis=0)) <= NUM_CELLS:
        return np.unique(alpha.round(6), axis=0, return_inverse=True)[1].ravel()
    centres, owner = kmeans2(looked, NUM_CELLS, minit="++", seed=generator)
    centres = centres[np.bincount(owner, minlength=NUM_CELLS) > 0]
    owner = vq(alpha, centres)[0]
    return np.unique(owner, return_inverse=True)[1].ravel()


def _drawn(table: np.ndarray, component: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A cell for every row of a given component."""
    edges = table.cumsum(1)[component]
    return (generator.random((len(component), 1)) * edges[:, -1:] > edges).sum(1)

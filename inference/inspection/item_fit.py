r"""Fit of items, of pairs of items and of the whole model of attributes.

**Items.** *By attribute*, for items of any family. An answer is held against its mean given the
row's other answers, on the scale of the item's statistic (logarithms of LogNormal items),

.. math::

    E_{ij} = \sum_\alpha \varphi_{i\alpha}^{-j} \mu_{\alpha j}, \qquad \varphi_{i\alpha}^{-j} =
    P(\alpha \mid x_{i,-j}), \qquad
    r_j = \sum_i h_i (T_{ij} - E_{ij}), \qquad h_i = (1, P(\alpha_1 = 1 \mid x_{i,-j}), \dots,
    P(\alpha_K = 1 \mid x_{i,-j})).

If the item asks for an attribute that its row of Q does not have, those who have the attribute do
better than is said. Under the true parameters r has covariance :math:`V = \sum_i h_i h_i^\top
\mathrm{Var}[T_{ij} \mid x_{i,-j}]`; at estimates of information I it has :math:`V - D I^{-1}
D^\top` with :math:`D = \sum_i h_i \, \partial E_{ij} / \partial \theta^\top`. So :math:`X_j^2 =
r_j^\top V^{-1} r_j` is a sum of squared standard normals with weights :math:`\lambda`, the
eigenvalues of :math:`V^{-1/2} (V - D I^{-1} D^\top) V^{-1/2}`. The statistic and degrees reported
are :math:`X^2 \sum \lambda / \sum \lambda^2` and :math:`(\sum \lambda)^2 / \sum \lambda^2`, which
have the mean and variance of a :math:`\chi^2` distribution (Satterthwaite).

*By score*, for right-wrong items and complete rows (S-X2). Rows are grouped by their rest score r,
the number of the other items that they solve. Given a profile the rest scores of item j have the
distribution :math:`S_{jr}(\alpha)` of a sum of independent bits, built item by item (Lord and
Wingersky),

.. math:: S_r \leftarrow (1 - \mu_{\alpha k}) S_r + \mu_{\alpha k} S_{r-1}, \qquad
    E_{jr} = \frac{\sum_\alpha p_\alpha \mu_{\alpha j} S_{jr}(\alpha)}{\sum_\alpha p_\alpha
    S_{jr}(\alpha)}, \qquad
    X_j^2 = \sum_g \frac{\{\sum_{r \in g} N_r (O_{jr} - E_{jr})\}^2}{\sum_{r \in g} N_r E_{jr} (1 -
    E_{jr})},

O the observed shares; neighbouring rest scores are joined into groups g until each expects five
rows that solve the item and five that do not. Its usual distribution, :math:`\chi^2` with (groups
less the item's free parameters) degrees of freedom, is an approximation: estimates are those of the
whole table of answers, not of these groups. It rejects right items too often, the more so the more
parameters they have, and sees less of a wrong Q-matrix (``benchmarks/attributes.py``); it is here
for comparison with other programs.

Both have :math:`\mathrm{RMSEA} = \{ \max(0, X^2 - df) / (N \, df) \}^{1/2}`.

**Pairs of items.** Given a profile of attributes items are independent. Over the population, on the
scale of the items' statistics (logarithms of LogNormal items),

.. math::

    m_j = \sum_\alpha p_\alpha \mu_{\alpha j}, \qquad C_{jk} = \sum_\alpha p_\alpha (\mu_{\alpha j}
    - m_j)(\mu_{\alpha k} - m_k),

and what a pair has beyond that is the residual correlation, observed minus the model's. The
residual product of a pair,

.. math:: r_{jk} = \frac1n \sum_i (T_{ij} - m_j)(T_{ik} - m_k) - C_{jk}, \qquad
    n \, \mathrm{Var}(r_{jk}) = \sum_\alpha p_\alpha \{v_{\alpha j} + (\mu_{\alpha j} - m_j)^2\}
    \{v_{\alpha k} + (\mu_{\alpha k} - m_k)^2\}
    - C_{jk}^2 - n \, d^\top I^{-1} d,

with :math:`d = \partial C_{jk} / \partial \theta` and I the information of all parameters, is
standard normal when divided by its standard error: z, and :math:`z^2` is :math:`\chi^2` with one
degree of freedom. Beside it, for right-wrong items, stands the usual Pearson statistic of the
pair's 2 x 2 table,

.. math:: X_{jk}^2 = n \sum_{a, b} \{P_{ab} - \pi_{ab}\}^2 / \pi_{ab},

for comparison with other programs: held against :math:`\chi^2` with one degree of freedom it hardly
ever rejects, because parameters were fitted to the same tables (``benchmarks/attributes.py``).

Yen's :math:`Q_{3,jk}` is the correlation over rows of the residuals :math:`T_{ij} - \sum_\alpha
P(\alpha \mid x_i) \mu_{\alpha j}`. Each answer moves the posterior that it is held against, so that
for independent items it is centred below 0: at :math:`-1/(J - 1)` where rows are placed on one
continuous trait, and nearer to 0 for profiles. So it is centred by its mean over pairs here
(Christensen, Makransky and Horton), not by that figure.

Rows that miss one answer of a pair are left out of it, which is right where answers are missing at
random whatever the row's attributes.

**The whole model.** Let r be the J + J (J - 1) / 2 observed shares :math:`p_j`, :math:`p_{jk}` of
rows that solve an item, or both of a pair, minus those of the model; :math:`\Xi` the covariance of
:math:`\sqrt N` r under the model and :math:`\Delta` the derivative of the model's shares by its P
free parameters. Then

.. math::

    M_2 = N \, r^\top \{ \Xi^{-1} - \Xi^{-1} \Delta (\Delta^\top \Xi^{-1} \Delta)^{-1} \Delta^\top
    \Xi^{-1} \} r

is asymptotically :math:`\chi^2` under the model with J (J + 1) / 2 - P degrees of freedom, and
:math:`\mathrm{RMSEA}_2 = \{ \max(0, M_2 - df) / (N \, df) \}^{1/2}`. Items are independent given a
profile, so with :math:`\mu_\alpha` the chances of the items and :math:`v_\alpha` those of the
shares, for shares a and b

.. math::

    E[m_a m_b] = \sum_\alpha p_\alpha \, v_{\alpha a} v_{\alpha b} \prod_{i \in a \cap b}
    \mu_{\alpha i}^{-1},

an item in both counting once. SRMSR is the root mean square difference of the observed and the
model's correlations of pairs.

Source: M. Orlando and D. Thissen (2000), doi:10.1177/01466216000241003, here with rest scores for
total ones; F. M. Lord and M. S. Wingersky (1984), doi:10.1177/014662168400800409; W. K. Newey
(1985), doi:10.2307/1911011 (residuals at estimates); F. E. Satterthwaite (1946),
doi:10.2307/3002019. (the residuals by attribute are ours); W. M. Yen (1984),
doi:10.1177/014662168400800201, and (1993), doi:10.1111/j.1745-3984.1993.tb00423.x (the bias); W.-H.
Chen and D. Thissen (1997), doi:10.3102/10769986022003265 (2 x 2 tables); K. B. Christensen, G.
Makransky and M. Horton (2017), doi:10.1177/0146621616677520; A. Maydeu-Olivares and Y. Liu (2015),
doi:10.1037/a0039015 (standardised residuals of pairs); A. Maydeu-Olivares and H. Joe (2006),
doi:10.1007/s11336-005-1295-9; Y. Liu, W. Tian and T. Xin (2016), doi:10.3102/1076998615621293.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2, norm
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.distributions import constraints

from inference.base.frames import pd
from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.record import FitRecord
from inference.inspection.attributes import (
    Answers,
    AttributeMoments,
    all_bernoulli,
    answers_of,
    holm,
    moment_model,
    moments_of,
    profiles_of,
    refuse_penalty,
)
from inference.programs.program import Params, Program
from inference.structures.layers.attributes import AttributeStructure
from inference.uncertainty import observed_information
from ppl_models.data.tables import check_complete
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.repr import shows_briefly

LEAST_EXPECTED = 5.0  # right and wrong answers that a group of rest scores expects
LEVEL = 0.05
METHODS = ("attributes", "score")
COLLINEAR = 1e-8  # of the eigenvalues of V scaled to unit diagonal
# share of a residual's variance: below it the estimates fit it whatever the data
NOTHING_LEFT = 0.05


@shows_briefly
@dataclass(frozen=True, eq=False)
class ItemFit:
    """Fit of each item, one entry an item.

    Args:
        items: J names; attributes: K names.
        how: "attributes" or "score" (S-X2).
        statistic, degrees: a chi-square statistic and its degrees of freedom; NaN where the item's
            own parameters leave none.
        p_value: the chance of a larger one under the model; p_holm: the same, corrected for the
            number of items.
        rmsea: misfit a degree of freedom, a row.
        num_rows: that answered the item.
        z: (J, K), of "attributes": how much better (above 0) or worse than the model says rows do
            that have the attribute, in standard errors; NaN where the item's own parameters leave
            nothing to see, and for "score".
    """

    items: tuple[str, ...]
    attributes: tuple[str, ...]
    how: str
    statistic: np.ndarray
    degrees: np.ndarray
    p_value: np.ndarray
    p_holm: np.ndarray
    rmsea: np.ndarray
    num_rows: np.ndarray
    z: np.ndarray

    @property
    def misfitting(self) -> tuple[str, ...]:
        """Items that the model does not describe, at 5 % for all of them together."""
        return tuple(name for name, p in zip(self.items, self.p_holm, strict=True) if p < LEVEL)

    @property
    def suspects(self) -> tuple[str, ...]:
        """Attribute with the largest ``|z|`` of each item; empty where there is none."""
        size = np.abs(np.nan_to_num(self.z))
        return tuple(
            self.attributes[k] if size[j, k] > 0 else "" for j, k in enumerate(size.argmax(1))
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line an item; ``attribute`` departs most from the model, by ``z``."""
        names = ("statistic", "degrees", "p_value", "p_holm", "rmsea", "num_rows")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.how == "attributes":
            places = np.abs(np.nan_to_num(self.z)).argmax(1)
            columns |= {"attribute": self.suspects, "z": self.z[np.arange(len(self.z)), places]}
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))

    def text(self) -> str:
        """Findings in a sentence or two."""
        if not self.misfitting:
            return (
                f"None of {len(self.items)} items is answered otherwise than the model says, as far"
                f" as {int(self.num_rows.max()):,} rows can tell."
            )
        suspects = dict(zip(self.items, self.suspects, strict=True))
        shown = ", ".join(
            f"{name} (see attribute {suspects[name]})" if suspects[name] else name
            for name in self.misfitting
        )
        return (
            f"{len(self.misfitting)} of {len(self.items)} items misfit:"
            f" {shown}. Look at the row of the Q-matrix, the rule and the wording of each."
        )


def item_fit(fit: FitRecord, data: Any, how: str = "attributes") -> ItemFit:
    """Item fit of a model of attributes.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty (its weak priors are
            allowed for).
        data: the rows it was fitted to, (N, J), NaN where missing.
        how: "attributes" for residuals by attribute, which takes every family and missing answers
            and works out the information of all parameters; "score" for S-X2, which is quicker, and
            needs right-wrong items and complete rows.

    Raises:
        ValueError: for another model, a penalty, data that do not fit, an unknown ``how`` or one
            that does not apply; with "attributes", for an estimate that is not at a maximum.
    """
    if how not in METHODS:
        raise ValueError(f"item_fit: how must be one of {METHODS}, got {how!r}")
    fit.refuse_weights("item_fit")
    structure, params, answers = answers_of(fit, data, "item_fit")
    layer = structure.layers[0]
    refuse_penalty(layer, "item_fit")
    profiles = profiles_of(structure, "item_fit")
    names = tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents))
    if how == "attributes":
        moving = _moving_moments(fit, data, structure, profiles)
        statistic, degrees, z = _by_attribute(*moving, profiles, answers)
    else:
        if not all_bernoulli(structure) or not answers.complete:
            why = f"the items are {layer.response!r}"
            why = "an answer is missing" if all_bernoulli(structure) else why
            raise ValueError(
                f"item_fit: how='score' counts right answers of complete rows, and {why}; use"
                " how='attributes'"
            )
        if fit.tied:
            raise ValueError(
                "item_fit: how='score' is not worked out for a fit with tied parameters"
            )
        moments = moments_of(structure, params, profiles)
        statistic, degrees = _by_score(structure, moments, answers, fit.fixed or {})
        z = np.full((len(statistic), len(names)), np.nan)
    p_value = np.asarray(chi2.sf(statistic, degrees))  # NaN stays
    num_rows = answers.mask.sum(0).round().long().numpy()
    rmsea = np.sqrt(np.maximum(0.0, statistic - degrees) / (num_rows * degrees))
    return ItemFit(
        answers.items, names, how, statistic, degrees, p_value, holm(p_value), rmsea, num_rows, z
    )


# ---------------------------------------------------------------- residuals by attribute


def _moving_moments(
    fit: FitRecord, data: Any, structure: AttributeStructure, profiles: Tensor
) -> tuple[Tensor, AttributeMoments, Tensor]:
    """Free entries of the parameters, the moments as functions of them, and their covariance."""
    information = observed_information(fit, data)
    free = information.estimate.clone().requires_grad_()
    with torch.enable_grad():
        moving = moments_of(structure, information.coordinates.params(free), profiles)
    return free, moving, information.covariance()[0]


def _by_attribute(
    free: Tensor, moving: AttributeMoments, covariance: Tensor, profiles: Tensor, answers: Answers
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistics and degrees of the items, (J,), and z, (J, K)."""
    moments = moving.detached()
    log_joint = moments.log_joint(answers)
    size = len(answers.items)
    statistic, degrees = np.full(size, np.nan), np.full(size, np.nan)
    z = np.full((size, profiles.shape[1]), np.nan)
    for j in range(size):
        seen = answers.mask[:, j] > 0
        x, others = answers.statistic[seen], answers.mask[seen].clone()
        others[:, j] = 0.0
        own = torch.outer(x[:, j], moments.slopes[:, j]) - moments.offsets[:, j]
        posterior = torch.softmax(log_joint[seen] - own, -1)  # (n, C), of the other answers
        expected = posterior @ moments.mean[:, j]
        square = moments.variance[:, j] + moments.mean[:, j].square()
        variance = posterior @ square - expected.square()
        weights = torch.nn.functional.pad(posterior @ profiles, (1, 0), value=1.0)  # (n, 1 + K)
        # derivative of the prediction by the log-joint
        tilt = posterior * (moments.mean[:, j] - expected.unsqueeze(-1))
        slopes = []
        for weight in weights.mT:
            by_row = tilt * weight.unsqueeze(-1)
            parts = (
                ((x * others).mT @ by_row).mT * moving.slopes,
                -(others.mT @ by_row).mT * moving.offsets,
                by_row.sum(0) * moving.log_weights,
                weight @ posterior * moving.mean[:, j],
            )
            total = torch.stack([part.sum() for part in parts]).sum()
            slopes.append(torch.autograd.grad(total, free, retain_graph=True)[0])
        residual = weights.mT @ (x[:, j] - expected)
        whole = (weights.mT * variance) @ weights
        slope = torch.stack(slopes)
        left = whole - slope @ covariance @ slope.mT
        known = left.diagonal() > NOTHING_LEFT * whole.diagonal()
        errors = left.diagonal().clamp(min=1e-300).sqrt()
        z[j] = torch.where(known, residual / errors, torch.nan)[1:].numpy()
        statistic[j], degrees[j] = _satterthwaite(residual, whole, left)
    return statistic, degrees, z


def _satterthwaite(residual: Tensor, whole: Tensor, left: Tensor) -> tuple[float, float]:
    """Statistic and degrees of residuals with covariance ``whole``, and ``left`` at the fit.

    NaN where nothing is left.
    """
    scale = whole.diagonal().sqrt()
    if not bool((scale > 0).all()) or not bool(torch.isfinite(whole).all()):
        return np.nan, np.nan
    values, vectors = torch.linalg.eigh(whole / torch.outer(scale, scale))
    kept = values > COLLINEAR * values[-1]
    whiten = (vectors[:, kept] / values[kept].sqrt()).mT / scale
    shares = torch.linalg.eigvalsh(whiten @ left @ whiten.mT).clamp(0, 1)
    if float(shares[-1]) <= NOTHING_LEFT:
        return np.nan, np.nan
    total, squares = float(shares.sum()), float(shares.square().sum())
    return float((whiten @ residual).square().sum()) * total / squares, total**2 / squares


# ---------------------------------------------------------------- rest scores


def _by_score(
    structure: AttributeStructure, moments: AttributeMoments, answers: Answers, fixed: Params
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and degrees of the items, (J,)."""
    layer = structure.layers[0]
    graph = layer.graph
    if graph is None:
        raise ValueError("item_fit: a model with a Q-matrix was expected; use how='attributes'")
    expected = expected_by_rest_score(moments.weights, moments.mean)  # (J, J)
    x, size = answers.statistic, len(answers.items)
    rest = (x.sum(-1, keepdim=True) - x).round().long()  # (N, J)
    place = (rest + size * torch.arange(size)).ravel()
    rows = torch.bincount(place, minlength=size * size).reshape(size, size).to(x)
    right = torch.bincount(place, weights=x.ravel(), minlength=size * size).reshape(size, size)
    num_own = _free(fixed, layer.intercepts, graph[:, 0]).long()
    num_own += (_free(fixed, layer.loadings, graph) & graph.cpu()).sum(-1)
    statistic, degrees = np.full(size, np.nan), np.full(size, np.nan)
    for j in range(size):
        group = _joined(rows[j], expected[j])
        num = int(group.max()) + 1
        if num <= int(num_own[j]):
            continue
        mean, spread = rows[j] * expected[j], rows[j] * expected[j] * (1 - expected[j])
        zero = torch.zeros(num, dtype=x.dtype)
        gap, spread = (zero.index_add(0, group, part) for part in (right[j] - mean, spread))
        statistic[j], degrees[j] = float((gap.square() / spread).sum()), num - int(num_own[j])
    return statistic, degrees


def expected_by_rest_score(weights: Tensor, chances: Tensor) -> Tensor:
    """P(item j solved | r of the others solved), (J, J), from profiles (C,) and (C, J)."""
    size = chances.shape[1]
    # of the rest score without item j, given a profile
    score_chances = chances.new_zeros(size, len(weights), size)
    score_chances[:, :, 0] = 1.0
    others = ~torch.eye(size, dtype=torch.bool)
    for k in range(size):
        own, chance = score_chances[others[k]], chances[:, k].unsqueeze(-1)
        more = own * (1 - chance)
        more[..., 1:] += own[..., :-1] * chance
        score_chances[others[k]] = more
    solved = torch.einsum("c,cj,jcr->jr", weights, chances, score_chances)
    return solved / torch.einsum("c,jcr->jr", weights, score_chances).clamp(
        min=torch.finfo(score_chances.dtype).tiny
    )


def _joined(rows: Tensor, expected: Tensor) -> Tensor:
    """Group of each rest score, (J,): neighbours join until both answers are expected."""
    group, number, right, wrong = [], 0, 0.0, 0.0
    for solved, failed in torch.stack([rows * expected, rows * (1 - expected)], 1).tolist():
        group.append(number)
        right, wrong = right + solved, wrong + failed
        if min(right, wrong) >= LEAST_EXPECTED:
            number, right, wrong = number + 1, 0.0, 0.0
    # what is left at the end joins the last group
    return torch.tensor(group).clamp(max=max(0, number - 1))


MAX_PAIRS = 20_000
ROUNDING = 1e-20  # of a squared mean, up to which a variance is none


@shows_briefly
@dataclass(frozen=True, eq=False)
class LocalDependence:
    """Dependence of pairs of items given the attributes, in upper-triangle order (P).

    Args:
        items: J names; pairs: (P, 2), numbers of the items.
        residual_correlation: observed minus the model's.
        z: the standardised residual product; NaN where the parameters of the pair leave nothing to
            see.
        p_value: two-sided, of z; p_holm: corrected for the number of pairs.
        x2: Pearson's statistic of the 2 x 2 table; NaN for other than right-wrong items.
        q3: correlation of the residuals of rows; NaN, as ``residual_correlation``, where all of
            these rows gave an item the same answer.
        num_rows: that answered both.
    """

    items: tuple[str, ...]
    pairs: np.ndarray
    residual_correlation: np.ndarray
    z: np.ndarray
    p_value: np.ndarray
    p_holm: np.ndarray
    x2: np.ndarray
    q3: np.ndarray
    num_rows: np.ndarray

    @property
    def q3_bias(self) -> float:
        """Centre of Q3 for independent items on one trait, -1 / (J - 1); 0 for profiles."""
        return -1 / (len(self.items) - 1)

    @property
    def dependent(self) -> tuple[tuple[str, str], ...]:
        """Dependent pairs at 5 % for all of them together; the largest ``|z|`` first."""
        order = np.argsort(-np.nan_to_num(np.abs(self.z)), kind="stable")
        return tuple(
            (self.items[self.pairs[c, 0]], self.items[self.pairs[c, 1]])
            for c in order
            if self.p_holm[c] < LEVEL
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line a pair; ``q3_centred`` is Q3 less its mean over all pairs."""
        names = ("residual_correlation", "z", "p_value", "p_holm", "x2", "q3")
        columns = {name: getattr(self, name) for name in names}
        columns |= {"q3_centred": self.q3 - np.nanmean(self.q3), "num_rows": self.num_rows}
        pairs = [(self.items[j], self.items[k]) for j, k in self.pairs]
        index = pd.MultiIndex.from_tuples(pairs, names=("item", "other"))
        return pd.DataFrame(columns, index=index)

    @property
    def matrix(self) -> np.ndarray:
        """Residual correlations, (J, J), 0 on the diagonal."""
        out = np.zeros((len(self.items), len(self.items)))
        out[self.pairs[:, 0], self.pairs[:, 1]] = out[self.pairs[:, 1], self.pairs[:, 0]] = (
            self.residual_correlation
        )
        return out

    def text(self) -> str:
        """Findings in a sentence or two."""
        if not self.dependent:
            return (
                f"No pair of the {len(self.items)} items shares more than the attributes explain."
            )
        shown = ", ".join(f"{one} and {other}" for one, other in self.dependent[:8])
        more = f" and {len(self.dependent) - 8} more" if len(self.dependent) > 8 else ""
        return (
            f"{len(self.dependent)} of {len(self.pairs)} pairs of items share more or less than the"
            f" attributes explain: {shown}{more}. A common text or picture, an attribute that is"
            " missing from the Q-matrix, or a wrong entry in it would do that."
        )


def local_dependence(fit: FitRecord, data: Any) -> LocalDependence:
    """Pairs of items that are dependent given the attributes, by two moments; any family.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty (its weak priors are
            allowed for).
        data: the rows it was fitted to, (N, J), NaN where missing.

    Raises:
        ValueError: for another model, a penalty, data that do not fit, one item, more than 20,000
            pairs, a pair that no row answered, or an estimate that is not at a maximum.
    """
    fit.refuse_weights("local_dependence")
    structure, _, answers = answers_of(fit, data, "local_dependence")
    layer = structure.layers[0]
    refuse_penalty(layer, "local_dependence")
    size = layer.num_children
    pairs = torch.triu_indices(size, size, 1)
    if not 1 <= pairs.shape[1] <= MAX_PAIRS:
        raise ValueError(
            f"local_dependence: from 1 to {MAX_PAIRS:,} pairs of items were expected, {size} items"
            f" have {pairs.shape[1]:,}"
        )
    profiles = profiles_of(structure, "local_dependence")
    both = (answers.mask.mT @ answers.mask)[pairs[0], pairs[1]]
    if bool((both < 2).any()):
        one, other = pairs[:, int(both.argmin())].tolist()
        raise ValueError(
            f"local_dependence: items {answers.items[one]!r} and {answers.items[other]!r} were not"
            " answered by the same rows; drop one of them"
        )
    free, moving, covariance = _moving_moments(fit, data, structure, profiles)
    with torch.enable_grad():
        moved = moving.covariance[pairs[0], pairs[1]]
        slopes = torch.stack([torch.autograd.grad(c, free, retain_graph=True)[0] for c in moved])
    moments, implied = moving.detached(), moved.detach()
    centred = (answers.statistic - moments.expected) * answers.mask
    products = (centred.mT @ centred)[pairs[0], pairs[1]] / both
    around = moments.variance + (moments.mean - moments.expected).square()
    whole = (around.mT * moments.weights @ around)[pairs[0], pairs[1]] - implied.square()
    left = whole - both * ((slopes @ covariance) * slopes).sum(-1)
    z = torch.where(
        left > NOTHING_LEFT * whole,
        (products - implied) * (both / left.clamp(min=1e-300)).sqrt(),
        torch.nan,
    ).numpy()
    p_value = 2 * norm.sf(np.abs(z))
    spread = moments.covariance.diagonal().sqrt()
    scale = spread[pairs[0]] * spread[pairs[1]]
    predicted = torch.softmax(moments.log_joint(answers), -1) @ moments.mean
    x2 = torch.full((pairs.shape[1],), torch.nan)
    if all_bernoulli(structure):
        x2 = _pearson(answers, moments, pairs, both)
    observed = _pair_correlations(answers.statistic, answers.mask, pairs)
    residual = _pair_correlations(answers.statistic - predicted, answers.mask, pairs)
    return LocalDependence(
        answers.items,
        pairs.mT.numpy(),
        (observed - implied / scale).numpy(),
        z,
        p_value,
        holm(p_value),
        x2.double().numpy(),
        torch.where(observed.isnan(), observed, residual).numpy(),
        both.long().numpy(),
    )


def _pair_correlations(values: Tensor, mask: Tensor, pairs: Tensor) -> Tensor:
    """Correlations of pairs of columns over the rows that have both, (P,); NaN of constants."""
    means = (values * mask).sum(0) / mask.sum(0)
    x = (values - means) * mask
    count = mask.mT @ mask
    mean = (x.mT @ mask) / count  # of the row's item where the column's is there
    square = (x.square().mT @ mask) / count - mean.square()
    cross = (x.mT @ x) / count - mean * mean.mT
    square = torch.where(square > ROUNDING * means.square().unsqueeze(-1), square, torch.nan)
    return (cross / (square * square.mT).sqrt())[pairs[0], pairs[1]]


def _pearson(answers: Answers, moments: AttributeMoments, pairs: Tensor, both: Tensor) -> Tensor:
    """Pearson statistics of the 2 x 2 tables, (P,)."""
    total = torch.zeros(pairs.shape[1], dtype=moments.mean.dtype)
    sides = [(1 - answers.statistic) * answers.mask, answers.statistic * answers.mask]
    chances = [1 - moments.mean, moments.mean]
    for one, chance in zip(sides, chances, strict=True):
        for other, its_chance in zip(sides, chances, strict=True):
            observed = (one.mT @ other)[pairs[0], pairs[1]] / both
            expected = (chance.mT * moments.weights @ its_chance)[pairs[0], pairs[1]]
            total += both * (observed - expected).square() / expected.clamp(min=1e-300)
    return total


MAX_SHARES = 5000  # J + J (J - 1) / 2; its square is held
RANK_TOLERANCE = 1e-9
INTERVAL = 0.90


@dataclass(frozen=True)
class LimitedInformationFit:
    """Fit of a model to the shares of items and of pairs.

    Args:
        m2: the statistic; degrees: of freedom; p_value: the chance of a larger one under the model.
        rmsea2: misfit a degree of freedom, a row; below .03 is often called good, below .045 fair
            (with items of two answers).
        rmsea2_interval: at 90 %.
        srmsr: root mean square residual correlation; below .05 is often called good.
        num_rows: N.
        num_undetermined: directions of the parameters that the shares do not determine; the degrees
            of freedom count those that they do.
    """

    m2: float
    degrees: int
    p_value: float
    rmsea2: float
    rmsea2_interval: tuple[float, float]
    srmsr: float
    num_rows: int
    num_undetermined: int


def limited_information_fit(fit: FitRecord, data: Any) -> LimitedInformationFit:
    """M2, RMSEA2 with its interval, and SRMSR of a model of attributes with Bernoulli items.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty, by maximum
            likelihood.
        data: the rows it was fitted to, (N, J), complete.

    Raises:
        ValueError: for another model, other items than Bernoulli, a penalty, missing answers, too
            many items, or no degree of freedom left.
    """
    fit.refuse_weights("limited_information_fit")
    if fit.tied:
        raise ValueError("limited_information_fit: not worked out for a fit with tied parameters")
    structure = moment_model(fit, "limited_information_fit")
    layer, root = structure.layers[0], structure.root
    if not all_bernoulli(structure):
        raise ValueError(
            f"limited_information_fit: Bernoulli items were expected, got {layer.response!r}"
        )
    refuse_penalty(layer, "limited_information_fit")
    table, names = checked_as_fitted(fit, data)
    check_complete("limited_information_fit", table, names, data)
    size = layer.num_children
    pairs = torch.triu_indices(size, size, 1)
    if size + pairs.shape[1] > MAX_SHARES:
        raise ValueError(
            f"limited_information_fit: at most {MAX_SHARES:,} shares were expected, {size} items"
            f" have {size + pairs.shape[1]:,}"
        )
    params = {name: value.detach().double().cpu() for name, value in fit.params.items()}
    profiles = binary_configurations(layer.num_parents) if root.profiles is None else root.profiles
    weights = root.distribution(params).log_prob(profiles.double()).exp()  # (C,)
    chances = structure.expected_responses(params, profiles)  # (C, J)
    given = torch.cat([chances, chances[:, pairs[0]] * chances[:, pairs[1]]], -1)  # (C, S)
    model = weights @ given
    x = table.double().cpu()
    observed = torch.cat([x.mean(0), (x.mT @ x / len(x))[pairs[0], pairs[1]]])
    root_slopes = given.mT @ _root_slopes(fit, table, params, profiles)
    item_slopes = _item_slopes(structure, params, weights, profiles, pairs, fit.fixed or {})
    slopes = torch.cat([root_slopes, item_slopes], 1)
    root_inverse = torch.linalg.cholesky(_share_covariance(weights, given, model, pairs, size))
    gap = (observed - model).unsqueeze(-1)
    residual = torch.linalg.solve_triangular(root_inverse, gap, upper=False).squeeze(-1)
    directions = torch.linalg.solve_triangular(root_inverse, slopes, upper=False)
    length = directions.norm(dim=0)
    directions = directions[:, length > 0] / length[length > 0]
    basis, values, _ = torch.linalg.svd(directions, full_matrices=False)
    rank = int((values > RANK_TOLERANCE * values[:1]).sum())  # falling, and none if all is known
    degrees = len(model) - rank
    if degrees < 1:
        raise ValueError(
            f"limited_information_fit: {size} items have {len(model)} shares, and the model as many"
            " free parameters: no degree of freedom is left"
        )
    explained = basis[:, :rank].mT @ residual
    m2 = len(x) * max(0.0, float(residual.square().sum() - explained.square().sum()))
    gap = _share_correlations(observed, pairs, size) - _share_correlations(model, pairs, size)
    return LimitedInformationFit(
        m2,
        degrees,
        float(chi2.sf(m2, degrees)),
        math.sqrt(max(0.0, m2 - degrees) / (len(x) * degrees)),
        _interval(m2, degrees, len(x)),
        float(gap.square().mean().sqrt()),
        len(x),
        slopes.shape[1] - rank,
    )


def _root_slopes(fit: FitRecord, table: Tensor, params: Params, profiles: Tensor) -> Tensor:
    """Derivatives of the profiles' probabilities by their free parameters, (C, P)."""
    root, program, out = fit.structure.root, Program(fit.model, table[:1]), []
    if root is None:
        raise ValueError("_root_slopes: a model with a root was expected")
    for name in root.sites():

        def probabilities(value: Tensor, name: str = name) -> Tensor:
            return root.distribution(params | {name: value}).log_prob(profiles.double()).exp()

        slopes = jacobian(probabilities, params[name]).reshape(len(profiles), -1)
        free = _free(fit.fixed or {}, name, params[name]).flatten()
        slopes = slopes[:, free]
        if program.site(name).support is constraints.simplex and bool(free.any()):
            largest = int(params[name].flatten()[free].argmax())  # makes up for what others take
            slopes = slopes - slopes[:, largest : largest + 1]
            slopes = torch.cat([slopes[:, :largest], slopes[:, largest + 1 :]], 1)
        out.append(slopes)
    return torch.cat(out, 1)


def _free(fixed: Params, name: str, value: Tensor) -> Tensor:
    """Entries of a parameter that were estimated."""
    known = fixed.get(name)
    return torch.ones(value.shape, dtype=torch.bool) if known is None else known.isnan().cpu()


def _item_slopes(
    structure: AttributeStructure,
    params: Params,
    weights: Tensor,
    profiles: Tensor,
    pairs: Tensor,
    fixed: Params,
) -> Tensor:
    """Derivatives of the shares by the free entries of the items' parameters, (S, P).

    An item has parameters of its own, so that the derivatives of the sum over items hold those of
    each.
    """
    layer, size = structure.layers[0], structure.layers[0].num_children
    chances = structure.expected_responses(params, profiles)
    out = []
    for name in (layer.intercepts, layer.loadings):

        def total(value: Tensor, name: str = name) -> Tensor:
            return structure.expected_responses(params | {name: value}, profiles).sum(-1)

        own = jacobian(total, params[name])  # (C, J) or (C, J, T)
        free = _free(fixed, name, params[name])
        if name == layer.loadings and layer.graph is not None:
            free = free & layer.graph.cpu()
        items = free.nonzero()[:, 0]
        moved = own[:, free] * weights.unsqueeze(-1)  # (C, P)
        slopes = moved.new_zeros(size + pairs.shape[1], len(items))
        slopes[items, torch.arange(len(items))] = moved.sum(0)
        with_others = chances.mT @ moved  # (J, P)
        for one, other in ((0, 1), (1, 0)):
            mine = pairs[one].unsqueeze(-1) == items  # (pairs, P)
            slopes[size:] += with_others[pairs[other]] * mine
        out.append(slopes)
    return torch.cat(out, 1)


def _share_covariance(
    weights: Tensor, given: Tensor, model: Tensor, pairs: Tensor, size: int
) -> Tensor:
    """Xi, (S, S)."""
    member = torch.zeros(len(model), size, dtype=given.dtype)
    member[torch.arange(size), torch.arange(size)] = 1.0
    for side in pairs:
        member[torch.arange(size, len(model)), side] = 1.0
    total = -torch.outer(model, model)
    for weight, chance in zip(weights, given, strict=True):
        if float(weight) > 0:
            shared = member * -chance[:size].log()
            total += weight * (chance.log().unsqueeze(-1) + chance.log() + shared @ member.mT).exp()
    return total


def _share_correlations(shares: Tensor, pairs: Tensor, size: int) -> Tensor:
    mean = shares[:size]
    spread = (mean * (1 - mean)).sqrt()
    return (shares[size:] - mean[pairs[0]] * mean[pairs[1]]) / (spread[pairs[0]] * spread[pairs[1]])


def _interval(m2: float, degrees: int, num_rows: int) -> tuple[float, float]:
    """Interval of RMSEA2, by inverting the noncentral chi-square distribution of M2."""
    ends = []
    for chance in ((1 + INTERVAL) / 2, (1 - INTERVAL) / 2):
        if chi2.cdf(m2, degrees) <= chance:
            ends.append(0.0)
            continue
        most = m2 + 10 * math.sqrt(m2) + 100
        noncentral = brentq(
            lambda value, chance=chance: float(ncx2.cdf(m2, degrees, value)) - chance, 0, most
        )
        ends.append(math.sqrt(noncentral / (num_rows * degrees)))
    return ends[0], ends[1]

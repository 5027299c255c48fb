r"""Do two items share more than the attributes? Residual correlations, standardised residuals of
pairs, and Q3.

Given a profile of attributes items are independent. Over the population, on the scale of the items'
statistics (logarithms of LogNormal items),

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

Source: W. M. Yen (1984), doi:10.1177/014662168400800201, and (1993),
doi:10.1111/j.1745-3984.1993.tb00423.x (the bias); W.-H. Chen and D. Thissen (1997),
doi:10.3102/10769986022003265 (2 x 2 tables); K. B. Christensen, G. Makransky and M. Horton (2017),
doi:10.1177/0146621616677520; A. Maydeu-Olivares and Y. Liu (2015), doi:10.1037/a0039015
(standardised residuals of pairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from inference.fitting.record import FitRecord
from inference.inspection.attribute_moments import (
    Answers,
    AttributeMoments,
    all_bernoulli,
    answers_of,
    holm,
    moments_of,
    profiles_of,
    refuse_penalty,
)
from inference.uncertainty import observed_information
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    import pandas as pd


LEVEL = 0.05
# share of a residual's variance: below it the estimates fit it whatever the data
NOTHING_LEFT = 0.05
MAX_PAIRS = 20_000


@shows_briefly
@dataclass(frozen=True, eq=False)
class LocalDependence:
    """What pairs of items have in common beyond the attributes, one entry a pair (P of them, in the
    order of the upper triangle).

    Args:
        items: J names; pairs: (P, 2), numbers of the items.
        residual_correlation: observed minus the model's.
        z: the standardised residual product; NaN where the parameters of the pair leave nothing to
            see.
        p_value: two-sided, of z; p_holm: corrected for the number of pairs.
        x2: Pearson's statistic of the 2 x 2 table; NaN for other than right-wrong items.
        q3: correlation of the residuals of rows.
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
        """-1 / (J - 1), where Q3 of independent items is centred with one continuous trait; with
        profiles it lies nearer to 0.
        """
        return -1 / (len(self.items) - 1)

    @property
    def dependent(self) -> tuple[tuple[str, str], ...]:
        """Pairs that share more, or less, than the model says, at 5 % for all of them together; the
        largest ``|z|`` first.
        """
        order = np.argsort(-np.nan_to_num(np.abs(self.z)), kind="stable")
        return tuple(
            (self.items[self.pairs[c, 0]], self.items[self.pairs[c, 1]])
            for c in order
            if self.p_holm[c] < LEVEL
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line a pair; ``q3_centred`` is Q3 less its mean over all pairs."""
        import pandas as pd

        names = ("residual_correlation", "z", "p_value", "p_holm", "x2", "q3")
        columns = {name: getattr(self, name) for name in names} | {
            "q3_centred": self.q3 - self.q3.mean(),
            "num_rows": self.num_rows,
        }
        index = pd.MultiIndex.from_tuples(
            [(self.items[j], self.items[k]) for j, k in self.pairs], names=("item", "other")
        )
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
        """What was found, in a sentence or two."""
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
    """Pairs of items that are not independent given the attributes; for every family, by first and
    second moments.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty (its weak priors are
            allowed for).
        data: the rows it was fitted to, (N, J), NaN where missing.

    Raises:
        ValueError: for another model, a penalty, data that do not fit, one item, more than 20,000
            pairs, a pair that no row answered, or an estimate that is not at a maximum.
    """
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
    found = observed_information(fit, data)
    free = found.estimate.clone().requires_grad_()
    with torch.enable_grad():
        moving = moments_of(structure, found.coordinates.params(free), profiles)
        implied = moving.covariance[pairs[0], pairs[1]]
        slopes = torch.stack(
            [torch.autograd.grad(one, free, retain_graph=True)[0] for one in implied]
        )
    moments, (covariance, _) = moving.detached(), found.covariance()
    implied = implied.detach()
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
    x2 = np.full(pairs.shape[1], np.nan)
    if all_bernoulli(structure):
        x2 = _pearson(answers, moments, pairs, both).numpy()
    return LocalDependence(
        answers.items,
        pairs.mT.numpy(),
        (
            _correlations(answers.statistic, answers.mask, pairs)
            - implied / (spread[pairs[0]] * spread[pairs[1]])
        ).numpy(),
        z,
        p_value,
        holm(p_value),
        x2,
        _correlations(
            answers.statistic - torch.softmax(moments.log_joint(answers), -1) @ moments.mean,
            answers.mask,
            pairs,
        ).numpy(),
        both.long().numpy(),
    )


def _correlations(values: Tensor, mask: Tensor, pairs: Tensor) -> Tensor:
    """Of pairs of columns over the rows that have both, (P,)."""
    x = values * mask
    count = mask.mT @ mask
    mean = (x.mT @ mask) / count  # of the row's item where the column's is there
    square = (x.square().mT @ mask) / count - mean.square()
    cross = (x.mT @ x) / count - mean * mean.mT
    return (cross / (square * square.mT).clamp(min=1e-300).sqrt())[pairs[0], pairs[1]]


def _pearson(answers: Answers, moments: AttributeMoments, pairs: Tensor, both: Tensor) -> Tensor:
    """Of the 2 x 2 tables, (P,)."""
    total = torch.zeros(pairs.shape[1], dtype=moments.mean.dtype)
    sides = [(1 - answers.statistic) * answers.mask, answers.statistic * answers.mask]
    chances = [1 - moments.mean, moments.mean]
    for one, chance in zip(sides, chances, strict=True):
        for other, its_chance in zip(sides, chances, strict=True):
            observed = (one.mT @ other)[pairs[0], pairs[1]] / both
            expected = (chance.mT * moments.weights @ its_chance)[pairs[0], pairs[1]]
            total += both * (observed - expected).square() / expected.clamp(min=1e-300)
    return total

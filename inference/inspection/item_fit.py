r"""Does an item behave as its model says? Residuals of its answers by attribute, and S-X2 by rest
score.

*By attribute*, for items of any family. An answer is held against its mean given the row's other
answers, on the scale of the item's statistic (logarithms of LogNormal items),

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
have the mean and variance of a :math:`\chi^2` law (Satterthwaite).

*By score*, for right-wrong items and complete rows (S-X2). Rows are grouped by their rest score r,
the number of the other items that they solve. Given a profile the rest scores of item j have the
law :math:`S_{jr}(\alpha)` of a sum of independent bits, built item by item (Lord and Wingersky),

.. math:: S_r \leftarrow (1 - \mu_{\alpha k}) S_r + \mu_{\alpha k} S_{r-1}, \qquad
    E_{jr} = \frac{\sum_\alpha p_\alpha \mu_{\alpha j} S_{jr}(\alpha)}{\sum_\alpha p_\alpha
    S_{jr}(\alpha)}, \qquad
    X_j^2 = \sum_g \frac{\{\sum_{r \in g} N_r (O_{jr} - E_{jr})\}^2}{\sum_{r \in g} N_r E_{jr} (1 -
    E_{jr})},

O the observed shares; neighbouring rest scores are joined into groups g until each expects five
rows that solve the item and five that do not. Its usual law, :math:`\chi^2` with (groups less the
item's free parameters) degrees of freedom, is an approximation: estimates are those of the whole
table of answers, not of these groups. It rejects right items too often, the more so the more
parameters they have, and sees less of a wrong Q-matrix (``benchmarks/attributes.py``); it is here
for comparison with other programs.

Both have :math:`\mathrm{RMSEA} = \{ \max(0, X^2 - df) / (N \, df) \}^{1/2}`.

Source: M. Orlando and D. Thissen (2000), doi:10.1177/01466216000241003, here with rest scores for
total ones; F. M. Lord and M. S. Wingersky (1984), doi:10.1177/014662168400800409; W. K. Newey
(1985), doi:10.2307/1911011 (residuals at estimates); F. E. Satterthwaite (1946),
doi:10.2307/3002019. The residuals by attribute are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from inference.fitting.names import labels_of
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
from inference.structures.layers.attributes import AttributeStructure
from inference.uncertainty import Information, observed_information
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    import pandas as pd


LEAST_EXPECTED = 5.0  # right and wrong answers that a group of rest scores expects
LEVEL = 0.05
METHODS = ("attributes", "score")
COLLINEAR = 1e-8  # of the eigenvalues of V scaled to unit diagonal
# share of a residual's variance: below it the estimates fit it whatever the data
NOTHING_LEFT = 0.05


@shows_briefly
@dataclass(frozen=True, eq=False)
class ItemFit:
    """How well each item is described, one entry an item.

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
        """Of each item the attribute with the largest ``|z|``; empty where there is none."""
        size = np.abs(np.nan_to_num(self.z))
        return tuple(
            self.attributes[k] if size[j, k] > 0 else "" for j, k in enumerate(size.argmax(1))
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line an item; ``attribute`` is the one whose owners depart most from the model, ``z``
        by how much.
        """
        import pandas as pd

        columns: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("statistic", "degrees", "p_value", "p_holm", "rmsea", "num_rows")
        }
        if self.how == "attributes":
            places = np.abs(np.nan_to_num(self.z)).argmax(1)
            columns |= {"attribute": self.suspects, "z": self.z[np.arange(len(self.z)), places]}
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))

    def text(self) -> str:
        """What was found, in a sentence or two."""
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
            f"{len(self.misfitting)} of {len(self.items)} items are not answered as the model says:"
            f" {shown}. Look at their rows of the Q-matrix, at the rule of the item, and at its"
            " wording."
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
    structure, params, answers = answers_of(fit, data, "item_fit")
    layer = structure.layers[0]
    refuse_penalty(layer, "item_fit")
    profiles = profiles_of(structure, "item_fit")
    names = tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents))
    if how == "attributes":
        return _by_attribute(structure, observed_information(fit, data), profiles, answers, names)
    if not all_bernoulli(structure) or not answers.complete:
        why = (
            "an answer is missing"
            if all_bernoulli(structure)
            else f"the items are {layer.response!r}"
        )
        raise ValueError(
            f"item_fit: how='score' counts right answers of complete rows, and {why}; use"
            " how='attributes'"
        )
    return _by_score(structure, moments_of(structure, params, profiles), answers, names)


# ---------------------------------------------------------------- residuals by attribute


def _by_attribute(
    structure: AttributeStructure,
    found: Information,
    profiles: Tensor,
    answers: Answers,
    names: tuple[str, ...],
) -> ItemFit:
    free = found.estimate.clone().requires_grad_()
    with torch.enable_grad():
        moving = moments_of(structure, found.coordinates.params(free), profiles)
    moments, (covariance, _) = moving.detached(), found.covariance()
    log_joint = moments.log_joint(answers)
    size = len(answers.items)
    statistic, degrees, z = (
        np.full(size, np.nan),
        np.full(size, np.nan),
        np.full((size, len(names)), np.nan),
    )
    for j in range(size):
        seen = answers.mask[:, j] > 0
        x, others = answers.statistic[seen], answers.mask[seen].clone()
        others[:, j] = 0.0
        own = torch.outer(x[:, j], moments.slopes[:, j]) - moments.offsets[:, j]
        posterior = torch.softmax(log_joint[seen] - own, -1)  # (n, C), of the other answers
        expected = posterior @ moments.mean[:, j]
        variance = (
            posterior @ (moments.variance[:, j] + moments.mean[:, j].square()) - expected.square()
        )
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
            slopes.append(
                torch.autograd.grad(
                    torch.stack([part.sum() for part in parts]).sum(), free, retain_graph=True
                )[0]
            )
        residual = weights.mT @ (x[:, j] - expected)
        whole = (weights.mT * variance) @ weights
        slope = torch.stack(slopes)
        left = whole - slope @ covariance @ slope.mT
        known = left.diagonal() > NOTHING_LEFT * whole.diagonal()
        z[j] = torch.where(known, residual / left.diagonal().clamp(min=1e-300).sqrt(), torch.nan)[
            1:
        ].numpy()
        statistic[j], degrees[j] = _satterthwaite(residual, whole, left)
    return _assembled(answers, names, "attributes", statistic, degrees, z)


def _satterthwaite(residual: Tensor, whole: Tensor, left: Tensor) -> tuple[float, float]:
    """The statistic and degrees of residuals whose covariance is ``whole`` at the truth and
    ``left`` at the estimate; NaN where nothing is left.
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
    structure: AttributeStructure,
    moments: AttributeMoments,
    answers: Answers,
    names: tuple[str, ...],
) -> ItemFit:
    graph = structure.layers[0].graph
    if graph is None:
        raise ValueError("item_fit: a model with a Q-matrix was expected; use how='attributes'")
    expected = expected_by_rest_score(moments.weights, moments.mean)  # (J, J)
    x, size = answers.statistic, len(answers.items)
    rest = (x.sum(-1, keepdim=True) - x).round().long()  # (N, J)
    place = (rest + size * torch.arange(size)).ravel()
    rows = torch.bincount(place, minlength=size * size).reshape(size, size).to(x)
    right = torch.bincount(place, weights=x.ravel(), minlength=size * size).reshape(size, size)
    num_own = 1 + graph.sum(-1)
    statistic, degrees = np.full(size, np.nan), np.full(size, np.nan)
    for j in range(size):
        group = _joined(rows[j], expected[j])
        num = int(group.max()) + 1
        if num <= int(num_own[j]):
            continue
        mean, spread = rows[j] * expected[j], rows[j] * expected[j] * (1 - expected[j])
        gap, spread = (
            torch.zeros(num, dtype=x.dtype).index_add(0, group, part)
            for part in (right[j] - mean, spread)
        )
        statistic[j], degrees[j] = float((gap.square() / spread).sum()), num - int(num_own[j])
    return _assembled(
        answers, names, "score", statistic, degrees, np.full((size, len(names)), np.nan)
    )


def expected_by_rest_score(weights: Tensor, chances: Tensor) -> Tensor:
    """P(item j solved | r of the others solved), (J, J), of profiles with these weights (C,) and
    chances (C, J).
    """
    size = chances.shape[1]
    # of the rest score without item j, given a profile
    law = chances.new_zeros(size, len(weights), size)
    law[:, :, 0] = 1.0
    others = ~torch.eye(size, dtype=torch.bool)
    for k in range(size):
        own, chance = law[others[k]], chances[:, k].unsqueeze(-1)
        more = own * (1 - chance)
        more[..., 1:] += own[..., :-1] * chance
        law[others[k]] = more
    solved = torch.einsum("c,cj,jcr->jr", weights, chances, law)
    return solved / torch.einsum("c,jcr->jr", weights, law).clamp(min=torch.finfo(law.dtype).tiny)


def _joined(rows: Tensor, expected: Tensor) -> Tensor:
    """The group of each rest score, (J,): neighbours join until both answers are expected often
    enough.
    """
    group, number, right, wrong = [], 0, 0.0, 0.0
    for one, other in zip(
        (rows * expected).tolist(), (rows * (1 - expected)).tolist(), strict=True
    ):
        group.append(number)
        right, wrong = right + one, wrong + other
        if min(right, wrong) >= LEAST_EXPECTED:
            number, right, wrong = number + 1, 0.0, 0.0
    # what is left at the end joins the last group
    return torch.tensor(group).clamp(max=max(0, number - 1))


def _assembled(
    answers: Answers,
    names: tuple[str, ...],
    how: str,
    statistic: np.ndarray,
    degrees: np.ndarray,
    z: np.ndarray,
) -> ItemFit:
    p_value = np.asarray(chi2.sf(statistic, degrees))  # NaN stays
    num_rows = answers.mask.sum(0).round().long().numpy()
    rmsea = np.sqrt(np.maximum(0.0, statistic - degrees) / (num_rows * degrees))
    return ItemFit(
        answers.items, names, how, statistic, degrees, p_value, holm(p_value), rmsea, num_rows, z
    )

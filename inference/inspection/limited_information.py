r"""Absolute fit of models of right and wrong answers, from shares of items and of pairs of items.

Let r be the J + J (J - 1) / 2 observed shares :math:`p_j`, :math:`p_{jk}` of rows that solve an
item, or both of a pair, minus those of the model; :math:`\Xi` the covariance of :math:`\sqrt N` r
under the model and :math:`\Delta` the derivative of the model's shares by its P free parameters.
Then

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

Source: A. Maydeu-Olivares and H. Joe (2006), doi:10.1007/s11336-005-1295-9; Y. Liu, W. Tian and T.
Xin (2016), doi:10.3102/1076998615621293.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.distributions import constraints

from inference.fitting.columns import checked_as_fitted
from inference.fitting.record import FitRecord
from inference.inspection.attributes import moment_model
from inference.programs.program import Params, Program
from inference.structures.layers.attributes import AttributeStructure
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import check_complete

MAX_SHARES = 5000  # J + J (J - 1) / 2; its square is held
RANK_TOLERANCE = 1e-9
LEVEL = 0.90


@dataclass(frozen=True)
class LimitedInformationFit:
    """How well a model reproduces the shares of items and of pairs.

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
    structure = moment_model(fit, "limited_information_fit")
    layer, root = structure.layers[0], structure.root
    if any(
        not isinstance(family, Bernoulli)
        for family, _, _ in layer.response.blocks(layer.num_children)
    ):
        raise ValueError(
            f"limited_information_fit: Bernoulli items were expected, got {layer.response!r}"
        )
    if layer.penalty is not None:
        raise ValueError(
            "limited_information_fit: the loadings are penalised, and the statistic asks for"
            " maximum likelihood; refit fit.model.restricted([Q]) with the Q-matrix that the"
            " penalty found"
        )
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
    profiles = (
        root.profiles if root.profiles is not None else binary_configurations(layer.num_parents)
    )
    weights = root.distribution(params).log_prob(profiles.double()).exp()  # (C,)
    chances = structure.expected_responses(params, profiles)  # (C, J)
    given = torch.cat([chances, chances[:, pairs[0]] * chances[:, pairs[1]]], -1)  # (C, S)
    model = weights @ given
    x = table.double().cpu()
    observed = torch.cat([x.mean(0), (x.mT @ x / len(x))[pairs[0], pairs[1]]])
    slopes = torch.cat(
        [
            given.mT @ _law_slopes(fit, table, params, profiles),
            _item_slopes(structure, params, weights, profiles, pairs),
        ],
        1,
    )
    root_inverse = torch.linalg.cholesky(_covariance(weights, given, model, pairs, size))
    residual = torch.linalg.solve_triangular(
        root_inverse, (observed - model).unsqueeze(-1), upper=False
    ).squeeze(-1)
    directions = torch.linalg.solve_triangular(root_inverse, slopes, upper=False)
    length = directions.norm(dim=0)
    directions = directions[:, length > 0] / length[length > 0]
    basis, values, _ = torch.linalg.svd(directions, full_matrices=False)
    rank = int((values > RANK_TOLERANCE * values.max()).sum())
    degrees = len(model) - rank
    if degrees < 1:
        raise ValueError(
            f"limited_information_fit: {size} items have {len(model)} shares, and the model as many"
            " free parameters: no degree of freedom is left"
        )
    explained = basis[:, :rank].mT @ residual
    m2 = len(x) * max(0.0, float(residual.square().sum() - explained.square().sum()))
    return LimitedInformationFit(
        m2,
        degrees,
        float(chi2.sf(m2, degrees)),
        math.sqrt(max(0.0, m2 - degrees) / (len(x) * degrees)),
        _interval(m2, degrees, len(x)),
        float(
            (_correlations(observed, pairs, size) - _correlations(model, pairs, size))
            .square()
            .mean()
            .sqrt()
        ),
        len(x),
        slopes.shape[1] - rank,
    )


def _law_slopes(fit: FitRecord, table: Tensor, params: Params, profiles: Tensor) -> Tensor:
    """Derivatives of the profiles' probabilities by the free entries of their law, (C, P); of a
    table by all but the largest.
    """
    root, program, out = fit.structure.root, Program(fit.model, table[:1]), []
    if root is None:
        raise ValueError("_law_slopes: a model with a root was expected")
    for name in root.sites():

        def probabilities(value: Tensor, name: str = name) -> Tensor:
            return root.distribution(params | {name: value}).log_prob(profiles.double()).exp()

        slopes = jacobian(probabilities, params[name]).reshape(len(profiles), -1)
        if program.site(name).support is constraints.simplex:
            largest = int(params[name].argmax())
            slopes = slopes - slopes[:, largest : largest + 1]
            slopes = torch.cat([slopes[:, :largest], slopes[:, largest + 1 :]], 1)
        out.append(slopes)
    return torch.cat(out, 1)


def _item_slopes(
    structure: AttributeStructure, params: Params, weights: Tensor, profiles: Tensor, pairs: Tensor
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
        free = torch.ones(params[name].shape, dtype=torch.bool)
        if name == layer.loadings and layer.graph is not None:
            free = layer.graph.cpu()
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


def _covariance(weights: Tensor, given: Tensor, model: Tensor, pairs: Tensor, size: int) -> Tensor:
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


def _correlations(shares: Tensor, pairs: Tensor, size: int) -> Tensor:
    mean = shares[:size]
    spread = (mean * (1 - mean)).sqrt()
    return (shares[size:] - mean[pairs[0]] * mean[pairs[1]]) / (spread[pairs[0]] * spread[pairs[1]])


def _interval(m2: float, degrees: int, num_rows: int) -> tuple[float, float]:
    """Of RMSEA2, from the noncentral chi-square laws under which M2 is their upper and lower
    tail.
    """
    ends = []
    for chance in ((1 + LEVEL) / 2, (1 - LEVEL) / 2):
        if chi2.cdf(m2, degrees) <= chance:
            ends.append(0.0)
            continue
        most = m2 + 10 * math.sqrt(m2) + 100
        noncentral = brentq(
            lambda value, chance=chance: float(ncx2.cdf(m2, degrees, value)) - chance, 0, most
        )
        ends.append(math.sqrt(noncentral / (num_rows * degrees)))
    return ends[0], ends[1]

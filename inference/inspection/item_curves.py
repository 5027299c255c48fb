r"""Expected answers by profile and probabilities of profiles, with intervals.

Both are functions g of the parameters, of information I at the estimate; by the delta method

.. math:: \mathrm{Var}\, g(\hat\theta) = g'(\hat\theta)\, I^{-1} g'(\hat\theta)^\top,

and an interval is normal on a scale on which g has no ends, and taken back: log-odds of chances,
logarithms of positive means, the mean itself of Normal items. So no interval leaves the range of
what it is for. I is that of all parameters, items and distribution of the attributes together. What
the data do not determine (a flat direction of I), and a profile whose estimated probability is
zero, have NaN.

Source: C. R. Rao (1973), Linear Statistical Inference and its Applications, section 6a.2 (delta
method); M. Philipp, C. Strobl, J. de la Torre and A. Zeileis (2018), doi:10.3102/1076998617719728
(information of diagnosis models).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit
from scipy.stats import norm
from torch import Tensor

from inference.base.frames import pd
from inference.fitting.columns import labels_of
from inference.fitting.record import FitRecord
from inference.inspection.attributes import (
    answers_of,
    attribute_model,
    item_families,
    items_alike,
    profiles_of,
    refuse_penalty,
)
from inference.uncertainty import Information, observed_information
from ppl_models.parts.repr import profile_name, shows_briefly, together
from ppl_models.parts.responses import Bernoulli, ResponseFamily
from ppl_models.parts.validation import check_number

UNDETERMINED = 1e-3  # share of a slope, in standard errors, that may lie along flat directions
ABSENT = 2e-6  # a profile's probability below it counts as zero


@shows_briefly
@dataclass(frozen=True, eq=False)
class ItemCurves:
    """Expected answers with intervals, M entries: one for each item and profile.

    Args:
        items: J names; item: the number of each entry's, (M,).
        profiles: the attributes that are present, by name, M of them.
        expected: the chance of a right answer, or the mean, (M,); standard_errors: of it.
        low, high: limits at ``level``.
        level: of the intervals.
    """

    items: tuple[str, ...]
    item: np.ndarray
    profiles: tuple[tuple[str, ...], ...]
    expected: np.ndarray
    standard_errors: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float

    @property
    def table(self) -> pd.DataFrame:
        """One line an item and profile."""
        labels = [together(profile) for profile in self.profiles]
        items = [self.items[j] for j in self.item]
        index = pd.MultiIndex.from_arrays([items, labels], names=("item", "attributes"))
        return _table("expected", self.expected, self.standard_errors, self.low, self.high, index)


@shows_briefly
@dataclass(frozen=True, eq=False)
class ProfileShares:
    """Probabilities of profiles of attributes with intervals, C of them.

    Args:
        attributes: K names; profiles: (C, K) of 0 and 1.
        shares, standard_errors, low, high: (C,); level: of the intervals.
        mastery: P(attribute = 1), (K,), and mastery_errors: its standard errors; mastery_low,
            mastery_high: limits.
    """

    attributes: tuple[str, ...]
    profiles: np.ndarray
    shares: np.ndarray
    standard_errors: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    mastery: np.ndarray
    mastery_errors: np.ndarray
    mastery_low: np.ndarray
    mastery_high: np.ndarray

    @property
    def table(self) -> pd.DataFrame:
        """One line a profile, the most common first."""
        labels = [profile_name(self.attributes, row) for row in self.profiles]
        index = pd.Index(labels, name="attributes")
        table = _table("share", self.shares, self.standard_errors, self.low, self.high, index)
        return table.sort_values("share", ascending=False)

    @property
    def mastery_table(self) -> pd.DataFrame:
        """One line an attribute: the share of the population that has it."""
        low, high = self.mastery_low, self.mastery_high
        index = pd.Index(self.attributes, name="attribute")
        return _table("share", self.mastery, self.mastery_errors, low, high, index)


def _table(
    name: str, value: np.ndarray, error: np.ndarray, low: np.ndarray, high: np.ndarray, index: Any
) -> pd.DataFrame:
    columns = {name: value, "standard_error": error, "low": low, "high": high}
    return pd.DataFrame(columns, index=index)


def item_curves(fit: FitRecord, data: Any, level: float = 0.95) -> ItemCurves:
    """Expected answer of each item at each profile of its attributes, with intervals.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty.
        data: the rows it was fitted to, (N, J).
        level: of the intervals.

    Raises:
        ValueError: for another model, a penalty, an item with more than ten attributes, data that
            do not fit, a level that is none, or an estimate that is not at a maximum.
    """
    check_number("item_curves", "level", level, "lie in (0, 1)", above=0, below=1)
    structure, _, answers = answers_of(fit, data, "item_curves")
    layer = structure.layers[0]
    refuse_penalty(layer, "item_curves")
    names = [str(name) for name in labels_of(fit, "attribute", layer.num_parents)]
    edges = layer.edges
    if edges is None:
        edges = torch.ones(layer.num_children, layer.num_parents, dtype=torch.bool)
    found = observed_information(fit, data)
    values, slopes, item, present, known = [], [], [], [], []
    free = found.estimate.clone().requires_grad_()
    with torch.enable_grad():
        params, others = (found.coordinates.params(at) for at in (free, found.estimate / 2))
        for items, asked, cells, profiles in items_alike(structure, edges, "item_curves"):
            expected = structure.expected_responses(params, profiles)
            elsewhere = structure.expected_responses(others, profiles)
            for j in items:
                for c, cell in enumerate(cells):
                    slopes.append(torch.autograd.grad(expected[c, j], free, retain_graph=True)[0])
                    values.append(float(expected[c, j].detach()))
                    known.append(bool(expected[c, j] == elsewhere[c, j]) and not slopes[-1].any())
                    item.append(j)
                    present.append(
                        tuple(names[k] for k, bit in zip(asked, cell.tolist(), strict=True) if bit)
                    )
    order = np.argsort(np.array(item), kind="stable")
    # of known entries alone, wherever the free ones are: 0
    value, error = np.array(values), np.where(known, 0.0, errors_of(torch.stack(slopes), found))
    families = item_families(layer)
    entries = zip(item, value, error, strict=True)
    limits = np.array([_limits(_scale(families[j]), v, e, level) for j, v, e in entries])
    low, high = limits[order].T
    profiles_of_items = tuple(present[i] for i in order)
    numbers = (value[order], error[order], low, high, level)
    return ItemCurves(answers.items, np.array(item)[order], profiles_of_items, *numbers)


def profile_shares(fit: FitRecord, data: Any, level: float = 0.95) -> ProfileShares:
    """Shares of the population with each profile and attribute, with intervals.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` without a penalty.
        data: the rows it was fitted to, (N, J).
        level: of the intervals.

    Raises:
        ValueError: for another model, a penalty, more than fourteen attributes, data that do not
            fit, a level that is none, or an estimate that is not at a maximum.
    """
    check_number("profile_shares", "level", level, "lie in (0, 1)", above=0, below=1)
    structure = attribute_model(fit, "profile_shares", point=True)
    layer = structure.layers[0]
    refuse_penalty(layer, "profile_shares")
    profiles = profiles_of(structure, "profile_shares")
    found = observed_information(fit, data)
    free = found.estimate.clone().requires_grad_()
    with torch.enable_grad():
        distribution = structure.root.distribution(found.coordinates.params(free))
        shares = distribution.log_prob(profiles).exp()
        slopes = torch.stack(
            [torch.autograd.grad(share, free, retain_graph=True)[0] for share in shares]
        )
    share, mastery = shares.detach().numpy(), (profiles.mT @ shares.detach()).numpy()
    error = np.where(share < ABSENT, np.nan, errors_of(slopes, found))
    mastery_error = errors_of(profiles.mT @ slopes, found)
    by_profile, by_attribute = (
        np.array([_limits("logit", v, e, level) for v, e in zip(value, own, strict=True)])
        for value, own in ((share, error), (mastery, mastery_error))
    )
    names = tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents))
    (low, high), (mastery_low, mastery_high) = by_profile.T, by_attribute.T
    of_profiles = (profiles.numpy(), share, error, low, high, level)
    of_attributes = (mastery, mastery_error, mastery_low, mastery_high)
    return ProfileShares(names, *of_profiles, *of_attributes)


def errors_of(slopes: Tensor, found: Information) -> np.ndarray:
    """Standard errors of functions with derivatives (M, P); NaN along flat directions."""
    covariance, flat = found.covariance()
    error = ((slopes @ covariance) * slopes).sum(-1).clamp(min=0).sqrt()
    scale = found.matrix.diagonal().clamp(min=0).sqrt()
    lengths = (slopes / torch.where(scale > 0, scale, 1.0)).norm(dim=-1)
    away = ((slopes @ flat).norm(dim=-1) > UNDETERMINED * lengths) | (lengths == 0)
    return error.masked_fill(away, torch.nan).numpy()


def _scale(family: ResponseFamily) -> str:
    """Scale on which an expected answer has no ends."""
    if isinstance(family, Bernoulli):
        return "logit"
    is_signed = bool(family.expected_response(torch.tensor([-1.0]), torch.ones(1)) < 0)
    return "identity" if is_signed else "log"


def _limits(scale: str, value: float, error: float, level: float) -> tuple[float, float]:
    if error == 0:
        return value, value
    width = float(norm.ppf((1 + level) / 2)) * error
    if scale == "identity" or not np.isfinite(error):
        return value - width, value + width
    if scale == "log":
        return value * float(np.exp(-width / value)), value * float(np.exp(width / value))
    step = width / (value * (1 - value)) if 0 < value < 1 else np.nan
    return float(expit(logit(value) - step)), float(expit(logit(value) + step))

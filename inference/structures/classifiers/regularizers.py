r"""Costs and regularizers of independent classifiers: likelihood, weight penalties, labels.

With log-outputs :math:`b_{vni} = \log \beta_v^{(i)}(x_{nv})` of the networks, pseudo-weights
:math:`\phi_v^{(i)} = \mathrm{mean}_n \beta_v^{(i)}` and weights :math:`w_i \propto \prod_v
(\phi_v^{(i)})^{1/V}`, the negative cross total correlation of V variates is

.. math::

    \mathrm{neg\_ctc} = - \mathrm{mean}_n \log \sum_i w_i \prod_v
    \frac{\beta_v^{(i)}(x_{nv})}{\phi_v^{(i)}}
    = \mathrm{KL}(P^* \| P) - C^*

with :math:`C^*` the total correlation of the data: minus the mean log-likelihood ratio to
independence. It is 0 where the networks are constant and :math:`-(V - 1) \log C` where C equally
likely components are separated in every variate.

Source: K. T. Matchev and P. Shyamsundar (2022), doi:10.1088/2632-2153/ac6483, equations 24-29.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_number, is_number, plain_fields


def log_pseudo_weights(log_scores: Tensor) -> Tensor:
    r"""Logs of the means over rows, (\*R, V, C) from (\*R, V, n, C)."""
    return log_scores.logsumexp(-2) - math.log(log_scores.shape[-2])


def geometric_log_weights(log_phi: Tensor) -> Tensor:
    r"""Logs of the normalised geometric means over variates, (\*R, C) from (\*R, V, C)."""
    return log_phi.mean(-2).log_softmax(-1)


def log_ratio_rows(log_scores: Tensor, log_phi: Tensor, log_weights: Tensor) -> Tensor:
    r"""Log-likelihood of each row relative to independence of the variates, (\*R, n).

    ``log_scores``: (\*R, V, n, C); ``log_phi``: (\*R, V, C); ``log_weights``: (\*R, C).
    """
    ratios = (log_scores - log_phi.unsqueeze(-2)).sum(-3)
    return (ratios + log_weights.unsqueeze(-2)).logsumexp(-1)


def neg_ctc(log_scores: Tensor) -> Tensor:
    r"""Negative cross total correlation of all rows, (\*R,) from (\*R, V, n, C)."""
    log_phi = log_pseudo_weights(log_scores)
    return -log_ratio_rows(log_scores, log_phi, geometric_log_weights(log_phi)).mean(-1)


@runtime_checkable
class WeightPenalty(Protocol):
    """Penalty on the weights, added to the cost of a row."""

    def value(self, log_weights: Tensor) -> Tensor:
        """Penalty (R,) of log-weights (R, C)."""
        ...

    def slope(self, log_weights: Tensor) -> Tensor:
        """Derivative by the logs of the weights, as if these were free, (R, C)."""
        ...

    def check(self, num_components: int) -> None:
        """Refuse another number of components."""
        ...


@dataclass(frozen=True)
class CrossTotalCorrelation:
    r"""Negative cross total correlation: minus the mean log-likelihood ratio.

    Args:
        consistency: how much of :math:`-\log \sum_i \prod_v (\phi_v^{(i)})^{1/V} \ge 0` is added,
            which is zero where the networks of all variates give the components the same weights. 1
            is the unnormalised surrogate, valid where the data are such a mixture; for weights
            "geometric" only.

    Raises:
        ValueError: for a negative number.
    """

    consistency: float = 0.0

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number(
            "CrossTotalCorrelation", "consistency", self.consistency, "be 0 or more", least=0
        )


@dataclass(frozen=True)
class EvenWeights:
    r"""Penalty towards even weights of the components, or uneven ones.

    :math:`\lambda \sum_i w_i^2` ("squares") or :math:`\lambda \sum_i w_i \log w_i` ("entropy").

    Args:
        strength: :math:`\lambda`, in nats a row; negative for lopsided weights.
        form: "squares" or "entropy".

    Raises:
        ValueError: for a strength that is no number, or another form.
    """

    strength: float = 0.1
    form: Literal["squares", "entropy"] = "squares"

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("EvenWeights", "strength", self.strength, "be a number")
        if self.form not in ("squares", "entropy"):
            raise ValueError(f"EvenWeights: form must be 'squares' or 'entropy', got {self.form!r}")

    def check(self, num_components: int) -> None:
        """Accept any number of components."""

    def value(self, log_weights: Tensor) -> Tensor:
        """Penalty (R,) of log-weights (R, C)."""
        weights = log_weights.exp()
        return self.strength * (weights * (weights if self.form == "squares" else log_weights)).sum(
            -1
        )

    def slope(self, log_weights: Tensor) -> Tensor:
        """Derivative by the log-weights, (R, C)."""
        weights = log_weights.exp()
        return (
            self.strength * weights * (2 * weights if self.form == "squares" else log_weights + 1)
        )


@dataclass(frozen=True)
class KnownWeights:
    r"""Penalty towards known weights: :math:`-\lambda \sum_i w^\circ_i \log w_i`.

    Which component has which weight is not known: the largest is held against the largest, and so
    on. Weights known exactly are given to the model: ``InClassNet(..., weights=(0.4, 0.6))``.

    Args:
        weights: :math:`w^\circ`, positive numbers that sum to 1.
        strength: :math:`\lambda`, positive, in nats a row.

    Raises:
        ValueError: for weights that are not positive or do not sum to one, or a strength that is
            not positive.
    """

    weights: tuple[float, ...]
    strength: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        values = self.weights
        if (
            not isinstance(values, tuple)
            or len(values) < 2
            or not all(is_number(w) and w > 0 for w in values)
        ):
            raise ValueError(
                f"KnownWeights: weights must be positive numbers, one a component, got {values!r}"
            )
        if abs(sum(values) - 1) > 1e-6:
            raise ValueError(
                f"KnownWeights: weights must sum to 1, got {values!r}, which sum to {sum(values):g}"
            )
        check_number("KnownWeights", "strength", self.strength, "be positive and finite", above=0)

    def check(self, num_components: int) -> None:
        """Refuse another number of components."""
        if len(self.weights) != num_components:
            raise ValueError(
                f"KnownWeights: {num_components} weights were expected, one a component, got"
                f" {len(self.weights)}"
            )

    def _matched(self, log_weights: Tensor) -> Tensor:
        known = torch.tensor(
            sorted(self.weights), dtype=log_weights.dtype, device=log_weights.device
        )
        return known[log_weights.argsort(-1).argsort(-1)]

    def value(self, log_weights: Tensor) -> Tensor:
        """Penalty (R,) of log-weights (R, C)."""
        return -self.strength * (self._matched(log_weights) * log_weights).sum(-1)

    def slope(self, log_weights: Tensor) -> Tensor:
        """Derivative by the log-weights, (R, C)."""
        return -self.strength * self._matched(log_weights)


@shows_briefly
@dataclass(frozen=True, eq=False)
class Labels:
    r"""Labels of some rows, whose cross-entropy is added to the cost.

    :math:`-\tau \, \mathrm{mean} \log \sum_i p_{ni} Q_{i y_n}` over the rows that have one.

    Args:
        values: the component of each row, 0, ..., C - 1; -1 (or NaN) where it is not known, (N,).
        strength: :math:`\tau`, positive. The share of the labelled rows makes it the likelihood of
            the labels.
        confusion: Q (C, C), the chance that a row of component i is labelled y; None where labels
            are right.
        on: what is held against the labels: "row", the posterior of the whole row, or "variates",
            the output of every network (as before training without labels, when networks are to
            learn the classes one by one).

    Raises:
        ValueError: for values that are no whole numbers from -1, none that is known, a confusion
            that is no table of rows that sum to one, or another ``on``.
    """

    values: Any
    strength: float = 1.0
    confusion: Any = None
    on: Literal["row", "variates"] = "row"

    def __post_init__(self) -> None:
        if isinstance(self.values, Tensor):
            values = self.values.detach().cpu().numpy()
        else:
            values = np.asarray(self.values)
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise ValueError(
                f"Labels: values must be one number a row, got shape {values.shape}, dtype"
                f" {values.dtype}"
            )
        values = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
        if (values != np.round(values)).any() or (values < -1).any():
            raise ValueError("Labels: values must be 0, 1, ..., or -1 where a label is not known")
        if not (values >= 0).any():
            raise ValueError("Labels: at least one label was expected, but all are -1")
        object.__setattr__(self, "values", torch.from_numpy(values.astype(np.int64)))
        check_number("Labels", "strength", self.strength, "be positive and finite", above=0)
        if self.on not in ("row", "variates"):
            raise ValueError(f"Labels: on must be 'row' or 'variates', got {self.on!r}")
        if self.confusion is not None:
            table = torch.as_tensor(self.confusion, dtype=torch.float64)
            if (
                table.dim() != 2
                or not bool(((table >= 0) & table.isfinite()).all())
                or not torch.allclose(table.sum(1), torch.ones(len(table)).to(table), atol=1e-6)
            ):
                raise ValueError(
                    "Labels: confusion must be a table whose row i holds the chances of every label"
                    " of component i, and sums to 1"
                )
            object.__setattr__(self, "confusion", table)

    def check(self, num_rows: int, num_components: int) -> None:
        """Refuse labels that do not fit the rows or components."""
        if len(self.values) != num_rows:
            raise ValueError(
                f"Labels: one label a row was expected, {num_rows} of them, got {len(self.values)};"
                " -1 where it is not known"
            )
        if int(self.values.max()) >= num_components:
            raise ValueError(
                f"Labels: labels 0, ..., {num_components - 1} were expected, got"
                f" {int(self.values.max())}"
            )
        if self.confusion is not None and self.confusion.shape != (num_components, num_components):
            raise ValueError(
                f"Labels: confusion must be a table ({num_components}, {num_components}), got"
                f" {tuple(self.confusion.shape)}"
            )

    def log_chances(self, num_components: int, like: Tensor) -> Tensor:
        """Log of the chance of each label under each component, (labels, C)."""
        if self.confusion is None:
            table = torch.eye(num_components, dtype=torch.float64)
        else:
            table = self.confusion
        return (
            table.mT.log()
            .clamp(min=math.log(1e-300) if like.dtype == torch.float64 else -80.0)
            .to(like)
        )

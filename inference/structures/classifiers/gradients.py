r"""Gradients of the cost of all rows from batches, with control variates.

The cost is a function of sums over rows: the pseudo-weights :math:`\phi_v^{(i)} = E[\beta_v^{(i)}]`
stand inside its logarithms. With :math:`s_{ni} = \log w_i + \sum_v (b_{vni} - \log \phi_v^{(i)})`
and the slope of a row :math:`G_{ni} = \partial \text{cost} / \partial s_{ni}` (:math:`-r_{ni} / N`
for the likelihood, r the posterior of the components), the chain rule gives

.. math::
    \frac{d \, \text{cost}}{d b_{vni}} = G_{ni} + \frac{1}{N}
    \frac{\beta_v^{(i)}(x_{nv})}{\phi_v^{(i)}} \, \frac{d \, \text{cost}}{d \log \phi_v^{(i)}},
    \qquad \frac{d \, \text{cost}}{d \log \phi_v^{(i)}} = - \sum_n G_{ni} + \frac{1}{V} \Bigl( h_i -
    w_i \sum_j h_j \Bigr)

with :math:`h_i = \sum_n G_{ni} + \partial g / \partial \log w_i` for a penalty g of the weights
(the last term only where weights are geometric means). Only :math:`\phi` and :math:`\sum_n
G_{ni}` are needed of the rows that are not at hand: moving averages of them make mini-batches
unbiased.

At an *anchor*, weights :math:`\tilde\theta` that the networks had, outputs and pulls of all rows
are known. For the outputs :math:`\beta_\theta` of a batch b

.. math::

    \hat\phi = \mathrm{mean}_b \beta_\theta + c \, (\tilde\phi - \mathrm{mean}_b
    \beta_{\tilde\theta}), \qquad c = \frac{\mathrm{cov}_b(\beta_\theta,
    \beta_{\tilde\theta})}{\mathrm{var}_b(\beta_{\tilde\theta})} \in [0, 1]

for every variate and component, and likewise for the pulls. Near the anchor c is 1, and the
estimate has no noise of the batch in it. With c = 1 throughout, networks that have moved far from
the anchor (an epoch of many steps) had an estimate that did not fit their outputs at all, and a
million rows of four components collapsed into one.

Source: R. Johnson and T. Zhang (2013), Accelerating stochastic gradient descent using predictive
variance reduction (c = 1); the coefficient is that of least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.structures.classifiers.regularizers import (
    CrossTotalCorrelation,
    Labels,
    WeightPenalty,
)
from ppl_models.descriptions.classifiers import ClassifierDescription

FLOOR = 1e-12  # of a pseudo-weight


@dataclass(eq=False)
class Balance:
    """Statistics of the training rows, moved from batch to batch, and the weights.

    Args:
        phi: pseudo-weights, (R, V, C).
        pull: minus the sum of the rows' slopes, as :meth:`Objective.total_pull` has it: the mean
            posterior of the components for the likelihood alone.
        log_weights: (R, C), of free or fixed weights; None where they follow from ``phi``.
        seen_share: share of the rows that show a variate, (V, 1); None where all do.
    """

    phi: Tensor
    pull: Tensor
    log_weights: Tensor | None
    seen_share: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RowTerms:
    """Inputs of a batch of rows besides the networks' outputs.

    Args:
        seen: which variates are there, 1 or 0, (V, n); None where all are.
        labels: label of each row, -1 where there is none, (n,); None without labels.
    """

    seen: Tensor | None = None
    labels: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Objective:
    r"""Cost per row, to be minimised.

    Args:
        about: the model's description.
        cost: the likelihood, None for labels alone; penalties: of the weights; labels: of rows.
        label_weight: what one labelled row of a batch counts, :math:`\tau N / L`.
        log_chances: of each label under each component, (labels, C).
    """

    about: ClassifierDescription
    cost: CrossTotalCorrelation | None
    penalties: tuple[WeightPenalty, ...] = ()
    labels: Labels | None = None
    label_weight: float = 0.0
    log_chances: Tensor | None = None

    @property
    def is_likelihood(self) -> bool:
        """Tell whether the cost is the likelihood and nothing else."""
        return (
            self.cost is not None
            and not self.cost.consistency
            and not self.penalties
            and self.labels is None
        )

    def log_weights(self, balance: Balance, log_phi: Tensor) -> Tensor:
        """Log-weights of the components, (R, C)."""
        return (
            log_phi.mean(1).log_softmax(-1) if balance.log_weights is None else balance.log_weights
        )

    def joint(
        self, log_scores: Tensor, log_phi: Tensor, log_weights: Tensor, rows: RowTerms
    ) -> Tensor:
        """Log-joint s of row and component, (R, n, C)."""
        if rows.seen is None:
            return log_scores.sum(1).add_((log_weights - log_phi.sum(1)).unsqueeze(1))
        return ((log_scores - log_phi.unsqueeze(2)) * rows.seen.unsqueeze(-1)).sum(
            1
        ) + log_weights.unsqueeze(1)

    def row_pulls(self, joint: Tensor, rows: RowTerms) -> Tensor:
        """Gradient terms -n G of n rows, (R, n, C); the posterior for the likelihood alone."""
        posterior = joint.softmax(-1)
        pull = posterior if self.cost is not None else torch.zeros_like(posterior)
        if rows.labels is None or self.labels is None or self.labels.on == "variates":
            return pull
        target, labelled = self._targets(joint, rows.labels)
        return pull + self.label_weight * labelled * (target - posterior)

    def total_pull(self, pull: Tensor, rows: RowTerms) -> Tensor:
        """Mean pulls on each variate and the weights, (R, V + 1, C); (R, 1, C) if one."""
        whole = pull.mean(1, keepdim=True)
        if rows.seen is None:
            return whole
        return torch.cat([torch.einsum("rnc,vn->rvc", pull, rows.seen) / pull.shape[1], whole], 1)

    def _targets(self, log_terms: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Posteriors given the label too (..., n, C), and which rows have one, (n, 1)."""
        if self.log_chances is None:
            raise RuntimeError("labels without their chances")
        chance = self.log_chances[labels.clamp(min=0)]  # (n, C)
        return (log_terms + chance).softmax(-1), (labels >= 0).to(log_terms).unsqueeze(-1)

    def slope(
        self,
        log_scores: Tensor,
        scores: Tensor,
        pull: Tensor,
        balance: Balance,
        log_weights: Tensor,
        rows: RowTerms,
    ) -> Tensor:
        """Slope with respect to the log-outputs, times the number of rows, (R, V, n, C).

        ``log_scores``, ``scores``: of the rows; ``pull``: of the rows; ``balance``: statistics of
        all rows; ``log_weights``: that follow from them.
        """
        coefficients = self.of_log_phi(balance, log_weights) / balance.phi
        if balance.seen_share is not None:
            coefficients = coefficients / balance.seen_share
        out = torch.addcmul(pull.unsqueeze(1), coefficients.unsqueeze(2), scores, value=-1).neg_()
        if rows.labels is not None and self.labels is not None and self.labels.on == "variates":
            target, labelled = self._targets(log_scores, rows.labels)
            out = out - self.label_weight / self.about.num_variates * labelled * target
        return out if rows.seen is None else out * rows.seen.unsqueeze(-1)

    def of_log_phi(self, balance: Balance, log_weights: Tensor) -> Tensor:
        """Slope with respect to the logs of the pseudo-weights, (R, V or 1, C)."""
        if balance.log_weights is not None:
            return balance.pull[:, : max(1, balance.pull.shape[1] - 1)]
        return balance.pull + (
            self.of_logits(balance, log_weights) / self.about.num_variates
        ).unsqueeze(1)

    def of_logits(self, balance: Balance, log_weights: Tensor) -> Tensor:
        """Slope with respect to the logits of the weights, (R, C)."""
        weights = log_weights.exp()
        slope = -balance.pull[:, -1]
        for penalty in self.penalties:
            slope = slope + penalty.slope(log_weights)
        out = slope - weights * slope.sum(-1, keepdim=True)
        if self.cost is not None and self.cost.consistency:
            out = out - self.cost.consistency * weights
        return out

    def values(
        self, joint: Tensor, log_scores: Tensor | None, rows: RowTerms
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-likelihood ratios and label log-probabilities summed, (R,) each; label count."""
        ratio = joint.logsumexp(-1).double().sum(-1)
        if rows.labels is None or self.labels is None or self.log_chances is None:
            return ratio, torch.zeros_like(ratio), torch.zeros((), dtype=torch.float64)
        chance, labelled = self.log_chances[rows.labels.clamp(min=0)], (rows.labels >= 0).double()
        if self.labels.on == "row":
            log_label = (joint.log_softmax(-1) + chance).logsumexp(-1)
        elif log_scores is None:
            raise RuntimeError("labels of single variates need their outputs")
        else:
            log_label = (log_scores + chance).logsumexp(-1).mean(1)
        return ratio, (log_label.double() * labelled).sum(-1), labelled.sum().cpu()


LEAST_SHARE = 0.1  # of a batch's own mean that the estimate of the mean of all rows is kept above
TINY = 1e-20  # of a variance


@dataclass(frozen=True, eq=False)
class Shift:
    """Differences of a batch of n rows from all rows at the anchor.

    Args:
        scores: outputs at the anchor less their mean over the batch, (R, V, n, C); variance: their
            mean square, (R, V, C).
        phi: mean of all rows less that of the batch, (R, V, C).
        pulls, pull_variance, pull: the same of the pulls, (R, n, C), (R, 1, C), (R, V + 1 or 1, C).
    """

    scores: Tensor
    variance: Tensor
    phi: Tensor
    pulls: Tensor
    pull_variance: Tensor
    pull: Tensor

    def phi_of(self, scores: Tensor, mean: Tensor) -> Tensor:
        """Estimate means of all rows, (R, V, C), from outputs (R, V, n, C) and their mean."""
        share = ((self.scores * scores).mean(2) / self.variance).clamp_(0, 1)
        return torch.maximum(torch.addcmul(mean, share, self.phi), mean * LEAST_SHARE)

    def pull_of(self, pulls: Tensor, mean: Tensor) -> Tensor:
        """Estimate mean pulls of all rows from those of the batch, (R, n, C), and their mean."""
        share = ((self.pulls * pulls).mean(1, keepdim=True) / self.pull_variance).clamp_(0, 1)
        return torch.addcmul(mean, share, self.pull)


@dataclass(frozen=True, eq=False)
class Anchor:
    """Control variate: the training rows' terms at earlier weights of the networks.

    Args:
        scores: outputs (R, V, N, C); pulls: (R, N, C); phi, pull: means of these, (R, V, C) and (R,
            V + 1 or 1, C).
    """

    scores: Tensor
    pulls: Tensor
    phi: Tensor
    pull: Tensor

    def shift(self, place: Tensor, seen_share: Tensor | None, seen: Tensor | None) -> Shift:
        """Shift of a batch of training rows.

        ``place``: which, (n,); ``seen_share``: share of all rows that show a variate, (V, 1);
        ``seen``: which of the batch do, (V, n); None where all do.
        """
        scores, pulls = self.scores.index_select(2, place), self.pulls.index_select(1, place)
        mean, mean_pull = scores.mean(2, keepdim=True), pulls.mean(1, keepdim=True)
        scores, pulls = scores - mean, pulls - mean_pull
        own = mean.squeeze(2) if seen_share is None else mean.squeeze(2) / seen_share
        if self.pull.shape[1] == 1 or seen is None:
            total = mean_pull
        else:
            by_variate = torch.einsum("rnc,vn->rvc", pulls + mean_pull, seen) / len(place)
            total = torch.cat([by_variate, mean_pull], 1)
        variance = scores.square().mean(2).add_(TINY)
        pull_variance = pulls.square().mean(1, keepdim=True).add_(TINY)
        return Shift(scores, variance, self.phi - own, pulls, pull_variance, self.pull - total)

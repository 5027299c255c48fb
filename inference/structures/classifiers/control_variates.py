r"""Means over all rows at moving networks, from batches: control variates that are worth what they
still tell.

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

LEAST_SHARE = 0.1  # of a batch's own mean that the estimate of the mean of all rows is kept above
TINY = 1e-20  # of a variance


@dataclass(frozen=True, eq=False)
class Shift:
    """What one batch, n rows, knows of all rows at the anchor.

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
        """Estimated means of all rows, (R, V, C), from the outputs (R, V, n, C) of the batch and
        their mean over the rows that show a variate.
        """
        share = ((self.scores * scores).mean(2) / self.variance).clamp_(0, 1)
        return torch.maximum(torch.addcmul(mean, share, self.phi), mean * LEAST_SHARE)

    def pull_of(self, pulls: Tensor, mean: Tensor) -> Tensor:
        """Estimated mean pulls of all rows, (R, V + 1 or 1, C), from those of the batch, (R, n, C),
        and their mean.
        """
        share = ((self.pulls * pulls).mean(1, keepdim=True) / self.pull_variance).clamp_(0, 1)
        return torch.addcmul(mean, share, self.pull)


@dataclass(frozen=True, eq=False)
class Anchor:
    """The training rows at weights that the networks had.

    Args:
        scores: outputs (R, V, N, C); pulls: (R, N, C); phi, pull: means of these, (R, V, C) and (R,
            V + 1 or 1, C).
    """

    scores: Tensor
    pulls: Tensor
    phi: Tensor
    pull: Tensor

    def shift(self, place: Tensor, seen_share: Tensor | None, seen: Tensor | None) -> Shift:
        """For a batch of training rows.

        Args:
            place: which, (n,); seen_share: share of all rows that show a variate, (V, 1); seen:
                which of the batch do, (V, n); None where all do.
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
        variance, pull_variance = (
            scores.square().mean(2).add_(TINY),
            pulls.square().mean(1, keepdim=True).add_(TINY),
        )
        return Shift(scores, variance, self.phi - own, pulls, pull_variance, self.pull - total)

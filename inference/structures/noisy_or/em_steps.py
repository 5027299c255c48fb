r"""Exact EM of noisy-OR networks: enumeration as matrix products, a concave M-step.

With configurations h_c (rows of H), weights :math:`\eta_{cj} = w_{0j} + \sum_i h_{ci} w_{ij}`,
responsibilities summed over rows :math:`n_{cj}` (where item j is seen) and over its ones
:math:`S_{cj}`, the expected complete-data log-density of item j is

.. math:: Q_j(w) = \sum_c S_{cj} \log(1 - e^{-\eta_{cj}}) - (n_{cj} - S_{cj}) \eta_{cj},

concave in :math:`w \ge 0`. The M-step first augments by which cause fired (closed form, never
loses) and then takes projected Newton steps, kept only where they gain. A failure of exactly one is
no edge and stays none; so is a latent without edges left as it is.

Where causes inhibit, :math:`P(x_j = 1 \mid h) = (1 - e^{-\eta_j}) e^{-\zeta_j}` with
:math:`\zeta_{cj} = -\sum_i h_{ci} \log g_{ij}`, a zero may be an item that was switched on and then
blocked. Of the zeros in configuration c that are so expected

.. math:: B_{cj} = (n_{cj} - S_{cj}) \frac{(1 - e^{-\eta_{cj}}) (1 - e^{-\zeta_{cj}})}{1 - (1 -
    e^{-\eta_{cj}}) e^{-\zeta_{cj}}},

and given these the log-density falls apart in two of the form above: that of w with :math:`S + B`
for S, and that of :math:`-\log g`, without a leak, with B for S and :math:`S + B` for n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.base.steps import EStep, Steps
from inference.programs.program import Params
from ppl_models.descriptions.noisy_or import (
    PROBABILITY_LIMIT,
    IndependentCauses,
    inhibited,
    log1mexp,
    log_expm1,
    weight_of_failure,
    weight_of_leak,
)

LARGEST_WEIGHT = 13.8  # -log 1e-6
NO_EDGE = 1 - PROBABILITY_LIMIT / 2  # a failure above it is one
TINY = 1e-12  # weight where nothing can fire, and nothing has
# log-odds below which a configuration counts no less: subnormal numbers are sixty times slower
NEGLIGIBLE = -60.0


@dataclass(frozen=True, eq=False)
class CauseRows:
    """Binary rows, equal ones merged with weights.

    Args:
        ones: (U, J), 1 where an item is one, 0 where it is zero or missing.
        seen: (U, J), 0 where it is missing; None where all are seen.
        counts: (U,), how many rows are like this one.
    """

    ones: Tensor
    seen: Tensor | None
    counts: Tensor

    @classmethod
    def of(cls, data: Tensor) -> CauseRows:
        """Binary rows (N, J) of 0, 1 and NaN as they are, in their order."""
        missing = data.isnan()
        return cls(
            (data == 1).to(data),
            (~missing).to(data) if bool(missing.any()) else None,
            torch.ones_like(data[:, 0]),
        )

    @classmethod
    def merge(cls, data: Tensor, weights: Tensor | None = None) -> CauseRows:
        """Merge equal rows (N, J) of 0, 1 and NaN, of weights (N,) or one each."""
        missing = data.isnan()
        coded = torch.where(missing, 2, data.nan_to_num(nan=0.0).to(torch.uint8)).to(torch.uint8)
        unique, index, counts = torch.unique(coded, dim=0, return_inverse=True, return_counts=True)
        if weights is None:
            counts = counts
        else:
            counts = weights.new_zeros(len(unique)).index_add(0, index, weights)
        seen = (unique != 2).to(data.dtype) if bool(missing.any()) else None
        return cls((unique == 1).to(data.dtype), seen, counts.to(data.dtype))

    @property
    def num_rows(self) -> float:
        """Number of rows, N."""
        return float(self.counts.sum())

    def to(self, dtype: torch.dtype) -> CauseRows:
        """Convert the rows to another dtype."""
        seen = None if self.seen is None else self.seen.to(dtype)
        return CauseRows(self.ones.to(dtype), seen, self.counts.to(dtype))

    def sample(self, num_rows: int, generator: torch.Generator) -> CauseRows:
        """Sample at most ``num_rows`` rows without replacement."""
        index = torch.arange(len(self.counts)).repeat_interleave(self.counts.long().cpu())
        if num_rows >= len(index):
            return self
        picked, counts = index[torch.randperm(len(index), generator=generator)[:num_rows]].unique(
            return_counts=True
        )
        picked = picked.to(self.ones.device)
        seen = None if self.seen is None else self.seen[picked]
        return CauseRows(self.ones[picked], seen, counts.to(self.counts))


@dataclass(frozen=True, eq=False)
class CauseStatistics:
    """Expected statistics of R restarts, additive over rows.

    Args:
        per_configuration: (R, C), expected rows in each configuration.
        seen: (R, C, J), of those with item j seen; None where all are seen.
        ones: (R, C, J), of those with item j one.
    """

    per_configuration: Tensor
    seen: Tensor | None
    ones: Tensor


@dataclass(frozen=True, eq=False)
class CauseSteps(Steps[CauseStatistics]):
    """EM steps of a noisy-OR network over a set of configurations.

    All 2^m are exact; fewer give a lower bound, and EM of that bound.

    Args:
        causes: the model's description of itself.
        rows: the data.
        configurations: (C, m), or (R, C, m).
        num_newton: projected Newton steps after the closed form.
        chunk_elements: rows times configurations times restarts held at once.
        edges: (m, J) or (R, m, J) bool, which latent may switch which item on; None for all.
    """

    causes: IndependentCauses
    rows: CauseRows
    configurations: Tensor
    num_newton: int = 2
    chunk_elements: int = 2**20
    edges: Tensor | None = None

    def weights(self, params: Params) -> tuple[Tensor, Tensor]:
        """Weights (R, 1 + m, J), leak first, and configurations with a leading one."""
        leak = weight_of_leak(params[self.causes.leak])
        failure = weight_of_failure(params[self.causes.failure])
        return torch.cat([leak.unsqueeze(-2), failure], -2), torch.nn.functional.pad(
            self.configurations, (1, 0), value=1.0
        )

    def log_joint(self, params: Params) -> tuple[Tensor, Tensor, Tensor]:
        """Rates eta (R, C, J), item log-odds (R, C, J), configuration log-priors (R, C)."""
        weights, design = self.weights(params)
        eta = design @ weights
        prior = params[self.causes.prior].clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
        log_on, log_off = prior.log(), (-prior).log1p()
        odds = (log_on - log_off).unsqueeze(-1)
        log_prior = (self.configurations @ odds).squeeze(-1) + log_off.sum(-1, keepdim=True)
        if self.causes.spared is None:
            return eta, log_expm1(eta), log_prior
        passes = weight_of_failure(params[self.causes.spared])
        return *inhibited(eta, self.configurations @ passes), log_prior

    def log_densities(self, eta: Tensor, logits: Tensor, log_prior: Tensor, part: slice) -> Tensor:
        """Log-joint density of rows of a slice and configurations, (R, u, C)."""
        log_density = self.rows.ones[part] @ logits.mT
        if self.rows.seen is None:
            return log_density.add_((log_prior - eta.sum(-1)).unsqueeze(-2))
        return log_density.add_(log_prior.unsqueeze(-2) - self.rows.seen[part] @ eta.mT)

    def responsibilities(
        self, eta: Tensor, logits: Tensor, log_prior: Tensor, part: slice
    ) -> tuple[Tensor, Tensor]:
        """Posterior (R, u, C) of a slice of the rows, and their log-likelihood (R, u)."""
        log_density = self.log_densities(eta, logits, log_prior, part)
        peak = log_density.amax(-1, keepdim=True)
        log_density.sub_(peak).clamp_(min=NEGLIGIBLE).exp_()
        total = log_density.sum(-1, keepdim=True)
        return log_density.div_(total), (total.log() + peak).squeeze(-1)

    def parts(self, num_restarts: int) -> list[slice]:
        """Row slices that fit into memory."""
        size = max(1, self.chunk_elements // (num_restarts * self.configurations.shape[-2]))
        return [slice(start, start + size) for start in range(0, len(self.rows.ones), size)]

    @torch.no_grad()
    def e_step(self, params: Params) -> EStep[CauseStatistics]:
        """Expected counts of configurations, streaming over rows."""
        eta, logits, log_prior = self.log_joint(params)
        ones, per_configuration = torch.zeros_like(eta), torch.zeros_like(log_prior)
        seen = None if self.rows.seen is None else torch.zeros_like(eta)
        log_likelihood = log_prior.new_zeros(len(log_prior))
        for part in self.parts(len(eta)):
            posterior, log_rows = self.responsibilities(eta, logits, log_prior, part)
            counts = self.rows.counts[part]
            log_likelihood += log_rows @ counts
            per_configuration += (counts @ posterior).squeeze(-2)
            weighted = posterior.mT
            ones += weighted @ (self.rows.ones[part] * counts.unsqueeze(-1))
            if seen is not None and self.rows.seen is not None:
                seen += weighted @ (self.rows.seen[part] * counts.unsqueeze(-1))
        return EStep(
            CauseStatistics(per_configuration, seen, ones),
            log_likelihood,
            log_beta_prior(self.causes, params),
        )

    @torch.no_grad()
    def m_step(self, statistics: CauseStatistics, params: Params) -> Params:
        """Maximise the expected log-density; absent edges stay absent."""
        there = params[self.causes.failure] < NO_EDGE
        if bool(there.all()):
            return self._m_step(statistics, params)
        new = replace(self, edges=there if self.edges is None else self.edges & there)._m_step(
            statistics, params
        )
        prior, failure = self.causes.prior, self.causes.failure
        kept = {
            prior: torch.where(has_edges(self.causes, params), new[prior], params[prior]),
            failure: torch.where(there, new[failure], 1.0),
        }
        return {**new, **kept}

    def _m_step(self, statistics: CauseStatistics, params: Params) -> Params:
        causes, n = self.causes, statistics.per_configuration
        on = (self.configurations.mT @ n.unsqueeze(-1)).squeeze(-1)
        a, b = causes.prior_concentration
        prior = (on + (a - 1)) / (n.sum(-1, keepdim=True) + (a + b - 2))
        weights, design = self.weights(params)
        seen = n.unsqueeze(-1) if statistics.seen is None else statistics.seen
        ones, spared = statistics.ones, dict[str, Tensor]()
        if causes.spared is not None:
            passes = weight_of_failure(params[causes.spared])
            blocked = self._blocked(ones, seen, design @ weights, self.configurations @ passes)
            ones = ones + blocked
            there = params[causes.spared] < NO_EDGE
            inhibitors = replace(self, edges=None if bool(there.all()) else there)
            passes = inhibitors._climbed(blocked, ones, passes, self.configurations)
            spared[causes.spared] = (-passes).exp()
        weights = self._climbed(ones, seen, weights, design)
        limited = {
            **spared,
            causes.prior: prior,
            causes.failure: (-weights[..., 1:, :]).exp(),
            causes.leak: -torch.expm1(-weights[..., 0, :]),
        }
        new = {
            name: value.clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
            for name, value in limited.items()
        }
        for name in spared:
            new[name] = torch.where(params[name] < NO_EDGE, new[name], 1.0)
        return new

    def _climbed(self, ones: Tensor, seen: Tensor, weights: Tensor, design: Tensor) -> Tensor:
        """Weights after the closed form and Newton's steps."""
        weights = self._without_edges(self._fired(ones, seen, weights, design))
        for _ in range(self.num_newton):
            weights = self._newton(ones, seen, weights, design)
        return weights

    @staticmethod
    def _blocked(ones: Tensor, seen: Tensor, eta: Tensor, zeta: Tensor) -> Tensor:
        """Expected zeros that were switched on and then blocked, B above, (R, C, J)."""
        fires, blocks = -torch.expm1(-eta), -torch.expm1(-zeta)
        return (seen - ones) * fires * blocks / (1 - fires * (1 - blocks))

    @torch.no_grad()
    def without_unpaid_edges(
        self, statistics: CauseStatistics, params: Params, price: float
    ) -> Tensor:
        """Mask of edges (m, J) that are worth their price, for one restart.

        One is taken away if the expected complete-data log-density loses less than ``price`` when
        the leak takes over what the edge explained; the log-likelihood then loses no more. Where an
        item's edges are dear together, only the cheapest is taken away.
        """
        weights, design = self.weights(params)
        if statistics.seen is None:
            seen = statistics.per_configuration.unsqueeze(-1)
        else:
            seen = statistics.seen
        whole = self._bound(statistics.ones, seen, weights, design)[0]  # (J,)

        # (m, J), shares of all rows
        fires = params[self.causes.prior][0].unsqueeze(1) * -torch.expm1(-weights[0, 1:])

        def loss(gone: Tensor) -> Tensor:
            thinned = weights.clone()
            thinned[0, 1:][gone] = PROBABILITY_LIMIT
            thinned[0, 0] = weight_of_leak(-torch.expm1(-weights[0, 0]) + (fires * gone).sum(0))
            return whole - self._bound(statistics.ones, seen, thinned, design)[0]

        edges = (
            torch.ones_like(weights[0, 1:], dtype=torch.bool) if self.edges is None else self.edges
        )
        cost = torch.full_like(weights[0, 1:], torch.inf)
        for latent in range(len(edges)):
            one = torch.zeros_like(edges)
            one[latent] = edges[latent]
            each = loss(one)
            cost[latent] = torch.where(edges[latent], each, torch.inf)
            if float(each.sum()) < price * (1 + float(one.sum())):
                edges = edges & ~one  # the latent as a whole
        unpaid = edges & (cost < price)
        dear = loss(unpaid) > price * unpaid.sum(0)
        cheapest = unpaid & (cost == cost.amin(0))
        return edges & ~torch.where(dear, cheapest, unpaid)

    def on(self, data: Tensor, weights: Tensor | None = None) -> CauseSteps:
        """Steps on other rows, equal ones merged."""
        rows = CauseRows.merge(data, weights)
        if rows.seen is None and self.rows.seen is not None:
            rows = replace(rows, seen=torch.ones_like(rows.ones))
        return replace(self, rows=rows)

    # ---------------------------------------------------------------- the M-step of the weights

    def _concentrations(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Beta (a, b) less one of P(fires), leak first, (1 + m, 1)."""
        m = self.configurations.shape[-1]
        leak = [self.causes.leak_concentration] if like.shape[-2] > m else []
        a_f, b_f = self.causes.failure_concentration
        fires = like.new_tensor([*(a for a, _ in leak), *[b_f] * m])
        fails = like.new_tensor([*(b for _, b in leak), *[a_f] * m])
        return fires.unsqueeze(-1) - 1, fails.unsqueeze(-1) - 1

    def _without_edges(self, weights: Tensor) -> Tensor:
        there = self._free(weights)
        return weights if there is None else torch.where(there, weights, PROBABILITY_LIMIT)

    def _free(self, weights: Tensor) -> Tensor | None:
        """Weights that are there, leak first where there is one; None for all."""
        if self.edges is None:
            return None
        leak = weights.shape[-2] - self.edges.shape[-2]
        return torch.nn.functional.pad(self.edges, (0, 0, leak, 0), value=True)

    def _fired(self, ones: Tensor, seen: Tensor, weights: Tensor, design: Tensor) -> Tensor:
        """Share of rows with a cause on in which it fired, as weights."""
        fires, fails = self._concentrations(weights)
        blame = ones / -torch.expm1(-(design @ weights).clamp(min=TINY))
        fired = -torch.expm1(-weights) * (design.mT @ blame) + fires
        total = design.mT @ seen + fires + fails
        chance = (fired / total.clamp(min=1e-30)).clamp(PROBABILITY_LIMIT, 1 - PROBABILITY_LIMIT)
        return -torch.log1p(-chance)

    def _bound(self, ones: Tensor, seen: Tensor, weights: Tensor, design: Tensor) -> Tensor:
        """Q_j with the log-prior, (R, J)."""
        fires, fails = self._concentrations(weights)
        eta = design @ weights
        value = (ones * log_expm1(eta.clamp(min=TINY)) - seen * eta).sum(-2)
        return value + (fires * log1mexp(weights) - fails * weights).sum(-2)

    def _newton(self, ones: Tensor, seen: Tensor, weights: Tensor, design: Tensor) -> Tensor:
        fires, fails = self._concentrations(weights)
        # e^-eta / (1 - e^-eta)
        survive = torch.expm1((design @ weights).clamp(min=TINY)).reciprocal()
        slope = design.mT @ (ones * (1 + survive) - seen)
        own = torch.expm1(weights).reciprocal()
        slope = slope + fires * own - fails  # (R, 1 + m, J)
        low, high = PROBABILITY_LIMIT, LARGEST_WEIGHT
        stuck = ((weights <= 1.01 * low) & (slope < 0)) | ((weights >= 0.999 * high) & (slope > 0))
        there = self._free(weights)
        if there is not None:
            stuck |= ~there
        size = design.shape[-1]
        curve = (ones * survive * (1 + survive)).mT  # (R, J, C)
        pairs = (design.unsqueeze(-1) * design.unsqueeze(-2)).flatten(-2)  # (C, (1 + m)^2)
        hessian = (curve @ pairs).unflatten(-1, (size, size))
        free = (~stuck).to(weights.dtype).mT  # (R, J, 1 + m)
        extra = (fires * own * (1 + own)).mT
        ridge = 1e-6 * hessian.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True) + 1e-9
        hessian = hessian * free.unsqueeze(-1) * free.unsqueeze(-2)
        hessian = hessian + torch.diag_embed((extra + ridge) * free + (1 - free))
        factor, info = torch.linalg.cholesky_ex(hessian)
        ascent = torch.cholesky_solve((slope.mT * free).unsqueeze(-1), factor).squeeze(-1).mT
        ascent = torch.where((info == 0).unsqueeze(-2) & ascent.isfinite(), ascent, 0.0)
        best, value = weights, self._bound(ones, seen, weights, design)
        # items whose step is still too long, whatever the others do
        searching = torch.ones_like(value, dtype=torch.bool)
        for length in (1.0, 0.25, 0.0625):
            trial = (weights + length * ascent).clamp(low, high)
            gained = self._bound(ones, seen, trial, design)
            better = searching & (gained > value)
            best = torch.where(better.unsqueeze(-2), trial, best)
            searching &= gained < value - 1e-9 * value.abs()
            if not bool(searching.any()):  # most often the first
                break
        return best


def has_edges(causes: IndependentCauses, params: Params) -> Tensor:
    """Latents with an edge to some item, of either kind, (..., m) bool."""
    sites = [name for name in (causes.failure, causes.spared) if name is not None]
    return torch.stack([(params[name] < NO_EDGE).any(-1) for name in sites]).any(0)


def check_switches_only_on(owner: str, causes: IndependentCauses) -> None:
    """Refuse causes that inhibit where an engine knows only those that do not."""
    if causes.spared is not None:
        raise ValueError(
            f"{owner}: a network without inhibition was expected, got inhibition=True, which EM()"
            " fits"
        )


def log_beta_prior(causes: IndependentCauses, params: Params) -> Tensor:
    """Log-density of the Beta priors, (R,).

    An edge that is not there has none, nor the prior of a latent without edges.
    """
    total: Tensor | float = 0.0
    sites = [(name, params[name] < NO_EDGE) for name in (causes.failure, causes.spared) if name]
    for name, (a, b), counted in (
        (causes.prior, causes.prior_concentration, has_edges(causes, params)),
        *((name, causes.failure_concentration, there) for name, there in sites),
        (causes.leak, causes.leak_concentration, None),
    ):
        value = params[name] if counted is None else torch.where(counted, params[name], 0.5)
        beta = torch.distributions.Beta(
            value.new_tensor(a), value.new_tensor(b), validate_args=False
        )
        density = beta.log_prob(value)
        total = total + (density if counted is None else density * counted).flatten(1).sum(-1)
    return torch.as_tensor(total)

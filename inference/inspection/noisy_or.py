r"""Latents of a fitted noisy-OR network: filter, doubles, and recovery of a truth.

The filter and the matching are those of Buhai et al. (2020, arXiv:1907.00030) with the constants of
their released code: a latent is discarded unless its prior exceeds 0.02 and some failure is below
0.80; it is a double of an earlier one (by falling prior) if the failures differ by at most 4 in L1;
a true latent is recovered if the Hungarian match on :math:`\max_j |\log f_{ij} - \log \hat f_{kj}|`
costs at most 1.

That cost judges a latent by its worst single failure, whose log has a standard error of
:math:`\sqrt{(1 - f) / (f N \pi)}`: with N = 1,000 rows, a prior of 0.03 and a failure of 0.1 that
is 0.55 for each of the items, and the largest of many exceeds 1 though the estimate is as good as
an estimate can be. Beside it stands what is lost in the rows. Where latent i is on (alone), item j
is one with probability :math:`p_{ij} = 1 - (1 - l_j) f_{ij}`, with :math:`\hat p_{kj}` under the
estimate, and with :math:`l_j` had there been no such latent. To second order the log-likelihood
that a row loses in expectation is

.. math::

    d_i(\hat p) = 2 \sum_j \bigl(\sqrt{p_{ij}} - \sqrt{\hat p_j}\bigr)^2 + \bigl(\sqrt{1 - p_{ij}} -
    \sqrt{1 - \hat p_j}\bigr)^2

(twice the squared Hellinger distance, which stays finite where a Kullback-Leibler divergence does
not), in the :math:`\pi_i` of the rows that use it. ``lost`` is the share :math:`\min(1, d_i(\hat
p_k) / d_i(l))` of what latent i says of its items, 0 for an exact estimate and 1 where no estimate
is better than leaving it out; the match is that of the least :math:`\sum_i \pi_i d_i`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import as_fitted
from inference.programs.program import Params
from inference.structures.noisy_or.grow_and_prune import used_latents
from inference.structures.registry import structure_of
from ppl_models.descriptions.noisy_or import IndependentCauses
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    from inference.fitting.result import Fit


SMALLEST_PRIOR, LARGEST_FAILURE, DOUBLE_DISTANCE = 0.02, 0.80, 4.0
RECOVERED, COST_CAP = 1.0, 10.0
EXPLAINED = 0.1  # share of what a latent says of its items
EDGE_SITES = ("failure", "spared")  # sites (m, J) in which one is no edge
EDGE = 0.5  # a failure below it counts as an edge


@shows_briefly
@dataclass(frozen=True, eq=False)
class LatentFilter:
    """Verdict of the filter.

    Args:
        kept: latents that survive, by falling prior.
        discarded: latents with a small prior or no effect.
        doubles: latent -> the kept one (with ``chain``: the earlier one) it repeats.
        distance: (m,), L1 distance of the failures to the nearest earlier survivor; infinite where
            there is none.
    """

    kept: tuple[int, ...]
    discarded: tuple[int, ...]
    doubles: dict[int, int]
    distance: Tensor


@shows_briefly
@dataclass(frozen=True, eq=False)
class Recovery:
    """An estimate beside a truth.

    Args:
        num_recovered: true latents matched at a cost of at most 1; num_true: all of them.
        match: true latent -> estimated latent, -1 where there is none left; cost: (m_true,),
            infinite there.
        mean_cost: over matched latents, capped at 10.
        prior_error: largest absolute error of a recovered latent's prior; NaN if none is recovered.
        edge_f1: harmonic mean of precision and recall of edges (failure below one half) over
            matched latents.
        lost: share of what every true latent says of its items that the estimate loses (above),
            (m_true,).
        lost_share: the same of all latents, each weighted by its prior.
        num_explained: true latents of which at most a tenth is lost.
    """

    num_recovered: int
    num_true: int
    match: tuple[int, ...]
    cost: Tensor
    mean_cost: float
    prior_error: float
    edge_f1: float
    lost: Tensor
    lost_share: float
    num_explained: int

    @property
    def is_full(self) -> bool:
        """Recovery of every true latent."""
        return self.num_recovered == self.num_true


def filter_latents(
    params: Params,
    smallest_prior: float = SMALLEST_PRIOR,
    largest_failure: float = LARGEST_FAILURE,
    double_distance: float = DOUBLE_DISTANCE,
    chain: bool = False,
) -> LatentFilter:
    """Discardable and duplicate latents by the paper's thresholds.

    The threshold of doubles grows with the number of items: look at ``distance``, not at the
    verdict alone.

    Args:
        params: ``prior`` (m,) and ``failure`` (m, J), and ``spared`` where latents inhibit, which
            is judged like further failures.
        smallest_prior: threshold of discarded latents.
        largest_failure: likewise.
        double_distance: threshold of doubles.
        chain: compare with every earlier survivor of the first step, doubles too, as the released
            code does; else with the kept ones only.
    """
    prior = params["prior"]
    failure = torch.cat([params[name] for name in EDGE_SITES if name in params], 1)
    useful = (prior > smallest_prior) & (failure.amin(1) < largest_failure)
    order = [int(i) for i in prior.argsort(descending=True, stable=True) if useful[i]]
    distance = torch.full_like(prior, torch.inf)
    kept: list[int] = []
    doubles: dict[int, int] = {}
    for position, i in enumerate(order):
        earlier = order[:position] if chain else kept
        if earlier:
            apart = (failure[earlier] - failure[i]).abs().sum(1)
            distance[i] = apart.min()
            if float(distance[i]) <= double_distance:
                doubles[i] = earlier[int(apart.argmin())]
                continue
        kept.append(i)
    discarded = tuple(i for i in range(len(prior)) if not useful[i])
    return LatentFilter(tuple(kept), discarded, doubles, distance)


def merge_latents(params: Params, verdict: LatentFilter) -> Params:
    r"""Merge doubles: priors :math:`1 - \prod (1 - \pi)`, failures averaged by prior."""
    prior, sites = params["prior"], [name for name in EDGE_SITES if name in params]
    groups = {i: [i] for i in verdict.kept}
    for double, original in verdict.doubles.items():
        while original not in groups:
            original = verdict.doubles[original]
        groups[original].append(double)
    chances = [1 - (1 - prior[members]).prod() for members in groups.values()]
    if not groups:
        return {**params, **{name: params[name][:0] for name in ("prior", *sites)}}
    averages = {
        name: torch.stack(
            [
                (prior[members, None] * params[name][members]).sum(0) / prior[members].sum()
                for members in groups.values()
            ]
        )
        for name in sites
    }
    return {**params, **averages, "prior": torch.stack(chances)}


def recovery(params: Params, truth: Params, excluded_cost: float = COST_CAP) -> Recovery:
    """Match an estimate to a truth; label switching has no part in it.

    Args:
        params: ``prior`` (m,) and ``failure`` (m, J).
        truth: the same, and ``leak`` (J,), no leak where it is left out.
        excluded_cost: cost of a pair of which one prior is below 0.02, and the largest cost in the
            matching; 1000 without that cap replicates the paper.

    Raises:
        ValueError: if the numbers of items differ.
    """
    from scipy.optimize import linear_sum_assignment

    if params["failure"].shape[1] != truth["failure"].shape[1]:
        raise ValueError(
            f"recovery: the truth has {truth['failure'].shape[1]} items, the estimate"
            f" {params['failure'].shape[1]}"
        )
    # a failure of zero is an infinite weight: kept finite, for inf - inf is not a cost
    log_true, log_found = (p["failure"].double().clamp(min=1e-30).log() for p in (truth, params))
    exact = (log_true.unsqueeze(1) - log_found.unsqueeze(0)).abs().amax(-1)
    rare = (truth["prior"].unsqueeze(1) < SMALLEST_PRIOR) | (
        params["prior"].unsqueeze(0) < SMALLEST_PRIOR
    )
    capped = exact if excluded_cost > COST_CAP else exact.clamp(max=COST_CAP)
    cost = torch.where(rare, excluded_cost, capped)
    rows, columns = linear_sum_assignment(cost.numpy())
    match, paid = [-1] * len(exact), torch.full((len(exact),), torch.inf, dtype=torch.float64)
    for i, k in zip(rows, columns, strict=True):
        match[i], paid[i] = int(k), cost[i, k]
    good = [i for i in range(len(match)) if float(paid[i]) <= RECOVERED]
    error = max(
        (abs(float(truth["prior"][i] - params["prior"][match[i]])) for i in good),
        default=float("nan"),
    )
    matched = [i for i, k in enumerate(match) if k >= 0]
    true_edge = truth["failure"][matched] < EDGE
    found_edge = params["failure"][[match[i] for i in matched]] < EDGE
    total = int(true_edge.sum() + found_edge.sum())
    f1 = 2 * int((true_edge & found_edge).sum()) / total if total else 1.0
    lost, lost_share = _lost(params, truth)
    return Recovery(
        len(good),
        len(match),
        tuple(match),
        paid,
        float(paid[matched].clamp(max=COST_CAP).mean()),
        error,
        f1,
        lost,
        lost_share,
        int((lost <= EXPLAINED).sum()),
    )


def _lost(params: Params, truth: Params) -> tuple[Tensor, float]:
    """Loss of the estimate of every true latent (m_true,), and of all by their use.

    Under the match that loses least.
    """
    from scipy.optimize import linear_sum_assignment

    own, found = truth["failure"].double(), params["failure"].double()
    prior = truth["prior"].double()
    stays_off = 1 - truth["leak"].double() if "leak" in truth else torch.ones_like(own[0])  # (J,)

    def nats(other: Tensor) -> Tensor:
        """Loss d of every true latent (m_true, 1) and every other one (n, J), (m_true, n)."""
        zero, zero_other = (stays_off * own).unsqueeze(1), stays_off * other  # chances of a zero
        apart = (zero.sqrt() - zero_other.sqrt()).square()
        return 2 * (apart + ((1 - zero).sqrt() - (1 - zero_other).sqrt()).square()).sum(-1)

    without = nats(torch.ones_like(own[:1]))  # (m_true, 1)
    paid = torch.minimum(nats(found), without)
    rows, columns = linear_sum_assignment((prior.unsqueeze(1) * paid).numpy())
    left = without.squeeze(1).clone()
    left[rows] = paid[rows, columns]
    said = without.squeeze(1)
    # a latent that says nothing loses nothing
    lost = torch.where(said > 0, left / said.clamp(min=1e-300), 0.0)
    return lost, float((prior * left).sum() / (prior * said).sum().clamp(min=1e-300))


def matching_stability(snapshots: Params, truth: Params) -> Tensor:
    """Number of true latents with their final partner at each snapshot, (T,).

    Args:
        snapshots: ``failure`` (T, m, J) along a run.
        truth: ``failure`` (m_true, J); the match is Hungarian on the L1 distance of log-failures.
    """
    from scipy.optimize import linear_sum_assignment

    log_true = truth["failure"].double().clamp(min=1e-30).log()
    partners = []
    for failure in snapshots["failure"].double():
        cost = torch.cdist(log_true, failure.clamp(min=1e-30).log(), p=1)
        rows, columns = linear_sum_assignment(cost.numpy())
        partner = np.full(len(log_true), -1)
        partner[rows] = columns
        partners.append(partner)
    return torch.tensor([int((partner == partners[-1]).sum()) for partner in partners])


# ---------------------------------------------------------------- other sizes


def trim(result: Fit) -> Fit:
    """Drop the empty latents of a fit; nothing is fitted again, for none changes the data.

    Args:
        result: a fit of a noisy-OR network.

    Raises:
        ValueError: if every latent is empty, or for a fit with labels or tied parameters.
    """
    from inference.fitting.record import Restarts

    replace(result, fixed=None).refuse_labels("trim")
    causes = _described(result.model)
    used = used_latents(causes, result.params)
    if not used:
        raise ValueError("trim: every latent is empty")
    sites = [name for name in ("prior", *EDGE_SITES) if name in result.params]
    kept = {**result.params, **{name: result.params[name][used] for name in sites}}
    best = slice(result.restarts.best, result.restarts.best + 1)
    alone = Restarts(
        result.restarts.objective[best],
        result.restarts.log_likelihood[best],
        result.restarts.converged[best],
        result.restarts.num_iterations[best],
        {name: value.unsqueeze(0) for name, value in kept.items()},
        0,
    )
    latents = result.latents
    if latents is not None:
        latents = {name: (len(used), *values) for name, (_, *values) in latents.items()}

    def cut(values: Params | None, dim: int) -> Params | None:
        if values is None:
            return None
        picked = torch.tensor(used)
        return {
            name: value.index_select(dim, picked.to(value.device)) if name in sites else value
            for name, value in values.items()
        }

    return replace(
        result,
        model=replace(result.model, num_latents=len(used)),  # type: ignore[type-var]
        params=kept,
        restarts=alone,
        latents=latents,
        draws=cut(result.draws, 2),
        fixed=cut(result.fixed, 0),
    )


def filter_merge_refit(
    result: Fit, data: Any, verdict: LatentFilter | None = None
) -> tuple[Fit, Fit]:
    """Drop and merge latents, refit the rest by exact EM; the fit before and after.

    Args:
        result: of any engine.
        data: (N, J) that it was fitted to.
        verdict: what to keep; the paper's filter if None.

    Raises:
        ValueError: if no latent is kept, or for a fit with labels or known parameters.
    """
    result.refuse_labels("filter_merge_refit")
    verdict = verdict or filter_latents(result.params)
    if not verdict.kept:
        raise ValueError("filter_merge_refit: the filter keeps no latent; loosen its thresholds")
    return result, _refit(result, merge_latents(result.params, verdict), data)


def _described(model: Any) -> IndependentCauses:
    causes = structure_of(model).about
    if not isinstance(causes, IndependentCauses):
        raise ValueError(f"a model that offers causes() (NoisyOr) was expected, got {model!r}")
    return causes


def _refit(result: Fit, params: Params, data: Any) -> Fit:
    from inference.engines.em import EM
    from inference.fitting.fit import fit

    model = replace(result.model, num_latents=len(params["prior"]))  # type: ignore[type-var]
    method = EM(max_iterations=200, tolerance=1e-7, parameter_tolerance=1e-2)
    rows, weights = as_fitted(result, data), result.row_weights
    return fit(model, rows, method, init=dict(params), seed=result.seed, weights=weights)

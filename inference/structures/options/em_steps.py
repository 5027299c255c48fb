"""EM steps of hidden options: expected counts by differentiation, closed-form tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inference.base.steps import EStep, Steps
from inference.programs.program import Params
from ppl_models.descriptions.options import ChainDescription, with_high
from ppl_models.sequences.chain_plan import ChainPlan, plan_of

MAX_ELEMENTS = 2**22  # entries of the products held at once; more restarts are taken in turn


@dataclass(frozen=True, eq=False)
class _Rows:
    """Prior of a site: independent Dirichlet rows.

    Args:
        concentration: in the shape of the site, the rows last.
        num_dims: of a value.
    """

    concentration: Tensor
    num_dims: int

    @cached_property
    def constant(self) -> Tensor:
        """Constant of the log-density."""
        return (
            torch.lgamma(self.concentration.sum(-1)).sum() - torch.lgamma(self.concentration).sum()
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density, summed over all but the leading dim of a value (R, ...)."""
        return self.constant + torch.xlogy(self.concentration - 1, value).flatten(
            -self.num_dims
        ).sum(-1)


@dataclass(frozen=True, eq=False)
class _Environment:
    """Environment statistics from the states alone, where no action is missing.

    Args:
        counts: of every move, (A, S, S).
        value: that maximises likelihood and prior, (A, S, S).
        log_moves: log-probability of all moves under it; log_prior: its own.
    """

    counts: Tensor
    value: Tensor
    log_moves: Tensor
    log_prior: Tensor


def mode(counts: Tensor, concentration: Tensor) -> Tensor:
    """Mode of Dirichlet rows under counts and prior; the prior's mean if both are flat."""
    weight = counts + concentration - 1
    total = weight.sum(-1, keepdim=True)
    return torch.where(
        total > 0,
        weight / total.clamp(min=1e-300),
        concentration / concentration.sum(-1, keepdim=True),
    )


@dataclass(frozen=True, eq=False)
class OptionSteps(Steps[Params]):
    """EM steps of hidden options: counts by one backward pass, tables in closed form.

    Where no action is missing, the environment is the same from the first M-step on: what it adds
    is computed once.

    Args:
        chain: the model's description of itself.
        plan: what of the data never changes.
        gaps_elsewhere: whether actions are missing in other rows, where these are a part of all.
    """

    chain: ChainDescription
    plan: ChainPlan
    gaps_elsewhere: bool = False

    @cached_property
    def _priors(self) -> dict[str, _Rows]:
        c = self.chain
        kind: dict[str, Any] = {"dtype": torch.float64, "device": self.plan.begin.device}
        s, a, o = c.num_states, c.num_actions, c.num_options
        stay = c.stickiness * torch.eye(o, **kind)
        out = {
            c.initial: _Rows(torch.full((s * o,), c.concentration, **kind), 1),
            c.low: _Rows(torch.full((s, o, a), c.concentration, **kind), 3),
            c.environment: _Rows(torch.full((a, s, s), c.concentration, **kind), 3),
        }
        if c.termination is None or c.choice is None:
            return out | {c.high: _Rows(torch.full((s, o, o), c.concentration, **kind) + stay, 3)}
        ends = torch.tensor([c.concentration, c.concentration + c.stickiness], **kind).expand(
            s, o, 2
        )
        return out | {
            c.termination: _Rows(ends, 3),
            c.choice: _Rows(torch.full((s, o), c.concentration, **kind), 2),
        }

    @cached_property
    def _environment(self) -> _Environment | None:
        """Environment by the states alone; None where actions are missing."""
        if len(self.plan.gap_state):
            return None
        prior = self._priors[self.chain.environment]
        counts = self.plan.move_counts(self.chain.num_states, self.chain.num_actions).to(
            prior.concentration
        )
        value = mode(counts, prior.concentration)
        return _Environment(
            counts, value, self.plan.log_moves(value[None])[0].sum(), prior.log_prob(value[None])[0]
        )

    @property
    def known_sites(self) -> frozenset[str]:
        """Site of the environment, where the states alone settle it."""
        if self._environment is None or self.gaps_elsewhere:
            return frozenset()
        return frozenset({self.chain.environment})

    def _log_prior_of(self, name: str, params: Params) -> Tensor:
        prior = self._priors[name]
        value = params[name].flatten(1) if prior.num_dims == 1 else params[name]
        return prior.log_prob(
            torch.stack([value, 1 - value], -1) if name == self.chain.termination else value
        )

    def e_step(self, params: Params) -> EStep[Params]:
        """Expected counts of every entry, log-likelihood and log-prior (R,)."""
        params = with_high(self.chain, params)
        known, environment = self._environment, params[self.chain.environment].detach()
        names = (
            self.chain.initial,
            self.chain.low,
            self.chain.high,
            *([self.chain.environment] if known is None else []),
        )
        num_restarts = len(environment)
        each = self.plan.tree.num_held(self.chain.num_options) * self.chain.num_options**2
        step = max(1, MAX_ELEMENTS // each)
        parts, values = [], []
        for begin in range(0, num_restarts, step):
            leaves = [
                params[name][begin : begin + step].detach().clone().requires_grad_()
                for name in names
            ]
            initial, low, high, *of_moves = leaves
            moves = of_moves[0] if known is None else environment[begin : begin + step]
            value, grads = self.plan.log_actions_and_slopes(initial, low, high, moves)
            if known is None:
                with torch.enable_grad():
                    seen = self.plan.log_moves(moves).sum(-1)
                (own,) = torch.autograd.grad(seen.sum(), moves)
                value, grads[-1] = value + seen.detach(), grads[-1] + own
            parts.append([leaf.detach() * grad for leaf, grad in zip(leaves, grads, strict=True)])
            values.append(value)
        log_likelihood = torch.cat(values)
        log_prior = sum(
            (
                self._log_prior_of(name, params)
                for name in self._priors
                if name != self.chain.environment
            ),
            torch.zeros(()),
        )
        if known is not None and (
            environment.data_ptr() == known.value.data_ptr()
            or bool((environment == known.value).all())
        ):  # from the first M-step on
            log_likelihood = log_likelihood + known.log_moves
            log_prior = log_prior + known.log_prior
        else:
            log_likelihood = log_likelihood + (
                0.0 if known is None else self.plan.log_moves(environment).sum(-1)
            )
            log_prior = log_prior + self._log_prior_of(self.chain.environment, params)
        if log_likelihood.isneginf().any():
            raise ValueError(
                "data: impossible under the parameters (a probability of exactly zero met an"
                " observation); start elsewhere, or use a concentration above 1"
            )
        counts = {name: torch.cat([part[i] for part in parts]) for i, name in enumerate(names)}
        if known is not None:
            counts[self.chain.environment] = known.counts.expand(num_restarts, -1, -1, -1)
        return EStep(counts, log_likelihood, log_prior)

    def m_step(self, statistics: Params, params: Params) -> Params:
        """Maximise tables: counts over counts."""
        new: Params = {}
        statistics, known = statistics | self._endings(statistics, params), self._environment
        for name, prior in self._priors.items():
            if known is not None and statistics[name].data_ptr() == known.counts.data_ptr():
                new[name] = known.value.expand_as(params[name])
                continue
            counts = statistics[name].flatten(1) if prior.num_dims == 1 else statistics[name]
            rows = mode(counts, prior.concentration)
            new[name] = (rows[..., 0] if name == self.chain.termination else rows).reshape(
                params[name].shape
            )
        return new

    def _endings(self, statistics: Params, params: Params) -> Params:
        """Expected endings of options (R, S, O, 2), and choices after them (R, S, O).

        Whether an option that is on again had ended first is one more latent: its posterior splits
        the counts of staying.
        """
        if self.chain.termination is None or self.chain.choice is None:
            return {}
        counts = statistics[self.chain.high]
        end = params[self.chain.termination]
        choice = params[self.chain.choice]
        again = end * choice
        stayed = counts.diagonal(dim1=-2, dim2=-1)
        share = again / (again + 1 - end).clamp(min=1e-300)
        ended = counts - torch.diag_embed(stayed * (1 - share))
        return {
            self.chain.termination: torch.stack([ended.sum(-1), stayed * (1 - share)], -1),
            self.chain.choice: ended.sum(-2),
        }

    def on(self, data: Tensor, weights: Tensor | None = None) -> OptionSteps:
        """Steps on other packed sequences, (B, T, 2)."""
        self.refuse_weights(weights)
        return replace(self, plan=plan_of(data, self.chain.num_states, self.chain.num_actions))

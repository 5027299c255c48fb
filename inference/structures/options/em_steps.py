"""EM steps of hidden options: expected counts by differentiation, closed-form tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inference.base.durations import geometric_means, maximise_durations
from inference.base.steps import EStep, Steps
from inference.programs.program import Params
from ppl_models.descriptions.options import ChainDescription, tables_of
from ppl_models.sequences.chain_plan import ChainPlan, plan_of

MAX_ELEMENTS = 2**22  # entries of the products held at once; more restarts are taken in turn


@dataclass(frozen=True, eq=False)
class _Rows:
    """Prior of a site: independent Dirichlet rows.

    Args:
        concentration: in the shape of the site, the rows last.
        num_dims: of a value.
        possible: bool, which entries may be positive; None for all.
    """

    concentration: Tensor
    num_dims: int
    possible: Tensor | None = None

    @cached_property
    def constant(self) -> Tensor:
        """Constant of the log-density."""
        every = self.concentration
        one = torch.lgamma(every)
        if self.possible is not None:
            every, one = (part.masked_fill(~self.possible, 0.0) for part in (every, one))
        return torch.lgamma(every.sum(-1)).sum() - one.sum()

    def mode(self, counts: Tensor) -> Tensor:
        """Mode under counts."""
        rows = mode(counts, self.concentration)
        if self.possible is None:
            return rows
        rows = rows.masked_fill(~self.possible, 0.0)
        return rows / rows.sum(-1, keepdim=True)

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
        data: sequences of the plan; labels: log p(label | option) of their steps, (B, T, O), which
            the plan then takes in; None where it has them or nothing is known.
    """

    chain: ChainDescription
    plan: ChainPlan
    gaps_elsewhere: bool = False
    data: Tensor | None = None
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        if self.data is not None and self.labels is not None:
            table = self.labels.repeat_interleave(self.chain.num_ages, -1)
            sizes = self.chain.num_states, self.chain.num_actions
            object.__setattr__(self, "plan", plan_of(self.data, *sizes, table))

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
        if c.durations is not None and c.choice is not None:
            others = ~torch.eye(o, dtype=torch.bool, device=kind["device"]).expand(s, o, o)
            flat = torch.ones(s, o, o, **kind).masked_fill(others, c.concentration)
            return out | {c.choice: _Rows(flat, 3, others)}
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
        tables = tables_of(self.chain, params)
        known, environment = self._environment, params[self.chain.environment].detach()
        own = (*tables, *([environment] if known is None else []))
        num_restarts, size = len(environment), tables[0].shape[-1]
        each = self.plan.tree.num_held(size) * size**2
        step = max(1, MAX_ELEMENTS // each)
        parts, values = [], []
        for begin in range(0, num_restarts, step):
            leaves = [
                value[begin : begin + step].detach().clone().requires_grad_() for value in own
            ]
            initial, low, high, *of_moves = leaves
            moves = of_moves[0] if known is None else environment[begin : begin + step]
            value, grads = self.plan.log_actions_and_slopes(initial, low, high, moves)
            if known is None:
                with torch.enable_grad():
                    seen = self.plan.log_moves(moves).sum(-1)
                (slope,) = torch.autograd.grad(seen.sum(), moves)
                value, grads[-1] = value + seen.detach(), grads[-1] + slope
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
        if (durations := self.chain.durations) is not None:
            zero = torch.zeros((), dtype=environment.dtype, device=environment.device)
            priors = durations.priors(self.chain.num_options, zero, self.chain.concentration)
            for name, prior in priors.items():
                log_prior = log_prior + prior.log_prob(params[name])
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
        counts = self._by_site([torch.cat(one) for one in zip(*parts, strict=True)])
        if known is not None:
            counts[self.chain.environment] = known.counts.expand(num_restarts, -1, -1, -1)
        return EStep(counts, log_likelihood, log_prior)

    def _by_site(self, counts: list[Tensor]) -> Params:
        """Expected counts of every site from those of the tables.

        With durations beside them the visits that ended, that went on and that began or went on at
        every age, (R, O, m) each.
        """
        c, num = self.chain, self.chain.num_ages
        if c.durations is None:
            names = c.initial, c.low, c.high, c.environment
            return dict(zip(names, counts, strict=False))
        both = (c.num_options, num)
        first, low = counts[0].unflatten(-1, both), counts[1].unflatten(-2, both)
        high = counts[2].unflatten(-1, both).unflatten(-3, both)  # (R, S, O, m, O, m)
        went_on = high.diagonal(dim1=2, dim2=4).sum((1, 3)).mT  # of the same option
        choice = high.sum((3, 5))
        return {
            c.initial: first.sum(-1),
            c.low: low.sum(-2),
            c.choice or "": choice - torch.diag_embed(choice.diagonal(dim1=-2, dim2=-1)),
            "ended": high.sum((1, 4, 5)) - went_on,
            "went_on": went_on,
            "reached": first.sum(1) + high.sum((1, 2, 3)),
            **({c.environment: counts[3]} if len(counts) > 3 else {}),
        }

    def _visits(self, statistics: Params, params: Params) -> Params:
        """Parameters of durations, from the visits at every age."""
        c = self.chain
        if c.durations is None:
            return {}
        ended, went_on = statistics["ended"], statistics["went_on"]
        if c.durations.max_duration is None:
            leaves = torch.diag_embed(ended[..., 0]).roll(1, -1)
            moves = torch.diag_embed(went_on[..., 0]) + leaves
            return {"mean_durations": geometric_means(moves, params["mean_durations"])}
        still_open = (statistics["reached"] - ended - went_on).clamp(min=0.0)
        return maximise_durations(c.durations, ended, still_open, params, c.concentration)

    def m_step(self, statistics: Params, params: Params) -> Params:
        """Maximise tables: counts over counts; durations by Newton's method."""
        new: Params = self._visits(statistics, params)
        statistics, known = statistics | self._endings(statistics, params), self._environment
        for name, prior in self._priors.items():
            if known is not None and statistics[name].data_ptr() == known.counts.data_ptr():
                new[name] = known.value.expand_as(params[name])
                continue
            counts = statistics[name].flatten(1) if prior.num_dims == 1 else statistics[name]
            rows = prior.mode(counts)
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
        plan = plan_of(data, self.chain.num_states, self.chain.num_actions)
        return replace(self, plan=plan, data=data, labels=None)

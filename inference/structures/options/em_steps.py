"""Both halves of EM for hidden options: expected counts by differentiation, tables in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.steps import Steps
from inference.programs.program import Params
from ppl_models.descriptions.options import ChainDescription, with_high
from ppl_models.sequences.chain_plan import ChainPlan, plan_of

__all__ = ["OptionSteps"]


MAX_ELEMENTS = 2**22  # entries of the products held at once; more restarts are taken in turn


def log_dirichlet(value: Tensor, concentration: Tensor, num_event_dims: int) -> Tensor:
    """Log density of independent Dirichlet rows (last dim), summed over all but the leading dim of ``value``."""
    constant = torch.lgamma(concentration.sum(-1)).sum() - torch.lgamma(concentration).sum()
    return constant + torch.xlogy(concentration - 1, value).flatten(-num_event_dims).sum(-1)


def mode(counts: Tensor, concentration: Tensor) -> Tensor:
    """Rows that maximise counts and prior; the prior's mean where neither says anything."""
    weight = counts + concentration - 1
    total = weight.sum(-1, keepdim=True)
    return torch.where(total > 0, weight / total.clamp(min=1e-300), concentration / concentration.sum(-1, keepdim=True))


@dataclass(frozen=True, eq=False)
class OptionSteps(Steps):
    """EM for hidden options: the E-step is one backward pass, the M-step counts over counts.

    Args:
        chain: the model's description of itself.
        plan: what of the data never changes.
    """

    chain: ChainDescription
    plan: ChainPlan

    def _priors(self, like: Tensor) -> dict[str, tuple[Tensor, int]]:
        """Concentrations in the shape of each site with the rows last, and how many dims a value has."""
        c = self.chain
        kind: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        s, a, o = c.num_states, c.num_actions, c.num_options
        stay = c.stickiness * torch.eye(o, **kind)
        out = {
            c.initial: (torch.full((s * o,), c.concentration, **kind), 1),
            c.low: (torch.full((s, o, a), c.concentration, **kind), 3),
            c.environment: (torch.full((a, s, s), c.concentration, **kind), 3),
        }
        if c.termination is None or c.choice is None:
            return out | {c.high: (torch.full((s, o, o), c.concentration, **kind) + stay, 3)}
        ends = torch.tensor([c.concentration, c.concentration + c.stickiness], **kind).expand(s, o, 2)
        return out | {c.termination: (ends, 3), c.choice: (torch.full((s, o), c.concentration, **kind), 2)}

    def log_prior(self, params: Params) -> Tensor:
        """(R,)."""
        total = torch.zeros((), dtype=params[self.chain.low].dtype, device=params[self.chain.low].device)
        for name, (concentration, dims) in self._priors(params[self.chain.low]).items():
            value = params[name].flatten(1) if dims == 1 else params[name]
            if name == self.chain.termination:
                value = torch.stack([value, 1 - value], -1)
            total = total + log_dirichlet(value, concentration, dims)
        return total

    def e_step(self, params: Params) -> tuple[Params, Tensor, Tensor]:
        """Expected counts of every entry, log-likelihood (R,) of states and actions, log-prior (R,)."""
        names = (self.chain.initial, self.chain.low, self.chain.high, self.chain.environment)
        params = with_high(self.chain, params)
        num_restarts = len(params[names[0]])
        each = self.plan.tree.num_held(self.chain.num_options) * self.chain.num_options**2
        step = max(1, MAX_ELEMENTS // each)
        parts, values = [], []
        for begin in range(0, num_restarts, step):
            leaves = [params[name][begin : begin + step].detach().clone().requires_grad_() for name in names]
            with torch.enable_grad():
                value = (self.plan.log_actions(*leaves) + self.plan.log_moves(leaves[3])).sum(-1)
                grads = torch.autograd.grad(value.sum(), leaves)
            parts.append([leaf.detach() * grad for leaf, grad in zip(leaves, grads, strict=True)])
            values.append(value.detach())
        log_likelihood = torch.cat(values)
        if log_likelihood.isneginf().any():
            raise ValueError(
                "data: impossible under the parameters (a probability of exactly zero met an observation); start elsewhere, or use "
                "a concentration above 1"
            )
        counts = {name: torch.cat([part[i] for part in parts]) for i, name in enumerate(names)}
        return counts, log_likelihood, self.log_prior(params)

    def m_step(self, statistics: Params, params: Params) -> Params:
        new = {}
        statistics = statistics | self._endings(statistics, params)
        for name, (concentration, dims) in self._priors(params[self.chain.low]).items():
            counts = statistics[name].flatten(1) if dims == 1 else statistics[name]
            rows = mode(counts, concentration)
            new[name] = (rows[..., 0] if name == self.chain.termination else rows).reshape(params[name].shape)
        return new

    def _endings(self, statistics: Params, params: Params) -> Params:
        """Expected counts of options that ended or did not (R, S, O, 2), and of those chosen then (R, S, O).

        Whether an option that is on again had ended first is one more latent: its posterior splits the counts of staying.
        """
        if self.chain.termination is None or self.chain.choice is None:
            return {}
        counts, end, choice = statistics[self.chain.high], params[self.chain.termination], params[self.chain.choice]
        again = end * choice
        stayed = counts.diagonal(dim1=-2, dim2=-1)
        share = again / (again + 1 - end).clamp(min=1e-300)
        ended = counts - torch.diag_embed(stayed * (1 - share))
        return {
            self.chain.termination: torch.stack([ended.sum(-1), stayed * (1 - share)], -1),
            self.chain.choice: ended.sum(-2),
        }

    def on(self, data: Tensor) -> OptionSteps:
        """Other packed sequences, (B, T, 2)."""
        return replace(self, plan=plan_of(data, self.chain.num_states, self.chain.num_actions))


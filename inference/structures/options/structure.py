"""Models of hidden options: expected counts by differentiation, tabular M-step, starts and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from inference.base.relabelling import Labels
from inference.base.structure import Recommendation, Structure
from inference.programs.program import Params, Program
from inference.structures.options.forward_backward import parts_of, steps_of
from inference.structures.options.paths import smooth, viterbi
from ppl_models.sequences.chain_plan import ChainPlan, plan_of
from ppl_models.sequences.option_chain import ChainDescription, draw_paths, with_high

if TYPE_CHECKING:
    from inference.base.component_noise import ComponentNoise
    from inference.base.steps import Steps
    from inference.engines.em import EM
    from inference.fitting.fit import Problem

__all__ = ["OptionSteps", "Options", "random_policies"]

MAX_ELEMENTS = 2**22  # entries of the products held at once; more restarts are taken in turn
NUM_STARTS = 4  # the recommended number: one from moments, three at random
NUM_CANDIDATES, SHORT_RUN = 3, 30  # random starts tried for each one kept, and the iterations they are judged by
START_NOISE = 0.01  # share of the uniform law in a start: EM never leaves an exact zero


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
class OptionSteps:
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

    def relax(self) -> None:
        return None


def random_policies(chain: ChainDescription, plan: ChainPlan, num_restarts: int, seed: int) -> Params:
    """Every row of both policies uniform on the simplex; initial options equally likely; environment as counted."""
    generator = torch.Generator().manual_seed(seed)

    def rows(*shape: int) -> Tensor:
        weight = -torch.rand((num_restarts, *shape), generator=generator, dtype=torch.float64).clamp(min=1e-12).log()
        return (weight / weight.sum(-1, keepdim=True)).to(plan.begin.device)

    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    return with_counted_parts(chain, plan, {chain.low: rows(s, o, a), chain.high: rows(s, o, o)})


def _alike(chain: ChainDescription, plan: ChainPlan, num_restarts: int) -> Params:
    """All probabilities of both policies equal."""
    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    shapes = {chain.low: (s, o, a), chain.high: (s, o, o)}
    device = plan.begin.device
    return with_counted_parts(
        chain, plan, {n: torch.full((num_restarts, *v), 1 / v[-1], dtype=torch.float64, device=device) for n, v in shapes.items()}
    )


def with_counted_parts(chain: ChainDescription, plan: ChainPlan, policies: Params) -> Params:
    """Policies (R, ...) and what is read off the data: the first states, options equally likely, and the environment."""
    s, o = chain.num_states, chain.num_options
    num_restarts = len(policies[chain.low])
    first = torch.bincount(plan.begin, minlength=s).to(torch.float64)
    first = (1 - START_NOISE) * first / first.sum() + START_NOISE / s
    moves = plan.move_counts(s, chain.num_actions).to(torch.float64) + START_NOISE
    initial = (first / o)[:, None].expand(s, o)
    environment = moves / moves.sum(-1, keepdim=True)
    upper = {chain.high: policies[chain.high]}
    if chain.termination is not None and chain.choice is not None:
        choice = policies[chain.high].mean(-2)  # (R, S, O)
        left = 1 - policies[chain.high].diagonal(dim1=-2, dim2=-1)
        upper = {
            chain.choice: choice,
            chain.termination: (left / (1 - choice).clamp(min=1e-6)).clamp(START_NOISE, 1 - START_NOISE),
        }
    return {
        chain.initial: initial.expand(num_restarts, s, o).contiguous(),
        chain.low: policies[chain.low],
        **upper,
        chain.environment: environment.expand(num_restarts, *environment.shape).contiguous(),
    }


class Options(Structure):
    """A model that offers ``chain()``."""

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Options | None:
        return cls(model) if hasattr(model, "chain") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Random policies; or "spectral": the first start from moments (:mod:`inference.structures.options.moments`), the others at random.

        Beside a start from moments, three times as many random ones as asked for run for 30 iterations, and the best go
        on from there: a random start may sit on a plateau for thousands of iterations, and shows it early. Sequences of one
        step say nothing of the options: all are alike then, where the prior is largest among the equally likely.
        """
        chain, plan = self.model.chain(), self._plan(problem)
        if int(plan.lengths.max()) == 1:
            return _alike(chain, plan, num_restarts)
        if init != "spectral":
            return random_policies(chain, plan, num_restarts, problem.seed)
        from inference.structures.options.moments import moment_start

        policies = moment_start(problem.data, chain.num_states, chain.num_actions, chain.num_options)
        num_random = num_restarts - (policies is not None)
        parts = [] if num_random == 0 else [self._short_runs(plan, num_random, problem.seed)]
        if policies is not None:
            low, high = (policy[None].to(problem.data.device) for policy in policies)
            parts.insert(0, with_counted_parts(chain, plan, {chain.low: low, chain.high: high}))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _short_runs(self, plan: ChainPlan, num_kept: int, seed: int) -> Params:
        """The best of several random starts after a few iterations of EM, best first."""
        chain = self.model.chain()
        steps = OptionSteps(chain, plan)
        params = random_policies(chain, plan, NUM_CANDIDATES * num_kept, seed)
        for _ in range(SHORT_RUN):
            params = steps.m_step(steps.e_step(params)[0], params)
        _, log_likelihood, log_prior = steps.e_step(params)
        kept = (log_likelihood + log_prior).topk(num_kept).indices
        return {name: value[kept] for name, value in params.items()}

    def _plan(self, problem: Problem) -> ChainPlan:
        chain = self.model.chain()
        return plan_of(problem.data, chain.num_states, chain.num_actions)

    def steps(self, problem: Problem, method: EM) -> Steps | None:
        return OptionSteps(self.model.chain(), self._plan(problem))

    def canonical(self, params: Params) -> Params:
        """Options in falling order of their probability of the first action (then the second, ...), averaged over states."""
        chain = self.model.chain()
        mean = params[chain.low].mean(0)  # (O, A)
        order = sorted(range(chain.num_options), key=lambda o: [-round(p, 9) for p in mean[o].tolist()])
        return permute_options(chain, params, torch.tensor(order, device=mean.device))

    def num_free(self, params: Params) -> int:
        """Every row of probabilities has one entry less; ``initial`` is one row. Endings of two options say no more than ``high``."""
        c = self.model.chain()
        s, a, o = c.num_states, c.num_actions, c.num_options
        upper = s * (o * (o - 1) if c.termination is None else min(o * (o - 1), 2 * o - 1))
        return s * o * (a - 1) + upper + s * o - 1 + a * s * (s - 1)

    def num_observations(self, problem: Problem) -> int:
        """Steps."""
        return int(self._plan(problem).lengths.sum())

    def component_noise(self, params: Params, data: Tensor, generator: Generator, num_draws: int) -> ComponentNoise:
        from inference.structures.options.noise import option_noise

        chain = self.model.chain()
        along = steps_of(parts_of(chain, params), data)
        state, action = data[:, : along.shape[1]].unbind(-1)
        before = torch.nn.functional.pad((state * chain.num_actions + action)[:, :-1], (1, 0))
        context = before * chain.num_states + state
        context[:, 0], context[:, 1:] = -1, context[:, 1:].masked_fill(action[:, :-1] < 0, -1)
        return option_noise(along, action.cpu().numpy(), context.cpu().numpy(), generator, num_draws)

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Sequences as long as those of the data, with actions missing where they are."""
        packed = self.model.check_data(data, for_fit=False)[0]
        parts = parts_of(self.model.chain(), params)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            flat = [value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)]
            state, _, action = draw_paths(flat, len(packed), packed.shape[1])
        return {"trajectories": torch.where(packed < 0, packed, torch.stack([state, action], -1))}

    def latent_means(self, program: Program, params: Params) -> Params:
        """P(option at every step | the whole sequence), (B, T, O); zero after the end."""
        chain = self.model.chain()
        return {"options": smooth(steps_of(parts_of(chain, params), program.args[0])).option}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """The most probable path of options, (B, T); -1 after the end."""
        chain = self.model.chain()
        return {"options": viterbi(steps_of(parts_of(chain, params), program.args[0])).option}

    def labels(self) -> tuple[Labels, ...]:
        chain: ChainDescription = self.model.chain()

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            high = params[chain.high][:, :, order][..., order]
            return params | {
                chain.initial: params[chain.initial][:, :, order],
                chain.low: params[chain.low][:, :, order],
                chain.high: high,
            }

        return (Labels("options", lambda params: params[chain.low].transpose(1, 2).flatten(2), rename),)

    def recommended(self, problem: Problem) -> Recommendation:
        """EM from a start by moments and three at random: a start by moments alone says little below 10,000 steps."""
        from inference.engines.em import EM

        return Recommendation(EM(), num_restarts=NUM_STARTS)


def permute_options(chain: ChainDescription, params: Params, order: Tensor) -> Params:
    """The same law with option ``order[i]`` named i."""
    by_option = (chain.initial, chain.low, chain.high, chain.termination, chain.choice)
    out = {name: value[:, order] if name in by_option else value for name, value in params.items()}
    return out | ({chain.high: out[chain.high][:, :, order]} if chain.high in out else {})

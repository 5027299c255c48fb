r"""Hidden options along continuous states: EM, logistic regressions, starts, structure.

For problem (r, g) the objective is

.. math::

    \sum_n \sum_c y_{ngc} \log \mathrm{softmax}_c(0, W_1 x_n, \dots) - \lVert W \rVert^2 / (2
    \sigma^2)

with targets y not negative and not summing to one: expected counts. It is concave, so halving a
Newton step that does not gain leads uphill in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from inference.base.align import Alignment
from inference.base.component_noise import NoiseDraws
from inference.base.steps import EStep, Steps, maximise_free
from inference.base.structure import (
    Capability,
    LabelledLatent,
    Problem,
    Recommendation,
    Structure,
    component_noise,
    labelled_latents,
    means_given_labels,
)
from inference.engines.em import EM
from inference.programs.data import checked
from inference.programs.global_state import isolated
from inference.programs.program import Params, Program
from inference.structures.options.align import align_policies, permute_policy_options
from inference.structures.options.em_steps import MAX_ELEMENTS, mode
from inference.structures.options.forward_backward import smooth, steps_along, viterbi
from inference.structures.options.noise import option_noise
from inference.structures.options.structure import NUM_CANDIDATES, NUM_STARTS, SEARCH
from ppl_models.descriptions.options import PolicyDescription
from ppl_models.descriptions.units import column_units
from ppl_models.parts.policies import Network
from ppl_models.sequences.policy_chain import PolicyPlan, draw_along, policy_plan_of, switch_order

CHUNK = 2**22  # entries of the largest temporary
NUM_HALVINGS = 12


def _log_softmax(weights: Tensor, design: Tensor) -> Tensor:
    """Log-softmax of scores: (R, G, C - 1, P), (R or 1, n, P) -> (R, n, G, C)."""
    r, g, c, p = weights.shape
    flat = design @ weights.reshape(r, g * c, p).mT
    return torch.nn.functional.pad(flat.reshape(r, -1, g, c), (1, 0)).log_softmax(-1)


def _chunks(weights: Tensor, design: Tensor) -> list[slice]:
    r, g, c, p = weights.shape
    rows = max(1, CHUNK // (r * g * (c + 1) * max(p, c + 1)))
    return [slice(start, start + rows) for start in range(0, design.shape[1], rows)]


def _value(weights: Tensor, design: Tensor, targets: Tensor, variance: float) -> Tensor:
    """Objective of each regression, (R, G)."""
    total = -weights.square().sum((-2, -1)) / (2 * variance)
    for rows in _chunks(weights, design):
        total = total + (targets[:, rows] * _log_softmax(weights, design[:, rows])).sum((1, 3))
    return total


def newton_step(weights: Tensor, design: Tensor, targets: Tensor, variance: float) -> Tensor:
    """Newton step of a logistic regression whose objective does not fall.

    Args:
        weights: (R, G, C - 1, P); class 0 is the reference.
        design: (R or 1, n, P).
        targets: (R, n, G, C).
        variance: of the Normal prior of the weights.
    """
    r, g, c, p = weights.shape
    value = -weights.square().sum((-2, -1)) / (2 * variance)
    gradient = -weights / variance
    identity = torch.eye(c * p, dtype=weights.dtype, device=weights.device) / variance
    curvature = identity.expand(r, g, c * p, c * p).clone()
    for rows in _chunks(weights, design):
        x, y = design[:, rows], targets[:, rows]
        log_chance = _log_softmax(weights, x)
        value = value + (y * log_chance).sum((1, 3))
        chance = log_chance[..., 1:].exp()  # (R, n, G, C - 1)
        total = y.sum(-1, keepdim=True)
        residual = y[..., 1:] - total * chance
        gradient = gradient + (residual.flatten(2).mT @ x).reshape(r, g, c, p)
        block = curvature.view(r, g, c, p, c, p)
        for i in range(c):
            for j in range(i, c):
                # (R, n, G)
                weight = total[..., 0] * chance[..., i] * (float(i == j) - chance[..., j])
                # (R, G, P, P)
                part = torch.stack([x.mT @ (weight[:, :, k, None] * x) for k in range(g)], 1)
                block[:, :, i, :, j, :] += part
                if i != j:
                    block[:, :, j, :, i, :] += part
    factor = torch.linalg.cholesky(curvature)
    step = torch.cholesky_solve(gradient.reshape(r, g, c * p, 1), factor).reshape(r, g, c, p)
    size = torch.ones_like(value)
    for _ in range(NUM_HALVINGS):
        new = weights + size[..., None, None] * step
        worse = ~(_value(new, design, targets, variance) >= value)
        if not worse.any():
            return new
        size = torch.where(worse, size / 2, size)
    return torch.where(worse[..., None, None], weights, new)


SHORT_RUN = 15  # iterations by which random starts are judged
NUM_SPLIT = 3  # columns of the state, cut at their medians, that tell contexts apart
STAY = 2.0  # log-odds of keeping an option in a random start
NUM_GRADIENT_STEPS = 40  # of one M-step where the features have parameters


@dataclass(frozen=True)
class PairPosteriors:
    """Posteriors of pairs of options; logistic regressions have no smaller statistic.

    Args:
        pairs: P(option before, option), P(first option) in row 0 where a sequence begins, one step
            after another, (R, N, O, O).
    """

    pairs: Tensor = field(metadata={"join": 1})


@dataclass(frozen=True, eq=False)
class PolicySteps(Steps[PairPosteriors]):
    """EM steps of policies that are functions of the state.

    The E-step is one backward pass: a step's matrix times the gradient with respect to it is the
    posterior of the pair of options about it. Given those, each option's low-level policy is a
    multinomial logistic regression of actions on features, weighted by P(option), and each row of
    the high-level policy one of next options on features: Newton steps where features are given,
    L-BFGS on both together where they have parameters of their own.

    Args:
        about: the model's description of itself.
        plan: what of the data never changes.
        program: the program on one sequence, for its prior.
        num_inner: Newton steps, or forties of gradient steps, of one M-step.
    """

    about: PolicyDescription
    plan: PolicyPlan
    program: Program
    num_inner: int = 1

    def e_step(self, params: Params) -> EStep[PairPosteriors]:
        """Posteriors of pairs by one backward pass."""
        each = self.plan.tree.num_held(self.about.num_options) * self.about.num_options**2
        step = max(1, MAX_ELEMENTS // each)
        pairs, values = [], []
        for begin in range(0, len(params["initial"]), step):
            with torch.no_grad():
                log_leaves = self.plan.log_leaves(
                    {n: v[begin : begin + step] for n, v in params.items()}, self.about.policy
                )
            log_leaves.requires_grad_()
            with torch.enable_grad():
                value = self.plan.log_sum(log_leaves).sum(-1)
                pairs.append(torch.autograd.grad(value.sum(), log_leaves)[0])
            values.append(value.detach())
        return EStep(
            PairPosteriors(torch.cat(pairs)),
            torch.cat(values),
            self.program.log_prior(params).detach(),
        )

    def m_step(self, statistics: PairPosteriors, params: Params) -> Params:
        """Maximise: first options by counts, policies by Newton or gradient steps."""
        concentration = torch.full_like(params["initial"][0], self.about.concentration)
        new = params | {
            "initial": mode(statistics.pairs[:, self.plan.first, 0].sum(1), concentration)
        }
        new = self.about.standardised(new)
        if self.about.policy.sites(self.about.num_features):
            return self.about.plain(new | self._gradient_steps(statistics, new))
        for _ in range(self.num_inner):
            new = new | self._newton(statistics.pairs, new)
        return self.about.plain(new)

    @cached_property
    def _standard_plan(self) -> PolicyPlan:
        """Plan of the states in their units."""
        return replace(self.plan, states=self.about.standard_states(self.plan.states))

    def on(self, data: Tensor, weights: Tensor | None = None) -> PolicySteps:
        """Steps on other packed sequences, (B, T, D + 1), whose statistics are joined."""
        self.refuse_weights(weights)
        return replace(self, plan=policy_plan_of(data))

    def _newton(self, pairs: Tensor, params: Params) -> Params:
        features = self.about.policy.features(self._standard_plan.states, params)
        design = torch.nn.functional.pad(features, (0, 1), value=1.0)
        variance = self.about.prior_scale**2
        seen, later = self.plan.seen, ~self.plan.first
        action = torch.nn.functional.one_hot(self.plan.actions[seen], self.about.num_actions).to(
            pairs
        )
        option = pairs[:, seen].sum(2)  # (R, n, O)
        targets = {"low": (design[:, seen], option[..., None] * action[:, None, :])}
        if self.about.num_options > 1:
            order = switch_order(self.about.num_options).to(pairs.device)
            switch = pairs[:, later]
            targets["high"] = (design[:, later], switch.gather(-1, order.expand(switch.shape)))
        out = {}
        for name, (x, y) in targets.items():
            weights = torch.cat(
                [params[f"{name}_weights"], params[f"{name}_intercepts"][..., None]], -1
            )
            weights = newton_step(weights, x, y, variance)
            out[f"{name}_weights"], out[f"{name}_intercepts"] = weights[..., :-1], weights[..., -1]
        return out

    def _gradient_steps(self, statistics: PairPosteriors, params: Params) -> Params:
        """Maximise all weights of standard states, hidden units in scaled coordinates."""
        initial = {"initial": params["initial"]}
        free = {name: value for name, value in params.items() if name != "initial"}
        factor = self._factor_of_inputs() if isinstance(self.about.policy, Network) else None
        found = maximise_free(
            self.program,
            lambda values: self.expected(
                statistics, self.about.plain(initial | _units_from(values, factor))
            ),
            free if factor is None else _units_to(free, factor),
            NUM_GRADIENT_STEPS * self.num_inner,
        )
        return _units_from(found, factor)

    def _factor_of_inputs(self) -> Tensor | None:
        r"""Cholesky factor L of the inputs' curvature, (D + 1, D + 1).

        Of :math:`\tfrac14 X^\top X + I / s^2` with the states and a column of ones in X: a state
        whose columns lie far from zero ties the weights of a hidden unit to its intercept, and a
        search in them would creep.

        None where no such factor is a number.
        """
        x = torch.nn.functional.pad(self._standard_plan.states, (0, 1), value=1.0)
        scale = self.about.policy.sites(self.about.num_features)["hidden_weights"][1]
        factor, failed = torch.linalg.cholesky_ex(
            x.mT @ x / 4 + torch.eye(x.shape[1]).to(x) / scale**2
        )
        return factor if int(failed) == 0 and bool(factor.isfinite().all()) else None

    def expected(self, statistics: PairPosteriors, params: Params) -> Tensor:
        """Expected log p(actions, options) and log-prior up to a constant, (R,)."""
        pairs, params = statistics.pairs, self.about.standardised(params)
        log_leaves = self._standard_plan.log_leaves(params, self.about.policy)
        # 0 * -inf is 0
        total = torch.where(pairs == 0, torch.zeros_like(pairs), pairs * log_leaves).sum((1, 2, 3))
        total = total + torch.special.xlogy(self.about.concentration - 1, params["initial"]).sum(-1)
        scales = {
            name: scale
            for name, (_, scale) in self.about.policy.sites(self.about.num_features).items()
        }
        for name, value in params.items():
            if name != "initial":
                total = total - 0.5 * (
                    value / scales.get(name, self.about.prior_scale)
                ).square().flatten(1).sum(1)
        return total


def _units_to(params: Params, factor: Tensor) -> Params:
    """Transform each hidden unit's (weights, intercept) by L'."""
    z = torch.cat([params["hidden_weights"], params["hidden_intercepts"][..., None]], -1) @ factor
    return params | {"hidden_weights": z[..., :-1], "hidden_intercepts": z[..., -1]}


def _units_from(params: Params, factor: Tensor | None) -> Params:
    """Invert :func:`_units_to`."""
    if factor is None:
        return params
    z = torch.cat([params["hidden_weights"], params["hidden_intercepts"][..., None]], -1)
    both = torch.linalg.solve_triangular(factor, z, upper=False, left=False)
    return params | {"hidden_weights": both[..., :-1], "hidden_intercepts": both[..., -1]}


def random_functions(
    about: PolicyDescription,
    shapes: dict[str, tuple[int, ...]],
    states: Tensor,
    num: int,
    seed: int,
) -> Params:
    """Random weights of unit size for standardised features, with options that last."""
    generator = torch.Generator().manual_seed(seed)
    centre, spread = states.mean(0), states.std(0, correction=0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    out = {}
    for name, shape in shapes.items():
        out[name] = torch.randn((num, *shape), generator=generator, dtype=torch.float64).to(
            states.device
        )
    out["initial"] = torch.full_like(out["initial"], 1.0 / about.num_options)
    scaled: tuple[str, ...] = ("low", "high")
    if about.policy.sites(about.num_features):
        scaled = ("hidden",)  # the features of a network are of order one
        out["high_intercepts"] = out.get("high_intercepts", out["initial"]) - STAY
    for name in scaled:
        if f"{name}_weights" in out:
            weights = out[f"{name}_weights"] / spread
            shift = STAY if name == "high" else 0.0
            out[f"{name}_weights"] = weights
            out[f"{name}_intercepts"] = out[f"{name}_intercepts"] - weights @ centre - shift
    return {name: out[name] for name in shapes}


class ContinuousOptionsStructure(Structure):
    """Structure of models that offer ``policy_chain()``."""

    row_columns = ("sequence", "time")
    capabilities = frozenset({Capability.LABELS})

    @cached_property
    def about(self) -> PolicyDescription:
        about: PolicyDescription = self.model.policy_chain()
        return about

    def bind(self, data: Any, weights: Tensor | None = None) -> Any:
        """Model with the units of the states, which its priors are said in."""
        if self.about.units is not None or not self.about.of_states:
            return self.model
        return replace(self.model, units=column_units(policy_plan_of(data).states))

    @classmethod
    def of(cls, model: Callable[..., Any]) -> ContinuousOptionsStructure | None:
        """Structure of a model that offers ``policy_chain()``, or None."""
        return cls(model) if hasattr(model, "policy_chain") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Random starts; "spectral": the best of three times as many after 30 iterations."""
        states = policy_plan_of(problem.data).states
        shapes = self.model.shapes()
        if init != "spectral":
            return random_functions(self.about, shapes, states, num_restarts, problem.seed)
        params = random_functions(
            self.about, shapes, states, NUM_CANDIDATES * num_restarts, problem.seed
        )
        steps = self._steps(problem, 1)
        for _ in range(SHORT_RUN):
            params = steps.m_step(steps.e_step(params)[0], params)
        _, log_likelihood, log_prior = steps.e_step(params)
        kept = (log_likelihood + log_prior).topk(num_restarts).indices
        return {name: value[kept] for name, value in params.items()}

    def _steps(self, problem: Problem, num_inner: int) -> PolicySteps:
        return PolicySteps(
            self.about,
            policy_plan_of(problem.data, (problem.labels or {}).get("options")),
            problem.program_of_one_row(),
            num_inner,
        )

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        return self._steps(problem, num_inner)

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment:
        """Rename options like a reference's."""
        return align_policies(params, reference, self.model.policy_chain())

    def canonical(self, params: Params) -> Params:
        """Order options by falling log-odds of action 1 (then 2, ...) at the mean state."""
        intercepts = self.about.standardised(params)["low_intercepts"]
        order = sorted(
            range(self.about.num_options),
            key=lambda o: [-round(v, 9) for v in intercepts[o].tolist()],
        )
        return permute_policy_options(params, torch.tensor(order, device=intercepts.device))

    def num_observations(self, problem: Problem) -> int:
        """Number of steps whose action is known: states are given, and say nothing alone."""
        return int(policy_plan_of(problem.data).seen.sum())

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Simulate actions along the states of the data, missing where they are."""
        packed = checked(self.model, data)[0]
        with isolated(seed), torch.no_grad():
            one = {name: value[None] for name, value in params.items()}
            actions = draw_along(one, packed[..., :-1], self.about.policy)[1].to(packed)
        actions = actions.masked_fill(packed[..., -1].isnan(), torch.nan)
        return {"trajectories": torch.cat([packed[..., :-1], actions[..., None]], -1)}

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Share of steps with each action, by sequence; states have no distribution."""
        action = values["trajectories"][..., -1]
        seen = (~action.isnan()).sum(1, keepdim=True).clamp(min=1)
        counts = torch.stack(
            [(action == value).sum(1) for value in range(self.about.num_actions)], 1
        )
        return {"share of steps with each action": counts / seen}

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters: all weights, ``initial`` less one."""
        return sum(value.numel() for value in params.values()) - 1

    def latent_means(self, program: Program, params: Params) -> Params:
        """P(option at every step | the whole sequence), (B, T, O); zero after the end."""
        return {"options": smooth(steps_along(self.about, params, program.args[0])).option}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """Most probable path of options, (B, T); -1 after the end."""
        return {"options": viterbi(steps_along(self.about, params, program.args[0])).option}

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend EM from random starts until they meet; one start for one option."""
        search = SEARCH if self.about.num_options > 1 else None
        return Recommendation(EM(), num_restarts=NUM_STARTS, search=search)


@labelled_latents.register(ContinuousOptionsStructure)
def _(structure: ContinuousOptionsStructure, problem: Problem) -> dict[str, LabelledLatent]:
    inside = ~problem.data[..., 0].isnan()
    shape, num_options = tuple(inside.shape), structure.about.num_options
    return {"options": LabelledLatent(shape, num_options, inside=inside)}


@means_given_labels.register(ContinuousOptionsStructure)
def _(structure: ContinuousOptionsStructure, problem: Problem, params: Params) -> Params:
    labels = (problem.labels or {}).get("options")
    return {"options": smooth(steps_along(structure.about, params, problem.data, labels)).option}


@component_noise.register(ContinuousOptionsStructure)
def _(
    structure: ContinuousOptionsStructure,
    params: Params,
    data: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    from inference.structures.options.forward_backward import steps_along

    along = steps_along(structure.about, params, data)
    data = data[:, : along.shape[1]]
    action = data[..., -1].nan_to_num(nan=-1.0).long()
    few = data[..., :-1][..., :NUM_SPLIT]
    cell = (
        (few > few.flatten(0, 1).nanmedian(0).values)
        * 2 ** torch.arange(few.shape[-1], device=data.device)
    ).sum(-1)
    before = torch.nn.functional.pad(action[:, :-1], (1, 0), value=-1)
    context = torch.where(before >= 0, before * 2 ** few.shape[-1] + cell, -1)
    return option_noise(along, action.cpu().numpy(), context.cpu().numpy(), generator, num_draws)

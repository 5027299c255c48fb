"""Random programs whose parameters depend on discrete latents, and their density by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.infer.reparam import LocScaleReparam, TransformReparam
from pyro.ops.indexing import Vindex
from support.brute_force import plain_trace
from torch import Tensor

F64 = torch.float64
Params = dict[str, Tensor]
ROWS, PARTS, ITEMS = 2, 2, 2
STRATEGIES = (
    {},
    {"enumerate": "parallel"},
    {"enumerate": "sequential"},
    {"enumerate": "parallel", "num_samples": 5},
)


@dataclass(frozen=True)
class Plan:
    """What a random program holds.

    Args:
        shared: number of values of each latent outside all plates; chained: whether the second
            depends on the first.
        own: number of parameters outside all plates; is_vector: whether they are vectors.
        components: entries of a plate of components, 0 for none; has_switch: whether each has a
            latent; under_shared: whether these, and the spread of the components, depend on the
            latents outside; is_nested: whether a plate of parts, with a latent each, stands inside.
        distribution: of a component: "normal", "log-normal", "reparametrised", "transformed".
        states: number of values of a latent of a row, 0 for none.
        joined: what depends on the first latent outside all plates: "", "data" or "state".
        has_items: whether a plate of items, with a latent each, stands inside that of the rows.
        factors: where factors stand.
        records: whether values are noted by ``pyro.deterministic`` and by a Delta.
        infer: strategies that the program names for its latents, in turn.
    """

    shared: tuple[int, ...]
    chained: bool
    own: int
    is_vector: bool
    components: int
    has_switch: bool
    under_shared: bool
    is_nested: bool
    distribution: str
    states: int
    joined: str
    has_items: bool
    factors: frozenset[str]
    records: bool
    infer: tuple[int, ...]

    @property
    def shares_latents(self) -> bool:
        """Whether data depend on latents above parameters.

        Of a component that is not centred they do so through the spread that multiplies it.
        """
        return (
            self.joined == "data"
            or bool(self.joined and self.states)
            or (self.under_shared and not self.is_centred)
        )

    @property
    def is_centred(self) -> bool:
        """Whether the spread of a component is that of a distribution, and no multiplier."""
        return self.distribution in ("normal", "log-normal")

    @property
    def num_configurations(self) -> int:
        """Of all latents together."""
        total = 1
        for values in self.shared:
            total *= values
        total *= 2 ** (self.components * self.has_switch + PARTS * self.components * self.is_nested)
        return total * max(1, self.states) ** ROWS * 2 ** (ROWS * ITEMS * self.has_items)

    @property
    def depends(self) -> bool:
        """Whether a parameter depends on a latent."""
        return (
            bool(self.shared and self.own)
            or self.is_nested
            or (self.is_centred and (self.has_switch or self.under_shared))
        )


def random_plan(seed: int, most: int) -> Plan:
    """A plan of at most so many configurations of latents, in which a parameter depends on one."""
    draw = random.Random(seed)

    def chance(p: float) -> bool:
        return draw.random() < p

    while True:
        shared = tuple(draw.choice((2, 3)) for _ in range(draw.choice((0, 1, 1, 2))))
        components = draw.choice((0, 2, 2, 3))
        places = [place for place in ("shared", "components", "rows") if chance(0.3)]
        plan = Plan(
            shared=shared,
            chained=chance(0.5),
            own=draw.choice((0, 1, 2)),
            is_vector=chance(0.3),
            components=components,
            has_switch=bool(components) and chance(0.7),
            under_shared=bool(components and shared) and chance(0.5),
            is_nested=components == 2 and chance(0.3),
            distribution=draw.choice(("normal", "log-normal", "reparametrised", "transformed")),
            states=draw.choice((0, 2, 3)),
            joined=draw.choice(("", "", "data", "state")) if shared else "",
            has_items=chance(0.25),
            factors=frozenset(places),
            records=chance(0.5),
            infer=tuple(draw.randrange(len(STRATEGIES)) for _ in range(8)),
        )
        if plan.depends and plan.num_configurations <= most:
            return plan


def program_of(plan: Plan, seed: int, named: bool = True) -> Callable[..., Any]:
    """The program of a plan, its constants drawn by a seed.

    Args:
        plan: its sites; seed: of constants.
        named: whether its latents name strategies of enumeration.
    """
    generator = torch.Generator().manual_seed(seed)

    def constants(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=F64)

    tables = [constants(3, values) for values in plan.shared]
    spreads = [constants(values).exp() for values in plan.shared]
    effect, levels = constants(3), constants(3)
    state_logits, switch_logits = constants(3, max(1, plan.states)), constants(3)

    def model(data: Tensor) -> None:
        infer = iter([STRATEGIES[k] for k in plan.infer] if named else [{}] * len(plan.infer))
        level = pyro.sample("level", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        weight = pyro.sample("weight", dist.Beta(torch.full((), 2.0, dtype=F64), 2.0))
        shared: list[Tensor] = []
        spread = torch.ones((), dtype=F64)
        for i, table in enumerate(tables):
            logits = Vindex(table)[shared[0], :] if plan.chained and i else table[0] * weight
            shared.append(
                pyro.sample(f"shared_{i}", dist.Categorical(logits=logits), infer=next(infer))
            )
            spread = spread * Vindex(spreads[i])[shared[i]]
        mean = level
        for i in range(plan.own):
            distribution = dist.Normal(0.3 * level, spread)
            if plan.is_vector:
                distribution = dist.Normal(
                    0.3 * level * torch.ones(2, dtype=F64), spread.unsqueeze(-1)
                ).to_event(1)
            own = pyro.sample(f"own_{i}", distribution)
            mean = mean + (own.sum(-1) if plan.is_vector else own)
        if plan.components:
            with pyro.plate("components", plan.components, dim=-1):
                width, switch = (
                    1.0 + (spread if plan.under_shared else 0.0),
                    torch.zeros((), dtype=F64),
                )
                if plan.has_switch:
                    logits = (
                        Vindex(switch_logits)[shared[0]]
                        if plan.under_shared
                        else switch_logits[0] + weight
                    )
                    switch = pyro.sample("switch", dist.Bernoulli(logits=logits), infer=next(infer))
                    width = width * _either(switch, 2.0, 0.1) if plan.is_centred else width
                component = pyro.sample(
                    "component",
                    _distribution_of_component(
                        plan.distribution, width * torch.ones((), dtype=F64)
                    ),
                )
                if plan.records:
                    pyro.deterministic("twice", 2 * component, event_dim=0)
                    component = pyro.sample("same", dist.Delta(component))
                if "components" in plan.factors:
                    pyro.factor("pull", -0.2 * component**2 + 0.4 * switch)
                if plan.is_nested:
                    with pyro.plate("parts", PARTS, dim=-2):
                        part_switch = pyro.sample(
                            "part_switch",
                            dist.Bernoulli(_either(switch, 0.3, 0.8)),
                            infer=next(infer),
                        )
                        part = pyro.sample(
                            "part", dist.Normal(component, _either(part_switch, 1.0, 0.2))
                        )
                    mean = mean + part.sum((-2, -1), keepdim=True)[..., 0, :]
            mean = mean + component.sum(-1, keepdim=True)
        if "shared" in plan.factors:
            pyro.factor(
                "bend",
                -0.3 * level**2
                + (0.5 * shared[-1] * weight if shared and not plan.shares_latents else 0.0),
            )
        with pyro.plate("rows", ROWS, dim=-1):
            if plan.joined == "data":
                mean = mean + Vindex(effect)[shared[0]]
            if plan.states:
                logits = (
                    Vindex(state_logits)[shared[0], :]
                    if plan.joined == "state"
                    else state_logits[0] * weight
                )
                state = pyro.sample("state", dist.Categorical(logits=logits), infer=next(infer))
                mean = mean + Vindex(levels)[state]
            if plan.records:
                pyro.deterministic("mean", mean, event_dim=0)
            if "rows" in plan.factors:
                pyro.factor("row_pull", -0.1 * mean**2)
            if plan.has_items:
                with pyro.plate("items", ITEMS, dim=-2):
                    skill = pyro.sample("skill", dist.Bernoulli(logits=mean), infer=next(infer))
                    pyro.sample("item", dist.Normal(skill + 0.1 * level, 1.0), obs=data[:, 1:].mT)
            pyro.sample("y", dist.Normal(mean, 1.0), obs=data[:, 0])

    config = (
        {"component": LocScaleReparam(0.0)}
        if plan.distribution == "reparametrised"
        else {"component": TransformReparam()}
        if plan.distribution == "transformed"
        else {}
    )
    return poutine.reparam(model, config)


def _distribution_of_component(name: str, width: Tensor) -> Any:
    if name == "log-normal":
        return dist.LogNormal(torch.zeros((), dtype=F64), width)
    if name == "transformed":
        return dist.TransformedDistribution(
            dist.Normal(torch.zeros_like(width), 1.0), dist.transforms.AffineTransform(0.5, width)
        )
    return dist.Normal(torch.zeros((), dtype=F64), width)


def _either(switch: Tensor, on: float, off: float) -> Tensor:
    return torch.where(switch > 0, torch.full((), on, dtype=F64), torch.full((), off, dtype=F64))


def data_of(seed: int) -> Tensor:
    """Rows of a random program, (N, 1 + items)."""
    return torch.randn(ROWS, 1 + ITEMS, generator=torch.Generator().manual_seed(seed), dtype=F64)


def params_of(model: Callable[..., Any], data: Tensor) -> Params:
    """Values of the parameters, drawn from the prior."""
    return {
        name: node["value"]
        for name, node in _densities(plain_trace(model, {}, data))
        if not node["is_observed"] and not node["fn"].support.is_discrete
    }


@dataclass(frozen=True)
class Visited:
    """Every configuration c of the latents.

    Args:
        log_joint: (C,), log p(x, c, params); log_prior: without what is observed in the rows.
        values: latent site -> (C, *shape), what it takes.
    """

    log_joint: Tensor
    log_prior: Tensor
    values: Params

    def marginal(self, site: str, support: Tensor) -> Tensor:
        """P(site = each value | x, params), (*shape, values)."""
        weights = self.log_joint.softmax(0)
        return torch.stack(
            [
                torch.einsum("c,c...->...", weights, (self.values[site] == value).to(F64))
                for value in support
            ],
            -1,
        )


def visited(model: Callable[..., Any], params: Params, data: Tensor) -> Visited:
    """One plain run of the program for each configuration, with all sites fixed."""
    nodes = dict(_densities(plain_trace(model, params, data)))
    latents = {
        name: node for name, node in nodes.items() if not node["is_observed"] and name not in params
    }
    entries = {name: node["fn"].batch_shape for name, node in latents.items()}
    supports = {
        name: node["fn"].enumerate_support(expand=False).ravel() for name, node in latents.items()
    }
    choices = [
        itertools.product(supports[name].tolist(), repeat=shape.numel())
        for name, shape in entries.items()
    ]
    joints, priors = [], []
    values: dict[str, list[Tensor]] = {name: [] for name in latents}
    for picked in itertools.product(*choices):
        fixed = {
            name: torch.tensor(own, dtype=supports[name].dtype).reshape(entries[name])
            for name, own in zip(latents, picked, strict=True)
        }
        joint = prior = torch.zeros((), dtype=F64)
        for _, node in _densities(plain_trace(model, params | fixed, data)):
            log_prob = scale_and_mask(
                node["fn"].log_prob(node["value"]), node["scale"], node["mask"]
            ).sum()
            is_of_rows = any(frame.name == "rows" for frame in node["cond_indep_stack"]) and (
                node["name"] in ("y", "item", "row_pull")
            )
            joint, prior = joint + log_prob, prior + (0.0 if is_of_rows else log_prob)
        joints.append(joint)
        priors.append(prior)
        for name, value in fixed.items():
            values[name].append(value)
    return Visited(
        torch.stack(joints),
        torch.stack(priors),
        {name: torch.stack(own) for name, own in values.items()},
    )


def _densities(trace: Any) -> Iterator[tuple[str, Any]]:
    for name, node in trace.nodes.items():
        if node["type"] == "sample" and type(node["fn"]).__name__ not in ("_Subsample", "Delta"):
            yield name, node

"""A second distribution of the deepest latents is one class: a table over all profiles, in a
program of a user, gets everything.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from inference import EM, SAEM, fit
from inference.alignment import align
from inference.base.gibbs import PLAIN, Scan
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from inference.identifiability import check_identifiability
from inference.programs import curvature
from inference.programs.program import Program
from inference.structures.layers.align import relabel
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.structure import LayeredStructure
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, DeepDiscreteEncoder, HigherOrder, Poisson
from ppl_models.datasets import mastery_test
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.distributions import BinaryVector, Flat, binary_configurations
from ppl_models.parts.item_response import ItemResponse, LinearPredictor

F64 = torch.float64
Params = dict[str, Tensor]
BOUND = 8.0


def codes(latents: Tensor) -> Tensor:
    """The place of 0/1 vectors (..., K) among all configurations."""
    size = latents.shape[-1]
    return (latents.long() * 2 ** torch.arange(size - 1, -1, -1)).sum(-1)


class Profiles(TorchDistribution):
    """Binary vectors of K bits, each configuration with a weight of its own; log_weights (...,
    2^K).
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(self, log_weights: Tensor, batch_shape: torch.Size | None = None) -> None:
        self.log_weights, self.num_bits = log_weights, int(math.log2(log_weights.shape[-1]))
        batch_shape = log_weights.shape[:-1] if batch_shape is None else batch_shape
        super().__init__(torch.Size(batch_shape), torch.Size([self.num_bits]), validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> Profiles:
        return Profiles(self.log_weights, torch.Size(batch_shape))

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        index = torch.distributions.Categorical(logits=self.log_weights).expand(shape).sample()
        return binary_configurations(self.num_bits)[index]

    def log_prob(self, value: Tensor) -> Tensor:
        place = torch.nn.functional.one_hot(codes(value), 2**self.num_bits).to(self.log_weights)
        density = (place * self.log_weights).sum(-1)
        return density.expand(torch.broadcast_shapes(density.shape, self.batch_shape))

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = binary_configurations(self.num_bits)
        values = values.reshape(values.shape[:1] + (1,) * len(self.batch_shape) + self.event_shape)
        return (
            values.expand(values.shape[:1] + self.batch_shape + self.event_shape)
            if expand
            else values
        )


@dataclass(frozen=True)
class ProfileTable:
    """A saturated root: weights (2^K,) ~ Dirichlet(concentration)."""

    weights: str
    latent: str
    num_latents: int
    concentration: float = 1.5
    renamable: bool = True
    flippable: bool = True
    profiles: Tensor | None = None

    @property
    def num_free(self) -> int:
        return 2**self.num_latents - 1

    @property
    def equation(self) -> str:
        return "Categorical(π) over all profiles"

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.weights: (2**self.num_latents,)}

    def distribution(self, params: Mapping[str, Tensor]) -> TorchDistribution:
        return Profiles(params[self.weights].log())

    def start(self, latents: Tensor) -> Params:
        counts = torch.bincount(codes(latents), minlength=2**self.num_latents).to(latents) + 1
        return {self.weights: (counts / counts.sum()).unsqueeze(0)}

    def uniform(self, like: Tensor) -> Params:
        return {self.weights: like.new_full((1, 2**self.num_latents), 0.5**self.num_latents)}

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        return params[self.weights] @ binary_configurations(self.num_latents)

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        place = torch.searchsorted(
            params[self.weights].cumsum(-1), uniform[:, 0].contiguous()
        )  # (R, N)
        return binary_configurations(self.num_latents)[place.clamp(max=2**self.num_latents - 1)].mT

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        off = codes(latents.mT) - latents[:, k].long() * 2 ** (self.num_latents - 1 - k)  # (R, N)
        log_weights = params[self.weights].log()
        return log_weights.gather(1, off + 2 ** (self.num_latents - 1 - k)) - log_weights.gather(
            1, off
        )

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        place = codes(configurations)
        return counts.new_zeros(len(counts), 2**self.num_latents).index_add(1, place, counts)

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        return (
            torch.nn.functional.one_hot(codes(latents.mT), 2**self.num_latents).to(latents).sum(1)
            * scale
        )

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        counts = statistic + self.concentration - 1
        return {self.weights: counts / counts.sum(-1, keepdim=True)}

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        new = binary_configurations(self.num_latents)
        old = new if flips is None else torch.where(flips, 1 - new, new)
        if permutation is not None:
            old = torch.empty_like(old).index_copy(1, permutation, old)
        return {self.weights: params[self.weights].index_select(-1, codes(old))}


@dataclass(frozen=True)
class Tower:
    """Layers of bits under a table of profiles, written by a user."""

    num_items: int
    latent_sizes: tuple[int, ...]
    response: Any = Bernoulli()
    renamable: bool = True

    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        sizes = (self.num_items, *self.latent_sizes)
        return tuple(
            GeneralizedLinearLayer(
                f"loadings_{d + 1}",
                f"intercepts_{d + 1}",
                f"latents_{d + 1}",
                "items" if d == 0 else f"latents_{d}",
                sizes[d],
                sizes[d + 1],
                self.response if d == 0 else Bernoulli(),
                None,
                None,
                None,
                BOUND,
            )  # fmt: skip
            for d in range(len(self.latent_sizes))
        )

    def root_layer(self) -> ProfileTable:
        depth = len(self.latent_sizes)
        free = {"renamable": self.renamable, "flippable": self.renamable}
        return ProfileTable("weights", f"latents_{depth}", self.latent_sizes[-1], **free)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        root, layers, low = self.root_layer(), self.layers(), torch.tensor(-BOUND, dtype=F64)
        weights = pyro.sample(
            root.weights,
            dist.Dirichlet(torch.full((2**root.num_latents,), root.concentration, dtype=F64)),
        )
        values = []
        for layer in layers:
            shape = [layer.num_children, layer.num_parents]
            loadings = pyro.sample(layer.loadings, Flat(low, -low).expand(shape).to_event(2))
            values.append(
                (
                    loadings,
                    pyro.sample(layer.intercepts, Flat(low, -low).expand(shape[:1]).to_event(1)),
                )
            )
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", batch):
            distribution = root.distribution({root.weights: weights})
            for d in reversed(range(len(layers))):
                latents = pyro.sample(
                    layers[d].parent, distribution, infer={"enumerate": "parallel"}
                )
                predictor = LinearPredictor(latents, *values[d])
                distribution = BinaryVector(predictor.tensor()) if d > 0 else distribution
            return pyro.sample("items", ItemResponse(self.response, predictor, None), obs=data)


def truth_of(model: Tower, seed: int = 0) -> Params:
    """Strong loadings, latents that go together."""
    generator = torch.Generator().manual_seed(seed)
    weights = binary_configurations(model.latent_sizes[-1]).mean(1).sub(0.5).abs().add(0.1)
    out = {"weights": weights / weights.sum()}
    for layer in model.layers():
        place = torch.arange(layer.num_children) % layer.num_parents
        noise = 0.3 * torch.randn(
            layer.num_children, layer.num_parents, generator=generator, dtype=F64
        )
        out[layer.loadings] = (
            2.0 if isinstance(layer.response, Bernoulli) else 1.0
        ) * torch.nn.functional.one_hot(place, layer.num_parents) + noise
        out[layer.intercepts] = -out[layer.loadings].sum(-1) / 2
    return out


def data_of(model: Tower, num_rows: int, missing: float = 0.0) -> Tensor:
    data = Program(model, None, num_rows).simulate(truth_of(model), seed=1)["items"]
    gone = torch.rand(data.shape, generator=torch.Generator().manual_seed(3)) < missing
    return data.masked_fill(gone, math.nan)


def two_starts(model: Tower) -> Params:
    starts = [truth_of(model, seed) for seed in (4, 5)]
    return {name: torch.stack([start[name] for start in starts]) for name in starts[0]}


TOWERS = (Tower(6, (2,)), Tower(7, (3,), Poisson()), Tower(7, (3, 2)))


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("model", TOWERS, ids=repr)
def test_accelerated_em_is_the_generic_em(
    model: Tower, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curvature, "SHARE", 1e-14)  # M-steps to their end
    problem = problem_of(model, data_of(model, 60, missing), 0, start_given=True)
    assert isinstance(problem.structure, LayeredStructure)
    method, start = EM(num_inner=20), two_starts(model)
    fast, slow = (
        replace(method, accelerate=accelerate).steps(problem) for accelerate in (True, False)
    )
    ours = theirs = start
    for _ in range(3):
        (statistics, *mine), (posteriors, *generic) = fast.e_step(ours), slow.e_step(theirs)
        torch.testing.assert_close(mine, generic, rtol=1e-8, atol=1e-8)
        assert torch.allclose(statistics.root.sum(-1), torch.tensor(60.0, dtype=F64))
        ours, theirs = fast.m_step(statistics, ours), slow.m_step(posteriors, theirs)
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-4)
        theirs = ours  # so that the next step starts from one place
    outcome = replace(method, max_iterations=3, tolerance=1e-300, parameter_tolerance=1e-300)
    with pytest.warns(UserWarning, match="did not converge"):
        state = outcome.run(problem, start, NoProgress(), None)
    assert bool((state.history.diff(dim=0) > -1e-9).all())


@pytest.mark.parametrize("model", TOWERS, ids=repr)
def test_other_names_are_the_same_distribution(model: Tower) -> None:
    program, truth = Program(model, data_of(model, 30)), truth_of(model)
    expected = program.log_marginal_rows(truth)
    for layer in model.layers():
        size = layer.num_parents
        for order, flips in itertools.product(
            itertools.permutations(range(size)), binary_configurations(size).bool()
        ):
            how = {layer.parent: torch.tensor(order)}, {layer.parent: flips}
            renamed = relabel(truth, model.layers(), model.root_layer(), *how)
            torch.testing.assert_close(
                program.log_marginal_rows(renamed), expected, rtol=1e-12, atol=1e-12
            )
            if layer.parent == model.root_layer().latent:
                chances = model.root_layer().marginals(truth)[list(order)]
                assert torch.allclose(
                    model.root_layer().marginals(renamed), torch.where(flips, 1 - chances, chances)
                )
    structure = structure_of(model)
    found = structure.align(renamed, truth)
    assert found is not None
    for name, value in truth.items():
        torch.testing.assert_close(found.params[name], value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        program.log_marginal_rows(structure.canonical(renamed)), expected, rtol=1e-12, atol=1e-12
    )


def test_a_root_may_keep_its_names() -> None:
    model = Tower(6, (2,), renamable=False)
    truth = truth_of(model)
    layer = model.layers()[0]
    mirrored = {**truth, "loadings_1": -truth["loadings_1"].flip(-1)}
    structure = structure_of(model)
    found = structure.align(mirrored, truth)
    assert found is not None
    assert found.permutations[layer.parent].tolist() == [0, 1]
    assert not found.flips[layer.parent].any()
    assert torch.equal(structure.canonical(mirrored)["loadings_1"], mirrored["loadings_1"])
    assert structure.labels() == ()
    assert len(structure_of(replace(model, renamable=True)).labels()) == 1


@pytest.mark.parametrize("scan", [PLAIN, Scan(synchronous=True)], ids=repr)
@pytest.mark.parametrize("model", TOWERS, ids=repr)
def test_chances_of_a_sweep_are_the_exact_conditionals(model: Tower, scan: Scan) -> None:
    data, params = data_of(model, 12), two_starts(model)
    gibbs, program = LayeredGibbs.build(model, data), Program(model, data)
    generator = torch.Generator().manual_seed(0)
    before = gibbs.begin(params, generator)
    after, chances = gibbs.sweep(params, before, generator, scan)
    state = {name: value.clone() for name, value in before.items()}
    for layer in model.layers():
        for k in range(layer.num_parents):
            seen = before if scan.synchronous else state
            values = []
            for bit in (0.0, 1.0):
                own = {name: value.clone() for name, value in seen.items()}
                own[layer.parent][:, k] = bit
                values.append(
                    program.log_joint_rows(params, {name: value.mT for name, value in own.items()})
                )
            expected = torch.sigmoid(values[1] - values[0])
            torch.testing.assert_close(
                chances[layer.parent][:, k], expected, rtol=0.0, atol=3e-6
            )  # single precision
            state[layer.parent][:, k] = after[layer.parent][:, k]


def test_first_draws_follow_the_table() -> None:
    model = Tower(4, (3,))
    params = two_starts(model)
    latents = LayeredGibbs.build(model, data_of(model, 4000)).begin(
        params, torch.Generator().manual_seed(0)
    )["latents_1"]
    shares = torch.nn.functional.one_hot(codes(latents.mT), 8).to(F64).mean(1)
    assert bool(((shares - params["weights"]).abs() < 5 * (0.25 / 4000) ** 0.5).all())


def test_a_program_with_another_root_is_fitted_like_any() -> None:
    model = Tower(8, (2,), Poisson())
    data, truth = data_of(model, 400), truth_of(model)
    best = [fit(model, data, EM(), init=init, num_restarts=2) for init in ("spectral", "random")]
    assert abs(best[0].log_likelihood - best[1].log_likelihood) < 1e-3
    aligned = align(best[0], truth)
    assert float((aligned.params["weights"] - truth["weights"]).abs().max()) < 0.15
    assert best[0].num_parameters == 8 * 3 + 3
    sampled = fit(model, data, SAEM(max_iterations=3000, tolerance=1e-3), seed=1)
    exact = Program(model, data).log_marginal(sampled.params)  # Monte Carlo: draws, not sums
    assert abs(float(exact) - best[0].log_likelihood) < 1.0
    assert (
        check_identifiability(best[0]).verdict
        == check_identifiability(best[0].params, layers=model.layers()).verdict
    )


def test_both_roots_are_roots() -> None:
    roots: list[Root] = [
        ProfileTable("weights", "latents_1", 2),
        DeepDiscreteEncoder(6, (2,)).root_layer(),
    ]
    latents = binary_configurations(2)[torch.tensor([0, 1, 1, 3])]
    for root in roots:
        start = root.start(latents)
        assert {name: tuple(value.shape[1:]) for name, value in start.items()} == root.sites()
        assert torch.allclose(root.marginals(root.uniform(latents)), torch.tensor(0.5, dtype=F64))
        exact = root.expected(latents, torch.ones(1, 4, dtype=F64), start)
        drawn = root.drawn(latents.mT[None], latents.mT[None], 1.0, start)
        for name, value in root.maximise(exact, start).items():
            torch.testing.assert_close(value, root.maximise(drawn, start)[name])


def test_saem_of_right_wrong_items_under_a_trait() -> None:
    """A sweep holds the bits of such items in single precision; the distribution of the attributes
    is asked in the parameters' own.
    """
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(400, seed=3)
    model = replace(design.model, root=HigherOrder())
    exact = fit(model, items, EM(), num_restarts=1)
    sampled = fit(model, items, SAEM(), num_restarts=1, seed=1)
    assert sampled.log_likelihood == pytest.approx(exact.log_likelihood, abs=1.5)
    assert sampled.params["trait_slopes"].dtype == torch.float64

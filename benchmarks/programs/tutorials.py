"""Programs in the shape of Pyro's tutorials and of the tests of its samplers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro import poutine
from pyro.distributions.util import gather
from pyro.infer import config_enumerate
from pyro.ops.indexing import Vindex
from torch import Tensor

from programs.case import Case, seeded

# ---------------------------------------------------------------- enumeration


@config_enumerate
def mixture_of_tutorial(data, num_components=3):
    p = pyro.sample("p", dist.Dirichlet(0.5 * torch.ones(num_components)))
    scale = pyro.sample("scale", dist.LogNormal(0, num_components))
    with pyro.plate("components", num_components):
        loc = pyro.sample("loc", dist.Normal(0, 10))
    with pyro.plate("data", len(data)):
        x = pyro.sample("x", dist.Categorical(p))
        pyro.sample("obs", dist.Normal(loc[x], scale), obs=data)


def _moves_and_tones(data_dim, hidden_dim):
    with pyro.plate("hidden_state", hidden_dim):
        transition = pyro.sample("transition", dist.Dirichlet(0.5 * torch.ones(hidden_dim)))
        emission = pyro.sample("emission", dist.Dirichlet(0.5 * torch.ones(data_dim)))
    return transition, emission


def chain_unmarked(data, data_dim, hidden_dim=10):
    transition, emission = _moves_and_tones(data_dim, hidden_dim)
    x = 0
    for t, y in enumerate(data):
        x = pyro.sample(f"x_{t}", dist.Categorical(transition[x]), infer={"enumerate": "parallel"})
        pyro.sample(f"y_{t}", dist.Categorical(emission[x]), obs=y)


def chain_marked(data, data_dim, hidden_dim=10):
    transition, emission = _moves_and_tones(data_dim, hidden_dim)
    x = 0
    for t, y in pyro.markov(enumerate(data)):
        x = pyro.sample(f"x_{t}", dist.Categorical(transition[x]), infer={"enumerate": "parallel"})
        pyro.sample(f"y_{t}", dist.Categorical(emission[x]), obs=y)


@config_enumerate
def feature_plates():
    data_plate = pyro.plate("data_plate", 6, dim=-1)
    feature_plate = pyro.plate("feature_plate", 5, dim=-2)
    component_plate = pyro.plate("component_plate", 4, dim=-1)
    with feature_plate, component_plate:
        p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    with data_plate:
        c = pyro.sample("c", dist.Categorical(torch.ones(4)))
        with feature_plate as vdx:
            pc = Vindex(p)[vdx[..., None], c, :]
            pyro.sample("x", dist.Categorical(pc), obs=torch.zeros(5, 6, dtype=torch.long))


# ---------------------------------------------------------------- mixtures


@config_enumerate
def two_normals(data):
    weights = pyro.sample("weights", dist.Dirichlet(0.5 * torch.ones(2)))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with pyro.plate("components", 2):
        locs = pyro.sample("locs", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        which = pyro.sample("assignment", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locs[which], scale), obs=data)


ALPHA, STICKS = 1.1, 4


def broken(beta):
    rest = (1 - beta).cumprod(-1)
    return F.pad(beta, (0, 1), value=1) * F.pad(rest, (1, 0), value=1)


def sticks_of_points(data):
    with pyro.plate("beta_plate", STICKS - 1):
        beta = pyro.sample("beta", dist.Beta(1, ALPHA))
    with pyro.plate("mu_plate", STICKS):
        mu = pyro.sample("mu", dist.MultivariateNormal(torch.zeros(2), 5 * torch.eye(2)))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(broken(beta)))
        pyro.sample("obs", dist.MultivariateNormal(mu[z], torch.eye(2)), obs=data)


def sticks_of_counts(data):
    with pyro.plate("beta_plate", STICKS - 1):
        beta = pyro.sample("beta", dist.Beta(1, ALPHA))
    with pyro.plate("lambda_plate", STICKS):
        rate = pyro.sample("lambda", dist.Gamma(3, 0.05))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(broken(beta)))
        pyro.sample("obs", dist.Poisson(rate[z]), obs=data)


# ---------------------------------------------------------------- objects in motion


def tracking(args, observations):
    with pyro.plate("objects", args.max_num_objects):
        share = args.expected_num_objects / args.max_num_objects
        exists = pyro.sample("exists", dist.Bernoulli(share))
        with poutine.mask(mask=exists.bool()):
            states = pyro.sample("states", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
            time = torch.arange(float(args.num_frames)) / 4
            positions = torch.stack([time.cos(), time.sin()], -1).mm(states.t())
    with pyro.plate("detections", observations.shape[1]), pyro.plate("time", args.num_frames):
        is_observed = observations[..., -1] > 0
        with poutine.mask(mask=is_observed):
            assign = pyro.sample("assign", dist.Categorical(torch.ones(args.max_num_objects + 1)))
        is_spurious = assign == args.max_num_objects
        is_real = is_observed & ~is_spurious
        number = is_observed.float().sum(-1, True)
        pyro.sample(
            "is_real",
            dist.Bernoulli(args.expected_num_objects / number),
            obs=is_real.float(),
        )
        pyro.sample(
            "is_spurious",
            dist.Bernoulli(args.expected_num_spurious / number),
            obs=is_spurious.float(),
        )
        seen = observations[..., 0]
        with poutine.mask(mask=is_real):
            padded = torch.cat([positions, positions.new_zeros(args.num_frames, 1)], -1)
            own = gather(padded, assign, -1)
            pyro.sample("real_observations", dist.Normal(own, args.emission_noise_scale), obs=seen)
        with poutine.mask(mask=is_spurious):
            pyro.sample("spurious_observations", dist.Normal(0.0, 1.0), obs=seen)


def frames() -> tuple[Any, ...]:
    seeded(8)
    args = SimpleNamespace(
        num_frames=5,
        max_num_objects=2,
        expected_num_objects=2.0,
        expected_num_spurious=1.0,
        emission_noise_scale=0.1,
    )
    return args, torch.cat([torch.randn(5, 3, 1), torch.ones(5, 3, 1)], -1)


# ---------------------------------------------------------------- annotators


def spammers(positions, annotations):
    num_annotators, num_classes = int(positions.max()) + 1, int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    with pyro.plate("annotator", num_annotators):
        epsilon = pyro.sample("ε", dist.Dirichlet(torch.full((num_classes,), 10.0)))
        theta = pyro.sample("θ", dist.Beta(0.5, 0.5))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(logits=torch.zeros(num_classes)))
        with pyro.plate("position", num_positions):
            s = pyro.sample("s", dist.Bernoulli(1 - theta[positions]))
            probs = torch.where(
                s[..., None] == 0, F.one_hot(c, num_classes).float(), epsilon[positions]
            )
            pyro.sample("y", dist.Categorical(probs), obs=annotations)


def annotations() -> tuple[Tensor, Tensor]:
    seeded(9)
    kind = torch.randint(0, 3, (25, 1))
    noise = torch.randint(0, 3, (25, 4))
    return torch.tensor([0, 0, 1, 2]), torch.where(torch.rand(25, 4) < 0.75, kind, noise)


# ---------------------------------------------------------------- tests of the samplers


def three_normals(data):
    shares = pyro.sample("phi", dist.Dirichlet(torch.ones(3)))
    with pyro.plate("num_clusters", 3):
        means = pyro.sample("cluster_means", dist.Normal(torch.arange(3.0), 1.0))
    with pyro.plate("data", data.shape[0]):
        which = pyro.sample("assignments", dist.Categorical(shares))
        pyro.sample("obs", dist.Normal(means[which], 1.0), obs=data)
    return means


@poutine.broadcast
def two_bits(data):
    chance = pyro.sample("y_prob", dist.Beta(1.0, 1.0))
    with pyro.plate("data", data.shape[0]):
        y = pyro.sample("y", dist.Bernoulli(chance))
        z = pyro.sample("z", dist.Bernoulli(0.65 * y + 0.1))
        pyro.sample("obs", dist.Normal(2.0 * z, 1.0), obs=data)


def normal_chain(data):
    dim = 4
    initialize = pyro.sample("initialize", dist.Dirichlet(torch.ones(dim)))
    with pyro.plate("states", dim):
        transition = pyro.sample("transition", dist.Dirichlet(torch.ones(dim, dim)))
        loc = pyro.sample("emission_loc", dist.Normal(torch.zeros(dim), torch.ones(dim)))
        scale = pyro.sample("emission_scale", dist.LogNormal(torch.zeros(dim), torch.ones(dim)))
    x = None
    for t, y in pyro.markov(enumerate(data)):
        x = pyro.sample(
            f"x_{t}",
            dist.Categorical(initialize if x is None else transition[x]),
            infer={"enumerate": "parallel"},
        )
        pyro.sample(f"y_{t}", dist.Normal(loc[x], scale[x]), obs=y)


def shared_bit(data):
    chance = pyro.sample("y_prob", dist.Beta(1.0, 1.0))
    y = pyro.sample("y", dist.Bernoulli(chance))
    with pyro.plate("data", data.shape[0]):
        z = pyro.sample("z", dist.Bernoulli(0.65 * y + 0.1))
        pyro.sample("obs", dist.Normal(2.0 * z, 1.0), obs=data)
    pyro.sample("nuisance", dist.Bernoulli(0.3))


def nested_bits(data):
    p = pyro.sample("p", dist.Uniform(0.0, 1.0))
    y = pyro.sample("y", dist.Bernoulli(p))
    with pyro.plate("intermediate", 1, dim=-2):
        v = pyro.sample("v", dist.Bernoulli(0.5 + 0.25 * y))
        with pyro.plate("data", len(data), dim=-1):
            z = pyro.sample("z", dist.Bernoulli(0.4 + 0.1 * v))
            pyro.sample("obs", dist.Normal(2 * z - 1, 1.0), obs=data)


def heaps(*middles: float, size: int = 40) -> Tensor:
    seeded(10)
    return torch.cat([middle + torch.randn(size) for middle in middles])


def points() -> Tensor:
    return torch.stack([heaps(-4, 4), heaps(-4, 4).flip(0)], -1)


def tones() -> Tensor:
    seeded(11)
    return torch.randint(0, 3, (6,))


ENUMERATION = "Pyro, tutorial enumeration"
DIRICHLET = "Pyro, tutorial dirichlet_process_mixture"
NUTS_TEST = "Pyro, tests/infer/mcmc/test_nuts.py"
PROGRAMS = (
    Case("enum.gmm", ENUMERATION, mixture_of_tutorial, lambda: heaps(-3, 3)),
    Case(
        "enum.hmm_no_markov",
        ENUMERATION,
        chain_unmarked,
        tones,
        {"data_dim": 3, "hidden_dim": 2},
    ),
    Case("enum.hmm_markov", ENUMERATION, chain_marked, tones, {"data_dim": 3, "hidden_dim": 2}),
    Case("enum.feature_plate", ENUMERATION, feature_plates, lambda: None),
    Case("gmm_tutorial", "Pyro, tutorial gmm", two_normals, lambda: heaps(0, 8)),
    Case("dpmm_gauss", DIRICHLET, sticks_of_points, points),
    Case("dpmm_poisson", DIRICHLET, sticks_of_counts, lambda: heaps(20, 90).round().abs()),
    Case("tracking_1d", "Pyro, tutorial tracking_1d", tracking, frames),
    Case("mace_rendering", "Pyro, tutorial model_rendering", spammers, annotations),
    Case("t_nuts.gmm", NUTS_TEST, three_normals, lambda: heaps(1, 5, 10, size=30)),
    Case("t_nuts.bern_latent", NUTS_TEST, two_bits, lambda: heaps(0, 2)),
    Case("t_nuts.gauss_hmm", NUTS_TEST, normal_chain, lambda: heaps(0, 3, size=5)),
    Case(
        "t_hmc.bern_latent_nuisance",
        "Pyro, tests/infer/mcmc/test_hmc.py",
        shared_bit,
        lambda: heaps(0, 2),
    ),
    Case(
        "t_mcmc_valid.nested",
        "Pyro, tests/infer/mcmc/test_valid_models.py",
        nested_bits,
        lambda: heaps(-1, 1),
    ),
)

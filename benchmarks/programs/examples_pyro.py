"""Programs in the shape of Pyro's examples: capture and recapture, mixtures, epidemics, topics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.contrib.autoname import named, scope
from pyro.infer import config_enumerate
from pyro.ops.indexing import Vindex
from torch import Tensor, nn
from torch.distributions import constraints

from programs.case import Case, seeded

# ---------------------------------------------------------------- capture and recapture


def _seen_or_not(
    step: int, alive: Any, entered: Tensor, survival: Any, recapture: Any, y: Tensor
) -> Any:
    """One step of a life history, counted from an animal's first capture on."""
    was_there = entered.float()
    chance = was_there * survival * alive + (1 - was_there)
    alive = pyro.sample(f"z_{step}", dist.Bernoulli(chance), infer={"enumerate": "parallel"})
    pyro.sample(f"y_{step}", dist.Bernoulli(recapture * alive), obs=y[:, step])
    return alive


def survival_constant(capture_history, sex):
    num_animals, num_steps = capture_history.shape
    phi = pyro.sample("phi", dist.Uniform(0.0, 1.0))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    with pyro.plate("animals", num_animals, dim=-1):
        z, entered = torch.ones(num_animals), torch.zeros(num_animals).bool()
        for t in pyro.markov(range(num_steps)):
            with poutine.mask(mask=entered):
                z = _seen_or_not(t, z, entered, phi, rho, capture_history)
            entered |= capture_history[:, t].bool()


def survival_of_times(capture_history, sex):
    num_animals, num_steps = capture_history.shape
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    z, entered = torch.ones(num_animals), torch.zeros(num_animals).bool()
    animals = pyro.plate("animals", num_animals, dim=-1)
    for t in pyro.markov(range(num_steps)):
        phi = pyro.sample(f"phi_{t}", dist.Uniform(0.0, 1.0)) if t > 0 else 1.0
        with animals, poutine.mask(mask=entered):
            z = _seen_or_not(t, z, entered, phi, rho, capture_history)
        entered |= capture_history[:, t].bool()


def survival_random(capture_history, sex):
    num_animals, num_steps = capture_history.shape
    mean = pyro.sample("phi_mean", dist.Uniform(0.0, 1.0))
    logit = torch.log(mean) - torch.log1p(-mean)
    sigma = pyro.sample("phi_sigma", dist.Uniform(0.0, 10.0))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    z, entered = torch.ones(num_animals), torch.zeros(num_animals).bool()
    animals = pyro.plate("animals", num_animals, dim=-1)
    for t in pyro.markov(range(num_steps)):
        own = pyro.sample(f"phi_logit_{t}", dist.Normal(logit, sigma)) if t else torch.tensor(0.0)
        with animals, poutine.mask(mask=entered):
            z = _seen_or_not(t, z, entered, torch.sigmoid(own), rho, capture_history)
        entered |= capture_history[:, t].bool()


def survival_of_sexes(capture_history, sex):
    num_animals, num_steps = capture_history.shape
    male = pyro.sample("phi_male", dist.Uniform(0.0, 1.0))
    female = pyro.sample("phi_female", dist.Uniform(0.0, 1.0))
    phi = sex * male + (1.0 - sex) * female
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    with pyro.plate("animals", num_animals, dim=-1):
        z, entered = torch.ones(num_animals), torch.zeros(num_animals).bool()
        for t in pyro.markov(range(num_steps)):
            with poutine.mask(mask=entered):
                z = _seen_or_not(t, z, entered, phi, rho, capture_history)
            entered |= capture_history[:, t].bool()


def survival_of_both(capture_history, sex):
    num_animals, num_steps = capture_history.shape
    of_sex = sex * pyro.sample("phi_beta", dist.Normal(0.0, 10.0))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    z, entered = torch.ones(num_animals), torch.zeros(num_animals).bool()
    animals = pyro.plate("animals", num_animals, dim=-1)
    for t in pyro.markov(range(num_steps)):
        of_time = pyro.sample(f"phi_gamma_{t}", dist.Normal(0.0, 10.0)) if t > 0 else 0.0
        with animals, poutine.mask(mask=entered):
            z = _seen_or_not(t, z, entered, torch.sigmoid(of_sex + of_time), rho, capture_history)
        entered |= capture_history[:, t].bool()


def captures() -> tuple[Tensor, Tensor]:
    seeded(1)
    sex = torch.bernoulli(torch.full((40,), 0.5))
    alive, rows = torch.ones(40), []
    first = torch.randint(0, 3, (40,))
    for t in range(6):
        alive = torch.where(t > first, torch.bernoulli(0.8 * alive), alive)
        rows.append(
            torch.where(t == first, torch.ones(40), torch.bernoulli(0.6 * alive) * (t > first))
        )
    return torch.stack(rows, -1), sex


# ---------------------------------------------------------------- small mixtures


@config_enumerate
def toy_mixture(prior, obs, num_obs):
    p_a = pyro.sample("p_A", dist.Beta(1, 1))
    p_b = pyro.sample("p_B", dist.Beta(torch.ones(2), torch.ones(2)).to_event(1))
    p_c = pyro.sample("p_C", dist.Beta(torch.ones(2), torch.ones(2)).to_event(1))
    with pyro.plate("data_plate", num_obs):
        a = pyro.sample("A", dist.Bernoulli(p_a.expand(num_obs)), obs=obs["A"])
        b = pyro.sample(
            "B", dist.Bernoulli(Vindex(p_b)[a.type(torch.long)]), infer={"enumerate": "parallel"}
        )
        pyro.sample("C", dist.Bernoulli(Vindex(p_c)[b.type(torch.long)]), obs=obs["C"])


def toy_data() -> tuple[Any, ...]:
    seeded(2)
    a = torch.bernoulli(torch.full((60,), 0.4))
    b = torch.bernoulli(0.1 + 0.8 * a)
    prior = {"A": torch.tensor([1.0, 10.0])}
    return prior, {"A": a, "C": torch.bernoulli(0.9 - 0.8 * b)}, 60


def named_mixture(data, k):
    latent = named.Object("latent")
    latent.probs.param_(torch.ones(k) / k, constraint=constraints.simplex)
    latent.locs.param_(torch.zeros(k))
    latent.scales.param_(torch.ones(k), constraint=constraints.positive)
    latent.local = named.List()
    for x in data:
        own = latent.local.add()
        i = own.id.sample_(dist.Categorical(latent.probs))
        own.x.sample_(dist.Normal(latent.locs[i], latent.scales[i]), obs=x)


def scoped_mixture(K, data):
    weights = pyro.param("weights", torch.ones(K) / K, constraint=constraints.simplex)
    locs = pyro.param("locs", 10 * torch.randn(K))
    scale = pyro.param("scale", torch.tensor(0.5), constraint=constraints.positive)
    with pyro.plate("data"):
        return _scoped(weights, locs, scale, data)


@scope(prefix="local")
def _scoped(weights, locs, scale, data):
    which = pyro.sample("assignment", dist.Categorical(weights).expand_by([len(data)]))
    return pyro.sample("obs", dist.Normal(locs[which], scale), obs=data)


def two_heaps() -> Tensor:
    return torch.tensor([0.0, 1.0, 2.0, 20.0, 30.0, 40.0])


# ---------------------------------------------------------------- topics


def topics(data=None, args=None, batch_size=None):
    with pyro.plate("topics", args.num_topics):
        weights = pyro.sample("topic_weights", dist.Gamma(1.0 / args.num_topics, 1.0))
        words = pyro.sample(
            "topic_words", dist.Dirichlet(torch.ones(args.num_words) / args.num_words)
        )
    with pyro.plate("documents", args.num_docs) as ind:
        if data is not None:
            assert data.shape == (args.num_words_per_doc, args.num_docs)
            data = data[:, ind]
        doc_topics = pyro.sample("doc_topics", dist.Dirichlet(weights))
        with pyro.plate("words", args.num_words_per_doc):
            which = pyro.sample(
                "word_topics", dist.Categorical(doc_topics), infer={"enumerate": "parallel"}
            )
            data = pyro.sample("doc_words", dist.Categorical(words[which]), obs=data)
    return weights, words, data


def documents() -> tuple[Any, ...]:
    seeded(3)
    sizes = SimpleNamespace(num_topics=2, num_words=6, num_docs=5, num_words_per_doc=8)
    return torch.randint(0, 6, (8, 5)), sizes


# ---------------------------------------------------------------- an autoencoder with labels


class LabelledAutoencoder(nn.Module):
    def __init__(self, width: int = 6, num_labels: int = 2, z_dim: int = 1) -> None:
        super().__init__()
        self.z_dim, self.num_labels = z_dim, num_labels
        self.lin = nn.Linear(z_dim + num_labels, width)

    def model(self, xs, ys=None):
        pyro.module("ss_vae", self)
        num_rows = xs.size(0)
        with pyro.plate("data"):
            zs = pyro.sample(
                "z",
                dist.Normal(
                    torch.zeros(num_rows, self.z_dim), torch.ones(num_rows, self.z_dim)
                ).to_event(1),
            )
            even = torch.ones(num_rows, self.num_labels) / self.num_labels
            ys = pyro.sample("y", dist.OneHotCategorical(even), obs=ys)
            shape = torch.broadcast_shapes(zs.shape[:-1], ys.shape[:-1])
            both = torch.cat([zs.expand(*shape, -1), ys.expand(*shape, -1)], -1)
            loc = torch.sigmoid(self.lin(both))
            pyro.sample("x", dist.Bernoulli(loc, validate_args=False).to_event(1), obs=xs)


seeded(4)
AUTOENCODER = LabelledAutoencoder()


def images() -> Tensor:
    seeded(5)
    kind = torch.bernoulli(torch.full((20, 1), 0.5))
    return torch.bernoulli(0.2 + 0.6 * kind.expand(20, 6))


# ---------------------------------------------------------------- epidemics


def _rates(population):
    tau = 7.0
    r0 = pyro.sample("R0", dist.LogNormal(0.0, 1.0))
    rho = pyro.sample("rho", dist.Uniform(0, 1))
    return -r0 / (tau * population), 1.0 / (1.0 + tau), rho


def epidemic(args, data):
    rate, recovery, rho = _rates(args.population)
    susceptible, infected = torch.tensor(args.population - 1.0), torch.tensor(1.0)
    for t, datum in enumerate(data):
        new = pyro.sample(f"S2I_{t}", dist.Binomial(susceptible, -(rate * infected).expm1()))
        gone = pyro.sample(f"I2R_{t}", dist.Binomial(infected, recovery))
        susceptible = pyro.deterministic(f"S_{t}", susceptible - new)
        infected = pyro.deterministic(f"I_{t}", infected + new - gone)
        pyro.sample(f"obs_{t}", dist.ExtendedBinomial(new, rho), obs=datum)


@config_enumerate
def epidemic_of_states(args, data):
    rate, recovery, rho = _rates(args.population)
    susceptible, infected = torch.tensor(args.population - 1.0), torch.tensor(1.0)
    for t, datum in enumerate(data):
        s_before, i_before = susceptible, infected
        anything = dist.Binomial(args.population, 0.5).mask(False)
        susceptible, infected = pyro.sample(f"S_{t}", anything), pyro.sample(f"I_{t}", anything)
        new = s_before - susceptible
        gone = i_before - infected + new
        chance = -(rate * i_before).expm1()
        pyro.sample(f"S2I_{t}", dist.ExtendedBinomial(s_before, chance), obs=new)
        pyro.sample(f"I2R_{t}", dist.ExtendedBinomial(i_before, recovery), obs=gone)
        pyro.sample(f"obs_{t}", dist.ExtendedBinomial(new, rho), obs=datum)


def infections() -> tuple[Any, ...]:
    return SimpleNamespace(population=4), torch.tensor([0.0, 1.0, 1.0])


# ---------------------------------------------------------------- animals in groups


@config_enumerate
def mixed_chain(config):
    missing, num_states = config["MISSING"], config["sizes"]["state"]
    num_kinds = config["sizes"]["random"]
    if config["group"]["random"] == "discrete":
        shares = pyro.param(
            "probs_e_group", lambda: torch.randn(num_kinds).abs(), constraint=constraints.simplex
        )
        theta = pyro.param("theta_group", lambda: torch.randn(num_kinds, num_states**2))
    step_zi = pyro.param("step_zi_param", lambda: torch.ones(num_states, 2))
    shape = pyro.param(
        "step_param_concentration",
        lambda: torch.randn(num_states).abs(),
        constraint=constraints.positive,
    )
    rate = pyro.param(
        "step_param_rate", lambda: torch.randn(num_states).abs(), constraint=constraints.positive
    )
    turning = pyro.param(
        "angle_param_concentration",
        lambda: torch.randn(num_states).abs(),
        constraint=constraints.positive,
    )
    ahead = pyro.param("angle_param_loc", lambda: torch.randn(num_states).abs())
    gamma = torch.zeros(num_states**2)
    with pyro.plate("group", config["sizes"]["group"], dim=-1):
        if config["group"]["random"] == "discrete":
            kind = pyro.sample("e_g", dist.Categorical(shares))
            gamma = gamma + Vindex(theta)[..., kind, :]
        individuals = pyro.plate("individual", config["sizes"]["individual"], dim=-2)
        with individuals, poutine.mask(mask=config["individual"]["mask"]):
            y = torch.tensor(0).long()
            for t in pyro.markov(range(config["sizes"]["timesteps"])):
                with poutine.mask(mask=config["timestep"]["mask"][..., t]):
                    moves = gamma.reshape((*gamma.shape[:-1], num_states, num_states))
                    y = pyro.sample(f"y_{t}", dist.Categorical(logits=Vindex(moves)[..., y, :]))
                    step = config["observations"]["step"][..., t]
                    stays = step == missing
                    pyro.sample(
                        f"step_zi_{t}",
                        dist.Categorical(logits=Vindex(step_zi)[..., y, :]),
                        obs=stays.long(),
                    )
                    moving = dist.Gamma(Vindex(shape)[..., y], Vindex(rate)[..., y])
                    still = dist.Delta(v=torch.tensor(missing))
                    pyro.sample(f"step_{t}", dist.MaskedMixture(stays, moving, still), obs=step)
                    pyro.sample(
                        f"angle_{t}",
                        dist.VonMises(
                            concentration=Vindex(turning)[..., y], loc=Vindex(ahead)[..., y]
                        ),
                        obs=config["observations"]["angle"][..., t],
                    )


def herd(random: str | None) -> dict[str, Any]:
    seeded(6)
    groups, individuals, steps = 2, 4, 5
    step = torch.rand(individuals, groups, steps) * 3 + 0.1
    step = torch.where(torch.rand(step.shape) < 0.2, torch.tensor(1e-6), step)
    return {
        "MISSING": 1e-6,
        "sizes": {
            "state": 2,
            "random": 2,
            "group": groups,
            "individual": individuals,
            "timesteps": steps,
        },
        "group": {"random": random, "fixed": None},
        "individual": {"random": None, "mask": torch.ones(individuals, groups).bool()},
        "timestep": {"mask": torch.ones(individuals, groups, steps).bool()},
        "observations": {"step": step, "angle": 2 * torch.rand(step.shape) - 1},
    }


CJS = "Pyro, examples/capture_recapture/cjs.py"
SURVIVAL = (
    survival_constant,
    survival_of_times,
    survival_random,
    survival_of_sexes,
    survival_of_both,
)
PROGRAMS = (
    *(Case(f"cjs.model_{k}", CJS, model, captures) for k, model in enumerate(SURVIVAL, 1)),
    Case(
        "toy_mixture",
        "Pyro, examples/toy_mixture_model_discrete_enumeration.py",
        toy_mixture,
        toy_data,
    ),
    Case("lda", "Pyro, examples/lda.py", topics, documents),
    Case("mixed_hmm.none", "Pyro, examples/mixed_hmm/model.py", mixed_chain, lambda: herd(None)),
    Case(
        "mixed_hmm.discrete",
        "Pyro, examples/mixed_hmm/model.py",
        mixed_chain,
        lambda: herd("discrete"),
    ),
    Case(
        "autoname.mixture",
        "Pyro, examples/contrib/autoname/mixture.py",
        named_mixture,
        lambda: (two_heaps(), 2),
    ),
    Case(
        "autoname.scoping",
        "Pyro, examples/contrib/autoname/scoping_mixture.py",
        scoped_mixture,
        lambda: (2, two_heaps()),
    ),
    Case("ss_vae_M2", "Pyro, examples/vae/ss_vae_M2.py", AUTOENCODER.model, images),
    Case("sir.reparameterized", "Pyro, examples/sir_hmc.py", epidemic_of_states, infections),
    Case("sir.discrete", "Pyro, examples/sir_hmc.py", epidemic, infections, refused=True),
)

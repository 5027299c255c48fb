"""Programs in the shape of NumPyro's examples and tests, their primitives those of Pyro."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro import poutine
from pyro.infer import config_enumerate
from pyro.infer.reparam import LocScaleReparam
from pyro.ops.indexing import Vindex
from torch import Tensor

from programs.case import Case, seeded
from programs.tutorials import annotations, spammers

# ---------------------------------------------------------------- annotators


def agreement(annotations):
    num_classes = int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    with pyro.plate("class", num_classes):
        zeta = pyro.sample("zeta", dist.Dirichlet(torch.ones(num_classes)))
    pi = pyro.sample("pi", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with pyro.plate("position", num_positions):
            pyro.sample("y", dist.Categorical(zeta[c]), obs=annotations)


def dawid_skene(positions, annotations):
    num_annotators, num_classes = int(positions.max()) + 1, int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    with pyro.plate("annotator", num_annotators, dim=-2), pyro.plate("class", num_classes):
        beta = pyro.sample("beta", dist.Dirichlet(torch.ones(num_classes)))
    pi = pyro.sample("pi", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with pyro.plate("position", num_positions):
            pyro.sample("y", dist.Categorical(Vindex(beta)[positions, c, :]), obs=annotations)


def _hyper(name, size):
    return pyro.sample(name, dist.Normal(0, 1).expand([size]).to_event(1))


def _spread(name, size):
    return pyro.sample(name, dist.HalfNormal(1).expand([size]).to_event(1))


def hierarchy(positions, annotations):
    num_annotators, num_classes = int(positions.max()) + 1, int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    classes = pyro.plate("class", num_classes, dim=-1)
    with classes:
        zeta, omega = _hyper("zeta", num_classes - 1), _spread("Omega", num_classes - 1)
    with pyro.plate("annotator", num_annotators, dim=-2), classes:
        with poutine.reparam(config={"beta": LocScaleReparam(0.0)}):
            beta = pyro.sample("beta", dist.Normal(zeta, omega).to_event(1))
        beta = F.pad(beta, (0, 1))
    pi = pyro.sample("pi", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with pyro.plate("position", num_positions):
            logits = Vindex(beta)[positions, c, :]
            pyro.sample("y", dist.Categorical(logits=logits), obs=annotations)


def item_difficulty(annotations):
    num_classes = int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    with pyro.plate("class", num_classes):
        eta, chi = _hyper("eta", num_classes - 1), _spread("Chi", num_classes - 1)
    pi = pyro.sample("pi", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with poutine.reparam(config={"theta": LocScaleReparam(0.0)}):
            theta = pyro.sample("theta", dist.Normal(eta[c], chi[c]).to_event(1))
        theta = F.pad(theta, (0, 1))
        with pyro.plate("position", num_positions):
            pyro.sample("y", dist.Categorical(logits=theta), obs=annotations)


def random_effects(positions, annotations):
    num_annotators, num_classes = int(positions.max()) + 1, int(annotations.max()) + 1
    num_items, num_positions = annotations.shape
    classes = pyro.plate("class", num_classes, dim=-1)
    with classes:
        zeta, omega = _hyper("zeta", num_classes - 1), _spread("Omega", num_classes - 1)
        chi = _spread("Chi", num_classes - 1)
    with pyro.plate("annotator", num_annotators, dim=-2), classes:
        with poutine.reparam(config={"beta": LocScaleReparam(0.0)}):
            beta = pyro.sample("beta", dist.Normal(zeta, omega).to_event(1))
        beta = F.pad(beta, (0, 1))
    pi = pyro.sample("pi", dist.Dirichlet(torch.ones(num_classes)))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
        with poutine.reparam(config={"theta": LocScaleReparam(0.0)}):
            theta = pyro.sample("theta", dist.Normal(0, chi[c]).to_event(1))
        theta = F.pad(theta, (0, 1))
        with pyro.plate("position", num_positions):
            logits = Vindex(beta)[positions, c, :] - theta
            pyro.sample("y", dist.Categorical(logits=logits), obs=annotations)


# ---------------------------------------------------------------- sequences


def second_order(sequences, lengths, args, include_prior=False):
    num_sequences, max_length, data_dim = sequences.shape
    size = args.hidden_dim
    with poutine.mask(mask=include_prior):
        rows = dist.Dirichlet(0.9 * torch.eye(size) + 0.1)
        probs_x = pyro.sample("probs_x", rows.expand([size, size]).to_event(2))
        probs_y = pyro.sample("probs_y", dist.Beta(0.1, 0.9).expand([size, data_dim]).to_event(2))
    before = now = torch.zeros(num_sequences, 1, dtype=torch.long)
    rows = pyro.plate("sequences", num_sequences, dim=-2)
    tones = pyro.plate("tones", data_dim, dim=-1)
    for t in pyro.markov(range(max_length), history=2):
        with rows, poutine.mask(mask=(t < lengths)[..., None]):
            own = Vindex(probs_x)[before, now]
            before, now = (
                now,
                pyro.sample(f"x_{t}", dist.Categorical(own), infer={"enumerate": "parallel"}),
            )
            with tones:
                pyro.sample(
                    f"y_{t}",
                    dist.Bernoulli(probs_y[now.squeeze(-1)]),
                    obs=sequences[:, t],
                )


def songs() -> tuple[Any, ...]:
    seeded(12)
    lengths = torch.tensor([5, 4, 5, 3])
    return torch.bernoulli(torch.full((4, 5, 3), 0.4)), lengths, SimpleNamespace(hidden_dim=2)


PROBS = torch.tensor([[[0.8, 0.2], [0.1, 0.9]], [[0.7, 0.3], [0.6, 0.4]]])
LOCS = torch.tensor([[-1.0, 1.0], [2.0, 3.0]])


def two_known_chains(data):
    x = w = torch.tensor(0)
    for i, y in pyro.markov(enumerate(data)):
        x = pyro.sample(f"x_{i}", dist.Categorical(PROBS[0][x]))
        w = pyro.sample(f"w_{i}", dist.Categorical(PROBS[1][w]))
        pyro.sample(f"y_{i}", dist.Normal(Vindex(LOCS)[w, x], 1), obs=y)


def known_chain_of_two_kinds(data):
    w = pyro.sample("w", dist.Bernoulli(torch.tensor(0.6))).long()
    x = torch.tensor(0)
    for i, y in pyro.markov(enumerate(data)):
        x = pyro.sample(f"x_{i}", dist.Categorical(Vindex(PROBS)[w, x]))
        pyro.sample(f"y_{i}", dist.Normal(LOCS[0][x], 1), obs=y)


def numbers() -> Tensor:
    seeded(13)
    return torch.randn(7)


@config_enumerate
def change_point(count_data):
    size = count_data.shape[0]
    alpha = 1 / count_data.mean()
    first = pyro.sample("lambda_1", dist.Exponential(alpha))
    second = pyro.sample("lambda_2", dist.Exponential(alpha))
    tau = pyro.sample("tau", dist.Categorical(logits=torch.zeros(20)))
    rate = torch.where(tau > torch.arange(size), first, second)
    with pyro.plate("data", size):
        pyro.sample("obs", dist.Poisson(rate), obs=count_data)


def counts() -> Tensor:
    seeded(14)
    return torch.poisson(torch.cat([torch.full((9,), 18.0), torch.full((11,), 8.0)]))


# ---------------------------------------------------------------- regressions


def zero_inflated(X, Y):
    b1 = pyro.sample("b1", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    b2 = pyro.sample("b2", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    gate = torch.sigmoid(X @ b1[:, None]).reshape(-1)
    rate = torch.exp((X @ b2[:, None]).reshape(-1))
    with pyro.plate("obs", X.shape[0]):
        pyro.sample("Y", dist.ZeroInflatedPoisson(rate, gate=gate), obs=Y)


def fish() -> tuple[Tensor, Tensor]:
    seeded(15)
    x = torch.randn(60, 2)
    return x, torch.poisson(torch.exp(x[:, 0])) * torch.bernoulli(torch.full((60,), 0.6))


def _imputed(A, B, Y, factor):
    mean = pyro.sample("mu_A", dist.Normal(0, 2.5))
    slope = pyro.sample("b_B_A", dist.Normal(0, 2.5))
    b_a = pyro.sample("b_A", dist.Normal(0, 2.5))
    b_b = pyro.sample("b_B", dist.Normal(0, 2.5))
    s_y = pyro.sample("s_Y", dist.HalfCauchy(2.5))
    known = A >= 0

    def rows():
        bit = dist.Bernoulli(logits=mean + B * slope)
        own = pyro.sample("A", bit.mask(False), infer={"enumerate": "parallel"})
        log_prob = bit.log_prob(own)
        pyro.factor(factor, torch.where(known & (own != A), -math.inf, log_prob))
        pyro.sample("obs_Y", dist.Normal(b_a * own + b_b * B, s_y), obs=Y)
        return own

    return known, rows


def imputation(A, B, Y):
    _, rows = _imputed(A, B, Y, "A_obs")
    with pyro.plate("obs", A.shape[0]):
        rows()


def imputation_not_at_random(A, B, Y):
    known, rows = _imputed(A, B, Y, "obs_A")
    with pyro.plate("obsmodel", 2):
        chance = pyro.sample("p_Aobs", dist.Beta(1, 1))
    with pyro.plate("obs", A.shape[0]):
        own = rows()
        seen = torch.where(own.bool(), chance[0], chance[1])
        pyro.sample("obs_Aobs", dist.Bernoulli(probs=seen), obs=known.float())


def half_seen() -> tuple[Tensor, ...]:
    seeded(16)
    b = torch.bernoulli(torch.full((60,), 0.5))
    a = torch.bernoulli(0.2 + 0.6 * b)
    y = 2 * a - b + 0.5 * torch.randn(60)
    return torch.where(torch.rand(60) < 0.3, torch.tensor(-1.0), a), b, y


# ---------------------------------------------------------------- angles


def skewed_angles(data, num_data, num_mix_comp=2):
    weights = pyro.sample("mix_weights", dist.Dirichlet(torch.ones(num_mix_comp)))
    mean_phi = pyro.sample("beta_mean_phi", dist.Uniform(0.0, 1.0))
    count_phi = pyro.sample("beta_count_phi", dist.Gamma(1.0, 1.0 / num_mix_comp))
    mean_psi = pyro.sample("beta_mean_psi", dist.Uniform(0.0, 1.0))
    count_psi = pyro.sample("beta_count_psi", dist.Gamma(1.0, 1.0 / num_mix_comp))
    with pyro.plate("mixture", num_mix_comp):
        phi_loc = pyro.sample("phi_loc", dist.VonMises(math.pi, 2.0))
        psi_loc = pyro.sample("psi_loc", dist.VonMises(0.0, 0.1))
        phi_conc = pyro.sample(
            "phi_conc", dist.Beta(mean_phi * count_phi, count_phi - mean_phi * count_phi)
        )
        psi_conc = pyro.sample(
            "psi_conc", dist.Beta(mean_psi * count_psi, count_psi - mean_psi * count_psi)
        )
        corr_scale = pyro.sample("corr_scale", dist.Beta(2.0, 10.0))
        skewness = pyro.sample("skewness", dist.Normal(0, 0.5).expand((2,)).to_event(1))
        size = skewness.abs().sum(-1, keepdim=True)
        skewness = torch.where(size < 1, skewness, skewness / size)
    with pyro.plate("obs_plate", num_data, dim=-1):
        which = pyro.sample("mix_comp", dist.Categorical(weights), infer={"enumerate": "parallel"})
        sine = dist.SineBivariateVonMises(
            phi_loc=phi_loc[which],
            psi_loc=psi_loc[which],
            phi_concentration=1000 * phi_conc[which],
            psi_concentration=1000 * psi_conc[which],
            weighted_correlation=corr_scale[which],
        )
        return pyro.sample("phi_psi", dist.SineSkewed(sine, skewness[which]), obs=data)


def angles() -> tuple[Any, ...]:
    seeded(17)
    first = dist.VonMises(torch.tensor([-2.0, 2.5]), torch.tensor([20.0, 20.0])).sample((20,))
    second = dist.VonMises(torch.tensor([-1.0, -0.7]), torch.tensor([20.0, 20.0])).sample((20,))
    return torch.cat([first, second]), 40


def mixed(probs, locs):
    c = pyro.sample("c", dist.Categorical(probs))
    pyro.sample("x", dist.Normal(locs[c], 0.5))


def mixed_data() -> tuple[Tensor, Tensor]:
    return torch.tensor([0.15, 0.3, 0.3, 0.25]), torch.tensor([-2.0, 0.0, 2.0, 4.0])


ANNOTATION = "NumPyro, examples/annotation.py"
IMPUTATION = "NumPyro, notebook discrete_imputation"
FUNSOR = "NumPyro, test/contrib/test_funsor.py"
PROGRAMS = (
    Case("ann.multinomial", ANNOTATION, agreement, lambda: annotations()[1]),
    Case("ann.dawid_skene", ANNOTATION, dawid_skene, annotations),
    Case("ann.mace", ANNOTATION, spammers, annotations),
    Case("ann.hier_ds", ANNOTATION, hierarchy, annotations),
    Case("ann.item_difficulty", ANNOTATION, item_difficulty, lambda: annotations()[1]),
    Case("ann.logistic_re", ANNOTATION, random_effects, annotations),
    Case("hmm_enum.model_6", "NumPyro, examples/hmm_enum.py", second_order, songs),
    Case("zip_regression", "NumPyro, examples/zero_inflated_poisson.py", zero_inflated, fish),
    Case("imputation.imp", IMPUTATION, imputation, half_seen),
    Case("imputation.impmiss", IMPUTATION, imputation_not_at_random, half_seen),
    Case("ssbvm", "NumPyro, examples/ssbvm_mixture.py", skewed_angles, angles),
    Case("nt.change_point", FUNSOR, change_point, counts),
    Case("nt.scan_two_latents", FUNSOR, two_known_chains, numbers),
    Case("nt.discrete_outside", FUNSOR, known_chain_of_two_kinds, numbers),
    Case("nt.mixed_hmc", "NumPyro, infer/mixed_hmc.py", mixed, mixed_data, refused=True),
)

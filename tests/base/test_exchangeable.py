"""Exchangeable values of latents in a user's program, beside permutations written out."""

import dataclasses
import itertools
import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex

from inference import NUTS, Fit, fit
from inference.base.align import relabel_draws
from inference.base.exchangeable import exchangeable_values
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from inference.programs.program import Program


def mixture(data, priors=(0.0, 0.0, 0.0), shares=(1.0, 1.0, 1.0)):
    weights = pyro.sample("weights", dist.Dirichlet(torch.tensor(shares, dtype=data.dtype)))
    with pyro.plate("components", 3):
        locs = pyro.sample("locs", dist.Normal(torch.tensor(priors, dtype=data.dtype), 5.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(locs[z], scale), obs=data)


def ordered(data):
    """Locations of which only differences have a prior: no name can be exchanged."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3, dtype=data.dtype)))
    steps = pyro.sample("steps", dist.LogNormal(torch.zeros(3), 1.0).to_event(1))
    locs = steps.cumsum(-1)
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(locs[..., z], 1.0), obs=data)


def chain(data):
    with pyro.plate("states", 2):
        transition = pyro.sample("transition", dist.Dirichlet(torch.ones(2, dtype=data.dtype)))
        locs = pyro.sample("locs", dist.Normal(0.0, 5.0))
    initial = pyro.sample("initial", dist.Dirichlet(torch.ones(2, dtype=data.dtype)))
    probs = initial
    for t in pyro.markov(range(len(data))):
        z = pyro.sample(f"z_{t}", dist.Categorical(probs), infer={"enumerate": "parallel"})
        pyro.sample(f"x_{t}", dist.Normal(locs[z], 1.0), obs=data[t])
        probs = Vindex(transition)[z]


def two_mixtures(data):
    for name in ("a", "b"):
        weights = pyro.sample(f"weights_{name}", dist.Dirichlet(torch.ones(3, dtype=data.dtype)))
        with pyro.plate(f"components_{name}", 3):
            locs = pyro.sample(f"locs_{name}", dist.Normal(0.0, 5.0 if name == "a" else 1.0))
        with pyro.plate(f"rows_{name}", len(data)):
            z = pyro.sample(f"z_{name}", dist.Categorical(weights))
            pyro.sample(f"x_{name}", dist.Normal(locs[z], 1.0), obs=data)


def heaps(size=40):
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([-3.0, 0.0, 4.0], dtype=torch.float64)
    which = torch.randint(0, 3, (size,), generator=generator)
    return centres[which] + 0.5 * torch.randn(size, generator=generator, dtype=torch.float64)


def found_in(program, data):
    program = Program(program, data)
    return exchangeable_values(program, program.draw_prior(5, 3)), program


@pytest.mark.parametrize(
    ("program", "data", "sets"),
    [
        (mixture, heaps(), [{"weights": (0,), "locs": (0,)}]),
        (chain, heaps(5), [{"transition": (0, 1), "locs": (0,), "initial": (0,)}]),
        (
            two_mixtures,
            heaps(8),
            [{"weights_a": (0,), "locs_a": (0,)}, {"weights_b": (0,), "locs_b": (0,)}],
        ),
        (ordered, heaps(), []),
    ],
)
def test_dims_that_change_together(program, data, sets):
    found, _ = found_in(program, data)
    assert [each.dims for each in found] == sets
    assert all(len(each.kinds.unique()) == 1 for each in found)


def test_density_is_the_same_under_every_permutation_that_is_found():
    (found,), program = found_in(chain, heaps(5))
    draws = program.draw_prior(2, 4)
    labels = found.labels(draws, {name: value[0] for name, value in draws.items()})
    for order in itertools.permutations(range(2)):
        renamed = labels.rename(draws, torch.tensor(order), torch.zeros(2, dtype=torch.bool))
        before, after = (
            program.log_marginal(each) + program.log_prior(each) for each in (draws, renamed)
        )
        torch.testing.assert_close(before, after)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"priors": (0.0, 0.001, 0.002)}, None),
        ({"shares": (1.0, 2.0, 3.0)}, None),
        ({"priors": (3.0, 0.0, 0.0)}, [0, 1, 1]),
        ({"priors": (0.0, 3.0, 0.0), "shares": (2.0, 1.0, 2.0)}, [0, 1, 0]),
    ],
)
def test_values_with_priors_of_their_own_keep_their_names(settings, kinds):
    def program(data):
        return mixture(data, **settings)

    found, _ = found_in(program, heaps())
    assert [each.kinds.tolist() for each in found] == ([] if kinds is None else [kinds])


def test_draws_of_copies_are_renamed_alike_and_no_others():
    (found,), program = found_in(lambda data: mixture(data, priors=(9.0, 0.0, 0.0)), heaps())
    size = 60
    generator = torch.Generator().manual_seed(1)
    truth = torch.tensor([9.0, -2.0, 2.0]).double()
    draws = {
        "weights": torch.tensor([0.2, 0.3, 0.5]).double().expand(size, 3),
        "locs": truth + 0.1 * torch.randn(size, 3, generator=generator).double(),
        "scale": torch.ones(size).double(),
    }
    swapped = torch.rand(size, generator=generator) < 0.5
    order = torch.where(swapped[:, None], torch.tensor([0, 2, 1]), torch.arange(3))
    copies = draws | {name: draws[name].gather(1, order) for name in ("weights", "locs")}
    reference = {name: value[0] for name, value in draws.items()}
    renamed, changed = relabel_draws(
        copies, (found.labels(copies, reference),), reference, program.inside
    )
    assert changed.equal(swapped)
    for name, value in draws.items():
        torch.testing.assert_close(renamed[name], value)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")  # of so few draws
def test_chains_that_start_in_different_copies_agree_after_renaming():
    data = heaps(60)
    places = torch.tensor([[0, 1, 2], [2, 0, 1]])
    start = {
        "weights": torch.full((2, 3), 1 / 3).double(),
        "locs": torch.tensor([-3.0, 0.0, 4.0]).double()[places],
        "scale": torch.full((2,), 0.5).double(),
    }
    method = NUTS(num_chains=2, warmup_steps=60, num_samples=60, warm_start=None)
    drawn = method.run(problem_of(mixture, data, 0), start, NoProgress(), None)
    centres = drawn.draws["locs"].mean(1)
    torch.testing.assert_close(centres[0], centres[1], atol=0.3, rtol=0)
    assert sorted(drawn.sample_stats["relabelled"].double().mean(1).tolist()) == [0.0, 1.0]
    assert drawn.renamed == (
        "the 3 entries of weights, locs are exchangeable, and were renamed alike in 50% of draws"
    )
    as_drawn = dataclasses.replace(method, relabel=False)
    assert as_drawn.run(problem_of(mixture, data, 0), start, NoProgress(), None).renamed is None


def test_fit_says_what_was_renamed(tmp_path):
    method = NUTS(num_chains=2, warmup_steps=20, num_samples=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws do not converge
        drawn = fit(mixture, heaps(20), method)
    assert "labels the 3 entries of weights, locs are exchangeable" in " ".join(repr(drawn).split())
    drawn.save(tmp_path)
    assert Fit.load(tmp_path, model=mixture).renamed == drawn.renamed

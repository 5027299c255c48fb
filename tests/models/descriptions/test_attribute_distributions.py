"""Every distribution of attributes, at three attributes, against sums over all profiles; what a
user writes wrongly is named.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from torch import Tensor

from ppl_models import Dag, Hierarchy, HigherOrder, Independent, Saturated
from ppl_models.descriptions.attribute_distribution import AttributeRoot
from ppl_models.parts.ascent import ascend
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
DISTRIBUTIONS = {
    "saturated": Saturated(),
    "saturated-prior": Saturated(concentration=2.0),
    "independent": Independent(),
    "hierarchy": Hierarchy(((0, 1), (0, 2))),
    "dag": Dag(((2, 0), (0, 1), (2, 1)), concentration=1.5),
    "trait": HigherOrder(),
}
ALL = binary_configurations(3)
every_distribution = pytest.mark.parametrize("name", DISTRIBUTIONS)


def root_of(name: str) -> AttributeRoot:
    return DISTRIBUTIONS[name].root("attributes", 3)  # type: ignore[attr-defined]


def params_of(root: AttributeRoot, num: int = 2) -> dict[str, Tensor]:
    """Values drawn from the priors, slopes and intercepts kept moderate."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        priors = root.priors(torch.zeros((), dtype=F64))
        draws = {
            name: torch.stack([prior.sample() for _ in range(num)])
            for name, prior in priors.items()
        }
    return {name: value / 4 if name.startswith("trait") else value for name, value in draws.items()}


def density(root: AttributeRoot, params: dict[str, Tensor]) -> Tensor:
    """P(profile), (R, 8)."""
    return (
        root.distribution({name: value.unsqueeze(-2) for name, value in params.items()})
        .log_prob(ALL)
        .exp()
    )


@every_distribution
def test_the_distribution_is_one(name: str) -> None:
    root = root_of(name)
    params = params_of(root)
    chances = density(root, params)
    torch.testing.assert_close(chances.sum(-1), torch.ones(2, dtype=F64))
    torch.testing.assert_close(root.marginals(params), chances @ ALL)
    assert {site: tuple(value.shape[1:]) for site, value in params.items()} == root.sites()
    assert root.sites().keys() == root.dims.keys()
    for bits in ALL:
        for k in range(3):
            on, off = bits.clone(), bits.clone()
            on[k], off[k] = 1, 0
            with_k, without = (
                chances[:, int(b @ torch.tensor([4.0, 2.0, 1.0], dtype=F64))] for b in (on, off)
            )
            if bool((with_k + without > 0).all()):
                odds = root.log_odds(params, k, bits[None, :, None].expand(2, 3, 1)).sigmoid()
                torch.testing.assert_close(odds[:, 0], with_k / (with_k + without))


@every_distribution
def test_draws_follow_the_distribution(name: str) -> None:
    root = root_of(name)
    params = params_of(root)
    expected, size = density(root, params), 20000
    generator = torch.Generator().manual_seed(1)
    bits = root.draw(params, torch.rand(2, 3, size, generator=generator, dtype=F64)).mT
    with torch.random.fork_rng():
        torch.manual_seed(2)
        distribution = root.distribution(
            {site: value.unsqueeze(-2) for site, value in params.items()}
        ).expand(torch.Size([2, size]))
        others = distribution.sample()
    for sample in (bits, others):
        shares = (sample.unsqueeze(-2) == ALL).all(-1).to(F64).mean(1)
        assert bool(
            (
                (shares - expected).abs() <= 5 * (expected * (1 - expected) / size).sqrt() + 1e-9
            ).all()
        )


@every_distribution
def test_the_maximiser_is_the_largest(name: str) -> None:
    """No step along the unconstrained scale raises the expected log-posterior, from exact counts or
    from draws.
    """
    root = root_of(name)
    allowed = ALL if root.profiles is None else root.profiles
    counts = torch.tensor(
        [[7.0, 3.0, 2.0, 1.0, 4.0, 2.0, 3.0, 8.0], [1.0, 5.0, 2.0, 2.0, 3.0, 3.0, 1.0, 4.0]],
        dtype=F64,
    )[:, -len(allowed) :]
    start = params_of(root)
    statistic = root.expected(allowed, counts, start)
    rows = [allowed.repeat_interleave(own.long(), 0) for own in counts]
    for r, own in enumerate(rows):  # draws that agree with the counts
        one = {site: value[r : r + 1] for site, value in start.items()}
        drawn = root.drawn(own.mT[None], own.mT[None], 1.0, one)
        for site, value in root.maximise(drawn, one).items():
            torch.testing.assert_close(
                value, root.maximise(statistic[r : r + 1], one)[site], rtol=1e-7, atol=1e-7
            )
    best = start
    for _ in range(3):
        best = root.maximise(statistic, best)

    def objective(params: dict[str, Tensor]) -> Tensor:
        places = [int(bits @ torch.tensor([4.0, 2.0, 1.0], dtype=F64)) for bits in allowed]
        prior = sum(
            distribution.log_prob(params[site])
            for site, distribution in root.priors(torch.zeros((), dtype=F64)).items()
        )
        return (counts * density(root, params)[:, places].log()).sum(-1) + prior

    top = objective(best)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        moved = {}
        for site, value in best.items():
            noise = 0.02 * torch.randn(value.shape, generator=generator, dtype=F64)
            if site == "profiles":
                moved[site] = (value.log() + noise).softmax(-1)
            else:
                moved[site] = (
                    value + noise if site.startswith("trait") else (value.logit() + noise).sigmoid()
                )
        assert bool((objective(moved) <= top + 1e-9).all())


@every_distribution
def test_other_names_are_the_same_distribution(name: str) -> None:
    root = root_of(name)
    params = params_of(root)
    table = density(root, params).reshape(2, 2, 2, 2)
    orders = list(itertools.permutations(range(3))) if root.renamable else [(0, 1, 2)]
    for order, flips in itertools.product(
        orders, ALL.bool() if root.flippable else torch.zeros(1, 3, dtype=torch.bool)
    ):
        renamed = density(root, root.rename(params, torch.tensor(order), flips)).reshape(2, 2, 2, 2)
        expected = table.permute(0, *(1 + old for old in order)).flip(
            [1 + k for k in range(3) if flips[k]]
        )
        torch.testing.assert_close(renamed, expected)
    if not root.renamable:
        with pytest.raises(ValueError, match="names"):
            root.rename(params, torch.tensor([1, 0, 2]), None)


@every_distribution
def test_starts_lie_inside(name: str) -> None:
    root = root_of(name)
    bits = ALL[torch.tensor([0, 0, 1, 4, 5, 7, 7, 2])]
    for start in (root.start(bits), root.uniform(bits)):
        assert {site: tuple(value.shape) for site, value in start.items()} == {
            s: (1, *shape) for s, shape in root.sites().items()
        }
        for site, prior in root.priors(torch.zeros((), dtype=F64)).items():
            assert bool(prior.support.check(start[site]).all())
    flat = density(root, root.uniform(bits))
    if name != "trait":  # no slope may be zero there
        torch.testing.assert_close(
            flat[flat > 0], torch.full_like(flat[flat > 0], 1 / int((flat > 0).sum()))
        )


def test_the_trait_is_integrated() -> None:
    root = root_of("trait")
    slopes, intercepts = np.array([1.2, 0.7, 2.0]), np.array([-0.5, 0.3, 0.8])
    params = {
        "trait_slopes": torch.tensor(slopes)[None],
        "trait_intercepts": torch.tensor(intercepts)[None],
    }
    for bits, found in zip(ALL.numpy(), density(root, params)[0], strict=True):

        def integrand(theta: float, bits: Any = bits) -> float:
            chances = expit(slopes * theta + intercepts)
            return float(np.prod(np.where(bits > 0, chances, 1 - chances)) * norm.pdf(theta))

        assert abs(quad(integrand, -12, 12)[0] - float(found)) < 1e-6  # the error of 31 nodes


def test_many_attributes_need_no_table() -> None:
    """Twenty attributes: the two ways up agree where both can be gone, and the marginals are those
    of draws.
    """
    many = HigherOrder().root("attributes", 20)
    few = HigherOrder().root("attributes", 4)
    generator = torch.Generator().manual_seed(4)
    truth = {
        "trait_slopes": torch.full((1, 20), 1.2, dtype=F64),
        "trait_intercepts": torch.linspace(-1, 1, 20, dtype=F64)[None],
    }
    latents = many.draw(truth, torch.rand(1, 20, 4000, generator=generator, dtype=F64))
    found = many.start(latents[0].mT)
    for _ in range(60):
        found = many.maximise(many.drawn(latents, latents, 1.0, found), found)
    assert float((found["trait_slopes"] - 1.2).abs().max()) < 0.25
    assert float((many.marginals(found) - latents.mean(-1)).abs().max()) < 1e-3
    four = latents[:, ::5]
    best = few.maximise(few.drawn(four, four, 1.0, few.uniform(four)), few.uniform(four))
    by_nodes = few.uniform(four)
    for _ in range(2000):
        statistic = few._at_nodes(four.mT, torch.ones(1, 4000, dtype=F64), by_nodes)  # type: ignore[attr-defined]
        x = torch.cat([by_nodes["trait_slopes"], by_nodes["trait_intercepts"]], -1)
        slopes, intercepts = ascend(x, *few._by_nodes(statistic), 10.0).chunk(2, -1)  # type: ignore[attr-defined]
        moved = float((slopes - by_nodes["trait_slopes"]).abs().max())
        by_nodes = {"trait_slopes": slopes, "trait_intercepts": intercepts}
        if moved < 1e-6:
            break
    torch.testing.assert_close(by_nodes["trait_slopes"], best["trait_slopes"], rtol=1e-2, atol=1e-2)
    edges = [(k, k + 1) for k in range(19)] + [(k, k + 2) for k in range(18)]
    chain = Dag(edges).root("attributes", 20)
    params = {"conditionals": torch.rand(1, chain.num_free, generator=generator, dtype=F64)}
    drawn = chain.draw(params, torch.rand(1, 20, 40000, generator=generator, dtype=F64))
    assert float((drawn.mean(-1) - chain.marginals(params)).abs().max()) < 5 * (0.25 / 40000) ** 0.5
    line = Hierarchy([(k, k + 1) for k in range(29)]).root("attributes", 30)
    assert line.sites() == {"profiles": (31,)}


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Saturated(0.5), "concentration must be a number of at least 1, got 0.5"),
        (lambda: Hierarchy(((0, 1),), concentration=math.nan), "concentration"),
        (
            lambda: Saturated().root("attributes", 15),
            r"15 attributes make a table of 32,768 profiles.*HigherOrder",
        ),
        (
            lambda: Hierarchy(((0, 1), (1, 2), (2, 0))).root("attributes", 3),
            "0 -> 1 -> 2 -> 0 is a cycle",
        ),
        (lambda: Dag(((3, 1), (1, 2), (2, 3), (0, 1))).root("attributes", 4), "is a cycle"),
        (lambda: Hierarchy(((0, 0),)), "with itself"),
        (lambda: Hierarchy(((0, 1), (0, 1))), "twice"),
        (lambda: Hierarchy("ab"), "pairs of attributes"),
        (lambda: Dag(((0, 1, 2),)), "pairs of attributes"),
        (lambda: Dag(((0, 1.5),)), "1.5"),
        (lambda: Dag(((0, 3),)).root("attributes", 3), "attribute 3 is not among the 3"),
        (lambda: Dag((("a", "b"),)).root("attributes", 2, ("a", "c")), "'b' is not among"),
        (lambda: Dag([(k, 11) for k in range(11)]).root("attributes", 12), "11 parents"),
        (lambda: Hierarchy(((0, 1),)).root("attributes", 16), "more than 16,384"),
        (lambda: HigherOrder().root("attributes", 2), "at least three attributes"),
        (lambda: HigherOrder(2), "num_nodes"),
    ],
)
def test_bad_input(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_names_of_entries() -> None:
    names: Sequence[str] = ("add", "carry", "borrow")
    assert Hierarchy((("add", "carry"), ("carry", "borrow"))).root("a", 3, names).entry_names(
        names
    ) == {"profile": ("none", "add", "add + carry", "all")}
    assert Dag((("add", "borrow"),)).root("a", 3, names).entry_names(names) == {
        "conditional": ("add", "carry", "borrow|add=0", "borrow|add=1")
    }

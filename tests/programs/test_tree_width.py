"""Sums over latents that depend on each other: crossed plates, graphs, and their tree width."""

from __future__ import annotations

import itertools
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from torch import Tensor

from inference import EM, fit
from inference.programs.program import Program
from inference.programs.tree_width import DirectRing, dims_of, elimination_order, with_dims

F64 = torch.float64
POINT = {
    "p": torch.tensor([0.3, 0.7], dtype=F64),
    "q": torch.tensor([0.2, 0.5, 0.3], dtype=F64),
    "chance": torch.tensor([[0.9, 0.2, 0.6], [0.15, 0.7, 0.5]], dtype=F64),
}


def latent_blocks(data: Tensor) -> None:
    """The latent block model of Govaert and Nadif (2003): classes of rows and of columns."""
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
    q = pyro.sample("q", dist.Dirichlet(torch.ones(3)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 3), 1.0).to_event(2))
    rows = pyro.plate("rows", data.shape[0], dim=-2)
    columns = pyro.plate("columns", data.shape[1], dim=-1)
    with rows:
        z = pyro.sample("z", dist.Categorical(p))
    with columns:
        w = pyro.sample("w", dist.Categorical(q))
    with rows, columns:
        pyro.sample("y", dist.Bernoulli(Vindex(chance)[..., z, w]), obs=data)


def by_hand(data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-marginal, and marginals of rows and columns, summed over all configurations."""
    n, m = data.shape
    totals, hot_rows, hot_columns = [], [], []
    for z in itertools.product(range(2), repeat=n):
        for w in itertools.product(range(3), repeat=m):
            chance = POINT["chance"][list(z)][:, list(w)]
            cells = data * chance.log() + (1 - data) * (1 - chance).log()
            total = POINT["p"][list(z)].log().sum() + POINT["q"][list(w)].log().sum()
            totals.append(total + cells.nansum())
            hot_rows.append(torch.eye(2, dtype=F64)[list(z)])
            hot_columns.append(torch.eye(3, dtype=F64)[list(w)])
    weights = torch.stack(totals).softmax(0)
    marginals = [(weights[:, None, None] * torch.stack(h)).sum(0) for h in (hot_rows, hot_columns)]
    return torch.stack(totals).logsumexp(0), marginals[0], marginals[1]


def table(n: int, m: int, seen: float = 1.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    data = torch.bernoulli(torch.full((n, m), 0.5, dtype=F64), generator=generator)
    return data.masked_fill(torch.rand(n, m, generator=generator) > seen, math.nan)


@pytest.mark.parametrize(
    ("n", "m", "seen"), [(4, 3, 1.0), (2, 4, 1.0), (4, 3, 0.5), (1, 3, 1.0), (5, 1, 1.0)]
)
def test_latents_of_crossed_plates_are_summed_jointly(n: int, m: int, seen: float) -> None:
    data = table(n, m, seen)
    program = Program(latent_blocks, data)
    program.check_enumerable()
    total, rows, columns = by_hand(data)
    torch.testing.assert_close(program.log_marginal(POINT), total)
    marginals = program.latent_marginals(POINT)
    torch.testing.assert_close(marginals["z"].reshape(n, 2), rows)
    torch.testing.assert_close(marginals["w"].reshape(m, 3), columns)
    restarts = {name: torch.stack([value, value]) for name, value in POINT.items()}
    torch.testing.assert_close(program.log_marginal(restarts), torch.stack([total, total]))


def blocks_in_rows(data: Tensor) -> None:
    """A table of crossed plates in every row."""
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
    q = pyro.sample("q", dist.Dirichlet(torch.ones(3)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 3), 1.0).to_event(2))
    lines = pyro.plate("lines", data.shape[1], dim=-2)
    columns = pyro.plate("columns", data.shape[2], dim=-1)
    with pyro.plate("rows", len(data), dim=-3):
        with lines:
            z = pyro.sample("z", dist.Categorical(p))
        with columns:
            w = pyro.sample("w", dist.Categorical(q))
        with lines, columns:
            pyro.sample("y", dist.Bernoulli(Vindex(chance)[..., z, w]), obs=data)


def test_restarts_of_crossed_plates_in_rows_are_each_of_them() -> None:
    data = torch.stack([table(2, 3, seed=seed) for seed in range(4)])
    program = Program(blocks_in_rows, data)
    rows = torch.stack([by_hand(table(2, 3, seed=seed))[0] for seed in range(4)])
    torch.testing.assert_close(program.log_marginal_rows(POINT), rows)
    other = {**POINT, "chance": POINT["chance"].flip(0)}
    both = {name: torch.stack([other[name], value]) for name, value in POINT.items()}
    for together in (True, False):
        batch = program.run_as(together).log_marginal_rows(both)
        torch.testing.assert_close(batch[1], rows)
        torch.testing.assert_close(batch[0], program.log_marginal_rows(other))


def test_decoded_latents_of_crossed_plates_are_the_joint_maximum() -> None:
    """Found among all configurations of the rows' and columns' classes."""
    for seed in range(4):
        data = table(4, 3, seen=0.8, seed=seed)
        program = Program(latent_blocks, data)
        best = max(
            float(program.log_joint(POINT, {"z": torch.tensor([z]).mT, "w": torch.tensor(w)}))
            for z in itertools.product(range(2), repeat=4)
            for w in itertools.product(range(3), repeat=3)
        )
        modes = {
            name: mode.reshape(program.site(name).shape)
            for name, mode in program.latent_modes(POINT).items()
        }
        assert float(program.log_joint(POINT, modes)) == pytest.approx(best, abs=1e-12)


def test_draws_of_crossed_latents_have_their_joint_distribution() -> None:
    data = table(3, 2)
    torch.manual_seed(0)
    draws = Program(latent_blocks, data).sample_latents(POINT, 1000)
    _, rows, columns = by_hand(data)
    for drawn, marginal in (
        (draws["z"].reshape(-1, 3), rows),
        (draws["w"].reshape(-1, 2), columns),
    ):
        shares = torch.nn.functional.one_hot(drawn, marginal.shape[1]).to(F64).mean(0)
        torch.testing.assert_close(shares, marginal, atol=0.065, rtol=0)  # 4 standard errors
    with_z0 = draws["z"].reshape(-1, 3)[:, 0] == 1  # P(w_0 | z_0 = 1), by hand with z_0 fixed
    weights = torch.zeros(3, dtype=F64)
    for z in itertools.product(range(2), repeat=2):
        for w in itertools.product(range(3), repeat=2):
            chance = torch.stack([POINT["chance"][k][list(w)] for k in (1, *z)])
            cells = (data * chance.log() + (1 - data) * (1 - chance).log()).sum()
            prior = POINT["p"][list(z)].log().sum() + POINT["q"][list(w)].log().sum()
            weights[w[0]] += (cells + prior).exp()
    shares = torch.nn.functional.one_hot(draws["w"].reshape(-1, 2)[with_z0, 0], 3).to(F64).mean(0)
    torch.testing.assert_close(shares, weights / weights.sum(), atol=0.1, rtol=0)


def test_a_latent_block_model_is_fitted() -> None:
    z, w = torch.arange(30) % 2, torch.arange(6) % 3
    chance = torch.tensor([[0.95, 0.1, 0.5], [0.1, 0.9, 0.05]], dtype=F64)
    data = torch.bernoulli(chance[z][:, w], generator=torch.Generator().manual_seed(1))
    start = {**POINT, "chance": torch.tensor([[0.8, 0.2, 0.6], [0.2, 0.7, 0.2]], dtype=F64)}
    result = fit(latent_blocks, data, EM(max_iterations=200), init=start)
    assert result.trace is not None
    found = result.posterior_latents(data)["z"].argmax(-1)
    assert float((found.reshape(-1) == z).to(F64).mean()) > 0.9


def graph(data: Tensor, pairs: tuple[tuple[int, int], ...]) -> None:
    """A stochastic block model whose pairs of nodes are seen."""
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 2), 1.0).to_event(2))
    nodes = pyro.plate("nodes", 1 + max(map(max, pairs)))
    z = [pyro.sample(f"z_{i}", dist.Categorical(p)) for i in nodes]
    for k in pyro.plate("pairs", len(pairs)):
        i, j = pairs[k]
        pyro.sample(f"y_{k}", dist.Bernoulli(Vindex(chance)[..., z[i], z[j]]), obs=data[k])


def test_a_graph_of_small_tree_width_is_summed() -> None:
    pairs = tuple((i, (i + 1) % 7) for i in range(7)) + ((0, 3),)
    data = table(len(pairs), 1)[:, 0]
    p, chance = POINT["p"], POINT["chance"][:, :2]
    totals = []
    for z in itertools.product(range(2), repeat=7):
        cells = torch.stack([chance[z[i], z[j]] for i, j in pairs])
        seen = (data * cells.log() + (1 - data) * (1 - cells).log()).sum()
        totals.append(p[list(z)].log().sum() + seen)
    program = Program(lambda data: graph(data, pairs), data)
    program.check_enumerable()
    own = program.log_marginal({"p": p, "chance": chance})
    torch.testing.assert_close(own, torch.stack(totals).logsumexp(0))


def of_matrix(data: Tensor) -> None:
    """All pairs of nodes, NaN where a pair is not seen."""
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 2), 1.0).to_event(2))
    z = [pyro.sample(f"z_{i}", dist.Categorical(p)) for i in pyro.plate("nodes", len(data))]
    for i, j in itertools.combinations(range(len(data)), 2):
        fn = dist.Bernoulli(Vindex(chance)[..., z[i], z[j]])
        pyro.sample(f"y_{i}_{j}", fn, obs=data[i, j])


def test_pairs_that_are_not_seen_join_no_latents() -> None:
    """Thirty nodes of all pairs, of which those of a band are seen: width 2, not 29."""
    band = tuple((i, j) for i in range(30) for j in (i + 1, i + 2) if j < 30)
    seen = table(len(band), 1)[:, 0]
    data = torch.full((30, 30), math.nan, dtype=F64)
    for (i, j), value in zip(band, seen, strict=True):
        data[i, j] = value
    point = {"p": POINT["p"], "chance": POINT["chance"][:, :2]}
    whole, alone = Program(of_matrix, data), Program(lambda data: graph(data, band), seen)
    whole.check_enumerable()
    torch.testing.assert_close(whole.log_marginal(point), alone.log_marginal(point))
    of_whole, of_alone = whole.latent_marginals(point), alone.latent_marginals(point)
    torch.testing.assert_close(of_whole, of_alone)
    weights = whole.factor_posteriors(point).weights
    assert weights.keys() == {f"z_{i}" for i in range(30)} | {f"y_{i}_{j}" for i, j in band}


def test_a_latent_of_another_row_is_refused_with_its_remedy() -> None:
    def of_edges(data: Tensor, first: Tensor, second: Tensor) -> None:
        p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
        chance = pyro.sample("chance", dist.Beta(torch.ones(2, 2), 1.0).to_event(2))
        with pyro.plate("nodes", 4):
            z = pyro.sample("z", dist.Categorical(p))
        with pyro.plate("pairs", len(data)):
            pyro.sample("y", dist.Bernoulli(chance[z[first], z[second]]), obs=data)

    pairs = torch.tensor([[0, 1], [1, 2], [2, 3]]).mT
    with pytest.raises(
        ValueError, match=r"the latent of another row, cannot be taken from a plate"
    ):
        fit(of_edges, (torch.ones(3, dtype=F64), *pairs))


def test_a_path_of_thirty_nodes_is_summed_and_a_clique_refused_with_its_width() -> None:
    path = tuple((i, i + 1) for i in range(29))
    own = Program(lambda data: graph(data, path), torch.ones(29, dtype=F64))
    point = {"p": POINT["p"], "chance": POINT["chance"][:, :2]}
    forward = point["p"]
    for _ in range(29):
        forward = (forward @ point["chance"]) * point["p"]
    torch.testing.assert_close(own.log_marginal(point), forward.sum().log())
    clique = tuple(itertools.combinations(range(30), 2))
    with pytest.raises(ValueError, match=r"30 latents .* \(tree width 29\).*1,073,741,824 entries"):
        fit(lambda data: graph(data, clique), torch.ones(len(clique), dtype=F64))


def test_more_latents_than_dims_are_refused_with_the_remedy() -> None:
    path = tuple((i, i + 1) for i in range(79))
    with pytest.raises(ValueError, match=r"a dim of its own, of which PyTorch has 64.*pyro.markov"):
        fit(lambda data: graph(data, path), torch.ones(79, dtype=F64))


def test_crossed_plates_too_large_are_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="'z', 'w' are too large: .*tree width.*observe fewer"):
        fit(latent_blocks, torch.ones(20, 16, dtype=F64))
    monkeypatch.setattr("inference.programs.tree_width.MOST_FACTORS", 2)
    with pytest.raises(ValueError, match="crossed plates 'columns' and 'rows'"):
        fit(latent_blocks, torch.ones(3, 4, dtype=F64))


@pytest.mark.parametrize(
    ("edges", "width"),
    [
        ([(i, i + 1) for i in range(9)], 1),
        ([(i, (i + 1) % 9) for i in range(9)], 2),
        (list(itertools.combinations(range(6), 2)), 5),
        ([(i, i + 1) for i in range(9) if i % 3 < 2] + [(i, i + 3) for i in range(6)], 3),
    ],
)
def test_the_order_of_sums_has_the_tree_width_of_the_graph(
    edges: list[tuple[int, int]], width: int
) -> None:
    """Of a path, a cycle, a clique, and a grid of three by three nodes."""
    factors = [frozenset(chr(97 + node) for node in edge) for edge in edges]
    latents = frozenset[str]().union(*factors)
    _, most, entries = elimination_order(factors, latents, dict.fromkeys(latents, 2))
    assert (most, entries) == (width + 1, 2 ** (width + 1))


def test_densities_without_a_latent_to_sum_out_are_added_as_they_are():
    one, other = (with_dims(torch.randn(2, 3), dims) for dims in ("ba", "bc"))
    ring = DirectRing(dim_to_size={"a": 3, "b": 2, "c": 3})
    assert ring.sumproduct([one], {"c"}) is one
    both = ring.sumproduct([one, other], set())
    assert dims_of(both) == "abc"
    assert torch.equal(both, one.mT.unsqueeze(-1) + other)
    summed = ring.sumproduct([one, other], {"b"})
    torch.testing.assert_close(summed, both.logsumexp(1))

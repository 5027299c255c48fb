"""Response families against torch's own distributions; missing entries; mixed items; no cube of
rows, items, configurations.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from support.largest_tensor import LargestTensor
from support.small_encoders import name_of
from torch import Tensor
from torch.distributions import Distribution

import ppl_models.parts.responses as responses
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.responses import Bernoulli, LogNormal, Normal, Poisson, ResponseFamily

F64 = torch.float64
NUM_ITEMS = 6
FAMILIES: dict[str, ResponseFamily] = {
    "Bernoulli": Bernoulli(),
    "Poisson": Poisson(),
    "Normal": Normal(),
    "LogNormal": LogNormal(),
    "Blocks": Blocks((Normal(), 1), (Bernoulli(), 2), (LogNormal(), 2), (Poisson(), 1)),
}
COLUMNS = {name: (name,) * NUM_ITEMS for name in FAMILIES} | {
    "Blocks": ("Normal", "Bernoulli", "Bernoulli", "LogNormal", "LogNormal", "Poisson")
}
every_family = pytest.mark.parametrize("name", FAMILIES)
elementary = pytest.mark.parametrize("name", [name for name in FAMILIES if name != "Blocks"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def close(actual: Any, expected: Any, tolerance: float = 1e-11) -> None:
    actual, expected = (torch.as_tensor(value, dtype=F64).detach() for value in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def reference(column: str, eta: Tensor, gamma: Tensor | None) -> Distribution:
    """One item, by torch."""
    if column == "Bernoulli":
        return torch.distributions.Bernoulli(logits=eta, validate_args=False)
    if column == "Poisson":
        return torch.distributions.Poisson(eta.exp(), validate_args=False)
    assert gamma is not None
    kind = {"Normal": torch.distributions.Normal, "LogNormal": torch.distributions.LogNormal}[
        column
    ]
    return kind(eta, gamma.sqrt(), validate_args=False)


def item_log_density(name: str, x: Tensor, eta: Tensor, dispersion: Tensor | None) -> Tensor:
    """(..., J), column by column; 0 where x is missing."""
    out, dispersed = [], 0
    for j, column in enumerate(COLUMNS[name]):
        gamma = None
        if column in ("Normal", "LogNormal"):
            assert dispersion is not None
            gamma, dispersed = dispersion[..., dispersed], dispersed + 1
        filled = x[..., j].nan_to_num(nan=1.0)
        out.append(reference(column, eta[..., j], gamma).log_prob(filled) * ~x[..., j].isnan())
    return torch.stack(out, -1)


@functools.cache
def case(
    name: str, num_rows: int = 7, missing: bool = False, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Data (N, J), the predictor of every row (N, J), and the dispersion."""
    eta = normal(num_rows, NUM_ITEMS, seed=seed)
    num = FAMILIES[name].num_dispersed(NUM_ITEMS)
    dispersion = 0.5 + normal(num, seed=seed + 1).square() if num else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 2)
        x = FAMILIES[name].draw(eta, dispersion)
        if missing:
            x = x.masked_fill(torch.rand(x.shape) < 0.4, math.nan)
            x[0] = math.nan  # a row without any entry
            assert bool(x.isnan().any())
    return x, eta, dispersion


def linear(num_latents: int = 3, seed: int = 3, restarts: int | None = None) -> LinearPredictor:
    """Every configuration of the latents, against loadings and intercepts (with restarts in front
    of the rows).
    """
    lead = () if restarts is None else (restarts, 1)
    latents = binary_configurations(num_latents).reshape(
        2**num_latents, *[1] * max(1, len(lead)), num_latents
    )
    return LinearPredictor(
        latents,
        normal(*lead, NUM_ITEMS, num_latents, seed=seed),
        normal(*lead, NUM_ITEMS, seed=seed + 1),
    )


# ---------------------------------------------------------------- densities


@every_family
@pytest.mark.parametrize("missing", [False, True])
def test_the_density_is_that_of_independent_items(name: str, missing: bool) -> None:
    x, eta, dispersion = case(name, missing=missing)
    response = ItemResponse(FAMILIES[name], eta, dispersion)
    assert (response.batch_shape, response.event_shape) == ((7,), (NUM_ITEMS,))
    close(response.log_prob(x), item_log_density(name, x, eta, dispersion).sum(-1))


@every_family
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("restarts", [None, 3])
def test_the_density_against_enumerated_predictors(
    name: str, missing: bool, restarts: int | None
) -> None:
    x, _, dispersion = case(name, missing=missing)
    predictor = linear(restarts=restarts)
    if dispersion is not None and restarts is not None:
        dispersion = dispersion * torch.tensor([0.5, 1.0, 2.0], dtype=F64).reshape(3, 1, 1)
    shape = (8, 7) if restarts is None else (8, 3, 7)
    eta = predictor.tensor()
    weights, bias = predictor.loadings, predictor.intercepts
    close(
        eta,
        torch.einsum(
            "...k,...jk->...j",
            predictor.latents,
            weights.expand(*eta.shape[:-1], *weights.shape[-2:]),
        )
        + bias,
    )
    expected = item_log_density(name, x, eta, dispersion).sum(-1)
    for form in (predictor, eta):
        response = ItemResponse(FAMILIES[name], form, dispersion)
        density = response.log_prob(x)
        assert density.shape == shape
        close(density, expected)
        plated = response.expand(torch.Size(shape))
        assert plated.eta is response.eta  # no copy
        close(plated.log_prob(x), expected)


@every_family
def test_a_missing_entry_drops_out_exactly(name: str) -> None:
    """The density with NaN is bit for bit independent of what might stand there, and a sum over
    what is seen.
    """
    x, eta, dispersion = case(name)
    full = item_log_density(name, x, eta, dispersion)
    for j in range(NUM_ITEMS):
        gone = x.clone()
        gone[:, j] = math.nan
        expected = full.sum(-1) - full[:, j]
        close(ItemResponse(FAMILIES[name], eta, dispersion).log_prob(gone), expected, 1e-10)
    nothing = torch.full_like(x, math.nan)
    assert bool((ItemResponse(FAMILIES[name], eta, dispersion).log_prob(nothing) == 0).all())


@every_family
def test_a_mask_hides_whatever_stands_under_it(name: str) -> None:
    """The parts of the density, asked for with a mask over valid values, as held-out entries
    are.
    """
    x, eta, dispersion = case(name)
    hidden = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.4
    response = ItemResponse(FAMILIES[name], eta, dispersion)
    inner, log_partition, base = response.log_prob_terms(x, (~hidden).to(F64))
    close(inner - log_partition + base, response.log_prob(x.masked_fill(hidden, math.nan)))


@every_family
def test_gradients_are_those_of_the_sum_also_where_entries_are_missing(name: str) -> None:
    x, _, dispersion = case(name, missing=True)
    predictor = linear()
    leaves = [predictor.loadings.requires_grad_(), predictor.intercepts.requires_grad_()]
    if dispersion is not None:
        dispersion = dispersion.clone().requires_grad_()
        leaves.append(dispersion)
    weight = normal(8, 7, seed=9)
    ours = torch.autograd.grad(
        (weight * ItemResponse(FAMILIES[name], predictor, dispersion).log_prob(x)).sum(), leaves
    )
    expected = item_log_density(name, x, predictor.tensor(), dispersion).sum(-1)
    theirs = torch.autograd.grad((weight * expected).sum(), leaves)
    for one, two in zip(ours, theirs, strict=True):
        assert bool(torch.isfinite(one).all())
        close(one, two, 1e-9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.floats(-25, 25),
    st.integers(0, 60),
    st.floats(1e-3, 1e3),
    st.sampled_from(sorted(set(FAMILIES) - {"Blocks"})),
)
def test_far_predictors_and_dispersions(eta: float, count: int, gamma: float, name: str) -> None:
    x = torch.full(
        (1, 1),
        float(count % 2 if name == "Bernoulli" else count + (name == "LogNormal")),
        dtype=F64,
    )
    predictor = torch.full((1, 1), eta, dtype=F64)
    dispersion = torch.full((1,), gamma, dtype=F64) if FAMILIES[name].num_dispersed(1) else None
    expected = reference(
        name, predictor[:, 0], None if dispersion is None else dispersion[0]
    ).log_prob(x[:, 0])
    found = ItemResponse(FAMILIES[name], predictor, dispersion).log_prob(x)
    scale = (
        1.0 + (eta**2 + float(FAMILIES[name].statistic(x)) ** 2) / gamma
        if dispersion is not None
        else 1.0
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-9 + 1e-13 * scale)


@every_family
def test_the_density_is_the_exponential_family_it_claims(name: str) -> None:
    r"""s (T eta - A) + h, with the parts asked for one by one; h does not know the predictor."""
    family = FAMILIES[name]
    x, eta, dispersion = case(name)
    scale = family.scale(dispersion, NUM_ITEMS)
    scale = torch.ones(NUM_ITEMS, dtype=F64) if scale is None else scale
    parts = (scale * (family.statistic(x) * eta - family.log_partition(eta))).sum(-1)
    expected = item_log_density(name, x, eta, dispersion).sum(-1)
    close(parts + family.base_measure(x, torch.ones_like(x), dispersion), expected)


@every_family
def test_mean_and_curvature_are_derivatives_of_the_log_partition(name: str) -> None:
    family, eta = FAMILIES[name], case(name)[1].clone().requires_grad_()
    (first,) = torch.autograd.grad(family.log_partition(eta).sum(), eta, create_graph=True)
    close(first, family.mean(eta))
    (second,) = torch.autograd.grad(first.sum(), eta)
    close(second, family.curvature(eta))
    assert family.is_linear == (name in ("Normal", "LogNormal"))


@every_family
def test_nothing_of_rows_times_items_times_configurations_is_built(name: str) -> None:
    num_rows, num_configurations = 100, 2**6
    x, _, dispersion = case(name, num_rows, missing=True)
    for missing in (False, True):
        value = x if missing else case(name, num_rows)[0]
        predictor = linear(6)
        eta = predictor.tensor()
        for form in (predictor, eta):
            with LargestTensor() as largest:
                ItemResponse(FAMILIES[name], form, dispersion).log_prob(value)
            assert largest.numel <= num_rows * num_configurations
    assert (
        num_rows * num_configurations < num_rows * num_configurations * NUM_ITEMS
    )  # what the naive sum would take


@every_family
def test_single_precision_stays_single(name: str) -> None:
    x, eta, dispersion = case(name, missing=True)
    low = None if dispersion is None else dispersion.float()
    density = ItemResponse(FAMILIES[name], eta.float(), low).log_prob(x.float())
    assert density.dtype == torch.float32
    torch.testing.assert_close(
        density.double(),
        ItemResponse(FAMILIES[name], eta, dispersion).log_prob(x),
        rtol=1e-4,
        atol=1e-4,
    )


# ---------------------------------------------------------------- draws and expectations


@every_family
def test_draws_have_the_distribution(name: str) -> None:
    """Each item against its own distribution: Kolmogorov-Smirnov where it is continuous, cell
    counts where it is discrete.
    """
    size = 3000
    eta = 0.5 * normal(NUM_ITEMS, seed=4)
    dispersion = case(name)[2]
    response = ItemResponse(FAMILIES[name], eta, dispersion).expand(torch.Size([size]))
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = response.sample()
        assert draws.shape == (size, NUM_ITEMS)
        assert draws.dtype == F64
        dispersed = 0
        for j, column in enumerate(COLUMNS[name]):
            values = draws[:, j].numpy()
            if column in ("Normal", "LogNormal"):
                assert dispersion is not None
                spread, dispersed = math.sqrt(dispersion[dispersed]), dispersed + 1
                logs = values if column == "Normal" else np.log(values)
                assert stats.kstest(logs, "norm", (float(eta[j]), spread)).pvalue > 1e-6
            else:
                distribution = (
                    stats.bernoulli(1 / (1 + math.exp(-eta[j])))
                    if column == "Bernoulli"
                    else stats.poisson(math.exp(eta[j]))
                )
                expected = size * distribution.pmf(np.arange(30))
                counts = np.bincount(values.astype(int), minlength=30)[:30]
                cells = expected > 8
                score = (counts - expected)[cells] / np.sqrt(expected[cells])
                assert np.abs(score).max() < 5.5
    assert response.sample(torch.Size([2])).shape == (2, size, NUM_ITEMS)


@every_family
def test_the_expected_response_is_the_mean_of_torch(name: str) -> None:
    _, eta, dispersion = case(name)
    found = ItemResponse(FAMILIES[name], eta, dispersion).mean
    dispersed = 0
    for j, column in enumerate(COLUMNS[name]):
        gamma = None
        if column in ("Normal", "LogNormal"):
            assert dispersion is not None
            gamma, dispersed = dispersion[dispersed], dispersed + 1
        close(found[:, j], reference(column, eta[:, j], gamma).mean)


@every_family
def test_linearise_inverts_the_mean(name: str) -> None:
    family, eta = FAMILIES[name], case(name)[1]
    close(family.linearise(family.mean(eta), 1e-6), eta, 1e-9)
    low = torch.full((1, NUM_ITEMS), -5.0 if name in ("Bernoulli", "Poisson") else 0.0, dtype=F64)
    assert bool(torch.isfinite(family.linearise(low, 1e-3)).all())


def test_linearise_clips_into_the_range() -> None:
    means = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 2.0]], dtype=F64)
    edge = math.log(0.999 / 0.001)
    close(
        Bernoulli().linearise(means, 1e-3),
        torch.tensor([[-edge, -edge, 0.0, edge, edge]], dtype=F64),
    )
    close(Poisson().linearise(means, 1e-3)[0, :2], torch.full((2,), math.log(1e-3), dtype=F64))


# ---------------------------------------------------------------- missing entries and blocks


def test_filled_puts_valid_values_where_entries_are_missing() -> None:
    x, _, _ = case("Blocks", missing=True)
    complete, mask = responses.filled(FAMILIES["Blocks"], x)
    assert mask is not None
    assert torch.equal(mask, (~x.isnan()).to(F64))
    assert torch.equal(complete[mask.bool()], x[mask.bool()])
    for family, columns, _ in FAMILIES["Blocks"].blocks(NUM_ITEMS):
        assert family.problem(complete[:, columns].reshape(-1)) is None
    whole, no_mask = responses.filled(FAMILIES["Blocks"], case("Blocks")[0])
    assert no_mask is None
    assert whole is case("Blocks")[0]  # not copied


def test_blocks_partition_columns_and_dispersion() -> None:
    family = FAMILIES["Blocks"]
    parts = family.blocks(NUM_ITEMS)
    assert [(type(f).__name__, c.start, c.stop, d.start, d.stop) for f, c, d in parts] == [
        ("Normal", 0, 1, 0, 1),
        ("Bernoulli", 1, 3, 1, 1),
        ("LogNormal", 3, 5, 1, 3),
        ("Poisson", 5, 6, 3, 3),
    ]
    assert family.num_dispersed(NUM_ITEMS) == 3
    assert family.bound == Normal().bound
    assert Blocks((Bernoulli(), 3), (Poisson(), 3)).bound == Bernoulli().bound
    assert Blocks((Bernoulli(), 3), (Poisson(), 3)).scale(None, 6) is None
    scale = family.scale(torch.tensor([2.0, 4.0, 8.0], dtype=F64), NUM_ITEMS)
    close(scale, torch.tensor([0.5, 1.0, 1.0, 0.25, 0.125, 1.0], dtype=F64))


def test_blocks_of_one_family_are_that_family() -> None:
    x, eta, dispersion = case("Normal", missing=True)
    split = Blocks((Normal(), 2), (Normal(), 4))
    close(
        ItemResponse(split, eta, dispersion).log_prob(x),
        ItemResponse(Normal(), eta, dispersion).log_prob(x),
    )
    assert split == Blocks((Normal(), 2), (Normal(), 4))
    assert split != Blocks((Normal(), 4), (Normal(), 2))
    assert hash(split) == hash(Blocks((Normal(), 2), (Normal(), 4)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "at least one"),
        (((Bernoulli(), 0),), "num_columns must be a positive integer, got 0"),
        (((Bernoulli(), 2.0),), "num_columns must be a positive integer, got 2.0"),
        (((Bernoulli(), 2, 3),), "each part is a pair"),
        ((("bernoulli", 2),), "each part is a pair"),
        (((Blocks((Bernoulli(), 2)), 2),), "each part is a pair"),
    ],
)
def test_parts_that_are_no_blocks_are_refused(parts: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"Blocks: .*{message}"):
        Blocks(*parts)


def test_a_wrong_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the parts hold 6 columns, but there are num_items = 5"):
        FAMILIES["Blocks"].blocks(5)


# ---------------------------------------------------------------- what a family says of data


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("Bernoulli", [0.0, 1.0, 2.0], "values 0 and 1, found 2"),
        ("Bernoulli", [0.0, 0.5], "found 0.5"),
        ("Bernoulli", [-1.0, 1.0], "found -1"),
        ("Poisson", [3.0, -2.0], "negative value -2"),
        ("Poisson", [3.0, 1.5], "whole counts, found 1.5"),
        ("LogNormal", [1.0, 0.0], "positive, found 0"),
        ("LogNormal", [1.0, -3.0], "positive, found -3"),
    ],
)
def test_values_outside_the_range_are_named(name: str, values: list[float], message: str) -> None:
    problem = FAMILIES[name].problem(torch.tensor(values, dtype=F64))
    assert problem is not None
    assert message in problem


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Bernoulli", [0.0, 1.0]),
        ("Poisson", [0.0, 7.0]),
        ("Normal", [-1e9, 0.0, 2.5]),
        ("LogNormal", [1e-9, 1e9]),
    ],
)
def test_values_inside_the_range_are_no_problem(name: str, values: list[float]) -> None:
    assert FAMILIES[name].problem(torch.tensor(values, dtype=F64)) is None


def test_a_family_must_define_its_parts() -> None:
    class Unfinished(ResponseFamily):
        pass

    eta = torch.zeros(1, 2)
    for ask in (Unfinished().log_partition, Unfinished().mean, Unfinished().curvature):
        with pytest.raises(NotImplementedError, match="Unfinished does not define"):
            ask(eta)
    with pytest.raises(NotImplementedError, match="Unfinished does not define draw"):
        Unfinished().draw(eta, None)


@elementary
def test_a_family_is_a_value(name: str) -> None:
    """Frozen, hashable, equal to another of its kind: part of a model that is a dataclass of
    settings.
    """
    family = FAMILIES[name]
    assert family == type(family)()
    assert hash(family) == hash(type(family)())
    assert family.num_dispersed(4) == (4 if name in ("Normal", "LogNormal") else 0)
    others = [other for key, other in FAMILIES.items() if key != name]
    assert family not in others


# ---------------------------------------------------------------- increments


@pytest.mark.parametrize("kind", [torch.float32, F64], ids=str)
def test_increments_as_products_keep_their_digits(kind):
    """Log-odds are sums over children; the error of the products is that of a sum of so many
    numbers, at any size.
    """
    generator = torch.Generator().manual_seed(0)
    for size in (1.0, 6.0, 25.0, 100.0):
        eta = (2 * torch.rand(2, 90, 50, generator=generator, dtype=F64) - 1) * 3 * size
        step = (2 * torch.rand(2, 90, 1, generator=generator, dtype=F64) - 1) * size
        mask = (torch.rand(90, 50, generator=generator) < 0.9).to(F64)
        exact = (
            (Bernoulli().log_partition(eta + step) - Bernoulli().log_partition(eta)) * mask
        ).sum(1)
        found = Bernoulli().total_increment(step.to(kind))(eta.to(kind), mask.to(kind)).to(F64)
        assert (found - exact).abs().max() < 90 * 3 * size * 8 * torch.finfo(kind).eps


@pytest.mark.parametrize("response", [Bernoulli(), Poisson(), Normal()], ids=name_of)
def test_increments_are_differences_of_the_log_partition(response):
    generator = torch.Generator().manual_seed(1)
    eta, step, scale = (torch.randn(2, 5, n, generator=generator, dtype=F64) for n in (7, 1, 1))
    scale = None if isinstance(response, Bernoulli) else scale.exp()
    change = response.log_partition(eta + step) - response.log_partition(eta)
    expected = (change if scale is None else change * scale).sum(1)
    assert torch.allclose(response.total_increment(step, scale)(eta, None), expected, atol=1e-12)

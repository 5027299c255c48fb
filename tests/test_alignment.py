"""Permutation, sign and recovery metrics: random relabellings are undone, and never change the likelihood."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from inference.alignment import align
from inference.base.relabelling import match_columns
from inference.metrics import (
    empty_graph_accuracy,
    graph_accuracy,
    graph_f1,
    mean_squared_error,
    rmse,
    support_bias,
    trimmed_rmse,
)
from inference.structures.layers.alignment import align_layers, canonical_signs, relabel
from ppl_models.descriptions.layers import GeneralizedLinearLayer, RootLayer
from ppl_models.parts.responses import Bernoulli

SIZES = {1: (6, 3), 2: (7, 4, 2), 3: (7, 4, 3, 2)}
Relabelling = tuple[dict[str, Tensor], dict[str, Tensor]]


def describe(sizes: tuple[int, ...], graphs: dict[int, Tensor] | None = None) -> tuple[list, RootLayer]:
    layers = [
        GeneralizedLinearLayer(
            loadings=f"loadings_{d}",
            intercepts=f"intercepts_{d}",
            parent=f"latents_{d}",
            child="items" if d == 1 else f"latents_{d - 1}",
            num_children=sizes[d - 1],
            num_parents=sizes[d],
            response=Bernoulli(),
            dispersion=None,
            penalty=None,
            graph=(graphs or {}).get(d),
            bound=15.0,
        )
        for d in range(1, len(sizes))
    ]
    return layers, RootLayer("proportions", f"latents_{len(sizes) - 1}", sizes[-1])


def draw_params(sizes: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    kind = {"dtype": torch.float64, "generator": generator}
    params = {"proportions": torch.rand(sizes[-1], **kind)}
    for d in range(1, len(sizes)):
        params[f"loadings_{d}"] = 2 * torch.randn(sizes[d - 1], sizes[d], **kind)
        params[f"intercepts_{d}"] = torch.randn(sizes[d - 1], **kind)
    return params


def draw_relabelling(sizes: tuple[int, ...], generator: torch.Generator) -> Relabelling:
    permutations = {f"latents_{d}": torch.randperm(sizes[d], generator=generator) for d in range(1, len(sizes))}
    flips = {f"latents_{d}": torch.rand(sizes[d], generator=generator) < 0.5 for d in range(1, len(sizes))}
    return permutations, flips


def log_likelihood(params: dict[str, Tensor], items: Tensor) -> Tensor:
    """Bernoulli deep discrete encoder by brute force over every configuration of every layer, in plain loops."""
    num_layers = sum(name.startswith("loadings_") for name in params)
    sizes = [params[f"loadings_{d}"].shape[1] for d in range(1, num_layers + 1)]
    total = torch.zeros(len(items), dtype=torch.float64)
    for codes in itertools.product(*(itertools.product((0.0, 1.0), repeat=k) for k in sizes)):
        latents = [torch.tensor(code, dtype=torch.float64) for code in codes]
        pi = params["proportions"]
        weight = torch.where(latents[-1] == 1, pi, 1 - pi).prod()
        for d in range(num_layers, 1, -1):
            p = torch.sigmoid(params[f"intercepts_{d}"] + params[f"loadings_{d}"] @ latents[d - 1])
            weight = weight * torch.where(latents[d - 2] == 1, p, 1 - p).prod()
        p = torch.sigmoid(params["intercepts_1"] + params["loadings_1"] @ latents[0])
        total = total + weight * torch.where(items == 1, p, 1 - p).prod(-1)
    return total.log()


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


seeds = st.integers(0, 2**31 - 1)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_align_undoes_any_relabelling(seed: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layers, root = describe(SIZES[depth])
    truth = draw_params(SIZES[depth], generator)
    other = relabel(truth, layers, root, *draw_relabelling(SIZES[depth], generator))
    aligned = align_layers(other, truth, layers, root)
    assert largest_difference(aligned.params, truth) < 1e-12
    assert aligned.cost < 1e-20


@settings(max_examples=6, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_relabelling_leaves_the_likelihood_unchanged(seed: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = {1: (5, 3), 2: (5, 3, 2), 3: (5, 3, 2, 1)}[depth]
    layers, root = describe(sizes)
    params = draw_params(sizes, generator)
    items = torch.tensor(list(itertools.product((0.0, 1.0), repeat=5)), dtype=torch.float64)
    before = log_likelihood(params, items)
    assert before.exp().sum() == pytest.approx(1)
    permutations, flips = draw_relabelling(sizes, generator)
    after = relabel(params, layers, root, permutations, flips)
    assert (log_likelihood(after, items) - before).abs().max() < 1e-10
    canonical = canonical_signs(params, layers, root)
    assert (log_likelihood(canonical.params, items) - before).abs().max() < 1e-10


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_a_single_flip_follows_the_formula(layer: int) -> None:
    sizes, k = SIZES[3], 1
    layers, root = describe(sizes)
    params = draw_params(sizes, torch.Generator().manual_seed(layer))
    expected = {name: value.clone() for name, value in params.items()}
    expected[f"intercepts_{layer}"] += params[f"loadings_{layer}"][:, k]
    expected[f"loadings_{layer}"][:, k] *= -1
    if layer < 3:
        expected[f"intercepts_{layer + 1}"][k] *= -1
        expected[f"loadings_{layer + 1}"][k] *= -1
    else:
        expected["proportions"][k] = 1 - params["proportions"][k]
    flips = {f"latents_{layer}": torch.arange(sizes[layer]) == k}
    assert largest_difference(relabel(params, layers, root, {}, flips), expected) == 0


def test_align_finds_labels_under_noise_and_reports_its_cost() -> None:
    layers, root = describe(SIZES[2])
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        truth = draw_params(SIZES[2], generator)
        noisy = {name: value + 1e-3 * torch.randn(value.shape, generator=generator) for name, value in truth.items()}
        permutations, flips = draw_relabelling(SIZES[2], generator)
        aligned = align_layers(relabel(noisy, layers, root, permutations, flips), truth, layers, root)
        assert largest_difference(aligned.params, noisy) < 1e-12
        cost = sum(float((noisy[f"loadings_{d}"] - truth[f"loadings_{d}"]).square().sum()) for d in (1, 2))
        assert aligned.cost == pytest.approx(cost)
        for site in permutations:
            assert torch.equal(permutations[site][aligned.permutations[site]], torch.arange(len(permutations[site])))


def test_without_signs_nothing_is_flipped() -> None:
    layers, root = describe(SIZES[2])
    truth = draw_params(SIZES[2], torch.Generator().manual_seed(0))
    flipped = relabel(truth, layers, root, {}, {"latents_1": torch.tensor([True, False, True, False])})
    aligned = align_layers(flipped, truth, layers, root, signs=False)
    assert not any(flips.any() for flips in aligned.flips.values())
    assert aligned.cost > 1
    for site in ("loadings_1", "loadings_2"):
        assert torch.equal(aligned.params[site].abs().sum(), flipped[site].abs().sum())


def test_a_given_graph_names_the_latents() -> None:
    graph = torch.tensor([[1, 1], [1, 0], [0, 1]]).bool()
    free, root = describe((3, 2))
    given, _ = describe((3, 2), {1: graph})
    alike, _ = describe((3, 2), {1: torch.ones(3, 2).bool()})
    rest = {"intercepts_1": torch.zeros(3), "proportions": torch.full((2,), 0.5)}
    truth = rest | {"loadings_1": torch.tensor([[5.0, 1.0], [0.1, 0.0], [0.0, 0.1]])}
    estimate = rest | {"loadings_1": torch.tensor([[1.0, 5.0], [0.1, 0.0], [0.0, 0.1]])}  # values swapped, not edges
    assert align_layers(estimate, truth, free, root).permutations["latents_1"].tolist() == [1, 0]
    assert align_layers(estimate, truth, alike, root).permutations["latents_1"].tolist() == [1, 0]
    assert align_layers(estimate, truth, given, root).permutations["latents_1"].tolist() == [0, 1]
    # a graph whose latents all were renamed: the edges decide, not the values
    renamed, _ = describe((3, 2), {1: graph[:, [1, 0]]})
    swapped = align_layers(relabel(estimate, free, root, {"latents_1": torch.tensor([1, 0])}, {}), truth, renamed, root)
    assert swapped.permutations["latents_1"].tolist() == [0, 1]


def test_leading_dims_share_one_relabelling() -> None:
    layers, root = describe(SIZES[2])
    generator = torch.Generator().manual_seed(3)
    draws = [draw_params(SIZES[2], generator) for _ in range(3)]
    how = draw_relabelling(SIZES[2], generator)
    stacked = relabel({name: torch.stack([d[name] for d in draws]) for name in draws[0]}, layers, root, *how)
    for i, one in enumerate(draws):
        assert largest_difference(relabel(one, layers, root, *how), {k: v[i] for k, v in stacked.items()}) == 0


def test_align_accepts_fits_and_dicts_and_relabels_latents() -> None:
    sizes = SIZES[2]
    layers, root = describe(sizes)
    model = SimpleNamespace(layers=lambda: tuple(layers), root=lambda: root)
    generator = torch.Generator().manual_seed(5)
    truth = draw_params(sizes, generator) | {"dispersion": torch.ones(2, dtype=torch.float64)}
    permutations, flips = draw_relabelling(sizes, generator)
    fit = SimpleNamespace(model=model, params=relabel(truth, layers, root, permutations, flips))
    by_dict = align(fit, truth)
    by_fit = align(fit, SimpleNamespace(model=model, params=truth))
    assert largest_difference(by_dict.params, truth) < 1e-12
    assert largest_difference(by_fit.params, truth) < 1e-12

    probs = torch.rand(9, sizes[1], dtype=torch.float64, generator=generator)
    shown = torch.where(
        flips["latents_1"], 1 - probs[:, permutations["latents_1"]], probs[:, permutations["latents_1"]]
    )
    assert (by_dict.apply_latents({"latents_1": shown})["latents_1"] - probs).abs().max() < 1e-15
    bits = shown > 0.5
    assert torch.equal(by_dict.apply_latents({"latents_1": bits})["latents_1"], probs > 0.5)
    with pytest.raises(ValueError, match=r"'latents_1', 'latents_2'.*got 'items'"):
        by_dict.apply_latents({"items": probs})
    with pytest.raises(ValueError, match=r"latents_2 must have shape \(\.\.\., 2\), got \(9, 4\)"):
        by_dict.apply_latents({"latents_2": probs})


# ---------------------------------------------------------------- columns


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_columns=st.integers(1, 5), num_extra=st.integers(0, 2), signs=st.booleans())
def test_match_columns_agrees_with_every_assignment(seed: int, num_columns: int, num_extra: int, signs: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    estimate = torch.randn(4, num_columns + num_extra, dtype=torch.float64, generator=generator)
    reference = torch.randn(4, num_columns, dtype=torch.float64, generator=generator)
    matching = match_columns(estimate, reference, signs)
    costs = []
    for chosen in itertools.permutations(range(num_columns + num_extra), num_columns):
        picked = estimate[:, list(chosen)]
        as_is, negated = (picked - reference).square().sum(0), (picked + reference).square().sum(0)
        costs.append(float((torch.minimum(as_is, negated) if signs else as_is).sum()))
    assert matching.cost == pytest.approx(min(costs))
    moved = torch.where(matching.flips, -1.0, 1.0) * estimate[:, matching.permutation]
    assert float((moved - reference).square().sum()) == pytest.approx(matching.cost)


# ---------------------------------------------------------------- signs


@settings(max_examples=30, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_conventions_hold_in_every_layer_and_are_idempotent(seed: int, depth: int) -> None:
    layers, root = describe(SIZES[depth])
    params = draw_params(SIZES[depth], torch.Generator().manual_seed(seed))
    by_sum, by_first = (canonical_signs(params, layers, root, c) for c in ("column_sum", "first"))
    for layer in layers:
        assert (by_sum.params[layer.loadings].sum(0) > 0).all()
        assert (by_first.params[layer.loadings][0] > 0).all()
    again = canonical_signs(by_sum.params, layers, root)
    assert largest_difference(again.params, by_sum.params) == 0
    assert largest_difference(canonical_signs(params, layers, root, "as_is").params, params) == 0
    back = align_layers(by_first.params, params, layers, root)
    assert largest_difference(back.params, params) < 1e-12


def test_a_zero_sum_is_decided_by_the_first_nonzero_entry() -> None:
    layers, root = describe((3, 3))
    params = {
        "loadings_1": torch.tensor([[0.0, 1, 0], [-2, -1, 0], [2, 0, 0]], dtype=torch.float64),
        "intercepts_1": torch.zeros(3, dtype=torch.float64),
        "proportions": torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64),
    }
    aligned = canonical_signs(params, layers, root)
    assert aligned.flips["latents_1"].tolist() == [True, False, False]
    assert aligned.params["loadings_1"][:, 0].tolist() == [0, 2, -2]
    assert aligned.params["intercepts_1"].tolist() == [0, -2, 2]
    assert aligned.params["proportions"].tolist() == pytest.approx([0.8, 0.5, 0.7])


# ---------------------------------------------------------------- metrics


def test_metrics_on_hand_computed_values() -> None:
    layers, _ = describe((3, 2, 1))
    truth = {
        "loadings_1": torch.tensor([[1.0, 0], [0, 2], [0, -3]], dtype=torch.float64),
        "loadings_2": torch.tensor([[4.0], [0]], dtype=torch.float64),
    }
    estimate = {
        "loadings_1": torch.tensor([[0.5, 0], [0.2, 2], [0, 0.1]], dtype=torch.float64),
        "loadings_2": torch.tensor([[3.0], [0.3]], dtype=torch.float64),
    }
    # edges at threshold 0.2: (0,0) (1,0) (1,1) | (0,0) (1,0); true: (0,0) (1,1) (2,1) | (0,0): three wrong of eight
    assert graph_accuracy(estimate, truth, layers, threshold=0.2) == pytest.approx(5 / 8)
    assert graph_accuracy(estimate, truth, layers[1:], threshold=0.2) == pytest.approx(1 / 2)
    assert graph_f1(estimate, truth, layers, threshold=0.2) == pytest.approx(2 * 3 / (5 + 4))
    assert graph_accuracy(estimate, truth, layers) == pytest.approx(6 / 8)  # threshold 0: every nonzero is an edge
    assert empty_graph_accuracy(truth, layers) == pytest.approx(4 / 8)
    # squares: .25 + .04 + 3.1^2 + 1 + .09
    assert mean_squared_error(estimate, truth) == pytest.approx((0.25 + 0.04 + 9.61 + 1 + 0.09) / 8)
    assert rmse(estimate, truth) == pytest.approx(math.sqrt(10.99 / 8))
    # on the edges: -.5, 0, -(0.1 + 3), -1
    assert support_bias(estimate, truth, layers) == pytest.approx((-0.5 + 0 - 3.1 - 1) / 4)
    assert graph_accuracy(truth, truth, layers) == 1
    assert graph_f1(truth, truth, layers) == 1
    nothing = {name: torch.zeros_like(value) for name, value in truth.items()}
    assert graph_f1(nothing, truth, layers) == 0
    assert graph_f1(nothing, nothing, layers) == 1


def test_trimmed_rmse_by_hand() -> None:
    # median 3, absolute deviations 2 1 0 1 97, MAD 1, cut 4.4478: only 100 is dropped
    result = trimmed_rmse([1.0, 2.0, 3.0, 4.0, 100.0])
    assert result.trimmed == pytest.approx(math.sqrt(2.5))
    assert result.untrimmed == pytest.approx(math.sqrt(22))
    assert result.num_dropped == 1
    one = trimmed_rmse(torch.tensor([4.0]))
    assert (one.trimmed, one.untrimmed, one.num_dropped) == (2.0, 2.0, 0)


# ---------------------------------------------------------------- bad input


def test_bad_input_is_refused_by_name() -> None:
    layers, root = describe(SIZES[2])
    params = draw_params(SIZES[2], torch.Generator().manual_seed(0))
    short = params | {"loadings_2": params["loadings_2"][:, :1]}
    with pytest.raises(ValueError, match=r"reference: loadings_2 must have shape \(4, 2\), got \(4, 1\)"):
        align_layers(params, short, layers, root)
    with pytest.raises(ValueError, match=r"params: loadings_2 must have shape \(4, 2\), got \(4, 1\)"):
        align_layers(short, params, layers, root)
    leading = {name: value[None] for name, value in params.items()}
    with pytest.raises(ValueError, match=r"params: loadings_1 must have shape \(7, 4\), got \(1, 7, 4\)"):
        align_layers(leading, params, layers, root)
    missing = {name: value for name, value in params.items() if name != "proportions"}
    with pytest.raises(ValueError, match="'proportions' of shape .* got NoneType"):
        align_layers(missing, params, layers, root)
    with pytest.raises(ValueError, match="reference: a tensor 'loadings_1'"):
        align_layers(params, {}, layers, root)
    with pytest.raises(ValueError, match="intercepts_1 must be finite"):
        align_layers(params | {"intercepts_1": params["intercepts_1"] / 0}, params, layers, root)
    with pytest.raises(ValueError, match="at least one layer"):
        align_layers(params, params, [], root)
    with pytest.raises(ValueError, match="convention must be .* got 'sum'"):
        canonical_signs(params, layers, root, "sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"layers\(\) and root\(\) was expected"):
        align(SimpleNamespace(model=object(), params=params), params)
    model = SimpleNamespace(layers=lambda: layers, root=lambda: root)
    with pytest.raises(ValueError, match="reference must be a fit or a dict of parameters, got int"):
        align(SimpleNamespace(model=model, params=params), 3)


def test_bad_input_of_matching_and_metrics() -> None:
    matrix = torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="at least 2 columns"):
        match_columns(matrix[:, :1], matrix)
    with pytest.raises(ValueError, match="must have 4 rows"):
        match_columns(matrix[:3], matrix)
    with pytest.raises(ValueError, match="estimate must be finite"):
        match_columns(matrix * math.nan, matrix)
    with pytest.raises(ValueError, match="reference must be a matrix"):
        match_columns(matrix, matrix[0])
    layers, _ = describe((4, 2))
    with pytest.raises(ValueError, match="threshold must not be negative"):
        graph_accuracy({"loadings_1": matrix}, {"loadings_1": matrix}, layers, -1.0)
    with pytest.raises(ValueError, match="loadings_1 must have the truth's shape"):
        graph_f1({"loadings_1": matrix.mT}, {"loadings_1": matrix}, layers)
    with pytest.raises(ValueError, match="truth must hold the site 'loadings_1'"):
        empty_graph_accuracy({}, layers)
    with pytest.raises(ValueError, match="truth must have an edge"):
        support_bias({"loadings_1": matrix}, {"loadings_1": 0 * matrix}, layers)
    with pytest.raises(ValueError, match="must hold the sites"):
        mean_squared_error({"loadings_1": matrix}, {"loadings_2": matrix})
    for errors in ([], [-1.0], [math.nan], [[1.0]]):
        with pytest.raises(ValueError, match="trimmed_rmse"):
            trimmed_rmse(errors)

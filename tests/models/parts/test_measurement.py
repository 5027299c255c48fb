"""Items that depend on products of attributes: what the forms have in common, their labels, starts,
conditions and errors.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from support.measured_items import SINGLE, diagnosis, encoder, random_params, simulated
from zoo.rows_measurement import LONG, PAIRS, Q

from inference import EM, SAEM, fit
from inference.fitting.export import to_arviz
from inference.identifiability import check_graph, check_identifiability
from inference.programs.program import Program
from inference.structures.layers.align import canonical_signs, relabel
from inference.uncertainty import standard_errors
from ppl_models import (
    Additive,
    Bernoulli,
    DeepDiscreteEncoder,
    ExpDINA,
    ExpGDM,
    Normal,
    TruncatedLasso,
)

F64 = torch.float64


# ---------------------------------------------------------------- the forms among themselves


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpGDM(), ExpGDM(order=1)], ids=repr)
def test_one_attribute_an_item_is_the_additive_model(bottom: Any) -> None:
    product, additive = encoder(SINGLE, bottom), encoder(SINGLE, Additive())
    params = random_params(additive) | {"intercepts_1": torch.linspace(-2.0, -1.0, 9, dtype=F64)}
    params["loadings_1"] = 3.0 * torch.tensor(SINGLE, dtype=F64)
    data = simulated(additive, params, 400)
    rows = [Program(model, data).log_marginal_rows(params) for model in (product, additive)]
    torch.testing.assert_close(*rows, rtol=1e-12, atol=1e-12)
    fits = [fit(model, data, EM(), init=params) for model in (product, additive)]
    for name, value in fits[0].params.items():
        torch.testing.assert_close(value, fits[1].params[name], rtol=1e-3, atol=1e-3)
    assert fits[0].log_likelihood == pytest.approx(fits[1].log_likelihood, abs=1e-5)
    assert fits[0].num_parameters == fits[1].num_parameters == 21


def test_main_effects_alone_are_the_additive_model() -> None:
    product, additive = (
        encoder(LONG, ExpGDM(order=1), Normal()),
        encoder(LONG, Additive(), Normal()),
    )
    params = random_params(additive)
    data = simulated(additive, params, 50)
    rows = [Program(model, data).log_marginal_rows(params) for model in (product, additive)]
    torch.testing.assert_close(*rows, rtol=1e-12, atol=1e-12)


def test_a_conjunction_is_a_restricted_general_model() -> None:
    """With no other coefficient than that of all attributes the general model is the conjunctive
    one, and fits no worse.
    """
    model, truth, data = diagnosis(600)
    general = encoder(LONG, ExpGDM())
    columns = list(general.subset_dims["term_1"][1])
    loadings = torch.zeros(12, len(columns), dtype=F64)
    for j, row in enumerate(LONG):
        own = tuple(k for k, edge in enumerate(row) if edge)
        loadings[j, columns.index(own)] = 3.0
    embedded = truth | {"loadings_1": loadings}
    one = Program(model, data).log_marginal_rows(truth)
    torch.testing.assert_close(
        one, Program(general, data).log_marginal_rows(embedded), rtol=1e-12, atol=1e-12
    )
    small = fit(model, data)
    large = fit(general, data, EM(), init=embedded)
    assert large.log_likelihood > small.log_likelihood - 1e-6
    assert (small.num_parameters, large.num_parameters) == (27, 33)


def test_shapes_names_and_dims() -> None:
    model = encoder(Q, ExpGDM())
    assert model.subset_dims == {"term_1": ("latent_1", ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)))}
    assert model.site_dims["loadings_1"] == ("item", "term_1")
    assert encoder(Q, ExpDINA()).subset_dims["term_1"][1] == ((0,), (1,), (0, 1), (0, 2), (1, 2))
    model, _, data = diagnosis(300)
    posterior = to_arviz(fit(model, data), data, names={"latent_1": ["add", "carry", "borrow"]})[
        "posterior"
    ]
    names = list(posterior["loadings_1"].coords["term_1"].values)
    assert names == ["add", "carry", "borrow", "add*carry", "add*borrow", "carry*borrow"]


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("response", [Bernoulli(), Normal()], ids=repr)
def test_with_every_interaction_values_have_other_names(response: Any) -> None:
    model = encoder(((1, 1, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1)), ExpGDM(), response)
    layers, root = model.layers(), model.root_layer()
    params = random_params(model)
    data = simulated(model, params, 40)
    expected = Program(model, data).log_marginal_rows(params)
    for flips in itertools.product((False, True), repeat=3):
        flip = {"latents_1": torch.tensor(flips)}
        named = relabel(params, layers, root, {}, flip)
        torch.testing.assert_close(
            Program(model, data).log_marginal_rows(named), expected, rtol=1e-10, atol=1e-10
        )
        back = relabel(named, layers, root, {}, flip)
        for name, value in back.items():
            torch.testing.assert_close(value, params[name], rtol=1e-10, atol=1e-10)
        signed = canonical_signs(named, layers, root).params
        assert bool((layers[0].effects(signed["loadings_1"]).sum(0) > 0).all())


# ---------------------------------------------------------------- engines


def test_stochastic_em_agrees_with_exact_em() -> None:
    model, _, data = diagnosis(800)
    exact = fit(model, data)
    sampled = fit(model, data, SAEM(max_iterations=300), seed=1)
    assert sampled.log_likelihood > exact.log_likelihood - 1.0
    guesses = [model.guess_slip(result.params) for result in (exact, sampled)]
    assert float((guesses[0] - guesses[1]).abs().max()) < 0.05


def test_a_fit_without_settings_finds_guessing_and_slipping() -> None:
    model, truth, data = diagnosis()
    result = fit(model, data)
    assert result.restarts.num_tried == 4
    assert result.restarts.num_reached >= 2
    estimate, error = standard_errors(result, data).delta(model.guess_slip)
    expected = model.guess_slip(truth)
    torch.testing.assert_close(expected[0], torch.sigmoid(torch.tensor([-1.4, -1.6], dtype=F64)))
    score = (estimate - expected) / error
    assert float(score.abs().max()) < 4.5  # 24 normal scores
    assert 0.6 < float(score.square().mean().sqrt()) < 1.5
    codes = result.decode_latents(data)["latents_1"]
    assert codes.shape == (1500, 3)


# ---------------------------------------------------------------- identifiability


def random_graphs(count: int, num_items: int, num_latents: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out: list[np.ndarray] = []
    while len(out) < count:
        exclusive = np.repeat(
            np.eye(num_latents, dtype=int), rng.integers(1, 6, num_latents), axis=0
        )
        others = rng.integers(0, 2, (max(0, num_items - len(exclusive)), num_latents))
        graph = np.concatenate([exclusive, others[others.any(1)]])
        out.append(rng.permutation(graph))
    return out


def holds_by_definition(graph: np.ndarray, table: np.ndarray) -> bool:
    """A and B': for some choice of two exclusive items a latent, the others tell any two
    configurations apart.
    """
    exclusive = [
        np.flatnonzero((graph.sum(1) == 1) & (graph[:, k] == 1)) for k in range(graph.shape[1])
    ]
    pairs = [list(itertools.combinations(own, 2)) for own in exclusive]
    for choice in itertools.product(*pairs):
        rest = np.setdiff1d(np.arange(len(graph)), np.array(choice).ravel())
        if all(
            np.abs(table[a, rest] - table[b, rest]).max(initial=0.0) > 1e-9
            for a, b in itertools.combinations(range(len(table)), 2)
        ):
            return True
    return False


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpGDM(), ExpGDM(order=1)], ids=repr)
def test_the_verdict_of_a_fit_is_that_of_the_definition(bottom: Any) -> None:
    verdicts = []
    for seed, graph in enumerate(random_graphs(25, 9, 3, seed=4)):
        model = encoder(graph.tolist(), bottom)
        params = random_params(model, seed)
        layer = model.layers()[0]
        codes = np.array(list(itertools.product((0, 1), repeat=3)))
        columns = [codes[:, list(subset)].prod(1) for subset in model.subset_dims["term_1"][1]]
        table = (
            np.stack(columns, 1) @ params["loadings_1"].numpy().T + params["intercepts_1"].numpy()
        )
        report = check_identifiability(params, layers=[layer])
        strict = report.verdict == "strict"
        assert strict == holds_by_definition(graph, table)
        verdicts.append(strict)
        highest = [
            table[(codes @ graph[j] < graph[j].sum()), j].max() < table[-1, j]
            for j in range(len(graph))
        ]
        broken = [v.children for v in report.layers[0].violations if v.kind == "not the highest"]
        assert broken == (
            [] if all(highest) else [tuple(j for j, fine in enumerate(highest) if not fine)]
        )
        if layer.form == "dina":
            assert report.layers[0].decision == check_graph(graph, bottom="dina").decision
    assert 3 < sum(verdicts) < 22  # both answers occur


def cell_rank(model: Any, params: dict[str, torch.Tensor]) -> tuple[int, int]:
    """Rank of the derivatives of all cell probabilities, and the number of parameters."""
    cells = torch.tensor(list(itertools.product((0.0, 1.0), repeat=model.num_items)), dtype=F64)
    free = model.layers()[0].graph
    program = Program(model, cells)

    def probabilities(vector: torch.Tensor) -> torch.Tensor:
        k, j = model.latent_sizes[0], model.num_items
        loadings = torch.zeros(free.shape, dtype=F64).masked_scatter(free, vector[k + j :])
        values = {
            "proportions": vector[:k].sigmoid(),
            "intercepts_1": vector[k : k + j],
            "loadings_1": loadings,
        }
        return program.log_marginal_rows(values).exp()

    start = torch.cat(
        [params["proportions"].logit(), params["intercepts_1"], params["loadings_1"][free]]
    )
    jacobian = torch.autograd.functional.jacobian(probabilities, start)
    scaled = jacobian / jacobian.norm(dim=0)
    values = torch.linalg.svdvals(scaled)
    return int((values > 1e-8 * values[0]).sum()), len(start)


def test_a_strict_verdict_means_full_rank() -> None:
    for bottom in (ExpDINA(), ExpGDM()):
        model = encoder((*PAIRS[:6], (1, 1), (1, 1)), bottom)
        params = random_params(model, 3)
        assert check_identifiability(params, layers=model.layers()).verdict == "strict"
        rank, size = cell_rank(model, params)
        assert rank == size
    poor = encoder(((1, 0), (0, 1), (1, 1)), ExpGDM())
    rank, size = cell_rank(poor, random_params(poor, 3))
    assert rank < size
    assert (
        check_identifiability(random_params(poor, 3), layers=poor.layers()).verdict
        == "not established"
    )


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bottom": ExpDINA()}, "needs the graph of the items.*got None"),
        ({"bottom": ExpGDM(), "graphs": (None,)}, "needs the graph of the items"),
        (
            {"bottom": ExpDINA(), "graphs": (((1, 0), (0, 1), (0, 0)),)},
            "item 2 asks for no attribute",
        ),
        ({"bottom": ExpDINA(), "graphs": (((1, 0), (0, 1), (0, 2)),)}, "only 0 and 1"),
        ({"bottom": ExpDINA(), "graphs": (((1, 0), (0, 1)),)}, r"shape \(3, 2\), got \(2, 2\)"),
        ({"bottom": ExpDINA(), "graphs": (((1, 0), (1, 0), (1, 0)),)}, "latent 1 has no edge"),
        ({"bottom": ExpDINA, "graphs": (((1, 0), (0, 1), (1, 1)),)}, "bottom must be Additive"),
        ({"bottom": "dina", "graphs": (((1, 0), (0, 1), (1, 1)),)}, "bottom must be Additive"),
        (
            {
                "bottom": ExpGDM(),
                "graphs": (((1, 0), (0, 1), (1, 1)),),
                "penalty": TruncatedLasso(1.0, 0.1),
            },
            "penalty=None was expected",
        ),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)DeepDiscreteEncoder.*{message}"):
        DeepDiscreteEncoder(3, (2,), **settings)


def test_too_many_attributes_of_one_item_are_named() -> None:
    graph = np.ones((12, 11), dtype=int)
    with pytest.raises(ValueError, match="item 0: 11 attributes make 2,048 coefficients"):
        encoder(graph, ExpGDM())
    assert encoder(graph, ExpGDM(order=1)).layers()[0].num_features == 11
    assert encoder(graph, ExpDINA()).layers()[0].num_features == 1


@pytest.mark.parametrize("order", [0, -1, 1.5, True])
def test_an_order_is_a_positive_integer(order: Any) -> None:
    with pytest.raises(ValueError, match="order must be a positive integer"):
        ExpGDM(order=order)


def test_guessing_and_slipping_need_conjunctions_and_0_1_answers() -> None:
    with pytest.raises(ValueError, match="ExpDINA"):
        encoder(Q, ExpGDM()).guess_slip({})
    with pytest.raises(ValueError, match="Bernoulli items were expected"):
        encoder(Q, ExpDINA(), Normal()).guess_slip(random_params(encoder(Q, ExpDINA(), Normal())))

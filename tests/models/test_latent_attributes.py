"""Latent attribute models: what an independent root costs, equal models, names, Q found by a
penalty, many attributes, bad input.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from inference import EM, SAEM, fit
from inference.fitting.problem import problem_of
from inference.inspection import item_curves, item_rules
from inference.inspection.attributes import rises
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import (
    Additive,
    Bernoulli,
    Blocks,
    Dag,
    DeepDiscreteEncoder,
    ExpDINA,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    LogNormal,
    Normal,
    Saturated,
    ToBeChosen,
    TruncatedLasso,
)
from ppl_models.data.tables import ColumnsWarning
from ppl_models.matrix_factorization import PoissonFactorization

F64 = torch.float64
PURE = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
Q = (*PURE, *PURE, *PURE, *PURE, (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1))
TOGETHER = torch.tensor(
    [0.32, 0.04, 0.05, 0.07, 0.03, 0.05, 0.06, 0.38], dtype=F64
)  # who has one attribute has the others


def truth_of(model: LatentAttributeModel, size: float = 3.0, **root: Tensor) -> dict[str, Tensor]:
    """Each item moves by ``size`` from none to all of its attributes."""
    layer = model.layers()[0]
    uses = layer.graph.to(F64) if layer.graph is not None else torch.zeros(0)
    loadings = size * uses / uses.sum(-1, keepdim=True)
    truth = {"loadings": loadings, "intercepts": -loadings.sum(-1) / 2} | root
    if layer.dispersion is not None:
        truth["dispersion"] = torch.ones(
            model.response.num_dispersed(layer.num_children), dtype=F64
        )
    return truth


def simulated(
    model: LatentAttributeModel, truth: dict[str, Tensor], num_rows: int, seed: int = 0
) -> dict[str, Tensor]:
    return Program(model, None, num_rows).simulate(truth, seed)


@pytest.mark.parametrize("items", ["dina", "additive"])
def test_independence_costs_nats_where_attributes_go_together(items: str) -> None:
    """A saturated root finds the truth; an independent one is far below, and so is told from it by
    every criterion.
    """
    model = LatentAttributeModel(Q, items=items)
    truth = truth_of(model, profiles=TOGETHER)
    drawn = simulated(model, truth, 1500)
    saturated = fit(model, drawn["items"], EM(tolerance=1e-7), num_restarts=2)
    independent = fit(
        LatentAttributeModel(Q, items=items, root=Independent()),
        drawn["items"],
        EM(tolerance=1e-7),
        num_restarts=2,
    )
    trait = fit(
        LatentAttributeModel(Q, items=items, root=HigherOrder()),
        drawn["items"],
        EM(tolerance=1e-7),
        num_restarts=2,
    )
    assert saturated.log_likelihood - independent.log_likelihood > 200
    assert (
        0 <= saturated.log_likelihood - trait.log_likelihood < 10
    )  # one trait is nearly the truth here, with one parameter less
    assert saturated.num_parameters - trait.num_parameters == 7 - 6
    assert float((saturated.params["profiles"] - TOGETHER).abs().max()) < 0.05
    found = saturated.posterior_latents(drawn["items"])["attributes"]
    assert float(((found > 0.5) == (drawn["attributes"] > 0.5)).to(F64).mean()) > 0.93


def test_items_with_one_attribute_are_the_same_under_every_rule() -> None:
    """The likelihood does not know the rule, nor that a disjunction was meant."""
    data = simulated(
        LatentAttributeModel(PURE * 2),
        truth_of(LatentAttributeModel(PURE * 2), profiles=TOGETHER),
        60,
    )["items"]
    values = []
    for rule in ("additive", "dina", "dino", "gdm", ("dina", "dino", "gdm") * 2):
        model = LatentAttributeModel(PURE * 2, items=rule)
        values.append(float(Program(model, data).log_marginal(truth_of(model, profiles=TOGETHER))))
    assert np.ptp(values) < 1e-9


def test_the_base_measure_is_kept() -> None:
    normal, positive = LatentAttributeModel(Q, Normal()), LatentAttributeModel(Q, LogNormal())
    truth = truth_of(normal, profiles=TOGETHER)
    data = simulated(positive, truth, 40)["items"]
    ours, logs = (
        Program(positive, data).log_marginal(truth),
        Program(normal, data.log()).log_marginal(truth),
    )
    torch.testing.assert_close(ours, logs - data.log().sum())


def test_dino_is_dina_with_the_values_exchanged() -> None:
    """1 - prod (1 - a_k): an item that any attribute solves is one that fails only where all are
    lacking.
    """
    dina, dino = LatentAttributeModel(Q, items="dina"), LatentAttributeModel(Q, items="dino")
    truth = truth_of(dina, profiles=TOGETHER)
    mirrored = {
        "profiles": TOGETHER.flip(0),
        "loadings": -truth_of(dino)["loadings"],
        "intercepts": truth["intercepts"] + truth["loadings"].sum(-1),
    }
    data = simulated(dina, truth, 50)["items"]
    torch.testing.assert_close(
        Program(dino, data).log_marginal(mirrored), Program(dina, data).log_marginal(truth)
    )


def test_guessing_and_slipping() -> None:
    model = LatentAttributeModel(Q, items="dina")
    truth = truth_of(model, profiles=TOGETHER)
    pairs = model.guess_slip(truth)
    torch.testing.assert_close(pairs, torch.sigmoid(torch.full((16, 2), -1.5, dtype=F64)))
    everyone = model.expected_responses(truth, torch.ones(1, 3))
    torch.testing.assert_close(1 - everyone[0], pairs[:, 1])
    with pytest.raises(ValueError, match="Bernoulli items were expected"):
        LatentAttributeModel(Q, Normal()).guess_slip(truth)


def test_names_of_a_frame_reach_arviz() -> None:
    names = ["add", "carry", "borrow"]
    frame = pd.DataFrame(Q, columns=names, index=[f"item {j}" for j in range(16)])
    rules = ("additive",) * 12 + ("dina", "dino", "gdm", "dina")
    model = LatentAttributeModel(frame, items=rules, root=Dag((("add", "carry"),)))
    assert model.attribute_names == tuple(names)
    data = simulated(
        model, truth_of(model, conditionals=torch.tensor([0.5, 0.3, 0.7, 0.4], dtype=F64)), 200
    )["items"]
    table = pd.DataFrame(data.numpy(), columns=frame.index)
    result = fit(model, table, EM(tolerance=1e-5), num_restarts=1)
    idata = result.to_arviz(table)
    posterior = idata["posterior"]
    assert list(idata["latent_posterior"]["attribute"].values) == names
    assert list(posterior["conditional"].values) == ["add", "carry|add=0", "carry|add=1", "borrow"]
    assert {"add*carry", "carry or borrow", "add*borrow", "add*carry*borrow"} < set(
        posterior["feature"].values
    )
    mixed = model.check_data(table[list(frame.index[::-1])])
    assert mixed[1] == tuple(frame.index)  # found by name
    assert torch.equal(mixed[0], model.check_data(table)[0])
    with pytest.warns(
        ColumnsWarning, match="does not know the columns 'school', which are left out"
    ):
        assert torch.equal(model.check_data(table.assign(school="north"))[0], mixed[0])
    with pytest.raises(ValueError, match="none is named 'item 3'"):
        model.check_data(table.drop(columns="item 3"))


def test_a_matrix_from_a_file_has_the_names_of_its_items_in_its_first_column() -> None:
    """Failed before: "a table (items, attributes) of 0 and 1" was expected, and the whole table
    written out.
    """
    frame = pd.DataFrame(
        Q, columns=["add", "carry", "borrow"], index=[f"item {j}" for j in range(16)]
    )
    assert LatentAttributeModel(frame.reset_index()) == LatentAttributeModel(frame)


def test_a_penalty_finds_the_matrix() -> None:
    true = LatentAttributeModel(Q, Normal())
    truth = truth_of(true, 4.0, profiles=TOGETHER)
    data = simulated(true, truth, 800)["items"]
    model = LatentAttributeModel(
        num_attributes=3, num_items=16, response=Normal(), penalty=TruncatedLasso(20.0, 0.3)
    )
    result = fit(model, data)
    found = result.params["loadings"].abs() > 0.3
    orders = [
        list(order) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    ]
    assert any(torch.equal(found[:, order], torch.tensor(Q).bool()) for order in orders)
    assert model.restricted([found.long()]).q_matrix is not None


@pytest.mark.parametrize(
    ("response", "root", "effect"),
    [(Normal(), Saturated(), 3.0), (Bernoulli(), HigherOrder(), 4.0)],
    ids=["saturated", "trait"],
)
def test_a_plain_fit_finds_the_matrix(response: Any, root: Any, effect: float) -> None:
    """No penalty is named: Q, and an estimate on it without shrinkage, up to the order of the
    attributes.
    """
    true = LatentAttributeModel(Q, response)
    data = simulated(true, truth_of(true, effect, profiles=TOGETHER), 1500)["items"]
    result = fit(
        LatentAttributeModel(num_attributes=3, num_items=16, response=response, root=root), data
    )
    model = result.model
    assert model.q_estimated
    assert model.penalty is None
    assert result.choice is not None
    assert torch.equal(result.graphs["loadings"], torch.tensor(model.q_matrix))
    orders = [
        order
        for order in itertools.permutations(range(3))
        if [[row[k] for k in order] for row in model.q_matrix] == [list(row) for row in Q]
    ]
    assert len(orders) == 1
    known = fit(LatentAttributeModel(Q, response, root=root), data)
    assert result.log_likelihood == pytest.approx(known.log_likelihood, abs=0.05)
    own = result.params["loadings"][:, list(orders[0])]
    assert float((own - known.params["loadings"][:, :3]).abs().max()) < 0.02
    assert known.model.layers()[0].terms is not None  # with names of its own
    assert model.layers()[0].estimated


def test_an_item_of_nothing_keeps_one_attribute() -> None:
    """A matrix that is found is one that could be given: no row is empty, and the table of profiles
    does not make edges cheap.
    """
    true = LatentAttributeModel(Q, Normal())
    data = simulated(true, truth_of(true, 3.0, profiles=TOGETHER), 800)["items"]
    data[:, 4] = torch.randn(800, generator=torch.Generator().manual_seed(5), dtype=F64)
    found = fit(
        LatentAttributeModel(num_attributes=3, num_items=16, response=Normal()), data
    ).model.q_matrix
    assert sum(found[4]) == 1
    LatentAttributeModel(found)


def test_a_penalty_that_is_left_open_is_none_for_a_named_method() -> None:
    open_, without = (
        LatentAttributeModel(num_attributes=2, num_items=6, penalty=penalty)
        for penalty in (ToBeChosen(), None)
    )
    assert open_.layers()[0].penalty is None
    data = (torch.rand(50, 6, generator=torch.Generator().manual_seed(1), dtype=F64) < 0.5).to(F64)
    short = EM(max_iterations=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (
            fit(open_, data, short, num_restarts=1).objective
            == fit(without, data, short, num_restarts=1).objective
        )


@pytest.mark.parametrize(
    "root",
    [HigherOrder(), Dag([(0, 1), (1, 2)]), Independent(), Saturated(), Hierarchy([(0, 1)])],
    ids=lambda root: type(root).__name__,
)
def test_sweeps_of_several_restarts_take_every_root(root: Any) -> None:
    """Right-wrong items are swept in single precision; the root's own numbers are double."""
    model = LatentAttributeModel(Q, items="dina", root=root)
    data = simulated(
        LatentAttributeModel(Q, items="dina"),
        truth_of(LatentAttributeModel(Q, items="dina"), profiles=TOGETHER),
        150,
    )["items"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(model, data, SAEM(max_iterations=15), num_restarts=3)
    assert math.isfinite(result.log_likelihood)


@pytest.mark.parametrize(
    "root",
    [
        HigherOrder(),
        Dag([(0, k) for k in range(1, 16)]),
        Hierarchy([(k, k + 1) for k in range(15)]),
    ],
    ids=["trait", "dag", "line"],
)
@pytest.mark.slow
def test_sixteen_attributes(root: Any) -> None:
    """Beyond what a table holds: SAEM, or EM on the few profiles of a hierarchy."""
    identity = np.eye(16, dtype=int)
    model = LatentAttributeModel(np.concatenate([identity] * 3), Normal(), root=root)
    root_params = (
        {
            "trait_slopes": torch.full((16,), 1.5, dtype=F64),
            "trait_intercepts": torch.zeros(16, dtype=F64),
        }
        if isinstance(root, HigherOrder)
        else {
            "conditionals": torch.tensor([0.5, *[0.2, 0.8] * 15], dtype=F64),
        }
        if isinstance(root, Dag)
        else {"profiles": torch.full((17,), 1 / 17, dtype=F64)}
    )
    drawn = simulated(model, truth_of(model, 4.0, **root_params), 300)
    problem = problem_of(model, drawn["items"], 0)
    method = problem.structure.recommended(problem).method
    assert isinstance(method, EM if isinstance(root, Hierarchy) else SAEM)
    few = method if isinstance(method, EM) else SAEM(max_iterations=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(model, drawn["items"], few, num_restarts=1)
    assert float((result.params["loadings"] - truth_of(model, 4.0)["loadings"]).abs().max()) < 0.8
    chances = model.root_layer().marginals(result.params)
    assert float((chances - drawn["attributes"].to(F64).mean(0)).abs().max()) < 0.05


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"q_matrix": [[1, 0], [0, 0], [0, 1]]}, "q_matrix: item 1 asks for no attribute"),
        (
            {"num_attributes": 2, "num_items": 4, "q_estimated": True},
            "q_estimated=True says where a q_matrix comes from",
        ),
        (
            {"q_matrix": [[1, 0], [0, 1]], "q_estimated": True, "items": "dina"},
            "items='additive' alone",
        ),
        ({"q_matrix": [[1, 0], [0, 1]], "q_estimated": 1}, "q_estimated"),
        (
            {"q_matrix": [[1, 0], [0, 1]], "q_estimated": True, "root": Hierarchy([(0, 1)])},
            "speaks of certain attributes",
        ),
        ({"q_matrix": [[1, 0], [1, 0]]}, "q_matrix: attribute 1 is asked for by no item"),
        (
            {"q_matrix": pd.DataFrame([[1, 0], [1, 0]], columns=["a", "b"])},
            "attribute 'b' is asked for by no item",
        ),
        ({"q_matrix": [[1, 0], [2, 1]]}, "0 and 1, got 2 for item 1, attribute 0"),
        ({"q_matrix": [[1, math.nan], [0, 1]]}, "got nan for item 0, attribute 1"),
        ({"q_matrix": [1, 0, 1]}, r"got shape \(3,\)"),
        ({"q_matrix": [["x", "y"]]}, "0 and 1, got"),
        ({"q_matrix": [[1, 1, 0], [0, 1, 1]]}, "more attributes than items"),
        ({"q_matrix": Q, "num_items": 15}, r"num_items = 15, but q_matrix has shape \(16, 3\)"),
        ({"q_matrix": Q, "penalty": TruncatedLasso(1.0, 0.1)}, "penalty=None was expected"),
        ({"q_matrix": np.eye(15)}, "15 attributes make a table.*HigherOrder"),
        ({"q_matrix": Q, "items": "dena"}, "one of 'additive', .*got 'dena'"),
        ({"q_matrix": Q, "items": ExpDINA}, "rule of an item"),
        ({"q_matrix": Q, "items": ("dina", "dino")}, "one for each of 16 items, got 2"),
        ({"q_matrix": Q, "response": PoissonFactorization(3, 2)}, "response must be"),
        ({"q_matrix": Q, "response": Blocks((Bernoulli(), 3))}, "3 columns"),
        ({"q_matrix": Q, "root": Saturated}, r"root must be Saturated\(\)"),
        ({"q_matrix": Q, "root": "independent"}, "root must be"),
        ({"q_matrix": Q, "root": Hierarchy(((0, 1), (1, 0)))}, "0 -> 1 -> 0 is a cycle"),
        ({"q_matrix": Q, "root": Dag(((0, 1), (1, 2), (2, 0)))}, "is a cycle"),
        ({"q_matrix": Q, "root": Dag(((0, 3),))}, "attribute 3"),
        ({"q_matrix": Q, "bound": -1.0}, "bound must be positive"),
        (
            {"q_matrix": Q, "attribute_names": ("a", "b")},
            "attribute_names must hold 3 different names",
        ),
        ({"num_items": 4}, "give q_matrix, or num_attributes"),
        ({"num_attributes": 3, "num_items": 2}, "exceeds num_items"),
        ({"num_attributes": 0, "num_items": 2}, "positive integer"),
        ({"num_attributes": 2, "num_items": 6, "items": "dina"}, "need the q_matrix"),
        (
            {"num_attributes": 2, "num_items": 6, "root": Hierarchy(((0, 1),))},
            "without a q_matrix none has a name",
        ),
    ],
)
def test_bad_input(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        LatentAttributeModel(**arguments)


def test_responses_outside_the_support() -> None:
    with pytest.raises(ValueError, match="Bernoulli items take the values 0 and 1, found 2"):
        fit(LatentAttributeModel(Q), torch.randint(0, 3, (30, 16)))


def test_rules_in_words_and_records() -> None:
    assert LatentAttributeModel(Q, items=[Additive()] * 16).rules == LatentAttributeModel(Q).rules
    assert LatentAttributeModel(torch.tensor(Q)) == LatentAttributeModel(np.array(Q, dtype=bool))


CHAIN = Hierarchy(((0, 1), (1, 2)))


def test_saturated_items_of_a_hierarchy_are_classes_with_chances_of_their_own() -> None:
    """Against EM of latent classes, in which an item has a chance for each of its profiles that
    there are.
    """
    matrix = [*np.eye(3, dtype=int).tolist() * 2, [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    model = LatentAttributeModel(matrix, items="saturated", root=CHAIN, bound=15.0)
    profiles = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    rng = np.random.default_rng(3)
    have = (profiles[rng.choice(4, 600, p=[0.3, 0.2, 0.2, 0.3])] @ np.transpose(matrix)) / np.sum(
        matrix, 1
    )
    data = (rng.random(have.shape) < 0.15 + 0.7 * have).astype(float)
    found = fit(
        model, torch.from_numpy(data), EM(tolerance=1e-10, parameter_tolerance=1e-6), num_restarts=1
    )
    groups = [
        np.unique(profiles[:, np.array(row) > 0], axis=0, return_inverse=True)[1].ravel()
        for row in matrix
    ]
    share = np.full(4, 0.25)
    chance = 0.2 + 0.6 * (profiles @ np.transpose(matrix)) / np.sum(matrix, 1)  # (profiles, items)
    for _ in range(3000):
        joint = np.log(share) + data @ np.log(chance.T) + (1 - data) @ np.log(1 - chance.T)
        total = np.logaddexp.reduce(joint, 1)
        posterior = np.exp(joint - total[:, None])
        share = posterior.mean(0)
        for j, group in enumerate(groups):
            inside = np.eye(group.max() + 1)[group]
            weight = posterior @ inside
            chance[:, j] = inside @ ((weight * data[:, [j]]).sum(0) / weight.sum(0))
    assert found.log_likelihood == pytest.approx(total.sum(), abs=1e-4)
    assert found.num_parameters == 3 + sum(int(group.max()) + 1 for group in groups)
    fitted = model.expected_responses(found.params, torch.from_numpy(profiles))
    assert np.allclose(fitted.numpy(), chance, atol=2e-3)
    errors = standard_errors(found, torch.from_numpy(data)).standard_errors["loadings"]
    assert torch.equal(torch.isfinite(errors), model.layers()[0].graph)


def test_what_is_asked_of_saturated_items_keeps_to_the_profiles_of_the_hierarchy() -> None:
    """Simpler rules, curves, reversals and the comparison with a free table."""
    matrix = [*np.eye(3, dtype=int).tolist() * 3, [1, 1, 0], [1, 1, 1]]
    model = LatentAttributeModel(matrix, items="saturated", root=CHAIN)
    conjunctive = LatentAttributeModel(matrix, items="dina", root=CHAIN)
    root_params = {"profiles": torch.tensor([0.3, 0.2, 0.2, 0.3], dtype=F64)}
    data = simulated(conjunctive, truth_of(conjunctive, **root_params), 600, 1)["items"]
    found = fit(model, data, EM(tolerance=1e-9), num_restarts=1)
    rules = item_rules(found, data)
    assert {(test.item, test.rule): test.degrees for test in rules.tests} == {
        (item, rule): degrees
        for item, degrees in (("9", 1), ("10", 2))
        for rule in ("dina", "dino")
    }
    assert rules.rules[9:] == ("dina", "dina")
    curves = item_curves(found, data).table
    assert curves.loc["10"].index.tolist() == [
        "none",
        "attribute 0",
        "attributes 0 + 1",
        "attributes 0 + 1 + 2",
    ]
    assert np.isfinite(curves).all().all()
    steps = {
        frozenset((step.attribute, *(step.others[k] for k in row.nonzero().ravel().tolist())))
        for step in rises(found, "")
        for row in step.having
    }
    assert steps == {
        frozenset((0,)),
        frozenset((1,)),
        frozenset((2,)),
        frozenset((0, 1)),
        frozenset((0, 1, 2)),
    }


@pytest.mark.parametrize(
    "model",
    [
        LatentAttributeModel(np.eye(2, dtype=int)[[0, 1, 0, 1]], response=Normal()),
        DeepDiscreteEncoder(4, (2,), response=Normal(), penalty=None),
    ],
)
def test_columns_that_vary_less_than_the_model_can_are_refused(model: Any) -> None:
    """All variances would lie on the bound, and the attributes be those of no data."""
    items = 1e-4 * np.random.default_rng(0).normal(size=(60, 4))
    with pytest.raises(ValueError, match=r"'0' has variance .*e-09, and the smallest .* 1e-06"):
        fit(model, items)

"""Latent attributes in several groups: the distribution by hand, exact EM, groups apart, items that
function differently, bad input.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import chi2, norm

from inference import EM, SAEM, fit
from inference.bootstrap import bootstrap
from inference.fitting.problem import problem_of
from inference.predictive import predictive_checks
from inference.programs.program import Program
from inference.selection import compare_groups, differential_items, item_scores
from inference.selection.attribute_groups import spread_params
from inference.structures.attribute_groups import AttributeGroupsStructure, GroupedSteps
from inference.uncertainty import standard_errors
from ppl_models import (
    AttributeGroups,
    Bernoulli,
    Blocks,
    Dag,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    NegativeBinomial,
    Normal,
)

F64 = torch.float64
Q = ((1, 0), (0, 1)) * 4 + ((1, 1),) * 2
NAMES = tuple(f"q{j}" for j in range(10))
DISTRIBUTIONS = torch.tensor([[0.45, 0.2, 0.15, 0.2], [0.15, 0.1, 0.2, 0.55]], dtype=F64)
ROOTS = (Independent(), Hierarchy(((0, 1),)), Dag(((0, 1),)))


def one(**settings: Any) -> LatentAttributeModel:
    return LatentAttributeModel(Q, item_names=NAMES, **settings)


def table(
    num_rows: int = 800, shift: float = 0.0, seed: int = 0
) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of two groups, the second with more attributes; item q0 is harder by ``shift`` for
    it.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, num_rows)
    place = np.array([rng.choice(4, p=DISTRIBUTIONS[g].numpy()) for g in group])
    bits = np.stack([place // 2, place % 2], -1)
    asked = np.array(Q)
    odds = -1.7 + 3.4 * (bits @ asked.T) / asked.sum(1)
    odds[:, 0] -= shift * group
    answers = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    frame = pd.DataFrame(answers, columns=list(NAMES))
    frame.insert(3, "group", np.where(group == 1, "late", "early"))
    return frame, bits


def test_the_distribution_by_hand() -> None:
    model = AttributeGroups(one(), ("early", "late"), free_items=("q8",))
    frame, _ = table(12)
    frame.iloc[2, 0] = math.nan
    data, names = model.check_data(frame)
    assert names == (*NAMES, "group")
    params = Program(model, data).draw_prior(1, 0)
    params = {name: value[0] for name, value in params.items()}
    layer = model.layer()
    profiles = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
    eta = layer.features(profiles) @ params["loadings"].mT + params["intercepts"]  # (4, 11)
    expected = []
    for row in data.numpy():
        g = int(row[-1])
        terms = []
        for c in range(4):
            total = math.log(params["profiles"][g, c])
            for j in range(10):
                if not math.isnan(row[j]):
                    version = j if j < 8 else 8 + g if j == 8 else 10
                    total += float(
                        torch.nn.functional.logsigmoid(eta[c, version] * (1 if row[j] else -1))
                    )
            terms.append(total)
        expected.append(logsumexp(terms))
    found = Program(model, data).log_marginal_rows(params)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: type(root).__name__)
def test_accelerated_em_is_that_of_the_program(root: Any) -> None:
    """Log-likelihood and prior are the program's, nothing falls, and the generic M-step gains
    nothing at the end.
    """
    response = Blocks((Bernoulli(), 8), (Normal(), 1), (NegativeBinomial(), 1))
    model = AttributeGroups(one(root=root, response=response), ("early", "late"), free_items=(3, 9))
    frame, _ = table(60)
    frame.iloc[::7, 4] = math.nan
    data, _ = model.check_data(frame)
    steps = GroupedSteps.build(model, data, 2**18, 3)
    params = Program(model, data).draw_prior(2, 0)
    params |= {
        "loadings": params["loadings"].clamp(-2, 2),
        "intercepts": params["intercepts"].clamp(-2, 2),
    }
    params["dispersion"] = params["dispersion"].clamp(0.5, 2)
    values = []
    for _ in range(12):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        torch.testing.assert_close(
            log_likelihood, Program(model, data).log_marginal(params).detach()
        )
        torch.testing.assert_close(log_prior, Program(model, data).log_prior(params).detach())
        values.append(log_likelihood + log_prior)
        params = steps.m_step(statistics, params)
    assert float((torch.stack(values[1:]) - torch.stack(values[:-1])).min()) > -1e-8


def test_groups_without_a_shared_parameter_are_separate_fits() -> None:
    """With all items but one free, and that one without answers in one group, the log-likelihood is
    a sum.
    """
    model = AttributeGroups(one(bound=8.0), ("early", "late"), free_items=tuple(range(9)))
    frame, _ = table(500)
    late = frame["group"] == "late"
    frame.loc[late, "q9"] = math.nan
    joint = fit(model, frame, EM(tolerance=1e-9), num_restarts=1)
    apart = 0.0
    for rows in (frame[~late], frame[late]):
        own = rows.drop(columns="group")
        own = own.drop(columns="q9") if own["q9"].isna().all() else own
        single = LatentAttributeModel(Q[: own.shape[1]], bound=8.0)
        apart += fit(single, own, EM(tolerance=1e-9), num_restarts=1).log_likelihood
    assert joint.log_likelihood == pytest.approx(apart, abs=0.02)


def test_versions_that_nobody_answered_cost_nothing() -> None:
    """An item asked of one group only has as many parameters free as shared."""
    frame, _ = table(400)
    frame.loc[frame["group"] == "late", "q9"] = math.nan
    model = AttributeGroups(one(), ("early", "late"))
    shared = fit(model, frame, num_restarts=1)
    free = fit(replace(model, free_items=("q9",)), frame, num_restarts=1)
    assert free.log_likelihood == pytest.approx(shared.log_likelihood, abs=1e-3)
    assert free.num_parameters == shared.num_parameters == 10 + 12 + 2 * 3
    assert free.bic == pytest.approx(shared.bic, abs=1e-3)


def test_groups_keep_their_distributions_and_names() -> None:
    frame, bits = table(1500)
    model = AttributeGroups(one(), ("early", "late"))
    found = fit(model, frame)
    assert float((found.params["profiles"] - DISTRIBUTIONS).abs().max()) < 0.06
    assert found.num_parameters == 10 + 12 + 2 * 3
    right = (found.posterior_latents(frame)["attributes"].numpy() > 0.5) == bits
    assert right.mean() > 0.9
    pooled = fit(one(), frame.drop(columns="group"), num_restarts=1)
    assert found.bic < pooled.bic - 20
    compared = compare_groups(found, frame)
    assert compared.statistic == pytest.approx(
        2 * (found.log_likelihood - pooled.log_likelihood), abs=0.05
    )
    assert compared.degrees == 3
    assert compared.bic_gain == pytest.approx(pooled.bic - found.bic, abs=0.05)
    assert compared.sizes.tolist() == [
        int((frame["group"] == name).sum()) for name in ("early", "late")
    ]
    by_hand = found.params["profiles"].numpy() @ compared.profiles
    assert np.allclose(compared.mastery, by_hand)
    z = (by_hand[1] - by_hand[0]) / np.hypot(
        *compared.errors
    )  # distributions of groups share the items alone
    assert np.allclose(norm.isf(compared.p_value / 2), z, rtol=0.1)
    assert compared.differs
    idata = found.to_arviz(frame)
    assert list(idata["posterior"]["group"].values) == ["early", "late"]
    assert idata["posterior"]["profiles"].dims[-2:] == ("group", "profile")
    assert list(idata["posterior"]["item"].values) == list(NAMES)
    low, high = standard_errors(found, frame).intervals()["profiles"]
    assert float(((low < DISTRIBUTIONS) & (high > DISTRIBUTIONS)).double().mean()) >= 0.75
    order = np.random.default_rng(0).permutation(len(frame))
    numbers = np.column_stack([frame[list(NAMES)], frame["group"] == "late"]).astype(float)
    assert float(found.log_likelihood_rows(numbers[order]).sum()) == pytest.approx(
        found.log_likelihood
    )


def test_the_item_that_functions_differently_is_found() -> None:
    frame, _ = table(1200, shift=1.5)
    model = AttributeGroups(one(), ("early", "late"))
    shared = fit(model, frame, EM(tolerance=1e-8), num_restarts=1)
    found = differential_items(shared, frame, ("q0", 2, "q9"))
    assert found.items == ("q0", "q2", "q9")
    assert found.degrees.tolist() == [2, 2, 3]
    assert found.p_adjusted[0] < 1e-4
    assert found.uniform_p[0] < 1e-4
    assert found.non_uniform_p[0] > 0.01
    assert float(found.p_adjusted[1:].min()) > 0.01
    assert found.effect[0] > 0.15
    scores = item_scores(
        shared, frame
    )  # without a further fit, and what the likelihood ratio tends to
    assert scores.items == NAMES
    assert scores.degrees.tolist() == [2] * 8 + [3] * 2
    assert scores.different == ("q0",)
    assert scores.statistic[[0, 2, 9]] == pytest.approx(found.statistic, rel=0.15, abs=0.3)
    assert "q0" in scores.text()
    free = AttributeGroups(one(), ("early", "late"), free_items=("q0",))
    assert free.entry_names["item"][:3] == ("q0 (early)", "q0 (late)", "q1")
    with pytest.raises(ValueError, match="item 0 is free in this fit already"):
        differential_items(fit(free, frame, EM(tolerance=1e-5), num_restarts=1), frame, ("q0",))
    with pytest.raises(ValueError, match="a fit of an AttributeGroups model was expected"):
        differential_items(
            fit(one(), frame.drop(columns="group"), EM(tolerance=1e-4), num_restarts=1), frame
        )


def test_effects_are_those_of_people_that_there_are() -> None:
    """Failed before: profiles that the hierarchy forbids counted as the others do."""
    q_matrix = np.vstack([np.eye(2, dtype=int)] * 4 + [[[1, 1]]] * 2)
    allowed = np.array([[0, 0], [1, 0], [1, 1]])
    rng, group = np.random.default_rng(0), np.arange(1500) % 2
    own = allowed[rng.choice(3, 1500, p=[0.4, 0.25, 0.35])]
    eta = -1.5 + 3.0 * own @ q_matrix.T / q_matrix.sum(1)
    loadings = np.array([[2.5, 0.5], [1.0, 3.0]])[group]
    eta[:, 9] = -1.5 + (loadings * own).sum(1)
    data = np.column_stack([rng.random((1500, 10)) < 1 / (1 + np.exp(-eta)), group]).astype(float)
    one_group = LatentAttributeModel(q_matrix, items="additive", root=Hierarchy(((0, 1),)))
    model = AttributeGroups(one_group, ("a", "b"))
    shared = fit(model, data, EM(tolerance=1e-9), num_restarts=1)
    found = differential_items(shared, data, (9,))
    free = replace(model, free_items=(9,))
    again = fit(free, data, EM(tolerance=1e-9), num_restarts=1)
    versions = [v for v, (item, _) in enumerate(free.versions) if item == 9]
    intercepts, slopes = (
        again.params[name][versions].numpy() for name in ("intercepts", "loadings")
    )
    predictors = intercepts[:, None] + slopes @ allowed.T  # (2, 3)
    apart = np.abs(np.subtract(*(1 / (1 + np.exp(-predictors)))))
    assert found.effect[0] == pytest.approx(apart.max(), abs=1e-3)
    assert found.lowest[0] == "b"  # of those who have neither it would be the other
    errors = standard_errors(again, data, hold_bounds=True)
    people = again.params["profiles"].numpy().mean(0) @ allowed  # groups of one size
    contrast = np.zeros(len(errors.names))
    for sign, v in zip((1, -1), versions, strict=True):
        contrast[errors.names.index(f"intercepts[{v}]")] = sign
        for k in range(2):
            contrast[errors.names.index(f"loadings[{v},{k}]")] = sign * people[k]
    gap = contrast @ errors.estimate.numpy()
    wald = gap**2 / (contrast @ errors.covariance.numpy() @ contrast)
    assert found.uniform[0] == pytest.approx(wald, rel=1e-2)


@pytest.mark.parametrize("ask", [compare_groups, item_scores, differential_items])
def test_known_parameters_are_refused_where_rivals_would_not_know_them(ask: Any) -> None:
    """Items known to be half a logit off: all of them seemed to function differently, for the
    rivals estimated what the fit was told.
    """
    frame, _ = table(200)
    model = AttributeGroups(one(), ("early", "late"))
    free = fit(model, frame, EM(tolerance=1e-5), num_restarts=1)
    known = {"intercepts": free.params["intercepts"] + 0.5}
    told = fit(model, frame, EM(tolerance=1e-5), num_restarts=1, fixed=known)
    with pytest.raises(ValueError, match=f"{ask.__name__}: not worked out for a fit with fixed"):
        ask(told, frame)


def test_a_trait_and_simulated_rows() -> None:
    q = tuple((int(j % 3 == 0), int(j % 3 == 1), int(j % 3 == 2)) for j in range(12))
    model = AttributeGroups(
        LatentAttributeModel(q, root=HigherOrder()), ("a", "b", "c"), free_items=(1,)
    )
    truth = {
        "trait_slopes": torch.full((3, 3), 1.5, dtype=F64),
        "trait_intercepts": torch.tensor([[-1.0] * 3, [0.0] * 3, [1.0] * 3], dtype=F64),
        "loadings": 3.4 * model.layer().graph.to(F64),
        "intercepts": torch.full((14,), -1.7, dtype=F64),
    }
    drawn = Program(model, None, 1200).simulate(truth, 0)["items"]
    items = torch.stack(
        [
            drawn[:, [v for v, (j, g) in enumerate(model.versions) if j == k]][
                torch.arange(1200),
                torch.arange(1200) % 3 if k == 1 else torch.zeros(1200, dtype=torch.long),
            ]
            for k in range(12)
        ],
        -1,
    )
    data = torch.cat([items, (torch.arange(1200) % 3).to(F64).unsqueeze(-1)], -1)
    found = fit(model, data, EM(tolerance=1e-6), num_restarts=1)
    assert found.params["trait_intercepts"].mean(-1).diff().min() > 0.4


@pytest.mark.parametrize("free", [(), ("q2",), ("q2", "q5")])
def test_simulated_columns_are_those_of_the_data(free: tuple[str, ...]) -> None:
    """Failed before: with one free item of two groups its versions were held against other columns,
    and there was no bootstrap.
    """
    frame, _ = table(300)
    frame.iloc[::9, 5] = math.nan
    found = fit(
        AttributeGroups(one(), ("early", "late"), free), frame, EM(tolerance=1e-5), num_restarts=1
    )
    (check,) = predictive_checks(found, frame, num_simulations=8).values()
    assert np.array_equal(check.observed, frame[list(NAMES)].to_numpy(), equal_nan=True)
    assert np.isnan(check.simulated[:, np.isnan(check.observed)]).all()
    observed, simulated = check.item_means()
    assert np.abs(observed - simulated.mean(0)).max() < 0.08
    drawn = found.structure.simulate_like(found.params, frame, 1)["items"]
    assert drawn[:, -1].tolist() == (frame["group"] == "late").astype(float).tolist()
    if not free:
        again = bootstrap(found, frame, num_replicates=4)
        spread, errors = (
            again.draws["intercepts"][0].std(0),
            standard_errors(found, frame).standard_errors["intercepts"],
        )
        assert float((spread / errors).log().mean().abs()) < math.log(2.5)


def test_labels_that_became_numbers() -> None:
    frame, _ = table(40)
    numbers = frame.assign(group=(frame["group"] == "late").astype(float))
    assert torch.equal(
        AttributeGroups(one(), ("early", "late")).check_data(numbers)[0],
        AttributeGroups(one(), ("early", "late")).check_data(frame)[0],
    )
    assert torch.equal(
        AttributeGroups(one(), ("0", "1")).check_data(numbers)[0],
        AttributeGroups(one(), ("early", "late")).check_data(frame)[0],
    )
    with pytest.raises(
        ValueError, match="row 0 is of group '[01]', and one of 1, 2 was expected|is of group '0'"
    ):
        AttributeGroups(one(), ("1", "2")).check_data(numbers)


def test_groups_of_long_numbers_stay_apart() -> None:
    frame, _ = table(60)
    schools = frame.assign(group=np.resize([1000001.0, 1000002.0, 2000003.0], 60))
    model = AttributeGroups(one()).for_data(schools)
    assert model.groups == ("1000001", "1000002", "2000003")
    assert model.check_data(schools)[0][:4, -1].tolist() == [0, 1, 2, 0]
    assert model.check_data(schools.astype({"group": int}))[0][:4, -1].tolist() == [0, 1, 2, 0]


frame_of_20 = table(20)[0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda f: f.drop(columns="group"), "a column 'group' of group labels was expected"),
        (
            lambda f: f.assign(group=["other", *f["group"][1:]]),
            "row 0 is of group 'other', and one of early, late was expected",
        ),
        (lambda f: f.assign(group=[*f["group"][:-1], None]), "row 19 has no group"),
        (
            lambda f: f.assign(group=["late"] + ["early"] * 19),
            "group 'late' has 1 rows; at least 2",
        ),
        (lambda f: f.assign(group="early"), "group 'late' has 0 rows"),
        (lambda f: f.assign(q2=7.0), "Bernoulli items take the values 0 and 1"),
        (
            lambda f: f.to_numpy()[:, :4].astype(object),
            "10 items and the number of the group as the last column|numbers were expected",
        ),
    ],
)
def test_data_that_do_not_fit(change: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fit(AttributeGroups(one(), ("early", "late")), change(frame_of_20))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: AttributeGroups(one(), ("a",)), "two or more different labels"),
        (lambda: AttributeGroups(one(), ("a", "a")), "two or more different labels"),
        (lambda: AttributeGroups(one(), "ab"), "two or more different labels"),
        (lambda: AttributeGroups(Normal(), ("a", "b")), "LatentAttributeModel"),
        (
            lambda: AttributeGroups(
                LatentAttributeModel(num_attributes=2, num_items=6), ("a", "b")
            ),
            "q_matrix",
        ),
        (
            lambda: AttributeGroups(one(), ("a", "b"), ("q77",)),
            "'q77' is not among the 10 items, which are called q0",
        ),
        (lambda: AttributeGroups(one(), ("a", "b"), (10,)), "number from 0 to 9"),
        (lambda: AttributeGroups(one(), ("a", "b"), (1, "q1")), "names an item twice"),
        (lambda: AttributeGroups(one(), ("a", "b"), tuple(range(10))), "share nothing"),
    ],
)
def test_bad_input(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_the_generic_steps_find_the_same() -> None:
    frame, _ = table(120)
    model = AttributeGroups(one(), ("early", "late"), (0,))
    exact = fit(model, frame, EM(tolerance=1e-8), num_restarts=1)
    generic = fit(
        model, frame, EM(accelerate=False, max_iterations=300, tolerance=1e-7), init=exact.params
    )
    assert generic.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-3)
    many = AttributeGroups(
        LatentAttributeModel(np.eye(16, dtype=int), root=HigherOrder()), ("a", "b")
    )
    data = torch.cat(
        [
            torch.randint(0, 2, (30, 16), generator=torch.Generator().manual_seed(0)),
            torch.arange(30)[:, None] % 2,
        ],
        1,
    )
    advice = AttributeGroupsStructure(many).recommended(
        problem_of(many, data, 0, start_given=False)
    )
    assert isinstance(advice.method, SAEM)


@pytest.mark.parametrize("ask", [compare_groups, differential_items])
def test_questions_that_fit_again_are_not_asked_of_labelled_rows(ask: Any) -> None:
    # their own fits know no labels: 2 log p(labels) would stand in the likelihood ratio
    data, bits = table(120)
    told = np.where(np.arange(120)[:, None] < 40, bits, -1)
    labelled = fit(AttributeGroups(one()), data, labels=told)
    with pytest.raises(ValueError, match="labels"):
        ask(labelled, data)


def test_scores_of_items_are_those_of_data_and_labels() -> None:
    data, bits = table(240, shift=1.0, seed=1)
    noise = np.random.default_rng(1).random((240, 10)) < 0.2
    data[list(NAMES)] = np.abs(data[list(NAMES)] - noise)
    told = np.where(np.arange(240)[:, None] < 120, bits, -1)
    model = AttributeGroups(one(), ("early", "late"))
    shared = fit(model, data, EM(tolerance=1e-6), labels=told, num_restarts=1)
    free = AttributeGroups(one(), ("early", "late"), free_items=(0,))
    start = spread_params(model, free, shared.params)
    again = fit(free, data, EM(tolerance=1e-6), labels=told, init=start)
    ratio = 2 * (again.log_likelihood - shared.log_likelihood)
    assert item_scores(shared, data).statistic[0] == pytest.approx(ratio, rel=0.12)


def test_groups_that_never_saw_an_item_are_no_part_of_its_test() -> None:
    # three forms of a test: the third has no q0, and q2 is on the first alone
    data, _ = table(360, shift=1.0, seed=3)
    data["group"] = np.array(["a", "b", "c"])[np.arange(360) % 3]
    data.loc[data["group"] == "c", "q0"] = math.nan
    data.loc[data["group"] != "a", "q2"] = math.nan
    shared = fit(AttributeGroups(one()), data, EM(tolerance=1e-8), num_restarts=1)
    scores = item_scores(shared, data)
    found = differential_items(shared, data, items=["q0", "q2", "q3"])
    for tests, places in ((scores, [0, 2, 3]), (found, [0, 1, 2])):
        assert tests.degrees[places].tolist() == pytest.approx([2, math.nan, 4], nan_ok=True)
        assert tests.p_value[places[0]] == pytest.approx(chi2.sf(tests.statistic[places[0]], 2))
        assert np.isnan([tests.statistic[places[1]], tests.p_value[places[1]]]).all()
    assert scores.statistic[0] == pytest.approx(found.statistic[0], rel=0.15)
    free = AttributeGroups(one(), ("a", "b", "c"), free_items=(0,))
    start = spread_params(shared.model, free, shared.params)
    again = fit(free, data, EM(tolerance=1e-9), init=start)
    profiles = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
    expected = free.expected_responses(again.params, profiles)[:, :2]  # of groups a and b
    apart = (expected[:, 0] - expected[:, 1]).abs()
    assert found.effect[0] == pytest.approx(float(apart.max()), abs=1e-6)
    assert found.lowest[0] == "ab"[int(expected[apart.argmax()].argmin())]
    assert math.isnan(found.effect[1])

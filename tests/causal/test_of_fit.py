"""Graphs of causes from fitted models."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Fit, fit
from inference.causal import cpdag_of, dag_of_edges, discover_attributes
from inference.causal.of_fit import AttributeReport, profile_posterior
from inference.causal.rows import effective_rows
from inference.causal.structural_em import rows_needed
from inference.causal.tables import dag_table, profiles
from ppl_models import (
    AttributeGroups,
    Dag,
    DeepDiscreteEncoder,
    Hierarchy,
    Independent,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Normal,
)

Q = np.concatenate([np.eye(3)] * 3 + [[[1, 1, 0]], [[0, 1, 1]]]).astype(int)
DAG = dag_of_edges(3, [(0, 2), (1, 2)])
TABLE = dag_table(DAG, [0.5, 0.4, [[0.1, 0.6], [0.7, 0.4]]])
NAMES = ("add", "carry", "borrow")


def answers(num_rows: int = 800, sd: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """Normal items of three attributes, the third a common effect of the others."""
    rng = np.random.default_rng(seed)
    rows = profiles(3)[rng.choice(8, num_rows, p=TABLE)]
    values = rows @ (3 * Q / Q.sum(1, keepdims=True)).T + sd * rng.standard_normal(
        (num_rows, len(Q))
    )
    return pd.DataFrame(values, columns=[f"item {j}" for j in range(len(Q))])


def matrix() -> pd.DataFrame:
    return pd.DataFrame(Q, columns=list(NAMES), index=[f"item {j}" for j in range(len(Q))])


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit(
        LatentAttributeModel(matrix(), Normal()), answers(), EM(tolerance=1e-10, max_iterations=500)
    )


def test_the_posterior_of_profiles(fitted: Fit) -> None:
    """Against the product of table and items, profile by profile, written out."""
    data = answers()
    found = profile_posterior(fitted, data)
    params = {name: value.numpy() for name, value in fitted.params.items()}
    means = fitted.model.expected_responses(
        fitted.params, torch.tensor(profiles(3), dtype=torch.float64)
    ).numpy()  # type: ignore[attr-defined]
    deviations = (data.to_numpy()[:, None] - means) ** 2 / params["dispersion"]
    expected = np.log(params["profiles"]) - 0.5 * deviations.sum(-1)
    expected = np.exp(expected - expected.max(1, keepdims=True))
    np.testing.assert_allclose(
        found.posterior, expected / expected.sum(1, keepdims=True), atol=1e-9
    )
    np.testing.assert_allclose(
        found.table, params["profiles"], atol=1e-5
    )  # at a maximum of the likelihood
    marginal = fitted.posterior_latents(data)["attributes"].numpy()
    np.testing.assert_allclose(found.posterior @ profiles(3), marginal, atol=1e-9)
    assert (found.latent, found.names) == ("attributes", NAMES)


def test_the_plain_call(fitted: Fit) -> None:
    report = discover_attributes(fitted, answers(), num_draws=20)
    assert report.causal.graph == cpdag_of(DAG, names=NAMES)
    assert report.causal.firm == report.causal.graph
    assert report.rows is not None
    assert report.rows.items_estimated
    assert report.causal.num_rows == report.rows.num_rows < 800
    assert report.causal.probabilities is not None
    assert report.causal.probabilities.num_tables == 20
    worth = report.causal.num_rows
    assert report.causal.probabilities.num_rows == pytest.approx(1 / (2 / worth - 1 / 800))
    assert report.on_rows.best.graph == report.causal.graph
    words = report.text()
    assert words.startswith("The 800 rows tell as much about the attributes as")
    assert "add → borrow" in words
    assert len(report.plot().patches) == 2


def test_labels_are_refused(fitted: Fit) -> None:
    labelled = dataclasses.replace(fitted, labels={"attributes": torch.zeros(800, 3, 2)})
    with pytest.raises(ValueError, match="without labels"):
        discover_attributes(labelled, answers())


def test_items_beside_edges(fitted: Fit) -> None:
    """Each edge with the item that would explain it, in the text; rows needed at their worth."""
    report = discover_attributes(fitted, answers())
    assert isinstance(report, AttributeReport)
    pairs = {tuple(sorted(own.pair)) for own in report.alternatives}
    assert pairs == {edge.pair for edge in report.causal.edges}
    assert not any(own.disputed for own in report.alternatives)
    assert all(own.item.startswith("item") for own in report.alternatives)
    assert report.alternatives[0].text() in report.text()
    share = report.causal.num_rows / 800
    assert report.rows_needed(0.01) == pytest.approx(rows_needed(0.01, share))


def test_the_model_refitted_under_the_graph(fitted: Fit) -> None:
    """A full refit with the graph as the distribution of the attributes reaches what holding the
    items says, and a little more.
    """
    data = answers()
    report = discover_attributes(fitted, data, num_draws=2)
    graph = report.causal.graph
    again = fit(
        LatentAttributeModel(matrix(), Normal(), root=Dag(graph.dag_edges())),
        data,
        EM(tolerance=1e-10, max_iterations=500),
    )
    (held,) = [found.gain for found in report.on_rows.ranked if found.graph == graph]
    gain = again.log_likelihood - fitted.log_likelihood
    assert held - 1e-6 <= gain <= 1e-3
    assert gain - held < 0.5
    assert again.bic < fitted.bic


def test_items_that_were_estimated_cost_rows(fitted: Fit) -> None:
    data = answers()
    found = profile_posterior(fitted, data)
    known, report = (
        effective_rows(found.posterior, found.table),
        discover_attributes(fitted, data, num_draws=2),
    )
    assert report.rows is not None
    assert report.rows.num_rows < known.num_rows


def test_noisy_items_are_worth_fewer_rows() -> None:
    values = [answers(sd=sd) for sd in (0.5, 3.0)]
    worth = []
    for data in values:
        rows = discover_attributes(
            fit(LatentAttributeModel(Q, Normal()), data, EM(), num_restarts=2), data, num_draws=2
        ).rows
        assert rows is not None
        worth.append(rows.num_rows)
    assert worth[0] > 700
    assert worth[1] < 500


def test_missing_answers(fitted: Fit) -> None:
    data = answers().mask(np.random.default_rng(1).random((800, len(Q))) < 0.2)
    assert profile_posterior(fitted, data).posterior.shape == (800, 8)
    assert discover_attributes(fitted, data, num_draws=2, num_rows=700).rows is None


def test_a_hierarchy_keeps_its_zeros() -> None:
    data = answers()
    result = fit(
        LatentAttributeModel(matrix(), Normal(), root=Hierarchy((("add", "borrow"),))), data
    )
    found = profile_posterior(result, data)
    barred = (profiles(3)[:, 2] == 1) & (profiles(3)[:, 0] == 0)
    assert (found.posterior[:, barred] == 0).all()
    np.testing.assert_allclose(found.table[~barred], result.params["profiles"].numpy(), atol=1e-4)


def test_distributions_that_assume_the_answer_are_refused() -> None:
    data = answers(200)
    for root in (Independent(), Hierarchy((("add", "borrow"),))):
        result = fit(LatentAttributeModel(matrix(), Normal(), root=root), data)
        with pytest.raises(
            ValueError,
            match=r"a free table over the 8 profiles was expected \(root=Saturated\(\)\)",
        ):
            discover_attributes(result, data)
    encoder = fit(DeepDiscreteEncoder(len(Q), (3,), Normal()), data)
    with pytest.raises(ValueError, match="3 free parameter"):
        discover_attributes(encoder, data)
    assert profile_posterior(encoder, data).posterior.shape == (200, 8)


def test_groups_with_distributions_of_their_own_are_refused() -> None:
    # independent within each group, and together joined by who is in which
    rng = np.random.default_rng(0)
    group = np.arange(200) % 2
    bits = (rng.random((200, 2)) < np.where(group, 0.9, 0.1)[:, None]).astype(int)
    q_matrix = ((1, 0), (0, 1)) * 2
    data = pd.DataFrame(3.0 * bits @ np.array(q_matrix).T + rng.standard_normal((200, 4)))
    data.columns = list("abcd")
    data["group"] = np.array(["x", "y"])[group]
    groups = AttributeGroups(LatentAttributeModel(q_matrix, Normal()))
    result = fit(groups, data, EM(tolerance=1e-4), num_restarts=1)
    with pytest.raises(ValueError, match="one distribution of the attributes .* depends on group"):
        discover_attributes(result, data)


def test_other_models_are_refused() -> None:
    data = answers(200)
    mixture = fit(Mixture(2, MultivariateNormal(), num_items=len(Q)), data)
    with pytest.raises(ValueError, match="a model with one vector of binary latents was expected"):
        discover_attributes(mixture, data)


def test_bad_input(fitted: Fit) -> None:
    with pytest.raises(ValueError, match=r"latent must be one of \['attributes'\], got 'skills'"):
        discover_attributes(fitted, answers(), latent="skills")
    with pytest.raises(ValueError, match="num_draws must be a positive integer"):
        discover_attributes(fitted, answers(), num_draws=0)
    with pytest.raises(ValueError, match="3 different names"):
        discover_attributes(fitted, answers(), num_draws=2, names=("a", "b"))


def test_permuting_attributes_permutes_the_report(fitted: Fit) -> None:
    data = answers()
    for order in itertools.islice(itertools.permutations(range(3)), 1, 3):
        place = list(order)
        other = fit(
            LatentAttributeModel(matrix().iloc[:, place], Normal()),
            data,
            EM(tolerance=1e-10, max_iterations=500),
        )
        found = discover_attributes(other, data, num_draws=2).causal.graph
        assert found.names == tuple(NAMES[k] for k in place)
        np.testing.assert_array_equal(found.matrix, cpdag_of(DAG).matrix[np.ix_(place, place)])

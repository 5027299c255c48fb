"""Curves and ensembles of independent classifiers: formulas by hand, halves, names of components,
and what the spread is made of.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inference import ConvergenceWarning, EstimateWarning, Labels, TrainClassifiers, fit
from inference.identifiability import check_identifiability, identifiability_of
from inference.inspection import (
    ClassifierEnsemble,
    classifier_curves,
    classifier_ensemble,
    read_classifiers,
)
from inference.inspection.classifier_ensemble import _named_alike, _worse, spread
from inference.structures.classifiers.train import on_rows
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, InClassNet, Lookup, Mixture
from ppl_models.datasets import simulate_two_gaussians

METHOD = TrainClassifiers(max_epochs=4, batch_size=200)
SAMPLE = simulate_two_gaussians(600, seed=1)


@pytest.fixture(scope="module")
def result():
    with (
        pytest.warns(ConvergenceWarning),
        pytest.warns(EstimateWarning, match="held-out rows are not clearly likelier"),
    ):
        return fit(InClassNet((1, 1), 2), SAMPLE.data, METHOD, num_restarts=2)


@pytest.fixture(scope="module")
def ensemble(result):
    return classifier_ensemble(result, SAMPLE.data, num_halves=3, num_restarts=2)


def test_curves_are_the_classifiers_and_densities(result):
    curves = classifier_curves(result, SAMPLE.data, 1, num_places=5, num_bins=10)
    rows = torch.stack([torch.zeros(5, dtype=torch.float64), curves.places], 1)
    assert torch.allclose(curves.classifiers, read_classifiers(result, rows).variates[1])
    width = float(curves.edges[1] - curves.edges[0])
    assert (curves.densities.sum(0) * width).tolist() == pytest.approx([1.0, 1.0])
    scores = result.model.log_scores(torch.as_tensor(SAMPLE.data), result.params).exp()[1]
    inside = torch.as_tensor(
        (SAMPLE.data[:, 1] >= float(curves.edges[3])) & (SAMPLE.data[:, 1] < float(curves.edges[4]))
    )
    for i in range(2):
        share = float((scores[inside, i] / result.params["pseudo_weights"][1, i]).sum()) / 600
        assert float(curves.densities[3, i]) * width == pytest.approx(share, rel=1e-4)
    with pytest.raises(ValueError, match="variate must be one of 1, 2"):
        classifier_curves(result, SAMPLE.data, "z")


def test_codes_are_places_of_their_own():
    """A table of codes knows no value between them."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (200, 2)).astype(float)
    with pytest.warns(ConvergenceWarning):
        result = fit(
            InClassNet((1, 1), 2, networks=Lookup(3)),
            codes,
            TrainClassifiers(max_epochs=1),
            num_restarts=1,
        )
    curves = classifier_curves(result, codes, 1)
    assert curves.places.tolist() == [0.0, 1.0, 2.0]
    row = int(np.flatnonzero(codes[:, 1] == 2)[0])
    assert torch.allclose(curves.classifiers[2], read_classifiers(result, codes).variates[1, row])


def test_members_are_named_as_the_estimate(result):
    """Components in another order come back; the distribution does not change."""
    structure = structure_of(result.model)
    order = torch.tensor([1, 0])
    turned = structure.labels()[0].rename(
        {name: value[None] for name, value in result.params.items()},
        order,
        torch.zeros(2, dtype=torch.bool),
    )
    assert not torch.allclose(turned["weights"][0], result.params["weights"])
    target = read_classifiers(result, SAMPLE.data).rows
    back = _named_alike(structure, turned, target, torch.as_tensor(SAMPLE.data))
    for name, value in result.params.items():
        assert torch.allclose(back[name][0], value), name


def test_a_start_that_is_clearly_worse_has_failed(result):
    structure = structure_of(result.model)
    members = {name: torch.stack([value, value]) for name, value in result.params.items()}
    even, best = _worse(structure, members, torch.as_tensor(SAMPLE.data))
    assert not even.any()
    for variate, sign in enumerate((20.0, -20.0)):  # certain, and never of one mind
        members["layer_4_weights"][0, variate] *= sign
    worse, best = _worse(structure, members, torch.as_tensor(SAMPLE.data))
    assert worse.tolist() == [True, False]
    assert best == 1


def test_spread_is_split_and_bounded():
    """Halves with known means, starts with known scatter."""
    halves = (
        torch.tensor([[0.3, 0.5], [0.5, 0.7], [0.4, 0.6]])
        .T[..., None]
        .expand(2, 3, 2)
        .clone()
        .double()
    )  # (starts, halves, C)
    fit_like = type(
        "FitLike",
        (),
        {"params": {"weights": torch.tensor([0.45, 0.55]).double()}, "draws": {"weights": halves}},
    )()
    weights = ClassifierEnsemble(fit_like, torch.zeros(2, 3, dtype=torch.bool)).weights
    assert weights[0].between_starts == pytest.approx(math.sqrt(0.02))
    assert (
        weights[0].between_rows == 0.0
    )  # the halves' means scatter by 0.01, as starts alone would make them
    deviation = math.sqrt(np.mean([(x - 0.45) ** 2 for x in (0.3, 0.5, 0.5, 0.7, 0.4, 0.6)]))
    low, high = spread(torch.tensor(0.45).double(), halves[..., 0], 0.95)
    assert float(high) == pytest.approx(
        0.45 + 3.182446 * deviation, rel=1e-5
    )  # Student's t with three degrees
    assert float(low) == pytest.approx(0.45 - 3.182446 * deviation, rel=1e-5)
    assert weights[0].lower == pytest.approx(float(low), rel=1e-5)
    assert all(
        0 <= own.lower <= own.upper <= 1
        for own in ClassifierEnsemble(fit_like, torch.zeros(2, 3, dtype=torch.bool), 0.9999).weights
    )


def test_ensemble(ensemble, result):
    assert ensemble.failed.shape == (2, 3)
    assert not ensemble.failed[0].any()  # the best start of every half stands first
    assert ensemble.members["weights"].shape == (2, 3, 2)
    weights = ensemble.weights
    assert [own.estimate for own in weights] == result.params["weights"].tolist()
    assert all(0 <= own.lower <= own.estimate <= own.upper <= 1 for own in weights)
    bands = ensemble.curves(SAMPLE.data, 0)
    assert (bands.classifiers_lower <= bands.classifiers).all()
    assert (bands.classifiers <= bands.classifiers_upper).all()
    assert (bands.densities_lower <= bands.densities).all()
    report = ensemble.identifiability(SAMPLE.data)
    assert report.num_members == 3
    assert identifiability_of(ensemble.fit, SAMPLE.data) == report
    assert identifiability_of(result, SAMPLE.data).num_members == 1
    assert identifiability_of(result) is None
    assert check_identifiability(ensemble.fit, data=SAMPLE.data) == report
    with pytest.raises(
        ValueError, match=r"check_identifiability\(fit, data=rows\); got a fit of InClassNet"
    ):
        check_identifiability(result)
    assert "95% intervals, from 3 halves" in ensemble.text()
    posterior = ensemble.fit.to_arviz(SAMPLE.data).posterior
    assert posterior["weights"].dims == ("chain", "draw", "component")
    assert posterior["weights"].shape == (2, 3, 2)
    again = classifier_ensemble(result, SAMPLE.data, num_halves=3, num_restarts=2)
    assert torch.equal(again.members["weights"], ensemble.members["weights"])


def test_labels_go_with_their_rows(result):
    """Every half is trained with the labels of its own rows."""
    labels = np.where(np.arange(600) % 3 == 0, SAMPLE.components, -1)
    index = torch.tensor([0, 3, 4, 300])
    own = on_rows(TrainClassifiers(labels=Labels(labels)), index)
    assert own.labels.values.tolist() == labels[index].tolist()
    assert on_rows(METHOD, index) is METHOD
    found = classifier_ensemble(
        result, SAMPLE.data, 2, 1, method=TrainClassifiers(max_epochs=1, labels=Labels(labels))
    )
    assert found.members["weights"].shape == (1, 2, 2)


def test_refusals(result):
    other = fit(Mixture(1, Bernoulli(), 2), (SAMPLE.data > 0).astype(float))
    for call, message in (
        (
            lambda: classifier_curves(other, SAMPLE.data, 0),
            "independent classifiers .InClassNet. were expected, got Mixture",
        ),
        (
            lambda: classifier_ensemble(other, SAMPLE.data),
            "independent classifiers .InClassNet. were expected, got Mixture",
        ),
        (
            lambda: classifier_ensemble(result, SAMPLE.data, 1),
            "num_halves must be an integer of 2 or more",
        ),
        (lambda: classifier_ensemble(result, SAMPLE.data[:6]), "at least 8 rows"),
        (lambda: classifier_ensemble(result, SAMPLE.data, level=1.0), "level must lie in"),
        (lambda: classifier_curves(result, SAMPLE.data[:, :1], 0), "columns were expected"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

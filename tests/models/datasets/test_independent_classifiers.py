"""Designs with independent variates: drawn rows follow the stated distribution, and the quadrature
gives the reference's numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from papers.mnist_pairs import mnist_pairs

from ppl_models.datasets import (
    image_pairs,
    load_mnist_images,
    simulate_checkerboard,
    simulate_trivariate,
    simulate_two_gaussians,
)
from ppl_models.datasets.independent_classifiers import NormalComponents, UniformCells

# by another program; of the trivariate example it took x, y and z between -9 and 10 only, which
# cuts off 0.07 % of a component
BOUNDS = [
    (simulate_two_gaussians, None, 0.052372, 0.832571),
    (simulate_trivariate, (-9.0, 10.0), 0.073066, 0.71171),
]


@pytest.mark.parametrize(("simulate", "cut", "total_correlation", "accuracy"), BOUNDS)
def test_quadrature_gives_the_reference(simulate, cut, total_correlation, accuracy, monkeypatch):
    truth = simulate(10).truth
    if cut is not None:
        grid = np.arange(cut[0], cut[1] + 0.05, 0.1)
        monkeypatch.setattr(
            NormalComponents, "nodes", lambda self, variate: (grid, np.full(len(grid), 0.1))
        )
    assert truth.total_correlation() == pytest.approx(total_correlation, abs=1e-6)
    assert truth.best_accuracy() == pytest.approx(
        accuracy, abs=2e-4
    )  # the kink of the maximum costs the quadrature digits


def test_the_whole_trivariate_example():
    """Nothing cut off: the value to which the quadrature converges, and the mean log-ratio of drawn
    rows.
    """
    truth = simulate_trivariate(10).truth
    exact = truth.total_correlation()
    assert exact == pytest.approx(0.0731766, abs=1e-7)
    ratio = truth.log_ratio(simulate_trivariate(100_000, seed=2).data)
    assert abs(ratio.mean() - exact) < 4 * ratio.std() / math.sqrt(len(ratio))


def test_two_gaussians_by_one_variate():
    assert simulate_two_gaussians(10).truth.best_accuracy(0) == pytest.approx(0.757115, abs=1e-5)


def test_checkerboard_is_exact():
    sample = simulate_checkerboard(500, seed=1)
    truth = sample.truth
    assert truth.total_correlation() == pytest.approx(math.log(2), abs=1e-12)
    assert truth.best_accuracy() == truth.best_accuracy(1) == 1.0
    cell = np.floor(sample.data).astype(int)
    assert set(cell.ravel()) == {0, 1, 2, 3}
    assert np.array_equal(cell[:, 0] % 2, cell[:, 1] % 2)  # the bright cells
    assert np.array_equal(sample.components, cell[:, 0] % 2)
    assert np.array_equal(truth.aggregate(sample.data).argmax(1), sample.components)
    assert np.isnan(truth.classifiers(0, np.array([-0.5, 4.5]))).all()


@pytest.mark.parametrize(
    "simulate", [simulate_two_gaussians, simulate_checkerboard, simulate_trivariate]
)
def test_rows_follow_the_stated_distribution(simulate):
    """Shares, moments inside components, calibration of the exact classifiers, and the mean
    log-ratio, within five standard errors.
    """
    n = 40_000
    sample = simulate(n, seed=3)
    truth = sample.truth
    assert np.array_equal(simulate(n, seed=3).data, sample.data)
    assert not np.array_equal(simulate(n, seed=4).data, sample.data)
    share = np.bincount(sample.components) / n
    assert np.abs(share - truth.weights).max() < 5 * math.sqrt(0.25 / n)
    for v in range(truth.num_variates):
        x, mass = truth.nodes(v)
        assert mass @ truth.densities(v, x) == pytest.approx(np.ones(len(share)), abs=1e-9)
        for i in range(len(share)):
            own = sample.data[sample.components == i, v]
            if isinstance(truth, NormalComponents):
                mean = float(mass @ (x * truth.densities(v, x)[:, i]))
            else:
                mean = float(x @ truth.cells[v, i])
            assert abs(own.mean() - mean) < 5 * own.std() / math.sqrt(len(own))
        alpha = truth.classifiers(v, sample.data[:, v])
        assert np.abs(alpha.mean(0) - truth.weights).max() < 5 * 0.5 / math.sqrt(n)
        assert (
            (alpha.argmax(1) == sample.components).mean() - alpha.max(1).mean()
        ) == pytest.approx(0, abs=5 * 0.5 / math.sqrt(n))
    ratio = truth.log_ratio(sample.data)
    assert abs(ratio.mean() - truth.total_correlation()) <= 5 * ratio.std() / math.sqrt(n) + 1e-9
    brute = [
        math.log(
            sum(
                w * math.prod(truth.densities(v, row[v : v + 1])[0, i] for v in range(len(row)))
                for i, w in enumerate(truth.weights)
            )
        )
        - sum(
            math.log(truth.densities(v, row[v : v + 1])[0] @ truth.weights) for v in range(len(row))
        )
        for row in sample.data[:5]
    ]
    assert ratio[:5] == pytest.approx(brute, abs=1e-10)


def test_pairs_show_one_class_and_labels_are_as_noisy_as_said():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(4), [300, 400, 500, 800]))
    images = rng.integers(0, 17, (2000, 3, 5)).astype(np.uint8)
    pairs = image_pairs(images, labels, 4000, 2000, 0.6, seed=5)
    assert np.array_equal(labels[pairs.first], labels[pairs.second])
    assert np.abs(np.bincount(pairs.components) / 4000 - 0.25).max() < 5 * math.sqrt(
        0.19 / 4000
    )  # classes are uniform
    assert 0 < (pairs.first == pairs.second).sum() < 60  # with replacement: 4000 / 500 or so
    assert len(set(pairs.labelled)) == 2000
    table = np.zeros((4, 4))
    np.add.at(table, (labels[pairs.labelled], pairs.given_labels), 1)
    assert np.abs(
        table / table.sum(1, keepdims=True) - pairs.confusion
    ).max() < 5 * 0.5 / math.sqrt(300)
    assert pairs.confusion.sum(1) == pytest.approx(np.ones(4))
    first, second = pairs.variates(slice(10, 12))
    assert first.shape == second.shape == (2, 15)
    assert first.dtype == np.float32
    assert np.array_equal(first[0] * 16, images[pairs.first[10]].ravel().astype(np.float32))
    few = image_pairs(images, labels, 4000, 300, 0.6, seed=5)
    given = dict(zip(few.labelled.tolist(), few.given_labels.tolist(), strict=True))
    assert few.pair_labels.tolist() == [
        given.get(i, given.get(j, -1))
        for i, j in zip(few.first.tolist(), few.second.tolist(), strict=True)
    ]


def test_refusals():
    images, labels = np.zeros((4, 2, 2)), np.array([0, 1, 0, 1])
    for arguments, message in (
        ((images[0], labels, 3), "images of shape"),
        ((images, labels[:2], 3), "one whole number an image"),
        ((images, labels + 1, 3), "labels must be 0 to C - 1"),
        ((images, labels, 0), "num_pairs must be a positive integer"),
        ((images, labels, 3, 5), "at most the 4 images"),
        ((images, labels, 3, 2, 1.5), "label_accuracy must lie between 0 and 1"),
        ((images, labels, 3), "largest must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            image_pairs(*arguments)
    with pytest.raises(ValueError, match="num_rows must be a positive integer"):
        simulate_two_gaussians(0)
    with pytest.raises(ValueError, match="weights must be positive and sum to 1"):
        NormalComponents(np.array([0.5, 0.6]), np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="means and sds of shape"):
        NormalComponents(np.array([0.5, 0.5]), np.zeros((2, 1)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="chances of the cells"):
        UniformCells(np.array([0.5, 0.5]), np.ones((2, 2, 3)))


@pytest.mark.data("mnist_train_part0.npz")
def test_pairs_of_mnist():
    mnist = load_mnist_images()
    assert mnist.images.shape == (60_000, 28, 28)
    assert mnist.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert np.bincount(mnist.test_labels).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]
    pairs = mnist_pairs(300, 2000, seed=1)
    assert pairs.num_classes == 10
    assert pairs.variates()[0].shape == (300, 784)
    assert 0.55 < (pairs.given_labels == mnist.labels[pairs.labelled]).mean() < 0.65

r"""Mixtures of conditionally independent variates with a known truth.

Weights, classifiers and total correlation are known.

.. math:: P(X) = \sum_i w_i \prod_v f_v^{(i)}(x_v)

The examples of K. T. Matchev and P. Shyamsundar (2022), InClass nets: independent classifier
networks for nonparametric estimation of conditional independence mixture models and unsupervised
classification, Mach. Learn.: Sci. Technol. 3, 025008, arXiv:2009.00131 (their sections 3.1 to 3.4).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

REACH, STEP = 8.0, 0.125  # of the grid of Normals, in standard deviations


@shows_briefly
@dataclass(frozen=True, eq=False)
class IndependentMixture(ABC):
    """Known mixture of V one-dimensional variates, independent inside C components.

    Args:
        weights: (C,), positive, summing to one.

    Raises:
        ValueError: for weights that do not sum to one.
    """

    weights: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", np.asarray(self.weights, float))
        if (
            self.weights.ndim != 1
            or not (self.weights > 0).all()
            or not math.isclose(self.weights.sum(), 1, abs_tol=1e-9)
        ):
            raise ValueError(
                f"{type(self).__name__}: weights must be positive and sum to 1, got"
                f" {self.weights.tolist()}"
            )

    @property
    @abstractmethod
    def num_variates(self) -> int:
        """Number of variates, V."""

    @abstractmethod
    def densities(self, variate: int, x: np.ndarray) -> np.ndarray:
        """Densities f_v^(i)(x) of every component i at values x (G,) of a variate: (G, C)."""

    @abstractmethod
    def nodes(self, variate: int, fineness: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature nodes and weights over a variate, (G,) each.

        A larger ``fineness`` takes more places.
        """

    @abstractmethod
    def draw(self, num_rows: int, seed: Seed) -> IndependentSample:
        """Draw rows of the mixture."""

    def classifiers(self, variate: int, x: np.ndarray) -> np.ndarray:
        """Posterior P(component | x_v) at values (G,) of one variate: (G, C)."""
        joint = self.weights * self.densities(variate, np.asarray(x, float))
        with np.errstate(invalid="ignore"):
            return joint / joint.sum(1, keepdims=True)

    def aggregate(self, data: np.ndarray) -> np.ndarray:
        """Posterior P(component | row) of rows (N, V): (N, C)."""
        joint = self.weights * np.prod(
            [self.densities(v, data[:, v]) for v in range(self.num_variates)], 0
        )
        return joint / joint.sum(1, keepdims=True)

    def log_ratio(self, data: np.ndarray) -> np.ndarray:
        """Log-ratio log P(X) - sum_v log P_v(x_v) of rows (N, V): (N,).

        Its mean over the mixture is the total correlation.
        """
        each = [self.densities(v, data[:, v]) for v in range(self.num_variates)]
        return np.log(np.prod(each, 0) @ self.weights) - sum(np.log(f @ self.weights) for f in each)

    def total_correlation(self) -> float:
        """Total correlation C* = KL(P, prod_v P_v) in nats, by quadrature.

        No fit has a mean negative log-ratio below -C*.
        """

        def integrand(joint: np.ndarray, product: np.ndarray) -> np.ndarray:
            mass = joint.sum(-1)
            return np.where(
                mass > 0,
                mass * np.log(np.where(mass > 0, mass, 1) / np.where(product > 0, product, 1)),
                0.0,
            )

        return self._integral(integrand)

    def best_accuracy(self, variate: int | None = None) -> float:
        """Accuracy of the exact posterior, from all variates or from one."""
        if variate is None:
            return self._integral(lambda joint, product: joint.max(-1))
        x, mass = self.nodes(variate, fineness=100)
        return float(mass @ (self.weights * self.densities(variate, x)).max(1))

    def _integral(self, integrand: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        """Integrate over the product of the grids, two variates at a time.

        The integrand takes w_i prod_v f_v^(i) and prod_v P_v.
        """
        grids = [self.nodes(v) for v in range(self.num_variates)]
        tables = [self.densities(v, x) for v, (x, _) in enumerate(grids)]
        first, last = tables[-2], tables[-1]
        total = 0.0
        for outer in itertools.product(*(range(len(table)) for table in tables[:-2])):
            inside = (
                np.prod([table[g] for table, g in zip(tables, outer, strict=False)], 0)
                * self.weights
            )  # (C,)
            weight = math.prod(float(grid[1][g]) for grid, g in zip(grids, outer, strict=False))
            joint = (inside * first)[:, None] * last  # (G, G, C)
            product = np.outer(first @ self.weights, last @ self.weights)
            product = product * math.prod(
                float(table[g] @ self.weights) for table, g in zip(tables, outer, strict=False)
            )
            total += weight * float(grids[-2][1] @ integrand(joint, product) @ grids[-1][1])
        return total


@shows_briefly
@dataclass(frozen=True, eq=False)
class IndependentSample:
    """Sample of rows with the truth that made them.

    Args:
        data: (N, V) float64, one column a variate.
        components: (N,) int64, the component of each row; never used in fitting.
        truth: the mixture.
    """

    data: np.ndarray
    components: np.ndarray
    truth: IndependentMixture = field(repr=False)


@shows_briefly
@dataclass(frozen=True, eq=False)
class NormalComponents(IndependentMixture):
    r"""Normal variates: :math:`x_v \mid i \sim N(\mu_{iv}, \sigma_{iv}^2)`.

    Args:
        weights: (C,).
        means, sds: (C, V).

    Raises:
        ValueError: for weights that do not sum to one, other shapes, or standard deviations that
            are not positive.
    """

    means: np.ndarray
    sds: np.ndarray

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("means", "sds"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        shape = self.means.shape
        if (
            len(shape) != 2
            or shape[0] != len(self.weights)
            or shape[1] < 2
            or self.sds.shape != shape
        ):
            raise ValueError(
                f"NormalComponents: means and sds of shape ({len(self.weights)}, two or more) were"
                f" expected, got {shape} and {self.sds.shape}"
            )
        if not (self.sds > 0).all():
            raise ValueError("NormalComponents: sds must be positive")

    @property
    def num_variates(self) -> int:
        """Number of variates V."""
        return self.means.shape[1]

    def densities(self, variate: int, x: np.ndarray) -> np.ndarray:
        """Densities of the components, (G, C)."""
        mean, sd = self.means[:, variate], self.sds[:, variate]
        return np.exp(-0.5 * ((np.asarray(x, float)[:, None] - mean) / sd) ** 2) / (
            sd * math.sqrt(2 * math.pi)
        )

    def nodes(self, variate: int, fineness: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature nodes and weights over a variate, (G,) each."""
        mean, sd = self.means[:, variate], self.sds[:, variate]
        step = STEP * sd.min() / fineness
        x = np.arange((mean - REACH * sd).min(), (mean + REACH * sd).max(), step)
        return x, np.full(len(x), step)

    def draw(self, num_rows: int, seed: Seed) -> IndependentSample:
        """Draw rows of the mixture."""
        seed = as_seed("draw", seed)
        rng = np.random.default_rng(seed)
        c = _components(self.weights, num_rows, rng)
        data = self.means[c] + self.sds[c] * rng.standard_normal((num_rows, self.num_variates))
        return IndependentSample(data, c, self)


@shows_briefly
@dataclass(frozen=True, eq=False)
class UniformCells(IndependentMixture):
    """Densities that are constant on the unit cells [0, 1), [1, 2), ... of each variate.

    Args:
        weights: (C,).
        cells: (V, C, M), the chance of each cell in each component.

    Raises:
        ValueError: for weights that do not sum to one, other shapes, or chances that do not sum to
            one.
    """

    cells: np.ndarray

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cells", np.asarray(self.cells, float))
        if self.cells.ndim != 3 or len(self.cells) < 2 or self.cells.shape[1] != len(self.weights):
            raise ValueError(
                f"UniformCells: cells of shape (two or more, {len(self.weights)}, cells) were"
                f" expected, got {self.cells.shape}"
            )
        if not ((self.cells >= 0).all() and np.allclose(self.cells.sum(-1), 1, atol=1e-9)):
            raise ValueError(
                "UniformCells: the chances of the cells must not be negative and sum to 1 in every"
                " component"
            )

    @property
    def num_variates(self) -> int:
        """Number of variates V."""
        return len(self.cells)

    def densities(self, variate: int, x: np.ndarray) -> np.ndarray:
        """Densities of the components, (G, C)."""
        cell = np.floor(np.asarray(x, float)).astype(int)
        inside = (cell >= 0) & (cell < self.cells.shape[-1])
        return self.cells[variate][:, np.where(inside, cell, 0)].T * inside[:, None]

    def nodes(self, variate: int, fineness: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Quadrature over a variate, (G,) each."""
        size = self.cells.shape[-1]
        return np.arange(size) + 0.5, np.ones(size)

    def draw(self, num_rows: int, seed: Seed) -> IndependentSample:
        """Draw rows of the mixture."""
        seed = as_seed("draw", seed)
        rng = np.random.default_rng(seed)
        c = _components(self.weights, num_rows, rng)
        bounds = self.cells.cumsum(-1)[:, c]  # (V, N, M)
        cell = (rng.random((self.num_variates, num_rows, 1)) > bounds / bounds[..., -1:]).sum(-1)
        return IndependentSample((cell + rng.random(cell.shape)).T, c, self)


def _components(weights: np.ndarray, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    check_size("simulate", "num_rows", num_rows)
    return rng.choice(len(weights), size=num_rows, p=weights)


def simulate_two_gaussians(num_rows: int = 100_000, seed: Seed = 0) -> IndependentSample:
    """Simulate two variates of two overlapping Normal components (section 3.1).

    Means are -1 and 1 in both variates, standard deviations 1.5, weights .4 and .6.

    Nothing but the far tails is sure of its component, so that a finite sample leaves the weights
    an interval (:func:`inference.identifiability.weight_interval`). C* = 0.05237.

    Args:
        num_rows: N.
        seed: of the draws.

    Raises:
        ValueError: for no rows.
    """
    means = np.array([[-1.0, -1.0], [1.0, 1.0]])
    return NormalComponents(np.array([0.4, 0.6]), means, np.full((2, 2), 1.5)).draw(num_rows, seed)


def simulate_checkerboard(num_rows: int = 100_000, seed: Seed = 0) -> IndependentSample:
    """Simulate the 8 bright cells of a board of 4 x 4 (section 3.2).

    x and y lie both in [0, 1) or [2, 3), or both in the rest.

    Every value of either variate tells the component; C* = log 2.

    Args:
        num_rows: N.
        seed: of the draws.

    Raises:
        ValueError: for no rows.
    """
    cells = np.array([[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5]])
    return UniformCells(np.array([0.5, 0.5]), np.stack([cells, cells])).draw(num_rows, seed)


def simulate_trivariate(num_rows: int = 1_000_000, seed: Seed = 0) -> IndependentSample:
    """Simulate three variates of four overlapping Normal components (section 3.4, table 3).

    C* = 0.07318.

    Args:
        num_rows: N.
        seed: of the draws.

    Raises:
        ValueError: for no rows.
    """
    means = np.array([[-1.0, -1.0, -1.0], [1.0, 1.0, 0.0], [-1.5, 1.5, 1.0], [1.5, -1.5, 2.0]])
    sds = np.full((4, 3), 1.5)
    sds[3, 2] = 2.5
    return NormalComponents(np.array([0.22, 0.28, 0.18, 0.32]), means, sds).draw(num_rows, seed)


# ---------------------------------------------------------------- pairs of images


@shows_briefly
@dataclass(frozen=True, eq=False)
class ImagePairs:
    """Pairs of images of one class: two variates that are independent once the class is known.

    The images are kept once, and pairs as their numbers: :meth:`variates` makes the rows.

    Args:
        images: (M, D) uint8 or floating, one row an image, its pixels row by row.
        labels: (M,) int64, the class of each; used for scoring only.
        first, second: (N,) int64, the images of each pair.
        labelled: (L,) int64, images with a label to start from.
        given_labels: (L,) int64, their labels, some of them wrong.
        label_accuracy: the chance that a given label is right; a wrong one is any other class with
            equal chance.
        largest: the grey value that counts as one.
        image_shape: (rows, columns).
    """

    images: np.ndarray
    labels: np.ndarray
    first: np.ndarray
    second: np.ndarray
    labelled: np.ndarray
    given_labels: np.ndarray
    label_accuracy: float
    largest: float
    image_shape: tuple[int, int]

    @property
    def components(self) -> np.ndarray:
        """The class of each pair, (N,); never used in fitting."""
        return self.labels[self.first]

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    @property
    def confusion(self) -> np.ndarray:
        """P(given label | class), (C, C), a row a class, for losses with noisy labels."""
        size = self.num_classes
        return np.where(
            np.eye(size, dtype=bool), self.label_accuracy, (1 - self.label_accuracy) / (size - 1)
        )

    @property
    def pair_labels(self) -> np.ndarray:
        """Given label of the first image of each pair, else of the second, else -1, (N,)."""
        known = np.full(len(self.images), -1)
        known[self.labelled] = self.given_labels
        return np.where(known[self.first] >= 0, known[self.first], known[self.second])

    def rows(self, images: np.ndarray) -> np.ndarray:
        """Images by number as float32 rows, (n, D), between 0 and 1."""
        return self.images[images].astype(np.float32) / np.float32(self.largest)

    def variates(self, pairs: slice | np.ndarray = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Variates of the chosen pairs (all by default): two float32 arrays (n, D) in [0, 1]."""
        return self.rows(self.first[pairs]), self.rows(self.second[pairs])


def image_pairs(
    images: np.ndarray,
    labels: np.ndarray,
    num_pairs: int,
    num_labelled: int = 0,
    label_accuracy: float = 0.6,
    largest: float | None = None,
    seed: Seed = 0,
) -> ImagePairs:
    """Draw pairs of images of one class.

    A class has equal chances; then two of its images are drawn, with replacement.

    Args:
        images: (M, rows, columns).
        labels: (M,) integers 0 to C - 1, each of them present.
        num_pairs: N.
        num_labelled: images that get a label, drawn without replacement.
        label_accuracy: the chance that such a label is right; else it is one of the other classes,
            with equal chance.
        largest: the grey value that counts as one; the largest there is if None.
        seed: of the pairs and of the labels.

    Raises:
        ValueError: for images that are no stack of pictures, labels that are no classes, or numbers
            out of range.
    """
    seed = as_seed("image_pairs", seed)
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 3 or not len(images) or images.dtype.kind not in "uif":
        raise ValueError(
            "image_pairs: images of shape (images, rows, columns) were expected, got"
            f" {images.shape} of {images.dtype}"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "ui":
        raise ValueError(
            "image_pairs: one whole number an image was expected as labels, got shape"
            f" {labels.shape} of {labels.dtype}"
        )
    labels = labels.astype(np.int64)
    found = np.unique(labels)
    if len(found) < 2 or not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            "image_pairs: labels must be 0 to C - 1 with each of at least two classes present, got"
            f" {found.tolist()}"
        )
    check_size("image_pairs", "num_pairs", num_pairs)
    check_size("image_pairs", "num_labelled", num_labelled, 0)
    if num_labelled > len(images):
        raise ValueError(
            f"image_pairs: num_labelled must be at most the {len(images)} images, got"
            f" {num_labelled}"
        )
    check_number(
        "image_pairs", "label_accuracy", label_accuracy, "lie between 0 and 1", least=0, most=1
    )
    one = float(images.max()) if largest is None else largest
    check_number("image_pairs", "largest", one, "be positive", above=0)
    rng = np.random.default_rng(seed)
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    begins = np.cumsum(sizes) - sizes
    classes = rng.integers(len(sizes), size=num_pairs)
    first, second = (order[begins[classes] + rng.integers(sizes[classes])] for _ in range(2))
    labelled = rng.choice(len(images), size=num_labelled, replace=False)
    right = rng.random(num_labelled) < label_accuracy
    other = (labels[labelled] + rng.integers(1, len(sizes), size=num_labelled)) % len(sizes)
    given = np.where(right, labels[labelled], other)
    shape = (images.shape[1], images.shape[2])
    return ImagePairs(
        images.reshape(len(images), -1),
        labels,
        first,
        second,
        labelled,
        given,
        float(label_accuracy),
        one,
        shape,
    )

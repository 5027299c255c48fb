r"""Divergence of noise from its assumed distribution, and its value on exact noise.

All estimate Kullback-Leibler divergences. None is zero on exact noise of finite size: the null mean
is subtracted by ACDC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
import torch
from scipy import fft

from inference.base.component_noise import Cells, NoiseDraws
from inference.programs.global_state import isolated
from ppl_models.parts.validation import check_flag, check_size, plain_fields

GRID = 2048
NULL_COLUMNS = 1500  # columns of exact noise from which a null is estimated
NULL_STEP = 1.15  # ratio of neighbouring sizes in the table of nulls


class Discrepancy(Protocol):
    """An estimator, as a frozen record of settings."""

    def __hash__(self) -> int: ...

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Divergence of each column of normal scores (n, D), or of all jointly, (D,) or (1,)."""
        ...

    @property
    def joint(self) -> bool:
        """Joint comparison of all columns."""
        ...

    @property
    def mean(self) -> bool:
        """Average over columns; else their sum."""
        ...


def _uniform(scores: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    values: np.ndarray = ndtr(scores)
    return values


@dataclass(frozen=True)
class KDE:
    """Kernel density on the unit interval, one column at a time.

    Epanechnikov kernel, Silverman's bandwidth, 2048 points.

    Args:
        mean: average over columns instead of their sum.
        periodic: join the ends of the interval, as the published code does; else the density is
            reflected at both, which is right also where they differ.
    """

    mean: bool = False
    periodic: bool = False
    joint: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_flag("KDE", "mean", self.mean)
        check_flag("KDE", "periodic", self.periodic)

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Return the divergence of each column, (D,)."""
        out = [
            self._block(scores[:, start : start + 128]) for start in range(0, scores.shape[1], 128)
        ]
        return np.concatenate(out)

    def _block(self, scores: np.ndarray) -> np.ndarray:
        n, num = scores.shape
        u = _uniform(scores)
        quartiles = np.quantile(u, (0.25, 0.75), axis=0)
        spread = np.minimum(
            u.std(0, ddof=1) if n > 1 else np.zeros(num), (quartiles[1] - quartiles[0]) / 1.34
        )
        half_width = np.sqrt(5.0) * np.maximum(0.9 * spread * n**-0.2, 1.0 / GRID)  # (D,)
        cell = np.minimum((u * GRID).astype(np.int64), GRID - 1)
        counts = np.bincount((cell + GRID * np.arange(num)).ravel(), minlength=GRID * num)
        counts = counts.reshape(num, GRID).astype(float)
        steps = np.arange(GRID // 2 + 1 if self.periodic else GRID + 1)
        kernel = np.maximum(1 - (steps / (GRID * half_width[:, None])) ** 2, 0.0)
        spectrum = fft.dct(kernel, 1)  # of the kernel on both sides
        if self.periodic:
            density = fft.irfft(fft.rfft(counts) * spectrum, GRID)
        else:  # of the counts and their reflection
            density = fft.idct(fft.dct(counts) * spectrum[:, :GRID])
        density = np.maximum(density, 0.0)
        density /= density.mean(1, keepdims=True)
        logs = np.log(density, out=np.zeros_like(density), where=density > 0)
        value: np.ndarray = (density * logs).mean(1)
        return value


@dataclass(frozen=True)
class Histogram:
    """Equal bins of the unit interval, one column at a time.

    Args:
        num_bins: number of bins; mean: average over columns instead of their sum.
    """

    num_bins: int = 20
    mean: bool = False
    joint: ClassVar[bool] = False

    def __post_init__(self) -> None:
        plain_fields(self)
        check_flag("Histogram", "mean", self.mean)
        check_size("Histogram", "num_bins", self.num_bins, least=2)

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Return the divergence of each column, (D,)."""
        n, num = scores.shape
        cell = np.minimum((_uniform(scores) * self.num_bins).astype(np.int64), self.num_bins - 1)
        counts = np.bincount(
            (cell + self.num_bins * np.arange(num)).ravel(), minlength=self.num_bins * num
        )
        share = counts.reshape(num, self.num_bins) / n
        logs = np.log(share * self.num_bins, out=np.zeros_like(share), where=share > 0)
        value: np.ndarray = (share * logs).sum(1)
        return value


@dataclass(frozen=True)
class KNN:
    r"""k-nearest-neighbour divergence of normal scores from the standard normal.

    Source: Wang, Kulkarni and Verdu (2009).

    :math:`n^{-1} \sum_i \psi(k) - \log(n - 1) - \log c_d - d \log r_k(i) - \log q(x_i)`, with k the
    integer part of :math:`\sqrt n`.

    Args:
        jointly: compare all columns at once; else one at a time.
        mean: average over columns instead of their sum.
    """

    jointly: bool = False
    mean: bool = False

    def __post_init__(self) -> None:
        check_flag("KNN", "jointly", self.jointly)
        check_flag("KNN", "mean", self.mean)

    @property
    def joint(self) -> bool:
        """Joint comparison of all columns."""
        return self.jointly

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Return the divergence of each column, (D,), or of all jointly, (1,)."""
        if self.jointly:
            return np.array([_knn(scores)])
        return _knn_columns(scores)


def _knn_columns(x: np.ndarray) -> np.ndarray:
    """The same for each column on its own: in one dimension neighbours are found by sorting."""
    from scipy.special import digamma

    n, num = x.shape
    if n < 3:
        return np.full(num, math.nan)
    k = max(1, math.isqrt(n))
    x = np.sort(x, axis=0)
    far = np.full((k, num), np.inf)
    padded = np.concatenate([-far, x, far])
    distance = np.full(x.shape, np.inf)
    for below in range(k + 1):  # of the k neighbours, so many lie below
        left, right = padded[k - below : k - below + n], padded[2 * k - below : 2 * k - below + n]
        np.minimum(distance, np.maximum(x - left, right - x), out=distance)
    log_density = (
        digamma(k) - math.log(n - 1) - math.log(2.0) - np.log(np.maximum(distance, 1e-300))
    )
    value: np.ndarray = (log_density + 0.5 * x**2 + 0.5 * math.log(2 * math.pi)).mean(0)
    return value


def _knn(x: np.ndarray) -> float:
    from scipy.spatial import cKDTree
    from scipy.special import digamma, gammaln

    n, d = x.shape
    if n < 3:
        return math.nan
    k = max(1, math.isqrt(n))
    distance = np.maximum(cKDTree(x).query(x, k=k + 1)[0][:, -1], 1e-300)
    log_ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    log_reference = -0.5 * (x**2).sum(1) - d / 2 * math.log(2 * math.pi)
    log_density = digamma(k) - math.log(n - 1) - log_ball - d * np.log(distance)
    return float((log_density - log_reference).mean())


def null_moments(discrepancy: Discrepancy, num_rows: int, num_columns: int) -> tuple[float, float]:
    """Return mean and standard deviation of the estimator on exact noise.

    Interpolated between sizes of a fixed table, which is drawn once a process and the same for
    every caller.
    """
    if num_rows < 3:
        return math.nan, math.nan
    place = max(0.0, math.log(num_rows / 3) / math.log(NULL_STEP))
    low = math.floor(place)
    share = place - low
    width = num_columns if discrepancy.joint else 1
    (m0, s0), (m1, s1) = (_null_entry(discrepancy, low + i, width) for i in (0, 1))
    mean, sd = m0 + share * (m1 - m0), s0 + share * (s1 - s0)
    if discrepancy.joint or num_columns == 1:
        return mean, sd
    if discrepancy.mean:
        return (mean, sd / math.sqrt(num_columns))
    return (mean * num_columns, sd * math.sqrt(num_columns))


@lru_cache(maxsize=4096)
def _null_entry(discrepancy: Discrepancy, step: int, width: int) -> tuple[float, float]:
    n = round(3 * NULL_STEP**step)
    rng = np.random.default_rng([n, width])
    if discrepancy.joint:
        values = np.concatenate(
            [discrepancy.columns(rng.standard_normal((n, width))) for _ in range(40)]
        )
    else:
        num = max(200, min(NULL_COLUMNS, 3_000_000 // n))
        values = np.concatenate(
            [discrepancy.columns(rng.standard_normal((n, 100))) for _ in range(num // 100)]
        )
    return float(values.mean()), float(values.std(ddof=1))


@dataclass(frozen=True)
class PlugIn:
    r"""Plug-in divergence for mixtures of few discrete items.

    It is :math:`\sum_v \hat p_v \log(\hat p_v / F(v))`, rows weighted by responsibility.

    Args:
        num_null: samples of the component's own distribution from which the null is estimated.
    """

    num_null: int = 50

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("PlugIn", "num_null", self.num_null, least=2)


def cells_of(noise: NoiseDraws) -> Cells:
    """Return the cells of discrete noise; refuse noise without them."""
    if noise.cells is None:
        raise ValueError(
            "acdc: PlugIn() needs a mixture of discrete items without missing entries; use KDE() or"
            " KNN()"
        )
    return noise.cells


def plug_in(cells: Cells) -> np.ndarray:
    """Return the plug-in divergence of each component, (K,)."""
    share = (cells.weights / cells.weights.sum(-1, keepdim=True).clamp(min=1e-300)).numpy()
    log_probabilities = cells.log_probabilities.numpy()
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    value: np.ndarray = np.where(share > 0, share * (logs - log_probabilities), 0.0).sum(-1)
    return value


def plug_in_null(
    cells: Cells, discrepancy: PlugIn, generator: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of the plug-in divergence on exact samples, (K,) each.

    Samples of each component's own distribution, as large as its expected use.
    """
    means, sds = [], []
    seed = int(torch.randint(2**62, (1,), generator=generator))
    for k, n in enumerate(cells.weights.sum(-1).round().clamp(min=1).long().tolist()):
        values = []
        with isolated(seed + k):
            for _ in range(discrepancy.num_null):
                patterns, counts = torch.unique(
                    cells.distribution.sample((n,))[:, k], dim=0, return_counts=True
                )
                logs = cells.distribution.log_prob(patterns.unsqueeze(-2))[:, k]
                values.append(float((counts / n * ((counts / n).log() - logs)).sum()))
        means.append(np.mean(values))
        sds.append(np.std(values, ddof=1))
    return np.array(means), np.array(sds)

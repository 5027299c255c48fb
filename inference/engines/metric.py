r"""Mass matrix of a Hamiltonian sampler, from points of the warm-up and slopes there.

With points z of covariance :math:`C_z` and slopes :math:`g = \nabla \log p(z)` of covariance
:math:`C_g`, the inverse mass matrix :math:`\Sigma` that leaves the density least different from a
standard normal, by the Fisher divergence, has

.. math:: \Sigma\, C_g\, \Sigma = C_z,

so it is the geometric mean of :math:`C_z` and :math:`C_g^{-1}`. Where the density is normal, chance
moves both alike and cancels: points that span the space give its covariance exactly, however few
they are. In directions that no point went, the matrix so far stays.

Source: A. Seyboldt, E. L. Carlson and B. Carpenter (2026), Preconditioning Hamiltonian Monte Carlo
by minimizing Fisher divergence, arXiv:2603.18845.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy import ndarray as Array

SO_FAR = 20.0  # points that the matrix so far counts for, a standard normal in its own units
MOST_CHANGE = 1e3  # of a direction's variance at once


def adapted(covariance: Array, windows: Sequence[Array]) -> Array:
    """Adapted inverse mass matrix after a window of warm-up.

    Args:
        covariance: the one so far, (P, P), or its diagonal (P,).
        windows: of each chain, its points and the slopes there, (T, 2, P).

    Returns:
        In the shape of ``covariance``; the one so far where there is nothing to learn from.
    """
    from scipy.linalg import solve_triangular

    windows = [window for window in windows if len(window) > 1]
    if not windows:
        return covariance
    count = sum(len(window) - 1 for window in windows)
    points, slopes = np.concatenate([window - window.mean(0) for window in windows]).transpose(
        1, 0, 2
    )  # (T, P) each
    share = SO_FAR / (count + SO_FAR)
    if covariance.ndim == 1:
        spread, slope = (
            (1 - share) * square.sum(0) / count + share
            for square in (points**2 / covariance, slopes**2 * covariance)
        )
        return cast(
            "Array", covariance * np.clip(np.sqrt(spread / slope), 1 / MOST_CHANGE, MOST_CHANGE)
        )
    root = np.linalg.cholesky(covariance)
    own = (
        solve_triangular(root, points.T, lower=True, check_finite=False),
        root.T @ slopes.T,
    )  # in units of the matrix so far
    spread, slope = (
        (1 - share) * part @ part.T / count + share * np.eye(len(root)) for part in own
    )
    change = _power(_geometric_mean(spread, slope), 1.0, MOST_CHANGE)
    new: Array = root @ change @ root.T
    new = (new + new.T) / 2
    try:
        np.linalg.cholesky(new)
    except np.linalg.LinAlgError:  # a ridge so flat that rounding leaves no root
        return covariance
    return new


def _geometric_mean(one: Array, other: Array) -> Array:
    """Geometric mean of two matrices: the positive definite A with A other A = one."""
    half, inverse = _power(other, 0.5), _power(other, -0.5)
    out: Array = inverse @ _power(half @ one @ half, 0.5) @ inverse
    return out


def _power(matrix: Array, exponent: float, most: float = np.inf) -> Array:
    """Power of a positive definite matrix, its eigenvalues bounded by ``most``."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.clip(values, max(1 / most, np.finfo(float).tiny), most)
    out: Array = (vectors * values**exponent) @ vectors.T
    return out

r"""How well any method could know the weights of components whose densities nobody names: the
semiparametric bound, from classifier values.

A row tells of its component through :math:`(\alpha_v(x_v))_v` alone, so each variate may be cut
into cells by its classifier values without losing more than the cells' width. In cells the mixture
is latent class analysis: with chances :math:`p_v^{(i)}(k)` of cell k and posterior r of the
components the scores are

.. math::

    \partial_{w_i} = \frac{r_i}{w_i} - \frac{r_C}{w_C}, \qquad \partial_{v i k} = r_i \bigl(1[k_v =
    k] - p_v^{(i)}(k)\bigr),

and what the weights' scores have that the others' do not explain, :math:`I_w - I_{wp} I_{pp}^{-1}
I_{pw}`, is the information that N rows hold N times. The square root of its inverse bounds the
standard error of every regular estimator from below (cells make it larger by some per cent).

Source: P. J. Bickel, C. A. J. Klaassen, Y. Ritov and J. A. Wellner (1993), Efficient and adaptive
estimation for semiparametric models (the bound); the cells are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

NUM_CELLS = 16  # of a variate
LOOKED_AT = 20_000  # rows, evenly spaced, that cells are found from
MOST_CONFIGURATIONS = 2**15  # of cells that are summed over; beyond, so many rows are drawn
EMPTY = 1e-6  # chance of a cell in a component that does not reach it
SINGULAR = 1e-9


def weight_errors(alphas: Sequence[np.ndarray], weights: np.ndarray, seed: int = 0) -> np.ndarray:
    """Least standard errors of the weights, (C,), from as many rows as there are; infinite where
    the cells do not determine them.

    Args:
        alphas: V arrays (N, C), the classifier of each variate; weights: (C,).
        seed: of cells and draws.
    """
    generator = np.random.default_rng(seed)
    cells = [_cells(np.asarray(alpha, float), generator) for alpha in alphas]
    size, num_rows = len(weights), len(alphas[0])
    tables = []
    for alpha, own in zip(alphas, cells, strict=True):
        count = np.stack(
            [np.bincount(own, column, own.max() + 1) for column in np.asarray(alpha, float).T]
        )  # (C, K)
        tables.append(count / count.sum(1, keepdims=True))
    if np.prod([table.shape[1] for table in tables], dtype=float) <= MOST_CONFIGURATIONS:
        rows = np.array(list(itertools.product(*(range(table.shape[1]) for table in tables))))
        share = None
    else:
        component = generator.choice(size, MOST_CONFIGURATIONS, p=weights / weights.sum())
        rows = np.stack([_drawn(table, component, generator) for table in tables], 1)
        share = np.full(len(rows), 1 / len(rows))
    # (rows, C)
    joint = weights * np.prod([table[:, k].T for table, k in zip(tables, rows.T, strict=True)], 0)
    mixture = joint.sum(1)
    known = mixture > 0
    rows, joint, mixture = rows[known], joint[known], mixture[known]
    share = mixture if share is None else share[known]
    posterior = joint / mixture[:, None]
    of_weights = posterior[:, :-1] / weights[:-1] - posterior[:, -1:] / weights[-1]
    others = []
    for table, k in zip(tables, rows.T, strict=True):
        for i in range(size):
            # cells that the component reaches, but one
            free = (table[i] > EMPTY) & (np.arange(table.shape[1]) != table[i].argmax())
            others.append(
                posterior[:, i : i + 1] * ((k[:, None] == np.flatnonzero(free)) - table[i, free])
            )
    rest = np.concatenate(others, 1)
    weighted = rest * share[:, None]
    information = (of_weights * share[:, None]).T @ of_weights
    shared = of_weights.T @ weighted
    left = (
        information
        - shared @ np.linalg.pinv(rest.T @ weighted, rcond=1e-12, hermitian=True) @ shared.T
    )
    values, vectors = np.linalg.eigh(left)
    if values[0] <= SINGULAR * np.trace(information):
        return np.full(size, np.inf)
    covariance = vectors / values @ vectors.T / num_rows
    return np.sqrt(np.append(np.diag(covariance), covariance.sum()))


def _cells(alpha: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The cell of every row, (N,): rows of like classifier values."""
    from scipy.cluster.vq import kmeans2, vq

    looked = alpha[:: max(1, len(alpha) // LOOKED_AT)]
    if len(np.unique(looked.round(6), axis=0)) <= NUM_CELLS:
        return np.unique(alpha.round(6), axis=0, return_inverse=True)[1].ravel()
    centres, owner = kmeans2(looked, NUM_CELLS, minit="++", seed=generator)
    centres = centres[np.bincount(owner, minlength=NUM_CELLS) > 0]
    owner = vq(alpha, centres)[0]
    return np.unique(owner, return_inverse=True)[1].ravel()


def _drawn(table: np.ndarray, component: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A cell for every row of a given component."""
    edges = table.cumsum(1)[component]
    return (generator.random((len(component), 1)) * edges[:, -1:] > edges).sum(1)

"""AnnData objects, and sparse tables of models that hold rows in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from inference import fit
from inference.base.streaming import sources
from ppl_models import Bernoulli, Mixture, Poisson, PoissonFactorization, items_of
from ppl_models.data.frames import SparseFrame

ROWS, NAMES = [f"cell{i}" for i in range(90)], [f"g{j}" for j in range(6)]


@dataclass
class Annotated:
    """What this library asks of an AnnData object."""

    X: Any

    @property
    def obs_names(self) -> pd.Index:
        return pd.Index(ROWS[: self.X.shape[0]])

    @property
    def var_names(self) -> pd.Index:
        return pd.Index(NAMES)


def counts() -> np.ndarray:
    rng = np.random.default_rng(0)
    rates = rng.gamma(0.7, 2.0, (2, 6)) + 0.3
    return rng.poisson(rates[rng.integers(0, 2, 90)]).astype(float) + np.eye(90, 6)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, np.asarray])
@pytest.mark.parametrize("model", [Mixture(2), PoissonFactorization(num_components=2)])
def test_annotated_counts_are_fitted_under_their_names(model, kind, monkeypatch) -> None:
    monkeypatch.setattr(sources, "MOST_CELLS", 6 * 20)  # four blocks and more
    frame, data = pd.DataFrame(counts(), ROWS, NAMES), Annotated(kind(counts()))
    found, expected = fit(model, data, num_restarts=3), fit(model, frame, num_restarts=3)
    assert found.item_names == tuple(NAMES)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=0.02)
    table = found.posterior_frame(data)
    assert table.index.tolist() == ROWS
    np.testing.assert_allclose(table, found.posterior_frame(frame), atol=0.02)


def test_rows_of_a_sparse_table_are_dense_block_by_block(monkeypatch) -> None:
    monkeypatch.setattr(sources, "MOST_CELLS", 6 * 20)
    rng = np.random.default_rng(1)
    chances = np.where(rng.integers(0, 2, 90)[:, None], 0.75, 0.25)
    table = sparse.csr_array((rng.random((90, 6)) < chances).astype(float))
    found = fit(Mixture(2), table)
    assert found.model.component == Bernoulli()
    assert len(next(iter(sources.source_of(table).parts(0, 90, 20)))) == 20
    expected = fit(Mixture(2, Bernoulli()), table.toarray(), num_restarts=20)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=0.02)
    assert len(found.summary(table)) == len(expected.summary(table.toarray()))


def test_columns_of_new_rows_are_found_by_name() -> None:
    found = fit(Mixture(2), pd.DataFrame(counts(), ROWS, NAMES))
    turned = SparseFrame(
        sparse.csr_matrix(counts()[:, ::-1]), pd.Index(ROWS), tuple(reversed(NAMES))
    )
    same = found.log_likelihood_rows(pd.DataFrame(counts(), ROWS, NAMES))
    np.testing.assert_allclose(found.log_likelihood_rows(turned), same, rtol=1e-12)
    with pytest.raises(ValueError, match="'g0' is missing"):
        found.log_likelihood_rows(turned.chosen(NAMES[1:]))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (counts() + 0.5, "whole counts were expected, got"),
        (-counts(), "counts of at least zero"),
        (np.where(counts() > 3, np.nan, counts()), "missing entries .NaN. need a dense table"),
    ],
)
def test_sparse_entries_that_are_no_counts_are_named(entries, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        items_of(Annotated(sparse.csr_matrix(entries)))


def test_a_matrix_on_disk_is_refused() -> None:
    data = Annotated(sparse.csr_matrix(counts()))
    data.X = type("Dataset", (), {"shape": (90, 6)})()
    with pytest.raises(ValueError, match="X is an array or a sparse matrix in memory .* Dataset"):
        fit(Mixture(2), data)


@pytest.mark.parametrize("family", [Poisson(), Bernoulli()], ids=str)
def test_a_sparse_table_with_gaps_is_fitted_as_the_dense_one(family: Any) -> None:
    """Gaps are explicit NaN entries of the sparse table; what it does not hold is 0."""
    rng = np.random.default_rng(0)
    rates = np.array([[0.2, 1.5, 0.1, 0.6], [1.2, 0.2, 0.9, 0.1]])[rng.integers(0, 2, 200)]
    dense = rng.poisson(rates).astype(float)
    dense = (dense > 0).astype(float) if isinstance(family, Bernoulli) else dense
    gaps = rng.random(dense.shape) < 0.1
    held = sparse.csr_matrix(np.where(gaps, -1.0, dense))
    held.data[held.data == -1.0] = np.nan
    dense[gaps] = np.nan
    one, other = (fit(Mixture(2, family), data, seed=0) for data in (dense, held))
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-6)
    assert other.bic == pytest.approx(one.bic, abs=1e-6)
    np.testing.assert_allclose(other.predict_proba(held), one.predict_proba(dense), atol=1e-4)
    errors = [own.summary(data)["error"] for own, data in ((one, dense), (other, held))]
    np.testing.assert_allclose(*errors, rtol=1e-3)

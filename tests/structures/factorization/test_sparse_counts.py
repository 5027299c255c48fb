"""Counts by their non-zero cells: against dense updates and brute force, whole fits, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, sparse, stats
from sklearn.decomposition import NMF

from inference import EM, Fit, fit
from inference.structures.factorization import factorize
from inference.structures.factorization.dispatch import in_cells, solved_rows
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.sparse_counts import SparseCounts, climbed
from inference.structures.factorization.updates import Counts, accelerated
from ppl_models import (
    GaussianFactorization,
    NegativeBinomialFactorization,
    PoissonFactorization,
    UsageFactorization,
)
from ppl_models.data import sparse as tables
from ppl_models.data.sparse import SparseTable, worth_sparse

F64 = torch.float64


def sparse_counts(seed=0, n=40, j=12, k=3, size=1.0):
    """Mostly empty counts without empty rows, an array (N, J)."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(size * rng.gamma(0.3, 1.0, (n, k)) @ rng.gamma(0.3, 1.0, (k, j)))
    x[x.sum(1) == 0, 0] = 1
    return x.astype(float)


def factors(n, j=12, k=3, restarts=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.rand(restarts, n, k, generator=g, dtype=F64) + 0.1
    phi = torch.rand(restarts, k, j, generator=g, dtype=F64) + 0.01
    return z, phi / phi.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    "model", [PoissonFactorization(12, 3), PoissonFactorization(12, 3, 1.5, (2.0, 0.1))]
)
def test_cells_say_what_the_whole_table_says(model):
    x = sparse_counts()
    dense = Counts.of(torch.tensor(x), model.factorization())
    cells = SparseCounts.of(SparseTable.of(sparse.coo_matrix(x)), model.factorization())
    z, phi = factors(len(x))
    for name in ("activities", "values", "log_likelihood_rows"):
        torch.testing.assert_close(getattr(cells, name)(z, phi), getattr(dense, name)(z, phi))
    torch.testing.assert_close(cells.pulls(z, phi), dense.pulls(z, phi))
    torch.testing.assert_close(cells.row_means(), dense.row_means())
    index = torch.tensor([5, 2, 9])
    torch.testing.assert_close(
        cells.at(index).values(z[:, index], phi), dense.at(index).values(z[:, index], phi)
    )
    both = [accelerated(u, u.sweep, z, phi, u.varying(z, phi)) for u in (dense, cells)]
    torch.testing.assert_close(both[1], both[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_newton_steps_never_lose_and_end_where_the_slopes_vanish(seed, monkeypatch):
    monkeypatch.setattr(
        "inference.structures.factorization.sparse_counts.CELLS_AT_ONCE", 25
    )  # several blocks
    x = sparse_counts(seed)
    counts = SparseCounts.of(SparseTable.of(sparse.csr_array(x)), _flat())
    z, phi = (value[0] for value in factors(len(x), seed=seed))
    last = float(counts.varying(z[None], phi[None])[0])
    for _ in range(60):
        z, phi, value = climbed(counts, z, phi, 1)
        assert float(value) >= last - 1e-9 * abs(last)
        last = float(value)
    assert last == pytest.approx(float(counts.varying(z[None], phi[None])[0]), abs=1e-9)
    torch.testing.assert_close(phi.sum(-1), torch.ones(3, dtype=F64))
    z, phi, _ = climbed(counts, z, phi, 2000)
    mu = np.maximum(z.numpy() @ phi.numpy(), 1e-12)
    slopes = [(x / mu) @ phi.numpy().T - 1, z.numpy().T @ (x / mu) - z.numpy().sum(0)[:, None]]
    for value, slope in zip((z.numpy(), phi.numpy()), slopes, strict=True):
        assert slope.max() < 1e-2 * max(1.0, float(z.sum(0).max()))
        assert np.abs(np.where(value > 1e-2, slope, 0)).max() < 1e-2 * max(1.0, float(z.max()))


def _flat():
    return PoissonFactorization(12, 3).factorization()


def test_solved_rows_are_the_maxima():
    x = sparse_counts(1)
    counts = SparseCounts.of(SparseTable.of(sparse.csr_array(x)), _flat())
    phi = factors(len(x))[1][0]
    z = solved_rows(counts, phi).numpy()
    for row, own in zip(x, z, strict=True):
        seen = row > 0

        def minus(v, row=row, seen=seen):
            mu = np.maximum(v @ phi.numpy(), 1e-300)
            return mu.sum() - (row[seen] * np.log(mu[seen])).sum()

        best = optimize.minimize(
            minus, np.full(3, row.sum() / 3), bounds=[(1e-12, None)] * 3, options={"ftol": 1e-14}
        )
        assert minus(own) <= best.fun + 1e-7


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_fits_of_all_forms_are_one_and_their_numbers_the_programs(form, tmp_path):
    x = sparse_counts(2, n=80, size=3.0)
    model = PoissonFactorization(12, 3)
    given = form(x.astype(np.int64))
    before = given.copy()
    result = fit(model, given, seed=1)
    assert (given != before).nnz == 0
    again = fit(model, sparse.csr_array(x), seed=1)
    assert again.log_likelihood == result.log_likelihood
    mu = np.maximum((result.local["activities"] @ result.params["signatures"]).numpy(), 1e-12)
    assert result.log_likelihood == pytest.approx(stats.poisson.logpmf(x, mu).sum(), rel=1e-9)
    rows = result.log_likelihood_rows(given)
    torch.testing.assert_close(rows, result.log_likelihood_rows(x), rtol=1e-4, atol=1e-4)
    assert float(rows.sum()) >= result.log_likelihood - 1e-3
    assert result.score(given) == pytest.approx(float(rows.mean()))
    torch.testing.assert_close(
        result.reconstruct(given), result.reconstruct(x), rtol=2e-2, atol=2e-2
    )
    dense = fit(model, x, seed=1)
    assert result.log_likelihood >= dense.log_likelihood - 0.5
    assert result.num_parameters == dense.num_parameters
    result.save(tmp_path / "fit")
    assert torch.equal(Fit.load(tmp_path / "fit").local["activities"], result.local["activities"])
    theirs = NMF(3, solver="mu", beta_loss="kullback-leibler", max_iter=2000, tol=1e-8)
    other = stats.poisson.logpmf(
        x, np.maximum(theirs.fit_transform(x) @ theirs.components_, 1e-12)
    ).sum()
    assert result.log_likelihood >= other - 0.05


def test_with_priors_the_dense_fit_is_met():
    x = sparse_counts(3)
    model = PoissonFactorization(12, 3, 1.5, activity_prior=(2.0, 0.5))
    start = factors(len(x), restarts=1)[1][0]
    found = [
        fit(model, data, Factorize(), init={"signatures": start})
        for data in (x, sparse.csr_array(x))
    ]
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-7)
    torch.testing.assert_close(
        found[1].params["signatures"], found[0].params["signatures"], rtol=1e-4, atol=1e-5
    )


def test_a_large_table_that_is_mostly_zero_is_read_by_cells(monkeypatch):
    x = sparse_counts(4, n=200, size=0.3)
    model = PoissonFactorization(12, 3)
    assert worth_sparse(torch.tensor(x)) is None
    monkeypatch.setattr(tables, "LEAST_CELLS", 100)
    monkeypatch.setattr(tables, "MOST_SHARE", 0.5)
    asked = []

    def watched(problem):
        found = in_cells(problem)
        asked.append(isinstance(found.data, SparseTable))
        return found

    monkeypatch.setattr(factorize, "in_cells", watched)
    dense = fit(model, x, seed=2)
    assert asked == [True]
    assert dense.log_likelihood == fit(model, sparse.csr_array(x), seed=2).log_likelihood
    x[3, 4] = np.nan
    assert worth_sparse(torch.tensor(x)) is None


def test_a_table_takes_slices_places_and_duplicates():
    x = sparse_counts(5)
    rows, columns = x.nonzero()
    twice = sparse.coo_matrix(
        (np.r_[x[rows, columns], 0.0], (np.r_[rows, 0], np.r_[columns, 11])), shape=x.shape
    )
    table = SparseTable.of(twice)
    assert torch.equal(table.dense(), torch.tensor(x))
    assert bool((table.values != 0).all())
    assert torch.equal(table[3:9].dense(), torch.tensor(x[3:9]))
    assert torch.equal(table[9:9].dense(), torch.tensor(x[9:9]))
    places = torch.tensor([7, 0, 7])
    assert torch.equal(table[places].dense(), torch.tensor(x)[places])
    torch.testing.assert_close(table.row_sums(table.values), torch.tensor(x.sum(1)))
    torch.testing.assert_close(table.column_sums(table.values), torch.tensor(x.sum(0)))
    whole = sparse.csr_array(x)
    assert SparseTable.of(whole).values.data_ptr() == whole.data.ctypes.data  # no copy


def changed(value):
    x = sparse.csr_array(sparse_counts(6))
    x.data[5] = value
    return x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit(PoissonFactorization(12, 3), changed(np.nan)), "missing entries.*got nan in"),
        (lambda: fit(PoissonFactorization(12, 3), changed(-2.0)), "at least zero.*got -2 in row"),
        (lambda: fit(PoissonFactorization(12, 3), changed(1.5)), "whole counts.*got 1.5 in row"),
        (lambda: fit(PoissonFactorization(12, 3), changed(np.inf)), "counts of at most"),
        (lambda: fit(PoissonFactorization(11, 3), changed(1.0)), "num_items = 11"),
        (
            lambda: fit(PoissonFactorization(4, 3), sparse.csr_array(np.eye(5, 4)[[0, 1, 4, 4]])),
            "num_components = 3.*with counts, got 2",
        ),
        (
            lambda: fit(PoissonFactorization(4, 2), sparse.csr_array(np.eye(5, 4))),
            "row 4 holds no counts at all",
        ),
        (lambda: fit(PoissonFactorization(12, 3), changed(1.0), EM()), "Factorize.. takes it"),
        (lambda: fit(UsageFactorization(12, 3), changed(1.0)), "a dense table was expected"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_questions_that_need_every_cell_say_so():
    x = sparse.csr_array(sparse_counts(7))
    result = fit(PoissonFactorization(12, 2), x, Factorize(max_sweeps=300))
    with pytest.raises(ValueError, match="a dense table was expected here"):
        result.fill_missing(x)


@pytest.mark.parametrize("family", [NegativeBinomialFactorization, GaussianFactorization])
def test_families_that_need_every_cell_take_sparse_tables_in_dense_blocks(family) -> None:
    rng = np.random.default_rng(1)
    rates = rng.gamma(0.5, 4.0, (80, 2)) @ rng.dirichlet(np.full(12, 0.5), 2)
    counts = rng.poisson(10 * rates) + np.eye(80, 12)[:, rng.permutation(12)]
    counts[12:, 0] += 1.0
    dense, few = (fit(family(12, 2), rows) for rows in (counts, sparse.csr_array(counts)))
    assert few.log_likelihood == pytest.approx(dense.log_likelihood, abs=0.1)

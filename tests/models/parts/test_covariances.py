"""Families of covariances: coordinates, M-steps by brute force, published fits of mclust."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris

from inference import EM, fit
from inference.base.component_distributions.covariance_families import family_precisions
from inference.selection import select
from ppl_models import HiddenMarkov, Mixture, MultivariateNormal
from ppl_models.parts.covariances import (
    FULL,
    LETTERS,
    NAMES,
    CovarianceFamily,
    FamilyCoordinates,
    InFamily,
)

K, J = 3, 3
REFERENCES = Path(__file__).parents[2] / "references"
IRIS = json.loads((REFERENCES / "iris.json").read_text(encoding="utf-8"))


def scatters(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    number = torch.tensor([20.0, 35.0, 12.0], dtype=torch.float64)
    roots = torch.randn(K, J, J, generator=generator, dtype=torch.float64)
    scatter = (roots @ roots.mT + 0.1 * torch.eye(J, dtype=torch.float64)) * number[:, None, None]
    return scatter, number


def expected(precisions: torch.Tensor, scatter: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Expected log-likelihood of the scatter matrices, up to a constant."""
    fits = number * torch.linalg.slogdet(precisions).logabsdet
    return (fits - (precisions * scatter).sum((-2, -1))).sum(-1) / 2


def by_brute_force(family: CovarianceFamily, scatter: torch.Tensor, number: torch.Tensor) -> float:
    """Maximum over the free coordinates by quasi-Newton steps, the best of some starts."""
    move, best = FamilyCoordinates(family), -np.inf
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(family.num_free, generator=generator, dtype=torch.float64) / 2
        x.requires_grad_()
        optimizer = torch.optim.LBFGS([x], max_iter=400, line_search_fn="strong_wolfe")

        def loss(optimizer=optimizer, x=x) -> torch.Tensor:
            optimizer.zero_grad()
            value = -expected(move(x), scatter, number)
            value.backward()
            return value

        optimizer.step(loss)
        best = max(best, float(expected(move(x.detach()), scatter, number)))
    return best


@pytest.mark.parametrize("letters", LETTERS)
def test_coordinates_go_there_and_back(letters: str) -> None:
    family = CovarianceFamily(letters, K, 4)
    move = FamilyCoordinates(family)
    x = torch.randn(7, family.num_free, generator=torch.Generator().manual_seed(1)).double()
    precisions = move(x)
    assert precisions.shape == (7, K, 4, 4) == move.forward_shape(x.shape)
    assert move.inverse_shape(precisions.shape) == x.shape
    torch.testing.assert_close(move(move.inv(precisions)), precisions, rtol=1e-9, atol=1e-9)
    assert InFamily(family).check(precisions).all()
    jacobian = torch.autograd.functional.jacobian(lambda z: move(z).flatten(), x[0])
    assert int(torch.linalg.matrix_rank(jacobian, rtol=1e-9)) == family.num_free


def test_precisions_of_another_family_are_outside() -> None:
    full = FamilyCoordinates(CovarianceFamily(FULL, K, J))
    others = full(torch.randn(full.family.num_free, generator=torch.Generator().manual_seed(3)))
    for letters in set(LETTERS) - {FULL}:
        assert not InFamily(CovarianceFamily(letters, K, J)).check(others.double())


@pytest.mark.parametrize("letters", LETTERS)
def test_m_step_is_the_maximum_that_brute_force_finds(letters: str) -> None:
    scatter, number = scatters(5)
    family = CovarianceFamily(letters, K, J)
    precisions = torch.eye(J, dtype=torch.float64).expand(1, K, J, J)
    empty, before = torch.zeros(1, K, dtype=torch.bool), -torch.inf
    for _ in range(300):
        precisions = family_precisions(family, scatter[None], number[None], precisions, empty)
        value = float(expected(precisions[0], scatter, number))
        assert value >= before - 1e-9
        before = value
    assert InFamily(family).check(precisions).all()
    assert before == pytest.approx(by_brute_force(family, scatter, number), abs=2e-5)


def test_full_family_is_scatter_over_number() -> None:
    scatter, number = scatters(2)
    family, empty = CovarianceFamily(FULL, K, J), torch.zeros(1, K, dtype=torch.bool)
    start = torch.eye(J, dtype=torch.float64).expand(1, K, J, J)
    precisions = family_precisions(family, scatter[None], number[None], start, empty)[0]
    torch.testing.assert_close(torch.linalg.inv(precisions), scatter / number[:, None, None])


@pytest.mark.parametrize("letters", ["VII", "VEV", "VVE", "EEE"])
def test_component_without_rows_keeps_what_is_its_own(letters: str) -> None:
    scatter, number = scatters(4)
    scatter[2], number[2] = 1e-9 * torch.eye(J), 1e-10
    family = CovarianceFamily(letters, K, J)
    start = FamilyCoordinates(family)(torch.full((1, family.num_free), 0.3, dtype=torch.float64))
    empty = torch.tensor([[False, False, True]])
    new = family_precisions(family, scatter[None], number[None], start, empty)
    assert InFamily(family).check(new).all()
    if letters[0] == "V":
        torch.testing.assert_close(family.parts(new)[0][0, 2], family.parts(start)[0][0, 2])


@pytest.mark.parametrize(("setting", "published"), list(IRIS["mclust"].items()))
def test_iris_has_the_published_bic(setting: str, published: float) -> None:
    letters, size = setting.split(",")
    model = Mixture(int(size), MultivariateNormal(covariance=letters))
    # mclust's EM stops at a relative change of 1e-5
    assert fit(model, load_iris().data).bic == pytest.approx(published, abs=0.01)


def test_iris_has_the_published_fit() -> None:
    letters, size = IRIS["chosen"]
    rows = load_iris().data
    result = fit(Mixture(size, MultivariateNormal(covariance=letters)), rows)
    assert result.num_parameters == IRIS["num_parameters"]
    assert result.log_likelihood == pytest.approx(IRIS["log_likelihood"], abs=0.001)
    assert sorted(np.bincount(result.predict(rows)).tolist()) == IRIS["clusters"]


@pytest.mark.parametrize(("letters", "published"), list(IRIS["norMmix"].items()))
def test_iris_has_the_bic_of_direct_maximisation(letters: str, published: float) -> None:
    result = fit(Mixture(3, MultivariateNormal(covariance=letters)), load_iris().data)
    assert result.bic == pytest.approx(published, abs=5e-4)


@pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
def test_em_climbs_and_ends_in_the_family() -> None:
    rows = load_iris().data
    for letters in ("VEV", "EVE", "VVE", "VEE"):
        model = Mixture(3, MultivariateNormal(covariance=letters))
        result = fit(model, rows, EM(max_iterations=60, tolerance=1e-12), num_restarts=2)
        assert (np.diff(result.trace.objective.numpy()) > -1e-6).all()
        family = CovarianceFamily(letters, 3, 4)
        assert InFamily(family).check(result.params["precisions"])
        assert result.num_parameters == 2 + 3 * 4 + family.num_free


def test_units_of_all_columns_change_nothing_else() -> None:
    rows = load_iris().data
    for letters in ("VII", "VEV"):
        model = Mixture(2, MultivariateNormal(covariance=letters))
        plain, scaled = fit(model, rows), fit(model, 40.0 * rows + 7.0)
        assert scaled.log_likelihood == pytest.approx(
            plain.log_likelihood - rows.size * np.log(40.0), abs=1e-3
        )


def test_gaps_are_integrated_out() -> None:
    rows = load_iris().data.copy()
    rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    result = fit(Mixture(2, MultivariateNormal(covariance="EEE")), rows)
    means, precisions = result.params["means"], result.params["precisions"]
    total = 0.0
    for row in rows:
        seen = ~np.isnan(row)
        covariances = torch.linalg.inv(precisions)[:, seen][:, :, seen]
        normal = torch.distributions.MultivariateNormal(means[:, seen], covariances)
        logs = normal.log_prob(torch.from_numpy(row[seen])) + result.params["weights"].log()
        total += float(torch.logsumexp(logs, 0))
    assert result.log_likelihood == pytest.approx(total, abs=1e-6)


def test_everyday_names_stand_for_letters() -> None:
    rows = load_iris().data
    for name, letters in NAMES.items():
        by_name, by_letters = (
            fit(Mixture(2, MultivariateNormal(covariance=each)), rows) for each in (name, letters)
        )
        assert by_name.log_likelihood == pytest.approx(by_letters.log_likelihood, abs=1e-8)


def test_states_of_a_chain_share_a_covariance() -> None:
    rows = load_iris().data
    result = fit(HiddenMarkov(2, MultivariateNormal(covariance="tied")), rows[None])
    first, second = result.params["precisions"]
    torch.testing.assert_close(first, second)
    assert result.num_parameters == 3 + 2 * 4 + 10


def test_grid_of_families_is_fitted_whole_and_chosen_from() -> None:
    grid = list(itertools.product(("VII", "EEE", "VEV", FULL), (1, 2, 3)))
    frame = pd.DataFrame(load_iris().data)
    answer = select(
        lambda setting: Mixture(setting[1], MultivariateNormal(covariance=setting[0])),
        frame,
        grid,
        criterion="bic",
    )
    table = answer.table
    assert answer.chosen == tuple(IRIS["chosen"])
    assert table["log_likelihood"].notna().all()
    assert "optimum_missed" not in table


def test_other_covariance_is_refused() -> None:
    with pytest.raises(ValueError, match="covariance must be one of spherical.*got 'VVX'"):
        MultivariateNormal(covariance="VVX")


def test_equation_has_an_index_on_what_varies() -> None:
    shown = {letters: CovarianceFamily(letters, K, J).equation for letters in ("VEV", "EII", "VVI")}
    assert shown == {
        "VEV": "v_{k} D_{k} diag(a) D_{k}ᵀ",
        "EII": "v I",
        "VVI": "v_{k} diag(a_{k})",
    }

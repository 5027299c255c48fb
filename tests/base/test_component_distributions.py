"""Component distributions: categorical rows by their codes as by one-hot vectors."""

from __future__ import annotations

import pytest
import torch

from inference.base.component_distributions import normal
from inference.base.component_distributions.dispatch import distribution_of
from ppl_models import Categorical, Mixture, MultivariateNormal
from ppl_models.parts import categorical

SIZES = (20, 33)


@pytest.mark.parametrize("restarts", [(), (2,)])
@pytest.mark.parametrize("gaps", [False, True])
def test_rows_are_counted_by_codes_as_by_one_hot_vectors(
    restarts: tuple[int, ...], gaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.stack(
        [torch.randint(size, (50,), generator=generator) for size in SIZES], 1
    ).double()
    if gaps:
        rows[3, 0] = rows[7, 1] = rows[9] = torch.nan
    table = torch.cat(
        [
            torch.rand(*restarts, 3, size, generator=generator, dtype=torch.float64).softmax(-1)
            for size in SIZES
        ],
        -1,
    )
    share = torch.rand(*restarts, 50, 3, generator=generator, dtype=torch.float64).softmax(-1)
    centre = torch.rand(sum(SIZES), generator=generator, dtype=torch.float64)
    found = []
    for many in (1, 1000):
        monkeypatch.setattr(categorical, "MANY_CATEGORIES", many)
        distribution = distribution_of(Mixture(3, Categorical(SIZES), 2).components())
        assert (Categorical(SIZES).places(rows.nan_to_num()) is None) == (many == 1000)
        found.append(
            (
                distribution.log_densities({"probabilities": table}, rows),
                distribution.statistics(rows, share, centre, None),
            )
        )
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
    for name in ("sums", "item_counts"):
        torch.testing.assert_close(
            getattr(found[0][1], name), getattr(found[1][1], name), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("rows_at_once", [2**20, 40])
def test_covariances_are_summed_over_parts_of_the_rows(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normal, "ROWS_AT_ONCE", rows_at_once)
    generator = torch.Generator().manual_seed(0)
    x = 1e3 + torch.randn(101, 3, generator=generator, dtype=torch.float64)
    weights = torch.rand(101, generator=generator, dtype=torch.float64)
    for often in (None, weights):
        expected = x.mT.cov(correction=0, aweights=often)
        torch.testing.assert_close(normal.covariance(x, often), expected)


@pytest.mark.parametrize("width", [1.0, 1e-6])  # of one component, too thin for sums of products
def test_densities_of_normal_rows_are_those_of_whitened_rows(width: float) -> None:
    generator = torch.Generator().manual_seed(2)
    x = 3 + torch.randn(40, 3, generator=generator, dtype=torch.float64)
    root = torch.randn(2, 2, 3, 3, generator=generator, dtype=torch.float64)
    precisions = root @ root.mT + torch.eye(3, dtype=torch.float64)
    precisions[1, 0] /= width**2
    means = 3 + torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)
    before = torch.rand(2, 1, 2, generator=generator, dtype=torch.float64).softmax(-1).log()
    params = {"means": means, "precisions": precisions}
    distribution = distribution_of(Mixture(2, MultivariateNormal(), 3).components())
    assert isinstance(rows := distribution.rows(x, x.mean(0)), normal.NormalRows)
    exact = torch.distributions.MultivariateNormal(
        means.unsqueeze(-2), precision_matrix=precisions.unsqueeze(-3)
    ).log_prob(x)  # (R, K, N)
    torch.testing.assert_close(rows.log_densities(params), exact, rtol=1e-9, atol=1e-9)
    for log_chances in (before, before.expand(2, 40, 2)):
        torch.testing.assert_close(
            rows.log_joint(params, log_chances), exact + before.mT, rtol=1e-9, atol=1e-9
        )

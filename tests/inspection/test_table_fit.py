"""G2 and X2 of latent classes by brute force over all patterns; matches of signatures."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference import EM, fit
from inference.inspection.signatures import match_signatures
from inference.inspection.table_fit import table_fit
from ppl_models import Bernoulli, Blocks, Categorical, Mixture, Normal, PoissonFactorization

LEVELS = (2, 3, 2)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 400)
    chances = [rng.dirichlet(np.ones(size), 2) for size in LEVELS]
    return np.array([[rng.choice(len(p[g]), p=p[g]) for p in chances] for g in group], dtype=float)


@pytest.mark.parametrize("is_blocks", [False, True])
def test_both_statistics_by_a_sum_over_all_patterns(rows, is_blocks) -> None:
    """Of a model with the classes' tables written out, pattern by pattern."""
    component = Categorical(LEVELS)
    if is_blocks:
        component = Blocks((Bernoulli(), 1), (Categorical((3, 2)), 2))
    result = fit(Mixture(2, component, 3), rows, EM(), num_restarts=2)
    found = table_fit(result, rows)
    patterns = np.array(list(itertools.product(*map(range, LEVELS))), dtype=float)
    chances = result.log_likelihood_rows(patterns).double().exp().numpy()
    assert chances.sum() == pytest.approx(1.0)
    counts = np.array([(rows == pattern).all(1).sum() for pattern in patterns])
    expected = len(rows) * chances
    g2 = 2 * sum(n * math.log(n / m) for n, m in zip(counts, expected, strict=True) if n)
    assert found.g2 == pytest.approx(g2)
    assert found.x2 == pytest.approx(((counts - expected) ** 2 / expected).sum())
    assert found.num_patterns == 12
    assert found.num_seen == (counts > 0).sum()
    assert found.degrees == 12 - 1 - result.num_parameters == 2
    assert found.p_value == pytest.approx(math.exp(-found.g2 / 2))  # of 2 degrees of freedom


@pytest.mark.filterwarnings("ignore:estimates on the bound")
def test_carcinoma_as_published() -> None:
    """The plain call reaches every figure that poLCA prints of three classes, to its digits, up to
    log-odds that here end at a bound where there they run to infinity (0.001 of a statistic).
    """
    file = Path(__file__).parents[1] / "references" / "carcinoma.json"
    published = json.loads(file.read_text(encoding="utf-8"))
    counts = published["patterns"]
    rows = pd.DataFrame(
        [[int(bit) for bit in pattern] for pattern in counts for _ in range(counts[pattern])],
        columns=list("ABCDEFG"),
    )
    fits = {size: fit(Mixture(int(size)), rows, seed=0) for size in published["log_likelihood"]}
    for size, value in published["log_likelihood"].items():
        assert fits[size].log_likelihood == pytest.approx(value, abs=5e-4)
    for size, value in published["aic"].items():
        assert fits[size].aic == pytest.approx(value, abs=0.05)
        assert fits[size].bic == pytest.approx(published["bic"][size], abs=0.05)
    three = fits["3"]
    found = table_fit(three, rows)
    assert three.bic == pytest.approx(published["bic"]["3"], abs=1e-3)
    assert three.num_parameters == published["num_parameters"]["3"]
    assert found.g2 == pytest.approx(published["g2"]["3"], abs=1e-3)
    assert found.x2 == pytest.approx(published["x2"]["3"], abs=1e-3)
    assert (found.num_seen, found.degrees) == (20, 104)  # cells of the table, not rows
    weights, chances = three.params["weights"].numpy(), three.params["predictors"].sigmoid()
    assert weights == pytest.approx(published["shares"], abs=1e-4)
    assert chances.numpy() == pytest.approx(np.array(published["chance_of_yes"]), abs=2e-4)
    shares = np.bincount(three.predict(rows)) / len(rows)
    assert shares == pytest.approx(published["shares_of_assigned"], abs=5e-5)


def test_few_rows_have_no_p_value(rows) -> None:
    result = fit(Mixture(2, Categorical(LEVELS), 3), rows[:30], EM(), num_restarts=2)
    assert math.isnan(table_fit(result, rows[:30]).p_value)


def test_what_has_no_table_is_refused(rows) -> None:
    gaps = rows.copy()
    gaps[3, 1] = np.nan
    result = fit(Mixture(2, Categorical(LEVELS), 3), gaps, EM(), num_restarts=2)
    with pytest.raises(ValueError, match="table_fit: complete rows were expected"):
        table_fit(result, gaps)
    normal = fit(Mixture(2, Normal(), 3), rows + np.random.default_rng(1).normal(size=rows.shape))
    with pytest.raises(ValueError, match="yes-no or of categories were expected, got Normal"):
        table_fit(normal, rows)
    whole = fit(Mixture(2, Categorical(LEVELS), 3), rows, EM(), num_restarts=2)
    others = rows[np.random.default_rng(2).integers(0, len(rows), len(rows))]
    with pytest.raises(ValueError, match="table_fit: data: the rows of the fit were expected"):
        table_fit(whole, others)


def test_signatures_are_matched_by_name_of_the_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.full(6, 0.5), 2)
    names = [f"type {j}" for j in range(6)]
    data = pd.DataFrame(rng.poisson(rng.gamma(1, 300, (40, 2)) @ true), columns=names)
    result = fit(PoissonFactorization(6, 2), data, seed=0)
    reference = pd.DataFrame(
        np.vstack([true, np.full(6, 1 / 6)]).T, index=names, columns=["S1", "S2", "flat"]
    ).iloc[::-1]
    found = match_signatures(result, reference)
    own = result.params["signatures"].numpy()
    for k in range(2):
        cosines = {
            name: own[k]
            @ reference.loc[names, name]
            / np.linalg.norm(own[k])
            / np.linalg.norm(reference[name])
            for name in reference
        }
        best = max(cosines, key=cosines.__getitem__)
        assert found.loc[found.index[k], "match_1"] == best
        assert found.loc[found.index[k], "cosine_1"] == pytest.approx(cosines[best])
    assert set(found["match_1"]) == {"S1", "S2"}
    with pytest.raises(ValueError, match="'type 5' is missing"):
        match_signatures(result, reference.drop(index="type 5"))
    with pytest.raises(ValueError, match="finite entries of at least 0"):
        match_signatures(result, reference - 1)
    with pytest.raises(ValueError, match="num_matches must be a positive integer, got -1"):
        match_signatures(result, reference, num_matches=-1)
    page = result.report(tmp_path / "page.html", data, reference=reference).read_text()
    assert "The signatures of the reference set that are most like" in page
    with pytest.raises(ValueError, match="reference: one row for each of the 6 columns"):
        result.report(tmp_path / "page.html", data, reference=reference.drop(index="type 5"))

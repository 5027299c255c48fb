"""Components that return from half of the rows, and the page that says so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.counts import counts, factory

from inference import Fit, fit
from inference.acdc import acdc
from inference.plots import plot_return
from inference.report import write_selection_report
from inference.report.components import why
from inference.selection import compare_criteria, fit_grid, parallel_analysis, reproducibility
from inference.selection.reproducibility import Reproducibility
from ppl_models import FactorAnalysis, GaussianFactorization


def test_real_components_return_and_that_of_one_row_does_not():
    x = counts(alone=1)
    fits = fit_grid(factory, x, (3, 4), num_restarts=6)
    found = reproducibility(fits, x, num_pairs=4)
    assert found.errors[4].shape == (4, 2, 4)
    alone = int(
        fits[4].local["activities"][0].argmax()
    )  # the component of the row that stands alone
    error = found.by_component[4]
    assert error[alone] > 0.15
    assert np.delete(error, alone).max() < 0.05
    assert found.numbers() == [3]
    assert found.table.loc[4, "returning"] == 3
    again = reproducibility(fits, x, num_pairs=4)
    assert all(np.array_equal(found.errors[k], again.errors[k]) for k in fits)


def test_reproducibility_by_hand():
    """The worse half of each pair, its median over pairs, its maximum over components."""
    errors = np.array(
        [[[0.1, 0.0], [0.3, 0.0]], [[0.2, 0.0], [0.1, 0.1]], [[0.9, 0.0], [0.0, 0.2]]]
    )
    found = Reproducibility({2: errors, 3: np.full((1, 2, 3), 0.14)})
    assert found.by_component[2].tolist() == [0.3, 0.1]
    assert found.worst == pytest.approx({2: 0.3, 3: 0.14})
    assert found.numbers() == [3]
    assert found.numbers(0.31) == [2, 3]
    assert found.numbers(0.01) == [3]  # none returns: the nearest


@pytest.mark.parametrize("family", [GaussianFactorization, FactorAnalysis])
def test_components_return_with_either_sign(family):
    """The sum of a contrast is about zero, so its sign is another one from half to half."""
    rng = np.random.default_rng(0)
    signatures = np.array([[1.0] * 10, [1.0, -1.0] * 5]) / np.sqrt(10)
    x = rng.normal(size=(300, 2)) * [8.0, 4.0] @ signatures + 0.5 * rng.normal(size=(300, 10))
    result = reproducibility({2: fit(family(10, 2), x)}, x, num_pairs=4)
    assert result.errors[2].max() < 0.05
    assert result.table["returning"].tolist() == [2]


def test_fits_may_have_their_columns_in_orders_of_their_own():
    frame = pd.DataFrame(counts(n=60)).add_prefix("c")
    fits = fit_grid(factory, frame, (2, 3), num_restarts=2)
    turned = fit(factory(2), frame[frame.columns[::-1]], num_restarts=2)
    found = reproducibility(fits, frame, num_pairs=2, num_restarts=2)
    mixed = reproducibility({2: turned, 3: fits[3]}, frame, num_pairs=2, num_restarts=2)
    order = [int(np.argmax(row)) for row in _cosines(turned, fits[2])]
    np.testing.assert_allclose(mixed.errors[2], found.errors[2][..., order], atol=0.02)


def _cosines(turned: Fit, fitted: Fit) -> np.ndarray:
    one, other = turned.params["signatures"].numpy()[:, ::-1], fitted.params["signatures"].numpy()
    lengths = np.outer(*(np.linalg.norm(part, axis=1) for part in (one, other)))
    return (one @ other.T) / lengths


def test_known_signatures_are_refused():
    """They were estimated in the halves, and seemed to return from none."""
    x = counts(n=30)
    known = np.random.default_rng(0).dirichlet(np.ones(16), 2)
    told = fit(factory(2), x, num_restarts=1, fixed={"signatures": known})
    with pytest.raises(ValueError, match="reproducibility: not worked out for a fit with fixed"):
        reproducibility({2: told}, x)


def test_signs_of_signatures_do_not_matter():
    """A contrast, whose entries add up to nought, has the one sign or the other by chance."""
    rng, signatures = np.random.default_rng(0), np.zeros((2, 8))
    signatures[0, :2], signatures[1, 4:] = (1, -1), 1
    x = rng.normal(size=(200, 2)) * [3, 1.5] @ signatures + 0.3 * rng.normal(size=(200, 8))
    whole = fit(GaussianFactorization(8, 2), x, num_restarts=1)
    found = reproducibility({2: whole}, x, num_pairs=6, num_restarts=1)
    assert found.errors[2].max() < 0.05


def test_the_page_says_why(tmp_path):
    x = counts(alone=1)
    fits = fit_grid(factory, x, (2, 3, 4), num_restarts=4)
    result, halves = acdc(fits, x), reproducibility(fits, x, num_pairs=3)
    table = compare_criteria(fits, x, result)
    words = " ".join(why(result, 4, halves))
    assert words.startswith("4 components.")
    assert "Why not fewer: with K = 3" in words
    assert "largest number compared" in words
    assert "Component 3 does not come back from most halves" in words
    assert f"K = 4 leaves {result.left[4]:.3f} nats" in " ".join(why(result, 3))
    names = [f"<channel {j}>" for j in range(16)]
    page = write_selection_report(
        fits,
        result,
        table,
        tmp_path / "page.html",
        channels=names,
        analysis=parallel_analysis(x),
        halves=halves,
    ).read_text()
    assert page.count("<img") == 5
    assert "Not drawn" not in page
    assert "<channel" not in page  # escaped
    assert "BIC, log N" in page
    bare = write_selection_report(fits, result, table, tmp_path / "bare.html", chosen=2).read_text()
    assert f"Another criterion chose; ACDC itself would take {result.chosen}" in bare
    assert bare.count("Not looked at") == 2
    with pytest.raises(ValueError, match=r"chosen must be one of \[2, 3, 4\]"):
        write_selection_report(fits, result, table, tmp_path / "no.html", chosen=9)
    axes = plot_return(halves).axes[0]
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() in "ox") == 9

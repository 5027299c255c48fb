"""ArviZ's own tables, pictures and comparisons on what a fit hands over, on either line of
ArviZ.
"""

from __future__ import annotations

import arviz
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from support.fitted_examples import bernoulli_table, encoder_fit, with_draws

from inference import EM, NUTS, SVI, FullRank, Laplace, fit
from inference.loo import loo
from ppl_models import Bernoulli, Mixture

matplotlib.use("Agg")
NEW = not arviz.__version__.startswith("0")
pytestmark = [
    # the draws scatter about a point and are no posterior, which loo notices
    pytest.mark.filterwarnings("ignore:Estimated shape parameter"),
    pytest.mark.filterwarnings("ignore:.*look binary:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def idata():
    return with_draws(encoder_fit(), 4, 100).to_arviz(bernoulli_table(), num_predictive=5)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")  # ArviZ draws through pyplot


def figure_of(drawn: object) -> Figure:
    """The figure behind what a function of ArviZ returns: axes, arrays of axes, or a collection of
    plots.
    """
    if hasattr(drawn, "viz"):
        return drawn.viz["figure"].item()
    return np.ravel(drawn)[0].figure


def num_artists(figure: Figure) -> int:
    """Lines and collections with data: a picture can come out blank without an error."""
    lines = sum(len(line.get_xdata()) > 0 for ax in figure.axes for line in ax.get_lines())
    return lines + sum(len(ax.collections) + len(ax.patches) for ax in figure.axes)


def test_summary_names_every_parameter(idata) -> None:
    table = arviz.summary(idata, var_names=["loadings_1"])
    assert len(table) == idata["posterior"]["loadings_1"][0, 0].size
    assert "loadings_1[writes, 2]" in table.index


@pytest.mark.parametrize("draw", ["plot_trace", "plot_forest"])
def test_pictures_of_parameters(idata, draw: str) -> None:
    figure = figure_of(getattr(arviz, draw)(idata, var_names=["proportions"]))
    assert num_artists(figure) >= idata["posterior"]["proportions"][0, 0].size


def test_the_posterior_predictive_picture(idata) -> None:
    drawn = (
        arviz.plot_ppc_dist(idata, num_samples=5)
        if NEW
        else arviz.plot_ppc(idata, num_pp_samples=5)
    )
    assert num_artists(figure_of(drawn)) >= 5


def test_leave_one_out_comparison_and_its_picture(idata) -> None:
    other = with_draws(encoder_fit(), 4, 100)
    params = {
        name: value * 0.5 if name.startswith("loadings") else value
        for name, value in other.draws.items()
    }
    worse = type(other)(**{**other.__dict__, "draws": params}).to_arviz(
        bernoulli_table(), num_predictive=0
    )
    table = arviz.compare({"fitted": idata, "halved": worse})
    assert list(table.index) == ["fitted", "halved"]
    one = arviz.loo(idata, pointwise=True)
    assert num_artists(figure_of(arviz.plot_khat(one))) >= 1


@pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
@pytest.mark.parametrize(
    "method",
    [EM(), Laplace(num_draws=120), SVI(FullRank(), num_steps=200), NUTS(2, 100, 100)],
    ids=lambda method: type(method).__name__,
)
def test_loo_reads_what_an_engine_drew_and_finds_no_rows_of_a_point(method) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (80, 3)).astype(float)
    found = fit(Mixture(1, Bernoulli()), rows, method)
    idata = found.to_arviz(rows)
    assert hasattr(idata, "log_likelihood") == (found.draws is not None)
    if found.draws is not None:
        estimate = arviz.loo(idata)
        elpd = float(getattr(estimate, "elpd_loo", getattr(estimate, "elpd", None)))
        assert elpd == pytest.approx(loo(found, rows).elpd, abs=1.5)
    if isinstance(method, NUTS):
        assert {"n_steps", "tree_depth", "diverging", "energy"} <= {*idata["sample_stats"]}

"""Fits side by side: their order, and what is not comparable."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from matplotlib.figure import Figure
from support.screening import CHANCES
from support.two_skills import GRAPH, encoder_truth

from inference import EM, NUTS, Laplace, fit
from inference.comparison import _stacking, compare
from inference.programs.program import simulate
from inference.report import write_comparison_report
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, Normal

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)
F64 = torch.float64


def screening_table(data=None, num_rows=None):
    """Six items, all of one chance."""
    share = pyro.sample(
        "share", dist.Beta(torch.tensor(2.0, dtype=F64), torch.tensor(3.0, dtype=F64))
    )
    with pyro.plate("rows", num_rows if data is None else len(data)):
        case = pyro.sample("case", dist.Bernoulli(share))
        return pyro.sample(
            "items",
            dist.Bernoulli(CHANCES[case.long()].unsqueeze(-1).expand(*case.shape, 6)).to_event(1),
            obs=data,
        )


@pytest.mark.slow
def test_compare_ranks_the_true_family_first_and_names_what_differs(tmp_path):
    truth = encoder_truth()
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, truth, 4, None, 250)["items"]
    test = simulate(model, truth, 5, None, 100)["items"]
    fits = {
        "encoder": fit(model, data, Laplace(400)),
        "drawn": fit(screening_table, data, NUTS(2, 60, 60)),
        "one class": fit(Mixture(1, component=Bernoulli(), num_items=6), data, EM()),
        "two classes": fit(Mixture(2, component=Bernoulli(), num_items=6), data, EM()),
        "normal": fit(Mixture(1, component=Normal(), num_items=6), data, EM()),
    }
    with pytest.warns(UserWarning, match="not comparable|different ways|average over") as caught:
        table = compare(fits, data, test, num_folds=4).table
    said = " ".join(str(one.message) for one in caught)
    assert "not comparable" in said
    assert "different ways" in said
    order = [name for name in table.index if name != "normal"]
    assert order[0] == "encoder"
    assert table.loc["drawn", "how"] == "PSIS-LOO"
    assert table.loc["drawn", "engine"] == "NUTS"
    assert table.loc["one class", "how"] == "4-fold"
    discrete = table.loc[order]
    assert discrete["test_log_likelihood"].idxmax() == "encoder"
    assert table["weight"].sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="same data"):
        compare(fits, data[:200])
    other = torch.cat([data[1:], 1 - data[:1]])
    with pytest.raises(ValueError, match="'encoder'.*same data"):
        compare(fits, other)
    with pytest.raises(ValueError, match="two fits"):
        compare({"encoder": fits["encoder"]}, data)
    with pytest.warns(UserWarning, match="different ways|average over"):
        comparison = compare({name: fits[name] for name in order}, data, num_folds=4)
    first, *others = comparison.plot().axes
    assert len(first.get_yticklabels()) == 4
    assert [len(line.get_xdata()) for line in first.get_lines()].count(
        1
    ) >= 4  # what is drawn, not only that it ran
    assert [panel.get_xlabel().split()[0] for panel in others] == ["BIC,", "largest", "seconds"]
    assert comparison.plot(Figure().subplots()).get_ylim()[0] == 3.5
    assert table.loc["normal", "misfitting"] == 1  # zeros and ones are not normal
    assert np.isnan(table.loc["encoder", "discrepancy"])
    page = write_comparison_report(comparison, tmp_path / "comparison.html").read_text()
    assert "encoder predicts unseen rows best, " in page
    assert page.count("data:image/png") == 1


@pytest.mark.filterwarnings("ignore")
def test_fits_of_different_columns_are_refused_and_covariates_are_none() -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 120)
    frame = pd.DataFrame((rng.random((120, 4)) < np.where(group, 0.8, 0.2)[:, None]).astype(int))
    frame.columns, items = list("abcd"), list("abc")
    frame["age"] = 40 + 10 * group + rng.normal(0, 5, 120)
    plain = fit(Mixture(2, Bernoulli()), frame[items])
    with pytest.raises(ValueError, match=r"same columns .* 'less' of 'a', 'b', 'c' and .* 'd'"):
        compare({"less": plain, "more": fit(Mixture(2, Bernoulli()), frame[list("abcd")])}, frame)
    given = fit(Mixture(2, Bernoulli(), covariates="age"), frame[["age", *items]])
    array = fit(Mixture(1, Bernoulli()), frame[items].to_numpy())
    assert compare({"plain": plain, "given": given}, frame, num_folds=2).best == "given"
    assert compare({"plain": plain, "array": array}, frame[items], num_folds=2).best == "plain"


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_stacking_gives_everything_to_a_fit_that_predicts_every_row_better(gap):
    rows = np.random.default_rng(0).normal(size=100)
    weights = _stacking({"better": rows, "worse": rows - gap, "worst": rows - 3 * gap})
    assert weights["better"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("scale", [1e-4, 0.02, 1.0, 30.0])
def test_stacking_of_two_fits_is_the_best_of_a_fine_grid(scale):
    rng = np.random.default_rng(1)
    first = rng.normal(size=80)
    second = first + scale * rng.normal(size=80)
    shares = np.linspace(0, 1, 20001)[:, None]
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp(np.log(shares) + first, np.log(1 - shares) + second).mean(1)
    weights = _stacking({"first": first, "second": second})
    assert weights["first"] == pytest.approx(float(shares[mixed.argmax(), 0]), abs=1e-4)


@pytest.mark.parametrize("num_fits", [3, 4])
def test_stacking_weights_satisfy_the_conditions_of_an_optimum(num_fits):
    rng = np.random.default_rng(num_fits)
    rows = rng.normal(size=(60, 1)) + 0.3 * rng.normal(size=(60, num_fits))
    rows[:, -1] -= 0.2  # worse than the others
    rows[0, 0] = -np.inf
    weights = np.array(list(_stacking(dict(enumerate(rows.T))).values()))
    slopes = (np.exp(rows) / (np.exp(rows) @ weights)[:, None]).mean(0)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert slopes.max() == pytest.approx(1.0, abs=1e-10)
    np.testing.assert_allclose(weights * (1 - slopes), 0, atol=1e-10)


def test_stacking_of_fits_that_predict_alike_shares_equally():
    rows = np.random.default_rng(2).normal(size=30)
    rows[3] = -np.inf
    assert _stacking({"one": rows, "two": rows}) == {"one": 0.5, "two": 0.5}

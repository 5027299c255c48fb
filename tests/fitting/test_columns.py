"""New rows whose columns stand in another order, are missing, too many, or come from another
library's frame.
"""

from __future__ import annotations

import datetime
import warnings
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, ColumnsWarning, Laplace, fit
from inference.estimates import estimates_of
from inference.fitting.columns import as_fitted
from inference.loo import cross_validate, loo
from inference.predictive import predictive_check
from inference.report import write_report
from inference.report.results_folder import write_results
from inference.selection.sparsity import polish
from inference.uncertainty import row_scores, standard_errors
from ppl_models import (
    Bernoulli,
    ContinuousOptionsHMM,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    Mixture,
    Normal,
    OptionsHMM,
)
from ppl_models.data.frames import as_frame

NAMES = ["age", "pulse", "speed"]
SHUFFLED = ["speed", "age", "pulse"]
F64 = torch.float64


def people() -> pd.DataFrame:
    """Two groups that differ by another amount in every column, on other scales, so that no order
    of the columns is like another.
    """
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, (80, 1))
    return pd.DataFrame(
        rng.normal(size=(80, 3)) * [1, 2, 3] + group * [4, 20, 90] + [0, 50, 200], columns=NAMES
    )


@pytest.fixture(scope="module")
def fitted() -> Any:
    return fit(
        Mixture(num_components=2, component=Normal(), num_items=3), people(), EM(), num_restarts=2
    )


QUESTIONS = {
    "posterior_latents": lambda fit, data: fit.posterior_latents(data)["assignments"],
    "decode_latents": lambda fit, data: fit.decode_latents(data)["assignments"],
    "log_likelihood_rows": lambda fit, data: fit.log_likelihood_rows(data),
    "standard_errors": lambda fit, data: standard_errors(fit, data).covariance,
    "row_scores": lambda fit, data: row_scores(fit, data)[0],
    "estimates_of": lambda fit, data: torch.tensor(estimates_of(fit, data).frame().to_numpy()),
    "cross_validate": lambda fit, data: torch.as_tensor(cross_validate(fit, data, 2).rows),
    "predictive_check": lambda fit, data: torch.as_tensor(predictive_check(fit, data, 2).observed),
    "to_arviz": lambda fit, data: torch.as_tensor(
        fit.to_arviz(data)["observed_data"]["items"].to_numpy()
    ),
}


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_columns_are_found_by_name(fitted, question) -> None:
    """Whatever is asked of a fit, the order of the columns changes no number."""
    ask, frame = QUESTIONS[question], people()
    torch.testing.assert_close(ask(fitted, frame[SHUFFLED]), ask(fitted, frame), equal_nan=True)


def test_draws_find_columns_by_name() -> None:
    frame = people()
    drawn = fit(
        Mixture(num_components=2, component=Normal(), num_items=3), frame, Laplace(num_draws=100)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [loo(drawn, data).rows for data in (frame, frame[SHUFFLED])]
    np.testing.assert_allclose(found[0], found[1])


def test_a_report_finds_columns_by_name(fitted, tmp_path) -> None:
    frame = people()
    pages = [
        write_report(fitted, data, tmp_path / f"{i}.html").read_text()
        for i, data in enumerate((frame, frame[SHUFFLED]))
    ]
    assert pages[0] == pages[1]
    write_results(fitted, frame[SHUFFLED], tmp_path / "out")


def test_a_refit_on_the_graph_finds_columns_by_name() -> None:
    rng = np.random.default_rng(3)
    skill = rng.integers(0, 2, (150, 1))
    answers = (rng.random((150, 4)) < 0.1 + 0.8 * skill * [1, 1, 1, 0]).astype(float)
    frame = pd.DataFrame(answers, columns=list("abcd"))
    result = fit(DeepDiscreteEncoder(4, (1,), penalty=None), frame, EM())
    orders = [polish(result, frame[list(names)], threshold=0.5) for names in ("abcd", "dcba")]
    assert orders[0].item_names == orders[1].item_names
    torch.testing.assert_close(orders[0].params["intercepts_1"], orders[1].params["intercepts_1"])


def test_missing_and_additional_columns_are_named(fitted) -> None:
    frame = people()
    with pytest.raises(ValueError, match=r"'pulse' is missing; the columns are 'age', 'speed'"):
        fitted.posterior_latents(frame.drop(columns="pulse"))
    with pytest.raises(ValueError, match=r"'age', 'speed' are missing"):
        fitted.log_likelihood_rows(frame.rename(columns={"age": "Age", "speed": "Speed"}))
    with pytest.warns(
        ColumnsWarning, match=r"does not know the columns 'name', 'x', which are left out"
    ):
        found = fitted.log_likelihood_rows(frame.assign(name="Ann", x=1.0))
    assert torch.equal(found, fitted.log_likelihood_rows(frame))


def test_arrays_have_no_names(fitted) -> None:
    frame = people()
    assert torch.equal(
        fitted.log_likelihood_rows(frame.to_numpy()), fitted.log_likelihood_rows(frame)
    )
    unnamed = fit(
        Mixture(num_components=2, component=Normal(), num_items=3),
        frame.to_numpy(),
        EM(),
        init=fitted,
    )
    torch.testing.assert_close(
        unnamed.log_likelihood_rows(frame), fitted.log_likelihood_rows(frame), rtol=1e-4, atol=1e-4
    )
    coded = fit(fitted.model, frame.set_axis([101, 102, 103], axis=1), EM(), init=fitted)
    with pytest.raises(ValueError, match="'101', '102' are missing"):
        coded.log_likelihood_rows(frame.set_axis([103, 104, 105], axis=1))  # numbers may be names
    numbered = frame.set_axis([0, 1, 2], axis=1)
    assert torch.equal(
        unnamed.log_likelihood_rows(numbered[[2, 0, 1]]), unnamed.log_likelihood_rows(frame)
    )


def test_items_of_a_q_matrix_are_found_by_name_after_the_fit() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame((rng.random((60, 4)) < 0.5).astype(float), columns=list("wxyz"))
    q = pd.DataFrame([[1, 0], [0, 1], [1, 0], [0, 1]], index=list("wxyz"), columns=["add", "take"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(LatentAttributeModel(q), frame, EM(max_iterations=5))
    assert torch.equal(
        result.log_likelihood_rows(frame[list("zyxw")]), result.log_likelihood_rows(frame)
    )


# ---------------------------------------------------------------- sequences


def test_columns_of_sequences() -> None:
    rng = np.random.default_rng(2)
    sequence, time = np.repeat(np.arange(6), 10), np.tile(np.arange(10), 6)
    frame = pd.DataFrame(
        {
            "sequence": sequence,
            "time": time,
            "state": rng.integers(0, 2, 60),
            "action": rng.integers(0, 2, 60),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = fit(OptionsHMM(2, 2, 2), frame, EM(max_iterations=3))
    assert torch.equal(
        options.log_likelihood_rows(frame[["action", "time", "state", "sequence"]]),
        options.log_likelihood_rows(frame),
    )
    with pytest.raises(ValueError, match="'action' is missing"):
        options.log_likelihood_rows(frame.drop(columns="action"))
    drives = frame.drop(columns="state").assign(
        x=rng.normal(size=60), speed=3 + 5 * rng.normal(size=60)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(
            ContinuousOptionsHMM(num_features=2, num_actions=2, num_options=2),
            drives,
            EM(max_iterations=3),
        )
    own = result.log_likelihood_rows(drives)
    assert torch.equal(
        result.log_likelihood_rows(drives[["speed", "x", "action", "time", "sequence"]]), own
    )
    with pytest.warns(ColumnsWarning, match="'driver'"):
        assert torch.equal(result.log_likelihood_rows(drives.assign(driver="Ann")), own)
    with pytest.raises(ValueError, match="'speed' is missing"):
        result.log_likelihood_rows(drives.rename(columns={"speed": "velocity"}))


def test_sequences_without_names_may_get_some() -> None:
    data = {"state": np.zeros((1, 3, 2)), "action": np.zeros((1, 3))}
    assert as_fitted(_fit_of(("feature_0", "feature_1", "action")), data) is data
    frame = pd.DataFrame({"sequence": [0], "time": [0], "x": [0.0], "v": [0.0], "action": [0]})
    assert as_fitted(_fit_of(("feature_0", "feature_1", "action")), frame) is frame


def _fit_of(names: tuple[str, ...]) -> Any:
    class Record:
        item_names = names
        params: ClassVar[dict[str, Any]] = {}
        read_as = None
        model = ContinuousOptionsHMM(num_features=2, num_actions=2, num_options=2)
        structure = type("Structure", (), {"row_columns": ("sequence", "time")})

    return Record()


# ---------------------------------------------------------------- programs


def by_name(data: Any) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * data["x"], 1.0), obs=data["y"])


def by_place(data: Any) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * data[:, 0], 1.0), obs=data[:, 1])


def test_a_program_keeps_the_columns_that_it_reads(tmp_path) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=30)
    frame = pd.DataFrame(
        {"x": x, "place": ["a", "b"] * 15, "y": 2 * x + rng.normal(size=30), "unread": 0.0}
    )
    named = fit(by_name, frame, EM())
    assert named.item_names == ("x", "y")
    own = named.log_likelihood_rows(frame)
    assert torch.equal(named.log_likelihood_rows(frame[["y", "x"]]), own)
    assert torch.equal(
        named.log_likelihood_rows(frame.assign(more=1.0)), own
    )  # it would not read it
    with pytest.raises(ValueError, match="'x' is missing"):
        named.log_likelihood_rows(frame.drop(columns="x"))
    write_results(named, frame, tmp_path / "out")
    placed = fit(by_place, frame[["x", "y"]], EM())
    torch.testing.assert_close(placed.log_likelihood_rows(frame[["y", "x"]]), own)
    with pytest.warns(ColumnsWarning, match="'unread'"):
        torch.testing.assert_close(placed.log_likelihood_rows(frame[["unread", "y", "x"]]), own)


# ---------------------------------------------------------------- frames of other libraries


def polars_of(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(frame)


@pytest.mark.parametrize("convert", [polars_of, pa.Table.from_pandas], ids=["polars", "pyarrow"])
def test_frames_of_other_libraries(convert, fitted) -> None:
    frame = people()
    frame.loc[3, "age"] = np.nan
    expected = fit(fitted.model, frame, EM(), init=fitted)
    result = fit(fitted.model, convert(frame), EM(), init=fitted)
    assert result.item_names == tuple(NAMES)
    assert result.log_likelihood == pytest.approx(
        expected.log_likelihood, rel=1e-13
    )  # early narwhals lays numbers out in another order
    torch.testing.assert_close(
        result.posterior_latents(convert(frame[SHUFFLED])),
        expected.posterior_latents(frame),
        rtol=1e-11,
        atol=1e-13,
    )
    assert cross_validate(result, convert(frame), 2).elpd == pytest.approx(
        cross_validate(result, frame, 2).elpd
    )
    answers = result.posterior_frame(convert(frame))
    assert type(answers) is type(convert(frame))  # polars in, polars out
    pd.testing.assert_frame_equal(
        as_frame(answers), result.posterior_frame(frame), check_dtype=False, rtol=1e-11
    )
    filled = result.fill_missing(convert(frame))
    assert type(filled) is type(convert(frame))
    pd.testing.assert_frame_equal(
        as_frame(filled), result.fill_missing(frame), check_dtype=False, rtol=1e-11
    )
    program = fit(by_name, convert(frame.rename(columns={"age": "x", "pulse": "y"}).dropna()), EM())
    assert program.item_names == ("x", "y")
    assert convert(frame) is not None
    assert result.to_arviz(convert(frame))["observed_data"]["items"].shape == (80, 3)


@pytest.mark.parametrize("convert", [polars_of, pa.Table.from_pandas], ids=["polars", "pyarrow"])
def test_sequences_and_gaps_in_frames_of_other_libraries(convert) -> None:
    frame = pd.DataFrame(
        {
            "sequence": ["a", "a", "b", "b"],
            "time": [0, 1, 0, 1],
            "state": [0, 1, 1, 0],
            "action": [0, 1, 1, 0],
        }
    )
    model = OptionsHMM(2, 2, 2)
    assert torch.equal(
        model.check_data(convert(frame), for_fit=False)[0],
        model.check_data(frame, for_fit=False)[0],
    )
    bits = pd.DataFrame(
        {
            "a": pd.array([1, None, 0], dtype="Int64"),
            "b": pd.array([True, False, None], dtype="boolean"),
        }
    )
    table, names = Mixture(num_components=2, component=Bernoulli(), num_items=2).check_data(
        convert(bits)
    )
    assert names == ("a", "b")
    torch.testing.assert_close(
        table, torch.tensor([[1, 1], [np.nan, 0], [0, np.nan]], dtype=F64), equal_nan=True
    )


def test_what_no_fit_can_take_is_refused_by_name() -> None:
    polars = pytest.importorskip("polars")
    model = Mixture(num_components=2, component=Normal(), num_items=2)
    day = datetime.date(2026, 1, 1)
    for make in (pd.DataFrame, polars.DataFrame, pa.table):
        with pytest.raises(ValueError, match="data: column 'when'"):
            fit(model, make({"x": [1.0, 2.0], "when": [day, day]}))
        with pytest.raises(ValueError, match="data: column 'who'.*'Ann'"):
            fit(model, make({"x": [1.0, 2.0], "who": ["Ann", "Bob"]}))
        with pytest.raises(ValueError, match="data: column 'parts'"):
            fit(model, make({"x": [1.0, 2.0], "parts": [[1], [2]]}))
    with pytest.raises(ValueError, match="polars.LazyFrame, which has not been computed yet"):
        fit(model, polars.DataFrame({"x": [1.0]}).lazy())
    copies = [
        pd.DataFrame([[1.0, 2.0]], columns=["x", "x"]),
        pa.table([[1.0], [2.0]], names=["x", "x"]),
        pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]),
    ]
    for frame, name in zip(copies, ("x", "x", "1"), strict=True):
        for program in (model, by_name):
            with pytest.raises(ValueError, match=f"several named '{name}': rename"):
                fit(program, frame)
    with pytest.raises(ValueError, match="column 'x' holds dates or times"):
        fit(by_name, pd.DataFrame({"x": pd.to_datetime([day, day]), "y": [1.0, 2.0]}))

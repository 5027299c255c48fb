"""Programs of several arguments, of settings, and of none."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from support.user_programs import uniform
from torch import Tensor, nn

from inference import EM, Fit, RowBlocks, ZooEstimator, fit
from inference.loo import cross_validate
from inference.programs.arguments import Call, call_of

X = 4 * uniform(60, seed=3) - 2
Y = torch.where(uniform(60, seed=4) < 0.5, 1 + 2 * X, -1 - X) + 0.3 * uniform(60, seed=5)
QUICK = EM(max_iterations=300)


def two_lines(x: Any, y: Any, num_lines: int = 2, scale: float = 10.0, words: Any = None) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(num_lines)))
    with pyro.plate("lines", num_lines):
        a = pyro.sample("a", dist.Normal(0.0, scale))
        b = pyro.sample("b", dist.Normal(0.0, scale))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(a[z] + b[z] * x, 0.5), obs=y)


def of_one(data: Any) -> None:
    two_lines(data["x"], data["y"])


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a tuple": ((X, Y), {}),
    "arrays": ((X.numpy(), Y.numpy()), {}),
    "a dict by name": ({"x": X, "y": Y}, {}),
    "a frame by name": (pd.DataFrame({"y": Y.numpy(), "x": X.numpy(), "other": "text"}), {}),
    "a number among the data": ((X, Y, 2), {}),
    "settings by place": ((X, Y), {"args": (2, 10.0)}),
    "settings by name": ((X, Y), {"kwargs": {"num_lines": 2, "words": {"of": print}}}),
    "the data after a setting": (Y, {"kwargs": {"x": X}}),
}


@pytest.fixture(scope="module")
def plain() -> Fit:
    return fit(of_one, {"x": X, "y": Y}, QUICK)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_arguments_is_the_same_fit(form: str, plain: Fit) -> None:
    data, settings = FORMS[form]
    found = fit(two_lines, data, QUICK, **settings)
    assert found.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-9)
    assert (found.num_rows, found.model_name) == (60, "two_lines")
    for name, value in plain.params.items():
        assert torch.allclose(found.params[name], value)
    rows = {"x": X, "y": Y}
    assert torch.allclose(
        found.posterior_latents(data)["z"], plain.posterior_latents(rows)["z"], atol=1e-9
    )
    assert np.array_equal(found.predict(data), plain.predict(rows))
    assert found.score(data) == pytest.approx(plain.score(rows))
    assert torch.allclose(found.log_likelihood_rows(data), plain.log_likelihood_rows(rows))
    assert found.summary(data).equals(plain.summary(rows))


def test_later_questions_take_any_form_of_the_data(plain: Fit) -> None:
    found = fit(two_lines, (X, Y), QUICK, kwargs={"num_lines": 2})
    few = {"x": X[:5], "y": Y[:5]}
    expected = plain.posterior_latents(few)["z"]
    for data in ((X[:5], Y[:5]), few, pd.DataFrame({k: v.numpy() for k, v in few.items()})):
        assert torch.allclose(found.posterior_latents(data)["z"], expected)


def test_a_page_is_written(tmp_path: Path) -> None:
    found = fit(two_lines, (X, Y), QUICK, args=(2,))
    page = found.report(tmp_path / "lines.html", (X, Y)).read_text()
    assert "two_lines" in page


def test_a_program_that_holds_its_data_takes_none() -> None:
    def closed() -> None:
        two_lines(X, Y)

    def defaults(x: Tensor = X, y: Tensor = Y) -> None:
        two_lines(x, y)

    for model in (closed, defaults):
        found = fit(model, None, QUICK)
        assert found.num_rows == 60
        assert found.posterior_latents(None)["z"].shape == (60, 2)


def test_rows_are_those_of_the_plate_whatever_the_first_tensor() -> None:
    def of_steps(steps: Tensor, sizes: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(2.0, 2.0))
        with pyro.plate("rows", steps.shape[1]):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            for t in range(len(steps)):
                pyro.sample(f"y_{t}", dist.Poisson(rate * (1 + z) * sizes), obs=steps[t])

    found = fit(of_steps, (torch.poisson(3 * torch.ones(4, 9)), torch.ones(9)), QUICK)
    assert found.num_rows == 9
    assert found.latents == {"z": (1, 2)}


def test_the_estimator_says_what_it_takes_of_several_arguments() -> None:
    for data in ((X, Y), {"x": X, "y": Y}):
        with pytest.raises(
            ValueError, match=r"X: a table .* got a (tuple|dict) of arguments of two_"
        ):
            ZooEstimator(two_lines).fit(data)
    frame = pd.DataFrame({"x": X.numpy(), "y": Y.numpy()})
    found = ZooEstimator(two_lines, QUICK, init=plain_start()).fit(frame)
    expected = fit(two_lines, (X, Y), QUICK, init=plain_start()).score((X, Y))
    assert found.score(frame) == pytest.approx(expected)


def test_labels_of_a_program_that_holds_its_data() -> None:
    labels = np.full(60, -1)
    labels[:4] = [0, 1, 0, 1]
    start: dict[str, Any] = {"init": plain_start(), "labels": labels}
    found = fit(lambda: two_lines(X, Y), None, QUICK, **start)
    assert found.log_likelihood == pytest.approx(
        fit(two_lines, (X, Y), QUICK, **start).log_likelihood
    )


def plain_start() -> dict[str, Tensor]:
    return {"a": torch.tensor([1.0, -1.0]), "b": torch.tensor([2.0, -1.0])}


@pytest.mark.parametrize("form", [Y.numpy(), Y, pd.Series(Y.numpy())])
def test_a_column_of_numbers_is_exported(form: Any) -> None:
    def of_column(y: Any) -> None:
        two_lines(X, y)

    table = fit(of_column, form, QUICK, init=plain_start()).to_arviz(form)
    assert np.array_equal(table.observed_data["y"], Y)


def test_later_answers_lay_the_arguments_out(tmp_path: Path) -> None:
    found = fit(two_lines, (X, Y), QUICK, args=(2,))
    rows = {"x": X, "y": Y}
    same = fit(of_one, rows, QUICK)
    folded = cross_validate(found, (X, Y), num_folds=3)
    assert np.allclose(folded.rows, cross_validate(same, rows, num_folds=3).rows)
    table = found.to_arviz((X, Y))
    assert table.observed_data["y"].shape == (60,)
    found.posterior_latents((X, Y), out=tmp_path / "rows")
    assert np.load(tmp_path / "rows" / "z.npy").shape == (60, 2)
    frame = pd.DataFrame({"y": Y.numpy(), "x": X.numpy()})

    def of_frame(data: Any, num_lines: int) -> None:
        two_lines(data["x"], data["y"], num_lines)

    third = fit(of_frame, frame, QUICK, args=(2,))
    assert set(third.item_names) == {"x", "y"}
    assert third.score(frame.assign(more="text")) == pytest.approx(found.score((X, Y)))


def test_rows_that_lie_along_another_dim_are_not_left_out() -> None:
    def of_steps(steps: Tensor, num_steps: int) -> None:
        rate = pyro.sample("rate", dist.Gamma(2.0, 2.0))
        with pyro.plate("rows", steps.shape[1]):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            for t in range(num_steps):
                pyro.sample(f"y_{t}", dist.Poisson(rate * (1 + z)), obs=steps[t])

    data = (torch.poisson(3 * torch.ones(4, 9)), 4)
    found = fit(of_steps, data, QUICK)
    with pytest.raises(ValueError, match="9 rows of the program along the first dim"):
        cross_validate(found, data, num_folds=2)


def test_a_saved_fit_keeps_its_settings(tmp_path: Path) -> None:
    found = fit(two_lines, (X, Y), QUICK, kwargs={"num_lines": 2, "scale": 5.0})
    found.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit", two_lines)
    assert isinstance(loaded.model, Call)
    assert loaded.model.settings == {"num_lines": 2, "scale": 5.0}
    assert loaded.score((X, Y)) == found.score((X, Y))


def test_settings_that_hold_code_are_given_again(tmp_path: Path) -> None:
    found = fit(two_lines, (X, Y), QUICK, kwargs={"words": print})
    found.save(tmp_path / "fit")
    with pytest.raises(ValueError, match="words"):
        Fit.load(tmp_path / "fit", two_lines)
    again = Fit.load(tmp_path / "fit", functools.partial(two_lines, words=print))
    assert again.score((X, Y)) == found.score((X, Y))


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"num_restarts": 2, "args": (2,)}
    path = tmp_path / "running"
    whole = fit(two_lines, (X, Y), QUICK, **settings)
    first = fit(two_lines, (X, Y), QUICK, checkpoint=path, **settings)
    again = fit(two_lines, (X, Y), QUICK, checkpoint=path, **settings)
    assert whole.objective == first.objective == again.objective


def test_rows_in_blocks_come_by_the_names_of_arguments() -> None:
    rows = {"x": X.numpy(), "y": Y.numpy()}
    start = fit(two_lines, (X, Y), QUICK)
    blocks = RowBlocks.of(rows, block_rows=25)
    found = fit(two_lines, blocks, QUICK, init=start, kwargs={"num_lines": 2})
    assert found.log_likelihood == pytest.approx(start.log_likelihood, abs=1e-5)
    assert torch.allclose(
        found.posterior_latents(blocks)["z"], found.posterior_latents((X, Y))["z"]
    )


class Network(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> None:
        two_lines(x, y)


def test_a_network_is_called_by_the_arguments_of_its_forward(plain: Fit) -> None:
    found = fit(Network(), {"x": X, "y": Y}, QUICK)
    assert found.log_likelihood == pytest.approx(plain.log_likelihood)


def test_arguments_by_place_alone_and_any_number_of_them() -> None:
    def by_place(x: Tensor, /, *more: Tensor, last: int) -> None:
        two_lines(x, more[0], last)

    def by_any_name(**data: Tensor) -> None:
        two_lines(data["x"], data["y"])

    for model, data, kwargs in (
        (by_place, (X, Y), {"last": 2}),
        (by_any_name, {"x": X, "y": Y}, {}),
    ):
        assert fit(model, data, QUICK, kwargs=kwargs).num_rows == 60


@pytest.mark.parametrize(
    ("data", "settings", "words"),
    [
        (X, {}, "give y too"),
        (None, {}, "give x, y too"),
        ((X, Y, 2, 1.0, None, 7), {}, "got 6 of them"),
        ({"x": X}, {}, "x alone: give y too"),
        ({"x": X, "z": Y}, {}, "got a dict with z, which are none"),
        ((X, Y), {"kwargs": {"colour": 1}}, "kwargs 'colour'"),
        ((X, Y), {"args": (2, 1.0, None, 3)}, "4 args"),
        ((X, Y), {"args": 2}, "a tuple and a dict were expected"),
        ((X, Y), {"kwargs": [2]}, "a tuple and a dict were expected"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(data: Any, settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(two_lines, data, **settings)


def test_a_program_without_arguments_takes_no_data() -> None:
    with pytest.raises(ValueError, match="None of no argument, got 1 of them"):
        fit(lambda: None, X)


def test_programs_of_one_argument_stay_as_they_are() -> None:
    def rows(data: Any, num_rows: int | None = None) -> None:
        return None

    assert call_of(rows, X) is rows
    assert call_of(of_one, {"x": X, "y": Y}) is of_one
    assert call_of(of_one, {"data": X}) is of_one
    assert isinstance(call_of(rows, {"data": X}), Call)


def test_settings_are_of_programs_of_ones_own() -> None:
    from ppl_models import Mixture, Normal

    with pytest.raises(ValueError, match="program of your own"):
        fit(Mixture(2, Normal(), 1), X.unsqueeze(1), args=(2,))

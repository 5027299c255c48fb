"""Users' programs as they come: dtypes, missing entries, frames, restarts, and what is refused
before any work.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy import stats
from scipy.special import logsumexp
from support.everyday.data import lines_of_two, ratings
from support.everyday.programs import mixture_of_lines, rasch
from torch import Tensor

from inference import EM, NUTS, SAEM, SVI, Fit, Laplace, fit
from inference.base.outcome import ConvergenceWarning
from inference.programs.global_state import in_dtype
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models.data.tables import Columns, as_columns, first_tensor, map_tensors

F64 = torch.float64
SHORT = EM(max_iterations=3000)


def params_of(program: Program, count: int, seed: int = 0) -> dict[str, Tensor]:
    free = program.unconstrained(program.draw_prior(count, seed, local=True))
    return program.constrained({name: value.clamp(-1.5, 1.5) for name, value in free.items()})


# ---------------------------------------------------------------- restarts


def test_restarts_of_a_program_that_indexes_run_one_by_one() -> None:
    """``a[z]`` reads the first dim of a, which is its own: every answer for three restarts is that
    of each alone.
    """
    program = Program(mixture_of_lines, lines_of_two())
    assert not program.broadcasts()
    params = params_of(program, 3)
    alone = [{name: value[r] for name, value in params.items()} for r in range(3)]
    for ask in (program.log_prior, program.log_marginal, program.log_marginal_rows):
        torch.testing.assert_close(ask(params), torch.stack([ask(one) for one in alone]))
    posteriors = program.factor_posteriors(params)
    for r, one in enumerate(alone):
        own = program.factor_posteriors(one)
        for name, weights in own.weights.items():
            torch.testing.assert_close(posteriors.weights[name][r], weights)
        torch.testing.assert_close(
            program.expected_complete_log_density(params, posteriors)[r],
            program.expected_complete_log_density(one, own),
        )
        torch.testing.assert_close(
            program.latent_marginals(params)["group"][r], program.latent_marginals(one)["group"]
        )
    assert program.latent_values(params)["group"].shape == (2,)


def first_of(data: Tensor) -> None:
    """Runs with a leading dim of restarts, and gives every restart the mean of the first."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean.reshape(-1)[0], 1.0), obs=data)


def same_for_all(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


def test_values_decide_and_not_shapes() -> None:
    data = torch.arange(5.0, dtype=F64)
    assert Program(same_for_all, data).broadcasts()
    program = Program(first_of, data)
    assert not program.broadcasts()  # no error, but another answer
    params = {"mean": torch.tensor([[0.0, 1.0], [3.0, 1.0]], dtype=F64)}
    expected = [dist.Normal(mean, 1.0).log_prob(data).sum() for mean in (0.0, 3.0)]
    torch.testing.assert_close(program.log_marginal(params), torch.stack(expected))


def test_the_trial_runs_on_few_rows() -> None:
    seen: list[int] = []

    def program(data: Tensor) -> None:
        seen.append(len(data))
        same_for_all(data)

    assert Program(program, torch.zeros(10_000, dtype=F64)).broadcasts()
    assert seen.count(10_000) == 1
    assert max(seen[1:]) <= 64


def test_a_program_of_so_many_rows_and_no_fewer_is_tried_on_all_of_them() -> None:
    def program(data: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        with pyro.plate("rows", 100):
            pyro.sample("x", dist.Normal(mean, torch.ones(100, dtype=F64)), obs=data)

    assert Program(program, torch.zeros(100, dtype=F64)).broadcasts()


def test_a_fit_of_several_restarts_is_the_best_of_fits_from_each() -> None:
    data = lines_of_two()
    together = fit(mixture_of_lines, data, EM(), num_restarts=3, seed=2)
    starts = together.restarts
    assert starts is not None
    assert len(starts.objective) == 3
    assert together.objective == pytest.approx(float(starts.objective.max()))
    again = fit(mixture_of_lines, data, EM(), init=together)
    assert again.objective == pytest.approx(together.objective, abs=1e-6)


# ---------------------------------------------------------------- dtype


def single_constants(data: Tensor) -> None:
    """Every constant is of torch's default dtype."""
    weight = pyro.sample("weight", dist.Beta(1.0, 1.0))
    scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
    effect = pyro.sample("effect", dist.Normal(torch.zeros(2), torch.tensor(3.0)).to_event(1))
    design = torch.stack([torch.ones(len(data)), data], -1)
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(weight))
        pyro.sample("x", dist.Normal(design @ effect + 0.3 * z, scale), obs=data)


OUTSIDE = torch.tensor(
    [[1.0, 0.5], [0.0, 1.0]]
)  # made when the file was read: float32, whatever the data are


def constants_from_outside(data: Tensor) -> None:
    effect = pyro.sample("effect", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal((OUTSIDE @ effect).sum(-1), 1.0), obs=data)


@pytest.mark.parametrize("program", [single_constants, constants_from_outside])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_program_runs_in_the_dtype_of_its_data(
    program: Callable[..., Any], dtype: torch.dtype
) -> None:
    data = torch.linspace(-1, 2, 40).to(dtype)
    before = torch.get_default_dtype()
    result = fit(
        program,
        data,
        EM(max_iterations=2000, tolerance=1e-6, parameter_tolerance=1e-3),
        num_restarts=2,
    )
    assert {value.dtype for value in result.params.values()} == {dtype}
    assert torch.get_default_dtype() is before


def test_whole_numbers_are_fitted_in_double_precision() -> None:
    def counts(data: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(1.0, 0.1))
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.Poisson(rate), obs=data)

    data = np.array([1, 0, 4, 2])
    result = fit(counts, data, EM())
    assert result.params["rate"].dtype == F64
    assert float(result.params["rate"]) == pytest.approx(
        7 / 4.1, rel=1e-5
    )  # mode of the gamma posterior


def test_log_densities_of_counts_keep_the_digits_of_double_precision() -> None:
    """Log-factorials of whole numbers, which PyTorch takes in the caller's default dtype."""

    def counted(data: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(torch.full((2,), 2.0), 1e-6).to_event(1))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            pyro.sample("y", dist.Poisson(rate[z.long()]), obs=data)

    data = np.random.default_rng(0).poisson([2e6] * 10 + [3e6] * 10)
    rates = np.array([2e6, 3e6])
    found = fit(counted, data, EM(), init={"rate": torch.tensor(rates)})
    rows = stats.poisson.logpmf(data[:, None], found.params["rate"].numpy()) + math.log(0.5)
    by_hand = logsumexp(rows, axis=1)
    assert np.allclose(found.log_likelihood_rows(data), by_hand, rtol=0, atol=1e-6)
    assert found.log_likelihood == pytest.approx(by_hand.sum(), abs=1e-5)


def test_the_default_dtype_comes_back_when_a_program_raises() -> None:
    def broken(data: Tensor) -> None:
        raise RuntimeError("mine")

    with pytest.raises(ValueError, match="line .* of test_wrap.py: mine"):
        fit(broken, torch.zeros(3, dtype=F64))
    assert torch.get_default_dtype() is torch.float32


def test_the_default_dtype_of_threads() -> None:
    """A program in double precision in one thread waits for one in single precision in another."""
    found: list[torch.dtype] = []

    def inside(dtype: torch.dtype) -> None:
        for _ in range(200):
            with in_dtype(dtype):
                found.append(torch.ones(1).dtype if torch.ones(1).dtype is not dtype else dtype)
                assert torch.ones(1).dtype is dtype

    threads = [
        threading.Thread(target=inside, args=(dtype,)) for dtype in (torch.float32, torch.float64)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 400
    assert torch.get_default_dtype() is torch.float32


# ---------------------------------------------------------------- data


def by_name(data: Any) -> None:
    """Reads a column by its name, and takes the number of rows from the table."""
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * data["x"] + data["treated"], scale), obs=data["y"])


def by_place(data: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * data[:, 0] + data[:, 1], scale), obs=data[:, 2])


def by_pandas(data: Any) -> None:
    """Turns columns into tensors itself."""
    x, treated, y = (
        torch.tensor(data[name].to_numpy(dtype=float)) for name in ("x", "treated", "y")
    )
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.Gamma(2.0, 2.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(slope * x + treated, scale), obs=y)


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x, treated = rng.normal(size=50), rng.random(50) < 0.5
    return pd.DataFrame(
        {"x": x, "treated": treated, "y": 2 * x + treated + 0.1 * rng.normal(size=50)}
    )


def test_frames_are_read_by_name_by_place_or_by_the_program_itself() -> None:
    frame = table()
    fits = [fit(program, frame, EM()) for program in (by_name, by_place, by_pandas)]
    for result in fits:
        assert result.item_names == ("x", "treated", "y")
        assert result.num_rows == 50
        assert result.log_likelihood == pytest.approx(fits[0].log_likelihood, abs=1e-6)
        torch.testing.assert_close(
            result.log_likelihood_rows(frame), fits[0].log_likelihood_rows(frame)
        )
    shuffled = frame[["y", "x", "treated"]]
    torch.testing.assert_close(
        fits[0].log_likelihood_rows(shuffled), fits[0].log_likelihood_rows(frame)
    )  # names decide
    torch.testing.assert_close(
        fits[1].log_likelihood_rows(shuffled), fits[0].log_likelihood_rows(frame)
    )


def test_columns_that_are_missing_or_hold_text_are_named() -> None:
    frame = table().assign(place=["a", "b"] * 25)
    assert fit(by_name, frame, EM()).num_rows == 50  # a column nobody reads does no harm
    with pytest.raises(ValueError, match="reads column 'treated', which the data do not have.*'x'"):
        fit(by_name, frame.drop(columns="treated"), EM())
    with pytest.raises(ValueError, match="column 'treated' holds values of type str"):
        fit(by_name, frame.assign(treated="yes"), EM())


def test_columns_behave_as_a_table() -> None:
    columns = as_columns(
        pd.DataFrame(
            {
                "a": [1, 2, 3],
                "b": [0.5, None, 1.5],
                "c": pd.array([1, None, 3], dtype="Int64"),
                "d": [True, False, True],
            }
        )
    )
    assert isinstance(columns, Columns)
    assert (len(columns), columns.shape, columns.columns) == (3, (3, 4), ["a", "b", "c", "d"])
    assert columns["a"].dtype == torch.int64
    assert columns.d.dtype == torch.bool
    assert columns["c"].isnan().tolist() == [False, True, False]
    assert columns[["a", "b"]].shape == (3, 2)
    assert len(columns[torch.tensor([True, False, True])]) == 2
    assert len(map_tensors(lambda x: x[:1], columns)) == 1
    assert len(first_tensor(columns)) == 3
    assert "a" in columns
    assert "z" not in columns


def test_dicts_of_arrays_series_and_numbers() -> None:
    frame = table()

    def program(data: dict[str, Any]) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, data["wide"]))
        with pyro.plate("rows", len(data["y"])):
            pyro.sample("y", dist.Normal(slope * data["x"] + data["treated"], 0.1), obs=data["y"])

    mixed = {
        "wide": 10.0,
        "x": frame["x"].to_numpy(np.float32),
        "treated": frame["treated"],
        "y": torch.tensor(frame["y"].to_numpy(copy=True)),
    }
    result = fit(program, mixed, EM())
    assert result.num_rows == 50
    assert float(result.params["slope"]) == pytest.approx(2.0, abs=0.05)
    assert result.params["slope"].dtype == F64


def two_measurements(data: dict[str, Tensor]) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    rate = pyro.sample("rate", dist.Gamma(1.0, 0.1).expand([2]).to_event(1))
    weight = pyro.sample("weight", dist.Beta(1.0, 1.0))
    with pyro.plate("rows", len(data["size"])):
        z = pyro.sample("z", dist.Bernoulli(weight)).long()
        pyro.sample("size", dist.Normal(mean[z], 1.0), obs=data["size"])
        pyro.sample("number", dist.Poisson(rate[z]), obs=data["number"])


def test_missing_entries_of_observed_sites_leave_the_likelihood() -> None:
    """Row by row equal to the densities of what is there, by hand."""
    nan = float("nan")
    data = {
        "size": torch.tensor([0.2, nan, 3.0, nan], dtype=F64),
        "number": torch.tensor([1.0, 7.0, nan, nan], dtype=F64),
    }
    program = Program(two_measurements, data)
    params = {
        "mean": torch.tensor([0.0, 3.0], dtype=F64),
        "rate": torch.tensor([1.0, 6.0], dtype=F64),
        "weight": torch.tensor(0.3, dtype=F64),
    }
    log_prior = torch.tensor([0.7, 0.3], dtype=F64).log()
    size = torch.stack(
        [
            dist.Normal(params["mean"], 1.0, validate_args=False).log_prob(x).nan_to_num()
            for x in data["size"]
        ]
    )
    number = torch.stack(
        [
            dist.Poisson(params["rate"], validate_args=False).log_prob(x).nan_to_num()
            for x in data["number"]
        ]
    )
    expected = (log_prior + size + number).logsumexp(-1)
    torch.testing.assert_close(program.log_marginal_rows(params), expected)
    assert float(expected[3]) == pytest.approx(0.0)
    result = fit(two_measurements, data, EM())
    assert result.posterior_latents(data)["z"][3, 1] == pytest.approx(
        float(result.params["weight"])
    )


def test_vectors_with_missing_entries_are_refused() -> None:
    def program(data: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.MultivariateNormal(mean, torch.eye(2)), obs=data)

    data = torch.tensor([[0.0, 1.0], [float("nan"), float("nan")], [2.0, 2.0]], dtype=F64)
    assert (
        float(Program(program, data).log_marginal_rows({"mean": torch.zeros(2, dtype=F64)})[1])
        == 0.0
    )
    data[2, 0] = float("nan")
    with pytest.raises(ValueError, match="'x' holds vectors of which some entries are NaN"):
        fit(program, data, EM())


# ---------------------------------------------------------------- continuous latents of rows


def test_engines_that_integrate_refuse_continuous_latents_of_rows_in_one_sentence() -> None:
    words = r"^SAEM .*cannot integrate 'ability' \(line \d+ of programs.py\).*NUTS\(\)"
    with pytest.raises(ValueError, match=words) as caught:
        fit(rasch, ratings(), SAEM())
    assert "\n" not in str(caught.value)


def test_laplace_draws_around_the_optimum_with_abilities_integrated() -> None:
    data = ratings()
    result, drawn = fit(rasch, data), fit(rasch, data, Laplace(num_draws=2000))
    assert drawn.draws is not None
    assert drawn.quadrature is not None
    torch.testing.assert_close(drawn.params, result.params, rtol=0, atol=1e-3)
    errors = standard_errors(result, data).standard_errors["difficulty"]
    spread = drawn.draws["difficulty"].flatten(0, 1).std(0)
    torch.testing.assert_close(spread, errors, rtol=0.1, atol=0.0)


def test_nuts_draws_continuous_latents_of_rows(tmp_path: Any) -> None:
    data = ratings(20)
    with pytest.warns(ConvergenceWarning, match="R-hat|diverged"):
        result = fit(rasch, data, NUTS(num_chains=2, warmup_steps=20, num_samples=10))
    assert set(result.params) == {"difficulty"}
    assert result.draws is not None
    assert result.local is not None
    assert result.local_draws is not None
    assert set(result.draws) == {"difficulty"}
    assert result.local_draws["ability"].shape == (2, 10, 20, 1)
    torch.testing.assert_close(result.local["ability"], result.local_draws["ability"].mean((0, 1)))
    assert np.isnan(result.log_likelihood)
    assert "ability" in result.objective_name
    idata = result.to_arviz(data)
    assert idata["local_posterior"]["ability"].shape == (2, 10, 20, 1)
    assert idata["local_posterior"]["ability"].dims[:3] == ("chain", "draw", "unit")
    for ask in (result.log_likelihood_rows, result.posterior_latents):
        with pytest.raises(ValueError, match="needs 'ability' integrated.*local_draws"):
            ask(data)
    result.save(tmp_path / "rasch")
    again = Fit.load(tmp_path / "rasch", model=rasch)
    assert again.local_draws is not None
    torch.testing.assert_close(again.local_draws["ability"], result.local_draws["ability"])


def test_svi_draws_continuous_latents_of_rows() -> None:
    data = ratings(20)
    with pytest.warns(ConvergenceWarning, match="SVI"):
        result = fit(rasch, data, SVI(num_steps=50, num_draws=10))
    assert set(result.params) == {"difficulty"}
    assert result.local_draws is not None
    assert result.local_draws["ability"].shape == (1, 10, 20, 1)
    assert np.isnan(result.log_likelihood)
    assert np.isfinite(result.elbo)


def test_a_discrete_latent_beside_a_continuous_one() -> None:
    """Posteriors of the discrete one are averaged over the draws of both."""

    def program(data: Tensor) -> None:
        chance = pyro.sample("chance", dist.Beta(2.0, 2.0))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Bernoulli(chance))
            level = pyro.sample("level", dist.Normal(3 * z, 0.5))
            pyro.sample("x", dist.Normal(level, 0.1), obs=data)

    data = torch.tensor([0.1, -0.2, 3.1, 2.8], dtype=F64)
    with pytest.warns(ConvergenceWarning, match="R-hat|diverged"):
        result = fit(program, data, NUTS(num_chains=2, warmup_steps=30, num_samples=10))
    latent = result.to_arviz(data)["latent_posterior"]["z"].values[:, 1]
    assert (latent.round() == [0, 0, 1, 1]).all()


# ---------------------------------------------------------------- what is refused


def rows(body: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    def program(data: Tensor) -> None:
        body(data)

    return program


def _nothing_observed(data: Tensor) -> None:
    pyro.sample("mean", dist.Normal(0.0, 1.0))


def _nothing_to_estimate(data: Tensor) -> None:
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(0.0, 1.0), obs=data)


def _no_plate(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


def _outside(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Poisson(rate), obs=data)


def _covariate(data: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(slope * torch.where(data > 0, torch.nan, data), 1.0), obs=data)


def _infinite(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(1.0, 1.0))
    with pyro.plate("rows", len(data)):
        n = pyro.sample("n", dist.Poisson(rate))
        pyro.sample("x", dist.Normal(n, 1.0), obs=data)


def _control_flow(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    which = pyro.sample("which", dist.Bernoulli(0.5))
    shift = 1.0 if which > 0.5 else -1.0
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Normal(mean + shift, 1.0), obs=data)


def _first_entry(data: Tensor) -> None:
    """Runs with all values at once too, where ``which[0]`` is the first value and not the first
    row's: the sum would be wrong.
    """
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(data)):
        which = pyro.sample("which", dist.Bernoulli(0.5))
        shift = 1.0 if which[0] > 0.5 else -1.0
        pyro.sample("x", dist.Normal(mean + shift, 1.0), obs=data)


REFUSED = {
    "nothing observed": (_nothing_observed, r"observes nothing.*obs="),
    "nothing to estimate": (_nothing_to_estimate, r"no parameters and no latents.*'mean'"),
    "no plate": (
        _no_plate,
        (
            r"site 'x' \(line \d+ of test_wrap.py\) has 4 values.*no plate.*with"
            r" pyro.plate\('rows', 4\)"
        ),
    ),
    "outside": (_outside, r"observed site 'x' \(line \d+ of test_wrap.py\).*got -1"),
    "covariate": (
        _covariate,
        r"at line \d+ of test_wrap.py: .*Normal.*a covariate that is missing",
    ),
    "infinite": (
        _infinite,
        r"latent site 'n' \(line \d+.*cannot be enumerated.*Categorical over 0",
    ),
    "first entry": (
        _first_entry,
        (
            r"site 'x' \(line \d+ of test_wrap.py\) has another density when 'which' take all"
            r" their values at once"
        ),
    ),
    "control flow": (
        _control_flow,
        r"all values of 'which' at once, at line \d+ of test_wrap.py.*a\[z\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_any_work(name: str) -> None:
    program, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        fit(program, torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=F64), EM())


def _asserting(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    assert mean.shape == (3,)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda data: data["wanted"], "KeyError 'wanted'"),
        (lambda data: data.wanted, "AttributeError .*wanted"),
        (_asserting, "AssertionError"),
    ],
)
def test_an_exception_of_a_program_is_told_with_its_line(program: Any, words: str) -> None:
    """Failed before: the bare exception."""
    with pytest.raises(ValueError, match=rf"^the program at line \d+ of test_wrap.py: {words}"):
        fit(program, {"x": torch.zeros(3)})


def drawn_plate(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 10, subsample_size=4):
        pyro.sample("x", dist.Normal(mean, torch.ones(4)), obs=data)


def test_a_plate_that_cannot_take_all_its_rows_is_refused_with_its_remedy() -> None:
    with pytest.raises(ValueError, match="'rows' would draw 4 of its 10 rows.*data\\[i\\]"):
        fit(drawn_plate, torch.zeros(4))


def probability_without_a_constraint(data: Tensor) -> None:
    p = pyro.param("p", torch.tensor(0.25))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(p))
        pyro.sample("x", dist.Bernoulli(p + z / 2), obs=data)


def test_a_param_that_leaves_its_support_near_its_start_is_started_nearer() -> None:
    """Failed before: refused at a draw of half a unit from the start."""
    data = torch.tensor([1.0, 0.0, 0.0, 0.0])
    result = fit(probability_without_a_constraint, data, EM())
    # P(x = 1) = p (1 - p) + p (p + 1/2) = 3 p / 2
    assert float(result.params["p"]) == pytest.approx(1 / 6, abs=1e-3)


def test_a_scale_and_masks_of_the_user_are_kept() -> None:
    def program(data: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with (
            pyro.plate("rows", len(data)),
            poutine.mask(mask=torch.tensor([True, True, False, True])),
        ):
            pyro.sample("x", dist.Normal(mean, 1.0), obs=data)

    data = torch.tensor([0.5, float("nan"), 3.0, 1.0], dtype=F64)
    found = Program(program, data).log_marginal_rows({"mean": torch.tensor(0.2, dtype=F64)})
    expected = dist.Normal(0.2, 1.0).log_prob(torch.tensor([0.5, 1.0], dtype=F64))
    torch.testing.assert_close(found[[0, 3]], expected)
    assert found[[1, 2]].tolist() == [0.0, 0.0]


def test_sites_know_their_lines() -> None:
    assert Program(rasch, ratings()).site("difficulty").line.endswith("of programs.py")


def test_the_plain_call_refuses_in_the_same_words() -> None:
    """The trial of two restarts, which the default number of restarts asks for, says nothing of its
    own.
    """
    with pytest.raises(ValueError, match="all values of 'which' at once"):
        fit(_control_flow, torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=F64))


def test_a_site_of_which_nothing_is_seen_in_some_rows() -> None:
    """A part of the rows (one, or a fold) may hold nothing but NaN."""
    nothing = {
        "size": torch.tensor([float("nan")], dtype=F64),
        "number": torch.tensor([float("nan")], dtype=F64),
    }
    params = {
        "mean": torch.tensor([0.0, 3.0], dtype=F64),
        "rate": torch.tensor([1.0, 6.0], dtype=F64),
        "weight": torch.tensor(0.3, dtype=F64),
    }
    assert float(Program(two_measurements, nothing).log_marginal_rows(params)) == pytest.approx(0.0)


def test_one_trial_a_fit() -> None:
    """A fit asks once whether its program broadcasts, however often it lays the program out."""
    batches: list[int] = []

    def program(data: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(torch.zeros(2), 10.0).to_event(1))
        if mean.dim() > 1:
            batches.append(len(mean))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(torch.ones(2) / 2))
            pyro.sample("x", dist.Normal(mean[z], 1.0), obs=data)

    data = torch.tensor([-2.0, -1.5, 1.5, 2.5, 3.0], dtype=F64)
    fit(program, data, EM(max_iterations=50), num_restarts=3)
    assert batches == [2]  # one run of two together, which failed

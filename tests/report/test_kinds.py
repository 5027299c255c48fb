"""Every kind of model, and programs of users, on a page of their own: what it must hold, and what
it must not say.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from support import own_programs

from inference import EM, NUTS, SAEM, Fit, Laplace, fit
from inference.base.plugins import load_modules
from inference.estimates import estimates_of
from inference.identifiability import identifiability_of
from inference.predictive import predictive_checks
from inference.report import write_report
from inference.report.page import html_of
from inference.report.results_folder import read_results, write_results
from inference.report.sections import Subject, fitted as what_was_fitted
from inference.report.verdicts import on_convergence
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    DeepNoisyOr,
    FactorAnalysis,
    GaussianFactorization,
    HiddenMarkov,
    LogNormal,
    Mixture,
    MultivariateNormal,
    MultivariateT,
    NegativeBinomial,
    NoisyOr,
    Normal,
    OptionsHMM,
    PoissonFactorization,
    SkewNormal,
    SparseCoding,
    Unmixing,
    UsageFactorization,
)

pytestmark = pytest.mark.usefixtures("few_refits")

RNG = np.random.default_rng(0)
BITS = (
    RNG.random((60, 6)) < 0.15 + 0.7 * (RNG.random((60, 2)) < 0.5)[:, [0, 0, 0, 1, 1, 1]]
).astype(float)
REALS = RNG.normal(size=(60, 3)) + 4 * (RNG.random((60, 1)) < 0.4)
COUNTS = RNG.poisson(20 * RNG.gamma(2, 1, (30, 2)) @ RNG.dirichlet(np.ones(6), 2)) + 1.0
CODES = np.where(np.arange(3) == RNG.integers(3, size=(40, 1)), RNG.uniform(0.3, 1, (40, 1)), 0.0)
SEQUENCES = {
    "state": torch.as_tensor(RNG.integers(0, 3, (5, 12))),
    "action": torch.as_tensor(RNG.integers(0, 2, (5, 12))),
}

SHORT = EM(max_iterations=15)
CASES: dict[str, tuple[Callable[[], Any], Any, Any, set[str]]] = {
    "encoder": (
        lambda: DeepDiscreteEncoder(6, (2,)),
        BITS,
        SHORT,
        {"loadings", "graph", "estimates", "latents"},
    ),
    "encoder drawn": (
        lambda: DeepDiscreteEncoder(6, (1,)),
        BITS,
        Laplace(50),
        {"loadings", "graph", "estimates", "latents"},
    ),
    "deep noisy-or": (
        lambda: DeepNoisyOr(6, (2, 1)),
        BITS,
        EM(max_iterations=3),
        {"estimates", "latents"},
    ),
    "noisy-or": (lambda: NoisyOr(6, 2), BITS, SHORT, {"loadings", "estimates", "latents"}),
    "mixture": (
        lambda: Mixture(2, Bernoulli(), 6),
        BITS,
        SHORT,
        {"verdict", "components", "classes", "estimates"},
    ),
    "normal mixture": (
        lambda: Mixture(2, MultivariateNormal(), 3),
        REALS,
        SHORT,
        {"verdict", "components", "estimates"},
    ),
    "options": (
        lambda: OptionsHMM(3, 2, 2),
        SEQUENCES,
        SHORT,
        {"policies", "time", "estimates", "latents"},
    ),
    "counts": (
        lambda: PoissonFactorization(6, 2),
        COUNTS,
        None,
        {"verdict", "signatures", "estimates"},
    ),
    "reals": (
        lambda: GaussianFactorization(3, 1),
        REALS,
        None,
        {"verdict", "signatures", "estimates"},
    ),
    "usage": (
        lambda: UsageFactorization(6, 2),
        COUNTS,
        SAEM(max_iterations=5),
        {"signatures", "estimates", "latents"},
    ),
    "factors": (lambda: FactorAnalysis(3, 1), REALS, SHORT, {"signatures", "estimates"}),
    "unmixing": (lambda: Unmixing(6, 2), COUNTS, SHORT, {"endmembers", "estimates"}),
    "sparse": (
        lambda: SparseCoding(6, 3, 1),
        CODES @ RNG.normal(size=(3, 6)),
        None,
        {"columns", "estimates"},
    ),
    "own mixture": (
        lambda: own_programs.regression_mixture,
        own_programs.lines(),
        SHORT,
        {"estimates", "latents"},
    ),
    "own chain": (
        lambda: own_programs.chain,
        own_programs.walks(),
        SHORT,
        {"estimates", "latents"},
    ),
    "own counts": (
        lambda: own_programs.inflated,
        own_programs.zeros_and_counts(),
        SHORT,
        {"estimates", "latents"},
    ),
}
ALWAYS = {"verdict", "fitted", "numbers", "convergence", "predictive", "identifiability"}
NEGATIVE = (
    r"describes? no|does not describe|no layers|not drawn|cannot be drawn|Traceback|object at"
    r" 0x|<function"
)


def fitted(name: str) -> tuple[Fit, Any]:
    build, data, method, _ = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(build(), data, method), data


def sections(file: Path) -> dict[str, str]:
    html = re.sub(r'src="[^"]*"', "", file.read_text(encoding="utf-8"))
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL))


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_the_model_is_and_nothing_it_is_not(name: str, tmp_path: Path) -> None:
    result, data = fitted(name)
    file = write_report(
        result, data, tmp_path / "page.html", identifiability=identifiability_of(result, data)
    )
    found = sections(file)
    assert set(found) - {"warnings"} == ALWAYS | CASES[name][3]
    assert list(found)[0] == "verdict"
    assert ("warnings" in found) == bool(result.warnings or not result.converged)
    for question in (
        "What was fitted?",
        "Did the fit converge?",
        "Does the model describe the data?",
        "What to do next",
    ):
        assert question in found["verdict"]
    for key, text in found.items():
        assert not re.search(NEGATIVE, text, re.IGNORECASE), (
            key,
            re.search(NEGATIVE, text, re.IGNORECASE),
        )
    for site in estimates_of(result, named=True).sites:
        assert site in found["estimates"]
    assert found["predictive"].count("<img") >= 1
    assert found["estimates"].count("<img") == ("Without intervals" not in found["estimates"])


def test_intervals_of_a_users_program_hold_the_truth() -> None:
    result, data = fitted("own mixture")
    table = estimates_of(result, data)
    assert table.source
    assert not table.note
    slopes = sorted(table.of("slope"), key=lambda entry: entry.value)
    assert slopes[0].low < -1 < slopes[0].high
    assert slopes[1].low < 2 < slopes[1].high
    assert table.frame().loc["weights[0]", "value"] == pytest.approx(
        float(result.params["weights"][0])
    )


def test_intervals_of_draws_are_their_quantiles_and_nothing_was_made_large(tmp_path: Path) -> None:
    data = own_programs.zeros_and_counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(
            own_programs.inflated, data, NUTS(num_samples=50, warmup_steps=50, num_chains=2)
        )
    numbers = sections(write_report(result, data, tmp_path / "drawn.html"))["numbers"]
    assert "at the mean of the draws" in numbers
    assert "draws that each chain kept" in numbers
    assert "maximised" not in numbers
    (rate,) = estimates_of(result, level=0.9).of("rate")
    draws = result.draws["rate"].ravel()
    assert rate.value == pytest.approx(float(draws.mean()))
    assert (rate.low, rate.high) == pytest.approx(
        (float(draws.quantile(0.05)), float(draws.quantile(0.95)))
    )


def test_latents_of_rows_that_are_continuous_are_not_summarised_as_bits(tmp_path: Path) -> None:
    for name, word in (("usage", "usage"), ("factors", "")):
        result, data = fitted(name)
        found = sections(write_report(result, data, tmp_path / f"{name}.html"))
        assert "activities" not in found.get("latents", "")
        assert word in found.get("latents", "")


def test_why_there_are_no_intervals_is_said() -> None:
    result, data = fitted("own counts")
    assert estimates_of(result).note == "standard errors need the data"
    penalised, table = fitted("counts")
    assert "activities" in estimates_of(penalised, table).note
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        estimates_of(result, data, level=1.0)


def test_sequences_are_checked_step_by_step_with_their_gaps() -> None:
    result, data = fitted("own chain")
    checks = predictive_checks(result, data, num_simulations=4)
    assert list(checks) == ["x"]
    check = checks["x"]
    assert check.observed.shape == tuple(data.shape)
    assert np.array_equal(np.isnan(check.observed), data.isnan().numpy())
    assert np.isnan(check.simulated[:, 0, -1]).all()
    assert np.allclose(check.observed[1:], data[1:])


def test_replicates_follow_the_distribution_of_the_program() -> None:
    result, data = fitted("own counts")
    check = predictive_checks(result, data, num_simulations=50)["count"]
    zero, rate = float(result.params["zero"]), float(result.params["rate"])
    expected = zero + (1 - zero) * np.exp(-rate)
    assert (check.simulated == 0).mean() == pytest.approx(
        expected, abs=4 * np.sqrt(expected * (1 - expected) / check.simulated.size)
    )


def test_covariates_stay_those_of_the_data() -> None:
    """Each simulated y lies near one of the two lines at its own x."""
    result, data = fitted("own mixture")
    check = predictive_checks(result, data, num_simulations=5)["y"]
    x, a, b = data["x"].numpy(), result.params["intercept"].numpy(), result.params["slope"].numpy()
    distance = np.abs(check.simulated[..., 0, None] - (a + b * x[:, None])).min(-1)
    assert (distance < 5 * 0.5).all()


def test_options_are_checked_by_shares_of_states_and_actions() -> None:
    result, data = fitted("options")
    checks = predictive_checks(result, data, num_simulations=3)
    assert set(checks) == {"share of steps in each state", "share of steps with each action"}
    shares = checks["share of steps with each action"].observed
    assert np.allclose(shares.sum(1), 1)
    assert np.allclose(shares[:, 1], data["action"].double().mean(1))


# ---------------------------------------------------------------------------- what users' programs
# may look like


def own(model: Any, data: Any, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, data, EM(**({"max_iterations": 200} | settings)))


def test_sites_are_not_joined_for_their_names(tmp_path: Path) -> None:
    data = own_programs.coins()
    result = own(own_programs.three_coins, data)
    found = sections(write_report(result, data, tmp_path / "page.html"))
    shares = [
        float(line)
        for line in re.findall(r"b\d</td><td[^>]*>1</td><td[^>]*>([\d.]+)</td>", found["latents"])
    ]
    assert shares == pytest.approx([0.1, 0.5, 0.9], abs=0.1)
    assert list(predictive_checks(result, data, 2)) == ["x0", "x1", "x2"]
    assert re.search("nothing</td><td[^>]*>factor</td>", found["fitted"])


def test_steps_that_a_mask_hides_are_not_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state = np.zeros((40, 6), int)
    for t in range(1, 6):
        state[:, t] = np.where(rng.random(40) < 0.9, state[:, t - 1], 1 - state[:, t - 1])
    length = rng.integers(1, 7, 40)
    data = {
        "x": torch.as_tensor(4.0 * state + 0.5 * rng.normal(size=state.shape)),
        "length": torch.as_tensor(length),
    }
    result = own(own_programs.short_walks, data)
    found = sections(write_report(result, data, tmp_path / "page.html"))
    rows = re.findall(
        r"z \(6 of"
        r" them\)</td><td[^>]*>\d</td>" + 3 * r"<td[^>]*>([\d.]+)</td>",
        found["latents"],
    )
    seen = np.arange(6) < length[:, None]
    expected = sorted([state[seen].mean(), 1 - state[seen].mean()])
    assert sorted(float(row[0]) for row in rows) == pytest.approx(expected, abs=0.02)
    assert all(float(row[2]) > 0.95 for row in rows)
    observed = predictive_checks(result, data, 2)["x"].observed
    assert np.array_equal(np.isnan(observed), ~seen)


def test_intervals_are_those_of_a_maximum_of_the_likelihood() -> None:
    data = 5 + torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    held = estimates_of(own(own_programs.tight, data), data)
    assert "the prior moves the estimate away from the maximum" in held.note
    assert np.isnan(held.rows[0].low)
    early = own(own_programs.regression_mixture, own_programs.lines(), max_iterations=1)
    assert "not at a maximum" in estimates_of(early, own_programs.lines()).note
    few = {name: value[:3] for name, value in own_programs.lines().items()}
    assert "fewer rows" in estimates_of(own(own_programs.regression_mixture, few), few).note


def test_a_page_is_written_where_every_estimate_is_on_its_bound(tmp_path: Path) -> None:
    data = torch.zeros(400, dtype=torch.float64)
    result = own(own_programs.gate, data, tolerance=1e-14, parameter_tolerance=1e-12)
    found = sections(write_report(result, data, tmp_path / "page.html"))
    assert "gate" in found["estimates"]


def test_covariates_in_a_table_and_an_option_of_the_programs_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    data = torch.as_tensor(np.stack([x, 2 * x + 0.5 * rng.normal(size=80)], 1))
    result = own(own_programs.line, data)
    found = sections(write_report(result, data, tmp_path / "page.html"))
    assert "latents" not in found
    check = predictive_checks(result, data, 3)["y"]
    assert np.array_equal(check.observed[:, 0], data[:, 1].numpy())
    assert np.corrcoef(check.simulated[0, :, 0], x)[0, 1] > 0.9
    assert dict(result.to_arviz(data)["observed_data"].sizes) == {"unit": 80}


def test_a_users_results_are_written_and_read(tmp_path: Path) -> None:
    for name, model, data in (
        ("chain", own_programs.chain, own_programs.walks()),
        ("lines", own_programs.regression_mixture, own_programs.lines()),
    ):
        result = own(model, data)
        write_results(result, data, tmp_path / name)
        again, values, summary = read_results(tmp_path / name, model)
        assert summary["num_parameters"] == result.num_parameters
        assert torch.equal(
            again.params["weights" if name == "lines" else "move"],
            result.params["weights" if name == "lines" else "move"],
        )
        if name == "lines":
            assert np.allclose(values["y"], data["y"])


def test_a_mixture_names_its_dispersions_by_their_items() -> None:
    table = pd.DataFrame({"yes": BITS[:, 0], "size": REALS[:, 0], "no": BITS[:, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(
            Mixture(2, Blocks((Bernoulli(), 1), (Normal(), 1), (Bernoulli(), 1)), 3), table, SHORT
        )
    assert [row.name for row in estimates_of(result).of("dispersion")] == [
        "dispersion[0, size]",
        "dispersion[1, size]",
    ]


def test_pages_say_in_which_units_loadings_are(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "yes": BITS[:, 0],
            "size": REALS[:, 0],
            "time": np.exp(REALS[:, 1] / 4),
            "score": REALS[:, 2],
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixed = fit(
            DeepDiscreteEncoder(
                4,
                (2, 1),
                Blocks((Bernoulli(), 1), (Normal(), 1), (LogNormal(), 1), (Normal(), 1)),
                penalty=None,
            ),
            table,
            SHORT,
        )
        alike = fit(DeepDiscreteEncoder(6, (2,), penalty=None), BITS, SHORT)
    page = mixed.report(tmp_path / "mixed.html", table).read_text(encoding="utf-8")
    assert (
        "instead of 0: of yes in log-odds; of size, score in the unit of the column itself; of"
        " time in logarithms of the column. Those of deeper layers are in log-odds." in page
    )
    assert "instead of 0: in log-odds.<" in alike.report(tmp_path / "alike.html", BITS).read_text(
        encoding="utf-8"
    )


def test_a_mask_with_fewer_dims_hides_its_own_columns() -> None:
    data = torch.randn(
        4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )  # square: a turned mask would fit too
    observed = predictive_checks(own(own_programs.blanked, data), data, 2)["x"].observed
    assert np.array_equal(np.isnan(observed), np.broadcast_to(np.arange(4) == 3, (4, 4)))


def test_a_chain_without_a_plate_says_its_size(tmp_path: Path) -> None:
    def steps(data: torch.Tensor) -> None:
        """Normal steps, one after the other."""
        mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=torch.float64), 10.0))
        for t in pyro.markov(range(len(data))):
            pyro.sample(f"x_{t}", dist.Normal(mean, 1.0), obs=data[t])

    data = torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = sections(write_report(own(steps, data), data, tmp_path / "page.html"))
    assert "one a row" not in found["fitted"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("response", "words"),
    [(NegativeBinomial(), "sizes of negative binomial items"), (Normal(), "variances")],
    ids=lambda x: str(x)[:6],
)
def test_dispersions_are_called_what_they_are(response: Any, words: str) -> None:
    rows = np.random.default_rng(0).poisson(3.0, (60, 6)).astype(float)
    result = fit(DeepDiscreteEncoder(6, (1,), response), rows, EM(max_iterations=2), init="random")
    load_modules("inference.report.kinds")
    page = html_of(what_was_fitted(result.structure, Subject(result, rows, None, None)))
    assert words in page
    assert ("variances" in page) == (words == "variances")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "component",
    [Normal(), NegativeBinomial(), MultivariateT(), SkewNormal()],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize("is_chain", [False, True], ids=["mixture", "chain"])
def test_every_parameter_of_a_component_is_explained(component: Any, is_chain: bool) -> None:
    rows = np.random.default_rng(0).poisson(3.0, (40, 2)).astype(float)
    model = HiddenMarkov(2, component, 2) if is_chain else Mixture(2, component, 2)
    result = fit(model, rows, EM(max_iterations=2), init="random")
    load_modules("inference.report.kinds")
    page = html_of(what_was_fitted(result.structure, Subject(result, rows, None, None)))
    assert "<td></td>" not in page
    assert ("component" in page) != is_chain


@pytest.mark.parametrize(
    ("iterations", "mark", "says", "rest"),
    [
        (500, "good", "Yes.", "no estimate is more than"),
        (12, "care", "Nearly. It stopped after 12 iterations.", "no estimate is more than"),
        (6, "bad", "No, it stopped after 6 iterations.", "nats higher, and mean"),
    ],
)
def test_the_page_says_how_far_the_optimum_is(
    iterations: int, mark: str, says: str, rest: str
) -> None:
    generator = np.random.default_rng(5)
    rows = np.array([[-2.0, 0.0], [1.0, 1.5]])[
        generator.integers(2, size=300)
    ] + generator.standard_normal((300, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(
            Mixture(2, Normal(), 2),
            rows,
            EM(max_iterations=iterations, acceleration=None),
            num_restarts=1,
            seed=2,
        )
    finding = on_convergence(Subject(found, rows, None, None))
    assert finding.mark == mark
    assert finding.answer.startswith(says)
    assert rest in finding.answer

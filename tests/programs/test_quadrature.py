"""Continuous latents of rows by quadrature: values, derivatives and moments equal sums on a fine
grid, estimates the truth, refusals a sentence each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.special import expit, gammaln, logsumexp
from torch import Tensor

from inference import EM, NUTS, EstimateWarning, Fit, fit
from inference.engines.integration import with_nodes
from inference.fitting.problem import problem_of
from inference.programs.expectation import Expectation
from inference.programs.program import Program
from inference.programs.quadrature import Quadrature, integrated
from inference.uncertainty import standard_errors

F64 = torch.float64
GRID = np.linspace(-12.0, 12.0, 4801)


def rasch(data: Tensor) -> None:
    sigma = pyro.sample("sigma", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
    with pyro.plate("items", data.shape[1], dim=-1):
        difficulty = pyro.sample("difficulty", dist.Normal(torch.tensor(0.0, dtype=F64), 3.0))
    with pyro.plate("persons", len(data), dim=-2):
        ability = pyro.sample("ability", dist.Normal(0.0, sigma))
        with pyro.plate("answers", data.shape[1], dim=-1):
            pyro.sample("y", dist.Bernoulli(logits=ability - difficulty), obs=data)


def mixture_rasch(data: Tensor) -> None:
    """Classes of persons with difficulties of their own, and a spread of abilities each."""
    size = data.shape[1]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
    sigma = pyro.sample("sigma", dist.HalfNormal(2 * torch.ones(2, dtype=F64)).to_event(1))
    difficulty = pyro.sample(
        "difficulty", dist.Normal(torch.zeros(2, size, dtype=F64), 2.0).to_event(2)
    )
    with pyro.plate("persons", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        ability = pyro.sample("ability", dist.Normal(0.3, sigma[group]))
        logits = ability.unsqueeze(-1) - difficulty[group]
        pyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=data)


def skewed_counts(x: Tensor, y: Tensor) -> None:
    """Counts whose rate is multiplied by a log-normal factor of the row."""
    rate = pyro.sample("rate", dist.Normal(torch.tensor(0.0, dtype=F64), 3.0))
    spread = pyro.sample("spread", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
    with pyro.plate("rows", len(y), dim=-2):
        factor = pyro.sample("factor", dist.LogNormal(0.0, spread))
        with pyro.plate("visits", y.shape[1], dim=-1):
            pyro.sample("y", dist.Poisson(factor * torch.exp(rate + x)), obs=y)


def lines(data: Tensor) -> None:
    """Lines with a random intercept and slope; normal, so that the likelihood has a closed form."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(2, dtype=F64), 5.0).to_event(1))
    root = pyro.sample("root", dist.Normal(torch.zeros(3, dtype=F64), 2.0).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
    zero = torch.zeros_like(root[..., 0])
    tril = torch.stack([root[..., 0].exp(), zero, root[..., 1], root[..., 2].exp()], -1)
    with pyro.plate("rows", len(data)):
        line = pyro.sample(
            "line",
            dist.MultivariateNormal(mean, scale_tril=tril.reshape(*tril.shape[:-1], 2, 2)),
        )
        at = line[..., :1] + line[..., 1:] * torch.linspace(-1, 1, data.shape[1], dtype=F64)
        pyro.sample("y", dist.Normal(at, noise.unsqueeze(-1)).to_event(1), obs=data)


def answers(num: int, size: int, seed: int, sigma: float = 1.2) -> tuple[Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    difficulty = np.linspace(-1.5, 1.5, size)
    chance = expit(sigma * rng.normal(size=(num, 1)) - difficulty)
    return torch.tensor((rng.random((num, size)) < chance).astype(float)), difficulty


def on_grid(log_density: np.ndarray, sigma: float, mean: float = 0.0) -> np.ndarray:
    """Log of the integral of exp(log_density) (N, G) under a normal distribution."""
    prior = -0.5 * ((GRID - mean) / sigma) ** 2 - np.log(sigma * np.sqrt(2 * np.pi))
    return log_density + prior + np.log(GRID[1] - GRID[0])


def of_answers(data: np.ndarray, difficulty: np.ndarray) -> np.ndarray:
    logits = GRID[:, None] - difficulty
    return -(data @ np.logaddexp(0, -logits).T + (1 - data) @ np.logaddexp(0, logits).T)


def rasch_by_hand(params: dict[str, Tensor], data: np.ndarray) -> np.ndarray:
    """(N, G), whose sum of exponentials over the grid is the likelihood of a row."""
    return on_grid(of_answers(data, params["difficulty"].numpy()), float(params["sigma"]))


def mixture_by_hand(params: dict[str, Tensor], data: np.ndarray) -> np.ndarray:
    return np.concatenate(
        [
            np.log(float(weight)) + on_grid(of_answers(data, difficulty), float(sigma), 0.3)
            for weight, difficulty, sigma in zip(
                params["weights"], params["difficulty"].numpy(), params["sigma"], strict=True
            )
        ],
        1,
    )


RASCH = {"sigma": torch.tensor(1.4, dtype=F64), "difficulty": torch.linspace(-1, 2, 4, dtype=F64)}
MIXTURE = {
    "weights": torch.tensor([0.3, 0.7], dtype=F64),
    "sigma": torch.tensor([0.5, 1.6], dtype=F64),
    "difficulty": torch.tensor([[1.0, -1.0, 0.5, 0.0], [-0.5, 0.5, 1.5, -2.0]], dtype=F64),
}
CASES = [(rasch, RASCH, rasch_by_hand), (mixture_rasch, MIXTURE, mixture_by_hand)]
Case = tuple[Callable[..., None], dict[str, Tensor], Callable[..., np.ndarray]]


def program_of(model: Any, name: str, at: Any, *args: Any, num: int = 41, dims: int = 1) -> Program:
    return Program(integrated(model, Quadrature({name: dims}, num, at)), *args)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("case", CASES, ids=["rasch", "mixture rasch"])
def test_values_and_moments_equal_sums_on_a_fine_grid(case: Case, centred: bool) -> None:
    model, params, by_hand = case
    data, _ = answers(9, 4, 0)
    program = program_of(model, "ability", params if centred else None, data)
    terms = by_hand(params, data.numpy())
    rows = logsumexp(terms, 1)
    assert program.log_marginal_rows(params).numpy() == pytest.approx(rows, abs=1e-7)
    weights, grid = np.exp(terms - rows[:, None]), np.tile(GRID, terms.shape[1] // len(GRID))
    mean, spread = (
        value.ravel().numpy() for value in program.integrated_moments(params)["ability"]
    )
    assert mean == pytest.approx(weights @ grid, abs=1e-6)
    assert spread**2 == pytest.approx(weights @ grid**2 - (weights @ grid) ** 2, abs=1e-6)
    assert program.latent_means(params)["ability"].ravel().numpy() == pytest.approx(mean)
    assert set(program.latent_modes(params)) == set(program.names("latent")) - {"ability"}


@pytest.mark.parametrize("case", CASES, ids=["rasch", "mixture rasch"])
def test_gradients_equal_differences_of_the_fine_grid(case: Case) -> None:
    model, params, by_hand = case
    data, _ = answers(9, 4, 1)
    program = program_of(model, "ability", params, data)
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    program.log_marginal(leaves).backward()
    for name in ("sigma", "difficulty"):
        for place in range(params[name].numel()):
            ends = []
            for step in (1e-4, -1e-4):
                moved = params[name].clone()
                moved.view(-1)[place] += step
                ends.append(logsumexp(by_hand(params | {name: moved}, data.numpy()), 1).sum())
            expected = (ends[0] - ends[1]) / 2e-4
            gradient = leaves[name].grad
            assert gradient is not None
            assert float(gradient.view(-1)[place]) == pytest.approx(expected, abs=1e-5)


def test_centred_nodes_do_what_standard_ones_cannot_where_rows_are_long() -> None:
    data, difficulty = answers(12, 200, 2)
    params = {"sigma": torch.tensor(1.2, dtype=F64), "difficulty": torch.tensor(difficulty)}
    exact = logsumexp(rasch_by_hand(params, data.numpy()), 1)
    standard, centred = (
        program_of(rasch, "ability", at, data, num=11).log_marginal_rows(params).ravel().numpy()
        for at in (None, params)
    )
    assert np.abs(standard - exact).max() > 0.1
    assert centred == pytest.approx(exact, abs=1e-6)


def test_a_function_of_a_normal_number_is_integrated_over_that() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(7, 5))
    y = rng.poisson(np.exp(0.5 + x + 0.8 * rng.normal(size=(7, 1)))).astype(float)
    params = {"rate": torch.tensor(0.4, dtype=F64), "spread": torch.tensor(0.7, dtype=F64)}
    program = program_of(skewed_counts, "factor", params, torch.tensor(x), torch.tensor(y))
    log_rate = 0.4 + x[:, :, None] + GRID
    terms = (y[:, :, None] * log_rate - np.exp(log_rate) - gammaln(y + 1)[:, :, None]).sum(1)
    exact = logsumexp(on_grid(terms, 0.7), 1)
    assert program.log_marginal_rows(params).ravel().numpy() == pytest.approx(exact, abs=1e-8)


def of_lines(params: dict[str, Tensor], data: Tensor) -> Tensor:
    root = params["root"]
    tril = torch.stack([root[0].exp(), 0 * root[0], root[1], root[2].exp()]).reshape(2, 2)
    size = data.shape[1]
    table = torch.stack([torch.ones(size), torch.linspace(-1, 1, size)], 1).double()
    covariance = table @ tril @ tril.mT @ table.mT + params["noise"] ** 2 * torch.eye(size)
    return dist.MultivariateNormal(table @ params["mean"], covariance).log_prob(data)


def line_data(num: int, seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    each = rng.multivariate_normal([1.0, -0.5], [[1.0, 0.3], [0.3, 0.5]], num)
    at = np.linspace(-1, 1, 6)
    return torch.tensor(each[:, :1] + each[:, 1:] * at + 0.4 * rng.normal(size=(num, 6)))


def test_two_dims_equal_the_closed_form_of_normal_lines() -> None:
    data = line_data(80, 4)
    result = fit(lines, data)
    assert isinstance(result.method, EM)
    exact = of_lines(result.params, data)
    assert result.log_likelihood_rows(data).numpy() == pytest.approx(exact.numpy(), abs=1e-6)
    assert result.log_likelihood == pytest.approx(float(exact.sum()), abs=1e-6)
    leaves = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    with torch.enable_grad():
        total = of_lines(leaves, data).sum() + Program(lines, data).log_prior(leaves)
        slopes = torch.autograd.grad(total, list(leaves.values()))
    errors = standard_errors(result, data).standard_errors
    for name, slope in zip(leaves, slopes, strict=True):  # the optimum, up to steps of its error
        assert float((slope * errors[name]).abs().max()) < 0.01
    assert result.posterior_latents(data)["line"].shape == (80, 2)


def test_a_fit_has_all_that_fits_have(tmp_path: Path) -> None:
    data, _ = answers(150, 6, 5)
    result = fit(rasch, data)
    assert isinstance(result.method, EM)
    assert result.quadrature is not None
    assert result.quadrature.error <= EM().integration_error
    exact = logsumexp(rasch_by_hand(result.params, data.numpy()), 1)
    assert result.log_likelihood == pytest.approx(exact.sum(), abs=0.01)
    assert float(result.log_likelihood_rows(data).sum()) == pytest.approx(result.log_likelihood)
    assert result.bic == pytest.approx(-2 * result.log_likelihood + 7 * np.log(150))
    assert "ability (continuous)" in repr(result)
    assert "over ability by" in repr(result)
    assert "sigma" in str(result.summary(data))
    assert result.posterior_frame(data).columns.tolist() == ["ability"]
    result.save(tmp_path / "rasch")
    again = Fit.load(tmp_path / "rasch", model=rasch)
    assert again.quadrature is not None
    assert again.quadrature.num_nodes == result.quadrature.num_nodes
    assert torch.equal(again.log_likelihood_rows(data), result.log_likelihood_rows(data))
    few = data[:40]  # other rows get centres of their own
    part = again.log_likelihood_rows(few)
    assert part.numpy() == pytest.approx(result.log_likelihood_rows(data)[:40].numpy(), abs=1e-6)


def test_the_stated_error_is_kept_or_warned_of() -> None:
    data, _ = answers(60, 30, 6)
    tight = fit(rasch, data, EM(integration_error=1e-6))
    loose = fit(rasch, data, EM(integration_error=10.0))
    assert tight.quadrature is not None
    assert loose.quadrature is not None
    assert tight.quadrature.error <= 1e-6 < loose.quadrature.error
    errors = standard_errors(tight, data).standard_errors
    way = max(
        float(((loose.params[name] - value).abs() / errors[name]).max())
        for name, value in tight.params.items()
    )
    assert 0.1 * loose.quadrature.error < way < 2 * loose.quadrature.error
    with pytest.warns(EstimateWarning, match=r"nodes: twice as many would move .*NUTS\(\)"):
        fit(rasch, data, EM(integration_error=1e-300))


def far_groups(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1e5))
    spread = pyro.sample("spread", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
    with pyro.plate("groups", len(data)):
        u = pyro.sample("u", dist.Normal(mean, spread))
        pyro.sample("y", dist.Normal(u.unsqueeze(-1), 1.0).to_event(1), obs=data)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e4, 1e5])
def test_data_far_from_zero_are_integrated_as_exactly(offset: float) -> None:
    """Failed before: at 1e4 the error was that of another point, and a spread was 4 % off."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(40, 4, generator=generator, dtype=F64)
    data = data + torch.randn(40, 1, generator=generator, dtype=F64)
    found = fit(far_groups, data + offset, EM(tolerance=1e-10, parameter_tolerance=1e-6))
    mean, spread = data.mean(), found.params["spread"].clone().requires_grad_()
    assert float(found.params["mean"]) - offset == pytest.approx(float(mean), abs=1e-3)
    variance = spread**2 + 1 / data.shape[1]  # of the mean of a group, the rest knows no spread
    total = dist.Normal(mean, variance.sqrt()).log_prob(data.mean(1)).sum() - spread**2 / 8
    curvature = float((2 * len(data) * spread**2 / variance**2).detach())
    (slope,) = torch.autograd.grad(total, spread)
    assert abs(float(slope)) / curvature**0.5 < 0.02  # standard errors


def test_classes_beside_abilities_are_found() -> None:
    rng = np.random.default_rng(7)
    first = rng.random(400) < 0.4
    difficulty = np.where(first[:, None], np.linspace(-2, 2, 8), np.linspace(2, -2, 8))
    data = torch.tensor(
        (rng.random((400, 8)) < expit(rng.normal(size=(400, 1)) - difficulty)) * 1.0
    )
    result = fit(mixture_rasch, data)
    assert result.latents == {"group": (1, 2)}
    assert result.predict(data).shape == (400,)
    right = (result.predict(data) == first).mean()
    assert max(right, 1 - right) > 0.85
    means = result.posterior_latents(data)
    assert means["group"].shape == (400, 2)
    terms = mixture_by_hand(result.params, data.numpy())
    assert result.log_likelihood == pytest.approx(logsumexp(terms, 1).sum(), abs=0.05)


@pytest.mark.slow
def test_the_spread_is_found_and_its_standard_error_is_right() -> None:
    truth, scores = 1.2, []
    for seed in range(40):
        data, difficulty = answers(250, 8, 100 + seed, truth)
        result = fit(rasch, data)
        errors = standard_errors(result, data).standard_errors
        scores.append(
            [
                float((result.params["sigma"] - truth) / errors["sigma"]),
                *((result.params["difficulty"] - torch.tensor(difficulty)) / errors["difficulty"]),
            ]
        )
    z = np.array(scores, dtype=float)
    assert np.abs(z.mean(0)).max() < 3.5 / np.sqrt(40)
    assert 0.7 < z.std(0).mean() < 1.3


@pytest.mark.slow
def test_draws_of_abilities_agree_with_their_integral() -> None:
    data, _ = answers(120, 8, 8)
    drawn, summed = fit(rasch, data, NUTS()), fit(rasch, data)
    model = fit(summed.model, data, NUTS())  # the parameters alone, abilities integrated
    assert model.local_draws is None
    assert drawn.draws is not None
    assert model.draws is not None
    for name in ("sigma", "difficulty"):
        spread = drawn.draws[name].flatten(0, 1).std(0)
        assert float(((drawn.params[name] - model.params[name]) / spread).abs().max()) < 0.2


# ---------------------------------------------------------------- refusals


def walk(data: Tensor) -> None:
    step = pyro.sample("step", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
    with pyro.plate("rows", len(data)):
        at: Any = 0.0
        for t in pyro.markov(range(data.shape[1])):
            at = pyro.sample(f"at_{t}", dist.Normal(at, step))
            pyro.sample(f"y_{t}", dist.Normal(at, 1.0), obs=data[:, t])


def three(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(data)):
        own = pyro.sample("own", dist.Normal(mean, 1.0).to_event(1))
        pyro.sample("y", dist.Normal(own, 1.0).to_event(1), obs=data)


def gammas(data: Tensor) -> None:
    shape = pyro.sample("shape", dist.LogNormal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data), dim=-2):
        own = pyro.sample("own", dist.Gamma(shape, shape))
        with pyro.plate("visits", data.shape[1], dim=-1):
            pyro.sample("y", dist.Poisson(own), obs=data)


def turned(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0, dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        own = pyro.sample("own", dist.Normal(mean, 1.0))
        pyro.sample("y", dist.Normal(own[:, None], 1.0).expand(data.shape).to_event(1), obs=data)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (walk, r"'at_0' \(line \d+ .*every step of a pyro.markov loop"),
        (three, "'own' of a row have 3 dims, and quadrature integrates 2 at most"),
        (gammas, r"'own' \(line \d+ .*Gamma, and quadrature takes functions of normal numbers"),
        (turned, "not with all values of 'own' at once"),
    ],
)
def test_what_cannot_be_integrated_is_refused_in_a_sentence(model: Any, words: str) -> None:
    data = torch.tensor(np.random.default_rng(0).poisson(1.0, (6, 3)).astype(float))
    with pytest.raises(ValueError, match=words) as caught:
        fit(model, data, EM())
    assert "\n" not in str(caught.value)


def test_an_m_step_ends_at_the_maximum() -> None:
    """The slope of the log-posterior is nought after one M-step from far, in every coordinate."""
    data, _ = answers(80, 5, 3)
    program = Program(integrated(mixture_rasch, Quadrature({"ability": 1}, 15)), data)
    start = {
        "weights": torch.tensor([[0.7, 0.3]], dtype=F64),
        "sigma": torch.tensor([[2.5, 0.4]], dtype=F64),
        "difficulty": torch.linspace(-1, 3, 10, dtype=F64).reshape(1, 2, 5),
    }
    at = Expectation(program)
    slopes = []
    for params in (start, at.maximise(at.posteriors(start), start, 20)):
        free = {k: v.detach().requires_grad_() for k, v in program.unconstrained(params).items()}
        values = program.constrained(free)
        total = (program.log_marginal(values) + program.log_prior(values)).sum()
        slopes.append(torch.cat([x.ravel() for x in torch.autograd.grad(total, [*free.values()])]))
    before, after = (float(slope.abs().max()) for slope in slopes)
    assert before > 1.0
    assert after < 1e-4


def test_shapes_in_the_way_of_nodes_are_said_before_all_latents_are_drawn() -> None:
    """Latents of persons indexed from the left, where the nodes stand: a plain fit draws them."""

    def from_the_left(data: Tensor) -> None:
        sigma = pyro.sample("sigma", dist.HalfNormal(torch.tensor(2.0, dtype=F64)))
        with pyro.plate("persons", len(data)):
            ability = pyro.sample("ability", dist.Normal(0.0, sigma))
            logits = ability[:, None].expand(len(data), data.shape[1])
            pyro.sample("y", dist.Bernoulli(logits=logits).to_event(1), obs=data)

    data, _ = answers(30, 4, 0)
    problem = problem_of(from_the_left, data, 0)
    with pytest.warns(EstimateWarning, match="NUTS.. draws .*ability.* broadcast from the right"):
        assert with_nodes(problem, must=False) is problem
    with pytest.raises(ValueError, match="broadcast from the right"):
        with_nodes(problem, must=True)

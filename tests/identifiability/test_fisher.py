"""Rank and conditioning of the Fisher information on models whose answer is known."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from inference import EM, fit
from inference.identifiability import identifiability_of
from inference.identifiability.fisher import (
    InformationReport,
    information_from_jacobian,
    information_from_scores,
)
from inference.programs.coordinates import entry_names
from inference.uncertainty import row_scores
from ppl_models import Mixture, Poisson


def cell_probabilities(theta: Tensor, num_items: int, num_latents: int) -> Tensor:
    """Distribution of a one-layer Bernoulli encoder over all 2^J rows; theta = loadings,
    intercepts, logits of proportions.
    """
    loadings = theta[: num_items * num_latents].reshape(num_items, num_latents)
    intercepts = theta[num_items * num_latents :][:num_items]
    logits = theta[-num_latents:]
    codes = torch.tensor(list(itertools.product((0.0, 1.0), repeat=num_latents)), dtype=theta.dtype)
    items = torch.tensor(list(itertools.product((0.0, 1.0), repeat=num_items)), dtype=theta.dtype)
    prior = torch.distributions.Bernoulli(logits=logits).log_prob(codes).sum(-1)
    eta = intercepts + codes @ loadings.mT
    likelihood = torch.distributions.Bernoulli(logits=eta).log_prob(items[:, None]).sum(-1)
    return (likelihood + prior).logsumexp(-1).exp()


def encoder_names(num_items: int, num_latents: int) -> tuple[str, ...]:
    shapes = {
        "loadings_1": (num_items, num_latents),
        "intercepts_1": (num_items,),
        "logits": (num_latents,),
    }
    return entry_names({site: torch.zeros(shape) for site, shape in shapes.items()})


def both_reports(theta: Tensor, num_items: int, num_latents: int):
    """From the exact Jacobian, and from the scores of simulated rows."""
    names = encoder_names(num_items, num_latents)
    jacobian = jacrev(lambda t: cell_probabilities(t, num_items, num_latents))(theta)
    probabilities = cell_probabilities(theta, num_items, num_latents)
    generator = torch.Generator().manual_seed(0)
    cells = torch.multinomial(probabilities, 2000, replacement=True, generator=generator)
    scores = jacobian[cells] / probabilities[cells][:, None]
    return (
        information_from_jacobian(jacobian, names, probabilities),
        information_from_scores(scores, names),
    )


@pytest.mark.parametrize("seed", range(5))
def test_an_identified_encoder_has_full_rank(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    theta = torch.rand(5 * 1 + 5 + 1, dtype=torch.float64, generator=generator) * 2 - 0.5
    exact, sampled = both_reports(theta, 5, 1)
    for report in (exact, sampled):
        assert report.is_full_rank
        assert report.null_directions == ()
        assert report.condition_number < 1e8
        assert report.eigenvalues.sum() == pytest.approx(report.num_parameters)
        assert (report.eigenvalues.diff() >= 0).all()
        assert "full rank" in report.text()
    plain = information_from_jacobian(
        jacrev(lambda t: cell_probabilities(t, 5, 1))(theta), encoder_names(5, 1)
    )
    assert plain.rank == exact.rank


@pytest.mark.parametrize("seed", range(5))
def test_one_latent_too_many_is_rank_deficient_and_named(seed: int) -> None:
    """A second latent without effect: its proportion says nothing, and its own loadings trade
    against it.
    """
    generator = torch.Generator().manual_seed(seed)
    loadings = torch.rand(6, 2, dtype=torch.float64, generator=generator) + 1
    loadings[:, 1] = 0
    rest = torch.rand(6 + 2, dtype=torch.float64, generator=generator) - 0.5
    theta = torch.cat([loadings.reshape(-1), rest])
    for report in both_reports(theta, 6, 2):
        # the logit of the idle latent is silent; its six loadings move the means exactly as
        # intercepts do
        assert report.rank == report.num_parameters - 7
        assert report.condition_number == float("inf")
        named = set().union(*(direction.names for direction in report.null_directions))
        assert "logits[1]" in named
        assert {f"loadings_1[{j},1]" for j in range(6)} <= named
        assert not any(f"loadings_1[{j},0]" in named for j in range(6))
        assert report.involvement.sum() == pytest.approx(7)
        assert "not locally identified" in report.text()


def test_fewer_cells_than_parameters_leaves_directions_over() -> None:
    theta = torch.rand(
        3 * 2 + 3 + 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    names = encoder_names(3, 2)
    jacobian = jacrev(lambda t: cell_probabilities(t, 3, 2))(
        theta
    )  # 8 cells, 7 free; 11 parameters
    report = information_from_jacobian(jacobian, names)
    assert report.rank == 7
    assert len(report.null_directions) == 4
    for direction in report.null_directions:
        change = jacobian @ direction.coefficients
        assert float(change.abs().max()) < 1e-9


def test_directions_are_in_the_units_of_the_parameters() -> None:
    """Three columns with c = 1000 a + b: the null direction is a: 1000, b: 1, c: -1."""
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 50, dtype=torch.float64, generator=generator)
    matrix = torch.stack([a, b, 1000 * a + b], 1)
    for report in (
        information_from_jacobian(matrix, "abc"),
        information_from_scores(matrix, "abc"),
    ):
        assert report.rank == 2
        (direction,) = report.null_directions
        assert float((matrix @ direction.coefficients).abs().max()) < 1e-9
        ratio = direction.coefficients[0] / direction.coefficients[2]
        assert float(ratio) == pytest.approx(-1000)
        assert set(direction.names) == {
            "a",
            "c",
        }  # b moves by a thousandth of its own standard error


def test_conditioning_is_scale_free_and_the_weakest_direction_is_named() -> None:
    generator = torch.Generator().manual_seed(4)
    a, b, noise = torch.randn(3, 4000, dtype=torch.float64, generator=generator)
    scores = torch.stack([a, b, a + 0.01 * noise], 1)
    report = information_from_scores(scores, ["x", "y", "z"])
    assert report.is_full_rank
    assert set(report.weakest.names) == {"x", "z"}
    assert report.weakest.scaled[0] * report.weakest.scaled[2] < 0
    assert report.condition_number > 1e4
    scaled = information_from_scores(
        scores * torch.tensor([1.0, 1e6, 1e-6], dtype=torch.float64), ["x", "y", "z"]
    )
    assert scaled.condition_number == pytest.approx(report.condition_number, rel=1e-6)


def test_a_silent_parameter_and_no_information_at_all() -> None:
    matrix = torch.eye(4, 3, dtype=torch.float64)
    matrix[:, 1] = 0
    report = information_from_jacobian(matrix, "abc")
    assert report.rank == 2
    assert report.null_directions[0].names == ("b",)
    nothing = information_from_jacobian(torch.zeros(4, 2), "ab")
    assert nothing.rank == 0
    assert nothing.weakest is None
    assert len(nothing.null_directions) == 2


def test_the_record_is_json() -> None:
    for matrix in (torch.eye(4, 3, dtype=torch.float64), torch.ones(4, 3, dtype=torch.float64)):
        record = json.loads(
            json.dumps(information_from_jacobian(matrix, "abc").to_dict(), allow_nan=False)
        )
        assert record["rank"] == int(torch.linalg.matrix_rank(matrix))
        assert len(record["null_directions"]) == 3 - record["rank"]


def test_bad_input_is_refused_by_name() -> None:
    matrix = torch.ones(4, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"scores must have shape \(rows, 2\)"):
        information_from_scores(matrix, "ab")
    with pytest.raises(ValueError, match="at least 3 rows"):
        information_from_scores(matrix[:2], "abc")
    matrix[0, 1] = float("nan")
    with pytest.raises(ValueError, match="jacobian must be finite, got another value for b"):
        information_from_jacobian(matrix, "abc")
    with pytest.raises(ValueError, match="4 positive numbers"):
        information_from_jacobian(torch.ones(4, 3), "abc", torch.zeros(4))


def test_a_column_that_is_there_twice_leaves_the_distribution_as_it_is() -> None:
    """Failed before: the scores of the rows agree for both columns, and the estimates were said to
    change together without any change of the distribution.
    """
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.where(rng.random((400, 1)) < 0.4, 1.0, 6.0), (400, 3)).astype(float)
    data = np.column_stack([counts, counts[:, 2]])
    result = fit(Mixture(2, Poisson(), 4), data, EM(), num_restarts=1)
    scores, names = row_scores(result, data)
    assert information_from_scores(scores, names).rank < len(names)
    found = identifiability_of(result, data)
    assert isinstance(found, InformationReport)
    assert found.is_full_rank
    assert found.num_parameters == len(names) == result.num_parameters

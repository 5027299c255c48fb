"""The end of a training: scores of the output layers against automatic differentiation, the optimum
they lead to, the data that it rescues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inference import TrainClassifiers
from inference.fitting.problem import problem_of
from inference.structures.classifiers.output_layers import OutputLayers
from inference.structures.classifiers.train import Course, _Training
from ppl_models import Dense, InClassNet, KnownDensities, Lookup
from ppl_models.datasets import simulate_trivariate, simulate_two_gaussians
from tests.structures.classifiers.test_train import quietly

F64 = torch.float64
MODELS = {
    "one network a variate": InClassNet((2, 1, 1), 3, networks=Dense((4,))),
    "shared": InClassNet((1, 1, 1, 1), 3, networks=Dense((4, 3)), shared=True),
    "other widths": InClassNet((2, 1, 1), 2, networks=(Dense((3,)), Dense((2,)), Dense())),
    "free weights": InClassNet((1, 1, 2), 3, networks=Dense((4,)), weights="free"),
    "known weights": InClassNet((1, 1, 2), 2, networks=Dense((4,)), weights=(0.3, 0.7)),
}


def rows_of(model: InClassNet, missing: bool) -> Tensor:
    data = torch.randn(
        40, sum(model.variates), generator=torch.Generator().manual_seed(1), dtype=F64
    )
    if missing:
        data[:7, 0] = torch.nan
        data[5:11, 1] = torch.nan
    return data


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_slopes_of_the_log_likelihood_ratio(name: str) -> None:
    """Row by row, with the pseudo-weights moving as means over all rows do."""
    model = MODELS[name]
    data = rows_of(model, missing=not isinstance(model.weights, str) or model.weights == "free")
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", 2)
    with torch.no_grad():
        training = _Training(
            TrainClassifiers(validation_share=0.0), problem.structure.about, problem, start
        )
        course = Course.begin(training.networks.theta, start, 2, 1e-3, training.generator)
        balance, _ = training.balance(course, training.kept)
        log_weights = training.objective.log_weights(balance, balance.phi.log())
        layers = OutputLayers(training.objective, training.networks, training.rows, 16)
        slopes, score = layers._first_pass(training.kept, balance, log_weights)
        rows = torch.cat(
            list(layers._row_scores(training.kept, balance, log_weights, slopes, score.shape[1])), 1
        )
    torch.testing.assert_close(rows.mean(1), score)

    outputs = layers._outputs(training.networks.params(training.networks.theta))
    assert outputs is not None
    flat = torch.cat([torch.cat([a, b.unsqueeze(-1)], -1).flatten(1) for a, b in outputs], 1)
    omega = course.omega if model.weights == "free" else course.omega[:, :0]

    def ratios(vector: Tensor) -> Tensor:
        params, begin = dict(start), 0
        for group, (a, b) in zip(training.about.groups, outputs, strict=True):
            size = a[0].numel() + b[0].numel()
            own = vector[None, begin : begin + size].reshape(1, *a.shape[1:-1], -1)
            begin += size
            found = group.network.with_outputs(
                {n: start[s][:1] for s, n in group.sites.items()}, own[..., :-1], own[..., -1]
            )
            params |= {site: found[n] for site, n in group.sites.items()}
        params = {site: value[:1] for site, value in params.items()}
        scores = model._log_scores(
            training.about, [x.clone() for x in problem_rows(model, data)], params
        )[0]  # (V, n, C)
        seen = (scores != 0).any(-1)
        phi = (scores.exp() * seen.unsqueeze(-1)).sum(1) / seen.sum(1, keepdim=True)
        known = (
            phi.log().mean(0).log_softmax(-1) if model.weights == "geometric" else log_weights[0]
        )
        if model.weights == "free":
            known = vector[begin:].log_softmax(-1)
        joint = ((scores - phi.log().unsqueeze(1)) * seen.unsqueeze(-1)).sum(0) + known
        return joint.logsumexp(-1)

    by_autograd = torch.autograd.functional.jacobian(ratios, torch.cat([flat[0], omega[0]]))
    torch.testing.assert_close(rows[0], by_autograd, rtol=1e-8, atol=1e-10)


def problem_rows(model: InClassNet, data: Tensor) -> list[Tensor]:
    return list(data.split(list(model.variates), 1))


@pytest.mark.slow
def test_tables_reach_the_optimum() -> None:
    """All that a table can say is in its output layer: few steps from anywhere end where a thousand
    of Adam's do.
    """
    rng = np.random.default_rng(1)
    component = rng.integers(0, 2, 400)
    codes = (
        rng.random((400, 4))
        < np.where(component[:, None] == 0, [0.2, 0.3, 0.1, 0.4], [0.8, 0.6, 0.5, 0.9])
    ).astype(float)
    model = InClassNet((1,) * 4, 2, networks=Lookup(2), prior_scale=1e6)
    method = TrainClassifiers(
        batch_size=None, validation_share=0.0, learning_rate=0.05, tolerance=1e-12, patience=None
    )
    long = quietly(model, codes, replace(method, max_epochs=400, last_steps=0), num_restarts=1)
    short = quietly(model, codes, replace(method, max_epochs=5, last_steps=50), num_restarts=1)
    assert short.log_likelihood == pytest.approx(long.log_likelihood, abs=1e-4)
    torch.testing.assert_close(short.params["weights"], long.params["weights"], atol=2e-3, rtol=0)


def test_flat_directions_are_walked_to_their_end() -> None:
    """Four components that overlap much: a short training ends far off, and a better likelihood of
    the held-out rows is near.
    """
    sample = simulate_trivariate(20_000, 0)
    model, method = (
        InClassNet((1, 1, 1), 4, networks=Dense((16,))),
        TrainClassifiers(batch_size=500, max_epochs=4),
    )
    before = quietly(
        model, sample.data.astype(np.float32), replace(method, last_steps=0), num_restarts=1
    )
    after = quietly(model, sample.data.astype(np.float32), method, num_restarts=1)
    assert after.objective > before.objective + 1e-3
    assert after.log_likelihood > before.log_likelihood


@pytest.mark.parametrize(
    "networks",
    [
        torch.nn.Linear(1, 2),
        (KnownDensities(lambda x: torch.cat([-((x - 1) ** 2), -((x + 1) ** 2)], 1)), Dense((3,))),
        Dense((800,)),
    ],
)
def test_networks_without_known_or_with_too_many_features_end_as_they_are(networks: Any) -> None:
    data = torch.randn(60, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    model, method = (
        InClassNet((1, 1), 2, networks=networks),
        TrainClassifiers(max_epochs=1, batch_size=None),
    )
    fits = [
        quietly(model, data, replace(method, last_steps=steps), num_restarts=1) for steps in (0, 5)
    ]
    assert fits[0].objective == fits[1].objective


def test_a_lucky_epoch_does_not_hold_back_the_last_steps() -> None:
    """Where held-out rows lose less than their noise, all other rows decide."""
    data = simulate_two_gaussians(2000, 0).data.astype(np.float32)
    model, method = (
        InClassNet((1, 1), 2, networks=Dense((8,))),
        TrainClassifiers(batch_size=100, max_epochs=15),
    )
    before, after = (
        quietly(model, data, replace(method, last_steps=steps), num_restarts=1, seed=0)
        for steps in (0, 12)
    )
    assert after.objective < before.objective  # of held-out rows, a little
    assert after.log_likelihood > before.log_likelihood + 1.0


def test_last_steps_that_held_out_rows_clearly_refuse_are_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = simulate_two_gaussians(300, 5).data.astype(np.float32)
    model = InClassNet((1, 1), 2, networks=Dense((32,)))
    method = TrainClassifiers(batch_size=50, max_epochs=10, validation_share=0.3)
    before, after = (
        quietly(model, data, replace(method, last_steps=steps), num_restarts=1, seed=5)
        for steps in (0, 12)
    )
    assert after.log_likelihood == before.log_likelihood
    monkeypatch.setattr(
        _Training, "_held_out_ratios", lambda self, balance: torch.zeros(1, len(self.held))
    )
    assert (
        quietly(model, data, method, num_restarts=1, seed=5).log_likelihood
        > before.log_likelihood + 0.5
    )  # it was they who refused


def test_slopes_that_are_noise_are_not_followed() -> None:
    """Networks that are where the data came from have nothing to learn: the steps fit less than
    half of the noise that Newton's would, half a nat a parameter.
    """
    data = simulate_two_gaussians(4000, 1).data.astype(np.float32)
    model = InClassNet((1, 1), 2, networks=Dense((40,)))
    long = quietly(
        model,
        simulate_two_gaussians(10_000, 2).data.astype(np.float32),
        TrainClassifiers(max_epochs=5),
        num_restarts=1,
    )
    method = TrainClassifiers(max_epochs=1, learning_rate=1e-9, validation_share=0.0)
    before, after = (
        quietly(model, data, replace(method, last_steps=steps), init=long, num_restarts=1)
        for steps in (0, 1)
    )
    parameters = 2 * 2 * 41
    assert 0.0 < after.log_likelihood - before.log_likelihood < 0.25 * parameters

"""Transitions of Hamiltonian dynamics on a distribution that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inference.engines.hamiltonian import DualAveraging, Metric, first_step_size, transition


@pytest.mark.parametrize("dense", [True, False])
def test_transitions_leave_a_correlated_normal_alone(dense):
    size, rng = 5, np.random.default_rng(0)
    root = rng.normal(size=(size, size))
    covariance = root @ root.T / size + 0.2 * np.eye(size)
    precision = np.linalg.inv(covariance)
    metric = Metric(covariance if dense else np.ones(size))

    def answer(point):
        return -0.5 * point @ precision @ point, -precision @ point

    def drive(asking):
        reply = None
        while True:
            try:
                reply = answer(asking.send(reply))
            except StopIteration as end:
                return end.value

    position = rng.normal(size=size)
    density, gradient = answer(position)
    step = drive(first_step_size(position, density, gradient, 0.5, metric, rng))
    averaging, kept = DualAveraging.begin(step), []
    for t in range(2500):
        new = drive(transition(position, density, gradient, step, metric, rng, 8))
        position, density, gradient = new.position, new.log_density, new.gradient
        if t < 300:
            averaging = averaging.updated(new.acceptance, 0.8)
            step = math.exp(averaging.log_step if t < 299 else averaging.log_mean)
        else:
            kept.append(new)
    draws = np.array([one.position for one in kept])
    assert np.abs(draws.mean(0) / np.sqrt(covariance.diagonal())).max() < 0.12
    assert np.abs(np.cov(draws.T) - covariance).max() < 0.15 * np.abs(covariance).max()
    assert abs(np.mean([one.acceptance for one in kept]) - 0.8) < 0.1
    assert not any(one.diverging for one in kept)

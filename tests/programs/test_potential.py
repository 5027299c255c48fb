"""The potential against Pyro's own, its derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pyro.infer import config_enumerate
from pyro.infer.mcmc.util import initialize_model
from zoo.row import Row
from zoo.table import WITH_LOCAL, params_of, program_of

from inference.programs.potential import Potential
from inference.programs.program import Program
from ppl_models import Mixture, Normal

F64 = torch.float64


def test_the_potential_is_pyros_own_and_its_derivatives_are_right():
    data = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 2)))
    model = Mixture(2, component=Normal(), num_items=2, bound=4.0)
    program = Program(model, data)
    like = program.draw_prior(3, 0) | {"dispersion": torch.rand(3, 2, 2, dtype=F64) + 0.5}
    potential = Potential(program, like)
    points = potential.vector(like)
    back = potential.params(points)
    for name, value in like.items():
        torch.testing.assert_close(back[name], value)
    value, gradient = potential(points)
    enumerated = config_enumerate(model, default="parallel")
    _, own, transforms, _ = initialize_model(enumerated, (data,), max_plate_nesting=1)
    for i in range(3):
        free = {name: transforms[name](like[name][i]) for name in potential.names}
        torch.testing.assert_close(-own(free), value[i], rtol=1e-9, atol=1e-9)
    step = 1e-5 * torch.eye(potential.size, dtype=F64)
    slope = (potential(points[0] + step)[0] - potential(points[0] - step)[0]) / 2e-5
    torch.testing.assert_close(slope, gradient[0], rtol=1e-5, atol=1e-4)
    curved = (potential(points[0] - step)[1] - potential(points[0] + step)[1]) / 2e-5
    torch.testing.assert_close(curved, potential.curvature(points[0]), rtol=1e-4, atol=1e-3)


EAGER = (
    "continuous-options",
    "classifiers",
)  # their densities run whole at every point


@pytest.mark.parametrize(
    "row", [row for row in WITH_LOCAL if not row.name.startswith(EAGER)], ids=lambda row: row.name
)
def test_the_density_of_every_model_is_replayed(row: Row) -> None:
    program = program_of(row)
    potential = Potential(program, params_of(row))
    points = potential.vector(params_of(row))
    value, gradient = potential(points)
    replay = potential._functions[len(points)]
    assert replay != potential._evaluate
    for one, two in zip(potential._evaluate(points), (value, gradient), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)

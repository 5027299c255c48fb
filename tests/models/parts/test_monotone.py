"""Items that no attribute lowers: the cone, its coordinates, the constrained maximum, and models of
them under every engine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyro
import pytest
import scipy.optimize
import torch
from pyro import poutine
from torch import Tensor
from torch.distributions import biject_to

from inference import EM, NUTS, SAEM, SVI, fit
from inference.base.outcome import EstimateWarning
from inference.inspection.attributes import reversals
from inference.programs.program import Program
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.newton import cone_step
from inference.uncertainty import standard_errors
from ppl_models import ExpGDM, Hierarchy, LatentAttributeModel, Normal, Saturated
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
Q = ((1, 0, 0), (0, 1, 0), (0, 0, 1)) * 2 + ((1, 1, 0), (0, 1, 1), (1, 1, 1))
TABLE = torch.tensor([0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2], dtype=F64)
RULES = ("additive", "dina", "dino", "gdm")
rules = pytest.mark.parametrize("rule", RULES)


def model_of(rule: Any, **settings: Any) -> LatentAttributeModel:
    return LatentAttributeModel(Q, items=rule, monotone=True, **settings)


def answers(num_rows: int, seed: int = 0) -> Tensor:
    """Singles are clear; items 6 to 8 fall as the second attribute comes in."""
    generator = torch.Generator().manual_seed(seed)
    bits = binary_configurations(3)[
        torch.multinomial(TABLE, num_rows, replacement=True, generator=generator)
    ]
    chances = 0.1 + 0.8 * bits.repeat(1, 2)
    falling = torch.stack(
        [
            0.4 + 0.3 * bits[:, 0] - 0.2 * bits[:, 1],
            0.6 - 0.3 * bits[:, 1] + 0.2 * bits[:, 2],
            0.3 + 0.5 * bits[:, 0] - 0.2 * bits[:, 1],
        ],
        -1,
    )
    return (
        torch.rand(num_rows, 9, generator=generator, dtype=F64) < torch.cat([chances, falling], -1)
    ).to(F64)


def falls(model: LatentAttributeModel, loadings: Tensor) -> Tensor:
    """The least step of the predictor along an edge of the lattice, over all items, (...,), by
    listing the edges.
    """
    layer, profiles = model.layers()[0], binary_configurations(3)
    eta = layer.features(profiles) @ loadings.mT  # (..., 8, J)
    steps = []
    for k in range(3):
        lower = (profiles[:, k] == 0).nonzero().ravel()
        steps.append(eta[..., lower + 2 ** (2 - k), :] - eta[..., lower, :])
    return torch.cat(steps, -2).flatten(-2).amin(-1)


@pytest.mark.parametrize(
    ("rule", "root"),
    [*((rule, Saturated()) for rule in RULES), ("gdm", Hierarchy(((0, 1), (1, 2))))],
)
def test_coordinates_go_there_and_back(rule: str, root: Any) -> None:
    model = model_of(rule, root=root)
    with pyro.plate("draws", 30), torch.random.fork_rng():
        torch.manual_seed(0)
        node = poutine.trace(model).get_trace(num_rows=1).nodes["loadings"]
    drawn, distribution = node["value"], node["fn"]
    assert float(falls(model, drawn).min()) >= -1e-12  # sums of coefficients are rounded
    assert bool(torch.isfinite(distribution.log_prob(node["value"])).all())
    transform = biject_to(distribution.support)
    free = transform.inv(drawn)
    torch.testing.assert_close(transform(free), drawn, rtol=1e-8, atol=1e-8)
    graph = model.layers()[0].graph
    assert graph is not None
    jacobian = torch.autograd.functional.jacobian(lambda u: transform(u)[graph], free[0])
    torch.testing.assert_close(
        transform.log_abs_det_jacobian(free[0], drawn[0]), torch.linalg.slogdet(jacobian)[1]
    )
    wild = transform(
        3
        * torch.randn(200, int(graph.sum()), dtype=F64, generator=torch.Generator().manual_seed(1))
    )
    assert float(falls(model, wild).min()) >= -1e-8
    worse = drawn.clone()
    worse[:, 0, 0] = -1.0
    assert not bool(distribution.support.check(worse).any())


@pytest.mark.parametrize("bound", [math.inf, 0.8])
def test_a_step_is_the_optimum_of_a_general_optimiser(bound: float) -> None:
    rng = np.random.default_rng(0)
    steps = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]], float)
    for _ in range(5):
        root = rng.standard_normal((4, 4))
        hessian, gradient = root @ root.T + 0.1 * np.eye(4), 2 * rng.standard_normal(4)
        beta = np.array([0.1, 0.5, 0.2, -0.1])

        def loss(
            x: np.ndarray, g: np.ndarray = gradient, h: np.ndarray = hessian, b: np.ndarray = beta
        ) -> float:
            return float(-(g @ (x - b)) + (x - b) @ h @ (x - b) / 2)

        limits = [(-bound, bound) if math.isfinite(bound) else (None, None)] * 4
        best = scipy.optimize.minimize(
            loss,
            beta,
            method="SLSQP",
            bounds=limits,
            constraints={"type": "ineq", "fun": lambda x: steps @ x},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        found = cone_step(
            *(torch.tensor(v).unsqueeze(0) for v in (beta, gradient, hessian)),
            torch.tensor(steps),
            bound,
        )[0].numpy()
        np.testing.assert_allclose(found, best.x, atol=2e-5)
        assert (steps @ found).min() > -1e-9


@pytest.mark.parametrize("rule", ["additive", "gdm"])
def test_the_fit_is_the_constrained_maximum(rule: str) -> None:
    """By SLSQP on the program's own density, and no iteration loses anything."""
    data, model = answers(250), model_of(rule)
    with pytest.warns(EstimateWarning, match="monotone=True holds effects at zero on: .*7"):
        found = fit(model, data, EM(tolerance=1e-9, max_iterations=2000), num_restarts=1)
    trace = found.trace.objective
    assert float((trace[1:] - trace[:-1]).min()) > -1e-8
    assert float(falls(model, found.params["loadings"]).min()) > -1e-8
    assert not reversals(found)
    program, layer = Program(model, data), model.layers()[0]
    free = LatentAttributeModel(Q, items=rule)
    graph = layer.graph
    assert graph is not None
    own, plain = Program(free, data), int(graph.sum())
    steps = torch.zeros(0, plain, dtype=F64)
    order = torch.zeros(graph.shape, dtype=torch.long)
    order[graph] = torch.arange(plain)
    for group in layer.rising:
        for item in group.items.tolist():
            rows = torch.zeros(len(group.steps), plain, dtype=F64)
            rows[:, order[item, group.columns]] = group.steps
            steps = torch.cat([steps, rows])

    def params_of(flat: Tensor) -> dict[str, Tensor]:
        loadings = torch.zeros(graph.shape, dtype=F64).index_put(
            tuple(graph.nonzero().mT), flat[9:-7]
        )
        return {
            "intercepts": flat[:9],
            "loadings": loadings,
            "profiles": torch.cat([flat[-7:], flat.new_zeros(1)]).softmax(-1),
        }

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(flat).requires_grad_()
        value = -own.log_marginal(params_of(point)) - own.log_prior(params_of(point))
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    shares = found.params["profiles"].clamp(min=1e-9).log()
    at_fit = torch.cat(
        [found.params["intercepts"], found.params["loadings"][graph], shares[:7] - shares[7]]
    ).numpy()
    matrix = np.zeros((len(steps), len(at_fit)))
    matrix[:, 9:-7] = steps.numpy()
    start = at_fit + 0.05 * np.random.default_rng(0).standard_normal(len(at_fit))
    best = scipy.optimize.minimize(
        loss, start, jac=True, method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
        constraints={"type": "ineq", "fun": lambda x: matrix @ x, "jac": lambda x: matrix},
    )  # fmt: skip
    assert loss(at_fit)[0] == pytest.approx(float(best.fun), abs=2e-3)
    assert float(program.log_marginal(found.params)) == pytest.approx(found.log_likelihood)


def test_where_nothing_falls_the_constraint_changes_nothing() -> None:
    data = answers(300)[:, :6]
    free, held = (
        fit(
            LatentAttributeModel(Q[:6], items="gdm", monotone=m),
            data,
            EM(tolerance=1e-9),
            num_restarts=1,
        )
        for m in (False, True)
    )
    torch.testing.assert_close(
        free.params["loadings"], held.params["loadings"], rtol=1e-4, atol=1e-4
    )
    errors = standard_errors(held, data).standard_errors["loadings"]
    torch.testing.assert_close(
        errors,
        standard_errors(free, data).standard_errors["loadings"],
        rtol=1e-3,
        atol=1e-3,
        equal_nan=True,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
def test_every_engine_keeps_to_the_cone() -> None:
    data, model = answers(80), model_of("gdm")
    for engine in (
        SAEM(),
        SVI(num_steps=30),
        NUTS(num_chains=1, warmup_steps=20, num_samples=20, max_depth=3),
    ):
        found = fit(model, data, engine, seed=1)
        assert float(falls(model, found.params["loadings"]).min()) > -1e-7, type(engine).__name__
        if found.draws is not None:
            assert float(falls(model, found.draws["loadings"]).min()) > -1e-7, type(engine).__name__


def test_an_edge_has_no_standard_error() -> None:
    data = answers(250)
    with pytest.warns(EstimateWarning, match="monotone"):
        dina = fit(model_of("dina"), data, EM(tolerance=1e-6), num_restarts=1)
    errors = standard_errors(dina, data).standard_errors["loadings"]
    held = (dina.params["loadings"] == 0) & model_of("dina").layers()[0].graph
    assert bool(held.any())
    assert bool(errors[held].isnan().all())
    model = LatentAttributeModel(((1, 0), (0, 1), (1, 1)), items="gdm", monotone=True)
    level = {
        "loadings": torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, -1]], dtype=F64)
    }  # both attributes have no more than one of them
    why = AttributeStructure(model).why_no_standard_errors(level)
    assert why is not None
    assert "holds sums of coefficients of items 2 at zero" in why


def test_other_families_and_rules() -> None:
    rules = ("additive", "dina", "dino", "gdm", "gdm", "dina", "additive", "gdm", "dino")
    model = LatentAttributeModel(Q, Normal(), items=rules, monotone=True)
    with pytest.warns(EstimateWarning, match="monotone"):
        found = fit(
            model,
            answers(300)
            + 0.3 * torch.randn(300, 9, dtype=F64, generator=torch.Generator().manual_seed(0)),
            EM(tolerance=1e-6),
            num_restarts=1,
        )
    assert float(falls(model, found.params["loadings"]).min()) > -1e-8
    assert LatentAttributeModel(Q, items="acdm", monotone=True).layers()[0].rising[
        0
    ].items.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: LatentAttributeModel(Q, items=ExpGDM(order=2), monotone=True),
            "monotone=True: item 8 has some interactions",
        ),
        (
            lambda: LatentAttributeModel(num_attributes=2, num_items=6, monotone=True),
            "monotone=True needs the q_matrix",
        ),
        (lambda: LatentAttributeModel(Q, monotone=1), "monotone"),
    ],
)
def test_bad_input(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()

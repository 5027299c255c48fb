"""The weak prior of latent attribute models: what it is, that it keeps separated items finite, and
maximum likelihood without it.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from inference import EM, fit
from inference.base.outcome import BoundWarning
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    ExpDINA,
    Independent,
    LatentAttributeModel,
    Normal,
    Poisson,
)
from ppl_models.deep_discrete_encoder import loadings_prior

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1), (1, 0), (0, 1))
TABLE = torch.tensor([0.3, 0.15, 0.2, 0.35], dtype=F64)
RULES = ("additive", "dina", "dino", "gdm", "acdm", "rrum")
rules = pytest.mark.parametrize("rule", RULES)


def answers(rule: str, num_rows: int = 300, seed: int = 0) -> Tensor:
    """Rows whose items have the chances .1, .5 and .9 of none, one and both of two attributes, or
    what the rule makes of these.
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.multinomial(TABLE, num_rows, replacement=True, generator=generator)
    bits = torch.stack([place // 2, place % 2], -1).to(F64)
    asked = torch.tensor(Q, dtype=F64)
    share = bits @ asked.mT / asked.sum(-1)
    share = {"dina": (share == 1).to(F64), "dino": (share > 0).to(F64)}.get(rule, share)
    return (torch.rand(share.shape, generator=generator, dtype=F64) < 0.1 + 0.8 * share).to(F64)


@pytest.mark.parametrize("rule", ["dina", "gdm", "rrum"])
def test_the_prior_of_loadings_is_made_once_for_each_precision(rule: str) -> None:
    """Its constant goes along with every batch, and the density is that of a new one."""
    (layer,) = LatentAttributeModel(Q, items=rule).layers()
    (fresh,) = LatentAttributeModel(Q, items=rule).layers()
    for dtype in (torch.float32, F64):
        zero = torch.zeros((), dtype=dtype)
        prior = loadings_prior(layer, zero)
        assert loadings_prior(layer, zero) is prior
        draw = prior.sample()
        assert draw.dtype == dtype
        batch = prior.expand([3, 1]).expand([3, 2])
        expected = loadings_prior(fresh, zero).log_prob(draw)
        assert expected.dtype == dtype
        torch.testing.assert_close(batch.log_prob(draw), expected.expand(3, 2), rtol=0, atol=0)


@pytest.mark.parametrize("bottom", ["additive", "dina"])
def test_the_prior_is_that_of_an_encoder_with_the_same_graph(bottom: str) -> None:
    response = Blocks((Bernoulli(), 4), (Poisson(), 3), (Normal(), 1))
    model = LatentAttributeModel(Q, response, items=bottom, root=Independent())
    own = DeepDiscreteEncoder(
        8, (2,), response, graphs=(Q,), **({"bottom": ExpDINA()} if bottom == "dina" else {})
    )
    free = torch.randn(
        8, model.layers()[0].num_features, dtype=F64, generator=torch.Generator().manual_seed(1)
    )
    graph = model.layers()[0].graph
    assert graph is not None
    params = {
        "proportions": TABLE[:2],
        "loadings": free * graph,
        "intercepts": torch.arange(8, dtype=F64),
        "dispersion": torch.ones(1, dtype=F64),
    }
    names = {"loadings": "loadings_1", "intercepts": "intercepts_1"}
    other = {names.get(name, name): value for name, value in params.items()}
    row = torch.zeros(1, 8, dtype=F64)
    torch.testing.assert_close(
        Program(model, row).log_prior(params), Program(own, row).log_prior(other)
    )


@pytest.mark.parametrize("bound", [None, 15.0], ids=["weak", "flat"])
@rules
def test_the_estimate_is_the_maximum_of_the_log_posterior(rule: str, bound: float | None) -> None:
    """By a general optimiser on the program's own density; with a bound that is the likelihood."""
    data = answers(rule)
    model = LatentAttributeModel(Q, items=rule, bound=bound)
    found = fit(model, data, EM(tolerance=1e-10, max_iterations=3000), num_restarts=1)
    program = Program(model, data)
    start = {name: value.clone() for name, value in found.params.items()}
    graph = model.layers()[0].graph
    assert graph is not None

    def params_of(flat: Tensor) -> dict[str, Tensor]:
        loadings = torch.zeros(graph.shape, dtype=F64).index_put(
            tuple(graph.nonzero().mT), flat[8:-3]
        )
        return {
            "intercepts": flat[:8],
            "loadings": loadings,
            "profiles": torch.cat([flat[-3:], flat.new_zeros(1)]).softmax(-1),
        }

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(flat).requires_grad_()
        params = params_of(free)
        value = -program.log_marginal(params) - (
            program.log_prior(params) if bound is None else 0.0
        )
        value.backward()
        return float(value.detach()), free.grad.numpy()  # type: ignore[union-attr]

    at_fit = torch.cat(
        [
            start["intercepts"],
            start["loadings"][graph],
            start["profiles"].log()[:3] - start["profiles"].log()[3],
        ]
    )
    noise = 0.2 * torch.randn(len(at_fit), generator=torch.Generator().manual_seed(0), dtype=F64)
    limits = [(-15.0, 15.0)] * (len(at_fit) - 3) + [(None, None)] * 3
    best = scipy.optimize.minimize(
        loss,
        (at_fit + noise).clamp(-14, 14).numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": 3000, "ftol": 1e-14, "gtol": 1e-8},
    )
    assert loss(at_fit.numpy())[0] == pytest.approx(float(best.fun), abs=2e-4)


@rules
def test_an_item_that_separates_stays_finite(rule: str) -> None:
    """Everybody with the first attribute solves item 0, and everybody with both solves item 4: no
    finite estimate without a prior.
    """
    data = answers(rule)
    data[:, 4] = 0.0  # and nobody else at all
    data[:3, 4] = 1.0
    data[data[:, 0] + data[:, 2] == 2, 4] = 1.0
    weak = fit(LatentAttributeModel(Q, items=rule), data, EM(tolerance=1e-7), num_restarts=1)
    assert not weak.warnings
    assert max(float(weak.params[site].abs().max()) for site in ("loadings", "intercepts")) < 14
    found = standard_errors(weak, data, hold_bounds=True)
    for site in ("loadings", "intercepts"):
        free = weak.params[site] != 0
        assert bool(torch.isfinite(found.standard_errors[site][free]).all())


def test_maximum_likelihood_of_an_item_that_separates_is_its_bound() -> None:
    data = answers("dina")
    data[:, 4] = (data[:, [0, 1, 2, 3, 6, 7]].sum(-1) == 6).to(F64)
    with pytest.warns(BoundWarning, match=r"on the bound of their interval.*loadings\[4, 0\*1\]"):
        flat = fit(
            LatentAttributeModel(Q, items="dina", bound=5.0),
            data,
            EM(tolerance=1e-7),
            num_restarts=1,
        )
    with pytest.raises(ValueError, match="on the bound"):
        standard_errors(flat, data)


def test_the_weak_prior_moves_a_well_measured_item_by_little() -> None:
    data = answers("additive", 3000)
    weak, flat = (
        fit(LatentAttributeModel(Q, bound=bound), data, EM(tolerance=1e-8), num_restarts=1)
        for bound in (None, 15.0)
    )
    errors = standard_errors(flat, data).standard_errors
    for site in ("loadings", "intercepts", "profiles"):
        free = errors[site] > 0
        assert (
            float(((weak.params[site] - flat.params[site]).abs() / errors[site])[free].max()) < 0.2
        )

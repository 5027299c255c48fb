"""E-steps of layers by their description, and where a program says something else."""

from __future__ import annotations

from typing import Any

import pyro
import pytest
import torch
from torch import Tensor

from inference.programs.program import Program
from inference.structures.layers import em_steps
from inference.structures.layers.em_steps import LayeredSteps
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    HigherOrder,
    LatentAttributeModel,
    Normal,
    Poisson,
    TruncatedLasso,
)

Q = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 0))
MODELS = {
    "dina": LatentAttributeModel(Q, items="dina"),
    "saturated": LatentAttributeModel(Q, items="saturated", root=HigherOrder()),
    "encoder": DeepDiscreteEncoder(5, (2,), Normal()),
    "wide": DeepDiscreteEncoder(40, (4,), Bernoulli()),
    "two layers": DeepDiscreteEncoder(6, (3, 2), Normal()),
    "three layers, penalised": DeepDiscreteEncoder(8, (4, 2, 1), penalty=TruncatedLasso(2.0, 0.3)),
    "flat prior": DeepDiscreteEncoder(6, (3, 2), bound=4.0),
    "by halves": DeepDiscreteEncoder(9, (7, 2), penalty=TruncatedLasso(2.0, 0.3)),
    "by halves, mixed": DeepDiscreteEncoder(
        9, (6,), Blocks((Poisson(), 4), (Normal(), 3), (Bernoulli(), 2))
    ),
}


def steps_of(model: Any) -> tuple[LayeredSteps, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    size = model.layers()[0].num_items
    data = (torch.rand(30, size, generator=generator, dtype=torch.float64) < 0.5).double()
    steps = LayeredSteps.build(model, data)
    assert steps is not None
    return steps, steps.program.draw_prior(3, seed=1)


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_gives_the_statistics_that_its_program_gives(name: str) -> None:
    steps, params = steps_of(MODELS[name])
    known = steps.e_step(params)
    assert steps.layers[0].memory["described"]
    steps.layers[0].memory["described"] = False
    run = steps.e_step(params)
    for own, other in (
        (known.log_likelihood, run.log_likelihood),
        (known.log_prior, run.log_prior),
        (known.statistics.root, run.statistics.root),
        *(
            (known.statistics.layers[name].cross, layer.cross)
            for name, layer in run.statistics.layers.items()
        ),
    ):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["by halves", "by halves, mixed"])
@pytest.mark.parametrize(("size", "is_halved"), [(1.0, True), (300.0, False)])
def test_sums_by_halves_are_those_over_all_configurations(
    name: str, size: float, is_halved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, params = steps_of(MODELS[name])
    steps = steps.on(steps.data, torch.linspace(0.5, 2.0, len(steps.data), dtype=torch.float64))
    layer = steps.layers[0]
    layer.memory["described"] = True
    generator = torch.Generator().manual_seed(2)
    params[layer.loadings] = size * torch.randn(
        params[layer.loadings].shape, generator=generator, dtype=torch.float64
    )
    params[layer.intercepts] = torch.zeros_like(params[layer.intercepts])
    if layer.dispersion:
        params[layer.dispersion] = torch.full_like(params[layer.dispersion], 0.5)
    known, halved = [], em_steps._halved_sums

    def noted(*given: Any) -> Any:
        known.append(halved(*given))
        return known[-1]

    monkeypatch.setattr(em_steps, "_halved_sums", noted)
    own = steps.e_step(params)
    monkeypatch.setattr(em_steps, "HALVED", 99)
    every = steps.e_step(params)
    assert [found is not None for found in known] == [is_halved]
    torch.testing.assert_close(own.log_likelihood, every.log_likelihood)
    bottom, other = (e.statistics.layers[layer.loadings] for e in (own, every))
    torch.testing.assert_close(bottom.cross, other.cross)
    torch.testing.assert_close(bottom.counts, other.counts)


class Shifted(LatentAttributeModel):
    """A program with another prior than its description."""

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        pyro.factor("shift", torch.tensor(-3.0, dtype=torch.float64))
        return super().__call__(data, num_rows)


class Halved(LatentAttributeModel):
    """A program whose answers are less sure than its description says."""

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        with _Halved():
            return super().__call__(data, num_rows)


class _Halved(pyro.poutine.messenger.Messenger):
    def _pyro_sample(self, message: dict[str, Any]) -> None:
        if message["name"] == "items":
            fn = message["fn"]
            message["fn"] = type(fn)(fn.family, fn.eta / 2, fn.dispersion)


def test_a_program_that_says_something_else_is_run() -> None:
    plain, params = steps_of(MODELS["dina"])
    shifted, _ = steps_of(Shifted(Q, items="dina"))
    torch.testing.assert_close(
        shifted.e_step(params).log_prior, plain.e_step(params).log_prior - 3.0
    )
    halved_model = Halved(Q, items="dina")
    halved, _ = steps_of(halved_model)
    own = halved.e_step(params)
    assert not halved.layers[0].memory["described"]
    exact = Program(halved_model, halved.data).log_marginal(params)
    torch.testing.assert_close(own.log_likelihood, exact)
    assert not torch.allclose(exact, plain.e_step(params).log_likelihood)

"""Engines on data that lie on a device: nothing of theirs is left on the CPU, and their numbers are
those of the CPU.

Where there is no device, one is pretended (:mod:`zoo.pretended_device`); where there is one, the
same is asked of it, up to rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from zoo.pretended_device import Pretended, PretendedDevice, carried
from zoo.row import Row
from zoo.table import ZOO, data_of, params_of

from inference import EM, SAEM, fit
from inference.base.progress import NoProgress
from inference.base.structure import Problem
from inference.bootstrap import bootstrap
from inference.engines import saem
from inference.fitting.problem import problem_of
from inference.programs.devices import elements_at_once
from inference.structures.registry import structure_of

ENGINES = {
    "EM": EM(max_iterations=2, num_relaxed=1),
    "SAEM": SAEM(max_iterations=4, num_burn_in=1, num_relaxed=1, window=2),
}
OWN = {
    "bernoulli-mixture",
    "hidden-markov",
}  # programs that make tensors of their own on the CPU, as users' programs may
pytestmark = pytest.mark.filterwarnings("ignore")


def runs(engine: str, row: Row) -> bool:
    """Whether the engine fits the row."""
    if row.local or row.name in OWN:
        return False
    return bool(structure_of(row.model).layers) if engine == "SAEM" else row.method is None


def problem(row: Row) -> Problem:
    return replace(problem_of(row.model, data_of(row), 3), start_given=True)


QUICK = {  # one of each kind; the others run with the slow tests
    "EM": {
        "encoder-confirmatory-Blocks",
        "encoder-truncated-lasso",
        "encoder-NegativeBinomial-missing",
        "dina-Poisson-2-missing",
        "attributes-dag-Poisson",
        "attributes-estimated-Normal",
        "noisy-or-missing",
        "options-2",
        "continuous-options-2",
        "mixture-Normal",
        "mixture-Categorical-missing",
        "mixture-NegativeBinomial-Blocks",
        "mixture-MultivariateNormal-missing",
        "mixture-covariates-missing",
        "hidden-markov-left-right-Blocks",
    },
    "SAEM": {"encoder-Blocks-2-missing", "attributes-dag-Poisson"},
}
CASES = [
    pytest.param(
        engine,
        row,
        id=f"{engine}-{row.name}",
        marks=() if row.name in QUICK[engine] else pytest.mark.slow,
    )
    for engine in ENGINES
    for row in ZOO
    if runs(engine, row)
]


@pytest.mark.parametrize(("engine", "row"), CASES)
def test_an_engine_stays_on_the_device_of_the_data(
    engine: str, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        saem, "seeded", lambda like, seed: torch.Generator().manual_seed(seed)
    )  # a generator cannot be pretended
    here = ENGINES[engine].run(problem(row), params_of(row), NoProgress(), None)
    asked = problem(row)
    with PretendedDevice():
        there = ENGINES[engine].run(
            replace(asked, data=carried(asked.data)), carried(params_of(row)), NoProgress(), None
        )
    for name, value in here.params.items():
        found = there.params[name]
        assert isinstance(found, Pretended), f"{name} was left on the CPU"
        torch.testing.assert_close(found.held, value, rtol=1e-12, atol=1e-12)
    assert not isinstance(there.objective, Pretended)  # what is reported lies on the CPU
    torch.testing.assert_close(
        there.objective, here.objective, rtol=1e-12, atol=1e-12, equal_nan=True
    )


def test_an_annealed_likelihood_stays_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.structures.layers.structure.MAX_SUMMED", 0)
    monkeypatch.setattr("inference.engines.gibbs_estimates.MOST_LENGTH", 20)
    row = next(row for row in ZOO if row.name == "attributes-dag-Poisson")
    test_an_engine_stays_on_the_device_of_the_data("SAEM", row, monkeypatch)


PLAIN = (
    "encoder-truncated-lasso",
    "dina-Poisson-2-missing",
    "attributes-dag-Poisson",
    "noisy-or-missing",
    "options-2",
    "continuous-options-2",
    "mixture-covariates-missing",
    "hidden-markov-left-right-Blocks",
)


@pytest.mark.parametrize("row", [row for row in ZOO if row.name in PLAIN], ids=lambda row: row.name)
def test_a_fit_of_data_on_a_device_answers_as_one_of_data_on_the_cpu(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Pretended, "is_meta", False
    )  # a meta tensor has no numbers, and data of none are refused
    x, method = data_of(row), EM(max_iterations=3)
    here = fit(row.model, x, method, num_restarts=2)
    with PretendedDevice():
        there = fit(row.model, carried(x), method, num_restarts=2)
        posterior = there.posterior_latents(carried(x))
        again = bootstrap(there, carried(x), num_replicates=2, method=method).draws
    assert there.log_likelihood == here.log_likelihood
    for name, value in here.params.items():
        assert not isinstance(there.params[name], Pretended), f"{name} is on the device"
        torch.testing.assert_close(there.params[name], value, rtol=0, atol=0, equal_nan=True)
    for name, value in here.posterior_latents(x).items():
        torch.testing.assert_close(posterior[name], value, rtol=0, atol=0, equal_nan=True)
    expected = bootstrap(here, x, num_replicates=2, method=method).draws
    assert expected is not None
    assert again is not None
    for name, value in expected.items():
        torch.testing.assert_close(again[name], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(("engine", "row"), CASES)
def test_an_engine_on_a_gpu_gives_the_numbers_of_the_cpu(engine: str, row: Row) -> None:
    if engine == "SAEM":
        pytest.skip("random numbers differ between devices")
    asked: Any = problem(row)
    here = ENGINES[engine].run(asked, params_of(row), NoProgress(), None)
    data = (
        {name: part.cuda() for name, part in asked.data.items()}
        if isinstance(asked.data, dict)
        else asked.data.cuda()
    )
    there = ENGINES[engine].run(
        replace(asked, data=data),
        {name: value.cuda() for name, value in params_of(row).items()},
        NoProgress(),
        None,
    )
    for name, value in here.params.items():
        assert there.params[name].is_cuda
        torch.testing.assert_close(there.params[name].cpu(), value, rtol=1e-6, atol=1e-8)


def test_pieces_of_work_fill_the_memory_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert elements_at_once(torch.zeros(2), 1000) == 1000
    assert elements_at_once({"device": 3}, 1000) == 1000  # no tensor
    assert EM().elements_at_once(torch.zeros(2)) == 2**18
    assert EM(chunk_elements=7).elements_at_once(torch.zeros(2)) == 7
    like = torch.zeros(2).as_subclass(
        type("OnGpu", (torch.Tensor,), {"device": torch.device("cuda", 0)})
    )
    for free, expected in ((2**30, 2**23), (2**10, 1000)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**40))
        assert elements_at_once(like, 1000) == expected


def test_the_pretended_device_refuses_what_a_device_refuses() -> None:
    x = torch.randn(3, 2)
    with PretendedDevice():
        there = carried(x)
        with pytest.raises(RuntimeError, match="some on the CPU"):
            there + x
        with pytest.raises(RuntimeError, match="some on the CPU"):
            there.index_copy(0, torch.arange(3), there)
        with pytest.raises(RuntimeError, match="a generator on the device"):
            torch.rand(3, generator=torch.Generator(), device=there.device)
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        made = (
            there @ there.new_ones(2)
            + torch.arange(3, device=there.device)
            + there[torch.arange(3), 0]
            + torch.tensor(2.0)
        ).cpu()
    torch.testing.assert_close(
        made, x @ torch.ones(2) + torch.arange(3) + x[:, 0] + 2.0, rtol=0, atol=0
    )
    assert float(there.held.sum()) == float(x.sum())

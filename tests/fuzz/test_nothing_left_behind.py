"""The process after a fit is the process before it, whether the fit ended well, was refused, or
broke; and two processes agree bit for bit.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from fuzz import attacks, programs
from fuzz.records import FAMILIES

from inference import EM, NUTS, SAEM, SVI, Bootstrap, Laplace, fit
from inference.base.progress import NoProgress
from ppl_models import DeepDiscreteEncoder, Mixture

ENGINES = {
    "recommended": None,
    "EM": EM(max_iterations=3),
    "EM-generic": EM(max_iterations=2, accelerate=False),
    "SAEM": SAEM(max_iterations=3, num_burn_in=1),
    "SVI": SVI(num_steps=10, num_draws=4, warm_start=None),
    "NUTS": NUTS(num_chains=1, warmup_steps=20, num_samples=4, max_depth=2, warm_start=None),
    "Laplace": Laplace(num_draws=4, optimum=EM(max_iterations=300)),
    "Bootstrap": Bootstrap(EM(max_iterations=3), 2),
}


def bits() -> np.ndarray:
    return (np.random.default_rng(0).random((40, 5)) < 0.5).astype(float)


def process() -> dict[str, Any]:
    """All that a library could leave changed in a process."""
    own = np.random.get_state()  # noqa: NPY002  (the caller's, which nobody may touch)
    return {
        "torch's random state": torch.get_rng_state().tolist(),
        "numpy's random state": (own[0], own[1].tolist(), own[2:]),
        "Python's random state": random.getstate(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "warning filters": list(warnings.filters),
        "how warnings are shown": warnings.showwarning,
        "threads": (torch.get_num_threads(), threading.active_count()),
        "gradients": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_anomaly_enabled(),
        ),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "parameter store": {name: value.tolist() for name, value in pyro.get_param_store().items()},
        "handlers": list(pyro.poutine.runtime._PYRO_STACK),
        "settings": (pyro.settings.get(), torch.distributions.Distribution._validate_args),
        "numpy's errors": np.geterr(),
        "printing": torch._tensor_str.PRINT_OPTS.precision,
        "folder": Path.cwd(),
        # torch names the folder of its own cache when its tracer is first used
        "environment": {
            name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"
        },
    }


@pytest.fixture(params=["as it comes", "odd"])
def caller(request):
    """A process as it comes, and one whose user has set everything to something else."""
    if request.param == "as it comes":
        yield
        return
    state, own = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    pyro.clear_param_store()
    torch.set_default_dtype(torch.float32)
    pyro.param("mine", torch.tensor([1.0, 2.0]))
    torch.manual_seed(123)
    np.random.seed(5)  # noqa: NPY002
    random.seed(7)
    before = np.seterr(all="warn", under="raise")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", message="something of the user's")
        yield
    np.seterr(**before)
    pyro.clear_param_store()
    torch.set_rng_state(state)
    np.random.set_state(own)  # noqa: NPY002


def unchanged(before: dict[str, Any]) -> None:
    after = process()
    changed = [name for name, value in before.items() if after[name] != value]
    assert not changed, {
        name: (before[name], after[name]) for name in changed if "random" not in name
    } or changed


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fit_leaves_the_process_as_it_was(engine, caller):
    before = process()
    fit(DeepDiscreteEncoder(5, (1,), bound=3.0), bits(), ENGINES[engine])
    unchanged(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "program", [programs.continuous, programs.counts], ids=lambda program: program.__name__
)
def test_a_fit_of_the_users_program_leaves_the_process_as_it_was(program, caller):
    data = torch.arange(1, 9, dtype=torch.float64) % 4
    before = process()
    for method in (EM(max_iterations=2), SVI(num_steps=10, num_draws=4, warm_start=None)):
        fit(program, data, method)
        unchanged(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("engine", ["EM", "SAEM", "SVI", "NUTS", "Bootstrap"])
def test_a_fit_that_breaks_leaves_the_process_as_it_was(engine, caller, monkeypatch):
    """As by Ctrl-C in the middle, and by data that are refused."""

    def broken(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = process()
    with monkeypatch.context() as patch:
        patch.setattr(NoProgress, "update", broken)
        with pytest.raises(KeyboardInterrupt):
            fit(DeepDiscreteEncoder(5, (1,)), bits(), ENGINES[engine])
    unchanged(before)
    with pytest.raises(ValueError, match="0 and 1"):
        fit(DeepDiscreteEncoder(5, (1,)), bits() + 5, ENGINES[engine])
    with pytest.raises(ValueError, match="support"):
        fit(programs.impossible, torch.zeros(4, dtype=torch.float64), ENGINES[engine])
    unchanged(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_questions_leave_the_process_as_it_was(caller, tmp_path):
    result = fit(
        Mixture(2, num_items=2),
        np.random.default_rng(1).normal(size=(30, 2)),
        EM(max_iterations=30),
    )
    data = np.random.default_rng(1).normal(size=(30, 2))
    before = process()
    result.posterior_latents(data)
    result.log_likelihood_rows(data)
    result.simulate(5, seed=3)
    result.save(tmp_path)
    unchanged(before)


def digest() -> str:
    """Of a fit of every family, as a process of its own would say it."""
    import hashlib

    total = hashlib.sha256()
    for name in FAMILIES:
        result, _ = attacks.example(name)
        for site, value in sorted(result.params.items()):
            total.update(
                f"{name} {site} {value.shape}".encode() + value.contiguous().numpy().tobytes()
            )
        total.update(
            repr((result.objective, result.log_likelihood, result.num_iterations)).encode()
        )
    return total.hexdigest()


@pytest.mark.slow
def test_one_seed_gives_the_same_bits_in_two_processes():
    """Whose hashes of text differ, so that nothing hangs on the order of a set."""
    tests = Path(__file__).parents[1]
    found = os.environ.get("PYTHONPATH")
    places = os.pathsep.join([str(tests), str(tests.parent), *([found] if found else [])])
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        "from fuzz.test_nothing_left_behind import digest; print(digest())",
    ]
    answers = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(answers[0].strip()) == 64
    assert answers[0] == answers[1]

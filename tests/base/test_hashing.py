"""What makes two programs one: their code and what it reads, in this process and in another."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from inference import EM, fit
from inference.base.hashing import _is_installed, digest_of
from ppl_models import (
    DeepDiscreteEncoder,
    HiddenMarkov,
    Independent,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    MultivariateT,
)

SOURCE = """
import math, enum, functools, dataclasses
import numpy as np, torch, pyro, pyro.distributions as dist
from pyro.infer import config_enumerate
import support_module

BIG = torch.arange(5000.0)
SCALE = 1.5
TABLE = {"a": [1.0, 2.0], "b": np.arange(3)}
shift = lambda x: x + 1.0

class Plain:
    def __init__(self, value):
        self.value = value
    def distribution(self, x):
        return dist.Normal(x, self.value)

@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 2.0
    def twice(self):
        return 2 * self.rate

class Slotted:
    __slots__ = ("rate",)
    def __init__(self, rate):
        self.rate = rate

def helper(x):
    return deeper(x) * SCALE

def deeper(x):
    return x + 3.0

def make(prior, plain):
    names = frozenset({"alpha", "beta", "gamma", "delta"})
    net = torch.nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.fill_(0.5); net.bias.fill_(0.0)
    slotted = Slotted(1.0)
    def program(data, strength=0.7):
        inner = [helper(v) for v in TABLE["a"]]
        if "alpha" in {"alpha", "beta", "gamma"}:
            loc = pyro.sample("loc", plain.distribution(support_module.centre(prior.mean()) +
            shift(0.0)))
        distribution = functools.partial(dist.Normal, scale=Settings().twice() + slotted.rate)
        return names, net, BIG, inner, distribution
    return program

program = make(torch.arange(4000.0), Plain(2.0))
"""
MODULE = "OFFSET = 1.0\nUNUSED = 2.0\ndef centre(x):\n    return x + OFFSET\n"


def program_of(source: str, module: str = MODULE) -> Any:
    """The program of a text, as if it stood in a user's file beside a module of the user's."""
    beside = types.ModuleType("support_module")
    exec(module, beside.__dict__)
    sys.modules["support_module"] = beside
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "users_program.py", "exec"), names)
    return names["program"]


CHANGES = {
    "a closed-over tensor, in the middle": (
        "torch.arange(4000.0)",
        "torch.arange(4000.0).index_fill(0, torch.tensor([2000]), -1.0)",
    ),
    "an attribute of an object": ("Plain(2.0)", "Plain(2.5)"),
    "a method of an object": ("dist.Normal(x, self.value)", "dist.StudentT(3.0, x, self.value)"),
    "a large global tensor, in the middle": (
        "torch.arange(5000.0)",
        "torch.arange(5000.0).index_fill(0, torch.tensor([2000]), -1.0)",
    ),
    "a global number": ("SCALE = 1.5", "SCALE = 1.25"),
    "a global lambda": ("x + 1.0", "x + 2.0"),
    "a helper's helper": ("return x + 3.0", "return x - 3.0"),
    "an array in a dict": ("np.arange(3)", "np.arange(3) + 1"),
    "a default of an argument": ("strength=0.7", "strength=0.8"),
    "a default of a record": ("rate: float = 2.0", "rate: float = 3.0"),
    "a method of a record": ("return 2 * self.rate", "return 3 * self.rate"),
    "a slot": ("Slotted(1.0)", "Slotted(2.0)"),
    "the weights of a network": ("net.weight.fill_(0.5)", "net.weight.fill_(0.25)"),
    "a constant inside a comprehension": ("helper(v) for v", "helper(v + 1) for v"),
    "a keyword of a call": ("scale=Settings", "loc=Settings"),
    "a member of a set": ('"gamma", "delta"', '"gamma", "epsilon"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_contents_are_another_program(change: str) -> None:
    old, new = CHANGES[change]
    assert old in SOURCE
    assert digest_of(program_of(SOURCE), "the program") == digest_of(
        program_of(SOURCE), "the program"
    )
    assert digest_of(program_of(SOURCE), "the program") != digest_of(
        program_of(SOURCE.replace(old, new, 1)), "the program"
    )


def test_code_of_the_main_module_counts_whatever_program_started_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``python -m pytest``, or a kernel: the file of the main module is an installed one, the code
    is the user's.
    """
    started = types.ModuleType("__main__")
    started.__file__ = "/somewhere/site-packages/pytest/__main__.py"
    monkeypatch.setitem(sys.modules, "__main__", started)
    _is_installed.cache_clear()
    try:
        assert digest_of(program_of(SOURCE), "one") != digest_of(
            program_of(SOURCE.replace("SCALE = 1.5", "SCALE = 1.25")), "other"
        )
    finally:
        _is_installed.cache_clear()


def test_a_module_of_the_users_counts_by_what_is_taken_from_it() -> None:
    one = digest_of(program_of(SOURCE), "the program")
    assert one == digest_of(
        program_of(SOURCE, MODULE.replace("UNUSED = 2.0", "UNUSED = 3.0")), "the program"
    )
    assert one != digest_of(
        program_of(SOURCE, MODULE.replace("OFFSET = 1.0", "OFFSET = 3.0")), "the program"
    )
    assert one != digest_of(
        program_of(SOURCE, MODULE.replace("x + OFFSET", "x - OFFSET")), "the program"
    )


def test_comments_and_places_in_memory_do_not_count() -> None:
    moved = "\n\n# a comment\n" + SOURCE
    assert digest_of(program_of(SOURCE), "the program") == digest_of(
        program_of(moved), "the program"
    )


def test_another_process_finds_the_same_digest(tmp_path: Any) -> None:
    (tmp_path / "support_module.py").write_text(MODULE)
    (tmp_path / "run.py").write_text(
        SOURCE
        + textwrap.dedent("""
        from inference.base.hashing import digest_of
        print(digest_of(program, "the program"))
    """)
    )
    found = set()
    for seed in ("1", "2"):
        path = os.pathsep.join([str(tmp_path), *sys.path])
        done = subprocess.run(
            [sys.executable, str(tmp_path / "run.py")], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        )  # fmt: skip
        found.add(done.stdout)
    assert len(found) == 1


VALUES = {
    "numbers": (1, 1.0),
    "bool": (1, True),
    "texts": ("ab", b"ab"),
    "nesting": ((1, (2,)), ((1, 2),)),
    "lists": ([1, 2], (1, 2)),
    "dtype": (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    "shape": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "nan": (torch.tensor([0.0]), torch.tensor([float("nan")])),
    "array": (np.zeros(2), np.zeros(2, np.float32)),
    "mask": (np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[1, 0])),
    "objects": (np.array(["a", 1.0], object), np.array(["a", 2.0], object)),
    "frame": (pd.DataFrame({"x": [1.0]}), pd.DataFrame({"y": [1.0]})),
    "series": (pd.Series([1.0]), pd.Series([2.0])),
    "set": ({1, 2}, {1, 3}),
    "state": (np.random.default_rng(0), np.random.default_rng(1)),
    "generator": (torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)),
    "distribution": (
        torch.distributions.Bernoulli(probs=torch.tensor(0.2)),
        torch.distributions.Bernoulli(probs=torch.tensor(0.3)),
    ),
    "logits": (
        torch.distributions.Geometric(logits=torch.tensor(0.2)),
        torch.distributions.Geometric(logits=torch.tensor(0.3)),
    ),
    "model": (DeepDiscreteEncoder(3, (2,)), DeepDiscreteEncoder(3, (2,), bound=4.0)),
    "engine": (EM(), EM(tolerance=1e-5)),
    "complex": (torch.tensor([1j]), torch.tensor([1j]).conj()),
    "sparse": (torch.eye(2).to_sparse(), 2 * torch.eye(2).to_sparse()),
    "half": (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
    "empty": (torch.zeros(0, 2), torch.zeros(0, 3)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_told_apart(name: str) -> None:
    one, two = VALUES[name]
    assert digest_of(one, "x") == digest_of(one, "x")
    assert digest_of(one, "x") != digest_of(two, "x")


def test_a_cached_attribute_does_not_count() -> None:
    distribution = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    before = digest_of(distribution, "x")
    assert distribution.precision_matrix.shape == (2, 2)  # computed now, and kept
    assert digest_of(distribution, "x") == before


def test_circles_end() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert digest_of(ring, "x") == digest_of(ring, "x")


def test_a_guides_weights_count_by_shape_where_a_fit_changes_them() -> None:
    one, two, other = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3)
    assert digest_of(one, "x", skip_fitted=True) == digest_of(two, "x", skip_fitted=True)
    assert digest_of(one, "x", skip_fitted=True) != digest_of(other, "x", skip_fitted=True)
    assert digest_of(one, "x") != digest_of(two, "x")


def test_what_cannot_be_read_is_refused_before_any_work(tmp_path: Any) -> None:
    lock = threading.Lock()
    plain = program_of(SOURCE)

    def program(data: Any) -> Any:
        with lock:
            return plain(data)

    with pytest.raises(
        ValueError,
        match=(
            "checkpoint: the program: its variable 'lock' is a lock, whose contents cannot be read"
        ),
    ):
        digest_of(program, "the program")

    def sampled(data: Any) -> None:
        with lock:
            return DeepDiscreteEncoder(3, (2,))(data)

    with pytest.raises(ValueError, match="cannot be read.*fit without a checkpoint"):
        fit(sampled, torch.ones(4, 3, dtype=torch.float64), EM(), checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        (Mixture(2, MultivariateT(), 4), "d059cabd2d2b"),
        (HiddenMarkov(2, MultivariateNormal(), 4), "e453766e8352"),
        (LatentAttributeModel([[1, 0], [0, 1], [1, 1]], root=Independent()), "b32110fc13e5"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_digests_of_the_last_release_hold(value, digest):
    """A checkpoint of release 0.1.0 resumes although the modules of its records moved."""
    assert digest_of(value, "the model")[:12] == digest

"""Programs that others published, as they wrote them: taken or refused, densities as Pyro's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import PROGRAMS
from published_programs import pyro_loss

from inference import fit
from inference.programs.arguments import call_of
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.programs.program import Program
from inference.programs.restarts import inner_points
from inference.programs.validate import check_program
from ppl_models.data.tables import map_tensors

# constants and networks in single precision, which plain Pyro multiplies with nothing else
SINGLE = (
    "ss_vae_M2",
    "sir.reparameterized",
    "nt.discrete_outside",
    "nt.scan_two_latents",
    "hmm.model_5",
    "hmm.model_7",
)
ROOT = Path(__file__).parents[2]
TAKEN = [name for name, case in PROGRAMS.items() if not case.refused]


def _double(data: Any) -> Any:
    if isinstance(data, tuple):
        return tuple(map(_double, data))
    return map_tensors(lambda x: x.double() if x.is_floating_point() else x, data)


def test_all_of_them_are_here() -> None:
    assert len(PROGRAMS) == 51
    assert len(TAKEN) == 49


def test_the_lines_of_the_last_run_say_so_too() -> None:
    """At the estimates, in single precision where the program's constants are."""
    text = (ROOT / "benchmarks" / "published_programs.jsonl").read_text(encoding="utf-8")
    lines = {line["program"]: line for line in map(json.loads, text.splitlines())}
    assert list(lines) == list(PROGRAMS)
    for name, line in lines.items():
        assert line["verdict"] == ("taken" if name in TAKEN else "refused")
        if name in TAKEN:
            size = abs(line["log_likelihood"] + line["log_prior"])
            assert abs(line["from_pyro"]) < 1e-5 * (1 + size)


@pytest.mark.parametrize("name", TAKEN)
def test_the_density_is_that_of_plain_pyro(name: str) -> None:
    case = PROGRAMS[name]
    with quiet():  # of layouts of convolutions, and of plates without a size
        data = case.data() if name in SINGLE else _double(case.data())
        model = call_of(case.program, data, (), case.kwargs)
        program = Program(model, checked(model, data)[0])
        check_program(program)
        program.check_enumerable()
        points = inner_points(program)
        for k in (0, 1):
            params = {site: value[k] for site, value in points.items()}
            own = float(program.log_marginal(params)) + float(program.log_prior(params))
            near = 1e-5 if name in SINGLE else 1e-8
            assert own == pytest.approx(-pyro_loss(program, params), rel=near, abs=near)


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(TAKEN)))
def test_a_refusal_is_one_sentence_with_a_remedy(name: str) -> None:
    case = PROGRAMS[name]
    words = {
        "sir.discrete": "enumerate_support.*Which values one of them has depends on another: give",
        "nt.mixed_hmc": "observes nothing: give the site of the data obs=",
    }[name]
    with pytest.raises(ValueError, match=words), torch.no_grad():
        fit(case.program, case.data(), kwargs=case.kwargs)

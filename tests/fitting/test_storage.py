"""Fits on disk: everything comes back, and what is damaged, foreign or from elsewhere is
refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.answer_tables import ANSWERS, MIXED, SHORT, mixture, table
from torch.distributions import Bernoulli as Coin

from inference import EM, Fit, fit
from inference.base.checkpoint import read_tensors, write_tensors
from inference.fitting.record import Trace
from ppl_models import SCAD, DeepDiscreteEncoder, TruncatedLasso

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


# ---------------------------------------------------------------------------- files


def test_a_model_with_every_setting_comes_back(tmp_path):
    graph = tuple((int(j % 3 == 0), 1, int(j % 2 == 0)) for j in range(6))
    penalty = SCAD.matching(TruncatedLasso(2.0, 0.3))
    model = DeepDiscreteEncoder(6, (3, 2), MIXED, penalty, (graph, None), 6.0)
    result = fit(model, table(MIXED), SHORT, num_restarts=2)
    odd = dataclasses.replace(
        result,
        log_likelihood=math.nan,
        elbo=-7.5,
        bic_price=2.0**-1000,
        item_names=("ä", 'b"', "c\n", "", "e", "f"),
        draws={"loadings_1": torch.randn(2, 3, 6, 3)},
        trace=Trace("a/b.c", torch.zeros(0), torch.zeros(0)),
    )
    odd.save(tmp_path)
    again = Fit.load(tmp_path)
    assert again.model == model
    assert again.method == SHORT
    assert math.isnan(again.log_likelihood)
    assert (again.elbo, again.bic_price) == (-7.5, 2.0**-1000)
    assert again.item_names == odd.item_names
    assert again.warnings == odd.warnings
    assert torch.equal(again.draws["loadings_1"], odd.draws["loadings_1"])
    assert again.trace.objective.shape == (0,)
    assert all(torch.equal(again.restarts.params[k], v) for k, v in odd.restarts.params.items())
    x = table(MIXED)
    assert torch.equal(again.reconstruct(x), result.reconstruct(x))


@pytest.fixture
def saved(tmp_path):
    fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT).save(tmp_path)
    tensors, record = read_tensors(tmp_path / "fit.safetensors")

    def load(change):
        change(record, tensors)
        write_tensors(tmp_path / "fit.safetensors", tensors, record)
        return Fit.load(tmp_path)

    return load


DAMAGE = {
    "a newer format": (
        lambda r, t: r.update(format=4),
        "format 3 was expected, got 4; a newer version",
    ),
    "no format": (lambda r, t: r.update(format="2"), "format 3 was expected, got '2'$"),
    "a truth for a format": (lambda r, t: r.update(format=True), "format 3 was expected, got True"),
    "no field": (lambda r, t: r.pop("seed"), "damaged.*seed"),
    "no tensor": (lambda r, t: t.pop("params.loadings_1"), "damaged.*params.loadings_1"),
    "unknown value": (lambda r, t: r.update(model={"what": 1}), "damaged"),
    "unknown module": (
        lambda r, t: r["model"].update(record="inference.nothing:Fit"),
        "unknown record type 'inference.nothing:Fit'",
    ),
    "unknown name": (
        lambda r, t: r["model"].update(record="ppl_models:Encoder"),
        "unknown record type 'ppl_models:Encoder'",
    ),
    "number as type": (lambda r, t: r["model"].update(record=3), "damaged"),
    "foreign field": (
        lambda r, t: r["model"]["fields"].update(__class__=1),
        "has no field '__class__'",
    ),
    "lost field": (
        lambda r, t: r["model"]["fields"].pop("num_items"),
        "num_items was left open",
    ),
    "no dataclass": (lambda r, t: r["model"].update(record="inference:fit"), "unknown record type"),
    "attribute": (
        lambda r, t: r["model"].update(record="inference.fitting.fit:torch.save"),
        "not of this library",
    ),
    "look-alike": (
        lambda r, t: r["model"].update(record="inference_evil:Fit"),
        "not of this library",
    ),
    "a text for a number": (
        lambda r, t: r.update(log_likelihood="x"),
        "log_likelihood must be of type float, got str 'x'",
    ),
    "a number for a truth": (
        lambda r, t: r.update(converged=1),
        "converged must be of type bool, got int 1",
    ),
    "a truth for a number": (
        lambda r, t: r.update(seed=True),
        "seed must be of type int, got bool True",
    ),
    "no number": (lambda r, t: r.update(objective={"float": "x"}), "damaged"),
    "a number for names": (lambda r, t: r.update(item_names=3), "item_names must be of type"),
    "a list for names": (lambda r, t: r.update(item_names=["a"]), "item_names must be of type"),
    "a number for a table": (lambda r, t: r.update(params=3), "params must be of type"),
    "a number for a tensor": (
        lambda r, t: r["params"]["dict"].update(proportions=0.5),
        "params must be of type dict.str, Tensor.|params must be of type",
    ),
    "no course": (lambda r, t: r.update(trace=None), "trace must be of type Trace"),
    "a model that is none": (lambda r, t: r.update(model=3), "model must be of type"),
    "a text for a model": (lambda r, t: r.update(model="x"), "model must be of type"),
    "no fields": (lambda r, t: r["model"].pop("fields"), "damaged"),
    "wrong settings": (
        lambda r, t: r["model"]["fields"].update(num_items=-1),
        "num_items must be a positive integer, got -1",
    ),
    "wrong settings of the engine": (
        lambda r, t: r["method"]["fields"].update(tolerance="x"),
        "EM: tolerance must be positive and finite, got 'x'",
    ),
    "another size": (
        lambda r, t: r["model"]["fields"].update(num_items=7),
        r"params.\w+ must have shape \(7",
    ),
    "another shape": (
        lambda r, t: t.update({"params.intercepts_1": torch.zeros(5)}),
        r"params.intercepts_1 must have shape \(6,\), got \(5,\)",
    ),
    "no dims": (
        lambda r, t: t.update({"params.intercepts_1": torch.zeros(())}),
        r"params.intercepts_1 must have shape \(6,\), got \(\)",
    ),
    "no number in a tensor": (
        lambda r, t: t.update({"params.intercepts_1": torch.full((6,), math.nan)}),
        "params.intercepts_1 holds numbers that are not finite",
    ),
    "outside": (
        lambda r, t: t.update({"params.proportions": torch.full((2,), 1.5)}),
        "params.proportions holds values outside its support",
    ),
    "a site too many": (
        lambda r, t: r["params"]["dict"].update(more={"tensor": "params.proportions"}),
        "params must be .* got .*'more'",
    ),
    "a site too few": (
        lambda r, t: r["params"]["dict"].pop("proportions"),
        "params must be .*'proportions'",
    ),
    "no such restart": (
        lambda r, t: r["restarts"]["fields"].update(best=7),
        "restarts.best must lie in 0 to 0, got 7",
    ),
    "other restarts": (
        lambda r, t: t.update({"restarts.log_likelihood": torch.zeros(3)}),
        r"restarts.log_likelihood must have shape \(1,\)",
    ),
    "rows below zero": (lambda r, t: r.update(num_rows=-3), "num_rows must not be negative"),
    "integers": (
        lambda r, t: t.update({"params.proportions": torch.tensor([2, 3])}),
        "params.proportions holds values outside",
    ),
}


@pytest.mark.parametrize("record", ["[]", "3", "null", '"x"', "true", "{", "[" * 100000, ""])
def test_json_that_is_no_record_is_refused(saved, tmp_path, record):
    """Failed before: AttributeError, or RecursionError."""
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, str(tmp_path / "fit.safetensors"), metadata={"record": record})
    with pytest.raises(ValueError, match="not a file written by this library"):
        Fit.load(tmp_path)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_fit_is_refused(saved, damage):
    change, message = DAMAGE[damage]
    with pytest.raises(ValueError, match=message):
        saved(change)


REFERENCES = Path(__file__).parent.parent / "references"
OLD = [
    folder
    for written in ("format_1", "format_2")
    for folder in sorted((REFERENCES / written).iterdir())
]


@pytest.mark.parametrize("folder", OLD, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_fits_of_old_formats_are_read(folder, tmp_path):
    """Format 1 names modules that are gone, and 2 has no checksum; the same numbers come out."""
    data = dict(np.load(folder / "rows.npz"))
    expected = torch.from_numpy(data.pop("log_likelihood"))
    data = (
        data["data"]
        if set(data) == {"data"}
        else {name: torch.from_numpy(value) for name, value in data.items()}
    )
    result = Fit.load(folder)
    is_drawn = folder.name == "usage"  # an estimate by draws, then made in another way
    error = {"rtol": 0.0, "atol": 1.0} if is_drawn else {"rtol": 1e-10}
    found = result.log_likelihood_rows(data)
    assert torch.allclose(found, expected, **error)
    assert float((found - expected).mean().abs()) < 0.1
    result.save(tmp_path)
    again = Fit.load(tmp_path)
    assert (again.model, again.method) == (result.model, result.method)
    assert read_tensors(tmp_path / "fit.safetensors")[1]["format"] == 3


def test_a_newer_file_may_not_name_modules(saved):
    """Module paths are read from files of format 1 alone, and there from the table of what it could
    hold.
    """
    path = "ppl_models.deep_discrete_encoder:DeepDiscreteEncoder"
    with pytest.raises(ValueError, match="unknown record type"):
        saved(lambda record, tensors: record["model"].update(record=path))


def test_settings_added_later_take_their_defaults(saved):
    again = saved(lambda record, tensors: record["method"]["fields"].pop("num_inner"))
    assert again.method == SHORT


def test_what_has_no_place_in_a_file_is_refused(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Engine:
        factor: float = 1.0

    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT)
    with pytest.raises(ValueError, match="save: method holds a Engine"):
        dataclasses.replace(result, method=Engine()).save(tmp_path / "fit")
    assert not (tmp_path / "fit").exists()


# ---------------------------------------------------------------------------- programs of users


def test_a_users_program_is_saved_without_its_code(tmp_path):
    result = fit(mixture, ANSWERS, EM(max_iterations=3))
    result.save(tmp_path)
    assert "mixture" not in (tmp_path / "fit.json").read_text()
    with pytest.raises(ValueError, match=r"load\(path, model=...\)"):
        Fit.load(tmp_path)
    again = Fit.load(tmp_path, model=mixture)
    assert again.model is mixture
    for kind in (ANSWERS, torch.from_numpy(ANSWERS), pd.DataFrame(ANSWERS)):
        assert torch.allclose(
            again.log_likelihood_rows(kind), result.log_likelihood_rows(ANSWERS), rtol=1e-14
        )
    weights, chance = result.params["weights"], result.params["chance"]
    x = torch.from_numpy(ANSWERS)
    joint = weights.log() + torch.stack([Coin(p).log_prob(x).sum(1) for p in chance], 1)
    assert torch.allclose(result.posterior_latents(x)["group"], joint.softmax(1), atol=1e-12)
    assert torch.equal(result.decode_latents(x)["group"], joint.argmax(1))


@pytest.fixture(scope="module")
def fitted():
    return fit(
        DeepDiscreteEncoder(6, (3, 1), bound=4.0),
        ANSWERS,
        EM(tolerance=1e-6, parameter_tolerance=1e-2),
    )


def test_a_saved_fit_holds_no_code(fitted, tmp_path):
    fitted.save(tmp_path / "fit")
    assert {path.name for path in (tmp_path / "fit").iterdir()} == {"fit.json", "fit.safetensors"}
    again = Fit.load(tmp_path / "fit")
    assert again.model == fitted.model
    assert again.method == fitted.method
    assert all(torch.equal(again.params[k], fitted.params[k]) for k in fitted.params)
    assert torch.equal(again.trace.objective, fitted.trace.objective)
    assert again.warnings == fitted.warnings
    json.loads((tmp_path / "fit" / "fit.json").read_text())


@pytest.mark.parametrize(
    "target",
    [
        "os:system",
        "subprocess:Popen",
        "ppl_models.datasets.files:read_table",
        "inference.fitting.fit:fit",
    ],
)
def test_a_tampered_fit_is_refused(fitted, tmp_path, target):
    fitted.save(tmp_path)
    tensors, record = read_tensors(tmp_path / "fit.safetensors")
    record["model"]["record"] = target
    write_tensors(tmp_path / "fit.safetensors", tensors, record)
    with pytest.raises(ValueError, match="record type"):
        Fit.load(tmp_path)


def test_files_that_are_no_fits_are_refused(tmp_path, fitted):
    with pytest.raises(ValueError, match="no such file"):
        Fit.load(tmp_path)
    (tmp_path / "fit.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a file written by this library"):
        Fit.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="a folder was expected, got a file"):
        fitted.save(tmp_path / "file")

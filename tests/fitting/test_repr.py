"""What a fit and other records show of themselves: a few lines, never pages of numbers."""

from __future__ import annotations

import dataclasses
import html.parser
import importlib
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from zoo.table import every_row, quick_fit

import inference
import ppl_models
from inference import EM, NUTS, Fit, fit
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, Normal
from ppl_models.parts.repr import Told, shown, shown_settings, shows_briefly

MODULES = (
    "acdc",
    "alignment",
    "calibration",
    "causal",
    "comparison",
    "estimates",
    "identifiability",
    "inspection",
    "loo",
    "metrics",
    "predictive",
    "relations",
    "report",
    "selection",
    "uncertainty",
)
LARGE = ("Tensor", "Params", "ndarray", "Fit", "Mapping", "dict[")


def public_records() -> list[type]:
    faces = [
        inference,
        ppl_models,
        ppl_models.datasets,
        *(importlib.import_module(f"inference.{name}") for name in MODULES),
    ]
    kinds = {
        getattr(face, name)
        for face in faces
        for name in dir(face)
        if isinstance(getattr(face, name), type)
    }
    return sorted(
        (kind for kind in kinds if dataclasses.is_dataclass(kind) and not inspect.isabstract(kind)),
        key=lambda kind: kind.__name__,
    )


@pytest.mark.parametrize("kind", public_records(), ids=lambda kind: kind.__name__)
def test_no_public_record_writes_pages_of_numbers(kind: type) -> None:
    """Whatever holds tensors, arrays or fits says so in a few lines."""
    holds = [
        field.name
        for field in dataclasses.fields(kind)
        if field.repr and any(word in str(field.type) for word in LARGE)
    ]
    own_words = (
        not hasattr(kind.__repr__, "__wrapped__")
        and kind.__repr__.__module__ != shows_briefly.__module__
    )
    if (
        not holds or own_words or issubclass(kind, Told) or hasattr(kind, "run")
    ):  # an engine holds settings, an answer says its own words
        return
    values = {
        field.name: torch.zeros(30, 40) if field.name in holds else "<b>&"
        for field in dataclasses.fields(kind)
    }
    record = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(record, name, value)
    assert len(repr(record)) < 60 + 120 * len(values)
    assert "tensor of 30 x 40" in repr(record)
    if kind._repr_html_.__module__ == shows_briefly.__module__:  # type: ignore[attr-defined]
        assert "<b>" not in record._repr_html_()  # type: ignore[attr-defined]


@every_row
def test_a_fit_is_a_few_lines(row) -> None:
    result = quick_fit(row)
    text = repr(result)
    assert 5 <= len(text.splitlines()) <= 10
    assert max(map(len, text.splitlines())) <= 130
    assert "tensor" not in text
    assert f"Fit of {result.model_name}" in text
    assert f"{result.log_likelihood:,.2f}" in text or not np.isfinite(result.log_likelihood)
    for name in list(result.latents or {})[:3]:  # of many the first are named
        assert name in text


def test_facts_of_a_fit() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        rng.normal(size=(60, 2)) + 6 * rng.integers(0, 2, (60, 1)), columns=["speed", "<i>"]
    )
    result = fit(Mixture(num_components=2, component=Normal(), num_items=2), data, seed=0)
    facts = dict(line.strip().split("  ", 1) for line in repr(result).splitlines()[1:])
    assert facts["data"].strip() == "60 rows of 2 columns"
    assert facts["latents"].strip() == "assignments (2 values)"
    assert facts["engine"].strip() == f"EM(): converged after {result.num_iterations} iterations"
    assert facts["BIC"].strip().startswith(f"{result.bic:,.2f}")
    assert (
        f"reached by {result.restarts.num_reached} of {result.restarts.num_ended}"
        in facts["starts"]
    )

    class Reader(html.parser.HTMLParser):
        cells = 0

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.cells += tag == "td"

    reader = Reader()
    reader.feed(result._repr_html_())
    assert reader.cells == len(facts)


def test_what_a_reader_must_know_is_said() -> None:
    rng = np.random.default_rng(1)
    data = (rng.random((40, 6)) < np.where(np.arange(40) < 20, 0.1, 0.9)[:, None]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopped = fit(
            DeepDiscreteEncoder(num_items=6, latent_sizes=(2,)), data, EM(max_iterations=2)
        )
        drawn = fit(
            Mixture(num_components=2, component=Bernoulli(), num_items=6),
            data,
            NUTS(num_chains=2, num_samples=5, warmup_steps=20),
        )
    assert "did not converge in 2 iterations" in repr(stopped)
    assert "1, read them in fit.warnings" in repr(stopped)
    assert "2 bits" in repr(stopped)
    assert "2 chains of 5 draws" in repr(drawn)


def test_latents_survive_a_file(tmp_path) -> None:
    rng = np.random.default_rng(2)
    result = fit(
        Mixture(num_components=2, num_items=2),
        rng.normal(size=(60, 2)) + 6 * rng.integers(0, 2, (60, 1)),
        EM(),
    )
    result.save(tmp_path / "fit")
    assert repr(Fit.load(tmp_path / "fit")) == repr(result)


def test_values_are_shown_whole_where_small() -> None:
    assert shown(torch.tensor([1.0, 0.25])) == "[1, 0.25]"
    assert shown(np.zeros((3, 4))) == "array of 3 x 4"
    assert shown((1, 2)) == "(1, 2)"
    assert shown(tuple(range(50))) == "50 of int"
    assert shown({"a": 1.0}) == "{'a': 1}"
    assert shown("x" * 300).endswith("...")
    assert shown(torch.zeros(3, device="meta")) == "tensor of 3"
    assert shown(np.array(["a", None], dtype=object)) == "array of 2"


def test_settings_leave_out_what_is_usual() -> None:
    assert shown_settings(EM(max_iterations=7)) == "EM(max_iterations=7)"
    assert (
        shown_settings(test_settings_leave_out_what_is_usual)
        == "test_settings_leave_out_what_is_usual"
    )


def test_a_small_record_stands_on_one_line() -> None:
    @shows_briefly
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: float
        hidden: int = dataclasses.field(default=0, repr=False)

    assert repr(Point(0.5)) == "Point(x=0.5)"

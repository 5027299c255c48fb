"""Estimates that contradict their names are said: slip and guess above one."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest
import torch

from inference import EM, EstimateWarning, fit
from inference.fitting.problem import problem_of
from inference.report.fit import write_report
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, ExpDINA, Normal

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (1, 1))


def answers(signs, num_rows=300):
    """DINA answers with slips and guesses of a tenth; an item of sign -1 is scored the wrong way round."""
    generator = torch.Generator().manual_seed(0)
    skills = (torch.rand(num_rows, 2, generator=generator, dtype=F64) < 0.5).to(F64)
    has_all = torch.stack([skills[:, [k for k in range(2) if row[k]]].prod(1) for row in Q], 1)
    rows = (torch.rand(num_rows, 6, generator=generator, dtype=F64) < 0.1 + 0.8 * has_all).to(F64)
    return torch.where(torch.tensor(signs) > 0, rows, 1 - rows)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_items_scored_the_wrong_way_round_are_named(tmp_path):
    model = DeepDiscreteEncoder(6, (2,), graphs=(Q,), bottom=ExpDINA())
    with warnings.catch_warnings():
        warnings.simplefilter("error", EstimateWarning)
        fit(model, answers([1] * 6), EM(max_iterations=50))
    with pytest.warns(EstimateWarning, match=r"more than one in 2 \(slip 0\.\d+ \+ guess 0\.\d+\): rows that have") as caught:
        result = fit(model, answers([1, 1, -1, 1, 1, 1]), EM(max_iterations=50))
    text = str(caught[0].message)
    assert text in result.warnings
    page = write_report(result, None, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "slip and guess add up to more than one" in page


def test_only_zeros_and_ones_have_slips():
    """A Normal item that falls with its skills is no contradiction; a 0/1 item is named by its column."""
    model = DeepDiscreteEncoder(6, (2,), Blocks((Bernoulli(), 2), (Normal(), 4)), graphs=(Q,), bottom=ExpDINA())
    problem = problem_of(model, pd.DataFrame(answers([1] * 6).numpy(), columns=list("abcdef")), 0)
    layer = problem.structure.layers[0]
    assert layer.graph is not None
    params = {layer.loadings: -2.0 * layer.graph.to(F64), layer.intercepts: torch.ones(6, dtype=F64)}
    (text,) = problem.structure.concerns(problem, params)
    assert "in a (slip 0.73 + guess 0.73); b (slip 0.73 + guess 0.73): rows" in text
    params[layer.loadings][:2] *= -1
    assert problem.structure.concerns(problem, params) == []

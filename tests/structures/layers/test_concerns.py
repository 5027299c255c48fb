"""Estimates that contradict their names are said: slip and guess above one, and independent latents
that go together.
"""

from __future__ import annotations

import warnings

import pandas as pd
import pytest
import torch

from inference import EM, EstimateWarning, fit
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.report.fit import write_report
from inference.structures.layers.free_table import table_gain
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, ExpDINA, LatentAttributeModel, Normal
from ppl_models.datasets import mastery_test
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (1, 1))


def answers(signs, num_rows=300):
    """DINA answers with slips and guesses of a tenth; an item of sign -1 is scored the wrong way
    round.
    """
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
    with pytest.warns(
        EstimateWarning, match=r"more than one in 2 \(slip 0\.\d+ \+ guess 0\.\d+\): rows that have"
    ) as caught:
        result = fit(model, answers([1, 1, -1, 1, 1, 1]), EM(max_iterations=50))
    text = str(caught[0].message)
    assert text in result.warnings
    page = write_report(result, None, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "slip and guess add up to more than one" in page


def test_only_zeros_and_ones_have_slips():
    """A Normal item that falls with its skills is no contradiction; a 0/1 item is named by its
    column.
    """
    model = DeepDiscreteEncoder(
        6, (2,), Blocks((Bernoulli(), 2), (Normal(), 4)), graphs=(Q,), bottom=ExpDINA()
    )
    problem = problem_of(model, pd.DataFrame(answers([1] * 6).numpy(), columns=list("abcdef")), 0)
    layer = problem.structure.layers[0]
    assert layer.graph is not None
    params = {
        layer.loadings: -2.0 * layer.graph.to(F64),
        layer.intercepts: torch.ones(6, dtype=F64),
    }
    params |= {
        "proportions": torch.full((2,), 0.5, dtype=F64),
        "dispersion": torch.ones(4, dtype=F64),
    }
    (text,) = [said for said in problem.structure.concerns(problem, params) if "slip" in said]
    assert "in a (slip 0.73 + guess 0.73); b (slip 0.73 + guess 0.73): rows" in text
    params[layer.loadings][:2] *= -1
    assert not [said for said in problem.structure.concerns(problem, params) if "slip" in said]


def one_layer(profiles: torch.Tensor | None = None, num_rows: int = 1000):
    """An encoder of one layer with its Q-matrix given, fitted to a test whose skills follow a
    table.
    """
    design = mastery_test(12, 3, "additive", seed=3)
    if profiles is not None:
        design.params["profiles"] = profiles
    items, _ = design.draw(num_rows, seed=4)
    model = DeepDiscreteEncoder(12, (3,), graphs=(design.model.q_matrix,), bound=15.0)
    return model, items


def test_independent_latents_that_go_together_are_named_with_what_a_table_would_gain(tmp_path):
    model, items = one_layer()
    with pytest.warns(
        EstimateWarning,
        match=(
            r"holds that its 3 latents are independent, .* LatentAttributeModel\(Q,"
            r" root=Saturated\(\)\)"
        ),
    ) as caught:
        result = fit(model, items, EM(tolerance=1e-8))
    (text,) = [str(found.message) for found in caught]
    assert text in result.warnings
    assert "its 3 latents are independent" in write_report(
        result, None, tmp_path / "page.html"
    ).read_text(encoding="utf-8")
    refit = fit(
        LatentAttributeModel(model.graphs[0], items="additive", bound=15.0),
        items,
        EM(tolerance=1e-8),
    )
    said = float(text.partition("by about ")[2].split()[0])
    gain = refit.log_likelihood - result.log_likelihood
    assert gain > 20
    assert 0.8 * gain < said < gain + 0.5  # the items do not move, so a little less


def test_independent_latents_that_are_so_are_left_alone():
    values = binary_configurations(3).to(F64)
    share = torch.tensor([0.6, 0.5, 0.4], dtype=F64)
    model, items = one_layer((values * share + (1 - values) * (1 - share)).prod(-1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", EstimateWarning)
        fit(model, items, EM(tolerance=1e-8))


def test_the_gain_of_a_table():
    """Against the log-likelihood of the program with the table written into it, which no other
    table surpasses.
    """
    design = mastery_test(12, 3, "additive", seed=3)
    items, _ = design.draw(300, seed=4)
    program = Program(design.model, items)

    def log_likelihood(params):
        return program.log_marginal_rows(params).sum()

    profiles = program.latent_values(design.params)["attributes"]
    distribution = torch.full((8,), 0.125, dtype=F64)
    at_distribution = {**design.params, "profiles": distribution}
    found = table_gain(
        program.latent_marginals(at_distribution)["attributes"], profiles, distribution
    )
    assert float(found.table.sum()) == pytest.approx(1)
    reached = float(
        log_likelihood({**design.params, "profiles": found.table}) - log_likelihood(at_distribution)
    )
    assert found.gain == pytest.approx(reached, abs=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = found.table + 0.02 * torch.rand(8, generator=generator, dtype=F64)
        other = other / other.sum()
        assert (
            float(
                log_likelihood({**design.params, "profiles": other})
                - log_likelihood(at_distribution)
            )
            < found.gain + 0.01
        )

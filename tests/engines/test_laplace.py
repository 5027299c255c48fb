"""Laplace's approximation against the observed information."""

from __future__ import annotations

import pytest
import torch
from support.two_skills import GRAPH, encoder_truth

from inference import EM, Laplace, fit
from inference.programs.program import simulate
from ppl_models import DeepDiscreteEncoder

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


def test_laplace_is_the_observed_information_and_holds_bounds():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 1, None, 600)["items"]
    from inference.uncertainty import standard_errors

    tight = EM(tolerance=1e-12, parameter_tolerance=1e-7, max_iterations=3000)
    result = fit(model, data, Laplace(4000, tight))
    errors = standard_errors(fit(model, data, tight), data).standard_errors
    free = result.draws["loadings_1"][0].std(0)[torch.tensor(GRAPH, dtype=torch.bool)]
    ratio = free / errors["loadings_1"][torch.tensor(GRAPH, dtype=torch.bool)]
    assert (
        0.9 < float(ratio.min()) < float(ratio.max()) < 1.1
    )  # flat priors: the information of the likelihood
    assert (
        float(result.draws["loadings_1"][..., ~torch.tensor(GRAPH, dtype=torch.bool)].abs().max())
        == 0.0
    )

"""Which parameters three successive steps determine."""

from __future__ import annotations

import numpy as np
import pytest
from papers.options import random_options
from support.option_moments import exact_moments

from inference import EM, fit
from inference.identifiability import check_options, identifiability_of
from inference.identifiability.options import exact_moments as option_moments
from inference.programs import Program
from ppl_models import OptionsHMM
from ppl_models.datasets import options_chain


@pytest.mark.parametrize("seed", range(3))
def test_generic_parameters_are_identified(seed: int) -> None:
    truth, chain = random_options(4, 3, 2, seed=seed), OptionsHMM(4, 3, 2).chain()
    verdict = check_options(truth, chain)
    assert verdict.identified
    assert "identified by the distribution of three successive steps" in verdict.text()
    assert verdict.to_dict()["error"] < 1e-6
    np.testing.assert_allclose(option_moments(truth, chain).windows.sum(), 1, atol=1e-12)


def test_the_long_run_of_the_chain() -> None:
    truth = options_chain()
    found = option_moments(truth, OptionsHMM(4, 2, 2).chain())
    np.testing.assert_allclose(found.windows, exact_moments(truth).windows, atol=1e-12)


def test_parameters_that_three_steps_do_not_determine() -> None:
    chain = OptionsHMM(4, 2, 2).chain()
    same = options_chain()
    same["low"][2] = same["low"][2, :1]
    forgetful = options_chain()
    forgetful["high"][1] = forgetful["high"][1, :1]  # the option before says nothing
    for params, state in ((same, 2), (forgetful, 1)):
        verdict = check_options(params, chain)
        assert not verdict.identified
        assert f"rank below num_options = 2 in state {state}" in verdict.text()
        assert verdict.to_dict()["error"] is None
    wide = OptionsHMM(4, 2, 3).chain()
    assert "exceeds num_actions" in check_options(random_options(4, 2, 3, 0), wide).text()


def test_hundreds_of_states_are_refused_with_a_size_before_any_work() -> None:
    """Failed before: 5 GiB and more, after the fit was done."""
    model = OptionsHMM(400, 3, 2)
    params = Program(model, None, 1).draw_prior(1, 0)
    one = {name: value[0] for name, value in params.items()}
    with pytest.raises(
        ValueError, match=r"400 states and 3 actions has 576,000,000 numbers \(4.3 GiB\)"
    ):
        option_moments(one, model.chain())
    verdict = check_options(one, model.chain())
    assert not verdict.identified
    assert "this was not looked at" in verdict.text()


@pytest.mark.filterwarnings("ignore")
def test_sequences_of_fewer_steps_are_no_case_for_the_argument() -> None:
    """Failed before: rows of one step were said to determine how options follow each other."""
    model = OptionsHMM(2, 2, 2)
    rows = [(np.array([seed % 2, 1]), np.array([0, seed % 2])) for seed in range(30)]
    found = identifiability_of(fit(model, rows, EM(max_iterations=20), num_restarts=1), rows)
    assert found is not None
    assert "no sequence has 3 steps" in found.text()

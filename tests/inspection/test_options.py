"""What a fit with hidden options is asked."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from support.option_sequences import case, close, simulate

from inference import EM, Fit, fit
from inference.inspection.options import (
    filter_options,
    log_likelihood_parts,
    predict_actions,
    smooth_options,
    viterbi_options,
)
from ppl_models.data.sequences import unpack

F64 = torch.float64


def test_what_a_fit_is_asked(tmp_path) -> None:
    model, truth, _ = case(7, 0.0)
    data = unpack(simulate(replace(model, num_steps=30), truth, 15, 7))
    data["action"] = data["action"].to(F64)
    data["action"][2, 3] = math.nan
    result = fit(model, data, EM(tolerance=1e-6), init="random", num_restarts=2)
    result.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert loaded.model == model
    rows = loaded.log_likelihood_rows(data)
    assert torch.equal(rows, result.log_likelihood_rows(data))
    close(rows.sum(), result.log_likelihood, 1e-9)
    parts = log_likelihood_parts(result, data)
    close(parts.actions + parts.first_state + parts.moves, rows)
    assert torch.equal(
        result.posterior_latents(data)["options"], smooth_options(result, data).option
    )
    assert torch.equal(result.decode_latents(data)["options"], viterbi_options(result, data).option)
    predicted = predict_actions(result, data)
    seen = data["action"].nan_to_num(nan=0).long()
    score = predicted.gather(-1, seen[..., None]).squeeze(-1).log().sum(1)
    whole = torch.ones(15, dtype=torch.bool)
    whole[2] = False
    close(score[whole], parts.actions[whole], 1e-9)  # one step ahead, times all steps, is the whole
    assert filter_options(result, data).shape == (15, 30, 2)
    drawn = result.simulate(4, seed=1)["trajectories"]
    assert drawn.shape == (4, 6, 2)

"""predict, predict_proba, score and posterior_frame against the sum over configurations, for every
family.
"""

from __future__ import annotations

import warnings
from types import FunctionType

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from zoo.table import data_of, every_row_but_swept, quick_fit, rows_of_quick_fit

from inference import EM, fit
from inference.programs.program import Program
from ppl_models import LatentAttributeModel, Mixture, Normal, OptionsHMM, PoissonFactorization


@every_row_but_swept
def test_answers_of_every_family(row) -> None:
    """Probabilities are those of posterior_latents, the most probable values those of
    decode_latents, under the caller's index.
    """
    result, data = quick_fit(row), data_of(row)
    (log_likelihood, means), modes = rows_of_quick_fit(row), result.decode_latents(data)
    assert result.score(data) == pytest.approx(float(log_likelihood.mean()))
    frame = result.posterior_frame(data)
    # latents of a program that are decoded together need not be most probable one by one
    is_joint = len(modes) > 1 and isinstance(row.model, FunctionType)
    if is_joint:
        program = Program(row.model, data)
        single = {name: means[name].argmax(-1).to(mode) for name, mode in modes.items()}
        together, apart = (program.log_joint(result.params, at) for at in (modes, single))
        assert float(together) >= float(apart) - 1e-9
    if not modes:
        with pytest.raises(ValueError, match="predict: .* has no discrete latents"):
            result.predict(data)
    for site, mode in modes.items():
        predicted, chances = result.predict(data, site), result.predict_proba(data, site)
        np.testing.assert_array_equal(predicted, mode.numpy())
        np.testing.assert_allclose(chances, means[site].numpy())
        if mode.dim() == 1:
            np.testing.assert_allclose(chances.sum(-1), 1.0)
            if not is_joint:
                np.testing.assert_array_equal(predicted, chances.argmax(-1))
        own = [name for name in frame.columns if name == site or name.startswith(f"{site}[")]
        kept = (
            mode.numpy() if mode.dim() == 1 or means[site].dim() == 2 else mode[mode >= 0].numpy()
        )
        np.testing.assert_array_equal(frame[own].to_numpy().reshape(kept.shape), kept)
        inside = means[site].numpy() if means[site].dim() == 2 else means[site][mode >= 0].numpy()
        np.testing.assert_allclose(
            frame[[name for name in frame.columns if name.startswith(f"P({site}")]].to_numpy(),
            inside,
        )
    if len(modes) > 1:
        with pytest.raises(ValueError, match=r"several latents, .*say which, as predict\(data, "):
            result.predict(data)
        with pytest.raises(ValueError, match="site must be one of .*, got 'nobody'"):
            result.predict_proba(data, "nobody")
    elif modes:
        np.testing.assert_array_equal(result.predict(data), next(iter(modes.values())).numpy())


def test_classes_have_names_and_rows_their_index() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        rng.normal(size=(40, 2)) + 6 * rng.integers(0, 2, (40, 1)),
        index=[f"person {i}" for i in range(40)],
    )
    result = fit(
        Mixture(num_components=2, component=Normal(), num_items=2), data, EM(), num_restarts=2
    )
    frame = result.posterior_frame(data, names={"component": ["left", "right"]})
    assert list(frame.columns) == ["P(assignments=left)", "P(assignments=right)", "assignments"]
    assert frame.index.equals(data.index)
    low = result.params["predictors"][:, 0].argmin()
    expected = np.where(data[0] < 3, ["left", "right"][low], ["left", "right"][1 - low])
    assert (frame["assignments"] == expected).all()
    assert list(result.posterior_frame(data).columns) == [
        "P(assignments=0)",
        "P(assignments=1)",
        "assignments",
    ]
    assert result.posterior_frame(data)["assignments"].dtype.kind == "i"


def test_bits_have_the_names_of_the_model() -> None:
    rng = np.random.default_rng(1)
    q = pd.DataFrame([[1, 0], [0, 1], [1, 0], [0, 1]], columns=["add", "take"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(
            LatentAttributeModel(q), (rng.random((60, 4)) < 0.5).astype(float), EM(max_iterations=5)
        )
    data = (rng.random((3, 4)) < 0.5).astype(float)
    frame = result.posterior_frame(data)
    assert list(frame.columns) == [
        "P(attributes[add])",
        "P(attributes[take])",
        "attributes[add]",
        "attributes[take]",
    ]
    assert list(frame.index) == [0, 1, 2]
    assert set(np.unique(frame[["attributes[add]", "attributes[take]"]])) <= {0, 1}


def test_amounts_of_new_rows() -> None:
    counts = np.random.default_rng(2).poisson(5, (30, 4)).astype(float)
    result = fit(PoissonFactorization(num_items=4, num_components=2), counts)
    frame = result.posterior_frame(counts)
    assert list(frame.columns) == ["activities[0]", "activities[1]"]
    np.testing.assert_allclose(
        frame.to_numpy(), result.local["activities"].numpy(), rtol=1e-2, atol=1e-2
    )
    with pytest.raises(
        ValueError,
        match=(
            r"no discrete latents; activities of the rows are in fit.local, and"
            r" posterior_frame\(data\)"
        ),
    ):
        result.predict_proba(counts)


def test_steps_of_sequences_stand_in_the_caller_s_lines() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "sequence": list("bbbaacc"),
            "time": [3, 4, 5, 0, 1, 7, 8],
            "state": rng.integers(0, 2, 7),
            "action": rng.integers(0, 2, 7),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(OptionsHMM(2, 2, 2), frame, EM(max_iterations=3))
    straight = result.posterior_frame(frame)
    path = result.decode_latents(frame)["options"].numpy()
    assert straight["options"].tolist() == [*path[0, :3], *path[1, :2], *path[2, :2]]
    mixed = frame.sample(frac=1.0, random_state=1)
    # sequences are packed in order of appearance, which changes no answer of a line
    pd.testing.assert_frame_equal(result.posterior_frame(mixed).sort_index(), straight)
    packed = result.model.check_data(frame)[0]
    by_step = result.posterior_frame(packed)
    assert by_step.index.names == ["sequence", "step"]
    np.testing.assert_allclose(by_step.to_numpy(), straight.to_numpy())


def test_what_has_no_rows_has_no_score() -> None:
    def no_plate(data):
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mean, 1.0).expand([len(data)]).to_event(1), obs=data)

    result = fit(no_plate, torch.zeros(5, dtype=torch.float64), EM())
    with pytest.raises(
        ValueError, match="score: a program with one plate over its rows was expected"
    ):
        result.score(torch.zeros(5, dtype=torch.float64))
    with pytest.raises(ValueError, match="posterior_frame: no_plate has no latents"):
        result.posterior_frame(torch.zeros(5, dtype=torch.float64))


def test_what_all_rows_share_is_no_label_of_a_row() -> None:
    def one_regime(data):
        rate = pyro.sample("rate", dist.Gamma(torch.tensor([2.0, 8.0]), 1.0).to_event(1))
        regime = pyro.sample("regime", dist.Categorical(torch.ones(2)))
        with pyro.plate("rows", len(data)):
            pyro.sample("y", dist.Poisson(rate[regime]), obs=data)

    counts = torch.arange(6.0)
    result = fit(one_regime, counts, EM())
    assert result.posterior_latents(counts)["regime"].shape == (2,)
    for question in (result.predict, result.predict_proba, result.posterior_frame):
        with pytest.raises(ValueError, match="latents of each row, and posterior_latents"):
            question(counts)

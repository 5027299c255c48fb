"""Designs from their definitions, samples against their distribution, and the published files where
they are at hand.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from papers.noisy_or import (
    flip_columns,
    image_uniform_design,
    load_plant_base,
    load_plant_regions,
    thresholded,
)

from inference.programs.program import Program
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or
from ppl_models.datasets.noisy_or import load_noisy_or_sample, random_design, uniform_design
from ppl_models.descriptions.noisy_or import weight_of_failure

ORACLE = {  # exact held-out nats a row under the generating distribution
    "img": 12.080042, "plnt": 11.211516, "unif": 9.873747, "con8": 5.799547, "con24": 9.395459,
    "img_flip": 12.431491, "img_unif": 14.568577,
}  # fmt: skip


def test_designs() -> None:
    image = image_design()
    assert (image["failure"] == 0.1).sum(1).tolist() == [16, 16, 28, 8, 8, 20, 12, 9]
    picture = image["failure"][0].reshape(8, 8)
    assert bool(
        (picture == picture.flip(0)).all() & (picture == picture.flip(1)).all()
    )  # a diamond
    uniform = uniform_design()
    assert (uniform["failure"] < 1).sum(1).tolist() == [12, 17, 16, 14, 20, 12, 19, 19]
    assert bool(
        (
            (uniform["failure"] == 1) | ((uniform["failure"] > 0.05) & (uniform["failure"] < 0.2))
        ).all()
    )
    for edges in (8, 24):
        assert set((random_design(edges, seed=2)["failure"] == 0.1).sum(1).tolist()) == {edges}
    both = image_uniform_design()
    assert both["prior"].tolist() == [0.25] * 8 + [0.05] * 8
    assert float(both["leak"].max()) == 0.001
    with pytest.raises(ValueError, match="num_edges"):
        random_design(65)
    with pytest.raises(ValueError, match="num_items"):
        uniform_design(num_items=300)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_samples_match_all_single_and_pair_moments(seed: int) -> None:
    """P(all of S are zero) = prod (1 - l) prod (1 - pi + pi prod f), for all singles and pairs of
    40,000 rows.
    """
    truth = uniform_design(num_items=12)
    truth["leak"] = torch.full((12,), 0.05, dtype=torch.float64)
    zeros = 1 - sample_noisy_or(truth, 40_000, seed)[0]
    sets = [(j,) for j in range(12)] + list(itertools.combinations(range(12), 2))
    scores = []
    for items in sets:
        index = list(items)
        survive = (-weight_of_failure(truth["failure"][:, index]).sum(1)).exp()
        expected = float(
            0.95 ** len(items) * (1 - truth["prior"] + truth["prior"] * survive).prod()
        )
        scores.append(
            (float(zeros[:, index].prod(1).mean()) - expected)
            / (expected * (1 - expected) / 40_000) ** 0.5
        )
    assert max(abs(score) for score in scores) < 4.5
    assert np.std(scores) > 0.3


def test_flipped_rows() -> None:
    items = sample_noisy_or(image_design(), 2000, 0)[0]
    out, flipped = flip_columns(items, 0.1, 1)
    assert 130 < int(flipped.sum()) < 270
    assert torch.equal(out[~flipped], items[~flipped])
    assert torch.equal(out[flipped][:, ::4], 1 - items[flipped][:, ::4])
    assert torch.equal(out[flipped][:, 1::4], items[flipped][:, 1::4])
    with pytest.raises(ValueError, match="share"):
        flip_columns(items, 1.2)


@pytest.mark.parametrize("num_rows", [0, True, 2.0])
def test_a_number_of_rows_is_checked(num_rows: object) -> None:
    with pytest.raises(ValueError, match="num_rows"):
        sample_noisy_or(image_design(), num_rows)


def test_unknown_names_and_absent_files(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="img_unif"):
        load_noisy_or_sample("image")
    with pytest.raises(FileNotFoundError, match="PPL_MODELS_DATA"):
        load_noisy_or_sample("img")
    with pytest.raises(FileNotFoundError, match="PPL_MODELS_DATA"):
        load_plant_regions()
    with pytest.raises(FileNotFoundError, match="PPL_MODELS_DATA"):
        load_plant_base()
    np.savez(
        tmp_path / "plants.npz",
        x=np.zeros((2, 9), dtype=np.uint8),
        n_cols=70,
        regions=["ab"],
        names=["abelia"],
    )
    with pytest.raises(ValueError, match="sha256"):
        load_plant_regions()


def test_a_network_becomes_a_truth() -> None:
    failure = torch.tensor([[0.1, 0.5, 1.0], [0.1, 0.1, 0.1], [0.6, 0.5, 0.9]], dtype=torch.float64)
    params = {
        "prior": torch.tensor([0.2, 0.01, 0.3], dtype=torch.float64),
        "failure": failure,
        "leak": torch.zeros(3),
    }
    design = thresholded(params)
    assert design["prior"].tolist() == [0.2]  # one too rare, one without edges
    assert design["failure"].tolist() == [[0.1, 1.0, 1.0]]


@pytest.mark.data("noisy_or_overparam.npz")
def test_plnt_is_made_of_the_network_fitted_to_the_plants() -> None:
    plants = load_plant_regions()
    sample = load_noisy_or_sample("plnt")
    assert plants.items.shape == (34781, 70)
    assert plants.item_names == sample.item_names
    for name, value in thresholded(load_plant_base()).items():
        assert torch.equal(value, sample.truth[name])


@pytest.mark.data("noisy_or_overparam.npz")
@pytest.mark.parametrize("name", sorted(ORACLE))
def test_published_samples_under_their_distribution(name: str) -> None:
    """The digest is checked on loading; the likelihood of the held-out rows is that of the
    published table.
    """
    sample = load_noisy_or_sample(name)
    assert float(sample.truth["leak"].max()) < 0.5  # the files hold one minus the leak
    assert sample.held_out.shape[0] == 1000
    if name == "img_unif":  # 2^16 configurations: a few rows, and the designs
        assert torch.equal(sample.generator["failure"], image_uniform_design()["failure"])
        return
    model = NoisyOr(sample.items.shape[1], 8)
    rows = Program(model, sample.held_out).log_marginal_rows(sample.truth)
    if sample.flipped is not None:
        other = sample.held_out.clone()
        other[:, ::4] = 1 - other[:, ::4]
        flipped = Program(model, other).log_marginal_rows(sample.truth)
        rows = torch.logaddexp(rows + np.log(0.9), flipped + np.log(0.1))
    assert -float(rows.mean()) == pytest.approx(ORACLE[name], abs=1e-5)


@pytest.mark.data("noisy_or_overparam.npz")
def test_designs_equal_the_published_parameters() -> None:
    for name, design in (("img", image_design()), ("unif", uniform_design())):
        truth = load_noisy_or_sample(name).truth
        for site, value in design.items():
            torch.testing.assert_close(value, truth[site], atol=1e-7, rtol=0)

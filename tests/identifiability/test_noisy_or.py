"""Anchors of noisy-OR latents: against ranks of all moments, published truths, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from inference import EM, fit
from inference.identifiability import check_identifiability
from inference.identifiability.noisy_or import AnchorReport, check_anchors
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or
from ppl_models.datasets.noisy_or import load_noisy_or_sample


def moments(free: Tensor, edges: np.ndarray) -> Tensor:
    """P(all items of S are zero) of every set S, from priors, failures on the edges, and leaks."""
    m, items = edges.shape
    place = torch.from_numpy(np.where(edges, np.cumsum(edges).reshape(edges.shape), 0))
    prior, leak = free[:m], free[len(free) - items :]
    failure = torch.cat([free.new_ones(1), free[m:-items]])[place]
    sets = torch.tensor(list(itertools.product((0.0, 1.0), repeat=items)), dtype=free.dtype)
    through = (sets @ failure.log().mT).exp()  # (S, m)
    return (sets @ (1 - leak).log()).exp() * (1 - prior + prior * through).prod(1)


def determined(edges: np.ndarray, seed: int) -> np.ndarray:
    """Free numbers that no direction without effect on the moments touches, (P,) bool."""
    m, items = edges.shape
    draw = torch.Generator().manual_seed(seed)
    size = m + int(edges.sum()) + items
    free = 0.15 + 0.6 * torch.rand(size, generator=draw, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda value: moments(value, edges))(free)
    _, singular, axes = torch.linalg.svd(jacobian, full_matrices=True)
    rank = int((singular > 1e-11 * singular[0]).sum())
    return (axes[rank:].square().sum(0) < 1e-6).numpy()


def own_numbers(edges: np.ndarray, latent: int) -> np.ndarray:
    """Places of a latent's prior and failures among the free numbers."""
    place = len(edges) + np.cumsum(edges.ravel()).reshape(edges.shape) - 1
    return np.array([latent, *place[latent][edges[latent]]])


def test_verdicts_agree_with_the_rank_of_all_moments() -> None:
    """Over random graphs: what is called determined is so, and what is called not is not."""
    rng, counts = np.random.default_rng(5), {"determined": 0, "not determined": 0, "open": 0}
    for seed in range(60):
        m, items = int(rng.integers(1, 4)), int(rng.integers(3, 8))
        edges = rng.random((m, items)) < rng.uniform(0.25, 0.8)
        edges[np.arange(m), rng.integers(items, size=m)] = True
        failure = np.where(edges, 0.5, 1.0)
        sure = determined(edges, seed)
        for own in check_anchors(failure, [str(j) for j in range(items)]):
            mine = own_numbers(edges, own.latent)
            if own.verdict == "determined":
                assert sure[mine].all(), (edges, own)
            elif own.verdict == "not determined":
                assert not sure[mine].any() or not edges[own.latent].any(), (edges, own)
            elif own.verdict == "in part":
                assert sure[mine[0]], (edges, own)
            counts[own.verdict] = counts.get(own.verdict, 0) + 1
    assert min(counts["determined"], counts["not determined"], counts["open"]) >= 5, counts


def test_three_anchors_subtraction_and_two_items() -> None:
    edges = np.array(
        [
            [1, 1, 1, 1, 1, 0, 0, 0],  # three anchors, and two items that the second has too
            [0, 0, 0, 1, 1, 1, 1, 0],  # after the first is divided out
            [0, 0, 0, 0, 0, 0, 1, 1],  # two items
        ]
    )
    first, second, third = check_anchors(np.where(edges, 0.4, 1.0), list("abcdefgh"))
    assert (first.verdict, first.anchors, first.triple) == (
        "determined",
        tuple("abc"),
        tuple("abc"),
    )
    assert (first.after, second.after) == ((), (0,))
    assert second.verdict == "determined"
    assert second.anchors == ("f",)
    assert third.verdict == "not determined"
    assert third.anchors == ("h",)


def test_pictures_without_anchors() -> None:
    """Five of the eight patterns have no anchor; counts are those of the specification."""
    found = check_anchors(image_design()["failure"], [str(j) for j in range(64)])
    assert [len(own.anchors) for own in found] == [0, 0, 16, 0, 0, 3, 3, 0]
    assert {own.verdict for own in found} == {"determined"}  # all the same, by triples
    assert len(found[2].triple) == 3


@pytest.mark.data("noisy_or_overparam.npz")
@pytest.mark.parametrize(
    ("name", "anchors"),
    [
        ("plnt", [12, 5, 7, 8, 1, 9, 2, 2]),
        ("unif", [1, 2, 1, 0, 4, 2, 3, 3]),
        ("con8", [6, 3, 3, 2, 2, 2, 4, 2]),
        ("con24", [1, 0, 0, 0, 0, 2, 0, 3]),
    ],
)
def test_anchors_of_published_truths(name: str, anchors: list[int]) -> None:
    failure = load_noisy_or_sample(name).truth["failure"]
    found = check_anchors(failure, [str(j) for j in range(failure.shape[1])])
    assert [len(own.anchors) for own in found] == anchors
    assert {own.verdict for own in found} == {"determined"}


def test_report_of_a_fit() -> None:
    truth = {
        "prior": torch.tensor([0.3, 0.4], dtype=torch.float64),
        "failure": torch.tensor(
            [[0.1, 0.2, 0.1, 0.3, 1.0, 1.0], [1.0, 1.0, 1.0, 0.2, 0.2, 0.1]], dtype=torch.float64
        ),
        "leak": torch.full((6,), 0.02, dtype=torch.float64),
    }
    rows = sample_noisy_or(truth, 2000, seed=0)[0]
    result = fit(NoisyOr(6, 2), rows, EM(), init=truth)
    report = check_identifiability(result, data=rows)
    assert isinstance(report, AnchorReport)
    assert report.table["verdict"].tolist() == ["determined", "determined"]
    assert report.information is not None
    assert report.to_dict()["is_full_rank"]
    assert "determine 2 of 2 latents" in report.text()
    assert report.text().count("anchors") == 2

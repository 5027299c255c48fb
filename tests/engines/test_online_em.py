"""Stepwise EM as a start: what it averages, where it leads, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inference import EM, ChoosePenalty, OnlineEM, RowBlocks, StartsWarning, fit
from inference.base.outcome import ConvergenceWarning
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from ppl_models import (
    AttributeGroups,
    Bernoulli,
    DeepDiscreteEncoder,
    Hierarchy,
    LatentAttributeModel,
    Mixture,
    NegativeBinomial,
    TruncatedLasso,
)

CHANCES = torch.tensor([[0.9, 0.8, 0.9, 0.2, 0.1], [0.2, 0.1, 0.2, 0.7, 0.9]], dtype=torch.float64)
MODEL = Mixture(2, Bernoulli(), 5)
SHORT = EM(max_iterations=3, acceleration=None, start=OnlineEM(batch_rows=150))
FAR = {
    "weights": torch.tensor([0.5, 0.5]),
    "predictors": torch.tensor([[0.3, 0.2, 0.2, -0.2, -0.2], [-0.2, -0.2, -0.1, 0.2, 0.3]]),
}
FAR = {name: value.double() for name, value in FAR.items()}


def answers(num_rows: int, seed: int = 0, is_sorted: bool = False) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    group = torch.randint(2, (num_rows,), generator=draw)
    group = group.sort().values if is_sorted else group
    return (torch.rand(num_rows, 5, generator=draw, dtype=torch.float64) < CHANCES[group]).double()


def same_bits(one, other) -> None:
    for name, value in one.params.items():
        assert torch.equal(value, other.params[name]), name


@pytest.mark.parametrize(
    "weights_of_rows", [None, torch.arange(40) % 3 * 1.5], ids=["plain", "weighted"]
)
def test_the_average_is_that_of_the_equations(weights_of_rows):
    """Two batches by hand, from responsibilities written out here."""
    x = answers(40)
    problem = problem_of(MODEL, x, 3, start_given=True, weights=weights_of_rows)
    start = {name: value.unsqueeze(0) for name, value in FAR.items()}
    method = OnlineEM(batch_rows=16, rate=0.7)
    found = method.improved(problem, EM().steps(problem), start, NoProgress(), None)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    weights, chances, average = FAR["weights"], FAR["predictors"].sigmoid(), None
    excess = MODEL.components().concentration - 1
    for batch, step in ((order[:16], 1.0), (order[16:], 3**-0.7)):
        log_joint = (
            weights.log() + x[batch] @ chances.log().mT + (1 - x[batch]) @ (1 - chances).log().mT
        )
        share = log_joint.softmax(-1) * (
            1.0 if weights_of_rows is None else weights_of_rows[batch].double().unsqueeze(-1)
        )
        sums = torch.cat([share.sum(0).unsqueeze(-1), share.mT @ x[batch]], -1) * 40 / len(batch)
        average = sums if average is None else (1 - step) * average + step * sums
        weights = (average[:, 0] + excess) / (average[:, 0] + excess).sum()
        chances = average[:, 1:] / average[:, :1]
    assert torch.allclose(found["weights"][0], weights, atol=1e-10)
    assert torch.allclose(found["predictors"][0].sigmoid(), chances, atol=1e-10)


def test_a_pass_leads_further_than_as_many_rows_of_exact_em():
    """From a far start, one pass over the rows against one iteration; both then end in the same
    optimum, which has the truth beside it.
    """
    x = answers(20_000)
    exact = fit(MODEL, x, EM(acceleration=None), init=FAR)
    online = fit(MODEL, x, EM(acceleration=None, start=OnlineEM(batch_rows=500)), init=FAR)
    problem = problem_of(MODEL, x, 0, start_given=True)
    steps, start = EM().steps(problem), {name: value.unsqueeze(0) for name, value in FAR.items()}
    after = OnlineEM(batch_rows=500).improved(problem, steps, start, NoProgress(), None)
    values = {}
    for name, params in (("once", steps.m_step(steps.e_step(start)[0], start)), ("pass", after)):
        values[name] = float(steps.e_step(params)[1])
    assert exact.log_likelihood - values["pass"] < 0.1 * (exact.log_likelihood - values["once"])
    assert online.converged
    assert online.log_likelihood == pytest.approx(exact.log_likelihood, rel=1e-7)
    found = online.params["predictors"].sigmoid()
    assert (found[found[:, 0].argsort(descending=True)] - CHANCES).abs().max() < 0.03
    assert online.num_iterations < exact.num_iterations


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_table_memory_map_and_parquet_give_the_same_bits(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = answers(700).numpy()
    np.save(tmp_path / "x.npy", x.astype(np.int8))
    pq.write_table(
        pa.table({f"item_{j}": x[:, j].astype(np.int8) for j in range(5)}),
        tmp_path / "x.parquet",
        90,
    )
    sources = [x, tmp_path / "x.npy", tmp_path / "x.parquet"]
    whole, *others = [fit(MODEL, RowBlocks.of(source, 1000), SHORT, init=FAR) for source in sources]
    same_bits(whole, fit(MODEL, x, SHORT, init=FAR))
    for other in others:
        same_bits(whole, other)
    parts = [fit(MODEL, RowBlocks.of(source, 100), SHORT, init=FAR) for source in sources]
    same_bits(parts[0], parts[1])
    same_bits(parts[0], parts[2])


class Stops(NoProgress):
    """A bar that ends the run at a batch."""

    def __init__(self, at: int) -> None:
        self.left = at

    def update(self, *arguments: Any, **named: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [3, 8, 10], ids=["first pass", "last batch", "exact EM"])
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path: Path, at: int):
    x = answers(700)
    method = EM(
        max_iterations=6, start=OnlineEM(passes=2, batch_rows=150)
    )  # two passes of four batches
    problem = problem_of(MODEL, x, 0, start_given=True)
    start, path = {name: value.unsqueeze(0) for name, value in FAR.items()}, tmp_path / "fit.ckpt"
    whole = method.run(problem, start, NoProgress(), None)
    with pytest.raises(KeyboardInterrupt):
        method.run(problem, start, Stops(at), path)
    resumed = method.run(problem, start, NoProgress(), path)
    same_bits(whole, resumed)
    with pytest.raises(ValueError, match="another fit"):
        EM(max_iterations=6, start=OnlineEM(batch_rows=150)).run(problem, start, NoProgress(), path)


def test_passes_that_end_below_their_start_are_not_kept():
    x = answers(2000, is_sorted=True)
    good = fit(MODEL, x, EM()).params
    blocks = RowBlocks.of(x, block_rows=100)
    with pytest.warns(StartsWarning, match="sorted"):
        found = fit(MODEL, blocks, EM(max_iterations=50, start=OnlineEM(batch_rows=50)), init=good)
    for name, value in found.params.items():
        assert torch.allclose(value, good[name], atol=1e-3)


def test_penalised_encoders_end_where_they_do_without():
    model = DeepDiscreteEncoder(9, (3,), Bernoulli(), penalty=TruncatedLasso(20.0, 0.4))
    draw = torch.Generator().manual_seed(0)
    latents = torch.randint(2, (4000, 3), generator=draw).double()
    logits = 4 * latents.repeat_interleave(3, 1) - 2
    x = (torch.rand(4000, 9, generator=draw, dtype=torch.float64) < logits.sigmoid()).double()
    plain, online = fit(model, x, EM()), fit(model, x, EM(start=OnlineEM(batch_rows=500)))
    assert online.objective == pytest.approx(plain.objective, rel=1e-6)
    assert torch.equal(online.params["loadings_1"] != 0, plain.params["loadings_1"] != 0)


def test_what_has_no_sums_is_refused_by_name():
    counts = torch.arange(60).reshape(30, 2) % 7
    with pytest.raises(ValueError, match="M-step of this Mixture wants its rows"):
        fit(Mixture(2, NegativeBinomial(), 2), counts, EM(start=OnlineEM()))
    with pytest.raises(ValueError, match=r"OnlineEM\(\) or None, got .*parentheses"):
        EM(start=OnlineEM)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accelerate=True"):
        EM(start=OnlineEM(), accelerate=False)
    with pytest.raises(ValueError, match="without a start by OnlineEM"):
        ChoosePenalty(EM(start=OnlineEM()))
    for settings, words in (
        ({"passes": 0}, "passes"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"rate": 0.5}, "rate"),
        ({"rate": math.nan}, "rate"),
    ):
        with pytest.raises(ValueError, match=f"OnlineEM: {words}"):
            OnlineEM(**settings)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_weighted_rows_in_memory_and_in_blocks_give_the_same_answer():
    x, weights = answers(700), np.arange(700) % 4 * 0.75
    whole = fit(MODEL, x, SHORT, init=FAR, weights=weights)
    found = fit(MODEL, RowBlocks.of(x, 1000), SHORT, init=FAR, weights=weights)
    plain = fit(MODEL, x, SHORT, init=FAR)
    for name, value in whole.params.items():
        assert torch.allclose(found.params[name], value, rtol=1e-10)
        assert not torch.allclose(plain.params[name], value, rtol=1e-3)
    once = fit(MODEL, x, SHORT, init=FAR, weights=np.ones(700))
    for name, value in plain.params.items():
        assert torch.allclose(once.params[name], value, rtol=1e-10)


def test_a_saved_fit_knows_its_start(tmp_path: Path):
    x = answers(300)
    found = fit(MODEL, x, EM(start=OnlineEM(passes=2)))
    found.save(tmp_path / "fit")
    assert type(found).load(tmp_path / "fit").method == EM(start=OnlineEM(passes=2))


def test_a_batch_without_rows_of_a_group_says_nothing_of_it():
    items = LatentAttributeModel(
        ((1, 0), (0, 1), (1, 1)), Bernoulli(), "dino", Hierarchy((), concentration=1.0)
    )
    rows = torch.cat(
        [answers(30)[:, :3], (torch.arange(30) >= 28).double().unsqueeze(1)], 1
    )  # two rows of the second group
    with pytest.warns(ConvergenceWarning):
        found = fit(
            AttributeGroups(items, ("early", "late")),
            rows,
            EM(max_iterations=2, start=OnlineEM(batch_rows=2)),
            seed=1,
        )
    assert all(bool(value.isfinite().all()) for value in found.params.values())
    assert math.isfinite(found.log_likelihood)

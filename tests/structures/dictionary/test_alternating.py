"""Sparse coding: densities by hand, decoders against all supports, recovery of a truth, the paper's iteration, bad input."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pyro
import pytest
import torch
from scipy import optimize, stats

from inference import Fit, fit
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from inference.inspection import column_recovery, used_columns
from inference.programs.program import Program
from inference.structures.dictionary.alternating import AlternatingMinimization, GradientAlternation, refitted
from inference.structures.dictionary.codes import decode, fourth_moment_start, unit_columns
from inference.structures.dictionary.decoders import BackwardElimination, HardThresholding, Pursuit, Shrinkage
from ppl_models import SparseCoding
from ppl_models.datasets import load_paired_dictionary, local_file, paired_dictionary, sample_sparse_codes
from ppl_models.sparse_coding import SparseCodes

F64 = torch.float64
needs_file = pytest.mark.skipif(
    local_file("noisy_or_overparam.npz") is None, reason="the published dictionaries are not at hand"
)


def case(num_pairs=4, num_items=12, num_rows=600, sparsity=2, angle=20.0, noise=0.0, seed=0):
    truth = paired_dictionary(angle, num_pairs, num_items, seed)
    return truth, *sample_sparse_codes(truth, num_rows, sparsity, noise, seed)


# ---------------------------------------------------------------- the program


def test_the_law_of_codes() -> None:
    """Draws have k entries, every support is as likely as the others, and the density integrates to one."""
    law = SparseCodes(4, 2, torch.tensor(3.0, dtype=F64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = law.expand([6000]).sample()
    assert bool(((draws != 0).sum(-1) == 2).all())
    _, counts = torch.unique(draws != 0, dim=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6
    assert stats.kstest(draws[draws != 0].numpy() / 3, "uniform").pvalue > 1e-6
    volume = 6 * 3.0**2  # six squares of side 3
    assert float(law.log_prob(draws[0])) == pytest.approx(-math.log(volume))
    bad = torch.tensor([[1.0, 1.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]], dtype=F64)
    assert bool((law.log_prob(bad) == -torch.inf).all())
    assert law.expand([2, 3]).sample().shape == (2, 3, 4)


@pytest.mark.parametrize("noise", [0.3, None])
def test_the_reported_numbers_are_the_programs(noise: float | None, tmp_path: Path) -> None:
    truth, rows, _ = case(num_rows=80, noise=0.1)
    model = SparseCoding(12, 8, 2, noise=noise)
    result = fit(model, rows, AlternatingMinimization(max_iterations=200), num_restarts=3, seed=1)
    scale = 0.3 if noise else float(result.params["noise"])
    mean = result.local["codes"] @ result.params["dictionary"].T
    by_hand = stats.norm.logpdf(rows.numpy(), mean.numpy(), scale)
    assert result.log_likelihood == pytest.approx(by_hand.sum(), rel=1e-10)
    joint = Program(model, rows).log_joint(result.params | result.local, {})
    assert result.objective == pytest.approx(float(joint), rel=1e-9)
    assert float(result.restarts.objective.max()) == result.objective
    if noise is None:
        assert scale == pytest.approx(float((rows - mean).square().mean().sqrt()), rel=1e-6)
    assert result.num_parameters == 8 * 11 + int((result.local["codes"] != 0).sum()) + (noise is None)
    assert bool((result.local["codes"].sum(0).diff() <= 0).all())
    torch.testing.assert_close(result.params["dictionary"].norm(dim=0), torch.ones(8, dtype=F64))
    # rows as new rows: decoded again, at least about as well
    assert float(result.log_likelihood_rows(rows).sum()) >= by_hand.sum() - 0.02 * abs(by_hand.sum())
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == model
    assert again.method == result.method
    assert torch.equal(again.local["codes"], result.local["codes"])
    assert torch.equal(again.log_likelihood_rows(rows), result.log_likelihood_rows(rows))
    simulated = again.simulate(80, seed=3)
    assert abs(float((simulated["items"] - mean).std()) / scale - 1) < 0.2
    idata = result.to_arviz(rows)
    assert np.array_equal(idata["posterior"]["dictionary"].values[0, 0], result.params["dictionary"].numpy())
    assert idata["posterior"]["dictionary"].dims == ("chain", "draw", "item", "column")
    assert "codes" not in idata["posterior"]


def test_a_draw_of_the_program() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trace = pyro.poutine.trace(SparseCoding(5, 6, 2, noise=0.1, bound=2.0)).get_trace(None, 7)
    assert {name: tuple(trace.nodes[name]["value"].shape) for name in ("dictionary", "codes", "items")} == {
        "dictionary": (5, 6), "codes": (7, 6), "items": (7, 5),
    }  # fmt: skip
    residual = trace.nodes["items"]["value"] - trace.nodes["codes"]["value"] @ trace.nodes["dictionary"]["value"].T
    assert 0.03 < float(residual.std()) < 0.3


# ---------------------------------------------------------------- decoders


def best_support(row: np.ndarray, dictionary: np.ndarray, sparsity: int) -> float:
    """Smallest residual over all supports, by scipy's non-negative least squares."""
    return min(
        optimize.nnls(dictionary[:, list(chosen)], row)[1]
        for chosen in itertools.combinations(range(dictionary.shape[1]), sparsity)
    )


def test_decoders_against_all_supports() -> None:
    """No decoder beats the best support; the default finds it nearly always, and more often than the others."""
    truth, rows, _ = case(num_rows=60, sparsity=3, angle=30.0, noise=0.02)
    best = np.array([best_support(row, truth.numpy(), 3) for row in rows.numpy()])
    share = {}
    for decoder in (BackwardElimination(), HardThresholding(), Pursuit()):
        codes = decode(decoder, rows, truth.unsqueeze(0), 3)[0]
        assert bool((codes >= 0).all())
        assert bool(((codes > 0).sum(-1) <= 3).all())
        found = (rows - codes @ truth.T).norm(dim=-1).numpy()
        assert (found >= best - 1e-9).all()
        share[type(decoder).__name__] = (found <= best + 1e-6).mean()
        for row, code in zip(rows.numpy(), codes.numpy(), strict=True):  # the best amounts on what it chose
            on = np.flatnonzero(code)
            amounts, _ = optimize.nnls(truth.numpy()[:, on], row)
            np.testing.assert_allclose(code[on], amounts, atol=1e-7)
    assert share["BackwardElimination"] > 0.95
    assert share["BackwardElimination"] > max(share["HardThresholding"], share["Pursuit"])


def test_decoders_take_restarts_and_more_columns_than_items() -> None:
    generator = torch.Generator().manual_seed(0)
    dictionaries = unit_columns(torch.randn(3, 6, 14, generator=generator, dtype=F64))
    rows = sample_sparse_codes(dictionaries[1], 40, 2)[0]
    for decoder in (BackwardElimination(), HardThresholding(), Pursuit(), Shrinkage()):
        together = decode(decoder, rows, dictionaries, 2)
        assert together.shape == (3, 40, 14)
        for r in range(3):
            torch.testing.assert_close(together[r], decode(decoder, rows, dictionaries[r : r + 1], 2)[0])
    errors = [
        float((rows - decode(decoder, rows, dictionaries, 2)[1] @ dictionaries[1].T).square().sum())
        for decoder in (BackwardElimination(), Pursuit())
    ]
    assert errors[0] < errors[1]


def test_shrinkage_is_the_papers_formula() -> None:
    truth, rows, _ = case(num_rows=30)
    codes = decode(Shrinkage(0.01), rows, truth.unsqueeze(0), 2)[0].numpy()
    np.testing.assert_allclose(codes, np.maximum(0, rows.numpy() @ np.linalg.pinv(truth.numpy()).T - 0.01), atol=1e-10)


# ---------------------------------------------------------------- fits


def test_fourth_moments_rise_and_do_not_depend_on_the_start() -> None:
    _, rows, _ = case(num_rows=3000, angle=60.0)
    values, dictionaries = [], []
    for seed in range(3):
        dictionaries.append(fourth_moment_start(rows, 8, torch.Generator().manual_seed(seed)))
        codes = torch.linalg.lstsq(dictionaries[-1], rows.T).solution.T
        codes = codes / codes.square().mean(0).sqrt()
        values.append(float((codes**4).mean(0).sum()))
    assert max(values) - min(values) < 1e-4 * max(values)
    assert column_recovery(dictionaries[0], dictionaries[1], threshold=1e-6).is_full
    short = fourth_moment_start(rows, 8, torch.Generator().manual_seed(0), num_steps=1)
    codes = torch.linalg.lstsq(short, rows.T).solution.T
    assert float(((codes / codes.square().mean(0).sqrt()) ** 4).mean(0).sum()) < values[0]


@pytest.mark.parametrize("noise", [0.0, 0.002])
@pytest.mark.parametrize("seed", [0, 1])
def test_near_columns_are_told_apart(noise: float, seed: int) -> None:
    """Pairs five degrees apart, by a fit that names no method."""
    truth, rows, codes = case(num_pairs=5, num_items=30, num_rows=2500, sparsity=3, angle=5.0, noise=noise, seed=seed)
    result = fit(SparseCoding(30, 10, 3, noise=None), rows, seed=seed)
    score = column_recovery(result.params["dictionary"], truth)
    assert score.is_full
    assert float(score.angle.max()) < (1e-4 if noise == 0 else 1.0)
    found = result.local["codes"][:, list(score.match)]
    assert float(((found > 0) == (codes > 0)).double().mean()) > (0.999 if noise == 0 else 0.9)
    if noise:
        assert float(result.params["noise"]) == pytest.approx(noise, rel=0.1)


@needs_file
@pytest.mark.parametrize("angle", [5, 10])
def test_the_published_dictionaries_are_recovered(angle: int) -> None:
    """The rows of the paper, where its own algorithm finds 8.7 and 19.8 of 24 columns on average."""
    published = json.loads((Path(__file__).parents[2] / "references" / "sparse_coding.json").read_text())
    truth = load_paired_dictionary(angle)
    rows, codes = sample_sparse_codes(truth, 10_000)
    assert float(rows.square().sum()) == pytest.approx({5: 2936.681712, 10: 2895.924048}[angle], abs=1e-6)
    assert codes[0].nonzero().ravel().tolist() == [10, 11, 14, 20, 22]
    result = fit(SparseCoding(100, 24, 5), rows[1000:4000])
    score = column_recovery(result.params["dictionary"], truth)
    assert score.num_recovered == 24 > published[f"{angle} degrees"]["48"]["recovered_mean"]
    assert score.error < 1e-6
    assert len(used_columns(result.params["dictionary"], rows[1000:])) == 24


def test_more_columns_than_there_are() -> None:
    """Twelve noisy items of rank twelve, columns beyond the eight true ones; the objective never falls."""
    truth, rows, _ = case(num_rows=300, noise=0.05)
    result = fit(SparseCoding(12, 10, 2), rows, AlternatingMinimization(tolerance=1e-4), num_restarts=4)
    assert bool((result.trace.objective.diff() >= -1e-12).all())
    assert result.trace.name == "minus squared error"


def test_a_column_that_nobody_uses_starts_anew() -> None:
    truth, rows, codes = case(num_rows=50)
    dictionary = torch.stack([truth, truth])
    codes = torch.stack([codes, codes])
    codes[0, :, 3] = 0.0
    new, scaled = refitted(rows, dictionary, codes)
    residual = rows - scaled[0] @ new[0].T
    worst = rows - codes[0] @ torch.linalg.lstsq(codes[0], rows, driver="gelsd").solution
    worst = worst[worst.norm(dim=-1).argmax()]
    torch.testing.assert_close(new[0, :, 3], worst / worst.norm())
    assert float(residual.square().sum()) < float((rows - codes[0] @ truth.T).square().sum())
    torch.testing.assert_close(new[1], truth, atol=1e-8, rtol=0)


def test_gradient_alternation_by_hand() -> None:
    """Two restarts of one epoch, against numpy with the same order of the rows."""
    truth, rows, _ = case(num_rows=50)
    problem = problem_of(SparseCoding(12, 8, 2), rows, 5)
    generator = torch.Generator().manual_seed(1)
    start = unit_columns(torch.randn(2, 12, 8, generator=generator, dtype=F64))
    method = GradientAlternation(step=0.3, batch_size=20, num_epochs=1)
    found = method.run(problem, {"dictionary": start}, NoProgress(), None)
    order = torch.rand(2, 50, generator=torch.Generator().manual_seed(5)).argsort(-1).numpy()
    for r in range(2):
        a = start[r].numpy().copy()
        for first in range(0, 50, 20):
            x = rows.numpy()[order[r, first : first + 20]]
            h = np.maximum(0, x @ np.linalg.pinv(a).T - 0.005)
            a = a - 0.3 * ((h @ a.T - x).T @ h) / len(x)
            a /= np.linalg.norm(a, axis=0)
        np.testing.assert_allclose(found.params["dictionary"][r].numpy(), a, atol=1e-9)


def test_fits_start_where_told() -> None:
    truth, rows, _ = case(num_rows=400, angle=40.0)
    first = fit(SparseCoding(12, 8, 2), rows, AlternatingMinimization(), init={"dictionary": 0.5 * truth})
    assert column_recovery(first.params["dictionary"], truth).error < 1e-8
    again = fit(SparseCoding(12, 8, 2), rows, AlternatingMinimization(), init=first)
    assert again.num_iterations <= 2


# ---------------------------------------------------------------- metrics


def test_recovery_by_hand() -> None:
    truth = paired_dictionary(5.0, 2, 6, seed=0)
    inner = (truth.T @ truth)[torch.tensor([0, 2]), torch.tensor([1, 3])]
    torch.testing.assert_close(torch.rad2deg(torch.acos(inner)), torch.full((2,), 5.0, dtype=F64))
    turned = 3.0 * truth[:, [2, 0, 1, 3]]
    score = column_recovery(turned, truth)
    assert score.is_full
    assert score.match == (1, 2, 0, 3)
    middle = torch.stack([truth[:, 0] + truth[:, 1], truth[:, 2], truth[:, 3]], 1)
    score = column_recovery(middle, truth)
    assert score.num_recovered == 3  # the midpoint passes for one of the two
    assert sorted(score.match)[0] == -1
    angles = score.angle[~score.angle.isnan()]
    assert float(angles.max()) == pytest.approx(2.5, abs=1e-6)
    assert score.error == pytest.approx((2 * math.sin(math.radians(1.25))) ** 2, rel=1e-6)
    flipped = column_recovery(-truth, truth)
    assert flipped.num_recovered == 0


def test_used_columns() -> None:
    truth, rows, _ = case(num_rows=100)
    away = torch.randn(12, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    away -= truth @ torch.linalg.lstsq(truth, away).solution
    assert used_columns(torch.cat([unit_columns(away), truth], 1), rows) == list(range(1, 9))


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SparseCoding(4, 0, 1), "num_columns must be a positive integer"),
        (lambda: SparseCoding(4, 3, 4), "sparsity must be at most num_columns = 3"),
        (lambda: SparseCoding(2, 3, 3), "sparsity must be at most num_items = 2"),
        (lambda: SparseCoding(4, 3, 1, noise=0.0), "noise must lie in"),
        (lambda: SparseCoding(4, 3, 1, bound=math.inf), "bound must be positive"),
        (lambda: SparseCoding(4, 3, 1)(), "give data, or num_rows"),
        (lambda: fit(SparseCoding(2, 1, 1), [[1.0, math.nan], [3.0, 1.0]]), "needs complete rows; row 0, column '1'"),
        (lambda: fit(SparseCoding(2, 2, 1), [[1.0, 2.0]]), "at least as many rows"),
        (lambda: fit(SparseCoding(2, 1, 1), [[0.0, 0.0], [0.0, 0.0]]), "every entry is zero"),
        (lambda: fit(SparseCoding(3, 1, 1), [[1.0, 2.0]]), "num_items = 3 columns"),
        (lambda: fit(SparseCoding(2, 1, 1), [[1.0, 2.0], [3.0, 1.0]], checkpoint="x"), "not checkpointed"),
        (lambda: AlternatingMinimization(decoder=Shrinkage()), "keeps to the sparsity"),
        (lambda: AlternatingMinimization(max_iterations=0), "max_iterations must be an integer of at least 1"),
        (lambda: AlternatingMinimization(tolerance=0.0), "tolerance must be positive"),
        (lambda: GradientAlternation(step=-1.0), "step must be positive"),
        (lambda: GradientAlternation(batch_size=2.5), "batch_size must be an integer"),
        (lambda: Shrinkage(-1.0), "threshold must not be negative"),
        (lambda: BackwardElimination(num_sweeps=0), "num_sweeps must be a positive integer"),
        (lambda: HardThresholding(num_steps=0), "num_steps must be a positive integer"),
        (lambda: paired_dictionary(0.0), "angle must lie in"),
        (lambda: load_paired_dictionary(7), "angle must be one of"),
        (lambda: sample_sparse_codes(torch.eye(3, dtype=F64), 5, sparsity=4), "sparsity must lie in 1..3"),
        (lambda: sample_sparse_codes(torch.eye(3, dtype=F64), 0, sparsity=1), "num_rows must be a positive integer"),
        (lambda: column_recovery(torch.eye(3), torch.eye(4)), "one J were expected"),
        (lambda: column_recovery(torch.zeros(3, 2), torch.eye(3)), "column 0 of dictionary is zero"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()

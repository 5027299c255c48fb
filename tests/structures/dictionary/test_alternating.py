"""Alternating minimization: recovery of a truth, the paper's iteration, bad input."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from papers.sparse_coding import load_paired_dictionary
from scipy import optimize, stats
from support.files import case

from inference import NUTS, SVI, Fit, Laplace, fit
from inference.base.outcome import BoundWarning, ConvergenceWarning, EstimateWarning
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from inference.inspection import column_recovery
from inference.inspection.dictionary import used_columns
from inference.programs.program import Program
from inference.structures.dictionary.alternating import (
    AlternatingMinimization,
    GradientAlternation,
    refitted,
)
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    HardThresholding,
    Pursuit,
    Shrinkage,
    decode,
    fourth_moment_start,
    unit_columns,
)
from ppl_models import SparseCoding
from ppl_models.datasets import paired_dictionary, sample_sparse_codes

F64 = torch.float64


@pytest.mark.parametrize("method", [SVI(num_steps=20), NUTS(20, warmup_steps=20), Laplace()])
def test_continuous_draws_of_codes_are_refused(method: Any) -> None:
    _, rows, _ = case(num_rows=40, noise=0.1)
    with pytest.raises(ValueError, match="cannot fit SparseCoding: codes with at most 2 entries"):
        fit(SparseCoding(12, 8, 2), rows, method)


def test_a_dictionary_alone_is_a_start() -> None:
    truth, rows, _ = case(num_rows=200, noise=0.1)
    found = fit(SparseCoding(12, 8, 2), rows, AlternatingMinimization(), init={"dictionary": truth})
    again = fit(SparseCoding(12, 8, 2), rows, AlternatingMinimization(), init=found)
    assert again.objective == pytest.approx(found.objective, rel=1e-3)
    assert float(found.params["noise"]) == pytest.approx(0.1, abs=0.03)


# ---------------------------------------------------------------- reported numbers


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
    assert result.num_parameters == 8 * 11 + int((result.local["codes"] != 0).sum()) + (
        noise is None
    )
    assert bool((result.local["codes"].sum(0).diff() <= 0).all())
    torch.testing.assert_close(result.params["dictionary"].norm(dim=0), torch.ones(8, dtype=F64))
    # rows as new rows: decoded again, at least about as well
    assert float(result.log_likelihood_rows(rows).sum()) >= by_hand.sum() - 0.02 * abs(
        by_hand.sum()
    )
    result.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == model
    assert again.method == result.method
    assert torch.equal(again.local["codes"], result.local["codes"])
    assert torch.equal(again.log_likelihood_rows(rows), result.log_likelihood_rows(rows))
    simulated = again.simulate(80, seed=3)
    assert abs(float((simulated["items"] - mean).std()) / scale - 1) < 0.2
    idata = result.to_arviz(rows)
    assert np.array_equal(
        idata["posterior"]["dictionary"].values[0, 0], result.params["dictionary"].numpy()
    )
    assert idata["posterior"]["dictionary"].dims == ("chain", "draw", "item", "column")
    assert "codes" not in idata["posterior"]


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
    truth, rows, codes = case(
        num_pairs=5, num_items=30, num_rows=2500, sparsity=3, angle=5.0, noise=noise, seed=seed
    )
    with (
        nullcontext() if noise else pytest.warns(BoundWarning, match=r"noise\[0\]")
    ):  # rows without noise have no best one
        result = fit(SparseCoding(30, 10, 3, noise=None), rows, seed=seed)
    score = column_recovery(result.params["dictionary"], truth)
    assert score.is_full
    assert float(score.angle.max()) < (1e-4 if noise == 0 else 1.0)
    found = result.local["codes"][:, list(score.match)]
    assert float(((found > 0) == (codes > 0)).double().mean()) > (0.999 if noise == 0 else 0.9)
    if noise:
        assert float(result.params["noise"]) == pytest.approx(noise, rel=0.1)


@pytest.mark.data("noisy_or_overparam.npz")
@pytest.mark.parametrize("angle", [5, 10])
def test_the_published_dictionaries_are_recovered(angle: int) -> None:
    """The rows of the paper, where its own algorithm finds 8.7 and 19.8 of 24 columns on
    average.
    """
    published = json.loads(
        (Path(__file__).parents[2] / "references" / "sparse_coding.json").read_text()
    )
    truth = load_paired_dictionary(angle)
    rows, codes = sample_sparse_codes(truth, 10_000)
    assert float(rows.square().sum()) == pytest.approx(
        {5: 2936.681712, 10: 2895.924048}[angle], abs=1e-6
    )
    assert codes[0].nonzero().ravel().tolist() == [10, 11, 14, 20, 22]
    with pytest.warns(BoundWarning, match=r"noise\[0\]"):  # rows without noise have no best one
        result = fit(SparseCoding(100, 24, 5), rows[1000:4000])
    score = column_recovery(result.params["dictionary"], truth)
    assert score.num_recovered == 24 > published[f"{angle} degrees"]["48"]["recovered_mean"]
    assert score.error < 1e-6
    assert len(used_columns(result.params["dictionary"], rows[1000:])) == 24


def test_more_columns_than_there_are() -> None:
    """Twelve noisy items of rank twelve, columns beyond the eight true ones; the objective never
    falls.
    """
    truth, rows, _ = case(num_rows=300, noise=0.05)
    with pytest.warns(
        EstimateWarning, match=r"standard deviation is 0.04\d*, but noise = 0.001 was stated"
    ):
        result = fit(
            SparseCoding(12, 10, 2, noise=0.001),
            rows,
            AlternatingMinimization(tolerance=1e-4),
            num_restarts=4,
        )
    assert bool((result.trace.objective.diff() >= -1e-12).all())
    assert result.trace.name == "minus squared error"


def test_codes_of_both_signs_contradict_the_model() -> None:
    """Failed before: "converged", at a log-likelihood of minus millions, without a word."""
    truth, rows, codes = case(num_rows=200, noise=0.01)
    generator = torch.Generator().manual_seed(0)
    signs = 2.0 * torch.randint(0, 2, codes.shape, generator=generator) - 1
    method = AlternatingMinimization(max_iterations=50, tolerance=1e-4)
    with pytest.warns(
        EstimateWarning,
        match="residuals contradict the model.*codes of both signs need a column for each sign",
    ):
        fit(SparseCoding(12, 8, 2, noise=0.01), rows + (codes * (signs - 1)) @ truth.mT, method)
    assert fit(SparseCoding(12, 8, 2, noise=0.01), rows, method).warnings == ()


@pytest.mark.parametrize("kind", ["as measured", "centred", "both signs"])
def test_rows_with_a_mean_of_zero_are_outside_the_model(kind: str) -> None:
    """Failed before where the noise is estimated: nothing else tells codes of both signs."""
    truth, rows, codes = case(num_rows=600, noise=0.01)
    if kind == "centred":
        rows = rows - rows.mean(0)
    if kind == "both signs":
        generator = torch.Generator().manual_seed(0)
        signs = 2.0 * torch.randint(0, 2, codes.shape, generator=generator) - 1
        rows = rows + (codes * (signs - 1)) @ truth.mT
    model, method = SparseCoding(12, 8, 2, noise=None), AlternatingMinimization(tolerance=1e-3)
    with (
        pytest.warns(EstimateWarning, match="rows have a mean of zero.* were centred, or codes of")
        if kind != "as measured"
        else nullcontext()
    ):
        fit(model, rows, method)


def test_rows_asked_again_are_explained_as_well_as_in_the_fit() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(6, 4))  # more of them than items: one decoder alone errs often
    codes = (rng.random((200, 6)) < 0.3) * rng.gamma(2, 1, (200, 6))
    rows = codes @ columns + 0.05 * rng.normal(size=(200, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one start alone reached the best optimum
        found = fit(SparseCoding(num_columns=6, sparsity=2), rows)
    dictionary = found.params["dictionary"].numpy()
    best = np.min(
        [
            [optimize.nnls(dictionary[:, two], row)[1] ** 2 for row in rows]
            for two in itertools.combinations(range(6), 2)
        ],
        axis=0,
    )
    error = ((rows - found.reconstruct(rows).numpy()) ** 2).sum(1)
    assert error.sum() < 1.01 * best.sum()
    assert float(found.log_likelihood_rows(rows).sum()) > found.log_likelihood - 1e-6


def test_rows_are_reconstructed_from_their_own_codes() -> None:
    truth, rows, _ = case(num_rows=120, noise=0.01)
    result = fit(SparseCoding(12, 8, 2, noise=None), rows[:100], seed=1)
    dictionary = result.params["dictionary"]
    again = decode(BackwardElimination(), rows[100:], dictionary.unsqueeze(0), 2)[0]
    torch.testing.assert_close(result.reconstruct(rows[100:]), again @ dictionary.mT)
    assert float((result.reconstruct(rows) - rows).square().mean().sqrt()) < 0.02


def test_refits_with_supports_held_keep_the_answer() -> None:
    """The same dictionary as decoding after every step, in fewer decodings; errors never rise."""
    truth, rows, _ = case(num_rows=600, angle=40.0, noise=0.01)
    fits = [
        fit(SparseCoding(12, 8, 2, noise=None), rows, AlternatingMinimization(num_refits=number))
        for number in (0, 3)
    ]
    for found in fits:
        assert column_recovery(found.params["dictionary"], truth).is_full
        assert bool((found.trace.objective.diff() >= 0).all())
    assert fits[1].objective == pytest.approx(fits[0].objective, abs=1.0)
    assert 2 * fits[1].num_iterations < fits[0].num_iterations


def test_unused_and_repeated_columns_are_named() -> None:
    truth, rows, codes = case(num_rows=50)
    problem = problem_of(SparseCoding(12, 8, 2), rows, 0)
    twice, none = truth.clone(), codes.clone()
    twice[:, 5] = truth[:, 2]
    none[:, [3, 4]] = 0.0
    assert problem.structure.concerns(problem, {"dictionary": truth, "codes": codes}) == []
    assert problem.structure.concerns(problem, {"dictionary": truth, "codes": none})[0].startswith(
        "no row uses columns 3 and 4 of the dictionary: 6 of the 8 columns"
    )
    assert problem.structure.concerns(problem, {"dictionary": twice, "codes": codes})[0].startswith(
        "columns 2 and 5 of the dictionary are copies of each other"
    )
    at_bound = {"dictionary": truth, "codes": codes, "noise": torch.tensor([1e-6], dtype=F64)}
    assert problem.structure.at_bound(at_bound) == ["noise[0]"]


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
    model = SparseCoding(12, 8, 2, noise=0.001)
    first = fit(model, rows, AlternatingMinimization(), init={"dictionary": 0.5 * truth})
    assert column_recovery(first.params["dictionary"], truth).error < 1e-8
    again = fit(model, rows, AlternatingMinimization(), init=first)
    assert again.num_iterations <= 2


class Interrupted(NoProgress):
    """Ctrl-C after a number of iterations."""

    def __init__(self, left: int) -> None:
        self.left = left

    def update(self, *arguments: Any, **named: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "method",
    [
        AlternatingMinimization(Pursuit(), tolerance=1e-15, max_iterations=28),
        GradientAlternation(num_epochs=45),
    ],
    ids=lambda method: type(method).__name__,
)
def test_an_interrupted_run_resumes_to_the_same_answer(
    method: AlternatingMinimization | GradientAlternation, tmp_path: Path
) -> None:
    _, rows, _ = case(num_rows=60, noise=0.3)
    problem = problem_of(SparseCoding(12, 8, 2), rows, 1)
    start = {
        "dictionary": torch.stack([unit_columns(rows[k : k + 8].T) for k in range(2)]),
        "codes": torch.zeros(2, 60, 8, dtype=F64),
    }
    start["codes"][:, :, :2] = 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # both are cut short
        whole = method.run(problem, start, NoProgress(), None)
        with pytest.raises(KeyboardInterrupt):
            method.run(
                problem, start, Interrupted(23), tmp_path / "run"
            )  # the file is written after twenty
        resumed = method.run(problem, start, NoProgress(), tmp_path / "run")
    assert len(whole.history) > 23
    assert torch.equal(whole.history, resumed.history)
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name])
    with pytest.raises(ValueError, match="belongs to another fit"):
        method.run(
            problem_of(SparseCoding(12, 8, 2), rows, 2), start, NoProgress(), tmp_path / "run"
        )


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SparseCoding(4, 0, 1), "num_columns must be a positive integer"),
        (lambda: SparseCoding(num_columns=5), "sparsity, how many columns.*was expected"),
        (lambda: SparseCoding(4, 3, 4), "sparsity must be at most num_columns = 3"),
        (lambda: SparseCoding(2, 3, 3), "sparsity must be at most num_items = 2"),
        (lambda: SparseCoding(4, 3, 1, noise=0.0), "noise must lie in"),
        (lambda: SparseCoding(4, 3, 1, bound=math.inf), "bound must be positive"),
        (lambda: SparseCoding(4, 3, 1)(), "give data, or num_rows"),
        (
            lambda: fit(SparseCoding(2, 1, 1), [[1.0, math.nan], [3.0, 1.0]]),
            "needs complete rows; row 0, column '1'",
        ),
        (lambda: fit(SparseCoding(2, 2, 1), [[1.0, 2.0]]), "at least as many rows"),
        (lambda: fit(SparseCoding(2, 1, 1), [[0.0, 0.0], [0.0, 0.0]]), "every entry is zero"),
        (lambda: fit(SparseCoding(3, 1, 1), [[1.0, 2.0]]), "num_items = 3 columns"),
        (lambda: AlternatingMinimization(decoder=Shrinkage()), "keeps to the sparsity"),
        (
            lambda: AlternatingMinimization(max_iterations=0),
            "max_iterations must be an integer of at least 1",
        ),
        (lambda: AlternatingMinimization(tolerance=0.0), "tolerance must be positive"),
        (lambda: AlternatingMinimization(num_refits=-1), "num_refits must be an integer of at"),
        (lambda: GradientAlternation(step=-1.0), "step must be positive"),
        (lambda: GradientAlternation(batch_size=2.5), "batch_size must be an integer"),
        (lambda: Shrinkage(-1.0), "threshold must not be negative"),
        (lambda: BackwardElimination(num_sweeps=0), "num_sweeps must be a positive integer"),
        (lambda: HardThresholding(num_steps=0), "num_steps must be a positive integer"),
        (lambda: paired_dictionary(0.0), "angle must lie in"),
        (lambda: load_paired_dictionary(7), "angle must be one of"),
        (
            lambda: sample_sparse_codes(torch.eye(3, dtype=F64), 5, sparsity=4),
            "sparsity must lie in 1..3",
        ),
        (
            lambda: sample_sparse_codes(torch.eye(3, dtype=F64), 0, sparsity=1),
            "num_rows must be a positive integer",
        ),
        (lambda: column_recovery(torch.eye(3), torch.eye(4)), "one J were expected"),
        (
            lambda: column_recovery(torch.zeros(3, 2), torch.eye(3)),
            "column 0 of dictionary is zero",
        ),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()

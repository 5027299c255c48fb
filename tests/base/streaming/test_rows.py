"""The first pass over rows in blocks: what it checks, what it keeps, and later passes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, NUTS, RowBlocks, fit
from inference.base.streaming import row_blocks as drawing
from inference.base.streaming.rows import check_rows
from inference.bootstrap import bootstrap
from inference.structures.factorization import factorize
from inference.structures.factorization.factorize import Course, Factorize
from inference.uncertainty import distance_to_optimum
from ppl_models import (
    Categorical,
    DeepDiscreteEncoder,
    FactorAnalysis,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    NegativeBinomial,
    NoisyOr,
    Normal,
    OptionsHMM,
    PoissonFactorization,
    SparseCoding,
)
from ppl_models.data.tables import ConstantColumnWarning

NUM_ROWS = 400


def bits(num_rows: int = NUM_ROWS, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    group = rng.random(num_rows) < 0.4
    return (rng.random((num_rows, 6)) < np.where(group[:, None], 0.8, 0.2)).astype(np.int8)


def measured(num_rows: int = NUM_ROWS) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.where(
        rng.random((num_rows, 1)) < 0.4,
        rng.normal(2.0, 1.0, (num_rows, 3)),
        rng.normal(-1.0, 0.6, (num_rows, 3)),
    )


def mixture(rows: Any, **settings: Any) -> Any:
    return fit(Mixture(2, Normal(), 3), rows, EM(**settings))


@pytest.fixture
def few_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.base.streaming.row_blocks.SAMPLE_ROWS", 50)


def test_blocks_are_fitted_as_rows_in_memory(tmp_path: Path) -> None:
    rows = measured()
    rows[-1, 2] = np.nan  # in the last block alone
    np.save(tmp_path / "rows.npy", rows)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.to_parquet(tmp_path / "rows.parquet")
    whole = mixture(rows)
    found = [
        mixture(RowBlocks.of(source, 64))
        for source in (rows, tmp_path / "rows.npy", tmp_path / "rows.parquet")
    ]
    for name, value in whole.params.items():
        assert torch.allclose(value, found[0].params[name], rtol=1e-9)
        assert torch.equal(found[0].params[name], found[1].params[name])
        assert torch.equal(found[0].params[name], found[2].params[name])
    assert found[0].bic == pytest.approx(whole.bic, rel=1e-12)
    assert found[2].item_names == ("a", "b", "c")
    assert found[0].num_rows == NUM_ROWS
    assert found[0].warnings == whole.warnings


def test_starts_come_from_a_sample_that_knows_what_a_sample_may_miss(few_drawn: None) -> None:
    rows = measured()
    rows[377, 1], rows[5, 0], rows[399, 2] = np.nan, 9.0, -8.0
    checked, sample, _ = check_rows(Mixture(2, Normal(), 3), RowBlocks.of(rows, 64), seed=0)
    assert 50 <= len(sample) <= 50 + 7
    assert checked.num_rows == NUM_ROWS
    assert torch.equal(checked.take(rows[:3]), torch.from_numpy(rows[:3]))
    assert bool(sample.isnan().any())
    assert float(sample[:, 0].nan_to_num().max()) == 9.0
    assert float(sample[:, 2].min()) == -8.0
    in_blocks, whole = mixture(RowBlocks.of(rows, 64)), mixture(rows)
    assert in_blocks.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-6)
    plain_call = fit(Mixture(2, Normal(), 3), RowBlocks.of(rows, 64))
    assert plain_call.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-6)


@pytest.mark.parametrize("form", ["array", "frame", "parquet"])
def test_a_sample_does_not_depend_on_how_its_pieces_are_kept(
    form: str, few_drawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of pieces of a few rows are joined while they come: the sample is that of one
    piece.
    """
    rows: Any = measured()
    if form != "array":
        rows = pd.DataFrame(rows, columns=["a", "b", "c"])
    if form == "parquet":
        rows.to_parquet(tmp_path / "rows.parquet")
        rows = tmp_path / "rows.parquet"
    model = Mixture(2, Normal(), 3)
    one, expected, _ = check_rows(model, RowBlocks.of(rows, NUM_ROWS), seed=0)
    monkeypatch.setattr("inference.base.streaming.rows.PIECE_ROWS", 3)
    monkeypatch.setattr("inference.base.streaming.rows.JOINED_PARTS", 4)
    pieces, sample, _ = check_rows(model, RowBlocks.of(rows, NUM_ROWS), seed=0)
    assert np.array_equal(one.sampled, pieces.sampled)
    assert torch.equal(sample, expected)


def test_categories_by_name_and_rare_ones(few_drawn: None) -> None:
    answers = pd.DataFrame(np.where(bits() == 1, "yes", "no"), columns=list("abcdef"))
    answers.loc[371, "c"] = "perhaps"
    model = Mixture(2, Categorical.from_frame(answers), 6)
    found, whole = fit(model, RowBlocks.of(answers, 64), EM()), fit(model, answers, EM())
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-5)
    assert found.item_names == tuple("abcdef")


def whole_and_in_blocks(model: Any, rows: Any, weights: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations
        return tuple(
            fit(model, data, EM(max_iterations=5), weights=weights)
            for data in (rows, RowBlocks.of(rows, 41))
        )  # type: ignore[return-value]


WEIGHTED = {
    "mixture": (Mixture(2, Normal(), 3), measured()),
    "hidden Markov": (HiddenMarkov(2, Normal(), 3), measured().reshape(80, 5, 3)),
    "encoder": (DeepDiscreteEncoder(6, (2, 1), penalty=None), bits()),
    "attributes": (
        LatentAttributeModel(np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [1, 1]])),
        bits(),
    ),
    "noisy or": (NoisyOr(6, 2), bits()),
}


@pytest.mark.parametrize("family", WEIGHTED)
def test_rows_in_blocks_count_as_their_weights_say(family: str) -> None:
    model, rows = WEIGHTED[family]
    rng = np.random.default_rng(3)
    rows, weights = rows.astype(float), rng.integers(0, 4, len(rows)) * 1.25
    rows[-1, -1] = np.nan
    whole, found = whole_and_in_blocks(model, rows, weights)
    assert found.objective == pytest.approx(whole.objective, rel=1e-12)
    assert found.bic == pytest.approx(whole.bic, rel=1e-12)
    assert torch.equal(found.row_weights, whole.row_weights)
    for name, value in whole.params.items():
        assert torch.allclose(found.params[name], value, rtol=1e-8, atol=1e-10), name


def test_weights_are_a_file_or_a_column(tmp_path: Path) -> None:
    rows, weights = measured(), np.random.default_rng(3).integers(0, 4, NUM_ROWS).astype(float)
    np.save(tmp_path / "weights.npy", weights)
    table = pd.DataFrame(rows, columns=list("abc"))
    table.assign(often=weights).to_parquet(tmp_path / "rows.parquet")
    whole = fit(Mixture(2, Normal(), 3), table, EM(), weights=weights)
    mapped = fit(
        Mixture(2, Normal(), 3),
        RowBlocks.of(rows, 64),
        EM(),
        weights=np.load(tmp_path / "weights.npy", mmap_mode="r"),
    )
    named = fit(
        Mixture(2, Normal(), 3),
        RowBlocks.of(tmp_path / "rows.parquet", 64),
        EM(),
        weights="often",
        checkpoint=tmp_path / "fit.ckpt",
    )
    assert named.item_names == ("a", "b", "c")
    for found in (mapped, named):
        assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-9)
        assert found.icl(table) == pytest.approx(whole.icl(table), rel=1e-9)
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(
            Mixture(2, Normal(), 3),
            RowBlocks.of(table, 64),
            EM(),
            weights=weights[::-1].copy(),
            checkpoint=tmp_path / "fit.ckpt",
        )


def test_a_sample_of_weighted_rows_has_its_weights(few_drawn: None) -> None:
    rows = measured()
    weights = np.where(rows[:, 0] > 0.5, 5.0, 0.5)
    found, whole = (
        fit(Mixture(2, Normal(), 3), data, weights=weights)
        for data in (RowBlocks.of(rows, 64), rows)
    )
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "weights", "words"),
    [
        (
            Mixture(2, Normal(), 3),
            np.ones(3),
            "one number for each of the 400 rows was expected, got shape .3,.",
        ),
        (
            Mixture(2, Normal(), 3),
            np.where(np.arange(NUM_ROWS) == 300, -1.0, 1.0),
            "at least zero were expected, got -1 in row 300",
        ),
        (Mixture(2, Normal(), 3), "often", "the columns are .'a', 'b', 'c'."),
        (Mixture(2, Normal(), 3), np.full(NUM_ROWS, 1e-4), "numbers that count rows were expected"),
        (
            FactorAnalysis(3, 1),
            np.ones(NUM_ROWS),
            "take weights of rows, and FactorAnalysis does not",
        ),
    ],
)
def test_weights_that_are_none_are_refused(model: Any, weights: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(
            model,
            RowBlocks.of(pd.DataFrame(measured(), columns=list("abc")), 64),
            EM(),
            weights=weights,
        )


def counts() -> np.ndarray:
    rng = np.random.default_rng(4)
    high = rng.random((150, 1)) < 0.4
    return np.where(
        high, rng.negative_binomial(3, 0.3, (150, 3)), rng.negative_binomial(5, 0.7, (150, 3))
    ).astype(float)


@pytest.mark.parametrize(
    "model",
    [
        Mixture(2, NegativeBinomial(), 3),
        DeepDiscreteEncoder(3, (1,), NegativeBinomial(), penalty=None),
    ],
    ids=["mixture", "encoder"],
)
def test_negative_binomial_items_are_fitted_from_blocks_by_the_density(model: Any) -> None:
    method = EM(max_iterations=2, accelerate=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two iterations
        whole, found = (
            fit(model, rows, method, init="random")
            for rows in (counts(), RowBlocks.of(counts(), 60))
        )
    assert found.objective == pytest.approx(whole.objective, rel=1e-12)
    for name, value in whole.params.items():
        assert torch.allclose(found.params[name], value, rtol=1e-8, atol=1e-10), name


def sequences(num: int = 80, steps: int = 12) -> dict[str, np.ndarray]:
    """Two hidden options that differ in their actions; sequences of several lengths, and an action
    that is missing in the last of them.
    """
    rng = np.random.default_rng(2)
    option = np.cumsum(rng.random((num, steps)) < 0.15, axis=1) % 2
    state, action = (
        rng.integers(3, size=(num, steps)),
        (rng.random((num, steps)) < np.where(option, 0.9, 0.15)).astype(int),
    )
    action[-1, 2] = -1
    return {"state": state, "action": action, "length": np.where(np.arange(num) % 5, steps, 4)}


def test_sequences_of_options_come_as_a_dict_of_arrays(few_drawn: None, tmp_path: Path) -> None:
    rows, files = sequences(), {}
    for name, value in rows.items():
        files[name] = tmp_path / f"{name}.npy"
        np.save(files[name], value)
    model = OptionsHMM(3, 2, 2)
    start = fit(model, rows, EM(max_iterations=2000), seed=1).params
    whole, found = (
        fit(
            model,
            data,
            EM(),
            init={
                name: 0.9 * value + 0.1 * value.mean(-1, keepdim=True)
                for name, value in start.items()
            },
        )
        for data in (rows, RowBlocks.of(files, 17))
    )
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    for name, value in whole.params.items():
        assert torch.allclose(found.params[name], value, rtol=1e-7, atol=1e-9), name
    assert found.num_iterations == whole.num_iterations
    assert (found.bic, found.num_free, found.num_observations) == (
        pytest.approx(whole.bic, rel=1e-12),
        whole.num_free,
        whole.num_observations,
    )
    plain_call = fit(model, RowBlocks.of(files, 17))
    assert plain_call.log_likelihood == pytest.approx(fit(model, rows).log_likelihood, rel=1e-6)
    assert torch.allclose(
        found.log_likelihood_rows(RowBlocks.of(files, 30)),
        found.log_likelihood_rows(rows),
        atol=1e-12,
    )
    assert torch.allclose(
        found.posterior_latents(RowBlocks.of(files, 30))["options"],
        found.posterior_latents(rows)["options"],
        atol=1e-12,
    )


def test_questions_go_by_block(tmp_path: Path) -> None:
    rows = measured()
    found, blocks = mixture(rows), RowBlocks.of(rows, 64)
    expected = found.posterior_latents(rows)["assignments"]
    assert torch.allclose(found.posterior_latents(blocks)["assignments"], expected, atol=1e-12)
    written = found.posterior_latents(blocks, out=tmp_path)["assignments"]
    assert torch.allclose(written, expected, atol=1e-12)
    assert np.allclose(np.load(tmp_path / "assignments.npy"), expected)
    assert torch.allclose(
        found.log_likelihood_rows(blocks, out=tmp_path), found.log_likelihood_rows(rows), atol=1e-12
    )
    assert np.array_equal(found.predict(blocks), found.predict(rows))
    assert found.score(blocks) == pytest.approx(found.score(rows))
    np.testing.assert_allclose(
        found.summary(blocks)["error"], found.summary(rows)["error"], rtol=1e-8
    )
    steps, others = (distance_to_optimum(found, data).steps for data in (blocks, rows))
    assert torch.allclose(steps, others, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="a folder was expected"):
        found.posterior_latents(blocks, out=tmp_path / "assignments.npy")


def test_large_memory_maps_go_by_blocks_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.fitting.problem.BLOCK_ROWS", 100)
    rows = measured()
    np.save(tmp_path / "rows.npy", rows)
    pd.DataFrame(rows).rename(columns=str).to_parquet(tmp_path / "rows.parquet")
    import pyarrow.dataset

    lazy, dataset = (
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        pyarrow.dataset.dataset(tmp_path / "rows.parquet"),
    )
    seen: list[int] = []
    drawn = drawing.drawn_rows
    monkeypatch.setattr(
        "inference.base.streaming.rows.drawn_rows",
        lambda *call: seen.append(call[0]) or drawn(*call),
    )
    whole = mixture(rows)
    assert not seen
    assert mixture(lazy).log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    assert seen == [NUM_ROWS]
    assert mixture(dataset).log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    assert len(seen) == 2
    assert mixture(lazy[:90]).num_rows == 90
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore:the best restart did not converge")
def test_factorizations_start_from_a_sample_and_solve_all_rows(
    few_drawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimum of rows in memory, whatever the form of the rows; from a sample that misses the
    gap in the last block, and after an interruption.
    """
    rng = np.random.default_rng(3)
    rows = rng.poisson(rng.gamma(1.0, 20.0, (300, 2)) @ rng.dirichlet(np.ones(6), 2)) + 1.0
    rows[-1, 2] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    pd.DataFrame(rows).rename(columns=str).to_parquet(tmp_path / "rows.parquet")
    model = PoissonFactorization(6, 2)
    close = Factorize(tolerance=1e-10)
    whole = fit(model, rows, close, num_restarts=10)
    found = [
        fit(model, RowBlocks.of(source, 64), close)
        for source in (rows, tmp_path / "rows.npy", tmp_path / "rows.parquet")
    ]
    assert found[0].log_likelihood == pytest.approx(
        whole.log_likelihood, rel=1e-4
    )  # optima nearby differ by less than a nat
    assert found[0].local["activities"].shape == (300, 2)
    for other in found[1:]:
        assert torch.equal(found[0].params["signatures"], other.params["signatures"])
        assert torch.equal(found[0].local["activities"], other.local["activities"])
    monkeypatch.setattr(factorize, "CHECKPOINT_EVERY", 2)  # the tenth iteration would gain nothing
    long, original = Factorize(tolerance=1e-300, max_sweeps=90), Course.advance
    kept = fit(model, RowBlocks.of(rows, 64), long, "random", checkpoint=tmp_path / "kept.ckpt")

    def interrupted(self: Course, *args: Any) -> float:
        if len(self.history) == 5:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Course, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, RowBlocks.of(rows, 64), long, "random", checkpoint=tmp_path / "fit.ckpt")
    monkeypatch.setattr(Course, "advance", original)
    again = fit(
        model,
        RowBlocks.of(tmp_path / "rows.npy", 64),
        long,
        "random",
        checkpoint=tmp_path / "fit.ckpt",
    )
    assert torch.equal(again.params["signatures"], kept.params["signatures"])
    with pytest.raises(
        ValueError, match="out: a model whose rows have latents to write was expected"
    ):
        again.posterior_latents(RowBlocks.of(rows, 64), out=tmp_path / "answers")


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    blocks = RowBlocks.of(measured(), 64)
    path = tmp_path / "fit.ckpt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixture_of(blocks, path, 3)
        again, whole = mixture_of(blocks, path, 3), mixture(blocks, max_iterations=3)
    assert all(torch.equal(again.params[name], value) for name, value in whole.params.items())
    other = measured()
    other[200, 1] += 1e-9
    with pytest.raises(ValueError, match="belongs to another fit"):
        mixture_of(RowBlocks.of(other, 64), path, 3)


def mixture_of(blocks: RowBlocks, path: Path, iterations: int) -> Any:
    return fit(Mixture(2, Normal(), 3), blocks, EM(max_iterations=iterations), checkpoint=path)


def test_the_digest_is_of_rows_in_their_order_and_not_of_blocks() -> None:
    rows, model = measured(), Mixture(2, Normal(), 3)
    swapped = rows[[1, 0, *range(2, NUM_ROWS)]]
    one, two, three = (
        check_rows(model, blocks, 0)[0].digest()
        for blocks in (RowBlocks.of(rows, 64), RowBlocks.of(rows, 17), RowBlocks.of(swapped, 64))
    )
    assert one == two != three


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", measured())
    rows, _, _ = check_rows(
        Mixture(2, Normal(), 3), RowBlocks.of(tmp_path / "rows.npy", 64), seed=0
    )
    assert sum(len(data) for data in rows) == NUM_ROWS
    os.utime(tmp_path / "rows.npy", (1, 1))
    with pytest.raises(ValueError, match="changed while it was read"):
        list(rows)


def test_wrong_rows_are_named() -> None:
    rows = measured()
    rows[333, 1] = np.inf
    with pytest.raises(
        ValueError, match="infinity in row 13, column 1 .rows 320 to 384 of the data"
    ):
        mixture(RowBlocks.of(rows, 64))
    rows[333] = np.nan
    with pytest.raises(ValueError, match="row 333 has no observed entry"):
        mixture(RowBlocks.of(rows, 64))
    rows = measured()
    rows[:, 1] = np.nan
    with pytest.raises(ValueError, match="column '1' has no observed entry"):
        mixture(RowBlocks.of(rows, 64))


def test_a_column_that_is_constant_in_a_block_is_none(few_drawn: None) -> None:
    rows = bits()
    rows[:, 3] = 0
    with pytest.warns(ConstantColumnWarning, match="one value only: 3"):
        check_rows(DeepDiscreteEncoder(6, (2, 1)), RowBlocks.of(rows, 64), seed=0)
    rows[399, 3] = 1
    check_rows(
        DeepDiscreteEncoder(6, (2, 1)), RowBlocks.of(rows, 64), seed=0
    )  # a warning is an error in these tests


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda blocks: fit(Mixture(2, Normal(), 3), blocks, NUTS()),
            "EM\\(\\) is fitted from rows in blocks",
        ),
        (
            lambda blocks: fit(PoissonFactorization(3, 2), blocks, EM(accelerate=False)),
            (
                "this PoissonFactorization is fitted from rows in blocks by Factorize.., and EM.*:"
                " leave method out"
            ),
        ),
        (
            lambda blocks: fit(SparseCoding(3, 3, 1), blocks),
            (
                "this SparseCoding wants its rows in memory: fit.model, blocks.sample.20_000.. fits"
                " some of them$"
            ),
        ),
        (
            lambda blocks: fit(
                Mixture(2, Normal(), 2, covariates=("age",)), blocks, EM(accelerate=False)
            ),
            "without max_duration and covariates, and this Mixture wants its rows in memory",
        ),
        (
            lambda blocks: fit(Mixture(2, NegativeBinomial(), 3), blocks, EM()),
            "EM.accelerate=False. all of them",
        ),
        (
            lambda blocks: fit(Mixture(2, Normal(), 3), blocks, weights="often"),
            "these rows have no named columns",
        ),
        (
            lambda blocks: fit(HiddenMarkov(2, Normal(), 3), blocks, EM()),
            "array .sequences, steps, items.",
        ),
        (
            lambda blocks: bootstrap(mixture(measured()), blocks),
            "rows in memory were expected, got RowBlocks",
        ),
        (lambda blocks: fit(DeepDiscreteEncoder(3, (2, 1), Normal()), blocks), "give method=EM"),
    ],
)
def test_what_needs_rows_in_memory_says_so(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(RowBlocks.of(measured(), 64))

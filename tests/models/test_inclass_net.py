"""Independent classifier networks: forms of the data, what is refused, rows drawn from a fit, and
its likelihood's name.
"""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from inference import EM, Fit, TrainClassifiers, compare, fit
from inference.programs.program import Program
from ppl_models import Dense, InClassNet, KnownDensities, Lookup, Mixture

F64 = torch.float64
QUICK = TrainClassifiers(max_epochs=2, batch_size=20, patience=None)


def table(rows: int = 60, columns: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) + 3 * rng.integers(0, 2, (rows, 1))


def quick(model: Any, data: Any, method: Any = QUICK, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, data, method, **settings)


def test_every_form_of_the_data_gives_one_fit() -> None:
    rows = table()
    frame = pd.DataFrame(rows[:, [2, 0, 1]], columns=["c", "a", "b"]).assign(other="x")
    named = InClassNet((("a", "b"), ("c",)), 2, networks=Dense((4,)))
    plain = InClassNet((2, 1), 2, networks=Dense((4,)))
    fits = [
        quick(plain, rows),
        quick(plain, torch.from_numpy(rows)),
        quick(named, frame),
        quick(named, rows),
        quick(plain, (rows[:, :2], rows[:, 2])),
        quick(plain, {"left": rows[:, :2], "right": rows[:, 2:]}),
        quick(plain, [torch.from_numpy(rows[:, :2]), torch.from_numpy(rows[:, 2:])]),
    ]
    for one in fits[1:]:
        for site, value in fits[0].params.items():
            torch.testing.assert_close(value, one.params[site], rtol=1e-9, atol=1e-9)
    assert fits[2].item_names == ("a", "b", "c")
    assert torch.equal(
        fits[0].posterior_latents(rows)["components"],
        fits[0].posterior_latents((rows[:, :2], rows[:, 2:]))["components"],
    )


def test_images_in_bytes_with_one_shared_network() -> None:
    """Images stay as they are (bytes); one mean and one standard deviation serve all their
    pixels.
    """
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (40, 1, 4, 4)).astype(np.uint8) for _ in range(2)]
    model = InClassNet(((1, 4, 4), (1, 4, 4)), 2, networks=Dense((5,)), shared=True)
    result = quick(model, tuple(images))
    assert result.params["layer_1_weights"].dtype == torch.float32
    assert result.params["layer_1_weights"].shape == (1, 5, 16)
    pixels = np.concatenate([x.ravel() for x in images])
    assert result.params["input_centres"].unique().tolist() == pytest.approx([pixels.mean()])
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    other = quick(
        InClassNet(((1, 4, 4), (1, 4, 4)), 3, networks=convolution, shared=True),
        tuple(x / 255 for x in images),
    )
    assert other.posterior_latents(tuple(x / 255 for x in images))["components"].shape == (40, 3)
    assert {"0_weight", "3_bias"} <= set(other.params)
    assert "input_centres" not in other.params


def test_columns_are_standardised_each_by_itself() -> None:
    rows = table() * [1.0, 100.0, 0.01] + [0.0, 5.0, 7.0]
    result = quick(InClassNet((1, 1, 1), 2, networks=Dense((4,))), rows)
    np.testing.assert_allclose(result.params["input_centres"], rows.mean(0))
    np.testing.assert_allclose(result.params["input_scales"], rows.std(0))
    unscaled = quick(
        InClassNet((1, 1, 1), 2, networks=Dense((4,))),
        (rows - [0.0, 5.0, 7.0]) / [1.0, 100.0, 0.01],
    )
    torch.testing.assert_close(result.params["weights"], unscaled.params["weights"])


def test_what_a_module_or_known_density_gives_is_its_softmax() -> None:
    rows = torch.from_numpy(table(8, 2))
    known = KnownDensities(lambda x: torch.cat([-0.5 * x**2, -0.5 * (x - 3) ** 2], 1))
    module = nn.Linear(1, 2).double()
    model = InClassNet((1, 1), 2, networks=(known, module))
    assert [group.network for group in model.classifiers().groups][0] is known
    params = {
        "pseudo_weights": torch.full((2, 2), 0.5, dtype=F64),
        "log_scales_0": torch.tensor([[0.3, -0.3]], dtype=F64),
        "weight_1": module.weight.detach()[None],
        "bias_1": module.bias.detach()[None],
    }
    scores = model.log_scores(rows, params)
    distribution = torch.cat(
        [-0.5 * rows[:, :1] ** 2 + 0.3, -0.5 * (rows[:, :1] - 3) ** 2 - 0.3], 1
    )
    torch.testing.assert_close(scores[0], distribution.log_softmax(-1))
    torch.testing.assert_close(scores[1], module(rows[:, 1:]).detach().log_softmax(-1))


def test_the_true_classifiers_give_minus_the_total_correlation() -> None:
    """Two normals of the paper: the exact classifiers, given as known densities, have the
    quadrature's cost within Monte Carlo error.
    """
    rng = np.random.default_rng(5)
    component = (rng.random(200_000) < 0.6).astype(int)
    rows = torch.from_numpy(
        rng.normal(np.array([-1.0, 1.0])[component][:, None], 1.5, (200_000, 2))
    )
    distribution = KnownDensities(
        lambda x: torch.cat([-0.5 * ((x + 1) / 1.5) ** 2, -0.5 * ((x - 1) / 1.5) ** 2], 1)
    )
    model = InClassNet((1, 1), 2, networks=(distribution, distribution), weights=(0.4, 0.6))
    scales = torch.tensor([[math.log(0.4), math.log(0.6)]], dtype=F64)
    params = {
        "pseudo_weights": torch.ones(2, 2, dtype=F64),
        "log_scales_0": scales,
        "log_scales_1": scales,
    }
    params["pseudo_weights"] = model.log_scores(rows, params).exp().mean(1)
    ratio = (
        model.log_ratios(rows, params).sum(0) + torch.tensor([0.4, 0.6], dtype=F64).log()
    ).logsumexp(-1)
    error = float(ratio.std()) / math.sqrt(len(rows))
    assert abs(float(ratio.mean()) - 0.052372) < 4 * error
    assert error < 1e-3


def test_rows_drawn_from_a_fit_follow_it() -> None:
    """Draws are rows of the data; given the components they have the weights beta / phi."""
    rows = table(300, 2)
    result = quick(
        InClassNet((1, 1), 2, networks=Dense((8,))),
        rows,
        TrainClassifiers(batch_size=50, max_epochs=8, patience=None),
    )
    drawn = result.structure.simulate_like(result.params, rows, seed=1)
    assert drawn is not None
    assert set(drawn["variate_0"].ravel().tolist()) <= set(rows[:, 0].tolist())
    assert np.corrcoef(drawn["variate_0"].ravel(), drawn["variate_1"].ravel())[
        0, 1
    ] == pytest.approx(np.corrcoef(rows.T)[0, 1], abs=0.15)
    idata = result.to_arviz(rows)
    assert idata["posterior_predictive"]["variate_0"].shape == (1, 1, 300, 1)
    assert idata["posterior"]["pseudo_weights"].dims == ("chain", "draw", "variate", "component")
    assert idata["posterior"].attrs["log_likelihood_relative_to"] == "independence of the variates"
    with pytest.raises(ValueError, match="no prior predictive draw"):
        result.simulate(10)


def test_the_ratio_is_not_compared_with_a_density() -> None:
    rows = table(60, 2)
    ours, other = (
        quick(InClassNet((1, 1), 2, networks=Dense((3,))), rows),
        quick(Mixture(2, num_items=2), rows, EM(max_iterations=3)),
    )
    assert ours.log_likelihood_ratio == ours.log_likelihood
    with pytest.raises(
        ValueError, match="'ours' .relative to independence of the variates.* are ratios"
    ):
        compare({"ours": ours, "mixture": other}, rows)
    with pytest.raises(ValueError, match="not a ratio"):
        _ = other.log_likelihood_ratio


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_engines_that_know_a_program_alone_are_refused() -> None:
    with pytest.raises(
        ValueError, match="EM cannot fit InClassNet: the pseudo-weights are means over all rows"
    ):
        fit(InClassNet((1, 1), 2), table(60, 2), EM())


def test_a_saved_fit_with_a_module_needs_the_module_again(tmp_path: Path) -> None:
    rows = table(60, 2)
    model = InClassNet((1, 1), 2, networks=nn.Linear(1, 2))
    result = quick(model, rows)
    result.save(tmp_path / "fit")
    with pytest.raises(
        ValueError, match=r"holds code of yours; pass it as load\(path, model=...\)"
    ):
        Fit.load(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit", model=model)
    assert torch.equal(loaded.log_likelihood_rows(rows), result.log_likelihood_rows(rows))


def test_the_plain_call() -> None:
    """No method, no start: four starts from what the variates have in common, the best of them by
    held-out rows.
    """
    rows = table(200, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(InClassNet((1, 1), 2, networks=Dense((6,))), rows)
    assert result.restarts.num_ended == 4
    assert result.objective_name == "held-out log-likelihood ratio to independence per row"
    assert result.objective == pytest.approx(float(result.restarts.objective.max()))
    assert result.log_likelihood > 50
    summary = result.summary()
    assert sorted(summary.index) == [
        *(f"pseudo_weights[{v}, {i}]" for v in range(2) for i in range(2)),
        "weights[0]",
        "weights[1]",
    ]
    assert "weights of the networks" in summary.attrs["note"]
    for criterion in ("aic", "aicc", "sabic", "caic", "bic"):
        with pytest.raises(
            ValueError,
            match=(
                rf"{criterion}: AIC, BIC and their like charge for every free parameter.*saturation"
            ),
        ):
            getattr(result, criterion)
    with pytest.raises(ValueError, match="icl: AIC, BIC"):
        result.icl(rows)
    assert "BIC and AIC do not apply" in repr(result)


def test_a_constant_variate_is_refused() -> None:
    rows = pd.DataFrame({"a": range(9), "b": 1.0})
    with pytest.raises(
        ValueError,
        match=(
            "a variate that differs between rows was expected, but variate 'b' is the same in all 9"
            " of them; leave it out"
        ),
    ):
        fit(InClassNet((("a",), ("b",))), rows)


def test_variates_that_say_nothing_are_named() -> None:
    """A column that has nothing to do with the others, and columns that have nothing to do with
    each other.
    """
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(600, 1, generator=generator)
    model, method = (
        InClassNet((1, 1, 1), 2, networks=Dense((6,))),
        TrainClassifiers(max_epochs=20, batch_size=100),
    )
    said = " ".join(
        quick(model, np.hstack([table(600, 2), noise.numpy()]), method, num_restarts=1).warnings
    )
    assert re.search(
        r"say next to nothing about the component of a row: 3 \([01]\.\d% of what there is to"
        r" know\).*three variates that do",
        said,
    ), said
    assert "not clearly likelier" not in said
    said = " ".join(
        quick(model, torch.randn(600, 3, generator=generator), method, num_restarts=1).warnings
    )
    assert (
        "60 held-out rows are not clearly likelier under these components than if the variates were"
        " independent" in said
    )


def test_a_program_of_rows_alone_has_its_sites() -> None:
    program = Program(InClassNet((1, 1), 3, weights=(0.5, 0.3, 0.2)), torch.zeros(2, 2, dtype=F64))
    assert program.names("latent") == ("components",)
    assert program.draw_prior(1, 0)["weights"].tolist() == [[0.5, 0.3, 0.2]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InClassNet((2,), 2), "at least two variates were expected, got one"),
        (lambda: InClassNet((("a", "b"),), 2), "at least two variates"),
        (lambda: InClassNet((1, 1), 1), "num_components must be at least 2, got 1"),
        (lambda: InClassNet((("a", "b"), ("b", "c")), 2), "column 'b' is in variates 0 and 1"),
        (lambda: InClassNet((("a", "a"), ("b",)), 2), "column 'a' is twice in variate 0"),
        (lambda: InClassNet(("a", "b"), 2), r"write \('a',\)"),
        (lambda: InClassNet((1, 0), 2), r"variates\[1\] must be a number of columns"),
        (lambda: InClassNet(2, 2), "variates must list the columns"),  # type: ignore[arg-type]
        (
            lambda: InClassNet((1, 1), 2, weights=(0.5, 0.4)),
            (
                r"must be 'geometric', 'free', or 2 known positive numbers that sum to 1, got"
                r" \(0.5, 0.4\), which sum to 0.9"
            ),
        ),
        (lambda: InClassNet((1, 1), 2, weights="equal"), "weights must be"),  # type: ignore[arg-type]
        (
            lambda: InClassNet((1, 1), 2, networks=(Dense(),)),
            "one network a variate, 2 of them, got 1",
        ),
        (lambda: InClassNet((1, 1), 2, networks=Dense), "networks must be Dense"),
        (
            lambda: InClassNet((1, 2), 2, shared=True),
            "a shared network needs variates of one shape",
        ),
        (lambda: InClassNet((1, 2), 2, networks=Lookup(3)), "variates of one column of codes"),
        (lambda: InClassNet((1, 1), 2, networks=nn.ReLU()), "with parameters to train"),
        (lambda: Dense((3, 0)), "positive integer"),
    ],
)
def test_models_that_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (
            InClassNet((1, 1), 2, networks=nn.Linear(1, 3)),
            table(9, 2),
            "num_components = 2 outputs were expected, but that of variate 0 has 3",
        ),
        (
            InClassNet((2, 1), 2, networks=nn.Linear(1, 2)),
            table(9, 3),
            "does not take rows of shape",
        ),
        (InClassNet((1, 1), 2), table(9, 3), r"1 \+ 1 = 2 columns were expected, got 3"),
        (InClassNet((1, 1), 2), np.zeros((0, 2)), "at least one row"),
        (InClassNet((1, 1), 3), table(2, 2), "at least num_components = 3 rows"),
        (InClassNet((1, 1), 2), (table(9, 1), table(8, 1)), r"same number of rows, got \[9, 8\]"),
        (InClassNet((1, 1), 2), (table(9, 1),), "2 variates were expected, got 1 arrays"),
        (
            InClassNet((1, 1), 2),
            np.where(np.eye(9, 2) == 1, np.nan, 0.5),
            "row 0, column '0' is missing; InClassNet.weights='free'",
        ),
        (
            InClassNet((1, 1), 2),
            np.where(np.eye(9, 2) == 1, np.inf, 0.5),
            "an infinity in row 0, column 0",
        ),
        (
            InClassNet((2, 1), 2, weights="free"),
            np.where(np.eye(9, 3) == 1, np.nan, 0.5),
            "other columns of its variate are not",
        ),
        (
            InClassNet((("a",), ("b",)), 2),
            pd.DataFrame({"a": [1.0, 2.0], "c": [0.0, 1.0]}),
            "columns .'b'. of the variates were expected",
        ),
        (
            InClassNet((("a",), ("b",)), 2),
            pd.DataFrame({"a": ["x", "y"], "b": [0.0, 1.0]}),
            "numbers were expected",
        ),
        (
            InClassNet((1, 1), 2, networks=Lookup(2)),
            np.full((4, 2), 2.0),
            r"codes 0, ..., 1 were expected of Lookup\(2\), got 2",
        ),
    ],
)
def test_data_that_are_refused(model: InClassNet, data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(model, data)

"""Deep discrete encoders whose items are categories, in order or not: what a newcomer does with
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from inference import EM, Fit, RowBlocks, fit
from inference.identifiability import check_identifiability
from inference.predictive import predictive_check
from inference.programs.program import Program
from inference.structures.layers.align import relabel
from inference.structures.registry import structure_of
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    DeepDiscreteEncoder,
    ExpDINA,
    ExpGDM,
    Normal,
    Ordinal,
)

LIKERT = ("never", "rarely", "often", "always")
COLOURS = ("blue", "green", "red")


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    """Two features behind four Likert items, three colours, a measurement and a yes-no item; three
    entries are missing.
    """
    rng = np.random.default_rng(3)
    bits = rng.random((600, 2)) < (0.4, 0.6)
    columns: dict[str, object] = {}
    for j in range(4):
        level = 2.4 * bits[:, j % 2] - 0.4 + rng.logistic(size=600)
        columns[f"q{j}"] = pd.Categorical.from_codes(
            np.digitize(level, (0.0, 1.0, 2.5)), LIKERT, ordered=True
        )
    for j in range(3):
        score = np.stack(
            [np.zeros(600), 2.5 * bits[:, j % 2] - 0.5, -1.5 * bits[:, j % 2] + 0.5], 1
        )
        columns[f"c{j}"] = np.array(COLOURS)[(score + rng.gumbel(size=(600, 3))).argmax(1)]
    columns["age"] = 40 + 8 * bits[:, 0] + 4 * rng.normal(size=600)
    columns["yes"] = (rng.random(600) < np.where(bits[:, 1], 0.8, 0.2)).astype(int)
    frame = pd.DataFrame(columns)
    frame.loc[3, "q0"], frame.loc[5, "c1"], frame.loc[7, "age"] = None, None, np.nan
    return frame


def model_of(answers: pd.DataFrame, **settings: object) -> DeepDiscreteEncoder:
    likert, colours = (
        Ordinal.from_frame(answers.filter(like="q")),
        Categorical.from_frame(answers.filter(regex="^c")),
    )
    response = Blocks((likert, 4), (colours, 3), (Normal(), 1), (Bernoulli(), 1))
    return DeepDiscreteEncoder(9, (2,), response=response, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(answers: pd.DataFrame) -> Fit:
    return fit(model_of(answers), answers)


def test_a_plain_call_finds_the_graph(found: Fit) -> None:
    """One edge an item: of a colour it is that of the item, whichever of its two loadings differs
    from zero.
    """
    graph = found.graphs["loadings_1"]
    assert graph.shape == (9, 2)
    expected = torch.tensor(
        [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [1, 0], [0, 1]]
    )
    assert torch.equal(graph, expected) or torch.equal(graph, expected.flip(1))
    assert torch.equal(
        found.params["loadings_1"][4:10] != 0, graph[4:7].bool().repeat_interleave(2, 0)
    )
    assert found.num_parameters == 2 + 12 + 12 + 8 + 1


def test_everything_has_the_names_of_the_answers(found: Fit, answers: pd.DataFrame) -> None:
    summary = found.summary(answers)
    rows = [str(row) for row in summary.index]
    assert {
        "loadings_1[q0, 0]",
        "loadings_1[c0=green, 1]",
        "thresholds[q0:rarely|often]",
        "thresholds[q3:often|always]",
        "variance[age]",
    } <= set(rows)
    assert not [
        row for row in rows if "blue" in row
    ]  # the first category is what the others are compared with
    assert list(found.frames["loadings_1"].index[:6]) == [
        "q0",
        "q1",
        "q2",
        "q3",
        "c0=green",
        "c0=red",
    ]
    assert found.category_names["c1"] == COLOURS
    assert list(
        found.to_arviz(answers)["posterior"]["thresholds"].coords["threshold"].values[:2]
    ) == ["q0:rarely|often", "q0:often|always"]
    assert [*predictive_check(found, answers).observed.shape] == [600, 4 * 3 + 3 * 2 + 2]


def test_missing_answers_are_filled_with_the_most_probable_category(
    found: Fit, answers: pd.DataFrame
) -> None:
    rebuilt = found.reconstruct(answers)
    chances = found.posterior_latents(answers)["latents_1"]
    assert set(rebuilt[:, 0].unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert set(rebuilt[:, 4].unique().tolist()) <= {0.0, 1.0, 2.0}
    assert chances.shape == (600, 2)
    level = answers["yes"].mean()
    assert 0 < rebuilt[:, 8].min() < level < rebuilt[:, 8].max() < 1


def test_rows_in_blocks_give_the_same_fit(answers: pd.DataFrame) -> None:
    model = model_of(answers, penalty=None)
    whole, blocks = fit(model, answers), fit(model, RowBlocks.of(answers, block_rows=250))
    assert abs(blocks.log_likelihood - whole.log_likelihood) < 1e-6


def test_a_saved_fit_and_its_page(found: Fit, answers: pd.DataFrame, tmp_path: Path) -> None:
    found.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == found.model
    assert torch.equal(again.log_likelihood_rows(answers), found.log_likelihood_rows(answers))
    page = Path(found.report(tmp_path / "page.html", answers)).read_text()
    for words in (
        "600 rows of 9 items",
        "Ordinal(P(x<sub>j</sub> ≥ h)",
        "W<sub>1,jhk</sub>",
        "gaps between neighbouring thresholds",
        "c0=green",
    ):
        assert words in page, words
    found.plot()


def test_conditions_count_items_not_loadings(found: Fit) -> None:
    """A colour has two loadings on a latent and is one item: two loadings are not two exclusive
    items.
    """
    report = check_identifiability(found)
    assert len(report.layers[0].child_names) == 9
    loadings = torch.tensor(
        [[2.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 1.0]],
        dtype=torch.float64,
    )
    model = DeepDiscreteEncoder(
        5, (2,), response=Blocks((Categorical(3), 1), (Bernoulli(), 4)), penalty=None
    )
    params = {
        "loadings_1": loadings,
        "intercepts_1": torch.zeros(6),
        "proportions": torch.tensor([0.4, 0.6]),
    }
    one_item_short = params | {
        "loadings_1": loadings.index_put(
            (torch.tensor(2),), torch.tensor([0.0, 1.0], dtype=torch.float64)
        )
    }
    assert (
        check_identifiability(params, layers=model.layers()).layers[0].decision.verdict
        != "not shown"
    )
    assert check_identifiability(one_item_short, layers=model.layers()).verdict != "strict"


def test_an_order_without_a_link_is_a_graded_response() -> None:
    assert DeepDiscreteEncoder(4, (2,), response=Ordinal(5)) == DeepDiscreteEncoder(
        4, (2,), response=Ordinal(5, link="cumulative")
    )
    beside = DeepDiscreteEncoder(
        4, (2,), response=Blocks((Ordinal(5), 2), (Ordinal(3, link="adjacent"), 2))
    )
    assert [family.link for family, _ in beside.response.parts] == ["cumulative", "adjacent"]  # type: ignore[attr-defined]


def test_both_names_of_a_latent_are_one_distribution() -> None:
    """Flips and other orders leave the density of the rows as it is, thresholds too."""
    model = DeepDiscreteEncoder(
        5,
        (2,),
        response=Blocks((Ordinal(4), 2), (Categorical(3), 2), (Ordinal(3, link="adjacent"), 1)),
        penalty=None,
    )
    generator = torch.Generator().manual_seed(1)
    params: dict[str, Tensor] = {"proportions": torch.tensor([0.3, 0.6], dtype=torch.float64)}
    params["loadings_1"] = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    params["intercepts_1"] = torch.randn(7, generator=generator, dtype=torch.float64)
    params["thresholds"] = 0.5 + torch.rand(5, generator=generator, dtype=torch.float64)
    rows = torch.tensor([[0.0, 3.0, 2.0, 1.0, 2.0], [1.0, 2.0, 0.0, 2.0, 0.0]], dtype=torch.float64)
    structure = structure_of(model)
    other = relabel(
        params,
        structure.layers,
        structure.root,
        {"latents_1": torch.tensor([1, 0])},
        {"latents_1": torch.tensor([True, False])},
    )

    def density(own: dict[str, Tensor]) -> Tensor:
        return Program(model, rows).log_marginal({name: value[None] for name, value in own.items()})

    torch.testing.assert_close(density(other), density(params))
    assert not torch.equal(other["intercepts_1"], params["intercepts_1"])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="item 1 has one category only"):
        DeepDiscreteEncoder(2, (1,), response=Categorical((3, 1)))
    with pytest.raises(ValueError, match=r"graphs\[0\] must have shape \(3, 2\)"):
        DeepDiscreteEncoder(3, (2,), response=Categorical(4), graphs=(((1, 0),) * 9,))
    with pytest.raises(ValueError, match="codes 0 to 2, found 3"):
        fit(
            DeepDiscreteEncoder(2, (1,), response=Ordinal(3)),
            torch.tensor([[0.0, 1.0], [3.0, 2.0], [1.0, 0.0]]),
        )


def test_a_category_that_no_row_has_is_named() -> None:
    rows = torch.tensor(
        [[0.0, 1.0, 0.0], [1.0, 3.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 3.0, 0.0]],
        dtype=torch.float64,
    ).repeat(12, 1)
    with pytest.warns(
        UserWarning,
        match="no row has 1 = 2, 2 = 2: how likely such an answer is comes from the prior alone",
    ):
        found = fit(
            DeepDiscreteEncoder(
                3,
                (1,),
                response=Blocks((Ordinal(2), 1), (Ordinal(4), 1), (Categorical(3), 1)),
                penalty=None,
            ),
            rows,
        )
    assert all(bool(torch.isfinite(value).all()) for value in found.params.values())


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpGDM()], ids=repr)
def test_items_may_ask_for_features_together(answers: pd.DataFrame, bottom: object) -> None:
    """The estimate is where the slope of the program's own log-posterior is zero."""
    items = answers[["q0", "q1", "q2", "q3", "c0", "c1"]]
    graph = ((1, 0), (0, 1), (1, 0), (1, 1), (1, 0), (1, 1))
    response = Blocks(
        (Ordinal.from_frame(items.filter(like="q")), 4),
        (Categorical.from_frame(items.filter(like="c")), 2),
    )
    model = DeepDiscreteEncoder(6, (2,), response=response, graphs=(graph,), bottom=bottom)  # type: ignore[arg-type]
    found = fit(model, items, EM(tolerance=1e-12, parameter_tolerance=1e-7), num_restarts=2)
    program = Program(found.model, model.check_data(items)[0])
    leaves = {name: value.unsqueeze(0).requires_grad_() for name, value in found.params.items()}
    slopes = torch.autograd.grad(
        (program.log_marginal(leaves) + program.log_prior(leaves)).sum(), list(leaves.values())
    )
    free = model.layers()[0].graph
    assert free is not None
    for name, slope in zip(leaves, slopes, strict=True):
        assert float((slope[0][free] if name == "loadings_1" else slope[0]).abs().max()) < 1e-2, (
            name
        )


def test_boundaries_are_the_thresholds_of_graded_response(
    answers: pd.DataFrame, found: Fit
) -> None:
    """Where all latents are 0, P(x >= h) is the logistic function of minus the boundary, by the
    fit's own distribution; with standard errors.
    """
    beta = found.model.category_boundaries(found.params)
    assert beta.shape == (12,)
    layer = found.structure.layers[0]
    distribution = (
        layer.response.whole(found.params["intercepts_1"], found.params["thresholds"])[:16]
        .reshape(4, 4)
        .exp()
    )
    torch.testing.assert_close(
        distribution.flip(-1).cumsum(-1).flip(-1)[:, 1:], torch.sigmoid(-beta.reshape(4, 3))
    )
    steps = DeepDiscreteEncoder(1, (1,), response=Ordinal(4, link="adjacent"))
    params = {"intercepts_1": torch.tensor([0.3]), "thresholds": torch.tensor([1.0, -0.5])}
    odds = steps.response.whole(params["intercepts_1"], params["thresholds"]).diff()
    torch.testing.assert_close(odds, -steps.category_boundaries(params))
    value, error = standard_errors(found, answers).delta(found.model.category_boundaries)
    torch.testing.assert_close(value, beta)
    assert bool((error > 0.01).all())
    assert bool((error < 1).all())
    with pytest.raises(ValueError, match="category_boundaries: ordinal items were expected"):
        DeepDiscreteEncoder(2, (1,)).category_boundaries({"intercepts_1": torch.zeros(2)})

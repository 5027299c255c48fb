"""A plain fit of an encoder: a penalty, a graph and an estimate on it; its parts, and its
checkpoints.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from support.designed_items import data_of
from support.two_skills import GRAPH, answers

from inference import EM, SAEM, ChoosePenalty, Fit, fit
from inference.alignment import align
from inference.base.progress import NoProgress
from inference.base.structure import num_possible_free
from inference.engines import em
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.report import write_report
from inference.report.results_folder import summarise
from inference.selection import ebic
from inference.selection.sparsity import polish
from inference.structures.layers.graph_search import Found, edge_statistics, search_graphs
from inference.structures.registry import structure_of
from ppl_models import DeepDiscreteEncoder, Mixture, NoisyOr, Normal, Poisson, TruncatedLasso
from ppl_models.datasets import strict_design


@lru_cache
def plain(num_rows: int = 500) -> Fit:
    return fit(DeepDiscreteEncoder(18, (6, 2), Normal()), data_of(Normal(), num_rows))


def test_a_plain_fit_finds_the_graph_and_shrinks_nothing():
    truth, x, result = strict_design(2, Normal()), data_of(Normal(), 500), plain()
    aligned = align(result, truth)
    for site in ("loadings_1", "loadings_2"):
        assert set(result.graphs[site].unique().tolist()) == {0, 1}
        assert torch.equal(result.graphs[site] == 1, result.params[site] != 0)
        assert torch.equal(aligned.graphs[site] == 1, truth[site] != 0)
    assert result.model.penalty is None
    assert result.model.graphs_estimated
    assert isinstance(result.method, EM)
    assert result.warnings == ()
    choice = result.choice
    assert choice.penalties == TruncatedLasso.candidates(500)
    assert choice.best == int(choice.ebic.argmin())
    assert choice.chosen in choice.penalties
    assert list(choice.table["chosen"]) == [i == choice.best for i in range(2)]
    possible = num_possible_free(
        structure_of(DeepDiscreteEncoder(18, (6, 2), Normal())), result.params
    )
    assert ebic(result, 1.0, possible) <= float(choice.ebic.min()) + 1e-6
    program = Program(
        result.model, x
    )  # a maximum of the log-posterior on the graph: nothing pulls any more
    leaves = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    total = (program.log_marginal(leaves) + program.log_prior(leaves)).sum()
    slope = torch.autograd.grad(total, leaves["loadings_1"])[0]
    assert slope[result.graphs["loadings_1"] == 1].abs().max() < 0.5
    assert float(total.detach()) == pytest.approx(result.objective, rel=1e-9)


def test_the_plain_call_is_the_named_method_and_is_saved(tmp_path):
    x, result = data_of(Normal(), 500), plain()
    named = fit(DeepDiscreteEncoder(18, (6, 2), Normal()), x, ChoosePenalty())
    assert all(torch.equal(value, named.params[name]) for name, value in result.params.items())
    result.save(tmp_path)
    again = Fit.load(tmp_path)
    assert again.model == result.model
    assert all(torch.equal(graph, again.graphs[site]) for site, graph in result.graphs.items())
    assert torch.equal(again.choice.ebic, result.choice.ebic)
    assert again.choice.penalties == result.choice.penalties
    refit = polish(result, x)  # nothing left to do
    assert refit.log_likelihood == pytest.approx(result.log_likelihood, abs=1e-3)


def test_the_page_and_the_summary_show_the_graph_and_what_it_was_chosen_among(tmp_path):
    x, result = data_of(Normal(), 500), plain()
    page = write_report(result, x, tmp_path / "report.html").read_text()
    assert "The graph was found in this fit" in page
    assert "TruncatedLasso(slope_at_zero=" in page
    assert "were found to be edges" in page
    assert page.count("1</td>") >= 26  # the edges, as a table
    summary = summarise(result)
    assert summary["graphs"] == {site: graph.tolist() for site, graph in result.graphs.items()}
    assert summary["choice"]["best"] == result.choice.best
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_method_that_is_named_fits_the_program_as_it_is():
    x = answers(200, 0)
    model = DeepDiscreteEncoder(6, (2,))
    dense = fit(model, x, EM())
    assert dense.choice is None
    assert dense.model == model
    assert dense.graphs["loadings_1"].all()
    assert fit(replace(model, penalty=None), x).choice is None
    same = fit(replace(model, penalty=None), x, EM())
    assert same.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-9)
    given = fit(DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,)), x)
    assert given.choice is None
    assert given.graphs["loadings_1"].tolist() == [list(row) for row in GRAPH]
    lasso = DeepDiscreteEncoder(6, (2,), penalty=TruncatedLasso.bic(200))
    shrunk, through = fit(lasso, x, EM()), fit(lasso, x, ChoosePenalty())
    assert shrunk.objective == through.objective
    assert through.method == EM()


def test_other_models_have_their_graphs_or_none():
    x = answers(60, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = fit(NoisyOr(6, 2), x, EM(max_iterations=20))
        mixture = fit(
            Mixture(2, Normal()), x[:, :1] + torch.rand(60, 1).numpy(), EM(max_iterations=5)
        )
    assert network.graphs["failure"].shape == (6, 2)
    assert mixture.graphs == {}


@pytest.mark.parametrize(
    "method",
    [ChoosePenalty(EM(accelerate=False, max_iterations=4)), ChoosePenalty(SAEM(max_iterations=20))],
    ids=["generic", "SAEM"],
)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_other_engines_choose_one_fit_after_another(method):
    result = fit(DeepDiscreteEncoder(6, (2,)), answers(200, 1), method)
    assert result.method == method.engine
    assert len(result.choice.ebic) == 2
    assert result.model.graphs is not None
    assert torch.equal(result.graphs["loadings_1"] == 1, result.params["loadings_1"] != 0)


@pytest.mark.parametrize(
    "stop_at",
    [5, 60, pytest.param(10_000, marks=pytest.mark.slow)],
    ids=["penalties", "graphs", "done"],
)
def test_an_interrupted_choice_goes_on_to_the_same_answer(tmp_path, monkeypatch, stop_at):
    x, path = answers(300, 2), tmp_path / "running"
    model = DeepDiscreteEncoder(6, (2,))
    whole = fit(model, x)
    original, calls = em.EMState.advance, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(em.EMState, "advance", interrupted)
    if stop_at < 10_000:
        with pytest.raises(KeyboardInterrupt):
            fit(model, x, checkpoint=path)
    else:
        fit(model, x, checkpoint=path)
    before = len(calls)
    monkeypatch.setattr(em.EMState, "advance", original)
    assert path.exists()
    resumed = fit(model, x, checkpoint=path)
    assert before > 0
    assert resumed.objective == whole.objective
    assert all(torch.equal(value, whole.params[name]) for name, value in resumed.params.items())
    with pytest.raises(ValueError, match="another fit"):
        fit(model, x, checkpoint=path, seed=1)


def test_edges_lost_and_gained_are_found_again():
    truth, x = strict_design(2, Poisson()), data_of(Poisson(), 800)
    model = DeepDiscreteEncoder(18, (6, 2), Poisson(), penalty=None)
    problem = problem_of(model, x, 0)
    graphs = [truth["loadings_1"] != 0, truth["loadings_2"] != 0]
    graphs[0][0, 0], graphs[0][1, 3] = False, True  # one edge away, one too many
    wrong = model.restricted([graph.int().tolist() for graph in graphs])
    start = fit(wrong, x, EM(), init={**truth, "loadings_1": truth["loadings_1"] * graphs[0]})
    possible = num_possible_free(problem.structure, start.params)

    def score(own, params, value):
        return ebic(
            replace(start, model=own, params=params, log_likelihood=float(value)), 1.0, possible
        )

    first = Found(wrong, start.params, ebic(start, 1.0, possible))
    found = search_graphs(problem, first, EM(), score, NoProgress(), 3, 10)
    assert found.score < first.score - 10
    wrong_edges = (torch.tensor(found.model.graphs[0]) == 1) != (truth["loadings_1"] != 0)
    assert not wrong_edges[0, 0]
    assert not wrong_edges[1, 3]
    assert wrong_edges.sum() <= 1  # what chance gave an edge that is worth it
    assert search_graphs(problem, found, EM(), score, NoProgress(), 3, 10) is found


def test_the_score_of_an_absent_edge_is_the_derivative_of_the_log_posterior():
    x = torch.as_tensor(answers(300, 3))
    result = fit(
        DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,)),
        x,
        EM(tolerance=1e-12, parameter_tolerance=1e-8),
    )
    open_model = DeepDiscreteEncoder(6, (2,), penalty=None)
    problem = problem_of(open_model, x, 0)
    steps = problem.structure.steps(problem, 2**18, 1)
    statistics = steps.e_step({name: value[None] for name, value in result.params.items()})[
        0
    ].layers["loadings_1"]
    graph = torch.tensor(GRAPH).bool()
    layer = open_model.layers()[0]
    found = edge_statistics(layer, statistics, result.params, graph)
    leaves = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    program = Program(open_model, x)
    slope = torch.autograd.grad(
        (program.log_marginal(leaves) + program.log_prior(leaves)).sum(), leaves["loadings_1"]
    )[0]
    weight = statistics.counts[0]  # the information of one child, by hand
    design = statistics.design
    for j, k in (~graph).nonzero().tolist():
        own = [0, 1 + GRAPH[j].index(1)]
        p = torch.sigmoid(
            design
            @ torch.cat([result.params["intercepts_1"][j : j + 1], result.params["loadings_1"][j]])
        )
        full = (design * (weight * p * (1 - p))[:, None]).mT @ design + layer.precision(
            slice(0, 6), x
        )
        left = full[1 + k, 1 + k] - full[1 + k, own] @ torch.linalg.solve(
            full[own][:, own], full[own, 1 + k]
        )
        assert float(found[j, k]) == pytest.approx(
            float(slope[j, k] ** 2 / left), rel=1e-4, abs=1e-9
        )
        wald = torch.linalg.inv(full[own][:, own])[1, 1]
        kept = GRAPH[j].index(1)
        assert float(found[j, kept]) == pytest.approx(
            float(result.params["loadings_1"][j, kept] ** 2 / wald), rel=1e-4
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": EM}, "engine must be"),
        ({"engine": 3}, "engine must be"),
        ({"penalties": ()}, "at least one"),
        ({"penalties": (1.0,)}, r"penalties\[0\] must be a penalty"),
        ({"gamma": -1.0}, "gamma must be"),
        ({"gamma": math.nan}, "gamma must be"),
        ({"num_moves": -1}, "num_moves"),
        ({"max_rounds": 1.5}, "max_rounds"),
    ],
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        ChoosePenalty(**settings)


def counts_of_three(seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Counts into the hundreds of six bits, most items with three of them, 300 rows."""
    rng = np.random.default_rng([seed, 6])
    loadings = np.zeros((18, 6))
    for j in range(18):
        others = [k for k in range(6) if k != j % 6]
        own = [j % 6, *([] if j < 6 else rng.choice(others, 2, replace=False))]
        loadings[j, own] = rng.uniform(0.7, 1.6, len(own))
    intercepts = rng.uniform(1, 2, 18)
    bits = rng.random((300, 6)) < 0.5
    x = rng.poisson(np.exp(intercepts + bits @ loadings.T))
    truth = {"loadings_1": loadings, "intercepts_1": intercepts, "proportions": np.full(6, 0.5)}
    return torch.as_tensor(x).double(), {k: torch.as_tensor(v) for k, v in truth.items()}


@pytest.mark.filterwarnings("ignore::inference.base.outcome.StartsWarning")
def test_a_plain_fit_of_counts_is_as_good_as_one_from_the_truth() -> None:
    """From the spectral start alone two of these four ended thousands of nats lower."""
    for seed in range(4):
        x, truth = counts_of_three(seed)
        found = fit(DeepDiscreteEncoder(18, (6,), Poisson()), x)
        best = fit(DeepDiscreteEncoder(18, (6,), Poisson()), x, ChoosePenalty(), init=truth)
        assert found.choice.final_ebic < best.choice.final_ebic + 1


@pytest.mark.filterwarnings("ignore::inference.base.outcome.StartsWarning")
def test_a_page_says_why_a_penalty_stands_twice(tmp_path) -> None:
    x, _ = counts_of_three(0)
    found = fit(DeepDiscreteEncoder(18, (6,), Poisson()), x)
    assert len(found.choice.penalty) == 2 * len(found.choice.penalties)
    text = write_report(found, x, tmp_path / "page.html").read_text()
    assert "a penalty stands once for each start" in text

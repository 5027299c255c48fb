"""Plain calls with a given graph: the best of several optima, met again or said not to be; what a
number of starts runs; SAEM, whose objectives differ by chance.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.own_programs import F64
from torch import Tensor
from zoo.table import WITH_LOCAL, simulated

from inference import EM, SAEM, Fit, StartsWarning, fit
from inference.base.optima import rank_restarts
from inference.fitting.fit import fit_from
from inference.fitting.problem import problem_of
from inference.structures.layers import structure as layers
from ppl_models import Bernoulli, DeepDiscreteEncoder, LogNormal
from ppl_models.datasets import load_timss
from ppl_models.parts.responses import ResponseFamily

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning",
    "ignore::inference.ConvergenceWarning",
    "ignore::inference.EstimateWarning",
)

LOG_NORMAL = LogNormal()
NUM_ROWS = 100
NEAR = 1e-2
LOW = (1, 4)  # seeds of tables of the encoder (4, 1) on which the spectral start ends low


def encoder(
    *sizes: int, num_items: int = 12, response: ResponseFamily = LOG_NORMAL
) -> DeepDiscreteEncoder:
    """Every item asks for one of the first half of the skills and one of the others, as in
    TIMSS.
    """
    contents = sizes[0] - sizes[0] // 2
    rows = [
        [
            int(k in (j % contents, contents + (j // contents) % (sizes[0] - contents)))
            for k in range(sizes[0])
        ]
        for j in range(num_items)
    ]
    return DeepDiscreteEncoder(
        num_items, sizes, response, graphs=(tuple(map(tuple, rows)),) + (None,) * (len(sizes) - 1)
    )


def table(model: DeepDiscreteEncoder, seed: int, num_rows: int = NUM_ROWS) -> Tensor:
    """Times (or answers) of persons with skills and a speed of their own, which the model does not
    know.
    """
    generator = torch.Generator().manual_seed(seed)
    graph = torch.tensor(model.graphs[0]).to(F64)
    top = (torch.rand(num_rows, 1, generator=generator) < 0.6).to(F64)
    skills = (
        torch.rand(num_rows, graph.shape[1], generator=generator).to(F64) < 0.2 + 0.6 * top
    ).to(F64)
    speed = torch.randn(num_rows, 1, generator=generator).to(F64)
    level = skills @ (graph * (0.5 + torch.rand(graph.shape, generator=generator).to(F64))).mT
    if isinstance(model.response, Bernoulli):
        chance = torch.sigmoid(2.5 * (level - level.mean(0)) + speed)
        return (torch.rand(level.shape, generator=generator).to(F64) < chance).to(F64)
    return torch.exp(
        0.7 * speed + level + 0.6 * torch.randn(level.shape, generator=generator).to(F64)
    )


def plainly(model: DeepDiscreteEncoder, data: Tensor, **settings) -> tuple[Fit, bool]:
    """A plain fit, and whether it warned that its best optimum was met once only."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(model, data, **settings)
    return result, any(issubclass(warning.category, StartsWarning) for warning in caught)


@functools.cache
def best_known(model: DeepDiscreteEncoder, seed: int) -> float:
    return fit(model, table(model, seed), EM(), init="random", num_restarts=40, seed=99).objective


@pytest.mark.parametrize(
    ("sizes", "response", "seeds"),
    [
        ((4, 1), LogNormal(), LOW),
        ((3, 2, 1), LogNormal(), (0,)),
    ],
)
def test_the_plain_call_reaches_the_best_of_forty_starts_or_says_that_it_met_its_best_once(
    sizes, response, seeds
):
    model = encoder(*sizes, response=response)
    for seed in seeds:
        data = table(model, seed)
        result, warned = plainly(model, data, seed=seed)
        assert result.objective > best_known(model, seed) - NEAR or warned, seed
        assert warned == (result.restarts.num_reached == 1)
        assert result.restarts.num_tried % 16 == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "response"),
    [((4, 1), LogNormal()), ((4, 1), Bernoulli()), ((3,), LogNormal()), ((4, 2, 1), LogNormal())],
)
def test_plain_calls_seldom_miss_the_best_of_forty_starts_in_silence(sizes, response):
    """Two starts that met prove nothing: an optimum that one start in twenty finds is missed now
    and then, more seldom than by one start.
    """
    model, missed, missed_alone = encoder(*sizes, response=response), 0, 0
    for seed in range(12):
        result, warned = plainly(model, table(model, seed), seed=seed)
        alone = fit(model, table(model, seed), EM(), seed=seed)
        missed += not warned and result.objective < best_known(model, seed) - NEAR
        missed_alone += alone.objective < best_known(model, seed) - NEAR
    assert missed <= min(2, missed_alone)


def test_a_spectral_start_alone_ends_lower():
    """What plain calls ran before they searched: there is something to miss in these tables."""
    model = encoder(4, 1)
    for seed in LOW:
        assert fit(model, table(model, seed), EM()).objective < best_known(model, seed) - 1


def test_a_search_that_met_its_best_once_says_so(monkeypatch):
    monkeypatch.setattr(layers, "SEARCH", replace(layers.SEARCH, batch=1, rungs=(), cap=1))
    result, warned = plainly(encoder(4, 1), table(encoder(4, 1), LOW[0]))
    assert (result.restarts.num_tried, result.restarts.num_reached) == (1, 1)
    assert warned


def test_four_starts_are_the_spectral_one_and_random_ones_and_say_what_they_met():
    model, data = encoder(4, 1), table(encoder(4, 1), LOW[0])
    problem = problem_of(model, data, 0)
    four, spectral = (
        problem.structure.start(problem, init, num)
        for init, num in (("spectral", 4), ("spectral", 1))
    )
    assert all(torch.equal(value[:1], spectral[name]) for name, value in four.items())
    low = fit(model, data, EM()).objective
    result, warned = plainly(model, data, num_restarts=4)
    assert len(result.restarts.objective) == 4
    assert result.restarts.num_tried is None
    assert float(result.restarts.objective[0]) == pytest.approx(low, abs=NEAR)
    assert result.objective > low + 1
    assert result.restarts.num_reached == 1
    assert warned
    named, warned = plainly(
        model, data, method=EM(), num_restarts=4
    )  # whoever names the method reads the starts themselves
    assert torch.equal(named.restarts.objective, result.restarts.objective)
    assert not warned


ONE_START = {  # plain calls of one start, and why that is right
    (
        "DeepDiscreteEncoder",
        "ChoosePenalty",
    ): (
        "the spectral start was the best of four on 16 of 16 tables of the published designs,"
        " random ones ended 100 to 3,000 of EBIC lower"
    ),
    ("NoisyOr", "GrowAndPrune"): "a search over latents of its own",
    ("GaussianFactorization", "Factorize"): "a singular value decomposition",
    ("Unmixing", "EM"): "vertices of the rows, exchanged until their simplex is largest",
    (
        "UsageFactorization",
        "SAEM",
    ): (
        "five random starts ended within the noise of its bound, by their parameters at the same"
        " estimate"
    ),
}


@pytest.mark.filterwarnings(
    "ignore::ppl_models.data.sequences.UnvisitedWarning"
)  # sequences of one step
@pytest.mark.parametrize("row", WITH_LOCAL, ids=lambda row: row.name)
def test_plain_calls_take_several_starts_wherever_latents_are_summed(row):
    problem = problem_of(row.model, simulated(row, 40, 1), 0)
    advice = problem.structure.recommended(problem)
    several = advice.search is not None or advice.num_restarts > 1
    assert several or (type(row.model).__name__, type(advice.method).__name__) in ONE_START


def test_a_batch_that_would_exceed_the_budget_is_of_four():
    model, data = encoder(4, 1), table(encoder(4, 1), 0)
    numbers = data.numel() * 2**4
    within = layers.SEARCH.first_work * numbers
    for budget, batch in ((within, 16), (within - 1, 4)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layers, "SEARCH", replace(layers.SEARCH, budget=budget))
            problem = problem_of(model, data, 0)
            assert problem.structure.recommended(problem).search.batch == batch


# ---------------------------------------------------------------- SAEM


def test_saem_tells_starts_of_one_optimum_from_those_of_two():
    """From two optima of exact EM, twice each by other draws: two optima, each met twice, although
    no two objectives agree.
    """
    model, data = encoder(4), table(encoder(4), 2, 300)
    exact = fit(model, data, EM(), init="random", num_restarts=16, seed=1).restarts
    assert exact.next_best is not None
    assert exact.next_best > 1
    places = [int((exact.optimum == number).nonzero()[0]) for number in (1, 1, 0, 0)]
    result = fit_from(
        model,
        data,
        SAEM(),
        lambda problem: {name: value[places] for name, value in exact.params.items()},
    )
    value = result.restarts.objective
    assert len(value.unique()) == 4
    assert result.restarts.optimum.tolist() == [1, 1, 0, 0]
    problem = problem_of(model, data, 0)
    assert sorted(rank_restarts(problem, result.restarts.params, value).optimum.tolist()) == [
        0,
        1,
        2,
        3,
    ]  # by objectives, no two are one
    assert "4 starts were run to the end, 2 of them to the best optimum" in result.restarts.text()


def test_plain_saem_takes_several_starts_and_says_how_often_the_best_was_met(monkeypatch):
    monkeypatch.setattr(layers, "MAX_ENUMERATED", 2)
    model, data = encoder(4), table(encoder(4), 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit(model, data)
    said = [
        str(warning.message) for warning in caught if issubclass(warning.category, StartsWarning)
    ]
    assert isinstance(result.method, SAEM)
    assert len(result.restarts.objective) == layers.FEW_STARTS
    assert result.restarts.optimum is not None
    assert len(said) == (result.restarts.num_reached == 1)
    assert all("more than 10% of its length away" in words for words in said)
    again, warned = plainly(model, data, init=result)
    assert len(again.restarts.objective) == 1
    assert not warned


# ---------------------------------------------------------------- the table of the paper


@pytest.mark.slow
def test_the_paper_s_response_times_reach_their_best_optimum():
    try:
        data = load_timss()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    model = DeepDiscreteEncoder(29, (7, 1), LogNormal(), graphs=(data.q_matrix.tolist(), None))
    times = torch.as_tensor(np.asarray(data.seconds))
    single = fit(model, times, EM())
    result = fit(model, times)
    many = fit(model, times, EM(), init="random", num_restarts=48, seed=7)
    assert single.objective < many.objective - 50
    assert result.objective == pytest.approx(many.objective, abs=0.1)
    assert result.restarts.num_reached >= 2

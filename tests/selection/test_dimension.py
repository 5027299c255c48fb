"""Choice of the number of latents: criteria, tables, pictures, what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from papers.deep_discrete_encoder import deep_design, generic_design
from scipy.optimize import linear_sum_assignment
from scipy.special import comb
from support.designed_items import BOUND, data_of

from inference import EM, EstimateWarning
from inference.acdc import acdc
from inference.programs.program import Program
from inference.selection import (
    ComponentNoise,
    HeldOut,
    InformationCriterion,
    LikelihoodRatio,
    SpectralRatio,
    penalty_path,
    select_dimension,
)
from inference.structures.layers.recoding import (
    INTERCEPT_RIDGE,
    RIDGE,
    dependency_network,
    layer_codes,
)
from inference.structures.layers.spectral import CUTS, layer_factors
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, Normal, Poisson, TruncatedLasso
from ppl_models.datasets import skew_normal_mixture

pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.BoundWarning"),
]


def first_layer(response, penalty=None):
    return lambda k: DeepDiscreteEncoder(18, (k, 2), response, penalty, bound=BOUND)


# ---------------------------------------------------------------- criteria


@pytest.mark.parametrize(
    "criterion", ["spectral", "ebic", pytest.param("held_out", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "response",
    [Normal(), pytest.param(Poisson(), marks=pytest.mark.slow)],
    ids=lambda r: type(r).__name__,
)
def test_the_first_layer_is_found(criterion, response):
    hits = 0
    for seed in range(2 if criterion == "spectral" else 1):
        x = data_of(response, 800, seed=seed)
        chosen = select_dimension(
            first_layer(response), x, [5, 6, 7], criterion, EM(max_iterations=150), num_restarts=2
        )
        hits += chosen.chosen == 6
    assert hits == (2 if criterion == "spectral" else 1)


def test_bits_that_share_latents_are_not_linearised_to_choose():
    """Overlapping graph, many rows: the linearised bits keep a seventh factor however many rows
    there are.
    """
    truth = generic_design(2, Bernoulli())
    grid, model = [4, 5, 6, 7, 8], DeepDiscreteEncoder(18, (6, 2))
    for seed in range(3):
        x = Program(model, None, 8000).simulate(truth, seed)["items"]
        x[:3, 0] = torch.nan
        found = select_dimension(lambda k: DeepDiscreteEncoder(18, (k, 2)), x, grid, "spectral")
        assert found.chosen == 6
        values = torch.linalg.svdvals(x[3:] - x[3:].mean(0))
        assert found.columns["singular_value"] == pytest.approx(values[3:8].tolist(), rel=1e-2)


def test_the_second_layer_is_found_by_its_singular_values():
    for seed in range(3):
        x = data_of(Normal(), 3000, seed=seed)
        found = select_dimension(
            lambda k: DeepDiscreteEncoder(18, (6, k), Normal()), x, [1, 2, 3], SpectralRatio()
        )
        assert found.chosen == 2
        assert not found.fits
        with pytest.raises(ValueError, match="fits no model"):
            _ = found.best


def deep_table(value, response, num_rows, seed):
    """Items and first latents of the design with layers (54, 18, 6, 2)."""
    model = DeepDiscreteEncoder(54, (18, 6, 2), response)
    drawn = Program(model, None, num_rows).simulate(deep_design(3, 2, value, response), seed)
    return drawn["items"], drawn[model.layers()[0].parent]


@pytest.mark.parametrize(
    "response", [Normal(), Bernoulli(), Poisson()], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("seed", range(3))
def test_the_middle_layer_of_three_is_found_by_its_singular_values(response, seed):
    x, _ = deep_table(5.0, response, 1000, seed)
    for sizes, grid in (((18, 0, 2), range(5, 10)), ((18, 0), range(5, 10)), ((18, 6, 0), [1, 2])):
        found = select_dimension(
            lambda k, sizes=sizes: DeepDiscreteEncoder(
                54, tuple(size or k for size in sizes), response
            ),
            x,
            grid,
            "spectral",
        )
        assert found.chosen == (2 if sizes[1] else 6)


def test_codes_of_a_layer_are_drawn_from_its_posterior():
    """Wrong bits of factor scores: 2.9 % at any number of rows; of the posterior, none."""
    x, true = deep_table(5.0, Normal(), 1000, 0)
    layer = DeepDiscreteEncoder(54, (18, 6, 2), Normal()).layers()[0]
    signs = layer_factors(x, 18, Normal(), CUTS[0]).latents
    codes = layer_codes(layer, x, 0, 0).bits
    x[::7, ::5] = torch.nan
    gaps = layer_codes(layer, x, 0, 0).bits

    def wrong(bits):
        apart = (bits.unsqueeze(2) != true.unsqueeze(1)).double().mean(0)
        apart = torch.minimum(apart, 1 - apart)
        return float(apart[linear_sum_assignment(apart.numpy())].mean())

    assert wrong(codes) < 0.005 < 0.02 < wrong(signs)
    assert wrong(gaps) < 0.02


def test_a_dependency_network_maximises_its_penalised_likelihood():
    bits = torch.rand(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) < 0.4
    bits = bits.double()
    bits[:, 3] = torch.where(bits[:, 0] > 0, bits[:, 1], bits[:, 3])
    found = dependency_network(bits).requires_grad_()
    predictor = found[:, 0] + bits @ found[:, 1:].mT
    density = torch.distributions.Bernoulli(logits=predictor).log_prob(bits).sum()
    penalty = RIDGE * found[:, 1:].square().sum() + INTERCEPT_RIDGE * found[:, 0].square().sum()
    (gradient,) = torch.autograd.grad(density - penalty / 2, found)
    assert (found.diagonal(1) == 0).all()
    gradient.diagonal(1).zero_()
    assert gradient.abs().max() < 1e-6


def test_unsure_codes_are_named_in_a_warning():
    x, _ = deep_table(2.0, Bernoulli(), 400, 0)
    with pytest.warns(EstimateWarning, match="layer 1 are unsure in single rows") as caught:
        select_dimension(lambda k: DeepDiscreteEncoder(54, (18, k)), x, range(5, 10), "spectral")
    assert len(caught) == 1


@pytest.mark.slow
def test_a_likelihood_ratio_stops_where_nothing_is_gained():
    x = data_of(Normal(), 300)
    found = select_dimension(
        first_layer(Normal()), x, [5, 6, 7], LikelihoodRatio(0.05, 19, 1), EM(max_iterations=60)
    )
    table = found.table
    assert table["p_value"].iloc[1] == 0.05
    assert table["replicates"].iloc[1] == 19
    statistic = 2 * (table["log_likelihood"].iloc[1] - table["log_likelihood"].iloc[0])
    assert table["ratio_statistic"].iloc[1] == pytest.approx(
        statistic, abs=1.0
    )  # the search of the test found a little more
    assert found.chosen >= 6
    if found.chosen == 6:
        assert table["p_value"].iloc[2] > 0.05


def test_what_lies_beyond_the_last_test_was_not_tested():
    x = torch.randn(60, 1, generator=torch.Generator().manual_seed(0)).double()
    found = select_dimension(
        lambda k: Mixture(k, Normal()),
        x,
        [1, 2, 3],
        LikelihoodRatio(0.05, 19, 2),
        EM(),
        num_restarts=3,
    )
    assert found.chosen == 1
    assert found.table["p_value"].iloc[1] > 0.05
    assert math.isnan(found.table["p_value"].iloc[2])


def test_the_table_holds_every_figure_of_every_fit():
    x = pd.DataFrame(data_of(Normal(), 300).numpy(), columns=[f"q{j}" for j in range(18)])
    found = select_dimension(first_layer(Normal()), x, [6, 3], "aic", EM(max_iterations=30))
    assert found.sizes == (3, 6)
    assert list(found.table.index) == ["3", "6"]
    for row, result in zip(found.table.itertuples(), found.fits, strict=True):
        assert row.log_likelihood == result.log_likelihood
        assert row.aic == pytest.approx(-2 * result.log_likelihood + 2 * result.num_parameters)
        assert row.bic == pytest.approx(result.bic)
        assert result.item_names == tuple(x.columns)
    assert found.best is found.fits[found.sizes.index(found.chosen)]
    assert found.table["chosen"].sum() == 1


@pytest.mark.slow
def test_other_criteria_judge_the_same_fits():
    x = data_of(Normal(), 300)
    found = select_dimension(first_layer(Normal()), x, [3, 6], "ebic", EM(max_iterations=30))
    again = select_dimension(
        first_layer(Normal()), x, [3, 6], LikelihoodRatio(0.5, 1, 1), EM(max_iterations=30)
    )
    other = found.by(LikelihoodRatio(0.5, 1, 1))
    assert other.fits is not again.fits
    assert all(a is b for a, b in zip(other.fits, found.fits, strict=True))
    assert other.columns["p_value"][1] == again.columns["p_value"][1]
    held = found.by("held_out")
    assert all(a.num_rows < b.num_rows for a, b in zip(held.fits, found.fits, strict=True))
    assert found.by("spectral").fits == ()
    with pytest.raises(ValueError, match="by: criterion must be one of"):
        found.by("nothing")


def test_a_family_is_called_with_the_columns():
    @dataclass(frozen=True)
    class OneLayer(DeepDiscreteEncoder):
        response: Normal = Normal()

    x = data_of(Normal(), 300)
    found = select_dimension(OneLayer, x, [(5, 2), (6, 2)], "spectral")
    assert found.chosen in ((5, 2), (6, 2))


def test_a_chosen_graph_counts_as_a_choice():
    """EBIC of a polished fit: its edges were picked among all loadings, and nothing else was."""
    x = data_of(Normal(), 400)
    penalty = TruncatedLasso.bic(400)
    found = select_dimension(
        first_layer(Normal(), penalty), x, [5, 6], "ebic", EM(max_iterations=60)
    )
    for size, result, row in zip(found.sizes, found.fits, found.table.itertuples(), strict=True):
        possible = size * 2 + 18 * size
        edges = sum(int((result.params[f"loadings_{d}"] != 0).sum()) for d in (1, 2))
        expected = row.bic + 2 * math.log(comb(possible, edges, exact=True))
        assert edges < possible
        assert row.ebic == pytest.approx(expected, rel=1e-9)
    path = penalty_path(first_layer(Normal())(6), x, [penalty], EM(max_iterations=60))
    assert path.scores[0] == pytest.approx(found.columns["ebic"][1], rel=1e-3)


def test_held_out_rows_are_not_fitted():
    x = data_of(Normal(), 200)
    found = select_dimension(first_layer(Normal()), x, [3, 6], HeldOut(0.25), EM(max_iterations=50))
    assert all(result.num_rows == 150 for result in found.fits)
    assert found.chosen == 6


def classes_around_a_shared_mean(k, centred=False):
    def model(y, offsets):
        means = pyro.sample("means", dist.Normal(torch.zeros(k).double(), 5.0).to_event(1))
        values = y - y.mean() if centred else y
        with pyro.plate("rows", len(y)):
            of = pyro.sample("of", dist.Categorical(torch.ones(k).double() / k))
            pyro.sample("values", dist.Normal(means[of] + offsets.mean(), 1.0), obs=values)

    return model


@pytest.mark.filterwarnings(
    "ignore::inference.DegenerateWarning", "ignore::inference.StartsWarning"
)
def test_held_out_rows_of_a_program_keep_what_is_none_of_them():
    """Failed before: the offsets were cut with the rows."""
    y = torch.randn(40, generator=torch.Generator().manual_seed(0)).double()
    offsets = torch.arange(41).double() ** 2 / 100
    for given in (offsets, offsets[None]):
        data = {"y": y, "offsets": given}
        found = select_dimension(classes_around_a_shared_mean, data, [1, 2], HeldOut(0.25), EM())
        order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
        fitted, held = y[order[10:]] - offsets.mean(), y[order[:10]] - offsets.mean()
        mean = fitted.sum() / (30 + 1 / 25)
        expected = -0.5 * float((held - mean).square().mean()) - 0.5 * math.log(2 * math.pi)
        assert found.columns["held_out"][0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.filterwarnings(
    "ignore::inference.DegenerateWarning", "ignore::inference.StartsWarning"
)
def test_held_out_refuses_rows_that_are_none():
    y = torch.randn(40, generator=torch.Generator().manual_seed(0)).double()
    as_long = {"y": y, "offsets": torch.arange(40).double()}
    with pytest.raises(ValueError, match="HeldOut: .*Every argument with 40 entries"):
        select_dimension(classes_around_a_shared_mean, as_long, [1, 2], HeldOut(), EM())
    with pytest.raises(ValueError, match="HeldOut: rows whose density does not depend"):
        select_dimension(
            lambda k: classes_around_a_shared_mean(k, centred=True),
            {"y": y, "offsets": torch.zeros(1).double()},
            [1, 2],
            HeldOut(),
            EM(),
        )


def test_components_are_chosen_by_their_noise():
    x, _ = skew_normal_mixture(num_rows=1500, seed=1)
    found = select_dimension(
        lambda k: Mixture(k, Normal()), x, [1, 2, 3], ComponentNoise(), num_restarts=2
    )
    assert found.chosen == 2
    fits = dict(zip(found.sizes, found.fits, strict=True))
    assert acdc(fits, x).chosen == found.chosen
    by_bic = select_dimension(lambda k: Mixture(k, Normal()), x, [1, 2, 3], "bic", num_restarts=2)
    assert by_bic.chosen == 3  # it mends the skewness


def test_the_picture_marks_the_choice():
    found = select_dimension(first_layer(Normal()), data_of(Normal(), 300), [4, 6, 7], "spectral")
    ax = found.plot()
    line = ax.get_lines()[0]
    assert np.allclose(line.get_ydata(), found.columns["ratio"])
    assert ax.get_lines()[1].get_xdata()[0] == found.sizes.index(found.chosen)
    assert "larger" in ax.get_ylabel()


# ---------------------------------------------------------------- bad input


def test_bad_grids_are_refused():
    x = data_of(Normal(), 60)
    family = first_layer(Normal())
    for grid, message in (
        ([], "distinct sizes"),
        ([6, 6], "distinct sizes"),
        ([0], "latent_sizes"),
        ([25], "exceeds num_items"),
    ):
        with pytest.raises(ValueError, match=message):
            select_dimension(family, x, grid)
    with pytest.raises(ValueError, match="rank at most 18"):
        select_dimension(lambda k: DeepDiscreteEncoder(18, (k,), Normal()), x, [17, 18], "spectral")
    for criterion in ("spectral", "ebic", "lrt", "held_out"):  # five rows, centred, have rank four
        with pytest.raises(ValueError, match="rank 4 after centring"):
            select_dimension(
                lambda k: DeepDiscreteEncoder(18, (k,), Normal()), x[:5], [3, 4, 5], criterion
            )
    with pytest.raises(ValueError, match="one layer's size may vary"):
        select_dimension(
            lambda k: DeepDiscreteEncoder(18, (2 * k, k), Normal()), x, [2, 3], "spectral"
        )
    with pytest.raises(ValueError, match="criterion must be one of rule, spectral"):
        select_dimension(family, x, [3], "best")
    with pytest.raises(ValueError, match="must return a model"):
        select_dimension(lambda k: k, x, [3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InformationCriterion("cic"), "name"),
        (lambda: InformationCriterion("ebic", -1), "gamma"),
        (lambda: LikelihoodRatio(0), "level"),
        (
            lambda: LikelihoodRatio(0.01, 50),
            "num_replicates = 50 cannot give a p-value of 0.01; at least 99",
        ),
        (lambda: HeldOut(1.0), "share"),
        (lambda: ComponentNoise(0.0), "min_share"),
        (lambda: penalty_path(DeepDiscreteEncoder(6, (2,)), torch.zeros(5, 6), []), "at least one"),
        (
            lambda: penalty_path(lambda data: None, torch.zeros(5, 6), [TruncatedLasso(1.0, 1.0)]),
            "field 'penalty'",
        ),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""What the attack found, each as a case of its own."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from fuzz import programs
from papers.profile_counts import scaled_counts

from inference import (
    EM,
    NUTS,
    SAEM,
    SVI,
    AlternatingMinimization,
    Bootstrap,
    ChoosePenalty,
    ConvergenceWarning,
    Fit,
    GrowAndPrune,
    Laplace,
    TrainClassifiers,
    fit,
)
from inference.bootstrap import bootstrap
from inference.causal import BDeu, dag_of_edges, discover
from inference.estimates import estimates_of
from inference.inspection import classifier_curves
from inference.loo import cross_validate
from inference.predictive import predictive_check
from inference.programs.curvature import generalised_inverse, inverse_information, refuse_flat
from inference.selection import ebic
from inference.uncertainty import check_information, standard_errors
from ppl_models import (
    AttributeGroups,
    ContinuousOptionsHMM,
    Dag,
    DeepDiscreteEncoder,
    DeepNoisyOr,
    Dense,
    FactorAnalysis,
    HiddenMarkov,
    InClassNet,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Network,
    NoisyOr,
    Normal,
    OptionsHMM,
    PoissonFactorization,
    SparseCoding,
    TruncatedLasso,
    UsageFactorization,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FEW = SVI(num_steps=10, num_draws=4, warm_start=None)


def normals(rows: int = 20, items: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, items))


def counts() -> np.ndarray:
    return np.random.default_rng(0).poisson(4.0, (12, 4)).astype(float) + 1


def bits(rows: int = 20, items: int = 4) -> np.ndarray:
    return (np.random.default_rng(0).random((rows, items)) < 0.5).astype(float)


@pytest.mark.parametrize(
    ("model", "data"), [(FactorAnalysis(4, 1), normals()), (UsageFactorization(4, 2), counts())]
)
def test_latents_that_other_engines_integrate_are_drawn_by_svi(model, data):
    assert math.isfinite(fit(model, data, FEW).objective)


@pytest.mark.parametrize("penalties", [torch.tensor(1.0), "x", 3, {1: 2}])
def test_candidates_are_a_tuple(penalties):
    with pytest.raises(ValueError, match="ChoosePenalty: penalties"):
        ChoosePenalty(penalties=penalties)


def test_a_guide_of_all_rows_is_not_fitted_to_batches():
    with pytest.raises(ValueError, match="SVI: activities of all rows.*batch_size"):
        fit(PoissonFactorization(4, 1), counts(), SVI(num_steps=10, batch_size=5, warm_start=None))


def test_the_likelihood_of_draws_is_exact_where_latents_integrate_in_closed_form():
    data = normals()
    result = fit(
        FactorAnalysis(4, 1),
        data,
        NUTS(num_chains=1, warmup_steps=20, num_samples=4, max_depth=3, warm_start=None),
    )
    assert result.log_likelihood == pytest.approx(float(result.log_likelihood_rows(data).sum()))


@pytest.mark.parametrize(
    "data", [np.where(np.eye(12, 5) > 0, -1e308, 1.0), np.full((12, 5), 1e300)]
)
def test_numbers_whose_squares_are_infinite_are_refused(data):
    with pytest.raises(ValueError, match="whose squares and sums are numbers too"):
        fit(
            SparseCoding(5, 3, 1),
            data + np.arange(12)[:, None],
            AlternatingMinimization(max_iterations=5),
            init="random",
        )


def test_a_program_that_gives_its_data_no_density_is_no_fit():
    with pytest.raises(ValueError, match="no start led to an answer"):
        fit(
            programs.undefined,
            torch.tensor([0.0, 2.0, 3.0], dtype=torch.float64),
            EM(max_iterations=2),
        )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (programs.twice, "program at line.*Multiple sample sites named 'mean'"),
        (programs.wrong_plate, "site 'x'.*shape .9,. were expected.*got .8,."),
    ],
)
def test_mistakes_in_a_program_are_said_with_their_line(program, message):
    with pytest.raises(ValueError, match=message):
        fit(program, torch.arange(8, dtype=torch.float64), EM(max_iterations=2))


def test_a_search_with_one_configuration_runs():
    result = fit(
        NoisyOr(5, 3),
        bits(30, 5),
        GrowAndPrune(
            num_configurations=1, max_iterations=3, num_search_rows=9, patience=2, num_proposals=3
        ),
    )
    assert math.isfinite(result.objective)


def test_a_laplace_approximation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="Laplace: every parameter is known or lies on the bound"):
        fit(
            DeepNoisyOr(5, (3, 1), (0.5, 0.5)),
            np.ones((6, 5)),
            Laplace(4, EM(max_iterations=1, accelerate=False, num_inner=2)),
            seed=4,
        )


def test_laplace_takes_single_precision():
    x = bits(200, 5)
    settings = {"init": "random", "seed": 1}
    single = fit(
        DeepDiscreteEncoder(5, (1,), bound=3.0),
        x.astype(np.float32),
        Laplace(50, EM(tolerance=1e-7)),
        **settings,
    )
    double = fit(
        DeepDiscreteEncoder(5, (1,), bound=3.0), x, Laplace(50, EM(tolerance=1e-7)), **settings
    )
    assert single.log_likelihood == pytest.approx(double.log_likelihood, abs=1e-2)


def test_a_rotation_does_not_leave_the_bound():
    result = fit(FactorAnalysis(3, 2, bound=1e-3), normals(6, 3), EM(max_iterations=3))
    assert float(result.params["signatures"].abs().max()) <= 1e-3


def test_a_tensor_without_numbers_is_refused():
    with pytest.raises(ValueError, match="'meta'"):
        fit(Mixture(2, num_items=3), torch.empty(5, 3, device="meta"))


@pytest.mark.parametrize("level", ["0.9", (0.1, 0.9), None, 1.0, math.nan])
def test_levels_are_numbers(level):
    with pytest.raises(ValueError, match="level must lie in"):
        estimates_of(mixture(), normals(), level=level)


@pytest.mark.parametrize("settings", [{"num_simulations": "x"}, {"max_rows": 2.5}, {"seed": "x"}])
def test_counts_of_a_predictive_check_are_counts(settings):
    with pytest.raises(ValueError, match=f"predictive_check: {next(iter(settings))} must be a"):
        predictive_check(mixture(), normals(), **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_predictive": "x"},
        {"num_predictive": 2.5},
        {"num_prior": [1]},
        {"seed": "x"},
        {"seed": -1},
    ],
)
def test_counts_of_an_export_are_counts(settings):
    with pytest.raises(
        ValueError, match=f"to_arviz: {next(iter(settings))} must be a non-negative integer"
    ):
        mixture().to_arviz(**settings)
    with pytest.raises(ValueError, match="simulate: seed"):
        mixture().simulate(3, seed="x")


def test_gradients_may_be_off_around_fits_and_questions():
    """A user's own loop often runs under no_grad."""
    data = bits(60, 5)
    model = DeepDiscreteEncoder(5, (1,), bound=3.0)
    straight = fit(model, data, EM(max_iterations=40))
    with torch.no_grad():
        result = fit(model, data, EM(max_iterations=40))
        assert result.objective == straight.objective
        assert math.isfinite(float(result.log_likelihood_rows(data).sum()))
        result.posterior_latents(data)
        result.reconstruct(data)
        standard_errors(result, data, hold_bounds=True)
        estimates_of(result, data)
        assert not torch.is_grad_enabled()


def mixture() -> Fit:
    return fit(Mixture(2, num_items=4), normals(), EM(max_iterations=5))


def test_rows_of_a_check_are_a_number():
    found = fit(Mixture(2, num_items=4), normals(), EM(max_iterations=3))
    with pytest.raises(ValueError, match="check_information: num_rows must be a positive integer"):
        check_information(found, num_rows=torch.tensor([5, 6]))


def test_data_without_width_in_a_direction_are_fitted():
    data = normals(30, 3)
    data[:, 2] = 1.0
    assert math.isfinite(
        fit(
            Mixture(2, MultivariateNormal(), num_items=3), data, EM(max_iterations=20)
        ).log_likelihood
    )


def test_a_search_that_proposes_one_latent_at_a_time():
    found = fit(NoisyOr(4, 3), bits(), GrowAndPrune(num_proposals=1))
    assert math.isfinite(found.log_likelihood)


def test_a_saved_objective_is_a_number(tmp_path):
    found = fit(Mixture(2, num_items=4), normals(), EM(max_iterations=3))
    dataclasses.replace(found, objective=math.nan).save(tmp_path / "fit")
    with pytest.raises(ValueError, match="objective must be finite"):
        Fit.load(tmp_path / "fit")


def test_options_that_end_are_drawn_under_one_naming():
    model = OptionsHMM(3, 2, 2, termination=True, num_steps=8)
    drawn = np.random.default_rng(0)
    data = {
        "state": drawn.integers(0, 3, (5, 8)),
        "action": drawn.integers(0, 2, (5, 8)),
        "length": np.full(5, 8),
    }
    found = fit(model, data, NUTS(num_chains=2, warmup_steps=20, num_samples=10, warm_start=None))
    assert {"termination", "choice"} <= set(found.draws)
    assert math.isfinite(found.objective)


def test_a_saved_log_likelihood_is_a_number_where_nothing_stands_for_it(tmp_path):
    found = fit(Mixture(2, num_items=4), normals(), EM(max_iterations=3))
    for name, wrong in (
        ("log_likelihood", math.nan),
        ("log_likelihood", -math.inf),
        ("elbo", math.nan),
    ):
        dataclasses.replace(found, **{name: wrong}).save(tmp_path / "fit")
        with pytest.raises(ValueError, match=f"{name} must be (finite|a number)"):
            Fit.load(tmp_path / "fit")
    dataclasses.replace(found, log_likelihood=math.nan, elbo=-3.0).save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").elbo == -3.0


def test_a_start_that_is_none_is_refused_before_any_work():
    for wrong in (torch.tensor([1.0, math.nan]), 3, ["spectral"]):
        with pytest.raises(
            ValueError,
            match="init: 'spectral', 'random', a dict of parameters or a fit were expected",
        ):
            fit(Mixture(2, num_items=4), normals(), init=wrong)
    with pytest.raises(ValueError, match="parameter 'weights' is missing"):
        fit(Mixture(2, num_items=4), normals(), init={})


def test_an_engine_inside_an_engine_is_refused_where_it_cannot_fit():
    for method in (ChoosePenalty(EM()), Bootstrap(EM(), 5)):
        with pytest.raises(ValueError, match="EM cannot fit InClassNet"):
            fit(InClassNet((1, 1), 2, Dense((2,))), normals()[:, :2], method)


def test_curves_of_values_near_the_end_of_single_precision():
    data = (
        np.where(normals()[:, :2] > 0, 1e39, -1e39) * np.linspace(0.5, 1.0, len(normals()))[:, None]
    )
    found = fit(
        InClassNet((1, 1), 2, Dense((2,))), data, TrainClassifiers(max_epochs=1), num_restarts=1
    )
    assert bool(torch.isfinite(classifier_curves(found, data, 0).edges).all())


def test_replicates_of_single_precision_have_its_parameters():
    found = fit(
        FactorAnalysis(4, 1), normals().astype(np.float32), Bootstrap(EM(max_iterations=5), 2)
    )
    assert all(bool(torch.isfinite(value).all()) for value in found.draws.values())


@pytest.mark.slow
def test_values_of_attributes_of_groups_keep_their_names_where_others_leave_the_interval():
    rng = np.random.default_rng(7)
    for rule in ("acdm", "gdm"):
        model = LatentAttributeModel(((1,), (1,), (1,)), items=rule, bound=1.0)
        for _ in range(3):
            data = np.column_stack([rng.random((12, 3)) < 0.3, np.arange(12) % 3]).astype(float)
            found = fit(
                AttributeGroups(model, ("early", "late", "never")), data, num_restarts=3
            ).params
            assert all(float(found[name].abs().max()) <= 1.0 for name in ("intercepts", "loadings"))


def test_numbers_whose_squares_are_infinite_are_refused_in_new_rows_too():
    found = fit(FactorAnalysis(4, 1), normals(), EM(max_iterations=3))
    for table in (np.full((2, 4), 1e308), np.full((2, 4), 1e30, np.float32)):
        with pytest.raises(
            ValueError, match="whose squares and sums are numbers too, were expected, got 1e\\+3"
        ):
            found.log_likelihood_rows(table)


def test_counts_beyond_whole_numbers_are_refused_in_new_rows_too():
    counts = np.random.default_rng(0).poisson(3.0, (12, 4)).astype(float)
    found = fit(UsageFactorization(4, 1), counts, SAEM(max_iterations=20))
    counts[3, 2] = 1e30
    with pytest.raises(ValueError, match="counts of at most"):
        found.posterior_latents(counts)


def test_a_saved_price_is_a_number(tmp_path):
    found = fit(Mixture(2, num_items=4), normals(), EM(max_iterations=3))
    for name in ("bic_price", "num_free", "num_observations"):
        wrong = math.nan if name == "bic_price" else -1
        dataclasses.replace(found, **{name: wrong}).save(tmp_path / "fit")
        with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
            Fit.load(tmp_path / "fit")


def test_sparse_sequences_are_refused():
    with pytest.raises(
        ValueError, match="a dense tensor was expected, got layout torch.sparse_coo"
    ):
        fit(HiddenMarkov(2, num_items=4), torch.from_numpy(normals()).to_sparse())


def test_scores_that_cannot_be_worked_with_are_refused(monkeypatch):
    def fails(_):
        raise torch.linalg.LinAlgError("the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(
        ValueError,
        match="standard_errors: the sum of squared scores of the rows is too ill-conditioned",
    ):
        refuse_flat(eye, eye, eye, ("a", "b"))
    for asks in (
        lambda: inverse_information(eye, ("a", "b")),
        lambda: generalised_inverse(eye, ("a", "b")),
    ):
        with pytest.raises(
            ValueError,
            match="the information is too ill-conditioned for its eigenvalues to be found",
        ):
            asks()


def test_a_fit_that_numbers_stop_says_so_without_the_words_of_the_library(monkeypatch):
    """Failed before: "a matrix could not be worked with (linalg.eigh: ... (error code: 9))"."""

    def fails(*_, **__):
        raise torch.linalg.LinAlgError(
            "linalg.eigh: The algorithm failed to converge (error code: 9)."
        )

    monkeypatch.setattr(torch.linalg, "eigh", fails)
    with pytest.raises(ValueError, match="no start led to an answer: a matrix") as refused:
        fit(FactorAnalysis(4, 1), normals())
    assert "linalg" not in str(refused.value)
    assert "error code" not in str(refused.value)


def test_an_information_that_is_not_finite_is_refused():
    """Failed before: torch's "linalg.eigh: the input matrix contained non-finite values"."""
    with pytest.raises(ValueError, match="check_information: the information is not finite"):
        generalised_inverse(
            torch.tensor([[1.0, torch.nan], [torch.nan, 1.0]], dtype=torch.float64), ("a", "b")
        )


def test_rows_of_a_list_are_left_out():
    data = normals()
    found = fit(Mixture(2, num_items=4), data, EM(max_iterations=3))
    assert cross_validate(found, data.tolist(), 2).elpd == cross_validate(found, data, 2).elpd
    with pytest.raises(ValueError, match="rows of unequal length"):
        cross_validate(found, [*data.tolist(), [1.0]], 2)


TABLE = np.full(4, 0.25)
GRAPH = np.array([[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda: discover(TABLE, 50, score="bic"), "discover: score must be BDeu"),
        (lambda: discover(TABLE, 50, score=BDeu), "discover: score must be BDeu"),
        (lambda: discover(TABLE, 50, search=3), "discover: search must be ExactSearch"),
        (lambda: discover(TABLE, 50, names=3), "discover: names must be 2 different names"),
        (lambda: discover(TABLE, 50, names="ab"), "discover: names must be 2 different names"),
        (
            lambda: discover([[0.5], [0.25, 0.25]], 50),
            "discover: table must be an array of numbers",
        ),
        (lambda: dag_of_edges(3, [(0, 1), 2]), "edges must join attributes 0 to 2"),
        (lambda: dag_of_edges("3", []), "num_attributes must be an integer"),
        (lambda: scaled_counts(GRAPH, "x"), "num_rows must be positive"),
    ],
)
def test_questions_of_causes_say_what_they_expect(question, message):
    with pytest.raises(ValueError, match=message):
        question()


def test_a_batch_without_an_item_leaves_its_variance():
    data = normals(12, 3)
    data[1:, 0] = np.nan
    found = fit(
        DeepDiscreteEncoder(3, (2,), Normal()),
        data,
        SAEM(max_iterations=3, num_burn_in=3, batch_rows=2),
    )
    assert bool(found.params["dispersion"].isfinite().all())


@pytest.mark.parametrize(
    "settings", [{"gamma": "x"}, {"gamma": -1.0}, {"num_possible": 1}, {"num_possible": 2.5}]
)
def test_ebic_is_asked_in_numbers(settings):
    with pytest.raises(ValueError, match=f"ebic: {next(iter(settings))} must"):
        ebic(mixture(), **settings)


def test_laplace_draws_what_nothing_is_known_of_by_its_prior():
    """Two kinds of rows and one row: the empty kind has an exponential prior of mean 10.

    Of log(rate) its density r exp(-r / 10) is largest at 10, with curvature 1, and that of the
    other, r^5 exp(-1.1 r), at 5 / 1.1, with curvature 5.
    """
    with pytest.warns(ConvergenceWarning, match=r"the optimum of rate\[\d\] is zero or near it"):
        found = fit(
            programs.counts,
            torch.tensor([4.0], dtype=torch.float64),
            Laplace(4000, EM(max_iterations=5)),
            num_restarts=1,
        )
    logs = found.draws["rate"][0].log()
    for kind, (mode, curvature) in zip(
        found.params["rate"].argsort().tolist(), ((10.0, 1.0), (5 / 1.1, 5.0)), strict=True
    ):
        error = curvature**-0.5
        assert float(logs[:, kind].mean()) == pytest.approx(
            math.log(mode), abs=5 * error / 4000**0.5
        )
        assert float(logs[:, kind].std()) == pytest.approx(error, rel=0.06)


def test_generic_steps_take_parameters_of_any_strides():
    model = ContinuousOptionsHMM(2, 3, 3, policy=Network(4))
    data = {"state": normals(6, 4).reshape(3, 4, 2), "action": np.arange(12).reshape(3, 4) % 3}
    assert math.isfinite(fit(model, data, EM(max_iterations=2, accelerate=False)).objective)


def test_classifiers_name_what_they_cannot_take():
    with pytest.raises(ValueError, match="penalties must be EvenWeights"):
        TrainClassifiers(penalties=(TruncatedLasso(1.0, 0.1),))
    for device in ("spectral", "meta"):
        with pytest.raises(ValueError, match="TrainClassifiers: device"):
            fit(
                InClassNet((1, 1), networks=Dense((2,))),
                normals(20, 2),
                TrainClassifiers(max_epochs=1, device=device),
            )


def test_scales_that_are_no_numbers_end_in_numbers_that_are_none():
    """Compared by their bits they differ from themselves, and restarts were told apart for ever."""
    model = InClassNet((1, 1), networks=Dense((2,)))
    start = fit(model, normals(20, 2), TrainClassifiers(max_epochs=1)).params
    broken = {
        name: value[None] * (math.nan if name in model.classifiers().scaling_sites else 1.0)
        for name, value in start.items()
    }
    assert bool(model.log_scores(torch.from_numpy(normals(20, 2)), broken).isnan().any())


def groups(**settings) -> tuple[AttributeGroups, np.ndarray]:
    model = LatentAttributeModel(
        [[1], [1], [1]], items="saturated", root=Dag(()), bound=0.5, monotone=True
    )
    rows = np.array(
        [[1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 2], [0, 1, 1, 0], [1, 0, 1, 1], [1, 0, 0, 2]],
        dtype=float,
    )
    return AttributeGroups(model, ("early", "late", "never"), **settings), rows


def test_a_line_search_that_leaves_the_numbers_does_not_end_a_fit_of_groups():
    model, rows = groups(free_items=(0, 2))
    method = SAEM(max_iterations=12, num_burn_in=10, num_relaxed=10, num_draws=6, num_kept=1)
    assert math.isfinite(fit(model, rows, method, seed=4).objective)


def test_groups_refuse_what_is_no_table_and_have_replicates():
    model, rows = groups()
    for data in (iter([1, 2]), {"a": rows}):
        with pytest.raises(ValueError, match="data: numbers were expected"):
            fit(model, data)
    with pytest.raises(ValueError, match="free_items: an item's name, or its number"):
        groups(free_items=0.5)
    free, _ = groups(free_items=(0,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = bootstrap(fit(free, rows, EM(max_iterations=3)), rows, num_replicates=2)
    assert bool(again.draws["loadings"].isfinite().all())


def test_one_row_has_a_covariance_of_nothing():
    result = fit(
        Mixture(1, MultivariateNormal(0.01), 4), normals(1, 4), EM(max_iterations=2), num_restarts=2
    )
    assert math.isfinite(result.objective)


def test_a_number_of_rows_may_be_an_integer_of_numpy():
    result = fit(PoissonFactorization(4, 2), counts(), num_restarts=1)
    assert result.simulate(np.int64(3), seed=np.int64(1))["items"].shape == (3, 4)


def test_parameters_of_two_dtypes_are_no_fit(tmp_path):
    result = fit(
        InClassNet((1, 1), networks=Dense((2,))), normals(20, 2), TrainClassifiers(max_epochs=1)
    )
    params = result.params | {"layer_1_weights": result.params["layer_1_weights"].float()}
    dataclasses.replace(result, params=params).save(tmp_path / "fit")
    with pytest.raises(
        ValueError, match="params.layer_1_weights must have the dtype of the others"
    ):
        Fit.load(tmp_path / "fit")
    turned = {name: value.to(torch.complex64) for name, value in result.params.items()}
    dataclasses.replace(result, params=turned).save(tmp_path / "turned")
    with pytest.raises(ValueError, match="must hold floating numbers"):
        Fit.load(tmp_path / "turned")


def test_what_is_no_number_is_no_name():
    with pytest.raises(ValueError, match="names must be 2 different names"):
        discover(np.array([0.4, 0.1, 0.2, 0.3]), 1000, names=[1.0, math.nan])
    with pytest.raises(
        ValueError, match="num_rows must be a number of at least 1 and at most 1e[+]15"
    ):
        discover(np.array([0.4, 0.1, 0.2, 0.3]), 1e308)


def test_more_starts_than_a_batch_can_hold_are_refused():
    with pytest.raises(ValueError, match="at most 1,000,000 starts"):
        fit(Mixture(2, Normal(), 4), normals(), num_restarts=2**31)


def test_a_fit_takes_no_negative_time(tmp_path):
    result = fit(PoissonFactorization(4, 2), counts(), num_restarts=1)
    dataclasses.replace(result, seconds=-1.0).save(tmp_path / "fit")
    with pytest.raises(ValueError, match="seconds must not be negative"):
        Fit.load(tmp_path / "fit")


@pytest.mark.parametrize(
    "data",
    [
        torch.zeros(2, 5, 1, device="meta"),
        [torch.zeros(5, 1, device="meta")] * 2,
        torch.zeros(5, 1).to_sparse(),
    ],
    ids=["one", "several", "sparse"],
)
def test_sequences_that_hold_no_numbers_are_refused(data):
    with pytest.raises(ValueError, match="data: a .* was expected"):
        fit(HiddenMarkov(2, Normal()), data)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sequences_in_few_digits_are_taken(dtype):
    data = torch.randn(2, 8, 1, generator=torch.Generator().manual_seed(0)).to(dtype)
    one, other = (
        fit(HiddenMarkov(1, Normal()), x, EM(), num_restarts=1) for x in (data, list(data))
    )
    assert (
        one.log_likelihood
        == other.log_likelihood
        == pytest.approx(
            fit(HiddenMarkov(1, Normal()), data.double(), EM(), num_restarts=1).log_likelihood
        )
    )


def test_single_precision_data_resample_a_fit_in_double_precision():
    data = normals(30, 4)
    result = fit(DeepDiscreteEncoder(4, (2,), Normal()), data, EM(max_iterations=3), num_restarts=1)
    found = bootstrap(result, torch.as_tensor(data).float(), num_replicates=2)
    assert all(value.isfinite().all() for value in found.draws.values())

"""Classes and columns that their fit did not know: estimates against maxima found otherwise, errors
against what a copy of each row does to all steps.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from inference import EM, Fit, fit
from inference.base.outcome import EstimateWarning
from inference.relations import class_coefficients, compare_outcomes, regress_classes
from inference.relations.first_step import FirstStep
from inference.relations.regression import ClassLogit
from inference.uncertainty import standard_errors
from ppl_models import Bernoulli, Covariates, DeepDiscreteEncoder, Mixture, Normal

ITEMS = list("abcd")
TIGHT = EM(tolerance=1e-14, parameter_tolerance=1e-10)
WAYS = [
    ("two-step", "proportional"),
    ("ml", "proportional"),
    ("bch", "proportional"),
    ("none", "proportional"),
    ("ml", "modal"),
]


def simulated(num_rows: int, seed: int, yes: float = 0.85) -> pd.DataFrame:
    """Two classes of answers; a number and a text on which they depend, and outcomes that depend on
    them.
    """
    rng = np.random.default_rng(seed)
    age, town = rng.normal(size=num_rows), rng.integers(0, 2, num_rows)
    second = rng.random(num_rows) < expit(-0.5 + age - 0.7 * town)
    frame = pd.DataFrame(
        (rng.random((num_rows, 4)) < np.where(second, yes, 1 - yes)[:, None]).astype(float),
        columns=ITEMS,
    )
    frame["age"], frame["town"] = age, np.where(town == 1, "south", "north")
    frame["grade"] = rng.normal(1.0 * second, 1.0)
    frame["vote"] = np.where(
        rng.random(num_rows) < np.where(second, 0.7, 0.2),
        "yes",
        np.where(rng.random(num_rows) < 0.5, "no", "none"),
    )
    return frame


@pytest.fixture(scope="module")
def example() -> tuple[pd.DataFrame, Fit]:
    frame = simulated(500, 1)
    return frame, fit(Mixture(2, Bernoulli(), 4), frame[ITEMS], TIGHT, num_restarts=3)


@pytest.mark.parametrize(("method", "assignment"), WAYS)
def test_estimates_are_the_maxima_of_their_likelihoods(
    example: tuple[pd.DataFrame, Fit], method: Any, assignment: Any
) -> None:
    frame, first = example
    found = regress_classes(first, frame, ("age", "town"), method, assignment)
    r = first.posterior_latents(frame[ITEMS])["assignments"].numpy()
    w = r if assignment == "proportional" else np.eye(2)[r.argmax(1)]
    table = r.T @ w / r.sum(0)[:, None]
    eta = first.params["predictors"].numpy()
    distribution = frame[ITEMS].to_numpy() @ eta.T - np.log1p(np.exp(eta)).sum(1)
    terms = np.c_[np.ones(500), frame["age"], frame["town"] == "south"]

    def minus(b: np.ndarray) -> float:
        log_p = log_softmax(np.c_[np.zeros(500), terms @ b], 1)
        if method == "two-step":
            return -float(np.logaddexp.reduce(log_p + distribution, axis=1).sum())
        if method == "ml":
            return -float((w * np.log(np.exp(log_p) @ table)).sum())
        return -float(((w @ np.linalg.inv(table) if method == "bch" else w) * log_p).sum())

    best = minimize(minus, np.zeros(3), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(
        found.coefficients[0], best.x, atol=2e-3
    )  # a weak prior lies between them
    np.testing.assert_allclose(
        found.classification if found.classification is not None else 0, table, atol=1e-9
    )


def coefficients(frame: pd.DataFrame, first: Fit) -> torch.Tensor:
    """All steps up to the estimates, by each method, in standard deviations of the example's
    covariate, (4, 2).
    """
    known = Covariates(("age",), units=((0.5, 0.5),))
    again, given = (
        fit(first.model, frame[ITEMS[:3]], TIGHT, init=first),
        known.check(frame[["age"]]).double(),
    )
    steps = {
        how: FirstStep("test", again, frame[ITEMS[:3]], how) for how in ("proportional", "modal")
    }  # type: ignore[arg-type]
    return torch.stack(
        [
            ClassLogit(steps[how], method, known, given, torch.ones(len(given)).double())
            .solve()
            .ravel()
            for method, how in WAYS[:4]
        ]
    )  # type: ignore[arg-type]


def test_errors_are_those_of_a_copy_of_each_row() -> None:
    """A copy of a row moves the estimate by the row's influence, whose squares add up to the
    covariance: all steps done again for every kind of row.
    """
    patterns = (
        np.array(np.meshgrid([0, 1], [0, 1], [0, 1], [0, 1])).reshape(4, -1).T.astype(float)
    )  # three answers and a covariate
    share = expit(-0.4 + 1.2 * patterns[:, 3])
    yes, no = (
        np.prod(np.where(patterns[:, :3] == 1, p, 1 - np.array(p)), 1)
        for p in ((0.9, 0.8, 0.85), (0.1, 0.25, 0.2))
    )
    counts = np.round(800 * (share * yes + (1 - share) * no)).astype(int)
    frame = pd.DataFrame(patterns, columns=[*ITEMS[:3], "age"])
    frame = frame.loc[frame.index.repeat(counts)].reset_index(drop=True)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # three answers tell two classes as well as they can: there is no cell to spare
        first = fit(Mixture(2, Bernoulli(), 3), frame[ITEMS[:3]], TIGHT, num_restarts=2)
        at = coefficients(frame, first)
        places = np.r_[0, counts.cumsum()[:-1]]
        moved = (
            torch.stack(
                [
                    coefficients(pd.concat([frame, frame.iloc[[i] * 4]], ignore_index=True), first)
                    - at
                    for i in places
                ]
            )
            / 4
        )
        change = np.array(
            [[1.0, -1.0], [0.0, 2.0]]
        )  # an intercept at age 0.5, and a slope in halves, as those of the frame
        for i, (method, assignment) in enumerate(WAYS[:4]):
            own = moved[:, i].numpy() @ change.T
            found = regress_classes(first, frame[ITEMS[:3]], frame[["age"]], method, assignment)  # type: ignore[arg-type]
            np.testing.assert_allclose(
                np.sqrt(np.diag(found.covariance)),
                np.sqrt(counts @ own**2),
                rtol=0.02,
                err_msg=method,
            )


def test_classes_that_are_certain_leave_an_ordinary_comparison() -> None:
    frame = simulated(400, 2, yes=0.5)
    second = np.random.default_rng(3).random(400) < 0.4
    items = pd.DataFrame(
        np.random.default_rng(4).normal(20.0 * second[:, None], 1.0, (400, 2)), columns=["x", "y"]
    )
    first = fit(Mixture(2, Normal(), 2), items, EM(), num_restarts=2)
    group = first.predict(items)
    grade = np.where(group == 1, frame["grade"] + 1, frame["grade"])
    for method in ("bch", "none"):
        found = compare_outcomes(first, items, grade, method)
        own = [grade[group == k] for k in (0, 1)]
        np.testing.assert_allclose(found.means[:, 0], [one.mean() for one in own], rtol=1e-6)
        np.testing.assert_allclose(
            found.frame()["error"], [one.std() / np.sqrt(len(one)) for one in own], rtol=1e-5
        )
        assert found.test()[1] == 1
    assert found.entropy_r2 == pytest.approx(1.0, abs=1e-6)


def test_outcomes_of_numbers_and_of_categories(example: tuple[pd.DataFrame, Fit]) -> None:
    frame, first = example
    second = int(first.params["predictors"].sum(1).argmax())
    numbers = compare_outcomes(first, frame, "grade")
    naive = compare_outcomes(first, frame, "grade", "none")
    assert abs(naive.means[1, 0] - naive.means[0, 0]) < abs(
        numbers.means[1, 0] - numbers.means[0, 0]
    )
    assert abs(numbers.means[second, 0] - 1.0) < 4 * numbers.frame()["error"].iloc[second]
    pair = numbers.pairs().iloc[0]
    assert pair["chi2"] == pytest.approx((pair["difference"] / pair["error"]) ** 2)
    assert pair["p_holm"] == pair["p"] == pytest.approx(numbers.test()[2])
    gaps = frame.assign(vote=frame["vote"].where(frame.index % 10 != 0))
    shares = compare_outcomes(first, gaps, "vote")
    assert (shares.levels, shares.num_missing, shares.test()[1]) == (("no", "none", "yes"), 50, 2)
    np.testing.assert_allclose(shares.means.sum(1), 1.0)
    assert abs(shares.means[second, 2] - 0.7) < 4 * np.sqrt(
        shares.covariance[3 * second + 2, 3 * second + 2]
    )
    assert (
        "Proportions of vote by class, corrected by BCH weights, 450 rows (50 have no outcome)"
        in str(shares)
    )
    assert "<table" in shares._repr_html_()  # noqa: SLF001


def test_one_step_has_the_same_table(example: tuple[pd.DataFrame, Fit]) -> None:
    frame, first = example
    known = Covariates.from_frame(frame[["age", "town"]])
    one = fit(
        Mixture(2, Bernoulli(), 4, covariates=known),
        frame[[*ITEMS, "age", "town"]],
        EM(),
        num_restarts=2,
    )
    found = class_coefficients(one, frame[[*ITEMS, "age", "town"]])
    errors = standard_errors(one, frame[[*ITEMS, "age", "town"]]).standard_errors["coefficients"]
    np.testing.assert_allclose(found.frame()["error"], errors.ravel())
    table, two = found.frame(), regress_classes(first, frame, ("age", "town"))
    assert list(table.index) == [(1, "intercept"), (1, "age"), (1, "town=south")]
    assert table.loc[(1, "age"), "odds_ratio"] == pytest.approx(
        np.exp(table.loc[(1, "age"), "estimate"])
    )
    assert two.tests().loc["age", "chi2"] == pytest.approx(two.frame().loc[(1, "age"), "z"] ** 2)
    high = [int(one.params["predictors"].sum(1).argmax()) for one in (first, one)]
    sign = 1 if high[0] == high[1] else -1
    np.testing.assert_allclose(sign * two.coefficients, found.coefficients, atol=0.15)
    assert "<table" in two._repr_html_()  # noqa: SLF001


def test_what_cannot_be_related_is_refused_in_one_sentence(
    example: tuple[pd.DataFrame, Fit],
) -> None:
    frame, first = example
    for call, words in (
        (lambda: regress_classes(first, frame, ("age",), "mle"), "method must be one of"),
        (
            lambda: regress_classes(first, frame, ("age",), "ml", "soft"),
            "assignment must be one of",
        ),
        (
            lambda: regress_classes(first, frame, ("income",)),
            "columns of the data were expected, got 'income'",
        ),
        (
            lambda: regress_classes(first, frame[ITEMS], frame["age"][:7]),
            "one line for each of the 500 rows was expected, got 7",
        ),
        (
            lambda: regress_classes(
                first, frame, frame[["age"]].mask(frame[["d"]].index.to_numpy()[:, None] == 4)
            ),
            "covariate 'age' is missing in row 4",
        ),
        (
            lambda: regress_classes(first, frame.iloc[:9], ("age",)),
            "the 500 rows of the fit were expected, got 9",
        ),
        (
            lambda: compare_outcomes(first, frame, ("age", "grade")),
            "one column was expected, got 2",
        ),
        (lambda: compare_outcomes(first, frame, np.ones(500)), "the same in all rows"),
        (lambda: class_coefficients(first, frame), r"a fit of Mixture\(..., covariates=...\)"),
        (
            lambda: regress_classes(
                fit(DeepDiscreteEncoder(4, (2,)), frame[ITEMS], EM(max_iterations=3)),
                frame,
                ("age",),
            ),
            "one latent class a row",
        ),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match=words):
                call()
    one = fit(
        Mixture(2, Bernoulli(), 4, covariates="age"), frame[[*ITEMS, "age"]], EM(), num_restarts=1
    )
    with pytest.raises(ValueError, match="depend on columns that are given already"):
        regress_classes(one, frame, ("town",))


def test_rows_in_another_order_are_refused(example: tuple[pd.DataFrame, Fit]) -> None:
    """Failed before: a series with the index 0, 1, ... was taken by its places."""
    frame, first = example
    turned = frame.iloc[::-1]
    words = "outcome: the index of the rows was expected, got another one"
    with pytest.raises(ValueError, match=words):
        compare_outcomes(first, turned[ITEMS], frame["grade"])
    with pytest.raises(ValueError, match="covariates: the index of the rows"):
        regress_classes(first, turned[ITEMS], frame[["age"]])
    named, by_place = (
        compare_outcomes(first, turned[ITEMS], own)
        for own in (turned["grade"], turned["grade"].to_numpy())
    )
    np.testing.assert_allclose(named.means, by_place.means)


def test_classes_that_rows_hardly_tell_are_named() -> None:
    frame = simulated(400, 5, yes=0.68)
    first = fit(Mixture(2, Bernoulli(), 4), frame[ITEMS], EM(), num_restarts=3)
    with pytest.warns(EstimateWarning, match="tell their classes badly"):
        compare_outcomes(first, frame, "grade")


def classes_of_ones_own(data: torch.Tensor) -> None:
    weights = pyro.sample("shares", dist.Dirichlet(torch.ones(2, dtype=data.dtype)))
    chances = pyro.sample("chances", dist.Beta(torch.ones(2, 4, dtype=data.dtype), 1.0).to_event(2))
    with pyro.plate("rows", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("answers", dist.Bernoulli(Vindex(chances)[..., group, :]).to_event(1), obs=data)


def test_a_program_of_ones_own_has_the_same_relations(example: tuple[pd.DataFrame, Fit]) -> None:
    frame, first = example
    items = torch.tensor(frame[ITEMS].to_numpy())
    own = fit(
        classes_of_ones_own,
        items,
        EM(),
        init={"shares": first.params["weights"], "chances": first.params["predictors"].sigmoid()},
    )
    one, other = (
        compare_outcomes(own, items, frame["grade"]),
        compare_outcomes(first, frame, "grade"),
    )
    np.testing.assert_allclose(one.means, other.means, atol=2e-3)
    np.testing.assert_allclose(one.frame()["error"], other.frame()["error"], rtol=0.02)
    with pytest.raises(ValueError, match="'two-step' needs the weights of a mixture"):
        regress_classes(own, items, frame[["age"]])


@pytest.mark.parametrize("method", ["two-step", "bch"])
def test_weights_are_copies(method: Any) -> None:
    """Failed before: weighted fits were refused."""
    frame = simulated(300, 4)
    counts = np.random.default_rng(5).integers(0, 3, 300)
    copied = frame.loc[frame.index.repeat(counts)].reset_index(drop=True)
    weighted, plain = (
        fit(Mixture(2, Bernoulli(), 4), rows[ITEMS], TIGHT, num_restarts=2, weights=own)
        for rows, own in ((frame, counts), (copied, None))
    )
    one, other = (
        regress_classes(own, rows, ("age", "town"), method)
        for own, rows in ((weighted, frame), (plain, copied))
    )
    np.testing.assert_allclose(
        one.frame()[["estimate", "error"]], other.frame()[["estimate", "error"]], rtol=2e-3
    )
    assert (one.num_rows, one.entropy_r2) == (
        other.num_rows,
        pytest.approx(other.entropy_r2, rel=1e-4),
    )
    one, other = (
        compare_outcomes(own, rows, "grade") for own, rows in ((weighted, frame), (plain, copied))
    )
    np.testing.assert_allclose(
        one.frame()[["estimate", "error"]], other.frame()[["estimate", "error"]], rtol=2e-3
    )


def test_weights_are_copies_in_one_step() -> None:
    """Failed before in the number of rows, which counted each once."""
    frame = simulated(120, 4)[[*ITEMS, "age"]]
    counts = np.random.default_rng(5).integers(1, 3, 120)
    copied = frame.loc[frame.index.repeat(counts)].reset_index(drop=True)
    model = Mixture(2, Bernoulli(), 4, covariates="age")
    weighted = fit(model, frame, TIGHT, num_restarts=1, weights=counts)
    plain = fit(model, copied, TIGHT, init=weighted)
    one, other = class_coefficients(weighted, frame), class_coefficients(plain, copied)
    np.testing.assert_allclose(
        one.frame()[["estimate", "error"]], other.frame()[["estimate", "error"]], rtol=2e-3
    )
    assert one.num_rows == other.num_rows == counts.sum()


def test_rows_without_covariates_stand_aside(example: tuple[pd.DataFrame, Fit]) -> None:
    """The maximum over the rows that have them, with the classes as all rows made them."""
    frame, first = example
    gaps = frame.assign(
        age=frame["age"].where(np.arange(500) % 5 > 0),
        town=frame["town"].where(np.arange(500) != 7),
    )
    found = regress_classes(first, gaps, ("age", "town"), covariates_missing="drop")
    assert (found.num_rows, found.num_missing) == (399, 101)
    assert "399 rows (101 lack a covariate and stand aside)" in str(found)
    seen = gaps[["age", "town"]].notna().all(axis=1).to_numpy()
    distribution = torch.log(
        first.posterior_latents(frame[ITEMS])["assignments"] / first.params["weights"]
    ).numpy()[seen]
    terms = np.c_[np.ones(399), gaps["age"][seen], gaps["town"][seen] == "south"]

    def minus(b: np.ndarray) -> float:
        eta = np.c_[np.zeros(399), terms @ b]
        return -float(np.log(np.exp(log_softmax(eta, axis=1) + distribution).sum(1)).sum())

    best = minimize(minus, np.zeros(3), tol=1e-10).x
    np.testing.assert_allclose(
        found.coefficients.ravel(), best, rtol=5e-3
    )  # but for the weak prior
    with pytest.raises(ValueError, match="covariate 'age' is missing in row 0"):
        regress_classes(first, gaps, ("age", "town"))
    with pytest.raises(ValueError, match="covariates_missing must be 'refuse' or 'drop'"):
        regress_classes(first, gaps, ("age", "town"), covariates_missing="no")  # type: ignore[arg-type]


def test_labels_are_part_of_what_the_first_step_knows() -> None:
    """A label that is wrong in a tenth of the rows is an item with known chances."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 150)
    answers = (rng.random((150, 3)) < np.where(z, 0.75, 0.3)[:, None]).astype(float)
    told = np.where(np.arange(150) < 90, np.where(rng.random(150) < 0.1, 1 - z, z), np.nan)
    labelled = fit(Mixture(2, Bernoulli(), 3), answers, TIGHT, labels=told, label_error=0.1)
    known = np.full((2, 4), np.nan)
    known[:, 3] = np.log([1 / 9, 9.0])
    beside = np.c_[answers, told]
    item = fit(Mixture(2, Bernoulli(), 4), beside, TIGHT, fixed={"predictors": known})
    influences = [
        FirstStep("test", first, rows, "proportional").slopes(lambda moved: moved.sizes)[1]
        for first, rows in ((labelled, answers), (item, beside))
    ]
    torch.testing.assert_close(influences[0], influences[1], atol=1e-5, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::inference.BoundWarning", "ignore::inference.DegenerateWarning")
@pytest.mark.parametrize("method", ["two-step", "ml", "bch", "none"])
def test_a_class_that_nobody_has_is_refused_by_name(
    example: tuple[pd.DataFrame, Fit], method: Any
) -> None:
    frame, first = example
    certain = first.posterior_latents(frame[ITEMS])["assignments"].argmax(1)
    labels = {"assignments": torch.nn.functional.one_hot(certain, 3).double()}
    labels["assignments"][:200] = 1.0
    again = fit(Mixture(3, Bernoulli(), 4), frame[ITEMS], TIGHT, labels=labels, num_restarts=3)
    assert float(again.posterior_latents(frame[ITEMS])["assignments"][:, 2].sum()) < 0.01
    with pytest.raises(ValueError, match="regress_classes: .*class 2 has"):
        regress_classes(again, frame, ("age", "town"), method)
    if method in ("bch", "none"):
        with pytest.raises(ValueError, match="compare_outcomes: .*class 2 has"):
            compare_outcomes(again, frame, "grade", method)


def test_no_test_of_classes_between_which_an_outcome_does_not_vary() -> None:
    """Shares of about a half, none and all: the pseudo-inverse left out the last two."""
    rng = np.random.default_rng(0)
    of = np.repeat([0, 1, 2], 100)
    rows = rng.normal(size=(300, 2)) + np.array([[0, 0], [40, 0], [0, 40]])[of]
    classes = fit(Mixture(3, Normal(), 2), rows, TIGHT, num_restarts=3)
    own = classes.posterior_latents(rows)["assignments"].argmax(1).numpy()
    half = rng.integers(0, 2, 300)
    found = compare_outcomes(classes, rows, np.where(own == 0, half, own == 1), "none")
    chi2, df, p = found.test()
    assert np.isnan(chi2)
    assert np.isnan(p)
    assert df == 2
    assert not found.differs
    assert "No test says whether the classes differ" in found.headline
    assert "no test" in found.sentences[0]
    pairs = found.pairs()
    assert np.isnan(pairs.loc["2 - 1", "p"])
    for other in (1, 2):  # an ordinary Wald test of a share against a number
        share = half[own == 0].mean()
        wald = ((other == 1) - share) ** 2 / (share * (1 - share) / (own == 0).sum())
        assert pairs.loc[f"{other} - 0", "chi2"] == pytest.approx(wald, rel=1e-6)
    # nobody of two classes has it: a difference of nothing is no difference
    same = compare_outcomes(classes, rows, np.where(own == 0, half, 0), "none")
    assert same.test()[1] == 1
    share = half[own == 0].mean()
    wald = share**2 / (share * (1 - share) / (own == 0).sum())
    assert same.test()[0] == pytest.approx(wald, rel=1e-6)

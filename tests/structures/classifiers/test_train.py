"""The engine of independent classifiers: gradients against automatic differentiation, fits of small
examples, what it promises of batches.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from papers.classifier_losses import unnorm_neg_ctc
from scipy import optimize
from torch import Tensor, nn

from inference import (
    CrossTotalCorrelation,
    EvenWeights,
    Fit,
    KnownWeights,
    Labels,
    TrainClassifiers,
    fit,
)
from inference.fitting.problem import problem_of
from inference.structures.classifiers.regularizers import (
    geometric_log_weights,
    log_pseudo_weights,
    log_ratio_rows,
    neg_ctc,
)
from inference.structures.classifiers.train import Course, _Training
from ppl_models import Dense, InClassNet, Lookup
from ppl_models.datasets import simulate_two_gaussians

F64 = torch.float64
LABELS = torch.randint(-1, 4, (40,), generator=torch.Generator().manual_seed(3))
CONFUSION = torch.rand(4, 4, generator=torch.Generator().manual_seed(4), dtype=F64)
CONFUSION = CONFUSION / CONFUSION.sum(1, keepdim=True)


def normals(rows: int = 40, columns: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=F64)


def training_of(
    model: InClassNet, data: Tensor, method: TrainClassifiers, restarts: int = 2
) -> tuple[_Training, Course, Any]:
    problem = problem_of(model, data, 0)
    start = problem.structure.start(problem, "random", restarts)
    training = _Training(method, problem.structure.about, problem, start)
    course = Course.begin(
        training.networks.theta, start, restarts, method.learning_rate, training.generator
    )
    return training, course, (problem, start)


def full_gradient(
    model: InClassNet, data: Tensor, method: TrainClassifiers
) -> tuple[Tensor, Any, Any]:
    with torch.no_grad():
        training, course, (problem, start) = training_of(
            model, data, replace(method, batch_size=None, validation_share=0.0)
        )
        training._descend = lambda *args: None  # type: ignore[method-assign]
        training._full_step(course, torch.ones(()))
    return training.gradient, training, (problem, start)


def weights_of(scores: Tensor) -> Tensor:
    return geometric_log_weights(log_pseudo_weights(scores))


def entropy_of_rows(scores: Tensor) -> Tensor:
    log_phi = log_pseudo_weights(scores)
    joint = (scores - log_phi.unsqueeze(-2)).sum(1) + geometric_log_weights(log_phi).unsqueeze(1)
    known = LABELS >= 0
    return -(joint.softmax(-1) @ CONFUSION)[:, known, LABELS[known]].log().mean(-1)


def entropy_of_variates(scores: Tensor) -> Tensor:
    known = LABELS >= 0
    return -(scores.exp() @ CONFUSION)[:, :, known, LABELS[known]].log().mean((1, 2))


PENALTIES = (
    EvenWeights(0.3),
    EvenWeights(-0.2, "entropy"),
    KnownWeights((0.1, 0.4, 0.2, 0.3), 0.5),
)
OBJECTIVES: dict[str, tuple[TrainClassifiers, Callable[[Tensor], Tensor]]] = {
    "likelihood": (TrainClassifiers(), neg_ctc),
    "unnormalised": (TrainClassifiers(cost=CrossTotalCorrelation(consistency=1.0)), unnorm_neg_ctc),
    "penalties": (
        TrainClassifiers(penalties=PENALTIES),
        lambda b: neg_ctc(b) + sum(p.value(weights_of(b)) for p in PENALTIES),
    ),
    "labels of rows": (
        TrainClassifiers(labels=Labels(LABELS, 0.7, CONFUSION)),
        lambda b: neg_ctc(b) + 0.7 * entropy_of_rows(b),
    ),
    "labels of variates": (
        TrainClassifiers(labels=Labels(LABELS, 0.7, CONFUSION, on="variates")),
        lambda b: neg_ctc(b) + 0.7 * entropy_of_variates(b),
    ),
    "labels alone": (
        TrainClassifiers(cost=None, labels=Labels(LABELS, 0.7, CONFUSION)),
        lambda b: 0.7 * entropy_of_rows(b),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_is_that_of_the_cost_of_all_rows(name: str) -> None:
    """Two passes over the rows in chunks, by hand, against automatic differentiation through
    everything.
    """
    method, cost = OBJECTIVES[name]
    model = InClassNet((1, 1, 1), 4, networks=Dense((5,)))
    found, training, (problem, start) = full_gradient(model, normals(), method)
    theta = training.networks.theta.clone().requires_grad_()
    scores = model.log_scores(problem.data, start | training.networks.params(theta))
    (expected,) = torch.autograd.grad(cost(scores).sum(), theta)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    assert float(expected.abs().max()) > 1e-3


@pytest.mark.parametrize("weights", ["free", (0.5, 0.3, 0.2)])
def test_the_gradient_with_missing_variates(weights: Any) -> None:
    """Rows that do not show a variate leave its network and its pseudo-weights alone."""
    data = normals(40, 4)
    data[:7, 0], data[5:20, 1:3], data[30, 3] = torch.nan, torch.nan, torch.nan
    model = InClassNet((1, 2, 1), 3, networks=Dense((5,)), weights=weights)
    found, training, (problem, start) = full_gradient(model, data, TrainClassifiers())
    seen = (
        torch.stack([~data[:, columns].isnan().any(1) for columns in ([0], [1, 2], [3])])
        .to(F64)
        .unsqueeze(-1)
    )
    theta = training.networks.theta.clone().requires_grad_()
    scores = model.log_scores(problem.data, start | training.networks.params(theta))
    log_phi = ((scores.exp() * seen).sum(2) / seen.sum(1)).log()
    ratio = ((scores - log_phi.unsqueeze(2)) * seen).sum(1) + start["weights"].log().unsqueeze(1)
    (expected,) = torch.autograd.grad(-ratio.logsumexp(-1).mean(-1).sum(), theta)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shared", [False, True])
def test_networks_by_hand_and_by_automatic_differentiation(shared: bool) -> None:
    model = InClassNet((2, 2) if shared else (2, 1), 3, networks=Dense((5, 4)), shared=shared)
    data = normals(30, 4 if shared else 3)

    class Wrapped(Dense):
        """Another type, so that nothing is known of its layers."""

    other = replace(model, networks=Wrapped((5, 4)))
    gradients = [full_gradient(one, data, TrainClassifiers()) for one in (model, other)]
    by_site = [training.networks.params(gradient) for gradient, training, _ in gradients]
    assert by_site[0].keys() == by_site[1].keys()
    for site, value in by_site[0].items():
        torch.testing.assert_close(value, by_site[1][site], rtol=0, atol=1e-14)


@pytest.mark.parametrize("missing", [False, True])
def test_anchored_batches_add_up_to_all_rows(missing: bool) -> None:
    """At the anchor itself the batches' gradients have the mean of the gradient of all rows: no
    bias, whatever the size of the batch.
    """
    data = normals(36, 3)
    if missing:
        data[:9, 0], data[20:25, 2] = torch.nan, torch.nan
    model = InClassNet(
        (1, 1, 1), 3, networks=Dense((4,)), weights="free" if missing else "geometric"
    )
    method = TrainClassifiers(batch_size=4, validation_share=0.0)
    with torch.no_grad():
        training, course, _ = training_of(model, data, method)
        balance, _ = training.balance(course, training.kept, drop_anchor=True)
        collected: list[Tensor] = []
        training._descend = lambda *args: collected.append(training.gradient.clone())  # type: ignore[method-assign]
        training._epoch(course, balance)
        sums = torch.stack(collected[: 36 // 4]).mean(0)
        whole, _, _ = full_gradient(model, data, method)
    torch.testing.assert_close(sums, whole, rtol=0, atol=1e-13)


def two_normals(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    component = (rng.random(rows) < 0.6).astype(int)
    return (
        rng.normal(
            np.where(component == 1, 1.0, -1.0)[:, None] * [1.5, 1.5], 1.0, (rows, 2)
        ).astype(np.float32),
        component,
    )


QUICK = TrainClassifiers(batch_size=200, max_epochs=15, patience=4, num_decays=1)


def quietly(*args: Any, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*args, **settings)


@pytest.mark.parametrize("told", ["rows", "missing", "labels", "penalty"])
def test_free_weights_are_at_their_maximum_however_early_training_ends(told: str) -> None:
    """Steps on batches leave them near the start; here the objective is searched by hand."""
    data, component = two_normals(600)
    data = data.astype(np.float64)
    if told == "missing":
        data[:100, 0] = np.nan
    labels = np.where(np.arange(600) < 150, component, -1)
    model = InClassNet((1, 1), 2, networks=Dense((6,)), weights="free")
    method = TrainClassifiers(
        labels=Labels(labels, strength=2.0) if told == "labels" else None,
        penalties=(EvenWeights(0.2),) if told == "penalty" else (),
        max_epochs=2,
        validation_share=0.0,
        last_steps=0,
    )
    found = quietly(model, data, method, num_restarts=1)
    ratios = model.log_ratios(model.check_data(data)[0], found.params).sum(0)

    def objective(first: float) -> float:
        weights = torch.tensor([first, 1 - first], dtype=F64)
        joint = ratios + weights.log()
        value = joint.logsumexp(-1).mean()
        if told == "labels":
            right = joint.log_softmax(-1)[torch.arange(150), torch.from_numpy(labels[:150])]
            value = value + 2.0 * right.mean()
        if told == "penalty":
            value = value - 0.2 * weights.square().sum()
        return float(value)

    best = optimize.minimize_scalar(lambda w: -objective(w), bounds=(0.01, 0.99), method="bounded")
    assert float(found.params["weights"][0]) == pytest.approx(best.x, abs=1e-3)
    if told in ("rows", "missing"):
        posterior = found.posterior_latents(data)["components"].mean(0)
        torch.testing.assert_close(found.params["weights"], posterior, rtol=0, atol=1e-4)
        assert found.objective == pytest.approx(found.log_likelihood / len(data))


def test_two_normals_are_found() -> None:
    data, component = two_normals(3000)
    result = quietly(InClassNet((1, 1), 2), data, QUICK)
    assert result.params["weights"][0] == pytest.approx(0.6, abs=0.04)
    posterior = result.posterior_latents(data)["components"]
    assert float((posterior.argmax(1).numpy() == 1 - component).mean()) > 0.95
    torch.testing.assert_close(posterior.sum(1), torch.ones(3000))
    rows = result.log_likelihood_rows(data)
    assert float(rows.double().sum()) == pytest.approx(result.log_likelihood, rel=1e-5)
    assert result.log_likelihood_ratio == result.log_likelihood
    scores = result.model.log_scores(torch.from_numpy(data), result.params)  # type: ignore[attr-defined]
    assert float(neg_ctc(scores.double())) == pytest.approx(-result.log_likelihood / 3000, abs=1e-5)
    torch.testing.assert_close(
        result.params["pseudo_weights"], scores.exp().mean(1), rtol=1e-4, atol=1e-5
    )


def test_all_rows_at_once_reach_the_cost_of_batches() -> None:
    data, _ = two_normals(1500)
    model = InClassNet((1, 1), 2, networks=Dense((16,)))
    methods = {
        "batches": QUICK,
        "all rows": replace(QUICK, batch_size=None),
        "moving": replace(QUICK, estimates="moving", learning_rate=5e-4),
        "batch": replace(QUICK, estimates="batch"),
    }
    found = {
        name: quietly(model, data, method).log_likelihood / 1500 for name, method in methods.items()
    }
    for name, value in found.items():
        assert value == pytest.approx(found["all rows"], abs=0.02), (name, found)


def test_moving_averages_are_short_enough_to_follow_the_networks() -> None:
    """With a memory of fifty small batches two normals that overlap collapsed into one
    component.
    """
    data = simulate_two_gaussians(4000, 0).data.astype(np.float32)
    plain = TrainClassifiers(
        batch_size=20,
        estimates="moving",
        max_epochs=2,
        patience=None,
        validation_share=0.0,
        last_steps=0,
    )
    assert quietly(InClassNet((1, 1), 2), data, plain, num_restarts=1).objective > 0.04


def test_tables_of_codes_are_latent_class_analysis() -> None:
    """The optimum over all functions of three codes is that of latent class EM, run here by hand,
    relative to the marginals.
    """
    rng = np.random.default_rng(1)
    component = rng.integers(0, 2, 400)
    chances = np.array(
        [
            [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.4, 0.1]],
            [[0.1, 0.3, 0.6], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]],
        ]
    )
    codes = np.stack(
        [[rng.choice(3, p=chances[k, v]) for v in range(3)] for k in component]
    ).astype(float)
    onehot = np.stack([codes == m for m in range(3)], -1).astype(float)  # (N, V, M)
    posterior = np.where(component[:, None] == [0, 1], 0.9, 0.1)
    for _ in range(20_000):
        weights = posterior.mean(0)
        distribution = np.einsum("nk,nvm->kvm", posterior, onehot) / posterior.sum(0)[:, None, None]
        joint = np.log(weights) + np.einsum("nvm,kvm->nk", onehot, np.log(distribution))
        peak = joint.max(1, keepdims=True)
        new = np.exp(joint - peak)
        new /= new.sum(1, keepdims=True)
        if np.abs(new - posterior).max() < 1e-13:
            break
        posterior = new
    marginal = np.einsum("nvm,vm->n", onehot, np.log(onehot.mean(0)))
    expected = float((peak[:, 0] + np.log(np.exp(joint - peak).sum(1)) - marginal).mean())
    model = InClassNet((1, 1, 1), 2, networks=Lookup(3), prior_scale=1e6)
    method = TrainClassifiers(
        batch_size=None,
        validation_share=0.0,
        patience=10,
        num_decays=4,
        tolerance=1e-10,
        learning_rate=0.05,
        max_epochs=400,
    )
    result = quietly(model, codes, method)
    assert result.log_likelihood / 400 == pytest.approx(expected, abs=1e-6)
    assert sorted(result.params["weights"].tolist()) == pytest.approx(
        sorted(weights.tolist()), abs=1e-3
    )


def test_tables_frozen_for_an_epoch_are_em() -> None:
    """Networks that fit their frozen responsibilities exactly take the step of EM: here the tables
    are solved for in closed form.
    """
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 2, (60, 3)).astype(float)
    model = InClassNet((1, 1, 1), 2, networks=Lookup(2))
    table = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    data = torch.from_numpy(codes)

    def state(table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        params = {"pseudo_weights": torch.full((3, 2), 0.5, dtype=F64), "table": table}
        scores = model.log_scores(data, params)
        log_phi = log_pseudo_weights(scores)
        return scores, log_phi, geometric_log_weights(log_phi)

    scores, log_phi, log_weights = state(table)
    before = float(log_ratio_rows(scores, log_phi, log_weights).mean())
    posterior = ((scores - log_phi.unsqueeze(-2)).sum(0) + log_weights).softmax(-1)
    solved = torch.stack(
        [torch.stack([posterior[data[:, v] == m].mean(0) for m in (0.0, 1.0)]) for v in range(3)]
    ).log()
    scores, log_phi, log_weights = state(solved)
    torch.testing.assert_close(log_weights.exp(), posterior.mean(0))  # the weights are EM's
    for v in range(3):  # and so are the distributions, relative to the marginals
        chance = (posterior[data[:, v] == 1].sum(0) / posterior.sum(0)) / float(data[:, v].mean())
        torch.testing.assert_close((solved[v, 1] - log_phi[v]).exp(), chance)
    assert float(log_ratio_rows(scores, log_phi, log_weights).mean()) >= before


def test_labels_name_the_components_and_modules_are_taken() -> None:
    data, component = two_normals(800)
    labels = np.where(np.arange(800) < 40, component, -1)
    module = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 2))
    model = InClassNet((1, 1), 2, networks=module, shared=True)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    taught = quietly(
        model, data, replace(QUICK, labels=Labels(labels, on="variates"), learning_rate=5e-3)
    )
    posterior = taught.posterior_latents(data)["components"]
    assert float((posterior.argmax(1).numpy() == component).mean()) > 0.93
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    alone = quietly(
        model,
        data,
        replace(
            QUICK, cost=None, labels=Labels(labels, on="variates"), learning_rate=5e-3, max_epochs=4
        ),
    )
    going_on = quietly(model, data, QUICK, init=alone)  # labels first, then without
    assert (
        float(
            (going_on.posterior_latents(data)["components"].argmax(1).numpy() == component).mean()
        )
        > 0.9
    )


def test_labels_keep_their_names_in_a_fit_that_goes_on() -> None:
    """Component 1 is the larger one, and keeps its name; without labels the larger one is component
    0.
    """
    data, component = two_normals(600)
    model = InClassNet((1, 1), 2, networks=Dense((8,)), shared=True)
    taught = quietly(
        model,
        data,
        replace(QUICK, cost=None, labels=Labels(component, on="variates"), max_epochs=3),
    )
    going_on = quietly(model, data, replace(QUICK, max_epochs=3), init=taught)
    for one in (taught, going_on):
        assert (
            float((one.posterior_latents(data)["components"].argmax(1).numpy() == component).mean())
            > 0.9
        )
    assert quietly(model, data, replace(QUICK, max_epochs=3)).params["weights"].argmax() == 0


def test_seeds_and_checkpoints(tmp_path: Any) -> None:
    """The same seed, the same bits; a run that is interrupted between two epochs goes on as if it
    had not been.
    """
    data, _ = two_normals(300)
    model = InClassNet((1, 1), 2, networks=Dense((4,)), weights="free")
    method = TrainClassifiers(batch_size=50, max_epochs=6, patience=2)
    whole = quietly(model, data, method, num_restarts=2, seed=3)
    again = quietly(model, data, method, num_restarts=2, seed=3)
    path = tmp_path / "running"

    class Stop(Exception):
        pass

    epochs = []
    original = _Training._epoch

    def some(self: _Training, *args: Any) -> None:
        epochs.append(1)
        if len(epochs) == 4:
            raise Stop
        original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Training, "_epoch", some)
        with pytest.raises(Stop):
            quietly(model, data, method, num_restarts=2, seed=3, checkpoint=path)
    resumed = quietly(model, data, method, num_restarts=2, seed=3, checkpoint=path)
    for other in (again, resumed):
        assert whole.objective == other.objective
        assert torch.equal(whole.trace.objective, other.trace.objective)
        for site, value in whole.restarts.params.items():
            assert torch.equal(value, other.restarts.params[site]), site


def test_rows_in_a_file_are_fetched_as_they_are_needed(tmp_path: Any) -> None:
    """A memory-mapped array, read only, gives the fit of the same array in memory."""
    data, _ = two_normals(400)
    file = tmp_path / "rows.npy"
    np.save(file, data)
    model, method = (
        InClassNet((1, 1), 2, networks=Dense((4,))),
        TrainClassifiers(batch_size=50, max_epochs=2, most_resident=0),
    )
    held = quietly(model, data, replace(method, most_resident=10**6), num_restarts=1)
    mapped = quietly(model, np.load(file, mmap_mode="r"), method, num_restarts=1)
    separate = quietly(
        model, tuple(np.load(file, mmap_mode="r")[:, [v]] for v in range(2)), method, num_restarts=1
    )
    for other in (mapped, separate):
        for site, value in held.params.items():
            torch.testing.assert_close(value, other.params[site], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size must be a positive integer or None, got 0"),
        ({"validation_share": 1.0}, r"validation_share must lie in \[0, 1\)"),
        ({"estimates": "exact"}, "estimates must be 'anchored', 'moving' or 'batch'"),
        ({"cost": None}, "there must be labels to learn from"),
        ({"cost": CrossTotalCorrelation}, "add parentheses"),
        ({"penalties": ("even",)}, "penalties must be"),
        ({"learning_rate": 0}, "learning_rate must be positive"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainClassifiers(**settings)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: KnownWeights((0.5, 0.4)), "must sum to 1"),
        (lambda: KnownWeights((1.2, -0.2)), "positive numbers"),
        (lambda: EvenWeights(0.1, "square"), "form must be"),  # type: ignore[arg-type]
        (lambda: Labels([-1, -1]), "at least one label"),
        (lambda: Labels([0.5]), "must be 0, 1, ..."),
        (lambda: Labels([0, 1], confusion=[[0.5, 0.4], [0, 1]]), "sums to 1"),
    ],
)
def test_terms_that_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (
            TrainClassifiers(labels=Labels([0, 1, -1])),
            "one label a row was expected, 40 of them, got 3",
        ),
        (TrainClassifiers(labels=Labels([2] * 40)), "labels 0, ..., 1 were expected, got 2"),
        (TrainClassifiers(penalties=KnownWeights((0.2, 0.3, 0.5))), "2 weights were expected"),
    ],
)
def test_terms_that_do_not_fit_the_data(method: TrainClassifiers, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(InClassNet((1, 2), 2), normals(), method)

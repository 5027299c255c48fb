"""Everyday fits beside the libraries that one would take instead, both sides in one process.

Each row is a job: data, our call and the peer's. ``plain`` is the call that people type,
``fit(model, data)`` against the peer's constructor with its defaults; ``n starts`` is
``fit(model, data, EM(), num_restarts=n)`` against the best of ``n`` runs of the peer to a tight
tolerance. A JSON line holds the seconds of the processor on one thread of both sides (the first
call on tiny data is not counted), their ratio, what both reached (log-likelihoods are better high,
divergences, squares and errors low) and the versions of the libraries. ``verdict`` is *same*
where the means over seeds differ by less than a tenth of a nat or a millionth, *within noise*
where by less than two standard errors, else *ours better* or *ours worse*; seconds are the median
over seeds. A peer that is not installed leaves its row out, with a line that says so.

Peers: scikit-learn, StepMix, hmmlearn, dynamax, causal-learn, girth, SigProfilerExtractor, NumPyro,
and mclust and flexmix of R, whose seconds are those of R's second call. Those of JAX compile in
every call. Likelihoods of dynamax are without its priors, which are flat but for 1e-4 on the first
state; those of girth are taken again at its estimates, with 121 nodes.
``python benchmarks/peers.py [--rows mixture hmm] [--seeds 3]``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import nuts_dde
import nuts_others
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from _bench import Lines, command_line, run
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from inference import EM, NUTS, SAEM, fit
from inference.base import ess_of_draws
from inference.causal import GES, BDeu
from inference.fitting.problem import problem_of
from inference.programs import simulate
from inference.relations import compare_outcomes, regress_classes
from inference.selection import select
from ppl_models import (
    Bernoulli,
    Categorical,
    Covariates,
    DeepDiscreteEncoder,
    FactorAnalysis,
    GaussianFactorization,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
    PoissonFactorization,
    SparseCoding,
)

PACKAGES = {  # import name: name of the distribution
    "sklearn": "scikit-learn",
    "stepmix": "stepmix",
    "hmmlearn": "hmmlearn",
    "causallearn": "causal-learn",
    "SigProfilerExtractor": "sigprofilerextractor",
}
OF_R = ("mclust", "flexmix")
MODULES = {  # what a peer's first call would import
    "sklearn": ("sklearn.mixture", "sklearn.decomposition", "sklearn.datasets"),
    "stepmix": ("stepmix.stepmix",),
    "hmmlearn": ("hmmlearn.hmm",),
    "causallearn": ("causallearn.search.ScoreBased.GES",),
    "dynamax": ("dynamax.hidden_markov_model",),
    "girth": ("girth",),
    "SigProfilerExtractor": ("SigProfilerExtractor.sigpro",),
    "numpyro": ("numpyro",),
}
LOG_LIKELIHOOD, DIVERGENCE = "log-likelihood", "Kullback-Leibler divergence"
WALL, CHOSEN = "wall seconds", "number chosen"
EFFECTIVE = "smallest effective draws a second"
SLOPES, MEANS = "error of slopes", "error of class means"
HIGHER, NEITHER = (LOG_LIKELIHOOD, EFFECTIVE), ("edges", CHOSEN)
NATS, SHARE = 0.1, 1e-6  # two values nearer than that are one optimum
NEAR = {SLOPES: 0.005, MEANS: 0.005}  # in the place of NATS


class Reached(NamedTuple):
    """What a side reached that tells its seconds itself."""

    value: float
    seconds: float


Side = Callable[[int], float | Reached]  # of a seed


class Job(NamedTuple):
    """One row: data, our call and the peer's; each takes a seed and returns what it reached."""

    name: str
    data: str
    peer: str
    measure: str
    ours: Side
    theirs: Side


def mixture_rows(
    num_rows: int, num_items: int, num_groups: int, seed: int, gap: float = 2.0
) -> np.ndarray:
    """Rows around centres, correlated noise in each group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(num_groups, size=num_rows)
    centres = gap * rng.normal(size=(num_groups, num_items))
    factors = np.eye(num_items) + 0.3 * rng.normal(size=(num_groups, num_items, num_items))
    noise = rng.normal(size=(num_rows, num_items))
    rows = np.empty((num_rows, num_items))
    for k in range(num_groups):
        rows[group == k] = centres[k] + noise[group == k] @ factors[k].T
    return rows


def answers(num_rows: int, num_items: int, num_classes: int, seed: int) -> np.ndarray:
    """Yes-no answers of classes."""
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.1, 0.9, (num_classes, num_items))
    return (
        rng.random((num_rows, num_items)) < chances[rng.integers(num_classes, size=num_rows)]
    ).astype(float)


def choices(num_rows: int, num_items: int, num_classes: int, seed: int) -> np.ndarray:
    """Answers in three categories of classes."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(3, 0.7), (num_classes, num_items)).cumsum(-1)
    classes = rng.integers(num_classes, size=num_rows)
    return (rng.random((num_rows, num_items, 1)) > chances[classes]).sum(-1).astype(float)


def chains(num: int, length: int, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """States of chains of three states that stay with chance .85, and the generator."""
    rng = np.random.default_rng(seed)
    states = np.empty((num, length), dtype=int)
    states[:, 0] = rng.integers(3, size=num)
    for t in range(1, length):
        moved = rng.random(num) < 0.15
        states[:, t] = np.where(moved, rng.integers(3, size=num), states[:, t - 1])
    return states, rng


@cache
def table(name: str) -> np.ndarray:
    """A table of scikit-learn: standardised, the first principal components of the digits."""
    from sklearn import datasets, decomposition

    if name == "digits":
        return datasets.load_digits().data
    if name == "digits, ten components":
        return decomposition.PCA(10).fit_transform(datasets.load_digits().data)
    data = getattr(datasets, f"load_{name.split(',')[0]}")().data
    rows = data if name == "iris" else (data - data.mean(0)) / data.std(0)
    return rows[:, :10] if name == "breast_cancer, ten columns" else rows


def _reached(result: Any) -> float:
    return float(result.log_likelihood)


def in_r(package: str, call: str, value: str, x: np.ndarray, seed: int) -> Reached:
    """What a call of R reached, ``value`` of its ``found``, and the seconds of the second one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.csv"
        np.savetxt(file, x, delimiter=",", fmt="%.17g")
        script = (
            f"suppressMessages(library({package})); x <- as.matrix(read.csv('{file}', header=F));"
            f" d <- as.data.frame(x); for (go in 1:2) {{ set.seed({seed + 1});"
            f" began <- proc.time(); found <- {{ {call} }}; spent <- proc.time() - began }};"
            f" cat(sprintf('[%.10f, %.4f]', {value}, sum(spent[1:2])))"
        )
        told = subprocess.run(  # noqa: S603
            ["Rscript", "--vanilla", "-e", script],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return Reached(*json.loads(told[told.rindex("[") :]))


# Mixtures beside scikit-learn and mclust


def normal_mixture(k: int, covariance: str, x: np.ndarray, starts: int | None, seed: int) -> float:
    from sklearn.mixture import GaussianMixture

    settings = {} if starts is None else {"n_init": starts, "tol": 1e-7, "max_iter": 2000}
    peer = GaussianMixture(k, covariance_type=covariance, random_state=seed, **settings).fit(x)
    return float(peer.score(x)) * len(x)


def ours_of(model: Any, x: Any, starts: int | None, seed: int) -> float:
    if starts is None:
        return _reached(fit(model, x, seed=seed))
    return _reached(fit(model, x, EM(), num_restarts=starts, seed=seed))


def mixtures() -> Iterator[Job]:
    """Normal mixtures on tables of scikit-learn and on simulated rows."""
    tables: list[tuple[str, Callable[[], np.ndarray], int, str, tuple[int | None, ...]]] = [
        ("iris", partial(table, "iris"), 3, "full", (None, 10)),
        ("iris", partial(table, "iris"), 3, "diag", (None, 10)),
        ("wine", partial(table, "wine"), 3, "full", (None, 10)),
        ("breast", partial(table, "breast_cancer, ten columns"), 2, "full", (None, 10)),
        ("digits", partial(table, "digits, ten components"), 10, "full", (None, 5)),
        ("simulated", lambda: mixture_rows(300, 4, 3, 1), 3, "full", (None, 10)),
        ("structureless", lambda: mixture_rows(300, 4, 1, 2), 3, "full", (None, 10)),
        ("simulated", lambda: mixture_rows(100_000, 10, 3, 3), 3, "full", (None, 4)),
        ("simulated", lambda: mixture_rows(1_000_000, 5, 4, 4), 4, "full", (None,)),
    ]
    for name, rows, k, covariance, calls in tables:
        component = MultivariateNormal() if covariance == "full" else Normal()
        for starts in calls:
            x = rows()
            model = Mixture(k, component, x.shape[1])
            yield Job(
                f"mixture of {k} normals, {covariance}, {_starts(starts)}",
                f"{name} {x.shape[0]} x {x.shape[1]}",
                "sklearn",
                LOG_LIKELIHOOD,
                partial(ours_of, model, x, starts),
                partial(normal_mixture, k, covariance, x, starts),
            )
            if starts is None and covariance == "full" and len(x) <= 300:
                call = f"Mclust(x, G={k}, modelNames='VVV', verbose=FALSE)"
                yield Job(
                    f"mixture of {k} normals, full, plain",
                    f"{name} {x.shape[0]} x {x.shape[1]}",
                    "mclust",
                    LOG_LIKELIHOOD,
                    partial(ours_of, model, x, None),
                    partial(in_r, "mclust", call, "found$loglik", x),
                )
    yield from regressions()


def curves(table: torch.Tensor) -> None:
    """Rows along two parabolas."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=table.dtype)))
    flat = dist.Uniform(-1e4, 1e4).expand([2, 3]).to_event(2)
    coefficients = pyro.sample("coefficients", flat)
    scale = pyro.sample("scale", dist.Uniform(1e-3, 1e3).expand([2]).to_event(1))
    with pyro.plate("rows", len(table)):
        curve = pyro.sample("curve", dist.Categorical(weights))
        beta, x = coefficients[curve], table[:, 0]
        mean = beta[..., 0] + beta[..., 1] * x + beta[..., 2] * x**2
        pyro.sample("y", dist.Normal(mean, scale[curve]), obs=table[:, 1])


def regressions() -> Iterator[Job]:
    """A mixture of two regressions, a program of the user's, beside flexmix."""
    rng = np.random.default_rng(17)
    x = rng.uniform(0, 10, 200)
    y = np.where(rng.random(200) < 0.5, 5 * x, 40 - (x - 5) ** 2) + 3 * rng.normal(size=200)
    rows = np.stack([x, y], 1)
    one = "flexmix(V2 ~ V1 + I(V1^2), data=d, k=2"
    tight = f"{one}, control=list(minprior=0, tolerance=1e-9, iter.max=2000))"
    best = (
        f"all <- lapply(1:5, function(i) {tight});"
        " all[[which.max(sapply(all, function(f) as.numeric(logLik(f))))]]"
    )
    for starts, call in ((None, f"{one})"), (5, best)):
        yield Job(
            f"mixture of 2 regressions, {_starts(starts)}",
            "simulated 200 x 2",
            "flexmix",
            LOG_LIKELIHOOD,
            partial(ours_of, curves, rows, starts),
            partial(in_r, "flexmix", call, "as.numeric(logLik(found))", rows),
        )


def _starts(starts: int | None) -> str:
    if starts is None:
        return "plain"
    return "one start" if starts == 1 else f"{starts} starts"


# Latent classes beside StepMix


def step_mix(
    k: int,
    kind: str,
    starts: int | None,
    x: np.ndarray,
    covariates: np.ndarray | None,
    seed: int,
) -> float:
    from stepmix.stepmix import StepMix

    settings: dict[str, Any] = {"verbose": 0, "progress_bar": 0, "random_state": seed}
    if starts is not None:
        settings |= {"n_init": starts, "abs_tol": 1e-7, "max_iter": 5000}
    if covariates is not None:
        settings |= {"structural": "covariate", "n_steps": 1}
    peer = StepMix(n_components=k, measurement=kind, **settings)
    if covariates is None:
        return float(peer.fit(x).score(x)) * len(x)
    return float(peer.fit(x, covariates).score(x, covariates)) * len(x)


def latent_classes() -> Iterator[Job]:
    """Latent classes of yes-no and categorical answers."""
    sizes: list[tuple[int, int, int, str, tuple[int | None, ...]]] = [
        (118, 7, 3, "binary", (None, 10)),
        (319, 4, 2, "binary", (None, 10)),
        (300, 8, 3, "categorical", (None, 10)),
        (10_000, 20, 5, "categorical", (None, 4)),
        (100_000, 10, 3, "binary", (None, 4)),
    ]
    for seed, (num_rows, num_items, k, kind, calls) in enumerate(sizes):
        draw = answers if kind == "binary" else choices
        response = Bernoulli() if kind == "binary" else Categorical(3)
        for starts in calls:
            x = draw(num_rows, num_items, k, seed)
            yield Job(
                f"{k} latent classes, {kind}, {_starts(starts)}",
                f"simulated {num_rows} x {num_items}",
                "stepmix",
                LOG_LIKELIHOOD,
                partial(ours_of, Mixture(k, response, num_items), x, starts),
                partial(step_mix, k, kind, starts, x, None),
            )
    flat = (np.random.default_rng(9).random((300, 4)) < 0.5).astype(float)
    yield Job(
        "2 latent classes, binary, plain",
        "structureless 300 x 4",
        "stepmix",
        LOG_LIKELIHOOD,
        partial(ours_of, Mixture(2, Bernoulli(), 4), flat, None),
        partial(step_mix, 2, "binary", None, flat, None),
    )
    rng = np.random.default_rng(5)
    z = rng.normal(size=(1000, 2))
    group = (rng.random(1000)[:, None] > np.cumsum(_softmax(z @ rng.normal(size=(2, 3))), 1)).sum(1)
    x = (rng.random((1000, 10)) < rng.uniform(0.1, 0.9, (3, 10))[group]).astype(float)
    frame = pd.DataFrame(x, columns=list("abcdefghij")).assign(age=z[:, 0], income=z[:, 1])
    model = Mixture(3, Bernoulli(), 10, covariates=Covariates(("age", "income")))

    yield Job(
        "3 latent classes with two covariates, plain against 10 starts",
        "simulated 1000 x 10",
        "stepmix",
        LOG_LIKELIHOOD,
        partial(ours_of, model, frame, None),
        partial(step_mix, 3, "binary", 10, x, z),
    )

    yield from three_steps()
    flat_classes = answers(319, 4, 2, 1)
    one = "FLXMCmvbinary()), control=list(minprior=0, tolerance=1e-9, iter.max=5000))"
    best = (
        f"all <- lapply(1:10, function(i) flexmix(x ~ 1, k=2, model=list({one});"
        " all[[which.max(sapply(all, function(f) as.numeric(logLik(f))))]]"
    )
    yield Job(
        "2 latent classes, binary, 10 starts",
        "simulated 319 x 4",
        "flexmix",
        LOG_LIKELIHOOD,
        partial(ours_of, Mixture(2, Bernoulli(), 4), flat_classes, 10),
        partial(in_r, "flexmix", best, "as.numeric(logLik(found))", flat_classes),
    )


class Steps(NamedTuple):
    """Answers of three classes, a covariate that they depend on and an outcome that they cause."""

    chances: np.ndarray
    slopes: np.ndarray
    means: np.ndarray
    answers: np.ndarray
    covariate: np.ndarray
    outcome: np.ndarray

    def order(self, chances: np.ndarray) -> np.ndarray:
        """Classes found, in the order of the true ones."""
        off = ((self.chances[:, None] - chances[None]) ** 2).sum(-1)
        return linear_sum_assignment(off)[1]

    def off(self, slopes: np.ndarray, chances: np.ndarray) -> float:
        """Root mean square error of the slopes against the first class."""
        slopes = slopes[self.order(chances)]
        return float(np.sqrt(((slopes - slopes[0] - self.slopes)[1:] ** 2).mean()))

    def off_means(self, means: np.ndarray, chances: np.ndarray) -> float:
        """Root mean square error of the means of the outcome."""
        return float(np.sqrt(((means[self.order(chances)] - self.means) ** 2).mean()))


def steps(seed: int) -> Steps:
    """2,000 rows of six items, anew for every seed."""
    rng = np.random.default_rng(1000 + seed)
    chances = np.array([[0.8] * 6, [0.8] * 3 + [0.2] * 3, [0.2] * 6])
    slopes, means = np.array([0.0, 1.0, -1.0]), np.array([-1.0, 0.0, 1.0])
    z = rng.normal(size=2000)
    shares = _softmax(z[:, None] * slopes).cumsum(1)
    classes = (rng.random((2000, 1)) > shares).sum(1).clip(max=2)
    x = (rng.random((2000, 6)) < chances[classes]).astype(float)
    return Steps(chances, slopes, means, x, z, means[classes] + rng.normal(size=2000))


def our_steps(method: str, outcome: bool, seed: int) -> float:
    drawn = steps(seed)
    first = fit(Mixture(3, Bernoulli(), 6), drawn.answers, seed=seed)
    found = 1 / (1 + np.exp(-first.params["predictors"].numpy()))
    chances = found if found.shape == (3, 6) else found.T
    if outcome:
        told = compare_outcomes(first, drawn.answers, drawn.outcome, method, "modal")
        return drawn.off_means(told.means[:, 0], chances)
    told = regress_classes(first, drawn.answers, drawn.covariate, method, "modal")
    return drawn.off(np.append(0.0, told.coefficients[:, 1]), chances)


def their_steps(method: str, outcome: bool, seed: int) -> float:
    from stepmix.stepmix import StepMix

    drawn = steps(seed)
    peer = StepMix(
        3,
        n_steps=3,
        measurement="binary",
        structural="gaussian_unit" if outcome else "covariate",
        assignment="modal",
        correction=method.upper(),
        n_init=10,
        abs_tol=1e-9,
        max_iter=5000,
        structural_params={} if outcome else {"method": "newton-raphson", "max_iter": 100},
        random_state=seed,
        verbose=0,
        progress_bar=0,
    )
    beside = drawn.outcome if outcome else drawn.covariate
    found = peer.fit(drawn.answers, beside[:, None]).get_parameters()
    chances = np.asarray(found["measurement"]["pis"])
    if outcome:
        return drawn.off_means(np.asarray(found["structural"]["means"])[:, 0], chances)
    return drawn.off(np.asarray(found["structural"]["beta"])[:, 1], chances)


def three_steps() -> Iterator[Job]:
    """Classes first, then a covariate or an outcome, corrected for errors of assignment."""
    for method, outcome in (("bch", False), ("ml", False), ("bch", True)):
        yield Job(
            f"three steps, {'distal outcome' if outcome else 'covariate'}, {method.upper()}",
            "simulated 2000 x 6, anew for each seed",
            "stepmix",
            MEANS if outcome else SLOPES,
            partial(our_steps, method, outcome),
            partial(their_steps, method, outcome),
        )


def _softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


# Hidden Markov models beside hmmlearn and dynamax


def on_one_thread() -> None:
    """Make JAX take one thread and double precision."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", flags)
    import jax

    jax.config.update("jax_enable_x64", True)


def dynamax(kind: str, k: int, x: np.ndarray, starts: int, seed: int) -> float:
    on_one_thread()
    import jax
    from dynamax.hidden_markov_model import CategoricalHMM, DiagonalGaussianHMM, PoissonHMM

    width, rng = x.shape[-1], np.random.default_rng(seed)
    rows = x.reshape(-1, width)
    chain = {"initial_probs_concentration": 1.0001, "transition_matrix_concentration": 1.0}
    if kind == "normal":  # the mode of dynamax's posterior is then that of the likelihood
        settings = {"mean_concentration": 1e-9, "concentration": -1.5, "scale": 1e-9}
        settings = {f"emission_prior_{name}": value for name, value in settings.items()}
        peer: Any = DiagonalGaussianHMM(k, width, **settings, **chain)
    elif kind == "Poisson":
        settings = {"emission_prior_concentration": 1.0, "emission_prior_rate": 0.0}
        peer = PoissonHMM(k, width, **settings, **chain)
    else:
        num = int(x.max()) + 1
        peer = CategoricalHMM(k, width, num, emission_prior_concentration=1.0, **chain)
    sequences = jax.numpy.asarray(x if kind == "normal" else x.astype(int))
    best = -np.inf
    for start in range(starts):
        key = jax.random.PRNGKey(100 * seed + start)
        if kind == "normal":
            begin = peer.initialize(key, "kmeans", emissions=jax.numpy.asarray(rows))
        elif kind == "Poisson":
            rates = rows[rng.choice(len(rows), k)] + 0.5
            begin = peer.initialize(key, emission_rates=jax.numpy.asarray(rates))
        else:
            begin = peer.initialize(key)
        params = peer.fit_em(*begin, sequences, num_iters=500, verbose=False)[0]
        each = jax.vmap(partial(peer.marginal_log_prob, params))(sequences)
        best = max(best, float(each.sum()))
    return best


def hmm(
    kind: str, k: int, x: np.ndarray, starts: int | None, covariance: str | None, seed: int
) -> float:
    from hmmlearn.hmm import CategoricalHMM, GaussianHMM, PoissonHMM

    settings: dict[str, Any] = {} if covariance is None else {"covariance_type": covariance}
    settings |= {} if starts is None else {"n_iter": 5000, "tol": 1e-6}
    make = {"normal": GaussianHMM, "Poisson": PoissonHMM, "categorical": CategoricalHMM}[kind]
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if kind == "normal" else rows.astype(int)
    lengths = [x.shape[1]] * x.shape[0]
    best = -np.inf
    for start in range(starts or 1):
        peer = make(k, random_state=100 * seed + start, **settings).fit(rows, lengths)
        best = max(best, float(peer.score(rows, lengths)))
    return best


def hidden_markov() -> Iterator[Job]:
    """Chains of normals, counts and letters."""
    sizes: list[tuple[str, int, int, int, tuple[int | None, ...]]] = [
        ("normal", 1, 300, 2, (None, 5)),
        ("Poisson", 10, 50, 1, (None, 5)),
        ("categorical", 20, 100, 1, (None, 5)),
        ("normal", 100, 1000, 2, (None, 3)),
        ("full normal", 100, 1000, 4, (None,)),
    ]
    for seed, (kind, num, length, width, calls) in enumerate(sizes):
        for starts in calls:
            states, rng = chains(num, length, seed)
            if kind == "Poisson":
                x = rng.poisson(np.array([1.0, 4.0, 9.0])[states])[..., None].astype(float)
                emission: Any = Poisson()
            elif kind == "categorical":
                chances = rng.dirichlet(np.full(5, 0.5), 3).cumsum(-1)
                x = (rng.random((num, length, 1)) > chances[states]).sum(-1)[..., None]
                x, emission = x.astype(float), Categorical(5)
            else:
                centres = 2 * rng.normal(size=(3, width))
                x = centres[states] + rng.normal(size=(num, length, width))
                emission = MultivariateNormal() if kind == "full normal" else Normal()
            covariance = {"normal": "diag", "full normal": "full"}.get(kind)
            yield Job(
                f"hidden Markov model, 3 states, {kind}, {_starts(starts)}",
                f"simulated {num} x {length} x {width}",
                "hmmlearn",
                LOG_LIKELIHOOD,
                partial(ours_of, HiddenMarkov(3, emission, width), x, starts),
                partial(hmm, kind.split()[-1], 3, x, starts, covariance),
            )
            if starts is not None and num < 100:
                yield Job(
                    f"hidden Markov model, 3 states, {kind}, {_starts(starts)}",
                    f"simulated {num} x {length} x {width}",
                    "dynamax",
                    LOG_LIKELIHOOD,
                    partial(ours_of, HiddenMarkov(3, emission, width), x, starts),
                    partial(dynamax, kind, 3, x, starts),
                )


# Factorizations, sparse coding


def divergence(x: sparse.csr_array, z: np.ndarray, phi: np.ndarray) -> float:
    """Kullback-Leibler divergence of counts from their means."""
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    mean = np.einsum("ck,ck->c", z[rows], phi.T[x.indices]).clip(1e-12)
    fitted = (z.sum(0) * phi.sum(1)).sum()
    return float((xlogy(x.data, x.data / mean) - x.data).sum() + fitted)


def texts(num_texts: int, num_words: int, seed: int) -> sparse.csr_array:
    """Counts of words in texts of a few of ten topics each, none of them empty."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(num_words, 0.05), 10)
    shares = rng.dirichlet(np.full(10, 0.2), num_texts)
    lengths = rng.gamma(1.5, 30.0, num_texts)
    parts = [
        sparse.csr_array(rng.poisson(lengths[rows, None] * shares[rows] @ topics))
        for rows in np.array_split(np.arange(num_texts), max(1, num_texts // 1000))
    ]
    counts = sparse.csr_array(sparse.vstack(parts)).astype(float)
    return counts[np.flatnonzero(counts.sum(1) > 0)]


def _local(result: Any) -> tuple[np.ndarray, np.ndarray]:
    return result.local["activities"].numpy(), result.params["signatures"].numpy()


def factorizations() -> Iterator[Job]:
    """Counts dense and sparse, non-negative measurements, factor analysis."""
    from sklearn.decomposition import NMF, FactorAnalysis as PeerAnalysis

    rng = np.random.default_rng(7)
    signatures = rng.dirichlet(np.full(96, 0.2), 5)
    small = rng.poisson(rng.gamma(1.0, 100.0, (100, 5)) @ signatures).astype(float)
    for x, k, name in (
        (small, 5, "simulated signatures 100 x 96"),
        (texts(11_000, 1000, 0), 10, "texts 11000 x 1000, 2.6 % non-zero"),
    ):
        counts = sparse.csr_array(x)

        def ours(seed: int, x: Any = x, k: int = k, counts: Any = counts) -> float:
            model = PoissonFactorization(x.shape[1], k)
            return divergence(counts, *_local(fit(model, x, seed=seed)))

        def theirs(seed: int, x: Any = x, k: int = k, counts: Any = counts) -> float:
            peer = NMF(k, solver="mu", beta_loss="kullback-leibler", random_state=seed)
            return divergence(counts, peer.fit_transform(x), peer.components_)

        yield Job(f"Poisson factorization, {k}, plain", name, "sklearn", DIVERGENCE, ours, theirs)
    digits = table("digits")

    def squares(z: np.ndarray, phi: np.ndarray) -> float:
        return float(((digits - z @ phi) ** 2).sum())

    def nonnegative(seed: int) -> float:
        model = GaussianFactorization(64, 10, nonnegative=True)
        return squares(*_local(fit(model, digits, seed=seed)))

    def descent(seed: int) -> float:
        peer = NMF(10, random_state=seed)
        return squares(peer.fit_transform(digits), peer.components_)

    yield Job(
        "non-negative factorization, 10, plain",
        "digits 1797 x 64",
        "sklearn",
        "sum of squares",
        nonnegative,
        descent,
    )
    noisy = digits + rng.normal(0, 0.5, digits.shape)
    for x, k, name in ((table("breast_cancer"), 4, "breast"), (noisy, 8, "digits and noise")):

        def analysed(seed: int, x: np.ndarray = x, k: int = k) -> float:
            return float(PeerAnalysis(k, random_state=seed).fit(x).score(x)) * len(x)

        yield Job(
            f"factor analysis, {k}, plain",
            f"{name} {x.shape[0]} x {x.shape[1]}",
            "sklearn",
            LOG_LIKELIHOOD,
            partial(ours_of, FactorAnalysis(x.shape[1], k), x, None),
            analysed,
        )


def sparse_coding() -> Iterator[Job]:
    """Codes of three of thirty columns, none of them negative."""
    from sklearn.decomposition import DictionaryLearning

    rng = np.random.default_rng(11)
    columns = rng.normal(size=(20, 30))
    columns /= np.linalg.norm(columns, axis=0)
    codes = np.zeros((1000, 30))
    for row in codes:
        row[rng.choice(30, 3, replace=False)] = rng.uniform(1, 2, 3)
    x = codes @ columns.T + 0.05 * rng.normal(size=(1000, 20))

    def missed(dictionary: np.ndarray) -> float:
        """True columns that no found column resembles to a cosine of .99."""
        unit = dictionary / np.linalg.norm(dictionary, axis=0).clip(1e-12)
        return float((np.max(columns.T @ unit, 1) < 0.99).sum())

    def ours(seed: int) -> float:
        return missed(fit(SparseCoding(20, 30, 3), x, seed=seed).params["dictionary"].numpy())

    def theirs(seed: int) -> float:
        peer = DictionaryLearning(
            30,
            fit_algorithm="cd",
            transform_algorithm="lasso_cd",
            positive_code=True,
            alpha=0.1,
            random_state=seed,
        )
        return missed(peer.fit(x).components_.T)

    yield Job(
        "sparse coding, 3 of 30 columns, plain",
        "simulated 1000 x 20",
        "sklearn",
        "columns missed",
        ours,
        theirs,
    )


# Attributes, graphs of causes, numbers of components


def dina(x: np.ndarray, q: np.ndarray, seed: int) -> float:
    """DINA by EM as a textbook writes it, from slips and guesses of .2."""
    num_attributes = q.shape[1]
    profiles = (np.arange(2**num_attributes)[:, None] >> np.arange(num_attributes)) & 1
    ideal = (profiles @ q.T) == q.sum(1)  # (C, J)
    weights = np.full(len(profiles), 1 / len(profiles))
    right, guess = np.full(len(q), 0.8), np.full(len(q), 0.2)
    before = -np.inf
    while True:
        chance = np.where(ideal, right, guess).clip(1e-9, 1 - 1e-9)
        log_joint = x @ np.log(chance).T + (1 - x) @ np.log(1 - chance).T + np.log(weights)
        top = log_joint.max(1, keepdims=True)
        total = np.exp(log_joint - top).sum(1, keepdims=True)
        now = float((top + np.log(total)).sum())
        if now - before < 1e-6:
            return now
        before = now
        posterior = np.exp(log_joint - top) / total
        weights = posterior.mean(0).clip(1e-12)
        mass, hits = posterior.sum(0), posterior.T @ x
        right = (hits * ideal).sum(0) / (mass @ ideal)
        guess = (hits * ~ideal).sum(0) / (mass @ ~ideal)


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(121)


def ability_likelihood(x: np.ndarray, slope: np.ndarray, easiness: np.ndarray) -> float:
    """Log-likelihood of a 2PL whose ability is standard normal."""
    eta = slope[:, None] * NODES + easiness[:, None]
    log = -x @ np.logaddexp(0, -eta) - (1 - x) @ np.logaddexp(0, eta)
    top = log.max(1)
    return float((top + np.log(np.exp(log - top[:, None]) @ (WEIGHTS / WEIGHTS.sum()))).sum())


def two_pl(answers: torch.Tensor) -> None:
    """Answers of persons, each with an ability."""
    num_items = answers.shape[1]
    easiness = pyro.sample("easiness", dist.Uniform(-20, 20).expand([num_items]).to_event(1))
    slope = pyro.sample("slope", dist.Uniform(0, 20).expand([num_items]).to_event(1))
    with pyro.plate("persons", len(answers)):
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        logits = easiness + slope * ability[..., None]
        pyro.sample("answers", dist.Bernoulli(logits=logits).to_event(1), obs=answers)


def abilities() -> Iterator[Job]:
    """A 2PL as a program of the user's, beside girth."""
    rng = np.random.default_rng(19)
    slope, ability = rng.uniform(0.5, 2, 20), rng.normal(size=(1000, 1))
    chance = 1 / (1 + np.exp(-slope * (ability - rng.normal(size=20))))
    x = (rng.random((1000, 20)) < chance).astype(float)

    def ours(starts: int | None, seed: int) -> float:
        settings = () if starts is None else (EM(),)
        found = fit(two_pl, x, *settings, num_restarts=starts, seed=seed).params
        return ability_likelihood(x, found["slope"].numpy(), found["easiness"].numpy())

    def theirs(seed: int) -> float:
        import girth

        found = girth.twopl_mml(x.T.astype(int), {"max_iteration": 500})
        slope = found["Discrimination"]
        return ability_likelihood(x, slope, -slope * found["Difficulty"])

    for starts in (None, 1):
        yield Job(
            f"2PL, 20 items, {_starts(starts)}",
            "simulated 1000 x 20",
            "girth",
            LOG_LIKELIHOOD,
            partial(ours, starts),
            theirs,
        )


def attributes() -> Iterator[Job]:
    """DINA beside the textbook's EM in NumPy, graphs of causes beside causal-learn's."""
    rng = np.random.default_rng(13)
    q = np.concatenate([np.eye(5, dtype=int)] * 2 + [rng.integers(0, 2, (20, 5))])
    q[q.sum(1) == 0, 0] = 1
    mastered = rng.integers(0, 2, (3000, 5))
    ideal = (mastered @ q.T) == q.sum(1)
    x = (rng.random((3000, 30)) < np.where(ideal, 0.85, 0.2)).astype(float)
    model = LatentAttributeModel(tuple(map(tuple, q.tolist())), items="dina")
    for starts in (None, 1):
        yield Job(
            f"DINA, 5 attributes, {_starts(starts)}",
            "simulated 3000 x 30",
            "numpy",
            LOG_LIKELIHOOD,
            partial(ours_of, model, x, starts),
            partial(dina, x, q),
        )
    yield from abilities()
    for size in (6, 10):
        rng = np.random.default_rng(size)
        rows = np.zeros((2000, size), dtype=int)
        for j in range(size):
            parents = rows[:, rng.choice(j, min(j, 2), replace=False)] if j else rows[:, :0]
            rows[:, j] = rng.random(2000) < 0.2 + 0.3 * parents.sum(1)

        def ours(seed: int, rows: np.ndarray = rows, size: int = size) -> float:
            cells = np.bincount(rows @ (1 << np.arange(size)[::-1]), minlength=2**size)
            shares = cells / len(rows)
            score = BDeu(edge_penalty=np.log(max(size - 2, 1)))
            graph = GES(turning=False).best(shares, float(len(rows)), score).graph
            return float(((graph.matrix + graph.matrix.T) > 0).sum() // 2)

        def theirs(seed: int, rows: np.ndarray = rows) -> float:
            from causallearn.search.ScoreBased.GES import ges

            matrix = ges(rows, "local_score_BDeu")["G"].graph
            return float(((matrix != 0) | (matrix.T != 0)).sum() // 2)

        yield Job(
            f"greedy search for a graph of {size} attributes",
            f"simulated 2000 x {size}",
            "causallearn",
            "edges",
            ours,
            theirs,
        )


def numbers() -> Iterator[Job]:
    """How many components, by the Bayesian information criterion of 1 to 6."""
    from sklearn.mixture import GaussianMixture

    for name, x in (
        ("simulated 300 x 4", mixture_rows(300, 4, 3, 1)),
        ("iris 150 x 4", table("iris")),
    ):

        def ours(seed: int, x: np.ndarray = x) -> float:
            model = Mixture(2, MultivariateNormal(), x.shape[1])
            return float(select(model, x, range(1, 7), criterion="bic", seed=seed).chosen)

        def theirs(seed: int, x: np.ndarray = x) -> float:
            fits = [GaussianMixture(k, n_init=10, random_state=seed).fit(x) for k in range(1, 7)]
            return 1.0 + int(np.argmin([found.bic(x) for found in fits]))

        yield Job(
            "number of full normals by BIC, 1 to 6, against 10 starts",
            name,
            "sklearn",
            CHOSEN,
            ours,
            theirs,
        )
        yield Job(
            "number of full normals by BIC, 1 to 6",
            name,
            "mclust",
            CHOSEN,
            ours,
            partial(
                in_r, "mclust", "Mclust(x, G=1:6, modelNames='VVV', verbose=FALSE)", "found$G", x
            ),
        )
    yield from signatures()


def signatures() -> Iterator[Job]:
    """How many signatures, five of them true, from 2 to 6."""
    rng = np.random.default_rng(7)
    x = rng.poisson(rng.gamma(1.0, 100.0, (100, 5)) @ rng.dirichlet(np.full(96, 0.2), 5))

    def ours(seed: int) -> float:
        return float(select(PoissonFactorization, x, range(2, 7), seed=seed).num_components)

    def theirs(seed: int) -> float:
        swaps = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
        kinds = [f"{a}[{swap}]{b}" for swap in swaps for a in "ACGT" for b in "ACGT"]
        with tempfile.TemporaryDirectory() as folder:
            frame = pd.DataFrame(x.T, pd.Index(kinds, name="Mutation Types"))
            frame.add_prefix("s").to_csv(Path(folder) / "counts.txt", sep="\t")
            subprocess.run(  # noqa: S603
                [sys.executable, "-W", "ignore", "-c", EXTRACT],
                check=True,
                cwd=folder,
                capture_output=True,
            )
            stats = pd.read_csv(Path(folder) / "out/SBS96/All_solutions_stat.csv")
        (chosen,) = [text for text in stats.iloc[:, 0].astype(str) if text.endswith("*")]
        return float(chosen.strip("*"))

    yield Job(
        "number of signatures, 2 to 6, theirs of 5 replicates of at most 2,000 steps",
        "simulated 100 x 96",
        "SigProfilerExtractor",
        CHOSEN,
        ours,
        theirs,
    )


EXTRACT = """
from SigProfilerExtractor.sigpro import sigProfilerExtractor
if __name__ == "__main__":
    sigProfilerExtractor(
        "matrix", "out", "counts.txt", minimum_signatures=2, maximum_signatures=6,
        nmf_replicates=5, min_nmf_iterations=500, max_nmf_iterations=2000, nmf_test_conv=500,
        cpu=1, assignment_cpu=1, make_decomposition_plots=False, stop_after_extraction=True,
    )
"""


# Stochastic EM, draws


def encoder_likelihood(x: np.ndarray, p: dict[str, np.ndarray]) -> float:
    """Log-likelihood of normal items that depend on bits, these summed out."""
    num = len(p["proportions"])
    bits = (np.arange(2**num)[:, None] >> np.arange(num)) & 1
    mean, variance = bits @ p["loadings_1"].T + p["intercepts_1"], p["dispersion"]
    log = -0.5 * (((x[:, None] - mean) ** 2 / variance) + np.log(2 * np.pi * variance)).sum(-1)
    log += bits @ np.log(p["proportions"]) + (1 - bits) @ np.log1p(-p["proportions"])
    top = log.max(1)
    return float((top + np.log(np.exp(log - top[:, None]).sum(1))).sum())


def stochastic_em(
    x: np.ndarray, p: dict[str, np.ndarray], sweeps: int, seed: int
) -> dict[str, np.ndarray]:
    """Draw the bits one after the other, regress the items on them, average the second half."""
    rng, num = np.random.default_rng(seed), len(p["proportions"])
    bits, kept = (rng.random((len(x), num)) < p["proportions"]).astype(float), []
    for sweep in range(sweeps):
        loadings, variance = p["loadings_1"], p["dispersion"]
        off = x - p["intercepts_1"] - bits @ loadings.T
        for k in range(num):
            off += bits[:, k, None] * loadings[:, k]
            odds = np.log(p["proportions"][k] / (1 - p["proportions"][k]))
            odds = odds + ((off - loadings[:, k] / 2) * loadings[:, k] / variance).sum(1)
            bits[:, k] = rng.random(len(x)) < 1 / (1 + np.exp(-odds))
            off -= bits[:, k, None] * loadings[:, k]
        design = np.column_stack([np.ones(len(x)), bits])
        beta = np.linalg.lstsq(design, x, rcond=None)[0]
        p = {
            "proportions": bits.mean(0).clip(1e-4, 1 - 1e-4),
            "loadings_1": beta[1:].T,
            "intercepts_1": beta[0],
            "dispersion": ((x - design @ beta) ** 2).mean(0),
        }
        kept += [p] if sweep >= sweeps // 2 else []
    return {name: np.mean([one[name] for one in kept], 0) for name in p}


def stochastic() -> Iterator[Job]:
    """SAEM beside a plain stochastic EM of 200 sweeps, from the same start."""
    rng = np.random.default_rng(3)
    loadings = 2 * np.kron(np.eye(6), np.ones((3, 1))) + 1.5 * (rng.random((18, 6)) < 0.15)
    x = (rng.random((2000, 6)) < 0.5) @ loadings.T + rng.normal(size=(2000, 18))
    model = DeepDiscreteEncoder(18, (6,), response=Normal())

    def start(seed: int) -> dict[str, np.ndarray]:
        noise = 0.5 * np.random.default_rng(seed).normal(size=loadings.shape)
        means = x.mean(0) - (loadings + noise).sum(1) / 2
        return {
            "proportions": np.full(6, 0.5),
            "loadings_1": loadings + noise,
            "intercepts_1": means,
            "dispersion": x.var(0),
        }

    def ours(method: Any, seed: int) -> float:
        init = {name: torch.tensor(value) for name, value in start(seed).items()}
        found = fit(model, x, method, init=init, seed=seed).params
        return encoder_likelihood(x, {name: value.numpy() for name, value in found.items()})

    def theirs(seed: int) -> float:
        return encoder_likelihood(x, stochastic_em(x, start(seed), 200, seed))

    for method, words in ((SAEM(), ""), (SAEM(tolerance=1e-3), ", tolerance .001")):
        yield Job(
            f"encoder of 6 bits by SAEM, one start near the truth{words}",
            "simulated 2000 x 18",
            "numpy",
            LOG_LIKELIHOOD,
            partial(ours, method),
            theirs,
        )


DRAWS = SimpleNamespace(chains=2, warmup=300, draws=300, target=0.8, bound=5.0, ridge=None)


def posteriors() -> Iterator[Job]:
    """NUTS from our optimum, 300 draws after 300 in each of two chains, beside NumPyro's.

    What is reached is effective draws a second on the clock, compilation included.
    """

    def draw(model: Any, rows: Any, point: Any, dense: bool, seed: int) -> float:
        engine = NUTS(
            DRAWS.chains, DRAWS.warmup, DRAWS.draws, target_accept_prob=DRAWS.target, dense=dense
        )
        began = time.monotonic()
        draws = fit(model, rows, engine, init=point, seed=seed).draws
        seconds = time.monotonic() - began
        ess = torch.cat([value.reshape(-1) for value in ess_of_draws(draws).values()])
        return float(ess[~ess.isnan()].min()) / seconds

    for name, family in nuts_others.FAMILIES.items():
        case = family(np.random.default_rng(0), 500)  # of 200 a component may empty
        point = fit(case.model, case.rows, EM(), num_restarts=5, seed=0)
        supports = problem_of(point.model, case.rows, 0).supports()
        bounds = {
            site: tuple(
                b.numpy() for b in (at.base_constraint.lower_bound, at.base_constraint.upper_bound)
            )
            for site, at in supports.items()
            if site in ("predictors", "dispersion")
        }

        def theirs(seed: int, case: Any = case, point: Any = point, bounds: Any = bounds) -> float:
            on_one_thread()
            program = case.program(case.rows, bounds)
            told = nuts_others.in_numpyro(DRAWS, program, point.params, point.model, seed)
            return float(told["min_ess_per_second"])

        yield Job(
            f"NUTS, {name.replace('_', ' ')}, 2 x 300 draws",
            f"simulated {np.prod(case.rows.shape[:-1])} x {case.rows.shape[-1]}",
            "numpyro",
            EFFECTIVE,
            partial(draw, point.model, case.rows, point, True),
            theirs,
        )
    model = DeepDiscreteEncoder(18, (6, 2), response=Poisson(), bound=DRAWS.bound)
    truth = nuts_dde.strict_design(2, Poisson())
    rows = simulate(model, truth, 0, None, 300)["items"]
    point = fit(model, rows, EM())

    def counts(seed: int) -> float:
        on_one_thread()
        args: Any = SimpleNamespace(**vars(DRAWS), family="Poisson", rows=300, seed=seed)
        start = {name: value.numpy() for name, value in point.params.items()}
        return float(nuts_dde.in_numpyro(args, model, rows, start)["min_ess_per_second"])

    yield Job(
        "NUTS, encoder of counts, 2 x 300 draws",
        "simulated 300 x 18",
        "numpyro",
        EFFECTIVE,
        partial(draw, model, rows, point, True),
        counts,
    )


FRESH = {
    "sklearn": (
        "from sklearn.mixture import GaussianMixture; GaussianMixture(3, random_state=0).fit(x)"
    ),
    "ours": (
        "from inference import fit; from ppl_models import Mixture, MultivariateNormal;"
        " fit(Mixture(3, MultivariateNormal(), 4), x)"
    ),
}


def first_answers() -> Iterator[Job]:
    """A new process: import and the fit of 300 rows."""
    draw = "import numpy as np; x = np.random.default_rng(2).normal(size=(300, 4));"

    def seconds(side: str, seed: int) -> Reached:
        began = time.perf_counter()
        subprocess.run(  # noqa: S603
            [sys.executable, "-W", "ignore", "-c", draw + FRESH[side]], check=True
        )
        spent = round(time.perf_counter() - began, 2)
        return Reached(spent, spent)

    yield Job(
        "first answer of a new process",
        "structureless 300 x 4",
        "sklearn",
        WALL,
        partial(seconds, "ours"),
        partial(seconds, "sklearn"),
    )


GROUPS: dict[str, Callable[[], Iterator[Job]]] = {
    "mixture": mixtures,
    "classes": latent_classes,
    "hmm": hidden_markov,
    "factorization": factorizations,
    "sparse_coding": sparse_coding,
    "attributes": attributes,
    "numbers": numbers,
    "stochastic": stochastic,
    "posteriors": posteriors,
    "first": first_answers,
}


def _timed(side: Side, num_seeds: int) -> tuple[np.ndarray, float]:
    """What a side reached by seed, and the median of its seconds, those of its processes too."""

    def clock() -> float:
        return time.process_time() + sum(os.times()[2:4])  # the latter in hundredths

    values, spent = [], []
    for seed in range(num_seeds):
        began = clock()
        reached = side(seed)
        if not isinstance(reached, Reached):
            reached = Reached(reached, clock() - began)
        values.append(reached.value)
        spent.append(reached.seconds)
    return np.array(values), float(np.median(spent))


def _version(package: str) -> str | None:
    if package in OF_R:
        script = f"cat(as.character(packageVersion('{package}')))"
        call = ["Rscript", "--vanilla", "-e", script]
        return subprocess.run(call, check=True, capture_output=True, text=True).stdout  # noqa: S603
    try:
        return version(PACKAGES.get(package, package))
    except PackageNotFoundError:
        return None


def _absent(peer: str) -> str | None:
    """Why a peer cannot be called, or None; its modules are imported."""
    try:
        for module in MODULES.get(peer, ()):
            importlib.import_module(module)
        if peer in OF_R:
            _version(peer)
    except (ImportError, OSError, subprocess.CalledProcessError) as absent:
        return str(absent)
    return None


def _verdict(measure: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    if measure == WALL:
        return "seconds alone"
    gap = float(ours.mean() - theirs.mean())
    noise = 2 * math.sqrt((ours.var() + theirs.var()) / max(len(ours) - 1, 1))
    if measure in NEAR:  # both sides had the same data
        noise = 2 * float((ours - theirs).std()) / math.sqrt(max(len(ours) - 1, 1))
    if abs(gap) <= max(NEAR.get(measure, NATS), SHARE * abs(float(theirs.mean()))):
        return "same"
    if abs(gap) <= noise:
        return "within noise"
    if measure in NEITHER:
        return "other"
    return "ours better" if (gap > 0) == (measure in HIGHER) else "ours worse"


def measure(args: argparse.Namespace) -> Lines:
    """One line a job."""
    warnings.simplefilter("ignore")
    fit(Mixture(2, Normal(), 2), np.random.default_rng(0).normal(size=(40, 2)), EM())
    for group in args.rows:
        for job in GROUPS[group]():
            if args.only and not re.search(args.only, f"{job.name} {job.data} {job.peer}"):
                continue
            if (absent := _absent(job.peer)) is not None:
                yield {"group": group, "job": job.name, "skipped": absent}
                continue
            theirs, their_seconds = _timed(job.theirs, args.seeds)
            ours, our_seconds = _timed(job.ours, args.seeds)
            yield {
                "group": group,
                "job": job.name,
                "data": job.data,
                "peer": PACKAGES.get(job.peer, job.peer),
                "peer_version": _version(job.peer),
                "measure": job.measure,
                "ours": round(float(ours.mean()), 3),
                "theirs": round(float(theirs.mean()), 3),
                "ours_sd": round(float(ours.std()), 3),
                "theirs_sd": round(float(theirs.std()), 3),
                "seeds": args.seeds,
                "verdict": _verdict(job.measure, ours, theirs),
                "ours_s": round(our_seconds, 3),
                "theirs_s": round(their_seconds, 3),
                "ratio": round(our_seconds / max(their_seconds, 1e-3), 2),
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Run with the options of the command line."""
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument(
        "--rows", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="groups of jobs"
    )
    parser.add_argument("--only", metavar="PATTERN", help="jobs whose name and data match")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="of both sides")
    run(parser, measure, argv, quick={"only": "150 x 4|118 x 7|10 x 50", "seeds": 1})


if __name__ == "__main__":
    main()

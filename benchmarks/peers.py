"""Everyday fits beside the libraries that one would take instead, both sides in one process.

Each row is a job: data, our call and the peer's. ``plain`` is the call that people type,
``fit(model, data)`` against the peer's constructor with its defaults; ``n starts`` is
``fit(model, data, EM(), num_restarts=n)`` against the best of ``n`` runs of the peer to a tight
tolerance. A JSON line holds the seconds of the processor on one thread of both sides (the first
call on tiny data is not counted), their ratio, what both reached (log-likelihoods are better high,
divergences, squares and distances low) and the versions of the libraries. ``verdict`` is *same*
where the means over seeds differ by less than a tenth of a nat, a hundred-thousandth or two
standard errors, else *ours better* or *ours worse*; seconds are the median over seeds. A peer that
is not installed leaves its row out, with a line that says so.

Peers: scikit-learn, StepMix, hmmlearn, causal-learn; NUTS beside NumPyro's is in
``nuts_others.py``. ``python benchmarks/peers.py [--rows mixture hmm] [--seeds 3]``.
"""

from __future__ import annotations

import argparse
import importlib
import math
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _bench import Lines, command_line, run
from scipy import sparse
from scipy.special import xlogy

from inference import EM, fit
from inference.causal import GES, BDeu
from inference.selection import select
from ppl_models import (
    Bernoulli,
    Categorical,
    Covariates,
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
}
MODULES = {  # what a peer's first call would import
    "sklearn": ("sklearn.mixture", "sklearn.decomposition", "sklearn.datasets"),
    "stepmix": ("stepmix.stepmix",),
    "hmmlearn": ("hmmlearn.hmm",),
    "causallearn": ("causallearn.search.ScoreBased.GES",),
}
LOG_LIKELIHOOD = "log-likelihood"
LOWER = ("Kullback-Leibler divergence", "sum of squares", "edges off", "wall seconds")
NATS, SHARE = 0.1, 1e-5  # two values nearer than that are one optimum
Side = Callable[[int], float]  # of a seed


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


# Mixtures beside scikit-learn


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


def _softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


# Hidden Markov models beside hmmlearn


def hmm(
    kind: str, k: int, x: np.ndarray, starts: int | None, covariance: str | None, seed: int
) -> float:
    from hmmlearn.hmm import CategoricalHMM, GaussianHMM, PoissonHMM

    settings: dict[str, Any] = {} if covariance is None else {"covariance_type": covariance}
    settings |= {} if starts is None else {"n_iter": 500, "tol": 1e-3}
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

        yield Job(f"Poisson factorization, {k}, plain", name, "sklearn", LOWER[0], ours, theirs)
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
        LOWER[1],
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
            "number chosen",
            ours,
            theirs,
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

    def seconds(side: str, seed: int) -> float:
        began = time.perf_counter()
        subprocess.run(  # noqa: S603
            [sys.executable, "-W", "ignore", "-c", draw + FRESH[side]], check=True
        )
        return round(time.perf_counter() - began, 2)

    yield Job(
        "first answer of a new process",
        "structureless 300 x 4",
        "sklearn",
        LOWER[3],
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
    "first": first_answers,
}


def _timed(side: Side, num_seeds: int) -> tuple[np.ndarray, float]:
    """What a side reached by seed, and the median of its seconds."""
    values, spent = [], []
    for seed in range(num_seeds):
        began = time.process_time()
        values.append(side(seed))
        spent.append(time.process_time() - began)
    return np.array(values), float(np.median(spent))


def _version(package: str) -> str | None:
    try:
        return version(PACKAGES.get(package, package))
    except PackageNotFoundError:
        return None


def _verdict(measure: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    if measure == LOWER[3]:
        return "seconds alone"
    gap = float(ours.mean() - theirs.mean())
    noise = 2 * math.sqrt((ours.var() + theirs.var()) / max(len(ours) - 1, 1))
    if abs(gap) <= max(NATS, SHARE * abs(float(theirs.mean())), noise):
        return "same"
    if measure in ("edges", "number chosen"):
        return "other"
    return "ours better" if (gap > 0) == (measure == LOG_LIKELIHOOD) else "ours worse"


def measure(args: argparse.Namespace) -> Lines:
    """One line a job."""
    warnings.simplefilter("ignore")
    fit(Mixture(2, Normal(), 2), np.random.default_rng(0).normal(size=(40, 2)), EM())
    for group in args.rows:
        for job in GROUPS[group]():
            if args.only and not re.search(args.only, f"{job.name} {job.data}"):
                continue
            try:
                for module in MODULES.get(job.peer, ()):
                    importlib.import_module(module)
            except ImportError as absent:
                yield {"group": group, "job": job.name, "skipped": str(absent)}
                continue
            theirs, their_seconds = _timed(job.theirs, args.seeds)
            ours, our_seconds = _timed(job.ours, args.seeds)
            if job.measure == LOWER[3]:
                our_seconds, their_seconds = float(np.median(ours)), float(np.median(theirs))
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

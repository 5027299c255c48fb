"""Log-likelihoods of the twenty programs written out in NumPy and SciPy: recursions, closed forms
and sums over all values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray as Array
from scipy import stats
from scipy.special import logsumexp

Values = dict[str, Array]


def mixture_of_normals(p: Values, data: Any) -> float:
    return float(
        logsumexp(
            np.log(p["weights"])
            + stats.norm.logpdf(np.asarray(data)[:, None], p["locs"], p["scale"]),
            axis=1,
        ).sum()
    )


def _forward(start: Array, transition: Array, emissions: Array) -> float:
    """Of one sequence: start (S,), transition (S, S), log densities of what is seen (T, S)."""
    message = np.log(start) + emissions[0]
    for row in emissions[1:]:
        message = logsumexp(message[:, None] + np.log(transition), axis=0) + row
    return float(logsumexp(message))


def _bernoulli(x: Array, p: Array) -> Array:
    return np.asarray(stats.bernoulli.logpmf(x, p))


def _sequences(data: Any) -> list[Array]:
    return [
        x[: int(n)]
        for x, n in zip(np.asarray(data["sequences"]), np.asarray(data["lengths"]), strict=True)
    ]


def hmm(p: Values, data: Any) -> float:
    return sum(
        _forward(
            p["probs_x"][0], p["probs_x"], _bernoulli(x[:, None, :], p["probs_y"][None]).sum(-1)
        )
        for x in _sequences(data)
    )


def autoregressive_hmm(p: Values, data: Any) -> float:
    total = 0.0
    for x in _sequences(data):
        before = np.concatenate([np.zeros((1, x.shape[1])), x[:-1]]).astype(int)
        chance = np.stack(
            [
                [p["probs_y"][s, before[t], np.arange(x.shape[1])] for s in range(2)]
                for t in range(len(x))
            ]
        )  # (T, S, tones)
        total += _forward(p["probs_x"][0], p["probs_x"], _bernoulli(x[:, None, :], chance).sum(-1))
    return total


def factorial_hmm(p: Values, data: Any) -> float:
    """The pair of states as one state."""
    transition = np.kron(p["probs_w"], p["probs_x"])
    chance = p["probs_y"].reshape(4, -1)
    return sum(
        _forward(transition[0], transition, _bernoulli(x[:, None, :], chance[None]).sum(-1))
        for x in _sequences(data)
    )


def nested_plates(p: Values, data: Any) -> float:
    x = np.asarray(data)
    rows = np.stack([_bernoulli(x, p["chance_d"][b]).sum(1) for b in (0, 1)], -1)  # (N, b)
    each = [np.log([1 - p["chance_b"][a], p["chance_b"][a]]) for a in (0, 1)]
    totals = [logsumexp(rows + each[a], axis=1).sum() for a in (0, 1)]
    return float(logsumexp(np.log([1 - p["chance_a"], p["chance_a"]]) + totals))


def capture_recapture(p: Values, data: Any) -> float:
    """Survival to the last catch is certain; chi is the chance not to be seen after it."""
    x = np.asarray(data)
    phi, rho, num = float(p["phi"]), float(p["rho"]), x.shape[1]
    chi = np.ones(num)
    for t in range(num - 2, -1, -1):
        chi[t] = 1 - phi + phi * (1 - rho) * chi[t + 1]
    total = 0.0
    for history in x:
        caught = np.flatnonzero(history)
        if len(caught):
            between = history[caught[0] + 1 : caught[-1] + 1]
            total += (
                len(between) * np.log(phi)
                + _bernoulli(between, rho).sum()
                + np.log(chi[caught[-1]])
            )
    return float(total)


def zero_inflated(p: Values, data: Any) -> float:
    x = np.asarray(data)
    parts = [
        np.log(p["gate"]) + stats.poisson.logpmf(x, 1e-6),
        np.log1p(-p["gate"]) + stats.poisson.logpmf(x, p["rate"]),
    ]
    return float(logsumexp(parts, axis=0).sum())


def topics(p: Values, data: Any) -> float:
    """Words are independent given the shares of their document; with the prior of the shares."""
    x = np.asarray(data)
    chance = np.einsum("dk,kv->dv", p["doc_topics"], p["topic_words"])
    prior = stats.dirichlet(np.full(p["doc_topics"].shape[1], 2.0))
    own = sum(prior.logpdf(shares / shares.sum()) for shares in p["doc_topics"])
    return float(np.log(chance[np.arange(x.shape[1]), x]).sum() + own)


def change_point(p: Values, data: Any) -> float:
    x = np.asarray(data)
    each = [
        stats.poisson.logpmf(x, np.where(np.arange(len(x)) < c, p["early"], p["late"])).sum()
        for c in range(len(x))
    ]
    return float(logsumexp(each) - np.log(len(x)))


def mixture_of_lines(p: Values, data: Any) -> float:
    x, y = (np.asarray(data[name])[:, None] for name in ("x", "y"))
    return float(
        logsumexp(
            np.log(p["weights"]) + stats.norm.logpdf(y, p["a"] + p["b"] * x, p["s"]), axis=1
        ).sum()
    )


def latent_classes(p: Values, data: Any) -> float:
    rows = _bernoulli(np.asarray(data)[:, None], p["probs"][None]).sum(-1)
    return float(logsumexp(np.log(p["shares"]) + rows, axis=1).sum())


def _annotations(log_pi: Array, log_beta: Array, data: Any) -> float:
    """log_beta (annotators, classes, classes)."""
    y, who = np.asarray(data["labels"]), np.asarray(data["positions"])
    rows = sum(log_beta[who[j]][:, y[:, j]].T for j in range(y.shape[1]))  # (items, classes)
    return float(logsumexp(log_pi + rows, axis=1).sum())


def dawid_skene(p: Values, data: Any) -> float:
    return _annotations(np.log(p["pi"]), np.log(p["beta"]), data)


def mace(p: Values, data: Any) -> float:
    theta, epsilon = p["theta"][:, None, None], p["epsilon"][:, None, :]
    beta = theta * np.eye(epsilon.shape[-1]) + (1 - theta) * epsilon
    return _annotations(np.full(epsilon.shape[-1], -np.log(epsilon.shape[-1])), np.log(beta), data)


def hierarchical_dawid_skene(p: Values, data: Any) -> float:
    logits = p["zeta"] + p["omega"][:, None] * p["raw"]
    return _annotations(np.log(p["pi"]), logits - logsumexp(logits, axis=-1, keepdims=True), data)


def dirichlet_process(p: Values, data: Any) -> float:
    left, weights = 1.0, []
    for share in [*p["beta"], 1.0]:
        weights.append(left * share)
        left *= 1 - share
    return float(
        logsumexp(
            np.log(weights) + stats.norm.logpdf(np.asarray(data)[:, None], p["mu"], 1.0), axis=1
        ).sum()
    )


def rasch(p: Values, data: Any) -> float:
    """Given the abilities, with their distribution."""
    ability = p["ability"].reshape(-1, 1)
    chance = 1 / (1 + np.exp(p["difficulty"] - ability))
    return float(_bernoulli(np.asarray(data), chance).sum() + stats.norm.logpdf(ability).sum())


def eight_schools(p: Values, data: Any) -> float:
    """Given the effects of the schools, with their distribution."""
    y, sigma = np.asarray(data["y"]), np.asarray(data["sigma"])
    return float(
        stats.norm.logpdf(y, p["mu"] + p["tau"] * p["eta"], sigma).sum()
        + stats.norm.logpdf(p["eta"]).sum()
    )


def line_with_outliers(p: Values, data: Any) -> float:
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    line = stats.norm.logpdf(y, p["intercept"] + p["slope"] * x, p["noise"])
    parts = [np.log(p["share"]) + stats.norm.logpdf(y, 0.0, 10.0), np.log1p(-p["share"]) + line]
    return float(logsumexp(parts, axis=0).sum())


def measurements_with_gaps(p: Values, data: Any) -> float:
    total = 0.0
    for height, visits, smokes in data[["height", "visits", "smokes"]].to_numpy():
        parts = []
        for z, weight in ((0, 1 - p["share"]), (1, p["share"])):
            part = np.log(weight)
            part += (
                0.0
                if np.isnan(height)
                else stats.norm.logpdf(height, p["height_mean"][z], p["height_sd"])
            )
            part += 0.0 if np.isnan(visits) else stats.poisson.logpmf(visits, p["visits_rate"][z])
            part += (
                0.0 if np.isnan(smokes) else stats.bernoulli.logpmf(smokes, p["smokes_chance"][z])
            )
            parts.append(part)
        total += float(logsumexp(parts))
    return total


def mean_of_schools(data: Any) -> tuple[float, float]:
    """Posterior mean of mu and of tau of the eight schools, by a grid; the effects of schools
    integrated in closed form.
    """
    y, sigma = np.asarray(data["y"]), np.asarray(data["sigma"])
    mu, tau = np.linspace(-40, 40, 801)[:, None], np.linspace(0.005, 150, 6000)[None]
    log_density = stats.norm.logpdf(mu, 0, 10) + stats.halfcauchy.logpdf(tau, scale=10)
    for value, scale in zip(y, sigma, strict=True):
        log_density = log_density + stats.norm.logpdf(value, mu, np.sqrt(tau**2 + scale**2))
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    return float((weight * mu).sum()), float((weight * tau).sum())

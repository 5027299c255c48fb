"""How many components? The rule of distributions and numbers beside its rivals, on data whose
number is known.

Each cell is a design drawn anew for every seed. ``rule`` is
:func:`inference.selection.select_components`; for factorizations ``clear step`` (ACDC's last clear
step, by the first distribution, which calls itself finished or not), ``strict`` and ``lenient``
(each penalty alone over the distributions), ``lenient, first distribution`` and ``BIC, first
distribution``; for mixtures and hidden chains ``clear step`` and ``BIC, first distribution``,
``BIC`` and ``ICL`` over the distributions, ``groups`` (those of the smallest BIC, separated at 5
%); for options ``clear step``, ``BIC``, ``AIC`` and ``held-out`` (actions of sequences left out).
Beside the rule of factorizations and mixtures also ``AIC`` over the distributions and, by the first
distribution, ``held-out`` (cells left out of factorizations, rows of mixtures), and for
factorizations ``parallel analysis`` and ``stability`` (the largest number all of whose components
come back from halves of the rows; one pair of halves, one start). One JSON line a
cell: for every one of them the share of seeds on which it was right, right and confident, wrong and
confident (null where it has no such word), and the numbers it chose; for the rule its words and
distributions too.

Cells of ``acdc_rule.md``, tables of section 8: ``--group factorization`` (COSMIC designs need the
data; six of the twelve signatures of the breast sets are drawn, not of all thirty) and ``--group
mixture``; ``--group chain`` counts the states of one sequence of 1,000 steps, for which there is no
published table; ``--group options`` the hidden options of 20 to 40 sequences of 80 steps, likewise.
Run: ``python benchmarks/how_many.py [--group mixture] [--cells "t, elliptic" ...] [--replicates 20]
[--first-seed 20000]``; ``--list`` names the cells.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds
from papers.factorization_criteria import held_out_log_likelihood
from scipy.special import ndtri

from inference import EM, fit
from inference.acdc import acdc
from inference.selection import parallel_analysis, reproducibility, select_components
from inference.selection.factorization_criteria import aic
from ppl_models import (
    Bernoulli,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    Normal,
    OptionsHMM,
    Poisson,
    PoissonFactorization,
)
from ppl_models.datasets import load_breast, negative_binomial_mixture, simulate_mutations

Draw = Callable[[np.random.Generator], np.ndarray]
Cell = tuple[int, Draw]
SHORT = EM(max_iterations=200)  # of rivals' fits
BEYOND = 4  # numbers above the truth that are compared
SHARES = (0.9, 0.7, 0.5, 0.4, 0.3, 0.1)  # of the rows that hold each of six signatures

# ---------------------------------------------------------------- factorizations


def table(
    n: int,
    j: int,
    k: int,
    counts: float = 3000.0,
    distribution: tuple[str, float] = ("poisson", 0.0),
    rare: int = 0,
    sparse: bool = False,
) -> Cell:
    """N rows of about so many counts; ``rare`` rows hold the last component."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        phi, z = rng.dirichlet(np.full(j, 0.3), size=k), rng.gamma(1.0, counts / k, size=(n, k))
        if sparse:
            z *= rng.random((n, k)) < 0.5
            z[z.sum(1) == 0, 0] = counts / k
        if rare:
            z[rare:, -1] = 0
            z[:rare, -1] = rng.gamma(2.0, counts / k, size=rare)
        return noisy(z @ phi, distribution, rng)

    return k, draw


def noisy(
    mean: np.ndarray, distribution: tuple[str, float], rng: np.random.Generator
) -> np.ndarray:
    name, size = distribution
    if name == "nb2":
        mean = mean * rng.gamma(size, 1 / size, mean.shape)
    elif name == "nb1":
        mean = size * rng.gamma(np.maximum(mean / size, 1e-12))
    x = rng.poisson(mean).astype(float)
    x[x.sum(1) == 0, 0] = 1
    return x


def perturbed(n: int = 100, j: int = 64, k: int = 5) -> Cell:
    def draw(rng: np.random.Generator) -> np.ndarray:
        phi, z = rng.dirichlet(np.full(j, 0.3), size=k), rng.gamma(1.0, 3000.0 / k, size=(n, k))
        mean = sum(z[:, i : i + 1] * rng.dirichlet(150 * phi[i] + 1e-9, size=n) for i in range(k))
        return noisy(np.asarray(mean), ("poisson", 0.0), rng)

    return k, draw


def cosmic(kind: str) -> Cell:
    def draw(rng: np.random.Generator) -> np.ndarray:
        known = load_breast("well_specified").signatures
        assert known is not None
        phi = known[rng.choice(len(known), 6, replace=False)]
        z = np.exp(rng.normal(np.log(400.0), 0.8, size=(80, 6))) * (
            rng.random((80, 6)) < np.array(SHARES)
        )
        z[z.sum(1) == 0, 0] = 400.0
        if kind == "perturbed":
            return np.maximum(
                simulate_mutations(phi, z, "perturbed", int(rng.integers(2**31))), 0.0
            )
        mean = z @ phi
        if kind == "contaminated":
            mean = 0.97 * mean + 0.03 * z.sum(1, keepdims=True) * rng.dirichlet(
                np.ones(96), size=80
            )
        return noisy(
            mean, {"nb1": ("nb1", 1.0), "nb2": ("nb2", 10.0)}.get(kind, ("poisson", 0.0)), rng
        )

    return 6, draw


FACTORIZATIONS: dict[str, Cell] = {
    "Poisson 100 x 64": table(100, 64, 5),
    "Poisson 80 x 30": table(80, 30, 5),
    "Poisson 100 x 64 sparse, rare": table(100, 64, 6, rare=6, sparse=True),
    "Poisson 200 x 50 few counts": table(200, 50, 4, 200.0),
    "Poisson 50 x 40 few counts": table(50, 40, 3, 200.0),
    "Poisson 25 x 60": table(25, 60, 4),
    "Poisson 800 x 20": table(800, 20, 4, 1000.0),
    "Poisson 30 x 150": table(30, 150, 3),
    "Poisson 120 x 96": table(120, 96, 8),
    "Poisson 300 x 60, 24 counts a row": table(300, 60, 3, 24.0),
    "Poisson 80 x 40, one": table(80, 40, 1),
    "NB2 100 x 64, size 4": table(100, 64, 5, distribution=("nb2", 4.0)),
    "NB2 300 x 30, size 3": table(300, 30, 4, distribution=("nb2", 3.0)),
    "NB1 100 x 64, theta 1": table(100, 64, 5, distribution=("nb1", 1.0)),
    "NB1 21 x 60, theta 1.5": table(21, 60, 3, distribution=("nb1", 1.5)),
    "NB1 120 x 40, theta 2": table(120, 40, 4, distribution=("nb1", 2.0)),
    "perturbed 100 x 64": perturbed(),
    "COSMIC Poisson": cosmic("poisson"),
    "COSMIC NB1": cosmic("nb1"),
    "COSMIC NB2": cosmic("nb2"),
    "COSMIC contaminated": cosmic("contaminated"),
    "COSMIC perturbed": cosmic("perturbed"),
}

# ---------------------------------------------------------------- mixtures


def groups(
    centres: Sequence[Sequence[float]],
    noise: Callable[[np.random.Generator, np.ndarray, int], np.ndarray],
    n: int = 1000,
    weights: Any = None,
) -> Cell:
    """Rows about centres; ``noise`` of the rows' groups and the number of columns."""
    at = np.array(centres, float)

    def draw(rng: np.random.Generator) -> np.ndarray:
        z = rng.choice(len(at), size=n, p=weights)
        return at[z] + noise(rng, z, at.shape[1])

    return len(at), draw


def normal(rng: np.random.Generator, z: np.ndarray, j: int) -> np.ndarray:
    return rng.standard_normal((len(z), j))


def t_rows(freedom: float) -> Callable[[np.random.Generator, np.ndarray, int], np.ndarray]:
    return lambda rng, z, j: (
        rng.standard_normal((len(z), j)) / np.sqrt(rng.chisquare(freedom, (len(z), 1)) / freedom)
    )


def skewed(rng: np.random.Generator, z: np.ndarray, j: int) -> np.ndarray:
    lean = 3 * np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])
    return rng.standard_normal((len(z), j)) + np.abs(rng.standard_normal((len(z), 1))) * lean[z % 3]


def scales(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((1000, 2)) * np.where(
        rng.random((1000, 1)) < 0.5, 4.0, 1.0
    ) + np.where(rng.random((1000, 1)) < 0.5, 0.1, 0.0)


def anywhere(rng: np.random.Generator) -> np.ndarray:
    """Five normals in four dimensions, their centres drawn too: some lie close together."""
    return rng.normal(0, 3, (5, 4))[rng.integers(5, size=1000)] + rng.standard_normal((1000, 4))


def counts(dispersed: bool) -> Cell:
    means = np.array([[2.0, 10.0, 30.0], [20.0, 3.0, 5.0], [6.0, 30.0, 2.0]])

    def draw(rng: np.random.Generator) -> np.ndarray:
        mean = means[rng.integers(3, size=1000)]
        return rng.poisson(mean * rng.gamma(4, 0.25, mean.shape) if dispersed else mean).astype(
            float
        )

    return 3, draw


def binary(dependence: float) -> Cell:
    """Ten items in three classes; neighbouring pairs share a part of what lies behind their
    answers, with this tetrachoric correlation.
    """

    def draw(rng: np.random.Generator) -> np.ndarray:
        chance = np.repeat([[0.85, 0.15, 0.85], [0.85, 0.85, 0.15]], [5, 5], 0).T[
            rng.integers(3, size=1500)
        ]
        shared = np.repeat(rng.standard_normal((1500, 5)), 2, 1)
        behind = np.sqrt(dependence) * shared + np.sqrt(1 - dependence) * rng.standard_normal(
            (1500, 10)
        )
        return (behind < ndtri(chance)).astype(float)

    return 3, draw


SQUARE, TRIANGLE = [[0, 0], [6, 0], [0, 6], [6, 6]], [[0, 0], [3, 0], [1.5, 2.6]]
FAR = [[0, 0], [9, 0], [0, 9]]
MIXTURES: dict[str, tuple[Cell, Any]] = {
    "normal, separated": (groups(SQUARE, normal), MultivariateNormal()),
    "normal, close": (groups(TRIANGLE, normal), MultivariateNormal()),
    "normal, unequal": (
        groups([[0, 0], [5, 0], [0, 5]], normal, weights=(0.85, 0.11, 0.04)),
        MultivariateNormal(),
    ),
    "two scales at one centre": ((2, scales), MultivariateNormal()),
    "t, elliptic": (groups([[0, 0], [9, 0], [0, 9], [9, 9]], t_rows(4)), MultivariateNormal()),
    "t, independent columns": (
        groups([[0, 0], [9, 0], [0, 9], [9, 9]], lambda rng, z, j: rng.standard_t(4, (len(z), j))),
        MultivariateNormal(),
    ),
    "skew-normal": (groups(FAR, skewed), MultivariateNormal()),
    "uniform": (
        groups([[0, 0], [2, 0], [0, 2]], lambda rng, z, j: rng.random((len(z), j))),
        MultivariateNormal(),
    ),
    "log-normal": (
        groups(
            [[0, 0], [12, 0], [0, 12]],
            lambda rng, z, j: np.exp(0.7 * rng.standard_normal((len(z), j))),
        ),
        MultivariateNormal(),
    ),
    "Poisson": (counts(False), Poisson()),
    "NB, three columns": (counts(True), Poisson()),
    "NB, published": (
        (3, lambda rng: negative_binomial_mixture(1500, int(rng.integers(2**31)))[0]),
        Poisson(),
    ),
    "Bernoulli": (binary(0.0), Bernoulli()),
    "Bernoulli, pairs .3": (binary(0.3), Bernoulli()),
    "Bernoulli, pairs .6": (binary(0.6), Bernoulli()),
    "one group: t5": (groups([[0, 0]], t_rows(5)), MultivariateNormal()),
    "one group: skew-normal": (groups([[0, 0]], skewed), MultivariateNormal()),
    "two t4, 3.5 apart": (groups([[0, 0], [3.5, 0]], t_rows(4)), MultivariateNormal()),
    "5 normals, 4-D": ((5, anywhere), MultivariateNormal()),
    "3 normals, 2 sd apart": (
        groups([[0, 0], [2, 0], [1, 1.73]], normal, n=500),
        MultivariateNormal(),
    ),
}

# ---------------------------------------------------------------- designs of hidden chains

MOVES = np.array([[0.94, 0.03, 0.03], [0.05, 0.9, 0.05], [0.03, 0.07, 0.9]])
LEVELS, RATES = np.array([0.0, 3.0, 6.0]), np.array([1.0, 6.0, 15.0])


def visited(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Three states of a Markov chain."""
    states, uniforms, cumulated = np.zeros(steps, int), rng.random(steps), MOVES.cumsum(1)
    for t in range(1, steps):
        states[t] = min(int((uniforms[t] >= cumulated[states[t - 1]]).sum()), 2)
    return states


def in_turn(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Two states in turn, visits of 12 to 20 steps: no Markov chain."""
    return np.concatenate(
        [
            np.full(length, i % 2)
            for i, length in enumerate(rng.integers(12, 21, size=steps // 12 + 1))
        ]
    )[:steps]


def chain(
    truth: int,
    states: Callable[[np.random.Generator, int], np.ndarray],
    rows: Callable[[np.random.Generator, np.ndarray], np.ndarray],
) -> Cell:
    """One sequence of 1,000 steps; ``rows`` given the states."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        return rows(rng, states(rng, 1000)).astype(float)[:, None]

    return truth, draw


def hanging_together(rng: np.random.Generator, s: np.ndarray) -> np.ndarray:
    noise = rng.standard_normal(len(s))
    for t in range(1, len(s)):
        noise[t] = 0.5 * noise[t - 1] + np.sqrt(0.75) * noise[t]
    return LEVELS[s] + noise


CHAINS: dict[str, tuple[Cell, Any]] = {
    "chain, normal": (
        chain(3, visited, lambda rng, s: LEVELS[s] + rng.standard_normal(len(s))),
        Normal(),
    ),
    "chain, Poisson": (chain(3, visited, lambda rng, s: rng.poisson(RATES[s])), Poisson()),
    "chain, NB, size 4": (
        chain(3, visited, lambda rng, s: rng.poisson(rng.gamma(4, RATES[s] / 4))),
        Poisson(),
    ),
    "chain, t4": (
        chain(3, visited, lambda rng, s: LEVELS[s] + rng.standard_t(4, size=len(s))),
        Normal(),
    ),
    "chain, log-normal": (
        chain(3, visited, lambda rng, s: LEVELS[s] + np.exp(0.8 * rng.standard_normal(len(s)))),
        Normal(),
    ),
    "chain, rows hang together": (chain(3, visited, hanging_together), Normal()),
    "chain, visits of even length": (
        chain(2, in_turn, lambda rng, s: LEVELS[s] + rng.standard_normal(len(s))),
        Normal(),
    ),
    "chain, one state": (
        chain(
            1, lambda rng, steps: np.zeros(steps, int), lambda rng, s: rng.standard_normal(len(s))
        ),
        Normal(),
    ),
}

# ---------------------------------------------------------------- designs of hidden options

NUM_STATES, NUM_ACTIONS, STEPS = 5, 3, 80
Walks = Callable[[np.random.Generator], np.ndarray]


def walks(
    num_options: int,
    num_sequences: int = 20,
    stay: float = 0.92,
    visit: tuple[int, int] | None = None,
    memory: float = 0.0,
    every_state: bool = True,
) -> tuple[int, Walks]:
    """Sequences of states and actions (B, T, 2), policies and environment drawn anew.

    Args:
        num_options: of the truth; num_sequences: B.
        stay: chance of keeping an option; ``visit``: least and most steps of a visit instead,
            equally likely.
        memory: share of a policy that looks at the action before; every_state: whether options are
            left in every state, or in the first two alone.
    """

    def draw(rng: np.random.Generator) -> np.ndarray:
        low = rng.dirichlet(np.full(NUM_ACTIONS, 0.4), size=(num_options, NUM_STATES))
        after = rng.dirichlet(np.full(NUM_ACTIONS, 0.4), size=(NUM_ACTIONS + 1, NUM_STATES))
        moves = (
            0.9 * rng.dirichlet(np.full(NUM_STATES, 0.6), size=(NUM_ACTIONS, NUM_STATES))
            + 0.1 / NUM_STATES
        )
        out = np.empty((num_sequences, STEPS, 2), dtype=np.int64)
        for row in out:
            state, option, action = (
                int(rng.integers(NUM_STATES)),
                int(rng.integers(num_options)),
                NUM_ACTIONS,
            )
            left = int(rng.integers(1, visit[1] + 1)) if visit else 0
            for t in range(STEPS):
                left -= 1
                leaves = (
                    left < 0
                    if visit
                    else t > 0 and (every_state or state < 2) and rng.random() > stay
                )
                if leaves and num_options > 1:
                    option = (option + int(rng.integers(1, num_options))) % num_options
                if leaves and visit:
                    left = int(rng.integers(visit[0], visit[1] + 1)) - 1
                action = int(
                    rng.choice(
                        NUM_ACTIONS,
                        p=(1 - memory) * low[option, state] + memory * after[action, state],
                    )
                )
                row[t] = state, action
                state = int(rng.choice(NUM_STATES, p=moves[action, state]))
        return out

    return num_options, draw


OPTIONS: dict[str, tuple[int, Walks]] = {
    "options, one": walks(1),
    "options, two": walks(2),
    "options, three": walks(3, 30),
    "options, four": walks(4, 40),
    "options, two, left in two states": walks(2, stay=0.8, every_state=False),
    "options, two, visits of 12 to 20 steps": walks(2, visit=(12, 20)),
    "options, one, with memory": walks(1, memory=0.5),
    "options, two, with memory": walks(2, memory=0.5),
}

# ---------------------------------------------------------------- the comparison

Said = tuple[int, bool | None]  # number; whether it was said to be sure


def smallest(rows: Any, column: str, distribution: str | None = None) -> int:
    """The number at which a column is smallest, over all distributions or one."""
    own = rows if distribution is None else rows[[one == distribution for one, _ in rows.index]]
    return int(own[column].idxmin()[1])


def factorization(
    name: str, seed: int, args: argparse.Namespace
) -> tuple[int, dict[str, Said], tuple[str, str]]:
    truth, draw = FACTORIZATIONS[name]
    x = draw(np.random.default_rng(seed))
    grid = range(1, min(truth + BEYOND, *x.shape) + 1)
    found = select_components(PoissonFactorization, x, grid, num_restarts=args.restarts, seed=seed)
    rows = found.table
    first = {k: one for (distribution, k), one in found.fits.items() if distribution == "Poisson"}
    step = acdc(first, x, seed=seed).select()
    said: dict[str, Said] = {
        "rule": (found.num_components, found.word == "confident"),
        "clear step": (step.num_components, step.finished),
        "strict": (smallest(rows, "strict"), None),
        "lenient": (smallest(rows, "lenient"), None),
        "lenient, first distribution": (smallest(rows, "lenient", "Poisson"), None),
        "BIC, first distribution": (
            min(
                first,
                key=lambda k: (
                    -2 * first[k].log_likelihood + k * (sum(x.shape) - 1) * np.log(len(x))
                ),
            ),
            None,
        ),
        "AIC": (min(found.fits, key=lambda key: aic(found.fits[key]))[1], None),
        "parallel analysis": (parallel_analysis(x).chosen, None),
        "held-out": (
            max(
                first,
                key=lambda k: held_out_log_likelihood(
                    lambda n: PoissonFactorization(x.shape[1], n), x, k, 0.15, 1, seed
                ),
            ),
            None,
        ),
        "stability": (
            max(
                reproducibility(
                    {k: one for k, one in first.items() if 2 * k <= len(x)}, x, 1, 1, seed
                ).numbers()
            ),
            None,
        ),
    }
    return truth, said, (found.word, found.distribution)


def of_groups(
    name: str, seed: int, args: argparse.Namespace
) -> tuple[int, dict[str, Said], tuple[str, str]]:
    """A mixture, or a hidden chain."""
    (truth, draw), component = MIXTURES[name] if name in MIXTURES else CHAINS[name]
    x = draw(np.random.default_rng(seed))
    x = x.reshape(len(x), -1)
    model = (
        Mixture(1, component, x.shape[1])
        if name in MIXTURES
        else HiddenMarkov(1, component, x.shape[1])
    )
    found = select_components(
        model, x, range(1, truth + BEYOND + 1), num_restarts=args.restarts, seed=seed
    )
    rows, distribution = found.table, next(iter(found.fits))[0]
    step = acdc(
        {k: one for (own, k), one in found.fits.items() if own == distribution}, x, seed=seed
    ).select()
    said: dict[str, Said] = {
        "rule": (found.num_components, found.word == "confident"),
        "clear step": (step.num_components, step.finished),
        "BIC, first distribution": (smallest(rows, "bic", distribution), None),
        "BIC": (smallest(rows, "bic"), None),
        "ICL": (smallest(rows, "icl"), None),
        "AIC": (min(found.fits, key=lambda key: aic(found.fits[key]))[1], None),
        "groups": (found.groups.num_separated, None),
    }
    if name in MIXTURES:
        kept = np.random.default_rng(seed).random(len(x)) >= 0.2
        parts = {
            k: fit(replace(model, num_components=k), x[kept], SHORT, num_restarts=3, seed=seed)
            for k in range(1, truth + BEYOND + 1)
        }
        said["held-out"] = (
            max(parts, key=lambda k: float(parts[k].log_likelihood_rows(x[~kept]).sum())),
            None,
        )
    return truth, said, (found.word, found.distribution)


def of_options(
    name: str, seed: int, args: argparse.Namespace
) -> tuple[int, dict[str, Said], tuple[str, str]]:
    truth, draw = OPTIONS[name]
    x = torch.from_numpy(draw(np.random.default_rng(seed)))
    found = select_components(
        OptionsHMM(NUM_STATES, NUM_ACTIONS, 1),
        x,
        range(1, truth + 3),
        num_restarts=args.restarts,
        seed=seed,
    )
    by_number = {k: one for (_, k), one in found.fits.items()}
    step = acdc(by_number, x, seed=seed).select()
    said: dict[str, Said] = {
        "rule": (found.num_components, found.word == "confident"),
        "clear step": (step.num_components, step.finished),
        "BIC": (smallest(found.table, "bic"), None),
        "AIC": (min(by_number, key=lambda k: aic(by_number[k])), None),
        "held-out": (found.held_out or 0, None),
    }
    return truth, said, (found.word, found.distribution)


TABLES = {
    "factorization": (FACTORIZATIONS, factorization),
    "mixture": (MIXTURES, of_groups),
    "chain": (CHAINS, of_groups),
    "options": (OPTIONS, of_options),
}


def cells(args: argparse.Namespace) -> Iterator[tuple[str, Callable[..., Any]]]:
    known = {
        name: one
        for group, (names, one) in TABLES.items()
        if args.group in (group, "all")
        for name in names
    }
    if args.cells and set(args.cells) - set(known):
        raise SystemExit(f"--cells: some of {list(known)} were expected, got {args.cells}")
    yield from ((name, one) for name, one in known.items() if not args.cells or name in args.cells)


def measure(args: argparse.Namespace) -> Lines:
    for name, one in cells(args):
        if args.list:
            yield {"cell": name}
            continue
        said: defaultdict[str, list[Said]] = defaultdict(list)
        words, distributions, truth, began = Counter[str](), Counter[str](), 0, time.process_time()
        for seed in seeds(args):
            try:
                truth, answers, (word, distribution) = one(name, seed, args)
            except FileNotFoundError as missing:
                yield {"cell": name, "skipped": str(missing)}
                break
            words[word] += 1
            distributions[distribution] += 1
            for criterion, answer in answers.items():
                said[criterion].append(answer)
        else:
            yield {
                "cell": name,
                "truth": truth,
                "seeds": [args.first_seed, args.first_seed + args.replicates - 1],
                "words": dict(words),
                "distributions": dict(distributions),
                "cpu_seconds": round(time.process_time() - began, 1),
                **{criterion: shares(answers, truth) for criterion, answers in said.items()},
            }


def shares(answers: Sequence[Said], truth: int) -> dict[str, Any]:
    right = [number == truth for number, _ in answers]
    sure = [bool(word) for _, word in answers]
    spoken = answers[0][1] is not None
    return {
        "right": round(float(np.mean(right)), 3),
        "right_confident": (
            round(float(np.mean([r and s for r, s in zip(right, sure, strict=True)])), 3)
            if spoken
            else None
        ),
        "wrong_confident": (
            round(float(np.mean([s and not r for r, s in zip(right, sure, strict=True)])), 3)
            if spoken
            else None
        ),
        "numbers": [number for number, _ in answers],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20)
    parser.set_defaults(first_seed=20_000)
    parser.add_argument("--group", choices=(*TABLES, "all"), default="all", help="which table")
    parser.add_argument("--cells", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument(
        "--restarts",
        type=int,
        default=10,
        metavar="N",
        help="random starts of each fit of the first distribution",
    )
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    run(
        parser,
        measure,
        argv,
        quick={
            "replicates": 1,
            "restarts": 2,
            "cells": ["two scales at one centre", "Poisson 80 x 40, one"],
        },
    )


if __name__ == "__main__":
    main()

"""The first call that a newcomer types on a file as R, pandas, SPSS or SigProfiler writes it.

Sixteen tasks of a psychometrician, a biologist, a social scientist, a behaviour scientist and a
user of Pyro, each with data of a known truth: what was typed, whether it went through, seconds
without the import, and a figure that is compared with what the truth itself reaches on the same
rows (the posterior under the true parameters, the true signatures, a regression on true classes).

Run: ``python benchmarks/first_calls.py [--only hmm] [--first-seed 0]``. A few seconds a task.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from _bench import Lines, command_line, run
from scipy import stats
from scipy.optimize import linear_sum_assignment
from typer.testing import CliRunner

from inference import NUTS, fit
from inference.cli.main import app
from ppl_models import HiddenMarkov, Mixture, PoissonFactorization

Q = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]] * 3)
BASES = "ACGT"
TYPES = [
    f"{left}[{change}]{right}"
    for change in ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
    for left, right in itertools.product(BASES, BASES)
]
Judged = dict[str, float]  # "found" against "truth", and "right"


def agreement(found: Any, true: Any) -> float:
    """Share of rows in the true class, under the best names of the found ones."""
    table = pd.crosstab(np.asarray(found), np.asarray(true)).to_numpy()
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(found))


def close(found: float, truth: float, within: float = 0.03) -> Judged:
    """Share of right rows, against that of the truth itself."""
    return {"found": round(found, 3), "truth": round(truth, 3), "right": found > truth - within}


def rows_of(folder: Path) -> pd.DataFrame:
    """Answers of the rows as the command wrote them."""
    return pd.read_csv(folder / "out" / "posterior.csv")


def best_class(log_densities: np.ndarray) -> np.ndarray:
    """Most probable class (N,) of log joint densities (N, K)."""
    return log_densities.argmax(1)


def bits_chance(x: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Log-probabilities of rows of bits (N, J) under classes (K, J)."""
    return x @ np.log(chances).T + (1 - x) @ np.log1p(-chances).T


# ---------------------------------------------------------------- psychometrician


def answers_of_test(rng: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Answers (N, J) of a DINA test, skills (N, 2) and what the truth says of the skills."""
    profiles = np.array(list(itertools.product((0, 1), repeat=2)))
    place = rng.choice(4, num, p=[0.3, 0.2, 0.2, 0.3])
    able = (profiles @ Q.T == Q.sum(1)).astype(float)
    chances = 0.15 + 0.7 * able  # (4, J)
    x = (rng.random((num, len(Q))) < chances[place]).astype(float)
    posterior = np.exp(bits_chance(x, chances)) * [0.3, 0.2, 0.2, 0.3]
    return x, profiles[place], profiles[best_class(posterior)]


def r_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as R's write.csv does: row names from 1 under no name, texts in quotes, NA."""
    frame.set_axis(range(1, len(frame) + 1)).to_csv(path, na_rep="NA", quoting=2)


def diagnosis(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    x, skills, oracle = answers_of_test(rng, 600)
    names = [f"I{j + 1}" for j in range(len(Q))]
    r_table(pd.DataFrame(x.astype(int), columns=names), folder / "answers.csv")
    pd.DataFrame(Q, names, ["add", "carry"]).to_csv(folder / "q.csv", quoting=2)

    def judge() -> Judged:
        rows = rows_of(folder)
        found = rows[["attributes[add]", "attributes[carry]"]].to_numpy()
        assert list(rows.iloc[:3, 0]) == [1, 2, 3]
        return close((found == skills).mean(), (oracle == skills).mean())

    return "fit attributes answers.csv --q q.csv --out out", judge


def long_answers(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    x, skills, oracle = answers_of_test(rng, 400)
    names = [f"I{j + 1:02d}" for j in range(len(Q))]
    wide = pd.DataFrame(x.astype(int), columns=names)
    long = wide.assign(person=[f"P{i:03d}" for i in range(len(x))]).melt(
        "person", var_name="item", value_name="correct"
    )
    long.sample(frac=0.97, random_state=1).to_csv(folder / "long.csv", index=False)
    pd.DataFrame(Q, names, ["add", "carry"]).to_csv(folder / "q.csv")

    def judge() -> Judged:
        rows = rows_of(folder).set_index("person").loc[[f"P{i:03d}" for i in range(len(x))]]
        found = rows[["attributes[add]", "attributes[carry]"]].to_numpy()
        return close((found == skills).mean(), (oracle == skills).mean())

    return "fit attributes long.csv --q q.csv --out out", judge


def spss_codes(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    chances = np.array([[0.9] * 8, [0.2] * 8])
    place = rng.choice(2, 500, p=[0.4, 0.6])
    x = (rng.random((500, 8)) < chances[place]).astype(float)
    codes = np.where(rng.random(x.shape) < 0.05, np.nan, x + 1)
    table = pd.DataFrame(codes, columns=[f"v{j}" for j in range(1, 9)])
    table.insert(0, "caseid", rng.permutation(np.arange(10_001, 10_501)))
    table.to_csv(folder / "survey.csv", index=False, float_format="%.0f", na_rep="")
    truth = best_class(bits_chance(x, chances) + np.log([0.4, 0.6]))

    def judge() -> Judged:
        return close(
            agreement(rows_of(folder)["assignments"], place), agreement(truth, place), 0.04
        )

    return "fit mixture survey.csv --components 2 --id caseid --out out", judge


def likert(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    cuts = np.array([-1.5, -0.5, 0.5, 1.5])
    place = rng.choice(2, 500)
    score = 3.0 * place[:, None] - 1.5 + rng.logistic(size=(500, 7))
    x = 1 + (score[..., None] > cuts).sum(-1)
    pd.DataFrame(x, columns=[f"E{j}" for j in range(1, 8)]).to_csv(folder / "likert.csv")
    ends = np.r_[-np.inf, cuts, np.inf]
    logs = [
        np.log(np.diff(stats.logistic.cdf(ends[:, None], loc=mean).ravel()))[x - 1].sum(1)
        for mean in (-1.5, 1.5)
    ]

    def judge() -> Judged:
        found = agreement(rows_of(folder)["assignments"], place)
        return close(found, agreement(np.argmax(logs, 0), place))

    return "fit mixture likert.csv --components 2 --out out", judge


def countries(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    x, skills, oracle = answers_of_test(rng, 600)
    names = [f"I{j + 1}" for j in range(len(Q))]
    table = pd.DataFrame(x.astype(int), columns=names)
    table.insert(0, "country", rng.choice(["AT", "DE"], len(x)))
    r_table(table, folder / "answers.csv")
    pd.DataFrame(Q, names, ["add", "carry"]).to_csv(folder / "q.csv")

    def judge() -> Judged:
        found = rows_of(folder)[["attributes[add]", "attributes[carry]"]].to_numpy()
        return close((found == skills).mean(), (oracle == skills).mean())

    return "fit attributes answers.csv --q q.csv --groups country --out out", judge


# ---------------------------------------------------------------- biologist


def mutations(rng: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (N, 96) and signatures (3, 96)."""
    signatures = rng.dirichlet(np.full(96, 0.1), 3)
    return rng.poisson(rng.gamma(1.0, 800.0, (num, 3)) @ signatures), signatures


def cosines(found: np.ndarray, true: np.ndarray) -> Judged:
    """Smallest cosine of the true signatures with the found ones, in the best order."""
    norm = lambda a: a / np.linalg.norm(a, axis=1, keepdims=True)  # noqa: E731
    table = norm(true) @ norm(found).T
    rows, columns = linear_sum_assignment(-table)
    least = float(table[rows, columns].min())
    return {"found": round(least, 4), "truth": 1.0, "right": least > 0.98}


def sigprofiler(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    counts, signatures = mutations(rng, 60)
    frame = pd.DataFrame(counts.T, TYPES, [f"S{i}" for i in range(60)])
    frame.to_csv(folder / "SBS96.all", sep="\t", index_label="MutationType")
    (folder / "SBS96.all").rename(folder / "SBS96.txt")

    def judge() -> Judged:
        table = pd.read_csv(folder / "out" / "signatures.csv", index_col=0)
        assert list(table.index) == TYPES
        assert list(rows_of(folder).iloc[:2, 0]) == ["S0", "S1"]
        return cosines(table.to_numpy().T, signatures)

    return "fit pmf SBS96.txt --components 3 --out out", judge


def how_many(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    counts, _ = mutations(rng, 60)
    frame = pd.DataFrame(counts.T, TYPES, [f"S{i}" for i in range(60)])
    frame.to_csv(folder / "SBS96.txt", sep="\t", index_label="MutationType")

    def judge() -> Judged:
        chosen = pd.read_json(folder / "out" / "selection.json", typ="series")["chosen"]
        return {"found": chosen, "truth": 3, "right": chosen == 3}

    return "select pmf SBS96.txt --components 1:5 --out out", judge


def expression(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    place = rng.choice(3, 120)
    means = rng.normal(7, 1.5, (3, 12))
    x = means[place] + rng.normal(size=(120, 12))
    table = pd.DataFrame(x.T, [f"GENE{j}" for j in range(12)], [f"cell_{i}" for i in range(120)])
    table.to_csv(folder / "expression.csv")
    logs = np.stack([stats.norm.logpdf(x, mean).sum(1) for mean in means], 1)

    def judge() -> Judged:
        rows = rows_of(folder)
        assert list(rows.iloc[:2, 0]) == ["cell_0", "cell_1"]
        return close(agreement(rows["assignments"], place), agreement(best_class(logs), place))

    return "fit mixture expression.csv --transpose --components 3 --out out", judge


def species(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    chances = rng.choice([0.1, 0.8], (2, 15))
    place = rng.choice(2, 250)
    x = (rng.random((250, 15)) < chances[place]).astype(float)
    table = pd.DataFrame(x > 0, [f"site {i}" for i in range(250)], [f"sp{j}" for j in range(15)])
    table.to_csv(folder / "species.csv", index_label="site")
    truth = best_class(bits_chance(x, chances))

    def judge() -> Judged:
        return close(agreement(rows_of(folder)["assignments"], place), agreement(truth, place))

    return "fit mixture species.csv --components 2 --out out", judge


# ---------------------------------------------------------------- social scientist


def households(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """A table of every kind of column, the class of each row, and what the truth says of it."""
    place = rng.choice(2, 600, p=[0.5, 0.5])
    age = np.where(place, 60, 35) + 8 * rng.normal(size=600)
    visits = rng.poisson(np.where(place, 5.0, 1.0))
    smokes = rng.random(600) < np.where(place, 0.2, 0.5)
    regions = np.array(["north", "south", "west"])
    chances = np.array([[0.6, 0.2, 0.2], [0.2, 0.2, 0.6]])
    region = np.array([rng.choice(3, p=chances[k]) for k in place])
    logs = np.stack(
        [
            stats.norm.logpdf(age, mean, 8)
            + stats.poisson.logpmf(visits, rate)
            + np.where(smokes, np.log(p), np.log1p(-p))
            + np.log(share[region])
            for mean, rate, p, share in zip((35, 60), (1, 5), (0.5, 0.2), chances, strict=True)
        ],
        1,
    )
    table = pd.DataFrame(
        {
            "age": age.round(1),
            "visits": visits.astype(float),
            "smokes": np.where(smokes, "yes", "no"),
            "region": regions[region],
        }
    )
    for name in ("age", "visits", "region"):
        table.loc[rng.choice(600, 15, replace=False), name] = None
    return table, place, best_class(logs)


def mixed(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    table, place, truth = households(rng)
    r_table(table, folder / "survey.csv")

    def judge() -> Judged:
        return close(agreement(rows_of(folder)["assignments"], place), agreement(truth, place))

    return "fit mixture survey.csv --components 2 --out out", judge


def covariates(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    age = rng.normal(size=800)
    place = (rng.random(800) < 1 / (1 + np.exp(-1.0 * age))).astype(int)
    chances = np.array([[0.1] * 8, [0.9] * 8])
    x = (rng.random((800, 8)) < chances[place]).astype(int)
    table = pd.DataFrame(x, columns=[f"q{j}" for j in range(1, 9)])
    r_table(table.assign(age=age.round(3)), folder / "survey.csv")

    def judge() -> Judged:
        from sklearn.linear_model import LogisticRegression

        from inference import Fit

        found = Fit.load(folder / "out" / "fit")
        slope = abs(float(found.frames["coefficients"].to_numpy().ravel()[-1]))
        alone = LogisticRegression(C=np.inf).fit(age[:, None], place).coef_[0, 0]
        return {
            "found": round(slope, 3),
            "truth": round(alone, 3),
            "right": abs(slope - alone) < 0.1,
        }

    return "fit mixture survey.csv --components 2 --covariates age --out out", judge


# ---------------------------------------------------------------- behaviour scientist


def walks(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Steps of eight animals, and the state of each."""
    keep, states, frames = 0.92, [], []
    for animal in range(8):
        state, own = int(rng.integers(2)), []
        for _ in range(150):
            own.append(state)
            state = state if rng.random() < keep else 1 - state
        speed = np.where(own, 4.0, 1.0) + 0.7 * rng.normal(size=150)
        turn = np.where(own, 0.0, 1.0) + 0.7 * rng.normal(size=150)
        frames.append(
            pd.DataFrame({"animal": f"a{animal}", "step": range(1, 151), "v": speed, "turn": turn})
        )
        states += own
    return pd.concat(frames), np.array(states)


def hmm(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    table, states = walks(rng)
    table.to_csv(folder / "tracks.csv", index=False)

    def judge() -> Judged:
        return close(agreement(rows_of(folder)["states"], states), 0.99)

    return "fit hmm tracks.csv --states 2 --out out", judge


def most_probable(chances: np.ndarray, keep: float) -> np.ndarray:
    """Most probable of two options at each step (T,), which is kept with a probability.

    Args:
        chances: of what is seen under each option, (T, 2); keep: the probability.
    """
    moves = np.array([[keep, 1 - keep], [1 - keep, keep]])
    forward, backward = np.full((len(chances), 2), 0.5), np.ones((len(chances), 2))
    for t in range(len(chances)):
        before = forward[0] if t == 0 else forward[t - 1] @ moves
        forward[t] = before * chances[t] / (before @ chances[t])
    for t in range(len(chances) - 2, -1, -1):
        backward[t] = moves @ (backward[t + 1] * chances[t + 1])
        backward[t] /= backward[t].sum()
    return (forward * backward).argmax(1)


def options(folder: Path, rng: np.random.Generator) -> tuple[str, Callable[[], Judged]]:
    """Walks with rests: without these, options of even and odd cells hardly have common names."""
    policies = np.array([[0.75, 0.2, 0.05], [0.05, 0.2, 0.75]])  # left, rest, right
    lines, truth, oracle = [], [], []
    for episode in range(120):
        option, cell, seen = int(rng.integers(2)), int(rng.integers(6)), []
        for step in range(40):
            action = int(rng.choice(3, p=policies[option]))
            lines.append((episode, step, f"cell{cell}", ("left", "rest", "right")[action]))
            truth.append(option)
            seen.append(policies[:, action])
            cell = min(5, max(0, cell + action - 1))
            option = option if rng.random() < 0.93 else 1 - option
        oracle += most_probable(np.array(seen), 0.93).tolist()
    names = ["sequence", "time", "state", "action"]
    pd.DataFrame(lines, columns=names).to_csv(folder / "walks.csv", index=False)

    def judge() -> Judged:
        rows = pd.read_csv(folder / "out" / "options.csv")
        return close(agreement(rows["option"], truth), agreement(oracle, truth), 0.06)

    return "fit options-hmm walks.csv --options 2 --out out", judge


# ---------------------------------------------------------------- Python


def own_program(folder: Path, rng: np.random.Generator) -> tuple[Any, Callable[[], Judged]]:
    x = torch.as_tensor(np.r_[rng.normal(-2, 1, 150), rng.normal(2, 1, 150)])
    found: list[Any] = []

    def program(data: torch.Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
        means = pyro.sample("means", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        with pyro.plate("rows", len(data)):
            k = pyro.sample("k", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(means[..., k], 1.0), obs=data)

    def call() -> None:
        found.append(fit(program, x))

    def judge() -> Judged:
        means = sorted(found[0].params["means"].tolist())
        error = max(abs(means[0] + 2), abs(means[1] - 2))
        return {"found": round(error, 3), "truth": 0.0, "right": error < 0.3}

    return call, judge


def python_tables(folder: Path, rng: np.random.Generator) -> tuple[Any, Callable[[], Judged]]:
    """Three plain calls on frames with columns of names, as they come."""
    table, place, truth = households(rng)
    steps, states = walks(rng)
    counts, signatures = mutations(rng, 40)
    found: list[Any] = []

    def call() -> None:
        found.append(fit(Mixture(2), table).predict(table))
        found.append(fit(HiddenMarkov(2), steps).posterior_frame(steps)["states"])
        frame = pd.DataFrame(counts, columns=TYPES)
        frame.insert(0, "Sample", [f"S{i}" for i in range(40)])
        found.append(fit(PoissonFactorization(num_components=3), frame).params["signatures"])

    def judge() -> Judged:
        right = [
            close(agreement(found[0], place), agreement(truth, place))["right"],
            agreement(found[1], states) > 0.95,
            cosines(found[2].numpy(), signatures)["right"],
        ]
        return {"found": sum(right), "truth": 3, "right": all(right)}

    return call, judge


def draws(folder: Path, rng: np.random.Generator) -> tuple[Any, Callable[[], Judged]]:
    """Draws of one class of bits, whose posterior is a beta distribution but for the prior."""
    import arviz

    x = pd.DataFrame((rng.random((300, 3)) < [0.2, 0.5, 0.8]).astype(float), columns=list("abc"))
    found: list[Any] = []

    def call() -> None:
        result = fit(Mixture(1), x, NUTS(2, 300, 300))
        idata = result.to_arviz(x)
        found.append((idata, arviz.loo(idata)))

    def judge() -> Judged:
        chance = found[0][0]["posterior"]["probability"].mean(("chain", "draw")).values.ravel()
        error = float(abs(chance - (x.sum() + 0.5) / 301).max())
        return {"found": round(error, 4), "truth": 0.0, "right": error < 0.01}

    return call, judge


TASKS = [
    diagnosis, long_answers, spss_codes, likert, countries, sigprofiler, how_many, expression,
    species, mixed, covariates, hmm, options, own_program, python_tables, draws,
]  # fmt: skip


def measure(args: argparse.Namespace) -> Lines:
    runner = CliRunner()
    for task in TASKS:
        if args.only and args.only != task.__name__:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            call, judge = task(folder, np.random.default_rng(args.first_seed))
            began, said = time.perf_counter(), ""
            if isinstance(call, str):
                words = [
                    str(folder / word) if word == "out" or "." in word else word
                    for word in shlex.split(call)
                ]
                answer = runner.invoke(app, [*words, "--no-progress"])
                said = answer.output[-400:] if answer.exit_code else ""
            else:
                try:
                    call()
                except ValueError as error:
                    said = str(error)[:400]
            seconds = round(time.perf_counter() - began, 1)
            typed = call if isinstance(call, str) else task.__doc__ or task.__name__
            line = {"task": task.__name__, "typed": typed, "seconds": seconds, "refused": said}
            yield line | ({} if said else {name: float(value) for name, value in judge().items()})


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--first-seed", type=int, default=0, metavar="SEED", help="of the data")
    parser.add_argument("--only", metavar="TASK", help="one task alone, by its name")
    run(parser, measure, argv)


if __name__ == "__main__":
    main()

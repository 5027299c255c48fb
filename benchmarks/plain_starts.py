"""Does the plain call find the best known optimum? ``fit(model, x)``, no method and no number of
starts, on fresh seeds.

Data of K = 3, 4, 5 components of moderate separation: yes-or-no answers (latent classes), normal
items, counts, multivariate normals, and a user's own program of a mixture. Harder ones: full and
skew normals that overlap, K components fitted to data of one ("flat", "flat answers"), hidden
Markov chains of normals and of letters, DINA, encoders of two layers with a given graph, options of
finite and of continuous states. The best known optimum is the best of ``--long`` starts run to the
end, half random, and of the run from the truth, among the solutions that are no spikes, empty
components or copies. Each line says which share of the seeds reached it (within a millionth of its
value, or above it), the iterations of EM over all starts (an iteration is one E-step), the seconds
of a plain call, and how often the call said that it was unsure. ``plain_starts.jsonl`` beside it:
twenty seeds a kind, 300 rows, 100 long starts (60 for encoders and chains), on a busy machine, so
that its seconds say little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from _bench import command_line, run, seeds, values_of
from pyro.ops.indexing import Vindex
from torch import Tensor

from inference import EM, Fit, fit
from ppl_models import (
    Bernoulli,
    Categorical,
    ContinuousOptionsHMM,
    DeepDiscreteEncoder,
    HiddenMarkov,
    LatentAttributeModel,
    LogNormal,
    Mixture,
    MultivariateNormal,
    Normal,
    OptionsHMM,
    Poisson,
    SkewNormal,
)

F64 = torch.float64
REACHED = 1e-6  # relative


class OwnMixture:
    """Classes of yes-or-no answers, as a user writes them."""

    def __init__(self, num_components: int) -> None:
        self.num_components = num_components

    def __call__(self, data: Tensor) -> None:
        k, j = self.num_components, data.shape[1]
        weights = pyro.sample("weights", dist.Dirichlet(torch.full((k,), 1.5, dtype=F64)))
        chances = pyro.sample(
            "chances", dist.Beta(torch.full((k, j), 1.5, dtype=F64), 1.5).to_event(2)
        )
        with pyro.plate("rows", len(data)):
            group = pyro.sample("group", dist.Categorical(weights))
            pyro.sample(
                "answers", dist.Bernoulli(Vindex(chances)[..., group, :]).to_event(1), obs=data
            )


def answers(k: int, z: Tensor, draw: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Ten answers, each yes with .2 or .8 a class; classes differ in three answers or more."""
    while True:
        chances = torch.where(torch.rand(k, 10, generator=draw, dtype=F64) < 0.5, 0.2, 0.8).to(F64)
        if k == 1 or float(torch.pdist(chances, 0).min()) >= 3:
            return torch.bernoulli(chances[z], generator=draw), {
                "chances": chances,
                "predictors": chances.logit(),
            }


def centres(k: int, j: int, gap: float, draw: torch.Generator) -> Tensor:
    """K points, the nearest two ``gap`` apart."""
    points = torch.randn(k, j, generator=draw, dtype=F64)
    return gap * points / torch.pdist(points).min()


def make(
    kind: str, k: int, num_rows: int, seed: int
) -> tuple[Callable[..., Any], Tensor, dict[str, Tensor]]:
    """Model, data and truth."""
    draw = torch.Generator().manual_seed(10_000 * k + seed)
    weights = torch.linspace(1.5, 1.0, k, dtype=F64)
    weights = weights / weights.sum()
    z = torch.multinomial(weights, num_rows, replacement=True, generator=draw)
    if kind in HARDER:
        return *HARDER[kind](k, num_rows, draw), {}
    if kind in ("Bernoulli", "program"):
        x, truth = answers(k, z, draw)
        names = ("predictors",) if kind == "Bernoulli" else ("chances",)
        model: Any = Mixture(k, Bernoulli(), 10) if kind == "Bernoulli" else OwnMixture(k)
        return model, x, {"weights": weights, **{name: truth[name] for name in names}}
    if kind == "Normal":
        means, sd = (
            centres(k, 3, 3.0, draw),
            0.7 + 0.6 * torch.rand(k, 3, generator=draw, dtype=F64),
        )
        x = means[z] + sd[z] * torch.randn(num_rows, 3, generator=draw, dtype=F64)
        return (
            Mixture(k, Normal(), 3),
            x,
            {"weights": weights, "predictors": means, "dispersion": sd.square()},
        )
    if kind == "Poisson":
        rates = (1.0 + centres(k, 4, 1.2, draw).clamp(-2.0, 2.0)).exp()
        return (
            Mixture(k, Poisson(), 4),
            torch.poisson(rates[z], generator=draw),
            {"weights": weights, "predictors": rates.log()},
        )
    means = centres(k, 3, 3.0, draw)
    factor = torch.linalg.qr(torch.randn(k, 3, 3, generator=draw, dtype=F64))[0] * (
        0.5 + torch.rand(k, 1, 3, generator=draw, dtype=F64)
    )
    x = means[z] + (factor[z] @ torch.randn(num_rows, 3, 1, generator=draw, dtype=F64))[..., 0]
    return (
        Mixture(k, MultivariateNormal(), 3),
        x,
        {"weights": weights, "means": means, "precisions": torch.linalg.inv(factor @ factor.mT)},
    )


def flat(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    x = torch.randn(num_rows, 4, generator=draw, dtype=F64)
    return Mixture(k, MultivariateNormal(), 4), x


def flat_answers(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    return Mixture(k, Bernoulli(), 4), (torch.rand(num_rows, 4, generator=draw) < 0.5).to(F64)


def overlapping(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    z = torch.randint(k, (num_rows,), generator=draw)
    x = centres(k, 4, 2.0, draw)[z] + torch.randn(num_rows, 4, generator=draw, dtype=F64)
    return Mixture(k, MultivariateNormal(), 4), x


def skew(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    z = torch.randint(k, (num_rows,), generator=draw)
    lean = torch.randn(k, 2, generator=draw, dtype=F64)
    noise = torch.randn(num_rows, 2, generator=draw, dtype=F64)
    half = torch.randn(num_rows, 1, generator=draw, dtype=F64).abs()
    return Mixture(k, SkewNormal(), 2), centres(k, 2, 4.0, draw)[z] + 2 * half * lean[z] + noise


def chain(k: int, num_rows: int, draw: torch.Generator) -> Tensor:
    """States of twenty chains that stay with chance .8, (20, T)."""
    states = [torch.randint(k, (20,), generator=draw)]
    for _ in range(num_rows // 20 - 1):
        moves = torch.rand(20, generator=draw) < 0.2
        other = torch.randint(k, (20,), generator=draw)
        states.append(torch.where(moves, other, states[-1]))
    return torch.stack(states, 1)


def chain_of_normals(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    z = chain(k, num_rows, draw)
    noise = torch.randn(*z.shape, 2, generator=draw, dtype=F64)
    return HiddenMarkov(k, Normal(), 2), centres(k, 2, 2.0, draw)[z] + noise


def chain_of_letters(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    z = chain(k, num_rows, draw)
    chances = torch.rand(k, 6, generator=draw, dtype=F64) ** 3
    drawn = torch.multinomial(chances[z.flatten()], 1, generator=draw)
    return HiddenMarkov(k, Categorical(6), 1), drawn.reshape(*z.shape, 1).to(F64)


def diagnosis(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    q = torch.cat([torch.eye(k), torch.eye(k), (torch.rand(10, k, generator=draw) < 0.5).float()])
    q[q.sum(1) == 0, 0] = 1
    mastered = (torch.rand(num_rows, k, generator=draw) < 0.5).float()
    ideal = (mastered @ q.mT) >= q.sum(1)
    chance = torch.where(ideal, 0.8, 0.25).to(F64)
    model = LatentAttributeModel(tuple(map(tuple, q.int().tolist())), items="dina")
    return model, torch.bernoulli(chance, generator=draw)


def encoder(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Tensor]:
    low = k // 2
    graph = torch.zeros(12, k, dtype=torch.long)
    for j in range(12):
        graph[j, j % low] = graph[j, low + (j // low) % (k - low)] = 1
    top = (torch.rand(num_rows, 1, generator=draw) < 0.6).to(F64)
    skills = (torch.rand(num_rows, k, generator=draw) < 0.2 + 0.6 * top).to(F64)
    loadings = graph * (0.5 + torch.rand(12, k, generator=draw, dtype=F64))
    speed = torch.randn(num_rows, 1, generator=draw, dtype=F64)
    noise = 0.6 * torch.randn(num_rows, 12, generator=draw, dtype=F64)
    graphs = (tuple(map(tuple, graph.tolist())), None)
    model = DeepDiscreteEncoder(12, (k, 1), LogNormal(), graphs=graphs)
    return model, torch.exp(skills @ loadings.mT + 0.7 * speed + noise)


def options(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Any]:
    """Four actions in five states, by options that are kept with chance .8."""
    z = chain(k, num_rows, draw)
    state = torch.randint(5, z.shape, generator=draw)
    chances = torch.rand(k, 5, 4, generator=draw, dtype=F64) ** 3
    action = torch.multinomial(chances[z, state].flatten(0, 1), 1, generator=draw).view(z.shape)
    return OptionsHMM(5, 4, k), {"state": state, "action": action}


def continuous_options(k: int, num_rows: int, draw: torch.Generator) -> tuple[Any, Any]:
    """The same along two wandering features, log-odds of actions linear in them."""
    z = chain(k, num_rows, draw)
    state = torch.sin(0.3 * torch.randn(*z.shape, 2, generator=draw, dtype=F64).cumsum(1))
    weights = 3.0 * torch.randn(k, 4, 2, generator=draw, dtype=F64)
    offsets = torch.randn(k, 4, generator=draw, dtype=F64)
    odds = (weights[z] @ state.unsqueeze(-1)).squeeze(-1) + offsets[z]
    chances = odds.softmax(-1).flatten(0, 1)
    action = torch.multinomial(chances, 1, generator=draw).view(z.shape)
    return ContinuousOptionsHMM(2, 4, k), {"state": state, "action": action}


HARDER: dict[str, Callable[[int, int, torch.Generator], tuple[Any, Tensor]]] = {
    "overlapping": overlapping,
    "skew": skew,
    "flat": flat,
    "flat_answers": flat_answers,
    "chain_of_normals": chain_of_normals,
    "chain_of_letters": chain_of_letters,
    "diagnosis": diagnosis,
    "encoder": encoder,
    "options": options,
    "continuous_options": continuous_options,
}


def sound(result: Fit) -> float:
    """The objective, minus infinity where the solution is degenerate."""
    return -torch.inf if result.restarts.faults else result.objective


def replicate(
    kind: str, k: int, num_rows: int, num_long: int, seed: int, known: float | None
) -> dict[str, Any]:
    """One plain call, beside the best known optimum, which is looked for where it is None."""
    model, x, truth = make(kind, k, num_rows, seed)
    began = time.process_time()
    plain = fit(model, x, seed=seed)
    seconds = time.process_time() - began
    if known is None:
        tried = [
            fit(model, x, EM(), init=init, num_restarts=max(1, num_long // 2), seed=seed + 500_000)
            for init in ("random", "spectral")
        ]
        if truth:
            tried.append(fit(model, x, EM(), init=truth))
        known = max(map(sound, tried))
    best = max(known, sound(plain))
    gap = best - sound(plain)
    return {
        "reached": bool(gap <= REACHED * abs(best)),
        "above": bool(best - known > REACHED * abs(best)),
        "gap": gap,
        "objective": sound(plain),
        "best_known": best,
        "starts": plain.restarts.num_tried or 1,
        "iterations": int(plain.restarts.num_iterations.sum()),
        "seconds": seconds,
        "unsure": any(
            "not replicated" in text or "no proper optimum" in text for text in plain.warnings
        ),
    }


def measure(args: Any) -> Iterator[dict[str, Any]]:
    """One line a kind and number of components."""
    known = {}
    if args.known:
        lines = map(json.loads, args.known.read_text().splitlines())
        known = {(line["kind"], line["components"], line["rows"]): line for line in lines}
    for kind in args.kinds:
        for k in args.components:
            before = known.get((kind, k, args.rows), {}).get("best_known", [None] * args.replicates)
            num_long = max(1, args.long // 10) if kind == "program" else args.long
            lines = values_of(
                args,
                replicate,
                [
                    {
                        "kind": kind,
                        "k": k,
                        "num_rows": args.rows,
                        "num_long": num_long,
                        "seed": seed,
                        "known": best,
                    }
                    for seed, best in zip(seeds(args), before, strict=True)
                ],
            )
            share = sum(line["reached"] for line in lines) / len(lines)
            middle = {
                name: sorted(line[name] for line in lines)[len(lines) // 2]
                for name in ("starts", "iterations", "seconds")
            }
            yield {
                "kind": kind,
                "components": k,
                "rows": args.rows,
                "seeds": len(lines),
                "reached": round(share, 3),
                "above": sum(line["above"] for line in lines),
                "missed_and_said_so": sum(line["unsure"] for line in lines if not line["reached"]),
                "unsure": sum(line["unsure"] for line in lines),
                "largest_gap": round(max(line["gap"] for line in lines), 4),
                "median_starts": middle["starts"],
                "median_iterations": middle["iterations"],
                "objectives": [round(line["objective"], 4) for line in lines],
                "best_known": [round(line["best_known"], 4) for line in lines],
                "median_seconds": round(middle["seconds"], 2),
                "slowest_seconds": round(max(line["seconds"] for line in lines), 2),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1, jobs=True)
    parser.add_argument(
        "--kinds",
        nargs="+",
        default=["Bernoulli", "Normal", "Poisson", "MultivariateNormal", "program", *HARDER],
        help="of data",
    )
    parser.add_argument(
        "--components", nargs="+", type=int, default=[3, 4, 5], help="numbers of components"
    )
    parser.add_argument("--rows", type=int, default=500, help="of every data set")
    parser.add_argument(
        "--long",
        type=int,
        default=200,
        help="random starts of the best known optimum (a tenth of them for the program)",
    )
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="lines of an earlier run with these seeds and rows, whose best known optima count",
    )
    run(parser, measure, argv, quick={"replicates": 1, "components": [3], "rows": 120, "long": 10})


if __name__ == "__main__":
    main()

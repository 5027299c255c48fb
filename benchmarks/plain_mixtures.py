"""Does the plain call find the best known optimum? ``fit(Mixture(K, ...), x)``, no method and no
number of starts, on fresh seeds.

Data of K = 3, 4, 5 components of moderate separation: yes-or-no answers (latent classes), normal
items, counts, multivariate normals, and a user's own program of a mixture. The best known optimum
is the best of ``--long`` random starts run to the end and of the run from the truth, among the
solutions that are no spikes, empty components or copies. Each line says which share of the seeds
reached it (within a millionth of its value, or above it), the iterations of EM over all starts (an
iteration is one E-step), the seconds of a plain call, and how often the call said that it was
unsure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from _bench import command_line, run, seeds, values_of
from pyro.ops.indexing import Vindex
from torch import Tensor

from inference import EM, Fit, fit
from ppl_models import Bernoulli, Mixture, MultivariateNormal, Normal, Poisson

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


def sound(result: Fit) -> float:
    """The objective, minus infinity where the solution is degenerate."""
    return -torch.inf if result.restarts.faults else result.objective


def replicate(kind: str, k: int, num_rows: int, num_long: int, seed: int) -> dict[str, Any]:
    """One plain call, beside the best known optimum."""
    model, x, truth = make(kind, k, num_rows, seed)
    began = time.process_time()
    plain = fit(model, x, seed=seed)
    seconds = time.process_time() - began
    long = fit(model, x, EM(), init="random", num_restarts=num_long, seed=seed + 500_000)
    own = fit(model, x, EM(), init=truth)
    best = max(sound(long), sound(own))
    gap = best - sound(plain)
    return {
        "reached": bool(gap <= REACHED * abs(best)),
        "above": bool(gap < -REACHED * abs(best)),
        "gap": gap,
        "starts": plain.restarts.num_tried or 1,
        "iterations": int(plain.restarts.num_iterations.sum()),
        "seconds": seconds,
        "unsure": any(
            "not replicated" in text or "no proper optimum" in text for text in plain.warnings
        ),
    }


def measure(args: Any) -> Iterator[dict[str, Any]]:
    """One line a kind and number of components."""
    for kind in args.kinds:
        for k in args.components:
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
                    }
                    for seed in seeds(args)
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
                "median_seconds": round(middle["seconds"], 2),
                "slowest_seconds": round(max(line["seconds"] for line in lines), 2),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1, jobs=True)
    parser.add_argument(
        "--kinds",
        nargs="+",
        default=["Bernoulli", "Normal", "Poisson", "MultivariateNormal", "program"],
        help="of components",
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
    run(parser, measure, argv, quick={"replicates": 1, "components": [3], "rows": 120, "long": 10})


if __name__ == "__main__":
    main()

"""Seconds of ten everyday calls: the fit, its files (saved fit, netCDF for ArviZ, posterior of the
rows), and its page. Each call is made twice, and the second is counted, so that no import is.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from _bench import command_line, run, timed

from inference import fit
from inference.fitting.export import save_netcdf
from ppl_models import (
    Bernoulli,
    Categorical,
    DeepDiscreteEncoder,
    HiddenMarkov,
    InClassNet,
    LatentAttributeModel,
    Mixture,
    NoisyOr,
    Normal,
    OptionsHMM,
    PoissonFactorization,
)

Call = tuple[Any, Any]


def mixture(rng: np.random.Generator) -> Call:
    """Three groups of 300 rows of 4 measurements."""
    x = rng.normal(size=(300, 4)) + 3.0 * np.eye(4)[rng.integers(0, 3, 300)]
    return Mixture(3, Normal(), 4), x


def latent_classes(rng: np.random.Generator) -> Call:
    """Three classes behind 300 rows of 6 items of 3 categories."""
    chances = rng.dirichlet(np.ones(3), (3, 6))
    group = rng.integers(0, 3, 300)
    x = [[rng.choice(3, p=chances[g, j]) for j in range(6)] for g in group]
    return Mixture(3, Categorical(3), 6), np.array(x, dtype=float)


def hidden_markov(rng: np.random.Generator) -> Call:
    """Two states behind 40 sequences of 25 steps of 2 measurements."""
    state = np.cumsum(rng.random((40, 25)) < 0.1, 1) % 2
    return HiddenMarkov(2, Normal(), 2), rng.normal(size=(40, 25, 2)) + 2.0 * state[..., None]


def factorization(rng: np.random.Generator) -> Call:
    """Four signatures in 100 rows of 96 counts."""
    means = rng.gamma(1.0, 300.0, (100, 4)) @ rng.dirichlet(np.full(96, 0.3), 4)
    return PoissonFactorization(96, 4), rng.poisson(means).astype(float)


def diagnosis(rng: np.random.Generator) -> Call:
    """Three attributes behind 500 rows of 15 right-wrong items."""
    matrix = np.vstack([np.eye(3, dtype=int)] * 3 + [1 - np.eye(3, dtype=int)] * 2)
    skills = rng.random((500, 3)) < 0.6
    right = (skills[:, None] >= matrix).all(-1)
    x = rng.random((500, 15)) < np.where(right, 0.85, 0.2)
    return LatentAttributeModel(matrix.tolist(), items="saturated"), x.astype(float)


def encoder(rng: np.random.Generator) -> Call:
    """Two layers of six and two latents behind 400 rows of 18 items."""
    bits = rng.random((400, 6)) < 0.5
    x = rng.random((400, 18)) < np.where(np.repeat(bits, 3, 1), 0.85, 0.15)
    return DeepDiscreteEncoder(18, (6, 2), Bernoulli()), x.astype(float)


def noisy_or(rng: np.random.Generator) -> Call:
    """Three causes of 300 rows of 12 items."""
    causes = rng.random((300, 3)) < 0.3
    x = np.repeat(causes, 4, 1) & (rng.random((300, 12)) < 0.8)
    return NoisyOr(12, 3), (x | (rng.random((300, 12)) < 0.05)).astype(float)


def options(rng: np.random.Generator) -> Call:
    """Two options behind 30 sequences of 30 steps among 3 states and 2 actions."""
    option = np.cumsum(rng.random((30, 30)) < 0.1, 1) % 2
    action = (rng.random((30, 30)) < np.where(option == 1, 0.9, 0.1)).astype(int)
    state = rng.integers(0, 3, (30, 30))
    return OptionsHMM(3, 2, 2), torch.tensor(np.stack([state, action], -1))


def inclass(rng: np.random.Generator) -> Call:
    """Two components of 300 rows of 3 variates, by classifier networks."""
    x = rng.normal(size=(300, 3)) + 3.0 * rng.integers(0, 2, (300, 1))
    return InClassNet((("0",), ("1",), ("2",)), 2), x


def own_program(rng: np.random.Generator) -> Call:
    """A Pyro program of two groups of 300 numbers."""

    def two_groups(x: torch.Tensor) -> None:
        share = pyro.sample("share", dist.Beta(2.0, 2.0))
        with pyro.plate("groups", 2):
            mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", len(x)):
            group = pyro.sample("group", dist.Bernoulli(share), infer={"enumerate": "parallel"})
            pyro.sample("x", dist.Normal(mean[group.long()], 1.0), obs=x)

    x = rng.normal(size=300) + 4.0 * (rng.random(300) < 0.5)
    return two_groups, torch.tensor(x)


CALLS: dict[str, Callable[[np.random.Generator], Call]] = {
    own.__name__: own
    for own in (
        mixture, latent_classes, hidden_markov, factorization, diagnosis, encoder, noisy_or,
        options, inclass, own_program,
    )
}  # fmt: skip


def _files(result: Any, data: Any, folder: Path) -> None:
    result.save(folder / "fit")
    save_netcdf(result.to_arviz(data), folder / "posterior.nc")
    result.posterior_frame(data).to_csv(folder / "posterior.csv")


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in args.calls or CALLS:
        model, data = CALLS[name](np.random.default_rng(0))
        for is_counted in (False, True):
            result, fitted = timed(lambda: fit(model, data, seed=0))  # noqa: B023
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder)
                _, files = timed(lambda: _files(result, data, out))  # noqa: B023
                _, page = timed(lambda: result.report(out / "report.html", data))  # noqa: B023
            if is_counted or args.quick:
                yield {"call": name, "fit": fitted, "files": files, "page": page}
                break


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("calls", nargs="*", metavar="CALL", help=f"of {', '.join(CALLS)}")
    run(parser, measure, argv, {"calls": ["mixture"]})


if __name__ == "__main__":
    main()

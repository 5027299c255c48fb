"""NUTS beside NumPyro's on a mixture, a noisy-OR network and a hidden Markov model: R-hat,
divergences, effective draws a second.

Each posterior is written a second time in NumPyro, latents summed out by hand, with the priors and
bounds of ours. Before anything is timed the two log-densities are compared at points around the
optimum: ``largest_difference`` is that of their differences between points, and must be rounding.
Both start from our optimum and take the same warm-up, draws, target and a dense mass matrix;
NumPyro's chains run in turn (``seconds`` hold its compilation) and ours as one batch. Encoders are
in ``nuts_dde.py``. NumPyro is not a dependency of this library: install it beside; without it our
lines come alone.

Run: ``python benchmarks/nuts_others.py [--families mixture noisy_or hidden_markov] [--replicates
3]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference import EM, NUTS, fit
from inference.base import ess_of_draws, rhat_of_draws
from inference.base.align import relabel_draws
from inference.fitting.problem import problem_of
from inference.structures.registry import structure_of
from ppl_models import HiddenMarkov, Mixture, NoisyOr, Normal
from ppl_models.parts.distributions import binary_configurations

Draws = dict[str, torch.Tensor]


class Case(NamedTuple):
    """A model of ours and rows; ``program(rows, bounds)`` gives the NumPyro program of the same
    posterior.
    """

    model: Any
    rows: np.ndarray
    program: Callable[[np.ndarray, dict[str, Any]], Callable[[], None]]


def mixture(generator: np.random.Generator, num_rows: int) -> Case:
    """Three normals, two columns."""
    centres = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    rows = centres[generator.integers(3, size=num_rows)] + generator.standard_normal((num_rows, 2))

    def program(rows: np.ndarray, bounds: dict[str, Any]) -> Callable[[], None]:
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist
        from jax.scipy.special import logsumexp

        x = jnp.asarray(rows)

        def posterior() -> None:
            weights = numpyro.sample("weights", dist.Dirichlet(jnp.full(3, 1.001)))
            mean, variance = (
                numpyro.sample(
                    name, dist.Uniform(*(jnp.broadcast_to(b, (3, 2)) for b in bounds[name]))
                )
                for name in ("predictors", "dispersion")
            )
            each = dist.Normal(mean, jnp.sqrt(variance)).log_prob(x[:, None]).sum(-1)  # (N, 3)
            numpyro.factor("rows", logsumexp(each + jnp.log(weights), axis=-1).sum())

        return posterior

    return Case(Mixture(3, Normal(), 2), rows, program)


def noisy_or(generator: np.random.Generator, num_rows: int) -> Case:
    """Four causes of twelve items, each cause of three alone and of one that the next shares."""
    strength = np.zeros((4, 12))
    for cause in range(4):
        strength[cause, [3 * cause, 3 * cause + 1, 3 * cause + 2, (3 * cause + 3) % 12]] = 1.5
    on = generator.random((num_rows, 4)) < 0.3
    rows = (generator.random((num_rows, 12)) < 1 - np.exp(-(on @ strength) - 0.05)).astype(float)

    def program(rows: np.ndarray, bounds: dict[str, Any]) -> Callable[[], None]:
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist
        from jax.scipy.special import logsumexp

        x, states = jnp.asarray(rows), jnp.asarray(binary_configurations(4).numpy())  # (16, 4)

        def posterior() -> None:
            prior = numpyro.sample("prior", dist.Beta(jnp.full(4, 1.1), 1.1))
            failure = numpyro.sample("failure", dist.Beta(jnp.full((4, 12), 1.1), 1.1))
            leak = numpyro.sample("leak", dist.Beta(jnp.full(12, 1.1), 1.1))
            off = states @ jnp.log(failure) + jnp.log1p(-leak)  # log-probability of 0, (16, 12)
            each = x @ jnp.log(-jnp.expm1(off)).T + (1 - x) @ off.T
            chance = states @ jnp.log(prior) + (1 - states) @ jnp.log1p(-prior)
            numpyro.factor("rows", logsumexp(each + chance, axis=-1).sum())

        return posterior

    soft = (1.1, 1.1)
    return Case(
        NoisyOr(
            12, 4, prior_concentration=soft, failure_concentration=soft, leak_concentration=soft
        ),
        rows,
        program,
    )


def hidden_markov(generator: np.random.Generator, num_rows: int) -> Case:
    """One sequence of three states with normal rows of two columns."""
    states = (generator.random(num_rows) < 0.1).cumsum() % 3
    rows = np.array([-1.5, 0.0, 1.5])[states][:, None] + generator.standard_normal((num_rows, 2))

    def program(rows: np.ndarray, bounds: dict[str, Any]) -> Callable[[], None]:
        import jax
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist
        from jax.scipy.special import logsumexp

        x = jnp.asarray(rows[0])

        def posterior() -> None:
            initial = numpyro.sample("initial", dist.Dirichlet(jnp.full(3, 1.001)))
            moves = numpyro.sample("transitions", dist.Dirichlet(jnp.full((3, 3), 1.001)))
            mean, variance = (
                numpyro.sample(
                    name, dist.Uniform(*(jnp.broadcast_to(b, (3, 2)) for b in bounds[name]))
                )
                for name in ("predictors", "dispersion")
            )
            each = dist.Normal(mean, jnp.sqrt(variance)).log_prob(x[:, None]).sum(-1)  # (T, 3)
            log_moves = jnp.log(moves)

            def step(before: Any, now: Any) -> tuple[Any, None]:
                return logsumexp(before[:, None] + log_moves, axis=0) + now, None

            last, _ = jax.lax.scan(step, jnp.log(initial) + each[0], each[1:])
            numpyro.factor("rows", logsumexp(last))

        return posterior

    return Case(HiddenMarkov(3, Normal(), 2), rows[None], program)


FAMILIES = {"mixture": mixture, "noisy_or": noisy_or, "hidden_markov": hidden_markov}


def figures(engine: str, draws: Draws, divergent: int, seconds: float) -> dict[str, Any]:
    """Of draws (C, D, ...)."""
    rhat, ess = (
        torch.cat([value.reshape(-1) for value in of(draws).values()])
        for of in (rhat_of_draws, ess_of_draws)
    )
    ess = ess[~ess.isnan()]
    return {
        "engine": engine,
        "max_rhat": round(float(rhat.nan_to_num(nan=1.0).max()), 4),
        "parameters": len(rhat),
        "divergent": divergent,
        "min_bulk_ess": round(float(ess.min()), 1),
        "median_bulk_ess": round(float(ess.median()), 1),
        "seconds": round(seconds, 1),
        "min_ess_per_second": round(float(ess.min()) / seconds, 3),
        "median_ess_per_second": round(float(ess.median()) / seconds, 3),
    }


def largest_difference(
    program: Any, posterior: Callable[[], None], point: Draws, supports: Any
) -> float:
    """Of the rise of the two log-densities between the optimum and points around it."""
    from numpyro.infer.util import log_density
    from torch.distributions import biject_to

    generator = torch.Generator().manual_seed(0)
    differences = []
    for scale in (0.0, 0.1, 0.3):
        there = {}
        for name, value in point.items():
            to = biject_to(supports[name])
            free = to.inv(value)
            there[name] = to(
                free + scale * torch.randn(free.shape, dtype=free.dtype, generator=generator)
            )
        ours = float(
            program.log_prior({k: v[None] for k, v in there.items()})
            + program.log_marginal({k: v[None] for k, v in there.items()})
        )
        differences.append(
            ours
            - float(log_density(posterior, (), {}, {k: v.numpy() for k, v in there.items()})[0])
        )
    return float(np.ptp(differences))


def in_numpyro(
    args: argparse.Namespace, posterior: Callable[[], None], point: Draws, model: Any, seed: int
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS, init_to_value

    kernel = NUTS(
        posterior,
        init_strategy=init_to_value(values={k: jnp.asarray(v.numpy()) for k, v in point.items()}),
        dense_mass=True,
        target_accept_prob=args.target,
    )
    mcmc = MCMC(
        kernel,
        num_warmup=args.warmup,
        num_samples=args.draws,
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    began = time.monotonic()
    mcmc.run(jax.random.PRNGKey(seed), extra_fields=("diverging", "num_steps"))
    flat = {name: torch.from_numpy(np.array(value)) for name, value in mcmc.get_samples().items()}
    seconds = time.monotonic() - began
    extra = mcmc.get_extra_fields()
    flat, _ = relabel_draws(
        flat, structure_of(model).labels(), {name: value[0] for name, value in flat.items()}
    )
    draws = {
        name: value.reshape(args.chains, args.draws, *value.shape[1:])
        for name, value in flat.items()
    }
    return figures(
        "NumPyro, compilation included", draws, int(extra["diverging"].sum()), seconds
    ) | {"mean_steps": round(float(extra["num_steps"].mean()), 1)}


def measure(args: argparse.Namespace) -> Lines:
    beside = importlib.util.find_spec("numpyro") is not None
    if beside:
        import jax

        jax.config.update("jax_enable_x64", True)
    for name in args.families:
        for seed in seeds(args):
            case = FAMILIES[name](np.random.default_rng(seed), args.rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                point = fit(case.model, case.rows, EM(), num_restarts=5, seed=seed)
                problem = problem_of(point.model, case.rows, seed)
                began = time.monotonic()
                result = fit(
                    point.model,
                    case.rows,
                    NUTS(
                        args.chains,
                        args.warmup,
                        args.draws,
                        target_accept_prob=args.target,
                        dense=True,
                    ),
                    init=point,
                    seed=seed,
                )
            seconds, stats = time.monotonic() - began, result.sample_stats
            told = {
                "family": name,
                "seed": seed,
                "rows": args.rows,
                "num_warmup": args.warmup,
                "num_draws": args.draws,
                "num_chains": args.chains,
            }
            ours = figures("NUTS", result.draws, int(stats["diverging"].sum()), seconds) | {
                "mean_steps": round(float(stats["num_steps"].double().mean()), 1)
            }
            yield told | ours
            if not beside:
                continue
            supports = problem.supports()
            bounds = {
                k: (s.base_constraint.lower_bound.numpy(), s.base_constraint.upper_bound.numpy())
                for k, s in supports.items()
                if k in ("predictors", "dispersion")
            }
            posterior = case.program(case.rows, bounds)
            difference = largest_difference(problem.program(), posterior, point.params, supports)
            theirs = in_numpyro(args, posterior, point.params, point.model, seed)
            yield (
                told
                | theirs
                | {
                    "largest_difference": difference,
                    "ratio_of_ess_per_second": round(
                        ours["min_ess_per_second"] / theirs["min_ess_per_second"], 2
                    ),
                }
            )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3, threads=1)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--rows", type=int, default=500, metavar="N")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--target", type=float, default=0.8)
    run(
        parser,
        measure,
        argv,
        {
            "families": ["mixture"],
            "rows": 60,
            "warmup": 20,
            "draws": 20,
            "chains": 2,
            "replicates": 1,
        },
    )


if __name__ == "__main__":
    main()

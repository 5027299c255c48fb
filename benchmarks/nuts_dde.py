"""NUTS on a deep discrete encoder (18, 6, 2), N = 500: R-hat, divergences, effective draws a
second.

Strict design of Lee and Gu 2025 (arXiv:2501.01414), data drawn at ``--seed``; flat priors on
[-bound, bound], or normal loadings with ``--ridge``. The truth is not used. With ``--numpyro`` the
same model with the latents summed out by hand, written in NumPyro (not a dependency of this
library: install it beside), runs afterwards with the same warm-up and draws from the same start.
One JSON line each.

Run: ``python benchmarks/nuts_dde.py [--family Normal] [--warmup 1000] [--draws 1000] [--numpyro]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Sequence

import numpy as np
import torch
from _bench import FAMILIES, Lines, command_line, run

from inference import EM, NUTS, fit
from inference.base import ess_of_draws, rhat_of_draws
from inference.base.align import relabel_draws
from inference.programs import simulate
from inference.structures.registry import structure_of
from ppl_models import DeepDiscreteEncoder, Ridge
from ppl_models.datasets.deep_discrete_encoder import strict_design
from ppl_models.parts.distributions import binary_configurations


def figures(
    engine: str, draws: dict[str, torch.Tensor], divergent: int, seconds: float, **more: object
) -> dict[str, object]:
    rhats = torch.cat([value.reshape(-1) for value in rhat_of_draws(draws).values()])
    ess = torch.cat([value.reshape(-1) for value in ess_of_draws(draws).values()])
    return {
        "engine": engine,
        "max_rhat": round(float(rhats.nan_to_num(nan=1.0).max()), 4),
        "parameters_above_1.01": int((rhats > 1.01).sum()),
        "parameters": len(rhats),
        "min_bulk_ess": round(float(ess[~ess.isnan()].min()), 1),
        "median_bulk_ess": round(float(ess[~ess.isnan()].median()), 1),
        "divergent": divergent,
        "seconds": round(seconds, 1),
        "min_ess_per_second": round(float(ess[~ess.isnan()].min()) / seconds, 3),
        **more,
    }


def in_numpyro(
    args: argparse.Namespace,
    model: DeepDiscreteEncoder,
    x: torch.Tensor,
    start: dict[str, np.ndarray],
) -> dict[str, object]:
    """The same posterior: 64 configurations of the bottom layer, four of the top one, both summed
    out by hand.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, init_to_value

    jax.config.update("jax_enable_x64", True)
    data = jnp.asarray(x.numpy())
    below, above = (jnp.asarray(binary_configurations(k).numpy()) for k in (6, 2))
    b = args.bound

    def loadings(*shape: int) -> dist.Distribution:
        if args.ridge is None:
            return dist.Uniform(-b * jnp.ones(shape), b)
        return dist.TruncatedNormal(jnp.zeros(shape), args.ridge, low=-b, high=b)

    def program() -> None:
        proportions = numpyro.sample("proportions", dist.Beta(jnp.ones(2), jnp.ones(2)))
        w1 = numpyro.sample("loadings_1", loadings(18, 6))
        b1 = numpyro.sample("intercepts_1", dist.Uniform(-b * jnp.ones(18), b))
        w2 = numpyro.sample("loadings_2", loadings(6, 2))
        b2 = numpyro.sample("intercepts_2", dist.Uniform(-b * jnp.ones(6), b))
        eta = below @ w1.T + b1  # (64, 18)
        if args.family == "Normal":
            low, high = 1e-4, 1e4
            gamma = numpyro.sample("dispersion", dist.Uniform(low * jnp.ones(18), high))
            squares = (data**2) @ (1 / gamma)
            cross = (data / gamma) @ eta.T
            fit_rows = (
                cross
                - 0.5 * squares[:, None]
                - 0.5 * (eta**2 / gamma).sum(-1)
                - 0.5 * jnp.log(2 * jnp.pi * gamma).sum()
            )
        elif args.family == "Bernoulli":
            fit_rows = data @ eta.T - jax.nn.softplus(eta).sum(-1)
        else:
            fit_rows = (
                data @ eta.T
                - jnp.exp(eta).sum(-1)
                - jax.scipy.special.gammaln(data + 1).sum(-1)[:, None]
            )
        eta2 = above @ w2.T + b2  # (4, 6)
        middle = below @ eta2.T - jax.nn.softplus(eta2).sum(-1)  # (64, 4)
        top = above @ jnp.log(proportions) + (1 - above) @ jnp.log1p(-proportions)
        weights = jax.scipy.special.logsumexp(middle + top, axis=-1)
        numpyro.factor("rows", jax.scipy.special.logsumexp(fit_rows + weights, axis=-1).sum())

    values = {
        name: jnp.asarray(
            np.clip(v, -0.98 * b, 0.98 * b) if name != "proportions" else np.clip(v, 0.02, 0.98)
        )
        for name, v in start.items()
    }
    kernel = NUTS(
        program,
        init_strategy=init_to_value(values=values),
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
    mcmc.run(jax.random.PRNGKey(args.seed), extra_fields=("diverging", "num_steps"))
    draws = {
        name: torch.from_numpy(np.array(value))
        for name, value in mcmc.get_samples(group_by_chain=True).items()
    }
    seconds = time.monotonic() - began
    extra = mcmc.get_extra_fields(group_by_chain=True)
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    flat, changed = relabel_draws(
        flat, structure_of(model).labels(), {name: value[0] for name, value in flat.items()}
    )
    draws = {
        name: value.reshape(args.chains, args.draws, *value.shape[1:])
        for name, value in flat.items()
    }
    return figures(
        "NumPyro, compilation included",
        draws,
        int(extra["diverging"].sum()),
        seconds,
        family=args.family,
        rows=args.rows,
        mean_steps=round(float(extra["num_steps"].mean()), 1),
        relabelled=round(float(changed.double().mean()), 4),
    )


def measure(args: argparse.Namespace) -> Lines:
    response = FAMILIES[args.family]
    truth = strict_design(2, response)
    penalty = None if args.ridge is None else Ridge(args.ridge)
    model = DeepDiscreteEncoder(18, (6, 2), response=response, bound=args.bound, penalty=penalty)
    x = simulate(model, truth, args.seed, None, args.rows)["items"]
    point = fit(model, x, EM())
    method = NUTS(args.chains, args.warmup, args.draws, target_accept_prob=args.target)
    began = time.monotonic()
    result = fit(model, x, method, init=point, seed=args.seed, progress=args.progress)
    stats = result.sample_stats
    yield figures(
        "NUTS",
        result.draws,
        int(stats["diverging"].sum()),
        time.monotonic() - began,
        family=args.family,
        rows=args.rows,
        mean_steps=round(float(stats["num_steps"].mean()), 1),
        relabelled=round(float(stats["relabelled"].double().mean()), 4),
        num_warmup=args.warmup,
        num_draws=args.draws,
        bound=args.bound,
        ridge=args.ridge,
        target=args.target,
    )
    if args.numpyro and importlib.util.find_spec("numpyro") is None:
        yield {"engine": "NumPyro", "skipped": "numpyro is not installed"}
    elif args.numpyro:
        yield in_numpyro(
            args, model, x, {name: value.numpy() for name, value in point.params.items()}
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--family", choices=list(FAMILIES), default="Normal")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--bound", type=float, default=5.0)
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument(
        "--ridge",
        type=float,
        default=None,
        help="standard deviation of a normal prior of the loadings, flat without",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--numpyro", action="store_true", help="the same model in NumPyro, beside")
    parser.add_argument("--progress", action="store_true")
    run(parser, measure, argv, {"rows": 100, "warmup": 20, "draws": 20, "chains": 2})


if __name__ == "__main__":
    main()

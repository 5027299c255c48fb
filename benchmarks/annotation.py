"""Models of annotators beside NumPyro's NUTS: estimates, their errors, and seconds.

Classes of items are latent, and every annotator (or position) labels every item. Each model is that
of NumPyro's ``examples/annotation.py`` (Paun et al. 2018, doi:10.1162/tacl_a_00040), labels are
simulated from it, and our side is the program as it stands in ``benchmarks/programs``, handed to
``fit`` with the engine that ``--help`` names: ``EM()`` with standard errors where these mean
something, ``Laplace()`` where priors count, ``NUTS()`` for effects of annotators and of items,
whose posterior is far from normal. NumPyro's side is the same posterior with classes summed out by
hand; it starts from our estimate, so that classes have the same names. One JSON line a model:
processor seconds of both, ``distance``, the largest distance of our estimates from NumPyro's means
in its standard deviations, and ``spread``, the median ratio of our errors to these. An optimum of
EM is a mode, and lies off the mean where the posterior is skew. Classes have no names, so that a
chain may exchange them where data say little: the draws of NumPyro are given the names of our
estimate (the nearest permutation of classes), and ``switched`` is the share of NumPyro's draws that
had others. ``k_hat`` of Laplace's importance ratios says whether a normal describes the posterior:
above 0.7 it does not, as where classes are hardly apart or a spread may be zero.
``--oracle`` asks for more of NumPyro: four chains from starts of its own, each as many draws after
as many, whose R-hat is that of draws with the names of our estimate; our engine and ``Laplace()``
are compared with all of them, one line each. ``annotation.jsonl`` beside it holds one run, and one
of ``--oracle --only item_difficulty --num-draws 4000``. NumPyro is not a dependency of this
library: install it beside; without it our lines come alone.

Run: ``python benchmarks/annotation.py [--num-items 200] [--only dawid_skene,mace] [--oracle]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from _bench import Lines, command_line, run, seeds
from programs.examples_numpyro import (
    agreement,
    dawid_skene,
    hierarchy,
    item_difficulty,
    random_effects,
)
from programs.tutorials import spammers
from torch import Tensor

from inference import EM, NUTS, Laplace, fit
from inference.base.diagnostics import pareto_k, rhat_of_draws
from inference.uncertainty import standard_errors

NUM_CLASSES = 3
OF_ANNOTATORS = {"beta": 2, "beta_decentered": 2}  # dims of the classes of draws; 1 of others
NUM_CHAINS = 4  # of the oracle
LEAST = 0.1  # of an error, in the distance between names of classes
ENGINES: dict[str, tuple[Callable[..., Any], Any]] = {
    "agreement": (agreement, EM()),
    "dawid_skene": (dawid_skene, EM()),
    "mace": (spammers, Laplace()),
    "hierarchy": (hierarchy, NUTS(num_chains=4, warmup_steps=150, num_samples=150)),
    "item_difficulty": (item_difficulty, NUTS(num_chains=4, warmup_steps=300, num_samples=300)),
    "random_effects": (random_effects, NUTS(num_chains=2, warmup_steps=200, num_samples=200)),
}


def labels(name: str, num_items: int, num_annotators: int) -> Tensor:
    """Labels (items, annotators) drawn from a model; torch's seed is set."""
    size = NUM_CLASSES
    base = 1.5 * F.pad(torch.eye(size)[:, :-1] - torch.eye(size)[:, -1:], (0, 1))
    classes = dist.Categorical(torch.tensor([0.5, 0.3, 0.2])).sample((num_items,))
    if name == "mace":
        skill = dist.Beta(3.0, 2.0).sample((num_annotators,))
        habits = dist.Dirichlet(torch.full((size,), 10.0)).sample((num_annotators,))
        probs = skill[:, None] * F.one_hot(classes, size)[:, None] + (1 - skill)[:, None] * habits
        return dist.Categorical(probs).sample()
    if name == "dawid_skene":
        tables = dist.Dirichlet(1 + 9 * torch.eye(size)).sample((num_annotators,))
        return dist.Categorical(tables.movedim(1, 0)[classes]).sample()
    logits = base.expand(num_annotators, size, size)
    if name in ("hierarchy", "random_effects"):
        own = 0.7 * torch.randn(num_annotators, size, size - 1)
        logits = logits + F.pad(own, (0, 1))
    shift = torch.zeros(num_items, size)
    if name in ("item_difficulty", "random_effects"):
        shift = F.pad(0.8 * torch.randn(num_items, size - 1), (0, 1))
    return dist.Categorical(logits=logits.movedim(1, 0)[classes] - shift[:, None]).sample()


def ours(
    name: str, y: Tensor, method: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]:
    """Estimates and their errors by site; processor seconds, and k-hat of Laplace."""
    program, _ = ENGINES[name]
    positions = torch.arange(y.shape[1])
    data = y if name in ("agreement", "item_difficulty") else (positions, y)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(method, EM):  # named by no one: the best of many starts
            found = fit(program, data)
            errors = standard_errors(found, data, hold_bounds=True).standard_errors
            return found.params, errors, {"seconds": round(time.process_time() - began, 2)}
        found = fit(program, data, method)
    line = {"seconds": round(time.process_time() - began, 2)}
    assert found.draws is not None
    assert found.sample_stats is not None
    if isinstance(method, Laplace):
        line["k_hat"] = round(pareto_k(found.sample_stats["log_importance"][0]), 2)
    draws = {site: value.flatten(0, 1) for site, value in found.draws.items()}
    return (
        {site: value.mean(0) for site, value in draws.items()},
        {site: value.std(0) for site, value in draws.items()},
        line,
    )


def theirs(
    name: str, y: np.ndarray, start: dict[str, np.ndarray] | None, num_draws: int, seed: int
) -> tuple[dict[str, np.ndarray], float]:
    """Draws by site of NumPyro's NUTS, from a start of its own if None, and processor seconds."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as npd
    from numpyro.infer import MCMC, NUTS as THEIRS, init_to_uniform, init_to_value

    jax.config.update("jax_enable_x64", True)
    (num_items, num_annotators), size = y.shape, NUM_CLASSES
    places = jnp.arange(num_annotators)
    one_hot = jax.nn.one_hot(y, size)  # (N, A, labels)

    def normal(site: str, shape: tuple[int, ...]) -> Any:
        return numpyro.sample(site, npd.Normal(0, 1).expand(shape).to_event(len(shape)))

    def spread(site: str) -> Any:
        return numpyro.sample(site, npd.HalfNormal(1).expand([size, size - 1]).to_event(2))

    def padded(logits: Any) -> Any:
        return jnp.pad(logits, [(0, 0)] * (logits.ndim - 1) + [(0, 1)])

    def program() -> None:
        log_pi: Any = jnp.full(size, -np.log(size))
        if name != "mace":
            log_pi = jnp.log(numpyro.sample("pi", npd.Dirichlet(jnp.ones(size))))
        if name == "agreement":
            zeta = numpyro.sample("zeta", npd.Dirichlet(jnp.ones((size, size))).to_event(1))
            rows = jnp.einsum("nal,cl->nc", one_hot, jnp.log(zeta))
        elif name == "dawid_skene":
            shape = (num_annotators, size, size)
            beta = numpyro.sample("beta", npd.Dirichlet(jnp.ones(shape)).to_event(2))
            rows = jnp.einsum("nal,acl->nc", one_hot, jnp.log(beta))
        elif name == "mace":
            shape = (num_annotators, size)
            habit = numpyro.sample("ε", npd.Dirichlet(jnp.full(shape, 10.0)).to_event(1))
            skill = numpyro.sample("θ", npd.Beta(0.5, 0.5).expand([num_annotators]).to_event(1))
            own = habit[places[None], y]  # (N, A)
            chance = skill[:, None] * one_hot + ((1 - skill) * own)[..., None]
            rows = jnp.log(chance).sum(1)
        else:
            if name == "item_difficulty":
                centre, scale = normal("eta", (size, size - 1)), spread("Chi")
                effect = numpyro.sample(
                    "u", npd.Normal(0, 1).expand([num_items, 1, size - 1]).to_event(3)
                )
                table = jax.nn.log_softmax(padded(centre + scale * effect))  # (N, C, L)
                rows = jnp.einsum("nal,ncl->nc", one_hot, table)
            else:
                zeta, omega = normal("zeta", (size, size - 1)), spread("Omega")
                own = normal("beta_decentered", (num_annotators, size, size - 1))
                logits = padded(zeta + omega * own)[None]  # (1, A, C, L)
                if name == "random_effects":
                    chi = spread("Chi")
                    effect = numpyro.sample(
                        "u", npd.Normal(0, 1).expand([num_items, 1, 1, size - 1]).to_event(4)
                    )
                    logits = logits - padded(chi * effect)
                table = jnp.broadcast_to(
                    jax.nn.log_softmax(logits), (num_items, num_annotators, size, size)
                )
                rows = jnp.einsum("nal,nacl->nc", one_hot, table)
        numpyro.factor("labels", jax.scipy.special.logsumexp(rows + log_pi, -1).sum())

    init = init_to_uniform() if start is None else init_to_value(values=start)
    kernel = THEIRS(program, init_strategy=init, dense_mass=False)
    sampler = MCMC(
        kernel, num_warmup=num_draws, num_samples=num_draws, num_chains=1, progress_bar=False
    )
    began = time.process_time()
    sampler.run(jax.random.PRNGKey(seed))
    draws = {site: np.asarray(value) for site, value in sampler.get_samples().items()}
    return draws, time.process_time() - began


def measure(args: argparse.Namespace) -> Lines:
    torch.set_default_dtype(torch.float64)
    has_theirs = importlib.util.find_spec("numpyro") is not None
    for name in args.only.split(",") if args.only else ENGINES:
        for seed in seeds(args):
            torch.manual_seed(seed)
            y = labels(name, args.num_items, args.num_annotators)
            engines = [ENGINES[name][1], *([Laplace()] if args.oracle else [])]
            found = [ours(name, y, method) for method in engines]
            draws, numbers = {}, {}
            if has_theirs:
                start = {site: value.numpy() for site, value in found[0][0].items()}
                starts = [None] * NUM_CHAINS if args.oracle else [start]
                runs = [
                    theirs(name, y.numpy(), own, args.num_draws, seed + chain)
                    for chain, own in enumerate(starts)
                ]
                draws = {site: np.concatenate([chain[site] for chain, _ in runs]) for site in start}
                numbers["numpyro_seconds"] = round(sum(seconds for _, seconds in runs), 2)
            for method, (estimates, errors, own) in zip(engines, found, strict=True):
                line = {
                    "model": name,
                    "items": args.num_items,
                    "annotators": args.num_annotators,
                    "seed": seed,
                    "engine": type(method).__name__,
                    "parameters": sum(value.numel() for value in estimates.values()),
                    **own,
                    **numbers,
                }
                if draws:
                    line |= _compared(estimates, errors, draws, args.oracle)
                yield line


def _compared(
    estimates: dict[str, Tensor],
    errors: dict[str, Tensor],
    draws: dict[str, np.ndarray],
    is_oracle: bool,
) -> dict[str, Any]:
    away, ratios, line = [], [], {}
    draws, switched = _renamed(estimates, errors, draws)
    if is_oracle:
        chains = {
            site: torch.from_numpy(value).unflatten(0, (NUM_CHAINS, -1))
            for site, value in draws.items()
        }
        rhat = max(float(value.nan_to_num().max()) for value in rhat_of_draws(chains).values())
        line = {
            "chains": NUM_CHAINS,
            "draws": next(iter(chains.values())).shape[1],
            "r_hat": round(rhat, 4),
        }
        ratio = np.concatenate([(errors[s].numpy() / draws[s].std(0)).ravel() for s in estimates])
        line |= {"least_spread": round(ratio.min(), 3), "most_spread": round(ratio.max(), 3)}
    for site, value in estimates.items():
        drawn = draws[site]
        away.append((np.abs(value.numpy() - drawn.mean(0)) / drawn.std(0)).ravel())
        ratios.append((errors[site].numpy() / drawn.std(0)).ravel())
    return line | {
        "distance": round(float(np.concatenate(away).max()), 3),
        "median_distance": round(float(np.median(np.concatenate(away))), 3),
        "spread": round(float(np.nanmedian(np.concatenate(ratios))), 3),
        "switched": round(switched, 3),
    }


def _renamed(
    estimates: dict[str, Tensor], errors: dict[str, Tensor], draws: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], float]:
    """Draws with the classes of the estimates, and the share that had others."""
    shaped = {site: draws[site].reshape(-1, *value.shape) for site, value in estimates.items()}
    if "pi" not in shaped:  # classes are the labels themselves
        return shaped, 0.0
    names = list(itertools.permutations(range(NUM_CLASSES)))
    every = {
        site: np.stack([value.take(name, OF_ANNOTATORS.get(site, 1)) for name in names])
        for site, value in shaped.items()
    }
    away = sum(
        (((value - estimates[site].numpy()) / np.fmax(errors[site].numpy(), LEAST)) ** 2)
        .reshape(*value.shape[:2], -1)
        .sum(-1)
        for site, value in every.items()
    )
    best = np.asarray(away).argmin(0)
    places = np.arange(len(best))
    return {site: value[best, places] for site, value in every.items()}, float((best != 0).mean())


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=1, threads=1)
    parser.add_argument("--num-items", type=int, default=200)
    parser.add_argument("--num-annotators", type=int, default=8)
    parser.add_argument("--num-draws", type=int, default=1000, help="of NumPyro, after as many")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--oracle", action="store_true", help="four long chains of NumPyro's")
    quick = {"only": "agreement,dawid_skene", "num_items": 60, "num_draws": 50}
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()

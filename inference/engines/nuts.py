r"""NUTS: draws from the posterior of a program's parameters, its discrete latents summed out.

All chains run as one batch of :class:`~inference.programs.potential.Potential`. Warm-up follows
Stan's windows: the step size by dual averaging, the mass matrix from the chains' points and slopes
(:mod:`inference.engines.metric`) at the end of windows that double. It starts at the mode of the
density that is sampled, to which the optimum of ``warm_start`` leads, with the curvature there as
the first mass matrix.

The posterior of a mixture or of binary latents repeats itself under every renaming of the latents;
draws are renamed like one reference before they are handed back
(:mod:`inference.base.align`).

Source: :mod:`inference.engines.hamiltonian`; warm-up windows as in the Stan reference manual (Stan
Development Team 2024).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor

from inference.base.align import relabel_draws
from inference.base.checkpoint import Checkpoint
from inference.base.exchangeable import labels_of, renamed_in_words
from inference.base.optima import degenerate_restarts
from inference.base.outcome import ConvergenceWarning, DegenerateWarning, Outcome
from inference.base.progress import NoProgress, Progress
from inference.base.structure import is_method, open_sites
from inference.engines.em import EM
from inference.engines.hamiltonian import (
    DualAveraging,
    Metric,
    Transition,
    first_step_size,
    transition,
)
from inference.engines.metric import adapted
from inference.programs.global_state import quiet
from inference.programs.potential import Potential, PotentialOfSets
from inference.programs.program import Params, Program
from ppl_models.parts.surface import with_old_fields
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem


LEAST_DRAWS = 4
MOST_DENSE = 400  # coordinates up to which the mass matrix is dense
LEAST_CURVATURE = 0.1  # of a coordinate that the optimum leaves flat
MOST_CURVATURE = 1e12  # times the least: beyond, rounding leaves a matrix that has no root
STATS = ("acceptance_rate", "tree_depth", "num_steps", "diverging", "energy", "step_size", "lp")


@with_old_fields(
    num_warmup="warmup_steps", num_draws="num_samples", target_acceptance="target_accept_prob"
)
@dataclasses.dataclass(frozen=True)
class NUTS:
    """No-U-turn sampler (Hamiltonian Monte Carlo) on the marginal posterior.

    Args:
        num_chains: C, run as one batch; four are needed to trust R-hat.
        warmup_steps: transitions a chain that adapt and are not kept.
        num_samples: kept transitions a chain.
        target_accept_prob: mean acceptance the step size aims at; nearer 1 means smaller steps and
            fewer divergences.
        max_depth: a trajectory has at most 2^max_depth steps.
        dense: whether the mass matrix is dense; None for dense up to 400 coordinates.
        warm_start: the engine whose optimum (or the points that ``fit`` was given in its place)
            leads to the mode that the chains start around, each a posterior standard deviation off;
            None to start at the points that ``fit`` was given or drew, one a chain where there are
            as many. Programs with continuous latents of the rows start there too: those are drawn
            with the parameters.
        relabel: rename the latents of every draw like one reference. In a program of the user those
            values of latents are renamed whose exchange leaves its density as it is, which is found
            by its numbers (:mod:`inference.base.exchangeable`); the fit says which.

    Raises:
        ValueError: for a setting out of range; at ``fit``, for a program with a latent that cannot
            be enumerated.

    Example:
        >>> import numpy as np
        >>> from inference import NUTS, fit
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> drawn = fit(Mixture(2), answers, NUTS(num_chains=2, warmup_steps=50, num_samples=50))
        >>> tuple(drawn.draws["weights"].shape)
        (2, 50, 2)
    """

    num_chains: int = 4
    warmup_steps: int = 1000
    num_samples: int = 1000
    target_accept_prob: float = 0.8
    max_depth: int = 10
    dense: bool | None = None
    warm_start: EM | None = dataclasses.field(default_factory=EM)
    relabel: bool = True

    def __post_init__(self) -> None:
        plain_fields(self)
        for name, least in (
            ("num_chains", 1),
            ("warmup_steps", 20),
            ("num_samples", LEAST_DRAWS),
            ("max_depth", 1),
        ):
            check_size("NUTS", name, getattr(self, name), least, f"an integer of {least} or more")
        check_number(
            "NUTS", "target_accept_prob", self.target_accept_prob, "lie in (0, 1)", above=0, below=1
        )
        check_flag("NUTS", "relabel", self.relabel)
        if self.dense is not None:
            check_flag("NUTS", "dense", self.dense)
        if self.warm_start is not None and not is_method(self.warm_start):
            raise ValueError(
                f"NUTS: warm_start must be an engine such as EM(), or None, got {self.warm_start!r}"
            )

    @property
    def max_iterations(self) -> int:
        """Number of transitions a chain."""
        return self.warmup_steps + self.num_samples

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run all chains; see :class:`inference.base.structure.Method`."""
        program = problem.program()
        program.check_enumerable()
        store = None
        if checkpoint is not None:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start))
        saved = store.load(_Saved) if store is not None else None
        like = program.draw_prior(1, problem.seed, local=True)
        potential = Potential(program, like | {k: v[:1] for k, v in start.items()})
        if saved is not None:
            chains = saved.chains()
        else:
            optimum = self._optimum(problem, program, start, progress)
            count = len(next(iter(optimum.values())))
            missing = {
                name: value.expand(count, *value.shape[1:])
                for name, value in like.items()
                if name not in optimum
            }
            centers = potential.vector(optimum | missing)  # (1 or C, P)
            if self.warm_start is not None and not open_sites(problem.structure, program):
                centers = torch.stack([potential.climbed(center) for center in centers])
            chains = self._begin(problem, potential, centers)
        run = Run(self, potential, chains, problem.seed)
        try:
            run.sample(progress, store)
        except BaseException:
            if store is not None:
                store.save(_Saved.of(run.chains))
            raise
        num_draws = min(chain.iteration for chain in run.chains) - self.warmup_steps
        if num_draws < LEAST_DRAWS and progress.stopped:
            raise ValueError(
                f"on_iteration: NUTS was stopped after {max(0, num_draws)} draws a chain, and"
                f" {LEAST_DRAWS} are the least there is an answer from: stop it after iteration"
                f" {self.warmup_steps + LEAST_DRAWS}, or lower warmup_steps = {self.warmup_steps}"
            )
        draws = torch.from_numpy(np.stack([chain.draws[:num_draws] for chain in run.chains])).to(
            potential.like
        )  # (C, D, P)
        params = potential.params(draws.reshape(-1, potential.size))
        params = {
            name: v.detach().reshape(self.num_chains, num_draws, *v.shape[1:])
            for name, v in params.items()
        }
        stats = np.stack([chain.stats[:num_draws] for chain in run.chains])  # (C, D, S)
        sample_stats = {
            name: torch.from_numpy(stats[..., i].copy()) for i, name in enumerate(STATS)
        }
        sample_stats["diverging"] = sample_stats["diverging"] > 0
        num_divergent = int(sample_stats["diverging"].sum())
        if num_divergent:
            warnings.warn(
                f"{num_divergent} of {self.num_chains * num_draws} draws diverged: the"
                " posterior has places the sampler does not reach; raise target_accept_prob, or"
                " give the parameters informative priors",
                ConvergenceWarning,
                stacklevel=2,
            )
        return posterior_outcome(problem, params, sample_stats, sample_stats["lp"], self.relabel)

    def _optimum(
        self, problem: Problem, program: Program, start: Params, progress: Progress
    ) -> Params:
        """Starting point of each chain, (1, ...) or (C, ...)."""
        if self.warm_start is None or problem.start_given or open_sites(problem.structure, program):
            count = len(next(iter(start.values())))
            return (
                start
                if count == self.num_chains
                else {name: value[:1] for name, value in start.items()}
            )
        with quiet():  # bounds and slow ends of the warm start are no matter here
            outcome = self.warm_start.run(problem, start, progress, None)
        best = int(torch.where(outcome.objective.isnan(), -torch.inf, outcome.objective).argmax())
        return {name: value[best : best + 1] for name, value in outcome.params.items()}

    def _begin(self, problem: Problem, potential: Potential, centers: Tensor) -> list[Chain]:
        dense = potential.size <= MOST_DENSE if self.dense is None else self.dense
        covariance: Array = np.ones(potential.size)
        if potential.size <= MOST_DENSE:
            curvature = potential.curvature(centers[0]).cpu().double().numpy()
            if not np.isfinite(curvature).all():
                raise ValueError(
                    "NUTS: the log-posterior has no finite curvature at the start; give another"
                    " init, or warm_start=None"
                )
            values, vectors = np.linalg.eigh(curvature)
            covariance = (
                vectors / np.clip(values, LEAST_CURVATURE, LEAST_CURVATURE * MOST_CURVATURE)
            ) @ vectors.T
            covariance = covariance if dense else covariance.diagonal().copy()
        elif dense:
            covariance = np.eye(potential.size)
        spread = np.linalg.cholesky(covariance) if dense else np.sqrt(covariance)
        chains = []
        for c in range(self.num_chains):
            center = centers[c % len(centers)]
            noise = np.random.default_rng([problem.seed, c]).standard_normal(potential.size)
            shift = torch.from_numpy(spread @ noise if dense else spread * noise).to(center)
            for share in (1.0, 0.5, 0.1, 0.0):
                point = center + share * shift
                value, gradient = potential(point[None])
                if torch.isfinite(value).all():
                    break
            else:
                raise ValueError(
                    "NUTS: the log-posterior is not finite at the start; give another init"
                )
            chains.append(
                Chain(
                    position=point.cpu().double().numpy(),
                    log_density=float(value),
                    gradient=gradient[0].cpu().double().numpy(),
                    covariance=covariance,
                    draws=np.zeros((self.num_samples, potential.size)),
                    stats=np.zeros((self.num_samples, len(STATS))),
                )
            )
        return chains


# ---------------------------------------------------------------- one chain


@dataclasses.dataclass(eq=False)
class Chain:
    """State of a chain; its random numbers follow from seed, chain and iteration."""

    position: Array
    log_density: float
    gradient: Array
    covariance: Array  # inverse mass matrix
    draws: Array  # (D, P)
    stats: Array  # (D, S)
    iteration: int = 0
    window: list[Array] = dataclasses.field(
        default_factory=list
    )  # positions and gradients (2, P) since the last update of the metric
    step: float = 0.0  # 0: to be found
    averaging: DualAveraging | None = None
    pooled_at: int = 0
    group: int = 0  # chains of one posterior share a metric


class Run:
    """Run of several chains, in lockstep of evaluations, each at its own transition."""

    def __init__(self, method: NUTS, potential: Potential, chains: list[Chain], seed: int) -> None:
        self.method, self.potential, self.chains, self.seed = method, potential, chains, seed
        self.ends = window_ends(method.warmup_steps)

    def sample(self, progress: Progress, store: Checkpoint | None) -> None:
        """Run every chain to its end."""
        size = len(self.chains)
        running = {c: self._walk(c) for c in range(size)}
        asked: dict[int, Array] = {}
        waiting: set[int] = set()  # chains at the end of a window
        positions = torch.from_numpy(np.stack([chain.position for chain in self.chains])).to(
            self.potential.like
        )
        answers: dict[int, Any] = dict.fromkeys(running)
        shown = 0
        while running and not progress.stopped:
            for c, answer in answers.items():
                try:
                    request = running[c].send(answer)
                except StopIteration:
                    del running[c]
                    continue
                if request is None:
                    waiting.add(c)
                else:
                    asked[c] = request
            answers = {}
            if asked:
                for c, position in asked.items():
                    positions[c] = torch.from_numpy(position)
                values, gradients = self.potential(positions)
                table, slopes = values.cpu().double().numpy(), gradients.cpu().double().numpy()
                answers = {c: (float(table[c]), slopes[c]) for c in asked}
                asked = {}
            for group in {self.chains[c].group for c in waiting}:
                members = {c for c in running if self.chains[c].group == group}
                if members <= waiting:
                    answers |= dict.fromkeys(members, self._pooled(group))
                    waiting -= members
            slowest = min(chain.iteration for chain in self.chains)
            if slowest > shown:
                shown = slowest
                progress.update(
                    slowest,
                    objective=float(np.mean([c.log_density for c in self.chains])),
                    active=len(running),
                    engine="NUTS",
                )
                if store is not None and (slowest % store.every == 0 or progress.stopped):
                    store.save(_Saved.of(self.chains))

    def _walk(self, c: int) -> Generator[Array | None, Any, None]:
        """Coroutine of one chain: points to evaluate, None while it waits for the metric."""
        method, chain = self.method, self.chains[c]
        metric = Metric(chain.covariance)
        while chain.iteration < method.max_iterations:
            if chain.iteration in self.ends and chain.pooled_at != chain.iteration:
                chain.covariance = yield None
                chain.pooled_at, chain.window, chain.step = chain.iteration, [], 0.0
                metric = Metric(chain.covariance)
            at = [self.seed, c, chain.iteration + 1]
            if chain.step == 0.0:
                # random numbers of its own: a run that resumes here does not search for the step
                # again
                guess = yield from first_step_size(
                    chain.position,
                    chain.log_density,
                    chain.gradient,
                    0.5,
                    metric,
                    np.random.default_rng([*at, 1]),
                )
                chain.step, chain.averaging = guess, DualAveraging.begin(guess)
            rng = np.random.default_rng(at)
            new = yield from transition(
                chain.position,
                chain.log_density,
                chain.gradient,
                chain.step,
                metric,
                rng,
                method.max_depth,
            )
            self._record(chain, new)

    def _record(self, chain: Chain, new: Transition) -> None:
        method = self.method
        chain.position, chain.log_density, chain.gradient = (
            new.position,
            new.log_density,
            new.gradient,
        )
        if chain.iteration < method.warmup_steps:
            assert chain.averaging is not None  # set with the step size
            chain.averaging = chain.averaging.updated(new.acceptance, method.target_accept_prob)
            chain.step = float(np.exp(chain.averaging.log_step))
            if self.ends and self.ends[0] <= chain.iteration < self.ends[-1]:
                chain.window = [*chain.window, np.stack([new.position, new.gradient])]
            if chain.iteration == method.warmup_steps - 1:
                chain.step = float(np.exp(chain.averaging.log_mean))
        else:
            draw = chain.iteration - method.warmup_steps
            chain.draws[draw] = new.position
            row = (
                new.acceptance,
                new.depth,
                new.num_steps,
                new.diverging,
                new.energy,
                chain.step,
                new.log_density,
            )
            chain.stats[draw] = row
        chain.iteration += 1

    def _pooled(self, group: int) -> Array:
        """Pooled metric of the chains of one posterior, from their draws and slopes."""
        chains = [chain for chain in self.chains if chain.group == group]
        return adapted(
            chains[0].covariance, [np.stack(chain.window) for chain in chains if chain.window]
        )


def window_ends(num_warmup: int) -> tuple[int, ...]:
    """Iterations at which the metric is updated; the first begins the gathering of draws.

    An initial stretch of 75 transitions, windows of 25, 50, 100, ..., and 50 at the end for the
    step size, or 15, 75 and 10 per cent of a warm-up shorter than 150.
    """
    first, last, size = 75, 50, 25
    if num_warmup < first + last + size:
        first, last = round(0.15 * num_warmup), round(0.1 * num_warmup)
        size = num_warmup - first - last
    ends, at = [first], first
    while at < num_warmup - last:
        at = at + size if at + 3 * size <= num_warmup - last else num_warmup - last
        ends.append(at)
        size *= 2
    return tuple(ends)


@dataclasses.dataclass(frozen=True)
class _Saved:
    """Chains as tensors and numbers, for a checkpoint."""

    arrays: dict[str, Tensor]
    numbers: list[dict[str, Any]]

    @classmethod
    def of(cls, chains: list[Chain]) -> _Saved:
        arrays, numbers = {}, []
        for c, chain in enumerate(chains):
            for name in ("position", "gradient", "covariance", "draws", "stats"):
                arrays[f"{c}.{name}"] = torch.from_numpy(np.asarray(getattr(chain, name)))
            if chain.window:
                arrays[f"{c}.window"] = torch.from_numpy(np.stack(chain.window))
            averaging = None if chain.averaging is None else dataclasses.asdict(chain.averaging)
            numbers.append(
                {
                    name: getattr(chain, name)
                    for name in ("log_density", "iteration", "step", "pooled_at")
                }
                | {"averaging": averaging}
            )
        return cls(arrays, numbers)

    def chains(self) -> list[Chain]:
        out = []
        for c, record in enumerate(self.numbers):
            own: dict[str, Any] = {
                name: self.arrays[f"{c}.{name}"].numpy().copy()
                for name in ("position", "gradient", "covariance", "draws", "stats")
            }
            window = (
                list(self.arrays[f"{c}.window"].numpy()) if f"{c}.window" in self.arrays else []
            )
            averaging = (
                None if record["averaging"] is None else DualAveraging(**record["averaging"])
            )
            out.append(Chain(**own, **{**record, "averaging": averaging}, window=window))
        return out


MOST_SETS = 25  # at once: every chain's parameters meet the rows of all of them


def draws_of_sets(
    method: NUTS, program: Program, num_sets: int, starts: Sequence[Params], seed: int
) -> list[Params]:
    """Draw from several data sets of equally many rows by NUTS, all chains in one batch.

    Args:
        method: the sampler; ``warm_start`` is not used.
        program: the model with the rows of all sets one after the other.
        num_sets: S.
        starts: where the chains of each set start, S dicts of (C, ...).
        seed: one seed, one answer.

    Returns:
        Draws of each set, S dicts of (C, D, ...); latents are named as they come.
    """
    program.check_enumerable()
    joined = {name: torch.cat([start[name] for start in starts]) for name in starts[0]}
    potential = PotentialOfSets(program, joined, num_sets)
    dense = potential.size <= MOST_DENSE if method.dense is None else method.dense
    points = potential.vector(joined)
    values, gradients = (value.cpu().double().numpy() for value in potential(points))
    if not np.isfinite(values).all():
        raise ValueError("draws_of_sets: the log-posterior is not finite at a start")
    chains = [
        Chain(
            position=points[c].cpu().double().numpy(),
            log_density=float(values[c]),
            gradient=gradients[c],
            covariance=np.eye(potential.size) if dense else np.ones(potential.size),
            draws=np.zeros((method.num_samples, potential.size)),
            stats=np.zeros((method.num_samples, len(STATS))),
            group=c // method.num_chains,
        )
        for c in range(num_sets * method.num_chains)
    ]
    run = Run(method, potential, chains, seed)
    run.sample(NoProgress(), None)
    draws = torch.from_numpy(np.stack([chain.draws for chain in run.chains])).to(potential.like)
    params = {n: v.detach() for n, v in potential.params(draws.reshape(-1, potential.size)).items()}

    def own(value: Tensor, s: int) -> Tensor:
        by_set = value.reshape(num_sets, method.num_chains, method.num_samples, *value.shape[1:])
        return by_set[s]

    return [{name: own(value, s) for name, value in params.items()} for s in range(num_sets)]


LOOKED_AT = 100  # draws, for empty components
MOST_DEGENERATE = 0.05  # share of them that is no matter
GOOD_RHAT = 1.01  # Vehtari et al. 2021, doi:10.1214/20-BA1221


def posterior_outcome(
    problem: Problem, params: Params, sample_stats: Params, log_density: Tensor, relabel: bool
) -> Outcome:
    """Outcome of posterior draws.

    Args:
        problem: model and data.
        params: draws by site name, (C, D, ...).
        sample_stats: (C, D) each; whether a draw was renamed is added.
        log_density: (C, D), what the names of latents are taken from the best of, and the history.
        relabel: whether to rename latents.

    Warns:
        ConvergenceWarning: where R-hat of some parameter is above 1.01.
    """
    from inference.base.diagnostics import rhat_of_draws

    num_chains, num_draws = log_density.shape
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in params.items()}
    best = int(log_density.reshape(-1).nan_to_num(nan=-torch.inf).argmax())
    reference = problem.canonical({name: value[best] for name, value in flat.items()})
    program = problem.program()
    labels, found = labels_of(problem, program, flat, reference) if relabel else ((), ())
    flat, changed = relabel_draws(flat, labels, reference, program.inside)
    sample_stats = dict(sample_stats)
    if labels:
        sample_stats["relabelled"] = changed.reshape(num_chains, num_draws)
    draws = {
        name: value.reshape(num_chains, num_draws, *value.shape[1:]) for name, value in flat.items()
    }
    local = problem.structure.local_sites
    rhats = (
        rhat_of_draws({name: value for name, value in draws.items() if name not in local})
        if num_chains > 1
        else {}
    )
    worst = max(
        ((float(v.nan_to_num(nan=0.0).max()), name) for name, v in rhats.items()),
        default=(torch.inf, ""),
    )
    if rhats and worst[0] > GOOD_RHAT:
        warnings.warn(
            f"R-hat of entries of {worst[1]} is {worst[0]:.3f}, above {GOOD_RHAT}: the chains have"
            " not settled; more draws or warm-up, informative priors, or a model whose parameters"
            " the data determine",
            ConvergenceWarning,
            stacklevel=3,
        )
    _warn_degenerate(problem, flat)
    mean = {name: value.mean(0, keepdim=True) for name, value in flat.items()}
    with torch.no_grad():
        log_likelihood = program.log_marginal(mean).double().cpu().reshape(1)
        objective = log_likelihood + program.log_prior(mean).double().cpu()
    drawn = tuple(
        name for name in program.names("local") if name not in problem.structure.local_sites
    )
    if drawn:  # it would be the likelihood at one value of what should be integrated
        exact = None
        if not open_sites(problem.structure, program):
            exact = problem.structure.exact_objective(
                problem, {name: mean[name] for name in program.names("parameter")}
            )
        log_likelihood = torch.full_like(log_likelihood, torch.nan)
        if exact is not None:
            (log_likelihood, objective), drawn = exact, ()
    history = log_density.double().cpu().mean(0).unsqueeze(-1)
    return Outcome(
        params=mean,
        objective=objective,
        objective_name=(
            f"log-posterior of parameters and {', '.join(drawn)}" if drawn else "log-posterior"
        ),
        log_likelihood=log_likelihood,
        history=history,
        history_log_likelihood=torch.full_like(history, torch.nan),
        converged=torch.tensor([worst[0] <= GOOD_RHAT]),
        num_iterations=torch.tensor([num_draws]),
        draws={name: value for name, value in draws.items() if name not in local},
        trace_name="log-posterior density on the unconstrained scale, mean over chains",
        sample_stats=sample_stats,
        renamed=renamed_in_words(found, changed),
    )


def _warn_degenerate(problem: Problem, draws: Params) -> None:
    """Warn where a component is empty, or is another's copy, in a share of the draws (S, ...)."""
    num = len(next(iter(draws.values())))
    some = torch.arange(0, num, max(1, num // LOOKED_AT))
    found = degenerate_restarts(problem, {name: value[some] for name, value in draws.items()})
    faults = Counter(word for words in found for word in words)
    share = sum(bool(words) for words in found) / len(found)
    if share > MOST_DEGENERATE:
        warnings.warn(
            f"in {share:.0%} of the draws the solution is degenerate, most often because"
            f" {faults.most_common(1)[0][0]}: the data say nothing of such a component, whose"
            " parameters then follow their prior alone, to the ends of their intervals if it is"
            " flat; take fewer components, or informative priors",
            DegenerateWarning,
            stacklevel=4,
        )

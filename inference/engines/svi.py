r"""Stochastic variational inference by Pyro's ``SVI``, latents summed out or guided.

Maximised is the evidence lower bound :math:`E_q[\log p(x, \theta) - \log q(\theta)]`, with the
discrete latents enumerated inside it unless the guide draws them. Draws from the guide are handed
back with their importance ratios, whose k-hat says whether the guide covers the posterior.

Source: M. D. Hoffman, D. M. Blei, C. Wang and J. Paisley (2013), JMLR 14; E. Bingham et al. (2019),
Pyro, JMLR 20.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyro
import torch
from pyro.infer import SVI as PyroSVI, TraceEnum_ELBO, TraceGraph_ELBO
from pyro.optim import ClippedAdam, PyroOptim
from torch import Tensor

from inference.base.align import relabel_draws
from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import is_method, open_sites
from inference.engines.autoguides import FullRank, LowRank, MeanField
from inference.engines.em import EM
from inference.engines.importance import log_posteriors, warn_of_ratios
from inference.programs.global_state import isolated, quiet
from inference.programs.guide_traces import drawn_sites, hidden, one_draw
from inference.programs.potential import Potential
from inference.programs.program import Params, Program
from ppl_models.data.tables import checks_data
from ppl_models.parts.validation import check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem


FLAT = (
    1e-3  # the bound has settled when its second last and last fifth differ by less, a coordinate
)
Guide = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class SVI:
    """Variational inference with Pyro.

    Args:
        guide: :class:`MeanField`, :class:`FullRank`, :class:`LowRank`, or a Pyro guide of your own,
            called with the arguments of the model. It must draw every parameter; latents it does
            not draw are summed out.
        num_steps: gradient steps.
        learning_rate: of Adam, in posterior standard deviations; it falls to a hundredth of it over
            the steps.
        num_particles: draws of the guide a step, evaluated as one batch.
        batch_size: rows a step, None for all; for models called as ``model(data, num_rows)``.
        num_draws: draws from the fitted guide.
        warm_start: the engine whose optimum the guide starts at; None for the start that ``fit``
            was given or drew.

    Raises:
        ValueError: for a setting out of range; at ``fit``, for a guide that misses a site, naming
            it.
    """

    guide: MeanField | FullRank | LowRank | Guide = dataclasses.field(default_factory=MeanField)
    num_steps: int = 1000
    learning_rate: float = 0.02
    num_particles: int = 4
    batch_size: int | None = None
    num_draws: int = 1000
    warm_start: EM | None = dataclasses.field(default_factory=EM)

    def __post_init__(self) -> None:
        plain_fields(self)
        for name, least in (
            ("num_steps", 10),
            ("num_particles", 1),
            ("num_draws", 4),
            ("batch_size", 1),
        ):
            value = getattr(self, name)
            if value is None and name == "batch_size":
                continue
            check_size("SVI", name, value, least, f"an integer of {least} or more")
        check_number("SVI", "learning_rate", self.learning_rate, "be a positive number", above=0)
        if isinstance(self.guide, type) or not (
            hasattr(self.guide, "build") or callable(self.guide)
        ):
            raise ValueError(
                "SVI: guide must be MeanField(), FullRank(), LowRank() or a Pyro guide, got"
                f" {self.guide!r}"
            )
        if self.warm_start is not None and not is_method(self.warm_start):
            raise ValueError(
                f"SVI: warm_start must be an engine such as EM(), or None, got {self.warm_start!r}"
            )

    @property
    def in_units_of_the_data(self) -> bool:
        """Tell whether the settings are in units of the data, as a guide of the user's own is."""
        return not hasattr(self.guide, "build")

    @property
    def max_iterations(self) -> int:
        """Number of gradient steps."""
        return self.num_steps

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run SVI; a checkpoint holds the guide, its optimiser and the random states."""
        program = problem.program()
        if self.batch_size is not None and not (
            isinstance(problem.data, Tensor) and checks_data(problem.model)
        ):
            raise ValueError("SVI: batch_size needs a model of this library and a table of rows")
        if self.batch_size is not None and program.names("local") and hasattr(self.guide, "build"):
            raise ValueError(
                f"SVI: {', '.join(program.names('local'))} of all rows have their place in this"
                " guide, so it cannot be fitted to batches of them: leave batch_size out, or write"
                " a guide that draws them in the plate over rows"
            )
        with isolated(problem.seed):
            run = _Run.begin(self, problem, program, self._first(problem, program, start, progress))
            store = (
                None
                if checkpoint is None
                else Checkpoint(checkpoint, problem.fingerprint(self, start))
            )
            history = run.optimise(progress, store)
            draws, log_guide = run.draws()
        return self._outcome(problem, program, draws, log_guide, history, progress.stopped)

    def _first(
        self, problem: Problem, program: Program, start: Params, progress: Progress
    ) -> Params:
        """Initial values of the guide, (1, ...)."""
        is_open = bool(open_sites(problem.structure, program))
        if (
            self.warm_start is not None
            and not problem.start_given
            and not is_open
            and hasattr(self.guide, "build")
        ):
            with quiet():
                outcome = self.warm_start.run(problem, start, progress, None)
            best = int(
                torch.where(outcome.objective.isnan(), -torch.inf, outcome.objective).argmax()
            )
            start = {name: value[best : best + 1] for name, value in outcome.params.items()}
        return {name: value[:1] for name, value in start.items()}

    def _outcome(
        self,
        problem: Problem,
        program: Program,
        draws: Params,
        log_guide: Tensor,
        history: Tensor,
        stopped: bool,
    ) -> Outcome:
        known = problem.structure.local_sites
        log_joint = log_posteriors(program, draws)
        ratio = (log_joint - log_guide).double().cpu()
        labels = problem.exchangeable()
        reference = problem.canonical({name: value.mean(0) for name, value in draws.items()})
        draws, changed = relabel_draws(draws, labels, reference, program.inside)
        is_point = all(bool((value == value[:1]).all()) for value in draws.values())
        sample_stats: Params = {"lp": log_joint[None].double().cpu()}
        if not is_point:
            sample_stats["log_importance"] = ratio[None]
            warn_of_ratios(ratio, "SVI", "try FullRank(), or NUTS where the model allows")
        if labels:
            sample_stats["relabelled"] = changed[None]
        mean = {name: value.mean(0, keepdim=True) for name, value in draws.items()}
        at_mean = log_posteriors(program, mean)
        log_likelihood = (at_mean - program.log_prior(mean).detach()).double().cpu()
        if set(program.names("local")) - set(
            problem.structure.local_sites
        ):  # it would be the likelihood at one value of what should be integrated
            log_likelihood = torch.full_like(log_likelihood, torch.nan)
        settled = self._settled(history, sum(value[0].numel() for value in draws.values()))
        if not settled and not stopped:
            warnings.warn(
                f"SVI: the evidence lower bound still moved after {self.num_steps} steps; raise"
                " num_steps",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Outcome(
            params=mean,
            objective=ratio.mean().reshape(1),
            objective_name="ELBO",
            log_likelihood=log_likelihood,
            history=history[:, None],
            history_log_likelihood=torch.full_like(history[:, None], torch.nan),
            converged=torch.tensor([settled]),
            num_iterations=torch.tensor([len(history)]),
            draws=(
                None
                if is_point
                else {name: value[None] for name, value in draws.items() if name not in known}
            ),
            elbo=ratio.mean().reshape(1),
            sample_stats=sample_stats,
        )

    def _settled(self, history: Tensor, size: int) -> bool:
        if len(history) < 10:
            return False
        last, before = (
            history[-len(history) // 5 :],
            history[-2 * len(history) // 5 : -len(history) // 5],
        )
        noise = float((last.var() / len(last) + before.var() / len(before)).sqrt())
        return abs(float(last.mean() - before.mean())) < max(FLAT * size, 3 * noise)


# ---------------------------------------------------------------- a run


@dataclasses.dataclass(eq=False)
class _Run:
    method: SVI
    problem: Problem
    program: Program
    model: Callable[..., Any]
    guide: Guide
    guided_latents: bool

    @classmethod
    def begin(cls, method: SVI, problem: Problem, program: Program, first: Params) -> _Run:
        latents = program.names("latent")
        if hasattr(method.guide, "build"):
            program.check_enumerable()
            complete = (
                program.draw_prior(1, problem.seed, local=True) | first
            )  # what the start leaves out, such as activities that EM sums out
            potential = Potential(program, complete)
            point = potential.vector(complete)[0]
            guide = method.guide.build(hidden(program.without_latents(), latents), potential, point)
            with pyro.validation_enabled(
                False
            ):  # a start without a density is said at the first step
                guide(*cls.arguments(problem, None))  # lays its parameters out
            return cls(method, problem, program, program.without_latents(), guide, False)
        guide = method.guide
        drawn = drawn_sites(guide, cls.arguments(problem, None))
        needed = {*program.names("parameter"), *program.names("local")}
        guided = set(latents) <= set(drawn) and bool(latents)
        missing = sorted(needed - set(drawn)) + (
            []
            if guided
            else sorted(name for name in latents if program.site(name).num_values is None)
        )
        if missing:
            raise ValueError(
                f"SVI: the guide does not draw {', '.join(map(repr, missing))}, which the model"
                f" needs; it draws {sorted(drawn)}"
            )
        known = needed | set(latents)
        strange = sorted(
            name for name, auxiliary in drawn.items() if name not in known and not auxiliary
        )
        if strange:
            raise ValueError(
                f"SVI: the guide draws {', '.join(map(repr, strange))}, which the model does not"
                f" have; its sites are {sorted(known)}"
            )
        model = program.model if guided else program.without_latents()
        return cls(method, problem, program, model, guide, guided)

    @staticmethod
    def arguments(problem: Problem, rows: Tensor | None) -> tuple[Any, ...]:
        """Arguments of model and guide."""
        return (problem.data,) if rows is None else (problem.data[rows], problem.num_rows)

    def optimise(self, progress: Progress, store: Checkpoint | None) -> Tensor:
        """Run the steps and return the bound at each, (num_steps,)."""
        method, generator = self.method, torch.Generator().manual_seed(self.problem.seed)
        several = method.num_particles > 1 and not self.guided_latents and self.program.broadcasts()
        nesting = self.program.max_plate_nesting
        elbo = (TraceGraph_ELBO if self.guided_latents else TraceEnum_ELBO)(
            num_particles=method.num_particles,
            vectorize_particles=several,
            max_plate_nesting=nesting,
        )
        decay = 0.01 ** (1 / method.num_steps)
        optimiser = ClippedAdam({"lr": method.learning_rate, "lrd": decay})
        svi = PyroSVI(self.model, self.guide, optimiser, elbo)
        saved = None if store is None else store.load(_State)
        history = [] if saved is None else saved.resume(optimiser, generator)
        while len(history) < method.num_steps and not (progress.stopped and history):
            rows = None
            if method.batch_size is not None and method.batch_size < self.problem.num_rows:
                rows = torch.randperm(self.problem.num_rows, generator=generator)[
                    : method.batch_size
                ]
            with pyro.validation_enabled(False):
                loss = svi.step(*self.arguments(self.problem, rows))
            if not math.isfinite(loss):
                raise ValueError(
                    f"SVI: the evidence lower bound was not finite at step {len(history) + 1};"
                    " lower learning_rate, or start the guide inside the support"
                )
            history.append(-float(loss))
            progress.update(len(history), objective=history[-1], active=1, engine="SVI")
            if store is not None and (
                len(history) % store.every == 0
                or len(history) == method.num_steps
                or progress.stopped
            ):
                store.save(_State.of(optimiser, generator, history))
        return torch.tensor(history, dtype=torch.float64)

    def draws(self) -> tuple[Params, Tensor]:
        """Draws of the parameters from the guide and their log densities, (D, ...) and (D,)."""
        names = [*self.program.names("parameter"), *self.program.names("local")]
        latents = set(self.program.names("latent"))
        kept: dict[str, list[Tensor]] = {name: [] for name in names}
        log_guide = []
        with torch.no_grad(), pyro.validation_enabled(False):
            for _ in range(self.method.num_draws):
                values, log_density = one_draw(
                    self.guide, self.arguments(self.problem, None), names, latents
                )
                log_guide.append(log_density)
                for name, value in values.items():
                    kept[name].append(value)
        return {name: torch.stack(values) for name, values in kept.items()}, torch.stack(log_guide)


@dataclasses.dataclass(frozen=True)
class _State:
    """Resumable state of a run: guide, optimiser and random states.

    Args:
        values: parameters of the guide on the unconstrained scale, by name; first, second: Adam's
            moments of each.
        adam: of each its name, the steps it has taken, and its settings with the present learning
            rate.
        generator, random: states of the mini-batches' and of torch's own random numbers.
        history: the bound at each step, (steps,).
    """

    values: Params
    first: Params
    second: Params
    adam: list[Any]
    generator: Tensor
    random: Tensor
    history: Tensor

    @classmethod
    def of(cls, optimiser: PyroOptim, generator: torch.Generator, history: list[float]) -> _State:
        values = {name: value.detach() for name, value in pyro.get_param_store().named_parameters()}
        states = {
            name: (state["state"].get(0, {}), state["param_groups"][0])
            for name, state in optimiser.get_state().items()
        }
        moved = {name: moments for name, (moments, _) in states.items() if moments}
        first = {name: moments["exp_avg"] for name, moments in moved.items()}
        second = {name: moments["exp_avg_sq"] for name, moments in moved.items()}
        adam = [[name, moments.get("step", 0), group] for name, (moments, group) in states.items()]
        course = torch.tensor(history, dtype=torch.float64)
        return cls(
            values, first, second, adam, generator.get_state(), torch.get_rng_state(), course
        )

    def resume(self, optimiser: PyroOptim, generator: torch.Generator) -> list[float]:
        """Restore the state; return the history so far."""
        for name, parameter in pyro.get_param_store().named_parameters():
            parameter.data.copy_(self.values[name])
        optimiser.set_state(
            {
                name: {"state": self._moments(name, step), "param_groups": [group]}
                for name, step, group in self.adam
            }
        )
        generator.set_state(self.generator)
        torch.set_rng_state(self.random)
        out: list[float] = self.history.tolist()
        return out

    def _moments(self, name: str, step: int) -> dict[int, Any]:
        if name not in self.first:
            return {}
        return {0: {"step": step, "exp_avg": self.first[name], "exp_avg_sq": self.second[name]}}

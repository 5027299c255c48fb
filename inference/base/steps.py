"""Halves of EM: the generic pair for any program, sums of statistics, and drawn latents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from inference.base.gibbs import GenericGibbs, Gibbs, Latents
from inference.programs.elimination import FactorPosteriors
from inference.programs.expectation import Expectation, unit_steps
from inference.programs.fixed import Fixed
from inference.programs.program import Params, Program

S = TypeVar("S")


class EStep(NamedTuple, Generic[S]):
    """Expected statistics of the rows with the log-likelihood (R,) and the log-prior (R,)."""

    statistics: S  # of parts of the rows they are added up by add_statistics
    log_likelihood: Tensor
    log_prior: Tensor


class Steps(Protocol[S]):
    """Halves of EM for a model; a base to inherit from.

    Parameters carry a leading dim of R restarts.
    """

    @property
    def known_sites(self) -> frozenset[str]:
        """Sites fixed by the data alone, which one M-step settles."""
        return frozenset()

    def e_step(self, params: Params) -> EStep[S]:
        """Expected statistics of the rows at ``params``, (R, ...)."""
        ...

    def m_step(self, statistics: S, params: Params) -> Params:
        """Parameters whose expected complete-data log-posterior is not below that of ``params``."""
        ...

    def on(self, data: Any, weights: Tensor | None = None) -> Steps[S]:
        """Steps on other rows of the same model, their statistics to be added to those of these.

        Args:
            data: as the model checks it. Where these rows have missing entries, the statistics of
                others allow for them too.
            weights: how often each row counts, (N,); None for once.

        Raises:
            ValueError: for weights, of steps that do not count rows by them.
        """
        ...

    def refuse_weights(self, weights: Tensor | None) -> None:
        """Refuse weights of rows, in steps that do not count rows by them.

        Raises:
            ValueError: naming the steps.
        """
        if weights is not None:
            raise ValueError(
                "weights: steps that count rows by weights were expected, got"
                f" {type(self).__name__}"
            )

    def pooled(self, statistics: S, ties: Mapping[str, Tensor]) -> S:
        """Statistics whose M-step finds equal values of tied entries, the best in common.

        Args:
            ties: as :class:`inference.programs.fixed.Fixed` has them.
        """
        return statistics

    def relax(self) -> Steps[S] | None:
        """Steps under an easier objective, which improve a random start first; None for none."""
        return None


@dataclass(frozen=True)
class GenericSteps(Steps[FactorPosteriors]):
    """EM for any program: posteriors by differentiation, M-step by Newton's method or L-BFGS.

    Its cost grows with the rows in both halves, for it knows nothing of the program but its
    log-density. Where the prior has kinks (the penalties), the gradient method comes near a kink
    and not onto it.

    Args:
        program: the program with its data.
        num_steps: L-BFGS iterations of one M-step, where Newton's method does not pay or has not
            arrived.
    """

    program: Program
    num_steps: int = 30

    @cached_property
    def _halves(self) -> Expectation:
        return Expectation(self.program)

    def e_step(self, params: Params) -> EStep[FactorPosteriors]:
        # at the parameters themselves where that is cheap: the replay goes by free coordinates,
        # which cost digits where an interval is wide
        posteriors = (
            self.program.factor_posteriors(params)
            if self.program.is_own
            else self._halves.posteriors(params)
        )
        local = self.program.log_prior_local(
            params
        ).detach()  # estimated beside the parameters: their distribution is a prior
        return EStep(posteriors, posteriors.log_marginal - local, posteriors.log_prior + local)

    def m_step(self, statistics: FactorPosteriors, params: Params) -> Params:
        return self._halves.maximise(statistics, params, self.num_steps)

    def on(self, data: Any, weights: Tensor | None = None) -> GenericSteps:
        """Steps on other rows: log-likelihoods add up, posteriors do not."""
        return GenericSteps(self.program.with_data(data).weighed(weights), self.num_steps)


@dataclass(frozen=True)
class FixedSteps(Steps[S]):
    """Steps whose parameters have known entries, M-steps the maximum given these.

    Args:
        base: steps whose M-step separates in the known and the free entries, or that climbs in
            coordinates which lead to no other parameters.
        fixed: what is known.
    """

    base: Steps[S]
    fixed: Fixed

    @property
    def known_sites(self) -> frozenset[str]:
        return self.base.known_sites

    def e_step(self, params: Params) -> EStep[S]:
        """E-step at the parameters with what is known, from wherever an extrapolation led."""
        return self.base.e_step(self.fixed.restored(params))

    def m_step(self, statistics: S, params: Params) -> Params:
        pooled = self.base.pooled(statistics, self.fixed.ties) if self.fixed.ties else statistics
        return self.fixed.restored(self.base.m_step(pooled, self.fixed.restored(params)))

    def on(self, data: Any, weights: Tensor | None = None) -> FixedSteps[S]:
        """Steps on other rows of the same model."""
        return replace(self, base=self.base.on(data, weights))


def add_statistics(parts: Sequence[S]) -> S:
    """Statistics of all rows from those of parts of the rows.

    Tensors, and tensors in dicts and records, are summed. A record tells what is no sum in the
    metadata of its fields: ``{"sum": False}``, the same in all parts (a table of configurations);
    ``{"join": dim}``, one entry a row, in order.

    Args:
        parts: of one kind, at least one.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(type(part) is not type(first) for part in parts):
        kinds = sorted({type(part).__name__ for part in parts})
        raise ValueError(
            f"statistics of one kind were expected, got {kinds}: are entries missing in some of the"
            " parts only?"
        )
    if first is None:
        return first
    if isinstance(first, Tensor):
        shapes = sorted({tuple(part.shape) for part in parts})  # type: ignore[attr-defined]
        if len(shapes) > 1:
            raise ValueError(
                f"statistics of one shape were expected, got {shapes}: are entries missing in some"
                " of the parts only?"
            )
        return torch.stack(list(parts)).sum(0)  # type: ignore[arg-type, return-value]
    if isinstance(first, dict):
        if any(part.keys() != first.keys() for part in parts):  # type: ignore[attr-defined]
            raise ValueError(
                f"statistics by one set of names were expected, got {sorted({*map(tuple, parts)})}"  # type: ignore[arg-type]
            )
        return {name: add_statistics([part[name] for part in parts]) for name in first}  # type: ignore[index, return-value]
    if not is_dataclass(first):
        raise ValueError(
            f"statistics must be tensors, dicts of them or records, got {type(first).__name__}"
        )
    added = {}
    for part_of in fields(first):
        values = [getattr(part, part_of.name) for part in parts]
        if "join" in part_of.metadata and values[0] is not None:
            added[part_of.name] = torch.cat(values, part_of.metadata["join"])
        elif part_of.metadata.get("sum", True):
            added[part_of.name] = add_statistics(values)
        elif all(_same(value, values[0]) for value in values):
            added[part_of.name] = values[0]
        else:
            raise ValueError(
                f"{type(first).__name__}.{part_of.name} is not a sum over rows, and differs between"
                " the parts"
            )
    return replace(first, **added)  # type: ignore[type-var]


class RunningSum(Generic[S]):
    """:func:`add_statistics` of parts that come one by one.

    Sums of equally many parts are added as soon as there are two of them, as digits carry in a
    binary number: few are held at a time (many small tensors between the large ones of their making
    keep memory from being given back), and what is joined is copied a few times only.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[int, S]] = []  # of how many parts, fewer from sum to sum

    def add(self, part: S) -> None:
        """Add the statistics of one more part."""
        number = 1
        while self._sums and self._sums[-1][0] == number:
            _, before = self._sums.pop()
            part, number = add_statistics([before, part]), 2 * number
        self._sums.append((number, part))

    def total(self) -> S:
        """Sum of all parts so far, at least one."""
        return add_statistics([part for _, part in self._sums])


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return value is other or torch.equal(value, other)
    if not isinstance(value, dict):
        return bool(value == other)
    return all(_same(value[name], other[name]) for name in value)


def summed_statistics(steps: Steps[S], params: Params, parts: Iterable[Any]) -> tuple[S, Tensor]:
    """Sum statistics and log-likelihood (R,) over parts of the rows, one held at a time.

    Args:
        steps: of any rows of the model.
        params: (R, ...).
        parts: the data, part by part.
    """
    statistics, log_likelihood, number = RunningSum[S](), torch.zeros(()), 0
    for data in parts:
        part, value, _ = steps.on(data).e_step(params)
        statistics.add(part)
        log_likelihood, number = log_likelihood + value, number + 1
    if not number:
        raise ValueError("parts: at least one part of the rows was expected, got none")
    return statistics.total(), log_likelihood


WALL = 1e30  # of a loss where the density, or its slope, is not finite


def maximise_free(
    program: Program, bound: Callable[[Params], Tensor], params: Params, num_steps: int
) -> Params:
    """Maximise by L-BFGS, unconstrained; a restart that does not gain stays.

    Args:
        program: whose parameters they are.
        bound: what is maximised, (R,), as a function of the parameters.
        params: the start, (R, ...).
        num_steps: iterations.
    """
    free = {name: value.detach() for name, value in program.unconstrained(params).items()}
    unit = unit_steps(program, free)
    steps = {
        name: torch.zeros_like(value, memory_format=torch.contiguous_format).requires_grad_()
        for name, value in free.items()
    }  # L-BFGS views them
    optimizer = torch.optim.LBFGS(
        list(steps.values()),
        max_iter=num_steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def moved() -> Params:
        return program.constrained(
            {name: free[name] + unit[name] * step for name, step in steps.items()}
        )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -bound(moved()).sum()
        loss.backward()
        gradients = [step.grad for step in steps.values() if step.grad is not None]
        if all(bool(own.isfinite().all()) for own in (loss, *gradients)):
            return loss
        for own in gradients:  # a wall, from which the line search turns back
            own.zero_()
        return torch.full_like(loss, WALL)

    with torch.no_grad():
        before = bound(params)
    optimizer.step(closure)
    with torch.no_grad():
        new = moved()
        better = bound(new) >= before
        return {
            name: (
                torch.where(
                    better.reshape((-1,) + (1,) * (value.dim() - 1)), value, params[name]
                ).detach()
            )
            for name, value in new.items()
        }


SET = "data set"  # entry beside the parameters


def without_set(params: Params) -> Params:
    """Parameters without the entry that names their data set."""
    return {name: value for name, value in params.items() if name != SET}


Averages = dict[str, Tensor]


class DrawSteps(Protocol):
    """Steps of SAEM for a model: draws, statistics, and the M-step.

    Parameters and latents carry a leading dim of R restarts.
    """

    @property
    def gibbs(self) -> Gibbs:
        """The sampler of the latents."""
        ...

    def statistics(self, params: Params, latents: Latents, chances: Latents) -> Averages:
        """Statistics of one draw."""
        ...

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        """Log p(rows, latents), (R,), without the prior.

        Where the rows are very many, of some of them, scaled up.
        """
        ...

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        """Running average: (1 - rate) old + rate new."""
        ...

    def maximise(self, averages: Averages, params: Params) -> Params:
        """Maximise the averaged complete-data log-posterior, from ``params``."""
        ...

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        """Maximise the complete-data log-posterior of one draw, from ``params``."""
        ...

    def relax(self) -> DrawSteps | None:
        """The same steps under convex penalties; None where no parameter is penalised."""
        ...

    def rows(self, index: Tensor) -> DrawSteps:
        """The steps of some of the rows, their statistics scaled up to all rows."""
        ...


@dataclass(frozen=True, eq=False)
class FixedDraws:
    """Steps of SAEM whose parameters have known entries, as :class:`FixedSteps` are of EM.

    Args:
        base: steps whose maximum separates in the known and the free entries.
        fixed: what is known.
    """

    base: DrawSteps
    fixed: Fixed

    @property
    def gibbs(self) -> Gibbs:
        return self.base.gibbs

    def statistics(self, params: Params, latents: Latents, chances: Latents) -> Averages:
        return self.base.statistics(params, latents, chances)

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        return self.base.log_joint(params, latents)

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        return self.base.average(old, new, rate)

    def maximise(self, averages: Averages, params: Params) -> Params:
        return self.fixed.restored(self.base.maximise(averages, params))

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        return self.fixed.restored(self.base.maximise_draw(params, latents, chances))

    def relax(self) -> FixedDraws | None:
        relaxed = self.base.relax()
        return None if relaxed is None else replace(self, base=relaxed)

    def rows(self, index: Tensor) -> FixedDraws:
        return replace(self, base=self.base.rows(index))


@dataclass(frozen=True, eq=False)
class GenericDraws:
    """SAEM for any program of binary latents, by L-BFGS over weighted last draws.

    Args:
        gibbs: the sampler, which holds the program.
        num_kept: draws kept; the weight of an older one is dropped.
        num_steps: L-BFGS iterations of one maximisation.
    """

    gibbs: GenericGibbs
    num_kept: int = 16
    num_steps: int = 5

    def statistics(self, params: Params, latents: Latents, chances: Latents) -> Averages:
        kept = {name: value.unsqueeze(0) for name, value in self.gibbs.shaped(latents).items()}
        return {"weight": next(iter(params.values())).new_ones(1)} | kept

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        return self.gibbs.log_joint_rows(params, latents).sum(-1)

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        if old is None:
            return new
        old = old | {"weight": old["weight"] * (1 - rate)}
        new = new | {"weight": new["weight"] * rate}
        joined = {
            name: torch.cat([old[name], value])[-self.num_kept :] for name, value in new.items()
        }
        heavy = joined["weight"] > 0
        joined = {name: value[heavy] for name, value in joined.items()}
        return joined | {"weight": joined["weight"] / joined["weight"].sum()}

    def maximise(self, averages: Averages, params: Params) -> Params:
        program, weight = self.gibbs.program, averages["weight"]
        num_restarts = len(next(iter(params.values())))
        latents = {
            name: value.flatten(0, 1) for name, value in averages.items() if name != "weight"
        }  # (M R, ...)

        def bound(values: Params) -> Tensor:
            repeated = {
                name: value.repeat(len(weight), *[1] * (value.dim() - 1))
                for name, value in values.items()
            }
            rows = (
                program.log_joint_rows(repeated, latents).sum(-1).reshape(len(weight), num_restarts)
            )
            return weight @ rows + program.log_prior(values)

        return maximise_free(program, bound, params, self.num_steps)

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        return self.maximise(self.statistics(params, latents, chances), params)

    def relax(self) -> None:
        return None

    def rows(self, index: Tensor) -> DrawSteps:
        raise ValueError(
            "SAEM: batch_rows needs a model that describes its layers, got a plain program"
        )

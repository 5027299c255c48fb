r"""Optima of restarts: which agree, and which are degenerate.

Two restarts have reached the same optimum when their objectives agree, and either their parameters
do, under the same names of the latents, or the objective half-way between them lies no lower than
at both: on one hill, approached slowly from two sides. Where an engine draws, and objectives differ
by chance, the parameters alone decide: they have to agree up to what draws make of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.streaming.summed_steps import SummedGenericSteps, SummedSteps
from inference.base.structure import Capability, Structure
from inference.programs.program import Params
from inference.programs.restarts import stacked

if TYPE_CHECKING:
    from inference.base.structure import Problem


SAME_VALUE = 1e-6  # relative difference of objectives of one optimum
NEAR = 5e-3  # nats: the same, of estimates on a flat top, run on until they hardly gain
ROUNDINGS = 64  # of the parameters' precision, that an objective of many rows may lose
SAME_PARAMETERS = 1e-3  # largest difference of parameters of one optimum
MOST_MIDPOINTS = (
    20  # comparisons that need the objective once more; beyond them, objectives alone decide
)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranking of the restarts of a fit.

    Args:
        best: index of the best restart; degenerate solutions rank behind all others, whatever their
            objective.
        optimum: (R,) long; which optimum each reached, 0 the best; -1 for degenerate solutions and
            failed restarts.
        degenerate: by restart, what is wrong with its solution, () where nothing is.
    """

    best: int
    optimum: Tensor
    degenerate: tuple[tuple[str, ...], ...]

    @property
    def num_reached(self) -> int:
        """Restarts that reached the best optimum."""
        return int((self.optimum == 0).sum())


def rank_restarts(
    problem: Problem, params: Params, objective: Tensor, spread: float | None = None
) -> Ranking:
    """Compare the restarts of a fit.

    Args:
        params: (R, ...); objective: (R,).
        spread: how far apart, relative to their length, draws may leave the parameters of two
            restarts of one optimum; None for an engine that does not draw.
    """
    canonical, finite = _canonical(problem, params)
    degenerate = _degenerate(problem, canonical, finite)
    params = params if problem.is_named else canonical
    value = torch.where(objective.isnan(), -torch.inf, objective.double().cpu())
    sound = torch.tensor([not words for words in degenerate]) & value.isfinite()
    allowed = torch.where(sound, value, -torch.inf) if sound.any() else value
    return Ranking(
        int(allowed.argmax()), distinct_optima(problem, params, allowed, spread), degenerate
    )


def degenerate_restarts(problem: Problem, params: Params) -> tuple[tuple[str, ...], ...]:
    """Faults of the solution of each restart; see ``Structure.degenerate``."""
    return _degenerate(problem, *_canonical(problem, params))


def _canonical(problem: Problem, params: Params) -> tuple[Params, Tensor]:
    """Restarts (R, ...) in canonical labels where they are finite, and which are, (R,)."""
    finite = torch.stack(
        [value.isfinite().reshape(len(value), -1).all(-1).cpu() for value in params.values()]
    ).all(0)
    every = [
        problem.structure.canonical(own) if is_finite else own
        for is_finite, own in zip(finite.tolist(), _rows(params), strict=True)
    ]
    return stacked(every), finite


def _rows(params: Params) -> list[Params]:
    """Parameters of each restart."""
    return [
        dict(zip(params, own, strict=True))
        for own in zip(*(map(list, params.values())), strict=True)
    ]


def _degenerate(problem: Problem, params: Params, finite: Tensor) -> tuple[tuple[str, ...], ...]:
    """Faults of restarts in canonical labels."""
    places = finite.nonzero().ravel()
    if len(places) < len(finite):
        params = {name: value[places.to(value.device)] for name, value in params.items()}
    found = iter(problem.structure.degenerate(problem, params) if len(places) else ())
    return tuple(next(found) if is_finite else ("not finite",) for is_finite in finite.tolist())


def better_half(objective: Tensor, active: Tensor, converged: Tensor) -> Tensor:
    """Restarts of a race that go on: as many as half of those active, the best of all.

    Those that have converged hold places among them.

    Args:
        objective: (R,); active: indices of the restarts still running; converged: (R,) bool.
    """
    rivals = torch.cat([active, converged.nonzero()[:, 0]])
    value = objective[rivals].nan_to_num(-math.inf)
    best = value.argsort(descending=True, stable=True)[: -(-len(active) // 2)]
    return active[best[best < len(active)].sort().values]


def distinct_optima(
    problem: Problem, params: Params, objective: Tensor, spread: float | None = None
) -> Tensor:
    """Optimum reached by each restart, (R,): 0 the best; -1 where the objective is -inf.

    See :func:`rank_restarts`.
    """
    sites = problem.structure.local_sites
    params = {name: value.detach() for name, value in params.items() if name not in sites}
    numbers, relative = torch.full((len(objective),), -1), _relative(params)
    heads: list[int] = []
    near: list[list[bool]] = []  # restarts near each head in the labels that they have
    midpoints = 0 if sites else MOST_MIDPOINTS
    values = objective.tolist()
    for r in objective.argsort(descending=True, stable=True).tolist():
        value = values[r]
        if value == -torch.inf:
            break
        for number, head in enumerate(heads):
            if spread is not None:
                if _apart(problem, params, r, head) <= spread:
                    numbers[r] = number
                    break
                continue
            if values[head] - value > max(NEAR, relative * abs(values[head])):
                continue
            verdict = near[number][r] or _same_parameters(problem, params, r, head)
            if verdict is None and midpoints > 0:
                midpoints -= 1
                verdict = _on_one_hill(problem, params, r, head)
            if verdict is not False:
                numbers[r] = number
                break
        else:
            numbers[r] = len(heads)
            heads.append(r)
            near.append(_near(params, r))
    return numbers


def _near(params: Params, head: int) -> list[bool]:
    """Tell which restarts are near another, no latent renamed."""
    gaps = [
        (value - value[head]).abs().reshape(len(value), -1).amax(-1).cpu()
        for value in params.values()
        if value.numel()
    ]
    near: list[bool] = (torch.stack(gaps).amax(0) <= SAME_PARAMETERS).tolist()
    return near


def same_value(params: Params, objective: float) -> float:
    """Difference of objectives of one optimum: relative, by precision, or ``NEAR`` nats."""
    return max(NEAR, _relative(params) * max(1.0, abs(objective)))


def rounding(params: Params) -> float:
    """Relative rounding error of an objective of many rows, by the precision of parameters."""
    return max(
        (
            ROUNDINGS * torch.finfo(value.dtype).eps
            for value in params.values()
            if value.is_floating_point()
        ),
        default=0.0,
    )


def _relative(params: Params) -> float:
    return max(SAME_VALUE, rounding(params))


def _like(problem: Problem, params: Params, r: int, head: int) -> tuple[Params, Params] | None:
    """Parameters of one restart aligned with another's, and the other's, or None."""
    first, second = ({name: value[i] for name, value in params.items()} for i in (r, head))
    if problem.is_named:
        return first, second
    aligned = problem.structure.align(first, second)
    return None if aligned is None else (aligned.params, second)


def _same_parameters(problem: Problem, params: Params, r: int, head: int) -> bool | None:
    """True where they agree or cannot be compared, None where they differ."""
    pair = _like(problem, params, r, head)
    if pair is None:
        return True
    first, second = pair
    near = all(
        float((first[name] - value).abs().max()) <= SAME_PARAMETERS
        for name, value in second.items()
        if value.numel()
    )
    return True if near else None


def _apart(problem: Problem, params: Params, r: int, head: int) -> float:
    """The distance of the parameters of two restarts, relative to the length of the second's."""
    pair = _like(problem, params, r, head)
    if pair is None:
        return math.inf
    first, second = pair
    distance, length = (
        sum(float(value.double().square().sum()) for value in values)
        for values in ([first[name] - value for name, value in second.items()], second.values())
    )
    return math.sqrt(distance / max(length, 1e-300))


def objective_of(problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
    """Exact objective of all rows, also where they come in blocks."""
    if problem.labels and Capability.LABELS not in problem.structure.capabilities:
        return Structure.exact_objective(problem.structure, problem, params)
    if problem.rows is None:
        return problem.structure.exact_objective(problem, params)
    steps = problem.steps(2**18, 1) if Capability.BLOCKS in problem.structure.capabilities else None
    summed = (
        SummedGenericSteps(problem.program(), problem.rows, 1, problem.model)
        if steps is None
        else SummedSteps(steps, problem.rows)
    )
    with torch.no_grad():
        _, log_likelihood, log_prior = summed.e_step(params)
    return log_likelihood.cpu(), (log_likelihood + log_prior).cpu()


def _on_one_hill(problem: Problem, params: Params, r: int, head: int) -> bool:
    """Objective half-way between two restarts is no lower than at both of them."""
    pair = _like(problem, params, r, head)
    assert pair is not None
    first, second = pair
    between = {
        name: torch.stack([first[name], (first[name] + value) / 2, value])
        for name, value in second.items()
    }
    objectives = objective_of(problem, between)
    if objectives is None or not bool(objectives[1].isfinite().all()):
        return True
    start, middle, end = objectives[1].tolist()
    return bool(middle >= min(start, end) - _relative(params) * max(1.0, abs(end)))

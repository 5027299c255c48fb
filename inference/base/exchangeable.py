r"""Exchangeable values of discrete latents in a program of the user, found by its density.

Values of a latent with K values may exchange names where parameters can be permuted with them
without a change of the posterior density,

.. math:: \log p(x, \theta_\pi) = \log p(x, \theta) ,

with :math:`\theta_\pi` the parameters whose dims of size K in a set S are permuted by
:math:`\pi`, and all others as they are. The program is not read for this: for every set S of such
dims and every pair of values the density is compared, at draws of the posterior and at points of
the prior. Pairs that may be exchanged generate all permutations within their connected parts, so
that values which differ in their prior, or by what stands in the program, keep their names.

Source: M. Stephens (2000), doi:10.1111/1467-9868.00265, for label switching.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.align import Labels, relabel_draws
from inference.programs.global_state import quiet
from inference.programs.program import Params, Program
from inference.programs.restarts import inner_points

if TYPE_CHECKING:
    from inference.base.structure import Problem

logger = logging.getLogger(__name__)

MOST_TRIALS = 3000  # sets of dims times pairs of values
AT_ONCE = 64
ROUNDS = 3  # of names, and of the spread under them
NUM_DRAWS = 3  # of the posterior at which the density is compared


@dataclass(frozen=True, eq=False)
class ExchangeableValues:
    """Values of a latent that may exchange names.

    Args:
        dims: of each site those that are permuted together, without a dim of draws.
        kinds: (K,) integers; values of one kind are exchangeable.
    """

    dims: Mapping[str, tuple[int, ...]]
    kinds: Tensor

    def in_words(self) -> str:
        """Entries and their sites in words."""
        groups = [
            [str(k) for k in (self.kinds == kind).nonzero().ravel().tolist()]
            for kind in self.kinds.unique().tolist()
        ]
        names = ", ".join(self.dims)
        if len(groups) == 1:
            return f"the {len(self.kinds)} entries of {names}"
        parts = [" and ".join(group) for group in groups if len(group) > 1]
        return f"entries {'; '.join(parts)} of {names}"

    def labels(self, draws: Params, reference: Params) -> Labels:
        """Labels by which draws (D, ...) are renamed, each site in units of its posterior spread.

        That spread is of draws that have their names, so that it is worked out in rounds, from
        that of all entries together on.

        Args:
            draws: of the posterior; reference: one of them, that first names come from.
        """
        scales = {name: _features(draws[name], dims).std() for name, dims in self.dims.items()}
        for _ in range(ROUNDS):
            named, _ = relabel_draws(draws, (self._in_units(scales),), reference)
            scales = {
                name: _features(named[name], dims).var(0).mean().sqrt()
                for name, dims in self.dims.items()
            }
        return self._in_units(scales)

    def _in_units(self, scales: Mapping[str, Tensor]) -> Labels:
        """Labels by which draws are renamed, each site in units of its own."""
        least = torch.finfo(torch.float32).tiny

        def features(params: Params) -> Tensor:
            return torch.cat(
                [
                    _features(params[name], dims) / scales[name].clamp(min=least).to(params[name])
                    for name, dims in self.dims.items()
                ],
                -1,
            )

        def rename(params: Params, permutation: Tensor, flips: Tensor) -> Params:
            return params | {
                name: _permuted(params[name], dims, permutation) for name, dims in self.dims.items()
            }

        return Labels(", ".join(self.dims), features, rename, kinds=self.kinds)


def exchangeable_values(program: Program, draws: Params) -> tuple[ExchangeableValues, ...]:
    """Find the values of discrete latents that may exchange names.

    Args:
        program: with its data.
        draws: of its posterior, (D, ...) by site.
    """
    values = {program.site(name).num_values or 0 for name in program.names("latent")}
    sizes = sorted(size for size in values if size > 1)
    if not sizes:
        return ()
    with torch.no_grad(), quiet():
        points = _points(program, draws)
        return tuple(found for size in sizes for found in _of_size(program, points, size))


def labels_of(
    problem: Problem, program: Program, draws: Params, reference: Params
) -> tuple[tuple[Labels, ...], tuple[ExchangeableValues, ...]]:
    """Labels by which draws are renamed like one, and what was found exchangeable."""
    labels = problem.exchangeable()
    if labels or program.is_own:
        return labels, ()
    found = exchangeable_values(program, draws)
    return tuple(each.labels(draws, reference) for each in found), found


def renamed_in_words(found: Sequence[ExchangeableValues], changed: Tensor) -> str | None:
    """Sentence on the draws that were renamed, and their share; None where none was."""
    if not found:
        return None
    names = " and ".join(each.in_words() for each in found)
    share = float(changed.double().mean())
    return f"{names} are exchangeable, and were renamed alike in {share:.0%} of draws"


def _points(program: Program, draws: Params) -> Params:
    """Points (R, ...) at which no symmetry but that of the program holds."""
    count = len(next(iter(draws.values())))
    places = torch.linspace(0, count - 1, NUM_DRAWS).long()
    inner = inner_points(program)
    points = {
        name: torch.cat([value[places.to(value.device)], inner[name].to(value)])
        if name in inner
        else value[places.to(value.device)]
        for name, value in draws.items()
    }
    is_finite = _log_density(program, points).isfinite()
    return {name: value[is_finite] for name, value in points.items()}


def _of_size(program: Program, points: Params, size: int) -> Iterator[ExchangeableValues]:
    places = [
        (name, dim)
        for name in program.names("parameter")
        for dim in range(points[name].dim() - 1)
        if points[name].shape[dim + 1] == size
    ]
    pairs = list(itertools.combinations(range(size), 2))
    num_trials = (2 ** len(places) - 1) * len(pairs)
    if num_trials > MOST_TRIALS:
        logger.info("%d ways of renaming %d values: none is tried", num_trials, size)
        return
    sets = [
        chosen
        for count in range(1, len(places) + 1)
        for chosen in itertools.combinations(places, count)
    ]
    trials = [
        (chosen, pair) for chosen in sets for pair in pairs if _keeps_known(program, chosen, pair)
    ]
    for point in range(len(next(iter(points.values())))):
        at = {name: value[point : point + 1] for name, value in points.items()}
        trials = _unchanged(program, at, trials)
    exchanged: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
    for chosen, pair in trials:  # smaller sets first: a larger one is a union of those
        if not any(set(other) < set(chosen) for other in exchanged):
            exchanged.setdefault(chosen, []).append(pair)
    for chosen, swaps in exchanged.items():
        kinds = torch.arange(size)
        for first, second in swaps:
            kinds[kinds == kinds[second]] = kinds[first].clone()
        dims = {
            name: tuple(dim for other, dim in chosen if other == name)
            for name in dict.fromkeys(name for name, _ in chosen)
        }
        yield ExchangeableValues(dims, kinds)


def _keeps_known(
    program: Program, chosen: tuple[tuple[str, int], ...], pair: tuple[int, int]
) -> bool:
    """Tell whether known entries of parameters are the same after an exchange."""
    given = {} if program.fixed is None else program.fixed.values
    own = {name: value.unsqueeze(0) for name, value in given.items()}
    moved = _swapped(own, tuple(place for place in chosen if place[0] in own), pair)
    return all(torch.equal(moved[name].nan_to_num(), own[name].nan_to_num()) for name in own) and (
        all(torch.equal(moved[name].isnan(), own[name].isnan()) for name in own)
    )


Trial = tuple[tuple[tuple[str, int], ...], tuple[int, int]]


def _unchanged(program: Program, point: Params, trials: list[Trial]) -> list[Trial]:
    """Trials that leave the density at a point (1, ...) where it is."""
    if not trials:
        return []
    value = _log_density(program, point)
    near = torch.finfo(value.dtype).eps ** (2 / 3) * float(value.abs().clamp(min=1.0))
    kept = []
    for start in range(0, len(trials), AT_ONCE):
        part = trials[start : start + AT_ONCE]
        moved = [_swapped(point, *trial) for trial in part]
        batch = {name: torch.cat([each[name] for each in moved]) for name in point}
        change = (_log_density(program, batch) - value).abs()
        kept += [trial for trial, size in zip(part, change.tolist(), strict=True) if size <= near]
    return kept


def _swapped(point: Params, chosen: tuple[tuple[str, int], ...], pair: tuple[int, int]) -> Params:
    out = dict(point)
    for name, dim in chosen:
        order = torch.arange(out[name].shape[dim + 1])
        order[list(pair)] = order[list(reversed(pair))]
        out[name] = _permuted(out[name], (dim,), order)
    return out


def _log_density(program: Program, params: Params) -> Tensor:
    return program.log_marginal(params) + program.log_prior(params)


def _permuted(value: Tensor, dims: tuple[int, ...], permutation: Tensor) -> Tensor:
    for dim in dims:
        value = value.index_select(dim + 1, permutation.to(value.device))
    return value


def _features(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Features that tell K entries from each other, (D, K, F): a row, or an entry of a diagonal."""
    first = value.movedim(dims[0] + 1, 1)
    for dim in reversed(dims[1:]):
        first = first.diagonal(dim1=1, dim2=dim + 1).movedim(-1, 1)
    return first.reshape(*first.shape[:2], -1)

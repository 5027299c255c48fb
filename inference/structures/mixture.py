"""Finite mixtures: closed-form EM steps for many restarts at once, starts, and labels by falling weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.assigned_starts import centres
from inference.base.component_noise import Cells, NoiseDraws, numpy_generator, poisson_scores
from inference.base.many_data_sets import SET, without_set
from inference.base.relabelling import Labels
from inference.base.shared_values import listed, shared_values
from inference.base.starts import StartSearch
from inference.base.steps import Steps, add_statistics
from inference.base.structure import Recommendation, Structure
from inference.programs.program import Params, Program
from ppl_models.descriptions.components import MixtureComponents, MultivariateNormal
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import (
    Bernoulli,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
    dispersed_items,
    filled,
    num_densities,
    sizes,
)
from ppl_models.parts.sizes import MISSING, maximise_sizes, weighted_tally

if TYPE_CHECKING:
    from inference.base.structure import Problem

__all__ = ["MixtureSteps", "MixtureStructure", "component_log_densities", "mixture_noise"]

SEARCH = StartSearch()
NORMAL_WIDTH = 1.349  # between the quartiles, in standard deviations
FLAT_SHARE = 1e-3  # of the data's variance in some direction: a covariance below it has collapsed
MEAN_EPSILON = 1e-9  # an estimated chance or rate is kept so far from the end of its range before its predictor is taken


@dataclass(frozen=True)
class MixtureStatistics:
    """Expected statistics.

    Args:
        counts: expected rows a component, (R, K).
        item_counts: the same by item, for entries may be missing, (R, K, J).
        sums: responsibility-weighted sums of the centred statistics, (R, K, J).
        squares: of their squares (R, K, J), or outer products (R, K, J, J); None where not needed.
        centre: about which they are taken, (J,).
        values: counts of negative binomial items, (D, N) or (R, D, N), -1 where missing; None without such items.
        shares: responsibilities of the rows, (R, K, N), as ``values``.
    """

    counts: Tensor
    item_counts: Tensor
    sums: Tensor
    squares: Tensor | None
    centre: Tensor = field(metadata={"sum": False})
    values: Tensor | None = field(default=None, metadata={"join": -1})
    shares: Tensor | None = field(default=None, metadata={"join": -1})


def component_log_densities(about: MixtureComponents, params: Params, data: Tensor) -> Tensor:
    """Log-density of every row under every component, (N, K) or (R, N, K)."""
    if isinstance(about.component, ResponseFamily):
        dispersion = params["dispersion"].unsqueeze(-3) if "dispersion" in params else None
        law = ItemResponse(about.component, params["predictors"].unsqueeze(-3), dispersion)
        return law.log_prob(data.unsqueeze(-2))
    factor = torch.linalg.cholesky(params["precisions"])  # Lambda = L L^T
    scaled = data @ factor.flatten(0, -3).movedim(0, 1).reshape(data.shape[1], -1)  # (N, [R] K J)
    shape = (len(data), *factor.shape[:-2], data.shape[1])
    shift = (params["means"].unsqueeze(-2) @ factor).squeeze(-2)  # ([R], K, J)
    distance = (scaled.reshape(shape) - shift).square().sum(-1)  # (N, [R], K)
    constant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * data.shape[1] * torch.log(
        torch.tensor(2 * torch.pi, dtype=data.dtype)
    )
    return (constant - distance / 2).movedim(0, -2)


@dataclass(frozen=True, eq=False)
class MixtureSteps(Steps):
    """Both halves of EM in closed form, streaming over rows.

    Args:
        about: the model's description.
        program: the program, for the prior; one row of data will do.
        data: (N, J).
        chunk_elements: rows times components times restarts in memory at once.
        given_centre: about which sums are taken, (J,); the mean of these rows if None.
        given_floor: least variances, one a dispersed item; those that these rows suggest if None.
    """

    about: MixtureComponents
    program: Program
    data: Tensor
    chunk_elements: int
    given_centre: Tensor | None = None
    given_floor: Tensor | None = None

    def on(self, data: Tensor) -> MixtureSteps:
        """Sums stay about the same centre, or they could not be added."""
        return replace(self, data=data, given_centre=self._centre, given_floor=self.floor)

    @cached_property
    def item_scales(self) -> Tensor:
        """The variance of every item that has one, over all components, (D,)."""
        values, _ = self._statistic(self.data)
        values = torch.where(self.data.isnan(), torch.nan, values)
        family = self.about.component
        blocks = family.blocks(self.about.num_items) if isinstance(family, ResponseFamily) else []
        scales = [
            _scale(values[:, columns]) * part.is_canonical  # a size has no scale
            for part, columns, _ in blocks
            if part.num_dispersed(columns.stop - columns.start)
        ]
        return torch.cat(scales) if scales else values.new_zeros(0)

    @cached_property
    def floor(self) -> Tensor:
        """The least variance of every item that has one, (D,)."""
        if self.given_floor is not None:
            return self.given_floor
        return (self.about.variance_floor * self.item_scales).clamp(*self.about.variance_range)

    @cached_property
    def _centre(self) -> Tensor:
        """Sums are taken about the overall mean, or variances would drown in rounding."""
        return self._statistic(self.data)[0].mean(0) if self.given_centre is None else self.given_centre

    def _statistic(self, data: Tensor) -> tuple[Tensor, Tensor | None]:
        if not isinstance(self.about.component, ResponseFamily):
            return data, None
        x, mask = filled(self.about.component, data)
        return self.about.component.statistic(x), mask

    def e_step(self, params: Params) -> tuple[MixtureStatistics, Tensor, Tensor]:
        restarts = len(params["weights"])
        width = self.about.num_items**2 if isinstance(self.about.component, MultivariateNormal) else 1
        rows = max(1, self.chunk_elements // max(restarts * self.about.num_components, width))
        parts, total = [], self.data.new_zeros(restarts)
        for start in range(0, len(self.data), rows):
            chunk = self.data[start : start + rows]
            joint = component_log_densities(self.about, params, chunk) + params["weights"].log().unsqueeze(-2)
            peak = joint.logsumexp(-1, keepdim=True)
            total = total + peak.sum((-2, -1))
            parts.append(self.statistics((joint - peak).exp(), slice(start, start + rows)))
        return add_statistics(parts), total, self.program.log_prior(params)

    def statistics(self, responsibilities: Tensor, rows: slice) -> MixtureStatistics:
        """Of some rows, with responsibilities (R, n, K)."""
        statistic, mask = self._statistic(self.data[rows])
        t = statistic - self._centre
        t = t if mask is None else t * mask
        weight = responsibilities.mT  # (R, K, n)
        counts = weight.sum(-1)
        item_counts = (counts.unsqueeze(-1) if mask is None else weight @ mask).expand(*counts.shape, t.shape[1])
        squares: Tensor | None = None
        if isinstance(self.about.component, MultivariateNormal):
            j = t.shape[1]
            squares = (weight @ (t.unsqueeze(-1) * t.unsqueeze(-2)).flatten(1)).unflatten(-1, (j, j))
        elif self.about.component.num_dispersed(t.shape[1]):
            squares = weight @ t.square()
        values, shares = self._counts_of(self.data[rows], weight)
        return MixtureStatistics(counts, item_counts, weight @ t, squares, self._centre, values, shares)

    def _counts_of(self, data: Tensor, weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Counts of negative binomial items and the responsibilities (R, K, n) of their rows, where there are such items."""
        columns = _sized(self.about)
        return (data[..., columns].mT.nan_to_num(nan=MISSING), weight) if columns else (None, None)

    def m_step(self, statistics: MixtureStatistics, params: Params) -> Params:
        about, counts = self.about, statistics.counts
        new = dict(params)
        excess = about.concentration - 1
        total = counts.sum(-1, keepdim=True) + excess * about.num_components
        new["weights"] = ((counts + excess) / total).clamp(min=1e-300)
        new["weights"] = new["weights"] / new["weights"].sum(-1, keepdim=True)
        number = statistics.item_counts.clamp(min=1e-10)
        centred = statistics.sums / number
        empty = statistics.item_counts <= 1e-10
        means = centred + statistics.centre
        if isinstance(about.component, MultivariateNormal):
            assert statistics.squares is not None
            new["means"] = torch.where(empty, params["means"], means.clamp(-about.bound, about.bound))
            scatter = statistics.squares - number.unsqueeze(-1) * centred.unsqueeze(-1) * centred.unsqueeze(-2)
            floor = about.component.regularization * torch.eye(about.num_items, dtype=scatter.dtype, device=scatter.device)
            inverse = torch.linalg.inv((scatter + scatter.mT) / 2 + floor)
            # the mode of the Wishart posterior with J + 1 degrees of freedom
            precisions = number[..., :1].unsqueeze(-1) * (inverse + inverse.mT) / 2
            new["precisions"] = torch.where(empty[..., :1].unsqueeze(-1), params["precisions"], precisions)
            return new
        predictors = about.component.linearise(means, MEAN_EPSILON).clamp(-about.bound, about.bound)
        new["predictors"] = torch.where(empty, params["predictors"], predictors)
        if statistics.squares is not None:
            # about the predictor kept, which differs from the mean only at the bound
            gap = about.component.mean(new["predictors"]) - statistics.centre
            variances = (statistics.squares - 2 * gap * statistics.sums) / number + gap.square()
            dispersed = torch.cat([
                variances[..., columns] for family, columns, _ in about.component.blocks(about.num_items)
                if family.num_dispersed(columns.stop - columns.start)
            ], -1)
            new["dispersion"] = torch.maximum(dispersed, self.floor).clamp(*about.variance_range)
        if statistics.values is not None and statistics.shares is not None:
            entries = sizes(about.component, about.num_items).nonzero().ravel().tolist()
            for d, (entry, column) in enumerate(zip(entries, _sized(about), strict=True)):
                own = _sizes(statistics.values[..., d, :], statistics.shares, new["predictors"][..., column], params["dispersion"][..., entry])
                new["dispersion"][..., entry] = own
        return new


@dataclass(frozen=True, eq=False)
class MixtureSetSteps(Steps):
    """The two halves of EM where restarts differ in their data; see :mod:`inference.base.many_data_sets`.

    Args:
        base: steps on any one of the data sets.
        sets: (S, N, J).
        given_centres: about which sums are taken, (S, 1, J); the means of these rows if None.
    """

    base: MixtureSteps
    sets: Tensor
    given_centres: Tensor | None = None

    def on(self, data: Tensor) -> MixtureSetSteps:
        """Other rows of every data set, (S, N, J), whose sums are taken about the same centres."""
        return replace(self, sets=data, given_centres=self._centres)

    @cached_property
    def _each(self) -> list[MixtureSteps]:
        return [replace(self.base, data=rows, given_centre=None, given_floor=None) for rows in self.sets]

    @cached_property
    def _centres(self) -> Tensor:
        if self.given_centres is not None:
            return self.given_centres
        return torch.stack([steps._centre for steps in self._each]).unsqueeze(1)  # (S, 1, J)

    @cached_property
    def _floors(self) -> Tensor:
        return torch.stack([steps.floor for steps in self._each]).unsqueeze(1)  # (S, 1, D)

    def e_step(self, params: Params) -> tuple[MixtureStatistics, Tensor, Tensor]:
        index, own = params[SET].long(), without_set(params)
        rows = max(1, self.base.chunk_elements // (len(index) * self.base.about.num_components))
        parts, total = [], self.sets.new_zeros(len(index))
        for chunk in self.sets.split(rows, 1):
            data = chunk[index]  # (R, n, J)
            joint = self._log_densities(own, data) + own["weights"].log().unsqueeze(-2)
            peak = joint.logsumexp(-1, keepdim=True)
            total = total + peak.sum((-2, -1))
            parts.append(self._statistics((joint - peak).exp(), data, self._centres[index]))
        return add_statistics(parts), total, self.base.program.log_prior(own)

    def _log_densities(self, params: Params, data: Tensor) -> Tensor:
        about = self.base.about
        if isinstance(about.component, ResponseFamily):
            return component_log_densities(about, params, data)
        factor = torch.linalg.cholesky(params["precisions"])  # (R, K, J, J)
        scaled = (data.unsqueeze(1) - params["means"].unsqueeze(-2)) @ factor  # (R, K, n, J)
        constant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * about.num_items * math.log(2 * math.pi)
        return (constant.unsqueeze(-1) - scaled.square().sum(-1) / 2).mT

    def _statistics(self, responsibilities: Tensor, data: Tensor, centre: Tensor) -> MixtureStatistics:
        statistic, mask = self.base._statistic(data)
        t = statistic - centre
        t = t if mask is None else t * mask
        weight = responsibilities.mT  # (R, K, n)
        counts = weight.sum(-1)
        item_counts = (counts.unsqueeze(-1) if mask is None else weight @ mask).expand(*counts.shape, t.shape[-1])
        squares: Tensor | None = None
        if isinstance(self.base.about.component, MultivariateNormal):
            squares = weight.unsqueeze(-2) * t.mT.unsqueeze(1) @ t.unsqueeze(1)  # (R, K, J, J)
        elif self.base.about.component.num_dispersed(t.shape[-1]):
            squares = weight @ t.square()
        return MixtureStatistics(counts, item_counts, weight @ t, squares, centre, *self.base._counts_of(data, weight))

    def m_step(self, statistics: MixtureStatistics, params: Params) -> Params:
        own = replace(self.base, given_floor=self._floors[params[SET].long()])
        return own.m_step(statistics, without_set(params)) | {SET: params[SET]}


class MixtureStructure(Structure):
    """A model that offers ``components()``."""

    @property
    def about(self) -> MixtureComponents:
        """The model's description."""
        about: MixtureComponents = self.model.components()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> MixtureStructure | None:
        return cls(model) if isinstance(getattr(model, "components", lambda: None)(), MixtureComponents) else None

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> MixtureSteps:
        return MixtureSteps(self.about, problem.program_of_one_row(), problem.data, chunk_elements)

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Centres by k-means++ (Arthur and Vassilvitskii 2007) on standardised columns for "spectral", else random rows."""
        about = self.about
        steps = MixtureSteps(about, problem.program(), problem.data, 2**18)
        generator = torch.Generator().manual_seed(problem.seed)
        statistic, mask = steps._statistic(problem.data)
        seen = torch.ones_like(statistic) if mask is None else mask
        mean = (statistic * seen).sum(0) / seen.sum(0)
        x = (statistic - mean) * seen
        x = (x / x.square().mean(0).sqrt().clamp(min=1e-12)).double().cpu()
        picked = torch.stack([centres(x, about.num_components, init == "spectral", generator) for _ in range(num_restarts)])
        distance = torch.cdist(x, picked).square()  # (R, N, K)
        owner = torch.nn.functional.one_hot(distance.argmin(-1), about.num_components).to(problem.data)
        share = 0.9 * owner + 0.1 / about.num_components
        blank = {name: value.expand(num_restarts, *value.shape[1:]) for name, value in problem.program().draw_prior(1, 0).items()}
        return steps.m_step(steps.statistics(share, slice(None)), blank)

    def more_starts(self, problem: Problem, init: str, num_starts: int, batch: int) -> Params:
        """Every other start from random rows: k-means++ spreads the centres, and misses components that lie inside another."""
        first, second = self.start(problem, init, num_starts), self.start(problem, "random", num_starts)
        return {name: torch.cat([value[: (num_starts + 1) // 2], second[name][: num_starts // 2]]) for name, value in first.items()}

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Variances at or above their floor, below which the objective of EM is not defined."""
        if "dispersion" not in params:
            return params
        floor = MixtureSteps(self.about, problem.program_of_one_row(), problem.data, 2**18).floor
        return params | {"dispersion": torch.maximum(params["dispersion"], floor)}

    def degenerate(self, problem: Problem, params: Params) -> tuple[str, ...]:
        """Components that are empty, copies of each other, or have shrunk onto a few rows or equal values."""
        about, data = self.about, problem.data
        parts = []
        for rows in data.split(max(1, 2**22 // (about.num_components * about.num_items))):
            parts.append((component_log_densities(about, params, rows) + params["weights"].log()).softmax(-1))
        shares = torch.cat(parts)
        return (*self._spikes(problem, params, shares.sum(0)), *shared_values(shares, "component"))

    def _spikes(self, problem: Problem, params: Params, counts: Tensor) -> tuple[str, ...]:
        about, found = self.about, []
        if isinstance(about.component, MultivariateNormal):
            few = (counts < about.num_items + 1) & (counts >= 1)
            values, vectors = torch.linalg.eigh(torch.atleast_2d(problem.data.mT.cov(correction=0)))  # the data may have no width in a direction themselves
            factor = vectors * values.clamp(min=0).sqrt()  # of their covariance C = L L^T
            widths = torch.linalg.eigvalsh(factor.mT @ params["precisions"] @ factor).amax(-1).reciprocal()  # least variance, as a share
            for k in (widths < FLAT_SHARE).nonzero().ravel().tolist():
                found.append(
                    f"component {k} has no width in one direction: {float(widths[k]):.1g} of the data's variance there, on {float(counts[k]):.3g} rows"
                )
        elif "dispersion" in params:
            few = (counts < 2) & (counts >= 1)
            steps = MixtureSteps(about, problem.program_of_one_row(), problem.data, 2**18)
            names = self.dispersed_items(problem.item_names or [str(j) for j in range(about.num_items)])
            at_floor = (params["dispersion"] <= 1.001 * steps.floor) & (steps.item_scales > 1.001 * steps.floor)
            for k in at_floor.any(-1).nonzero().ravel().tolist():
                items = [names[j] for j in at_floor[k].nonzero().ravel().tolist()]
                shown = listed([*items[:3], *([f"{len(items) - 3} more"] if len(items) > 3 else [])])
                found.append(
                    f"the variance of component {k} in {shown} is at its floor (variance_floor={about.variance_floor:g} times the column's), on "
                    f"{float(counts[k]):.3g} rows"
                )
        else:
            return ()
        return (*found, *(f"component {k} rests on {float(counts[k]):.2g} rows" for k in few.nonzero().ravel().tolist()))

    def set_steps(self, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int) -> Steps:
        return MixtureSetSteps(MixtureSteps(self.about, problem.program_of_one_row(), sets[0], chunk_elements), sets)

    def split_start(self, problem: Problem, smaller: Params) -> Params | None:
        """The component of the largest weight cut in two across the direction in which its rows spread most, and an M-step from there."""
        about, k = self.about, len(smaller["weights"])
        if k + 1 != about.num_components:
            return None
        steps = MixtureSteps(about, problem.program_of_one_row(), problem.data, 2**18)
        joint = component_log_densities(replace(about, num_components=k), smaller, problem.data) + smaller["weights"].log()
        share = joint.softmax(-1)  # (N, K)
        statistic, mask = steps._statistic(problem.data)
        largest = int(smaller["weights"].argmax())
        own = share[:, largest : largest + 1]
        seen = own if mask is None else own * mask
        mean = (statistic * seen).sum(0) / seen.sum(0).clamp(min=1e-12)
        x = (statistic - mean) * (1.0 if mask is None else mask)
        x = x / ((x.square() * own).sum(0) / own.sum()).sqrt().clamp(min=1e-12)
        axis = torch.linalg.eigh((x * own).mT @ x).eigenvectors[:, -1]
        side = (x @ axis).unsqueeze(-1)
        half = torch.where(side > 0, 0.9, 0.1).to(share)  # about the component's own mean
        split = torch.cat([share[:, :largest], own * half, own * (1 - half), share[:, largest + 1 :]], 1)
        blank = {name: value.expand(1, *value.shape[1:]) for name, value in problem.program_of_one_row().draw_prior(1, 0).items()}
        return steps.m_step(steps.statistics(split.unsqueeze(0), slice(None)), blank)

    def labels(self) -> tuple[Labels, ...]:
        site = "predictors" if isinstance(self.about.component, ResponseFamily) else "means"

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return {name: value[:, order] for name, value in params.items()}

        return (Labels("assignments", lambda params: params[site], rename),)

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling weight."""
        order = params["weights"].argsort(descending=True, stable=True)
        return {name: value[order] for name, value in params.items()}

    def num_free(self, params: Params) -> int:
        """Weights without their sum, symmetric precisions counted once."""
        k = len(params["weights"])
        free = sum(value.numel() for name, value in params.items() if name not in ("weights", "precisions"))
        j = self.about.num_items
        return free + k - 1 + (k * j * (j + 1) // 2 if "precisions" in params else 0)

    def dispersed_items(self, items: Sequence[str]) -> list[str]:
        family = self.about.component
        return dispersed_items(family, items) if isinstance(family, ResponseFamily) else []

    def num_densities(self, num_items: int) -> int:
        family = self.about.component
        return num_densities(family, num_items) if isinstance(family, ResponseFamily) else num_items

    def at_bound(self, params: Params) -> list[str]:
        name = "predictors" if "predictors" in params else "means"
        return [f"{name}{index}" for index in (params[name].abs() >= 0.999 * self.about.bound).nonzero().tolist()]

    def recommended(self, problem: Problem) -> Recommendation:
        from inference.engines.em import EM

        if self.about.num_components == 1:
            return Recommendation(EM(), "spectral", 1)
        return Recommendation(EM(), "spectral", 10, SEARCH)

    def component_noise(self, params: Params, data: Tensor, generator: Generator, num_draws: int) -> NoiseDraws:
        data = data.to(params["weights"])
        joint = component_log_densities(self.about, params, data) + params["weights"].log()
        return mixture_noise(self.about, params, data, joint.softmax(-1), generator, num_draws)


def _sized(about: MixtureComponents) -> list[int]:
    """Columns of negative binomial items."""
    if not isinstance(about.component, ResponseFamily):
        return []
    blocks = about.component.blocks(about.num_items)
    return [j for family, columns, _ in blocks if isinstance(family, NegativeBinomial) for j in range(about.num_items)[columns]]


def _sizes(values: Tensor, shares: Tensor, eta: Tensor, size: Tensor) -> Tensor:
    """Sizes (R, K) of one item: counts (N,) or (R, N), responsibilities (R, K, N), log means and sizes now, both (R, K)."""
    if values.dim() == 2:  # every restart has rows of its own
        return torch.cat([_sizes(values[r], shares[r : r + 1], eta[r : r + 1], size[r : r + 1]) for r in range(len(values))])
    x, often = weighted_tally(values, shares)
    sums, counts = (often * x).sum(-1, keepdim=True), often.sum(-1, keepdim=True)
    return maximise_sizes(x, often, sums, counts, eta.unsqueeze(-1), size)


def _scale(x: Tensor) -> Tensor:
    """The variance of every column, or of a normal law with its quartiles where that is smaller and not zero, (J,); NaN is missing."""
    centred = x - x.nanmean(0)
    variance = centred.square().nanmean(0)
    ordered = x.sort(0).values  # NaN last
    number = (~x.isnan()).sum(0)
    low, high = (ordered.gather(0, (share * (number - 1)).long().clamp(min=0).unsqueeze(0))[0] for share in (0.25, 0.75))
    middle = ((high - low) / NORMAL_WIDTH).square()
    return torch.where(middle > 0, torch.minimum(middle, variance), variance)


def mixture_noise(
    about: MixtureComponents, params: Params, data: Tensor, responsibilities: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    """Draws of the noise of every component.

    Args:
        params: without restarts; data: (N, J); responsibilities: (N, K).
        num_draws: M.

    Raises:
        ValueError: for a response family without a known distribution function.
    """
    labels = torch.multinomial(responsibilities, num_draws, replacement=True, generator=generator).mT  # (M, N)
    used = torch.nn.functional.one_hot(labels, about.num_components).bool().numpy()
    rng = numpy_generator(generator)
    scores = np.stack([_scores(about, params, data, rng) for _ in range(num_draws)])
    shares = responsibilities.mean(0)
    return NoiseDraws(scores, used, shares.numpy(), _cells(about, params, data, responsibilities))


def _scores(about: MixtureComponents, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
    """(N, K, J); entries that are missing are drawn from the model."""
    if not isinstance(about.component, ResponseFamily):
        factor = torch.linalg.cholesky(params["precisions"])  # Lambda = L L^T, so L^T (x - mu) is standard
        return torch.einsum("nkj,kji->nki", data.unsqueeze(-2) - params["means"], factor).numpy()
    parts = []
    for family, columns, dispersed in about.component.blocks(about.num_items):
        x, eta = data[:, columns].unsqueeze(-2), params["predictors"][:, columns]
        if isinstance(family, Normal):
            value = ((family.statistic(x) - eta) / params["dispersion"][:, dispersed].sqrt()).numpy()
        elif isinstance(family, Poisson):
            y, rate = (v.numpy() for v in torch.broadcast_tensors(x, eta.exp()))
            value = np.where(np.isnan(y), np.nan, poisson_scores(np.nan_to_num(y), rate, rng))
        elif isinstance(family, Bernoulli):
            from scipy.special import ndtri

            y, chance = (v.numpy() for v in torch.broadcast_tensors(x, eta.sigmoid()))
            u = rng.random(y.shape)
            value = ndtri(np.clip(np.where(y == 1, 1 - chance + chance * u, (1 - chance) * u), 1e-300, 1 - 1e-16))
            value = np.where(np.isnan(y), np.nan, value)
        else:
            raise ValueError(f"acdc: noise of {type(family).__name__} components is not known")
        parts.append(np.where(np.isnan(value), rng.standard_normal(value.shape), value))
    return np.concatenate(parts, -1)


def _cells(about: MixtureComponents, params: Params, data: Tensor, responsibilities: Tensor) -> Cells | None:
    """Weights and log-probabilities of the distinct rows, where all items are discrete and complete."""
    component = about.component
    if not isinstance(component, ResponseFamily) or data.isnan().any():
        return None
    if not all(isinstance(family, Bernoulli | Poisson) for family, _, _ in component.blocks(about.num_items)):
        return None
    patterns, index = torch.unique(data, dim=0, return_inverse=True)
    weights = responsibilities.new_zeros(len(patterns), about.num_components).index_add(0, index, responsibilities)
    law = ItemResponse(component, params["predictors"].unsqueeze(-3), None)
    return Cells(weights.mT, law.log_prob(patterns.unsqueeze(-2)).mT)

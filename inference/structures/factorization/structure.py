"""Factorizations for engines: updates of many restarts at once, and activities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.component_noise import (
    USED,
    NoiseDraws,
    gaussian_split,
    negative_binomial_scores,
    numpy_generator,
    poisson_scores,
    poisson_split,
)
from inference.base.progress import NoProgress
from inference.base.structure import (
    Capability,
    Problem,
    Recommendation,
    Structure,
    candidate_families,
    component_noise,
    conditional_log_likelihoods,
    num_density_items,
    refused_rows,
    shrunken_estimates,
)
from inference.programs.program import Params, Program
from inference.structures.factorization.dispatch import in_cells, solved_rows, updates_of
from inference.structures.factorization.factorize import (
    SCALE_RANGE,
    Course,
    Factorize,
    conditional_rows,
    with_scales,
)
from inference.structures.factorization.starts import nndsvd, random_factors
from ppl_models.data.sparse import SparseTable
from ppl_models.descriptions.components import FactorizationDescription

NUM_STARTS = 10
LEAST_MEAN, LEAST_SPREAD = 1e-9, 1e-9  # of a cell; of the variances of activities
NUM_STARTS_IN_CELLS = 5  # of a sparse table
NUM_STARTS_OF_SQUARES = 16  # of Normal entries, of which a race leaves few early on
ON_BOUND = 0.999  # of a bound
# share of the mean row in signatures that come from a sample: their zeros would stay, whatever the
# other rows say
SMOOTHED = 0.01


class FactorizationStructure(Structure):
    """A model that offers ``factorization()``."""

    local_sites = ("activities",)
    capabilities = frozenset({Capability.LOCAL_BLOCKS})

    @cached_property
    def about(self) -> FactorizationDescription:
        about: FactorizationDescription = self.model.factorization()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> FactorizationStructure | None:
        return cls(model) if hasattr(model, "factorization") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """From non-negative double singular value decomposition ("spectral") and random factors.

        Of rows in blocks signatures alone: those of the best of several factorizations of the
        sample ("spectral"), or random ones.
        """
        if problem.rows is not None:
            return self._start_of_blocks(problem, init, num_restarts)
        about, x = self.about, in_cells(problem).data
        if not isinstance(x, SparseTable):
            x = x.nan_to_num(nan=float(x.nanmean())).clamp(min=0)
        z, phi = random_factors(x, about.num_components, num_restarts, problem.seed)
        if init == "spectral" and (about.nonnegative or about.counts):
            z[0], phi[0] = nndsvd(x, about.num_components, problem.seed)
        if not about.counts:
            length = phi.norm(dim=-1, keepdim=True)
            z, phi = z * length.mT, phi / length
        return with_scales(self.about, {"signatures": phi, "activities": z}, problem)

    def _start_of_blocks(self, problem: Problem, init: str, num_restarts: int) -> Params:
        sample, about = replace(problem, rows=None), self.about
        searches = init == "spectral" and (about.counts or about.nonnegative)
        params = self.start(
            sample, init, max(NUM_STARTS, num_restarts) if searches else num_restarts
        )
        if searches:
            course = Course.begin(
                {name: value for name, value in params.items() if name != "scales"}
            )
            course = Factorize().iterate(
                updates_of(sample.data, about, params), course, NoProgress(), None, len(sample.data)
            )
            best = course.last.argsort(descending=True)[:num_restarts]
            params = {name: value[best] for name, value in course.params.items()}
            if about.counts:
                mean = sample.data.nanmean(0)
                params["signatures"] = torch.lerp(params["signatures"], mean / mean.sum(), SMOOTHED)
        return {
            name: value for name, value in params.items() if name not in ("activities", "scales")
        }

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Complete parameters (R, ...) with activities; blocks are solved by the engine."""
        if problem.rows is not None:
            return params
        rows = [
            self.solve_local({name: v[r] for name, v in params.items()}, problem.data)
            for r in range(len(params["signatures"]))
        ]
        return params | {"activities": torch.stack([row["activities"] for row in rows])}

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Activities of the rows of ``data`` given the parameters, by site."""
        about, phi = self.about, params["signatures"]
        data = data.to(phi)
        if about.counts or about.nonnegative:
            return {"activities": solved_rows(updates_of(data, about, params), phi)}
        return {"activities": torch.linalg.lstsq(phi.mT, data.mT).solution.mT}

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        """The fitted means of the rows, (N, J), given the activities that suit each best."""
        own: Tensor = self.solve_local(params, program.args[0])["activities"] @ params["signatures"]
        return own

    def canonical(self, params: Params) -> Params:
        """Order components by falling total activity (size, where activities may be negative)."""
        order = params["activities"].abs().sum(-2).argsort(descending=True)
        return params | {
            "signatures": params["signatures"][order],
            "activities": params["activities"][:, order],
        }

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Signatures without their normalisation, activities where given, and the scale.

        Without signs to keep, the product of activities and signatures is the same under every
        invertible K x K change of both, of which normalisation is K numbers: K (N + J - K) are
        left, the dimension of matrices of rank K.
        """
        if problem is not None and problem.rows is not None:
            num_rows = problem.num_rows
        else:
            num_rows = params["activities"].shape[-2] if "activities" in params else 0
        k, j = params["signatures"].shape
        activities = num_rows * k
        turns = 0 if self.about.counts or self.about.nonnegative or not activities else k * (k - 1)
        return (
            k * (j - 1)
            + activities
            - turns
            + (1 if self.about.dispersed or not self.about.counts else 0)
        )

    def at_bound(self, params: Params) -> list[str]:
        """The noise scale at an end of its interval, and signatures of Normal entries at theirs."""
        if self.about.counts:
            return []
        (low, high), bound = SCALE_RANGE, ON_BOUND * self.about.bound
        off = not low / ON_BOUND < float(params["scales"]) < ON_BOUND * high
        return ["scales[0]"] * off + [
            f"signatures{place}"
            for place in (params["signatures"].abs() >= bound).nonzero().tolist()
        ]

    def recommended(self, problem: Problem) -> Recommendation:
        if problem.rows is not None or not (self.about.counts or self.about.nonnegative):
            return Recommendation(Factorize(), "spectral", 1)
        if not self.about.counts:
            return Recommendation(Factorize(), "spectral", NUM_STARTS_OF_SQUARES)
        in_memory = in_cells(problem).data
        few = isinstance(in_memory, SparseTable)
        return Recommendation(Factorize(), "spectral", NUM_STARTS_IN_CELLS if few else NUM_STARTS)


def _noise(
    about: FactorizationDescription,
    counts: np.ndarray,
    rates: np.ndarray,
    delta: float | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Split counts (N, J) among components of means ``rates`` (N, K, J), as normal scores."""
    whole = rates.sum(1)
    if delta is None:
        mean, shares = whole, rates
    elif about.variance == "quadratic":
        mean, shares = (
            rng.gamma(1 / delta, whole * delta),
            rates,
        )  # given the whole, the split is that of Poisson counts
    else:
        mean = rng.gamma(np.maximum(whole, 1e-300) / delta, delta)
        # of a Dirichlet distribution, up to their sum
        shares = rng.standard_gamma(np.maximum(rates, 1e-300) / delta)
    y = poisson_split(
        np.where(np.isnan(counts), rng.poisson(mean), np.nan_to_num(counts)), shares, rng
    )
    if delta is None:
        return poisson_scores(y, rates, rng)
    return negative_binomial_scores(
        y, rates, 1 / delta if about.variance == "quadratic" else rates / delta, rng
    )


@candidate_families.register(FactorizationStructure)
def _(structure: FactorizationStructure) -> tuple[Any, ...]:
    return tuple(structure.model.candidate_distributions()) if structure.about.counts else ()


@component_noise.register(FactorizationStructure)
def _(
    structure: FactorizationStructure,
    params: Params,
    data: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    """Split every entry among components, as normal scores; missing ones are drawn."""
    about, z, phi = structure.about, params["activities"], params["signatures"]
    expected = z.unsqueeze(-1) * phi  # (N, K, J)
    amount = z.abs().sum(0)
    shares = (amount / amount.sum()).numpy()
    if not about.counts:
        scales = (params["scales"] / about.num_components**0.5).expand(
            about.num_components, about.num_items
        )
        scores = gaussian_split(data - z @ phi, scales, generator, num_draws).numpy()
        used = (z != 0).numpy()
    else:
        rng, rates, counts = numpy_generator(generator), expected.numpy(), data.numpy()
        delta = float(params["dispersion"]) if about.dispersed else None
        draws = [_noise(about, counts, rates, delta, rng) for _ in range(num_draws)]
        scores = np.stack(draws)
        used = (z > USED).numpy()
    return NoiseDraws(scores, np.broadcast_to(used, (num_draws, *used.shape)), shares)


@refused_rows.register(FactorizationStructure)
def _(structure: FactorizationStructure, data: Tensor) -> Tensor | None:
    return data.nansum(-1) == 0 if structure.about.counts else None


@shrunken_estimates.register(FactorizationStructure)
def _(structure: FactorizationStructure, params: Params, local: Params, data: Tensor) -> Params:
    r"""Shrunken activities, whose covariance over rows is that of the true ones.

    Estimated activities scatter by their errors too. With C their covariance over rows and V the
    mean over rows of the errors' covariance :math:`(\sum_j \phi_{kj} \phi_{lj} /
    \operatorname{Var} x_{nj})^{-1}`, activities are shrunk to their mean by A, which leaves
    :math:`A C A^\top = (C - V)_+`, and kept at zero or above.
    """
    z, phi, delta = local["activities"], params["signatures"], params.get("dispersion")
    variance = mean = (z @ phi).clamp(min=LEAST_MEAN)
    if delta is not None:
        variance = mean * (1 + delta * (mean if structure.about.variance == "quadratic" else 1))
    weights = variance.reciprocal() * ~data.isnan()
    information = torch.einsum("kj,nj,lj->nkl", phi, weights, phi)
    errors = torch.linalg.pinv(information, hermitian=True).mean(0)
    spread, turns = torch.linalg.eigh(torch.cov(z.mT).reshape(errors.shape))
    scales = spread.clamp(min=LEAST_SPREAD * spread[-1]).sqrt()
    left, axes = torch.linalg.eigh((turns * scales.square()) @ turns.mT - errors)
    inverse, root = ((turns / scales) @ turns.mT, (axes * left.clamp(min=0).sqrt()) @ axes.mT)
    centre = z.mean(0)
    return {"activities": (centre + (z - centre) @ inverse @ root).clamp(min=0)}


@num_density_items.register(FactorizationStructure)
def _(structure: FactorizationStructure, num_items: int) -> int:
    return 0 if structure.about.counts else num_items


@conditional_log_likelihoods.register(FactorizationStructure)
def _(structure: FactorizationStructure, params: Params, data: Tensor) -> Tensor:
    return conditional_rows(structure.about, params, data)

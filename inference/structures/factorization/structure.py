"""Factorizations: multiplicative and alternating updates for many restarts at once, and what fits
need of the activities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from inference.base.structure import Recommendation, Structure
from inference.programs.program import Params, Program
from inference.structures.factorization.factorize import (
    SCALE_RANGE,
    Course,
    Factorize,
    conditional_rows,
    with_scales,
)
from inference.structures.factorization.starts import nndsvd, random_factors
from inference.structures.factorization.updates import polished, updates_of

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import FactorizationDescription


NUM_STARTS = 10
ON_BOUND = 0.999  # of a bound
# share of the mean row in signatures that come from a sample: their zeros would stay, whatever the
# other rows say
SMOOTHED = 0.01


class FactorizationStructure(Structure):
    """A model that offers ``factorization()``."""

    local_sites = ("activities",)
    solves_blocks = True

    @property
    def about(self) -> FactorizationDescription:
        """The model's description."""
        about: FactorizationDescription = self.model.factorization()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> FactorizationStructure | None:
        return cls(model) if hasattr(model, "factorization") else None

    def laws(self) -> tuple[Any, ...]:
        return tuple(self.model.laws()) if self.about.counts else ()

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """From non-negative double singular value decomposition ("spectral") and random factors.

        Of rows in blocks signatures alone: those of the best of several factorizations of the
        sample ("spectral"), or random ones.
        """
        if problem.rows is not None:
            return self._start_of_blocks(problem, init, num_restarts)
        about = self.about
        x = problem.data.nan_to_num(nan=float(problem.data.nanmean())).clamp(min=0)
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
        """Activities for parameters (R, ...) that came without them; the engine solves for those of
        rows in blocks.
        """
        if problem.rows is not None:
            return params
        rows = [
            self.solve_local({name: v[r] for name, v in params.items()}, problem.data)
            for r in range(len(params["signatures"]))
        ]
        return params | {"activities": torch.stack([row["activities"] for row in rows])}

    def conditional_rows(self, params: Params, data: Tensor) -> Tensor:
        return conditional_rows(self.about, params, data)

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Activities of the rows of ``data`` given the parameters, by site."""
        about, phi = self.about, params["signatures"]
        data = data.to(phi)
        if about.counts or about.nonnegative:
            return {"activities": polished(updates_of(data, about, params), phi)}
        return {"activities": torch.linalg.lstsq(phi.mT, data.mT).solution.mT}

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        """The fitted means of the rows, (N, J), given the activities that suit each best."""
        own: Tensor = self.solve_local(params, program.args[0])["activities"] @ params["signatures"]
        return own

    def component_noise(
        self, params: Params, data: Tensor, generator: Generator, num_draws: int
    ) -> NoiseDraws:
        """Splits of every entry among the components, as normal scores; missing entries are drawn
        from the model.
        """
        about, z, phi = self.about, params["activities"], params["signatures"]
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

    def refused_rows(self, data: Tensor) -> Tensor | None:
        return data.nansum(-1) == 0 if self.about.counts else None

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling total activity (size, where activities may be
        negative).
        """
        order = params["activities"].abs().sum(-2).argsort(descending=True)
        return params | {
            "signatures": params["signatures"][order],
            "activities": params["activities"][:, order],
        }

    def num_densities(self, num_items: int) -> int:
        return 0 if self.about.counts else num_items

    def num_free(self, params: Params) -> int:
        """Signatures without their normalisation, activities where given, and the scale.

        Without signs to keep, the product of activities and signatures is the same under every
        invertible K x K change of both, of which normalisation is K numbers: K (N + J - K) are
        left, the dimension of matrices of rank K.
        """
        return self._num_free(
            params, params["activities"].shape[-2] if "activities" in params else 0
        )

    def count_free(self, problem: Problem, params: Params) -> int | None:
        return None if problem.rows is None else self._num_free(params, problem.num_rows)

    def _num_free(self, params: Params, num_rows: int) -> int:
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
        exact = not (self.about.counts or self.about.nonnegative)
        return Recommendation(
            Factorize(), "spectral", 1 if exact or problem.rows is not None else NUM_STARTS
        )


def _noise(
    about: FactorizationDescription,
    counts: np.ndarray,
    rates: np.ndarray,
    delta: float | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """One split of the counts (N, J), NaN where missing, among components of means ``rates`` (N, K,
    J), as normal scores.
    """
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
        shares = rng.standard_gamma(
            np.maximum(rates, 1e-300) / delta
        )  # of a Dirichlet law, up to their sum
    y = poisson_split(
        np.where(np.isnan(counts), rng.poisson(mean), np.nan_to_num(counts)), shares, rng
    )
    if delta is None:
        return poisson_scores(y, rates, rng)
    return negative_binomial_scores(
        y, rates, 1 / delta if about.variance == "quadratic" else rates / delta, rng
    )

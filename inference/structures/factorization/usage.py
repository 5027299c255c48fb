"""Factorizations with binary usage: starts, statistics of draws, and noise of the components that a
row uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.align import Labels
from inference.base.component_noise import (
    NoiseDraws,
    numpy_generator,
    poisson_scores,
    poisson_split,
)
from inference.base.draw_steps import Averages
from inference.base.gibbs import Latents
from inference.base.progress import NoProgress
from inference.base.structure import Recommendation, Structure, component_noise, draw_steps_of
from inference.programs.program import Params, Program
from inference.structures.factorization.counts import Counts
from inference.structures.factorization.factorize import Course, Factorize
from inference.structures.factorization.starts import nndsvd, random_factors
from inference.structures.factorization.usage_gibbs import UsageGibbs

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import UsageDescription


NUM_STARTS = 10  # of the factorization without usage from which a fit begins
SMOOTHED = (
    0.1  # share of the mean row in the signatures that a fit starts from: their zeros would stay
)
# share of a row's counts from which a component of that factorization is held to be present
PRESENT = 0.01
SHARE_LIMIT = 1e-3  # proportions stay so far from 0 and 1
NUM_BURN_IN, NUM_BETWEEN = 30, 5  # sweeps before the first draw of noise, and from one to the next


@dataclass(frozen=True, eq=False)
class UsageDraws:
    r"""Both halves of stochastic-approximation EM.

    Given a draw the shares of a count are :math:`E[y_{nkj}] = x_{nj} b_{nk} z_{nk} \phi_{kj} /
    \mu_{nj}`, and :math:`b_{nk} z_{nk} \phi_{kj}` where it is missing. Their sums give the
    signatures, the chances of presence the proportions, the amounts where present their mean.

    Args:
        gibbs: the sampler, which holds the data.
    """

    gibbs: UsageGibbs

    def statistics(
        self, params: Params, latents: Latents, chances: Latents
    ) -> tuple[Averages, Tensor]:
        phi, z = params["signatures"], (latents["usage"] * latents["activities"]).mT
        ratio = self.gibbs.x / (z @ phi).clamp(min=1e-12)
        ratio = (
            ratio if self.gibbs.mask is None else ratio * self.gibbs.mask + (1 - self.gibbs.mask)
        )
        num = len(self.gibbs.x)
        averages = {
            "shares": phi * (z.mT @ ratio) / num,
            "presence": chances["usage"].sum(-1) / num,
            "amount": chances["activities"].sum(-1) / num,
        }
        return averages, self.log_joint(params, latents)

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        return self.gibbs.log_joint_rows(params, latents).sum(-1)

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        return (
            new
            if old is None
            else {name: torch.lerp(old[name], value, rate) for name, value in new.items()}
        )

    def maximise(self, averages: Averages, params: Params) -> Params:
        about = self.gibbs.about
        shares = averages["shares"] + (about.concentration - 1) / len(self.gibbs.x)
        total = shares.sum(-1, keepdim=True)
        phi = torch.where(total > 0, shares / total.clamp(min=1e-300), params["signatures"])
        presence = averages["presence"]
        amounts = (averages["amount"] / presence.clamp(min=1e-300)).clamp(1e-6, about.bound)
        amounts = torch.where(presence > SHARE_LIMIT / 10, amounts, params["amounts"])
        return {
            "signatures": phi,
            "proportions": presence.clamp(SHARE_LIMIT, 1 - SHARE_LIMIT),
            "amounts": amounts,
        }

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        return self.maximise(self.statistics(params, latents, chances)[0], params)

    def relax(self) -> None:
        return None

    def rows(self, index: Tensor) -> UsageDraws:
        return replace(self, gibbs=self.gibbs.rows(index))


class UsageStructure(Structure):
    """A model that offers ``usage()``."""

    @cached_property
    def about(self) -> UsageDescription:
        """The model's description."""
        about: UsageDescription = self.model.usage()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> UsageStructure | None:
        return cls(model) if hasattr(model, "usage") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """From the best of several factorizations without usage ("spectral"), or random
        signatures.
        """
        about, num = self.about, num_restarts if init == "random" else max(NUM_STARTS, num_restarts)
        x = problem.data.nan_to_num(nan=float(problem.data.nanmean()))
        z, phi = random_factors(x, about.num_components, num, problem.seed)
        if init == "spectral":
            z[0], phi[0] = nndsvd(x, about.num_components, problem.seed)
            counts = Counts(*_filled(problem.data))
            course = Course.begin({"signatures": phi, "activities": z})
            course = Factorize(tolerance=1e-6).iterate(counts, course, NoProgress(), None, len(x))
            best = course.last.argsort(descending=True)[:num_restarts]
            z, phi = course.params["activities"][best], course.params["signatures"][best]
            phi = (1 - SMOOTHED) * phi + SMOOTHED * x.sum(0) / x.sum()
        present = (z > PRESENT * z.sum(-1, keepdim=True)).to(z)
        amounts = (present * z).sum(-2) / present.sum(-2).clamp(min=1)
        return {
            "signatures": phi,
            "proportions": present.mean(-2).clamp(0.05, 0.95),
            "amounts": amounts.clamp(1e-3, about.bound),
        }

    def gibbs(self, program: Program) -> UsageGibbs:
        return UsageGibbs.build(self.about, program.args[0])

    def exact_objective(self, problem: Problem, params: Params) -> None:
        return None  # sums over usage and integrals over activities are out of reach

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling expected counts a row."""
        order = (params["proportions"] * params["amounts"]).argsort(descending=True, stable=True)
        return {
            name: value[..., order] if name == "activities" else value[order]
            for name, value in params.items()
        }

    def labels(self) -> tuple[Labels, ...]:
        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            # drawn activities are (D, N, K), the parameters (D, K, ...)
            return {
                name: value[..., order] if name == "activities" else value[:, order]
                for name, value in params.items()
            }

        return (Labels("usage", lambda params: params["signatures"], rename),)

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Signatures without their normalisation, proportions and amounts."""
        k, j = params["signatures"].shape
        return k * (j + 1)

    def why_no_standard_errors(self, params: Params) -> str:
        return (
            "amounts of the rows are continuous and drawn with their presence, so the likelihood"
            " has no curvature at hand"
        )

    def recommended(self, problem: Problem) -> Recommendation:
        from inference.engines.saem import SAEM

        return Recommendation(SAEM(), "spectral", 1)


def _filled(data: Tensor) -> tuple[Tensor, Tensor | None]:
    from ppl_models.parts.responses import Poisson, filled

    return filled(Poisson(), data)


@component_noise.register(UsageStructure)
def _(
    structure: UsageStructure, params: Params, data: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    """Splits of every entry at posterior draws of usage and activities: a row counts where a
    draw uses the component.
    """
    gibbs, one = (
        UsageGibbs.build(structure.about, data.to(params["signatures"])),
        {n: v.unsqueeze(0) for n, v in params.items()},
    )
    latents = gibbs.begin(one, generator)
    rng, missing = numpy_generator(generator), data.isnan().numpy()
    phi, counts = params["signatures"].numpy(), data.nan_to_num().numpy()
    scores, used, total = [], [], np.zeros(len(phi))
    for draw in range(num_draws):
        for _ in range(NUM_BETWEEN if draw else NUM_BURN_IN):
            latents, chances = gibbs.sweep(one, latents, generator)
        rates = (latents["usage"] * latents["activities"])[0].mT.numpy()[
            ..., None
        ] * phi  # (N, K, J)
        whole = np.where(missing, rng.poisson(rates.sum(1)), counts)
        scores.append(poisson_scores(poisson_split(whole, rates, rng), rates, rng))
        used.append(latents["usage"][0].mT.numpy() > 0)
        total += chances["activities"][0].sum(-1).numpy()
    return NoiseDraws(np.stack(scores), np.stack(used), total / total.sum())


@draw_steps_of.register(UsageStructure)
def _(structure: UsageStructure, problem: Problem) -> UsageDraws:
    return UsageDraws(UsageGibbs.build(structure.about, problem.data))

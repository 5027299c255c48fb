"""Steps of stochastic-approximation EM: statistics of one draw, and their maximiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from inference.base.gibbs import GenericGibbs, Gibbs, Latents
from inference.base.steps import maximise_free
from inference.programs.program import Params

Averages = dict[str, Tensor]


class DrawSteps(Protocol):
    """Steps of SAEM for a model: draws, statistics, and the M-step.

    Parameters and latents carry a leading dim of R restarts.
    """

    @property
    def gibbs(self) -> Gibbs:
        """The sampler of the latents."""
        ...

    def statistics(
        self, params: Params, latents: Latents, chances: Latents
    ) -> tuple[Averages, Tensor]:
        """Statistics of one draw, and its complete-data log-density without the prior, (R,)."""
        ...

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        """Log p(rows, latents), (R,); where the rows are very many, of some of them, scaled up."""
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

    def statistics(
        self, params: Params, latents: Latents, chances: Latents
    ) -> tuple[Averages, Tensor]:
        log_joint = self.log_joint(params, latents)
        kept = {name: value.unsqueeze(0) for name, value in self.gibbs.shaped(latents).items()}
        return {"weight": log_joint.new_ones(1)} | kept, log_joint

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
        return self.maximise(self.statistics(params, latents, chances)[0], params)

    def relax(self) -> None:
        return None

    def rows(self, index: Tensor) -> DrawSteps:
        raise ValueError(
            "SAEM: batch_rows needs a model that describes its layers, got a plain program"
        )

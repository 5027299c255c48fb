"""Many data sets of one model of layers as one batched EM; see
:mod:`inference.base.steps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from inference.base.steps import SET, EStep, Steps, without_set
from inference.programs.program import Params
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics


@dataclass(frozen=True)
class SetSteps(Steps[TowerStatistics]):
    """The two halves of EM where restarts differ in their data.

    Args:
        base: steps whose data are (S, N, J).
    """

    base: LayeredSteps

    def e_step(self, params: Params) -> EStep[TowerStatistics]:
        index = params[SET].long()
        mask = None if self.base.mask is None else self.base.mask[index]
        return replace(self.base, data=self.base.data[index], mask=mask).e_step(without_set(params))

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        return self.base.m_step(statistics, without_set(params)) | {SET: params[SET]}

    def on(self, data: Tensor, weights: Tensor | None = None) -> SetSteps:
        """Other rows of every data set, (S, N, J)."""
        self.refuse_weights(weights)
        return SetSteps(self.base.on(data))

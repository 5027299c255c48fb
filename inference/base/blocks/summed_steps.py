"""The halves of EM where rows come in blocks, of one process or of many: sums over all of them, and the M-step as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from inference.base.blocks.checked_rows import CheckedRows
from inference.base.blocks.processes import Processes
from inference.base.checkpoint import Checkpoint
from inference.base.steps import Steps
from inference.programs.program import Params

__all__ = ["SharedCheckpoint", "SummedSteps"]

State = TypeVar("State")


@dataclass(frozen=True, eq=False)
class SummedSteps(Steps):
    """Any steps whose M-step needs no more than sums over rows.

    Args:
        steps: of a sample, which has missing entries where the rows have some.
        rows: all of them.
    """

    steps: Steps
    rows: CheckedRows

    def e_step(self, params: Params) -> tuple[Any, Tensor, Tensor]:
        """One pass over the rows, and one message among processes.

        Every row brings its share of the log-prior, so that all processes have the same bits of it.
        """

        def of_rows(data: Tensor) -> dict[str, Any]:
            statistics, log_likelihood, log_prior = self.steps.on(data).e_step(params)
            return {"statistics": statistics, "likelihood": log_likelihood.double(), "prior": log_prior.double() * (len(data) / self.rows.num_rows)}

        found = self.rows.summed(of_rows)
        return found["statistics"], found["likelihood"], found["prior"]

    def m_step(self, statistics: Any, params: Params) -> Params:
        return self.rows.processes.params_of_first(self.steps.m_step(statistics, params))

    def on(self, data: Any) -> Steps:
        return self.steps.on(data)

    def relax(self) -> SummedSteps | None:
        easier = self.steps.relax()
        return None if easier is None else SummedSteps(easier, self.rows)


class SharedCheckpoint(Checkpoint):
    """A running fit on the disk of process 0, which tells the others where it stood.

    Args:
        path, fingerprint: as there; processes: that share the fit.
    """

    def __init__(self, path: Path, fingerprint: str, processes: Processes) -> None:
        super().__init__(path, fingerprint)
        self.processes = processes

    def save(self, state: Any) -> None:
        if self.processes.rank == 0:
            super().save(state)

    def load(self, kind: type[State]) -> State | None:
        state, error = None, None
        if self.processes.rank == 0:
            try:
                state = super().load(kind)
            except ValueError as caught:
                error = str(caught)
        state, error = self.processes.from_first((state, error))
        if error is not None:
            raise ValueError(error)
        return state

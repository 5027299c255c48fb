"""Halves of EM for rows in blocks: sums over all rows, and the M-step as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.steps import EStep, GenericSteps, Steps
from inference.base.streaming.processes import Processes
from inference.base.streaming.rows import CheckedRows
from inference.programs.expectation import SummedExpectation
from inference.programs.labelled import Labelled
from inference.programs.program import Params, Program

S = TypeVar("S")
State = TypeVar("State")


@dataclass(frozen=True, eq=False)
class SummedSteps(Steps[S]):
    """EM steps of rows in blocks, whose M-step needs no more than sums over rows.

    Args:
        steps: of a sample, which has missing entries where the rows have some.
        rows: all of them.
    """

    steps: Steps[S]
    rows: CheckedRows

    @property
    def known_sites(self) -> frozenset[str]:
        return self.steps.known_sites

    def e_step(self, params: Params) -> EStep[S]:
        """Expected statistics by one pass over the rows, one message among processes.

        Every row brings its share of the log-prior, so that all processes have the same bits of it.
        """

        def of_rows(place: slice, data: Tensor) -> dict[str, Any]:
            own = slice(self.rows.first_row + place.start, self.rows.first_row + place.stop)
            weights = None if self.rows.weights is None else self.rows.weights[own]
            steps: Any = self.steps.on(data, weights)
            for table in self.rows.labels_at(own, data).values():  # of one latent
                steps = replace(steps, labels=table)
            statistics, log_likelihood, log_prior = steps.e_step(params)
            return {
                "statistics": statistics,
                "likelihood": log_likelihood.double(),
                "prior": log_prior.double() * (len(data) / self.rows.num_rows),
            }

        sums = self.rows.summed_at(of_rows)
        return EStep(sums["statistics"], sums["likelihood"], sums["prior"])

    def m_step(self, statistics: S, params: Params) -> Params:
        return self.rows.processes.params_of_first(self.steps.m_step(statistics, params))

    def on(self, data: Any, weights: Tensor | None = None) -> Steps[S]:
        return self.steps.on(data, weights)

    def pooled(self, statistics: S, ties: Mapping[str, Tensor]) -> S:
        return self.steps.pooled(statistics, ties)

    def relax(self) -> SummedSteps[S] | None:
        easier = self.steps.relax()
        return None if easier is None else SummedSteps(easier, self.rows)


@dataclass(frozen=True, eq=False)
class SummedGenericSteps(Steps[Any]):
    """EM for any program of independent rows: the bound and its derivatives summed over them.

    An M-step reads the rows as often as Newton's method looks at the bound, some three to ten
    times.

    Args:
        program: with a sample of the rows.
        rows: all of them.
        num_steps: L-BFGS iterations of one M-step, where Newton's method does not pay or has not
            arrived.
        model: of the program, without labels.
    """

    program: Program
    rows: CheckedRows
    num_steps: int
    model: Callable[..., Any]

    @cached_property
    def _halves(self) -> SummedExpectation:
        return SummedExpectation(self.program, self._summed, self.rows.num_rows, self._agreed)

    def _summed(self, of_rows: Callable[[Program], dict[str, Tensor]]) -> dict[str, Tensor]:
        if not self.rows.labels:
            return self.rows.summed(
                lambda data, weights: of_rows(self.program.with_data(data).weighed(weights))
            )

        def labelled(place: slice, data: Any) -> dict[str, Tensor]:
            own = slice(self.rows.first_row + place.start, self.rows.first_row + place.stop)
            weights = None if self.rows.weights is None else self.rows.weights[own]
            program = Program(Labelled(self.model, self.rows.labels_at(own, data)), data)
            return of_rows(program.weighed(weights))

        return self.rows.summed_at(labelled)

    def _agreed(self, point: Tensor) -> Tensor:
        return self.rows.processes.params_of_first({"point": point})["point"]

    def e_step(self, params: Params) -> EStep[None]:
        """Log-likelihood and log-prior alone, for posteriors are as many as rows."""
        with torch.no_grad():
            return EStep(None, self._halves.log_likelihood(params), self.program.log_prior(params))

    def m_step(self, statistics: None, params: Params) -> Params:
        """Maximise the bound under the posteriors at ``params``."""
        return self.rows.processes.params_of_first(self._halves.improve(params, self.num_steps))

    def on(self, data: Any, weights: Tensor | None = None) -> GenericSteps:
        return GenericSteps(self.program, self.num_steps).on(data, weights)


class SharedCheckpoint(Checkpoint):
    """Checkpoint on the disk of process 0, whose state the others receive.

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
        return cast("State | None", state)

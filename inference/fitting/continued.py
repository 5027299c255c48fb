"""Fit that goes on with further rows, by stepwise EM."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.base.structure import Problem
from inference.engines.em import EM
from inference.engines.online_em import OnlineEM, OnlineState
from inference.fitting.columns import checked_as_fitted
from inference.fitting.problem import problem_of
from inference.fitting.record import Restarts, Trace
from inference.fitting.result import Fit
from inference.fitting.weights import row_weights
from inference.programs.global_state import quiet


@dataclass(frozen=True, eq=False)
class ContinuedFit:
    r"""Stepwise EM of rows that come in batches (:class:`inference.OnlineEM`).

    The first batch is fitted as it is, from as many starts as any fit. With :math:`N_t` rows in
    batches 0 to t, of which n_t in the last, the M-step is given

    .. math::

        S_t = (1 - \gamma_t) \frac{N_t}{N_{t-1}} S_{t-1} + \gamma_t \frac{N_t}{n_t} \sum_{n \in
        \text{batch } t} s(x_n; \theta_{t-1}), \qquad \gamma_t = (t + 2)^{-\kappa},

    so that priors and penalties weigh what they weigh for all rows that have been seen.

    Args:
        fit: after the last batch; its log-likelihood is that of the batch times the ratio of
            observations (rows, as often as their weights say, or steps) so far to those of the
            batch. It has no draws, which would be those of the first batch.
        first: rows of the first batch, the point about which moments are taken.
        state: S_t per row, and the parameters.
    """

    fit: Fit
    first: Any
    state: OnlineState

    @classmethod
    def begin(cls, fit: Fit, first: Any, weights: Any = None) -> ContinuedFit:
        """Begin with the fit of the first batch, whose sums are S_0.

        Raises:
            ValueError: for models whose M-step wants more than sums over rows, and fits with labels
                or fixed parameters.
        """
        fit.refuse_labels("partial_fit")
        start = OnlineState.begin({name: value[None] for name, value in fit.params.items()})
        own, method = cls(fit, first, start), OnlineEM()
        problem = own._problem()
        method.check(problem)
        rows = own._rows(problem, first, weights)
        state = method.renewed(problem, EM().steps(problem), start, iter([rows]), fit.num_rows)
        return cls(fit, first, dataclasses.replace(state, params=start.params))

    def renewed(self, batch: Any, weights: Any, method: OnlineEM) -> ContinuedFit:
        """Go on with a batch of rows, under the columns of the fit."""
        problem, fit = self._problem(), self.fit
        steps, rows = EM().steps(problem), self._rows(problem, batch, weights)
        num_rows = fit.num_rows + len(rows[0])
        before = dataclasses.replace(
            self.state, averages=self.state.averages * (num_rows / fit.num_rows)
        )
        state = method.renewed(problem, steps, before, iter([rows]), num_rows)
        _, likelihood, prior = steps.on(*rows).e_step(state.params)
        own = dataclasses.replace(problem, data=rows[0], weights=rows[1])
        counted = problem.structure.num_observations(own)
        seen = (fit.num_observations or fit.num_rows) + counted
        likelihood = likelihood.double().cpu() * (seen / (counted or 1))
        value = likelihood + prior.double().cpu()
        restarts = Restarts(
            value,
            likelihood,
            torch.zeros(1, dtype=torch.bool),
            torch.tensor([state.batch]),
            state.params,
            0,
        )
        fit = dataclasses.replace(
            fit,
            params={name: value[0] for name, value in state.params.items()},
            method=EM(start=method),
            log_likelihood=float(likelihood),
            objective=float(value),
            trace=Trace("log-posterior, by one batch", value, likelihood),
            restarts=restarts,
            converged=False,
            num_iterations=state.batch,
            num_rows=num_rows,
            num_observations=seen,
            bic_price=None,
            row_weights=self._joined_weights(rows),
            warnings=(),
            draws=None,
            sample_stats=None,
        )
        return ContinuedFit(fit, self.first, state)

    def _joined_weights(self, rows: tuple[Tensor, Tensor | None]) -> Tensor | None:
        """Weights of all rows so far, (N_t,); None where none was given."""
        before, often = self.fit.row_weights, rows[1]
        if before is None and often is None:
            return None
        before = torch.ones(self.fit.num_rows) if before is None else before
        often = torch.ones(len(rows[0])) if often is None else often
        return torch.cat([before.double().cpu(), often.double().cpu()])

    def _problem(self) -> Problem:
        with quiet():  # said when the first batch was fitted
            return problem_of(self.fit.model, self.first, self.fit.seed, start_given=True)

    def _rows(self, problem: Problem, batch: Any, weights: Any) -> tuple[Tensor, Tensor | None]:
        data, _ = checked_as_fitted(self.fit, batch)
        often = None if weights is None else row_weights(weights, batch, data, problem.structure)
        return data, often

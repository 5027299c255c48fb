"""The last EM of a search for the latents of a noisy-OR network: on all rows, and then without the edges that are not paid for."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from inference.base.progress import Progress
from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import CauseSteps
from inference.structures.noisy_or.truncated_em import TruncatedSteps
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT

__all__ = ["Polish"]

OFTEN, SELDOM = 4, 8  # the states of truncated EM are exchanged in the first so many iterations, then at every eighth


class Polish:
    r"""EM under way, of one restart.

    The objective is the log-posterior less the description length :math:`\frac12 (m + e) \log N` of m priors and e edges; at
    first every latent has an edge to every item.

    Args:
        steps: exact or truncated halves of EM on all rows.
        params: where it begins, (1, ...).
    """

    def __init__(self, steps: CauseSteps, params: Params, progress: Progress) -> None:
        self.steps, self.params, self.progress = steps, params, progress
        self.objectives: list[float] = []
        self.likelihoods: list[float] = []
        self.converged = False

    @property
    def edge_price(self) -> float:
        """Half the logarithm of the number of rows."""
        return 0.5 * math.log(max(2.0, self.steps.rows.num_rows))

    @property
    def log_likelihood(self) -> float:
        """At the parameters; a lower bound where EM is truncated."""
        return self.likelihoods[-1]

    def climb(self, max_iterations: int, tolerance: float) -> None:
        """EM until the objective gains less than ``tolerance`` of itself; ends with the objective of the parameters it leaves."""
        causes, first, self.converged = self.steps.causes, len(self.objectives), False
        edges = torch.ones(causes.num_causes, causes.num_items) if self.steps.edges is None else self.steps.edges
        price = float(edges.sum() + (edges.sum(1) > 0).sum()) * self.edge_price
        for iteration in range(max_iterations + 1):
            if isinstance(self.steps, TruncatedSteps) and (len(self.objectives) < OFTEN or iteration % SELDOM == 0):
                self.steps = self.steps.refreshed(self.params)
            statistics, log_likelihood, log_prior = self.steps.e_step(self.params)
            self.likelihoods.append(float(log_likelihood))
            self.objectives.append(float(log_likelihood + log_prior) - price)
            self.progress.update(len(self.objectives), objective=self.objectives[-1], active=1)
            if len(self.objectives) > first + 1:
                gain = self.objectives[-1] - self.objectives[-2]
                self.converged = gain < tolerance * max(1.0, abs(self.objectives[-1]))
            if self.converged or iteration == max_iterations:
                return
            self.params = self.steps.m_step(statistics, self.params)

    def thin(self) -> bool:
        """Take away the edges that are not worth their price; whether there were any."""
        statistics = self.steps.e_step(self.params)[0]
        edges = self.steps.without_unpaid_edges(statistics, self.params, self.edge_price)
        before = edges.numel() if self.steps.edges is None else int(self.steps.edges.sum())
        self.steps = replace(self.steps, edges=edges)
        failure = self.params[self.steps.causes.failure]
        self.params = {**self.params, self.steps.causes.failure: torch.where(edges, failure, 1 - PROBABILITY_LIMIT)}
        return int(edges.sum()) < before

r"""A fit that was made in units in which the columns are standardised, in those of the data.

With :math:`x = c + w z` the density of a row changes by :math:`1 / \prod_j w_j`, and the prior of
the parameters by the same rule: both are constants.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from inference.base.outcome import Outcome
from inference.base.structure import Problem, Standard
from inference.programs.program import Params


def in_units_of_the_data(outcome: Outcome, problem: Problem, standard: Standard) -> Outcome:
    """What an engine found for the standardised problem, as of the problem that the user gave."""
    params = standard.outward(outcome.params)
    of_rows = -standard.log_volume
    of_priors = of_rows + _log_prior(problem, params) - _log_prior(standard.problem, outcome.params)

    def constant(name: str) -> float:
        """Of a bound, and of a density of coordinates without units, only the rows' part
        changes.
        """
        return (
            of_priors
            if ("log-posterior" in name or "log-prior" in name) and "unconstrained" not in name
            else of_rows
        )

    name, stats = outcome.objective_name, outcome.sample_stats
    if stats is not None and "lp" in stats:
        stats = stats | {
            "lp": stats["lp"] + (of_priors if name == "ELBO" else of_rows)
        }  # chains and Laplace's say it of coordinates without units
    return dataclasses.replace(
        outcome,
        params=params,
        objective=outcome.objective + constant(name),
        log_likelihood=outcome.log_likelihood + of_rows,
        history=outcome.history + constant(outcome.trace_name or name),
        history_log_likelihood=outcome.history_log_likelihood + of_rows,
        draws=None if outcome.draws is None else standard.outward(outcome.draws),
        elbo=None if outcome.elbo is None else outcome.elbo + of_rows,
        sample_stats=stats,
    )


def _log_prior(problem: Problem, params: Params) -> float:
    with torch.no_grad():
        value: Tensor = problem.program_of_one_row().log_prior(
            {name: own[:1] for name, own in params.items()}
        )
    return float(value.double()[0])

"""Draws of parameters as what an engine hands back: renamed alike, summarised, with R-hat
judged.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.align import relabel_draws
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.structure import open_sites
from inference.programs.program import Params

if TYPE_CHECKING:
    from inference.base.structure import Problem


GOOD_RHAT = 1.01  # Vehtari et al. 2021, doi:10.1214/20-BA1221


def posterior_outcome(
    problem: Problem, params: Params, sample_stats: Params, log_density: Tensor, relabel: bool
) -> Outcome:
    """An outcome from draws.

    Args:
        problem: model and data.
        params: draws by site name, (C, D, ...).
        sample_stats: (C, D) each; whether a draw was renamed is added.
        log_density: (C, D), what the names of latents are taken from the best of, and the history.
        relabel: whether to rename latents.

    Warns:
        ConvergenceWarning: where R-hat of some parameter is above 1.01.
    """
    from inference.base.diagnostics import rhat_of_draws

    num_chains, num_draws = log_density.shape
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in params.items()}
    labels = problem.structure.labels() if relabel else ()
    best = int(log_density.reshape(-1).nan_to_num(nan=-torch.inf).argmax())
    reference = problem.structure.canonical({name: value[best] for name, value in flat.items()})
    program = problem.program()
    flat, changed = relabel_draws(flat, labels, reference, program.inside)
    sample_stats = dict(sample_stats)
    if labels:
        sample_stats["relabelled"] = changed.reshape(num_chains, num_draws)
    draws = {
        name: value.reshape(num_chains, num_draws, *value.shape[1:]) for name, value in flat.items()
    }
    local = problem.structure.local_sites
    rhats = (
        rhat_of_draws({name: value for name, value in draws.items() if name not in local})
        if num_chains > 1
        else {}
    )
    worst = max(
        ((float(v.nan_to_num(nan=0.0).max()), name) for name, v in rhats.items()),
        default=(torch.inf, ""),
    )
    if rhats and worst[0] > GOOD_RHAT:
        warnings.warn(
            f"R-hat of {worst[1]} is {worst[0]:.3f}, above {GOOD_RHAT}: the chains do not agree;"
            " more draws or warm-up, informative priors, or a model whose parameters the data"
            " determine",
            ConvergenceWarning,
            stacklevel=3,
        )
    mean = {name: value.mean(0, keepdim=True) for name, value in flat.items()}
    with torch.no_grad():
        log_likelihood = program.log_marginal(mean).double().cpu().reshape(1)
        objective = log_likelihood + program.log_prior(mean).double().cpu()
    drawn = tuple(
        name for name in program.names("local") if name not in problem.structure.local_sites
    )
    if drawn:  # it would be the likelihood at one value of what should be integrated
        exact = None
        if not open_sites(problem.structure, program):
            exact = problem.structure.exact_objective(
                problem, {name: mean[name] for name in program.names("parameter")}
            )
        log_likelihood = torch.full_like(log_likelihood, torch.nan)
        if exact is not None:
            (log_likelihood, objective), drawn = exact, ()
    history = log_density.double().cpu().mean(0).unsqueeze(-1)
    return Outcome(
        params=mean,
        objective=objective,
        objective_name=(
            f"log-posterior of parameters and {', '.join(drawn)}" if drawn else "log-posterior"
        ),
        log_likelihood=log_likelihood,
        history=history,
        history_log_likelihood=torch.full_like(history, torch.nan),
        converged=torch.tensor([worst[0] <= GOOD_RHAT]),
        num_iterations=torch.tensor([num_draws]),
        draws={name: value for name, value in draws.items() if name not in local},
        trace_name="log-posterior density on the unconstrained scale, mean over chains",
        sample_stats=sample_stats,
    )

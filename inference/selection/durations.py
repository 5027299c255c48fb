r"""Test of geometric durations of hidden states against negative binomial ones.

A plain hidden Markov model is the negative binomial one whose sizes are all 1, a point inside their
range, so that twice the gain in log-likelihood is chi-square with as many degrees of freedom as
there are states, of long sequences with many visits to each state. A state that is left after every
step, or never, has visits of any size: the likelihood does not change with it, and it is no degree
of freedom. With few visits the test rejects
too often: of 1,000 geometric tables of 300 steps, some 16 visits to each of two states, 9.4 % at
5 % and 17.6 % at 10 %. The share of data sets drawn from the geometric fit whose ratio is as large
is another p-value (a parametric bootstrap, ``num_sets``; G. J. McLachlan 1987,
doi:10.2307/2347790), by the same search on the data and on every set. Its level holds there: 4.5 %
and 11.0 % of these tables (standard errors 1.2 and 1.4) have larger ratios than 95 % and 90 % of
data sets drawn from their fits, and of 215 tables tested one by one 13 are rejected at 5 % and 24
at 10 % (``benchmarks/durations.py --parts null level --steps 300``). The wider model climbs from
the geometric optimum, with the same states.

Source: S. S. Wilks (1938), doi:10.1214/aoms/1177732360.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.drawing import Answer
from inference.base.frames import pd
from inference.base.progress import NoProgress, RichProgress
from inference.bootstrap import BATCH_ELEMENTS, simulated_table
from inference.engines.em import EM, fit_sets
from inference.fitting.columns import as_fitted
from inference.fitting.fit import fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import quiet
from inference.programs.program import Params
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.parts.durations import MEANS, GeometricDurations, NegativeBinomialDurations
from ppl_models.parts.repr import counted
from ppl_models.parts.validation import Seed, as_seed, check_size

LEVEL = 0.05
MOST_SETS = 50  # of a bootstrap that are fitted as one batch
AT_END = 1e-6  # of the interval of mean durations
METHOD = EM(max_iterations=3000, tolerance=1e-10, parameter_tolerance=1e300)


@dataclass(frozen=True, eq=False, repr=False)
class DurationsTest(Answer):
    """Gain in log-likelihood of negative binomial durations, and how often chance gains as much.

    Args:
        statistic: twice the gain; num_states: its degrees of freedom, states that are left, and not
            after every step; p_value: of geometric ones.
        geometric, negative_binomial: both fits.
        num_sets: data sets that the p-value counts; 0 for that of a chi-square distribution.
    """

    statistic: float
    num_states: int
    p_value: float
    geometric: Fit
    negative_binomial: Fit
    num_sets: int = 0

    @property
    def headline(self) -> str:
        """Result of the test, in a sentence."""
        words = "may last" if self.p_value >= LEVEL else "do not last"
        return f"Visits {words} geometrically (p = {self.p_value:.3g})."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The ratio, and how regular visits are."""
        sizes = self.negative_binomial.params["duration_sizes"].tolist()
        return (
            f"Negative binomial durations gain {self.statistic / 2:.2f} in log-likelihood for"
            f" {counted(self.num_states, 'parameter')}; the p-value is"
            + (
                f" a share of {self.num_sets} data sets drawn from the geometric fit."
                if self.num_sets
                else " that of long sequences."
            ),
            "Sizes of the states: "
            + ", ".join(f"{size:.3g}" for size in sizes)
            + " (1 is geometric, more is more regular, less is less).",
        )

    def text(self) -> str:
        """Return the sentences."""
        return " ".join((self.headline, *self.sentences))

    @property
    def table(self) -> pd.DataFrame:
        """Log-likelihoods, parameters and BIC of both fits, and the test."""
        fits = {"geometric": self.geometric, "negative binomial": self.negative_binomial}
        columns = {
            "log_likelihood": [own.log_likelihood for own in fits.values()],
            "num_parameters": [own.num_parameters for own in fits.values()],
            "bic": [own.bic for own in fits.values()],
            "ratio": [np.nan, self.statistic],
            "p_value": [np.nan, self.p_value],
        }
        return pd.DataFrame(columns, index=list(fits))


def durations_test(
    result: Fit, data: Any, num_sets: int = 0, seed: Seed = 0, progress: bool = False
) -> DurationsTest:
    """Likelihood-ratio test whether visits to hidden states last geometrically.

    Args:
        result: of a hidden Markov model, whose states both fits begin at: a plain one, or one with
            geometric or negative binomial durations.
        data: the sequences of the fit.
        num_sets: data sets drawn from the geometric fit and fitted by both, such as 99; 0 for the
            chi-square distribution of long sequences.
        seed: of these data sets; progress: show a bar of them on standard error.

    Raises:
        ValueError: for a fit of another model, one state, with weights, labels, known parameters,
            or Poisson or free durations; a number of data sets that is negative or no whole number.
    """
    owner = "durations_test"
    if num_sets != 0:
        check_size(owner, "num_sets", num_sets)
    seed = as_seed(owner, seed)
    about = getattr(result.structure, "about", None)
    if not isinstance(about, HiddenMarkovDescription):
        raise ValueError(
            f"{owner}: a fit of a hidden Markov model was expected, got one of {result.model_name}"
        )
    result.refuse_weights(owner)
    result.refuse_labels(owner)
    if about.num_states == 1:
        raise ValueError(f"{owner}: a fit of at least two states was expected, got one of one")
    given = about.durations
    if not isinstance(given, GeometricDurations | NegativeBinomialDurations | None):
        raise ValueError(
            f"{owner}: a plain chain, or geometric or negative binomial durations were expected,"
            f" got {given!r}"
        )
    most = None if given is None else given.max_duration
    settings: dict[str, Any] = {"stickiness": 0.0}
    if given is None:
        off = ~torch.eye(about.num_states, dtype=torch.bool)
        settings["allowed"] = about.allowed and (about.graph & off).tolist()
        settings["initial"] = "free" if about.initial == "stationary" else about.initial
    model: Any = result.model
    plain = replace(model, durations=GeometricDurations(most), **settings)
    start = _visits(result.params, about)
    wide = replace(plain, durations=NegativeBinomialDurations(most))
    first, second = _both(plain, wide, data, start)
    statistic = _ratio(first, second)
    from scipy.stats import chi2

    num_states = _num_sized(first.params["mean_durations"])
    p_value = float(chi2.sf(statistic, num_states)) if num_states else 1.0
    if num_sets:
        as_large, problem = 0, problem_of(plain, as_fitted(first, data), seed)
        at_once = max(1, min(MOST_SETS, BATCH_ELEMENTS // problem.data.numel()))
        with RichProgress(owner, num_sets) if progress else NoProgress() as bar:
            for begin in range(0, num_sets, at_once):
                seeds = range(seed + begin, seed + min(num_sets, begin + at_once))
                sets = torch.stack([simulated_table(problem, first.params, one) for one in seeds])
                with quiet():
                    found = _ratios(plain, wide, sets, first.params)
                as_large += int((found >= statistic).sum())
                done = begin + len(sets)
                bar.update(done, first.log_likelihood, num_sets - done)
        p_value = (1 + as_large) / (1 + num_sets)
    return DurationsTest(statistic, num_states, p_value, first, second, num_sets)


def _both(plain: Any, wide: Any, data: Any, start: Params) -> tuple[Fit, Fit]:
    """Fit of geometric durations from a start, and of negative binomial ones from there."""
    with quiet():
        first = fit(plain, data, METHOD, init=start, num_restarts=1)
        sizes = torch.ones_like(first.params["mean_durations"])
        wider = first.params | {"duration_sizes": sizes}
        return first, fit(wide, data, METHOD, init=wider, num_restarts=1)


def _num_sized(means: Tensor) -> int:
    """Number of states of geometric visits whose likelihood tells a size of them."""
    low, high = MEANS
    return int(((means > low + AT_END) & (means < high / (1 + AT_END))).sum())


def _ratio(first: Fit, second: Fit) -> float:
    return max(0.0, 2 * (second.log_likelihood - first.log_likelihood))


def _ratios(plain: Any, wide: Any, sets: Tensor, start: Params) -> Tensor:
    """Ratios of many data sets (S, B, T, J), searched as one is by :func:`_both`, (S,)."""
    begin = {name: value.unsqueeze(0) for name, value in start.items()}
    first = fit_sets(problem_of(plain, sets[0], 0), METHOD, sets, begin)
    wider = first.params | {"duration_sizes": torch.ones_like(first.params["mean_durations"])}
    second = fit_sets(problem_of(wide, sets[0], 0), METHOD, sets, wider)
    return 2 * (second.log_likelihood - first.log_likelihood).clamp(min=0.0)


def _visits(params: Params, about: HiddenMarkovDescription) -> Params:
    """Parameters of geometric durations with the moves of a fit."""
    own = {name: value for name, value in params.items() if name != "duration_sizes"}
    moves: Tensor = own["transitions"]
    if "initial" not in own:
        own["initial"] = torch.full_like(moves[0], 1.0 / about.num_states)
    if about.initial not in ("free", "stationary"):
        del own["initial"]
    if about.durations is not None:
        return own
    leave = (1 - moves.diagonal()).clamp(min=1 / MEANS[1])
    jumps = moves - torch.diag(moves.diagonal())
    graph = (about.graph & ~torch.eye(about.num_states, dtype=torch.bool)).to(moves)
    jumps = jumps + 1e-6 * graph
    return own | {
        "transitions": jumps / jumps.sum(-1, keepdim=True),
        "mean_durations": leave.reciprocal().clamp(*MEANS),
    }

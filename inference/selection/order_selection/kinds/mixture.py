r"""Order selection of mixtures and hidden Markov models, with groups of components.

With P free parameters and N rows, over all candidates and numbers the smallest

.. math:: B = -2 L + P \log N

(Schwarz 1978, doi:10.1214/aos/1176344136). If the noise of every component at that choice looks as
the candidate says, by ACDC's discrepancies against tables simulated and fitted again, the number
counts components. Otherwise, or at the end of the grid, components are patches: what can be counted
are the groups left when components that overlap are merged (Hennig 2010,
doi:10.1007/s11634-010-0058-3). To be sure, the lenient penalty :math:`-2 L + 3 P` (Bozdogan 1994)
must choose the same number, and no two components may overlap much: two that do, and one group of
another shape, give the same data.

Of hidden Markov models N counts the steps that have entries, and overlap is that of states given
the whole sequence. Where visits do not last geometrically, or rows of a visit hang together, the
smallest B takes patches too (Pohle et al. 2017, doi:10.1007/s13253-017-0283-8): the noise of rows,
of pairs of them and of durations (:mod:`inference.structures.hidden_markov.noise`) says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from inference.base.structure import Problem, more_starts
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.result import Fit
from inference.programs.program import Params
from inference.selection.durations import durations_test
from inference.selection.order_selection.counting import (
    CLEAR,
    FEW_ROWS,
    LARGEST,
    RISEN,
    Candidate,
    Counting,
    Fits,
    Grid,
    Key,
    Place,
    candidate_of,
    counting_of,
    finalists,
    lead_of,
    misfit_of,
    penalised,
    rows_of,
    status_of,
)
from inference.selection.order_selection.detectability import MISFIT, detectable_variance
from inference.selection.order_selection.groups import entropy, groups_of, merged_by_entropy
from inference.selection.order_selection.result import HowMany, HowManyGroups, HowManyStates
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.mixture.structure import MixtureStructure
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.row_distributions import MultivariateNormal, MultivariateT, SkewNormal
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical
from ppl_models.parts.durations import NegativeBinomialDurations
from ppl_models.parts.responses import Bernoulli, NegativeBinomial, Normal, Poisson

LENIENT_PRICE = 3.0  # of a parameter
DURATIONS_LEVEL = 0.05  # of the tests that visits last geometrically, together
MOST_MERGED = 3  # components beyond the number, that are merged
UNORDERED = {"Bernoulli", "categorical"}  # distributions of answers that have no scale
NAMES: dict[type, str] = {
    Normal: "normal",
    MultivariateNormal: "normal",
    MultivariateT: "Student t",
    SkewNormal: "skew-normal",
    Poisson: "Poisson",
    NegativeBinomial: "negative binomial",
    Bernoulli: "Bernoulli",
    Categorical: "categorical",
}


@counting_of.register
def _(structure: MixtureStructure) -> Counting:
    return CountingGroups()


@counting_of.register
def _(structure: HiddenMarkovStructure) -> Counting:
    return CountingStates()


class CountingGroups(Counting):
    """Order selection of the components of a mixture."""

    method = EM(max_iterations=500, tolerance=1e-7, parameter_tolerance=1e300)
    # tenths of a nat do not matter here, steps along a ridge even less
    contained = 2.0  # the limit of a candidate may lie beyond its parameters' interval
    record: type[HowManyGroups] = HowManyGroups

    def describe(self, structure: Any) -> tuple[str, int, Any]:
        """Return the distribution of a component's rows."""
        return _name(structure.about), 0, structure.about.component

    def room(self, shape: tuple[int, ...]) -> int:
        """Return the number of rows."""
        return shape[0] if len(shape) == 2 else LARGEST[-1]

    def num_random(self, candidate: Candidate, num_restarts: int) -> int:
        """Return twice the starts for skewed components, half for others."""
        return 2 * num_restarts if candidate.is_skewed else max(2, num_restarts // 2)

    def rank(self, fit: Fit) -> tuple[bool, float]:
        """Return whether the optimum is proper, and its objective."""
        return not fit.restarts.faults, fit.objective

    def end(self, fits: Mapping[int, Fit]) -> str:
        """Return the reason to fit no larger number, read from the last two numbers, or "".

        Either both penalised deviances lie above the lowest of a proper optimum by more than
        :data:`RISEN`, or neither number has a proper optimum, which alone the rule takes.
        """
        last = max(fits, default=0)
        proper = {k for k, fit_k in fits.items() if not fit_k.restarts.faults}
        if len(fits) < 3 or last - 1 not in fits or not proper:
            return ""
        if not proper & {last - 1, last}:
            return "no start ended in a proper optimum"
        n = fits[last].num_observations or fits[last].num_rows
        has_risen = all(
            min(values[last - 1], values[last]) > min(values[k] for k in proper) + RISEN
            for values in (penalised(fits, math.log(n)), penalised(fits, LENIENT_PRICE))
        )
        return f"both penalised deviances had risen by more than {RISEN:.0f}" if has_risen else ""

    def starts(self, problem: Problem, place: Place) -> Params:
        """Return the best starts by k-means++, merged first candidates, and split components."""
        structure: Any = problem.structure
        first = more_starts(structure, problem, "spectral", place.num_random, 0)
        assert first is not None  # both structures have starts
        starts = [first]
        if place.nested:
            shares = [
                merged_by_entropy(shares_of(fit_n, place.grid.data), place.k)
                for n, fit_n in place.nested.items()
                if place.k <= n <= place.k + MOST_MERGED
            ]
            starts.append(structure.start_from(problem, torch.stack(shares)))
        if place.smaller is not None:
            starts.append(structure.split_starts(problem, place.smaller.params))
        return finalists(problem, starts, place.grid.method)

    def answer(self, grid: Grid, fits: Fits) -> HowManyGroups:
        """Return the number of components by BIC, or of groups."""
        first = next(iter(fits.values()))
        n = first.num_observations or first.num_rows
        strict, lenient = penalised(fits, math.log(n)), penalised(fits, LENIENT_PRICE)
        proper = {key for key, fit_k in fits.items() if not fit_k.restarts.faults} or set(fits)
        distribution, k1 = best = min(proper, key=lambda key: (strict[key], key[1]))
        _, k2 = min(
            (key for key in proper if key[0] == distribution),
            key=lambda key: (lenient[key], key[1]),
        )
        misfit, used = misfit_of(fits[best], grid.data, grid.seed)
        groups = groups_of(shares_of(fits[best], grid.data))
        record = self.record
        reasons = _doubts(
            {key: strict[key] for key in proper}, grid, (k1, k2), groups.num_clear, record.noun
        )
        if n < FEW_ROWS:
            reasons.append(f"{n} {record.unit}s are too few to test a distribution")
        status = status_of(k1 == grid.sizes[-1], misfit > MISFIT, reasons)
        columns: dict[str, Mapping[Key, Any]] = {
            "num_parameters": {key: fit_k.num_parameters for key, fit_k in fits.items()},
            "bic": strict,
            "lenient": lenient,
            "icl": {
                key: strict[key] + 2 * _entropy_of(fit_k, grid.data) for key, fit_k in fits.items()
            },
            "proper": {key: key in proper for key in fits},
        }
        return record(
            num_components=(k1 if status in ("confident", "unsure") else groups.num_separated),
            distribution=distribution,
            status=status,
            interval=(min(k1, k2), max(k1, k2)),
            reasons=tuple(reasons) if status == "unsure" else (),
            misfit=misfit,
            rows=rows_of(fits, columns, best),
            fits=fits,
            unseen=self.unseen([candidate.name for candidate in grid.candidates])
            + _not_tried(grid, fits),
            detectable_variance=(
                math.inf if used < FEW_ROWS else self.detectable(fits[best], int(used))
            ),
            evidence={"groups": groups},
        )

    def detectable(self, fit: Fit, num_rows: int) -> float:
        """Return the least variance of unit noise that would be called a misfit."""
        structure: Any = fit.structure
        return detectable_variance(num_rows, structure.distribution.num_scores)

    def unseen(self, names: Sequence[str]) -> str:
        """Return what the data could not show, in a sentence."""
        near = (
            "one whose answers differ little from another's"
            if set(names) <= UNORDERED
            else "one closer to another than about two standard deviations"
        )
        return (
            "Two components that overlap and one group of another shape give the same data, so that"
            f" only the distributions offered ({_listed(names)}) distinguish them; {near} may"
            " have been missed."
        )


class CountingStates(CountingGroups):
    """Order selection of the states of a hidden Markov model."""

    number = "num_states"
    record = HowManyStates

    def describe(self, structure: Any) -> tuple[str, int, Any]:
        """Return the distribution of a state's steps, with that of its durations."""
        name = _name(structure.about.emission)
        if structure.model.durations is not None:
            name += f" with {structure.model.durations.title} durations"
        return name, 0, structure.about.emission.component

    def further(self, grid: Grid, fits: Fits, answer: HowMany) -> Sequence[Candidate]:
        """Return the chosen distribution with negative binomial durations, if visits ask for it.

        They do if the answer is not sure, and the test of geometric durations
        (:func:`~inference.selection.durations_test`) says so of its fit at some number of states up
        to the chosen one, at 5 per cent over the tests made. Then states beyond the true number
        make visits regular, so that fits of fewer states show it.
        """
        chosen = next(own for own in answer.rows if own["chosen"])
        best = next(own for own in grid.candidates if own.name == chosen["distribution"])
        has_durations = any(own.model.durations is not None for own in grid.candidates)
        sizes = [k for k in grid.sizes if 1 < k <= chosen["num_components"]]
        if answer.status == "confident" or has_durations or not sizes:
            return ()
        values = [durations_test(fits[best.name, k], grid.data).p_value for k in sizes]
        if min(values) * len(sizes) > DURATIONS_LEVEL:
            return ()
        initial = "free" if best.model.initial == "stationary" else best.model.initial
        settings = {"initial": initial, "stickiness": 0.0}
        wider = replace(best.model, durations=NegativeBinomialDurations(), **settings)
        return (candidate_of(wider),)

    def room(self, shape: tuple[int, ...]) -> int:
        """Return the largest number compared, whatever the sequences."""
        return LARGEST[-1]

    def has_gaps(self, table: Tensor) -> bool:
        """Tell whether steps miss some of their entries; whole steps may be missing."""
        missing = table.isnan()
        return bool((missing.any(-1) & ~missing.all(-1)).any())

    def detectable(self, fit: Fit, num_rows: int) -> float:
        """Return NaN, for it is not known of states."""
        return math.nan

    def unseen(self, names: Sequence[str]) -> str:
        """Return what the sequences could not show, in a sentence."""
        return (
            "Two states that overlap and follow each other, and one state with another distribution"
            " of rows or of durations, give the same data, so that only the distributions offered"
            f" ({_listed(names)}) distinguish them; a state that lasts for few steps in all may"
            " have been missed."
        )


def shares_of(fit: Fit, data: Any) -> Tensor:
    """Return responsibilities of rows, or of the states for steps that have entries, (N, K)."""
    (shares,) = fit.posterior_latents(data).values()
    if shares.dim() == 2:
        return shares
    packed, _ = checked_as_fitted(fit, data)
    return shares[packed.isfinite().any(-1).to(shares.device)]  # (B, T, K) before


def _name(about: MixtureComponents) -> str:
    if type(about.component) is Normal and about.num_items > 1:
        return "normal with independent columns"
    if type(about.component) is MultivariateNormal and about.component.covariance != "full":
        return f"normal with {about.component.covariance} covariances"
    if isinstance(about.component, Blocks):
        *others, last = dict.fromkeys(
            NAMES.get(type(part), type(part).__name__)
            for part, _, _ in about.component.blocks(about.num_items)
        )
        return f"{', '.join(others)} and {last}" if others else last
    return NAMES.get(type(about.component), type(about.component).__name__)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _entropy_of(fit: Fit, data: Any) -> float:
    """Return the entropy of responsibilities, NaN where a degenerate solution has none."""
    try:
        return entropy(shares_of(fit, data))
    except torch.linalg.LinAlgError:
        if not fit.restarts.faults:
            raise
        return math.nan


def _not_tried(grid: Grid, fits: Fits) -> str:
    """Return sentences on numbers that were left out, empty if none was."""
    words = ""
    for candidate in grid.candidates:
        own = {k: fit_k for (name, k), fit_k in fits.items() if name == candidate.name}
        if (last := max(own)) < grid.sizes[-1]:
            words += (
                f" Not tried was {candidate.name} above {last}, for {candidate.counting.end(own)}"
                f" at {last - 1} and {last}."
            )
    return words


def _doubts(
    strict: Mapping[Key, float], grid: Grid, chosen: tuple[int, int], num_clear: int, noun: str
) -> list[str]:
    k1, k2 = chosen
    doubts = []
    if k1 != k2:
        doubts.append(f"a lenient penalty would take {k2}")
    lead, rival = lead_of(strict, k1)
    if lead < CLEAR:
        doubts.append(f"{k1} leads {rival} by {lead:.1f} in BIC only, where 10 would be clear")
    if num_clear < k1:
        doubts.append(
            f"{noun}s overlap, so that they make {num_clear} clear"
            f" group{'' if num_clear == 1 else 's'} only, of another shape perhaps"
        )
    if k1 == grid.sizes[0] > 1:
        doubts.append("smaller numbers were not compared")
    return doubts

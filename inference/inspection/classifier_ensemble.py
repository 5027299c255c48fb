r"""Ensembles of independent classifiers: their spread over rows and over starts.

Every member is trained on a random half of the rows, from several starts. A half, and no bootstrap
sample: copies of a row in the training rows and among those held out would hide that a network
learns rows by heart. The mean square deviation of an estimate from half of the rows about that from
all is, to first order, :math:`(2/N - 1/N) \sigma^2 = \sigma^2 / N`: that of an estimate from all
rows (the delete-half jackknife).

Components are matched by the assignment in which a member's posterior of the rows agrees most with
that of the estimate. A start that does clearly worse on rows that it has not seen than the best
start of its half (by more than one standard error of the difference, row by row) has failed and
counts no more.

Source: J. Shao and C. F. J. Wu (1989), A general theory for jackknife variance estimation,
doi:10.1214/aos/1176347263; B. Lakshminarayanan, A. Pritzel and C. Blundell (2017), deep ensembles,
arXiv:1612.01474.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import Method
from inference.fitting.fit import fit
from inference.fitting.result import Fit
from inference.identifiability.classifiers import ClassifierIdentifiability, check_classifiers
from inference.inspection.classifiers import (
    classifier_curves,
    classifier_structure,
    complete_classifiers,
    variate_names,
)
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.classifiers.train import on_rows
from ppl_models.data.tables import first_tensor, map_tensors
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

MATCHED_ROWS = 5000  # rows on which components are matched and starts compared
LEVEL = 0.95


@dataclass(frozen=True)
class WeightSpread:
    """The weight of a component and what its estimate depends on.

    Args:
        component: counted from 0.
        estimate, lower, upper: with its interval.
        between_rows: standard deviation over halves of the rows, starts averaged.
        between_starts: standard deviation over starts on the same rows: of training, and of what
            the data leave open.
    """

    component: int
    estimate: float
    lower: float
    upper: float
    between_rows: float
    between_starts: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class CurveBands:
    """Classifiers and densities along a variate of one column, with pointwise bands.

    Args:
        variate: its name.
        places: (G,); classifiers, classifiers_lower, classifiers_upper: (G, C).
        edges: (B + 1,); densities, densities_lower, densities_upper: (B, C).
    """

    variate: str
    places: Tensor
    classifiers: Tensor
    classifiers_lower: Tensor
    classifiers_upper: Tensor
    edges: Tensor
    densities: Tensor
    densities_lower: Tensor
    densities_upper: Tensor


@shows_briefly
@dataclass(frozen=True, eq=False)
class ClassifierEnsemble:
    """Members trained on halves of the rows, named as in the estimate.

    Args:
        fit: the estimate, with the members as draws (starts, halves, ...): starts are its chains.
        failed: (starts, halves), members that did clearly worse than the best start of their half;
            that start stands in their place.
        level: of all intervals.
    """

    fit: Fit
    failed: Tensor
    level: float = LEVEL

    @property
    def members(self) -> Params:
        """Parameters of all members, (starts, halves, ...)."""
        draws: Params | None = self.fit.draws
        return {} if draws is None else draws

    @property
    def weights(self) -> tuple[WeightSpread, ...]:
        """One record a component."""
        value, members = self.fit.params["weights"].double(), self.members["weights"].double()
        lower, upper = spread(value, members, self.level)
        num_starts = len(members)
        of_starts = members.var(0).mean(0) if num_starts > 1 else torch.zeros_like(value)
        of_rows = (members.mean(0).var(0) - of_starts / num_starts).clamp(min=0)
        return tuple(
            WeightSpread(
                i,
                float(value[i]),
                float(lower[i].clamp(min=0)),
                float(upper[i].clamp(max=1)),
                math.sqrt(float(of_rows[i])),
                math.sqrt(float(of_starts[i])),
            )
            for i in range(len(value))
        )

    def curves(self, data: Any, variate: int | str) -> CurveBands:
        """Classifiers and densities along a variate, with bands; see :func:`classifier_curves`."""
        flat = _flat(self.members)
        value = classifier_curves(self.fit, data, variate)
        members = classifier_curves(self.fit, data, variate, params=flat)
        shape = self.failed.shape
        low, high = spread(value.classifiers, members.classifiers.unflatten(0, shape), self.level)
        least, most = spread(value.densities, members.densities.unflatten(0, shape), self.level)
        return CurveBands(
            value.variate,
            value.places,
            value.classifiers,
            low.clamp(min=0),
            high.clamp(max=1),
            value.edges,
            value.densities,
            least.clamp(min=0),
            most,
        )

    def identifiability(self, data: Any, delta: float = 0.05) -> ClassifierIdentifiability:
        """Identifiability with the members as judges of each other.

        See :func:`inference.identifiability.check_classifiers`.
        """
        structure = classifier_structure("identifiability", self.fit)
        # one member a half: starts on the same rows are no independent judges
        best = {name: value[0] for name, value in self.members.items()}
        return check_classifiers(
            complete_classifiers(structure, best, data), variate_names(self.fit), delta
        )

    def text(self) -> str:
        """The weights and what they depend on, in words."""
        num_starts, num_halves = self.failed.shape
        num_failed = int(self.failed.sum())
        lines = [
            f"Weights with {100 * self.level:g}% intervals, from {num_halves} halves of the rows,"
            f" each trained from {num_starts} starts"
            + (f" ({num_failed} of {self.failed.numel()} failed):" if num_failed else ":")
        ]
        for own in self.weights:
            lines.append(
                f"  component {own.component}: {own.estimate:.3f} ({own.lower:.3f} to"
                f" {own.upper:.3f}); {own.between_rows:.3f} between rows, {own.between_starts:.3f}"
                " between starts"
            )
        rows = max(own.between_rows for own in self.weights)
        starts = max(own.between_starts for own in self.weights)
        if starts > 2 * rows and starts > 0.005:
            lines.append(
                "  Starts differ more than rows do: more rows alone would not settle the weights."
                " Either training is uneven (more epochs, larger networks), or the data leave the"
                " weights open: see identifiability(data)."
            )
        return "\n".join(lines)


def spread(estimate: Tensor, members: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Bounds of an estimate from the deviations of its members (starts, halves, ...).

    Student's t with one degree a half on their root mean square.
    """
    from scipy.stats import t

    deviation = (members - estimate).square().mean((0, 1)).sqrt()
    half = float(t.ppf(0.5 + level / 2, members.shape[1])) * deviation
    return estimate - half, estimate + half


def classifier_ensemble(
    estimate: Fit,
    data: Any,
    num_halves: int = 8,
    num_restarts: int = 2,
    method: Method | None = None,
    level: float = LEVEL,
    seed: Seed = 0,
    progress: bool = False,
) -> ClassifierEnsemble:
    """Train an ensemble around a fit of independent classifiers.

    Args:
        estimate: a fit of an ``InClassNet``.
        data: its rows.
        num_halves: random halves of the rows, at least 2.
        num_restarts: starts of each.
        method: engine of the members; None for the fit's.
        level: of the intervals.
        seed: of halves and starts.
        progress: show a bar on standard error.

    Returns:
        The members as draws of the fit (``.fit.to_arviz(...)`` has them), with intervals of
        weights, bands of curves, and an identifiability report.

    Raises:
        ValueError: for another kind of model, posterior draws, fewer than four rows a component, or
            settings out of range.
    """
    seed = as_seed("classifier_ensemble", seed)
    owner = "classifier_ensemble"
    structure = classifier_structure(owner, estimate)
    check_size(owner, "num_halves", num_halves, 2, "an integer of 2 or more")
    check_size(owner, "num_restarts", num_restarts)
    check_number(owner, "level", level, "lie in (0, 1)", above=0, below=1)
    rows = checked(structure.model, data)[0]
    num_rows = len(first_tensor(rows))
    if num_rows < 4 * structure.about.num_components:
        raise ValueError(
            f"{owner}: at least {4 * structure.about.num_components} rows were expected, got"
            f" {num_rows}"
        )
    generator = torch.Generator().manual_seed(seed)
    step = max(1, num_rows // MATCHED_ROWS)
    looked = torch.arange(0, num_rows, step)
    shown = _some(rows, looked)
    single = {name: value[None] for name, value in estimate.params.items()}
    target = _posterior(structure, single, shown)[0]
    members, failed = [], []
    with RichProgress("halves", num_halves) if progress else NoProgress() as bar:
        for half in range(num_halves):
            own = torch.randperm(num_rows, generator=generator)[: num_rows // 2].sort().values
            with quiet():  # of members: what they say is counted in ``failed`` and in the spread
                engine, start = on_rows(method or estimate.method, own), seed + 1 + half
                result = fit(
                    structure.model, _some(rows, own), engine, num_restarts=num_restarts, seed=start
                )
            params = {name: result.restarts.params[name] for name in estimate.params}
            unseen = ~torch.isin(looked, own)
            worse, best = _worse(structure, params, _some(shown, unseen))
            params = {
                name: torch.where(worse.reshape(-1, *[1] * (value.dim() - 1)), value[best], value)
                for name, value in params.items()
            }
            params = {
                name: torch.cat([value[best : best + 1], value[:best], value[best + 1 :]])
                for name, value in params.items()
            }
            members.append(_named_alike(structure, params, target, shown))
            failed.append(torch.cat([worse[best : best + 1], worse[:best], worse[best + 1 :]]))
            bar.update(half + 1, objective=result.objective, active=num_halves - half - 1)
    draws = {name: torch.stack([member[name] for member in members], 1) for name in estimate.params}
    return ClassifierEnsemble(
        dataclasses.replace(estimate, draws=draws), torch.stack(failed, 1), level
    )


def _some(rows: Any, index: Tensor) -> Any:
    return map_tensors(lambda x: x[index], rows)


def _flat(members: Params) -> Params:
    return {name: value.flatten(0, 1) for name, value in members.items()}


def _joint(structure: ClassifierStructure, params: Params, rows: Any) -> Tensor:
    with torch.no_grad():
        ratios: Tensor = structure.model.log_ratios(rows, params).sum(-3)
    return ratios + params["weights"].log().unsqueeze(-2)  # (R, N, C)


def _posterior(structure: ClassifierStructure, params: Params, rows: Any) -> Tensor:
    return _joint(structure, params, rows).softmax(-1)


def _worse(structure: ClassifierStructure, params: Params, unseen: Any) -> tuple[Tensor, int]:
    """Starts clearly worse on unseen rows than the best one, (R,), and the best one."""
    ratios = _joint(structure, params, unseen).logsumexp(-1)  # (R, N)
    best = int(ratios.mean(-1).argmax())
    difference = ratios[best] - ratios
    error = difference.std(-1) / math.sqrt(ratios.shape[-1])
    return difference.mean(-1) > error, best


def _named_alike(
    structure: ClassifierStructure, params: Params, target: Tensor, rows: Any
) -> Params:
    """Components of every start in the order that agrees most with ``target`` (N, C)."""
    from scipy.optimize import linear_sum_assignment

    labels = structure.labels()
    if not labels:
        return params
    own = _posterior(structure, params, rows)
    out = []
    for r, posterior in enumerate(own):
        chosen, of = linear_sum_assignment(-(target.mT @ posterior).cpu().numpy())
        order = torch.as_tensor(of)[torch.as_tensor(chosen).argsort()]
        single = {name: value[r : r + 1] for name, value in params.items()}
        out.append(labels[0].rename(single, order, torch.zeros(len(order), dtype=torch.bool)))
    return {name: torch.cat([renamed[name] for renamed in out]) for name in params}

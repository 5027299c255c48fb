r"""Identifiability of mixtures of conditionally independent variates, from finite samples.

.. math::

    P(X) = \sum_{i=1}^C w_i \prod_{v=1}^V f_v^{(i)}(x_v), \qquad \alpha_v^{(i)}(x) = w_i
    f_v^{(i)}(x) / P_v(x)

* V = 1: never determined.
* V = 2, theorem 1, necessary: for any two components i, j and either variate the supremum of
  :math:`\alpha^{(i)} / (\alpha^{(i)} + \alpha^{(j)})` is one.
* V = 2, theorem 2, sufficient: the supremum of :math:`\alpha^{(i)}` is one for every component and
  either variate. With two components the theorems coincide. One fit is no witness of its own
  certainty: its theorem 2 counts only where the counts of rows that need no label agree with it.
* V >= 3: determined if in at least three variates the C densities are linearly independent; no
  component need be certain anywhere.

All up to the order of the components. Weights of zero, or two components that are equal in a
variate, break all of it.

Source: K. T. Matchev and P. Shyamsundar (2022), InClass nets, arXiv:2009.00131, theorems 1 and 2;
for three and more variates E. S. Allman, C. Matias and J. A. Rhodes (2009), Identifiability of
parameters in latent structure models with many observed variables, doi:10.1214/09-AOS689, theorem 8
(three of the variates are enough: densities of groups of variates are linearly independent where
those of one member are). The bounds, the check by counts and the interval of weights are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from inference.fitting.record import FitRecord
from inference.identifiability.classifier_evidence import (
    LEAST_ROWS,
    CrossCheck,
    Independence,
    LabelFreeWeight,
    Purity,
    certainty,
    classifier_bounds,
    cross_checks,
    equal_mixtures,
    independence,
    weight_errors,
)
from inference.identifiability.of_fit import (
    IdentifiabilityText,
    identifiability_of,
    possible_values,
    report_of,
)
from inference.identifiability.verdicts import plain_values
from inference.structures.classifiers.structure import ClassifierStructure
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number

MOST_LINES = 12
SUM_TOLERANCE = 1e-4
# over N: the scaled eigenvalue that a network may show of a variate that says nothing
NOISE_OF_NETWORKS = 50.0
WANTED = 0.01  # standard error of a weight that is called good


@shows_briefly
@dataclass(frozen=True)
class ClassifierIdentifiability:
    """Uniqueness of a fit of independent classifiers.

    Args:
        verdict: "supported", "refuted at this resolution", or "open".
        num_rows, num_members: rows, and matched fits that were looked at.
        weights: (C,), mean classifier outputs.
        variate_names: V names.
        delta: a classifier counts as certain from 1 - delta on.
        purity: theorem 2, one record a variate and component; empty for three and more variates.
        pairs: theorem 1, one record a variate and ordered pair of components; empty for two
            components and for three and more variates.
        independence: one record a variate, for three and more variates.
        checks, label_free_weights: counts of rows that need no label.
        weight_errors: for three and more variates the least standard errors with which any method
            that assumes nothing of the densities could know the weights from so many rows, (C,);
            else None.
        corners: for two variates and two components the corners of all mixtures that have the same
            distribution, see :func:`~inference.identifiability.classifier_evidence.equal_mixtures`;
            else ().
    """

    verdict: Literal["supported", "refuted at this resolution", "open"]
    num_rows: int
    num_members: int
    weights: tuple[float, ...]
    variate_names: tuple[str, ...]
    delta: float
    purity: tuple[Purity, ...]
    pairs: tuple[Purity, ...]
    independence: tuple[Independence, ...]
    checks: tuple[CrossCheck, ...]
    label_free_weights: tuple[LabelFreeWeight, ...]
    corners: tuple[tuple[float, float, float], ...]
    weight_errors: tuple[float, ...] | None = None

    @property
    def possible_weights(self) -> tuple[float, float] | None:
        """Interval of component 0's weight with the same distribution; None unless two by two."""
        weights = [corner[0] for corner in self.corners]
        return (min(weights), max(weights)) if weights else None

    def bounds(self, variate: int, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Least and largest chance of component 0 over all equally good mixtures, (N,).

        Args:
            variate: 0 or 1.
            alphas: (N,), chance of component 0 in the fit, given values of the variate.

        Returns:
            Two arrays; None unless there are two variates and two components.
        """
        if not self.corners:
            return None
        return classifier_bounds(alphas, variate, self.weights[0], np.array(self.corners))

    @property
    def contradicted(self) -> tuple[CrossCheck, ...]:
        """Counts that say that the classifiers are surer than the data allow."""
        return tuple(check for check in self.checks if check.verdict == "disagrees")

    def sentences(self) -> list[str]:
        """Sentences for the user, the verdict first."""
        num = f"{self.num_rows:,}"
        if len(self.weights) == 1:
            return [
                "One component: the fit is the product of the margins, and has no components to"
                " distinguish."
            ]
        if self.independence:
            sentences = [*_linear_independence(self, num), *_least_errors(self, num)]
            alone = (
                "The noise of one fit's networks can pass for a difference between densities, and"
                " its own error is not in the bounds"
            )
        else:
            sentences = _two_variates(self, num)
            alone = (
                "One fit chose the surest rows and judged them too, and its own error is not in the"
                " bounds"
            )
        if self.num_members == 1:
            sentences.append(f"{alone}: an ensemble of refits says more.")
        if self.contradicted:
            worst = max(self.contradicted, key=lambda check: check.lower / check.allowed)
            t, u = (self.variate_names[v] for v in worst.variates)
            sentences.append(
                f"But the classifiers are surer than the data allow: {worst.rows:,} rows are called"
                f" component {worst.components[0]} by variate {t} and component"
                f" {worst.components[1]} by variate {u}, both with at least"
                f" {100 * (1 - self.delta):g}%;"
                f" at least {worst.lower:.2f} times the number that chance would give, where"
                f" {worst.allowed:.2f} times is the most that such sure classifiers could show."
                " Take their certainty for an artefact of the networks, or the variates for"
                " dependent inside components."
            )
        return sentences

    def text(self) -> str:
        """Report in words."""
        lines = [" ".join(self.sentences())]
        for record in [*self.purity, *self.pairs][:MOST_LINES]:
            lines.append("  " + _purity_line(record, self.variate_names))
        lines += [
            f"  variate {self.variate_names[span.variate]}: densities {span.verdict}; smallest"
            f" scaled eigenvalue {span.smallest:.3g} (bounds {span.lower:.3g}, {span.upper:.3g})"
            for span in self.independence[:MOST_LINES]
        ]
        left = len(self.purity) + len(self.pairs) + len(self.independence) - MOST_LINES
        if left > 0:
            lines.append(f"  and {left} more in to_dict()")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; numbers that are not finite become None."""
        record = asdict(self) | {"possible_weights": self.possible_weights}
        record |= {"sentences": self.sentences(), "text": self.text()}
        plain: dict[str, Any] = plain_values(record)
        return plain


def check_classifiers(
    alphas: Sequence[np.ndarray],
    variate_names: Sequence[str] | None = None,
    delta: float = 0.05,
    level: float = 0.95,
    tolerance: float = 1e-3,
    seed: Seed = 0,
) -> ClassifierIdentifiability:
    r"""Judge theorems 1 and 2, or linear independence from three variates on.

    Args:
        alphas: one array a variate, (N, C): :math:`P(\text{component} \mid x_v)` of every row; or
            (M, N, C), of M matched fits. With several, one member chooses the surest rows and the
            others judge them, and the bounds include their scatter. Best are rows that the fits
            have not seen.
        variate_names: V names; 1, 2, ... if None.
        delta: a classifier counts as certain from 1 - delta on.
        level: of the one-sided bounds.
        tolerance: densities count as dependent where the lower bound of the smallest scaled
            eigenvalue does not exceed it, nor, for one fit alone, what the noise of its networks
            can show (50 over the number of rows).
        seed: of the bootstrap over rows (three and more variates).

    Raises:
        ValueError: for fewer than two variates, arrays of other shapes, values that are no chances
            or do not sum to one over components, or settings out of range.
    """
    seed = as_seed("check_classifiers", seed)
    owner = "check_classifiers"
    members = _checked(owner, alphas)
    check_number(owner, "delta", delta, "lie in (0, 0.5)", above=0, below=0.5)
    check_number(owner, "level", level, "lie in (0.5, 1)", above=0.5, below=1)
    check_number(owner, "tolerance", tolerance, "lie in [0, 1)", least=0, below=1)
    numbers = range(1, len(members) + 1)
    names = tuple(map(str, numbers if variate_names is None else variate_names))
    if len(names) != len(members):
        raise ValueError(f"{owner}: {len(members)} variate_names were expected, got {len(names)}")
    num_members, num_rows, size = members[0].shape
    means = [own.mean(0) for own in members]
    weights = np.mean([mean.mean(0) for mean in means], 0)
    purity: list[Purity] = []
    pairs: list[Purity] = []
    spans: list[Independence] = []
    corners, least_errors = np.zeros((0, 3)), None
    if size > 1 and len(members) == 2:
        for v, own in enumerate(members):
            purity += [certainty(own, v, i, None, delta, level) for i in range(size)]
            others = itertools.permutations(range(size), 2) if size > 2 else ()
            pairs += [certainty(own, v, i, j, delta, level) for i, j in others]
        if size == 2:
            suprema = np.array([record.best_lower for record in purity]).reshape(2, 2)
            corners = equal_mixtures(weights, np.maximum(suprema, 1e-12))
    elif size > 1:
        # several members judge each other without it
        floor = max(tolerance, NOISE_OF_NETWORKS / num_rows) if num_members == 1 else tolerance
        spans = [independence(own, v, floor, level, seed) for v, own in enumerate(members)]
        least_errors = tuple(float(error) for error in weight_errors(means, weights, seed))
    checks, shares = cross_checks(means, weights, delta, level) if size > 1 else ([], [])
    verdict: Literal["supported", "refuted at this resolution", "open"] = "open"
    contradicted = any(check.verdict == "disagrees" for check in checks)
    if len(members) == 2:
        necessary = pairs if size > 2 else purity
        if any(record.verdict == "refuted at this resolution" for record in necessary):
            verdict = "refuted at this resolution"
        elif all(record.verdict == "supported" for record in purity) and not contradicted:
            confirmed = num_members > 1 or all(check.verdict == "agrees" for check in checks)
            verdict = "supported" if confirmed or size == 1 else "open"
    elif size == 1 or sum(own.verdict == "independent" for own in spans) >= 3:
        verdict = "supported"
    return ClassifierIdentifiability(
        verdict,
        num_rows,
        num_members,
        tuple(float(w) for w in weights),
        names,
        float(delta),
        tuple(purity),
        tuple(pairs),
        tuple(spans),
        tuple(checks),
        tuple(shares),
        tuple((float(w), float(s), float(t)) for w, s, t in corners),
        least_errors,
    )


def _checked(owner: str, alphas: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Each variate's classifier as (M, N, C)."""
    arrays = [np.asarray(alpha, float) for alpha in alphas]
    if len(arrays) < 2:
        raise ValueError(
            f"{owner}: at least two variates were expected, got {len(arrays)}: one variate never"
            " determines a mixture"
        )
    shape = arrays[0].shape
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(
            f"{owner}: arrays (rows, components) or (members, rows, components) were expected, got"
            f" shape {shape}"
        )
    for v, own in enumerate(arrays):
        if own.shape != shape:
            raise ValueError(
                f"{owner}: variate {v} must have shape {shape} as the first, got {own.shape}"
            )
        is_valid = np.isfinite(own).all() and (own >= 0).all()
        if not is_valid or np.abs(own.sum(-1) - 1).max() >= SUM_TOLERANCE:
            raise ValueError(
                f"{owner}: variate {v}: chances that sum to 1 over components were expected"
            )
    return [own if len(shape) == 3 else own[None] for own in arrays]


def _two_variates(report: ClassifierIdentifiability, num: str) -> list[str]:
    size, sure = len(report.weights), f"{100 * (1 - report.delta):g}%"
    names, out = report.variate_names, []
    if report.verdict == "supported":
        out.append(
            f"Supported: each of the {size} components has values of both variates at which it is"
            f" all but certain (at least {sure}), so no other mixture of {size} components has the"
            f" same distribution, up to the order of components and as far as {num} rows can tell"
            " (theorem 2)."
        )
    elif report.verdict == "refuted at this resolution":
        necessary = report.pairs or report.purity
        failing = [record for record in necessary if record.verdict == "refuted at this resolution"]
        worst = min(failing, key=lambda record: record.mean)
        other = "any other" if worst.against is None else f"component {worst.against}"
        out.append(
            f"Refuted at this resolution: in these {num} rows variate {names[worst.variate]} never"
            f" tells component {worst.component} from {other} with certainty. Where it is surest"
            f" ({worst.share:.2%} of the rows that matter) its chance is {worst.mean:.3f}, at most"
            f" {worst.upper:.3f}. Then other weights and densities have exactly the same"
            " distribution"
            " (theorem 1), and the fit shows one of many answers. Known weights, a known density"
            " of one component, a third variate, or more rows in the tails would narrow them."
        )
    elif all(record.verdict == "supported" for record in report.purity):
        out.append(
            f"Open: the fit itself is all but certain (at least {sure}) of every component"
            " somewhere in both variates, which would make it the only one (theorem 2). But one"
            " fit is no witness of its own certainty, and too few rows lie where it is certain in"
            " both variates to confirm it by counting."
        )
    else:
        least = min(
            report.purity, key=lambda record: record.mean if record.mean == record.mean else -1.0
        )
        few = (
            "too few rows to say"
            if math.isnan(least.mean)
            else f"a chance of {least.mean:.3f} where it is surest"
        )
        out.append(
            "Open: nothing shows that other mixtures have the same distribution, and nothing"
            " excludes them. Certainty of every component in both variates would do (theorem 2);"
            f" component {least.component} in variate {names[least.variate]} has {few}."
        )
    if report.possible_weights is not None:
        low, high = report.possible_weights
        if high - low < 0.002:
            out.append(
                "Nor do these rows leave the weights any freedom: that of component 0 is"
                f" {report.weights[0]:.3f}, up to the error of sampling."
            )
        else:
            out.append(
                f"As far as these rows can tell, any weight of component 0 between {low:.3f} and"
                f" {high:.3f} may fit as well as the estimated {report.weights[0]:.3f}: this is"
                " freedom that no longer training removes. The middle of this interval,"
                f" {(low + high) / 2:.3f}, is within {(high - low) / 2:.3f} of them all."
            )
    return out


def _least_errors(report: ClassifierIdentifiability, num: str) -> list[str]:
    errors = report.weight_errors or ()
    if not errors or not all(math.isfinite(error) for error in errors):
        return []
    largest, known = max(errors), ", ".join(f"{error:.2g}" for error in errors)
    out = (
        f"With {num} rows no method that assumes nothing of the densities can know these weights"
        f" better than with standard errors of about {known} (in their order)."
    )
    if largest > WANTED:
        rows = report.num_rows * (largest / WANTED) ** 2
        out += (
            f" It would take some {_rounded(rows):,} rows to bring the largest down to {WANTED:g};"
            " or assume more, as a Mixture with named distributions does."
        )
    return [out]


def _rounded(value: float) -> int:
    """To two digits, upwards."""
    unit = 10 ** max(0, int(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit


def _linear_independence(report: ClassifierIdentifiability, num: str) -> list[str]:
    good = [own for own in report.independence if own.verdict == "independent"]
    count = f"{len(good)} of {len(report.independence)} variates"
    if report.verdict == "supported":
        third = sorted(good, key=lambda own: own.lower)[-3]
        return [
            (
                f"Supported: the densities of the {len(report.weights)} components are linearly"
                f" independent in {count}, and three are enough: no other mixture of as many"
                f" components has the same distribution, up to their order (judged from {num}"
                " rows). No component need be certain anywhere for that."
            ),
            (
                "How well conditioned that is: of the three clearest variates the weakest is"
                f" {report.variate_names[third.variate]}, with a smallest scaled eigenvalue of"
                f" {third.smallest:.2g} (1 where densities do not overlap); small values mean that"
                " many rows are needed."
            ),
        ]
    weak = min(report.independence, key=lambda own: own.lower)
    return [
        f"Open: the densities of the {len(report.weights)} components are shown to be linearly"
        f" independent in {count} only, and three are needed. In variate"
        f" {report.variate_names[weak.variate]} one of them is nearly a mixture of the others"
        f" (smallest scaled eigenvalue {weak.smallest:.2g}, lower bound {weak.lower:.2g}), or looks"
        " different from them by no more than the noise of networks: fewer components, or more"
        " rows, would help."
    ]


def _purity_line(record: Purity, names: tuple[str, ...]) -> str:
    what = f"component {record.component}" + (
        "" if record.against is None else f" against {record.against}"
    )
    start = f"variate {names[record.variate]}, {what}: {record.verdict}"
    if math.isnan(record.mean):
        return f"{start} (fewer than {LEAST_ROWS} rows in any share small enough)"
    return (
        f"{start}; mean {record.mean:.3f} (bounds {record.lower:.3f}, {record.upper:.3f}) over the"
        f" surest {record.share:.2%}, {record.rows:.0f} rows"
    )


@report_of.register
def _(structure: ClassifierStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    """Members of an ensemble, one a half of the rows, judge each other."""
    from inference.inspection.classifiers import (  # it reads ensembles, which are judged here
        complete_classifiers,
        variate_names,
    )

    if data is None:
        return None
    params = (
        fit.params if fit.draws is None else {name: value[0] for name, value in fit.draws.items()}
    )
    return check_classifiers(complete_classifiers(structure, params, data), variate_names(fit))


@possible_values.register
def _(
    structure: ClassifierStructure, fit: FitRecord, data: Any
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Weights of two components in two variates: theorem 1 as a band."""
    about = structure.about
    if data is None or (about.num_variates, about.num_components) != (2, 2):
        return {}
    found = identifiability_of(fit, data)
    if not isinstance(found, ClassifierIdentifiability) or found.possible_weights is None:
        return {}
    low, high = found.possible_weights
    return {"weights": (np.array([low, 1 - high]), np.array([high, 1 - low]))}

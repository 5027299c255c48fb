"""Factorizations: a verdict, the model in equations, signatures as pictures, and how much of the
data each component makes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from inference.fitting.names import labels_of
from inference.fitting.observed import as_matrix
from inference.plots.components import plot_signatures
from inference.plots.layers import plot_loadings
from inference.report.page import number, picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import Subject, estimates, fitted, middle, sizes
from inference.report.verdicts import (
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    verdict,
    what_was_fitted,
)
from inference.report.words import listed, verdict_of
from inference.structures.factorization.factor_analysis import FactorAnalysisStructure
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.usage import UsageStructure
from ppl_models.parts.repr import counted

LEAST_ALIKE = (
    0.95  # cosine of a signature with that of another start, below which it is said to differ
)
CLOSE = 1.0  # nats below the best start
CLEAR_EXCESS = 1.5  # of the variance of counts over their mean


# -------------------------------------------------------------------- the verdict


@verdict.register
def _(structure: FactorizationStructure, subject: Subject) -> Verdict:
    asked = [
        _on_parts(structure, subject),
        _on_starts(structure, subject),
        _on_uniqueness(structure, subject),
        _on_law(structure, subject),
        on_prediction(subject),
    ]
    choice = (
        "ppl-models select pmf, or inference.selection.select_components"
        if structure.about.counts
        else "inference.selection.fit_grid and held-out rows"
    )
    number_step = (
        "Ask whether this is the right number of components: fit several numbers and compare them"
        f" ({choice})."
    )
    return verdict_of(asked, number_step)


@verdict.register
def _(structure: UsageStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = (
        f"{counted(fit.num_rows, 'row')} of {about.num_items} columns of counts; in each row some"
        f" of {about.num_components} components (signatures) are present, in amounts of their own."
    )
    step = (
        "Ask whether this is the right number of components: fit several numbers and compare them"
        " (ppl-models select pmf --usage)."
    )
    return verdict_of(
        [
            what_was_fitted(words),
            on_convergence(subject),
            on_latents(subject),
            on_prediction(subject),
        ],
        step,
    )


@verdict.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> Verdict:
    params, size = subject.fit.params, structure.about.num_components
    common = params["signatures"].double().square().sum(0)
    share = float(common.sum() / (common + params["scales"].double().square()).sum())
    words = (
        f"{counted(subject.fit.num_rows, 'row')} of {structure.about.num_items} columns, as"
        f" {counted(size, 'factor')} that all columns share, and noise of each column's own. "
    )
    words += f"The factors account for {100 * share:.0f} % of the variance of the columns."
    turned = (
        None
        if size == 1
        else Finding(
            "care",
            "Are the factors determined?",
            (
                "Not one by one: any rotation of them fits as well. What is "
                "determined is the space that they span together."
            ),
            "Read no single factor before you have rotated them to a simple shape.",
        )
    )
    step = (
        "Ask whether this is the right number of factors: fit several numbers and compare them"
        " (inference.selection.select_dimension)."
    )
    determined = on_determination(subject) if size == 1 else turned
    return verdict_of(
        [what_was_fitted(words), on_convergence(subject), determined, on_prediction(subject)], step
    )


def _on_parts(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    fit, about = subject.fit, structure.about
    words = (
        f"{counted(fit.num_rows, 'row')} of {counted(about.num_items, 'column')}, each row as a sum"
        f" of {counted(about.num_components, 'component')} (signatures) in amounts of its own."
    )
    means = _means(subject)
    if means is None:
        return Finding("", "What was fitted?", words)
    values, fitted_means = means
    left, all_of_it = (
        _deviance(values, part, about.counts)
        for part in (fitted_means, _without_components(values, about.counts))
    )
    of = "deviance from rows that are all made alike" if about.counts else "variance of the columns"
    if all_of_it > 0:
        words += f" They account for {100 * (1 - left / all_of_it):.0f} % of the {of}."
    return Finding("", "What was fitted?", words)


def _means(subject: Subject) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows, NaN where missing, and what the fit expects of them."""
    fit, amounts = subject.fit, (subject.fit.local or {}).get("activities")
    if subject.data is None or amounts is None:
        return None
    values, means = (
        as_matrix(fit, subject.data),
        (amounts @ fit.params["signatures"]).detach().cpu().double().numpy(),
    )
    return (values, means) if values.shape == means.shape else None


def _deviance(values: np.ndarray, means: np.ndarray, counts: bool) -> float:
    """Of Poisson counts, or the sum of squares, over the entries that are there."""
    if not counts:
        return float(np.nansum((values - means) ** 2))
    means = np.maximum(means, 1e-12)
    return float(
        2
        * np.nansum(
            np.where(values > 0, values * np.log(np.maximum(values, 1e-12) / means), 0.0)
            - (values - means)
        )
    )


def _without_components(values: np.ndarray, counts: bool) -> np.ndarray:
    """Rows that are all alike but for their totals; of other numbers the means of the columns."""
    if not counts:
        return np.broadcast_to(np.nanmean(values, 0), values.shape)
    shares = np.nansum(values, 0) / np.nansum(values)
    here = ~np.isnan(values) @ shares  # what of the shares the entries of a row that are there hold
    return np.nansum(values, 1)[:, None] / np.maximum(here, 1e-12)[:, None] * shares


def _on_starts(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    fit, question = subject.fit, "Did the fit converge?"
    ends = fit.restarts.objective.double()
    if not fit.converged:
        return Finding(
            "bad",
            question,
            f"No, it stopped after {fit.num_iterations:,} iterations.",
            "Let the fit run on before anything is read from it: Factorize(max_sweeps=...), or more"
            " starts.",
        )
    if not _is_bounded(structure):
        return Finding(
            "good",
            question,
            "Yes: the best fit of this kind is known in one step (a singular value decomposition).",
        )
    near = int((ends >= ends.max() - CLOSE).sum())
    words = (
        f"{near} of {len(ends)} starts ended within {CLOSE:.0f} nat of the best; those that fell"
        " behind early were given up."
    )
    if near > 1:
        return Finding("good", question, f"Yes. {words}")
    return Finding(
        "care",
        question,
        f"Yes, but only one start ended there. {words}",
        "Fit again with more starts (--restarts 30, or num_restarts=30), and see whether the best"
        " comes again.",
    )


def _is_bounded(structure: FactorizationStructure) -> bool:
    return structure.about.counts or structure.about.nonnegative


def _on_uniqueness(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    fit, question = subject.fit, "Are the signatures determined?"
    size = structure.about.num_components
    if not _is_bounded(structure):
        if size == 1:
            return Finding("good", question, "Yes, but for the sign.")
        words = (
            "Not one by one: any rotation of them fits the rows as well. What is determined is the"
            " space that they span together, and what it says of every row."
        )
        return Finding(
            "care",
            question,
            words,
            "Read no single signature; rotate them to a simple shape first, or fit with --law"
            " normal-nonnegative where the data are not negative.",
        )
    ends, signatures = (
        fit.restarts.objective.double(),
        fit.restarts.params["signatures"].detach().cpu().double().numpy(),
    )
    close = [
        r for r in (ends >= ends.max() - CLOSE).nonzero().ravel().tolist() if r != fit.restarts.best
    ]
    if not close:
        return None
    best = fit.params["signatures"].detach().cpu().double().numpy()
    alike = np.min([_alike(best, signatures[r]) for r in close], 0)
    labels = _labels(subject, size)
    off = [f"component {labels[k]}" for k in np.argsort(alike) if alike[k] < LEAST_ALIKE]
    if not off:
        return Finding(
            "good",
            question,
            f"Starts that fit equally well agree on every signature (cosine {alike.min():.2f} or"
            " more). That is no proof that no others would fit.",
        )
    words = (
        f"Not all: starts that fit equally well disagree on {listed(off)} (cosine down to"
        f" {alike.min():.2f})."
    )
    return Finding(
        "care",
        question,
        words,
        f"Do not interpret {listed(off)}; fewer components, or more rows, would settle them.",
    )


def _alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosine of each signature with its partner in another fit, (K,)."""
    unit = [
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300)
        for part in (one, other)
    ]
    cosines = unit[0] @ unit[1].T
    rows, partners = linear_sum_assignment(-cosines)
    return np.asarray(cosines[rows, partners])


def _on_law(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    about, means, question = (
        structure.about,
        _means(subject),
        "Do the counts vary as Poisson counts do?",
    )
    if not about.counts or about.dispersed or means is None:
        return None
    values, expected = means
    used = ~np.isnan(values) & (
        expected > 1.0
    )  # cells of smaller means say little, and by few large terms
    size, signatures = about.num_components, subject.fit.params["signatures"]
    free = used.sum() / used.size * (subject.fit.num_rows * size + signatures.numel() - size)
    if used.sum() < 2 * free or not free:
        return None
    excess = float((((values - expected) ** 2)[used] / expected[used]).sum() / (used.sum() - free))
    if excess < CLEAR_EXCESS:
        return Finding(
            "good",
            question,
            f"Yes: about the fitted means they vary {excess:.1f} times as much as Poisson counts"
            " would (1 is exact).",
        )
    words = (
        f"No: about the fitted means they vary {excess:.1f} times as much as Poisson counts would,"
        " so that small components may be noise."
    )
    return Finding(
        "care",
        question,
        words,
        "Fit with --law nb-linear (NegativeBinomialFactorization), whose counts vary more, and"
        " compare; or look for components that are still missing.",
    )


# -------------------------------------------------------------------- the sections


@fitted.register
def _(structure: FactorizationStructure, subject: Subject) -> list[Part]:
    about = structure.about
    law = (
        f"NegativeBinomial, {about.variance} variance, mean"
        if about.dispersed
        else "Poisson, mean"
        if about.counts
        else "Normal, mean"
    )
    words = (
        f"Each of the {about.num_items} items of a row is a sum over {about.num_components}"
        " components: their signatures s, in amounts z of the row's own."
    )
    return [
        Paragraph(words),
        Equations((f"x_{{ij}} ~ {law} Σ_{{k}} z_{{ik}} s_{{kj}}",)),
        sizes(subject),
    ]


@fitted.register
def _(structure: UsageStructure, subject: Subject) -> list[Part]:
    words = (
        f"Each of {structure.about.num_components} components is absent or present in a row (b),"
        " and if present, in an amount z of the row's own."
    )
    lines = (
        "b_{ik} ~ Bernoulli(π_{k})",
        "z_{ik} ~ Gamma, mean m_{k}",
        "x_{ij} ~ Poisson(Σ_{k} b_{ik} z_{ik} s_{kj})",
    )
    return [Paragraph(words), Equations(lines), sizes(subject)]


@fitted.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> list[Part]:
    words = (
        "Rows are sums of factors z with a standard normal law, integrated out, and noise with a"
        " scale of its own for every item."
    )
    lines = ("z_{i} ~ Normal(0, I)", "x_{ij} ~ Normal(μ_{j} + Σ_{k} z_{ik} s_{kj}, σ_{j})")
    return [Paragraph(words), Equations(lines), sizes(subject)]


@middle.register(FactorizationStructure)
@middle.register(UsageStructure)
def _(structure: FactorizationStructure | UsageStructure, subject: Subject) -> list[Section]:
    return [Section("signatures", "Signatures", _signatures(subject)), estimates(subject)]


def _signatures(subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    signatures = fit.params["signatures"].detach().cpu().numpy()
    channels = fit.item_names or tuple(str(j) for j in range(signatures.shape[1]))
    names = [f"component {label}" for label in _labels(subject, len(signatures))]
    yield picture(
        lambda: plot_signatures(signatures, channels, names), "signatures, one panel a component"
    )
    amounts = (fit.local or {}).get("activities")
    if (
        amounts is not None and len(amounts) == fit.num_rows
    ):  # else those of one process among several
        amounts = amounts.detach().abs()
        shares = amounts.sum(0) / amounts.sum()
        in_use = (amounts > 0.01 * amounts.sum(-1, keepdim=True)).double().mean(0)
        rows = [
            [names[k], number(float(shares[k]), 3), number(float(in_use[k]), 3)]
            for k in range(len(shares))
        ]
        yield Paragraph(
            "Components are in the order of falling total amount; their names 0, 1, ... are those"
            " of all files and pictures."
        )
        yield Table(
            ("component", "share of all amounts", "share of rows that it makes more than 1 % of"),
            rows,
        )


@middle.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> list[Section]:
    drawn = picture(
        lambda: plot_loadings(subject.fit, "signatures", names=subject.names),
        "heat map of the factors' signatures",
    )
    words = Paragraph(
        "Red raises, blue lowers an item as the factor grows: by so much, in the unit of the item's"
        " column, where the factor is larger by one standard deviation. Factors are determined up"
        " to a rotation."
    )
    return [Section("signatures", "Factors", [drawn, words]), estimates(subject)]


def _labels(subject: Subject, num_components: int) -> list[str]:
    return [
        str(label) for label in labels_of(subject.fit, "component", num_components, subject.names)
    ]

"""Factorizations: verdict, equations, signatures, and shares of components."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from inference.base.structure import Structure
from inference.fitting.columns import as_matrix, labels_of
from inference.inspection.signatures import match_signatures
from inference.plots.components import plot_signatures
from inference.plots.layers import plot_loadings
from inference.plots.overview import plot_fit
from inference.report.page import number, picture
from inference.report.parts import Equations, Finding, Paragraph, Part, Section, Table, Verdict
from inference.report.sections import (
    HasText,
    Subject,
    estimates,
    fitted,
    identified,
    middle,
    predictive,
    sizes,
)
from inference.report.verdicts import (
    on_convergence,
    on_latents,
    on_prediction,
    verdict,
    what_was_fitted,
)
from inference.report.words import finding, percent, say, verdict_of
from inference.structures.factorization.factor_analysis import HEYWOOD, FactorAnalysisStructure
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.unmixing import UnmixingStructure
from inference.structures.factorization.usage import UsageStructure
from ppl_models.parts.repr import counted, listed

LEAST_ALIKE = (
    0.95  # cosine of a signature with that of another start, below which it is said to differ
)
CLOSE = 1.0  # nats below the best start
LEAST_SHARED = 0.01  # of a column's variance with a factor, below which it says nothing of it
INDICATORS = 3  # columns that share a factor and determine it
CLEAR_EXCESS = 1.5  # of the variance of counts over their mean
# standard errors of that ratio; a squared residual of a Poisson count has at most the variance 3
# where its mean is above 1
CLEAR_ERRORS = 3.0


# -------------------------------------------------------------------- the verdict


@verdict.register
def _(structure: FactorizationStructure, subject: Subject) -> Verdict:
    asked = [
        _on_parts(structure, subject),
        _on_starts(structure, subject),
        _on_uniqueness(structure, subject),
        _on_distribution(structure, subject),
        on_prediction(subject),
    ]
    choice = (
        "ppl-models select pmf, or inference.selection.select_components"
        if structure.about.counts
        else "inference.selection.fit_grid and held-out cells"
    )
    return verdict_of(asked, *subject.number_step(say("factorization.number_step", choice=choice)))


@verdict.register
def _(structure: UsageStructure, subject: Subject) -> Verdict:
    about, fit = structure.about, subject.fit
    words = say(
        "factorization.usage_description",
        rows=counted(fit.num_rows, "row"),
        num_items=about.num_items,
        num_components=about.num_components,
    )
    step = say("factorization.usage_step")
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
    size = structure.about.num_components
    share = 1 - float(_noise_shares(subject).mean())  # in whatever units the columns are
    words = say(
        "factorization.factors_description",
        rows=counted(subject.fit.num_rows, "row"),
        num_items=structure.about.num_items,
        factors=counted(size, "factor"),
    )
    factors = "factor explains" if size == 1 else "factors explain"
    words += f"The {factors} {percent(share)} of a column's variance on average."
    asked = (on_convergence, _on_noise, _on_factors, on_prediction)
    step = say("factorization.factors_step")
    return verdict_of([what_was_fitted(words), *(ask(subject) for ask in asked)], step)


def _noise_shares(subject: Subject) -> Tensor:
    """Share of each item's variance that is noise, (J,)."""
    structure = subject.fit.structure
    if not isinstance(structure, FactorAnalysisStructure):
        raise TypeError("factors were expected")
    return structure.noise_shares(subject.fit.params)


def _on_noise(subject: Subject) -> Finding | None:
    """Heywood cases: items without noise of their own."""
    shares = _noise_shares(subject)
    items = labels_of(subject.fit, "item", len(shares), subject.names)
    worst = [str(items[j]) for j in shares.argsort().tolist() if float(shares[j]) < HEYWOOD]
    if not worst:
        return None
    word = "it" if len(worst) == 1 else "them"
    words = say("factorization.no_noise", items=listed(worst), word=word)
    return finding("factorization.noise.improper", words=words)


def _on_factors(subject: Subject) -> Finding:
    """Uniqueness of factors: several up to a rotation, one up to its sign."""
    if subject.fit.structure.about.num_components > 1:
        return finding("factorization.verdict.rotation")
    shares = _noise_shares(subject)
    num = int((1 - shares > LEAST_SHARED).sum())
    values = {"num": num, "size": len(shares), "least": percent(LEAST_SHARED)}
    if num < INDICATORS:
        return finding("factorization.verdict.few", words=say("factorization.few_shared", **values))
    return finding("factorization.verdict.one", words=say("factorization.one_factor", **values))


@verdict.register
def _(structure: UnmixingStructure, subject: Subject) -> Verdict:
    words = say(
        "factorization.unmixing_description",
        rows=counted(subject.fit.num_rows, "row"),
        columns=counted(structure.about.num_items, "column"),
        endmembers=counted(structure.about.num_components, "endmember"),
    )
    described = on_prediction(subject)
    if described.mark == "care":  # rows need not lie evenly over the simplex, as simulated ones do
        described = replace(described, mark="", answer=say("factorization.uneven"), step="")
    asked = [what_was_fitted(words), on_convergence(subject), described]
    return verdict_of(asked, say("factorization.unmixing_step"))


@predictive.register
def _(structure: UnmixingStructure, subject: Subject) -> Iterator[Part]:
    parts = predictive.dispatch(Structure)(structure, subject)
    yield from (part for part in parts if not isinstance(part, Paragraph))  # see the verdict


def _on_parts(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    fit, about = subject.fit, structure.about
    words = say(
        "factorization.description",
        rows=counted(fit.num_rows, "row"),
        columns=counted(about.num_items, "column"),
        components=counted(about.num_components, "component"),
    )
    means = _means(subject)
    if means is None:
        return finding("factorization.parts.all", words=words)
    values, fitted_means = means
    left, all_of_it = (
        _deviance(values, part, about.counts)
        for part in (fitted_means, _without_components(values, about.counts))
    )
    of = "deviance of the one-profile model" if about.counts else "variance of the columns"
    if all_of_it > 0:
        words += f" They explain {percent(1 - left / all_of_it)} of the {of}."
    return finding("factorization.parts.all", words=words)


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
    """Deviance of Poisson counts, or the sum of squares, over observed entries."""
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
    fit = subject.fit
    ends = fit.restarts.objective.double()
    if not fit.converged:
        iterations = counted(fit.num_iterations, "iteration")
        return finding("factorization.starts.unconverged", iterations=iterations)
    if not _is_bounded(structure):
        return finding("factorization.starts.closed_form")
    near = int((ends >= ends.max() - CLOSE).sum())
    rested = int(fit.restarts.converged.sum())
    left = len(ends) - rested
    was = "was" if left == 1 else "were"
    given_up = f" and {left} {was} given up before" if left else ""
    numbers = {"num": len(ends), "rested": rested, "given_up": given_up}
    words = say("factorization.start_agreement", near=near, CLOSE=CLOSE, **numbers)
    if near > 1:
        return finding("factorization.starts.fine", words=words)
    return finding("factorization.starts.single_start", words=words)


def _is_bounded(structure: FactorizationStructure) -> bool:
    return structure.about.counts or structure.about.nonnegative


def _on_uniqueness(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    fit = subject.fit
    size = structure.about.num_components
    if not _is_bounded(structure):
        if size == 1:
            return finding("factorization.uniqueness.sign")
        words = say("factorization.rotation_note")
        return finding("factorization.uniqueness.rotation", words=words)
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
        return finding(
            "factorization.uniqueness.agreement", alike=f"{np.floor(1000 * alike.min()) / 1000:.3f}"
        )
    words = say("factorization.disagreement", off=listed(off), alike=alike.min())
    return finding("factorization.uniqueness.partial", words=words, off=listed(off))


def _alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosine of each signature with its partner in another fit, (K,)."""
    unit = [
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300)
        for part in (one, other)
    ]
    cosines = unit[0] @ unit[1].T
    rows, partners = linear_sum_assignment(-cosines)
    return np.asarray(cosines[rows, partners])


def _on_distribution(structure: FactorizationStructure, subject: Subject) -> Finding | None:
    about, means = structure.about, _means(subject)
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
    least = min(1 / CLEAR_EXCESS, 1 - CLEAR_ERRORS * (3 / (used.sum() - free)) ** 0.5)
    if excess < least:
        is_seen = on_prediction(subject).mark == "care"
        unseen = "" if is_seen else say("factorization.unseen_spread")
        words = say("factorization.underdispersion", excess=excess, unseen=unseen)
        return finding("factorization.distribution.underdispersed", words=words)
    if excess < CLEAR_EXCESS:
        return finding("factorization.distribution.fine", excess=excess)
    words = say("factorization.overdispersion", excess=excess)
    return finding("factorization.distribution.overdispersed", words=words)


# -------------------------------------------------------------------- the sections


@identified.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> str | HasText | None:
    several = structure.about.num_components > 1
    return say("factorization.rotation_note") if several else _on_factors(subject).answer


@identified.register
def _(structure: FactorizationStructure, subject: Subject) -> str | HasText | None:
    found = _on_uniqueness(structure, subject)
    return None if found is None else found.answer


@fitted.register
def _(structure: FactorizationStructure, subject: Subject) -> list[Part]:
    about = structure.about
    noise = (
        f"NegativeBinomial, {about.variance} variance, mean"
        if about.dispersed
        else "Poisson, mean"
        if about.counts
        else "Normal, mean"
    )
    words = say(
        "factorization.model", num_items=about.num_items, num_components=about.num_components
    )
    return [
        Paragraph(words),
        Equations((f"x_{{ij}} ~ {noise} Σ_{{k}} z_{{ik}} s_{{kj}}",)),
        sizes(subject),
    ]


@fitted.register
def _(structure: UsageStructure, subject: Subject) -> list[Part]:
    words = say("factorization.usage_model", num_components=structure.about.num_components)
    lines = (
        "b_{ik} ~ Bernoulli(π_{k})",
        "z_{ik} ~ Gamma, mean m_{k}",
        "x_{ij} ~ Poisson(Σ_{k} b_{ik} z_{ik} s_{kj})",
    )
    return [Paragraph(words), Equations(lines), sizes(subject)]


@fitted.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> list[Part]:
    words = say("factorization.factors_model")
    lines = ("z_{i} ~ Normal(0, I)", "x_{ij} ~ Normal(μ_{j} + Σ_{k} z_{ik} s_{kj}, σ_{j})")
    return [Paragraph(words), Equations(lines), sizes(subject)]


@fitted.register
def _(structure: UnmixingStructure, subject: Subject) -> list[Part]:
    words = say("factorization.unmixing_model", num_components=structure.about.num_components)
    lines = ("a_{i} ~ Dirichlet(1, ..., 1)", "x_{ij} ~ Normal(Σ_{k} a_{ik} m_{kj}, σ)")
    return [Paragraph(words), Equations(lines), sizes(subject)]


@middle.register(FactorizationStructure)
@middle.register(UsageStructure)
def _(structure: FactorizationStructure | UsageStructure, subject: Subject) -> list[Section]:
    parts = [*_signatures(subject), *_matches(subject)]
    return [Section("signatures", "Signatures", parts), estimates(subject)]


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
        yield Paragraph(say("factorization.order_note"))
        yield Table(
            ("component", "share of all amounts", "share of rows that it makes more than 1 % of"),
            rows,
        )


def _matches(subject: Subject) -> Iterator[Part]:
    """Signatures of a reference set that are most like those of the fit."""
    if subject.reference is None:
        return
    found = match_signatures(subject.fit, subject.reference)
    rows = [
        [f"component {label}", *(f"{v:.3f}" if isinstance(v, float) else v for v in line)]
        for label, line in zip(found.index, found.itertuples(index=False), strict=True)
    ]
    yield Paragraph(say("factorization.reference"))
    yield Table(("signature", "most like it", "cosine", "next", "cosine"), rows)


@middle.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> list[Section]:
    drawn = picture(
        lambda: plot_loadings(subject.fit, "signatures", names=subject.names),
        "heat map of the factors' signatures",
    )
    up_to = "rotation" if structure.about.num_components > 1 else "sign"
    known = say(f"factorization.determined_by_{up_to}")
    words = Paragraph(say("factorization.factors_note", determined=known))
    return [Section("signatures", "Factors", [drawn, words]), estimates(subject)]


@middle.register
def _(structure: UnmixingStructure, subject: Subject) -> list[Section]:
    drawn = picture(
        lambda: plot_fit(subject.fit, names=subject.names), "endmembers, one panel a component"
    )
    parts = [drawn, Paragraph(say("factorization.unmixing_note")), *_matches(subject)]
    return [Section("endmembers", "Endmembers", parts), estimates(subject)]


def _labels(subject: Subject, num_components: int) -> list[str]:
    return [
        str(label) for label in labels_of(subject.fit, "component", num_components, subject.names)
    ]

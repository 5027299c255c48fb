"""Page of a fit: verdict, numbers, pictures, checks.

What the page says of the model itself is the business of its kind: see
:mod:`inference.report.sections`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from inference.base.plugins import load_kind
from inference.base.progress import NoProgress, RichProgress
from inference.base.streaming.row_blocks import RowBlocks
from inference.fitting.columns import Names, as_fitted, sample_of, with_names
from inference.fitting.repr import (
    columns_in_words,
    error_in_words,
    fixed_in_words,
    has_sequences,
    labels_in_words,
    read_in_words,
    rows_in_words,
)
from inference.fitting.result import Fit
from inference.inspection.signatures import match_signatures
from inference.plots._common import check_image_shape
from inference.plots.fit import plot_restarts, plot_trace
from inference.programs.data import checked
from inference.report.answers import Answer, answer_of
from inference.report.latent_use import latents
from inference.report.page import number, picture, write_page
from inference.report.parts import (
    Details,
    Finding,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verbatim,
    Verdict,
    Warned,
)
from inference.report.sections import (
    HasText,
    Subject,
    explained,
    fitted,
    identified,
    locally,
    middle,
    predictive,
    settings,
    text_of,
    warned,
)
from inference.report.verdicts import (
    distance_in_words,
    is_nearly_settled,
    record_of,
    verdict,
    why_undecided,
    worst_draws,
)
from inference.report.words import finding, say, verdict_of
from ppl_models.data.tables import checks_data
from ppl_models.parts.repr import counted, listed, shown_settings

SAME_HEIGHT = 0.1  # nats, within which starts end in one optimum and there is no spread to draw


def write_report(
    fit: Fit,
    data: Any,
    path: str | Path,
    image_shape: tuple[int, int] | None = None,
    identifiability: str | HasText | None = None,
    names: Names | None = None,
    progress: bool = False,
    choice: Any = None,
    reference: Any = None,
) -> Path:
    """Write the page of a fit: one file, pictures inside, every text escaped.

    A picture that the model cannot be drawn as is left out, and the page says why.

    Args:
        fit: the fit.
        data: the rows it was fitted to, (N, J); None leaves out what needs them. Of rows in blocks
            all are read for standard errors, where these take no long time, and a sample of 20,000
            for pictures and checks, as the page says.
        path: the file, replaced if it exists; or an existing folder, for ``report.html`` in it.
        image_shape: (height, width) where the items are pixels, row by row.
        identifiability: the verdict, as text or as a report with ``.text()``.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.
        progress: show a bar with what is being worked out, on standard error.
        choice: the record of the choice of its size, such as of
            :func:`inference.selection.select_dimension`; its answer and table stand on the page.
        reference: signatures that a factorization's are matched with, a frame of the same columns
            (as rows) by signatures; see :func:`inference.inspection.signatures.match_signatures`.

    Returns:
        The file written.

    Raises:
        ValueError: if ``data`` does not fit the model, ``image_shape`` does not hold the items, or
            ``reference`` has other rows than the columns, or the fit no signatures.
    """
    blocks = data if isinstance(data, RowBlocks) else None
    data = data if blocks is None else sample_of(fit, blocks)
    load_kind("inference.report.kinds", type(fit.structure))
    file = Path(path)
    file = file / "report.html" if file.is_dir() else file
    if data is not None:
        fit.refuse_weights("report with rows (without data= there is a page of the estimates)")
        data = as_fitted(fit, data)
        checked(fit.model, data)
    if image_shape is not None and fit.item_names:
        check_image_shape(
            image_shape, len(fit.item_names) - fit.structure.num_given, "write_report"
        )
    if reference is not None:
        match_signatures(fit, reference)  # refused here, before any work
    subject = Subject(
        fit,
        data,
        image_shape,
        names,
        identifiability,
        blocks=blocks,
        choice=choice,
        reference=reference,
    )
    with RichProgress("page", None) if progress else NoProgress() as bar:
        subject.tell.append(bar.doing)
        return write_page(_answer(subject), file)


def _answer(subject: Subject) -> Answer:
    """Sections of the page; what several of them need is worked out once (``Subject.once``)."""
    fit, structure = subject.fit, subject.fit.structure
    sections = [
        Section("warnings", "Warnings", _warnings(subject)),
        Section("fitted", "What was fitted", [*_what(subject), *fitted(structure, subject)]),
        Section("numbers", "Numbers", _numbers(subject)),
        *middle(structure, subject),
        Section("latents", "Latents", latents(structure, subject)),
        Section("predictive", "Posterior predictive check", predictive(structure, subject)),
        Section("convergence", "Convergence", _convergence(fit)),
        Section(
            "identifiability",
            "Identifiability",
            [
                *_identifiability(subject, identified(structure, subject)),
                *explained(structure, subject),
            ],
        ),
    ]
    found = verdict(structure, subject)
    findings = [*found.findings]
    if subject.choice is not None:
        own = answer_of(subject.choice)
        first = own.verdict.findings[1]  # how sure the number is
        is_doubted = any(own.mark in ("care", "bad") for own in findings)
        doubt = f" {say('fit.chosen_doubt')}" if is_doubted else ""
        unsure = f" {first.answer}" if first.mark in ("care", "bad") else ""
        words = own.verdict.answer + unsure + doubt
        findings.append(Finding(first.mark, say("fit.chosen"), words, first.step))
        parts = [part for section in own.sections[1:] for part in section.parts]
        sections.insert(2, Section("size", "How many?", parts))
    if fit.warnings and found.mark == "good":
        findings.append(finding("fit.warned.all", num=counted(len(fit.warnings), "warning")))
    answer = verdict_of(findings, *found.steps, answer=found.answer, about=found.about)
    sections = [_beside(answer, section) for section in sections]
    return Answer(f"{_title(fit)}: fit report", answer, more=sections)


def _beside(verdict: Verdict, section: Section) -> Section:
    """The section without sentences that an answer of the verdict has word for word."""
    said = " ".join(own.answer for own in verdict.findings)
    parts: list[Part] = []
    for part in section.parts:
        if isinstance(part, Warned):
            texts = [text for text in part.texts if text not in said]
            parts += [Warned(texts)] if texts else []
        elif not isinstance(part, Paragraph) or part.text not in said:
            parts.append(part)
    return replace(section, parts=parts)


def _summary(fit: Fit) -> str:
    """First paragraph of the model's docstring."""
    text = (inspect.getdoc(fit.model) or "").strip().split("\n\n")[0].replace("\n", " ")
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text)


def _title(fit: Fit) -> str:
    """Name of the model in words: that which its docstring begins with, or of a program."""
    if not dataclasses.is_dataclass(fit.model):
        return f"Program {fit.model_name}"
    return re.split(r"[:.,(]| (?:of|with) (?:K|D|one)\b", _summary(fit))[0].strip()


def _what(subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    words = _summary(fit)
    if words:
        yield Paragraph(words)
    taken = columns_in_words(fit)
    columns = f" Columns are taken as follows: {taken}." if taken else ""
    rows = f"{rows_in_words(fit)}{read_in_words(fit)}"
    yield Paragraph(f"Fitted to {rows} by {shown_settings(fit.method)}.{columns}")
    if subject.data is not None and checks_data(fit.model) and not has_sequences(fit):
        table = checked(fit.model, subject.data)[0]
        if isinstance(table, Tensor) and table.dim() == 2:  # groups and covariates are no items
            table = table[:, : table.shape[1] - fit.structure.num_given]
        missing = int(table.isnan().sum()) if isinstance(table, Tensor) else 0
        if missing:
            yield Paragraph(say("fit.gaps_note", missing=missing, size=table.numel()))
    if fit.labels:
        yield Paragraph(say("fit.labels_note", labels=labels_in_words(fit)))
    if fit.fixed:
        yield Paragraph(say("fit.fixed_note", entries=fixed_in_words(fit)))
    if fit.tied:
        yield Paragraph(say("fit.tied_note", sites=listed(fit.tied, 6)))
    if subject.num_sampled is not None:
        read = "The rows were read in blocks. " if subject.blocks is not None else ""
        yield Paragraph(say("fit.sample_note", read=read, num_sampled=subject.num_sampled))
    yield Details("All settings of the engine", [Verbatim(settings(fit.method))])


def _numbers(subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    is_proper = np.asarray(fit.restarts.proper)
    ends = np.asarray(fit.restarts.objective, dtype=np.float64)[is_proper]
    ends = ends[np.isfinite(ends)]
    digits, row = (
        4 if fit.objective_name.endswith("per row") else 2,
        "sequence" if has_sequences(fit) else "row",
    )
    near_optimum = distance_in_words(subject)[1]
    weights = fit.row_weights
    size = fit.num_rows if weights is None else float(weights.sum())
    unit = "" if weights is None else f"by the weights, which add up to {size:,.6g}"
    is_sampled = "diverging" in (fit.sample_stats or {})  # by NUTS, which makes nothing large
    rows = [
        [
            f"{fit.likelihood_name} ({_given(fit)})",
            number(fit.log_likelihood),
            f"larger is better, among fits to the same data{error_in_words(fit)}",
        ],
        [f"{fit.likelihood_name}, a {row}", number(fit.log_likelihood / size, 4), unit],
        [
            f"objective: {fit.objective_name}",
            number(fit.objective, digits),
            "at the mean of the draws"
            if is_sampled
            else "what the best start was chosen by"
            if "held-out" in fit.objective_name
            else say("fit.maximised")
            if fit.objective_name == "log-posterior"
            else "what the engine maximised",
        ],
        [f"{row}s", f"{fit.num_rows:,}", ""],
        [
            "converged",
            "yes" if fit.converged else "no",
            ""
            if fit.converged
            else say("fit.nearly_settled")
            if is_nearly_settled(fit)
            else say("fit.nearly_final")
            if near_optimum
            else say("fit.not_final"),
        ],
        *_left(subject),
        [
            "iterations",
            f"{fit.num_iterations:,}",
            "draws that each chain kept" if is_sampled else "",
        ],
        *_effective(fit),
        ["seconds, whole call", number(fit.seconds), ""],
        ["seed", str(fit.seed), "the same seed gives the same fit again"],
    ]
    if has_sequences(fit):
        rows.insert(4, ["time points of all sequences", f"{fit.num_observations:,}", ""])
    if fit.why_no_criteria is None:
        rows[3:3] = _price(subject)
    words = fit.restarts.text()
    if len(ends) > 1:
        near = int((ends > ends.max() - 1.0).sum())
        spread = ", ".join(
            f"{name} {number(float(end), digits)}"
            for name, end in (
                ("best", ends.max()),
                ("median", np.median(ends)),
                ("worst", ends.min()),
            )
        )
        ended = " run to the end" if fit.restarts.optimum is not None else ""
        rest = int((~is_proper).sum())
        left_out = f"without {rest:,} that ended in no proper optimum" if rest else ""
        rows.append([f"{len(ends)} starts{ended}, {fit.objective_name}", spread, left_out])
        # the words leave out starts that end in no proper optimum
        if not words and not fit.objective_name.endswith("per row"):
            converged = int(np.asarray(fit.restarts.converged).sum())
            rows.append(["of these, converged", f"{converged} of {len(ends)}", ""])
            rows.append(
                [
                    "starts within 1 nat of the best",
                    f"{near} of {len(ends)}",
                    "they found the same optimum, or one as good"
                    if near > 1
                    else "the best one alone",
                ]
            )
    yield Table((), rows)
    if words:
        yield Paragraph(words)


def _effective(fit: Fit) -> list[list[str]]:
    """Effective sample size of draws from several chains."""
    shapes = [value.shape[:2] for value in (fit.draws or {}).values()]
    if not shapes or shapes[0][0] < 2:
        return []
    of = f"the least of all parameters, from {math.prod(shapes[0]):,} draws"
    return [["effective sample size", number(worst_draws(fit)[1], 0), of]]


def _price(subject: Subject) -> Iterator[list[str]]:
    """Free parameters, how many of these the rows tell, and BIC."""
    fit, local = subject.fit, subject.once(locally)
    is_part = local is not None and local.num_judged > fit.num_parameters
    of = say("fit.counted_rest") if is_part else "numbers that were estimated"
    of += ", without those of absent edges" if fit.graphs else ""
    yield ["free parameters", f"{fit.num_parameters:,}", of]
    bic = "weighs likelihood against free parameters, among fits to the same data"
    bic += "" if fit.bic_price is None else say("fit.bic_price")
    rank = None if local is None or fit.bic_price is not None else local.rank
    if (
        local is not None
        and rank is not None
        and rank < fit.num_parameters
        and (local.num_open or not local.is_flat)
    ):
        reasons = (
            [f"{counted(local.num_open, 'direction')} left open by the data"]
            if local.num_open
            else []
        )
        reasons += (
            [f"{counted(local.num_held, 'number')} held on the end of the range"]
            if local.num_held
            else []
        )
        yield ["of these, told by the data", f"{rank:,}", ", ".join(reasons)]
        if local.num_open:
            size = fit.num_parameters - local.num_open
            less = fit.bic - local.num_open * math.log(fit.num_observations or fit.num_rows)
            bic = say(
                "fit.bic_note",
                num_parameters=fit.num_parameters,
                size=size,
                less=number(less),
            )
    yield ["BIC (smaller is better)", number(fit.bic), bic]


def _left(subject: Subject) -> list[list[str]]:
    """Gain of more iterations: by curvature where that is known, else by the last steps."""
    fit = subject.fit
    if distance_in_words(subject)[0]:
        rest = subject.estimates.to_optimum
        gain = 0.0 if rest is None else float(rest.objective)
        words = "less than 0.001" if gain < 1e-3 else f"about {gain:.2g}"
        return [["left to gain by more iterations", words, "nats, by gradient and curvature"]]
    if fit.restarts.objective_left is None:
        return []
    left = float(fit.restarts.objective_left[fit.restarts.best])
    words = "less than 0.001" if left < 1e-3 else f"about {left:.1g}"
    return (
        [
            [
                "left to gain by more iterations",
                words,
                "of the objective, by the rate of the last steps (order of magnitude)",
            ]
        ]
        if math.isfinite(left)
        else []
    )


def _given(fit: Fit) -> str:
    sites = fit.structure.local_sites
    given = f"given the rows' {' and '.join(sites)}" if sites else "latents summed out"
    return f"of data and labels, {given}" if fit.labels else given


def _warnings(subject: Subject) -> list[Part]:
    fit = subject.fit
    texts = warned(fit.structure, subject)
    return [Warned(texts)] if texts else []


def _convergence(fit: Fit) -> Iterator[Part]:
    ends = fit.restarts.objective[fit.restarts.proper]
    several = len(ends) > 1 and not bool((ends.max() - ends < SAME_HEIGHT).all())
    yield picture(lambda: plot_trace(fit), f"{fit.trace.name} over iterations")
    if several:
        yield picture(lambda: plot_restarts(fit), "spread of the objective over starts")
    if "held-out" in fit.objective_name:
        yield Note(say("fit.kept_note"))
        return
    words = (
        "" if fit.draws is not None else say(f"fit.{'wobbles' if _wobbles(fit) else 'flat'}_note")
    )
    words += say("fit.starts_note") if several else ""
    yield from [Note(words.strip())] if words else []


def _wobbles(fit: Fit) -> bool:
    """Tell whether the curve falls now and then up to its end, as one of draws or batches does."""
    steps = np.diff(np.asarray(fit.trace.objective, dtype=np.float64))
    return float((steps[len(steps) // 2 :] < -SAME_HEIGHT).mean()) > 0.1 if len(steps) else False


def _identifiability(subject: Subject, found: str | HasText | None) -> Iterator[Part]:
    local = subject.once(locally)
    if found is None and subject.fit.draws is not None:
        return  # the verdict says all
    if found is None and local is None:
        yield Note(say("fit.undecided", reason=why_undecided(subject)))
        return
    if found is not None:
        yield Verbatim(with_names(subject.fit, text_of(found), subject.entry_names))
    is_told = local is not None and local.is_whole and record_of(subject).get("is_full_rank")
    if local is not None and not is_told:
        yield Paragraph(with_names(subject.fit, local.text(), subject.entry_names))
        size = subject.fit.num_parameters
        if local.num_judged > size:
            yield Note(say("fit.counted_too", size=size, rest=local.num_judged - size))

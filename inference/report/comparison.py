"""Fits side by side on one self-contained page: who wins and how sure that is, the picture, and the
numbers with what each of them says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inference.comparison import LEAST_GAP, Comparison
from inference.plots.comparison import plot_comparison
from inference.report.page import cell, picture, write_page
from inference.report.parts import (
    Bullets,
    Finding,
    Heading,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.verdicts import CONDITIONS, listed, verdict_of
from ppl_models.parts.repr import counted

TABLES = {
    "Prediction of unseen rows": {
        "elpd_diff": (
            "behind the best",
            (
                "nats of log predictive density, over all rows, that this fit "
                "is behind the first (elpd difference); smaller is better"
            ),
        ),
        "diff_se": (
            "standard error",
            (
                "of that difference, from how it varies over the rows; a "
                "difference below twice its standard error may be chance"
            ),
        ),
        "elpd": (
            "log density",
            (
                "expected log predictive density of unseen rows, over all rows "
                "(elpd); larger is better"
            ),
        ),
        "weight": (
            "weight",
            (
                "share of the fit in the mixture of all fits that predicts best "
                "(stacking); a fit that adds nothing to the others has none"
            ),
        ),
        "p_eff": (
            "effective numbers",
            (
                "by how much prediction is worse than the fit to its own rows, "
                "in nats: about as many numbers are really estimated"
            ),
        ),
        "bad_rows": (
            "shaky rows",
            (
                "rows for which the shortcut to leaving them out cannot be "
                "trusted; with many of them the rank is not to be trusted "
                "either"
            ),
        ),
        "test_log_likelihood": (
            "test rows",
            "log-likelihood of the test rows, which no fit has seen; larger is better",
        ),
    },
    "Fit to the rows themselves": {
        "family": ("model", "what was fitted"),
        "engine": ("engine", "how it was fitted"),
        "log_likelihood": (
            "log-likelihood",
            (
                "of the rows that were fitted; it grows with every free number, "
                "so a larger one alone says little"
            ),
        ),
        "likelihood": (
            "kind",
            (
                "of log-likelihood: marginal is the usual one; numbers of "
                "different kinds cannot be compared"
            ),
        ),
        "num_parameters": ("free numbers", "numbers that were estimated"),
        "bic": (
            "BIC",
            (
                "weighs the log-likelihood against the free numbers; smaller is "
                "better, and a difference of 10 is much"
            ),
        ),
        "seconds": ("seconds", "that the fit took"),
    },
    "Can each fit be believed by itself?": {
        "converged": (
            "converged",
            "whether the fit came to rest; the numbers of one that did not may still change",
        ),
        "discrepancy": (
            "largest misfit",
            (
                "nats between the noise of a component and what the model says "
                "of it, beyond what exact noise gives"
            ),
        ),
        "misfitting": (
            "components that misfit",
            "whose noise is farther off than three standard deviations of exact noise",
        ),
        "identifiability": (
            "identifiability",
            "whether a large sample would determine the estimates",
        ),
    },
}


def write_comparison_report(comparison: Comparison, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, nothing fetched from elsewhere, every text
    escaped.

    Args:
        comparison: of :func:`inference.comparison.compare`.
        path: the file, replaced if it exists.
    """
    notes: list[Part] = [Note(f"{text[0].upper()}{text[1:]}.") for text in comparison.warnings]
    sections = [
        Section("verdict", "Verdict", [comparison_verdict(comparison)]),
        Section(
            "picture",
            "Side by side",
            [picture(lambda: plot_comparison(comparison), "fits side by side")],
        ),
        Section("table", "Numbers", _tables(comparison)),
        Section(
            "care",
            "What is not comparable",
            notes or [Paragraph("Every column can be compared from line to line.")],
        ),
    ]
    return write_page(Path(path), f"{len(comparison.names)} fits compared", sections)


def comparison_verdict(comparison: Comparison) -> Verdict:
    """What was asked, who wins, how sure that is, whether the winner can be believed by itself, and
    what a rank cannot say.
    """
    answer = comparison.winner
    asked = (_asked, _how_sure, _on_the_fits, _on_misfit, _unseen)
    return verdict_of(
        [ask(comparison) for ask in asked],
        nothing="Go on with the first fit, and read its own report before you build on it.",
        answer=answer,
        about="comparison",
    )


def in_words(comparison: Comparison) -> list[str]:
    """The first of the ranking, how sure that is, and what a rank does not say."""
    found = _on_misfit(comparison)
    return [comparison.winner, *([] if found is None else [found.answer])]


def _asked(comparison: Comparison) -> Finding:
    ways = list(dict.fromkeys(record["how"] for _, record in comparison.ranked))
    found = (
        f" What each says of a row was found without that row ({' and '.join(ways)})."
        if ways
        else ""
    )
    return Finding(
        "",
        "What was asked?",
        f"Which of {counted(len(comparison.names), 'fit')} to the same rows predicts rows best that"
        f" it has not seen?{found}",
    )


def _how_sure(comparison: Comparison) -> Finding | None:
    """Whether chance, rows that cannot be trusted, or two ways of predicting could have made the
    rank.
    """
    ranked, near, question = comparison.ranked, comparison.close, "How sure is the rank?"
    if len(ranked) < 2:
        step = (
            "Compare fits that predict rows: their latents must be summed out, not estimated row by"
            " row."
        )
        return Finding(
            "care",
            question,
            "There is none: fewer than two of these fits predict rows that they have not seen.",
            step,
        )
    words, steps = [], []
    if near:
        words.append(
            f"Not sure against {listed([name for name, _ in near])}: a difference of less than two"
            f" standard errors, or of less than {LEAST_GAP:g} nats, may be chance."
        )
        steps.append(
            "Take the simplest of the fits that are too close to call, or ask for more rows."
        )
    else:
        words.append(
            f"Every other fit is behind by more than two standard errors and {LEAST_GAP:g} nats."
        )
    shaky = [name for name, record in ranked if record["bad_rows"] > 0]
    if shaky:
        words.append(
            f"For some rows the shortcut to leaving them out cannot be trusted ({listed(shaky)})."
        )
        steps.append(
            "Fit again without each of the rows that cannot be trusted: compare(fits, data,"
            " refit=True)."
        )
    if len({record["how"] for _, record in ranked}) > 1:
        words.append("The predictions were found in different ways, whose errors differ.")
        steps.append("Rely on the rank only where differences are large.")
    return Finding("care" if steps else "good", question, " ".join(words), " ".join(steps))


def _on_the_fits(comparison: Comparison) -> Finding:
    """Whether each fit came to rest and is determined."""
    question, pairs = (
        "Can each fit be believed by itself?",
        list(zip(comparison.names, comparison.records, strict=True)),
    )
    restless = [name for name, record in pairs if not record["converged"]]
    open_ones = [
        name
        for name, record in pairs
        if CONDITIONS.get(record["identifiability"], ("", ""))[0] == "bad"
    ]
    words = [f"Not converged: {listed(restless)}."] if restless else ["All fits converged."]
    words += (
        [
            f"The data do not determine the estimates of {listed(open_ones)}; their prediction can"
            " be compared, single estimates cannot be read."
        ]
        if open_ones
        else []
    )
    mark = "bad" if comparison.names[0] in restless else "care" if restless or open_ones else "good"
    return Finding(
        mark,
        question,
        " ".join(words),
        f"Let {listed(restless)} run on and compare again." if restless else "",
    )


def _on_misfit(comparison: Comparison) -> Finding | None:
    off = [
        name
        for name, record in zip(comparison.names, comparison.records, strict=True)
        if record["misfitting"] > 0
    ]
    if not off:
        return None
    words = (
        f"In {listed(off)}, some component's noise is farther from what the model says than exact"
        " noise is with the estimates held as known. That is a reason to look closer, and shows no"
        " law to be wrong by itself."
    )
    step = (
        "Look closer at the components that misfit: inference.acdc.acdc with"
        " calibrate=Bootstrap(refit=True) says whether a right model would look like this too."
    )
    return Finding(
        "",
        "Does the noise look as the models say?",
        words,
        step if comparison.names[0] in off else "",
    )


def _unseen(comparison: Comparison) -> Finding:
    words = (
        "Whether any of these models is right: a rank is no check of a model, and one that is not"
        " among them may predict better."
    )
    left_out = [
        name
        for name, record in zip(comparison.names, comparison.records, strict=True)
        if record["how"] == "none"
    ]
    words += (
        f" {listed(left_out)} could not be ranked, for want of a prediction of unseen rows."
        if left_out
        else ""
    )
    return Finding("", "What could not be seen?", words)


def _tables(comparison: Comparison) -> Iterator[Part]:
    """The numbers by what they are about, each column explained below its table."""
    for title, columns in TABLES.items():
        shown = {
            key: about
            for key, about in columns.items()
            if any(_is_known(record[key]) for record in comparison.records)
        }
        rows = [
            [name, *(cell(record[key]) for key in shown)]
            for name, record in zip(comparison.names, comparison.records, strict=True)
        ]
        yield Heading(title)
        yield Table(["fit", *(heading for heading, _ in shown.values())], rows)
        yield Bullets([f"{heading}: {meaning}." for heading, meaning in shown.values()])


def _is_known(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))

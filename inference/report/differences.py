"""Pages of tests: do groups differ, do items mean the same, is a larger size needed, and what do
classes go with? The verdict first.

The answers are the records' own sentences, as at a prompt; what stands here is what a reader must
know beside them.
"""

from __future__ import annotations

import numpy as np

from inference.relations.outcomes import ClassOutcomes
from inference.relations.regression import ClassRegression
from inference.report.choices import LIKELY, Choice, choice
from inference.report.parts import Finding
from inference.report.verdicts import listed, verdict_of
from inference.selection.attribute_groups import DifferentialItems, GroupComparison, ItemScores
from inference.selection.likelihood_ratio import RatioTest
from ppl_models.parts.repr import counted

LEAST_SEPARATED = 0.6  # entropy R2
MOST_MISSED = 0.1  # share of replicates
P_VALUES = {
    "p_value": "how often chance alone would show as much; small is clear",
    "p_adjusted": "the same, for all lines together (Holm)",
}
MOMENTS = {"estimate": "the value found", "error": "its standard error"}


@choice.register
def _(record: GroupComparison) -> Choice:
    sizes = ", ".join(
        f"{group} ({size:,} rows)"
        for group, size in zip(record.groups, record.sizes.tolist(), strict=True)
    )
    better = "laws of their own" if record.bic_gain > 0 else "one law for all"
    agrees = (record.bic_gain > 0) == record.differs
    words = f"BIC prefers {better}, by {abs(record.bic_gain):.1f}" + (
        "."
        if agrees
        else ", against the test: a difference that is clear may be too small to matter."
    )
    open_ones = [
        name
        for name, errors in zip(record.attributes, record.errors.T, strict=True)
        if not np.isfinite(errors).all()
    ]
    findings = [
        Finding(
            "",
            "What was asked?",
            (
                f"Do the groups {sizes} differ in what they have mastered? Items "
                "are taken to mean the same in all of them, unless the model "
                "frees them."
            ),
        ),
        Finding("", "In what do they differ?", " ".join(record.sentences))
        if record.sentences
        else None,
        Finding(
            "good" if agrees else "care",
            "How sure is that?",
            words,
            "" if agrees else "Report the shares with their intervals, rather than the test alone.",
        ),
        Finding(
            "care",
            "Are the shares determined?",
            f"The answers do not determine those of {listed(open_ones)}.",
            "Ask for fewer attributes, or take more items.",
        )
        if open_ones
        else None,
        Finding(
            "",
            "What could not have been seen?",
            (
                "Items that function differently look like differences between "
                "groups. And why groups differ: rows that were not put into "
                "groups by chance do not say."
            ),
        ),
    ]
    step = (
        "Test whether the items mean the same in all groups (inference.selection.item_scores),"
        " before you report differences."
    )
    verdict = verdict_of(findings, step, answer=record.headline, about="comparison")
    means = {"attribute": "each group's share that has it, with its standard error"} | P_VALUES
    return Choice(
        "Do the groups differ?", verdict, record.table.reset_index(), record.plot, meanings=means
    )


@choice.register(ItemScores)
@choice.register(DifferentialItems)
def _(record: ItemScores | DifferentialItems) -> Choice:
    open_ones = [
        name for name, p in zip(record.items, record.p_value, strict=True) if not np.isfinite(p)
    ]
    step = (
        f"Look at the wording of {record.different[0]}, free it in the model (free_items=...), fit,"
        " and test the others again."
        if record.different
        else ""
    )
    findings = [
        Finding(
            "",
            "What was asked?",
            "Do people of different groups who have the same attributes answer"
            f" {counted(len(record.items), 'item')} alike?",
        ),
        Finding(
            "care" if record.different else "good",
            "Which items differ?",
            " ".join((record.headline, *record.sentences)),
            step,
        ),
        (
            Finding(
                "care",
                "Could all be tested?",
                f"Not {listed(open_ones)}: the rows do not determine these tests.",
            )
            if open_ones
            else None
        ),
        Finding(
            "",
            "What could not have been seen?",
            "Each item is held against the others: many that differ the same way look like a"
            " difference between the groups.",
        ),
    ]
    few = len(record.different)
    answer = (
        f"{counted(few, 'item')} of {len(record.items)} mean{'s' * (few == 1)} something else in"
        " another group."
        if few
        else "No item clearly means something else in another group."
    )
    verdict = verdict_of(
        findings, nothing="Go on with the items as they are.", answer=answer, about="test"
    )
    means = {"statistic": "of the test, on so many degrees"} | P_VALUES
    if isinstance(record, DifferentialItems):
        means |= {
            "uniform": "of the test that one group finds the item easier throughout",
            "non_uniform": "of the test that attributes help one group more",
            "effect": (
                "the largest difference between groups of what is expected of the same attributes"
            ),
        }
    return Choice(
        "Do items mean the same in all groups?",
        verdict,
        record.table.reset_index(),
        record.plot if isinstance(record, ItemScores) else None,
        meanings=means,
    )


@choice.register
def _(record: RatioTest) -> Choice:
    drawn = len(record.null)
    missed = record.num_negative > MOST_MISSED * drawn
    near = Finding(
        "care",
        "How sure is that?",
        f"{counted(drawn, 'data set')} leave it open on which side of 5 % the p-value lies.",
        "Draw more data sets (num_replicates=499).",
    )
    sure = Finding(
        "good",
        "How sure is that?",
        "The data sets drawn are enough to say on which side of 5 % the p-value lies.",
    )
    findings = [
        Finding(
            "",
            "What was asked?",
            (
                "Does the larger of two sizes describe the data better than it "
                "would describe data that the smaller one made?"
            ),
        ),
        Finding("", "What came out?", record.text()),
        near if record.is_open else sure,
        Finding(
            "care",
            "Were the fits of the larger size good enough?",
            "Not always, so that p is too small rather than too large.",
            "Test again with more starts.",
        )
        if missed
        else None,
        Finding(
            "",
            "What could not have been seen?",
            (
                "Whether either size describes the data at all; a law that is "
                "wrong asks for ever larger sizes."
            ),
        ),
    ]
    step = (
        ""
        if record.is_open
        else (
            "Take the larger size, and test it against the next."
            if record.p_value < LIKELY
            else "Keep the smaller size, if its own report has no doubts."
        )
    )
    means = {
        "ratio": "twice the gain in log-likelihood",
        "mean_of_drawn": "the same in data drawn from the smaller size, on average",
        "95_%_of_drawn": "what only one in twenty of those exceeds",
        "num_exceeding": "how many of those drawn reached the ratio of the data",
    }
    return Choice(
        "Is the larger size needed?",
        verdict_of(findings, nothing=step, answer=record.headline, about="test"),
        record.table,
        meanings=means,
    )


def _on_classes(entropy_r2: float, method: str) -> list[Finding | None]:
    """How well rows tell their classes, and whether that was corrected for."""
    badly = entropy_r2 < LEAST_SEPARATED
    words = (
        f"The rows tell their classes {'badly' if badly else 'well enough'} (entropy R2"
        f" {entropy_r2:.2f}, where 1 is sure)."
    )
    words += (
        ""
        if badly
        else (
            " The posterior takes the estimates for the truth, so that this is too high where rows"
            " are few: the report of the fit has it corrected."
        )
    )
    step = (
        "Fit the covariates with the classes in one step, Mixture(..., covariates=...), and"
        " compare."
        if badly
        else ""
    )
    told = (
        None
        if np.isnan(entropy_r2)
        else Finding("care" if badly else "good", "Are the classes told apart?", words, step)
    )
    missing = (
        "Rows that may be in another class were not corrected for: differences are too small."
        if method == "none"
        else ""
    )
    return [
        told,
        (
            Finding("care", "Was it corrected?", missing, "Leave method at its default.")
            if missing
            else None
        ),
    ]


@choice.register
def _(record: ClassRegression) -> Choice:
    caption, *odds = record.sentences
    findings = [
        Finding(
            "",
            "What was asked?",
            f"What do the classes of {counted(record.num_rows, 'row')} depend on? {caption}",
        ),
        Finding("", "How much?", " ".join(odds)) if odds else None,
        *_on_classes(record.entropy_r2, record.method),
        Finding(
            "",
            "What could not have been seen?",
            "Covariates that were left out, and whether any of these is a cause. A covariate that"
            " changes an item directly is taken for one of its class.",
        ),
    ]
    step = "Report odds ratios with their intervals, and what the classes are."
    means = MOMENTS | {
        "z": "their ratio",
        "p": P_VALUES["p_value"],
        "odds_ratio": (
            "by which the odds of a class against class 0 are multiplied where the term is larger"
            " by one; low and high are its interval"
        ),
    }
    verdict = verdict_of(findings, nothing=step, answer=record.headline, about="regression")
    return Choice(
        "What do the classes depend on?", verdict, record.table.reset_index(), meanings=means
    )


@choice.register
def _(record: ClassOutcomes) -> Choice:
    caption, *apart = record.sentences
    pairs = record.pairs().rename_axis("classes").reset_index()
    findings = [
        Finding("", "What was asked?", f"Do the classes differ in {record.outcome}? {caption}"),
        Finding("", "Which ones?", " ".join(apart)) if apart else None,
        *_on_classes(record.entropy_r2, record.method),
        Finding(
            "",
            "What could not have been seen?",
            "Why they differ: rows were not put into classes by chance.",
        ),
    ]
    verdict = verdict_of(
        findings,
        nothing="Report the table with its intervals.",
        answer=record.headline,
        about="comparison",
    )
    means = MOMENTS | {"low": "the lower end of its 95 % interval; high is the upper one"}
    meant = {
        "classes": "the second minus the first",
        "chi2": "of the test that both are alike, on df degrees of freedom",
        "p_holm": P_VALUES["p_adjusted"],
    }
    return Choice(
        f"Do the classes differ in {record.outcome}?",
        verdict,
        record.table.reset_index(),
        meanings=means,
        others=(("Pairs of classes", pairs, meant),),
    )

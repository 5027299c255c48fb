"""Pages against themselves: what their sentences may not say beside each other."""

from __future__ import annotations

import re
from typing import Any

from inference import Fit
from inference.base.plugins import load_modules
from inference.fitting.columns import dims_of, variables_of, with_names
from inference.report.fit import _answer, _identifiability, _numbers
from inference.report.kinds.attributes import attributes_of, falls, graph, is_scaled
from inference.report.latent_use import latent_use
from inference.report.parts import Details, Finding, Note, Paragraph, Table, Verbatim, Verdict
from inference.report.sections import Refused, Subject, identified, locally
from inference.report.verdicts import record_of, verdict
from inference.structures.layers.attributes import AttributeStructure

YES = (
    "determine every parameter",
    "every change of it lowers the likelihood",
    "any small change of it changes",
    "rows determine all ",
    "every small change",
)
NO = (
    "singular along",
    "not locally identified",
    "can change together",
    "can be changed together",
    "do not determine",
)
load_modules("inference.report.kinds")


# what one sentence of a page says, and what none may say beside it
DENIALS = (
    ("No check on this page speaks against", "warnings below"),
    ("Nearly.", "the estimates are not final"),
    ("Nearly: ", "the estimates are not final"),
    ("No check on this page speaks against", "reached by one start alone"),
    ("No pair of items is associated beyond", "shares more than the attributes explain: "),
    (
        "is expected to be done worse by those who have one attribute more",
        "Falls that may be noise",
    ),
    ("is expected to be done worse by those who have one attribute more", "to do clearly worse"),
    ("The answers contradict no row of it", " rows of it: "),
    ("No two attributes are joined", "joined directly"),
    ("are kept for a while", "only a mixture of ways to act"),
    ("kept for a while.", "They alternate"),
    ("No pair of columns", "correlate inside the groups:"),
    ("the residuals contradict the model", "No misfit found"),
    ("is not looked at here", "No misfit found"),
    ("latents summed out", "cannot be summed out"),
    ("Not decided: ", "Are the factors determined?"),
    ("Not decided: ", "Are the signatures determined?"),
    ("parameter determine them well", "That is too many where"),
    ("The answers clearly contradict no row of it", "It was found in this fit"),
    ("the classes do not overlap", "group 0"),
    ("which items would settle it", "children (the fewest that do)"),
    ("determined up to a rotation", "1 factor that"),
    ("(the graph above)", "No two attributes are joined"),
    ("their numbers carry no meaning", "they name the latents"),
    ("the fit has not converged", "no estimate is more than"),
    ("was kept. From there", "\nas good\n"),
    ("No check on this page speaks against", "Heywood case"),
    ("would determine every parameter", "tied to nothing below"),
    ("rows determine all ", "there are fewer rows"),
    ("rows determine all ", "can change together without"),
    ("as the Q-matrix says that was found", "as the Q-matrix says;"),
    ("Try one latent, group or component more", "it fewer"),
    ("look at the steps that are far", "residuals of every item are as those of a right model"),
    ("the prior moves the estimate", "the fit has not converged"),
    ("no two columns clearly correlate inside", "does not reproduce the correlation of"),
    ("which is a guess", "Do not trust it"),
    ("Do first what the warnings say", "No check on this page speaks against"),
)
OPEN_SHARE = r"\b[01]\.\d{3} \((?:0\.[5-9]\d*|[1-9]\d*\.\d+)\)"  # with an error of a half or more
# what no sentence of a page may look like
SLIPS = {
    "a tuple or a list of the code": r"\('\w+',|\['\w+'",
    "the name of a function before what it says": r"(computed|decided|drawn): [a-z]+_[a-z_]+: ",
    "the name of a function as a subject": r"(computed|decided|drawn): [a-z]+_[a-z_]+ needs",
    "a number that is no number": r"\bnan\b|\binf\b",
    "a number below all that is said": r"\de-\d{3}",
    "one of many": r"(?<![\d.,])1 (rows|items|latents|groups|components|attributes|columns) ",
    "two words for one place": r"\S  \S",
    "a choice of nothing": r": try or |; try or |, or \.",
    "two sentences without a space": r"[a-z]\.[A-Z][a-z]",
    "a sentence that begins small": r"[a-z] \w+\. more than",
}
BARE = ("Yes.", "No.", "Nearly.", "Yes. ", "")  # answers that say nothing


def words_of(part: Any) -> list[str]:
    """All that is written in a part."""
    if isinstance(part, Finding):
        return [part.answer, part.step]
    if isinstance(part, Verdict):
        return [part.headline, *part.steps, *(own.answer for own in part.findings)]
    if isinstance(part, Table):
        return [*part.head, *(cell for row in part.rows for cell in row)]
    if isinstance(part, Details):
        return []  # the engine's settings
    return list(getattr(part, "texts", ())) or [getattr(part, "text", "")]


def assert_one_voice(subject: Subject) -> None:
    """What a page says in one place, no other denies or names otherwise."""
    page, fit_ = _answer(subject), subject.fit
    said = [
        words for section in page.sections for part in section.parts for words in words_of(part)
    ]
    everything = "\n".join(said)
    for one, other in DENIALS:
        assert not (one in everything and other in everything), (one, other)
    # no numbers for names, but of items that are numbers and whose categories are counted with them
    is_shifted = fit_.category_names and any(own.isdigit() for own in fit_.item_names)
    assert is_shifted or with_names(fit_, everything, subject.names) == everything
    assert not (fit_.warnings and page.verdict.mark == "good")
    for name, slip in SLIPS.items():
        found = re.search(slip, everything)
        assert found is None, (name, everything[max(0, found.start() - 80) : found.end() + 40])
    notes = [
        own.text for s in page.sections for own in s.parts if isinstance(own, Paragraph | Note)
    ]
    notes = [own for own in notes if own != "Standard errors in brackets."]  # of each table
    assert len(set(notes)) == len(notes), notes  # nothing is said twice
    assert not [own.question for own in page.verdict.findings if own.answer in BARE]
    assert len(set(page.verdict.steps)) == len(page.verdict.steps), page.verdict.steps
    titles = [section.title for section in page.sections if section.parts]
    assert len(set(titles)) == len(titles), titles
    assert_intervals(page)
    assert_names(fit_, everything)
    assert_numbers(subject, page, everything)
    if subject.choice is not None:
        assert not any(step.startswith("Ask whether") for step in page.verdict.steps)
    if isinstance(fit_.structure, AttributeStructure):
        named = set(attributes_of(subject))
        report = subject.once(graph)
        if not isinstance(report, Refused):
            assert set(report.causal.graph.names) == named
            best = report.on_rows.best.graph
            ranked = [found.graph for found in report.on_rows.ranked]
            if best is not None and report.causal.graph in ranked and report.determined:
                is_other = best != report.causal.graph and bool(report.causal.edges)
                assert ("another graph does better" in everything) == is_other
        fallen = subject.once(falls)
        assert is_scaled(subject) or not re.search(OPEN_SHARE, everything)
        if not isinstance(fallen, Refused) and not is_scaled(subject):
            items = " ".join(
                own.answer for own in page.verdict.findings if "items work" in own.question
            )
            assert all(own.item in items for own in fallen) or not items


def assert_names(found: Fit, everything: str) -> None:
    """Sites of the code do not stand where their estimates have names that people know."""
    for site, variables in variables_of(found).items():
        if all(each.name != site for each in variables):
            shown = rf"^{site}$|\b{site}\[|entries of [\w, ]*\b{site}\b"
            assert not re.search(shown, everything, re.MULTILINE), site


def assert_numbers(subject: Subject, page: Any, everything: str) -> None:
    """Verdict and sections count the same classes and the same edges."""
    said, uses = page.verdict.findings[0].answer, subject.once(latent_use)
    (use,) = uses if len(uses) == 1 and uses[0].is_choice else (None,)
    told = re.findall(r"(\d+) (?:hidden )?(?:group|state|option|component|class)(?:e?s)?\b", said)
    if use is not None and told:
        assert {int(number) for number in told} == {len(use.labels)}, said
    edges = re.findall(r"found in this fit: ([\d,]+) edge", everything)
    edges += re.findall(r"EBIC fell; ([\d,]+) are left", everything)
    by_layer = re.findall(r"([\d,]+) of [\d,]+ were found to be edges", everything)
    if edges and by_layer:
        total = sum(int(number.replace(",", "")) for number in by_layer)
        assert {int(number.replace(",", "")) for number in edges} == {total}, (edges, by_layer)


def assert_intervals(page: Any) -> None:
    """Entries are said to have no interval only where one is shown without."""
    for section in page.sections:
        if section.title == "Estimates":
            table = next(part for part in section.parts if isinstance(part, Table))
            bare = [row for row in table.rows if row[1] and not row[-1]]
            said = any("Entries without an interval" in text for text in texts(section.parts))
            assert not said or bare or any("more of" in row[0] for row in table.rows)


def texts(parts: Any) -> list[str]:
    return [part.text for part in parts if isinstance(part, Paragraph | Note | Verbatim)]


def names_of(found: Fit) -> dict[str, list[str]]:
    """Names of the entries along every dim of the estimates, so that a number is no name."""
    shapes = {site: value.shape for site, value in found.params.items()}
    sizes = {
        dim: size
        for site, shape in shapes.items()
        for dim, size in zip(dims_of(found, site, shape), shape, strict=True)
    }
    return {dim: [f"{dim} no. {k}" for k in range(size)] for dim, size in sizes.items()}


def assert_agreement(found: Fit, data: Any, names: Any = None) -> None:
    """No section denies another: verdict, identifiability, standard errors, number of parameters,
    convergence.
    """
    subject = Subject(found, data, None, names)
    findings = verdict(found.structure, subject).findings
    answers = [finding for finding in findings if "determine" in finding.question]
    estimates, local, record = subject.estimates, subject.once(locally), record_of(subject)
    (table,) = (part for part in _numbers(subject) if isinstance(part, Table))
    numbers = {row[0]: row for row in table.rows}
    section = " ".join(texts(_identifiability(subject, identified(found.structure, subject))))
    is_open = local is not None and local.num_open > 0
    doubted = (
        is_open
        or estimates.is_flat
        or record.get("is_full_rank") is False
        or record.get("verdict") == "not identified"
    )

    # what is determined
    marks = {finding.mark for finding in answers}
    assert "good" not in marks or not doubted, answers
    assert not doubted or not answers or marks & {"care", "bad"}, answers
    num_seen = found.num_observations or found.num_rows
    if found.local is None and found.draws is None and num_seen < found.num_parameters:
        assert "good" not in marks or estimates.source, answers
    if estimates.source and not doubted:
        assert "bad" not in marks, answers
        assert not any(finding.answer.startswith("No") for finding in answers), answers
    if is_open:
        assert not estimates.source or "standard errors" not in section
        assert f"{local.rank:,} of {local.num_judged:,}" in section, section
    for answer in answers:  # and in its own words
        said = (
            f"{answer.answer} {section if record.get('verdict') is None else ''} {estimates.note}"
        )
        assert not (any(words in said for words in YES) and any(words in said for words in NO)), (
            said
        )

    # how many they are
    if "free parameters" in numbers:
        assert numbers["free parameters"][1] == f"{found.num_parameters:,}"
        assert "of these, told by the data" not in numbers or is_open or not estimates.is_flat
        if local is not None and not estimates.is_flat and found.bic_price is None:
            assert ("of these, told by the data" in numbers) == (
                local.rank is not None and local.rank < found.num_parameters
            )
    if local is not None and local.num_judged > found.num_parameters:  # both numbers are told apart
        assert f"the {found.num_parameters} free parameters of the model" in section
    if local is not None and found.bic_price is None:
        assert local.num_judged + local.num_held == found.num_parameters, local
        if is_open:
            assert numbers["of these, told by the data"][1] == f"{local.rank:,}"
            assert f"{local.num_open:,} direction" in numbers["of these, told by the data"][2]
            assert (
                f"for {found.num_parameters:,} parameters" in numbers["BIC (smaller is better)"][2]
                if found.why_no_criteria is None
                else True
            )
        if local.num_held:
            assert f"The other {local.num_held:,} of {found.num_parameters:,}" in section

    # whether it converged
    assert numbers["converged"][1] == ("yes" if found.converged else "no")
    (ended,) = [finding for finding in findings if finding.question == "Did the fit converge?"] or [
        None
    ]
    if ended is not None:
        assert not (ended.mark == "good" and not found.converged)
        assert ended.answer.startswith(("No", "Nearly")) == (not found.converged)
    assert_one_voice(subject)

"""Use of latents by rows: shares, certainty, idle and twin latents."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from inference.base.structure import Structure
from inference.fitting.columns import dims_of, labels_of
from inference.fitting.draws import latents_of_draws
from inference.fitting.repr import rows_in_words
from inference.inspection.classification import ClassAccuracy, class_accuracy
from inference.programs.posterior_predictive import present, stems
from inference.report.page import number
from inference.report.parts import Note, Paragraph, Part, Table
from inference.report.sections import NEEDS_DATA, Subject, cut
from inference.report.words import percent, say

MOST_LINES = 60  # of a table
FEW_VALUES, LEAST_SHOWN = 10, 0.001  # values of a latent, and chances of those of more, shown
NEAR_GUESS = 0.02  # difference of shares beyond the largest class, below which neither is better
UNSURE = 0.1  # a chance farther than this from 0 and from 1 is unsure


@dataclass(frozen=True, eq=False)
class LatentUse:
    """Use of one latent of the program.

    Args:
        site: its name.
        labels: of its K entries, or of its K values.
        is_choice: whether every row has one of K values; else K entries are each on or off.
        on: chances given the data, (n, K), a line for each row, or for each step of all sequences.
        unit: "row" or "step".
    """

    site: str
    labels: tuple[str, ...]
    is_choice: bool
    on: np.ndarray
    unit: str

    @property
    def shares(self) -> np.ndarray:
        """Shares of rows in which each entry is on, (K,)."""
        return np.asarray(self.on.mean(0))

    @property
    def unsure(self) -> np.ndarray:
        """Share of rows in which the data do not tell whether it is on, (K,)."""
        return np.asarray(((self.on > UNSURE) & (self.on < 1 - UNSURE)).mean(0))

    def lines(self) -> list[list[str]]:
        """Lines of a table, one an entry or a value."""
        if not self.is_choice:
            off = 1.0 - self.on
            entropy = -(
                self.on * np.log2(np.clip(self.on, 1e-300, 1.0))
                + off * np.log2(np.clip(off, 1e-300, 1.0))
            )
            columns = (self.shares, entropy.mean(0), self.unsure)
            return [
                [self.site, label, *(number(float(column[k]), 3) for column in columns)]
                for k, label in enumerate(self.labels)
            ]
        winner, rows = self.on.argmax(-1), []
        for k, label in enumerate(self.labels):
            own = self.on[winner == k, k]
            sure = number(float(own.mean()), 3) if len(own) else f"in no {self.unit}"
            rows.append(
                [
                    self.site,
                    label,
                    number(float(self.shares[k]), 3),
                    number(len(own) / len(self.on), 3),
                    sure,
                ]
            )
        return rows


def latent_means(subject: Subject) -> dict[str, Tensor]:
    """Posteriors of the discrete latents, by site."""
    fit, drawn = subject.fit, subject.fit.local_draws or {}
    if not drawn and not (fit.draws and _outside(subject)):
        return fit.posterior_latents(subject.data)
    draws = {name: value.flatten(0, 1) for name, value in ((fit.draws or {}) | drawn).items()}
    averaged = latents_of_draws(fit, draws, subject.data)  # over parameters and continuous latents
    if drawn:
        return averaged
    own = {name: averaged[name] for name in _outside(subject)}
    return fit.posterior_latents(subject.data) | own


def _outside(subject: Subject) -> list[str]:
    """Discrete latents that stand in no plate over rows, where the program has such a plate."""
    program = subject.program
    if program is None:
        return []
    return [name for name in program.names("latent") if name not in program.row_latents]


def shared_values(subject: Subject) -> list[tuple[str, np.ndarray]]:
    """Latents that all rows have in common, entry by entry: name and chances of the values."""
    means, out = subject.once(latent_means), []
    for site in _outside(subject):
        chances = means[site].detach().cpu().double().numpy()
        for entry in itertools.product(*map(range, chances.shape[:-1])):
            name = f"{site}[{', '.join(map(str, entry))}]" if entry else site
            out.append((name, chances[entry]))
    return out


def _of_parameters(subject: Subject) -> Iterator[Part]:
    """Latents outside the plates over rows, such as those that switch parameters on."""
    lines = []
    for name, chances in subject.once(shared_values):
        values = [1] if len(chances) == 2 else range(len(chances))
        shown = [k for k in values if len(chances) <= FEW_VALUES or chances[k] >= LEAST_SHOWN]
        lines += [[name, str(k), number(float(chances[k]), 3)] for k in shown]
        left = len(values) - len(shown)
        if left:
            lines.append([name, f"{left:,} others", f"below {LEAST_SHOWN} each"])
    if lines:
        head = ("latent outside the rows", "value", "posterior probability")
        yield from cut(Table(head, lines), MOST_LINES)
        given = "averaged over the draws" if subject.fit.draws else "given the estimates"
        yield Note(say("latents.parameter_latents", given=given))


def latent_use(subject: Subject) -> list[LatentUse]:
    """Every discrete latent that rows have, in the program's order; needs the data."""
    fit = subject.fit
    outside = set(_outside(subject))
    continuous = {*fit.structure.local_sites, *fit.structure.integrated_sites}
    continuous |= set(subject.program.names("local")) if subject.program is not None else set()
    means = subject.once(latent_means)
    posterior = {
        site: value.detach().cpu().numpy()
        for site, value in means.items()
        if site not in continuous | outside
    }
    out = []
    own = (
        [site for site in subject.program.sites if site.name in posterior]
        if subject.program is not None
        else []
    )
    groups = stems(own) | {
        name: [name] for name in posterior if name not in {site.name for site in own}
    }
    for stem, members in groups.items():
        on = np.concatenate([_counted(subject, name, posterior[name]) for name in members])
        first = posterior[members[0]]
        site = f"{stem} ({len(members)} of them)" if len(members) > 1 else stem
        dim = dims_of(fit, members[0], first.shape[1:])[-1] if first.ndim > 1 else members[0]
        if len(on):
            labels = tuple(str(label) for label in labels_of(fit, dim, on.shape[1], subject.names))
            is_choice = on.shape[1] > 1 and np.allclose(on.sum(-1), 1.0, atol=1e-4)
            out.append(
                LatentUse(
                    site,
                    labels,
                    is_choice,
                    on,
                    "step" if first.ndim > 2 or len(members) > 1 else "row",
                )
            )
    return out


def certainty(subject: Subject) -> ClassAccuracy | None:
    """Return the expected share of rows whose class is right; None where unknown."""
    if subject.data is None or subject.num_sampled is not None:
        return None
    try:
        return class_accuracy(subject.fit, subject.data)
    except ValueError:
        return None


def classified_in_words(found: ClassAccuracy, unit: str) -> str:
    """The share, what it is held against, and what was taken off.

    Args:
        found: of the classes.
        unit: what is classified, "row" or "step".
    """
    error = found.error_of_rows
    right = percent(found.accuracy)
    if not found.note and error < 0.01 and found.accuracy < 0.9995:
        right = f"{100 * found.accuracy:.1f} %"
    share = f"{right} of the {unit}s are expected to be classified correctly"
    if found.is_enough:
        return say("latents.enough_accuracy", share=share, note=found.note)
    if found.note:
        guess = say("latents.guess_same", largest=percent(found.largest))
        values = {"unit": unit, "note": found.note, "guess": guess}
        return say("latents.uncorrected_accuracy", share=share, **values)
    is_same = abs(found.largest - found.guess) < NEAR_GUESS
    guess = say(
        f"latents.guess_{'same' if is_same else 'other'}",
        guess=percent(found.guess),
        largest=percent(found.largest),
    )
    is_equal = percent(found.said) == percent(found.accuracy)
    words = say(
        f"latents.{'equal' if is_equal else 'corrected'}_accuracy",
        share=share,
        error=f"{100 * error:.1f}" if error >= 5e-4 else "below 0.1",
        guess=guess,
        said=percent(found.said),
    )
    if not found.worthless:
        return words
    is_gain = found.accuracy - found.guess > 2 * found.error
    why = say(f"latents.worthless_{'correction' if is_gain else 'gain'}")
    return words + say("latents.worthless", unit=unit, why=why)


@functools.singledispatch
def latents(structure: Structure, subject: Subject) -> Iterable[Part]:
    """Yield the use of the latents: shares, and how sure the data make them."""
    fit = subject.fit
    if subject.data is None:
        yield NEEDS_DATA
        return
    uses = subject.once(latent_use)
    if uses:
        sampled = subject.num_sampled
        yield Paragraph(
            f"Of {rows_in_words(fit)}."
            if sampled is None
            else f"Of {sampled:,} out of {rows_in_words(fit)}."
        )
    head = (
        "latent",
        "entry",
        "share of rows on",
        "mean posterior entropy (bits)",
        "share of rows unsure (0.1 to 0.9)",
    )
    bits = [line for use in uses if not use.is_choice for line in use.lines()]
    if bits:
        yield from cut(Table(head, bits), MOST_LINES)
        yield Note(say("latents.entropy_note"))
    values = [line for use in uses if use.is_choice for line in use.lines()]
    if values:
        head = (
            "latent",
            "value",
            "mean probability",
            "most probable in",
            "mean probability where it is",
        )
        yield from cut(Table(head, values), MOST_LINES)
        yield Note(say("latents.certainty_note"))
    yield from _of_parameters(subject)
    for site, value in (fit.local_draws or {}).items():
        flat = value.flatten(0, 1).double()
        low, high, spread = (
            float(flat.mean(0).min()),
            float(flat.mean(0).max()),
            float(flat.std(0).mean()),
        )
        yield Paragraph(
            say(
                "latents.continuous",
                site=site,
                low=number(low, 3),
                high=number(high, 3),
                spread=number(spread, 3),
            )
        )


def _counted(subject: Subject, name: str, posterior: np.ndarray) -> np.ndarray:
    """Return posteriors one a line, (n, K), without masked and absent steps."""
    lines = posterior.reshape(-1, posterior.shape[-1])
    if subject.program is None or name not in {site.name for site in subject.program.sites}:
        return lines[lines.sum(-1) > 0] if posterior.ndim > 2 else lines
    if subject.fit.structure.about is not None:  # described latents are hidden by no mask
        return lines
    shown = present(subject.program, subject.fit.params, name)
    seen = (
        shown.reshape(-1).numpy()
        if shown.numel() == len(lines)
        else shown.expand(posterior.shape[:-1]).numpy().ravel()
    )
    return lines[seen] if len(seen) == len(lines) else lines

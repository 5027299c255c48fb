"""Table of estimates of any program, with intervals from draws or standard errors."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from inference.base.plugins import load_kind
from inference.base.structure import unlisted_sites
from inference.bootstrap import Bootstrap
from inference.fitting.columns import (
    Names,
    Variable,
    sites_of,
    variables_of,
    with_names,
)
from inference.fitting.record import FitRecord
from inference.fitting.repr import labels_in_words
from inference.fitting.same_data import refuse_other_rows
from inference.identifiability.of_fit import THEOREMS, possible_values
from inference.identifiability.scores import (
    MOST_BITS,
    MOST_PARAMETERS,
    MOST_WORK,
    latent_bits,
    rows_of_fit,
)
from inference.programs.curvature import Undetermined
from inference.uncertainty import ToOptimum, distance_to_optimum, standard_errors
from ppl_models.parts.repr import few_digits, shows_briefly
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import is_number

__all__ = ["EstimateTable", "estimates_of", "summary_of"]
__dir__ = _promised(__name__)

NUMBERS = ("estimate", "error", "low", "high")
FEW_BITS = 10  # of the latents of a row, up to which their number is no reason
MOST_WORDS = 100  # of a line
WITH_PRIORS = "NUTS() and Laplace() give intervals that take the prior in"
FAR = 10.0  # errors that the end of an interval is away, from which on an error says nothing
MOST_STEP = 0.5  # standard errors to the maximum of the likelihood, beyond which those mean nothing

PRIOR_COUNTS = (
    "the prior moves the estimate away from the maximum of the likelihood, by more than half a"
    f" standard error; {WITH_PRIORS}"
)
UNCONVERGED = (
    "the estimate is not at a maximum of the likelihood, since the fit has not converged;"
    f" let it run on, or take a smaller tolerance. {WITH_PRIORS}"
)
SAME_DISTRIBUTION = (
    "all values with the same distribution of the data (theorem 1), not the error of sampling"
)
NO_MAXIMUM = "or the fit is not at a maximum"  # of the likelihood, in words of an error


@dataclass(frozen=True)
class Estimate:
    """One number of the estimate.

    Args:
        site: of the program; entry: names along its dims, () for a single number.
        value: the point estimate, or the mean of posterior draws.
        error: standard error, or standard deviation of the draws; low, high: the interval; all NaN
            where there is none.
    """

    site: str
    entry: tuple[str, ...]
    value: float
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def is_held(self) -> bool:
        """Estimate on its bound: 0 or within 1e-3 of 1, with no interval or hardly an error."""
        is_sure = math.isnan(self.low) or self.error <= 1e-6
        return is_sure and (self.value == 0 or abs(self.value - 1) <= 1e-3)

    @property
    def name(self) -> str:
        """Such as ``weights[0]``."""
        return f"{self.site}[{', '.join(self.entry)}]" if self.entry else self.site


@shows_briefly
@dataclass(frozen=True)
class EstimateTable:
    """The estimates of a fit.

    Args:
        rows: one an entry, site by site.
        level: of the intervals.
        source: where the intervals come from, in words; "" where there are none.
        note: why there are none, in words; "" where there are.
        is_flat: whether there are none because the likelihood does not fall in every direction from
            the estimate.
        to_optimum: how far the estimate is from the optimum of its objective; None where curvature
            does not tell, and for draws.
    """

    rows: tuple[Estimate, ...]
    level: float
    source: str
    note: str
    is_flat: bool = False
    to_optimum: ToOptimum | None = None

    def of(self, site: str) -> tuple[Estimate, ...]:
        """The entries of one site."""
        return tuple(row for row in self.rows if row.site == site)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, in the program's order."""
        return tuple(dict.fromkeys(row.site for row in self.rows))

    def frame(self) -> Any:
        """A pandas frame: one line an entry, with columns value, error, low and high."""
        columns = ("value", "error", "low", "high")
        return pd.DataFrame(
            [[getattr(row, name) for name in columns] for row in self.rows],
            [row.name for row in self.rows],
            columns,
        )


class Summary(pd.DataFrame):
    """Data frame of estimates, shown in as many digits as mean something.

    With its note in words below; its numbers are kept whole.

    Cuts of it are shown alike. ``pandas.DataFrame(summary)`` is a plain frame.
    """

    @property
    def _constructor(self) -> type[Summary]:
        return Summary

    def __repr__(self) -> str:
        if not self._numbers:
            return super().__repr__()
        lines = self._shown().to_string(max_rows=self._most_rows)
        cut = [] if self._most_rows is None else [f"[{len(self):,} lines]"]
        return "\n".join(
            [lines, *cut, *(textwrap.fill(text, MOST_WORDS) for text in self._words())]
        )

    def _repr_html_(self) -> str:
        if not self._numbers:
            return str(super()._repr_html_())
        words = "".join(f"<p>{escape(text)}</p>" for text in self._words())
        return f"{self._shown().to_html(max_rows=self._most_rows)}{words}"

    @property
    def _numbers(self) -> list[str]:
        """Its columns of numbers."""
        return (
            [name for name in NUMBERS if name in self.columns and self[name].dtype.kind == "f"]
            if self.columns.is_unique
            else []
        )

    @property
    def _most_rows(self) -> int | None:
        """Lines to show of a long table; None for all, as pandas is set."""
        most = pd.get_option("display.max_rows")
        return None if not most or len(self) <= most else pd.get_option("display.min_rows") or most

    def _shown(self) -> pd.DataFrame:
        """Texts in place of numbers, site by site; without columns that hold none."""
        out = pd.DataFrame(self).astype(object)
        sites = np.array([str(name).partition("[")[0] for name in self.index])
        errors = (
            self["error"].to_numpy() if "error" in self._numbers else np.full(len(self), np.nan)
        )
        for site in dict.fromkeys(sites):
            own = np.flatnonzero(sites == site)
            for name in self._numbers:
                out.iloc[own, out.columns.get_loc(name)] = few_digits(
                    self[name].to_numpy()[own], errors[own]
                )
        nothing = [name for name in self._numbers if self[name].isna().all()]
        return out.drop(
            columns=(
                [*nothing, "interval"] if len(nothing) == 3 and self.attrs.get("note") else nothing
            ),
            errors="ignore",
        )

    def _words(self) -> list[str]:
        entries, note = self.attrs.get("entries", ""), self.attrs.get("note", "")
        return [f"Entries: {entries}."] * bool(entries) + [f"Note: {note}."] * bool(note)


@torch.enable_grad()  # also where the caller has switched gradients off
def estimates_of(
    fit: FitRecord,
    data: Any = None,
    level: float = 0.95,
    names: Names | None = None,
    always: bool = False,
    named: bool = False,
) -> EstimateTable:
    """Return estimates with names, and intervals from draws or standard errors.

    Standard errors are worked out where that is sound and quick.

    Args:
        fit: of any program.
        data: the data of the fit, which standard errors need; in memory or in blocks.
        level: of the intervals: equal tails of the draws, or those of
            :meth:`inference.uncertainty.Uncertainty.intervals`.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.
        always: work standard errors out however long that takes.
        named: give means, variances, probabilities and rates in place of the sites that they are
            read from, as :func:`summary_of` does.

    Raises:
        ValueError: if the level is not in (0, 1), or ``data`` does not fit the model.
    """
    variables = (
        _named(fit, names)
        if named
        else {site: [variable] for site, variable in sites_of(fit, names).items()}
    )
    return _estimates(fit, variables, data, level, always)


def _named(fit: FitRecord, names: Names | None) -> dict[str, list[Variable]]:
    """Estimates under users' names, by site, of which ends of intervals are known."""
    return {
        site: [each for each in variables if each.is_increasing]
        for site, variables in variables_of(fit, names).items()
    }


def _estimates(
    fit: FitRecord,
    variables: Mapping[str, Sequence[Variable]],
    data: Any,
    level: float,
    always: bool,
) -> EstimateTable:
    """Return the table of :func:`estimates_of`, of functions of each site."""
    if not is_number(level) or not 0 < level < 1:
        raise ValueError(f"estimates_of: level must lie in (0, 1), got {level!r}")
    unlisted = unlisted_sites(fit.structure)[0]
    listed = [each for site, known in variables.items() if site not in unlisted for each in known]
    if data is not None:
        data = rows_of_fit(fit, data)
    if fit.draws is not None:
        replicated = isinstance(fit.method, Bootstrap)  # their mean is the estimate and its bias
        ends = [(1 - level) / 2, (1 + level) / 2]
        rows: list[Estimate] = []
        for each in listed:
            draws = each.of(fit.draws[each.site].detach().double().flatten(0, 1))
            limits = np.quantile(draws.cpu().numpy(), ends, axis=0)  # torch's stops at 2^24
            value = each.of(fit.params[each.site].double()) if replicated else draws.mean(0)
            rows += _rows(each, value, draws.std(0), *map(torch.as_tensor, limits))
        source = "bootstrap replicates" if replicated else "posterior draws"
        return EstimateTable(tuple(rows), level, source, "")
    errors, limits_of, note, is_flat, rest = _standard_errors(fit, data, level, always)
    source = "standard errors from the curvature of the log-likelihood" if errors else ""
    free: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    if data is not None and not errors:
        load_kind("inference.identifiability", type(fit.structure), THEOREMS)
        free = possible_values(fit.structure, fit, data)
    if free:
        note = f"the ends of {' and '.join(free)} hold {SAME_DISTRIBUTION}. {note}"
    rows = []
    for each in listed:
        value = fit.params[each.site].detach().double().requires_grad_()
        estimate = each.of(value)
        columns = [estimate.detach()]
        if each.site in errors:
            (slope,) = torch.autograd.grad(estimate.sum(), value)
            error, *limits = (errors[each.site], *limits_of[each.site])
            low, high = (each.of(limit.double()) for limit in limits)
            error = each.taken(slope.abs() * error)
            reach = torch.maximum(high - columns[0], columns[0] - low)
            is_void = (error > 0) & (reach > FAR * error)  # near a bound of its range
            columns += [error.masked_fill(is_void, torch.nan), low, high]
        elif each.site in free:
            bounds = [torch.as_tensor(end).to(value) for end in free[each.site]]
            columns += [torch.full_like(columns[0], math.nan), *map(each.of, bounds)]
        rows += _rows(each, *columns)
    return EstimateTable(tuple(rows), level, source, note, is_flat, rest)


def summary_of(
    fit: FitRecord,
    data: Any = None,
    level: float = 0.95,
    names: Names | None = None,
    always: bool = False,
) -> Summary:
    """Return the estimates as a frame: a line for each number, by its name.

    Means, variances, probabilities and rates of components and states have these names, worked out
    from the sites; their errors are those of the sites times the slope, and the ends of their
    intervals are functions of the sites' ends. Shown rounded, kept whole.

    Columns: ``estimate``; ``error``, its standard error, or the standard deviation of the draws;
    ``low`` and ``high``, the ends of the interval; and ``interval``, where that comes from, or why
    there is none. What was held (zeros off a graph, entries on a bound) has no error of its own.
    The frame's ``attrs`` hold ``level``, in one sentence each ``source`` and ``note``, and in
    ``entries`` what stands in the brackets.

    Args:
        fit: as :func:`estimates_of`. A fit by an engine that draws has its intervals at hand; a
            point estimate needs ``data``, the rows of the fit, and a second derivative for every
            two numbers.
        data: as :func:`estimates_of`.
        level: as :func:`estimates_of`.
        names: as :func:`estimates_of`.
        always: as :func:`estimates_of`.

    Raises:
        ValueError: if the level is not in (0, 1), or ``data`` does not fit the model.
    """
    known = _named(fit, names)
    if data is not None:
        refuse_other_rows("summary", fit, data)
    table = _estimates(fit, known, data, level, always)
    source = (
        table.source
        if isinstance(fit.method, Bootstrap)
        else f"posterior draws by {type(fit.method).__name__}"
        if fit.draws is not None
        else "standard error, given the graph that was chosen"
        if fit.choice
        else "standard error"
    )
    reason = fit.structure.why_no_standard_errors(fit.params)
    note = (
        table.note
        if data is not None or not table.note
        else reason or "intervals need the data of the fit: pass them, as summary(data)"
    )
    nothing = "needs the data" if data is None and reason is None else "none, see note"
    told = labels_in_words(fit)
    told = told and f"{told[0].upper()}{told[1:]}"
    note = with_names(fit, note, names)
    note = " ".join(text for text in (note, unlisted_sites(fit.structure)[1], told) if text)
    held = "held at this value"
    lines = [
        [
            row.value,
            row.error,
            row.low,
            row.high,
            nothing if table.note else source if math.isfinite(row.low) else held,
        ]
        for row in table.rows
    ]
    frame = Summary(lines, [row.name for row in table.rows], [*NUMBERS, "interval"])
    frame.attrs = {
        "level": level,
        "source": table.source,
        "note": note,
        "entries": ", ".join(
            f"{each.name}[{', '.join(each.dims)}]"
            for site, variables in known.items()
            if getattr(fit.model, "site_dims", {}).get(site)
            for each in variables
            if each.name in table.sites
        ),
    }
    return frame


Limits = Mapping[str, tuple[Tensor, ...]]


def _standard_errors(
    fit: FitRecord, data: Any, level: float, always: bool
) -> tuple[Mapping[str, Tensor], Limits, str, bool, ToOptimum | None]:
    """Return standard errors, limits, why there are none, flatness and distance to optimum."""
    rest = None
    seen, what = (
        fit.num_observations or fit.num_rows,
        "rows" if fit.num_observations in (None, fit.num_rows) else "steps",
    )
    reason, bits = fit.structure.why_no_standard_errors(fit.params), latent_bits(fit)
    size = sum(value.numel() for value in fit.params.values())
    if reason is None:
        size = min(size, fit.num_parameters)  # what is held at zero needs no error
    if not fit.params:
        reason = "the program has no parameters"
    elif size == 0:
        reason = "every parameter is known"
    elif data is None:
        reason = "standard errors need the data"
    elif reason is None and seen < size:
        reason = f"there are fewer {what} ({seen:,}) than numbers ({size:,})"
    elif (
        reason is None
        and not always
        and (
            size > MOST_PARAMETERS
            or size * seen > MOST_WORK
            or math.log2(size * seen) + bits > MOST_BITS
        )
    ):
        latents = (
            f", and 2^{bits:.0f} configurations of a row's latents," if bits > FEW_BITS else ""
        )
        reason = (
            f"for {size:,} numbers and {seen:,} {what}{latents} they would take a while; "
            "inference.uncertainty.standard_errors(fit, data) works them out"
        )
    if reason is None:
        try:
            found = standard_errors(fit, data, hold_bounds=True)
            rest = distance_to_optimum(fit, data, found)
            if bool((rest.likelihood_steps.abs() < MOST_STEP).all()):
                return found.standard_errors, found.intervals(level), "", False, rest
            near = float(rest.steps.abs().max()) < MOST_STEP
            reason = PRIOR_COUNTS if near else UNCONVERGED
        except (
            ValueError,
            RuntimeError,
        ) as error:  # RuntimeError: an operation of the program without second derivatives
            is_flat, words = isinstance(error, Undetermined), str(error)
            if is_flat and "the prior alone" in words:
                words = f"{words}; {WITH_PRIORS}"
            if fit.converged:  # to a maximum of its objective, so that only a prior is left
                words = words.replace(NO_MAXIMUM, "or held by the prior alone")
            return {}, {}, words.removeprefix("standard_errors: "), is_flat, None
    return {}, {}, reason, False, rest


def _rows(variable: Variable, *columns: Tensor) -> list[Estimate]:
    """Return the entries of a variable: value, and error, low and high where there are any."""
    numbers = [column.detach().double().cpu().ravel().tolist() for column in columns]
    return [
        Estimate(variable.name, tuple(map(str, entry)), *row)
        for entry, *row in zip(itertools.product(*variable.labels), *numbers, strict=True)
    ]

"""Predictive checks in words: departures of the data, and their causes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inference.fitting.record import FitRecord
from inference.predictive import LEAST_ROWS, Departure, PredictiveCheck
from inference.report.words import entry, say

MOST_NAMED = 3  # of each kind
LAG = "one step apart"  # ends the name of a check on steps and the next ones


def column_names(fit: FitRecord, check: PredictiveCheck) -> list[str]:
    """Return names of the columns compared: items, or categories but the first."""
    names: list[str] = []
    for item in fit.item_names[: len(fit.item_names) - fit.structure.num_given]:
        own = fit.category_names.get(item)
        names += [item] if own is None else [f"{item} = {category}" for category in own[1:]]
    size = check.observed.shape[1]
    return names if len(names) == size else [f"column {j}" for j in range(size)]


def departures_in_words(check: PredictiveCheck, names: Sequence[str], of: str = "") -> str:
    """Departures in words, with numbers and likely causes.

    Args:
        check: of data and simulations.
        names: of its columns.
        of: what is compared, where that is not the columns themselves.
    """
    if len(check.observed) < LEAST_ROWS:
        return say("predictive.few_rows", LEAST_ROWS=LEAST_ROWS)
    found = check.departures()
    if not found:
        is_one = check.observed.shape[1] == 1
        return say(f"predictive.{'column' if is_one else 'columns'}_fine")
    words = []
    points_to = entry("predictive.parts.points_to")
    for kind in points_to:
        for what in ("mean", "spread", "correlation"):
            own = [own for own in found if own.what == what and kind_of(own, check, of) == kind]
            if not own:
                continue
            more = f", and {len(own) - MOST_NAMED:,} more" if len(own) > MOST_NAMED else ""
            named = "; ".join(_in_words(departure, names) for departure in own[:MOST_NAMED])
            words.append(f"The fit does not reproduce the {what} of {named}{more}.")
            words += [f"{points_to[kind]}."] if f"{points_to[kind]}." not in words else []
    return " ".join(words)


def remedy_of(found: Sequence[Departure], check: PredictiveCheck, of: str = "") -> str:
    """First remedy to try; "" without departures."""
    off = {kind_of(departure, check, of) for departure in found}
    remedies = entry("predictive.parts.remedies").items()
    return next((remedy for kind, remedy in remedies if kind in off), "")


def kind_of(departure: Departure, check: PredictiveCheck, of: str = "") -> str:
    """Kind of a departure: its direction, and whether of counts, where causes differ by that."""
    if of.endswith(LAG):
        return "lagged"
    if departure.what == "mean":
        return "mean"
    is_less = abs(departure.observed) < abs(departure.simulated)
    values = check.observed[:, list(departure.columns)]
    seen = values[~np.isnan(values)]
    are_counts = bool((seen >= 0).all() and (seen == seen.round()).all() and (seen > 1).any())
    kind = f"{departure.what}_{'less' if is_less else 'more'}"
    return kind if are_counts or kind == "correlation_more" else f"{kind}_not_counts"


def _in_words(departure: Departure, names: Sequence[str]) -> str:
    columns = " with ".join(names[j] for j in departure.columns)
    values = {"observed": departure.observed, "simulated": departure.simulated}
    return say("predictive.departure", columns=columns, **values)

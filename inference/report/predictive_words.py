"""Predictive checks in words: departures of the data, and their causes."""

from __future__ import annotations

from collections.abc import Sequence

from inference.fitting.record import FitRecord
from inference.predictive import LEAST_ROWS, Departure, PredictiveCheck
from inference.report.words import say

MOST_NAMED = 3  # of each kind
POINTS_TO = {
    "mean": (
        "Means that are off point to a fit that has not converged, or to a distribution that"
        " cannot have"
        " such values"
    ),
    "spread": (
        "Spreads that are off point to another distribution of the values, such as counts that"
        " vary more"
        " than Poisson counts do"
    ),
    "correlation": (
        "Correlations that are off point to too few latents, or to columns that depend on each"
        " other"
        " directly"
    ),
}
REMEDIES = {
    "mean": (
        "Let the fit run on with more starts; if the means stay off, try another distribution of"
        " the values."
    ),
    "spread": (
        "Try a distribution of the values with its own spread (NegativeBinomial for counts, a"
        " normal distribution with its own variance, Student t for tails)."
    ),
    "correlation": (
        "Try one latent, group or component more, and see whether the columns named in the"
        " predictive check still misfit."
    ),
}


def column_names(fit: FitRecord, check: PredictiveCheck) -> list[str]:
    """Return names of the columns compared: items, or categories but the first."""
    names: list[str] = []
    for item in fit.item_names:
        names += (
            [f"{item} = {category}" for category in fit.category_names[item][1:]]
            if item in fit.category_names
            else [item]
        )
    size = check.observed.shape[1]
    return names if len(names) == size else [str(j) for j in range(size)]


def departures_in_words(check: PredictiveCheck, names: Sequence[str]) -> str:
    """Departures in words, with numbers and likely causes.

    Args:
        check: of data and simulations.
        names: of its columns.
    """
    if len(check.observed) < LEAST_ROWS:
        return say("predictive.few_rows", LEAST_ROWS=LEAST_ROWS)
    found = check.departures()
    if not found:
        columns = (
            "its mean and its spread"
            if check.observed.shape[1] == 1
            else "means, spreads and correlations of all columns"
        )
        return f"No misfit found: {columns} are as in data simulated from the fit."
    words = []
    for what, points_to in POINTS_TO.items():
        own = [departure for departure in found if departure.what == what]
        if own:
            more = f", and {len(own) - MOST_NAMED:,} more" if len(own) > MOST_NAMED else ""
            named = "; ".join(_in_words(departure, names) for departure in own[:MOST_NAMED])
            words.append(f"The fit does not reproduce the {what} of {named}{more}. {points_to}.")
    return " ".join(words)


def remedy_of(found: Sequence[Departure]) -> str:
    """First remedy to try; "" without departures."""
    return next(
        (
            remedy
            for what, remedy in REMEDIES.items()
            if any(departure.what == what for departure in found)
        ),
        "",
    )


def _in_words(departure: Departure, names: Sequence[str]) -> str:
    columns = " with ".join(names[j] for j in departure.columns)
    return say(
        "predictive.departure",
        columns=columns,
        observed=departure.observed,
        simulated=departure.simulated,
    )

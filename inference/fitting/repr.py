"""Short representation of a fit at a prompt and in a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppl_models.data.items import OpenItems
from ppl_models.parts.repr import counted, listed, shown_settings

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


MOST_SITES = 4


def facts_of(fit: FitRecord) -> list[tuple[str, str]]:
    """Main facts of a fit, by name."""
    facts = [
        ("model", shown_settings(fit.model)),
        ("data", _data(fit)),
        *([("columns", taken)] if (taken := columns_in_words(fit)) else []),
        ("latents", _latents(fit)),
        *([("labels", told)] if (told := labels_in_words(fit)) else []),
        *([("fixed", held)] if (held := fixed_in_words(fit)) else []),
        *([("tied", listed(fit.tied, MOST_SITES))] if fit.tied else []),
        ("engine", f"{shown_settings(fit.method)}: {course_of(fit)}"),
        (
            "log-likelihood" if fit.structure.relative_to is None else "log-likelihood ratio",
            f"{_number(fit.log_likelihood)}{error_in_words(fit)}{_given(fit)}",
        ),
        _size(fit),
    ]
    if fit.quadrature is not None:
        facts.append(("integrals", fit.quadrature.in_words()))
    if fit.renamed is not None:
        facts.append(("labels", fit.renamed))
    if fit.restarts.optimum is not None and fit.restarts.num_ended > 1:
        facts.append(
            (
                "starts",
                (
                    f"the best optimum was reached by {fit.restarts.num_reached} of"
                    f" {fit.restarts.num_ended}"
                ),
            )
        )
    if fit.warnings:
        facts.append(("warnings", f"{len(fit.warnings)}, read them in fit.warnings"))
    return facts


def fixed_in_words(fit: FitRecord) -> str:
    """Known entries of parameters, as ``weights (1 of 3), loadings``, or ""."""
    found = []
    for name, value in (fit.fixed or {}).items():
        count, size = int((~value.isnan()).sum()), value.numel()
        found.append(name if count == size else f"{name} ({count:,} of {size:,})")
    return listed(found, MOST_SITES)


def labels_in_words(fit: FitRecord) -> str:
    """Rows whose latents were known, as ``semi-supervised: 40 of 1,000 rows labelled``, or ""."""
    if not fit.labels:
        return ""
    masks = [(table != table[..., :1]).any(-1) for table in fit.labels.values()]
    some = sum(int(mask.reshape(len(mask), -1).any(-1).sum()) for mask in masks)
    places = sum(int(mask.sum()) for mask in masks)
    kind = "supervised" if all(bool(mask.all()) for mask in masks) else "semi-supervised"
    steps = f", {counted(places, 'label')}" if places != some else ""
    doubt = f", {fit.label_error:.2g} of labels taken to be wrong" if fit.label_error else ""
    unit = "sequence" if has_sequences(fit) else "row"
    return f"{kind}: {some:,} of {counted(fit.num_rows, unit)} labelled{steps}{doubt}"


def _size(fit: FitRecord) -> tuple[str, str]:
    """BIC, or the quantity that was maximised where BIC does not apply."""
    if fit.why_no_criteria is None:
        return "BIC", f"{_number(fit.bic)}, {counted(fit.num_parameters, 'free parameter')}"
    return "objective", f"{fit.objective:.5g}, {fit.objective_name} (BIC and AIC do not apply)"


def rows_in_words(fit: FitRecord) -> str:
    """Number of rows, or of sequences and time points, in words."""
    if not has_sequences(fit):
        return f"{counted(fit.num_rows, 'row')}{_weights(fit)}"
    points = counted(int(fit.num_observations or fit.num_rows), "time point")
    return (
        f"1 sequence of {points}"
        if fit.num_rows == 1
        else f"{counted(fit.num_rows, 'sequence')}, {points} in all"
    )


def read_in_words(fit: FitRecord) -> str:
    """Columns of other names that say which row, sequence or step it is, in brackets, or ""."""
    found = (fit.read_as or {}).items()
    told = [
        f"named by {name!r}" if place == "row" else f"{place} by {name!r}"
        for place, name in found
        if place != name
    ]
    return f" ({listed(told)})" if told else ""


def has_sequences(fit: FitRecord) -> bool:
    """Tell whether the rows are sequences of steps."""
    return bool(fit.structure.row_columns)


def _data(fit: FitRecord) -> str:
    if has_sequences(fit) or not fit.item_names:
        return f"{rows_in_words(fit)}{read_in_words(fit)}"
    return (
        f"{counted(fit.num_rows, 'row')} of {counted(len(fit.item_names), 'column')}{_weights(fit)}"
        f"{read_in_words(fit)}"
    )


def columns_in_words(fit: FitRecord) -> str:
    """Kinds that the columns were taken for; "" where the model leaves no choice."""
    model = fit.model
    return model.taken_for(fit.item_names) if isinstance(model, OpenItems) else ""


def _weights(fit: FitRecord) -> str:
    return (
        ""
        if fit.row_weights is None
        else f" whose weights add up to {float(fit.row_weights.sum()):,.6g}"
    )


def _latents(fit: FitRecord) -> str:
    sites = [f"{name} ({_values(sizes)})" for name, sizes in (fit.latents or {}).items()]
    shared = (fit.shared_latents or {}).items()
    sites += [f"{name} ({_values(sizes, 'in all')}, shared by all rows)" for name, sizes in shared]
    sites += [f"{label.name}" for label in fit.structure.labels() if not fit.latents]
    dims = getattr(fit.model, "site_dims", {}).items()
    sites += [site for site, own in dims if own == ("step", "option") and site not in sites]
    continuous = [*(fit.local or {}), *fit.structure.integrated_sites]
    sites += [f"{name} (continuous)" for name in dict.fromkeys(continuous)]
    return listed(sites, MOST_SITES) or "none"


def _values(sizes: tuple[int, ...], where: str = "in a row") -> str:
    count, num_values = sizes
    if num_values == 2 and count > 1:
        return f"{count} bits"
    return f"{num_values} values" + (f", {count} {where}" if count > 1 else "")


def course_of(fit: FitRecord) -> str:
    """Course of a fit in words: iterations, or chains and draws."""
    if fit.draws is not None:
        chains, draws = next(iter(fit.draws.values())).shape[:2]
        return (
            f"{counted(chains, 'chain')} of {counted(draws, 'draw')},"
            f" {'stopped by on_iteration, ' if fit.stopped else ''}"
            f"{'converged' if fit.converged else 'not converged'}"
        )
    if fit.stopped:
        return f"stopped by on_iteration after {counted(fit.num_iterations, 'iteration')}"
    if fit.converged:
        return f"converged after {counted(fit.num_iterations, 'iteration')}"
    return f"did not converge in {counted(fit.num_iterations, 'iteration')}"


def _given(fit: FitRecord) -> str:
    if fit.structure.relative_to is not None:
        return f" (to {fit.structure.relative_to})"
    if fit.labels:
        return " (of data and labels)"
    return (
        f" (given {' and '.join(fit.structure.local_sites)})" if fit.structure.local_sites else ""
    )


def error_in_words(fit: FitRecord) -> str:
    """Standard error of an estimated log-likelihood; "" of an exact one."""
    error = fit.log_likelihood_error
    return "" if error is None else f" (by sampling, standard error {error:,.2g})"


def _number(value: float) -> str:
    return f"{value:,.2f}" if math.isfinite(value) else "not known"

"""Scores of rows: derivatives of their log-likelihoods at an estimate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from inference.base.covariates import SITE
from inference.base.hashing import digest_of
from inference.base.streaming.row_blocks import RowBlocks
from inference.base.structure import unseen_chances
from inference.fitting.columns import as_fitted, observed_sites
from inference.fitting.posterior import simulate_rows
from inference.fitting.record import FitRecord
from inference.fitting.same_data import refuse_other_rows
from inference.programs.coordinates import Coordinates
from inference.programs.curvature import data_chunks, minus_second_derivatives
from inference.programs.data import checked
from inference.programs.labelled import Labelled
from inference.programs.program import Program
from ppl_models.data.tables import first_tensor
from ppl_models.parts.repr import listed

T = TypeVar("T")
# entries up to which derivatives are worked out unasked: one of the likelihood each
MOST_PARAMETERS = 200
MOST_WORK = 2e7  # rows times entries, likewise
# logarithm of numbers times rows times configurations of latents, up to which standard errors are
# worked out unasked
MOST_BITS = 29
LEAST_DRAWN = 2000  # rows, or steps of sequences, drawn to judge the model by
DRAWN_EACH = 10  # of them for each entry, at least
MOST_SIDE_BY_SIDE = 2**24  # numbers of sequences, times entries, that one backward pass takes
LEAST_ROWS_EACH = 2  # of sequences, for each entry


def rows_of_fit(fit: FitRecord, data: Any) -> Any:
    """Rows of a fit under its columns; rows in blocks as they are.

    :func:`programs_of` makes the sums of blocks block by block.

    Raises:
        ValueError: for another number of rows than the fit has.
    """
    if isinstance(data, RowBlocks) and data.processes.size > 1:
        raise ValueError(
            "standard_errors: all rows were expected, got those of one process of several: give"
            " RowBlocks.of(source) without group, in one process"
        )
    data = data if isinstance(data, RowBlocks) else as_fitted(fit, data)
    refuse_other_rows("standard_errors", fit, data)
    return data


def programs_of(fit: FitRecord, data: Any) -> Iterator[Program]:
    """Program on consecutive rows, in double precision; block by block for rows in blocks.

    Of a fit with labels with these, so that errors are those of the likelihood of both.
    """
    first = 0
    for part in data if isinstance(data, RowBlocks) else [data]:
        for program in data_chunks(fit.model, as_fitted(fit, part)):
            if fit.labels is None:
                yield program
                continue
            begin = first
            first += len(first_tensor(program.args[0])) if program.is_own else fit.num_rows
            if first > fit.num_rows:
                raise ValueError(
                    f"data: the {fit.num_rows:,} rows of the fit were expected, whose labels it"
                    " holds, got more"
                )
            tables = {site: table[begin:first].double() for site, table in fit.labels.items()}
            yield Program(Labelled(fit.model, tables), *program.args)


def row_scores(
    fit: FitRecord, data: Any, hold_bounds: bool = False, with_labels: bool = False
) -> tuple[Tensor, tuple[str, ...]]:
    """Derivative of each row's log-likelihood at the estimate, (N, P), and the P names.

    Of the data alone, or of data and labels where the rows are those of the fit.

    Coordinates: probabilities on the logit scale, positive numbers on the log scale, probability
    vectors as log-ratios to their last entry (the largest where the last is as good as zero),
    coefficients as of standardised covariates, all others as they are; entries that are exactly
    zero are held, and with ``hold_bounds`` those on a bound too.
    """
    coordinates = coordinates_of(fit, data)
    coordinates = coordinates.without(coordinates.at_bound()) if hold_bounds else coordinates
    return scores_along(fit, data, coordinates, with_labels), coordinates.names


def remembered(
    fit: FitRecord, data: Any, coordinates: Coordinates, kind: str, ask: Callable[[], T]
) -> T:
    """Return a cached result for these rows: pages ask for the same matrix many times.

    The fit remembers the last of each kind, under the contents of its estimate and of the rows;
    nothing of rows in blocks, which are not read for that.
    """
    if isinstance(data, RowBlocks):
        return ask()
    try:
        about = digest_of((coordinates.names, fit.params, fit.row_weights, data), "the data")
    except ValueError:  # contents that cannot be read
        return ask()
    if fit.remembered.get(kind, ("",))[0] != about:
        fit.remembered[kind] = about, ask()
    found: T = fit.remembered[kind][1]
    return found


def scores_of_drawn(fit: FitRecord, rows: Any, coordinates: Coordinates) -> Tensor:
    """Scores (N, P) of rows drawn from a fit, as standard errors and the verdict ask for."""
    ask = partial(scores_along, fit, rows, coordinates)
    return remembered(fit, rows, coordinates, "drawn", ask)


def scores_along(
    fit: FitRecord, data: Any, coordinates: Coordinates, with_labels: bool = False
) -> Tensor:
    """Scores of the rows in given coordinates, (N, P), of the data alone or with their labels."""
    parts, free = [], coordinates.vector()
    programs = data_chunks(fit.model, as_fitted(fit, data))
    for program in programs_of(fit, data) if with_labels else programs:
        scores = derivatives(program, coordinates, free, "scores")[1]
        assert scores is not None  # the kind asks for them
        parts.append(scores)
    return torch.cat(parts)


def coordinates_of(fit: FitRecord, data: Any) -> Coordinates:
    """Free coordinates of a point estimate."""
    if fit.draws is not None:
        raise ValueError(
            "standard_errors: a point estimate was expected, got posterior draws; their spread is"
            " their own"
        )
    program = next(programs_of(fit, data))
    params = {name: value.double() for name, value in fit.params.items()}
    tensors = None if isinstance(data, RowBlocks) else checked(fit.model, as_fitted(fit, data))[0]
    unseen = None if tensors is None else unseen_chances(fit.structure, tensors)
    known = fit.structure.covariates
    covariates = None if known is None else {SITE: known}
    return Coordinates.of(program, params, unseen, fit.fixed, fit.tied, covariates)


def derivatives(
    program: Program, coordinates: Coordinates, free: Tensor, kind: str, often: Tensor | None = None
) -> tuple[int, Tensor | None, Tensor | None]:
    """Number of rows, scores (N, P) and minus the Hessian (P, P), as ``kind`` asks.

    ``often`` says how often each row counts in the Hessian, (N,) or more, of which the first N are
    meant; None for once.
    """
    free = free.detach().clone().requires_grad_()
    scores = hessian = None
    with torch.enable_grad():
        rows = program.log_marginal_rows(coordinates.params(free))
        if rows.dim() != 1:
            raise ValueError(
                "standard_errors: a program of independent rows in one plate was expected, and the"
                " log-likelihood of this one is no sum over such rows: Laplace() and NUTS() give"
                " intervals"
            )
        if kind != "hessian":
            # linear in the weights; of a sum, because torch imports sympy for given cotangents
            weights = torch.ones_like(rows, requires_grad=True)
            (gradient,) = torch.autograd.grad((rows * weights).sum(), free, create_graph=True)
            scores = _derivatives_side_by_side(gradient, weights, program)
            if scores is None:
                columns = [
                    torch.autograd.grad(entry, weights, retain_graph=True)[0] for entry in gradient
                ]
                scores = torch.stack(columns, -1) if columns else weights[:, None].detach()[:, :0]
        if kind != "scores":
            hessian = minus_second_derivatives(
                (rows if often is None else rows * often[: len(rows)]).sum(), free
            )
    return len(rows), scores, hessian


def _derivatives_side_by_side(gradient: Tensor, weights: Tensor, program: Program) -> Tensor | None:
    """Derivatives (N, P) of P numbers in one backward pass; None where that takes no less time.

    It does for sequences, whose many small operations take longer to begin than to work out.
    """
    data = first_tensor(program.args[0]) if program.args else None
    if data is None or data.dim() < 3 or data.numel() * len(gradient) > MOST_SIDE_BY_SIDE:
        return None
    every = torch.eye(len(gradient), dtype=gradient.dtype, device=gradient.device)
    try:
        (found,) = torch.autograd.grad(
            gradient, weights, every, retain_graph=True, is_grads_batched=True
        )
    except RuntimeError:  # an operation that torch cannot run for several at a time
        return None
    return found.mT


def simulated_data(fit: FitRecord, num_rows: int, seed: int, like: Any = None) -> Tensor:
    """Rows of the observed site drawn from the fit, (num_rows, J), at covariates as ``like``'s."""
    if like is not None and fit.structure.covariates is not None:
        beside = _rows_beside(fit, like, num_rows, seed)
        if beside is not None:
            return beside[:num_rows]
    drawn = simulate_rows(fit, num_rows, seed)
    others = {*fit.params, *(fit.local or ()), *(fit.latents or ()), *(fit.shared_latents or ())}
    observed = observed_sites(fit, like) or tuple(site for site in drawn if site not in others)
    if len(observed) != 1:
        raise ValueError(
            f"data: the rows of the fit were expected, for {type(fit.model).__name__} draws"
            f" {listed(map(repr, observed), 6) or 'none'}, and one site of rows tells what to draw"
        )
    return drawn[observed[0]]


def rows_like(fit: FitRecord, data: Any, seed: int = 0) -> Tensor:
    """Rows drawn from the fit, enough to judge its distribution by their scores.

    They have the covariates and the length of those of the data where these belong to the rows.
    """
    size = sum(value.numel() for value in fit.params.values())
    steps = (
        max(1.0, (fit.num_observations or fit.num_rows) / fit.num_rows)
        if fit.structure.row_columns
        else 1.0
    )
    num_rows = max(LEAST_ROWS_EACH * size, math.ceil(max(LEAST_DRAWN, DRAWN_EACH * size) / steps))
    work = size * num_rows * steps
    if size > MOST_PARAMETERS or work > MOST_WORK or math.log2(work) + latent_bits(fit) > MOST_BITS:
        raise ValueError(
            f"rows_like: {num_rows:,} rows for {size:,} entries, over all values of a row's"
            " latents, would take a while"
        )
    beside = _rows_beside(fit, data, num_rows, seed)
    return simulated_data(fit, num_rows, seed, data) if beside is None else beside


def _rows_beside(fit: FitRecord, data: Any, num_rows: int, seed: int) -> Tensor | None:
    """At least so many rows at the covariates of ``data``; None where rows have nothing of it."""
    data = as_fitted(fit, data)
    table = checked(fit.model, data)[0]
    if isinstance(table, Tensor) and table.layout == torch.strided and len(table) < num_rows:
        data = torch.cat([table] * math.ceil(num_rows / len(table)))  # all in one go
    parts: list[Tensor] = []
    while not parts or sum(map(len, parts)) < num_rows:
        drawn = fit.structure.simulate_like(fit.params, data, seed + len(parts))
        if drawn is None:
            return None
        (part,) = drawn.values()
        parts.append(part)
    return torch.cat(parts)


def latent_bits(fit: FitRecord) -> float:
    """Logarithm (base 2) of a row's latent configurations; chains sum state by state."""
    if fit.structure.row_columns:
        return 0.0
    return max(
        (count * math.log2(values) for count, values in (fit.latents or {}).values()), default=0.0
    )

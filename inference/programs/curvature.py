"""Second derivatives of log-densities of programs, and the covariance that an information stands for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from inference.programs.data import checked, checks_data, first_tensor, map_tensors
from inference.programs.program import Program

__all__ = ["Undetermined", "data_chunks", "generalised_inverse", "inverse_information", "minus_hessian", "refuse_flat", "some_names"]


LEAST_SHARE = 0.75  # of the log-likelihood in the curvature of the log-posterior, where rows are silent
FLAT = 1e-8  # eigenvalues of the information scaled to unit diagonal, where singular is no refusal
UPWARD = 1e-5  # likewise, of a negative one
SINGULAR = 1e-9  # eigenvalues of the information scaled to unit diagonal
SHOWN = 0.1
MOST_NAMES = 8
CHUNK_ELEMENTS = 2**21


def data_chunks(model: Callable[..., Any], data: Any) -> Iterator[Program]:
    """The program on consecutive rows, in double precision."""
    tensors = map_tensors(lambda x: x.double() if x.is_floating_point() else x, checked(model, data)[0])
    program = Program(model, tensors)
    if not checks_data(model):
        yield program
        return
    values = max([1, *(site.num_values or 1 for site in program.sites)])
    size = max(1, CHUNK_ELEMENTS // values)
    for start in range(0, len(first_tensor(tensors)), size):
        yield program.with_data(map_tensors(operator.itemgetter(slice(start, start + size)), tensors))


def minus_hessian(function: Callable[[Tensor], Tensor], free: Tensor) -> Tensor:
    """Minus the second derivatives of a scalar function of a vector (P,), (P, P)."""
    free = free.detach().clone().requires_grad_()
    with torch.enable_grad():
        return minus_second_derivatives(function(free), free)


def minus_second_derivatives(value: Tensor, free: Tensor) -> Tensor:
    if not value.requires_grad:  # a constant, such as a flat density
        return free.new_zeros(len(free), len(free)).detach()
    (gradient,) = torch.autograd.grad(value, free, create_graph=True)
    if not gradient.requires_grad:  # a linear function
        return gradient.new_zeros(len(free), len(free))
    lines = [torch.autograd.grad(entry, free, retain_graph=True)[0] for entry in gradient]
    hessian = -torch.stack(lines)
    return (hessian + hessian.mT) / 2


class Undetermined(ValueError):
    """The likelihood is flat, or bent the wrong way, in some direction from the estimate."""


def inverse_information(information: Tensor, names: tuple[str, ...], caller: str = "standard_errors") -> Tensor:
    """The covariance that an information (P, P) stands for, or a ValueError that names what it does not determine."""
    if not torch.isfinite(information).all():
        bad = [names[i] for i in (~torch.isfinite(information)).any(0).nonzero().ravel().tolist()]
        raise ValueError(f"{caller}: the information is not finite for {some_names(bad)}")
    diagonal = information.diagonal()
    silent = [names[i] for i in (diagonal <= 0).nonzero().ravel().tolist()]
    if silent:
        raise Undetermined(
            f"{caller}: the log-likelihood does not curve down in {some_names(silent)}: the data do not determine them, "
            "or the fit is not at a maximum"
        )
    scale = diagonal.sqrt()
    values, vectors = torch.linalg.eigh(information / scale / scale[:, None])
    weak = (values <= SINGULAR * values[-1]).nonzero().ravel()
    if len(weak):
        raise Undetermined(
            f"{caller}: the information is singular or not positive (least scaled eigenvalue "
            f"{float(values[0]):.2g}) along {_involved(names, vectors[:, weak])}: these are confounded, or the fit is not at a maximum"
        )
    return (vectors / values) @ vectors.mT / scale / scale[:, None]


def generalised_inverse(information: Tensor, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """A generalised inverse of an information (P, P), and its flat directions (P, F), along which the data say nothing.

    Raises:
        ValueError: where the information is clearly negative, so that the estimate is no maximum.
    """
    scale = information.diagonal().clamp(min=0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    values, vectors = torch.linalg.eigh(information / torch.outer(scale, scale))
    if float(values[0]) < -UPWARD * float(values[-1]):
        place = int(vectors[:, 0].abs().argmax())
        raise ValueError(
            f"the log-likelihood curves up along {names[place]}: the estimate is not at a maximum; fit again with a smaller tolerance or more starts"
        )
    kept = values > FLAT * values[-1]
    vectors = vectors / scale.unsqueeze(-1)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].mT, vectors[:, ~kept]


def refuse_flat(
    scores: Tensor, information: Tensor, prior: Tensor, names: tuple[str, ...], caller: str = "standard_errors"
) -> None:
    """Refuse directions along which no row says anything, where a prior would speak alone.

    Along such a direction the score of every row is zero. The log-likelihood's curvature there need not be: away from its maximum, where
    the prior has moved the estimate to, a ridge may be bent. On the other hand equal items that separate have no score apart either, but a
    curvature that is several times the prior's; these stay.

    Args:
        scores: the sum of squared scores of the rows, (P, P).
        information: minus the second derivatives of the log-likelihood, (P, P); prior: those of the log-prior.

    Raises:
        ValueError: naming the entries along such a direction.
    """
    scale = (information + prior).diagonal().clamp(min=torch.finfo(scores.dtype).tiny).sqrt()
    try:
        values, vectors = torch.linalg.eigh(scores / scale / scale[:, None])
    except torch.linalg.LinAlgError as error:
        raise ValueError(f"{caller}: the scores of the rows cannot be worked with ({error}): standardise the columns, or see whether the fit converged") from error
    vectors = vectors[:, values <= SINGULAR * values[-1]]
    own, weight = (vectors.mT @ (part / scale / scale[:, None]) @ vectors for part in (information, prior))
    shares, turns = torch.linalg.eigh(own - LEAST_SHARE * (own + weight))
    vectors = vectors @ turns
    flat = (shares < 0).nonzero().ravel()
    if len(flat):
        raise Undetermined(
            f"{caller}: the information in the data is singular along {_involved(names, vectors[:, flat])}: the data do not determine them, and the "
            "prior alone would be reported"
        )


def _involved(names: tuple[str, ...], directions: Tensor) -> str:
    """The parameters that take part in some directions (P, F), the largest part first."""
    size = directions.abs().amax(1)
    return some_names([names[int(i)] for i in size.argsort(descending=True) if float(size[i]) > SHOWN * float(size.max())])


def some_names(names: tuple[str, ...] | list[str]) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"

"""Second derivatives of log-densities of programs, and the covariance that an information stands for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from inference.programs.data import checked, checks_data, first_tensor, map_tensors
from inference.programs.program import Program

__all__ = ["data_chunks", "inverse_information", "minus_hessian", "some_names"]


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
    (gradient,) = torch.autograd.grad(value, free, create_graph=True)
    if not gradient.requires_grad:  # a linear function
        return gradient.new_zeros(len(free), len(free))
    lines = [torch.autograd.grad(entry, free, retain_graph=True)[0] for entry in gradient]
    hessian = -torch.stack(lines)
    return (hessian + hessian.mT) / 2


def inverse_information(information: Tensor, names: tuple[str, ...], caller: str = "standard_errors") -> Tensor:
    """The covariance that an information (P, P) stands for, or a ValueError that names what it does not determine."""
    if not torch.isfinite(information).all():
        bad = [names[i] for i in (~torch.isfinite(information)).any(0).nonzero().ravel().tolist()]
        raise ValueError(f"{caller}: the information is not finite for {some_names(bad)}")
    diagonal = information.diagonal()
    silent = [names[i] for i in (diagonal <= 0).nonzero().ravel().tolist()]
    if silent:
        raise ValueError(
            f"{caller}: the log-likelihood does not curve down in {some_names(silent)}: the data do not determine them, "
            "or the fit is not at a maximum"
        )
    scale = diagonal.sqrt()
    values, vectors = torch.linalg.eigh(information / scale / scale[:, None])
    weak = (values <= SINGULAR * values[-1]).nonzero().ravel()
    if len(weak):
        size = vectors[:, weak].abs().amax(1)
        order = size.argsort(descending=True)
        involved = [names[int(i)] for i in order if float(size[i]) > SHOWN * float(size.max())]
        raise ValueError(
            f"{caller}: the information is singular or not positive (least scaled eigenvalue "
            f"{float(values[0]):.2g}) along {some_names(involved)}: these are confounded, or the fit is not at a maximum"
        )
    return (vectors / values) @ vectors.mT / scale / scale[:, None]


def some_names(names: tuple[str, ...] | list[str]) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"

r"""Second derivatives of log-densities, and the covariance that an information gives.

Newton's method for the expected log-density of a program, every restart on its own.

The second derivatives of such a density are nearly empty: the mean of one state meets its own
spread and nothing else. Coordinates that share no row of the matrix are differentiated together
(Curtis, Powell and Reid 1974, doi:10.1093/imamat/13.1.117), so that few products of the matrix with
a vector hold all of it. Where the matrix is not negative definite its eigenvalues are taken by
their size, which leaves saddles behind. Between two looks at second derivatives, which are dear,
what gradients say of them is filled in. A step is shortened until the value rises by a share of
what its slope promises, so the value never falls; and where few steps do not lead to an end, as far
from it or at a kink, the caller is told.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.programs.data import checked
from inference.programs.program import Program
from ppl_models.data.tables import checks_data, first_tensor, map_tensors
from ppl_models.parts.repr import listed

LEAST_SHARE = (
    0.75  # of the log-likelihood in the curvature of the log-posterior, where rows are silent
)
FLAT = 1e-8  # eigenvalues of the information scaled to unit diagonal, where singular is no refusal
UPWARD = 1e-5  # likewise, of a negative one
SINGULAR = 1e-9  # eigenvalues of the information scaled to unit diagonal
SHOWN, MOST_ENTRIES = 0.1, 8  # share of the largest part of a direction; of entries by name
CHUNK_ELEMENTS = 2**21


def data_chunks(model: Callable[..., Any], data: Any) -> Iterator[Program]:
    """Iterate over the program on consecutive rows, in double precision."""
    tensors = map_tensors(
        lambda x: x.double() if x.is_floating_point() else x, checked(model, data)[0]
    )
    program = Program(model, tensors)
    if not checks_data(model):
        yield program
        return
    values = max([1, *(site.num_values or 1 for site in program.sites)])
    size = max(1, CHUNK_ELEMENTS // values)
    for start in range(0, len(first_tensor(tensors)), size):
        yield program.with_data(
            map_tensors(operator.itemgetter(slice(start, start + size)), tensors)
        )


def minus_hessian(function: Callable[[Tensor], Tensor], free: Tensor) -> Tensor:
    """Minus the second derivatives of a scalar function of a vector (P,), (P, P)."""
    free = free.detach().clone().requires_grad_()
    with torch.enable_grad():
        return minus_second_derivatives(function(free), free)


def minus_second_derivatives(value: Tensor, free: Tensor) -> Tensor:
    """Minus the Hessian of a scalar, (P, P)."""
    if not value.requires_grad or not len(free):  # a constant, or nothing to derive by
        return free.new_zeros(len(free), len(free)).detach()
    (gradient,) = torch.autograd.grad(value, free, create_graph=True)
    if not gradient.requires_grad:  # a linear function
        return gradient.new_zeros(len(free), len(free))
    lines = [torch.autograd.grad(entry, free, retain_graph=True)[0] for entry in gradient]
    hessian = -torch.stack(lines)
    return (hessian + hessian.mT) / 2


class Undetermined(ValueError):
    """Error: the likelihood is flat, or not concave, in some direction."""


def eigen_of(matrix: Tensor, caller: str, what: str = "the information") -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and eigenvectors of a symmetric matrix.

    Raises:
        ValueError: naming ``what`` the matrix is, where it has entries that are not finite or no
            eigenvalues are found.
    """
    try:
        if bool(torch.isfinite(matrix).all()):
            values, vectors = torch.linalg.eigh(matrix)
            return values, vectors
        words = "is not finite"
    except torch.linalg.LinAlgError:
        words = "is too ill-conditioned for its eigenvalues to be found"
    raise ValueError(
        f"{caller}: {what} {words}: standardise the columns, or see whether the fit converged"
    )


def inverse_information(
    information: Tensor, names: tuple[str, ...], caller: str = "standard_errors"
) -> Tensor:
    """Covariance of an information (P, P), or a ValueError naming what is undetermined."""
    if not torch.isfinite(information).all():
        bad = [names[i] for i in (~torch.isfinite(information)).any(0).nonzero().ravel().tolist()]
        raise ValueError(f"{caller}: the information is not finite for {listed(bad)}")
    diagonal = information.diagonal()
    silent = [names[i] for i in (diagonal <= 0).nonzero().ravel().tolist()]
    if silent:
        raise Undetermined(
            f"{caller}: the log-likelihood does not curve down in {listed(silent)}: the data do"
            " not determine them, or the fit is not at a maximum"
        )
    scale = diagonal.sqrt()
    values, vectors = eigen_of(information / scale / scale[:, None], caller)
    weak = (values <= SINGULAR * values[-1]).nonzero().ravel()
    if len(weak):
        raise Undetermined(
            f"{caller}: the information is singular or not positive (least scaled eigenvalue"
            f" {float(values[0]):.2g}) along {involved(names, vectors[:, weak])}: these are"
            " confounded, or the fit is not at a maximum"
        )
    return (vectors / values) @ vectors.mT / scale / scale[:, None]


def generalised_inverse(information: Tensor, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Generalised inverse of an information (P, P), and its flat directions (P, F).

    Raises:
        ValueError: where the information is clearly negative, so that the estimate is no maximum.
    """
    if not names:  # every parameter is known
        return information, information
    scale = information.diagonal().clamp(min=0).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    values, vectors = eigen_of(information / torch.outer(scale, scale), "check_information")
    if float(values[0]) < -UPWARD * float(values[-1]):
        place = int(vectors[:, 0].abs().argmax())
        raise ValueError(
            f"the log-likelihood curves up along {names[place]}: the estimate is not at a maximum;"
            " fit again with a smaller tolerance or more starts"
        )
    kept = values > FLAT * values[-1]
    vectors = vectors / scale.unsqueeze(-1)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].mT, vectors[:, ~kept]


def refuse_flat(
    scores: Tensor,
    information: Tensor,
    prior: Tensor,
    names: tuple[str, ...],
    caller: str = "standard_errors",
) -> Tensor:
    """Refuse directions along which no row says anything, where a prior would speak alone.

    Along such a direction the score of every row is zero. The log-likelihood's curvature there need
    not be: away from its maximum, where the prior has moved the estimate to, a ridge may be bent.
    On the other hand equal items that separate have no score apart either, but a curvature that is
    several times the prior's; these stay.

    Args:
        scores: the sum of squared scores of the rows, (P, P).
        information: minus the second derivatives of the log-likelihood, (P, P); prior: those of the
            log-prior.

    Returns:
        The directions without a score that stay, (P, F), whose curvature is that of the likelihood.

    Raises:
        ValueError: naming the entries along such a direction.
    """
    scale = (information + prior).diagonal().clamp(min=torch.finfo(scores.dtype).tiny).sqrt()
    values, vectors = eigen_of(
        scores / scale / scale[:, None], caller, "the sum of squared scores of the rows"
    )
    vectors = vectors[:, values <= SINGULAR * values[-1]]
    likelihood_part, prior_part = (
        vectors.mT @ (part / scale / scale[:, None]) @ vectors for part in (information, prior)
    )
    shares, turns = eigen_of(likelihood_part - LEAST_SHARE * (likelihood_part + prior_part), caller)
    vectors = vectors @ turns
    flat = (shares < 0).nonzero().ravel()
    if len(flat):
        raise Undetermined(
            f"{caller}: the information in the data is singular along"
            f" {involved(names, vectors[:, flat])}: the data do not determine them, and the prior"
            " alone would be reported"
        )
    return vectors / scale.unsqueeze(-1)


def involved(names: tuple[str, ...], directions: Tensor) -> str:
    """Names of the parameters in some directions (P, F), the largest part first; sites of many."""
    size = directions.abs().amax(1)
    entries = [
        names[int(i)]
        for i in size.argsort(descending=True)
        if float(size[i]) > SHOWN * float(size.max())
    ]
    if len(entries) <= MOST_ENTRIES:
        return listed(entries)
    sites = list(dict.fromkeys(entry.partition("[")[0] for entry in entries))
    return f"{len(entries)} entries of {listed(sites)}"


# ---------------------------------------------------------------- Newton's method


Gradient = Callable[[Tensor], tuple[Tensor, Tensor]]
Derivatives = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

MET = 1e-10  # of the geometric mean of two diagonal entries, above which two coordinates meet
REFRESH = 5  # evaluations of which one takes second derivatives
SHARE = 1e-6  # of the gain so far, below which a step is not worth taking
NOTHING = 16.0  # units in the last place of the value, which no step can be seen to gain
PROMISE = 1e-4  # share of the slope's promise that a step must keep
SHORTER = 0.25
LEAST_EIGENVALUE = 1e-9  # of a matrix scaled to unit diagonal


@dataclass(frozen=True, eq=False)
class Colouring:
    """Colouring of coordinates by the sparsity of second derivatives.

    Args:
        pattern: (P, P) bool, symmetric.
        colours: (P,), from 0.
        reach: how far each coordinate may move in one step, (P,).
    """

    pattern: Tensor
    colours: Tensor
    reach: Tensor

    @classmethod
    def of(cls, curvatures: Tensor, reach: Tensor) -> Colouring:
        """Build the colouring from second derivatives at some points, (S, P, P)."""
        size = curvatures.abs()
        scale = size.diagonal(dim1=-2, dim2=-1).sqrt()
        met = (size > MET * scale.unsqueeze(-1) * scale.unsqueeze(-2)) & (size > 0)
        pattern = (
            met.any(0)
            | met.any(0).mT
            | torch.eye(size.shape[-1], dtype=torch.bool, device=size.device)
        )
        clash = (pattern.double() @ pattern.double() > 0).cpu()
        colours = torch.zeros(len(clash), dtype=torch.long)
        for i in range(1, len(clash)):
            taken = set(colours[:i][clash[i, :i]].tolist())
            colours[i] = next(c for c in range(i + 1) if c not in taken)
        return cls(pattern, colours.to(size.device), reach)

    @property
    def seeds(self) -> Tensor:
        """Seed vectors of the matrix products, (colours, P), ones and zeros."""
        return torch.nn.functional.one_hot(self.colours).mT

    def matrix(self, products: Tensor) -> Tensor:
        """Recover matrices (R, P, P) from products with the seeds, (colours, R, P)."""
        matrix = products[self.colours].movedim(0, -1) * self.pattern
        return (matrix + matrix.mT) / 2


def climb(
    first: Gradient,
    second: Derivatives,
    start: Tensor,
    reach: Tensor,
    most: int,
    refresh: int = REFRESH,
    share: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Newton ascent from a start, (R, P), until a further step would gain next to nothing.

    Args:
        first: value (R,) and gradient (R, P).
        second: the same and second derivatives (R, P, P).
        start: where the value is finite.
        reach: how far each coordinate may move in one step, (P,).
        most: evaluations after that of the start.
        refresh: evaluations of which one takes second derivatives.
        share: of the gain so far, below which a step is not worth taking; ``SHARE`` if None.

    Returns:
        The end (R, P), whose value is not below that of the start, and which restarts have arrived,
        bool (R,).
    """
    at, share = start, SHARE if share is None else share
    value, slope, curvature = second(at)
    began, inverse = value, _inverse(curvature)
    step, promise, lost = _step(inverse, slope, reach)
    for count in range(1, most + 2):
        seen = NOTHING * torch.finfo(value.dtype).eps * value.abs().clamp(min=1.0)
        going = lost > torch.maximum(seen, share * (value - began))
        if count > most or not bool(going.any()):
            break
        trial = torch.where(going.unsqueeze(1), at + step, at)
        if count % refresh:
            (new, new_slope), new_inverse = first(trial), None
        else:
            new, new_slope, curvature = second(trial)
            new_inverse = _inverse(curvature)
        taken = (
            going
            & new.isfinite()
            & (new >= value + torch.where(promise > 1e3 * seen, PROMISE * promise, -seen))
        )
        if new_inverse is None:
            new_inverse = _updated(inverse, step, slope - new_slope)
        next_step, next_promise, next_lost = _step(new_inverse, new_slope, reach)
        rows = taken.unsqueeze(1)
        at, value, slope = (
            torch.where(rows, trial, at),
            torch.where(taken, new, value),
            torch.where(rows, new_slope, slope),
        )
        inverse = torch.where(rows.unsqueeze(1), new_inverse, inverse)
        step, promise = (
            torch.where(rows, next_step, SHORTER * step),
            torch.where(taken, next_promise, SHORTER * promise),
        )
        lost = torch.where(taken, next_lost, lost)
    return at, ~going


def _step(inverse: Tensor, slope: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Newton step (R, P), the gain its slope promises, and that of the uncut step, (R,)."""
    step = (inverse @ slope.nan_to_num(posinf=0.0, neginf=0.0).unsqueeze(-1)).squeeze(-1)
    lost = (step * slope).sum(-1)
    share = 1 / (step.abs() / reach).amax(-1).clamp(min=1.0)
    return step * share.unsqueeze(-1), lost * share, lost


def _inverse(curvature: Tensor) -> Tensor:
    """Inverse of minus the Hessian, negative eigenvalues by their size, (R, P, P)."""
    scale = curvature.diagonal(dim1=-2, dim2=-1).abs()
    scale = torch.where((scale > 0) & scale.isfinite(), scale, 1.0).rsqrt()
    scale = scale.unsqueeze(-1) * scale.unsqueeze(-2)
    bend = (-curvature * scale).nan_to_num(posinf=0.0, neginf=0.0)
    factor, failed = torch.linalg.cholesky_ex(bend)
    weak = (failed > 0) | ~(factor.diagonal(dim1=-2, dim2=-1).amin(-1) >= LEAST_EIGENVALUE**0.5)
    inverse = torch.cholesky_inverse(
        torch.where(
            weak[:, None, None],
            torch.eye(bend.shape[-1], dtype=bend.dtype, device=bend.device),
            factor,
        )
    )
    if bool(weak.any()):
        values, vectors = torch.linalg.eigh(bend[weak])
        inverse[weak] = (
            vectors / values.abs().clamp(min=LEAST_EIGENVALUE).unsqueeze(-2)
        ) @ vectors.mT
    return inverse * scale


def _updated(inverse: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Update by Broyden, Fletcher, Goldfarb and Shanno where the curve goes downwards."""
    along = (step * change).sum(-1)
    bent = along > torch.finfo(step.dtype).eps * step.norm(dim=-1) * change.norm(dim=-1)
    share = torch.where(bent, along, 1.0).reciprocal()[:, None, None]
    left = torch.eye(step.shape[-1], dtype=step.dtype, device=step.device) - share * step.unsqueeze(
        -1
    ) * change.unsqueeze(-2)
    return torch.where(
        bent[:, None, None],
        left @ inverse @ left.mT + share * step.unsqueeze(-1) * step.unsqueeze(-2),
        inverse,
    )

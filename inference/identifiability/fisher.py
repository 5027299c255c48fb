r"""Local identification: rank and conditioning of the Fisher information at an estimate.

With scores :math:`s(x) = \partial \log p(x; \theta) / \partial \theta` the Fisher information is
:math:`F = E[s s^\top]`. A direction v with :math:`F v = 0` has :math:`v^\top s(x) = 0` for all x:
to first order the distribution does not change along it. Parameters have units, so F is first
scaled to a unit diagonal; the eigenvalues of the scaled F add up to the number of parameters, 1
each where no two parameters are confounded.

What this says is local: about a neighbourhood of the estimate, not about other labels of the
latents or solutions far away. A model can satisfy every condition of
:mod:`inference.identifiability.check` and still be badly conditioned here, and that is what limits
how well N rows determine it.

Source: T. J. Rothenberg (1971), Identification in parametric models, doi:10.2307/1913267.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ppl_models.parts.repr import counted, listed, shows_briefly

JACOBIAN_ZERO = 1e-8  # singular values, relative to the largest
# eigenvalues, relative to the largest: below it, and below the widest gap, is zero
SCORE_ZERO = 1e-8
SCORE_GAP = 1e4  # a gap between consecutive eigenvalues
SILENT = 1e-12  # a column this small beside the largest carries no information
FAINT = 1e-4  # eigenvalue of the scaled information, below which a direction is hardly determined
SHOWN = 0.1  # entries of a direction worth naming, relative to its largest


@shows_briefly
@dataclass(frozen=True, eq=False)
class Direction:
    """A direction in which the parameters are confounded, or nearly so.

    Args:
        eigenvalue: of the scaled information; 0 for a null direction.
        coefficients: (P,), in the units of the parameters, the largest of the scaled ones set to 1
            in those.
        scaled: (P,), in units of each parameter's own standard error were the others known; largest
            entry 1.
        names: the parameters with a scaled entry of at least a tenth, largest first.
    """

    eigenvalue: float
    coefficients: Tensor
    scaled: Tensor
    names: tuple[str, ...]


@shows_briefly
@dataclass(frozen=True, eq=False)
class InformationReport:
    """Rank and conditioning of the Fisher information.

    Args:
        names: (P,), of the free parameters.
        rank: number of directions with information.
        eigenvalues: (P,), of the information scaled to unit diagonal, rising; 0 where there is
            none.
        condition_number: largest over smallest eigenvalue; infinite if the rank is deficient.
        null_directions: a basis of the directions without information, each with few parameters.
        weakest: the direction of the smallest positive eigenvalue.
        involvement: (P,), in [0, 1]: the share of each parameter (scaled) that lies in the null
            directions.
        num_rows: rows the scores were taken from; None for a Jacobian.
        is_simulated: whether these rows were drawn from the fit.
    """

    names: tuple[str, ...]
    rank: int
    eigenvalues: Tensor
    condition_number: float
    null_directions: tuple[Direction, ...]
    weakest: Direction | None
    involvement: Tensor
    num_rows: int | None
    is_simulated: bool = field(default=False, metadata={"since": "0.2"})

    @property
    def num_parameters(self) -> int:
        """P."""
        return len(self.names)

    @property
    def is_full_rank(self) -> bool:
        """Full rank of the information: the parameters are locally identified."""
        return self.rank == self.num_parameters

    @property
    def is_faint(self) -> bool:
        """Full rank, with a direction in which the distribution all but stays the same."""
        return self.is_full_rank and self.weakest is not None and self.weakest.eigenvalue < FAINT

    @property
    def verdict(self) -> str:
        """Verdict: "local" by the rank, "nearly open" if hardly, or "not identified"."""
        if not self.is_full_rank:
            return "not identified"
        return "nearly open" if self.is_faint else "local"

    def text(self) -> str:
        """The report in words."""
        rows = "simulated row" if self.is_simulated else "row"
        source = (
            "" if self.num_rows is None else f", from the scores of {counted(self.num_rows, rows)}"
        )
        if self.is_full_rank:
            lines = [
                "The parameters are hardly identified locally: along the weakest direction the"
                " distribution of the data all but stays the same."
                if self.is_faint
                else "The parameters are locally identified: no small change of them leaves the"
                " distribution of the data as it is.",
                f"Fisher information: full rank, {self.rank} of {self.num_parameters}"
                f" parameters{source}.",
            ]
        else:
            lines = [
                f"Fisher information: rank {self.rank} of {self.num_parameters}{source}: not"
                f" locally identified, {self.num_parameters - self.rank} direction(s) leave the"
                " distribution unchanged:"
            ]
            lines += [f"  {listed(direction.names)}" for direction in self.null_directions]
        if self.weakest is not None:
            lines.append(
                f"Weakest direction with information: {listed(self.weakest.names)}; its eigenvalue"
                f" is {self.weakest.eigenvalue:.3g}, where 1 means not confounded."
            )
        if self.is_full_rank:
            lines.append(f"Condition number: {self.condition_number:.3g}.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "num_parameters": self.num_parameters,
            "rank": self.rank,
            "is_full_rank": self.is_full_rank,
            "is_faint": self.is_faint,
            "eigenvalues": self.eigenvalues.tolist(),
            "condition_number": self.condition_number if self.is_full_rank else None,
            "null_directions": [
                _entries(direction, self.names) for direction in self.null_directions
            ],
            "weakest": None if self.weakest is None else _entries(self.weakest, self.names),
            "num_rows": self.num_rows,
            "text": self.text(),
        }


def information_from_scores(scores: Tensor, names: Sequence[str]) -> InformationReport:
    r"""Rank and conditioning from scores of simulated rows, :math:`\hat F = S^\top S / M`.

    The rank is where the eigenvalues fall by more than 1e4 from one to the next and below 1e-8 of
    the largest; where there is no such gap it is full, and the smallest eigenvalue says how nearly
    it is not.

    Args:
        scores: (M, P), one row a simulated row; M at least P, better 10 P and 2,000.
        names: P names of the free parameters; see :func:`entry_names`.
    """
    _check("scores", scores, names)
    num_rows = len(scores)
    if num_rows < len(names):
        raise ValueError(
            f"information_from_scores: at least {len(names)} rows (one a parameter) were expected,"
            f" got {num_rows}"
        )
    return _report(scores.detach().to(torch.float64), names, num_rows)


def information_from_jacobian(
    jacobian: Tensor, names: Sequence[str], probabilities: Tensor | None = None
) -> InformationReport:
    r"""Rank and conditioning from the Jacobian of all cell probabilities; exact.

    With cells of probability p the information is :math:`F = J^\top \mathrm{diag}(1/p) J`. Singular
    values below 1e-8 of the largest are zero.

    Args:
        jacobian: (num_cells, P), derivatives of the cell probabilities, or of any statistics that
            determine the distribution.
        names: P names of the free parameters.
        probabilities: (num_cells,), positive; None for the Jacobian as it is (same rank, another
            conditioning).
    """
    _check("jacobian", jacobian, names)
    rows = jacobian.detach().to(torch.float64)
    if probabilities is not None:
        is_positive = (torch.isfinite(probabilities) & (probabilities > 0)).all()
        if probabilities.shape != rows.shape[:1] or not is_positive:
            raise ValueError(
                f"information_from_jacobian: probabilities must be {len(rows)} positive numbers,"
                f" one a cell, got shape {tuple(probabilities.shape)}"
            )
        rows = rows / probabilities.detach().to(rows).sqrt()[:, None]
    return _report(rows, names, None)


def _report(rows: Tensor, names: Sequence[str], num_rows: int | None) -> InformationReport:
    """From a matrix (Q, P) whose Gram matrix is the information, up to a factor."""
    num_parameters = rows.shape[1]
    norms = rows.norm(dim=0)
    silent = norms <= SILENT * norms.max()
    scale = torch.where(silent, torch.ones_like(norms), norms)
    scaled = torch.where(silent, torch.zeros_like(rows), rows / scale)
    _, singular, vectors = torch.linalg.svd(scaled, full_matrices=False)
    if len(vectors) < num_parameters:  # fewer cells than parameters: the rest of the basis
        _, _, vectors = torch.linalg.svd(scaled, full_matrices=True)
        singular = torch.cat([singular, singular.new_zeros(num_parameters - len(singular))])
    rank = _rank(singular, is_exact=num_rows is None)
    eigenvalues = singular.square()
    eigenvalues[rank:] = 0.0
    null = vectors[rank:].mT  # (P, P - rank)
    directions = tuple(_direction(0.0, column, scale, names) for column in _sparse_basis(null).mT)
    weakest, condition = None, float("inf")
    if rank:
        weakest = _direction(float(eigenvalues[rank - 1]), vectors[rank - 1], scale, names)
    if rank == num_parameters:
        condition = float(eigenvalues[0] / eigenvalues[-1])
    involvement, rising = null.square().sum(1), eigenvalues.flip(0)
    return InformationReport(
        tuple(names), rank, rising, condition, directions, weakest, involvement, num_rows
    )


def _rank(singular: Tensor, is_exact: bool) -> int:
    """Number of falling singular values that are not zero."""
    largest = float(singular[0])
    if largest == 0:
        return 0
    relative = singular / largest
    if is_exact:
        return int((relative > JACOBIAN_ZERO).sum())
    eigenvalues = relative.square().clamp(min=torch.finfo(relative.dtype).eps ** 2)
    ratios = eigenvalues[:-1] / eigenvalues[1:]
    ratios = torch.where(eigenvalues[1:] < SCORE_ZERO, ratios, torch.zeros_like(ratios))
    if len(ratios) == 0 or float(ratios.max()) < SCORE_GAP:
        return len(singular)
    return int(ratios.argmax()) + 1


def _sparse_basis(null: Tensor) -> Tensor:
    """Basis (P, n) of the same space in which each column has a parameter of its own."""
    if null.shape[1] == 0:
        return null
    from scipy.linalg import qr

    _, _, order = qr(null.mT.cpu().numpy(), pivoting=True, mode="economic")
    own = torch.as_tensor(order[: null.shape[1]].copy(), dtype=torch.long, device=null.device)
    basis = torch.linalg.solve(null[own], null, left=False)
    return torch.where(basis.abs() > JACOBIAN_ZERO, basis, torch.zeros_like(basis))


def _direction(eigenvalue: float, vector: Tensor, scale: Tensor, names: Sequence[str]) -> Direction:
    place = int(vector.abs().argmax())
    scaled = vector / vector[place]
    coefficients = scaled / scale
    order = scaled.abs().argsort(descending=True, stable=True)
    chosen = tuple(names[int(i)] for i in order if float(scaled[i].abs()) >= SHOWN)
    return Direction(eigenvalue, coefficients / coefficients[place], scaled, chosen)


def _check(argument: str, value: Tensor, names: Sequence[str]) -> None:
    if value.dim() != 2 or value.shape[1] != len(names) or 0 in value.shape:
        raise ValueError(
            f"{argument} must have shape (rows, {len(names)}), one column a name, got"
            f" {tuple(value.shape)}"
        )
    if not torch.isfinite(value).all():
        column = int((~torch.isfinite(value)).any(0).nonzero()[0])
        raise ValueError(f"{argument} must be finite, got another value for {names[column]}")


def _entries(direction: Direction, names: Sequence[str]) -> dict[str, Any]:
    values = dict(zip(names, direction.coefficients.tolist(), strict=True))
    return {
        "eigenvalue": direction.eigenvalue,
        "coefficients": {name: values[name] for name in direction.names},
    }

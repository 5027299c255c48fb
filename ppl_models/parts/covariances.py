r"""Covariances of normal components by volume, shape and orientation.

.. math:: \Sigma_k = v_k \, D_k \, \mathrm{diag}(a_k) \, D_k^\top, \qquad \prod_j a_{kj} = 1,

with a volume :math:`v_k > 0`, a shape :math:`a_k` and an orientation :math:`D_k`, orthogonal. Three
letters say which of the three are equal (E) in all components or vary (V), or are those of the
identity (I): EII, VII, EEI, VEI, EVI, VVI, EEE, VEE, EVE, VVE, EEV, VEV, EVV, VVV.

Source: Celeux and Govaert (1995), doi:10.1016/0031-3203(94)00125-6, in the letters of Banfield and
Raftery (1993), doi:10.2307/2532201.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms

from ppl_models.parts.precisions import PositiveDefinite

FULL = "VVV"
NAMES = {"spherical": "VII", "diagonal": "VVI", "tied": "EEE", "full": FULL}
LETTERS = (
    *("EII", "VII", "EEI", "VEI", "EVI", "VVI"),
    *("EEE", "VEE", "EVE", "VVE", "EEV", "VEV", "EVV", FULL),
)
FREE_OF_UNITS = ("EEI", "VEI", "EVI", "VVI", "EEE", "VEE", "EVV", FULL)  # of single columns
NEAR = 1e-4  # share of a precision matrix's size by which it may miss its family


def letters_of(owner: str, covariance: Any) -> str:
    """Three letters of a family, given them or its everyday name.

    Raises:
        ValueError: for another name.
    """
    letters = NAMES.get(covariance, covariance) if isinstance(covariance, str) else None
    if letters not in LETTERS:
        raise ValueError(
            f"{owner}: covariance must be one of {', '.join(NAMES)}, or volume, shape and"
            f" orientation as one of {', '.join(LETTERS)}, got {covariance!r}"
        )
    return str(letters)


@dataclass(frozen=True)
class CovarianceFamily:
    """Family of K covariance matrices of J columns.

    Args:
        letters: volume, shape and orientation, each E, V or I.
        num_components: K; num_items: J.
    """

    letters: str
    num_components: int
    num_items: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Free numbers of volumes, shapes and orientations."""
        j = self.num_items
        each = 1, j - 1, j * (j - 1) // 2
        often = {"I": 0, "E": 1, "V": self.num_components}
        volumes, shapes, turns = (
            often[letter] * size for letter, size in zip(self.letters, each, strict=True)
        )
        return volumes, shapes, turns

    @property
    def num_free(self) -> int:
        """Number of free parameters of the covariances."""
        return sum(self.sizes)

    @property
    def equation(self) -> str:
        """Covariance of component k, with k on what varies: v_k D_k diag(a) D_kᵀ for VEV."""
        volume, shape, turn = ("_{k}" if letter == "V" else "" for letter in self.letters)
        if self.letters[1] == "I":
            return f"v{volume} I"
        inner = f"diag(a{shape})"
        around = inner if self.letters[2] == "I" else f"D{turn} {inner} D{turn}ᵀ"
        return f"v{volume} {around}"

    def parts(self, precisions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Volumes (\*, K), shapes (\*, K, J) and orientations (\*, K, J, J) of precisions.

        Where all components share an orientation, it is read off a sum of all precisions with
        weights of no simple ratio, whose directions are those of each.
        """
        if self.letters[2] == "I":
            turns = torch.eye(self.num_items).to(precisions).expand_as(precisions)
        elif self.letters[2] == "V":
            turns = torch.linalg.eigh(precisions).eigenvectors
        else:
            size = torch.linalg.slogdet(precisions).logabsdet.div(-self.num_items).exp()
            weights = (torch.arange(1.0, self.num_components + 1) * 0.6180339887).frac() + 0.5
            total = (precisions * (weights.to(size) * size)[..., None, None]).sum(-3, keepdim=True)
            turns = torch.linalg.eigh(total).eigenvectors.expand_as(precisions)
        widths = widths_along(turns, precisions).reciprocal()
        volumes = widths.log().mean(-1).exp()
        return volumes, widths / volumes.unsqueeze(-1), turns


def widths_along(turns: Tensor, matrices: Tensor) -> Tensor:
    r"""Diagonals of :math:`D^\top M D`, (\*, K, J)."""
    return ((turns.mT @ matrices).mT * turns).sum(-2)


def precisions_of(volumes: Tensor, shapes: Tensor, turns: Tensor) -> Tensor:
    r"""Precisions (\*, K, J, J) of volumes, shapes and orientations."""
    return (turns / (volumes.unsqueeze(-1) * shapes).unsqueeze(-2)) @ turns.mT


class InFamily(constraints.Constraint):
    """Constraint of K precision matrices that are one family's.

    Args:
        family: of their inverses.
    """

    event_dim = 3

    def __init__(self, family: CovarianceFamily) -> None:
        self.family = family
        super().__init__()

    def __repr__(self) -> str:
        return f"precisions of the covariance family {self.family.letters}"

    def check(self, value: Tensor) -> Tensor:
        """Check definiteness of each matrix, and of all whether the family holds them."""
        proper = PositiveDefinite(self.family.num_items).check(value)
        safe = torch.where(proper[..., None, None], value, torch.eye(value.shape[-1]).to(value))
        move = FamilyCoordinates(self.family)
        off = (move(move.inv(safe)) - safe).flatten(-2).norm(dim=-1)
        return (proper & (off <= NEAR * safe.flatten(-2).norm(dim=-1))).all(-1)


class FamilyCoordinates(transforms.Transform):
    r"""Transform of free vectors to the K precision matrices of a family.

    In order: :math:`\log v`; all but the last of :math:`\log a`, of each shape; and of each
    orientation the J (J - 1) / 2 entries of a skew-symmetric S below its diagonal, :math:`D = (I -
    S) (I + S)^{-1}` (Cayley). Densities of precisions are said with respect to these coordinates,
    for a family with less than J (J + 1) / 2 free numbers a matrix has no volume among matrices.

    Args:
        family: of the covariances.
    """

    bijective = True
    domain = constraints.real_vector

    def __init__(self, family: CovarianceFamily) -> None:
        super().__init__()
        self.family, self.codomain = family, InFamily(family)

    def _call(self, x: Tensor) -> Tensor:
        j, k = self.family.num_items, self.family.num_components
        logs, ratios, skews = x.split(self.family.sizes, -1)
        batch = x.shape[:-1]
        volumes = logs.exp().expand(*batch, k)
        shapes = x.new_ones(*batch, k, j)
        if ratios.shape[-1]:
            first = ratios.reshape(*batch, -1, j - 1)
            shapes = torch.cat([first, -first.sum(-1, keepdim=True)], -1).exp().expand_as(shapes)
        eye = torch.eye(j).to(x)
        turns = eye.expand(*batch, k, j, j)
        if skews.shape[-1]:
            rows, columns = torch.tril_indices(j, j, -1)
            entries = skews.reshape(*batch, -1, len(rows))
            lower = x.new_zeros(*entries.shape[:-1], j, j)
            lower[..., rows, columns] = entries
            skew = lower - lower.mT
            turns = torch.linalg.solve(eye + skew, eye - skew).expand_as(turns)
        return precisions_of(volumes, shapes, turns)

    def _inverse(self, y: Tensor) -> Tensor:
        j, letters = self.family.num_items, self.family.letters
        volumes, shapes, turns = self.family.parts(y)
        parts = [(volumes if letters[0] == "V" else volumes[..., :1]).log()]
        if letters[1] != "I":
            own = shapes if letters[1] == "V" else shapes[..., :1, :]
            parts.append(own[..., :-1].log().flatten(-2))
        if letters[2] != "I":
            own = _near_identity(turns if letters[2] == "V" else turns[..., :1, :, :])
            eye = torch.eye(j).to(y)
            skew = torch.linalg.solve(eye + own, eye - own)
            rows, columns = torch.tril_indices(j, j, -1)
            parts.append(skew[..., rows, columns].flatten(-2))
        return torch.cat(parts, -1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + torch.Size(
            [self.family.num_components, self.family.num_items, self.family.num_items]
        )

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-3] + torch.Size([self.family.num_free])


def _near_identity(turns: Tensor) -> Tensor:
    """Rotations of the same axes, their signs chosen as near the identity as that allows."""
    diagonal = turns.diagonal(dim1=-2, dim2=-1)
    signs = torch.where(diagonal < 0, -1.0, 1.0).to(turns)
    is_reflection = torch.linalg.det(turns) * signs.prod(-1) < 0
    least = torch.nn.functional.one_hot(diagonal.abs().argmin(-1), turns.shape[-1])
    signs = torch.where(is_reflection.unsqueeze(-1), signs * (1 - 2 * least), signs)
    return turns * signs.unsqueeze(-2)


@biject_to.register(InFamily)
@transform_to.register(InFamily)
def _biject_to_family(constraint: InFamily) -> transforms.Transform:
    return FamilyCoordinates(constraint.family)


class FamilyPrecisions(dist.TorchDistribution):
    r"""Prior of the K precision matrices of a family, (K, J, J).

    .. math:: p(\Lambda) \propto \exp\{-\tfrac{1}{2} \textstyle\sum_k \mathrm{tr}(R \Lambda_k)\}

    with respect to the family's coordinates (:class:`FamilyCoordinates`), which is improper; R is
    the diagonal of a ridge. It is the factor of a Wishart prior with J + 1 degrees of freedom and
    inverse scale R, so that estimates are those of the scatter matrices plus R.

    Args:
        family: of the covariances; ridge: R, (J,).
    """

    has_rsample = True
    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, family: CovarianceFamily, ridge: Tensor, validate_args: bool | None = None
    ) -> None:
        self.family, self.ridge = family, ridge
        shape = torch.Size([family.num_components, family.num_items, family.num_items])
        super().__init__(torch.Size(), shape, validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        return InFamily(self.family)

    def expand(self, batch_shape: Any, _instance: Any = None) -> dist.TorchDistribution:
        return self if not batch_shape else dist.ExpandedDistribution(self, batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        trace: Tensor = (self.ridge * value.diagonal(dim1=-2, dim2=-1)).sum((-2, -1))
        return -trace / 2

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:
        """Some precisions of the family, for starts: the prior itself has no distribution."""
        move = FamilyCoordinates(self.family)
        return move(torch.randn(*sample_shape, self.family.num_free).to(self.ridge))

"""Groups of overlapping components, merged by misclassification or by entropy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.parts.repr import shows_briefly

SEPARATED = 0.05  # chance of a wrong assignment from which two components are one group
CHECKED = 0.10  # the same, for being sure that components are groups


@shows_briefly
@dataclass(frozen=True, eq=False)
class Groups:
    r"""Groups that the components of a mixture make of the rows.

    Args:
        num_fitted: K, components of the fit.
        separated: components of each group, merged while one of a pair has a chance of at least 5 %
            to be taken for the other.
        clear: the same at 10 %.
        misclassified: :math:`q_{ij}`, the estimated chance that a row of component i is assigned to
            j, (K, K) (Hennig 2010, doi:10.1007/s11634-010-0058-3).
        entropies: number of groups -> entropy of the assignments, in nats, where at every step the
            pair is merged that saves most (Baudry, Raftery, Celeux, Lo and Gottardo 2010,
            doi:10.1198/jcgs.2010.08111). A last step that saves much says that there are more
            groups.
    """

    num_fitted: int
    separated: tuple[tuple[int, ...], ...]
    clear: tuple[tuple[int, ...], ...]
    misclassified: Tensor
    entropies: dict[int, float]

    @property
    def num_separated(self) -> int:
        """Groups at 5 %."""
        return len(self.separated)

    @property
    def num_clear(self) -> int:
        """Groups at 10 %."""
        return len(self.clear)


def groups_of(shares: Tensor) -> Groups:
    """Groups of a fit.

    Args:
        shares: responsibilities, (N, K).
    """
    entropies = {shares.shape[1]: entropy(shares)}
    merged = shares
    while merged.shape[1] > 1:
        merged = merged_by_entropy(merged, merged.shape[1] - 1)
        entropies[merged.shape[1]] = entropy(merged)
    return Groups(
        shares.shape[1],
        _merged(shares, SEPARATED),
        _merged(shares, CHECKED),
        misclassified(shares),
        entropies,
    )


def misclassified(shares: Tensor) -> Tensor:
    """Return the chance that a row of one component is assigned to another, (K, K)."""
    assigned = torch.nn.functional.one_hot(shares.argmax(-1), shares.shape[1]).to(shares)
    return shares.mT @ assigned / shares.sum(0).clamp(min=1e-300).unsqueeze(-1)


def entropy(shares: Tensor) -> float:
    """Return the entropy of the assignments of all rows, in nats."""
    return float(-torch.special.xlogy(shares, shares).sum())


def merged_by_entropy(shares: Tensor, num: int) -> Tensor:
    """Responsibilities of ``num`` groups, of which each merger saves most entropy, (N, num)."""
    while shares.shape[1] > num:
        each = torch.special.xlogy(shares, shares).sum(0)
        pairs = [(i, j) for i in range(shares.shape[1]) for j in range(i)]
        both = torch.stack([shares[:, i] + shares[:, j] for i, j in pairs])
        saved = torch.special.xlogy(both, both).sum(-1) - torch.stack(
            [each[i] + each[j] for i, j in pairs]
        )
        shares = _joined(shares, *pairs[int(saved.argmax())])
    return shares


def _merged(shares: Tensor, least: float) -> tuple[tuple[int, ...], ...]:
    groups: list[tuple[int, ...]] = [(k,) for k in range(shares.shape[1])]
    while len(groups) > 1:
        chances = misclassified(shares).fill_diagonal_(0)
        if float(chances.max()) < least:
            break
        i, j = sorted(divmod(int(chances.argmax()), len(groups)), reverse=True)
        shares = _joined(shares, i, j)
        groups[j] = (*groups[j], *groups.pop(i))
    return tuple(tuple(sorted(group)) for group in groups)


def _joined(shares: Tensor, i: int, j: int) -> Tensor:
    """Column i added to column j, which stands before it."""
    both = shares[:, i] + shares[:, j]
    kept = [both if k == j else shares[:, k] for k in range(shares.shape[1]) if k != i]
    return torch.stack(kept, -1)

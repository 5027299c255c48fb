r"""Identifiability of latent classes: the rank at the estimate, and a generic condition.

The probabilities of all cells (patterns of answers) are functions of the free parameters; at an
estimate these are locally determined if and only if their derivatives have full rank. As many cells
as free numbers are not enough: three classes of four yes-or-no items have 14 free numbers for 15
free cells, and rank 13 (Goodman 1974, doi:10.1093/biomet/61.2.215).

For almost all parameters K classes are determined, but for their names, if the items can be split
in three groups with

.. math:: \sum_{g = 1}^{3} \min\Big(K, \prod_{j \in g} C_j\Big) \ge 2 K + 2

(Allman, Matias and Rhodes 2009, doi:10.1214/09-AOS689). It is sufficient; where it fails nothing is
said. It speaks of classes whose tables are free.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inference.base.structure import Structure, threshold_labels
from inference.fitting.columns import with_names
from inference.fitting.posterior import log_likelihood_rows
from inference.fitting.record import FitRecord
from inference.identifiability.fisher import InformationReport, information_from_jacobian
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.identifiability.scores import MOST_PARAMETERS, row_scores
from inference.structures.mixture.structure import MixtureStructure
from inference.structures.mixture.tables import most_classes, table_too_small
from ppl_models.parts.repr import shows_briefly

MOST_CELLS = 4096


@shows_briefly
@dataclass(frozen=True, eq=False)
class LatentClassReport:
    """Identifiability of latent classes.

    Args:
        num_classes: K.
        groups: items of three groups under which the condition holds; () where there are none; None
            where it does not apply.
        information: rank of the derivatives of all cells at the estimate.
        num_free: free numbers of the model.
        sizes: categories of every item.
    """

    num_classes: int
    groups: tuple[tuple[str, ...], ...] | None
    information: InformationReport
    num_free: int
    sizes: tuple[int, ...]

    @property
    def num_cells(self) -> int:
        """Different rows of answers that there can be."""
        return math.prod(self.sizes)

    @property
    def is_too_small(self) -> bool:
        """Fewer free shares in the table of answers than free numbers in the model."""
        return self.num_free > self.num_cells - 1

    @property
    def rank(self) -> int:
        """Directions of the parameters that the distribution of the answers knows."""
        return self.information.rank

    @property
    def num_parameters(self) -> int:
        """Free numbers that were looked at; those on the end of their range are held."""
        return self.information.num_parameters

    @property
    def is_full_rank(self) -> bool:
        """Local identification of the estimate."""
        return self.information.is_full_rank

    @property
    def verdict(self) -> str:
        """Verdict: "generic" by the condition, "local" by the rank alone, or "not identified"."""
        if not self.is_full_rank:
            return "not identified"
        return "generic" if self.groups else "local"

    def why(self) -> str:
        """Why the classes are not determined, where they are not."""
        small = table_too_small(self.num_free, self.sizes)
        return (
            f"The answers do not determine these {self.num_classes} classes:"
            f" {f'{small} Of' if small else 'of'} {self.num_parameters} free numbers only"
            f" {self.rank} can be learned, however many rows there are. Other classes describe the"
            " data exactly as well, so in these directions the estimates are arbitrary, and errors"
            " mean nothing."
        )

    def remedy(self) -> str:
        """Advice where the classes are not determined."""
        most = f" (by that count at most {most_classes(self.sizes)} from these items)"
        return (
            f"Take fewer classes{most if self.is_too_small else ''}, or more items or categories."
        )

    def text(self) -> str:
        """The report in words."""
        found, lines = self.information, []
        if found.is_full_rank:
            one = self.num_classes == 1
            inside = f"{found.num_parameters} parameters"
            if found.num_parameters < self.num_free:
                inside += f" that lie inside their range, of {self.num_free},"
            lines.append(
                f"Near this estimate the answers {'hardly ' * found.is_faint}determine the"
                f" {'chances' if one else f'{self.num_classes} classes'}: every small change of"
                f" the {inside} changes how likely some pattern of answers is."
            )
            if found.weakest is not None:
                lines.append(f"Least sure: {', '.join(found.weakest.names[:6])}.")
        else:
            lines.append(f"{self.why()} {self.remedy()} What may change together:")
            lines += [f"  {', '.join(direction.names[:8])}" for direction in found.null_directions]
        source = "(Allman, Matias and Rhodes 2009, doi:10.1214/09-AOS689)"
        if self.groups:
            parts = "; ".join(", ".join(group) for group in self.groups)
            lines.append(
                "In general, for almost all classes that items like these could have, they are"
                f" determined but for their names {source}, by three groups of items: {parts}."
            )
        elif self.groups is not None:
            lines.append(
                "In general nothing is known: no three groups of the items are rich enough for"
                f" {self.num_classes} classes by a condition that suffices {source}."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        is_full_rank = self.is_full_rank
        return {
            "num_classes": self.num_classes,
            "num_free": self.num_free,
            "num_cells": self.num_cells,
            "is_full_rank": is_full_rank,
            "why": None if is_full_rank else self.why(),
            "remedy": None if is_full_rank else self.remedy(),
            "groups": None if self.groups is None else [list(group) for group in self.groups],
            "information": self.information.to_dict(),
            "text": self.text(),
        }


def check_latent_classes(
    fit: FitRecord, sizes: Sequence[int], free_tables: bool = True
) -> LatentClassReport | None:
    """Report of a fit of latent classes; None for too many cells or parameters.

    Args:
        fit: a point estimate; its items take the codes 0, ..., C_j - 1 and nothing else.
        sizes: C_j, (J,).
        free_tables: whether every class has a table of its own for every item, which the condition
            asks for.
    """
    size = sum(value.numel() for value in fit.params.values())
    if math.prod(sizes) > MOST_CELLS or size > MOST_PARAMETERS or fit.draws is not None:
        return None
    cells = torch.tensor(list(itertools.product(*map(range, sizes))), dtype=torch.float64)
    scores, names = row_scores(fit, cells, hold_bounds=True)
    if not names:
        return None
    chances = log_likelihood_rows(fit, cells).double().exp()
    information = information_from_jacobian(
        scores * chances.unsqueeze(-1),
        [with_names(fit, name) for name in names],
        chances.clamp(min=1e-300),
    )
    items = list(fit.item_names) or [str(j) for j in range(len(sizes))]
    k = len(fit.params["weights"])
    groups = three_groups(sizes, k) if free_tables and k > 1 else None
    own = None if groups is None else tuple(tuple(items[j] for j in group) for group in groups)
    return LatentClassReport(k, own, information, fit.num_parameters, tuple(sizes))


def three_groups(sizes: Sequence[int], num_classes: int) -> tuple[tuple[int, ...], ...]:
    """Places of the items in three groups for which the condition holds; () for none.

    Args:
        sizes: categories of each item.
        num_classes: K.
    """
    wanted = 2 * num_classes + 2
    # products, no larger than K
    reached: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {(1, 1, 1): ((), (), ())}
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        new = dict(reached)
        for products, groups in reached.items():
            for g in range(3):
                grown = tuple(
                    min(num_classes, p * sizes[j]) if h == g else p for h, p in enumerate(products)
                )
                order = sorted(range(3), key=lambda h, grown=grown: -grown[h])  # type: ignore[misc]
                members = tuple((*own, j) if h == g else own for h, own in enumerate(groups))
                new.setdefault(tuple(grown[h] for h in order), tuple(members[h] for h in order))
        reached = new
        for products, groups in reached.items():
            if sum(products) >= wanted:
                return tuple(tuple(sorted(group)) for group in groups)
    return ()


@report_of.register
def _(structure: MixtureStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    # cells of the answers alone say nothing of how covariates enter
    sizes = None if structure.regresses else structure.distribution.answers()
    found = (
        None
        if sizes is None
        else check_latent_classes(fit, sizes, not threshold_labels(structure, [""] * len(sizes)))
    )
    return found or report_of.dispatch(Structure)(structure, fit, data)

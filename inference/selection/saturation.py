r"""Saturation of independent classifiers: held-out cost by number of components.

The cost (negative cross total correlation) of a mixture of C components is :math:`\mathrm{KL}(P \|
P_C) - C^* \ge -C^*`, with :math:`C^*` the total correlation of the data. It falls with C while
components are missing, and stays once there are enough: the smallest C within one standard error of
the best is chosen, the difference taken row by row. One component is independence, whose cost is 0
for every row, so it needs no fit. The bound comes from a discriminator
(:mod:`inference.selection.discriminator`); it is a bound from below on :math:`C^*`, and so is
the held-out cost itself, and the larger of the two counts. Where the cost stays clearly above minus
that, something is missing that components do not mend: larger networks, or variates that depend on
each other inside components. Where it falls on and on without a knee, the latent may be continuous.
Components that overlap much bring less than a standard error though the rows show them: no fewer
are chosen than the rank of the joint distributions shows (:mod:`inference.selection.joint_rank`),
which needs no network.

Source: K. T. Matchev and P. Shyamsundar (2022), arXiv:2009.00131, section 4.3; rule of one standard
error: L. Breiman et al. (1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from inference.base.drawing import draw
from inference.base.frames import pd
from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import Method
from inference.fitting.fit import fit
from inference.fitting.result import Fit
from inference.inspection.classifiers import classifier_structure
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.selection.discriminator import Discriminator, TotalCorrelation, total_correlation
from inference.selection.joint_rank import FEWEST_ROWS, JointRank, joint_rank
from inference.structures.classifiers.train import on_rows
from ppl_models.data.tables import first_tensor, map_tensors
from ppl_models.networks import rows_of
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, is_integer


@shows_briefly
@dataclass(frozen=True, eq=False)
class Saturation:
    """Held-out cost by number of components.

    Args:
        chosen: the smallest number within one standard error of the best, or ``limit`` where that
            is more.
        sizes: numbers of components, rising, 1 first.
        costs: mean held-out cost a row, in nats; errors: their standard errors, (sizes,).
        behind: mean difference to the best number, row by row; behind_errors: its standard error, 0
            for the best.
        bound: of the total correlation of the data; None where it was not asked for.
        num_held_out: rows.
        fits: by number of components; none for 1.
        limit: components that the rank of the joint distributions shows at 95 % confidence; None
            below 100 rows.
    """

    chosen: int
    sizes: tuple[int, ...]
    costs: tuple[float, ...]
    errors: tuple[float, ...]
    behind: tuple[float, ...]
    behind_errors: tuple[float, ...]
    bound: TotalCorrelation | None
    num_held_out: int
    fits: dict[int, Fit] = field(default_factory=dict, repr=False)
    limit: JointRank | None = None

    @property
    def by_cost(self) -> int:
        """The smallest number of components within one standard error of the least cost."""
        return choose(self.sizes, self.behind, self.behind_errors)

    @property
    def is_short(self) -> bool:
        """More components shown than were tried, or a cost that falls to the end."""
        shown = self.limit is not None and self.limit.number > self.sizes[-1]
        return shown or (self.by_cost == self.sizes[-1] and len(self.sizes) > 1)

    @property
    def best(self) -> int:
        """The number of components with the least held-out cost."""
        return self.sizes[min(range(len(self.sizes)), key=self.costs.__getitem__)]

    @property
    def gap(self) -> float | None:
        """Cost of the chosen number above minus the total correlation; None without a bound.

        Zero or less: nothing is known to be missing.
        """
        if self.bound is None:
            return None
        return self.costs[self.sizes.index(self.chosen)] + self.bound.estimate

    @property
    def is_saturated(self) -> bool | None:
        """Cost within two standard errors of the bound.

        None without a bound, or where the fit shows more dependence than the discriminator did,
        which then says nothing.
        """
        if self.bound is None or self.gap is None:
            return None
        if self.bound.is_bound and self.gap < -2 * self.bound.error:
            return None
        error = math.hypot(self.errors[self.sizes.index(self.chosen)], self.bound.error)
        return self.gap <= 2 * error

    @property
    def table(self) -> pd.DataFrame:
        """One row a number of components."""
        columns = {
            "held_out_cost": self.costs,
            "standard_error": self.errors,
            "behind_best": self.behind,
            "behind_error": self.behind_errors,
            "chosen": [size == self.chosen for size in self.sizes],
        }
        return pd.DataFrame(columns, index=pd.Index(self.sizes, name="components"))

    def text(self) -> str:
        """The choice in words."""
        by_cost = self.by_cost
        place = self.sizes.index(by_cost)
        out = [
            f"{counted(by_cost, 'component')}: the smallest number whose"
            f" held-out cost ({self.costs[place]:.4f} nats a row, {self.num_held_out:,} rows) is"
            f" within one standard error of the best ({self.best}, {min(self.costs):.4f})."
        ]
        if self.limit is not None and self.limit.number > by_cost:
            chosen = f" {self.chosen} is chosen." if self.chosen > by_cost else ""
            out.append(self.limit.text() + chosen)
        elif self.chosen == 1:
            out.append("Nothing shows that the variates depend on each other at all.")
        if by_cost == self.sizes[-1] and len(self.sizes) > 1:
            out.append(
                "The cost was still falling at the largest number tried: try more; if it falls on"
                " without a knee, the latent may be continuous."
            )
        if self.bound is not None:
            kind = "is bounded from below by" if self.bound.is_bound else "is estimated at"
            out.append(
                f"The total correlation of the data {kind} {self.bound.estimate:.4f} (standard"
                f" error {self.bound.error:.4f})."
            )
            if self.is_saturated is None:
                out.append(
                    "The fit itself shows more dependence than the discriminator did, so the bound"
                    " says nothing here."
                )
            elif not self.is_saturated:
                out.append(
                    f"The cost stays {self.gap:.4f} above what the data allow: try larger networks"
                    " or more starts, and, if that does not help, look for variates that depend on"
                    " each other inside components (conditional_independence)."
                )
            else:
                out.append("The fit has reached it within its error: more components cannot help.")
        return " ".join(out)

    def plot(self, **settings: Any) -> Any:
        """Draw held-out cost and its bound; see :func:`inference.plots.plot_saturation`."""
        return draw("plot_saturation", self, **settings)


def choose_components(
    sizes: Sequence[int], costs: Sequence[Tensor]
) -> tuple[int, list[float], list[float]]:
    """Return the size by the rule of one standard error on row-wise costs, (N,) each.

    With how far every size is behind the best, and errors.
    """
    means = [float(cost.mean()) for cost in costs]
    best = min(range(len(sizes)), key=means.__getitem__)
    differences = [cost - costs[best] for cost in costs]
    behind = [float(d.mean()) for d in differences]
    errors = [float(d.std()) / math.sqrt(len(d)) for d in differences]
    return choose(sizes, behind, errors), behind, errors


def choose(sizes: Sequence[int], behind: Sequence[float], errors: Sequence[float]) -> int:
    """Return the smallest size no more behind the best than its standard error."""
    return min(
        size for size, mean, error in zip(sizes, behind, errors, strict=True) if mean <= error
    )


def saturation(
    family: Callable[[int], Any],
    data: Any,
    grid: Sequence[int] = (2, 3, 4, 5, 6),
    method: Method | None = None,
    num_restarts: int | None = None,
    held_out: float = 0.2,
    bound: bool | Discriminator = True,
    seed: Seed = 0,
    progress: bool = False,
) -> Saturation:
    """Choose the number of components of independent classifiers.

    Args:
        family: number of components -> model, such as ``lambda c: InClassNet((1, 1), c)``.
        data: the rows.
        grid: numbers to try, from 2; 1 is always among those compared.
        method: of every fit; see :func:`inference.fitting.fit`.
        num_restarts: of every fit.
        held_out: share of the rows that no fit sees.
        bound: whether to bound the total correlation of all rows, or settings of the discriminator.
        seed: of the split, the fits, and the discriminator.
        progress: show a bar on standard error.

    Raises:
        ValueError: for numbers below 2 or repeated, another kind of model, a share outside (0, 1),
            or missing entries where a bound is asked for; before any fit.
    """
    seed = as_seed("saturation", seed)
    owner = "saturation"
    sizes = sorted(grid)
    if not sizes or len(set(sizes)) < len(sizes) or not all(is_integer(size, 2) for size in sizes):
        raise ValueError(
            f"{owner}: grid must hold distinct numbers of components from 2 (one component needs no"
            f" fit), got {list(grid)!r}"
        )
    check_number(owner, "held_out", held_out, "lie in (0, 1)", above=0, below=1)
    if not isinstance(bound, bool | Discriminator):
        raise ValueError(f"{owner}: bound must be True, False or a Discriminator(), got {bound!r}")
    models = {size: family(size) for size in sizes}
    shapes = classifier_structure(owner, models[sizes[0]]).about.shapes
    rows = checked(models[sizes[0]], data)[0]
    num_rows = len(first_tensor(rows))
    num_held = max(2, round(held_out * num_rows))
    if num_rows - num_held < 2 * sizes[-1]:
        raise ValueError(
            f"{owner}: at least {2 * sizes[-1]} rows were expected besides the {num_held} held out,"
            f" got {num_rows - num_held}"
        )
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed))
    held, kept = _some(rows, order[:num_held]), _some(rows, order[num_held:])
    correlation, variates = None, [x.flatten(1) for x in rows_of(rows, shapes)]
    limit = joint_rank(variates, seed=seed) if num_rows >= FEWEST_ROWS else None
    if bound:
        correlation = total_correlation(
            variates,
            bound if isinstance(bound, Discriminator) else None,
            seed,
        )
    fits: dict[int, Fit] = {}
    costs = [torch.zeros(num_held, dtype=torch.float64)]
    with RichProgress("fits", len(sizes)) if progress else NoProgress() as bar:
        for size, model in models.items():
            with quiet():  # of sizes that are being compared
                own = on_rows(method, order[num_held:])
                fits[size] = fit(model, kept, own, num_restarts=num_restarts, seed=seed)
            costs.append(-fits[size].log_likelihood_rows(held).double())
            bar.update(len(fits), objective=fits[size].objective, active=len(sizes) - len(fits))
    tried = (1, *sizes)
    chosen, behind, behind_errors = choose_components(tried, costs)
    if limit is not None:
        chosen = min(
            (size for size in tried if size >= max(chosen, limit.number)), default=tried[-1]
        )
    errors = tuple(float(cost.std()) / math.sqrt(num_held) for cost in costs)
    means = tuple(float(cost.mean()) for cost in costs)
    return Saturation(
        chosen,
        tried,
        means,
        errors,
        tuple(behind),
        tuple(behind_errors),
        correlation,
        num_held,
        fits,
        limit,
    )


def _some(rows: Any, index: Tensor) -> Any:
    return map_tensors(lambda x: x[index], rows)

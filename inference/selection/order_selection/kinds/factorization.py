r"""Order selection of factorizations of counts, by two penalties and a check of the noise.

With L the log-likelihood of N x J counts given their activities, and e the number of dispersions,
two penalties,

.. math::
    S &= -2 L + K (J - 1) \log N + N K \log J + e \log(N J) \\
    E &= -2 L + K \tfrac43 (\sqrt N + \sqrt J)^2 + e \log(N J) .

Strict: a parameter pays the logarithm of the number of cells that it is read from (as Bai and Ng
2002, doi:10.1111/1468-0262.00273). Lenient: a component that is only noise gains at most about
:math:`(\sqrt N + \sqrt J)^2` in deviance, the squared largest singular value of unit noise, and
four thirds of that is where small singular values are best cut (Gavish and Donoho 2014,
doi:10.1109/TIT.2014.2323359). The number is that of the lenient penalty if the noise of every
component at it looks as the distribution says, by ACDC's discrepancies against tables simulated and
fitted again; else no number is right, and cells left out of the fits decide, by the first
distribution, for it does not reward patches of noise.

A climb from the strict choice :math:`K_1`, which takes longer, gives a further number: components
are added while one gains more than in tables without it. B tables are drawn from the fit of
:math:`K_1` components and fitted again with :math:`K_1` and with :math:`K_1 + 1`; with :math:`g_0`
the mean gain in deviance of the superfluous component, and :math:`g(K)` that of the data's K-th,

.. math:: \hat K = \min \{ K \ge K_1 : g(K + 1) < 1.4 \, g_0 \} .

What noise alone gains is taken from these tables and not from the edge of a matrix of unit noise,
below which it lies where activities are sparse: the parametric bootstrap of a likelihood ratio
(McLachlan 1987, doi:10.2307/2347790), whose mean is read off instead of a tail, for B is small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.acdc.criterion import drawn_like
from inference.base.structure import Problem, conditional_log_likelihoods
from inference.fitting.result import Fit
from inference.programs.program import Params
from inference.selection.order_selection.counting import (
    CLEAR,
    FEW_ROWS,
    LARGEST,
    Candidate,
    Counting,
    Fits,
    Grid,
    Key,
    Place,
    counting_of,
    fit_candidates,
    lead_of,
    misfit_of,
    rows_of,
    status_of,
)
from inference.selection.order_selection.detectability import (
    LENIENT,
    MISFIT,
    detectable_variance,
    noise_edge,
    smallest_share,
)
from inference.selection.order_selection.result import STEEPER, Climb, HowMany
from inference.structures.factorization.factorize import Factorize
from inference.structures.factorization.starts import nndsvd
from inference.structures.factorization.structure import FactorizationStructure

LEFT_OUT = 0.15  # share of the cells
SHARES_OF_ROWS = (0.05, 0.2, 1.0)


@counting_of.register
def _(structure: FactorizationStructure) -> Counting:
    return CountingTerms()


class CountingTerms(Counting):
    """Order selection of the terms of a factorization of counts."""

    method = Factorize()
    contained = 1.0  # the limit of a dispersion may lie below its interval
    takes_bootstrap = True

    def describe(self, structure: FactorizationStructure) -> tuple[str, int, Any]:
        """Return the distribution of the counts."""
        variance = structure.about.variance
        if variance is None:
            return "Poisson", 0, None
        return f"negative binomial with {variance} variance", 1, None

    def room(self, shape: tuple[int, ...]) -> int:
        """Return the rank that the table can have."""
        return min(shape) if len(shape) == 2 else LARGEST[-1]

    def num_random(self, candidate: Candidate, num_restarts: int) -> int:
        """Return a third of the starts: the first candidate's fit is one too."""
        return max(1, num_restarts // 3)  # it starts at the first's fit too

    def rank(self, fit: Fit) -> float:
        """Return the log-likelihood."""
        return fit.log_likelihood

    def starts(self, problem: Problem, place: Place) -> Params:
        """Return the first candidate's factors, the smaller fit grown, and random starts."""
        given = [_factors(place.nested[place.k])] if place.nested else []
        smaller = place.smaller
        if smaller is not None:
            given.append(grown(smaller, place.grid.table))
            # what is left over falls from number to number: a dispersion falls from the last one's
            settled = {n: v[None] for n, v in smaller.params.items() if n == "dispersion"}
            given = [start | settled for start in given]
        drawn = problem.structure.start(problem, "spectral", place.num_random)
        assert drawn is not None
        return {
            name: torch.cat([*(start.get(name, value[:1]) for start in given), value])
            for name, value in drawn.items()
        }

    def answer(self, grid: Grid, fits: Fits) -> HowMany:
        """Return the number of terms by the two penalties."""
        first, largest = grid.candidates[0], grid.sizes[-1]
        n, j = grid.table.shape
        edge = noise_edge(n, j)
        strict = _penalised(grid, fits, (j - 1) * math.log(n) + n * math.log(j))
        lenient = _penalised(grid, fits, LENIENT * edge)
        strict_distribution, k1 = min(strict, key=strict.__getitem__)
        lenient_distribution, k2 = min(lenient, key=lenient.__getitem__)
        gain = {
            (distribution, k): 2
            * (fit_k.log_likelihood - fits[distribution, k - 1].log_likelihood)
            / edge
            for (distribution, k), fit_k in fits.items()
            if (distribution, k - 1) in fits
        }
        climb = None
        if grid.bootstrap and k1 < largest:
            source = next(
                candidate for candidate in grid.candidates if candidate.name == strict_distribution
            )
            num_random = grid.num_restarts
            if source is not first:
                num_random = self.num_random(source, num_random)
            climb = climb_from(
                grid, source, k1, {k: fits[strict_distribution, k] for k in grid.sizes}, num_random
            )
        misfit, used = misfit_of(fits[lenient_distribution, k2], grid.table, grid.seed, climb)
        reasons = _doubts(strict, gain, lenient_distribution, (k1, k2), climb)
        if min(k1, k2) == grid.sizes[0] > 1:
            reasons.append("smaller numbers were not compared")
        status = status_of(k2 == largest, misfit > MISFIT, reasons)
        held_out, chosen = None, (lenient_distribution, k2)
        if status == "grid too short":
            chosen = strict_distribution, k1
        elif status == "misfit":
            held_out = left_out(grid)
            chosen = first.name, held_out
        columns: dict[str, Mapping[Key, Any]] = {
            "strict": strict,
            "lenient": lenient,
            "gain_in_edges": {key: gain.get(key, math.nan) for key in fits},
            "dispersion": {
                key: float(fit_k.params.get("dispersion", math.nan)) for key, fit_k in fits.items()
            },
        }
        counts_per_row = max(float(grid.table.nansum(-1).median()), 1.0)
        seen = {share: smallest_share(n, j, counts_per_row, share * n) for share in SHARES_OF_ROWS}
        return HowMany(
            num_components=chosen[1],
            distribution=chosen[0],
            status=status,
            interval=(min(k1, k2), max(k1, k2)),
            reasons=tuple(reasons) if status == "unsure" else (),
            misfit=misfit,
            rows=rows_of(fits, columns, chosen),
            fits=fits,
            unseen=_unseen(n, seen),
            detectable_variance=detectable_variance(int(used), j) if used >= FEW_ROWS else math.inf,
            evidence={"held_out": held_out, "smallest_seen": seen, "climb": climb},
        )


def grown(smaller: Fit, data: Tensor) -> Params:
    """Return factors with one component more, (1, ...).

    The further component is the leading positive part of what the smaller fit leaves.
    """
    assert smaller.local is not None
    z, phi = smaller.local["activities"], smaller.params["signatures"]
    left = data - z @ phi
    activity, signature = nndsvd(torch.where(left.isnan(), 0.0, left).clamp(min=0), 1, 0)
    return {
        "activities": torch.cat([z, activity], 1)[None],
        "signatures": torch.cat([phi, signature])[None],
    }


def _factors(fit: Fit) -> Params:
    assert fit.local is not None
    return {
        "activities": fit.local["activities"][None],
        "signatures": fit.params["signatures"][None],
    }


def _penalised(grid: Grid, fits: Fits, price: float) -> dict[Key, float]:
    cells = math.log(grid.table.numel())
    dispersions = {
        distribution.name: distribution.num_dispersions * cells for distribution in grid.candidates
    }
    return {
        (distribution, k): -2 * fit_k.log_likelihood + k * price + dispersions[distribution]
        for (distribution, k), fit_k in fits.items()
    }


def _doubts(
    strict: Mapping[Key, float],
    gain: Mapping[Key, float],
    distribution: str,
    interval: tuple[int, int],
    climb: Climb | None,
) -> list[str]:
    k1, k2 = interval
    doubts = []
    if k1 != k2:
        doubts.append("the strict and the lenient penalty differ")
    following = gain.get((distribution, k2 + 1), 0.0)
    if following >= 1.0:
        doubts.append(f"a component more gains {following:.2f} of what noise alone may gain")
    lead, rival = lead_of(strict, k2)
    if k1 == k2 and lead < CLEAR:
        doubts.append(f"the strict penalty leads {rival} by {lead:.1f} only")
    if climb is not None and climb.num_components != k2:
        doubts.append(
            f"a climb from {k1}, as long as a component more gains {STEEPER:g} times what it gains"
            f" in tables drawn from {k1}, "
            + (
                f"had not stopped at {climb.num_components}, the largest number compared"
                if climb.at_end
                else f"stops at {climb.num_components}"
            )
        )
    return doubts


def climb_from(
    grid: Grid, candidate: Candidate, start: int, fits: Mapping[int, Fit], num_random: int
) -> Climb:
    """Draw the tables, fit them, and climb.

    Args:
        grid: the data, the number of tables, and settings of every fit.
        candidate: whose components are counted.
        start: number from which to climb.
        fits: of this candidate, by number.
        num_random: random starts of each fit of a table.
    """
    tables, smaller, gains = [], [], []
    generator = torch.Generator().manual_seed(grid.seed)
    for b in range(grid.bootstrap):
        seed = int(torch.randint(2**31, (1,), generator=generator))
        table = drawn_like(fits[start], grid.table, seed)
        drawn = grid.on(table, seed=seed)
        small = Place(drawn, candidate, start, None, {start: fits[start]}, num_random).fit(seed)
        large = Place(drawn, candidate, start + 1, small, {}, num_random).best()
        tables.append(table)
        smaller.append(small)
        gains.append(max(0.0, 2 * (large.log_likelihood - small.log_likelihood)))
        grid.progress.update(b + 1, objective=small.objective, active=grid.bootstrap - b - 1)
    deviance = {k: -2 * fit_k.log_likelihood for k, fit_k in fits.items()}
    stop = stop_of(deviance, start, float(np.mean(gains)))
    return Climb(
        stop, fits[start], np.array(gains), tuple(tables), tuple(smaller), stop == max(fits)
    )


def stop_of(deviance: Mapping[int, float], start: int, null_gain: float) -> int:
    """Return the first number whose successor gains less than 1.4 times ``null_gain``.

    Of a grid with gaps, by the mean of the components between.

    Args:
        deviance: by number.
        start: one of these numbers.
        null_gain: mean gain of a superfluous component.
    """
    sizes = sorted(k for k in deviance if k >= start)
    for below, above in zip(sizes, sizes[1:], strict=False):
        if deviance[below] - deviance[above] < STEEPER * null_gain * (above - below):
            return below
    return sizes[-1]


def left_out(grid: Grid) -> int:
    """Return the number whose fits predict left-out cells best.

    Source: Wold (1978), doi:10.1080/00401706.1978.10489693.
    """
    table = grid.table
    generator = torch.Generator().manual_seed(grid.seed)
    out = (torch.rand(table.shape, generator=generator) < LEFT_OUT) & ~table.isnan()
    kept = table.masked_fill(out, math.nan)
    # what is left must say something of the row and the column
    out &= (kept.nansum(-1, keepdim=True) > 0) & (kept.nansum(0) > 0)
    kept = table.masked_fill(out, math.nan)
    first = replace(grid.candidates[0], name="held out")
    values = {}
    for (_, k), fit_k in fit_candidates(grid.on(kept, candidates=(first,))).items():
        assert fit_k.local is not None
        structure, params = fit_k.structure, fit_k.params | fit_k.local
        gains = conditional_log_likelihoods(structure, params, table) - conditional_log_likelihoods(
            structure, params, kept
        )
        values[k] = float(gains.sum())
    return max(values, key=values.__getitem__)


def _unseen(num_rows: int, seen: Mapping[float, float]) -> str:
    parts = [
        f"{100 * share:.2g} % of the counts of {max(1, round(rows * num_rows))} rows"
        for rows, share in seen.items()
        if round(rows * num_rows) >= 1
    ]
    return (
        "A component unlike the others would have been missed where it holds less than about "
        + ", or ".join(parts)
        + "; one that resembles a mixture of others must be larger."
    )

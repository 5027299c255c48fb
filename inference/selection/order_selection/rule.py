r"""Two questions: how many components of which law the likelihood supports, and whether the data
contradict that law.

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
component at it looks as the law says, by ACDC's discrepancies against tables simulated and fitted
again; else no number of this law is right, and cells left out of the fits decide, by the first law,
for it does not reward patches of noise. A climb from the strict choice by tables that are drawn
from it (:mod:`inference.selection.order_selection.bootstrap_climb`), which takes longer, gives a
number of its own; where it is another, nobody can be confident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import NoProgress, Progress, RichProgress
from inference.base.structure import Method, conditional_log_likelihoods
from inference.engines.em import EM
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.selection.order_selection.answer import HowMany, Word
from inference.selection.order_selection.bootstrap_climb import STEEPER, Climb, climb_from
from inference.selection.order_selection.candidates import Law, law_of, laws_of
from inference.selection.order_selection.detectability import (
    LENIENT,
    MISFIT,
    detectable_variance,
    noise_edge,
    smallest_share,
)
from inference.selection.order_selection.grid_fits import Paths, fit_paths, later_starts
from inference.selection.order_selection.groups_paths import fit_groups
from inference.selection.order_selection.groups_rule import answer_of_groups
from inference.selection.order_selection.misfit import FEW_ROWS, misfit_of
from inference.selection.order_selection.options_paths import fit_options
from inference.selection.order_selection.options_rule import answer_of_options
from inference.structures.factorization.factorize import Factorize
from ppl_models.parts.validation import check_size, is_integer

CLEAR = (
    10.0  # a lead of the strict penalty that leaves no doubt (Kass and Raftery 1995: very strong)
)
LEFT_OUT = 0.15  # share of the cells
PLAIN_GRIDS = (6, 12)  # largest numbers that are compared where none are given
SHARES_OF_ROWS = (0.05, 0.2, 1.0)
QUICK = EM(
    max_iterations=500, tolerance=1e-7, parameter_tolerance=1e300
)  # of mixtures: tenths of a nat do not matter here, steps along a ridge even less

FLAT = EM(
    max_iterations=300, tolerance=1e-6, parameter_tolerance=1e300
)  # of options, whose likelihood has long ridges: a nat does not matter


def select_components(
    family: Callable[..., Any] | Any,
    data: Any,
    grid: Sequence[int] | None = None,
    *,
    laws: Sequence[Any] | None = None,
    num_restarts: int = 10,
    method: Method | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    progress: bool = False,
) -> HowMany:
    """How many components does a table hold, or states sequences, of which law, and how sure is
    that?

    For mixtures and hidden Markov models:
    :mod:`inference.selection.order_selection.groups_rule`; for hidden options:
    :mod:`inference.selection.order_selection.options_rule`.

    Args:
        family: a factorization of counts, called with the number of columns and of components
            (``PoissonFactorization``); a mixture or a hidden Markov model, whatever its number
            (``Mixture(1, MultivariateNormal(), 2)``, ``HiddenMarkov(1, Poisson())``), or options
            (``OptionsHMM(num_states, num_actions, 1)``); or a function from a number to a model.
        data: the table, NaN where missing, or the sequences.
        grid: numbers of components to compare; the answer says so if they end too early. Without
            gaps they help each other's search. None for 1 to 6, and to 12 where 6 is too few.
        laws: families or functions as ``family``, of which the first is contained in the others;
            None for those that suit ``family``: Poisson counts, and negative binomial ones with a
            variance linear and quadratic in the mean; for mixtures and states of real rows normal,
            Student t and skew-normal components (those that take missing entries where there are
            some), for counts Poisson and negative binomial ones.
        num_restarts: random starts of each fit of the first law.
        method: settings of every fit: :class:`~inference.Factorize`, or :class:`~inference.EM` for
            mixtures.
        bootstrap: tables drawn from the strict choice of a factorization and fitted again, from
            which a climb learns what a superfluous component gains, a further number and a check of
            the others; 6 is enough, and recommended for what is published; 0 for none.
        seed: one seed, one answer.
        progress: show a bar on standard error.

    Raises:
        ValueError: for a grid of fewer than two numbers, no laws, laws that cannot be compared, or
            what a law refuses in the data; before any fit.
    """
    if grid is None:
        most = _most(_laws(family, laws, data, (1, 2))[0].kind, data)
        for numbers in plain_grids(most):
            answer = select_components(
                family,
                data,
                numbers,
                laws=laws,
                num_restarts=num_restarts,
                method=method,
                bootstrap=bootstrap,
                seed=seed,
                progress=progress,
            )
            if answer.word != "grid too short":
                break
        return answer
    for k in grid:
        check_size(
            "select_components", "grid", k, wanted="numbers of components, positive integers"
        )
    sizes = sorted(set(grid))
    if len(sizes) < 2:
        raise ValueError(
            "select_components: grid must hold at least two numbers of components, got"
            f" {list(grid)!r}"
        )
    check_tables("select_components", bootstrap)
    offered = _laws(family, laws, data, sizes)
    if bootstrap and offered[0].kind != "factorization":
        raise ValueError(
            "select_components: bootstrap is for factorizations of counts; leave it at 0 for"
            f" {type(offered[0].model).__name__}, got {bootstrap}"
        )
    table, _ = checked(offered[0].at(sizes[-1]), data, for_fit=True)
    if laws is None:
        rows, gaps = int(table.isfinite().any(-1).sum()), _has_gaps(table, offered[0])
        offered = tuple(
            law
            for law in offered
            if not law.of_whole_rows
            or not gaps
            and law.of_rows.is_determined(rows, table.shape[-1])
        )
    for law in offered[1:]:
        checked(law.at(sizes[-1]), data, for_fit=True)
    kind = offered[0].kind
    method = _method(method, kind)
    total = len(offered) * len(sizes)
    with quiet(), RichProgress("fits", total) if progress else NoProgress() as bar:
        if kind != "factorization":
            assert isinstance(method, EM)
            if kind == "options":
                found = fit_options(offered[0], sizes, data, num_restarts, seed, method, bar)
                return answer_of_options(offered[0], sizes, found, data, num_restarts, seed, method)
            return answer_of_groups(
                offered,
                sizes,
                fit_groups(offered, sizes, data, num_restarts, seed, method, bar),
                data,
                seed,
            )
        assert isinstance(method, Factorize)
        fits = fit_paths(offered, sizes, table, num_restarts, seed, method, bar, data)
        return _answer(offered, sizes, fits, table, num_restarts, seed, method, bootstrap, bar)


def plain_grids(most: int) -> list[range]:
    """Numbers to compare where none are given, then more of them: up to ``most``, at least two."""
    return [
        range(1, largest + 1)
        for largest in dict.fromkeys(max(2, min(largest, most)) for largest in PLAIN_GRIDS)
    ]


def _most(kind: str, data: Any) -> int:
    """Components that a table has room for, of those that are compared where no grid is given."""
    shape: tuple[int, ...] = tuple(getattr(data, "shape", ()))
    if len(shape) != 2 or kind not in ("factorization", "mixture"):
        return PLAIN_GRIDS[-1]
    room = min(shape) if kind == "factorization" else shape[0]
    return max(2, min(room, PLAIN_GRIDS[-1]))


def check_tables(owner: str, bootstrap: object) -> None:
    """A mean gain and its noise need two tables."""
    if not is_integer(bootstrap, 0) or bootstrap == 1:
        raise ValueError(
            f"{owner}: bootstrap must be 0, or a number of tables of at least 2, got {bootstrap!r}"
        )


def _has_gaps(table: Tensor, law: Law) -> bool:
    """Whether rows miss a part of their entries; of steps of a sequence, whole rows may be
    missing.
    """
    missing = table.isnan()
    gaps = missing.any(-1) & ~missing.all(-1) if law.kind == "chain" else missing
    return bool(gaps.any())


def _method(method: Method | None, kind: str) -> Factorize | EM:
    default = Factorize() if kind == "factorization" else FLAT if kind == "options" else QUICK
    if method is not None and not isinstance(method, type(default)):
        raise ValueError(
            f"select_components: method must be {type(default).__name__}() or None, got {method!r}"
        )
    return default if method is None else method


def _laws(
    family: Any, laws: Sequence[Any] | None, data: Any, sizes: Sequence[int]
) -> tuple[Law, ...]:
    def model(one: Any) -> Any:
        if is_dataclass(one) and not isinstance(one, type):
            return one  # a model, whatever its number
        if not isinstance(one, type):
            return one(sizes[-1])
        if len(getattr(data, "shape", ())) != 2:
            raise ValueError(
                "select_components: a table (rows, items) was expected; give a function from a"
                " number to a model"
            )
        return one(int(data.shape[1]), sizes[-1])

    if laws is None:
        return laws_of(model(family))
    if not laws:
        raise ValueError(
            "select_components: laws must name at least one family, or be None for those that suit"
            " the family"
        )
    found = tuple(law_of(model(one)) for one in laws)
    if len(found) > 1 and found[0].kind == "options":
        raise ValueError(
            "select_components: laws must be None or one model for hidden options, whose rivals"
            f" are policies without options, got {len(found)} laws"
        )
    if len({law.kind for law in found}) > 1:
        raise ValueError(
            "select_components: laws must all be mixtures, all hidden Markov models, or all"
            " factorizations of counts, for their likelihoods are compared"
        )
    if len({law.name for law in found}) < len(found):
        raise ValueError(f"select_components: laws must differ, got {[law.name for law in found]}")
    return found


def _answer(
    laws: Sequence[Law],
    sizes: Sequence[int],
    fits: Paths,
    table: Tensor,
    num_restarts: int,
    seed: int,
    method: Factorize,
    bootstrap: int,
    progress: Progress,
) -> HowMany:
    n, j = table.shape
    strict, lenient = (_penalised(laws, fits, n, j, kind) for kind in ("strict", "lenient"))
    law1, k1 = min(strict, key=strict.__getitem__)
    law2, k2 = min(lenient, key=lenient.__getitem__)
    edge = noise_edge(n, j)
    gain = {
        (law, k): 2 * (one.log_likelihood - fits[law, k - 1].log_likelihood) / edge
        for (law, k), one in fits.items()
        if (law, k - 1) in fits
    }
    climb = None
    if bootstrap and k1 < sizes[-1]:
        source = next(law for law in laws if law.name == law1)
        num_random = num_restarts if source is laws[0] else later_starts(num_restarts)
        own = {k: fits[law1, k] for k in sizes}
        climb = climb_from(source, k1, own, table, bootstrap, num_random, seed, method, progress)
    misfit, used = misfit_of(fits[law2, k2], table, seed, climb)
    held_out = None
    word: Word
    reasons: list[str] = []
    if k2 == sizes[-1]:  # a misfit may be for want of components
        word, (law, chosen) = "grid too short", (law1, k1)
    elif misfit > MISFIT:
        held_out = _left_out(laws[0], sizes, table, num_restarts, seed, method)
        word, chosen, law = "law wrong at every K", held_out, laws[0].name
    else:
        chosen, law = k2, law2
        reasons = _doubts(strict, gain, law2, (k1, k2), climb)
        word = "unsure" if reasons else "confident"
    rows = tuple(
        {
            "law": name,
            "num_components": k,
            "log_likelihood": one.log_likelihood,
            "strict": strict[name, k],
            "lenient": lenient[name, k],
            "gain_in_edges": gain.get((name, k), math.nan),
            "dispersion": (
                float(one.params["dispersion"]) if "dispersion" in one.params else math.nan
            ),
            "chosen": (name, k) == (law, chosen),
        }
        for (name, k), one in fits.items()
    )
    seen = {
        share: smallest_share(n, j, _typical_counts(table), share * n) for share in SHARES_OF_ROWS
    }
    tested = detectable_variance(int(used), j) if used >= FEW_ROWS else math.inf
    return HowMany(
        chosen,
        law,
        word,
        (min(k1, k2), max(k1, k2)),
        tuple(reasons),
        misfit,
        held_out,
        rows,
        fits,
        _unseen(n, seen),
        seen,
        tested,
        climb,
    )


def _penalised(
    laws: Sequence[Law], fits: Paths, n: int, j: int, kind: str
) -> dict[tuple[str, int], float]:
    extra = {law.name: law.num_dispersions * math.log(n * j) for law in laws}
    each = (
        (j - 1) * math.log(n) + n * math.log(j) if kind == "strict" else LENIENT * noise_edge(n, j)
    )
    return {
        (law, k): -2 * one.log_likelihood + k * each + extra[law] for (law, k), one in fits.items()
    }


def _doubts(
    strict: dict[tuple[str, int], float],
    gain: dict[tuple[str, int], float],
    law: str,
    interval: tuple[int, int],
    climb: Climb | None,
) -> list[str]:
    """Why one cannot be confident, a sentence each."""
    k1, k2 = interval
    found = []
    if k1 != k2:
        found.append("the strict and the lenient penalty differ")
    following = gain.get((law, k2 + 1), 0.0)
    if following >= 1.0:
        found.append(f"a component more gains {following:.2f} of what noise alone may gain")
    best = min(value for (_, k), value in strict.items() if k == k2)
    rival = min(((value, k) for (_, k), value in strict.items() if k != k2), default=(math.inf, 0))
    if k1 == k2 and rival[0] < best + CLEAR:
        found.append(f"the strict penalty leads {rival[1]} by {rival[0] - best:.1f} only")
    if climb is not None and climb.num_components != k2:
        found.append(
            f"a climb from {k1}, as long as a component more gains {STEEPER:g} times what it gains"
            f" in tables drawn from {k1}, "
            + (
                f"had not stopped at {climb.num_components}, the largest number compared"
                if climb.at_end
                else f"stops at {climb.num_components}"
            )
        )
    return found


def _left_out(
    law: Law, sizes: Sequence[int], table: Tensor, num_restarts: int, seed: int, method: Factorize
) -> int:
    """The number whose fits predict left-out cells best (Wold 1978,
    doi:10.1080/00401706.1978.10489693).
    """
    generator = torch.Generator().manual_seed(seed)
    out = (torch.rand(table.shape, generator=generator) < LEFT_OUT) & ~table.isnan()
    kept = table.masked_fill(out, math.nan)
    out &= (kept.nansum(-1, keepdim=True) > 0) & (
        kept.nansum(0) > 0
    )  # what is left must say something of the row and the column
    kept = table.masked_fill(out, math.nan)
    fits = fit_paths(
        [replace(law, name="held out")], sizes, kept, num_restarts, seed, method, NoProgress()
    )
    values = {}
    for (_, k), one in fits.items():
        assert one.local is not None
        at = one.params | one.local
        with_held = conditional_log_likelihoods(one.structure, at, table)
        whole = with_held - conditional_log_likelihoods(one.structure, at, kept)
        values[k] = float(whole.sum())
    return max(values, key=values.__getitem__)


def _typical_counts(table: Tensor) -> float:
    return max(float(table.nansum(-1).median()), 1.0)


def _unseen(num_rows: int, seen: dict[float, float]) -> str:
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

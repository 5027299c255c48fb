"""Record of a fit: the estimate, how it was reached, and from what data."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.base.optima import SAME_VALUE
from inference.base.outcome import PenaltyChoice
from inference.base.structure import Structure
from inference.programs.global_state import threads_for
from inference.programs.program import Params
from inference.programs.quadrature import Quadrature, quadrature_of
from inference.structures.registry import structure_of
from ppl_models.parts.repr import listed, shows_briefly


@shows_briefly
@dataclass(frozen=True, eq=False)
class Trace:
    """Trace of the best restart.

    Args:
        name: what ``objective`` is.
        objective: (iterations,), at the parameters each iteration started from.
        log_likelihood: (iterations,), latents summed out.
    """

    name: str
    objective: Tensor
    log_likelihood: Tensor


ONE_START = "There was one start, so nothing says whether another would have ended higher."


@shows_briefly
@dataclass(frozen=True, eq=False)
class Restarts:
    """Outcomes of every restart of a fit, R of them.

    Args:
        objective, log_likelihood: (R,); converged: (R,) bool; num_iterations: (R,).
        params: (R, ...), by site name.
        best: index of the reported one.
        num_tried: starts tried, where the R are those of a search that were run to the end; None
            where all were.
        optimum: (R,) long; which optimum each reached, 0 the best; -1 for a degenerate solution.
            None where an engine's restarts are not compared.
        degenerate: by restart, what makes its solution no proper optimum, () where nothing does;
            such restarts rank last.
        objective_left: what more iterations would still gain, as the last ones tell, (R,): an order
            of magnitude, NaN where they do not tell. None where an engine does not say;
            :func:`inference.uncertainty.distance_to_optimum` works it out from slope and curvature.
        replicates: starts that each of the R stands for, (R,) long: itself, and those of a search
            that met it on the way and were not run on. None for one each.
    """

    objective: Tensor
    log_likelihood: Tensor
    converged: Tensor
    num_iterations: Tensor
    params: Params
    best: int
    num_tried: int | None = None
    optimum: Tensor | None = None
    degenerate: tuple[tuple[str, ...], ...] = ()
    objective_left: Tensor | None = None
    replicates: Tensor | None = None

    @property
    def num_ended(self) -> int:
        """Number of starts run to the end or to where they met another, n."""
        return len(self.objective) if self.replicates is None else int(self.replicates.sum())

    @property
    def num_reached(self) -> int:
        """Number of starts at the best optimum, k; 1 where restarts were not compared."""
        if self.optimum is None:
            return 1
        reached = self.optimum == 0
        return max(1, int((reached if self.replicates is None else self.replicates[reached]).sum()))

    @property
    def num_tried_at_all(self) -> int:
        """Number of starts tried, those stopped early among them."""
        return max(self.num_ended, self.num_tried or 0)

    @property
    def num_next(self) -> int:
        """Number of starts to try where one alone reached the best optimum: twice as many."""
        return max(20, 10 * math.ceil(self.num_tried_at_all / 5))

    @property
    def num_optima(self) -> int:
        """Number of distinct optima reached, degenerate solutions left out."""
        return 1 if self.optimum is None else max(1, int(self.optimum.max()) + 1)

    @property
    def next_best(self) -> float | None:
        """Gap between the objectives of the best and next best optimum; None if one."""
        if self.optimum is None or self.num_optima < 2:
            return None
        return float(self.objective[self.best]) - float(self.objective[self.optimum == 1].max())

    @property
    def is_ambiguous(self) -> bool:
        """Tell whether another optimum, of other estimates, fits as well as the best."""
        return self.next_best is not None and self.next_best <= SAME_VALUE * max(
            1.0, abs(float(self.objective[self.best]))
        )

    @property
    def proper(self) -> Tensor:
        """Restarts that ended in a proper optimum, all where none did, bool (R,)."""
        if not self.degenerate or self.faults:
            return torch.ones(len(self.objective), dtype=torch.bool)
        return torch.tensor([not reasons for reasons in self.degenerate])

    @property
    def faults(self) -> tuple[str, ...]:
        """Reasons why the reported solution is degenerate; () if none."""
        return self.degenerate[self.best] if self.degenerate else ()

    def text(self) -> str:
        """Sentences on the starts; empty where they were not compared."""
        if self.optimum is None:
            return ""
        words = []
        if self.num_ended > 1 or self.num_tried is not None:
            words.append(self._account())
            if self.is_ambiguous:
                words.append(
                    f"They found {self.num_optima} distinct optima, and another one fits as well"
                    " with other estimates: the data do not tell which of them is right."
                )
            elif self.next_best is not None:
                words.append(
                    f"They found {self.num_optima} distinct optima, the next best lower by"
                    f" {self.next_best:.4g}."
                )
            if self.num_reached == 1 and not self.faults:
                words.append(
                    "Nothing confirms that it is the best there is: run more starts, and see"
                    " whether it comes again."
                )
        else:
            words.append(ONE_START)
        often = [1] * len(self.degenerate) if self.replicates is None else self.replicates.tolist()
        bad = sum(n for n, reasons in zip(often, self.degenerate, strict=False) if reasons)
        if self.faults:
            words.append(
                "The estimate is no proper optimum, and no start found one:"
                f" {'; '.join(self.faults)}."
            )
        elif bad:
            first = next(reasons for reasons in self.degenerate if reasons)
            words.append(
                f"{bad} of the starts ended in a solution that is no proper optimum (such as:"
                f" {first[0]}); these rank behind."
            )
        return " ".join(words)

    def _account(self) -> str:
        """Account of all starts: run to the end, merged, stopped early, and at the best optimum."""
        num_run = len(self.objective)
        tried = self.num_tried_at_all
        merged, stopped = self.num_ended - num_run, tried - self.num_ended
        if not merged and not stopped:
            return (
                f"{num_run} starts were run to the end, {self.num_reached} of them to the best"
                " optimum."
            )
        fates = [f"{num_run} {'was' if num_run == 1 else 'were'} run to the end"]
        fates += (
            [f"{merged} merged with {'it' if num_run == 1 else 'one of these'}"] if merged else []
        )
        fates += [f"{stopped} fell behind and stopped early"] if stopped else []
        kept = " or ".join(["run to the end"] + ["merged"] * bool(merged))
        return (
            f"Of {tried} starts {listed(fates)}. The best optimum was reached by"
            f" {self.num_reached} of the {self.num_ended} that were {kept}."
        )


@shows_briefly
@dataclass(frozen=True, eq=False)
class FitRecord:
    """Record of a fitted model: estimate, objective, restarts, settings.

    Args:
        model: the program; method: the engine's settings.
        params: the estimate, by site name.
        log_likelihood: at the estimate, latents summed out; of a model of independent classifiers
            that relative to independence of the variates (:attr:`log_likelihood_ratio`), which is
            comparable with no density.
        objective: what was maximised, at the estimate; objective_name: what it is.
        trace: its course; restarts: all starts.
        converged, num_iterations: of the reported restart; seconds: of the whole call.
        seed, num_rows, item_names: of the call.
        warnings: texts of the warnings given.
        draws: posterior draws (chains, draws, ...) by site name, None for a point estimate.
        elbo: a lower bound of ``log_likelihood``, from engines that have one.
        log_likelihood_error: standard error by the draws that ``log_likelihood`` was estimated
            with, where the latents are too many to sum over; None where it is exact.
        local: point estimates of continuous latents of the rows fitted (activities), (N, ...) by
            site, never mixed with ``params``; None for models without. The log-likelihood is then
            conditional on them. Of a user's program whose latents were drawn (NUTS, SVI), their
            posterior means; the log-likelihood is then NaN.
        sample_stats: what the engine says of each draw (divergences, energy, ...), (chains, draws),
            by name.
        num_observations: the sample size of an information criterion: the steps of all sequences
            where rows are sequences, and the sum of the weights of weighted rows.
        num_free: free parameters where they were counted with the data at hand, or of a program
            that says nothing of itself; None where the model's kind counts them from the estimate.
        bic_price: what the parameters cost in BIC where they are read from different numbers of
            observations; None for ``num_parameters`` log N.
        local_draws: posterior draws of the continuous latents of the rows, (chains, draws, N, ...)
            by site, where the engine drew them.
        choice: what the model's graph was chosen among, where a penalty was left open; None
            elsewhere. Standard errors and intervals take that graph as given.
        latents: by discrete latent site, how many there are in a row and how many values each has;
            None where the model sums them out inside a distribution of its own.
        shared_latents: likewise, of discrete latents outside the plates over rows, which all rows
            have in common; None for none.
        row_weights: how often each row counted, (N,); None for once.
        labels: by latent site, log p(label | value) of each row, (N, ..., V), alike for all values
            where nothing was known; None for a fit without labels. ``log_likelihood`` is then that
            of data and labels.
        label_error: chance of a wrong label that the fit took, or found; label_names: by latent
            site, the names of its values, where labels had some.
        renamed: in words, which values of latents of a user's program are exchangeable, so that
            draws were renamed in them; None where none are, or none were looked for.
        fixed: known entries of parameters by site, NaN where free; None where all are free.
        tied: by site, in its shape, the place in the flat site of the first entry that each was
            held equal to; None where none were.
        stopped: whether ``on_iteration`` of :func:`inference.fit` stopped it.
        read_as: columns of a frame that are no items, by what they were taken for (``row``, its
            name; ``sequence`` and ``time``).
    """

    model: Callable[..., Any]
    method: Any
    params: Params
    log_likelihood: float
    objective: float
    objective_name: str
    trace: Trace
    restarts: Restarts
    converged: bool
    num_iterations: int
    seconds: float
    seed: int
    num_rows: int
    item_names: tuple[str, ...]
    warnings: tuple[str, ...]
    draws: Params | None
    elbo: float | None = None
    local: Params | None = None
    sample_stats: Params | None = None
    num_observations: float | None = None
    num_free: int | None = None
    bic_price: float | None = None
    local_draws: Params | None = None
    choice: PenaltyChoice | None = None
    latents: dict[str, tuple[int, ...]] | None = None
    shared_latents: dict[str, tuple[int, ...]] | None = None
    row_weights: Tensor | None = None
    log_likelihood_error: float | None = None
    labels: dict[str, Tensor] | None = None
    label_error: float | None = None
    label_names: dict[str, tuple[str, ...]] | None = None
    renamed: str | None = None
    fixed: dict[str, Tensor] | None = None
    tied: dict[str, Tensor] | None = None
    stopped: bool = False
    read_as: dict[str, str] | None = None

    @property
    def structure(self) -> Structure:
        """Structure of the model."""
        return structure_of(self.model)

    @property
    def quadrature(self) -> Quadrature | None:
        """Quadrature rule of continuous latents of the rows; None where there were none."""
        return quadrature_of(self.model)

    @functools.cached_property
    def remembered(self) -> dict[str, tuple[str, Any]]:
        """Cached answers by kind: the estimate, the rows, and the answer.

        Not saved with the fit.
        """
        return {}

    @property
    def graphs(self) -> dict[str, Tensor]:
        """Graph by the site of the loadings: whole numbers 0 and 1, (num_children, num_parents).

        The graph that was given; of one that was chosen in the fit (``choice``) the edges whose
        loading is at least a twentieth of the unit of the predictors; under a penalty,
        loadings of at least its threshold; else loadings that are not zero, which after a fit
        without a penalty are all. Empty for models without such edges.
        """
        return self.structure.graphs(self.params)

    @property
    def category_names(self) -> dict[str, tuple[str, ...]]:
        """Category names of each item that has some, in the order of their codes."""
        return self.structure.category_names(self.item_names)

    @property
    def model_name(self) -> str:
        """Name of the model's class, or of the user's function."""
        named = (
            type(self.model).__name__
            if dataclasses.is_dataclass(self.model)
            else getattr(self.model, "__name__", "program")
        )
        return str(named)

    @property
    def log_likelihood_ratio(self) -> float:
        """Log-likelihood relative to that of another model, where the model's is a ratio.

        Raises:
            ValueError: for a model whose likelihood is a density or probability of the data.
        """
        if self.structure.relative_to is None:
            raise ValueError(
                f"log_likelihood_ratio: the likelihood of {self.model_name} is that of the data,"
                " not a ratio; see log_likelihood"
            )
        return self.log_likelihood

    def refuse_weights(self, caller: str) -> None:
        """Refuse a question over rows, each counted once, to a fit of weighted rows.

        Raises:
            ValueError: saying what to do instead.
        """
        if self.row_weights is not None:
            raise ValueError(
                f"{caller}: not worked out for weighted rows; where weights are counts, fit"
                " repeated rows (data.loc[data.index.repeat(weights)]) without weights"
            )

    def threads(self) -> AbstractContextManager[None]:
        """Threads of torch that questions about the rows want: one where rows are few."""
        sizes = [
            max(2, values) ** min(count, 16) for count, values in (self.latents or {}).values()
        ]
        rows = max(self.num_rows, self.num_observations or 0.0)
        return threads_for(rows * max(1, len(self.item_names)) * max(1, sum(sizes)))

    def refuse_labels(self, caller: str) -> None:
        """Refuse a question that fits anew, without labels or known parameters.

        Raises:
            ValueError: saying what to do instead.
        """
        if self.labels:
            raise ValueError(
                f"{caller}: not worked out for a fit with labels, which its own fits are not told:"
                " fit without labels"
            )
        if self.fixed or self.tied:
            kind = "fixed" if self.fixed else "tied"
            raise ValueError(f"{caller}: not worked out for a fit with {kind} parameters")

    @property
    def likelihood_name(self) -> str:
        """Name of ``log_likelihood`` in words."""
        relative = self.structure.relative_to
        return "log-likelihood" if relative is None else f"log-likelihood ratio to {relative}"

    @property
    def num_parameters(self) -> int:
        """Number of free parameters as written, without zero loadings; see :attr:`bic`."""
        if self.num_free is not None:
            return self.num_free
        return self.structure.num_free(self.params | (self.local or {}))

    @property
    def why_no_criteria(self) -> str | None:
        """Reason why AIC, BIC and their like do not apply, with a remedy; None where they do."""
        if sites := self.structure.local_sites:
            return (
                f"{' and '.join(sites)} are estimated for every row, so that parameters grow with"
                " the rows; compare by held-out cells"
            )
        return self.structure.why_no_criteria(self.params)

    def check_criterion(self, name: str) -> None:
        """Refuse a criterion that charges for free parameters where these are no price.

        Raises:
            ValueError: saying why, and what to use instead.
        """
        if (reason := self.structure.why_no_criteria(self.params)) is not None:
            raise ValueError(f"{name}: {reason}")

    @property
    def price(self) -> float:
        """Price of the parameters in BIC: (number of free parameters) log N, or a sum of logs.

        Raises:
            ValueError: for a model whose parameters are no price (:attr:`why_no_criteria`).
        """
        self.check_criterion("bic")
        if self.bic_price is not None:
            return self.bic_price
        return self.num_parameters * math.log(self.num_observations or self.num_rows)

    @property
    def bic(self) -> float:
        """BIC: -2 log-likelihood + :attr:`price`; smaller is better.

        The price that Schwarz derived is of the dimension of the family of distributions, which is
        the rank of the derivatives of the likelihood at almost all parameters (Geiger, Heckerman,
        King and Meek 2001, doi:10.1214/aos/1009210550). Where several parameters give one
        distribution, it is less than ``num_parameters``, and BIC as it stands here charges too
        much, never too little. The rank needs derivatives of every row and may be less at single
        estimates, so that it is no number of the fit:
        :func:`inference.uncertainty.check_information` works it out, and a page of the fit says
        both. Where numbers of every row are estimated (activities, codes), this is the quantity
        that papers on factorization compute, of the conditional likelihood, and no BIC: pages and
        comparisons print none (:attr:`why_no_criteria`).
        """
        return -2 * self.log_likelihood + self.price

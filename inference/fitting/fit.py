"""fit(): data in, a :class:`Fit` out, with the same call for every model and every method."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from inference.base.assigned_starts import assigned_start
from inference.base.checkpoint import usable_path
from inference.base.optima import rank_restarts, same_value
from inference.base.outcome import (
    BoundWarning,
    ConvergenceWarning,
    DegenerateWarning,
    EstimateWarning,
    Outcome,
    StartsWarning,
)
from inference.base.progress import (
    CalledProgress,
    NoProgress,
    OnIteration,
    Progress,
    RichProgress,
)
from inference.base.starts import BATCH_STRIDE, StartSearch
from inference.base.streaming.processes import Processes
from inference.base.streaming.row_blocks import RowBlocks, drawn_rows
from inference.base.structure import (
    Method,
    Problem,
    Standard,
    Structure,
    bic_price,
    canonical_for_data,
    check_method,
    check_start,
    is_method,
    more_starts,
    sampled_sites,
    split_starts,
)
from inference.engines.em import EM
from inference.engines.integration import refined, with_nodes
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.saem import SAEM
from inference.engines.start_search import SearchState, search_starts
from inference.fitting.columns import with_names
from inference.fitting.fixed import agreeing, check_fixing, with_fixed
from inference.fitting.labels import (
    check_error,
    check_labelling,
    estimated_error,
    known_of,
    named_by_labels,
    other_names,
    with_labels,
)
from inference.fitting.problem import (
    as_read,
    check_blocks,
    check_engine,
    in_blocks,
    model_of_data,
    problem_of,
    problem_of_blocks,
    refuse_sparse,
)
from inference.fitting.record import Restarts, Trace
from inference.fitting.result import Fit
from inference.fitting.weights import Missing, check_weighing, complete_covariates
from inference.programs.arguments import call_of
from inference.programs.global_state import isolated, listening, quiet
from inference.programs.program import Params, Program
from inference.programs.sites import outside
from inference.structures.registry import structure_of
from ppl_models.data.tables import checks_data, map_tensors
from ppl_models.parts.repr import listed
from ppl_models.parts.validation import Seed, as_seed, is_integer

logger = logging.getLogger(__name__)

MOST_RESTARTS = 1_000_000
CLOSE, MOST_NAMINGS = 20.0, 6  # nats, and number, of names of latents that EM is run again under
NEAR_START, TIES = 0.5, 0.01  # around the start of a parameter, unconstrained; in the first restart
FRESH_STARTS = 10  # beside those that split the components of a smaller fit
MOST_OPTIMA = 2  # of a sample of rows, that go on with all of them
NO_ANSWER = "no start led to an answer:"
REMEDY = (
    "Look for values of a size like 1e300 or outside the support of their distribution,"
    " standardise the"
    " columns, or give another init"
)


def fit(
    model: Callable[..., Any],
    data: Any,
    method: Method | None = None,
    init: str | Params | Fit | None = None,
    num_restarts: int | None = None,
    seed: Seed = 0,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    weights: Any = None,
    covariates_missing: Missing = "refuse",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    labels: Any = None,
    label_error: float | Literal["estimate"] = 0.0,
    fixed: Mapping[str, Any] | str | Path | None = None,
    tied: Mapping[str, Any] | None = None,
    on_iteration: OnIteration | None = None,
) -> Fit:
    """Fit a model to data.

    A program of your own is any function made of Pyro primitives: parameters are sample sites with
    priors outside the plate over rows, or ``pyro.param`` and ``pyro.module`` statements, whose
    density is flat on their constraint and which start where the program starts them; latents are
    sample sites inside the plate, the data come in by ``obs=``. Discrete latents are summed out
    (index by them as in plain Pyro: ``a[z]``, ``Vindex(a)[..., z]``), also those that the
    distribution of a parameter depends on, as in a spike and slab: the log-prior is then that of
    the parameters alone, and the log-likelihood that of the rows given the parameters. A
    ``pyro.factor`` outside the plate over rows belongs to the prior, unless it depends on latents
    that data depend on too. Continuous latents of the rows that are functions of one or two normal
    numbers are integrated by quadrature (:mod:`inference.programs.quadrature`); others are drawn,
    by NUTS and SVI. It runs in
    the dtype of the data (double precision where they are whole numbers), restarts as one batch
    where it broadcasts over a leading dim and one by one where not, and NaN entries of its observed
    sites leave the likelihood. Scales of observed sites multiply their log-densities.

    Args:
        model: a zoo model, or any Pyro program.
        data: table with one row a unit (tensor, array, data frame; NaN where missing; of a
            :class:`~ppl_models.PoissonFactorization` a sparse matrix of scipy too), or what the
            program takes: a data frame that it reads by the names of the columns, a dict of arrays,
            series and numbers. Of a program of several arguments a tuple in their order, or a dict
            or data frame by their names; None of a program that holds its data itself. Numbers,
            texts and objects among them are passed as they are. Or rows that stay on disk, or are
            shared by processes, :class:`~inference.base.streaming.row_blocks.RowBlocks`, which
            :class:`~inference.engines.em.EM`, and :class:`inference.Factorize` of factorizations,
            read block by block; a large NumPy memory map or ``pyarrow.dataset`` is read so too.
            Starts are then looked for in a sample of rows, as in tables in memory of many rows.
        method: the engine; if None the family's recommended one, with its start and restarts where
            those are left open (see the model; an encoder with open graphs has its penalty and
            graphs chosen, :class:`inference.ChoosePenalty`; exact :class:`~inference.engines.em.EM`
            where it says nothing, :class:`~inference.engines.nuts.NUTS` where a program has
            continuous latents of the rows that cannot be integrated).
        init: "spectral" (falls back to "random" for a model that has no such start), "random", a
            dict of parameters (those that it leaves out start as by default, whose latents may
            stand in another order), or a fit of the same model. With several restarts, the first
            starts there and the others nearby. With a method named, "spectral" if None.
        num_restarts: starts run as one batch; the one with the best objective is reported, the
            others are kept. With a method named, 1 if None. With neither named, and for
            ``Laplace()`` without a start, where several optima are possible: as many as it takes to
            find the best one again (:class:`~inference.base.starts.StartSearch`); in a sample of
            the rows, where mixtures and hidden Markov models have many, whose two best optima go on
            with all rows.
        seed: one seed, one answer, on one machine and thread count. Of a generator of NumPy or
            torch the next draw, of None a fresh number; the fit keeps it, and
            ``fit(..., seed=result.seed)`` gives the same answer.
        progress: show a progress bar on standard error.
        checkpoint: file that holds the running fit; an interrupted fit called again resumes from
            it.
        weights: how often each row counts, one number of at least zero a row; None for once. Whole
            numbers give what repeated rows would, and BIC takes the sum of the weights for the
            number of rows, so scale weights of a survey to the size of the sample.
            :class:`~inference.engines.em.EM` of mixtures, hidden Markov models (one weight a
            sequence), encoders, latent attribute and noisy-OR models, and programs of your own
            whose rows are independent takes them; all others refuse.
            Of :class:`~inference.RowBlocks`, one number for each row of the
            source, or the name of a column of it, which is then none of the items. Standard errors
            take weights for counts of repeated rows, not for those of a survey's design; questions
            that count each row once, as pages about the rows do, refuse such fits.

        covariates_missing: of a model with covariates, "refuse" rows that lack one, naming the
            first, or "drop" them: they are left out of the fit, which says how many and which. What
            is asked of the fit afterwards refuses such rows in either case, for nothing is known of
            them.
        args: of a program of your own, settings that follow its data: sizes, options, functions.
        kwargs: settings by name; the fit keeps both, so that later calls take data alone.
        labels: what is known of the latents of some rows, by row: whole numbers 0, ..., V - 1, or
            names (of a categorical column in the order of its categories, else in alphabetic
            order), -1, NaN or None where nothing is known; sets of values, or bool (N, V), where
            some are ruled out; chances (N, V), proportional to p(label | value). Of bits (N, K) of
            0, 1 or chances of 1, a frame by the names of attributes; of sequences (sequences,
            steps) or a list; of several latents a dict by site. Labels name the latents, so that
            nothing is renamed, and the log-likelihood is that of data and labels, log p(x, labels).
        label_error: chance that a label is wrong, all other values equally likely then; "estimate"
            for the most likely one, which counts as a parameter.
        fixed: known parameters, by site, in its shape and in the units of the data, NaN where an
            entry is free: ``{"weights": [0.5, nan, nan]}``, a frame with the items' names for
            columns, or a JSON file of such tables. EM() maximises over what is free, and NUTS(),
            Laplace() and SVI() draw that given the rest; the free entries of a probability vector
            share what is left. They are no free parameters for BIC, standard errors are conditional
            on them, and latents keep the names that they give.
        tied: equal parameters, by site: the axis along which its entries are equal, as
            ``{"dispersion": 0}`` for that of the classes or states, or whole numbers in its shape,
            entries of one number equal and -1 by itself. Probability vectors are tied as wholes.
            The M-step is the pooled one, and equal parameters count once.
        on_iteration: function that gets a record of every iteration
            (:class:`~inference.base.progress.Iteration`: engine, iteration, objective, ...), and
            stops the fit by returning True. What there is by then is the fit, which says
            ``stopped``; a checkpoint goes on from there.

    Raises:
        ValueError: for data the model cannot have made (see the model), or settings out of range;
            before any work.

    Warns:
        ConvergenceWarning, BoundWarning: see there.
        DegenerateWarning: if no start ended in a proper optimum, saying what is wrong with the best
            of them.
        StartsWarning: if a call that names neither engine nor parameters to start from found its
            best optimum only once.
        RowsWarning: if rows that lack a covariate were dropped, or a plate that would draw some of
            its rows (``subsample_size``) is run with all of them.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> print(classes.converged, classes.num_parameters)
        True 9
        >>> classes.params["weights"].round(decimals=1)
        tensor([0.7000, 0.3000], dtype=torch.float64)
    """
    if checkpoint is not None and not is_integer(seed, least=0):
        raise ValueError(
            f"checkpoint: an integer for a seed was expected beside it, got seed={seed!r}: the same"
            " call goes on with the fit, and would draw another seed"
        )
    seed = as_seed("fit", seed)
    if num_restarts is not None and not is_integer(num_restarts):
        raise ValueError(f"num_restarts: a positive integer was expected, got {num_restarts!r}")
    num_restarts = None if num_restarts is None else int(num_restarts)
    if num_restarts is not None and num_restarts > MOST_RESTARTS:
        raise ValueError(
            f"num_restarts: at most {MOST_RESTARTS:,} starts, which run as one batch, were"
            f" expected, got {num_restarts:,}"
        )
    if not (init is None or isinstance(init, str | Mapping | Fit)):
        raise ValueError(
            f"init: 'spectral', 'random', a dict of parameters or a fit were expected, got {init!r}"
        )
    if method is not None and not is_method(method):
        raise ValueError(f"method: an engine such as EM() was expected, got {method!r}")
    if not (on_iteration is None or callable(on_iteration)):
        raise ValueError(f"on_iteration: a function was expected, got {on_iteration!r}")
    model = call_of(model, data, args, kwargs)
    path = None if checkpoint is None else usable_path("checkpoint", checkpoint)
    error = check_error(label_error)
    if labels is None and label_error != 0:
        raise ValueError(
            f"label_error: labels were expected beside it, got {label_error!r} and labels=None"
        )
    with _own_settings() as caught:
        model = model_of_data(model, data, weights, seed)
        data, read_as = as_read(model, data)
        data, weights = complete_covariates(model, data, weights, covariates_missing)
        taken, start_given = (
            in_blocks(model, data, method),
            not (init is None or isinstance(init, str)),
        )
        if isinstance(taken, RowBlocks):
            check_blocks(
                model, taken, method, init.params if isinstance(init, Fit) else init, num_restarts
            )
            problem = problem_of_blocks(model, taken, seed, start_given, weights, method)
        else:
            problem = problem_of(model, taken, seed, start_given, weights, takes_sparse=True)
        problem = with_fixed(problem, fixed, tied)
        if labels is not None:
            if path is not None and isinstance(label_error, str):
                raise ValueError(
                    "checkpoint: label_error='estimate' fits many times, and keeps no checkpoint:"
                    " give a number"
                )
            known = known_of(problem, labels, error, data=data)
            problem = with_labels(problem, known.tables)
        if labels is None or not known.tables:
            result = fit_problem(
                problem, method, init, num_restarts, progress, path, on_iteration=on_iteration
            )
        elif isinstance(label_error, str):

            def fit_at(problem: Problem, before: Fit | None) -> Fit:
                if before is None:
                    return fit_problem(
                        problem, method, init, num_restarts, progress, on_iteration=on_iteration
                    )
                again = dataclasses.replace(problem, start_given=True)
                own = method or before.method
                with quiet(ConvergenceWarning):
                    return fit_problem(again, own, before, 1, on_iteration=on_iteration)

            result, error = estimated_error(problem, known, fit_at, error)
        else:
            result = fit_problem(
                problem, method, init, num_restarts, progress, path, on_iteration=on_iteration
            )
        if read_as:
            result = dataclasses.replace(result, read_as=read_as)
        if labels is not None and known.tables:
            num_free = result.num_parameters + isinstance(label_error, str)
            result = dataclasses.replace(
                result,
                label_names=known.names or None,
                label_error=error,
                num_free=num_free if isinstance(label_error, str) else result.num_free,
            )
    return _told(result, caught)


@contextmanager
def _own_settings() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings, gradients and floating-point errors as fits want them, whatever the caller set."""
    with (
        listening() as caught,
        torch.enable_grad(),
        np.errstate(all="warn", under="ignore"),
    ):
        yield caught


def _told(result: Fit, caught: Sequence[warnings.WarningMessage]) -> Fit:
    """Fit that keeps its warnings, which are given once more, entries by their names."""
    texts = [with_names(result, str(warning.message)) for warning in caught]
    for text, warning in zip(texts, caught, strict=True):
        warnings.warn(text, warning.category, stacklevel=3)
    return dataclasses.replace(result, warnings=tuple(dict.fromkeys(texts)))


@dataclasses.dataclass(eq=False)
class SharedSearch:
    """Search for starts of one number of components that begins at the number before.

    Its first batch holds starts that split the components of the smaller fit in turn, and at most
    :data:`FRESH_STARTS` of the family; with none of the former it is that of a plain call.

    Args:
        smaller: estimates of one component less, by site; None for none.
        is_full: whether the search goes on by the family's rule, or ends with its first batch.
        state: the search so far, from which the next call goes on; None before the first, and
            where the family has no search, or a number of starts or an engine is named.
        gain: nats by which the best of the family's starts ended above the best that splits a
            component, at least 0; NaN where no sound solution came of the latter.
    """

    smaller: Params | None = None
    is_full: bool = True
    state: SearchState | None = None
    gain: float = math.nan

    def splits(
        self, problem: Problem, search: StartSearch, standard: Standard | None
    ) -> Params | None:
        """Starts that split the components of the smaller fit, in the units of the engine."""
        if self.smaller is None:
            return None
        splits = split_starts(problem.structure, _sample(problem, search), self.smaller)
        return splits if splits is None or standard is None else standard.inward(splits)

    def run(
        self,
        search: StartSearch,
        method: EM,
        problem: Problem,
        init: Any,
        splits: Params | None,
        bar: Any,
        path: Path | None,
    ) -> Outcome:
        """Begin the search, or go on with it."""
        draw = own = _batches(problem, init, search.batch)
        num_split = 0
        if splits is not None:
            fresh = _batches(problem, init, min(FRESH_STARTS, search.batch))(0)
            num_split = len(next(iter(splits.values())))
            first = {name: torch.cat([splits[name], value]) for name, value in fresh.items()}
            draw = lambda batch: own(batch) if batch else first  # noqa: E731
        self.is_full = self.is_full or not num_split
        rule = search if self.is_full else dataclasses.replace(search, cap=1)
        before = dataclasses.replace(
            self.state or SearchState(), settled=not self.is_full, done=False
        )
        self.state = search_starts(rule, method, problem, draw, bar, path, before)
        if num_split and self.state.batch == 1:
            values, best = self.state.values, float(self.state.objective[self.state.best])
            values = torch.where(
                values > best + same_value(self.state.params, best), -torch.inf, values
            )
            top, fresh_top = float(values[:num_split].max()), float(values[num_split:].max())
            self.gain = max(0.0, fresh_top - top) if math.isfinite(top) else math.nan
        return self.state.outcome()


def fit_problem(
    problem: Problem,
    method: Method | None = None,
    init: Any = None,
    num_restarts: int | None = None,
    progress: bool = False,
    path: Path | None = None,
    shared: SharedSearch | None = None,
    on_iteration: OnIteration | None = None,
) -> Fit:
    """As :func:`fit`, of a model and data that are checked.

    Args:
        problem: model and data; method, init, num_restarts, progress, on_iteration: as there.
        path: of the checkpoint.
        shared: a search that begins at the splits of a smaller fit, or goes on from there. Nothing
            of it is read where another number of starts, or engine, is named.
    """
    began, seed = time.monotonic(), problem.seed
    with _own_settings() as caught:
        search, is_plain = None, method is None and not problem.start_given
        if method is None or isinstance(method, EM | Laplace):
            problem = with_nodes(problem, must=method is not None)
        if method is None:
            advice = problem.structure.recommended(problem)
            search = advice.search if num_restarts is None and not problem.start_given else None
            method = advice.method or (
                NUTS() if sampled_sites(problem.structure, problem.program_of_one_row()) else EM()
            )
            init, num_restarts = (
                advice.init if init is None else init,
                num_restarts or advice.num_restarts,
            )
        of_optimum, optimum = None, EM()  # a search for the best of many starts, as plain EM's
        if isinstance(method, Laplace) and init is None and num_restarts is None:
            of_optimum, optimum = _search_of_optimum(problem, method), method.optimum
        check_method(problem.structure, method)
        if problem.weights is not None:
            check_weighing(problem, method)
        if isinstance(method, EM) and method.start is not None:
            method.start.check(problem)
        if problem.rows is not None:
            check_engine(problem.structure, method)
        refuse_sparse(problem, method)
        if problem.labels:
            check_labelling(problem, method)
        check_fixing(problem, method)
        standard = _standard(problem, method)
        engine_problem = problem if standard is None else standard.problem
        if path is not None:
            problem.fingerprint(
                method, {}
            )  # a program whose contents cannot be read is refused before any work
        init = "spectral" if init is None else init
        starts = (
            "as many starts as it takes to find the best optimum again"
            if search is not None or of_optimum is not None
            else f"{num_restarts or 1} starts"
        )
        logger.info(
            "fitting %s rows by %s, %s from %s",
            f"{problem.num_rows:,}",
            method,
            starts,
            init if isinstance(init, str) else "given parameters",
        )
        total = getattr(method, "max_iterations", None) if search is None else None
        bar: Progress = (
            RichProgress("fit", total, True, "" if search is None else " for these starts")
            if progress
            else NoProgress()
        )
        if on_iteration is not None:
            processes = Processes() if problem.rows is None else problem.rows.processes
            bar = CalledProgress(bar, on_iteration, type(method).__name__, processes)
        try:
            with bar, isolated(seed), problem.threads():
                if search is None:
                    if of_optimum is None:
                        start = _start(problem, standard, init, num_restarts or 1)
                        if isinstance(init, str):
                            start = agreeing(engine_problem, named_by_labels(engine_problem, start))
                    else:
                        start = _best_start(of_optimum, optimum, engine_problem, init, bar)
                        engine_problem = dataclasses.replace(engine_problem, start_given=True)
                    state = (
                        method.run(engine_problem, start, bar, path)
                        if start
                        else _evaluated(problem, method)
                    )
                else:
                    assert isinstance(method, EM)
                    shared = shared or SharedSearch()
                    splits = shared.splits(problem, search, standard)
                    settings = (search, method, engine_problem, init, splits, bar, path)
                    state = _searched(shared, *settings)
                if isinstance(method, EM):
                    state = _renamed(engine_problem, state, method, bar)
                    state = refined(problem, state, method, bar)
            result = assemble(problem, method, state, time.monotonic() - began, standard, is_plain)
            result = dataclasses.replace(result, stopped=bar.stopped)
        except (torch.linalg.LinAlgError, np.linalg.LinAlgError) as error:
            raise ValueError(
                f"{NO_ANSWER} a matrix (of variances, of cross-products of columns, or of second "
                f"derivatives) could not be inverted or taken apart. {REMEDY}"
            ) from error
    ended = "converged" if result.converged else "stopped"
    logger.info(
        "%s after %s iterations and %.1f s, %s %.4f",
        ended,
        f"{result.num_iterations:,}",
        result.seconds,
        result.objective_name,
        result.objective,
    )
    return _told(result, caught)


def _evaluated(problem: Problem, method: Method) -> Outcome:
    """Outcome of a program whose parameters are all known: its log-likelihood, after no step."""
    if not isinstance(method, EM) or problem.rows is not None:
        raise ValueError(
            f"the program has no parameters, so that {method!r} has nothing to estimate: leave"
            " method out, and give rows in memory, for the posterior of its latents"
        )
    program = problem.program()
    program.check_enumerable()
    with torch.no_grad():
        value = (program.log_marginal({}) + program.log_prior({})).double().reshape(1)
        likelihood = program.log_marginal({}).double().reshape(1)
    return Outcome(
        params={},
        objective=value,
        objective_name="log-posterior",
        log_likelihood=likelihood,
        history=value.unsqueeze(0),
        history_log_likelihood=likelihood.unsqueeze(0),
        converged=torch.ones(1, dtype=torch.bool),
        num_iterations=torch.ones(1, dtype=torch.long),
    )


def _search_of_optimum(problem: Problem, method: Laplace) -> StartSearch | None:
    """Search over starts for the optimum of Laplace; None where EM alone does not find it."""
    if problem.start_given or problem.rows is not None or not isinstance(method.optimum, EM):
        return None
    advice = problem.structure.recommended(problem)
    return advice.search if advice.method is None else None


def _best_start(search: StartSearch, method: EM, problem: Problem, init: Any, bar: Any) -> Params:
    """Best optimum (1, ...) of a search over starts."""
    found = _searched(SharedSearch(), search, method, problem, init, None, bar, None)
    ranking = rank_restarts(problem, found.params, found.objective)
    return {name: value[ranking.best : ranking.best + 1] for name, value in found.params.items()}


def _searched(
    shared: SharedSearch,
    search: StartSearch,
    method: EM,
    problem: Problem,
    init: Any,
    splits: Params | None,
    bar: Any,
    path: Path | None,
) -> Outcome:
    """Outcome of a search over starts, in a sample of the rows where they are many."""
    sample = _sample(problem, search)
    if sample is problem:
        return shared.run(search, method, problem, init, splits, bar, path)
    is_first = problem.rows is None or not problem.rows.processes.rank
    beside = path.with_name(f"{path.name}.start") if path is not None and is_first else None
    with quiet(ConvergenceWarning):  # of all rows, EM says it below
        found = shared.run(search, method, sample, init, splits, bar, beside)
    optimum = rank_restarts(sample, found.params, found.objective).optimum
    starts = [
        int((optimum == k).nonzero()[0]) for k in range(min(MOST_OPTIMA, int(optimum.max()) + 1))
    ]
    starts = starts or [int(found.objective.nan_to_num(-math.inf).argmax())]
    outcome = method.run(
        dataclasses.replace(problem, start_given=True),
        {name: value[starts] for name, value in found.params.items()},
        bar,
        path,
    )
    if beside is not None:
        beside.unlink(missing_ok=True)
    counts = torch.ones_like(optimum) if found.replicates is None else found.replicates
    replicates = torch.stack([counts[optimum == optimum[start]].sum() for start in starts])
    return dataclasses.replace(outcome, num_tried=found.num_tried, replicates=replicates)


def _sample(problem: Problem, search: StartSearch) -> Problem:
    """Problem of a sample of the rows that starts are looked for in; itself if rows are few."""
    data, rows = problem.data, search.rows
    if problem.rows is not None:
        problem = dataclasses.replace(problem, rows=None)  # the data are a sample
    if rows is None or not isinstance(data, Tensor) or len(data) <= rows:
        return problem
    drawn = torch.as_tensor(drawn_rows(len(data), rows, problem.seed), device=data.device)
    weights = None if problem.weights is None else problem.weights[drawn.to(problem.weights.device)]
    labels = problem.labels and {
        site: table[drawn.to(table.device)] for site, table in problem.labels.items()
    }
    return dataclasses.replace(problem, data=data[drawn], weights=weights, labels=labels, cache={})


def fit_from(
    model: Any, data: Any, method: Method, starts: Callable[[Problem], Params], seed: int = 0
) -> Fit:
    """As :func:`fit`, from a batch of starts that the caller makes; without a bar or a checkpoint.

    Args:
        model, data, method, seed: as there.
        starts: from the problem to parameters, and what else the method starts from, (R, ...) each.
    """
    began = time.monotonic()
    problem = problem_of(model, data, seed)
    standard = _standard(problem, method)
    with NoProgress() as bar, isolated(seed), problem.threads():
        start = starts(problem)
        outcome = (
            method.run(problem, start, bar, None)
            if standard is None
            else method.run(standard.problem, standard.inward(start), bar, None)
        )
    return assemble(problem, method, outcome, time.monotonic() - began, standard)


def _renamed(problem: Problem, state: Outcome, method: EM, bar: Progress) -> Outcome:
    """Outcome with EM run again from ends whose latents agree with labels better when renamed.

    Names that agree at a start need not do so at its end, nor those of a start that was given, and
    the labels themselves hold latents that are misnamed. Few labels leave several names likely: of
    the best end the other names are tried too whose objective is no more than :data:`CLOSE` nats
    lower before EM goes on.
    """
    if not problem.labels or not state.params or bar.stopped:
        return state
    count = len(state.objective)
    values = state.objective.nan_to_num(-math.inf)
    start = {
        name: torch.cat([value, other])
        for (name, value), other in zip(
            agreeing(problem, named_by_labels(problem, state.params)).items(),
            agreeing(problem, other_names(problem, state.params, int(values.argmax()))).values(),
            strict=True,
        )
    }
    moved = torch.ones(len(next(iter(start.values()))), dtype=torch.bool)
    moved[:count] = False
    for name, value in state.params.items():
        moved[:count] |= (start[name][:count] != value).reshape(count, -1).any(1).cpu()
    where = moved.nonzero()[:, 0]
    if len(where):
        steps = method.steps(problem)

        def objective(place: int) -> float:
            try:
                own = {name: value[place : place + 1] for name, value in start.items()}
                _, likelihood, prior = steps.e_step(own)
            except ValueError:  # impossible labels under these names
                return -math.inf
            return float((likelihood + prior).detach())

        found = [objective(place) for place in where.tolist()]
        before = torch.tensor(found, dtype=torch.float64)
        likely = before > values.max().cpu() - CLOSE
        likely &= before >= before.topk(min(MOST_NAMINGS, len(before))).values.min()
        where = where[likely]
    if not len(where):
        return state
    start = {name: value[where] for name, value in start.items()}
    again = method.run(dataclasses.replace(problem, start_given=True), start, bar, None)
    if not again.objective.nan_to_num(-math.inf).max() > values.max():
        return state
    return dataclasses.replace(again, num_tried=state.num_tried or count)


def _standard(problem: Problem, method: Method) -> Standard | None:
    """Problem in standard units; None where the engine works in those of the data."""
    return (
        None
        if getattr(method, "in_units_of_the_data", False) or problem.fixed is not None
        else problem.structure.standard(problem)
    )


def _batches(problem: Problem, init: Any, num_starts: int) -> Callable[[int], Params]:
    """The starts of each batch of a search, every batch by a seed of its own."""
    if init not in ("spectral", "random"):
        raise ValueError(
            f"init: 'spectral', 'random', parameters or a fit were expected, got {init!r}"
        )

    def draw(batch: int) -> Params:
        batch_problem = dataclasses.replace(
            problem, seed=(problem.seed + BATCH_STRIDE * batch) % 2**63
        )
        start = more_starts(batch_problem.structure, batch_problem, init, num_starts, batch)
        if start is not None:
            return agreeing(batch_problem, named_by_labels(batch_problem, start))
        half = num_starts // 2 if init == "spectral" else 0
        return agreeing(batch_problem, _with_assigned(batch_problem, num_starts, half))

    return draw


def _with_assigned(problem: Problem, num_starts: int, num_assigned: int) -> Params:
    """Starts (num_starts, ...), some of them by rows assigned to components where that can be."""
    assigned = assigned_start(problem, num_assigned) if num_assigned else None
    if assigned is None:
        return _unconstrained_start(problem, num_starts)
    others = _unconstrained_start(problem, num_starts - num_assigned)
    return {name: torch.cat([assigned[name], value]) for name, value in others.items()}


def _start(
    problem: Problem, standard: Standard | None, init: str | Params | Fit, num_restarts: int
) -> Params:
    """Start of the engine in its units; a user's parameters are in those of the data."""
    if isinstance(init, str):
        if init not in ("spectral", "random"):
            raise ValueError(
                f"init: 'spectral', 'random', parameters or a fit were expected, got {init!r}"
            )
        engine_problem = problem if standard is None else standard.problem
        start = engine_problem.structure.start(engine_problem, init, num_restarts)
        if start is not None:
            return start
        if num_restarts > 1 and init == "spectral" and engine_problem.program().starts:
            return _with_assigned(engine_problem, num_restarts, num_restarts // 2)
        return _unconstrained_start(engine_problem, num_restarts)
    given = _given_start(problem, init, num_restarts)
    return given if standard is None else standard.inward(given)


def _given_start(problem: Problem, init: Params | Fit, num_restarts: int) -> Params:
    params = init.params if isinstance(init, Fit) else init
    program = problem.program_of_one_row()  # parameters alone matter, whatever the rows
    params = {name: torch.as_tensor(value) for name, value in params.items()}
    sites = [site for site in program.sites if site.kind == "parameter"]
    names = {site.name for site in sites}
    if params and params.keys() < names and not isinstance(init, Fit):
        start = _start(problem, None, "spectral", 1)
        params = {name: start[name][0] for name in names} | params
    for site in sites:
        if site.name not in params:
            raise ValueError(f"init: parameter {site.name!r} is missing; got {sorted(params)}")
        if tuple(params[site.name].shape) != site.shape:
            raise ValueError(
                f"init: {site.name!r} must have shape {site.shape}, got"
                f" {tuple(params[site.name].shape)}"
            )
        if not site.support.check(params[site.name]).all():
            raise ValueError(
                f"init: {site.name!r} has values outside its support:"
                f" {outside(site.support, params[site.name])}"
            )
    check_start(problem.structure, params)
    like = program.draw_prior(
        1, problem.seed, local=bool(sampled_sites(problem.structure, program))
    )  # for the program's dtype and device
    values = {
        name: params[name].detach().to(value) if name in params else value[0]
        for name, value in like.items()
    }
    free = program.unconstrained(values)
    return problem.structure.complete_start(
        problem, _nearby(program, free, num_restarts, problem.seed, first_exact=True)
    )


def _unconstrained_start(problem: Problem, num_restarts: int) -> Params:
    """Uniform start in (-2, 2), unconstrained, as Pyro's ``init_to_uniform``.

    Parameters without a prior start where the program says, and further restarts near it and far
    off by turns.
    """
    program = problem.program()
    draw = program.draw_prior(
        1, problem.seed, local=bool(sampled_sites(problem.structure, program))
    )
    centre = {name: value[0] for name, value in program.centre(draw).items()}
    return _nearby(program, centre, num_restarts, problem.seed, first_exact=False)


def _nearby(
    program: Program, free: Params, num_restarts: int, seed: int, first_exact: bool
) -> Params:
    generator = torch.Generator().manual_seed(seed)
    radius = 0.5 if first_exact else 2.0
    networks = getattr(program.model, "weights", {})
    out = {}
    for name, value in free.items():
        noise = torch.rand(
            (num_restarts, *value.shape), generator=generator, dtype=torch.float64
        ).to(value)
        reach = torch.full((num_restarts,), radius)
        if name in program.starts:
            if first_exact or name in networks:  # whose weights of another size saturate
                reach[:] = NEAR_START
            else:  # every second one anywhere as far off as the origin is
                reach[1::2], reach[2::2] = NEAR_START, max(radius, float(value.abs().amax()))
        if first_exact:
            reach[0] = 0.0
        elif name in program.starts:
            reach[0] = TIES
        reach = reach.to(value).reshape(-1, *[1] * value.dim())
        out[name] = value + reach * (2 * noise - 1)
    return {name: value.detach() for name, value in program.constrained(out).items()}


def _of_model(problem: Problem, model: Any) -> Problem:
    return dataclasses.replace(problem, model=model, structure=structure_of(model))


def assemble(
    problem: Problem,
    method: Method,
    outcome: Outcome,
    seconds: float,
    standard: Standard | None = None,
    is_plain: bool = False,
) -> Fit:
    """Assemble the fit of the best restart in the library's labels; warn of bounds.

    Args:
        problem: as the user gave it; method: the engine.
        outcome: what it found, for the standard problem where there is one; seconds: how long that
            took.
        standard: in whose units the engine worked; None for those of the data.
        is_plain: whether the user named neither engine nor start: a best optimum that only one of
            several starts reached is then warned of.
    """
    if outcome.model is not None and standard is not None:
        user_model = cast("Any", problem.model)
        chosen, before = (
            {own.name: getattr(model, own.name) for own in dataclasses.fields(user_model)}
            for model in (outcome.model, standard.problem.model)
        )
        changes = {
            name: value for name, value in chosen.items() if value != before[name]
        }  # settings without units
        standard = dataclasses.replace(standard, problem=_of_model(standard.problem, outcome.model))
        problem = _of_model(problem, dataclasses.replace(user_model, **changes))
    elif outcome.model is not None:
        problem = _of_model(problem, outcome.model)
    engine_problem = problem if standard is None else standard.problem
    if problem.is_named:
        outcome = dataclasses.replace(outcome, is_named=True)
    if isinstance(method, EM) and outcome.params and not outcome.is_named:
        outcome = dataclasses.replace(
            outcome,
            params=canonical_for_data(engine_problem.structure, engine_problem, outcome.params),
        )
    spread = method.spread if isinstance(method, SAEM) else None
    is_ranked = (
        bool(outcome.params)
        and isinstance(method, EM)
        or (spread is not None and bool(engine_problem.structure.labels()))
    )
    ranking = (
        rank_restarts(engine_problem, outcome.params, outcome.objective, spread)
        if is_ranked
        else None
    )
    best = (
        int(torch.where(outcome.objective.isnan(), -torch.inf, outcome.objective).argmax())
        if ranking is None
        else ranking.best
    )
    if not math.isfinite(float(outcome.objective[best])):
        nought = [] if problem.fixed is None else problem.fixed.shares_of_nought
        raise ValueError(
            f"{NO_ANSWER} the {outcome.objective_name} is {float(outcome.objective[best])} at the"
            " best of them, so that the data have no density under the model that a computer can"
            " hold. "
            + (
                f"Shares of {listed(nought)} are known to be 0, where their prior has no density:"
                " give 1e-12 instead, or, for moves of a hidden chain, allowed="
                if nought
                else REMEDY
            )
        )
    params = {name: value[best].clone() for name, value in outcome.params.items()}
    params = params if outcome.is_named else engine_problem.structure.canonical(params)
    at_bound, concerns = (
        engine_problem.structure.at_bound(params),
        engine_problem.structure.concerns(engine_problem, params),
    )
    if standard is not None:
        params, outcome = standard.outward(params), in_units_of_the_data(outcome, problem, standard)
    one_row = problem.program_of_one_row()
    sites = one_row.names("local")
    local = {name: params.pop(name) for name in sites if name in params}
    draws = outcome.draws or {}
    kept = {name: value for name, value in outcome.params.items() if name not in sites}
    estimates = params | local
    num_free: int | None = problem.structure.num_free(estimates, problem)
    is_described = type(problem.structure) is not Structure
    if is_described and num_free == problem.structure.num_free(estimates):
        num_free = None  # the estimates alone say as much
    fixed = problem.fixed
    if problem.fixed is not None:
        counted = problem.fixed.counted(estimates) if is_described else estimates
        num_free = problem.structure.num_free(counted, problem) - problem.fixed.num_entries
        held = {
            f"{site}{place}"
            for site, value in problem.fixed.values.items()
            for place in (~value.isnan()).nonzero().tolist()
        }
        at_bound = [entry for entry in at_bound if entry not in held]
    price = bic_price(problem.structure, problem, params)
    weights, labels = problem.every_weight(), problem.every_label()
    if checks_data(problem.model):  # a user's program may need its estimates where its data lie
        params, local, kept, draws, weights, labels = (
            map_tensors(torch.Tensor.cpu, part)
            for part in (params, local, kept, draws, weights, labels)
        )
    iterations, name = int(outcome.num_iterations[best]), outcome.objective_name
    _warn_bounds(at_bound)
    restarts = Restarts(
        outcome.objective,
        outcome.log_likelihood,
        outcome.converged,
        outcome.num_iterations,
        kept,
        best,
        objective_left=outcome.objective_left,
    )
    if ranking is not None:
        restarts = dataclasses.replace(
            restarts,
            num_tried=outcome.num_tried,
            replicates=outcome.replicates,
            optimum=ranking.optimum,
            degenerate=ranking.degenerate,
        )
        _warn_starts(restarts, method, is_plain)
    for text in concerns:
        warnings.warn(text, EstimateWarning, stacklevel=3)
    return Fit(
        model=problem.model,
        method=outcome.method or method,
        params=params,
        log_likelihood=float(outcome.log_likelihood[best]),
        objective=float(outcome.objective[best]),
        objective_name=name,
        trace=Trace(
            outcome.trace_name or name,
            outcome.history[:iterations, best],
            outcome.history_log_likelihood[:iterations, best],
        ),
        restarts=restarts,
        converged=bool(outcome.converged[best]),
        num_iterations=iterations,
        seconds=seconds,
        seed=problem.seed,
        num_rows=problem.num_rows,
        item_names=problem.item_names,
        warnings=(),
        draws={name: value for name, value in draws.items() if name not in sites} or None,
        local_draws={name: value for name, value in draws.items() if name in sites} or None,
        elbo=None if outcome.elbo is None else float(outcome.elbo[best]),
        log_likelihood_error=(
            None
            if outcome.log_likelihood_error is None
            else float(outcome.log_likelihood_error[best])
        ),
        local=local or None,
        sample_stats=outcome.sample_stats,
        num_observations=problem.structure.num_observations(problem),
        num_free=num_free,
        bic_price=price,
        choice=outcome.choice,
        latents=_latents(problem, one_row),
        shared_latents=_shared_latents(one_row),
        row_weights=weights,
        labels=labels,
        renamed=outcome.renamed,
        fixed=None if fixed is None else fixed.known or None,
        tied=None if fixed is None else fixed.ties or None,
    )


def _latents(problem: Problem, program: Program) -> dict[str, tuple[int, ...]] | None:
    """Latents in a row and values of each, by discrete latent site."""
    rows = 1 if checks_data(problem.model) else program.num_rows
    out: dict[str, tuple[int, ...]] = {}
    for name in program.row_latents:
        if name in program.integrated:
            continue
        site = program.site(name)
        count = max(1, math.prod(site.shape) // rows)
        out[name] = (count, 2 if site.is_binary else site.num_values or 0)
    return out or None


def _shared_latents(program: Program) -> dict[str, tuple[int, ...]] | None:
    """Discrete latents that all rows have in common, and values of each, by site."""
    out: dict[str, tuple[int, ...]] = {}
    for name in program.names("latent"):
        if name in (*program.row_latents, *program.integrated):
            continue
        site = program.site(name)
        out[name] = (max(1, math.prod(site.shape)), 2 if site.is_binary else site.num_values or 0)
    return out or None


def _warn_bounds(at_bound: list[str]) -> None:
    if at_bound:
        warnings.warn(
            f"estimates on the bound of their interval: {listed(at_bound)}; the objective rises up"
            " to that bound, where they are held",
            BoundWarning,
            stacklevel=4,
        )


def _warn_starts(restarts: Restarts, method: Method, is_plain: bool) -> None:
    faults = restarts.faults
    if faults:
        warnings.warn(
            f"the estimate is no proper optimum: {'; '.join(faults)}. No start ended in a better"
            " one: try more starts, fewer components, or a prior with more weight, and look for"
            " equal values in the data",
            DegenerateWarning,
            stacklevel=4,
        )
    if (
        is_plain
        and (restarts.num_ended > 1 or restarts.num_tried is not None)
        and not faults
        and restarts.num_reached == 1
    ):
        num_tried = restarts.num_tried_at_all
        kept = "that were not stopped early " * (num_tried > restarts.num_ended)
        alone = f"only one of the {restarts.num_ended} starts {kept}reached it"
        if isinstance(method, SAEM):
            alone = (
                f"each of the {restarts.num_ended - 1} other starts ended more than"
                f" {method.spread:.0%} of its length away, and draws alone seldom do that"
            )
        warnings.warn(
            f"the best optimum was not replicated: {alone}, so a better one may exist. Run more"
            f" starts, such as method={type(method).__name__}(), num_restarts={restarts.num_next},"
            " and see whether the best one comes again; fewer components have fewer optima",
            StartsWarning,
            stacklevel=4,
        )


def in_units_of_the_data(outcome: Outcome, problem: Problem, standard: Standard) -> Outcome:
    """Outcome of the standardised problem in the units of the user's data."""
    params = standard.outward(outcome.params)
    of_rows = -standard.log_volume
    of_priors = of_rows + _log_prior(problem, params) - _log_prior(standard.problem, outcome.params)

    def constant(name: str) -> float:
        """Constant of a change of units: rows alone for a bound or an unconstrained density."""
        return (
            of_priors
            if ("log-posterior" in name or "log-prior" in name) and "unconstrained" not in name
            else of_rows
        )

    name, stats = outcome.objective_name, outcome.sample_stats
    if stats is not None and "lp" in stats:
        stats = stats | {
            "lp": stats["lp"] + (of_priors if name == "ELBO" else of_rows)
        }  # chains and Laplace's say it of coordinates without units
    return dataclasses.replace(
        outcome,
        params=params,
        objective=outcome.objective + constant(name),
        log_likelihood=outcome.log_likelihood + of_rows,
        history=outcome.history + constant(outcome.trace_name or name),
        history_log_likelihood=outcome.history_log_likelihood + of_rows,
        draws=None if outcome.draws is None else standard.outward(outcome.draws),
        elbo=None if outcome.elbo is None else outcome.elbo + of_rows,
        sample_stats=stats,
        choice=None if outcome.choice is None else outcome.choice.shifted(of_rows),
    )


def _log_prior(problem: Problem, params: Params) -> float:
    with torch.no_grad():
        value: Tensor = problem.program_of_one_row().log_prior(
            {name: own[:1] for name, own in params.items()}
        )
    return float(value.double()[0])

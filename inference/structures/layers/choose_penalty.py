r"""Engine: a penalty of sparse layers chosen by EBIC, its graph, and a refit on it.

1. Under every candidate penalty the log-posterior is maximised from the same starts, in small data
   also from the best that a search over starts finds without a penalty.
2. Each estimate is thresholded at its penalty's own threshold: :math:`\hat G_d = 1[|\hat W_d| \ge
   \tau]`.
3. On each graph the model is fitted again, from there, without a penalty: the penalty's bias leaves
   the estimate.
4. From the refit with the least extended BIC (:func:`extended_bic`) edges
   are added and taken away while it falls (:mod:`inference.structures.layers.graph_search`; under
   exact EM only, where a refit is cheap and its likelihood known), and the model is fitted once
   more on the graph that is left. That is the answer.

Standard errors and intervals of the answer take its graph as given: that it was chosen with the
same data is not in them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, Outcome, PenaltyChoice
from inference.base.progress import Progress
from inference.base.starts import BATCH_STRIDE, StartSearch
from inference.base.structure import (
    Problem,
    check_method,
    is_method,
    more_starts,
    num_possible_free,
    num_settled,
)
from inference.engines.em import EM
from inference.engines.saem import SAEM
from inference.engines.start_search import search_starts
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.layers.graph_search import (
    LEAST_GAIN,
    Found,
    search_graphs,
    thresholded,
)
from inference.structures.layers.penalty_grid import climb_graphs, climb_penalties, part_of
from ppl_models.parts.penalties import Penalty, ToBeChosen, TruncatedLasso
from ppl_models.parts.validation import check_size, is_number, plain_fields

UNPENALISED = StartSearch(
    batch=16, rungs=((40, 8), (80, 3)), replicates=3, stall=2, cap=64, budget=1e10
)
MOST_WORK = 2e9  # of its first batch: numbers worked through


def is_open(model: Any) -> bool:
    """Tell whether a model leaves its penalty and its graph open."""
    left_open = isinstance(getattr(model, "penalty", None), ToBeChosen)
    return left_open and all(
        layer.graph is None and layer.terms is None for layer in model.layers()
    )


@dataclass(frozen=True)
class ChoosePenalty:
    """Penalty choice by EBIC: graphs of penalised fits, refitted without shrinkage.

    What a plain ``fit`` does with a :class:`~ppl_models.DeepDiscreteEncoder` whose penalty and
    graphs are left open. The fit's ``model`` is then the one on the graph that was found and its
    ``method`` the ``engine``, so that whatever refits it refits that; ``fit.graphs`` are the
    graphs, ``fit.choice`` says what was chosen among. With exact EM all penalties and all starts
    run as one batch, and so do the refits; in small data the best of a search over starts without a
    penalty goes the same way, and the answer is the one of the two with the lower EBIC. A model
    whose penalty is named, or some of whose graphs are given, has nothing to choose, and ``engine``
    fits it as it is.

    Args:
        engine: that makes every fit.
        penalties: the candidates; ``TruncatedLasso.candidates(N)`` for N rows if None. They are of
            loadings in units of the noise of normal items, to the next power of two.
        gamma: of EBIC; 0 is BIC, which keeps more edges.
        num_moves: edges to add, and as many to take away, that are tried in a round of step 4; 0
            for none.
        max_rounds: of step 4.

    Raises:
        ValueError: for another engine than EM or SAEM, an entry that is no penalty, or a gamma that
            is not a number of 0 or more.
    """

    engine: EM | SAEM = field(default_factory=EM)
    penalties: tuple[Penalty, ...] | None = None
    gamma: float = 1.0
    num_moves: int = 4
    max_rounds: int = 8

    def __post_init__(self) -> None:
        plain_fields(self)
        if not is_method(self.engine) or not isinstance(self.engine, EM | SAEM):
            raise ValueError(f"ChoosePenalty: engine must be EM() or SAEM(), got {self.engine!r}")
        if isinstance(self.engine, EM) and self.engine.start is not None:
            raise ValueError(
                "ChoosePenalty: engine must be EM() without a start by OnlineEM(), for the fits of"
                " a choice start from one another"
            )
        if self.penalties is not None:
            if not isinstance(self.penalties, tuple | list):
                raise ValueError(
                    "ChoosePenalty: penalties must be a tuple of penalties or None, got"
                    f" {self.penalties!r}"
                )
            object.__setattr__(self, "penalties", tuple(self.penalties))
            for i, penalty in enumerate(self.penalties):
                if isinstance(penalty, type) or not (
                    hasattr(penalty, "prox") and hasattr(penalty, "threshold")
                ):
                    raise ValueError(
                        f"ChoosePenalty: penalties[{i}] must be a penalty such as"
                        f" TruncatedLasso(1.0, 0.5), got {penalty!r}"
                    )
            if not self.penalties:
                raise ValueError(
                    "ChoosePenalty: penalties must hold at least one penalty, got none"
                )
        if not (is_number(self.gamma) and math.isfinite(self.gamma) and self.gamma >= 0):
            raise ValueError(
                f"ChoosePenalty: gamma must be a number of 0 or more, got {self.gamma!r}"
            )

        for name in ("num_moves", "max_rounds"):
            check_size("ChoosePenalty", name, getattr(self, name), least=0)

    @property
    def max_iterations(self) -> int:
        """Largest number of iterations of one stage."""
        return self.engine.max_iterations

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run all penalties; see :class:`inference.base.structure.Method`.

        A checkpoint is a file a stage: ``checkpoint`` itself, then ``checkpoint.1``, ...
        """
        check_method(problem.structure, self.engine)
        if not is_open(problem.model):
            return replace(
                self.engine.run(problem, start, progress, checkpoint), method=self.engine
            )
        model: Any = problem.model
        penalties = self.penalties or TruncatedLasso.candidates(problem.num_rows)
        models = [replace(model, penalty=penalty) for penalty in penalties]
        plain = _of(problem, replace(model, penalty=None))
        files = _files(checkpoint)
        with quiet(ConvergenceWarning):  # said below of the one that is kept
            found = self._batch(plain, models, start, progress, files) or self._one_by_one(
                plain, models, start, progress, files
            )
            best, chosen, scores = self._best_of(plain, found, progress, files)
            others = self._from_unpenalised(plain, models, progress, files)
            if others:  # single edges do not lead from one start's graph to the other's
                other, improved, other_scores = self._best_of(plain, others, progress, files)
                if self._ebic(plain, improved) < self._ebic(plain, chosen) - LEAST_GAIN:
                    best, chosen = len(found) + other, improved
                    found, scores = [*found, *others], torch.cat([scores, other_scores])
        settled = chosen.settled and bool(chosen.outcome.converged.all())
        if not (settled or progress.stopped):
            if chosen.settled:
                what = "the refit on the chosen graph"
            else:
                what = f"the fit under {penalties[chosen.penalty]!r}, whose graph was chosen,"
            warnings.warn(
                f"{what} did not converge in {self.max_iterations} iterations: raise max_iterations"
                " of the engine, loosen its tolerance, try fewer latents, or another start",
                ConvergenceWarning,
                stacklevel=3,
            )
        edges = [
            sum(
                int(x.by_item(c.outcome.params[x.loadings][0] != 0).sum())
                for x in plain.structure.layers
            )
            for c in found
        ]
        choice = PenaltyChoice(
            penalties=tuple(penalties),
            penalty=torch.tensor([candidate.penalty for candidate in found]),
            num_edges=torch.tensor(edges),
            log_likelihood=torch.cat([candidate.outcome.log_likelihood for candidate in found]),
            ebic=scores,
            best=best,
            final_ebic=self._ebic(plain, chosen),
        )
        return replace(chosen.outcome, model=chosen.model, method=self.engine, choice=choice)

    def _best_of(
        self,
        plain: Problem,
        found: Sequence[_Candidate],
        progress: Progress,
        files: Iterator[Path | None],
    ) -> tuple[int, _Candidate, torch.Tensor]:
        """Index of the candidate with the least EBIC, the same improved, and EBIC of all, (C,)."""
        scores = torch.tensor([self._ebic(plain, own) for own in found], dtype=torch.float64)
        best = int(scores.nan_to_num(math.inf).argmin())
        return (
            best,
            self._improved(plain, found[best], float(scores[best]), progress, files),
            scores,
        )

    def _ebic(self, plain: Problem, candidate: _Candidate) -> float:
        outcome = candidate.outcome
        return self._score(plain, candidate.model, _only(outcome), outcome.log_likelihood)

    def _from_unpenalised(
        self,
        plain: Problem,
        models: Sequence[Any],
        progress: Progress,
        files: Iterator[Path | None],
    ) -> list[_Candidate]:
        """Candidates from the best of a search without a penalty; none where that is dear.

        A penalty shrinks loadings of a poor start away, and its graph keeps the refit there: counts
        into the hundreds whose items have three parents ended thousands of nats below.
        """
        layer, engine, search = models[0].layers()[0], self.engine, UNPENALISED
        numbers = plain.num_rows * layer.num_children * 2.0**layer.num_parents
        if (
            not (isinstance(engine, EM) and engine.accelerate)
            or plain.start_given
            or plain.labels
            or plain.fixed is not None
            or plain.rows is not None
            or search.first_work * numbers > MOST_WORK
            or progress.stopped
        ):
            return []

        def draw(batch: int) -> Params:
            own = replace(plain, seed=(plain.seed + BATCH_STRIDE * batch) % 2**63)
            found = more_starts(plain.structure, own, "spectral", search.batch, batch)
            assert found is not None  # of layers there always are
            return found

        state = search_starts(search, engine, plain, draw, progress, next(files))
        start = {name: value[state.best : state.best + 1] for name, value in state.params.items()}
        given = replace(plain, start_given=True)
        return self._batch(given, models, start, progress, files) or []

    def _batch(
        self,
        plain: Problem,
        models: Sequence[Any],
        start: Params,
        progress: Progress,
        files: Iterator[Path | None],
    ) -> list[_Candidate] | None:
        """Fit all penalties and starts as one batch, then all graphs; None if impossible."""
        engine = self.engine
        if (
            not isinstance(engine, EM)
            or not engine.accelerate
            or len({type(own.penalty) for own in models}) > 1
        ):
            return None
        store = _store(next(files), plain, self, start)
        state = climb_penalties(plain, models, start, engine, progress, store)
        if state is None:
            return None
        each = len(next(iter(start.values())))
        sparse, settled = [], []
        for g, own in enumerate(models):
            part = part_of(state, g, each)
            for r in range(each):
                layers = own.layers()
                sparse.append(
                    (
                        g,
                        *thresholded(
                            own, layers, {name: value[r] for name, value in part.params.items()}
                        ),
                    )
                )
                settled.append(bool(part.converged[r]))
        own_start = {name: torch.stack([params[name] for _, _, params in sparse]) for name in start}
        store = _store(next(files), plain, self, own_start)
        refits = climb_graphs(
            plain,
            [own for _, own, _ in sparse],
            [params for _, _, params in sparse],
            engine,
            progress,
            store,
        )
        if refits is None:
            return None
        parts = [part_of(refits, i, 1).outcome() for i in range(len(sparse))]
        return [
            _Candidate(g, own, out, done)
            for (g, own, _), out, done in zip(sparse, parts, settled, strict=True)
        ]

    def _one_by_one(
        self,
        plain: Problem,
        models: Sequence[Any],
        start: Params,
        progress: Progress,
        files: Iterator[Path | None],
    ) -> list[_Candidate]:
        out = []
        for g, own in enumerate(models):
            shrunk, converged = self._shrunk(_of(plain, own), start, progress, next(files))
            model, params = thresholded(own, own.layers(), shrunk)
            given = replace(_of(plain, model), start_given=True)
            refit = self.engine.run(
                given,
                {name: value.unsqueeze(0) for name, value in params.items()},
                progress,
                next(files),
            )
            out.append(_Candidate(g, model, refit, converged))
        return out

    def _shrunk(
        self, problem: Problem, start: Params, progress: Progress, file: Path | None
    ) -> tuple[Params, bool]:
        """Best estimate under a penalty, and whether it converged; one needs no likelihood."""
        if isinstance(self.engine, SAEM) and len(next(iter(start.values()))) == 1:
            state, *_ = self.engine.climb(problem, start, progress, file)
            params, converged, best = state.estimate(), state.converged, 0
            params = params if problem.fixed is None else problem.fixed.restored(params)
        else:
            found = self.engine.run(problem, start, progress, file)
            params, converged = found.params, found.converged
            best = int(torch.where(found.objective.isnan(), -torch.inf, found.objective).argmax())
        return {name: value[best] for name, value in params.items()}, bool(converged[best])

    def _improved(
        self,
        plain: Problem,
        candidate: _Candidate,
        score: float,
        progress: Progress,
        files: Iterator[Path | None],
    ) -> _Candidate:
        """Improve a candidate by single edges, refitted if any was turned."""
        engine = self.engine
        if not isinstance(engine, EM) or not engine.accelerate or not self.num_moves:
            return candidate
        if progress.stopped:
            return candidate
        start = Found(candidate.model, _only(candidate.outcome), score)

        def judged(model: Any, params: Params, value: torch.Tensor) -> float:
            return self._score(plain, model, params, value)

        found = search_graphs(
            plain, start, engine, judged, progress, self.num_moves, self.max_rounds
        )
        if found is start:
            return candidate
        given = replace(_of(plain, found.model), start_given=True)
        refit = engine.run(
            given,
            {name: value.unsqueeze(0) for name, value in found.params.items()},
            progress,
            next(files),
        )
        return replace(candidate, model=found.model, outcome=refit)

    def _score(self, plain: Problem, model: Any, params: Params, value: torch.Tensor) -> float:
        """EBIC of an estimate, its log-likelihood (1,)."""
        structure = type(plain.structure)(model)
        free, settled = structure.num_free(params), num_settled(structure, params)
        price = free * math.log(plain.structure.num_observations(plain))
        possible = num_possible_free(plain.structure, params) or free
        return extended_bic(float(value), price, free - settled, possible - settled, self.gamma)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Refit of one penalty, and whether the penalised fit before it converged."""

    penalty: int
    model: Any
    outcome: Outcome
    settled: bool


def _only(outcome: Outcome) -> Params:
    return {name: value[0] for name, value in outcome.params.items()}


def _of(problem: Problem, model: Callable[..., Any]) -> Problem:
    """Problem of the same data under another setting of the model."""
    return replace(problem, model=model, structure=type(problem.structure)(model))


def _files(checkpoint: Path | None) -> Iterator[Path | None]:
    """Iterate over the checkpoint files, one a stage."""
    stage = 0
    while True:
        yield (
            checkpoint
            if checkpoint is None or not stage
            else checkpoint.with_name(f"{checkpoint.name}.{stage}")
        )
        stage += 1


def _store(
    path: Path | None, problem: Problem, method: ChoosePenalty, start: Params
) -> Checkpoint | None:
    return None if path is None else Checkpoint(path, problem.fingerprint(method, start))


def extended_bic(
    value: float, price: float, num_free: int, num_possible: int, gamma: float = 1.0
) -> float:
    r"""Extended BIC (Chen and Chen 2008, doi:10.1093/biomet/asn034).

    Args:
        value: the log-likelihood, an estimate where latents are too many to sum over.
        price: what BIC charges for the parameters, :math:`\nu \log N` where each is charged for all
            N rows.
        num_free: loadings that are not zero; num_possible: those that could be.
        gamma: 0 is BIC.
    """
    choices = (
        math.lgamma(num_possible + 1)
        - math.lgamma(num_free + 1)
        - math.lgamma(num_possible - num_free + 1)
    )
    return -2 * value + price + 2 * (gamma * choices)

"""Engine: alternating minimisation for sparse coding, restarts as one batch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.optima import better_half
from inference.base.outcome import ConvergenceWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import Problem
from inference.programs.program import Params
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    Decoder,
    HardThresholding,
    Pursuit,
    Shrinkage,
    better_codes,
    codes_of,
    decode,
    finished,
    objectives,
    on_support,
    squared_errors,
    unit_columns,
)
from ppl_models.descriptions.components import DictionaryDescription
from ppl_models.parts.validation import check_flag, check_number, check_size, plain_fields

RACE = (10, 20, 40)
OBJECTIVE = "log-posterior of dictionary and codes"
SMALLEST_RESIDUAL = 1e-16  # of the sum of squares of the data: nothing is left to explain


def _check(owner: object, **least: float) -> None:
    plain_fields(owner)
    for name, bound in least.items():
        value = getattr(owner, name)
        if isinstance(bound, int):
            check_size(type(owner).__name__, name, value, bound, f"an integer of at least {bound}")
        else:
            check_number(type(owner).__name__, name, value, "be positive and finite", above=bound)


def _described(owner: object, problem: Problem) -> DictionaryDescription:
    about = problem.structure.about
    if not isinstance(about, DictionaryDescription):
        raise ValueError(
            f"{type(owner).__name__}: a sparse coding was expected, got"
            f" {type(problem.model).__name__}"
        )
    return about


@dataclass(eq=False)
class Alternation:
    """Resumable state of the alternation.

    Args:
        dictionary: (R, J, m); codes: (R, N, m); error: squared, (R,); rounds, converged: of each
            restart, (R,).
        active: indices of the restarts still running; history: of ``error``, (T, R).
    """

    dictionary: Tensor
    codes: Tensor
    error: Tensor
    rounds: Tensor
    converged: Tensor
    active: Tensor
    history: Tensor

    @classmethod
    def begin(cls, data: Tensor, start: Params) -> Alternation:
        """Initial state, before the first round."""
        dictionary, codes = start["dictionary"].clone(), start["codes"].clone()
        error = squared_errors(data, dictionary, codes).sum(-1)
        rounds = torch.zeros(len(dictionary), dtype=torch.long)
        return cls(
            dictionary,
            codes,
            error,
            rounds,
            rounds.bool(),
            torch.arange(len(dictionary)),
            error.new_zeros(0, len(error)),
        )


@dataclass(eq=False)
class Epochs:
    """State of passes over the rows.

    Dictionary (R, J, m), state of the generator, minus squared errors (T, R).
    """

    dictionary: Tensor
    generator: Tensor
    history: Tensor


@dataclass(frozen=True)
class AlternatingMinimization:
    """Codes by a small-support decoder, then the dictionary by least squares.

    Source: Engan, Aase and Husoy (1999).

    An iteration is a decoding of all rows, and ``num_refits`` further pairs of least-squares
    solutions with every row's support held: amounts given the dictionary, dictionary given the
    amounts. A pair costs a fraction of a decoding. A row keeps its old codes where the new ones fit
    worse, so the squared error never grows. A column that no row uses starts anew at the row
    explained worst. A restart stops when the error falls relatively less than ``tolerance`` an
    iteration, or below 1e-16 of the data's sum of squares.

    Args:
        decoder: a record of :mod:`inference.structures.dictionary.decoders`;
            :class:`~inference.structures.dictionary.decoders.BackwardElimination` measures best.
        max_iterations: at most.
        tolerance: relative fall of the squared error.
        num_refits: pairs of solutions an iteration with supports held; 0 decodes after every
            dictionary.
        race: after 10, 20 and 40 iterations only the better half of the restarts goes on.

    Raises:
        ValueError: for numbers that are not positive, a negative num_refits, or another decoder.
    """

    decoder: Decoder = BackwardElimination()
    max_iterations: int = 300
    tolerance: float = 1e-6
    num_refits: int = 3
    race: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.decoder, BackwardElimination | HardThresholding | Pursuit):
            raise ValueError(
                "AlternatingMinimization: a decoder that keeps to the sparsity was expected, got"
                f" {self.decoder!r}"
            )
        _check(self, max_iterations=1, tolerance=0.0, num_refits=0)
        check_flag("AlternatingMinimization", "race", self.race)

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run every restart from ``start`` (R, ...) until it stops."""
        about, data = _described(self, problem), problem.data
        if checkpoint is not None:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start))
        else:
            store = None
        floor = SMALLEST_RESIDUAL * data.square().sum()
        course = (store.load(Alternation) if store is not None else None) or Alternation.begin(
            data, start
        )
        while (
            len(course.active)
            and len(course.history) < self.max_iterations
            and not (progress.stopped and len(course.history))
        ):
            active = course.active
            a, h = refitted(data, course.dictionary[active], course.codes[active])
            for _ in range(self.num_refits):
                chosen = h.topk(about.sparsity, -1).indices
                h, _ = better_codes(data, a, h, on_support(chosen, data @ a, a.mT @ a))
                a, h = refitted(data, a, h)
            h, now = better_codes(data, a, h, decode(self.decoder, data, a, about.sparsity))
            course.dictionary[active], course.codes[active] = a, h
            gain, least = course.error[active] - now, self.tolerance * course.error[active]
            done = (gain <= least) | (now <= floor)
            course.error[active] = now
            course.rounds[active] += 1
            course.converged[active] = done
            course.active = active[~done]
            course.history = torch.cat([course.history, course.error[None]])
            if self.race and len(course.history) in RACE:
                course.active = better_half(-course.error, course.active, course.converged)
            progress.update(
                len(course.history),
                -float(course.error.min()),
                len(course.active),
                float((gain / least).max()),
                "AlternatingMinimization",
            )
            if store is not None and (len(course.history) % store.every == 0 or progress.stopped):
                store.save(course)
        if not course.converged[course.error.argmin()] and not progress.stopped:
            warnings.warn(
                f"the best restart did not converge in {self.max_iterations} iterations: raise"
                " max_iterations",
                ConvergenceWarning,
                stacklevel=3,
            )
        params = finished(about, course.dictionary, course.codes.clamp(max=about.bound), data)
        log_likelihood, objective = objectives(about, problem, params)
        errors = course.history.double().cpu()
        return Outcome(
            params,
            objective,
            OBJECTIVE,
            log_likelihood,
            -errors,
            torch.full_like(errors, torch.nan),
            course.converged,
            course.rounds,
            trace_name="minus squared error",
        )


def refitted(data: Tensor, dictionary: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Refit the dictionary (R, J, m) to codes (R, N, m), unit columns, codes rescaled."""
    gram = codes.mT @ codes
    new = (data.mT @ codes) @ torch.linalg.pinv(gram, rtol=1e-12, hermitian=True)
    length = new.norm(dim=-2)
    dead = length <= 1e-9 * data.norm(dim=-1).max().clamp(min=1e-300)
    dead |= gram.diagonal(dim1=-2, dim2=-1) <= 1e-24 * gram.diagonal(dim1=-2, dim2=-1).amax(
        -1, keepdim=True
    )
    safe = torch.where(dead, 1.0, length)
    new, codes = new / safe.unsqueeze(-2), codes * safe.unsqueeze(-2)
    for r in dead.any(-1).nonzero().ravel().tolist():
        columns = dead[r].nonzero().ravel()
        codes[r][:, columns] = 0.0
        new[r][:, columns] = 0.0
        left = data - codes[r] @ new[r].mT
        worst = left.square().sum(-1).topk(min(len(columns), len(data))).indices
        rows = left[worst]
        fallback = dictionary[r][:, columns].mT[: len(rows)]
        rows = torch.where(rows.norm(dim=-1, keepdim=True) > 1e-12, rows, fallback)
        new[r][:, columns[: len(rows)]] = unit_columns(rows.mT)
        new[r][:, columns[len(rows) :]] = dictionary[r][:, columns[len(rows) :]]
    return new, codes


@dataclass(frozen=True)
class GradientAlternation:
    r"""Alternating minimisation with the constants of Buhai et al.'s released code.

    Source: Buhai et al. (2020), arXiv:1907.00030.

    For every batch of rows: codes by ``decoder``, then :math:`A \leftarrow A - \eta\,
    \mathrm{mean}\, (A h - x) h^\top`, columns back to length 1. Every restart has its own order of
    the rows. Reported codes are those of the model (at most ``sparsity`` entries), not the
    decoder's.

    Args:
        decoder: of a batch.
        step: :math:`\eta`; batch_size: rows an update; num_epochs: passes over the rows.

    Raises:
        ValueError: for numbers that are not positive.
    """

    decoder: Decoder = Shrinkage(0.005)
    step: float = 0.1
    batch_size: int = 20
    num_epochs: int = 2000

    def __post_init__(self) -> None:
        if isinstance(self.decoder, type | bytes) or not callable(
            getattr(self.decoder, "decode", None)
        ):
            raise ValueError(
                "GradientAlternation: decoder must be a decoder such as HardThresholding(), got"
                f" {self.decoder!r}"
            )
        _check(self, step=0.0, batch_size=1, num_epochs=1)

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run every restart from ``start`` (R, ...) for all epochs."""
        about, data = _described(self, problem), problem.data
        if checkpoint is not None:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start))
        else:
            store = None
        dictionary = start["dictionary"].clone()
        num_restarts, sparsity = len(dictionary), about.sparsity
        generator = torch.Generator().manual_seed(problem.seed)
        history = torch.zeros(0, num_restarts, dtype=torch.float64)
        if store is not None and (saved := store.load(Epochs)) is not None:
            dictionary, history = saved.dictionary, saved.history
            generator.set_state(saved.generator)
        for epoch in range(len(history), self.num_epochs):
            order = torch.rand(num_restarts, len(data), generator=generator).argsort(-1)
            total = torch.zeros(num_restarts, dtype=torch.float64)
            for batch in order.split(self.batch_size, 1):
                rows = data[batch]  # (R, B, J)
                codes = self._codes(rows, dictionary, sparsity)
                residual = codes @ dictionary.mT - rows
                dictionary = unit_columns(
                    dictionary - self.step * (residual.mT @ codes) / batch.shape[1]
                )
                total += residual.square().sum((-2, -1)).double().cpu()
            history = torch.cat([history, -total[None]])
            best = float(-total.min())
            progress.update(epoch + 1, best, num_restarts, engine="GradientAlternation")
            if store is not None and ((epoch + 1) % store.every == 0 or progress.stopped):
                store.save(Epochs(dictionary, generator.get_state(), history))
            if progress.stopped:
                break
        params = finished(about, dictionary, codes_of(about, data, dictionary), data)
        log_likelihood, objective = objectives(about, problem, params)
        return Outcome(
            params,
            objective,
            OBJECTIVE,
            log_likelihood,
            history,
            torch.full_like(history, torch.nan),
            torch.full((num_restarts,), len(history) == self.num_epochs),
            torch.full((num_restarts,), len(history)),
            trace_name="minus squared error of the decoder over an epoch",
        )

    def _codes(self, rows: Tensor, dictionary: Tensor, sparsity: int) -> Tensor:
        cross, gram = rows @ dictionary, dictionary.mT @ dictionary
        # Cholesky is ten times as quick as the pseudoinverse
        if isinstance(self.decoder, Shrinkage):
            factor, failed = torch.linalg.cholesky_ex(gram)
            if not bool(failed.any()):
                return (torch.cholesky_solve(cross.mT, factor).mT - self.decoder.threshold).clamp(
                    min=0
                )
        return self.decoder.decode(cross, gram, sparsity)

"""Stepwise EM: parameters renewed after every few rows, as a start for exact EM on large data."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import StartsWarning
from inference.base.progress import Progress
from inference.base.steps import Steps
from inference.base.streaming.processes import Processes, numbers_of, with_numbers
from inference.base.streaming.row_blocks import BLOCK_ROWS, SAMPLE_ROWS, drawn_rows
from inference.base.structure import Capability
from inference.programs.program import Params
from ppl_models.parts.validation import check_number, check_size, plain_fields

if TYPE_CHECKING:
    from inference.base.structure import Problem


SEED_STRIDE = 1_000_003  # between the seeds of two passes
RANK_STRIDE = 7_368_787  # and of two processes


@dataclass(frozen=True)
class OnlineEM:
    r"""Stepwise EM (Cappe and Moulines 2009, doi:10.1111/j.1467-9868.2009.00698.x) before EM.

    An iteration of EM reads all N rows to renew the parameters once. Where rows are many, far fewer
    say where to go. Let :math:`s(x; \theta)` be the expected complete-data statistics of a row. EM
    is the search for a root of :math:`S = \sum_n s(x_n; \bar\theta(S))`, where the M-step

    .. math::

        \bar\theta(S) = \arg\max_\theta \; \langle S, \phi(\theta) \rangle - N A(\theta) + \log
        p(\theta)

    knows the rows by S alone. Batch t, of n_t rows, gives an unbiased estimate of that sum, and
    Robbins and Monro's average of these estimates finds the root:

    .. math::

        S_t = (1 - \gamma_t) S_{t-1} + \gamma_t \frac{N}{n_t} \sum_{n \in \text{batch } t} s(x_n;
        \theta_{t-1}), \qquad
        \theta_t = \bar\theta(S_t), \qquad \gamma_0 = 1, \; \gamma_t = (t + 2)^{-\kappa}.

    A weighted mean of statistics is the statistics of weighted rows, so that it is a point that the
    M-step may be given, counts that add up to N among them; and because it stands for N rows,
    priors and penalties weigh what they weigh for all rows. With :math:`\kappa` in (1/2, 1] the
    steps sum to infinity and their squares do not: the noise of batches dies out. One batch of all
    rows is one iteration of EM. An M-step that is itself one step uphill (Newton's, of encoders and
    noisy-OR models) makes one uphill on the averaged bound.

    What is averaged are the fields of the statistics that are sums over rows. Fields that are none
    are the same for all batches (the point about which moments are taken, the list of
    configurations) and stay as they are. Models some of whose fields hold one entry a row are
    refused.

    Rows are read in their order, block by block, and shuffled inside a block (65,536 rows where
    they lie in memory), by the seed: a table that is sorted by something is better shuffled once
    before. The last iterate is handed on, not a mean of iterates, which would still remember the
    start. A restart whose last iterate has a lower log-posterior than its start, on up to 20,000
    rows drawn at random, goes on from its start, with a :class:`~inference.StartsWarning`.

    Rows with weights count as often as these say. Where several processes share the rows, a batch
    has its share of each process's, in proportion, and its sums go around once a batch; every
    process takes the same step.

    With a checkpoint, the state of the passes lies beside it, in a file whose name ends in
    ``.online``.

    Args:
        passes: through all rows; one to three.
        batch_rows: rows of a batch (of all processes together), sequences in hidden Markov models.
            The last batch of a pass has up to twice as many, and less than this many rows are one
            batch.
        rate: :math:`\kappa` in (1/2, 1].

    Raises:
        ValueError: for settings out of range; at ``fit``, for models whose M-step wants more than
            sums over rows.
    """

    passes: int = 1
    batch_rows: int = 1_000
    rate: float = 0.6

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("OnlineEM", "passes", self.passes)
        check_size("OnlineEM", "batch_rows", self.batch_rows)
        check_number("OnlineEM", "rate", self.rate, "lie in (1/2, 1]", above=0.5, most=1)

    def check(self, problem: Problem) -> None:
        """Refuse problems without sums to average.

        Raises:
            ValueError: saying what to call instead.
        """
        if Capability.BLOCKS not in problem.structure.capabilities:
            raise ValueError(
                "OnlineEM: mixtures, hidden Markov models, encoders, latent attributes, noisy-OR"
                " models, factor analysis and OptionsHMM can start so, without negative binomial"
                " or bounded items, Student t components and covariates; the M-step of this"
                f" {type(problem.model).__name__} wants its rows and not only sums over them:"
                " fit(model, data, EM()) goes without"
            )

    def step(self, batch: int) -> float:
        r"""Step size :math:`\gamma_t` of a batch, counted from 0 over all passes."""
        return 1.0 if batch == 0 else (batch + 2) ** -self.rate

    def improved(
        self,
        problem: Problem,
        steps: Steps[Any],
        start: Params,
        progress: Progress,
        store: Checkpoint | None,
    ) -> Params:
        """Parameters at the end of the passes, (R, ...).

        Args:
            problem: model and data.
            steps: whose M-step is taken, and whose statistics are averaged.
            start: parameters, (R, ...).
            progress: is told an estimate of the objective at every batch.
            store: holds the state; None for no file.
        """
        _refuse_rows(problem, steps, start)
        state = None if store is None else store.load(OnlineState)
        state = OnlineState.begin(start) if state is None else state
        try:
            for after in self.iterates(problem, steps, state):
                state = after
                running = len(next(iter(start.values())))
                progress.update(state.batch, state.objective, running, engine="OnlineEM")
                if store is not None and state.batch % store.every == 0:
                    store.save(state)
                if progress.stopped:
                    break
        finally:
            if store is not None:
                store.save(state)
        return _not_below(problem, steps, start, state.params)

    def iterates(
        self, problem: Problem, steps: Steps[Any], state: OnlineState
    ) -> Iterator[OnlineState]:
        """Iterate over the states after each batch, from a state on."""
        per_pass = max(1, problem.num_rows // self.batch_rows)
        for number in range(state.batch // per_pass, self.passes):
            first = number * per_pass
            seen = max(0, state.batch - first)  # before the run was interrupted
            batches = itertools.islice(self._batches(problem, number, per_pass), seen, None)
            for _ in range(seen, per_pass):
                state = self.renewed(problem, steps, state, batches)
                yield state

    def renewed(
        self,
        problem: Problem,
        steps: Steps[Any],
        state: OnlineState,
        batches: Iterator[tuple[Tensor, Tensor | None]],
        num_rows: int | None = None,
    ) -> OnlineState:
        """State after the next of the batches, rows and their weights.

        Args:
            problem, steps, state: as elsewhere; ``num_rows``: N, where more are known of than the
                problem has.
        """
        statistics, found, log_likelihood, log_prior = _of_batch(
            problem, steps, state.params, batches, num_rows or problem.num_rows
        )
        averages = (
            torch.lerp(state.averages.to(found), found, self.step(state.batch))
            if state.batch
            else found
        )
        params = _finite(
            steps.m_step(with_numbers(statistics, averages), state.params), state.params
        )
        value = float((log_likelihood + log_prior.double()).max())
        return OnlineState(params, averages, state.batch + 1, value)

    def _batches(
        self, problem: Problem, number: int, per_pass: int
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Rows of one pass in batches with weights, as many batches in all processes."""
        processes = Processes() if problem.rows is None else problem.rows.processes
        generator = torch.Generator().manual_seed(
            (problem.seed + SEED_STRIDE * number + RANK_STRIDE * processes.rank) % 2**63
        )
        own_rows = problem.num_rows if problem.rows is None else len(problem.rows.blocks)
        if processes.group is None:
            ends = [self.batch_rows * (place + 1) for place in range(per_pass - 1)] + [own_rows]
        else:
            ends = [own_rows * (place + 1) // per_pass for place in range(per_pass)]
        held, weights, passed = (
            None,
            None,
            0,
        )  # rows read and not yet given, how often they count, and how many were given
        blocks = _blocks(problem)
        for end in ends:
            while held is None or passed + len(held) < end:
                block, often = next(blocks)
                order = torch.randperm(len(block), generator=generator).to(block.device)
                held = block[order] if held is None else torch.cat([held, block[order]])
                if often is not None:
                    weights = (
                        often[order] if weights is None else torch.cat([weights, often[order]])
                    )
            size = end - passed
            yield held[:size], None if weights is None else weights[:size]
            held, weights, passed = held[size:], None if weights is None else weights[size:], end


@dataclass(frozen=True)
class OnlineState:
    """State of interrupted passes: all that resuming needs.

    Args:
        params: (R, ...).
        averages: sums for N rows, in one vector; see
            :func:`inference.base.streaming.processes.numbers_of`.
        batch: batches done, over all passes.
        objective: of the best restart, as the last batch suggests it for all rows.
    """

    params: Params
    averages: Tensor
    batch: int
    objective: float

    @classmethod
    def begin(cls, start: Params) -> OnlineState:
        return cls(dict(start), torch.zeros(0, dtype=torch.float64), 0, 0.0)


def _blocks(problem: Problem) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Blocks of this process's rows, with their weights."""
    if problem.rows is not None:
        yield from problem.rows.weighted()
        return
    for first in range(0, len(problem.data), BLOCK_ROWS):
        part = slice(first, first + BLOCK_ROWS)
        yield problem.data[part], None if problem.weights is None else problem.weights[part]


def _of_batch(
    problem: Problem,
    steps: Steps[Any],
    params: Params,
    batches: Iterator[tuple[Tensor, Tensor | None]],
    num_rows: int,
) -> tuple[Any, Tensor, Tensor, Tensor]:
    """Statistics of the next batch scaled up to all N rows; log-prior (R,)."""

    def sums(rows: Tensor, weights: Tensor | None) -> dict[str, Any]:
        statistics, log_likelihood, log_prior = steps.on(rows, weights).e_step(params)
        return {
            "statistics": statistics,
            "likelihood": log_likelihood.double(),
            "rows": log_likelihood.new_full((), len(rows), dtype=torch.float64),
            "prior": log_prior * len(rows),
        }

    if problem.rows is None or problem.rows.processes.group is None:
        found = sums(*next(batches))
    else:

        def own() -> dict[str, Any] | None:
            rows, weights = next(batches)
            return sums(rows, weights) if len(rows) else None

        found = problem.rows.added(problem.rows.of_one(sums), own)
    scale = num_rows / float(found["rows"])
    return (
        found["statistics"],
        numbers_of(found["statistics"]) * scale,
        found["likelihood"] * scale,
        found["prior"] / found["rows"],
    )


def _finite(new: Params, old: Params) -> Params:
    """Replace non-finite restarts of new parameters by the old ones."""
    fine = torch.stack(
        [value.reshape(len(value), -1).isfinite().all(1) for value in new.values()]
    ).all(0)
    if bool(fine.all()):
        return new
    return {
        name: torch.where(fine.reshape(-1, *[1] * (value.dim() - 1)), value, old[name].to(value))
        for name, value in new.items()
    }


def beside(path: Path) -> Path:
    """Path of the passes' state, beside a checkpoint."""
    return path.with_name(f"{path.name}.online")


def _refuse_rows(problem: Problem, steps: Steps[Any], start: Params) -> None:
    """Refuse statistics that hold every row, as those of degrees of freedom do."""
    try:
        numbers_of(steps.on(problem.data[:1]).e_step(start)[0])
    except ValueError as error:
        raise ValueError(
            "OnlineEM: a model whose M-step wants no more than sums over rows was expected, and"
            f" that of {problem.model!r} reads the rows once more: fit(model, data, EM()) goes"
            " without"
        ) from error


def _not_below(problem: Problem, steps: Steps[Any], start: Params, end: Params) -> Params:
    """Keep the better of start and end for every restart."""
    rows, weights = problem.data, problem.weights
    if problem.rows is None and len(rows) > SAMPLE_ROWS:
        drawn = torch.as_tensor(
            drawn_rows(len(rows), SAMPLE_ROWS, problem.seed), device=rows.device
        )
        rows, weights = rows[drawn], None if weights is None else weights[drawn]
    own = steps.on(rows, weights)
    values = []
    for params in (start, end):
        _, log_likelihood, log_prior = own.e_step(params)
        values.append(log_likelihood.double() * (problem.num_rows / len(rows)) + log_prior.double())
    is_lower = ~(values[1] >= values[0])
    if not bool(is_lower.any()):
        return end
    warnings.warn(
        f"OnlineEM: the passes of {int(is_lower.sum())} of {len(is_lower)} starts ended below where"
        f" they began, on {len(rows):,} rows drawn at random, so exact EM goes on from where they"
        " began. Are the rows sorted, by group or date? Shuffle them once, or give OnlineEM larger"
        " batches",
        StartsWarning,
        stacklevel=2,
    )
    return {
        name: torch.where(
            is_lower.reshape(-1, *[1] * (value.dim() - 1)).to(value.device),
            start[name].to(value),
            value,
        )
        for name, value in end.items()
    }

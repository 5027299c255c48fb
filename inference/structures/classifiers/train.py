"""Engine: training of independent classifiers by gradients of sums over rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning, EstimateWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import Problem
from inference.programs.global_state import isolated
from inference.programs.program import Params
from inference.structures.classifiers.gradients import (
    FLOOR,
    Anchor,
    Balance,
    Objective,
    RowTerms,
    Shift,
)
from inference.structures.classifiers.networks import MOST_RESIDENT, Rows, networks_of
from inference.structures.classifiers.output_layers import Direction, OutputLayers
from inference.structures.classifiers.regularizers import (
    CrossTotalCorrelation,
    Labels,
    WeightPenalty,
)
from ppl_models.descriptions.classifiers import ClassifierDescription
from ppl_models.parts.validation import (
    check_flag,
    check_kind,
    check_number,
    check_size,
    plain_fields,
)

DECAY = 0.2  # of the learning rate where nothing is gained any more


@dataclass(eq=False)
class Course:
    """State of R restarts after some epochs.

    Args:
        theta: weights of the networks, (P,); first, second: Adam's moments; step: steps taken.
        average, omega_average: averages of ``theta`` and ``omega`` over about the last epoch's
            steps.
        omega: logits of the weights, (R, C), and their moments; they stay at zero where weights are
            no parameters.
        best: objective of the best epoch, (R,), and its weights; last: of the last epoch.
        waited: epochs without a gain, (R,); decays: times the learning rate was cut, (R,);
            learning_rate, active: (R,).
        history, history_train: the objective, and the log-likelihood ratio of the training rows,
            (epochs, R).
        generator: state of the order of the rows.
    """

    theta: Tensor
    average: Tensor
    omega_average: Tensor
    first: Tensor
    second: Tensor
    omega: Tensor
    omega_first: Tensor
    omega_second: Tensor
    best: Tensor
    last: Tensor
    best_theta: Tensor
    best_omega: Tensor
    waited: Tensor
    decays: Tensor
    learning_rate: Tensor
    active: Tensor
    history: Tensor
    history_train: Tensor
    generator: Tensor
    step: int = 0

    @classmethod
    def begin(
        cls,
        theta: Tensor,
        start: Params,
        num_restarts: int,
        learning_rate: float,
        generator: Generator,
    ) -> Course:
        """Initial state, before the first epoch."""
        weights = start["weights"].to(theta.device)
        zero = torch.zeros(num_restarts, dtype=torch.float64)
        count = torch.zeros(num_restarts, dtype=torch.long)
        omega, none = weights.log(), torch.zeros_like(weights)
        return cls(
            theta.clone(),
            theta.clone(),
            omega.clone(),
            torch.zeros_like(theta),
            torch.zeros_like(theta),
            omega,
            none,
            none.clone(),
            zero - torch.inf,
            zero - torch.inf,
            theta.clone(),
            omega.clone(),
            count,
            count.clone(),
            zero + learning_rate,
            count == 0,
            zero.new_zeros(0, num_restarts),
            zero.new_zeros(0, num_restarts),
            generator.get_state(),
        )

    def to(self, like: Tensor) -> Course:
        """Move the networks' tensors to their device."""
        for name in (
            "theta",
            "average",
            "omega_average",
            "first",
            "second",
            "omega",
            "omega_first",
            "omega_second",
            "best_theta",
            "best_omega",
        ):
            setattr(self, name, getattr(self, name).to(like))
        return self

    def look(
        self,
        theta: Tensor,
        omega: Tensor,
        value: Tensor,
        of_training: Tensor,
        owner: Tensor,
        tolerance: float,
        patience: int | None,
        num_decays: int,
    ) -> None:
        """Record an epoch's objectives: keep the best weights, slow down or stop restarts.

        ``theta``: weights (P,); ``omega``: (R, C); ``value``: the objective, (R,); ``of_training``:
        their log-likelihood, (R,); ``owner``: restart of each entry of ``theta``; ``tolerance``,
        ``patience``, ``num_decays``: what counts as a gain, and what is done without one, as in
        :class:`inference.TrainClassifiers`.
        """
        value = value.double().cpu()
        self.history = torch.cat([self.history, torch.where(self.active, value, torch.nan)[None]])
        self.history_train = torch.cat(
            [
                self.history_train,
                torch.where(self.active, of_training.double().cpu(), torch.nan)[None],
            ]
        )
        self.last = value
        gains = self.active & (value > self.best + tolerance)
        better = self.active & (value > self.best)
        self.best = torch.where(better, value, self.best)
        moved = better.to(owner.device)
        self.best_theta = torch.where(moved[owner], theta, self.best_theta)
        self.best_omega = torch.where(moved[:, None], omega, self.best_omega)
        if patience is None:
            return
        self.waited = torch.where(gains, 0, self.waited + 1)
        tired = self.active & (self.waited >= patience)
        self.active = self.active & ~(tired & (self.decays >= num_decays))
        self.decays = self.decays + tired.long()
        self.learning_rate = torch.where(tired, self.learning_rate * DECAY, self.learning_rate)
        self.waited = torch.where(tired, 0, self.waited)


FIRST_STRETCH = 32  # steps after which the anchor is dropped again, at first
LEAST_STEPS = 20  # of an epoch, however few the rows
CHUNK = 2**21  # rows times variates times units times restarts in one evaluation
MOST_STORED = 2**27  # numbers of a pass over the rows that are kept for its second half
# steps of free weights at most, the change that ends them, and the least weight
MOST_WEIGHT_STEPS, WEIGHT_CHANGE, LEAST_WEIGHT = 500, 1e-6, 1e-12
LEAST_HELD = 50  # held-out rows that say whether there are components at all
# of the log-likelihood of all rows that a last step is worth: a weight off by half of its standard
# error costs as much
LEAST_GAIN = 0.1
MOST_HALVINGS = 8  # of a last step
BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class TrainClassifiers:
    r"""Gradient descent on the cross total correlation, all restarts as one batch.

    The cost of all rows has their means :math:`\phi` inside logarithms, so the cost of a mini-batch
    by itself is biased, the more the smaller the batch and the more components there are. Given
    :math:`\phi` and the mean posterior r of the components, a surrogate that is linear in the rows
    has the gradient of the cost of all rows. These means are computed
    from all rows after every epoch, at weights :math:`\tilde\theta`, and followed from step to step
    by one of

    - "anchored": that of the batch, corrected by what is known of all rows at :math:`\tilde\theta`,
      as far as the outputs there still go with those now: a control variate, without delay
      (:mod:`inference.structures.classifiers.gradients`);
    - "moving": an average over about the last ``memory_batches`` batches. Its delay can feed on
      itself while the networks move fast: with 50 batches of 50 rows two normals collapsed into one
      component, with 5 and 10 they did not. Also what stands in for "anchored" where the outputs
      for all rows are too many to keep (more than 2^27 numbers: two million rows of three variates,
      four components and four starts);
    - "batch": the means of the batch, which is the biased cost of the batch by itself.

    With ``batch_size=None`` every step takes all rows, in two passes.

    A share of the rows is held out. After every epoch (one pass through the other rows, and at
    least 20 steps) their log-likelihood ratio is looked at; a restart keeps its best weights,
    learns more slowly after ``patience`` epochs without a gain, and stops after ``num_decays`` of
    these. Steps are Adam's (Kingma and Ba 2015). Then the output layers are taken to the optimum by
    Newton's method (:mod:`inference.structures.classifiers.output_layers`) as far as held-out rows
    do not clearly lose by it: components that overlap much leave a direction so flat that steps on
    batches end at random places of it. At the end :math:`\phi` is computed once from all rows.

    Free weights of components end at their maximum for these networks.

    Components are named by their weights, the largest first; where there are labels, or parameters
    to start from, these name them.

    ``fit.objective`` is the held-out log-likelihood ratio per row of the reported restart,
    ``fit.trace.objective`` its course, and ``fit.trace.log_likelihood`` the log-likelihood ratio of
    the training rows beside it.

    Args:
        cost: :class:`CrossTotalCorrelation`; None to learn from ``labels`` alone.
        penalties: wishes about the weights: :class:`EvenWeights`, :class:`KnownWeights`.
        labels: labels of some rows.
        batch_size: rows a step; None for all.
        estimates: "anchored", "moving" or "batch".
        memory_batches: batches that moving averages remember.
        max_epochs: at most so many.
        patience: epochs without a gain of the held-out objective; None trains ``max_epochs`` and
            keeps the last weights.
        num_decays: times that the learning rate is cut to a fifth before a restart stops.
        tolerance: what counts as a gain, in nats a row.
        validation_share: of the rows; 0 holds none out, and looks at the training rows instead.
        learning_rate: of Adam.
        average: look at, and keep, averages of the weights over about the last epoch's steps, which
            have lost the noise of the batches; not where every step takes all rows.
        last_steps: steps of Newton's method for the output layers, on all rows, that end the
            training (at most; until the log-likelihood of all training rows would gain less than
            0.1, or ``tolerance`` a row); 0 leaves them out. Weights of components that overlap much
            hang on these. Where there are labels or penalties, or networks do not know what their
            outputs are linear in, there are none.
        device: where the networks run, such as "cuda"; that of the data if None.
        most_resident: numbers of the data kept on the device; more are fetched from memory or file
            block by block.

    Raises:
        ValueError: for settings out of range; at ``fit``, for labels or weights that do not fit the
            rows or components.
    """

    cost: CrossTotalCorrelation | None = CrossTotalCorrelation()
    penalties: tuple[WeightPenalty, ...] = ()
    labels: Labels | None = None
    batch_size: int | None = 500
    estimates: Literal["anchored", "moving", "batch"] = "anchored"
    memory_batches: int = 5
    max_epochs: int = 300
    patience: int | None = 10
    num_decays: int = 2
    tolerance: float = 1e-5
    validation_share: float = 0.1
    learning_rate: float = 1e-3
    average: bool = True
    last_steps: int = 12
    device: str | None = None
    most_resident: int = MOST_RESIDENT

    def __post_init__(self) -> None:
        owner = "TrainClassifiers"
        plain_fields(self)
        if self.cost is not None:
            check_kind(
                owner, "cost", self.cost, CrossTotalCorrelation, "CrossTotalCorrelation() or None"
            )
        elif self.labels is None:
            raise ValueError(f"{owner}: without a cost there must be labels to learn from")
        if not isinstance(self.penalties, tuple):
            object.__setattr__(self, "penalties", (self.penalties,))
        for penalty in self.penalties:
            if isinstance(penalty, type) or not isinstance(penalty, WeightPenalty):
                raise ValueError(
                    f"{owner}: penalties must be EvenWeights() or KnownWeights(...), got"
                    f" {penalty!r}"
                )
        if self.labels is not None:
            check_kind(owner, "labels", self.labels, Labels, "Labels(...) or None")
        for name in ("batch_size", "patience"):
            if getattr(self, name) is not None:
                check_size(owner, name, getattr(self, name), wanted="a positive integer or None")
        for name in ("num_decays", "last_steps", "most_resident"):
            check_size(owner, name, getattr(self, name), least=0)
        for name in ("memory_batches", "max_epochs"):
            check_size(owner, name, getattr(self, name))
        check_number(owner, "tolerance", self.tolerance, "be 0 or more", least=0)
        check_number(
            owner, "validation_share", self.validation_share, "lie in [0, 1)", least=0, below=1
        )
        check_number(owner, "learning_rate", self.learning_rate, "be positive and finite", above=0)
        if self.estimates not in ("anchored", "moving", "batch"):
            raise ValueError(
                f"{owner}: estimates must be 'anchored', 'moving' or 'batch', got"
                f" {self.estimates!r}"
            )
        check_flag(owner, "average", self.average)
        self._check_device(owner)

    def _check_device(self, owner: str) -> None:
        if self.device is None:
            return
        try:
            known = isinstance(self.device, str) and torch.device(self.device) is not None
        except RuntimeError:  # a name that torch does not know
            known = False
        if not known:
            raise ValueError(
                f"{owner}: device must be a name such as 'cuda', or None, got {self.device!r}"
            )

    @property
    def max_iterations(self) -> int:
        """Epochs."""
        return self.max_epochs

    @property
    def objective_name(self) -> str:
        """Name of the objective, per row."""
        if self.cost is not None:
            what = "log-likelihood ratio to independence"
        else:
            what = "log-probability of the labels"
        what += " and of the labels" if self.cost is not None and self.labels is not None else ""
        return f"{'held-out ' if self.validation_share else ''}{what} per row"

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Train every restart from ``start`` (R, ...)."""
        about = problem.structure.about
        if not isinstance(about, ClassifierDescription):
            raise ValueError(
                "TrainClassifiers: a model of independent classifiers was expected, got"
                f" {type(problem.model).__name__}"
            )
        if checkpoint is None:
            store = None
        else:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start), every=1)
        with torch.no_grad(), isolated(problem.seed):
            training = _Training(self, about, problem, start)
            course = training.optimise(progress, store)
            outcome = replace(
                training.outcome(course, start),
                is_named=self.labels is not None or problem.start_given,
            )
            best = int(outcome.objective.nan_to_num(nan=-math.inf).argmax())
            gain, error = training.held_out_gain(course, best)
        if gain < 2 * error:
            warnings.warn(
                f"the {len(training.held):,} held-out rows are not clearly "
                "likelier under these components than if the variates were "
                f"independent ({gain:.2g} nats a row, standard "
                f"error {error:.2g}). Then weights and components may mean "
                "nothing: inference.selection.total_correlation(data) tests "
                "whether the variates depend on each "
                "other at all; where they do, train on more rows or with smaller networks",
                EstimateWarning,
                stacklevel=3,
            )
        unfinished = self.patience is not None and not outcome.converged[best]
        if unfinished and not progress.stopped:
            warnings.warn(
                f"the best restart still gained after {self.max_epochs} epochs: raise max_epochs",
                ConvergenceWarning,
                stacklevel=3,
            )
        return outcome


def on_rows(method: Any, index: Tensor) -> Any:
    """The same engine for some of the rows: with their labels, where it has any.

    ``method``: any engine, or None; ``index``: (n,), which rows.
    """
    if not isinstance(method, TrainClassifiers) or method.labels is None:
        return method
    return replace(method, labels=replace(method.labels, values=method.labels.values[index]))


def _on(device: str, tensor: Tensor) -> Tensor:
    try:
        moved = tensor.to(device)
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
    ) as error:  # no such name, or none in this machine
        raise ValueError(
            f"TrainClassifiers: device={device!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from error
    if moved.is_meta:
        raise ValueError("TrainClassifiers: device must hold numbers, got 'meta'")
    return moved


class _Training:
    """The state of a run that follows from its arguments, and the work of an epoch.

    Args:
        method: the settings; about: the model's description; problem: with the data; start: (R,
            ...).
    """

    def __init__(
        self,
        method: TrainClassifiers,
        about: ClassifierDescription,
        problem: Problem,
        start: Params,
    ) -> None:
        self.method, self.about = method, about
        home = start["weights"]
        like = home if method.device is None else _on(method.device, home)
        self.networks = networks_of(
            about, {site: start[site].to(like.device) for site in about.network_sites}
        )
        statistics = {name: start[name][0] for name in about.scaling_sites}
        labels = method.labels
        num_rows = problem.num_rows
        if labels is not None:
            labels.check(num_rows, about.num_components)
        for penalty in method.penalties:
            penalty.check(about.num_components)
        if method.cost is not None and method.cost.consistency and about.weights != "geometric":
            raise ValueError(
                "CrossTotalCorrelation: consistency is for weights='geometric', which follow from"
                " the pseudo-weights"
            )
        self.rows = Rows(
            about,
            problem.data,
            statistics,
            self.networks,
            None if labels is None else labels.values,
            like,
            method.most_resident,
        )
        generator = torch.Generator().manual_seed(problem.seed)
        order = torch.randperm(num_rows, generator=generator)
        if method.validation_share:
            num_held = min(num_rows - 1, max(1, round(method.validation_share * num_rows)))
        else:
            num_held = 0
        self.held, self.kept = order[:num_held].sort().values, order[num_held:].sort().values
        self.generator = generator
        num_labelled = 0 if labels is None else int((labels.values[self.kept] >= 0).sum())
        self.objective = Objective(
            about, method.cost, method.penalties, labels,
            labels.strength * len(self.kept) / max(1, num_labelled) if labels is not None else 0.0,
            None if labels is None else labels.log_chances(about.num_components, like),
        )  # fmt: skip
        self.start, self.num_restarts = start, len(home)
        self.gradient = torch.zeros_like(self.networks.theta)
        self.batch = (
            len(self.kept) if method.batch_size is None else min(method.batch_size, len(self.kept))
        )
        self.is_full = self.batch == len(self.kept)
        self.averages = method.average and not self.is_full
        self.steps_an_epoch = max(LEAST_STEPS, len(self.kept) // self.batch)
        width = max(
            [
                about.num_components,
                *(
                    math.prod(shape[1:-1])
                    for group in about.groups
                    for shape in group.shapes.values()
                    if len(shape) > 2
                ),
            ]
        )
        self.chunk = max(1, CHUNK // (width * about.num_variates * self.num_restarts))
        numbers = (
            self.num_restarts * (about.num_variates + 1) * len(self.kept) * about.num_components
        )
        self.is_anchored = (
            method.estimates == "anchored" and numbers <= MOST_STORED and not self.is_full
        )
        self.rate = (
            1.0 if self.is_anchored or method.estimates == "batch" else 1.0 / method.memory_batches
        )
        self.anchor: Anchor | None = None

    # ---------------------------------------------------------------- passes over rows

    def logits(self, course: Course) -> Tensor | None:
        """Log-weights of a model whose weights do not follow from its pseudo-weights, (R, C)."""
        return course.omega.log_softmax(-1) if self.about.weights != "geometric" else None

    def balance(
        self, course: Course, index: Tensor, drop_anchor: bool = False
    ) -> tuple[Balance, Tensor]:
        """Statistics of all rows of ``index`` and their objective, (R,); an anchor if asked for."""
        outputs: list[Tensor] | None = [] if drop_anchor and self.is_anchored else None
        log_weights = self.logits(course)
        total: Tensor | float = 0.0
        seen: Tensor | None = None
        stored: list[Tensor] | None = (
            []
            if len(index) * self.num_restarts * self.about.num_components <= MOST_STORED
            else None
        )
        for prepared, terms, _ in self.rows.batches(index, self.chunk):
            log_scores, scores = self._scores(prepared, terms, keep=False)
            total = total + scores.sum(2)
            if outputs is not None:
                outputs.append(scores)
            if terms.seen is None:
                own = torch.full(
                    (self.about.num_variates,),
                    float(scores.shape[2]),
                    dtype=scores.dtype,
                    device=scores.device,
                )
            else:
                own = terms.seen.sum(1)
            seen = own if seen is None else seen + own
            if self.objective.labels is not None or terms.seen is not None:
                stored = None  # the second half needs more than sums over variates
            if stored is not None:
                stored.append(log_scores.sum(1))
        if seen is None or isinstance(total, float):
            raise ValueError("TrainClassifiers: no rows were given")
        phi = (total / seen[:, None]).clamp(min=FLOOR)
        share = None if bool((seen == len(index)).all()) else (seen / len(index)).unsqueeze(-1)
        balance = Balance(
            phi, phi.new_zeros(self.num_restarts, 1, self.about.num_components), log_weights, share
        )
        pulls: list[Tensor] | None = None if outputs is None else []
        value = self._second_pass(balance, index, stored, pulls)
        if outputs is None or pulls is None:
            self.anchor = None
        else:
            self.anchor = Anchor(torch.cat(outputs, 2), torch.cat(pulls, 1), phi, balance.pull)
        return balance, value

    def _second_pass(
        self,
        balance: Balance,
        index: Tensor,
        stored: list[Tensor] | None,
        pulls: list[Tensor] | None = None,
    ) -> Tensor:
        """Pulls of all rows, in place, and their objective; ``pulls`` keeps each row's."""
        log_phi = balance.phi.log()
        log_weights = self.objective.log_weights(balance, log_phi)
        pull: Tensor | float = 0.0
        ratio, label, labelled = torch.zeros(3, self.num_restarts, dtype=torch.float64).unbind()
        if stored is not None:
            base = (log_weights - log_phi.sum(1)).unsqueeze(1)
            parts = ((summed.add_(base), None, RowTerms()) for summed in stored)
        else:
            parts = self._joints(index, log_phi, log_weights)
        for joint, log_scores, terms in parts:
            own = self.objective.row_pulls(joint, terms)
            if pulls is not None:
                pulls.append(own)
            pull = pull + self.objective.total_pull(own, terms) * (joint.shape[1] / len(index))
            values = self.objective.values(joint, log_scores, terms)
            ratio, label, labelled = (
                a + b.cpu() for a, b in zip((ratio, label, labelled), values, strict=True)
            )
        balance.pull = pull  # type: ignore[assignment]
        out = torch.zeros_like(ratio)
        if self.objective.cost is not None:
            out = out + ratio / len(index)
        if self.objective.labels is not None:
            strength = 1.0 if self.objective.cost is None else self.objective.labels.strength
            out = out + strength * label / labelled.clamp(min=1)
        return out

    def _joints(self, index: Tensor, log_phi: Tensor, log_weights: Tensor) -> Any:
        for prepared, terms, _ in self.rows.batches(index, self.chunk):
            log_scores, _ = self._scores(prepared, terms, keep=False)
            yield self.objective.joint(log_scores, log_phi, log_weights, terms), log_scores, terms

    def _scores(self, prepared: Any, terms: RowTerms, keep: bool) -> tuple[Tensor, Tensor]:
        """Log-outputs and outputs, (R, V, n, C), zero where a variate is missing."""
        log_scores = self.networks.log_scores(prepared, keep)
        if terms.seen is None:
            return log_scores, log_scores.exp()
        mask = terms.seen.unsqueeze(-1)
        return log_scores * mask, log_scores.exp() * mask

    def held_out(self, course: Course, balance: Balance) -> Tensor:
        """The objective of a held-out row at the training rows' statistics, (R,)."""
        pull = balance.pull
        value = self._second_pass(balance, self.held, None)
        balance.pull = pull
        return value

    def held_out_gain(self, course: Course, restart: int) -> tuple[float, float]:
        """Mean held-out log-likelihood ratio and standard error; 0, 0 of too few rows."""
        if self.method.cost is None or len(self.held) < LEAST_HELD:
            return 0.0, 0.0
        balance, _ = self.balance(course, self.kept)
        rows = self._held_out_ratios(balance)[restart]
        return float(rows.mean()), float(rows.std()) / math.sqrt(len(rows))

    def _held_out_ratios(self, balance: Balance) -> Tensor:
        """The log-likelihood ratio of every held-out row, (R, n)."""
        log_phi = balance.phi.log()
        parts = self._joints(self.held, log_phi, self.objective.log_weights(balance, log_phi))
        return torch.cat([joint.logsumexp(-1).double().cpu() for joint, _, _ in parts], 1)

    # ---------------------------------------------------------------- steps

    def optimise(self, progress: Progress, store: Checkpoint | None) -> Course:
        """Run epochs until every restart has stopped."""
        course = store.load(Course) if store is not None else None
        if course is None:
            course = Course.begin(
                self.networks.theta,
                self.start,
                self.num_restarts,
                self.method.learning_rate,
                self.generator,
            )
        course = course.to(self.gradient)
        self.networks.theta.copy_(course.theta)
        self.generator.set_state(course.generator)
        with self._at_average(course):
            balance, value = self.balance(course, self.kept, drop_anchor=True)
        balance.log_weights = self.logits(course)
        if not len(course.history):
            course.best = self.held_out(course, balance) if len(self.held) else value
        method = self.method
        while (
            len(course.history) < method.max_epochs
            and bool(course.active.any())
            and not (progress.stopped and len(course.history))
        ):
            self._epoch(course, balance)
            with self._at_average(course):
                balance, value = self.balance(course, self.kept, drop_anchor=True)
                held = self.held_out(course, balance) if len(self.held) else value
                own = (
                    self.networks.theta,
                    course.omega,
                    held,
                    value * len(self.kept),
                    self.networks.owner,
                )
                course.look(*own, method.tolerance, method.patience, method.num_decays)
            balance.log_weights = self.logits(course)
            progress.update(
                len(course.history),
                objective=float(course.best.max()),
                active=int(course.active.sum()),
                engine="TrainClassifiers",
            )
            if store is not None and len(course.history) % store.every == 0:
                course.theta, course.generator = self.networks.theta, self.generator.get_state()
                store.save(course)
        return course

    @contextmanager
    def _at_average(self, course: Course) -> Iterator[None]:
        """The networks with the average of their last weights, where such are kept."""
        if not self.averages or not course.step:
            yield
            return
        theta, omega = self.networks.theta.clone(), course.omega
        self.networks.theta.copy_(course.average)
        course.omega = course.omega_average
        yield
        self.networks.theta.copy_(theta)
        course.omega = omega

    def _epoch(self, course: Course, balance: Balance) -> None:
        rate = course.learning_rate[self.networks.owner.cpu()].to(self.gradient)
        rate = rate if self.num_restarts > 1 else rate[:1]
        if self.is_full:
            for _ in range(LEAST_STEPS):
                self._full_step(course, rate)
            return
        steps = 0
        while steps < LEAST_STEPS:
            order = torch.randperm(len(self.kept), generator=self.generator)
            for begin, end in self._stretches(course, balance, order):
                for prepared, terms, place in self.rows.batches(
                    self.kept[order[begin:end]], self.batch
                ):
                    chosen = order[begin + place.start : begin + place.stop]
                    if self.anchor is None:
                        shift = None
                    else:
                        shift = self.anchor.shift(
                            chosen.to(self.gradient.device), balance.seen_share, terms.seen
                        )
                    self._step(course, balance, prepared, terms, rate, shift)
                    steps += 1

    def _stretches(
        self, course: Course, balance: Balance, order: Tensor
    ) -> Iterator[tuple[int, int]]:
        """The batches of one pass in stretches, as places in ``order``.

        In the first pass the networks move fast, and the anchor is dropped again after 32, 64, 128,
        ... steps.

        Too few rows for a step are left out; another order will have them.
        """
        whole, begin = len(order) // self.batch, 0
        while begin < whole:
            if self.is_anchored and course.step < whole:
                end = min(whole, max(2 * begin, FIRST_STRETCH))
            else:
                end = whole
            if begin:
                fresh, _ = self.balance(course, self.kept, drop_anchor=True)
                balance.phi, balance.pull = fresh.phi, fresh.pull
            yield begin * self.batch, end * self.batch
            begin = end

    def _step(
        self,
        course: Course,
        balance: Balance,
        prepared: Any,
        terms: RowTerms,
        rate: Tensor,
        shift: Shift | None,
    ) -> None:
        """One step on a batch."""
        objective = self.objective
        log_scores, scores = self._scores(prepared, terms, keep=True)
        own = scores.mean(2) if balance.seen_share is None else scores.mean(2) / balance.seen_share
        balance.phi = (
            balance.phi.lerp(own, self.rate) if shift is None else shift.phi_of(scores, own)
        ).clamp_(min=FLOOR)
        log_phi = balance.phi.log()
        log_weights = objective.log_weights(balance, log_phi)
        pull = objective.row_pulls(objective.joint(log_scores, log_phi, log_weights, terms), terms)
        mean_pull = objective.total_pull(pull, terms)
        if shift is None:
            balance.pull = balance.pull.lerp(mean_pull, self.rate)
        else:
            balance.pull = shift.pull_of(pull, mean_pull)
        slope = objective.slope(log_scores, scores, pull, balance, log_weights, terms)
        self.networks.add_gradient(
            slope.mul_(1.0 / log_scores.shape[2]), log_scores, scores, self.gradient, add=False
        )
        self._descend(course, balance, log_weights, rate)

    def _full_step(self, course: Course, rate: Tensor) -> None:
        """One step on all training rows, in two passes."""
        balance, _ = self.balance(course, self.kept)
        log_phi = balance.phi.log()
        log_weights = self.objective.log_weights(balance, log_phi)
        for number, (prepared, terms, _) in enumerate(self.rows.batches(self.kept, self.chunk)):
            log_scores, scores = self._scores(prepared, terms, keep=True)
            pull = self.objective.row_pulls(
                self.objective.joint(log_scores, log_phi, log_weights, terms), terms
            )
            slope = self.objective.slope(log_scores, scores, pull, balance, log_weights, terms)
            self.networks.add_gradient(
                slope.mul_(1.0 / len(self.kept)), log_scores, scores, self.gradient, add=number > 0
            )
        self._descend(course, balance, log_weights, rate)

    def _descend(self, course: Course, balance: Balance, log_weights: Tensor, rate: Tensor) -> None:
        """One Adam step along the gradient of the cost and the networks' prior, in place."""
        theta, gradient = self.networks.theta, self.gradient
        gradient.add_(theta, alpha=1.0 / (self.about.prior_scale**2 * len(self.kept)))
        course.step += 1
        _adam(theta, gradient, course.first, course.second, course.step, rate)
        if self.about.weights == "free" and self.method.cost is not None:
            slope = self.objective.of_logits(balance, log_weights)
            own = course.learning_rate.to(slope).unsqueeze(-1)
            _adam(course.omega, slope, course.omega_first, course.omega_second, course.step, own)
            balance.log_weights = course.omega.log_softmax(-1)
        if self.averages:
            rate_of_average = max(1.0 / course.step, 1.0 / self.steps_an_epoch)
            course.average.lerp_(theta, rate_of_average)
            course.omega_average.lerp_(course.omega, rate_of_average)

    # ---------------------------------------------------------------- the end

    def _last_steps(self, course: Course, objective: Tensor) -> Tensor:
        """Newton's method for the output layers; the objective (R,) of the kept weights.

        They are the last whose held-out rows are not less likely than before the first step by more
        than the standard error of the difference: the epoch that they start from was chosen by
        these rows, and is a little lucky with them.
        """
        method, networks = self.method, self.networks
        layers = OutputLayers(self.objective, networks, self.rows, self.chunk)
        if not method.last_steps or not self.objective.is_likelihood or not layers.usable():
            return objective
        owner, best_theta, best_omega = networks.owner, networks.theta.clone(), course.omega
        balance, value = self.balance(course, self.kept)
        first = self._held_out_ratios(balance) if len(self.held) else None
        for _ in range(method.last_steps):
            log_weights = self.objective.log_weights(balance, balance.phi.log())
            step = layers.direction(
                self.kept, balance, log_weights, 1.0 / (self.about.prior_scale**2 * len(self.kept))
            )
            if float(step.gain.max()) < min(method.tolerance, LEAST_GAIN / len(self.kept)):
                break
            before = value
            balance, value = self._along(course, step, before)
            if first is None:
                held, better = value.double().cpu(), (value > before).cpu()
            else:
                rows = self._held_out_ratios(balance)
                held, change = rows.mean(1), rows - first
                better = (value > before).cpu() & (
                    change.mean(1) >= -change.std(1) / math.sqrt(change.shape[1])
                )
            objective, moved = torch.where(better, held, objective), better.to(owner.device)
            best_theta = torch.where(moved[owner], networks.theta, best_theta)
            best_omega = torch.where(moved[:, None], course.omega, best_omega)
            if not bool((value > before).any()):
                break
        networks.theta.copy_(best_theta)
        course.omega = best_omega
        return objective

    def _best_weights(self, course: Course, objective: Tensor) -> Tensor:
        r"""Free weights at their maximum for the kept networks, in place; their objective, (R,).

        Steps on batches move the logits by the learning rate each: the weights of an early epoch
        are still near those of the start. Given the networks the slope by the logits is
        :math:`p_i - w_i \sum_j p_j`, p the mean pulls less the slopes of the penalties, and zero at
        :math:`w = p / \sum_j p_j`. For the likelihood alone going there is a step of EM; a step
        that lowers the objective is halved.
        """
        if self.about.weights != "free" or self.method.cost is None:
            return objective
        balance, _ = self.balance(course, self.kept)
        omega = course.omega.log_softmax(-1)
        some = self.kept[:: -(-len(self.kept) * omega.numel() // MOST_STORED)]
        parts = list(self._joints(some, balance.phi.log(), torch.zeros_like(omega)))
        ratios = torch.cat([joint for joint, _, _ in parts], 1)
        labels = [terms.labels for _, _, terms in parts if terms.labels is not None]
        of_rows = self.objective.labels is not None and self.objective.labels.on == "row"
        terms = RowTerms(labels=torch.cat(labels) if of_rows else None)
        size = torch.ones(self.num_restarts, 1).to(omega)
        value = self._of_weights(ratios, omega, terms)
        for _ in range(MOST_WEIGHT_STEPS):
            goal = self.objective.row_pulls(ratios + omega.unsqueeze(1), terms).mean(1)
            for penalty in self.objective.penalties:
                goal = goal - penalty.slope(omega)
            step = size * (goal.clamp(min=LEAST_WEIGHT).log().log_softmax(-1) - omega)
            moved = (omega + step).log_softmax(-1)
            change = float((moved.exp() - omega.exp()).abs().max())
            if change < WEIGHT_CHANGE:
                break
            new = self._of_weights(ratios, moved, terms)
            rises = (new >= value).unsqueeze(-1)
            omega, value = torch.where(rises, moved, omega), torch.maximum(new, value)
            size = torch.where(rises, (2 * size).clamp(max=1.0), 0.5 * size)
        course.omega = omega
        balance, of_kept = self.balance(course, self.kept)
        return self.held_out(course, balance) if len(self.held) else of_kept.double().cpu()

    def _of_weights(self, ratios: Tensor, log_weights: Tensor, terms: RowTerms) -> Tensor:
        """Objective of log-weights (R, C) a row less the penalties, (R,), up to a constant."""
        joint = ratios + log_weights.unsqueeze(1)
        ratio, label, labelled = self.objective.values(joint, None, terms)
        value = ratio / joint.shape[1]
        if terms.labels is not None and self.objective.labels is not None:
            count = labelled.clamp(min=1).to(label)
            value = value + self.objective.labels.strength * label / count
        for penalty in self.objective.penalties:
            value = value - penalty.value(log_weights)
        return value

    def _along(self, course: Course, step: Direction, before: Tensor) -> tuple[Balance, Tensor]:
        """Statistics and objective after a step, halved until it rises or left out."""
        owner, theta, omega = self.networks.owner, self.networks.theta.clone(), course.omega
        change, size = self.networks.packed(step.networks), torch.ones_like(before)
        for halvings in range(MOST_HALVINGS + 1):
            self.networks.theta.copy_(theta + size.to(theta)[owner] * change)
            if step.logits is not None:
                course.omega = omega + size.to(omega).unsqueeze(-1) * step.logits.to(omega)
            balance, value = self.balance(course, self.kept)
            falls = ~(value > before) & (size > 0)
            if not bool(falls.any()):
                break
            size = torch.where(falls, 0.5 * size if halvings < MOST_HALVINGS - 1 else 0.0, size)
        return balance, value

    def outcome(self, course: Course, start: Params) -> Outcome:
        """Outcome: the best weights of every restart, with statistics of all rows."""
        keep_last = self.method.patience is None
        home = start["weights"]
        if keep_last and self.averages:
            self.networks.theta.copy_(course.average)
            course.omega = course.omega_average
        if not keep_last:
            self.networks.theta.copy_(course.best_theta)
            course.omega = course.best_omega
        self.anchor = None
        objective = self._last_steps(course, course.last if keep_last else course.best)
        objective = self._best_weights(course, objective)
        every = torch.arange(self.rows.num_rows)
        balance, _ = self.balance(course, every)
        log_phi = balance.phi.log()
        log_weights = self.objective.log_weights(balance, log_phi)
        ratio = torch.zeros(self.num_restarts, dtype=torch.float64)
        for joint, _, _ in self._joints(every, log_phi, log_weights):
            ratio = ratio + joint.logsumexp(-1).double().sum(-1).cpu()
        params = {
            "pseudo_weights": balance.phi / balance.phi.sum(-1, keepdim=True),
            "weights": log_weights.exp(),
        }
        params |= {
            name: start[name][:1].expand_as(start[name]) for name in self.about.scaling_sites
        }
        params |= self.networks.params(self.networks.theta)
        params = {name: params[name].to(home).clone() for name in start}
        iterations = (~course.history.isnan()).sum(0)
        converged = ~course.active if not keep_last else torch.ones_like(course.active)
        return Outcome(
            params,
            objective.clone(),
            self.method.objective_name,
            ratio,
            course.history,
            course.history_train,
            converged,
            iterations,
        )


def _adam(
    theta: Tensor, gradient: Tensor, first: Tensor, second: Tensor, step: int, rate: Tensor
) -> None:
    """Adam's step in place; torch's optimisers cost more than a step of a small network."""
    first.lerp_(gradient, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    scale = math.sqrt(1 - BETAS[1] ** step)
    denominator = second.sqrt().add_(EPSILON * scale)
    theta.addcmul_(torch.div(first, denominator), rate, value=-scale / (1 - BETAS[0] ** step))

r"""Engine: score-function variational inference of noisy-OR networks.

The algorithm of Buhai et al. (2020, arXiv:1907.00030), after neural variational inference and
learning (Mnih and Gregor 2014, arXiv:1402.0030). Guide: :math:`q(h \mid x) = \prod_i
\mathrm{Bernoulli}(h_i; \sigma(b_i + (x - \bar x) \cdot v_i))`. For a batch of rows, with one draw h
a row and :math:`r = \log p(x, h) - \log q(h \mid x)`,

.. math:: r' = (r - c) / \max(1, \sqrt v), \qquad a = r' - C(x - \bar x),

c and v running means of the batches' mean and variance (this batch included, which makes the
gradient slightly biased) and C a small network trained to predict :math:`r'` by plain gradient
descent. Ascent by Adam: mean :math:`\nabla \log p(x, h)` for the parameters, mean :math:`a \nabla
\log q(h \mid x)` for the guide. It is here to replicate the published tables: exact EM and the
default search are better and quicker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid, softplus

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.base.structure import Problem
from inference.programs.program import Params
from inference.structures.noisy_or.em_steps import check_switches_only_on
from inference.structures.noisy_or.likelihood import total_log_likelihood
from ppl_models.descriptions.noisy_or import PROBABILITY_LIMIT, IndependentCauses
from ppl_models.parts.validation import check_number, check_size, plain_fields

NUM_HIDDEN = 100  # of the baseline network
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
LARGEST_LOGIT = 80.0  # of a success: its exponential is finite in single precision
CHECKPOINT_EVERY = 5  # epochs between two writes


@dataclass(frozen=True)
class ScoreFunctionSVI:
    """Score-function variational inference: the engine's settings.

    The objective is a one-draw estimate of the ELBO over the last epoch.

    Args:
        num_epochs: passes over the rows; batch_size: rows an update.
        rate: of Adam, for parameters and guide; baseline_rate: of the baseline network's gradient
            descent, 0 for none.
        decay: of the running centre and variance.

    Raises:
        ValueError: for settings out of range.
    """

    num_epochs: int = 100
    batch_size: int = 20
    rate: float = 0.04
    baseline_rate: float = 1e-4
    decay: float = 0.8

    def __post_init__(self) -> None:
        plain_fields(self)
        for name, least in (("num_epochs", 1), ("batch_size", 2)):
            check_size(
                "ScoreFunctionSVI",
                name,
                getattr(self, name),
                least,
                f"an integer of at least {least}",
            )
        owner = "ScoreFunctionSVI"
        check_number(owner, "rate", self.rate, "be positive and finite", above=0)
        check_number(
            owner, "baseline_rate", self.baseline_rate, "not be negative, and be finite", least=0
        )
        check_number(owner, "decay", self.decay, "lie in [0, 1)", least=0, below=1)

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        """Run all epochs of every restart from ``start`` (R, ...)."""
        causes = problem.structure.about
        if not isinstance(causes, IndependentCauses):
            raise ValueError(
                "ScoreFunctionSVI: a noisy-OR network was expected, got"
                f" {type(problem.model).__name__}"
            )
        check_switches_only_on("ScoreFunctionSVI", causes)
        priors = (
            causes.prior_concentration,
            causes.failure_concentration,
            causes.leak_concentration,
        )
        if any(tuple(prior) != (1, 1) for prior in priors):
            raise ValueError(
                f"ScoreFunctionSVI: flat priors, concentrations (1, 1), were expected, got {priors}"
            )
        if problem.data.isnan().any():
            raise ValueError(
                "data: ScoreFunctionSVI needs complete rows; EM() and the default search take"
                " missing entries"
            )
        prior, failure, leak = start[causes.prior], start[causes.failure], start[causes.leak]
        if checkpoint is not None:
            store = Checkpoint(checkpoint, problem.fingerprint(self, start), CHECKPOINT_EVERY)
        else:
            store = None
        run = ScoreFunctionRun(self, problem.data, prior, failure, leak, problem.seed)
        course = torch.zeros(0, len(failure), dtype=torch.float64)
        if store is not None and (saved := store.load(ScoreFunctionState)) is not None:
            course = run.resume(saved)
        for epoch in range(len(course), self.num_epochs):
            course = torch.cat([course, run.epoch().double().cpu()[None]])
            best = float(course[-1].max())
            progress.update(epoch + 1, best, course.shape[1], engine="ScoreFunctionSVI")
            if store is not None and ((epoch + 1) % store.every == 0 or progress.stopped):
                store.save(run.state(course))
            if progress.stopped:
                break
        params = dict(
            zip((causes.prior, causes.failure, causes.leak), run.estimates(), strict=True)
        )
        exact = problem.structure.exact_objective(problem, params)
        num = course.shape[1]
        unknown, elbo = torch.full((num,), torch.nan, dtype=torch.float64), course[-1]
        if exact is None:  # what the rows of the fit will add up to, and no draw
            each = ({name: value[r] for name, value in params.items()} for r in range(num))
            elbo = torch.tensor(
                [total_log_likelihood(causes, problem.data, one)[1] for one in each],
                dtype=torch.float64,
            )
        return Outcome(
            params,
            course[-1],
            "ELBO",
            unknown if exact is None else exact[0],
            course,
            torch.full_like(course, torch.nan),
            torch.full((num,), len(course) == self.num_epochs),
            torch.full((num,), len(course)),
            elbo=elbo,
        )


@dataclass(frozen=True, eq=False)
class ScoreFunctionState:
    """Checkpoint of a run.

    Args:
        values: logits of parameters and guide, with Adam's ``first`` and ``second`` moments, by
            place; network: the baseline's, by place.
        centre, variance: running, (R,); generator: its state; num_updates: so far; course:
            estimates of the ELBO, (T, R).
    """

    values: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    network: dict[str, Tensor]
    centre: Tensor
    variance: Tensor
    generator: Tensor
    course: Tensor
    num_updates: int


class ScoreFunctionRun:
    """Run of R restarts, each with its own order of rows and its own draws.

    Args:
        settings: the engine's.
        data: (N, J) of 0 and 1; its dtype is that of the run.
        prior, failure, leak: where they start, (R, m), (R, m, J), (R, J).
        seed: of the guides' start, of the orders and the draws; what restart k does depends on R.
    """

    def __init__(
        self,
        settings: ScoreFunctionSVI,
        data: Tensor,
        prior: Tensor,
        failure: Tensor,
        leak: Tensor,
        seed: int,
    ) -> None:
        self.settings, self.data, self.means = settings, data, data.mean(0, keepdim=True)
        self.generator = Generator().manual_seed(seed)
        num, m, items = failure.shape
        limit = PROBABILITY_LIMIT
        logits = [v.to(data).clamp(limit, 1 - limit).logit() for v in (prior, failure, 1 - leak)]
        guide = [self._uniform(-0.1, 0.1, num, items, m), self._uniform(-0.1, 0.1, num, 1, m)]
        self.values: list[Tensor] = [*logits, *guide]
        self.first = [torch.zeros_like(v) for v in self.values]
        self.second = [torch.zeros_like(v) for v in self.values]
        self.num_updates = 0
        self.centre, self.variance = torch.zeros(num).to(data), torch.ones(num).to(data)
        # as torch starts linear layers
        bounds = (items**-0.5, items**-0.5, NUM_HIDDEN**-0.5, NUM_HIDDEN**-0.5)
        shapes = ((num, items, NUM_HIDDEN), (num, 1, NUM_HIDDEN), (num, NUM_HIDDEN, 1), (num, 1, 1))
        self.network = [
            self._uniform(-b, b, *shape) for b, shape in zip(bounds, shapes, strict=True)
        ]

    def state(self, course: Tensor) -> ScoreFunctionState:
        """Checkpoint from which the run can be resumed."""
        values, first, second, network = (
            {str(place): value for place, value in enumerate(part)}
            for part in (self.values, self.first, self.second, self.network)
        )
        return ScoreFunctionState(
            values,
            first,
            second,
            network,
            self.centre,
            self.variance,
            self.generator.get_state(),
            course,
            self.num_updates,
        )

    def resume(self, saved: ScoreFunctionState) -> Tensor:
        """Resume a saved run; the course so far."""
        self.values, self.first, self.second, self.network = (
            list(part.values()) for part in (saved.values, saved.first, saved.second, saved.network)
        )
        self.centre = saved.centre
        self.variance = saved.variance
        self.num_updates = saved.num_updates
        self.generator.set_state(saved.generator)
        return saved.course

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return (
            low + (high - low) * torch.rand(*shape, generator=self.generator, dtype=torch.float64)
        ).to(self.data)

    def estimates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Estimates: prior (R, m), failure (R, m, J), leak (R, J), within their limits."""
        prior, failure, off = (v.sigmoid() for v in self.values[:3])
        limit = PROBABILITY_LIMIT
        return (
            prior.clamp(limit, 1 - limit),
            failure.clamp(limit, 1 - limit),
            (1 - off).clamp(limit, 1 - limit),
        )

    def epoch(self) -> Tensor:
        """Run one pass over the rows; the sum of the signals r, an ELBO estimate, (R,)."""
        num = len(self.values[0])
        order = torch.rand(num, len(self.data), generator=self.generator).argsort(-1)
        total = torch.zeros(num).to(self.data)
        for batch in order.split(self.settings.batch_size, 1):
            if batch.shape[1] > 1:  # one row has no variance
                rows = self.data[batch]
                total += self.update(rows, self._draw(rows))
        return total

    def elbo_rows(self, data: Tensor) -> Tensor:
        """ELBO estimate of each row from one draw, (R, N)."""
        rows = data.to(self.data).expand(len(self.values[0]), *data.shape)
        latents = self._draw(rows)
        log_joint, log_guide, _, _ = self._log_densities(rows, latents)
        return log_joint - log_guide

    def _logits(self, rows: Tensor) -> Tensor:
        """Logits of the guide, (R, B, m); the means come off the bias, which is shorter."""
        return torch.baddbmm(self.values[4] - self.means @ self.values[3], rows, self.values[3])

    def _draw(self, rows: Tensor) -> Tensor:
        chance = self._logits(rows).sigmoid_()
        uniform = torch.rand(chance.shape, generator=self.generator, dtype=chance.dtype)
        return (uniform < chance).to(chance)

    def _log_densities(
        self, rows: Tensor, latents: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-joint and log-guide (R, B); P(x = 1) (R, B, J); the guide's logits."""
        prior, failure, off = self.values[:3]
        leak = softplus(-off).clamp(min=PROBABILITY_LIMIT).unsqueeze(-2)
        weights = (-failure).clamp_(max=LARGEST_LOGIT).exp_().log1p_()
        eta = torch.baddbmm(leak, latents, weights)
        on = torch.expm1(-eta).neg_()
        items = on.log().add_(eta).mul_(rows).sum(-1)  # x log(e^eta - 1), less the sum of eta
        items -= leak.sum(-1) + (latents @ weights.sum(-1, keepdim=True)).squeeze(-1)
        log_joint = (
            items
            + (latents @ prior.unsqueeze(-1)).squeeze(-1)
            + logsigmoid(-prior).sum(-1, keepdim=True)
        )
        logits = self._logits(rows)
        return log_joint, (latents * logits - softplus(logits)).sum(-1), on, logits

    def update(self, rows: Tensor, latents: Tensor) -> Tensor:
        """Step on rows (R, B, J) and draws (R, B, m); the sum of the signals, (R,)."""
        size = rows.shape[1]
        prior, failure, off = self.values[:3]
        log_joint, log_guide, on, logits = self._log_densities(rows, latents)
        signal = log_joint - log_guide
        mean, variance, keep = signal.mean(1), signal.var(1), self.settings.decay
        if self.num_updates == 0:
            self.centre, self.variance = mean, variance
        else:
            self.centre, self.variance = (
                keep * old + (1 - keep) * new
                for old, new in ((self.centre, mean), (self.variance, variance))
            )
        scaled = (signal - self.centre.unsqueeze(-1)) / self.variance.sqrt().clamp(
            min=1.0
        ).unsqueeze(-1)
        centred = rows - self.means
        hidden = torch.baddbmm(self.network[1], centred, self.network[0]).tanh_()
        advantage = scaled - (hidden @ self.network[2] + self.network[3]).squeeze(-1)
        # d log p / d eta: (1 - P) / P at a one and -1 at a zero
        slope = torch.div(rows, on, out=on).sub_(1)
        by_logit = (latents - logits.sigmoid()).mul_(advantage.unsqueeze(-1) / size)
        by_row = rows.new_full((len(rows), 1, size), 1 / size)
        gradients = [
            latents.mean(1) - prior.sigmoid(),
            (latents.mT @ slope).mul_((-failure).sigmoid_()).mul_(-1 / size),
            (by_row @ slope).squeeze(1).mul_((-off).sigmoid_()).neg_(),
            centred.mT @ by_logit,
            by_logit.sum(1, keepdim=True),
        ]
        self._descend(centred, hidden, advantage / size)
        self._ascend(gradients)
        return signal.sum(1)

    def _ascend(self, gradients: list[Tensor]) -> None:
        self.num_updates += 1
        one, two = (1 - beta**self.num_updates for beta in BETAS)
        for value, first, second, gradient in zip(
            self.values, self.first, self.second, gradients, strict=True
        ):
            first.lerp_(gradient, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            value.addcdiv_(
                first, (second / two).sqrt_().add_(EPSILON), value=self.settings.rate / one
            )

    def _descend(self, centred: Tensor, hidden: Tensor, error: Tensor) -> None:
        """Step of the baseline network on the mean squared error, ``error`` (R, B)."""
        rate = 2 * self.settings.baseline_rate
        if rate == 0:
            return
        back = error.unsqueeze(-1)
        # through the tanh
        inner = torch.addcmul(back, hidden, hidden * back, value=-1).mul_(self.network[2].mT)
        self.network[2].baddbmm_(hidden.mT, back, alpha=rate)
        self.network[3].add_(back.sum(1, keepdim=True), alpha=rate)
        self.network[0].baddbmm_(centred.mT, inner, alpha=rate)
        self.network[1].add_(inner.sum(1, keepdim=True), alpha=rate)

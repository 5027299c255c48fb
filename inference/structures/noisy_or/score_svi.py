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
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad, softplus

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
        values: logits of parameters and guide, (R, P), with Adam's ``first`` and ``second``
            moments; network: the baseline's, by place.
        moments: running mean and variance of signals, (2, R); generator: its state; num_updates: so
            far; course: estimates of the ELBO, (T, R).
    """

    values: Tensor
    first: Tensor
    second: Tensor
    network: dict[str, Tensor]
    moments: Tensor
    generator: Tensor
    course: Tensor
    num_updates: int


class GuideValues(NamedTuple):
    """Guide at some rows.

    Args:
        rows: and less their means, with a one: (R, B, J) and (R, B, J + 1).
        logits, chance: of latents, (R, B, m).
    """

    rows: Tensor
    centred: Tensor
    logits: Tensor
    chance: Tensor


def switched_on(uniform: Tensor, chance: Tensor) -> Tensor:
    """Draws of latents, and a cause that is always on, (R, B, m + 1)."""
    return pad((uniform < chance).to(chance), (0, 1), value=1.0)


class ScoreFunctionRun:
    """Run of R restarts, each with its own order of rows and its own draws.

    The time of an update on a small batch is that of its number of tensor operations. So all logits
    lie in one tensor, a leak is a cause that is always on, and a bias is the weight of a column of
    ones.

    Args:
        settings: the engine's.
        data: (N, J) of 0 and 1; its dtype is that of the run.
        prior, failure, leak: where they start, (R, m), (R, m, J), (R, J).
        seed: of the guides' start, of the orders and the draws; what restart k does depends on R.
        compiled: whether updates are compiled; needs a C++ compiler, worth it for long runs.
    """

    def __init__(
        self,
        settings: ScoreFunctionSVI,
        data: Tensor,
        prior: Tensor,
        failure: Tensor,
        leak: Tensor,
        seed: int,
        compiled: bool = False,
    ) -> None:
        self.settings, self.data, self.means = settings, data, data.mean(0, keepdim=True)
        self.table = self.with_centred(data)
        self.generator = Generator().manual_seed(seed)
        num, m, items = failure.shape
        self.sizes = m, items
        limit = PROBABILITY_LIMIT
        logits = [v.to(data).clamp(limit, 1 - limit).logit() for v in (prior, failure, 1 - leak)]
        guide = [self._uniform(-0.1, 0.1, num, items, m), self._uniform(-0.1, 0.1, num, 1, m)]
        self.flat = torch.cat([v.flatten(1) for v in (*logits, *guide)], 1)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.num_updates = 0
        self.moments = torch.stack([torch.zeros(num), torch.ones(num)]).to(data)
        # as torch starts linear layers
        bounds = (items**-0.5, items**-0.5, NUM_HIDDEN**-0.5, NUM_HIDDEN**-0.5)
        shapes = ((num, items, NUM_HIDDEN), (num, 1, NUM_HIDDEN), (num, NUM_HIDDEN, 1), (num, 1, 1))
        network = [self._uniform(-b, b, *shape) for b, shape in zip(bounds, shapes, strict=True)]
        self.network = [torch.cat(network[:2], 1), *network[2:]]
        self._update = self.update
        if compiled:
            self._update = torch.compile(
                self.update, fullgraph=True, dynamic=False, options={"cpp_wrapper": True}
            )

    def state(self, course: Tensor) -> ScoreFunctionState:
        """Checkpoint from which the run can be resumed."""
        return ScoreFunctionState(
            self.flat,
            self.first,
            self.second,
            {str(place): value for place, value in enumerate(self.network)},
            self.moments,
            self.generator.get_state(),
            course,
            self.num_updates,
        )

    def resume(self, saved: ScoreFunctionState) -> Tensor:
        """Resume a saved run; the course so far."""
        self.flat, self.first, self.second = saved.values, saved.first, saved.second
        self.network, self.moments = list(saved.network.values()), saved.moments
        self.num_updates = saved.num_updates
        self.generator.set_state(saved.generator)
        return saved.course

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return (
            low + (high - low) * torch.rand(*shape, generator=self.generator, dtype=torch.float64)
        ).to(self.data)

    def with_centred(self, data: Tensor) -> Tensor:
        """Rows, the rows less the means of the run's, and ones, side by side."""
        return torch.cat([data, data - self.means, data.new_ones(len(data), 1)], 1)

    @property
    def prior(self) -> Tensor:
        """Logits of the prior, (R, m)."""
        return self.flat[:, : self.sizes[0]]

    @property
    def edges(self) -> Tensor:
        """Logits of failure and of no leak, (R, m + 1, J)."""
        m, items = self.sizes
        return self.flat[:, m : m + (m + 1) * items].unflatten(1, (m + 1, items))

    @property
    def guide(self) -> Tensor:
        """Weights of the guide and its biases, (R, J + 1, m)."""
        m, items = self.sizes
        return self.flat[:, m + (m + 1) * items :].unflatten(1, (items + 1, m))

    def estimates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Estimates: prior (R, m), failure (R, m, J), leak (R, J), within their limits."""
        prior, edges = self.prior.sigmoid(), self.edges.sigmoid()
        limit = PROBABILITY_LIMIT
        return (
            prior.clamp(limit, 1 - limit),
            edges[:, :-1].clamp(limit, 1 - limit),
            (1 - edges[:, -1]).clamp(limit, 1 - limit),
        )

    def epoch(self) -> Tensor:
        """Run one pass over the rows; the sum of the signals r, an ELBO estimate, (R,)."""
        num = len(self.flat)
        order = torch.rand(num, len(self.data), generator=self.generator).argsort(-1)
        total = torch.zeros(num).to(self.data)
        for batch in order.split(self.settings.batch_size, 1):
            if batch.shape[1] > 1:  # one row has no variance
                rows = self.table.index_select(0, batch.flatten()).unflatten(0, batch.shape)
                total += self.step(rows, self._between((*batch.shape, self.sizes[0])))
        return total

    def step(self, table: Tensor, uniform: Tensor) -> Tensor:
        """Step on rows (R, B, 2 J + 1) by uniform numbers (R, B, m); the signals' sum, (R,)."""
        self.num_updates += 1
        one, two = (1 - beta**self.num_updates for beta in BETAS)
        share = 1.0 if self.num_updates == 1 else 1 - self.settings.decay
        scales = torch.tensor([self.settings.rate / one, 1 / two, share], dtype=table.dtype)
        return self._update(table, uniform, scales.to(table.device))

    def elbo_rows(self, data: Tensor) -> Tensor:
        """ELBO estimate of each row from one draw, (R, N)."""
        rows = self.with_centred(data.to(self.data))
        guide = self.guide_at(rows.expand(len(self.flat), *rows.shape))
        latents = switched_on(self._between(guide.chance.shape), guide.chance)
        return self._signal(guide, latents)[0]

    def guide_at(self, table: Tensor) -> GuideValues:
        """Guide at rows (R, B, 2 J + 1), as :meth:`with_centred` makes them."""
        rows, centred = table.tensor_split((self.sizes[1],), -1)
        logits = torch.bmm(centred, self.guide)
        return GuideValues(rows, centred, logits, logits.sigmoid())

    def _between(self, shape: tuple[int, ...]) -> Tensor:
        """Uniform numbers in [0, 1)."""
        return torch.rand(shape, generator=self.generator, dtype=self.data.dtype).to(self.data)

    def _signal(self, guide: GuideValues, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-joint less log-guide (R, B), P(x = 1) (R, B, J), derivative of log-failures."""
        logs = softplus(self.edges, -1)  # log-probabilities that causes fail
        slope = torch.expm1(logs)
        logs[:, -1].clamp_(max=-PROBABILITY_LIMIT)
        off = torch.bmm(latents, logs)
        on = torch.expm1(off).neg_()
        items = on.log().sub_(off).mul_(guide.rows).sum(-1, keepdim=True)
        # each latent that is on adds its own log-odds, and its failures at all items
        each = logs.sum(-1)
        each[:, :-1] += self.prior
        each[:, -1] -= softplus(self.prior).sum(-1)
        log_joint = torch.baddbmm(items, latents, each.unsqueeze(-1)).squeeze(-1)
        log_guide = (latents[..., :-1] * guide.logits).sub_(softplus(guide.logits)).sum(-1)
        return log_joint - log_guide, on, slope

    def update(self, table: Tensor, uniform: Tensor, scales: Tensor) -> Tensor:
        """Step with given scales: a function of tensors alone, which can be compiled.

        Args:
            table, uniform: as :meth:`step` has them.
            scales: Adam's rate, the inverse of its second correction and the share of this batch in
                the running moments, (3,).
        """
        guide = self.guide_at(table)
        latents = switched_on(uniform, guide.chance)
        size = latents.shape[1]
        signal, on, by_edge = self._signal(guide, latents)
        self.moments.lerp_(torch.stack(torch.var_mean(signal, 1)[::-1]), scales[2])
        centre, variance = self.moments.unsqueeze(-1)
        scaled = (signal - centre).div_(variance.sqrt().clamp_(min=1.0))
        hidden = torch.bmm(guide.centred, self.network[0]).tanh_()
        predicted = torch.baddbmm(self.network[2], hidden, self.network[1]).squeeze(-1)
        advantage = scaled.sub_(predicted).div_(size)
        # minus the derivative of log p by the log of all failures, 1 - x / P(x = 1)
        slope = torch.div(guide.rows, on, out=on).sub_(1)
        by_logit = (latents[..., :-1] - guide.chance).mul_(advantage.unsqueeze(-1))
        gradients = [
            latents.mean(1)[:, :-1] - self.prior.sigmoid(),
            torch.bmm(latents.mT, slope).mul_(by_edge.div_(size)),
            torch.bmm(guide.centred.mT, by_logit),
        ]
        self._descend(guide.centred, hidden, advantage)
        self._ascend(torch.cat([gradient.flatten(1) for gradient in gradients], 1), scales)
        return signal.sum(1)

    def _ascend(self, gradient: Tensor, scales: Tensor) -> None:
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        scale = (self.second * scales[1]).sqrt_().add_(EPSILON)
        self.flat.addcdiv_(self.first * scales[0], scale)

    def _descend(self, centred: Tensor, hidden: Tensor, error: Tensor) -> None:
        """Step of the baseline network on the mean squared error, ``error`` (R, B)."""
        rate = 2 * self.settings.baseline_rate
        if rate == 0:
            return
        back = error.unsqueeze(-1)
        # through the tanh
        inner = torch.addcmul(back, hidden, hidden * back, value=-1).mul_(self.network[1].mT)
        self.network[1].baddbmm_(hidden.mT, back, alpha=rate)
        self.network[2].add_(back.sum(1, keepdim=True), alpha=rate)
        self.network[0].baddbmm_(centred.mT, inner, alpha=rate)

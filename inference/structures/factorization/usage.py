r"""Factorizations with binary usage: exact Gibbs draws, SAEM statistics, structure.

Given the other components of a row, with :math:`\lambda_j` their rate, presence and amount of
component k are drawn together. On :math:`\theta = \log z` the amount has the density

.. math::

    e^{h(\theta)}, \qquad h(\theta) = \sum_j x_j \log(1 + z \phi_{kj} / \lambda_j) - z (1 + \alpha /
    m_k) + \alpha \theta

relative to absence, up to :math:`(\alpha / m_k)^\alpha / \Gamma(\alpha)`. It has one mode, for
:math:`h' = 0` equates a concave function of z that is positive at 0 to a line through 0. So the
integral, which decides on presence, is a sum over points that lie dense at the mode and reach far
into both tails, :math:`\theta = \hat\theta + w \sinh t` (trapezoidal sums converge exponentially
there; Takahasi and Mori 1974). A draw from the straight lines between the points is a proposal for
presence and amount, accepted by Metropolis and Hastings' rule: the error of the sum costs a few
rejections and no exactness.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.align import Labels
from inference.base.component_noise import (
    NoiseDraws,
    numpy_generator,
    poisson_scores,
    poisson_split,
)
from inference.base.gibbs import PLAIN, Latents, Scan
from inference.base.progress import NoProgress
from inference.base.steps import Averages
from inference.base.structure import (
    Problem,
    Recommendation,
    Structure,
    component_noise,
    draw_steps_of,
)
from inference.engines.saem import SAEM
from inference.programs.devices import elements_at_once
from inference.programs.global_state import isolated
from inference.programs.program import Params, Program
from inference.structures.factorization.factorize import Course, Factorize
from inference.structures.factorization.starts import nndsvd, random_factors
from inference.structures.factorization.updates import Counts
from ppl_models.descriptions.components import UsageDescription
from ppl_models.parts.responses import Poisson, filled

FLOOR = 1e-12  # of an expected count, as in the program
NUM_POINTS = 28
TAIL = 14.0  # nats below the mode at which the points end
NUM_NEWTON = 10
NUM_START = 60  # EM steps of the amounts that a chain starts from
CHUNK_ELEMENTS = 2**20  # rows times points times columns at once
NUM_PROPOSALS = 200
NUM_BURN_IN, NUM_SWEEPS = 20, 20


@dataclass(frozen=True, eq=False)
class UsageGibbs:
    """The sampler for one table.

    Args:
        about: the model's description.
        x: counts, 0 where missing, (N, J); mask: (N, J) 0/1, None if nothing is missing.
    """

    about: UsageDescription
    x: Tensor
    mask: Tensor | None

    @classmethod
    def build(cls, about: UsageDescription, data: Tensor) -> UsageGibbs:
        """For a table with NaN where missing."""
        return cls(about, *filled(Poisson(), data))

    def rows(self, index: Tensor) -> UsageGibbs:
        """The sampler of some of the rows."""
        return replace(self, x=self.x[index], mask=None if self.mask is None else self.mask[index])

    def begin(self, params: Params, generator: Generator) -> Latents:
        """Every component present, in amounts of highest density."""
        phi, rate = params["signatures"], (self.about.shape / params["amounts"]).unsqueeze(-2)
        seen = self._seen(phi)
        z = (self.x.sum(-1, keepdim=True) / phi.shape[-2]).expand(
            *phi.shape[:-2], len(self.x), phi.shape[-2]
        ) + 0.1
        for _ in range(NUM_START):
            ratio = self.x / (z @ phi).clamp(min=FLOOR)
            z = (z * (ratio @ phi.mT) + self.about.shape) / (seen + rate)
        return {"usage": torch.ones_like(z.mT), "activities": z.mT.contiguous()}

    def sweep(
        self, params: Params, latents: Latents, generator: Generator, scan: Scan = PLAIN
    ) -> tuple[Latents, Latents]:
        """Update presence and amount of every component; P(b = 1) and E[b z] beside it."""
        if scan.synchronous:
            raise ValueError("the sampler of usage draws one component after another")
        phi = params["signatures"]
        order = range(phi.shape[-2])
        size = max(
            1, elements_at_once(phi, CHUNK_ELEMENTS) // (NUM_POINTS * phi[..., 0, :].numel())
        )
        b, z = (latents[name].mT.clone() for name in ("usage", "activities"))  # (R, N, K)
        chance, mean = torch.empty_like(b), torch.empty_like(z)
        uniform = torch.rand(
            (3, *b.shape), generator=generator, dtype=torch.float64, device=generator.device
        ).to(b)
        for start in range(0, len(self.x), size):
            part = slice(start, start + size)
            some = self.rows(torch.arange(start, min(start + size, len(self.x))))
            mu = (b[:, part] * z[:, part]) @ phi
            seen = some._seen(phi)
            for k in order:
                own = phi[:, k].unsqueeze(-2)  # (R, 1, J)
                now = (b[:, part, k], z[:, part, k])
                other = (mu - (now[0] * now[1]).unsqueeze(-1) * own).clamp(min=FLOOR)
                amount_k = _Amount.of(
                    some.x, own / other, seen[..., k], params, k, self.about.shape
                )
                chance[:, part, k], mean[:, part, k] = (
                    amount_k.chance,
                    amount_k.chance * amount_k.mean,
                )
                b[:, part, k], z[:, part, k] = amount_k.draw(now, uniform[:, :, part, k])
                mu = other + (b[:, part, k] * z[:, part, k]).unsqueeze(-1) * own
        state = {"usage": b.mT.contiguous(), "activities": z.mT.contiguous()}
        return state, {"usage": chance.mT.contiguous(), "activities": mean.mT.contiguous()}

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        """Log-density of row, usage and activities where present, (R, N)."""
        b, z = latents["usage"].mT, latents["activities"].mT
        return self._log_joint(params, b, z)

    def _log_joint(self, params: Params, b: Tensor, z: Tensor) -> Tensor:
        mu = ((b * z) @ params["signatures"]).clamp(min=FLOOR)
        items = torch.xlogy(self.x, mu) - mu - torch.lgamma(self.x + 1)
        items = items if self.mask is None else items * self.mask
        pi, shape = params["proportions"].unsqueeze(-2), self.about.shape
        rate = shape / params["amounts"].unsqueeze(-2)
        amounts = (
            shape * rate.log()
            - math.lgamma(shape)
            + (shape - 1) * z.clamp(min=1e-300).log()
            - rate * z
        )
        return items.sum(-1) + (b * (pi.log() + amounts) + (1 - b) * torch.log1p(-pi)).sum(-1)

    def log_weights(self, params: Params, generator: Generator) -> Tensor:
        """Log-weights of p(row), (proposals, R, N).

        Importance sampling from independent presences and Gamma amounts with the moments of
        ``NUM_SWEEPS`` draws (the bound of Burda, Grosse and Salakhutdinov 2016).
        """
        latents = self.begin(params, generator)
        for _ in range(NUM_BURN_IN):
            latents, _ = self.sweep(params, latents, generator)
        count, total, square, chance = (torch.zeros_like(latents["usage"].mT) for _ in range(4))
        for _ in range(NUM_SWEEPS):
            latents, chances = self.sweep(params, latents, generator)
            b, z = latents["usage"].mT, latents["activities"].mT
            count, total, square = count + b, total + b * z, square + b * z.square()
            chance = chance + chances["usage"].mT / NUM_SWEEPS
        shape = self.about.shape
        prior = params["amounts"].unsqueeze(-2).expand_as(total)
        mean = torch.where(count > 0, total / count.clamp(min=1), prior)
        spread = torch.where(
            count > 2, 1.3 * (square / count.clamp(min=1) - mean.square()), mean.square() / shape
        )
        # no narrower than counts allow
        a = mean.square() / torch.maximum(spread, mean.square() / (shape + mean))
        proposal = torch.distributions.Gamma(a, a / mean, validate_args=False)
        chance = chance.clamp(0.02, 0.98)
        values = []
        for _ in range(NUM_PROPOSALS):
            with isolated(
                int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
            ):
                b, z = torch.bernoulli(chance), proposal.sample()
            log_q = (
                b * (chance.log() + proposal.log_prob(z)) + (1 - b) * torch.log1p(-chance)
            ).sum(-1)
            values.append(self._log_joint(params, b, z) - log_q)
        return torch.stack(values)

    def _seen(self, phi: Tensor) -> Tensor:
        """Mass of the signatures on the observed entries, (R, N, K)."""
        if self.mask is None:
            return phi.new_ones(()).expand(*phi.shape[:-2], len(self.x), phi.shape[-2])
        return self.mask @ phi.mT


@dataclass(frozen=True, eq=False)
class _Amount:
    """Presence and amount of one component in every row, given the others.

    Args:
        x: (n, J); ratio: phi / lambda, (R, n, J).
        slope, shape: of the terms linear in z (R, n) and in log z.
        mode, width: of log z, (R, n); points: t (R, n, G); weights: e^h dtheta/dt there, relative
            to ``peak``.
        chance: P(b = 1); mean: E[z | b = 1], (R, n).
    """

    x: Tensor
    ratio: Tensor
    slope: Tensor
    shape: float
    mode: Tensor
    width: Tensor
    points: Tensor
    weights: Tensor
    peak: Tensor
    chance: Tensor
    mean: Tensor

    @classmethod
    def of(
        cls, x: Tensor, ratio: Tensor, seen: Tensor, params: Params, k: int, shape: float
    ) -> _Amount:
        rate = shape / params["amounts"][:, k].unsqueeze(-1)  # (R, 1)
        slope = seen + rate
        theta = ((x.sum(-1) * 0.1 + shape) / slope).log()
        for _ in range(NUM_NEWTON):
            z = theta.exp()
            p = z.unsqueeze(-1) * ratio
            p = p / (1 + p)
            gradient = (x * p).sum(-1) + shape - slope * z
            bend = slope * z - (x * p * (1 - p)).sum(-1)
            bend = torch.where(bend > 0.1 * slope * z, bend, slope * z)
            theta = theta + (gradient / bend).clamp(-2.0, 2.0)
        p = theta.exp().unsqueeze(-1) * ratio
        width = (shape + (x * (p / (1 + p)).square()).sum(-1)).rsqrt()
        left = torch.asinh((TAIL / shape / width).clamp(min=7.0))
        right = math.asinh(7.0)
        unit = torch.linspace(0, 1, NUM_POINTS, dtype=x.dtype, device=x.device)
        t = -left.unsqueeze(-1) + (left + right).unsqueeze(-1) * unit  # (R, n, G)
        amount = (theta.unsqueeze(-1) + width.unsqueeze(-1) * torch.sinh(t)).exp()
        logs = (
            _log_density(x, ratio, slope, shape, amount)
            + (width.unsqueeze(-1) * torch.cosh(t)).log()
        )
        peak = logs.amax(-1, keepdim=True)
        weights = (logs - peak).exp()
        cells = (left + right) / (NUM_POINTS - 1)
        total = weights.sum(-1) - 0.5 * (weights[..., 0] + weights[..., -1])
        log_odds = (
            peak.squeeze(-1) + (total * cells).log() + shape * rate.log() - math.lgamma(shape)
        )
        log_odds = log_odds + torch.logit(params["proportions"][:, k]).unsqueeze(-1)
        mean = (weights * amount).sum(-1) / weights.sum(-1)
        return cls(
            x,
            ratio,
            slope,
            shape,
            theta,
            width,
            t,
            weights,
            peak.squeeze(-1),
            torch.sigmoid(log_odds),
            mean,
        )

    def draw(self, now: tuple[Tensor, Tensor], uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Next presence and amount, (R, n) each, from the present ones and uniforms (3, R, n)."""
        b = (uniform[0] < self.chance).to(self.x)
        cells = 0.5 * (self.weights[..., 1:] + self.weights[..., :-1])
        passed = cells.cumsum(-1)
        goal = uniform[1] * passed[..., -1]
        cell = (passed < goal.unsqueeze(-1)).sum(-1, keepdim=True).clamp(max=cells.shape[-1] - 1)
        low, high = (self.weights.gather(-1, cell + step).squeeze(-1) for step in (0, 1))
        within = (
            1 - (passed.gather(-1, cell).squeeze(-1) - goal) / cells.gather(-1, cell).squeeze(-1)
        ).clamp(0, 1)
        place = (
            within
            * (low + high)
            / (low + (low.square() + within * (high.square() - low.square())).clamp(min=0).sqrt())
        )
        step = self.points[..., 1] - self.points[..., 0]
        t = self.points.gather(-1, cell).squeeze(-1) + place * step
        z = (self.mode + self.width * torch.sinh(t)).exp()
        both = torch.stack([torch.where(b > 0, z, 1.0), torch.where(now[0] > 0, now[1], 1.0)], -1)
        # (R, n, 2): log of target over proposal
        surplus = self._surplus(both) * torch.stack([b, now[0]], -1)
        accept = uniform[2].log() < surplus[..., 0] - surplus[..., 1]
        return torch.where(accept, b, now[0]), torch.where(accept, b * z, now[1])

    def _surplus(self, z: Tensor) -> Tensor:
        """Log-density over its straight-line approximation; 0 beyond the points."""
        t = torch.asinh((z.log() - self.mode.unsqueeze(-1)) / self.width.unsqueeze(-1))
        step = (self.points[..., 1] - self.points[..., 0]).unsqueeze(-1)
        place = (t - self.points[..., :1]) / step
        inside = (place >= 0) & (place <= NUM_POINTS - 1)
        cell = place.floor().clamp(0, NUM_POINTS - 2).long()
        low, high = (self.weights.gather(-1, cell + i) for i in (0, 1))
        line = low + (place - cell).clamp(0, 1) * (high - low)
        exact = _log_density(self.x, self.ratio, self.slope, self.shape, z) - self.peak.unsqueeze(
            -1
        )
        exact = exact + (self.width.unsqueeze(-1) * torch.cosh(t)).log()
        return torch.where(inside, exact - line.clamp(min=1e-300).log(), 0.0)


def _log_density(x: Tensor, ratio: Tensor, slope: Tensor, shape: float, z: Tensor) -> Tensor:
    """Log-density h at amounts (R, n, G)."""
    logs = torch.einsum("rng,rnj->rngj", z, ratio).add_(1).log_()
    return (logs @ x.unsqueeze(-1)).squeeze(-1) - slope.unsqueeze(-1) * z + shape * z.log()


NUM_STARTS = 10  # of the factorization without usage from which a fit begins
# share of the mean row in the signatures that a fit starts from: their zeros would stay
SMOOTHED = 0.1
# share of a row's counts from which a component of that factorization is held to be present
PRESENT = 0.01
SHARE_LIMIT = 1e-3  # proportions stay so far from 0 and 1
NUM_BURN_IN, NUM_BETWEEN = 30, 5  # sweeps before the first draw of noise, and from one to the next


@dataclass(frozen=True, eq=False)
class UsageDraws:
    r"""Both halves of stochastic-approximation EM.

    Given a draw the shares of a count are :math:`E[y_{nkj}] = x_{nj} b_{nk} z_{nk} \phi_{kj} /
    \mu_{nj}`, and :math:`b_{nk} z_{nk} \phi_{kj}` where it is missing. Their sums give the
    signatures, the chances of presence the proportions, the amounts where present their mean.

    Args:
        gibbs: the sampler, which holds the data.
    """

    gibbs: UsageGibbs

    def statistics(self, params: Params, latents: Latents, chances: Latents) -> Averages:
        """Averages of one draw."""
        phi, z = params["signatures"], (latents["usage"] * latents["activities"]).mT
        ratio = self.gibbs.x / (z @ phi).clamp(min=1e-12)
        ratio = (
            ratio if self.gibbs.mask is None else ratio * self.gibbs.mask + (1 - self.gibbs.mask)
        )
        num = len(self.gibbs.x)
        return {
            "shares": phi * (z.mT @ ratio) / num,
            "presence": chances["usage"].sum(-1) / num,
            "amount": chances["activities"].sum(-1) / num,
        }

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        """Log-density of data and draw, (R,)."""
        return self.gibbs.log_joint_rows(params, latents).sum(-1)

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        """Stochastic approximation of the averages."""
        if old is None:
            return new
        return {name: torch.lerp(old[name], value, rate) for name, value in new.items()}

    def maximise(self, averages: Averages, params: Params) -> Params:
        """Signatures, proportions and amounts from the averages."""
        about = self.gibbs.about
        shares = averages["shares"] + (about.concentration - 1) / len(self.gibbs.x)
        total = shares.sum(-1, keepdim=True)
        phi = torch.where(total > 0, shares / total.clamp(min=1e-300), params["signatures"])
        presence = averages["presence"]
        amounts = (averages["amount"] / presence.clamp(min=1e-300)).clamp(1e-6, about.bound)
        amounts = torch.where(presence > SHARE_LIMIT / 10, amounts, params["amounts"])
        return {
            "signatures": phi,
            "proportions": presence.clamp(SHARE_LIMIT, 1 - SHARE_LIMIT),
            "amounts": amounts,
        }

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        """Parameters that maximise one draw."""
        return self.maximise(self.statistics(params, latents, chances), params)

    def relax(self) -> None:
        """None: nothing is penalised."""
        return

    def rows(self, index: Tensor) -> UsageDraws:
        """Statistics of some of the rows."""
        return replace(self, gibbs=self.gibbs.rows(index))


class UsageStructure(Structure):
    """A model that offers ``usage()``."""

    @cached_property
    def about(self) -> UsageDescription:
        about: UsageDescription = self.model.usage()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> UsageStructure | None:
        """Structure of a model that offers ``usage()``, or None."""
        return cls(model) if hasattr(model, "usage") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Best of several factorizations without usage ("spectral"), or random signatures."""
        about, num = self.about, num_restarts if init == "random" else max(NUM_STARTS, num_restarts)
        x = problem.data.nan_to_num(nan=float(problem.data.nanmean()))
        z, phi = random_factors(x, about.num_components, num, problem.seed)
        if init == "spectral":
            z[0], phi[0] = nndsvd(x, about.num_components, problem.seed)
            counts = Counts(*_filled(problem.data))
            course = Course.begin({"signatures": phi, "activities": z})
            course = Factorize(tolerance=1e-6).iterate(counts, course, NoProgress(), None, len(x))
            best = course.last.argsort(descending=True)[:num_restarts]
            z, phi = course.params["activities"][best], course.params["signatures"][best]
            phi = (1 - SMOOTHED) * phi + SMOOTHED * x.sum(0) / x.sum()
        present = (z > PRESENT * z.sum(-1, keepdim=True)).to(z)
        amounts = (present * z).sum(-2) / present.sum(-2).clamp(min=1)
        return {
            "signatures": phi,
            "proportions": present.mean(-2).clamp(0.05, 0.95),
            "amounts": amounts.clamp(1e-3, about.bound),
        }

    def gibbs(self, program: Program) -> UsageGibbs:
        return UsageGibbs.build(self.about, program.args[0])

    def exact_objective(self, problem: Problem, params: Params) -> None:
        """None: usage and activities cannot be summed out."""
        return  # sums over usage and integrals over activities are out of reach

    def canonical(self, params: Params) -> Params:
        """Components in the order of falling expected counts a row."""
        order = (params["proportions"] * params["amounts"]).argsort(descending=True, stable=True)
        return {
            name: value[..., order] if name == "activities" else value[order]
            for name, value in params.items()
        }

    def labels(self) -> tuple[Labels, ...]:
        """Components, matched by their signatures."""

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            # drawn activities are (D, N, K), the parameters (D, K, ...)
            return {
                name: value[..., order] if name == "activities" else value[:, order]
                for name, value in params.items()
            }

        return (Labels("usage", lambda params: params["signatures"], rename),)

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Signatures without their normalisation, proportions and amounts."""
        k, j = params["signatures"].shape
        return k * (j + 1)

    def why_no_standard_errors(self, params: Params) -> str:
        """Reason in words: the likelihood has no curvature at hand."""
        return (
            "amounts of the rows are continuous and drawn with their presence, so the likelihood"
            " has no curvature at hand"
        )

    def recommended(self, problem: Problem) -> Recommendation:
        """SAEM from one spectral start."""
        return Recommendation(SAEM(), "spectral", 1)


def _filled(data: Tensor) -> tuple[Tensor, Tensor | None]:
    return filled(Poisson(), data)


@component_noise.register(UsageStructure)
def _(
    structure: UsageStructure, params: Params, data: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    """Split every entry at posterior draws of usage; a row counts where a draw uses it."""
    gibbs = UsageGibbs.build(structure.about, data.to(params["signatures"]))
    one = {n: v.unsqueeze(0) for n, v in params.items()}
    latents = gibbs.begin(one, generator)
    rng, missing = numpy_generator(generator), data.isnan().numpy()
    phi, counts = params["signatures"].numpy(), data.nan_to_num().numpy()
    scores, used, total = [], [], np.zeros(len(phi))
    for draw in range(num_draws):
        for _ in range(NUM_BETWEEN if draw else NUM_BURN_IN):
            latents, chances = gibbs.sweep(one, latents, generator)
        rates = (latents["usage"] * latents["activities"])[0].mT.numpy()[
            ..., None
        ] * phi  # (N, K, J)
        whole = np.where(missing, rng.poisson(rates.sum(1)), counts)
        scores.append(poisson_scores(poisson_split(whole, rates, rng), rates, rng))
        used.append(latents["usage"][0].mT.numpy() > 0)
        total += chances["activities"][0].sum(-1).numpy()
    return NoiseDraws(np.stack(scores), np.stack(used), total / total.sum())


@draw_steps_of.register(UsageStructure)
def _(structure: UsageStructure, problem: Problem) -> UsageDraws:
    return UsageDraws(UsageGibbs.build(structure.about, problem.data))

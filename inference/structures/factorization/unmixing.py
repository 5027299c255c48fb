r"""Linear unmixing: EM with the abundances integrated.

With :math:`G = m m^\top / \sigma^2`, :math:`c_n = m x_n / \sigma^2` and B an orthonormal basis of
the plane through the simplex, the likelihood of the abundances is normal on that plane, with
covariance :math:`V = B (B^\top G B)^{-1} B^\top` and mean :math:`\mu_n`, and

.. math::

    \log p(x_n) = -\tfrac{J}{2} \log 2 \pi \sigma^2 - \tfrac{1}{2 \sigma^2} |x_n - m^\top \mu_n|^2 +
    \log \frac{(K - 1)!}{\sqrt K} + \tfrac12 \log |2 \pi V| + \log P_n, \qquad P_n = P(N(\mu_n, V)
    \ge 0) .

Half of :math:`\log |V|` is minus the logarithm of the volume of the simplex, in units of the noise:
the minimum-volume penalty, whose weight nobody chooses. :math:`P_n` and the moments of the
abundances come by expectation propagation (Minka 2001; Cunningham, Hennig and Lacoste-Julien 2011,
arXiv:1111.6832): the factor :math:`[a_k \ge 0]` becomes a normal one whose moments agree. The
M-step is non-negative least squares of every item on the expected abundances.

Where noise is correlated between items, the likelihood of independent noise is far too sure of the
abundances and stretches the simplex to rows that no mixture explains. Nothing shows how large noise
is along the simplex; it is held to be as large as in the widest direction off it, so that
:math:`\sigma^2` is the K-th eigenvalue of the rows' covariance, the first that K endmembers cannot
produce. Abundances are those of highest density, and :math:`P_n` is replaced by its value there,
with the curvature :math:`G + K (K + 1) I` on the plane, whose second term is the precision of the
uniform distribution: Laplace's approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from inference.base.align import Labels
from inference.base.component_noise import NoiseDraws, gaussian_split
from inference.base.steps import EStep, RunningSum, Steps
from inference.base.structure import (
    Capability,
    Problem,
    Recommendation,
    Structure,
    component_noise,
    marginal_rows,
    num_density_items,
)
from inference.engines.em import EM
from inference.programs.program import Params, Program
from inference.structures.factorization.factorize import SCALE_RANGE
from ppl_models.descriptions.components import UnmixingDescription

Array = NDArray[Any]

AT_ONCE = 2**20  # numbers of the rows
ON_BOUND = 0.999  # of a bound
NUM_SWEEPS = 8  # of expectation propagation over the components
RIDGE = 1e-12  # of the largest diagonal entry of a Gram matrix
FLAT = 1e-9  # of the precision of uniform abundances, where rows say nothing of them
FAR = 50.0  # standard deviations below zero
NARROWEST = 1e-12  # variance of a truncated normal in units of that of the whole
NUM_EXCHANGES = 20  # rounds at most of exchanging vertices
CORRELATED = 2.0  # times the widest direction of independent noise
MAINLY = 0.5  # abundance from which a row tells about a component's noise
LOG_2PI = math.log(2 * math.pi)


def plane(num: int, like: Tensor) -> Tensor:
    """Orthonormal basis (K, K - 1) of the vectors that sum to zero."""
    first = torch.cat([like.new_ones(num, 1), torch.eye(num).to(like)[:, 1:]], 1)
    return torch.linalg.qr(first).Q[:, 1:]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of the abundances, with the log-density of the rows.

    Args:
        mean: (R, N, K); covariance: (R, N or 1, K, K); log_likelihood: (R, N).
    """

    mean: Tensor
    covariance: Tensor
    log_likelihood: Tensor


def posterior(about: UnmixingDescription, params: Params, x: Tensor) -> Posterior:
    """Posterior of every row of x, (N, J), at parameters (R, ...); in double precision."""
    phi, variance = params["endmembers"].double(), params["scales"].double().square()
    x, k = x.double(), about.num_components
    gram = phi @ phi.mT / variance.unsqueeze(-1)  # (R, K, K)
    cross = x @ phi.mT / variance.unsqueeze(-1)  # (R, N, K)
    basis = plane(k, phi)
    inner = basis.mT @ gram @ basis
    extra = k * (k + 1.0) if about.correlated else FLAT * k * (k + 1.0)
    factor = torch.linalg.cholesky(inner + extra * torch.eye(k - 1).to(inner))
    covariance = basis @ torch.cholesky_inverse(factor) @ basis.mT
    if about.correlated:
        mean = nonnegative(gram, cross, shares=True)
    else:  # of the normal
        mean = 1 / k + (cross - gram.mean(-1).unsqueeze(-2)) @ covariance
    distance = (
        x.square().sum(-1) / variance - 2 * (cross * mean).sum(-1) + ((mean @ gram) * mean).sum(-1)
    )
    volume = math.lgamma(k) - math.log(k) / 2 + (k - 1) * LOG_2PI / 2
    volume = volume - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    value = volume - distance / 2 - 0.5 * about.num_items * (LOG_2PI + variance.log())
    covariance = covariance.unsqueeze(-3)
    if about.correlated or k == 1:
        return Posterior(mean, covariance, value)
    mean, covariance, log_inside = truncated(mean, covariance)
    return Posterior(mean, covariance, value + log_inside)


def truncated(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Normal distributions restricted to entries above zero, by expectation propagation.

    With natural parameters :math:`\tau, \nu` of the factor of entry k and those of the rest, its
    cavity, :math:`1 / v - \tau, \; a / v - \nu`, the factor takes the mean and the variance of the
    cavity truncated at zero; a changed factor changes the covariance S by a matrix of rank one.

    Args:
        mean: (R, N, K); covariance: (R, 1, K, K), of every row.

    Returns:
        Mean (R, N, K), covariance (R, N, K, K), and log-probability of the region (R, N).
    """
    shape, num = mean.shape, mean.shape[-1]
    # rows lie side by side: (K, R N) and (K, K, R N)
    first = mean.flatten(0, 1).mT.contiguous()
    spread = covariance.expand(*shape, num).flatten(0, 1).permute(1, 2, 0).contiguous()
    mean, tau, nu = first.clone(), torch.zeros_like(first), torch.zeros_like(first)
    log_volume = torch.zeros_like(first[0])
    for _ in range(NUM_SWEEPS):
        for k in range(num):
            own = spread[k].clone()  # (K, R N)
            precision, shift = _cavity(own[k], mean[k], tau[k], nu[k])
            gap, width = _truncated_moments(shift * precision.rsqrt())
            there = gap / width * precision.sqrt()
            new = (precision / width - precision).clamp(min=0)
            change, turn = new - tau[k], there - shift - nu[k]
            tau[k], nu[k] = new, there - shift
            grown = 1 + change * own[k]
            step = (turn - change * mean[k]) / grown
            mean.addcmul_(own, step)
            spread.sub_(own.unsqueeze(1) * (own * (change / grown)))
            log_volume -= grown.log()
    log_inside = 0.5 * log_volume + (
        nu * first - tau * first.square() / 2 + (nu - tau * first) * (mean - first) / 2
    ).sum(0)
    for k in range(num):
        precision, shift = _cavity(spread[k, k], mean[k], tau[k], nu[k])
        whole = precision + tau[k]
        log_inside += (
            torch.special.log_ndtr(shift * precision.rsqrt())
            + 0.5 * (whole / precision).log()
            + 0.5 * shift.square() / precision
            - 0.5 * (shift + nu[k]).square() / whole
        )
    return (
        mean.mT.view(shape),
        spread.permute(2, 0, 1).view(*shape, num),
        log_inside.view(shape[:-1]),
    )


def _cavity(variance: Tensor, mean: Tensor, tau: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """Natural parameters of an entry without its own factor."""
    precision = variance.reciprocal()
    return (precision - tau).clamp(min=NARROWEST * precision), mean * precision - nu


def _truncated_moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of N(z, 1) truncated to values above zero; far below by their series."""
    x = (-z).clamp(min=FAR)
    inverse, square = x.reciprocal(), x.reciprocal().square()
    hazard = (-z.square() / 2 - LOG_2PI / 2 - torch.special.log_ndtr(z)).exp()
    far = -z > FAR
    mean = torch.where(far, inverse * (1 - square * (2 - square * (10 - 74 * square))), z + hazard)
    variance = torch.where(
        far, square * (1 - square * (6 - square * (50 - 518 * square))), 1 - hazard * (z + hazard)
    )
    return mean, variance.clamp(min=NARROWEST)


def nonnegative(gram: Tensor, cross: Tensor, shares: bool = False) -> Tensor:
    r"""Non-negative least squares of many rows, exact: :math:`\min_z z^\top G z / 2 - c^\top z`.

    Block principal pivoting (Kim and Park 2011, doi:10.1137/110821172): every entry that is below
    zero leaves the support and every one with a negative slope enters it, until none is left; after
    that many exchanges the last of them alone, which ends (Murty 1974).

    Args:
        gram: G, (R, K, K); cross: c, (R, N, K); shares: whether z must sum to one.

    Returns:
        (R, N, K).
    """
    num, eye = gram.shape[-1], torch.eye(gram.shape[-1]).to(gram)
    unit = gram.diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=1e-300)[:, None, None]
    gram, rows = gram / unit + RIDGE * eye, (cross / unit).flatten(0, 1)
    owner = torch.arange(len(gram), device=rows.device).repeat_interleave(cross.shape[1])
    out, running = torch.empty_like(rows), torch.arange(len(rows), device=rows.device)
    free = torch.ones_like(rows, dtype=torch.bool)
    for attempt in range(20 * num):
        support = torch.where(free.unsqueeze(-1) & free.unsqueeze(-2), gram[owner], eye)
        goals = torch.stack([torch.where(free, rows, 0.0), free.to(rows)], -1)
        z, ones = torch.linalg.solve(support, goals).unbind(-1)
        level = (z.sum(-1, keepdim=True) - 1) / ones.sum(-1, keepdim=True) if shares else 0.0
        z = z - level * ones
        slope = (gram[owner] @ z.unsqueeze(-1)).squeeze(-1) - rows + level
        wrong = torch.where(free, z, slope) < -RIDGE * (1 + rows.abs().amax(-1, keepdim=True))
        out[running] = z.clamp(min=0)
        going = wrong.any(-1)
        if not bool(going.any()):
            break
        running, rows, owner = running[going], rows[going], owner[going]
        wrong, free = wrong[going], free[going]
        if attempt >= 5 * num:
            last = num - 1 - wrong.flip(-1).to(torch.int8).argmax(-1, keepdim=True)
            wrong = torch.zeros_like(wrong).scatter(-1, last, True)
        free = free ^ wrong
        if shares:  # some entry is above zero
            largest = torch.zeros_like(free).scatter(-1, rows.argmax(-1, keepdim=True), True)
            free = torch.where(free.any(-1, keepdim=True), free, largest)
    out = out.view(cross.shape)
    return out / out.sum(-1, keepdim=True) if shares else out


def pure_rows(x: Tensor, num: int, generator: Generator) -> Tensor:
    r"""Rows that span the largest simplex, without their noise off its plane: (K, J).

    Vertex component analysis (Nascimento and Bioucas-Dias 2005, doi:10.1109/TGRS.2005.844293): on
    the affine plane of the K - 1 leading principal components, each next vertex is the row that
    lies farthest along a random direction orthogonal to those before. Then every vertex is
    exchanged for the row that makes the volume largest (Winter 1999, doi:10.1117/12.366289).

    Args:
        x: (N, J); num: K.
    """
    x = x.double()
    mean = x.mean(0)
    centred = x - mean
    directions = torch.linalg.eigh(centred.mT @ centred).eigenvectors.flip(-1)[:, : num - 1]
    scores = torch.nn.functional.pad(centred @ directions, (1, 0), value=1.0)  # (N, K)
    scores = scores / scores.square().mean(0).sqrt().clamp(min=1e-300)
    chosen: list[int] = []
    for _ in range(num):
        way = torch.randn(num, 1, generator=generator, dtype=torch.float64).to(scores)
        if chosen:
            others = scores[chosen].mT
            way = way - others @ torch.linalg.lstsq(others, way).solution
        chosen.append(int((scores @ way).abs().argmax()))
    for _ in range(NUM_EXCHANGES):
        before = list(chosen)
        for k in range(num):
            # of the volume with each row as vertex k, over that with the present one
            ratio = (scores @ torch.linalg.pinv(scores[chosen])[:, k]).abs()
            if float(ratio.max()) > 1 + RIDGE:
                chosen[k] = int(ratio.argmax())
        if chosen == before:
            break
    return mean + centred[chosen] @ directions @ directions.mT


def likeliest_simplex(x: Tensor, vertices: Tensor) -> Tensor:
    r"""Simplex of highest likelihood, the signs of the shares taken one by one: (K, J).

    On the plane of the K - 1 leading principal components, with vertices Z (K, K - 1), M = (1, Z)
    and shares :math:`b_n = (1, y_n) M^{-1}` of a row's scores y, the logarithm of the likelihood is

    .. math:: \sum_{n, k} \log \Phi(b_{nk} / s_k) - N \log |\det M|, \qquad s_k^2 = \sigma^2 |
        (M^{-1})_{2:, k}|^2,

    up to a constant, where the noise of the shares of a row is taken as independent;
    :math:`\sigma^2` is the mean variance off the plane. EM moves the simplex by steps of the size
    of the noise, which takes it a thousand of them where noise is small; here M alone is sought,
    by its gradient.

    Args:
        x: (N, J), J of at least K; vertices: where to begin, (K, J).
    """
    from scipy.optimize import minimize

    x, k = x.double(), len(vertices)
    mean = x.mean(0)
    centred = x - mean
    values, turn = torch.linalg.eigh(centred.mT @ centred / len(x))
    directions = turn.flip(-1)[:, : k - 1]
    unit = values[-k + 1 :].mean().sqrt() if k > 1 else values[-1].sqrt()
    noise = values[: len(values) - k + 1].mean().clamp(min=0).sqrt() / unit
    rows = torch.nn.functional.pad(centred @ directions / unit, (1, 0), value=1.0)  # (N, K)
    first = (vertices.double() - mean) @ directions / unit
    if k == 1 or not bool(noise > RIDGE):
        return vertices.double()

    def loss(flat: Array) -> tuple[float, Array]:
        z = torch.from_numpy(flat).to(rows).view_as(first).requires_grad_()
        whole = torch.nn.functional.pad(z, (1, 0), value=1.0)
        inverse = torch.linalg.pinv(whole)
        spread = noise * inverse[1:].norm(dim=0)
        inside = torch.special.log_ndtr(rows @ inverse / spread).sum() / len(rows)
        value = torch.linalg.slogdet(whole).logabsdet - inside
        (slope,) = torch.autograd.grad(value, z)
        return float(value.detach()), slope.cpu().numpy().ravel()

    found = minimize(loss, first.cpu().numpy().ravel(), jac=True, method="L-BFGS-B").x
    z = torch.from_numpy(found).to(rows).view_as(first)
    return mean + unit * z @ directions.mT


@dataclass(frozen=True, eq=False)
class UnmixingStatistics:
    """Expected moments of the abundances, summed over rows.

    Args:
        second: E[a a^T], (R, K, K); cross: of E[a] with x, (R, K, J).
        products: of the items, (J, J), or their squares, (J,), where noise is independent.
        totals: of the items, (J,); num_rows: N, ().
    """

    second: Tensor
    cross: Tensor
    products: Tensor
    totals: Tensor
    num_rows: Tensor


@dataclass(frozen=True, eq=False)
class UnmixingSteps(Steps[UnmixingStatistics]):
    """Both halves of EM.

    Args:
        about: the model's description; program: of one row, for the prior.
        x: (N, J).
    """

    about: UnmixingDescription
    program: Program
    x: Tensor

    def on(self, data: Tensor, weights: Tensor | None = None) -> UnmixingSteps:
        self.refuse_weights(weights)
        return replace(self, x=data)

    @property
    def known_sites(self) -> frozenset[str]:
        """The scale, where noise is correlated."""
        return frozenset({"scales"}) if self.about.correlated else frozenset()

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        x = self.x.double()  # what is left of squares is small
        products = x.mT @ x if self.about.correlated else x.square().sum(0)
        return products, x.sum(0), x.new_tensor(float(len(x)))

    def e_step(self, params: Params) -> EStep[UnmixingStatistics]:
        """Expected moments, log-likelihood and log-prior."""
        parts, value = RunningSum[dict[str, Tensor]](), self.x.new_zeros(())
        size = max(1, AT_ONCE // (self.x.shape[1] * len(params["endmembers"])))
        for x in self.x.split(size):
            found = posterior(self.about, params, x)
            mean, x = found.mean, x.double()
            spread = found.covariance.sum(-3) * (len(x) / found.covariance.shape[-3])
            parts.add({"second": mean.mT @ mean + spread, "cross": mean.mT @ x})
            value = value + found.log_likelihood.sum(-1).to(self.x)
        sums = parts.total()
        statistics = UnmixingStatistics(sums["second"], sums["cross"], *self._sums)
        return EStep(statistics, value, self.program.log_prior(params))

    def m_step(self, statistics: UnmixingStatistics, params: Params) -> Params:
        """Endmembers by least squares on the expected abundances, and the scale."""
        second, cross = statistics.second.double(), statistics.cross.double()
        phi = nonnegative(second, cross.mT).mT.clamp(max=self.about.bound)
        return {
            "endmembers": phi.to(self.x).contiguous(),
            "scales": self.scales(statistics, phi),
        }

    def scales(self, statistics: UnmixingStatistics, phi: Tensor) -> Tensor:
        """Scale of the noise at endmembers (R, K, J), (R, 1)."""
        products, number = statistics.products.double(), statistics.num_rows.double()
        if self.about.correlated:
            mean = statistics.totals.double() / number
            covariance = products / number - mean.unsqueeze(-1) * mean
            # ascending
            variance = torch.linalg.eigvalsh(covariance)[-self.about.num_components].expand(
                len(phi), 1
            )
        else:
            second, cross = statistics.second.double(), statistics.cross.double()
            left = (phi * (second @ phi - 2 * cross)).sum((-2, -1), keepdim=True).squeeze(-1)
            variance = (left + products.sum()) / (number * self.about.num_items)
        return variance.clamp(min=0).sqrt().clamp(*SCALE_RANGE).to(self.x)


class UnmixingStructure(Structure):
    """A model that offers ``unmixing()``."""

    integrated_sites = ("abundances",)
    capabilities = frozenset({Capability.BLOCKS})

    @cached_property
    def about(self) -> UnmixingDescription:
        about: UnmixingDescription = self.model.unmixing()
        return about

    @classmethod
    def of(cls, model: Callable[..., object]) -> UnmixingStructure | None:
        """Structure of a model that offers ``unmixing()``, or None."""
        return cls(model) if hasattr(model, "unmixing") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """The likeliest simplex ("spectral") or rows at random, and the noise that they leave.

        Where noise is correlated, no likelihood says how far the simplex reaches: vertices of rows.
        """
        about, x = self.about, problem.data
        generator, k = torch.Generator().manual_seed(problem.seed), about.num_components
        found = []
        for _ in range(num_restarts):
            if init == "spectral":
                vertices = pure_rows(x, k, generator)
                found.append(
                    (vertices if about.correlated else likeliest_simplex(x, vertices)).to(x)
                )
            else:
                found.append(x[torch.randperm(len(x), generator=generator)[:k].to(x.device)])
        phi = torch.stack(found).clamp(0, about.bound).contiguous()
        steps = UnmixingSteps(about, problem.program_of_one_row(), x)
        own, x = phi.double(), x.double()
        mean = nonnegative(own @ own.mT, x @ own.mT, shares=True)
        statistics = UnmixingStatistics(mean.mT @ mean, mean.mT @ x, *steps._sums)
        return {"endmembers": phi, "scales": steps.scales(statistics, own)}

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> UnmixingSteps:
        return UnmixingSteps(self.about, problem.program_of_one_row(), problem.data)

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor]:
        _, likelihood, prior = self.steps(problem, 0, 0).e_step(params)
        return likelihood.double().cpu(), (likelihood + prior).double().cpu()

    def canonical(self, params: Params) -> Params:
        """Endmembers in the order of falling sums."""
        order = params["endmembers"].sum(-1).argsort(descending=True, stable=True)
        return params | {"endmembers": params["endmembers"][order]}

    def labels(self) -> tuple[Labels, ...]:
        """Endmembers, matched by their entries."""

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            # drawn abundances are (D, N, K), the endmembers (D, K, J)
            moved = {"endmembers": params["endmembers"][:, order]}
            if "abundances" in params:
                moved["abundances"] = params["abundances"][..., order]
            return params | moved

        return (Labels("abundances", lambda params: params["endmembers"], rename),)

    def why_no_standard_errors(self, params: Params) -> str | None:
        return (
            "the integral over abundances of the rows has no second derivatives at hand;"
            " Bootstrap() gives intervals here"
        )

    def at_bound(self, params: Params) -> list[str]:
        """The scale at an end of its interval, and entries of endmembers at their upper one."""
        low, high = SCALE_RANGE
        off = not low / ON_BOUND < float(params["scales"]) < ON_BOUND * high
        most = params["endmembers"] >= ON_BOUND * self.about.bound
        return ["scales[0]"] * off + [f"endmembers{place}" for place in most.nonzero().tolist()]

    def why_no_criteria(self, params: Params) -> str | None:
        """Reason in words: a scale that is not estimated by likelihood."""
        return (
            "the scale of correlated noise is not estimated by maximum likelihood, and falls with"
            " the number of components whatever they explain"
            if self.about.correlated
            else None
        )

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        r"""Sentence on residuals that are correlated between items.

        The largest eigenvalue of the covariance of independent noise is about :math:`\sigma^2 (1 +
        \sqrt{J / N})^2` (Marchenko and Pastur 1967); the sentence is said above twice of it.
        """
        if self.about.correlated:
            return []
        x = problem.data.to(params["endmembers"])
        left = x - self.expected_rows(problem.program(), params)
        widest = float(torch.linalg.eigvalsh(left.mT @ left)[-1]) / len(x)
        excess = widest / float(params["scales"]) ** 2 / (1 + (x.shape[1] / len(x)) ** 0.5) ** 2
        if excess < CORRELATED:
            return []
        return [
            "the residuals are correlated between columns: in one direction their variance is"
            f" {excess:.1f} times what independent noise would show. Either an endmember is missing"
            " (fit more), or the noise is correlated, and the endmembers are then stretched to rows"
            " that no mixture explains: Unmixing(..., noise='correlated') allows for it"
        ]

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Entries of the endmembers, and the scale where it is estimated by likelihood."""
        return params["endmembers"].numel() + (not self.about.correlated)

    def latent_means(self, program: Program, params: Params) -> Params:
        """E[abundances | row], (N, K)."""
        mean = posterior(self.about, _one(params), program.args[0]).mean[0].clamp(min=0)
        return {"abundances": (mean / mean.sum(-1, keepdim=True)).to(params["endmembers"])}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """Nothing: no latent is discrete."""
        return {}

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        """The fitted means of the rows, (N, J)."""
        own: Tensor = self.latent_means(program, params)["abundances"] @ params["endmembers"]
        return own

    def recommended(self, problem: Problem) -> Recommendation:
        """EM from vertices of the rows."""
        method = EM(max_iterations=1000, tolerance=1e-7, parameter_tolerance=1e-4)
        return Recommendation(method, "spectral", 1)


def _one(params: Params) -> Params:
    return {name: value.unsqueeze(0) for name, value in params.items()}


@num_density_items.register(UnmixingStructure)
def _(structure: UnmixingStructure, num_items: int) -> int:
    return num_items


@component_noise.register(UnmixingStructure)
def _(
    structure: UnmixingStructure,
    params: Params,
    data: Tensor,
    generator: Generator,
    num_draws: int,
) -> NoiseDraws:
    r"""Split the residual at draws of the abundances, by rows that are mainly of one component.

    Shares sum to one, so noise of variance :math:`a_k \sigma^2` in component k adds up to that of
    the row. Where it is correlated, items are first made uncorrelated by the residuals' covariance.
    """
    phi, about = params["endmembers"].double(), structure.about
    data = data.to(phi)
    found = posterior(about, _one(params), data)
    basis = plane(about.num_components, phi)
    covariance = found.covariance[0].expand(len(data), -1, -1)
    factor = torch.linalg.cholesky(
        basis.mT @ covariance @ basis + RIDGE * torch.eye(about.num_components - 1).to(phi)
    )
    scores, used = [], []
    for _ in range(num_draws):
        noise = torch.randn(
            (len(data), about.num_components - 1, 1), generator=generator, dtype=torch.float64
        )
        a = found.mean[0] + (basis @ factor @ noise.to(phi)).squeeze(-1)
        a = a.clamp(min=RIDGE)
        a = a / a.sum(-1, keepdim=True)
        residual = data - a @ phi
        if about.correlated:
            values, turn = torch.linalg.eigh(residual.mT @ residual / len(data))
            residual = residual @ turn / values.clamp(min=RIDGE * float(values[-1])).sqrt()
        else:
            residual = residual / params["scales"].double()
        scores.append(gaussian_split(residual, a.sqrt().unsqueeze(-1), generator, 1)[0])
        used.append(a > MAINLY)
    share = found.mean[0].mean(0)
    return NoiseDraws(
        torch.stack(scores).numpy(), torch.stack(used).numpy(), (share / share.sum()).numpy()
    )


@marginal_rows.register(UnmixingStructure)
def _(structure: UnmixingStructure, program: Program, params: Params) -> Tensor:
    """Abundances integrated, (N,)."""
    found = posterior(structure.about, _one(params), program.args[0])
    return found.log_likelihood[0].to(params["endmembers"])

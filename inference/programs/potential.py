r"""Log-posterior of parameters, unconstrained, latents summed out, for a batch of points.

With parameters :math:`\theta = T(z)`, site by site Pyro's bijection from the real line to the
site's support,

.. math:: \ell(z) = \log p(x \mid T(z)) + \log p(T(z)) + \log |\det J_T(z)|,

whose exponential is a density in z. A batch of R points runs as R restarts of the program, so
several chains or particles cost one run.
"""

from __future__ import annotations

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import torch
from numpy import ndarray as Array
from pyro import poutine
from torch import Tensor
from torch.distributions import biject_to, constraints

from inference.programs.program import Params, Program
from inference.programs.replay import recorded, recorded_by_rows

BEYOND, EDGE = (
    25.0,
    6.0,
)  # an estimate on its bound (logit beyond 25) starts inside: sigmoid(6) = 0.9975
POINT = "_point"  # site of an unconstrained point, where parameters are partly known
MOST_CLIMBING = 300  # steps towards the top of the density
CHUNK = 64  # points evaluated at once


class Potential:
    """Log-posterior density and gradient at unconstrained points.

    Args:
        program: with all the data; latents must be enumerable. Of known entries of its parameters
            the density is that of all others given these.
        like: one draw of every parameter and local site, (1, ...), for shapes and dtype.

    Raises:
        ValueError: naming a latent that cannot be enumerated, a site whose support has no
            bijection, or a matrix of which a part is known; or if every entry is known.
    """

    def __init__(self, program: Program, like: Params) -> None:
        program.check_enumerable()
        self.program = program
        self.names = tuple(
            site.name for site in program.sites if site.kind in ("parameter", "local")
        )
        self._maps = {}
        for name in self.names:
            support = program.site(name).support
            try:
                self._maps[name] = (
                    program.fixed.coordinates(name)
                    if program.fixed is not None and name in program.fixed.values
                    else biject_to(support)
                )
            except NotImplementedError as error:
                raise ValueError(
                    f"site {name!r} with support {support} has no bijection to the real line"
                ) from error
        inner = {name: self._maps[name].inv(like[name][:1]) for name in self.names}
        self._shapes = {name: value.shape[1:] for name, value in inner.items()}
        self._functions: dict[int, Callable[[Tensor], tuple[Tensor, ...]]] = {}
        self.like = torch.cat([value.reshape(1, -1) for value in inner.values()], 1)
        if not self.like.numel():
            raise ValueError(
                "fixed: a free entry of a parameter was expected, to draw, and all are known: EM()"
                " gives the likelihood there"
            )

    @property
    def size(self) -> int:
        """Number of coordinates, P."""
        return self.like.shape[1]

    def vector(self, params: Params) -> Tensor:
        """Unconstrained points (R, P) of parameters (R, ...); those on a bound are moved inside."""
        parts = []
        for name in self.names:
            free = self._maps[name].inv(params[name])
            on_bound = ~(free.abs() < BEYOND) & (not _is_real(self.program.site(name).support))
            free = torch.where(on_bound, EDGE * free.nan_to_num(nan=0.0).sign(), free)
            parts.append(free.reshape(len(free), -1))
        return torch.cat(parts, 1).detach()

    def params(self, points: Tensor) -> Params:
        """Parameters (R, ...) at unconstrained points (R, P); differentiable."""
        return {name: self._maps[name](free) for name, free in self._split(points).items()}

    def log_density(self, points: Tensor) -> Tensor:
        """Log-posterior density l(z), (R,); differentiable."""
        params, log_jacobian = self.params_and_volume(points)
        return self.log_marginal(params) + self.program.log_prior(params) + log_jacobian

    def params_and_volume(self, points: Tensor) -> tuple[Params, Tensor]:
        """Parameters (R, ...) at unconstrained points, and the log of |det J_T| there, (R,)."""
        params, log_jacobian = {}, points.new_zeros(len(points))
        for name, value in self._split(points).items():
            params[name] = self._maps[name](value)
            log_det = self._maps[name].log_abs_det_jacobian(value, params[name])
            log_jacobian = log_jacobian + log_det.reshape(len(points), -1).sum(-1)
        return params, log_jacobian

    def log_marginal(self, params: Params) -> Tensor:
        """Log-likelihood of each point, latents summed out, (R,)."""
        return self.program.log_marginal(params)

    def model(self, *_: object) -> None:
        """Density of the unconstrained points as a Pyro program of one latent vector, ``POINT``."""
        flat = dist.Normal(torch.zeros_like(self.like[0]), 1.0).to_event(1)
        flat = flat.mask(torch.zeros((), dtype=torch.bool, device=self.like.device))
        point = pyro.sample(POINT, flat)
        points = point.reshape(-1, self.size)
        with poutine.block():
            value, slope = self(points.detach())
        density = value + (slope * (points - points.detach())).sum(-1)  # to first order
        pyro.factor("_density", density.reshape(point.shape[:-1]))

    def __call__(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Density l(z) and gradient, (R,) and (R, P); -inf and zero where not finite."""
        if len(points) > CHUNK and type(self) is Potential:  # sets are one batch
            parts = [self(part) for part in points.split(CHUNK)]
            return torch.cat([a for a, _ in parts]), torch.cat([b for _, b in parts])
        if len(points) not in self._functions:
            at_once = len(points) == 1 or type(self) is not Potential or self.program.broadcasts()
            record = recorded if at_once else recorded_by_rows
            self._functions[len(points)] = record(self._evaluate, points)
        value, gradient = self._functions[len(points)](points)
        bad = ~(torch.isfinite(value) & torch.isfinite(gradient).all(-1))
        if bad.any():
            value, gradient = (
                value.masked_fill(bad, -torch.inf),
                gradient.masked_fill(bad.unsqueeze(-1), 0.0),
            )
        return value, gradient

    def curvature(self, point: Tensor) -> Tensor:
        """Minus the Hessian at one point (P,), by differentiating twice, (P, P)."""
        with torch.enable_grad():
            leaf = point.detach().reshape(1, -1).requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_density(leaf).sum(), leaf, create_graph=True)
            lines = [
                torch.autograd.grad(entry, leaf, retain_graph=True)[0][0] for entry in gradient[0]
            ]
        hessian = -torch.stack(lines)
        return (hessian + hessian.mT) / 2

    def climbed(self, point: Tensor) -> Tensor:
        """Point near the top of the density, uphill of one (P,), by L-BFGS."""
        from scipy.optimize import minimize

        def descent(z: Array) -> tuple[float, Array]:
            value, gradient = self(torch.from_numpy(z).to(point)[None])
            return (-float(value) if torch.isfinite(value).all() else 1e300), -gradient[
                0
            ].cpu().double().numpy()

        start = point.detach().cpu().double().numpy()
        optimum = minimize(
            descent,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MOST_CLIMBING, "maxcor": 20},
        )
        return torch.from_numpy(optimum.x if optimum.fun <= descent(start)[0] else start).to(point)

    def _evaluate(self, points: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            value = self.log_density(points)
            (gradient,) = torch.autograd.grad(value.sum(), points)
        return value.detach(), gradient

    def _split(self, points: Tensor) -> Params:
        sizes = [shape.numel() for shape in self._shapes.values()]
        pieces = points.split(sizes, dim=1)
        return {
            name: piece.reshape(len(points), *shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }


class PotentialOfSets(Potential):
    """Potential of several data sets of one model, each point of a batch with its own.

    The rows of all sets stand one after the other in one table, and a point is charged with the
    rows of its own set alone. Rows of other sets are evaluated too, which is little work beside
    that of many small programs one by one.

    Args:
        program: with the rows of all sets; like: as there.
        num_sets: sets of equally many rows; a batch holds equally many points of each, those of the
            first set first.
    """

    def __init__(self, program: Program, like: Params, num_sets: int) -> None:
        super().__init__(program, like)
        self.num_sets = num_sets

    def log_marginal(self, params: Params) -> Tensor:
        rows = self.program.log_marginal_rows(params)  # (R, sets * rows)
        if rows.dim() != 2:
            raise ValueError(
                "several data sets at once: a program whose rows stand in one plate and share no "
                "latent was expected; NUTS with a warm start fits one set after the other"
            )
        by_set = rows.reshape(self.num_sets, -1, self.num_sets, rows.shape[-1] // self.num_sets)
        return by_set.diagonal(dim1=0, dim2=2).sum(1).mT.reshape(-1)  # (points, rows, sets) -> (R,)


def _is_real(support: constraints.Constraint) -> bool:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support is constraints.real

r"""Gauss-Hermite quadrature: continuous latents of rows as discrete ones, their values the nodes.

A continuous latent u of a row whose distribution is a function of standard normal numbers v,
:math:`u = h(v; \theta)` (a Normal: :math:`u = \mu + \sigma v`), is integrated by

.. math:: \int f(u) \, p(u) \, du = \int f(h(v)) \, \varphi(v) \, dv
    \approx \sum_q w_q \, f(h(x_q)) ,

with nodes x and weights w of Gauss-Hermite quadrature. With many observations in a row f is narrow,
and nodes that stay where they are miss it. Nodes of row i are then centred at the mean m of its
posterior of v, given the parameters of the round before, and scaled by a root T of its covariance,

.. math:: v_{iq} = m_i + T_i x_q , \qquad
    w_{iq} = w_q \, |T_i| \, \frac{\varphi(v_{iq})}{\varphi(x_q)} ,

which is adaptive quadrature. In either case the latent is a site of as many values as there are
nodes, with a weight each, and everything that is known of discrete latents holds: a sum over them,
its derivatives, posteriors.

Sources: J. C. Naylor and A. F. M. Smith (1982), doi:10.2307/2347995, for nodes at posterior means;
Q. Liu and D. A. Pierce (1994), doi:10.1093/biomet/81.3.624; S. Rabe-Hesketh, A. Skrondal and
A. Pickles (2005), doi:10.1016/j.jeconom.2004.08.017, for latent variables at several levels.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from inference.programs.arguments import Call, parameters_of, program_name

Params = dict[str, Tensor]
Centres = dict[str, tuple[Tensor, Tensor]]  # mean (*B, d) and root of the covariance (*B, d, d)

MOST_DIMS = 2  # of all continuous latents of a row together
WIDER = 0.04  # of the covariance before that is added to the next: spreads shrink fivefold at most
MOST_MOVES, SETTLED = 20, 1e-3  # of centres; the last one, in posterior standard deviations


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Quadrature rule for the continuous latents of rows, and its errors.

    Args:
        dims: of each of them, by site.
        num_nodes: in each dim.
        at: parameters under whose posterior the nodes of every row are centred; None for the same
            nodes in all rows.
        error: by how much of its standard error about twice as many nodes would move an estimate,
            at most; NaN where that is not known.
        log_likelihood_error: how much higher the log-likelihood would be, in nats.
    """

    dims: Mapping[str, int]
    num_nodes: int
    at: Params | None = None
    error: float = math.nan
    log_likelihood_error: float = math.nan

    def in_words(self) -> str:
        """Nodes and error in words."""
        each = f"{self.num_nodes} nodes" + (" a dim" if sum(self.dims.values()) > 1 else "")
        return (
            f"over {', '.join(self.dims)} by {each}{'' if self.at is None else ' about each row'};"
            f" error of an estimate at most {self.error:.1g} standard errors"
        )

    def nodes(self, name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Nodes (Q, d) and logarithms of their weights (Q,) of a standard normal vector."""
        one, log_one = (value.to(dtype) for value in _gauss_hermite(self.num_nodes))
        dims = self.dims[name]
        if dims == 1:
            return one.unsqueeze(-1), log_one
        return torch.cartesian_prod(*[one] * dims), torch.cartesian_prod(*[log_one] * dims).sum(-1)


@functools.lru_cache(maxsize=32)
def _gauss_hermite(num_nodes: int) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    return torch.from_numpy(nodes), torch.from_numpy(np.log(weights / weights.sum()))


class Integrated:
    """Program whose continuous latents of rows are integrated by quadrature.

    Called, it is the program itself: only sums over its latents take the nodes for them.

    Args:
        program: of the user; quadrature: of its continuous latents.
    """

    def __init__(self, program: Callable[..., Any], quadrature: Quadrature) -> None:
        self.program, self.quadrature = program, quadrature
        self.__name__, self.__doc__ = program_name(program), inspect.getdoc(program)
        self.__signature__ = inspect.Signature(parameters_of(program))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


def integrated(model: Callable[..., Any], quadrature: Quadrature) -> Callable[..., Any]:
    """Program with a rule for its continuous latents, in the place of the one that it has."""
    if isinstance(model, Call):
        return Call(integrated(model.program, quadrature), model.settings)
    return Integrated(model.program if isinstance(model, Integrated) else model, quadrature)


def quadrature_of(model: Any) -> Quadrature | None:
    """The rule for continuous latents of a program; None where they are not integrated so."""
    model = model.program if isinstance(model, Call) else model
    return model.quadrature if isinstance(model, Integrated) else None


class Nodes(dist.Categorical):
    """Weights of the nodes of a continuous latent, which need not sum to one."""

    @classmethod
    def of(cls, log_weights: Tensor) -> Nodes:
        new = cls(logits=log_weights, validate_args=False)
        new.logits = log_weights
        return new


class NodeSites(Messenger):
    """Replace continuous latents of rows by the numbers of their nodes.

    A trace outside sees the number, the program inside the value.

    Args:
        quadrature: the rule; centres: of the nodes of every row, by site; none for standard nodes.
    """

    def __init__(self, quadrature: Quadrature, centres: Centres | None = None) -> None:
        super().__init__()
        self.quadrature, self.centres = quadrature, centres or {}
        self.values: Params = {}  # of the last run, (*batch, d)
        # shape of the batch, and of the values in their plates, by site
        self.shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._open: dict[str, Any] = {}

    def points(self, name: str, dtype: torch.dtype) -> Tensor:
        """Nodes of a site as values of v, (Q, d), or of every row (*B, Q, d)."""
        nodes, _ = self.quadrature.nodes(name, dtype)
        if name not in self.centres:
            return nodes
        mean, root = self.centres[name]
        return mean.unsqueeze(-2) + nodes @ root.mT

    def moved(self, marginals: Params) -> tuple[Centres, float]:
        """Centres at the posterior by marginals (..., Q) of the nodes, and how far that is."""
        new, farthest = {}, 0.0
        for name in self.quadrature.dims:
            shape, _ = self.shapes[name]
            weights = marginals[name].reshape(*shape, -1, 1)  # (*B, Q, 1)
            points = self.points(name, weights.dtype)
            mean = (weights * points).sum(-2)
            apart = points - mean.unsqueeze(-2)
            before, root = self.centres.get(
                name, (torch.zeros_like(mean), torch.eye(mean.shape[-1]).to(mean))
            )
            root = root.expand(*mean.shape, mean.shape[-1])
            covariance = (weights * apart).mT @ apart + WIDER * root @ root.mT
            wide = torch.linalg.cholesky(covariance)
            way = torch.linalg.solve_triangular(wide, (mean - before).unsqueeze(-1), upper=False)
            turn = torch.linalg.solve_triangular(wide, root, upper=False)
            change = turn - torch.eye(mean.shape[-1]).to(mean)
            farthest = max(farthest, float(way.abs().max()), float(change.abs().max()))
            new[name] = mean, wide
        return new, farthest

    def _pyro_sample(self, msg: Any) -> None:
        name, fn = msg["name"], msg["fn"]
        if name not in self.quadrature.dims:
            return
        nodes, log_weights = self.quadrature.nodes(name, torch.get_default_dtype())
        if name in self.centres:
            _, root = self.centres[name]
            log_scale = root.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
            squares = self.points(name, nodes.dtype).square().sum(-1) - nodes.square().sum(-1)
            log_weights = log_weights - 0.5 * squares + log_scale
        sizes = {frame.dim: frame.size for frame in msg["cond_indep_stack"] if frame.vectorized}
        shape = tuple(sizes.get(dim, 1) for dim in range(min(sizes, default=0), 0))
        msg["fn"] = Nodes.of(log_weights.expand(*shape, len(nodes)))
        in_plates = tuple(sizes[dim] for dim in sorted(sizes))
        self._open[name], self.shapes[name] = fn, (shape, in_plates + tuple(fn.event_shape))

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name not in self._open:
            return
        fn, (shape, _) = self._open.pop(name), self.shapes[name]
        number = msg["value"].long()
        number = number.expand(torch.broadcast_shapes(number.shape, shape))
        nodes, _ = self.quadrature.nodes(name, torch.get_default_dtype())
        standard = nodes[number]  # (*batch, d)
        if name in self.centres:
            mean, root = self.centres[name]
            standard = mean + (root @ standard.unsqueeze(-1)).squeeze(-1)
        value = of_standard(fn, standard.reshape(standard.shape[:-1] + fn.event_shape))
        self.values[name] = value.reshape(value.shape[: value.dim() - fn.event_dim] + (-1,))
        msg["value"] = value


def of_standard(fn: Any, standard: Tensor) -> Tensor:
    """Value of a distribution as a function of standard normal numbers, (*batch, *event).

    Raises:
        NotImplementedError: for a distribution of which no such function is known.
    """
    while type(fn).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        fn = fn.base_dist
    value: Tensor
    if isinstance(fn, torch.distributions.Normal):
        value = fn.loc + fn.scale * standard
        return value
    if isinstance(
        fn,
        torch.distributions.MultivariateNormal | torch.distributions.LowRankMultivariateNormal,
    ):
        value = fn.loc + (fn.scale_tril @ standard.unsqueeze(-1)).squeeze(-1)
        return value
    if isinstance(fn, torch.distributions.TransformedDistribution):
        try:
            value = of_standard(fn.base_dist, standard)
        except NotImplementedError:
            value = fn.icdf(torch.special.ndtr(standard))
        else:
            for transform in fn.transforms:
                value = transform(value)
        return value
    if fn.event_dim:
        raise NotImplementedError
    value = fn.icdf(torch.special.ndtr(standard))
    return value


def quadrature_for(
    nodes: Mapping[str, Any], sites: Mapping[str, Any], num_nodes: Any
) -> Quadrature:
    """Rule for the continuous latents of the rows of a program.

    Args:
        nodes: of a run of the program, by site; sites: those that are to be integrated, by name.
        num_nodes: of a dim, by the number of dims of a row.

    Raises:
        ValueError: naming the site that cannot be integrated, and why.
    """
    dims = {name: math.prod(nodes[name]["fn"].event_shape) for name in sites}
    for name, site in sites.items():
        line = f" ({site.line})" if site.line else ""
        draws = "draw it by fit(model, data, NUTS()) or SVI()"
        if site.in_chain:
            raise ValueError(
                f"{name!r}{line} is a continuous latent of every step of a pyro.markov loop, which "
                f"quadrature cannot integrate: {draws}"
            )
        fn = nodes[name]["fn"]
        try:
            with torch.no_grad():
                value = of_standard(fn, torch.zeros_like(fn.sample()))
            if value.shape != fn.batch_shape + fn.event_shape:
                raise NotImplementedError
        except NotImplementedError as error:
            raise ValueError(
                f"{name!r}{line} has the distribution {site.distribution}, and quadrature takes "
                f"functions of normal numbers alone, such as Normal and LogNormal: {draws}"
            ) from error
    total = sum(dims.values())
    if total > MOST_DIMS:
        raise ValueError(
            f"the continuous latents {', '.join(map(repr, dims))} of a row have {total} dims, and "
            f"quadrature integrates {MOST_DIMS} at most: draw them by fit(model, data, NUTS()) or "
            "SVI()"
        )
    return Quadrature(dims, num_nodes[total])

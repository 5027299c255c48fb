"""Parameters without a prior: ``pyro.param`` statements as sites with a flat density.

A site of :class:`Flat` adds nothing to the log-prior, so that the log-posterior is the
log-likelihood in its coordinates. It has the value at which the program starts its parameter, or
that the caller's parameter store holds of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from pyro.distributions import TorchDistribution
from pyro.poutine.messenger import Messenger
from torch import Tensor, nn
from torch.distributions import biject_to, constraints, transform_to

from inference.programs.global_state import stored_parameter
from ppl_models.parts.precisions import LowerCholesky, PositiveDefinite

NOISE = 0.5  # around the start, of a draw, on the unconstrained scale
NEAR = 0.01  # the same, of a program that does not run farther from its start
FAR = 20.0  # on the unconstrained scale of a bounded parameter: its bound, from where no step leads
INSIDE = 5.0  # where a start on the bound is moved to
SIZED: tuple[tuple[Any, Callable[[int], constraints.Constraint]], ...] = (
    (type(constraints.lower_cholesky), LowerCholesky),
    (type(constraints.positive_definite), PositiveDefinite),
)  # constraints of matrices for which torch has no bijection, and ours


class Flat(TorchDistribution):
    """Flat (improper) density of a parameter on its constraint, log p = 0.

    Args:
        start: value at which the program starts the parameter.
        constraint: that its values satisfy.
        noise: of a draw, in units of the unconstrained scale.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        start: Tensor,
        constraint: constraints.Constraint,
        batch_shape: Any = (),
        noise: float = NOISE,
    ) -> None:
        self.start, self.constraint, self.noise = start, constraint, noise
        super().__init__(torch.Size(batch_shape), start.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """The constraint, of all dims of the parameter together."""
        dims = self.constraint.check(self.start).dim()  # some of Pyro's do not tell their own
        return constraints.independent(self.constraint, dims) if dims else self.constraint

    def expand(self, batch_shape: Any, _instance: Any = None) -> Flat:
        return Flat(self.start, self.constraint, batch_shape, self.noise)

    def log_prob(self, value: Tensor) -> Tensor:
        return value.new_zeros(value.shape[: value.dim() - self.start.dim()])

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """A value near the start."""
        shape = torch.Size(sample_shape) + self.batch_shape
        transform = biject_to(self.support)
        free = transform.inv(self.start)
        noise = self.noise * torch.randn(shape + free.shape, dtype=free.dtype, device=free.device)
        return cast(Tensor, transform(free + noise))


class ParameterSites(Messenger):
    """Rewrite ``pyro.param`` statements as unobserved sites with a flat density.

    A second statement of the same name in a run has the value of the first. Plates around a
    statement do not expand it.

    Args:
        replaced: filled with the values of parameters of networks, by the id of the network's own.
        noise: of a draw, see :class:`Flat`.
    """

    def __init__(self, replaced: dict[int, Tensor] | None = None, noise: float = NOISE) -> None:
        super().__init__()
        self.noise = noise
        self.values: dict[str, Tensor] = {}
        self.weights: dict[str, nn.Parameter] = {}
        self.replaced = replaced

    def _pyro_param(self, msg: Any) -> None:
        name = msg["name"]
        if name in self.values:
            msg["value"], msg["done"], msg["stop"] = self.values[name], True, True
            return
        given = msg["args"][1] if len(msg["args"]) > 1 else None
        if isinstance(given, nn.Parameter):
            self.weights[name] = given
        start = _start(name, given, msg["kwargs"].get("constraint", constraints.real))
        msg["fn"] = Flat(*start, noise=self.noise)
        msg["type"], msg["args"], msg["kwargs"], msg["infer"] = "sample", (), {}, {}
        msg["is_observed"], msg["cond_indep_stack"], msg["scale"], msg["mask"] = (
            False,
            (),
            1.0,
            None,
        )

    def _pyro_post_sample(self, msg: Any) -> None:
        if not isinstance(msg["fn"], Flat):
            return
        name, value = msg["name"], msg["value"]
        self.values[name] = value
        if name in self.weights and self.replaced is not None:
            self.replaced[id(self.weights[name])] = value
            msg["value"] = self.weights[
                name
            ]  # as if it were in the store, so that no network is changed


def _start(
    name: str, given: Any, constraint: constraints.Constraint
) -> tuple[Tensor, constraints.Constraint]:
    """Value at which a parameter starts, moved inside its constraint, and that constraint.

    Raises:
        ValueError: for a parameter without a value, or one outside its constraint.
    """
    if stored := stored_parameter(name):
        value, constraint = stored
    elif given is None:
        raise ValueError(
            f"pyro.param {name!r} has no value to start from: one was expected in its first"
            f" statement, pyro.param({name!r}, torch.zeros(3)), or in the parameter store"
        )
    else:
        value = torch.as_tensor(given() if callable(given) else given).detach()
    value = value.to(torch.get_default_dtype())
    if not bool(constraint.check(value).all()):  # where Pyro's own store would start it
        transform = transform_to(constraint)
        value = transform(transform.inv(value))
    if not bool(constraint.check(value).all()):
        raise ValueError(
            f"pyro.param {name!r}: a value to start from with constraint {constraint} was expected,"
            " got another"
        )
    if constraint is constraints.real:
        return value, constraint
    for kind, sized in SIZED:
        if type(constraint) is kind:
            constraint = sized(value.shape[-1])
    try:
        transform = biject_to(constraint)
    except NotImplementedError as error:
        raise ValueError(
            f"pyro.param {name!r}: a constraint with a bijection to real numbers was expected, such"
            f" as positive, simplex or corr_cholesky, got {constraint}"
        ) from error
    free = transform.inv(value)
    if bool((free.abs() < FAR).all()):
        return value, constraint
    return transform(free.nan_to_num(nan=0.0).clamp(-INSIDE, INSIDE)), constraint

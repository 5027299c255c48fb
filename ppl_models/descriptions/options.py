"""Descriptions of hidden-option models for engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from pyro.distributions import Normal
from torch import Tensor

from ppl_models.descriptions.units import Units
from ppl_models.parts.durations import Durations
from ppl_models.parts.policies import Network, Policy, SoftmaxLinear


@dataclass(frozen=True)
class ChainDescription:
    """Description of a hidden-option model: site names, sizes and Dirichlet priors.

    Args:
        num_states, num_actions, num_options: S, A and O.
        initial, low, high, environment: names of the sites, (S, O), (S, O, A), (S, O, O), (A, S,
            S).
        concentration: of every Dirichlet prior.
        stickiness: added to the concentration of staying in an option.
        termination, choice: names of the sites (S, O), (S, O) that stand in the place of ``high``
            where it is made of the chance that an option ends and the choice of the next; None
            where ``high`` is free.
        durations: distribution of the steps of a visit to an option; ``choice`` (S, O, O), zero on
            the diagonal, then is of the next one, and nothing else stands in the place of ``high``.
    """

    num_states: int
    num_actions: int
    num_options: int
    initial: str
    low: str
    high: str
    environment: str
    concentration: float
    stickiness: float
    termination: str | None = None
    choice: str | None = None
    durations: Durations | None = None

    @property
    def num_ages(self) -> int:
        """Steps of a visit that tell how it goes on; one where only the option does."""
        return 1 if self.durations is None else self.durations.max_duration or 1


def high_of_termination(termination: Tensor, choice: Tensor) -> Tensor:
    r"""High-level policy (\*batch, S, O, O) of termination and choice, each (\*batch, S, O)."""
    return torch.diag_embed(1 - termination) + termination[..., None] * choice[..., None, :]


def with_high(chain: ChainDescription, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with the high-level policy among them, where it is not a site of its own.

    With durations that of a chain whose visits last geometrically, with the same means.
    """
    choice = params.get(chain.choice or "")
    if chain.durations is not None and choice is not None and chain.high not in params:
        end = chain.durations.means(params).reciprocal()[..., None, :, None]  # (*batch, 1, O, 1)
        stay = (1 - end) * torch.eye(choice.shape[-1]).to(end)
        return {**params, chain.high: stay + end * choice}
    if (
        chain.termination is None
        or chain.choice is None
        or chain.high in params
        or chain.termination not in params
    ):
        return dict(params)
    return {
        **params,
        chain.high: high_of_termination(params[chain.termination], params[chain.choice]),
    }


def tables_of(
    chain: ChainDescription, params: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Initial options, low- and high-level policy of a chain that is Markov in its options.

    With durations :math:`d_o` of at most m steps its options are pairs of an option and the steps
    n of the visit so far, of which :math:`h_o(n) = d_o(n) / S_o(n)` end:

    .. math:: H_{s (o,n) (o,n+1)} = 1 - h_o(n), \qquad H_{s (o,n) (o',1)} = h_o(n) \, \eta_{s o o'}.

    Args:
        chain: the description.
        params: by site, (\*batch, ...).

    Returns:
        (\*batch, S, M), (\*batch, S, M, A) and (\*batch, S, M, M), M = O m, ages innermost.
    """
    if chain.durations is None:
        params = with_high(chain, params)
        return params[chain.initial], params[chain.low], params[chain.high]
    num = chain.num_ages
    initial, low, choice = params[chain.initial], params[chain.low], params[chain.choice or ""]
    if chain.durations.max_duration is None:  # geometric
        end = params["mean_durations"].reciprocal().unsqueeze(-1)
    else:
        logs, survival = chain.durations.tables(params, num)
        end = (logs - survival).clamp(max=0.0).exp()  # (*batch, O, m)
    ages, eye = torch.eye(num).to(end), torch.eye(chain.num_options).to(end)
    older, begin = ages.roll(1, 1), ages[0]  # of the last age nothing is left, or it is the only
    stay = ((1 - end).unsqueeze(-1) * older).unsqueeze(-2)  # (*batch, O, m, 1, m)
    stay = stay * eye[:, None, :, None]  # (*batch, O, m, O, m)
    leave = end[..., None, :, :, None, None] * (choice[..., :, None, :, None] * begin)
    high = (stay.unsqueeze(-5) + leave).flatten(-4, -3).flatten(-2)
    first = (initial.unsqueeze(-1) * begin).flatten(-2)
    return first, low.repeat_interleave(num, -2), high


@dataclass(frozen=True)
class PolicyDescription:
    """Description of a hidden-option model along continuous states.

    Args:
        num_features, num_actions, num_options: D, A and O.
        policy: the features that both policies see.
        prior_scale: standard deviation of the Normal prior of weights and intercepts.
        concentration: of the Dirichlet prior of ``initial``.
        units: centre and width of every column of the state, in which the prior is said; None for
            0 and 1.

    Sites: ``initial`` (O,), ``low_weights`` (O, A - 1, F), ``low_intercepts`` (O, A - 1), and, with
    several options, ``high_weights`` (O, O - 1, F), ``high_intercepts`` (O, O - 1); the policy's
    own beside them.
    """

    num_features: int
    num_actions: int
    num_options: int
    policy: Policy
    prior_scale: float
    concentration: float
    units: Units | None = None

    @property
    def of_states(self) -> tuple[str, ...]:
        """Names of the weights, and intercepts, that the state itself is multiplied by."""
        if isinstance(self.policy, SoftmaxLinear):
            return ("low", "high") if self.num_options > 1 else ("low",)
        return ("hidden",) if isinstance(self.policy, Network) else ()

    def standard_states(self, states: Tensor) -> Tensor:
        """States (..., D) in their units, where weights are of the states themselves."""
        if self.units is None or not self.of_states:
            return states
        centres, widths = self._unit_vectors(states)
        return (states - centres) / widths

    def standardised(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of the same policies, of :meth:`standard_states`."""
        return self._changed(params, lambda weights, c, w: (weights * w, weights @ c))

    def plain(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of the states themselves, the inverse of :meth:`standardised`."""
        return self._changed(params, lambda weights, c, w: (weights / w, -(weights / w) @ c))

    def _changed(
        self,
        params: Mapping[str, Tensor],
        change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> dict[str, Tensor]:
        out = dict(params)
        for name in self.of_states if self.units is not None else ():
            weights, intercepts = params[f"{name}_weights"], params[f"{name}_intercepts"]
            new, shift = change(weights, *self._unit_vectors(weights))
            out |= {f"{name}_weights": new, f"{name}_intercepts": intercepts + shift}
        return out

    def _unit_vectors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        units = self.units if self.units is not None else ((0.0, 1.0),) * self.num_features
        centres, widths = zip(*units, strict=True)
        return like.new_tensor(centres), like.new_tensor(widths)

    def prior(self, name: str, shape: tuple[int, ...], before: Mapping[str, Tensor]) -> Normal:
        """Prior of a site of weights or intercepts, given the sites ``before`` it.

        Normal about 0 in units of the states: a weight of a column is Normal(0, scale / width), an
        intercept Normal(-weights . centres, scale).
        """
        like, of = before["initial"], name.removesuffix("_weights").removesuffix("_intercepts")
        scales = {site: scale for site, (_, scale) in self.policy.sites(self.num_features).items()}
        scale = like.new_full(shape, scales.get(name, self.prior_scale))
        loc = torch.zeros_like(scale)
        if self.units is not None and of in self.of_states:
            centres, widths = self._unit_vectors(like)
            if name.endswith("_weights"):
                scale = scale / widths
            else:
                loc = -before[f"{of}_weights"] @ centres
        return Normal(loc, scale)

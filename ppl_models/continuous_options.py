"""Options hidden Markov models whose policies are functions of a continuous state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.sequences import as_feature_trajectories
from ppl_models.descriptions.options import PolicyDescription
from ppl_models.descriptions.units import Units, check_units
from ppl_models.parts.policies import Policy, SoftmaxLinear
from ppl_models.parts.validation import check_size, is_number, plain_fields
from ppl_models.sequences.policy_chain import PolicyChain


@dataclass(frozen=True)
class ContinuousOptionsHMM:
    r"""Options HMM along continuous states.

    An actor has a hidden option; both policies are functions of the state.

    With state :math:`s_t` (D numbers, given), option :math:`o_t`, action :math:`a_t`, and features
    :math:`\phi` of the state,

    .. math::
        o_1 &\sim \pi, \qquad
        P(a_t = a \mid s_t, o_t = o) \propto \exp(u_{oa} \cdot \phi(s_t) + b_{oa}) \\
        P(o_{t+1} = o' \mid s_{t+1}, o_t = o) &\propto \exp(w_{oo'} \cdot \phi(s_{t+1}) + c_{oo'})

    with :math:`u_{o0} = b_{o0} = 0` and :math:`w_{oo} = c_{oo} = 0`: weights say how the log-odds
    of an action against action 0, and of switching to an option against keeping one's own, change
    with the state. The next option is chosen in the *new* state. All indices start at 0.

    Sites, with A actions, O options and F features (D of them for
    :class:`~ppl_models.parts.policies.SoftmaxLinear`): ``initial`` :math:`\pi` (O,);
    ``low_weights`` u (O, A - 1, F) and ``low_intercepts`` b (O, A - 1), actions 1 to A - 1;
    ``high_weights`` w (O, O - 1, F) and ``high_intercepts`` c (O, O - 1), the other options in
    rising order (left out for one option); those of the policy; observed ``trajectories`` (T, D +
    1), the options summed out exactly, inside the plate ``units`` of the sequences.

    The density is that of the actions given the states: a state depends on the option through the
    action alone, so nothing of the options is lost. Where an action is missing its factor is one,
    which leaves out what the next state says of it. Drawn without data, states are a stand-in (see
    :class:`~ppl_models.sequences.policy_chain.PolicyChain`); for draws along states of one's own
    see :func:`inference.inspection.options.simulate_actions`.

    Priors: Normal(0, ``prior_scale``) for weights and intercepts of states in their ``units`` (it
    keeps them finite where a policy is deterministic); Dirichlet(``concentration``) for
    ``initial``.

    Data: ``{"state": (B, T, D), "action": (B, T), "length": (B,)}``, -1 (or NaN) for a missing
    action. Also packed (B, T, D + 1), or a data frame with columns sequence, time, action and those
    of the state: without sequence all rows are one, without time steps follow each other as they
    stand. BIC counts the steps that have an action.

    Source: the model is that of Zhang and Paschalidis (2021), arXiv:2010.03133, with parameterised
    policies; transitions as multinomial logits go back to Bengio and Frasconi (1995), *An input
    output HMM architecture*.

    Args:
        num_features, num_actions, num_options: D, A (at least 2), O.
        policy: what of the state the softmax sees.
        prior_scale: standard deviation, positive.
        concentration: at least 1.
        num_steps: steps of a sequence that is drawn.
        units: centre and width of every column of the state, D pairs, in which the priors above are
            said; a fit takes them from its data. A policy of your own sees states as they are.

    Raises:
        ValueError: for sizes that are not positive integers, fewer than two actions, or a prior out
            of range.
    """

    num_features: int
    num_actions: int
    num_options: int
    policy: Policy = SoftmaxLinear()
    prior_scale: float = 10.0
    concentration: float = 1.001
    num_steps: int = 100
    units: Units | None = field(default=None, repr=False, compare=False, metadata={"since": "0.2"})

    def __post_init__(self) -> None:
        owner = "ContinuousOptionsHMM"
        plain_fields(self)
        for name in ("num_features", "num_actions", "num_options", "num_steps"):
            check_size(owner, name, getattr(self, name))
        if self.num_actions < 2:
            raise ValueError(f"{owner}: num_actions must be at least 2, got {self.num_actions}")
        if isinstance(self.policy, type) or not callable(getattr(self.policy, "features", None)):
            raise ValueError(
                f"{owner}: policy must be SoftmaxLinear() or Network(), got {self.policy!r}"
            )
        for name, least in (("prior_scale", 0.0), ("concentration", 1.0)):
            value = getattr(self, name)
            if not is_number(value) or value < least or (name == "prior_scale" and value == 0):
                raise ValueError(
                    f"{owner}: {name} must be a finite number,"
                    f" {'above 0' if least == 0 else 'at least 1'}, got {value!r}"
                )
            object.__setattr__(self, name, float(value))
        check_units(owner, self.units, self.num_features)

    def policy_chain(self) -> PolicyDescription:
        """Description of the model for engines."""
        sizes = (self.num_features, self.num_actions, self.num_options)
        return PolicyDescription(
            *sizes, self.policy, self.prior_scale, self.concentration, self.units
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter."""
        o, a, f = self.num_options, self.num_actions, self.policy.num_outputs(self.num_features)
        out: dict[str, tuple[int, ...]] = {
            "initial": (o,),
            "low_weights": (o, a - 1, f),
            "low_intercepts": (o, a - 1),
        }
        if o > 1:
            out |= {"high_weights": (o, o - 1, f), "high_intercepts": (o, o - 1)}
        return out | {
            name: shape for name, (shape, _) in self.policy.sites(self.num_features).items()
        }

    @property
    def num_components(self) -> int:
        """Number of options, the components of ACDC."""
        return self.num_options

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every site, without the sequences."""
        feature = "feature" if not self.policy.sites(self.num_features) else "hidden"
        return {
            "initial": ("option",),
            "low_weights": ("option", "action_after_first", feature),
            "low_intercepts": ("option", "action_after_first"),
            "high_weights": ("option", "other_option", feature),
            "high_intercepts": ("option", "other_option"),
            "hidden_weights": ("hidden", "feature"),
            "hidden_intercepts": ("hidden",),
            "trajectories": ("step", "variable"),
            "options": ("step", "option"),
        }

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the entries along the dims that leave one out."""
        return {
            "action_after_first": tuple(f"action {a}" for a in range(1, self.num_actions)),
            "other_option": ("other option",)
            if self.num_options == 2
            else tuple(f"other option {k}" for k in range(1, self.num_options)),
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Pack the data, (B, T, D + 1); also the names of its columns."""
        has_units = bool(self.policy_chain().of_states)
        return as_feature_trajectories(
            data, self.num_features, self.num_actions, for_fit, has_units
        )

    def __call__(self, data: Any = None, num_rows: int | None = None) -> Tensor:
        """Generative program of the actions along given states.

        ``data`` are sequences, packed or in any form that ``check_data`` takes; None draws
        ``num_rows`` of them. Of a mini-batch ``num_rows`` is the number in the whole data set.
        """
        if data is None and num_rows is None:
            raise ValueError("ContinuousOptionsHMM: give data, or num_rows to draw some")
        if data is not None and (isinstance(data, Mapping) or not isinstance(data, Tensor)):
            data = self.check_data(data, for_fit=False)[0]
        kind: dict[str, Any] = {
            "dtype": torch.float64,
            "device": "cpu" if data is None else data.device,
        }
        about, shapes = self.policy_chain(), self.shapes()
        params: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            if name == "initial":
                params[name] = pyro.sample(
                    name, dist.Dirichlet(torch.full(shape, self.concentration, **kind))
                )
            else:
                prior = about.prior(name, shape, params)
                params[name] = pyro.sample(name, prior.to_event(len(shape)))
        batch = num_rows if data is None else len(data)
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            length = self.num_steps if data is None else data.shape[-2]
            chain = PolicyChain(params, shapes, self.policy, self.num_features, length, self.units)
            return pyro.sample("trajectories", chain, obs=data)

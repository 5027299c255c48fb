"""Options hidden Markov models: hidden modes of behaviour, learnt from demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenModel
from ppl_models.data.sequences import as_trajectories
from ppl_models.descriptions.options import ChainDescription, high_of_termination
from ppl_models.parts.validation import check_flag, check_size, is_number, plain_fields
from ppl_models.sequences.option_chain import DirichletMatrix, OptionChain

MOST_CODES = 2**20  # states or actions of data that tell how many there are
MOST_NUMBERS = 2**29  # of the environment's table, four GiB


@dataclass(frozen=True)
class OptionsHMM(OpenModel):
    r"""Options HMM: hidden options, a policy for each, and an observed environment.

    The actor is in state :math:`s_t` with option :math:`o_t`, and

    .. math::
        (s_1, o_1) &\sim \pi, \qquad
        a_t \sim L_{s_t o_t \cdot} \\
        s_{t+1} &\sim \Phi_{a_t s_t \cdot}, \qquad
        o_{t+1} \sim H_{s_{t+1} o_t \cdot}

    so the next option is chosen in the *new* state. States and actions are seen, options never. All
    indices start at 0.

    Sites, with S states, A actions and O options: ``initial`` :math:`\pi` (S, O), sums to one;
    ``low`` L (S, O, A), the low-level policies; ``high`` H (S, O, O), the high-level policy, [new
    state, old option, new option]; ``environment`` :math:`\Phi` (A, S, S), [action, state, next
    state]; observed ``trajectories`` (T, 2), the options summed out exactly, inside the plate
    ``units`` of the sequences. Log-densities are those of states *and* actions;
    :func:`inference.inspection.options.log_likelihood_parts` tells them apart.

    With ``termination`` the high-level policy is that of the options framework: an option ends in
    the new state with probability :math:`\beta`, and only then is the next one chosen (the same
    again perhaps),

    .. math:: H_{s o o'} = (1 - \beta_{so}) 1[o = o'] + \beta_{so} \eta_{so'} ,

    sites ``termination`` :math:`\beta` (S, O) and ``choice`` :math:`\eta` (S, O), rows sum to one,
    in the place of ``high``. With three options or more this is a restriction, and both are
    determined by H; with two it asks no more than :math:`H_{s01} + H_{s10} \le 1`, and only the
    chances of switching are determined.

    Options have no names of their own, and have names in common only in states that lead, by chains
    of such, to a common next state: on a board that is never stood still on, those of even and of
    odd places can be exchanged separately without any change of the distribution (unless
    ``stickiness`` or ``termination`` tells keeping from changing). ``fit`` then names them so that
    they last longest, and says so.

    Priors: Dirichlet with one ``concentration`` for every row (and for ``initial`` as a whole), 1
    for maximum likelihood; the default keeps entries off exact zeros, which EM never leaves.
    ``stickiness`` is added to the concentration of keeping an option (of not ending it).

    Data: ``{"state": (B, T), "action": (B, T), "length": (B,)}``; -1 (or NaN) for a missing action,
    which is summed out. Also packed (B, T, 2), or a data frame with columns sequence, time, state,
    action: without sequence all rows are one, without time steps follow each other as they stand.

    Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy* (thesis), chapter
    2; Zhang and Paschalidis (2021), *Provable hierarchical imitation learning via EM*,
    arXiv:2010.03133.

    Args:
        num_states, num_actions, num_options: S, A, O; of the first two None for the largest in the
            data and one, as they are counted from 0.
        concentration: at least 1.
        stickiness: at least 0.
        num_steps: steps of a sequence that is drawn.
        termination: whether options end first and are chosen then.

    Raises:
        ValueError: for sizes that are not positive integers, or a prior out of range.
    """

    num_states: int | None = None
    num_actions: int | None = None
    num_options: int = 2
    concentration: float = 1.001
    stickiness: float = 0.0
    num_steps: int = 100
    termination: bool = False

    def __post_init__(self) -> None:
        owner = "OptionsHMM"
        plain_fields(self)
        for name in ("num_states", "num_actions", "num_options", "num_steps"):
            if name in ("num_options", "num_steps") or getattr(self, name) is not None:
                check_size(owner, name, getattr(self, name))
        size = (self.num_actions or 1) * (self.num_states or 1) ** 2
        if size > MOST_NUMBERS:
            raise ValueError(
                f"{owner}: num_states = {self.num_states} and num_actions = {self.num_actions} make"
                f" a table of {size:,} transitions ({size * 8 / 2**30:.0f} GiB); at most"
                f" {MOST_NUMBERS:,} were expected: code fewer states"
            )
        for name, least in (("concentration", 1.0), ("stickiness", 0.0)):
            value = getattr(self, name)
            if not is_number(value) or value < least:
                raise ValueError(
                    f"{owner}: {name} must be a finite number, at least {least:g}, got {value!r}"
                )
            object.__setattr__(self, name, float(value))
        check_flag(owner, "termination", self.termination)

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the number of states or of actions is still to be read off data."""
        return self.num_states is None or self.num_actions is None

    def for_data(self, data: Any) -> OptionsHMM:
        """Model with as many states and actions as the data have, where it leaves them open."""
        if not self.waits_for_data:
            return self
        packed = as_trajectories(data, MOST_CODES, MOST_CODES, for_fit=False)
        states, actions = (int(value) + 1 for value in packed.flatten(0, 1).amax(0))
        return replace(
            self,
            num_states=states if self.num_states is None else self.num_states,
            num_actions=max(1, actions) if self.num_actions is None else self.num_actions,
        )

    @property
    def _sizes(self) -> tuple[int, int]:
        """S and A.

        Raises:
            ValueError: while they are open.
        """
        if self.num_states is None or self.num_actions is None:
            raise ValueError(
                "OptionsHMM: num_states or num_actions was left open, and is read off the data in a"
                " fit: give both, or take the model of some data, model.for_data(data)"
            )
        return self.num_states, self.num_actions

    def chain(self) -> ChainDescription:
        """Description of the model for engines."""
        sizes = (*self._sizes, self.num_options)
        ending = ("termination", "choice") if self.termination else (None, None)
        return ChainDescription(
            *sizes,
            "initial",
            "low",
            "high",
            "environment",
            self.concentration,
            self.stickiness,
            *ending,
        )

    @property
    def num_components(self) -> int:
        """Number of options, the components of ACDC."""
        return self.num_options

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every site, without the sequences."""
        return {
            "initial": ("state", "option"),
            "low": ("state", "option", "action"),
            "high": ("state", "option", "next_option"),
            "termination": ("state", "option"),
            "choice": ("state", "option"),
            "environment": ("action", "state", "next_state"),
            "trajectories": ("step", "variable"),
            "options": ("step", "option"),
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Pack the data, (B, T, 2); also the names of its columns."""
        return as_trajectories(data, *self._sizes, for_fit), (
            "state",
            "action",
        )

    def __call__(self, data: Any = None, num_rows: int | None = None) -> Tensor:
        """Generative program of states and actions.

        ``data`` are sequences, packed (B, T, 2) or, slower, in any form that ``check_data`` takes;
        None draws ``num_rows``. Of a mini-batch ``num_rows`` is the number in the whole data set.
        """
        if data is None and num_rows is None:
            raise ValueError("OptionsHMM: give data, or num_rows to draw some")
        if data is not None and (
            isinstance(data, Mapping) or not isinstance(data, Tensor) or data.is_floating_point()
        ):
            data = self.check_data(data, for_fit=False)[0]
        kind: dict[str, Any] = {
            "dtype": torch.float64,
            "device": "cpu" if data is None else data.device,
        }
        (states, actions), options = self._sizes, self.num_options

        def flat(*shape: int) -> Tensor:
            return torch.full(shape, self.concentration, **kind)

        initial = pyro.sample("initial", DirichletMatrix(flat(states, options)))
        low = pyro.sample("low", dist.Dirichlet(flat(states, options, actions)).to_event(2))
        if self.termination:
            keep = flat(states, options) + self.stickiness
            termination = pyro.sample(
                "termination", dist.Beta(flat(states, options), keep).to_event(2)
            )
            choice = pyro.sample("choice", dist.Dirichlet(flat(states, options)).to_event(1))
            high = high_of_termination(termination, choice)
        else:
            sticky = flat(states, options, options) + self.stickiness * torch.eye(options, **kind)
            high = pyro.sample("high", dist.Dirichlet(sticky).to_event(2))
        environment = pyro.sample(
            "environment", dist.Dirichlet(flat(actions, states, states)).to_event(2)
        )
        batch = num_rows if data is None else len(data)
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            length = self.num_steps if data is None else data.shape[-2]
            return pyro.sample(
                "trajectories", OptionChain(initial, low, high, environment, length), obs=data
            )

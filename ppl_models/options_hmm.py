"""Options hidden Markov models: hidden modes of behaviour, learnt from demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.frames import as_frame, is_frame
from ppl_models.data.items import OpenModel
from ppl_models.data.sequences import as_trajectories, coded_steps, named_steps, places_of_steps
from ppl_models.descriptions.options import ChainDescription, tables_of
from ppl_models.parts.durations import Durations, GeometricDurations
from ppl_models.parts.validation import check_flag, check_kind, check_size, is_number, plain_fields
from ppl_models.sequences.hidden_chain import AllowedMoves
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

    With ``durations`` an option is on for :math:`D \sim d_o` steps, whatever the states, and is
    followed by another one, chosen in the new state:

    .. math:: P(o_{t+1} = o' \mid s_{t+1}, o_t = o, \text{on for } n \text{ steps}) =
        (1 - h_o(n)) 1[o = o'] + h_o(n) \, \eta_{s_{t+1} o o'}, \qquad
        h_o(n) = \frac{P(D = n)}{P(D \ge n)}, \quad \eta_{s o o} = 0,

    options with a time-out of Sutton, Precup and Singh (1999), doi:10.1016/S0004-3702(99)00052-1:
    neither H nor :math:`\beta` knows how long an option has been on. The first visit begins with
    the sequence, and the last may go on beyond its end. Sites ``choice`` :math:`\eta` (S, O, O) in
    the place of ``high``, and those of the durations, such as ``mean_durations`` (O,). A step takes
    some :math:`(O m)^2` operations, m being the most steps of a visit. One option alone is never
    left, whatever its durations.

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
    States and actions may be texts, which are numbered in alphabetic order.

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
        durations: distribution of the steps of a visit to an option, such as
            :class:`~ppl_models.NegativeBinomialDurations` (20), of at most 20 steps; all but
            :class:`~ppl_models.GeometricDurations` with a limit. None for none.
        state_names, action_names: of states and actions that the data have as texts; read off the
            data where sizes are.

    Raises:
        ValueError: for sizes that are not positive integers, a prior out of range, or durations
            without a limit, or beside termination or stickiness.
    """

    num_states: int | None = None
    num_actions: int | None = None
    num_options: int = 2
    concentration: float = 1.001
    stickiness: float = 0.0
    num_steps: int = 100
    termination: bool = False
    durations: Durations | None = field(default=None, metadata={"since": "0.2"})
    state_names: tuple[str, ...] = field(default=(), metadata={"since": "0.2"})
    action_names: tuple[str, ...] = field(default=(), metadata={"since": "0.2"})

    def __post_init__(self) -> None:
        owner = "OptionsHMM"
        plain_fields(self)
        for place, names in self._names.items():
            size = getattr(self, f"num_{place}s")
            if names and (len(set(names)) < len(names) or size not in (None, len(names))):
                raise ValueError(
                    f"{owner}: {place}_names: a different name for each of {size or 'the'}"
                    f" {place}s was expected, got {names!r}"
                )
            if names:
                object.__setattr__(self, f"num_{place}s", len(names))
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
        if self.durations is not None:
            self._check_durations(owner)

    def _check_durations(self, owner: str) -> None:
        wanted = "a duration distribution such as NegativeBinomialDurations(20), or None"
        check_kind(owner, "durations", self.durations, Durations, wanted)
        for name in ("termination", "stickiness"):
            if getattr(self, name):
                raise ValueError(
                    f"{owner}: {name} must be {type(getattr(self, name))()!r} where durations say"
                    f" how long an option is on, got {getattr(self, name)!r}"
                )
        own = self._durations
        if own is not None and own != GeometricDurations() and own.max_duration is None:
            raise ValueError(
                f"{owner}: durations of options need a limit, for a step takes"
                f" (num_options max_duration)^2 operations; give"
                f" {type(self.durations).__name__}(max_duration=...), got {self.durations!r}"
            )

    @property
    def _durations(self) -> Durations | None:
        """Durations of visits; None of a single option, which is never left."""
        return None if self.num_options == 1 else self.durations

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the number of states or of actions is still to be read off data."""
        return self.num_states is None or self.num_actions is None

    def for_data(self, data: Any) -> OptionsHMM:
        """Model with as many states and actions as the data have, where it leaves them open."""
        if not self.waits_for_data:
            return self
        known, named = self._names, named_steps(data)
        if any(own and not known[place] for place, own in named.items()):
            names = named | {place: own for place, own in known.items() if own}
            return replace(
                self, state_names=names.get("state", ()), action_names=names.get("action", ())
            ).for_data(data)
        data = coded_steps(data, self._names)
        packed = as_trajectories(data, MOST_CODES, MOST_CODES, for_fit=False)
        states, actions = (int(value) + 1 for value in packed.flatten(0, 1).amax(0))
        return replace(
            self,
            num_states=states if self.num_states is None else self.num_states,
            num_actions=max(1, actions) if self.num_actions is None else self.num_actions,
        )

    def read_as(self, data: Any) -> dict[str, str]:
        """Columns of a frame that say which sequence and step a row is, by these names."""
        frame = as_frame(data)
        return places_of_steps(frame) if is_frame(frame) else {}

    @property
    def _names(self) -> dict[str, tuple[str, ...]]:
        return {"state": self.state_names, "action": self.action_names}

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of states and actions along their dims."""
        names = {**self._names, "next_state": self.state_names}
        return {dim: own for dim, own in names.items() if own}

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
        ending = (
            "termination" if self.termination else None,
            "choice" if self.termination or self._durations is not None else None,
        )
        return ChainDescription(
            *sizes,
            "initial",
            "low",
            "high",
            "environment",
            self.concentration,
            self.stickiness,
            *ending,
            self._durations,
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
            "choice": ("state", "option")
            if self._durations is None
            else ("state", "option", "next_option"),
            **{
                name: ("option", *dims[1:])
                for name, dims in (
                    {} if self._durations is None else self._durations.site_dims
                ).items()
            },
            "environment": ("action", "state", "next_state"),
            "trajectories": ("step", "variable"),
            "options": ("step", "option"),
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Pack the data, (B, T, 2); also the names of its columns."""
        packed = as_trajectories(coded_steps(data, self._names), *self._sizes, for_fit)
        most = None if self._durations is None else self._durations.max_duration
        if for_fit and most is not None and most > packed.shape[1]:
            raise ValueError(
                f"data: max_duration = {most} steps are more than the longest sequence has,"
                f" {packed.shape[1]}; visits are no longer than a sequence"
            )
        return packed, ("state", "action")

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

        sites = {
            "initial": pyro.sample("initial", DirichletMatrix(flat(states, options))),
            "low": pyro.sample("low", dist.Dirichlet(flat(states, options, actions)).to_event(2)),
        }
        if self.termination:
            keep = flat(states, options) + self.stickiness
            sites["termination"] = pyro.sample(
                "termination", dist.Beta(flat(states, options), keep).to_event(2)
            )
            sites["choice"] = pyro.sample(
                "choice", dist.Dirichlet(flat(states, options)).to_event(1)
            )
        elif self._durations is not None:
            others = AllowedMoves(
                flat(options, options), ~torch.eye(options, dtype=torch.bool, device=kind["device"])
            )
            sites["choice"] = pyro.sample("choice", others.expand(torch.Size([states])).to_event(1))
            zero = torch.zeros((), **kind)
            sites |= self._durations.draw(options, zero, self.concentration)
        else:
            sticky = flat(states, options, options) + self.stickiness * torch.eye(options, **kind)
            sites["high"] = pyro.sample("high", dist.Dirichlet(sticky).to_event(2))
        environment = pyro.sample(
            "environment", dist.Dirichlet(flat(actions, states, states)).to_event(2)
        )
        batch = num_rows if data is None else len(data)
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            length = self.num_steps if data is None else data.shape[-2]
            return pyro.sample(
                "trajectories",
                OptionChain(*tables_of(self.chain(), sites), environment, length),
                obs=data,
            )

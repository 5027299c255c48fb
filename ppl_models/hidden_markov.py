"""Hidden Markov models: sequences of rows that depend on a hidden state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.frames import as_frame, column_names, is_frame
from ppl_models.data.items import ByColumn, OpenItems
from ppl_models.data.sequences import PLACES, as_item_sequences, inside_of, item_rows, places_in
from ppl_models.data.tables import check_reach
from ppl_models.descriptions.components import (
    MixtureComponents,
    check_settings,
    component_dims,
    distribution_given,
    draw_components,
    num_own_dims,
)
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.descriptions.row_distributions import RowDistribution, wider_distributions
from ppl_models.descriptions.units import OWN_BOUND, Units
from ppl_models.parts.durations import Durations
from ppl_models.parts.responses import Normal, ResponseFamily
from ppl_models.parts.surface import Renamed
from ppl_models.parts.validation import (
    check_kind,
    check_number,
    check_size,
    is_number,
    numbers_like,
    plain_fields,
)
from ppl_models.sequences.hidden_chain import AllowedMoves, HiddenChain, stationary_distribution
from ppl_models.sequences.semi_markov_chain import SemiMarkovChain

INITIAL = ("free", "stationary", "uniform")


@dataclass(frozen=True)
class HiddenMarkov(OpenItems):
    r"""Hidden Markov model of K states, or hidden semi-Markov model where durations are given.

    Sources: Rabiner (1989), doi:10.1109/5.18626; Zucchini, MacDonald and Langrock (2016),
    doi:10.1201/b20790; Guédon (2003), doi:10.1198/1061860032030.

    .. math::
        s_1 \sim \pi, \qquad s_t \mid s_{t-1} = k \sim A_{k \cdot}, \qquad x_{tj} \mid s_t = k \sim
        F_j(\eta_{kj}, \gamma_{kj})

    independently over items j, or :math:`x_t \mid s_t = k \sim N(\mu_k, \Lambda_k^{-1})`. States
    are never seen. The first row is emitted by the first state.

    Visits to a state of this plain chain last geometrically. With ``durations`` they last

    .. math:: D \sim d_k, \qquad \text{and are followed by one to state } l \ne k \text{ with
        chance } A_{kl}, \quad A_{kk} = 0.

    The first visit begins with the sequence, and the last may go on beyond its end: of it P(D >= n)
    enters the likelihood, n being its steps so far. One state alone is never left, whatever its
    durations.

    Sites: ``initial`` :math:`\pi` (K,), where it is free; ``transitions`` A (K, K), from the row's
    state to the column's; the emission's as in :class:`~ppl_models.Mixture`, a state in the place
    of a component: ``predictors`` :math:`\eta` (K, J), natural parameters (log-odds, log mean,
    mean), and for Normal, LogNormal and NegativeBinomial items ``dispersion`` :math:`\gamma` (K,
    number of such items), variances, or sizes; for Categorical items ``probabilities`` (K, sum of
    their numbers of categories); or those of a distribution of whole rows, ``means`` (K, J) and
    ``precisions`` (K, J, J); observed ``sequences`` (T, J), the states summed out exactly, in the
    plate ``units`` of the sequences.

    Priors: initial and rows of transitions Dirichlet(concentration), ``stickiness`` added where a
    state stays; the emission's as in a mixture. Fits name states in the order of falling share of
    time in the long run, where all moves are allowed.

    Data: a list of tables (T, J) of unequal length, one table, an array (B, T, J), a dict
    ``{"items": (B, T, J), "length": (B,)}``, or a data frame with a row a step and columns
    ``sequence`` and ``time`` beside the items (whole numbers of time that are left out are steps
    without entries), or columns that :func:`~ppl_models.data.sequences.places_in` takes for these,
    such as ``animal`` and ``day``. Missing entries (NaN) leave the likelihood; a row without
    entries passes the chain on. BIC counts the steps that have entries.

    Args:
        num_states: K.
        emission: a response family, :class:`~ppl_models.Blocks` of several, or a distribution of
            whole rows such as :class:`~ppl_models.MultivariateNormal`; left out, what
            :func:`~ppl_models.items_of` reads off the data, or Normal() where num_items is given.
        num_items: J; None for as many as the data have, read in a fit, or as an emission speaks of
            that knows its items, such as ``Blocks(...)``.
        initial: "free"; "stationary", the distribution :math:`\delta = \delta A` of a chain that
            has run for long; "uniform"; or K chances, such as (1, 0, 0) for a chain that begins at
            the left. Of one sequence alone a free distribution is not learnt, but counted.
        allowed: (K, K) of True and False, which moves are possible: left-right, banded, absorbing.
            Others have chance zero and are no parameters.
        stickiness: at least 0.
        concentration: at least 1; 1 is flat.
        durations: distribution of the length of visits,
            :class:`~ppl_models.NegativeBinomialDurations`, :class:`~ppl_models.PoissonDurations`,
            :class:`~ppl_models.FreeDurations` or :class:`~ppl_models.GeometricDurations`, whose
            sites are added; None for the plain chain. ``allowed`` then speaks of moves from visit
            to visit, the first state is not "stationary", and there is no stickiness.
        bound, variance_floor, units: of the emission, as in :class:`~ppl_models.Mixture`.
        num_steps: steps of a sequence that is drawn.

    Raises:
        ValueError: for sizes that are not positive integers, another emission or initial
            distribution, moves that leave a state without a way out or out of reach, durations
            along with moves from a state to itself, or settings out of range.
    """

    num_states: int
    emission: ResponseFamily | RowDistribution = ByColumn()
    num_items: int | None = None
    initial: str | tuple[float, ...] = "free"
    allowed: tuple[tuple[bool, ...], ...] | None = None
    stickiness: float = 0.0
    concentration: float = 1.001
    bound: float | None = None
    variance_floor: float = 1e-3
    num_steps: int = 100
    durations: Durations | None = field(default=None, metadata={"since": "0.2"})
    units: Units | None = field(default=None, repr=False, compare=False)
    usual = {"emission": Normal()}

    def __post_init__(self) -> None:
        owner = "HiddenMarkov"
        plain_fields(self)
        for name in ("num_states", "num_steps"):
            check_size(owner, name, getattr(self, name))
        if not isinstance(self.emission, ResponseFamily | RowDistribution):
            hint = " (the class itself; add parentheses)" if isinstance(self.emission, type) else ""
            raise ValueError(
                f"{owner}: emission must be a response family or a distribution of whole rows"
                " such as"
                f" MultivariateNormal(), got {self.emission!r}{hint}"
            )
        self._settle()
        check_settings(owner, self, self.emission)
        if self.num_items is not None and self._family.num_thresholds(self.num_items):
            raise ValueError(
                f"{owner}: emission must not have thresholds that states share; take Ordinal(...)"
                " without a link, which has a table a state"
            )
        check_number(owner, "stickiness", self.stickiness, "be at least 0 and finite", least=0)
        self._check_initial(owner)
        if self.durations is not None:
            self._check_durations(owner)
        if self.allowed is not None:
            self._check_allowed(owner)

    def _check_durations(self, owner: str) -> None:
        check_kind(
            owner,
            "durations",
            self.durations,
            Durations,
            "a duration distribution such as NegativeBinomialDurations(), or None",
        )
        if self.stickiness:
            raise ValueError(
                f"{owner}: stickiness must be 0 where durations say how long a state stays, got"
                f" {self.stickiness!r}"
            )
        if self.initial == "stationary":
            raise ValueError(
                f"{owner}: initial must not be 'stationary' where durations are given, for the"
                " first visit begins with the sequence; take 'free', 'uniform' or such chances"
            )

    def _check_initial(self, owner: str) -> None:
        given = self.initial
        if isinstance(given, str):
            if given not in INITIAL:
                raise ValueError(
                    f"{owner}: initial must be one of {', '.join(map(repr, INITIAL))}, or"
                    f" num_states chances, got {given!r}"
                )
            return
        chances = given if isinstance(given, tuple) else ()
        if (
            len(chances) != self.num_states
            or not all(is_number(p) and p >= 0 for p in chances)
            or abs(sum(chances) - 1) > 1e-6
        ):
            raise ValueError(
                f"{owner}: initial must be num_states = {self.num_states} chances that sum to one,"
                f" or one of {', '.join(map(repr, INITIAL))}, got {given!r}"
            )
        object.__setattr__(self, "initial", tuple(float(p) / sum(chances) for p in chances))

    def _check_allowed(self, owner: str) -> None:
        k, rows = self.num_states, self.allowed
        wanted = f"{owner}: allowed must be {k} rows of {k} times True or False"
        if (
            not isinstance(rows, tuple)
            or len(rows) != k
            or not all(isinstance(row, tuple) and len(row) == k for row in rows)
        ):
            raise ValueError(f"{wanted}, got {rows!r}")
        if not all(isinstance(entry, bool) or entry in (0, 1) for row in rows for entry in row):
            raise ValueError(f"{wanted}, got {rows!r}")
        object.__setattr__(
            self, "allowed", tuple(tuple(bool(entry) for entry in row) for row in rows)
        )
        graph = torch.tensor(self.allowed)
        stays = "staying is a move, too"
        if self._durations is not None:
            for state in graph.diagonal().nonzero().ravel().tolist():
                raise ValueError(
                    f"{owner}: allowed must be False on the diagonal where durations say how long a"
                    f" state stays, but state {state} may move to itself"
                )
            stays = "durations say how long it stays, and then it is left"
        for state in (~graph.any(-1)).nonzero().ravel().tolist():
            raise ValueError(
                f"{owner}: allowed must leave every state a move, but row {state} has none"
                f" ({stays})"
            )
        reach = (graph | torch.eye(k, dtype=torch.bool)).double()
        for _ in range(k.bit_length()):
            reach = ((reach @ reach) > 0).double()
        if self.initial == "stationary" and not bool(reach.bool().all()):
            one, other = (int(i) for i in (reach == 0).nonzero()[0])
            raise ValueError(
                f"{owner}: a stationary initial distribution needs ways from every state to"
                " every other, but"
                f" allowed has none from state {one} to state {other}"
            )
        if isinstance(self.initial, tuple):
            first = torch.tensor(self.initial, dtype=torch.float64) > 0
            for state in (~(reach[first] > 0).any(0)).nonzero().ravel().tolist():
                raise ValueError(
                    f"{owner}: allowed must let every state be reached, but no moves lead from the"
                    f" initial states to state {state}"
                )

    @property
    def _family(self) -> ResponseFamily:
        return self.emission if isinstance(self.emission, ResponseFamily) else Normal()

    def hidden_chain(self) -> HiddenMarkovDescription:
        """Description of the model for engines."""
        emission = MixtureComponents(
            self.num_states,
            self._width,
            self.emission,
            self.concentration,
            self.bound,
            self.variance_floor,
            self.units,
        )
        return HiddenMarkovDescription(
            emission,
            self.initial,
            self.allowed,
            self.concentration,
            self.stickiness,
            self._durations,
        )

    @property
    def _durations(self) -> Durations | None:
        """Durations of visits; None of a single state, which is never left."""
        return None if self.num_states == 1 else self.durations

    @property
    def num_components(self) -> int:
        """Number of states, the components whose number is selected."""
        return self.num_states

    laws = Renamed("candidate_distributions")

    def candidate_distributions(self) -> tuple[HiddenMarkov, ...]:
        """Candidate distributions of a row for order selection, each nested in the next."""
        candidates = wider_distributions(self.emission, self._width)
        return tuple(replace(self, emission=emission) for emission in candidates)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every site, without the sequences."""
        dims: dict[str, tuple[str, ...]] = {
            "initial": ("state",),
            "transitions": ("state", "next_state"),
            "states": ("step", "state"),
            "sequences": ("step", "item"),
        }
        own = {} if self._durations is None else self._durations.site_dims
        return dims | own | component_dims(self.hidden_chain().emission, "state")

    def _items_among(self, data: Any) -> Any:
        return item_rows(data)

    def read_as(self, data: Any) -> dict[str, str]:
        """Columns of a frame that are no items, by what they are taken for: sequence and time."""
        frame = as_frame(data)
        if not is_frame(frame):
            return {}
        known = [name for name in column_names(frame) if name in PLACES]
        if not self.waits_for_data and len(frame.columns) - len(known) == self._width:
            return {name: name for name in known}
        return places_in(frame)

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Pack the data, (B, T, J); also the item names."""
        packed, names = as_item_sequences(data, self._width, self._family, for_fit)
        seen = ~packed.isnan() & inside_of(packed).unsqueeze(-1)
        if for_fit and self.bound is not None:
            check_reach(packed[inside_of(packed)], names, self._family, self.bound, OWN_BOUND)
        if isinstance(self.emission, RowDistribution) and bool(
            (seen.any(-1) & ~seen.all(-1)).any()
        ):
            row, step, column = (
                int(i)
                for i in (
                    seen.any(-1, keepdim=True) & ~seen & inside_of(packed).unsqueeze(-1)
                ).nonzero()[0]
            )
            raise ValueError(
                f"data: {type(self.emission).__name__} emissions need rows that are complete or"
                f" missing altogether, but in sequence {row}, step {step}, item {names[column]!r}"
                " alone is missing; empty or fill such rows, or use emission=Normal(), which"
                " marginalises them"
            )
        num_rows = int(seen.any(-1).sum())
        if for_fit and num_rows < self.num_states:
            raise ValueError(
                f"data: at least num_states = {self.num_states} steps with entries were expected,"
                f" got {num_rows}"
            )
        most = None if self._durations is None else self._durations.max_duration
        if for_fit and most is not None and most > packed.shape[1]:
            raise ValueError(
                f"data: max_duration = {most} steps are more than the longest sequence has,"
                f" {packed.shape[1]}; visits are no longer than a sequence"
            )
        if for_fit and isinstance(self.emission, RowDistribution):
            self.emission.check_rows(num_rows, self._width, self.num_states, "emission")
        return packed, names

    def __call__(self, data: Any = None, num_rows: int | None = None) -> Tensor:
        """Generative program of the sequences.

        ``data`` are sequences, packed (B, T, J) or in any form that ``check_data`` takes; None
        draws ``num_rows`` of ``num_steps`` steps. Of a mini-batch ``num_rows`` is the number in the
        whole data set.
        """
        if data is not None and not (
            isinstance(data, Tensor) and data.dim() == 3 and data.is_floating_point()
        ):
            data = self.check_data(data, for_fit=False)[0]
        kind = numbers_like("HiddenMarkov", data, num_rows)
        zero = torch.zeros((), **kind)
        k = self.num_states
        initial = self._initial(zero)
        about = self.hidden_chain()
        concentration = zero + self.concentration + self.stickiness * torch.eye(k, **kind)
        if self.allowed is None and about.durations is None:
            transitions = pyro.sample("transitions", dist.Dirichlet(concentration).to_event(1))
        else:
            transitions = pyro.sample(
                "transitions",
                AllowedMoves(concentration, about.graph.to(zero.device)),
            )
        if initial is None:
            initial = stationary_distribution(transitions)
        length = self.num_steps if data is None else data.shape[-2]
        tables = None
        if about.durations is not None:
            visits = about.durations.draw(k, zero, self.concentration)
            tables = about.durations.tables(visits, length)
        own = draw_components(about.emission, zero)
        emission = distribution_given(
            about.emission,
            {
                name: value.unsqueeze(-1 - num_own_dims(about.emission, name))
                for name, value in own.items()
            },
        )  # a dim for the step
        batch = num_rows if data is None else len(data)
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            chain = (
                HiddenChain(initial, transitions, emission, length)
                if tables is None
                else SemiMarkovChain(initial, transitions, tables, emission, length)
            )
            return pyro.sample("sequences", chain, obs=data)

    def _initial(self, zero: Tensor) -> Tensor | None:
        """Distribution of the first state; None where it follows from the transitions."""
        if self.initial == "stationary":
            return None
        if self.initial == "uniform":
            return (zero + 1.0 / self.num_states).expand(self.num_states)
        if isinstance(self.initial, tuple):
            return zero + torch.tensor(self.initial, dtype=zero.dtype, device=zero.device)
        return pyro.sample(
            "initial", dist.Dirichlet((zero + self.concentration).expand(self.num_states))
        )

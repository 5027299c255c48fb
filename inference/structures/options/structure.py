"""Hidden options for engines: expected counts, tabular M-step, starts and labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from inference.base.align import Alignment, Labels
from inference.base.starts import StartSearch
from inference.base.steps import Steps
from inference.base.structure import (
    Capability,
    LabelledLatent,
    Problem,
    Recommendation,
    Structure,
    bic_price,
    candidate_families,
    canonical_for_data,
    check_labels,
    component_noise,
    drawn_together,
    labelled_latents,
    means_given_labels,
    unseen_chances,
)
from inference.programs.data import checked
from inference.programs.global_state import isolated
from inference.programs.program import Params, Program
from inference.structures.options.align import (
    LabelGroups,
    align_options,
    label_groups,
    permute_options,
    under_lasting_names,
)
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.forward_backward import parts_of, smooth, steps_of, viterbi
from inference.structures.options.moments import (
    MAX_ENTRIES,
    REFINING,
    START_MIX,
    MomentWarning,
    count_moments,
    refine_moments,
    state_by_state,
)
from ppl_models.descriptions.options import ChainDescription, with_high
from ppl_models.sequences.chain_plan import ChainPlan, plan_of
from ppl_models.sequences.option_chain import draw_paths

if TYPE_CHECKING:
    from inference.base.component_noise import NoiseDraws


DECIDED = 0.99  # share of steps whose option the state tells
MOST_SHOWN = 8
NAMED = (
    "They are named so that they last longest; compare an option between groups with that in mind,"
    " or say by stickiness= that options are kept"
)
NUM_STARTS = 4  # where a search is dear: one from moments, three at random
SEARCH = StartSearch(batch=12, rungs=((60, 6), (150, 3)), replicates=2, stall=2, cap=48)
NUM_CANDIDATES, SHORT_RUN = (
    3,
    30,
)  # random starts tried for each one kept, and the iterations they are judged by


class OptionsStructure(Structure):
    """Structure of models that offer ``chain()``."""

    row_columns = ("sequence", "time")
    capabilities = frozenset({Capability.BLOCKS, Capability.LABELS})

    @cached_property
    def about(self) -> ChainDescription:
        about: ChainDescription = self.model.chain()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> OptionsStructure | None:
        return cls(model) if hasattr(model, "chain") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start from random policies; for "spectral" the first from moments.

        Beside a start from moments, three times as many random ones as asked for run for 30
        iterations, and the best go on from there: a random start may sit on a plateau for thousands
        of iterations, and shows it early. Sequences of one step say nothing of the options: all are
        alike then, where the prior is largest among the equally likely. Of one option nothing is
        hidden, and every start leads to the same counts.

        With labels of steps the short runs are of the data alone, for labels that disagree with a
        start's names would hold it back; the best of them get their names from the labels
        afterwards, and the first is a step of EM from options that are alike but for the labels.
        """
        chain, plan = self.about, self._plan(replace(problem, labels=None))
        if chain.durations is not None:
            chain = replace(chain, durations=None, choice=None)
            plain = self._policies(problem, chain, plan, init, num_restarts)
            return with_visits(self.about, plain)
        return self._policies(problem, chain, plan, init, num_restarts)

    def _policies(
        self,
        problem: Problem,
        chain: ChainDescription,
        plan: ChainPlan,
        init: str,
        num_restarts: int,
    ) -> Params:
        """Starts of a chain without durations."""
        if int(plan.lengths.max()) == 1 or chain.num_options == 1:
            return alike_policies(chain, plan, num_restarts)
        if init != "spectral":
            return random_policies(chain, plan, num_restarts, problem.seed)
        from inference.structures.options.structure import moment_start

        parts = []
        if problem.labels:
            told = self._plan(problem, chain.num_ages)
            steps, alike = OptionSteps(chain, told), alike_policies(chain, plan, 1)
            parts.append(steps.m_step(steps.e_step(alike)[0], alike))
        if len(parts) < num_restarts:
            policies = moment_start(
                problem.data, chain.num_states, chain.num_actions, chain.num_options
            )
            if policies is not None:
                low, high = (policy[None].to(problem.data.device) for policy in policies)
                parts.append(with_counted_parts(chain, plan, {chain.low: low, chain.high: high}))
        if len(parts) < num_restarts:
            parts.append(short_runs(chain, plan, num_restarts - len(parts), problem.seed))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def split_starts(self, problem: Problem, smaller: Params) -> Params:
        """Parameters (O, ...) of O + 1 options from those of O, each option split in turn."""
        return split_policies(self.about, self._plan(problem), smaller, problem.seed)

    def _plan(self, problem: Problem, num_ages: int | None = None) -> ChainPlan:
        """Plan of the data and labels, of options by age, as many as the model's by default."""
        chain = self.about
        labels = (problem.labels or {}).get("options")
        if labels is not None:
            labels = labels.repeat_interleave(num_ages or chain.num_ages, -1)
        return plan_of(problem.data, chain.num_states, chain.num_actions, labels)

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        elsewhere = problem.rows is not None and bool(problem.summed(_num_gaps) > 0)
        return OptionSteps(self.model.chain(), self._plan(problem), elsewhere)

    def canonical(self, params: Params) -> Params:
        """Order options by falling probability of the first action, averaged over states."""
        chain = self.model.chain()
        mean = params[chain.low].mean(0)  # (O, A)
        order = sorted(
            range(chain.num_options), key=lambda o: [-round(p, 9) for p in mean[o].tolist()]
        )
        return permute_options(chain, params, torch.tensor(order, device=mean.device))

    def _label_groups(self, problem: Problem) -> LabelGroups | None:
        """Label groups of states; None where no names can be exchanged in some alone."""
        if self._are_names_free:
            return label_groups(problem.summed(partial(_moves, self.about.num_states)))
        return None

    @property
    def _are_names_free(self) -> bool:
        """Tell whether neither model nor prior prefers keeping an option to changing it."""
        chain = self.about
        free = chain.termination is None and chain.durations is None and chain.stickiness == 0
        return chain.num_options > 1 and free

    def unlike_names(self, data: Tensor, states: Sequence[Any]) -> str:
        """Groups of states whose options have no names in common, in words, or "".

        Args:
            data: packed, (B, T, 2); states: their names, S of them.
        """
        if self._are_names_free:
            return _apart_in_words(label_groups(_moves(self.about.num_states, data)).apart, states)
        return ""

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters: one fewer than entries in each probability row.

        Endings of two options say no more than ``high``. With data, parameters of the policies that
        the sequences inform; see :func:`~inference.base.structure.bic_price`.
        """
        if problem is not None:
            return sum(number * rows for number, rows, _ in self._read(problem))
        c = self.model.chain()
        s, a, o = c.num_states, c.num_actions, c.num_options
        upper = s * _switches(c) + (0 if c.durations is None else c.durations.num_free(o))
        return s * o * (a - 1) + upper + s * o - 1 + a * s * (s - 1)

    def _read(self, problem: Problem) -> list[tuple[int, int, Tensor]]:
        """Free entries of a state, visited states and their visits, by kind of parameter."""
        c = self.model.chain()
        a, o = c.num_actions, c.num_options

        def visits(data: Tensor, _: Tensor | None) -> Tensor:
            state, action = data[..., 0].long(), data[..., 1].long()
            follows = torch.nn.functional.pad(state[:, 1:] >= 0, (0, 1), value=False)
            # the last action, missing, says nothing
            seen = (state >= 0) & ((action >= 0) | follows)
            later = seen & (torch.arange(seen.shape[1], device=seen.device) > 0)
            return torch.stack(
                [
                    torch.bincount(state[where], minlength=c.num_states)
                    for where in (seen, later, seen & ~later)
                ]
            )

        out = []
        for number, counts in zip(
            (o * (a - 1), _switches(c), o - 1), problem.summed(visits), strict=True
        ):
            counts = counts[counts > 0]
            out.append((number, len(counts), counts))
        if c.durations is not None:
            every = problem.summed(lambda data, _: (data[..., 0] >= 0).sum().reshape(1))
            out.append((c.durations.num_free(o), 1, every))
        return out

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on options without common names, or decided by the state alone."""
        if self.about.num_options == 1:
            return []
        groups, told = self._label_groups(problem), set()
        if problem.labels:
            table = problem.labels["options"]
            told = set(problem.data[(table != table[..., :1]).any(-1), 0].tolist())
        if groups is None or all(told & set(own) for own in groups.apart):
            unlike = ""
        else:
            unlike = _apart_in_words(groups.apart, range(self.about.num_states))
        said = [unlike if problem.is_named else f"{unlike}. {NAMED}"] if unlike else []

        def often(data: Tensor, _: Tensor | None) -> Tensor:
            chance = smooth(steps_of(parts_of(self.about, params), data)).option  # (B, T, O)
            state = data[:, : chance.shape[1], 0].long().cpu()
            return chance.new_zeros(self.about.num_states, self.about.num_options).index_add(
                0, state[state >= 0], chance[state >= 0]
            )

        visits = problem.summed(often).cpu()
        owner, used = visits.argmax(1), visits.sum(1) > 0
        if (
            float(visits.amax(1).sum()) < DECIDED * float(visits.sum())
            or len(owner[used].unique()) < 2
        ):
            return said
        where = "; ".join(
            f"option {k} in state{'s' if len(own) > 1 else ''} {_some(own)}"
            for k in owner[used].unique().tolist()
            for own in [(used & (owner == k)).nonzero().ravel().tolist()]
        )
        return [
            *said,
            (
                f"the options are a function of the observed state ({where}): in each state one"
                " option is on nearly always, so nothing about them is hidden, and one option,"
                " with a policy for each state, says as much. Fit fewer options, compare by BIC or"
                " held-out sequences, or fit again with more starts"
            ),
        ]

    def num_observations(self, problem: Problem) -> int:
        """Number of steps."""
        return int(problem.summed(lambda data, _: (data[..., 0] >= 0).sum()))

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params:
        """Simulate sequences with the lengths and missing actions of the data."""
        packed = checked(self.model, data)[0]
        parts = parts_of(self.model.chain(), params)
        with isolated(seed), torch.no_grad():
            flat = [
                value[None] for value in (parts.initial, parts.low, parts.high, parts.environment)
            ]
            state, _, action = draw_paths(flat, len(packed), packed.shape[1])
        return {"trajectories": torch.where(packed < 0, packed, torch.stack([state, action], -1))}

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables of the share of steps in each state and on each action, by sequence."""
        state, action = values["trajectories"].nan_to_num(nan=-1).long().unbind(-1)
        return {
            "share of steps in each state": _shares(state, self.about.num_states),
            "share of steps with each action": _shares(action, self.about.num_actions),
        }

    def latent_means(self, program: Program, params: Params) -> Params:
        """P(option at every step | the whole sequence), (B, T, O); zero after the end."""
        chain = self.model.chain()
        return {"options": smooth(steps_of(parts_of(chain, params), program.args[0])).option}

    def latent_modes(self, program: Program, params: Params) -> Params:
        """The most probable path of options, (B, T); -1 after the end."""
        chain = self.model.chain()
        return {"options": viterbi(steps_of(parts_of(chain, params), program.args[0])).option}

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment:
        return align_options(params, reference, self.model.chain())

    def labels(self) -> tuple[Labels, ...]:
        chain: ChainDescription = self.model.chain()

        def rename(params: Params, order: Tensor, flips: Tensor) -> Params:
            return permute_options(chain, params, order, num_leading=1)

        return (
            Labels("options", lambda params: params[chain.low].transpose(1, 2).flatten(2), rename),
        )

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend EM from a start by moments and random ones, until they meet.

        One start for one option. With thousands of policies to estimate the likelihood ends in a
        long slope: hundredths of a nat, far below what the data say, would take half of the time.
        """
        from inference.engines.em import EM

        if self.about.num_options == 1:
            return Recommendation(EM(tolerance=1e-6), num_restarts=1)
        numbers = problem.data[..., 0].numel() * self.about.num_options**2
        search = SEARCH if SEARCH.first_work * numbers <= SEARCH.budget else None
        return Recommendation(EM(tolerance=1e-6), num_restarts=NUM_STARTS, search=search)


def _switches(c: ChainDescription) -> int:
    """Free parameters of the options that follow each other in a state."""
    o = c.num_options
    if c.durations is not None:
        return o * (o - 2)
    return o * (o - 1) if c.termination is None else min(o * (o - 1), 2 * o - 1)


def _num_gaps(data: Tensor, _: Tensor | None) -> Tensor:
    """Missing actions between two states."""
    state, action = data[..., 0], data[..., 1]
    return ((action[:, :-1] < 0) & (state[:, :-1] >= 0) & (state[:, 1:] >= 0)).sum()


def _moves(num_states: int, data: Tensor, _: Tensor | None = None) -> Tensor:
    """Counts of transitions between states, (S, S)."""
    before, after = data[:, :-1, 0].long(), data[:, 1:, 0].long()
    seen = (before >= 0) & (after >= 0)
    return torch.bincount(before[seen] * num_states + after[seen], minlength=num_states**2).reshape(
        num_states, num_states
    )


def _some(names: Sequence[Any]) -> str:
    """The first names of a list, in words."""
    others = " and others" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(map(str, names[:MOST_SHOWN]))}{others}"


def _apart_in_words(groups: Sequence[Sequence[int]], states: Sequence[Any]) -> str:
    if len(groups) < 2:
        return ""
    shown = "; ".join(_some([states[s] for s in own]) for own in groups[:MOST_SHOWN])
    more = f"; and {len(groups) - MOST_SHOWN} more" if len(groups) > MOST_SHOWN else ""
    return (
        f"the options of {len(groups)} groups of states have no names in common (states"
        f" {shown}{more}): no state is entered from two of them, so options that are renamed in one"
        " group alone fit exactly as well"
    )


def _shares(values: Tensor, num_values: int) -> Tensor:
    """The share of each value among those that are not missing (-1), (B, T) -> (B, V)."""
    counts = torch.stack([(values == value).sum(1) for value in range(num_values)], 1)
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


@unseen_chances.register(OptionsStructure)
def _(structure: OptionsStructure, data: Tensor) -> dict[str, Tensor]:
    """Moves that no sequence makes, and policies in states that none visits.

    Args:
        structure: of the model; data: packed (B, T, 2), -1 where missing.
    """
    chain, state, action = structure.about, data[..., 0].long(), data[..., 1].long()
    num_states, num_actions, num_options = chain.num_states, chain.num_actions, chain.num_options

    def visits(where: Tensor) -> Tensor:
        return torch.bincount(state[where], minlength=num_states)  # (S,)

    before, act, after = state[:, :-1], action[:, :-1], state[:, 1:]
    moved = (before >= 0) & (after >= 0)
    place = (act.clamp(min=0) * num_states + before) * num_states + after
    moves = torch.bincount(
        place[moved & (act >= 0)], minlength=num_actions * num_states**2
    ).reshape(num_actions, num_states, num_states)
    gap = moved & (act < 0)
    moves = moves + torch.bincount(
        (before * num_states + after)[gap], minlength=num_states**2
    ).reshape(num_states, num_states)  # by an action that is missing
    is_later = torch.arange(state.shape[1], device=data.device) > 0
    seen = {
        chain.initial: visits((state >= 0) & ~is_later)[:, None].expand(-1, num_options),
        chain.low: visits(action >= 0)[:, None, None].expand(-1, num_options, num_actions),
        chain.high: visits((state >= 0) & is_later)[:, None, None].expand(
            -1, num_options, num_options
        ),
        chain.environment: moves,
    }
    if chain.durations is not None and chain.choice is not None:
        seen[chain.choice] = seen.pop(chain.high)
    return {site: counts == 0 for site, counts in seen.items()}


@labelled_latents.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem) -> dict[str, LabelledLatent]:
    shape = tuple(problem.data.shape[:2])
    inside = problem.data[..., 0] >= 0
    return {"options": LabelledLatent(shape, structure.about.num_options, inside=inside)}


@check_labels.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem, tables: Mapping[str, Tensor]) -> None:
    """Refuse paths of options that known parameters, exactly nought, or durations rule out."""
    if "options" not in tables or (problem.fixed is None and structure.about.durations is None):
        return
    alike = alike_policies(structure.about, structure._plan(problem), 1)
    known = {name: value[0] for name, value in alike.items()}
    known = known if problem.fixed is None else problem.fixed.restored(known)
    parts = parts_of(structure.about, known)
    steps_of(parts, problem.data).forward()  # where the data alone are impossible, it says so
    try:
        steps_of(parts, problem.data, tables["options"]).forward()
    except ValueError as error:
        raise ValueError(
            "labels of 'options': labels that known parameters and durations allow were expected,"
            f" and with these {str(error).removeprefix('data: ')}"
        ) from error


@means_given_labels.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem, params: Params) -> Params:
    labels = (problem.labels or {}).get("options")
    parts = parts_of(structure.about, params)
    return {"options": smooth(steps_of(parts, problem.data, labels)).option}


@drawn_together.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem, params: Params, apart: float) -> Params:
    """Mix probabilities with the most likely ones of options that are all alike."""
    steps = OptionSteps(structure.about, structure._plan(problem))
    alike = alike_policies(structure.about, structure._plan(problem), 1)
    alike = steps.m_step(steps.e_step(alike)[0], alike)
    return {name: apart * value + (1 - apart) * alike[name][0] for name, value in params.items()}


@candidate_families.register(OptionsStructure)
def _(structure: OptionsStructure) -> tuple[Any, ...]:
    return (structure.model,)


@canonical_for_data.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem, params: Params) -> Params:
    """Options under the names that last longest, in groups of states with own names."""
    groups = structure._label_groups(problem)
    if groups is None or not groups.group.any():
        return params
    found = [
        under_lasting_names(
            structure.about, {name: value[r] for name, value in params.items()}, groups
        )
        for r in range(len(params[structure.about.low]))
    ]
    return {name: torch.stack([own[name] for own in found]) for name in params}


@bic_price.register(OptionsStructure)
def _(structure: OptionsStructure, problem: Problem, params: Params) -> float:
    r"""BIC of options, from its derivation (Schwarz 1978, doi:10.1214/aos/1176344136).

    With actions seen the likelihood is a product of three factors with parameters of their own,

    .. math::

        p(s, a) = p(s_1) \; \prod_t \Phi_{a_t s_t s_{t+1}} \; \times \; p(a \mid s; L, H, P(o_1
        \mid s_1)),

    and so is its integral over independent priors. States given actions do not depend on the
    options: the first two are the same for every number of options and drop out of every
    comparison, so their entries are not counted. The third has one probability vector a row
    (state, option), and Laplace's approximation of its integral costs half the log-determinant
    of the information: :math:`\tfrac12 \log n` for each free entry of a row that is read from n
    steps. Rows of different states are read from different numbers of steps: with :math:`n_s`
    visits of state s and A actions, O options,

    .. math::

        \sum_{s:\, n_s > 0} O (A - 1) \log n_s + \sum_{s:\, m_s > 0} O (O - 1) \log m_s +
        \sum_{s:\, b_s > 0} (O - 1) \log b_s,

    :math:`m_s` the visits after a first step and :math:`b_s` the sequences that begin in s (as
    in BIC itself, terms that do not grow are left out, among them the share of the visits under
    each option). A row that is never visited has no information, its integral is one, and it
    costs nothing. With log N for every entry, N all steps, unvisited states and rare ones are
    charged for what they were never read from, and one option is preferred though held-out
    sequences are better predicted by two. Where actions are missing the factors are not quite
    apart, and this is an approximation.
    """
    return sum(
        number * float(counts.double().log().sum())
        for number, _, counts in structure._read(problem)
    )


@component_noise.register(OptionsStructure)
def _(
    structure: OptionsStructure, params: Params, data: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws:
    from inference.structures.options.noise import option_noise

    chain, goes_on = structure.model.chain(), None
    if chain.num_ages > 1:
        assert chain.durations is not None
        logs, survival = chain.durations.tables(params, chain.num_ages)
        goes_on = 1 - (logs - survival).clamp(max=0.0).exp().cpu().numpy()
    along = steps_of(parts_of(chain, params), data)
    state, action = data[:, : along.shape[1]].unbind(-1)
    before = torch.nn.functional.pad((state * chain.num_actions + action)[:, :-1], (1, 0))
    context = before * chain.num_states + state
    context[:, 0], context[:, 1:] = -1, context[:, 1:].masked_fill(action[:, :-1] < 0, -1)
    actions, contexts = action.cpu().numpy(), context.cpu().numpy()
    return option_noise(along, actions, contexts, generator, num_draws, goes_on)


def moment_start(
    data: Tensor, num_states: int, num_actions: int, num_options: int
) -> tuple[Tensor, Tensor] | None:
    """Policies ``low`` (S, O, A) and ``high`` (S, O, O) by moments, or None.

    Warns:
        MomentWarning: why there is no such start.
    """
    try:
        # the action of the step before says much of its option, where the table is not too large
        wider = num_actions**3 * num_states**3 <= MAX_ENTRIES
        moments = count_moments(data, num_states, num_actions, past_actions=wider)
        estimate = refine_moments(moments, state_by_state(moments, num_options), REFINING)
    except (ValueError, np.linalg.LinAlgError) as error:
        warnings.warn(
            f"all starts are random, as the data give none by moments: {error}. The search took no"
            " harm where several starts reached the best optimum",
            MomentWarning,
            stacklevel=4,
        )
        return None
    low, high = (
        torch.from_numpy((1 - START_MIX) * part + START_MIX / part.shape[-1])
        for part in (estimate.low, estimate.high)
    )
    return low, high


def short_runs(chain: ChainDescription, plan: ChainPlan, num_kept: int, seed: int) -> Params:
    """Short EM runs of several random starts, the best kept, best first."""
    steps = OptionSteps(chain, plan)
    params = random_policies(chain, plan, NUM_CANDIDATES * num_kept, seed)
    for _ in range(SHORT_RUN):
        params = steps.m_step(steps.e_step(params)[0], params)
    _, log_likelihood, log_prior = steps.e_step(params)
    kept = (log_likelihood + log_prior).topk(num_kept).indices
    return {name: value[kept] for name, value in params.items()}


START_NOISE = 0.01  # share of the uniform distribution in a start: EM never leaves an exact zero


def random_policies(
    chain: ChainDescription, plan: ChainPlan, num_restarts: int, seed: int
) -> Params:
    """Random rows of both policies; initial options equally likely; environment as counted."""
    generator = torch.Generator().manual_seed(seed)

    def rows(*shape: int) -> Tensor:
        weight = (
            -torch.rand((num_restarts, *shape), generator=generator, dtype=torch.float64)
            .clamp(min=1e-12)
            .log()
        )
        return (weight / weight.sum(-1, keepdim=True)).to(plan.begin.device)

    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    return with_counted_parts(chain, plan, {chain.low: rows(s, o, a), chain.high: rows(s, o, o)})


def alike_policies(chain: ChainDescription, plan: ChainPlan, num_restarts: int) -> Params:
    """All probabilities of both policies equal."""
    s, a, o = chain.num_states, chain.num_actions, chain.num_options
    shapes = {chain.low: (s, o, a), chain.high: (s, o, o)}
    device = plan.begin.device
    return with_counted_parts(
        chain,
        plan,
        {
            n: torch.full((num_restarts, *v), 1 / v[-1], dtype=torch.float64, device=device)
            for n, v in shapes.items()
        },
    )


def split_policies(chain: ChainDescription, plan: ChainPlan, smaller: Params, seed: int) -> Params:
    """Starts with one option of ``smaller`` split in two, moved apart at random.

    ``smaller``: without restarts, by site name.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = smaller[chain.low], with_high(chain, smaller)[chain.high]
    num = low.shape[1]
    lows, highs = [], []
    for o in range(num):
        apart = (
            -torch.rand((2, *low[:, o].shape), generator=generator, dtype=torch.float64)
            .clamp(min=1e-12)
            .log()
            .to(low)
        )
        apart = (low[:, o] + apart / apart.sum(-1, keepdim=True)) / 2  # (2, S, A)
        lows.append(
            torch.cat([low[:, :o], apart[0][:, None], low[:, o + 1 :], apart[1][:, None]], 1)
        )
        into = high.clone()
        into[:, :, o] /= 2  # (S, O, O), by the option before: into both halves alike
        into = torch.cat([into, into[:, :, o : o + 1]], 2)
        rows = torch.cat([into, into[:, o : o + 1]], 1)  # (S, O + 1, O + 1)
        # a half is left for the other one time in five
        both = rows[:, [o, num]][:, :, [o, num]].sum(-1)
        rows[:, o, o], rows[:, num, num], rows[:, o, num], rows[:, num, o] = (
            0.8 * both[:, 0],
            0.8 * both[:, 1],
            0.2 * both[:, 0],
            0.2 * both[:, 1],
        )
        highs.append((1 - START_NOISE) * rows + START_NOISE / (num + 1))
    return with_counted_parts(
        chain, plan, {chain.low: torch.stack(lows), chain.high: torch.stack(highs)}
    )


def with_counted_parts(chain: ChainDescription, plan: ChainPlan, policies: Params) -> Params:
    """Add to policies (R, ...) the counted first states and environment."""
    if chain.durations is not None:
        plain = replace(chain, durations=None, choice=None)
        return with_visits(chain, with_counted_parts(plain, plan, policies))
    s, o = chain.num_states, chain.num_options
    num_restarts = len(policies[chain.low])
    first = torch.bincount(plan.begin, minlength=s).to(torch.float64)
    first = (1 - START_NOISE) * first / first.sum() + START_NOISE / s
    moves = plan.move_counts(s, chain.num_actions).to(torch.float64) + START_NOISE
    initial = (first / o)[:, None].expand(s, o)
    environment = moves / moves.sum(-1, keepdim=True)
    upper = {chain.high: policies[chain.high]}
    if chain.termination is not None and chain.choice is not None:
        choice = policies[chain.high].mean(-2)  # (R, S, O)
        left = 1 - policies[chain.high].diagonal(dim1=-2, dim2=-1)
        upper = {
            chain.choice: choice,
            chain.termination: (
                (left / (1 - choice).clamp(min=1e-6)).clamp(START_NOISE, 1 - START_NOISE)
            ),
        }
    return {
        chain.initial: initial.expand(num_restarts, s, o).contiguous(),
        chain.low: policies[chain.low],
        **upper,
        chain.environment: environment.expand(num_restarts, *environment.shape).contiguous(),
    }


def with_visits(chain: ChainDescription, params: Params) -> Params:
    """Parameters (R, ...) with durations and choices in the place of a high-level policy."""
    durations, high = chain.durations, params[chain.high]
    assert durations is not None
    assert chain.choice is not None
    stay = high.diagonal(dim1=-2, dim2=-1)  # (R, S, O)
    others = high - torch.diag_embed(stay)
    blank = high.new_zeros(len(high), chain.num_options, chain.num_ages)
    means = (1 - stay.mean(1)).clamp(min=START_NOISE).reciprocal()
    kept = {name: value for name, value in params.items() if name != chain.high}
    return {
        **kept,
        chain.choice: others / others.sum(-1, keepdim=True),
        **durations.first(means, {"duration_chances": blank}),
    }

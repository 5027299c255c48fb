"""Inspection of hidden Markov models: states, times, forecasts and pseudo-residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted
from inference.programs.program import Params
from inference.structures.hidden_markov.em_steps import emission_of, semi_markov
from inference.structures.hidden_markov.paths import (
    Filtered,
    MostProbablePath,
    filtered_states,
    filtered_visits,
    most_probable_path,
    path_draws,
    smoothed_states,
    states_given_others,
)
from inference.structures.hidden_markov.structure import shares_of_time
from inference.structures.hidden_markov.visits import Ages
from ppl_models.data.sequences import inside_of
from ppl_models.descriptions.components import distribution_given
from ppl_models.descriptions.hidden_markov import HiddenMarkovDescription
from ppl_models.descriptions.row_distributions import MultivariateNormal, MultivariateT
from ppl_models.parts.categorical import Categorical, joined
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
)
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

if TYPE_CHECKING:
    from inference.fitting.result import Fit


DISCRETE = (Bernoulli, Poisson, NegativeBinomial, Categorical)
EDGE = 1e-16  # chances are kept so far from 0 and 1 before their normal score is taken


def _about(fit: Fit, caller: str) -> HiddenMarkovDescription:
    about = fit.structure.about
    if not isinstance(about, HiddenMarkovDescription):
        raise ValueError(
            f"{caller}: a fit of a hidden Markov model was expected, got one of {fit.model_name}"
        )
    return about


def _asked(fit: Fit, data: Any, caller: str) -> tuple[HiddenMarkovDescription, Params, Tensor]:
    return _about(fit, caller), fit.params, checked_as_fitted(fit, data)[0]


# ---------------------------------------------------------------- states of the steps


def smooth_states(fit: Fit, data: Any) -> Tensor:
    """P(state | the whole sequence) at every step, (B, T, K); zero after the end.

    Raises:
        ValueError: if the model is no hidden Markov model, or ``data`` does not fit it.
    """
    return smoothed_states(*_asked(fit, data, "smooth_states"))


def filter_states(fit: Fit, data: Any) -> Filtered:
    """P(state | sequence up to a step) and before it, and the log-likelihood of each step.

    Raises:
        ValueError: if the model is no hidden Markov model, or ``data`` does not fit it.
    """
    return filtered_states(*_asked(fit, data, "filter_states"))


def viterbi_states(fit: Fit, data: Any) -> MostProbablePath:
    """Most probable path of states of every sequence, with its log-density.

    Ties go to the smaller index.

    Raises:
        ValueError: if the model is no hidden Markov model, or ``data`` does not fit it.
    """
    return most_probable_path(*_asked(fit, data, "viterbi_states"))


def sample_states(fit: Fit, data: Any, num_draws: int = 1, seed: int = 0) -> Tensor:
    """Exact joint draws of whole paths of states, (num_draws, B, T); -1 after the end."""
    check_size("sample_states", "num_draws", num_draws)
    return path_draws(*_asked(fit, data, "sample_states"), num_draws, seed)


# ---------------------------------------------------------------- the chain


@shows_briefly
@dataclass(frozen=True, eq=False)
class ChainTimes:
    """Times of a chain that follow from its transitions and durations, in steps.

    Args:
        shares: share of time in each state in the long run, (K,).
        dwell: expected steps of a visit, :math:`1 / (1 - A_{kk})`, or the mean of its durations,
            (K,); infinite for a state that is never left.
        transitions: A, (K, K), from step to step, or from visit to visit where durations are given.
        hitting: expected steps until a state (column) is reached from another (row), (K, K); 0 on
            the diagonal, infinite where it may never be. From a visit that begins.
        about, params: the model's description and estimates.
    """

    shares: Tensor
    dwell: Tensor
    transitions: Tensor
    hitting: Tensor
    about: HiddenMarkovDescription
    params: Params

    def dwell_chances(self, most: int) -> Tensor:
        """P(a visit lasts n steps), :math:`A_{kk}^{n-1} (1 - A_{kk})`, n = 1, ..., (K, most)."""
        check_size("dwell_chances", "most", most)
        if self.about.durations is not None:
            # of one step more, where the rest of the distribution stands
            chances = self.about.durations.tables(self.params, most + 1).durations[..., :most].exp()
            return torch.nn.functional.pad(chances, (0, most - chances.shape[-1]))
        stay = self.transitions.diagonal().unsqueeze(-1)
        return stay ** torch.arange(most).to(stay) * (1 - stay)

    def ahead(self, num_steps: int) -> Tensor:
        """P(state so many steps later | state now), (K, K); of visits, | one begins now."""
        check_size("ahead", "num_steps", num_steps)
        if self.about.durations is not None:
            one = {name: value.unsqueeze(0) for name, value in self.params.items()}
            chain = Ages.of(semi_markov(self.about, one, num_steps + 1))
            ages = chain.begin(len(self.dwell), entered=True)
            for _ in range(num_steps):
                ages = chain.ahead(ages)
            return torch.from_numpy(np.exp(ages).sum(-1))
        return torch.linalg.matrix_power(self.transitions, num_steps)


def chain_times(fit: Fit) -> ChainTimes:
    """Dwell times, shares of time and hitting times of the states.

    Args:
        fit: of a hidden Markov model.

    Raises:
        ValueError: if the model is no hidden Markov model.
    """
    about = _about(fit, "chain_times")
    params = {name: value.detach().double().cpu() for name, value in fit.params.items()}
    transitions = params["transitions"]
    means = torch.ones(len(transitions)).double()  # steps of a move
    if about.durations is not None:
        means = about.durations.means(params)
    size = len(transitions)
    hitting = torch.full((size, size), torch.inf, dtype=torch.float64)
    eye = torch.eye(size).double()
    reach = (torch.linalg.matrix_power((transitions > 0).double() + eye, size) > 0).numpy()
    for goal in range(size):
        hitting[goal, goal] = 0.0
        # a state counts from which the goal is reached for certain: nothing that it leads to is cut
        # off from the goal
        away = transitions.clone()
        away[goal] = eye[goal]
        leads = torch.linalg.matrix_power((away > 0).double() + eye, size) > 0
        sure = [
            k
            for k in range(size)
            if k != goal and all(reach[m, goal] for m in range(size) if leads[k, m])
        ]
        if sure:
            away = eye[sure][:, sure] - transitions[sure][:, sure]
            hitting[sure, goal] = torch.linalg.solve(away, means[sure])
    dwell = 1 / (1 - transitions.diagonal()) if about.durations is None else means
    shares = shares_of_time(about, params)
    return ChainTimes(shares, dwell, transitions, hitting, about, params)


# ---------------------------------------------------------------- ahead of the data


@shows_briefly
@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecast of states and items after the last step of every sequence.

    Args:
        state: P(state) one, two, ... steps after the end, (B, h, K).
        mean: expected items, (B, h, J); of an item of categories 0, 1, ... its expected code, see
            ``state`` and the estimates for their probabilities.
        low, high: limits that an item lies between with probability ``level``, (B, h, J).
        level: of these limits.
    """

    state: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    level: float


def forecast(
    fit: Fit,
    data: Any,
    num_steps: int = 1,
    level: float = 0.9,
    num_draws: int = 4000,
    seed: Seed = 0,
) -> Forecast:
    """Forecast states and items after the end of every sequence, at the estimate.

    Args:
        fit: of a hidden Markov model.
        data: sequences, as the fit takes them.
        num_steps: h.
        level: of the limits of items.
        num_draws: rows drawn in every state, from which limits and means come.
        seed: of the draws.

    Raises:
        ValueError: if the model is no hidden Markov model, ``data`` does not fit it, or a setting
            is out of range.
    """
    seed = as_seed("forecast", seed)
    from inference.programs.global_state import isolated

    about, params, packed = _asked(fit, data, "forecast")
    check_size("forecast", "num_steps", num_steps)
    check_size("forecast", "num_draws", num_draws)
    check_number("forecast", "level", level, "lie in (0, 1)", above=0, below=1)
    state = _states_ahead(about, params, packed, num_steps)
    with isolated(seed), torch.no_grad():
        # (S, K, J)
        rows = _emission(fit, about).expand((num_draws, about.num_states)).sample().double().cpu()
    values, order = rows.flatten(0, 1).sort(0)  # (S K, J)
    # (B, h, S K), a state after the other in every draw
    weight = (state / num_draws).repeat(1, 1, num_draws)
    limits = []
    for chance in ((1 - level) / 2, (1 + level) / 2):
        columns = []
        for j in range(rows.shape[-1]):
            total = weight[..., order[:, j]].cumsum(-1)
            place = (total < chance).sum(-1).clamp(max=len(values) - 1)
            columns.append(values[place, j])
        limits.append(torch.stack(columns, -1))
    return Forecast(state, state @ _means(fit, about, rows), limits[0], limits[1], level)


def _states_ahead(
    about: HiddenMarkovDescription, params: Params, packed: Tensor, num_steps: int
) -> Tensor:
    """P(state) one, two, ... steps after the end of every sequence, (B, h, K)."""
    states = []
    if about.durations is not None:
        _, chain, ages = filtered_visits(about, params, packed, packed.shape[1] + num_steps)
        for _ in range(num_steps):
            ages = chain.ahead(ages)
            states.append(torch.from_numpy(np.exp(ages).sum(-1)))
        return torch.stack(states, 1)
    filtered = filtered_states(about, params, packed).state
    last = inside_of(packed).sum(1).cpu() - 1
    now = filtered[torch.arange(len(last)), last]
    transitions = params["transitions"].detach().double().cpu()
    for _ in range(num_steps):
        now = now @ transitions
        states.append(now)
    return torch.stack(states, 1)


def _means(fit: Fit, about: HiddenMarkovDescription, rows: Tensor) -> Tensor:
    """Expected items in every state, (K, J); of drawn rows (S, K, J) where they are not known."""
    component = about.emission.component
    if isinstance(component, MultivariateNormal | MultivariateT):
        return fit.params["means"].detach().double().cpu()
    size = about.emission.num_items
    if isinstance(component, ResponseFamily) and not component.num_categories_of(size):
        known: Tensor = _emission(fit, about).mean.detach().double().cpu()
        return known
    return rows.mean(0)


def _emission(fit: Fit, about: HiddenMarkovDescription) -> Any:
    """The distribution of a row in every state, of batch shape (K,)."""
    own = {name: value.detach() for name, value in emission_of(fit.params).items()}
    if isinstance(about.emission.component, ResponseFamily):
        parts = own.get("predictors"), own.get("probabilities")
        predictor = joined(about.emission.component, about.emission.num_items, *parts)
        dispersion = {name: own[name] for name in ("dispersion",) if name in own}
        own = {"predictor": predictor} | dispersion
    return distribution_given(about.emission, own)


# ---------------------------------------------------------------- residuals


def pseudo_residuals(
    fit: Fit,
    data: Any,
    kind: Literal["forecast", "ordinary"] = "forecast",
    discrete: Literal["middle", "random"] = "middle",
    seed: Seed = 0,
) -> Tensor:
    r"""Normal pseudo-residuals of every item, (B, T, J); NaN where an entry is missing.

    .. math:: z_{tj} = \Phi^{-1} \{ P(x_j \le x_{tj} \mid \text{the steps before t}) \},

    or, for "ordinary", given all other steps. Standard normal where the model is right (of
    "forecast" ones independent from step to step, too): a few beyond three in size are outliers, a
    pattern over time or in a QQ plot is misfit (Zucchini, MacDonald and Langrock 2016, section
    6.2).

    Args:
        fit: of a hidden Markov model.
        data: sequences, as the fit takes them.
        kind: "forecast" or "ordinary".
        discrete: of counts and categories the middle of the interval of :math:`P(x_j < x)` and
            :math:`P(x_j \le x)`, or a random point of it, which alone is standard normal.
        seed: of the random points.

    Raises:
        ValueError: if the model is no hidden Markov model, ``data`` does not fit it, a setting is
            none of those, or the distribution of a row has no known distribution functions of its
            items.
    """
    seed = as_seed("pseudo_residuals", seed)
    if kind not in ("forecast", "ordinary") or discrete not in ("middle", "random"):
        raise ValueError(
            "pseudo_residuals: kind 'forecast' or 'ordinary' and discrete 'middle' or 'random'"
            f" were expected, got {kind!r} and {discrete!r}"
        )
    from scipy.special import ndtri

    about, params, packed = _asked(fit, data, "pseudo_residuals")
    if kind == "forecast":
        weight = filtered_states(about, params, packed).ahead
    else:
        weight = states_given_others(about, params, packed)
    x = torch.where(packed.isfinite(), packed, torch.nan).detach().double().cpu().numpy()
    generator = np.random.default_rng(seed)
    out = np.full(x.shape, np.nan)
    for j, below, up_to in _chances(fit, about, x):
        low, high = ((part * weight.cpu().numpy()).sum(-1) for part in (below, up_to))
        share = generator.random(low.shape) if discrete == "random" else 0.5
        out[..., j] = ndtri(np.clip(low + share * (high - low), EDGE, 1 - EDGE))
    return torch.from_numpy(np.where(np.isnan(x), np.nan, out))


def _chances(fit: Fit, about: HiddenMarkovDescription, x: np.ndarray) -> Any:
    """Item j, and P(x_j < x) and P(x_j <= x) in every state, (B, T, K) each."""
    from scipy import stats

    own = {name: value.detach().double().cpu().numpy() for name, value in fit.params.items()}
    component = about.emission.component
    if isinstance(component, MultivariateNormal | MultivariateT):
        scale = np.sqrt(np.diagonal(np.linalg.inv(own["precisions"]), axis1=-2, axis2=-1))  # (K, J)
        for j in range(x.shape[-1]):
            z = (x[..., j, None] - own["means"][:, j]) / scale[:, j]
            is_normal = isinstance(component, MultivariateNormal)
            value = stats.norm.cdf(z) if is_normal else stats.t.cdf(z, own["freedom"])
            yield j, value, value
        return
    if not isinstance(component, ResponseFamily):
        raise ValueError(
            f"pseudo_residuals: distribution functions of the items of {type(component).__name__}"
            " emissions are not known"
        )
    predictor = _emission(fit, about).predictor.double().cpu().numpy()
    size = x.shape[-1]
    blocks = zip(component.blocks(size), component.predictors(size), strict=True)
    for (family, columns, dispersed), entries in blocks:
        eta = predictor[:, entries]
        for i, j in enumerate(range(x.shape[-1])[columns]):
            value = x[..., j, None]
            if isinstance(family, Categorical):
                items = family.segments(columns.stop - columns.start, torch.device("cpu"))
                up_to = (
                    items.padded(family.mean(torch.from_numpy(eta)), 0.0).cumsum(-1).numpy()[:, i]
                )  # (K, H)
                code = np.nan_to_num(x[..., j]).astype(int)
                high = np.moveaxis(up_to[:, code], 0, -1)
                low = np.moveaxis(up_to[:, np.maximum(code - 1, 0)], 0, -1)
                yield j, np.where(code[..., None] > 0, low, 0.0), high
                continue
            gamma: Any = own["dispersion"][:, dispersed][:, i] if family.num_dispersed(1) else None
            mean = family.mean(torch.from_numpy(eta[:, i])).numpy()
            if isinstance(family, Normal | LogNormal):
                seen = np.log(value) if isinstance(family, LogNormal) else value
                distribution: Any = stats.norm(eta[:, i], np.sqrt(gamma))
                yield j, distribution.cdf(seen), distribution.cdf(seen)
            elif isinstance(family, DISCRETE):
                if isinstance(family, NegativeBinomial):
                    distribution = stats.nbinom(gamma, gamma / (gamma + mean))
                else:
                    distribution = (
                        stats.poisson if isinstance(family, Poisson) else stats.bernoulli
                    )(mean)
                yield j, distribution.cdf(value - 1), distribution.cdf(value)
            else:
                raise ValueError(
                    f"pseudo_residuals: the distribution function of {type(family).__name__} items"
                    " is not known"
                )

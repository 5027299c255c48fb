"""Identifiability of an options HMM by three steps, decided by recovering its parameters.

The exact distribution of three steps at the parameters goes into the method of moments
(:mod:`inference.structures.options.moments`). If the parameters come out, up to the names of the
options, then no other parameters near or far, for which the method is defined, have the same
distribution: it identifies them. If the method is not defined there, the condition that failed is
named. The condition suffices and is not needed: longer windows may distinguish what three steps do
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted
from inference.fitting.record import FitRecord
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.structures.options.align import align_options, policy_error
from inference.structures.options.moments import MomentDiagnostics, OptionMoments, state_by_state
from inference.structures.options.structure import OptionsStructure
from ppl_models.data.tables import first_tensor
from ppl_models.descriptions.options import ChainDescription, with_high

RARE = 1e-3  # transitions rarer than this count as impossible: priors make them out of nothing
RECOVERED = 1e-5
MOST_NUMBERS = 2**25  # of the distribution of three steps, a quarter of a GiB


@dataclass(frozen=True, eq=False)
class OptionIdentifiability:
    """Identifiability of the parameters by three steps.

    Args:
        identified: whether the parameters were recovered from their own exact moments.
        reason: which condition failed, "" if none did.
        error: distance between the parameters and what was recovered, NaN if nothing was.
        diagnostics: singular values by state and the gap between options; None if nothing was
            recovered.
    """

    identified: bool
    reason: str
    error: float
    diagnostics: MomentDiagnostics | None

    def text(self) -> str:
        """The verdict in words."""
        if not self.identified:
            return f"not shown to be identified by three successive steps: {self.reason}"
        numbers = self.diagnostics
        if numbers is None:
            return "identified"
        state = int(np.nanargmin(numbers.singular_pairs))
        return (
            "identified by the distribution of three successive steps, up to the names of the"
            f" options (shown at these estimates; recovered with error {self.error:.1e}). Weakest:"
            f" state {state}, where past and action are tied by a singular value of"
            f" {numbers.singular_pairs[state]:.2g}; options differ by at least"
            f" {numbers.smallest_gap:.2g} in their actions"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        numbers = self.diagnostics
        return {
            "identified": self.identified,
            "reason": self.reason,
            "error": None if np.isnan(self.error) else self.error,
            "weakest_singular_value": numbers and float(np.nanmin(numbers.singular_pairs)),
        }


def exact_moments(params: Mapping[str, Tensor], chain: ChainDescription) -> OptionMoments:
    """Distribution of three successive steps, after the chain has run for long."""
    size = chain.num_actions**2 * chain.num_states**3
    if size > MOST_NUMBERS:
        raise ValueError(
            f"this was not looked at: the distribution of three steps of {chain.num_states} states"
            f" and {chain.num_actions} actions has {size:,} numbers ({size * 8 / 2**30:.1f} GiB),"
            f" more than {MOST_NUMBERS:,}; code fewer states to have it decided"
        )
    params = with_high(chain, params)
    names = (chain.initial, chain.low, chain.high, chain.environment)
    initial, low, high, environment = (
        params[name].detach().cpu().double().numpy() for name in names
    )
    environment = np.where(environment < RARE, 0.0, environment)
    environment = environment / environment.sum(-1, keepdims=True)
    state_shares = initial
    average = np.zeros_like(initial)
    num_rounds = 64  # an average over time: the distribution itself may go round in circles
    for _ in range(num_rounds):
        average += state_shares / num_rounds
        state_shares = np.einsum(
            "so,soa,ast,top->tp", state_shares, low, environment, high, optimize=True
        )
    # (middle, past, option)
    middle = np.einsum("xo,xob,bxs,sop->sxp", average, low, environment, high, optimize=True)
    ahead = np.einsum("tpq,tqc->tpc", high, low)  # (next, option, next action)
    windows = np.einsum("sxp,spa,ast,tpc->asxtc", middle, low, environment, ahead, optimize=True)
    return OptionMoments(windows, environment, 10**9)


def check_options(params: Mapping[str, Tensor], chain: ChainDescription) -> OptionIdentifiability:
    """Decide for the parameters of an options HMM.

    Args:
        params: by site name.
        chain: the model's description of itself, ``model.chain()``.
    """
    if chain.durations is not None:
        reason = "three steps, which the argument is about, do not show how long options are on"
        return OptionIdentifiability(False, reason, float("nan"), None)
    params = with_high(chain, params)
    try:
        found = state_by_state(exact_moments(params, chain), chain.num_options)
    except (ValueError, np.linalg.LinAlgError) as refusal:
        reason = str(refusal).removeprefix("moments: ").split(": start at random instead")[0]
        return OptionIdentifiability(False, reason, float("nan"), None)
    seen = torch.from_numpy(~np.isnan(found.diagnostics.singular_pairs))
    recovered = dict(params)
    # a state that is never visited has no estimate
    for name, value in ((chain.low, found.low), (chain.high, found.high)):
        own = params[name].detach().cpu().double()
        recovered[name] = torch.where(seen[:, None, None], torch.from_numpy(value), own)
    error = policy_error(align_options(recovered, params, chain).params, params, chain)
    reason = (
        f"the moments give other parameters, at a distance of {error:.2g}: options nearly alike in"
        " a state"
    )
    identified = error < RECOVERED
    return OptionIdentifiability(identified, "" if identified else reason, error, found.diagnostics)


STEPS = 3  # in succession, whose distribution the argument is about


@report_of.register
def _(structure: OptionsStructure, fit: FitRecord, data: Any) -> IdentifiabilityText:
    if data is not None and first_tensor(checked_as_fitted(fit, data)[0]).shape[1] < STEPS:
        return OptionIdentifiability(False, f"no sequence has {STEPS} steps", float("nan"), None)
    return check_options(fit.params, structure.about)

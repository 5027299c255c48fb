"""First picture of a fit by its kind of model, else its estimates."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from inference.base.structure import Structure
from inference.estimates import estimates_of
from inference.fitting.columns import Names
from inference.fitting.result import Fit
from inference.plots.components import plot_categories, plot_signatures
from inference.plots.estimates import plot_estimates
from inference.plots.hidden_markov import plot_decoded_path, plot_transitions
from inference.plots.layers import plot_loadings
from inference.plots.noisy_or import plot_failures
from inference.plots.options import plot_policy_tables
from inference.structures.dictionary.structure import DictionaryStructure
from inference.structures.factorization.factor_analysis import FactorAnalysisStructure
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.unmixing import UnmixingStructure
from inference.structures.factorization.usage import UsageStructure
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.layers.structure import LayeredStructure
from inference.structures.mixture.structure import MixtureStructure
from inference.structures.noisy_or.structure import NoisyOrStructure
from inference.structures.options.continuous import ContinuousOptionsStructure
from inference.structures.options.structure import OptionsStructure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_fit(fit: Fit, data: Any = None, names: Names | None = None) -> Figure:
    """Plot a fit by its kind: loadings, signatures, policies, answers, path or estimates.

    Args:
        fit: of any program.
        data: the rows of the fit, by which standard errors are worked out where the picture shows
            intervals.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if ``data`` or ``names`` do not fit the model.
    """
    figure: Figure = _picture(fit.structure, fit, data, names)
    return figure


@functools.singledispatch
def _picture(structure: Structure, fit: Fit, data: Any, names: Names | None) -> Any:
    return plot_estimates(estimates_of(fit, data, names=names))


@_picture.register
def _(structure: LayeredStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    return plot_loadings(fit, names=names).figure


@_picture.register
def _(structure: FactorAnalysisStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    return plot_loadings(fit, "signatures", names=names).figure


@_picture.register
def _(structure: MixtureStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    if not fit.category_names or "predictors" in fit.params:
        return plot_estimates(estimates_of(fit, data, names=names))
    return plot_categories(fit, names)


@_picture.register
def _(structure: HiddenMarkovStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    if data is None:
        return plot_transitions(fit, names).figure
    return plot_decoded_path(fit, data, names=names)


@_picture.register
def _(structure: DictionaryStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    return plot_loadings(fit, "dictionary", names=names).figure


@_picture.register(FactorizationStructure)
@_picture.register(UsageStructure)
@_picture.register(UnmixingStructure)
def _(structure: Structure, fit: Fit, data: Any, names: Names | None) -> Any:
    site = "endmembers" if isinstance(structure, UnmixingStructure) else "signatures"
    signatures = fit.params[site].detach().cpu().numpy()
    channels = fit.item_names or [str(j) for j in range(signatures.shape[1])]
    return plot_signatures(signatures, channels, None if names is None else names.get("component"))


@_picture.register
def _(structure: NoisyOrStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    if "failure" not in fit.params:  # several layers
        return plot_estimates(estimates_of(fit, data, names=names))
    return plot_failures(fit.params, fit.item_names)


@_picture.register
def _(structure: OptionsStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    return plot_policy_tables(fit)


@_picture.register
def _(structure: ContinuousOptionsStructure, fit: Fit, data: Any, names: Names | None) -> Any:
    try:
        return plot_policy_tables(fit, fit.item_names[:-1])
    except ValueError:  # a policy with hidden units has no table
        return plot_estimates(estimates_of(fit, data, names=names))

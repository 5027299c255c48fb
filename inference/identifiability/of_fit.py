"""The identifiability report that belongs to a fit, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    from inference.fitting.result import Fit
    from inference.identifiability.options import OptionIdentifiability
    from inference.identifiability.report import IdentifiabilityReport

__all__ = ["identifiability_of"]


def identifiability_of(fit: Fit) -> IdentifiabilityReport | OptionIdentifiability | None:
    """The identifiability report of a fit whose model describes its layers or its chain of options, else None."""
    from inference.identifiability.check import check_identifiability
    from inference.identifiability.options import check_options

    model: Any = fit.model
    if hasattr(model, "chain"):
        return check_options(fit.params, model.chain())
    return check_identifiability(fit) if hasattr(model, "layers") else None

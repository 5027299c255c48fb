"""Alignment of two labellings of the same latents, whose order and signs are arbitrary.

Two fits, or a fit and a truth, can only be compared after one is relabelled like the other. That is
for scoring and for comparing: no fit may use it. How the latents of a model may be renamed is said
by its kind (:meth:`inference.base.structure.Structure.align`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from inference.base.align import Alignment, Matching, match_columns
from inference.fitting.record import FitRecord
from inference.structures.layers.align import align_layers, canonical_signs, relabel
from inference.structures.registry import structure_of
from ppl_models.parts.surface import promised as _promised

__all__ = [
    "Alignment",
    "Matching",
    "align",
    "align_layers",
    "canonical_signs",
    "match_columns",
    "relabel",
]
__dir__ = _promised(__name__)


def align(
    fit: FitRecord, reference: FitRecord | Mapping[str, Tensor], signs: bool = True
) -> Alignment:
    """Align the latents of a fit with those of a reference.

    Relabelled so that the parameters are as near as possible.

    What may be exchanged is what the model's distribution does not know: a graph that the user
    declared distinguishes latents, never one that was estimated (a plain fit of an encoder, or
    ``polish``), so two such fits on different graphs align, and their graphs along with them.
    Layers are matched bottom-up by their loadings (:func:`align_layers`), hidden options by their
    policies, components of a mixture and causes of a network by the parameters that belong to each.

    Args:
        fit: a fit of a model whose kind says how its latents may be renamed.
        reference: another fit of the same sizes, or a dict of parameters (a known truth) by site
            name.
        signs: whether the values of a binary latent may change names too; False permutes only.

    Raises:
        ValueError: if nothing is known of the latents of the model, a site is missing or has
            another shape (naming it), or a value is not finite.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.alignment import align
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> moved = {name: value.flip(0) for name, value in classes.params.items()}
        >>> align(classes, moved).permutations
        {'assignments': tensor([1, 0])}
    """
    model = getattr(fit, "model", None)
    other = reference if isinstance(reference, Mapping) else getattr(reference, "params", None)
    if other is None:
        raise ValueError(
            "align: reference must be a fit or a dict of parameters, got"
            f" {type(reference).__name__}"
        )
    structure = None if model is None else structure_of(model)
    alignment = None if structure is None else structure.align(fit.params, other, signs)
    if structure is None or alignment is None:
        raise ValueError(
            "align: a fit of a model with layers() and root() was expected, or of another kind"
            f" whose latents have no names, got {type(fit).__name__} of {type(model).__name__};"
            " components of other models are matched by match_columns"
        )
    return replace(alignment, graphs=structure.graphs(alignment.params))

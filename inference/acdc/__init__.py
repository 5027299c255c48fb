"""Accumulated cutoff discrepancy criterion (ACDC) for the number of components."""

from inference.acdc.choice import Choice as Choice
from inference.acdc.criterion import (
    AcdcResult as AcdcResult,
    Bootstrap as Bootstrap,
    NoNull as NoNull,
    Table as Table,
    acdc as acdc,
)
from inference.acdc.discrepancy import (
    KDE as KDE,
    KNN as KNN,
    Histogram as Histogram,
    PlugIn as PlugIn,
)
from ppl_models.parts.surface import promised as _promised

__dir__ = _promised(__name__)

"""How many components are really there: the accumulated cutoff discrepancy criterion."""

from inference.acdc.choice import (
    MIN_SHARE,
    Choice,
    Segment,
    best_segments,
    clear_step,
    discrepancy_left,
    loss,
    select_segment,
    shares_taken,
    taken_beyond,
)
from inference.acdc.criterion import AcdcResult, Bootstrap, BootstrapNull, NoNull, Table, acdc
from inference.acdc.discrepancy import (
    KDE,
    KNN,
    Discrepancy,
    Histogram,
    PlugIn,
    cells_of,
    null_moments,
    plug_in,
    plug_in_null,
)

__all__ = [
    "MIN_SHARE",
    "Choice",
    "clear_step",
    "discrepancy_left",
    "select_segment",
    "shares_taken",
    "taken_beyond",
    "Segment",
    "best_segments",
    "loss",
    "AcdcResult",
    "Bootstrap",
    "BootstrapNull",
    "NoNull",
    "Table",
    "acdc",
    "KDE",
    "KNN",
    "Discrepancy",
    "Histogram",
    "null_moments",
    "PlugIn",
    "cells_of",
    "plug_in",
    "plug_in_null",
]

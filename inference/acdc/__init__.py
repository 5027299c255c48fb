"""How many components are really there: the accumulated cutoff discrepancy criterion."""

from inference.acdc.choice import (
    MIN_SHARE,
    Choice,
    clear_step,
    discrepancy_left,
    select_segment,
    shares_taken,
    taken_beyond,
)
from inference.acdc.criterion import AcdcResult, Bootstrap, NoNull, Table, acdc
from inference.acdc.discrepancy import KDE, KNN, Discrepancy, Histogram, null_moments
from inference.acdc.loss_curves import Segment, best_segments, loss
from inference.acdc.plug_in import PlugIn, cells_of, plug_in, plug_in_null

__all__ = [
    "MIN_SHARE",
    "Choice",
    "clear_step",
    "discrepancy_left",
    "select_segment",
    "shares_taken",
    "taken_beyond",
    "AcdcResult",
    "Bootstrap",
    "NoNull",
    "Table",
    "acdc",
    "KDE",
    "KNN",
    "Discrepancy",
    "Histogram",
    "null_moments",
    "Segment",
    "best_segments",
    "loss",
    "PlugIn",
    "cells_of",
    "plug_in",
    "plug_in_null",
]

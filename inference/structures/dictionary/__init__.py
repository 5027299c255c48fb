"""Dictionaries whose rows use few columns: codes, starts, alternating minimisation."""

from inference.structures.dictionary.alternating import AlternatingMinimization, GradientAlternation
from inference.structures.dictionary.codes import (
    codes_of,
    conditional_rows,
    decode,
    finished,
    fourth_moment_start,
    objectives,
    random_dictionary,
    unit_columns,
)
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    Decoder,
    HardThresholding,
    Pursuit,
    Shrinkage,
)
from inference.structures.dictionary.structure import DictionaryStructure

__all__ = [
    "AlternatingMinimization",
    "GradientAlternation",
    "codes_of",
    "conditional_rows",
    "decode",
    "finished",
    "fourth_moment_start",
    "objectives",
    "random_dictionary",
    "unit_columns",
    "BackwardElimination",
    "Decoder",
    "HardThresholding",
    "Pursuit",
    "Shrinkage",
    "DictionaryStructure",
]

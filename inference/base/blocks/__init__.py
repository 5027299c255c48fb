"""Rows that are read block by block, from disk and by several processes, and sums over all of
them.
"""

from inference.base.blocks.checked_rows import CheckedRows, check_rows
from inference.base.blocks.processes import LostProcessError, Processes
from inference.base.blocks.row_blocks import RowBlocks
from inference.base.blocks.summed_steps import SharedCheckpoint, SummedGenericSteps, SummedSteps

__all__ = [
    "CheckedRows",
    "LostProcessError",
    "Processes",
    "RowBlocks",
    "SharedCheckpoint",
    "SummedGenericSteps",
    "SummedSteps",
    "check_rows",
]

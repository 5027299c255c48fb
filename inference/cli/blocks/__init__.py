"""Tables that a command reads block by block: opened, looked through, fitted."""

from inference.cli.blocks.fitted import fit_blocks, goes_in_blocks
from inference.cli.blocks.looked import Looked, look_through
from inference.cli.blocks.opened import numbered, open_blocks, under_names

__all__ = [
    "Looked",
    "fit_blocks",
    "goes_in_blocks",
    "look_through",
    "numbered",
    "open_blocks",
    "under_names",
]

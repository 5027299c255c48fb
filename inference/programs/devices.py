"""Settings that depend on the device that holds the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# of a device's free memory for each element: eight numbers in double precision, and as much again
# for what else lives there
BYTES = 128


def elements_at_once(like: Any, on_cpu: int) -> int:
    """Number of elements of the largest tensor in work that is cut into pieces.

    A processor is quickest with pieces that stay in its cache. A GPU wants all at once, as far as
    its memory goes: a piece costs it some launches of kernels, however small it is.

    Args:
        like: a tensor on the device; data that are no tensor, such as a frame, are worked on by the
            CPU.
        on_cpu: elements on the CPU, and the least elsewhere.
    """
    if not isinstance(like, Tensor) or like.device.type != "cuda":
        return on_cpu
    free, _ = torch.cuda.mem_get_info(like.device)
    return max(on_cpu, free // BYTES)


def seeded(like: Tensor, seed: int) -> torch.Generator:
    """Random generator by a seed on a tensor's device."""
    return torch.Generator(device=like.device).manual_seed(seed)

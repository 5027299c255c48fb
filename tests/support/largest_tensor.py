"""How much memory the largest single tensor of a computation takes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """The number of entries of the largest tensor that an operation really fills.

    Args:
        floating: count tensors of floating-point numbers alone.
    """

    def __init__(self, floating: bool = False) -> None:
        super().__init__()
        self.numel = 0
        self.floating = floating

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, Tensor) and (value.is_floating_point() or not self.floating):
                self.numel = max(
                    self.numel, value.untyped_storage().nbytes() // value.element_size()
                )
        return out

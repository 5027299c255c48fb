"""A device that is pretended: tensors that say they lie on one and are kept on the CPU, so that
code meets a device's rules where there is none.

As on a GPU, an operation on a tensor there and a tensor here (of one dim or more) is refused, and
so are ``numpy()`` there and random numbers there from a generator that is here. The numbers are
those of the CPU, so that they can be compared bit for bit. The name of the device is ``meta``, the
one that every build of torch knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
VALUES = {
    Tensor.item,
    Tensor.tolist,
    Tensor.data_ptr,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.__format__,
}
MAKERS = {torch.tensor, torch.as_tensor, torch.asarray}
INDEXED = {
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
}  # the only ones that take indices from the CPU


class Pretended(Tensor):
    """A tensor that says it lies on the device; ``held`` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Pretended:
        made: Pretended = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        return made

    def __init__(self, held: Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _done(func, args, kwargs or {})

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in VALUES:
            return func(_here(args[0]), *args[1:], **kwargs)
        if (
            func is Tensor.repeat_interleave
        ):  # refuses the device's name before it asks for the numbers
            return Pretended(func(*map(_here, args), **kwargs))
        if func is Tensor.numpy:
            raise TypeError("a tensor on a device cannot be converted to numpy: use .cpu() first")
        if func in (
            Tensor.__getitem__,
            Tensor.__setitem__,
        ):  # lists among the indices would become tensors below the modes
            args = (args[0], _indices(args[1]), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


class PretendedDevice(TorchDispatchMode):
    """Within it, tensors may be made on the device and carried there and back."""

    def __enter__(self) -> Any:
        self._makers = _Makers()
        self._makers.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._makers.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _done(func, args, kwargs or {})


class _Makers(TorchFunctionMode):
    """``torch.tensor`` and its like make their tensor below the modes, which then never see its
    numbers.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in MAKERS and func is not Tensor.new_tensor:
            return func(*args, **kwargs)
        device = kwargs.pop("device", None)
        data = args[0]
        if func is Tensor.new_tensor:
            like, data, func = args[0], args[1], torch.tensor
            device = like.device if device is None else device
            kwargs.setdefault("dtype", like.dtype)
        is_there = isinstance(data, Pretended) if device is None else torch.device(device) == DEVICE
        made = func(_here(data), **kwargs)
        return Pretended(made) if is_there else made


def carried(value: Any) -> Any:
    """A tensor, or all tensors of a dict, on the device."""
    if isinstance(value, Mapping):
        return {name: carried(part) for name, part in value.items()}
    return Pretended(value) if isinstance(value, Tensor) else value


def _indices(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_indices(part) for part in index)
    return (
        torch.tensor(index, dtype=None if index else torch.long)
        if isinstance(index, list)
        else index
    )


def _here(value: Any) -> Any:
    if isinstance(value, Pretended):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _done(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on the numbers; its outcome lies where a device would have left it."""
    name = func.overloadpacket.__name__
    tensors = [part for part in tree_flatten((args, kwargs))[0] if isinstance(part, Tensor)]
    there = any(isinstance(part, Pretended) for part in tensors)
    if any(part.device == DEVICE and not isinstance(part, Pretended) for part in tensors):
        raise RuntimeError(
            f"{name}: got a tensor without numbers, made below the modes; see _Makers"
        )
    device = kwargs.get("device")
    if name == "_to_copy":
        is_there = there if device is None else device == DEVICE
    elif name == "copy_":
        is_there = isinstance(args[0], Pretended)
    elif tensors:
        is_there = there
        must_be_there = (
            tensors
            if name not in INDEXED
            else [part for part in (args[0], *args[2:]) if isinstance(part, Tensor)]
        )
        if there and any(not isinstance(part, Pretended) and part.dim() for part in must_be_there):
            raise RuntimeError(
                f"{name}: all tensors were expected on one device, got some on the device and some"
                " on the CPU"
            )
    else:
        is_there = device == DEVICE
        if is_there and kwargs.get("generator") is not None:
            raise RuntimeError(
                f"{name}: a generator on the device was expected, got one on the CPU"
            )
    out = func(*tree_map(_here, args), **tree_map(_here, kwargs))
    if "out" in kwargs or (name.endswith("_") and not name.startswith("_")):
        return kwargs.get("out", args[0])  # changed in place
    return tree_map(
        lambda part: Pretended(part) if is_there and isinstance(part, Tensor) else part, out
    )

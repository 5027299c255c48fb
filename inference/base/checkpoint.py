"""Files that hold a running fit: safetensors and JSON, nothing that can execute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["Checkpoint", "read_tensors", "write_tensors"]

State = TypeVar("State")


def write_tensors(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one safetensors file; the old file stays whole until the new one is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    contiguous = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    save_file(contiguous, str(partial), metadata={"record": json.dumps(record)})
    partial.replace(path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of :func:`write_tensors`.

    Raises:
        ValueError: if the file is absent or not of that kind.
    """
    if not path.is_file():
        raise ValueError(f"{path}: a saved fit was expected, but there is no such file")
    try:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, json.loads((file.metadata() or {})["record"])
    except Exception as error:
        raise ValueError(f"{path}: not a file written by this library ({error})") from error


class Checkpoint:
    """A running fit on disk.

    Args:
        path: file to write.
        fingerprint: what the fit is of (model, data, method, seed), so that another fit is not resumed by mistake.
        every: iterations between two writes.
    """

    def __init__(self, path: Path, fingerprint: str, every: int = 20) -> None:
        self.path, self.fingerprint, self.every = Path(path), fingerprint, every

    def save(self, state: Any) -> None:
        """Write a frozen record of tensors, numbers and dicts of tensors."""
        tensors: dict[str, Tensor] = {}
        plain: dict[str, Any] = {}
        for name, value in state.__dict__.items():
            if isinstance(value, dict):
                plain[name] = {}  # filled again from the tensors
                tensors.update({f"{name}/{key}": part for key, part in value.items()})
            elif isinstance(value, Tensor):
                tensors[name] = value
            else:
                plain[name] = value
        write_tensors(self.path, tensors, {"fingerprint": self.fingerprint, "state": plain, "names": list(tensors)})

    def load(self, kind: type[State]) -> State | None:
        """The state on disk, or None if there is none.

        Raises:
            ValueError: if the file belongs to another fit.
        """
        if not self.path.exists():
            return None
        tensors, record = read_tensors(self.path)
        if record.get("fingerprint") != self.fingerprint:
            raise ValueError(
                f"checkpoint {self.path} belongs to another fit (model, data, method, start or seed differ): remove it or "
                "name another file"
            )
        fields: dict[str, Any] = dict(record["state"])
        for name in record["names"]:  # in the order of the program, as in the run that was interrupted
            value = tensors[name]
            head, _, key = name.partition("/")
            if key:
                fields.setdefault(head, {})[key] = value
            else:
                fields[name] = value
        if "params" in fields:
            fields["params"] = {name: torch.as_tensor(value) for name, value in fields["params"].items()}
        return kind(**fields)

"""Files that hold a running fit: safetensors and JSON, nothing that can execute."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from inference.base.hashing import plain_bytes

State = TypeVar("State")


def usable_path(owner: str, path: Any, is_folder: bool = False) -> Path:
    """Return a path that can be written, making its folders only; refuse any other.

    Args:
        owner: the argument, for the message.
        path: text or path; is_folder: whether a folder is meant.
    """
    what = "folder" if is_folder else "file"
    if not isinstance(path, str | os.PathLike) or isinstance(path, bytes):
        raise ValueError(f"{owner}: the path of a {what} was expected, got {path!r}")
    if "\0" in os.fspath(path) or not os.fspath(path):
        raise ValueError(f"{owner}: the path of a {what} was expected, got {os.fspath(path)!r}")
    usable = Path(path)
    try:
        if usable.exists() and usable.is_dir() != is_folder:
            raise ValueError(
                f"{owner} {usable}: a {what} was expected, got a"
                f" {'file' if is_folder else 'folder'}"
            )
        folder = usable if is_folder else usable.parent
        above = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not above.is_dir():
            raise ValueError(
                f"{owner}: the path of a {what} was expected, but {above} is a file, and inside a"
                f" file there can be no {what}"
            )
        if not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(
                f"{owner}: {usable} cannot be written: the folder {above} gives no permission"
            )
    except OSError as error:
        raise ValueError(
            f"{owner}: {usable} cannot be written: {error.strerror or error}"
        ) from error
    return usable


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Open a file to write that replaces ``path`` once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)  # what a killed process left, or a link to another file
        yield partial
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        number = _error_number(error)
        if number is None:
            raise
        raise OSError(
            number,
            f"the file could not be written ({os.strerror(number)}); what was there before is as"
            " it was",
            str(path),
        ) from error


def _error_number(error: BaseException) -> int | None:
    """System error number (errno) behind another error; None for none."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = (
        re.search(r"os error (\d+)|errno\W+(\d+)", str(error))
        if isinstance(error, Exception)
        else None
    )
    return int(match[1] or match[2]) if match else None


def write_whole(path: Path, content: str) -> None:
    """Write a text file, replacing the old one once the new one is whole.

    Raises:
        OSError: where the disk is full, or does not take the file; the old one is as it was.
    """
    with replacing(path) as partial:
        partial.write_text(content, encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write tensors and a JSON record as one safetensors file, with a checksum of both.

    The old file stays whole until the new one is, and what could not be written is removed.

    Raises:
        OSError: where the disk is full, or does not take the file; the old one is as it was.
    """
    contiguous = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    text = json.dumps(record)
    with replacing(path) as partial:
        save_file(
            contiguous,
            str(partial),
            metadata={"record": text, "checksum": _checksum(contiguous, text)},
        )


def read_tensors(
    path: Path, unsigned: tuple[Any, ...] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of :func:`write_tensors`.

    Args:
        unsigned: formats that had no checksum yet; a record without one must be of one of them.
    """
    if not path.is_file():
        raise ValueError(f"{path}: a saved fit was expected, but there is no such file")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            # cloned to an aligned address, on which the last digits of matrix products depend
            tensors = {name: file.get_tensor(name).clone() for name in list(file.keys())}
            text = metadata["record"]
            record = json.loads(text)
    except Exception as error:
        raise ValueError(f"{path}: not a file written by this library ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(
            f"{path}: not a file written by this library (its record is a {type(record).__name__})"
        )
    is_signed = "checksum" in metadata or record.get("format") not in unsigned
    if is_signed and metadata.get("checksum") != _checksum(tensors, text):
        raise ValueError(
            f"{path}: the file is damaged, or was changed after it was written: its contents do not"
            " match its checksum"
        )
    return tensors, record


def _checksum(tensors: Mapping[str, Tensor], record: str) -> str:
    digest = hashlib.sha256(record.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(
            f"|{name!r}{value.dtype}{tuple(value.shape)}|".encode("utf-8", "surrogatepass")
        )
        digest.update(plain_bytes(value))
    return digest.hexdigest()


def refuse_other(path: Path, record: Mapping[str, Any], fingerprint: str) -> None:
    """Refuse the checkpoint of another fit."""
    if record.get("fingerprint") != fingerprint:
        raise ValueError(
            f"checkpoint {path} belongs to another fit (model, data, method, start or seed differ):"
            " remove it or name another file"
        )


class Checkpoint:
    """Checkpoint file of a running fit.

    Args:
        path: file to write.
        fingerprint: what the fit is of (model, data, method, seed), so that another fit is not
            resumed by mistake.
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
                tensors.update(
                    {f"{name}/{key}": torch.as_tensor(part) for key, part in value.items()}
                )
            elif isinstance(value, Tensor):
                tensors[name] = value
            else:
                plain[name] = value
        write_tensors(
            self.path,
            tensors,
            {"fingerprint": self.fingerprint, "state": plain, "names": list(tensors)},
        )

    def load(self, kind: type[State]) -> State | None:
        """Load the state on disk; None if there is none.

        Raises:
            ValueError: if the file is damaged or belongs to another fit.
        """
        if not self.path.exists():
            return None
        tensors, record = read_tensors(self.path)
        refuse_other(self.path, record, self.fingerprint)
        try:
            fields: dict[str, Any] = dict(record["state"])
            # in the order of the program, as in the run that was interrupted
            for name in record["names"]:
                value = tensors[name]
                head, _, key = name.partition("/")
                if key:
                    fields.setdefault(head, {})[key] = value
                else:
                    fields[name] = value
            if "params" in fields:
                fields["params"] = {
                    name: torch.as_tensor(value) for name, value in fields["params"].items()
                }
            return kind(**fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"checkpoint {self.path} holds no running fit of this version: remove it or name"
                " another file"
            ) from error

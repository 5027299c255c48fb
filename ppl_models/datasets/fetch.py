"""Sources of data: a folder the user names, else a checked download in a cache."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np

FOLDER_VARIABLE = "PPL_MODELS_DATA"


def local_file(name: str) -> Path | None:
    """Path of a file in the folder ``PPL_MODELS_DATA`` names; None where it is not there."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise ValueError(f"{FOLDER_VARIABLE} must name a folder, got {folder!r}")
    path = Path(folder) / name
    return path if path.is_file() else None


def needed_file(name: str, otherwise: str) -> Path:
    """Path of a required file; see :func:`local_file`.

    ``otherwise`` says what to do without it.
    """
    path = local_file(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not in the folder {FOLDER_VARIABLE} names; {otherwise}")
    return path


def fetch(name: str, url: str, sha256: str) -> Path:
    """Fetch a file with a known digest: local folder, cache or download.

    The cache is the user's cache folder of the operating system, ``ppl_models``.

    Args:
        name: file name, in the folder and in the cache.
        url: where to download it from.
        sha256: 64 hexadecimal digits.
    """
    path = local_file(name)
    if path is not None:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != sha256:
            raise ValueError(
                f"{path}: sha256 {sha256} was expected, got {found}: not the published file, or"
                " damaged"
            )
        return path
    import pooch

    cache = pooch.os_cache("ppl_models")
    try:
        return Path(pooch.retrieve(url, known_hash=f"sha256:{sha256}", fname=name, path=cache))
    except OSError as error:  # no network, no such address, no space
        raise FileNotFoundError(
            f"{name} is not in the folder {FOLDER_VARIABLE} names"
            f" ({os.environ.get(FOLDER_VARIABLE) or 'not set'}) nor in {cache}, and {url} could not"
            f" be downloaded ({type(error).__name__}). Download it elsewhere and put it into a"
            f" folder, then set {FOLDER_VARIABLE} to that folder."
        ) from error


def prepared(name: str, source: str, arrays: tuple[str, ...], sha256: str) -> dict[str, np.ndarray]:
    """Load arrays of an ``.npz`` file that no stable address serves.

    It lies in the folder ``PPL_MODELS_DATA``.

    Args:
        name: file name.
        source: where the data come from, in words; part of the error message.
        arrays: names of the arrays.
        sha256: digest of their bytes, one after another.
    """
    path = local_file(name)
    if path is None:
        folder = os.environ.get(FOLDER_VARIABLE) or "not set"
        raise FileNotFoundError(
            f"{name} was expected in the folder that {FOLDER_VARIABLE} names ({folder}). Source:"
            f" {source}. It cannot be downloaded in this form: put it into a folder and set"
            f" {FOLDER_VARIABLE} to that folder."
        )
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {key: file[key] for key in arrays}
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(
            f"{path}: the arrays {', '.join(arrays)} were expected, got another file ({error})"
        ) from error
    for value in found.values():
        digest.update(np.ascontiguousarray(value).tobytes())
    if digest.hexdigest() != sha256:
        raise ValueError(
            f"{path}: content of sha256 {sha256} was expected, got {digest.hexdigest()}: damaged,"
            " or another"
        )
    return found

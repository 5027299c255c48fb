"""Where data come from: a folder the user names, else a checked download kept in a cache."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["FOLDER_VARIABLE", "fetch", "local_file"]

FOLDER_VARIABLE = "PPL_MODELS_DATA"


def local_file(name: str) -> Path | None:
    """The file of this name in the folder that the environment variable ``PPL_MODELS_DATA`` names, or None.

    Raises:
        ValueError: if the variable is set and names no folder.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise ValueError(f"{FOLDER_VARIABLE} must name a folder, got {folder!r}")
    path = Path(folder) / name
    return path if path.is_file() else None


def fetch(name: str, url: str, sha256: str) -> Path:
    """A file with a known digest: from the folder ``PPL_MODELS_DATA``, else from a cache, else downloaded into it.

    The cache is the user's cache folder of the operating system, ``ppl_models``.

    Args:
        name: file name, in the folder and in the cache.
        url: where to download it from.
        sha256: 64 hexadecimal digits.

    Raises:
        ValueError: if the file found or downloaded has another digest.
        FileNotFoundError: if it is nowhere and cannot be downloaded; the message says where to put it.
    """
    path = local_file(name)
    if path is not None:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != sha256:
            raise ValueError(f"{path}: sha256 {sha256} was expected, got {found}: not the published file, or damaged")
        return path
    import pooch

    cache = pooch.os_cache("ppl_models")
    try:
        return Path(pooch.retrieve(url, known_hash=f"sha256:{sha256}", fname=name, path=cache))
    except OSError as error:  # no network, no such address, no space
        raise FileNotFoundError(
            f"{name} is not in the folder {FOLDER_VARIABLE} names ({os.environ.get(FOLDER_VARIABLE) or 'not set'}) nor "
            f"in {cache}, and {url} could not be downloaded ({type(error).__name__}). Download it elsewhere and put it "
            f"into a folder, then set {FOLDER_VARIABLE} to that folder."
        ) from error

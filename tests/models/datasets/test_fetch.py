"""Files in the named folder, downloaded once, checked by digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppl_models.datasets.fetch import fetch, local_file


def test_fetch_looks_into_the_named_folder_first(tmp_path, monkeypatch):
    import hashlib

    (tmp_path / "small.txt").write_text("abc")
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    digest = hashlib.sha256(b"abc").hexdigest()
    assert fetch("small.txt", "https://example.invalid/small.txt", digest) == tmp_path / "small.txt"
    with pytest.raises(ValueError, match=f"sha256 {'0' * 64} was expected, got {digest}"):
        fetch("small.txt", "https://example.invalid/small.txt", "0" * 64)
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="PPL_MODELS_DATA must name a folder"):
        local_file("small.txt")
    monkeypatch.delenv("PPL_MODELS_DATA")
    assert local_file("small.txt") is None


def test_fetch_downloads_once_and_checks_the_digest(tmp_path, monkeypatch):
    import hashlib

    import pooch

    monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    calls = []

    def serve(url, output_file, downloader):
        calls.append(url)
        Path(output_file).write_bytes(b"abc")

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: serve)
    digest = hashlib.sha256(b"abc").hexdigest()
    for _ in range(2):
        path = fetch("small.txt", "https://example.invalid/small.txt", digest)
        assert path == tmp_path / "cache" / "ppl_models" / "small.txt"
        assert path.read_bytes() == b"abc"
    assert len(calls) == 1
    with pytest.raises(ValueError, match=r"(?i)sha256 hash of downloaded file"):
        fetch("other.txt", "https://example.invalid/other.txt", "0" * 64)

    def fail(url, output_file, downloader):
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: fail)
    with pytest.raises(
        FileNotFoundError,
        match=(
            r"absent.txt is not in the folder PPL_MODELS_DATA.*ConnectionError.*set PPL_MODELS_DATA"
        ),
    ):
        fetch("absent.txt", "https://example.invalid/absent.txt", digest)

"""MNIST's digits: the published counts where the file is at hand, and the preparation from tiny
archives.
"""

from __future__ import annotations

import numpy as np
import pytest

from ppl_models.datasets import load_mnist_digits, mnist as mnist_module
from ppl_models.datasets.mnist import _read_idx, _select


@pytest.mark.data("mnist_dde0123.npz")
def test_mnist_digits_have_the_published_counts():
    digits = load_mnist_digits()
    assert digits.items.shape == (20679, 264)
    assert digits.test_items.shape == (4157, 264)
    assert np.bincount(digits.labels).tolist() == [4932, 5678, 4968, 5101]
    assert np.bincount(digits.test_labels).tolist() == [980, 1135, 1032, 1010]
    assert digits.items.mean() == pytest.approx(0.4822, abs=5e-5)
    assert digits.test_items.mean() == pytest.approx(0.4852, abs=5e-5)
    # a constant prediction, and a majority for each digit
    assert np.maximum(digits.items.mean(0), 1 - digits.items.mean(0)).mean() == pytest.approx(
        0.6209, abs=5e-5
    )
    share = np.stack([digits.test_items[digits.test_labels == k].mean(0) for k in range(4)])
    agreement = np.maximum(share, 1 - share).mean(1)
    weights = np.bincount(digits.test_labels) / len(digits.test_labels)
    assert agreement @ weights == pytest.approx(0.7544, abs=5e-5)
    assert digits.item_names[0] == "r4c14"
    assert len(set(digits.item_names)) == 264


def test_mnist_is_prepared_from_its_archives(tmp_path, monkeypatch):
    """Tiny archives of the published format go through the same steps; the digest then refuses
    them.
    """
    import gzip

    rng = np.random.default_rng(0)
    contents = {}
    for name, num in (("train", 30), ("t10k", 12)):
        images, labels = (
            rng.integers(0, 5, (num, 28, 28), dtype=np.uint8),
            rng.integers(0, 10, num, dtype=np.uint8),
        )
        header = b"\x00\x00\x08\x03" + np.array([num, 28, 28], dtype=">i4").tobytes()
        contents[f"{name}-images-idx3-ubyte.gz"] = header + images.tobytes()
        contents[f"{name}-labels-idx1-ubyte.gz"] = (
            b"\x00\x00\x08\x01" + np.array([num], dtype=">i4").tobytes() + labels.tobytes()
        )
    for name, content in contents.items():
        (tmp_path / name).write_bytes(gzip.compress(content))
    images, labels = (
        _read_idx(tmp_path / f"train-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1")
    )
    pixels = np.array([(4, 14), (24, 11)])
    items, chosen = _select(images, labels, pixels)
    by_hand = [
        (lab, float(im[4, 14] >= 2), float(im[24, 11] >= 2))
        for d in range(4)
        for im, lab in zip(images, labels, strict=True)
        if lab == d
    ]
    assert np.array_equal(np.column_stack([chosen, items]), np.array(by_hand))

    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="train-images.*sha256 440f.* was expected"):
        load_mnist_digits()
    monkeypatch.setattr(mnist_module, "fetch", lambda name, url, digest: tmp_path / name)
    with pytest.raises(ValueError, match="differ from the published"):
        load_mnist_digits()
    np.savez(tmp_path / "mnist_dde0123.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match="prepared digits 0-3 of MNIST were expected"):
        load_mnist_digits()

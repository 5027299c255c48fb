"""MNIST: all images, and the digits 0 to 3 of a paper.

Source: Lee and Gu (2025, arXiv:2501.01414, section 6.1).
"""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppl_models.datasets.fetch import fetch, local_file
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    from pathlib import Path


PREPARED_FILE = "mnist_dde0123.npz"
IMAGE_FILES = ("mnist_train_part0.npz", "mnist_train_part1.npz", "mnist_test.npz")
IMAGES_SHA256 = (  # of images and labels, as _digest takes them
    "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16"
)
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
ARCHIVES = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
CONTENT_SHA256 = "a28ebdd0a67783b709a96ac503b03f99e6965e9f2722cc7ac3a3eec8364e8da6"
NUM_TRAIN_IMAGES = 50_000  # the first of 60,000
# image row -> first and last column kept, both counted from 0: the 264 pixels of the released files
PIXEL_SPANS = {
    4: (14, 16),
    5: (11, 19),
    6: (10, 20),
    7: (9, 21),
    8: (8, 21),
    9: (8, 21),
    10: (8, 21),
    11: (7, 21),
    12: (7, 21),
    13: (7, 21),
    14: (7, 21),
    15: (7, 21),
    16: (7, 21),
    17: (7, 21),
    18: (7, 20),
    19: (7, 20),
    20: (7, 20),
    21: (7, 19),
    22: (7, 18),
    23: (8, 17),
    24: (11, 14),
}


@shows_briefly
@dataclass(frozen=True, eq=False)
class MnistDigits:
    """Binary pixels of MNIST digits, training and test set.

    Args:
        items: (20679, 264) float64 of 0 and 1, sorted by digit.
        labels: (20679,) int64, digits 0 to 3; never used in fitting.
        test_items: (4157, 264).
        test_labels: (4157,).
        pixels: (264, 2) int64, row and column of each item on the 28 x 28 grid, counted from 0.
        image_shape: (28, 28), the full grid; only the pixels above were kept.
        item_names: ``"r4c14"`` for row 4 and column 14.
    """

    items: np.ndarray
    labels: np.ndarray
    test_items: np.ndarray
    test_labels: np.ndarray
    pixels: np.ndarray
    image_shape: tuple[int, int]
    item_names: tuple[str, ...]


def load_mnist_digits() -> MnistDigits:
    """Load the digits 0-3 of MNIST, 264 pixels, grey value >= 2.

    They are those among the first 50,000 training images and in the test set.

    The prepared file ``mnist_dde0123.npz`` is taken from the folder ``PPL_MODELS_DATA`` where it
    lies there; otherwise the four MNIST archives are fetched
    (:func:`~ppl_models.datasets.fetch.fetch`) and prepared in the same way.

    The paper says grey > 128 and pixels of mean above 40; the authors' released test matrix is grey
    >= 2 on these pixels, and that is what its numbers come from.

    Source: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits; selection
    by Lee and Gu.

    Raises:
        ValueError: if a file is not the expected one.
        FileNotFoundError: if the data are nowhere and cannot be downloaded.
    """
    path = local_file(PREPARED_FILE)
    pixels = np.array(
        [(r, c) for r, (low, high) in PIXEL_SPANS.items() for c in range(low, high + 1)],
        dtype=np.int64,
    )
    if path is not None:
        parts = _read_prepared(path, len(pixels))
    else:
        images, labels, test_images, test_labels = _read_archives()
        parts = (
            *_select(images[:NUM_TRAIN_IMAGES], labels[:NUM_TRAIN_IMAGES], pixels),
            *_select(test_images, test_labels, pixels),
        )
    if _digest(parts) != CONTENT_SHA256:
        raise ValueError(
            f"{path or MIRROR}: the images differ from the published digits 0-3 (their sha256 does)"
        )
    names = tuple(f"r{r}c{c}" for r, c in pixels)
    return MnistDigits(*parts, pixels, (28, 28), names)


@shows_briefly
@dataclass(frozen=True, eq=False)
class MnistImages:
    """All images of MNIST.

    Args:
        images: (60000, 28, 28) uint8, grey values 0 to 255; labels: (60000,) int64, the digits
            shown.
        test_images: (10000, 28, 28); test_labels: (10000,).
    """

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_mnist_images() -> MnistImages:
    """Load the 60,000 training and 10,000 test images of MNIST, in published order.

    The files ``mnist_train_part0.npz``, ``mnist_train_part1.npz`` and ``mnist_test.npz`` (``x`` and
    ``y``) are taken from the folder ``PPL_MODELS_DATA`` where they lie there; otherwise the four
    archives are fetched.

    Source: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits.

    Raises:
        ValueError: if a file is not the expected one.
        FileNotFoundError: if the data are nowhere and cannot be downloaded.
    """
    paths = [path for name in IMAGE_FILES if (path := local_file(name)) is not None]
    if len(paths) == len(IMAGE_FILES):
        first, second, test = (_read_images(path) for path in paths)
        parts = (
            np.concatenate([first[0], second[0]]),
            np.concatenate([first[1], second[1]]),
            *test,
        )
    else:
        parts = _read_archives()
    if _digest(parts) != IMAGES_SHA256:
        raise ValueError(
            f"{paths[0] if paths else MIRROR}: the images differ from the published ones (their"
            " sha256 does)"
        )
    images, labels, test_images, test_labels = parts
    return MnistImages(images, labels.astype(np.int64), test_images, test_labels.astype(np.int64))


def _read_images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["x"], file["y"]
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
            f"{path}: images of MNIST (x, y) were expected, got another file ({error})"
        ) from error


def _read_archives() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read images and labels of the training and of the test set, as published."""
    images, labels, test_images, test_labels = (
        _read_idx(fetch(name, MIRROR + name, digest)) for name, digest in ARCHIVES.items()
    )
    return images, labels, test_images, test_labels


def _select(
    images: np.ndarray, labels: np.ndarray, pixels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Digits 0-3 of images (N, 28, 28) as 0/1 rows over the given pixels, by label."""
    digits = np.flatnonzero(labels < 4)
    rows = digits[np.argsort(labels[digits], kind="stable")]
    chosen = images[rows][:, pixels[:, 0], pixels[:, 1]]
    return (chosen >= 2).astype(np.float64), labels[rows].astype(np.int64)


def _read_idx(path: Path) -> np.ndarray:
    """Read a gzipped idx file of unsigned bytes as an array."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(
            f"{path}: an idx file of unsigned bytes was expected, got the first bytes"
            f" {content[:4]!r}"
        )
    num_dims = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=num_dims, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_dims).reshape(shape)


def _read_prepared(
    path: Path, num_pixels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            packed = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
            items, test_items = (
                np.unpackbits(packed[name], axis=1)[:, :num_pixels].astype(np.float64)
                for name in ("x_train", "x_test")
            )
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
            f"{path}: the prepared digits 0-3 of MNIST were expected, got another file ({error})"
        ) from error
    return items, packed["y_train"].astype(np.int64), test_items, packed["y_test"].astype(np.int64)


def _digest(parts: tuple[np.ndarray, ...]) -> str:
    """Hash (sha256) of items and labels as unsigned bytes, in the order of the fields."""
    total = hashlib.sha256()
    for part in parts:
        total.update(np.ascontiguousarray(part, dtype=np.uint8).tobytes())
    return total.hexdigest()

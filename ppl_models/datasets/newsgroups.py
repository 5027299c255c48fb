"""Word counts of twelve of the 20 Newsgroups.

Words are chosen as by Lee and Gu (2025, arXiv:2501.01414, section 6.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppl_models.datasets.fetch import prepared
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed

FILE = "20news_dde653.npz"
CONTENT_SHA256 = "9ee3004c73acda9963ac64d807a6c0af01a7c5d6a6a9fb569f46480bd4f567fb"
SOURCE = (
    "20 Newsgroups, split by date (J. Rennie and K. Lang), counts of the 653 words of Lee and Gu"
)


@shows_briefly
@dataclass(frozen=True, eq=False)
class Newsgroups:
    """Word counts of documents, training and test set.

    Args:
        counts: (5881, 653) float64, whole numbers; one row a document.
        labels: (5881,) int64, index into ``groups``; never used in fitting.
        test_counts: (3320, 653).
        test_labels: (3320,).
        words: 653 names of the columns.
        groups: names of the twelve newsgroups that occur.
    """

    counts: np.ndarray
    labels: np.ndarray
    test_counts: np.ndarray
    test_labels: np.ndarray
    words: tuple[str, ...]
    groups: tuple[str, ...]


def load_newsgroups() -> Newsgroups:
    """Load word counts of documents on computers, recreation and science, 653 words.

    The file ``20news_dde653.npz`` must lie in the folder ``PPL_MODELS_DATA``. The test set has as
    many documents of each group as the published one; the training set has 5,881 rows against
    5,883, because the published rule for short and long documents is not legible to the last row.

    Raises:
        FileNotFoundError: if the file is not there.
        ValueError: if it is another file.
    """
    names = ("x_train", "y_train", "x_test", "y_test", "words", "groups")
    file = prepared(FILE, SOURCE, names, CONTENT_SHA256)
    present = np.unique(np.concatenate([file["y_train"], file["y_test"]]))
    labels, test_labels = (
        np.searchsorted(present, file[name]).astype(np.int64) for name in ("y_train", "y_test")
    )
    groups = tuple(str(name) for name in file["groups"][present])
    words = tuple(str(word) for word in file["words"])
    return Newsgroups(
        file["x_train"].astype(np.float64),
        labels,
        file["x_test"].astype(np.float64),
        test_labels,
        words,
        groups,
    )


def split_counts(
    counts: np.ndarray, share: float = 0.8, seed: Seed = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Split counts of words binomially: the first part with probability ``share``.

    Each word of each document goes to one of two parts.

    Args:
        counts: (N, J), whole numbers.
        share: in (0, 1); under a Poisson model the first part then has exposure ``share``.
        seed: of the split.

    Raises:
        ValueError: for counts that are negative or fractional, or a share outside (0, 1).
    """
    seed = as_seed("split_counts", seed)
    if not 0 < share < 1:
        raise ValueError(f"split_counts: share must lie in (0, 1), got {share!r}")
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim != 2 or not (
        np.isfinite(counts).all() and (counts >= 0).all() and (counts == counts.round()).all()
    ):
        raise ValueError("split_counts: counts must be a matrix of whole numbers, 0 or more")
    first = np.random.default_rng(seed).binomial(counts.astype(np.int64), share).astype(np.float64)
    return first, counts - first

"""Tatsuoka's fraction subtraction: answers of middle school students."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppl_models.datasets.fetch import fetch, local_file, prepared
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    import pandas as pd


PREPARED_FILE = "fraction_subtraction.npz"
ARRAYS = ("fracsub_x", "fracsub_q", "fracsub15_x", "fracsub15_q")
CONTENT_SHA256 = "d7749edb4179f88ff6877638c28dd4d8198ca68eb09eb61246870cacb4848900"
SOURCE = (
    "Tatsuoka's fraction subtraction, fraction.subtraction.data and data.fraction1 of the R package"
    " CDM, GPL (>= 2)"
)
TEXT_FILE = "fractionsdata.txt"
TEXT_URL = "https://raw.githubusercontent.com/tmsalab/edmdata/e89385a70ae77138d1ccfa335a0c9e21abb7d4ff/data-raw/fraction/fractionsdata.txt"
TEXT_SHA256 = "84460fe74589fc6b661c966edc99173b8d1253ec6f5d36a444bef6bdab2de80b"
ITEMS = (
    "5/3 - 3/4",
    "3/4 - 3/8",
    "5/6 - 1/9",
    "3 1/2 - 2 3/2",
    "4 3/5 - 3 4/10",
    "6/7 - 4/7",
    "3 - 2 1/5",
    "2/3 - 2/3",
    "3 7/8 - 2",
    "4 4/12 - 2 7/12",
    "4 1/3 - 2 4/3",
    "1 1/8 - 1/8",
    "3 3/8 - 2 5/6",
    "3 4/5 - 3 2/5",
    "2 - 1/3",
    "4 5/7 - 1 4/7",
    "7 3/5 - 4/5",
    "4 1/10 - 2 8/10",
    "4 - 1 4/3",
    "4 1/3 - 1 5/3",
)
# number of attributes: their names, and for each item those it asks for, counted from 1
EIGHT = (
    (
        "convert whole number",
        "separate whole number",
        "simplify first",
        "common denominator",
        "borrow from whole",
        "column borrow",
        "subtract numerators",
        "reduce answer",
    ),
    "467 47 47 2357 2478 7 127 7 2 2578 257 78 2457 27 17 27 257 2567 12357 2357",
)
FIVE = (
    (
        "basic subtraction",
        "simplify or reduce",
        "separate whole number",
        "borrow one",
        "convert whole number",
    ),
    "1 1234 1 12345 3 1234 1234 12 13 1345 13 134 1234 12345 1234",
)
KEPT_OF_FIVE = (
    1,
    3,
    5,
    6,
    8,
    9,
    10,
    11,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
)  # items of the shorter version


@shows_briefly
@dataclass(frozen=True, eq=False)
class FractionSubtraction:
    """Answers of 536 students, and the Q-matrix of the items.

    Args:
        correct: (536, J) float64, 1 for a right answer.
        q_matrix: (J, K) int64, 1 where an item asks for a skill.
        items: J names, the tasks themselves.
        skills: K names.
    """

    correct: np.ndarray
    q_matrix: np.ndarray
    items: tuple[str, ...]
    skills: tuple[str, ...]

    @property
    def answers(self) -> pd.DataFrame:
        """Data frame of ``correct`` with the names of the items."""
        import pandas as pd

        return pd.DataFrame(self.correct, columns=list(self.items))

    @property
    def q_frame(self) -> pd.DataFrame:
        """Q-matrix with the names of items and skills.

        As :class:`~ppl_models.LatentAttributeModel` takes it.
        """
        import pandas as pd

        return pd.DataFrame(self.q_matrix, index=list(self.items), columns=list(self.skills))


def load_fraction_subtraction(num_skills: int = 8) -> FractionSubtraction:
    """Load all 20 items with eight skills, or 15 of them with five.

    From the file ``fraction_subtraction.npz`` in the folder ``PPL_MODELS_DATA``, else downloaded
    once from the sources of the R package edmdata (MIT), checked and cached; both hold the same
    answers in the same order as the R package CDM (GPL, version 2 or later).

    Args:
        num_skills: 8 for the Q-matrix of J. de la Torre and J. A. Douglas (2004),
            doi:10.1007/BF02295640, which they had from C. Tatsuoka (2002),
            doi:10.1111/1467-9876.00272; 5 for that of J. de la Torre (2009),
            doi:10.3102/1076998607309474. Answers: K. K. Tatsuoka (1984).

    Raises:
        ValueError: for another number of skills, or a file that is another or damaged.
        FileNotFoundError: if the answers are nowhere and cannot be downloaded.
    """
    if num_skills not in (5, 8) or isinstance(num_skills, bool):
        raise ValueError(
            "load_fraction_subtraction: num_skills must be 8 (20 items) or 5 (15 items), got"
            f" {num_skills!r}"
        )
    skills, asked = EIGHT if num_skills == 8 else FIVE
    kept = range(len(ITEMS)) if num_skills == 8 else KEPT_OF_FIVE
    matrix = np.array(
        [[str(k + 1) in own for k in range(num_skills)] for own in asked.split()], dtype=np.int64
    )
    return FractionSubtraction(
        _answers()[:, list(kept)], matrix, tuple(ITEMS[j] for j in kept), skills
    )


def _answers() -> np.ndarray:
    """Right and wrong answers to all items, (536, 20)."""
    if local_file(PREPARED_FILE) is not None:
        return prepared(PREPARED_FILE, SOURCE, ARRAYS, CONTENT_SHA256)["fracsub_x"].astype(
            np.float64
        )
    return np.loadtxt(fetch(TEXT_FILE, TEXT_URL, TEXT_SHA256), dtype=np.float64)

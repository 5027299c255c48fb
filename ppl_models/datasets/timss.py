"""Answers and response times of students in TIMSS 2019.

Chosen as by Lee and Gu (2025, arXiv:2501.01414, section 6.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppl_models.datasets.fetch import prepared
from ppl_models.parts.repr import shows_briefly

JOINT_FILE, TIME_FILE = "timss2019_dde.npz", "timss2019_time.npz"
JOINT_SHA256 = "ea92e80a43b3cd86579942f57d51ca89369539ab1ea949af40fe43535941c04d"
TIME_SHA256 = "939a081148c7c55f7b425c5f2445e6eb6e6583b470670b3e8cb964bcf3104aae"
SOURCE = "TIMSS 2019, grade 8 mathematics (IEA), 29 items as prepared by Lee and Gu"
SKILLS = (
    "Number",
    "Algebra",
    "Geometry",
    "Data and Probability",
    "Knowing",
    "Applying",
    "Reasoning",
)
SURVEY_ANSWERS = ("agree a lot", "agree a little", "disagree a little", "disagree a lot")


@shows_briefly
@dataclass(frozen=True, eq=False)
class ResponseTimes:
    """Answers and response times of students on items, with their Q-matrix.

    Args:
        correct: (N, 29) float64, 1 for a right answer; None where only times are at hand.
        seconds: (N, 29) float64, time on the screen, NaN where missing.
        q_matrix: (29, 7) int64, 1 where an item asks for a skill.
        skills: names of the seven skills: four of content, then three of process.
        survey: (N,) float64, 1 to 4, answer to "mathematics is one of my favourite subjects"
            (``SURVEY_ANSWERS``), NaN where missing; None where not at hand.
    """

    correct: np.ndarray | None
    seconds: np.ndarray
    q_matrix: np.ndarray
    skills: tuple[str, ...]
    survey: np.ndarray | None

    @property
    def log_seconds(self) -> np.ndarray:
        """Log response times, (N, 29)."""
        return np.log(self.seconds)


def load_timss() -> ResponseTimes:
    """Load the 435 students without gaps: answers, times and one survey question.

    File ``timss2019_dde.npz``.

    Raises:
        FileNotFoundError: if the file is not in the folder ``PPL_MODELS_DATA``.
        ValueError: if it is another file.
    """
    file = prepared(
        JOINT_FILE, SOURCE, ("correct", "log_time", "Q", "survey", "skills"), JOINT_SHA256
    )
    skills = tuple(str(skill) for skill in file["skills"])
    survey = np.where(np.isin(file["survey"], (1, 2, 3, 4)), file["survey"], np.nan)
    return ResponseTimes(
        file["correct"].astype(np.float64),
        np.exp(file["log_time"]),
        file["Q"].astype(np.int64),
        skills,
        survey,
    )


def load_response_times() -> ResponseTimes:
    """Load all 620 students with times, 323 of them missing.

    File ``timss2019_time.npz``; errors as :func:`load_timss`.
    """
    file = prepared(TIME_FILE, SOURCE, ("seconds", "Q"), TIME_SHA256)
    return ResponseTimes(
        None, file["seconds"].astype(np.float64), file["Q"].astype(np.int64), SKILLS, None
    )

"""Two hundred cases of the attack in the usual tests, a thousand with the slow ones; ``make fuzz
N=20000`` draws new ones.
"""

from __future__ import annotations

import pytest
from fuzz.attacks import block

USUAL, CASES, SIZE = 200, 1000, 25


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first < USUAL else pytest.mark.slow)
        for first in range(0, CASES, SIZE)
    ],
)
def test_every_case_ends_in_an_answer_or_in_words(first):
    found = [
        (seed, verdict)
        for seed, _, verdict in block(range(first, first + SIZE))
        if verdict.is_defect
    ]
    assert not found, "\n".join(
        f"seed {seed} ({verdict.kind}): {verdict.word}; again: PYTHONPATH=tests python -m fuzz"
        f" --seed {seed}\n{verdict.text}"
        for seed, verdict in found
    )

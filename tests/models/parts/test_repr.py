"""Names and counts in a sentence."""

from __future__ import annotations

from ppl_models.parts.repr import counted, listed


def test_the_first_names_of_many() -> None:
    assert listed([]) == ""
    assert listed(map(str, range(8))) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert listed(range(2005), 5) == "0, 1, 2, 3, 4 and 2,000 more"


def test_counts() -> None:
    assert counted(1, "row") == "1 row"
    assert counted(2000, "row") == "2,000 rows"
    assert counted(0, "analysis", "analyses") == "0 analyses"

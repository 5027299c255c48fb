"""The base of what engines ask of a model stays small."""

from __future__ import annotations

from inference.base.structure import Structure

MOST_MEMBERS = 40


def test_public_members_are_few() -> None:
    members = {*vars(Structure), *Structure.__annotations__, "model"}
    assert len([name for name in members if not name.startswith("_")]) <= MOST_MEMBERS

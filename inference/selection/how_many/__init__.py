"""How many components, of which law, and with how much confidence."""

from inference.selection.how_many.answer import HowMany
from inference.selection.how_many.groups import Groups
from inference.selection.how_many.groups_answer import HowManyGroups
from inference.selection.how_many.laws import Law, laws_of
from inference.selection.how_many.rule import select_components
from inference.selection.how_many.visible import detectable_variance, smallest_share

__all__ = [
    "Groups",
    "HowMany",
    "HowManyGroups",
    "Law",
    "laws_of",
    "select_components",
    "detectable_variance",
    "smallest_share",
]

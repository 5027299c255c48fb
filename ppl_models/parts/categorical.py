r"""Items that are one of several categories: a response family whose statistic is a vector.

.. math:: \log P(x_j = h \mid \eta_j) = \eta_{jh} - \log \sum_{h'} e^{\eta_{jh'}}, \qquad T(x_j) = (1[x_j = 0], \dots, 1[x_j = C_j - 1]),

with a predictor of :math:`C_j` entries an item. The statistics of all items stand side by side, :math:`P = \sum_j C_j` of them, so that the
log-density of all rows against all classes stays one matrix product, :math:`(N, P) (P, K)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.frames import MAX_LEVELS, levels_of_frame
from ppl_models.parts.probability_tables import Segments, segments_of
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.validation import check_number, check_size

__all__ = ["Categorical", "Ordinal", "joined", "log_tables", "table_concentrations"]


@dataclass(frozen=True)
class Categorical(ResponseFamily):
    r"""x in {0, ..., C - 1}, categories without an order; in a :class:`~ppl_models.Mixture` each class has a table of their probabilities.

    The prior of a table is Dirichlet with all entries ``concentration``. A little above 1 keeps estimates off zero, as the default does; for
    intervals of probabilities near zero or one more weight is better, such as 1 + 1 / (C K) (Galindo Garre and Vermunt 2006,
    doi:10.2333/bhmk.33.43).

    Data are codes 0, ..., C - 1 (NaN where missing), or, where the categories have names, columns of a data frame that hold these names.

    Args:
        num_categories: C of every item, or one number an item; or the names of the categories, as ``levels``.
        levels: the names, ``("no", "yes")`` of all items alike, or one such tuple an item; None for codes.
        concentration: of the Dirichlet prior of a table, at least 1.

    Raises:
        ValueError: if a number is no positive integer, names are no strings, come twice or are another number, or the concentration is below 1.
    """

    num_categories: Any  # int, or one an item
    levels: tuple[Any, ...] | None = None
    concentration: float = 1.001

    def __post_init__(self) -> None:
        owner = type(self).__name__
        number, levels = _checked(owner, self.num_categories, self.levels)
        object.__setattr__(self, "num_categories", number)
        object.__setattr__(self, "levels", levels)
        check_number(owner, "concentration", self.concentration, "be at least 1 and finite", least=1)

    @classmethod
    def from_frame(cls, data: Any, max_levels: int = MAX_LEVELS) -> Self:
        """The family of the columns of a data frame, with the names that they hold as levels.

        Whole numbers are in their order, with themselves as names (so codes may begin at 1), text in that of the alphabet, and a pandas
        categorical keeps its own.

        Args:
            data: a frame of any library whose columns hold text, categories, booleans or whole numbers.
            max_levels: a column with more different values is refused.

        Raises:
            ValueError: naming a column that holds something else, nothing, or too many different values.

        Warns:
            UnusedLevelWarning: naming levels of a pandas categorical that no row has, which are dropped.
        """
        return cls(levels_of_frame(cls.__name__, data, max_levels, ordered=issubclass(cls, Ordinal)))

    def sizes(self, num_items: int) -> tuple[int, ...]:
        """Categories of each item, (J,)."""
        if isinstance(self.num_categories, int):
            return (self.num_categories,) * num_items
        own: tuple[int, ...] = self.num_categories
        return own

    def names(self, num_items: int) -> tuple[tuple[str, ...], ...]:
        """Names of the categories of each item: the levels, or the codes."""
        if self.levels is None:
            return tuple(tuple(map(str, range(size))) for size in self.sizes(num_items))
        return self.levels if isinstance(self.levels[0], tuple) else (self.levels,) * num_items  # one tuple an item, or one for all

    def segments(self, num_items: int, device: torch.device) -> Segments:
        """Where each item stands in the vector of predictors."""
        return segments_of(self.sizes(num_items), device)

    # ---------------------------------------------------------------- as a family

    @property
    def own_items(self) -> int | None:
        return None if isinstance(self.num_categories, int) else len(self.num_categories)

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        if len(self.sizes(num_items)) != num_items:
            raise ValueError(f"{type(self).__name__}: categories of {len(self.sizes(num_items))} items are given, but there are num_items = {num_items} columns")
        return super().blocks(num_items)

    def num_predictors(self, num_items: int) -> int:
        return sum(self.sizes(num_items))

    def num_items(self, num_predictors: int) -> int:
        return num_predictors // self.num_categories if isinstance(self.num_categories, int) else len(self.num_categories)

    def num_categories_of(self, num_items: int) -> tuple[int, ...]:
        return self.sizes(num_items)

    def category_names(self, num_items: int) -> dict[int, tuple[str, ...]]:
        return dict(enumerate(self.names(num_items)))

    def spread(self, values: Tensor) -> Tensor:
        return self.segments(values.shape[-1], values.device).spread(values)

    def statistic(self, x: Tensor) -> Tensor:
        own = self.segments(x.shape[-1], x.device)
        return (own.spread(x) == own.code).to(x)

    def log_partition(self, eta: Tensor) -> Tensor:
        return self._of(eta).log_total(eta)

    def mean(self, eta: Tensor) -> Tensor:
        own = self._of(eta)
        return (eta - own.spread(own.log_total(eta))).exp()

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """The mean code, which says something only of categories in an order."""
        own = self._of(eta)
        return own.total(self.mean(eta) * own.code)

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        padded = self._of(eta).padded(eta, -torch.inf)
        noise = -torch.rand_like(padded).clamp(min=torch.finfo(eta.dtype).tiny).log()
        return (padded - noise.clamp(min=torch.finfo(eta.dtype).tiny).log()).argmax(-1).to(eta)

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return mean.clamp(min=epsilon).log()

    def item(self, place: int) -> Categorical:
        own = self.names(place + 1)[place] if self.levels is not None else None
        return replace(self, num_categories=self.sizes(place + 1)[place], levels=own)

    def problem(self, x: Tensor) -> str | None:
        last, owner = self.sizes(1)[0] - 1, type(self).__name__
        bad = x[(x < 0) | (x != x.round()) | (x > last)]
        if not len(bad):
            return None
        return (
            f"{owner} items of {last + 1} categories are codes 0 to {last}, found {bad[0].item():g}; for codes that begin elsewhere, or names, give a data "
            f"frame, and {owner}.from_frame(data)"
        )

    def _of(self, eta: Tensor) -> Segments:
        return self.segments(self.num_items(eta.shape[-1]), eta.device)


@dataclass(frozen=True)
class Ordinal(Categorical):
    """Categories in an order, from the lowest to the highest: codes 0, ..., C - 1, or names given in that order.

    In a :class:`~ppl_models.Mixture` each class has a table of probabilities of its own, as for :class:`Categorical`: the order lays no condition on it. It
    gives the mean code of a row a meaning, and :meth:`from_frame` refuses columns of text, whose order nobody knows, and ordered pandas categoricals
    with a level that no row has, which leaves a gap.

    Args, Raises: as :class:`Categorical`.
    """


def _checked(owner: str, number: Any, levels: Any) -> tuple[int | tuple[int, ...], tuple[Any, ...] | None]:
    """Numbers of categories and their names as integers and tuples of strings."""
    number, levels = _plain(number), _plain(levels)
    if levels is None and isinstance(number, tuple) and number and not isinstance(number[0], int):
        number, levels = None, number
    if levels is not None:
        alike = isinstance(levels, tuple) and all(isinstance(name, str) for name in levels)
        each = levels if isinstance(levels, tuple) and not alike else (levels,)
        for names in each:
            if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
                raise ValueError(f"{owner}: levels must be names of categories, such as ('no', 'yes'), all different, or one such tuple an item, got {names!r}")
        sizes = tuple(len(names) for names in each)
        own = sizes[0] if alike else sizes
        if number is not None and number not in (own, *([sizes[0]] if len({*sizes}) == 1 else [])):
            raise ValueError(f"{owner}: num_categories = {number!r} does not go with levels, which name {own!r}")
        return own, levels
    for size in number if isinstance(number, tuple) and number else (number,):
        check_size(owner, "num_categories", size, wanted="a positive integer, or a tuple with one an item")
    return number, None


def _plain(value: Any) -> Any:
    """Lists, arrays and tuples as tuples, and their integers as Python's."""
    if isinstance(value, np.ndarray | np.integer | Tensor):
        value = value.tolist()
    return tuple(_plain(part) for part in value) if isinstance(value, list | tuple) else value


def log_tables(probabilities: Tensor) -> Tensor:
    """Logarithms of probabilities that may be zero, finite: a statistic of zero times minus infinity is no number."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def joined(family: ResponseFamily, num_items: int, predictors: Tensor | None, probabilities: Tensor | None) -> Tensor:
    """The whole predictor vector (..., P) of classes: the log of ``probabilities`` at items with tables, ``predictors`` at all others.

    Args:
        predictors: (..., number of other items); probabilities: (..., sum of categories); None where there are no such items.
    """
    if probabilities is None or predictors is None:
        whole = predictors if probabilities is None else log_tables(probabilities)
        assert whole is not None  # every item has one or the other
        return whole
    logs, parts, place, entry = log_tables(probabilities), [], 0, 0
    for block, columns, _ in family.blocks(num_items):
        size = columns.stop - columns.start
        width = sum(block.num_categories_of(size))
        parts.append(logs[..., entry : entry + width] if width else predictors[..., place : place + size])
        place, entry = place + (0 if width else size), entry + width
    return torch.cat(parts, -1)


def table_concentrations(family: ResponseFamily, num_items: int) -> list[float]:
    """Of the Dirichlet prior of every entry of the tables, (P,), item after item."""
    out: list[float] = []
    for block, columns, _ in family.blocks(num_items):
        if isinstance(block, Categorical):
            out += [block.concentration] * block.num_predictors(columns.stop - columns.start)
    return out

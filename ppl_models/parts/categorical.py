r"""Items that are one of several categories: a response family whose statistic is a vector.

.. math::

    \log P(x_j = h \mid \eta_j) = \eta_{jh} - \log \sum_{h'} e^{\eta_{jh'}}, \qquad T(x_j) = (1[x_j
    = 0], \dots, 1[x_j = C_j - 1]),

with a predictor of :math:`C_j` entries an item. The statistics of all items stand side by side,
:math:`P = \sum_j C_j` of them, so that the log-density of all rows against all classes stays one
matrix product, :math:`(N, P) (P, K)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import torch
from torch import Tensor

from ppl_models.data.frames import MAX_LEVELS, levels_of_frame
from ppl_models.parts.probability_tables import Segments, segments_of
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.validation import check_number, check_size, plain_fields

RANK_TOLERANCE = 1e-10  # of a variance of indicators: below, a category is not there
MANY_CATEGORIES = 8  # an item on average, from which entries are looked up


@dataclass(frozen=True)
class Categorical(ResponseFamily):
    """Unordered categories x in {0, ..., C - 1}.

    In a :class:`~ppl_models.Mixture` or a :class:`~ppl_models.HiddenMarkov` each class has a table
    of their probabilities; in a :class:`~ppl_models.DeepDiscreteEncoder` the log-odds of each
    category against the first are linear in the latents.

    The prior of a table is Dirichlet with all entries ``concentration``. A little above 1 keeps
    estimates off zero, as the default does; for intervals of probabilities near zero or one more
    weight is better, such as 1 + 1 / (C K) (Galindo Garre and Vermunt 2006,
    doi:10.2333/bhmk.33.43).

    Data are codes 0, ..., C - 1 (NaN where missing), or, where the categories have names, columns
    of a data frame that hold these names.

    Args:
        num_categories: C of every item, or one number an item; or the names of the categories, as
            ``levels``.
        levels: the names, ``("no", "yes")`` of all items alike, or one such tuple an item; None for
            codes.
        concentration: of the Dirichlet prior of a table, at least 1.

    Raises:
        ValueError: if a number is no positive integer, names are no strings, come twice or are
            another number, or the concentration is below 1.
    """

    num_categories: Any = None  # int, or one an item
    levels: tuple[Any, ...] | None = None
    concentration: float = 1.001

    def __post_init__(self) -> None:
        plain_fields(self)
        owner = type(self).__name__
        number, levels = _checked(owner, self.num_categories, self.levels)
        object.__setattr__(self, "num_categories", number)
        object.__setattr__(self, "levels", levels)
        check_number(
            owner, "concentration", self.concentration, "be at least 1 and finite", least=1
        )

    @classmethod
    def from_frame(cls, data: Any, max_levels: int = MAX_LEVELS) -> Self:
        """Family of the columns of a data frame, the names they hold as levels.

        Whole numbers are in their order, with themselves as names (so codes may begin at 1), text
        in that of the alphabet, and a pandas categorical keeps its own.

        Args:
            data: a frame of any library whose columns hold text, categories, booleans or whole
                numbers.
            max_levels: a column with more different values is refused.

        Raises:
            ValueError: naming a column that holds something else, nothing, or too many different
                values.

        Warns:
            UnusedLevelWarning: naming levels of a pandas categorical that no row has, which are
                dropped.
        """
        return cls(levels_of_frame(cls.__name__, data, max_levels))

    def sizes(self, num_items: int) -> tuple[int, ...]:
        """Number of categories of each item, (J,)."""
        if isinstance(self.num_categories, int):
            return (self.num_categories,) * num_items
        return self.num_categories

    def names(self, num_items: int) -> tuple[tuple[str, ...], ...]:
        """Names of the categories of each item: the levels, or the codes."""
        if self.levels is None:
            return tuple(tuple(map(str, range(size))) for size in self.sizes(num_items))
        # one tuple an item, or one for all
        return self.levels if isinstance(self.levels[0], tuple) else (self.levels,) * num_items

    def segments(self, num_items: int, device: torch.device) -> Segments:
        """Segments of the predictor vector, one an item."""
        return segments_of(self.sizes(num_items), device)

    # ---------------------------------------------------------------- as a family

    @property
    def own_items(self) -> int | None:
        return None if isinstance(self.num_categories, int) else len(self.num_categories)

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        if len(self.sizes(num_items)) != num_items:
            raise ValueError(
                f"{type(self).__name__}: categories of {len(self.sizes(num_items))} items are"
                f" given, but there are num_items = {num_items} columns"
            )
        return super().blocks(num_items)

    def num_predictors(self, num_items: int) -> int:
        return sum(self.sizes(num_items))

    def num_items(self, num_predictors: int) -> int:
        if isinstance(self.num_categories, int):
            return num_predictors // self.num_categories
        return len(self.num_categories)

    def num_categories_of(self, num_items: int) -> tuple[int, ...]:
        return self.sizes(num_items)

    def category_names(self, num_items: int) -> dict[int, tuple[str, ...]]:
        return dict(enumerate(self.names(num_items)))

    def num_linear(self, num_items: int) -> int:
        return sum(size - 1 for size in self.sizes(num_items))

    def whole(self, linear: Tensor, thresholds: Tensor | None) -> Tensor:
        """Log-odds of all categories against the first, the first's zeros among them."""
        if isinstance(self.num_categories, int):
            items = linear.shape[-1] // (self.num_categories - 1)
        else:
            items = len(self.num_categories)
        own = self.segments(items, linear.device)
        eta = linear.new_zeros(*linear.shape[:-1], own.num_entries)
        eta[..., own.code > 0] = linear
        return eta

    def log_probabilities_of_item(self, linear: Tensor, thresholds: Tensor) -> Tensor:
        r"""Log-probabilities of the categories of items of one size, (..., C).

        Args:
            linear: (..., r), the C - 1 log-odds of the categories against the first; of items with
                a link their one location.
            thresholds: (..., g), those of items with a link, C - 2; else none.
        """
        return torch.nn.functional.pad(linear, (1, 0)).log_softmax(-1)

    def slopes_of_log_probabilities(self, linear: Tensor, thresholds: Tensor) -> Tensor:
        """Derivatives of the log-probabilities by predictors and thresholds, (..., C, r + g)."""
        chances = self.log_probabilities_of_item(linear, thresholds).exp()
        return torch.eye(chances.shape[-1]).to(chances)[:, 1:] - chances[..., None, 1:]

    def log_chance_of(self, code: Tensor, linear: Tensor, thresholds: Tensor) -> Tensor:
        """Log-probabilities of the answers of n items of one size, (R, n, N).

        Args:
            code: (n, N) of whole numbers; linear: (R, n, r, N); thresholds: (R, n, g).
        """
        # (R, n, N, C)
        log_probabilities = self.log_probabilities_of_item(linear.mT, thresholds.unsqueeze(-2))
        return log_probabilities.gather(
            -1, code.long().expand(log_probabilities.shape[:-1]).unsqueeze(-1)
        ).squeeze(-1)

    def of_chances(self, chances: Tensor) -> tuple[Tensor, Tensor]:
        """Linear predictors and thresholds from positive probabilities (..., P)."""
        own = self._of(chances)
        log = chances.log()
        return (log - own.spread(log[..., own.code == 0]))[..., own.code > 0], chances[..., :0]

    def indicators(self, x: Tensor) -> Tensor:
        """Indicators of all categories but the first, NaN where ``x`` (..., J) is."""
        own = self.segments(x.shape[-1], x.device)
        shown = self.statistic(x.nan_to_num(0.0)).masked_fill(own.spread(x.isnan()), torch.nan)
        return shown[..., own.code > 0]

    def scores(self, x: Tensor) -> Tensor:
        r"""Scores for a start, (N, :meth:`num_linear`), NaN where ``x`` (N, J) is.

        Their correlations show the items that depend on the same latents.

        The indicators of an item's categories but the first, centred and times
        :math:`\Sigma^{-1/2}`, :math:`\Sigma = \mathrm{diag}(p) - p p^\top`: as in multiple
        correspondence analysis, columns of one item do not go together.
        """
        out, place = self.indicators(x), 0
        for size in self.sizes(x.shape[-1]):
            own = out[..., place : place + size - 1]
            share = own.nanmean(0)
            values, vectors = torch.linalg.eigh(share.diag() - torch.outer(share, share))
            weights = torch.where(values > RANK_TOLERANCE, values, torch.inf).rsqrt()
            out[..., place : place + size - 1] = (own - share) @ (vectors * weights) @ vectors.mT
            place += size - 1
        return out

    def spread(self, values: Tensor) -> Tensor:
        return self.segments(values.shape[-1], values.device).spread(values)

    def statistic(self, x: Tensor) -> Tensor:
        own = self.segments(x.shape[-1], x.device)
        return (own.spread(x) == own.code).to(x)

    def places(self, x: Tensor) -> Tensor | None:
        """Positions of the answered categories among the statistics, as ``x``.

        None where there are so few that products with one-hot vectors are as quick.

        Args:
            x: (..., J) without missing entries.
        """
        sizes = self.sizes(x.shape[-1])
        if sum(sizes) < MANY_CATEGORIES * len(sizes):
            return None
        own = torch.tensor(sizes, device=x.device)
        return x.long() + (own.cumsum(0) - own)

    def inner(self, x: Tensor, mask: Tensor | None, natural: Tensor) -> Tensor:
        """Inner products of statistics and parameters; a look-up where categories are many."""
        places, ndim = self.places(x), max(x.dim(), natural.dim())
        left, right = ((1,) * (ndim - one.dim()) + one.shape for one in (x, natural))
        rows, columns = ([d for d in range(ndim - 1) if shape[d] > 1] for shape in (left, right))
        if places is None or set(rows) & set(columns):
            return super().inner(x, mask, natural)
        # (P, C), C of the batch dims: neighbours in memory are looked up quickly
        table = natural.reshape(-1, natural.shape[-1]).mT.contiguous()
        seen = None if mask is None else mask.reshape(-1, x.shape[-1])  # (N, J)
        total: Tensor | float = 0.0
        for j, place in enumerate(places.reshape(-1, x.shape[-1]).unbind(-1)):
            own = table.index_select(0, place)  # (N, C)
            total = total + (own if seen is None else own * seen[:, j : j + 1])
        assert isinstance(total, Tensor)
        others = [d for d in range(ndim - 1) if d not in rows and d not in columns]
        order = [*rows, *columns, *others]
        shape = [max(left[d], right[d]) for d in order]
        return total.reshape(shape).permute([order.index(d) for d in range(ndim - 1)])

    def log_partition(self, eta: Tensor) -> Tensor:
        return self._of(eta).log_total(eta)

    def mean(self, eta: Tensor) -> Tensor:
        own = self._of(eta)
        return (eta - own.spread(own.log_total(eta))).exp()

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        """Mean code, meaningful only for categories in an order."""
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
            f"{owner} items of {last + 1} categories are codes 0 to {last}, found"
            f" {bad[0].item():g}; for codes that begin elsewhere, or names, give a data frame, and"
            f" {owner}.from_frame(data)"
        )

    def _of(self, eta: Tensor) -> Segments:
        return self.segments(self.num_items(eta.shape[-1]), eta.device)


@dataclass(frozen=True)
class Ordinal(Categorical):
    r"""Ordered categories, from the lowest to the highest.

    Codes 0, ..., C - 1, or names given in that order.

    In a :class:`~ppl_models.Mixture` each class has, without a ``link``, a table of probabilities
    of its own, as for :class:`Categorical`: the order lays no condition on it. With a link each
    class k has one location :math:`\eta_{kj}` an item, and what lies between the categories is the
    same in all classes: fewer parameters, K + C - 2 an item in the place of K (C - 1), and classes
    that stand in an order on every item. Larger locations, larger answers.

    - ``"cumulative"`` (Samejima 1969, doi:10.1007/BF03372160): :math:`P(x \ge h) = \sigma(\eta -
      \tau_{h-1})`, thresholds :math:`\tau_0 = 0 < \tau_1 < \dots`, of which the gaps :math:`\tau_m
      - \tau_{m-1} > 0` are parameters;
    - ``"adjacent"`` (Masters 1982, doi:10.1007/BF02296272): :math:`\log P(x = h) / P(x = h - 1) =
      \eta - \delta_h`, steps :math:`\delta_1 = 0` and :math:`\delta_2, \dots` of any sign, which
      are parameters.

    So a location is the log-odds of leaving the lowest category: of the second category against the
    first ("adjacent"), or of any higher one ("cumulative").

    In a :class:`~ppl_models.DeepDiscreteEncoder` the location is linear in the latents, and an item
    without a link has the cumulative one.

    Args:
        num_categories, levels, concentration: as :class:`Categorical`; a prior of tables has no
            meaning under a link.
        link: "cumulative", "adjacent", or None for tables.

    Raises:
        ValueError: as :class:`Categorical`; for another link, or an item of one category under a
            link.
    """

    link: Literal["cumulative", "adjacent"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in (None, "cumulative", "adjacent"):
            raise ValueError(
                f"Ordinal: link must be 'cumulative', 'adjacent' or None, got {self.link!r}"
            )
        if self.link is not None and min(self.sizes(1)) < 2:
            raise ValueError(
                "Ordinal: at least two categories are needed under a link, got num_categories ="
                f" {self.num_categories}"
            )

    @classmethod
    def from_frame(
        cls,
        data: Any,
        max_levels: int = MAX_LEVELS,
        link: Literal["cumulative", "adjacent"] | None = None,
    ) -> Self:
        """Ordered categories of a data frame: whole numbers, booleans, ordered categoricals.

        Otherwise as :meth:`Categorical.from_frame`.

        Args:
            data, max_levels: as there; link: as above.

        Raises:
            ValueError: as there; naming a column whose order nobody knows, or that has a level
                which no row has.
        """
        return cls(levels_of_frame(cls.__name__, data, max_levels, ordered=True), link=link)

    def num_categories_of(self, num_items: int) -> tuple[int, ...]:
        return self.sizes(num_items) if self.link is None else ()

    def num_thresholds(self, num_items: int) -> int:
        return 0 if self.link is None else sum(size - 2 for size in self.sizes(num_items))

    def linked(self) -> Ordinal:
        return replace(self, link="cumulative") if self.link is None else self

    def num_linear(self, num_items: int) -> int:
        return num_items if self.link is not None else super().num_linear(num_items)

    def whole(self, linear: Tensor, thresholds: Tensor | None) -> Tensor:
        if self.link is None:
            return super().whole(linear, thresholds)
        return self.log_chances(linear, linear.new_zeros(0) if thresholds is None else thresholds)

    def log_probabilities_of_item(self, linear: Tensor, thresholds: Tensor) -> Tensor:
        if self.link is None:
            return super().log_probabilities_of_item(linear, thresholds)
        return self.log_chances_of_item(linear.squeeze(-1), thresholds)

    def slopes_of_log_probabilities(self, linear: Tensor, thresholds: Tensor) -> Tensor:
        if self.link is None:
            return super().slopes_of_log_probabilities(linear, thresholds)
        return self.slopes_of_item(linear.squeeze(-1), thresholds)

    def log_chance_of(self, code: Tensor, linear: Tensor, thresholds: Tensor) -> Tensor:
        if self.link != "cumulative":
            return super().log_chance_of(code, linear, thresholds)
        pad, place = torch.nn.functional.pad, code.long().expand(len(linear), *code.shape)
        cuts = pad(thresholds.cumsum(-1), (1, 0))
        upper = pad(cuts, (0, 1), value=torch.inf).gather(-1, place)
        lower = pad(cuts, (1, 0), value=-torch.inf).gather(-1, place)
        between = pad((-torch.expm1(-thresholds)).log(), (1, 1)).gather(-1, place)
        eta, sigma = linear.squeeze(-2), torch.nn.functional.logsigmoid
        return sigma(upper - eta) + sigma(eta - lower) + between

    def of_chances(self, chances: Tensor) -> tuple[Tensor, Tensor]:
        if self.link is None:
            return super().of_chances(chances)
        low, high = self.threshold_range
        locations, thresholds = [], []
        for own in chances.split(list(self.sizes(self.num_items(chances.shape[-1]))), -1):
            if self.link == "adjacent":
                odds = own.log().diff(dim=-1)  # of each category against the one below
                location, gaps = odds[..., 0], odds[..., :1] - odds[..., 1:]
            else:
                up_to = torch.logit(own.cumsum(-1)[..., :-1].clamp(1e-12, 1 - 1e-12))
                location, gaps = -up_to[..., 0], up_to.diff(dim=-1)
            locations.append(location)
            thresholds.append(gaps.clamp(low, high))
        return torch.stack(locations, -1), torch.cat(thresholds, -1)

    def scores(self, x: Tensor) -> Tensor:
        """Normal scores of the mid-ranks of the answers, (N, J).

        The indicators of categories where there is no link.
        """
        if self.link is None:
            return super().scores(x)
        columns = []
        for column in x.unbind(-1):
            found, place, counts = column[~column.isnan()].unique(
                return_inverse=True, return_counts=True
            )
            share = (counts.cumsum(0) - counts / 2.0) / counts.sum()
            out = torch.full_like(column, torch.nan)
            out[~column.isnan()] = torch.special.ndtri(share.to(x))[place]
            columns.append(out)
        return torch.stack(columns, -1)

    @property
    def threshold_range(self) -> tuple[float, float]:
        """Range of a gap, or of a step."""
        return (1e-4, 2 * self.bound) if self.link == "cumulative" else (-self.bound, self.bound)

    def log_chances(self, locations: Tensor, thresholds: Tensor) -> Tensor:
        """Log-probabilities of all categories of all items, (..., P).

        Args:
            locations: (..., J).
            thresholds: gaps or steps, (..., sum of C_j - 2), item after item; batch dims that
                broadcast.
        """
        sizes, place, parts = self.sizes(locations.shape[-1]), 0, []
        if len({*sizes}) == 1 and sizes[0] > 2:  # all items at once
            return self.log_chances_of_item(
                locations, thresholds.unflatten(-1, (-1, sizes[0] - 2))
            ).flatten(-2)
        for j, size in enumerate(sizes):
            gaps = thresholds[..., place : place + size - 2]
            parts.append(self.log_chances_of_item(locations[..., j], gaps))
            place += size - 2
        return torch.cat(parts, -1)

    def boundaries(self, locations: Tensor, thresholds: Tensor) -> Tensor:
        """Boundaries less the locations (..., J), (..., sum of C_j - 1)."""
        out, place = [], 0
        for j, size in enumerate(self.sizes(locations.shape[-1])):
            own = thresholds[..., place : place + size - 2]
            own = own.cumsum(-1) if self.link == "cumulative" else own
            out.append(torch.nn.functional.pad(own, (1, 0)) - locations[..., j : j + 1])
            place += size - 2
        return torch.cat(out, -1)

    def log_chances_of_item(self, location: Tensor, own: Tensor) -> Tensor:
        """Log-probabilities (..., C) of items of location (...) and gaps or steps (..., C - 2)."""
        pad, eta = torch.nn.functional.pad, location.unsqueeze(-1)
        if self.link == "adjacent":
            code = torch.arange(own.shape[-1] + 2, dtype=own.dtype, device=own.device)
            return (code * eta - pad(own.cumsum(-1), (2, 0))).log_softmax(-1)
        # log-odds of a category of at most h, (..., C - 1)
        below = pad(own.cumsum(-1), (1, 0)) - eta
        between = pad((-torch.expm1(-own)).log().expand(*below.shape[:-1], own.shape[-1]), (1, 1))
        sigma = torch.nn.functional.logsigmoid
        return pad(sigma(below), (0, 1)) + pad(sigma(-below), (1, 0)) + between

    def slopes_of_item(self, location: Tensor, own: Tensor) -> Tensor:
        """Derivatives of the log-probabilities by location and gaps or steps, (..., C, C - 1)."""
        eta, num = location.unsqueeze(-1), own.shape[-1] + 2
        code = torch.arange(num, device=own.device)
        if self.link == "adjacent":
            chances = self.log_chances_of_item(location, own).exp()
            reached = torch.cat(
                [code.unsqueeze(-1), -(code.unsqueeze(-1) >= code[2:]).long()], -1
            ).to(own)  # (C, C - 1)
            return reached - chances.unsqueeze(-2) @ reached
        pad = torch.nn.functional.pad
        below = pad(own.cumsum(-1), (1, 0)) - eta  # (..., C - 1)
        # by the two ends of a category
        upper, lower = (pad(torch.sigmoid(-below), (0, 1)), pad(-torch.sigmoid(below), (1, 0)))
        # (C, C - 2): the upper end lies past the gap
        past = (code.unsqueeze(-1) >= code[1:-1]).to(own)
        before = pad(past, (0, 0, 1, 0))[:-1]  # the lower end
        by_gap = upper.unsqueeze(-1) * past + lower.unsqueeze(-1) * before
        inside = torch.diag_embed(torch.expm1(own).reciprocal())
        by_gap = by_gap + pad(inside, (0, 0, 1, 1)).expand_as(by_gap)
        return torch.cat([-(upper + lower).unsqueeze(-1), by_gap], -1)


def _checked(
    owner: str, number: Any, levels: Any
) -> tuple[int | tuple[int, ...], tuple[Any, ...] | None]:
    """Check numbers of categories and their names, as integers and tuples of strings."""
    if (
        levels is None
        and isinstance(number, tuple)
        and number
        and isinstance(number[0], str | tuple)
    ):
        number, levels = None, number
    if levels is not None:
        alike = isinstance(levels, tuple) and all(isinstance(name, str) for name in levels)
        each = levels if isinstance(levels, tuple) and not alike else (levels,)
        for names in each:
            if (
                not isinstance(names, tuple)
                or not names
                or not all(isinstance(name, str) for name in names)
                or len({*names}) < len(names)
            ):
                raise ValueError(
                    f"{owner}: num_categories or levels must be names of categories, such as ('no',"
                    f" 'yes'), all different, or one such tuple an item, got {names!r}"
                )
        sizes = tuple(len(names) for names in each)
        own = sizes[0] if alike else sizes
        if number is not None and number not in (own, *([sizes[0]] if len({*sizes}) == 1 else [])):
            raise ValueError(
                f"{owner}: num_categories = {number!r} does not go with levels, which name {own!r}"
            )
        return own, levels
    if number is None:
        raise ValueError(
            f"{owner}: how many categories was not said; {owner}.from_frame(data) finds them in the"
            " columns of a data frame"
        )
    for size in number if isinstance(number, tuple) and number else (number,):
        check_size(
            owner, "num_categories", size, wanted="a positive integer, or a tuple with one an item"
        )
    return number, None


def log_tables(probabilities: Tensor) -> Tensor:
    """Finite logarithms of probabilities that may be zero, since 0 times -inf is NaN."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


@lru_cache(maxsize=256)
def _widths(family: ResponseFamily, num_items: int) -> list[tuple[ResponseFamily, int, int, int]]:
    """Elementary families with numbers of items, entries of tables, and thresholds."""
    out = []
    for block, columns, _ in family.blocks(num_items):
        size = columns.stop - columns.start
        out.append((block, size, sum(block.num_categories_of(size)), block.num_thresholds(size)))
    return out


def joined(
    family: ResponseFamily,
    num_items: int,
    predictors: Tensor | None,
    probabilities: Tensor | None,
    thresholds: Tensor | None = None,
) -> Tensor:
    """Predictor vector (..., P) of classes.

    Logarithms of ``probabilities`` at categorical items, ``predictors`` at all others.

    Args:
        predictors: (..., number of items without a table), locations of ordinal items under a link
            among them.
        probabilities: (..., sum of categories), of items with a table.
        thresholds: (..., number of them), with a dim of one for the classes, which share them. Each
            None where there are no such items.
    """
    logs = None if probabilities is None else log_tables(probabilities)
    parts, place, entry, first = [], 0, 0, 0
    for block, size, width, gaps in _widths(family, num_items):
        if width:
            assert logs is not None
            parts.append(logs[..., entry : entry + width])
        else:
            assert predictors is not None
            own = predictors[..., place : place + size]
            if isinstance(block, Ordinal):
                if thresholds is None:
                    none = own.new_zeros(0)
                else:
                    none = thresholds[..., first : first + gaps]
                own = block.log_chances(own, none)
            parts.append(own)
        place, entry, first = place + (0 if width else size), entry + width, first + gaps
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def threshold_names(family: ResponseFamily, items: Sequence[str]) -> list[str]:
    """Threshold names of ordinal items: the two categories on either side."""
    out = []
    for block, columns, _ in family.blocks(len(items)):
        if isinstance(block, Ordinal) and block.link is not None:
            own = items[columns]
            for item, names in zip(own, block.names(len(own)), strict=True):
                out += [
                    f"{item}:{low}|{high}" for low, high in zip(names[1:], names[2:], strict=False)
                ]
    return out


def linear_names(family: ResponseFamily, items: Sequence[str]) -> list[str]:
    """Names of the predictors linear in latents: the item, or category, as colour=red.

    Items of unordered categories have one for each category but the first.
    """
    out: list[str] = []
    for block, columns, _ in family.blocks(len(items)):
        own = items[columns]
        if block.num_categories_of(len(own)):
            names = block.category_names(len(own))
            out += [f"{item}={name}" for j, item in enumerate(own) for name in names[j][1:]]
        else:
            out += own
    return out


def expected_answers(
    family: ResponseFamily,
    num_items: int,
    shares: Tensor,
    predictor: Tensor,
    dispersion: Tensor | None,
) -> Tensor:
    """Expected answers of every row, (..., N, J).

    The mean of a number, the code of the most probable category.

    Args:
        shares: chances of components or configurations, (..., N, C).
        predictor: of each, (..., C, P); dispersion: (..., C, D), (D,), or None.
    """
    parts = []
    for (block, columns, dispersed), own in zip(
        family.blocks(num_items), family.predictors(num_items), strict=True
    ):
        if isinstance(block, Categorical):
            items = block.segments(columns.stop - columns.start, shares.device)
            parts.append(
                items.padded(shares @ block.mean(predictor[..., own]), -1.0).argmax(-1).to(shares)
            )
        else:
            parts.append(
                shares
                @ block.expected_response(
                    predictor[..., own], None if dispersion is None else dispersion[..., dispersed]
                )
            )
    return torch.cat(parts, -1)


def as_indicators(family: ResponseFamily, table: Tensor) -> Tensor:
    """Table (..., J) with categories as indicators, of all but the first, NaN if missing."""
    parts = []
    for block, columns, _ in family.blocks(table.shape[-1]):
        own = table[..., columns]
        parts.append(block.indicators(own) if isinstance(block, Categorical) else own)
    return torch.cat(parts, -1)


@lru_cache(maxsize=256)
def threshold_limits(family: ResponseFamily, num_items: int) -> Sequence[tuple[float, float]]:
    """Interval of every gap or step, item after item."""
    out: list[tuple[float, float]] = []
    for block, columns, _ in family.blocks(num_items):
        if isinstance(block, Ordinal):
            out += [block.threshold_range] * block.num_thresholds(columns.stop - columns.start)
    return tuple(out)


def table_concentrations(family: ResponseFamily, num_items: int) -> list[float]:
    """Dirichlet concentrations of every entry of the tables, (P,), item after item."""
    out: list[float] = []
    for block, columns, _ in family.blocks(num_items):
        if isinstance(block, Categorical) and block.num_categories_of(1):
            out += [block.concentration] * block.num_predictors(columns.stop - columns.start)
    return out

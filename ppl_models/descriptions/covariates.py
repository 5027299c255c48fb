"""Covariates: given columns on which classes or deepest latents depend, by logits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from pyro.distributions import TorchDistribution
from torch import Size, Tensor
from torch.distributions import constraints

from ppl_models.data.frames import (
    MAX_LEVELS,
    alike_levels,
    as_frame,
    check_texts,
    coded,
    column_names,
    holds_texts,
    is_frame,
    levels_of_frame,
    row_of,
)
from ppl_models.data.tables import CodesWarning, as_table
from ppl_models.descriptions.units import Units, column_means
from ppl_models.parts.validation import check_number, is_number, plain_fields

INTERCEPT = "intercept"
TO_FIT = ", or let the fit do so, fit(..., covariates_missing='drop')"
TO_ASK = ". Of a row without its covariates a fit says nothing, also one that has dropped such rows"
DEPENDENT = 1e-7  # part of a column that the others leave over, below which it follows from them


@dataclass(frozen=True)
class Covariates:
    r"""Covariates z of the rows, on which the probabilities of the K components depend.

    .. math::

        P(c = k \mid z) = \frac{\exp(b_{k0} + b_k \cdot z)}{\sum_l \exp(b_{l0} + b_l \cdot z)},
        \qquad b_0 = 0

    with component 0 as the reference (Bandeen-Roche and others 1997,
    doi:10.1080/01621459.1997.10473658); or of K binary latents, each with a logit of its own,
    :math:`P(a_k = 1 \mid z) = \sigma(\beta_{k0} + \beta_k \cdot z)` (Park and Lee 2014,
    doi:10.1177/0146621614523830). A column of categories counts as one column of 0 and 1 for each
    category but its first.

    Prior: with every term in its standard deviations about its mean, each coefficient of the
    difference between two components is normal with mean 0 and standard deviation ``scale``,
    whichever component is the reference: weak, but finite where a term separates the components. Of
    a binary latent likewise, whichever of its values is called 1.

    Args:
        names: of the columns.
        levels: names of the categories of each column, () for a column of numbers; left out where
            all are numbers. :meth:`from_frame` finds them.
        scale: positive; a coefficient of 10 multiplies odds by 22,000.
        units: centre and width of every term but the intercept, in which the prior is said; a fit
            takes them from its data.

    Raises:
        ValueError: for no names, two alike, levels that do not belong to them, or a scale that is
            not positive.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...] = ()
    scale: float = 10.0
    units: Units | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain_fields(self)
        owner = "Covariates"
        names = (self.names,) if isinstance(self.names, str) else self.names
        if (
            not isinstance(names, tuple)
            or not names
            or not all(isinstance(name, str) for name in names)
            or len(set(names)) < len(names)
        ):
            raise ValueError(
                f"{owner}: names must be one or more different names of columns, got {self.names!r}"
            )
        levels = self.levels or ((),) * len(names)
        if (
            not isinstance(levels, tuple)
            or len(levels) != len(names)
            or not all(isinstance(own, tuple) for own in levels)
        ):
            raise ValueError(
                f"{owner}: levels must hold the categories of each of the {len(names)} columns, ()"
                f" for one of numbers, got {self.levels!r}"
            )
        for name, own in zip(names, levels, strict=True):
            if (
                len(own) == 1
                or len(set(own)) < len(own)
                or not all(isinstance(level, str) for level in own)
            ):
                raise ValueError(
                    f"{owner}: levels of column {name!r} must be two or more different names, or ()"
                    f" for numbers, got {own!r}"
                )
        check_number(owner, "scale", self.scale, "be positive and finite", above=0)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "levels", levels)
        if self.units is not None and (
            len(self.units) != len(self.terms) - 1
            or not all(
                len(pair) == 2 and all(map(is_number, pair)) and pair[1] > 0 for pair in self.units
            )
        ):
            raise ValueError(
                f"{owner}: units must be a centre and a positive width for each of"
                f" {', '.join(self.terms[1:])}, got {self.units!r}"
            )

    @classmethod
    def from_frame(
        cls, frame: Any, scale: float = 10.0, max_levels: int = MAX_LEVELS
    ) -> Covariates:
        """Covariates from all columns of a data frame of any library.

        Columns of text and pandas categoricals become categories, in the order of the categorical
        or the alphabet.

        The first category of a column is what its others are compared with.

        Args:
            frame: the covariates alone, such as ``data[["age", "sex"]]``.
            scale: as above; max_levels: that a column of categories may have.

        Raises:
            ValueError: for no frame, a column with more categories, or one with a single one.
        """
        frame = as_frame(frame)
        if not is_frame(frame) or not len(frame.columns):
            raise ValueError(
                "Covariates: a data frame with the covariates as its columns was expected, got"
                f" {type(frame).__name__}"
            )
        levels = []
        for name in frame.columns:
            if holds_texts(frame[name]):
                check_texts(frame[name], f"Covariates: column {str(name)!r}")
            if holds_texts(frame[name]):
                own = levels_of_frame("Covariates", frame[[name]], max_levels)[0]
            else:
                own = ()
            if len(own) == 1:
                raise ValueError(
                    f"Covariates: column {str(name)!r} holds {own[0]!r} alone, so that nothing can"
                    " depend on it: leave it out"
                )
            levels.append(own)
        return cls(column_names(frame), tuple(levels), scale)

    def for_frame(self, frame: Any) -> Covariates:
        """Covariates with the categories of those columns that hold texts; itself without any."""
        given = self.split(frame)[1]
        if any(self.levels) or not any(holds_texts(given[name]) for name in given):
            return self
        return Covariates.from_frame(given, self.scale)

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the coefficients: intercept, numbers, and categories (``sex=male``)."""
        out = [INTERCEPT]
        for name, own in zip(self.names, self.levels, strict=True):
            out += [f"{name}={level}" for level in own[1:]] if own else [name]
        return tuple(out)

    @property
    def term_units(self) -> Units:
        """Centre and width of every term but the intercept; 0 and 1 before a fit."""
        return self.units if self.units is not None else ((0.0, 1.0),) * (len(self.terms) - 1)

    def design(self, given: Tensor) -> Tensor:
        """Design matrix (..., Q), 1 first, of columns (..., P) with categories as codes."""
        columns = [torch.ones_like(given[..., :1])]
        for p, own in enumerate(self.levels):
            column = given[..., p : p + 1]
            columns.append(
                (column == torch.arange(1, len(own), device=given.device)).to(given)
                if own
                else column
            )
        return torch.cat(columns, -1)

    def standardised_design(self, given: Tensor) -> Tensor:
        """Standardised :meth:`design`: every term in its widths from its centre."""
        centres, widths = self._unit_vectors(given)
        return torch.cat(
            [torch.ones_like(given[..., :1]), (self.design(given)[..., 1:] - centres) / widths], -1
        )

    def logits(self, given: Tensor, coefficients: Tensor) -> Tensor:
        """Logits (..., K), the reference 0, of columns (..., P), coefficients (..., K - 1, Q)."""
        own = (coefficients @ self.design(given).unsqueeze(-1)).squeeze(-1)
        return torch.cat([torch.zeros_like(own[..., :1]), own], -1)

    def odds(self, given: Tensor, coefficients: Tensor) -> Tensor:
        """Log-odds (..., K) of binary latents, from columns (..., P), coefficients (..., K, Q)."""
        return (
            self.standardised(coefficients) @ self.standardised_design(given).unsqueeze(-1)
        ).squeeze(-1)

    def standardised(self, coefficients: Tensor) -> Tensor:
        """Convert coefficients (..., K - 1, Q) of the design to the standardised design."""
        centres, widths = self._unit_vectors(coefficients)
        slopes = coefficients[..., 1:]
        return torch.cat(
            [coefficients[..., :1] + (slopes * centres).sum(-1, keepdim=True), slopes * widths], -1
        )

    def plain(self, coefficients: Tensor) -> Tensor:
        """Convert standardised coefficients back, the inverse of :meth:`standardised`."""
        centres, widths = self._unit_vectors(coefficients)
        slopes = coefficients[..., 1:] / widths
        return torch.cat(
            [coefficients[..., :1] - (slopes * centres).sum(-1, keepdim=True), slopes], -1
        )

    def _unit_vectors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        centres, widths = zip(*self.term_units, strict=True)
        return like.new_tensor(centres), like.new_tensor(widths)

    def measured(self, given: Tensor, weights: Tensor | None = None) -> Covariates:
        """Covariates with the mean and standard deviation of every term over rows (N, P).

        Rows count as often as weights (N,) say; a record that has units is returned as it is.
        """
        if self.units is not None:
            return self
        terms = self.design(given.double())[:, 1:]
        centre = column_means(terms, weights)
        width = column_means((terms - centre).square(), weights).sqrt()
        width = torch.where(width > 0, width, 1.0)
        return replace(self, units=tuple(zip(centre.tolist(), width.tolist(), strict=True)))

    def split(self, data: Any) -> tuple[Any, Any]:
        """Split a data frame into the other columns and the covariates, in their order."""
        names = column_names(data)
        missing = [name for name in self.names if name not in names]
        if missing:
            raise ValueError(
                f"data: the covariates {', '.join(map(repr, missing))} were expected among the"
                f" columns, beside the items, got {', '.join(map(repr, names[:20]))}"
            )
        others = [j for j, name in enumerate(names) if name not in self.names]
        return data.iloc[:, others], data.iloc[:, [names.index(name) for name in self.names]]

    def check_beside(
        self,
        data: Any,
        num_items: int,
        check_items: Callable[[Any, bool], tuple[Tensor, tuple[str, ...]]],
        for_fit: bool = True,
    ) -> tuple[Tensor, tuple[str, ...]]:
        """Items and covariates as a tensor (N, J + P), covariates last, and column names.

        Args:
            data: a frame that has the covariates among its columns, wherever they stand, or an
                array (N, J + P) with the covariates last.
            num_items: J; check_items: of the items alone, as a model checks them.
            for_fit: as in :meth:`check`.
        """
        items, given = self._apart(data, num_items)
        answers, names = check_items(items, for_fit)
        table = torch.cat([answers, self.check(given, for_fit).to(answers)], -1)
        return table, (*names, *self.names)

    def columns(self, owner: str, data: Tensor | None, num_items: int) -> Tensor:
        """Covariates (N, P) of the data of a program; refused without data."""
        if data is None:
            raise ValueError(
                f"{owner}: rows depend on their covariates, which nothing draws: simulate rows"
                " beside given ones, as fit.structure.simulate_like(fit.params, data, seed)"
            )
        return data[..., num_items:]

    def _apart(self, data: Any, num_items: int) -> tuple[Any, Any]:
        """Split a frame or array into items (N, J) and covariates (N, P)."""
        data = as_frame(data)
        if hasattr(data, "columns"):
            return self.split(data)
        table, _ = as_table(data)
        if table.shape[1] != num_items + len(self.names):
            raise ValueError(
                f"data: {num_items} items and behind them the covariates"
                f" {', '.join(map(repr, self.names))} were expected, got shape {tuple(table.shape)}"
            )
        return table[:, :num_items], table[:, num_items:]

    def seen(self, data: Any, num_items: int) -> list[bool]:
        """Mask of the rows that have all covariates."""
        given = self._apart(data, num_items)[1]
        missing = given.isna().any(axis=1) if hasattr(given, "columns") else given.isnan().any(-1)
        return [not gone for gone in missing.tolist()]

    def check(self, given: Any, for_fit: bool = True) -> Tensor:
        """Check the covariates and convert them to a tensor (N, P), categories as codes.

        Args:
            given: (N, P), a frame or array of these columns in their order.
            for_fit: whether a fit is to follow, whose columns must tell rows apart.

        Raises:
            ValueError: naming the column and row of an entry that is missing or an unknown
                category; for a fit, a term that is the same in all rows, or that follows from the
                others.

        Warns:
            CodesWarning: naming categories that differ in case or in blanks alone.
        """
        given = as_frame(given)
        if hasattr(given, "columns"):
            for name, own in zip(given.columns, self.levels, strict=True):
                if not own and holds_texts(given[name]):
                    quoted = ", ".join(map(repr, self.names))
                    raise ValueError(
                        f"data: covariate {str(name)!r} holds text, and nothing says which"
                        " categories it has: pass"
                        f" covariates=Covariates.from_frame(data[[{quoted}]]) to the model"
                    )
        table, _ = as_table(coded(given, {p: own for p, own in enumerate(self.levels) if own}))
        missing = table.isnan()
        if bool(missing.any()):
            row, column = missing.nonzero()[0].tolist()
            raise ValueError(
                f"data: covariate {self.names[column]!r} is missing in {row_of(given, row)}"
                f" ({int(missing.any(-1).sum())} of {len(table):,} rows lack a covariate): what is"
                " given cannot be summed over, so fill the entries, or drop these rows, as in"
                f" data.dropna(subset={list(self.names)}){TO_FIT if for_fit else TO_ASK}"
            )
        for p, own in enumerate(self.levels):
            wrong = (
                (table[:, p] < 0) | (table[:, p] >= len(own)) | (table[:, p] != table[:, p].floor())
                if own
                else None
            )
            if wrong is not None and bool(wrong.any()):
                row = int(wrong.nonzero()[0])
                raise ValueError(
                    f"data: covariate {self.names[p]!r}: a code from 0 to {len(own) - 1} was"
                    f" expected, got {float(table[row, p]):g} in {row_of(given, row)}"
                )
        if for_fit:
            self._check_terms(table)
        for name, own in zip(self.names, self.levels, strict=True) if for_fit else ():
            for words in alike_levels(name, own):
                warnings.warn(words, CodesWarning, stacklevel=3)
        return table

    def _check_terms(self, table: Tensor) -> None:
        """Refuse terms that are constant, or follow from those before them."""
        design = self.design(table.double())
        terms = self.terms
        off = design - design.mean(0)
        sizes = off.square().sum(0).sqrt()
        for q, name in enumerate(terms[1:], 1):
            if bool((design[:, q] == design[0, q]).all()):
                is_empty = "=" in name and name not in self.names
                if is_empty and float(design[0, q]) == 0:
                    what = f"no row has {name}"
                else:
                    what = f"{name} is the same in all rows"
                raise ValueError(
                    f"data: covariates: {what}, so that nothing can depend on it: leave it out"
                )
        scaled = (off[:, 1:] / sizes[1:]).cpu()  # a GPU has no least squares of deficient rank
        for q in range(1, scaled.shape[1]):
            solution = torch.linalg.lstsq(
                scaled[:, :q], scaled[:, q : q + 1], driver="gelsd"
            ).solution
            if float((scaled[:, q : q + 1] - scaled[:, :q] @ solution).norm()) < DEPENDENT:
                others = [
                    terms[1 + i] for i in (solution.abs().ravel() > 1e-6).nonzero().ravel().tolist()
                ]
                raise ValueError(
                    f"data: covariates: {terms[q + 1]} follows from {', '.join(others)} in these"
                    " rows, so that no data can tell their effects apart: leave one of them out"
                )


class _Coefficients(TorchDistribution):
    """Normal prior of coefficients, ``num`` rows but for ``num_reference`` of them."""

    arg_constraints = {}  # noqa: RUF012
    support = constraints.independent(constraints.real, 2)
    has_rsample = True
    num_reference = 0

    def __init__(
        self, covariates: Covariates, num: int, zero: Tensor, batch_shape: Sequence[int] = ()
    ) -> None:
        self.covariates, self.num, self.zero = covariates, num, zero
        shape = Size((num - self.num_reference, len(covariates.terms)))
        super().__init__(Size(batch_shape), shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        return type(self)(self.covariates, self.num, self.zero, batch_shape)

    def _log_volume(self) -> float:
        return sum(math.log(width) for _, width in self.covariates.term_units) * self.event_shape[0]


class LatentCoefficients(_Coefficients):
    r"""Normal prior of the coefficients of K binary latents, (K, Q).

    Those of :meth:`Covariates.standardised_design` are N(0, s^2), all independent.

    The same distribution for a latent whose values have changed names, of which the coefficients
    are the negative.

    Args:
        covariates: their scale s and units; num: of latents, K.
        zero: of the program's dtype and device.
    """

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        noise = torch.randn(shape, dtype=self.zero.dtype, device=self.zero.device)
        return self.covariates.plain(noise * self.covariates.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        own, scale = self.covariates.standardised(value), self.covariates.scale
        return (
            self._log_volume()
            - self.event_shape.numel() * math.log(2 * math.pi * scale**2) / 2
            - own.square().sum((-2, -1)) / (2 * scale**2)
        )


def covariates_given(owner: str, value: Any) -> Covariates | None:
    """Covariates of a model's argument: names of columns, a frame of them, or a record."""
    if value is None or isinstance(value, Covariates):
        return value
    if hasattr(value, "columns") or hasattr(value, "to_frame"):
        return Covariates.from_frame(value if hasattr(value, "columns") else value.to_frame())
    if not isinstance(value, tuple | str):
        raise ValueError(
            f"{owner}: covariates must be names of columns, Covariates.from_frame(data[names]), or"
            f" None, got {value!r}"
        )
    try:
        return Covariates(value)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(
            f"{owner}: covariates: {str(error).removeprefix('Covariates: ')}"
        ) from error


class ClassCoefficients(_Coefficients):
    r"""Normal prior of coefficients (K - 1, Q), invariant to the reference component.

    Coefficients of :meth:`Covariates.standardised_design` are differences :math:`u_k - u_0` of K
    independent normal numbers with standard deviation :math:`s / \sqrt 2`, term by term: their
    covariance is :math:`\frac{s^2}{2} (I + 1 1^\top)`, its inverse :math:`\frac{2}{s^2} (I - 1
    1^\top / K)`, and its determinant :math:`(s^2 / 2)^{K - 1} K`.

    Args:
        covariates: their scale s and units; num: of components, K.
        zero: of the program's dtype and device.
    """

    num_reference = 1

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = (*sample_shape, *self.batch_shape, self.num, self.event_shape[1])
        each = torch.randn(shape, dtype=self.zero.dtype, device=self.zero.device) * (
            self.covariates.scale / math.sqrt(2)
        )
        return self.covariates.plain(each[..., 1:, :] - each[..., :1, :])

    def log_prob(self, value: Tensor) -> Tensor:
        own, scale = self.covariates.standardised(value), self.covariates.scale
        num, num_terms = self.event_shape
        squares = own.square().sum((-2, -1)) - own.sum(-2).square().sum(-1) / self.num
        constant = num_terms * (num * math.log(math.pi * scale**2) + math.log(self.num)) / 2
        return self._log_volume() - constant - squares / scale**2

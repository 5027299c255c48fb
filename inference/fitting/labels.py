r"""Labels of rows: what is known of their latents, checked and made tables of log p(label | value).

A label says of one latent of one row which value it has: surely, as one of some values, by chances,
or with a stated chance of error :math:`\epsilon`,

.. math:: p(\ell \mid z) = \begin{cases} 1 - \epsilon & z \in \ell \\
    \epsilon / (V - |\ell|) & z \notin \ell, \end{cases}

with :math:`|\ell|` of V values allowed. A row without a label has the same factor for all values.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from inference.base.diagnostics import as_array
from inference.base.structure import (
    LabelledLatent,
    Method,
    Problem,
    Structure,
    check_labels,
    labelled_latents,
    means_given_labels,
)
from inference.engines.em import EM
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.svi import SVI
from inference.fitting.columns import as_fitted, checked_as_fitted
from inference.fitting.predict import one_latent, predicted
from inference.fitting.record import FitRecord
from inference.programs.arguments import program_name
from inference.programs.labelled import NEVER
from inference.programs.program import Params, Program
from ppl_models.data.frames import as_frame, check_index, column_names, is_frame
from ppl_models.data.sequences import as_item_sequences
from ppl_models.data.tables import checks_data, first_tensor, map_tensors
from ppl_models.parts.repr import counted, listed
from ppl_models.parts.responses import Normal
from ppl_models.parts.validation import check_number

ESTIMATE: Literal["estimate"] = "estimate"
FIRST_ERROR = 0.1  # of labels, where the share of wrong ones is estimated
MOST_ORDERED = 4  # latents whose orders are all tried
LEAST_ERROR, MOST_ROUNDS, SETTLED = 1e-6, 200, 1e-4
UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class Known:
    """Labels of a fit.

    Args:
        tables: by latent site, log p(label | value), (N, ..., V); zeros where nothing is known.
        allowed: the same latents, which values the labels name, bool; None of tables of chances.
        names: by latent site, the names of the values, where labels are texts.
    """

    tables: dict[str, Tensor]
    allowed: dict[str, Tensor | None]
    names: dict[str, tuple[str, ...]]


def known_of(
    problem: Problem,
    labels: Any,
    error: float,
    names: Mapping[str, tuple[str, ...]] | None = None,
    data: Any = None,
) -> Known:
    """Tables of the labels of all rows.

    Args:
        problem: model and data.
        labels: as ``fit`` takes them; error: chance that a label is wrong.
        names: of the values, by site, where an earlier fit has settled them.
        data: the rows as they were given, whose lines labels of steps may follow.

    Raises:
        ValueError: for a model without a latent that labels can be said of, labels of another
            shape, under another index than the rows, or outside its values, rows with no value
            left, or labels that no path of a chain has.
    """
    targets = labelled_latents(problem.structure, problem)
    if problem.rows is not None:
        targets = {site: _in_blocks(problem, site, latent) for site, latent in targets.items()}
    if not targets:
        raise ValueError(
            f"labels: a model with a discrete latent of each row was expected, and this"
            f" {program_name(problem.model)} has none that labels can be said of: mixtures, latent"
            " classes, hidden Markov models, options, attributes, encoders and programs of your own"
            " have"
        )
    by_site = labels if isinstance(labels, Mapping) else None
    if by_site is None:
        if len(targets) > 1:
            raise ValueError(
                f"labels: the model has several latents, {listed(map(repr, targets), 6)}: say which"
                f" by a dict, as labels={{{next(iter(targets))!r}: ...}}"
            )
        by_site = {next(iter(targets)): labels}
    tables, allowed, own_names = {}, {}, {}
    for site, given in by_site.items():
        if site not in targets:
            raise ValueError(
                f"labels: one of the latents {listed(map(repr, targets), 6)} was expected, got"
                f" {site!r}"
            )
        check_index("labels", given, data)
        if targets[site].is_ragged:
            given = _by_step(problem.structure, data, given)
        settled = (names or {}).get(site, ())
        given = _by_name(given, f"labels of {site!r}", _entries(problem.model, site) or settled)
        table, own, texts = _table(site, given, targets[site], error, settled)
        like = first_tensor(problem.data)
        is_like = like is not None and like.is_floating_point()
        like = like if is_like else torch.zeros((), dtype=torch.float64)
        _check_ends(site, table, targets[site])
        tables[site], allowed[site] = table.to(like), own
        if texts:
            own_names[site] = texts
    if not any(bool(is_labelled(table).any()) for table in tables.values()):
        tables, allowed = {}, {}
    for place, part in _parts(with_labels(problem, tables)):
        try:
            check_labels(problem.structure, part, part.labels or {})
        except ValueError as wrong:
            if problem.rows is None:
                raise
            where = f"in the block of rows {place.start} to {place.stop - 1}"
            raise ValueError(f"{wrong} {where}") from wrong
    return Known(tables, allowed, own_names)


def _parts(problem: Problem) -> Iterator[tuple[slice, Problem]]:
    """Problems of the blocks with their labels, and their places among the rows."""
    if problem.rows is None:
        yield slice(0, problem.num_rows), problem
        return
    first = 0
    for data in problem.rows:
        place = slice(first, first + len(first_tensor(data)))
        labels = problem.rows.labels_at(place, data)
        yield place, dataclasses.replace(problem, data=data, labels=labels, rows=None, cache={})
        first = place.stop


def _by_step(structure: Structure, data: Any, labels: Any) -> Any:
    """Labels laid out as the sequences are, where they follow the lines of a frame of steps."""
    data = as_frame(data)
    if not is_frame(data) or np.ndim(labels) != 1 or len(labels) != len(data):
        return labels
    places = [name for name in data.columns if name in structure.row_columns]
    lines = data[places].assign(line=np.arange(len(data)))
    packed, _ = as_item_sequences(lines, 1, Normal(), for_fit=False)
    every = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    line = packed[..., 0].numpy()
    out = np.full(line.shape, None, dtype=object)
    for place in np.argwhere(np.isfinite(line)).tolist():
        out[tuple(place)] = every[int(line[tuple(place)])]
    return out


def _entries(model: Any, site: str) -> tuple[str, ...]:
    """Names of the bits of a latent, () where it numbers them."""
    dims = getattr(model, "site_dims", {}).get(site, ())
    names = tuple(getattr(model, "entry_names", {}).get(dims[-1], ())) if dims else ()
    return () if names == tuple(map(str, range(len(names)))) else names


def _by_name(given: Any, where: str, names: tuple[str, ...]) -> Any:
    """Columns of a frame in the order of the names that they have."""
    frame = as_frame(given)
    columns = column_names(frame) if is_frame(frame) else ()
    if len(columns) != len(names) or not set(columns) & set(names):
        return given
    if sorted(columns) != sorted(names):
        raise ValueError(
            f"{where}: the columns {listed(map(repr, names), 6)} were expected, in any order, got"
            f" {listed(map(repr, columns), 6)}"
        )
    return frame.iloc[:, [columns.index(name) for name in names]]


def _check_ends(site: str, table: Tensor, latent: LabelledLatent) -> None:
    """Refuse labels of steps after the end of a sequence."""
    if latent.inside is None:
        return
    for row, step in (is_labelled(table) & ~latent.inside.cpu()).nonzero()[:1].tolist():
        raise ValueError(
            f"labels of {site!r}: -1 was expected after the end of sequence {row}, got a label"
            f" at step {step}"
        )


def _in_blocks(problem: Problem, site: str, latent: LabelledLatent) -> LabelledLatent:
    """Labelled latent of all rows, where the problem's data are a sample.

    Raises:
        ValueError: for rows of several processes.
    """
    rows = problem.rows
    assert rows is not None  # as the caller has seen
    if rows.processes.size > 1:
        raise ValueError("labels: RowBlocks of one process were expected, got those of several")
    if latent.inside is None:
        return dataclasses.replace(latent, shape=(rows.num_rows, *latent.shape[1:]))
    masks = []
    for _, part in _parts(problem):
        inside = labelled_latents(problem.structure, part)[site].inside
        assert inside is not None
        masks.append(inside)
    width = max(mask.shape[1] for mask in masks)
    inside = torch.cat(
        [torch.nn.functional.pad(mask, (0, width - mask.shape[1])) for mask in masks]
    )
    return dataclasses.replace(latent, shape=tuple(inside.shape), inside=inside)


def with_labels(problem: Problem, tables: Mapping[str, Tensor]) -> Problem:
    """The problem with labels; of rows in blocks all of these, and those of the sample."""
    if problem.rows is None or not tables:
        return dataclasses.replace(problem, labels=dict(tables) or None)
    rows = dataclasses.replace(problem.rows, labels=dict(tables))
    own = rows.labels_at(torch.as_tensor(rows.sampled), problem.data)
    return dataclasses.replace(problem, labels=own, rows=rows)


def is_labelled(table: Tensor) -> Tensor:
    """Mask of the entries (N, ...) of which something is known."""
    return (table != table[..., :1]).any(-1)


def _table(
    site: str, given: Any, latent: LabelledLatent, error: float, names: tuple[str, ...]
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Log p(label | value) (*shape, V), the values named (bool), and their names."""
    shape, size = latent.shape, latent.num_values
    where = f"labels of {site!r}"
    given, names = _coded(given, where, size, names)
    values = _as_array(given, where, shape, size, latent)
    if values.shape == (*shape, size) and values.dtype == bool:
        allowed = torch.from_numpy(values)
        for place in (~allowed.any(-1)).nonzero()[:1].tolist():
            raise ValueError(
                f"{where}: at least one value was expected to be left in {_at(place)}, got none"
            )
    elif values.shape == (*shape, size):
        return _by_chances(torch.from_numpy(values), where, error), None, names
    elif latent.is_binary and not np.isin(values[~np.isnan(values)], (UNKNOWN, 0, 1)).all():
        ones = torch.from_numpy(np.where(values == UNKNOWN, np.nan, values))
        for place in ((ones < 0) | (ones > 1)).nonzero()[:1].tolist():
            raise ValueError(
                f"{where}: 0, 1, a chance of 1 between them, or -1 or NaN for unknown were"
                f" expected, got {float(ones[tuple(place)]):g} in {_at(place)}"
            )
        return _by_chances(torch.stack([1 - ones, ones], -1), where, error), None, names
    else:
        codes = torch.from_numpy(np.where(np.isnan(values), UNKNOWN, values))
        wrong = (codes != codes.round()) | (codes < UNKNOWN) | (codes >= size)
        for place in wrong.nonzero()[:1].tolist():
            raise ValueError(
                f"{where}: whole numbers 0 to {size - 1}, or -1 or NaN for unknown, were expected,"
                f" got {float(codes[tuple(place)]):g} in {_at(place)}"
            )
        one = torch.nn.functional.one_hot(codes.long().clamp(min=0), size).bool()
        allowed = one | (codes == UNKNOWN).unsqueeze(-1)
    return log_table(allowed, error), allowed, names


def log_table(allowed: Tensor, error: float) -> Tensor:
    """Log p(label | value) of labels that name some values, zeros where they name all.

    Args:
        allowed: (..., V) bool; error: chance that the value is none of them.
    """
    others = (~allowed).sum(-1, keepdim=True)
    inside = torch.log1p(torch.tensor(-error, dtype=torch.float64))
    outside = torch.log(error / others.clamp(min=1).double()).clamp(min=NEVER)
    table = torch.where(allowed, inside, outside)
    return torch.where(others == 0, 0.0, table)


def _by_chances(chances: Tensor, where: str, error: float) -> Tensor:
    """Log-table of chances of the values (..., V); NaN in a row where nothing is known."""
    if error:
        raise ValueError(
            f"label_error: labels that are chances say how sure they are, so 0 was expected beside"
            f" the {where}, got {error:g}"
        )
    unknown = chances.isnan().any(-1, keepdim=True)
    sums = chances.sum(-1, keepdim=True)
    wrong = ~unknown & ((chances < 0).any(-1, keepdim=True) | ~(sums > 0) | sums.isinf())
    for place in wrong[..., 0].nonzero()[:1].tolist():
        raise ValueError(
            f"{where}: chances of at least 0 with a positive sum were expected in {_at(place)}, got"
            f" {chances[tuple(place)].tolist()}"
        )
    table = (chances / sums).log().clamp(min=NEVER)
    return torch.where(unknown, 0.0, table)


def _coded(
    given: Any, where: str, size: int, names: tuple[str, ...]
) -> tuple[Any, tuple[str, ...]]:
    """Texts as codes: by given names, categories of a column, or in alphabetic order."""
    if isinstance(given, Tensor):
        return given.detach().cpu().numpy(), ()
    given = given.to_numpy() if is_frame(given) else given
    categories = getattr(getattr(given, "dtype", None), "categories", None)
    if categories is None:
        categories = getattr(getattr(given, "cat", None), "categories", None)
    if categories is not None:
        categories = [value for value in categories if not _is_unknown(value)]
    if (
        categories is not None
        and hasattr(given, "to_numpy")
        and len(categories) <= size
        and not names
    ):
        names = tuple(map(str, categories))
        codes = {name: k for k, name in enumerate(categories)}
        return np.array([codes.get(v, UNKNOWN) for v in given.to_numpy()], dtype=float), names
    given = given.to_numpy() if hasattr(given, "to_numpy") else given
    flat = _flat(given)
    texts = sorted({value for value in flat if isinstance(value, str)})
    if not texts:
        return given, names
    if names:
        if unknown := [text for text in texts if text not in names]:
            raise ValueError(
                f"{where}: one of the names {listed(map(repr, names), 6)} of the fit was expected,"
                f" got {unknown[0]!r}"
            )
        texts = list(names)
    if len(texts) > size:
        raise ValueError(
            f"{where}: at most {size} names were expected, one for each value, got {len(texts)}:"
            f" {listed(map(repr, texts), 6)}"
        )
    mixed = [v for v in flat if not isinstance(v, str) and not _is_unknown(v)]
    if mixed:
        raise ValueError(f"{where}: names or numbers were expected, got both: {mixed[0]!r}")
    return _replaced(given, {name: k for k, name in enumerate(texts)}), tuple(texts)


def _is_unknown(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True  # these cannot be compared
    return bool(value == UNKNOWN or value != value)


def _flat(given: Any) -> list[Any]:
    """All labels, whatever they are grouped by."""
    if isinstance(given, np.ndarray) and given.dtype != object:
        return [] if given.dtype.kind in "biuf" else given.ravel().tolist()
    if isinstance(given, list | tuple | set | frozenset | np.ndarray):
        return [value for part in given for value in _flat(part)]
    return [given]


def _replaced(given: Any, codes: Mapping[str, int]) -> Any:
    if isinstance(given, np.ndarray | list | tuple):
        return [_replaced(part, codes) for part in given]
    if isinstance(given, set | frozenset):
        return frozenset(_replaced(part, codes) for part in given)
    return codes[given] if isinstance(given, str) else given


def _as_array(
    given: Any, where: str, shape: tuple[int, ...], size: int, latent: LabelledLatent
) -> np.ndarray:
    """Numbers (*shape) or (*shape, V), bool where they say which values are allowed."""
    if not hasattr(given, "__len__") or isinstance(given, str):
        raise ValueError(
            f"{where}: a label for each of {latent.in_words} was expected, got {given!r}"
        )
    if isinstance(given, list | tuple) and any(isinstance(v, set | frozenset) for v in given):
        allowed = np.ones((len(given), size), dtype=bool)
        for row, values in enumerate(given):
            if isinstance(values, set | frozenset):
                allowed[row] = [k in values for k in range(size)]
                wrong = [v for v in values if v not in range(size)]
            else:
                wrong = [] if _is_unknown(values) or values in range(size) else [values]
                if not _is_unknown(values):
                    allowed[row] = [k == values for k in range(size)]
            if wrong:
                raise ValueError(
                    f"{where}: sets of whole numbers 0 to {size - 1} were expected, got"
                    f" {wrong[0]!r} in row {row}"
                )
        array = allowed
    elif len(shape) == 2 and latent.is_ragged and isinstance(given, list | tuple):
        array = _padded(given, where, shape, size)
    else:
        array = np.array(
            [np.nan if _is_unknown(v) else v for v in given]
            if isinstance(given, list | tuple) and not any(hasattr(v, "__len__") for v in given)
            else given
        )
        if array.dtype == object:
            array = np.vectorize(lambda v: np.nan if _is_unknown(v) else v, otypes=[float])(array)
    for whole in (shape, (*shape, size)):  # labels have no dim of a plate of one entry
        if [n for n in array.shape if n > 1] == [n for n in whole if n > 1]:
            array = array.reshape(whole)
            break
    if array.dtype != bool or array.shape != (*shape, size):
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as problem:
            raise ValueError(f"{where}: numbers or names were expected ({problem})") from problem
    if latent.is_ragged and array.ndim == 1 and shape[0] == 1:
        array = array[None]
    if array.shape not in (shape, (*shape, size)):
        raise ValueError(
            f"{where}: shape {shape}, one label for each of {latent.in_words}, or"
            f" {(*shape, size)}, a number for each value, was expected, got {array.shape}"
        )
    return array


def _padded(given: Any, where: str, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Labels of sequences of unequal lengths in one table, NaN behind their ends."""
    if len(given) != shape[0]:
        raise ValueError(f"{where}: labels of {shape[0]} sequences were expected, got {len(given)}")
    out = np.full(shape, np.nan)
    for row, steps in enumerate(given):
        values = np.array([np.nan if _is_unknown(v) else v for v in steps], dtype=float)
        if len(values) > shape[1]:
            raise ValueError(
                f"{where}: at most {shape[1]} steps were expected in sequence {row}, got"
                f" {len(values)}"
            )
        out[row, : len(values)] = values
    return out


def _at(place: list[int]) -> str:
    return f"row {place[0]}" + (f", entry {tuple(place[1:])}" if len(place) > 1 else "")


def check_error(error: Any) -> float:
    """Chance of a wrong label at which a fit begins.

    Raises:
        ValueError: for anything but a number in [0, 1) or ``"estimate"``.
    """
    if isinstance(error, str):
        if error != ESTIMATE:
            raise ValueError(
                f"label_error: a number in [0, 1) or 'estimate' was expected, got {error!r}"
            )
        return FIRST_ERROR
    check_number("fit", "label_error", error, "lie in [0, 1), or be 'estimate'", least=0, below=1)
    return float(error)


def check_labelling(problem: Problem, method: Method) -> None:
    """Refuse an engine that cannot take labels in.

    Raises:
        ValueError: naming it, and those that can.
    """
    if problem.structure.integrated_sites or problem.structure.local_sites:
        raise ValueError(
            "labels: a model without continuous latents of the rows was expected; NUTS and SVI draw"
            " these, where the labels are a pyro.factor in the program itself"
        )
    if hasattr(method, "labels"):
        raise ValueError(
            "labels: classifiers are told labels by their engine, as"
            " TrainClassifiers(labels=Labels(values)), -1 where not known, and not by fit(labels=)"
        )
    batch = isinstance(method, SVI) and method.batch_size is not None
    if batch or not isinstance(method, EM | SVI | NUTS | Laplace):
        raise ValueError(
            "labels: EM(), NUTS(), Laplace() and SVI() without batches take what is known of"
            f" latents, and {method!r} does not"
        )
    if isinstance(method, EM) and method.start is not None:
        raise ValueError(
            "labels: EM() without start=OnlineEM() was expected, whose rows come apart"
        )


def named_by_labels(problem: Problem, params: Params) -> Params:
    """Starts (R, ...) with their latents renamed to agree with the labels as often as they can.

    Of each start, the permutation (and flips of bits) that raises the expected log p(label | value)
    most, by posteriors of the labelled rows without their labels (H. W. Kuhn 1955,
    doi:10.1002/nav.3800020109).
    """
    if not problem.labels or not checks_data(problem.model):
        return params
    from scipy.optimize import linear_sum_assignment  # takes a while

    for label in problem.structure.labels():
        table = problem.labels.get(label.name)
        if table is None:
            continue
        rows = is_labelled(table).reshape(len(table), -1).any(-1).nonzero()[:, 0]
        some = map_tensors(lambda x: x[rows], problem.data)  # noqa: B023
        program, table = Program(problem.model, some), table[rows].clamp(min=-1e3)
        renamed = []
        for r in range(len(next(iter(params.values())))):
            own = {name: value[r] for name, value in params.items()}
            means = problem.structure.latent_means(program, own)[label.name].to(table)
            if table.dim() == means.dim() + 1:  # bits: bit k of the labels as bit l of the start
                gain = torch.einsum("nl,nk->lk", means, table[..., 1])
                gain = gain + torch.einsum("nl,nk->lk", 1 - means, table[..., 0])
                turned = torch.einsum("nl,nk->lk", 1 - means, table[..., 1])
                turned = turned + torch.einsum("nl,nk->lk", means, table[..., 0])
            else:
                gain = means.flatten(0, -2).mT @ table.flatten(0, -2)  # (l, k)
                turned = gain
            best = torch.maximum(gain, turned) if label.signs else gain
            if label.kinds is not None:
                apart = label.kinds[:, None] != label.kinds
                best = best - apart.to(best) * (1 + 2 * best.abs().max() * len(best))
            chosen, of = linear_sum_assignment(-best.cpu().numpy())
            order = torch.empty(len(best), dtype=torch.long)
            order[torch.as_tensor(of)] = torch.as_tensor(chosen)
            flips = (turned > gain)[order, torch.arange(len(best))] & label.signs
            one = {name: value.unsqueeze(0) for name, value in own.items()}
            renamed.append(label.rename(one, order, flips.cpu()))
        params = {name: torch.cat([one[name] for one in renamed]) for name in params}
    return params


def other_names(problem: Problem, params: Params, restart: int) -> Params:
    """Parameters (M, ...) of one restart with its labelled latents under other names.

    All orders of up to four latents, exchanges of two where there are more, and single flips.
    """
    one = {name: value[restart : restart + 1] for name, value in params.items()}
    out = [{name: value[:0] for name, value in one.items()}]
    for label in problem.structure.labels():
        if label.name not in (problem.labels or {}):
            continue
        size = label.features(one).shape[1]
        keep, flips = list(range(size)), torch.zeros(size, dtype=torch.bool)
        if size <= MOST_ORDERED:
            orders = [list(order) for order in itertools.permutations(keep)][1:]
        else:
            orders = []
            for first, second in itertools.combinations(keep, 2):
                order = keep.copy()
                order[first], order[second] = second, first
                orders.append(order)
        if label.kinds is not None:
            kinds = label.kinds.tolist()
            orders = [order for order in orders if [kinds[k] for k in order] == kinds]
        out += [label.rename(one, torch.tensor(order), flips) for order in orders]
        if label.signs:
            out += [label.rename(one, torch.tensor(keep), own) for own in torch.eye(size).bool()]
    return {name: torch.cat([own[name] for own in out]) for name in params}


def estimated_error(
    problem: Problem, known: Known, fit_at: Callable[[Problem, Any], Any], first: float
) -> tuple[Any, float]:
    r"""Fit with the share of wrong labels estimated, and that share.

    Alternately the model's parameters at :math:`\epsilon`, and

    .. math:: \epsilon = \frac{1}{L} \sum_{\text{labels}} P(z \notin \ell \mid x, \ell),

    its maximiser given the posteriors: neither lowers the log-posterior of parameters and labels.

    Args:
        problem: model and data; known: its labels, which name values.
        fit_at: a problem and parameters to start from, None for none, to a fit.
        first: share to begin with.
    """
    if any(own is None for own in known.allowed.values()):
        raise ValueError(
            "label_error: labels that name values were expected for their errors to be estimated,"
            " got chances, which say how sure they are"
        )
    result, error = None, first
    for _ in range(MOST_ROUNDS):
        tables = {
            site: log_table(own, error).to(known.tables[site])
            for site, own in known.allowed.items()
            if own is not None
        }
        problem = with_labels(problem, tables)
        result = fit_at(problem, result)
        before, error = error, _share_wrong(problem, known, result.params)
        if result.stopped or abs(error - before) < SETTLED * max(error, 0.01):
            break
    return result, before


def _share_wrong(problem: Problem, known: Known, params: Params) -> float:
    wrong, total = 0.0, 0.0
    weights = problem.weights if problem.rows is None else problem.rows.weights
    for place, part in _parts(problem):
        posteriors = _labelled_posteriors(part, params)
        for site, allowed in known.allowed.items():
            assert allowed is not None
            own = allowed[place]
            if posteriors[site].dim() == own.dim() == 3:  # steps of the block's sequences
                own = own[:, : posteriors[site].shape[1]]
            told = ~own.all(-1)
            often = torch.ones(len(own)) if weights is None else weights[place].cpu()
            often = often.double().reshape(-1, *(1,) * (told.dim() - 1)).expand(told.shape)[told]
            chances = posteriors[site].cpu().double()[told] * ~own[told]
            wrong += float(chances.sum(-1) @ often)
            total += float(often.sum())
    return min(max(wrong / max(total, 1), LEAST_ERROR), 1 - LEAST_ERROR)


def _problem_of_fit(fit: FitRecord, data: Any) -> Problem:
    """Model of a fit with other rows."""
    tensors, names = checked_as_fitted(fit, data)
    like = next(iter(fit.params.values()))  # the estimate's dtype and device
    if checks_data(fit.model):
        tensors = map_tensors(
            lambda x: x.to(like if x.is_floating_point() else like.device), tensors
        )
    return Problem(fit.model, tensors, names, fit.seed, True, fit.structure)


def posterior_given_labels(
    fit: FitRecord, data: Any, labels: Any, label_error: float | None = None
) -> dict[str, Tensor]:
    """Posterior of the latents of rows of which something is known.

    Args:
        fit: of any model that takes labels; data: the rows.
        labels: as ``fit`` takes them; label_error: None for that of the fit.

    Raises:
        ValueError: for labels that do not fit the rows.
    """
    data = as_fitted(fit, data)
    problem = _problem_of_fit(fit, data)
    error = (fit.label_error or 0.0) if label_error is None else check_error(label_error)
    known = known_of(problem, labels, error, fit.label_names, data)
    problem = dataclasses.replace(problem, labels=known.tables or None)
    return means_given_labels(fit.structure, problem, fit.params)


def probabilities_given_labels(
    fit: FitRecord, data: Any, labels: Any, site: str | None = None
) -> np.ndarray:
    """As :func:`inference.fitting.predict.probabilities`, given the labels of some rows."""
    means = posterior_given_labels(fit, data, labels)
    return as_array(means[one_latent("predict_proba", fit, list(means), site)])


def predicted_given_labels(
    fit: FitRecord, data: Any, labels: Any, site: str | None = None
) -> np.ndarray:
    """Most probable value of each latent by itself, given the labels of some rows.

    Shapes as :func:`inference.fitting.predict.predicted`.
    """
    means = posterior_given_labels(fit, data, labels)
    site = one_latent("predict", fit, list(means), site)
    latent = labelled_latents(fit.structure, _problem_of_fit(fit, data)).get(site)
    if latent is None or latent.is_binary:
        return as_array((means[site] > 0.5).long())
    modes = means[site].argmax(-1)
    return as_array(torch.where(means[site].sum(-1) > 0, modes, UNKNOWN))


def accuracy(fit: FitRecord, data: Any, labels: Any, site: str | None = None) -> float:
    """Share of the labels of held-back rows that the fit's prediction without them agrees with.

    Args:
        fit: of any model that takes labels.
        data: the rows; labels: of some of them, as ``fit`` takes them.
        site: the latent, which may be left out where there is one.

    Raises:
        ValueError: for rows that the fit itself was told of, or no labels.
    """
    problem = _problem_of_fit(fit, data)
    known = known_of(problem, labels, 0.0, fit.label_names, data)
    if site is None and len(known.allowed) == 1:
        (site,) = known.allowed
    own = known.allowed.get(site or "")
    if own is None:
        raise ValueError(
            "accuracy: labels that name values of one latent were expected,"
            f" got {sorted(known.allowed) or 'none'}"
        )
    told = ~own.all(-1)
    before = (fit.labels or {}).get(site or "")
    if before is not None and before.shape == own.shape:
        again = told & is_labelled(before).cpu()
        if bool(again.any()):
            raise ValueError(
                f"accuracy: rows that were held back were expected, and the fit was told the labels"
                f" of {counted(int(again.sum()), 'entry', 'entries')} of these: give -1 there"
            )
    found = torch.as_tensor(predicted(fit, data, site)).long().clamp(min=0)
    right = own.gather(-1, found.reshape(told.shape).unsqueeze(-1)).squeeze(-1)
    return float(right[told].double().mean())


def _labelled_posteriors(problem: Problem, params: Params) -> Params:
    """Posterior of each labelled latent given data and labels, (N, ..., V), by site."""
    means = means_given_labels(problem.structure, problem, params)
    return {
        site: means[site]
        if means[site].dim() == table.dim()
        else torch.stack([1 - means[site], means[site]], -1)
        for site, table in (problem.labels or {}).items()
    }

"""Data that a model could have made, and what users make of such data before they pass it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from fuzz.draw import Draw
from support.odd_columns import LABELS, NUMBERS, REFUSED

HUGE = (1e308, -1e308, 1e154, 1e30, 1e15, 2.0**53 + 2, 1e-320, -0.0, 1e-12)


def plain(draw: Draw, model: Any) -> Any:
    """Rows that fit the model: a table (N, J), or sequences as a dict."""
    rows = draw.choice((1, 2, 3, 6, 8, 9, 10, 12, 12))
    if hasattr(model, "num_actions"):
        return _sequences(draw, model, rows)
    if type(model).__name__ == "AttributeGroups":
        answers = plain(draw, model.model)
        return np.column_stack([answers, np.arange(len(answers)) % len(model.groups)])
    items = getattr(model, "num_items", 3)
    if getattr(model, "q_matrix", None) is not None:
        items = len(model.q_matrix)
    if type(model).__name__ == "InClassNet":
        items = sum(own if isinstance(own, int) else len(own) for own in model.variates)
    if not isinstance(items, int) or items > 50:
        items = 3
    kinds = _kinds(model, items)
    table = np.stack([_column(draw, kind, rows) for kind in kinds], 1)
    if draw.chance(0.1):
        table = np.where(draw.rng.random(table.shape) < 0.15, np.nan, table)
    return table


def _kinds(model: Any, items: int) -> list[str]:
    family = getattr(model, "response", None) or getattr(model, "component", None)
    if family is not None and hasattr(family, "blocks"):
        try:
            return [
                type(own).__name__
                for own, columns, _ in family.blocks(items)
                for _ in range(columns.stop - columns.start)
            ]
        except (ValueError, TypeError):
            return ["Normal"] * items
    name = type(model).__name__
    if "Or" in name or "Attribute" in name:
        return ["Bernoulli"] * items
    if "Poisson" in name or "Binomial" in name or "Usage" in name:
        return ["Poisson"] * items
    if getattr(model, "nonnegative", False) is True or "Sparse" in name:
        return ["LogNormal"] * items
    return ["Normal"] * items


def _column(draw: Draw, kind: str, rows: int) -> np.ndarray:
    rng = draw.rng
    group = rng.random(rows) < 0.5
    if kind == "Bernoulli":
        return (rng.random(rows) < np.where(group, 0.8, 0.2)).astype(float)
    if kind in ("Poisson", "NegativeBinomial"):
        return rng.poisson(np.where(group, 6.0, 1.0)).astype(float)
    values = np.where(group, 2.0, -1.0) + 0.5 * rng.standard_normal(rows)
    return np.exp(values) if kind == "LogNormal" else values


def _sequences(draw: Draw, model: Any, rows: int) -> dict[str, Any]:
    steps, actions = draw.integer(1, 6), _small(model.num_actions)
    action = draw.rng.integers(0, actions, (rows, steps))
    if hasattr(model, "num_states"):
        state: Any = draw.rng.integers(0, _small(model.num_states), (rows, steps))
    else:
        state = draw.rng.standard_normal((rows, steps, _small(model.num_features)))
    out = {"state": state, "action": action}
    if draw.chance(0.5):
        out["length"] = draw.rng.integers(1, steps + 1, rows)
    return out


def _small(value: Any) -> int:
    return value if isinstance(value, int) and 1 <= value <= 50 else 2


def attacked(draw: Draw, data: Any) -> Any:
    """The data as a careless or unlucky user would pass them."""
    if isinstance(data, dict):
        return _attacked_sequences(draw, data)
    for _ in range(draw.choice((1, 1, 2))):
        change = draw.choice(CHANGES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (
                isinstance(data, np.ndarray)
                and data.ndim == 2
                and data.dtype.kind == "f"
                and data.size
            ):
                data = change(draw, data)
    return data


def _attacked_sequences(draw: Draw, data: dict[str, Any]) -> Any:
    out = dict(data)
    name = draw.choice(sorted(out))
    what = draw.integer(0, 9)
    if what == 0:
        del out[name]
    elif what == 1:
        out[name] = draw.hostile()
    elif what == 2:
        out[name] = np.asarray(out[name])[:1]
    elif what == 3:
        out[name] = np.asarray(out[name]) + 1000
    elif what == 4:
        out[name] = np.where(draw.rng.random(np.shape(out[name])) < 0.3, -1, out[name])
    elif what == 5:
        out[name] = np.where(draw.rng.random(np.shape(out[name])) < 0.3, np.nan, out[name])
    elif what == 6:
        out[name] = torch.as_tensor(np.array(out[name]))
    elif what == 7:
        out["extra"] = [1, 2]
    elif what == 8:
        out[name] = np.asarray(out[name]).astype(
            draw.choice(["float32", "int8", "object", "str", "complex64", "uint64"])
        )
    else:
        return draw.choice([list(out.values()), pd.DataFrame({"a": [1]}), None, out[name]])
    return out


def _sprinkled(
    draw: Draw, table: np.ndarray, values: tuple[float, ...], share: float = 0.1
) -> np.ndarray:
    out = table.copy()
    if not out.size:
        return out
    for _ in range(max(1, int(share * out.size))):
        out[tuple(draw.integer(0, size - 1) for size in out.shape)] = draw.choice(values)
    return out


def _constant(draw: Draw, table: np.ndarray) -> np.ndarray:
    out = table.copy()
    out[:, draw.integer(0, table.shape[1] - 1)] = draw.choice((0.0, 1.0, 3.0, -2.0, 1e-3))
    return out


def _doubled(draw: Draw, table: np.ndarray) -> np.ndarray:
    out = table.copy()
    out[:, -1] = out[:, 0]
    return out


def _frame(draw: Draw, table: np.ndarray) -> Any:
    columns = table.shape[1]
    names = draw.choice(
        [
            [f"item {j}" for j in range(columns)],
            ["a"] * columns,
            list(range(columns)),
            [""] * columns,
            ["\n\x00<b>&" + "é" * j for j in range(columns)],
            [None, *range(1, columns)][:columns],
            [("a", j) for j in range(columns)],
        ]
    )
    frame = pd.DataFrame(table)
    frame.columns = names
    what = draw.integer(0, 7)
    if what == 0:
        return frame.astype(object)
    if what == 1:
        return frame.astype(str)
    if what == 2:
        return frame.astype("Float64")
    if what == 3:
        return frame.astype("float64").astype(
            "category"
        )  # pandas takes numbers of this machine's byte order alone
    if what == 4:
        frame[frame.columns[0]] = pd.Timestamp("2020-01-01")
        return frame
    if what == 5:
        return frame.set_axis(draw.rng.permutation(len(frame)))
    if what == 6:
        return frame.iloc[:0]
    return frame


def _dtype(draw: Draw, table: np.ndarray) -> Any:
    names = [
        "float16",
        "float32",
        "int64",
        "int8",
        "uint8",
        "bool",
        "complex128",
        "object",
        "str",
        ">f8",
        "longdouble",
        "datetime64[s]",
    ]
    return np.nan_to_num(table).astype(draw.choice(names))


def _tensor(draw: Draw, table: np.ndarray) -> Any:
    value = torch.from_numpy(table.astype(table.dtype.newbyteorder("=")))
    kinds: list[Callable[[torch.Tensor], Any]] = [
        lambda x: x,
        lambda x: x.float(),
        lambda x: x.half(),
        lambda x: x.bfloat16(),
        lambda x: x.nan_to_num().long(),
        lambda x: x.nan_to_num().bool(),
        lambda x: x.to(torch.complex64),
        lambda x: x.to_sparse(),
        lambda x: x.requires_grad_(),
        lambda x: x.to("meta"),
        lambda x: x.mT.contiguous().mT,
        lambda x: x[None],
        lambda x: x[:, 0],
        lambda x: x.nan_to_num().to(torch.uint8),
    ]
    return draw.choice(kinds)(value)


def _objects(draw: Draw, table: np.ndarray) -> Any:
    """Objects, some of which say in one way or another that they are missing."""
    out = table.astype(object)
    for _ in range(draw.integer(1, 3)):
        if out.size:
            out[tuple(draw.integer(0, size - 1) for size in out.shape)] = draw.choice(
                (pd.NA, None, float("nan"), pd.NaT)
            )
    return draw.choice(
        [
            lambda x: x,
            lambda x: x.tolist(),
            pd.DataFrame,
            lambda x: pd.DataFrame(x).convert_dtypes(),
        ]
    )(out)


def _backwards(draw: Draw, table: np.ndarray) -> Any:
    """One row, or one column, from its end."""
    one = table[:1] if draw.chance(0.7) else table[:, :1]
    return one[::-1] if draw.chance(0.5) else one[::-1, ::-1]


def _misread(draw: Draw, table: np.ndarray) -> Any:
    """A column as a careless export holds it."""
    frame = pd.DataFrame(table)
    kinds = NUMBERS | LABELS | REFUSED
    if len(frame) >= 4 and len(frame.columns):
        frame[frame.columns[-1]], _ = kinds[draw.choice(sorted(kinds))](draw.rng, len(frame))
    return frame


def _masked(draw: Draw, table: np.ndarray) -> Any:
    return np.ma.masked_array(table, mask=draw.rng.random(table.shape) < 0.3)


def _frozen(draw: Draw, table: np.ndarray) -> np.ndarray:
    table = table.copy()
    table.flags.writeable = False
    return table


CHANGES: list[Callable[[Draw, np.ndarray], Any]] = [
    lambda draw, x: _sprinkled(draw, x, (np.nan,), 0.3),
    lambda draw, x: _sprinkled(draw, x, (np.inf, -np.inf)),
    lambda draw, x: _sprinkled(draw, x, HUGE),
    lambda draw, x: _sprinkled(draw, x, (0.5, -1.0, 2.0, 1e9)),
    lambda draw, x: np.full_like(x, np.nan),
    lambda draw, x: np.zeros_like(x),
    lambda draw, x: np.ones_like(x),
    lambda draw, x: x * draw.choice(HUGE),
    lambda draw, x: x * 1e-9,
    lambda draw, x: x + 1e9,
    lambda draw, x: np.round(x * 1e6),
    lambda draw, x: x[:0],
    lambda draw, x: x[:1],
    lambda draw, x: x[:, :0],
    lambda draw, x: x[:, :1],
    lambda draw, x: np.concatenate([x, x], 1),
    lambda draw, x: np.repeat(x[:1], 9, 0),
    lambda draw, x: x[::-1, ::-1],
    lambda draw, x: np.asfortranarray(x),
    lambda draw, x: x.T,
    lambda draw, x: x[None],
    lambda draw, x: x.ravel(),
    lambda draw, x: x.tolist(),
    lambda draw, x: [list(map(str, row)) for row in x.tolist()],
    lambda draw, x: [*x.tolist(), [1.0]],
    lambda draw, x: {str(j): x[:, j] for j in range(x.shape[1])},
    lambda draw, x: iter(x.tolist()),
    lambda draw, x: draw.hostile(),
    _constant,
    _doubled,
    _frame,
    _frame,
    _dtype,
    _dtype,
    _tensor,
    _tensor,
    _masked,
    _frozen,
    _objects,
    _objects,
    _backwards,
    _misread,
]

"""Files and command lines, sound and damaged."""

from __future__ import annotations

import functools
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from fuzz.draw import Draw
from torch import Tensor


def damaged(draw: Draw, content: bytes) -> bytes:
    """Bytes cut off, flipped, doubled, or put in."""
    what, size = draw.integer(0, 6), len(content)
    at = draw.integer(0, max(0, size - 1))
    if what == 0:
        return content[:at]
    if what == 1:
        return content[at:]
    if what == 2:
        return content + draw.random.randbytes(draw.integer(1, 20))
    if what == 3:
        return content[:at] + draw.random.randbytes(draw.integer(1, 8)) + content[at:]
    if what == 4:
        head = draw.choice((0, 2**40, 2**63 - 1, size, 8))
        return struct.pack("<Q", head) + content[8:]
    out = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 20))):
        if out:
            out[draw.integer(0, size - 1)] ^= 1 << draw.integer(0, 7)
    return bytes(out)


def change_record(draw: Draw, record: dict[str, Any]) -> None:
    """A field of a JSON record, at any depth, removed or replaced."""
    place: Any = record
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and draw.chance(0.7):
            place = place[key]
            continue
        if draw.chance(0.3):
            del place[key]
        elif draw.chance(0.1) and isinstance(place, dict):
            place["strange"] = 1
        else:
            place[key] = draw.choice(
                [
                    None,
                    True,
                    0,
                    -1,
                    2.5,
                    10**30,
                    "x",
                    "inference:EM",
                    "os:system",
                    [],
                    {},
                    {"tensor": "x"},
                    {"tensor": "params.weights"},
                    {"float": "nan"},
                    {"float": "x"},
                    {"record": "inference:EM", "fields": {}},
                    {"tuple": [1]},
                    {"dict": 3},
                    {"function": "f"},
                ]
            )
        return


def change_tensors(draw: Draw, tensors: dict[str, Tensor]) -> None:
    """A tensor removed, reshaped, of another kind, or with values it cannot have."""
    name = draw.choice(sorted(tensors))
    value = tensors[name]
    what = draw.integer(0, 6)
    if what == 0:
        del tensors[name]
    elif what == 1:
        tensors[name] = value.reshape(-1)[: max(0, value.numel() - 1)].clone()
    elif what == 2:
        tensors[name] = value.unsqueeze(0).clone()
    elif what == 3:
        tensors[name] = value.to(
            draw.choice((torch.float32, torch.long, torch.bool, torch.complex64))
        )
    elif what == 4:
        tensors[name] = (
            torch.full_like(value, draw.choice((float("nan"), float("inf"), -5.0, 7.0)))
            if value.is_floating_point()
            else value + 100
        )
    elif what == 5:
        tensors[draw.choice(sorted(tensors))] = value.clone()
    else:
        tensors["strange"] = torch.ones(2)


# ---------------------------------------------------------------- tables


def written(draw: Draw, folder: Path) -> str:
    """A file of data, most often with something wrong in it."""
    kind = draw.choice(("csv", "csv", "tsv", "npy", "npz", "parquet"))
    content = _sound(kind, draw.integer(0, 2))
    what = draw.integer(0, 9)
    if what in (0, 1, 2):
        content = damaged(draw, content)
    elif what == 3:
        content = draw.choice(
            [
                b"",
                b"\n",
                b"\xef\xbb\xbf",
                b"\xff\xfe",
                b"\x00" * 50,
                b"a,b\n",
                b"1",
                b'"',
                b"a;b\n1;2\n",
                b"a,a\n1,2\n",
                b"a,b\n1\n",
                b"a,b\n1,inf\n",
                b"a,b\n1,1e999\n",
                b"a,b\n1,1_0\n",
                b"a,b\n0x1,2\n",
                "ä,ö\n1,٣\n".encode(),
                b"\x93NUMPY",
                b"PK\x03\x04",
                b"PAR1",
                b"a," * 5000 + b"b\n1",
                b"a,b\r1,2\r",
                b"a\tb\n1\t2\n",
                b",\n,\n",
                b"-,--\n1,2\n",
                b'a,b\n"1,2\n',
            ]
        )
    elif what == 4 and kind in ("csv", "tsv"):
        lines = content.decode().splitlines()
        place = draw.integer(0, len(lines) - 1)
        lines[place] = draw.choice(
            [
                "",
                "x",
                ",,,",
                lines[place] + ",1",
                "nan,nan,nan",
                "1e400,2,3",
                "\x00,1,2",
                '"',
                "True,False,True",
                "1,2,3 ",
            ]
        )
        content = "\n".join(lines).encode()
    elif what == 5 and kind == "npy":
        content = _header(draw)
    elif what == 6:
        kind = draw.choice(("csv", "npy", "parquet", "npz", "txt", "CSV", "xlsx", "csv.gz", ""))
    path = folder / f"table.{kind}"
    path.write_bytes(content)
    if draw.chance(0.08):
        return draw.choice(
            [
                str(folder),
                str(folder / "absent.csv"),
                str(path) + ":x",
                "",
                "\x00.csv",
                "a\x00.npy",
                str(path / "x.csv"),
                "/dev/null",
                "x" * 5000 + ".csv",
            ]
        )
    return str(path)


@functools.cache
def _sound(kind: str, seed: int) -> bytes:
    table = (np.random.default_rng(seed).random((20, 3)) < 0.5).astype(float)
    frame, stream = pd.DataFrame(table, columns=["a", "b", "c"]), io.BytesIO()
    if kind in ("csv", "tsv"):
        return frame.to_csv(index=False, sep="," if kind == "csv" else "\t").encode()
    if kind == "npy":
        np.save(stream, table)
    elif kind == "npz":
        np.savez(stream, **({"x": table} if seed else {"x": table, "y": table}))
    else:
        frame.to_parquet(stream)
    return stream.getvalue()


def _header(draw: Draw) -> bytes:
    shape = draw.choice(
        [
            "(10**12, 3)",
            "(1000000000000, 3)",
            "(-1, 3)",
            "(2, 3",
            "()",
            "(0, 3)",
            "(20, 0)",
            "(99999999999999999999, 3)",
            "(20,)",
            "20",
            "('a', 3)",
            "(20.0, 3)",
        ]
    )
    kind = draw.choice(
        [
            "'<f8'",
            "'|O'",
            "'<U3'",
            "'<c16'",
            "'<M8[s]'",
            "[('a', '<f8')]",
            "'x'",
            "3",
            "'|b1'",
            "'>i2'",
            "'<f2'",
        ]
    )
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    head = text.encode() + b" " * 20 + b"\n"
    return (
        b"\x93NUMPY\x01\x00"
        + struct.pack("<H", len(head))
        + head
        + b"\x00" * draw.choice((0, 16, 480))
    )


# ---------------------------------------------------------------- command lines


ODD = [
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "x",
    "1e9",
    "99999999999999999999",
    "2,1",
    "1,2",
    "2,2",
    "3,",
    ",",
    "a b",
    "é",
    "\x00",
    "1:2",
    "2:1",
    "1:3",
    "none",
    "auto",
    "--help",
    "-",
    "--out",
]


def command(draw: Draw, folder: Path) -> list[str]:
    """Words of a command line."""
    from typer.main import get_command

    from inference.cli.main import app

    words: list[str] = []
    place: Any = get_command(app)
    while hasattr(place, "commands"):
        name = draw.choice(sorted(place.commands))
        if name in ("demo", "study"):
            name = "fit" if "fit" in place.commands else sorted(place.commands)[0]
        words.append(name)
        place = place.commands[name]
        if draw.chance(0.02):
            words.append("absent")
            return words
    options = [
        own for own in place.params if own.param_type_name == "option" and own.name != "help"
    ]
    for own in place.params:
        if own.param_type_name == "argument" and draw.chance(0.97):
            words.append(written(draw, folder) if draw.chance(0.9) else draw.choice(ODD))
    for own in options:
        required = own.required or own.name == "out"
        if not draw.chance(0.97 if required else 0.25):
            continue
        flag = own.opts[0]
        if own.is_flag:
            words.append(flag)
        elif own.name == "out":
            words += [
                flag,
                draw.choice(
                    [
                        str(folder / "out"),
                        str(folder / "out"),
                        str(folder),
                        str(folder / "table.csv"),
                        "\x00",
                        "/proc/x",
                        "/dev/null/x",
                    ]
                ),
            ]
        else:
            words += [flag, _word(draw, own, folder)]
    return words


def _word(draw: Draw, own: Any, folder: Path) -> str:
    choices = getattr(getattr(own, "type", None), "choices", None)
    if draw.chance(0.25):
        return draw.choice(ODD)
    if choices:
        return str(getattr(draw.choice(list(choices)), "value", draw.choice(list(choices))))
    plain = {
        "latents": "2",
        "response": draw.choice(
            ("bernoulli", "normal", "poisson", "bernoulli:2,normal:1", "bernoulli:99")
        ),
        "seed": "1",
        "restarts": "1",
        "penalty": "none",
        "components": "2",
        "grid": "1:2",
        "graph": str(folder / "table.csv"),
        "checkpoint": str(folder / "running"),
        "image_shape": "1,3",
        "states": "2",
        "actions": "2",
        "options": "2",
        "choose": "1..2",
        "columns": "a,b",
        "keep": "a",
    }
    return plain.get(own.name, draw.choice(("1", "2", "0.5", "1:2", *ODD)))

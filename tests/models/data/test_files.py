"""Tables from files of every kind, and files that are none."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppl_models.data.files import read_frame
from ppl_models.datasets import read_table

VALUES = np.array([[0.0, 1.5], [np.nan, -2.0], [3.0, 4e-3]])


def write(path: Path, frame: pd.DataFrame) -> Path:
    match path.suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".tsv":
            frame.to_csv(path, index=False, sep="\t")
        case ".parquet":
            frame.to_parquet(path)
        case ".npy":
            np.save(path, frame.to_numpy())
        case ".npz":
            np.savez(path, only=frame.to_numpy())
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "npy", "npz"])
def test_every_kind_of_file_gives_the_same_table(tmp_path, ending):
    table = read_table(
        write(tmp_path / f"data.{ending}", pd.DataFrame(VALUES, columns=["height", "weight, kg"]))
    )
    assert table.values.dtype == np.float64
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.names == (("0", "1") if ending.startswith("np") else ("height", "weight, kg"))


@pytest.mark.parametrize("ending", ["parquet", "npy", "npz"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "bool"])
def test_whole_numbers_and_booleans_become_float64(tmp_path, ending, dtype):
    table = read_table(
        write(tmp_path / f"data.{ending}", pd.DataFrame({"a": [0, 1], "b": [1, 1]}).astype(dtype))
    )
    assert table.values.dtype == np.float64
    assert table.values.tolist() == [[0.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("a,b\n1,2\n\n3,4\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("\ufeffa, b\r\n1, 2\r\n", ("a", "b"), [[1, 2]]),
        ("1,0\n0,1\n", ("0", "1"), [[1, 0], [0, 1]]),  # numbers only: no names
        ("0,1\n0,1\n", ("0", "1"), [[0, 1], [0, 1]]),  # two columns: a row, not names
        ("0,1,2\n5,6,7\n", ("0", "1", "2"), [[5, 6, 7]]),  # counts its columns: names
        ("1,2,3\n5,6,7\n", ("1", "2", "3"), [[5, 6, 7]]),
        ("NA,1,2\n5,6,7\n", ("0", "1", "2"), [[np.nan, 1, 2], [5, 6, 7]]),
        ("a,b,c,d\n,NA,NaN,null\n1,2,3,4\n", ("a", "b", "c", "d"), [[np.nan] * 4, [1, 2, 3, 4]]),
        ('item_1,"item, 2"\n1e3,-inf\n', ("item_1", "item, 2"), [[1000, -np.inf]]),
        ("a\n1\n2\n", ("a",), [[1], [2]]),
    ],
)
def test_text_tables(tmp_path, text, names, values):
    (tmp_path / "data.csv").write_text(text, encoding="utf-8", newline="")
    table = read_table(tmp_path / "data.csv")
    assert table.names == names
    np.testing.assert_array_equal(table.values, np.array(values, dtype=float))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", b"", "the file is empty"),
        ("data.npy", b"", "the file is empty"),
        ("data.csv", b"\n\n", "holds no line with an entry"),
        ("data.csv", b"a,b\n", "at least one row and one column were expected, got 0 x 2"),
        (
            "data.csv",
            b"a,b\n1,2\n3,tall\n5,wide\n",
            r"column 'b', row 1 \(line 3\): a number was expected, got 'tall'",
        ),
        (
            "data.csv",
            b"a,b\n1,2\n\n3,1_0\n",
            r"column 'b', row 1 \(line 4\): a number was expected, got '1_0'",
        ),
        (
            "data.csv",
            b"1,2\n3,tall\n",
            r"column 1, row 1 \(line 2\): a number was expected, got 'tall'",
        ),
        ("data.csv", b"a,b\n1,2\n1,2,3\n", "line 3 has 3 entries, where 2 were expected"),
        ("data.csv", b"a,b\n1\n", "line 2 has 1 entries, where 2 were expected"),
        ("data.csv", b"a,b,a\n1,2,3\n", "two columns are named 'a'"),
        ("data.csv", b",a,b\n0,1,2\n", "column 0 has no name; if it holds row labels"),
        ("data.csv", b"a;b\n1;2\n", "separated by commas were expected, got semicolons: 'a;b'"),
        ("data.tsv", b"a,b\n1,2\n", "separated by tabs were expected, got commas"),
        (
            "data.csv",
            b'a,b\n"1,2\n',
            "line 2: comma-separated text was expected, but unexpected end of data",
        ),
        ("data.csv", b"a,b\n1,\xff\n", "UTF-8 text was expected, got byte 0xff at 6; save the"),
        ("data.csv", "a,b\n1,2\n".encode("utf-16"), "looks like text in UTF-16, to be saved in"),
        (
            "data.csv",
            b"PAR1abcdef",
            "promises comma-separated text, but the content looks like parquet",
        ),
        (
            "data.csv",
            b"\x93NUMPY\x01\x00",
            "promises comma-separated text, but the content looks like npy",
        ),
        ("data.tsv", b"a\tb\n\x00\x00", "promises tab-separated text, but the first bytes"),
        ("data.npy", b"a,b\n1,2\n", "promises npy, but the first bytes are b'a,b"),
        ("data.npz", b"a,b\n1,2\n", "promises npz, but the first bytes"),
        ("data.npz", b"\x93NUMPY\x01\x00", "promises npz, but the content looks like npy"),
        ("data.parquet", b"a,b\n1,2\n", "promises parquet, but the first bytes"),
        ("data.parquet", b"PAR1PAR1PAR1", "the file is damaged"),
        ("data.npy", b"\x93NUMPY\x01\x00", "data.npy: "),
        (
            "data.xlsx",
            b"PK\x03\x04",
            (
                "a file ending in .csv, .tsv, .txt, .parquet, .arrow, .feather, .npy, .npz was"
                " expected, got '.xlsx'"
            ),
        ),
        ("data", b"1,2\n", "was expected, got 'no ending'"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_table(tmp_path / name)
    assert name in str(raised.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"absent.csv: no such file"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match=r"folder.csv: a file was expected, got a folder"):
        read_table(str(tmp_path / "folder.csv"))


class Executed:
    """Unpickling it leaves a trace."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_nothing_is_unpickled(tmp_path, ending):
    trace, file = tmp_path / "trace", tmp_path / f"data.{ending}"
    objects = np.array([[Executed(str(trace))]], dtype=object)
    if ending == "npy":
        np.save(file, objects, allow_pickle=True)
    else:
        np.savez(file, objects)
    with pytest.raises(ValueError, match="Python objects; they are not read") as raised:
        read_table(file)
    assert "allow_pickle" not in str(raised.value)
    (tmp_path / "plain.npy").write_bytes(pickle.dumps(Executed(str(trace))))
    with pytest.raises(ValueError, match="promises npy"):
        read_table(tmp_path / "plain.npy")
    assert not trace.exists()


def test_an_archive_of_several_arrays_wants_a_name(tmp_path):
    file = tmp_path / "data.npz"
    np.savez(file, train=VALUES, test=VALUES[:1], words=np.array(["a"]), cube=np.zeros((1, 2, 3)))
    with pytest.raises(
        ValueError,
        match=(
            r"one array was expected, got 4: train, test, words, cube; name one by .*data.npz:NAME"
        ),
    ):
        read_table(file)
    with pytest.raises(ValueError, match=r"no array is named 'valid'; there are: train, test"):
        read_table(f"{file}:valid")
    with pytest.raises(ValueError, match="array 'words' holds strings, first 'a'"):
        read_table(f"{file}:words")
    with pytest.raises(
        ValueError, match=r"a table \(rows, items\) was expected, got an array of shape \(1, 2, 3\)"
    ):
        read_table(f"{file}:cube")
    np.testing.assert_array_equal(read_table(f"{file}:test").values, VALUES[:1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"array of shape \(3,\)"),
        (np.zeros((0, 3)), "got 0 x 3"),
        (np.zeros((3, 0)), "got 3 x 0"),
        (np.array([["x", "1"]]), "holds strings, first 'x'"),
        (np.array([[1j]]), "holds complex numbers"),
        (np.array([("a", 1)], dtype=[("s", "U1"), ("n", "i4")]), "holds records"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "holds dates"),
    ],
)
def test_arrays_that_are_no_table_of_numbers_are_refused(tmp_path, values, message):
    np.save(tmp_path / "data.npy", values)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "data.npy")


def test_parquet_columns(tmp_path):
    file = tmp_path / "data.parquet"
    frame = pd.DataFrame(
        {
            "a": pd.array([1, None], dtype="Int64"),
            "b": pd.Categorical([3, 4]),
            "empty": [None, None],
        },
        index=["x", "y"],
    )
    frame.to_parquet(file)
    table = read_table(file)
    assert table.names == ("a", "b", "empty")  # without the index
    np.testing.assert_array_equal(table.values, [[1, 3, np.nan], [np.nan, 4, np.nan]])
    pd.DataFrame({"a": [1.0, 2.0], "b": [None, "tall"]}).to_parquet(file)
    with pytest.raises(ValueError, match=r"column 'b', row 1: a number was expected, got 'tall'"):
        read_table(file)


def npy(header: str, body: bytes = b"\0" * 64) -> bytes:
    text = header.encode("latin1")
    text += b" " * (-(11 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def shaped(shape: str) -> bytes:
    return npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_npy", ".npy"), content)
    return out.getvalue()


SHAPES = [
    "(9999999999, 9999999999)",
    "(99999999999999999999999, 2)",
    "(1000000000000, 2)",
    "(True, 2)",
    "('a', 2)",
    "(1.5, 2)",
    "None",
    "(2, 3, 4)",
]
SHAPES += (
    ["(-1, 2)"] if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else []
)  # which numpy 1 takes for "as many as there are"


@pytest.mark.parametrize("shape", SHAPES)
def test_absurd_shapes_in_the_header_of_an_array_are_refused(tmp_path, shape):
    """Failed before: OverflowError, MemoryError, TypeError."""
    for name, content in (("x.npy", shaped(shape)), ("x.npz", zipped(x_npy=shaped(shape)))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: ") as refused:
            read_table(tmp_path / name)
        assert "\n" not in str(refused.value)


BROKEN = {
    "parentheses.npy": npy("(" * 5000),
    "no_header.npy": b"\x93NUMPY",
    "long_header.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xffx",
    "code.npy": npy("__import__('os').abort()"),
    "no_kind.npy": npy("{'descr': 5, 'fortran_order': False, 'shape': (2, 2), }"),
    "no_arrays.npz": zipped(),
    "text.npz": zipped(x=b"hello"),
    "cut.npz": zipped(x_npy=shaped("(2, 2)"))[:90],
    "ends.parquet": b"PAR1" + b"\0" * 20 + b"PAR1",
    "long_field.csv": b"a," + b"b" * 200_000 + b"\n1,2\n",
    "latin.csv": b"a,b\n1,\xe9\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(BROKEN[name])
    with pytest.raises(ValueError, match=name) as refused:
        read_table(tmp_path / name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "csv"])
def test_changed_bytes_are_read_or_refused_by_name(tmp_path, ending):
    """A few bytes of a good file changed, cut or put in: whatever comes, it is a table or a
    ValueError with the name of the file.
    """
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [1.5, float("nan")]})
    good, path = tmp_path / f"good.{ending}", tmp_path / f"changed.{ending}"
    {
        "npy": lambda: np.save(good, frame),
        "npz": lambda: np.savez(good, x=frame),
        "parquet": lambda: frame.to_parquet(good),
        "csv": lambda: frame.to_csv(good, index=False),
    }[ending]()
    content, rng, refused = good.read_bytes(), random.Random(7), 0
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(changed))
            if rng.random() < 0.8:
                changed[at] = rng.randrange(256)
            else:
                changed[at:] = b"" if rng.random() < 0.5 else changed[at // 2 :]
            changed = changed or bytearray(b"x")
        path.write_bytes(changed)
        try:
            table = read_table(path)
        except ValueError as error:
            refused += 1
            said = str(error)
            assert said.startswith(str(path))  # noqa: PT017
            assert "\n" not in said  # noqa: PT017
            continue
        assert table.values.ndim == 2
    assert refused


def test_paths_that_are_none_are_refused(tmp_path):
    for path in (
        tmp_path,
        f"{tmp_path}/{'x' * 5000}.csv",
        "a\0b.csv",
        tmp_path / "file.csv" / "inside.csv",
    ):
        (tmp_path / "file.csv").write_text("a\n1\n")
        with pytest.raises(ValueError, match=r"no such file|cannot be read|a file ending in"):
            read_table(path)


def test_names_of_rows(tmp_path):
    path = tmp_path / "q.csv"
    for head in ("item,add,carry\n", ",add,carry\n", ""):
        path.write_text(f"{head}one,1,0\ntwo,0,1\nthree,1,1\n")
        table = read_table(path, row_names=True)
        assert table.row_names == ("one", "two", "three")
        assert table.names == (("add", "carry") if head else ("0", "1"))
        assert table.values.tolist() == [[1, 0], [0, 1], [1, 1]]
    path.write_text("number,add,carry\n1,1,0\n2,0,1\n3,1,1\n")
    assert read_table(path, row_names=True).names == (
        "add",
        "carry",
    )  # what counts the rows is left out
    path.write_text("add,carry\n1,0\n0,1\n")
    table = read_table(path, row_names=True)
    assert table.row_names is None
    assert table.values.tolist() == [[1, 0], [0, 1]]
    for wrong in ("item,add\none,1\none,0\n", "item,add\none,1\n,0\n"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"row 1 is named .*; a name of its own"):
            read_table(path, row_names=True)
    path.write_text("item,add\none,x\n")
    with pytest.raises(ValueError, match="column 'add', row 0"):
        read_table(path, row_names=True)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_some_columns_of_a_file_that_holds_texts_beside_them(tmp_path, ending):
    frame = pd.DataFrame({"name": ["x", "y", "z"], "a": [1.0, 2.0, 3.0], "b": [np.nan, 5.0, 6.0]})
    path = write(tmp_path / f"data.{ending}", frame)
    table = read_table(path, columns=["b", "a"])
    assert table.names == ("b", "a")
    np.testing.assert_array_equal(table.values, [[np.nan, 1], [5, 2], [6, 3]])
    with pytest.raises(
        ValueError, match="no column is named 'c'; the columns are 'name', 'a', 'b'"
    ):
        read_table(path, columns=["a", "c"])
    with pytest.raises(ValueError, match="asked for twice, 'a'"):
        read_table(path, columns=["a", "a"])
    with pytest.raises(ValueError, match="at least one column"):
        read_table(path, columns=[])
    with pytest.raises(ValueError, match="column 'name', row 0"):
        read_table(path, columns=["a", "name"])


def test_columns_of_a_file_without_names_have_numbers(tmp_path):
    np.save(tmp_path / "data.npy", VALUES)
    np.savetxt(tmp_path / "data.csv", np.nan_to_num(VALUES), delimiter=",")
    for ending in ("npy", "csv"):
        table = read_table(tmp_path / f"data.{ending}", columns=["1"])
        assert table.names == ("1",)
        np.testing.assert_array_equal(
            np.nan_to_num(table.values[:, 0]), np.nan_to_num(VALUES)[:, 1]
        )


def test_texts_of_damaged_files_are_refused_by_name(tmp_path):
    for content, words in (
        ("a,b\n1\n", "line 2 has 1 entries"),
        ("a,a\n1,2\n", "two columns are named 'a'"),
        ("a,b\n", "at least one row"),
        ("", "is empty"),
        ("a;b\n1;2\n", "semicolons"),
    ):
        (tmp_path / "data.csv").write_text(content)
        with pytest.raises(ValueError, match=words) as error:
            read_frame(tmp_path / "data.csv")
        assert str(error.value).startswith(str(tmp_path))


@pytest.mark.parametrize("entry", ['"1"2', '1"2"', "nan(1)", "1_0", "0x1"])
def test_entries_that_a_csv_reader_might_take_for_a_number_are_refused(tmp_path, entry):
    """Arrow alone reads the first as 12, and a NaN with a payload; Python alone reads 1_0."""
    (tmp_path / "data.csv").write_text(f"a,b\n1,2\n3,{entry}\n")
    with pytest.raises(ValueError, match="line 3"):
        read_table(tmp_path / "data.csv")


def test_a_row_that_holds_its_name_alone_is_refused(tmp_path):
    """Failed before: the row was dropped."""
    (tmp_path / "data.csv").write_text("item,add\none,1\ntwo\nthree,0\n")
    with pytest.raises(ValueError, match="line 3 has 1 entries, where 2 were expected"):
        read_table(tmp_path / "data.csv", row_names=True)


def test_numbers_are_those_that_python_reads(tmp_path):
    rng = random.Random(1)
    texts = [repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-310, 300)) for _ in range(2000)]
    texts += ["+4", ".5", "5.", "1E5", "-0", "1e400", "4.9e-324", "-inf", "Infinity", "١٢", "-nan"]
    for extra in ([], ["\t7 "]):  # the second goes through Python's own numbers
        (tmp_path / "data.csv").write_text("\n".join(["x", *texts, *extra]), encoding="utf-8")
        values = read_table(tmp_path / "data.csv").values[:, 0]
        np.testing.assert_array_equal(values, [float(text) for text in texts + extra])

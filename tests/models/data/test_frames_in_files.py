"""Tables as R, pandas and signature tools write them: row names, ranges, tables on their side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppl_models.data.files import columns_chosen, long_columns, read_frame, read_table
from ppl_models.data.frames import from_long

FRAME = pd.DataFrame(
    {"age": [31.0, 42.5, 20.0, np.nan], "visits": [0, 3, 1, 2], "town": ["n", "s", None, "n"]},
    index=["ann", "bob", "cy", "di"],
)
WRITTEN = {
    "write.csv": (".csv", '"","age","visits","town"\n"ann",31,0,"n"\n"bob",42.5,3,"s"\n'),
    "write.table": (".txt", '"age" "visits" "town"\n"ann" 31 0 "n"\n"bob" 42.5 3 "s"\n'),
    "tabs": (".tsv", "name\tage\tvisits\ttown\nann\t31\t0\tn\nbob\t42.5\t3\ts\ncy\t20\t1\tn\n"),
    "tabs in txt": (".txt", "\tage\tvisits\ttown\nann\t31\t0\tn\nbob\t42.5\t3\ts\n"),
    "semicolons": (".txt", ";age;visits;town\nann;31;0;n\nbob;42.5;3;s\n"),
}


def written(tmp_path: Path, text: str, ending: str = ".csv") -> str:
    file = tmp_path / f"table{ending}"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("kind", WRITTEN)
def test_row_names_are_the_index(tmp_path: Path, kind: str) -> None:
    """Failed before: "column 0 has no name; if it holds row labels, write the file without"."""
    ending, text = WRITTEN[kind]
    frame = read_frame(written(tmp_path, text, ending))
    assert frame.columns.tolist() == ["age", "visits", "town"]
    assert frame.index[:2].tolist() == ["ann", "bob"]
    assert frame.iloc[1].tolist() == [42.5, 3.0, "s"]


def test_what_pandas_writes_comes_back(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "named.csv")
    back = read_frame(tmp_path / "named.csv")
    assert back.index.name == "row"
    pd.testing.assert_frame_equal(back.rename_axis(None), FRAME, check_dtype=False)
    FRAME.reset_index(drop=True).to_csv(tmp_path / "numbered.csv")
    assert read_frame(tmp_path / "numbered.csv").index.tolist() == [0, 1, 2, 3]


def test_ids_that_are_named(tmp_path: Path) -> None:
    file = written(tmp_path, "age,code\n30,7\n40,9\n50,8\n")
    assert read_frame(file).columns.tolist() == ["age", "code"]
    frame = read_frame(file, id="code")
    assert (frame.index.name, frame.index.tolist()) == ("code", [7, 9, 8])
    assert frame.columns.tolist() == ["age"]


def test_ids_of_an_array_keep_their_digits(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", [[1234567.0, 1], [1234568.0, 2], [2.0, 3]])
    assert read_frame(tmp_path / "a.npy", id="0").index.tolist() == [1234567, 1234568, 2]


def test_columns_are_chosen_by_ranges(tmp_path: Path) -> None:
    names = [f"E{j}" for j in range(1, 6)]
    file = written(tmp_path, f"{','.join(names)},age\n1,2,3,4,5,6\n2,2,3,4,5,7\n")
    assert read_frame(file, ["E2..E4", "age"]).columns.tolist() == ["E2", "E3", "E4", "age"]
    assert read_frame(file, drop=["E1..E4"]).columns.tolist() == ["E5", "age"]
    assert columns_chosen(file, ["E1..E3"], drop=["E2"]) == (["E1", "E3"], None)
    pd.DataFrame(np.ones((3, 2)), columns=["E1", "E2"]).to_parquet(tmp_path / "t.parquet")
    assert columns_chosen(tmp_path / "t.parquet", drop=["E1"]) == (["E2"], None)


def test_a_signature_matrix_is_turned(tmp_path: Path) -> None:
    text = "MutationType\ts1\ts2\nA[C>A]A\t3\t0\nA[C>A]C\t1\t5\nA[C>A]G\t2\t2\n"
    frame = read_frame(written(tmp_path, text, ".txt"), transpose=True)
    assert frame.index.tolist() == ["s1", "s2"]
    assert frame.columns.tolist() == ["A[C>A]A", "A[C>A]C", "A[C>A]G"]
    assert frame.to_numpy().tolist() == [[3, 1, 2], [0, 5, 2]]
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    assert read_frame(tmp_path / "a.npy", transpose=True).shape == (3, 2)


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (
            "name,code,x\na,k,1\nb,l,2\nc,m,3\n",
            {},
            "'name' and 'code' both name every row: say which is the id .*--drop code",
        ),
        (
            "name,x\na,1\na,2\nb,3\n",
            {"id": "name"},
            "'name' names the rows, but 'a' is there twice",
        ),
        ("name,x\na,1\n,2\nb,3\n", {"id": "name"}, "but one is missing in row 1"),
        ("name,x\na,1\nb,2\nc,3\n", {"id": "who"}, "no column is named 'who'"),
        ("a,b\n1,2\n3,4\n", {"drop": ["c"]}, "no column is named 'c'"),
        ("a,b\n1,2\n3,4\n", {"drop": ["a..b"]}, "at least one column was expected, and none"),
        ("a,b\n1,2\n3,4\n", {"columns": ["b..a"]}, "b..a: column 'a' stands before 'b'"),
        ("a,b\n1,x\n3,4\n", {}, "column 'b' holds numbers, and 'x' in row 0"),
        ("a,b\n1,x\n3,4\n", {"numbers": True}, "row 0 \\(line 2\\): a number was expected"),
        (",x\na,1\na,2\n", {}, "'row' names the rows, but 'a' is there twice"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_frame(written(tmp_path, text), **settings)


def test_dates_do_not_name_rows(tmp_path: Path) -> None:
    file = written(tmp_path, "day,x\n2020-01-01,1\n2020-01-02,2\n2020-01-03,3\n")
    assert read_frame(file).columns.tolist() == ["day", "x"]


# ---------------------------------------------------------------- long format

ANSWERS = pd.DataFrame(
    {
        "who": ["a", "b", "c", "a", "c", "b", "a", "c"],
        "item": ["q2", "q2", "q2", "q1", "q1", "q1", "q3", "q3"],
        "right": [1, 0, 1, 0, 1, 1, 0, 0],
    }
)


def pivoted(frame: pd.DataFrame) -> pd.DataFrame:
    """pandas' own answer, which sorts."""
    return frame.pivot(index="who", columns="item", values="right")


@pytest.mark.parametrize("kind", ["pandas", "polars-like", "file", "file with row names"])
def test_a_line_an_answer_becomes_a_row_a_person(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "long.csv"
    ANSWERS.to_csv(file, index=kind.endswith("names"))
    if kind == "pandas":
        found = from_long(ANSWERS)
    elif kind == "polars-like":
        import pyarrow as pa

        table = pa.Table.from_pandas(ANSWERS[["right", "who", "item"]])
        found = from_long(table, "who", "item", "right")
    else:
        assert long_columns(file) == ["who", "item", "right"]
        found = read_frame(file, long=["who", "item", "right"])
    assert (found.index.name, found.index.tolist()) == ("who", ["a", "b", "c"])
    assert found.columns.tolist() == ["q2", "q1", "q3"]  # as they first appear
    expected = pivoted(ANSWERS)[["q2", "q1", "q3"]]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_names=False)


def test_answers_of_words_and_ordered_ones_stay_so(tmp_path: Path) -> None:
    words = ANSWERS.assign(right=ANSWERS["right"].map({0: "no", 1: "yes"}))
    words.to_csv(tmp_path / "words.csv", index=False)
    table = read_frame(tmp_path / "words.csv", long=["who", "item", "right"])
    assert table.loc["a"].tolist() == ["yes", "no", "no"]
    assert table.isna().to_numpy().sum() == 1
    ordered = pd.CategoricalDtype(["no", "yes"], ordered=True)
    assert (from_long(words.astype({"right": ordered})).dtypes == ordered).all()


@pytest.mark.parametrize(
    ("frame", "names", "words"),
    [
        (
            pd.concat([ANSWERS, ANSWERS.iloc[[4]]]),
            (),
            "one answer of each who to each item .* of 'c' to 'q1', in lines 4 and 8, counted",
        ),
        (ANSWERS.assign(item=[None, *ANSWERS["item"][1:]]), (), "'item' is missing in line 0"),
        (ANSWERS, ("who", "item"), "three columns .* got 'who', 'item'"),
        (ANSWERS, ("who", "item", "answer"), "the columns are 'who', 'item', 'right'"),
        (ANSWERS[["who", "item"]], (), "three columns"),
        (ANSWERS.iloc[:0], (), "a data frame with lines was expected, got none"),
        (np.ones((4, 3)), (), "got ndarray"),
    ],
)
def test_what_is_no_long_table_is_named(frame, names, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        from_long(frame, *names)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc")),
        pd.DataFrame(np.random.default_rng(0).integers(0, 5, (60, 3)), columns=list("abc")),
        pd.DataFrame({"id": range(40), "sex": [0, 1] * 20, "age": range(20, 60)}),
        ANSWERS.assign(more=1),
        ANSWERS[["who", "item"]],
    ],
    ids=["measurements", "codes", "ids", "four columns", "two columns"],
)
def test_other_tables_are_not_taken_for_long(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "wide.csv", index=False)
    assert long_columns(tmp_path / "wide.csv") is None


# ---------------------------------------------------------------- what first calls stumbled over


@pytest.mark.parametrize("columns", [[0, 1, 2], [0, 1], [1, 3], [5]])
@pytest.mark.parametrize("index", [range(4), range(1, 5), list("abcd")], ids=["0", "1", "texts"])
def test_columns_that_pandas_numbered_are_names(tmp_path: Path, columns: list, index) -> None:
    """Failed before: the line of names was a row of data, and the row numbers were a column."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(4, len(columns))), index, columns)
    frame.to_csv(tmp_path / "t.csv")
    back = read_frame(tmp_path / "t.csv")
    assert back.index.tolist() == list(index)
    assert back.columns.tolist() == list(map(str, columns))
    np.testing.assert_allclose(back, frame)
    with pytest.raises(ValueError, match="column 0 has no name|a number was expected, got 'a'"):
        read_table(tmp_path / "t.csv")


def test_a_first_row_that_lacks_its_first_entry_is_data(tmp_path: Path) -> None:
    file = written(tmp_path, ",0,1\n1,0,1\n0,1,1\n")
    assert read_frame(file).shape == (3, 3)


def test_true_and_false_are_one_and_zero(tmp_path: Path) -> None:
    file = written(tmp_path, "x,y,z\nTRUE,1,TRUE\nFALSE,2,maybe\nNA,3,FALSE\n")
    frame = read_frame(file)
    np.testing.assert_array_equal(frame["x"], [1, 0, np.nan])
    assert frame["z"].tolist() == ["TRUE", "maybe", "FALSE"]
    assert read_frame(file, ["x", "y"], numbers=True).shape == (3, 2)
    assert read_frame(file, texts=["x"])["x"].tolist()[:2] == ["TRUE", "FALSE"]

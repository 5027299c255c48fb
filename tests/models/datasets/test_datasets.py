"""Designs against a direct loop, data sets, and tables from files."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, LogNormal, Normal, Poisson
from ppl_models.datasets import (
    deep_design,
    empty_graph_accuracy,
    fetch,
    generic_design,
    load_digits,
    load_mnist_digits,
    local_file,
    read_table,
    strict_design,
)
from ppl_models.datasets import mnist as mnist_module
from ppl_models.datasets.mnist import _read_idx, _select

# Designs


def strict_layer_by_hand(k: int) -> tuple[list[list[float]], list[float]]:
    """Entry by entry, counting from 1 as the paper does."""
    half = k // 2
    loadings, intercepts = [], []
    for block, intercept in ((1, -2.0), (2, -4.0), (3, -2.0)):
        for row in range(1, k + 1):
            entries = []
            for column in range(1, k + 1):
                value = 4.0 if row == column else 0.0
                if block == 3 and half > 0 and abs(row - column) == half:
                    value -= 4.0 / 3.0
                entries.append(value)
            loadings.append(entries)
            intercepts.append(intercept)
    return loadings, intercepts


def generic_layer_by_hand(k: int) -> tuple[list[list[float]], list[float]]:
    def upper(row: int, column: int) -> float:
        if row == column:
            return 4.0
        return 4.0 / 3.0 if row < column <= min(row + math.ceil(k / 3), k) else 0.0

    loadings, intercepts = strict_layer_by_hand(k)
    for row in range(k):
        for column in range(k):
            loadings[row][column] = upper(row + 1, column + 1)
            loadings[k + row][column] = upper(column + 1, row + 1)
    return loadings, intercepts


@pytest.mark.parametrize("top_size", [1, 2, 3, 6, 10])
@pytest.mark.parametrize(
    ("design", "by_hand"), [(strict_design, strict_layer_by_hand), (generic_design, generic_layer_by_hand)]
)
def test_designs_equal_a_direct_loop(design, by_hand, top_size):
    params = design(top_size)
    for d, size in ((1, 3 * top_size), (2, top_size)):
        loadings, intercepts = by_hand(size)
        assert params[f"loadings_{d}"].shape == (3 * size, size)
        assert params[f"loadings_{d}"].tolist() == loadings
        assert params[f"intercepts_{d}"].tolist() == intercepts
    assert params["proportions"].tolist() == [0.5] * top_size
    assert set(params) == {"loadings_1", "intercepts_1", "loadings_2", "intercepts_2", "proportions"}


@pytest.mark.parametrize(("top_size", "low", "high", "smallest_sum"), [(2, -4.0, -2.0, 5.0), (6, -10.0, -5.0, 8.0)])
def test_poisson_items_of_the_generic_design_have_their_own_intercepts(top_size, low, high, smallest_sum):
    params, plain = generic_design(top_size, Poisson()), generic_design(top_size)
    for j, row in enumerate(params["loadings_1"].tolist()):
        expected = low if sum(row) > smallest_sum - 1e-9 else high
        assert params["intercepts_1"][j].item() == expected
    assert {low, high} == set(params["intercepts_1"].tolist())
    for name in ("loadings_1", "loadings_2", "intercepts_2", "proportions"):
        assert torch.equal(params[name], plain[name])
    strict = strict_design(top_size, Poisson())
    assert all(torch.equal(strict[name], value) for name, value in strict_design(top_size).items())


def test_mixed_items_change_only_their_poisson_columns():
    mixed = generic_design(2, Blocks((Poisson(), 10), (Normal(), 8)))
    assert torch.equal(mixed["intercepts_1"][:10], generic_design(2, Poisson())["intercepts_1"][:10])
    assert torch.equal(mixed["intercepts_1"][10:], generic_design(2)["intercepts_1"][10:])
    assert mixed["dispersion"].tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("response", "num_dispersed"), [(Bernoulli(), 0), (Poisson(), 0), (Normal(), 18), (LogNormal(), 18)]
)
@pytest.mark.parametrize("design", [strict_design, generic_design])
def test_designs_are_parameters_of_the_model(design, response, num_dispersed):
    params = design(2, response)
    model = DeepDiscreteEncoder(18, (6, 2), response)
    sites = {layer.loadings: (layer.num_children, layer.num_parents) for layer in model.layers()}
    sites |= {layer.intercepts: (layer.num_children,) for layer in model.layers()}
    sites[model.root().proportions] = (2,)
    if num_dispersed:
        sites["dispersion"] = (num_dispersed,)
    assert {name: tuple(value.shape) for name, value in params.items()} == sites
    assert all(value.dtype == torch.float64 for value in params.values())
    if num_dispersed:
        assert (params["dispersion"] == 1).all()


@pytest.mark.parametrize(
    ("design", "baselines"),
    [(strict_design, {2: 0.7333, 6: 0.9111, 10: 0.9467}), (generic_design, {2: 0.5667, 6: 0.7333})],
)
def test_an_empty_graph_scores_the_published_baseline(design, baselines):
    for top_size, accuracy in baselines.items():
        assert empty_graph_accuracy(design(top_size)) == pytest.approx(accuracy, abs=5e-5)


def test_densities_of_the_bottom_graph():
    for design, top_size, density in [
        (strict_design, 2, 0.222), (strict_design, 6, 0.074), (strict_design, 10, 0.044), (generic_design, 2, 0.389), (generic_design, 6, 0.253),
    ]:  # fmt: skip
        assert (design(top_size)["loadings_1"] != 0).double().mean().item() == pytest.approx(density, abs=5e-4)


def test_deep_design_by_hand_and_its_baselines():
    params = deep_design(3)
    assert [tuple(params[f"loadings_{d}"].shape) for d in (1, 2, 3)] == [(54, 18), (18, 6), (6, 2)]
    for d, baseline in ((1, 0.926), (2, 0.778), (3, 0.333)):
        loadings = params[f"loadings_{d}"]
        assert empty_graph_accuracy({"loadings_1": loadings}) == pytest.approx(baseline, abs=5e-4)
        size = loadings.shape[1]
        for j in range(3 * size):
            block, row = divmod(j, size)
            for k in range(size):
                crossed = block == 2 and abs(row - k) == size // 2
                assert loadings[j, k].item() == (4.0 if row == k else -2.0 if crossed else 0.0)
            assert params[f"intercepts_{d}"][j].item() == (-2.0, -4.0, -2.0)[block]
    assert params["dispersion"].shape == (54,)
    five = deep_design(2, value=5.0, response=Bernoulli())
    assert sorted(set(five["loadings_1"].ravel().tolist())) == [-2.5, 0.0, 5.0]
    assert sorted(set(five["intercepts_2"].tolist())) == [-5.0, -2.5]
    assert "dispersion" not in five
    assert tuple(deep_design(5)["loadings_1"].shape) == (486, 162)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strict_design(0), "top_size must be a positive integer, got 0"),
        (lambda: generic_design(2.0), "top_size must be a positive integer, got 2.0"),  # type: ignore[arg-type]
        (lambda: generic_design(3, Poisson()), "top_size 2 and 6 only.*got 3"),
        (lambda: deep_design(0), "num_layers must be a positive integer"),
        (lambda: deep_design(2, value=-1.0), "value must be positive, got -1.0"),
        (lambda: empty_graph_accuracy({"proportions": torch.ones(2)}), "no loadings_1.*proportions"),
    ],
)
def test_designs_refuse_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Images


def test_digits_of_scikit_learn():
    digits = load_digits()
    assert digits.items.shape == (1797, 64)
    assert digits.items.dtype == np.float64
    assert set(np.unique(digits.items)) == {0.0, 1.0}
    assert digits.image_shape == (8, 8)
    assert digits.item_names[:2] == ("r0c0", "r0c1")
    assert digits.item_names[3 * 8 + 4] == "r3c4"
    assert sorted(set(digits.labels)) == list(range(10))
    from sklearn.datasets import load_digits as original

    grey = original().images
    assert np.array_equal(digits.items.reshape(-1, 8, 8), grey >= 8)
    assert np.array_equal(load_digits(threshold=16).items.reshape(-1, 8, 8), grey == 16)


@pytest.mark.parametrize("threshold", [0, -1, 17, float("nan")])
def test_digits_refuse_a_threshold_that_makes_all_pixels_equal(threshold):
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 16\]"):
        load_digits(threshold)


needs_mnist = pytest.mark.skipif(
    local_file("mnist_dde0123.npz") is None, reason="mnist_dde0123.npz is not in the folder PPL_MODELS_DATA names"
)


@needs_mnist
def test_mnist_digits_have_the_published_counts():
    digits = load_mnist_digits()
    assert digits.items.shape == (20679, 264)
    assert digits.test_items.shape == (4157, 264)
    assert np.bincount(digits.labels).tolist() == [4932, 5678, 4968, 5101]
    assert np.bincount(digits.test_labels).tolist() == [980, 1135, 1032, 1010]
    assert digits.items.mean() == pytest.approx(0.4822, abs=5e-5)
    assert digits.test_items.mean() == pytest.approx(0.4852, abs=5e-5)
    # a constant prediction, and a majority for each digit
    assert np.maximum(digits.items.mean(0), 1 - digits.items.mean(0)).mean() == pytest.approx(0.6209, abs=5e-5)
    share = np.stack([digits.test_items[digits.test_labels == k].mean(0) for k in range(4)])
    agreement = np.maximum(share, 1 - share).mean(1)
    weights = np.bincount(digits.test_labels) / len(digits.test_labels)
    assert agreement @ weights == pytest.approx(0.7544, abs=5e-5)
    assert digits.item_names[0] == "r4c14"
    assert len(set(digits.item_names)) == 264


def test_mnist_is_prepared_from_its_archives(tmp_path, monkeypatch):
    """Tiny archives of the published format go through the same steps; the digest then refuses them."""
    import gzip

    rng = np.random.default_rng(0)
    contents = {}
    for name, num in (("train", 30), ("t10k", 12)):
        images, labels = rng.integers(0, 5, (num, 28, 28), dtype=np.uint8), rng.integers(0, 10, num, dtype=np.uint8)
        header = b"\x00\x00\x08\x03" + np.array([num, 28, 28], dtype=">i4").tobytes()
        contents[f"{name}-images-idx3-ubyte.gz"] = header + images.tobytes()
        contents[f"{name}-labels-idx1-ubyte.gz"] = (
            b"\x00\x00\x08\x01" + np.array([num], dtype=">i4").tobytes() + labels.tobytes()
        )
    for name, content in contents.items():
        (tmp_path / name).write_bytes(gzip.compress(content))
    images, labels = (_read_idx(tmp_path / f"train-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    pixels = np.array([(4, 14), (24, 11)])
    items, chosen = _select(images, labels, pixels)
    by_hand = [
        (lab, float(im[4, 14] >= 2), float(im[24, 11] >= 2))
        for d in range(4)
        for im, lab in zip(images, labels, strict=True)
        if lab == d
    ]
    assert np.array_equal(np.column_stack([chosen, items]), np.array(by_hand))

    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="train-images.*sha256 440f.* was expected"):
        load_mnist_digits()
    monkeypatch.setattr(mnist_module, "fetch", lambda name, url, digest: tmp_path / name)
    with pytest.raises(ValueError, match="differ from the published"):
        load_mnist_digits()
    np.savez(tmp_path / "mnist_dde0123.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match="prepared digits 0-3 of MNIST were expected"):
        load_mnist_digits()


# Fetching


def test_fetch_looks_into_the_named_folder_first(tmp_path, monkeypatch):
    import hashlib

    (tmp_path / "small.txt").write_text("abc")
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    digest = hashlib.sha256(b"abc").hexdigest()
    assert fetch("small.txt", "https://example.invalid/small.txt", digest) == tmp_path / "small.txt"
    with pytest.raises(ValueError, match=f"sha256 {'0' * 64} was expected, got {digest}"):
        fetch("small.txt", "https://example.invalid/small.txt", "0" * 64)
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="PPL_MODELS_DATA must name a folder"):
        local_file("small.txt")
    monkeypatch.delenv("PPL_MODELS_DATA")
    assert local_file("small.txt") is None


def test_fetch_downloads_once_and_checks_the_digest(tmp_path, monkeypatch):
    import hashlib

    import pooch

    monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    calls = []

    def serve(url, output_file, downloader):
        calls.append(url)
        Path(output_file).write_bytes(b"abc")

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: serve)
    digest = hashlib.sha256(b"abc").hexdigest()
    for _ in range(2):
        path = fetch("small.txt", "https://example.invalid/small.txt", digest)
        assert path == tmp_path / "cache" / "ppl_models" / "small.txt"
        assert path.read_bytes() == b"abc"
    assert len(calls) == 1
    with pytest.raises(ValueError, match=r"(?i)sha256 hash of downloaded file"):
        fetch("other.txt", "https://example.invalid/other.txt", "0" * 64)

    def fail(url, output_file, downloader):
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: fail)
    with pytest.raises(
        FileNotFoundError,
        match=r"absent.txt is not in the folder PPL_MODELS_DATA.*ConnectionError.*set PPL_MODELS_DATA",
    ):
        fetch("absent.txt", "https://example.invalid/absent.txt", digest)


# Tables from files

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
    table = read_table(write(tmp_path / f"data.{ending}", pd.DataFrame(VALUES, columns=["height", "weight, kg"])))
    assert table.values.dtype == np.float64
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.names == (("0", "1") if ending.startswith("np") else ("height", "weight, kg"))


@pytest.mark.parametrize("ending", ["parquet", "npy", "npz"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "bool"])
def test_whole_numbers_and_booleans_become_float64(tmp_path, ending, dtype):
    table = read_table(write(tmp_path / f"data.{ending}", pd.DataFrame({"a": [0, 1], "b": [1, 1]}).astype(dtype)))
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
        ("data.csv", b"a,b\n1,2\n3,tall\n5,wide\n", r"column 'b', row 2 \(line 3\): a number was expected, got 'tall'"),
        ("data.csv", b"a,b\n1,2\n\n3,1_0\n", r"column 'b', row 2 \(line 4\): a number was expected, got '1_0'"),
        ("data.csv", b"1,2\n3,tall\n", r"column 2, row 2 \(line 2\): a number was expected, got 'tall'"),
        ("data.csv", b"a,b\n1,2\n1,2,3\n", "line 3 has 3 entries, where 2 were expected"),
        ("data.csv", b"a,b\n1\n", "line 2 has 1 entries, where 2 were expected"),
        ("data.csv", b"a,b,a\n1,2,3\n", "two columns are named 'a'"),
        ("data.csv", b",a,b\n0,1,2\n", "column 1 has no name; if it holds row labels"),
        ("data.csv", b"a;b\n1;2\n", "separated by commas were expected, got semicolons: 'a;b'"),
        ("data.tsv", b"a,b\n1,2\n", "separated by tabs were expected, got commas"),
        ("data.csv", b'a,b\n"1,2\n', "line 2: comma-separated text was expected, but unexpected end of data"),
        ("data.csv", b"a,b\n1,\xff\n", "UTF-8 text was expected, got byte 0xff at 6"),
        ("data.csv", b"PAR1abcdef", "promises comma-separated text, but the content looks like parquet"),
        ("data.csv", b"\x93NUMPY\x01\x00", "promises comma-separated text, but the content looks like npy"),
        ("data.tsv", b"a\tb\n\x00\x00", "promises tab-separated text, but the first bytes"),
        ("data.npy", b"a,b\n1,2\n", "promises npy, but the first bytes are b'a,b"),
        ("data.npz", b"a,b\n1,2\n", "promises npz, but the first bytes"),
        ("data.npz", b"\x93NUMPY\x01\x00", "promises npz, but the content looks like npy"),
        ("data.parquet", b"a,b\n1,2\n", "promises parquet, but the first bytes"),
        ("data.parquet", b"PAR1PAR1PAR1", "the file is damaged"),
        ("data.npy", b"\x93NUMPY\x01\x00", "data.npy: "),
        ("data.xlsx", b"PK\x03\x04", "a file ending in .csv, .tsv, .parquet, .npy, .npz was expected, got '.xlsx'"),
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
        ValueError, match=r"one array was expected, got 4: train, test, words, cube; name one by .*data.npz:NAME"
    ):
        read_table(file)
    with pytest.raises(ValueError, match=r"no array is named 'valid'; there are: train, test"):
        read_table(f"{file}:valid")
    with pytest.raises(ValueError, match="array 'words' holds strings, first 'a'"):
        read_table(f"{file}:words")
    with pytest.raises(ValueError, match=r"a table \(rows, items\) was expected, got an array of shape \(1, 2, 3\)"):
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
        {"a": pd.array([1, None], dtype="Int64"), "b": pd.Categorical([3, 4]), "empty": [None, None]}, index=["x", "y"]
    )
    frame.to_parquet(file)
    table = read_table(file)
    assert table.names == ("a", "b", "empty")  # without the index
    np.testing.assert_array_equal(table.values, [[1, 3, np.nan], [np.nan, 4, np.nan]])
    pd.DataFrame({"a": [1.0, 2.0], "b": [None, "tall"]}).to_parquet(file)
    with pytest.raises(ValueError, match=r"column 'b', row 2: a number was expected, got 'tall'"):
        read_table(file)

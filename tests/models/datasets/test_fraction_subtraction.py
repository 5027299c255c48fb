"""Fraction subtraction: its Q-matrices against those of the file, a download, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ppl_models import LatentAttributeModel
from ppl_models.datasets import load_fraction_subtraction
from ppl_models.datasets.fetch import local_file

FILE = "fraction_subtraction.npz"


@pytest.mark.data(FILE)
@pytest.mark.parametrize(
    ("num_skills", "key", "shape"), [(8, "fracsub", (20, 8)), (5, "fracsub15", (15, 5))]
)
def test_answers_and_q_matrices_are_those_of_the_package(
    num_skills: int, key: str, shape: tuple[int, int]
) -> None:
    data = load_fraction_subtraction(num_skills)
    path = local_file(FILE)
    assert path is not None
    with np.load(path, allow_pickle=False) as file:
        assert np.array_equal(data.correct, file[f"{key}_x"])
        assert np.array_equal(data.q_matrix, file[f"{key}_q"])
    assert data.q_matrix.shape == (len(data.items), len(data.skills)) == shape
    model = LatentAttributeModel(data.q_frame, items="dina")
    assert model.item_names == data.items
    assert model.attribute_names == data.skills
    model.check_data(data.answers)


@pytest.mark.data(FILE)
def test_the_download_holds_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    expected = load_fraction_subtraction().correct
    text = "".join(" ".join(str(int(x)) for x in row) + "\n" for row in expected)
    monkeypatch.delenv("PPL_MODELS_DATA")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    served = []

    def serve(url: str, output_file: str, downloader: object) -> None:
        served.append(url)
        Path(output_file).write_text(text, encoding="utf-8", newline="\n")

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: serve)
    for _ in range(2):
        assert np.array_equal(
            load_fraction_subtraction().correct, expected
        )  # the digest of the published file is that of this text
    assert len(served) == 1


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (4, True, "8"):
        with pytest.raises(ValueError, match="num_skills must be 8"):
            load_fraction_subtraction(wrong)  # type: ignore[arg-type]
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    np.savez(
        tmp_path / FILE,
        **{
            name: np.ones((2, 2))
            for name in ("fracsub_x", "fracsub_q", "fracsub15_x", "fracsub15_q")
        },
    )
    with pytest.raises(ValueError, match="sha256"):
        load_fraction_subtraction()

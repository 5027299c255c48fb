"""Words shared in a tree: their products, whatever the pieces and blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.option_sequences import close

from ppl_models.sequences.word_tree import WordTree

F64 = torch.float64


def test_the_tree_shares_words() -> None:
    generator = np.random.default_rng(0)
    words = generator.integers(0, 3, size=5001)
    tree = WordTree.build(words, np.array([3000, 2001]), 3)
    assert [level.shape[1] for level in tree.levels] == [
        10,
        82,
    ]  # 9 pairs and 81 of those, and the odd end
    assert tree.words.itemsize * len(tree.words) < len(words) / 3
    assert np.array_equal(tree.steps(), words)
    for depth in range(3):
        spelt = [tree.spelt(piece, depth) for piece in tree.pieces(depth)]
        assert [len(part) for part in spelt] == [-(-length // 2**depth) for length in (3000, 2001)]
    matrices = torch.rand(2, 3, 2, 2, dtype=F64)
    product, log_scale = tree.log_product(matrices)
    for row, part in enumerate((words[:3000], words[3000:])):
        expected, log_expected = torch.eye(2, dtype=F64).expand(2, 2, 2), torch.zeros(2, dtype=F64)
        for word in part:
            expected = expected @ matrices[:, word]
            total = expected.sum((-1, -2), keepdim=True)
            expected, log_expected = expected / total, log_expected + total.log().flatten()
        close(product[:, row], expected, 1e-10)
        close(log_scale[:, row], log_expected, 1e-11)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("large", [1, 10])
def test_pieces_and_blocks_change_nothing(
    monkeypatch: pytest.MonkeyPatch, shared: bool, large: int
) -> None:
    """Ragged sequences cut into many pieces, several blocks, products of products: values and
    derivatives.
    """
    generator = np.random.default_rng(0)
    lengths = np.array([700, 1, 64, 129, 3, 3, 2, 333])
    words = generator.integers(0, 4, size=int(lengths.sum()))
    matrices = torch.rand(2, 4, 3, 3, dtype=F64, requires_grad=True)
    weight = torch.rand(2, len(lengths), dtype=F64)
    found = []
    monkeypatch.setattr("ppl_models.sequences.word_tree.LARGE", large)
    for piece, block, kept in (
        (2**12, 2**19, 2**22),
        (4, 100, 0),
        (8, 2**16, 0),
        (2, 2, 0),
        (4, 100, 2**22),
    ):
        for name, value in (
            ("PIECE", piece),
            ("BLOCK", block),
            ("KEPT", kept),
            ("WASTE", min(block, 2**10)),
        ):
            monkeypatch.setattr(f"ppl_models.sequences.word_tree.{name}", value)
        monkeypatch.setattr("ppl_models.sequences.word_tree.PIECE", piece)
        tree = WordTree.build(words, lengths, 4, shared=shared)
        assert (len(tree.stages[0].ranges(3)) > 2) == (piece < 8)
        value = tree.log_sum(matrices)
        (grad,) = torch.autograd.grad((value * weight).sum(), matrices, create_graph=large > 3)
        parts = [value, grad]
        if large > 3:
            parts += torch.autograd.grad((grad * grad.detach().sin()).sum(), matrices)
        found.append([part.detach() for part in parts])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            close(one, other, 1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shared", [True, False])
def test_slopes_by_messages_are_those_of_differentiation(
    monkeypatch: pytest.MonkeyPatch, size: int, shared: bool
) -> None:
    """Ragged sequences, in one piece each or in many, in one block or in several; a first matrix of
    one row, and a row of zeros.
    """
    generator = np.random.default_rng(0)
    lengths = np.array([700, 1, 64, 129, 3, 3, 2, 333])
    words = generator.integers(1, 6, size=int(lengths.sum()))
    words[np.cumsum(lengths) - lengths] = 0  # the word that begins a sequence
    matrices = torch.rand(2, 6, size, size, dtype=F64)
    matrices[:, 0, 1:] = 0.0
    tree = WordTree.build(words, lengths, 6, shared=shared)
    leaf = matrices.clone().requires_grad_()
    value = tree.log_sum(leaf).sum(-1)
    (expected,) = torch.autograd.grad(value.sum(), leaf)
    for products, held, enough, cache in (
        (2**14, 2**21, 2**13, 2**17),
        (2**4, 2**21, 2**13, 2**17),
        (2**14, 2**7, 2**13, 2**17),
        (2**14, 2**21, 1, 2**17),
        (2**8, 2**8, 2**13, 1),
    ):
        for name, number in (
            ("MOST_PRODUCTS", products),
            ("HELD", held),
            ("ENOUGH", enough),
            ("IN_CACHE", cache),
        ):
            monkeypatch.setattr(f"ppl_models.sequences.word_pieces.{name}", number)
        tree.pieces_of.clear()
        found, slopes = tree.slopes(matrices)
        close(found, value.detach(), 1e-11)
        close(slopes, expected, 1e-9)


def test_slopes_of_an_impossible_sequence_are_differentiated() -> None:
    """Messages have no answer where a product is zero; beside it sequences that are possible keep
    theirs.
    """
    words, lengths = np.array([0, 1, 0, 0, 1, 1]), np.array([4, 2])
    matrices = torch.tensor([[[[0.5, 0.0], [0.2, 0.0]], [[0.0, 0.0], [0.3, 0.4]]]], dtype=F64)
    value, _ = WordTree.build(words, lengths, 2).slopes(matrices)
    assert value.isneginf().all()

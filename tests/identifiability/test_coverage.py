"""Condition C and Hall's violators against brute force on small random graphs."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from support.small_graphs import COUNTER_EXAMPLE, c_by_brute_force, graphs

from inference.identifiability.conditions import best_gain, cover, hall_violators


@settings(max_examples=150, deadline=None)
@given(graph=graphs)
def test_condition_c_agrees_with_brute_force(graph: np.ndarray) -> None:
    coverage = cover(graph)
    holds = c_by_brute_force(graph)
    assert (coverage.certificate is not None) == holds
    if coverage.certificate is not None:
        rows = (*coverage.certificate.first, *coverage.certificate.second)
        assert len(set(rows)) == len(rows)
        for k, three in enumerate(
            zip(
                coverage.certificate.first,
                coverage.certificate.second,
                coverage.certificate.covering,
                strict=True,
            )
        ):
            assert graph[list(three), k].all()
            assert three[2] not in rows
        assert not hall_violators(graph)
        return
    number = len(coverage.new_children)
    new = np.zeros((number, graph.shape[1]), dtype=bool)
    for row, latents in zip(new, coverage.new_children, strict=True):
        row[list(latents)] = True
    assert c_by_brute_force(np.concatenate([graph, new]))  # the repair repairs
    fewer = np.ones((number - 1, graph.shape[1]), dtype=bool)  # the most helpful children there are
    assert not c_by_brute_force(np.concatenate([graph, fewer]))


@settings(max_examples=100, deadline=None)
@given(graph=graphs)
def test_hall_violators_agree_with_every_subset(graph: np.ndarray) -> None:
    violated = [
        chosen
        for size in range(1, graph.shape[1] + 1)
        for chosen in itertools.combinations(range(graph.shape[1]), size)
        if graph[:, list(chosen)].any(1).sum() < 2 * size + 1
    ]
    found = hall_violators(graph)
    assert bool(found) == bool(violated)
    for violator in found:
        assert violator.latents in violated
        assert violator.children == tuple(np.flatnonzero(graph[:, list(violator.latents)].any(1)))
        assert not any(set(other.latents) < set(violator.latents) for other in found)


def test_best_gain_finds_the_largest_useful_entry() -> None:
    size = np.zeros(COUNTER_EXAMPLE.shape)
    size[0, 2], size[1, 0], size[5, 0], size[3, 1] = (
        0.1,
        0.3,
        0.5,
        0.4,
    )  # one row of ones is what is missing
    useful = {}
    for j, k in np.argwhere(size > 0):
        changed = COUNTER_EXAMPLE.copy()
        changed[j, k] = True
        if c_by_brute_force(changed):
            useful[int(j), int(k)] = size[j, k]
    assert best_gain(COUNTER_EXAMPLE, size) == max(useful, key=useful.get)
    assert best_gain(COUNTER_EXAMPLE, np.zeros_like(size)) is None
    assert best_gain(COUNTER_EXAMPLE[:4], np.ones((4, 3))) is None

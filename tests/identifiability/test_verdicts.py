"""Nearest changes against trying every entry."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from inference.identifiability.verdicts import decide, nearest_changes


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nearest_changes_agree_with_trying_every_entry(data: st.DataObject) -> None:
    num_latents = data.draw(st.integers(1, 3))
    num_children = data.draw(st.integers(2 * num_latents, 3 * num_latents + 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    loadings = rng.normal(size=(num_children, num_latents))
    loadings[rng.random(loadings.shape) < 0.1] = 0.0
    if data.draw(st.booleans()):  # many exclusive children, as strict layers have
        mask = np.eye(num_latents)[rng.integers(num_latents, size=num_children)] + (
            rng.random(loadings.shape) < 0.1
        )
        loadings *= np.where(mask > 0, 3.0, 0.2)
    if data.draw(st.booleans()):  # loadings of one size: exact cancellations
        loadings = np.sign(loadings) * np.where(np.abs(loadings) > 0.7, 1.0, 0.1)
    graph = np.abs(loadings) >= 0.7

    def verdict(edges: np.ndarray) -> str:
        return decide(edges, loadings * edges, "additive", None).verdict

    decision = decide(graph, loadings * graph, "additive", None)
    lost, gained = nearest_changes(graph, loadings, decision)
    changes: dict[bool, list[float]] = {True: [], False: []}
    for entry in np.argwhere(loadings != 0):
        other = graph.copy()
        other[tuple(entry)] ^= True
        if verdict(other) != decision.verdict:
            changes[bool(graph[tuple(entry)])].append(abs(loadings[tuple(entry)]))
    assert (None if lost is None else abs(lost.loading)) == min(changes[True], default=None)
    assert (None if gained is None else abs(gained.loading)) == max(changes[False], default=None)
    for change in (lost, gained):
        if change is not None:
            other = graph.copy()
            other[change.child, change.latent] ^= True
            assert verdict(other) == change.verdict
            assert loadings[change.child, change.latent] == change.loading

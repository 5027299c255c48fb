"""Engines: they know a problem and its structure, never a family.

Engines of one kind lie with it in :mod:`inference.structures`: ``layers.choose_penalty``,
``noisy_or.grow_and_prune``, ``noisy_or.score_svi``, ``factorization.factorize``,
``classifiers.train`` and ``dictionary.alternating``.
"""

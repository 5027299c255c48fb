"""Designs, data and methods that only a paper's study needs: for benchmarks and tests, no part of
the library.

Benchmarks run with their own folder on the path, tests with ``benchmarks`` on it
(``pythonpath`` in pyproject.toml), so both write ``from papers.noisy_or import flip_columns``.
"""

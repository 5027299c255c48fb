r"""Six ways of making a sample of attributes for a search, as the manuscript on latent attributes
compares them.

====== ================================================= ==========================
method what enters the search                            here
====== ================================================= ==========================
1      :math:`N' \hat p`, rounded                        :func:`rounded_counts`
2      :math:`N'` draws from :math:`\hat p`              :func:`drawn_counts`
3      one estimated profile for each row                :func:`classified_counts`
4      the counts of the true profiles times N' / N      :func:`scaled_counts`
5      N' draws from the shares of the true profiles     :func:`redrawn_counts`
6      the true profiles                                 :func:`profile_counts`
====== ================================================= ==========================

All return counts of profiles, (2^K,); :func:`rows_of_counts` lists them as rows, and ``counts /
counts.sum()`` with ``counts.sum()`` rows is what the searches take. They are here for comparison.
The searches need none of them: :math:`\hat p` itself, at the number of rows that it is worth, is
method 1 without rounding. Method 2 adds to the error of the estimate multinomial noise of about the
same size, so at N' = N it doubles the variance; and any N' far above N claims rows that nobody has
seen, for which chance dependences in the estimate become edges. Methods 4 to 6 need the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inference.causal.graphs import real_numbers
from inference.causal.tables import as_table, as_tables, profiles
from ppl_models.parts.validation import check_flag, check_number, check_size


def rounded_counts(table: Any, num_rows: int) -> np.ndarray:
    """Method 1: expected counts, rounded so that they add up to ``num_rows`` (the largest
    remainders are rounded up, of equal ones the first).

    Args:
        table: estimated profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: N'.

    Raises:
        ValueError: for what is no table or no positive integer.
    """
    checked = as_table("rounded_counts", table)
    check_size("rounded_counts", "num_rows", num_rows)
    expected = checked * num_rows
    counts = np.floor(expected + 1e-9).astype(np.int64)
    remainders = np.argsort(-(expected - counts), kind="stable")
    counts[remainders[: num_rows - int(counts.sum())]] += 1
    return counts


def drawn_counts(table: Any, num_rows: int, seed: int = 0) -> np.ndarray:
    """Method 2: multinomial draws from the estimated probabilities; arguments and errors as
    :func:`rounded_counts`.
    """
    checked = as_table("drawn_counts", table)
    check_size("drawn_counts", "num_rows", num_rows)
    check_size("drawn_counts", "seed", seed, least=0)
    return np.random.default_rng(seed).multinomial(num_rows, checked)


def classified_counts(posterior: Any, each_attribute: bool = False) -> np.ndarray:
    """Method 3: every row counts as its most probable profile.

    Args:
        posterior: probabilities of the profiles for every row, (N, 2^K).
        each_attribute: take the more probable value of each attribute by itself instead; the
            manuscript does not say which it takes.

    Raises:
        ValueError: for rows that are not probabilities of 2^K profiles.
    """
    checked = as_tables("classified_counts", posterior, "posterior")
    check_flag("classified_counts", "each_attribute", each_attribute)
    num_profiles = checked.shape[1]
    if each_attribute:
        bits = profiles(num_profiles.bit_length() - 1)
        return profile_counts((checked @ bits > 0.5).astype(np.int64))
    return np.bincount(checked.argmax(1), minlength=num_profiles)


def scaled_counts(rows: Any, num_rows: float) -> np.ndarray:
    """Method 4: counts of the true profiles, scaled to ``num_rows`` (not rounded).

    Args:
        rows: true profiles, 0/1 (N, K).
        num_rows: N'.

    Raises:
        ValueError: for entries other than 0 and 1, or a number of rows that is not positive.
    """
    counts = profile_counts(rows)
    check_number("scaled_counts", "num_rows", num_rows, "be positive", above=0)
    scaled: np.ndarray = counts * (num_rows / counts.sum())
    return scaled


def redrawn_counts(rows: Any, num_rows: int, seed: int = 0) -> np.ndarray:
    """Method 5: multinomial draws from the shares of the true profiles, 0/1 (N, K); errors as the
    others.
    """
    counts = profile_counts(rows)
    return drawn_counts(counts / counts.sum(), num_rows, seed)


def profile_counts(rows: Any) -> np.ndarray:
    """Method 6: counts of the true profiles, 0/1 (N, K).

    Raises:
        ValueError: for another shape, or entries other than 0 and 1.
    """
    array = real_numbers("profile_counts", rows, "rows")
    if array.ndim != 2 or not array.size or array.shape[1] > 20:
        raise ValueError(
            "profile_counts: rows must have shape (N, K) with N of at least 1 and K of 1 to 20,"
            f" got {array.shape}"
        )
    if not ((array == 0) | (array == 1)).all():
        raise ValueError("profile_counts: rows must hold only 0 and 1")
    num_attributes = array.shape[1]
    places = array.astype(np.int64) @ (1 << np.arange(num_attributes - 1, -1, -1))
    return np.bincount(places, minlength=2**num_attributes)


def rows_of_counts(counts: Any) -> np.ndarray:
    """Whole counts of profiles (2^K,) as rows, 0/1 (N', K), for software that wants rows.

    Raises:
        ValueError: for counts that are not whole or are negative, or another number of them.
    """
    array = real_numbers("rows_of_counts", counts, "counts")
    if array.ndim != 1 or len(array) < 2 or len(array) & (len(array) - 1):
        raise ValueError(
            f"rows_of_counts: counts of 2^K profiles were expected, got shape {array.shape}"
        )
    if (array < 0).any() or (array != np.floor(array)).any():
        raise ValueError("rows_of_counts: counts must be whole and not negative; round them first")
    return np.repeat(profiles(len(array).bit_length() - 1), array.astype(np.int64), axis=0)

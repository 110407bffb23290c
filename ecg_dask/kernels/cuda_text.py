"""A look at the bytes of a table of numbers on CUDA: whether it is plain, and what it counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64

from ..arrays import namespace
from .launch import launch

THREADS, BLOCKS = 256, 2048

#: What a byte is; `OTHER` is none of a plain table's.
OTHER, DIGIT, SIGN, POINT, EXPONENT, SEPARATOR, END, RETURN = range(8)

#: What may stand behind what in a table without missing cells.
_FOLLOWERS = {
    DIGIT: (DIGIT, POINT, EXPONENT, SEPARATOR, END, RETURN),
    SIGN: (DIGIT, POINT),
    POINT: (DIGIT,),
    EXPONENT: (DIGIT, SIGN),
    SEPARATOR: (DIGIT, SIGN, POINT),
    END: (DIGIT, SIGN, POINT),
    RETURN: (END,),
}


class TextCounts(NamedTuple):
    """Bytes that may not stand where they do, ends of lines, and separators."""

    odd: int
    ends: int
    separators: int


def text_counts(text: Any, separator: str, decimal: str) -> TextCounts:
    """Count what a table consists of.

    Parameters
    ----------
    text
        Its bytes, uint8 of shape (n_bytes,), from the start of a line on.
    separator, decimal
        Single characters.

    Returns
    -------
    TextCounts
        Without odd bytes every cell holds a digit and nothing but the characters of a number; that
        it is one must still be found out.
    """
    xp = namespace(text)
    kinds, follows = _kinds(separator, decimal), np.zeros(64, np.uint8)
    for before, behind in _FOLLOWERS.items():
        follows[[8 * before + kind for kind in behind]] = 1
    counts = xp.zeros(3, xp.int64)
    blocks = min(-(-text.size // THREADS), BLOCKS)
    launch(_count, blocks, THREADS, text, xp.asarray(kinds), xp.asarray(follows), counts)
    return TextCounts(*counts.tolist())


def _kinds(separator: str, decimal: str) -> Any:
    kinds = np.zeros(256, np.uint8)
    for characters, kind in (
        (b"0123456789", DIGIT),
        (b"+-", SIGN),
        (b"eE", EXPONENT),
        (b"\n", END),
        (b"\r", RETURN),
        (separator.encode(), SEPARATOR),
        (decimal.encode(), POINT),
    ):
        kinds[list(characters)] = kind
    return kinds


@cuda.jit  # type: ignore[untyped-decorator]
def _count(text: Any, kinds: Any, follows: Any, counts: Any) -> None:
    block = cuda.shared.array(3, int64)
    if cuda.threadIdx.x < 3:
        block[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    odd, ends, separators = 0, 0, 0
    for i in range(cuda.grid(1), text.size, cuda.gridsize(1)):
        kind = kinds[text[i]]
        before = kinds[text[i - 1]] if i > 0 else END
        odd += 1 - follows[8 * before + kind]
        ends += 1 if kind == END else 0
        separators += 1 if kind == SEPARATOR else 0
    cuda.atomic.add(block, 0, odd)
    cuda.atomic.add(block, 1, ends)
    cuda.atomic.add(block, 2, separators)
    cuda.syncthreads()
    if cuda.threadIdx.x < 3:
        cuda.atomic.add(counts, cuda.threadIdx.x, block[cuda.threadIdx.x])

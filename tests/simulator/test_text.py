"""The look at a table's bytes, under the simulator (see `test_cuda_twins`)."""

import os

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("run by tests/test_kernels_cuda.py", allow_module_level=True)

from ecg_dask.kernels.cuda_text import text_counts

NUMBERS = ["1", "-0.5", "+12.25", "3e5", "1.5E-07", ".5", "-.25e+3", "00"]


def look(text, separator=",", decimal="."):
    return text_counts(np.frombuffer(text.encode(), np.uint8).copy(), separator, decimal)


@pytest.mark.parametrize(
    ("end", "separator", "decimal"), [("\n", ",", "."), ("\r\n", ";", ","), ("\n", "\t", ".")]
)
def test_plain_tables_have_nothing_odd(end, separator, decimal):
    rng = np.random.default_rng(0)
    rows = rng.choice(NUMBERS, (12, 3)).tolist()
    lines = [separator.join(row).replace(".", decimal) for row in rows]
    assert look(end.join(lines) + end, separator, decimal) == (0, 12, 24)
    assert look(end.join(lines), separator, decimal) == (0, 11, 24)


ODD = ["", "-", " ", "nan", "1+2", "1-2", "1e", "5.", "1 2", '"1"', "true", "\r", "1,,2", "\x00"]


@pytest.mark.parametrize("cell", ODD)
def test_what_is_no_number_is_odd_wherever_it_stands(cell):
    assert look(f"1,{cell},3\n").odd > 0


def test_what_is_odd_is_so_as_a_row_too():
    text = "".join(f"{cell}\n" for cell in ODD)
    assert look(text).odd >= len(ODD)


def test_a_decimal_mark_of_the_other_kind_is_odd():
    assert look("1.5;2,5\n", ";", ",").odd > 0

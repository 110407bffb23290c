"""Descriptors that are wrong: an error that names the field, or the right answer."""

import copy
import json
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecg_dask import InputError
from ecg_dask.share import attach, describe, offer, withdraw

WAVES = [np.arange(24.0).reshape(4, 2, 3), np.arange(6, dtype=np.float32).reshape(1, 2, 3)]
TABLES = [
    pd.DataFrame({"record": pd.array(["a", None, "c", "d"], dtype="str"), "x": [1, 2, 3, 4]}),
    pd.DataFrame({"record": pd.array(["e"], dtype="str"), "x": [5]}),
]

pytestmark = pytest.mark.usefixtures("shares_apart")


@pytest.fixture(scope="module")
def descriptor():
    pieces = [
        {"table": offer(table), "waves": offer(waves)}
        for table, waves in zip(TABLES, WAVES, strict=True)
    ]
    yield describe("b", "beats", pieces, fs=250.0, info={"a": 1})
    for parts in pieces:
        for piece in parts.values():
            withdraw(piece)


def changed(descriptor, path, value):
    """Return a copy with another value at a path of keys; with none where `value` is ``...``."""
    told = copy.deepcopy(descriptor)
    place = told
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return told


TABLE, ARRAY = ("pieces", 0, "table"), ("pieces", 1, "waves")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("ecg_dask.share",), 2, "descriptor, ecg_dask.share: found 2; allowed: 1"),
        (("ecg_dask.share",), ..., "ecg_dask.share: found nothing"),
        (("name",), 3, "descriptor, name: found 3; allowed: a text"),
        (("kind",), "", "descriptor, kind: found ''"),
        (("fs",), -1, "descriptor, fs: found -1; allowed: a positive number of Hz"),
        (("fs",), True, "descriptor, fs: found True"),
        (("fs",), 10**400, "descriptor, fs: found 1000"),
        (("fs",), float("nan"), "descriptor, fs: found nan"),
        (("fs",), "250", "descriptor, fs: found '250'"),
        (("info",), [], "descriptor, info: found "),
        (("pieces",), None, "descriptor, pieces: found nothing; allowed: a list of partitions"),
        (("pieces", 1), 7, r"descriptor, pieces\[1\]: found 7; allowed: signal, table, or tab"),
        (("pieces", 1, "waves"), ..., r"pieces\[1\]: found \['table'\]; allowed: \['table', 'wav"),
        (("pieces", 1, "more"), {}, r"pieces\[1\]: found {"),
        (TABLE, 5, r"pieces\[0\]\.table: found 5; allowed: a piece of the form table"),
        ((*TABLE, "form"), "array", r"pieces\[0\]\.table: found "),
        ((*TABLE, "share"), "../..", "share b: found none of this user on this host"),
        ((*TABLE, "share"), "/etc/passwd", "share b: found none"),
        ((*TABLE, "share"), ["a"], "share b: found none"),
        ((*TABLE, "share"), ..., "share b: found none"),
        ((*TABLE, "share"), "0123456789abcdef/0123456789abcdef", "share b: found none"),
        ((*TABLE, "memory"), "cuda", r"pieces\[0\]\.table\.memory: found 'cuda'; allowed: 'host'"),
        ((*TABLE, "rows"), 5, r"pieces\[0\]\.table\.rows: found 5; allowed: 4, as the owner wrote"),
        ((*TABLE, "columns"), [], r"pieces\[0\]\.table\.columns: found \[\]"),
        ((*ARRAY, "shape"), [1, 3, 2], r"pieces\[1\]\.waves\.shape: found \[1, 3, 2\]"),
        ((*ARRAY, "dtype"), "<i4", r"pieces\[1\]\.waves\.dtype: found '<i4'; allowed: '<f4'"),
        ((*ARRAY, "bytes"), 2**70, r"pieces\[1\]\.waves\.bytes: found 1180591620717411303424"),
        ((*ARRAY, "bytes"), ..., r"pieces\[1\]\.waves\.bytes: found nothing; allowed: 24"),
        ((*ARRAY, "offset"), 8, r"pieces\[1\]\.waves\.offset: found 8; allowed: no such field"),
    ],
)
def test_a_wrong_field_is_named(descriptor, path, value, words):
    for told in (changed(descriptor, path, value), json.dumps(changed(descriptor, path, value))):
        with pytest.raises(InputError, match=words):
            attach(told)


@pytest.mark.parametrize(
    "told", ["", "{", "[]", "null", "3", '"a"', "[" * 100_000, "9" * 5000, b"{}", None, 3, ["a"]]
)
def test_what_is_no_descriptor_is_told(told):
    with pytest.raises(InputError, match="descriptor: found"):
        attach(told)


def test_a_mapping_that_json_has_not_is_told(descriptor):
    for value in ({1, 2}, np.zeros(3), object()):
        with pytest.raises(InputError, match=r"descriptor: found .*; allowed: JSON\."):
            attach({**descriptor, "info": {"x": value}})


def test_a_descriptor_may_be_any_mapping(descriptor):
    with attach(MappingProxyType(descriptor)) as shared:
        assert shared.fs == 250


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", "beats", []), "descriptor, name"),
        (("b", "beats", [{"table": {}, "signal": {}}]), r"descriptor, pieces\[0\]"),
        (("b", "beats", [{"waves": {"form": "array"}}]), r"descriptor, pieces\[0\]"),
    ],
)
def test_what_would_be_no_descriptor_is_not_made(arguments, words):
    with pytest.raises(InputError, match=words):
        describe(*arguments)


def paths(told, path=()):
    """List the paths of keys to all that is in a descriptor."""
    items = told.items() if isinstance(told, dict) else enumerate(told)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_change_gives_an_error_or_the_right_answer(descriptor, data):
    told = copy.deepcopy(descriptor)
    everything = sorted(paths(descriptor), key=str)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(everything))
        other = data.draw(st.sampled_from(everything))
        try:
            value = descriptor
            for key in other:
                value = value[key]
            drawn = data.draw(st.sampled_from([..., value]) | JSON)
            told = changed(told, path, drawn)
        except (LookupError, TypeError):
            # An earlier change took the place away.
            continue
    if data.draw(st.booleans()):
        told = json.dumps(told)
    try:
        shared = attach(told)
    except InputError:
        return
    right = {"table": TABLES, "waves": WAVES}
    with shared:
        seen = json.loads(told) if isinstance(told, str) else told
        for part in seen["pieces"][0] if seen["pieces"] else ():
            shares = [parts[part]["share"] for parts in descriptor["pieces"]]
            for parts, value in zip(seen["pieces"], getattr(shared, part), strict=True):
                expected = right[part][shares.index(parts[part]["share"])]
                if part == "table":
                    pd.testing.assert_frame_equal(value, expected)
                else:
                    np.testing.assert_array_equal(value, expected)
                    assert (value.shape, value.dtype) == (expected.shape, expected.dtype)

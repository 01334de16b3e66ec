"""Values come out of a pickle as they went in; nothing that it names is looked up, let alone called."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.datasets.inert_pickle import values

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(min_size=1),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(2, 4))
def test_plain_values_survive(value: Any, protocol: int) -> None:
    assert values(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("kind", ["u1", "<i2", ">i4", "i8", "f4", ">f8", "b1"])
@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_survive(kind: str, protocol: int, order: Any) -> None:
    array = np.arange(12).reshape(3, 4).astype(kind, order=order)
    found = values(pickle.dumps({"x": array, "same": array}, protocol))
    for each in found.values():
        assert np.array_equal(each, array)
        assert each.dtype == array.dtype
    assert np.array_equal(values(pickle.dumps(array, protocol)), array)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"cos\nsystem\n(S'touch x'\ntR.", r"it asks for os\.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", r"it asks for os\.system"),
        (b"(S'x'\nios\nsystem\n.", "instruction INST"),
        (b"cnumpy\nndarray\n)\x81.", "instruction NEWOBJ"),
        (b"cnumpy\nndarray\n(I99999999999\ntR.", r"it calls numpy\.ndarray"),
        (b"cnumpy\ndtype\n(S'O8'\ntR.", "which are no numbers"),
        (b"Pxyz\n.", "instruction PERSID"),
        (b"\x80\x04K\x01K\x02a.", "no list"),
        (b"\x82\x01.", "instruction EXT1"),
        (b"\x80\x02})" + b"\x85" * 2**12 + b"K\x01s.", "key of type tuple"),
        (b"\x80\x04\x8c\x01a)" + b"\x85" * 2**12 + b"\x93.", "key of type tuple"),
    ],
)
def test_what_is_more_than_values_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        values(data)

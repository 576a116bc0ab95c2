"""Records: a dataclass comes back as it was written, and a damaged one is named with its field."""

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from mpctl.errors import MpctlError
from mpctl.records import decode, encode, form, restored


class Kind(StrEnum):
    A = "a"


@dataclass(frozen=True)
class Inner:
    x: float = 0.0


class Own:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.text == self.text

    __hash__ = None

    def to_record(self) -> str:
        return self.text

    @classmethod
    def from_record(cls, record: str) -> "Own":
        return cls(record.strip())


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Kind
    inner: tuple[Inner, ...] = ()
    own: Own | None = None
    later: int = 0
    sizes: tuple[int, ...] = field(
        default=(), metadata=form(write=sum, read=lambda total: (total,))
    )


@pytest.mark.parametrize("own", [None, Own("x")])
def test_a_record_is_read_back_as_it_was_written(own):
    value = Outer("n", Kind.A, (Inner(1.5), Inner()), own, later=2, sizes=(3,))
    record = encode(value)
    inner = [{"x": 1.5}, {"x": 0.0}]
    assert record == {
        "name": "n",
        "kind": "a",
        "inner": inner,
        "own": own and own.text,
        "later": 2,
        "sizes": 3,
    }
    assert decode(Outer, record) == value


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "no field name"),
        ({"name": "n"}, "no field kind"),
        ({"name": "n", "kind": "a", "more": 1}, "unknown field more"),
        ({"name": 3, "kind": "a"}, "field name: expected `str`, got `int`"),
        ({"name": "n", "kind": "b"}, "field kind: invalid enum value 'b'"),
        (
            {"name": "n", "kind": "a", "inner": [{"x": "y"}]},
            "field inner[0].x: expected `float`, got `str`",
        ),
        ({"name": "n", "kind": "a", "own": 3}, "field own: 'int' object has no attribute 'strip'"),
    ],
)
def test_a_damaged_record_is_named_with_its_field(record, reason):
    def read(given):
        return decode(Outer, given)

    with pytest.raises(MpctlError) as caught:
        restored("record x of y", read, record, hint="restore it")
    assert caught.value.message == f"record x of y is damaged: {reason}"
    assert caught.value.hint == "restore it"

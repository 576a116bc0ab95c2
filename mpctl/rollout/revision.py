"""A revision: the whole service as it was, so that restoring it never depends on reconstructing anything.

The ledger and plans name a manifest by its revision's number and the digest of its text (:class:`Manifest`). The text
itself lies in the revision alone, and is checked against the digest whenever it is read to be written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from mpctl.errors import MpctlError, Tampered
from mpctl.json_types import Json, JsonView
from mpctl.methods import Spec
from mpctl.records import decode, encode, restored


def text_digest(text: str) -> str:
    """sha256 of a manifest's bytes, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Revision:
    """The whole service at one moment. ``spec``: its speculation, None where nobody read it; ``why`` is for people;
    ``configs``: objects outside of the text that shaped its pods, with their generations, where the platform knows."""

    number: int
    text: str
    created: str
    who: str
    why: str
    spec: Spec | None
    operation: str
    configs: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 of the text."""
        return text_digest(self.text)

    def to_record(self) -> Json:
        """A JSON object; the digest is written beside the text so that a damaged copy shows."""
        return {**encode(self), "digest": self.digest}

    @classmethod
    def from_record(cls, record: JsonView, *, where: str = "") -> Revision:
        """The value :meth:`to_record` wrote. ``where``: the object or file that holds it.

        Raises:
            MpctlError: a field is missing or unknown, or the text is not the one the digest was made of.
        """
        values = dict(record)
        digest = str(values.pop("digest", ""))
        number = f"revision {values.get('number', '?')}"
        named = f"{where}: {number}" if where else number
        hint = "restore it from a copy; nothing was changed"
        revision = restored(named, partial(decode, cls), values, hint=hint)
        if revision.digest != digest:
            raise Tampered(f"{named}: its text does not have the recorded digest {digest[:12]}")
        return revision


@dataclass(frozen=True)
class Manifest:
    """A manifest as plans and the ledger name it: the digest of its text and the number of the revision that holds it.

    Two are equal when their texts are. ``text`` is never part of a record; :meth:`read` takes it from the revision.
    """

    digest: str
    number: int = field(default=0, compare=False)
    text: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, text: str, number: int = 0) -> Manifest:
        """The manifest with that text; ``number`` 0: not recorded yet."""
        return cls(text_digest(text), number, text)

    def read(self, revisions: Iterable[Revision]) -> Manifest:
        """The manifest with the text of its revision.

        Raises:
            MpctlError: the revision is lost.
            Tampered: the revision holds another text than the plan was made for.
        """
        revision = next((r for r in revisions if r.number == self.number), None)
        if revision is None:
            raise MpctlError(
                f"revision {self.number}, which the ledger names, is lost",
                hint="restore it from a copy; an abandon ends the operation and leaves the service as it is",
            )
        if revision.digest != self.digest:
            raise Tampered(
                f"revision {self.number} is not the manifest that the ledger names: digest {revision.digest[:12]}, "
                f"expected {self.digest[:12]}"
            )
        return replace(self, text=revision.text)

    def to_record(self) -> Json:
        """Number and digest, never the text."""
        return {"revision": self.number, "sha256": self.digest}

    @classmethod
    def from_record(cls, record: JsonView) -> Manifest:
        """The value :meth:`to_record` wrote, without its text."""
        number, digest = record["revision"], record["sha256"]
        if not isinstance(number, int) or not isinstance(digest, str):
            raise ValueError("expected a revision's number and a sha256")
        return cls(digest, number)

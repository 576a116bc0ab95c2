"""A revision: the whole service as it was, so that restoring it never depends on reconstructing anything."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from mpctl.errors import MpctlError


def text_digest(text: str) -> str:
    """sha256 of a manifest's bytes, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Revision:
    """The whole service at one moment. ``spec`` and ``why`` are for people; ``digest`` is of ``text``."""

    number: int
    text: str
    created: str
    who: str
    why: str
    spec: str
    operation: str

    @property
    def digest(self) -> str:
        """sha256 of the text."""
        return text_digest(self.text)

    def to_record(self) -> dict[str, Any]:
        """A JSON object; the digest is written beside the text so that a damaged copy shows."""
        return {**asdict(self), "digest": self.digest}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Revision:
        """The value :meth:`to_record` wrote.

        Raises:
            MpctlError: a field is missing or unknown, or the text is not the one the digest was made of.
        """
        values = dict(record)
        digest = str(values.pop("digest", ""))
        try:
            revision = cls(**values)
        except TypeError as error:
            raise MpctlError(f"revision {values.get('number', '?')} is damaged: {error}") from error
        if revision.digest != digest:
            raise MpctlError(
                f"revision {revision.number} is damaged: its text does not have the recorded digest {digest[:12]}",
                hint="restore its file; nothing was changed",
            )
        return revision

"""Orders and cards of heads in ConfigMaps, which other users may write, too: only what mpctl wrote is read.

The digest of each is sealed in a ControllerRevision of the service's history, which no one can change and few may
create. The newest seal alone counts. A ConfigMap without its seal is skipped with a warning that names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from mpctl import bounded, commands
from mpctl.errors import Conflict, MpctlError
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION
from mpctl.platform.kubernetes.api.objects import last_writer
from mpctl.platform.kubernetes.ledger_objects import (
    create_once,
    ledger_of,
    metadata_of,
    owned_by,
    seals_of,
)
from mpctl.platform.kubernetes.sealed_records import newest_seals, number_of, part_of
from mpctl.records import restored

_Value = TypeVar("_Value")


class HeadRecords:
    """The orders and cards of one service's heads. ``warn``: takes a line about each ConfigMap that is skipped."""

    def __init__(
        self, client: Client, namespace: str, service: str, warn: Callable[[str], None]
    ) -> None:
        self._client, self._namespace, self._service = client, namespace, service
        self._warn = warn

    def read(self, file: str, read: Callable[[Any], _Value]) -> tuple[_Value, ...]:
        """Return what the sealed ConfigMaps hold under the name of a file."""
        configs = [item for item in self._list() if file in (item.get("data") or {})]
        seals = self._seals() if configs else {}
        values = []
        for config in configs:
            text, metadata = config["data"][file], config["metadata"]
            where = f"ConfigMap {self._namespace}/{metadata['name']}"
            seal = seals.get((_operation(metadata["labels"].get(names.HEAD_LABEL, "")), file), {})
            try:
                if (seal.get("data") or {}).get("sha256") != _sha256(text):
                    raise MpctlError(
                        f"{where} holds no {file} that mpctl wrote{last_writer(config)}"
                    )
                values.append(
                    restored(where, lambda text: read(bounded.loads(text)), text, hint="")
                )
            except MpctlError as error:
                delete = commands.kubectl(
                    "delete", "configmap", metadata["name"], namespace=self._namespace
                )
                self._warn(f"{error.message}; it is skipped, '{delete}' deletes it")
        return tuple(values)

    def _list(self) -> list[Json]:
        labels = f"{names.SERVICE_LABEL}={names.label_of(self._service)},{names.PART_LABEL}={names.DRAFT}"
        return self._client.list(CONFIG_MAP, self._namespace, labels=labels) or []

    def seal_of(self, head: str, file: str, text: str) -> Json | None:
        """Return the seal that vouches for a text of a head; None where it is the newest."""
        newest, digest = (
            self._seals().get((_operation(head), file), {}),
            _sha256(text) if text else "",
        )
        if (newest.get("data") or {}).get("sha256", "") == digest:
            return None
        operation, number = _operation(head), number_of(newest) + 1
        name = names.seal_name(self._service, operation, file, number)
        return {
            "apiVersion": "apps/v1",
            "kind": CONTROLLER_REVISION.name,
            "metadata": metadata_of(self._namespace, self._service, name, names.SEAL),
            "revision": number,
            "data": {"operation": operation, "name": file, "sha256": digest},
        }

    def seal(self, head: str, file: str, text: str) -> None:
        """Seal a text of a head; an empty one withdraws what was sealed.

        Raises:
            Conflict: another command sealed another text.
        """
        seal = self.seal_of(head, file, text)
        if seal is None:
            return
        existing = create_once(self._client, seal["metadata"], seal["revision"], seal["data"])
        if existing is not None and existing.get("data") != seal["data"]:
            raise Conflict(
                f"{file} of {head} was written by another command{last_writer(existing)}"
            )

    def _seals(self) -> dict[tuple[str, str], Json]:
        labels = f"{names.SERVICE_LABEL}={names.label_of(self._service)}"
        listed = self._client.list(CONTROLLER_REVISION, self._namespace, labels=labels) or []
        owned = [item for item in listed if owned_by(item, self._service)]
        ledger = ledger_of(item for item in owned if part_of(item) == names.LEDGER)
        return newest_seals(
            [*(item for item in owned if part_of(item) == names.SEAL), *seals_of(ledger)]
        )


def _operation(head: str) -> str:
    """The name under which seals of a head are kept, next to those of operations."""
    return f"draft.{head}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

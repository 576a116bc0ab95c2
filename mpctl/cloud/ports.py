"""The protocol of a cloud, so that commands are independent of the provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mpctl.estimate.capacity import Pool, PoolLimits


@dataclass(frozen=True)
class Endpoint:
    """``server`` is the https URL of the control plane, ``ca_data`` its certificate authority in base64."""

    server: str
    ca_data: str


@dataclass(frozen=True)
class Token:
    """A bearer token. Its value is kept out of every representation."""

    value: str = field(repr=False)
    expires: datetime


class Cloud(Protocol):
    def endpoint(self) -> Endpoint: ...

    def token(self) -> Token: ...

    def pools(self) -> tuple[Pool, ...]: ...

    def limits(self, pool: Pool) -> PoolLimits: ...

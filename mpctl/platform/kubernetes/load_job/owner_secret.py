"""The secret that a load Job's agent asks for: it answers no one else who reaches its port.

The Job's command has the secret's digest alone, so that nothing in the cluster holds the secret. It follows from a key
of this user on this machine. A command that resumes a killed one knows it there, and uses the same Job; on another
machine it replaces the Job and sends the blocks without a sealed record again.
"""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress
from functools import cache

from mpctl.errors import MpctlError
from mpctl.platform.state_files import state_root, write_text

_KEY_BYTES = 32


def owner_secret(purpose: str) -> str:
    """Return the secret for a purpose: a service and the work on it."""
    return hmac.new(_key(), purpose.encode(), "sha256").hexdigest()


@cache
def _key() -> bytes:
    """Return this user's key, created at its first use; for this process alone if no file can be kept."""
    path = state_root() / "load-job.key"
    with suppress(OSError, MpctlError):
        if not path.exists():
            write_text(path, secrets.token_hex(_KEY_BYTES))
        key = path.read_bytes()
        if len(key) >= _KEY_BYTES:
            return key
    return secrets.token_bytes(_KEY_BYTES)

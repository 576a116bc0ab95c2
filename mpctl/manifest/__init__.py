"""A served model as a value: text in, value, text out.

``load`` reads the services of a file, ``Service.with_speculation`` gives the same service with another speculative
setting, and ``Service.to_yaml`` is the text to write: the user's own bytes but for the setting. Nothing here touches a
disk, a cluster or a terminal.
"""

from mpctl.manifest.documents import load, load_one, load_values, select, speculation_of
from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.manifest.merge.foreign_changes import RESTARTED_AT, foreign_changes
from mpctl.manifest.redact import masked, plain_secrets, redacted, split_secrets
from mpctl.manifest.service import Service, Storage

__all__ = [
    "RESTARTED_AT",
    "EngineCommand",
    "Service",
    "Storage",
    "foreign_changes",
    "load",
    "load_one",
    "load_values",
    "masked",
    "plain_secrets",
    "redacted",
    "select",
    "speculation_of",
    "split_secrets",
]

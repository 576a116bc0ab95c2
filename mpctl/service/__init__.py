"""A served model as a value: text in, value, text out.

``load`` reads the services of a file, ``Service.with_speculation`` gives the same service with another speculative
setting, and ``Service.to_yaml`` is the text to write: the user's own bytes but for the setting. Nothing here touches a
disk, a cluster or a terminal.
"""

from mpctl.service.command import EngineCommand
from mpctl.service.documents import load, select
from mpctl.service.model import Other, Service, Storage
from mpctl.service.redact import redacted
from mpctl.service.setting import Json, Style

__all__ = ["EngineCommand", "Json", "Other", "Service", "Storage", "Style", "load", "redacted", "select"]

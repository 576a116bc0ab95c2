"""The port of the engine in a container. Pure."""

from __future__ import annotations

import re

from mpctl.json_fields import list_at, words_of
from mpctl.json_types import JsonView

CONTAINER = "kserve-container"
_CERTIFICATE = "KSERVE_TLS_CERT_FILE"
_PORT = re.compile(r"""(?:^|\s)--port(?:=|\s+)["']?(\d+)""")


def has_certificate(container: JsonView) -> bool:
    """Return whether KServe's server has a certificate."""
    return any(e.get("name") == _CERTIFICATE for e in list_at(container, "env"))


def port_of(container: JsonView) -> int:
    """Port of the engine: its last --port, also in a start script, else its first declared port, else KServe's 8080 or
    vLLM's 8000. With a certificate KServe's server listens on 8443 instead (KServe 0.21)."""
    if has_certificate(container):
        return 8443
    words = words_of(container)
    for variable in list_at(container, "env"):
        for spelling in ("$({})", "${{{}}}", "${}"):
            words = words.replace(spelling.format(variable.get("name")), str(variable.get("value")))
    if numbers := _PORT.findall(words):
        return int(numbers[-1])
    declared = [str(port.get("containerPort")) for port in list_at(container, "ports")]
    if declared and declared[0].isdigit():
        return int(declared[0])
    return (
        8080 if container.get("name") in (CONTAINER, None) else 8000
    )  # vLLM's own default outside KServe

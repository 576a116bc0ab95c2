"""Detection of containers that start vLLM, by their image and command line alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpctl.manifest.engine.locate import mentions_vllm
from mpctl.manifest.engine.other_engines import other_engine

_STARTS = re.compile(r"\bvllm\s+serve\b|\bvllm\.entrypoints\.")
# Images with vLLM's name or flags whose entrypoint is no engine.
_BESIDE = re.compile(
    r"router|routing|proxy|gateway|exporter|bench|operator|controller|scheduler|sidecar|-sim\b|simulator"
)


def starts_vllm(image: str, command: Sequence[str] | None, args: Sequence[str]) -> bool:
    """Return whether a container starts vLLM: by its command, else by the image's name or flags that only vLLM has.

    ``command``: None when the image's entrypoint runs.
    """
    words = [*(command or ()), *args]
    if other_engine([image, *words]) is not None:
        return False
    if _STARTS.search(" ".join(words)):
        return True
    name = image.rpartition("/")[2].partition("@")[0].lower()
    if command or _BESIDE.search(name):
        return False
    return "vllm" in image.lower() or mentions_vllm(*(word.partition("=")[0] for word in args if word.startswith("--")))

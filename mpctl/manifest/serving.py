"""The speculative setting of a running engine, from its own arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mpctl.manifest.documents import load
from mpctl.manifest.speculation.setting import Json


def speculation_of(argv: Sequence[str]) -> dict[str, Json] | None:
    """Return the speculative setting that an engine was started with; None when there is none.

    ``argv``: of the engine's process, or command and arguments of its container.

    Raises:
        InputError: variables or the shell build it, or it is not valid.
    """
    words = list(argv)
    if "serve" in words:
        words = words[words.index("serve") + 1 :]
    bare = not words or words[0].startswith("-") or "serve" in argv
    model = {"modelFormat": {"name": "vLLM"}, ("args" if bare else "command"): words}
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "running"},
        "spec": {"predictor": {"model": model}},
    }
    (service,) = load(json.dumps(document))
    return service.speculation()

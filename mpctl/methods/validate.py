"""A second opinion from the installed engine's own configuration class. Not pure, and never needed.

Importing it costs 8 to 18 s and torch, so no plain command comes here. Only methods that can be judged without a
model on disk are asked about; ``suffix`` depends on whether arctic-inference is installed beside that engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from mpctl.methods.spec import Json, from_config, thaw

Verdict = Literal["accepted", "refused", "not_judged"]


@dataclass(frozen=True)
class Opinion:
    """The verdict of the engine's class: ``message`` is its first error, or why it was not asked."""

    verdict: Verdict
    message: str = ""


def engine_opinion(config: Mapping[str, Json]) -> Opinion:
    """Ask the SpeculativeConfig of the vLLM in this environment; never raises."""
    spec = from_config(config)
    # A method with weights loads a checkpoint's config.json, from disk or the network.
    if spec.is_none or spec.known is None or spec.known.loads_weights:
        return Opinion("not_judged", f"{spec.method} needs a model on disk")
    try:
        made = importlib.import_module("vllm.config").SpeculativeConfig
    except Exception as error:  # noqa: BLE001 - an engine that cannot be imported has no opinion
        return Opinion("not_judged", f"vLLM cannot be imported: {_first(error)}")
    return _ask(made, config)


def _ask(made: Callable[..., object], config: Mapping[str, Json]) -> Opinion:
    """vLLM's command line turns dashes in keys into underscores before it makes the object; so do we."""
    try:
        made(**{key.replace("-", "_"): thaw(value) for key, value in config.items()})
    except ImportError as error:
        return Opinion("not_judged", _first(error))
    except Exception as error:  # noqa: BLE001 - pydantic's error types are the engine's business
        return Opinion("refused", _first(error))
    return Opinion("accepted")


def _first(error: Exception) -> str:
    """The first error in one line: field and message of pydantic's, or the first line of any other."""
    details = getattr(error, "errors", None)
    if callable(details):
        try:
            first = details()[0]
            where = ".".join(str(part) for part in first.get("loc", ()))
            return f"{where}: {first['msg']}" if where else str(first["msg"])
        except Exception:  # noqa: BLE001 - fall back to the text
            pass
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

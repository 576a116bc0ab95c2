"""The same spec as other engines spell it. vLLM's own spelling is :meth:`mpctl.methods.Spec.config`.

A dialect writes what it can say exactly and refuses the rest by name; reading what it wrote gives the spec back. The
gate's counters are vLLM's, so these are for people: a rollout on another engine could not be measured and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mpctl.errors import InputError
from mpctl.methods.dialects import sglang, trtllm
from mpctl.methods.spec import Spec


@dataclass(frozen=True)
class Dialect:
    """An engine's spelling. ``text``: what a person copies; ``unsupported``: why the engine cannot run a spec."""

    name: str
    title: str
    source: str
    where: str
    text: Callable[[Spec], str]

    def unsupported(self, spec: Spec) -> str | None:
        """Return the reason why this engine cannot run this spec, None when it can."""
        try:
            self.text(spec)
        except InputError as error:
            return error.reason
        return None


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "sglang": Dialect(
            "sglang",
            "SGLang",
            sglang.SOURCE,
            "arguments of sglang.launch_server",
            lambda spec: " ".join(sglang.write(spec)),
        ),
        "tensorrt-llm": Dialect(
            "tensorrt-llm", "TensorRT-LLM", trtllm.SOURCE, "the file that trtllm-serve --config reads", trtllm.text
        ),
    }
)

__all__ = ["DIALECTS", "Dialect", "sglang", "trtllm"]

"""SGLang's flags. Drafts are one chain, as vLLM's are: a top-k of 1, and no tree.

SGLang counts the token that verification yields among its draft tokens, so that K drafted tokens are K steps and
K + 1 draft tokens (the documented rule for a top-k of 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from mpctl.errors import InputError
from mpctl.methods.dialects.refuse import names_in, need_draft, need_k, need_keys, need_method
from mpctl.methods.method import Method
from mpctl.methods.spec import Json, Spec
from mpctl.methods.table import METHODS, SGLANG

ENGINE = "SGLang"
SOURCE = "docs.sglang.io, Speculative Decoding, Full Parameter Reference (sgl-project/sglang at 067ad4d)"
# vLLM's key -> SGLang's flag, for drafts with weights.
_FLAGS = MappingProxyType(
    {
        "revision": "--speculative-draft-model-revision",
        "quantization": "--speculative-draft-model-quantization",
        "attention_backend": "--speculative-draft-attention-backend",
        "moe_backend": "--speculative-moe-runner-backend",
    }
)
_WINDOWS = MappingProxyType(
    {
        "prompt_lookup_min": "--speculative-ngram-min-match-window-size",
        "prompt_lookup_max": "--speculative-ngram-max-match-window-size",
    }
)
_PATH = "--speculative-draft-model-path"


def write(spec: Spec) -> tuple[str, ...]:
    """The arguments for this spec; empty for none.

    Raises:
        InputError: naming the method or the setting that SGLang cannot express.
    """
    if spec.is_none:
        return ()
    algorithm = need_method(spec, SGLANG, ENGINE)
    weights, method = METHODS[spec.method].loads_weights, METHODS[spec.method]
    need_keys(spec, ENGINE, {"num_speculative_tokens", *(("model", *_FLAGS) if weights else _WINDOWS)})
    k = need_k(spec, ENGINE)
    words = ["--speculative-algorithm", algorithm]
    if weights:
        if not method.target_layers or spec.draft:
            words += [_PATH, need_draft(spec, ENGINE)]
        words += ["--speculative-num-steps", str(k), "--speculative-eagle-topk", "1"]
    words += ["--speculative-num-draft-tokens", str(k + 1)]
    for key, flag in (_FLAGS if weights else _WINDOWS).items():
        if spec.settings.get(key) is not None:
            words += [flag, str(spec.settings[key])]
    if not weights:
        words += ["--speculative-ngram-max-bfs-breadth", "1"]
    return tuple(words)


def read(words: Sequence[str]) -> Spec:
    """The spec that an SGLang command line asks for; ``none`` when it asks for none.

    Raises:
        InputError: it drafts trees or in another way that a spec cannot say.
    """
    flags = _flags(words)
    algorithm = flags.pop("--speculative-algorithm", None)
    if algorithm is None:
        return Spec("none")
    method = _method(algorithm.upper(), named=_PATH in flags)
    if method is None:
        raise InputError(f"{ENGINE}'s {algorithm} has no equal here", field="--speculative-algorithm")
    settings: dict[str, Json] = {}
    if _PATH in flags:
        settings["model"] = flags.pop(_PATH)
    top = flags.pop("--speculative-eagle-topk" if method.loads_weights else "--speculative-ngram-max-bfs-breadth", None)
    if top != "1":
        breadth = "left to the engine" if top is None else top
        raise InputError(f"{ENGINE} drafts a tree (breadth {breadth}), which vLLM has no setting for", field="topk")
    tokens, steps = flags.pop("--speculative-num-draft-tokens", None), flags.pop("--speculative-num-steps", None)
    if steps is not None or tokens is not None:
        k = _whole("--speculative-num-steps", steps) if steps else _whole("--speculative-num-draft-tokens", tokens) - 1
        if tokens is not None and _whole("--speculative-num-draft-tokens", tokens) != k + 1:
            raise InputError(f"{tokens} draft tokens are no chain of {k} steps", field="--speculative-num-draft-tokens")
        settings["num_speculative_tokens"] = k
    for key, flag in {**_FLAGS, **_WINDOWS}.items():
        if flag in flags:
            value = flags.pop(flag)
            settings[key] = _whole(flag, value) if key in _WINDOWS else value
    if flags:
        raise InputError(f"{ENGINE}'s {', '.join(sorted(flags))} has no equal here", field=min(flags))
    return Spec(method.name, settings)


def _method(algorithm: str, *, named: bool) -> Method | None:
    """EAGLE without a draft runs the target's own layers, for which NEXTN is an alias."""
    rows = [METHODS[ours] for ours, theirs in names_in(SGLANG).items() if theirs == algorithm]
    layers = next(row for row in METHODS.values() if row.target_layers)
    return layers if algorithm == "EAGLE" and not named else next(iter(rows), None)


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The speculative flags by their dashed names; the last of several counts."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        name = name.replace("_", "-")
        at += 1
        if not name.startswith("--speculative-"):
            continue
        if not equals:
            if at >= len(words) or words[at].startswith("--"):
                raise InputError("has no value", field=name)
            value = words[at]
            at += 1
        found[name] = value
    return found


def _whole(flag: str, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise InputError(f"needs a whole number, got {text!r}", field=flag)
    return int(text)

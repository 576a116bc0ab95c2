"""SGLang's flags. Drafts are one chain, as vLLM's are: a top-k of 1, and no tree.

SGLang counts the token that verification yields among its draft tokens: K drafted tokens are K steps and K + 1 draft
tokens, for a block drafter one pass and K + 1 draft tokens. Its n-gram cache is filled by all requests, vLLM's by one.
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
SOURCE = "sglang 0.5.23 (wheel of 2026-10-30), arg_groups/fields/spec.py and speculative_hook.py"
# vLLM's key -> SGLang's flag, for drafts with weights.
_FLAGS = MappingProxyType(
    {
        "revision": "--speculative-draft-model-revision",
        "quantization": "--speculative-draft-model-quantization",
    }
)
_PATH = "--speculative-draft-model-path"
_BREADTH = "--speculative-ngram-max-bfs-breadth"
# The flags that say K, and by how much they are above it.
_COUNTS = MappingProxyType(
    {
        "--speculative-num-steps": 0,
        "--speculative-num-draft-tokens": 1,
        "--speculative-dflash-block-size": 1,
        "--speculative-dspark-block-size": 0,
    }
)


def write(spec: Spec) -> tuple[str, ...]:
    """The arguments for this spec; empty for none.

    Raises:
        InputError: naming the method or the setting that SGLang cannot express.
    """
    if spec.is_none:
        return ()
    algorithm = need_method(spec, SGLANG, ENGINE)
    weights, method = METHODS[spec.method].loads_weights, METHODS[spec.method]
    need_keys(spec, ENGINE, {"num_speculative_tokens", *(("model", *_FLAGS) if weights else ())})
    k = need_k(spec, ENGINE)
    words = ["--speculative-algorithm", algorithm]
    if weights:
        if not method.target_layers or spec.draft:
            words += [_PATH, need_draft(spec, ENGINE)]
        if not method.drafts_in_one_pass:
            words += ["--speculative-num-steps", str(k), "--speculative-eagle-topk", "1"]
    words += ["--speculative-num-draft-tokens", str(k + 1)]
    for key, flag in _FLAGS.items():
        if spec.settings.get(key) is not None:
            words += [flag, str(spec.settings[key])]
    if not weights:
        words += [_BREADTH, "1"]
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
    _require_chain(flags, method)
    k = _k(flags)
    if k is not None:
        settings["num_speculative_tokens"] = k
    settings |= {key: flags.pop(flag) for key, flag in _FLAGS.items() if flag in flags}
    if flags:
        raise InputError(f"{ENGINE}'s {', '.join(sorted(flags))} has no equal here", field=min(flags))
    return Spec(method.name, settings)


def _require_chain(flags: dict[str, str], method: Method) -> None:
    """Refuse trees; a block drafter drafts a chain whatever the breadth says."""
    breadth = flags.pop("--speculative-eagle-topk" if method.loads_weights else _BREADTH, None)
    if breadth != "1" and not method.drafts_in_one_pass:
        given = "left to the engine" if breadth is None else breadth
        raise InputError(f"{ENGINE} drafts a tree (breadth {given}), which vLLM has no setting for", field="topk")


def _k(flags: dict[str, str]) -> int | None:
    """K by the flags that count steps, draft tokens or a block's tokens, which must agree."""
    counts = {flag: _whole(flag, flags.pop(flag)) - offset for flag, offset in _COUNTS.items() if flag in flags}
    if len(set(counts.values())) > 1:
        flag = "--speculative-num-draft-tokens"
        raise InputError(f"{', '.join(counts)} do not agree on a chain of one length", field=flag)
    return next(iter(counts.values()), None)


def _method(algorithm: str, *, named: bool) -> Method | None:
    """EAGLE without a draft runs the target's own layers, for which NEXTN is an alias."""
    rows = [METHODS[ours] for ours, theirs in names_in(SGLANG).items() if theirs == algorithm]
    layers = next(row for row in METHODS.values() if row.target_layers)
    return layers if algorithm == "EAGLE" and not named else next(iter(rows), None)


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The speculative flags by their dashed names; the last of several counts."""
    flags: dict[str, str] = {}
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
        flags[name] = value
    return flags


def _whole(flag: str, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise InputError(f"needs a whole number, got {text!r}", field=flag)
    return int(text)

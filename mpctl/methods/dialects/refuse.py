"""How a dialect says what it cannot say."""

from __future__ import annotations

from collections.abc import Mapping

from mpctl.errors import InputError
from mpctl.methods.spec import Spec


def need_method(spec: Spec, engine: str, missing: Mapping[str, str], known: Mapping[str, object]) -> None:
    """Refuse a method the engine lacks, with the reason.

    Raises:
        InputError: naming the method.
    """
    if spec.method in known:
        return
    why = missing.get(spec.method, "it has no such method")
    raise InputError(
        f"{engine} cannot run {spec.method}: {why}", field="spec", hint=f"it runs: {', '.join(sorted(known))}"
    )


def need_keys(spec: Spec, engine: str, allowed: set[str]) -> None:
    """Refuse a setting the engine has no word for.

    Raises:
        InputError: naming every such setting.
    """
    left = sorted(set(spec.settings) - allowed)
    if left:
        raise InputError(
            f"{engine} has no setting for {', '.join(left)}",
            field=left[0],
            hint=f"take it away with --set {left[0]}=null",
        )


def need_k(spec: Spec, engine: str) -> int:
    """The number of drafted tokens.

    Raises:
        InputError: it is left to the checkpoint.
    """
    if spec.k is None:
        raise InputError(
            f"{engine} needs the number of tokens",
            field="num_speculative_tokens",
            hint="--set num_speculative_tokens=3",
        )
    return spec.k


def need_draft(spec: Spec, engine: str) -> str:
    """The draft's path or repository.

    Raises:
        InputError: none is named.
    """
    if spec.draft is None:
        raise InputError(f"{engine} needs a draft for {spec.method}", field="draft", hint="name it with --draft")
    return spec.draft

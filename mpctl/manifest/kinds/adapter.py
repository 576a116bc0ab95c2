"""The adapter of one kind of service: which documents it reads, and the service each of them describes.

Reading, editing and proving an edit are the same for every kind. A kind only says where its engine, its storage and
its pod template are written, and how its pods are replaced and restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.manifest.service import ManifestSource, Origin, Service
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Document, Mapping, resolve
from mpctl.packaged import packaged


@dataclass(frozen=True)
class ManifestFile:
    """The text of a file, its documents and their roots, where a service finds what it refers to."""

    text: str
    documents: tuple[Document, ...]
    roots: tuple[View, ...]

    def of_kind(self, *kinds: str) -> tuple[View, ...]:
        """The documents of some kinds, in order."""
        return tuple(root for root in self.roots if _identity(root)[0] in kinds)

    def number(self, root: View) -> int:
        """The place of a document among the file's."""
        return next(i for i, other in enumerate(self.roots) if other is root)


@dataclass(frozen=True)
class Adapter:
    """A kind of service.

    ``apis``: the versions that are read, the newest first. ``own``: the kind's name belongs to this API alone, so the
    same name under another API is an error. ``serves`` tells an engine from any other object of the kind.
    """

    kind: str
    apis: tuple[str, ...]
    read: Callable[[View, ManifestFile, Origin], Service]
    serves: Callable[[View], bool] = lambda _: True
    own: bool = True

    def is_read(self, root: View) -> bool:
        """Return whether a document is a service of this kind."""
        kind, api = _identity(root)
        if kind != self.kind or api not in self.apis:
            return False
        try:
            return self.serves(root)
        except InputError:
            return (
                self.own
            )  # its reader names the place; of a kind that may be anything, it is no service

    def require_readable(self, root: View) -> None:
        """Raise :class:`InputError` where it cannot be told whether an object of this kind is an engine."""
        if _identity(root) in [(self.kind, api) for api in self.apis]:
            self.serves(root)

    def require_version(self, root: View) -> None:
        """Refuse a document of this kind's name under an API that is not read.

        Raises:
            InputError: with the API to use.
        """
        kind, api = _identity(root)
        if not self.own or kind != self.kind or api in self.apis:
            return
        group = self.apis[0].partition("/")[0]
        same = (api or "").partition("/")[0] in ("", group)
        hint = f"use apiVersion {self.apis[0]}" if same else f"only {kind} of {group} is supported"
        raise root.error(f"{kind} of {api or 'no apiVersion'} is not supported", hint=hint)


def _identity(root: View) -> tuple[str | None, str | None]:
    if not isinstance(resolve(root.node), Mapping):
        return None, None
    return text_of(root.get("kind")), text_of(root.get("apiVersion"))


def name_and_namespace(root: View) -> tuple[str, str | None]:
    """The name and the namespace of a document."""
    metadata = root.need("metadata")
    return metadata.need("name").text(), text_of(metadata.get("namespace"))


def service_at(root: View, kind: str, text: str, source: ManifestSource) -> Service:
    """The service of a document with the command of its engine; its kind adds what it knows besides."""
    name, namespace = name_and_namespace(root)
    return Service(
        kind, name, namespace, root.file, text, root.node.line, source.engine.command, source=source
    )


# By the kind of an object that serves vLLM and is not read: what can be done instead.
_UNSUPPORTED: dict[str, str] = packaged(__package__, "unsupported.yaml")


def no_service(roots: Sequence[View], file: str, supported: str) -> InputError:
    """The error for a file without a service; the kinds in it are named, with what can be done for them."""
    kinds = sorted({kind for root in roots if (kind := _identity(root)[0])})
    holds = f"; it holds {', '.join(kinds)}" if kinds else ""
    advice = [f"{kind}: {_UNSUPPORTED[kind]}" for kind in kinds if kind in _UNSUPPORTED]
    hint = "; ".join(advice) if advice else supported
    return InputError(
        f"no served model in this file{holds}", file=file, hint=f"{hint} (docs/reference/kinds.md)"
    )

"""From the text of a file to the services in it, and from services to the one a user named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import partial

from mpctl.errors import InputError
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace, no_service
from mpctl.manifest.kinds.inference_service import INFERENCE_SERVICE
from mpctl.manifest.kinds.leader_worker_set import LEADER_WORKER_SET
from mpctl.manifest.kinds.llm_inference_service import LLM_INFERENCE_SERVICE
from mpctl.manifest.kinds.model_deployment import MODEL_DEPLOYMENT
from mpctl.manifest.kinds.unsupported import UNSUPPORTED
from mpctl.manifest.kinds.workload import DEPLOYMENT, STATEFUL_SET
from mpctl.manifest.service import Place, Service
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Mapping, parse, resolve

ADAPTERS = (INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, MODEL_DEPLOYMENT, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
_SUPPORTED = f"a vLLM service is needed: {', '.join(adapter.kind for adapter in ADAPTERS)}"


def load_one(text: str, name: str | None, *, file: str = "<input>") -> Service:
    """The service called ``name``, or the only one. Services beside it that cannot be read do not matter.

    Raises :class:`InputError` as :func:`load` and :func:`select` do.
    """
    return select(load(text, file=file, name=name), name)


def load(text: str, *, file: str = "<input>", name: str | None = None) -> tuple[Service, ...]:
    """The services in ``text``, in its order; with ``name`` those that cannot be read are left out but for that one.

    Raises :class:`InputError` with file, line and field for text that is not YAML, for a file without a service, and
    for services that are not one vLLM engine in one pod.
    """
    documents = [(document, View(file, "", document.root)) for document in parse(text, file)]
    whole = ManifestFile(text, tuple(root for _, root in documents))
    for root in whole.roots:
        _check_kind(root)
    served = [(i, document, root, found) for i, (document, root) in enumerate(documents) if (found := _adapter(root))]
    if not served:
        raise no_service(whole.roots, file, _SUPPORTED, UNSUPPORTED)
    services: dict[tuple[str, str | None, str], Service] = {}
    for number, document, root, adapter in served:
        place = Place(document, number, len(services), partial(_load_again, name=name))
        try:
            service = adapter.read(root, whole, place)
        except InputError:
            if name is None or name_and_namespace(root)[0] == name:
                raise
            continue
        if _key(service) in services:
            raise root.error(f"{service.kind} {service.name} is defined twice in this file", hint="remove one of them")
        services[_key(service)] = service
    return tuple(services.values())


def _adapter(root: View) -> Adapter | None:
    return next((adapter for adapter in ADAPTERS if adapter.is_read(root)), None)


def select(services: Sequence[Service], name: str | None) -> Service:
    """The service called ``name``, or the only one when ``name`` is None. Raises :class:`InputError` otherwise."""
    names = [service.name for service in services]
    listed = ", ".join(names) or "none"
    if name is None:
        if len(services) == 1:
            return services[0]
        raise InputError(f"{len(services)} services found: {listed}", hint="name one of them")
    matches = [service for service in services if service.name == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        spaces = ", ".join(str(service.namespace) for service in matches)
        raise InputError(f'"{name}" exists in several namespaces: {spaces}', hint="put them into separate files")
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of: {listed}"
    raise InputError(f'service "{name}" not found; services: {listed}', hint=hint)


def _key(service: Service) -> tuple[str, str | None, str]:
    return service.kind, service.namespace, service.name


def _check_kind(root: View) -> None:
    if not isinstance(resolve(root.node), Mapping):
        raise root.error("a manifest must be a mapping with apiVersion and kind")
    if text_of(root.get("kind")) == "List":
        raise root.need("kind").error("a List is not read", hint="save each object as a separate document")
    for adapter in ADAPTERS:
        adapter.require_version(root)


def _load_again(text: str, file: str, name: str | None) -> tuple[Service, ...]:
    return load(text, file=file, name=name)

"""From the text of a file to the services in it, and from services to the one a user named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import partial

from mpctl.errors import InputError
from mpctl.manifest.kinds import kserve, modelplane
from mpctl.manifest.service import Place, Service
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Mapping, parse, resolve

_KINDS = "an InferenceService (serving.kserve.io/v1beta1) or a ModelDeployment (modelplane.ai/v1alpha1) is needed"
_SERVED = {("InferenceService", kserve.API), ("ModelDeployment", modelplane.API)}
_RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")


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
    for _, root in documents:
        _check_kind(root)
    runtimes = _runtimes([root for _, root in documents])
    routes = _routes([root for _, root in documents])
    served = [(number, *entry) for number, entry in enumerate(documents) if _identity(entry[1]) in _SERVED]
    if not served:
        kinds = sorted({kind for _, root in documents if (kind := _identity(root)[0])})
        seen = f"; it holds {', '.join(kinds)}" if kinds else ""
        raise InputError(f"no served model in this file{seen}", file=file, hint=_KINDS)
    found: dict[tuple[str, str | None, str], Service] = {}
    for number, document, root in served:
        place = Place(document, number, len(found), partial(_load_again, name=name))
        try:
            service = _read(root, place, text, runtimes, routes)
        except InputError:
            if name is None or _place(root)[1] == name:
                raise
            continue
        if _key(service) in found:
            raise root.error(f"{service.kind} {service.name} is defined twice in this file", hint="remove one of them")
        found[_key(service)] = service
    return tuple(found.values())


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


def _identity(root: View) -> tuple[str | None, str | None]:
    return text_of(root.get("kind")), text_of(root.get("apiVersion"))


def _check_kind(root: View) -> None:
    if not isinstance(resolve(root.node), Mapping):
        raise root.error("a manifest must be a mapping with apiVersion and kind")
    kind, api = _identity(root)
    if kind == "List":
        raise root.need("kind").error("a List is not read", hint="save each object as a separate document")
    for known, version in _SERVED:
        if kind == known and api != version:
            same = (api or "").partition("/")[0] in ("", version.partition("/")[0])
            hint = f"use apiVersion {version}" if same else f"only {kind} of {version.partition('/')[0]} is supported"
            raise root.error(f"{kind} of {api or 'no apiVersion'} is not supported", hint=hint)


def _runtimes(roots: Sequence[View]) -> dict[str, View]:
    found: dict[str, View] = {}
    for root in roots:
        if _identity(root)[0] in _RUNTIMES and (container := kserve.runtime_container(root)) is not None:
            found[root.need("metadata").need("name").text()] = container
    return found


def _routes(roots: Sequence[View]) -> dict[tuple[str | None, str], tuple[str, ...]]:
    """ModelService names by the (namespace, deployment) they route to; each must be in the file."""
    present = {_place(root) for root in roots if _identity(root) == ("ModelDeployment", modelplane.API)}
    found: dict[tuple[str | None, str], tuple[str, ...]] = {}
    for root in roots:
        if _identity(root) != ("ModelService", modelplane.API):
            continue
        space, name = _place(root)
        for view, target in modelplane.targets(root):
            if (space, target) not in present:
                raise view.error(
                    f'ModelService {name} routes to deployment "{target}", which is not in this file',
                    hint="put the ModelDeployment into the same file, or give only the deployment",
                )
            found[space, target] = (*found.get((space, target), ()), name)
    return found


def _place(root: View) -> tuple[str | None, str]:
    metadata = root.need("metadata")
    return text_of(metadata.get("namespace")), metadata.need("name").text()


def _read(
    root: View,
    place: Place,
    text: str,
    runtimes: dict[str, View],
    routes: dict[tuple[str | None, str], tuple[str, ...]],
) -> Service:
    if _identity(root)[0] == "InferenceService":
        return kserve.read(root, text, runtimes, place)
    return modelplane.read(root, text, routes.get(_place(root), ()), place)


def _load_again(text: str, file: str, name: str | None) -> tuple[Service, ...]:
    return load(text, file=file, name=name)

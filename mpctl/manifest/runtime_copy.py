"""A copy of a ServingRuntime for one InferenceService: a document more in the file, and the service pointed at it.

A runtime is shared, so an edit of it changes every service that uses it. The copy has the runtime's spec, character by
character, but for ``autoSelect``, which would offer it to other services. Removing it restores every byte.
"""

from __future__ import annotations

import copy

from mpctl.errors import InputError
from mpctl.manifest.documents import load, load_one
from mpctl.manifest.engine.engine_command import parse
from mpctl.manifest.kinds.adapter import ManifestFile
from mpctl.manifest.kinds.inference_service import COPY_OF
from mpctl.manifest.service import Service
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.speculation.setting import is_speculative
from mpctl.manifest.text.list_items import content_end, eol_of, line_end, line_start
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Mapping, Scalar, contents
from mpctl.manifest.text.yaml_tree import parse as parse_yaml

_UNENDED = " # the line above had no line break"


def with_runtime_copy(service: Service) -> Service:
    """This service with a runtime of its own; itself when it has one.

    Raises:
        InputError: it names no runtime, the runtime is not in the file, or its form cannot be copied.
    """
    if service.copy_of is not None:
        return service
    name = _runtime_name(service)
    original = _runtime(service, service.runtime or "")
    if original is None:
        raise name.error(
            f"ServingRuntime {service.runtime} is not in this file",
            hint="add it as a document: kubectl get servingruntime,clusterservingruntime NAME -o yaml",
        )
    editor = _editor(service)
    suffix = f"-{service.name}"
    end = name.node.end - len(name.scalar().style)
    editor.cut(end, end, suffix)
    document = _copied(service, original, f"{service.runtime}{suffix}")
    edited = editor.result()
    eol = eol_of(edited)
    begin = "---" if edited.endswith(("\n", "\r")) else f"{eol}---{_UNENDED}"
    text = f"{edited}{begin}{eol}{document}{eol}"
    return _proved(service, text, original)


def without_runtime_copy(service: Service) -> Service:
    """This service with the runtime that its copy was made from; itself where it has no copy, where that runtime is not
    in the file, or sets speculation itself.

    Raises:
        InputError: the copy cannot be removed without changing something else.
    """
    if service.copy_of is None:
        return service
    original = _runtime(service, service.copy_of.partition("/")[2])
    if original is None or _speculates(service, original):
        return service
    editor, name = _editor(service), _runtime_name(service)
    end = name.node.end - len(name.scalar().style)
    editor.cut(end - len(name.text()) + len(original[0].need("metadata").need("name").text()), end, "")
    text, copied = service.text, _runtime(service, service.runtime or "")
    assert copied is not None
    begin, end = _extent(text, copied[0])
    editor.cut(begin, end, "")
    return load_one(editor.result(), service.name, file=service.file)


def _extent(text: str, copied: View) -> tuple[int, int]:
    """The characters of the copy's document: from its ``---`` to the next document, or to the end of the file."""
    begin = text.rfind("---", 0, copied.node.start)
    head = text[begin + 3 : copied.node.start].rstrip() if begin >= 0 else "?"
    if head not in ("", _UNENDED) or begin != line_start(text, begin):
        raise copied.error("the copied runtime does not begin behind ---", hint="remove the document by hand")
    end = line_end(text, content_end(text, copied.node))
    end += 2 if text.startswith("\r\n", end) else min(1, len(text) - end)
    if head:
        begin -= 2 if text.endswith("\r\n", 0, begin) else 1
    return begin, end


def _proved(service: Service, text: str, original: tuple[View, int]) -> Service:
    """The service with its copy; refused when the copy has another spec, or when removing it is not exact."""
    try:
        copied = load_one(text, service.name, file=service.file)
        before, after = contents(service.text, service.file), contents(text, service.file)
        specs = copy.deepcopy([before[original[1]]["spec"], after[-1]["spec"]])
        for formats in (spec.get("supportedModelFormats") or () for spec in specs):
            for model_format in formats:
                model_format.pop("autoSelect", None)
        good = copied.copy_of is not None and specs[0] == specs[1] and len(after) == len(before) + 1
        good = good and (_speculates(service, original) or without_runtime_copy(copied).text == service.text)
    except (InputError, KeyError, AttributeError, TypeError):
        good = False
    if not good:
        raise original[0].error(
            "this runtime cannot be copied exactly", hint="write it in block form without anchors, from column 0"
        )
    return copied


def _copied(service: Service, original: tuple[View, int], name: str) -> str:
    """The document of the copy, without the break at its end."""
    root, text = original[0], service.text
    node, eol = root.node, eol_of(text)
    entry = next(((k, v) for k, v in node.entries if k.value == "spec"), None) if isinstance(node, Mapping) else None
    if entry is None or line_start(text, entry[0].start) != entry[0].start:
        raise root.error("this runtime cannot be copied", hint="write it in block form, from column 0")
    end = line_end(text, content_end(text, entry[1]))
    spec, start = "", entry[0].start
    for offered in _offers(root):
        spec += text[start : offered.start] + "false"
        start = offered.end
    spec += text[start:end]
    head = [f"apiVersion: {root.need('apiVersion').text()}", "kind: ServingRuntime", "metadata:", f"  name: {name}"]
    head += [] if service.namespace is None else [f"  namespace: {service.namespace}"]
    of = f"{root.need('kind').text()}/{service.runtime}"
    head += ["  labels:", "    app.kubernetes.io/managed-by: mpctl", "  annotations:", f"    {COPY_OF}: {of}"]
    return eol.join([*head, spec])


def _offers(root: View) -> list[Scalar]:
    """The values that offer a runtime to services that name none, in the order of the text."""
    formats = root.at("spec", "supportedModelFormats")
    offers = [] if formats is None else [model_format.get("autoSelect") for model_format in formats.items()]
    return sorted((offer.scalar() for offer in offers if offer is not None), key=lambda scalar: scalar.start)


def _runtime_name(service: Service) -> View:
    assert service.source is not None
    runtime = None if service.source.pod is None else service.source.pod.at("model", "runtime")
    if service.kind != "InferenceService" or runtime is None:
        raise InputError(
            f"{service.kind} {service.name} names no runtime in spec.predictor.model.runtime",
            file=service.file,
            line=service.line,
        )
    if (
        not isinstance(runtime.node, Scalar)
        or runtime.node.style in ("|", ">")
        or text_of(runtime) != runtime.text().strip()
    ):
        raise runtime.error("the runtime's name cannot be edited here", hint="write it plainly behind its key")
    return runtime


def _runtime(service: Service, name: str) -> tuple[View, int] | None:
    """The runtime of the file that a name means, and its document's number: a namespace's own before the cluster's."""
    documents = parse_yaml(service.text, service.file)
    file = ManifestFile(service.text, documents, tuple(View(service.file, "", document.root) for document in documents))
    for root in (*file.of_kind("ServingRuntime"), *file.of_kind("ClusterServingRuntime")):
        if text_of(root.at("metadata", "name")) == name:
            return root, file.number(root)
    return None


def _speculates(service: Service, original: tuple[View, int]) -> bool:
    name = original[0].need("metadata").need("name").text()
    runtimes = load(service.text, file=service.file, name=name, runtimes=True)
    kind = text_of(original[0].get("kind"))
    return any(
        is_speculative(flag)
        for runtime in runtimes
        if (runtime.kind, runtime.name) == (kind, name)
        for flag in parse(runtime.command.argv)[0]
    )


def _editor(service: Service) -> Editor:
    assert service.source is not None
    return Editor(service.text, service.source.origin.document, service.source.engine)

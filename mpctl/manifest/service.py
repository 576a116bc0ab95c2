"""The served model as a value: what its manifest says, and the same manifest with another speculative setting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mpctl.errors import InputError
from mpctl.json_types import Json
from mpctl.manifest.engine.engine_command import SPECULATIVE, EngineCommand, parse
from mpctl.manifest.engine.locate import Engine
from mpctl.manifest.speculation import keyed, rewrite, setting
from mpctl.manifest.speculation.additional import without_variable
from mpctl.manifest.speculation.editor import Editor
from mpctl.manifest.speculation.setting import JsonValue, Style
from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Document, at, contents


@dataclass(frozen=True)
class Storage:
    """An artifact that the platform puts into the container, and where."""

    uri: str
    mount_path: str


@dataclass(frozen=True)
class Origin:
    """The document that a service was read from, and how it is read again."""

    document: Document
    number: int  # of the document in its file
    index: int  # of the service among those that ``load`` reads
    load: Callable[[str, str], tuple[Service, ...]]


@dataclass(frozen=True)
class PrefillPods:
    """Pods that fill the prompts of a service's own, which decode: the two exchange KV cache.

    A draft with KV cache of its own is needed at both ends. ngram and suffix have none, and draft while decoding alone.
    """

    engine: Engine
    document: Document
    number: int  # of the document in its file
    pod: View | None = (
        None  # the mapping that holds the pod's volumes, None where a draft cannot be mounted
    )
    inherited: tuple[str, ...] = ()  # arguments from below the manifest
    obstacle: InputError | None = None  # why no setting can be added or removed here


@dataclass(frozen=True)
class ManifestSource:
    """The place of a service in its file, and of its engine's words."""

    origin: Origin
    engine: Engine
    pod: View | None = (
        None  # the mapping that holds the pod's volumes, None where a draft cannot be mounted
    )
    peers: tuple[
        Engine, ...
    ] = ()  # engines of the service's other pods, which need the same setting
    obstacle: InputError | None = None  # why no setting can be added or removed here
    prefill: tuple[PrefillPods, ...] = ()  # edited with the service's own engine


@dataclass(frozen=True)
class Service:
    """A served model; every change returns a new value."""

    kind: str
    name: str
    namespace: str | None
    file: str
    text: str  # the whole file, other documents included
    line: int
    command: EngineCommand
    image: str | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    container: str | None = None
    model: str | None = (
        None  # as the command line names it, None when it names nothing (then see ``storage``)
    )
    storage: tuple[Storage, ...] = ()
    runtime: str | None = None  # the ServingRuntime that ``predictor.model`` asks for
    runtime_args: tuple[str, ...] = ()  # its args when it is in the same file
    prefill_args: tuple[
        tuple[str, ...], ...
    ] = ()  # command lines of the pods that fill prompts for this service's
    prefill_image: str | None = None  # where it is not the service's own
    only_by_name: bool = False  # of several services it is meant only where it is named
    endpoints: tuple[str, ...] = ()  # ModelServices that route here, or services that use a runtime
    source: ManifestSource | None = field(default=None, repr=False, compare=False)

    @property
    def whole_command(self) -> EngineCommand:
        """The engine's command line with the arguments that its runtime adds, which the service's own override."""
        return EngineCommand((*self.runtime_args, *self.command.argv))

    def speculation(self) -> dict[str, JsonValue] | None:
        """The speculative setting on the command line, typed as vLLM types it; None when there is none.

        Raises :class:`InputError` when variables or the shell build it, when it is not valid, or when the pods of one
        engine have different ones.
        """
        speculation = setting.read(self._source.engine)
        for peer in self._source.peers:
            if not setting.same(setting.read(peer), speculation):
                raise peer.home.error(
                    "the pods of this engine have different speculative settings",
                    hint="write the same --speculative-config for the leader and the workers",
                )
        for prefill in self._source.prefill:
            if not _fits(
                setting.read(prefill.engine),
                speculation,
                (*prefill.inherited, *prefill.engine.command.argv),
            ):
                raise prefill.engine.home.error(
                    "prefill and decode pods have different speculative settings: decode pods refuse their KV cache",
                    hint="write the same --speculative-config for both, or none",
                )
        return speculation

    def unread(self) -> tuple[str, ...]:
        """The places outside this manifest that may hold a setting of the engine: files and variables."""
        files = [
            value for flag, value in self.command.flags().items() if flag == "--config" and value
        ]
        tokens = [token for engine in self._engines() for token in engine.tokens]
        variables = [
            name for token in tokens for name in re.findall(r"^\$[({]?(\w+)[)}]?$", token.text)
        ]
        return (
            *(f"--config {file}" for file in files),
            *(f"variable {name}" for name in dict.fromkeys(variables)),
        )

    @property
    def flag_lines(self) -> dict[str, int]:
        """The line of the file that each flag of the engine stands in; underscores count as dashes."""
        words = [
            (token.text.partition("=")[0].replace("_", "-"), token.item)
            for token in self._source.engine.tokens
        ]
        return {word: item.node.line for word, item in words if word.startswith("--")}

    def stated_releases(self) -> tuple[str, ...]:
        """The texts of the service and of its runtime in the file that may name the engine's release."""
        documents = contents(self.text, self.file)
        own = documents[self._source.origin.number]
        shared = (
            data for data in documents if isinstance(data, dict) and _is_runtime(data, self.runtime)
        )
        return stated_releases([own, *shared])

    def with_speculation(
        self, config: Mapping[str, JsonValue] | None, *, style: Style | None = None
    ) -> Service:
        """This service with ``config`` instead of its setting, or without one when None.

        ``style``: the spelling; None keeps the one in use (JSON when there is none). Only the bytes of the setting
        change; that is verified by reading the result again. Pods that fill prompts get the setting where they have one
        already, and where its draft has KV cache. Raises :class:`InputError` when it cannot be done.
        """
        wanted = None if config is None else setting.check(config)
        edited, engines = self, 1 + len(self._source.peers)
        for number, engine in enumerate(self._engines()):
            if number < engines or setting.needs_both_ends(wanted) or setting.slots(engine):
                edited = edited._with_setting(number, wanted, style)
        return edited

    def _with_setting(
        self, number: int, wanted: dict[str, JsonValue] | None, style: Style | None
    ) -> Service:
        """This service with another setting of one of its engines."""
        engine = self._engines()[number]
        slots = setting.slots(engine)
        if wanted is None and not slots:
            return self
        present = None if wanted is None else setting.read(engine)
        if wanted is not None and present is None and slots:
            raise engine.tokens[slots[-1].flag.index].item.error(
                f"{slots[-1].flag.written} sets nothing, and no later edit could restore its empty value",
                hint="remove the flag",
            )
        if wanted is not None and setting.same(present, wanted):
            styles = {slot.kind for slot in slots}
            if style is None or styles == {style}:
                return self
        self._require_editable(number, wanted)
        self._require_json_below(wanted)
        edited = self._verified(self._rewritten(number, wanted, style), wanted, number)
        if wanted is not None and not slots:
            self._require_exact_undo(edited, number)
        return edited

    def _rewritten(
        self, number: int, wanted: dict[str, JsonValue] | None, style: Style | None
    ) -> str:
        """The file with another setting of one engine."""
        engine = self._engines()[number]
        if engine.keyed is not None:
            return keyed.edited(self.text, engine, wanted, style)
        editor = Editor(self.text, self._place(number)[0], engine)
        rewrite.apply(editor, wanted, style)
        return editor.result()

    def _require_json_below(self, wanted: dict[str, JsonValue] | None) -> None:
        """Refuse a setting beside one of a shared object that vLLM reads later, or mixes with it: it joins dotted keys
        and --spec-method behind all JSON."""
        flags = [flag for flag in parse(self.runtime_args)[0] if setting.is_speculative(flag)]
        later = [flag.written for flag in flags if flag.name != SPECULATIVE]
        if wanted is not None and later and self.kind != "LLMInferenceService":
            raise self._source.engine.home.error(
                f"ServingRuntime {self.runtime} sets {later[0]}, which vLLM takes in place of the service's own",
                hint="write the runtime's as JSON, or give the service a runtime of its own without it",
            )

    def _require_exact_undo(self, edited: Service, number: int) -> None:
        """Refuse to add a setting whose removal would leave other bytes than these."""
        try:
            restored = edited._with_setting(number, None, None).text
        except InputError:
            restored = None
        if restored != self.text:
            raise self._engines()[number].home.error(
                "a setting added here could not be removed again byte for byte",
                hint="write every argument on a line of its own, and end every line alike",
            )

    def _require_editable(self, number: int, wanted: dict[str, JsonValue] | None) -> None:
        prefill, engine = self._prefill(number), self._engines()[number]
        obstacle = self._source.obstacle if prefill is None else prefill.obstacle
        if obstacle is not None:
            raise obstacle
        ended = next((token for token in engine.tokens if token.text == "--"), None)
        if wanted is not None and ended is not None:
            raise ended.item.error("words behind -- are no flags", hint="remove --")
        if self.kind.startswith("LLMInferenceService") and "{{" in json.dumps(wanted):
            raise engine.home.error(
                "KServe executes {{ in any text of an LLMInferenceService as a template",
                hint="remove {{ from the value",
            )

    def _engines(self) -> tuple[Engine, ...]:
        source = self._source
        return (source.engine, *source.peers, *(prefill.engine for prefill in source.prefill))

    def _prefill(self, number: int) -> PrefillPods | None:
        """The prefill pods of an engine; None for the service's own."""
        engines = 1 + len(self._source.peers)
        return None if number < engines else self._source.prefill[number - engines]

    def _place(self, number: int) -> tuple[Document, int]:
        """The document of an engine, and its number in the file."""
        prefill, origin = self._prefill(number), self._source.origin
        return (
            (origin.document, origin.number)
            if prefill is None
            else (prefill.document, prefill.number)
        )

    def require_removable(self) -> None:
        """Refuse to run without speculation where a shared object turns it on."""
        for number in range(len(self._engines())):
            self._require_no_inherited_setting(number)

    def _require_no_inherited_setting(self, number: int) -> None:
        """Refuse to remove a setting of a shared object, which other services may use."""
        prefill = self._prefill(number)
        arguments = self.runtime_args if prefill is None else prefill.inherited
        inherited = [flag.written for flag in parse(arguments)[0] if setting.is_speculative(flag)]
        if inherited:
            shared = (
                "LLMInferenceServiceConfig"
                if self.kind == "LLMInferenceService"
                else "ServingRuntime"
            )
            raise self._source.engine.home.error(
                f"{shared} {self.runtime} sets {inherited[0]}, which this service inherits",
                hint=f"remove it from the {shared}, where every service that uses it loses it",
            )

    def pod_and_container(self) -> tuple[Json, Json] | None:
        """The data of the pod and of the engine's container; None where presets, a chart or many services have them."""
        if self._source.pod is None or self.kind in (
            "LLMInferenceService",
            "ServingRuntime",
            "ClusterServingRuntime",
        ):
            return None
        document = contents(self.text, self.file)[self._source.origin.number]
        return at(document, self._source.pod.path), at(document, self._source.engine.home.path)

    def to_yaml(self) -> str:
        """The manifest, ready to be written: the text it was read from but for the setting that was changed."""
        return self.text

    @property
    def _source(self) -> ManifestSource:
        if self.source is None:
            raise ValueError("this Service was not made by load()")
        return self.source

    def _verified(self, text: str, wanted: dict[str, JsonValue] | None, number: int) -> Service:
        """Read the edited text; refuse it when anything but the setting of one engine came out different."""
        origin, engine = self._source.origin, self._engines()[number]
        try:
            again = origin.load(text, self.file)[origin.index]
            good = setting.same(setting.read(again._engines()[number]), wanted)
            good = good and _rest(again, number) == _rest(self, number)
            good = good and again._others(number) == self._others(number)
        except (InputError, IndexError, KeyError):
            good = False
        if not good:
            raise engine.home.error(
                "the speculative setting cannot be changed here without changing something else",
                hint="write --speculative-config as one quoted argument, or give the other style (json, dotted)",
            )
        return again

    def _others(self, number: int) -> list[Any]:
        """The data of the file but for the command line of one of the engines."""
        engine = self._engines()[number]
        documents = contents(self.text, self.file)
        document = documents[self._place(number)[1]]
        if engine.keyed is not None:
            path, _, key = engine.keyed.document.holder.path.partition(".")
            document[path][key] = keyed.without_setting(engine)
            return documents
        if engine.evaluated is not None:
            without_variable(at(document, engine.evaluated.pod.path), engine.evaluated.key)
            return documents
        home = at(document, engine.home.path)
        for key in ("command", engine.key):
            home.pop(key, None)
        return documents


# An annotation of OpenShift AI's runtimes, KServe's tag of a runtime's image, and Kubernetes' recommended label.
_RELEASES = ("opendatahub.io/runtime-version", "runtimeVersion", "app.kubernetes.io/version")


def stated_releases(data: Any) -> tuple[str, ...]:
    """The texts in data of a manifest that may name an engine's release, the most explicit first."""
    return tuple(text for key in _RELEASES for text in _texts(data, key))


def _texts(data: Any, key: str) -> Iterator[str]:
    """Every text under a key, at any depth."""
    if isinstance(data, dict):
        if isinstance(data.get(key), str):
            yield data[key]
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from _texts(value, key)


def _is_runtime(data: Json, name: str | None) -> bool:
    metadata = data.get("metadata")
    named = isinstance(metadata, dict) and name is not None and metadata.get("name") == name
    return named and str(data.get("kind")).endswith("ServingRuntime")


def _rest(service: Service, number: int) -> tuple[Service, list[list[str]]]:
    """Everything of a service that an edit of one of its engines must not change."""
    words = []
    for at_number, engine in enumerate(service._engines()):
        taken = (
            {i for slot in setting.slots(engine) for i in slot.indexes}
            if at_number == number
            else set()
        )
        words.append([token.text for i, token in enumerate(engine.tokens) if i not in taken])
    bare = EngineCommand((), service.command.entrypoint)
    return replace(service, text="", command=bare, prefill_args=(), line=0, source=None), words


def _fits(
    prefill: dict[str, JsonValue] | None, decode: dict[str, JsonValue] | None, argv: tuple[str, ...]
) -> bool:
    """Return whether decode pods take the KV cache of prefill pods with these settings.

    ``argv``: of the prefill pods. Only NIXL compares them, which KServe's presets use where nothing else is named; a
    setting of a shared object is not compared here.
    """
    if setting.same(prefill, decode) or not (
        setting.needs_both_ends(prefill) or setting.needs_both_ends(decode)
    ):
        return True
    flags = EngineCommand(argv).flags().items()
    connector = (
        " ".join(value or "" for flag, value in flags if flag.startswith("--kv-transfer-config"))
        or "nixl"
    )
    below = prefill is None and any(setting.is_speculative(flag) for flag in parse(argv)[0])
    return below or "nixl" not in connector.lower()


def model_of(engine: Engine, *inherited: tuple[str, ...]) -> str | None:
    """Return the model that the engine's line names, else one of the lines in ``inherited`` (a runtime's args).

    None when only the running container knows it.
    """
    for command in (engine.command, *(EngineCommand(argv) for argv in inherited)):
        name = command.model
        if name is not None:
            return None if "$" in name else name
    return None

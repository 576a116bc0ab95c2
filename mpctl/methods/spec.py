"""A method with its settings, as a value that can be compared, hashed and written down.

Invariants: a :class:`Spec` cannot be changed after it is made, however deep; ``from_config(spec.config()) == spec``;
nothing the engine was given is lost on the way, whether we know the key or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mpctl.methods.method import Method
from mpctl.methods.table import METHODS

JsonValue = (
    None
    | bool
    | int
    | float
    | str
    | list["JsonValue"]
    | tuple["JsonValue", ...]
    | Mapping[str, "JsonValue"]
)

# A running service may leave the method out and let the engine look into the checkpoint.
INFERRED = "inferred"


class FrozenMap(Mapping[str, JsonValue]):
    """A read-only mapping in its written order; values are frozen too."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, JsonValue] | None = None) -> None:
        self._items: dict[str, JsonValue] = {
            key: freeze(value) for key, value in (items or {}).items()
        }

    def __getitem__(self, key: str) -> JsonValue:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def freeze(value: JsonValue) -> JsonValue:
    """The value with lists as tuples and objects as read-only mappings."""
    if isinstance(value, Mapping):
        return FrozenMap(value)
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: JsonValue) -> JsonValue:
    """A fresh copy of plain lists and dictionaries, as JSON is written from."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


@dataclass(frozen=True, eq=False)
class Spec:
    """``method`` is the command line's name; ``settings`` every key of speculative-config but ``method``.

    ``written`` keeps how a running service spells the method where that differs (``deepseek_mtp``), and "" where
    it leaves the method out.
    """

    method: str
    settings: Mapping[str, JsonValue] = field(default_factory=FrozenMap)
    written: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", FrozenMap(self.settings))

    @property
    def known(self) -> Method | None:
        """The entry of :data:`METHODS`, or None for a method we only carry."""
        return METHODS.get(self.method)

    @property
    def row(self) -> Method:
        """The entry of the method; for one we only carry that of ``none``, which promises nothing."""
        return self.known or METHODS["none"]

    @property
    def is_none(self) -> bool:
        """True for the baseline."""
        return self.method == "none"

    @property
    def k(self) -> int | None:
        """num_speculative_tokens as written; None where the engine or the checkpoint decides."""
        value = self.settings.get("num_speculative_tokens")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def draft(self) -> str | None:
        """The draft's path or repository, if one is named."""
        value = self.settings.get("model")
        return (
            value
            if isinstance(value, str) and value not in (self.method, f"[{self.method}]")
            else None
        )

    @property
    def names_draft(self) -> bool:
        """Whether weights of a draft are loaded, and it is named."""
        return self.row.loads_weights and self.draft is not None

    def config(self) -> dict[str, JsonValue] | None:
        """Exactly what ``--speculative-config`` receives; None for ``none``."""
        if self.is_none:
            return None
        name = self.written
        if name is None:
            name = (self.known and self.known.engine_method) or self.method
        head: dict[str, JsonValue] = {"method": name} if name else {}
        return head | {key: thaw(value) for key, value in self.settings.items()}

    def to_record(self) -> dict[str, JsonValue]:
        """The setting of an engine, empty for ``none``."""
        return self.config() or {}

    @classmethod
    def from_record(cls, record: Mapping[str, JsonValue]) -> Spec:
        """The value :meth:`to_record` wrote."""
        return from_config(record)

    def _canonical(self) -> str:
        return json.dumps([self.method, self.config()], sort_keys=True, separators=(",", ":"))

    def describe(self) -> str:
        """A short text for people: ``ngram K=5 lookup 2..4``."""
        parts = [self.method if self.known else f"{self.method} (not managed)"]
        if self.settings.get("num_speculative_tokens_per_batch_size"):
            parts.append(f"K<={self.k} by batch size" if self.k else "K by batch size")
        elif self.k is not None:
            parts.append(f"K={self.k}")
        low, high = (self.settings.get(f"prompt_lookup_{end}") for end in ("min", "max"))
        if low is not None or high is not None:
            low, high = (high, high) if low is None else (low, low if high is None else high)
            parts.append(f"lookup {low}..{high}")
        if self.draft:
            parts.append(f"draft {self.draft}")
        return " ".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._canonical() == other._canonical()

    def __hash__(self) -> int:
        return hash(self._canonical())


def spec_text(spec: Spec | None) -> str:
    """A speculation for people; ``as found`` where nobody read it."""
    return "as found" if spec is None else spec.describe()


def from_config(config: Mapping[str, JsonValue] | None) -> Spec:
    """The spec a running service carries; never raises: what we do not know is carried, not judged."""
    if not config:
        return Spec("none")
    settings = {key.replace("-", "_"): value for key, value in config.items()}
    raw = settings.pop("method", None)
    if raw is None:
        return Spec(_inferred(settings.get("model")), settings, "")
    written = raw if isinstance(raw, str) else json.dumps(thaw(raw))
    method = cli_name(written, parallel=settings.get("parallel_drafting") is True)
    row = METHODS.get(method)
    spelling = row.engine_method if row else method
    return Spec(method, settings, None if spelling == written else written)


def cli_name(engine_method: str, *, parallel: bool) -> str:
    """The command line's name of a vLLM method: p-eagle for parallel eagle3, mtp for a model-specific alias."""
    for row in METHODS.values():
        if parallel and row.parallel_drafting == "required" and row.engine_method == engine_method:
            return row.name
        if engine_method in row.aliases or (
            row.alias_suffix and engine_method.endswith(row.alias_suffix)
        ):
            return row.name
    named = METHODS.get(engine_method)
    # Of our own names the engine knows nothing, so a service that carries one is broken.
    return f"?{engine_method}" if named and named.engine_method != engine_method else engine_method


def method_by_name(model: str) -> str | None:
    """The method that vLLM 0.32.0 takes from a part of the draft's name, whatever else was configured."""
    markers = sorted((row.name_marker, row.name) for row in METHODS.values() if row.name_marker)
    return next((name for (_, part), name in markers if part in model.lower()), None)


def _inferred(model: JsonValue) -> str:
    """Return the engine's method for a configuration without one; "inferred" where the checkpoint decides."""
    if not isinstance(model, str):
        return INFERRED
    for row in METHODS.values():
        if row.aliases and model in (row.engine_method, *row.aliases):
            return row.name
    parts = model.split(".")
    if "/" not in model and len(parts) > 1 and all(part.isidentifier() for part in parts):
        return "custom_class"
    return method_by_name(model) or INFERRED

"""A thin, checked door to the CDK core: elements by Terraform's own names, references by checked attribute.

Invariants: nothing is added to a stack before its arguments passed :mod:`infra.schema`; logical ids are the
names given here (never hashed from the construct path), so moving a resource between constructs does not
move it in the state; a reference names an attribute that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constructs import Construct

from infra import core, schema
from mpctl.errors import InputError


class Element:
    """A resource or data source in a stack. ``element["arn"]`` is a Terraform reference to its attribute."""

    def __init__(
        self,
        kind: str,
        type_: str,
        name: str,
        inner: core.TerraformResource | core.TerraformDataSource,
    ) -> None:
        self.kind = kind
        self.type = type_
        self.name = name
        self.inner = inner

    def __getitem__(self, path: str) -> str:
        return f"${{{self.expression(path)}}}"

    def expression(self, path: str) -> str:
        """The reference without ``${}``, for use inside a larger expression."""
        known = schema.element(self.kind, self.type).names
        head = path.replace("[", ".").split(".", 1)[0]
        if head not in known:
            raise InputError(
                f"no such attribute{schema.nearest(head, known)}",
                field=f"{self.type}.{self.name}.{head}",
            )
        prefix = "data." if self.kind == "data" else ""
        return f"{prefix}{self.type}.{self.name}.{path}"


def resource(
    scope: Construct,
    type_: str,
    name: str,
    /,
    *,
    depends_on: Iterable[Element] = (),
    lifecycle: Mapping[str, Any] | None = None,
    **args: Any,
) -> Element:
    """Add a managed resource; its address in the state is ``type_.name``."""
    given = prepare("resource", type_, name, args)
    # The core's lifecycle struct knows no expression in ignore_changes; the override is passed through as
    # it is.
    inner = core.TerraformResource(
        scope,
        name if scope.node.try_find_child(name) is None else f"{name}-{type_}",
        terraform_resource_type=type_,
        depends_on=[element.inner for element in depends_on] or None,
    )
    inner.override_logical_id(name)
    for key, value in given.items():
        inner.add_override(key, value)
    if lifecycle:
        inner.add_override("lifecycle", dict(lifecycle))
    return Element("resource", type_, name, inner)


def data(scope: Construct, type_: str, name: str, /, **args: Any) -> Element:
    """Add a data source."""
    given = prepare("data", type_, name, args)
    inner = core.TerraformDataSource(scope, f"data-{type_}-{name}", terraform_resource_type=type_)
    inner.override_logical_id(name)
    for key, value in given.items():
        inner.add_override(key, value)
    return Element("data", type_, name, inner)


def provider(
    scope: Construct, name: str, /, *, version: str, **args: Any
) -> core.TerraformProvider:
    """Configure a provider, pinned to *version*."""
    given = prepare("provider", name, "provider", args)
    made = core.TerraformProvider(
        scope,
        name,
        terraform_resource_type=name,
        terraform_provider_source=schema.document(name)["origin"]["provider"],
        terraform_generator_metadata={"provider_name": name, "provider_version": version},
    )
    for key, value in given.items():
        made.add_override(key, value)
    return made


def output(
    scope: Construct,
    name: str,
    value: Any,
    /,
    *,
    sensitive: bool = False,
    description: str | None = None,
) -> None:
    """Publish *value* under exactly *name*, which is also what the CLI writes into an outputs file."""
    made = core.TerraformOutput(
        scope, name, value=value, sensitive=sensitive or None, description=description
    )
    made.override_logical_id(name)


def prepare(kind: str, type_: str, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without the unset ones, checked."""
    given = {key: value for key, value in args.items() if value is not None}
    schema.check(schema.element(kind, type_), name, given)
    return given

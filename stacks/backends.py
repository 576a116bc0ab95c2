"""The location of each stack's state, and access to another stack's outputs in it.

Every stack has a state of its own, so a mistake in a chart can never touch a network. S3 locks with
Terraform's own lock file and encrypts; GCS locks by itself.
"""

from __future__ import annotations

from pathlib import Path

from constructs import Construct

from infra import core
from stacks.settings import Backend


def use(stack: core.TerraformStack, backend: Backend, name: str) -> None:
    """Keep *stack*'s state in *backend* under *name*."""
    if backend.type == "local":
        core.LocalBackend(stack, path=local_path(backend, name))
    elif backend.type == "s3":
        core.S3Backend(
            stack,
            bucket=required(backend.bucket),
            key=f"{backend.prefix}/{name}.tfstate",
            region=required(backend.region),
            encrypt=True,
            kms_key_id=backend.kms_key,
        )
        # Not an argument of the frozen core yet: locking without a DynamoDB table, Terraform 1.10 and later.
        stack.add_override("terraform.backend.s3.use_lockfile", True)
    else:
        core.GcsBackend(
            stack,
            bucket=required(backend.bucket),
            prefix=f"{backend.prefix}/{name}",
            kms_encryption_key=backend.kms_key,
        )


def remote(scope: Construct, backend: Backend, name: str) -> core.TerraformRemoteState:
    """The published outputs of the stack called *name*."""
    if backend.type == "local":
        return core.DataTerraformRemoteStateLocal(scope, name, path=local_path(backend, name))
    if backend.type == "s3":
        return core.DataTerraformRemoteStateS3(
            scope,
            name,
            bucket=required(backend.bucket),
            key=f"{backend.prefix}/{name}.tfstate",
            region=required(backend.region),
        )
    return core.DataTerraformRemoteStateGcs(
        scope, name, bucket=required(backend.bucket), prefix=f"{backend.prefix}/{name}"
    )


def local_path(backend: Backend, name: str) -> str:
    # Absolute: Terraform runs each stack in a folder of its own, and a relative path would not be found
    # from the next one.
    return str(Path(backend.path).resolve() / f"{name}.tfstate")


def required(value: str | None) -> str:
    if value is None:  # the settings reader has refused this already
        raise AssertionError("backend without bucket or region")
    return value

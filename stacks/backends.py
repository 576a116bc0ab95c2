"""The location of each stack's state, and access to another stack's outputs in it.

Every stack has a state of its own, so a mistake in a chart can never touch a network. S3 locks with
Terraform's own lock file and encrypts; GCS locks by itself.
"""

from __future__ import annotations

from pathlib import Path

from constructs import Construct

from infra import core
from stacks.settings import Backend


def use(stack: core.TerraformStack, backend: Backend, key: str) -> None:
    """Keep *stack*'s state in *backend* under *key*."""
    kinds = {"local": core.LocalBackend, "s3": core.S3Backend, "gcs": core.GcsBackend}
    kinds[backend.type](stack, **place(backend, key))
    for name, value in document(backend, key).items():
        stack.add_override(f"terraform.backend.{backend.type}.{name}", value)


def remote(scope: Construct, backend: Backend, key: str) -> core.TerraformRemoteState:
    """The published outputs of the stack whose state is *key*."""
    kinds = {
        "local": core.DataTerraformRemoteStateLocal,
        "s3": core.DataTerraformRemoteStateS3,
        "gcs": core.DataTerraformRemoteStateGcs,
    }
    made: core.TerraformRemoteState = kinds[backend.type](
        scope, key.replace("/", "-"), **place(backend, key)
    )
    return made


def place(backend: Backend, key: str) -> dict[str, str]:
    """Where the state is, in the words of Terraform's backend."""
    if backend.type == "local":
        # Absolute: Terraform runs each stack in a folder of its own, and a relative path would not be found
        # from the next one.
        return {"path": str(Path(backend.path).resolve() / f"{key}.tfstate")}
    bucket = {"bucket": backend.bucket or ""}  # the settings' reader requires it, and S3's region
    if backend.type == "s3":
        return {
            **bucket,
            "key": f"{backend.prefix}/{key}.tfstate",
            "region": backend.region or "",
        }
    return {**bucket, "prefix": f"{backend.prefix}/{key}"}


def document(backend: Backend, key: str) -> dict[str, object]:
    """Everything that the backend is given."""
    where: dict[str, object] = {**place(backend, key)}
    if backend.type == "s3":
        # Locking without a DynamoDB table: Terraform 1.10 and later, and no argument of the frozen core yet.
        where |= {"encrypt": True, "use_lockfile": True}
    if backend.kms_key and backend.type != "local":
        where["kms_key_id" if backend.type == "s3" else "kms_encryption_key"] = backend.kms_key
    return where

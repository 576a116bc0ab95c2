"""The one place that imports the CDK core.

`cdktf` is the default: it is what `cdktf deploy` users have. Its repository was archived on 10 December
2025; `cdktn` (CDK Terrain) carries the same code on. ``MPCTL_CDK_CORE=cdktn`` chooses it; with the variable
unset the installed one is taken, `cdktf` first. Both write the same JSON from these stacks, and nothing
else in the tree may import either.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING

CORES = ("cdktf", "cdktn")


def chosen() -> str:
    """The name of the core to import: the environment's word, else the first one installed."""
    wanted = os.environ.get("MPCTL_CDK_CORE", "")
    if wanted and wanted not in CORES:
        raise SystemExit(f"MPCTL_CDK_CORE={wanted}: expected one of {', '.join(CORES)}")
    names = (wanted,) if wanted else CORES
    for name in names:
        if importlib.util.find_spec(name):
            return name
    raise SystemExit(f"no CDK core installed: pip install {names[0]}")


NAME = chosen()

if TYPE_CHECKING:
    from cdktf import (
        App,
        DataTerraformRemoteStateGcs,
        DataTerraformRemoteStateLocal,
        DataTerraformRemoteStateS3,
        GcsBackend,
        LocalBackend,
        S3Backend,
        TerraformDataSource,
        TerraformElement,
        TerraformOutput,
        TerraformProvider,
        TerraformRemoteState,
        TerraformResource,
        TerraformStack,
        Testing,
    )
else:
    _core = importlib.import_module(NAME)

__all__ = [
    "CORES",
    "NAME",
    "App",
    "DataTerraformRemoteStateGcs",
    "DataTerraformRemoteStateLocal",
    "DataTerraformRemoteStateS3",
    "GcsBackend",
    "LocalBackend",
    "S3Backend",
    "TerraformDataSource",
    "TerraformElement",
    "TerraformOutput",
    "TerraformProvider",
    "TerraformRemoteState",
    "TerraformResource",
    "TerraformStack",
    "Testing",
    "chosen",
]

if not TYPE_CHECKING:
    globals().update({name: getattr(_core, name) for name in __all__ if name not in globals()})

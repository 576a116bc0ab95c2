"""Device and model of this machine, recorded with every measurement."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

_WHOLE_BYTES = 64 * 2**20  # larger files are told by size, first and last MiB, or a digest would take minutes
_PART_BYTES = 2**20


def device() -> str:
    """The GPUs as nvidia-smi names them, else the CPU model and its cores: ``2 x NVIDIA L4``, ``AMD EPYC 7B13, 8
    cores``."""
    names = _gpus()
    if names:
        return ", ".join(f"{names.count(n)} x {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names))
    try:
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        model = None
    name = model[1].strip() if model else os.uname().machine
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def model_digest(model: str, cwd: str) -> str:
    """sha256 over a directory's files (name, size, content; of large ones the ends), or the commit of a repository in
    the Hugging Face cache; empty for what is neither."""
    directory = Path(cwd) / Path(model).expanduser()
    if directory.is_dir():
        total = hashlib.sha256()
        for path in sorted(p for p in directory.rglob("*") if p.is_file()):
            size = path.stat().st_size
            total.update(f"{path.relative_to(directory)} {size} ".encode())
            total.update(_content(path, size))
        return total.hexdigest()
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    main = hub / f"models--{model.replace('/', '--')}" / "refs" / "main"
    return main.read_text().strip() if main.is_file() else ""


def _content(path: Path, size: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            while chunk := file.read(_PART_BYTES):
                digest.update(chunk)
        else:
            digest.update(file.read(_PART_BYTES))
            file.seek(-_PART_BYTES, os.SEEK_END)
            digest.update(file.read(_PART_BYTES))
    return digest.digest()

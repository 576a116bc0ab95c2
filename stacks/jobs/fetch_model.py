#!/usr/bin/env python3
"""Download models to a volume: resumable, checksummed, standard library only. Runs in a pod, from a
ConfigMap.

    fetch_model.py URI@REVISION=FOLDER ...        e.g. hf://Qwen/Qwen3-8B@main=qwen--qwen3-8b@main

Knows hf:// (Hugging Face), s3:// and gs://. A file is written to NAME.part, continued with a Range request after an
interruption, compared with the size and checksum its store publishes, and only then renamed; `.complete` is written
last, with every file's size and checksum. A second run finds it and does nothing. `.listing` holds the digest of what
the store listed at the start: when the store has another revision since, the folder is begun anew, so that files of two
revisions are never mixed. Where a store publishes no checksum of the whole file (S3 multipart uploads), the size is
compared and the log says so.

Tokens come from a Secret mounted as a file, EKS Pod Identity or GKE Workload Identity, and are never printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

# Beside this file in the pod, and not a package there.
from model_stores import STORES, FailedError, File, Headers, get, retried, say  # type: ignore[import-not-found]

CHUNK = 1 << 20


def checksum(path: Path, algorithm: str) -> str:
    """The checksum of a file; Git's own for files a hub keeps in Git."""
    made = hashlib.sha1() if algorithm == "git-blob" else hashlib.new(algorithm)
    if algorithm == "git-blob":
        made.update(f"blob {path.stat().st_size}\0".encode())
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            made.update(block)
    return made.hexdigest()


def difference(file: File, path: Path) -> str | None:
    """Describe the difference between the file at *path* and the store's listing; None when they agree."""
    if (size := path.stat().st_size) != file.size:
        return f"{size} bytes, expected {file.size}"
    if file.digest and (digest := checksum(path, file.digest[0])) != file.digest[1]:
        return f"{file.digest[0]} is {digest}, expected {file.digest[1]}"
    return None


def begin(uri: str, revision: str, folder: Path, files: list[File]) -> None:
    """Note in *folder* which listing it is filled from; what another one left there is taken away first."""
    names = [
        (file.name, file.size, file.digest) for file in sorted(files, key=lambda file: file.name)
    ]
    digest = hashlib.sha256(json.dumps([uri, revision, names]).encode()).hexdigest()
    note = folder / ".listing"
    if note.exists() and note.read_text("utf-8").strip() == digest:
        return
    if note.exists():
        say(f"{uri}: {revision} is another listing than at the start of this folder: begun anew")
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(digest, "utf-8")


def fetch(file: File, target: Path, headers: Callable[[str, str], Headers]) -> None:
    """One file, whole and right, at *target*."""
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)

    def attempt() -> None:
        have = part.stat().st_size if part.exists() else 0
        if have > file.size:
            part.unlink()
            have = 0
        if have == file.size and part.exists():
            return
        wanted = {**headers("GET", file.url), **({"Range": f"bytes={have}-"} if have else {})}
        with (
            get(file.url, wanted) as answer,
            part.open("ab" if have and answer.status == 206 else "wb") as out,
        ):
            while block := answer.read(CHUNK):
                out.write(block)
        if part.stat().st_size < file.size:
            raise OSError(f"connection ended after {part.stat().st_size} of {file.size} bytes")

    retried(attempt, file.name)
    if problem := difference(file, part):
        part.unlink()
        raise FailedError(f"{file.name}: {problem}; the file was removed")
    if file.digest is None:
        say(f"{file.name}: {file.size} bytes, no checksum published, size compared")
    part.replace(target)


def model(uri: str, revision: str, folder: Path) -> None:
    """All files of one model under *folder*."""
    mark = folder / ".complete"
    if mark.exists():
        say(f"{uri}: already complete")
        return
    scheme, _, path = uri.partition("://")
    if scheme not in STORES:
        raise FailedError(f"{uri}: expected one of {', '.join(f'{name}://' for name in STORES)}")
    files_of, headers = STORES[scheme]
    files = list(files_of(path.strip("/"), revision))
    if not files:
        raise FailedError(f"{uri}: no files there")
    for file in files:
        target = (folder / file.name).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise FailedError(f"{uri}: file name {file.name} leaves the folder")
    begin(uri, revision, folder, files)
    for file in files:
        target = folder / file.name
        if target.exists() and (problem := difference(file, target)):
            say(f"{uri}: {file.name}: {problem}; fetched again")
            target.unlink()
        if not target.exists():
            fetch(file, target, headers)
            say(f"{uri}: {file.name}: {file.size} bytes")
    listing = {file.name: {"size": file.size, "digest": file.digest} for file in files}
    mark.write_text(
        json.dumps({"uri": uri, "revision": revision, "files": listing}, indent=1), "utf-8"
    )
    say(f"{uri}: complete, {len(files)} files, {sum(file.size for file in files)} bytes")


def main(arguments: list[str]) -> int:
    root = Path(os.environ.get("FETCH_INTO", "."))
    try:
        for argument in arguments:
            source, _, folder = argument.partition("=")
            uri, _, revision = source.rpartition("@")
            model(uri, revision, root / folder)
    except FailedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

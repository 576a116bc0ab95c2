"""Deletes what is recorded about a service of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from mpctl.platform.local.desired import read_observed
from mpctl.platform.local.files import read_json
from mpctl.rollout.ports import Pruned, Recorded


class RecordedFiles:
    """The files of one service that hold its history. Files of a service that is up, and the logs of its engines, are
    none of them. The ledger goes first, as in a cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._up = (directory / "desired.json").exists()
        running = _running(directory) if self._up else frozenset[str]()
        self._ledger = _files(directory, "ledger.*")
        self._revisions = _files(directory, "revisions/*")
        self._records = _files(directory, "operations/**/*")
        self._others = [log for log in _files(directory, "arms/*.log") if log.stem not in running]

    def recorded(self) -> Recorded:
        """Number of files of each kind; a line of the ledger counts as one entry."""
        lines = sum(path.read_bytes().count(b"\n") or 1 for path in self._ledger)
        return Recorded(len(self._revisions), lines, len(self._records), len(self._others))

    def prune(self, operations: frozenset[str]) -> Pruned:
        """Delete the records of these operations."""
        folders = {self._directory / "operations" / operation for operation in operations}
        going = [path for path in self._records if folders & set(path.parents)]
        sizes = {path: path.stat().st_size for path in (*self._ledger, *self._revisions, *self._records)}
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        gone = sum(sizes[path] for path in going)
        return Pruned(len(going), gone, len(sizes) - len(going), sum(sizes.values()) - gone)

    def delete(self) -> None:
        """Delete them, and the whole directory of a service that is not up; may be repeated."""
        for path in (*self._ledger, *self._revisions, *self._records, *self._others):
            path.unlink(missing_ok=True)
        shutil.rmtree(self._directory / "operations", ignore_errors=True)
        if not self._up:
            shutil.rmtree(self._directory, ignore_errors=True)


def _files(directory: Path, pattern: str) -> list[Path]:
    return sorted(path for path in directory.glob(pattern) if path.is_file())


def _running(directory: Path) -> frozenset[str]:
    """Ids of the arms that the service has."""
    desired, observed = read_json(directory / "desired.json"), read_observed(directory)
    named = desired.get("arms", {}) if isinstance(desired, dict) else {}
    return frozenset(named) | frozenset(observed.arms if observed else ())

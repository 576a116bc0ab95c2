"""The project file: which one is read, who may have written it, and what it may set.

A project file comes with a folder: a clone, a shared directory, a pull request. So it chooses neither where, as whom,
with which image, Secret or policy mpctl acts, nor where mpctl writes, and it is read only if no other user can have
written it. This is the class of attack against which git has safe.directory (CVE-2022-24765).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mpctl.errors import InputError

PROJECT_FILE = "mpctl.yaml"
# Keys of a file behind --measurement.
MEASUREMENT = (
    "prompts, warm, contexts, thinking, adapters, concurrency, rate, requests, repeats, max_time, temperature, "
    "max_tokens, reuse_prompts, load"
)
# Options that a project file may set: output and waiting, the change, what is sent to the engines and for how long, and
# figures of a prediction. A test lists all others, so that each new option is decided.
_ALLOWED = """
output color verbose quiet debug namespace no_input timeout request_timeout interval wait
spec set spec_config method k draft strategy keep_baseline refuse values chart_key
prompts warm transcripts adapters concurrency rate contexts temperature thinking max_tokens reuse_prompts
requests repeats max_time
traffic acceptance coverage prompt_tokens output_tokens gpu
price_per_hour
"""
ALLOWED = frozenset(_ALLOWED.split())
LARGEST = 64 * 1024  # bytes of a settings file


class Account(NamedTuple):
    """The user who runs mpctl. ``private_group``: the group that has the user's name and no other member."""

    uid: int
    private_group: int | None


def current_account() -> Account:
    """Return the user of this process."""
    import grp
    import pwd

    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid)
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return Account(uid, None)
    private = group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return Account(uid, group.gr_gid if private else None)


def distrust(uid: int, gid: int, mode: int, account: Account) -> str | None:
    """Return why another user may have written a file, or put it into a folder; None if only the user or root can."""
    if uid not in (0, account.uid):
        return f"belongs to uid {uid}"
    sticky_of_root = stat.S_ISDIR(mode) and mode & stat.S_ISVTX and uid == 0
    if stat.S_ISLNK(mode) or sticky_of_root:
        return None
    if mode & stat.S_IWOTH:
        return "can be written by every user"
    if mode & stat.S_IWGRP and gid != account.private_group:
        return f"can be written by group {gid}"
    return None


def folders_to_search(here: Path, home: Path) -> list[Path]:
    """Return the folders from this one up to the root of the repository or to the home directory, whichever is nearer;
    outside of both this one alone."""
    upwards = [here, *here.parents]
    for count, folder in enumerate(upwards, start=1):
        if folder == home or os.path.lexists(folder / ".git"):
            return upwards[:count]
    return [here]


def read_project_file(warn: Callable[[str], None], user_file: Path) -> tuple[Path, str] | None:
    """Return the path and the text of the nearest project file. One that another user may have written is named by
    ``warn`` and not read. ``user_file``: where its settings can go instead.

    Raises:
        InputError: the file cannot be read.
    """
    folders = folders_to_search(Path.cwd(), Path(os.path.realpath(Path("~").expanduser())))
    nearest = next(
        (n for n, folder in enumerate(folders) if os.path.lexists(folder / PROJECT_FILE)), None
    )
    if nearest is None:
        return None
    path = folders[nearest] / PROJECT_FILE
    account = current_account()

    def is_foreign(part: Path, status: os.stat_result) -> bool:
        reason = distrust(status.st_uid, status.st_gid, status.st_mode, account)
        if reason:
            warn(
                f"{path} is ignored: {part} {reason}, and settings of another user would act in your name; "
                f"run 'chown' and 'chmod go-w' on it if it is yours, or copy the settings to {user_file}"
            )
        return reason is not None

    if any(is_foreign(part, os.lstat(part)) for part in (path, *folders[nearest:])):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "replace the symbolic link by the file" if path.is_symlink() else None
        raise InputError(f"cannot be read: {error.strerror}", file=str(path), hint=hint) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InputError("cannot be read: not a regular file", file=str(path))
        if is_foreign(path, status):  # another file than a moment ago
            return None
        return path, decoded(file.read(LARGEST + 1), path)


def decoded(data: bytes, path: Path) -> str:
    """Return the text of a settings file.

    Raises:
        InputError: it is too large, or not UTF-8.
    """
    if len(data) > LARGEST:
        raise InputError(f"cannot be read: larger than {LARGEST // 1024} KiB", file=str(path))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot be read: {error}", file=str(path)) from error

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""All files that the package writes: saved() those that the user names, open_own() and the others those that it names itself.

The C library and the command follow the same rules: see "Files" in docs/architecture.md.
"""
from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from typing import BinaryIO, Iterator, Optional, Union

PART = "part-"  # begins the name of an unfinished file of our own
_LINKS = 40  # on one path, the limit of Linux


# ---------------------------------------------------------------------------------------------------
# What the user names

def _check_planted(path: str, link: os.stat_result) -> None:
    """In a folder like /tmp, others can plant links. The kernel, if so configured, opens no file through them; replacing a
    file must not be a way around that."""
    folder = os.stat(os.path.dirname(path) or ".")
    is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if is_shared and link.st_uid not in (os.geteuid(), folder.st_uid):
        raise PermissionError(errno.EACCES, f"the link belongs to user {link.st_uid}", path)


def _target(path: str) -> Optional[str]:
    """Where a link leads; None if it is no link."""
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(link)
        if not stat.S_ISLNK(about.st_mode):
            return None
        _check_planted(path, about)
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _followed(path: str) -> str:
    """The path behind all links, also if there is no file."""
    for _ in range(_LINKS + 1):
        try:
            target = _target(path)
        except FileNotFoundError:
            return path
        if target is None:
            return path
        path = os.path.join(os.path.dirname(path), target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _keep_rights(handle: int, old: os.stat_result) -> None:
    """Gives a file owner, group and mode of another. If the group cannot be kept, its rights would be another group's."""
    mode = stat.S_IMODE(old.st_mode) & 0o777
    try:
        os.fchown(handle, old.st_uid, old.st_gid)
    except OSError:
        try:
            os.fchown(handle, -1, old.st_gid)
        except OSError:
            mode &= ~stat.S_IRWXG
    os.fchmod(handle, mode)


@contextlib.contextmanager
def saved(path: Union[str, os.PathLike[str]]) -> Iterator[BinaryIO]:
    """A file that the user named, open for writing. It takes the place of the old one when the block ends.

    After an exception the old file is unchanged. Links are followed, also to a file that does not exist. A device or a pipe
    is written to and stays.
    """
    name = os.fspath(path)
    try:
        old: Optional[os.stat_result] = os.stat(name)
    except FileNotFoundError:
        old = None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with open(os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), "wb") as file:
            yield file
        return
    target = _followed(name)
    part = os.path.join(os.path.dirname(target), f".tidemark-{secrets.token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600 if old else 0o666)
    try:
        with open(handle, "wb") as file:
            if old is not None:
                _keep_rights(handle, old)
            yield file
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


# ---------------------------------------------------------------------------------------------------
# What the package names

def _refuse(name: Union[str, os.PathLike[str]]) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", os.fspath(name))


def open_own(name: Union[str, os.PathLike[str]], flags: int, folder: Optional[int] = None) -> int:
    """A descriptor of a regular file, which the caller closes. Raises OSError for anything else, and never waits.

    A new file is closed to others. The name may be one in an open folder.
    """
    safely = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(name, flags | safely, 0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refuse(name)
    return handle


def move_own(folder: int, part: str, name: str) -> None:
    """Gives a finished file its name, in place of a regular file or of none."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _refuse(name)
    os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)


def write_own(folder: int, name: str, data: bytes) -> None:
    """Writes a file in an open folder, whole or not at all."""
    part = f"{PART}{secrets.token_hex(8)}"
    handle = open_own(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        move_own(folder, part, name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Checks that nobody but root and the user could have changed a folder or a file.

A library is loaded from the cache, so whoever can write there, or replace a folder on its path, runs code as the user.
Every component of a path is checked while the path is walked, including links.
"""
from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Optional

from .. import files, library

_LINKS = 40  # on one path, the limit of Linux
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def check(name: str, about: os.stat_result, may_be_shared: bool = False) -> None:
    """Raises library.NotFound if others own it or can write to it.

    In a folder with the sticky bit, such as /tmp, others can add names but not change ours. `may_be_shared` accepts it,
    because the next component is checked as well.
    """
    if about.st_uid not in (0, os.geteuid()):
        raise library.NotFound(f"nothing is loaded from {name}: it belongs to user {about.st_uid}")
    if about.st_mode & _WRITABLE and not (may_be_shared and about.st_mode & stat.S_ISVTX):
        raise library.NotFound(f"nothing is loaded from {name}: others can write to it (mode {about.st_mode & 0o7777:o})")


def _step(folder: int, name: str) -> Optional[int]:
    """Opens a folder in another, creating it if necessary; None if the name is a link."""
    try:
        return os.open(name, _STEP, dir_fd=folder)
    except FileNotFoundError:
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            pass  # another process was faster
        return os.open(name, _STEP, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISLNK(about.st_mode):
            raise
        if about.st_uid not in (0, os.geteuid()):
            raise library.NotFound(f"the link {name} belongs to user {about.st_uid}") from error
        return None


def _parts(path: str) -> list[str]:
    """The steps of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _walk(path: str, own: int) -> int:
    folder, where = os.open("/", _STEP), "/"
    steps = _parts(path)
    links = 0
    try:
        check(where, os.fstat(folder), True)
        while steps:
            name = steps.pop()
            found, here = _step(folder, name), name
            if found is None:
                target = os.readlink(name, dir_fd=folder)
                links += 1
                if links > _LINKS:
                    raise library.NotFound(f"{path} has too many links")
                steps += _parts(target)
                here = "/" if target.startswith("/") else "."
                found = os.open(here, _STEP, dir_fd=folder)
            os.close(folder)
            folder, where = found, os.path.normpath(os.path.join(where, here))
            check(where, os.fstat(folder), len(steps) >= own)
    except BaseException:
        os.close(folder)
        raise
    return folder


def open_folder(path: str, own: int = 1) -> int:
    """A descriptor of a folder, which is created if necessary. The caller closes it.

    The last `own` folders of the path must be closed to others; those above may be shared like /tmp. Raises
    library.NotFound with the reason and the place.
    """
    try:
        return _walk(os.path.join(os.getcwd(), path), own)
    except OSError as error:
        raise library.NotFound(f"{path} cannot be used: {error}") from error


def open_file(folder: int, name: str) -> Optional[BinaryIO]:
    """A file in an open folder, for reading; None if there is none. Raises library.NotFound if others may have created or
    changed it."""
    try:
        file = open(files.open_own(name, os.O_RDONLY, folder), "rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise library.NotFound(f"{name} cannot be used: {error}") from error
    try:
        check(name, os.fstat(file.fileno()))
    except library.NotFound:
        file.close()
        raise
    return file


def has_file(folder: int, name: str) -> bool:
    """Does an open folder contain a file? Raises library.NotFound as open_file() does."""
    file = open_file(folder, name)
    if file is not None:
        file.close()
    return file is not None

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Where shims are kept, each in a folder that is named after everything it was built from.

Processes that need the same shim at the same time build it once: one has the lock, the others wait. A failure is kept
beside the shim, so that nobody builds again what does not build or load. The folder must be closed to others: see
trust.py.
"""
from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import os
import pathlib
import pwd
import shutil
import sys
import tempfile
import time
from typing import Callable, Iterator, Optional

from .. import files, library
from . import trust

FAILED = "failed"  # the file with the reason
FALLBACK = "TIDEMARK_FALLBACK"  # what a process could not load, for its children: "NAME REASON"
REBUILD = "TIDEMARK_REBUILD"
NOTICE_AFTER_S = 5.0
_LOOK_EVERY_S = 0.05


class Transient(library.NotFound):
    """A failure that may not happen again: it is not kept."""


def home_folder() -> Optional[str]:
    """The home folder: HOME, or that of the user database; None if neither is an absolute path."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None


@functools.lru_cache(maxsize=None)
def private_folder() -> str:
    """A folder for this process alone, which is removed at its exit."""
    folder = tempfile.mkdtemp(prefix="tidemark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def cache_folder() -> pathlib.Path:
    """Where shims are kept: TIDEMARK_CACHE, or the user's cache, or a folder for this process alone."""
    wanted = os.environ.get("TIDEMARK_CACHE")
    if wanted:
        return pathlib.Path(os.path.abspath(wanted))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = home_folder()
        base = os.path.join(home, ".cache") if home else private_folder()
    return pathlib.Path(base) / "tidemark"


def is_rebuild() -> bool:
    """Does TIDEMARK_REBUILD ask for a new attempt?"""
    return os.environ.get(REBUILD, "") not in ("", "0")


# ---------------------------------------------------------------------------------------------------
# Failures

_AGAIN = f" [from an earlier attempt; {REBUILD}=1 tries again]"


def _earlier(reason: str) -> str:
    return reason if reason.endswith(_AGAIN) else reason + _AGAIN


def _tell_children(name: str, reason: str) -> None:
    os.environ[FALLBACK] = f"{name} {reason}".replace("\0", "")


def inherited_failure(name: str) -> Optional[str]:
    """Why a parent could not load the shim of this name; None if it did not try, or could."""
    failed, _, reason = os.environ.get(FALLBACK, "").partition(" ")
    return reason if failed == name else None


def remember(path: pathlib.Path, reason: str) -> None:
    """Keeps a failure for later processes; where the cache cannot be written, for children only."""
    _tell_children(path.parent.name, reason)
    with contextlib.suppress(library.NotFound, OSError):
        folder = trust.open_folder(str(path.parent), own=2)
        try:
            _keep_failure(folder, reason)
        finally:
            os.close(folder)


def _keep_failure(folder: int, reason: str) -> None:
    files.write_own(folder, FAILED, reason.encode(errors="replace"))


def _read_failure(folder: int) -> Optional[str]:
    file = trust.open_file(folder, FAILED)
    if file is None:
        return None
    with file:
        return file.read().decode(errors="replace")


# ---------------------------------------------------------------------------------------------------
# One build at a time

@contextlib.contextmanager
def _turn(folder: int, where: str) -> Iterator[bool]:
    """Waits for the lock of a folder; the kernel drops it if its owner dies. Yields whether there are locks at all.

    A file system without locks lets several processes build; each moves a complete file into place.
    """
    handle = files.open_own("lock", os.O_RDWR | os.O_CREAT, folder)
    began, has_said = time.monotonic(), False
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                has_lock = True
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    has_lock = False
                    break
            if not has_said and time.monotonic() - began >= NOTICE_AFTER_S:
                has_said = True
                print(f"tidemark: waiting for another process that builds {where}", file=sys.stderr, flush=True)
            time.sleep(_LOOK_EVERY_S)
        yield has_lock
    finally:
        os.close(handle)


def _state(folder: int, name: str) -> tuple[object, ...]:
    """Changes whenever somebody builds, or fails to."""
    state: list[object] = []
    for each in (name, FAILED):
        with contextlib.suppress(OSError):
            about = os.stat(each, dir_fd=folder, follow_symlinks=False)
            state += [each, about.st_ino, about.st_mtime_ns]
    return tuple(state)


def _is_there(folder: int, name: str) -> bool:
    """Is the file there? Raises library.NotFound if others may have written it, or if it is known to fail."""
    reason = _read_failure(folder)
    if reason is not None:
        raise library.NotFound(_earlier(reason))
    return trust.has_file(folder, name)


def _sweep(folder: int) -> None:
    """Removes what interrupted builds left behind."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        for name in os.listdir(readable):
            if name.startswith(files.PART):
                os.unlink(name, dir_fd=folder)
    finally:
        os.close(readable)


def _make(folder: int, path: pathlib.Path, make: Callable[[str], None]) -> None:
    handle, built = tempfile.mkstemp(prefix=files.PART, suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        make(built)
        os.chmod(built, 0o700)  # the linker created a new file with the mode of the umask
        files.move_own(folder, os.path.basename(built), path.name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(FAILED, dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(built)


def _obtain(folder: int, path: pathlib.Path, make: Callable[[str], None]) -> None:
    before = _state(folder, path.name)
    if not is_rebuild() and _is_there(folder, path.name):
        return
    with _turn(folder, str(path)) as has_lock:
        is_done = not is_rebuild() or _state(folder, path.name) != before
        if is_done and _is_there(folder, path.name):
            return
        if has_lock:
            _sweep(folder)
        try:
            _make(folder, path, make)
        except Transient:
            raise
        except library.NotFound as error:
            _keep_failure(folder, str(error))
            raise


def obtain(path: pathlib.Path, make: Callable[[str], None]) -> pathlib.Path:
    """The file in the cache, which `make` writes to a name that it gets, if the file does not exist yet.

    Raises library.NotFound if `make` does, now or in an earlier process, and if the cache cannot be written or is not
    closed to others. A failure is tried again if TIDEMARK_REBUILD is set.
    """
    reason = inherited_failure(path.parent.name)
    if reason is not None and not is_rebuild():
        raise library.NotFound(_earlier(reason))
    try:
        folder = trust.open_folder(str(path.parent), own=2)
        try:
            _obtain(folder, path, make)
        except OSError as error:
            raise library.NotFound(f"{path.parent} cannot be used: {error}") from error
        finally:
            os.close(folder)
    except library.NotFound as error:
        _tell_children(path.parent.name, str(error))
        raise
    if is_rebuild():
        os.environ[REBUILD] = "0"  # done, also for children
    return path

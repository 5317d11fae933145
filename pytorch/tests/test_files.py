# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""All functions of the package that write files, each with everything that may be in the way.

A file that the user names is replaced whole or not at all; links are followed, devices and pipes are written to. A file
that the package names itself never goes through a link, into a pipe, or over anything but a regular file.
"""
import contextlib
import os
import pathlib
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import tidemark
import tidemark.torch
from tidemark import command, files, page
from tidemark.torch import cache, library

NOBODY, STRANGER = 65534, 12345
SECONDS = 20  # for a call that hangs
NULL, FULL = 3, 7  # devices of the kernel
OFF = types.SimpleNamespace(way="off")
needs_root = unittest.skipUnless(os.geteuid() == 0, "only root can give files away")


class Unpicklable:
    """The end of a snapshot that cannot be written, after much that can."""
    def __reduce__(self):
        raise OSError("lost half a way")


def fake_torch(data):
    memory = types.SimpleNamespace(_snapshot=lambda: data)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory, is_initialized=lambda: False))


def snapshot(path, end=None):
    data = {"segments": [], "device_traces": [[{"action": "x" * 100}] * 1000], "end": end}
    with mock.patch.dict(sys.modules, torch=fake_torch(data)), mock.patch.object(tidemark.torch, "_installed", OFF):
        tidemark.torch.snapshot(path)


NAMED = {
    "Page.save": ("x.html", lambda path: page.Page(b"a page of more than ten bytes", "x").save(path)),
    "snapshot": ("x.pickle", snapshot),
    "snapshot as JSON": ("x.json", snapshot),
}


def device_make(path, minor):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except PermissionError as error:
        raise unittest.SkipTest("this process may make no device") from error


@contextlib.contextmanager
def limit(size):
    """A disk that is full after so many bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def closed(folder):
    """Somebody who owns the folder, and may not write to it."""
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
        os.chmod(folder.parent, 0o755)
    os.chmod(folder, 0o500)
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.chmod(folder, 0o700)


def about(path):
    """All of an entry that a writer may change; None if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns


class InFolder(unittest.TestCase):
    def begin(self):
        """A new folder, and beside it a victim's file."""
        signal.alarm(SECONDS)
        keeper = tempfile.TemporaryDirectory()
        self.addCleanup(keeper.cleanup)
        self.root = pathlib.Path(keeper.name).resolve()
        self.folder = self.root / "own"
        self.folder.mkdir(mode=0o700)
        self.victim = self.root / "victim"
        self.put(self.victim, 0o640)

    def setUp(self):
        def hang(*_):
            raise AssertionError("it hangs")
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, hang))
        self.addCleanup(signal.alarm, 0)

    @staticmethod
    def put(path, mode):
        path.write_text("before")
        path.chmod(mode)

    def names(self):
        return sorted(os.listdir(self.folder))


class Named(InFolder):
    def over_all(self, check):
        for what, (name, write) in NAMED.items():
            with self.subTest(what):
                self.begin()
                check(self.folder / name, write)

    def expect_replaced(self, path, mode):
        found = os.lstat(path)
        self.assertTrue(stat.S_ISREG(found.st_mode))
        self.assertEqual(stat.S_IMODE(found.st_mode), mode)
        self.assertGreater(found.st_size, 10)
        self.assertEqual(len(self.names()), 1)

    def expect_kept(self, path, write, mode=0o640):
        self.put(path, mode)
        with self.assertRaises(OSError):
            write(path)
        self.assertEqual(path.read_text(), "before")
        self.assertEqual(self.names(), [path.name])

    def test_a_file_is_replaced_and_keeps_its_rights(self):
        def check(path, write):
            self.put(path, 0o640)
            write(path)
            self.expect_replaced(path, 0o640)
        self.over_all(check)

    def test_a_new_file_has_the_rights_of_the_umask(self):
        self.addCleanup(os.umask, os.umask(0o027))
        def check(path, write):
            write(path)
            self.expect_replaced(path, 0o640)
        self.over_all(check)

    @needs_root
    def test_a_file_keeps_its_owner_and_group(self):
        def check(path, write):
            self.put(path, 0o660)
            os.chown(path, STRANGER, STRANGER)
            write(path)
            self.expect_replaced(path, 0o660)
            self.assertEqual((path.stat().st_uid, path.stat().st_gid), (STRANGER, STRANGER))
        self.over_all(check)

    def test_a_link_is_followed(self):
        def check(path, write):
            path.symlink_to(self.victim)
            write(path)
            self.assertTrue(path.is_symlink())
            self.expect_replaced(self.victim, 0o640)
        self.over_all(check)

    def test_a_link_to_nothing_is_followed(self):
        def check(path, write):
            self.victim.unlink()
            (self.folder / "second").symlink_to("../victim")
            path.symlink_to("second")
            write(path)
            self.assertTrue(path.is_symlink() and (self.folder / "second").is_symlink())
            self.assertTrue(self.victim.is_file())
            self.assertEqual(len(self.names()), 2)
        self.over_all(check)

    def test_links_in_a_circle_end(self):
        def check(path, write):
            path.symlink_to(path.name)
            with self.assertRaises(OSError):
                write(path)
            self.assertEqual(self.names(), [path.name])
        self.over_all(check)

    @needs_root
    def test_a_link_that_another_user_planted_is_not_followed(self):
        def check(path, write):
            os.chown(self.folder, NOBODY, NOBODY)
            self.folder.chmod(0o1777)
            path.symlink_to(self.victim)
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
            for _ in range(2):
                before = about(self.victim)
                with self.assertRaises(PermissionError):
                    write(path)
                self.assertEqual(about(self.victim), before)
                self.assertEqual(self.names(), [path.name])
                self.victim.unlink(missing_ok=True)
        self.over_all(check)

    def test_a_pipe_is_written_to(self):
        def check(path, write):
            os.mkfifo(path)
            got = []
            reader = threading.Thread(target=lambda got=got, path=path: got.append(path.read_bytes()))
            reader.start()
            write(path)
            self.assertTrue(path.is_fifo())
            reader.join()
            self.assertGreater(len(got[0]), 10)
        self.over_all(check)

    def test_a_device_is_written_to(self):
        def check(path, write):
            device_make(path, NULL)
            write(path)
            self.assertTrue(path.is_char_device())
            path.unlink()
            device_make(path, FULL)
            with self.assertRaises(OSError):
                write(path)
            self.assertTrue(path.is_char_device())
        self.over_all(check)

    def test_a_folder_is_refused(self):
        def check(path, write):
            path.mkdir()
            with self.assertRaises(IsADirectoryError):
                write(path)
            self.assertEqual(self.names(), [path.name])
        self.over_all(check)

    def test_a_folder_that_cannot_be_written_keeps_the_old_file(self):
        def check(path, write):
            self.put(path, 0o644)
            with closed(self.folder):
                with self.assertRaises(PermissionError):
                    write(path)
            self.assertEqual(path.read_text(), "before")
            self.assertEqual(self.names(), [path.name])
        self.over_all(check)

    def test_a_full_disk_keeps_the_old_file(self):
        def check(path, write):
            with limit(10):
                self.expect_kept(path, write)
        self.over_all(check)

    def test_a_failure_half_a_way_keeps_the_old_file(self):
        self.begin()
        self.expect_kept(self.folder / "x.pickle", lambda path: snapshot(path, Unpicklable()))

    def test_a_name_may_have_the_most_bytes(self):
        def check(path, write):
            path = path.with_name("x" * (255 - len(path.suffix)) + path.suffix)
            self.put(path, 0o640)
            write(path)
            self.expect_replaced(path, 0o640)
        self.over_all(check)


# ---------------------------------------------------------------------------------------------------
# What the package names itself

def shim_at(folder):
    return folder / "torch-0" / "tidemark_shim.so"


def build(folder):
    """Builds a shim in the cache; a failure is what is expected."""
    with mock.patch.dict(os.environ, {cache.REBUILD: "1"}), contextlib.suppress(library.NotFound):
        cache.obtain(shim_at(folder), lambda out: pathlib.Path(out).write_text("built"))


def fail_to_build(folder):
    def make(_):
        raise library.NotFound("it does not compile")
    with mock.patch.dict(os.environ, {cache.REBUILD: "1"}), contextlib.suppress(library.NotFound):
        cache.obtain(shim_at(folder), make)


def read_failure(folder):
    with mock.patch.dict(os.environ, {cache.REBUILD: "0"}), contextlib.suppress(library.NotFound):
        os.environ.pop(cache.FALLBACK, None)
        cache.obtain(shim_at(folder), lambda out: pathlib.Path(out).write_text("built"))


def remember(folder):
    with mock.patch.dict(os.environ):
        cache.remember(shim_at(folder), "a reason")


def build_library(folder):
    with mock.patch.object(library, "cmake"), contextlib.suppress(library.NotFound):
        library.build_with_cmake(folder, "x.so")


def configure(folder):
    done = types.SimpleNamespace(returncode=0)
    with mock.patch.object(subprocess, "run", lambda *_, **__: done), mock.patch.object(library.shutil, "which", lambda _: "x"):
        library.cmake(folder, [], [])


def ask(folder):
    """The command gets a recording in a folder that was planted."""
    trace = types.SimpleNamespace(library=mock.Mock(), pointer=None)
    trace.library.tide_trace_write = lambda _trace, _form, sink: os.write(sink.wanted, b"a recording")
    trace.library.tide_sink_file = lambda file: types.SimpleNamespace(wanted=file)
    done = types.SimpleNamespace(returncode=0, stdout=b"an answer", stderr=b"")
    with mock.patch.object(command, "find", lambda: pathlib.Path("tidemark")), \
            mock.patch.object(command.ctypes, "byref", lambda sink: sink), \
            mock.patch.object(subprocess, "run", lambda *_, **__: done), \
            mock.patch.object(tempfile, "TemporaryDirectory", lambda: contextlib.nullcontext(str(folder))), \
            contextlib.suppress(OSError):
        command.ask(trace, "x.pickle", "info")


OWN = {
    "lock of the cache": ("torch-0/lock", build),
    "shim in the cache": ("torch-0/tidemark_shim.so", build),
    "failure of a build": ("torch-0/failed", fail_to_build),
    "failure to load": ("torch-0/failed", remember),
    "failure that is read": ("torch-0/failed", read_failure),
    "lock of the library": ("build/release/tidemark.lock", build_library),
    "what CMake found": ("CMakeCache.txt", configure),
    "recording for the command": ("x.pickle", ask),
}


class Own(InFolder):
    def plant(self, what, path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if what in ("a link to nothing", "a link to a pipe"):
            self.victim.unlink()
        if what == "a link to a pipe":
            os.mkfifo(self.victim)
        if what == "a pipe":
            os.mkfifo(path, 0o600)
        elif what == "a device":
            device_make(path, NULL)
        elif what == "a folder":
            path.mkdir(mode=0o700)
        else:
            path.symlink_to(self.victim)

    def expect_left(self, planted):
        for what, (name, run) in OWN.items():
            with self.subTest(what):
                self.begin()
                path = self.folder / name
                self.plant(planted, path)
                before = about(path), about(self.victim)
                run(self.folder)
                self.assertEqual((about(path), about(self.victim)), before)
                parts = [each for each in path.parent.iterdir() if each.name.startswith(files.PART)]
                self.assertEqual(parts, [])

    def test_a_link_stays(self):
        self.expect_left("a link")

    def test_a_link_to_nothing_stays(self):
        self.expect_left("a link to nothing")

    def test_a_link_to_a_pipe_stays(self):
        self.expect_left("a link to a pipe")

    def test_a_pipe_stays(self):
        self.expect_left("a pipe")

    def test_a_device_stays(self):
        self.expect_left("a device")

    def test_a_folder_stays(self):
        self.expect_left("a folder")

    def test_a_full_disk_leaves_no_part(self):
        for what, run in {"build": fail_to_build, "load": remember}.items():
            with self.subTest(what):
                self.begin()
                shim_at(self.folder).parent.mkdir(mode=0o700)
                with limit(4):
                    run(self.folder)
                found = [name for name in os.listdir(shim_at(self.folder).parent) if name != "lock"]
                self.assertEqual(found, [])

    def test_without_anything_in_the_way_all_are_written(self):
        self.begin()
        for run in (build_library, ask, fail_to_build, build):
            run(self.folder)
        self.assertEqual(shim_at(self.folder).read_text(), "built")
        self.assertFalse((shim_at(self.folder).parent / "failed").exists())
        remember(self.folder)
        self.assertEqual((shim_at(self.folder).parent / "failed").read_text(), "a reason")
        self.assertEqual((self.folder / "x.pickle").read_text(), "a recording")
        self.assertTrue((self.folder / "build/release/tidemark.lock").is_file())


class Reading(InFolder):
    def test_what_the_user_names_may_be_a_pipe(self):
        self.begin()
        path = self.folder / "x.json"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_bytes(b'{"device_traces": [], "segments": []}'))
        writer.start()
        self.assertEqual(len(tidemark.read(path).devices), 0)
        writer.join()

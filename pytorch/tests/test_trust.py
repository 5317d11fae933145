# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A library is loaded from no folder that others own or can write, wherever it is on the path."""
import os
import pathlib
import pwd
import stat
import tempfile
import types
import unittest
from unittest import mock

from tidemark.torch import build, cache, library, trust

STRANGER = 54321
TORCH = types.SimpleNamespace(__version__="2.11.0")
NAME = "tidemark_shim.so"


def compile_line(_torch, _cxx, _tidemark, out):
    """A compiler that creates a new file which everybody can write, as a linker does with umask 0."""
    return ["/bin/sh", "-c", f"rm -f '{out}' && umask 0 && echo built >'{out}' && chmod 777 '{out}'"]


class InFolder(unittest.TestCase):
    def setUp(self):
        keeper = tempfile.TemporaryDirectory()
        self.addCleanup(keeper.cleanup)
        self.root = pathlib.Path(keeper.name).resolve()
        self.enterPatch(mock.patch.multiple(build, compiler=lambda: "/bin/sh", command_line=compile_line,
                                            fingerprint=lambda *_: "0123"))

    def enterPatch(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def make(self, *parts, mode=0o700):
        """Creates folders below the root, the last one with this mode."""
        path = self.root.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        return path

    def give_away(self, path):
        """Gives it to another user: really, or, without the right to do so, by a patched os.stat."""
        if os.geteuid() == 0:
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
            return
        owned = os.lstat(path).st_ino
        real_fstat, real_stat = os.fstat, os.stat

        def stolen(about):
            return os.stat_result((*about[:4], STRANGER, *about[5:])) if about.st_ino == owned else about
        self.enterPatch(mock.patch.object(os, "fstat", lambda *a, **k: stolen(real_fstat(*a, **k))))
        self.enterPatch(mock.patch.object(os, "stat", lambda *a, **k: stolen(real_stat(*a, **k))))

    def plant(self, cache):
        """A foreign library in the place of ours."""
        path = self.make(cache, "torch-2.11.0-0123") / NAME
        path.write_text("planted")
        path.chmod(0o755)
        return path

    def shim(self, cache):
        with mock.patch.dict(os.environ, {"TIDEMARK_CACHE": str(cache)}):
            return build.shim(TORCH, pathlib.Path("libtidemark.so"))

    def expect_refused(self, cache, words):
        with self.assertRaisesRegex(library.NotFound, words):
            self.shim(cache)


class Shim(InFolder):
    def test_what_we_built_is_used_again_and_closed_to_others(self):
        path = self.shim(self.root / "new" / "cache")
        self.assertEqual(path.read_text(), "built\n")
        for entry in (path, path.parent, path.parent.parent, self.root / "new"):
            self.assertEqual(entry.stat().st_mode & 0o022, 0, entry)
        path.write_text("kept")
        self.assertEqual(self.shim(self.root / "new" / "cache").read_text(), "kept")

    def test_library_of_somebody_else_is_refused(self):
        self.give_away(self.plant("cache"))
        self.expect_refused(self.root / "cache", f"belongs to user {STRANGER}")

    def test_library_in_a_folder_of_somebody_else_is_refused(self):
        path = self.plant("cache")
        self.give_away(path.parent)
        self.expect_refused(self.root / "cache", f"belongs to user {STRANGER}")

    def test_folder_of_somebody_else_anywhere_above_is_refused(self):
        self.plant("theirs/ours/cache")
        self.give_away(self.root / "theirs")
        self.expect_refused(self.root / "theirs" / "ours" / "cache", f"theirs: it belongs to user {STRANGER}")

    def test_what_others_can_write_is_refused(self):
        for mode in (0o777, 0o770, 0o707, 0o1777):
            for part in ("cache", "cache/torch-2.11.0-0123", f"cache/torch-2.11.0-0123/{NAME}"):
                with self.subTest(f"{mode:o} {part}"):
                    self.plant("cache")
                    (self.root / part).chmod(mode)
                    self.expect_refused(self.root / "cache", "others can write")
                    self.make("cache")
                    self.make("cache/torch-2.11.0-0123")

    def test_folder_above_that_others_can_write_is_refused(self):
        self.plant("open/cache")
        self.make("open", mode=0o777)
        self.expect_refused(self.root / "open" / "cache", "open: others can write to it .mode 777")
        self.assertEqual((self.root / "open/cache/torch-2.11.0-0123" / NAME).read_text(), "planted")

    def test_shared_folder_above_passes_as_long_as_ours_is_ours(self):
        self.make("shared", mode=0o1777)
        self.assertEqual(self.shim(self.root / "shared" / "cache").read_text(), "built\n")
        self.give_away(self.root / "shared" / "cache")
        self.expect_refused(self.root / "shared" / "cache", f"belongs to user {STRANGER}")

    def test_nothing_is_written_where_it_is_refused(self):
        self.make("open", mode=0o777)
        self.expect_refused(self.root / "open" / "cache", "others can write")
        self.assertEqual(list((self.root / "open").iterdir()), [])


class Links(InFolder):
    def test_own_links_are_followed(self):
        self.make("real")
        (self.root / "link").symlink_to("real")
        (self.root / "far").symlink_to(self.root / "link" / "deep")
        self.assertEqual(self.shim(self.root / "far").read_text(), "built\n")
        self.assertTrue((self.root / "real/deep/torch-2.11.0-0123" / NAME).exists())

    def test_link_of_somebody_else_is_refused(self):
        self.make("shared", mode=0o1777)
        self.make("real")
        (self.root / "shared" / "link").symlink_to(self.root / "real")
        self.give_away(self.root / "shared" / "link")
        self.expect_refused(self.root / "shared" / "link", f"link link belongs to user {STRANGER}")

    def test_link_to_where_others_can_write_is_refused(self):
        self.make("open", mode=0o777)
        self.make("open", "real")
        (self.root / "link").symlink_to(self.root / "open" / "real")
        self.expect_refused(self.root / "link", "open: others can write")
        (self.root / "back").symlink_to("open/real/../../open")
        self.expect_refused(self.root / "back", "open: others can write")

    def test_library_that_is_a_link_is_refused(self):
        path = self.plant("cache")
        path.rename(path.with_suffix(".other"))
        path.symlink_to(path.with_suffix(".other"))
        self.expect_refused(self.root / "cache", f"{NAME} cannot be used")

    def test_what_is_no_file_or_no_folder_is_refused(self):
        path = self.plant("cache")
        path.unlink()
        path.mkdir()
        self.expect_refused(self.root / "cache", "is not a regular file")
        path.rmdir()
        os.mkfifo(path, 0o600)
        self.expect_refused(self.root / "cache", "is not a regular file")
        (self.root / "file").touch()
        self.expect_refused(self.root / "file", "cannot be used")

    def test_links_in_a_circle_end(self):
        (self.root / "one").symlink_to("two")
        (self.root / "two").symlink_to("one")
        self.expect_refused(self.root / "one", "too many links")


class Where(InFolder):
    def cache(self, **environment):
        with mock.patch.dict(os.environ, environment, clear=True):
            return str(cache.cache_folder())

    def test_order(self):
        everything = {"TIDEMARK_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}
        self.assertEqual(self.cache(**everything), "/a")
        self.assertEqual(self.cache(XDG_CACHE_HOME="/b", HOME="/c"), "/b/tidemark")
        self.assertEqual(self.cache(HOME="/c"), "/c/.cache/tidemark")

    def test_without_home_it_is_what_the_system_knows(self):
        person = types.SimpleNamespace(pw_dir="/of/person")
        for environment in ({}, {"HOME": ""}, {"HOME": "here"}, {"XDG_CACHE_HOME": "here"}):
            with self.subTest(environment), mock.patch.object(pwd, "getpwuid", lambda _: person):
                self.assertEqual(self.cache(**environment), "/of/person/.cache/tidemark")

    def test_without_any_home_it_is_a_folder_of_this_process(self):
        def unknown(_):
            raise KeyError
        for answer in (unknown, lambda _: types.SimpleNamespace(pw_dir="")):
            with mock.patch.object(pwd, "getpwuid", answer):
                folder = pathlib.Path(self.cache()).parent
                self.assertTrue(folder.is_absolute())
                self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
                self.assertEqual(self.cache(), str(folder / "tidemark"))

    def test_never_relative(self):
        self.assertTrue(os.path.isabs(self.cache(TIDEMARK_CACHE="here")))


class Folders(InFolder):
    def test_descriptor_is_of_the_folder(self):
        handle = trust.open_folder(str(self.root / "a" / "b"))
        self.assertTrue(os.path.samestat(os.fstat(handle), os.stat(self.root / "a" / "b")))
        os.close(handle)

    def test_descriptors_are_closed(self):
        self.make("open", mode=0o777)
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(3):
            self.expect_refused(self.root / "open" / "cache", "others can write")
            self.shim(self.root / "cache")
        self.assertEqual(sorted(os.listdir("/proc/self/fd")), before)

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Loading the shim: what its name depends on, one compilation for many processes, and failures that are remembered."""
import errno
import fcntl
import importlib.util
import os
import pathlib
import shutil
import signal
import tempfile
import time
import types
import unittest
from unittest import mock

import fake_torch
import harness
import unit
from tidemark.torch import build, cache, headers, library

WAY = """
import tidemark.torch
found = tidemark.torch.install()
print(found.way)
"""
# A process that installs, and a child that does.
TREE = """
import subprocess, sys
import tidemark.torch
print(tidemark.torch.install().way)
if len(sys.argv) > 1:
    subprocess.run([sys.executable, "-B", "-c", sys.argv[1]], check=True)
"""


class Loading(unittest.TestCase):
    def setUp(self):
        keeper = tempfile.TemporaryDirectory()
        self.addCleanup(keeper.cleanup)
        self.site = fake_torch.Site(keeper.name)

    def expect(self, way, compilations, warnings=0, **more):
        status, out, errors = self.site.run(WAY, **more)
        self.assertEqual((status, out), (0, way), errors)
        self.assertEqual(errors.count("RuntimeWarning"), warnings, errors)
        self.assertEqual(self.site.compilations(), compilations)
        return errors

    def shims(self):
        return list(self.site.cache.glob("torch-2.11.0-*/tidemark_shim.so"))


class Kept(Loading):
    def test_second_process_compiles_nothing(self):
        self.expect("class", 1)
        self.expect("class", 1)
        self.assertEqual(len(self.shims()), 1)

    @unit.slow
    def test_everything_it_was_built_from_is_in_the_name(self):
        self.expect("class", 1)
        changes = {
            "a header of PyTorch": lambda: self.site.header.write_text(fake_torch.HEADER + "// rebuilt in place\n"),
            "a header of CUDA": lambda: (self.site.folder / "cuda/include/cuda_runtime_api.h").write_text("// 13.1\n"),
            "a header of ours": lambda: self.append("tidemark/include/tidemark/base.h"),
            "the shim": lambda: self.append("tidemark/shim/shim.cpp"),
        }
        for number, (name, change) in enumerate(changes.items()):
            with self.subTest(name):
                change()
                self.expect("class", 2 + number)
        self.expect("class", 6, FAKE_CUDA="13.1")
        for name, text in (("__version__", '"2.12.0"'), ("_C._GLIBCXX_USE_CXX11_ABI", "False"), ("version.git_version", '"d"')):
            before = self.site.compilations()
            self.append("torch/__init__.py", f"\n{name} = {text}\n")
            self.expect("class", before + 1)

    def append(self, name, text="\n// changed\n"):
        with open(self.site.folder / name, "a", encoding="utf-8") as file:
            file.write(text)

    def test_processes_that_begin_together_compile_once(self):
        processes = [self.site.start(WAY, LOCAL_RANK=str(rank)) for rank in range(harness.scaled(6, 3))]
        results = [process.communicate(timeout=300) for process in processes]
        self.assertEqual([out.strip() for out, _ in results], ["class"] * len(processes), results)
        self.assertEqual(self.site.compilations(), 1)

    @unit.slow
    def test_file_system_without_locks_still_works(self):
        code = "import errno, fcntl\ndef flock(*_): raise OSError(errno.ENOLCK, 'no locks')\nfcntl.flock = flock\n" + WAY
        processes = [self.site.start(code) for _ in range(3)]
        results = [process.communicate(timeout=300) for process in processes]
        self.assertEqual([out.strip() for out, _ in results], ["class"] * 3, results)
        self.expect("class", self.site.compilations())
        self.assertEqual(sorted(path.name for path in self.shims()[0].parent.iterdir()), ["lock", "tidemark_shim.so"])

    def test_warm_fingerprint_takes_less_than_a_tenth_of_a_second_of_processor_time(self):
        torch = importlib.util.find_spec("torch")
        root = os.environ.get("TIDEMARK_TEST_TORCH_INCLUDE") or (torch and pathlib.Path(torch.origin).parent / "include")
        if not root:
            self.skipTest("there is no PyTorch, and TIDEMARK_TEST_TORCH_INCLUDE does not name the headers of one")
        folders = [pathlib.Path(root), library.include_folder()]
        headers.contents(library.shim_sources(), folders)
        began = time.process_time()
        found = headers.contents(library.shim_sources(), folders)
        self.assertLess(time.process_time() - began, 0.1)
        self.assertGreater(len(found), 100)


class Failures(Loading):
    def test_what_does_not_compile_is_compiled_once_and_warned_of_once_in_a_tree(self):
        self.site.header.write_text("#error not this version\n")
        status, out, errors = self.site.run(TREE, TREE)
        self.assertEqual((status, out), (0, "pluggable\npluggable"), errors)
        self.assertEqual((self.site.compilations(), errors.count("RuntimeWarning")), (1, 1), errors)
        self.assertIn("not this version", errors)
        self.assertIn("earlier attempt", self.expect("pluggable", 1, warnings=1))

    @unit.slow
    def test_ranks_without_a_common_parent_warn_once(self):
        self.site.header.write_text("#error not this version\n")
        processes = [self.site.start(WAY, LOCAL_RANK=str(rank)) for rank in range(4)]
        errors = "".join(process.communicate(timeout=300)[1] for process in processes)
        self.assertEqual((self.site.compilations(), errors.count("RuntimeWarning")), (1, 1), errors)

    @unit.slow
    def test_wish_or_change_tries_anew(self):
        self.site.header.write_text("#error not this version\n")
        self.expect("pluggable", 1, warnings=1)
        self.expect("pluggable", 2, warnings=1, TIDEMARK_REBUILD="1")
        self.site.header.write_text(fake_torch.HEADER)
        self.expect("class", 3)
        self.expect("class", 4, TIDEMARK_REBUILD="1")
        self.expect("class", 4, TIDEMARK_REBUILD="0")

    @unit.slow
    def test_rebuild_by_many_processes_compiles_once_for_those_that_wait(self):
        self.expect("class", 1)
        status, out, errors = self.site.run(TREE, WAY, TIDEMARK_REBUILD="1")
        self.assertEqual((status, out), (0, "class\nclass"), errors)
        self.assertEqual(self.site.compilations(), 2)

    @unit.slow
    def test_shim_that_cannot_be_loaded_is_not_built_again(self):
        self.site.header.write_text(fake_torch.HEADER.replace("FAKE_BROKEN", "FAKE_BROKEN void no_such_function(); "
                                    "__attribute__((constructor)) static void use() { no_such_function(); }"))
        self.assertIn("no_such_function", self.expect("pluggable", 1, warnings=1))
        self.expect("pluggable", 1, warnings=1)

    @unit.slow
    def test_file_that_is_damaged_is_rebuilt_on_request(self):
        self.expect("class", 1)
        self.shims()[0].write_bytes(b"not a library")
        self.assertIn("cannot be loaded", self.expect("pluggable", 1, warnings=1))
        self.expect("class", 2, TIDEMARK_REBUILD="1")
        self.expect("class", 2)

    @unit.slow
    def test_shim_that_refuses_this_torch_is_not_asked_again(self):
        self.assertIn("slot 7 differs", self.expect("pluggable", 1, warnings=1, FAKE_WRONG="slot 7 differs"))
        self.expect("pluggable", 1, warnings=1)
        self.expect("class", 2, TIDEMARK_REBUILD="1")

    @unit.slow
    def test_killed_compiler_leaves_nothing_behind(self):
        self.expect("pluggable", 1, warnings=1, FAKE_CXX="kill -9 $$")
        self.assertEqual([path.name for path in self.site.cache.glob("*/*")], ["lock"])
        self.expect("class", 2)

    def test_killed_process_leaves_no_lock_and_its_part_is_swept(self):
        hangs = f"touch '{self.site.folder}/began'; exec sleep 600"
        process = self.site.start("import os\nos.setpgid(0, 0)\n" + WAY, FAKE_CXX=hangs)
        while not (self.site.folder / "began").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.assertEqual(len(list(self.site.cache.glob("*/part-*"))), 1)
        self.expect("class", 2)
        self.assertEqual(list(self.site.cache.glob("*/part-*")), [])

    def test_cache_that_cannot_be_written_falls_back_without_compiling(self):
        status, out, errors = self.site.run(TREE, TREE, TIDEMARK_CACHE="/proc/self/nowhere")
        self.assertEqual((status, out), (0, "pluggable\npluggable"), errors)
        self.assertEqual((self.site.compilations(), errors.count("RuntimeWarning")), (0, 1), errors)

    def test_cache_of_others_falls_back_without_compiling(self):
        self.site.cache.mkdir()
        self.site.cache.chmod(0o777)
        self.assertIn("others can write", self.expect("pluggable", 0, warnings=1))

    def test_warning_that_is_an_error_replaces_nothing(self):
        self.site.header.write_text("#error not this version\n")
        code = """
            import torch, tidemark.torch
            try:
                tidemark.torch.install()
            except RuntimeWarning:
                print(list(torch.done), tidemark.torch.installation(), tidemark.torch.install().way)
        """
        status, out, errors = self.site.run(code, options=["-W", "error::RuntimeWarning"])
        self.assertEqual((status, out), (0, "[] None pluggable"), errors)

    def test_class_or_nothing(self):
        self.site.header.write_text("#error not this version\n")
        status, _, errors = self.site.run("import tidemark.torch\ntidemark.torch.install(way='class')")
        self.assertNotEqual(status, 0)
        self.assertIn("not this version", errors)


class Others(Loading):
    @unit.slow
    def test_allocator_in_place_is_an_error_that_names_it(self):
        for more in ({"FAKE_BACKEND": "pluggable", "FAKE_WRONG": "RMM's allocator is in place"},
                     {"FAKE_WRONG": "another allocator is in place: RMM's"},
                     {"FAKE_BACKEND": "RMM's", "CXX": "/no/compiler"}):
            status, _, errors = self.site.run(WAY, **more)
            self.assertNotEqual(status, 0)
            self.assertRegex(errors, "RuntimeError: .*RMM's")
        status, _, errors = self.site.run(WAY, FAKE_WRONG="CUDA is already initialised")
        self.assertRegex(errors, "RuntimeError: CUDA is already initialised")
        self.expect("class", 1)  # nothing was remembered

    def test_allocator_that_came_later_is_shown_and_warned_of_once(self):
        code = """
            import os, tidemark.torch
            tidemark.torch.install()
            print(repr(tidemark.torch.installation().replaced_by), repr(tidemark.torch.stats()["replaced_by"]))
            os.putenv("FAKE_REPLACED", "rmm")
            print(tidemark.torch.installation().replaced_by, tidemark.torch.stats()["replaced_by"])
        """
        status, out, errors = self.site.run(code)
        self.assertEqual((status, out), (0, "'' ''\nrmm rmm"), errors)
        self.assertEqual(errors.count("RuntimeWarning: tidemark: another allocator has replaced Tidemark's: rmm"), 1, errors)

    def test_settings_that_only_torch_knows_reach_it_at_run_time(self):
        code = """
            import torch, tidemark.torch
            tidemark.torch.install()
            torch._C._accelerator_setAllocatorSettings("brand_new:1,max_split_size_mb:64")
        """
        status, _, errors = self.site.run(code)
        self.assertEqual(status, 0, errors)
        self.assertIn("no effect here: brand_new", errors)


class Prebuilt(Loading):
    def build(self):
        status, out, errors = self.site.run("import sys, pathlib\nfrom tidemark.torch import prebuilt\n"
                                            "print(prebuilt.build_into(pathlib.Path(sys.argv[1])))",
                                            str(self.site.folder / "tidemark/shim/prebuilt"))
        self.assertEqual(status, 0, errors)
        return pathlib.Path(out)

    def test_shim_of_the_package_needs_no_compiler_and_no_cache(self):
        self.build()
        self.expect("class", 1, CXX="/no/compiler", TIDEMARK_CACHE="/proc/self/nowhere", CUDA_HOME="/nowhere")

    @unit.slow
    def test_shim_for_other_headers_is_not_taken(self):
        self.build()
        self.site.header.write_text(fake_torch.HEADER + "// changed\n")
        self.expect("class", 2)

    @unit.slow
    def test_shim_that_does_not_load_here_is_compiled(self):
        self.build().write_bytes(b"for another system")
        self.expect("class", 2)


class Waiting(unittest.TestCase):
    """Without processes: the lock is held by this one, through another descriptor."""

    def setUp(self):
        keeper = tempfile.TemporaryDirectory()
        self.addCleanup(keeper.cleanup)
        self.path = pathlib.Path(keeper.name).resolve() / "cache" / "torch-1" / "x.so"
        self.path.parent.mkdir(parents=True, mode=0o700)
        self.path.parent.parent.chmod(0o700)
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in (cache.FALLBACK, cache.REBUILD):
            os.environ.pop(name, None)

    def test_who_waits_says_so_once_and_takes_what_the_other_built(self):
        holder = os.open(self.path.parent / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(holder, fcntl.LOCK_EX)
        looks = []

        def sleep(_):
            looks.append(1)
            if len(looks) == 5:
                self.path.write_text("built by the other")
                self.path.chmod(0o700)
                os.close(holder)
        said = mock.Mock()
        with mock.patch.multiple(cache.time, sleep=sleep), mock.patch.object(cache, "NOTICE_AFTER_S", 0), \
                mock.patch("builtins.print", said):
            cache.obtain(self.path, lambda out: self.fail("built again"))
        self.assertEqual((len(looks), said.call_count), (5, 1))

    def test_full_disk_is_an_error_of_ours_and_is_tried_again(self):
        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")
        with self.assertRaisesRegex(library.NotFound, "No space left"):
            cache.obtain(self.path, full)
        os.environ.pop(cache.FALLBACK)
        cache.obtain(self.path, lambda out: pathlib.Path(out).write_text("built"))
        self.assertEqual(self.path.read_text(), "built")

    def test_child_is_told_what_its_parent_could_not_load(self):
        cache.remember(pathlib.Path("/proc/self/nowhere/torch-2/x.so"), "a reason")
        with self.assertRaisesRegex(library.NotFound, "a reason"):
            cache.obtain(self.path.parent.parent / "torch-2" / "x.so", lambda out: self.fail("built"))


class Includes(unittest.TestCase):
    def test_all_that_is_included_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"a.cpp": '#include "b.h"\n#  include <c.h>\n#include <stdio.h>\n// #include <d.h>\n',
                               "b.h": "#if 0\n#include <deep/e.h>\n#endif\n", "inc/c.h": '#include "a.h"\n', "inc/d.h": "",
                               "inc/deep/e.h": '#include "f.h"', "inc/deep/f.h": "", "inc/a.h": "#include <c.h>\n"}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = headers.contents([root / "a.cpp"], [root / "inc"])
            names = sorted(os.path.relpath(path, root) for path in found)
            self.assertEqual(names, ["a.cpp", "b.h", "inc/a.h", "inc/c.h", "inc/deep/e.h", "inc/deep/f.h"])
            first = headers.digest(found, [root])
            moved = shutil.copytree(root, root / "moved")
            again = headers.digest(headers.contents([moved / "a.cpp"], [moved / "inc"]), [moved])
            self.assertEqual(first, again)

    def test_standard_follows_the_version(self):
        for version, wanted in (("2.8.0+cu128", "c++17"), ("2.12.1", "c++17"), ("2.13.0a0+git1", "c++20"), ("3.0", "c++20")):
            self.assertEqual(build.standard(types.SimpleNamespace(__version__=version)), wanted)

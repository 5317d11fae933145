# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The parts of the package that work without PyTorch: options, command line, finding the library, reports."""
import concurrent.futures
import ctypes
import os
import pathlib
import pickle
import shutil
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import hooks_library
import tidemark.torch
from tidemark.torch import __main__ as command
from tidemark.torch import build, doctor, library, notice, settings


class Settings(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in (*settings.OF_TORCH, settings.OURS, settings.SWITCH, notice.WARNED, *notice.LOCAL_RANKS):
            os.environ.pop(name, None)
        self.library = library.load(library.find())

    def text(self, policy=None, **options):
        return settings.text_in_force(self.library, policy, options, settings.switch())

    def test_layers_from_the_weakest_to_the_strongest(self):
        keys = ["tide_slack", "tide_floor_mb", "tide_idle_handles", "tide_stitch_share", "tide_most_handle_mb"]
        # each layer names its own key and that of the next stronger one
        os.environ["PYTORCH_ALLOC_CONF"] = "tide_slack:1,tide_floor_mb:1"
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "tide_floor_mb=2,tide_idle_handles=2"
        os.environ["TIDEMARK_TORCH"] = "torch:tide_stitch_share=0.5,tide_most_handle_mb=6"
        os.environ["TIDEMARK_CONF"] = "tide_idle_handles:4,tide_stitch_share:1,policy:tide"
        got = settings.entries(self.text(tide_most_handle_mb=8))
        self.assertEqual([got[key] for key in keys], ["1", "2", "4", "0.5", "8"])
        self.assertEqual(got["policy"], "torch")

    def test_policy_is_that_of_the_strongest_layer(self):
        self.assertEqual(self.text(), "policy:tide")
        os.environ["TIDEMARK_CONF"] = "policy:torch"
        self.assertEqual(self.text(), "policy:torch")
        os.environ["TIDEMARK_TORCH"] = "tide"
        self.assertEqual(self.text(), "policy:tide")
        self.assertEqual(self.text("torch"), "policy:torch")

    def test_settings_that_only_torch_knows_are_dropped_with_a_warning(self):
        os.environ["PYTORCH_ALLOC_CONF"] = "pinned_max_cached_size_mb:64,max_split_size_mb:64,brand_new:[1:2,3:4]"
        with self.assertWarnsRegex(RuntimeWarning, "PYTORCH_ALLOC_CONF .*: brand_new$"):
            self.assertEqual(self.text(), "pinned_max_cached_size_mb:64,max_split_size_mb:64,policy:tide")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.text(), "pinned_max_cached_size_mb:64,max_split_size_mb:64,policy:tide")

    def test_what_ours_do_not_know_and_wrong_values_are_errors(self):
        with self.assertRaisesRegex(ValueError, "no option .brand_new"):
            self.text(brand_new=1)
        os.environ["TIDEMARK_CONF"] = "brand_new:1"
        with self.assertRaisesRegex(ValueError, "no option .brand_new"):
            self.text()
        os.environ["TIDEMARK_CONF"] = ""
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
        with self.assertRaisesRegex(ValueError, "backend: found .cudaMallocAsync., .* native"):
            self.text()

    def test_lists_and_blanks(self):
        self.assertEqual(settings.entries(" a : 1 , b=[256:1,>:4],,c,a:2"), {"b": "[256:1,>:4]", "c": "", "a": "2"})
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:[256:1, 512:2, >:4]"
        self.assertEqual(self.text("torch", fixes=True),
                         "roundup_power2_divisions:[256:1,512:2,>:4],fixes:True,policy:torch")

    def test_switch(self):
        for text, wanted in (("", settings.Switch()), ("off", settings.Switch(is_off=True)), ("0", settings.Switch(is_off=True)),
                             ("1", settings.Switch(policy="tide")), ("Torch", settings.Switch(policy="torch")),
                             ("tide:a=1,b:2", settings.Switch(policy="tide", options={"a": "1", "b": "2"}))):
            os.environ["TIDEMARK_TORCH"] = text
            self.assertEqual(settings.switch(), wanted, text)
        os.environ["TIDEMARK_TORCH"] = "of"
        with self.assertRaisesRegex(ValueError, "TIDEMARK_TORCH is 'of'"):
            settings.switch()

    def test_library_reads_the_text(self):
        hooks = hooks_library.load()
        hooks.tide_torch_configure.restype = ctypes.c_char_p
        self.assertIsNone(hooks.tide_torch_configure(b"max_split_size_mb:64,policy:tide,tide_slack:0.01,audits:True"))
        self.assertIn(b"policy", hooks.tide_torch_configure(b"policy:other"))


class Notices(unittest.TestCase):
    def warned(self, key, **environment):
        with mock.patch.dict(os.environ, environment), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            notice.warn(key, "a text")
            return len(caught), os.environ.get(notice.WARNED)

    def test_only_the_first_rank_and_who_was_not_told_by_a_parent_warns(self):
        self.assertEqual(self.warned("a", TIDEMARK_WARNED=""), (1, "a"))
        self.assertEqual(self.warned("b", TIDEMARK_WARNED="a"), (1, "a,b"))
        self.assertEqual(self.warned("a", TIDEMARK_WARNED="a,b"), (0, "a,b"))
        self.assertEqual(self.warned("a", TIDEMARK_WARNED="", LOCAL_RANK="0"), (1, "a"))
        self.assertEqual(self.warned("a", TIDEMARK_WARNED="", LOCAL_RANK="3"), (0, "a"))


class Command(unittest.TestCase):
    def test_what_is_behind_the_script_is_the_scripts(self):
        parsed = command.parse(["--policy", "torch", "--set", "a=1", "train.py", "--policy", "x"])
        self.assertEqual((parsed.policy, parsed.set), ("torch", ["a=1"]))
        self.assertEqual(parsed.target, ["train.py", "--policy", "x"])

    def test_a_module_takes_the_rest(self):
        self.assertEqual(command.parse(["--no-host", "-m", "train", "--lr", "3"]).target, ["train", "--lr", "3"])

    def test_no_script_and_half_an_option_are_refused(self):
        for arguments in ([], ["--set", "a", "train.py"]):
            with self.subTest(arguments), mock.patch("sys.stderr"), self.assertRaises(SystemExit):
                command.parse(arguments)


LOOKS_FOR_A_COMPILER = """
cmake_minimum_required(VERSION 3.16)
project(looks NONE)
include(CheckLanguage)
check_language(CXX)
file(WRITE "${PROJECT_BINARY_DIR}/said" "${CMAKE_CXX_COMPILER}")
"""


class Layouts(unittest.TestCase):
    """Compares the structs of the package with those recorded from the headers."""

    def test_structs_are_those_of_the_headers(self):
        recorded = pathlib.Path(__file__).resolve().parents[2] / "tests" / "abi" / "interface.txt"
        lines = recorded.read_text(encoding="utf-8").splitlines()
        probe = [doctor.Probe] if any(line.startswith("struct tide_probe ") for line in lines) else []
        for ours in (library.Rung, library.Pin, library.Oom, library.CallStats, library.Error, *probe):
            name = ours.__doc__
            fields = [line.split()[1:] for line in lines if line.startswith(f"field {name}.")]
            got = [[f"{name}.{field[0]}", str(getattr(ours, field[0]).offset), str(getattr(ours, field[0]).size)]
                   for field in ours._fields_]
            self.assertTrue(fields)
            self.assertEqual(got, fields)


class Finding(unittest.TestCase):
    def test_environment_names_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder).resolve() / "libtidemark.so"
            path.touch()
            with mock.patch.dict(os.environ, {"TIDEMARK_LIB": str(path)}):
                self.assertEqual(library.find(), path)
                with self.assertRaisesRegex(library.NotFound, "libtidemark_torch.so"):
                    library.find("libtidemark_torch.so")

    def test_package_without_tree_says_where_it_looked(self):
        empty = pathlib.Path(tempfile.gettempdir()) / "nothing-here"
        with mock.patch.dict(os.environ), mock.patch.multiple(library, PACKAGE=empty, TREE=empty):
            os.environ.pop("TIDEMARK_LIB", None)
            with self.assertRaisesRegex(library.NotFound, "TIDEMARK_LIB is not set"):
                library.find()

    def test_sources_and_headers_are_there(self):
        self.assertIn("shim.cpp", [path.name for path in library.shim_sources()])
        self.assertTrue((library.include_folder() / "tidemark" / "device.h").exists())

    @unittest.skipUnless(shutil.which("cmake") and build.compiler(), "no cmake or no C++ compiler")
    def test_compiler_that_came_later_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "CMakeLists.txt").write_text(LOOKS_FOR_A_COMPILER)
            with mock.patch.dict(os.environ, {"CXX": str(tree / "none")}):
                library.cmake(tree / "build", ["-S", folder], [])
                self.assertIn("NOTFOUND", (tree / "build" / "said").read_text())
            library.cmake(tree / "build", ["-S", folder], [])
            self.assertTrue(os.path.exists((tree / "build" / "said").read_text()))
            library.cmake(tree / "build", ["-S", folder], [])
            self.assertTrue(os.path.exists((tree / "build" / "said").read_text()))

    def test_library_is_built_once_by_all_that_need_it(self):
        began = threading.Barrier(4)
        calls = []

        def cmake(folder, configure, _):
            calls.append(configure)
            (folder / "libtidemark.so").touch()

        def need():
            began.wait()
            return library.build_with_cmake(tree, "libtidemark.so")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(library, "cmake", cmake), \
                concurrent.futures.ThreadPoolExecutor(4) as pool:
            tree = pathlib.Path(folder)
            found = [each.result() for each in [pool.submit(need) for _ in range(4)]]
        self.assertEqual((len(calls), set(found)), (1, {tree / "build" / "release" / "libtidemark.so"}))

    def test_no_compiler_is_said(self):
        with mock.patch.object(build, "compiler", lambda: None), self.assertRaisesRegex(library.NotFound, "compiler"):
            build.shim(None, pathlib.Path("x"))


class Snapshots(unittest.TestCase):
    def taken(self, pool):
        """What a file of a pool has of a snapshot with entries and segments of two pools."""
        entries = [{"action": "alloc", "size": 1, "pool_id": (0, 0)}, {"action": "oom", "size": 2, "pool_id": (0, 4)},
                   {"action": "user_defined"}, {"action": "free_completed", "size": 3}]
        data = {"segments": [{"segment_pool_id": (0, 0)}, {"segment_pool_id": (0, 4)}], "device_traces": [entries, []]}
        torch = mock.Mock()
        torch.cuda.memory._snapshot.return_value = data
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("sys.modules", torch=torch), \
                mock.patch.object(tidemark.torch, "_installed", mock.Mock(way="off")):
            path = tidemark.torch.snapshot(os.path.join(folder, "run.pickle"), pool)
            found = pickle.loads(path.read_bytes())
        return ([tuple(each["segment_pool_id"]) for each in found["segments"]],
                [[entry.get("size", 0) for entry in track] for track in found["device_traces"]])

    def test_a_file_can_show_one_pool(self):
        self.assertEqual(self.taken(None), ([(0, 0), (0, 4)], [[1, 2, 0, 3], []]))
        self.assertEqual(self.taken(mock.Mock(id=(0, 4))), ([(0, 4)], [[2, 0], []]))
        self.assertEqual(self.taken((0, 0)), ([(0, 0)], [[1, 0], []]))


class Reports(unittest.TestCase):
    """Checks the Python structs against the library, on the dry machine."""

    def setUp(self):
        self.library = library.load(library.find())
        self.machine = ctypes.c_void_p()
        self.assertEqual(self.library.tide_machine_new_dry(None, ctypes.byref(self.machine)), 0)
        self.device = ctypes.c_void_p()
        self.library.tide_device_new.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.assertEqual(self.library.tide_device_new(self.machine, 0, None, ctypes.byref(self.device)), 0)

    def tearDown(self):
        self.library.tide_device_free(self.device)
        self.library.tide_machine_free(self.machine)

    def test_out_of_memory(self):
        block = (ctypes.c_uint64 * 2)()
        self.library.tide_device_alloc.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_void_p]
        self.assertEqual(self.library.tide_device_alloc(self.device, None, 1000, block), 0)
        self.assertEqual(self.library.tide_device_alloc(self.device, None, 1 << 50, block), 4)
        self.library.tide_device_last_oom.restype = ctypes.POINTER(library.Oom)
        oom = self.library.tide_device_last_oom().contents

        report = tidemark.torch.report_of(oom)

        self.assertEqual(oom.size, ctypes.sizeof(library.Oom))
        self.assertEqual((report.requested, report.allocated, report.device_total), (1 << 50, 1024, 140 << 30))
        self.assertIsNone(report.limit)
        self.assertGreater(len(report.tried), 0)
        self.assertEqual(report.held_by[0]["block_bytes"], 1024)
        self.assertIn("Tried to allocate 1048576.00 GiB", str(report))

    def test_no_report_is_none(self):
        self.assertIsNone(tidemark.torch.report_of(library.Oom()))

    def test_calls_of_the_machine(self):
        block = (ctypes.c_uint64 * 2)()
        self.library.tide_device_alloc(self.device, None, 1000, block)
        calls = library.driver_calls(self.library, self.machine.value)
        self.assertEqual(calls["raw_alloc"], {"calls": 1, "failures": 0})
        self.assertNotIn("raw_export", calls)

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The parts of the package that work without PyTorch: options, command line, finding the library, reports."""
import ctypes
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import hooks_library
import tidemark.torch
from tidemark.torch import __main__ as command
from tidemark.torch import build, library


class Settings(unittest.TestCase):
    def test_call_counts_more_than_environment(self):
        text = tidemark.torch.settings_text("tide", {"tide_slack": 0.01, "audits": True}, "max_split_size_mb:64")
        self.assertEqual(text, "max_split_size_mb:64,policy:tide,tide_slack:0.01,audits:True")

    def test_environment_in_order_of_torch(self):
        with mock.patch.dict(os.environ, {"PYTORCH_ALLOC_CONF": "b:1", "TIDEMARK_CONF": "c:1"}, clear=True):
            self.assertEqual(tidemark.torch.environment_settings(), "b:1")
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "a:1"
            self.assertEqual(tidemark.torch.environment_settings(), "a:1")

    def test_library_reads_the_text(self):
        hooks = hooks_library.load()
        hooks.tide_torch_configure.restype = ctypes.c_char_p
        self.assertIsNone(hooks.tide_torch_configure(b"max_split_size_mb:64,policy:tide,tide_slack:0.01,audits:True"))
        self.assertIn(b"policy", hooks.tide_torch_configure(b"policy:other"))


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
        for ours in (library.Rung, library.Pin, library.Oom, library.CallStats):
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

    def test_no_compiler_is_said(self):
        with mock.patch.object(build, "compiler", lambda: None), self.assertRaisesRegex(library.NotFound, "compiler"):
            build.shim(None, pathlib.Path("x"))


IN_AN_INSTALLED_PACKAGE = """
import pathlib, sys
from tidemark.torch import library
folder = pathlib.Path(sys.argv[1]).resolve()
assert library.find() == folder / "tidemark" / "lib" / "libtidemark.so", library.find()
assert library.load(library.find()).tide_version()
assert library.find("libtidemark_torch.so").parent == folder / "tidemark" / "lib"
assert library.shim_sources()[0].parent == folder / "tidemark" / "shim"
assert (library.include_folder() / "tidemark" / "device.h").exists()
"""


class Installing(unittest.TestCase):
    @unittest.skipUnless(float(os.environ.get("TIDE_TEST_SCALE") or 1) >= 10, "in long runs only: it builds the library")
    @unittest.skipUnless(importlib.util.find_spec("pip") and importlib.util.find_spec("wheel"), "no pip or no wheel")
    def test_pip_installs_all_that_is_needed(self):
        environment = {name: value for name, value in os.environ.items() if name != "TIDEMARK_LIB"}
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index",
                            "--target", folder, str(library.source_tree() / "pytorch")], check=True, env=environment)
            environment["PYTHONPATH"] = folder
            subprocess.run([sys.executable, "-c", IN_AN_INSTALLED_PACKAGE, folder], check=True, env=environment, cwd=folder)


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

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Source distribution and wheel: built offline, checked by their contents, and used outside the tree.

Ordinary runs put the library of the build folder into the wheel; long runs build it from the source distribution.
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

import fake_torch
import unit
from tidemark.torch import build, library

NEEDS = """
import setuptools
from importlib.util import find_spec
assert find_spec("pip") and (find_spec("wheel") or find_spec("setuptools.command.bdist_wheel"))
"""
IS_LONG = float(os.environ.get("TIDE_TEST_SCALE") or 1) >= 10
OFFLINE = ("--no-deps", "--no-index")
INSTALLED = """
import pathlib, sys
from tidemark.torch import library
folder = pathlib.Path(sys.argv[1]).resolve()
assert library.find() == folder / "tidemark" / "lib" / "libtidemark.so", library.find()
assert library.load(library.find()).tide_version()
assert library.find("libtidemark_torch.so").parent == folder / "tidemark" / "lib"
assert library.shim_sources()[0].parent == folder / "tidemark" / "shim"
assert (library.include_folder() / "tidemark" / "device.h").exists()
import tidemark
from tidemark import command
assert command.find() == folder / "tidemark" / "lib" / "tidemark", command.find()
data = b'{"device_traces": [[{"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1}]], "segments": []}'
assert tidemark.read(data).report()["peak_allocated"] == 512
assert "torch" not in sys.modules
"""


@functools.lru_cache(maxsize=None)
def python():
    """An interpreter that can build packages; None if there is none."""
    for path in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(path) and subprocess.run([path, "-W", "ignore", "-c", NEEDS], capture_output=True,
                                                   check=False).returncode == 0:
            return path
    return None


def environment(**more):
    """The environment without settings of ours."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TIDEMARK_", "PYTHON")) and name != "PIP_REQUIRE_VIRTUALENV"}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "TIDEMARK_PREBUILD": "", **more}


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], env=environment(**more), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Distribution(unittest.TestCase):
    """The source distribution is built from a copy of the checkout, and the wheel from the source distribution."""

    @classmethod
    def setUpClass(cls):
        if python() is None:
            raise unittest.SkipTest("pip, setuptools or wheel is missing (python3-pip, python3-setuptools, python3-wheel)")
        if build.compiler() is None or not shutil.which("cmake"):
            raise unittest.SkipTest("no C++ compiler or no cmake")
        keeper = tempfile.TemporaryDirectory()
        cls.addClassCleanup(keeper.cleanup)
        cls.root = pathlib.Path(keeper.name).resolve()
        checkout = cls.make_checkout("checkout")
        cls.sdist = cls.build_sdist(checkout, cls.root / "sdist")
        with tarfile.open(cls.sdist) as archive:
            archive.extractall(cls.root / "unpacked")
        shutil.rmtree(checkout)  # the source distribution needs nothing of it
        cls.source = next((cls.root / "unpacked").iterdir())
        more = {} if IS_LONG else {"TIDEMARK_LIB": str(library.find())}
        cls.wheel = cls.build_wheel(cls.sdist, cls.root / "wheels", **more)

    @classmethod
    def make_checkout(cls, name):
        """A copy of what a clean checkout has, as far as the package needs it."""
        folder = cls.root / name
        for part in ("src", "include", "cmake", "tool", "page", "pytorch"):
            shutil.copytree(library.source_tree() / part, folder / part,
                            ignore=shutil.ignore_patterns("build", "__pycache__", "*.egg-info"))
        for part in ("CMakeLists.txt", "LICENSE"):
            shutil.copy2(library.source_tree() / part, folder)
        return folder

    @staticmethod
    def build_sdist(checkout, folder):
        """As a build front-end does it: in a process of its own, in the folder of the project."""
        folder.mkdir()
        code = "import os, sys; os.chdir(sys.argv[1]); sys.path.insert(0, '.'); import backend; backend.build_sdist(sys.argv[2])"
        run(python(), "-W", "ignore", "-c", code, checkout / "pytorch", folder)
        return next(folder.iterdir())

    @staticmethod
    def build_wheel(source, folder, **more):
        run(python(), "-m", "pip", "wheel", "-q", *OFFLINE, "--no-build-isolation", "-w", folder, source, **more)
        return next(folder.glob("*.whl"))

    def names(self, wheel=None):
        with zipfile.ZipFile(wheel or self.wheel) as archive:
            return archive.namelist()

    def installed(self, wheel=None):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        with zipfile.ZipFile(wheel or self.wheel) as archive:
            archive.extractall(folder)
        return folder

    def test_source_distribution_has_all_sources(self):
        files = {str(path.relative_to(self.source)) for path in self.source.rglob("*") if path.is_file()}
        for name in ("setup.py", "backend.py", "pyproject.toml", "tidemark.pth", "shim.cpp", "shim.h", "hooks.cpp", "LICENSE",
                     "library/CMakeLists.txt", "library/cmake/pytorch.cmake", "library/pytorch/hooks.cpp",
                     "library/include/tidemark/device.h", "library/tool/main.c", "tidemark/hook.py", "tidemark/recording.py",
                     "tidemark/torch/__main__.py"):
            self.assertIn(name, files)
        for part in ("src", "tool"):
            ours = {str(path.relative_to(library.source_tree())) for path in (library.source_tree() / part).rglob("*.[ch]")}
            self.assertEqual(ours, {name[len("library/"):] for name in files if re.match(f"library/{part}/.*[.][ch]$", name)})

    @unit.slow
    def test_cmake_accepts_the_source_distribution(self):
        options = re.findall('"(-D[^"]*)"', (self.source / "setup.py").read_text(encoding="utf-8"))
        run("cmake", "-S", self.source / "library", "-B", self.root / "configured", *options)

    def test_wheel_is_for_every_python_of_this_platform(self):
        self.assertRegex(self.wheel.name, r"^tidemark-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")

    def test_wheel_has_what_is_needed_at_run_time(self):
        names = set(self.names())
        for name in ("tidemark.pth", "tidemark/py.typed", "tidemark/lib/libtidemark.so", "tidemark/lib/libtidemark_torch.so",
                     "tidemark/lib/tidemark",
                     "tidemark/include/tidemark/tidemark.h", "tidemark/shim/shim.cpp", "tidemark/shim/shim.h"):
            self.assertIn(name, names)
        for sources, inside in ((library.PACKAGE.rglob("*.py"), library.PACKAGE.parent),
                                (library.include_folder().rglob("*.h"), library.include_folder().parent)):
            for path in sources:
                name = str(path.relative_to(inside))
                self.assertIn(name if name.startswith("tidemark/") else f"tidemark/{name}", names)

    def test_versions_agree(self):
        folder = self.installed()
        said = run(python(), "-c", "import tidemark; print(tidemark.__version__)", PYTHONPATH=str(folder)).strip()
        self.assertEqual(self.wheel.name.split("-")[1], said)
        code = "from tidemark.torch import library; print(library.load(library.find()).tide_version().decode())"
        self.assertEqual(run(python(), "-c", code, PYTHONPATH=str(folder)).strip(), said)

    def test_pip_installs_it_and_it_works_outside_the_tree(self):
        target = self.root / "target"
        run(python(), "-m", "pip", "install", "-q", *OFFLINE, "--target", target, self.wheel)
        run(python(), "-c", INSTALLED, target, PYTHONPATH=str(target))

    @unittest.skipUnless(IS_LONG, "only with --full: it builds the library")
    def test_pip_installs_from_a_checkout(self):
        target = self.root / "from_checkout"
        run(python(), "-m", "pip", "install", "-q", *OFFLINE, "--no-build-isolation", "--target", target,
            self.make_checkout("clean") / "pytorch")
        run(python(), "-c", INSTALLED, target, PYTHONPATH=str(target))

    @unit.slow
    def test_shims_are_built_for_the_versions_at_hand(self):
        site = fake_torch.Site(self.root / "site")
        more = site.environment(TIDEMARK_PREBUILD=str(site.folder / "only_torch"), PYTHONPATH="")
        (site.folder / "only_torch").mkdir()
        (site.folder / "torch").rename(site.folder / "only_torch" / "torch")
        for path in self.source.glob("shim*.cpp"):
            path.write_text(fake_torch.SHIM if path.name == "shim.cpp" else "")
        wheel = self.build_wheel(self.source, self.root / "prebuilt", **more)
        found = [name for name in self.names(wheel) if name.startswith("tidemark/shim/prebuilt/")]
        self.assertEqual([re.sub("-[0-9a-f]{16}", "-HASH", name) for name in found],
                         ["tidemark/shim/prebuilt/torch-2.11.0-HASH.so"])
        code = "import tidemark.torch\nprint(tidemark.torch.install().shim.name)"
        folder = self.installed(wheel)
        paths = os.pathsep.join([str(folder), str(site.folder / "only_torch")])
        said = run(sys.executable, "-c", code, PYTHONPATH=paths, CXX="/no/compiler", CUDA_HOME="/nowhere")
        self.assertEqual(said.strip(), os.path.basename(found[0]))


class Backend(unittest.TestCase):
    """The requirements that pip gets for an isolated build."""

    def requirements(self, **more):
        if python() is None:
            self.skipTest("pip, setuptools or wheel is missing")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import backend; print(backend.extra_requirements())"
        return run(python(), "-W", "ignore", "-c", code, library.PACKAGE.parent, **more).strip()

    @unit.slow
    def test_cmake_is_required_where_there_is_none_or_an_old_one(self):
        with tempfile.TemporaryDirectory() as folder:
            make = pathlib.Path(folder) / "make"
            make.touch(mode=0o755)
            self.assertEqual(self.requirements(PATH=folder), "['cmake>=3.25']")
            cmake = pathlib.Path(folder) / "cmake"
            cmake.write_text("#!/bin/sh\necho cmake version 3.16.3\n")
            cmake.chmod(0o755)
            self.assertEqual(self.requirements(PATH=folder), "['cmake>=3.25']")
            cmake.write_text("#!/bin/sh\necho cmake version 3.25.1\n")
            self.assertEqual(self.requirements(PATH=folder), "[]")
            cmake.write_text("#!/bin/sh\nexit 1\n")
            make.unlink()
            self.assertEqual(self.requirements(PATH=folder), "['cmake>=3.25', 'ninja']")

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""TIDEMARK_TORCH in the environment: through the .pth file of an installed package, in real processes."""
import ast
import builtins
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
from unittest import mock

import fake_torch
import unit
from tidemark import hook
from tidemark.torch import library

PTH = library.PACKAGE.parent / "tidemark.pth"
SAY = """
import sys
print("tidemark.hook" in sys.modules, "torch" in sys.modules, "tidemark.torch" in sys.modules)
import torch
found = sys.modules["tidemark.torch"].installation() if "tidemark.torch" in sys.modules else None
print(found and (found.way, found.policy, found.has_host))
"""
SPAWNS = """
import multiprocessing
def child(queue):
    import sys, torch
    queue.put(sys.modules["tidemark.torch"].installation().way)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=child, args=(queue,)) for _ in range(3)]
    for process in processes:
        process.start()
    print([queue.get(timeout=200) for _ in processes])
    for process in processes:
        process.join()
"""


class InVenv(unittest.TestCase):
    """A virtual environment with the package, its .pth file, and a PyTorch that is not one."""

    @classmethod
    def setUpClass(cls):
        keeper = tempfile.TemporaryDirectory()
        cls.addClassCleanup(keeper.cleanup)
        root = pathlib.Path(keeper.name).resolve() / "venv"
        venv.EnvBuilder(symlinks=True, with_pip=False).create(root)
        packages = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        cls.site = fake_torch.Site(packages, str(root / "bin" / "python"))
        shutil.copy2(PTH, packages)

    def say(self, code=SAY, options=(), **more):
        status, out, errors = self.site.run(code, options=options, **more)
        self.assertEqual(status, 0, errors)
        return out.splitlines(), errors

    def script(self, text):
        path = self.site.folder / "script.py"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def command(self, *arguments, **more):
        return subprocess.run([self.site.python, "-B", *arguments], env=self.site.environment(**more), text=True,
                              capture_output=True, timeout=300, check=False, cwd=self.site.folder)

    def replace(self, name, text):
        """Replaces a file for this test."""
        path = self.site.folder / name
        before = path.read_text(encoding="utf-8")
        self.addCleanup(path.write_text, before, encoding="utf-8")
        path.write_text(text, encoding="utf-8")


class Variable(InVenv):
    def test_without_it_nothing_is_imported(self):
        self.assertEqual(self.say()[0], ["False False False", "None"])

    def test_allocator_is_there_when_torch_is(self):
        self.assertEqual(self.say(TIDEMARK_TORCH="tide")[0], ["True False False", "('class', 'tide', True)"])
        self.assertEqual(self.say(TIDEMARK_TORCH="torch:fixes=True,host=off")[0][1], "('class', 'torch', False)")
        self.assertEqual(self.say(TIDEMARK_TORCH="tide:way=pluggable")[0][1], "('pluggable', 'tide', False)")

    @unit.slow
    def test_spawned_processes_have_it_too(self):
        done = self.command(self.script(SPAWNS), TIDEMARK_TORCH="tide")
        self.assertEqual(done.stdout.strip(), "['class', 'class', 'class']", done.stderr)

    def test_off_switches_everything_off(self):
        compiled = self.site.compilations()
        self.assertEqual(self.say(TIDEMARK_TORCH="off")[0][1], "('off', '', False)")
        code = """
            import tidemark.torch, torch
            found = tidemark.torch.install("tide", tide_slack=0.5)
            print(found.way, found.reason, torch.done, tidemark.torch.stats()["utilisation"], tidemark.torch.explain_oom())
        """
        self.assertEqual(self.say(code, TIDEMARK_TORCH="OFF")[0], ["off TIDEMARK_TORCH is off [] 0.75 None"])
        self.assertEqual(self.site.compilations(), compiled)

    @unit.slow
    def test_a_ledger_is_joined_when_cuda_begins(self):
        code = "import torch, tidemark.torch\nprint(torch.done, tidemark.torch.installation() and 'installed')\n"
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide", TIDEMARK_LEDGER="gpu{device}")[0], ["['queued'] installed"])
        self.assertEqual(self.say(code, TIDEMARK_TORCH="off", TIDEMARK_LEDGER="gpu{device}")[0], ["[] installed"])
        lines, errors = self.say(code, TIDEMARK_TORCH="tide", TIDEMARK_LEDGER="gpu0,totl=1")
        self.assertEqual(lines, ["[] None"])
        self.assertIn("TIDEMARK_TORCH has no effect: TIDEMARK_LEDGER is 'gpu0,totl=1': 'totl=1' is not one of", errors)

    @unit.slow
    def test_memory_is_reserved_when_cuda_begins(self):
        code = "import torch, tidemark.torch\nprint(torch.done, tidemark.torch.installation() and 'installed')\n"
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide", TIDEMARK_RESERVE="1GiB")[0], ["['queued'] installed"])
        self.assertEqual(self.say(code, TIDEMARK_TORCH="off", TIDEMARK_RESERVE="1GiB")[0], ["[] installed"])
        lines, errors = self.say(code, TIDEMARK_TORCH="tide", TIDEMARK_RESERVE="much")
        self.assertEqual(lines, ["[] None"])
        self.assertIn("TIDEMARK_TORCH has no effect: TIDEMARK_RESERVE: 'much' is not a size", errors)
        lines, errors = self.say(code, TIDEMARK_TORCH="tide", TIDEMARK_MEMO="/nowhere")
        self.assertEqual(lines, ["[] installed"])
        self.assertEqual(errors.count("TIDEMARK_MEMO has no effect any more: TIDEMARK_RESERVE=14GiB"), 1)

    def test_call_before_torch_is_imported_counts_more(self):
        code = "import tidemark.torch\nprint(tidemark.torch.install('torch').policy)\nimport torch\n"
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide")[0], ["torch"])
        code = """
            import tidemark.torch
            found = tidemark.torch.install(way="class", host=True, tide_slack=0.5)
            print(found.way, found.has_host, found.settings)
        """
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide:way=pluggable,host=off,tide_slack=0.1,audits=on")[0],
                         ["class True tide_slack:0.5,audits:on,policy:tide"])

    def test_threads_that_begin_together_install_once(self):
        code = """
            import concurrent.futures, threading
            import tidemark.torch
            together = threading.Barrier(4)
            def work(number):
                together.wait()
                if number % 2:
                    import torch
                return tidemark.torch.install()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                print(len({id(found) for found in pool.map(work, range(4))}))
        """
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide")[0], ["1"])

    def test_isolated_python_and_python_without_sites(self):
        self.assertEqual(self.say(options=["-I"], TIDEMARK_TORCH="tide")[0][1], "('class', 'tide', True)")
        done = self.command("-S", "-c", "print('started')", TIDEMARK_TORCH="tide", PYTHONPATH="")
        self.assertEqual((done.stdout, done.stderr), ("started\n", ""))


class Trouble(InVenv):
    """Whatever is wrong, the program runs on PyTorch's own allocator."""

    def expect_native(self, words, **more):
        out, errors = self.say("import torch\nprint(torch.cuda.get_allocator_backend(), torch.done)", **more)
        self.assertEqual(out, ["native []"])
        self.assertRegex(errors, words)
        self.assertEqual(errors.count("tidemark: TIDEMARK_TORCH has no effect"), 1, errors)

    @unit.slow
    def test_wrong_value_or_torch_without_cuda_is_a_warning(self):
        self.expect_native("TIDEMARK_TORCH is 'tied'", TIDEMARK_TORCH="tied")
        self.expect_native("no option .no_such", TIDEMARK_TORCH="tide:no_such=1")
        self.expect_native("built without CUDA", TIDEMARK_TORCH="tide", FAKE_CUDA="none")
        self.expect_native("another allocator", TIDEMARK_TORCH="tide", FAKE_WRONG="another allocator, rmm, is in place")

    def test_warning_that_is_an_error_is_printed(self):
        self.expect_native("tied", options=["-W", "error"], TIDEMARK_TORCH="tied")

    def test_damaged_package_is_a_warning(self):
        self.replace("tidemark/torch/__init__.py", "raise ImportError('damaged')\n")
        self.expect_native("damaged", TIDEMARK_TORCH="tide")

    def test_damaged_hook_does_not_keep_python_from_starting(self):
        for text in ("raise RuntimeError('damaged')\n", "no python\n"):
            self.replace("tidemark/hook.py", text)
            self.assertEqual(self.say("import torch\nprint(torch.__version__)", TIDEMARK_TORCH="tide")[0], ["2.11.0"])

    def test_torch_that_fails_fails_as_before_and_the_next_import_counts(self):
        self.replace("torch/__init__.py", "import os\nif os.environ.get('FAKE_FAILS'): raise ImportError('fails')\n"
                     + fake_torch.TORCH)
        code = """
            import os, sys
            try:
                import torch
            except ImportError as error:
                print(error)
            del os.environ["FAKE_FAILS"]
            import torch
            print(sys.modules["tidemark.torch"].installation().way)
        """
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide", FAKE_FAILS="1")[0], ["fails", "class"])

    @unit.slow
    def test_module_torch_looks_untouched(self):
        code = """
            import importlib.util, inspect, sys
            assert importlib.util.find_spec("torch").loader.get_source("torch")
            assert "torch" not in sys.modules
            assert importlib.util.find_spec("no_such_module") is None
            import torch
            assert "libraries = " in inspect.getsource(torch)
            assert "exec_module" not in vars(torch.__spec__.loader)
            assert not any("tidemark" in type(finder).__module__ for finder in sys.meta_path)
            importlib.reload(torch)
            print(sys.modules["tidemark.torch"].installation().way)
        """
        self.assertEqual(self.say(code, TIDEMARK_TORCH="tide")[0], ["class"])


class Commands(InVenv):
    def test_script_runs_natively_when_it_is_off_and_says_so(self):
        script = self.script("import sys\nprint(sys.argv[1:], 'tidemark.torch' in sys.modules)\n")
        done = self.command("-m", "tidemark.torch", "--stats", script, "--policy", "x", TIDEMARK_TORCH="off")
        self.assertEqual((done.returncode, done.stdout), (0, "['--policy', 'x'] True\n"), done.stderr)
        self.assertIn("running on PyTorch's own allocator", done.stderr)

    @unit.slow
    def test_command_line_counts_more_than_the_variable(self):
        script = self.script("import tidemark.torch\nprint(tidemark.torch.installation().settings)\n")
        done = self.command("-m", "tidemark.torch", "--policy", "torch", "--set", "fixes=True", script,
                            TIDEMARK_TORCH="tide", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
        self.assertEqual(done.stdout, "max_split_size_mb:64,fixes:True,policy:torch\n", done.stderr)

    def test_doctor_finds_all_well(self):
        done = self.command("-m", "tidemark.torch", "--doctor", TIDEMARK_TORCH="tide", TIDEMARK_CONF="tide_slack:0.01")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in (r"torch: +2\.11\.0, CUDA 13\.0", r"library: +0\.1\.0, ", "way: +class, policy tide", "closed to others",
                      "environment: +TIDEMARK_TORCH=tide", "settings: +tide_slack:0.01,policy:tide", "in place: +native",
                      "vtable: +all slots are equal"):
            self.assertRegex(done.stdout, words)

    @unit.slow
    def test_doctor_says_why_not(self):
        for words, more in (("way: +off, because TIDEMARK_TORCH is off", {"TIDEMARK_TORCH": "off"}),
                            ("way: +pluggable, because no C\\+\\+ compiler", {"CXX": "/no/compiler"}),
                            ("way: +none: NotFound: TIDEMARK_LIB", {"TIDEMARK_LIB": "/no/library.so"}),
                            ("way: +none: ValueError: TIDEMARK_TORCH is 'x'", {"TIDEMARK_TORCH": "x"}),
                            ("way: +pluggable, because nothing is loaded from /proc|cannot be used",
                             {"TIDEMARK_CACHE": "/proc/self/nowhere"})):
            done = self.command("-W", "ignore", "-m", "tidemark.torch", "--doctor", **more)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, words)
            self.assertNotIn("Traceback", done.stdout + done.stderr)

    def test_doctor_without_torch(self):
        (self.site.folder / "torch").rename(self.site.folder / "not_torch")
        self.addCleanup((self.site.folder / "not_torch").rename, self.site.folder / "torch")
        done = self.command("-m", "tidemark.torch", "--doctor")
        self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
        self.assertIn("way:          none: ModuleNotFoundError: No module named 'torch'", done.stdout)


class Armed(unittest.TestCase):
    def test_pth_file_is_one_line_that_python_runs(self):
        lines = PTH.read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("import "))

    def test_pth_file_does_nothing_in_a_python_that_is_too_old(self):
        line = PTH.read_text(encoding="utf-8")
        ast.parse(line, feature_version=(3, 4))
        for version in ((2, 7, 18), (3, 6, 15), (3, 8, 18)):
            before = list(sys.meta_path)
            with mock.patch.dict(os.environ, TIDEMARK_TORCH="tide"), mock.patch.object(sys, "version_info", version), \
                    mock.patch.object(builtins, "__import__", wraps=builtins.__import__) as imported:
                exec(line, {})  # as Python does at its start
            self.assertEqual({call.args[0] for call in imported.call_args_list}, {"os", "sys"}, version)
            self.assertEqual(sys.meta_path, before)

    def test_pth_file_is_silent_in_old_pythons_that_are_installed(self):
        """Such a Python may share a folder of packages with one that the package is for."""
        code = "import site, sys; site.addsitedir(sys.argv[1]); print('started')"
        found = [path for path in map(shutil.which, ("python2.7", "python3.6", "python3.7", "python3.8")) if path
                 and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0]
        if not found:
            self.skipTest("no old Python is installed")
        for path in found:
            done = subprocess.run([path, "-c", code, str(PTH.parent)], capture_output=True, check=False,
                                  env={**os.environ, "TIDEMARK_TORCH": "tide", "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual((done.stdout.strip(), done.stderr), (b"started", b""), path)

    def test_arming_twice_is_arming_once(self):
        if "torch" in sys.modules:
            self.skipTest("torch is already imported")
        before = list(sys.meta_path)
        try:
            hook.arm()
            hook.arm()
            self.assertEqual(len(sys.meta_path), len(before) + 1)
        finally:
            hook.disarm()
        self.assertEqual(sys.meta_path, before)

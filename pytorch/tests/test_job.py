# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A job of four processes under torchrun with the variable alone: each is on Tidemark, and one of them compiles."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import fake_torch
import test_environment
import test_gpu
from tidemark.torch import build, library

RANKS = 4
SCRIPT = """
import os, sys
import torch
data = torch.ones(1 << 20, dtype=torch.uint8, device="cuda:0")
installed = sys.modules["tidemark.torch"].installation()
print("RANK", os.environ["RANK"], installed.way, torch.cuda.get_allocator_backend(), int(data.sum()), flush=True)
"""
# Makes Python treat the folder as one of installed packages.
CUSTOMIZE = "import os, site\nsite.addsitedir(os.path.dirname(os.path.abspath(__file__)))\n"


class Job(unittest.TestCase):
    def setUp(self):
        if test_gpu.why_not():
            self.skipTest(test_gpu.why_not())
        if build.compiler() is None:
            self.skipTest("no C++ compiler")
        keeper = tempfile.TemporaryDirectory()
        self.addCleanup(keeper.cleanup)
        self.folder = pathlib.Path(keeper.name).resolve()
        self.log = self.folder / "compiled"
        for name, text in {"script.py": SCRIPT, "sitecustomize.py": CUSTOMIZE,
                           "tidemark.pth": test_environment.PTH.read_text(encoding="utf-8"),
                           "c++": fake_torch.COMPILER.format(log=self.log, cxx=build.compiler())}.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / "c++").chmod(0o755)

    def launch(self, value):
        environment = {name: text for name, text in os.environ.items() if name not in ("TIDEMARK_WARNED", "TIDEMARK_FALLBACK")}
        environment.update(
            TIDEMARK_TORCH=value, TIDEMARK_CACHE=str(self.folder / "cache"), TIDEMARK_LIB=str(library.find()),
            CXX=str(self.folder / "c++"),
            PYTHONPATH=os.pathsep.join([str(self.folder), str(library.PACKAGE.parent), os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}",
                               str(self.folder / "script.py")], env=environment, text=True, capture_output=True, timeout=600,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("RANK"))

    def test_every_rank_is_on_tidemark_and_one_process_compiles(self):
        wanted = [f"RANK {rank} class tidemark {1 << 20}" for rank in range(RANKS)]
        for policy in ("tide", "torch"):
            self.assertEqual(self.launch(policy), wanted)
        self.assertEqual(len(self.log.read_text().splitlines()), 1)

    def test_off_leaves_every_rank_to_pytorch(self):
        self.assertEqual(self.launch("off"), [f"RANK {rank} off native {1 << 20}" for rank in range(RANKS)])
        self.assertFalse(self.log.exists())

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Ledgers as PyTorch programs join them, with real memory on host machines.

What is held comes from the tidemark command, and what it should be from the machines.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import host_torch
import tidemark.torch
from tidemark import abi, library
from tidemark.torch import budgets, doctor, ledgers, regions

MIB = 1 << 20
LONG = 60  # seconds, where a request is to succeed
HERE = str(pathlib.Path(__file__).resolve().parent)

# Another process: joins, and does what it is told.
OTHER = """
import sys, unittest
import host_torch, tidemark.torch

class Process(unittest.TestCase):
    def runTest(self):
        torch = host_torch.put_in_place(self)
        tidemark.torch.join_ledger(sys.argv[1], member="other", wait=60)
        kept = []
        print("joined", flush=True)
        for line in sys.stdin:
            word, size = line.split()
            if word == "make":
                kept.append(torch.make(int(size), 5))
            elif word == "drop":
                kept.clear()
            print("done", flush=True)

unittest.TextTestRunner(verbosity=0).run(Process())
"""


class WithLedger(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "ledger")

    def command(self, *arguments):
        done = subprocess.run([os.environ["TIDEMARK_BIN"], "ledger", *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def look(self, path=None):
        """The ledger, and its members."""
        found = json.loads(self.command("show", path or self.path, "--json"))
        return found["ledgers"][0], found["members"]

    def held(self):
        return self.look()[0]["held_bytes"]

    def used(self):
        return sum(cache.used() for cache in self.torch.shim.caches.values())

    def join(self, device=0, **values):
        tidemark.torch.join_ledger(self.path, device=device, **values)

    def make(self, size, value=1, device=0):
        return self.torch.make(size, value, device)


class Joining(WithLedger):
    def test_what_is_reserved_is_held(self):
        kept = [self.make(3 * MIB)]
        self.join(total="64MiB")
        self.join(device=1)
        kept += [self.make(size * MIB, device=device) for device, size in enumerate((5, 7))]
        self.assertEqual(self.held(), self.used())
        self.assertGreaterEqual(self.used(), 15 * MIB)
        self.assertEqual([member["held_bytes"] for member in self.look()[1]],
                         [self.torch.shim.caches[index].used() for index in range(2)])
        del kept
        self.assertEqual(self.held(), self.used())

    def test_the_values_reach_the_ledger(self):
        self.join(total="1.5GiB", guarantee="16MiB", limit=40 * MIB, priority=-7, wait=0.25, member="trainer")
        self.join(device=1, member="longer than the file has room for, so cut", limit=None, priority=1000)
        ledger, (first, second) = self.look()
        self.assertEqual((ledger["path"], ledger["total_bytes"], ledger["guarantee_bytes"]),
                         (self.path, 3 << 29, 16 * MIB))
        self.assertEqual([first[name] for name in ("pid", "name", "guarantee_bytes", "limit_bytes", "priority")],
                         [os.getpid(), "trainer", 16 * MIB, 40 * MIB, -7])
        self.assertEqual((second["limit_bytes"], second["priority"]), (None, 1000))
        self.assertTrue("longer than the file has room for".startswith(second["name"]) and len(second["name"]) > 20)

    def test_leaving(self):
        self.join(total="8MiB", wait=0)
        self.make(4 * MIB)
        with self.assertRaises(AssertionError):
            self.make(16 * MIB)
        tidemark.torch.leave_ledger()
        self.assertEqual((self.held(), self.look()[1]), (0, []))
        self.assertTrue(self.make(16 * MIB, 3).has(3))
        tidemark.torch.leave_ledger(device=1)
        tidemark.torch.leave_ledger()

    def test_wrong_values(self):
        for values, text in (({"total": "much"}, "total: 'much' is not a size"), ({"guarantee": None}, "guarantee: None"),
                             ({"limit": -1}, "limit: -1"), ({"priority": 1001}, "priority: 1001 is not a number between"),
                             ({"priority": 0.5}, "priority: 0.5"), ({"priority": True}, "priority: True"),
                             ({"priority": "high"}, "priority: 'high'"), ({"wait": -1}, "wait: -1 is not a number of seconds"),
                             ({"wait": "soon"}, "wait: 'soon'"), ({"wait": float("nan")}, "wait: nan"),
                             ({"wait": None}, "wait: None"), ({"member": ""}, "member: ''"), ({"member": 5}, "member: 5"),
                             ({"guarantee": 1025, "limit": "1KiB"}, "1025 bytes is above the limit of 1024 bytes"),
                             ({"total": 1 << 60}, "total of 1152921504606846976 bytes is too large")):
            with self.subTest(values), self.assertRaisesRegex(ValueError, text):
                self.join(**{"total": "8MiB", **values})
        for name in ("", "gpu 0", "a/b", "/tmp/", "x" * 65, "é", None, "/tmp/a\0b"):
            with self.subTest(name), self.assertRaisesRegex(ValueError, "no name of a ledger"):
                tidemark.torch.join_ledger(name, total=1)
        self.assertFalse(os.path.exists(self.path))

    def test_what_the_ledger_refuses(self):
        with self.assertRaisesRegex(RuntimeError, "there is no ledger"):
            self.join()
        self.join(total="8MiB", guarantee="6MiB")
        with self.assertRaisesRegex(RuntimeError, "member of a ledger already"):
            self.join()
        with self.assertRaisesRegex(RuntimeError, "exceed the total") as caught:
            self.join(device=1, guarantee="3MiB")
        self.assertEqual(caught.exception.status, "TIDE_ERR_LIMIT")
        self.assertEqual(self.look()[0]["members"], 1)
        self.make(4 * MIB, device=1)
        with self.assertRaisesRegex(RuntimeError, "do not fit beside the guarantees"):
            self.join(device=1, wait=0)
        tidemark.torch.leave_ledger()
        os.chmod(self.path, 0o644)
        with self.assertRaisesRegex(RuntimeError, "closed to others"):
            self.join()

    def test_without_tidemark(self):
        with mock.patch.object(tidemark.torch, "_shim", None):
            for call in (self.join, tidemark.torch.leave_ledger):
                with self.assertRaisesRegex(RuntimeError, "install"):
                    call()
            off = tidemark.torch.Installation("", "", "off", None, False)
            with mock.patch.object(tidemark.torch, "_installed", off):
                self.join(total="1GiB")
                tidemark.torch.leave_ledger()
        self.assertFalse(os.path.exists(self.path))


class Sharing(WithLedger):
    def test_a_refused_request_is_explained(self):
        self.join(total="32MiB", wait=0.01)
        self.join(device=1, wait=0.01)
        kept = self.make(24 * MIB, 7)
        with self.assertRaisesRegex(AssertionError, "other processes"):
            self.make(16 * MIB, device=1)
        last_oom = abi.load().tide_device_last_oom
        last_oom.restype = ctypes.POINTER(library.Oom)
        with mock.patch.object(self.torch.shim, "tidemark_torch_last_oom", create=True,
                               new=lambda out: ctypes.memmove(out, last_oom(), ctypes.sizeof(library.Oom))):
            report = tidemark.torch.explain_oom()
        self.assertIn(("other processes", 0), report.tried)
        self.assertIn("tried other processes: 0.0 MiB", str(report))
        self.assertTrue(kept.has(7))
        self.assertEqual(self.held(), self.used())

    def test_idle_memory_goes_to_others(self):
        self.join(total="32MiB", guarantee="4MiB")
        self.join(device=1, wait=LONG)
        self.make(24 * MIB)
        self.assertGreaterEqual(self.held(), 24 * MIB)
        self.assertTrue(self.make(26 * MIB, 3, device=1).has(3))
        self.assertLessEqual(self.torch.shim.caches[0].used(), 6 * MIB)
        self.assertEqual(self.held(), self.used())
        self.assertGreaterEqual(self.look()[1][0]["given_bytes"], 18 * MIB)

    def test_tags_that_yield_go_to_others_and_come_back(self):
        self.join(total="32MiB", wait=LONG)
        self.join(device=1, wait=LONG)
        with regions.region("weights", yields=True, device=0):
            weights = self.make(24 * MIB, 6)
        for turn in range(3):
            other = self.make(24 * MIB, turn, device=1)
            self.assertEqual(regions.tags(0)["weights"]["parked_pool_count"], 1)
            self.assertTrue(other.has(turn))
            del other
            with budgets.use("weights", device=0):
                self.torch.shim.caches[0].synchronize()
                self.assertTrue(weights.has(6))
            self.assertLessEqual(self.held(), 32 * MIB)

    def test_all_layers_of_a_model_come_back(self):
        self.join(total="64MiB", wait=LONG)
        self.join(device=1, wait=LONG)
        layers = []
        for number in range(4):
            with regions.region(f"model/{number}", yields=True, device=0):
                layers.append(self.make(12 * MIB, number))
        self.make(60 * MIB, 1, device=1)
        self.assertEqual(self.torch.shim.caches[0].used(), 0)
        with budgets.use("model", device=0):
            self.torch.shim.caches[0].synchronize()
            self.assertEqual([layer.has(number) for number, layer in enumerate(layers)], [True] * 4)

    @contextlib.contextmanager
    def other(self):
        """Another process in the ledger, and a function that tells it what to do."""
        path = os.pathsep.join([HERE, str(library.PACKAGE.parent)])
        with subprocess.Popen([sys.executable, "-c", OTHER, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "PYTHONPATH": path}) as process:
            def tell(word, size=0):
                process.stdin.write(f"{word} {size}\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "done\n")

            self.assertEqual(process.stdout.readline(), "joined\n")
            try:
                yield process, tell
            finally:
                process.stdin.close()
                process.wait()

    def test_two_processes(self):
        self.join(total="32MiB", wait=LONG, member="first")
        with self.other() as (process, tell):
            tell("make", 24 * MIB)
            members = {member["name"]: member for member in self.look()[1]}
            self.assertEqual((members["first"]["pid"], members["other"]["pid"]), (os.getpid(), process.pid))
            self.assertGreaterEqual(members["other"]["held_bytes"], 24 * MIB)
            tell("drop")
            mine = self.make(24 * MIB, 9)
            self.assertTrue(mine.has(9))
            self.assertEqual(self.held() - self.used(), self.look()[1][1]["held_bytes"])
            self.assertLessEqual(self.held(), 32 * MIB)
            del mine
            tell("make", 24 * MIB)
            process.kill()
            process.wait()
            self.assertTrue(self.make(24 * MIB, 8).has(8))
        self.assertEqual((len(self.look()[1]), self.held()), (1, self.used()))


class Environment(WithLedger):
    def set(self, text, **more):
        patch = mock.patch.dict(os.environ, {"TIDEMARK_LEDGER": text, **more})
        patch.start()
        self.addCleanup(patch.stop)

    def install(self, text, **more):
        """install() with a variable; the shim is in place already."""
        self.set(text, **more)
        with mock.patch.object(tidemark.torch, "_installed", None), mock.patch.object(
                tidemark.torch, "_install_class", return_value=host_torch.INSTALLATION):
            return tidemark.torch.install("tide")

    def members(self, index):
        return [member["name"] for member in self.look(f"{self.path}-{index}")[1]]

    def test_texts(self):
        self.set(" gpu{device} , total=64GiB,guarantee = 16GiB,limit=40GiB,priority=-2,wait=0.5,member=trainer ")
        self.assertEqual(vars(ledgers.from_environment()), {
            "ledger": "gpu{device}", "total": 64 << 30, "guarantee": 16 << 30, "limit": 40 << 30, "priority": -2,
            "wait_ns": 500_000_000, "member": "trainer"})
        self.set("{uuid}")
        self.assertEqual(vars(ledgers.from_environment()), {
            "ledger": "{uuid}", "total": 0, "guarantee": 0, "limit": None, "priority": 0, "wait_ns": 10**9, "member": None})
        self.set("")
        self.assertIsNone(ledgers.from_environment())

    def test_wrong_texts(self):
        for text, part in ((",total=1GiB", "'' is no name"), ("gpu{gpu}", "'gpu{gpu}' is no name"), ("total=1GiB", "no name"),
                           ("gpu0,", "'' is not one of total, guarantee"), ("gpu0,totl=1", "'totl=1' is not one of total"),
                           ("gpu0,total", "'total' is not one of"), ("gpu0,total=1,total=2", "'total=2' is the second total"),
                           ("gpu0,total=big", "total: 'big' is not a size"), ("gpu0,total=", "total: '' is not a size"),
                           ("gpu0,priority=x", "priority: 'x'"), ("gpu0,priority=1.5", "priority: '1.5'"),
                           ("gpu0,wait=1s", "wait: '1s'"), ("gpu0,wait=inf", "wait: 'inf'"), ("gpu0,member=", "member: ''"),
                           ("gpu0,guarantee=2,limit=1", "above the limit")):
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                self.install(text)
            self.assertIn(f"TIDEMARK_LEDGER is {text!r}: ", str(caught.exception))
            self.assertIn(part, str(caught.exception))
            self.assertEqual(self.install(text, TIDEMARK_TORCH="off").way, "off")
            os.environ["TIDEMARK_TORCH"] = ""

    def test_each_device_joins_at_its_first_use(self):
        self.install(self.path + "-{device},total=16MiB,wait=0,member=env")
        self.assertFalse(self.torch.cuda.is_initialized())
        self.torch.cuda.init()
        self.assertEqual((self.torch.shim.caches, os.listdir(self.folder)), ({}, []))
        kept = self.make(4 * MIB, device=1)
        self.assertEqual((os.listdir(self.folder), self.members(1)), (["ledger-1"], ["env"]))
        self.assertEqual(self.look(self.path + "-1")[0]["held_bytes"], self.used())
        with self.assertRaises(AssertionError):
            self.make(14 * MIB, device=1)
        self.make(14 * MIB, device=0)
        self.assertEqual((self.members(0), self.members(1)), (["env"], ["env"]))
        tidemark.torch.leave_ledger(device=1)
        self.make(14 * MIB, device=1)
        self.assertEqual((self.members(1), kept.has(1)), ([], True))

    def test_uuids(self):
        self.install(self.path + "-{uuid}-{device},total=16MiB")
        self.make(MIB, device=1)
        self.assertEqual(os.listdir(self.folder), ["ledger-0000-1-1"])

    def test_a_pytorch_without_uuids(self):
        self.torch.cuda.get_device_properties = lambda index: object()
        self.install("gpu{uuid}")
        with self.assertRaisesRegex(host_torch.DeferredCudaCallError, "does not tell the uuid of a device"):
            self.torch.cuda.init()

    def test_several_devices_need_several_ledgers(self):
        self.install(self.path + ",total=16MiB")
        for _ in range(2):
            with self.assertRaisesRegex(host_torch.DeferredCudaCallError, "TIDEMARK_LEDGER.*but 2 devices") as caught:
                self.make(MIB)
            self.assertIsInstance(caught.exception.__cause__, ValueError)
        self.torch.cuda.device_count = lambda: 1
        self.make(MIB)
        self.assertEqual(len(self.look()[1]), 1)

    def test_a_failure_is_not_silent(self):
        self.install(self.path + "-{device},member=late")
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "there is no ledger"):
                self.make(MIB)
            with self.assertRaisesRegex(RuntimeError, "no allocator for device 0: .*there is no ledger"):
                regions.tags()
        self.command("make", self.path + "-0", "--total", "16MiB")
        self.make(MIB)
        self.assertEqual(self.members(0), ["late"])

    def test_initialising_again_announces_once(self):
        def fail():
            raise KeyError("elsewhere")

        self.install(self.path + "-{device},total=16MiB")
        self.torch.cuda._lazy_call(fail)
        with self.assertRaises(host_torch.DeferredCudaCallError):
            self.torch.cuda.init()
        self.torch._queued.remove(fail)
        self.make(MIB)
        self.assertEqual(len(self.members(0)), 1)

    def test_a_device_that_is_in_use_joins_at_once(self):
        self.torch.shim.cache(0)
        self.install(self.path + "-{device}")
        with self.assertRaisesRegex(host_torch.DeferredCudaCallError, "TIDEMARK_LEDGER: .*there is no ledger"):
            self.torch.cuda.init()
        self.command("make", self.path + "-0", "--total", "16MiB")
        self.torch.cuda.init()
        self.assertEqual(len(self.members(0)), 1)

    def test_the_pluggable_interface_has_no_ledgers(self):
        with self.assertRaisesRegex(RuntimeError, "TIDEMARK_LEDGER needs PyTorch's allocator class, but: as requested"):
            self.install("gpu{device}", TIDEMARK_TORCH="tide:way=pluggable")

    def test_the_doctor(self):
        self.assertIn("TIDEMARK_LEDGER", doctor.VARIABLES)
        line = dict(doctor.LINES)["ledger"]
        self.set("")
        self.assertEqual(line(), "none")
        self.set("gpu{device},total=64GiB,guarantee=1GiB,wait=0.5")
        self.assertEqual(line(), "gpu{device}; total: 64.00 GiB; guarantee: 1.00 GiB; limit: the total; priority: 0; "
                                 "requests wait 0.5 s at most")
        self.set("gpu0,wait=long")
        self.assertIn("ValueError: TIDEMARK_LEDGER is 'gpu0,wait=long': wait: 'long'", doctor._answer(line))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The interface of torch_memory_saver, with real memory on host machines."""
import importlib
import inspect
import os
import sys
import tempfile
import threading
import unittest
from unittest import mock

import host_torch
import tidemark.torch
from tidemark.torch import regions

MIB = 1 << 20
MODULE = "tidemark.torch.memory_saver"


class WithSaver(unittest.TestCase):
    def load(self, **environment):
        """Imports the module in a process with this environment that has not used CUDA yet."""
        self.torch = host_torch.put_in_place(self)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TMS_")}
        patch = mock.patch.dict(os.environ, {**kept, **environment}, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        sys.modules.pop(MODULE, None)
        self.addCleanup(sys.modules.pop, MODULE, None)
        self.module = importlib.import_module(MODULE)
        self.saver = self.module.torch_memory_saver

    def setUp(self):
        self.load()

    def make(self, value, size=3 * MIB, **options):
        with self.saver.region(**options):
            return self.torch.make(size, value)


class Interface(WithSaver):
    # Names, order and defaults of what the peer's class and module offer.
    CALLS = {
        "region": [("tag", "default"), ("enable_cpu_backup", False), ("enable_disk_backup", False), ("cpu_backup_backend", None)],
        "cuda_graph": [("cuda_graph", inspect.Parameter.empty), ("pool", None), ("stream", None),
                       ("capture_error_mode", "global"), ("tag", "default"), ("enable_cpu_backup", False),
                       ("cpu_backup_backend", None)],
        "disable": [],
        "pause": [("tag", None)],
        "resume": [("tag", None)],
        "get_cpu_backup": [("x", inspect.Parameter.empty), ("zero_copy", False)],
        "set_disk_backup_dir": [("path", inspect.Parameter.empty)],
    }

    def test_names_and_defaults(self):
        for name, wanted in self.CALLS.items():
            with self.subTest(name):
                found = inspect.signature(getattr(self.saver, name)).parameters.values()
                self.assertEqual([(each.name, each.default) for each in found], wanted)
        self.assertIsInstance(self.saver, self.module.TorchMemorySaver)
        self.assertTrue(self.saver.enabled)
        self.assertIs(self.saver.retain_cpu_backup, False)

    def test_modes(self):
        for mode in ("preload", "torch"):
            self.saver.hook_mode = mode
            self.assertEqual(self.saver.hook_mode, mode)
        with self.assertRaises(ValueError):
            self.saver.hook_mode = "other"

    def test_errors(self):
        cases = ((ValueError, "requires enable_cpu_backup", {"cpu_backup_backend": "mmap"}),
                 (ValueError, "cpu_backup_backend must be", {"enable_cpu_backup": True, "cpu_backup_backend": "malloc"}),
                 (AssertionError, "mutually exclusive", {"enable_cpu_backup": True, "enable_disk_backup": True}))
        for kind, text, options in cases:
            with self.assertRaisesRegex(kind, text), self.saver.region(**options):
                pass
        with self.assertRaises(AssertionError), self.saver.disable():
            pass
        with self.assertRaises(NotImplementedError):
            self.saver.memory_margin_bytes
        with self.assertRaises(AssertionError):
            self.saver.get_cpu_backup(self.torch.empty(1, self.torch.uint8))

    def test_children_use_tidemark(self):
        with mock.patch.dict(os.environ):
            for before in (None, "torch"):
                os.environ.pop("TIDEMARK_TORCH", None)
                os.environ.update({"TIDEMARK_TORCH": before} if before else {})
                with self.module.configure_subprocess():
                    self.assertEqual(os.environ["TIDEMARK_TORCH"], "tide")
                self.assertEqual(os.environ.get("TIDEMARK_TORCH"), before)

    def test_a_margin(self):
        self.saver.memory_margin_bytes = 1 << 30
        self.assertEqual(self.torch.fractions, {0: 0.75})


class Pausing(WithSaver):
    def test_memory_with_and_without_a_backup(self):
        for backend in ("pinned", "mmap"):
            with self.subTest(backend):
                kept = self.make(1, enable_cpu_backup=True, cpu_backup_backend=backend)
                lost = self.make(2)
                self.saver.pause()
                stats = regions.tags()["default"]
                self.assertEqual((stats["reserved_bytes"], stats["allocation_count"]), (0, 2))
                backup = self.saver.get_cpu_backup(kept)
                self.assertEqual((backup.shape, backup.dtype, backup.device), (kept.shape, kept.dtype, "cpu"))
                self.assertTrue(backup.has(1))
                self.assertIsNone(self.saver.get_cpu_backup(lost))
                self.saver.resume()
                self.assertTrue(kept.has(1))
                lost.fill(3)
                self.assertIsNone(self.saver.get_cpu_backup(kept))
                self.assertTrue(backup.has(1))  # a copy
                del kept, lost

    def test_a_retained_backup_stays_where_it_is(self):
        tensor = self.make(1, tag="a", enable_cpu_backup=True, cpu_backup_backend="mmap")
        self.saver.pause("a")
        place = self.saver.get_cpu_backup(tensor, zero_copy=True).data_ptr()
        self.saver.retain_cpu_backup = True
        for value in (2, 3):
            self.saver.resume("a")
            again = self.saver.get_cpu_backup(tensor, zero_copy=True)
            self.assertEqual(again.data_ptr(), place)
            self.assertTrue(again.has(value - 1) and tensor.has(value - 1))
            tensor.fill(value)
            self.saver.pause("a")
            self.assertEqual(self.saver.get_cpu_backup(tensor, zero_copy=True).data_ptr(), place)
        self.saver.retain_cpu_backup = False
        self.assertTrue(self.saver.get_cpu_backup(tensor).has(3))
        self.saver.resume("a")
        self.assertTrue(tensor.has(3))
        self.assertIsNone(self.saver.get_cpu_backup(tensor))
        self.assertEqual(regions.tags()["a"]["backup_bytes"], 0)

    def test_a_retained_backup_ends_also_if_all_tags_are_resumed(self):
        tensor = self.make(1, tag="a", enable_cpu_backup=True)
        for first, second in (("a", None), (None, "a")):
            self.saver.retain_cpu_backup = True
            self.saver.pause(first)
            self.saver.resume(first)
            tensor.fill(2)
            self.saver.retain_cpu_backup = False
            self.saver.pause(second)
            self.assertTrue(self.saver.get_cpu_backup(tensor).has(2))
            self.saver.resume(second)
            self.assertIsNone(self.saver.get_cpu_backup(tensor))
            self.assertEqual(regions.tags()["a"]["backup_bytes"], 0)

    def test_tags_are_not_paths(self):
        names = ("a", "a/b", "a%2Fb", "")
        tensors = [self.make(value, tag=name, enable_cpu_backup=True) for value, name in enumerate(names, 1)]
        self.saver.pause("a")
        self.assertEqual([self.saver.get_cpu_backup(tensor) is not None for tensor in tensors], [True, False, False, False])
        self.saver.resume("a")
        self.saver.pause("a/b")
        self.assertEqual([self.saver.get_cpu_backup(tensor) is not None for tensor in tensors], [False, True, False, False])
        self.saver.pause("")  # all that are not paused
        self.saver.resume()
        self.assertEqual([tensor.has(value) for value, tensor in enumerate(tensors, 1)], [True] * 4)
        self.saver.pause("unknown")
        self.saver.resume("unknown")

    def test_a_part_of_a_tensor(self):
        tensor = self.make(1, enable_cpu_backup=True)
        tensor[MIB:2 * MIB].fill(2)
        self.saver.pause()
        typed = tensor.view(self.torch.float32)[MIB // 4:MIB // 2]
        self.assertTrue(self.saver.get_cpu_backup(typed).has(2))
        self.saver.resume()

    def test_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            self.saver.set_disk_backup_dir(os.path.join(folder, "made"))
            tensor = self.make(1, enable_disk_backup=True)
            self.saver.pause()
            self.assertIsNone(self.saver.get_cpu_backup(tensor))
            self.assertGreaterEqual(regions.tags()["default"]["backup_bytes"], 3 * MIB)
            self.assertEqual(os.listdir(os.path.join(folder, "made")), [])
            self.saver.resume()
        self.assertTrue(tensor.has(1))

    def test_a_graph(self):
        captured = self.torch.cuda.CUDAGraph()
        regions.of_device()
        with self.saver.cuda_graph(captured, tag="graph", enable_cpu_backup=True):
            tensor = self.torch.make(3 * MIB, 4)
        self.saver.pause("graph")
        self.assertEqual(regions.tags()["graph"]["reserved_bytes"], 0)
        self.saver.resume("graph")
        self.assertTrue(tensor.has(4))

    def test_disabled_inside_a_region(self):
        with self.saver.region(tag="a"):
            with self.saver.disable():
                other = self.torch.make(3 * MIB, 5)
                with self.assertRaises(AssertionError), self.saver.disable():
                    pass
            inside = self.torch.make(3 * MIB, 6)
            self.assertEqual(regions.tags()["a"]["allocation_count"], 1)
            self.saver.pause("a")  # while its region is open
            self.assertTrue(other.has(5))
            self.saver.resume("a")
        inside.fill(7)

    def test_the_backend_of_an_outer_region_is_the_default(self):
        with self.saver.region(enable_cpu_backup=True, cpu_backup_backend="mmap"):
            tensor = self.make(1, tag="inner", enable_cpu_backup=True)
        with mock.patch.object(regions, "park", wraps=regions.park) as park:
            self.saver.pause("inner")
        park.assert_called_once()
        self.assertEqual(list(regions.of_device()._idle), [("default", 2), ("inner", 2)])
        self.saver.resume()
        self.assertTrue(tensor.has(1))


class Environment(WithSaver):
    def setUp(self):
        pass

    def test_all_memory_of_the_process(self):
        self.load(TMS_INIT_ENABLE="1", TMS_INIT_ENABLE_CPU_BACKUP="1")
        made = [self.torch.make(3 * MIB, 1)]
        other = threading.Thread(target=lambda: made.append(self.torch.make(3 * MIB, 2)))
        other.start()
        other.join()
        made.append(self.torch.make(3 * MIB, 3, device=1))
        lost = self.make(9, tag="grad", enable_cpu_backup=False)
        self.saver.pause()
        self.assertEqual([regions.tags(index)["default"]["reserved_bytes"] for index in (0, 1)], [0, 0])
        with self.saver.disable():
            free = self.torch.make(3 * MIB, 4)
            self.assertTrue(free.has(4))
        self.assertEqual(regions.tags()["default"]["parked_pool_count"], 1)
        self.saver.resume()
        self.assertEqual([tensor.has(value) for value, tensor in enumerate(made, 1)], [True] * 3)
        lost.fill(0)

    def test_large_idle_memory_serves_a_larger_request(self):
        self.load(TMS_INIT_ENABLE="1")
        kept = self.torch.make(MIB, 1)
        self.torch.shim.caches[0].set_limit(200 * MIB)
        a, b = self.torch.make(60 * MIB, 2), self.torch.make(60 * MIB, 3)
        del a, b
        self.assertTrue(self.torch.make(120 * MIB, 4).has(4))
        self.assertTrue(kept.has(1))

    def test_kinds_of_backups(self):
        self.load(TMS_INIT_CPU_BACKUP_BACKEND="mmap", TMS_RETAIN_CPU_BACKUP="true")
        self.assertIs(self.saver.retain_cpu_backup, True)
        self.make(1, enable_cpu_backup=True)
        self.assertEqual(list(regions.of_device()._idle), [("default", 2)])
        with tempfile.TemporaryDirectory() as folder:
            self.load(TMS_INIT_ENABLE="yes", TMS_INIT_ENABLE_DISK_BACKUP="YES", TMS_DISK_BACKUP_DIR=folder)
            tensor = self.torch.make(3 * MIB, 6)
            self.saver.pause()
            self.assertGreaterEqual(regions.tags()["default"]["backup_bytes"], 3 * MIB)
            self.assertIsNone(self.saver.get_cpu_backup(tensor))
            self.saver.resume()
            self.assertTrue(tensor.has(6))

    def test_a_wrong_value(self):
        with self.assertRaisesRegex(ValueError, "TMS_INIT_ENABLE must be"):
            self.load(TMS_INIT_ENABLE="on")

    def test_without_tidemark(self):
        self.load()
        with mock.patch.object(tidemark.torch, "_shim", None), self.assertRaisesRegex(RuntimeError, "install"):
            self.make(1)


if __name__ == "__main__":
    unittest.main()

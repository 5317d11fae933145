# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The sleep backend for vLLM, against a stand-in of vLLM's factory and allocator, with real memory on host machines."""
import abc
import importlib
import sys
import types
import unittest
from unittest import mock

import host_torch
from tidemark import TidemarkError
from tidemark.torch import regions, vllm

MIB = 1 << 20


def stand_in():
    """vLLM's modules, as far as a backend meets them."""

    class SleepModeBackend(abc.ABC):
        def __init__(self):
            self._state = "RUNNING"

        @abc.abstractmethod
        def suspend(self, level=1):
            """Frees memory."""

        @abc.abstractmethod
        def resume(self, tags=None):
            """Takes it again."""

        def state(self):
            return self._state

        @classmethod
        def is_supported(cls):
            return True

        @classmethod
        def preserves_communicators(cls):
            return False

        preserves_compiled_artifacts = preserves_graphs_with_communicators = preserves_communicators
        supports_durable_storage = preserves_communicators

    class SleepModeBackendFactory:
        _registry = {}

        @classmethod
        def register_backend(cls, name, module_path, class_name):
            if name in cls._registry:
                raise ValueError(name)
            cls._registry[name] = lambda: getattr(importlib.import_module(module_path), class_name)

        @classmethod
        def create_backend(cls, model_config):
            kind = cls._registry[model_config.sleep_mode_backend]()
            if not kind.is_supported():
                raise ValueError("not supported")
            return kind()

    class CuMemAllocator:
        def use_memory_pool(self, tag=None):
            raise AssertionError("vLLM's own pools are used")

        get_current_usage = sleep = wake_up = use_memory_pool

    backend = types.SimpleNamespace(SleepModeBackend=SleepModeBackend, SleepModeBackendFactory=SleepModeBackendFactory)
    cumem = types.SimpleNamespace(CuMemAllocator=CuMemAllocator)
    return {"vllm": types.ModuleType("vllm"), "vllm.device_allocator": types.ModuleType("vllm.device_allocator"),
            "vllm.device_allocator.sleep_mode_backend": backend, "vllm.device_allocator.cumem": cumem}


class WithVllm(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)
        patch = mock.patch.dict(sys.modules, self.modules())
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(vars(vllm).pop, "TidemarkBackend", None)
        vllm.register()
        vllm.register()
        self.allocator = sys.modules["vllm.device_allocator.cumem"].CuMemAllocator()
        self.assertEqual(self.allocator.get_current_usage(), 0)
        with self.allocator.use_memory_pool(tag="weights"):
            self.weights = self.torch.make(3 * MIB, 7)
        with self.allocator.use_memory_pool(tag="kv_cache"):
            self.kv_cache = self.torch.make(5 * MIB, 8)

    def modules(self):
        return stand_in()

    def stats(self, name):
        return regions.tags()[f"vllm/{name}"]


class Sleeping(WithVllm):
    def setUp(self):
        super().setUp()
        factory = sys.modules["vllm.device_allocator.sleep_mode_backend"].SleepModeBackendFactory
        self.backend = factory.create_backend(types.SimpleNamespace(sleep_mode_backend="tidemark"))
        self.assertEqual(self.backend.state(), "RUNNING")

    def test_the_memory_of_vllm_has_tags(self):
        self.assertEqual(self.allocator.get_current_usage(), 8 * MIB)
        self.assertEqual(list(regions.tags()), ["vllm/kv_cache", "vllm/weights"])

    def test_level_1_keeps_the_weights(self):
        for _ in range(2):
            self.backend.suspend(1)
            self.assertEqual(self.backend.state(), "SUSPENDED")
            self.assertEqual((self.stats("weights")["reserved_bytes"], self.stats("kv_cache")["reserved_bytes"]), (0, 0))
            self.assertGreaterEqual(self.stats("weights")["backup_bytes"], 3 * MIB)
            self.assertEqual(self.stats("kv_cache")["backup_bytes"], 0)
            self.backend.resume(["weights"])
            self.assertEqual(self.backend.state(), "SUSPENDED")
            self.assertTrue(self.weights.has(7))
            self.backend.resume(["kv_cache"])
            self.assertEqual(self.backend.state(), "RUNNING")
            self.kv_cache.fill(1)

    def test_level_2_keeps_nothing(self):
        self.backend.suspend(level=2)
        self.assertEqual([self.stats(name)["backup_bytes"] for name in ("weights", "kv_cache")], [0, 0])
        self.assertEqual([self.stats(name)["reserved_bytes"] for name in ("weights", "kv_cache")], [0, 0])
        self.backend.resume()
        self.assertEqual(self.backend.state(), "RUNNING")
        self.weights.fill(1)

    def test_tags_that_vllm_does_not_have(self):
        self.backend.suspend()
        self.backend.resume(["something"])
        self.assertEqual(self.backend.state(), "SUSPENDED")
        self.backend.resume(tags=None)
        self.assertTrue(self.weights.has(7))

    def test_memory_that_does_not_come_back_yet(self):
        self.backend.suspend()
        others = self.torch.make(6 * MIB, 1)
        self.torch.shim.caches[0].set_limit(8 * MIB)
        with self.assertRaises(TidemarkError):
            self.backend.resume()
        self.assertEqual(self.backend.state(), "SUSPENDED")
        del others
        self.torch.shim.caches[0].set_limit(64 * MIB)
        self.backend.resume()
        self.assertEqual(self.backend.state(), "RUNNING")
        self.assertTrue(self.weights.has(7))

    def test_a_capture_keeps_it_awake(self):
        with self.torch.cuda.graph(self.torch.cuda.CUDAGraph()), self.assertRaises(TidemarkError):
            self.backend.suspend()
        self.assertEqual(self.backend.state(), "RUNNING")
        self.assertTrue(self.weights.has(7) and self.kv_cache.has(8))

    def test_what_it_promises(self):
        kind = type(self.backend)
        self.assertTrue(issubclass(kind, sys.modules["vllm.device_allocator.sleep_mode_backend"].SleepModeBackend))
        self.assertTrue(kind.preserves_communicators() and kind.preserves_compiled_artifacts())
        self.assertFalse(kind.preserves_graphs_with_communicators() or kind.supports_durable_storage())


class Allocator(WithVllm):
    """A vLLM without backends, which calls its allocator."""

    def modules(self):
        return {**stand_in(), "vllm.device_allocator.sleep_mode_backend": None}

    def test_it_sleeps_and_wakes(self):
        for offloaded, is_kept in ((("weights",), True), ("weights", True)):
            self.allocator.sleep(offload_tags=offloaded)
            self.assertEqual(self.stats("kv_cache")["reserved_bytes"], 0)
            self.allocator.wake_up(["weights"])
            self.assertEqual(self.weights.has(7), is_kept)
            self.assertEqual(self.stats("kv_cache")["parked_pool_count"], 1)
            self.allocator.wake_up()
            self.kv_cache.fill(8)

    def test_memory_without_a_tag_is_kept(self):
        with self.allocator.use_memory_pool():
            tensor = self.torch.make(3 * MIB, 9)
        self.allocator.sleep()
        self.assertEqual([self.stats(name)["backup_bytes"] > 0 for name in ("default", "weights", "kv_cache")],
                         [True, False, False])
        self.allocator.wake_up()
        self.assertTrue(tensor.has(9))


class Absent(unittest.TestCase):
    def test_without_tidemark_in_place_nothing_changes(self):
        modules = stand_in()
        self.addCleanup(vars(vllm).pop, "TidemarkBackend", None)
        with mock.patch.dict(sys.modules, modules), mock.patch.object(vllm, "installation", lambda: None):
            vllm.register()
            factory = modules["vllm.device_allocator.sleep_mode_backend"].SleepModeBackendFactory
            with self.assertRaises(ValueError):
                factory.create_backend(types.SimpleNamespace(sleep_mode_backend="tidemark"))
            with self.assertRaisesRegex(AssertionError, "own pools"):
                modules["vllm.device_allocator.cumem"].CuMemAllocator().use_memory_pool("weights")


if __name__ == "__main__":
    unittest.main()

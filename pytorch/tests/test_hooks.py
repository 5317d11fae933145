# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The functions of the pluggable interface as PyTorch calls them, on a machine without memory."""
import ctypes
import platform
import unittest

import hooks_library
from tidemark.torch import fallback, library


class PoolId(ctypes.Structure):
    """std::pair of two numbers, by value."""
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64)]


MANAGER = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
INVOKER = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


class Function(ctypes.Structure):
    """std::function of libstdc++; C++ passes one by the address of a copy."""
    _fields_ = [("functor", ctypes.c_uint64 * 2), ("manager", MANAGER), ("invoker", INVOKER)]


class Hooks(unittest.TestCase):
    """The tests share the state of the process."""

    @classmethod
    def setUpClass(cls):
        cls.library = library.load(library.find())
        cls.hooks = hooks_library.load()
        machine = ctypes.c_void_p()
        cls.library.tide_machine_new_dry(None, ctypes.byref(machine))
        cls.machine = machine
        cls.hooks.tide_torch_use_machine.argtypes = [ctypes.c_void_p]
        cls.hooks.tide_torch_use_machine(machine)
        cls.hooks.tide_torch_alloc.restype = ctypes.c_void_p
        cls.hooks.tide_torch_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        cls.hooks.tide_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        cls.hooks.tide_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        cls.hooks.tide_torch_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
        cls.hooks.tide_torch_base_alloc.restype = ctypes.c_void_p
        cls.hooks.tide_torch_base_alloc.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        cls.library.tide_device_default.restype = ctypes.c_void_p
        for name in ("begin", "end"):
            getattr(cls.hooks, f"tide_torch_{name}_allocate_to_pool").restype = None

    def device(self):
        return ctypes.c_void_p(self.library.tide_device_default(0))

    def calls(self, name):
        return library.driver_calls(self.library, self.machine.value).get(name, {"calls": 0})["calls"]

    def test_every_hook_is_exported(self):
        for name in ("tide_torch_alloc", "tide_torch_free", *fallback.HOOKS.values()):
            self.assertTrue(hasattr(self.hooks, name), name)

    def test_empty_tensor_is_null(self):
        self.assertIsNone(self.hooks.tide_torch_alloc(0, 0, None))

    def test_memory_is_used_again(self):
        first = self.hooks.tide_torch_alloc(3 << 20, 0, None)
        self.hooks.tide_torch_free(first, 3 << 20, 0, None)
        second = self.hooks.tide_torch_alloc(3 << 20, 0, None)
        self.assertEqual(first, second)
        size = ctypes.c_size_t()
        self.assertEqual(self.hooks.tide_torch_base_alloc(second, ctypes.byref(size)), second)
        self.assertEqual(size.value, 20 << 20)
        self.hooks.tide_torch_free(second, 3 << 20, 0, None)

    def test_reset_gives_idle_memory_back(self):
        address = self.hooks.tide_torch_alloc(64 << 20, 0, None)
        self.hooks.tide_torch_free(address, 64 << 20, 0, None)
        before = self.calls("raw_release")
        self.hooks.tide_torch_reset()
        self.assertGreater(self.calls("raw_release"), before)

    def test_fraction_is_set(self):
        self.hooks.tide_torch_free(self.hooks.tide_torch_alloc(1, 0, None), 1, 0, None)
        self.library.tide_device_fraction.restype = ctypes.c_double
        self.hooks.tide_torch_memory_fraction(0.25, 0)
        self.assertEqual(self.library.tide_device_fraction(self.device()), 0.25)
        self.hooks.tide_torch_memory_fraction(1.0, 0)

    def test_recorded_memory_waits_for_its_stream(self):
        stream = ctypes.c_void_p()
        self.library.tide_machine_stream_new(self.machine, 0, 0, 0, ctypes.byref(stream))
        self.library.tide_dry_work.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64]
        address = self.hooks.tide_torch_alloc(40 << 20, 0, None)
        self.library.tide_dry_work(self.machine, 0, stream, 10**9)

        self.hooks.tide_torch_record_stream(address, stream)
        self.hooks.tide_torch_free(address, 40 << 20, 0, None)
        other = self.hooks.tide_torch_alloc(40 << 20, 0, None)

        self.assertNotEqual(address, other)
        self.hooks.tide_torch_free(other, 40 << 20, 0, None)

    def test_memory_of_others_is_not_recorded(self):
        self.hooks.tide_torch_record_stream(None, None)
        self.hooks.tide_torch_record_stream(0x1234500, None)

    @unittest.skipIf(platform.machine() not in ("x86_64", "aarch64"), "how C++ passes arguments is not known here")
    def test_pool_takes_what_its_filter_takes(self):
        asked = []
        manage = MANAGER(self.copy_function)
        invoke = INVOKER(lambda function, stream: bool(asked.append(stream[0]) or True))
        function = Function((ctypes.c_uint64 * 2)(), manage, invoke)
        pool = PoolId(7, 0)
        outside = self.hooks.tide_torch_alloc(1 << 20, 0, None)

        self.hooks.tide_torch_begin_allocate_to_pool(0, pool, ctypes.byref(function))
        inside = self.hooks.tide_torch_alloc(1 << 20, 0, None)
        self.hooks.tide_torch_end_allocate_to_pool(0, pool)

        self.assertEqual(len(asked), 1)
        users = ctypes.c_uint32()
        number = ctypes.c_uint32()
        label = (ctypes.c_uint64 * 2)(7, 0)
        self.assertEqual(self.library.tide_device_pool_find(self.device(), label, ctypes.byref(number)), 0)
        self.library.tide_device_pool_users(self.device(), number, ctypes.byref(users))
        self.assertEqual(users.value, 1)
        for address in (outside, inside):
            self.hooks.tide_torch_free(address, 1 << 20, 0, None)
        self.hooks.tide_torch_release_pool(0, pool)
        self.hooks.tide_torch_reset()
        self.assertNotEqual(self.library.tide_device_pool_find(self.device(), label, ctypes.byref(number)), 0)

    @staticmethod
    def copy_function(to, source, operation):
        """Clones (2), and has nothing to destroy (3)."""
        if operation == 2:
            ctypes.memmove(to, source, 16)
        return False

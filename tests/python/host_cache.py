# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A device cache of the policy `tide` on the host machine, whose memory this process can read and write."""
import ctypes
import os
import pickle
import tempfile

from tidemark import abi
from tidemark.device import Cache, PoolOptions, Scope


class Options(ctypes.Structure):
    """The beginning of tide_device_options; the library has defaults for the rest."""
    _fields_ = [("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("max_split_bytes", ctypes.c_uint64)]


class HistoryOptions(ctypes.Structure):
    """tide_history_options"""
    _fields_ = [("size", ctypes.c_uint32), ("is_on", ctypes.c_bool), ("clears", ctypes.c_bool), ("level", ctypes.c_uint8),
                ("skips", ctypes.c_uint32), ("max_entries", ctypes.c_uint64), ("gather", ctypes.c_void_p),
                ("user", ctypes.c_void_p), ("number", ctypes.c_void_p)]

    def __init__(self, size, is_on):
        super().__init__(size=size, is_on=is_on, max_entries=1000)


class Block(ctypes.Structure):
    """tide_block"""
    _fields_ = [("address", ctypes.c_void_p), ("handle", ctypes.c_uint64)]


class HostCache(Cache):
    """Ends with close()."""
    is_closed = False

    def __init__(self):
        self._tide = abi.load()
        self._machine = ctypes.c_void_p()
        made = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), 1, 2**64 - 1)
        self._check(self._tide.tide_machine_new_host(None, ctypes.byref(self._machine)))
        self._check(self._tide.tide_device_new(self._machine, 0, ctypes.byref(options), ctypes.byref(made)))
        super().__init__(made.value)

    def _check(self, status):
        if status != 0:
            raise AssertionError(self._tide.tide_last_error().contents.text.decode())

    def alloc(self, size, value):
        """The address of a new block, filled with a byte."""
        block = Block()
        self._check(self._tide.tide_device_alloc(self._address, None, ctypes.c_size_t(size), ctypes.byref(block)))
        self.synchronize()  # the request may have unparked its pool
        ctypes.memset(block.address, value, size)
        return block.address

    def synchronize(self):
        """Waits for all work of the device."""
        self._check(self._tide.tide_machine_device_synchronize(self._machine, 0))

    def used(self):
        """The bytes that the machine has given."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._tide.tide_machine_memory_info(self._machine, 0, ctypes.byref(free), ctypes.byref(total)))
        return total.value - free.value

    def begin_capture(self, label):
        """Sends the requests of this thread to a new pool, and behaves as inside a capture. Returns the pool."""
        pool = ctypes.c_uint32()
        options = PoolOptions(size=ctypes.sizeof(PoolOptions), label=label)
        self._call("tide_device_pool_new", ctypes.byref(options), ctypes.byref(pool))
        self._call("tide_device_pool_begin", pool, ctypes.byref(Scope(size=ctypes.sizeof(Scope), kind=1)))
        return pool.value

    def snapshot(self):
        """A memory snapshot of the cache, as a file has it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snapshot.pickle")
            self._check(self._tide.tide_device_snapshot_to(self._address, path.encode()))
            with open(path, "rb") as file:
                return pickle.load(file)

    def host_snapshot(self):
        """The same with pinned memory, of a cache that has recorded a request and its release."""
        pinned, history, block = ctypes.c_void_p(), HistoryOptions(ctypes.sizeof(HistoryOptions), True), Block()
        self._check(self._tide.tide_pinned_new(self._machine, None, ctypes.byref(pinned)))
        try:
            self._check(self._tide.tide_pinned_history(pinned, ctypes.byref(history)))
            self._check(self._tide.tide_pinned_alloc(pinned, ctypes.c_size_t(100000), ctypes.byref(block)))
            self._check(self._tide.tide_pinned_release_address(pinned, ctypes.c_void_p(block.address)))
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "snapshot.pickle")
                self._check(self._tide.tide_device_pinned_snapshot_to(self._address, pinned, path.encode()))
                with open(path, "rb") as file:
                    return pickle.load(file)
        finally:
            self._tide.tide_pinned_free(pinned, None)

    @property
    def address(self):
        return self._address.value

    def set_limit(self, size):
        self._check(self._tide.tide_device_set_limit(self._address, ctypes.c_uint64(size)))

    def release(self, address):
        self._check(self._tide.tide_device_release_address(self._address, ctypes.c_void_p(address)))

    def close(self):
        self.is_closed = True
        self._tide.tide_device_free(self._address)
        self._tide.tide_machine_free(self._machine)

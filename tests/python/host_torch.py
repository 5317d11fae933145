# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A module `torch` and a shim whose devices are host machines: as much of PyTorch as regions and what is built on them call.

A tensor is a range of bytes that this process can read and write, so that tests compare contents.
"""
import contextlib
import ctypes
import itertools
import math
import sys
import types
from unittest import mock

import host_cache
import tidemark.torch
from tidemark import TidemarkError
from tidemark.device import Backup, QuotaOptions, ScopeKind
from tidemark.torch import regions

DEVICES = 2
INSTALLATION = tidemark.torch.Installation("tide", "policy:tide", "class", None, False)


class Dtype:
    def __init__(self, size):
        self.size = size


class Tensor:
    """A contiguous tensor. `owner` keeps its memory."""

    def __init__(self, address, shape, dtype, owner, device):
        self.address, self.shape, self.dtype, self.owner, self.device = address, tuple(shape), dtype, owner, device
        self.is_cuda = device != "cpu"

    def data_ptr(self):
        return self.address

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.size

    def element_size(self):
        return self.dtype.size

    def is_contiguous(self):
        return True

    def view(self, other):
        """With another type, or another shape."""
        if isinstance(other, Dtype):
            row = self.shape[-1] * self.dtype.size
            assert row % other.size == 0, "the last dimension cannot be divided"
            return Tensor(self.address, (*self.shape[:-1], row // other.size), other, self.owner, self.device)
        assert math.prod(other) == math.prod(self.shape), "another number of elements"
        return Tensor(self.address, other, self.dtype, self.owner, self.device)

    def __getitem__(self, rows):
        begin, end, _ = rows.indices(self.shape[0])
        row = math.prod(self.shape[1:]) * self.dtype.size
        return Tensor(self.address + begin * row, (end - begin, *self.shape[1:]), self.dtype, self.owner, self.device)

    def clone(self):
        copy = ctypes.create_string_buffer(self.content(), self.nbytes)
        return Tensor(ctypes.addressof(copy), self.shape, self.dtype, copy, self.device)

    def fill(self, value):
        ctypes.memset(self.address, value, self.nbytes)

    def content(self):
        return ctypes.string_at(self.address, self.nbytes)

    def has(self, value):
        """Is every byte this one?"""
        return self.content() == bytes([value]) * self.nbytes


class Block:
    """Releases memory when no tensor has it any more."""

    def __init__(self, cache, address):
        self.cache, self.address = cache, address

    def __del__(self):
        if not self.cache.is_closed:
            self.cache.release(self.address)


class Shim:
    """The functions of the shim. A device gets its allocator when it is used for the first time."""

    def __init__(self):
        self.caches = {}
        self.wishes = []

    def tidemark_torch_device(self, index):
        return self.caches[index].address if index in self.caches else None

    def tidemark_torch_make_device(self, index, reason):
        try:
            return self.cache(index).address
        except (IndexError, TidemarkError) as error:
            reason._obj.value = str(error).encode()
            return None

    def cache(self, index):
        """The allocator of a device. If a wish fails, it is not made."""
        if index not in self.caches:
            if index >= DEVICES:
                raise IndexError(f"Invalid device argument {index}")
            with contextlib.ExitStack() as stack:
                made = host_cache.HostCache()
                stack.callback(made.close)
                for wish in self.wishes:
                    wish(made, index)
                stack.pop_all()
            self.caches[index] = made
        return self.caches[index]

    def _wish(self, wish):
        """Calls a function for each device, and later for new ones. Returns the text of an error."""
        try:
            for index, cache in self.caches.items():
                wish(cache, index)
        except TidemarkError as error:
            return str(error).encode()
        self.wishes.append(wish)
        return None

    def tidemark_torch_tag_all(self, tag, backup):
        return self._wish(lambda cache, _index: cache.begin(
            cache.pool_new(tag.decode(), Backup(backup.value)), ScopeKind.ALL))

    def tidemark_torch_join(self, index, options):
        kept = QuotaOptions.from_buffer_copy(options._obj)
        kept.ledger, kept.name = options._obj.ledger, options._obj.name  # copies

        def wish(cache, made):
            if made == index:
                cache._call("tide_device_join", ctypes.byref(kept))

        return self._wish(wish)

    def tidemark_torch_machine(self):
        return None

    def close(self):
        for cache in self.caches.values():
            cache.close()


class Hook:
    """A hook that can be removed from its list."""

    def __init__(self, hooks, function, place, always=False):
        self.hooks, self.function, self.always = hooks, function, always
        hooks.insert(place, self)

    def remove(self):
        self.hooks.remove(self)


class Module:
    """Calls hooks around forward() as PyTorch does: in their order, and after an error those left that have `always_call`."""

    def __init__(self, forward):
        self.forward, self.before, self.after = forward, [], []

    def register_forward_pre_hook(self, function, *, prepend=False):
        return Hook(self.before, function, 0 if prepend else len(self.before))

    def register_forward_hook(self, function, *, always_call=False):
        return Hook(self.after, function, len(self.after), always_call)

    def __call__(self, *given):
        left, result = list(self.after), None
        try:
            for hook in list(self.before):
                hook.function(self, given)
            result = self.forward(*given)
            while left:
                left.pop(0).function(self, given, result)
        finally:
            for hook in left:
                if hook.always:
                    hook.function(self, given, result)
        return result


class CUDAGraph:
    has_ended = False

    def pool(self):
        if not self.has_ended:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self.label


class DeferredCudaCallError(Exception):
    """A call that waited for CUDA has raised."""


class HostTorch(types.ModuleType):
    """The module. make() is torch.full() for bytes."""

    def __init__(self, shim):
        super().__init__("torch")
        self.shim = shim
        self.uint8, self.float32 = Dtype(1), Dtype(4)
        self.current = 0
        self.fractions = {}
        self._labels = itertools.count(1)
        self._queued, self._is_initialized, self._is_initializing = [], False, False
        self.version = types.SimpleNamespace(cuda="13.0")
        self.cuda = types.SimpleNamespace(
            init=self._init, is_initialized=lambda: self._is_initialized, _lazy_call=self._lazy_call,
            memory_stats=lambda device: {}, memory=types.SimpleNamespace(_snapshot=self._snapshot),
            get_device_properties=lambda index: types.SimpleNamespace(uuid=f"0000-{index}"),
            device_count=lambda: DEVICES, current_device=lambda: self.current, CUDAGraph=CUDAGraph,
            _utils=types.SimpleNamespace(_get_device_index=self._index), graph=self._graph,
            current_stream=lambda index: types.SimpleNamespace(cuda_stream=0), mem_get_info=lambda index: (1 << 30, 4 << 30),
            set_per_process_memory_fraction=lambda fraction, index: self.fractions.update({index: fraction}))

    def _lazy_call(self, function):
        self._queued.append(function)

    def _init(self):
        """Makes the calls that wait for it, which may call it; after an error it begins again next time."""
        if self._is_initialized or self._is_initializing:
            return
        self._is_initializing = True
        try:
            for function in self._queued:
                try:
                    function()
                except Exception as error:
                    raise DeferredCudaCallError(f"CUDA call failed lazily at initialization with error: {error}") from error
            self._is_initialized = True
        finally:
            self._is_initializing = False

    def _index(self, device, optional=False):
        assert optional or device is not None
        return self.current if device is None else device

    def _snapshot(self):
        """PyTorch's own snapshot, which knows no tags."""
        whole = {"segments": [], "device_traces": [[] for _ in range(DEVICES)], "allocator_settings": {}}
        for index, cache in sorted(self.shim.caches.items()):
            for segment in cache.snapshot()["segments"]:
                foreign = ("tag", "is_parked")
                whole["segments"].append({**{key: segment[key] for key in segment if key not in foreign}, "device": index})
        return whole

    def _graph(self, graph, pool=None, stream=None, capture_error_mode="global"):
        assert pool is None and stream is None and capture_error_mode in ("global", "thread_local")
        graph.label = (0, next(self._labels))
        cache = self.shim.caches[self.current]

        class Capture:
            def __enter__(self):
                self.pool = cache.begin_capture(graph.label)

            def __exit__(self, kind, _error, _trace):
                cache.end(self.pool)
                graph.has_ended = kind is None

        return Capture()

    def make(self, size, value, device=None):
        self._init()
        index = self._index(device, True)
        cache = self.shim.cache(index)
        address = cache.alloc(size, value)
        return Tensor(address, (size,), self.uint8, Block(cache, address), index)

    def get_default_dtype(self):
        return self.float32

    def empty(self, size, dtype):
        return Tensor(0, (size,), dtype, None, "cpu")

    def device(self, kind, index):
        assert kind == "cuda"
        return index

    def as_tensor(self, memory, device):
        given = memory.__cuda_array_interface__
        address = given["data"][0]
        assert (given["typestr"], given["version"], given["data"][1]) == ("|u1", 3, False)
        ctypes.string_at(address, 1)  # PyTorch asks the driver about this address
        return Tensor(address, given["shape"], self.uint8, memory, device)

    def frombuffer(self, data, dtype):
        return Tensor(ctypes.addressof(data), (ctypes.sizeof(data) // dtype.size,), dtype, data, "cpu")


def put_in_place(test):
    """From now on, to the end of a test, Tidemark serves this PyTorch. Returns the module."""
    shim = Shim()
    torch = HostTorch(shim)
    test.addCleanup(shim.close)
    for patch in (mock.patch.dict(sys.modules, {"torch": torch}), mock.patch.object(tidemark.torch, "_shim", shim),
                  mock.patch.object(tidemark.torch, "_installed", INSTALLATION),
                  mock.patch.dict(regions._all, clear=True)):
        patch.start()
        test.addCleanup(patch.stop)
    return torch

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The fallback without a compiler: PyTorch's pluggable allocator interface, with all its hooks."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any

# Each setter of PyTorch's class, with the function that it gets.
HOOKS = {
    "set_init_fn": "tide_torch_init",
    "set_reset_fn": "tide_torch_reset",
    "set_memory_fraction_fn": "tide_torch_memory_fraction",
    "set_base_alloc_fn": "tide_torch_base_alloc",
    "set_record_stream_fn": "tide_torch_record_stream",
    "set_begin_allocate_to_pool": "tide_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "tide_torch_end_allocate_to_pool",
    "set_release_pool": "tide_torch_release_pool",
}

# What PyTorch 2.11 refuses with any pluggable allocator.
MISSING = (
    "torch.cuda.memory_stats() and what reads it (memory_allocated, memory_summary, ...)",
    "memory snapshots and history",
    "get_per_process_memory_fraction()",
    "torch.cuda.MemPool",
    'torch.compile(mode="reduce-overhead") (torch._inductor.config.triton.cudagraph_trees = False helps)',
    "torch.backends.cudnn.benchmark",
    "CUDA tensors between processes",
    "torch.OutOfMemoryError: out of memory raises a RuntimeError",
    "pinned memory, which PyTorch manages itself",
)


def install(torch: Any, path: pathlib.Path, settings: str) -> Any:
    """Installs the library at `path` as PyTorch's allocator; returns the object that must stay alive."""
    hooks = ctypes.CDLL(str(path))
    hooks.tide_torch_configure.restype = ctypes.c_char_p
    hooks.tide_torch_configure.argtypes = [ctypes.c_char_p]
    wrong = hooks.tide_torch_configure(settings.encode())
    if wrong is not None:
        raise ValueError(wrong.decode())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "tide_torch_alloc", "tide_torch_free")
    for setter, name in HOOKS.items():
        address = ctypes.cast(getattr(hooks, name), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    return allocator

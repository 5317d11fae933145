# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
#
# Finds out, by experiment, decisions of PyTorch 2.11's allocator that neither its headers nor recordings show. Needs a GPU:
#   python3 docs/torch-2.11.py
# Each question runs in a process of its own and prints one line or more. docs/torch-2.11.md has the results.
import gc
import os
import subprocess
import sys

import torch

MIB = 1 << 20


def settings():
    return torch.cuda.memory._snapshot()["allocator_settings"]


def set_settings(text):
    (getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch._C._cuda_cudaCachingAllocator_set_allocator_settings)(text)


def tensor(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def history():
    torch.cuda.memory._record_memory_history(max_entries=100000, context=None)


def actions(skip=0):
    return [(e["action"], e["size"] / MIB) for e in torch.cuda.memory._snapshot()["device_traces"][0][skip:]]


def reserved():
    return torch.cuda.memory_reserved() / MIB


def limit(mib):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(mib * MIB / total)


def text_of(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


TEXTS = [
    "max_split_size_mb:64", "max_split_size_mb=64", "max_split_size_mb,64", " max_split_size_mb : 64 ", "max_split_size_mb:20x",
    "max_split_size_mb:64.7", "max_split_size_mb:19", "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:-1",
    "max_split_size_mb:", "max_split_size_mb", "max_split_size_mb:99999999999999999", "", ",", "max_split_size_mb:64,", ",max_split_size_mb:64",
    "max_split_size_mb:64,,garbage_collection_threshold:0.5", "max_split_size_mb:64 garbage_collection_threshold:0.5",
    "max_split_size_mb:64:garbage_collection_threshold:0.5", "max_split_size_mb:64,max_split_size_mb:128",
    "MAX_SPLIT_SIZE_MB:64", "unknown:1", "max_split_size_mb:64,unknown:1", "garbage_collection_threshold:0.7",
    "garbage_collection_threshold:0", "garbage_collection_threshold:1", "garbage_collection_threshold:1.2", "garbage_collection_threshold:x",
    "garbage_collection_threshold:0.5x", "roundup_power2_divisions:8", "roundup_power2_divisions:1", "roundup_power2_divisions:0",
    "roundup_power2_divisions:3", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "roundup_power2_divisions:[256:1,512:2,1024:4]",
    "roundup_power2_divisions:[>:4]", "roundup_power2_divisions:[3:4]", "roundup_power2_divisions:[256:3]", "roundup_power2_divisions:[256:1",
    "roundup_power2_divisions:[256:4,64:2]", "roundup_power2_divisions:[131072:4]", "roundup_power2_divisions:[]",
    "expandable_segments:True", "expandable_segments:False", "expandable_segments:true", "expandable_segments:1",
    "release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc:no", "backend:native", "backend:cudaMallocAsync", "backend:other",
    "pinned_use_cuda_host_register:True", "pinned_num_register_threads:8", "pinned_num_register_threads:3", "pinned_num_register_threads:256",
    "pinned_use_background_threads:True", "pinned_reserve_segment_size_mb:64", "large_segment_size_mb:40", "large_segment_size_mb:10",
    "large_segment_size_mb:40,max_split_size_mb:30", "max_non_split_rounding_mb:40", "max_non_split_rounding_mb:10",
    "graph_capture_record_stream_reuse:True", "per_process_memory_fraction:0.5", "per_process_memory_fraction:1.5",
    "throw_on_cudamalloc_oom:True", "expandable_segments_reserve:0.5", "pinned_max_cached_size_mb:64", "pinned_free_catch_all:True",
]


def ask_parser():
    tensor(1)
    before = settings()
    for text in TEXTS:
        set_settings("")
        base = settings()
        try:
            set_settings(text)
            result = "accepted"
        except Exception as e:  # noqa: BLE001 - whatever torch raises is the answer
            result = text_of(e)
        now = settings()
        changed = {k: v for k, v in now.items() if v != base.get(k) and k != "PYTORCH_CUDA_ALLOC_CONF" and k != "PYTORCH_ALLOC_CONF"}
        print(f"parser | {text!r} | {result} | {changed}")
        for undo in ("expandable_segments:False", "release_lock_on_cudamalloc:False", "pinned_use_cuda_host_register:False",
                     "pinned_num_register_threads:1", "pinned_use_background_threads:False", "large_segment_size_mb:20",
                     "graph_capture_record_stream_reuse:False"):
            try:
                set_settings(undo)
            except Exception:  # noqa: BLE001
                pass
    print("parser | defaults |", before)


def ask_reset():
    tensor(1)
    set_settings("max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:4,expandable_segments:True")
    set_settings("expandable_segments:False")
    print("reset | after a second text without them |", settings())


def ask_scopes():
    a, b = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(a):
        x = tensor(30)
        with torch.cuda.use_mem_pool(b):
            y = tensor(31)
        z = tensor(32)
    where = {s["total_size"] // MIB: tuple(s["segment_pool_id"]) for s in torch.cuda.memory._snapshot()["segments"]}
    print(f"scopes | a is {a.id}, b is {b.id} | sizes to pools {where} | 31 was requested inside both")
    del x, y, z


def ask_fraction_one():
    for fraction in (1.0, 0.999):
        torch.cuda.empty_cache()
        set_settings("garbage_collection_threshold:0.0001")
        torch.cuda.set_per_process_memory_fraction(fraction)
        history()
        held = [tensor(40) for _ in range(4)]
        del held
        tensor(60)
        kinds = [a for a, _ in actions()]
        torch.cuda.memory._record_memory_history(enabled=None)
        print(f"fraction {fraction} | segment_free in the trace: {kinds.count('segment_free')} (collection needs a limit) | "
              f"get: {torch.cuda.get_per_process_memory_fraction()}")


def ask_fraction_zero():
    torch.cuda.set_per_process_memory_fraction(0.0)
    try:
        tensor(1)
        print("fraction 0 | a request succeeds")
    except torch.OutOfMemoryError as e:
        print("fraction 0 |", text_of(e))


def ask_release_in_capture():
    for in_capture in (False, True):
        set_settings("max_split_size_mb:64")
        limit(700)
        history()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        tensor(0.001)
        skip = len(actions())
        try:
            if in_capture:
                with torch.cuda.graph(graph, stream=stream):
                    held = [tensor(200), tensor(200), tensor(200)]
                    del held
                    big = tensor(350)
                    del big
            else:
                with torch.cuda.stream(stream):
                    held = [tensor(200), tensor(200), tensor(200)]
                    del held
                    big = tensor(350)
                    del big
            result = "succeeds"
        except Exception as e:  # noqa: BLE001
            result = text_of(e)
        seen = [(a, round(s)) for a, s in actions(skip) if a.startswith("segment") or a == "oom"]
        print(f"release_available, capturing {in_capture} | {result} | {seen}")
        torch.cuda.memory._record_memory_history(enabled=None)
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def ask_flush_in_capture():
    limit(700)
    history()
    held = [tensor(200), tensor(200), tensor(200)]
    del held
    skip = len(actions())
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin()
            big = tensor(350)
            del big
            graph.capture_end()
        result = "succeeds"
    except Exception as e:  # noqa: BLE001
        result = text_of(e)
    print(f"flush, capturing | {result} | {[(a, round(s)) for a, s in actions(skip) if a.startswith('segment') or a == 'oom']}")


def ask_collect_expandable():
    set_settings("expandable_segments:True,garbage_collection_threshold:0.2")
    limit(1000)
    history()
    held = [tensor(100) for _ in range(4)]
    del held
    try:
        big = tensor(500)
        result = "succeeds"
        del big
    except Exception as e:  # noqa: BLE001
        result = text_of(e)
    print(f"collection with expandable segments | {result} | {[(a, round(s)) for a, s in actions() if a.startswith('segment') or a == 'oom']}")
    set_settings("expandable_segments:False,garbage_collection_threshold:0.2")
    held = [tensor(60) for _ in range(2)]
    del held
    try:
        big = tensor(150)
        result = "succeeds"
        del big
    except Exception as e:  # noqa: BLE001
        result = text_of(e)
    print(f"collection with both kinds | {result} | {[(a, round(s)) for a, s in actions() if a.startswith('segment') or a == 'oom']}")


def ask_pool_flags():
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        x, y = tensor(2), tensor(3)
    sizes = sorted((s["total_size"] // MIB, len(s["blocks"])) for s in torch.cuda.memory._snapshot()["segments"])
    print(f"no_split | segments (MiB, blocks) {sizes}")
    del x, y
    limit(300)
    spare = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(spare):
        x = tensor(200)
        at = x.data_ptr()
        del x
    gc.collect()
    try:
        y = tensor(190)
        print(f"use_on_oom | served from the pool: {y.data_ptr() == at} | reserved {reserved():.0f} MiB")
    except Exception as e:  # noqa: BLE001
        print("use_on_oom |", text_of(e))


def ask_message():
    limit(100)
    held = tensor(30)
    try:
        tensor(200)
    except torch.OutOfMemoryError as e:
        print("message |", e)
    del held


def ask_huge():
    for n in (1 << 60, (1 << 60) - 1, 1 << 50):
        try:
            torch.cuda.caching_allocator_alloc(n)
        except Exception as e:  # noqa: BLE001
            print(f"huge {n} |", str(e)[:200])


def ask_pool_snapshot():
    history()
    pool = torch.cuda.MemPool()
    outside = tensor(30)
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(40)
    torch.cuda.memory.memory_snapshot(pool.id)
    print("MiB in the entry of a pool's snapshot:", [size for action, size in actions() if action == "snapshot"], len(outside), len(inside))


def ask_segment_stack():
    torch.cuda.memory._record_memory_history(max_entries=100000, context="all", stacks="python")
    keep = tensor(30), tensor(5), tensor(0.1)
    segments = torch.cuda.memory._snapshot()["segments"]
    print("MiB, blocks, has a stack:", [(g["total_size"] / MIB, len(g["blocks"]), len(g["frames"]) > 0) for g in segments], len(keep))


def ask_capture_reuse():
    set_settings("graph_capture_record_stream_reuse:True")
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(own):
        before = tensor(30)
    torch.cuda.synchronize()
    history()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(own):
        graph.capture_begin()
        inside, late = tensor(40), tensor(50)
        inside.fill_(1)
        other.wait_stream(own)
        with torch.cuda.stream(other):
            for t in (inside, before, late):
                t.fill_(2)
        for t in (inside, before, late):
            t.record_stream(other)
        del t, inside, before
        own.wait_stream(other)
        seen = len(actions())
        again = tensor(40)
        print("request after the join:", [a for a in actions(seen) if a[0] != "snapshot"], len(again))
        del late
        seen = len(actions())
        graph.capture_end()
        print("end of the capture:", [a for a in actions(seen) if a[0] != "snapshot"])
    seen = len(actions())
    after = tensor(1)
    print("next request:", [a for a in actions(seen) if a[0] != "snapshot"], len(after))


def ask_fraction_setting():
    keep = tensor(1)
    set_settings("per_process_memory_fraction:0.5")
    print("fraction after a text that names it:", torch.cuda.get_per_process_memory_fraction(), len(keep))


def ask_pool_order():
    history()
    pools = [torch.cuda.MemPool() for _ in range(4)]
    for i, pool in enumerate(pools):
        with torch.cuda.use_mem_pool(pool):
            del_me = tensor(30 + 2 * i)
        del del_me
    limit(300)
    for pool in pools:
        torch._C._cuda_releasePool(0, pool.id)
    seen = len(actions())
    torch.cuda.empty_cache()
    print("MiB freed, of pools 1 to 4 with 30 to 36:", [size for action, size in actions(seen) if action == "segment_free"])
    sys.stdout.flush()
    os._exit(0)


QUESTIONS = {k[4:]: v for k, v in list(globals().items()) if k.startswith("ask_")}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        QUESTIONS[sys.argv[1]]()
    else:
        print("torch", torch.__version__, torch.cuda.get_device_name())
        for name in QUESTIONS:
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
            print(done.stdout, end="")
            if done.returncode != 0:
                print(f"{name} | ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:] }")

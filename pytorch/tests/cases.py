# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What must hold on a GPU, each as one function. Run by test_gpu.py in processes of their own:

    python cases.py POLICY NAME ...     POLICY is tide, torch, or native (PyTorch's own allocator, to compare)

Prints for each case a line that it begins, and one of JSON with its answer.
"""
from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import budget_cases
import park_cases
from claims import Skip, check, equal, raises

MIB = 1 << 20


def fresh(torch):
    """Empties the cache and resets the peaks."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def limit(torch, more):
    """Limits reserved memory to the present amount and so many bytes more."""
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)


# ---------------------------------------------------------------------------------------------------
# Memory and statistics


def both_doors(torch):
    """PyTorch reaches the allocator in two ways, and both lead to Tidemark."""
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    equal(torch.accelerator.memory_allocated(), torch.cuda.memory_allocated(), "memory by the second door")
    equal(torch.accelerator.memory_reserved(), torch.cuda.memory_reserved(), "reserved by the second door")
    check(torch.cuda.memory_allocated() >= tensor.numel(), "the tensor is not counted")
    equal(torch.cuda.get_allocator_backend(), "tidemark")


def statistics(torch):
    """Counts follow the requests, and nothing that reads them raises."""
    fresh(torch)
    before = torch.cuda.memory_stats()
    tensor = torch.empty(1000, dtype=torch.uint8, device="cuda")
    during = torch.cuda.memory_stats()
    del tensor
    after = torch.cuda.memory_stats()
    for key, want in (("allocated_bytes", 1024), ("active_bytes", 1024), ("requested_bytes", 1000), ("allocation", 1)):
        equal(during[f"{key}.all.current"] - before[f"{key}.all.current"], want, key)
        equal(after[f"{key}.all.current"], before[f"{key}.all.current"], key + " after it")
    equal(len(before), 122, "the number of statistics")
    torch.cuda.reset_accumulated_memory_stats()
    equal(torch.cuda.memory_stats()["allocation.all.allocated"], 0)
    check("Allocated memory" in torch.cuda.memory_summary(), "there is no summary")
    equal(torch.empty(0, device="cuda").data_ptr(), 0, "the address of an empty tensor")


def raw_memory(torch):
    """Memory without tensors."""
    fresh(torch)
    before = torch.cuda.memory_allocated()
    address = torch.cuda.caching_allocator_alloc(5 * MIB)
    equal(torch.cuda.memory_allocated() - before, 5 * MIB)
    torch.cuda.caching_allocator_delete(address)
    equal(torch.cuda.memory_allocated(), before)
    with raises(RuntimeError, "invalid device pointer"):
        torch.cuda.caching_allocator_delete(address)


def contents(torch):
    """Random sizes, streams and lifetimes; every tensor keeps its contents."""
    generator = torch.Generator().manual_seed(3)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    live = []
    for step in range(1500):
        size = int(2 ** (torch.rand((), generator=generator) * 15 + 8))
        stream = streams[int(torch.randint(3, (), generator=generator))]
        with torch.cuda.stream(stream):
            live.append((torch.full((size,), step, dtype=torch.int32, device="cuda"), step, stream))
        if len(live) > 200:
            tensor, value, owner = live.pop(int(torch.randint(200, (), generator=generator)))
            with torch.cuda.stream(owner):
                check(bool((tensor == value).all()), f"tensor {value} was overwritten")
        if step % 500 == 499:
            torch.cuda.empty_cache()
    for tensor, value, owner in live:
        with torch.cuda.stream(owner):
            check(bool((tensor == value).all()), f"tensor {value} was overwritten")


def fraction(torch):
    total = torch.cuda.mem_get_info()[1]
    for value in (0.0, 0.5, 1.0):
        torch.cuda.set_per_process_memory_fraction(value)
        equal(torch.cuda.get_per_process_memory_fraction(), value)
    fresh(torch)
    torch.cuda.set_per_process_memory_fraction(0.5)
    with raises(torch.OutOfMemoryError):
        torch.empty(total // 2 + MIB, dtype=torch.uint8, device="cuda")
    del_me = torch.empty(int(total * 0.499) - torch.cuda.memory_reserved(), dtype=torch.uint8, device="cuda")
    del del_me
    torch.cuda.set_per_process_memory_fraction(1.0)
    fresh(torch)


def out_of_memory(torch):
    """Raises PyTorch's exception with our report, and everything works afterwards."""
    import tidemark.torch
    heard = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: heard.append(numbers))
    with raises(torch.OutOfMemoryError, "Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of "):
        torch.empty(800_000_000 * 2**30, dtype=torch.uint8, device="cuda")
    with raises(torch.OutOfMemoryError, "Tried to allocate more than 1EB memory"):
        torch.empty(2**60, dtype=torch.uint8, device="cuda")
    equal(len(heard), 1, "how often the observer was called")
    report = tidemark.torch.explain_oom()
    equal(report.requested, 800_000_000 * 2**30)
    check("Tried" in str(report) and report.device_total > 0, "the report is empty")
    fresh(torch)
    limit(torch, 200 * MIB)
    first = torch.empty(150 * MIB, dtype=torch.uint8, device="cuda")
    with raises(torch.OutOfMemoryError):
        torch.empty(150 * MIB, dtype=torch.uint8, device="cuda")
    del first
    second = torch.ones(150 * MIB, dtype=torch.uint8, device="cuda")
    equal(int(second[-1]), 1)
    del second
    torch.cuda.set_per_process_memory_fraction(1.0)


def holders(torch):
    """Out-of-memory errors name the Python lines that hold memory; a watch warns of a line that holds more and more."""
    import warnings
    import tidemark.torch
    kept = []

    def leak():
        kept.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda"))

    with tidemark.torch.watch(3) as watch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            leak()
            watch.step()
        with raises(torch.OutOfMemoryError, "in leak"):
            torch.empty(800_000_000 * 2**30, dtype=torch.uint8, device="cuda")
    equal([each.category for each in caught], [tidemark.torch.MemoryGrowthWarning], "the warnings")
    check("in leak: +3.00 MiB a step" in str(caught[0].message), str(caught[0].message))
    check(not torch._C._cuda_isHistoryEnabled(), "stacks are still recorded")
    with raises(torch.OutOfMemoryError) as error:
        torch.empty(800_000_000 * 2**30, dtype=torch.uint8, device="cuda")
    check("Largest holders" not in error[0], "a text without a history names holders")


def settings(torch):
    """Settings that change at run time reach the allocator."""
    import tidemark.torch
    if tidemark.torch.installation().policy != "torch":
        return  # the policy tide has no such settings
    torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4")
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(1025 * 1024, dtype=torch.uint8, device="cuda")
    equal(torch.cuda.memory_allocated() - before, 1280 * 1024, "the rounded size")
    del tensor
    torch.cuda.memory._set_allocator_settings("")
    with raises(Exception):
        torch.cuda.memory._set_allocator_settings("no_such_key:4")


# ---------------------------------------------------------------------------------------------------
# Streams and graphs


def record_stream(torch):
    """Memory that another stream uses is not handed out before its work is done, even through a view."""
    side = torch.cuda.Stream()
    for is_view in (False, True):
        fresh(torch)
        tensor = torch.ones(8 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        address = tensor.data_ptr()
        kept = torch.empty_like(tensor)
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            kept.copy_(tensor)
        (tensor[MIB:] if is_view else tensor).record_stream(side)
        del tensor
        other = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
        check(other.data_ptr() != address, "memory that is in use was handed out")
        torch.cuda.synchronize()
        check(bool((kept == 1).all()), "memory was overwritten")
        del other, kept
        torch.empty(1, device="cuda")
        again = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        check(address in [tensor.data_ptr() for tensor in again], "memory never came back")
        del again


def record_stream_frees_under_pressure(torch):
    """A loop that records all its memory on another stream runs under a small limit."""
    fresh(torch)
    limit(torch, 400 * MIB)
    side = torch.cuda.Stream()
    for _ in range(100):
        tensor = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
        tensor.record_stream(side)
        del tensor
    torch.cuda.set_per_process_memory_fraction(1.0)
    fresh(torch)


def external_streams(torch, count=10000, window=4):
    """Streams of another library: half of them are destroyed before their tensors are released."""
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")  # makes the context current
    fresh(torch)
    reserved = torch.cuda.memory_reserved()
    held = []

    def release(is_checked):
        tensor, value, stream = held.pop(0)
        if is_checked:
            torch.cuda.synchronize()
            check(bool((tensor == value).all()), f"a tensor of {tensor.numel()} bytes has other contents than {value}")
        del tensor
        if stream is not None:
            equal(driver.cuStreamDestroy_v2(stream), 0, "the result of cuStreamDestroy")

    for i in range(count):
        stream = ctypes.c_void_p()
        equal(driver.cuStreamCreate(ctypes.byref(stream), i % 2), 0, "the result of cuStreamCreate")
        with torch.cuda.stream(torch.cuda.ExternalStream(stream.value)):
            tensor = torch.full(((4 + i * 5 % 25) * MIB,), i % 251, dtype=torch.uint8, device="cuda")
            torch.zeros(1000, device="cuda")  # a small one, released at once
        if i // 2 % 2 == 0:
            equal(driver.cuStreamDestroy_v2(stream), 0, "the result of cuStreamDestroy")
            stream = None
        held.append((tensor, i % 251, stream))
        del tensor
        if len(held) == window:
            release(is_checked=i % 100 == 0)
        torch.full(((4 + i * 7 % 40) * MIB,), 1, dtype=torch.uint8, device="cuda")  # on the main stream
    while held:
        release(is_checked=True)
    torch.cuda.synchronize()
    if sys.argv[1] == "tide":
        check(torch.cuda.memory_reserved() - reserved < 2048 * MIB, "memory of streams that are gone stays unused")
    return torch.cuda.max_memory_reserved() // MIB


def waits(torch, blocks=8, size=32 * MIB):
    """Memory that goes from a busy stream to another is counted in stats(): a wait, or new memory instead."""
    import tidemark.torch
    fresh(torch)
    before = tidemark.torch.stats()["waits"]
    equal(sorted(before), ["avoided", "host_ns", "stream_wait_bytes", "stream_waits"], "the names")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.empty(MIB, dtype=torch.uint8, device="cuda")  # makes the stream known
    held = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(blocks)]
    torch.cuda._sleep(200_000_000)
    del held
    with torch.cuda.stream(side):
        tensor = torch.full((blocks * size,), 7, dtype=torch.uint8, device="cuda")
    side.synchronize()
    check(bool((tensor == 7).all()), "the contents are wrong")
    after = tidemark.torch.stats()["waits"]
    rose = {name: after[name] - before[name] for name in after}
    check(rose["stream_waits"] + rose["avoided"] > 0 or sys.argv[1] != "tide", f"nothing was counted: {rose}")
    equal(sys.argv[1] == "torch" and rose["stream_waits"] > 0, False, "a wait under policy torch")
    return rose


def views(torch, blocks=16, size=32 * MIB):
    """Holes of one size serve a request of another: with `tide` by a view, and its time is counted in stats()."""
    import tidemark.torch
    fresh(torch)
    before = tidemark.torch.stats()["views"]
    equal(sorted(before), ["hurries", "ns"], "the names")
    held = [torch.full((size,), i, dtype=torch.uint8, device="cuda") for i in range(blocks)]
    del held[::2]
    tensor = torch.full((blocks // 2 * size,), 99, dtype=torch.uint8, device="cuda")
    check(bool((tensor == 99).all()), "the contents are wrong")
    check(all(bool((each == 2 * i + 1).all()) for i, each in enumerate(held)), "the contents of others changed")
    after = tidemark.torch.stats()["views"]
    equal(after["ns"] > before["ns"], sys.argv[1] == "tide", "is time of views counted?")
    return after["ns"] - before["ns"]


def graphs(torch):
    """Two graphs in one pool repeat the results of eager code, and their memory is freed."""
    torch._C._cuda_clearCublasWorkspaces()  # PyTorch keeps one for each stream, even in the pool of a capture
    fresh(torch)
    before = torch.cuda.memory_reserved()
    weight = torch.randn(512, 512, device="cuda")
    source = torch.zeros(512, 512, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (source @ weight).relu()  # libraries allocate their memory outside of the capture
    torch.cuda.synchronize()
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        middle = (source @ weight).relu()
        result = middle * 2 + 1
    with torch.cuda.graph(second, pool=first.pool()):
        other = (middle @ weight).sum(dim=1)
    for seed in range(4):
        source.copy_(torch.randn(512, 512, generator=torch.Generator().manual_seed(seed)))
        first.replay()
        second.replay()
        want = (source @ weight).relu()
        torch.testing.assert_close(result, want * 2 + 1)
        torch.testing.assert_close(other, (want @ weight).sum(dim=1))
    del first, second, middle, result, other, source, weight, want
    torch._C._cuda_clearCublasWorkspaces()
    fresh(torch)
    kept = torch.cuda.memory_reserved() - before
    check(kept <= 8 * MIB, f"{kept} bytes of the graphs stayed")


def graph_trees(torch):
    """torch.compile(mode="reduce-overhead"), with its pools and checkpoints, forwards and backwards."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    for step in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        data = torch.randn(64, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        got = compiled(data)
        got.sum().backward()
        torch.testing.assert_close(got.detach(), model(data).detach(), rtol=1e-3, atol=1e-3)
        model.zero_grad(set_to_none=True)
        del got


def pools(torch):
    """torch.cuda.MemPool with its options."""
    fresh(torch)
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
    equal(pool.use_count(), 1)
    with torch.cuda.use_mem_pool(pool):
        equal(pool.use_count(), 2)
        inside = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    with torch.cuda.use_mem_pool(other):
        alone = [torch.empty(MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
    segments = pool.snapshot()
    equal({tuple(segment["segment_pool_id"]) for segment in segments}, {tuple(pool.id)}, "the pools")
    ranges = [(segment["address"], segment["address"] + segment["total_size"]) for segment in segments]
    check(any(low <= inside.data_ptr() < high for low, high in ranges), "the tensor is not in its pool")
    blocks = [block for segment in other.snapshot() for block in segment["blocks"]]
    equal([block["state"] for block in blocks], ["active_allocated"] * 2, "blocks of a pool without splits")
    del inside, alone
    del pool, other
    fresh(torch)
    equal([s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0)], [], "what is left")


# ---------------------------------------------------------------------------------------------------
# Snapshots and history


def history(torch):
    """Snapshots with entries, stacks, metadata and skipped actions."""
    import tidemark.torch
    torch.cuda.memory._record_memory_history("all", stacks="python")
    torch.cuda.memory._set_memory_metadata("a remark")
    tensor = torch.empty(7 * MIB + 100, dtype=torch.uint8, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        path = tidemark.torch.snapshot(os.path.join(folder, "snapshot.pickle"))
        data = pickle.loads(path.read_bytes())
        json.loads(tidemark.torch.snapshot(os.path.join(folder, "snapshot.json")).read_text())
        path = tidemark.torch.snapshot(os.path.join(folder, "pool.pickle"), torch.cuda.MemPool())
        equal(pickle.loads(path.read_bytes())["segments"], [], "the segments of an empty pool")
    entry = [e for e in data["device_traces"][0] if e["action"] == "alloc"][-1]
    equal((entry["size"], entry["addr"], entry["user_metadata"]), (7 * MIB + 100, tensor.data_ptr(), "a remark"))
    check(any(frame["filename"].endswith("cases.py") for frame in entry["frames"]), "the stack is not ours")
    check(abs(entry["time_us"] / 1e6 - time.time()) < 60, "the time is not of today")
    blocks = [b for s in data["segments"] for b in s["blocks"] if b["address"] == tensor.data_ptr()]
    equal([b["state"] for b in blocks], ["active_allocated"])
    check(any(frame["name"] == "history" for frame in blocks[0]["frames"]), "the block has no stack")
    for segment in data["segments"]:
        equal(sum(b["size"] for b in segment["blocks"]), segment["total_size"], "the blocks of a segment")
    torch.cuda.memory._set_memory_metadata("")
    torch.cuda.memory._record_memory_history("all", skip_actions=["alloc"], clear_history=True)
    del tensor
    torch.empty(MIB, device="cuda")
    actions = {e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0]}
    check("alloc" not in actions and "free_completed" in actions, f"the actions are {actions}")
    with raises(RuntimeError, "Unknown TraceEntry action"):
        torch.cuda.memory._record_memory_history("all", skip_actions=["nothing"])
    torch.cuda.memory._record_memory_history(None)
    equal(torch.cuda.memory._snapshot()["device_traces"][0], [])


def profiler(torch):
    """The profiler sees allocations and releases."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.empty(MIB, dtype=torch.uint8, device="cuda")
    bytes_seen = [event.device_memory_usage for event in profile.events()]
    check(any(value >= MIB for value in bytes_seen), f"the profiler saw {bytes_seen}")


def cudnn_benchmark(torch):
    torch.backends.cudnn.benchmark = True
    data = torch.randn(4, 16, 64, 64, device="cuda")
    torch.nn.Conv2d(16, 32, 3).cuda()(data).sum().backward()
    torch.backends.cudnn.benchmark = False


def pinned(torch):
    """Copies from pinned memory that is freed at once are correct."""
    before = torch.cuda.host_memory_stats() if hasattr(torch.cuda, "host_memory_stats") else None
    kept = []
    for value in range(40):
        source = torch.full((4 * MIB,), value, dtype=torch.uint8).pin_memory()
        check(source.is_pinned(), "the memory is not pinned")
        kept.append(source.to("cuda", non_blocking=True))
        del source
    for value, tensor in enumerate(kept):
        check(bool((tensor == value).all()), f"copy {value} is wrong")
    if before is not None:
        after = torch.cuda.host_memory_stats()
        check(after["num_host_alloc"] - before.get("num_host_alloc", 0) < 40, "memory was pinned anew each time")


def threads(torch):
    """Eight threads with autograd on streams of their own compute the same as one."""
    def train(seed, out):
        with torch.cuda.stream(torch.cuda.Stream()):
            generator = torch.Generator("cuda").manual_seed(seed)
            weight = torch.randn(128, 128, device="cuda", generator=generator).requires_grad_()
            for _ in range(30):
                data = torch.randn(64, 128, device="cuda", generator=generator)
                (data @ weight).relu().sum().backward()
                weight.data -= 1e-4 * weight.grad
                weight.grad = None
            torch.cuda.current_stream().synchronize()
            out[seed] = weight.detach().cpu()

    alone, together = {}, {}
    for seed in range(8):
        train(seed, alone)
    workers = [threading.Thread(target=train, args=(seed, together)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in range(8):
        torch.testing.assert_close(together[seed], alone[seed])


# ---------------------------------------------------------------------------------------------------
# Processes


def expect_end(child):
    """Waits for a child that must exit successfully."""
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    equal((done, status), (child, 0), "the end of the child")


def fork(torch):
    """A forked child with live tensors and a pool gets PyTorch's own error, and ends."""
    kept = torch.ones(MIB, device="cuda")
    pinned_memory = torch.ones(MIB).pin_memory()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = kept + 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            status = 0 if "forked subprocess" in str(error) else 2
        del kept, pinned_memory, inside, pool
        sys.stdout.flush()
        os._exit(status) if status else sys.exit(0)
    expect_end(child)
    equal(float(inside.sum()), 2.0 * MIB)


def fork_before_use(torch):
    """A child that was forked before CUDA was used may use it."""
    child = os.fork()
    if child == 0:
        is_right = float(torch.ones(MIB, device="cuda").sum()) == MIB and torch.ones(MIB).pin_memory().is_pinned()
        os._exit(0 if is_right else 1)
    expect_end(child)
    equal(float(torch.ones(MIB, device="cuda").sum()), float(MIB))


def live_at_exit(torch):
    """Leaves tensors, graphs and recorded memory alive at the exit; test_gpu.py checks the status."""
    import builtins
    side = torch.cuda.Stream()
    builtins.kept = [torch.ones(MIB, device="cuda") for _ in range(50)]
    builtins.kept[0].record_stream(side)
    builtins.kept.append(torch.ones(MIB).pin_memory())


def ipc(torch):
    """Another process reads the memory and writes to it."""
    import torch.multiprocessing as multiprocessing
    tensor = torch.arange(MIB, dtype=torch.int32, device="cuda")
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=ipc_child, args=(sys.argv[1], queue, answers))
    child.start()
    queue.put(tensor)
    equal(answers.get(timeout=120), MIB * (MIB - 1) // 2, "the sum in the child")
    child.join(120)
    equal(child.exitcode, 0, "the end of the child")
    equal(int(tensor[3]), -7, "what the child wrote")


def ipc_child(policy, queue, answers):
    start(policy)
    tensor = queue.get(timeout=120)
    answers.put(int(tensor.sum()))
    tensor[3] = -7
    import torch
    torch.cuda.synchronize()
    del tensor


# ---------------------------------------------------------------------------------------------------
# Tensors between Tidemark and a process of PyTorch alone

def ipc_with_stock(torch):
    """A process without Tidemark opens our tensors and we open its tensors, plain and of virtual memory."""
    import torch.multiprocessing as multiprocessing
    let_others_trace()
    context = multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    gifts = ["plain", "expandable"] if sys.argv[1] == "torch" else ["tide"]
    child = context.Process(target=stock_child, args=(len(gifts), queue, answers))
    child.start()
    denied = [text for text in [give_to_stock(torch, gift, queue, answers) for gift in gifts] if text]
    denied += [text for text in [take_from_stock(torch, queue, answers) for _ in range(2)] if text]
    child.join(60)
    equal(child.exitcode, 0, "the end of the child")
    if denied:
        raise Skip(f"not all memory can be opened on this computer: {denied[0]}")


def let_others_trace():
    """A child may copy descriptors of its parent only if that permits it, where Yama restricts tracing."""
    import ctypes
    pr_set_ptracer = 0x59616d61
    ctypes.CDLL(None).prctl(pr_set_ptracer, ctypes.c_ulong(-1), 0, 0, 0)


def is_denial(text):
    return any(part in text for part in ("pidfd_getfd", "may not trace", "fabric handles"))


def give_to_stock(torch, gift, queue, answers):
    """Returns why the other process may not open the tensor, or None."""
    if gift == "expandable":
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    spare = torch.zeros(MIB, dtype=torch.int32, device="cuda")
    tensor = torch.arange(16 * MIB, dtype=torch.int32, device="cuda")[5 * MIB:6 * MIB]
    want = int(tensor.to(torch.int64).sum())  # before the other process writes to it
    queue.put(tensor)
    got = answers.get(timeout=60)
    if isinstance(got, str):
        check(is_denial(got), got)
        return got
    equal(got, want, "the sum in the other process")
    equal(answers.get(timeout=60), "written")
    equal(int(tensor[3]), -7, "what the other process wrote")
    equal(int(spare.sum()), 0, "a neighbour")
    return None


def take_from_stock(torch, queue, answers):
    """Returns why we may not open a tensor of the other process, or None."""
    try:
        size, value = answers.get(timeout=60)
        tensor = answers.get(timeout=60)
    except RuntimeError as error:
        check(is_denial(str(error)), str(error))
        queue.put("denied")
        return str(error)
    equal((tensor.numel(), int(tensor.min()), int(tensor.max())), (size, value, value), "the tensor")
    tensor[3] = -9
    torch.cuda.synchronize()
    del tensor
    queue.put("done")
    equal(answers.get(timeout=60), -9, "what the other process sees")
    return None


def stock_child(gifts, queue, answers):
    import torch
    equal(torch.cuda.get_allocator_backend(), "native", "the allocator of the other process")
    for _ in range(gifts):
        try:
            tensor = queue.get(timeout=60)
        except RuntimeError as error:
            answers.put(str(error))
            continue
        answers.put(int(tensor.to(torch.int64).sum()))
        tensor[3] = -7
        torch.cuda.synchronize()
        del tensor
        answers.put("written")
    for settings, size, value in (("False", MIB, 5), ("True", 16 * MIB, 6)):
        torch.cuda.memory._set_allocator_settings("expandable_segments:" + settings)
        kept = torch.full((size,), value, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        answers.put((size, value))
        answers.put(kept)
        if queue.get(timeout=60) == "done":
            answers.put(int(kept[3]))


# ---------------------------------------------------------------------------------------------------
# NCCL

@contextlib.contextmanager
def one_rank(torch):
    """A process group of NCCL with this process alone."""
    import torch.distributed as dist
    if not dist.is_nccl_available():
        raise Skip("this PyTorch has no NCCL")
    os.environ.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    device = torch.device("cuda", 0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=device)
        try:
            yield dist, dist.distributed_c10d._get_default_group()._get_backend(device)
        finally:
            dist.destroy_process_group()


def reduce_all(torch, dist, sizes):
    tensors = [torch.full((size,), 3.0, device="cuda") for size in sizes]
    for tensor in tensors:
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    for tensor in tensors:
        equal((float(tensor.min()), float(tensor.max())), (3.0, 3.0), "the sum over one rank")


def nccl_hook(torch):
    """NCCL registers all memory by trace trackers, and ends that before the memory goes."""
    os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
    before = torch.ones(8 * MIB, device="cuda")  # registered when the group is made
    with one_rank(torch) as (dist, _):
        dist.all_reduce(before)
        for sizes in ([MIB, 6 * MIB, 30 * MIB], [20 * MIB], [12 * MIB, MIB]):
            reduce_all(torch, dist, sizes)
            torch.cuda.empty_cache()
        faults = []
        threads = [threading.Thread(target=grow_and_empty, args=(torch, faults)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        equal(faults, [], "what the threads report")
        del before
        torch.cuda.empty_cache()
        reduce_all(torch, dist, [8 * MIB])


def grow_and_empty(torch, faults):
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(20):
                torch.ones((4 + i % 5 * 3) * MIB, device="cuda")
                torch.cuda.empty_cache()
    except Exception as error:  # it would be lost in the thread
        faults.append(str(error))


def nccl_pool(torch):
    """NCCL registers the memory of a pool, and deregisters it before the pool ends."""
    with one_rank(torch) as (dist, backend):
        for size in (4 * MIB, 10 * MIB):
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                tensor = torch.full((size,), 2.0, device="cuda")
            backend.register_mem_pool(pool)
            dist.all_reduce(tensor)
            equal(float(tensor.sum()), 2.0 * size, "the sum over one rank")
            backend.deregister_mem_pool(pool)
            del tensor, pool
            torch.cuda.empty_cache()
            reduce_all(torch, dist, [size])


def unmodified_script(torch):
    """python -m tidemark.torch runs an unmodified script."""
    script = "import sys, torch; torch.ones(3, device='cuda'); print(sys.argv[1:], torch.cuda.get_allocator_backend())"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        command = [sys.executable, "-m", "tidemark.torch", "--policy", sys.argv[1], "--stats", path, "-x", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    equal((done.returncode, done.stdout.strip()), (0, "['-x', '1'] tidemark"), done.stderr)
    check("MiB reserved" in done.stderr, "there are no statistics")


def losses(torch):
    """The losses of a small training, bit for bit: the same with every allocator."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 256), layer, torch.nn.Linear(256, 1000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)
    out = []
    for _ in range(20):
        length = int(torch.randint(16, 200, (), generator=generator))
        tokens = torch.randint(1000, (8, length), generator=generator).cuda()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(float(loss).hex())
    return out


# Cases that leave nothing behind run in one process, the others alone.
TOGETHER = [both_doors, statistics, raw_memory, contents, fraction, out_of_memory, holders, settings, record_stream,
            record_stream_frees_under_pressure, waits, views, graphs, pools, history, profiler, cudnn_benchmark, pinned,
            threads]
ALONE = [graph_trees, external_streams, fork, fork_before_use, live_at_exit, ipc, ipc_with_stock, nccl_hook, nccl_pool,
         unmodified_script, losses]
CASES = {case.__name__: case for case in TOGETHER + ALONE + park_cases.TOGETHER + park_cases.ALONE + budget_cases.TOGETHER
         + budget_cases.ALONE}


def start(policy):
    """Installs the policy; "native" is PyTorch's own allocator."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if policy == "native":
        return
    import tidemark.torch
    tidemark.torch.install(policy, way="class")


def main():
    start(sys.argv[1])
    import torch
    for name in sys.argv[2:]:
        print("BEGIN " + name, flush=True)
        answer = {"case": name, "ok": True}
        try:
            answer["value"] = CASES[name](torch)
        except Skip as reason:
            answer["skip"] = str(reason)
        except Exception:  # whatever a case raises is its result
            answer.update(ok=False, text=traceback.format_exc())
        print("CASE " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What must hold on a GPU for parking and for tensors that grow: cases of cases.py. Only the policy `tide` parks."""
from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile

from claims import Skip, check, equal, raises

MIB = 1 << 20
GIB = 1 << 30


def needed_tide():
    """The package, if the policy parks."""
    import tidemark.torch
    found = tidemark.torch.installation()
    if found is None or found.policy != "tide":
        raise Skip("only the policy tide parks")
    return tidemark.torch


def _pattern(torch, count, seed):
    """Numbers that differ from place to place, and from seed to seed."""
    return torch.arange(count, dtype=torch.int32, device="cuda").mul_(-1640531527).add_(seed)


def park_contents(torch):
    """Contents come back at the same addresses, by all kinds of backup; without one the memory is usable."""
    tide = needed_tide()
    for number, kind in enumerate(("pinned", "pageable", "file", None)):
        tag = f"park/{kind}"
        with tide.region(tag, backup=kind):
            kept = [_pattern(torch, size, number) for size in (5, 3 * MIB, 40 * MIB, 77777)]
            del kept[1]
        wanted = [tensor.clone() for tensor in kept]
        places = [tensor.data_ptr() for tensor in kept]
        free = torch.cuda.mem_get_info()[0]
        with tempfile.TemporaryDirectory() as folder:
            done = tide.park(tag, folder=folder)
        check(torch.cuda.mem_get_info()[0] >= free + done.physical_bytes - 4 * MIB, f"{kind}: memory was not given back")
        equal(done.copied_bytes == 0, kind is None, "nothing is copied")
        check(done.copied_bytes <= sum(tensor.nbytes for tensor in kept) + 64 * 1024 * len(kept), "idle memory was copied")
        equal(tide.tags()[tag]["reserved_bytes"], 0, "reserved memory while parked")
        equal(tide.unpark(tag).lost, (), "what was lost")
        equal([tensor.data_ptr() for tensor in kept], places, "the addresses")
        if kind is None:
            for tensor, data in zip(kept, wanted):
                tensor.copy_(data)
        equal([torch.equal(tensor, data) for tensor, data in zip(kept, wanted)], [True] * 3, f"{kind}: the contents")


def park_streams(torch):
    """Work of other streams before parking and after unparking sees the right bytes, and nobody waits on the host.

    Streams that were announced wait by themselves; the others wait for the current one.
    """
    tide = needed_tide()
    streams = [torch.cuda.Stream() for _ in range(6)]
    announced, others = streams[:3], streams[3:]
    with tide.region("streams"):
        data = [torch.zeros(8 * MIB, dtype=torch.int32, device="cuda") for _ in streams]
    for stream, tensor in zip(announced, data):
        tensor.record_stream(stream)
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, tensor in zip(streams, data):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                tensor += 1
        tide.park("streams")
        tide.unpark("streams", keep_backup=True)
        for stream in others:
            stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    equal([bool((tensor == 20).all()) for tensor in data], [True] * 6, "the contents")
    tide.trim_backups("streams")
    equal(tide.tags()["streams"]["backup_bytes"], 0, "backups that are left")


def park_graph(torch):
    """A graph that was captured before parking replays bit for bit after it, with its weights and its memory parked."""
    tide = needed_tide()
    torch.manual_seed(0)
    with tide.region("weights"):
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, device="cuda") for _ in range(8)])
    given = torch.randn(64, 1024, device="cuda")
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(given)
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with tide.graph(captured, tag="graphs"):
            got = model(given)
        captured.replay()
        first = got.clone()
        check(bool(first.abs().sum() > 0), "the graph computes nothing")
        for weights, graphs in (("pinned", "pinned"), ("pageable", "file"), ("file", "pageable"), ("pinned", None)):
            tide.park("weights", backup=weights)
            tide.park("graphs", backup=graphs)
            torch.full((256 * MIB,), 77, dtype=torch.uint8, device="cuda")  # something else is in that memory
            torch.cuda.empty_cache()
            tide.unpark()
            got.zero_()
            captured.replay()
            equal(torch.equal(got, first), True, f"the replay after {weights} and {graphs} is the same")


# Fills almost all memory of the device with a pattern, holds it until it is told to look, and then looks at every byte.
OTHER = """
import torch
GIB = 1 << 30
base = torch.arange(GIB // 4, dtype=torch.int32, device="cuda")
blocks = []
while torch.cuda.mem_get_info()[0] > 6 * GIB:
    blocks.append(torch.add(base, len(blocks)))
torch.cuda.synchronize()
print("FILLED", len(blocks) * GIB, flush=True)
input()
print("RIGHT", all(bool((block - base == number).all()) for number, block in enumerate(blocks)), flush=True)
"""


def host_bytes():
    """Host memory that is available."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def spoken(process, word):
    """What a process prints after a word."""
    lines = []
    for line in process.stdout:
        if line.startswith(word + " "):
            return line.split()[1]
        lines.append(line)
    raise AssertionError(f"the other process printed no {word}: {''.join(lines)[-2000:]}")


def park_other_process(torch):
    """While a tag is parked, another process takes and fills that memory. Until it ends, unparking fails and changes nothing."""
    from tidemark import TidemarkError
    tide = needed_tide()
    size = min(40 * GIB, torch.cuda.mem_get_info()[0] // 2, int(host_bytes() * 0.4))
    with tide.region("other"):
        data = torch.empty(size // (256 * MIB) * 64 * MIB, dtype=torch.int32, device="cuda")
    parts = data.split(64 * MIB)
    base = _pattern(torch, 64 * MIB, 0)
    for number, part in enumerate(parts):
        torch.add(base, number, out=part)
    free = torch.cuda.mem_get_info()[0]
    tide.park("other")
    environment = dict(os.environ, TIDEMARK_TORCH="off")
    with subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment) as other:
        try:
            filled = int(spoken(other, "FILLED"))
            check(filled > free, f"the other process has {filled} bytes, and {free} were free before parking")
            with raises(TidemarkError):
                tide.unpark("other", wait=True)
            equal(tide.tags()["other"]["parked_pool_count"], 1, "the number of parked pools")
            other.stdin.write("\n")
            other.stdin.flush()
            equal(spoken(other, "RIGHT"), "True", "what the other process sees")
        finally:
            other.stdin.close()
            other.wait(60)
    equal(tide.unpark("other").lost, (), "what was lost")
    for number, part in enumerate(parts):
        check(torch.equal(part, base + number), f"a wrong byte in part {number}")


class _Rounds:
    """Tensors of three tags on six streams, each with a pattern, and which tags are parked."""

    def __init__(self, torch, tide, seed):
        self.torch, self.tide = torch, tide
        self.choose = random.Random(seed)
        self.streams = [torch.cuda.Stream() for _ in range(6)]
        self.kinds = {"random/a": "pinned", "random/b": "pageable", "random/c": "file"}
        self.live = {tag: [] for tag in self.kinds}  # tensor, seed, stream
        self.parked = set()
        self.made = self.moves = 0

    def make(self, tag):
        """In a parked tag, this unparks it."""
        torch, stream = self.torch, self.choose.choice(self.streams)
        self.made += 1
        with torch.cuda.stream(stream), self.tide.region(tag, backup=self.kinds[tag]):
            tensor = _pattern(torch, int(2 ** self.choose.uniform(0, 24)), self.made)
        tensor.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(stream)
        self.live[tag].append((tensor, self.made, stream))
        self.parked.discard(tag)

    def change(self, tag):
        """Work that may still run when the tag is parked."""
        torch = self.torch
        place = self.choose.randrange(len(self.live[tag]))
        tensor, seed, stream = self.live[tag][place]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            tensor += 1000
        torch.cuda.current_stream().wait_stream(stream)
        self.live[tag][place] = (tensor, seed + 1000, stream)

    def drop(self, tag):
        tensor, seed, _ = self.live[tag].pop(self.choose.randrange(len(self.live[tag])))
        if tag not in self.parked:
            self.look(tag, tensor, seed)

    def look(self, tag, tensor, seed):
        check(self.torch.equal(tensor, _pattern(self.torch, tensor.numel(), seed)), f"a wrong byte in {tag}, tensor {seed}")

    def move(self, tag):
        if not self.live[tag]:
            return
        self.moves += 1
        if tag in self.parked:
            self.tide.unpark(tag, keep_backup=self.choose.random() < 0.5, wait=self.choose.random() < 0.2)
        else:
            self.tide.park(tag)
        self.parked ^= {tag}

    def step(self):
        for _ in range(8):
            tag, dice = self.choose.choice(list(self.kinds)), self.choose.random()
            if self.live[tag] and dice < 0.4:
                self.drop(tag)
            elif self.live[tag] and dice < 0.6 and tag not in self.parked:
                self.change(tag)
            elif tag not in self.parked or dice > 0.95:
                self.make(tag)
        self.move(self.choose.choice(list(self.kinds)))


def park_random(torch):
    """200 rounds of park, unpark, allocate and release on six streams, with work under way: no wrong byte."""
    tide = needed_tide()
    rounds = _Rounds(torch, tide, 7)
    for _ in range(200):
        rounds.step()
    tide.unpark()
    for tag, live in rounds.live.items():
        for tensor, seed, _ in live:
            rounds.look(tag, tensor, seed)
    check(rounds.moves > 100, f"only {rounds.moves} times a tag was parked or unparked")
    rounds.live.clear()
    tide.trim_backups()


def park_growable(torch):
    """A tensor grows and shrinks at its address; a graph over the first rows replays; its memory serves others after that."""
    tide = needed_tide()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    cache = tide.growable((4096, 1024, 256), torch.float32, rows=16)  # 1 MiB for each row
    address = cache.tensor.data_ptr()
    first = cache.tensor.fill_(1)
    captured, total = torch.cuda.CUDAGraph(), torch.zeros((), device="cuda")
    first.sum()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        total.copy_(first.sum())
    before = torch.cuda.memory_reserved()
    cache.resize(1024)[16:].fill_(2)
    equal(cache.tensor.data_ptr(), address, "the address")
    check(torch.cuda.memory_reserved() >= before + 1000 * MIB, "what is committed counts as reserved")
    captured.replay()
    equal(float(total), 16.0 * 1024 * 256, "the graph's sum after growth")
    equal((bool((cache.tensor[:16] == 1).all()), bool((cache.tensor[16:] == 2).all())), (True, True), "the contents")
    cache.resize(16)
    equal(cache.committed_bytes, 16 * MIB, "committed bytes")
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((held + MIB) / torch.cuda.mem_get_info()[1])
    try:
        other = torch.full((800 * MIB,), 3, dtype=torch.uint8, device="cuda")  # there is no other memory for it
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    equal(torch.cuda.memory_reserved(), held, "reserved memory")
    first.fill_(4)
    captured.replay()
    equal(float(total), 4 * 16.0 * 1024 * 256, "the graph's sum after shrinking")
    check(bool((other == 3).all()), "the tensor and the range share memory")


def park_memory_saver(torch):
    """The interface of torch_memory_saver."""
    needed_tide()
    from tidemark.torch.memory_saver import torch_memory_saver as saver
    saver.hook_mode = "preload"
    with saver.region(tag="a", enable_cpu_backup=True):
        kept = torch.arange(5 * MIB, device="cuda")
        with saver.disable():
            other = torch.ones(3, device="cuda")
    with saver.region(tag="a"):
        lost = torch.ones(5 * MIB, device="cuda")
    wanted = kept.cpu()
    saver.pause("a")
    equal(torch.equal(saver.get_cpu_backup(kept), wanted), True, "the backup is right")
    equal(saver.get_cpu_backup(lost), None, "the backup of what has none")
    equal(other.tolist(), [1, 1, 1], "a tensor outside")
    saver.retain_cpu_backup = True
    saver.resume("a")
    equal(torch.equal(kept.cpu(), wanted), True, "the tensor is right")
    equal(torch.equal(saver.get_cpu_backup(kept, zero_copy=True), wanted), True, "the retained backup is right")
    saver.retain_cpu_backup = False
    saver.pause()
    saver.resume()
    equal(saver.get_cpu_backup(kept), None, "the backup afterwards")
    equal(torch.equal(kept.cpu(), wanted), True, "the tensor is right")
    lost.zero_()


TOGETHER = [park_contents, park_streams, park_graph, park_random, park_growable, park_memory_saver]
ALONE = [park_other_process]

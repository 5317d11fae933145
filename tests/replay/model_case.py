# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Writes memory snapshots of programs that never ran: random requests under random settings, answered by an executable
model of PyTorch's policy.

usage: model_case.py MODEL SEED FIRST COUNT      cases FIRST to FIRST + COUNT - 1; MODEL is the file torch_model.py

A case is a line `case LIMIT ALLOCATIONS PEAK MADE GIVEN OOMS BYTES "SETTINGS"`, with the limit (0: none)
and the model's own figures, and then a snapshot as JSON, BYTES long. As in a snapshot of PyTorch, nothing tells when the
cache was emptied, or what was looked for when.
"""
import importlib.util
import json
import random
import sys

sys.dont_write_bytecode = True

MIB = 1 << 20
TOTAL = 150109880320  # of the device
STATES = {"a": "active_allocated", "p": "active_pending_free", "i": "inactive"}


def load_model(path):
    spec = importlib.util.spec_from_file_location("torch_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reserve_bytes(mapped, total):
    """A reserve is 9/8 of the device in whole handles: of 2 MiB for small requests, of 20 MiB for large ones."""
    handle = 2 * MIB if mapped % (20 * MIB) else 20 * MIB
    return -(-(total + total // 8) // handle) * handle


# --- settings ------------------------------------------------------------------------------------------------------

class Settings:
    """What the allocator is told, as text and as the model wants it."""

    def __init__(self, rng):
        self.limit = rng.choice([None, rng.randrange(40, 1500) * MIB, rng.randrange(40 * MIB, 1500 * MIB)])
        self.max_split = rng.choice([0, 0, 21, 32, 64, 100])
        self.threshold = rng.choice([0, 0, 0.3, 0.5, 0.8])
        self.is_expandable = rng.random() < 0.35
        one, several = rng.choice([2, 4, 8, 16]), [rng.choice([0, 1, 2, 4, 8]) for _ in range(16)]
        self.divisions = rng.choice([[0] * 16, [0] * 16, [one] * 16, several])

    def text(self):
        parts = []
        if self.max_split:
            parts.append(f"max_split_size_mb:{self.max_split}")
        if self.threshold:
            parts.append(f"garbage_collection_threshold:{self.threshold}")
        if self.is_expandable:
            parts.append("expandable_segments:True")
        if any(self.divisions):
            slots = ",".join(f"{1 << slot}:{division}" for slot, division in enumerate(self.divisions))
            parts.append(f"roundup_power2_divisions:[{slots}]")
        return ",".join(parts)

    def values(self):
        return {
            "max_split_size": self.max_split * MIB if self.max_split else -1,
            "garbage_collection_threshold": self.threshold,
            "expandable_segments": self.is_expandable,
            "roundup_power2_divisions": {str(1 << slot): division for slot, division in enumerate(self.divisions)},
        }

    def config(self, model):
        config = model.Cfg(self.values())
        config.limit = self.limit
        return config


# --- the model, with a machine that has addresses and a pen ----------------------------------------------------------

class Places:
    """Chooses where segments and reserves lie: anywhere, and gladly where something was before."""

    def __init__(self, rng):
        self.rng, self.taken, self.left = rng, {}, []

    def is_free(self, address, nbytes):
        return all(address + nbytes <= other or other + size <= address for other, size in self.taken.items())

    def choose(self, nbytes, alignment):
        known = [address for address in self.left if address % alignment == 0 and self.is_free(address, nbytes)]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        while True:
            address = self.rng.randrange(1 << 40, 1 << 46) // alignment * alignment
            if self.is_free(address, nbytes):
                return address

    def take(self, address, nbytes):
        self.taken[address] = nbytes

    def give(self, address):
        del self.taken[address]
        self.left.append(address)


def written_model(model):
    """The model's class with a written history instead of a recorded one."""

    class Written(model.Model):
        def __init__(self, config, rng):
            super().__init__(config)
            self.places, self.entries, self.waiting = Places(rng), [], []
            self.mapped = {}  # base of a reserve: its mapped bytes
            # Newer snapshots tell the pool of each request. Under max_split_size a request gives memory of its own pool
            # back, whose pool then cannot be told from the segments that are left.
            self.tells_pools = config.max_split < 1 << 60 or rng.random() < 0.5

        def write(self, action, address=0, nbytes=0, stream=0, pool=None):
            entry = {"action": action, "addr": address, "size": nbytes, "stream": stream, "time_us": len(self.entries)}
            if action == "oom":
                entry["device_free"] = entry.pop("addr")
            if pool is not None:
                entry["pool_id"] = (pool, 0)
            self.entries.append(entry)

        def expect(self, kind, stream, size, addr=None):
            if kind == "segment_alloc":
                addr = self.places.choose(size, 2 * MIB)
                self.places.take(addr, size)
            elif kind == "segment_free":
                self.places.give(addr)
            elif kind == "segment_map":
                self.reserve_grow(addr, size)
            else:
                self.reserve_shrink(addr, size)
            self.write(kind, addr, size, stream)
            return addr

        def reserve_of(self, addr):
            return next(base for base in self.mapped if base <= addr < base + self.places.taken[base])

        def reserve_grow(self, addr, size):
            is_new = self.rec != [] and addr == self.rec[0]["addr"] and addr not in self.mapped
            if is_new:
                self.mapped[addr] = 0
                self.places.take(addr, reserve_bytes(size, self.c.total))
            self.mapped[self.reserve_of(addr)] += size

        def reserve_shrink(self, addr, size):
            base = self.reserve_of(addr)
            self.mapped[base] -= size
            if self.mapped[base] == 0:
                del self.mapped[base]
                self.places.give(base)

        def complete(self, addr):
            self.write("free_completed", addr)
            self.waiting.remove(addr)
            self.free(addr)

        def sync(self):
            for addr in list(self.waiting):
                self.complete(addr)

        def request(self, nbytes, stream, pool):
            """One allocation; None when it fails. A refusal tells its pool: it has no address to tell it by."""
            base = self.places.choose(reserve_bytes(1, self.c.total) + 20 * MIB, 32 * MIB)
            self.rec, self.pos, self.cause = [{"action": "segment_map", "addr": base}], 0, []
            try:
                block = self.malloc(nbytes, stream, (pool, 0), capturing=pool != 0)
            except model.OOM as oom:
                self.write("oom", 0, oom.args[0], stream, pool)
                return None
            self.live[block.addr] = block
            self.write("alloc", block.addr, nbytes, stream, pool if self.tells_pools else None)
            return block.addr

    return Written


# --- a program -------------------------------------------------------------------------------------------------------

class Program:
    """Random steps; `held` are the addresses that the program has."""

    def __init__(self, model, rng):
        self.rng, self.settings = rng, Settings(rng)
        self.model = written_model(model)(self.settings.config(model), rng)
        self.stream_count = rng.choice([1, 1, 2, 3])
        self.pools = rng.choice([[], [], [1], [1, 2]])
        self.held = []
        self.waits = rng.choice([0, 0.1, 0.5])  # the share of releases that wait
        self.largest = rng.choice([3, 30, 120, 300]) * MIB
        self.keeps = rng.uniform(0.3, 0.6)  # the share of releases among the steps

    def size(self):
        rng = self.rng
        edges = [1, 512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 19 * MIB, 20 * MIB, 21 * MIB]
        if self.settings.max_split:
            edges += [(self.settings.max_split + more) * MIB + odd for more in (0, 19, 20, 21) for odd in (-512, 0, 1)]
        kind = rng.random()
        if kind < 0.25:
            return rng.choice(edges)
        if kind < 0.55:
            return rng.randrange(1, MIB + 2)
        return rng.randrange(1, self.largest) if kind < 0.8 else int(self.largest ** rng.random()) + 1

    def step_alloc(self):
        rng, model = self.rng, self.model
        pool = rng.choice(self.pools) if self.pools and rng.random() < 0.3 else 0
        for address in [address for address in model.waiting if rng.random() < 0.4]:
            model.complete(address)
        address = model.request(self.size(), rng.randrange(self.stream_count), pool)
        if address is not None:
            self.held.append(address)

    def step_release(self):
        if not self.held:
            return
        address = self.held.pop(self.rng.randrange(len(self.held)))
        self.model.write("free_requested", address)
        if self.rng.random() < self.waits:
            self.model.pending.add(address)
            self.model.waiting.append(address)
        else:
            self.model.write("free_completed", address)
            self.model.free(address)

    def step_poll(self):
        for address in [address for address in self.model.waiting if self.rng.random() < 0.5]:
            self.model.complete(address)

    def step_trim(self):
        self.model.release_cached()

    def step_clear(self):
        while self.held:
            self.step_release()

    def run(self, count):
        rare = [self.step_poll] * 10 + [self.step_trim] * 8 + [self.step_clear] * 2
        for _ in range(count):
            kind = self.rng.random()
            if kind < 0.04:
                self.rng.choice(rare)()
            elif kind < 0.04 + self.keeps:
                self.step_release()
            else:
                self.step_alloc()

    def segments(self):
        """What the model has, as in a snapshot."""
        model = self.model
        blocks = list(model.live.values())
        blocks += [block for pools in model.pools.values() for pool in pools for block in pool.walk()]
        for first in sorted((b for b in blocks if not b.prev or not b.prev.mapped), key=lambda b: b.addr):
            rows, block = [], first
            while block is not None and block.mapped:
                state = "i" if block.free else "p" if block.addr in model.pending else "a"
                rows.append({"address": block.addr, "size": block.size, "requested_size": block.req,
                             "state": STATES[state]})
                block = block.next
            yield {"device": 0, "address": first.addr, "total_size": sum(row["size"] for row in rows),
                   "stream": first.stream, "segment_type": "small" if first.pool.small else "large",
                   "segment_pool_id": (first.pool.pid[0], 0), "is_expandable": first.es is not None, "blocks": rows}

    def write(self, out):
        model, settings = self.model, self.settings
        snapshot = json.dumps({"segments": list(self.segments()), "device_traces": [model.entries],
                               "allocator_settings": settings.values()})
        actions = [entry["action"] for entry in model.entries]
        made = actions.count("segment_alloc") + actions.count("segment_map")
        given = actions.count("segment_free") + actions.count("segment_unmap")
        out.write(f"case {settings.limit or 0} {actions.count('alloc')} {model.peak} {made} {given} "
                  f"{actions.count('oom')} {len(snapshot)} \"{settings.text()}\"\n{snapshot}")


def main(path, seed, first, count):
    model = load_model(path)
    for index in range(int(first), int(first) + int(count)):
        rng = random.Random(f"{seed}/{index}")
        program = Program(model, rng)
        program.run(rng.choice([30, 100, 400]))
        program.write(sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

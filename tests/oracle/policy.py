# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""A second opinion on replays: the model of PyTorch's policy in checks/ of TIDEMARK_DATA, which predicts here.

The model checks a recording against its own policy. As a predictor it has no recording to follow: new memory gets
rising addresses, and a flush waits for every release that is pending.
"""
from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import harness
import snapshot as reference

MIB = 1 << 20


@dataclass
class Outcome:
    peak_reserved: int = 0
    retries: int = 0
    ooms: int = 0
    first_oom: int | None = None


class RisingAddresses:
    """Stands for the recording: there is always more memory, at a higher address than before."""

    def __init__(self) -> None:
        self.next = 1 << 40

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"action": "segment_map", "addr": self.next}

    def take(self, size: int) -> int:
        address, self.next = self.next, self.next + reference.round_up(size, 2 * MIB)
        return address


def load_model() -> Any:
    path = harness.more("checks", "torch_model.py")
    spec = importlib.util.spec_from_file_location("torch_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def predictor(module: Any, settings: dict[str, Any], limit: int | None) -> Any:
    class Predictor(module.Model):
        """The model without a recording."""

        def expect(self, kind: str, stream: int, size: int, addr: int | None = None) -> int:
            self.pos = 0
            if kind == "segment_alloc":
                return int(self.rec.take(size))
            if kind == "segment_map" and addr == self.rec.next:  # the first handle of a new range
                self.rec.take(self.c.total + self.c.total // 8 + 64 * MIB)
            return 0 if addr is None else addr

        def sync(self) -> None:
            for address in sorted(self.pending):
                self.free(address)

    config = module.Cfg(settings)
    config.limit = limit
    model = Predictor(config)
    model.rec = RisingAddresses()
    return model


def settings_of(conf: str) -> dict[str, Any]:
    """The settings as PyTorch would record them."""
    words = dict(word.split(":", 1) for word in conf.split(",") if word)
    divisions = int(words.get("roundup_power2_divisions", 0))
    split = int(words.get("max_split_size_mb", 0))
    return {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": split * MIB if split else -1,
            "garbage_collection_threshold": float(words.get("garbage_collection_threshold", 0)),
            "expandable_segments": words.get("expandable_segments") == "True",
            "roundup_power2_divisions": {str(1 << slot): divisions for slot in range(16)}}


def predict(entries: list[reference.Entry], conf: str, limit: int | None) -> Outcome:
    """What the requests of a recording without private pools would have needed."""
    module = load_model()
    model = predictor(module, settings_of(conf), limit)
    outcome = Outcome()
    where: dict[int, tuple[int, int]] = {}  # by recorded address: the address that serves the request, and its entry
    served: dict[int, int] = {}  # by address: the entry of the request that has it
    for at, entry in enumerate(entries):
        action, key = entry["action"], entry.get("addr", -1)
        if action in ("alloc", "oom"):
            model.cause = []
            where.pop(key, None)
            try:
                block = model.malloc(entry["size"], entry["stream"])
                model.live[block.addr] = block
                served[block.addr] = at
                where[key] = (block.addr, at)
            except module.OOM:
                outcome.ooms += 1
                outcome.first_oom = at if outcome.first_oom is None else outcome.first_oom
            outcome.retries += "flush" in model.cause
        elif action == "free_requested" and key in where:
            model.pending.add(where[key][0])
        elif action == "free_completed" and key in where:
            address, asked = where.pop(key)
            if address in model.live and served[address] == asked:  # else a flush completed it before
                model.free(address)
    outcome.peak_reserved = model.peak
    return outcome

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Recordings that try to break a page of `tidemark view`, and what every page must keep to.

Texts that would be markup or script, entries that contradict each other, damaged bytes. tests/tool/test_view.py reads the
pages of such recordings, and tests/page/test_hostile.py opens them in a browser.
"""
from __future__ import annotations

import base64
import hashlib
import os
import pickle
import random
import re
from collections.abc import Iterator
from typing import Any

import command
import generate
import view_page
from harness import check, equal


def bytes_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


HOSTILE = ("</script><img src=x onerror=alert(1)>", "<!--<script>", "]]>&lt;script&gt;\"'`", "a\u2028b\u2029c\u202ed",
           "\x00\x01\x1b[31m\x7f\x85", "\ud800", "&amp;<svg/onload=1>", "@FACTS@@PARTS@%s%n", "\\u003c/script\\u003e",
           "</SCRIPT >", "INVALID-UTF8!")


def shell_elements() -> list[str]:
    """The elements of the page without data."""
    text = bytes_of(os.path.join(command.SOURCE, "page", "shell.html")).decode()
    return [tag for tag, _ in view_page.Reader(text).elements]


def page_is_safe(page: view_page.Page, name: str) -> None:
    """It has the elements of the shell and its parts, and no others; the policy allows its own script and style alone."""
    parts = [tag for tag, attributes in page.reader.elements if "data-part" in attributes]
    equal([tag for tag, _ in page.reader.elements], shell_elements() + parts, f"{name}: elements")
    equal((page.reader.others, set(parts)), ([], {"script"}), f"{name}: comments and other markup")
    for (tag, attributes), text in zip(page.reader.elements, page.reader.texts):
        check(not any(key.startswith("on") for key in attributes), f"{name}: {tag} has a handler")
        if "data-part" in attributes:
            check(re.fullmatch("[A-Za-z0-9+/]*=*", "".join(text)) is not None, f"{name}: letters of {attributes}")
            check(re.fullmatch("[a-z0-9-]+", attributes["data-part"] or "") is not None, f"{name}: {attributes}")
    facts = page.data[page.data.index(b'id="facts">') :]
    facts = facts[: facts.index(b"</script>")]
    check(not re.search(rb"[<>&\x00-\x09\x0b-\x1f\x7f]", facts[len(b'id="facts">'):]), f"{name}: facts that could be markup")
    check("\u2028" not in facts.decode() and "\u202e" not in facts.decode(), f"{name}: facts with separators")
    policy_is_strict(page, name)


def hash_of(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def policy_is_strict(page: view_page.Page, name: str) -> None:
    """It allows the page's own script and style by their hashes, workers from blobs, and nothing else; no network at all."""
    rows = list(zip(page.reader.elements, page.reader.texts))
    policies = [at for at, ((_, attributes), _) in enumerate(rows) if "http-equiv" in attributes]
    equal(len(policies), 1, f"{name}: policies")
    before = [tag for (tag, _), _ in rows[: policies[0]] if tag in ("script", "style", "link")]
    equal(before, [], f"{name}: what precedes the policy")
    words = [part.split() for part in (rows[policies[0]][0][1]["content"] or "").split(";")]
    scripts = ["".join(text) for (tag, attributes), text in rows if tag == "script" and not attributes]
    styles = ["".join(text) for (tag, _), text in rows if tag == "style"]
    equal((len(scripts), len(styles)), (1, 1), f"{name}: scripts and styles")
    for (tag, attributes), _ in rows:
        is_known = attributes.get("type") in (None, "text/plain", "application/json")
        check(tag != "script" or is_known, f"{name}: script of {attributes}")
    equal({word[0]: word[1:] for word in words},
          {"default-src": ["'none'"], "script-src": [hash_of(scripts[0])], "style-src": [hash_of(styles[0])],
           "worker-src": ["blob:"], "base-uri": ["'none'"], "form-action": ["'none'"]}, f"{name}: the policy")
    equal(len(words), 6, f"{name}: the policy says each thing once")


def hostile(value: Any, text: str, key: str = "") -> Any:
    """Puts a text into every text field; what decides about the meaning of the file stays."""
    if isinstance(value, dict):
        return {name: hostile(item, text, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(hostile(item, text, key) for item in value)
    return value + text if isinstance(value, str) and key not in ("action", "stage", "state", "segment_type") else value


def hostile_recordings() -> Iterator[tuple[str, bytes]]:
    kind = generate.Kind(steps=150, has_stacks=True, is_refused=True, devices=2)
    for number, text in enumerate(HOSTILE):
        snapshot = generate.recording(random.Random(number), kind)
        entries = snapshot["device_traces"][0]
        for entry in entries:
            entry.update({"compile_context": "graph", "user_metadata": "step"})
        entries.insert(3, {"action": "user_defined", "size": 0, "addr": 0, "stream": 0, "time_us": entries[3]["time_us"],
                           "user_metadata": "remark"})
        snapshot["external_annotations"] = [
            {"name": "train_step", "stage": stage, "time_us": entries[at]["time_us"], "device": 0}
            for at, stage in ((2, "START"), (40, "END"), (50, "START"), (90, "END"))]
        snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"
        try:
            data = pickle.dumps(hostile(snapshot, text), 4)
        except UnicodeEncodeError:
            data = pickle.dumps(hostile(snapshot, HOSTILE[-1]), 4)
            data = data.replace(b"INVALID-UTF8!", b"\xed\xa0\x80-\xff\xc0\xaf<b>!!!")
        yield text, data.replace(b"INVALID-UTF8!", b"\xff\xfe\xc0\xaf\xf5<i>\xe2\x80\xf0//") if text == HOSTILE[-1] else data


def damaged(rng: random.Random, snapshot: command.Snapshot) -> command.Snapshot:
    """Changes entries so that they contradict each other."""
    sizes = (0, 1, 100, 511, 513, 1 << 20, (1 << 40) + 1, (1 << 57) - 1)
    for entries in snapshot["device_traces"]:
        for entry in entries:
            if rng.random() < 0.06:
                entry["size"] = rng.choice(sizes)
            if rng.random() < 0.06 and "addr" in entry:
                entry["addr"] = max(0, entry["addr"] + rng.choice((-4096, -100, 1, 512, 1 << 20, 1 << 62)))
            if rng.random() < 0.06 and "addr" in entry:
                entry["action"] = rng.choice(("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                              "segment_map", "segment_unmap", "snapshot", "nonsense"))
            if rng.random() < 0.03 and "time_us" in entry:
                entry["time_us"] = rng.choice((0, 1 << 62, -5, entry["time_us"] - 10**7))
        if rng.random() < 0.1:
            rng.shuffle(entries)
    return snapshot

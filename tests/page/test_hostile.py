#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Opens pages of hostile recordings in a headless Chromium: texts that would be markup, hostile addresses, damaged files.

A watcher that runs before the page counts violations of its content security policy. No page may run a script of a recording,
become other elements than its own, ask for anything, or print an error.
"""
import os
import pathlib
import pickle
import random
import sys
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("", "tool", "oracle"))]
sys.dont_write_bytecode = True
import chromium  # noqa: E402
import command  # noqa: E402
import generate  # noqa: E402
import harness  # noqa: E402
import hostile  # noqa: E402
import view_page  # noqa: E402
from harness import DATA, check, equal, slow, some  # noqa: E402

WATCHER = """
window.seen = {violations: [], errors: [], names: Object.getOwnPropertyNames(Object.prototype).join()};
document.addEventListener("securitypolicyviolation",
  (event) => seen.violations.push(event.violatedDirective + " " + event.blockedURI));
addEventListener("error", (event) => seen.errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => seen.errors.push(String(event.reason)));
for (const name of ["alert", "confirm", "prompt", "open"]) window[name] = () => (window.broken = name);
"""
# What the page is made of. Text of a recording that became markup would add others.
TAGS = ("html head meta title style body main script header nav section aside div span p h1 h2 h3 h4 b i em small button kbd "
        "select option input label dialog table thead tbody tr th td ul ol li code pre canvas details summary dl dt dd output "
        "textarea").split()
INVALID = "INVALID-UTF8!"
# Text, and what must be seen of it. Functions are called that, and files, annotations, settings and everything else.
TEXTS = (
    ("</script><img src=x onerror=\"window.broken=1\">", "<img src=x onerror="),
    ("<!--<script>window.broken=2;", "<!--<script>window.broken=2;"),
    ("]]><svg onload=window.broken=3>&lt;b&gt;", "]]><svg onload=window.broken=3>&lt;b&gt;"),
    ("a\u2028b\u2029c\u202ed\u2066e\ufeff", "d\u2066e"),
    ("\x00\x01\x1b[31m\x7f\x85!", "[31m"),
    ("javascript:window.broken=4", "javascript:window.broken=4"),
    ("\" onmouseover=\"window.broken=5\" style=\"position:fixed", "onmouseover"),
    (INVALID, "<i>"),
)


def watch(page):
    """Every document of this browser begins with the watcher."""
    if not getattr(page.driver, "is_watched", False):
        page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCHER})
        page.driver.is_watched = True


LOOK = """
const tags = new Set(arguments[0]);
const isBad = (attribute) => /^(on|src|href|action)/i.test(attribute.name);
const isOdd = (one) => !tags.has(one.localName) || Array.from(one.attributes).some(isBad);
return {broken: window.broken ?? null, violations: seen.violations, errors: seen.errors,
  isPolluted: seen.names !== Object.getOwnPropertyNames(Object.prototype).join(),
  odd: Array.from(document.querySelectorAll("*")).filter(isOdd).map((one) => one.cloneNode().outerHTML),
  asked: performance.getEntriesByType("resource").map((one) => one.name).filter((name) => !name.startsWith("blob:"))};
"""
NOTHING = {"broken": None, "violations": [], "errors": [], "isPolluted": False, "odd": [], "asked": []}


def nothing_happened(page, name):
    """No script of the recording ran, no element came from it, and the policy had nothing to refuse."""
    equal(page.run(LOOK, TAGS), NOTHING, f"{name}: what happened")
    page.check_console()


SHOWN = """
return document.getElementById("page").textContent +
  Array.from(document.querySelectorAll("[title]"), (one) => one.title).join("\\n");
"""


def visit(page, name):
    """Shows every panel, and chooses what can be chosen there. Returns all text that was seen, and tips."""
    texts = [page.run("return document.title")]
    for tab in page.attributes("[role=tab]", "data-tab"):
        page.tab(tab)
        page.settle(f"{name}, {tab}")
        texts.append(page.run(SHOWN))
        for selector in ("[data-list=holes] button", "[aria-label=Groups] .rows li", ".list .row:nth-child(3)"):
            page.run("document.querySelector(arguments[0])?.click()", f".panel {selector}")
        page.settle(f"{name}, {tab}")
        for canvas in page.all(".plot canvas[tabindex]"):
            page.hand().move_to_element(canvas).click().perform()
        page.settle(f"{name}, {tab}")
        texts.append(page.run(SHOWN))
    return texts


def hostile_snapshot(text, seed=1):
    """A recording with a text in every field that is one, each with the name of its key behind it."""
    kind = generate.Kind(steps=150, has_stacks=True, is_refused=True, devices=2)
    snapshot = generate.recording(random.Random(seed), kind)
    for entries in snapshot["device_traces"]:
        for entry in entries:
            entry.update({"compile_context": "", "user_metadata": "", "category": "", "unknown": ""})
        entries.insert(3, {"action": "user_defined", "size": 0, "addr": 0, "stream": 0, "time_us": entries[3]["time_us"],
                           "user_metadata": "", "frames": []})
    entries = snapshot["device_traces"][0]
    snapshot["external_annotations"] = [
        {"name": "", "stage": stage, "time_us": entries[at]["time_us"], "device": 0}
        for at, stage in ((2, "START"), (40, "END"), (50, "START"), (90, "END"))]
    snapshot["allocator_settings"].update({"PYTORCH_CUDA_ALLOC_CONF": "", "more": ""})
    snapshot["more"] = ""
    made = {}

    def changed(value, key):
        if isinstance(value, dict):
            return {name: changed(item, name) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(changed(item, key) for item in value)
        if not isinstance(value, str) or key in ("action", "stage", "state", "segment_type"):
            return value
        return made.setdefault((value, key), text if text in NAMES else f"{value.rsplit('/', 1)[-1]} {text} {key} ")

    return {**changed(snapshot, ""), text: text}


NAMES = ("__proto__", "constructor", "toString", "")


def opened(page, name, data, file="run.pickle"):
    folder = os.path.join(page.folder, name)
    os.makedirs(folder)
    path = os.path.join(folder, file)
    with open(path, "wb") as out:
        out.write(data)
    page.open(name, paths=[path])
    return path


def test_text_in_every_field_stays_text(page):
    watch(page)
    for number, (text, part) in some(enumerate(TEXTS), len(TEXTS)):
        data = pickle.dumps(hostile_snapshot(text), 4)
        if text == INVALID:
            data = data.replace(INVALID.encode(), b"\xff\xfe\xc0\xaf\xf5<i>\xed\xa0\x80!!")
        opened(page, f"text{number}", data, "<img src=x onerror='broken=6'>.pickle" if number == 0 else "run.pickle")
        texts = visit(page, repr(text))
        nothing_happened(page, repr(text))
        for key in ("name", "filename", "user_metadata"):
            check(any(f" {key} " in seen and part in seen for seen in texts), f"no panel shows {part!r} of {key}")


def test_names_of_objects_are_only_names(page):
    watch(page)
    for number, text in some(enumerate(NAMES), len(NAMES)):
        opened(page, f"name{number}", pickle.dumps(hostile_snapshot(text), 4), text + ".pickle")
        texts = visit(page, repr(text))
        nothing_happened(page, repr(text))
        check(text in texts[-1], f"{text!r} is shown")


@slow
def test_a_name_of_a_megabyte_is_shown(page):
    watch(page)
    opened(page, "long", pickle.dumps(hostile_snapshot("<b>" + "long " * 200000), 4), "long" * 60 + ".pickle")
    visit(page, "a long name")
    nothing_happened(page, "a long name")


ADDRESSES = (
    "w=1e308~1.7e308", "w=-1e308~1e308", "w=NaN~5", "w=Infinity~Infinity", "w=0~0.0000001", "w=5~", "w=~", "w=1~2~3", "w=-9~-5",
    "y=-1e300~1e300", "y=1e200~1e201", "y=0~1e-9", "p=1e308~1e308~1e308", "p=-1~-1~-1", "p=0.5~0.5~0.5", "p=NaN~0~0",
    "p=1~99999999~0", "t=__proto__", "t=nothing", "t=", "t=<img src=x onerror=broken=1>", "x=__proto__", "x=step", "x=<b>",
    "by=__proto__", "by=constructor", "by=<img src=x onerror=broken=1>", "m=__proto__&t=flame",
    "m=<script>broken=1</script>&t=flame", "vs=__proto__&t=flame", "vs=9999999~9999999&t=flame", "vs={\"device\":1e9}&t=flame",
    "vs=at:1e308&t=flame", "vs=at:-0.5&t=flame", "vs=device:1e9&t=flame", "vs=device:-1&t=flame", "at=1e308&t=flame",
    "at=-5&t=flame", "at=0.5&t=flame", "q=<img src=x onerror=broken=1>&t=flame", "q=(((((&t=flame", "q=%00%ff&t=flame",
    "q=" + "a" * 20000 + "&t=flame", "d=99", "d=-1", "d=0.5", "d=1e308", "d=__proto__", "k=1,2,__proto__&t=entries",
    "k=<b>&t=entries", "k=99999&t=entries", "min=1e308&t=entries", "min=-1&t=entries",
    "site=<img src=x onerror=broken=1>&t=entries", "site=[[[&t=entries", "e=1e308&t=entries", "e=-7&t=entries",
    "e=0.5&t=entries", "all=1e308&t=flame", "__proto__=1", "constructor=1&__proto__[polluted]=1", "{\"w\":[0,1]}",
    "javascript:window.broken=1", "%", "%E0%A4%A", "=&=&=", "&" * 5000, "<script>window.broken=1</script>",
)


def is_sound(page, name):
    """The window is a part of the recording, and one known panel is chosen and shown."""
    page.settle(name)
    low, high, entries, chosen, shown = page.run("""const {from, to} = window.tidemark.window();
      return [from, to, window.tidemark.facts.entries, document.querySelectorAll("[role=tab][aria-selected=true]").length,
        document.querySelectorAll(".panel").length]""")
    check(0 <= low < high <= entries, f"{name}: the window is {low} to {high} of {entries}")
    equal((chosen, shown), (1, 1), f"{name}: panels that are chosen, and shown")
    nothing_happened(page, name)


def test_a_hostile_address_is_harmless(page):
    watch(page)
    page.open("expand")
    address = page.run("return location.href.split('#')[0]")
    for hash_ in some(ADDRESSES, 8):
        quoted = urllib.parse.quote(hash_, safe="=&~%,._[]{}\":")
        page.run("location.hash = ''; location.hash = arguments[0]", quoted)
        is_sound(page, f"when it is open, #{hash_[:80]}")
        page.run("for (const tab of document.querySelectorAll('[role=tab]')) tab.click()")
        is_sound(page, f"when all panels were shown, #{hash_[:80]}")
    for hash_ in some(ADDRESSES[::4], 8):
        page.go(address + "#" + urllib.parse.quote(hash_, safe="=&~%,._[]{}\":"))
        is_sound(page, f"#{hash_[:80]}")


def is_refused_or_opens(page, name, path):
    """The tool refuses a file with a sentence, or its page can be read and opened. Returns whether it is a page."""
    html = os.path.join(page.folder, name + ".html")
    done = harness.run("view", path, "-o", html)
    check(done.status in (0, 2), f"{name}: status {done.status}: {done.err}")
    equal(os.path.exists(html), done.status == 0, f"{name}: there is a page")
    if done.status == 2:
        check(done.err.startswith("tidemark") and len(done.err) > 30, f"{name}: it says {done.err!r}")
        return False
    with open(html, "rb") as file:
        read = view_page.Page(file.read())
    hostile.page_is_safe(read, name)
    for device in read.devices:
        device.series()
    page.open(name, paths=[path])
    visit(page, name)
    nothing_happened(page, name)
    return True


def mutated(rng, data):
    """Bytes are changed, and a range is doubled, dropped or cut off."""
    data = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 3, 10))):
        data[rng.randrange(len(data))] = rng.choice((0, 0x7f, 0x80, 0xff, rng.randrange(256)))
    at, length = rng.randrange(len(data)), rng.randrange(1, 200)
    how = rng.randrange(5)
    if how == 0:
        del data[at : at + length]
    elif how == 1:
        data[at:at] = data[at : at + length]
    elif how == 2:
        del data[max(100, at):]
    return bytes(data)


def test_damaged_files_are_refused_or_open(page):
    watch(page)
    rng, pages, wanted = random.Random(23), 0, 3 if harness.is_thorough() else 1
    names = [name for name in sorted(os.listdir(DATA)) if name.endswith((".tide", ".pickle"))
             and os.path.getsize(os.path.join(DATA, name)) < 60 << 10]
    for number in range(24):
        source = os.path.join(DATA, names[number % len(names)])
        path = os.path.join(page.folder, f"damaged{number}")
        if number % 3 != 0:  # most bytes of a .tide file are compressed, so a change there is mostly refused
            unpacked = path + (".pickle", ".json")[number % 2]
            source = unpacked if harness.run("convert", source, unpacked).status == 0 else source
        with open(source, "rb") as file, open(path, "wb") as out:
            out.write(mutated(rng, file.read()))
        pages += is_refused_or_opens(page, f"damaged{number}", path)
        if not harness.is_thorough() and pages >= wanted:
            break
    check(pages >= wanted, f"only {pages} damaged files made a page")


def test_contradictions_open(page):
    watch(page)
    for seed in some(range(5)):
        path = os.path.join(page.folder, f"odd{seed}.pickle")
        with open(path, "wb") as out:
            out.write(pickle.dumps(hostile.damaged(random.Random(seed), command.generated(seed)), 4))
        check(is_refused_or_opens(page, f"odd{seed}", path), f"seed {seed} makes a page")


if __name__ == "__main__":
    chromium.main()

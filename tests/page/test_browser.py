#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests the page of `tidemark view` in a headless Chromium, with a real mouse and keyboard.

Numbers on the page are compared with `--json` and with truth.py, which follows the recording without Tidemark. Anything
on the console of the browser that is an error, such as a violation of the content security policy, fails the test.
"""
import os
import pathlib
import pickle
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "tool")]
sys.dont_write_bytecode = True
import chromium  # noqa: E402
import harness  # noqa: E402
import serving  # noqa: E402
import truth  # noqa: E402
from chromium import PLOT_BOTTOM, PLOT_LEFT, SIZES, Keys, entries_of, recording, size_text  # noqa: E402
from harness import DATA, MORE, PROGRAM, SOURCE, Skip, check, equal, slow  # noqa: E402


def test_opens_with_the_finding_of_the_report(page):
    page.open("varlen_oom")
    report = page.report()
    said = page.text(".finding .said p")
    check(report["finding"].startswith(said.rstrip("…").rstrip(".")[:60]), f"the page says {said!r}")
    equal(page.text("[data-line]"), report["environment"], "the line to paste")
    equal(page.text("[data-peak=reserved]"), size_text(report["peak_reserved"]), "peak reserved")
    equal(page.text("[data-peak=allocated]"), size_text(report["peak_allocated_blocks"]), "peak allocated")
    check(not page.all("[data-badge=middle]"), "the recording begins at its start")
    page.click("[data-copy]")
    page.wait(lambda: page.text("[data-copy]") in ("Copied", "Copy"), "the button says that it copied")


@slow
def test_says_that_a_recording_begins_in_the_middle(page):
    whole = recording("resnet_stacks")
    entries_of(whole)
    late = truth.load(whole)
    late["device_traces"][0] = late["device_traces"][0][1000:]
    path = os.path.join(page.folder, "middle.pickle")
    with open(path, "wb") as file:
        pickle.dump(late, file)
    page.open("middle", paths=[path])
    equal(page.text("[data-badge=middle]"), "begins in the middle", "the badge")


def window(page):
    """The entries between which the address says that the page shows them."""
    low, high = page.state("w", "a window is chosen").split("~")
    return float(low), float(high)


@slow
def test_brush_chooses_the_window(page):
    page.open("varlen_oom", "#x=entry")
    canvas = page.canvas("Overview")
    width = page.width(canvas)
    page.mouse(canvas, (PLOT_LEFT + width * 0.25, 40), (PLOT_LEFT + width * 0.4, 60), (PLOT_LEFT + width * 0.5, 60))
    low, high = window(page)
    entries = page.report()["entries"]
    check(abs(low - 0.25 * entries) < 0.01 * entries, f"the window begins at {low}")
    check(abs(high - 0.5 * entries) < 0.01 * entries, f"the window ends at {high}")
    page.mouse(canvas, (PLOT_LEFT + width * 0.5, 40), (PLOT_LEFT + width * 0.6, 40), (PLOT_LEFT + width * 0.75, 40))
    page.wait(lambda: abs(window(page)[1] - 0.75 * entries) < 0.01 * entries, "its edge can be dragged")
    check(abs(window(page)[0] - low) < 0.01 * entries, "the other edge stays")
    page.mouse(canvas, (PLOT_LEFT + width * 0.5, 40), (PLOT_LEFT + width * 0.45, 40), (PLOT_LEFT + width * 0.4, 40))
    page.wait(lambda: abs(window(page)[0] - 0.15 * entries) < 0.01 * entries, "it can be moved")
    page.click("[data-all]")
    page.wait(lambda: "w" not in page.hash(), "a button shows everything")
    page.mouse(canvas, (PLOT_LEFT + width * 0.25, 40), (PLOT_LEFT + width * 0.5, 60))
    window(page)
    page.hand().double_click(canvas).perform()
    page.wait(lambda: "w" not in page.hash(), "a double click shows everything")


@slow
def test_wheel_and_keys_zoom_and_pan(page):
    page.open("varlen_oom", "#x=entry&t=where")
    canvas = page.canvas("Where")
    page.wheel(canvas, -600)
    low, high = window(page)
    middle = (low + high) / 2
    page.keys(canvas, Keys.ARROW_RIGHT)
    page.wait(lambda: sum(window(page)) / 2 > middle, "an arrow pans")
    page.keys(canvas, "+")
    page.wait(lambda: window(page)[1] - window(page)[0] < (high - low) * 0.8, "a key zooms in")
    page.keys(canvas, Keys.PAGE_UP)
    page.state("y", "a key zooms addresses")
    page.keys(canvas, Keys.HOME)
    page.wait(lambda: "w" not in page.hash() and "y" not in page.hash(), "a key shows everything")


def room(block):
    return (block.size + 511) // 512 * 512


def largest_hole(blocks, segments, instant):
    """The largest hole between two blocks of one segment: its addresses, the blocks, and the segment."""
    best = None
    for segment in segments:
        if not segment.is_there(instant):
            continue
        inside = sorted((b for b in blocks if segment.address <= b.address < segment.address + segment.size
                         and b.is_there(instant)), key=lambda b: b.address)
        for left, right in zip(inside, inside[1:]):
            low = left.address + room(left)
            if best is None or right.address - low > best[1] - best[0]:
                best = (low, right.address, left, right, segment)
    return best


def hole_truth(path):
    """A large hole of a recording: the entry after which it is there, what largest_hole() says, since and until when."""
    blocks, segments = truth.follow(entries_of(path))
    found = [(entry, largest_hole(blocks, segments, entry + 1)) for entry in range(600, 2700, 100)]
    entry, (low, high, left, right, segment) = max(found, key=lambda pair: pair[1][1] - pair[1][0])
    inside = [b for b in blocks if b.address < high and b.address + b.size > low]
    since = max([b.gone for b in inside if b.gone and b.gone <= entry + 1] + [segment.begin]) - 1
    after = [b.begin for b in inside if b.begin > entry + 1]
    return entry, low, high, left, right, since, min(after) - 1 if after else None


def test_a_click_on_a_hole_names_the_blocks_around_it(page):
    page.open("resnet_stacks", "#x=entry&t=where")
    entry, low, high, left, right, since, until = hole_truth(page.path)
    # The window makes an entry some pixels wide.
    page.run("location.hash = arguments[0]", f"#x=entry&t=where&w={entry - 20}~{entry + 20}")
    page.wait(lambda: page.run("return window.tidemark.window().from") == entry - 20, "the window moved")
    canvas = page.canvas("Where")
    page.mouse(canvas, (PLOT_LEFT + 20.5 / 40 * page.width(canvas), page.y_of(canvas, (low + high) / 2)))
    equal(page.text("[data-kind=hole]"), "Hole of " + size_text(high - low), "the hole")
    equal(page.text("[data-address]"), hex(low), "its address")
    equal(int(page.attribute("[data-since]", "data-since")), since, "since when it is free")
    equal(page.attribute("[data-until]", "data-until"), "" if until is None else str(until), "when it is used")
    list_ = "[data-list=neighbours] li"
    equal(page.attributes(list_, "data-block"), [hex(left.address), hex(right.address)], "the neighbours")
    for text, block in zip(page.texts(list_), (left, right)):
        check(text.endswith(size_text(room(block))), f"the size of {text!r}")
        names = [frame["name"] for frame in block.frames]
        check(any(name in text for name in names), f"{text!r} has no frame of {names}")
    page.keys(canvas, Keys.ESCAPE)
    page.wait(lambda: not page.all("[data-kind=hole]"), "Escape closes it")


def test_parked_memory_is_told(page):
    """The last entries of a recording that ends with a parked tag; the snapshot says which segment that is."""
    path = os.path.join(DATA, "tags", "turns.tide")
    pickled = os.path.join(page.folder, "turns.pickle")
    harness.run("convert", path, pickled).works()
    whole = truth.load(pickled)
    parked = next(segment for segment in whole["segments"] if segment.get("is_parked"))
    block = next(block for block in parked["blocks"] if block["state"] == "active_allocated")
    count = len(whole["device_traces"][0])
    page.open("turns", f"#x=entry&t=where&by=pool&w={count - 4}~{count}", paths=[path])
    page.wait(lambda: "parked" in page.text("aside.side") and parked["tag"] in page.text("aside.side"), "the colours say it")
    canvas = page.canvas("Where")
    x, y = PLOT_LEFT + 0.6 * page.width(canvas), page.y_of(canvas, block["address"] + block["size"] / 2)
    page.point(page.hand(), canvas, x, y).perform()
    page.wait(lambda: any("parked since" in tip for tip in page.texts(".tip")), "the tip says it")
    page.mouse(canvas, (x, y))
    equal(page.text("[data-kind=block]"), "Block of " + size_text(block["size"]), "the block")
    equal(page.text("[data-parked]"), "Parked", "the heading")
    equal(page.text("[data-address]"), hex(block["address"]), "its address")


@slow
def test_budgets_are_those_of_the_report(page):
    path = os.path.join(DATA, "tags", "budgets.tide")
    page.open("budgets", "#t=who&by=pool", paths=[path])
    rows = {row["tag"]: row for row in page.report()["tags"]}
    equal(page.attributes("[data-list=budgets] li", "data-tag"), [tag for tag, row in rows.items() if row["has_budget"]],
          "tags with a budget")
    for tag in ("cache", "model", "spare", "train"):
        limit, share = rows[tag]["limit"], rows[tag]["limit_share"]
        shares = [] if limit is None else [share]
        equal(page.text(f"[data-tag={tag}] .size"), "no limit" if limit is None else size_text(limit), tag)
        equal(page.texts(f"[data-tag={tag}] .share"), [f"{100 * each:.1f} %" for each in shares], tag)
        bars = page.attributes(f"[data-tag={tag}] .meter", "data-share")
        equal([float(share) for share in bars], shares, f"the bar of {tag}")
    page.click("[data-tag=train] button")
    page.wait(lambda: "2 requests" in page.text("aside.side"), "what was refused")
    for words in ("24.00 MiB, 91.7 % of it used at the peak", "12.00 MiB", "no, priority 0"):
        check(words in page.text("aside.side"), f"{words!r} is not in {page.text('aside.side')}")
    row = next(row for row in page.all("[aria-label=Groups] .rows li button") if row.text == "model/0")
    page.hand().click(row).perform()
    words = f"parked {rows['model/0']['parked_count']} times, {size_text(rows['model/0']['sent_bytes'])} copied away"
    page.wait(lambda: words in page.text("aside.side"), f"the group says {words!r}")
    page.run("const tide = window.tidemark; tide.state.set({tab: 'where', point: {entry: tide.facts.entries - 1, "
             "lane: 1, offset: 1}})")
    words = "20.00 MiB for model, 100.0 % of it used at the peak"
    page.wait(lambda: words in page.text("aside.side"), f"the block says {words!r}")
    page.open("turns", "#t=who&by=pool", paths=[os.path.join(DATA, "tags", "turns.tide")])
    equal(page.all("[data-list=budgets]"), [], "a list without rows")


def test_the_flame_graph_finds_frames(page):
    page.open("resnet_stacks", "#t=flame&m=used&at=1277")
    blocks, _ = truth.follow(entries_of(page.path))
    live = [b for b in blocks if b.begin <= 1278 and (b.end is None or b.end > 1278)]
    total = sum(room(b) for b in live)
    equal(int(float(page.attribute("[data-node-bytes]", "data-node-bytes"))), total, "bytes of all stacks")
    page.type("Search frames", "resnet.py:158")
    page.wait(lambda: page.attribute("[data-found]", "data-bytes"), "the search has a result")
    want = sum(room(b) for b in live
               if any(f["filename"].endswith("resnet.py") and f["line"] == 158 for f in b.frames))
    page.wait(lambda: int(float(page.attribute("[data-found]", "data-bytes"))) == want, f"it found {want} bytes")
    check(want > 0, "the recording has such a frame")
    equal(page.state("q", "the search is in the address"), "resnet.py%3A158", "it")


def test_who_adds_up_to_the_peak(page):
    page.open("resnet_stacks", "#t=who")
    report = page.report()
    total = page.attribute("[data-total]", "data-total")
    equal(int(float(total)), report["peak_allocated_blocks"], "the highest moment")
    sizes = [text.split("\n")[-1] for text in page.texts("[aria-label=Groups] .rows li .size")]
    bytes_ = sum(float(s.split()[0]) * SIZES[s.split()[1]] for s in sizes)
    check(abs(bytes_ - report["peak_allocated_blocks"]) < 0.01 * report["peak_allocated_blocks"], f"{sizes} add up to {bytes_}")


@slow
def test_the_x_axis_can_be_switched(page):
    page.open("varlen_oom")
    for value in ("entry", "step", "time"):
        page.click(f"[data-value='{value}']")
        page.wait(lambda: page.attribute(f"[data-value='{value}']", "aria-pressed") == "true", f"x is {value}")
        page.wait(lambda: page.hash().get("x") == value, "the address says so")
    page.open("resnet_stacks")
    check(page.attribute("[data-value=step]", "disabled") is not None, "there are no steps")


def test_a_link_shows_the_same_view(page):
    page.open("varlen_oom", "#x=entry&t=where")
    canvas = page.canvas("Where")
    width, height = page.width(canvas), canvas.rect["height"] - PLOT_BOTTOM
    page.mouse(canvas, (PLOT_LEFT + width * 0.6, height * 0.5))
    page.state("p", "a point is in the address")
    page.wait(lambda: page.text("[aria-label=Details]").startswith("✕"), "the point is described")
    seen = page.text("[aria-label=Details]").split("\n")[1]
    address = page.run("return location.href")
    page.go(address)
    page.wait(lambda: page.text("[aria-label=Details]").startswith("✕"), "the point is described again")
    equal(page.text("[aria-label=Details] h2"), seen, "the title")
    equal(page.run("return location.href"), address, "the address")


def test_out_of_memory_settings_are_those_of_the_report(page):
    page.open("varlen_oom", "#t=oom")
    report = page.report()
    table = "[data-table=settings] tbody tr"
    rows = dict(zip(page.attributes(table, "data-setting"), page.texts(table)))
    equal(len(rows), len(report["oom_settings"]), "the number of settings")
    for want in report["oom_settings"]:
        row = rows[want["settings"]]
        check(row.startswith(want["settings"] or "(defaults)"), f"{row!r} is about {want['settings']!r}")
        words = row[len(want["settings"] or "(defaults)"):].split()
        equal([word for word in words if word in ("yes", "no")],
              ["yes" if is_so else "no" for is_so in (want["is_served"], want["runs_through"])], f"the verdict {row!r}")
    best = list(rows)[0]
    check(next(want for want in report["oom_settings"] if want["settings"] == best)["runs_through"], "the first completes")
    request = report["oom_requests"][0]
    for name, key in (("reserved", "reserved"), ("request", "bytes"), ("largest", "place_largest"), ("free", "free")):
        equal(int(page.attribute(f"[data-figure={name}]", "data-bytes")), request[key], name)
    equal(len(page.all("[data-table=blockers] tbody tr")), len(report["oom_blockers"]), "the blocks in the way")


def test_steps_are_those_of_the_report(page):
    page.open("varlen_oom", "#t=steps")
    rows = page.report()["steps"]["rows"]
    shown = page.texts("[data-table=steps] tbody tr")
    equal(len(shown), len(rows), "the number of steps")
    for text, want in zip(shown, rows):
        check(size_text(want["peak_allocated"]) in text, f"{text!r} has the peak {want['peak_allocated']}")
    page.click("[data-table=steps] tbody tr:nth-child(3)")
    equal(window(page), (rows[2]["first_entry"], rows[2]["first_entry"] + rows[2]["entries"]), "the window")


def test_entries_can_be_filtered_and_found(page):
    page.open("resnet_stacks", "#t=entries&k=1")
    entries = entries_of(page.path)
    allocs = [i for i, entry in enumerate(entries) if entry["action"] == "alloc"]
    page.wait(lambda: page.text("[data-rows]") == f"{len(allocs):,} entries", f"{len(allocs)} entries are listed")
    first = [int(entry) for entry in page.attributes(".list .row", "data-entry")]
    equal(first[:10], allocs[:10], "the first rows")
    page.type("Jump to an entry or time", "1277", Keys.ENTER)
    want = min(i for i in allocs if i >= 1277)
    page.wait(lambda: page.all(f".list .row[data-entry='{want}']"), f"entry {want} is seen")


def test_files_are_compared(page):
    page.open("resnet_stacks", "#t=ranks", more=("graphs", "gnn_retry"))
    tiles = page.texts(".rank")
    equal(len(tiles), 3, "the number of tiles")
    peaks = [float(size) * SIZES[unit] for text in tiles for size, unit in re.findall(r"peak ([\d.]+) (\w+)", text)]
    equal(len(peaks), 3, "the number of peaks")
    equal(peaks, sorted(peaks, reverse=True), "the order of tiles")
    page.click(".rank")
    page.wait(lambda: "gnn_retry" in page.text("[data-pick=file]"), "the file is chosen")
    page.wait(lambda: page.run("return window.tidemark.isWhole"), "its data is read")
    equal(page.run("return window.tidemark.file.name.includes('gnn_retry')"), True, "the file of the largest peak")


@slow
def test_a_canvas_without_webgl_shows_the_same(page):
    page.open("resnet_stacks")
    address = page.run("return location.href.split('#')[0]")
    page.go(address + "?2d#t=where&x=entry")
    canvas = page.canvas("Where")
    page.mouse(canvas, (PLOT_LEFT + 600, 200))
    page.one("[aria-label=Details] h2")
    plain = colours_of_where(page)
    page.go(address + "?gl#t=where&x=entry")
    shares = colours_of_where(page)
    if not shares:
        raise Skip("the browser has no WebGL2")
    largest = sorted(plain, key=plain.get, reverse=True)[:3]
    for colour in largest:
        check(abs(plain[colour] - shares.get(colour, 0)) < 0.02,
              f"{plain[colour]:.3f} of the picture is {colour}, with WebGL2 {shares.get(colour, 0):.3f}")
    check(len(plain) > 3 and sum(plain[colour] for colour in largest) > 0.7, f"the picture has blocks and holes: {plain}")


def colours_of_where(page):
    """The share of each colour in the picture of addresses."""
    page.wait(lambda: page.run("return window.tidemark.link.waiting.size === 0 && !!window.tidemark.panels.get('where').grid"),
              "the picture is whole")
    return page.run("""
const view = window.tidemark.panels.get('where'); view.point = null; view.draw();
const gl = view.painter.gl; const [w, h] = [Math.floor(view.width), Math.floor(view.height)];
let data = new Uint8Array(4 * w * h);
if (gl) gl.readPixels(0, gl.drawingBufferHeight - h, w, h, gl.RGBA, gl.UNSIGNED_BYTE, data);
else data = view.surface.canvas.getContext('2d').getImageData(74, 0, w, h).data;
const paper = view.app.theme.names.card, counts = {};
for (let i = 0; i < data.length; i += 4) {
  const hex = '#' + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, '0')).join('');
  const key = data[i + 3] === 0 ? paper : hex; counts[key] = (counts[key] || 0) + 1 / (w * h); }
return counts;""")


@slow
def test_holes_can_be_reached_by_keyboard(page):
    page.open("varlen_oom", "#t=where")
    address = page.text("[data-list=holes] button")
    page.press("[data-list=holes] button", Keys.ENTER, "[data-kind=hole]")
    equal(page.text("[data-kind=hole]")[:8], "Hole of ", "what was chosen")
    equal(page.text("[data-address]"), address, "its address")
    request = page.report()["oom_requests"][0]
    equal(page.text("[data-kind=hole]"), "Hole of " + size_text(request["place_largest"]), "the largest hole of the report")


def test_keys_reach_everything(page):
    page.open("varlen_oom")
    body = page.one("body")
    for number, tab in enumerate(("oom", "where", "who", "flame", "whatif", "steps", "entries"), 1):
        page.keys(body, str(number))
        page.wait(lambda: page.attribute(f"[data-tab='{tab}']", "aria-selected") == "true", f"{number} is {tab}")
    was = page.run("return document.documentElement.dataset.theme")
    page.keys(body, "t")
    page.wait(lambda: page.run("return document.documentElement.dataset.theme") != was, "T switches the theme")
    page.keys(body, "?")
    page.wait(lambda: page.one("dialog").is_displayed(), "? shows the keys")


def test_every_small_recording_opens(page):
    folders = [DATA, os.path.join(MORE, "traces", "corners")]
    paths = [os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in sorted(os.listdir(folder))
             if name.endswith((".tide", ".pickle", ".pickle.xz", ".json", ".csv"))]
    opened = 0
    for path in harness.some(paths, 20):
        name = "small-" + os.path.basename(path)
        if harness.run("view", path, "-o", os.path.join(page.folder, name + ".html")).status != 0:
            continue
        page.open(name, paths=[path])
        for tab in page.attributes("[role=tab]", "data-tab"):
            page.tab(tab)
        page.settle(name)
        peak = page.run("return [window.tidemark.facts.peaks.allocated.bytes, "
                        "Math.max(...window.tidemark.overview.curves.allocated.most)]")
        equal(peak[1], peak[0], f"the peak of the curve of {name}")
        opened += 1
    check(opened >= (5 if harness.is_thorough() else 1), f"only {opened} recordings were opened")


@slow
def test_a_page_without_short_lives_says_so(page):
    path = recording("varlen_oom")
    page.open("varlen_oom", "#t=who&x=entry", options=("--page-size", f"{serving.least_size(PROGRAM, path) + 19}KiB"))
    for tab in ("where", "who", "flame"):
        page.tab(tab)
        page.wait(lambda: page.all(".panel [data-left-out]"), f"{tab} says what it lacks")
    report = page.report()
    most = page.run("return Math.max(...window.tidemark.overview.curves.reserved.most)")
    page.wait(lambda: page.run("return Math.max(...window.tidemark.overview.curves.allocated.most)")
              == report["peak_allocated_blocks"], "the curve of allocated memory has its peak")
    equal(most, report["peak_reserved"], "the peak of the curve of reserved memory")


# ---------------------------------------------------------------------------------------------------
# A page that is served


def brush(page, low, high):
    """Chooses a window by its shares of the recording, and waits until it has all blocks."""
    canvas = page.canvas("Overview")
    width = page.width(canvas)
    was = page.run("return window.tidemark.window().from")
    page.mouse(canvas, (PLOT_LEFT + width * low, 40), (PLOT_LEFT + width * (low + high) / 2, 60),
               (PLOT_LEFT + width * high, 60))
    page.wait(lambda: page.run("return window.tidemark.window().from") != was, "the window moved")
    page.wait(lambda: not page.all("[data-left-out]"), "nothing is left out in the window")
    page.settle("the window")
    return page.run("const w = window.tidemark.window(); return [w.from, w.to]")


def served_window_is_complete(page, blocks, low, high):
    """What the panels say about the window is what its blocks are; a position e shows the instant e + 1."""
    first, last = int(low) + 1, -int(-high // 1)
    curve = {at: sum(room(b) for b in blocks if b.begin <= at and (b.end is None or b.end > at))
             for at in range(first, last + 1)}
    page.tab("where")  # the mouse leaves the overview, so that the next panel shows the highest moment
    page.tab("who")
    page.wait(lambda: page.all("[data-total]") and int(float(page.attribute("[data-total]", "data-total")))
              == max(curve.values()), f"the highest moment has {max(curve.values())} bytes")
    page.tab("flame")
    page.click("[data-value='allocated']")
    want = sum(room(b) for b in blocks if first <= b.begin <= last)
    page.wait(lambda: page.all("[data-node-bytes]") and int(float(page.attribute("[data-node-bytes]", "data-node-bytes")))
              == want, f"{want} bytes were allocated in the window")
    page.tab("entries")
    page.click("[data-kind='1']")
    count = sum(1 for b in blocks if int(low) + 1 <= b.begin <= last)
    page.wait(lambda: page.text("[data-rows]") == f"{count:,} entries", f"{count} blocks begin in the window")
    page.click("[data-kind='1']")
    for tab in ("where", "who", "flame", "entries"):
        page.tab(tab)
        page.wait(lambda: not page.all("[data-left-out]"), f"{tab} lacks nothing")


def served_hole(blocks, entries):
    """The largest hole between two blocks: an entry, its addresses, since when it is free, and until when."""
    found = []
    for entry in entries:
        there = sorted((b for b in blocks if b.is_there(entry + 1)), key=lambda b: b.address)
        for left, right in zip(there, there[1:]):
            low = left.address + room(left)
            found.append((right.address - low, entry, low, right.address))
    _, entry, low, high = max(found)
    inside = [b for b in blocks if b.address < high and b.address + b.size > low]
    since = max([b.gone for b in inside if b.gone and b.gone <= entry + 1] + [1]) - 1
    after = [b.begin for b in inside if b.begin > entry + 1]
    return entry, low, high, since, min(after) - 1 if after else None


def test_a_served_page_completes_its_window(page):
    path = serving.save(os.path.join(page.folder, "served.pickle"), serving.short_lives(5, 20000))
    blocks, _ = truth.follow(entries_of(path))
    size = f"{serving.least_size(PROGRAM, path) + 20}KiB"
    with serving.Server(PROGRAM, path, "--page-size", size) as server:
        page.go(server.address + "#x=entry&t=who&w=1000~1200")
        left_out = page.run("return window.tidemark.facts.left_out")
        check(left_out and left_out["blocks"] > 1000, f"blocks are left out: {left_out}")
        page.wait(lambda: not page.all("[data-left-out]"), "the first window is complete")
        for part in harness.some(((0.70, 0.72), (0.30, 0.31)), 2):
            served_window_is_complete(page, blocks, *brush(page, *part))
        low, high = page.run("const w = window.tidemark.window(); return [w.from, w.to]")
        entry, hole_low, hole_high, since, until = served_hole(blocks, range(int(low) + 20, int(high) - 20))
        page.tab("where")
        base, unit = page.run("return [window.tidemark.lanes.base[0], window.tidemark.unit]")
        canvas = page.canvas("Where")
        height = canvas.rect["height"] - PLOT_BOTTOM
        page.run("window.tidemark.state.set({low: arguments[0], high: arguments[1]})",
                 (hole_low - 8 * unit) / unit - base, (hole_high + 8 * unit) / unit - base)
        page.mouse(canvas, (PLOT_LEFT + (entry + 0.5 - low) / (high - low) * page.width(canvas), height / 2))
        equal(page.text("[data-kind=hole]"), "Hole of " + size_text(hole_high - hole_low), "the hole")
        equal(int(page.attribute("[data-since]", "data-since")), since, "since when it is free")
        equal(page.attribute("[data-until]", "data-until"), "" if until is None else str(until), "when it is used")
        page.check_console()
        server.stop()
        page.run("location.hash = '#x=entry&t=who&w=18000~18200'")
        note = page.wait(lambda: next((n for n in page.all("[data-left-out]") if "not answer" in
                                       (n.get_attribute("title") or "")), None), "the page says that nobody answers")
        check(note.is_displayed(), "the note is seen")
        page.driver.get_log("browser")  # the browser reports the failed request


HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"><!-- \\u003c & ' \x01 <svg onload=alert(1)>"


def test_text_of_a_file_is_never_markup(page):
    frames = [{"name": HOSTILE, "filename": HOSTILE + ".py", "line": 1}]
    entries = []
    for i in range(40):
        for action, address, size in (("segment_alloc", 0x10000000 * (i + 1), 2 << 20), ("alloc", 0x10000000 * (i + 1), 4096)):
            entries.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1000 + len(entries),
                            "frames": frames, "user_metadata": HOSTILE, "compile_context": HOSTILE})
    notes = [{"name": HOSTILE, "stage": stage, "device": 0, "time_us": at} for stage, at in (("START", 1002), ("END", 1030))]
    whole = {"segments": [], "device_traces": [entries], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": HOSTILE},
             "external_annotations": notes}
    path = os.path.join(page.folder, "<img src=x onerror=alert(1)>.pickle")
    with open(path, "wb") as file:
        pickle.dump(whole, file)
    page.open("hostile", "#t=where&by=site", paths=[path])
    for name in page.attributes("[role=tab]", "data-tab"):
        page.tab(name)
        page.wait(lambda: page.attribute(f"[data-tab='{name}']", "aria-selected") == "true", f"{name} is shown")
    page.tab("flame")
    page.wait(lambda: "onerror" in page.text("[aria-label='Frame']") or page.text("[aria-label='Frame']"), "stacks are shown")
    equal(page.run("return document.querySelectorAll('img, svg').length"), 0, "the number of elements that text became")
    check("broken" not in page.run("return document.title"), "a script of the file ran")
    page.tab("entries")
    page.wait(lambda: any("onerror" in row for row in page.texts(".list .row")), "the text itself is shown")


CELLS = """
import sys, tidemark
with tidemark.read(sys.argv[1]) as recording, open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write('<!doctype html><html style="color-scheme: dark"><body><div>' + recording.view(height=800)._repr_html_() +
               '</div><div>' + recording._repr_html_() + '</div></body></html>')
"""


@slow
def test_a_notebook_shows_the_page(page):
    library, path = os.path.join(os.path.dirname(PROGRAM), "libtidemark.so"), recording("varlen_oom")
    if harness.SANITIZER or not os.path.exists(library):
        raise Skip("the library cannot be loaded into Python")
    notebook = os.path.join(page.folder, "notebook.html")
    harness.run("-c", CELLS, path, notebook, program=sys.executable,
                env={"TIDEMARK_LIB": library, "PYTHONPATH": os.path.join(SOURCE, "pytorch")}).works()
    page.path = path
    page.driver.get("file://" + notebook)
    check(page.run("return document.querySelector('img').naturalWidth") > 0, "the picture of the recording is not drawn")
    page.driver.switch_to.frame(page.one("iframe"))
    try:
        page.wait(lambda: page.run("return document.documentElement.dataset.ready") == "true", "the data is read in the frame")
        equal(page.run("return window.origin"), "null", "the origin of the frame")
        equal(page.run("return document.documentElement.dataset.theme"), "dark", "the theme, which is the notebook's")
        report = page.report()
        equal(page.text("[data-peak=reserved]"), size_text(report["peak_reserved"]), "peak reserved")
        page.tab("steps")
        page.wait(lambda: len(page.all("[data-table=steps] tbody tr")) == len(report["steps"]["rows"]), "all steps are shown")
        page.tab("where")
        page.wait(lambda: page.all("[data-list=holes] button"), "the worker lists holes")
        page.click("[data-list=holes] button")
        page.wait(lambda: page.run("return Boolean(window.tidemark.state.now.point)"), "the state of the view changes")
        equal(page.run("window.tidemark.state.writeHash(); return location.href"), "about:srcdoc", "the address in the frame")
    finally:
        page.driver.switch_to.default_content()


if __name__ == "__main__":
    chromium.main()

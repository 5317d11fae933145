// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parts of the page that need no browser: texts, axes, the address, the layout of the flame graph.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";
import {randomNumbers} from "./encoder.mjs";
import {countText, durationText, roundTicks, sizeText} from "../../page/units.js";
import {entryScale, stepScale, timeScale} from "../../page/scale.js";
import {Viewport} from "../../page/axis.js";
import {ViewState, formatHash, parseHash} from "../../page/state.js";
import {FlameLayout} from "../../page/view_flame.js";
import {findOutliers, tileColumns} from "../../page/view_ranks.js";
import {widestRoom} from "../../page/view_who.js";
import {PackedRanges} from "../../page/moment_bar.js";
import {inkOn} from "../../page/chart.js";
import {textHash, chooseColours, rampColours} from "../../page/groups.js";

test("sizes look as those of the command", () => {
  assert.equal(sizeText(0), "0 B");
  assert.equal(sizeText(1023), "1023 B");
  assert.equal(sizeText(2022400000), "1.88 GiB");
  assert.equal(sizeText(850190336), "810.80 MiB");
  assert.equal(sizeText(-1048576), "−1.00 MiB");
  assert.equal(countText(57404), "57,404");
  assert.equal(durationText(4305604), "4.306 s");
});

test("ticks are round and inside", () => {
  assert.deepEqual(roundTicks(0, 100, 5), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(roundTicks(3, 3, 5), []);
  assert.ok(roundTicks(-1e9, 1e9, 1e9).length <= 1000);
});

test("a scale gives a position back", () => {
  const random = randomNumbers(5);
  let time = 0;
  const times = Float64Array.from({length: 500}, () => (time += random(4) === 0 ? 0 : random(1000)));
  const rows = [{step: 1, first_entry: 20, entries: 100}, {step: 2, first_entry: 120, entries: 300}];
  for (const scale of [entryScale(500), timeScale(500, times, null), stepScale(500, rows)]) {
    for (let round = 0; round < 300; round++) {
      const x = scale.toX(random(5000) / 10);
      assert.ok(Math.abs(scale.toX(scale.toEntry(x)) - x) < 1e-6 * Math.max(1, x), `${scale.kind}: ${x}`);
    }
    for (let entry = 1; entry < 500; entry++) assert.ok(scale.toX(entry) >= scale.toX(entry - 1));
  }
  assert.equal(stepScale(500, rows).toX(120), 2);
  assert.equal(stepScale(500, rows).toX(270), 2.5);
});

test("a window stays within the recording", () => {
  const scale = entryScale(1000);
  const viewport = new Viewport(scale, 100, 300, 800);
  assert.equal(viewport.pixel(100), 0);
  assert.equal(viewport.position(800), 300);
  assert.deepEqual(viewport.panned(-8000), {from: 0, to: 200});
  assert.deepEqual(viewport.panned(80000), {from: 800, to: 1000});
  assert.deepEqual(viewport.zoomed(100, 400), {from: 0, to: 1000});
  const near = viewport.zoomed(0.5, 0);
  assert.deepEqual([near.from, near.to], [100, 200]);
  const least = viewport.zoomed(1e-9, 400);
  assert.ok(least.to - least.from >= 1 && least.from >= 0 && least.to <= 1000);
});

test("the address keeps the view", () => {
  const state = new ViewState("");
  const now = {...state.now, from: 12.5, to: 99, x: "time", tab: "flame", find: "a&b=c #ü", low: 1, high: 2,
    point: {entry: 5, lane: 2, offset: 7.25}, at: 17, base: "at:3", least: 1048576};
  assert.deepEqual({...state.now, ...parseHash(formatHash(now))}, now);
  assert.equal(formatHash(state.now), "");
  for (const bad of ["#w=5~1", "#w=a~b", "#%", "#q=%E0%A4%A", "#p=1~2", "#d=x", "#__proto__=1", "#unknown=1"])
    assert.deepEqual({...state.now, ...parseHash(bad)}, state.now, bad);
});

test("frames lie within the frame that called them", () => {
  const random = randomNumbers(9);
  const count = 400;
  const tree = {parent: new Int32Array(count), text: [], value: new Float64Array(count), base: new Float64Array(count)};
  tree.parent[0] = -1;
  for (let node = 1; node < count; node++) tree.parent[node] = random(node);
  for (let node = count - 1; node >= 0; node--) {
    tree.text[node] = "f" + node;
    tree.value[node] += random(100);
    tree.base[node] += random(100);
    if (node > 0) tree.value[tree.parent[node]] += tree.value[node];
    if (node > 0) tree.base[tree.parent[node]] += tree.base[node];
  }
  const layout = new FlameLayout(tree, 0);
  for (let node = 1; node < count; node++) {
    const parent = tree.parent[node];
    assert.ok(layout.x[node] >= layout.x[parent] - 1e-9);
    assert.ok(layout.x[node] + layout.w[node] <= layout.x[parent] + layout.w[parent] + 1e-9);
    for (let other = 1; other < node; other++)
      if (tree.parent[other] === parent)
        assert.ok(layout.x[node] + layout.w[node] <= layout.x[other] + 1e-9 || layout.x[other] + layout.w[other] <= layout.x[node] + 1e-9);
  }
});

test("colours of the largest groups differ and follow the name", () => {
  const names = Array.from({length: 40}, (_, i) => "file.py:" + i);
  const colours = chooseColours(names, "site");
  assert.equal(new Set(colours.slice(0, 12)).size, 12);
  assert.ok(colours.slice(12).every((colour) => colour === 12));
  assert.equal(chooseColours(["file.py:7"], "site")[0], textHash("file.py:7") % 12);
});

test("outliers are far from the others", () => {
  assert.deepEqual(findOutliers([10, 10.1, 9.9, 10, 30]), [false, false, false, false, true]);
  assert.deepEqual(findOutliers([10, 30]), [false, false]);
});

test("sizes climb a ramp, and the heaviest have the most of it", () => {
  const powers = [22, 20, 12, 11, 3, 0];
  const weights = new Float64Array(50);
  for (const power of powers) weights[power] = power + 1;
  const few = rampColours(powers, weights);
  assert.deepEqual([few[0], few[5]], [24, 13]);
  for (let i = 1; i < few.length; i++) assert.ok(few[i] < few[i - 1]);
  const many = Array.from({length: 30}, (_, i) => 29 - i);
  const heavy = Float64Array.from({length: 30}, (_, power) => (power >= 10 && power < 22 ? 100 : 1));
  const colours = rampColours(many, heavy);
  const at = (power) => colours[29 - power];
  assert.equal(new Set(Array.from({length: 12}, (_, i) => at(10 + i))).size, 12);
  assert.equal(at(25), at(21));
  assert.equal(at(0), 13);
  assert.deepEqual(Array.from(rampColours([7], weights)), [24]);
});

test("a name stands where its area is widest and tall enough", () => {
  const bands = [[0, 30], [20, 60], [25, 60], [30, 60], [80, 90], [0, 90]];
  const room = widestRoom(bands.length, (i) => bands[i], (i) => 10 * i);
  assert.deepEqual(room, {left: 10, right: 40, top: 30, bottom: 60});
  assert.equal(widestRoom(2, () => [0, 5], (i) => i), null);
});

test("reserved ranges lie beside each other in the bar of a moment", () => {
  const packed = new PackedRanges({segments: 2, box: Float32Array.from([0, 0.5, 1, 0.25, 0, 0.125, 1, 0.125])});
  assert.equal(packed.total, 0.375);
  assert.deepEqual([0, 0.125, 0.1875, 0.3, 0.5, 0.625, 0.9].map((y) => packed.place(y)),
    [0, 0, 0.0625, 0.125, 0.125, 0.25, 0.375]);
});

test("tiles leave few places empty", () => {
  assert.deepEqual([1, 2, 4, 8, 9, 10, 16].map(tileColumns), [1, 2, 2, 4, 3, 5, 4]);
});

/** Contrast of two colours as WCAG defines it. */
function contrast(one, other) {
  const light = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

test("texts can be read on every background, dark and light", () => {
  const style = readFileSync(new URL("../../page/style.css", import.meta.url), "utf8");
  for (const block of style.split("}").slice(0, 2)) {
    const named = Object.fromEntries(Array.from(block.matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g), (found) => found.slice(1)));
    for (const text of ["text", "dim", "accent", "bad", "warn", "good"])
      for (const back of ["back", "card", "raised"])
        assert.ok(contrast(named[text], named[back]) >= 4.5, `${text} ${named[text]} on ${back} ${named[back]}`);
    assert.ok(contrast(named.hole, named.card) >= 1.5, "a hole is seen");
  }
  const theme = readFileSync(new URL("../../page/theme.js", import.meta.url), "utf8");
  for (const [colour] of theme.matchAll(/#[0-9a-f]{6}/g))
    assert.ok(contrast(colour, inkOn(colour)) >= 4.5, `${inkOn(colour)} on ${colour}`);
});

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parts of the page that need no browser: texts, axes, the address, the layout of the flame graph.
import assert from "node:assert/strict";
import {test} from "node:test";
import {randomNumbers} from "./encoder.mjs";
import {countText, durationText, roundTicks, sizeText} from "../../page/units.js";
import {entryScale, stepScale, timeScale} from "../../page/scale.js";
import {Viewport} from "../../page/axis.js";
import {ViewState, formatHash, parseHash} from "../../page/state.js";
import {FlameLayout} from "../../page/view_flame.js";
import {findOutliers} from "../../page/view_ranks.js";
import {textHash, chooseColours} from "../../page/groups.js";

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

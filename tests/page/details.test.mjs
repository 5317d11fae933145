// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pages that lack blocks and ask a tool for them: in a complete window every answer is that of a page with all blocks.
import assert from "node:assert/strict";
import {test} from "node:test";
import {deskOf} from "./desk.mjs";
import {Writer, encodeBlocks, encodeCurves, randomNumbers, randomRecording} from "./encoder.mjs";

const SEEDS = [1, 2, 3];
const UNIT = 512;
const endOf = (block) => (block.end === null ? Infinity : block.gone);
const byBegin = (blocks) => [...blocks].sort((a, b) => a.begin - b.begin);

/** An answer of the tool, as docs/view.md describes it. */
function encodeAnswer(blocks, most = Infinity) {
  const count = new Writer().column([blocks.length]).bytes();
  return blocks.length > most ? count : Uint8Array.from([...count, ...encodeBlocks(byBegin(blocks))]);
}

/** A tool that has some blocks, written from docs/view.md. It notes what it was asked. */
class Tool {
  constructor(blocks, most = 500000) {
    this.blocks = blocks;
    this.most = most;
    this.asked = [];
    this.isThere = true;
    this.load = async (address) => {
      const [path, query] = address.split("?");
      const given = Object.fromEntries(query.split("&").map((pair) => pair.split("=")).map(([k, v]) => [k, Number(v)]));
      this.asked.push([path, given]);
      if (!this.isThere) throw new Error("nobody is there");
      assert.equal(given.device, 0);
      return path === "tool/blocks" ? this.window(given) : this.nearest(path, given);
    };
  }

  window({from, to}) {
    assert.ok(from >= 0 && from < to);
    return encodeAnswer(this.blocks.filter((b) => b.begin < to && endOf(b) > from), this.most);
  }

  nearest(path, {position, lane, low, high}) {
    assert.equal(path, "tool/nearest");
    const inside = this.blocks.filter((b) => b.lane === lane && b.offset < high && b.offset + b.units > low);
    const before = inside.filter((b) => endOf(b) <= position).sort((a, b) => endOf(b) - endOf(a)).slice(0, 1);
    const after = byBegin(inside.filter((b) => b.begin > position)).slice(0, 1);
    return encodeAnswer([...before, ...after]);
  }
}

function curvesOf(recording) {
  const isLive = (item, at, end) => item.begin <= at && (end === null || end > at);
  const curves = {reserved: [], allocated: [], requested: []};
  const sum = (list, value) => list.reduce((total, item) => total + value(item), 0);
  for (let at = 0; at <= recording.entries; at++) {
    curves.reserved.push(UNIT * sum(recording.segments.filter((s) => isLive(s, at, s.end)), (s) => s.units));
    curves.allocated.push(UNIT * sum(recording.blocks.filter((b) => isLive(b, at, b.end)), (b) => b.units));
    curves.requested.push(sum(recording.blocks.filter((b) => isLive(b, at, b.gone)), (b) => b.units * UNIT - b.slack));
  }
  return encodeCurves(curves);
}

/** The desk of a page with all blocks, and one whose short blocks only the tool has. */
async function pairOf(seed, entries, {below = 32, most = 500000} = {}) {
  const recording = randomRecording(seed, entries);
  const isShort = (block) => endOf(block) - block.begin < below && endOf(block) <= entries;
  const kept = recording.blocks.filter((block) => !isShort(block));
  const tool = new Tool(recording.blocks.filter(isShort), most);
  assert.ok(tool.blocks.length > 20 && kept.length > 20, "both have some blocks");
  const whole = await deskOf(recording);
  const served = await deskOf({...recording, blocks: kept}, {curves: curvesOf(recording), load: tool.load,
    facts: {left_out: {blocks: tool.blocks.length, below_entries: below}}});
  await whole.ask("open");
  await served.ask("open");
  return {recording, tool, whole, served};
}

/** The numbers of blocks differ, and so does the order of those that are the same otherwise. */
const withoutNumbers = (answer) => JSON.parse(JSON.stringify(answer, (key, value) => (key === "block" &&
  typeof value === "number" ? undefined : value)));

function boxesOf(answer) {
  const boxes = [];
  for (let i = 0; i < answer.count; i++)
    boxes.push([...answer.box.slice(4 * i, 4 * i + 4), answer.look[2 * i + 1]].join());
  return boxes.sort();
}

const rowsByName = (answer) => Object.fromEntries(answer.names.map((name, i) => [name, Array.from(answer.rows[i])]));

async function checkWindow({whole, served}, from, to) {
  const both = async (what, question) => [await served.ask(what, question), await whole.ask(what, question)];
  for (const by of ["site", "size", "lifetime", "stream"]) {
    const question = {from, to, buckets: 40, x: "entry", by, top: 99};
    const [areas, want] = await both("areas", question);
    assert.deepEqual(areas.samples, want.samples);
    assert.deepEqual(rowsByName(areas), rowsByName(want));
    for (const name of want.names) assert.deepEqual(...await both("group", {from, to, by, name}));
  }
  assert.deepEqual(...await both("curves", {from, to, buckets: 50, x: "entry"}));
  for (const kind of ["used", "allocated", "held"]) {
    const [tree, want] = await both("flame", {from, to, kind, isFolded: true});
    assert.deepEqual(tree, want);
  }
  const rows = await both("rows", {first: 0, count: 9999, filter: {from, to}});
  assert.deepEqual(withoutNumbers(rows[0]), withoutNumbers(rows[1]));
  const {lanes} = await whole.ask("open");
  const window = {from, to, low: 0, high: lanes.total, width: 300, height: 400, x: "entry", by: "size"};
  const rects = await both("rects", window);
  const isSeen = (box) => Number(box.split(",")[0]) < 1 && Number(box.split(",")[0]) + Number(box.split(",")[2]) > 0;
  assert.deepEqual(boxesOf(rects[0]).filter(isSeen), boxesOf(rects[1]).filter(isSeen));
}

async function checkPoints({whole, served, recording}, random, low, high) {
  const seen = {};
  for (let round = 0; round < 80; round++) {
    const question = {entry: low + random(high - low), lane: random(5), offset: random(400) + 0.5};
    const [got, want] = [await served.ask("at", question), await whole.ask("at", question)];
    assert.deepEqual(withoutNumbers(got), withoutNumbers(want));
    seen[want.kind] = (seen[want.kind] ?? 0) + 1;
    if (round % 8 === 0) assert.deepEqual(await served.ask("holes", {entry: question.entry, top: 99}),
      await whole.ask("holes", {entry: question.entry, top: 99}));
  }
  assert.ok((seen.block ?? 0) + (seen.waiting ?? 0) > 0 && seen.hole > 0, `${recording.entries}: ${JSON.stringify(seen)}`);
}

for (const seed of SEEDS) {
  test(`a window that the tool completed has every block (seed ${seed})`, async () => {
    const pair = await pairOf(seed, 1200);
    const random = randomNumbers(seed + 40);
    for (let round = 0; round < 8; round++) {
      const from = random(1100);
      const to = from + 1 + random(Math.min(200, 1199 - from));
      const answer = await pair.served.ask("details", {from, to});
      assert.deepEqual([answer.missing, answer.trouble], [0, ""]);
      assert.ok(answer.from <= from && answer.to >= to);
      await checkWindow(pair, from, to);
    }
    await checkPoints(pair, random, 0, 1200);
    await pair.served.ask("details", {from: 0, to: 1200});
    await checkWindow(pair, 0, 1200);
  });

  test(`a recording is completed window by window (seed ${seed})`, async () => {
    const pair = await pairOf(seed, 6000, {below: 64, most: 400});
    const whole = await pair.served.ask("details", {from: 0, to: 6000});
    assert.deepEqual([whole.isNew, whole.missing], [false, pair.tool.blocks.length]);
    const random = randomNumbers(seed + 41);
    for (let round = 0; round < 6; round++) {
      const from = random(5800);
      const first = await pair.served.ask("details", {from, to: from + 150});
      assert.deepEqual([first.missing, first.trouble], [0, ""], `the window from ${from}`);
      await checkWindow(pair, from, from + 150);
      const count = pair.tool.asked.length;
      const again = await pair.served.ask("details", {from: from + 10, to: from + 90});
      assert.deepEqual([again.isNew, again.missing, pair.tool.asked.length], [false, 0, count]);
    }
    await checkPoints(pair, random, 1000, 5000);
    const {details} = pair.served.desk.devices[0];
    assert.ok(details.kept.length <= 4 && details.pending.length === 0);
  });
}

test("a comparison has the blocks of both instants", async () => {
  const {whole, served} = await pairOf(5, 6000, {below: 64, most: 400});
  for (const [from, other] of [[100, 5000], [4000, 200], [3000, 3001]]) {
    const question = {kind: "used", from, to: from, isFolded: false, against: {from: other, to: other}};
    assert.deepEqual(await served.ask("flame", question), await whole.ask("flame", question));
  }
});

test("questions at the same time are asked once", async () => {
  const {served, tool} = await pairOf(4, 1000);
  const question = {from: 300, to: 400, kind: "held", isFolded: true};
  const answers = await Promise.all([served.ask("details", question), ...[1, 2, 3].map(() => served.ask("flame", question)),
    served.ask("holes", {entry: 350, top: 3})]);
  assert.equal(tool.asked.length, 1);
  assert.deepEqual(answers[1], answers[3]);
});

test("without an answer the page shows what it has, and asks again", async () => {
  const {served, tool, whole} = await pairOf(6, 1000);
  tool.isThere = false;
  const lost = await served.ask("details", {from: 10, to: 90});
  assert.deepEqual([lost.isNew, lost.missing, lost.trouble], [false, 0, "nobody is there"]);
  assert.ok(lost.to < lost.from, "no window is complete");
  const question = {kind: "allocated", from: 10, to: 90, isFolded: true};
  const less = await served.ask("flame", question);
  const all = await whole.ask("flame", question);
  assert.ok(less.value[0] < all.value[0]);
  assert.ok((await served.ask("at", {entry: 50, lane: 2, offset: 3.5})).kind);
  tool.isThere = true;
  assert.equal((await served.ask("details", {from: 10, to: 90})).isNew, true);
  assert.deepEqual(await served.ask("flame", question), all);
});

test("a damaged answer is an error that the page survives", async () => {
  const {served, tool} = await pairOf(7, 1000);
  const {load} = served.desk;
  assert.equal(load, tool.load);
  const random = randomNumbers(77);
  const {details} = served.desk.devices[0];
  for (let round = 0; round < 60; round++) {
    details.load = async (address) => {
      const bytes = (await tool.load("tool/" + address)).slice(0, random(2) === 0 ? 1 + random(40) : undefined);
      for (let i = 0; i < 3; i++) bytes[random(bytes.length)] = random(256);
      return bytes;
    };
    const from = random(900);
    await served.ask("details", {from, to: from + 50});
    await served.ask("areas", {from, to: from + 50, buckets: 20, x: "entry", by: "site", top: 5});
    details.kept = [];
    details.counts = [];
  }
});

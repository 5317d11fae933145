// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The worker's answers on random recordings, against answers that are counted block by block.
import assert from "node:assert/strict";
import {deflateSync} from "node:zlib";
import {test} from "node:test";
import {encodeRecording, randomNumbers, randomRecording} from "./encoder.mjs";
import {deskOf} from "./desk.mjs";
import {base64Bytes, base64BytesByTable, unpackBytes} from "../../page/columns.js";

const UNIT = 512;
const SEEDS = [1, 2, 3];

const isLive = (item, instant) => item.begin <= instant && (item.end === null || item.end > instant);
const isThere = (block, instant) => block.begin <= instant && (block.gone === null || block.gone > instant);
const sum = (list, value) => list.reduce((total, item) => total + value(item), 0);

function statesOf(recording) {
  const states = [];
  for (let instant = 0; instant <= recording.entries; instant++) {
    const live = recording.blocks.filter((block) => isLive(block, instant));
    states.push({reserved: UNIT * sum(recording.segments.filter((s) => isLive(s, instant)), (s) => s.units),
      allocated: UNIT * sum(live, (block) => block.units),
      requested: sum(recording.blocks.filter((b) => isThere(b, instant)), (block) => block.units * UNIT - block.slack)});
  }
  return states;
}

test("base64 and deflate give the bytes back", async () => {
  const random = randomNumbers(7);
  for (const length of [0, 1, 2, 3, 100, 65537]) {
    const bytes = Uint8Array.from({length}, () => random(256));
    const text = Buffer.from(bytes).toString("base64");
    assert.deepEqual(base64BytesByTable(text), bytes);
    assert.deepEqual(new Uint8Array(base64Bytes(text)), bytes);
    assert.deepEqual(await unpackBytes(new Uint8Array(deflateSync(bytes)), "deflate"), bytes);
  }
});

for (const seed of SEEDS) {
  test(`curves have the least, most and last of every bucket (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 700);
    const {ask} = await deskOf(recording);
    await ask("open");
    const states = statesOf(recording);
    const random = randomNumbers(seed + 100);
    for (let round = 0; round < 40; round++) {
      const from = random(600);
      const to = from + 1 + random(700 - from);
      const answer = await ask("curves", {from, to, buckets: 1 + random(90), x: "entry"});
      for (const name of ["reserved", "allocated", "requested"]) {
        for (let i = 0; i + 1 < answer.edges.length; i++) {
          const first = Math.floor(answer.edges[i]) + 1;
          const last = Math.max(first, Math.ceil(answer.edges[i + 1]));
          const values = states.slice(first, last + 1).map((state) => state[name]);
          assert.equal(answer[name].least[i], Math.min(...values));
          assert.equal(answer[name].most[i], Math.max(...values));
          assert.equal(answer[name].last[i], values.at(-1));
        }
      }
    }
  });

  test(`areas add up to what is allocated (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 600);
    const {ask} = await deskOf(recording);
    await ask("open");
    const states = statesOf(recording);
    for (const by of ["site", "module", "size", "stream", "pool", "lifetime"]) {
      for (const [from, to, buckets, top] of [[0, 600, 50, 3], [100, 180, 40, 2], [0, 600, 7, 99], [300, 304, 10, 1]]) {
        const curves = await ask("curves", {from, to, buckets, x: "entry"});
        const answer = await ask("areas", {from, to, buckets, x: "entry", by, top});
        assert.equal(answer.rows.length, answer.names.length + 1);
        for (let i = 0; i < buckets; i++) {
          const total = sum(answer.rows, (row) => row[i]);
          assert.equal(total, curves.allocated.most[i]);
          assert.equal(total, states[answer.samples[i]].allocated);
        }
      }
    }
    const answer = await ask("areas", {from: 0, to: 600, buckets: 30, x: "entry", by: "stream", top: 9});
    answer.names.forEach((name, row) => {
      const stream = ["stream 0", "stream 7f01"].indexOf(name);
      answer.samples.forEach((instant, i) => assert.equal(answer.rows[row][i],
        UNIT * sum(recording.blocks.filter((b) => b.stream === stream && isLive(b, instant)), (b) => b.units)));
    });
  });

  test(`rectangles are those of a pixel and more, and the grid covers the rest (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 900);
    const {ask} = await deskOf(recording);
    const {lanes} = await ask("open");
    const random = randomNumbers(seed + 5);
    for (let round = 0; round < 12; round++) {
      const from = random(800);
      const window = {from, to: from + 1 + random(900 - from), low: 0, high: lanes.total, width: 50 + random(200),
        height: 100 + random(200), x: "entry", by: "size"};
      const answer = await ask("rects", window);
      const entryX = 1 / (window.to - window.from);
      const wanted = recording.blocks.filter((block) => {
        const end = shownEnd(block);
        const wide = (Math.min(end, 901) - block.begin) * entryX * window.width;
        const tall = (block.units / lanes.total) * window.height;
        return block.begin <= Math.min(900, window.to + 1) && end > window.from + 1 && wide >= 1 && tall >= 1;
      });
      const blocks = [];
      for (let i = answer.segments; i < answer.count; i++) if (answer.look[2 * i + 1] === 1) blocks.push(answer.id[i]);
      const waits = recording.blocks.filter((b) => b.end !== null && shownEnd(b) <= window.from + 1);
      assert.ok(Math.abs(blocks.length - wanted.length) <= waits.length, `${blocks.length}, not ${wanted.length}`);
      const grid = await ask("grid", {...window, palette: new Uint8Array(39).fill(200)});
      checkCoverage(recording, window, lanes, 0, grid);
      const few = await ask("rects", {...window, most: 20});
      assert.ok(few.count - few.segments <= 20);
      if (answer.count - answer.segments > 20) assert.ok(few.leastArea > 0);
      const rest = await ask("grid", {...window, leastArea: few.leastArea, palette: new Uint8Array(39).fill(200)});
      checkCoverage(recording, window, lanes, few.leastArea, rest);
    }
  });

  test(`a point is a block, a waiting block, a hole or nothing (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 500);
    const {ask} = await deskOf(recording);
    const {lanes} = await ask("open");
    const random = randomNumbers(seed + 9);
    const seen = {};
    for (let round = 0; round < 300; round++) {
      const entry = random(500);
      const lane = random(lanes.count);
      const offset = random(400) + 0.5;
      const answer = await ask("at", {entry, lane, offset});
      seen[answer.kind] = (seen[answer.kind] ?? 0) + 1;
      checkPoint(recording, entry + 1, lane, offset, answer);
      if (offset > lanes.extent[lane]) continue;
      const same = await ask("at", {entry, y: lanes.low[lane] + offset});
      assert.deepEqual({...same, offset}, answer);
    }
    assert.ok(seen.block > 0 && seen.hole > 0 && seen.nothing > 0, JSON.stringify(seen));
  });

  test(`the largest holes are those of all units (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 400);
    const {ask} = await deskOf(recording);
    await ask("open");
    for (const entry of [0, 50, 133, 399]) {
      const {count, holes} = await ask("holes", {entry, top: 1000});
      const want = bruteHoles(recording, entry + 1);
      assert.equal(count, want.length);
      assert.deepEqual(holes.map((hole) => [hole.units, hole.lane, hole.low]), want);
    }
  });

  test(`trees of stacks have the bytes of their blocks (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 500);
    const {ask} = await deskOf(recording);
    await ask("open");
    for (const kind of ["used", "allocated", "held"]) {
      for (const [from, to] of [[0, 500], [120, 121], [30, 400]]) {
        const tree = await ask("flame", {kind, from, to, isFolded: true});
        const bytes = bruteStacks(recording, kind, from, to);
        assert.equal(tree.value[0], sum(bytes, (value) => value));
        assert.equal(valueAt(tree, ["train.py:10 train"]), bytes[1] + bytes[2] + bytes[3] + bytes[4]);
        assert.equal(valueAt(tree, ["train.py:10 train", "torch/nn/linear.py:20 forward"]), 0);
        assert.equal(valueAt(tree, ["train.py:10 train", "model.py:50 call"]), bytes[3] + bytes[4]);
        assert.equal(valueAt(tree, ["(no stack)"]), bytes[0]);
        const open = await ask("flame", {kind, from, to, isFolded: false});
        assert.equal(valueAt(open, ["train.py:10 train", "torch/nn/linear.py:20 forward"]), bytes[1]);
        const both = await ask("flame", {kind, from, to, isFolded: true, against: {from: 200, to: 300}});
        const other = bruteStacks(recording, kind, 200, 300);
        const at = pathNode(both, ["train.py:10 train", "train.py:30 step"]);
        assert.equal(at < 0 ? 0 : both.value[at], bytes[2]);
        assert.equal(at < 0 ? 0 : both.base[at], other[2]);
      }
    }
  });

  test(`rows tell what each entry did (seed ${seed})`, async () => {
    const recording = randomRecording(seed, 400);
    const {ask} = await deskOf(recording);
    await ask("open");
    const all = await ask("rows", {first: 0, count: 400, filter: {}});
    assert.equal(all.total, 400);
    for (const row of all.rows) {
      const instant = row.entry + 1;
      const alloc = recording.blocks.find((block) => block.begin === instant);
      const freed = recording.blocks.find((block) => block.end === instant);
      if (alloc) assert.deepEqual([row.kind, row.bytes], [1, alloc.units * UNIT]);
      else if (freed) assert.deepEqual([row.kind, row.bytes], [2, freed.units * UNIT]);
      else if (recording.others.some((other) => other.at === row.entry)) assert.equal(row.kind, 6);
      else assert.ok([3, 4, 5].includes(row.kind), `entry ${row.entry} is ${row.kind}`);
    }
    const large = await ask("rows", {first: 0, count: 999, filter: {kinds: [1], least: 20 * UNIT, from: 50, to: 350}});
    const wanted = recording.blocks.filter((b) => b.units >= 20 && b.begin > 50 && b.begin <= 350).map((b) => b.begin - 1);
    assert.deepEqual(large.rows.map((row) => row.entry), wanted.sort((a, b) => a - b));
    const text = await ask("rows", {first: 0, count: 999, filter: {kinds: [1], text: "ONERROR"}});
    assert.equal(text.total, recording.blocks.filter((b) => b.stack === 3 && b.begin > 0).length);
  });
}

/** The instant to which a block is drawn: a wait of one entry belongs to it. The recordings have 900 entries. */
function shownEnd(block) {
  if (block.end === null) return 901;
  return Math.min(901, block.gone - block.end <= 1 ? block.gone : block.end);
}

/** The area of a block as a share of the window, as far as it is in an answer. */
function clampedArea(block, window, lanes) {
  const x = (at) => (at - window.from) / (window.to - window.from);
  const end = block.end === null ? 900 : shownEnd(block) - 1;
  return (Math.min(2, x(end)) - Math.max(-1, x(block.begin - 1))) * (block.units / lanes.total);
}

function checkCoverage(recording, window, lanes, leastArea, grid) {
  let covered = 0;
  for (let i = 3; i < grid.pixels.length; i += 4) covered += grid.pixels[i] / 255;
  let area = 0;
  for (const block of recording.blocks) {
    const wide = (Math.min(shownEnd(block), 901) - block.begin) * (window.width / (window.to - window.from));
    const tall = (block.units / lanes.total) * window.height;
    const isLarge = clampedArea(block, window, lanes) >= leastArea * (1 + 1e-6);
    if (wide >= 1 && tall >= 1 && isLarge) continue;
    const left = Math.max(block.begin - 1, window.from);
    const right = Math.min(shownEnd(block) - 1, window.to);
    area += Math.max(0, right - left) * block.units;
  }
  const cells = (area / lanes.total / (window.to - window.from)) * grid.columns * grid.rows;
  assert.ok(Math.abs(cells - covered) <= 0.05 * cells + 0.01 * grid.columns * grid.rows, `${covered}, not ${cells}`);
}

function checkPoint(recording, instant, lane, offset, answer) {
  const inLane = recording.blocks.filter((block) => block.lane === lane && isThere(block, instant));
  const at = inLane.find((block) => block.offset <= offset && offset < block.offset + block.units);
  const ranges = recording.segments.filter((s) => s.lane === lane && isLive(s, instant));
  const segment = ranges.find((s) => s.offset <= offset && offset < s.offset + s.units);
  if (at) {
    assert.equal(answer.kind, isLive(at, instant) ? "block" : "waiting");
    assert.deepEqual([answer.block.begin, answer.block.bytes], [at.begin - 1, at.units * UNIT]);
    return;
  }
  if (!segment) {
    assert.equal(answer.kind, "nothing");
    return;
  }
  assert.equal(answer.kind, "hole");
  const isReserved = (unit) => ranges.some((s) => s.offset <= unit && unit < s.offset + s.units);
  const isUsed = (unit) => inLane.some((b) => b.offset <= unit && unit < b.offset + b.units);
  let low = Math.floor(offset);
  let high = low + 1;
  // Lane 1 has two segments, which meet at 200.
  const isOne = (a, b) => lane !== 1 || (a < 200) === (b < 200);
  while (isReserved(low - 1) && isOne(low - 1, low) && !isUsed(low - 1)) low--;
  while (isReserved(high) && isOne(high - 1, high) && !isUsed(high)) high++;
  const hole = answer.hole;
  assert.deepEqual([hole.low, hole.units], [low, high - low]);
  const left = inLane.find((b) => b.offset + b.units === low && isReserved(low - 1) && isOne(low - 1, low));
  const right = inLane.find((b) => b.offset === high && isOne(high - 1, high));
  assert.equal(hole.left?.begin ?? null, left ? left.begin - 1 : null);
  assert.equal(hole.right?.begin ?? null, right ? right.begin - 1 : null);
  checkHoleTimes(recording, instant, lane, low, high, ranges, hole);
  let from = low;
  let to = high;
  while (isReserved(from - 1) && isOne(from - 1, from)) from--;
  while (isReserved(to) && isOne(to - 1, to)) to++;
  const keepers = inLane.filter((b) => b.offset >= from && b.offset < to);
  assert.equal(hole.keepers.count, keepers.length);
  assert.equal(hole.keepers.bytes, UNIT * sum(keepers, (b) => b.units));
}

/** Units, lane and offset of every run of units that are reserved and not used; the largest first. */
function bruteHoles(recording, instant) {
  const holes = [];
  for (let lane = 0; lane < 5; lane++) {
    let run = 0;
    for (let unit = 0; unit <= 400; unit++) {
      const isIn = (item) => item.lane === lane && item.offset <= unit && unit < item.offset + item.units;
      const isFree = recording.segments.some((s) => isLive(s, instant) && isIn(s)) &&
        !recording.blocks.some((b) => isThere(b, instant) && isIn(b));
      if (lane === 1 && unit === 200 && run > 0) {
        holes.push([run, lane, unit - run]);
        run = 0;
      }
      if (isFree) run++;
      else if (run > 0) holes.push([run, lane, unit - run]);
      if (!isFree) run = 0;
    }
  }
  return holes.sort((a, b) => b[0] - a[0] || a[1] - b[1] || a[2] - b[2]);
}

/** Goes back and forth instant by instant, as long as all of the range stays reserved and free. */
function checkHoleTimes(recording, instant, lane, low, high, ranges, hole) {
  const isHole = (at) => {
    for (let unit = low; unit < high; unit++) {
      if (recording.blocks.some((b) => b.lane === lane && isThere(b, at) && b.offset <= unit && unit < b.offset + b.units))
        return false;
      if (!recording.segments.some((s) => s.lane === lane && isLive(s, at) && s.offset <= unit && unit < s.offset + s.units))
        return false;
    }
    return true;
  };
  let since = instant;
  while (since > 0 && isHole(since - 1)) since--;
  assert.equal(hole.since, since - 1);
  const next = recording.blocks.filter((b) => b.lane === lane && b.begin > instant && b.offset < high && b.offset + b.units > low);
  assert.equal(hole.until, next.length > 0 ? Math.min(...next.map((b) => b.begin)) - 1 : null);
  assert.ok(ranges.length > 0);
}

function bruteStacks(recording, kind, from, to) {
  const bytes = [0, 0, 0, 0, 0];
  for (const block of recording.blocks) {
    const end = block.end ?? recording.entries + 1;
    let weight = 0;
    for (let entry = from; entry < (kind === "used" ? from + 1 : to); entry++)
      if (kind === "allocated" ? block.begin === entry + 1 : block.begin <= entry + 1 && end > entry + 1) weight++;
    bytes[block.stack] += block.units * UNIT * weight;
  }
  return bytes;
}

function pathNode(tree, path) {
  let node = 0;
  for (const text of path) {
    node = tree.text.findIndex((other, i) => other === text && tree.parent[i] === node);
    if (node < 0) return -1;
  }
  return node;
}

function valueAt(tree, path) {
  const node = pathNode(tree, path);
  return node < 0 ? 0 : tree.value[node];
}

test("a damaged part is an error, not an endless loop", async () => {
  const recording = randomRecording(3, 300);
  const {parts} = encodeRecording(recording);
  const {Level, Segments} = await import("../../page/store.js");
  const bytes = parts.get("b0");
  for (let length = 0; length < bytes.length; length += 7) assert.throws(() => new Level(bytes.slice(0, length), 0, 300));
  const random = randomNumbers(11);
  for (let round = 0; round < 300; round++) {
    const damaged = parts.get("s").slice();
    for (let i = 0; i < 3; i++) damaged[random(damaged.length)] = random(256);
    try {
      new Segments(damaged, 300);
    } catch (error) {
      assert.ok(error instanceof Error);
    }
  }
});

/** A random recording in which ranges are parked after their end, where nothing else is then. */
function parkedRecording(seed) {
  const recording = randomRecording(seed, 700);
  const isBeside = (a, b) => a.lane !== b.lane || a.address >= b.address + b.units || b.address >= a.address + a.units;
  const isFree = (one) => recording.segments.every((other) => isBeside(one, other) || other.begin >= one.end ||
    (other.end !== null && other.end <= one.begin));
  const parked = recording.segments.filter((segment) => segment.end !== null && segment.end + 20 < 700)
    .map((segment) => ({...segment, begin: segment.end, end: segment.end + 20, flags: segment.flags | 16}))
    .filter(isFree);
  const segments = [...recording.segments, ...parked].sort((a, b) => a.begin - b.begin);
  return {plain: recording, recording: {...recording, segments}, parked};
}

test("parked ranges are told at a point and in a window, and are in no curve and no hole", async () => {
  const {plain, recording, parked} = parkedRecording(1);
  assert.ok(parked.length > 3);
  const {ask} = await deskOf(recording);
  const {ask: askPlain} = await deskOf(plain);
  await ask("open");
  await askPlain("open");
  const curves = {from: 0, to: 700, buckets: 90, x: "entry"};
  assert.deepEqual(await ask("curves", curves), await askPlain("curves", curves));
  const window = {from: 0, to: 700, low: 0, high: 2400, width: 500, height: 1200, x: "entry", by: "pool"};
  const rects = await ask("rects", window);
  assert.equal(rects.count, (await askPlain("rects", window)).count);
  assert.deepEqual(rects.parked.map((one) => [one.begin, one.end, one.high - one.low]),
    parked.sort((a, b) => a.begin - b.begin).map((one) => [one.begin - 1, one.end - 1, one.units]));
  for (const one of parked) {
    const point = await ask("at", {entry: one.begin, lane: one.lane, offset: one.offset + one.units / 2});
    assert.equal(point.kind, "parked");
    assert.deepEqual([point.parked.bytes, point.parked.begin, point.parked.end],
      [one.units * UNIT, one.begin - 1, one.end - 1]);
    assert.deepEqual(await ask("holes", {entry: one.begin, top: 5}), await askPlain("holes", {entry: one.begin, top: 5}));
  }
  assert.deepEqual((await askPlain("rects", window)).parked, []);
});

test("a pool with a tag has its name", async () => {
  const {ask} = await deskOf(randomRecording(2, 300), {facts: {pools: ["(0, 0)", "weights/actor"]}});
  await ask("open");
  const {names} = await ask("legend", {by: "pool", top: 5, from: 0, to: 300});
  assert.deepEqual(names.sort(), ["default pool", "weights/actor"]);
});

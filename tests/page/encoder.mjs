// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes parts as docs/view.md describes them, and makes random recordings. It shares no code with the page.

/** Bytes of columns, one after the other. */
export class Writer {
  constructor() {
    this.out = [];
  }

  varint(value) {
    let rest = BigInt(value);
    while (rest >= 128n) {
      this.out.push(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    this.out.push(Number(rest));
  }

  signed(value) {
    this.varint(value >= 0 ? 2n * BigInt(value) : -2n * BigInt(value) - 1n);
  }

  column(values, {isDelta = false, isSigned = false} = {}) {
    this.varint(values.length);
    let last = 0;
    for (const value of values) {
      if (isSigned) this.signed(value - (isDelta ? last : 0));
      else this.varint(value - (isDelta ? last : 0));
      last = value;
    }
    return this;
  }

  bytes() {
    return Uint8Array.from(this.out);
  }
}

const delta = {isDelta: true};
const signedDelta = {isDelta: true, isSigned: true};
const pick = (list, name) => list.map((item) => item[name]);

export function encodeSegments(segments) {
  return new Writer().column(pick(segments, "address"), signedDelta).column(pick(segments, "units"))
    .column(pick(segments, "begin"), delta).column(segments.map((s) => (s.end === null ? 0 : s.end - s.begin)))
    .column(pick(segments, "stream")).column(pick(segments, "pool")).column(pick(segments, "lane"))
    .column(pick(segments, "flags")).column(pick(segments, "stack")).column(pick(segments, "cause")).bytes();
}

export function encodeBlocks(blocks) {
  return new Writer().column(pick(blocks, "begin"), delta)
    .column(blocks.map((b) => (b.end === null ? 0 : b.end - b.begin)))
    .column(blocks.map((b) => (b.end === null ? 0 : b.gone - b.end)))
    .column(pick(blocks, "lane")).column(pick(blocks, "offset")).column(pick(blocks, "units"))
    .column(pick(blocks, "slack")).column(pick(blocks, "stack")).column(pick(blocks, "stream"))
    .column(pick(blocks, "pool")).bytes();
}

export const encodeTimes = (times) => new Writer().column(times, signedDelta).bytes();

export const encodeOthers = (others) => new Writer().column(pick(others, "at"), delta).column(pick(others, "action"))
  .column(pick(others, "bytes")).column(pick(others, "text")).column(pick(others, "stack")).bytes();

/** What the page has instead of left-out blocks: curves[name][instant] in buckets of 64 entries. */
export function encodeCurves(curves) {
  const writer = new Writer();
  for (const values of [curves.reserved, curves.allocated, curves.requested]) {
    const buckets = [];
    values.forEach((value, instant) => (buckets[Math.floor(Math.max(0, instant - 1) / 64)] ??= []).push(value));
    for (const pick of [(list) => Math.min(...list), (list) => Math.max(...list), (list) => list.at(-1)])
      writer.column(buckets.map(pick), signedDelta);
  }
  return writer.bytes();
}

/** Sorts blocks into levels: level k has lives from 2^k to 2^(k+1)-1, the top one the rest. Longest lives first. */
export function levelsOf(blocks, top = 12) {
  const levels = Array.from({length: top + 1}, () => []);
  for (const block of blocks) {
    const life = block.end === null ? Infinity : block.end - block.begin;
    levels[Math.min(top, Math.floor(Math.log2(life)))].push(block);
  }
  for (const level of levels) level.sort((a, b) => a.begin - b.begin);
  return levels.reverse().filter((level) => level.length > 0);
}

/** Numbers that depend on the seed alone. */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let word = Math.imul(state ^ (state >>> 15), state | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return ((word ^ (word >>> 14)) >>> 0) % below;
  };
}

const STACKS = {
  texts: ["", "train", "/home/u/train.py", "forward", "/usr/lib/python3/site-packages/torch/nn/linear.py", "step",
    "</script><img src=x onerror=alert(1)>", "call", "/home/u/model.py"],
  frames: [[0, 0, 0], [1, 2, 10], [3, 4, 20], [5, 2, 30], [6, 8, 40], [7, 8, 50]],
  stacks: [[], [2, 1], [3, 1], [4, 5, 1], [5, 1]],
  own: [-1, 1, 3, 4, -1],
  folded: [0, 0, 1, 0, 0, 0],
};

/**
 * A random recording: a list of entries over segments that hold blocks, and the same as columns. Segments are lanes;
 * lane 0 is expandable and consists of neighbouring ranges, and lane 1 has two neighbouring segments.
 */
export function randomRecording(seed, entries, {lanes = 5, laneUnits = 400} = {}) {
  const random = randomNumbers(seed);
  const segments = [];
  const blocks = [];
  const others = [];
  const live = [];
  const waiting = [];
  const free = () => Array.from({length: lanes}, () => new Uint8Array(laneUnits));
  const used = free();
  const mapped = free();
  const open = [];
  const address = (lane, offset) => 0x7f0000000 + lane * 5000 + offset;
  const pieceOf = (lane) => (lane === 0 ? 50 : lane === 1 ? 200 : laneUnits);
  const addSegment = (begin) => {
    const lane = random(lanes);
    const piece = pieceOf(lane);
    const offset = piece * random(laneUnits / piece);
    if (mapped[lane][offset]) return false;
    mapped[lane].fill(1, offset, offset + piece);
    const segment = {address: address(lane, offset), units: piece, begin, end: null, stream: 0, pool: lane % 2, lane,
      offset, flags: lane === 0 ? 1 : 2, stack: random(5), cause: random(4)};
    segments.push(segment);
    open.push(segment);
    return true;
  };
  const addBlock = (begin) => {
    const lane = random(lanes);
    const units = 1 + random(40);
    const offset = random(laneUnits - units);
    if (lane === 1 && offset < 200 && offset + units > 200) return false;
    for (let i = offset; i < offset + units; i++) if (used[lane][i] || !mapped[lane][i]) return false;
    used[lane].fill(1, offset, offset + units);
    const block = {begin, end: null, gone: null, lane, offset, units, slack: random(512), stack: random(5), stream: random(2),
      pool: lane % 2};
    blocks.push(block);
    live.push(block);
    return true;
  };
  // Every lane but the first exists before the recording begins, so that offsets count from known addresses.
  for (let lane = 0; lane < lanes; lane++) {
    const piece = pieceOf(lane);
    mapped[lane].fill(1, 0, piece);
    const segment = {address: address(lane, 0), units: piece, begin: 0, end: null, stream: 0, pool: lane % 2, lane, offset: 0,
      flags: lane === 0 ? 1 : 2, stack: 0, cause: 0};
    segments.push(segment);
    if (lane > 1) open.push(segment);
  }
  for (let i = 0; i < 6; i++) addBlock(0);
  for (let entry = 0; entry < entries; entry++) {
    const instant = entry + 1;
    const kind = random(100);
    if (kind < 50 && addBlock(instant)) continue;
    if (kind < 72 && live.length > 0) {
      const [block] = live.splice(random(random(4) === 0 ? live.length : Math.min(live.length, 3)), 1);
      block.end = instant;
      waiting.push(block);
      continue;
    }
    if (kind < 94 && waiting.length > 0) {
      const [block] = waiting.splice(0, 1);
      block.gone = instant;
      used[block.lane].fill(0, block.offset, block.offset + block.units);
      continue;
    }
    if (kind < 96 && addSegment(instant)) continue;
    if (kind < 98 && open.length > 0) {
      const at = random(open.length);
      const segment = open[at];
      const range = used[segment.lane].subarray(segment.offset, segment.offset + segment.units);
      if (!range.includes(1)) {
        open.splice(at, 1);
        segment.end = instant;
        mapped[segment.lane].fill(0, segment.offset, segment.offset + segment.units);
        continue;
      }
    }
    others.push({at: entry, action: random(9), bytes: random(2) * 4096, text: random(3), stack: random(5)});
  }
  // A wait that the recording does not end is written as one that lasts beyond it.
  for (const block of waiting) block.gone = entries + 1;
  let time = 1000;
  const times = Array.from({length: entries}, () => (time += random(3) === 0 ? random(2000) : random(3) - 1));
  return {entries, segments, blocks, others, times, stacks: STACKS};
}

/** Facts and named parts of a recording, as the page gets them. */
export function encodeRecording(recording, extra = {}) {
  const parts = new Map();
  const levels = levelsOf(recording.blocks);
  const names = {blocks: levels.map((_, i) => "b" + i), segments: "s", times: "t", stacks: "k", others: "o"};
  levels.forEach((level, i) => parts.set("b" + i, encodeBlocks(level)));
  parts.set("s", encodeSegments(recording.segments));
  parts.set("t", encodeTimes(recording.times));
  parts.set("k", new TextEncoder().encode(JSON.stringify(recording.stacks)));
  parts.set("o", encodeOthers(recording.others));
  const facts = {device: 0, entries: recording.entries, is_from_start: true, has_times: true, first_ns: 0,
    span_ns: 1000 * (recording.times.at(-1) - recording.times[0]), streams: ["0", "7f01"], pools: ["default", "(0, 1)"],
    marks: [], bands: [], steps: {found_by: "none", rows: []}, ooms: [], leaks: [], whatif: [], limit: null, parts: names,
    left_out: null, ...extra};
  return {facts, parts};
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What is at a point of the picture: a block, a block that waits, or a hole. A hole is a largest free range of a
// reserved one; the answer says since when it is free, until when, and which live blocks keep it from use.
import {NEVER, SEGMENT_EXPANDABLE} from "./store.js";

const KEEPERS_MOST = 12;

/**
 * @param {import("./store.js").Store} store @param {number} position @param {number} lane @param {number} offset
 */
export function pointAt(store, position, lane, offset) {
  const instant = store.instant(position);
  const segment = segmentAt(store, instant, lane, offset);
  const block = blockAt(store, instant, lane, offset);
  const where = {position: instant - 1, lane, offset, address: store.addressText(lane, Math.floor(offset)),
    parked: parkedAt(store, instant, lane, offset)};
  if (block >= 0) {
    const found = store.describe(block);
    const isWaiting = found.end !== null && instant - 1 >= found.end;
    return {...where, kind: isWaiting ? "waiting" : "block", block: found,
      segment: describeSegment(store, segment, instant)};
  }
  if (segment < 0) return {...where, kind: where.parked ? "parked" : "nothing"};
  return {...where, kind: "hole", hole: holeAt(store, instant, segment, lane, offset),
    segment: describeSegment(store, segment, instant)};
}

/** @param {import("./store.js").Store} store @returns {number} or -1 */
export function segmentAt(store, /** @type {number} */ instant, /** @type {number} */ lane,
  /** @type {number} */ offset) {
  const {segments, lanes} = store;
  if (lane < 0 || lane >= lanes.count) return -1;
  for (let at = lanes.firstSegment[lane]; at < lanes.firstSegment[lane + 1]; at++) {
    const i = lanes.segmentOf[at];
    if (segments.begin[i] > instant || segments.end[i] <= instant) continue;
    const low = segments.address[i] - lanes.base[lane];
    if (offset >= low && offset < low + segments.bytes[i]) return i;
  }
  return -1;
}

/** The parked range at a point, or null. @param {import("./store.js").Store} store */
function parkedAt(store, /** @type {number} */ instant, /** @type {number} */ lane, /** @type {number} */ offset) {
  const {parked} = store.segments;
  for (let i = 0; i < parked.count; i++) {
    if (parked.lane[i] !== lane || parked.begin[i] > instant || parked.end[i] <= instant) continue;
    const low = parked.address[i] - store.lanes.base[lane];
    if (offset < low || offset >= low + parked.bytes[i]) continue;
    return {address: store.addressText(lane, low), bytes: parked.bytes[i] * store.unit, begin: parked.begin[i] - 1,
      end: parked.end[i] === NEVER ? null : parked.end[i] - 1, pool: store.facts.pools?.[parked.pool[i]] ?? ""};
  }
  return null;
}

/** @param {import("./store.js").Store} store @returns {number} or -1 */
function blockAt(store, /** @type {number} */ instant, /** @type {number} */ lane, /** @type {number} */ offset) {
  let found = -1;
  store.visitAt(instant, (level, i) => {
    if (level.lane[i] === lane && level.offset[i] <= offset && offset < level.offset[i] + level.bytes[i])
      found = level.first + i;
  });
  return found;
}

/**
 * The reserved ranges of a lane at an instant. Neighbours are one range if they belong to an expandable segment; in
 * others a block never lies in both.
 * @param {import("./store.js").Store} store @param {number} instant @param {number} lane
 * @returns {{low: number, high: number, parts: number[]}[]} in units from the begin of the lane, rising
 */
function reservedRanges(store, instant, lane) {
  const {segments, lanes} = store;
  const there = [];
  for (let at = lanes.firstSegment[lane]; at < lanes.firstSegment[lane + 1]; at++) {
    const i = lanes.segmentOf[at];
    if (segments.begin[i] <= instant && segments.end[i] > instant) there.push(i);
  }
  there.sort((a, b) => segments.address[a] - segments.address[b]);
  /** @type {{low: number, high: number, parts: number[]}[]} */
  const ranges = [];
  for (const i of there) {
    const low = segments.address[i] - lanes.base[lane];
    const high = low + segments.bytes[i];
    const last = ranges[ranges.length - 1];
    if (last && last.high === low && isOneSegment(segments, last.parts[last.parts.length - 1], i)) {
      last.high = high;
      last.parts.push(i);
    } else {
      ranges.push({low, high, parts: [i]});
    }
  }
  return ranges;
}

/** @param {import("./store.js").Segments} segments @param {number} a @param {number} b */
function isOneSegment(segments, a, b) {
  return (segments.flags[a] & segments.flags[b] & SEGMENT_EXPANDABLE) !== 0 &&
    segments.stream[a] === segments.stream[b] && segments.pool[a] === segments.pool[b];
}

/** The range that a segment is a part of. */
function reservedRange(/** @type {import("./store.js").Store} */ store, /** @type {number} */ instant,
  /** @type {number} */ segment) {
  const ranges = reservedRanges(store, instant, store.segments.lane[segment]);
  return ranges.find((range) => range.parts.includes(segment)) ?? {low: 0, high: 0, parts: []};
}

function holeAt(/** @type {import("./store.js").Store} */ store, /** @type {number} */ instant,
  /** @type {number} */ segment, /** @type {number} */ lane, /** @type {number} */ offset) {
  const range = reservedRange(store, instant, segment);
  let {low, high} = range;
  let left = -1;
  let right = -1;
  store.visitAt(instant, (level, i) => {
    if (level.lane[i] !== lane) return;
    const from = level.offset[i];
    const to = from + level.bytes[i];
    if (to <= offset && to > low) {
      low = to;
      left = level.first + i;
    }
    if (from > offset && from < high) {
      high = from;
      right = level.first + i;
    }
  });
  const times = holeTimes(store, instant, range.parts, lane, low, high);
  return {low, units: high - low, bytes: (high - low) * store.unit, address: store.addressText(lane, low), ...times,
    left: left < 0 ? null : store.describe(left), right: right < 0 ? null : store.describe(right),
    keepers: keepersOf(store, instant, range, lane)};
}

/** Since when all of a range is reserved and free, and when a part of it is used again. */
function holeTimes(/** @type {import("./store.js").Store} */ store, /** @type {number} */ instant,
  /** @type {number[]} */ parts, /** @type {number} */ lane, /** @type {number} */ low, /** @type {number} */ high) {
  const {segments, lanes} = store;
  let since = 0;
  let before = -1;
  for (const i of parts) {
    const from = segments.address[i] - lanes.base[lane];
    if (from < high && from + segments.bytes[i] > low) since = Math.max(since, segments.begin[i]);
  }
  let until = NEVER;
  for (const level of store.levels) {
    const {begin, gone} = level;
    for (let i = 0; i < level.count; i++) {
      if (level.lane[i] !== lane || level.offset[i] >= high || level.offset[i] + level.bytes[i] <= low) continue;
      if (gone[i] <= instant && gone[i] > since) {
        since = gone[i];
        before = level.first + i;
      }
      if (begin[i] > instant && begin[i] < until) until = begin[i];
    }
  }
  return {since: since - 1, until: until === NEVER ? null : until - 1, before: before < 0 ? null
    : store.describe(before)};
}

/** Live blocks of the reserved range: while one is there, the range cannot be returned as a whole. */
function keepersOf(/** @type {import("./store.js").Store} */ store, /** @type {number} */ instant,
  /** @type {{low: number, high: number}} */ range, /** @type {number} */ lane) {
  /** @type {[number, number, number][]} size, offset and number */
  const found = [];
  let bytes = 0;
  store.visitAt(instant, (level, i) => {
    if (level.lane[i] !== lane || level.offset[i] < range.low || level.offset[i] >= range.high) return;
    found.push([level.bytes[i], level.offset[i], level.first + i]);
    bytes += level.bytes[i] * store.unit;
  });
  found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return {count: found.length, bytes, largest: found.slice(0, KEEPERS_MOST)
    .map(([, , block]) => store.describe(block))};
}

/**
 * The largest holes at a position, the largest first.
 * @param {import("./store.js").Store} store @param {number} position @param {number} top
 */
export function largestHoles(store, position, top) {
  const instant = store.instant(position);
  /** @type {Map<number, [number, number][]>} blocks of each lane: begin and end, in units */
  const used = new Map();
  store.visitAt(instant, (level, i) => {
    const lane = level.lane[i];
    if (!used.has(lane)) used.set(lane, []);
    used.get(lane)?.push([level.offset[i], level.offset[i] + level.bytes[i]]);
  });
  const holes = [];
  for (let lane = 0; lane < store.lanes.count; lane++) {
    const blocks = joinPieces(used.get(lane) ?? []);
    for (const range of reservedRanges(store, instant, lane))
      for (const [low, high] of gapsOf(range.low, range.high, blocks))
        holes.push({lane, low, units: high - low, bytes: (high - low) * store.unit,
          address: store.addressText(lane, low)});
  }
  holes.sort((a, b) => b.units - a.units || a.lane - b.lane || a.low - b.low);
  return {position: instant - 1, count: holes.length, holes: holes.slice(0, top)};
}

/** Sorted pieces, with neighbours joined. @param {[number, number][]} pieces */
function joinPieces(pieces) {
  /** @type {[number, number][]} */
  const joined = [];
  for (const [low, high] of pieces.sort((a, b) => a[0] - b[0])) {
    const last = joined[joined.length - 1];
    if (last && low <= last[1]) last[1] = Math.max(last[1], high);
    else joined.push([low, high]);
  }
  return joined;
}

/** What of a range is not in `used`, which is sorted. @param {number} low @param {number} high @param {any} used */
function gapsOf(low, high, used) {
  /** @type {[number, number][]} */
  const gaps = [];
  let free = low;
  for (const [begin, end] of used) {
    if (end <= low || begin >= high) continue;
    if (begin > free) gaps.push([free, begin]);
    free = Math.max(free, end);
  }
  if (free < high) gaps.push([free, high]);
  return gaps;
}

function describeSegment(/** @type {import("./store.js").Store} */ store, /** @type {number} */ i,
  /** @type {number} */ instant) {
  if (i < 0) return null;
  const segments = store.segments;
  const lane = segments.lane[i];
  const range = reservedRange(store, instant, i);
  return {address: store.addressText(lane, range.low), bytes: (range.high - range.low) * store.unit,
    begin: segments.begin[i] - 1, end: segments.end[i] === NEVER ? null : segments.end[i] - 1, flags: segments.flags[i],
    stream: store.facts.streams?.[segments.stream[i]] ?? "", pool: store.facts.pools?.[segments.pool[i]] ?? "",
    cause: segments.cause[i], lines: store.stacks.lines(segments.stack[i])};
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What is at a point of the picture: a block, a block that waits, or a hole. A hole is a largest free range of a
// reserved one; the answer says since when it is free, until when, and which live blocks keep it from use.
import {NEVER} from "./store.js";

const KEEPERS_MOST = 12;

/**
 * @param {import("./store.js").Store} store @param {number} position @param {number} lane @param {number} offset
 */
export function pointAt(store, position, lane, offset) {
  const instant = store.instant(position);
  const segment = segmentAt(store, instant, lane, offset);
  const block = blockAt(store, instant, lane, offset);
  const where = {position: instant - 1, lane, offset, address: store.addressText(lane, Math.floor(offset))};
  if (block >= 0) {
    const found = store.describe(block);
    const isWaiting = found.end !== null && instant - 1 >= found.end;
    return {...where, kind: isWaiting ? "waiting" : "block", block: found,
      segment: describeSegment(store, segment, instant)};
  }
  if (segment < 0) return {...where, kind: "nothing"};
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

/** @param {import("./store.js").Store} store @returns {number} or -1 */
function blockAt(store, /** @type {number} */ instant, /** @type {number} */ lane, /** @type {number} */ offset) {
  let found = -1;
  store.visitAt(instant, (level, i) => {
    if (level.lane[i] === lane && level.offset[i] <= offset && offset < level.offset[i] + level.bytes[i])
      found = level.first + i;
  });
  return found;
}

/** The reserved range around a segment at an instant: an expandable segment consists of neighbouring ranges. */
function reservedRange(/** @type {import("./store.js").Store} */ store, /** @type {number} */ instant,
  /** @type {number} */ segment) {
  const {segments, lanes} = store;
  const lane = segments.lane[segment];
  const begins = new Map();
  const ends = new Map();
  for (let at = lanes.firstSegment[lane]; at < lanes.firstSegment[lane + 1]; at++) {
    const i = lanes.segmentOf[at];
    if (segments.begin[i] > instant || segments.end[i] <= instant) continue;
    begins.set(segments.address[i], i);
    ends.set(segments.address[i] + segments.bytes[i], i);
  }
  let low = segments.address[segment];
  let high = low + segments.bytes[segment];
  const parts = [segment];
  for (let i = ends.get(low); i !== undefined && segments.address[i] < low; i = ends.get(low)) {
    low = segments.address[i];
    parts.push(i);
  }
  for (let i = begins.get(high); i !== undefined && segments.bytes[i] > 0; i = begins.get(high)) {
    high += segments.bytes[i];
    parts.push(i);
  }
  const base = lanes.base[lane];
  return {low: low - base, high: high - base, parts};
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
  /** @type {[number, number][]} */
  const found = [];
  let bytes = 0;
  store.visitAt(instant, (level, i) => {
    if (level.lane[i] !== lane || level.offset[i] < range.low || level.offset[i] >= range.high) return;
    found.push([level.bytes[i], level.first + i]);
    bytes += level.bytes[i] * store.unit;
  });
  found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return {count: found.length, bytes, largest: found.slice(0, KEEPERS_MOST).map(([, block]) => store.describe(block))};
}

/**
 * The largest holes at a position, the largest first.
 * @param {import("./store.js").Store} store @param {number} position @param {number} top
 */
export function largestHoles(store, position, top) {
  const instant = store.instant(position);
  /** @type {Map<number, [number, number][]>} pieces of each lane: begin and end, in units */
  const used = new Map();
  const ranges = new Map();
  const put = (/** @type {Map<number, [number, number][]>} */ map, /** @type {number} */ lane,
    /** @type {number} */ low, /** @type {number} */ units) => {
    if (!map.has(lane)) map.set(lane, []);
    map.get(lane)?.push([low, low + units]);
  };
  const {segments, lanes} = store;
  for (let i = 0; i < segments.count; i++)
    if (segments.begin[i] <= instant && segments.end[i] > instant)
      put(ranges, segments.lane[i], segments.address[i] - lanes.base[segments.lane[i]], segments.bytes[i]);
  store.visitAt(instant, (level, i) => put(used, level.lane[i], level.offset[i], level.bytes[i]));
  const holes = [];
  for (const [lane, list] of ranges)
    for (const [low, high] of gapsOf(joinPieces(list), joinPieces(used.get(lane) ?? [])))
      holes.push({lane, low, units: high - low, bytes: (high - low) * store.unit,
        address: store.addressText(lane, low)});
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

/**
 * What of `whole` is not in `used`; both are sorted.
 * @param {[number, number][]} whole @param {[number, number][]} used
 */
function gapsOf(whole, used) {
  /** @type {[number, number][]} */
  const gaps = [];
  let at = 0;
  for (const [low, high] of whole) {
    let free = low;
    while (at < used.length && used[at][1] <= low) at++;
    for (let i = at; i < used.length && used[i][0] < high; i++) {
      if (used[i][0] > free) gaps.push([free, used[i][0]]);
      free = Math.max(free, used[i][1]);
    }
    if (free < high) gaps.push([free, high]);
  }
  return gaps;
}

function describeSegment(/** @type {import("./store.js").Store} */ store, /** @type {number} */ i,
  /** @type {number} */ instant) {
  if (i < 0) return null;
  const {segments, lanes} = store;
  const lane = segments.lane[i];
  const range = reservedRange(store, instant, i);
  return {address: store.addressText(lane, range.low), bytes: (range.high - range.low) * store.unit,
    begin: segments.begin[i] - 1, end: segments.end[i] === NEVER ? null : segments.end[i] - 1, flags: segments.flags[i],
    stream: store.facts.streams?.[segments.stream[i]] ?? "", pool: store.facts.pools?.[segments.pool[i]] ?? "",
    cause: segments.cause[i], lines: store.stacks.lines(segments.stack[i])};
}

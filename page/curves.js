// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Reserved, allocated and requested bytes after each entry, under a tree of the least and most values. Any window is
// answered in O(buckets log n).
import {ColumnReader} from "./columns.js";
import {NEVER} from "./store.js";

const FAN_SHIFT = 4;
const FAN = 1 << FAN_SHIFT;
const BUCKET_ENTRIES = 64;

/** Values over instants, with the least and most of ever larger ranges. */
export class Curve {
  /**
   * @param {Float64Array | Uint32Array} least @param {Float64Array | Uint32Array} most of each cell
   * @param {Float64Array | Uint32Array} last @param {number} width instants in a cell @param {number} scale
   */
  constructor(least, most, last, width, scale) {
    this.last = last;
    this.width = width;
    this.scale = scale;
    this.least = [least];
    this.most = [most];
    while (this.least[this.least.length - 1].length > FAN) this.addLevel();
  }

  addLevel() {
    const below = this.least[this.least.length - 1];
    const above = this.most[this.most.length - 1];
    const count = (below.length + FAN - 1) >>> FAN_SHIFT;
    const make = /** @type {any} */ (below.constructor);
    const least = new make(count);
    const most = new make(count);
    for (let i = 0; i < count; i++) {
      const end = Math.min(below.length, (i + 1) << FAN_SHIFT);
      let low = below[i << FAN_SHIFT];
      let high = above[i << FAN_SHIFT];
      for (let j = (i << FAN_SHIFT) + 1; j < end; j++) {
        if (below[j] < low) low = below[j];
        if (above[j] > high) high = above[j];
      }
      least[i] = low;
      most[i] = high;
    }
    this.least.push(least);
    this.most.push(most);
  }

  /** The cell of an instant. A bucket has the instants after its entries; the first one also that before them. */
  cell(/** @type {number} */ instant) {
    const cell = this.width === 1 ? instant : Math.floor((instant - 1) / this.width);
    return Math.max(0, Math.min(this.last.length - 1, cell));
  }

  /** @param {number} instant */
  at(instant) {
    return this.last.length > 0 ? this.last[this.cell(instant)] * this.scale : 0;
  }

  /**
   * The least and most of the instants in [from, to), written to out[0] and out[1].
   * @param {number} from @param {number} to @param {Float64Array} out
   */
  range(from, to, out) {
    let low = Infinity;
    let high = -Infinity;
    let a = this.cell(from);
    let b = Math.max(a, this.cell(to - 1)) + 1;
    for (let level = 0; a < b; level++) {
      const least = this.least[level];
      const most = this.most[level];
      const isTop = level + 1 >= this.least.length;
      while (a < b && (isTop || (a & (FAN - 1)) !== 0)) {
        if (least[a] < low) low = least[a];
        if (most[a] > high) high = most[a];
        a++;
      }
      while (a < b && (b & (FAN - 1)) !== 0) {
        b--;
        if (least[b] < low) low = least[b];
        if (most[b] > high) high = most[b];
      }
      a >>>= FAN_SHIFT;
      b >>>= FAN_SHIFT;
    }
    out[0] = low * this.scale;
    out[1] = high * this.scale;
  }

  /** The first instant in [from, to) at which the curve is highest. @param {number} from @param {number} to */
  argMost(from, to) {
    const out = new Float64Array(2);
    this.range(from, to, out);
    const most = this.most[0];
    const goal = out[1] / this.scale;
    let a = this.cell(from);
    const b = Math.max(a, this.cell(to - 1)) + 1;
    const isWhole = (/** @type {number} */ level) => {
      const size = 1 << (FAN_SHIFT * level);
      return level < this.most.length && (a & (size - 1)) === 0 && a + size <= b;
    };
    while (a < b) {
      let level = 0;
      while (isWhole(level + 1)) level++;
      while (level > 0 && this.most[level][a >>> (FAN_SHIFT * level)] >= goal) level--;
      if (level === 0 && most[a] >= goal) break;
      a += 1 << (FAN_SHIFT * level);
    }
    const cell = Math.min(a, b - 1);
    return this.width === 1 ? cell : Math.max(from, cell * this.width + 1);
  }
}

export class Curves {
  /** @param {Curve} reserved @param {Curve} allocated @param {Curve} requested @param {number} entries */
  constructor(reserved, allocated, requested, entries) {
    this.reserved = reserved;
    this.allocated = allocated;
    this.requested = requested;
    this.entries = entries;
  }

  /** @param {import("./store.js").Store} store with all its blocks */
  static ofStore(store) {
    const count = store.entries + 1;
    // Sums of units of 512 bytes are below 2^32.
    const make = store.unit === 512 ? Uint32Array : Float64Array;
    const reserved = new make(count);
    const {begin, end, bytes} = store.segments;
    addSteps(reserved, begin, end, bytes);
    const allocated = new make(count);
    const requested = new Float64Array(count);
    for (const level of store.levels) {
      addSteps(allocated, level.begin, level.end, level.bytes);
      addRequested(requested, level, store.unit);
    }
    sumUp(reserved);
    sumUp(allocated);
    sumUp(requested);
    return new Curves(new Curve(reserved, reserved, reserved, 1, store.unit),
      new Curve(allocated, allocated, allocated, 1, store.unit), new Curve(requested, requested, requested, 1, 1),
      store.entries);
  }

  /** @param {Uint8Array} bytes of the part `curves` @param {number} entries */
  static ofPart(bytes, entries) {
    const reader = new ColumnReader(bytes);
    const next = () => {
      const [least, most, last] = [0, 1, 2].map(() => reader.wide({isDelta: true, isSigned: true}));
      return new Curve(least, most, last, BUCKET_ENTRIES, 1);
    };
    return new Curves(next(), next(), next(), entries);
  }

  /**
   * @param {Float64Array} edges positions between buckets, one more than there are buckets
   * @returns {{[name: string]: {least: Float64Array, most: Float64Array, last: Float64Array}}}
   */
  buckets(edges) {
    return {reserved: this.curveBuckets(this.reserved, edges), allocated: this.curveBuckets(this.allocated, edges),
      requested: this.curveBuckets(this.requested, edges)};
  }

  /** @param {Curve} curve @param {Float64Array} edges */
  curveBuckets(curve, edges) {
    const count = edges.length - 1;
    const answer = {least: new Float64Array(count), most: new Float64Array(count), last: new Float64Array(count)};
    const pair = new Float64Array(2);
    for (let i = 0; i < count; i++) {
      const [from, to] = bucketInstants(edges, i, this.entries);
      curve.range(from, to, pair);
      answer.least[i] = pair[0];
      answer.most[i] = pair[1];
      answer.last[i] = curve.at(to - 1);
    }
    return answer;
  }

  /** For each bucket, the instant at which most is allocated. @param {Float64Array} edges @returns {Uint32Array} */
  samples(edges) {
    const samples = new Uint32Array(edges.length - 1);
    for (let i = 0; i < samples.length; i++) {
      const [from, to] = bucketInstants(edges, i, this.entries);
      samples[i] = this.allocated.argMost(from, to);
    }
    return samples;
  }
}

/**
 * The instants [from, to) that a bucket shows; one at least. Neighbours share one if the edge lies within a position.
 * @param {Float64Array} edges @param {number} i @param {number} entries @returns {[number, number]}
 */
export function bucketInstants(edges, i, entries) {
  const clamp = (/** @type {number} */ at) => Math.max(0, Math.min(entries, at));
  const from = clamp(Math.floor(edges[i]) + 1);
  const to = Math.ceil(edges[i + 1]) + 1;
  return [from, Math.max(from + 1, Math.min(entries + 1, to))];
}

/** Adds `sizes` at the begins and takes them away at the ends. */
function addSteps(/** @type {Float64Array | Uint32Array} */ sums, /** @type {Uint32Array} */ begins,
  /** @type {Uint32Array} */ ends, /** @type {Uint32Array} */ sizes) {
  for (let i = 0; i < begins.length; i++) {
    if (begins[i] >= sums.length) continue;
    sums[begins[i]] += sizes[i];
    if (ends[i] !== NEVER) sums[ends[i]] -= sizes[i];
  }
}

/** What was requested counts until the memory can be used again. */
function addRequested(/** @type {Float64Array} */ sums, /** @type {import("./store.js").Level} */ level,
  /** @type {number} */ unit) {
  const {begin, gone, bytes, slack} = level;
  for (let i = 0; i < level.count; i++) {
    if (begin[i] >= sums.length) continue;
    const requested = bytes[i] * unit - slack[i];
    sums[begin[i]] += requested;
    if (gone[i] !== NEVER) sums[gone[i]] -= requested;
  }
}

function sumUp(/** @type {Float64Array | Uint32Array} */ sums) {
  for (let i = 1; i < sums.length; i++) sums[i] += sums[i - 1];
}

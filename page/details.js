// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Blocks that the page lacks. If the tool serves the page, it gives those that exist in a window. A question about the
// window is then answered from a Detail, which has all blocks there, instead of from the page alone.
import {ColumnReader} from "./columns.js";
import {Curve, Curves} from "./curves.js";
import {RowIndex} from "./rows.js";

/** Windows that are kept. */
const DETAILS_KEPT = 4;
/** Windows that are known to have too many blocks. */
const COUNTS_KEPT = 16;
/** Instants beside a window that are asked for too, so that a small move needs no new question. */
const MARGIN_LEAST = 1024;

/** A curve whose first cell is a later instant than 0. */
class LateCurve extends Curve {
  /** @param {Float64Array} values @param {number} first instant */
  constructor(values, first) {
    super(values, values, values, 1, 1);
    this.first = first;
  }

  /** @param {number} instant */
  cell(instant) {
    return super.cell(instant - this.first);
  }

  /** @param {number} from @param {number} to */
  argMost(from, to) {
    return this.first + super.argMost(from, to);
  }
}

/**
 * The curves between two instants, from all blocks that exist there.
 * @param {import("./store.js").Store} store @param {number} low @param {number} high
 */
export function windowCurves(store, low, high) {
  const sums = [0, 1, 2].map(() => new Float64Array(high - low + 1));
  const add = (/** @type {number} */ curve, /** @type {number} */ begin, /** @type {number} */ end,
    /** @type {number} */ bytes) => {
    if (begin > high || end <= low) return;
    sums[curve][Math.max(begin, low) - low] += bytes;
    if (end <= high) sums[curve][end - low] -= bytes;
  };
  const {unit, segments} = store;
  for (let i = 0; i < segments.count; i++) add(0, segments.begin[i], segments.end[i], segments.bytes[i] * unit);
  for (const level of store.levels) {
    level.visitChunks(low, high, (from, to) => {
      for (let i = from; i < to; i++) {
        const bytes = level.bytes[i] * unit;
        add(1, level.begin[i], level.end[i], bytes);
        add(2, level.begin[i], level.gone[i], bytes - level.slack[i]);
      }
    });
  }
  for (const values of sums) for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
  const [reserved, allocated, requested] = sums.map((values) => new LateCurve(values, low));
  return new Curves(reserved, allocated, requested, store.entries);
}

/** All blocks that exist between two instants, and what was computed from them. */
export class Detail {
  /**
   * @param {import("./worker.js").DeviceData} data @param {number} low @param {number} high
   * @param {Uint8Array} bytes of the blocks that the page lacks there
   */
  constructor(data, low, high, bytes) {
    this.data = data;
    this.low = low;
    this.high = high;
    this.store = data.store.withLevel(bytes);
    /** @type {Curves | null} */
    this.made = null;
    /** @type {RowIndex | null} */
    this.index = null;
    /** @type {Map<string, any>} */
    this.groups = new Map();
    /** @type {{key: string, rows: Uint32Array}} */
    this.filtered = {key: "", rows: new Uint32Array(0)};
  }

  get curves() {
    this.made ??= windowCurves(this.store, this.low, this.high);
    return this.made;
  }

  /** @param {string} by */
  groupsBy(by) {
    let groups = this.groups.get(by);
    if (!groups) {
      groups = this.data.groupsBy(by).withLevel(this.store.levels[this.store.levels.length - 1]);
      this.groups.clear();
      this.groups.set(by, groups);
    }
    return groups;
  }

  rowIndex() {
    this.index ??= new RowIndex(this.store, this.low, this.high);
    return this.index;
  }
}

/** Asks the tool for the blocks of windows, and keeps the last of them. */
export class Details {
  /**
   * @param {import("./worker.js").DeviceData} data @param {number} device its number
   * @param {(question: string) => Promise<Uint8Array>} load
   */
  constructor(data, device, load) {
    this.data = data;
    this.device = device;
    this.load = load;
    /** @type {Detail[]} the last used one last */
    this.kept = [];
    /** @type {{low: number, high: number, promise: Promise<void>}[]} */
    this.pending = [];
    /** @type {{low: number, high: number, count: number}[]} windows with too many blocks */
    this.counts = [];
    /** Why the last question had no answer. */
    this.trouble = "";
  }

  /** What is there of all instants from `low` to `high`. @param {number} low @param {number} high */
  covering(low, high) {
    const at = this.kept.findIndex((one) => one.low <= low && one.high >= high);
    if (at < 0) return null;
    this.kept.push(...this.kept.splice(at, 1));
    return this.kept[this.kept.length - 1];
  }

  /** What is there of most of these instants. @param {number} low @param {number} high */
  overlapping(low, high) {
    const shared = (/** @type {Detail} */ one) => Math.min(high, one.high) - Math.max(low, one.low) + 1;
    let best = null;
    for (const one of this.kept) if (shared(one) > (best ? shared(best) : 0)) best = one;
    return best;
  }

  /** Blocks that a window is known to lack at least, if they are too many; or 0. */
  countOf(/** @type {number} */ low, /** @type {number} */ high) {
    let count = 0;
    for (const one of this.counts) if (one.low >= low && one.high <= high) count = Math.max(count, one.count);
    return count;
  }

  /**
   * All blocks from one instant to another, and of a margin if that is not too much; null if they are too many, or
   * the tool does not answer.
   * @param {number} low @param {number} high @returns {Promise<Detail | null>}
   */
  async cover(low, high) {
    const margin = Math.max(MARGIN_LEAST, (high - low) >> 1);
    const wide = [Math.max(0, low - margin), Math.min(this.data.store.entries, high + margin)];
    for (const [from, to] of [wide, [low, high]]) {
      if (this.covering(low, high)) break;
      if (this.countOf(from, to) === 0) await this.request(from, to);
    }
    return this.covering(low, high);
  }

  /** Asks, unless a question that covers this one is under way. @param {number} low @param {number} high */
  request(low, high) {
    const under = this.pending.find((one) => one.low <= low && one.high >= high);
    if (under) return under.promise;
    const one = {low, high, promise: this.fetch(low, high).finally(() => {
      this.pending = this.pending.filter((other) => other !== one);
    })};
    this.pending.push(one);
    return one.promise;
  }

  /** @param {number} low @param {number} high */
  async fetch(low, high) {
    try {
      const bytes = await this.load(`blocks?device=${this.device}&from=${low}&to=${high + 1}`);
      const reader = new ColumnReader(bytes);
      const count = reader.plain()[0];
      this.trouble = "";
      if (reader.isAtEnd()) {
        this.counts = [...this.counts, {low, high, count}].slice(-COUNTS_KEPT);
        return;
      }
      this.kept.push(new Detail(this.data, low, high, bytes.subarray(reader.at)));
      if (this.kept.length > DETAILS_KEPT) this.kept.shift();
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
  }

  /**
   * A store that also has the blocks which used a hole last before an instant, and first after it.
   * @param {import("./store.js").Store} store @param {number} instant @param {number} lane
   * @param {{low: number, units: number}} hole
   */
  async withNearest(store, instant, lane, hole) {
    try {
      const bytes = await this.load(`nearest?device=${this.device}&position=${instant}&lane=${lane}&low=${hole.low}` +
        `&high=${hole.low + hole.units}`);
      const reader = new ColumnReader(bytes);
      reader.plain();
      return store.withLevel(bytes.subarray(reader.at));
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
      return store;
    }
  }
}

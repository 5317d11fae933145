// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The segments, blocks, stacks and times of one device, as typed arrays. Instant i is the state after i entries: what
// begins with entry e exists from instant e + 1 on. Position e of the axis shows instant e + 1.
import {UNIT_BYTES, cutText} from "./units.js";
import {upperBound, lowerBound} from "./scale.js";
import {ColumnReader} from "./columns.js";

/** @typedef {import("./facts.d.ts").DeviceFacts} DeviceFacts */

/** The end of what is still there when the recording ends. */
export const NEVER = 0xffffffff;
const CHUNK_SHIFT = 8;

export const SEGMENT_EXPANDABLE = 1;
export const SEGMENT_LARGE = 2;
export const SEGMENT_ALIAS = 4;
export const SEGMENT_INVENTED = 8;
/** Its memory was given back while blocks stayed there: it is not reserved. */
export const SEGMENT_PARKED = 16;
const SEGMENT_COLUMNS = ["address", "bytes", "begin", "end", "stream", "pool", "lane", "flags", "stack", "cause"];

/** Blocks of about the same life, in the order of their begin. All arrays have one value for each block. */
export class Level {
  /** @param {Uint8Array} bytes of the part @param {number} first number of its first block @param {number} entries */
  constructor(bytes, first, entries) {
    const reader = new ColumnReader(bytes);
    this.first = first;
    this.begin = reader.rising();
    this.end = reader.plain();
    this.gone = reader.plain();
    this.lane = reader.plain();
    this.offset = reader.plain();
    this.bytes = reader.plain();
    this.slack = reader.plain();
    this.stack = reader.plain();
    this.stream = reader.plain();
    this.pool = reader.plain();
    this.count = this.begin.length;
    for (const column of [this.end, this.gone, this.lane, this.offset, this.bytes, this.slack, this.stack, this.stream,
      this.pool])
      if (column.length !== this.count) throw new Error("columns of blocks differ in length");
    const chunks = (this.count + (1 << CHUNK_SHIFT) - 1) >>> CHUNK_SHIFT;
    this.chunkGone = new Uint32Array(chunks);
    /** The largest block of each chunk. */
    this.chunkBytes = new Uint32Array(chunks);
    /** @type {{values: ArrayLike<number> | null, widths: Float64Array} | null} */
    this.chunkWide = null;
    /** The longest time between begin and gone, in entries. */
    this.span = 0;
    this.finish(entries);
  }

  /**
   * Turns lives and waits into ends: `end` is the release, `gone` is when the memory can be used again. Without either
   * the block lives to the end; without a life it was released before the recording began.
   */
  finish(/** @type {number} */ entries) {
    const {begin, end, gone, bytes, chunkGone, chunkBytes} = this;
    for (let i = 0; i < this.count; i++) {
      const released = end[i] === 0 && gone[i] === 0 ? NEVER : begin[i] + end[i];
      end[i] = released > entries ? NEVER : released;
      const free = end[i] === NEVER ? NEVER : released + gone[i];
      gone[i] = free > entries ? NEVER : free;
      const chunk = i >>> CHUNK_SHIFT;
      if (gone[i] > chunkGone[chunk]) chunkGone[chunk] = gone[i];
      if (bytes[i] > chunkBytes[chunk]) chunkBytes[chunk] = bytes[i];
      const span = gone[i] === NEVER ? Infinity : free - begin[i];
      if (span > this.span) this.span = span;
    }
  }

  /**
   * The longest life in each chunk, as a difference of x; null: not known for this axis.
   * @param {import("./scale.js").Scale} scale
   */
  chunkWidths(scale) {
    if (scale.knots) return null;
    if (this.chunkWide?.values !== scale.values || !this.chunkWide) {
      const widths = new Float64Array(this.chunkGone.length);
      for (let i = 0; i < this.count; i++) {
        const wide = this.gone[i] === NEVER ? Infinity : scale.toX(this.gone[i] - 1) - scale.toX(this.begin[i] - 1);
        if (wide > widths[i >>> CHUNK_SHIFT]) widths[i >>> CHUNK_SHIFT] = wide;
      }
      this.chunkWide = {values: scale.values, widths};
    }
    return this.chunkWide.widths;
  }

  /**
   * Calls `visit` with the range [from, to) of blocks of which some may exist between two instants.
   * @param {number} low first instant @param {number} high last instant
   * @param {(from: number, to: number) => void} visit
   * @param {(chunk: number) => boolean} [isWanted] chunks of which no block is needed are left out
   */
  visitChunks(low, high, visit, isWanted) {
    const to = upperBound(this.begin, high);
    const from = this.span === Infinity ? 0 : lowerBound(this.begin, low - this.span);
    for (let i = from; i < to; ) {
      const chunk = i >>> CHUNK_SHIFT;
      const next = Math.min(to, (chunk + 1) << CHUNK_SHIFT);
      if (this.chunkGone[chunk] > low && (!isWanted || isWanted(chunk))) visit(i, next);
      i = next;
    }
  }
}

/** The ranges of reserved memory, in the order of their begin. */
export class Segments {
  /** @param {Uint8Array} bytes of the part @param {number} entries */
  constructor(bytes, entries) {
    const reader = new ColumnReader(bytes);
    this.address = reader.wide({isDelta: true, isSigned: true});
    this.bytes = reader.plain();
    this.begin = reader.rising();
    this.end = reader.plain();
    this.stream = reader.plain();
    this.pool = reader.plain();
    this.lane = reader.plain();
    this.flags = reader.plain();
    this.stack = reader.plain();
    this.cause = reader.plain();
    this.count = this.address.length;
    for (let i = 0; i < this.count; i++) {
      const end = this.end[i] === 0 ? NEVER : this.begin[i] + this.end[i];
      this.end[i] = end > entries ? NEVER : end;
    }
    /** Those that are parked, with the same columns. @type {any} */
    this.parked = this.takeParked();
  }

  /** Takes the rows of parked ranges out. */
  takeParked() {
    const isParked = Array.from(this.flags, (flags) => (flags & SEGMENT_PARKED) !== 0);
    /** @type {any} */
    const parked = {count: isParked.filter(Boolean).length};
    for (const name of SEGMENT_COLUMNS) {
      const column = /** @type {any} */ (this)[name];
      parked[name] = parked.count > 0 ? column.filter((/** @type {number} */ _, /** @type {number} */ i) => isParked[i])
        : column.subarray(0, 0);
      if (parked.count > 0)
        /** @type {any} */ (this)[name] =
          column.filter((/** @type {number} */ _, /** @type {number} */ i) => !isParked[i]);
    }
    this.count -= parked.count;
    return parked;
  }
}

/** Rows of the picture: where each begins in the stack of all of them, in units of 512 bytes. */
export class Lanes {
  /** @param {Segments} segments */
  constructor(segments) {
    let count = 1;
    for (const ranges of [segments, segments.parked])
      for (let i = 0; i < ranges.count; i++) count = Math.max(count, ranges.lane[i] + 1);
    if (count > 1 << 24) throw new Error("the page has too many lanes");
    this.count = count;
    this.base = new Float64Array(count).fill(Infinity);
    this.extent = new Float64Array(count);
    this.firstSegment = new Uint32Array(count + 1);
    this.segmentOf = new Uint32Array(segments.count);
    this.low = new Float64Array(count);
    this.total = 0;
    this.gather(segments);
  }

  gather(/** @type {Segments} */ segments) {
    const {base, extent, firstSegment, segmentOf} = this;
    const {parked} = segments;
    for (let i = 0; i < segments.count; i++) {
      const lane = segments.lane[i];
      base[lane] = Math.min(base[lane], segments.address[i]);
      firstSegment[lane + 1]++;
    }
    for (let i = 0; i < parked.count; i++)
      base[parked.lane[i]] = Math.min(base[parked.lane[i]], parked.address[i]);
    for (let i = 0; i < parked.count; i++) {
      const lane = parked.lane[i];
      extent[lane] = Math.max(extent[lane], parked.address[i] + parked.bytes[i] - base[lane]);
    }
    for (let lane = 0; lane < this.count; lane++) firstSegment[lane + 1] += firstSegment[lane];
    const next = firstSegment.slice();
    for (let i = 0; i < segments.count; i++) {
      const lane = segments.lane[i];
      segmentOf[next[lane]++] = i;
      extent[lane] = Math.max(extent[lane], segments.address[i] + segments.bytes[i] - base[lane]);
    }
  }

  /** Places the lanes one below the other, with a gap between them. */
  stack() {
    let total = 0;
    for (let lane = 0; lane < this.count; lane++) total += this.extent[lane];
    const gap = this.count > 1 ? Math.min(total / 300, (0.08 * total) / this.count) : 0;
    let low = 0;
    for (let lane = 0; lane < this.count; lane++) {
      this.low[lane] = low;
      low += this.extent[lane] + gap;
    }
    this.total = Math.max(1, low - gap);
  }

  /** The lane at a height, or the one above the gap there. @param {number} y */
  at(y) {
    return Math.max(0, upperBound(this.low, y) - 1);
  }
}

/** Frames and stacks as texts. Index 0 of each list stands for none. */
export class Stacks {
  /** @param {{texts: string[], frames: number[][], stacks: number[][], own: number[], folded: number[]} | null} json */
  constructor(json) {
    /** @type {string[]} */
    this.texts = Array.from(json?.texts ?? [""], (text) => cutText(String(text)));
    this.frames = json?.frames ?? [[0, 0, 0]];
    this.stacks = json?.stacks ?? [[]];
    this.own = json?.own ?? [-1];
    this.folded = json?.folded ?? [0];
    this.hasAny = this.stacks.length > 1;
  }

  /** @param {number} frame */
  frameText(frame) {
    const [name, file, line] = this.frames[frame] ?? [0, 0, 0];
    const path = shortPath(String(this.texts[file] ?? ""));
    const where = path ? path + (line > 0 ? ":" + line : "") : "";
    return [where, String(this.texts[name] ?? "")].filter(Boolean).join(" ") || "(unknown)";
  }

  /** @param {number} frame */
  frameFile(frame) {
    const file = this.frames[frame]?.[1] ?? 0;
    return shortPath(String(this.texts[file] ?? "")) || "(unknown)";
  }

  /** The frame of the user's line, or the innermost; -1 without a stack. @param {number} stack */
  ownFrame(stack) {
    const own = this.own[stack] ?? -1;
    if (own >= 0) return own;
    return this.stacks[stack]?.[0] ?? -1;
  }

  /** @param {number} stack */
  siteText(stack) {
    const frame = this.ownFrame(stack);
    return frame < 0 ? "(no stack)" : this.frameText(frame);
  }

  /** All frames, innermost first. @param {number} stack */
  lines(stack) {
    const frames = this.stacks[stack] ?? [];
    const own = this.ownFrame(stack);
    return Array.from(frames, (frame) => ({
      text: this.frameText(frame), isFolded: Boolean(this.folded[frame]), isOwn: frame === own}));
  }
}

/** A path from the package on, or its last name. @param {string} path */
export function shortPath(path) {
  const parts = path.split("/");
  const packages = Math.max(parts.lastIndexOf("site-packages"), parts.lastIndexOf("dist-packages"));
  return packages >= 0 ? parts.slice(packages + 1).join("/") : parts[parts.length - 1];
}

/** Entries that are neither of a block nor of a segment. */
export class Others {
  /** @param {Uint8Array} bytes of the part */
  constructor(bytes) {
    const reader = new ColumnReader(bytes);
    this.at = reader.rising();
    this.action = reader.plain();
    this.bytes = reader.wide({});
    this.text = reader.plain();
    this.stack = reader.plain();
    this.count = this.at.length;
  }
}

export class Store {
  /** @param {DeviceFacts} facts of the device */
  constructor(facts) {
    this.facts = facts;
    this.entries = facts.entries;
    /** Bytes of the unit of addresses, offsets and sizes. */
    this.unit = facts.unit ?? UNIT_BYTES;
    /** @type {Level[]} in the order of the parts: the longest lives first */
    this.levels = [];
    this.blocks = 0;
    this.segments = new Segments(new Uint8Array(10), 0);
    this.lanes = new Lanes(this.segments);
    this.stacks = new Stacks(null);
    /** @type {Others | null} */
    this.others = null;
    /** @type {Float64Array | null} microseconds since the first entry, never falling */
    this.times = null;
    /** Everything was read. */
    this.isWhole = false;
    /** Rises with each part, so that what was computed before it is known to be old. */
    this.age = 0;
  }

  addSegments(/** @type {Uint8Array} */ bytes) {
    this.segments = new Segments(bytes, this.entries);
    this.lanes = new Lanes(this.segments);
    this.lanes.stack();
    this.age++;
  }

  /** Blocks of a part, with numbers behind those that are there. @param {Uint8Array} bytes */
  readLevel(bytes) {
    const level = new Level(bytes, this.blocks, this.entries);
    const lanes = this.lanes.count;
    for (let i = 0; i < level.count; i++) if (level.lane[i] >= lanes) level.lane[i] = lanes - 1;
    return level;
  }

  addLevel(/** @type {Uint8Array} */ bytes) {
    const level = this.readLevel(bytes);
    this.levels.push(level);
    this.blocks += level.count;
    this.age++;
  }

  /** The same store with one more level; this one stays as it is. @param {Uint8Array} bytes @returns {Store} */
  withLevel(bytes) {
    const level = this.readLevel(bytes);
    const store = Object.create(this);
    store.levels = [...this.levels, level];
    store.blocks = this.blocks + level.count;
    return store;
  }

  addTimes(/** @type {Uint8Array} */ bytes) {
    const times = new ColumnReader(bytes).wide({isDelta: true, isSigned: true});
    const first = times.length > 0 ? times[0] : 0;
    let last = 0;
    for (let i = 0; i < times.length; i++) times[i] = last = Math.max(last, times[i] - first);
    this.times = times;
    this.age++;
  }

  addStacks(/** @type {Uint8Array} */ bytes) {
    this.stacks = new Stacks(JSON.parse(new TextDecoder().decode(bytes)));
    this.age++;
  }

  addOthers(/** @type {Uint8Array} */ bytes) {
    this.others = new Others(bytes);
    this.age++;
  }

  /** The instant that a position shows. @param {number} position */
  instant(position) {
    return Math.max(0, Math.min(this.entries, Math.floor(position) + 1));
  }

  /** @param {number} block @returns {[Level, number]} its level, and its index there */
  find(block) {
    let at = this.levels.length - 1;
    while (at > 0 && this.levels[at].first > block) at--;
    return [this.levels[at], block - this.levels[at].first];
  }

  /** Everything about one block, for people. @param {number} block */
  describe(block) {
    const [level, i] = this.find(block);
    const bytes = level.bytes[i] * this.unit;
    return {
      block, bytes, requested: bytes - level.slack[i], address: this.addressText(level.lane[i], level.offset[i]),
      lane: level.lane[i], offset: level.offset[i], units: level.bytes[i], begin: level.begin[i] - 1,
      end: level.end[i] === NEVER ? null : level.end[i] - 1, gone: level.gone[i] === NEVER ? null : level.gone[i] - 1,
      stream: this.facts.streams?.[level.stream[i]] ?? String(level.stream[i]), stack: level.stack[i],
      pool: this.facts.pools?.[level.pool[i]] ?? "",
      site: this.stacks.siteText(level.stack[i]), lines: this.stacks.lines(level.stack[i])};
  }

  /** @param {number} lane @param {number} offset */
  addressText(lane, offset) {
    const base = this.lanes.base[lane];
    return Number.isFinite(base) ? "0x" + (BigInt(Math.floor(base + offset)) * BigInt(this.unit)).toString(16) : "?";
  }

  /**
   * Calls `visit` for every block that occupies memory at an instant, also while it waits.
   * @param {number} instant @param {(level: Level, i: number) => void} visit
   */
  visitAt(instant, visit) {
    for (const level of this.levels) {
      const {begin, gone} = level;
      level.visitChunks(instant, instant, (from, to) => {
        for (let i = from; i < to; i++) if (begin[i] <= instant && gone[i] > instant) visit(level, i);
      });
    }
  }
}

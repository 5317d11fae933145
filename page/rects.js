// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The picture of address over time: a rectangle for each segment and block that is a pixel or more, and the mean colour
// of all smaller ones in a grid of cells.
import {NEVER, SEGMENT_ALIAS} from "./store.js";

export const RECT_SEGMENT = 0;
export const RECT_BLOCK = 1;
export const RECT_WAITING = 2;
export const RECT_ALIAS = 3;

const RECTS_MOST = 1 << 19;
/** Rectangles of an answer: more cost too much in each frame. The smallest ones go to the grid. */
const RECTS_SHOWN = 30000;
/** Parked ranges of an answer: the tallest ones. */
const PARKED_SHOWN = 2000;
const CELL_WIDE = 2;

/**
 * A window of the picture. x is in units of the scale, y in units of 512 bytes down the stack of lanes.
 * `most` rectangles are shown; `leastArea` is what windowRects() said for this window.
 * @typedef {{from: number, to: number, low: number, high: number, width: number, height: number, most?: number,
 *   leastArea?: number}} Window
 */

/** Rectangles in a list that never grows: what has no room goes to the grid. */
class RectList {
  constructor() {
    this.box = new Float32Array(4 * RECTS_MOST);
    this.look = new Uint8Array(2 * RECTS_MOST);
    this.id = new Uint32Array(RECTS_MOST);
    this.count = 0;
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h */
  add(x, y, w, h, /** @type {number} */ colour, /** @type {number} */ kind, /** @type {number} */ id) {
    const at = this.count++;
    this.box[4 * at] = x;
    this.box[4 * at + 1] = y;
    this.box[4 * at + 2] = w;
    this.box[4 * at + 3] = h;
    this.look[2 * at] = colour;
    this.look[2 * at + 1] = kind;
    this.id[at] = id;
  }

  /**
   * Keeps the largest rectangles from the first on. @param {number} first @param {number} most
   * @returns {number} the least area of those kept
   */
  keepLargest(first, most) {
    if (this.count - first <= most) return 0;
    const {box, look, id} = this;
    const areas = new Float32Array(this.count - first);
    for (let i = first; i < this.count; i++) areas[i - first] = box[4 * i + 2] * box[4 * i + 3];
    const least = areas.slice().sort()[areas.length - most];
    let kept = first;
    for (let i = first; i < this.count; i++) {
      if (areas[i - first] < least || kept - first >= most) continue;
      box.copyWithin(4 * kept, 4 * i, 4 * i + 4);
      look.copyWithin(2 * kept, 2 * i, 2 * i + 2);
      id[kept++] = id[i];
    }
    this.count = kept;
    return least;
  }

  answer() {
    const count = this.count;
    return {count, box: this.box.slice(0, 4 * count), look: this.look.slice(0, 2 * count), id: this.id.slice(0, count)};
  }
}

/** @type {RectList | null} */
let rectScratch = null;

function rectList() {
  rectScratch ??= new RectList();
  rectScratch.count = 0;
  return rectScratch;
}

/** Colour and coverage of cells; values are sums over the parts of blocks that lie in a cell. */
class Grid {
  /** @param {Window} window @param {Uint8Array} palette red, green, blue of each colour */
  constructor(window, palette) {
    this.columns = Math.max(1, Math.ceil(window.width / CELL_WIDE));
    this.rows = Math.max(1, Math.ceil(window.height));
    this.sums = new Float32Array(4 * this.columns * this.rows);
    this.runs = new Float32Array(4 * this.columns * this.rows);
    this.palette = palette;
    this.scaleX = this.columns;
    this.scaleY = this.rows;
  }

  /** Adds a box, with edges between 0 and 1. */
  add(/** @type {number} */ x0, /** @type {number} */ y0, /** @type {number} */ x1, /** @type {number} */ y1,
    /** @type {number} */ colour) {
    const left = Math.max(0, x0 * this.scaleX);
    const right = Math.min(this.columns, x1 * this.scaleX);
    const top = Math.max(0, y0 * this.scaleY);
    const bottom = Math.min(this.rows, y1 * this.scaleY);
    const first = Math.floor(left);
    const last = Math.ceil(right) - 1;
    if (last < first) return;
    for (let row = Math.floor(top); row < bottom; row++) {
      const tall = Math.min(bottom, row + 1) - Math.max(top, row);
      const at = row * this.columns;
      if (first === last) {
        this.put(this.sums, at + first, tall * (right - left), colour);
        continue;
      }
      this.put(this.sums, at + first, tall * (first + 1 - left), colour);
      this.put(this.sums, at + last, tall * (right - last), colour);
      if (last - first < 2) continue;
      this.put(this.runs, at + first + 1, tall, colour);
      this.put(this.runs, at + last, -tall, colour);
    }
  }

  put(/** @type {Float32Array} */ values, /** @type {number} */ cell, /** @type {number} */ share,
    /** @type {number} */ colour) {
    const at = 4 * cell;
    values[at] += share * this.palette[3 * colour];
    values[at + 1] += share * this.palette[3 * colour + 1];
    values[at + 2] += share * this.palette[3 * colour + 2];
    values[at + 3] += share;
  }

  /** Adds the runs, each of which is stored by its begin and its end. */
  addRuns() {
    const {runs, sums} = this;
    for (let row = 0; row < this.rows; row++) {
      for (let channel = 0; channel < 4; channel++) {
        let run = 0;
        for (let column = 0; column < this.columns; column++) {
          const at = 4 * (row * this.columns + column) + channel;
          run += runs[at];
          sums[at] += run;
        }
      }
    }
  }

  /** The mean colour of each cell, with its coverage as alpha (not multiplied). */
  answer() {
    this.addRuns();
    const pixels = new Uint8ClampedArray(this.sums.length);
    for (let at = 0; at < pixels.length; at += 4) {
      const share = this.sums[at + 3];
      if (share < 1e-4) continue;
      pixels[at] = this.sums[at] / share;
      pixels[at + 1] = this.sums[at + 1] / share;
      pixels[at + 2] = this.sums[at + 2] / share;
      pixels[at + 3] = 255 * Math.min(1, share);
    }
    return {columns: this.columns, rows: this.rows, pixels};
  }
}

/** Translates instants to x between 0 and 1 in a window. */
class Projection {
  /** @param {import("./scale.js").Scale} scale @param {Window} window @param {number} entries */
  constructor(scale, window, entries) {
    this.x0 = scale.toX(window.from);
    this.factor = 1 / (scale.toX(window.to) - this.x0 || 1);
    this.values = scale.knots ? null : scale.values;
    this.scale = scale;
    this.isEntry = scale.kind === "entry";
    this.end = scale.toX(entries);
  }

  /** @param {number} instant */
  x(instant) {
    if (instant === NEVER) return (this.end - this.x0) * this.factor;
    const position = instant - 1;
    if (this.isEntry) return (position - this.x0) * this.factor;
    const values = this.values;
    if (values && position >= 0 && position < values.length) return (values[position] - this.x0) * this.factor;
    return (this.scale.toX(position) - this.x0) * this.factor;
  }
}

/**
 * Segments and blocks of a pixel or more, in the order in which they are drawn: what comes later lies on top.
 * @param {import("./store.js").Store} store @param {import("./scale.js").Scale} scale
 * @param {import("./groups.js").Groups} groups @param {Window} window
 */
export function windowRects(store, scale, groups, window) {
  const list = rectList();
  const project = new Projection(scale, window, store.entries);
  const low = store.instant(window.from);
  const high = store.instant(window.to);
  addSegments(list, store, project, window, low, high);
  const segments = list.count;
  store.levels.forEach((level, at) => {
    const column = groups.columns[at];
    if (column) addBlocks(list, store, level, column, groups.colours, project, window, low, high);
  });
  const leastArea = list.keepLargest(segments, window.most ?? RECTS_SHOWN);
  return {...list.answer(), segments, leastArea, parked: windowParked(store, window, low, high)};
}

/**
 * The parked ranges of a window that are a pixel tall or more, which are drawn over the blocks in them: positions, and
 * units down the stack of lanes.
 * @param {import("./store.js").Store} store @param {Window} window @param {number} low @param {number} high instants
 */
function windowParked(store, window, low, high) {
  const {segments: {parked}, lanes} = store;
  const found = [];
  const leastTall = (window.high - window.low) / window.height;
  for (let i = 0; i < parked.count; i++) {
    const from = lanes.low[parked.lane[i]] + parked.address[i] - lanes.base[parked.lane[i]];
    const to = from + parked.bytes[i];
    if (parked.begin[i] > high || parked.end[i] <= low || to <= window.low || from >= window.high) continue;
    if (to - from < leastTall) continue;
    found.push({begin: parked.begin[i] - 1, end: parked.end[i] === NEVER ? null : parked.end[i] - 1, low: from,
      high: to});
  }
  if (found.length <= PARKED_SHOWN) return found;
  return found.sort((a, b) => b.high - b.low - (a.high - a.low)).slice(0, PARKED_SHOWN);
}

/** A segment is drawn at least a pixel tall and wide: what is reserved is never invisible. */
function addSegments(/** @type {RectList} */ list, /** @type {import("./store.js").Store} */ store,
  /** @type {Projection} */ project, /** @type {Window} */ window, /** @type {number} */ low,
  /** @type {number} */ high) {
  const {segments, lanes} = store;
  const tall = window.high - window.low;
  for (let i = 0; i < segments.count && list.count < RECTS_MOST; i++) {
    if (segments.begin[i] > high || segments.end[i] <= low) continue;
    const lane = segments.lane[i];
    const y = (lanes.low[lane] + segments.address[i] - lanes.base[lane] - window.low) / tall;
    const h = segments.bytes[i] / tall;
    if (y + h <= 0 || y >= 1) continue;
    const x = Math.max(-1, project.x(segments.begin[i]));
    const w = Math.max(Math.min(2, project.x(segments.end[i])) - x, 1 / window.width);
    list.add(x, y, w, Math.max(h, 1 / window.height), 0, segments.flags[i] & SEGMENT_ALIAS ? RECT_ALIAS
      : RECT_SEGMENT, i);
  }
}

/** Memory that is free again with the next entry did not wait for anything: it is shown as a block until then. */
const PLAIN_WAIT = 1;

function addBlocks(/** @type {RectList} */ list, /** @type {import("./store.js").Store} */ store,
  /** @type {import("./store.js").Level} */ level, /** @type {Uint16Array} */ column,
  /** @type {Uint8Array} */ colours, /** @type {Projection} */ project, /** @type {Window} */ window,
  /** @type {number} */ low, /** @type {number} */ high) {
  const {begin, end, gone, lane, offset, bytes} = level;
  const laneLow = store.lanes.low;
  const tall = 1 / (window.high - window.low);
  const leastX = 1 / window.width;
  const leastY = 1 / window.height;
  const widths = level.chunkWidths(project.scale);
  const narrow = (leastX / project.factor) * (1 - 1e-9);
  const isWanted = (/** @type {number} */ chunk) =>
    level.chunkBytes[chunk] * tall >= leastY && (!widths || widths[chunk] >= narrow);
  level.visitChunks(low, high, (from, to) => {
    for (let i = from; i < to && list.count + 2 <= RECTS_MOST; i++) {
      const h = bytes[i] * tall;
      if (gone[i] <= low || h < leastY) continue;
      const y = (laneLow[lane[i]] + offset[i] - window.low) * tall;
      if (y + h <= 0 || y >= 1) continue;
      const x = project.x(begin[i]);
      const isPlain = gone[i] - end[i] <= PLAIN_WAIT;
      const released = project.x(isPlain ? gone[i] : end[i]);
      if (released - x >= leastX) {
        const left = Math.max(-1, x);
        list.add(left, y, Math.min(2, released) - left, h, colours[column[i]], RECT_BLOCK, level.first + i);
      }
      if (isPlain) continue;
      const free = project.x(gone[i]);
      if (free - released < leastX) continue;
      const left = Math.max(-1, released);
      list.add(left, y, Math.min(2, free) - left, h, colours[column[i]], RECT_WAITING, level.first + i);
    }
  }, isWanted);
}

/** Chunks of blocks between two pauses. */
const CHUNKS_AT_ONCE = 32;

/**
 * The mean of all blocks that windowRects() leaves out because they are too small. It looks at every block, which may
 * take long, so it calls `pause` now and then.
 * @param {import("./store.js").Store} store @param {import("./scale.js").Scale} scale
 * @param {import("./groups.js").Groups} groups @param {Window} window @param {Uint8Array} palette
 * @param {() => Promise<void>} pause
 */
export async function windowGrid(store, scale, groups, window, palette, pause) {
  const grid = new Grid(window, palette);
  const project = new Projection(scale, window, store.entries);
  const low = store.instant(window.from);
  const high = store.instant(window.to);
  const {levels} = store;
  for (let at = 0; at < levels.length; at++) {
    const column = groups.columns[at];
    if (!column) continue;
    /** @type {number[]} */
    const ranges = [];
    levels[at].visitChunks(low, high, (from, to) => ranges.push(from, to));
    for (let i = 0; i < ranges.length; i += 2) {
      if (i % (2 * CHUNKS_AT_ONCE) === 0) await pause();
      addSmall(grid, store, levels[at], column, groups.colours, project, window, low, ranges[i], ranges[i + 1]);
    }
  }
  return grid.answer();
}

function addSmall(/** @type {Grid} */ grid, /** @type {import("./store.js").Store} */ store,
  /** @type {import("./store.js").Level} */ level, /** @type {Uint16Array} */ column,
  /** @type {Uint8Array} */ colours, /** @type {Projection} */ project, /** @type {Window} */ window,
  /** @type {number} */ low, /** @type {number} */ from, /** @type {number} */ to) {
  const {begin, end, gone, lane, offset, bytes} = level;
  const tall = 1 / (window.high - window.low);
  const leastX = 1 / window.width;
  const leastY = 1 / window.height;
  const leastArea = window.leastArea ?? 0;
  const laneLow = store.lanes.low;
  for (let i = from; i < to; i++) {
    if (gone[i] <= low) continue;
    const h = bytes[i] * tall;
    const y = (laneLow[lane[i]] + offset[i] - window.low) * tall;
    if (y + h <= 0 || y >= 1) continue;
    const x = project.x(begin[i]);
    const released = project.x(gone[i] - end[i] <= PLAIN_WAIT ? gone[i] : end[i]);
    const shown = Math.fround(Math.fround(Math.min(2, released) - Math.max(-1, x)) * Math.fround(h));
    if (h >= leastY && released - x >= leastX && shown >= leastArea) continue;
    grid.add(x, y, released, y + h, colours[column[i]]);
  }
}

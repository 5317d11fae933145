// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The worker: keeps the data, answers questions. {id, do, device, …} gives {id, answer} or {id, error}. Parts arrive as
// {part, codec, text}; after each one that was decoded, {progress: device} tells the page to ask again. A question is
// answered from the blocks of the page, or from a Detail of its window, which has the blocks that the page lacks.
import {ColumnReader, base64Bytes, unpackBytes} from "./columns.js";
import {UNIT_BYTES} from "./units.js";
import {Store} from "./store.js";
import {Curves} from "./curves.js";
import {Groups} from "./groups.js";
import {entryScale, timeScale, stepScale} from "./scale.js";
import {windowRects, windowGrid} from "./rects.js";
import {largestHoles, pointAt} from "./holes.js";
import {windowAreas, groupFigures} from "./areas.js";
import {StackTree, stackBytes, flameTree, flameDifference} from "./flame.js";
import {RowIndex, filterRows, describeRows} from "./rows.js";
import {Details} from "./details.js";

/** What the worker keeps of one device, and what it computed from it. */
export class DeviceData {
  /** @param {any} facts of the device @param {(name: string) => Promise<Uint8Array>} part gives a decoded part */
  constructor(facts, part) {
    this.facts = facts;
    this.part = part;
    this.store = new Store(facts);
    /** @type {Curves | null} */
    this.curves = null;
    /** @type {RowIndex | null} */
    this.index = null;
    /** @type {Map<string, Groups>} */
    this.groups = new Map();
    /** @type {Map<boolean, StackTree>} */
    this.trees = new Map();
    /** @type {{key: string, rows: Uint32Array}} */
    this.filtered = {key: "", rows: new Uint32Array(0)};
    /** @type {Promise<void> | null} */
    this.opening = null;
    /** @type {Details | null} what the page lacks, if the tool can be asked for it */
    this.details = null;
  }

  /** Reads all parts, in the order of their importance. @param {() => void} tell after each */
  open(tell) {
    this.opening ??= this.read(tell);
    return this.opening;
  }

  async read(/** @type {() => void} */ tell) {
    const {store, facts, part} = this;
    const names = facts.parts ?? {};
    if (names.segments) store.addSegments(await part(names.segments));
    if (names.stacks) store.addStacks(await part(names.stacks));
    for (const name of names.blocks ?? []) {
      store.addLevel(await part(name));
      tell();
    }
    if (names.others) store.addOthers(await part(names.others));
    if (names.times) store.addTimes(await part(names.times));
    this.curves = names.curves ? Curves.ofPart(await part(names.curves), store.entries) : Curves.ofStore(store);
    store.isWhole = true;
    tell();
  }

  /** @param {string} kind of the x axis */
  scale(kind) {
    const {store, facts} = this;
    if (kind === "time") return timeScale(store.entries, store.times, facts.overview);
    if (kind === "step") return stepScale(store.entries, stepRows(facts));
    return entryScale(store.entries);
  }

  /** @param {string} by */
  groupsBy(by) {
    let groups = this.groups.get(by);
    if (!groups || groups.age !== this.store.age) {
      this.groups.clear();
      groups = new Groups(this.store, by);
      this.groups.set(by, groups);
    }
    return groups;
  }

  /** @param {boolean} isFolded */
  tree(isFolded) {
    let tree = this.trees.get(isFolded);
    if (!tree) this.trees.set(isFolded, (tree = new StackTree(this.store.stacks, isFolded)));
    return tree;
  }

  rowIndex() {
    this.index ??= new RowIndex(this.store);
    return this.index;
  }

  /** Positions between buckets of equal width on the axis. */
  edges(/** @type {any} */ question) {
    const scale = this.scale(question.x);
    const from = scale.toX(question.from);
    const to = scale.toX(question.to);
    const edges = new Float64Array(question.buckets + 1);
    for (let i = 0; i < edges.length; i++) edges[i] = scale.toEntry(from + ((to - from) * i) / question.buckets);
    edges[0] = question.from;
    edges[question.buckets] = question.to;
    return edges;
  }
}

/** The first and the last instant that a question is about. @param {Store} store @param {any} question */
function instantsOf(store, question) {
  if (question.filter)
    return [Math.max(0, Math.floor(question.filter.from ?? 0)), store.instant(question.filter.to ?? store.entries)];
  const from = question.from ?? question.entry ?? 0;
  const isInstant = question.from === undefined || question.kind === "used";
  return [store.instant(from), store.instant(isInstant ? from : question.to)];
}

/** Pictures are drawn at once from the blocks that are there. */
const NEAR = new Set(["rects", "grid", "legend"]);
/** These show many instants; the page asks again when all blocks are there. */
const AT_ONCE = new Set(["curves", "areas"]);
/** These wait until all blocks are there. */
const COMPLETE = new Set(["group", "at", "holes", "flame", "rows"]);

/**
 * What a question is answered from: the page, or a Detail.
 * @param {DeviceData} data @param {string} what @param {any} question
 * @returns {Promise<DeviceData | import("./details.js").Detail>}
 */
async function sourceOf(data, what, question) {
  const {details, store} = data;
  if (!details || !store.isWhole) return data;
  const [low, high] = instantsOf(store, question);
  if (NEAR.has(what)) return details.overlapping(low, high) ?? data;
  if (AT_ONCE.has(what)) return details.covering(low, high) ?? data;
  return (COMPLETE.has(what) ? await details.cover(low, high) : null) ?? data;
}

/** @param {any} facts @returns {any[]} */
export function stepRows(facts) {
  return Array.isArray(facts.steps) ? facts.steps : facts.steps?.rows ?? [];
}

/** How long the worker works without a pause where it looks at every block. */
const WORK_MS = 6;

/**
 * Makes a function to be called between pieces of work: after some time it rests as long. On a computer with few
 * processors, the page draws its frames meanwhile. @param {number} most in ms
 */
function pauses(most) {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < most) return;
    await new Promise((resolve) => setTimeout(resolve, most));
    began = performance.now();
  };
}

/** Each answers a question about a device from a source; null: not yet. */
const ANSWERS = {
  /** @param {DeviceData} data */
  open: (data) => ({entries: data.store.entries, lanes: data.store.lanes, total: data.store.lanes.total,
    blocks: data.store.blocks, isWhole: data.store.isWhole, times: data.store.times,
      hasStacks: data.store.stacks.hasAny}),

  /** The same, of what was read so far. */
  peek: (/** @type {DeviceData} */ data) => ANSWERS.open(data),

  /** Makes the window complete, if the tool serves the page. */
  details: async (/** @type {DeviceData} */ data, /** @type {any} */ question) => {
    const {details, store} = data;
    if (!details || !store.isWhole) return null;
    const [low, high] = instantsOf(store, question);
    const had = details.covering(low, high);
    const found = had ?? await details.cover(low, high);
    if (!found) return {isNew: false, from: 0, to: -1, missing: details.countOf(low, high), trouble: details.trouble};
    const to = found.high >= store.entries ? store.entries : found.high - 1;
    return {isNew: !had, from: found.low - 1, to, missing: 0, trouble: ""};
  },

  curves: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    if (!data.curves) return null;
    const edges = data.edges(question);
    return {edges, ...source.curves.buckets(edges)};
  },

  areas: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    if (!data.curves) return null;
    const samples = source.curves.samples(data.edges(question));
    return windowAreas(source.store, source.groupsBy(question.by), samples, question.top);
  },

  group: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) =>
    groupFigures(source.store, source.groupsBy(question.by), question.name, question.from, question.to),

  /** The largest groups and their colours. */
  legend: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    const groups = source.groupsBy(question.by);
    return {names: groups.names.slice(0, question.top), colours: groups.colours.slice(0, question.top),
      count: groups.names.length};
  },

  rects: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) =>
    windowRects(source.store, data.scale(question.x), source.groupsBy(question.by), question),

  grid: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) =>
    windowGrid(source.store, data.scale(question.x), source.groupsBy(question.by), question, question.palette,
      pauses(WORK_MS)),

  at: async (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    const lanes = data.store.lanes;
    const lane = question.lane ?? lanes.at(question.y);
    const offset = question.lane !== undefined ? question.offset : question.y - (lanes.low[lane] ?? 0);
    /** @type {any} */
    const point = pointAt(source.store, question.entry, lane, offset);
    if (!data.details || !point.hole) return point;
    const store = await data.details.withNearest(source.store, point.position + 1, lane, point.hole);
    return pointAt(store, question.entry, lane, offset);
  },

  holes: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) =>
    largestHoles(source.store, question.entry, question.top),

  flame: async (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    const tree = data.tree(question.isFolded);
    const first = flameTree(tree, stackBytes(source.store, question.kind, question.from, question.to));
    if (!question.against) return first;
    const {from, to} = question.against;
    const other = await sourceOf(question.other, "flame", {kind: question.kind, from, to});
    const second = flameTree(question.other.tree(question.isFolded), stackBytes(other.store, question.kind, from, to));
    return flameDifference(first, second);
  },

  rows: (/** @type {DeviceData} */ data, /** @type {any} */ question, /** @type {any} */ source) => {
    if (!data.store.isWhole) return null;
    const {store} = source;
    const index = source.rowIndex();
    const key = JSON.stringify(question.filter);
    if (source.filtered.key !== key) source.filtered = {key, rows: filterRows(store, index, question.filter)};
    const rows = source.filtered.rows;
    let first = question.first;
    if (question.entry !== undefined) first = nearestRow(rows, question.entry);
    return {total: rows.length, first, rows: describeRows(store, index,
      rows.subarray(first, first + question.count))};
  },

  /** A curve of a what-if: the most reserved bytes of each of its buckets. */
  whatif: async (/** @type {DeviceData} */ data, /** @type {any} */ question) => {
    const units = new ColumnReader(await data.part(question.name)).wide({});
    return units.map((value) => value * UNIT_BYTES);
  },
};

/** The row of the first entry that is not before a given one. @param {Uint32Array} rows @param {number} entry */
function nearestRow(rows, entry) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (rows[middle] < entry) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, Math.min(low, rows.length - 1));
}

/** Receives messages and sends answers. */
export class Desk {
  /**
   * @param {(message: any, transfer?: Transferable[]) => void} send
   * @param {(address: string) => Promise<Uint8Array>} [load] reads from the tool that serves the page
   */
  constructor(send, load) {
    this.send = send;
    this.load = load;
    /** @type {DeviceData[]} */
    this.devices = [];
    /** @type {Map<string, {promise: Promise<any>, give: (part: any) => void}>} */
    this.parts = new Map();
  }

  /** @param {string} name */
  slot(name) {
    let slot = this.parts.get(name);
    if (!slot) {
      /** @type {(part: any) => void} */
      let give = () => {};
      const promise = new Promise((resolve) => (give = resolve));
      slot = {promise, give};
      this.parts.set(name, slot);
    }
    return slot;
  }

  /** @param {any} message */
  async receive(message) {
    if (message.facts) {
      const part = async (/** @type {string} */ name) => {
        const {text, codec} = await this.slot(name).promise;
        if (text === null) throw new Error("the page ends before its part " + name);
        return unpackBytes(base64Bytes(text), codec);
      };
      this.devices = message.facts.flatMap((/** @type {any} */ file) => file.devices)
        .map((/** @type {any} */ facts) => new DeviceData(facts, part));
      if (message.details) this.useDetails(message.details);
    } else if (message.part) {
      this.slot(message.part).give(message);
    } else if (message.isEnd) {
      for (const name of message.names) this.slot(name).give({text: null});
    } else {
      await this.reply(message);
    }
  }

  /** @param {string} address of the tool that serves the page */
  useDetails(address) {
    const {load} = this;
    if (!load) return;
    this.devices.forEach((data, i) => {
      if (data.facts.left_out) data.details = new Details(data, i, (question) => load(address + question));
    });
  }

  async reply(/** @type {any} */ question) {
    try {
      const data = this.devices[question.device];
      const opening = data.open(() => this.send({progress: question.device, isWhole: data.store.isWhole}));
      if (question.do === "open") await opening;
      if (question.against) {
        question.other = this.devices[question.against.device ?? question.device];
        await question.other.open(() => {});
      }
      opening.catch(() => {});
      const source = await sourceOf(data, question.do, question);
      const answer = await /** @type {any} */ (ANSWERS)[question.do](data, question, source);
      this.send({id: question.id, answer}, buffersOf(answer));
    } catch (error) {
      this.send({id: question.id, error: error instanceof Error ? error.message : String(error)});
    }
  }
}

/** Arrays of an answer that need not be copied. @param {any} answer @returns {Transferable[]} */
function buffersOf(answer) {
  const buffers = [answer?.box, answer?.look, answer?.id, answer?.pixels].filter(Boolean);
  return buffers.map((array) => array.buffer);
}

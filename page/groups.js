// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Sorts blocks into groups: by call site, module, size, stream, pool or lifetime. The largest groups, by bytes times
// entries over the whole recording, come first, so a group has the same colour in every window. Sizes and lifetimes
// have an order of their own: the largest size, and the longest life, come first.
import {sizeText} from "./units.js";
import {NEVER} from "./store.js";

/** Colours for groups; the last one, of the rest, is COLOUR_REST. */
export const COLOURS = 12;
export const COLOUR_REST = COLOURS;
/** The ramp of sizes follows: so many colours from small to large. */
export const COLOUR_RAMP = COLOURS + 1;
const RAMP = 12;
const GROUPS_MOST = 65535;
/** A block that lives for a smaller part of a step than this is passing. */
const PASSING_SHARE = 1 / 16;

export class Groups {
  /** @param {import("./store.js").Store} store @param {string} by */
  constructor(store, by) {
    this.by = by;
    this.age = store.age;
    const {keys, names} = groupKeys(store, by);
    const weights = weigh(store, keys, names.length);
    const order = Array.from(weights.keys()).filter((key) => weights[key] > 0);
    if (by === "size") order.reverse();
    else if (by !== "lifetime") order.sort((a, b) => weights[b] - weights[a] || (names[a] < names[b] ? -1 : 1));
    order.length = Math.min(order.length, GROUPS_MOST);
    /** @type {string[]} */
    this.names = order.map((key) => names[key]);
    this.colours = by === "size" ? rampColours(order, weights) : chooseColours(this.names, by);
    const rank = new Uint16Array(names.length).fill(Math.max(0, order.length - 1));
    order.forEach((key, at) => (rank[key] = at));
    this.keys = keys;
    this.keyNames = names;
    this.isRanked = Uint8Array.from(weights, (weight) => (weight > 0 ? 1 : 0));
    this.rank = rank;
    /** The group of each block, for each level. */
    this.columns = store.levels.map((level) => this.column(level));
  }

  /** @param {import("./store.js").Level} level */
  column(level) {
    const {rank} = this;
    const column = new Uint16Array(level.count);
    const key = this.keys(level);
    for (let i = 0; i < level.count; i++) column[i] = rank[key(i)];
    return column;
  }

  /**
   * The same groups with the blocks of one more level. Groups that only this level has come last.
   * @param {import("./store.js").Level} level @returns {Groups}
   */
  withLevel(level) {
    const groups = Object.create(this);
    groups.names = this.names.slice();
    groups.rank = this.rank.slice();
    const isUsed = new Uint8Array(this.keyNames.length);
    const key = this.keys(level);
    for (let i = 0; i < level.count; i++) isUsed[key(i)] = 1;
    for (let at = 0; at < isUsed.length; at++) {
      if (!isUsed[at] || this.isRanked[at]) continue;
      if (groups.names.length < GROUPS_MOST) groups.names.push(this.keyNames[at]);
      groups.rank[at] = groups.names.length - 1;
    }
    groups.colours = chooseColours(groups.names, this.by);
    groups.colours.set(this.colours);
    groups.columns = [...this.columns, groups.column(level)];
    return groups;
  }
}

/**
 * Bytes times entries of each key.
 * @param {import("./store.js").Store} store @param {(level: any) => (i: number) => number} keys @param {number} count
 */
function weigh(store, keys, count) {
  const weights = new Float64Array(count);
  for (const level of store.levels) {
    const key = keys(level);
    for (let i = 0; i < level.count; i++) {
      const end = Math.min(level.end[i], store.entries + 1);
      weights[key(i)] += level.bytes[i] * Math.max(1, end - level.begin[i]);
    }
  }
  return weights;
}

/**
 * A function that gives the key of a block, and the name of each key.
 * @param {import("./store.js").Store} store @param {string} by
 * @returns {{keys: (level: import("./store.js").Level) => (i: number) => number, names: string[]}}
 */
function groupKeys(store, by) {
  if (by === "size") return sizeKeys(store);
  if (by === "stream") return tableKeys(store.facts.streams, "stream ", (level) => level.stream);
  if (by === "pool") return tableKeys((store.facts.pools ?? []).map(poolName), "", (level) => level.pool);
  if (by === "lifetime") return lifetimeKeys(store);
  const stacks = store.stacks;
  const text = by === "module"
    ? (/** @type {number} */ stack) => (stacks.ownFrame(stack) < 0 ? "(no stack)"
      : stacks.frameFile(stacks.ownFrame(stack)))
    : (/** @type {number} */ stack) => stacks.siteText(stack);
  const numbers = new Map();
  const table = new Uint32Array(stacks.stacks.length + 1);
  for (let stack = 0; stack < table.length; stack++) {
    const name = text(stack);
    if (!numbers.has(name)) numbers.set(name, numbers.size);
    table[stack] = numbers.get(name);
  }
  const last = table.length - 1;
  return {names: Array.from(numbers.keys()), keys: (level) => (i) => table[Math.min(level.stack[i], last)]};
}

/** PyTorch numbers its default pool (0, 0). A pool with a tag has its name. @param {string} name */
function poolName(name) {
  if (!name.startsWith("(")) return name;
  return name === "(0, 0)" ? "default pool" : "pool " + name;
}

/** @param {import("./store.js").Store} store */
function sizeKeys(store) {
  const text = (/** @type {number} */ power) => sizeText(store.unit * Math.pow(2, power)).replace(".00", "");
  const names = Array.from({length: 50}, (_, power) => (power === 0 ? "up to " + text(0)
    : rangeText(text(power - 1), text(power))));
  return {names, keys: (/** @type {any} */ level) => (/** @type {number} */ i) =>
    level.bytes[i] <= 1 ? 0 : Math.min(49, Math.ceil(Math.log2(level.bytes[i])))};
}

/** "32 MiB" and "64 MiB" give "32–64 MiB". @param {string} low @param {string} high */
function rangeText(low, high) {
  const [number, unit] = low.split(" ");
  return (high.endsWith(" " + unit) ? number : low) + "–" + high;
}

/**
 * Colours of sizes. The heaviest divide the ramp among themselves; another has that of the next smaller heavy one.
 * @param {number[]} powers falling @param {ArrayLike<number>} weights of powers @returns {Uint8Array}
 */
export function rampColours(powers, weights) {
  const heavy = [...powers].sort((a, b) => weights[b] - weights[a] || b - a).slice(0, RAMP).sort((a, b) => a - b);
  return Uint8Array.from(powers, (power) => {
    const at = heavy.reduce((found, one, i) => (one <= power ? i : found), 0);
    return COLOUR_RAMP + RAMP - 1 - Math.round(((heavy.length - 1 - at) / Math.max(1, heavy.length - 1)) * (RAMP - 1));
  });
}

/** @param {string[] | undefined} list @param {string} prefix @param {(level: any) => Uint32Array} column */
function tableKeys(list, prefix, column) {
  const names = Array.from(list ?? [], (name) => prefix + name);
  names.push("(unknown)");
  const last = names.length - 1;
  return {names, keys: (/** @type {any} */ level) => {
    const values = column(level);
    return (/** @type {number} */ i) => Math.min(values[i], last);
  }};
}

/** Entries of a step, or of the recording if it has none. @param {any} facts */
export function stepEntries(facts) {
  const rows = Array.isArray(facts.steps) ? facts.steps : facts.steps?.rows ?? [];
  const whole = rows.filter((/** @type {any} */ row) => row.is_whole !== false).map((/** @type {any} */ row) =>
    row.entries);
  whole.sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
  return whole.length > 0 ? whole[whole.length >> 1] : Math.max(1, facts.entries);
}

/** @param {import("./store.js").Store} store */
function lifetimeKeys(store) {
  const step = stepEntries(store.facts);
  const names = ["kept: longer than a step, or at the end still there", "of a step: up to a step",
    "passing: less than a sixteenth of a step"];
  return {names, keys: (/** @type {import("./store.js").Level} */ level) => (/** @type {number} */ i) => {
    const life = level.end[i] - level.begin[i];
    if (level.end[i] === NEVER || life > step) return 0;
    return life >= step * PASSING_SHARE ? 1 : 2;
  }};
}

/** A number for a text that is the same in every file. @param {string} text */
export function textHash(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  hash ^= hash >>> 15;
  return hash >>> 0;
}

/**
 * A colour for each group. Each of the largest has one of its own: the one its name asks for, or the next free one.
 * Streams, pools and lifetimes are few: they take the colours in turn.
 * @param {string[]} names @param {string} by @returns {Uint8Array}
 */
export function chooseColours(names, by) {
  const colours = new Uint8Array(names.length).fill(COLOUR_REST);
  const isTaken = new Uint8Array(COLOURS);
  const byName = by === "site" || by === "module";
  for (let i = 0; i < Math.min(COLOURS, names.length); i++) {
    let colour = byName ? textHash(names[i]) % COLOURS : i;
    while (isTaken[colour]) colour = (colour + 1) % COLOURS;
    isTaken[colour] = 1;
    colours[i] = colour;
  }
  return colours;
}

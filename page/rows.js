// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The list of entries. An index says for each entry which block, segment or other record it belongs to.
import {NEVER} from "./store.js";

export const ROW_NONE = 0;
export const ROW_ALLOC = 1;
export const ROW_FREE = 2;
export const ROW_FREED = 3;
export const ROW_RESERVE = 4;
export const ROW_RETURN = 5;
export const ROW_OTHER = 6;

export const ROW_NAMES = ["no effect", "allocate", "release", "free again", "reserve", "return", "other"];

export class RowIndex {
  /** @param {import("./store.js").Store} store with all its parts @param {number} [from] entry @param {number} [to] */
  constructor(store, from = 0, to = store.entries) {
    this.from = from;
    this.kind = new Uint8Array(to - from);
    this.of = new Uint32Array(to - from);
    for (const level of store.levels) {
      const {begin, end, gone, first} = level;
      level.visitChunks(from, to, (low, high) => {
        for (let i = low; i < high; i++) {
          if (gone[i] !== NEVER) this.set(gone[i], ROW_FREED, first + i);
          if (end[i] !== NEVER) this.set(end[i], ROW_FREE, first + i);
          this.set(begin[i], ROW_ALLOC, first + i);
        }
      });
    }
    const {segments, others} = store;
    for (let i = 0; i < segments.count; i++) {
      this.set(segments.begin[i], ROW_RESERVE, i);
      if (segments.end[i] !== NEVER) this.set(segments.end[i], ROW_RETURN, i);
    }
    for (let i = 0; others && i < others.count; i++) this.set(others.at[i] + 1, ROW_OTHER, i);
  }

  /** @param {number} instant @param {number} kind @param {number} of */
  set(instant, kind, of) {
    const at = instant - 1 - this.from;
    if (at < 0 || at >= this.kind.length) return;
    this.kind[at] = kind;
    this.of[at] = of;
  }
}

/**
 * What the list shows: kinds of entries, sizes, a text in the call site, and a window.
 * @typedef {{kinds?: number[], least?: number, text?: string, from?: number, to?: number}} RowFilter
 */

/**
 * The numbers of the entries that a filter lets through.
 * @param {import("./store.js").Store} store @param {RowIndex} index @param {RowFilter} filter @returns {Uint32Array}
 */
export function filterRows(store, index, filter) {
  const from = Math.max(0, Math.floor(filter.from ?? 0));
  const to = Math.min(store.entries, Math.ceil(filter.to ?? store.entries));
  const isKind = new Uint8Array(8).fill(filter.kinds && filter.kinds.length > 0 ? 0 : 1);
  for (const kind of filter.kinds ?? []) isKind[kind & 7] = 1;
  const isStack = stackMask(store.stacks, filter.text ?? "");
  const units = (filter.least ?? 0) / store.unit;
  const found = new Uint32Array(Math.max(0, to - from));
  let count = 0;
  for (let entry = from; entry < to; entry++) {
    const kind = index.kind[entry - index.from];
    if (!isKind[kind]) continue;
    if ((units > 0 || isStack) && !isWanted(store, kind, index.of[entry - index.from], units, isStack)) continue;
    found[count++] = entry;
  }
  return found.slice(0, count);
}

/** Which stacks have a text in any of their frames; null: all. @param {import("./store.js").Stacks} stacks */
function stackMask(stacks, /** @type {string} */ text) {
  if (text === "") return null;
  const wanted = text.toLowerCase();
  const isFrame = stacks.frames.map((/** @type {any} */ _, /** @type {number} */ frame) =>
    stacks.frameText(frame).toLowerCase().includes(wanted));
  return Uint8Array.from(stacks.stacks, (/** @type {number[]} */ frames) =>
    (frames.some((frame) => isFrame[frame]) ? 1 : 0));
}

/** @param {import("./store.js").Store} store @param {Uint8Array | null} isStack */
function isWanted(store, /** @type {number} */ kind, /** @type {number} */ of, /** @type {number} */ units, isStack) {
  if (kind === ROW_NONE) return false;
  if (kind === ROW_OTHER) return !isStack && (store.others?.bytes[of] ?? 0) >= units * store.unit;
  if (kind === ROW_RESERVE || kind === ROW_RETURN)
    return store.segments.bytes[of] >= units && (!isStack || isStack[store.segments.stack[of]] === 1);
  const [level, i] = store.find(of);
  return level.bytes[i] >= units && (!isStack || isStack[level.stack[i]] === 1);
}

/**
 * @param {import("./store.js").Store} store @param {RowIndex} index @param {ArrayLike<number>} entries
 * @returns {any[]} a row for each
 */
export function describeRows(store, index, entries) {
  return Array.from(entries, (entry) => {
    const kind = index.kind[entry - index.from];
    const of = index.of[entry - index.from];
    const us = store.times ? store.times[entry] : null;
    const row = {entry, us, kind, bytes: null, address: "", stream: "", site: "", block: -1, other: -1, text: ""};
    if (kind === ROW_NONE) return row;
    if (kind === ROW_OTHER) return {...row, ...describeOther(store, of)};
    if (kind === ROW_RESERVE || kind === ROW_RETURN) {
      const {segments, lanes} = store;
      return {...row, bytes: segments.bytes[of] * store.unit, stream: store.facts.streams?.[segments.stream[of]] ?? "",
        address: store.addressText(segments.lane[of], segments.address[of] - lanes.base[segments.lane[of]]),
        site: store.stacks.siteText(segments.stack[of]), lane: segments.lane[of],
        offset: segments.address[of] - lanes.base[segments.lane[of]]};
    }
    const block = store.describe(of);
    return {...row, bytes: block.bytes, address: block.address, stream: block.stream, site: block.site, block: of,
      lane: block.lane, offset: block.offset};
  });
}

/** @param {import("./store.js").Store} store @param {number} of */
function describeOther(store, of) {
  const others = store.others;
  if (!others) return {};
  return {other: others.action[of], bytes: others.bytes[of] || null,
    text: String(store.stacks.texts[others.text[of]] ?? "")};
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What the page shows, kept in the address after "#", so that a view can be sent to a colleague.

/**
 * @typedef {{device: number, from: number, to: number, x: string, tab: string, by: string, low: number, high: number,
 *   point: {entry: number, lane: number, offset: number} | null, measure: string, at: number, base: string,
 *   find: string, isOpen: number, kinds: string, least: number, text: string, entry: number}} ViewFields
 */

/** @type {ViewFields} */
const DEFAULTS = {device: 0, from: -1, to: -1, x: "", tab: "", by: "", low: 0, high: 0, point: null,
  measure: "used",
  at: -1, base: "", find: "", isOpen: 0, kinds: "", least: 0, text: "", entry: -1};

const SHORT = {device: "d", x: "x", tab: "t", by: "by", measure: "m", at: "at", base: "vs", find: "q", isOpen: "all",
  kinds: "k", least: "min", text: "site", entry: "e"};

/** Fields that are one of a few words. @type {{[key: string]: string[]}} */
const WORDS = {x: ["time", "entry", "step"], measure: ["used", "allocated", "held"],
  tab: ["where", "who", "flame", "oom", "whatif", "steps", "ranks", "entries"],
  by: ["site", "module", "size", "stream", "pool", "lifetime"]};

export class ViewState {
  /** @param {string} hash of the address */
  constructor(hash) {
    /** @type {ViewFields} */
    this.now = {...DEFAULTS, ...parseHash(hash)};
    this.listeners = new Set();
    this.timer = 0;
  }

  /** @param {Partial<ViewFields>} change */
  set(change) {
    const keys = Object.keys(change).filter((key) => !isSame(/** @type {any} */ (change)[key],
      /** @type {any} */ (this.now)[key]));
    if (keys.length === 0) return;
    this.now = {...this.now, ...change};
    for (const listener of this.listeners) listener(new Set(keys));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.writeHash(), 250);
  }

  writeHash() {
    if (location.protocol === "about:") return; // in the frame of a notebook, which has no address of its own
    const hash = formatHash(this.now);
    if (hash !== location.hash) history.replaceState(null, "", hash || "#");
  }

  /** @param {(keys: Set<string>) => void} listener */
  listen(listener) {
    this.listeners.add(listener);
  }
}

/** @param {any} a @param {any} b */
function isSame(a, b) {
  return a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
}

/** A position without digits that nobody sees. @param {number} value */
function shortNumber(value) {
  return String(Math.round(value * 1000) / 1000);
}

/** @param {ViewFields} state */
export function formatHash(state) {
  const parts = [];
  for (const [key, short] of Object.entries(SHORT)) {
    const value = /** @type {any} */ (state)[key];
    if (value !== /** @type {any} */ (DEFAULTS)[key]) parts.push(short + "=" + encodeURIComponent(value));
  }
  if (state.to > state.from) parts.push("w=" + shortNumber(state.from) + "~" + shortNumber(state.to));
  if (state.high > state.low) parts.push("y=" + shortNumber(state.low) + "~" + shortNumber(state.high));
  if (state.point) parts.push("p=" + [state.point.entry, state.point.lane,
    state.point.offset].map(shortNumber).join("~"));
  return parts.length > 0 ? "#" + parts.join("&") : "";
}

/** Unknown and damaged fields are left out. @param {string} hash @returns {Partial<ViewFields>} */
export function parseHash(hash) {
  /** @type {any} */
  const found = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 0) continue;
    let value = "";
    try {
      value = decodeURIComponent(part.slice(at + 1));
    } catch {
      continue;
    }
    readField(found, part.slice(0, at), value);
  }
  return found;
}

/** @param {any} found @param {string} short @param {string} value */
function readField(found, short, value) {
  const numbers = value.split("~").map(Number);
  const isNumbers = numbers.every(Number.isFinite) && value !== "";
  if (short === "w" && isNumbers && numbers.length === 2 && numbers[1] > numbers[0]) [found.from, found.to] = numbers;
  if (short === "y" && isNumbers && numbers.length === 2 && numbers[1] > numbers[0]) [found.low, found.high] = numbers;
  if (short === "p" && isNumbers && numbers.length === 3)
    found.point = {entry: numbers[0], lane: numbers[1], offset: numbers[2]};
  const entry = Object.entries(SHORT).find((pair) => pair[1] === short);
  if (!entry) return;
  const isNumber = typeof (/** @type {any} */ (DEFAULTS)[entry[0]]) === "number";
  if (!isNumber && !(WORDS[entry[0]]?.includes(value) ?? true)) return;
  if (!isNumber) found[entry[0]] = value;
  else if (isNumbers) found[entry[0]] = numbers[0];
}

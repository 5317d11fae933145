// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Positions and the x axis. A position is the number of an entry; between e and e + 1 the memory is as entry e left it.
// An axis translates positions to x: the number itself, microseconds since the first entry, or steps.

/** @typedef {import("./facts.d.ts").Overview} Overview */

/** The first index whose value is above `value`. @param {ArrayLike<number>} sorted @param {number} value */
export function upperBound(sorted, value, low = 0, high = sorted.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first index whose value is not below `value`. @param {ArrayLike<number>} sorted @param {number} value */
export function lowerBound(sorted, value, low = 0, high = sorted.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A translation by knots: at position knots[i], x is values[i]; linear between them. Both rise. */
export class Scale {
  /**
   * @param {"entry" | "time" | "step"} kind
   * @param {number} entries of the recording
   * @param {ArrayLike<number> | null} knots null: the position itself
   * @param {ArrayLike<number> | null} values null: x is the position
   */
  constructor(kind, entries, knots, values) {
    this.kind = kind;
    this.entries = Math.max(1, entries);
    this.knots = knots;
    this.values = values;
  }

  /** @param {number} position */
  toX(position) {
    const values = this.values;
    if (!values || values.length === 0) return position;
    const knots = this.knots;
    let i = knots ? upperBound(knots, position) - 1 : Math.floor(position);
    i = Math.max(0, Math.min(i, values.length - 1));
    const at = knots ? knots[i] : i;
    if (i + 1 >= values.length) return values[i] + (position - at) * this.tail();
    const width = knots ? knots[i + 1] - at : 1;
    return values[i] + ((position - at) / width) * (values[i + 1] - values[i]);
  }

  /** x for each entry after the last knot. */
  tail() {
    return this.kind === "time" ? 1 : 1 / this.entries;
  }

  /** @param {number} x @returns {number} the first position with this x */
  toEntry(x) {
    const values = this.values;
    if (!values || values.length === 0) return x;
    const knots = this.knots;
    const at = lowerBound(values, x);
    if (at === 0) return (knots ? knots[0] : 0) + (x - values[0]) / this.tail();
    if (at >= values.length) {
      const last = values.length - 1;
      return (knots ? knots[last] : last) + (x - values[last]) / this.tail();
    }
    const low = knots ? knots[at - 1] : at - 1;
    const high = knots ? knots[at] : at;
    return low + ((x - values[at - 1]) / (values[at] - values[at - 1])) * (high - low);
  }
}

/** @param {number} entries */
export function entryScale(entries) {
  return new Scale("entry", entries, null, null);
}

/**
 * @param {number} entries @param {ArrayLike<number> | null} times of each entry, in microseconds, rising
 * @param {Overview | null} overview of the facts: times of some entries, which serve until all are known
 */
export function timeScale(entries, times, overview) {
  if (times) return new Scale("time", entries, null, times);
  if (!overview?.ms) return entryScale(entries);
  let last = 0;
  const values = overview.ms.map((ms) => (last = Math.max(last, ms * 1000)));
  return new Scale("time", entries, overview.entry, values);
}

/**
 * Step k, as it is counted in the report, lies between x = k and k + 1. What precedes the first is below it.
 * @param {number} entries @param {{step: number, first_entry: number, entries: number}[]} rows
 */
export function stepScale(entries, rows) {
  /** @type {number[]} */
  const knots = [];
  /** @type {number[]} */
  const values = [];
  const add = (/** @type {number} */ at, /** @type {number} */ x) => {
    if (knots.length > 0 && at <= knots[knots.length - 1]) return;
    knots.push(at);
    values.push(x);
  };
  const first = rows.length > 0 ? rows[0].step : 1;
  if (rows.length > 0 && rows[0].first_entry > 0) add(0, first - 1);
  for (let i = 0; i < rows.length; i++) add(rows[i].first_entry, first + i);
  if (rows.length > 0) {
    const last = rows[rows.length - 1];
    add(last.first_entry + last.entries, first + rows.length);
    add(entries, first + rows.length + 1);
  }
  return new Scale("step", entries, knots, values);
}

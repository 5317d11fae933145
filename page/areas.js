// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Allocated bytes of each group over a window. Each bucket shows the instant at which most is allocated in it, so the
// stack of all groups is as high as the curve of allocated memory, and peaks never vanish.
import {lowerBound} from "./scale.js";

/**
 * @param {import("./store.js").Store} store @param {import("./groups.js").Groups} groups
 * @param {Uint32Array} samples instants, not falling @param {number} top groups with a row of their own
 * @returns {{names: string[], colours: number[], rows: Float64Array[], rest: number, samples: Uint32Array}} the last
 *   row is the sum of all others, of which there are `rest`
 */
export function windowAreas(store, groups, samples, top) {
  const count = samples.length;
  const width = count + 1;
  const steps = new Float64Array(groups.names.length * width);
  store.levels.forEach((level, at) => {
    const column = groups.columns[at];
    if (column) addLevel(steps, width, level, column, samples);
  });
  for (let group = 0; group < groups.names.length; group++) {
    let sum = 0;
    for (let at = group * width; at < group * width + count; at++) steps[at] = (sum += steps[at]) * store.unit;
  }
  return pickRows(groups, steps, width, count, top, samples);
}

/** Adds the blocks of a level, each where it begins and ends among the samples. */
function addLevel(/** @type {Float64Array} */ steps, /** @type {number} */ width,
  /** @type {import("./store.js").Level} */ level, /** @type {Uint16Array} */ column,
  /** @type {Uint32Array} */ samples) {
  const {begin, end, bytes} = level;
  const count = samples.length;
  const find = sampleFinder(samples);
  const isDense = level.span * count > samples[count - 1] - samples[0];
  if (isDense) {
    let from = 0;
    level.visitChunks(samples[0], samples[count - 1], (low, high) => {
      for (let i = low; i < high; i++) {
        while (from < count && samples[from] < begin[i]) from++;
        if (from >= count) return;
        if (end[i] <= samples[from]) continue;
        addBlock(steps, column[i] * width, from, find(end[i]), bytes[i]);
      }
    });
    return;
  }
  for (let at = 0; at < count; at++) {
    const instant = samples[at];
    if (at > 0 && instant === samples[at - 1]) continue;
    level.visitChunks(instant, instant, (low, high) => {
      for (let i = low; i < high; i++) {
        if (begin[i] > instant || end[i] <= instant || (at > 0 && begin[i] <= samples[at - 1])) continue;
        addBlock(steps, column[i] * width, at, find(end[i]), bytes[i]);
      }
    });
  }
}

/** A function that gives the first sample that is not before an instant. @param {Uint32Array} samples */
function sampleFinder(samples) {
  const cells = 4096;
  const first = samples[0];
  const count = samples.length;
  const factor = cells / (samples[count - 1] - first + 1);
  const table = new Uint32Array(cells + 1);
  for (let cell = 0; cell <= cells; cell++) table[cell] = lowerBound(samples, first + Math.floor(cell / factor));
  return (/** @type {number} */ instant) => {
    if (instant <= first) return 0;
    if (instant > samples[count - 1]) return count;
    let at = table[Math.floor((instant - first) * factor)];
    while (at > 0 && samples[at - 1] >= instant) at--;
    while (samples[at] < instant) at++;
    return at;
  };
}

function addBlock(/** @type {Float64Array} */ steps, /** @type {number} */ row, /** @type {number} */ from,
  /** @type {number} */ to, /** @type {number} */ units) {
  steps[row + from] += units;
  steps[row + to] -= units;
}

/** The groups with the largest areas in this window, in the order of their rank, then the rest. */
function pickRows(/** @type {import("./groups.js").Groups} */ groups, /** @type {Float64Array} */ steps,
  /** @type {number} */ width, /** @type {number} */ count, /** @type {number} */ top,
  /** @type {Uint32Array} */ samples) {
  const areas = new Float64Array(groups.names.length);
  for (let group = 0; group < areas.length; group++)
    for (let i = 0; i < count; i++) areas[group] += steps[group * width + i];
  const order = Array.from(areas.keys()).filter((group) => areas[group] > 0).sort((a, b) => areas[b] - areas[a] ||
    a - b);
  const chosen = order.slice(0, top).sort((a, b) => a - b);
  const rest = new Float64Array(count);
  for (const group of order.slice(top))
    for (let i = 0; i < count; i++) rest[i] += steps[group * width + i];
  return {names: chosen.map((group) => groups.names[group]), groups: chosen,
    colours: chosen.map((group) => groups.colours[group]), rest: Math.max(0, order.length - top), samples,
    rows: [...chosen.map((group) => steps.slice(group * width, group * width + count)), rest]};
}

/**
 * Figures of one group over a window: how many blocks began, how long they lived, their largest stack.
 * @param {import("./store.js").Store} store @param {import("./groups.js").Groups} groups @param {string} name
 * @param {number} from position @param {number} to position
 */
export function groupFigures(store, groups, name, from, to) {
  const group = groups.names.indexOf(name);
  const low = store.instant(from);
  const high = store.instant(to);
  let count = 0;
  let bytes = 0;
  let lives = 0;
  let kept = 0;
  const stacks = new Float64Array(store.stacks.stacks.length + 1);
  store.levels.forEach((level, at) => {
    const column = groups.columns[at];
    if (!column) return;
    level.visitChunks(low, high, (first, last) => {
      for (let i = first; i < last; i++) {
        if (column[i] !== group || level.end[i] <= low) continue;
        count++;
        bytes += level.bytes[i] * store.unit;
        stacks[Math.min(level.stack[i], stacks.length - 1)] += level.bytes[i];
        if (level.end[i] > store.entries) kept++;
        else lives += level.end[i] - level.begin[i];
      }
    });
  });
  let stack = 0;
  for (let i = 1; i < stacks.length; i++) if (stacks[i] > stacks[stack]) stack = i;
  return {name, count, bytes, kept, meanLife: count > kept ? lives / (count - kept) : null,
    lines: store.stacks.lines(stack)};
}

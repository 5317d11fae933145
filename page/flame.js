// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Trees of stacks: bytes in use at an instant, bytes allocated in a window, or bytes times entries. The tree of all
// stacks is built once; a question adds up values in it.

/** The tree of all stacks of a device. The children of a node have larger numbers than it; node 0 is the root. */
export class StackTree {
  /** @param {import("./store.js").Stacks} stacks @param {boolean} isFolded machinery is left out */
  constructor(stacks, isFolded) {
    this.isFolded = isFolded;
    /** @type {number[]} */
    this.parent = [-1];
    /** @type {string[]} */
    this.text = ["all"];
    this.ofStack = new Uint32Array(stacks.stacks.length);
    const texts = stacks.frames.map((/** @type {any} */ _, /** @type {number} */ frame) => stacks.frameText(frame));
    const children = new Map();
    const none = this.child(children, 0, "(no stack)");
    for (let stack = 0; stack < this.ofStack.length; stack++) {
      const frames = stacks.stacks[stack];
      let node = 0;
      for (let i = frames.length - 1; i >= 0; i--)
        if (!isFolded || !stacks.folded[frames[i]]) node = this.child(children, node, texts[frames[i]] ?? "(unknown)");
      this.ofStack[stack] = node === 0 ? none : node;
    }
  }

  /** @param {Map<string, number>} children @param {number} parent @param {string} text */
  child(children, parent, text) {
    const key = parent + "\n" + text;
    let node = children.get(key);
    if (node === undefined) {
      node = this.parent.length;
      children.set(key, node);
      this.parent.push(parent);
      this.text.push(text);
    }
    return node;
  }
}

/**
 * Bytes by stack.
 * @param {import("./store.js").Store} store @param {"used" | "allocated" | "held"} kind in use at `from`; allocated
 *   from `from` to `to`; or bytes times entries there
 * @param {number} from position @param {number} to position @returns {Float64Array}
 */
export function stackBytes(store, kind, from, to) {
  const sums = new Float64Array(store.stacks.stacks.length);
  const last = sums.length - 1;
  const low = store.instant(from);
  const high = kind === "used" ? low : Math.max(low, store.instant(Math.ceil(to) - 1));
  for (const level of store.levels) {
    const {begin, end, bytes, stack} = level;
    level.visitChunks(low, high, (first, next) => {
      for (let i = first; i < next; i++) {
        if (begin[i] > high || end[i] <= low) continue;
        let weight = 1;
        if (kind === "allocated" && begin[i] < low) continue;
        if (kind === "held") weight = Math.min(end[i], high + 1) - Math.max(begin[i], low);
        sums[Math.min(stack[i], last)] += bytes[i] * weight;
      }
    });
  }
  for (let i = 0; i < sums.length; i++) sums[i] *= store.unit;
  return sums;
}

/**
 * A tree with the nodes that have a value: parent, text and value of each, and its value of comparison.
 * @param {StackTree} tree @param {Float64Array} sums by stack
 * @returns {{parent: Int32Array, text: string[], value: Float64Array, base: Float64Array}}
 */
export function flameTree(tree, sums) {
  const value = new Float64Array(tree.parent.length);
  for (let stack = 0; stack < sums.length; stack++) value[tree.ofStack[stack]] += sums[stack];
  for (let node = value.length - 1; node > 0; node--) value[tree.parent[node]] += value[node];
  const number = new Int32Array(value.length).fill(-1);
  let count = 0;
  for (let node = 0; node < value.length; node++) if (node === 0 || value[node] > 0) number[node] = count++;
  const answer = {parent: new Int32Array(count), text: new Array(count), value: new Float64Array(count),
    base: new Float64Array(count)};
  for (let node = 0; node < value.length; node++) {
    if (number[node] < 0) continue;
    answer.parent[number[node]] = node === 0 ? -1 : number[tree.parent[node]];
    answer.text[number[node]] = tree.text[node];
    answer.value[number[node]] = value[node];
  }
  return answer;
}

/**
 * One tree of two: `value` of the first and `base` of the second, of each path that either has.
 * @param {ReturnType<typeof flameTree>} first @param {ReturnType<typeof flameTree>} second
 */
export function flameDifference(first, second) {
  const parent = [-1];
  const text = ["all"];
  const value = [0];
  const base = [0];
  const children = new Map();
  const merge = (/** @type {ReturnType<typeof flameTree>} */ tree, /** @type {number[]} */ into) => {
    const number = new Int32Array(tree.parent.length);
    into[0] += tree.value[0];
    for (let node = 1; node < number.length; node++) {
      const key = number[tree.parent[node]] + "\n" + tree.text[node];
      let at = children.get(key);
      if (at === undefined) {
        at = parent.length;
        children.set(key, at);
        parent.push(number[tree.parent[node]]);
        text.push(tree.text[node]);
        value.push(0);
        base.push(0);
      }
      number[node] = at;
      into[at] += tree.value[node];
    }
  };
  merge(first, value);
  merge(second, base);
  return {parent: Int32Array.from(parent), text, value: Float64Array.from(value), base: Float64Array.from(base)};
}

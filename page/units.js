// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Sizes, times and counts as text, and round values for axes. Sizes look as those of the command: "1.88 GiB".

/** The grain of the file: sizes and offsets of blocks are multiples of it. */
export const UNIT_BYTES = 512;

const SIZE_NAMES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Longer texts of a recording are cut: drawing a name of a megabyte takes seconds, and nobody reads it. */
const TEXT_MOST = 1000;

/** @param {string} text @returns {string} */
export function cutText(text) {
  return text.length > TEXT_MOST ? text.slice(0, TEXT_MOST) + "…" : text;
}

/** JSON with all its texts cut. @param {string} json @returns {any} */
export function parseCut(json) {
  return JSON.parse(json, (_, value) => (typeof value === "string" ? cutText(value) : value));
}

/** @param {number} bytes @returns {string} */
export function sizeText(bytes) {
  if (bytes < 0) return "−" + sizeText(-bytes);
  let power = 0;
  while (bytes >= 1024 && power < SIZE_NAMES.length - 1) {
    bytes /= 1024;
    power++;
  }
  return (power === 0 ? String(Math.round(bytes)) : bytes.toFixed(2)) + " " + SIZE_NAMES[power];
}

/** A size on an axis, where two digits after the point would be noise. @param {number} bytes */
export function tickSizeText(bytes) {
  return bytes === 0 ? "0" : sizeText(bytes).replace(/\.00 /, " ").replace(/(\.\d)0 /, "$1 ");
}

/** @param {number} count @returns {string} 1234567 gives "1,234,567" */
export function countText(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** @param {number} count @param {string} one @param {string} [many] */
export function amountText(count, one, many) {
  return countText(count) + " " + (count === 1 ? one : many ?? one + "s");
}

/** @param {number} us a duration in microseconds @returns {string} */
export function durationText(us) {
  if (us < 0) return "−" + durationText(-us);
  if (us < 1000) return Math.round(us) + " µs";
  if (us < 1e6) return (us / 1e3).toFixed(us < 1e5 ? 2 : 1) + " ms";
  if (us < 120e6) return (us / 1e6).toFixed(3) + " s";
  const seconds = Math.round(us / 1e6);
  if (seconds < 7200) return Math.floor(seconds / 60) + " min " + (seconds % 60) + " s";
  return Math.floor(seconds / 3600) + " h " + (Math.floor(seconds / 60) % 60) + " min";
}

/** @param {number} share between 0 and 1 @returns {string} */
export function shareText(share) {
  return (share * 100).toFixed(1) + " %";
}

/** The least of 1, 2, 5, 10, 20 … that is not below a value. @param {number} value */
export function roundStep(value) {
  const power = Math.pow(10, Math.floor(Math.log10(value)));
  for (const digit of [1, 2, 5]) if (digit * power >= value * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

/** The least power of two that is not below a value. @param {number} value */
export function roundBinaryStep(value) {
  return Math.pow(2, Math.ceil(Math.log2(value) - 1e-9));
}

/**
 * Round positions inside [low, high], about `count` of them.
 * @param {number} low @param {number} high @param {number} count
 * @param {(value: number) => number} [round] makes a step round
 * @returns {number[]}
 */
export function roundTicks(low, high, count, round = roundStep) {
  if (!(high > low) || !(count >= 1)) return [];
  const step = round((high - low) / count);
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9) + 0;
  for (let i = first; i * step <= high + step * 1e-9 && ticks.length < 1000; i++) ticks.push(i * step);
  return ticks;
}

/** Text of a tick of a time axis, precise enough for its step. @param {number} us @param {number} step */
export function tickTimeText(us, step) {
  if (us === 0) return "0";
  const [unit, name] = Math.abs(us) >= 1e6 ? [1e6, " s"] : Math.abs(us) >= 1e3 ? [1e3, " ms"] : [1, " µs"];
  const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit) + 1e-9)));
  return (us / unit).toFixed(digits) + name;
}

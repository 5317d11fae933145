// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The window on the x axis: where a position is on the screen, how wheel, mouse and keys move it, and its ticks.
import {countText, durationText, roundStep, roundTicks, tickTimeText} from "./units.js";

const LEAST_ENTRIES = 4;
const KEY_PAN = 0.15;
const KEY_ZOOM = 1.5;
const WHEEL_ZOOM = 1.0018;

/** A window of positions, seen through a scale, on `width` pixels. */
export class Viewport {
  /** @param {import("./scale.js").Scale} scale @param {number} from @param {number} to @param {number} width */
  constructor(scale, from, to, width) {
    this.scale = scale;
    this.from = from;
    this.to = to;
    this.width = Math.max(1, width);
    this.x0 = scale.toX(from);
    this.x1 = scale.toX(to);
    if (!(this.x1 > this.x0)) this.x1 = this.x0 + 1e-9;
  }

  /** @param {number} position */
  pixel(position) {
    return ((this.scale.toX(position) - this.x0) / (this.x1 - this.x0)) * this.width;
  }

  /** @param {number} pixel */
  position(pixel) {
    return this.scale.toEntry(this.x0 + (pixel / this.width) * (this.x1 - this.x0));
  }

  /** The window between two pixels of this one, within the recording. @param {number} left @param {number} right */
  between(left, right) {
    const scale = this.scale;
    const least = scale.toX(0);
    const most = scale.toX(scale.entries);
    const perPixel = (this.x1 - this.x0) / this.width;
    let x0 = this.x0 + left * perPixel;
    let x1 = this.x0 + right * perPixel;
    if (x1 - x0 >= most - least) return {from: 0, to: scale.entries};
    if (x0 < least) [x0, x1] = [least, x1 + least - x0];
    if (x1 > most) [x0, x1] = [x0 + most - x1, most];
    const from = Math.max(0, scale.toEntry(x0));
    const to = Math.min(scale.entries, scale.toEntry(x1));
    if (to - from >= LEAST_ENTRIES || to - from >= this.to - this.from) return {from, to: Math.max(to, from + 1e-6)};
    const middle = Math.max(LEAST_ENTRIES / 2, Math.min(scale.entries - LEAST_ENTRIES / 2, (from + to) / 2));
    return {from: Math.max(0, middle - LEAST_ENTRIES / 2), to: Math.min(scale.entries, middle + LEAST_ENTRIES / 2)};
  }

  /** @param {number} factor above 1 shows more @param {number} pixel stays where it is */
  zoomed(factor, pixel) {
    return this.between(pixel - pixel * factor, pixel + (this.width - pixel) * factor);
  }

  /** @param {number} pixels to the right */
  panned(pixels) {
    return this.between(pixels, this.width + pixels);
  }

  /** Ticks with their texts. @returns {{pixel: number, text: string}[]} */
  ticks() {
    const {scale, x0, x1} = this;
    const wanted = Math.max(2, this.width / 110);
    const isTime = scale.kind === "time";
    const values = roundTicks(x0, x1, wanted, isTime ? roundStep : (value) => Math.max(1, roundStep(value)));
    const step = values.length > 1 ? values[1] - values[0] : 1;
    // A step begins at each tick; none begins at the end.
    const end = scale.kind === "step" && scale.values ? scale.values[scale.values.length - 1] : Infinity;
    return values.filter((value) => value < end).map((value) => ({
      pixel: ((value - x0) / (x1 - x0)) * this.width,
      text: isTime ? tickTimeText(value, step) : scale.kind === "step" ? "step " + countText(value)
        : countText(value)}));
  }
}

/** Where a position is, in words. @param {any} view @param {number} position */
export function positionText(view, position) {
  const entry = Math.max(0, Math.floor(position));
  const times = view.times;
  const when = times && times.length > 0 ? durationText(times[Math.min(entry, times.length - 1)]) : "";
  return "entry " + countText(entry) + (when ? " · " + when : "");
}

/**
 * Lets wheel, mouse and keys move the window.
 * @param {any} element receives them
 * @param {{viewport: () => Viewport, move: (window: {from: number, to: number}) => void,
 *   zoomY?: (factor: number, pixel: number) => void, panY?: (pixels: number) => void, reset?: () => void,
 *   click?: (x: number, y: number) => void, hover?: (x: number, y: number) => void, leave?: () => void}} how
 * @param {number} left where the plot begins in the element
 */
export function attachPanZoom(element, how, left) {
  element.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    event.preventDefault();
    const factor = Math.pow(WHEEL_ZOOM, Math.max(-400, Math.min(400, event.deltaY * (event.deltaMode === 1 ? 30 : 1))));
    if (event.shiftKey && how.zoomY) how.zoomY(Math.pow(WHEEL_ZOOM, event.deltaY || event.deltaX), event.offsetY);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) how.move(how.viewport().panned(event.deltaX));
    else how.move(how.viewport().zoomed(factor, event.offsetX - left));
  }, {passive: false});
  attachDrag(element, how, left);
  element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (moveByKey(event, how)) event.preventDefault();
  });
}

/** @param {any} element @param {any} how @param {number} left */
function attachDrag(element, how, left) {
  /** @type {{x: number, y: number, viewport: Viewport, lastY: number, isMoved: boolean} | null} */
  let drag = null;
  element.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    drag = {x: event.offsetX, y: event.offsetY, lastY: event.offsetY, viewport: how.viewport(), isMoved: false};
  });
  element.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!drag) {
      how.hover?.(event.offsetX - left, event.offsetY);
      return;
    }
    if (Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 3) drag.isMoved = true;
    if (!drag.isMoved) return;
    how.move(drag.viewport.panned(drag.x - event.offsetX));
    how.panY?.(drag.lastY - event.offsetY);
    drag.lastY = event.offsetY;
  });
  element.addEventListener("pointerup", (/** @type {PointerEvent} */ event) => {
    if (drag && !drag.isMoved) how.click?.(event.offsetX - left, event.offsetY);
    drag = null;
  });
  element.addEventListener("pointercancel", () => (drag = null));
  element.addEventListener("pointerleave", () => how.leave?.());
  element.addEventListener("dblclick", (/** @type {MouseEvent} */ event) =>
    how.move(how.viewport().zoomed(0.4, event.offsetX - left)));
}

/** @param {KeyboardEvent} event @param {any} how @returns {boolean} it was one of ours */
export function moveByKey(event, how) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const viewport = how.viewport();
  const middle = viewport.width / 2;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key === "ArrowLeft" || key === "a") how.move(viewport.panned(-viewport.width * KEY_PAN));
  else if (key === "ArrowRight" || key === "d") how.move(viewport.panned(viewport.width * KEY_PAN));
  else if (key === "+" || key === "=" || key === "w") how.move(viewport.zoomed(1 / KEY_ZOOM, middle));
  else if (key === "-" || key === "s") how.move(viewport.zoomed(KEY_ZOOM, middle));
  else if (key === "ArrowUp" && how.panY) how.panY(-60);
  else if (key === "ArrowDown" && how.panY) how.panY(60);
  else if (key === "PageUp" && how.zoomY) how.zoomY(1 / KEY_ZOOM, -1);
  else if (key === "PageDown" && how.zoomY) how.zoomY(KEY_ZOOM, -1);
  else if (key === "Home" || key === "0") (how.reset ?? (() => how.move({from: 0, to: viewport.scale.entries})))();
  else return false;
  return true;
}

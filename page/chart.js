// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Drawing on a 2D canvas: size, axes, lines. All coordinates are CSS pixels.
import {roundBinaryStep, roundTicks, tickSizeText} from "./units.js";
import {el} from "./dom.js";

export const CHART_FONT = "11px system-ui, sans-serif";

/** A canvas that fills its parent and tells when its size changes. */
export class Surface {
  /** @param {any} parent @param {() => void} draw @param {string} label */
  constructor(parent, draw, label) {
    this.canvas = el("canvas", {tabindex: "0", role: "img", "aria-label": label});
    this.width = 1;
    this.height = 1;
    this.frame = 0;
    this.draw = draw;
    parent.append(this.canvas);
    this.parent = parent;
    new ResizeObserver(() => this.redraw()).observe(parent);
  }

  /** Draws in the next frame. */
  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.measure()) this.draw();
    });
  }

  /** @returns {boolean} it can be seen */
  measure() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.parent.clientWidth;
    this.height = this.parent.clientHeight;
    const wide = Math.round(this.width * ratio);
    const tall = Math.round(this.height * ratio);
    if (this.canvas.width !== wide || this.canvas.height !== tall) {
      this.canvas.width = wide;
      this.canvas.height = tall;
    }
    return this.width > 0 && this.height > 0;
  }

  /** @returns {CanvasRenderingContext2D} cleared, in CSS pixels */
  begin() {
    return this.beginOn(this.canvas);
  }

  /** The same for another canvas of this size. @param {any} canvas @returns {CanvasRenderingContext2D} */
  beginOn(canvas) {
    const context = canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = CHART_FONT;
    context.textBaseline = "middle";
    return context;
  }
}

/**
 * Lines and texts of sizes. @param {CanvasRenderingContext2D} context @param {any} colours
 * @param {{left: number, top: number, width: number, height: number, most: number}} area
 */
export function drawSizeAxis(context, colours, area) {
  const ticks = roundTicks(0, area.most, Math.max(4, area.height / 36), roundBinaryStep);
  context.textAlign = "right";
  for (const tick of ticks) {
    const y = Math.round(area.top + area.height * (1 - tick / area.most)) + 0.5;
    context.strokeStyle = colours.faint;
    context.beginPath();
    context.moveTo(area.left, y);
    context.lineTo(area.left + area.width, y);
    context.stroke();
    context.fillStyle = colours.dim;
    context.fillText(tickSizeText(tick), area.left - 6, y);
  }
}

/**
 * Ticks below an area. @param {CanvasRenderingContext2D} context @param {any} colours
 * @param {import("./axis.js").Viewport} viewport @param {{left: number, bottom: number, top?: number}} area
 */
export function drawTimeAxis(context, colours, viewport, area) {
  context.textAlign = "center";
  for (const tick of viewport.ticks()) {
    const x = Math.round(area.left + tick.pixel) + 0.5;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(x, area.bottom);
    context.lineTo(x, area.bottom + 4);
    context.stroke();
    context.fillStyle = colours.dim;
    const half = context.measureText(tick.text).width / 2;
    const place = Math.max(area.left - 4 + half, Math.min(area.left + viewport.width - half, x));
    context.fillText(tick.text, place, area.bottom + 12);
  }
}

/** A colour with an alpha value. @param {string} colour "#rrggbb" @param {number} alpha */
export function fade(colour, alpha) {
  return colour + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

/** A text cut to a width. @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
export function clipText(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? "" : text.slice(0, low) + "…";
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Drawing on a 2D canvas: size, axes, lines. All coordinates are CSS pixels.
import {roundBinaryStep, roundTicks, tickSizeText} from "./units.js";
import {el} from "./dom.js";

export const CHART_FONT = "11px system-ui, sans-serif";

/** @type {boolean | null} */
let isSlowCard = null;

/** The graphics card is imitated by software. There, a canvas is faster without it. @returns {boolean} */
export function isSoftwareRendered() {
  if (isSlowCard !== null) return isSlowCard;
  const gl = document.createElement("canvas").getContext("webgl2");
  const more = gl?.getExtension("WEBGL_debug_renderer_info");
  const name = gl ? String(gl.getParameter(more ? more.UNMASKED_RENDERER_WEBGL : gl.RENDERER)) : "software";
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  isSlowCard = /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name);
  return isSlowCard;
}

/** A canvas that fills its parent and tells when its size changes. */
export class Surface {
  /**
   * @param {any} parent @param {() => void} draw @param {string} label
   * @param {(() => string) | null} paper colour of the background; null: what is behind is seen
   */
  constructor(parent, draw, label, paper = null) {
    this.canvas = el("canvas", {tabindex: "0", role: "img", "aria-label": label});
    this.line = el("i.cursor", {hidden: true, "aria-hidden": "true"});
    this.paper = paper;
    this.width = 1;
    this.height = 1;
    this.frame = 0;
    this.draw = draw;
    parent.append(this.canvas, this.line);
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

  /** A line under the mouse. It is an element, so that moving it draws nothing else. @param {number | null} x */
  showLine(x) {
    this.line.hidden = x === null || x < 0 || x > this.width;
    if (x !== null) this.line.style.transform = "translateX(" + Math.round(x) + "px)";
  }

  /** @returns {CanvasRenderingContext2D} cleared, in CSS pixels */
  begin() {
    return this.beginOn(this.canvas);
  }

  /** The same for another canvas of this size. @param {any} canvas @returns {CanvasRenderingContext2D} */
  beginOn(canvas) {
    const context = canvas.getContext("2d", {willReadFrequently: isSoftwareRendered(), alpha: !this.paper});
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.paper) context.fillStyle = this.paper();
    if (this.paper) context.fillRect(0, 0, this.width, this.height);
    else context.clearRect(0, 0, this.width, this.height);
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
  const ticks = roundTicks(0, area.most, Math.max(4, area.height / (area.height < 160 ? 23 : 40)), roundBinaryStep);
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

/** Black or white, whichever has more contrast on a colour. @param {string} colour "#rrggbb" */
export function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4)));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

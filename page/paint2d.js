// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Draws rectangles on a 2D canvas, where there is no WebGL2, or only one that software imitates. An answer is drawn
// once to a picture; a frame copies that to the canvas that also has the axes.
import {isSoftwareRendered} from "./chart.js";
import {colourParts} from "./theme.js";

const HATCH = 7;
// Kinds of rectangles that are no plain blocks: see rects.js.
const SEGMENT_KIND = 0;
const WAITING_KIND = 2;
const ALIAS_KIND = 3;

export class Painter2d {
  constructor() {
    /** @type {any} */
    this.rects = null;
    /** @type {OffscreenCanvas | null} */
    this.grid = null;
    this.answerSize = [1, 1];
    /** @type {OffscreenCanvas | null} */
    this.kept = null;
    this.picture = "";
  }

  /** @param {any} rects the answer of the worker @param {any} question its width and height are in pixels */
  setRects(rects, question) {
    this.rects = rects;
    this.answerSize = [question.width, question.height];
    this.picture = "";
  }

  /** @param {any} grid the answer of the worker, or null */
  setGrid(grid) {
    this.grid = null;
    this.picture = "";
    if (!grid) return;
    this.grid = canvasOf(new ImageData(grid.pixels, grid.columns, grid.rows));
  }

  /**
   * @param {CanvasRenderingContext2D} context @param {{left: number, width: number, height: number}} area
   * @param {number[]} rectChange @param {number[]} gridChange @param {import("./theme.js").Theme} theme
   */
  drawOn(context, area, rectChange, gridChange, theme) {
    if (!this.rects || !(rectChange[0] > 0)) return;
    const wanted = theme.groups?.[0] + " " + theme.names?.hole;
    if (this.picture !== wanted) this.keepPicture(rectChange, gridChange, theme);
    this.picture = wanted;
    const [sx, sy, dx, dy] = rectChange;
    context.save();
    context.beginPath();
    context.rect(area.left, 0, area.width, area.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(/** @type {any} */ (this.kept), area.left + dx * area.width, dy * area.height, sx * area.width,
      sy * area.height);
    context.restore();
  }

  /** @param {number[]} rectChange @param {number[]} gridChange @param {import("./theme.js").Theme} theme */
  keepPicture(rectChange, gridChange, theme) {
    const [wide, tall] = this.answerSize.map((size) => Math.max(1, size));
    const [sx, sy, dx, dy] = rectChange;
    this.kept = new OffscreenCanvas(wide, tall);
    const context = contextOf(this.kept);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.layer(theme, wide, tall, 0, this.rects.segments), 0, 0);
    if (this.grid) context.drawImage(this.grid, ((gridChange[2] - dx) / sx) * wide, ((gridChange[3] - dy) / sy) * tall,
      (gridChange[0] / sx) * wide, (gridChange[1] / sy) * tall);
    context.drawImage(this.layer(theme, wide, tall, this.rects.segments, this.rects.count), 0, 0);
  }

  /**
   * Rectangles as a picture. Thousands of fillRect() calls would cost several frames, writing pixels does not.
   * @param {import("./theme.js").Theme} theme @param {number} wide @param {number} tall
   * @param {number} first @param {number} end
   */
  layer(theme, wide, tall, first, end) {
    const pixels = new Pixels(wide, tall);
    const groups = (theme.groups ?? []).map((text) => pixelOf(text));
    const hole = pixelOf(theme.names?.hole ?? "#222222");
    const {box, look} = this.rects;
    for (let i = first; i < end; i++) {
      const kind = look[2 * i + 1];
      const x = Math.round(box[4 * i] * wide);
      const y = Math.round(box[4 * i + 1] * tall);
      const w = Math.max(1, Math.round((box[4 * i] + box[4 * i + 2]) * wide) - x);
      const h = Math.max(1, Math.round((box[4 * i + 1] + box[4 * i + 3]) * tall) - y);
      const isSegment = kind === SEGMENT_KIND || kind === ALIAS_KIND;
      const isLarge = w > 5 && h > 4 && !isSegment;
      const pixel = isSegment ? hole : groups[look[2 * i]] ?? GREY;
      pixels.fill(x, y, isLarge ? w - 1 : w, isLarge ? h - 1 : h, pixel, kind === WAITING_KIND);
    }
    return pixels.canvas();
  }
}

/**
 * All canvases are on the same side: drawing one of the graphics card on one of the processor waits for the card.
 * @param {OffscreenCanvas} canvas @returns {any}
 */
function contextOf(canvas) {
  return canvas.getContext("2d", {willReadFrequently: isSoftwareRendered()});
}

/** @param {ImageData} image */
export function canvasOf(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  contextOf(canvas).putImageData(image, 0, 0);
  return canvas;
}

const GREY = 0xff888888;
const STRIPE_ALPHA = 0x4d000000; // between the stripes of a hatch

/** A pixel in the order of memory, which is little-endian wherever browsers run. @param {string} text "#rrggbb" */
export function pixelOf(text) {
  const [red, green, blue] = colourParts(text);
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A transparent picture in which rectangles are filled. */
class Pixels {
  /** @param {number} wide @param {number} tall */
  constructor(wide, tall) {
    this.wide = wide;
    this.tall = tall;
    this.data = new ImageData(wide, tall);
    this.words = new Uint32Array(this.data.data.buffer);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {number} pixel */
  fill(x, y, w, h, pixel, /** @type {boolean} */ isHatched) {
    const left = Math.max(0, x);
    const right = Math.min(this.wide, x + w);
    const bottom = Math.min(this.tall, y + h);
    if (left >= right) return;
    for (let row = Math.max(0, y); row < bottom; row++) {
      const at = row * this.wide;
      if (isHatched) this.hatch(at, row, left, right, pixel);
      else this.words.fill(pixel, at + left, at + right);
    }
  }

  /** A row of stripes, for blocks that wait. @param {number} at @param {number} row @param {number} left */
  hatch(at, row, left, /** @type {number} */ right, /** @type {number} */ pixel) {
    const faint = ((pixel & 0xffffff) | STRIPE_ALPHA) >>> 0;
    for (let column = left; column < right; column++)
      this.words[at + column] = (column + row) % HATCH < HATCH / 2 ? faint : pixel;
  }

  canvas() {
    return canvasOf(this.data);
  }
}

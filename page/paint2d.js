// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Draws rectangles on a 2D canvas, where there is no WebGL2, or only one that software imitates. An answer is drawn
// once to a picture; a frame copies that to the canvas that also has the axes.
import {isSoftwareRendered} from "./chart.js";

const HATCH = 7;

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
    /** @type {Map<string, CanvasPattern>} */
    this.hatches = new Map();
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
    this.grid = new OffscreenCanvas(grid.columns, grid.rows);
    const context = /** @type {any} */ (this.grid.getContext("2d"));
    context.putImageData(new ImageData(grid.pixels, grid.columns, grid.rows), 0, 0);
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
    const [wide, tall] = this.answerSize;
    const [sx, sy, dx, dy] = rectChange;
    this.kept = new OffscreenCanvas(Math.max(1, wide), Math.max(1, tall));
    const context = /** @type {any} */ (this.kept.getContext("2d", {willReadFrequently: isSoftwareRendered()}));
    this.drawRange(context, theme, 0, this.rects.segments);
    context.imageSmoothingEnabled = false;
    if (this.grid) context.drawImage(this.grid, ((gridChange[2] - dx) / sx) * wide, ((gridChange[3] - dy) / sy) * tall,
      (gridChange[0] / sx) * wide, (gridChange[1] / sy) * tall);
    this.drawRange(context, theme, this.rects.segments, this.rects.count);
  }

  /** @param {any} context @param {import("./theme.js").Theme} theme @param {number} first @param {number} end */
  drawRange(context, theme, first, end) {
    const {rects} = this;
    const [width, height] = this.answerSize;
    const groups = theme.groups ?? [];
    for (let i = first; i < end; i++) {
      const kind = rects.look[2 * i + 1];
      const x = Math.round(rects.box[4 * i] * width);
      const y = Math.round(rects.box[4 * i + 1] * height);
      const w = Math.max(1, Math.round((rects.box[4 * i] + rects.box[4 * i + 2]) * width) - x);
      const h = Math.max(1, Math.round((rects.box[4 * i + 1] + rects.box[4 * i + 3]) * height) - y);
      if (x > width || y > height || x + w < 0 || y + h < 0) continue;
      const isSegment = kind === 0 || kind === 3;
      const colour = isSegment ? theme.names?.hole ?? "#222" : groups[rects.look[2 * i]] ?? "#888";
      context.fillStyle = kind === 2 ? this.hatch(context, colour) : colour;
      const isLarge = w > 5 && h > 4 && !isSegment;
      context.fillRect(x, y, isLarge ? w - 1 : w, isLarge ? h - 1 : h);
    }
  }

  /** Stripes of a colour, for blocks that wait. @param {any} context @param {string} colour @returns {CanvasPattern} */
  hatch(context, colour) {
    let found = this.hatches.get(colour);
    if (found) return found;
    const tile = new OffscreenCanvas(HATCH, HATCH);
    const stripes = /** @type {any} */ (tile.getContext("2d"));
    for (let y = 0; y < HATCH; y++)
      for (let x = 0; x < HATCH; x++) {
        stripes.globalAlpha = (x + y) % HATCH < HATCH / 2 ? 0.3 : 1;
        stripes.fillStyle = colour;
        stripes.fillRect(x, y, 1, 1);
      }
    found = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
    this.hatches.set(colour, found);
    return found;
  }
}

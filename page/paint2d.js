// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Draws rectangles on a 2D canvas, where there is no WebGL2. The interface is that of paint.js.

export class Painter2d {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {any} */
    this.rects = null;
    /** @type {OffscreenCanvas | null} */
    this.grid = null;
    /** @type {(() => void) | null} */
    this.onRestore = null;
  }

  /** @param {any} rects the answer of the worker */
  setRects(rects) {
    this.rects = rects;
  }

  /** @param {any} grid the answer of the worker, or null */
  setGrid(grid) {
    this.grid = null;
    if (!grid) return;
    this.grid = new OffscreenCanvas(grid.columns, grid.rows);
    const context = /** @type {any} */ (this.grid.getContext("2d"));
    context.putImageData(new ImageData(grid.pixels, grid.columns, grid.rows), 0, 0);
  }

  /** @param {number[]} rectChange @param {number[]} gridChange @param {import("./theme.js").Theme} theme */
  draw(rectChange, gridChange, theme) {
    const {context, canvas, rects} = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!rects) return;
    this.drawRange(rectChange, theme, 0, rects.segments);
    if (this.grid) {
      const [sx, sy, dx, dy] = gridChange;
      context.imageSmoothingEnabled = false;
      context.drawImage(this.grid, dx * canvas.width, dy * canvas.height, sx * canvas.width, sy * canvas.height);
    }
    this.drawRange(rectChange, theme, rects.segments, rects.count);
  }

  /** @param {number[]} change @param {import("./theme.js").Theme} theme @param {number} first @param {number} end */
  drawRange([sx, sy, dx, dy], theme, first, end) {
    const {context, rects} = this;
    const {width, height} = this.canvas;
    const groups = theme.groups ?? [];
    for (let i = first; i < end; i++) {
      const kind = rects.look[2 * i + 1];
      const x = Math.round((rects.box[4 * i] * sx + dx) * width);
      const y = Math.round((rects.box[4 * i + 1] * sy + dy) * height);
      const w = Math.max(1, Math.round((rects.box[4 * i] + rects.box[4 * i + 2]) * sx * width + dx * width) - x);
      const h = Math.max(1, Math.round((rects.box[4 * i + 1] + rects.box[4 * i + 3]) * sy * height + dy * height) - y);
      if (x > width || y > height || x + w < 0 || y + h < 0) continue;
      const isSegment = kind === 0 || kind === 3;
      context.globalAlpha = kind === 2 ? 0.4 : 1;
      context.fillStyle = isSegment ? theme.names?.hole ?? "#222" : groups[rects.look[2 * i]] ?? "#888";
      const isLarge = w > 5 && h > 4 && !isSegment;
      context.fillRect(x, y, isLarge ? w - 1 : w, isLarge ? h - 1 : h);
    }
    context.globalAlpha = 1;
  }
}

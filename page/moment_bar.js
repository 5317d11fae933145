// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The memory of one moment as one bar: all that was reserved, with its blocks and holes, and a request to its scale.
import {sizeText} from "./units.js";
import {el} from "./dom.js";
import {Surface, fade} from "./chart.js";
import {Latest} from "./link.js";

const BAR_TOP = 24;
const BAR_TALL = 44;
const ROW_ROOM = 24;
/** The segment of a hole is found among so many of the largest holes. */
const HOLES_ASKED = 64;

/** Reserved ranges of an answer beside each other, without what is not reserved. */
export class PackedRanges {
  /** @param {any} answer rectangles; the first are segments, from top to bottom of the picture */
  constructor(answer) {
    const boxes = [];
    for (let i = 0; i < answer.segments; i++)
      boxes.push({low: answer.box[4 * i + 1], tall: answer.box[4 * i + 3], at: 0});
    boxes.sort((a, b) => a.low - b.low);
    let sum = 0;
    for (const box of boxes) {
      box.at = sum;
      sum += box.tall;
    }
    this.boxes = boxes;
    this.total = sum;
  }

  /** @param {number} y of the picture @returns {number} the share of the picture that is reserved before it */
  place(y) {
    let low = 0;
    let high = this.boxes.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.boxes[middle].low <= y) low = middle + 1;
      else high = middle;
    }
    const box = this.boxes[low - 1];
    return box ? box.at + Math.min(box.tall, y - box.low) : 0;
  }
}

export class MomentBar {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.element = el("div.plot.moment-bar");
    this.surface = new Surface(this.element, () => this.draw(), "The memory of this moment, and the request to scale",
      () => app.theme.names.card);
    this.surface.canvas.tabIndex = -1;
    /** @type {any} */
    this.oom = null;
    /** @type {any} */
    this.answer = null;
    /** @type {any} */
    this.hole = null;
    this.ask = new Latest((oom) => this.find(oom), (found) => this.use(found));
  }

  /** @param {any} oom a refused request */
  show(oom) {
    this.oom = oom;
    this.surface.redraw();
    if (this.app.lanes) this.ask.request(oom);
  }

  /** @param {any} oom */
  async find(oom) {
    const {app} = this;
    const total = app.lanes.total;
    const pixels = Math.max(100, Math.ceil(this.element.clientWidth * (window.devicePixelRatio || 1)));
    const rects = await app.ask("rects", {from: oom.entry + 0.25, to: oom.entry + 0.75, low: 0, high: total, width: 4,
      height: 4 * pixels, x: "entry", by: app.state.now.by});
    const holes = await app.ask("holes", {entry: oom.entry, top: HOLES_ASKED});
    return rects && holes && {oom, rects, holes};
  }

  use(/** @type {any} */ found) {
    const {app} = this;
    this.answer = {...found.rects, oom: found.oom, packed: new PackedRanges(found.rects), total: app.lanes.total};
    this.hole = found.holes.holes.find((/** @type {any} */ one) => one.bytes === found.oom.place_largest) ?? null;
    this.surface.redraw();
  }

  draw() {
    const {app, oom, surface} = this;
    const context = surface.begin();
    if (!oom) return;
    const limit = app.facts.limit?.least ?? 0;
    const whole = Math.max(limit, oom.reserved + (oom.segment_bytes ?? oom.bytes)) * 1.005;
    const pixel = (/** @type {number} */ bytes) => (bytes / whole) * (surface.width - 2) + 1;
    const colours = app.theme.names;
    context.fillStyle = colours.hole;
    context.fillRect(1, BAR_TOP, pixel(oom.reserved) - 1, BAR_TALL);
    if (this.answer?.oom === oom) this.drawBlocks(context, pixel);
    this.drawNewSegment(context, pixel);
    this.drawLimit(context, pixel, limit);
    this.drawFit(context, pixel);
  }

  /** @param {any} context @param {(bytes: number) => number} pixel */
  drawBlocks(context, pixel) {
    const {answer, app} = this;
    const {packed, box, look} = answer;
    const bytes = answer.total * app.unit;
    for (let i = answer.segments; i < answer.count; i++) {
      const left = pixel(packed.place(box[4 * i + 1]) * bytes);
      const right = pixel((packed.place(box[4 * i + 1]) + box[4 * i + 3]) * bytes);
      context.fillStyle = app.theme.groups[look[2 * i]];
      context.fillRect(left, BAR_TOP, Math.max(0.5, right - left - (right - left > 4 ? 1 : 0)), BAR_TALL);
    }
    context.fillStyle = app.theme.names.card;
    for (const one of packed.boxes)
      if (one.at > 0 && one.tall * bytes > 0.004 * this.oom.reserved)
        context.fillRect(Math.round(pixel(one.at * bytes)) - 1, BAR_TOP, 2, BAR_TALL);
  }

  /** What would have been reserved for the request. @param {any} context @param {(bytes: number) => number} pixel */
  drawNewSegment(context, pixel) {
    const {oom, app} = this;
    const colours = app.theme.names;
    const bytes = oom.segment_bytes ?? oom.bytes;
    const left = pixel(oom.reserved) + 2;
    const right = pixel(oom.reserved + bytes);
    context.fillStyle = fade(colours.bad, 0.14);
    context.fillRect(left, BAR_TOP, right - left, BAR_TALL);
    context.strokeStyle = colours.bad;
    context.setLineDash([4, 3]);
    context.strokeRect(left + 0.5, BAR_TOP + 0.5, right - left - 1, BAR_TALL - 1);
    context.setLineDash([]);
    context.textAlign = "center";
    context.fillStyle = colours.bad;
    if (right - left > 70) {
      context.fillText("new segment", (left + right) / 2, BAR_TOP + BAR_TALL / 2 - 7);
      context.fillText(sizeText(bytes), (left + right) / 2, BAR_TOP + BAR_TALL / 2 + 8);
    }
    context.textAlign = "left";
    context.fillStyle = colours.dim;
    context.fillText("reserved: " + sizeText(oom.reserved) + ", block after block by address", 1, 11);
  }

  /** @param {any} context @param {(bytes: number) => number} pixel @param {number} limit */
  drawLimit(context, pixel, limit) {
    const {app} = this;
    if (limit <= 0) return;
    const x = Math.round(pixel(limit)) + 0.5;
    context.strokeStyle = context.fillStyle = app.theme.names.bad;
    context.beginPath();
    context.moveTo(x, 4);
    context.lineTo(x, BAR_TOP + BAR_TALL + 6);
    context.stroke();
    context.textAlign = "right";
    context.fillText("limit " + sizeText(limit) + (app.facts.limit.most > limit ? " or more" : ""), x - 6, 11);
  }

  /** The largest hole, and the request below it. @param {any} context @param {(bytes: number) => number} pixel */
  drawFit(context, pixel) {
    const {oom, app, hole, answer} = this;
    const colours = app.theme.names;
    const isFound = hole && answer?.oom === oom;
    const y = isFound ? (app.lanes.low[hole.lane] + hole.low) / answer.total : 0;
    const start = isFound ? pixel(answer.packed.place(y) * answer.total * app.unit) : 1;
    const rows = /** @type {[number, string, string][]} */ ([
      [oom.place_largest, colours.dim, "largest hole it could use"], [oom.bytes, colours.bad, "request"]]);
    const left = Math.max(1, Math.min(start, pixel(this.app.facts.limit?.least ?? oom.reserved) - 260));
    rows.forEach(([bytes, colour, name], row) => {
      const top = BAR_TOP + BAR_TALL + 12 + row * ROW_ROOM;
      const wide = Math.max(2, pixel(bytes) - 1);
      context.fillStyle = fade(colour, row === 0 ? 0.55 : 0.9);
      context.fillRect(left, top, wide, 16);
      context.fillStyle = row === 0 ? colours.text : colours.bad;
      context.textAlign = left + wide + 230 < this.surface.width ? "left" : "right";
      context.fillText(name + " " + sizeText(bytes), context.textAlign === "left" ? left + wide + 7 : left - 7,
        top + 8.5);
    });
    if (!isFound || left !== start) return;
    context.strokeStyle = colours.text;
    context.strokeRect(start + 0.5, BAR_TOP + 0.5, Math.max(2, pixel(oom.place_largest) - 2), BAR_TALL - 1);
  }
}

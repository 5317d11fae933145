// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Address over time: every segment is a lane, blocks are rectangles, and what is left between them are holes.
import {amountText, sizeText} from "./units.js";
import {choiceBar, el, fill} from "./dom.js";
import {attachPanZoom, positionText} from "./axis.js";
import {Surface, drawTimeAxis, fade, isSoftwareRendered} from "./chart.js";
import {Latest} from "./link.js";
import {PainterGl} from "./paint.js";
import {Painter2d} from "./paint2d.js";
import {leftOutNote} from "./view_header.js";
import {PLOT_LEFT, PLOT_RIGHT} from "./view_overview.js";
import {describePoint} from "./inspector.js";

const BOTTOM_ROOM = 20;
const MARGIN = 0.25;
const HOLES_MOST = 6;
const LABELS_MOST = 8;
/** The kind of a rectangle that waits, as in rects.js. */
const WAITING = 2;
/** Small blocks are drawn again when the window rests this long. */
const GRID_MS = 250;
/** While the window moves, its content is asked for after this time at the earliest. */
export const MOVE_MS = 120;
export const GROUPINGS = [["site", "Site", "The line of your code that allocated"], ["module", "Module", "Its file"],
  ["size", "Size", "Powers of two"], ["stream", "Stream", "The stream that allocated"],
  ["pool", "Pool", "The default pool, or a private one"],
  ["lifetime", "Lifetime", "Kept, of a step, or passing"]];

export class WhereView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.by = choiceBar("Colour by", /** @type {any} */ (GROUPINGS), (by) => app.state.set({by}));
    this.count = el("span.dim");
    this.plot = el("div.plot");
    this.side = el("aside.card.side", {"aria-label": "Details", "aria-live": "polite"});
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Where"},
      el("div.toolbar", null, el("label", null, "colour by"), this.by.element, el("span.grow"), this.count,
        this.lack = el("span")),
        this.plot), this.side);
    this.glCanvas = el("canvas", {"aria-hidden": "true"});
    this.plot.append(this.glCanvas);
    this.surface = new Surface(this.plot, () => this.draw(), "Addresses over time; click on a hole or a block");
    this.painter = this.makePainter();
    this.tip = el("div.tip", {hidden: true, role: "status"});
    document.body.append(this.tip);
    /** @type {any} the window of the rectangles, and of the grid */
    this.rects = null;
    this.grid = null;
    this.point = null;
    this.hasWaiting = false;
    /** @type {any[]} parked ranges of the window */
    this.parked = [];
    this.gridTimer = 0;
    this.askTimer = 0;
    this.asked = -1e9;
    this.hovers = 0;
    this.askRects = new Latest((q) => app.ask("rects", q), (answer, q) => this.useRects(answer, q));
    this.askGrid = new Latest((q) => app.ask("grid", q), (answer, q) => this.useGrid(answer, q));
    this.askHover = new Latest((q) => app.ask("at", q), (answer, q) => this.showTip(answer, q));
    this.askPoint = new Latest((q) => app.ask("at", q), (answer) => this.usePoint(answer));
    this.listen();
  }

  /** WebGL2, unless it is not there, not wanted, or slower than the processor alone. */
  makePainter() {
    const {choice} = this.app;
    try {
      if (choice === "2d" || (choice !== "gl" && isSoftwareRendered())) throw new Error("not wanted");
      const painter = new PainterGl(this.glCanvas);
      painter.onRestore = () => this.refresh();
      return painter;
    } catch {
      this.glCanvas.remove();
      this.surface.paper = () => this.app.theme.names.card;
      return new Painter2d();
    }
  }

  /** Another device: nothing of the last one may be seen. */
  clear() {
    this.rects = this.grid = this.point = null;
    this.parked = [];
  }

  get width() {
    return Math.max(1, this.surface.width - PLOT_LEFT - PLOT_RIGHT);
  }

  get height() {
    return Math.max(1, this.surface.height - BOTTOM_ROOM);
  }

  /** Units from top to bottom. */
  range() {
    const {low, high} = this.app.state.now;
    const total = this.app.lanes?.total ?? 1;
    return high > low ? {low, high} : {low: 0, high: total};
  }

  /** Asks for what the window shows, and a margin around it. @param {Set<string>} [keys] what changed; none: all */
  refresh(keys) {
    const {app} = this;
    this.by.show(app.state.now.by);
    fill(this.lack, leftOutNote(app));
    this.by.allow("site", app.hasStacks, "No stacks were recorded");
    this.by.allow("module", app.hasStacks, "No stacks were recorded");
    this.hideTip();
    if (!app.lanes) this.showReading();
    if (!app.lanes || !this.surface.measure()) return;
    const ratio = window.devicePixelRatio || 1;
    const viewport = app.viewport(this.width);
    const wide = viewport.x1 - viewport.x0;
    const scale = viewport.scale;
    const from = scale.toEntry(Math.max(scale.toX(0), viewport.x0 - MARGIN * wide));
    const to = scale.toEntry(Math.min(scale.toX(scale.entries), viewport.x1 + MARGIN * wide));
    const {low, high} = this.range();
    const share = (scale.toX(to) - scale.toX(from)) / wide;
    const question = {from, to, low, high, width: Math.ceil(this.width * ratio * share),
      height: Math.ceil(this.height * ratio),
      x: app.state.now.x, by: app.state.now.by, x0: scale.toX(from), x1: scale.toX(to), scale};
    const plain = {...question, scale: undefined};
    this.askSoon(plain);
    if (keys && !["point", "by", "tab", "device"].some((key) => keys.has(key))) return;
    if (app.state.now.point) this.askPoint.request({...app.state.now.point});
    else this.usePoint(null);
  }

  /** While the window moves, the last answer is stretched; others come now and then. @param {any} question */
  askSoon(question) {
    clearTimeout(this.askTimer);
    clearTimeout(this.gridTimer);
    const wait = this.asked + MOVE_MS - performance.now();
    if (wait > 0) {
      this.askTimer = setTimeout(() => this.askSoon(question), wait);
      return;
    }
    this.asked = performance.now();
    this.askRects.request(question);
  }

  /** The tip says it, too: where software renders, what is drawn for the first time costs a long frame. */
  showReading() {
    const text = "The recording is being read …";
    fill(this.side, el("p.dim", null, text));
    const box = this.surface.canvas.getBoundingClientRect();
    if (box.width === 0) return;
    fill(this.tip, el("p.dim", null, text));
    this.tip.hidden = false;
    this.tip.style.left = box.left + box.width / 2 - this.tip.offsetWidth / 2 + "px";
    this.tip.style.top = box.top + box.height / 2 + "px";
  }

  /** What the mouse is over is not known until it moves again. */
  hideTip() {
    this.tip.hidden = true;
    this.hovers++;
  }

  useRects(/** @type {any} */ answer, /** @type {any} */ question) {
    const {app} = this;
    clearTimeout(this.gridTimer);
    const rest = {...question, leastArea: answer.leastArea, palette: app.theme.palette};
    if (app.isWhole) this.gridTimer = setTimeout(() => this.askGrid.request(rest), GRID_MS);
    this.rects = question;
    this.parked = answer.parked ?? [];
    this.painter.setRects(answer, question);
    const blocks = answer.count - answer.segments;
    this.hasWaiting = false;
    for (let i = 1; i < answer.look.length && !this.hasWaiting; i += 2) this.hasWaiting = answer.look[i] === WAITING;
    fill(this.count, amountText(answer.segments, "range") + ", " + (answer.leastArea > 0 ? "the largest " : "") +
      amountText(blocks, "block") + (answer.leastArea > 0 ? "" : " of a pixel or more"));
    this.surface.redraw();
  }

  useGrid(/** @type {any} */ answer, /** @type {any} */ question) {
    this.grid = question;
    this.painter.setGrid(answer);
    this.surface.redraw();
  }

  usePoint(/** @type {any} */ point) {
    this.point = point;
    this.showSide();
    this.surface.redraw();
  }

  showSide() {
    const {app} = this;
    if (this.point) fill(this.side, ...describePoint(app, this.point, () => app.state.set({point: null})));
    else void this.showLegend();
  }

  /**
   * The moment whose holes are listed: a refused request, or the entry after the peak of reserved memory, which uses
   * what was reserved there; if the window has it.
   */
  moment() {
    const {app} = this;
    const {from, to} = app.window();
    const moments = [...(app.facts.ooms ?? []).map((/** @type {any} */ oom) => [oom.entry, "when memory ran out"]),
      [(app.facts.peaks?.reserved?.at ?? -2) + 1, "after the peak of reserved memory"]];
    return moments.find(([entry]) => entry >= from && entry < to) ?? [Math.max(from, to - 1),
      "at the end of the window"];
  }

  async showLegend() {
    const {app} = this;
    const [entry, when] = this.moment();
    const legend = await app.ask("legend", {by: app.state.now.by, top: 12, ...app.window()});
    const holes = await app.ask("holes", {entry, top: HOLES_MOST});
    if (!legend || !holes || this.point) return;
    const rows = legend.names.map((/** @type {string} */ name, /** @type {number} */ i) =>
      colourRow(app, legend.colours[i], name));
    const rest = legend.count - legend.names.length;
    const isShort = legend.names.length > 6 && legend.names.every((/** @type {string} */ name) => name.length < 16);
    if (rest > 0) rows.push(colourRow(app, app.state.now.by === "size" ? 13 : 12, amountText(rest, "other")));
    fill(this.side, el("h2", null, "Where memory is"),
      el("p.dim", null, "Each lane is a segment; time runs to the right. Click on a hole to see since when it is " +
        "free, and which blocks keep it from use."),
      holes.holes.length > 0 && el("h3", null, "Largest holes " + when), this.holeRows(holes),
      el("h3", null, "Colours"),
      el("ul.rows" + (isShort ? ".two" : ""), null, colourRow(app, -1, "free: a hole"),
        this.hasWaiting && colourRow(app, -2, "hatched: waits"),
        this.parked.length > 0 && colourRow(app, -2, "hatched and framed: parked"), ...rows),
      app.hasStacks ? null : el("p.dim", null, "Without recorded stacks, blocks cannot be coloured by call site."),
      app.facts.has_segments === false && el("p.dim", null, "Only requests were recorded: what was reserved around " +
        "them is not known."));
  }

  /** @param {any} answer the largest holes of an instant */
  holeRows(answer) {
    const {app} = this;
    const most = Math.max(1, ...answer.holes.map((/** @type {any} */ one) => one.bytes));
    return el("ul.rows", {"data-list": "holes"}, ...answer.holes.map((/** @type {any} */ one) => {
      const bar = el("span.meter", {"aria-hidden": "true"}, el("i"));
      bar.firstChild.style.width = (100 * one.bytes) / most + "%";
      return el("li", null, el("button.mono", {type: "button", title: "Show this hole", click: () =>
        app.state.set({point: {entry: answer.position, lane: one.lane, offset: one.low + one.units / 2}})},
      one.address), bar, el("span.size", null, sizeText(one.bytes)));
    }));
  }

  /** From the window of an answer to the present one. @param {any} question @returns {number[]} */
  change(question) {
    if (!question || question.x !== this.app.state.now.x) return [0, 0, 9, 9];
    const viewport = this.app.viewport(this.width);
    const {low, high} = this.range();
    const wide = viewport.x1 - viewport.x0;
    const tall = high - low;
    return [(question.x1 - question.x0) / wide, (question.high - question.low) / tall,
      (question.x0 - viewport.x0) / wide,
      (question.low - low) / tall];
  }

  /** Draws the rectangles, and gives the canvas of what is over them. @returns {CanvasRenderingContext2D} */
  drawRects() {
    const {painter, surface, app} = this;
    const changes = [this.change(this.rects), this.change(this.grid)];
    if (painter instanceof Painter2d) {
      const context = surface.begin();
      painter.drawOn(context, {left: PLOT_LEFT, width: this.width, height: this.height}, changes[0], changes[1],
        app.theme);
      return context;
    }
    const ratio = window.devicePixelRatio || 1;
    const canvas = this.glCanvas;
    const style = canvas.style;
    style.left = PLOT_LEFT + "px";
    style.top = "0";
    style.width = this.width + "px";
    style.height = this.height + "px";
    const [wide, tall] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
    painter.draw(changes[0], changes[1], app.theme);
    return surface.begin();
  }

  draw() {
    const {app} = this;
    const context = this.drawRects();
    const viewport = app.viewport(this.width);
    drawTimeAxis(context, app.theme.names, viewport, {left: PLOT_LEFT, bottom: this.height});
    this.drawLanes(context);
    context.save();
    context.beginPath();
    context.rect(PLOT_LEFT, 0, this.width, this.height);
    context.clip();
    this.drawParked(context, viewport);
    this.drawPoint(context, viewport);
    this.drawMarks(context, viewport);
    this.drawRequest(context, viewport);
    context.restore();
  }

  /** @param {number} y in units */
  pixelY(y) {
    const {low, high} = this.range();
    return ((y - low) / (high - low)) * this.height;
  }

  /** Names of lanes that are tall enough, and a line below each. */
  drawLanes(/** @type {any} */ context) {
    const {app} = this;
    const lanes = app.lanes;
    if (!lanes) return;
    context.textAlign = "right";
    let last = -99;
    const {low, high} = this.range();
    for (let lane = 0; lane < lanes.count; lane++) {
      if (lanes.low[lane] > high || lanes.low[lane] + lanes.extent[lane] < low) continue;
      const top = this.pixelY(lanes.low[lane]);
      const bottom = this.pixelY(lanes.low[lane] + lanes.extent[lane]);
      const middle = Math.max(8, Math.min(this.height - 8, (Math.max(0, top) + Math.min(this.height, bottom)) / 2));
      if (bottom - top < 9 || middle - last < 13) continue;
      context.fillStyle = app.theme.names.dim;
      context.fillText(sizeText(lanes.extent[lane] * app.unit).replace(/\.00 /, " "), PLOT_LEFT - 7, middle);
      context.fillStyle = fade(app.theme.names.line, 1);
      context.fillRect(PLOT_LEFT - 4, Math.max(0, top), 2, Math.min(this.height, bottom) - Math.max(0, top));
      last = middle;
    }
  }

  /** Parked ranges, hatched over the blocks that stay in them. */
  drawParked(/** @type {any} */ context, /** @type {any} */ viewport) {
    const {app} = this;
    if (this.parked.length === 0) return;
    const lines = hatching(context, fade(app.theme.names.card, 0.75));
    for (const one of this.parked) {
      const left = Math.max(PLOT_LEFT - 2, PLOT_LEFT + viewport.pixel(one.begin));
      const right = Math.min(PLOT_LEFT + this.width + 2, PLOT_LEFT + viewport.pixel(one.end ?? app.facts.entries));
      const top = Math.max(-2, this.pixelY(one.low));
      const bottom = Math.min(this.height + 2, this.pixelY(one.high));
      if (right < PLOT_LEFT || left > PLOT_LEFT + this.width || bottom < 0 || top > this.height) continue;
      hatch(context, [left, top, Math.max(2, right - left), Math.max(2, bottom - top)], app.theme.names, lines);
    }
  }

  /** A frame around what was clicked. */
  drawPoint(/** @type {any} */ context, /** @type {any} */ viewport) {
    const point = this.point;
    const {app} = this;
    if (!point || !app.lanes) return;
    const frame = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ low,
      /** @type {number} */ units,
      /** @type {string} */ colour, /** @type {number} */ wide) => {
      const left = PLOT_LEFT + Math.max(-5, viewport.pixel(from));
      const right = PLOT_LEFT + Math.min(this.width + 5, viewport.pixel(to));
      const top = this.pixelY(app.lanes.low[point.lane] + low);
      const bottom = this.pixelY(app.lanes.low[point.lane] + low + units);
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.strokeRect(left, top, Math.max(2, right - left), Math.max(2, bottom - top));
      context.lineWidth = 1;
    };
    const {accent, text} = app.theme.names;
    const last = app.facts.entries;
    if (point.hole) {
      for (const block of [point.hole.left, point.hole.right])
        if (block) frame(block.begin, block.gone ?? last, block.offset, block.units, text, 1.5);
      frame(point.hole.since, point.hole.until ?? last, point.hole.low, point.hole.units, accent, 2.5);
    } else if (point.block) {
      frame(point.block.begin, point.block.gone ?? last, point.block.offset, point.block.units, accent, 2.5);
    }
    const x = Math.round(PLOT_LEFT + viewport.pixel(point.position + 0.5)) + 0.5;
    context.strokeStyle = fade(accent, 0.6);
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, this.height);
    context.stroke();
    context.setLineDash([]);
  }

  drawMarks(/** @type {any} */ context, /** @type {any} */ viewport) {
    const {app} = this;
    for (const mark of app.facts.marks ?? []) {
      if (mark.kind !== "oom") continue;
      const x = Math.round(PLOT_LEFT + viewport.pixel(mark.at)) + 0.5;
      context.strokeStyle = app.theme.names.bad;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, this.height);
      context.stroke();
    }
  }

  /** The request that was refused beside the moment, as tall as memory it asked for. */
  drawRequest(/** @type {any} */ context, /** @type {any} */ viewport) {
    const {app} = this;
    const colours = app.theme.names;
    const {low, high} = this.range();
    for (const oom of (app.facts.ooms ?? []).slice(0, LABELS_MOST)) {
      const x = Math.round(PLOT_LEFT + viewport.pixel(oom.entry));
      if (x < PLOT_LEFT || x > PLOT_LEFT + this.width + 1) continue;
      const tall = (oom.bytes / app.unit / (high - low)) * this.height;
      const text = "out of memory: " + sizeText(oom.bytes) + " requested";
      const wide = context.measureText(text).width + 14;
      const isLeft = x - wide - 12 > PLOT_LEFT;
      const left = isLeft ? x - wide - 11 : x + 11;
      context.fillStyle = fade(colours.bad, 0.9);
      context.fillRect(isLeft ? x - 6 : x + 2, 6, 4, Math.max(2, Math.min(tall, this.height - 12)));
      context.fillStyle = colours.card;
      context.fillRect(left, 6, wide, 19);
      context.strokeStyle = colours.bad;
      context.strokeRect(left + 0.5, 6.5, wide - 1, 18);
      context.fillStyle = colours.bad;
      context.textAlign = "left";
      context.fillText(text, left + 7, 16);
    }
  }

  /** A line where the mouse is. */
  showCursor() {
    const {app} = this;
    const x = app.cursor === null ? -1 : app.viewport(this.width).pixel(app.cursor);
    this.surface.showLine(x < 0 || x > this.width ? null : PLOT_LEFT + x);
  }

  // -------------------------------------------------------------------------------------------------
  // Input

  /** Shows other addresses. @param {number} low @param {number} high */
  moveRange(low, high) {
    const total = this.app.lanes?.total ?? 1;
    const tall = Math.min(total, Math.max(high - low, 8));
    const top = Math.max(0, Math.min(total - tall, low));
    this.app.state.set(tall >= total ? {low: 0, high: 0} : {low: top, high: top + tall});
  }

  listen() {
    const how = {
      viewport: () => this.app.viewport(this.width),
      move: (/** @type {any} */ window) => this.app.moveWindow(window),
      zoomY: (/** @type {number} */ factor, /** @type {number} */ pixel) => {
        const {low, high} = this.range();
        const share = pixel < 0 ? 0.5 : pixel / this.height;
        const at = low + share * (high - low);
        this.moveRange(at - (at - low) * factor, at + (high - at) * factor);
      },
      panY: (/** @type {number} */ pixels) => {
        const {low, high} = this.range();
        const shift = (pixels / this.height) * (high - low);
        if (this.app.state.now.high > 0) this.moveRange(low + shift, high + shift);
      },
      reset: () => this.app.state.set({from: -1, to: -1, low: 0, high: 0}),
      hover: (/** @type {number} */ x, /** @type {number} */ y) => this.hover(x, y),
      click: (/** @type {number} */ x, /** @type {number} */ y) => this.click(x, y),
      leave: () => {
        this.hideTip();
        this.app.setCursor(null);
      },
    };
    attachPanZoom(this.surface.canvas, how, PLOT_LEFT);
  }

  /** @param {number} pixel @param {number} y */
  question(pixel, y) {
    const {low, high} = this.range();
    const position = this.app.viewport(this.width).position(pixel);
    return {entry: Math.max(0, Math.min(this.app.scale.entries, position)), y: low + (y / this.height) * (high - low)};
  }

  /** @param {number} pixel @param {number} y */
  hover(pixel, y) {
    if (pixel < 0 || pixel > this.width || y > this.height || !this.app.lanes) {
      this.hideTip();
      return;
    }
    const question = this.question(pixel, y);
    this.app.setCursor(question.entry);
    this.askHover.request({...question, pixel, pixelY: y, hover: ++this.hovers});
  }

  /** @param {number} pixel @param {number} y */
  async click(pixel, y) {
    if (pixel < 0 || pixel > this.width || y > this.height || !this.app.lanes) return;
    const found = await this.app.ask("at", this.question(pixel, y));
    this.hideTip();
    if (found) this.app.state.set({point: {entry: Math.max(0, found.position), lane: found.lane,
      offset: found.offset}});
  }

  /** A few words beside the mouse; never over what they are about. */
  showTip(/** @type {any} */ point, /** @type {any} */ question) {
    const {app, tip} = this;
    if (question.hover !== this.hovers) return;
    if (point.kind === "nothing" || app.cursor === null) {
      tip.hidden = true;
      return;
    }
    const block = point.block;
    if (point.kind === "parked") fill(tip, el("p", null, el("b", null, "Parked")), parkedTip(app, point.parked));
    else this.fillTip(point, block);
    tip.hidden = false;
    const box = this.surface.canvas.getBoundingClientRect();
    const x = box.left + PLOT_LEFT + question.pixel;
    const y = box.top + question.pixelY;
    tip.style.left = (x + 18 + tip.offsetWidth < window.innerWidth ? x + 18 : x - 18 - tip.offsetWidth) + "px";
    tip.style.top = Math.max(4, Math.min(window.innerHeight - tip.offsetHeight - 4, y - tip.offsetHeight - 14)) + "px";
  }

  fillTip(/** @type {any} */ point, /** @type {any} */ block) {
    const {app, tip} = this;
    const title = point.kind === "hole" ? "Hole of " + sizeText(point.hole.bytes)
      : (point.kind === "waiting" ? "Waiting, " : "") + sizeText(block.bytes);
    fill(tip, el("p", null, el("b", null, title)),
      el("p.dim", null, point.kind === "hole" ? "free since " + (point.hole.since < 0 ? "before the recording"
        : positionText(app, point.hole.since))
        : block.site),
      block && el("p.dim", null, "since " + (block.begin < 0 ? "before the recording"
        : positionText(app, block.begin))),
      point.parked && parkedTip(app, point.parked));
  }
}

/** @param {any} app @param {any} parked */
function parkedTip(app, parked) {
  return el("p.dim", null, "parked since " + (parked.begin < 0 ? "before the recording"
    : positionText(app, parked.begin)));
}

const HATCH_STEP = 8;
const LABEL_WIDE = 54;

/** A pattern of diagonal lines. @param {any} context @param {string} colour */
function hatching(context, colour) {
  const tile = /** @type {any} */ (el("canvas"));
  tile.width = tile.height = HATCH_STEP;
  const inside = tile.getContext("2d");
  inside.strokeStyle = colour;
  inside.lineWidth = 3;
  inside.beginPath();
  for (const shift of [-HATCH_STEP, 0, HATCH_STEP]) {
    inside.moveTo(shift - 2, HATCH_STEP + 2);
    inside.lineTo(shift + HATCH_STEP + 2, -2);
  }
  inside.stroke();
  return context.createPattern(tile, "repeat");
}

/** Lines and a frame over a box, and the word "parked" if there is room. */
function hatch(/** @type {any} */ context, /** @type {number[]} */ [left, top, wide, tall],
  /** @type {any} */ colours, /** @type {any} */ lines) {
  context.fillStyle = lines;
  context.fillRect(left, top, wide, tall);
  context.strokeStyle = colours.text;
  context.strokeRect(left + 0.5, top + 0.5, wide - 1, tall - 1);
  if (wide <= LABEL_WIDE || tall <= 18) return;
  context.fillStyle = colours.card;
  context.fillRect(left + 4, top + 3, LABEL_WIDE - 8, 14);
  context.fillStyle = colours.text;
  context.textAlign = "left";
  context.fillText("parked", left + 7, top + 10);
}

/**
 * @param {any} app @param {number} colour of a group; -1 of a hole, -2 of what waits
 * @param {string} name @param {...any} more
 */
export function colourRow(app, colour, name, ...more) {
  const mark = el("i");
  if (colour === -2) mark.className = "hatched";
  else mark.style.background = colour < 0 ? "var(--hole)" : app.theme.groups[colour];
  return el("li", null, mark, el("span.name", {title: name}, name), ...more);
}

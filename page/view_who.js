// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Who has the memory: stacked areas of the largest groups, with the rest summed.
import {amountText, countText, shareText, sizeText} from "./units.js";
import {upperBound} from "./scale.js";
import {choiceBar, el, fill} from "./dom.js";
import {attachPanZoom, positionText} from "./axis.js";
import {Surface, drawSizeAxis, drawTimeAxis, inkOn} from "./chart.js";
import {Latest} from "./link.js";
import {leftOutNote} from "./view_header.js";
import {PLOT_LEFT, PLOT_RIGHT} from "./view_overview.js";
import {GROUPINGS, MOVE_MS} from "./view_where.js";
import {factList, stackList} from "./inspector.js";
import {budgetList, tagFacts} from "./budgets.js";
import {canvasOf, pixelOf} from "./paint2d.js";

const TOP = 12;
const WHO_BOTTOM = 20;
const REST_COLOUR = 12;
/** An area is named where it is so wide and tall, in pixels. */
const NAME_ROOM = 44;
const NAME_TALL = 15;
/** Of an area, and of those beside the one under the mouse; of 255. */
const AREA_ALPHA = 235;
const FAINT_ALPHA = 77;

export class WhoView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.by = choiceBar("Group by", /** @type {any} */ (GROUPINGS), (by) => app.state.set({by}));
    this.plot = el("div.plot");
    this.side = el("aside.card.side", {"aria-label": "Groups"});
    this.list = el("ul.rows");
    this.budgets = el("div");
    this.details = el("div");
    fill(this.side, el("h2", null, "Who has it"), this.when = el("p.dim"), this.list, this.budgets, this.details);
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Who"},
      el("div.toolbar", null, el("label", null, "group by"), this.by.element, el("span.grow"),
        el("span.dim", null, "each column shows its highest moment"), this.lack = el("span")), this.plot), this.side);
    this.surface = new Surface(this.plot, () => this.draw(), "Allocated memory by group over time",
      () => app.theme.names.card);
    /** @type {any} */
    this.answer = null;
    /** @type {any} the facts whose budgets are shown */
    this.budgetsOf = null;
    /** @type {any} the areas of the answer, as they were drawn last */
    this.picture = null;
    this.hovered = -1;
    this.shown = "";
    this.askAreas = new Latest((q) => app.ask("areas", q), (answer, q) => this.use(answer, q), MOVE_MS);
    this.askGroup = new Latest((q) => app.ask("group", q), (answer) => this.showGroup(answer));
    this.listen();
  }

  clear() {
    this.answer = null;
    this.hovered = -1;
    this.budgetsOf = null;
  }

  get width() {
    return Math.max(1, this.surface.width - PLOT_LEFT - PLOT_RIGHT);
  }

  refresh() {
    const {app} = this;
    const {by, x} = app.state.now;
    this.by.show(by);
    fill(this.lack, leftOutNote(app));
    this.showBudgets();
    this.by.allow("site", app.hasStacks, "No stacks were recorded");
    this.by.allow("module", app.hasStacks, "No stacks were recorded");
    if (!this.surface.measure() || !app.lanes) return;
    const {from, to} = app.window();
    this.askAreas.request({from, to, x, by, top: TOP, buckets: Math.max(2, Math.min(1200, this.width))});
  }

  use(/** @type {any} */ answer, /** @type {any} */ question) {
    const scale = this.app.scale;
    this.answer = answer;
    this.question = {...question, x0: scale.toX(question.from), x1: scale.toX(question.to)};
    answer.names = [...answer.names, answer.rest > 0 ? amountText(answer.rest, "other group") : "the rest"];
    answer.colours = [...answer.colours, REST_COLOUR];
    if (answer.rest === 0) {
      answer.names.pop();
      answer.colours.pop();
      answer.rows.pop();
    }
    answer.total = new Float64Array(question.buckets);
    for (const row of answer.rows) for (let i = 0; i < row.length; i++) answer.total[i] += row[i];
    this.surface.redraw();
    this.showList();
  }

  most() {
    let most = 1;
    for (const value of this.answer?.total ?? []) if (value > most) most = value;
    return most * 1.05;
  }

  draw() {
    const {app, surface} = this;
    const context = surface.begin();
    const colours = app.theme.names;
    const viewport = app.viewport(this.width);
    const area = {left: PLOT_LEFT, top: 8, width: this.width, height: surface.height - WHO_BOTTOM - 8,
      most: this.most()};
    this.area = area;
    drawSizeAxis(context, colours, area);
    drawTimeAxis(context, colours, viewport, {left: PLOT_LEFT, bottom: surface.height - WHO_BOTTOM});
    if (!this.answer || this.question.x !== app.state.now.x) return;
    context.save();
    context.beginPath();
    context.rect(PLOT_LEFT, 0, this.width, surface.height - WHO_BOTTOM);
    context.clip();
    this.drawAreas(context, viewport, area);
    context.restore();
  }

  /** A line where the mouse is. */
  showCursor() {
    const {app} = this;
    this.surface.showLine(app.cursor === null ? null : PLOT_LEFT + app.viewport(this.width).pixel(app.cursor));
  }

  /** The left edge of a bucket in pixels. @param {any} viewport @param {number} i */
  edge(viewport, i) {
    const {x0, x1, buckets} = this.question;
    const x = x0 + ((x1 - x0) * i) / buckets;
    return PLOT_LEFT + ((x - viewport.x0) / (viewport.x1 - viewport.x0)) * viewport.width;
  }

  drawAreas(/** @type {any} */ context, /** @type {any} */ viewport, /** @type {any} */ area) {
    const {answer} = this;
    const count = this.question.buckets;
    const left = this.edge(viewport, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.pictureOf(area), left, area.top, this.edge(viewport, count) - left, area.height);
    const y = (/** @type {number} */ value) => area.top + area.height * (1 - value / area.most);
    const low = new Float64Array(count);
    const edges = Array.from({length: count + 1}, (_, i) => this.edge(viewport, i));
    answer.rows.forEach((/** @type {Float64Array} */ row, /** @type {number} */ at) => {
      this.nameArea(context, edges, y, low, at);
      for (let i = 0; i < count; i++) low[i] += row[i];
    });
  }

  /**
   * The areas of the answer as a picture with a column for each bucket. While the window moves, it is stretched:
   * filling paths of thousands of points again would cost a long frame.
   * @param {{height: number, most: number}} area
   */
  pictureOf(area) {
    const {answer, app, hovered} = this;
    const colours = app.theme.groups;
    const tall = Math.max(1, Math.round(area.height * (window.devicePixelRatio || 1)));
    const old = this.picture;
    if (old && old.answer === answer && old.hovered === hovered && old.colours === colours && old.tall === tall)
      return old.canvas;
    const wide = this.question.buckets;
    const image = new ImageData(wide, tall);
    const words = new Uint32Array(image.data.buffer);
    const y = (/** @type {number} */ value) => Math.round(tall * (1 - value / area.most));
    const low = new Float64Array(wide);
    answer.rows.forEach((/** @type {Float64Array} */ row, /** @type {number} */ at) => {
      const alpha = hovered < 0 || hovered === at ? AREA_ALPHA : FAINT_ALPHA;
      const pixel = ((pixelOf(colours[answer.colours[at]]) & 0xffffff) | (alpha << 24)) >>> 0;
      for (let i = 0; i < wide; i++) {
        const bottom = Math.min(tall, y(low[i]));
        low[i] += row[i];
        for (let line = Math.max(0, y(low[i])); line < bottom; line++) words[line * wide + i] = pixel;
      }
    });
    this.picture = {answer, hovered, colours, tall, canvas: canvasOf(image)};
    return this.picture.canvas;
  }

  /** The name of an area where it has the most room. @param {any} context @param {number[]} edges */
  nameArea(context, edges, /** @type {(value: number) => number} */ y, /** @type {Float64Array} */ low,
    /** @type {number} */ at) {
    const row = this.answer.rows[at];
    const right = PLOT_LEFT + this.width;
    const room = widestRoom(row.length, (i) => [y(low[i] + row[i]), y(low[i])], (i) =>
      Math.max(PLOT_LEFT, Math.min(right, edges[i])));
    if (!room || room.right - room.left < NAME_ROOM) return;
    context.fillStyle = inkOn(this.app.theme.groups[this.answer.colours[at]]);
    context.textAlign = "left";
    const name = this.answer.names[at];
    if (context.measureText(name).width + 12 > room.right - room.left) return;
    context.fillText(name, room.left + 6, (room.top + room.bottom) / 2);
  }

  /** The bucket under the cursor, or that of the highest moment. */
  bucket() {
    const {answer, app} = this;
    const count = this.question.buckets;
    if (app.cursor !== null) {
      const share = (app.scale.toX(app.cursor) - this.question.x0) / (this.question.x1 - this.question.x0);
      return Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    }
    let best = 0;
    for (let i = 1; i < count; i++) if (answer.total[i] > answer.total[best]) best = i;
    return best;
  }

  showList() {
    const {answer, app} = this;
    if (!answer || answer.rows.length === 0) {
      fill(this.list);
      fill(this.when, "Nothing is allocated in this window.");
      return;
    }
    const bucket = this.bucket();
    fill(this.when, (app.cursor === null ? "at the highest moment, " : "at ") +
      positionText(app, answer.samples[bucket] - 1) + ": ", el("b", {"data-total": answer.total[bucket]},
        sizeText(answer.total[bucket])));
    const order = answer.rows.map((/** @type {any} */ _, /** @type {number} */ i) => i)
      .filter((/** @type {number} */ i) => answer.rows[i][bucket] > 0)
      .sort((/** @type {number} */ a, /** @type {number} */ b) => answer.rows[b][bucket] - answer.rows[a][bucket] ||
        a - b);
    fill(this.list, ...order.map((/** @type {number} */ at) => this.listRow(at, bucket)));
  }

  /** @param {number} at @param {number} bucket */
  listRow(at, bucket) {
    const {answer, app} = this;
    const mark = el("i");
    mark.style.background = app.theme.groups[answer.colours[at]];
    const name = answer.names[at];
    const isRest = answer.colours[at] === REST_COLOUR && at === answer.rows.length - 1 && answer.rest > 0;
    const row = el("li", {mouseenter: () => this.hover(at), mouseleave: () => this.hover(-1)}, mark,
      isRest ? el("span.name", null, name)
        : el("button", {type: "button", title: name, click: () => this.choose(name), focus: () => this.hover(at),
          blur: () => this.hover(-1)}, name),
      el("span.share", null, shareText(answer.rows[at][bucket] / (answer.total[bucket] || 1))),
      el("span.size", null, sizeText(answer.rows[at][bucket])));
    if (this.hovered === at) row.classList.add("is-on");
    return row;
  }

  /** @param {number} at */
  hover(at) {
    if (this.hovered === at) return;
    this.hovered = at;
    this.surface.redraw();
  }

  /** Shows the figures of a group. @param {string} name */
  choose(name) {
    if (this.answer.rest > 0 && name === this.answer.names[this.answer.names.length - 1]) return;
    const {from, to} = this.app.window();
    this.askGroup.request({name, from, to, by: this.app.state.now.by});
  }

  /** What tags may have, once for a device. */
  showBudgets() {
    const {facts} = this.app;
    if (this.budgetsOf === facts) return;
    this.budgetsOf = facts;
    fill(this.budgets, budgetList(facts, (row) => {
      fill(this.details, el("h3", null, row.tag), factList(tagFacts(row)));
      this.details.scrollIntoView({block: "nearest"});
    }));
  }

  /** The budget of a group that is a pool with a tag. @param {string} name */
  tagLines(name) {
    const {app} = this;
    const row = app.state.now.by === "pool" && (app.facts.report?.tags ?? []).find((/** @type {any} */ one) =>
      one.tag === name);
    return row ? factList(tagFacts(row)) : null;
  }

  showGroup(/** @type {any} */ group) {
    const {app} = this;
    fill(this.details, el("h3", null, group.name), this.tagLines(group.name),
      factList([["blocks", amountText(group.count, "block") + " in this window"],
      ["bytes", sizeText(group.bytes) + " in all"],
      ["mean life", group.meanLife === null ? null : amountText(Math.round(group.meanLife), "entry", "entries")],
      ["at the end", group.kept > 0 ? countText(group.kept) + " still there" : null]]),
    app.hasStacks && el("p.dim", null, "the stack with the most bytes"), app.hasStacks && stackList(group.lines));
  }

  listen() {
    const how = {
      viewport: () => this.app.viewport(this.width),
      move: (/** @type {any} */ window) => this.app.moveWindow(window),
      hover: (/** @type {number} */ x, /** @type {number} */ y) => this.hoverAt(x, y),
      click: () => {
        if (this.hovered >= 0 && this.answer) this.choose(this.answer.names[this.hovered]);
      },
      leave: () => {
        this.hovered = -1;
        this.app.setCursor(null);
        this.showList();
      },
    };
    attachPanZoom(this.surface.canvas, how, PLOT_LEFT);
  }

  /** @param {number} x @param {number} y */
  hoverAt(x, y) {
    if (x < 0 || x > this.width || !this.answer || !this.area) return;
    this.app.setCursor(this.app.viewport(this.width).position(x));
    const bucket = this.bucket();
    const value = (1 - (y - this.area.top) / this.area.height) * this.area.most;
    const sums = [];
    let sum = 0;
    for (const row of this.answer.rows) sums.push((sum += row[bucket]));
    const at = upperBound(sums, value);
    const hovered = value >= 0 && at < sums.length ? at : -1;
    if (hovered !== this.hovered && hovered >= 0) this.choose(this.answer.names[hovered]);
    this.hovered = hovered;
    this.surface.redraw();
    this.showList();
  }
}

/**
 * The longest stretch of columns in which a band has room for a line of text.
 * @param {number} count @param {(i: number) => [number, number]} band top and bottom of a column
 * @param {(i: number) => number} edge left edge of a column
 * @returns {{left: number, right: number, top: number, bottom: number} | null}
 */
export function widestRoom(count, band, edge) {
  let best = null;
  let start = 0;
  let [top, bottom] = [-Infinity, Infinity];
  for (let i = 0; i < count; i++) {
    const [high, low] = band(i);
    if (Math.min(bottom, low) - Math.max(top, high) < NAME_TALL) {
      start = i;
      [top, bottom] = [-Infinity, Infinity];
      if (low - high < NAME_TALL) {
        start = i + 1;
        continue;
      }
    }
    top = Math.max(top, high);
    bottom = Math.min(bottom, low);
    const right = edge(i + 1);
    if (!best || right - edge(start) > best.right - best.left) best = {left: edge(start), right, top, bottom};
  }
  return best;
}

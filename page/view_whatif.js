// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What if: reserved memory under other settings, replayed when the page was made, over the recorded curve.
import {sizeText} from "./units.js";
import {upperBound} from "./scale.js";
import {copyText, el, fill} from "./dom.js";
import {attachPanZoom} from "./axis.js";
import {Surface, drawSizeAxis, drawTimeAxis, fade} from "./chart.js";
import {PLOT_LEFT, PLOT_RIGHT} from "./view_overview.js";

const WHATIF_BOTTOM = 20;

export class WhatifView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.plot = el("div.plot");
    this.side = el("aside.card.side", {"aria-label": "Settings"});
    this.element = el("div.panel", null, el("section.card", {"aria-label": "What if"},
      el("div.toolbar", null, el("span.dim", null,
        "reserved memory of the same requests, replayed under each setting")), this.plot), this.side);
    this.surface = new Surface(this.plot, () => this.draw(), "Reserved memory under other settings");
    /** @type {(Float64Array | null)[]} */
    this.curves = [];
    this.hovered = -1;
    attachPanZoom(this.surface.canvas, {
      viewport: () => app.viewport(this.width),
      move: (window) => app.moveWindow(window),
      hover: (x) => {
        app.setCursor(x < 0 || x > this.width ? null : app.viewport(this.width).position(x));
        this.showSide();
      },
      leave: () => {
        app.setCursor(null);
        this.showSide();
      },
    }, PLOT_LEFT);
  }

  clear() {
    this.curves = [];
  }

  get width() {
    return Math.max(1, this.surface.width - PLOT_LEFT - PLOT_RIGHT);
  }

  async refresh() {
    const {app} = this;
    const rows = app.facts.whatif ?? [];
    this.surface.redraw();
    this.showSide();
    if (this.curves.length === rows.length) return;
    const curves = await Promise.all(rows.map((/** @type {any} */ row) => app.ask("whatif", {name: row.part})));
    if (rows !== app.facts.whatif) return;
    this.curves = curves;
    this.surface.redraw();
    this.showSide();
  }

  /** @param {number} at */
  colour(at) {
    return this.app.theme.groups[at];
  }

  draw() {
    const {app, surface} = this;
    const context = surface.begin();
    const colours = app.theme.names;
    const viewport = app.viewport(this.width);
    const overview = app.facts.overview;
    let most = app.facts.peaks?.reserved?.bytes ?? 1;
    for (const row of app.facts.whatif ?? []) most = Math.max(most, row.reserved_peak ?? 0);
    const area = {left: PLOT_LEFT, top: 8, width: this.width, height: surface.height - WHATIF_BOTTOM - 8,
      most: most * 1.06};
    drawSizeAxis(context, colours, area);
    drawTimeAxis(context, colours, viewport, {left: PLOT_LEFT, bottom: surface.height - WHATIF_BOTTOM});
    context.save();
    context.beginPath();
    context.rect(PLOT_LEFT, 0, this.width, surface.height - WHATIF_BOTTOM);
    context.clip();
    this.drawSteps(context, viewport, area, overview.reserved.most, fade(colours.reserved, 0.25), true);
    this.drawSteps(context, viewport, area, overview.allocated.most, fade(colours.allocated, 0.2), true);
    this.curves.forEach((curve, at) => {
      if (!curve) return;
      context.lineWidth = this.hovered === at ? 3 : 1.6;
      context.globalAlpha = this.hovered < 0 || this.hovered === at ? 1 : 0.35;
      if (app.facts.whatif[at].is_recorded) context.setLineDash([6, 4]);
      this.drawSteps(context, viewport, area, curve, this.colour(at), false);
      context.setLineDash([]);
    });
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.restore();
  }

  drawSteps(/** @type {any} */ context, /** @type {any} */ viewport, /** @type {any} */ area,
    /** @type {ArrayLike<number>} */ values,
    /** @type {string} */ colour, /** @type {boolean} */ isFilled) {
    const edges = this.app.facts.overview.entry;
    const y = (/** @type {number} */ value) => area.top + area.height * (1 - value / area.most);
    context.beginPath();
    if (isFilled) context.moveTo(PLOT_LEFT + viewport.pixel(edges[0]), y(0));
    for (let i = 0; i + 1 < edges.length; i++) {
      context.lineTo(PLOT_LEFT + viewport.pixel(edges[i]), y(values[i]));
      context.lineTo(PLOT_LEFT + viewport.pixel(edges[i + 1]), y(values[i]));
    }
    if (isFilled) context.lineTo(PLOT_LEFT + viewport.pixel(edges[edges.length - 1]), y(0));
    context.strokeStyle = context.fillStyle = colour;
    if (isFilled) context.fill();
    else context.stroke();
  }

  showSide() {
    const {app} = this;
    const rows = app.facts.whatif ?? [];
    const edges = app.facts.overview?.entry ?? [];
    const bucket = app.cursor === null ? -1 : Math.max(0, Math.min(edges.length - 2,
      upperBound(edges, app.cursor) - 1));
    fill(this.side, el("h2", null, "What if"), el("p.dim", null, bucket < 0 ? "peak reserved"
      : "reserved under the cursor"),
      el("ul.rows", {"data-list": "whatif"}, ...rows.map((/** @type {any} */ row, /** @type {number} */ at) => {
        const mark = el("i");
        mark.style.background = this.colour(at);
        const bytes = bucket < 0 ? row.reserved_peak : this.curves[at]?.[bucket];
        const copy = el("button", {type: "button", title: "Copy: " + row.line, click: () =>
          copyText(copy, row.line)}, row.name);
        return el("li", {mouseenter: () => this.hover(at), mouseleave: () => this.hover(-1),
          "data-peak": row.reserved_peak}, mark, copy,
          el("span.size" + (row.fits ? "" : ".bad"), {title: row.fits ? "every request was served"
            : "a request was refused"},
            bytes === null || bytes === undefined ? "failed" : sizeText(bytes) + (row.fits ? "" : " ✕")));
      })), el("p.dim", null, "A click copies the line to paste. ✕: a request was refused. The dashed line is the " +
        "recorded setting; grey is what was recorded."));
  }

  /** @param {number} at */
  hover(at) {
    this.hovered = at;
    this.surface.redraw();
  }
}

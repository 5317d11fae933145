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
const WHATIF_COLOURS = [1, 2, 3, 5, 8, 6];

export class WhatifView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.plot = el("div.plot");
    this.side = el("aside.card.side", {"aria-label": "Settings"});
    this.element = el("div.panel", null, el("section.card", {"aria-label": "What if"},
      el("div.toolbar", null, el("span", null, "The same requests, replayed under other settings: reserved memory"),
        el("span.grow"), areaKey("reserved", "recorded: reserved"), areaKey("allocated", "allocated")), this.plot),
    this.side);
    this.surface = new Surface(this.plot, () => this.draw(), "Reserved memory under other settings",
      () => app.theme.names.card);
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

  /** Blue and grey are those of what was recorded. @param {number} at */
  colour(at) {
    const {theme, facts} = this.app;
    return facts.whatif[at].is_recorded ? theme.names.text : theme.groups[WHATIF_COLOURS[at % WHATIF_COLOURS.length]];
  }

  draw() {
    const {app, surface} = this;
    const context = surface.begin();
    const colours = app.theme.names;
    const viewport = app.viewport(this.width);
    const overview = app.facts.overview;
    let most = app.facts.peaks?.reserved?.bytes ?? 1;
    for (const row of app.facts.whatif ?? []) most = Math.max(most, row.reserved_peak ?? 0);
    const limit = app.facts.limit?.least ?? 0;
    most = Math.max(most, limit);
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
    if (limit > 0) this.drawLimit(context, area, limit);
    context.restore();
  }

  drawLimit(/** @type {any} */ context, /** @type {any} */ area, /** @type {number} */ limit) {
    const y = Math.round(area.top + area.height * (1 - limit / area.most)) + 0.5;
    context.strokeStyle = context.fillStyle = this.app.theme.names.bad;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(PLOT_LEFT, y);
    context.lineTo(PLOT_LEFT + area.width, y);
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "left";
    context.fillText("limit " + sizeText(limit) + (this.app.facts.limit.most > limit ? " or more" : ""), PLOT_LEFT + 6,
      y + 10);
  }

  /** A line where the mouse is. */
  showCursor() {
    const {app} = this;
    this.surface.showLine(app.cursor === null ? null : PLOT_LEFT + app.viewport(this.width).pixel(app.cursor));
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
    const recorded = app.facts.peaks?.reserved?.bytes ?? 0;
    fill(this.side, el("h2", null, "What if"), el("p.dim", null, bucket < 0 ? "peak reserved, and what it saves"
      : "reserved under the cursor"),
      el("ul.rows.settings", {"data-list": "whatif"}, ...rows.map((/** @type {any} */ row,
        /** @type {number} */ at) => {
        const mark = el("i" + (row.is_recorded ? ".dashed" : ".thin"));
        mark.style.color = this.colour(at);
        const bytes = bucket < 0 ? row.reserved_peak : this.curves[at]?.[bucket];
        const copy = row.line && !row.is_recorded && el("button.small", {type: "button",
          title: "Copy: " + row.line, click: () => copyText(copy, row.line)}, "Copy");
        const saved = recorded - (row.reserved_peak ?? recorded);
        return el("li", {mouseenter: () => this.hover(at), mouseleave: () => this.hover(-1),
          "data-peak": row.reserved_peak}, mark, el("span.name.mono", {title: row.line}, row.name),
          el("span.size", null, el("b", null, bytes === null || bytes === undefined ? "failed" : sizeText(bytes))),
          el("span.more", null, row.fits ? el("span.good", null, "✓ all served")
            : el("span.bad", null, "✕ a request was refused"),
            row.is_recorded ? " · as recorded" : saved === 0 ? "" : " · " + sizeText(Math.abs(saved)) +
              (saved > 0 ? " less" : " more"), el("span.grow"), copy));
      })));
  }

  /** @param {number} at */
  hover(at) {
    this.hovered = at;
    this.surface.redraw();
  }
}

/** @param {string} name of a colour @param {string} text */
function areaKey(name, text) {
  const mark = el("i.box");
  mark.style.color = "var(--" + name + ")";
  return el("span.key.dim", null, mark, text);
}

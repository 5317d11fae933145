// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The whole recording: reserved, allocated and requested bytes, the limit, marks and bands. A brush chooses the window.
import {countText, durationText, sizeText} from "./units.js";
import {lowerBound, upperBound} from "./scale.js";
import {el, fill} from "./dom.js";
import {Viewport, moveByKey, positionText} from "./axis.js";
import {CHART_FONT, Surface, clipText, drawSizeAxis, drawTimeAxis, fade} from "./chart.js";

export const PLOT_LEFT = 74;
export const PLOT_RIGHT = 12;
const BOTTOM = 20;
const BAND_TALL = 12;
/** Room above the plot, for marks. */
const TOP_ROOM = 20;
/** So near to an edge of the window, in pixels, the mouse takes hold of it. */
const GRIP = 5;
const MARK_NAMES = {oom: "out of memory", retry: "flush and retry", empty_cache: "empty_cache",
  flush: "memory given back",
  snapshot: "snapshot"};

export class OverviewView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.readout = el("span.readout", {"aria-live": "off"});
    this.keys = el("span.keys");
    this.hint = el("span.hint");
    this.plot = el("div.plot");
    this.element = el("section.card.overview", {"aria-label": "Overview"},
      el("div.head", null, this.keys, this.hint, this.readout), this.plot);
    this.surface = new Surface(this.plot, () => this.draw(),
      "Memory over the whole recording; drag to choose a window", () => app.theme.names.card);
    this.layer = document.createElement("canvas");
    this.isOld = true;
    /** @type {any} */
    this.curves = null;
    /** @type {{from: number, to: number, isMove: boolean, last: number} | null} */
    this.brush = null;
    this.hinted = "";
    this.listen();
  }

  /** What the colours and marks of this recording mean. */
  showKeys() {
    const facts = this.app.facts;
    const kinds = new Set((facts.marks ?? []).map((/** @type {any} */ mark) => mark.kind));
    const item = (/** @type {string} */ name, /** @type {string} */ shape, /** @type {string} */ text) => {
      const mark = el("i." + shape);
      mark.style.color = "var(--" + name + ")";
      return el("span.key", null, mark, text);
    };
    fill(this.keys, facts.has_segments !== false && item("reserved", "box", "reserved"),
      item("allocated", "box", "allocated"), item("requested", "thin", "requested"),
      facts.limit && item("bad", "dashed", "limit"), kinds.has("oom") && item("bad", "flag", "out of memory"),
      kinds.has("flush") && item("warn", "flag", "memory given back"),
      kinds.has("empty_cache") && item("warn", "flag", "empty_cache"));
  }

  /** What the brush does, or the chosen window and the way back. */
  showHint() {
    const {app} = this;
    const {from, to} = app.window();
    const isPart = from > 0 || to < app.scale.entries;
    const said = isPart ? String(from) + " " + to + app.state.now.x : "whole";
    if (said === this.hinted) return;
    this.hinted = said;
    if (isPart) fill(this.hint, el("button.small", {type: "button", "data-all": true, title: "Home",
      click: () => app.moveWindow({from: 0, to: app.scale.entries})}, "Show all"), windowText(app, from, to));
    else fill(this.hint, "drag to choose a window · wheel to zoom");
  }

  /** Asks for curves at the width of the picture. */
  async refresh() {
    const {app} = this;
    this.showKeys();
    this.hinted = "";
    this.curves = this.fromFacts();
    this.isOld = true;
    this.surface.redraw();
    const buckets = Math.max(100, Math.min(2000, this.plot.clientWidth - PLOT_LEFT - PLOT_RIGHT));
    const answer = await app.ask("curves", {from: 0, to: app.scale.entries, buckets, x: app.state.now.x});
    if (!answer) return;
    this.curves = answer;
    this.isOld = true;
    this.surface.redraw();
  }

  /** The first picture, before any part was read. */
  fromFacts() {
    const overview = this.app.facts.overview;
    if (!overview) return null;
    return {edges: overview.entry, reserved: overview.reserved, allocated: overview.allocated,
      requested: overview.requested};
  }

  viewport() {
    const app = this.app;
    return new Viewport(app.scale, 0, app.scale.entries, this.surface.width - PLOT_LEFT - PLOT_RIGHT);
  }

  most() {
    const facts = this.app.facts;
    const limit = facts.limit?.least ?? 0;
    return Math.max(1024, facts.peaks?.reserved?.bytes ?? 0, facts.peaks?.allocated?.bytes ?? 0, limit) * 1.03;
  }

  /** Curves, bands and marks change rarely: they are drawn to a layer of their own, and copied to each frame. */
  draw() {
    const {surface, layer} = this;
    const {width, height} = surface.canvas;
    if (this.isOld || layer.width !== width || layer.height !== height) {
      [layer.width, layer.height] = [width, height];
      this.drawLayer(surface.beginOn(layer));
      this.isOld = false;
    }
    const context = surface.begin();
    context.drawImage(layer, 0, 0, surface.width, surface.height);
    this.drawWindow(context, this.viewport(), this.app.theme.names);
    this.showHint();
  }

  /** @param {CanvasRenderingContext2D} context */
  drawLayer(context) {
    const {app, surface} = this;
    const colours = app.theme.names;
    const viewport = this.viewport();
    const area = {left: PLOT_LEFT, top: TOP_ROOM, width: viewport.width,
      height: surface.height - BOTTOM - TOP_ROOM - this.bandRoom(), most: this.most()};
    this.area = area;
    drawSizeAxis(context, colours, area);
    drawTimeAxis(context, colours, viewport, {left: PLOT_LEFT, bottom: surface.height - BOTTOM});
    context.save();
    context.beginPath();
    context.rect(PLOT_LEFT, 0, viewport.width, surface.height);
    context.clip();
    if (this.curves) {
      if (app.facts.has_segments !== false)
        this.drawCurve(context, viewport, area, this.curves.reserved, colours.reserved, 0.28);
      this.drawCurve(context, viewport, area, this.curves.allocated, colours.allocated, 0.35);
      this.drawLine(context, viewport, area, this.curves.requested, colours.requested);
    }
    this.drawLimit(context, area, colours);
    this.drawBands(context, viewport, area, colours);
    context.restore();
    this.drawMarks(context, viewport, area, colours);
    this.drawBandTitles(context, area, colours);
  }

  bandRoom() {
    const rows = this.bandRows().length;
    return rows > 0 ? rows * (BAND_TALL + 2) + 4 : 0;
  }

  /** Kinds of bands of this recording, a row for each. */
  bandRows() {
    const bands = this.app.facts.bands ?? [];
    return ["step", "annotation"].filter((kind) => bands.some((/** @type {any} */ band) => band.kind === kind));
  }

  /** A filled curve between 0 and the most of each bucket, and the least in a darker tone below. */
  drawCurve(/** @type {any} */ context, /** @type {Viewport} */ viewport, /** @type {any} */ area,
    /** @type {any} */ curve, /** @type {string} */ colour, /** @type {number} */ alpha) {
    const edges = this.curves.edges;
    const y = (/** @type {number} */ value) => area.top + area.height * (1 - value / area.most);
    for (const [values, tone] of /** @type {[any, number][]} */ ([[curve.most, alpha], [curve.least, alpha * 0.8]])) {
      context.fillStyle = fade(colour, tone);
      context.beginPath();
      context.moveTo(PLOT_LEFT + viewport.pixel(edges[0]), y(0));
      for (let i = 0; i + 1 < edges.length; i++) {
        context.lineTo(PLOT_LEFT + viewport.pixel(edges[i]), y(values[i]));
        context.lineTo(PLOT_LEFT + viewport.pixel(edges[i + 1]), y(values[i]));
      }
      context.lineTo(PLOT_LEFT + viewport.pixel(edges[edges.length - 1]), y(0));
      context.fill();
    }
    this.drawLine(context, viewport, area, curve, colour);
  }

  drawLine(/** @type {any} */ context, /** @type {Viewport} */ viewport, /** @type {any} */ area,
    /** @type {any} */ curve, /** @type {string} */ colour) {
    const edges = this.curves.edges;
    context.strokeStyle = colour;
    context.lineWidth = 1.1;
    context.beginPath();
    for (let i = 0; i + 1 < edges.length; i++) {
      const y = area.top + area.height * (1 - curve.most[i] / area.most);
      context.lineTo(PLOT_LEFT + viewport.pixel(edges[i]), y);
      context.lineTo(PLOT_LEFT + viewport.pixel(edges[i + 1]), y);
    }
    context.stroke();
    context.lineWidth = 1;
  }

  drawLimit(/** @type {any} */ context, /** @type {any} */ area, /** @type {any} */ colours) {
    const limit = this.app.facts.limit;
    if (!limit) return;
    const y = Math.round(area.top + area.height * (1 - limit.least / area.most)) + 0.5;
    context.strokeStyle = colours.bad;
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(PLOT_LEFT, y);
    context.lineTo(PLOT_LEFT + area.width, y);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colours.bad;
    context.textAlign = "left";
    context.fillText("limit " + sizeText(limit.least) + (limit.most > limit.least ? " or more" : ""), PLOT_LEFT + 5,
      y + 9);
  }

  drawBands(/** @type {any} */ context, /** @type {Viewport} */ viewport, /** @type {any} */ area,
    /** @type {any} */ colours) {
    const bands = this.app.facts.bands ?? [];
    const top = area.top + area.height + 4;
    this.bandRows().forEach((kind, row) => {
      const y = top + row * (BAND_TALL + 2);
      let count = 0;
      let end = -1;
      for (const band of bands) {
        if (band.kind !== kind) continue;
        const left = PLOT_LEFT + viewport.pixel(band.from);
        const right = Math.max(left + 1, PLOT_LEFT + viewport.pixel(band.to));
        count++;
        if (right <= end + 0.5) continue;
        end = right;
        context.fillStyle = fade(colours.dim, count % 2 === 0 ? 0.22 : 0.34);
        context.fillRect(left, y, Math.max(1, right - left - 1), BAND_TALL);
        this.bandName(context, colours, band, left, right, y);
      }
    });
    context.font = CHART_FONT;
  }

  /** The name of a band, if there is room for all of it. @param {any} context @param {any} colours @param {any} band */
  bandName(context, colours, band, /** @type {number} */ left, /** @type {number} */ right, /** @type {number} */ y) {
    if (right - left < 22) return;
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillStyle = colours.text;
    const number = /^step (\d+)$/.exec(String(band.name))?.[1] ?? "";
    const isShort = number !== "" && context.measureText(String(band.name)).width > right - left - 8;
    context.fillText(clipText(context, isShort ? number : String(band.name), right - left - 8), left + 4,
      y + BAND_TALL / 2 + 0.5);
  }

  /** What the rows of bands are, left of them. */
  drawBandTitles(/** @type {any} */ context, /** @type {any} */ area, /** @type {any} */ colours) {
    context.textAlign = "right";
    context.fillStyle = colours.dim;
    this.bandRows().forEach((kind, row) => context.fillText(kind === "step" ? "steps" : "annotations", PLOT_LEFT - 6,
      area.top + area.height + 4 + row * (BAND_TALL + 2) + BAND_TALL / 2));
  }

  drawMarks(/** @type {any} */ context, /** @type {Viewport} */ viewport, /** @type {any} */ area,
    /** @type {any} */ colours) {
    const marks = (this.app.facts.marks ?? []).filter((/** @type {any} */ mark) => mark.kind !== "snapshot");
    marks.sort((/** @type {any} */ a, /** @type {any} */ b) => Number(a.kind === "oom") - Number(b.kind === "oom"));
    for (const mark of marks) {
      const x = Math.round(PLOT_LEFT + viewport.pixel(mark.at)) + 0.5;
      const isBad = mark.kind === "oom";
      context.strokeStyle = context.fillStyle = isBad ? colours.bad : colours.warn;
      context.globalAlpha = isBad ? 1 : 0.85;
      context.beginPath();
      context.moveTo(x, TOP_ROOM - 10);
      context.lineTo(x, isBad ? area.top + area.height : TOP_ROOM);
      context.stroke();
      context.beginPath();
      context.moveTo(x - 5, TOP_ROOM - 12);
      context.lineTo(x + 5, TOP_ROOM - 12);
      context.lineTo(x, TOP_ROOM - 4);
      context.fill();
      context.globalAlpha = 1;
    }
    const ooms = marks.filter((/** @type {any} */ mark) => mark.kind === "oom");
    if (ooms.length > 0) this.nameMark(context, viewport, ooms[0], ooms.length, colours);
  }

  /** Words at the first refused request. @param {any} context @param {Viewport} viewport @param {any} mark */
  nameMark(context, viewport, mark, /** @type {number} */ count, /** @type {any} */ colours) {
    const text = "out of memory" + (count > 1 ? ", " + countText(count) + " times" : "") + ": " +
      sizeText(mark.bytes) + " refused";
    const x = PLOT_LEFT + viewport.pixel(mark.at);
    context.font = "600 11px system-ui, sans-serif";
    const wide = context.measureText(text).width;
    const isLeft = x - wide - 20 > PLOT_LEFT;
    context.fillStyle = fade(colours.card, 0.85);
    context.fillRect(isLeft ? x - wide - 18 : x + 5, TOP_ROOM + 12, wide + 13, 17);
    context.textAlign = isLeft ? "right" : "left";
    context.fillStyle = colours.bad;
    context.fillText(text, isLeft ? x - 11 : x + 11, TOP_ROOM + 20.5);
    context.font = CHART_FONT;
  }

  /** What is outside of the window is dimmed. */
  drawWindow(/** @type {any} */ context, /** @type {Viewport} */ viewport, /** @type {any} */ colours) {
    const {from, to} = this.app.window();
    const left = PLOT_LEFT + Math.max(0, viewport.pixel(from));
    const right = PLOT_LEFT + Math.min(viewport.width, viewport.pixel(to));
    const tall = this.surface.height - BOTTOM;
    if (from > 0 || to < this.app.scale.entries) {
      context.fillStyle = fade(colours.card, 0.66);
      context.fillRect(PLOT_LEFT, 0, left - PLOT_LEFT, tall);
      context.fillRect(right, 0, PLOT_LEFT + viewport.width - right, tall);
      const wide = Math.max(2, Math.round(right - left));
      context.strokeStyle = context.fillStyle = colours.accent;
      context.strokeRect(Math.round(left) - 0.5, 0.5, wide + 1, tall - 1);
      for (const x of [Math.round(left), Math.round(left) + wide])
        context.fillRect(x - 2.5, tall / 2 - 13, 5, 26);
    }
    const {tab, at} = this.app.state.now;
    if (tab !== "flame" || at < 0) return;
    const x = Math.round(PLOT_LEFT + viewport.pixel(at)) + 0.5;
    context.strokeStyle = colours.accent;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, tall);
    context.stroke();
  }

  /** A line where the mouse is. */
  showCursor() {
    const {cursor} = this.app;
    this.surface.showLine(cursor === null ? null : PLOT_LEFT + this.viewport().pixel(cursor));
  }

  /** Says the values at a position. @param {number | null} position */
  say(position) {
    const curves = this.curves;
    if (position === null || !curves) {
      const peaks = this.app.facts.peaks ?? {};
      fill(this.readout, peaks.reserved ? "peak reserved " : "reserved memory was not recorded",
        peaks.reserved && el("b", {"data-peak": "reserved"}, sizeText(peaks.reserved.bytes)), " · allocated ",
        el("b", {"data-peak": "allocated", title: "As PyTorch counts it: whole blocks, up to their release"},
          sizeText(peaks.allocated?.bytes ?? 0)));
      return;
    }
    const at = Math.max(0, Math.min(curves.edges.length - 2, upperBound(curves.edges, position) - 1));
    const mark = this.markNear(position);
    const isKnown = this.app.facts.has_segments !== false;
    fill(this.readout, positionText(this.app, position), mark ? el("b.bad", null, " · " + mark) : null, " · ",
      isKnown && el("b", null, sizeText(curves.reserved.most[at])), isKnown && " reserved · ",
      el("b", null, sizeText(curves.allocated.most[at])), " allocated");
  }

  /** @param {number} position */
  markNear(position) {
    const marks = this.app.facts.marks ?? [];
    const viewport = this.viewport();
    const at = lowerBound(marks.map((/** @type {any} */ mark) => mark.at), position);
    for (const mark of [marks[at - 1], marks[at]]) {
      if (!mark || Math.abs(viewport.pixel(mark.at) - viewport.pixel(position)) > 5) continue;
      const name = /** @type {any} */ (MARK_NAMES)[mark.kind] ?? mark.kind;
      return name + (mark.bytes ? ", " + sizeText(mark.bytes) : "") + ", entry " + countText(mark.at);
    }
    return "";
  }

  listen() {
    const canvas = this.surface.canvas;
    const at = (/** @type {any} */ event) => event.offsetX - PLOT_LEFT;
    canvas.addEventListener("pointerdown", (/** @type {any} */ event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      const {from, to} = this.app.window();
      const viewport = this.viewport();
      const pixel = at(event);
      const {edge, isInside} = this.grip(pixel);
      const isMove = isInside && !event.shiftKey;
      const held = edge === "left" ? viewport.pixel(to) : edge === "right" ? viewport.pixel(from) : pixel;
      this.brush = {from: held, to: pixel, isMove, last: pixel};
    });
    canvas.addEventListener("pointermove", (/** @type {any} */ event) => this.drag(at(event)));
    canvas.addEventListener("pointerup", (/** @type {any} */ event) => this.release(at(event)));
    canvas.addEventListener("pointercancel", () => (this.brush = null));
    canvas.addEventListener("pointerleave", () => this.app.setCursor(null));
    canvas.addEventListener("dblclick", () => this.app.moveWindow({from: 0, to: this.app.scale.entries}));
    canvas.addEventListener("wheel", (/** @type {any} */ event) => {
      event.preventDefault();
      const whole = this.viewport();
      const inner = this.app.viewport(whole.width);
      const pixel = inner.pixel(whole.position(at(event)));
      this.app.moveWindow(inner.zoomed(Math.pow(1.0018, event.deltaY), Math.max(0, Math.min(whole.width, pixel))));
    }, {passive: false});
    canvas.addEventListener("keydown", (/** @type {any} */ event) => {
      const how = {viewport: () => this.app.viewport(this.viewport().width), move: (/** @type {any} */ w) =>
        this.app.moveWindow(w)};
      if (moveByKey(event, how)) event.preventDefault();
    });
  }

  /** What the mouse would take hold of. @param {number} pixel */
  grip(pixel) {
    const {from, to} = this.app.window();
    const viewport = this.viewport();
    const isPart = from > 0 || to < this.app.scale.entries;
    const [left, right] = [viewport.pixel(from), viewport.pixel(to)];
    const edge = !isPart ? "" : Math.abs(pixel - right) <= GRIP ? "right"
      : Math.abs(pixel - left) <= GRIP ? "left" : "";
    return {edge, isInside: isPart && edge === "" && pixel > left && pixel < right};
  }

  /** @param {number} pixel */
  drag(pixel) {
    const viewport = this.viewport();
    const brush = this.brush;
    if (!brush) {
      const {edge, isInside} = this.grip(pixel);
      this.surface.canvas.style.cursor = edge ? "ew-resize" : isInside ? "grab" : "";
      this.app.setCursor(pixel < 0 || pixel > viewport.width ? null : viewport.position(pixel));
      return;
    }
    brush.to = pixel;
    if (brush.isMove) {
      const {from, to} = this.app.window();
      const shift = pixel - brush.last;
      brush.last = pixel;
      this.app.moveWindow(viewport.between(viewport.pixel(from) + shift, viewport.pixel(to) + shift));
    } else if (Math.abs(brush.to - brush.from) > 3) {
      const [left, right] = [Math.min(brush.from, brush.to), Math.max(brush.from, brush.to)];
      this.app.moveWindow(viewport.between(Math.max(0, left), Math.min(viewport.width, right)));
    }
  }

  /** A click moves the window there; for the flame graph it chooses the instant. @param {number} pixel */
  release(pixel) {
    const brush = this.brush;
    this.brush = null;
    if (!brush || Math.abs(brush.to - brush.from) > 3) return;
    const {from, to} = this.app.window();
    const viewport = this.viewport();
    if (this.app.state.now.tab === "flame") {
      this.app.state.set({at: Math.max(0, Math.min(this.app.facts.entries - 1, Math.floor(viewport.position(pixel))))});
      return;
    }
    const half = (viewport.pixel(to) - viewport.pixel(from)) / 2;
    if (from <= 0 && to >= this.app.scale.entries) return;
    this.app.moveWindow(viewport.between(pixel - half, pixel + half));
  }
}

/** The chosen window in words. @param {any} app @param {number} from @param {number} to */
function windowText(app, from, to) {
  const {scale} = app;
  if (scale.kind === "time") {
    const [low, high] = [scale.toX(from), scale.toX(to)];
    return durationText(low) + " to " + durationText(high) + " (" + durationText(high - low) + ")";
  }
  return "entries " + countText(from) + " to " + countText(to);
}

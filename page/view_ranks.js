// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Ranks: the overview of every file and device side by side, with one scale; the largest first, outliers marked.
import {roundBinaryStep, roundTicks, sizeText, tickSizeText} from "./units.js";
import {el} from "./dom.js";
import {Surface, fade} from "./chart.js";
import {baseName} from "./view_header.js";

/** An outlier is this many median distances from the median, and a twentieth of it at least. */
const OUTLIER_DISTANCES = 4;
const OUTLIER_SHARE = 0.05;
/** So many tiles fill the panel; more are scrolled. */
const TILES_FITTED = 16;
const TILE_TOP = 6;

/** @param {number[]} values @returns {boolean[]} */
export function findOutliers(values) {
  const median = (/** @type {number[]} */ list) => [...list].sort((a, b) => a - b)[list.length >> 1] ?? 0;
  const middle = median(values);
  const distance = median(values.map((value) => Math.abs(value - middle)));
  const least = Math.max(OUTLIER_DISTANCES * distance, OUTLIER_SHARE * middle);
  return values.map((value) => values.length > 2 && Math.abs(value - middle) > least);
}

/** Columns of tiles: few rows, and few empty places. @param {number} count */
export function tileColumns(count) {
  const least = Math.ceil(Math.sqrt(count));
  const empty = (/** @type {number} */ columns) => Math.ceil(count / columns) * columns - count;
  return [least, least + 1].reduce((best, columns) => (empty(columns) < empty(best) ? columns : best));
}

/** @param {any} facts */
function peakOf(facts) {
  return facts.peaks?.reserved?.bytes ?? facts.peaks?.allocated?.bytes ?? 0;
}

export class RanksView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.content = el("div.ranks");
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Ranks"},
      el("div.toolbar", null, el("span", null, "All files and devices on one scale, the largest peak first"),
        el("span.grow"), el("span.dim", null, "a click shows one")), this.content));
    const count = app.devices.length;
    if (count <= TILES_FITTED) this.content.style.setProperty("--columns", String(tileColumns(count)));
    this.content.classList.toggle("is-fitted", count <= TILES_FITTED);
    const peaks = app.devices.map(peakOf);
    const isOutlier = findOutliers(peaks);
    this.most = Math.max(1, ...peaks);
    const order = Array.from(peaks.keys()).sort((a, b) => peaks[b] - peaks[a] || a - b);
    this.surfaces = order.map((at) => this.tile(at, isOutlier[at]));
  }

  /** @param {number} at device @param {boolean} isOutlier */
  tile(at, isOutlier) {
    const {app} = this;
    const facts = app.devices[at];
    const file = app.files.find((/** @type {any} */ one) => one.devices.includes(facts));
    const plot = el("div.plot");
    const tile = el("button.rank" + (isOutlier ? ".is-outlier" : ""),
      {type: "button", "data-device": at, click: () => app.chooseDevice(at)},
      el("span.name", {title: file.name}, baseName(file.name), file.devices.length > 1 && ", device " + facts.device),
      el("span.dim", null, "peak ", el("b", null, sizeText(peakOf(facts))), isOutlier && " ",
        isOutlier && el("span.badge.warn", null, "outlier"), (facts.ooms ?? []).length > 0 && " ",
        (facts.ooms ?? []).length > 0 && el("span.badge.bad", null, "out of memory")), plot);
    this.content.append(tile);
    const surface = new Surface(plot, () => this.draw(surface, facts), "Memory of " + file.name,
      () => app.theme.names.card);
    surface.canvas.tabIndex = -1;
    return surface;
  }

  refresh() {
    for (const surface of this.surfaces) surface.redraw();
    for (const tile of this.content.children) tile.setAttribute("aria-current",
      String(Number(tile.dataset.device) === this.app.device));
  }

  /** @param {Surface} surface @param {any} facts */
  draw(surface, facts) {
    const context = surface.begin();
    const colours = this.app.theme.names;
    const overview = facts.overview;
    if (!overview) return;
    const xs = this.app.state.now.x === "time" && overview.ms ? overview.ms : overview.entry;
    const all = this.app.devices.map((/** @type {any} */ one) =>
      (this.app.state.now.x === "time" && one.overview?.ms ? one.overview.ms : one.overview?.entry ?? [0]).at(-1));
    const last = Math.max(1e-9, ...all);
    const x = (/** @type {number} */ i) => (xs[i] / last) * surface.width;
    const room = surface.height - TILE_TOP - 1;
    const y = (/** @type {number} */ value) => TILE_TOP + room * (1 - value / this.most);
    this.drawTicks(context, surface.width, y, room);
    for (const [name, tone] of /** @type {[string, number][]} */ ([["reserved", 0.35], ["allocated", 0.6]])) {
      context.fillStyle = fade(colours[name], tone);
      context.beginPath();
      context.moveTo(x(0), y(0));
      for (let i = 0; i + 1 < xs.length; i++) {
        context.lineTo(x(i), y(overview[name].most[i]));
        context.lineTo(x(i + 1), y(overview[name].most[i]));
      }
      context.lineTo(x(xs.length - 1), y(0));
      context.fill();
    }
    for (const mark of facts.marks ?? []) {
      if (mark.kind !== "oom") continue;
      const at = overview.entry.findIndex((/** @type {number} */ entry) => entry > mark.at);
      context.fillStyle = colours.bad;
      context.fillRect(x(Math.max(0, at < 0 ? xs.length - 1 : at - 1)), 0, 1.5, surface.height);
    }
    this.nameTicks(context, y, room);
  }

  /** @param {number} room in pixels */
  ticks(room) {
    return roundTicks(0, this.most, Math.max(1, room / 50), roundBinaryStep).slice(1);
  }

  drawTicks(/** @type {any} */ context, /** @type {number} */ wide, /** @type {(value: number) => number} */ y,
    /** @type {number} */ room) {
    context.fillStyle = this.app.theme.names.faint;
    for (const tick of this.ticks(room)) context.fillRect(0, Math.round(y(tick)), wide, 1);
    context.fillRect(0, Math.round(y(0)), wide, 1);
  }

  nameTicks(/** @type {any} */ context, /** @type {(value: number) => number} */ y, /** @type {number} */ room) {
    context.fillStyle = this.app.theme.names.dim;
    context.textAlign = "left";
    for (const tick of this.ticks(room)) context.fillText(tickSizeText(tick), 0, Math.round(y(tick)) + 8);
  }
}

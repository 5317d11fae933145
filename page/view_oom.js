// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Out of memory: the moment as bars of one scale, what stood in the way, and which settings serve the request.
import {amountText, countText, sizeText} from "./units.js";
import {el, fill} from "./dom.js";
import {positionText} from "./axis.js";

const BLOCKERS_MOST = 40;

export class OomView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.content = el("div.moment");
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Out of memory"}, this.content));
    this.chosen = 0;
  }

  clear() {
    this.chosen = 0;
  }

  refresh() {
    const {app} = this;
    const ooms = app.facts.ooms ?? [];
    const oom = ooms[Math.min(this.chosen, ooms.length - 1)];
    if (!oom) return;
    const pick = ooms.length > 1 && el("select", {"aria-label": "Refused request",
      change: (/** @type {any} */ event) => {
      this.chosen = Number(event.target.value);
      this.refresh();
    }}, ...ooms.map((/** @type {any} */ one, /** @type {number} */ i) =>
      el("option", {value: i, selected: i === this.chosen},
      "entry " + countText(one.entry) + ": " + sizeText(one.bytes))));
    fill(this.content, el("div", null, el("h2", null, "A request for " + sizeText(oom.bytes) + " was refused at " +
      positionText(app, oom.entry)), pick), this.bars(oom), this.actions(oom), this.settings(), this.blockers(oom));
  }

  /** Reserved memory, the request and the largest hole, all to scale. @param {any} oom */
  bars(oom) {
    const limit = this.app.facts.limit?.least ?? 0;
    const whole = Math.max(limit, oom.reserved + (oom.segment_bytes ?? oom.bytes));
    const share = (/** @type {number} */ bytes) => (100 * bytes) / whole + "%";
    const piece = (/** @type {number} */ bytes, /** @type {string} */ colour, /** @type {string} */ text,
      isFree = false) => {
      const made = el("span" + (isFree ? ".free" : ""), {title: text}, bytes > 0.12 * whole ? text : "");
      made.style.width = share(bytes);
      made.style.background = colour;
      return made;
    };
    const row = (/** @type {string} */ name, /** @type {number} */ bytes, /** @type {any[]} */ ...pieces) =>
      el("div.scale-row", null, el("span.dim", null, name), el("div.scale-bar", {role: "img", "aria-label": name},
        ...pieces),
        el("span.number", {"data-bytes": bytes}, sizeText(bytes)));
    const rest = Math.max(0, oom.free - oom.place_free);
    return el("div", {"data-bars": true},
      row("reserved", oom.reserved, piece(oom.allocated, "var(--allocated)", sizeText(oom.allocated) + " allocated"),
        piece(oom.place_free, "color-mix(in srgb, var(--hole) 70%, var(--dim))", sizeText(oom.place_free) +
          " free in " +
          amountText(oom.place_pieces, "piece"), true),
        rest > 0 && piece(rest, "var(--hole)", sizeText(rest) + " free elsewhere", true)),
      row("the request", oom.bytes, piece(oom.bytes, "var(--bad)", "")),
      row("the largest hole", oom.place_largest,
        piece(oom.place_largest, "color-mix(in srgb, var(--hole) 70%, var(--dim))", "", true)),
      limit > 0 && row("the limit", limit, piece(limit, "var(--reserved)", "at least this")));
  }

  /** @param {any} oom */
  actions(oom) {
    const {app} = this;
    const wide = Math.max(50, app.facts.entries * 0.02);
    const show = () => app.state.set({tab: "where", from: Math.max(0, oom.entry - wide),
      to: Math.min(app.scale.entries, oom.entry + wide / 4),
      point: null, low: 0, high: 0});
    const flame = () => app.state.set({tab: "flame", at: oom.entry, measure: "used", from: -1, to: -1});
    return el("p", null, el("button", {type: "button", click: show}, "Show the addresses then"), " ",
      el("button", {type: "button", click: flame}, "Show who had the memory"));
  }

  settings() {
    const rows = this.app.facts.report?.oom_settings ?? [];
    if (rows.length === 0) return null;
    return el("div", null, el("h3", null, "Would another setting have served it? Each was replayed."),
      el("table", {"data-table": "settings"}, el("thead", null, el("tr", null, el("th", null, "setting"),
        el("th", null, "serves it"),
        el("th", null, "completes"), el("th.number", null, "peak reserved"))),
      el("tbody", null, ...rows.map((/** @type {any} */ row) => el("tr", null,
        el("td.mono", null, row.settings || "(defaults)"),
        el("td" + (row.is_served ? ".good" : ".bad"), null, row.is_served ? "yes" : "no"),
        el("td" + (row.runs_through ? ".good" : ".bad"), null, row.runs_through ? "yes" : "no"),
        el("td.number", null, row.peak_reserved === null ? "" : sizeText(row.peak_reserved)))))));
  }

  /** Live blocks that keep the best place from use. @param {any} oom */
  blockers(oom) {
    const all = (this.app.facts.report?.oom_blockers ?? []).filter((/** @type {any} */ one) => one.entry === oom.entry);
    if (all.length === 0) return null;
    const bytes = all.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.bytes, 0);
    return el("div", null, el("h3", null, "What stood in the way: " + amountText(all.length, "live block") + " of " +
      sizeText(bytes)),
      el("table", {"data-table": "blockers"}, el("thead", null, el("tr", null, el("th", null, "address"),
        el("th.number", null, "bytes"),
        el("th", null, "call site"))),
      el("tbody", null, ...all.slice(0, BLOCKERS_MOST).map((/** @type {any} */ one) =>
        el("tr", null, el("td.mono", null, one.address),
        el("td.number", null, sizeText(one.bytes)), el("td.wide", null, one.call_site))))),
      all.length > BLOCKERS_MOST && el("p.dim", null, "and " + amountText(all.length - BLOCKERS_MOST, "more block")));
  }
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Out of memory: the moment as bars of one scale, what stood in the way, and which settings serve the request.
import {amountText, countText, sizeText} from "./units.js";
import {el, fill} from "./dom.js";
import {positionText} from "./axis.js";
import {MomentBar} from "./moment_bar.js";

const BLOCKERS_MOST = 40;

export class OomView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.content = el("div.moment");
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Out of memory"}, this.content));
    this.chosen = 0;
    this.bar = new MomentBar(app);
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
    fill(this.content, el("div.title", null, el("h2", null, "Why " + sizeText(oom.bytes) + " did not fit"),
      el("span.dim", null, positionText(app, oom.entry)), pick, el("span.grow"), this.actions(oom)),
    this.figures(oom), this.bar.element, el("div.columns", null, this.settings(), this.blockers(oom)));
    this.bar.show(oom);
  }

  /** The figures of the moment. @param {any} oom */
  figures(oom) {
    const limit = this.app.facts.limit;
    const tile = (/** @type {string} */ key, /** @type {number} */ bytes, /** @type {string} */ text, mood = "") =>
      el("div.figure" + mood, null, el("b", {"data-figure": key, "data-bytes": bytes}, sizeText(bytes)),
        el("span.dim", null, text));
    return el("div.figures", null, tile("request", oom.bytes, "requested", ".is-bad"),
      tile("largest", oom.place_largest, "largest hole it could use"),
      tile("free", oom.free, "free, in " + amountText(oom.place_pieces, "usable piece")),
      tile("allocated", oom.allocated, "allocated"), tile("reserved", oom.reserved, "reserved"),
      limit && tile("limit", limit.least, limit.most > limit.least ? "limit, or more" : "limit"));
  }

  /** @param {any} oom */
  actions(oom) {
    const {app} = this;
    const wide = Math.max(50, app.facts.entries * 0.02);
    const show = () => app.state.set({tab: "where", from: Math.max(0, oom.entry - wide),
      to: Math.min(app.scale.entries, oom.entry + wide / 4),
      point: null, low: 0, high: 0});
    const flame = () => app.state.set({tab: "flame", at: oom.entry, measure: "used", from: -1, to: -1});
    return el("span.actions", null, el("button", {type: "button", click: show}, "Show the addresses then"),
      el("button", {type: "button", click: flame}, "Show who had the memory"));
  }

  /** Settings that serve the request come first. */
  settings() {
    const rows = [...this.app.facts.report?.oom_settings ?? []];
    if (rows.length === 0) return null;
    const rank = (/** @type {any} */ row) => (row.runs_through ? 0 : row.is_served ? 1 : 2);
    rows.sort((a, b) => rank(a) - rank(b) || (a.peak_reserved ?? Infinity) - (b.peak_reserved ?? Infinity));
    const verdict = (/** @type {boolean} */ isYes) => el("td" + (isYes ? ".good" : ".bad"), null,
      isYes ? "✓ yes" : "✕ no");
    return el("div", null, el("h3", null, "Would another setting have served it? Each was replayed."),
      el("table", {"data-table": "settings"}, el("thead", null, el("tr", null, el("th", null, "setting"),
        el("th", null, "serves it"), el("th", null, "completes"), el("th.number", null, "peak reserved"))),
      el("tbody", null, ...rows.map((/** @type {any} */ row) => el("tr", {"data-setting": row.settings},
        el("td.mono", null, row.settings || "(defaults)"), verdict(row.is_served), verdict(row.runs_through),
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

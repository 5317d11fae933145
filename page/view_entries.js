// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The list of entries. Only rows that are seen exist as elements; the worker gives them.
import {amountText, countText, durationText, sizeText} from "./units.js";
import {el, fill} from "./dom.js";
import {Latest} from "./link.js";

const ROW_TALL = 24;
/** Browsers do not make elements taller than this; a longer list is scrolled in proportion. */
const TALL_MOST = 8e6;
const KIND_NAMES = ["no effect", "allocate", "release", "free again", "reserve", "return", "other"];
const ACTION_NAMES = ["alloc", "free requested", "free completed", "segment alloc", "segment free", "segment map",
  "segment unmap", "snapshot", "out of memory", "user defined", "other"];

export class EntriesView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.kinds = KIND_NAMES.map((name, kind) => el("button", {type: "button", "aria-pressed": "false",
      "data-kind": kind,
      click: () => this.toggle(kind)}, name)).slice(1);
    this.least = el("select", {"aria-label": "Least size", change: () =>
      app.state.set({least: Number(this.least.value)})},
      ...[0, 2 ** 20, 2 ** 24, 2 ** 27, 2 ** 30].map((bytes) =>
        el("option", {value: bytes}, bytes === 0 ? "any size" : "at least " + sizeText(bytes).replace(".00", ""))));
    this.search = el("input", {type: "search", placeholder: "stack contains  ( / )", "aria-label": "Stack contains",
      input: () => app.state.set({text: this.search.value})});
    this.jump = el("input", {type: "text", placeholder: "jump to an entry, or 1.5 s", class: "wide",
      "aria-label": "Jump to an entry or time",
      keydown: (/** @type {any} */ event) => event.key === "Enter" && this.jumpTo(this.jump.value)});
    this.total = el("span.dim", {"data-rows": true});
    this.space = el("div.space");
    this.list = el("div.list", {tabindex: "0", role: "grid", "aria-label": "Entries", scroll: () => this.ask(),
      keydown: (/** @type {any} */ event) => this.keyDown(event)}, this.space);
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Entries"},
      el("div.toolbar", null, el("div.choices", {role: "group", "aria-label": "Kinds"}, ...this.kinds), this.least,
        this.search,
        this.jump, el("span.grow"), this.total, this.lack = el("span")),
      el("div.list-head", {"aria-hidden": "true"}, ...["entry", "time", "what", "size", "address", "stream",
        "call site"].map((name, i) =>
        el("span" + (i < 2 || i === 3 ? ".number" : ""), null, name))), this.list));
    this.count = 0;
    this.askRows = new Latest((q) => app.ask("rows", q), (answer, q) => this.use(answer, q));
    new ResizeObserver(() => this.ask()).observe(this.list);
  }

  filter() {
    const {kinds, least, text} = this.app.state.now;
    const {from, to} = this.app.window();
    return {kinds: kinds === "" ? [] : kinds.split(".").map(Number), least, text, from, to};
  }

  /** @param {number} kind */
  toggle(kind) {
    const chosen = new Set(this.filter().kinds);
    if (!chosen.delete(kind)) chosen.add(kind);
    this.app.state.set({kinds: Array.from(chosen).sort().join(".")});
  }

  /** @param {Set<string>} [keys] */
  refresh(keys) {
    const {app} = this;
    const filter = this.filter();
    for (const button of this.kinds)
      button.setAttribute("aria-pressed", String(filter.kinds.includes(Number(button.dataset.kind))));
    this.least.value = String(filter.least);
    if (this.search.value !== filter.text) this.search.value = filter.text;
    const isJump = app.state.now.entry >= 0 && (!keys || keys.has("entry") || keys.has("tab"));
    this.ask(isJump ? app.state.now.entry : undefined);
  }

  /** Rows for each pixel of scrolling: 1, unless the list is longer than a browser can show. */
  factor() {
    return Math.max(1, (this.count * ROW_TALL) / TALL_MOST);
  }

  /** @param {number} [entry] to jump to */
  ask(entry) {
    if (!this.app.isWhole || this.list.clientHeight === 0) return;
    const first = Math.max(0, Math.floor((this.list.scrollTop * this.factor()) / ROW_TALL));
    const count = Math.ceil(this.list.clientHeight / ROW_TALL) + 2;
    this.askRows.request({first, count, filter: this.filter(), entry});
  }

  use(/** @type {any} */ answer, /** @type {any} */ question) {
    this.count = answer.total;
    this.space.style.height = Math.min(TALL_MOST, answer.total * ROW_TALL) + "px";
    const top = (answer.first * ROW_TALL) / this.factor();
    if (question.entry !== undefined) this.list.scrollTop = top;
    const offset = question.entry !== undefined ? top : this.factor() > 1 ? this.list.scrollTop
      : answer.first * ROW_TALL;
    fill(this.total, amountText(answer.total, "entry", "entries"));
    fill(this.space, ...answer.rows.map((/** @type {any} */ row, /** @type {number} */ i) =>
      this.row(row, offset + i * ROW_TALL)));
    if (answer.total === 0) fill(this.space, el("p.empty", null, "No entry of this window passes the filters."));
  }

  /** @param {any} row @param {number} top */
  row(row, top) {
    const what = row.kind === 6 ? ACTION_NAMES[row.other] ?? "other" : KIND_NAMES[row.kind];
    const isOn = row.entry === this.app.state.now.entry;
    const made = el("div.row" + (isOn ? ".is-on" : ""), {role: "row", "data-entry": row.entry, click: () =>
      this.choose(row)},
      el("span.number", null, countText(row.entry)), el("span.number.dim", null, row.us === null ? ""
        : durationText(row.us)),
      el("span" + (row.other === 8 ? ".bad" : ""), null,
        el("i.kind", {"data-kind": row.other === 8 ? "oom" : row.kind}), what),
      el("span.number", null, row.bytes === null ? ""
        : sizeText(row.bytes)),
      el("span.mono.dim", null, row.address), el("span.dim", {title: row.stream}, row.stream === "" ? ""
        : "stream " + row.stream),
      el("span" + (row.site === "(no stack)" ? ".dim" : ""), {title: row.site || row.text},
        row.site || row.text));
    made.style.top = top + "px";
    return made;
  }

  /** @param {any} row */
  choose(row) {
    const point = row.lane === undefined ? this.app.state.now.point : {entry: row.kind === 1 || row.kind === 4
      ? row.entry : Math.max(0, row.entry - 1),
      lane: row.lane, offset: row.offset + 0.5};
    this.app.state.set({entry: row.entry, point, at: row.entry});
  }

  /** @param {string} text an entry, or a time with its unit */
  jumpTo(text) {
    const found = /^\s*([\d.,]+)\s*(s|ms|us|µs|)\s*$/.exec(text);
    if (!found) return;
    const number = Number(found[2] === "" ? found[1].replace(/[.,]/g, "") : found[1].replace(",", "."));
    const factor = {s: 1e6, ms: 1e3, us: 1, "µs": 1}[found[2]];
    const times = this.app.times;
    if (factor && !times) return;
    let entry = number;
    if (factor && times) {
      let low = 0;
      let high = times.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle] < number * factor) low = middle + 1;
        else high = middle;
      }
      entry = low;
    }
    entry = Math.max(0, Math.min(this.app.facts.entries - 1, Math.floor(entry)));
    const {from, to} = this.app.window();
    this.app.state.set(entry < from || entry >= to ? {entry, at: entry, from: -1, to: -1} : {entry, at: entry});
    this.ask(entry);
  }

  /** @param {KeyboardEvent} event */
  keyDown(event) {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    this.list.scrollTop += (step * ROW_TALL) / this.factor();
  }
}

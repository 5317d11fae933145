// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Steps: their peaks and growth as rows, and call sites that grow with every step.
import {amountText, countText, shareText, sizeText} from "./units.js";
import {el, fill} from "./dom.js";

export class StepsView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.content = el("div.scroll");
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Steps"}, this.content));
  }

  refresh() {
    const {app} = this;
    const rows = app.steps;
    const most = Math.max(1, ...rows.map((/** @type {any} */ row) => row.peak_reserved ?? row.peak_allocated));
    fill(this.content, this.leaks(), el("table.narrow", {"data-table": "steps"}, el("thead", null, el("tr", null,
      ...["step", "first entry", "entries", "peak allocated", "", "peak reserved", "growth",
        "live at its end"].map((name, i) =>
        el(i === 4 ? "th" : "th.number", null, name)))),
    el("tbody", null, ...rows.map((/** @type {any} */ row) => this.row(row, most)))));
  }

  /** @param {any} row @param {number} most */
  row(row, most) {
    const {app} = this;
    const show = () => app.moveWindow({from: row.first_entry, to: row.first_entry + row.entries});
    const bar = el("div.step-bar", {"aria-hidden": "true"});
    for (const [name, bytes] of /** @type {[string, number][]} */ ([["reserved", row.peak_reserved ?? 0],
      ["allocated", row.peak_allocated]])) {
      const part = el("i." + name);
      part.style.width = (100 * bytes) / most + "%";
      bar.append(part);
    }
    return el("tr", {tabindex: "0", title: "Show this step", click: show,
      keydown: (/** @type {any} */ event) => event.key === "Enter" && show()},
    el("td.number", null, row.is_whole === false ? "in part" : countText(row.step)),
      el("td.number", null, countText(row.first_entry)),
    el("td.number", null, countText(row.entries)), el("td.number", null, sizeText(row.peak_allocated)),
      el("td", null, bar),
    el("td.number", null, sizeText(row.peak_reserved ?? 0)),
    el("td.number.dim", null, (row.growth > 0 ? "+" : "") + sizeText(row.growth)),
    el("td.number", null, sizeText(row.live)));
  }

  /** Call sites that grow from step to step. */
  leaks() {
    const leaks = this.app.facts.leaks ?? [];
    if (leaks.length === 0) return el("p.note", null, this.app.steps.length < 3 ? "Too few steps to judge leaks."
      : "✓ No call site grows from step to step. A click on a step shows it.");
    return el("div", null, el("h3.note", null, "Call sites that grow with every step"),
      el("table", {"data-table": "leaks"}, el("thead", null, el("tr", null, el("th", null, "call site"),
        el("th.number", null, "growth a step"),
        el("th.number", null, "growing steps"), el("th.number", null, "bytes"), el("th.number", null, "certainty"))),
      el("tbody", null, ...leaks.map((/** @type {any} */ leak) => el("tr", null,
        el("td.wide", null, leak.site || "(no stack)"),
        el("td.number", null, "+" + sizeText(leak.bytes_per_step)), el("td.number", null,
          countText(leak.growing_steps)),
        el("td.number", null, sizeText(leak.bytes) + " in " + amountText(leak.blocks, "block")),
        el("td.number", null, typeof leak.certainty === "number" ? shareText(leak.certainty)
          : String(leak.certainty ?? "")))))));
  }
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What tags may have, in words and as bars: the peak of what a tag had reserved, beside its limit. The rows are those
// of report --json.
import {amountText, shareText, sizeText} from "./units.js";
import {el} from "./dom.js";

/** @param {any} facts of a device @returns {any[]} tags with a budget, each behind the one above it */
export function budgetRows(facts) {
  return (facts.report?.tags ?? []).filter((/** @type {any} */ row) => row.has_budget);
}

/** The row of a tag, or of the nearest tag above it, that has a limit. @param {any} facts @param {string} tag */
export function limitRow(facts, tag) {
  let best = null;
  for (const row of budgetRows(facts))
    if (row.limit !== null && (tag + "/").startsWith(row.tag + "/") && (!best || row.tag.length > best.tag.length))
      best = row;
  return best;
}

/** "20.00 MiB for model, 100.0 % of it used at the peak", or nothing. @param {any} facts @param {string} tag */
export function limitText(facts, tag) {
  const row = limitRow(facts, tag);
  if (!row) return "";
  return sizeText(row.limit) + (row.tag === tag ? "" : " for " + row.tag) + usedText(row, ", ");
}

/** @param {any} row @param {string} before */
function usedText(row, before) {
  return row.limit_share === null ? "" : before + shareText(row.limit_share) + " of it used at the peak";
}

/** How often and how much of a tag gave way. @param {any} row */
function gaveWayText(row) {
  const parts = [row.parked_count > 0 && "parked " + amountText(row.parked_count, "time"),
    row.sent_bytes > 0 && sizeText(row.sent_bytes) + " copied away",
    row.fetched_bytes > 0 && sizeText(row.fetched_bytes) + " copied back",
    row.idle_bytes > 0 && sizeText(row.idle_bytes) + " of idle memory given back"];
  return parts.filter(Boolean).join(", ");
}

/** What is known about a tag, for factList(). @param {any} row of the report @returns {[string, any][]} */
export function tagFacts(row) {
  const isKnown = row.peak_reserved !== null;
  return [["limit", row.limit === null ? null : sizeText(row.limit) + usedText(row, ", ")],
    ["soft limit", row.soft_limit === null ? null : sizeText(row.soft_limit)],
    ["guarantee", row.guarantee > 0 ? sizeText(row.guarantee) : null],
    ["yields", row.has_budget ? (row.yields ? "yes" : "no") + ", priority " + row.priority : null],
    ["peak", isKnown ? sizeText(row.peak_reserved) + " reserved" : null],
    ["at the end", sizeText(row.reserved) + " reserved" +
      (row.parked > 0 ? ", " + sizeText(row.parked) + " parked" : "")],
    ["gave way", gaveWayText(row)],
    ["refused", row.refused_count > 0 ? amountText(row.refused_count, "request") : null]];
}

/** How full a limit was at the peak, with a mark at the soft limit. @param {any} row */
function limitMeter(row) {
  const share = Math.min(1, row.limit_share ?? 1);
  const bar = el("i");
  bar.style.width = 100 * share + "%";
  const mark = row.soft_limit !== null && row.soft_limit < row.limit && el("b");
  if (mark) mark.style.left = (100 * row.soft_limit) / row.limit + "%";
  return el("span.meter" + (row.refused_count > 0 ? ".is-bad" : ""), {"data-share": share}, bar, mark);
}

/** A line for each budget. @param {any} facts @param {(row: any) => void} choose */
export function budgetList(facts, choose) {
  const rows = budgetRows(facts);
  if (rows.length === 0) return null;
  return el("div", null, el("h3", null, "Limits, and their use at the peak"),
    el("ul.rows", {"data-list": "budgets"}, ...rows.map((row) => el("li", {"data-tag": row.tag},
      el("button", {type: "button", title: row.tag, click: () => choose(row)}, row.tag),
      row.limit !== null && limitMeter(row),
      row.limit_share !== null && el("span.share", null, shareText(row.limit_share)),
      el("span.size", null, row.limit === null ? "no limit" : sizeText(row.limit))))));
}

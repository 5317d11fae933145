// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// What was clicked, in words: a block, a waiting block, or a hole with the blocks around it.
import {amountText, countText, durationText, sizeText} from "./units.js";
import {el} from "./dom.js";
import {positionText} from "./axis.js";
import {limitText} from "./budgets.js";

/** Why memory was reserved, by tide_growth_cause. */
const CAUSES = ["too little was free", "no hole was large enough", "a split was not allowed",
  "free memory waited for events",
  "the free memory was of another stream", "the free memory was of another pool",
  "the free memory was for requests of the other size class", "a block that fits was passed over", "",
  "it is older than the recording", "parked memory came back"];

/** @param {[string, any][]} pairs those without a value are left out */
export function factList(pairs) {
  return el("dl.facts", null, ...pairs.filter((pair) => pair[1] !== null && pair[1] !== "" && pair[1] !== undefined)
    .flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

/** @param {any[]} lines innermost first */
export function stackList(lines) {
  if (!lines || lines.length === 0) return el("p.dim", null, "No stack was recorded.");
  return el("ol.stack", null, ...lines.map((line) =>
    el("li" + (line.isOwn ? ".own" : line.isFolded ? ".folded" : ""), null, line.text)));
}

/** @param {any} app @param {number | null} entry */
function whenText(app, entry) {
  if (entry === null) return "never in this recording";
  return entry < 0 ? "before the recording" : positionText(app, entry);
}

/** How long something took, in time if known. @param {any} app @param {number} from @param {number} to */
export function spanText(app, from, to) {
  const entries = amountText(to - Math.max(0, from), "entry", "entries");
  const times = app.times;
  if (!times || times.length === 0) return entries;
  const clamp = (/** @type {number} */ at) => times[Math.max(0, Math.min(times.length - 1, at))];
  return durationText(clamp(to) - clamp(from)) + " (" + entries + ")";
}

/** A line for a block that can be chosen. @param {any} app @param {any} block @param {string} prefix */
function blockRow(app, block, prefix) {
  const choose = () => app.state.set({point: {entry: Math.max(block.begin, 0), lane: block.lane,
    offset: block.offset + block.units / 2}});
  const stay = () => app.state.set({point: {entry: app.state.now.point?.entry ?? block.begin, lane: block.lane,
    offset: block.offset + block.units / 2}});
  return el("li", {"data-block": block.address}, el("button", {type: "button", title: block.site,
    click: (/** @type {any} */ event) => (event.shiftKey ? choose() : stay())}, prefix +
      (block.lines.length > 0 ? block.site : block.address)),
  el("span.size", null, sizeText(block.bytes)));
}

/** @param {any} app @param {any} point the answer of the worker @param {() => void} close */
export function describePoint(app, point, close) {
  const button = el("button.close", {type: "button", title: "Close (Esc)", "aria-label": "Close", click: close}, "✕");
  if (point.kind === "hole") return [button, ...describeHole(app, point)];
  if (point.kind === "block" || point.kind === "waiting") return [button, ...describeBlock(app, point)];
  if (point.kind === "parked") return [button, el("h2", {"data-kind": "parked"}, "Parked"),
    ...parkedLines(app, point.parked)];
  return [button, el("h2", null, "Not reserved"), el("p.dim", null,
    "At " + positionText(app, point.position) + " no memory was reserved at this address.")];
}

/** @param {any} app @param {any} point */
function describeBlock(app, point) {
  const block = point.block;
  const end = block.end ?? app.facts.entries;
  return [el("h2", {"data-kind": point.kind}, (point.kind === "waiting" ? "Waiting block of " : "Block of ") +
    sizeText(block.bytes)),
    point.kind === "waiting" && el("p.dim", null, "Released, but another stream may still use it."),
    factList([["requested", sizeText(block.requested) + " (" + countText(block.requested) + " B)"],
      ["address", el("span.mono", {"data-address": true}, block.address)], ["allocated", whenText(app, block.begin)],
      ["released", whenText(app, block.end)], ["free again", block.end === null ? null : whenText(app, block.gone)],
      ["life", spanText(app, block.begin, end)], ["stream", block.stream], ["pool", block.pool],
      ["limit", limitText(app.facts, block.pool)]]),
    ...(point.parked ? [el("h3", {"data-parked": true}, "Parked"), ...parkedLines(app, point.parked)] : []),
    el("h3", null, "Allocated by"), stackList(block.lines), ...segmentLines(app, point.segment)];
}

/** @param {any} app @param {any} point */
function describeHole(app, point) {
  const hole = point.hole;
  const keepers = hole.keepers;
  const neighbours = [hole.left && blockRow(app, hole.left, "below: "), hole.right &&
    blockRow(app, hole.right, "above: ")];
  const others = keepers.largest.filter((/** @type {any} */ block) =>
    block.block !== hole.left?.block && block.block !== hole.right?.block);
  return [el("h2", {"data-kind": "hole"}, "Hole of " + sizeText(hole.bytes)),
    factList([["free since", el("span", {"data-since": hole.since}, whenText(app, hole.since))],
      ["so far", spanText(app, hole.since, point.position)],
      ["used again", el("span", {"data-until": hole.until ?? ""}, whenText(app, hole.until))],
      ["address", el("span.mono", {"data-address": true}, hole.address)]]),
    el("h3", null, "Blocks around it"),
    hole.left || hole.right ? el("ul.rows", {"data-list": "neighbours"}, ...neighbours)
      : el("p.dim", null, "None: the whole range is free, and can be returned to the device."),
    hole.left && hole.left.lines.length > 0 && el("div", null, el("p.dim", null, "below, allocated by"),
      stackList(hole.left.lines)),
    hole.right && hole.right.lines.length > 0 && el("div", null, el("p.dim", null, "above, allocated by"),
      stackList(hole.right.lines)),
    keepers.count > 0 && el("h3", null, amountText(keepers.count, "block") + " of " + sizeText(keepers.bytes) +
      " keep this range of " + sizeText(point.segment.bytes)),
    others.length > 0 && el("ul.rows", {"data-list": "keepers"}, ...others.map((/** @type {any} */ block) =>
      blockRow(app, block, ""))),
    keepers.count > keepers.largest.length && el("p.dim", null, "and " +
      amountText(keepers.count - keepers.largest.length, "smaller one")),
    hole.before && el("h3", null, "Used before by"), hole.before && el("ul.rows", null, blockRow(app, hole.before, "")),
    ...segmentLines(app, point.segment)];
}

/** @param {any} app @param {any} parked */
function parkedLines(app, parked) {
  return [el("p.dim", null, "The memory was given back to the device; the addresses stay."),
    factList([["size", sizeText(parked.bytes)], ["address", el("span.mono", null, parked.address)],
      ["parked", whenText(app, parked.begin)], ["came back", whenText(app, parked.end)], ["pool", parked.pool]])];
}

/** @param {any} app @param {any} segment */
function segmentLines(app, segment) {
  if (!segment) return [];
  const kind = [segment.flags & 1 ? "expandable" : "", segment.flags & 4 ? "also mapped elsewhere" : "",
    segment.flags & 8 ? "known from its blocks alone" : ""].filter(Boolean).join(", ");
  return [el("h3", null, "In a segment"), factList([["size", sizeText(segment.bytes)], ["kind", kind],
    ["address", el("span.mono", null, segment.address)], ["reserved", whenText(app, segment.begin)],
    ["returned", whenText(app, segment.end)], ["stream", segment.stream], ["pool", segment.pool],
    ["why", CAUSES[segment.cause] ?? ""]])];
}

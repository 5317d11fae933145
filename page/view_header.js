// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The bar at the top, the finding of the report, and its line to paste.
import {amountText, countText} from "./units.js";
import {choiceBar, copyText, el, fill} from "./dom.js";

/** From this utilisation on, little memory is lost. */
const GOOD_UTILISATION = 0.9;

/** What keys and the mouse do: a title, and for each line the keys, separated by spaces, and words. */
const KEYS = [["Move", [["← →", "pan (also A, D)"], ["+ −", "zoom (also W, S, and the wheel)"],
  ["Home", "show all (also 0)"], ["↑ ↓", "pan addresses"],
  ["PgUp PgDn", "zoom addresses (also Shift with the wheel)"]]],
["Mouse", [["drag", "pan; in the overview, choose a window, or move it and its edges"],
  ["click", "what is there: a block, or a hole and what keeps it from use"],
  ["double-click", "zoom in; in the overview, show all"]]],
["Panels", [["1 … 9", "choose a panel"], ["X", "next x axis"], ["/", "search"], ["Esc", "drop the selection"],
  ["T", "dark or light"], ["?", "this list"]]]];

export class HeaderView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.bar = el("header.bar");
    this.finding = el("section.finding", {"aria-label": "Finding"});
    this.axis = choiceBar("x axis", [["time", "Time"], ["entry", "Entry"], ["step", "Step"]], (x) =>
      app.state.set({x}));
    this.keys = this.makeKeys();
    this.lack = el("span");
    this.show();
  }

  /** Shows what belongs to the chosen device. */
  show() {
    const {app} = this;
    const facts = app.facts;
    this.axis.show(app.state.now.x);
    this.axis.allow("time", Boolean(facts.overview?.ms), "The recording has no times");
    this.axis.allow("step", app.steps.length > 0, "No steps were found");
    const dark = el("button", {type: "button", title: "Dark or light (T)", "aria-label": "Dark or light",
      click: () => app.switchTheme()}, app.theme.isDark ? "☾" : "☀");
    const keys = el("button", {type: "button", title: "Keys (?)", "aria-label": "Keys",
      click: () => this.keys.showModal()}, "?");
    fill(this.bar, el("span.brand", null, "Tidemark"), ...this.pickers(), ...this.badges(), el("span.grow"),
      el("span.dim.axis-name", null, "x axis"), this.axis.element, dark, keys, this.keys);
    this.showFinding(reportOf(app.file, app.facts));
  }

  pickers() {
    const {app} = this;
    const files = app.files.length > 1
      ? el("select", {"aria-label": "File", "data-pick": "file", change: (/** @type {any} */ event) =>
        app.chooseDevice(app.firstDevice(Number(event.target.value)))},
      ...app.files.map((/** @type {any} */ file, /** @type {number} */ i) =>
        el("option", {value: i, selected: file === app.file}, baseName(file.name))))
      : el("span.file", {title: app.file.name}, baseName(app.file.name));
    const first = app.firstDevice(app.files.indexOf(app.file));
    const devices = app.file.devices.length > 1
      ? el("select", {"aria-label": "Device", "data-pick": "device", change: (/** @type {any} */ event) =>
        app.chooseDevice(Number(event.target.value))},
      ...app.file.devices.map((/** @type {any} */ one, /** @type {number} */ i) =>
        el("option", {value: first + i, selected: one === app.facts}, "device " + one.device)))
      : el("span.dim", null, "device " + app.facts.device);
    return [files, devices, el("span.dim", null, amountText(app.facts.entries, "entry", "entries"))];
  }

  badges() {
    const facts = this.app.facts;
    const badges = [];
    if (facts.is_from_start === false) badges.push(el("span.badge.warn", {"data-badge": "middle",
      title: "What was allocated before is only known as far as the recording shows it"}, "begins in the middle"));
    if (facts.is_cut) badges.push(el("span.badge.warn", {title: "The end of the file is missing"}, "cut off"));
    this.showLack();
    badges.push(this.lack);
    return badges;
  }

  showLack() {
    fill(this.lack, leftOutNote(this.app));
  }

  /** @param {any} report */
  showFinding(report) {
    const {facts} = this.app;
    const sentences = [report?.finding ?? []].flat();
    const advice = report?.advice ?? [];
    const isBad = (facts.ooms ?? []).length > 0;
    const isGood = !isBad && (facts.report?.utilisation ?? 0) >= GOOD_UTILISATION;
    this.finding.dataset.mood = isBad ? "bad" : isGood ? "good" : "warn";
    const rest = el("p.rest", null, sentences.slice(1).join(" "));
    const said = el("div.said.is-short", null, el("h2", null, "What happened"),
      el("p.headline", null, sentences[0] ?? "The recording was read."), sentences.length > 1 && rest);
    const more = el("button.more", {type: "button", hidden: true, click: () => {
      said.classList.toggle("is-short");
      more.textContent = said.classList.contains("is-short") ? "more" : "less";
    }}, "more");
    said.append(more);
    requestAnimationFrame(() => (more.hidden = rest.scrollHeight <= rest.clientHeight + 2));
    fill(this.finding, said, advice.length > 0 && el("div.advice", null, el("h2", null, "What to do"),
      ...advice.flatMap(adviceLines)));
  }

  makeKeys() {
    const dialog = el("dialog", {"aria-label": "Keys"});
    const group = (/** @type {any} */ [title, lines]) => el("section", null, el("h3", null, title),
      el("dl.keys-list", null, ...lines.flatMap((/** @type {any} */ [keys, text]) => [
        el("dt", null, ...keys.split(/ (?!…|\d)/).map((/** @type {string} */ key) => el("kbd.key-name", null, key))),
        el("dd", null, text)])));
    fill(dialog, el("h2", null, "Keys and mouse"), ...KEYS.map(group), el("p.dim", null,
      "The address of the page says what is seen: send it with the file to show a colleague the same."),
    el("p.end", null, el("button", {type: "button", click: () => dialog.close()}, "Close")));
    dialog.addEventListener("click", (/** @type {any} */ event) => event.target === dialog && dialog.close());
    return dialog;
  }
}

/** What the figures of the window lack if the page has not all blocks. @param {any} app @returns {any} */
export function leftOutNote(app) {
  const out = app.facts.left_out;
  if (!out || app.isComplete()) return null;
  const {missing, trouble} = app.details ?? {};
  const title = missing > 0 ? "This window has " + amountText(missing, "more block") + ". A smaller one is complete"
    : trouble ? "The tool that serves this page does not answer: " + trouble
      : "They did not fit the page. Curves are exact; pictures, groups and flame graphs lack these blocks";
  return el("span.badge.warn", {"data-left-out": out.blocks, title},
    "without " + amountText(out.blocks, "block") + " that lived fewer than " + countText(out.below_entries) +
    " entries" + (missing > 0 ? ": zoom in for all blocks" : ""));
}

/** The report of a file is about one of its devices; others have their own. @param {any} file @param {any} facts */
function reportOf(file, facts) {
  const own = facts.report;
  if (!own || file.devices[file.described ?? 0] === facts) return file.report;
  return {finding: own.finding, advice: own.advice ? [{text: own.advice, line: own.environment}] : []};
}

/** @param {any} path */
export function baseName(path) {
  const text = String(path ?? "");
  return text.slice(text.lastIndexOf("/") + 1) || text;
}

/** @param {any} advice */
function adviceLines(advice) {
  const lines = [el("p.rest", null, String(advice.text ?? ""))];
  if (advice.line) {
    const copy = el("button", {type: "button", "data-copy": true, click: () => copyText(copy, advice.line)}, "Copy");
    lines.push(el("div.line", null, el("code", {"data-line": true}, String(advice.line)), copy));
  }
  return lines;
}

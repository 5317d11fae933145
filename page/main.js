// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Reads the facts, starts the worker, makes the panels, and keeps them in step with the state.
import {parseCut} from "./units.js";
import {entryScale, stepScale, timeScale} from "./scale.js";
import {ViewState} from "./state.js";
import {el, emptyNote, fill} from "./dom.js";
import {Theme} from "./theme.js";
import {Viewport} from "./axis.js";
import {Latest, WorkerLink} from "./link.js";
import {HeaderView, leftOutNote} from "./view_header.js";
import {OverviewView} from "./view_overview.js";
import {WhereView} from "./view_where.js";
import {WhoView} from "./view_who.js";
import {FlameView} from "./view_flame.js";
import {OomView} from "./view_oom.js";
import {WhatifView} from "./view_whatif.js";
import {StepsView} from "./view_steps.js";
import {RanksView} from "./view_ranks.js";
import {EntriesView} from "./view_entries.js";

/** The panels: what the tab says, when there is something to show, and the class. The first is shown first. */
const PANELS = [
  {name: "oom", title: "Out of memory", isThere: (/** @type {any} */ app) => (app.facts.ooms ?? []).length > 0,
    make: (/** @type {any} */ app) => new OomView(app)},
  {name: "where", title: "Where", isThere: () => true, make: (/** @type {any} */ app) => new WhereView(app)},
  {name: "who", title: "Who", isThere: () => true, make: (/** @type {any} */ app) => new WhoView(app)},
  {name: "flame", title: "Flame graph", isThere: () => true, make: (/** @type {any} */ app) => new FlameView(app)},
  {name: "whatif", title: "What if", isThere: (/** @type {any} */ app) => (app.facts.whatif ?? []).length > 0,
    make: (/** @type {any} */ app) => new WhatifView(app)},
  {name: "steps", title: "Steps", isThere: (/** @type {any} */ app) => app.steps.length > 0,
    make: (/** @type {any} */ app) => new StepsView(app)},
  {name: "ranks", title: "Ranks", isThere: (/** @type {any} */ app) => app.devices.length > 1,
    make: (/** @type {any} */ app) => new RanksView(app)},
  {name: "entries", title: "Entries", isThere: () => true, make: (/** @type {any} */ app) => new EntriesView(app)},
];

/** While parts are read, the picture is drawn again after this time at the earliest. */
const PEEK_MS = 700;

/** Fields of the state that do not change what the worker is asked. */
const QUIET = new Set(["tab"]);

class App {
  /** @param {any} facts @param {any} root */
  constructor(facts, root) {
    this.files = facts.files;
    this.devices = this.files.flatMap((/** @type {any} */ file) => file.devices);
    this.root = root;
    this.device = 0;
    this.state = new ViewState(location.hash);
    this.theme = new Theme();
    const search = new URLSearchParams(location.search);
    /** What draws rectangles, if the address says so: "2d", "gl" or "". */
    this.choice = search.has("2d") ? "2d" : search.has("gl") ? "gl" : "";
    /** @type {number | null} the position under the mouse */
    this.cursor = null;
    this.nextPeek = 0;
    /** @type {Map<string, any>} */
    this.panels = new Map();
    const code = document.getElementById("worker-code")?.textContent ?? "";
    this.link = new WorkerLink(code, facts, (message) => this.progress(message));
    /** @type {any} of the window that the worker completed last, or could not complete */
    this.details = null;
    this.askDetails = new Latest((q) => this.ask("details", q), (answer) => this.useDetails(answer));
    this.link.watchParts(this.devices.flatMap(partNames));
    this.useDevice(Math.max(0, Math.min(this.devices.length - 1, Math.floor(this.state.now.device))));
    this.header = new HeaderView(this);
    this.overview = new OverviewView(this);
    this.tabs = el("nav.tabs", {role: "tablist", "aria-label": "Panels"});
    this.place = el("div.panel");
    fill(root, this.header.bar, this.header.finding, this.overview.element, this.tabs, this.place);
    this.theme.listeners.add(() => this.showAll());
    this.state.listen((keys) => this.changed(keys));
    addEventListener("hashchange", () => this.followHash());
    addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.refresh()).observe(root);
    this.showAll();
    void this.openDevice();
  }

  // -------------------------------------------------------------------------------------------------
  // The device

  /** Takes the facts of a device; its data comes later. @param {number} device */
  useDevice(device) {
    this.device = device;
    this.facts = this.devices[device];
    this.file = this.files.find((/** @type {any} */ file) => file.devices.includes(this.facts));
    this.steps = Array.isArray(this.facts.steps) ? this.facts.steps : this.facts.steps?.rows ?? [];
    this.unit = this.facts.unit ?? 512;
    /** @type {Float64Array | null} */
    this.times = null;
    /** @type {any} */
    this.lanes = null;
    this.hasStacks = true;
    this.isWhole = false;
    this.details = null;
    const state = this.state.now;
    const hasTimes = Boolean(this.facts.overview?.ms);
    const isGood = state.x === "entry" || (state.x === "time" && hasTimes) ||
      (state.x === "step" && this.steps.length > 0);
    const x = isGood ? state.x : hasTimes ? "time" : "entry";
    this.state.now = {...state, device, x};
    this.makeScale();
  }

  makeScale() {
    const {facts, state, times} = this;
    const entries = facts.entries;
    this.scale = state.now.x === "time" ? timeScale(entries, times ?? null, facts.overview)
      : state.now.x === "step" ? stepScale(entries, this.steps) : entryScale(entries);
  }

  async openDevice() {
    const device = this.device;
    try {
      const answer = await this.link.ask("open", {device});
      if (device !== this.device) return;
      this.useData(answer);
    } catch (error) {
      console.error(String(error));
      fill(this.place, emptyNote("The data could not be read", String(error)));
    }
  }

  /** What the worker knows about the device so far. @param {any} answer */
  useData(answer) {
    this.times = answer.times ?? this.times;
    this.lanes = answer.lanes;
    this.hasStacks = answer.hasStacks;
    this.isWhole = answer.isWhole;
    if (this.state.now.by === "" || (!this.hasStacks && ["site", "module"].includes(this.state.now.by)))
      this.state.now = {...this.state.now, by: this.hasStacks ? "site" : "size"};
    this.makeScale();
    document.documentElement.dataset.ready = String(this.isWhole);
    this.refresh();
  }

  /** Shows what was read so far, now and then. @param {any} message */
  progress(message) {
    const now = performance.now();
    if (message.progress !== this.device || message.isWhole || now < this.nextPeek) return;
    this.nextPeek = now + PEEK_MS;
    this.link.ask("peek", {device: this.device}).then((answer) => {
      if (message.progress === this.device && !this.isWhole) this.useData(answer);
    }).catch((error) => console.error(String(error)));
  }

  /** @param {number} device */
  chooseDevice(device) {
    this.state.now = {...this.state.now, from: -1, to: -1, low: 0, high: 0, point: null, at: -1, entry: -1};
    this.useDevice(device);
    for (const panel of this.panels.values()) panel.clear?.();
    this.state.writeHash();
    this.showAll();
    void this.openDevice();
  }

  /** The number of the first device of a file. @param {number} file */
  firstDevice(file) {
    return this.files.slice(0, file).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum +
      one.devices.length, 0);
  }

  /** @param {string} what @param {any} question @returns {Promise<any>} null if the device was changed meanwhile */
  async ask(what, question) {
    const device = this.device;
    const answer = await this.link.ask(what, {device, ...question});
    return device === this.device ? answer : null;
  }

  // -------------------------------------------------------------------------------------------------
  // What the page lacks

  /** Has the worker all blocks of the window? */
  isComplete() {
    const {from, to} = this.window();
    return !this.facts.left_out || Boolean(this.details && from >= this.details.from && to <= this.details.to);
  }

  /** Lets the worker ask the tool that serves the page for the blocks of the window. */
  completeWindow() {
    this.showLack();
    if (this.link.isServed && this.facts.left_out && this.isWhole) this.askDetails.request(this.window());
  }

  useDetails(/** @type {any} */ answer) {
    this.details = answer;
    this.showLack();
    if (answer.isNew) this.panels.get(this.state.now.tab)?.refresh();
  }

  showLack() {
    this.header.showLack();
    const panel = this.panels.get(this.state.now.tab);
    if (panel?.lack) fill(panel.lack, leftOutNote(this));
  }

  // -------------------------------------------------------------------------------------------------
  // The window

  window() {
    const {from, to} = this.state.now;
    const entries = this.scale?.entries ?? 1;
    const isPart = to > from && from < entries && to > 0;
    return isPart ? {from: Math.max(0, from), to: Math.min(to, entries)} : {from: 0, to: entries};
  }

  /** @param {number} width in pixels */
  viewport(width) {
    const {from, to} = this.window();
    return new Viewport(/** @type {any} */ (this.scale), from, to, width);
  }

  /** @param {{from: number, to: number}} window */
  moveWindow(window) {
    const entries = this.scale?.entries ?? 1;
    const isAll = window.from <= 0 && window.to >= entries;
    this.state.set(isAll ? {from: -1, to: -1} : window);
  }

  /** @param {number | null} cursor */
  setCursor(cursor) {
    this.cursor = cursor;
    this.overview.say(cursor);
    this.overview.showCursor();
    this.panels.get(this.state.now.tab)?.showCursor?.();
  }

  // -------------------------------------------------------------------------------------------------
  // What is shown

  tabsThere() {
    return PANELS.filter((panel) => panel.isThere(this));
  }

  /** The buttons stay the same while the same panels are there, so that one keeps the focus. */
  showTabs() {
    const there = this.tabsThere();
    const names = there.map((panel) => panel.name).join();
    if (this.tabs.dataset.names !== names) {
      this.tabs.dataset.names = names;
      fill(this.tabs, ...there.map((panel, i) => el("button", {type: "button", role: "tab", "data-tab": panel.name,
        click: () => this.state.set({tab: panel.name}), keydown: (/** @type {any} */ event) => this.tabKey(event, i)},
      panel.title, el("kbd", {"aria-hidden": "true"}, i + 1))));
    }
    for (const button of this.tabs.children) {
      const isOn = button.dataset.tab === this.state.now.tab;
      button.setAttribute("aria-selected", String(isOn));
      button.tabIndex = isOn ? 0 : -1;
    }
  }

  /** Arrows go from tab to tab. @param {KeyboardEvent} event @param {number} at */
  tabKey(event, at) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    const buttons = this.tabs.children;
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
    event.preventDefault();
  }

  showAll() {
    if (!this.tabsThere().some((panel) => panel.name === this.state.now.tab))
      this.state.now = {...this.state.now, tab: this.tabsThere()[0].name};
    this.header.show();
    this.overview.say(null);
    this.showTabs();
    this.showPanel();
    this.refresh();
  }

  showPanel() {
    const name = this.state.now.tab;
    let panel = this.panels.get(name);
    if (!panel) {
      panel = /** @type {any} */ (PANELS.find((one) => one.name === name)).make(this);
      this.panels.set(name, panel);
    }
    const element = panel.element;
    if (this.place !== element) this.place.replaceWith(element);
    this.place = element;
  }

  /** Asks for everything that is seen. */
  refresh() {
    void this.overview.refresh();
    this.panels.get(this.state.now.tab)?.refresh();
    this.completeWindow();
  }

  /** @param {Set<string>} keys */
  changed(keys) {
    if (keys.has("x")) {
      this.makeScale();
      this.header.axis.show(this.state.now.x);
      void this.overview.refresh();
    }
    if (keys.has("tab")) {
      this.showTabs();
      this.showPanel();
    }
    this.overview.surface.redraw();
    const panel = this.panels.get(this.state.now.tab);
    panel?.surface?.redraw();
    if (keys.has("tab") || Array.from(keys).some((key) => !QUIET.has(key))) panel?.refresh(keys);
    if (keys.has("from") || keys.has("to") || keys.has("tab")) this.completeWindow();
  }

  /** The address was changed by hand or by a link. */
  followHash() {
    const state = new ViewState(location.hash).now;
    if (!this.devices[state.device]) state.device = this.device;
    if (!this.tabsThere().some((panel) => panel.name === state.tab)) state.tab = this.state.now.tab;
    if (state.device !== this.device) {
      this.state.now = state;
      this.useDevice(state.device);
      for (const panel of this.panels.values()) panel.clear?.();
      this.showAll();
      void this.openDevice();
      return;
    }
    this.state.set({...state, x: state.x || this.state.now.x, by: state.by || this.state.now.by,
      tab: this.tabsThere().some((panel) => panel.name === state.tab) ? state.tab : this.tabsThere()[0].name});
  }

  switchTheme() {
    this.theme.choose(this.theme.isDark ? "light" : "dark");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {any} */ (event.target);
    const isTyping = /^(input|select|textarea)$/i.test(target?.tagName ?? "");
    if (event.key === "Escape" && !isTyping) this.state.set({point: null});
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const there = this.tabsThere();
    const number = Number(event.key);
    if (number >= 1 && number <= there.length) this.state.set({tab: there[number - 1].name});
    else if (event.key === "t") this.switchTheme();
    else if (event.key === "x") this.nextAxis();
    else if (event.key === "?") this.header.keys.showModal();
    else if (event.key === "/") this.findBox(event);
  }

  nextAxis() {
    const all = ["time", "entry", "step"].filter((x) => x === "entry" ||
      (x === "time" ? this.facts.overview?.ms : this.steps.length > 0));
    this.state.set({x: all[(all.indexOf(this.state.now.x) + 1) % all.length]});
  }

  /** @param {KeyboardEvent} event */
  findBox(event) {
    const box = this.place.querySelector("input[type=search]");
    if (!box) return;
    event.preventDefault();
    /** @type {any} */ (box).focus();
  }
}

/** The names of all parts of a device. @param {any} facts @returns {string[]} */
function partNames(facts) {
  const parts = facts.parts ?? {};
  const curves = (facts.whatif ?? []).map((/** @type {any} */ one) => one.part);
  return [...(parts.blocks ?? []), parts.segments, parts.stacks, parts.times, parts.others, parts.curves,
    ...curves].filter(Boolean);
}

function startPage() {
  const root = /** @type {any} */ (document.getElementById("page"));
  try {
    const facts = parseCut(document.getElementById("facts")?.textContent ?? "");
    document.title = facts.files.map((/** @type {any} */ file) => file.name).join(", ") + " · Tidemark";
    if (facts.files.flatMap((/** @type {any} */ file) => file.devices).length === 0)
      fill(root, emptyNote("Nothing to show", "The recording has no entries and no segments of any device."));
    else /** @type {any} */ (window).tidemark = new App(facts, root); // tests look at it
  } catch (error) {
    console.error(String(error));
    fill(root, emptyNote("The page could not be shown", String(error)));
  }
}

startPage();

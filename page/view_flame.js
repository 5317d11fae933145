// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The flame graph: stacks of the chosen instant or window, with search, and the difference against another instant or
// file.
import {amountText, countText, shareText, sizeText} from "./units.js";
import {choiceBar, el, emptyNote, fill} from "./dom.js";
import {positionText} from "./axis.js";
import {Surface, clipText, fade, inkOn} from "./chart.js";
import {Latest} from "./link.js";
import {baseName, leftOutNote} from "./view_header.js";
import {stackList} from "./inspector.js";

/** Frames are so tall, in pixels; taller where the tree is shallow. */
const FRAME_LEAST = 21;
const FRAME_MOST = 28;
const OWN_MOST = 10;
const LEAST_PIXELS = 0.5;

/** Boxes of a tree, between 0 and 1: children beside each other below their parent, the largest first. */
export class FlameLayout {
  /** @param {any} tree @param {number} root node that has the whole width */
  constructor(tree, root) {
    const count = tree.parent.length;
    this.x = new Float64Array(count).fill(-1);
    this.w = new Float64Array(count);
    this.depth = new Int32Array(count);
    this.deepest = 0;
    /** @type {number[][]} */
    const children = Array.from({length: count}, () => []);
    for (let node = 1; node < count; node++) children[tree.parent[node]]?.push(node);
    const weigh = (/** @type {number} */ node) => Math.max(tree.value[node], tree.base[node]);
    for (const list of children) list.sort((a, b) => weigh(b) - weigh(a) || (tree.text[a] < tree.text[b] ? -1 : 1));
    this.x[root] = 0;
    this.w[root] = 1;
    const queue = [root];
    for (let at = 0; at < queue.length; at++) {
      const node = queue[at];
      this.deepest = Math.max(this.deepest, this.depth[node]);
      let x = this.x[node];
      const room = children[node].reduce((sum, child) => sum + weigh(child), 0);
      const scale = this.w[node] / Math.max(weigh(node), room, 1);
      for (const child of children[node]) {
        this.x[child] = x;
        this.w[child] = weigh(child) * scale;
        this.depth[child] = this.depth[node] + 1;
        x += this.w[child];
        queue.push(child);
      }
    }
    this.order = queue;
  }
}

export class FlameView {
  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.measure = choiceBar("Measure", [["used", "In use", "Bytes in use at the chosen instant"],
      ["allocated", "Allocated", "Bytes of all requests in the window"],
      ["held", "Bytes × entries", "Bytes times the entries they lived in the window"]], (measure) =>
        app.state.set({measure}));
    this.search = el("input", {type: "search", placeholder: "search frames  ( / )", "aria-label": "Search frames",
      input: () => app.state.set({find: this.search.value})});
    this.found = el("span.dim", {"data-found": true});
    this.open = el("input", {type: "checkbox", change: () => app.state.set({isOpen: this.open.checked ? 1 : 0})});
    this.against = el("select", {"aria-label": "Compare with", change: () =>
      app.state.set({base: this.against.value})});
    this.when = el("span.dim");
    this.plot = el("div.plot");
    this.side = el("aside.card.side", {"aria-label": "Frame"});
    this.element = el("div.panel", null, el("section.card", {"aria-label": "Flame graph"},
      el("div.toolbar", null, this.measure.element, this.search, this.found,
        el("label", {title: "Frames of the framework's machinery"}, this.open, "machinery"),
        el("label", null, "against", this.against), el("span.grow"), this.when, this.lack = el("span")), this.plot),
          this.side);
    this.surface = new Surface(this.plot, () => this.draw(), "Flame graph; Enter zooms, Backspace zooms out",
      () => app.theme.names.card);
    this.nothing = el("div.over", {hidden: true}, emptyNote("No stacks were recorded",
      "A flame graph needs to know who allocated. Record again with stacks:",
      el("code", null, "torch.cuda.memory._record_memory_history(stacks=\"python\")"),
      "The panel Who shows the same bytes by size, stream, pool or lifetime."));
    this.plot.append(this.nothing);
    /** @type {any} */
    this.tree = null;
    /** @type {FlameLayout | null} */
    this.layout = null;
    this.root = 0;
    this.hovered = -1;
    this.scroll = 0;
    this.tall = FRAME_LEAST;
    this.askFlame = new Latest((q) => app.ask("flame", q), (tree, q) => this.use(tree, q));
    this.listen();
  }

  clear() {
    this.tree = this.layout = null;
    this.root = 0;
  }

  /** The instant of "in use": what was clicked, or the peak of allocated memory in the window. */
  async instant() {
    const {app} = this;
    const {from, to} = app.window();
    const {point, at} = app.state.now;
    if (at >= from && at <= to) return at;
    if (point && point.entry >= from && point.entry <= to) return point.entry;
    const peak = app.facts.peaks?.allocated?.at;
    if (peak !== null && peak !== undefined && peak >= from && peak < to) return peak;
    const areas = await app.ask("areas", {from, to, x: "entry", by: "stream", top: 1, buckets: 1});
    return areas ? areas.samples[0] - 1 : from;
  }

  async refresh() {
    const {app} = this;
    const state = app.state.now;
    this.measure.show(state.measure);
    fill(this.lack, leftOutNote(app));
    this.showChoices();
    if (this.search.value !== state.find) this.search.value = state.find;
    this.open.checked = state.isOpen === 1;
    this.showFound();
    if (!app.lanes || !app.isWhole) return;
    let {from, to} = app.window();
    if (state.measure === "used") from = to = await this.instant();
    const question = {kind: state.measure, from, to, isFolded: state.isOpen !== 1, against: this.other(from, to)};
    this.askFlame.request(question);
  }

  /** The other instant or device. @param {number} from @param {number} to */
  other(from, to) {
    const {base, measure} = this.app.state.now;
    const [kind, number] = base.split(":");
    if (base === "" || !Number.isFinite(Number(number))) return null;
    if (kind === "at") return measure === "used" ? {from: Number(number), to: Number(number)}
      : {from: Number(number), to: Number(number) + to - from};
    const facts = this.app.devices[Number(number)];
    if (!facts) return null;
    const peak = facts.peaks?.allocated?.at ?? 0;
    return {device: Number(number), from: measure === "used" ? peak : 0, to: measure === "used" ? peak : facts.entries};
  }

  showChoices() {
    const {app} = this;
    const {base, at} = app.state.now;
    const options = [["", "nothing"]];
    if (base.startsWith("at:")) options.push([base, positionText(app, Number(base.slice(3)))]);
    if (at >= 0 && base !== "at:" + at) options.push(["at:" + at, "this instant, kept for comparison"]);
    for (const [text, entry] of /** @type {[string, any][]} */ ([["the first entry", 0],
      ["the last entry", app.facts.entries - 1]]))
      if (base !== "at:" + entry) options.push(["at:" + entry, text]);
    app.devices.forEach((/** @type {any} */ facts, /** @type {number} */ i) => {
      if (i === app.device) return;
      const file = app.files.find((/** @type {any} */ one) => one.devices.includes(facts));
      options.push(["device:" + i, baseName(file.name) + ", device " + facts.device]);
    });
    fill(this.against, ...options.map(([value, text]) => el("option", {value, selected: value === base}, text)));
  }

  use(/** @type {any} */ tree, /** @type {any} */ question) {
    this.tree = tree;
    this.question = question;
    this.root = 0;
    this.layout = new FlameLayout(tree, 0);
    const {app} = this;
    fill(this.when, question.kind === "used" ? "at " + positionText(app, question.from)
      : "entries " + countText(question.from) + " to " + countText(question.to));
    this.showFound();
    this.showSide();
    this.surface.redraw();
  }

  /** @param {number} node */
  isFound(node) {
    const find = this.app.state.now.find.toLowerCase();
    return find !== "" && this.tree.text[node].toLowerCase().includes(find);
  }

  /** Bytes of frames that match, each counted once. */
  showFound() {
    const {tree} = this;
    if (!tree || this.app.state.now.find === "") {
      fill(this.found);
      this.surface.redraw();
      return;
    }
    const isInside = new Uint8Array(tree.parent.length);
    let bytes = 0;
    let count = 0;
    for (let node = 0; node < tree.parent.length; node++) {
      const parent = tree.parent[node];
      if (parent >= 0 && isInside[parent]) isInside[node] = 1;
      if (!this.isFound(node)) continue;
      count++;
      if (!isInside[node]) bytes += tree.value[node];
      isInside[node] = 1;
    }
    this.found.dataset.bytes = String(bytes);
    fill(this.found, amountText(count, "frame") + ", " + this.valueText(bytes) + ", " +
      shareText(bytes / (tree.value[0] || 1)));
    this.surface.redraw();
  }

  /** @param {number} value */
  valueText(value) {
    return sizeText(value) + (this.app.state.now.measure === "held" ? " × entries" : "");
  }

  draw() {
    const {surface, tree, layout, app} = this;
    const context = surface.begin();
    this.nothing.hidden = app.hasStacks || !tree;
    if (!tree || !layout || !app.hasStacks) return;
    if (tree.value[0] === 0 && tree.base[0] === 0) {
      context.fillStyle = app.theme.names.dim;
      context.textAlign = "center";
      context.fillText("Nothing is allocated in this window.", surface.width / 2, surface.height / 2);
      return;
    }
    context.textAlign = "left";
    this.tall = Math.max(FRAME_LEAST, Math.min(FRAME_MOST, Math.floor(surface.height / (layout.deepest + 2))));
    const isSearch = app.state.now.find !== "";
    const wide = surface.width - 20;
    for (const node of layout.order) {
      const w = layout.w[node] * wide;
      const y = 8 + layout.depth[node] * this.tall - this.scroll;
      if (w < LEAST_PIXELS || y < -this.tall || y > surface.height) continue;
      const x = 10 + layout.x[node] * wide;
      context.globalAlpha = isSearch && !this.isFound(node) ? 0.45 : 1;
      context.fillStyle = this.colour(node);
      context.fillRect(x, y, Math.max(0.5, w - 1), this.tall - 1);
      if (node === this.hovered) {
        context.strokeStyle = app.theme.names.text;
        context.strokeRect(x + 0.5, y + 0.5, Math.max(1, w - 2), this.tall - 2);
      }
      if (w >= 30) this.nameFrame(context, node, x, y, w);
    }
    context.globalAlpha = 1;
  }

  /** What a frame is, and its bytes where there is room. @param {any} context @param {number} node */
  nameFrame(context, node, /** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ w) {
    const {tree} = this;
    const name = node === 0 ? "all stacks" : tree.text[node];
    context.fillStyle = this.textColour(node);
    const text = clipText(context, name, w - 10);
    context.fillText(text, x + 5, y + this.tall / 2);
    const size = this.valueText(tree.value[node]) + " · " + shareText(tree.value[node] / (tree.value[0] || 1));
    if (text !== name || context.measureText(name).width + context.measureText(size).width + 34 > w) return;
    context.textAlign = "right";
    context.globalAlpha *= 0.75;
    context.fillText(size, x + w - 7, y + this.tall / 2);
    context.globalAlpha /= 0.75;
    context.textAlign = "left";
  }

  /** Red has grown, blue has shrunk, grey is as before. @param {number} node */
  colour(node) {
    const {tree, app} = this;
    if (this.question?.against) {
      const change = (tree.value[node] - tree.base[node]) / Math.max(1, tree.value[node], tree.base[node]);
      return Math.abs(change) < 0.005 ? app.theme.names.line : fade(change > 0 ? "#d6604d" : "#4393c3", 0.3 +
        0.7 * Math.abs(change));
    }
    if (node === 0) return app.theme.names.line;
    const file = tree.text[node].split(":")[0];
    return app.theme.groups[flameHash(file) % 12];
  }

  /** @param {number} node */
  textColour(node) {
    if (node === 0 || this.question?.against) return this.app.theme.names.text;
    return inkOn(this.colour(node));
  }

  /** What is under the mouse or the focus. */
  showSide() {
    const {tree, app} = this;
    const node = this.hovered >= 0 ? this.hovered : this.root;
    if (!tree) return;
    const path = [];
    for (let at = node; at > 0; at = tree.parent[at]) path.push({text: tree.text[at], isOwn: at === node});
    const total = tree.value[0] || 1;
    fill(this.side, el("h2", null, tree.text[node] === "all" ? "All stacks" : tree.text[node]),
      el("dl.facts", null, el("dt", null, "bytes"), el("dd", {"data-node-bytes": tree.value[node]},
        this.valueText(tree.value[node])),
        el("dt", null, "share"), el("dd", null, shareText(tree.value[node] / total)),
        this.question?.against && el("dt", null, "against"), this.question?.against &&
          el("dd", null, this.valueText(tree.base[node])),
        this.question?.against && el("dt", null, "difference"),
        this.question?.against && el("dd", null, this.valueText(tree.value[node] - tree.base[node]))),
      path.length > 0 && el("h3", null, "Called from, innermost first"), path.length > 0 && stackList(path),
      node === 0 && app.hasStacks && this.ownRows(),
      this.question?.against && el("p.dim", null, "Red has grown, blue has shrunk, grey is as before."),
      this.root > 0 && el("p", null, el("button", {type: "button", click: () => this.zoom(0)}, "Show all stacks")),
      this.question?.kind === "used" && el("p.dim", null, "A click in the overview chooses another instant."),
      app.hasStacks && el("p.dim", null, "A click on a frame zooms in. Backspace zooms out."));
  }

  /** Lines that allocate themselves, the largest first. */
  ownRows() {
    const {tree} = this;
    const own = Float64Array.from(tree.value);
    for (let node = 1; node < own.length; node++) own[tree.parent[node]] -= tree.value[node];
    const sums = new Map();
    for (let node = 1; node < own.length; node++)
      if (own[node] > 0) sums.set(tree.text[node], (sums.get(tree.text[node]) ?? 0) + own[node]);
    const rows = Array.from(sums).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, OWN_MOST);
    const line = (/** @type {[string, number]} */ [text, value]) => el("li", null,
      el("button", {type: "button", title: text, click: () => this.app.state.set({find: text})}, baseName(text)),
      el("span.share", null, shareText(value / (tree.value[0] || 1))), el("span.size", null, this.valueText(value)));
    return el("div", null, el("h3", null, "Largest lines"), el("ul.rows", {"data-list": "own"}, ...rows.map(line)));
  }

  /** @param {number} node */
  zoom(node) {
    this.root = node;
    this.scroll = 0;
    this.layout = new FlameLayout(this.tree, node);
    this.showSide();
    this.surface.redraw();
  }

  /** @param {number} px @param {number} py @returns {number} a node, or -1 */
  nodeAt(px, py) {
    const {layout} = this;
    if (!layout) return -1;
    const depth = Math.floor((py - 8 + this.scroll) / this.tall);
    const x = (px - 10) / (this.surface.width - 20);
    return layout.order.find((node) => layout.depth[node] === depth && x >= layout.x[node] && x < layout.x[node] +
      layout.w[node]) ?? -1;
  }

  listen() {
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointermove", (/** @type {any} */ event) =>
      this.hover(this.nodeAt(event.offsetX, event.offsetY)));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("click", (/** @type {any} */ event) => {
      const node = this.nodeAt(event.offsetX, event.offsetY);
      if (node >= 0) this.zoom(node);
    });
    canvas.addEventListener("wheel", (/** @type {any} */ event) => {
      const most = Math.max(0, ((this.layout?.deepest ?? 0) + 2) * this.tall - this.surface.height);
      this.scroll = Math.max(0, Math.min(most, this.scroll + event.deltaY));
      event.preventDefault();
      this.surface.redraw();
    }, {passive: false});
    canvas.addEventListener("keydown", (/** @type {any} */ event) => this.keyDown(event));
  }

  /** Arrows walk through the tree. @param {KeyboardEvent} event */
  keyDown(event) {
    const {tree, layout} = this;
    if (!tree || !layout) return;
    const node = this.hovered >= 0 ? this.hovered : this.root;
    const same = layout.order.filter((one) => layout.depth[one] === layout.depth[node]);
    const at = same.indexOf(node);
    const child = layout.order.find((one) => tree.parent[one] === node && one !== node);
    if (event.key === "ArrowDown") this.hover(child ?? node);
    else if (event.key === "ArrowUp") this.hover(layout.depth[node] > 0 ? tree.parent[node] : node);
    else if (event.key === "ArrowRight") this.hover(same[Math.min(same.length - 1, at + 1)]);
    else if (event.key === "ArrowLeft") this.hover(same[Math.max(0, at - 1)]);
    else if (event.key === "Enter") this.zoom(node);
    else if (event.key === "Backspace") this.zoom(Math.max(0, tree.parent[this.root]));
    else return;
    event.preventDefault();
  }

  /** @param {number} node */
  hover(node) {
    if (this.hovered === node) return;
    this.hovered = node;
    this.showSide();
    this.surface.redraw();
  }
}

/** @param {string} text */
function flameHash(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash ^ (hash >>> 15)) >>> 0;
}

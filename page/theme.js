// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Colours. Those of groups differ in lightness as well as in hue, so that colour-blind people can tell them apart.
// Groups with an order, such as sizes, have a ramp of rising contrast instead.

const DARK_GROUPS = ["#4c9be8", "#f2a541", "#3dbe9a", "#e36fa0", "#f4e27a", "#8a6fe8", "#8fdcf7", "#c8643c", "#a8d672",
  "#cbaaf5", "#2f8494", "#f2bfa8", "#78828f"];
const LIGHT_GROUPS = ["#2f7dd1", "#e08a1e", "#1f9d7c", "#c9487f", "#dcc03a", "#6a4fd0", "#62bde6", "#a64b26", "#86b84a",
  "#ac86e2", "#1f6472", "#e19a80", "#98a1ac"];

const DARK_RAMP = ["#7447a0", "#6459b5", "#4f6fc4", "#3c87c6", "#309dbd", "#2fb1a8", "#46c28c", "#6fd070", "#9fdb57",
  "#cee24c", "#f0e55e", "#fff6b3"];
const LIGHT_RAMP = ["#e3d545", "#b5d055", "#88c56a", "#5cb67f", "#3ba68f", "#2f949b", "#3281a3", "#3a6ca6", "#4157a0",
  "#453e93", "#432980", "#35115c"];

/** @param {string} colour "#rrggbb" @returns {[number, number, number]} */
export function colourParts(colour) {
  const number = parseInt(colour.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

export class Theme {
  constructor() {
    this.listeners = new Set();
    this.media = matchMedia("(prefers-color-scheme: dark)");
    /** @type {"" | "dark" | "light"} what the user chose; "" follows the system */
    this.chosen = "";
    this.media.addEventListener("change", () => this.apply());
    this.apply();
  }

  get isDark() {
    return this.chosen === "" ? this.media.matches : this.chosen === "dark";
  }

  /** @param {"" | "dark" | "light"} chosen */
  choose(chosen) {
    this.chosen = chosen;
    this.apply();
  }

  apply() {
    document.documentElement.dataset.theme = this.isDark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    const read = (/** @type {string} */ name) => style.getPropertyValue("--" + name).trim();
    this.groups = this.isDark ? [...DARK_GROUPS, ...DARK_RAMP] : [...LIGHT_GROUPS, ...LIGHT_RAMP];
    this.palette = Uint8Array.from(this.groups.flatMap(colourParts));
    this.names = {text: read("text"), dim: read("dim"), line: read("line"), faint: read("faint"), back: read("back"),
      card: read("card"), accent: read("accent"), bad: read("bad"), warn: read("warn"), hole: read("hole"),
      reserved: read("reserved"), good: read("good"), allocated: read("allocated"), requested: read("requested")};
    for (const listener of this.listeners) listener();
  }
}

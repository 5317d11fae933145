// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Colours. Those of groups differ in lightness as well as in hue, so that colour-blind people can tell them apart.

const DARK_GROUPS = ["#4c9be8", "#f2a541", "#3dbe9a", "#e36fa0", "#f4e27a", "#8a6fe8", "#8fdcf7", "#c8643c", "#a8d672",
  "#cbaaf5", "#2f8494", "#f2bfa8", "#78828f"];
const LIGHT_GROUPS = ["#2f7dd1", "#e08a1e", "#1f9d7c", "#c9487f", "#dcc03a", "#6a4fd0", "#62bde6", "#a64b26", "#86b84a",
  "#ac86e2", "#1f6472", "#e19a80", "#98a1ac"];

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
    this.groups = this.isDark ? DARK_GROUPS : LIGHT_GROUPS;
    this.palette = Uint8Array.from(this.groups.flatMap(colourParts));
    this.names = {text: read("text"), dim: read("dim"), line: read("line"), faint: read("faint"), back: read("back"),
      card: read("card"), accent: read("accent"), bad: read("bad"), warn: read("warn"), hole: read("hole"),
      reserved: read("reserved"), allocated: read("allocated"), requested: read("requested")};
    for (const listener of this.listeners) listener();
  }
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Makes elements. Text of a file is only ever set as text.

/**
 * @param {string} tag with classes: "div.card.wide"
 * @param {{[name: string]: any} | null} [options] attributes; functions are listeners
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any} the element
 */
export function el(tag, options, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length > 0) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(options ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  fill(made, ...children);
  return made;
}

/** Replaces what is in an element. @param {any} parent @param {...any} children */
export function fill(parent, ...children) {
  parent.textContent = "";
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return parent;
}

/**
 * A group of buttons of which one is pressed.
 * @param {string} label @param {[string, string, string?][]} choices value, text and explanation of each
 * @param {(value: string) => void} choose
 */
export function choiceBar(label, choices, choose) {
  const buttons = choices.map(([value, text, title]) =>
    el("button", {type: "button", "data-value": value, title, click: () => choose(value)}, text));
  const bar = el("div.choices", {role: "group", "aria-label": label}, ...buttons);
  /** @type {string | null} */
  let shown = null;
  return {
    element: bar,
    show(/** @type {string} */ value) {
      if (value === shown) return;
      shown = value;
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
    },
    allow(/** @type {string} */ value, /** @type {boolean} */ isAllowed, /** @type {string} */ why) {
      const button = buttons.find((one) => one.dataset.value === value);
      if (!button) return;
      button.disabled = !isAllowed;
      if (!isAllowed) button.title = why;
    },
  };
}

/** Copies a text, and says so on the button. @param {any} button @param {string} text */
export async function copyText(button, text) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", {"aria-hidden": "true", class: "offscreen"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = said), 1200);
}

/** A note in place of content. @param {string} title @param {...any} lines */
export function emptyNote(title, ...lines) {
  return el("div.empty", null, el("h3", null, title), ...lines.map((line) => el("p", null, line)));
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What ./dev lint demands of the page and of its tests. It imports nothing, because eslint is installed elsewhere. Run it
// in the root of the project.

/** Names that a browser, a worker or node defines. @param {string} names */
function globalsOf(names) {
  return Object.fromEntries(names.split(/\s+/).map((name) => [name, "readonly"]));
}

const BOTH = globalsOf(`Blob DecompressionStream Response TextDecoder TextEncoder URL URLSearchParams clearTimeout console
  performance setTimeout`);
const PAGE = globalsOf(`Element Event HTMLElement HTMLInputElement ImageData KeyboardEvent MutationObserver Node OffscreenCanvas
  ResizeObserver Worker addEventListener cancelAnimationFrame devicePixelRatio document fetch getComputedStyle getSelection history localStorage location matchMedia
  navigator requestAnimationFrame self window`);
const NODE = globalsOf("Buffer process");

/** Ways in which text could become markup or script. */
const MARKUP = ["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc", "createContextualFragment", "setHTMLUnsafe"];

const RULES = {
  "consistent-return": "error",
  "eqeqeq": "error",
  "no-cond-assign": "error",
  "no-const-assign": "error",
  "no-constant-condition": "error",
  "no-dupe-args": "error",
  "no-dupe-else-if": "error",
  "no-dupe-keys": "error",
  "no-duplicate-case": "error",
  "no-empty": "error",
  "no-eval": "error",
  "no-fallthrough": "error",
  "no-func-assign": "error",
  "no-implied-eval": "error",
  "no-loss-of-precision": "error",
  "no-new-func": "error",
  "no-redeclare": "error",
  "no-script-url": "error",
  "no-self-assign": "error",
  "no-self-compare": "error",
  "no-shadow-restricted-names": "error",
  "no-sparse-arrays": "error",
  "no-this-before-super": "error",
  "no-throw-literal": "error",
  "no-undef": "error",
  "no-unreachable": "error",
  "no-unsafe-finally": "error",
  "no-unsafe-negation": "error",
  "no-unused-expressions": ["error", {allowShortCircuit: true}],
  "no-unused-vars": ["error", {argsIgnorePattern: "^_"}],
  "no-use-before-define": ["error", {functions: false, classes: false, variables: false}],
  "no-var": "error",
  "no-restricted-globals": ["error", "event", "name", "status", "top", "parent"],
  "no-restricted-properties": ["error",
    ...MARKUP.map((property) => ({property, message: "Text of a file must stay text: make elements with el()."})),
    {object: "document", property: "write", message: "Make elements with el()."},
    {object: "document", property: "writeln", message: "Make elements with el()."}],
  "prefer-const": ["error", {destructuring: "all"}],
  "use-isnan": "error",
  "valid-typeof": "error",
};

export default [
  {linterOptions: {reportUnusedDisableDirectives: "error"}, rules: RULES},
  {files: ["page/*.js"], languageOptions: {ecmaVersion: 2022, sourceType: "module", globals: {...BOTH, ...PAGE}},
    rules: {"no-shadow": "error"}},
  {files: ["tests/page/*.mjs"], languageOptions: {ecmaVersion: 2022, sourceType: "module", globals: {...BOTH, ...NODE}}},
];

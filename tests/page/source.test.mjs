// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Rules of the sources: text of a file never becomes markup or script, and modules can be joined.
import assert from "node:assert/strict";
import {readFileSync, readdirSync} from "node:fs";
import {test} from "node:test";

const PAGE = new URL("../../page/", import.meta.url);
const names = readdirSync(PAGE).filter((name) => name.endsWith(".js"));
const sources = new Map(names.map((name) => [name.slice(0, -3), readFileSync(new URL(name, PAGE), "utf8")]));

const FORBIDDEN = [/innerHTML/, /outerHTML/, /insertAdjacentHTML/, /document\.write/, /\beval\(/, /new Function\b/,
  /createContextualFragment/, /DOMParser/, /srcdoc/, /setAttribute\("(on|style)/, /javascript:/, /https?:\/\/(?!www\.w3\.org)/];

test("no text becomes markup or script", () => {
  for (const [name, source] of sources)
    for (const pattern of FORBIDDEN) assert.ok(!pattern.test(source), `${name}.js has ${pattern}`);
});

test("every module is checked for types and can be joined", () => {
  for (const [name, source] of sources) {
    assert.match(source, /^\/\/ @ts-check$/m, name);
    for (const line of source.split("\n")) {
      if (line.startsWith("import")) assert.match(line, /^import \{[^}]*\} from "\.\/[a-z0-9_]+\.js";$/, name);
      if (line.startsWith("export")) assert.match(line, /^export (async function|function|class|const|let) /, name);
      assert.ok(line.length <= 120, `${name}.js: ${line}`);
    }
  }
});

test("names at the top of modules are unique in each list", () => {
  const lists = readFileSync(new URL("CMakeLists.txt", PAGE), "utf8").matchAll(/set\(TIDEMARK_PAGE_(\w+) ([^)]*)\)/g);
  let count = 0;
  for (const [, list, modules] of lists) {
    const owners = new Map();
    const listed = modules.trim().split(/\s+/).map((file) => file.replace(/\.js$/, ""));
    for (const name of listed) {
      const source = sources.get(name);
      assert.ok(source !== undefined, `${name}.js of the list ${list} is missing`);
      for (const [, , top] of source.matchAll(/^(?:export )?(async function|function|class|const|let) ([A-Za-z_$][\w$]*)/gm)) {
        assert.ok(!owners.has(top), `${top} is in ${owners.get(top)}.js and ${name}.js`);
        owners.set(top, name);
      }
      for (const [, from] of source.matchAll(/^import .* from "\.\/(\w+)\.js";$/gm))
        assert.ok(listed.indexOf(from) < listed.indexOf(name) && listed.includes(from), `${name}.js needs ${from}.js before it`);
      count++;
    }
  }
  assert.ok(count >= sources.size, "each module is in a list");
});

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts that come from outside: of a recording, and of the address.
import assert from "node:assert/strict";
import {test} from "node:test";
import {cutText, parseCut} from "../../page/units.js";
import {parseHash} from "../../page/state.js";

test("fields of the address that name nothing are left out", () => {
  assert.deepEqual(parseHash("#t=__proto__&x=constructor&by=nothing&m=toString&d=x"), {});
  assert.deepEqual(parseHash("#t=flame&x=step&by=pool&m=held&q=__proto__"),
    {tab: "flame", x: "step", by: "pool", measure: "held", find: "__proto__"});
});

test("long texts are cut, also inside of JSON", () => {
  const long = "ab".repeat(1 << 19);
  assert.equal(cutText("short"), "short");
  assert.equal(cutText(long), long.slice(0, 1000) + "…");
  assert.deepEqual(parseCut(JSON.stringify({a: [1, {b: long, c: null}], d: true})),
    {a: [1, {b: cutText(long), c: null}], d: true});
});

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts that come from outside: of a recording, and of the address.
import assert from "node:assert/strict";
import {test} from "node:test";
import {cutText, parseCut} from "../../page/units.js";
import {parseHash} from "../../page/state.js";
import {budgetRows, limitRow, limitText, tagFacts} from "../../page/budgets.js";

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

test("the limit of a tag is its own, or that of the nearest tag above it", () => {
  const row = {limit: null, limit_share: null, soft_limit: null, guarantee: 0, priority: 0, yields: false,
    has_budget: true, peak_reserved: 0, reserved: 0, parked: 0, parked_count: 0, sent_bytes: 0, fetched_bytes: 0, idle_bytes: 0,
    refused_count: 0};
  const MIB = 1 << 20;
  const facts = {report: {tags: [{...row, tag: "a", limit: 8 * MIB, limit_share: 0.5}, {...row, tag: "a/b"},
    {...row, tag: "a/b/c", limit: MIB, limit_share: 1}, {...row, tag: "d", limit: 0, limit_share: null},
    {...row, tag: "e", has_budget: false}]}};
  assert.deepEqual(budgetRows(facts).map((one) => one.tag), ["a", "a/b", "a/b/c", "d"]);
  assert.deepEqual(["a", "a/x", "a/b", "a/b/c/d", "ab", "(0, 1)", "e"].map((tag) => limitRow(facts, tag)?.tag ?? null),
    ["a", "a", "a", "a/b/c", null, null, null]);
  assert.equal(limitText(facts, "a/x"), "8.00 MiB for a, 50.0 % of it used at the peak");
  assert.equal(limitText(facts, "a"), "8.00 MiB, 50.0 % of it used at the peak");
  assert.equal(limitText(facts, "d"), "0 B");
  assert.equal(limitText(facts, "e") + limitText({}, "a"), "");
});

test("what gave way is told in words", () => {
  const row = {tag: "a", limit: null, limit_share: null, soft_limit: 0, guarantee: 512, priority: -3, yields: true,
    has_budget: true, peak_reserved: 1024, reserved: 512, parked: 1024, parked_count: 1, sent_bytes: 2048,
    fetched_bytes: 0, idle_bytes: 512, refused_count: 2};
  assert.deepEqual(tagFacts(row), [["limit", null], ["soft limit", "0 B"], ["guarantee", "512 B"],
    ["yields", "yes, priority -3"], ["peak", "1.00 KiB reserved"], ["at the end", "512 B reserved, 1.00 KiB parked"],
    ["gave way", "parked 1 time, 2.00 KiB copied away, 512 B of idle memory given back"], ["refused", "2 requests"]]);
  const old = Object.fromEntries(Object.keys(row).map((key) => [key, null]));
  assert.deepEqual(tagFacts({...old, tag: "a", has_budget: false, yields: false, reserved: 512, parked: 0})
    .filter((pair) => pair[1]), [["at the end", "512 B reserved"]]);
});

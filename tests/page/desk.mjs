// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The worker's desk with one recording, and a function that asks it.
import {deflateSync} from "node:zlib";
import {encodeRecording} from "./encoder.mjs";
import {Desk} from "../../page/worker.js";

/** `facts` are more facts, `curves` is that part, and `load` answers for a tool that serves the page. */
export async function deskOf(recording, {facts = {}, curves, load} = {}) {
  const encoded = encodeRecording(recording, facts);
  if (curves) {
    encoded.facts.parts.curves = "c";
    encoded.parts.set("c", curves);
  }
  const waiting = new Map();
  const desk = new Desk((message) => {
    if (message.progress !== undefined) return;
    const [resolve, reject] = waiting.get(message.id);
    if (message.error) reject(new Error(message.error));
    else resolve(message.answer);
  }, load);
  await desk.receive({facts: [{devices: [encoded.facts]}], details: load ? "tool/" : null});
  for (const [name, bytes] of encoded.parts) {
    const isPacked = name !== "s";
    const text = Buffer.from(isPacked ? deflateSync(bytes) : bytes).toString("base64");
    await desk.receive({part: name, codec: isPacked ? "deflate" : "none", text});
  }
  let id = 0;
  const ask = (what, more = {}) => new Promise((resolve, reject) => {
    waiting.set(++id, [resolve, reject]);
    void desk.receive({id, do: what, device: 0, ...more});
  });
  return {ask, facts: encoded.facts, desk};
}

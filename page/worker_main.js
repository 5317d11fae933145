// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The last file of the worker's source: connects it with the page.
import {Desk} from "./worker.js";

/** Reads from the tool that serves the page. @param {string} address */
async function loadBytes(address) {
  const answer = await fetch(address, {cache: "no-store", credentials: "omit"});
  if (!answer.ok) throw new Error("the tool answers " + answer.status);
  return new Uint8Array(await answer.arrayBuffer());
}

const desk = new Desk((message, transfer) => /** @type {any} */ (self).postMessage(message, transfer ?? []), loadBytes);
self.onmessage = (event) => void desk.receive(event.data);

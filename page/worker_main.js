// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The last file of the worker's source: connects it with the page.
import {Desk} from "./worker.js";

const desk = new Desk((message, transfer) => /** @type {any} */ (self).postMessage(message, transfer ?? []));
self.onmessage = (event) => void desk.receive(event.data);

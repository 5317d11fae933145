// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// The link to the worker: starts it, passes on the parts as they are read, and asks questions.

export class WorkerLink {
  /** @param {string} code of the worker @param {any} facts @param {(message: any) => void} onProgress */
  constructor(code, facts, onProgress) {
    const address = URL.createObjectURL(new Blob([code], {type: "text/javascript"}));
    this.worker = new Worker(address);
    this.onProgress = onProgress;
    /** @type {Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
    this.next = 0;
    this.worker.onmessage = (event) => this.receive(event.data);
    this.worker.onerror = (event) => console.error("the worker failed: " + event.message);
    // A copy of the page on a disk has nobody to ask for more.
    this.isServed = Boolean(facts.details) && location.protocol.startsWith("http");
    const details = this.isServed ? new URL(".", location.href).href : null;
    this.worker.postMessage({facts: facts.files, details});
  }

  /** @param {any} message */
  receive(message) {
    if (message.progress !== undefined) {
      this.onProgress(message);
      return;
    }
    const one = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.error !== undefined) one?.reject(new Error(message.error));
    else one?.resolve(message.answer);
  }

  /** @param {string} what @param {any} question @returns {Promise<any>} */
  ask(what, question) {
    const id = ++this.next;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, {resolve, reject});
      this.worker.postMessage({...question, id, do: what});
    });
  }

  /**
   * Passes on each part when it was read to its end: when something follows it, or the page is complete.
   * @param {string[]} names of all parts
   */
  watchParts(names) {
    const missing = new Set(names);
    const take = () => {
      const isComplete = document.readyState !== "loading";
      for (const part of Array.from(document.querySelectorAll("script[data-part]"))) {
        if (!isComplete && !part.nextElementSibling) continue;
        const {part: name, codec} = /** @type {any} */ (part).dataset;
        this.worker.postMessage({part: name, codec: codec ?? "none", text: part.textContent});
        missing.delete(name);
        part.remove();
      }
      if (!isComplete) return;
      observer.disconnect();
      this.worker.postMessage({isEnd: true, names: Array.from(missing)});
    };
    const observer = new MutationObserver(take);
    observer.observe(document.documentElement, {childList: true, subtree: true});
    document.addEventListener("DOMContentLoaded", take);
    take();
  }
}

/** Asks one question at a time: while one is under way, only the newest of the others waits. */
export class Latest {
  /**
   * @param {(question: any) => Promise<any>} ask @param {(answer: any, question: any) => void} use
   * @param {number} [pace] from one question to the next, in ms at least
   */
  constructor(ask, use, pace = 0) {
    this.ask = ask;
    this.use = use;
    this.pace = pace;
    this.asked = -1e9;
    this.isBusy = false;
    /** @type {any} */
    this.waiting = null;
  }

  /** @param {any} question */
  request(question) {
    this.waiting = question;
    if (!this.isBusy) void this.run();
  }

  async run() {
    this.isBusy = true;
    while (this.waiting) {
      const early = this.asked + this.pace - performance.now();
      if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
      this.asked = performance.now();
      const question = this.waiting;
      this.waiting = null;
      try {
        const answer = await this.ask(question);
        if (answer !== null && answer !== undefined) this.use(answer, question);
      } catch (error) {
        console.error(String(error));
      }
    }
    this.isBusy = false;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Decodes parts of the file: base64, zlib, and columns of varints. A damaged part throws an Error that says where.

const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** @param {string} text with blanks and newlines allowed @returns {Uint8Array} */
export function base64Bytes(text) {
  const native = /** @type {any} */ (Uint8Array).fromBase64;
  return native ? native.call(Uint8Array, text) : base64BytesByTable(text);
}

/** What base64Bytes does in browsers that have no function for it. @param {string} text */
export function base64BytesByTable(text) {
  const digits = new Uint8Array(256).fill(255);
  for (let i = 0; i < 64; i++) digits[BASE64.charCodeAt(i)] = i;
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4) + 3);
  let count = 0;
  let word = 0;
  let bits = 0;
  for (let i = 0; i < text.length; i++) {
    const digit = digits[text.charCodeAt(i) & 255];
    if (digit === 255) continue;
    word = (word << 6) | digit;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[count++] = (word >>> bits) & 255;
    }
  }
  return bytes.subarray(0, count);
}

/** @param {Uint8Array} bytes @param {string} codec "deflate" or "none" @returns {Promise<Uint8Array>} */
export async function unpackBytes(bytes, codec) {
  if (codec === "none") return bytes;
  const source = new Blob([/** @type {any} */ (bytes)]).stream();
  const plain = source.pipeThrough(new DecompressionStream(/** @type {any} */ (codec)));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

export class ColumnReader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  isAtEnd() {
    return this.at >= this.bytes.length;
  }

  /** One varint. Values above 2^32 take the slow way. */
  varint() {
    const bytes = this.bytes;
    let value = 0;
    let scale = 1;
    for (let length = 0; length < 10; length++) {
      if (this.at >= bytes.length) break;
      const byte = bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
    throw new Error("the part is damaged near byte " + this.at);
  }

  /** The number of values of the next column. Each takes a byte at least. */
  count() {
    const count = this.varint();
    if (count > this.bytes.length - this.at) throw new Error("the part ends early, at byte " + this.bytes.length);
    return count;
  }

  /** A column of numbers, as a Uint32Array if all are below 2^32. @returns {Uint32Array} */
  plain() {
    return this.narrow(false);
  }

  /** A column of rising numbers below 2^32, stored as differences. @returns {Uint32Array} */
  rising() {
    return this.narrow(true);
  }

  /** @param {boolean} isDelta @returns {any} a Float64Array if a number is too large for the usual array */
  narrow(isDelta) {
    const begin = this.at;
    const count = this.count();
    const values = new Uint32Array(count);
    const bytes = this.bytes;
    let at = this.at;
    let sum = 0;
    for (let i = 0; i < count; i++) {
      let byte = bytes[at++];
      let value = byte & 127;
      for (let shift = 7; byte >= 128; shift += 7) {
        byte = bytes[at++];
        if (shift >= 28 && (shift > 28 || byte > 15)) {
          this.at = begin;
          return this.wide({isDelta});
        }
        value |= (byte & 127) << shift;
      }
      sum = isDelta ? sum + (value >>> 0) : value;
      values[i] = sum;
    }
    this.at = at;
    if (at > bytes.length) throw new Error("the part ends early, at byte " + bytes.length);
    return values;
  }

  /** A column of numbers of any size. @param {{isDelta?: boolean, isSigned?: boolean}} how @returns {Float64Array} */
  wide({isDelta = false, isSigned = false}) {
    const count = this.count();
    const values = new Float64Array(count);
    let sum = 0;
    for (let i = 0; i < count; i++) {
      let value = this.varint();
      if (isSigned) value = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
      sum = isDelta ? sum + value : value;
      values[i] = sum;
    }
    return values;
  }
}

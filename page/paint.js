// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
// @ts-check
//
// Draws rectangles with WebGL2. The last answer of the worker stays on the card, in two textures from which each vertex
// fetches its rectangle; a frame only changes the transformation. One call draws all: software renderers are slow with
// instances. paint2d.js does the same without WebGL2.

/** Rectangles in a row of the textures. */
const TEXTURE_WIDE = 1024;

const VERTEX = `#version 300 es
precision highp float;
precision highp usampler2D;
uniform sampler2D boxes;
uniform usampler2D looks;
uniform int first;
uniform vec4 change;
uniform vec2 size;
uniform vec3 palette[32];
uniform vec3 hole;
flat out vec3 tint;
flat out uint kind;
flat out vec4 edge;
void main() {
  int rect = first + gl_VertexID / 6;
  ivec2 texel = ivec2(rect % 1024, rect / 1024);
  vec4 box = texelFetch(boxes, texel, 0);
  uvec2 look = texelFetch(looks, texel, 0).xy;
  vec2 low = box.xy * change.xy + change.zw;
  vec2 high = (box.xy + box.zw) * change.xy + change.zw;
  low = clamp(low, vec2(-0.5), vec2(1.5)) * size;
  high = clamp(high, vec2(-0.5), vec2(1.5)) * size;
  if (look.y == 0u || look.y == 3u) high = max(high, low + vec2(1.0));
  int number = gl_VertexID % 6;
  int which = number < 3 ? number : number - 2;
  vec2 corner = vec2(which & 1, which >> 1);
  vec2 at = mix(floor(low + 0.5), max(floor(high + 0.5), floor(low + 0.5) + vec2(1.0)), corner);
  edge = vec4(floor(low + 0.5), floor(high + 0.5));
  tint = look.y == 0u || look.y == 3u ? hole : palette[look.x];
  kind = look.y;
  vec2 place = at / size * 2.0 - 1.0;
  gl_Position = vec4(place.x, -place.y, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
flat in vec3 tint;
flat in uint kind;
flat in vec4 edge;
uniform vec2 size;
uniform vec3 back;
out vec4 colour;
void main() {
  vec2 at = vec2(gl_FragCoord.x, size.y - gl_FragCoord.y);
  vec3 mixed = tint;
  vec2 extent = edge.zw - edge.xy;
  bool isEdge = extent.x > 5.0 && extent.y > 4.0 && (at.x > edge.z - 1.0 || at.y > edge.w - 1.0);
  if (isEdge && kind != 0u) mixed = mix(tint, back, 0.45);
  if (kind == 2u && mod(at.x + at.y, 7.0) < 3.5) mixed = mix(tint, back, 0.72);
  if (kind == 3u && mod(at.x - at.y, 9.0) < 1.5) mixed = mix(tint, vec3(0.5), 0.5);
  colour = vec4(mixed, 1.0);
}`;

const GRID_VERTEX = `#version 300 es
uniform vec4 change;
out vec2 at;
void main() {
  at = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  vec2 place = (at * change.xy + change.zw) * 2.0 - 1.0;
  gl_Position = vec4(place.x, -place.y, 0.0, 1.0);
}`;

const GRID_FRAGMENT = `#version 300 es
precision highp float;
in vec2 at;
uniform sampler2D grid;
out vec4 colour;
void main() {
  vec4 seen = texture(grid, at);
  colour = vec4(seen.rgb * seen.a, seen.a);
}`;

/** @param {WebGL2RenderingContext} gl @param {string} vertex @param {string} fragment */
function linkProgram(gl, vertex, fragment) {
  const program = /** @type {WebGLProgram} */ (gl.createProgram());
  for (const [type, source] of /** @type {[number, string][]} */ ([[gl.VERTEX_SHADER, vertex],
    [gl.FRAGMENT_SHADER, fragment]])) {
    const shader = /** @type {WebGLShader} */ (gl.createShader(type));
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "no program");
  return program;
}

export class PainterGl {
  /** @param {HTMLCanvasElement} canvas throws if it has no WebGL2 */
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", {antialias: false, alpha: true, premultipliedAlpha: true});
    if (!gl) throw new Error("no WebGL2");
    this.gl = gl;
    this.canvas = canvas;
    this.count = 0;
    this.segments = 0;
    this.hasGrid = false;
    this.prepare();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.prepare();
      this.onRestore?.();
    });
    /** @type {(() => void) | null} */
    this.onRestore = null;
  }

  prepare() {
    const gl = this.gl;
    this.program = linkProgram(gl, VERTEX, FRAGMENT);
    this.gridProgram = linkProgram(gl, GRID_VERTEX, GRID_FRAGMENT);
    this.empty = gl.createVertexArray();
    this.boxes = gl.createTexture();
    this.looks = gl.createTexture();
    this.texture = gl.createTexture();
    this.count = 0;
    this.hasGrid = false;
  }

  /** @param {any} rects the answer of the worker */
  setRects(rects) {
    const gl = this.gl;
    this.count = rects.count;
    this.segments = rects.segments;
    const rows = Math.max(1, Math.ceil(rects.count / TEXTURE_WIDE));
    const boxes = new Float32Array(4 * TEXTURE_WIDE * rows);
    const looks = new Uint8Array(2 * TEXTURE_WIDE * rows);
    boxes.set(rects.box);
    looks.set(rects.look);
    gl.bindTexture(gl.TEXTURE_2D, this.boxes ?? null);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA32F, TEXTURE_WIDE, rows, 0, gl.RGBA, gl.FLOAT, boxes);
    this.setSampling();
    gl.bindTexture(gl.TEXTURE_2D, this.looks ?? null);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RG8UI, TEXTURE_WIDE, rows, 0, gl.RG_INTEGER, gl.UNSIGNED_BYTE, looks);
    this.setSampling();
  }

  /** Texels of the texture that is bound are taken as they are. */
  setSampling() {
    const gl = this.gl;
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T])
      gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
  }

  /** @param {any} grid the answer of the worker, or null */
  setGrid(grid) {
    const gl = this.gl;
    this.hasGrid = Boolean(grid);
    if (!grid) return;
    gl.bindTexture(gl.TEXTURE_2D, this.texture ?? null);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, grid.columns, grid.rows, 0, gl.RGBA, gl.UNSIGNED_BYTE,
      new Uint8Array(grid.pixels.buffer));
    this.setSampling();
  }

  /**
   * @param {number[]} rectChange scale x, scale y, shift x, shift y of the rectangles, from their window to this one
   * @param {number[]} gridChange the same for the grid @param {import("./theme.js").Theme} theme
   */
  draw(rectChange, gridChange, theme) {
    const gl = this.gl;
    const {width, height} = this.canvas;
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    this.useRects(rectChange, theme);
    this.drawRects(0, this.segments);
    if (this.hasGrid) this.drawGrid(gridChange);
    this.useRects(rectChange, theme);
    this.drawRects(this.segments, this.count - this.segments);
  }

  /** @param {number[]} change @param {import("./theme.js").Theme} theme */
  useRects(change, theme) {
    const gl = this.gl;
    const program = /** @type {WebGLProgram} */ (this.program);
    const at = (/** @type {string} */ name) => gl.getUniformLocation(program, name);
    gl.useProgram(program);
    gl.disable(gl.BLEND);
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.looks ?? null);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.boxes ?? null);
    gl.uniform1i(at("boxes"), 0);
    gl.uniform1i(at("looks"), 1);
    gl.uniform4fv(at("change"), change);
    gl.uniform2f(at("size"), this.canvas.width, this.canvas.height);
    const palette = new Float32Array(96);
    const bytes = theme.palette ?? new Uint8Array(39);
    for (let i = 0; i < Math.min(96, bytes.length); i++) palette[i] = bytes[i] / 255;
    gl.uniform3fv(at("palette"), palette);
    gl.uniform3fv(at("hole"), hexParts(theme.names?.hole));
    gl.uniform3fv(at("back"), hexParts(theme.names?.card));
  }

  /** @param {number} first @param {number} count */
  drawRects(first, count) {
    const gl = this.gl;
    if (count <= 0) return;
    gl.bindVertexArray(this.empty ?? null);
    gl.uniform1i(gl.getUniformLocation(/** @type {WebGLProgram} */ (this.program), "first"), first);
    gl.drawArrays(gl.TRIANGLES, 0, 6 * count);
  }

  /** @param {number[]} change */
  drawGrid(change) {
    const gl = this.gl;
    const program = /** @type {WebGLProgram} */ (this.gridProgram);
    gl.useProgram(program);
    gl.bindVertexArray(this.empty ?? null);
    gl.bindTexture(gl.TEXTURE_2D, this.texture ?? null);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.uniform4fv(gl.getUniformLocation(program, "change"), change);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }
}

/** @param {string | undefined} colour @returns {number[]} between 0 and 1 */
function hexParts(colour) {
  const number = parseInt((colour || "#808080").slice(1, 7), 16);
  return [((number >> 16) & 255) / 255, ((number >> 8) & 255) / 255, (number & 255) / 255];
}

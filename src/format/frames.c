// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Frames for display. Only the first FRAME_LOOKED bytes of a name are searched, so that many frames with one
// very long name cost little.
#include "format/frames.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/json_text.h"

#define FRAME_LOOKED 1024u
#define FRAME_FILE_TEXT 128u

// A frame is hidden when its name or its file has one of these in it.
static const char* const hidden_names[] = {
  "unwind::unwind",    "CapturedTraceback::gather",
  "gather_with_cpp",   "_start",
  "__libc_start_main", "PyEval_",
  "PyObject_",         "PyFunction_",
};
static const char* const hidden_files[] = {
  "core/boxing",    "/Register",          "/Redispatch",    "pythonrun.c",
  "ceval.c",        "Modules/main.c",     "Objects/call.c", "Objects/methodobject.c",
  "pycore_ceval.h", "cpython/abstract.h",
};

size_t tide__shown_copy(char* out, size_t room, const char* text, size_t bytes) {
  size_t used = 0;
  for (size_t at = 0; at < bytes;) {
    const size_t length = tide__utf8_length(text + at, bytes - at);
    const bool is_control = length == 1 && ((uint8_t)text[at] < 0x20 || text[at] == 0x7f);
    const char* const piece = length == 0 ? TIDE__SHOWN_REPAIR : is_control ? " " : text + at;
    const size_t piece_bytes = length == 0 ? strlen(TIDE__SHOWN_REPAIR) : length;
    if (piece_bytes > room - used) return used;
    memcpy(out + used, piece, piece_bytes);
    used += piece_bytes;
    at += length == 0 ? 1 : length;
  }
  return used;
}

static bool text_has(const char* text, size_t bytes, const char* part) {
  const size_t part_bytes = strlen(part);
  const char* const end = text + bytes;
  for (const char* at = text; (size_t)(end - at) >= part_bytes; at++) {
    at = memchr(at, part[0], (size_t)(end - at) - part_bytes + 1);
    if (at == NULL) return false;
    if (memcmp(at, part, part_bytes) == 0) return true;
  }
  return false;
}

static bool text_has_one_of(const tide_intern* names, uint32_t text, const char* const* parts, size_t count) {
  size_t bytes = 0;
  const char* const bytes_of_text = tide_intern_text(names, text, &bytes);
  for (size_t i = 0; bytes > 0 && i < count; i++) {
    if (text_has(bytes_of_text, tide__min(bytes, FRAME_LOOKED), parts[i])) return true;
  }
  return false;
}

tide_status tide__frames_init(tide__frames* frames, const tide_intern* names, const tide_heap* heap) {
  *frames = (tide__frames){ .heap = heap, .names = names };
  const size_t count = (size_t)tide_intern_counts_of(names).frames + 1;
  frames->is_hidden = tide__heap_alloc(heap, count, sizeof *frames->is_hidden);
  TIDE_REQUIRE(frames->is_hidden != NULL, TIDE_ERR_NO_MEMORY, "trace_write: no memory for %zu frames", count);
  frames->count = count;
  for (size_t i = 1; i < count; i++) {
    const tide_frame frame = tide_intern_frame(names, (uint32_t)i);
    frames->is_hidden[i] =
        text_has_one_of(names, frame.name, hidden_names, sizeof hidden_names / sizeof hidden_names[0]) ||
        text_has_one_of(names, frame.file, hidden_files, sizeof hidden_files / sizeof hidden_files[0]);
  }
  return TIDE_OK;
}

void tide__frames_fini(tide__frames* frames) {
  tide__heap_release(frames->heap, frames->is_hidden, frames->count, sizeof *frames->is_hidden);
  frames->is_hidden = NULL;
}

// The file's name without its folders.
static size_t frame_file_text(const tide__frames* frames, uint32_t file, char out[FRAME_FILE_TEXT]) {
  size_t bytes = 0;
  const char* const path = tide_intern_text(frames->names, file, &bytes);
  size_t from = bytes;
  while (from > 0 && path[from - 1] != '/') from--;
  return bytes > 0 ? tide__shown_copy(out, FRAME_FILE_TEXT, path + from, bytes - from) : 0;
}

size_t tide__frames_text(const tide__frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]) {
  if (!tide__frames_has(frames, frame)) {
    return (size_t)snprintf(out, TIDE__FRAME_TEXT, "0x%" PRIx64, frame);
  }
  const tide_frame parts = tide_intern_frame(frames->names, (uint32_t)frame);
  size_t used = frame_file_text(frames, parts.file, out);
  used += (size_t)snprintf(out + used, TIDE__FRAME_TEXT - used, ":%" PRId64 ":", parts.line);
  size_t bytes = 0;
  const char* const name = tide_intern_text(frames->names, parts.name, &bytes);
  return used + (bytes > 0 ? tide__shown_copy(out + used, TIDE__FRAME_TEXT - used, name, bytes) : 0);
}

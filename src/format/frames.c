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
#define FRAME_FILE_TEXT 256u
#define LENGTH_OF(list) (sizeof(list) / sizeof(list)[0])

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
// Folders where packages are installed.
static const char* const package_folders[] = { "/site-packages/", "/dist-packages/" };
// Folders of PyTorch where it is used from its sources, and of the code that it generates.
static const char* const torch_folders[] = { "/torch/nn/",    "/torch/_",           "/torch/autograd/",
                                             "/torch/optim/", "/torch/utils/",      "/torch/distributed/",
                                             "/torch/cuda/",  "/torch/fx/",         "/torch/jit/",
                                             "/torch/amp/",   "/torch/functional.", "torchinductor_" };
// Functions of PyTorch between a call of a module or of a decorated function and that function.
static const char* const wrapper_names[] = { "_wrapped_call_impl", "_call_impl", "decorate_context", "_fn" };
// How names of PyTorch, the interpreter and the runtime of C++ begin.
static const char* const foreign_names[] = {
  "c10::", "at::", "torch::", "THP", "pybind11::", "std::", "_Py"
};
static const char* const native_endings[] = { ".c",   ".cc", ".cpp", ".cxx", ".cu",
                                              ".cuh", ".h",  ".hh",  ".hpp", ".inl" };
// Files of Python that nobody wrote.
static const char* const made_files[] = { "<frozen", "<eval_with_key", "<attrs", "<decorator" };

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

// ---------------------------------------------------------------------------------------------------
// Parts of texts

typedef struct frame_text {
  const char* at;
  size_t bytes;
} frame_text;

static frame_text text_of(const tide_intern* names, uint32_t text) {
  frame_text t = { "", 0 };
  const char* const at = tide_intern_text(names, text, &t.bytes);
  if (at != NULL) t.at = at;
  return t;
}

static frame_text text_after(frame_text text, size_t bytes) {
  return (frame_text){ text.at + bytes, text.bytes - bytes };
}

// The offset of a part in the first FRAME_LOOKED bytes of a text, or SIZE_MAX.
static size_t text_find(frame_text text, const char* part) {
  const size_t part_bytes = strlen(part);
  const char* const end = text.at + tide__min(text.bytes, FRAME_LOOKED);
  for (const char* at = text.at; (size_t)(end - at) >= part_bytes; at++) {
    at = memchr(at, part[0], (size_t)(end - at) - part_bytes + 1);
    if (at == NULL) return SIZE_MAX;
    if (memcmp(at, part, part_bytes) == 0) return (size_t)(at - text.at);
  }
  return SIZE_MAX;
}

static bool text_has_one_of(frame_text text, const char* const* parts, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (text_find(text, parts[i]) != SIZE_MAX) return true;
  }
  return false;
}

static bool text_begins(frame_text text, const char* part) {
  const size_t bytes = strlen(part);
  return text.bytes >= bytes && memcmp(text.at, part, bytes) == 0;
}

static bool text_begins_with_one_of(frame_text text, const char* const* parts, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (text_begins(text, parts[i])) return true;
  }
  return false;
}

static bool text_ends(frame_text text, const char* part) {
  const size_t bytes = strlen(part);
  return text.bytes >= bytes && memcmp(text.at + text.bytes - bytes, part, bytes) == 0;
}

// The bytes up to and including the last slash.
static size_t text_folder(frame_text text) {
  size_t bytes = text.bytes;
  while (bytes > 0 && text.at[bytes - 1] != '/') bytes--;
  return bytes;
}

// ---------------------------------------------------------------------------------------------------
// Files

static bool file_is_known(frame_text file) { return file.bytes > 0 && !text_begins(file, "??"); }

// The bytes before the name inside the folder of packages; 0 if it is not in one.
static size_t file_package(frame_text file) {
  for (size_t i = 0; i < LENGTH_OF(package_folders); i++) {
    const size_t at = text_find(file, package_folders[i]);
    if (at != SIZE_MAX) return at + strlen(package_folders[i]);
  }
  return 0;
}

// The bytes before the name inside the standard library, as in /usr/lib/python3.12/threading.py; 0 if it is
// not there.
static size_t file_standard(frame_text file) {
  const size_t at = text_find(file, "/python3.");
  if (at == SIZE_MAX) return 0;
  const frame_text before = { file.at, at };
  if (!text_ends(before, "/lib") && !text_ends(before, "/lib64")) return 0;
  const char* const slash = memchr(file.at + at + 1, '/', file.bytes - at - 1);
  return slash != NULL ? (size_t)(slash - file.at) + 1 : 0;
}

// An installed script, as in /usr/bin/torchrun.
static bool file_is_launcher(frame_text file) {
  const size_t folder = text_folder(file);
  const bool is_in_bin = folder >= 5 && memcmp(file.at + folder - 5, "/bin/", 5) == 0;
  return is_in_bin && memchr(file.at + folder, '.', file.bytes - folder) == NULL;
}

static bool file_is_native(frame_text file) {
  for (size_t i = 0; i < LENGTH_OF(native_endings); i++) {
    if (text_ends(file, native_endings[i])) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Kinds

static bool name_is_whole(frame_text name) {
  return text_find(name, "::") != SIZE_MAX || text_find(name, "(") != SIZE_MAX;
}

// The function of a name of C++, without the type that it returns, its arguments and those of templates.
static frame_text name_head(frame_text name) {
  size_t end = 0;
  size_t begin = 0;
  for (; end < tide__min(name.bytes, FRAME_LOOKED) && name.at[end] != '(' && name.at[end] != '<'; end++) {
    if (name.at[end] == ' ') begin = end + 1;
  }
  return (frame_text){ name.at + begin, end - begin };
}

static tide_frame_kind native_kind(frame_text name, frame_text file) {
  const bool is_foreign = !file_is_known(file) || file_package(file) > 0 || text_begins(file, "/usr/") ||
                          text_begins_with_one_of(name_head(name), foreign_names, LENGTH_OF(foreign_names));
  return is_foreign ? TIDE_FRAME_KIND_NATIVE : TIDE_FRAME_KIND_OWN_NATIVE;
}

static tide_frame_kind torch_kind(frame_text name) {
  for (size_t i = 0; i < LENGTH_OF(wrapper_names); i++) {
    if (name.bytes == strlen(wrapper_names[i]) && text_begins(name, wrapper_names[i]))
      return TIDE_FRAME_KIND_WRAPPER;
  }
  return TIDE_FRAME_KIND_TORCH;
}

static tide_frame_kind python_kind(frame_text name, frame_text file) {
  const size_t package = file_package(file);
  const bool is_torch = package > 0 ? text_begins(text_after(file, package), "torch/")
                                    : text_has_one_of(file, torch_folders, LENGTH_OF(torch_folders));
  if (is_torch) return torch_kind(name);
  if (package > 0) return TIDE_FRAME_KIND_PACKAGE;
  if (text_begins_with_one_of(file, made_files, LENGTH_OF(made_files)) || file_is_launcher(file) ||
      file_standard(file) > 0)
    return TIDE_FRAME_KIND_STANDARD;
  return TIDE_FRAME_KIND_OWN;
}

static tide_frame_kind frame_kind(const tide_intern* names, const tide_frame* frame) {
  const frame_text name = text_of(names, frame->name);
  const frame_text file = text_of(names, frame->file);
  if (text_has_one_of(name, hidden_names, LENGTH_OF(hidden_names)) ||
      text_has_one_of(file, hidden_files, LENGTH_OF(hidden_files)))
    return TIDE_FRAME_KIND_HIDDEN;
  const bool is_native = !file_is_known(file) || file_is_native(file) || name_is_whole(name);
  return is_native ? native_kind(name, file) : python_kind(name, file);
}

// Shortens the folder of the program's own files so that it contains one more.
static void frames_add_own(tide_frames* frames, uint32_t number) {
  const frame_text file = text_of(frames->names, number);
  if (text_begins(file, "<")) return;
  if (frames->root_file == 0) {
    frames->root_file = number;
    frames->root_bytes = text_folder(file);
  }
  const char* const root = text_of(frames->names, frames->root_file).at;
  size_t same = 0;
  while (same < frames->root_bytes && same < file.bytes && root[same] == file.at[same]) same++;
  frames->root_bytes = text_folder((frame_text){ root, same });
}

tide_status tide__frames_init(tide_frames* frames, const tide_intern* names, const tide_heap* heap) {
  *frames = (tide_frames){ .heap = heap, .names = names };
  const size_t count = (size_t)tide_intern_counts_of(names).frames + 1;
  frames->kinds = tide__heap_alloc(heap, count, sizeof *frames->kinds);
  TIDE_REQUIRE(frames->kinds != NULL, TIDE_ERR_NO_MEMORY, "frames: no memory for %zu frames", count);
  frames->count = count;
  for (size_t i = 1; i < count; i++) {
    const tide_frame frame = tide_intern_frame(names, (uint32_t)i);
    frames->kinds[i] = (uint8_t)frame_kind(names, &frame);
    if (frames->kinds[i] == TIDE_FRAME_KIND_OWN) frames_add_own(frames, frame.file);
  }
  return TIDE_OK;
}

void tide__frames_fini(tide_frames* frames) {
  tide__heap_release(frames->heap, frames->kinds, frames->count, sizeof *frames->kinds);
  frames->kinds = NULL;
}

tide_status tide_frames_new(const tide_trace* trace, const tide_heap* heap, tide_frames** out) {
  TIDE_REQUIRE(trace != NULL && out != NULL, TIDE_ERR_ARGUMENT, "frames_new: NULL");
  *out = NULL;
  if (heap == NULL) heap = &tide__system_heap;
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "frames_new: the heap lacks a function");
  tide_frames* const frames = tide__heap_alloc(heap, 1, sizeof *frames);
  TIDE_REQUIRE(frames != NULL, TIDE_ERR_NO_MEMORY, "frames_new: no memory");
  const tide_status status = tide__frames_init(frames, tide_trace_names(trace), heap);
  if (status == TIDE_OK) *out = frames;
  else tide__heap_release(heap, frames, 1, sizeof *frames);
  return status;
}

void tide_frames_free(tide_frames* frames) {
  if (frames == NULL) return;
  tide__frames_fini(frames);
  tide__heap_release(frames->heap, frames, 1, sizeof *frames);
}

tide_frame_kind tide_frames_kind(const tide_frames* frames, uint64_t frame) {
  return tide__frames_kind(frames, frame);
}

// ---------------------------------------------------------------------------------------------------
// Sites

// An operator of PyTorch, as C++ calls it.
static bool frames_is_operator(const tide_frames* frames, uint64_t frame) {
  if (!tide__frames_has(frames, frame)) return false;
  const tide_frame parts = tide_intern_frame(frames->names, (uint32_t)frame);
  return text_begins(name_head(text_of(frames->names, parts.name)), "at::");
}

// The innermost frame of the best kind in [0, count); of PyTorch's own, the outermost one.
static size_t site_best(const tide_frames* frames, const uint64_t* stack, size_t count) {
  size_t best = count;
  for (size_t i = 0; i < count; i++) {
    const tide_frame_kind kind = tide__frames_kind(frames, stack[i]);
    const tide_frame_kind before = best < count ? tide__frames_kind(frames, stack[best]) : 0;
    const bool is_torch = kind == TIDE_FRAME_KIND_TORCH ||
                          (kind == TIDE_FRAME_KIND_NATIVE && frames_is_operator(frames, stack[i]));
    if (best == count || kind > before || (kind == before && is_torch)) best = i;
  }
  return best;
}

tide_frames_site tide_frames_find_site(const tide_frames* frames, const uint64_t* stack, size_t count) {
  const tide_frames_site site = { .own = site_best(frames, stack, count), .called = count };
  const size_t inside = site.own < count ? site_best(frames, stack, site.own) : 0;
  if (site.own == count || inside == site.own || !tide__frames_is_shown(frames, stack[inside])) return site;
  return (tide_frames_site){ site.own, inside };
}

// ---------------------------------------------------------------------------------------------------
// Texts

const char* tide_frames_path(const tide_frames* frames, uint32_t file, size_t* out_bytes) {
  const frame_text whole = text_of(frames->names, file);
  size_t before = file_package(whole);
  const size_t root = frames->root_bytes > 1 ? frames->root_bytes : 0;
  if (before == 0 && file_is_native(whole)) before = text_folder(whole);
  if (before == 0) before = file_standard(whole);
  if (before == 0 && whole.bytes > root &&
      memcmp(whole.at, text_of(frames->names, frames->root_file).at, root) == 0)
    before = root;
  const frame_text path = file_is_known(whole) ? text_after(whole, before) : (frame_text){ "", 0 };
  if (out_bytes != NULL) *out_bytes = path.bytes;
  return path.at;
}

// The file of a frame and a colon, if the file is known. A long one loses its first folders.
static size_t frame_file_text(const tide_frames* frames, uint32_t file, char* out) {
  size_t bytes = 0;
  const char* const path = tide_frames_path(frames, file, &bytes);
  if (bytes == 0) return 0;
  size_t from = bytes > FRAME_FILE_TEXT - 1 ? bytes - (FRAME_FILE_TEXT - 1) : 0;
  while (from > 0 && from < bytes && ((uint8_t)path[from] & 0xc0) == 0x80) from++;
  const size_t used = tide__shown_copy(out, FRAME_FILE_TEXT - 1, path + from, bytes - from);
  out[used] = ':';
  return used + 1;
}

static size_t frame_name_text(const tide_frames* frames, uint32_t name, char* out, size_t room) {
  const frame_text text = text_of(frames->names, name);
  return tide__shown_copy(out, room, text.at, text.bytes);
}

size_t tide__frames_text(const tide_frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]) {
  if (!tide__frames_has(frames, frame)) {
    return (size_t)snprintf(out, TIDE__FRAME_TEXT, "0x%" PRIx64, frame);
  }
  const tide_frame parts = tide_intern_frame(frames->names, (uint32_t)frame);
  size_t used = frame_file_text(frames, parts.file, out);
  if (used > 0) used += (size_t)snprintf(out + used, TIDE__FRAME_TEXT - used, "%" PRId64 ":", parts.line);
  return used + frame_name_text(frames, parts.name, out + used, TIDE__FRAME_TEXT - used);
}

bool tide__frames_is_qualified(const tide_frames* frames, uint64_t frame) {
  const tide_frame parts = tide_intern_frame(frames->names, (uint32_t)frame);
  return !file_is_known(text_of(frames->names, parts.file)) ||
         name_is_whole(text_of(frames->names, parts.name));
}

size_t tide__frames_function(const tide_frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]) {
  const tide_frame parts = tide_intern_frame(frames->names, (uint32_t)frame);
  const size_t used = frame_file_text(frames, parts.file, out);
  return used + frame_name_text(frames, parts.name, out + used, TIDE__FRAME_TEXT - used);
}

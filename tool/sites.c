// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Frames of the interpreter and of PyTorch's own package say nothing about a program: every convolution is
// requested in the same line there. Each stack is examined once.
#include "sites.h"

#include <stdlib.h>
#include <string.h>

#include "tool.h"

// Frames that PyTorch's viewer, MemoryViz, hides.
static const char* const hidden_functions[] = {
  "unwind::unwind",    "CapturedTraceback::gather",
  "gather_with_cpp",   "_start",
  "__libc_start_main", "PyEval_",
  "PyObject_",         "PyFunction_",
};
static const char* const hidden_files[] = {
  "core/boxing",
  "/Register",
  "/Redispatch",
  "pythonrun.c",
  "Modules/main.c",
  "Objects/call.c",
  "Objects/methodobject.c",
  "pycore_ceval.h",
  "ceval.c",
  "cpython/abstract.h",
};
// PyTorch's own functions in C++.
static const char* const native_parts[] = { "c10::", "at::", "torch::", "THPVariable" };
// Package folders, which are removed from file names.
static const char* const package_folders[] = { "/site-packages/", "/dist-packages/" };

static bool text_has_any(const char* text, const char* const* parts, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strstr(text, parts[i]) != NULL) return true;
  }
  return false;
}

// The part after the package folder, or NULL.
static const char* file_in_package(const char* file) {
  for (size_t i = 0; i < sizeof package_folders / sizeof package_folders[0]; i++) {
    const char* const at = strstr(file, package_folders[i]);
    if (at != NULL) return at + strlen(package_folders[i]);
  }
  return NULL;
}

static const char* name_text(const tide_intern* names, uint32_t id) {
  const char* const text = tide_intern_text(names, id, NULL);
  return text != NULL ? text : "";
}

// How informative a frame is.
enum { FRAME_HIDDEN, FRAME_LIBRARY, FRAME_NATIVE, FRAME_TORCH, FRAME_PROGRAM };

static int frame_worth(const tide_intern* names, const tide_frame* frame) {
  const char* const function = name_text(names, frame->name);
  const char* const file = name_text(names, frame->file);
  if (text_has_any(function, hidden_functions, sizeof hidden_functions / sizeof hidden_functions[0]) ||
      text_has_any(file, hidden_files, sizeof hidden_files / sizeof hidden_files[0]))
    return FRAME_HIDDEN;
  const size_t length = strlen(file);
  const bool is_python = length >= 3 && strcmp(file + length - 3, ".py") == 0;
  const char* const inside = file_in_package(file);
  if (is_python) return inside != NULL && strncmp(inside, "torch/", 6) == 0 ? FRAME_TORCH : FRAME_PROGRAM;
  return text_has_any(function, native_parts, sizeof native_parts / sizeof native_parts[0]) ? FRAME_LIBRARY
                                                                                            : FRAME_NATIVE;
}

// The innermost of the most informative frames wins.
static tool_site stack_site(const tide_intern* names, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(names, stack, &count);
  tool_site best = { 0 };
  int best_worth = -1;
  for (size_t i = 0; i < count && best_worth < FRAME_PROGRAM; i++) {
    const tide_frame frame = tide_intern_frame(names, (uint32_t)frames[i]);
    const int worth = frame_worth(names, &frame);
    if (worth <= best_worth) continue;
    best_worth = worth;
    best = (tool_site){ frame.file, frame.name, frame.line };
  }
  return best;
}

void tool_sites_init(tool_sites* sites, const tide_trace* trace) {
  *sites = (tool_sites){ .names = tide_trace_names(trace) };
  sites->count = tide_intern_counts_of(sites->names).stacks + 1;
  sites->of_stack = tool_alloc(sites->count, sizeof *sites->of_stack);
  sites->is_known = tool_alloc(sites->count, sizeof *sites->is_known);
}

void tool_sites_fini(tool_sites* sites) {
  free(sites->of_stack);
  free(sites->is_known);
}

tool_site tool_sites_find(tool_sites* sites, uint32_t stack) {
  if (stack == 0 || stack >= sites->count) return (tool_site){ 0 };
  if (!sites->is_known[stack]) {
    sites->of_stack[stack] = stack_site(sites->names, stack);
    sites->is_known[stack] = true;
  }
  return sites->of_stack[stack];
}

bool tool_site_is_known(tool_site site) { return site.file != 0 || site.function != 0; }

const char* tool_site_text(const tool_sites* sites, tool_site site, char out[TOOL_SITE_TEXT]) {
  const char* const file = name_text(sites->names, site.file);
  const char* const inside = file_in_package(file);
  const char* const function = name_text(sites->names, site.function);
  if (!tool_site_is_known(site)) (void)snprintf(out, TOOL_SITE_TEXT, "(no stack)");
  else if (*file == '\0' || strcmp(file, "??") == 0) (void)snprintf(out, TOOL_SITE_TEXT, "%s", function);
  else
    (void)snprintf(out, TOOL_SITE_TEXT, "%s:%lld %s", inside != NULL ? inside : file, (long long)site.line,
                   function);
  return out;
}

// ---------------------------------------------------------------------------------------------------
// Stacks of two traces

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

// FNV-1a.
static uint64_t hash_add(uint64_t hash, const void* data, size_t bytes) {
  const unsigned char* const at = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static uint64_t hash_add_text(uint64_t hash, const tide_intern* names, uint32_t id) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(names, id, &bytes);
  hash = hash_add(hash, &bytes, sizeof bytes);
  return text != NULL ? hash_add(hash, text, bytes) : hash;
}

uint64_t tool_stack_hash(const tool_sites* sites, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(sites->names, stack, &count);
  if (count == 0) return 0;
  uint64_t hash = HASH_BEGIN;
  for (size_t i = 0; i < count; i++) {
    const tide_frame frame = tide_intern_frame(sites->names, (uint32_t)frames[i]);
    hash = hash_add_text(hash, sites->names, frame.name);
    hash = hash_add_text(hash, sites->names, frame.file);
    hash = hash_add(hash, &frame.line, sizeof frame.line);
  }
  return hash != 0 ? hash : 1;
}

// Hashes the text, because packages may be installed elsewhere in the other run.
uint64_t tool_site_hash(const tool_sites* sites, tool_site site) {
  char text[TOOL_SITE_TEXT];
  if (!tool_site_is_known(site)) return 0;
  (void)tool_site_text(sites, site, text);
  const uint64_t hash = hash_add(HASH_BEGIN, text, strlen(text));
  return hash != 0 ? hash : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch writes its settings into a snapshot twice: as the text of the environment variable, and one by one
// as they were at the end. The text is read first, for settings that the list lacks; then the list. Values
// out of range are ignored. At the end, the options are printed and parsed again as a check.
#include "replay/recorded.h"

#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"

#define RECORDED_TEXT 2048u
#define RECORDED_MIB ((uint64_t)1 << 20)

typedef struct recorded {
  const tide_intern* names;  // borrowed during the call
  uint32_t settings;
} recorded;

static tide_value recorded_find(const recorded* r, const char* key) {
  return tide_intern_value(r->names, tide_intern_value_find(r->names, r->settings, key));
}

static void read_bool(const recorded* r, const char* key, bool* out) {
  const tide_value value = recorded_find(r, key);
  if (value.kind == TIDE_VALUE_BOOL) *out = value.integer != 0;
}

// A number of bytes; a negative one is no limit.
static void read_max_split(const recorded* r, tide_device_options* out) {
  const tide_value value = recorded_find(r, "max_split_size");
  if (value.kind == TIDE_VALUE_INT && value.integer < 0) out->max_split_bytes = TIDE_NO_LIMIT;
  if (value.kind != TIDE_VALUE_INT || value.integer < 0) return;
  const uint64_t bytes = (uint64_t)value.integer;
  if (bytes >= out->large_segment_bytes && bytes % RECORDED_MIB == 0) out->max_split_bytes = bytes;
}

static void read_threshold(const recorded* r, tide_device_options* out) {
  const tide_value value = recorded_find(r, "garbage_collection_threshold");
  const double share = value.kind == TIDE_VALUE_FLOAT ? value.number : (double)value.integer;
  const bool is_number = value.kind == TIDE_VALUE_FLOAT || value.kind == TIDE_VALUE_INT;
  if (is_number && share >= 0 && share < 1) out->collect_threshold = share;
}

// A dict with a key for each slot, "1" to "32768".
static void read_roundup(const recorded* r, tide_device_options* out) {
  const uint32_t dict = tide_intern_value_find(r->names, r->settings, "roundup_power2_divisions");
  for (uint32_t slot = 0; slot < TIDE_ROUNDUP_SLOTS; slot++) {
    char key[16];
    (void)snprintf(key, sizeof key, "%u", 1u << slot);
    const tide_value value = tide_intern_value(r->names, tide_intern_value_find(r->names, dict, key));
    const bool is_sane = value.kind == TIDE_VALUE_INT && value.integer >= 0 && value.integer <= INT32_MAX &&
                         (value.integer == 0 || tide__is_power_of_two((uint64_t)value.integer));
    if (is_sane) out->roundup_divisions[slot] = (uint32_t)value.integer;
  }
}

// The text of the environment variable; ignored if it is not valid.
static void read_text(const recorded* r, tide_device_options* out) {
  const tide_value value = recorded_find(r, "PYTORCH_CUDA_ALLOC_CONF");
  size_t bytes = 0;
  if (value.kind != TIDE_VALUE_TEXT || value.text == 0) return;
  const char* const text = tide_intern_text(r->names, value.text, &bytes);
  if (strlen(text) == bytes) tide__ignore(tide_device_options_parse(text, out));
}

tide_device_options tide__recorded_options(const tide_trace* trace) {
  const tide_error before = *tide_last_error();
  const recorded r = { tide_trace_names(trace), tide_trace_get_about(trace).settings };
  const tide_device_options defaults = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_options options = defaults;
  read_text(&r, &options);
  read_max_split(&r, &options);
  read_threshold(&r, &options);
  read_roundup(&r, &options);
  read_bool(&r, "expandable_segments", &options.expandable_segments);
  read_bool(&r, "graph_capture_record_stream_reuse", &options.is_capture_reuse);
  read_bool(&r, "release_lock_on_cudamalloc", &options.releases_lock);
  char text[RECORDED_TEXT];
  tide_device_options checked = defaults;
  const bool is_whole = tide_device_options_print(&options, text, sizeof text) < sizeof text;
  if (!is_whole || tide_device_options_parse(text, &checked) != TIDE_OK) checked = defaults;
  tide__error_restore(&before);
  return checked;
}

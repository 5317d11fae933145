// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The verdict of tidemark diff. Reserved memory at its peak is live memory at its peak plus waste, so a
// difference in it has two parts. Settings and requests are compared to tell where these come from:
// O(entries).
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "report.h"

#define SETTING_TEXT 512
#define SETTINGS_NAMED 2  // in the verdict

// ---------------------------------------------------------------------------------------------------
// Requests

// The next request from an entry on, or `count`.
static size_t request_next(const tide_trace_entry* entries, size_t at, size_t count) {
  while (at < count && entries[at].action != TIDE_ACTION_ALLOC && entries[at].action != TIDE_ACTION_OOM) at++;
  return at;
}

tool_diff_requests tool_diff_compare_requests(const tool_diff_side* a, const tool_diff_side* b) {
  size_t a_entries = 0;
  size_t b_entries = 0;
  const tide_trace_entry* const left = tide_trace_entries(a->trace, a->device, &a_entries);
  const tide_trace_entry* const right = tide_trace_entries(b->trace, b->device, &b_entries);
  tool_diff_requests found = { .same = 0 };
  found.a_count = a->actions[TIDE_ACTION_ALLOC] + a->actions[TIDE_ACTION_OOM];
  found.b_count = b->actions[TIDE_ACTION_ALLOC] + b->actions[TIDE_ACTION_OOM];
  size_t i = request_next(left, 0, a_entries);
  size_t k = request_next(right, 0, b_entries);
  while (i < a_entries && k < b_entries && left[i].bytes == right[k].bytes) {
    found.same++;
    i = request_next(left, i + 1, a_entries);
    k = request_next(right, k + 1, b_entries);
  }
  return found;
}

static bool requests_are_same(const tool_diff_requests* r) {
  return r->same == r->a_count && r->same == r->b_count;
}

bool tool_diff_has_same_requests(const tool_diff_side* a, const tool_diff_side* b) {
  const tool_diff_requests found = tool_diff_compare_requests(a, b);
  return a->entry_count == 0 || b->entry_count == 0 || requests_are_same(&found);
}

// ---------------------------------------------------------------------------------------------------
// Settings

static tide_value side_settings(const tool_diff_side* side) {
  return tide_intern_value(tide_trace_names(side->trace), tide_trace_get_about(side->trace).settings);
}

static bool side_has_settings(const tool_diff_side* side) {
  return side_settings(side).kind == TIDE_VALUE_DICT;
}

// A dict of numbers as it is shown: "all 8" or [256:1,512:2].
static void dict_text(const tide_intern* names, const tide_value* dict, char* out, size_t room) {
  size_t length = (size_t)snprintf(out, room, "[");
  bool is_equal = true;
  int64_t last = 0;
  for (size_t i = 0; i < dict->count && length + 2 < room; i++) {
    const int64_t number = tide_intern_value(names, (uint32_t)dict->items[i]).integer;
    const char* const key = tide_intern_text(names, (uint32_t)(dict->items[i] >> 32), NULL);
    const int added = snprintf(out + length, room - length, "%s%s:%lld", i == 0 ? "" : ",",
                               key != NULL ? key : "", (long long)number);
    length += added > 0 ? (size_t)added : 0;
    is_equal = is_equal && (i == 0 || number == last);
    last = number;
  }
  if (is_equal && dict->count > 1) (void)snprintf(out, room, "all %lld", (long long)last);
  else if (length + 1 < room) (void)snprintf(out + length, room - length, "]");
}

// A value as it is shown.
static void value_text(const tide_intern* names, const tide_value* value, char* out, size_t room) {
  switch (value->kind) {
    case TIDE_VALUE_BOOL: (void)snprintf(out, room, "%s", value->integer != 0 ? "True" : "False"); return;
    case TIDE_VALUE_INT: (void)snprintf(out, room, "%lld", (long long)value->integer); return;
    case TIDE_VALUE_UINT: (void)snprintf(out, room, "%llu", (unsigned long long)value->integer); return;
    case TIDE_VALUE_FLOAT: (void)snprintf(out, room, "%g", value->number); return;
    case TIDE_VALUE_TEXT: {
      const char* const text = tide_intern_text(names, value->text, NULL);
      (void)snprintf(out, room, "%s", text != NULL ? text : "");
      return;
    }
    case TIDE_VALUE_DICT: dict_text(names, value, out, room); return;
    default: (void)snprintf(out, room, "None"); return;
  }
}

// A setting that both files have.
typedef struct setting_pair {
  const char* name;
  char a[SETTING_TEXT];
  char b[SETTING_TEXT];
} setting_pair;

// Finds the next setting that differs, from `*at` in the list of A on. Returns false at the end.
static bool setting_next(const tool_diff_side* a, const tool_diff_side* b, size_t* at, setting_pair* out) {
  const tide_intern* const left = tide_trace_names(a->trace);
  const tide_intern* const right = tide_trace_names(b->trace);
  const tide_value settings = side_settings(a);
  if (settings.kind != TIDE_VALUE_DICT || !side_has_settings(b)) return false;
  while (*at < settings.count) {
    const uint64_t item = settings.items[(*at)++];
    out->name = tide_intern_text(left, (uint32_t)(item >> 32), NULL);
    if (out->name == NULL) continue;
    const uint32_t found = tide_intern_value_find(right, tide_trace_get_about(b->trace).settings, out->name);
    if (found == 0) continue;
    const tide_value value = tide_intern_value(left, (uint32_t)item);
    const tide_value other = tide_intern_value(right, found);
    value_text(left, &value, out->a, sizeof out->a);
    value_text(right, &other, out->b, sizeof out->b);
    if (strcmp(out->a, out->b) != 0) return true;
  }
  return false;
}

// The text of the variable repeats the other settings.
static bool setting_is_variable(const setting_pair* pair) { return strstr(pair->name, "ALLOC_CONF") != NULL; }

size_t tool_diff_count_settings(const tool_diff_side* a, const tool_diff_side* b) {
  setting_pair pair;
  size_t count = 0;
  for (size_t at = 0; setting_next(a, b, &at, &pair);) count++;
  return count;
}

void tool_diff_emit_settings(tool_emit* emit, const tool_call* call, const tool_diff_side* a,
                             const tool_diff_side* b) {
  static const tool_column columns[] = { { "name", "setting" }, { "a", "A" }, { "b", "B" } };
  setting_pair pair;
  if (tool_diff_count_settings(a, b) == 0 && !call->is_json) return;
  tool_emit_title(emit, "Settings");
  tool_emit_table(emit, "settings", columns, 3);
  for (size_t at = 0; setting_next(a, b, &at, &pair);) {
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, pair.name);
    tool_emit_text(emit, NULL, NULL, pair.a);
    tool_emit_text(emit, NULL, NULL, pair.b);
  }
  tool_emit_table_end(emit);
}

static const char* text_or_defaults(const char* text) { return *text != '\0' ? text : "the defaults"; }

// "The settings differ: A has the defaults, B has max_split_size_mb:100." Without the text of the variable,
// the first settings are named.
static void words_add_settings(tool_words* w, const tool_diff_side* a, const tool_diff_side* b) {
  setting_pair pair;
  size_t count = 0;
  const size_t before = w->length;
  for (size_t at = 0; setting_next(a, b, &at, &pair);) {
    if (setting_is_variable(&pair)) {
      w->length = before;
      tool_words_add(w, " The settings differ: A has %s, B has %s.", text_or_defaults(pair.a),
                     text_or_defaults(pair.b));
      return;
    }
    if (++count > SETTINGS_NAMED) continue;
    tool_words_add(w, "%s%s is %s in A and %s in B", count == 1 ? " The settings differ: " : ", ", pair.name,
                   pair.a, pair.b);
  }
  if (count > SETTINGS_NAMED) tool_words_add(w, ", and others");
  if (count > 0) tool_words_add(w, ".");
  else if (side_has_settings(a) && side_has_settings(b)) tool_words_add(w, " The settings are the same.");
  else if (side_has_settings(a) != side_has_settings(b))
    tool_words_add(w, " Only %s contains its settings, so they cannot be compared.",
                   side_has_settings(a) ? "A" : "B");
}

// ---------------------------------------------------------------------------------------------------
// The verdict

// What is compared: reserved memory if both files know it, or live memory.
typedef struct run_need {
  uint64_t bytes;
  uint64_t live;
} run_need;

static run_need side_need(const tool_diff_side* side, bool is_reserved) {
  const uint64_t live = side->peaks.live.bytes;
  return (run_need){ is_reserved ? side->peaks.reserved.bytes : live, live };
}

static uint64_t need_waste(const run_need* need) {
  return need->bytes > need->live ? need->bytes - need->live : 0;
}

static void words_add_pair(tool_words* w, const char* before, uint64_t more, uint64_t less,
                           const char* behind) {
  char sizes[2][TOOL_SIZE_TEXT];
  tool_size_pair(more, less, sizes[0], sizes[1]);
  tool_words_add(w, "%s%s instead of %s%s", before, sizes[0], sizes[1], behind);
}

// Why one run reserves more: the two parts of the difference.
static void words_add_reason(tool_words* w, const run_need* more, const run_need* less) {
  const uint64_t waste = need_waste(more);
  const uint64_t other_waste = need_waste(less);
  const bool is_more_live = more->live > less->live;
  const bool is_more_waste = waste > other_waste;
  if (is_more_live) words_add_pair(w, " More is live: ", more->live, less->live, "");
  if (is_more_live && is_more_waste) tool_words_add(w, ", and more is wasted: ");
  else if (is_more_waste)
    tool_words_add(w, more->live == less->live ? " The same is live, but more is wasted: "
                                               : " Less is live, but more is wasted: ");
  if (is_more_waste) words_add_pair(w, "", waste, other_waste, " are reserved but not live");
  tool_words_add(w, ".");
}

static void words_add_need(tool_words* w, const tool_diff_side* a, const tool_diff_side* b) {
  const bool is_reserved = a->knows_reserved && b->knows_reserved;
  const run_need left = side_need(a, is_reserved);
  const run_need right = side_need(b, is_reserved);
  const char* const verb = is_reserved ? "reserve" : "hold";
  char size[TOOL_SIZE_TEXT];
  if (left.bytes == right.bytes) {
    tool_words_add(w, "Both runs %s %s at the peak.", verb, tool_size_text(left.bytes, size));
    return;
  }
  const bool is_a = left.bytes > right.bytes;
  const run_need* const more = is_a ? &left : &right;
  const run_need* const less = is_a ? &right : &left;
  tool_words_add(w, "%s %ss %s more at the peak than %s", is_a ? "A" : "B", verb,
                 tool_size_text(more->bytes - less->bytes, size), is_a ? "B" : "A");
  words_add_pair(w, ": ", more->bytes, less->bytes, ".");
  if (is_reserved) words_add_reason(w, more, less);
}

static void words_add_refusals(tool_words* w, const tool_diff_side* a, const tool_diff_side* b) {
  const bool is_a = a->actions[TIDE_ACTION_OOM] > 0;
  const bool is_b = b->actions[TIDE_ACTION_OOM] > 0;
  if (is_a && is_b) tool_words_add(w, " Both ran out of memory.");
  else if (is_a || is_b)
    tool_words_add(w, " %s ran out of memory, %s did not.", is_a ? "A" : "B", is_a ? "B" : "A");
}

static void words_add_requests(tool_words* w, const tool_diff_requests* r) {
  const unsigned long long same = r->same;
  if (r->a_count == 0 || r->b_count == 0) return;
  if (requests_are_same(r)) tool_words_add(w, " All %llu requests are the same.", same);
  else if (same == r->a_count || same == r->b_count)
    tool_words_add(w, " The first %llu requests are the same; %s has %llu more.", same,
                   same == r->a_count ? "B" : "A",
                   (unsigned long long)(same == r->a_count ? r->b_count : r->a_count) - same);
  else tool_words_add(w, " The requests differ from request %llu on.", same + 1);
}

// Which run needs more: "a", "b", or NULL if both need the same.
static const char* sides_compare(const tool_diff_side* a, const tool_diff_side* b) {
  const bool is_reserved = a->knows_reserved && b->knows_reserved;
  const uint64_t left = side_need(a, is_reserved).bytes;
  const uint64_t right = side_need(b, is_reserved).bytes;
  if (left == right) return NULL;
  return left > right ? "a" : "b";
}

void tool_diff_emit_verdict(tool_emit* emit, const tool_diff_side* a, const tool_diff_side* b, bool is_same) {
  const tool_diff_requests requests = tool_diff_compare_requests(a, b);
  tool_words w = { .length = 0 };
  if (is_same) {
    tool_words_add(&w, "No differences: requests, peaks and the blocks held at the peaks are the same.");
  } else {
    words_add_need(&w, a, b);
    words_add_refusals(&w, a, b);
    words_add_settings(&w, a, b);
    words_add_requests(&w, &requests);
  }
  tool_emit_words(emit, "%s", w.text);
  tool_emit_text(emit, "verdict", NULL, w.text);
  tool_emit_text(emit, "needs_more", NULL, sides_compare(a, b));
  tool_emit_uint(emit, "requests_a", NULL, requests.a_count);
  tool_emit_uint(emit, "requests_b", NULL, requests.b_count);
  tool_emit_uint(emit, "requests_same", NULL, requests.same);
}

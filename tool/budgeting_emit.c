// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The answer about budgets: whether the run fits them, what is in the way, and what each tag has and moves.
#include <string.h>

#include "budgeting.h"

// ---------------------------------------------------------------------------------------------------
// Tables

static void patterns_emit(tool_emit* emit, const tool_budgeting* b) {
  static const tool_column columns[] = { { "tag", "tag" },
                                         { "requests", "requests" },
                                         { "pattern", "pattern" } };
  tool_emit_table(emit, "patterns", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < b->rule_count; i++) {
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, b->rules[i].name);
    tool_emit_uint(emit, NULL, NULL, b->rules[i].requests);
    tool_emit_text(emit, NULL, NULL, b->rules[i].pattern);
  }
  tool_emit_table_end(emit);
}

static void limit_emit(tool_emit* emit, uint64_t bytes) {
  tool_emit_bytes_if(emit, bytes != TIDE_NO_LIMIT, NULL, NULL, bytes);
}

// A tag without a budget has some of it from a tag above.
static void budget_emit(tool_emit* emit, const tide_budget* budget) {
  if (budget == NULL) {
    for (size_t i = 0; i < 5; i++) tool_emit_text(emit, NULL, NULL, NULL);
    return;
  }
  limit_emit(emit, budget->soft_limit);
  tool_emit_bytes(emit, NULL, NULL, budget->guarantee);
  tool_emit_real(emit, NULL, NULL, (double)budget->priority, 0);
  tool_emit_bool(emit, NULL, NULL, budget->yields);
  tool_emit_bool(emit, NULL, NULL, budget->is_constant);
}

static void tags_emit(tool_emit* emit, const tool_budgeting* b) {
  static const tool_column columns[] = {
    { "soft_limit", NULL },       { "guarantee", NULL },
    { "priority", NULL },         { "yields", NULL },
    { "constant", NULL },         { "tag", "tag" },
    { "peak_allocated", "live" }, { "peak_reserved", "reserved" },
    { "limit", "limit" },         { "refused", "refused" },
    { "parked_count", "parked" }, { "fetched_count", "back" },
    { "sent_bytes", "out" },      { "fetched_bytes", "in" },
    { "bus_ms", "bus ms" },
  };
  tool_emit_table(emit, "tags", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < b->tag_count; i++) {
    const tide_replay_tag* const tag = &b->tags[i];
    tool_emit_row(emit);
    budget_emit(emit, tag->budget);
    tool_emit_text(emit, NULL, NULL, tag->name);
    tool_emit_bytes(emit, NULL, NULL, tag->peak_allocated);
    tool_emit_bytes(emit, NULL, NULL, tag->peak_reserved);
    limit_emit(emit, tag->budget != NULL ? tag->budget->limit : TIDE_NO_LIMIT);
    tool_emit_uint(emit, NULL, NULL, tag->refused);
    tool_emit_uint(emit, NULL, NULL, tag->parked_count);
    tool_emit_uint(emit, NULL, NULL, tag->fetched_count);
    tool_emit_bytes(emit, NULL, NULL, tag->sent_bytes);
    tool_emit_bytes(emit, NULL, NULL, tag->fetched_bytes);
    tool_emit_real(emit, NULL, NULL, (double)tag->bus_ns / 1e6, 3);
  }
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// Words

static const char* name_or_null(const char* name) { return *name != '\0' ? name : NULL; }

static void refusal_emit(tool_emit* emit, const tide_replay_result* r) {
  const bool is_refused = r->ooms > 0;
  tool_emit_text(emit, "refused_tag", NULL, is_refused ? name_or_null(r->oom_tag) : NULL);
  tool_emit_text(emit, "limited_tag", NULL, is_refused ? name_or_null(r->oom_limited_tag) : NULL);
  tool_emit_uint(emit, "guaranteed_bytes", NULL, r->oom_guaranteed_bytes);
  tool_emit_bool(emit, "is_return", NULL, r->is_oom_return);
}

// "The run does not fit: at entry 5, a request of 8.00 MiB with the tag "a" exceeds the limit of "p"."
static void refusal_emit_words(tool_emit* emit, const tide_replay_result* r) {
  char size[TOOL_SIZE_TEXT];
  char kept[TOOL_SIZE_TEXT];
  char asker[TIDE_TAG_MOST + 32] = " without a tag";
  char limited[TIDE_TAG_MOST + 32] = "the device";
  if (*r->oom_tag != '\0') (void)snprintf(asker, sizeof asker, " with the tag \"%s\"", r->oom_tag);
  if (*r->oom_limited_tag != '\0') (void)snprintf(limited, sizeof limited, "\"%s\"", r->oom_limited_tag);
  tool_emit_words(emit, "The run does not fit: at entry %llu, %s %s%s%s exceed%s the limit of %s.",
                  (unsigned long long)r->first_oom, r->is_oom_return ? "parked memory of" : "a request of",
                  tool_size_text(r->oom_bytes, size), asker, r->is_oom_return ? " comes back, and would" : "",
                  r->is_oom_return ? "" : "s", limited);
  if (r->oom_guaranteed_bytes > 0)
    tool_emit_words(emit, "%s stay free, because they are guaranteed to other tags.",
                    tool_size_text(r->oom_guaranteed_bytes, kept));
}

static void moved_emit_words(tool_emit* emit, const tool_budgeting* b, const tide_replay_result* r) {
  char sizes[2][TOOL_SIZE_TEXT];
  if (r->sent_bytes + r->fetched_bytes == 0) return;
  tool_emit_words(
      emit,
      "To give way, %s go out over the bus and %s come back, in %.3f ms of its time. The real run may move "
      "more: a recording does not say when blocks are read and written. A tag that yields is assumed to "
      "be used when memory of it is requested or released%s%s.",
      tool_size_text(r->sent_bytes, sizes[0]), tool_size_text(r->fetched_bytes, sizes[1]),
      (double)r->bus_ns / 1e6, b->has_steps ? ", and at the beginning of each step" : "",
      b->has_returns ? ", and where it came back in the recording" : "");
}

static bool name_covers(const char* tag, const char* other) {
  const size_t bytes = strlen(tag);
  return strncmp(tag, other, bytes) == 0 && (other[bytes] == '\0' || other[bytes] == '/');
}

// A pattern or budget that has no effect is probably a mistake.
static void idle_emit_words(tool_emit* emit, const tool_budgeting* b) {
  for (size_t i = 0; i < b->rule_count; i++) {
    if (b->rules[i].requests == 0)
      tool_emit_words(emit, "No request gets the tag \"%s\" by the pattern '%s'.", b->rules[i].name,
                      b->rules[i].pattern);
  }
  for (size_t i = 0; i < b->budget_count; i++) {
    uint64_t bytes = 0;
    for (size_t k = 0; k < b->tag_count; k++) {
      if (name_covers(b->budgets[i].name, b->tags[k].name)) bytes += b->tags[k].peak_allocated;
    }
    if (bytes == 0) tool_emit_words(emit, "No request has the tag \"%s\".", b->budgets[i].name);
  }
}

void tool_budgeting_emit(tool_emit* emit, const tool_budgeting* b, const tide_replay_result* r) {
  if (b->tag_count == 0) {
    tool_emit_text(emit, "budgets", NULL, NULL);
    return;
  }
  tool_emit_title(emit, "Tags and their budgets");
  tool_emit_open(emit, "budgets", NULL);
  tool_emit_bool(emit, "fits", NULL, r->ooms == 0);
  refusal_emit(emit, r);
  tool_emit_text(emit, "uses", NULL, !b->yields ? NULL : b->has_steps ? "steps" : "requests");
  tool_emit_uint(emit, "sent_bytes", NULL, r->sent_bytes);
  tool_emit_uint(emit, "fetched_bytes", NULL, r->fetched_bytes);
  tool_emit_real(emit, "bus_ms", NULL, (double)r->bus_ns / 1e6, 6);
  if (r->ooms > 0) refusal_emit_words(emit, r);
  else if (b->budget_count > 0) tool_emit_words(emit, "The run fits these budgets.");
  moved_emit_words(emit, b, r);
  tags_emit(emit, b);
  if (b->rule_count > 0) patterns_emit(emit, b);
  idle_emit_words(emit, b);
  tool_emit_close(emit);
}

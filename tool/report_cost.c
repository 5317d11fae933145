// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about what recorded settings and choices of the program cost, in words and tables.
#include "report.h"

static const struct {
  const char* key;
  const char* label;
  const char* words;  // continues "In a replay"
  const char* advice;
} change_words[TOOL_CHANGE_COUNT] = {
  [TOOL_ONE_STREAM] = { "one_stream", "all requests on one stream", "with all requests on one stream",
                        "Allocate on one stream." },
  [TOOL_ONE_POOL] = { "one_pool", "one private pool for all", "with one private pool for all graphs",
                      "Let graphs share one pool." },
  [TOOL_NO_WAITS] = { "no_waits", "no release waits for other streams", "in which no release waits",
                      "Instead of record_stream, let the allocating stream wait for the other stream before "
                      "the tensor is released." },
};

// " the same requests reserve 26.53 GiB at the peak, 38.76 GiB less."
static void words_add_result(const tool_costs* costs, const tide_replay_result* other, tool_words* w) {
  if (costs->recorded.ooms > 0) {
    tool_words_add(w, " every request is served under the same limit.");
    return;
  }
  tool_words_add_size(w, " the same requests reserve ", other->peak_reserved, " at the peak");
  tool_words_add_size(w, ", ", tool_cost_saved(costs, other), " less.");
}

void tool_words_add_costs(const tool_costs* costs, tool_words* w) {
  if (!costs->is_known) return;
  for (size_t i = 0; i < costs->setting_count; i++) {
    const tool_setting_cost* const cost = &costs->settings[i];
    if (!tool_cost_is_better(costs, &cost->without)) continue;
    tool_words_add(w, " The recorded setting %s does harm: in a replay without it,", cost->setting);
    words_add_result(costs, &cost->without, w);
  }
  for (size_t i = 0; i < TOOL_CHANGE_COUNT; i++) {
    const tool_change_cost* const cost = &costs->changes[i];
    if (!cost->is_tried || !tool_cost_is_better(costs, &cost->changed)) continue;
    tool_words_add(w, " %s In a replay %s,", change_words[i].advice, change_words[i].words);
    words_add_result(costs, &cost->changed, w);
  }
}

static void cost_emit(tool_emit* emit, const tool_costs* costs, const tide_replay_result* other) {
  tool_emit_bytes(emit, NULL, NULL, costs->recorded.peak_reserved);
  tool_emit_bytes(emit, NULL, NULL, other->peak_reserved);
  tool_emit_change(emit, NULL, NULL, other->peak_reserved, costs->recorded.peak_reserved);
  tool_emit_uint(emit, NULL, NULL, other->ooms);
  tool_emit_bool(emit, NULL, NULL, tool_cost_is_better(costs, other));
}

static void settings_emit(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "setting", "recorded setting" },
    { "with", "peak with it" },
    { "without", "peak without it" },
    { "cost", "cost" },
    { "ooms", "refused" },
    { "does_harm", "does harm" },
  };
  if (r->costs.setting_count == 0 && !r->call->is_json) return;
  tool_emit_title(emit, "What each recorded setting costs: replays without it");
  tool_emit_table(emit, "setting_costs", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->costs.setting_count; i++) {
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, r->costs.settings[i].setting);
    cost_emit(emit, &r->costs, &r->costs.settings[i].without);
  }
  tool_emit_table_end(emit);
}

static void changes_emit(tool_emit* emit, const tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "change", NULL },     { NULL, "change of the program" }, { "reserved_for_it", "reserved for it" },
    { "with", "peak now" }, { "without", "peak then" },        { "cost", "saves" },
    { "ooms", "refused" },  { "is_better", "confirmed" },
  };
  size_t tried = 0;
  for (size_t i = 0; i < TOOL_CHANGE_COUNT; i++) tried += r->costs.changes[i].is_tried;
  if (tried == 0 && !r->call->is_json) return;
  tool_emit_title(emit, "What a change of the program would save: replays with it");
  tool_emit_table(emit, "changes", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < TOOL_CHANGE_COUNT; i++) {
    if (!r->costs.changes[i].is_tried) continue;
    tool_emit_row(emit);
    tool_emit_text(emit, NULL, NULL, change_words[i].key);
    tool_emit_text(emit, NULL, NULL, change_words[i].label);
    tool_emit_bytes(emit, NULL, NULL, r->costs.changes[i].reason_bytes);
    cost_emit(emit, &r->costs, &r->costs.changes[i].changed);
  }
  tool_emit_table_end(emit);
}

void tool_diagnosis_emit_costs(tool_emit* emit, const tool_diagnosis* r) {
  if (!r->costs.is_known) return;
  settings_emit(emit, r);
  changes_emit(emit, r);
}

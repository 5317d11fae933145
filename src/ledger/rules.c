// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch's rounding and splitting, from the settings as its snapshots have them.
#include "ledger/rules.h"

#include <stdio.h>

#include "base/arith.h"

#define RULES_DIVISIONS_MAX ((int64_t)1 << 20)

// The number under a key; `otherwise` if there is none.
static int64_t settings_number(const tide_intern* names, uint32_t dict, const char* key, int64_t otherwise) {
  const tide_value value = tide_intern_value(names, tide_intern_value_find(names, dict, key));
  return value.kind == TIDE_VALUE_INT || value.kind == TIDE_VALUE_BOOL ? value.integer : otherwise;
}

// Ignores divisions that are not a power of two, which PyTorch refuses.
static void rules_read_divisions(tide__rules* rules, const tide_intern* names, uint32_t dict) {
  for (unsigned slot = 0; slot < TIDE__RULES_SLOTS; slot++) {
    char key[16];
    (void)snprintf(key, sizeof key, "%u", 1u << slot);
    const int64_t divisions = settings_number(names, dict, key, 0);
    const bool is_sane = divisions > 1 && divisions <= RULES_DIVISIONS_MAX;
    if (is_sane && tide__is_power_of_two((uint64_t)divisions)) rules->divisions[slot] = (uint64_t)divisions;
  }
}

tide__rules tide__rules_of(const tide_trace* trace) {
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t settings = tide_trace_get_about(trace).settings;
  tide__rules rules = { .max_split_bytes = UINT64_MAX };
  const int64_t max_split = settings_number(names, settings, "max_split_size", -1);
  if (max_split >= 0) rules.max_split_bytes = (uint64_t)max_split;
  rules.is_expandable = settings_number(names, settings, "expandable_segments", 0) != 0;
  rules_read_divisions(&rules, names, tide_intern_value_find(names, settings, "roundup_power2_divisions"));
  return rules;
}

static uint64_t round_to(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

uint64_t tide__rules_round(const tide__rules* rules, uint64_t requested) {
  if (requested <= TIDE__RULES_UNIT) return TIDE__RULES_UNIT;
  const unsigned log = 63 - (unsigned)__builtin_clzll(requested);
  const unsigned slot = log < 20 ? 0 : log - 20;
  const uint64_t divisions = rules->divisions[slot < TIDE__RULES_SLOTS ? slot : TIDE__RULES_SLOTS - 1];
  if (divisions == 0 || requested <= TIDE__RULES_UNIT * divisions)
    return round_to(requested, TIDE__RULES_UNIT);
  return round_to(requested, ((uint64_t)1 << log) / divisions);
}

bool tide__rules_cuts(const tide__rules* rules, uint64_t bytes, uint64_t rest, bool is_expandable) {
  if (bytes <= TIDE__RULES_SMALL || rules->is_expandable || is_expandable) return rest >= TIDE__RULES_UNIT;
  return bytes < rules->max_split_bytes && rest > TIDE__RULES_SMALL;
}

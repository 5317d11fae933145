// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A graph with sizes and its layout; and a check that a layout is sound, which compares all pairs of values
// and shares no code with the library.
#ifndef TIDEMARK_TESTS_GRAPH_PACKED_H
#define TIDEMARK_TESTS_GRAPH_PACKED_H

#include "graph/oracle.h"
#include "graph/trial.h"

typedef struct packed {
  model m;
  tide_graph* graph;
  uint64_t bytes[MODEL_VALUES];   // as they are given
  uint64_t placed[MODEL_VALUES];  // rounded up, and 0 for what is not in the arena; set with the layout
  tide_graph_options options;
  tide_graph_layout* layout;
  tide_graph_layout_info info;
} packed;

static inline void packed_open_model(packed* p) {
  p->graph = model_build(&p->m);
  p->layout = NULL;
  for (uint32_t i = 0; i < MODEL_VALUES; i++) p->bytes[i] = 1;
}

static inline void packed_open(packed* p, const char* text) {
  model_read(&p->m, text);
  packed_open_model(p);
}

static inline void packed_size(packed* p, const char* name, uint64_t bytes) {
  p->bytes[model_id(&p->m, name)] = bytes;
}

static inline tide_graph_place packed_place(const packed* p, const char* name) {
  return tide_graph_layout_place(p->layout, model_id(&p->m, name));
}

static inline uint64_t packed_round(const packed* p, uint64_t bytes) {
  return (bytes + p->options.alignment - 1) / p->options.alignment * p->options.alignment;
}

// Makes the layout for options anew.
static inline tide_graph_layout_info packed_lay_out(packed* p, tide_graph_options options) {
  tide_graph_layout_free(p->layout);
  p->layout = NULL;
  p->options = options;
  T_OK(tide_graph_layout_new(p->graph, &p->options, p->bytes, p->m.value_count, &p->layout));
  p->info = tide_graph_layout_describe(p->layout);
  for (uint32_t i = 0; i < p->m.value_count; i++) {
    const tide_graph_place place = tide_graph_layout_place(p->layout, i);
    const bool is_placed = place.role == TIDE_ROLE_MANAGED && place.group != TIDE_GRAPH_NONE;
    p->placed[i] = is_placed ? packed_round(p, p->bytes[i]) : 0;
  }
  return p->info;
}

static inline void packed_close(packed* p) {
  tide_graph_layout_free(p->layout);
  tide_graph_free(p->graph);
}

// A test of one packed graph `p`, which is opened before and closed after it.
#define PACKED_TEST(function, text)     \
  static void function##_in(packed* p); \
  T_TEST(function) {                    \
    static packed opened;               \
    packed_open(&opened, text);         \
    function##_in(&opened);             \
    packed_close(&opened);              \
  }                                     \
  static void function##_in(packed* p)

// May `output` lie over `input`, and does the layout do nothing else with the two than that?
static inline bool packed_may_cover(const packed* p, const oracle* o, uint32_t input, uint32_t output) {
  const uint32_t maker = model_maker(&p->m, output);
  const tide_graph_lifetime* const a = &o->lifetimes[input];
  const tide_graph_lifetime* const b = &o->lifetimes[output];
  if (!p->options.in_place || !model_is_pair(&p->m.nodes[maker].over, input, output)) return false;
  for (uint32_t i = 0; i < p->m.value_count; i++) {
    if (o->reaches[input][i]) return false;
  }
  return a->block == b->block && a->last == b->first && p->placed[input] >= p->placed[output] &&
         tide_graph_layout_place(p->layout, input).offset ==
             tide_graph_layout_place(p->layout, output).offset;
}

static inline const char* packed_pair_fault(const packed* p, const oracle* o, uint32_t i, uint32_t k,
                                            uint32_t* covers) {
  const tide_graph_place a = tide_graph_layout_place(p->layout, i);
  const tide_graph_place b = tide_graph_layout_place(p->layout, k);
  if (a.group == b.group && a.offset != b.offset) return "a group with two offsets";
  if (a.offset >= b.offset + p->placed[k] || b.offset >= a.offset + p->placed[i]) return NULL;
  if (!oracle_overlaps(o, i, k)) return NULL;
  const bool covers_first = packed_may_cover(p, o, i, k);
  const bool covers_second = packed_may_cover(p, o, k, i);
  *covers += covers_first || covers_second ? 1 : 0;
  return covers_first || covers_second ? NULL : "two values in one place";
}

// The first fault of the layout; NULL: none.
static inline const char* packed_fault(const packed* p, const oracle* o) {
  uint32_t covers = 0;
  uint32_t managed = 0;
  for (uint32_t i = 0; i < p->m.value_count; i++) {
    const tide_graph_place place = tide_graph_layout_place(p->layout, i);
    if (p->placed[i] == 0) continue;
    managed++;
    if (place.offset % p->options.alignment != 0) return "an offset that is not aligned";
    if (place.bytes < p->placed[i]) return "a place that is too small";
    if (place.offset + place.bytes > p->info.bytes) return "a place that ends behind the arena";
    for (uint32_t k = 0; k < i; k++) {
      const char* const fault = p->placed[k] == 0 ? NULL : packed_pair_fault(p, o, i, k, &covers);
      if (fault != NULL) return fault;
    }
  }
  if (p->info.managed != managed) return "another number of managed values";
  if (p->info.reused != p->info.managed - p->info.groups) return "another number of reused ones";
  if (p->info.over_inputs != covers) return "another number of values over inputs";
  if (p->info.lower_bound != oracle_lower_bound(o, p->placed)) return "another lower bound";
  if (p->info.over_inputs == 0 && p->info.bytes < p->info.lower_bound) return "less than the lower bound";
  return NULL;
}

static inline void packed_check(const packed* p) {
  static oracle o;
  oracle_init(&o, &p->m);
  const char* const fault = packed_fault(p, &o);
  if (fault == NULL) return;
  model_print(stderr, &p->m);
  for (uint32_t i = 0; i < p->m.value_count; i++) {
    const tide_graph_place place = tide_graph_layout_place(p->layout, i);
    if (p->placed[i] != 0)
      (void)fprintf(stderr, "%s: group %u at %" PRIu64 ", %" PRIu64 " bytes\n", p->m.names[i], place.group,
                    place.offset, place.bytes);
  }
  T_FAIL("%s: %s", tide_graph_algorithm_name(p->options.algorithm), fault);
}

#endif

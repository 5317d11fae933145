// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Visits and snapshots without an allocator: segments of a list are shown in the order of their addresses,
// and reach a trace together with a history.
#include "core/snapshot.h"
#include "core/visit.h"
#include "machine/counting_heap.h"
#include "t.h"
#include "tidemark/machine.h"

enum { SEGMENTS = 50, BLOCKS = 3, FIRST_LABELLED = 5 };

// An allocator that has only a list of segments.
typedef struct listed {
  tide_machine* machine;
  counting_heap heap;
  tide__atomic_u32 word;
  tide__history history;
  tide_segment_info segments[SEGMENTS];  // in no order
  tide_block_info blocks[SEGMENTS][BLOCKS];
  uint64_t active_bytes;  // of all
} listed;

static void listed_init(listed* l) {
  t_rng rng = t_rng_new(1);
  memset(l, 0, sizeof *l);
  T_OK(tide_machine_new_dry(NULL, &l->machine));
  counting_heap_init(&l->heap, SIZE_MAX, false);
  T_OK(tide__history_init(&l->history, l->machine, &l->heap.heap, &l->word, 1, 2));
  for (size_t i = 0; i < SEGMENTS; ++i) {
    const uint64_t address = (t_rng_next(&rng) % 1000000) * 100000 + i * 1000;
    const uint64_t active = t_rng_below(&rng, 900);
    l->segments[i] = (tide_segment_info){ .address = address,
                                          .bytes = 900,
                                          .active_bytes = active,
                                          .pool = (tide_pool)(i % 8),
                                          .device = 3,
                                          .is_large = i % 2 == 0 };
    l->active_bytes += active;
    for (size_t k = 0; k < BLOCKS; ++k) {
      l->blocks[i][k] = (tide_block_info){ .address = address + k * 300, .bytes = 300, .state = (uint32_t)k };
    }
  }
}

static void listed_fini(listed* l) {
  tide__history_fini(&l->history);
  T_EQ(atomic_load(&l->heap.outstanding), 0);
  tide_machine_free(l->machine);
}

typedef struct list_note {
  uint64_t address;
  size_t index;
} list_note;

typedef struct list_visit {
  tide__visit visit;
  listed* l;
} list_visit;

static bool note_show(tide__visit* visit, void* note) {
  const listed* const l = ((list_visit*)(void*)visit)->l;
  const size_t index = ((const list_note*)note)->index;
  return tide__visit_segment(visit, &l->segments[index]) &&
         tide__visit_blocks(visit, l->blocks[index], BLOCKS);
}

static tide_status list_visit_all(void* owner, const tide_pool* pool, const tide_device_visitor* visitor) {
  (void)pool;
  listed* const l = owner;
  list_visit v = {
    { .heap = &l->heap.heap, .visitor = visitor, .call = "list_visit", .note_bytes = sizeof(list_note) }, l
  };
  tide_status status = TIDE_OK;
  for (size_t i = 0; i < SEGMENTS && status == TIDE_OK; ++i) {
    status = tide__visit_reserve(&v.visit, 1);
    if (status != TIDE_OK) break;
    *(list_note*)tide__visit_next_note(&v.visit) = (list_note){ l->segments[i].address, i };
  }
  if (status == TIDE_OK) tide__visit_show(&v.visit, note_show);
  const uint64_t active_bytes = v.visit.active_bytes;
  tide__visit_fini(&v.visit);
  if (status == TIDE_OK) tide__history_add_snapshot(&l->history, active_bytes);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Visits

typedef struct shown_list {
  size_t segments;
  size_t blocks;
  uint64_t last;  // address
  uint64_t active_bytes;
  size_t most;  // segments that are wanted
} shown_list;

static bool show_segment(void* user, const tide_segment_info* segment) {
  shown_list* const s = user;
  T_EQ(s->blocks, s->segments * BLOCKS);
  if (s->segments++ > 0) T_LT(s->last, segment->address);
  s->last = segment->address;
  s->active_bytes += segment->active_bytes;
  return s->segments < s->most;
}

static bool show_block(void* user, const tide_block_info* block) {
  shown_list* const s = user;
  T_EQ(block->address, s->last + s->blocks++ % BLOCKS * 300);
  return true;
}

T_TEST(test_snapshot_core__a_visit_goes_by_address_and_ends_when_told) {
  static listed l;
  listed_init(&l);
  shown_list all = { .most = SIZE_MAX };
  shown_list some = { .most = 7 };
  const tide_device_visitor visitors[2] = { { show_segment, show_block, &all },
                                            { show_segment, show_block, &some } };
  for (size_t i = 0; i < 2; ++i) T_OK(list_visit_all(&l, NULL, &visitors[i]));

  T_EQ(all.segments, SEGMENTS);
  T_EQ(all.blocks, (size_t)SEGMENTS * BLOCKS);
  T_EQ(all.active_bytes, l.active_bytes);
  T_EQ(some.segments, 7);
  T_EQ(some.blocks, (size_t)6 * BLOCKS);
  listed_fini(&l);
}

T_TEST(test_snapshot_core__a_visit_without_memory_names_its_call) {
  static listed l;
  listed_init(&l);
  shown_list none = { .most = SIZE_MAX };
  const tide_device_visitor visitor = { show_segment, NULL, &none };
  atomic_store(&l.heap.fail_at, atomic_load(&l.heap.allocs));

  T_STATUS(list_visit_all(&l, NULL, &visitor), TIDE_ERR_NO_MEMORY);

  T_STR_HAS(tide_last_error()->text, "list_visit: ");
  T_EQ(none.segments, 0);
  listed_fini(&l);
}

// ---------------------------------------------------------------------------------------------------
// Snapshots

static bool label_of(void* owner, tide_pool pool, tide_pool_label* out) {
  (void)owner;
  if (pool < FIRST_LABELLED) return false;
  *out = (tide_pool_label){ 9, 100 + pool };
  return true;
}

static tide_status add_settings(void* owner, tide_intern* names, uint32_t* out) {
  const tide_value value = { .kind = TIDE_VALUE_INT, .integer = 17 };
  (void)owner;
  return tide_intern_add_value(names, &value, out);
}

static tide__snapshot_source source_of(listed* l) {
  return (tide__snapshot_source){ .call = "list_snapshot",
                                  .history = &l->history,
                                  .heap = &l->heap.heap,
                                  .device = 3,
                                  .last_pool = 4,  // pools above it came later, and are carried all the same
                                  .owner = l,
                                  .visit = list_visit_all,
                                  .label = label_of,
                                  .settings = add_settings };
}

static void expect_pool(const tide_trace* trace, uint32_t id, tide_pool pool, tide_pool first_labelled) {
  const tide_pool_label label = tide_trace_pool(trace, id);
  T_EQ(label.first, pool >= first_labelled ? 9 : 0);
  T_EQ(label.second, pool >= first_labelled ? 100 + pool : pool);
}

static size_t gather_seven(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  (void)capacity;
  frames[0] = 7;
  return 1;
}

static uint32_t number_seven(void* user) {
  (void)user;
  return 7;
}

// Entries of all pools, with a stack that is gathered or a number.
static void make_entries(listed* l, bool has_numbers) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALL;
  options.gather = has_numbers ? NULL : gather_seven;
  options.number = has_numbers ? number_seven : NULL;
  T_OK(tide__history_configure(&l->history, "test", &options));
  for (tide_pool pool = 0; pool < 8; ++pool) {
    const tide__call_context context = tide__history_context(&l->history, TIDE_HISTORY_STATE, 1);
    tide__history_add(&l->history, &context,
                      (tide_trace_entry){ .bytes = pool, .pool = pool, .stack = context.stack, .device = 1 });
  }
}

static void expect_entries(const tide_trace* trace) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 3, &count);
  T_EQ(count, 8);
  for (size_t i = 0; i < count; ++i) {
    T_EQ(entries[i].bytes, i);
    T_EQ(entries[i].device, 3);
    expect_pool(trace, entries[i].pool, (tide_pool)i, FIRST_LABELLED);
    size_t depth = 0;
    const tide_intern* const names = tide_trace_names(trace);
    const uint64_t* const frames = tide_intern_stack(names, entries[i].stack, &depth);
    T_EQ(depth, 1);
    T_STR_EQ(tide_intern_text(names, tide_intern_frame(names, (uint32_t)frames[0]).name, NULL), "0x7");
  }
}

static void expect_segments(const tide_trace* trace, const listed* l, tide_pool first_labelled) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  T_EQ(count, SEGMENTS);
  for (size_t i = 0; i < count; ++i) {
    size_t at = 0;
    while (at < SEGMENTS && l->segments[at].address != segments[i].address) at++;
    T_LT(at, SEGMENTS);
    T_EQ(segments[i].active_bytes, l->segments[at].active_bytes);
    T_EQ(segments[i].is_large, l->segments[at].is_large);
    T_EQ(segments[i].block_count, BLOCKS);
    T_EQ(segments[i].device, 3);
    expect_pool(trace, segments[i].pool, l->segments[at].pool, first_labelled);
  }
}

static const char* const ways[] = { "gathered", "numbered", NULL };

T_TEST_OVER(test_snapshot_core__a_trace_has_entries_segments_labels_and_settings, ways) {
  static listed l;
  tide_trace* trace = NULL;
  listed_init(&l);
  make_entries(&l, strcmp(t_variant(), "numbered") == 0);
  T_OK(tide_trace_new(NULL, &trace));
  const tide__snapshot_source source = source_of(&l);

  T_OK(tide__snapshot_take(&source, NULL, trace));

  expect_entries(trace);
  expect_segments(trace, &l, FIRST_LABELLED);
  const tide_trace_about about = tide_trace_get_about(trace);
  T_CHECK(about.has_entries && about.has_segments);
  T_EQ(tide_intern_value(tide_trace_names(trace), about.settings).integer, 17);
  tide_trace_free(trace);
  listed_fini(&l);
}

T_TEST(test_snapshot_core__entries_may_stay_out) {
  static listed l;
  tide_trace* trace = NULL;
  size_t count = 7;
  listed_init(&l);
  make_entries(&l, false);
  T_OK(tide_trace_new(NULL, &trace));
  tide__snapshot_source source = source_of(&l);
  source.label = NULL;
  source.settings = NULL;
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  options.has_entries = false;

  T_OK(tide__snapshot_take(&source, &options, trace));

  T_CHECK(tide_trace_entries(trace, 3, &count) == NULL || count == 0);
  T_EQ(tide_trace_get_about(trace).settings, 0);
  expect_segments(trace, &l, UINT32_MAX);  // pools without a label stand under their numbers
  options.size = 3;
  T_STATUS(tide__snapshot_take(&source, &options, trace), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "list_snapshot: ");
  tide_trace_free(trace);
  listed_fini(&l);
}

// Whichever record is missing, the call says so and leaves nothing behind.
T_TEST(test_snapshot_core__a_snapshot_without_memory_leaves_nothing) {
  static listed l;
  listed_init(&l);
  make_entries(&l, false);
  const tide__snapshot_source source = source_of(&l);
  tide_status status = TIDE_ERR_NO_MEMORY;
  for (size_t i = 0; status != TIDE_OK; ++i) {
    tide_trace* trace = NULL;
    T_LT(i, 100);
    T_OK(tide_trace_new(NULL, &trace));
    const size_t before = atomic_load(&l.heap.outstanding);
    atomic_store(&l.heap.fail_at, atomic_load(&l.heap.allocs) + i);
    status = tide__snapshot_take(&source, NULL, trace);
    if (status != TIDE_OK) T_EQ(status, TIDE_ERR_NO_MEMORY);
    T_EQ(atomic_load(&l.heap.outstanding), before);
    tide_trace_free(trace);
  }
  listed_fini(&l);
}

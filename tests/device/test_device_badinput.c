// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Calls every function of device.h with NULL for the allocator or for a result, and with structs of other
// sizes. Each call must be refused or do nothing, and none may crash.
#define T_THREADS
#include "device/devices.h"

static bool see_nothing(void* user, const tide_segment_info* segment) {
  (void)user, (void)segment;
  return true;
}

static bool hear_nothing(void* user, const tide_trace_entry* entries, size_t count) {
  (void)user, (void)entries, (void)count;
  return true;
}

static void see_stack(void* user, uint32_t stack) { (void)user, (void)stack; }

static void hear_oom(void* user, const tide_oom* oom) { (void)user, (void)oom; }

static void hear_entry(void* user, const tide_trace_entry* entry) { (void)user, (void)entry; }

static void hear_numbered(void* user, const tide_trace_entry* entry, uint64_t number) {
  (void)user, (void)entry, (void)number;
}

static bool reclaim_nothing(void* user, tide_device_cache* device) {
  (void)user, (void)device;
  return false;
}

#define REFUSED(call) T_STATUS(call, TIDE_ERR_ARGUMENT)

static uint8_t somewhere[512];

// ---------------------------------------------------------------------------------------------------
// No allocator

T_TEST(test_device_badinput__no_allocator_for_memory) {
  const tide_block block = { somewhere, 1 };
  tide_block got = block;
  void* base = somewhere;
  size_t bytes = 1;
  REFUSED(tide_device_alloc(NULL, NULL, 512, &got));
  REFUSED(tide_device_alloc_at(NULL, NULL, 512, somewhere, &got));
  REFUSED(tide_device_release(NULL, block));
  REFUSED(tide_device_release_address(NULL, somewhere));
  REFUSED(tide_device_find(NULL, somewhere, &got));
  REFUSED(tide_device_record(NULL, block, NULL));
  REFUSED(tide_device_record_on(NULL, block, 0, NULL));
  REFUSED(tide_device_base(NULL, somewhere, &base, &bytes));
  T_PTR_EQ(base, NULL);
  T_EQ(bytes, 0);
  REFUSED(tide_device_largest(NULL, &bytes));
  REFUSED(tide_device_poll(NULL));
  REFUSED(tide_device_close_stream(NULL, NULL));
  REFUSED(tide_device_trim(NULL, 0));
  REFUSED(tide_device_trim_pool(NULL, 1));
  T_EQ(tide_device_bytes(NULL, somewhere), 0);
  const tide_memory memory = tide_device_memory(NULL, NULL);
  void* source = NULL;
  REFUSED(memory.alloc(&memory, 512, 512, &source));
  REFUSED(memory.release(&memory, somewhere));
}

T_TEST(test_device_badinput__no_allocator_to_tune) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_free(NULL);
  T_PTR_EQ(tide_device_machine(NULL), NULL);
  T_EQ(tide_device_index(NULL), -1);
  T_STR_EQ(tide_device_name(NULL), "");
  REFUSED(tide_device_configure(NULL, &options));
  tide_device_get_options(NULL, &options);
  REFUSED(tide_device_set_fraction(NULL, 0.5));
  T_CHECK(tide_device_fraction(NULL) == 1.0);
  REFUSED(tide_device_set_limit(NULL, 1));
  T_EQ(tide_device_limit(NULL), TIDE_NO_LIMIT);
  tide_device_set_caching(NULL, true);
  T_CHECK(!tide_device_is_caching(NULL));
  T_STATUS(tide_device_set_default(-1, NULL), TIDE_ERR_DEVICE);
  T_OK(tide_device_set_default(0, NULL));
  T_PTR_EQ(tide_device_default(-1), NULL);
  T_PTR_EQ(tide_device_default(0), NULL);
}

T_TEST(test_device_badinput__no_allocator_for_pools) {
  const uint64_t label[2] = { 1, 2 };
  const void* const addresses[1] = { somewhere };
  tide_pool pool = 7;
  uint32_t users = 7;
  bool is_same = true;
  uint64_t bytes = 7;
  tide_checkpoint* checkpoint = NULL;
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  REFUSED(tide_device_pool_new(NULL, NULL, &pool));
  REFUSED(tide_device_pool_retain(NULL, 1));
  REFUSED(tide_device_pool_drop(NULL, 1));
  REFUSED(tide_device_pool_users(NULL, 1, &users));
  REFUSED(tide_device_pool_set_use_on_oom(NULL, 1, true));
  REFUSED(tide_device_pool_set_no_split(NULL, 1));
  REFUSED(tide_device_pool_find(NULL, label, &pool));
  REFUSED(tide_device_pool_begin(NULL, 1, NULL));
  REFUSED(tide_device_pool_end(NULL, 1));
  REFUSED(tide_device_pool_check(NULL, 1, addresses, 1, &is_same));
  REFUSED(tide_device_pool_reserved(NULL, 1, &bytes));
  REFUSED(tide_device_checkpoint(NULL, 1, &checkpoint));
  REFUSED(tide_device_restore(NULL, NULL, &delta));
  tide_checkpoint_free(NULL);
  tide_restore_delta_clear(NULL);
}

T_TEST(test_device_badinput__no_allocator_to_look_into) {
  const tide_device_visitor visitor = { see_nothing, NULL, NULL };
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  REFUSED(tide_device_get_stats(NULL, &stats));
  tide_device_reset_accumulated(NULL);
  tide_device_reset_peaks(NULL);
  T_EQ(tide_device_check(NULL), 0);
  REFUSED(tide_device_visit(NULL, &visitor));
  REFUSED(tide_device_visit_pool(NULL, 1, &visitor));
  REFUSED(tide_device_visit_stacks(NULL, see_stack, NULL));
  REFUSED(tide_device_history(NULL, &history));
  T_CHECK(!tide_device_has_history(NULL));
  REFUSED(tide_device_history_visit(NULL, hear_nothing, NULL));
  T_PTR_EQ(tide_device_names(NULL), NULL);
  REFUSED(tide_device_annotate(NULL, "text"));
  REFUSED(tide_device_snapshot(NULL, NULL, trace));
  tide_trace_free(trace);
}

T_TEST(test_device_badinput__no_allocator_to_observe_or_share) {
  tide_observer observer = 7;
  tide_share share = { .size = sizeof share };
  tide_physical_share parts[1];
  tide_offer offer = { { 0 } };
  uint64_t offset = 0;
  void* address = NULL;
  REFUSED(tide_device_observe_oom(NULL, hear_oom, NULL, &observer));
  REFUSED(tide_device_observe_trace(NULL, hear_entry, NULL, &observer));
  REFUSED(tide_device_observe_entries(NULL, hear_numbered, NULL, &observer));
  REFUSED(tide_device_observe_reclaim(NULL, reclaim_nothing, NULL, &observer));
  REFUSED(tide_device_detach(NULL, 1));
  REFUSED(tide_device_enable_peer(NULL, 1));
  REFUSED(tide_device_share(NULL, somewhere, &share, parts, 1));
  REFUSED(tide_device_import(NULL, &share, parts, &address));
  REFUSED(tide_device_unimport(NULL, somewhere));
  REFUSED(tide_device_offer(NULL, somewhere, &offer, &offset));
  REFUSED(tide_device_accept(NULL, &offer, &address));
  T_CHECK(tide_device_last_oom() != NULL);
  T_EQ(tide_device_last_oom()->size, 0);
}

// ---------------------------------------------------------------------------------------------------
// No place for the result, nothing to read

DEVICE_TEST_OVER(test_device_badinput__no_place_for_memory, device_emulated) {
  const tide_block block = take(d, NULL, 1000);
  tide_device_cache* made = NULL;
  void* base = NULL;
  REFUSED(tide_device_new(m, 0, NULL, NULL));
  REFUSED(tide_device_new(NULL, 0, NULL, &made));
  REFUSED(tide_device_configure(d, NULL));
  tide_device_get_options(d, NULL);
  REFUSED(tide_device_alloc(d, NULL, 512, NULL));
  REFUSED(tide_device_alloc_at(d, NULL, 512, somewhere, NULL));
  REFUSED(tide_device_find(d, block.address, NULL));
  REFUSED(tide_device_base(d, block.address, NULL, NULL));
  T_NE(tide_device_base(d, NULL, &base, NULL), TIDE_OK);
  REFUSED(tide_device_largest(d, NULL));
  T_EQ(tide_device_bytes(d, NULL), 0);
  T_OK(tide_device_release(d, block_none));
  T_OK(tide_device_release_address(d, NULL));
  T_EQ(current(d, allocation), 1);
  give(d, block);
}

DEVICE_TEST_OVER(test_device_badinput__no_place_for_pools, device_emulated) {
  const tide_pool pool = pool_new(d, NULL);
  const void* const addresses[1] = { somewhere };
  const uint64_t label[2] = { 1, 2 };
  tide_pool found = 0;
  bool is_same = true;
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  REFUSED(tide_device_pool_new(d, NULL, NULL));
  REFUSED(tide_device_pool_users(d, pool, NULL));
  REFUSED(tide_device_pool_find(d, NULL, &found));
  REFUSED(tide_device_pool_find(d, label, NULL));
  REFUSED(tide_device_pool_check(d, pool, addresses, 1, NULL));
  REFUSED(tide_device_pool_check(d, pool, NULL, 1, &is_same));
  T_OK(tide_device_pool_check(d, pool, NULL, 0, &is_same));
  T_CHECK(is_same);
  REFUSED(tide_device_pool_reserved(d, pool, NULL));
  REFUSED(tide_device_checkpoint(d, pool, NULL));
  REFUSED(tide_device_restore(d, NULL, &delta));
  T_EQ(pool_users(d, pool), 1);
}

DEVICE_TEST_OVER(test_device_badinput__no_place_for_what_is_shown, device_emulated) {
  const tide_device_visitor blind = { NULL, NULL, NULL };
  tide_observer observer = 0;
  REFUSED(tide_device_get_stats(d, NULL));
  REFUSED(tide_device_visit(d, NULL));
  REFUSED(tide_device_visit(d, &blind));
  REFUSED(tide_device_visit_pool(d, 0, NULL));
  REFUSED(tide_device_visit_stacks(d, NULL, NULL));
  REFUSED(tide_device_history(d, NULL));
  REFUSED(tide_device_history_visit(d, NULL, NULL));
  REFUSED(tide_device_annotate(d, NULL));
  REFUSED(tide_device_snapshot(d, NULL, NULL));
  REFUSED(tide_device_observe_oom(d, NULL, NULL, &observer));
  REFUSED(tide_device_observe_oom(d, hear_oom, NULL, NULL));
  REFUSED(tide_device_observe_trace(d, NULL, NULL, &observer));
  REFUSED(tide_device_observe_trace(d, hear_entry, NULL, NULL));
  REFUSED(tide_device_observe_entries(d, NULL, NULL, &observer));
  REFUSED(tide_device_observe_entries(d, hear_numbered, NULL, NULL));
  REFUSED(tide_device_observe_reclaim(d, NULL, NULL, &observer));
  REFUSED(tide_device_observe_reclaim(d, reclaim_nothing, NULL, NULL));
  T_STATUS(tide_device_detach(d, 0), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_detach(d, 12345), TIDE_ERR_HANDLE);
  T_EQ(observer, 0);
}

DEVICE_TEST_OVER(test_device_badinput__no_place_for_what_is_shared, device_emulated) {
  const tide_block block = take(d, NULL, 1000);
  tide_share share = { .size = sizeof share };
  tide_physical_share parts[1];
  tide_offer offer = { { 0 } };
  uint64_t offset = 0;
  void* address = NULL;
  REFUSED(tide_device_share(d, block.address, NULL, parts, 1));
  (void)!tide_device_share(d, block.address, &share, NULL, 1);  // like no capacity
  REFUSED(tide_device_import(d, NULL, parts, &address));
  REFUSED(tide_device_import(d, &share, parts, NULL));
  T_NE(tide_device_unimport(d, NULL), TIDE_OK);
  REFUSED(tide_device_offer(d, block.address, NULL, &offset));
  REFUSED(tide_device_offer(d, block.address, &offer, NULL));
  REFUSED(tide_device_accept(d, NULL, &address));
  REFUSED(tide_device_accept(d, &offer, NULL));
  REFUSED(tide_device_accept(d, &offer, &address));
  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Structs of an older header

#define OLDER(type, field) ((uint32_t)offsetof(type, field))

// A shorter struct with bytes behind it that must stay as they are.
typedef struct guarded_options {
  tide_device_options options;
  uint8_t guard[64];
} guarded_options;

static void guarded_init(guarded_options* g, uint32_t size) {
  memset(g, 0xaa, sizeof *g);
  g->options.size = size;
}

static void guarded_expect(const guarded_options* g, uint32_t size) {
  const uint8_t* const bytes = (const uint8_t*)g;
  T_EQ(g->options.size, size);
  for (size_t i = size; i < sizeof *g; ++i) T_EQ(bytes[i], 0xaa);
}

// Options of any version were written whole, over whatever lay behind a shorter struct.
DEVICE_TEST_OVER(test_device_badinput__options_are_written_no_further_than_their_size, device_emulated) {
  static const uint32_t sizes[] = { OLDER(tide_device_options, ties_by_age),
                                    OLDER(tide_device_options, tide_slack),
                                    OLDER(tide_device_options, tide_idle_handles),
                                    OLDER(tide_device_options, virtual_fallback),
                                    sizeof(tide_device_options) };
  for (size_t i = 0; i < 5; ++i) {
    guarded_options g;
    guarded_init(&g, sizes[i]);
    tide_device_get_options(d, &g.options);
    guarded_expect(&g, sizes[i]);
    T_EQ(g.options.policy, device_defaults().policy);
    T_EQ(g.options.large_segment_bytes, 20 * MIB);
  }
}

DEVICE_TEST_OVER(test_device_badinput__older_options_have_the_defaults_of_today, device_emulated) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_options got = TIDE_DEVICE_OPTIONS_INIT;
  const tide_device_options defaults = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* older = NULL;
  options.fixes = true;
  memset(&options.tide_slack, 0xff, sizeof options - offsetof(tide_device_options, tide_slack));
  options.size = OLDER(tide_device_options, tide_slack);

  T_OK(tide_device_new(m, 0, &options, &older));
  tide_device_get_options(older, &got);
  T_CHECK(got.fixes);
  T_CHECK(got.tide_slack == defaults.tide_slack);
  T_EQ(got.tide_most_handle_bytes, defaults.tide_most_handle_bytes);
  options.fixes = false;
  T_OK(tide_device_configure(older, &options));
  tide_device_get_options(older, &got);
  T_CHECK(!got.fixes);
  T_EQ(got.tide_idle_handles, defaults.tide_idle_handles);
  T_CHECK(got.virtual_fallback && got.rdma_handles && got.fabric_handles && !got.plain_pools &&
          got.pinned_pages);

  tide_device_free(older);
}

T_TEST(test_device_badinput__a_text_is_read_into_older_options) {
  guarded_options g;
  const tide_device_options defaults = TIDE_DEVICE_OPTIONS_INIT;
  const uint32_t size = OLDER(tide_device_options, tide_slack);
  char text[64];
  guarded_init(&g, size);
  memcpy((uint8_t*)&g + 4, (const uint8_t*)&defaults + 4, size - 4);

  T_OK(tide_device_options_parse("fixes:True", &g.options));

  T_CHECK(g.options.fixes);
  guarded_expect(&g, size);
  (void)tide_device_options_print(&g.options, text, sizeof text);
  T_STR_EQ(text, "fixes:True");
  REFUSED(tide_device_options_parse("tide_slack:0.25", &g.options));  // it has no place for it
  guarded_expect(&g, size);
}

DEVICE_TEST_OVER(test_device_badinput__structs_of_another_size, device_emulated) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_pool_options pool_options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_snapshot_options snapshot = TIDE_SNAPSHOT_OPTIONS_INIT;
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  static const uint32_t wrong[] = { 0, 3, 4, 8, 100000, UINT32_MAX };
  const tide_pool pool = pool_new(d, NULL);
  for (size_t i = 0; i < 6; ++i) {
    tide_pool made = 7;
    options.size = stats.size = history.size = pool_options.size = scope.size = snapshot.size = wrong[i];
    REFUSED(tide_device_snapshot(d, &snapshot, trace));
    REFUSED(tide_device_configure(d, &options));
    REFUSED(tide_device_options_parse("fixes:True", &options));
    REFUSED(tide_device_get_stats(d, &stats));
    REFUSED(tide_device_history(d, &history));
    REFUSED(tide_device_pool_new(d, &pool_options, &made));
    REFUSED(tide_device_pool_begin(d, pool, &scope));
    T_EQ(made, 0);
  }
  tide_trace_free(trace);
  stats.size = OLDER(tide_device_stats, max_split_bytes);
  stats.max_split_bytes = 77;
  T_OK(tide_device_get_stats(d, &stats));
  T_EQ(stats.max_split_bytes, 77);
  history.size = OLDER(tide_history_options, number);
  T_OK(tide_device_history(d, &history));
  pool_options.size = OLDER(tide_pool_options, closed);
  tide_pool older = 0;
  T_OK(tide_device_pool_new(d, &pool_options, &older));
  T_OK(tide_device_pool_drop(d, older));
  T_EQ(pool_users(d, pool), 1);
}

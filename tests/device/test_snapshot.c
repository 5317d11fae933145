// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of an allocator in use: what it contains, and that it can be written and read back.
#define T_THREADS
#define DEVICE_HAS_PLAIN
#include "device/devices.h"
#include "format/traces.h"
#include "tidemark/replay.h"

#define FRAME_OUTER 0x1000u
#define FRAME_INNER 0x2000u

static size_t gather_two(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  T_LT(1, capacity);
  frames[0] = FRAME_INNER;
  frames[1] = FRAME_OUTER;
  return 2;
}

static bool describe_inner(void* user, uint64_t frame, tide_frame_words* out) {
  (void)user;
  if (frame != FRAME_INNER) return false;
  *out = (tide_frame_words){ "forward", "model.py", 42 };
  return true;
}

static tide_trace* snapshot_of(tide_device_cache* d, const tide_snapshot_options* options) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(d, options, trace));
  return trace;
}

static const char* text_of(const tide_trace* trace, uint32_t text) {
  const char* const words = tide_intern_text(tide_trace_names(trace), text, NULL);
  return words != NULL ? words : "";
}

static uint32_t number_inner(void* user) {
  (void)user;
  return FRAME_INNER;
}

static void history_with(tide_device_cache* d, size_t (*gather)(void*, uint64_t*, size_t),
                         uint32_t (*number)(void*)) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather;
  options.number = number;
  T_OK(tide_device_history(d, &options));
}

static void stacks_on(tide_device_cache* d) { history_with(d, gather_two, NULL); }

// The stack of the first request is one of `frames`; the innermost is described.
static void expect_frames(tide_device_cache* d, size_t frames) {
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  options.describe = describe_inner;
  give(d, take(d, NULL, 1000));
  tide_trace* trace = snapshot_of(d, &options);
  const tide_intern* const names = tide_trace_names(trace);
  size_t count = 0;
  const uint64_t* const stack = tide_intern_stack(names, tide_trace_entries(trace, 0, NULL)[1].stack, &count);
  T_EQ(count, frames);
  const tide_frame inner = tide_intern_frame(names, (uint32_t)stack[0]);
  T_STR_EQ(text_of(trace, inner.name), "forward");
  T_STR_EQ(text_of(trace, inner.file), "model.py");
  T_EQ(inner.line, 42);
  if (frames > 1) T_STR_EQ(text_of(trace, tide_intern_frame(names, (uint32_t)stack[1]).name), "0x1000");
  tide_trace_free(trace);
}

DEVICE_TEST(test_snapshot__a_number_is_a_stack_of_one_frame) {
  history_with(d, NULL, number_inner);
  expect_frames(d, 1);
}

DEVICE_TEST(test_snapshot__names_the_frames_it_can) {
  stacks_on(d);
  expect_frames(d, 2);
}

DEVICE_TEST(test_snapshot__has_the_history_and_the_segments) {
  stacks_on(d);
  const tide_block kept = take(d, NULL, 4 * MIB);
  const tide_block gone = take(d, NULL, 1000);
  give(d, gone);

  tide_trace* trace = snapshot_of(d, NULL);

  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  T_EQ(count, 6);
  T_EQ(entries[0].action, growth_action());
  T_EQ(entries[1].action, TIDE_ACTION_ALLOC);
  T_EQ(entries[1].address, (uintptr_t)kept.address);
  T_EQ(entries[1].bytes, 4 * MIB);
  T_EQ(entries[5].action, TIDE_ACTION_FREE_COMPLETED);
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  T_EQ(count, 2);
  uint64_t allocated = 0;
  for (size_t i = 0; i < count; i++) allocated += segments[i].allocated_bytes;
  T_EQ(allocated, 4 * MIB);
  T_CHECK(tide_trace_get_about(trace).has_segments);
  tide_trace_free(trace);
  give(d, kept);
}

DEVICE_TEST(test_snapshot__tells_the_options) {
  tide_device_options device_options = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse("max_split_size_mb:64,roundup_power2_divisions:8", &device_options));
  T_OK(tide_device_configure(d, &device_options));

  tide_trace* trace = snapshot_of(d, NULL);

  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t settings = tide_trace_get_about(trace).settings;
  const uint32_t split = tide_intern_value_find(names, settings, "max_split_size");
  T_EQ(tide_intern_value(names, split).integer, 64 * MIB);
  const uint32_t slots = tide_intern_value_find(names, settings, "roundup_power2_divisions");
  T_EQ(tide_intern_value(names, tide_intern_value_find(names, slots, "4096")).integer, 8);
  const uint32_t text = tide_intern_value_find(names, settings, "PYTORCH_CUDA_ALLOC_CONF");
  T_STR_HAS(text_of(trace, tide_intern_value(names, text).text), "max_split_size_mb:64");
  tide_trace_free(trace);
}

DEVICE_TEST(test_snapshot__shows_pools_and_remarks) {
  stacks_on(d);
  tide_pool_options pool_options = TIDE_POOL_OPTIONS_INIT;
  pool_options.label[1] = 7;
  tide_pool pool = 0;
  T_OK(tide_device_pool_new(d, &pool_options, &pool));
  T_OK(pool_begin_kept(d, pool, NULL));
  T_OK(tide_thread_set_metadata("step 3"));
  const tide_block block = take(d, NULL, MIB);
  T_OK(tide_thread_set_metadata(NULL));
  T_OK(tide_device_pool_end(d, pool));

  tide_trace* trace = snapshot_of(d, NULL);

  const tide_trace_entry* const entry = &tide_trace_entries(trace, 0, NULL)[1];
  T_EQ(tide_trace_pool(trace, entry->pool).first, 0);
  T_EQ(tide_trace_pool(trace, entry->pool).second, 7);
  T_EQ(tide_trace_segments(trace, NULL)[0].pool, entry->pool);
  const tide_note note = tide_intern_note(tide_trace_names(trace), entry->note);
  T_STR_EQ(text_of(trace, note.metadata), "step 3");
  T_STR_EQ(text_of(trace, note.compile_context), "N/A");
  tide_trace_free(trace);
  give(d, block);
  T_OK(tide_device_pool_drop(d, pool));
  T_OK(tide_device_pool_drop(d, pool));
}

// How many entries and segments of a trace are of another pool, and how many remarks it has.
typedef struct others {
  size_t entries;
  size_t segments;
  size_t remarks;
} others;

static others others_of(const tide_trace* trace, uint64_t label) {
  others found = { 0 };
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; i++) {
    const bool is_remark = entries[i].action == TIDE_ACTION_USER_DEFINED;
    found.remarks += is_remark;
    found.entries += !is_remark && tide_trace_pool(trace, entries[i].pool).second != label;
  }
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++)
    found.segments += tide_trace_pool(trace, segments[i].pool).second != label;
  return found;
}

static void expect_only(tide_device_cache* d, tide_pool pool, uint64_t label, uint64_t bytes) {
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  size_t count = 0;
  uint64_t allocated = 0;
  options.pool = &pool;
  tide_trace* const trace = snapshot_of(d, &options);
  const others found = others_of(trace, label);
  T_EQ(found.entries + found.segments, 0);
  T_EQ(found.remarks, 1);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, &count);
  for (size_t i = 0; i < count; i++)
    allocated += blocks[i].state == TIDE_BLOCK_ALLOCATED ? blocks[i].requested_bytes : 0;
  T_EQ(allocated, bytes);
  (void)tide_trace_entries(trace, 0, &count);
  T_LE(3, count);
  tide_trace_free(trace);
}

DEVICE_TEST(test_snapshot__of_one_pool_has_nothing_of_others) {
  tide_pool_options pool_options = TIDE_POOL_OPTIONS_INIT;
  tide_pool pool = 0;
  pool_options.label[1] = 7;
  stacks_on(d);
  T_OK(tide_device_pool_new(d, &pool_options, &pool));
  const tide_block outside = take(d, NULL, 3 * MIB);
  T_OK(pool_begin_kept(d, pool, NULL));
  const tide_block inside = take(d, NULL, 5 * MIB);
  T_OK(tide_device_pool_end(d, pool));
  T_OK(tide_device_annotate(d, "here"));

  expect_only(d, pool, 7, 5 * MIB);
  expect_only(d, TIDE_POOL_DEFAULT, 0, 3 * MIB);

  give(d, inside);
  give(d, outside);
  T_OK(tide_device_pool_drop(d, pool));
  T_OK(tide_device_pool_drop(d, pool));
  T_OK(tide_device_trim(d, 0));
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  tide_trace* trace = NULL;
  options.pool = &pool;
  T_OK(tide_trace_new(NULL, &trace));
  T_STATUS(tide_device_snapshot(d, &options, trace), TIDE_ERR_HANDLE);
  tide_trace_free(trace);
}

DEVICE_TEST(test_snapshot__can_leave_the_history_out) {
  stacks_on(d);
  const tide_block block = take(d, NULL, MIB);
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  options.has_entries = false;

  tide_trace* trace = snapshot_of(d, &options);

  size_t count = 1;
  T_EQ(tide_trace_device_count(trace), 1);
  (void)tide_trace_entries(trace, 0, &count);
  T_EQ(count, 0);
  (void)tide_trace_blocks(trace, &count);
  T_LT(0, count);
  tide_trace_free(trace);
  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Through a file

// What is read of a trace that was written in a format.
static tide_trace* through_file(const tide_trace* trace, tide_format format) {
  memory_file file = { 0 };
  tide_trace* again = NULL;
  const tide_sink sink = memory_file_sink(&file);
  T_OK(tide_trace_write(trace, format, &sink));
  const tide_source source = memory_file_source(&file);
  T_OK(tide_trace_read(&source, NULL, &again));
  memory_file_fini(&file);
  return again;
}

DEVICE_TEST(test_snapshot__is_read_back_from_a_file) {
  stacks_on(d);
  const tide_block block = take(d, NULL, 6 * MIB);
  tide_trace* trace = snapshot_of(d, NULL);

  tide_trace* again = through_file(trace, TIDE_FORMAT_PICKLE);

  size_t count = 0;
  size_t count_again = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  const tide_trace_entry* const entries_again = tide_trace_entries(again, 0, &count_again);
  T_EQ(count_again, count);
  T_EQ(entries_again[1].address, entries[1].address);
  T_EQ(entries_again[1].time_ns, entries[1].time_ns / 1000 * 1000);
  const tide_trace_block* const blocks = tide_trace_blocks(again, NULL);
  T_EQ(blocks[0].address, (uintptr_t)block.address);
  T_EQ(blocks[0].state, TIDE_BLOCK_ALLOCATED);
  tide_trace_free(trace);
  tide_trace_free(again);
  give(d, block);
}

static const tide_format snapshot_formats[] = { TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON, TIDE_FORMAT_NATIVE };
enum { SNAPSHOT_FORMATS = 3 };

// The n-th entry of an action.
static const tide_trace_entry* entry_nth(const tide_trace* trace, tide_action action, size_t n) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].action == action && n-- == 0) return &entries[i];
  }
  T_FAIL("there is no such %s", tide_action_name(action));
}

static const char* metadata_of(const tide_trace* trace, const tide_trace_entry* entry) {
  return text_of(trace, tide_intern_note(tide_trace_names(trace), entry->note).metadata);
}

// The number of the text was taken for that of a note: other metadata was shown, or none.
DEVICE_TEST(test_snapshot__annotations_reach_every_file) {
  history_on(d);
  T_OK(tide_thread_set_metadata("batch 1"));
  const tide_block block = take(d, NULL, 1000);
  T_OK(tide_device_annotate(d, "my remark"));
  T_OK(tide_thread_set_metadata(NULL));
  T_OK(tide_device_annotate(d, "my remark"));
  T_OK(tide_device_annotate(d, ""));
  give(d, block);

  tide_trace* trace = snapshot_of(d, NULL);

  for (size_t i = 0; i < SNAPSHOT_FORMATS; ++i) {
    tide_trace* again = through_file(trace, snapshot_formats[i]);
    T_STR_EQ(metadata_of(again, entry_nth(again, TIDE_ACTION_ALLOC, 0)), "batch 1");
    T_STR_EQ(metadata_of(again, entry_nth(again, TIDE_ACTION_USER_DEFINED, 0)), "my remark");
    T_STR_EQ(metadata_of(again, entry_nth(again, TIDE_ACTION_USER_DEFINED, 1)), "my remark");
    T_STR_EQ(metadata_of(again, entry_nth(again, TIDE_ACTION_USER_DEFINED, 2)), "");
    T_STR_EQ(metadata_of(again, entry_nth(again, TIDE_ACTION_FREE_COMPLETED, 0)), "");
    tide_trace_free(again);
  }
  tide_trace_free(trace);
}

static void expect_pool_of(const tide_trace* trace, uint32_t pool, uint64_t first, uint64_t second) {
  T_EQ(tide_trace_pool(trace, pool).first, first);
  T_EQ(tide_trace_pool(trace, pool).second, second);
}

static void expect_replay_holds(const tide_trace* trace, uint64_t allocations) {
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  options.checks = true;
  const tide_device_options device = tide_replay_recorded_options(replay);
  options.device = &device;
  T_OK(tide_replay_run(replay, &options, &result));
  T_STR_EQ(result.mismatch, "");
  T_EQ(result.mismatched_addresses + result.mismatched_segments, 0);
  T_EQ(result.allocations, allocations);
  tide_replay_free(replay);
}

// They were written as the default pool, and the replay refused the file.
TORCH_TEST(test_snapshot__pools_without_a_label_are_not_the_default_pool) {
  history_on(d);
  const tide_pool pools[2] = { pool_new(d, NULL), pool_new(d, NULL) };
  tide_block blocks[3];
  for (size_t i = 0; i < 2; ++i) blocks[i] = take_in(d, pools[i], NULL, 1000);
  blocks[2] = take(d, NULL, 1000);

  tide_trace* trace = snapshot_of(d, NULL);

  for (size_t i = 0; i < SNAPSHOT_FORMATS; ++i) {
    tide_trace* again = through_file(trace, snapshot_formats[i]);
    for (size_t k = 0; k < 3; ++k) {
      const tide_trace_entry* const entry = entry_nth(again, TIDE_ACTION_ALLOC, k);
      size_t count = 0;
      const tide_trace_segment* segment = tide_trace_segments(again, &count);
      T_EQ(count, 3);
      while (segment->address != entry->address) ++segment;
      expect_pool_of(again, entry->pool, 0, k < 2 ? pools[k] : 0);
      expect_pool_of(again, segment->pool, 0, k < 2 ? pools[k] : 0);
    }
    expect_replay_holds(again, 3);
    tide_trace_free(again);
  }
  tide_trace_free(trace);
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);
}

// Its entries said { 0, number } as soon as it was gone, whatever its label.
DEVICE_TEST(test_snapshot__a_pool_that_is_gone_keeps_its_label) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = 31;
  options.label[1] = 7;
  history_on(d);
  const tide_pool pools[2] = { pool_new(d, &options), pool_new(d, NULL) };
  for (size_t i = 0; i < 2; ++i) {
    give(d, take_in(d, pools[i], NULL, 1000));
    T_OK(tide_device_pool_drop(d, pools[i]));
  }
  trim(d);
  T_STATUS(tide_device_pool_retain(d, pools[0]), TIDE_ERR_HANDLE);

  tide_trace* trace = snapshot_of(d, NULL);

  expect_pool_of(trace, entry_nth(trace, TIDE_ACTION_ALLOC, 0)->pool, 31, 7);
  expect_pool_of(trace, entry_nth(trace, TIDE_ACTION_ALLOC, 1)->pool, 0, pools[1]);
  expect_pool_of(trace, entry_nth(trace, pool_shrink_action(), 0)->pool, 31, 7);
  tide_trace_free(trace);
}

// The replay kept a user of every pool for ever, and memory that was given back stayed there.
TORCH_TEST(test_snapshot__a_replay_repeats_the_end_of_a_pool) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = 3;
  history_on(d);
  const tide_pool pools[3] = { pool_new(d, &options), pool_new(d, NULL), pool_new(d, NULL) };
  for (size_t i = 0; i < 3; ++i) give(d, take_in(d, pools[i], NULL, 1000));
  for (size_t i = 0; i < 2; ++i) T_OK(tide_device_pool_drop(d, pools[i]));
  trim(d);
  const tide_block block = take_in(d, pools[2], NULL, 1000);

  tide_trace* trace = snapshot_of(d, NULL);

  expect_replay_holds(trace, 4);
  tide_trace_free(trace);
  give(d, block);
}

// Tags, and what is parked, are keys of segments that other tools ignore. Every format keeps them.
DEVICE_TEST(test_snapshot__tags_and_parked_segments_are_read_back_from_a_file) {
  static const tide_format formats[] = { TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON, TIDE_FORMAT_NATIVE };
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "weights/actor";
  const tide_block block = take_in(d, pool_new(d, &options), NULL, 6 * MIB);
  const tide_block common = take(d, NULL, 2 * MIB);
  const bool parks = is_tide() && !has_plain_pools();
  if (parks) T_OK(tide_device_park(d, "weights", NULL, NULL));
  tide_trace* trace = snapshot_of(d, NULL);
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; ++i) {
    tide_trace* again = through_file(trace, formats[i]);
    size_t count = 0;
    const tide_trace_segment* const segments = tide_trace_segments(again, &count);
    T_EQ(count, 2);
    for (size_t k = 0; k < count; ++k) {
      const bool is_tagged = segments[k].pool != 0;
      T_STR_EQ(tide_trace_segment_tag(again, &segments[k]), is_tagged ? "weights/actor" : "");
      T_EQ(tide_trace_segment_is_parked(again, &segments[k]), is_tagged && parks);
    }
    tide_trace_free(again);
  }
  tide_trace_free(trace);
  give(d, block);
  give(d, common);
}

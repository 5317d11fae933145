// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// History: which entries come, with which stack and note; what is kept; who is told; and what a visit shows.
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Stacks: one frame that says where the test is

static uint64_t where;

static size_t gather_where(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  T_LT(1, capacity);
  frames[0] = where;
  frames[1] = 1000;
  return 2;
}

static void history_at(tide_device_cache* d, tide_history_level level) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = (uint8_t)level;
  if (level != TIDE_HISTORY_NEVER) options.gather = gather_where;
  T_OK(tide_device_history(d, &options));
}

// The first frame of a stack; 0 for none.
static uint64_t frame_of(tide_device_cache* d, uint32_t stack) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(tide_device_names(d), stack, &count);
  if (stack == 0) return 0;
  T_EQ(count, 2);
  T_EQ(frames[1], 1000);
  return frames[0];
}

enum { AT_ALLOC = 1, AT_FREE = 2, AT_TRIM = 3 };

// A block comes and goes, and its segment.
static void live_and_die(tide_device_cache* d) {
  where = AT_ALLOC;
  const tide_block block = take(d, NULL, 1000);
  where = AT_FREE;
  give(d, block);
  where = AT_TRIM;
  trim(d);
}

static uint64_t frame_at(tide_device_cache* d, tide_action action) {
  story s;
  read_story(d, &s);
  return frame_of(d, story_last(&s, action)->stack);
}

// ---------------------------------------------------------------------------------------------------
// Entries

DEVICE_TEST(test_device__history_is_off_at_first) {
  (void)m;
  story s;
  T_CHECK(!tide_device_has_history(d));

  live_and_die(d);

  read_story(d, &s);
  T_EQ(s.count, 0);
}

DEVICE_TEST(test_device__history_tells_the_life_of_a_block) {
  const tide_stream stream = side_new(m);
  const uint8_t wanted[] = { growth_action(), TIDE_ACTION_ALLOC, TIDE_ACTION_FREE_REQUESTED,
                             TIDE_ACTION_FREE_COMPLETED, shrink_action() };
  story s;
  history_on(d);
  T_CHECK(tide_device_has_history(d));

  const tide_block block = take(d, stream, 1000);
  give(d, block);
  trim(d);

  read_story(d, &s);
  T_EQ(s.count, 5);
  for (size_t i = 0; i < 5; ++i) {
    const tide_trace_entry* const e = &s.entries[i];
    const bool is_segment = i == 0 || i == 4;
    T_EQ(e->action, wanted[i]);
    T_EQ(e->address, (uintptr_t)block.address);
    T_EQ(e->bytes, is_segment ? 2 * MIB : 1000);
    T_EQ(e->stream, (uintptr_t)stream);
    T_EQ(e->device, 0);
    T_EQ(e->pool, 0);
    T_EQ(e->stack, 0);
  }
}

TORCH_TEST(test_device__history_tells_mapping_and_unmapping) {
  story s;
  expand(m, d);
  history_on(d);

  const tide_block block = take(d, NULL, 22 * MIB);
  give(d, block);
  trim(d);

  read_story(d, &s);
  T_EQ(s.entries[0].action, TIDE_ACTION_SEGMENT_MAP);
  T_EQ(s.entries[0].bytes, 40 * MIB);
  T_EQ(s.entries[0].address, (uintptr_t)block.address);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_SEGMENT_UNMAP);
  T_EQ(s.entries[s.count - 1].bytes, 40 * MIB);
}

// What the history tells of memory taken and given back must add up to what is reserved.
static void expect_history_adds_up(tide_device_cache* d) {
  story s;
  int64_t bytes = 0;
  read_story(d, &s);
  for (size_t i = 0; i < s.count; ++i) {
    const tide_trace_entry* const e = &s.entries[i];
    const bool is_more = e->action == TIDE_ACTION_SEGMENT_ALLOC || e->action == TIDE_ACTION_SEGMENT_MAP;
    const bool is_less = e->action == TIDE_ACTION_SEGMENT_FREE || e->action == TIDE_ACTION_SEGMENT_UNMAP;
    if (is_more) bytes += (int64_t)e->bytes;
    if (is_less) bytes -= (int64_t)e->bytes;
    T_LE(0, bytes);
  }
  T_EQ(bytes, current(d, reserved_bytes));
}

DEVICE_TEST(test_device__history_adds_up_to_what_is_reserved) {
  const tide_stream side = side_new(m);
  tide_block blocks[4];
  history_on(d);
  for (size_t i = 0; i < 4; ++i) {
    blocks[i] = take(d, i % 2 == 0 ? NULL : side, 3 * MIB);
    expect_history_adds_up(d);
  }
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);
  expect_history_adds_up(d);
  const tide_block large = take(d, NULL, 10 * MIB);  // of more than one of them
  expect_history_adds_up(d);
  give(d, large);
  expect_history_adds_up(d);
  trim(d);
  expect_history_adds_up(d);
  give(d, blocks[3]);
  trim(d);

  T_EQ(current(d, reserved_bytes), 0);
  expect_history_adds_up(d);
}

DEVICE_TEST(test_device__newest_entry_is_the_request_as_it_was_made) {
  (void)m;
  story s;
  history_on(d);

  (void)take(d, NULL, 311 * KIB + 3);

  read_story(d, &s);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_ALLOC);
  T_EQ(s.entries[s.count - 1].bytes, 311 * KIB + 3);
}

DEVICE_TEST(test_device__history_names_the_pool) {
  (void)m;
  const tide_pool pool = pool_new(d, NULL);
  story s;
  history_on(d);

  (void)take_in(d, pool, NULL, 1000);

  read_story(d, &s);
  T_EQ(story_last(&s, TIDE_ACTION_ALLOC)->pool, pool);
  T_EQ(story_last(&s, growth_action())->pool, pool);
}

DEVICE_TEST(test_device__history_tells_an_oom_with_the_free_bytes) {
  story s;
  history_on(d);
  limit_to(d, 10 * MIB);

  expect_oom(d, NULL, 12 * MIB + 1);

  read_story(d, &s);
  T_EQ(s.count, 1);
  T_EQ(s.entries[0].action, TIDE_ACTION_OOM);
  T_EQ(s.entries[0].bytes, 12 * MIB + 512);
  if (!is_cuda(m)) T_EQ(s.entries[0].address, free_bytes(m, 0));
}

DEVICE_TEST(test_device__a_visit_leaves_a_snapshot_entry) {
  (void)m;
  story s;
  seen inside;
  history_on(d);
  (void)take(d, NULL, 1000);

  look(d, &inside);

  read_story(d, &s);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_SNAPSHOT);
  T_EQ(s.entries[s.count - 1].bytes, 1024);
  T_EQ(s.entries[s.count - 1].address, 0);
}

static bool see_segment(void* user, const tide_segment_info* segment) {
  *(uint64_t*)user += segment->bytes;
  return true;
}

DEVICE_TEST(test_device__the_snapshot_entry_of_a_pool_counts_that_pool) {
  (void)m;
  story s;
  uint64_t bytes = 0;
  const tide_device_visitor visitor = { see_segment, NULL, &bytes };
  const tide_pool pool = pool_new(d, NULL);
  history_on(d);
  (void)take(d, NULL, 1000);
  scope_open(d, pool);
  (void)take(d, NULL, 4096);
  scope_close(d, pool);

  T_OK(tide_device_visit_pool(d, pool, &visitor));

  read_story(d, &s);
  T_EQ(bytes, 2 * MIB);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_SNAPSHOT);
  T_EQ(s.entries[s.count - 1].bytes, 4096);
}

DEVICE_TEST(test_device__a_waiting_release_completes_later) {
  const tide_stream side = side_new(m);
  gate g;
  story s;
  history_on(d);
  const tide_block block = take(d, NULL, 1000);
  hold_up(&g, m, side);
  announce(d, block, side);

  give(d, block);
  read_story(d, &s);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_REQUESTED), 1);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_COMPLETED), 0);
  let_go(&g);
  T_OK(tide_device_poll(d));

  read_story(d, &s);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_COMPLETED), 1);
  T_EQ(story_last(&s, TIDE_ACTION_FREE_COMPLETED)->bytes, 1000);
}

DEVICE_TEST(test_device__times_do_not_go_back) {
  (void)m;
  story s;
  history_on(d);
  for (int i = 0; i < 20; ++i) give(d, take(d, NULL, 4096));

  read_story(d, &s);

  for (size_t i = 1; i < s.count; ++i) T_LE(s.entries[i - 1].time_ns, s.entries[i].time_ns);
  T_LE(s.entries[s.count - 1].time_ns, clock_ns(m));
}

// ---------------------------------------------------------------------------------------------------
// Levels

DEVICE_TEST(test_device__level_never_gathers_no_stack) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  seen inside;
  options.gather = gather_where;
  T_OK(tide_device_history(d, &options));

  where = AT_ALLOC;
  (void)take(d, NULL, 1000);

  look(d, &inside);
  T_EQ(inside.segments[0].stack, 0);
  T_EQ(inside.blocks[0].stack, 0);
  T_EQ(frame_at(d, TIDE_ACTION_ALLOC), 0);
}

DEVICE_TEST(test_device__level_state_shows_stacks_on_blocks_and_segments_only) {
  (void)m;
  seen inside;
  history_at(d, TIDE_HISTORY_STATE);

  where = AT_ALLOC;
  const tide_block block = take(d, NULL, 1000);

  look(d, &inside);
  T_EQ(frame_of(d, inside.segments[0].stack), AT_ALLOC);
  T_EQ(frame_of(d, inside.blocks[0].stack), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_ALLOC), 0);
  T_EQ(frame_at(d, growth_action()), 0);
  give(d, block);
  T_EQ(frame_at(d, TIDE_ACTION_FREE_REQUESTED), 0);
}

DEVICE_TEST(test_device__level_alloc_shows_the_stack_of_the_request_everywhere) {
  (void)m;
  history_at(d, TIDE_HISTORY_ALLOC);

  live_and_die(d);

  T_EQ(frame_at(d, growth_action()), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_ALLOC), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_FREE_REQUESTED), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_FREE_COMPLETED), AT_ALLOC);
  T_EQ(frame_at(d, shrink_action()), AT_ALLOC);
}

DEVICE_TEST(test_device__level_all_shows_who_released_and_who_trimmed) {
  (void)m;
  history_at(d, TIDE_HISTORY_ALL);

  live_and_die(d);

  T_EQ(frame_at(d, TIDE_ACTION_ALLOC), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_FREE_REQUESTED), AT_FREE);
  T_EQ(frame_at(d, TIDE_ACTION_FREE_COMPLETED), AT_FREE);
  T_EQ(frame_at(d, shrink_action()), AT_TRIM);
}

DEVICE_TEST(test_device__level_all_shows_who_unmapped) {
  expand(m, d);
  history_at(d, TIDE_HISTORY_ALL);

  live_and_die(d);

  T_EQ(frame_at(d, TIDE_ACTION_SEGMENT_MAP), AT_ALLOC);
  T_EQ(frame_at(d, TIDE_ACTION_SEGMENT_UNMAP), AT_TRIM);
}

DEVICE_TEST(test_device__idle_blocks_show_no_stack) {
  (void)m;
  seen inside;
  history_at(d, TIDE_HISTORY_ALL);
  where = AT_ALLOC;
  const tide_block block = take(d, NULL, 1000);
  (void)take(d, NULL, 1000);

  give(d, block);

  look(d, &inside);
  T_EQ(inside.blocks[0].state, TIDE_BLOCK_INACTIVE);
  T_EQ(inside.blocks[0].stack, 0);
  T_EQ(frame_of(d, inside.blocks[1].stack), AT_ALLOC);
}

DEVICE_TEST(test_device__level_can_go_down_and_up_and_entries_stay) {
  (void)m;
  story s;
  history_at(d, TIDE_HISTORY_ALL);
  where = 11;
  (void)take(d, NULL, 1000);
  history_at(d, TIDE_HISTORY_NEVER);
  (void)take(d, NULL, 1000);
  history_at(d, TIDE_HISTORY_ALL);
  where = 12;
  (void)take(d, NULL, 1000);

  read_story(d, &s);

  T_EQ(s.count, 4);
  T_EQ(frame_of(d, s.entries[1].stack), 11);
  T_EQ(s.entries[2].stack, 0);
  T_EQ(frame_of(d, s.entries[3].stack), 12);
}

// ---------------------------------------------------------------------------------------------------
// Numbers in the place of stacks

typedef struct numbering {
  tide_device_cache* device;
  uint32_t last;
  bool looks;  // visits while it is asked
  size_t shown[64];
} numbering;

static void number_show(void* user, uint32_t stack) {
  numbering* const n = user;
  T_LT(stack, 64);
  n->shown[stack]++;
}

static void numbers_look(numbering* n) {
  memset(n->shown, 0, sizeof n->shown);
  T_OK(tide_device_visit_stacks(n->device, number_show, n));
}

static uint32_t number_next(void* user) {
  numbering* const n = user;
  if (n->looks) numbers_look(n);
  return ++n->last;
}

static void numbers_on(numbering* n, tide_device_cache* d, uint64_t entries) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  *n = (numbering){ .device = d };
  options.level = TIDE_HISTORY_ALL;
  options.max_entries = entries;
  options.number = number_next;
  options.user = n;
  T_OK(tide_device_history(d, &options));
}

DEVICE_TEST(test_device__numbers_stand_for_stacks) {
  (void)m;
  numbering n;
  story s;
  numbers_on(&n, d, 100);
  n.looks = true;

  const tide_block block = take(d, NULL, 1000);
  give(d, block);
  trim(d);

  read_story(d, &s);
  T_EQ(n.last, 3);
  T_EQ(story_last(&s, TIDE_ACTION_ALLOC)->stack, 1);
  T_EQ(story_last(&s, TIDE_ACTION_FREE_REQUESTED)->stack, 2);
  T_EQ(tide_intern_counts_of(tide_device_names(d)).stacks, 0);
}

// What is in use: the stacks of blocks and segments, also of those whose entries are gone, and of entries.
DEVICE_TEST(test_device__the_stacks_in_use_are_shown) {
  (void)m;
  numbering n;
  numbers_on(&n, d, 4);
  give(d, take(d, NULL, 1000));                 // 1, which the segment keeps, and 2
  const tide_block kept = take(d, NULL, 1000);  // 3
  for (size_t i = 0; i < 10; i++) give(d, take(d, NULL, 1000));
  story before;
  read_story(d, &before);

  numbers_look(&n);

  story s;
  read_story(d, &s);
  T_EQ(n.last, 23);
  T_LT(0, n.shown[1]);
  T_LT(0, n.shown[3]);
  T_LT(0, n.shown[n.last]);
  for (size_t i = 4; i < 18; i++) T_EQ(n.shown[i], 0);
  T_EQ(s.count, before.count);  // no entry was made
  give(d, kept);
  for (size_t i = 0; i < 4; i++) give(d, take(d, NULL, 1000));
  numbers_look(&n);
  T_EQ(n.shown[3], 0);
}

DEVICE_TEST(test_device__a_level_needs_a_function_that_gathers) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_STATE;
  T_STATUS(tide_device_history(d, &options), TIDE_ERR_ARGUMENT);

  options.gather = gather_where;
  options.number = number_next;
  T_STATUS(tide_device_history(d, &options), TIDE_ERR_ARGUMENT);

  options.level = 9;
  options.number = NULL;

  T_STATUS(tide_device_history(d, &options), TIDE_ERR_ARGUMENT);
  T_CHECK(!tide_device_has_history(d));
}

static size_t gather_much(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  for (size_t i = 0; i < capacity; ++i) frames[i] = i;
  return capacity + 100;
}

DEVICE_TEST(test_device__stacks_are_cut_at_64_frames) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  story s;
  size_t count = 0;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather_much;
  T_OK(tide_device_history(d, &options));

  (void)take(d, NULL, 1000);

  read_story(d, &s);
  T_CHECK(tide_intern_stack(tide_device_names(d), s.entries[0].stack, &count) != NULL);
  T_EQ(count, 64);
}

DEVICE_TEST(test_device__equal_stacks_have_one_number) {
  (void)m;
  story s;
  history_at(d, TIDE_HISTORY_ALL);
  where = 5;
  for (int i = 0; i < 10; ++i) give(d, take(d, NULL, 1000));

  read_story(d, &s);

  for (size_t i = 0; i < s.count; ++i) T_EQ(s.entries[i].stack, s.entries[0].stack);
}

// ---------------------------------------------------------------------------------------------------
// What is kept

static size_t count_with_skips(tide_device_cache* d, uint32_t skips) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  story s;
  options.skips = skips;
  options.clears = true;
  T_OK(tide_device_history(d, &options));
  live_and_die(d);
  read_story(d, &s);
  for (size_t i = 0; i < s.count; ++i) T_EQ(skips >> s.entries[i].action & 1, 0);
  return s.count;
}

DEVICE_TEST(test_device__actions_can_be_skipped) {
  (void)m;
  T_EQ(count_with_skips(d, 0), 5);
  T_EQ(count_with_skips(d, 1u << TIDE_ACTION_FREE_REQUESTED), 4);
  T_EQ(count_with_skips(d, 1u << TIDE_ACTION_FREE_REQUESTED | 1u << TIDE_ACTION_FREE_COMPLETED), 3);
  T_EQ(count_with_skips(d, 1u << growth_action() | 1u << shrink_action()), 3);
  T_EQ(count_with_skips(d, UINT32_MAX), 0);
}

static void keep_at_most(tide_device_cache* d, uint64_t entries) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = entries;
  T_OK(tide_device_history(d, &options));
}

DEVICE_TEST(test_device__the_newest_entries_are_kept) {
  (void)m;
  story s;
  keep_at_most(d, 7);

  for (size_t i = 1; i <= 20; ++i) (void)take(d, NULL, i);

  read_story(d, &s);
  T_EQ(s.count, 7);
  for (size_t i = 0; i < 7; ++i) T_EQ(s.entries[i].bytes, 14 + i);
}

DEVICE_TEST(test_device__at_least_one_entry_is_kept) {
  (void)m;
  story s;
  keep_at_most(d, 0);

  live_and_die(d);

  read_story(d, &s);
  T_EQ(s.count, 1);
  T_EQ(s.entries[0].action, shrink_action());
}

DEVICE_TEST(test_device__a_smaller_history_keeps_the_newest) {
  (void)m;
  story s;
  keep_at_most(d, 100);
  for (size_t i = 1; i <= 20; ++i) (void)take(d, NULL, i);

  keep_at_most(d, 5);
  read_story(d, &s);
  T_EQ(s.count, 5);
  T_EQ(s.entries[0].bytes, 16);
  T_EQ(s.entries[4].bytes, 20);
  (void)take(d, NULL, 21);

  read_story(d, &s);
  T_EQ(s.count, 5);
  T_EQ(s.entries[4].bytes, 21);
}

DEVICE_TEST(test_device__clearing_forgets_entries) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  story s;
  history_on(d);
  live_and_die(d);

  options.clears = true;
  T_OK(tide_device_history(d, &options));
  read_story(d, &s);
  T_EQ(s.count, 0);
  live_and_die(d);

  read_story(d, &s);
  T_EQ(s.count, 5);
}

DEVICE_TEST(test_device__switching_off_forgets_entries) {
  (void)m;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  story s;
  history_on(d);
  live_and_die(d);

  options.is_on = false;
  T_OK(tide_device_history(d, &options));
  live_and_die(d);

  read_story(d, &s);
  T_EQ(s.count, 0);
  T_CHECK(!tide_device_has_history(d));
}

static bool count_pieces(void* user, const tide_trace_entry* entries, size_t count) {
  (void)entries;
  T_LT(0, count);
  ++*(int*)user;
  return false;
}

DEVICE_TEST(test_device__a_history_visit_ends_when_told) {
  (void)m;
  int pieces = 0;
  history_on(d);
  for (size_t i = 0; i < 1000; ++i) give(d, take(d, NULL, 512));

  T_OK(tide_device_history_visit(d, count_pieces, &pieces));

  T_EQ(pieces, 1);
}

// ---------------------------------------------------------------------------------------------------
// Words of the user

static const char* text_of(tide_device_cache* d, uint32_t text) {
  return text == 0 ? "" : tide_intern_text(tide_device_names(d), text, NULL);
}

static tide_note last_note(tide_device_cache* d, tide_action action) {
  story s;
  read_story(d, &s);
  return tide_intern_note(tide_device_names(d), story_last(&s, action)->note);
}

DEVICE_TEST(test_device__annotations_are_entries_with_their_text) {
  (void)m;
  story s;
  T_OK(tide_device_annotate(d, "unheard"));
  history_on(d);

  T_OK(tide_device_annotate(d, "step 12"));

  read_story(d, &s);
  T_EQ(s.count, 1);
  T_EQ(s.entries[0].action, TIDE_ACTION_USER_DEFINED);
  T_EQ(s.entries[0].address, 0);
  T_EQ(s.entries[0].bytes, 0);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_USER_DEFINED).metadata), "step 12");
}

DEVICE_TEST(test_device__metadata_is_on_every_entry) {
  (void)m;
  story s;
  history_on(d);
  T_OK(tide_thread_set_metadata("epoch 3"));
  T_STR_EQ(tide_thread_metadata(), "epoch 3");

  live_and_die(d);

  read_story(d, &s);
  T_EQ(s.count, 5);
  for (size_t i = 0; i < s.count; ++i) {
    T_STR_EQ(text_of(d, tide_intern_note(tide_device_names(d), s.entries[i].note).metadata), "epoch 3");
  }
}

DEVICE_TEST(test_device__metadata_can_change_and_go) {
  (void)m;
  history_on(d);
  T_OK(tide_thread_set_metadata("a"));
  (void)take(d, NULL, 1);
  T_OK(tide_thread_set_metadata("b"));
  (void)take(d, NULL, 1);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_ALLOC).metadata), "b");

  T_OK(tide_thread_set_metadata(NULL));
  (void)take(d, NULL, 1);

  T_EQ(last_note(d, TIDE_ACTION_ALLOC).metadata, 0);
  T_STR_EQ(tide_thread_metadata(), "");
}

static void* take_on_a_thread(void* user) {
  (void)take(user, NULL, 1);
  return NULL;
}

DEVICE_TEST(test_device__metadata_is_of_the_thread) {
  (void)m;
  pthread_t thread;
  history_on(d);
  T_OK(tide_thread_set_metadata("mine"));

  t_thread_start(&thread, take_on_a_thread, d);
  t_thread_join(thread);

  T_EQ(last_note(d, TIDE_ACTION_ALLOC).metadata, 0);
}

DEVICE_TEST(test_device__contexts_are_a_stack) {
  (void)m;
  history_on(d);
  T_OK(tide_thread_push_context("0/0"));
  T_OK(tide_thread_push_context("0/1"));
  (void)take(d, NULL, 1);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_ALLOC).compile_context), "0/1");

  T_OK(tide_thread_pop_context());
  (void)take(d, NULL, 1);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_ALLOC).compile_context), "0/0");
  T_OK(tide_thread_pop_context());
  (void)take(d, NULL, 1);

  T_EQ(last_note(d, TIDE_ACTION_ALLOC).compile_context, 0);
  T_STATUS(tide_thread_pop_context(), TIDE_ERR_STATE);
}

T_TEST(test_device__words_of_a_thread_have_limits) {
  static char text[4097];
  memset(text, 'x', sizeof text - 1);

  T_STATUS(tide_thread_set_metadata(text), TIDE_ERR_LIMIT);
  T_STATUS(tide_thread_push_context(text), TIDE_ERR_LIMIT);
  text[4095] = '\0';
  T_OK(tide_thread_set_metadata(text));
  for (int i = 0; i < 64; ++i) T_OK(tide_thread_push_context("deep"));
  T_STATUS(tide_thread_push_context("too deep"), TIDE_ERR_LIMIT);
  for (int i = 0; i < 64; ++i) T_OK(tide_thread_pop_context());

  T_STATUS(tide_thread_pop_context(), TIDE_ERR_STATE);
}

// ---------------------------------------------------------------------------------------------------
// Observers

typedef struct listener {
  tide_device_cache* device;
  size_t times[TIDE_ACTION_COUNT];
  uint64_t last_time;
  tide_action trigger;
  bool is_busy;
  int reactions;
} listener;

static void listen(void* user, const tide_trace_entry* entry) {
  listener* const l = user;
  ++l->times[entry->action];
  T_LE(l->last_time, entry->time_ns);
  l->last_time = entry->time_ns;
}

DEVICE_TEST(test_device__trace_observers_hear_without_a_history) {
  (void)m;
  listener l = { .device = d };
  tide_observer observer = 0;
  T_OK(tide_device_observe_trace(d, listen, &l, &observer));

  live_and_die(d);

  T_EQ(l.times[growth_action()], 1);
  T_EQ(l.times[TIDE_ACTION_ALLOC], 1);
  T_EQ(l.times[TIDE_ACTION_FREE_REQUESTED], 1);
  T_EQ(l.times[TIDE_ACTION_FREE_COMPLETED], 1);
  T_EQ(l.times[shrink_action()], 1);
}

DEVICE_TEST(test_device__trace_observers_hear_what_the_history_skips) {
  (void)m;
  listener l = { .device = d };
  tide_observer observer = 0;
  T_OK(tide_device_observe_trace(d, listen, &l, &observer));

  T_EQ(count_with_skips(d, UINT32_MAX), 0);

  T_EQ(l.times[TIDE_ACTION_ALLOC], 1);
}

DEVICE_TEST(test_device__a_detached_trace_observer_hears_nothing) {
  (void)m;
  listener first = { .device = d };
  listener second = { .device = d };
  tide_observer observers[2];
  T_OK(tide_device_observe_trace(d, listen, &first, &observers[0]));
  T_OK(tide_device_observe_trace(d, listen, &second, &observers[1]));
  T_NE(observers[0], observers[1]);

  T_OK(tide_device_detach(d, observers[0]));
  (void)take(d, NULL, 1);

  T_EQ(first.times[TIDE_ACTION_ALLOC], 0);
  T_EQ(second.times[TIDE_ACTION_ALLOC], 1);
  T_STATUS(tide_device_detach(d, observers[0]), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__trace_observers_hear_each_of_many_entries) {
  enum { COUNT = 100 };
  const tide_stream side = side_new(m);
  tide_block blocks[COUNT];
  listener l = { .device = d };
  tide_observer observer = 0;
  for (size_t i = 0; i < COUNT; ++i) {
    blocks[i] = take(d, NULL, MIB);
    announce(d, blocks[i], side);
  }
  const int64_t segments = current(d, segment);
  T_OK(tide_device_observe_trace(d, listen, &l, &observer));

  for (size_t i = 0; i < COUNT; ++i) give(d, blocks[i]);
  stream_finish(m, 0, side);
  trim(d);

  T_EQ(l.times[TIDE_ACTION_FREE_REQUESTED], COUNT);
  T_EQ(l.times[TIDE_ACTION_FREE_COMPLETED], COUNT);
  if (is_tide()) T_LE(1, l.times[shrink_action()]);
  else T_EQ(l.times[shrink_action()], segments);
}

// Uses the allocator in every way when the action comes that it waits for.
static void react(void* user, const tide_trace_entry* entry) {
  listener* const l = user;
  if (l->is_busy || entry->action != l->trigger) return;
  l->is_busy = true;
  const tide_block small = take(l->device, NULL, 3000);
  const tide_block large = take(l->device, NULL, 14 * MIB);
  give(l->device, small);
  give(l->device, large);
  (void)stats_of(l->device);
  T_OK(tide_device_poll(l->device));
  trim(l->device);
  ++l->reactions;
  l->is_busy = false;
}

static void listen_and_react(tide_device_cache* d, listener* l, tide_action trigger) {
  tide_observer observer = 0;
  *l = (listener){ .device = d, .trigger = trigger };
  T_OK(tide_device_observe_trace(d, react, l, &observer));
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_a_segment_is_made) {
  (void)m;
  listener l;
  listen_and_react(d, &l, growth_action());

  (void)take(d, NULL, 12 * MIB);

  T_EQ(l.reactions, 1);
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_a_segment_is_given_back) {
  (void)m;
  listener l;
  listen_and_react(d, &l, shrink_action());
  give(d, take(d, NULL, 12 * MIB));

  trim(d);

  T_EQ(l.reactions, 1);
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_memory_is_mapped) {
  listener l;
  expand(m, d);
  listen_and_react(d, &l, TIDE_ACTION_SEGMENT_MAP);

  const tide_block block = take(d, NULL, 12 * MIB);

  T_EQ(l.reactions, 1);
  device_fill(m, 0, bytes_of(block), 1, 12 * MIB);
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_memory_is_unmapped) {
  listener l;
  expand(m, d);
  listen_and_react(d, &l, TIDE_ACTION_SEGMENT_UNMAP);
  give(d, take(d, NULL, 12 * MIB));

  trim(d);

  T_EQ(l.reactions, 1);
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_a_wait_is_over) {
  const tide_stream side = side_new(m);
  listener l;
  const tide_block blocks[2] = { take(d, NULL, 4096), take(d, NULL, 4096) };
  for (size_t i = 0; i < 2; ++i) {
    announce(d, blocks[i], side);
    give(d, blocks[i]);
  }
  stream_finish(m, 0, side);
  listen_and_react(d, &l, TIDE_ACTION_FREE_COMPLETED);

  T_OK(tide_device_poll(d));

  T_LE(1, l.reactions);
  T_EQ(current(d, active), 0);
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_at_an_oom) {
  (void)m;
  listener l;
  listen_and_react(d, &l, TIDE_ACTION_OOM);
  limit_to(d, 50 * MIB);

  expect_oom(d, NULL, 60 * MIB);

  T_EQ(l.reactions, 1);
}

// ---------------------------------------------------------------------------------------------------
// Visits

static void expect_blocks_add_up(const seen* s, size_t i) {
  const tide_segment_info* const segment = &s->segments[i];
  const size_t end = i + 1 < s->segment_count ? s->first_block[i + 1] : s->block_count;
  uint64_t at = segment->address;
  uint64_t allocated = 0;
  uint64_t active = 0;
  uint64_t requested = 0;
  for (size_t k = s->first_block[i]; k < end; ++k) {
    const tide_block_info* const block = &s->blocks[k];
    T_EQ(block->address, at);
    at += block->bytes;
    if (block->state == TIDE_BLOCK_ALLOCATED) allocated += block->bytes;
    if (block->state != TIDE_BLOCK_INACTIVE) active += block->bytes;
    if (block->state != TIDE_BLOCK_INACTIVE) requested += block->requested_bytes;
  }
  T_EQ(at, segment->address + segment->bytes);
  T_EQ(segment->allocated_bytes, allocated);
  T_EQ(segment->active_bytes, active);
  T_EQ(segment->requested_bytes, requested);
}

// Small, large, expandable, private, waiting.
static void fill_in_many_ways(tide_machine* m, tide_device_cache* d, tide_stream side, gate* g) {
  const tide_pool pool = pool_new(d, NULL);
  for (size_t i = 0; i < 12; ++i) {
    const tide_block block = take(d, i % 3 == 0 ? side : NULL, (i + 1) * 300 * KIB + 5);
    if (i % 2 == 0) give(d, block);
  }
  (void)take_in(d, pool, NULL, 3 * MIB);
  if (device_info(m, 0).granularity != 0) configure(d, "expandable_segments:True");
  (void)take(d, NULL, 25 * MIB);
  const tide_block waiting = take(d, NULL, 9 * MIB);
  hold_up(g, m, side);
  announce(d, waiting, side);
  give(d, waiting);
}

DEVICE_TEST(test_device__a_visit_shows_segments_by_address_and_blocks_that_add_up) {
  const tide_stream side = side_new(m);
  gate g;
  seen s;
  fill_in_many_ways(m, d, side, &g);

  look(d, &s);

  uint64_t reserved = 0;
  uint64_t active = 0;
  for (size_t i = 0; i < s.segment_count; ++i) {
    if (i > 0) T_LE(s.segments[i - 1].address + s.segments[i - 1].bytes, s.segments[i].address);
    expect_blocks_add_up(&s, i);
    reserved += s.segments[i].bytes;
    active += s.segments[i].active_bytes;
  }
  T_EQ(reserved, current(d, reserved_bytes));
  T_EQ(active, current(d, active_bytes));
  T_LT(current(d, allocated_bytes), active);
  let_go(&g);
}

DEVICE_TEST(test_device__a_visit_shows_what_a_segment_is) {
  const tide_stream side = side_new(m);
  seen s;
  const tide_block small = take(d, NULL, 1000);
  const tide_block large = take(d, side, 3 * MIB);

  look(d, &s);

  const tide_segment_info* const a = seen_around(&s, small.address);
  const tide_segment_info* const b = seen_around(&s, large.address);
  T_CHECK(!a->is_large && a->is_expandable == is_tide());
  T_CHECK(b->is_large);
  T_PTR_EQ(a->stream, NULL);
  T_PTR_EQ(b->stream, side);
  T_EQ(a->device, 0);
  T_EQ(a->ordinal, 0);
  T_EQ(b->ordinal, 1);
  T_EQ(a->requested_bytes, 1000);
  T_EQ(a->allocated_bytes, 1024);
  T_EQ(s.blocks[s.first_block[a - s.segments]].address, (uintptr_t)small.address);
}

DEVICE_TEST(test_device__a_visit_shows_the_state_of_blocks) {
  const tide_stream side = side_new(m);
  gate g;
  seen s;
  const tide_block waiting = take(d, NULL, MIB / 2);
  (void)take(d, NULL, MIB / 2);
  hold_up(&g, m, side);
  announce(d, waiting, side);
  give(d, waiting);

  look(d, &s);
  let_go(&g);

  T_EQ(s.block_count, 3);
  T_EQ(s.blocks[0].state, TIDE_BLOCK_PENDING);
  T_EQ(s.blocks[1].state, TIDE_BLOCK_ALLOCATED);
  T_EQ(s.blocks[2].state, TIDE_BLOCK_INACTIVE);
  T_EQ(s.blocks[2].bytes, MIB);
}

static bool see_one(void* user, const tide_segment_info* segment) {
  (void)segment;
  ++*(int*)user;
  return false;
}

DEVICE_TEST(test_device__a_visit_ends_when_told) {
  (void)m;
  int segments = 0;
  const tide_device_visitor visitor = { see_one, NULL, &segments };
  (void)take(d, NULL, 1000);
  (void)take(d, NULL, 3 * MIB);

  T_OK(tide_device_visit(d, &visitor));

  T_EQ(segments, 1);
}

static bool take_while_visited(void* user, const tide_block_info* block) {
  (void)block;
  give(user, take(user, NULL, 700));
  return true;
}

static bool see_any(void* user, const tide_segment_info* segment) {
  (void)segment;
  give(user, take(user, NULL, 12 * MIB));
  return true;
}

DEVICE_TEST(test_device__a_visitor_may_use_the_allocator) {
  (void)m;
  const tide_device_visitor visitor = { see_any, take_while_visited, d };
  (void)take(d, NULL, 1000);
  (void)take(d, NULL, 3 * MIB);

  T_OK(tide_device_visit(d, &visitor));

  T_EQ(current(d, allocation), 2);
}

static bool count_allocated(void* user, const tide_block_info* block) {
  if (block->state == TIDE_BLOCK_ALLOCATED) ++*(size_t*)user;
  return true;
}

static bool accept(void* user, const tide_segment_info* segment) {
  (void)user;
  return segment->bytes > 0;
}

DEVICE_TEST(test_device__a_visit_shows_long_chains_whole) {
  (void)m;
  enum { COUNT = 2000 };
  size_t blocks = 0;
  const tide_device_visitor visitor = { accept, count_allocated, &blocks };
  for (size_t i = 0; i < COUNT; ++i) (void)take(d, NULL, 512);

  T_OK(tide_device_visit(d, &visitor));

  T_EQ(blocks, COUNT);
}

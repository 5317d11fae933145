// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// History: which entries are recorded, with which stack and note, how many are kept, what observers are told,
// and what a visit shows.
#define T_THREADS
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
  const story s = read_story(d);
  return frame_of(d, story_last(&s, action)->stack);
}

// ---------------------------------------------------------------------------------------------------
// Entries

DEVICE_TEST(test_device__history_is_off_at_first) {
  T_CHECK(!tide_device_has_history(d));

  live_and_die(d);

  const story s = read_story(d);
  T_EQ(s.count, 0);
}

DEVICE_TEST(test_device__history_tells_the_life_of_a_block) {
  const tide_stream stream = side_new(m);
  const uint8_t wanted[] = { growth_action(), TIDE_ACTION_ALLOC, TIDE_ACTION_FREE_REQUESTED,
                             TIDE_ACTION_FREE_COMPLETED, shrink_action() };
  history_on(d);
  T_CHECK(tide_device_has_history(d));

  const tide_block block = take(d, stream, 1000);
  give(d, block);
  trim(d);

  const story s = read_story(d);
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
  expand(m, d);
  history_on(d);

  const tide_block block = take(d, NULL, 22 * MIB);
  give(d, block);
  trim(d);

  const story s = read_story(d);
  T_EQ(s.entries[0].action, TIDE_ACTION_SEGMENT_MAP);
  T_EQ(s.entries[0].bytes, 40 * MIB);
  T_EQ(s.entries[0].address, (uintptr_t)block.address);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_SEGMENT_UNMAP);
  T_EQ(s.entries[s.count - 1].bytes, 40 * MIB);
}

DEVICE_TEST(test_device__history_names_the_pool) {
  const tide_pool pool = pool_new(d, NULL);
  history_on(d);

  (void)take_in(d, pool, NULL, 1000);

  const story s = read_story(d);
  T_EQ(story_last(&s, TIDE_ACTION_ALLOC)->pool, pool);
  T_EQ(story_last(&s, growth_action())->pool, pool);
}

DEVICE_TEST(test_device__history_tells_an_oom_with_the_free_bytes) {
  history_on(d);
  limit_to(d, 10 * MIB);

  expect_oom(d, NULL, 12 * MIB + 1);

  const story s = read_story(d);
  T_EQ(s.count, 1);
  T_EQ(s.entries[0].action, TIDE_ACTION_OOM);
  T_EQ(s.entries[0].bytes, 12 * MIB + 512);
  if (!is_cuda(m)) T_EQ(s.entries[0].address, free_bytes(m, 0));
}

static void expect_snapshot_entry(tide_device_cache* d, uint64_t bytes) {
  const story s = read_story(d);
  T_EQ(s.entries[s.count - 1].action, TIDE_ACTION_SNAPSHOT);
  T_EQ(s.entries[s.count - 1].bytes, bytes);
  T_EQ(s.entries[s.count - 1].address, 0);
}

DEVICE_TEST(test_device__a_visit_leaves_a_snapshot_entry) {
  const tide_pool pool = pool_new(d, NULL);
  history_on(d);
  (void)take(d, NULL, 1000);
  (void)take_in(d, pool, NULL, 4096);

  (void)look(d);
  expect_snapshot_entry(d, 1024 + 4096);
  const seen s = look_at_pool(d, pool);

  expect_snapshot_entry(d, 4096);
  T_EQ(s.segment_count, 1);
  T_EQ(s.segments[0].bytes, 2 * MIB);
}

DEVICE_TEST(test_device__a_waiting_release_completes_later) {
  const tide_stream side = side_new(m);
  gate g;
  history_on(d);
  const tide_block block = take(d, NULL, 1000);
  hold_up(&g, m, side);

  give_announced(d, block, side);
  story s = read_story(d);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_REQUESTED), 1);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_COMPLETED), 0);
  let_go(&g);
  T_OK(tide_device_poll(d));

  s = read_story(d);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_COMPLETED), 1);
  T_EQ(story_last(&s, TIDE_ACTION_FREE_COMPLETED)->bytes, 1000);
}

DEVICE_TEST(test_device__times_do_not_go_back_and_equal_stacks_have_one_number) {
  history_at(d, TIDE_HISTORY_ALL);
  where = 5;
  for (int i = 0; i < 20; ++i) give(d, take(d, NULL, 4096));

  const story s = read_story(d);

  for (size_t i = 1; i < s.count; ++i) {
    T_LE(s.entries[i - 1].time_ns, s.entries[i].time_ns);
    T_EQ(s.entries[i - 1].stack, s.entries[i].stack);
  }
  T_LE(s.entries[s.count - 1].time_ns, clock_ns(m));
}

// ---------------------------------------------------------------------------------------------------
// Levels

// The frames that a level shows: on the block and its segment, on entries of the request, of the release, and
// of the trim.
static const struct {
  uint8_t level;
  uint8_t block;
  uint8_t request;
  uint8_t release;
  uint8_t trim;
} levels[] = {
  { TIDE_HISTORY_NEVER, 0, 0, 0, 0 },
  { TIDE_HISTORY_STATE, AT_ALLOC, 0, 0, 0 },
  { TIDE_HISTORY_ALLOC, AT_ALLOC, AT_ALLOC, AT_ALLOC, AT_ALLOC },
  { TIDE_HISTORY_ALL, AT_ALLOC, AT_ALLOC, AT_FREE, AT_TRIM },
};

static void expect_levels(tide_device_cache* d, tide_action growth, tide_action shrink) {
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; ++i) {
    tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
    options.level = levels[i].level;
    options.gather = gather_where;
    options.clears = true;
    T_OK(tide_device_history(d, &options));
    where = AT_ALLOC;
    const tide_block block = take(d, NULL, 1000);
    const seen inside = look(d);
    T_EQ(frame_of(d, inside.segments[0].stack), levels[i].block);
    T_EQ(frame_of(d, inside.blocks[0].stack), levels[i].block);
    T_EQ(frame_at(d, TIDE_ACTION_ALLOC), levels[i].request);
    T_EQ(frame_at(d, growth), levels[i].request);
    where = AT_FREE;
    give(d, block);
    T_EQ(frame_at(d, TIDE_ACTION_FREE_REQUESTED), levels[i].release);
    T_EQ(frame_at(d, TIDE_ACTION_FREE_COMPLETED), levels[i].release);
    where = AT_TRIM;
    trim(d);
    T_EQ(frame_at(d, shrink), levels[i].trim);
  }
}

DEVICE_TEST(test_device__the_level_decides_which_stacks_are_shown) {
  expect_levels(d, growth_action(), shrink_action());
}

DEVICE_TEST(test_device__the_level_decides_which_stacks_of_mappings_are_shown) {
  expand(m, d);
  expect_levels(d, TIDE_ACTION_SEGMENT_MAP, TIDE_ACTION_SEGMENT_UNMAP);
}

DEVICE_TEST(test_device__idle_blocks_show_no_stack) {
  history_at(d, TIDE_HISTORY_ALL);
  where = AT_ALLOC;
  const tide_block block = take(d, NULL, 1000);
  (void)take(d, NULL, 1000);

  give(d, block);

  const seen inside = look(d);
  T_EQ(inside.blocks[0].state, TIDE_BLOCK_INACTIVE);
  T_EQ(inside.blocks[0].stack, 0);
  T_EQ(frame_of(d, inside.blocks[1].stack), AT_ALLOC);
}

DEVICE_TEST(test_device__level_can_go_down_and_up_and_entries_stay) {
  history_at(d, TIDE_HISTORY_ALL);
  where = 11;
  (void)take(d, NULL, 1000);
  history_at(d, TIDE_HISTORY_NEVER);
  (void)take(d, NULL, 1000);
  history_at(d, TIDE_HISTORY_ALL);
  where = 12;
  (void)take(d, NULL, 1000);

  const story s = read_story(d);

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
  numbering n;
  numbers_on(&n, d, 100);
  n.looks = true;

  const tide_block block = take(d, NULL, 1000);
  give(d, block);
  trim(d);

  const story s = read_story(d);
  T_EQ(n.last, 3);
  T_EQ(story_last(&s, TIDE_ACTION_ALLOC)->stack, 1);
  T_EQ(story_last(&s, TIDE_ACTION_FREE_REQUESTED)->stack, 2);
  T_EQ(tide_intern_counts_of(tide_device_names(d)).stacks, 0);
}

// What is in use: the stacks of blocks and segments, also of those whose entries are gone, and of entries.
DEVICE_TEST(test_device__the_stacks_in_use_are_shown) {
  numbering n;
  numbers_on(&n, d, 4);
  give(d, take(d, NULL, 1000));                 // 1, which the segment keeps, and 2
  const tide_block kept = take(d, NULL, 1000);  // 3
  for (size_t i = 0; i < 10; i++) give(d, take(d, NULL, 1000));
  const story before = read_story(d);

  numbers_look(&n);

  const story s = read_story(d);
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
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  size_t count = 0;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather_much;
  T_OK(tide_device_history(d, &options));

  (void)take(d, NULL, 1000);

  const story s = read_story(d);
  T_CHECK(tide_intern_stack(tide_device_names(d), s.entries[0].stack, &count) != NULL);
  T_EQ(count, 64);
}

// ---------------------------------------------------------------------------------------------------
// What is kept

static size_t count_with_skips(tide_device_cache* d, uint32_t skips) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.skips = skips;
  options.clears = true;
  T_OK(tide_device_history(d, &options));
  live_and_die(d);
  const story s = read_story(d);
  for (size_t i = 0; i < s.count; ++i) T_EQ(skips >> s.entries[i].action & 1, 0);
  return s.count;
}

DEVICE_TEST(test_device__actions_can_be_skipped) {
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
  static const uint64_t most[] = { 100, 7, 1, 0, 9 };  // 0 is taken for 1
  size_t last = 0;
  for (size_t i = 0; i < sizeof most / sizeof most[0]; ++i) {
    keep_at_most(d, most[i]);
    for (size_t k = 0; k < 20; ++k) (void)take(d, NULL, ++last);
    const story s = read_story(d);
    if (i > 0) T_EQ(s.count, most[i] == 0 ? 1 : most[i]);
    for (size_t k = 1; k <= s.count && k <= 20; ++k) T_EQ(s.entries[s.count - k].bytes, last + 1 - k);
  }

  keep_at_most(d, 5);  // and no request since

  const story s = read_story(d);
  T_EQ(s.count, 5);
  for (size_t k = 1; k <= 5; ++k) T_EQ(s.entries[5 - k].bytes, last + 1 - k);
}

DEVICE_TEST(test_device__clearing_and_switching_off_forget_entries) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  history_on(d);
  live_and_die(d);

  options.clears = true;
  T_OK(tide_device_history(d, &options));
  T_EQ(read_story(d).count, 0);
  live_and_die(d);
  T_EQ(read_story(d).count, 5);
  options.clears = false;
  options.is_on = false;
  T_OK(tide_device_history(d, &options));
  live_and_die(d);

  T_EQ(read_story(d).count, 0);
  T_CHECK(!tide_device_has_history(d));
}

static bool count_pieces(void* user, const tide_trace_entry* entries, size_t count) {
  (void)entries;
  T_LT(0, count);
  ++*(int*)user;
  return false;
}

DEVICE_TEST(test_device__a_history_visit_ends_when_told) {
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
  const story s = read_story(d);
  return tide_intern_note(tide_device_names(d), story_last(&s, action)->note);
}

DEVICE_TEST(test_device__annotations_are_entries_with_their_text) {
  T_OK(tide_device_annotate(d, "unheard"));
  history_on(d);

  T_OK(tide_device_annotate(d, "step 12"));

  const story s = read_story(d);
  T_EQ(s.count, 1);
  T_EQ(s.entries[0].action, TIDE_ACTION_USER_DEFINED);
  T_EQ(s.entries[0].address, 0);
  T_EQ(s.entries[0].bytes, 0);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_USER_DEFINED).metadata), "step 12");
}

static void* take_on_a_thread(void* user) {
  (void)take(user, NULL, 1);
  return NULL;
}

DEVICE_TEST(test_device__metadata_of_the_thread_is_on_every_entry) {
  history_on(d);
  T_OK(tide_thread_set_metadata("epoch 3"));
  T_STR_EQ(tide_thread_metadata(), "epoch 3");
  live_and_die(d);
  const story s = read_story(d);
  T_EQ(s.count, 5);
  for (size_t i = 0; i < s.count; ++i) {
    T_STR_EQ(text_of(d, tide_intern_note(tide_device_names(d), s.entries[i].note).metadata), "epoch 3");
  }

  run_threads(1, take_on_a_thread, d);
  T_EQ(last_note(d, TIDE_ACTION_ALLOC).metadata, 0);
  T_OK(tide_thread_set_metadata("b"));
  (void)take(d, NULL, 1);
  T_STR_EQ(text_of(d, last_note(d, TIDE_ACTION_ALLOC).metadata), "b");
  T_OK(tide_thread_set_metadata(NULL));
  (void)take(d, NULL, 1);

  T_EQ(last_note(d, TIDE_ACTION_ALLOC).metadata, 0);
  T_STR_EQ(tide_thread_metadata(), "");
}

DEVICE_TEST(test_device__contexts_are_a_stack) {
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

static void* leave_words(void* user) {
  T_STR_EQ(tide_thread_metadata(), "");
  T_STATUS(tide_thread_pop_context(), TIDE_ERR_STATE);
  T_OK(tide_thread_set_metadata(user));
  for (int i = 0; i < 64; ++i) T_OK(tide_thread_push_context(user));
  return NULL;
}

static size_t resident_pages(void) {
  size_t pages[2] = { 0, 0 };
  FILE* const file = fopen("/proc/self/statm", "r");
  T_CHECK(file != NULL);
  T_EQ(fscanf(file, "%zu %zu", &pages[0], &pages[1]), 2);
  const int closed = fclose(file);
  T_EQ(closed, 0);
  return pages[1];
}

// 200 threads leave 50 MiB of words, if these do not end with them. Sanitizers keep what is freed, and find
// leaks themselves.
T_TEST(test_device__words_of_a_thread_end_with_it) {
  static char text[4096];
  memset(text, 'x', sizeof text - 1);
  run_threads(1, leave_words, text);
  const size_t before = resident_pages();
  for (int i = 0; i < 200; ++i) run_threads(1, leave_words, text);
  if (!T_HAS_SANITIZER) T_LE(resident_pages(), before + 16 * MIB / (size_t)sysconf(_SC_PAGESIZE));
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

DEVICE_TEST(test_device__trace_observers_hear_everything_while_they_are_attached) {
  const uint8_t actions[] = { growth_action(), TIDE_ACTION_ALLOC, TIDE_ACTION_FREE_REQUESTED,
                              TIDE_ACTION_FREE_COMPLETED, shrink_action() };
  listener first = { .device = d };
  listener second = { .device = d };
  const tide_observer observers[2] = { observe_trace(d, listen, &first), observe_trace(d, listen, &second) };
  T_NE(observers[0], observers[1]);

  live_and_die(d);  // without a history
  T_OK(tide_device_detach(d, observers[0]));
  T_EQ(count_with_skips(d, UINT32_MAX), 0);  // with one that keeps nothing

  for (size_t i = 0; i < 5; ++i) {
    T_EQ(first.times[actions[i]], 1);
    T_EQ(second.times[actions[i]], 2);
  }
  T_STATUS(tide_device_detach(d, observers[0]), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__trace_observers_hear_each_of_many_entries) {
  enum { COUNT = 100 };
  const tide_stream side = side_new(m);
  tide_block blocks[COUNT];
  listener l = { .device = d };
  for (size_t i = 0; i < COUNT; ++i) {
    blocks[i] = take(d, NULL, MIB);
    announce(d, blocks[i], side);
  }
  const int64_t segments = current(d, segment);
  observe_trace(d, listen, &l);

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

static tide_observer listen_and_react(tide_device_cache* d, listener* l, tide_action trigger) {
  *l = (listener){ .device = d, .trigger = trigger };
  return observe_trace(d, react, l);
}

static void expect_reactions(tide_machine* m, tide_device_cache* d, tide_action growth, tide_action shrink) {
  listener l;
  tide_observer observer = listen_and_react(d, &l, growth);
  const tide_block block = take(d, NULL, 12 * MIB);
  T_EQ(l.reactions, 1);
  device_fill(m, 0, bytes_of(block), 1, 12 * MIB);
  T_OK(tide_device_detach(d, observer));

  observer = listen_and_react(d, &l, shrink);
  give(d, block);
  trim(d);
  T_EQ(l.reactions, 1);
  T_OK(tide_device_detach(d, observer));
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_memory_comes_and_goes) {
  expect_reactions(m, d, growth_action(), shrink_action());
}

DEVICE_TEST(test_device__trace_observer_may_use_the_allocator_when_memory_is_mapped_and_unmapped) {
  expand(m, d);
  expect_reactions(m, d, TIDE_ACTION_SEGMENT_MAP, TIDE_ACTION_SEGMENT_UNMAP);
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
  give_announced(d, waiting, side);
}

DEVICE_TEST(test_device__a_visit_shows_segments_by_address_and_blocks_that_add_up) {
  const tide_stream side = side_new(m);
  gate g;
  fill_in_many_ways(m, d, side, &g);

  const seen s = look(d);

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
  const tide_block small = take(d, NULL, 1000);
  const tide_block large = take(d, side, 3 * MIB);

  const seen s = look(d);

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
  const tide_block waiting = take(d, NULL, MIB / 2);
  (void)take(d, NULL, MIB / 2);
  hold_up(&g, m, side);
  give_announced(d, waiting, side);

  const seen s = look(d);
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

DEVICE_TEST(test_device__a_visit_of_segments_alone_is_no_snapshot) {
  int segments = 0;
  const tide_device_visitor visitor = { see_one, NULL, &segments };
  history_on(d);
  (void)take(d, NULL, 1000);

  T_OK(tide_device_visit(d, &visitor));

  T_EQ(segments, 1);
  const story s = read_story(d);
  T_CHECK(s.entries[s.count - 1].action != TIDE_ACTION_SNAPSHOT);
}

DEVICE_TEST(test_device__a_visit_ends_when_told) {
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
  enum { COUNT = 2000 };
  size_t blocks = 0;
  const tide_device_visitor visitor = { accept, count_allocated, &blocks };
  for (size_t i = 0; i < COUNT; ++i) (void)take(d, NULL, 512);

  T_OK(tide_device_visit(d, &visitor));

  T_EQ(blocks, COUNT);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Replays under budgets. Peaks by tag come from a plain sum over the entries of a recording, and what gives
// way from traces made by hand in which every block is a whole handle.
#include "machine/counting_heap.h"
#include "replay/by_hand.h"
#include "tidemark/replay.h"
#include "traces.h"

#define BASE ((uint64_t)0x7f0000000000)
#define MIB ((uint64_t)1 << 20)
enum { TAGS_MOST = 8 };

// ---------------------------------------------------------------------------------------------------
// Runs

typedef struct tagged_run {
  tide_device_options device;
  tide_replay_options options;
  tide_replay_result result;
  tide_replay_tag tags[TAGS_MOST];
  tide_budget budgets[TAGS_MOST];
  uint16_t stack_tags[TAGS_MOST + 1];
} tagged_run;

static void run_init(tagged_run* run) {
  *run = (tagged_run){ .device = TIDE_DEVICE_OPTIONS_INIT,
                       .options = TIDE_REPLAY_OPTIONS_INIT,
                       .result = TIDE_REPLAY_RESULT_INIT };
  run->device.policy = TIDE_POLICY_TIDE;
  run->options.device = &run->device;
  run->options.tags = run->tags;
  run->options.stack_tags = run->stack_tags;
  run->options.stack_count = TAGS_MOST + 1;
}

// Adds the tag of the stack with the same number: the first one has number 1.
static tide_replay_tag* run_tag(tagged_run* run, const char* name) {
  const size_t place = run->options.tag_count++;
  run->tags[place] = (tide_replay_tag){ .name = name };
  run->stack_tags[place + 1] = (uint16_t)(place + 1);
  return &run->tags[place];
}

// The same with a budget, to be changed by the caller.
static tide_budget* run_budget(tagged_run* run, const char* name) {
  const tide_budget none = TIDE_BUDGET_INIT;
  tide_replay_tag* const tag = run_tag(run, name);
  tide_budget* const budget = &run->budgets[tag - run->tags];
  *budget = none;
  tag->budget = budget;
  return budget;
}

static tide_status run_play_on(tagged_run* run, const tide_trace* trace, const tide_heap* heap) {
  tide_replay* replay = NULL;
  tide_status status = tide_replay_new(trace, 0, heap, &replay);
  if (status == TIDE_OK) status = tide_replay_run(replay, &run->options, &run->result);
  tide_replay_free(replay);
  return status;
}

static void run_play(tagged_run* run, tide_trace* trace) {
  T_OK(run_play_on(run, trace, NULL));
  tide_trace_free(trace);
}

static void trace_add_stacked(tide_trace* trace, uint32_t stack, tide_action action, uint64_t place,
                              uint64_t bytes) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = 1000 * count,
                                   .address = BASE + place,
                                   .bytes = bytes,
                                   .stack = stack,
                                   .action = (uint8_t)action,
                                   .absent = TIDE_ENTRY_POOL };
  T_OK(tide_trace_add_entry(trace, &entry));
}

// "a8@0 a8@8 b4@16 -8 a2@8": requests of a stack (a is 1) with their MiB and addresses in MiB; a release of
// the block at an address. Each is one entry, but a release is two.
static tide_trace* trace_of(const char* text) {
  tide_trace* const trace = trace_new();
  char* at = NULL;
  for (const char* word = text; *word != '\0'; word += strspn(word, " ")) {
    if (*word == '-') {
      trace_add_free(trace, BASE + strtoull(word + 1, &at, 10) * MIB, 0);
    } else {
      const uint64_t bytes = strtoull(word + 1, &at, 10) * MIB;
      T_EQ(*at, '@');
      const uint64_t place = strtoull(at + 1, &at, 10) * MIB;
      trace_add_stacked(trace, (uint32_t)(*word - 'a' + 1), TIDE_ACTION_ALLOC, place, bytes);
    }
    word = at;
  }
  return trace;
}

// ---------------------------------------------------------------------------------------------------
// Peaks

// Requests of a recording get stacks 0 to 4, by their numbers.
static bool edit_stacks(void* user, size_t index, tide_trace_entry* entry) {
  (void)user;
  if (entry->action == TIDE_ACTION_ALLOC) entry->stack = (uint32_t)((index * 2654435761u >> 7) % 5);
  return true;
}

static tide_trace* trace_with_stacks(const char* name) {
  const trace_edit edit = { .entry = edit_stacks };
  tide_trace* const trace = trace_of_test(name);
  tide_trace* const copy = trace_copy(trace, &edit);
  tide_trace_free(trace);
  return copy;
}

// The peak of live requests of stacks in a set, from ALLOC to FREE_COMPLETED: a list that is searched.
static uint64_t peak_of(const tide_trace* trace, unsigned stacks) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  uint64_t* const addresses = calloc(count + 1, sizeof *addresses);
  uint64_t* const sizes = calloc(count + 1, sizeof *sizes);
  uint64_t live = 0;
  uint64_t peak = 0;
  size_t kept = 0;
  T_CHECK(addresses != NULL && sizes != NULL);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action == TIDE_ACTION_ALLOC && (stacks >> entries[i].stack & 1) != 0) {
      addresses[kept] = entries[i].address;
      sizes[kept] = (entries[i].bytes + 511) / 512 * 512;
      live += sizes[kept++];
    }
    for (size_t k = 0; entries[i].action == TIDE_ACTION_FREE_COMPLETED && k < kept; k++) {
      if (addresses[k] != entries[i].address) continue;
      live -= sizes[k];
      addresses[k] = addresses[--kept];
      sizes[k] = sizes[kept];
      break;
    }
    peak = live > peak ? live : peak;
  }
  free(addresses);
  free(sizes);
  return peak;
}

static const char* const recordings[] = { "resnet_stacks", "gnn_retry", "events", "expand", "graphs", NULL };

// Stack 0 has no tag.
T_TEST_OVER(test_budgets__peaks_of_tags_are_sums_over_the_entries, recordings) {
  static const unsigned stacks[] = { 1u << 1 | 1u << 2 | 1u << 3, 1u << 2 | 1u << 3, 1u << 3, 1u << 4 };
  tide_trace* const trace = trace_with_stacks(t_variant());
  tagged_run run;
  run_init(&run);
  (void)run_tag(&run, "model");
  (void)run_tag(&run, "model/layers");
  (void)run_tag(&run, "model/layers/0");
  (void)run_tag(&run, "models");
  T_OK(run_play_on(&run, trace, NULL));
  T_EQ(run.result.ooms, 0);
  for (size_t i = 0; i < 4; i++) {
    T_EQ(run.tags[i].peak_allocated, peak_of(trace, stacks[i]));
    T_LE(run.tags[i].peak_allocated, run.tags[i].peak_reserved);
    T_LE(run.tags[i].peak_reserved, run.result.peak_reserved);
    T_EQ(run.tags[i].parked_count + run.tags[i].sent_bytes + run.tags[i].refused, 0);
  }
  T_EQ(run.result.peak_allocated, peak_of(trace, 31));
  tide_trace_free(trace);
}

// Without releases that wait: under a limit, the cache waits for these before their recorded completion.
static const char* const prompt[] = { "resnet_stacks", "gnn_retry", "expand", "graphs", NULL };

T_TEST_OVER(test_budgets__a_limit_below_the_live_peak_refuses, prompt) {
  tide_trace* const trace = trace_with_stacks(t_variant());
  const uint64_t peak = peak_of(trace, 1u << 1);
  tagged_run run;
  run_init(&run);
  run_budget(&run, "model")->limit = peak - 1;
  T_OK(run_play_on(&run, trace, NULL));
  T_LT(0, run.result.ooms);
  T_EQ(run.tags[0].refused, run.result.ooms);
  T_STR_EQ(run.result.oom_limited_tag, "model");
  T_STR_EQ(run.result.oom_tag, "model");
  T_LE(run.tags[0].peak_reserved, peak - 1);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Limits

// Entry 2 is the first that has no room; entry 5 has room after the release of entries 3 and 4.
T_TEST(test_budgets__a_limit_refuses_the_request_that_exceeds_it) {
  tagged_run run;
  run_init(&run);
  run_budget(&run, "a")->limit = 16 * MIB;
  (void)run_tag(&run, "b");
  run_play(&run, trace_of("a8@0 a8@8 a2@16 -0 a8@0 b64@32"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.first_oom, 2);
  T_EQ(run.result.oom_bytes, 2 * MIB);
  T_STR_EQ(run.result.oom_tag, "a");
  T_STR_EQ(run.result.oom_limited_tag, "a");
  T_EQ(run.tags[0].refused, 1);
  T_EQ(run.tags[1].refused, 0);
  T_EQ(run.tags[0].peak_allocated, 16 * MIB);
  T_EQ(run.tags[1].peak_allocated, 64 * MIB);
  T_CHECK(!run.result.is_oom_return);
}

T_TEST(test_budgets__a_limit_holds_for_all_tags_below) {
  tagged_run run;
  run_init(&run);
  (void)run_tag(&run, "p/a");
  (void)run_tag(&run, "p/b");
  run_budget(&run, "p")->limit = 16 * MIB;
  run_play(&run, trace_of("a8@0 b8@8 b8@16"));
  T_EQ(run.result.first_oom, 2);
  T_STR_EQ(run.result.oom_tag, "p/b");
  T_STR_EQ(run.result.oom_limited_tag, "p");
  T_EQ(run.tags[2].refused, 1);
  T_EQ(run.tags[2].peak_allocated, 16 * MIB);
}

T_TEST(test_budgets__the_total_refuses_what_no_tag_refuses) {
  tagged_run run;
  run_init(&run);
  run_budget(&run, "a")->limit = 64 * MIB;
  run.options.limit = 16 * MIB;
  run_play(&run, trace_of("a8@0 a16@8"));
  T_EQ(run.result.first_oom, 1);
  T_STR_EQ(run.result.oom_tag, "a");
  T_STR_EQ(run.result.oom_limited_tag, "");
  T_EQ(run.tags[0].refused, 0);
}

// A request without a tag is refused, too.
T_TEST(test_budgets__a_guarantee_of_another_tag_stays_free) {
  tagged_run run;
  run_init(&run);
  run_budget(&run, "a")->guarantee = 8 * MIB;
  run.options.limit = 16 * MIB;
  run.stack_tags[2] = 0;
  run_play(&run, trace_of("b12@0 a8@16"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.first_oom, 0);
  T_STR_EQ(run.result.oom_tag, "");
  T_EQ(run.result.oom_guaranteed_bytes, 8 * MIB);
  T_EQ(run.tags[0].peak_allocated, 8 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Giving way

static void parent_init(tagged_run* run, uint64_t limit, bool is_constant) {
  run_init(run);
  (void)run_tag(run, "p/a");
  (void)run_tag(run, "p/b");
  tide_budget* const parent = run_budget(run, "p");
  parent->limit = limit;
  parent->yields = true;
  parent->is_constant = is_constant;
}

// a goes for b, b for a, a for b.
T_TEST(test_budgets__tags_that_yield_make_room_for_each_other) {
  tagged_run run;
  parent_init(&run, 18 * MIB, false);
  run_play(&run, trace_of("a8@0 b16@16 a8@8 b2@64"));
  T_EQ(run.result.ooms, 0);
  T_EQ(run.tags[0].parked_count, 2);
  T_EQ(run.tags[0].sent_bytes, 24 * MIB);
  T_EQ(run.tags[0].fetched_count, 1);
  T_EQ(run.tags[0].fetched_bytes, 8 * MIB);
  T_EQ(run.tags[1].parked_count, 1);
  T_EQ(run.tags[1].sent_bytes, 16 * MIB);
  T_EQ(run.tags[1].fetched_bytes, 16 * MIB);
  T_EQ(run.tags[2].peak_allocated, 34 * MIB);
  T_LE(run.tags[2].peak_reserved, 18 * MIB);
  T_LE(run.tags[2].peak_allocated - 18 * MIB, run.tags[2].sent_bytes);
}

// The sums of the tag above, and of the run; and the price of the bus.
T_TEST(test_budgets__what_moves_counts_above_and_has_its_price) {
  const tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  tagged_run run;
  parent_init(&run, 18 * MIB, false);
  run_play(&run, trace_of("a8@0 b16@16 a8@8 b2@64"));
  T_EQ(run.tags[2].parked_count, 3);
  T_EQ(run.tags[2].fetched_count, 2);
  T_EQ(run.result.sent_bytes, 40 * MIB);
  T_EQ(run.result.fetched_bytes, 24 * MIB);
  T_EQ(run.tags[2].sent_bytes, run.result.sent_bytes);
  T_EQ(run.tags[0].bus_ns, 32 * costs.copy_per_mib);
  T_EQ(run.result.bus_ns, 64 * costs.copy_per_mib);
}

// A release before the last request is a use; those behind it are not.
T_TEST(test_budgets__a_release_brings_its_tag_back_except_at_the_end) {
  tagged_run run;
  parent_init(&run, 12 * MIB, false);
  run_play(&run, trace_of("a8@0 b8@8 -0 b4@16"));
  T_EQ(run.result.ooms, 0);
  T_EQ(run.tags[0].fetched_count, 1);
  T_EQ(run.tags[1].fetched_count, 1);
  parent_init(&run, 12 * MIB, false);
  run_play(&run, trace_of("a8@0 b8@8 -0 -8"));
  T_EQ(run.tags[0].parked_count, 1);
  T_EQ(run.tags[2].fetched_count, 0);
}

static const char* const contents[] = { "changing", "constant", NULL };

// Two tags of 8 MiB in room for one. Contents that do not change are copied away once.
T_TEST_OVER(test_budgets__uses_bring_tags_back, contents) {
  static const tide_replay_use uses[] = { { 1, 0 }, { 2, 0 }, { 2, 1 }, { 2, 0 }, { 2, 1 } };
  const bool is_constant = strcmp(t_variant(), "constant") == 0;
  tagged_run run;
  parent_init(&run, 8 * MIB, is_constant);
  run.options.uses = uses;
  run.options.use_count = 5;
  run_play(&run, trace_of("a8@0 b8@8"));
  T_EQ(run.result.ooms, 0);
  T_EQ(run.result.fetched_bytes, 32 * MIB);
  T_EQ(run.result.sent_bytes, is_constant ? 16 * MIB : 40 * MIB);
  T_EQ(run.tags[2].peak_allocated, 16 * MIB);
  T_EQ(run.tags[2].peak_reserved, 8 * MIB);
}

// A use of a tag that has no blocks, or does not yield, does nothing.
T_TEST(test_budgets__uses_without_blocks_do_nothing) {
  static const tide_replay_use uses[] = { { 0, 0 }, { 3, 1 }, { 4, 0 } };
  tagged_run run;
  parent_init(&run, 8 * MIB, false);
  run.options.uses = uses;
  run.options.use_count = 3;
  run_play(&run, trace_of("a8@0 -0 b8@8"));
  T_EQ(run.result.sent_bytes + run.result.fetched_bytes + run.result.ooms, 0);
}

static void stubborn_init(tagged_run* run) {
  parent_init(run, 10 * MIB, false);
  run->budgets[1] = (tide_budget)TIDE_BUDGET_INIT;
  run->tags[1].budget = &run->budgets[1];  // p/b does not yield
}

T_TEST(test_budgets__a_tag_that_cannot_come_back_is_refused) {
  static const tide_replay_use use = { 2, 0 };
  tagged_run run;
  stubborn_init(&run);
  run.options.uses = &use;
  run.options.use_count = 1;
  run_play(&run, trace_of("a8@0 b8@8"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.first_oom, 2);
  T_EQ(run.result.oom_bytes, 8 * MIB);
  T_CHECK(run.result.is_oom_return);
  T_STR_EQ(run.result.oom_tag, "p/a");
  T_STR_EQ(run.result.oom_limited_tag, "p");
  T_EQ(run.tags[2].refused, 1);
}

// The request at entry 2 is not made. Its release, and what follows, is as without it.
T_TEST(test_budgets__a_request_of_a_tag_that_cannot_come_back_is_refused) {
  tagged_run run;
  stubborn_init(&run);
  run_play(&run, trace_of("a8@0 b8@8 a2@16 -16 -8 a2@16"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.first_oom, 2);
  T_EQ(run.result.allocations, 3);
  T_CHECK(run.result.is_oom_return);
}

T_TEST(test_budgets__run_ends_at_the_first_refusal_if_asked) {
  static const tide_replay_use uses[] = { { 2, 0 }, { 3, 0 } };
  tagged_run run;
  stubborn_init(&run);
  run.options.uses = uses;
  run.options.use_count = 2;
  run.options.stops_at_oom = true;
  run_play(&run, trace_of("a8@0 b8@8 b8@16"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.allocations, 2);
}

// A segment of PyTorch for blocks of 8 MiB has 20 MiB. Nothing gives way.
T_TEST(test_budgets__limits_hold_with_the_policy_torch) {
  tagged_run run;
  parent_init(&run, 40 * MIB, false);
  run.device.policy = TIDE_POLICY_TORCH;
  run_play(&run, trace_of("a8@0 a8@8 b8@16 b8@24 a8@32"));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.first_oom, 4);
  T_STR_EQ(run.result.oom_limited_tag, "p");
  T_EQ(run.tags[2].peak_reserved, 40 * MIB);
  T_EQ(run.result.sent_bytes, 0);
}

// ---------------------------------------------------------------------------------------------------
// Which tag

// The sums of requests by the pool that each entry names; the final list has the tags of the pools.
static uint64_t peak_of_pools(const tide_trace* trace, const char* tag) {
  size_t count = 0;
  size_t segment_count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  const tide_trace_segment* const segments = tide_trace_segments(trace, &segment_count);
  uint64_t live = 0;
  uint64_t peak = 0;
  for (size_t i = 0; i < count; i++) {
    const uint64_t bytes = (entries[i].bytes + 511) / 512 * 512;
    bool is_its = false;
    for (size_t k = 0; k < segment_count; k++) {
      const char* const own = tide_trace_segment_tag(trace, &segments[k]);
      is_its |= segments[k].pool == entries[i].pool && strncmp(own, tag, strlen(tag)) == 0;
    }
    if (is_its && entries[i].action == TIDE_ACTION_ALLOC) live += bytes;
    if (is_its && entries[i].action == TIDE_ACTION_FREE_COMPLETED) live -= bytes;
    peak = live > peak ? live : peak;
  }
  return peak;
}

T_TEST(test_budgets__recorded_tags_hold) {
  static const char* const names[] = { "weights/actor", "weights/critic", "kv cache", "weights" };
  tide_trace* const trace = trace_of_test("tags/turns");
  tagged_run run;
  run_init(&run);
  for (size_t i = 0; i < 4; i++) (void)run_tag(&run, names[i]);
  T_OK(run_play_on(&run, trace, NULL));
  T_EQ(run.result.ooms, 0);
  for (size_t i = 0; i < 4; i++) {
    T_LT(0, run.tags[i].peak_allocated);
    T_EQ(run.tags[i].peak_allocated, peak_of_pools(trace, names[i]));
  }
  tide_trace_free(trace);
}

// A recording that begins in the middle: the final list of segments has the stack of the old block.
T_TEST(test_budgets__old_blocks_have_the_tags_of_their_stacks) {
  tide_trace* const trace = trace_of("b8@8");
  const tide_trace_segment segment = { .address = BASE, .bytes = 16 * MIB, .is_large = true };
  const tide_trace_block blocks[] = {
    { .address = BASE,
      .bytes = 8 * MIB,
      .requested_bytes = 8 * MIB,
      .stack = 1,
      .state = TIDE_BLOCK_ALLOCATED },
    { .address = BASE + 8 * MIB,
      .bytes = 8 * MIB,
      .requested_bytes = 8 * MIB,
      .stack = 2,
      .state = TIDE_BLOCK_ALLOCATED },
  };
  tide_trace_about about = tide_trace_get_about(trace);
  tagged_run run;
  about.has_segments = true;
  tide_trace_set_about(trace, &about);
  T_OK(tide_trace_add_segment(trace, &segment));
  for (size_t i = 0; i < 2; i++) T_OK(tide_trace_add_block(trace, &blocks[i]));
  run_init(&run);
  (void)run_tag(&run, "a");
  (void)run_tag(&run, "b");
  run_play(&run, trace);
  T_LT(0, run.result.blocks_before);
  T_EQ(run.tags[0].peak_allocated, 8 * MIB);
  T_EQ(run.tags[1].peak_allocated, 8 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Wrong options, and memory

T_TEST(test_budgets__wrong_options_are_refused) {
  static const tide_replay_use late = { 3, 0 };
  static const tide_replay_use unknown = { 0, 3 };
  static const tide_replay_use falling[] = { { 1, 0 }, { 0, 0 } };
  tide_trace* const trace = trace_of("a8@0 b8@8");
  tide_replay_park park = { .entry = 0 };
  tagged_run run;
  for (int wrong = 0; wrong < 10; wrong++) {
    parent_init(&run, 8 * MIB, false);
    switch (wrong) {
      case 0: run.tags[0].name = NULL; break;
      case 1: run.tags[0].name = "p//a"; break;
      case 2: run.tags[0].name = "p/b"; break;
      case 3: run.budgets[2].guarantee = 9 * MIB; break;
      case 4: run.stack_tags[5] = 4; break;
      case 5: run.options.checks = true; break;
      case 6:
        run.options.parks = &park;
        run.options.park_count = 1;
        break;
      case 7:
        run.options.uses = &late;
        run.options.use_count = 1;
        break;
      case 8:
        run.options.uses = &unknown;
        run.options.use_count = 1;
        break;
      default:
        run.options.uses = falling;
        run.options.use_count = 2;
        break;
    }
    T_STATUS(run_play_on(&run, trace, NULL), TIDE_ERR_ARGUMENT);
  }
  tide_trace_free(trace);
}

// True when the heap did not fail.
static bool play_with_heap(const tide_trace* trace, size_t fail_at) {
  counting_heap heap;
  tagged_run run;
  counting_heap_init(&heap, fail_at, false);
  parent_init(&run, 18 * MIB, false);
  const tide_status status = run_play_on(&run, trace, &heap.heap);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
  T_EQ(atomic_load(&heap.outstanding), 0);
  return !atomic_load(&heap.has_failed);
}

T_TEST(test_budgets__leave_nothing_behind_without_memory) {
  tide_trace* const trace = trace_of("a8@0 b16@16 a8@8 b2@64");
  size_t fail_at = 0;
  while (!play_with_heap(trace, fail_at)) fail_at++;
  T_LT(20, fail_at);
  tide_trace_free(trace);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of the verbs info, report and diff: causes of lost memory, refusals, call sites, sums, moments;
// and the verbs themselves on small files.
#define T_THREADS
#include "sums.h"
#include "ledger/recorded.h"
#include "moment.h"
#include "refusal.h"
#include "room.h"
#include "sites.h"
#include "tool.h"
#include "where.h"

#define BASE ((uint64_t)0x7f0000000000)

static tide_trace* run_new(void) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_trace_add_device(trace, 0));
  return trace;
}

static void run_add(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes, uint64_t stream,
                    uint32_t pool) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = 1000000 * count,
                                   .address = address,
                                   .bytes = bytes,
                                   .stream = stream,
                                   .pool = pool,
                                   .action = (uint8_t)action };
  T_OK(tide_trace_add_entry(trace, &entry));
}

static tide_ledger* ledger_of(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  return ledger;
}

// ---------------------------------------------------------------------------------------------------
// Where reserved memory was

static uint64_t where_sum(const tool_where* where) {
  uint64_t sum = where->requested;
  for (tool_cause cause = 0; cause < TOOL_CAUSE_COUNT; cause++) sum += tool_where_bytes(where, cause);
  return sum;
}

static tool_where where_of(const tide_trace* trace) {
  tide_ledger* const ledger = ledger_of(trace);
  tool_where where;
  T_EQ(tool_where_find(trace, 0, ledger, &where), TOOL_DONE);
  T_EQ(where.reserved, tide_ledger_get_peaks(ledger).reserved.bytes);
  T_EQ(where_sum(&where), where.reserved);
  tide_ledger_free(ledger);
  return where;
}

T_TEST(test_report__counts_every_byte_once) {
  tide_trace* const trace = run_new();
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE, 1000, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + KIB, 4 * KIB, 0, 0);
  run_add(trace, TIDE_ACTION_FREE_REQUESTED, BASE + KIB, 4 * KIB, 0, 0);       // waits
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 8 * MIB, 2 * MIB, 7, 0);    // of another stream
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 16 * MIB, 2 * MIB, 0, 3);   // of another pool
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 32 * MIB, 20 * MIB, 0, 0);  // free
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 64 * MIB, 24 * MIB, 0, 0);  // the last growth,
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 64 * MIB, 24 * MIB - 512, 0, 0);    // and its request
  run_add(trace, TIDE_ACTION_FREE_REQUESTED, BASE + 64 * MIB, 24 * MIB, 0, 0);

  const tool_where where = where_of(trace);

  T_EQ(where.at, 8);
  T_EQ(where.requested, 1000 + 24 * MIB - 512);
  T_EQ(where.rounding, 24 + 512);
  T_EQ(where.waiting_for_events, 4 * KIB);
  T_EQ(where.private_pools, 2 * MIB);
  T_EQ(where.held_by_a_live_neighbour, 2 * MIB - 5 * KIB);
  T_EQ(where.cached_but_free, 22 * MIB);  // also on the other stream
  T_EQ(tool_where_main_cause(&where), TOOL_CAUSE_cached_but_free);
  tide_trace_free(trace);
}

T_TEST(test_report__whole_free_handles_of_an_expandable_segment_are_not_pinned) {
  tide_trace* const trace = run_new();
  run_add(trace, TIDE_ACTION_SEGMENT_MAP, BASE, 80 * MIB, 0, 0);  // four handles
  run_add(trace, TIDE_ACTION_ALLOC, BASE, 15 * MIB, 0, 0);        // and 5 MiB free beside it
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 15 * MIB, 47 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_FREE_COMPLETED, BASE + 15 * MIB, 47 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 62 * MIB, 18 * MIB, 0, 0);  // to the end
  run_add(trace, TIDE_ACTION_SEGMENT_MAP, BASE + 128 * MIB, 20 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 128 * MIB, 20 * MIB, 0, 0);

  const tool_where where = where_of(trace);

  T_EQ(where.requested, 53 * MIB);
  T_EQ(where.cached_but_free, 40 * MIB);  // the second and the third
  T_EQ(where.held_by_a_live_neighbour, 7 * MIB);
  tide_trace_free(trace);
}

T_TEST(test_report__of_an_empty_trace_has_nothing_anywhere) {
  tide_trace* const trace = run_new();

  const tool_where where = where_of(trace);

  T_EQ(where.at, TIDE_LEDGER_BEFORE);
  T_EQ(where.reserved, 0);
  tide_trace_free(trace);
}

T_TEST_OVER(test_report__adds_up_to_what_is_reserved, recorded_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);
  tide_trace* const rest = recorded_trace(t_variant(), 300, NULL);

  T_LT(0, where_of(trace).reserved);  // where_of() compares the sum
  T_LT(0, where_of(rest).reserved);

  tide_trace_free(trace);
  tide_trace_free(rest);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

static size_t refusals_of(const tide_trace* trace, tool_refusal* out, size_t room, tool_limits* limits) {
  tide_ledger* const ledger = ledger_of(trace);
  size_t count = 0;
  T_EQ(tool_refusals_find(trace, 0, ledger, out, room, &count, limits), TOOL_DONE);
  tide_ledger_free(ledger);
  return count;
}

static tool_room room_of(const tide_trace* trace, const tool_refusal* refusal, const tool_limits* limits) {
  tide_ledger* const ledger = ledger_of(trace);
  tool_room room;
  T_EQ(tool_room_find(trace, ledger, refusal, limits, &room), TOOL_DONE);
  tide_ledger_free(ledger);
  return room;
}

T_TEST(test_report__explains_a_refusal) {
  tide_trace* const trace = run_new();
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 40 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE, 10 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 10 * MIB, 5 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 15 * MIB, 10 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_FREE_REQUESTED, BASE, 10 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_FREE_COMPLETED, BASE, 10 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 64 * MIB, 20 * MIB, 5, 0);  // of no use to stream 0
  run_add(trace, TIDE_ACTION_OOM, 3 * MIB, 15 * MIB + 512, 0, 0);
  tool_refusal refusal;
  tool_limits limits;

  T_EQ(refusals_of(trace, &refusal, 1, &limits), 1);

  T_EQ(refusal.at, 7);
  T_EQ(refusal.segment_bytes, 16 * MIB);
  T_EQ(refusal.reserved, 60 * MIB);
  T_EQ(refusal.free_bytes, 45 * MIB);
  T_EQ(refusal.place_free, 25 * MIB);
  T_EQ(refusal.place_pieces, 2);
  T_EQ(refusal.place_largest, 15 * MIB);
  tool_room room = room_of(trace, &refusal, &limits);
  T_EQ(room.way, TOOL_ROOM_SEGMENTS);  // the one of the other stream is empty
  T_EQ(room.missing_bytes, 13 * MIB);
  T_CHECK(room.is_exact);
  T_EQ(room.segments_bytes, 0);
  T_EQ(room.hole_bytes, 10 * MIB);  // without the block in the middle, 10 + 5 + ... MiB would be enough
  tool_room_fini(&room);
  T_EQ(refusal.ranges.count, 2);
  T_CHECK(limits.is_device_full);
  T_EQ(limits.likely, 63 * MIB);
  T_EQ(limits.less_than, 76 * MIB);
  T_EQ(limits.at_least, 60 * MIB);
  tool_refusal_fini(&refusal);
  tide_trace_free(trace);
}

T_TEST(test_report__counts_refusals_beyond_those_it_explains) {
  tide_trace* const trace = recorded_trace("after_oom", 0, NULL);
  tool_refusal refusals[2];
  tool_limits limits;

  T_EQ(refusals_of(trace, refusals, 2, &limits), 2);

  T_EQ(limits.count, 50);
  T_LE(limits.at_least, 700 * MIB);  // the limit of the run
  T_LT(700 * MIB, limits.less_than);
  T_EQ(limits.likely, limits.at_least);
  tool_refusal_fini(&refusals[0]);
  tool_refusal_fini(&refusals[1]);
  tide_trace_free(trace);
}

// The cheapest range, by trying all.
static uint64_t cheapest_range(const tide_ledger_block* blocks, size_t count, uint64_t need) {
  uint64_t best = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = 0;
    uint64_t used = 0;
    for (size_t k = i; k < count; k++) {
      bytes += blocks[k].bytes;
      used += blocks[k].state == TIDE_BLOCK_INACTIVE ? 0 : blocks[k].bytes;
      if (bytes >= need && used < best) best = used;
    }
  }
  return best;
}

typedef struct gathered {
  tide_ledger_block blocks[64];
  size_t count;
} gathered;

static bool gather_block(void* user, const tide_ledger_block* block) {
  gathered* const g = user;
  T_LT(g->count, 64);
  g->blocks[g->count++] = *block;
  return true;
}

T_TEST(test_report__finds_the_cheapest_blocks_in_the_way) {
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(200); round++) {
    tide_trace* const trace = run_new();
    run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
    uint64_t at = 0;
    for (size_t i = 0; i < 20; i++) {
      const uint64_t bytes = (1 + t_rng_below(&rng, 60)) * 512;
      const bool stays = t_rng_below(&rng, 2) == 0;
      run_add(trace, TIDE_ACTION_ALLOC, BASE + at, bytes, 0, 0);
      if (!stays) run_add(trace, TIDE_ACTION_FREE_COMPLETED, BASE + at, bytes, 0, 0);
      at += bytes;
    }
    run_add(trace, TIDE_ACTION_ALLOC, BASE + at, 2 * MIB - at, 0, 0);
    const uint64_t need = (1 + t_rng_below(&rng, 1200)) * 512;
    run_add(trace, TIDE_ACTION_OOM, 0, need, 0, 0);
    tide_ledger* const ledger = ledger_of(trace);
    gathered g = { .count = 0 };
    tide_ledger_visit(ledger, NULL, gather_block, &g);
    tool_refusal refusal;
    tool_limits limits;

    T_EQ(refusals_of(trace, &refusal, 1, &limits), 1);

    tool_room room = room_of(trace, &refusal, &limits);
    T_EQ(room.hole_bytes, cheapest_range(g.blocks, g.count, need));
    tool_room_fini(&room);
    tool_refusal_fini(&refusal);
    tide_ledger_free(ledger);
    tide_trace_free(trace);
  }
}

// ---------------------------------------------------------------------------------------------------
// Call sites and sums

static uint32_t add_text(tide_trace* trace, const char* text) {
  uint32_t id = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), text, strlen(text), &id));
  return id;
}

static uint64_t add_frame(tide_trace* trace, const char* file, int64_t line, const char* function) {
  const tide_frame frame = { .name = add_text(trace, function), .file = add_text(trace, file), .line = line };
  uint32_t id = 0;
  T_OK(tide_intern_add_frame(tide_trace_names(trace), &frame, &id));
  return id;
}

static uint32_t add_stack(tide_trace* trace, const uint64_t* frames, size_t count) {
  uint32_t id = 0;
  T_OK(tide_intern_add_stack(tide_trace_names(trace), frames, count, &id));
  return id;
}

static void expect_site(tide_trace* trace, const uint64_t* frames, size_t count, const char* want) {
  const uint32_t stack = add_stack(trace, frames, count);
  char text[TOOL_SITE_TEXT];
  tool_sites sites;
  tool_sites_init(&sites, trace);
  T_STR_EQ(tool_site_text(&sites, tool_sites_find(&sites, stack), text), want);
  T_STR_EQ(tool_site_text(&sites, tool_sites_find(&sites, stack), text), want);
  tool_sites_fini(&sites);
}

T_TEST(test_report__a_call_site_is_the_innermost_line_of_the_program) {
  tide_trace* const trace = run_new();
  const uint64_t hidden = add_frame(trace, "", 0, "torch::unwind::unwind()");
  const uint64_t library = add_frame(trace, "Empty.cpp", 3, "at::empty");
  const uint64_t native = add_frame(trace, "mine.cc", 7, "run");
  const uint64_t torch = add_frame(trace, "/v/lib/site-packages/torch/nn/conv.py", 9, "forward");
  const uint64_t outer = add_frame(trace, "/v/lib/site-packages/torch/utils/data.py", 10, "loop");
  const uint64_t other = add_frame(trace, "/v/lib/site-packages/vision/resnet.py", 11, "forward");
  const uint64_t mine = add_frame(trace, "/home/me/train.py", 13, "main");

  expect_site(trace, (const uint64_t[]){ hidden, library, torch, other, mine }, 5, "train.py:13 main");
  expect_site(trace, (const uint64_t[]){ torch, mine }, 2, "train.py:13 main");
  expect_site(trace, (const uint64_t[]){ hidden, torch, other, outer }, 4, "vision/resnet.py:11 forward");
  expect_site(trace, (const uint64_t[]){ hidden, library, torch, outer }, 4, "torch/utils/data.py:10 loop");
  expect_site(trace, (const uint64_t[]){ hidden, library, native }, 3, "mine.cc:7 run");
  expect_site(trace, (const uint64_t[]){ hidden }, 1, "torch::unwind::unwind()");
  expect_site(trace, NULL, 0, "(no stack)");
  tide_trace_free(trace);
}

static void expect_short(tide_trace* trace, const char* file, const char* function, size_t columns,
                         const char* want) {
  const uint64_t frame = add_frame(trace, file, 7, function);
  char text[TOOL_SITE_TEXT];
  tool_sites sites;
  tool_sites_init(&sites, trace);
  T_STR_EQ(tool_site_short(&sites, tool_site_of_frame(&sites, frame), columns, text), want);
  tool_sites_fini(&sites);
}

T_TEST(test_report__a_call_site_fits_into_columns) {
  tide_trace* const trace = run_new();
  const char* const file = "/v/site-packages/vision/models/resnet.py";
  expect_short(trace, file, "forward", 34, "vision/models/resnet.py:7 forward");
  expect_short(trace, file, "forward", 33, "vision/models/resnet.py:7 forward");
  expect_short(trace, file, "forward", 32, "\xe2\x80\xa6/models/resnet.py:7 forward");
  expect_short(trace, file, "forward", 21, "\xe2\x80\xa6/resnet.py:7 forward");
  expect_short(trace, file, "forward", 20, "\xe2\x80\xa6/resnet.py:7 forwa\xe2\x80\xa6");
  expect_short(trace, "??", "f(int)", 4, "f(\xe2\x80\xa6)");
  expect_short(trace, "??", "f(int)", 3, "f(\xe2\x80\xa6");
  tide_trace_free(trace);
}

T_TEST(test_report__names_of_cpp_lose_their_arguments) {
  tide_trace* const trace = run_new();
  static const char* const names[][2] = {
    { "f()", "f()" },
    { "at::f<a<b>, (c)1>(int (*)(int)) const", "at::f<\xe2\x80\xa6>(\xe2\x80\xa6) const" },
    { "(anonymous namespace)::f(int)", "(anonymous namespace)::f(\xe2\x80\xa6)" },
    { "a::operator()(int)", "a::operator()(\xe2\x80\xa6)" },
    { "a::operator<<(int)", "a::operator<<(\xe2\x80\xa6)" },
    { "f<never closed", "f<\xe2\x80\xa6>" },
    { "<module>", "<module>" },
    { "<lambda>", "<lambda>" },
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    expect_short(trace, "??", names[i][0], SIZE_MAX, names[i][1]);
  tide_trace_free(trace);
}

T_TEST(test_report__a_stack_has_the_same_hash_in_every_trace) {
  tide_trace* const a = run_new();
  tide_trace* const b = run_new();
  (void)add_text(b, "so that texts have other numbers");
  const uint64_t in_a[] = { add_frame(a, "x.py", 1, "f"), add_frame(a, "x.py", 2, "g") };
  const uint64_t in_b[] = { add_frame(b, "x.py", 1, "f"), add_frame(b, "x.py", 2, "g") };
  const uint64_t turned[] = { in_b[1], in_b[0] };
  const uint32_t stacks[] = { add_stack(a, in_a, 2), add_stack(b, in_b, 2), add_stack(b, turned, 2) };
  tool_sites sites_a;
  tool_sites sites_b;
  tool_sites_init(&sites_a, a);
  tool_sites_init(&sites_b, b);

  T_EQ(tool_stack_hash(&sites_a, stacks[0]), tool_stack_hash(&sites_b, stacks[1]));
  T_NE(tool_stack_hash(&sites_a, stacks[0]), tool_stack_hash(&sites_b, stacks[2]));
  T_EQ(tool_stack_hash(&sites_a, 0), 0);

  // In the history of a cache, frames are addresses.
  const uint64_t addresses[] = { 0x7f0000000000, 0x7f0000001000 };
  const uint32_t live[] = { add_stack(a, &addresses[0], 1), add_stack(a, &addresses[1], 1) };
  T_NE(tool_stack_hash(&sites_a, live[0]), tool_stack_hash(&sites_a, live[1]));

  tool_sites_fini(&sites_a);
  tool_sites_fini(&sites_b);
  tide_trace_free(a);
  tide_trace_free(b);
}

T_TEST(test_report__holders_sum_by_both_keys) {
  tool_sums holders = { .items = NULL };
  T_CHECK(tool_sums_find(&holders, 1, 1) == NULL);
  for (uint64_t i = 0; i < 3000; i++) (void)tool_sums_add(&holders, i % 100, i % 3, i);

  T_EQ(holders.count, 300);
  const tool_sum* const one = tool_sums_find(&holders, 7, 1);
  T_CHECK(one != NULL);
  T_EQ(one->count, 10);
  T_EQ(one->bytes, 10 * 7 + 100 * (0 + 3 + 6 + 9 + 12 + 15 + 18 + 21 + 24 + 27));
  T_EQ(one->largest, 2707);
  T_CHECK(tool_sums_find(&holders, 100, 0) == NULL);

  tool_sums_sort_by_bytes(&holders);
  for (size_t i = 1; i < holders.count; i++) T_LE(holders.items[i].bytes, holders.items[i - 1].bytes);
  tool_sums_sort_by_keys(&holders);
  for (size_t i = 1; i < holders.count; i++) T_LE(holders.items[i - 1].key, holders.items[i].key);
  tool_sums_fini(&holders);
}

// ---------------------------------------------------------------------------------------------------
// Moments

static uint64_t annotation(tide_trace* trace, const char* name, const char* stage, int64_t time_us) {
  const tide_value texts[] = { { .kind = TIDE_VALUE_TEXT, .text = add_text(trace, name) },
                               { .kind = TIDE_VALUE_TEXT, .text = add_text(trace, stage) } };
  const uint64_t items[] = { trace_pair(trace, "name", texts[0]), trace_pair(trace, "stage", texts[1]),
                             trace_pair(trace, "device", trace_number(0)),
                             trace_pair(trace, "time_us", trace_number(time_us)) };
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items, .count = 4 };
  uint32_t id = 0;
  T_OK(tide_intern_add_value(tide_trace_names(trace), &dict, &id));
  return id;
}

T_TEST(test_report__a_moment_names_the_innermost_range) {
  tide_trace* const trace = run_new();
  for (size_t i = 0; i < 10; i++) run_add(trace, TIDE_ACTION_SNAPSHOT, 0, 0, 0, 0);  // 1 ms apart
  const uint64_t items[] = { annotation(trace, "step", "START", 1000),
                             annotation(trace, "forward", "START", 2500),
                             annotation(trace, "none", "END", 2600),
                             annotation(trace, "forward", "END", 4500),
                             annotation(trace, "step", "END", 6500) };
  tide_trace_about about = tide_trace_get_about(trace);
  const tide_value list = { .kind = TIDE_VALUE_LIST, .items = items, .count = 5 };
  T_OK(tide_intern_add_value(tide_trace_names(trace), &list, &about.annotations));
  tide_trace_set_about(trace, &about);

  T_CHECK(tool_moment_of(trace, 0, 0).during == NULL);
  T_STR_EQ(tool_moment_of(trace, 0, 2).during, "step");
  T_STR_EQ(tool_moment_of(trace, 0, 3).during, "forward");
  T_STR_EQ(tool_moment_of(trace, 0, 5).during, "step");
  T_CHECK(tool_moment_of(trace, 0, 7).during == NULL);

  char text[TOOL_MOMENT_TEXT];
  const tool_moment moment = tool_moment_of(trace, 0, 3);
  T_STR_EQ(tool_moment_text(&moment, text), "entry 3, 0.003 s into the recording, during \"forward\"");
  const tool_moment before = tool_moment_of(trace, 0, TIDE_LEDGER_BEFORE);
  T_STR_EQ(tool_moment_text(&before, text), "before the first entry");
  tide_trace_free(trace);
}

T_TEST(test_report__without_entries_the_only_moment_is_the_end) {
  tide_trace* const trace = run_new();
  char text[TOOL_MOMENT_TEXT];
  const tool_moment end = tool_moment_of(trace, 0, TIDE_LEDGER_BEFORE);

  T_STR_EQ(tool_moment_text(&end, text), "the end");
  tide_trace_free(trace);
}

T_TEST(test_report__a_moment_among_steps_has_no_time) {
  tide_trace* const trace = run_new();
  const tide_note note = { .metadata = add_text(trace, "buffer 7") };
  tide_trace_entry entry = { .address = BASE, .bytes = 512, .action = TIDE_ACTION_ALLOC };
  T_OK(tide_intern_add_note(tide_trace_names(trace), note, &entry.note));
  T_OK(tide_trace_add_entry(trace, &entry));
  T_STR_EQ(tool_moment_of(trace, 0, 0).during, "buffer 7");
  tide_trace_about about = tide_trace_get_about(trace);
  about.has_steps = true;
  tide_trace_set_about(trace, &about);

  const tool_moment moment = tool_moment_of(trace, 0, 0);

  T_CHECK(!moment.has_time);
  T_CHECK(moment.during == NULL);
  tide_trace_free(trace);
}

T_TEST(test_report__knows_what_was_reserved_unless_there_are_requests_alone) {
  tide_trace* const trace = run_new();
  T_CHECK(tool_device_knows_reserved(trace, 0));
  run_add(trace, TIDE_ACTION_ALLOC, BASE, 512, 0, 0);
  T_CHECK(!tool_device_knows_reserved(trace, 0));
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 4 * MIB, 2 * MIB, 0, 0);
  T_CHECK(tool_device_knows_reserved(trace, 0));
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// The verbs

static char answer[200000];

// Runs a verb; returns its exit status, and its output in `answer`.
static int verb_run(const tool_verb* verb, const char* a, const char* b, bool is_json) {
  FILE* const file = tmpfile();
  const int kept = dup(STDOUT_FILENO);
  T_CHECK(file != NULL && kept >= 0 && fflush(stdout) == 0);
  T_EQ(dup2(fileno(file), STDOUT_FILENO), STDOUT_FILENO);
  char texts[4][256];
  char* argv[5] = { texts[0], texts[1] };
  int argc = 2;
  (void)snprintf(texts[0], sizeof texts[0], "%s", verb->name);
  (void)snprintf(texts[1], sizeof texts[1], "%s", a);
  if (b != NULL) (void)snprintf(argv[argc++] = texts[2], sizeof texts[2], "%s", b);
  if (is_json) (void)snprintf(argv[argc++] = texts[3], sizeof texts[3], "--json");
  const int status = tool_verb_run(verb, argc, argv);
  T_EQ(fflush(stdout), 0);
  const ssize_t bytes = pread(STDOUT_FILENO, answer, sizeof answer - 1, 0);
  T_CHECK(bytes >= 0);
  answer[bytes] = '\0';
  T_EQ(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
  (void)close(kept);
  (void)fclose(file);
  return status;
}

#define SAVED_PATH 32

// Writes a trace as a snapshot and frees it. The file has lost its name, so a test leaves nothing behind;
// `out` is a path to it.
static void trace_save(tide_trace* trace, char out[SAVED_PATH]) {
  char name[] = "/tmp/test_report_XXXXXX";
  const int made = mkstemp(name);
  T_CHECK(made >= 0);
  T_EQ(tool_trace_write(trace, name, TIDE_FORMAT_PICKLE), TOOL_DONE);
  const int written = open(name, O_RDONLY);  // another file: writing replaces the first
  T_CHECK(written >= 0);
  T_EQ(unlink(name), 0);
  (void)close(made);
  tide_trace_free(trace);
  (void)snprintf(out, SAVED_PATH, "/proc/self/fd/%d", written);
}

T_TEST(test_report__info_says_what_is_there) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("gnn_retry", 0, NULL), path);

  T_EQ(verb_run(&tool_info, path, NULL, true), TOOL_DONE);

  T_STR_HAS(answer, "\"allocs\": 2936,");
  T_STR_HAS(answer, "\"segment_allocs\": 39, \"segment_frees\": 27,");
  T_STR_HAS(answer, "\"peak_allocated_blocks\": 9229527040,");
  T_STR_HAS(answer, "\"peak_reserved\": 14115930112,");
  T_STR_HAS(answer, "\"is_from_start\": true,");
  T_STR_HAS(answer, "\"differences\": 0 }");
  T_EQ(verb_run(&tool_info, path, NULL, false), TOOL_DONE);
  T_STR_HAS(answer, "recorded from the start");
}

T_TEST(test_report__info_says_that_a_recording_begins_in_the_middle) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("gnn_retry", 3000, NULL), path);

  T_EQ(verb_run(&tool_info, path, NULL, true), TOOL_DONE);
  T_STR_HAS(answer, "\"is_from_start\": false,");
  T_STR_HAS(answer, "\"unknown_frees\": 0, \"homeless_allocs\": 0, \"overlaps\": 0,");
  T_EQ(verb_run(&tool_info, path, NULL, false), TOOL_DONE);
  T_STR_HAS(answer, "The recording begins in the middle");
}

T_TEST(test_report__report_begins_with_the_finding) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("after_oom", 0, NULL), path);

  T_EQ(verb_run(&tool_report, path, NULL, false), TOOL_DONE);
  T_EQ(strncmp(answer, "Out of memory 50 times, the first at entry 8", 44), 0);
  T_STR_HAS(answer, "Requests refused later: 47.");
  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);
  T_STR_HAS(answer, "\"ooms\": 50,");
  T_STR_HAS(answer, "\"peak_reserved\": 727711744,");
  T_STR_HAS(answer, "\"expandable_segments:True\"");
}

T_TEST(test_report__report_names_a_setting_that_helps) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("gnn_retry", 0, NULL), path);

  T_EQ(verb_run(&tool_report, path, NULL, false), TOOL_DONE);

  T_EQ(strncmp(answer, "Reserved memory reached 13.15 GiB", 33), 0);
  T_STR_HAS(answer, "expandable_segments:True");
  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);
  T_STR_HAS(answer, "\"fragmentation_cost\": 4889341952,");
}

// A segment, a block that fills it, and its release.
static void run_add_passing(tide_trace* trace, uint64_t address, uint64_t bytes, uint64_t stream) {
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, address, bytes, stream, 0);
  run_add(trace, TIDE_ACTION_ALLOC, address, bytes, stream, 0);
  run_add(trace, TIDE_ACTION_FREE_REQUESTED, address, bytes, stream, 0);
  run_add(trace, TIDE_ACTION_FREE_COMPLETED, address, bytes, stream, 0);
}

T_TEST(test_report__report_names_the_main_cause_beside_a_setting_that_saves_little) {
  tide_trace* const trace = run_new();
  run_add_passing(trace, BASE, 100 * MIB, 7);
  run_add_passing(trace, BASE + 128 * MIB, 100 * MIB, 8);
  run_add_passing(trace, BASE + 256 * MIB, 30 * MIB, 0);
  run_add_passing(trace, BASE + 320 * MIB, 40 * MIB, 0);  // an expandable segment would have grown instead
  char path[SAVED_PATH];
  trace_save(trace, path);

  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);

  T_STR_HAS(answer, "\"advice\": \"Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: ");
  T_STR_HAS(answer, " less (11.1 %). Allocate on one stream. In a replay with all requests on one stream, ");
  T_STR_HAS(answer, "reserve 100.00 MiB at the peak, 170.00 MiB less.");
}

T_TEST(test_report__report_of_requests_alone_says_so) {
  tide_trace* const trace = run_new();
  run_add(trace, TIDE_ACTION_ALLOC, BASE, 300 * MIB, 0, 0);
  run_add(trace, TIDE_ACTION_ALLOC, BASE + 512 * MIB, 724 * MIB, 0, 0);
  char path[SAVED_PATH];
  trace_save(trace, path);

  T_EQ(verb_run(&tool_report, path, NULL, false), TOOL_DONE);
  T_EQ(strncmp(answer, "Only requests were recorded", 27), 0);
  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);
  T_STR_HAS(answer, "At the peak 1.00 GiB were live.");
  T_STR_HAS(answer, "\"faults\": 0,");
  T_STR_HAS(answer, "\"peak_reserved\": null,");
  T_STR_HAS(answer, "\"fragmentation_cost\": null,");
}

T_TEST(test_report__report_replays_nothing_that_begins_in_the_middle) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("after_oom", 60, NULL), path);

  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);

  T_STR_HAS(answer, "\"is_from_start\": false,");
  T_STR_HAS(answer, "\"faults\": 0,");
  T_CHECK(strstr(answer, "oom_settings") == NULL);
}

T_TEST(test_report__report_of_nothing_says_so) {
  char path[SAVED_PATH];
  trace_save(run_new(), path);

  T_EQ(verb_run(&tool_report, path, NULL, false), TOOL_DONE);
  T_EQ(strncmp(answer, "Nothing was ever reserved", 25), 0);
  T_EQ(verb_run(&tool_report, path, NULL, true), TOOL_DONE);
  T_EQ(verb_run(&tool_info, path, NULL, true), TOOL_DONE);
  T_EQ(verb_run(&tool_diff, path, path, true), TOOL_DONE);
}

T_TEST(test_report__diff_of_a_run_with_itself_is_nothing) {
  char path[SAVED_PATH];
  trace_save(recorded_trace("graphs", 0, NULL), path);

  T_EQ(verb_run(&tool_diff, path, path, true), TOOL_DONE);
  T_STR_HAS(answer, "\"is_same\": true,");
  T_STR_HAS(answer, "\"holders\": [],");
}

// The same program, optionally with one more request, at other addresses and on another stream handle.
static tide_trace* run_of(uint64_t base, uint64_t stream, bool has_more) {
  tide_trace* const trace = run_new();
  const uint64_t frame = add_frame(trace, has_more ? "also.py" : "x.py", 1, "f");
  const uint64_t same = add_frame(trace, "same.py", 2, "g");
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, base, 2 * MIB, stream, 0);
  tide_trace_entry entry = { .address = base, .bytes = 3000, .stream = stream, .action = TIDE_ACTION_ALLOC };
  entry.stack = add_stack(trace, &same, 1);
  T_OK(tide_trace_add_entry(trace, &entry));
  if (!has_more) return trace;
  entry.address += 3072;
  entry.bytes = 5000;
  entry.stack = add_stack(trace, &frame, 1);
  T_OK(tide_trace_add_entry(trace, &entry));
  return trace;
}

T_TEST(test_report__diff_aligns_by_stack_and_size) {
  char path_a[SAVED_PATH];
  char path_b[SAVED_PATH];
  trace_save(run_of(BASE, 0x1000, false), path_a);
  trace_save(run_of(BASE + 64 * MIB, 0x2000, true), path_b);

  T_EQ(verb_run(&tool_diff, path_a, path_b, true), TOOL_NO);

  T_STR_HAS(answer, "\"name\": \"peak_allocated\", \"a\": 3072, \"b\": 8192, \"change\": 5120 }");
  T_STR_HAS(answer, "\"call_sites\": [\n    { \"a_blocks\": 0, \"b_blocks\": 1, \"a_bytes\": 0, "
                    "\"b_bytes\": 5120, \"change\": 5120, \"call_site\": \"also.py:1 f\" }\n  ],");
  T_STR_HAS(answer, "\"holders\": [\n    { \"size\": 5120, \"a_blocks\": 0, \"b_blocks\": 1, \"a_bytes\": 0, "
                    "\"b_bytes\": 5120, \"change\": 5120, \"call_site\": \"also.py:1 f\" }\n  ],");
  T_STR_HAS(answer, "\"sizes\": [\n    { \"size\": 5120, \"stream\": 1, \"a_blocks\": 0, \"b_blocks\": 1, "
                    "\"a_bytes\": 0, \"b_bytes\": 5120, \"change\": 5120 }\n  ]");
  T_EQ(verb_run(&tool_diff, path_b, path_a, false), TOOL_NO);
  T_STR_HAS(answer, "also.py:1 f");
}

// A run with one request, whose call site is called from a line of another file.
static tide_trace* run_called_from(int64_t line) {
  tide_trace* const trace = run_new();
  const uint64_t frames[] = { add_frame(trace, "model.py", 7, "forward"),
                              add_frame(trace, "train.py", line, "main") };
  tide_trace_entry entry = { .address = BASE, .bytes = 4096, .action = TIDE_ACTION_ALLOC };
  entry.stack = add_stack(trace, frames, 2);
  run_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB, 0, 0);
  T_OK(tide_trace_add_entry(trace, &entry));
  return trace;
}

T_TEST(test_report__diff_sums_by_call_site_whatever_called_it) {
  char path_a[SAVED_PATH];
  char path_b[SAVED_PATH];
  trace_save(run_called_from(10), path_a);
  trace_save(run_called_from(11), path_b);

  T_EQ(verb_run(&tool_diff, path_a, path_b, true), TOOL_NO);

  T_STR_HAS(answer, "\"call_sites\": [],");
  T_STR_HAS(answer, "\"holders\": [\n    { \"size\": 4096, ");
}

T_TEST(test_report__refuses_a_device_that_is_not_there) {
  char path[SAVED_PATH];
  trace_save(run_new(), path);

  T_EQ(verb_run(&tool_report, path, "--device=1", false), TOOL_USAGE);
  T_EQ(verb_run(&tool_report, path, "--device=x", false), TOOL_USAGE);
  T_EQ(verb_run(&tool_report, path, "--top=-1", false), TOOL_USAGE);
  T_EQ(verb_run(&tool_report, path, "--device=0", false), TOOL_DONE);
  T_EQ(verb_run(&tool_diff, "-", "-", false), TOOL_USAGE);
}

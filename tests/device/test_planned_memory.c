// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planned arenas on the memory of machines: device memory, page-locked memory and a cache, on host, dry and
// cuda. Each block is filled by the machine when it is requested and compared when it is released.
#define T_THREADS
#include "device/devices.h"
#include "stats.h"
#include "tidemark/graph.h"
#include "tidemark/profile.h"

#define PROGRAM_SLOTS 8u
#define PROGRAM_REQUESTS 60u
#define PROGRAM_RUNS 6u

typedef struct piece {
  uint8_t* address;
  size_t bytes;
  uint8_t value;
} piece;

typedef struct program {
  tide_machine* m;
  tide_stream stream;
  tide_profile* profile;
  piece slots[PROGRAM_SLOTS];
} program;

static void program_release(program* p, piece* slot) {
  if (slot->address == NULL) return;
  stream_finish(p->m, 0, p->stream);
  expect_filled(p->m, 0, slot->address, slot->value, slot->bytes);
  T_OK(tide_profile_release(p->profile, slot->address));
  slot->address = NULL;
}

static void program_request(program* p, piece* slot, size_t bytes, uint8_t value) {
  void* address = NULL;
  T_OK(tide_profile_alloc(p->profile, bytes, 0, &address));
  *slot = (piece){ address, bytes, value };
  T_OK(tide_machine_fill(p->m, 0, p->stream, address, value, bytes));
}

// The same sizes in the same order for the same seed; every third run asks for one piece more.
static void program_run(program* p, uint32_t run) {
  uint64_t state = 88172645463325252u;
  for (uint32_t i = 0; i < PROGRAM_REQUESTS; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    piece* const slot = &p->slots[state % PROGRAM_SLOTS];
    const size_t bytes = 1 + (size_t)(state >> 32) % (32 * KIB);
    program_release(p, slot);
    program_request(p, slot, bytes, (uint8_t)(1 + (run * PROGRAM_REQUESTS + i) % 255));
    if (run % 3 == 2 && i == PROGRAM_REQUESTS / 2) {
      piece extra = { NULL, 0, 0 };
      program_request(p, &extra, 777, 77);
      program_release(p, &extra);
    }
  }
  for (uint32_t i = 0; i < PROGRAM_SLOTS; i++) program_release(p, &p->slots[i]);
}

// Records, replays, and replays with something more; the identical runs are all from the arena.
static void program_repeat(tide_machine* m, tide_memory memory) {
  program p = { .m = m, .stream = stream_new(m, 0, 0) };
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.memory = memory;
  options.alignment = 256;
  T_OK(tide_profile_new(&options, &p.profile));
  for (uint32_t run = 0; run < PROGRAM_RUNS; run++) {
    tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
    T_OK(tide_profile_begin(p.profile, TIDE_PROFILE_AUTO, 1));
    program_run(&p, run);
    T_OK(tide_profile_end(p.profile, &report));

    T_EQ(report.mode, run == 0 ? TIDE_PROFILE_RECORD : TIDE_PROFILE_REPLAY);
    if (run % 3 != 2) T_EQ(report.hits, run == 0 ? 0 : PROGRAM_REQUESTS);
    if (run % 3 == 2) T_LE(report.fallbacks, 8u);
  }
  T_EQ(profile_stats(p.profile).arena_allocs, 1u);
  tide_profile_free(p.profile);
  T_OK(tide_machine_stream_free(m, 0, p.stream));
}

DEVICE_TEST(test_planned_memory__a_profile_replays_on_device_memory) {
  program_repeat(m, tide_machine_memory(m, 0));
}

DEVICE_TEST(test_planned_memory__a_profile_replays_on_page_locked_memory) {
  program_repeat(m, tide_machine_pinned_memory(m, 0));
}

DEVICE_TEST(test_planned_memory__a_profile_replays_on_a_cache) {
  program_repeat(m, tide_device_memory(d, TIDE_STREAM_LEGACY));
}

DEVICE_TEST(test_planned_memory__an_arena_in_use_by_the_device_is_given_back_after_its_work) {
  const tide_memory memory = tide_machine_memory(m, 0);
  const tide_stream stream = stream_new(m, 0, 0);
  void* address = NULL;
  T_OK(memory.alloc(&memory, MIB, 512, &address));
  for (int i = 0; i < 16; i++) T_OK(tide_machine_fill(m, 0, stream, address, (uint8_t)i, MIB));

  T_OK(memory.release(&memory, address));

  T_OK(tide_machine_device_synchronize(m, 0));  // work that came too late would be told here
}

DEVICE_TEST(test_planned_memory__an_alignment_that_the_machine_does_not_give_is_refused) {
  const tide_memory memory = tide_machine_memory(m, 0);
  void* pieces[4] = { NULL, NULL, NULL, NULL };
  const size_t before = free_bytes(m, 0);
  for (size_t i = 0; i < 4; i++) {
    const tide_status status = memory.alloc(&memory, 512, (size_t)1 << 40, &pieces[i]);
    T_EQ(status, TIDE_ERR_UNSUPPORTED);
    T_CHECK(pieces[i] == NULL);
  }
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
}

// x -> y -> z -> out, on device memory: y and z share an arena with nobody but one another.
DEVICE_TEST(test_planned_memory__a_graph_runs_on_device_memory) {
  tide_graph* graph = NULL;
  uint32_t values[4];
  T_OK(tide_graph_new(NULL, &graph));
  for (int i = 0; i < 4; i++) T_OK(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &values[i]));
  T_OK(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, values[0]));
  for (int i = 0; i < 3; i++) {
    const tide_graph_node node = { .size = sizeof(tide_graph_node),
                                   .inputs = &values[i],
                                   .input_count = 1,
                                   .outputs = &values[i + 1],
                                   .output_count = 1,
                                   .flags = TIDE_NODE_WRITES_OUT };
    uint32_t number = 0;
    T_OK(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number));
  }
  T_OK(tide_graph_add_output(graph, TIDE_GRAPH_ROOT, values[3]));
  T_OK(tide_graph_seal(graph));
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  options.memory = tide_machine_memory(m, 0);
  options.alignment = 256;
  tide_planner* planner = NULL;
  T_OK(tide_planner_new(graph, &options, &planner));

  for (uint8_t run = 1; run <= 4; run++) {
    T_OK(tide_planner_begin(planner, 0));
    void* address[4] = { NULL, NULL, NULL, NULL };
    for (uint8_t i = 1; i < 4; i++) {
      T_OK(tide_planner_alloc(planner, values[i], 4 * KIB, &address[i]));
      T_OK(tide_machine_fill(m, 0, NULL, address[i], (uint8_t)(run * 16 + i), 4 * KIB));
      T_OK(tide_machine_device_synchronize(m, 0));
      if (i > 1) expect_filled(m, 0, address[i - 1], (uint8_t)(run * 16 + i - 1), 4 * KIB);
    }
    T_EQ(tide_planner_is_inside(planner, address[1]), run > 1);
    T_OK(tide_planner_end(planner));
    expect_filled(m, 0, address[3], (uint8_t)(run * 16 + 3), 4 * KIB);
  }
  T_EQ(planner_stats(planner).arena_allocs, 1u);
  tide_planner_free(planner);
  tide_graph_free(graph);
}

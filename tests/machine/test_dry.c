// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The dry machine: its virtual clock, the costs of calls, work in virtual time, and dictated addresses.
#include "machine/machines.h"

#define US 1000u  // ns in a microsecond

static void price_is_at(const char* file, int line, tide_machine* m, const char* call, uint64_t since,
                        uint64_t want) {
  const uint64_t cost = clock_ns(m) - since;
  if (cost != want) t_fail(file, line, "%s cost %" PRIu64 " ns, not %" PRIu64, call, cost, want);
}
#define PRICE(want, call, ...)                               \
  do {                                                       \
    const uint64_t since_ = clock_ns(m);                     \
    T_OK(tide_machine_##call(m, __VA_ARGS__));               \
    price_is_at(__FILE__, __LINE__, m, #call, since_, want); \
  } while (0)

// ---------------------------------------------------------------------------------------------------
// The clock

DRY_TEST(test_dry_clock__stands_still_by_itself) {
  const uint64_t before = clock_ns(m);

  t_sleep_us(20000);

  T_EQ(clock_ns(m), before);
}

DRY_TEST(test_dry_clock__is_moved_by_advance) {
  const uint64_t before = clock_ns(m);

  T_OK(tide_dry_advance(m, 123456789));
  T_OK(tide_dry_advance(m, 0));

  T_EQ(clock_ns(m), before + 123456789);
}

DRY_TEST(test_dry_clock__does_not_wrap_around) {
  T_ANY(tide_dry_advance(m, UINT64_MAX - 5));
  const uint64_t before = clock_ns(m);
  T_ANY(tide_dry_advance(m, UINT64_MAX - 5));
  (void)raw_new(m, 0, 4096);

  T_LE(before, clock_ns(m));
}

DRY_TEST(test_dry_clock__is_the_sum_of_what_calls_were_charged) {
  const size_t unit = granularity(m);
  const uint64_t start = clock_ns(m);
  uint8_t* const range = reserve(m, 0, 4 * unit);
  for (size_t i = 0; i < 4; ++i) map_new(m, 0, range + i * unit, unit);
  T_OK(tide_machine_unmap(m, range, 4 * unit));
  T_OK(tide_machine_raw_release(m, 0, raw_new(m, 0, 10 * MIB)));
  T_OK(tide_machine_pinned_release(m, pinned_new(m, 3 * MIB)));
  T_CHECK(event_is_done(m, event_new(m, 0)));
  uint64_t sum = 0;

  for (int call = 0; call < TIDE_CALL_COUNT; ++call) sum += tide_machine_call_stats(m, (tide_call)call).ns;

  T_EQ(clock_ns(m), start + sum);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).ns, sum);
}

DRY_TEST(test_dry_clock__is_one_for_all_devices) {
  const uint64_t before = clock_ns(m);

  (void)raw_new(m, 0, 4096);
  (void)raw_new(m, 1, 4096);

  T_EQ(clock_ns(m), before + 6000);
}

// ---------------------------------------------------------------------------------------------------
// Costs

DRY_TEST(test_dry_costs__of_raw_and_pinned_memory_depend_on_its_size) {
  static uint8_t buffer[2 * 1024 * 1024];
  void* small = NULL;
  void* large = NULL;

  PRICE(3000, raw_alloc, 0, MIB, &small);
  PRICE(40000, raw_alloc, 0, MIB + 1, &large);
  PRICE(3000, raw_release, 0, small);
  PRICE(35000, raw_release, 0, large);
  PRICE(25000 + 95000 / 2, pinned_alloc, MIB / 2, &small);
  PRICE(25000 + 3 * 95000, pinned_alloc, 3 * MIB, &large);
  PRICE(25000 + 3 * 95000, pinned_release, large);
  PRICE(25000 + 2 * 63000, pinned_register, buffer, 2 * MIB);
  PRICE(25000 + 2 * 95000, pinned_unregister, buffer);
}

DRY_TEST(test_dry_costs__of_virtual_memory_count_mappings_and_not_their_size) {
  static const size_t sizes[] = { 2 * MIB, 64 * MIB };
  for (size_t k = 0; k < 2; ++k) {
    const size_t bytes = sizes[k];
    tide_physical physical[3] = { NULL, NULL, NULL };
    void* out = NULL;

    PRICE(5000, address_reserve, 0, 4 * bytes, 0, NULL, &out);
    uint8_t* const range = out;
    for (size_t i = 0; i < 3; ++i) {
      PRICE(12000, physical_new, 0, bytes, 0, &physical[i]);
      PRICE(1100, map, range + i * bytes, physical[i]);
    }
    PRICE(3 * 30000, set_access, range, 3 * bytes, 0, TIDE_ACCESS_READ_WRITE);
    PRICE(30000, set_access, range + bytes, bytes, 0, TIDE_ACCESS_READ);
    PRICE(2 * 20000, unmap, range, 2 * bytes);
    PRICE(20000, unmap, range + 2 * bytes, bytes);
    for (size_t i = 0; i < 3; ++i) PRICE(15000 + bytes / MIB * 500, physical_free, physical[i]);
    PRICE(5000, address_release, range, 4 * bytes);
  }
}

DRY_TEST(test_dry_costs__of_events_are_small_and_of_other_calls_nothing) {
  uint8_t* const raw = raw_new(m, 0, 4096);
  const tide_event event = event_new(m, 0);
  tide_stream stream = NULL;
  bool is_done = false;

  PRICE(410, event_record, 0, event, NULL);
  PRICE(410, event_record_all, 0, event);
  PRICE(280, event_query, event, &is_done);
  PRICE(0, event_synchronize, event);
  PRICE(0, stream_new, 0, 0, 0, &stream);
  PRICE(0, fill, 0, stream, raw, 1, 4096);
  PRICE(0, stream_synchronize, 0, stream);
}

DRY_TEST(test_dry_costs__of_a_refused_call_are_nothing) {
  const uint64_t before = clock_ns(m);

  T_STATUS(raw_try(m, 2 * MACHINE_CAPACITY), TIDE_ERR_NO_MEMORY);
  T_STATUS(raw_try(m, 0), TIDE_ERR_ARGUMENT);

  T_EQ(clock_ns(m), before);
}

T_TEST(test_dry_costs__can_be_chosen) {
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  costs.raw_alloc_small = 7;
  costs.other = 11;
  options.costs = &costs;
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(&options, &m));
  tide_stream stream = NULL;

  (void)raw_new(m, 0, 4096);
  T_OK(tide_machine_stream_new(m, 0, 0, 0, &stream));

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).ns, 7);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_STREAM_NEW).ns, 11);
  T_EQ(clock_ns(m), 7 + 11);
  tide_machine_free(m);
}

// ---------------------------------------------------------------------------------------------------
// Work in virtual time, as scripts

// The steps of a script, one word each. Times are in microseconds, so that the 410 ns of a record and the
// 280 ns of a query do not show. S is a stream: a and b are blocking, n is not, L is the legacy one, and d
// belongs to device 1.
//
//   S100    queues work of 100 us             !S      records the event on S
//   S*      synchronizes S                    S~      S waits for the event
//   Sx      the same is TIDE_ERR_STATE        e* ex   synchronizes the event
//   * x     synchronizes device 0             e?0     the event is not done
//   S?0     S is not idle                     f       finishes the event (tide_dry_finish)
//   S?1     S is idle                         Sc      queues a callback that counts
//   Sh Sg   holds S, lets it go               #1      one callback has run
//   S[ S]   begins and ends a capture         +99     advances the clock by 99 us
//   Sl      launches it on S                  @       the time counts from here
//   SF      frees S                           =150    150 us have passed
// clang-format off
static const char* const scripts[] = {
  // Work ends when the clock gets there, and a synchronize moves the clock to the end and no further.
  "dry a100 +99 a?0 +1 a?1",
  "dry a100 a50 a* =150",
  "dry +1000 a50 a* =1050",
  "dry a100 b80 * =100",
  "dry a100 b300 a* =100 b?0 a* =100",
  // Waits.
  "dry a100 !a b~ a1000 b50 b* =150",
  "dry !a @ b100 a10 !a a1000 b~ b50 b* =150",
  "dry a100 !a d~ d10 d* =110",
  "dry a100 L10 b1 n5 n* =5 b* =111",
  "dry a100 !a e?0 +99 e?0 +1 e?1",
  "dry a100 ac +99 #0 +1 #1",
  // A held stream stops whatever the clock says, and waiting for it is an error.
  "dry ah a1 +1000000 a?0",
  "dry ah a10 !a b~ b10 @ ax bx ex x =0 d*",
  "dry ah a10 b70 b* =70",
  "dry ah a100 +5000 @ ag a?0 a* =100",
  "dry a100 !a +100 ah e?1",
  "dry ah ac aF * #1",
  // Finishing an event ends the work before it now, held or not.
  "dry a100 !a a50 @ f =0 e?1 a?0 a* =50",
  "dry ah a100 ac !a a1 f #1 e?1 a?0 ax",
  "dry ah a100 !a b~ b20 @ f b* =20",
  "dry @ f =0 e?1",
  // A graph takes the time of its longest path, at each launch.
  "dry a[ a100 a] =0 al al a* =200",
  "dry a[ a10 !a b~ a100 b80 !b a~ a1 a] @ al a* =111",
  NULL
};
// clang-format on

typedef struct script_state {
  tide_machine* m;
  tide_stream streams[128];  // by letter
  tide_event event;
  tide_launch graph;
  uint64_t start;
  atomic_int count;
} script_state;

// A step on one stream: the letter, then what to do.
static tide_status stream_step(script_state* s, const char* step) {
  const tide_stream stream = s->streams[(unsigned char)step[0]];
  const int device = step[0] == 'd';
  switch (step[1]) {
    case '*': return tide_machine_stream_synchronize(s->m, device, stream);
    case 'x': T_STATUS(tide_machine_stream_synchronize(s->m, device, stream), TIDE_ERR_STATE); break;
    case '?': T_EQ(stream_is_idle(s->m, device, stream), step[2] == '1'); return TIDE_OK;
    case '~': return tide_machine_stream_wait(s->m, device, stream, s->event);
    case 'c': return tide_machine_call(s->m, device, stream, call_count, &s->count);
    case 'h': return tide_dry_hold(s->m, device, stream, true);
    case 'g': return tide_dry_hold(s->m, device, stream, false);
    case '[': return tide_machine_capture_begin(s->m, device, stream, TIDE_CAPTURE_GLOBAL);
    case ']': return tide_machine_capture_end(s->m, device, stream, &s->graph);
    case 'l': return tide_machine_launch(s->m, device, s->graph, stream);
    case 'F': return tide_machine_stream_free(s->m, device, stream);
    default: return tide_dry_work(s->m, device, stream, strtoull(step + 1, NULL, 10) * US);
  }
  T_STR_HAS(tide_last_error()->text, "stream_synchronize");
  return TIDE_OK;
}

static tide_status script_step(script_state* s, const char* step) {
  const uint64_t number = strtoull(step + 1, NULL, 10);
  switch (step[0]) {
    case '*': return tide_machine_device_synchronize(s->m, 0);
    case 'x': T_STATUS(tide_machine_device_synchronize(s->m, 0), TIDE_ERR_STATE); return TIDE_OK;
    case '!': return tide_machine_event_record(s->m, 0, s->event, s->streams[(unsigned char)step[1]]);
    case 'f': return tide_dry_finish(s->m, s->event);
    case '#': T_EQ(atomic_load(&s->count), number); return TIDE_OK;
    case '+': return tide_dry_advance(s->m, number * US);
    case '@': s->start = clock_ns(s->m); return TIDE_OK;
    case '=': T_EQ(clock_ns(s->m) - s->start, number * US); return TIDE_OK;
    case 'e': break;
    default: return stream_step(s, step);
  }
  if (step[1] == '*') return tide_machine_event_synchronize(s->m, s->event);
  if (step[1] == 'x') T_STATUS(tide_machine_event_synchronize(s->m, s->event), TIDE_ERR_STATE);
  else T_EQ(event_is_done(s->m, s->event), step[2] == '1');
  return TIDE_OK;
}

MACHINE_TEST_OVER(test_dry_work__takes_the_time_of_the_script, scripts) {
  static script_state s;
  char text[128];
  char* rest = NULL;
  (void)snprintf(text, sizeof text, "%s", t_variant());
  s.m = m;
  s.event = event_new(m, 0);
  s.streams['a'] = stream_new(m, 0, 0);
  s.streams['b'] = stream_new(m, 0, 0);
  s.streams['n'] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  s.streams['d'] = stream_new(m, 1, 0);
  s.start = clock_ns(m);
  (void)strtok_r(text, " ", &rest);
  for (const char* step = NULL; (step = strtok_r(NULL, " ", &rest)) != NULL;) T_OK(script_step(&s, step));
}

DRY_TEST(test_dry_work__ends_when_the_cost_of_calls_gets_there) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_work(m, 0, stream, 100 * US));

  for (int i = 0; i < 3; ++i) {
    T_CHECK(!stream_is_idle(m, 0, stream));
    (void)raw_new(m, 0, 2 * MIB);
  }

  T_CHECK(stream_is_idle(m, 0, stream));
}

typedef struct place {
  atomic_int* next;
  int at;
} place;

static void call_take_place(void* user) {
  place* const p = user;
  p->at = atomic_fetch_add(p->next, 1);
}

DRY_TEST(test_dry_work__callbacks_of_all_streams_run_in_the_order_of_time) {
  static const uint64_t ends[] = { 300, 100, 200, 50 };
  atomic_int next = 0;
  place places[4];
  for (size_t i = 0; i < 4; ++i) {
    const tide_stream stream = stream_new(m, 0, 0);
    places[i] = (place){ &next, -1 };
    T_OK(tide_dry_work(m, 0, stream, ends[i]));
    T_OK(tide_machine_call(m, 0, stream, call_take_place, &places[i]));
  }

  T_OK(tide_dry_advance(m, 1000));

  T_EQ(places[0].at, 3);
  T_EQ(places[1].at, 1);
  T_EQ(places[2].at, 2);
  T_EQ(places[3].at, 0);
}

DRY_TEST(test_dry_work__longer_than_time_itself) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_advance(m, 1000 * US));
  T_OK(tide_dry_work(m, 0, stream, UINT64_MAX));
  const uint64_t before = clock_ns(m);

  T_ANY(tide_machine_stream_synchronize(m, 0, stream));

  T_LE(before, clock_ns(m));
}

DRY_TEST(test_machine_free__with_held_work_runs_it) {
  static atomic_int done;
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, stream, true));
  T_OK(tide_dry_work(m, 0, stream, 100 * US));
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));
}

// ---------------------------------------------------------------------------------------------------
// Addresses

static void dictate(tide_machine* m, int device, tide_call call, uintptr_t address) {
  T_OK(tide_dry_dictate(m, device, call, (void*)address));
}

DRY_TEST(test_dry_dictate__gives_addresses_in_order) {
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000000);
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7e0000000200);

  T_PTR_EQ(raw_new(m, 0, 4096), (void*)0x7f0000000000);
  T_PTR_EQ(raw_new(m, 0, MIB), (void*)0x7e0000000200);
  const uint8_t* const free_choice = raw_new(m, 0, MIB);

  T_CHECK(free_choice != (void*)0x7f0000000000 && free_choice != (void*)0x7e0000000200);
}

DRY_TEST(test_dry_dictate__keeps_calls_and_devices_apart) {
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000000);
  dictate(m, 0, TIDE_CALL_ADDRESS_RESERVE, 0x7e0000000000);
  dictate(m, 1, TIDE_CALL_RAW_ALLOC, 0x7d0000000000);
  dictate(m, 1, TIDE_CALL_ADDRESS_RESERVE, 0x7c0000000000);

  T_PTR_EQ(reserve(m, 1, 4 * MIB), (void*)0x7c0000000000);
  T_PTR_EQ(raw_new(m, 1, 4096), (void*)0x7d0000000000);
  T_PTR_EQ(reserve(m, 0, 4 * MIB), (void*)0x7e0000000000);
  T_PTR_EQ(raw_new(m, 0, 4096), (void*)0x7f0000000000);
}

DRY_TEST(test_dry_dictate__fails_the_call_when_the_address_is_taken_or_misaligned) {
  uint8_t* const taken = raw_new(m, 0, MIB);
  const uintptr_t bad[] = { (uintptr_t)taken + 512, (uintptr_t)taken - 2048, 0x7f0000000001 };
  void* out = &out;

  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    dictate(m, 0, TIDE_CALL_RAW_ALLOC, bad[i]);
    T_STATUS(tide_machine_raw_alloc(m, 0, 4096, &out), TIDE_ERR_ARGUMENT);
    T_PTR_EQ(out, NULL);
    T_STR_HAS(tide_last_error()->text, "raw_alloc");
  }
  dictate(m, 0, TIDE_CALL_ADDRESS_RESERVE, 0x7f0000001000);
  T_STATUS(tide_machine_address_reserve(m, 0, granularity(m), 0, NULL, &out), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "address_reserve");

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - MIB);
  T_OK(tide_machine_raw_alloc(m, 0, 4096, &out));
}

DRY_TEST(test_dry_dictate__is_kept_when_the_device_is_full) {
  void* out = NULL;
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000000);

  T_STATUS(tide_machine_raw_alloc(m, 0, 2 * MACHINE_CAPACITY, &out), TIDE_ERR_NO_MEMORY);

  T_PTR_EQ(raw_new(m, 0, 4096), (void*)0x7f0000000000);
}

DRY_TEST(test_dry_dictate__works_again_after_release) {
  for (int i = 0; i < 10; ++i) {
    dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000000);
    uint8_t* const block = raw_new(m, 0, 4096);
    T_PTR_EQ(block, (void*)0x7f0000000000);
    T_OK(tide_machine_raw_release(m, 0, block));
  }
}

DRY_TEST(test_dry_dictate__takes_many) {
  enum { COUNT = 5000 };
  for (uintptr_t i = 0; i < COUNT; ++i) dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000000 + i * 4096);

  for (uintptr_t i = 0; i < COUNT; ++i) T_PTR_EQ(raw_new(m, 0, 512), (void*)(0x7f0000000000 + i * 4096));
}

DRY_TEST(test_dry_dictate__refuses_other_calls) {
  T_STATUS(tide_dry_dictate(m, 0, TIDE_CALL_PINNED_ALLOC, (void*)0x7f0000000000), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_dictate(m, 0, TIDE_CALL_ANY, (void*)0x7f0000000000), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_dictate(m, 0, TIDE_CALL_RAW_ALLOC, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_dry_dictate(m, 2, TIDE_CALL_RAW_ALLOC, (void*)0x7f0000000000), TIDE_ERR_DEVICE);

  (void)raw_new(m, 0, 4096);
}

T_TEST(test_dry_addresses__are_the_same_for_the_same_calls) {
  tide_machine* const machines[2] = { machine_open("dry", NULL), machine_open("dry", NULL) };
  t_rng rng = t_rng_new(3);

  for (int i = 0; i < 500; ++i) {
    const size_t bytes = 1 + t_rng_below(&rng, 100000);
    uint8_t* const a = raw_new(machines[0], 0, bytes);
    uint8_t* const b = raw_new(machines[1], 0, bytes);
    T_PTR_EQ(a, b);
    if (i % 3 != 0) continue;
    T_OK(tide_machine_raw_release(machines[0], 0, a));
    T_OK(tide_machine_raw_release(machines[1], 0, b));
  }

  tide_machine_free(machines[0]);
  tide_machine_free(machines[1]);
}

// ---------------------------------------------------------------------------------------------------
// The machine

T_TEST(test_dry__is_a_large_card_by_default) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));

  T_EQ(tide_machine_device_count(m), 1);
  T_EQ(device_info(m, 0).total_bytes, 140 * GIB);
  (void)raw_new(m, 0, 100 * GIB);
  T_EQ(free_bytes(m, 0), 40 * GIB);

  tide_machine_free(m);
}

T_TEST(test_dry__holds_many_small_blocks) {
  tide_machine* m = NULL;
  static uint8_t* blocks[100000];
  T_OK(tide_machine_new_dry(NULL, &m));
  const uint64_t start = t_processor_ns();

  for (size_t i = 0; i < 100000; ++i) blocks[i] = raw_new(m, 0, 512 * (1 + i % 7));
  for (size_t i = 0; i < 100000; ++i) T_OK(tide_machine_raw_release(m, 0, blocks[i * 77773 % 100000]));

  T_EQ(free_bytes(m, 0), 140 * GIB);
  T_LT(t_processor_ns() - start, 20000000000u);
  tide_machine_free(m);
}

T_TEST(test_dry__refuses_options_out_of_range) {
  const tide_dry_options good = TIDE_DRY_OPTIONS_INIT;
  const tide_dry_costs no_costs = { .size = 0 };
  tide_dry_options bad[] = { good, good, good, good, good, good, good };
  bad[0].size = 0;
  bad[1].device_count = 0;
  bad[2].device_count = TIDE_DEVICE_MAX + 1;
  bad[3].granularity = 256;
  bad[4].granularity = 3 * 1024;
  bad[5].costs = &no_costs;
  bad[6].capacity = 0;

  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    tide_machine* m = (tide_machine*)(uintptr_t)1;
    T_STATUS(tide_machine_new_dry(&bad[i], &m), TIDE_ERR_ARGUMENT);
    T_PTR_EQ(m, NULL);
  }
}

HOST_TEST(test_dry_control__is_not_for_other_machines) {
  T_STATUS(tide_dry_advance(m, 1), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_dry_work(m, 0, NULL, 1), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_dry_hold(m, 0, NULL, true), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_dry_finish(m, event_new(m, 0)), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_dry_dictate(m, 0, TIDE_CALL_RAW_ALLOC, (void*)0x7f0000000000), TIDE_ERR_UNSUPPORTED);
}

DRY_TEST(test_dry_control__refuses_what_is_not_there) {
  T_STATUS(tide_dry_work(m, 2, NULL, 1), TIDE_ERR_DEVICE);
  T_STATUS(tide_dry_work(m, -1, NULL, 1), TIDE_ERR_DEVICE);
  T_STATUS(tide_dry_work(m, 0, (tide_stream)(uintptr_t)0xdead, 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_dry_work(m, 0, stream_new(m, 1, 0), 1), TIDE_ERR_DEVICE);
  T_STATUS(tide_dry_hold(m, 0, (tide_stream)(uintptr_t)0xdead, true), TIDE_ERR_HANDLE);
  T_STATUS(tide_dry_finish(m, (tide_event)(uintptr_t)0xdead), TIDE_ERR_HANDLE);
}

DRY_TEST(test_dry__plays_long_queues_by_itself) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  for (int i = 0; i < 20000; ++i) {
    T_OK(tide_machine_call(m, 0, stream, call_count, &done));
    T_OK(tide_machine_call(m, 0, NULL, call_count, &done));
  }

  T_LT(30000, atomic_load(&done));
  T_OK(tide_machine_device_synchronize(m, 0));  // the counter goes with this function
  T_EQ(atomic_load(&done), 40001);
}

DRY_TEST(test_dry__work_that_fails_is_not_in_the_record_of_who_asks) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, 4096);
  bool is_done = false;
  T_OK(tide_dry_hold(m, 0, stream, true));
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, 4096));
  T_OK(tide_machine_raw_release(m, 0, raw));
  T_OK(tide_dry_hold(m, 0, stream, false));
  T_STATUS(tide_machine_raw_release(m, 0, raw), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_event_query(m, event, &is_done));

  T_STR_HAS(tide_last_error()->text, "raw_release");
  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_MACHINE);
}

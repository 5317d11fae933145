// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The dry machine: its virtual clock, what calls cost, work in virtual time, and dictated addresses.
#include "machine/machines.h"

#define US 1000u  // ns in a microsecond

static uint64_t cost_of_call;  // the clock before the call that is being priced

static void price_begin(tide_machine* m) { cost_of_call = clock_ns(m); }

static void price_is_at(const char* file, int line, tide_machine* m, tide_call call, uint64_t want) {
  const uint64_t cost = clock_ns(m) - cost_of_call;
  if (cost != want)
    t_fail(file, line, "%s cost %" PRIu64 " ns, not %" PRIu64, tide_call_name(call), cost, want);
}
#define PRICE(call, want, expression)                           \
  do {                                                          \
    price_begin(m);                                             \
    T_OK(expression);                                           \
    price_is_at(__FILE__, __LINE__, m, TIDE_CALL_##call, want); \
  } while (0)

static void work(tide_machine* m, tide_stream stream, uint64_t ns) { T_OK(tide_dry_work(m, 0, stream, ns)); }

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

DRY_TEST(test_dry_costs__of_raw_memory_depend_on_its_size) {
  void* small = NULL;
  void* large = NULL;

  PRICE(RAW_ALLOC, 3000, tide_machine_raw_alloc(m, 0, MIB, &small));
  PRICE(RAW_ALLOC, 40000, tide_machine_raw_alloc(m, 0, MIB + 1, &large));
  PRICE(RAW_RELEASE, 3000, tide_machine_raw_release(m, 0, small));
  PRICE(RAW_RELEASE, 35000, tide_machine_raw_release(m, 0, large));
}

DRY_TEST(test_dry_costs__of_pinned_memory_grow_with_each_mib) {
  static uint8_t buffer[2 * 1024 * 1024];
  void* pinned = NULL;

  PRICE(PINNED_ALLOC, 25000 + 3 * 95000, tide_machine_pinned_alloc(m, 3 * MIB, &pinned));
  PRICE(PINNED_RELEASE, 25000 + 3 * 95000, tide_machine_pinned_release(m, pinned));
  PRICE(PINNED_REGISTER, 25000 + 2 * 95000, tide_machine_pinned_register(m, buffer, 2 * MIB));
  PRICE(PINNED_UNREGISTER, 25000 + 2 * 95000, tide_machine_pinned_unregister(m, buffer));
}

DRY_TEST(test_dry_costs__of_a_part_of_a_mib_are_that_part) {
  void* pinned = NULL;

  PRICE(PINNED_ALLOC, 25000 + 95000 / 2, tide_machine_pinned_alloc(m, MIB / 2, &pinned));
}

DRY_TEST(test_dry_costs__of_virtual_memory_count_mappings) {
  const size_t unit = granularity(m);
  tide_physical physical[3] = { NULL, NULL, NULL };
  void* out = NULL;

  PRICE(ADDRESS_RESERVE, 5000, tide_machine_address_reserve(m, 0, 64 * unit, 0, NULL, &out));
  uint8_t* const range = out;
  for (size_t i = 0; i < 3; ++i) {
    PRICE(PHYSICAL_NEW, 12000, tide_machine_physical_new(m, 0, unit, 0, &physical[i]));
    PRICE(MAP, 1100, tide_machine_map(m, range + i * unit, physical[i]));
  }
  PRICE(SET_ACCESS, 3 * 30000, tide_machine_set_access(m, range, 3 * unit, 0, TIDE_ACCESS_READ_WRITE));
  PRICE(SET_ACCESS, 30000, tide_machine_set_access(m, range + unit, unit, 0, TIDE_ACCESS_READ));
  PRICE(UNMAP, 2 * 20000, tide_machine_unmap(m, range, 2 * unit));
  PRICE(UNMAP, 20000, tide_machine_unmap(m, range + 2 * unit, unit));
  PRICE(PHYSICAL_FREE, 15000 + 2 * 500, tide_machine_physical_free(m, physical[0]));
  PRICE(ADDRESS_RELEASE, 5000, tide_machine_address_release(m, range, 64 * unit));
}

DRY_TEST(test_dry_costs__of_a_large_mapping_are_those_of_a_small_one) {
  uint8_t* const range = reserve(m, 0, 128 * MIB);
  tide_physical physical = NULL;

  PRICE(PHYSICAL_NEW, 12000, tide_machine_physical_new(m, 0, 128 * MIB, 0, &physical));
  PRICE(MAP, 1100, tide_machine_map(m, range, physical));
  PRICE(SET_ACCESS, 30000, tide_machine_set_access(m, range, 128 * MIB, 0, TIDE_ACCESS_READ_WRITE));
  PRICE(UNMAP, 20000, tide_machine_unmap(m, range, 128 * MIB));
  PRICE(PHYSICAL_FREE, 15000 + 128 * 500, tide_machine_physical_free(m, physical));
}

DRY_TEST(test_dry_costs__of_events_are_small) {
  const tide_event event = event_new(m, 0);
  bool is_done = false;

  PRICE(EVENT_RECORD, 410, tide_machine_event_record(m, 0, event, NULL));
  PRICE(EVENT_QUERY, 280, tide_machine_event_query(m, event, &is_done));
  PRICE(EVENT_SYNCHRONIZE, 0, tide_machine_event_synchronize(m, event));
}

DRY_TEST(test_dry_costs__of_other_calls_are_nothing_by_default) {
  uint8_t* const raw = raw_new(m, 0, 4096);
  tide_stream stream = NULL;

  PRICE(STREAM_NEW, 0, tide_machine_stream_new(m, 0, 0, 0, &stream));
  PRICE(FILL, 0, tide_machine_fill(m, 0, stream, raw, 1, 4096));
  PRICE(STREAM_SYNCHRONIZE, 0, tide_machine_stream_synchronize(m, 0, stream));
}

DRY_TEST(test_dry_costs__of_a_refused_call_are_nothing) {
  const uint64_t before = clock_ns(m);
  void* memory = NULL;

  T_STATUS(tide_machine_raw_alloc(m, 0, 2 * MACHINE_CAPACITY, &memory), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_machine_raw_alloc(m, 0, 0, &memory), TIDE_ERR_ARGUMENT);

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
// Work

DRY_TEST(test_dry_work__ends_when_the_clock_gets_there) {
  const tide_stream stream = stream_new(m, 0, 0);
  work(m, stream, 100 * US);

  T_OK(tide_dry_advance(m, 100 * US - 1));
  T_CHECK(!stream_is_idle(m, 0, stream));
  T_OK(tide_dry_advance(m, 1));

  T_CHECK(stream_is_idle(m, 0, stream));
}

DRY_TEST(test_dry_work__ends_when_the_cost_of_calls_gets_there) {
  const tide_stream stream = stream_new(m, 0, 0);
  work(m, stream, 100 * US);

  for (int i = 0; i < 3; ++i) {
    T_CHECK(!stream_is_idle(m, 0, stream));
    (void)raw_new(m, 0, 2 * MIB);
  }

  T_CHECK(stream_is_idle(m, 0, stream));
}

DRY_TEST(test_dry_work__of_one_stream_adds_up) {
  const tide_stream stream = stream_new(m, 0, 0);
  const uint64_t start = clock_ns(m);
  work(m, stream, 100 * US);
  work(m, stream, 50 * US);

  stream_finish(m, 0, stream);

  T_EQ(clock_ns(m), start + 150 * US);
}

DRY_TEST(test_dry_work__begins_when_it_is_queued) {
  const tide_stream stream = stream_new(m, 0, 0);
  const uint64_t start = clock_ns(m);
  T_OK(tide_dry_advance(m, 1000 * US));
  work(m, stream, 50 * US);

  stream_finish(m, 0, stream);

  T_EQ(clock_ns(m), start + 1050 * US);
}

DRY_TEST(test_dry_work__of_two_streams_overlaps) {
  const uint64_t start = clock_ns(m);
  work(m, stream_new(m, 0, 0), 100 * US);
  work(m, stream_new(m, 0, 0), 80 * US);

  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(clock_ns(m), start + 100 * US);
}

DRY_TEST(test_dry_work__synchronize_moves_the_clock_to_the_end_and_no_further) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const uint64_t start = clock_ns(m);
  work(m, a, 100 * US);
  work(m, b, 300 * US);

  stream_finish(m, 0, a);

  T_EQ(clock_ns(m), start + 100 * US);
  T_CHECK(!stream_is_idle(m, 0, b));
  stream_finish(m, 0, a);
  T_EQ(clock_ns(m), start + 100 * US);
}

DRY_TEST(test_dry_work__waits_for_an_event_of_another_stream) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  const uint64_t start = clock_ns(m);
  work(m, a, 100 * US);
  stream_follow(m, b, a, event);
  work(m, a, 1000 * US);
  work(m, b, 50 * US);

  stream_finish(m, 0, b);

  T_EQ(clock_ns(m), start + 150 * US);
}

DRY_TEST(test_dry_work__waits_for_an_event_that_came_before_much_else) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  T_OK(tide_machine_event_record(m, 0, event, a));
  const uint64_t start = clock_ns(m);
  work(m, b, 100 * US);
  work(m, a, 10 * US);
  T_OK(tide_machine_event_record(m, 0, event, a));
  work(m, a, 1000 * US);
  T_OK(tide_machine_stream_wait(m, 0, b, event));
  work(m, b, 50 * US);

  stream_finish(m, 0, b);

  T_EQ(clock_ns(m), start + 150 * US);
}

DRY_TEST(test_dry_work__waits_for_another_device) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 1, 0);
  const tide_event event = event_new(m, 0);
  const uint64_t start = clock_ns(m);
  work(m, a, 100 * US);
  T_OK(tide_machine_event_record(m, 0, event, a));
  T_OK(tide_machine_stream_wait(m, 1, b, event));
  T_OK(tide_dry_work(m, 1, b, 10 * US));

  stream_finish(m, 1, b);

  T_EQ(clock_ns(m), start + 110 * US);
}

DRY_TEST(test_dry_work__on_the_legacy_stream_waits_and_is_waited_for) {
  const tide_stream before = stream_new(m, 0, 0);
  const tide_stream after = stream_new(m, 0, 0);
  const tide_stream apart = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const uint64_t start = clock_ns(m);
  work(m, before, 100 * US);
  work(m, NULL, 10 * US);
  work(m, after, 1 * US);
  work(m, apart, 5 * US);

  stream_finish(m, 0, apart);
  T_EQ(clock_ns(m), start + 5 * US);
  stream_finish(m, 0, after);

  T_EQ(clock_ns(m), start + 111 * US);
}

DRY_TEST(test_dry_work__event_query_follows_the_clock) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  work(m, stream, 100 * US);
  T_OK(tide_machine_event_record(m, 0, event, stream));

  T_CHECK(!event_is_done(m, event));
  T_OK(tide_dry_advance(m, 99 * US));
  T_CHECK(!event_is_done(m, event));
  T_OK(tide_dry_advance(m, 1 * US));

  T_CHECK(event_is_done(m, event));
}

DRY_TEST(test_dry_work__holds_callbacks_back) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  work(m, stream, 100 * US);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  T_OK(tide_dry_advance(m, 99 * US));
  T_EQ(atomic_load(&done), 0);
  T_OK(tide_dry_advance(m, 1 * US));

  T_EQ(atomic_load(&done), 1);
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
    work(m, stream, ends[i]);
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
  work(m, stream, UINT64_MAX);
  const uint64_t before = clock_ns(m);

  T_ANY(tide_machine_stream_synchronize(m, 0, stream));

  T_LE(before, clock_ns(m));
}

DRY_TEST(test_dry_work__captured_takes_its_time_at_each_launch) {
  const tide_stream stream = stream_new(m, 0, 0);
  tide_launch graph = NULL;
  const uint64_t start = clock_ns(m);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  work(m, stream, 100 * US);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_EQ(clock_ns(m), start);

  T_OK(tide_machine_launch(m, 0, graph, stream));
  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);

  T_EQ(clock_ns(m), start + 200 * US);
}

DRY_TEST(test_dry_work__captured_on_two_streams_overlaps) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, a, TIDE_CAPTURE_GLOBAL));
  work(m, a, 10 * US);
  stream_follow(m, b, a, event);
  work(m, a, 100 * US);
  work(m, b, 80 * US);
  stream_follow(m, a, b, event);
  work(m, a, 1 * US);
  T_OK(tide_machine_capture_end(m, 0, a, &graph));
  const uint64_t start = clock_ns(m);

  T_OK(tide_machine_launch(m, 0, graph, a));
  stream_finish(m, 0, a);

  T_EQ(clock_ns(m), start + 111 * US);
}

// ---------------------------------------------------------------------------------------------------
// Hold and finish

DRY_TEST(test_dry_hold__stops_a_stream_whatever_the_clock_says) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, stream, true));
  work(m, stream, 1);

  T_OK(tide_dry_advance(m, 1000000 * (uint64_t)US));

  T_CHECK(!stream_is_idle(m, 0, stream));
}

DRY_TEST(test_dry_hold__makes_synchronize_a_mistake) {
  const tide_stream held = stream_new(m, 0, 0);
  const tide_stream behind = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  T_OK(tide_dry_hold(m, 0, held, true));
  work(m, held, 10);
  stream_follow(m, behind, held, event);
  work(m, behind, 10);
  const uint64_t before = clock_ns(m);

  T_STATUS(tide_machine_stream_synchronize(m, 0, held), TIDE_ERR_STATE);
  T_STATUS(tide_machine_stream_synchronize(m, 0, behind), TIDE_ERR_STATE);
  T_STATUS(tide_machine_event_synchronize(m, event), TIDE_ERR_STATE);
  T_STATUS(tide_machine_device_synchronize(m, 0), TIDE_ERR_STATE);

  T_EQ(clock_ns(m), before);
  T_OK(tide_machine_device_synchronize(m, 1));
}

DRY_TEST(test_dry_hold__error_text_names_the_call) {
  const tide_stream held = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, held, true));
  work(m, held, 10);

  T_STATUS(tide_machine_stream_synchronize(m, 0, held), TIDE_ERR_STATE);

  T_STR_HAS(tide_last_error()->text, "stream_synchronize");
}

DRY_TEST(test_dry_hold__does_not_stop_other_streams) {
  const tide_stream held = stream_new(m, 0, 0);
  const tide_stream other = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, held, true));
  work(m, held, 10);
  const uint64_t before = clock_ns(m);
  work(m, other, 70);

  stream_finish(m, 0, other);

  T_EQ(clock_ns(m), before + 70);
}

DRY_TEST(test_dry_hold__let_go_the_work_begins_then) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, stream, true));
  work(m, stream, 100 * US);
  T_OK(tide_dry_advance(m, 5000 * US));
  const uint64_t before = clock_ns(m);

  T_OK(tide_dry_hold(m, 0, stream, false));
  T_CHECK(!stream_is_idle(m, 0, stream));
  stream_finish(m, 0, stream);

  T_EQ(clock_ns(m), before + 100 * US);
}

DRY_TEST(test_dry_hold__leaves_work_that_began_alone) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  work(m, stream, 100 * US);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_dry_advance(m, 100 * US));

  T_OK(tide_dry_hold(m, 0, stream, true));

  T_CHECK(event_is_done(m, event));
}

DRY_TEST(test_dry_finish__ends_work_now) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  work(m, stream, 100 * US);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  work(m, stream, 50 * US);
  const uint64_t before = clock_ns(m);

  T_OK(tide_dry_finish(m, event));

  T_EQ(clock_ns(m), before);
  T_CHECK(event_is_done(m, event));
  T_CHECK(!stream_is_idle(m, 0, stream));
  stream_finish(m, 0, stream);
  T_LE(clock_ns(m), before + 50 * US + 280);
}

DRY_TEST(test_dry_finish__ends_held_work) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  atomic_int done = 0;
  T_OK(tide_dry_hold(m, 0, stream, true));
  work(m, stream, 100 * US);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  T_OK(tide_machine_event_record(m, 0, event, stream));
  work(m, stream, 1);

  T_OK(tide_dry_finish(m, event));

  T_EQ(atomic_load(&done), 1);
  T_CHECK(event_is_done(m, event));
  T_CHECK(!stream_is_idle(m, 0, stream));
  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_STATE);
}

DRY_TEST(test_dry_finish__releases_those_that_wait) {
  const tide_stream held = stream_new(m, 0, 0);
  const tide_stream behind = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  T_OK(tide_dry_hold(m, 0, held, true));
  work(m, held, 100 * US);
  stream_follow(m, behind, held, event);
  work(m, behind, 20 * US);
  const uint64_t before = clock_ns(m);

  T_OK(tide_dry_finish(m, event));
  stream_finish(m, 0, behind);

  T_EQ(clock_ns(m), before + 20 * US);
}

DRY_TEST(test_dry_finish__of_an_event_that_is_done_does_nothing) {
  const tide_event event = event_new(m, 0);
  const uint64_t before = clock_ns(m);

  T_OK(tide_dry_finish(m, event));

  T_EQ(clock_ns(m), before);
  T_CHECK(event_is_done(m, event));
}

DRY_TEST(test_machine_free__with_held_work_runs_it) {
  static atomic_int done;
  const tide_stream stream = stream_new(m, 0, 0);
  T_OK(tide_dry_hold(m, 0, stream, true));
  work(m, stream, 100 * US);
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

DRY_TEST(test_dry_dictate__fails_the_call_when_the_address_is_taken) {
  uint8_t* const taken = raw_new(m, 0, MIB);
  void* out = &out;
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, (uintptr_t)taken + 512);

  T_STATUS(tide_machine_raw_alloc(m, 0, 4096, &out), TIDE_ERR_ARGUMENT);

  T_PTR_EQ(out, NULL);
  T_STR_HAS(tide_last_error()->text, "raw_alloc");
  T_OK(tide_machine_raw_alloc(m, 0, 4096, &out));
}

DRY_TEST(test_dry_dictate__fails_the_call_when_the_end_is_taken) {
  uint8_t* const taken = raw_new(m, 0, MIB);
  void* out = NULL;
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, (uintptr_t)taken - 2048);

  T_STATUS(tide_machine_raw_alloc(m, 0, 4096, &out), TIDE_ERR_ARGUMENT);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - MIB);
}

DRY_TEST(test_dry_dictate__fails_the_call_when_the_address_is_misaligned) {
  const size_t unit = granularity(m);
  void* out = NULL;
  dictate(m, 0, TIDE_CALL_RAW_ALLOC, 0x7f0000000001);
  dictate(m, 0, TIDE_CALL_ADDRESS_RESERVE, 0x7f0000001000);

  T_STATUS(tide_machine_raw_alloc(m, 0, 4096, &out), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_address_reserve(m, 0, unit, 0, NULL, &out), TIDE_ERR_ARGUMENT);

  T_STR_HAS(tide_last_error()->text, "address_reserve");
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
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

static void expect_refused(const tide_dry_options* options) {
  tide_machine* m = (tide_machine*)(uintptr_t)1;
  T_STATUS(tide_machine_new_dry(options, &m), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(m, NULL);
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

  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) expect_refused(&bad[i]);
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

DRY_TEST(test_dry_hold__ends_when_the_stream_is_freed) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  T_OK(tide_dry_hold(m, 0, stream, true));
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  T_OK(tide_machine_stream_free(m, 0, stream));

  T_OK(tide_machine_device_synchronize(m, 0));
  T_EQ(atomic_load(&done), 1);
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

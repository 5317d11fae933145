// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking in a replay. Live bytes come from the ledger, which follows the recorded addresses, or from traces
// made by hand. Times are added up from the prices of the dry machine.
#include "replay/by_hand.h"
#include "tidemark/ledger.h"
#include "tidemark/replay.h"
#include "traces.h"

#define BASE ((uint64_t)0x7f0000000000)
enum { PARKS_MOST = 64 };

// A run of a trace with the policy tide that parks before entries.
typedef struct parked_run {
  tide_device_options device;
  tide_replay_options options;
  tide_replay_result result;
  tide_replay_park parks[PARKS_MOST];
} parked_run;

static void run_init(parked_run* run) {
  *run = (parked_run){ .device = TIDE_DEVICE_OPTIONS_INIT,
                       .options = TIDE_REPLAY_OPTIONS_INIT,
                       .result = TIDE_REPLAY_RESULT_INIT };
  run->device.policy = TIDE_POLICY_TIDE;
  run->options.device = &run->device;
  run->options.parks = run->parks;
}

static void run_add(parked_run* run, uint64_t entry) {
  run->parks[run->options.park_count++] = (tide_replay_park){ .entry = entry };
}

static tide_status run_play(parked_run* run, const tide_trace* trace) {
  tide_replay* replay = NULL;
  T_OK(tide_replay_new(trace, 0, NULL, &replay));
  const tide_status status = tide_replay_run(replay, &run->options, &run->result);
  tide_replay_free(replay);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Bytes

static bool add_live(void* user, const tide_ledger_block* block) {
  uint64_t* const sum = user;
  if (block->state == TIDE_BLOCK_ALLOCATED) *sum += (block->requested_bytes + 511) / 512 * 512;
  return true;
}

// What the program holds before an entry, each request rounded as the policy does.
static uint64_t live_before(tide_ledger* ledger, uint64_t entry) {
  uint64_t sum = 0;
  T_OK(tide_ledger_seek(ledger, entry == 0 ? TIDE_LEDGER_BEFORE : entry - 1));
  tide_ledger_visit(ledger, NULL, add_live, &sum);
  return sum;
}

static const char* const recordings[] = { "resnet_stacks", "gnn_retry", "pools", "events", "graphs", NULL };

// Private pools of the recording and releases that wait are among them.
T_TEST_OVER(test_parks__live_bytes_are_those_of_the_ledger, recordings) {
  tide_trace* const trace = trace_of_test(t_variant());
  tide_ledger* ledger = NULL;
  parked_run run;
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  run_init(&run);
  for (size_t i = 0; i <= 10; i++) run_add(&run, count * i / 10);
  T_OK(run_play(&run, trace));
  T_EQ(run.result.parks, 11);
  T_OK(tide_ledger_new(trace, 0, &ledger));
  for (size_t i = 0; i <= 10; i++) {
    const tide_replay_park* const park = &run.parks[i];
    T_EQ(park->block_bytes, live_before(ledger, park->entry));
    T_LE(park->block_bytes, park->copied_bytes);
    T_LE(park->copied_bytes, park->taken_bytes);
    T_LE(park->taken_bytes, park->physical_bytes);
    T_LE(park->copied_bytes, park->backup_bytes);
  }
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

// The block in the middle is idle: it is given back with its neighbours, but not copied.
T_TEST(test_parks__idle_blocks_are_not_copied) {
  tide_trace* const trace =
      trace_from(BASE, "segment 0:64M alloc 0:16M 16M:8M 32M:16M free 16M:8M alloc 48M:512");
  parked_run run;
  run_init(&run);
  run_add(&run, 4);
  run_add(&run, 6);
  run_add(&run, 7);
  T_OK(run_play(&run, trace));
  T_EQ(run.parks[0].block_bytes, (uint64_t)40 << 20);
  T_EQ(run.parks[0].copied_bytes, (uint64_t)40 << 20);
  T_EQ(run.parks[1].block_bytes, (uint64_t)32 << 20);
  T_EQ(run.parks[1].copied_bytes, (uint64_t)32 << 20);
  T_EQ(run.parks[2].block_bytes, ((uint64_t)32 << 20) + 512);
  T_EQ(run.parks[1].backup_bytes, (uint64_t)40 << 20);  // kept from the first time
  tide_trace_free(trace);
}

T_TEST(test_parks__discarded_contents_are_not_copied) {
  tide_trace* const trace = trace_from(BASE, "segment 0:64M alloc 0:16M");
  parked_run run;
  run_init(&run);
  run_add(&run, 2);
  run.options.park_backup = TIDE_BACKUP_NONE;
  T_OK(run_play(&run, trace));
  T_EQ(run.parks[0].block_bytes, (uint64_t)16 << 20);
  T_EQ(run.parks[0].copied_bytes, 0);
  T_EQ(run.parks[0].backup_bytes, 0);
  T_LE((uint64_t)16 << 20, run.parks[0].physical_bytes);
  tide_trace_free(trace);
}

// A run that ends at a refused request does not reach the second place.
T_TEST(test_parks__places_behind_the_end_are_not_reached) {
  tide_trace* const trace = trace_from(BASE, "segment 0:64M alloc 0:16M 16M:32M 48M:512");
  parked_run run;
  run_init(&run);
  run_add(&run, 2);
  run_add(&run, 4);
  run.options.limit = (uint64_t)24 << 20;
  run.options.stops_at_oom = true;
  T_OK(run_play(&run, trace));
  T_EQ(run.result.ooms, 1);
  T_EQ(run.result.parks, 1);
  T_EQ(run.parks[1].physical_bytes, 0);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Times

// One block of 32 MiB in two handles, which are one group and fill one piece of the backup.
typedef struct price_list {
  uint64_t registered;  // the piece, before its copy
  uint64_t copied;      // meanwhile an event is recorded
  uint64_t gone;        // one call unmaps both handles, and each is freed
  uint64_t made;        // both handles, mapped and with access
  uint64_t waited;      // an event of all work of the device
} price_list;

static price_list prices(void) {
  const tide_dry_costs c = TIDE_DRY_COSTS_INIT;
  return (price_list){ .registered = c.pinned + 32 * c.register_per_mib,
                       .copied = 32 * c.copy_per_mib,
                       .gone = 2 * c.unmap_per_mapping + 2 * (c.physical_free + 16 * c.physical_free_per_mib),
                       .made = 2 * (c.physical_new + c.map + c.access_per_mapping),
                       .waited = c.event_record };
}

static void run_init_handles(parked_run* run) {
  run_init(run);
  T_OK(tide_device_options_parse("tide_most_handle_mb:16,tide_least_handle_mb:16", &run->device));
  run->device.policy = TIDE_POLICY_TIDE;
}

// The second time the backup is there.
T_TEST(test_parks__times_are_sums_of_prices) {
  const price_list p = prices();
  tide_trace* const trace = trace_from(BASE, "segment 0:64M alloc 0:32M snapshot 0:0");
  parked_run run;
  run_init_handles(&run);
  for (uint64_t i = 1; i <= 3; i++) run_add(&run, i);
  T_OK(run_play(&run, trace));
  T_EQ(run.parks[0].physical_bytes, 0);  // nothing is there yet
  T_EQ(run.parks[1].physical_bytes, (uint64_t)32 << 20);
  T_EQ(run.parks[1].park_ns, p.waited + p.registered + p.copied + p.gone);
  T_EQ(run.parks[1].unpark_ns, p.made + p.copied);
  T_EQ(run.parks[2].park_ns, p.waited + p.copied + p.gone);
  T_EQ(run.parks[2].unpark_ns, p.made + p.copied);
  tide_trace_free(trace);
}

T_TEST(test_parks__discarding_takes_the_time_of_the_handles) {
  const price_list p = prices();
  tide_trace* const trace = trace_from(BASE, "segment 0:64M alloc 0:32M");
  parked_run run;
  run_init_handles(&run);
  run_add(&run, 2);
  run.options.park_backup = TIDE_BACKUP_NONE;
  T_OK(run_play(&run, trace));
  T_EQ(run.parks[0].park_ns, p.waited + p.gone);
  T_EQ(run.parks[0].unpark_ns, p.made);
  tide_trace_free(trace);
}

// Work of other streams that released blocks wait for is over before, and is in no time.
T_TEST(test_parks__waiting_releases_cost_no_time) {
  tide_trace* const at_once =
      trace_from(BASE, "segment 0:64M alloc 0:16M 16M:16M free 16M:16M alloc 48M:512");
  tide_trace* const late =
      trace_from(BASE, "segment 0:64M alloc 0:16M 16M:16M request 16M:16M alloc 48M:512 done 16M:16M");
  parked_run runs[2];
  for (size_t i = 0; i < 2; i++) {
    run_init(&runs[i]);
    run_add(&runs[i], i == 0 ? 5 : 4);
    T_OK(run_play(&runs[i], i == 0 ? at_once : late));
  }
  T_EQ(runs[0].parks[0].block_bytes, (uint64_t)16 << 20);
  T_EQ(runs[1].parks[0].block_bytes, (uint64_t)16 << 20);
  T_EQ(runs[1].parks[0].park_ns, runs[0].parks[0].park_ns);
  T_EQ(runs[1].parks[0].unpark_ns, runs[0].parks[0].unpark_ns);
  tide_trace_free(at_once);
  tide_trace_free(late);
}

// ---------------------------------------------------------------------------------------------------
// Options

static void expect_refused(parked_run* run, const tide_trace* trace, tide_status status, const char* part) {
  T_EQ(run_play(run, trace), status);
  T_CHECK(strstr(tide_last_error()->text, part) != NULL);
}

T_TEST(test_parks__refuses_what_cannot_be_parked) {
  tide_trace* const trace = trace_from(BASE, "segment 0:64M alloc 0:32M");
  parked_run run;
  run_init(&run);
  run_add(&run, 1);
  run.device.policy = TIDE_POLICY_TORCH;
  expect_refused(&run, trace, TIDE_ERR_UNSUPPORTED, "tide");
  run.device.policy = TIDE_POLICY_TIDE;
  run.options.checks = true;
  expect_refused(&run, trace, TIDE_ERR_ARGUMENT, "compared");
  run.options.checks = false;
  run.options.park_backup = TIDE_BACKUP_OF_POOL;
  expect_refused(&run, trace, TIDE_ERR_ARGUMENT, "backup");
  run.options.park_backup = TIDE_BACKUP_PINNED;
  run_add(&run, 1);
  expect_refused(&run, trace, TIDE_ERR_ARGUMENT, "ascend");
  run.parks[1].entry = 3;
  expect_refused(&run, trace, TIDE_ERR_ARGUMENT, "above 2");
  run.options.parks = NULL;
  expect_refused(&run, trace, TIDE_ERR_ARGUMENT, "NULL");
  tide_trace_free(trace);
}

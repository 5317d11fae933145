// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A region sends every request to one pool, so that all memory of the program can be parked. Times are
// differences of the dry machine's clock. Work on side streams must not count, so it ends before.
#include "replay/parks.h"

#include <inttypes.h>

#include "base/arith.h"
#include "base/error.h"

#define PARKS_TAG "replay"

tide_status tide__parks_check(const tide_replay_options* options, size_t entry_count) {
  const size_t count = options->park_count;
  if (count == 0) return TIDE_OK;
  TIDE_REQUIRE(options->parks != NULL, TIDE_ERR_ARGUMENT, "replay_run: parks is NULL");
  TIDE_REQUIRE(!options->checks, TIDE_ERR_ARGUMENT,
               "replay_run: a run that parks memory cannot be compared with the recording");
  TIDE_REQUIRE(options->park_backup <= TIDE_BACKUP_FILE, TIDE_ERR_ARGUMENT,
               "replay_run: there is no backup of kind %" PRIu32, options->park_backup);
  for (size_t i = 0; i < count; i++) {
    const uint64_t entry = options->parks[i].entry;
    TIDE_REQUIRE(entry <= entry_count && (i == 0 || entry > options->parks[i - 1].entry), TIDE_ERR_ARGUMENT,
                 "replay_run: entry %" PRIu64 " to park at does not ascend, or is above %zu", entry,
                 entry_count);
  }
  TIDE_REQUIRE(options->device->policy == TIDE_POLICY_TIDE, TIDE_ERR_UNSUPPORTED,
               "replay_run: only the policy tide can park memory");
  return TIDE_OK;
}

tide_status tide__parks_begin(tide__stage* stage) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_pool pool = TIDE_POOL_DEFAULT;
  if (stage->options->park_count == 0) return TIDE_OK;
  options.tag = PARKS_TAG;
  scope.kind = TIDE_SCOPE_ALL;
  scope.is_region = true;
  stage->has_region = true;
  TIDE_TRY(tide_device_pool_new(stage->device, &options, &pool));
  return tide_device_pool_begin(stage->device, pool, &scope);
}

// Blocks that are older than the recording exist before its first entry.
size_t tide__parks_step(const tide__stage* stage, size_t index) {
  if (index >= stage->options->park_count) return SIZE_MAX;
  const size_t step = tide__script_find(stage->script, (size_t)stage->options->parks[index].entry);
  return tide__max(step, stage->script->first_step);
}

// Ends the work that released blocks wait for. The clock does not move.
static tide_status sides_finish(tide__stage* stage) {
  tide_machine* const machine = stage->machine;
  tide_event event = NULL;
  if (stage->side_count == 0) return TIDE_OK;
  TIDE_TRY(tide_machine_event_new(machine, 0, &event));
  tide_status status = TIDE_OK;
  for (size_t i = 0; i < stage->side_count && status == TIDE_OK; i++) {
    status = tide_machine_event_record(machine, 0, event, stage->sides[i].stream);
    if (status == TIDE_OK) status = tide_dry_finish(machine, event);
    stage->sides[i].end_ns = 0;
  }
  TIDE_TRY(tide_machine_event_free(machine, event));
  TIDE_TRY(status);
  return tide_device_poll(stage->device);
}

static tide_status park_away(tide__stage* stage, tide_replay_park* park) {
  tide_park_options options = TIDE_PARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  uint64_t begin = 0;
  uint64_t end = 0;
  options.backup = stage->options->park_backup;
  TIDE_TRY(tide_machine_clock(stage->machine, &begin));
  TIDE_TRY(tide_device_park(stage->device, PARKS_TAG, &options, &result));
  TIDE_TRY(tide_machine_clock(stage->machine, &end));
  TIDE_TRY(tide_device_tag_stats(stage->device, PARKS_TAG, &stats));
  park->block_bytes = result.block_bytes;
  park->physical_bytes = result.physical_bytes;
  park->copied_bytes = result.copied_bytes;
  park->backup_bytes = stats.backup_bytes;
  park->park_ns = end - begin;
  return TIDE_OK;
}

static tide_status park_back(tide__stage* stage, tide_replay_park* park) {
  tide_unpark_options options = TIDE_UNPARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  uint64_t begin = 0;
  uint64_t end = 0;
  options.waits = true;
  options.keeps_backup = true;
  TIDE_TRY(tide_machine_clock(stage->machine, &begin));
  TIDE_TRY(tide_device_unpark(stage->device, PARKS_TAG, &options, &result));
  TIDE_TRY(tide_machine_clock(stage->machine, &end));
  park->taken_bytes = result.physical_bytes;
  park->unpark_ns = end - begin;
  return TIDE_OK;
}

tide_status tide__parks_run(tide__stage* stage, tide_replay_park* park) {
  TIDE_TRY(sides_finish(stage));
  TIDE_TRY(park_away(stage, park));
  return park_back(stage, park);
}

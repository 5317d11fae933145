// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Uses of tags: brings memory back that is away, keeps it in place, and fetches what is expected next.
#include "base/sys.h"
#include "core/capture.h"
#include "device/tide/freight.h"
#include "device/tide/giving.h"
#include "device/tide/parking.h"

// A call that fetches pools of a tag.
typedef struct use_call {
  tide_device_cache* device;
  tide__tag* tag;
  const tide_stream* streams;  // that wait for the contents
  size_t stream_count;
  const tide__ahead* ahead;  // NULL: somebody has asked for them
  uint64_t wanted_bytes;     // of a pool that could not be fetched
  const char* limited;       // the tag that was in the way; "": none
  uint32_t attempts;         // after other processes were asked
  tide__call_context context;
} use_call;

// ---------------------------------------------------------------------------------------------------
// Fetching

// Nobody waits for what comes ahead: neither for another thread, nor for copies by way of the host.
static bool can_come_ahead(const tide__pool* pool) {
  const tide__backup* const backup = pool->parked != NULL ? pool->parked->backup : NULL;
  if (pool->is_moving) return false;
  return backup == NULL || tide__store_kind(backup->store) == TIDE_BACKUP_PINNED;
}

// The first pool of the tag that is away; the caller is its guest.
static tide__pool* away_find(const use_call* call) {
  tide_device_cache* const device = call->device;
  tide__pool* found = NULL;
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL && found == NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    const tide__tag* const tag = tide__pool_tag_record(pool);
    if (tag == NULL || !tide__tag_is_under(tag, call->tag) || !tide__pool_is_away(pool)) continue;
    if (call->ahead == NULL || can_come_ahead(pool)) found = pool;
  }
  if (found != NULL) found->base.guests++;
  tide__mutex_unlock(&device->pools_lock);
  return found;
}

// Notes why a pool could not be fetched.
static void lack_note(use_call* call, tide__pool* pool) {
  const tide__want want = { pool, tide__parked_bytes(call->device, pool) };
  const tide__lack lack = tide__budget_lack(call->device, &want, 1, NULL);
  call->wanted_bytes = want.bytes;
  call->limited = lack.tag != NULL ? lack.tag->text : "";
}

static tide_status pool_fetch(use_call* call, tide__pool* pool) {
  tide_device_cache* const device = call->device;
  const tide__pool_list list = { &pool, 1 };
  tide__tag* const tag = tide__pool_tag_record(pool);
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  TIDE_TRY(tide__pools_wait(device, list, "device_use"));
  if (pool->parked == NULL) return TIDE_OK;
  tide__unpark_order order = { .streams = call->streams, .stream_count = call->stream_count };
  order.keeps_backup = true;
  order.is_for_streams = true;
  order.ahead = call->ahead;
  const tide_status status = tide__pools_unpark(device, list, &order, &call->context, &result);
  tide__heap_release(device->heap, order.lost, order.lost_capacity, sizeof *order.lost);
  if (status == TIDE_ERR_NO_MEMORY) lack_note(call, pool);
  TIDE_TRY(status);
  tag->fetched_count++;
  tag->ahead_count += call->ahead != NULL;
  tag->fetched_bytes += result.copied_bytes;
  return TIDE_OK;
}

static tide_status tag_fetch(use_call* call) {
  for (;;) {
    tide__pool* const pool = away_find(call);
    if (pool == NULL) return TIDE_OK;
    const tide_status status = pool_fetch(call, pool);
    tide__pool_leave(call->device, pool);
    TIDE_TRY(status);
  }
}

// The last arrival that brings contents of the tag.
static uint64_t tag_arrival(const use_call* call) {
  tide_device_cache* const device = call->device;
  uint64_t number = 0;
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    const tide__tag* const tag = tide__pool_tag_record(pool);
    if (tag == NULL || !tide__tag_is_under(tag, call->tag)) continue;
    number = tide__max(number, pool->arrival_number);
  }
  tide__mutex_unlock(&device->pools_lock);
  return number;
}

// Contents that were fetched ahead, or for another stream, may still be on their way.
static tide_status tag_await(const use_call* call) {
  tide_device_cache* const device = call->device;
  const uint64_t number = tag_arrival(call);
  if (number <= device->arrival_over || tide__arrival_is_over(device)) return TIDE_OK;
  for (size_t i = 0; i < call->stream_count; i++) {
    TIDE_TRY(tide__arrival_join(device, call->streams[i], number));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Uses

// Marks the tags of which something is away that can come ahead.
static void away_mark(tide_device_cache* device) {
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) tag->is_away = false;
  tide__mutex_lock(&device->pools_lock);
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    tide__pool* const pool = tide__pool_of(base);
    tide__tag* tag = tide__pool_is_away(pool) && can_come_ahead(pool) ? tide__pool_tag_record(pool) : NULL;
    for (; tag != NULL; tag = tag->parent) tag->is_away = true;
  }
  tide__mutex_unlock(&device->pools_lock);
}

// Fetches what is away in the order in which it is expected, as long as there is room, or others give way. It
// is held meanwhile.
static void ahead_fetch(tide_device_cache* device, tide__ahead ahead, const tide__call_context* context) {
  const tide_error before = *tide_last_error();
  tide_status status = TIDE_OK;
  if (tide__round_count(device) == 0) return;
  away_mark(device);
  for (ahead.steps = 1; status == TIDE_OK; ahead.steps++) {
    tide__tag* const tag = tide__uses_next(device, ahead.steps);
    if (tag == NULL) break;
    if (!tag->is_away) continue;
    use_call call = { .device = device, .tag = tag, .ahead = &ahead, .limited = "", .context = *context };
    tag->uses++;
    status = tag_fetch(&call);
    tag->uses--;
  }
  tide__error_restore(&before);
}

// A use that begins holds the tag, so that nothing of it gives way for another part of it.
static tide_status use_at_gate(use_call* call) {
  tide_device_cache* const device = call->device;
  call->tag->uses++;
  call->tag->used_at = ++device->use_clock;
  tide__uses_learn(device, call->tag);
  tide__backups_sweep(device);
  tide_status status = tag_fetch(call);
  if (status == TIDE_OK) status = tag_await(call);
  if (status != TIDE_OK) call->tag->uses--;
  else ahead_fetch(device, (tide__ahead){ 0 }, &call->context);
  return status;
}

static tide_status use_enter(use_call* call) {
  (void)tide__gate_enter(call->device);
  const tide_status status = use_at_gate(call);
  tide__gate_leave(call->device);
  tide__history_tell(&call->device->history);
  return status;
}

static tide_status use_attempt(void* user) {
  use_call* const call = user;
  call->attempts++;
  return use_enter(call);
}

// Asks other processes for all that is away. While this waits, they may take more of the tag away; then it
// asks again, as long as the time lasts.
static tide_status use_ask(use_call* call) {
  const uint64_t begin_ns = tide__sys_clock_ns();
  while (call->limited[0] == '\0') {
    const uint32_t before = call->attempts;
    tide_tag_stats stats = TIDE_TAG_STATS_INIT;
    const tide_status found = tide_device_tag_stats(call->device, call->tag->text, &stats);
    if (found == TIDE_ERR_HANDLE) return use_enter(call);  // the pools have ended, so nothing is away
    TIDE_TRY(found);
    const tide_status status = tide__allowance_ask(call->device, stats.parked_bytes, use_attempt, call);
    if (status != TIDE_ERR_NO_MEMORY) return status;
    const bool is_refused = call->attempts == before;
    if (is_refused || tide__sys_clock_ns() - begin_ns >= tide__load_relaxed(&call->device->quota_wait_ns))
      break;
  }
  return TIDE_ERR_NO_MEMORY;
}

// Other processes, and then the callbacks of pressure, are the last steps, as for requests.
static tide_status use_press(use_call* call) {
  const tide_error before = *tide_last_error();
  const tide_status asked = use_ask(call);
  if (asked != TIDE_ERR_NO_MEMORY) return asked;
  const tide_pressure pressure = { sizeof pressure, call->wanted_bytes, call->tag->text, call->limited };
  if (tide__observers_press(call->device, &pressure)) return use_enter(call);
  tide__error_restore(&before);
  return TIDE_ERR_NO_MEMORY;
}

static tide_status tag_check(tide_device_cache* device, const char* call, const char* tag,
                             const char** out_kept) {
  TIDE_REQUIRE(device != NULL && tag != NULL, TIDE_ERR_ARGUMENT, "%s: no device or tag", call);
  TIDE__REQUIRE_OWN(device, call);
  return tide__tag_keep(device, call, tag, out_kept);
}

tide_status tide_device_use(tide_device_cache* device, const char* tag, tide_stream stream) {
  const char* kept = NULL;
  use_call call = { .device = device, .streams = &stream, .stream_count = 1, .limited = "" };
  TIDE_TRY(tag_check(device, "device_use", tag, &kept));
  TIDE_TRY(tide__tag_make(device, kept, &call.tag));
  if (tide__is_recording(device)) call.context = tide__context_now(device, TIDE_HISTORY_ALL);
  tide_status status = use_enter(&call);
  if (status == TIDE_ERR_NO_MEMORY) status = use_press(&call);
  if (status == TIDE_ERR_NO_MEMORY) (void)tide__add_relaxed(&call.tag->refused_count, 1);
  return status;
}

// Will an event on a stream be behind the work of all uses before?
static bool mark_follows(tide_device_cache* device, const tide__tag* tag, tide_stream stream) {
  bool has_passed = false;
  if (tag->done == NULL || tag->done_stream == stream) return true;
  return tide_machine_event_query(device->machine, tag->done, &has_passed) == TIDE_OK && has_passed;
}

// Records an event behind the work of a use, so that parking need not wait for other work. Where that fails,
// parking waits for all work.
static void work_mark(tide_device_cache* device, tide__tag* tag, tide_stream stream) {
  const tide_error before = *tide_last_error();
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  bool is_known = !tag->is_done_unknown && mark_follows(device, tag, stream);
  if (is_known) is_known = tide__capture_is_outside(device->machine, device->index, stream);
  if (is_known && tag->done == NULL)
    is_known = tide_machine_event_new(device->machine, device->index, &tag->done) == TIDE_OK;
  if (is_known)
    is_known = tide_machine_event_record(device->machine, device->index, tag->done, stream) == TIDE_OK;
  tide__relax_end(&relaxed);
  tide__error_restore(&before);
  tag->is_done_unknown = !is_known;
  tag->done_stream = stream;
}

// Work that was queued keeps the device busy while the host waits for the work before it.
static void done_at_gate(tide_device_cache* device, tide__tag* tag, tide_stream stream) {
  tide__call_context context = { 0 };
  tag->uses--;
  tag->used_at = ++device->use_clock;
  if (tide__budget_of(tag)->yields) work_mark(device, tag, stream);
  else tag->is_done_unknown = true;
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  ahead_fetch(device, (tide__ahead){ .working = tag, .waits = true }, &context);
}

tide_status tide_device_done(tide_device_cache* device, const char* tag, tide_stream stream) {
  const char* kept = NULL;
  TIDE_TRY(tag_check(device, "device_done", tag, &kept));
  tide__tag* const record = tide__tag_find(device, kept);
  (void)tide__gate_enter(device);
  const bool is_used = record != NULL && record->uses > 0;
  if (is_used) done_at_gate(device, record, stream);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  TIDE_REQUIRE(is_used, TIDE_ERR_STATE, "device_done: the tag \"%s\" is not in use", tag);
  return TIDE_OK;
}

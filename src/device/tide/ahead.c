// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that is made before a request needs it. While a home grows, a helper thread makes the next handle at
// its top, of the size that the last growth chose, and maps it. The next request that grows takes it, and
// saves the time of the driver. All of it together is at most the slack, and with it no more is reserved than
// the peak and one and a half times the slack. Where the slack is less than a handle, nothing is made.
//
// A request decides as if it were not there: it counts as reserved in statistics alone. It becomes idle
// before a view is made, which may use it; and it goes back first when memory is short. Above what was
// reserved then, nothing is made any more, until a trim. Where tags have budgets, and in a hurry (hurry.c),
// nothing is made at all.
//
// New handles that a view got from its request are mapped at home ahead, too, which takes no memory.
//
// A memo of the last run (memo.c) says how much a stream had. All of that is made at once when the stream
// first gets memory, also a small block, as far as the device has free memory; then its views (view_ahead.c).
// Requests take the memory before they stitch. What nobody takes goes back a minute after the last growth, or
// earlier if memory is short. What a closed stream has, or a pool without users, becomes idle.
//
// The helper sleeps until a home has grown or a view was made, and there is something to do. If that is
// not in the memo, it then waits until nothing has called it for a short time. It takes the gate for one
// handle at a time, after all threads that wait for it. On the dry machine there is no thread: the request
// that grew does its work at its end, so that results repeat. If no thread can be started, nothing is
// made.
#include <stdlib.h>

#include "base/sys.h"
#include "device/segment/virtual.h"
#include "device/tide/home.h"
#include "device/tide/hurry.h"
#include "device/tide/memo.h"
#include "machine/pages.h"

// ---------------------------------------------------------------------------------------------------
// The memory

static void bytes_move(tide_device_cache* device, int64_t bytes) {
  device->ahead.bytes += (uint64_t)bytes;
  tide__mutex_lock(&device->totals_lock);
  tide__stat_move(&device->totals.ahead_bytes, bytes);
  tide__mutex_unlock(&device->totals_lock);
}

static bool is_at_top(const tide__home* home) {
  return home->ahead != NULL && home->top != NULL && home->top->prev == home->ahead;
}

// Handles are counted from the low end, so that what is left still lies at the top.
tide__block* tide__ahead_take_locked(tide_device_cache* device, tide__segment* segment, uint64_t bytes) {
  tide__home* const home = segment->home;
  uint64_t taken = 0;
  if (!is_at_top(home)) return NULL;
  tide__block* block = home->ahead;
  for (size_t i = tide__handle_index_at(home, block->address); i < home->count && taken < bytes; i++)
    taken += home->handles[i]->bytes;
  if (taken < block->bytes) block = tide__block_cut_front_locked(segment->lane, block, taken);
  else home->ahead = NULL;
  block->state = TIDE__BLOCK_BUSY;
  bytes_move(device, -(int64_t)block->bytes);
  return block;
}

void tide__ahead_put_locked(tide_device_cache* device, tide__segment* segment, tide__block* block) {
  tide__home* const home = segment->home;
  bytes_move(device, (int64_t)block->bytes);
  if (home->ahead != NULL) tide__block_absorb_prev_locked(segment->lane, block);
  block->state = TIDE__BLOCK_AHEAD;
  home->ahead = block;
}

static tide__block* home_claim_ahead(tide__home* home) {
  tide__mutex_lock(&home->segment->lane->lock);
  tide__block* const block = home->ahead;
  home->ahead = NULL;
  if (block != NULL) block->state = TIDE__BLOCK_BUSY;
  tide__mutex_unlock(&home->segment->lane->lock);
  return block;
}

uint64_t tide__ahead_at_top(const tide__segment* segment) {
  return is_at_top(segment->home) ? segment->home->ahead->bytes : 0;
}

// Makes it idle; returns how much that is.
static uint64_t home_release(tide_device_cache* device, tide__home* home) {
  tide__lane* const lane = home->segment->lane;
  if (home->ahead == NULL) return 0;
  tide__block* const block = home_claim_ahead(home);
  const uint64_t bytes = block->bytes;
  bytes_move(device, -(int64_t)bytes);
  tide__mutex_lock(&lane->lock);
  tide__block_return_locked(block, true);
  tide__mutex_unlock(&lane->lock);
  return bytes;
}

uint64_t tide__ahead_release(tide_device_cache* device, const tide__lane* lane) {
  const tide__segment* const segment = lane->homes[TIDE__LARGE];
  return segment != NULL ? home_release(device, segment->home) : 0;
}

static void home_leave(tide_device_cache* device, tide__home* home) {
  tide__ahead_forget(device, home->segment);
  (void)home_release(device, home);
}

void tide__ahead_leave_pool(tide_device_cache* device, const tide__pool* pool) {
  TIDE_LIST_EACH(it, &device->homes) {
    tide__home* const home = TIDE_OWNER(it, tide__home, link);
    if (home->segment->lane->pool == pool) home_leave(device, home);
  }
}

void tide__ahead_leave_closed(tide_device_cache* device) {
  TIDE_LIST_EACH(it, &device->homes) {
    tide__home* const home = TIDE_OWNER(it, tide__home, link);
    if (tide__load_relaxed(&home->segment->lane->is_closed)) home_leave(device, home);
  }
}

// A home that has some; NULL: none has.
static tide__home* home_with_ahead(tide_device_cache* device) {
  TIDE_LIST_EACH(it, &device->homes) {
    tide__home* const home = TIDE_OWNER(it, tide__home, link);
    if (home->ahead != NULL) return home;
  }
  return NULL;
}

static void memo_set(tide_device_cache* device, tide__memo* memo) {
  tide__memo_free(device, device->ahead.memo);
  device->ahead.memo = memo;
}

// Observers that are told may change the homes, so each is searched anew.
static void give_all(tide_device_cache* device, const tide__call_context* context) {
  tide__home* home = NULL;
  const tide_error before = *tide_last_error();
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide__views_drop_ahead(device);
  memo_set(device, NULL);
  while (device->ahead.bytes > 0 && (home = home_with_ahead(device)) != NULL) {
    tide__block* const block = home_claim_ahead(home);
    bytes_move(device, -(int64_t)block->bytes);
    tide__ignore(tide__home_give_unused(device, block, context));
  }
  tide__relax_end(&relaxed);
  tide__error_restore(&before);
}

bool tide__ahead_give(tide_device_cache* device, const tide__call_context* context) {
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  if (device->ahead.bytes == 0) return false;
  device->ahead.most_reserved = tide__max(1, reserved - device->ahead.bytes);
  give_all(device, context);
  return true;
}

uint64_t tide__ahead_of_memo(const tide_device_cache* device, const tide__lane* lane) {
  const tide__segment* const segment = lane->homes[TIDE__LARGE];
  return device->ahead.memo != NULL && segment != NULL ? tide__ahead_at_top(segment) : 0;
}

uint64_t tide__ahead_handle_bytes(tide_device_cache* device, const tide__lane* lane) {
  const tide__memo_stream* const stream = tide__memo_stream_of(device->ahead.memo, lane);
  const bool is_on = tide__device_options(device)->tide_ahead && !device->ahead.is_threadless;
  return stream != NULL && is_on ? tide__memo_next(device, device->ahead.memo, stream) : 0;
}

// ---------------------------------------------------------------------------------------------------
// What there is to do

// How much more may be reserved at all.
static uint64_t limit_left(tide_device_cache* device) {
  const uint64_t limit = tide__load_relaxed(&device->limit);
  const uint64_t most = device->ahead.most_reserved != 0 ? device->ahead.most_reserved : UINT64_MAX;
  return tide__difference(tide__min(limit, most), tide__load_relaxed(&device->reserved_bytes));
}

// How much more may be made ahead.
static uint64_t room_left(tide_device_cache* device) {
  const double slack_share = tide__device_options(device)->tide_slack;
  tide__mutex_lock(&device->totals_lock);
  const uint64_t peak = device->peak_large;
  const uint64_t reserved = (uint64_t)(device->totals.reserved_bytes[TIDE_STAT_LARGE].current +
                                       device->totals.parked_bytes[TIDE_STAT_LARGE].current);
  tide__mutex_unlock(&device->totals_lock);
  const uint64_t slack = (uint64_t)((double)peak * slack_share);
  const uint64_t left = tide__min(tide__difference(peak + slack + slack / 2, reserved),
                                  tide__difference(slack, device->ahead.bytes));
  return tide__min(left, limit_left(device));
}

// What a memo may make: the free memory of the device, but for a part.
enum { MARGIN_PARTS = 32 };

static uint64_t memo_room(tide_device_cache* device) {
  tide__memo* const memo = device->ahead.memo;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (!memo->is_measured) {
    const tide_error before = *tide_last_error();
    memo->is_measured = true;
    if (tide_machine_memory_info(device->machine, device->index, &free_bytes, &total_bytes) != TIDE_OK)
      tide__error_restore(&before);
    memo->left = tide__difference(free_bytes, total_bytes / MARGIN_PARTS);
  }
  return tide__min(memo->left, limit_left(device));
}

// The size of the next handle of a home by the memo; 0: there is none, or no room for it.
static uint64_t memo_bytes(tide_device_cache* device, const tide__segment* segment) {
  tide__memo* const memo = device->ahead.memo;
  const tide__memo_stream* const stream = tide__memo_stream_of(memo, segment->lane);
  const uint64_t wanted = stream != NULL ? tide__memo_next(device, memo, stream) : 0;
  return wanted > 0 && wanted <= memo_room(device) ? wanted : 0;
}

// The same by the memo or by the last growth.
static uint64_t next_bytes(tide_device_cache* device, const tide__segment* segment) {
  const uint64_t wanted = memo_bytes(device, segment);
  if (wanted > 0) return wanted;
  return device->ahead.handle_bytes <= room_left(device) ? device->ahead.handle_bytes : 0;
}

// May something be made for a pool?
static bool may_make(tide_device_cache* device, const tide__pool* pool) {
  if (device->is_leaving || tide__hurry_is_on(device)) return false;
  if (!tide__device_options(device)->tide_ahead) return false;
  return !tide__budgets_exist(device) && !tide__pool_is_away(pool);
}

// The size of the handle that may be made now; 0: there is nothing to do.
static uint64_t work_bytes(tide_device_cache* device) {
  const tide__segment* const segment = device->ahead.home;
  if (segment == NULL || !may_make(device, segment->lane->pool)) return 0;
  const tide__home* const home = segment->home;
  if (home->ahead != NULL && !is_at_top(home)) return 0;
  const uint64_t bytes = next_bytes(device, segment);
  return home->top != NULL && home->top->bytes > bytes ? bytes : 0;
}

// Are there handles of views to map at home?
static bool late_is_left(const tide_device_cache* device) {
  const tide__segment* const segment = device->ahead.late_home;
  return segment != NULL && !device->is_leaving && !tide__pool_is_away(segment->lane->pool);
}

// Does the memo have views that were not made, and may their handles be there?
static bool views_are_left(tide_device_cache* device) {
  const tide__memo* const memo = device->ahead.memo;
  if (memo == NULL || !device->ahead.is_view_due || !may_make(device, &device->default_pool)) return false;
  return device->ahead.view != NULL || memo->next_view < memo->view_count;
}

// What the memo has is needed soon, so the helper does not wait for a pause to make it.
static void urgency_note(tide_device_cache* device) {
  const tide__segment* const segment = device->ahead.home;
  const bool is_urgent = views_are_left(device) || (segment != NULL && memo_bytes(device, segment) > 0);
  tide__store_seq(&device->ahead.is_urgent, is_urgent);  // pairs with helper_run
}

static bool has_work(tide_device_cache* device) {
  return work_bytes(device) > 0 || late_is_left(device) || views_are_left(device);
}

// ---------------------------------------------------------------------------------------------------
// The work

static uint64_t clock_ns(tide_device_cache* device) {
  uint64_t now_ns = 0;
  tide__ignore(tide_machine_clock(device->machine, &now_ns));
  return now_ns;
}

static void count(tide_device_cache* device, uint64_t begin_ns, bool is_made) {
  const uint64_t end_ns = clock_ns(device);
  tide__mutex_lock(&device->totals_lock);
  device->totals.num_ahead_handles += is_made;
  device->totals.ahead_ns += (int64_t)tide__difference(end_ns, begin_ns);
  tide__mutex_unlock(&device->totals_lock);
}

// The block is BUSY until it has memory.
static tide_status handle_make(tide_device_cache* device, tide__segment* segment, uint64_t bytes,
                               const tide__call_context* context) {
  tide__lane* const lane = segment->lane;
  if (!tide__lane_lock_with_spares(device, lane)) return TIDE_ERR_NO_MEMORY;
  tide__block* const block = tide__home_cut_top_locked(segment, bytes);
  tide__mutex_unlock(&lane->lock);
  const uint64_t address = block->address;
  const tide_status status = tide__home_fill(device, segment, address, bytes, tide__handles_of(bytes));
  tide__mutex_lock(&lane->lock);
  if (status != TIDE_OK) tide__home_uncut_top_locked(segment, block);
  else tide__ahead_put_locked(device, segment, block);
  tide__mutex_unlock(&lane->lock);
  if (status == TIDE_OK) tide__mapped_keep(device, segment, address, address + bytes, context);
  return status;
}

// A home has got so many bytes more.
static void memo_note(tide_device_cache* device, const tide__segment* segment, uint64_t bytes) {
  tide__memo* const memo = device->ahead.memo;
  tide__memo_stream* const stream = tide__memo_stream_of(memo, segment->lane);
  if (stream == NULL) return;
  stream->made += bytes;
  memo->left -= tide__min(memo->left, bytes);
  memo->used_ns = clock_ns(device);
}

// Gives back what the memo made and nobody took, when no home has grown for long.
#define MEMO_PATIENCE_NS ((uint64_t)60000000000)

static void memo_expire(tide_device_cache* device, const tide__call_context* context) {
  const tide__memo* const memo = device->ahead.memo;
  if (memo == NULL || memo->used_ns == 0) return;
  if (tide__difference(clock_ns(device), memo->used_ns) >= MEMO_PATIENCE_NS) give_all(device, context);
}

// After a failure nothing is made, until a home grows again.
static bool handle_step(tide_device_cache* device, uint64_t bytes, const tide__call_context* context) {
  tide__ahead_memory* const ahead = &device->ahead;
  const tide_status status = handle_make(device, ahead->home, bytes, context);
  if (status == TIDE_OK) memo_note(device, ahead->home, bytes);
  else ahead->home = NULL;
  if (status == TIDE_ERR_NO_MEMORY)
    ahead->most_reserved = tide__max(1, tide__load_relaxed(&device->reserved_bytes));
  return status == TIDE_OK;
}

// Maps one handle of a view at home. What cannot be mapped is left to the request that needs it.
static bool late_step(tide_device_cache* device) {
  tide__ahead_memory* const ahead = &device->ahead;
  bool is_mapped = false;
  const tide_status status =
      tide__home_map_next(device, ahead->late_home, &ahead->late_from, ahead->late_to, &is_mapped);
  if (status != TIDE_OK || !is_mapped) ahead->late_home = NULL;
  return status == TIDE_OK && is_mapped;
}

// Maps one handle in a view of the memo.
static bool view_step(tide_device_cache* device) {
  device->ahead.is_view_due = tide__view_ahead_step(device);
  return device->ahead.is_view_due;
}

// Makes or maps one handle, if there is something to do.
static bool step(tide_device_cache* device, const tide__call_context* context) {
  if (!has_work(device)) return false;
  const tide_error before = *tide_last_error();
  const uint64_t begin_ns = clock_ns(device);
  const uint64_t bytes = work_bytes(device);
  const bool is_done = bytes > 0              ? handle_step(device, bytes, context)
                       : late_is_left(device) ? late_step(device)
                                              : view_step(device);
  count(device, begin_ns, is_done && bytes > 0);
  tide__error_restore(&before);
  return is_done;
}

// ---------------------------------------------------------------------------------------------------
// The helper

// A thread that calls the driver while the process ends could crash. So the process waits for the call, but
// not for ever: the helper may be in an observer, which waits for what the process holds.
#define EXIT_PATIENCE_NS ((uint64_t)2000000000)
static tide__atomic_u32 is_exiting;
static tide__atomic_u32 working;  // helpers that may be calling their machines
static int exit_process;

static void exit_begin(void) {
  if (tide__sys_process() != exit_process) return;  // a child has no helpers
  tide__store_seq(&is_exiting, 1);
  const uint64_t begin_ns = tide__sys_clock_ns();
  while (tide__load_seq(&working) != 0 && tide__sys_clock_ns() - begin_ns < EXIT_PATIENCE_NS)
    tide__sys_sleep_ns(20000);
}

static void exit_register(void) {
  exit_process = tide__sys_process();
  (void)atexit(exit_begin);
}

// What the helper knows after a step.
typedef struct helper_report {
  bool is_made;     // a handle was made or mapped
  bool holds_memo;  // nobody has taken all that it made by a memo
} helper_report;

static helper_report helper_step(tide_device_cache* device) {
  const tide__call_context context =
      tide__is_recording(device) ? tide__context_now(device, TIDE_HISTORY_NEVER) : (tide__call_context){ 0 };
  tide__gate_enter_last(device);
  (void)atomic_fetch_add(&working, 1);
  const bool is_made = tide__load_seq(&is_exiting) == 0 && step(device, &context);
  if (!is_made && tide__load_seq(&is_exiting) == 0) memo_expire(device, &context);
  const bool has_memo = device->ahead.memo != NULL;
  const bool holds_memo = has_memo && (device->ahead.bytes > 0 || device->ahead.view_count > 0);
  urgency_note(device);
  (void)atomic_fetch_sub(&working, 1);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return (helper_report){ is_made, holds_memo };
}

// Many requests grow one after the other, and then none for a while. Among them the helper would be in the
// way, because both need the gate and the driver. So it waits until no request has called it for so long.
#define QUIET_NS 5000000

// Requests do not wake it here, but the end does.
static bool is_quiet(tide__ahead_memory* ahead, uint32_t seen) {
  tide__sys_futex_wait_for(&ahead->calls, seen, QUIET_NS);
  return tide__load_seq(&ahead->calls) == seen;
}

// Requests wake the helper only when it sleeps here.
static void helper_sleep(tide__ahead_memory* ahead, uint32_t seen, bool holds_memo) {
  tide__store_seq(&ahead->is_asleep, 1);  // pairs with helper_call
  if (holds_memo) tide__sys_futex_wait_for(&ahead->calls, seen, MEMO_PATIENCE_NS);
  else tide__sys_futex_wait(&ahead->calls, seen);
  tide__store_seq(&ahead->is_asleep, 0);
}

static void* helper_run(void* user) {
  tide_device_cache* const device = user;
  tide__ahead_memory* const ahead = &device->ahead;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  uint32_t quiet_at = 0;  // calls, when it was quiet last
  for (;;) {
    const uint32_t seen = tide__load_seq(&ahead->calls);            // first, because the last call ends it
    if (tide__load_acquire(&ahead->is_ending) != 0) break;          // pairs with tide__ahead_fini
    const bool is_urgent = tide__load_seq(&ahead->is_urgent) != 0;  // pairs with urgency_note
    if (!is_urgent && seen != quiet_at && !is_quiet(ahead, seen)) continue;
    if (!is_urgent) quiet_at = seen;
    const helper_report report = helper_step(device);
    if (!report.is_made) helper_sleep(ahead, seen, report.holds_memo);
  }
  tide__relax_end(&relaxed);
  return NULL;
}

static void helper_call(tide__ahead_memory* ahead) {
  (void)atomic_fetch_add(&ahead->calls, 1);
  if (tide__load_seq(&ahead->is_asleep) != 0) tide__sys_futex_wake(&ahead->calls);  // pairs with helper_sleep
}

// A thread is started when there is something to do for the first time.
static void helper_start(tide_device_cache* device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  tide__ahead_memory* const ahead = &device->ahead;
  (void)pthread_once(&once, exit_register);
  ahead->is_running = tide__sys_thread_start(&ahead->thread, helper_run, device) == 0;
  ahead->is_threadless = !ahead->is_running;
}

void tide__ahead_init(tide_device_cache* device) {
  device->ahead.is_modelled = !tide__pages_exist(device->machine);
}

void tide__ahead_fini(tide_device_cache* device) {
  tide__ahead_memory* const ahead = &device->ahead;
  if (!ahead->is_running) {
    memo_set(device, NULL);
    return;
  }
  tide__store_release(&ahead->is_ending, 1);  // pairs with helper_run
  (void)atomic_fetch_add(&ahead->calls, 1);
  tide__sys_futex_wake(&ahead->calls);
  (void)pthread_join(ahead->thread, NULL);
  ahead->is_running = false;
  memo_set(device, NULL);
}

static void home_begin(tide_device_cache* device, tide__segment* home) {
  device->ahead.home = home;
  device->ahead.is_view_due = true;
}

// Begins with the large memory that the memo has for a stream, if it has some, and the stream may need it.
static void memo_begin(tide_device_cache* device, tide__lane* lane, const tide__call_context* context) {
  const tide_error before = *tide_last_error();
  const tide__request request = { .device = device,
                                  .lane = lane,
                                  .kind = TIDE__LARGE,
                                  .options = tide__device_options(device),
                                  .context = *context };
  tide__segment* home = NULL;
  if (tide__load_relaxed(&lane->is_closed) || !may_make(device, lane->pool)) return;
  if (tide__ahead_handle_bytes(device, lane) == 0) return;
  if (tide__home_with_room(&request, tide__request_unit(&request), &home) != TIDE_OK)
    tide__error_restore(&before);
  else home_begin(device, home);
}

// Memory of a capture stays where it is, and an external stream has little.
void tide__ahead_note(const tide__request* request, tide__segment* segment, uint64_t handle_bytes,
                      uint64_t made) {
  tide__ahead_memory* const ahead = &request->device->ahead;
  const bool is_plain = !request->is_capturing && !request->lane->is_unlisted;
  if (!is_plain || !request->options->tide_ahead || ahead->is_threadless) return;
  if (segment->is_small) {
    memo_begin(request->device, request->lane, &request->context);
    return;
  }
  if (ahead->memo != NULL) memo_note(request->device, segment, made);
  home_begin(request->device, segment);
  ahead->handle_bytes = handle_bytes;
}

// Views are made of the newest handles, at the top of a home: most ranges follow each other.
void tide__ahead_note_late(const tide__request* request, tide__segment* segment, uint64_t address,
                           uint64_t bytes) {
  tide__ahead_memory* const ahead = &request->device->ahead;
  if (!request->options->tide_ahead || ahead->is_threadless) return;
  const bool goes_on = ahead->late_home == segment;
  ahead->late_from = goes_on ? tide__min(ahead->late_from, address) : address;
  ahead->late_home = segment;
  ahead->late_to = address + bytes;
}

void tide__ahead_set_memo(tide_device_cache* device, tide__memo* memo, const tide__call_context* context) {
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide__view_ahead_end(device);
  memo_set(device, memo);
  device->ahead.home = NULL;
  for (size_t i = 0; i < memo->stream_count && device->ahead.home == NULL; i++) {
    tide__lane* const lane = tide__memo_lane(device, memo->streams[i].number);
    if (lane != NULL) memo_begin(device, lane, context);
  }
  tide__ahead_go_on(device, context);
  tide__relax_end(&relaxed);
}

void tide__ahead_go_on(tide_device_cache* device, const tide__call_context* context) {
  tide__ahead_memory* const ahead = &device->ahead;
  if (ahead->is_modelled) {
    while (step(device, context)) continue;
    memo_expire(device, context);
    ahead->home = NULL;
    return;
  }
  urgency_note(device);
  if (!has_work(device)) {
    ahead->home = NULL;
  } else if (!ahead->is_running) {
    helper_start(device);
  } else {
    helper_call(ahead);
  }
}

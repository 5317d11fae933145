// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests and releases: serving a request from cached memory, what happens when none fits, and taking blocks
// back. A request that finds cached memory takes one lock, that of its lane.
#include "device/park/park.h"
#include "device/tide/lasting.h"
#include "device/tide/tcache.h"

// ---------------------------------------------------------------------------------------------------
// Requests

// The steps of a request are written once and compiled twice, so that requests on external streams cost the
// others nothing.
#define ALWAYS_INLINE __attribute__((always_inline)) static inline

// Hands out a block of a lane.
static inline void block_hand_out_locked(const tide__request* request, tide__block* block, tide__tally* tally,
                                         tide_block* out) {
  if (request->kind == TIDE__LARGE) tide__sizes_hand_out_locked(block->segment->lane, request->rounded);
  (void)tide__block_commit_locked(request, block, request->policy->splits(request, block), tally, out);
}

// Hands out a BUSY block that the ladder brought.
static tide_status request_finish(tide__request* request, tide__block* block, tide_block* out) {
  tide__lane* const lane = tide__load_relaxed(&block->lane);
  tide__lane_turn(request->device, lane);
  tide__tally* const tally = tide__tally_enter(request->device, lane);
  const bool has_records = tide__lane_lock_with_spares(request->device, lane);
  if (has_records) {
    block_hand_out_locked(request, block, tally, out);
    tide__mutex_unlock(&lane->lock);
  } else {
    tide__mutex_lock(&lane->lock);
    if (block->segment->view != NULL) tide__view_block_end_locked(request->device, block, &request->context);
    else tide__block_return_locked(block, true);
    tide__lane_unlock_ended(request->device, lane);
  }
  tide__tally_leave(request->device, tally);
  return has_records ? TIDE_OK : TIDE_ERR_NO_MEMORY;
}

static bool block_is_ready_locked(const tide__request* request, const tide__block* block) {
  return request->policy->is_ready_locked == NULL || request->policy->is_ready_locked(request, block);
}

// Hands out a BUSY block that is not ready. *out_found is false if it cannot be had now.
static tide_status request_prepare(tide__request* request, tide__block* block, tide_block* out,
                                   bool* out_found) {
  TIDE_TRY(request->policy->prepare(request, &block));
  *out_found = block != NULL;
  return block != NULL ? request_finish(request, block, out) : TIDE_OK;
}

// Searches the free index once, as the policy does, and hands the block out. *out_found is false if none
// fits.
ALWAYS_INLINE tide_status request_search(tide__request* request, tide_block* out, bool* out_found) {
  const tide__policy* const policy = request->policy;
  tide__lane* const lane = request->lane;
  tide__tally* const tally = tide__lane_open(request->device, lane);
  if (tally == NULL) return TIDE_ERR_NO_MEMORY;
  tide__block* const block = policy->choose_locked(request, tally);
  const bool is_ready = block != NULL && block_is_ready_locked(request, block);
  if (is_ready) block_hand_out_locked(request, block, tally, out);
  else if (block != NULL) tide__free_index_take_locked(block);
  tide__lane_shut(request->device, lane, tally);
  *out_found = block != NULL;
  return block == NULL || is_ready ? TIDE_OK : request_prepare(request, block, out, out_found);
}

// A request before it begins. The fields that request_begin() sets are not cleared here: clearing the whole
// struct would be a tenth of the cost of a large block.
static inline void request_init(tide__request* request, tide_device_cache* device, tide_stream stream,
                                uint64_t bytes) {
  request->device = device;
  request->stream = stream;
  request->bytes = bytes;
  request->context = (tide__call_context){ 0, 0, 0 };
  request->has_captures = false;
  request->is_capturing = false;
  request->is_rejected = false;
  request->is_borrowing = false;
  request->visited = NULL;
}

// Chooses the pool by the open scopes. A graph may use memory of the pool later that is idle then, if the
// stream is captured. So it is noted with the pool; also if the machine does not say.
static void request_choose_pool(tide__request* request) {
  tide_device_cache* const device = request->device;
  request->has_captures = tide__has_captures(device);
  request->is_capturing = tide__is_capturing(device, request->stream);
  tide__pool_choose(request);
  if (request->visited == NULL || tide__load_relaxed(&request->visited->is_captured)) return;
  if (tide__capture_has(device->machine, device->index, request->stream)) {
    tide__store_relaxed(&request->visited->is_captured, 1);
  }
}

// What scopes, and contents of parked memory that are on their way back, mean for a request.
__attribute__((noinline)) static tide_status request_take_detour(tide__request* request, uint32_t detours,
                                                                 bool is_external) {
  if ((detours & TIDE__HAS_SCOPES) != 0) request_choose_pool(request);
  if (tide__load_relaxed(&request->pool->is_tracked)) tide__store_relaxed(&request->pool->is_tracked, 0);
  const bool is_arriving = tide__load_relaxed(&request->pool->is_arriving) != 0;
  if ((detours & TIDE__HAS_ARRIVAL) == 0 && !is_arriving) return TIDE_OK;
  return tide__arrival_await(request->device, request->pool, request->stream, is_external);
}

// The first steps of every request: frees blocks whose work is done, and chooses the pool and the lane.
ALWAYS_INLINE tide_status request_begin(tide__request* request, bool is_external) {
  tide_device_cache* const device = request->device;
  const uint32_t detours = tide__load_relaxed(&device->detours);
  request->options = &tide__load_acquire(&device->settings)->options;  // pairs with tide__settings_publish
  request->gate_turn = tide__load_acquire(&device->gate_turn);         // pairs with tide__gate_leave
  if ((detours & TIDE__RECORDS) != 0) request->context = tide__context_now(device, TIDE_HISTORY_STATE);
  request->pool = &device->default_pool;
  if ((detours & (TIDE__HAS_SCOPES | TIDE__HAS_ARRIVAL)) != 0) {
    TIDE_TRY(request_take_detour(request, detours, is_external));
  }
  const bool is_waiting = tide__load_relaxed(&device->waits.waiting) != 0;
  if (is_waiting && !request->is_capturing) {
    tide__ignore(tide__timeline_poll(device, &request->context));
  }
  if (is_external) TIDE_TRY(tide__external_enter(device, request->pool, request->stream, &request->lane));
  else TIDE_TRY(tide__lane_enter(device, request->pool, request->stream, &request->lane));
  tide__request_decide(request);
  if (request->is_capturing && request->options->is_capture_reuse && is_waiting) {
    TIDE_TRY(tide__capture_reuse(request));
  }
  return TIDE_OK;
}

ALWAYS_INLINE tide_status request_find(tide__request* request, tide_block* out) {
  bool is_found = false;
  if (request->device->has_tcaches && tide__tcache_serve(request)) {
    TIDE_TRY(tide__tcache_search(request, out, &is_found));
  } else {
    TIDE_TRY(request_search(request, out, &is_found));
  }
  if (is_found) return TIDE_OK;
  tide__block* block = NULL;
  request->segment_bytes = request->policy->segment_bytes(request->options, request->rounded);
  TIDE_TRY(request->policy->recover(request, &block));
  return request_finish(request, block, out);
}

static tide_status request_serve(tide__request* request, tide_block* out) {
  tide_status status = request_begin(request, false);
  if (status == TIDE_OK) status = request_find(request, out);
  if (request->visited != NULL) tide__pool_leave(request->device, request->visited);
  return status;
}

static tide_status request_serve_external(tide__request* request, tide_block* out) {
  request->lane = NULL;
  tide_status status = request_begin(request, true);
  tide__lane* const lane = request->lane;
  if (status == TIDE_OK) status = request_find(request, out);
  if (lane != NULL && lane->is_unlisted) tide__external_leave(request->device, lane);
  if (request->visited != NULL) tide__pool_leave(request->device, request->visited);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status audit_all(tide_device_cache* device, tide_status status) {
  const tide_error before = *tide_last_error();
  if (tide__load_relaxed(&device->paused) > 0) return status;  // an observer's call: a block is BUSY
  if (tide_device_check(device) != 0) return TIDE_ERR_STATE;
  tide__error_restore(&before);
  return status;
}

static inline tide_status audit(tide_device_cache* device, tide_status status) {
  const bool is_audited = (tide__load_relaxed(&device->detours) & TIDE__IS_AUDITED) != 0;
  return is_audited ? audit_all(device, status) : status;
}

// Tells observers the entries that this thread has made.
static inline void tell(tide_device_cache* device) {
  if (tide__untold_count != 0) tide__history_tell_all(&device->history);
}

__attribute__((noinline)) static tide_status alloc_any(tide_device_cache* device, tide_stream stream,
                                                       size_t bytes, tide_block* out) {
  *out = (tide_block){ NULL, 0 };
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(bytes < TIDE__MAX_REQUEST, TIDE_ERR_ARGUMENT,
               "device_alloc: %zu bytes; Tried to allocate more than 1EB memory", bytes);
  const uint32_t detours = tide__load_relaxed(&device->detours);
  if ((detours & TIDE__IS_INHERITED) != 0) return tide__inherited_refuse("device_alloc");
  if ((detours & TIDE__IS_UNCACHED) != 0) return tide__uncached_alloc(device, bytes, out);
  tide__request request;
  request_init(&request, device, stream, bytes);
  const tide_status status = request_serve(&request, out);
  tell(device);
  return audit(device, status);
}

tide_status tide_device_alloc(tide_device_cache* device, tide_stream stream, size_t bytes, tide_block* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_alloc: no %s",
               device == NULL ? "device" : "out");
  const bool is_short = bytes - 1 < TIDE__MAGAZINE_BYTES && tide__load_relaxed(&device->detours) == 0 &&
                        tide__load_relaxed(&device->waits.waiting) == 0;
  if (is_short && tide__tcache_alloc(device, stream, bytes, out)) return TIDE_OK;
  return alloc_any(device, stream, bytes, out);
}

static bool stream_is_default(tide_stream stream) {
  return stream == NULL || stream == TIDE_STREAM_LEGACY || stream == TIDE_STREAM_PER_THREAD;
}

tide_status tide_device_alloc_external(tide_device_cache* device, tide_stream stream, size_t bytes,
                                       tide_block* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_alloc_external: no %s",
               device == NULL ? "device" : "out");
  const bool is_plain = bytes - 1 >= TIDE__MAX_REQUEST - 1 || stream_is_default(stream) ||
                        (tide__load_relaxed(&device->detours) & (TIDE__IS_INHERITED | TIDE__IS_UNCACHED)) !=
                            0;
  if (is_plain) return alloc_any(device, stream, bytes, out);
  *out = (tide_block){ NULL, 0 };
  tide__request request;
  request_init(&request, device, stream, bytes);
  const tide_status status = request_serve_external(&request, out);
  tell(device);
  return audit(device, status);
}

__attribute__((noinline)) static tide_status release_refused(const void* address) {
  return TIDE_FAIL(TIDE_ERR_HANDLE,
                   "device_release: %p is an invalid device pointer: no block is handed out there", address);
}

// Takes a block back. A handle that is not valid any more may lead to another lane, which then is locked in
// vain. After a fork a block is still the parent's: releasing it in the child has no effect.
__attribute__((noinline)) static tide_status record_take_back(tide_device_cache* device, tide__block* record,
                                                              tide_block block) {
  const uint32_t detours = tide__load_relaxed(&device->detours);
  tide__lane* const lane = tide__load_relaxed(&record->lane);
  if ((detours & TIDE__IS_INHERITED) != 0) return TIDE_OK;
  if (lane == NULL) {
    const bool is_mine = tide__slots_claim(&device->blocks, block.handle) != NULL;
    return is_mine ? tide__uncached_release(device, record) : release_refused(block.address);
  }
  tide__call_context context = { 0 };
  if ((detours & TIDE__RECORDS) != 0) context = tide__context_now(device, TIDE_HISTORY_ALL);
  const bool has_mark = tide__load_relaxed(&lane->makes_marks) && !record->is_small;
  const uint64_t last_use = has_mark ? tide__mark_make(device, lane) : 0;
  const tide__release result = tide__block_release(device, record, block.handle, last_use, &context);
  if (result == TIDE__RELEASE_REFUSED) return release_refused(block.address);
  if (result == TIDE__RELEASE_WAITS) tide__timeline_add(device, record, &context);
  tell(device);
  return audit(device, TIDE_OK);
}

// Takes a block of a magazine back, with all that may have to be done.
__attribute__((noinline)) static tide_status magazine_take_back(tide_device_cache* device,
                                                                tide__block* record) {
  if (tide__is_inherited(device)) return TIDE_OK;
  tide__tcache_release_slow(device, record);
  tell(device);
  return audit(device, TIDE_OK);
}

// Of a block of a magazine the handle is ended by one atomic step: of two releases one fails.
static inline tide_status block_take_back(tide_device_cache* device, tide_block block) {
  tide__block* const record = tide__slots_find(&device->blocks, block.handle);
  if (record == NULL) return release_refused(block.address);
  if (tide__load_relaxed(&record->magazine) == 0) return record_take_back(device, record, block);
  uint32_t generation = (uint32_t)(block.handle >> 32);
  const bool is_mine = atomic_compare_exchange_strong(&record->slot.generation, &generation, generation + 1);
  if (!is_mine) return release_refused(block.address);
  const bool is_short = tide__load_seq(&record->use_word) == 0 &&  // pairs with record_use
                        tide__load_relaxed(&device->detours) == 0;
  if (is_short && tide__tcache_release(device, record)) return TIDE_OK;
  return magazine_take_back(device, record);
}

tide_status tide_device_release(tide_device_cache* device, tide_block block) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_release: no device");
  return block.address != NULL ? block_take_back(device, block) : TIDE_OK;
}

// The record of the block handed out at an address, and its handle; NULL if there is none. The record may get
// another address at any time; if it has this one after the handle was read, the handle is of this block, or
// of none any more.
static tide__block* address_find(tide_device_cache* device, const void* address, uint64_t* out_handle) {
  uint32_t index = 0;
  if (!tide__map_find(&device->map, tide__address(address), &index)) return NULL;
  tide__block* const block = tide__slots_at(&device->blocks, index);
  *out_handle = tide__slots_handle(&device->blocks, block);
  uint32_t index_then = 0;
  const bool is_here = tide__map_find(&device->map, tide__address(address), &index_then);
  return *out_handle != 0 && is_here && index_then == index ? block : NULL;
}

tide_status tide_device_release_address(tide_device_cache* device, void* address) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_release_address: no device");
  if (address == NULL) return TIDE_OK;
  uint64_t handle = 0;
  if (address_find(device, address, &handle) == NULL) return release_refused(address);
  return block_take_back(device, (tide_block){ address, handle });
}

tide_status tide_device_find(tide_device_cache* device, const void* address, tide_block* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_find: no device or out");
  *out = (tide_block){ NULL, 0 };
  uint64_t handle = 0;
  tide__block* const block = address_find(device, address, &handle);
  TIDE_REQUIRE(block != NULL, TIDE_ERR_HANDLE, "device_find: no block is handed out at %p", address);
  *out = (tide_block){ (void*)(uintptr_t)address, handle };
  return TIDE_OK;
}

size_t tide_device_bytes(tide_device_cache* device, const void* address) {
  uint64_t handle = 0;
  if (device == NULL || address == NULL) return 0;
  const tide__block* const block = address_find(device, address, &handle);
  return block != NULL ? tide__block_counted_bytes(block) : 0;
}

uint32_t tide_device_stack(tide_device_cache* device, const void* address) {
  uint64_t handle = 0;
  if (device == NULL || address == NULL) return 0;
  const tide__block* const block = address_find(device, address, &handle);
  return block != NULL ? tide__load_relaxed(&block->stack) : 0;
}

// ---------------------------------------------------------------------------------------------------
// Other streams

static bool block_has_use(const tide__block* block, const tide__use* wanted) {
  for (tide__use* use = block->uses; use != NULL; use = use->next) {
    if (use->stream != wanted->stream || use->device != wanted->device) continue;
    use->is_captured = use->is_captured && wanted->is_captured;
    return true;
  }
  return false;
}

// Notes the use unless that needs a record: then returns false.
static bool block_add_use_locked(int own_device, tide__lane* lane, tide__block* block,
                                 const tide__use* wanted) {
  const bool is_own = wanted->device == own_device && wanted->stream == lane->stream;
  if (is_own || block_has_use(block, wanted)) return true;
  tide__use* const use = lane->spare_uses;
  if (use == NULL) return false;
  lane->spare_uses = use->next;
  *use = *wanted;
  use->next = block->uses;
  block->uses = use;
  return true;
}

// Notes a use; with `*made`, a new record, if the lane has none to spare. False if one is needed.
static tide_status record_use(tide_device_cache* device, tide_block block, const tide__use* wanted,
                              tide__use** made, bool* out_noted) {
  tide__block* const record = tide__slots_find(&device->blocks, block.handle);
  TIDE_REQUIRE(record != NULL, TIDE_ERR_HANDLE, "device_record: the block at %p is not handed out",
               block.address);
  *out_noted = true;
  tide__lane* const lane = tide__block_lane(record);
  if (lane == NULL) return TIDE_OK;  // uncached memory waits for all work when it is released
  tide__mutex_lock(&lane->lock);
  if (*made != NULL) {
    (*made)->next = lane->spare_uses;
    lane->spare_uses = *made;
    *made = NULL;
  }
  tide__store_seq(&record->use_word, 1);  // pairs with block_take_back
  const bool is_there = tide__load_seq(&record->slot.generation) == (uint32_t)(block.handle >> 32);
  *out_noted = is_there && block_add_use_locked(device->index, lane, record, wanted);
  if (record->uses == NULL) tide__store_relaxed(&record->use_word, 0);
  tide__mutex_unlock(&lane->lock);
  TIDE_REQUIRE(is_there, TIDE_ERR_HANDLE, "device_record: the block at %p was released meanwhile",
               block.address);
  return TIDE_OK;
}

// Is the stream one of its device, and is it captured? PyTorch takes every open scope for a capture; only a
// real one proves at its end that the work is done.
static tide_status stream_check(tide_device_cache* device, tide__use* use) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  TIDE_TRY(tide_machine_capture_info(device->machine, use->device, use->stream, &state, &id));
  use->is_captured = state == TIDE_CAPTURE_ACTIVE && tide__has_captures(device);
  return TIDE_OK;
}

tide_status tide_device_record_on(tide_device_cache* device, tide_block block, int index,
                                  tide_stream stream) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_record: no device");
  if (block.address == NULL) return TIDE_OK;
  TIDE__REQUIRE_OWN(device, "device_record");
  tide__use wanted = { .stream = stream, .device = index };
  TIDE_TRY(stream_check(device, &wanted));
  tide__use* made = NULL;
  bool is_noted = false;
  tide_status status = record_use(device, block, &wanted, &made, &is_noted);
  while (status == TIDE_OK && !is_noted) {
    made = tide__heap_alloc(device->heap, 1, sizeof *made);
    TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "device_record: no memory for the record of a stream");
    status = record_use(device, block, &wanted, &made, &is_noted);
  }
  tide__heap_release(device->heap, made, 1, sizeof *made);  // the block was released meanwhile
  return audit(device, status);
}

tide_status tide_device_record(tide_device_cache* device, tide_block block, tide_stream stream) {
  return tide_device_record_on(device, block, device != NULL ? device->index : -1, stream);
}

tide_status tide_device_poll(tide_device_cache* device) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_poll: no device");
  TIDE__REQUIRE_OWN(device, "device_poll");
  const bool is_capturing = tide__has_captures(device) && !tide__device_options(device)->captures_by_stream;
  if (is_capturing || tide__timeline_is_empty(device)) return TIDE_OK;
  tide__call_context context = { 0 };
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_NEVER);
  const tide_status status = tide__timeline_poll(device, &context);
  tell(device);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// At an address

// Takes the part of an idle block of the request's kind that begins at an address; NULL if it is not idle, or
// too small.
static tide__block* idle_take_at_locked(const tide__request* request, uint64_t address) {
  TIDE_LIST_EACH(it, &request->lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (address < segment->address || address - segment->address >= segment->bytes) continue;
    if (segment->is_small != (request->kind == TIDE__SMALL)) continue;
    tide__block* block = segment->head;
    while (block != NULL && tide__block_end(block) <= address) block = block->next;
    const bool is_idle = block != NULL && block->state == TIDE__BLOCK_FREE && block->address <= address;
    if (!is_idle || tide__block_end(block) - address < request->rounded) return NULL;
    const bool is_exact = block->address == address && block->bytes == request->rounded;
    const bool may_split = !tide__load_relaxed(&request->pool->no_split);
    return is_exact || may_split ? tide__block_take_from_locked(block, address) : NULL;
  }
  return NULL;
}

static tide_status request_serve_at(tide__request* request, uint64_t address, tide_block* out) {
  TIDE_TRY(request_begin(request, false));
  if (request->device->has_tcaches) (void)tide__tcache_flush_lane(request->device, request->lane);
  tide__tally* const tally = tide__lane_open(request->device, request->lane);
  if (tally == NULL) return TIDE_ERR_NO_MEMORY;
  tide__block* const block = idle_take_at_locked(request, address);
  bool is_found = block != NULL;
  const bool is_ready = is_found && block_is_ready_locked(request, block);
  if (is_ready) (void)tide__block_commit_locked(request, block, block->bytes > request->rounded, tally, out);
  tide__lane_shut(request->device, request->lane, tally);
  if (is_found && !is_ready) TIDE_TRY(request_prepare(request, block, out, &is_found));
  TIDE_REQUIRE(is_found, TIDE_ERR_NO_MEMORY, "device_alloc_at: %#llx is not idle on this stream",
               (unsigned long long)address);
  return TIDE_OK;
}

tide_status tide_device_alloc_at(tide_device_cache* device, tide_stream stream, size_t bytes, void* address,
                                 tide_block* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_alloc_at: no device or out");
  *out = (tide_block){ NULL, 0 };
  TIDE_REQUIRE(bytes > 0 && bytes < TIDE__MAX_REQUEST, TIDE_ERR_ARGUMENT, "device_alloc_at: %zu bytes",
               bytes);
  TIDE_REQUIRE(address != NULL && tide__is_aligned(tide__address(address), TIDE__GRAIN), TIDE_ERR_ARGUMENT,
               "device_alloc_at: %p is no multiple of %llu", address, (unsigned long long)TIDE__GRAIN);
  TIDE__REQUIRE_OWN(device, "device_alloc_at");
  tide__request request;
  request_init(&request, device, stream, bytes);
  const tide_status status = request_serve_at(&request, tide__address(address), out);
  if (request.visited != NULL) tide__pool_leave(device, request.visited);
  tell(device);
  return audit(device, status);
}

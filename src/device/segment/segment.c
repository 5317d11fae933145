// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Segments of raw memory: taken from the machine, or from the functions of their pool, and given back whole.
// The gate is the caller's. The machine is called with no lock held; what can fail comes first.
#include "device/segment/segment.h"

#include "device/segment/virtual.h"

tide__segment* tide__segment_new(tide_device_cache* device, const tide__segment_kind* kind, tide__lane* lane,
                                 bool is_small) {
  tide__segment* const segment = tide__heap_alloc(device->heap, 1, sizeof *segment);
  if (segment == NULL) return NULL;
  tide__list_init(&segment->link);
  segment->kind = kind;
  segment->lane = lane;
  segment->is_small = is_small;
  segment->is_tied_by_age = tide__device_options(device)->ties_by_age;
  return segment;
}

void tide__segment_free(tide_device_cache* device, tide__segment* segment) {
  tide__heap_release(device->heap, segment->handles, segment->handle_capacity, sizeof *segment->handles);
  tide__heap_release(device->heap, segment, 1, sizeof *segment);
}

tide__block* tide__segment_link_locked(tide__segment* segment, uint64_t address, uint64_t bytes,
                                       uint8_t state) {
  tide__block* const block = tide__lane_take_spare_locked(segment->lane);
  block->address = address;
  block->bytes = bytes;
  block->segment = segment;
  tide__store_relaxed(&block->lane, segment->lane);
  block->is_small = segment->is_small;
  block->state = state;
  block->prev = block->next = NULL;
  tide__store_relaxed(&block->requested_bytes, 0);
  tide__store_relaxed(&block->stack, 0);
  block->uses = NULL;
  block->pieces = NULL;
  block->note = 0;
  segment->address = address;
  segment->bytes = bytes;
  segment->head = block;
  if (segment->is_tied_by_age) segment->tie_origin = address - (segment->ordinal << 40);
  tide__list_append(&segment->lane->segments, &segment->link);
  return block;
}

void tide__segment_unlink_locked(tide__segment* segment) {
  tide__list_unlink(&segment->link);
  tide__lane_give_spare_locked(segment->lane, segment->head);
  segment->head = NULL;
}

static bool segment_is_unmapped_locked(const tide__segment* segment) {
  return segment->head->state == TIDE__BLOCK_UNMAPPED && tide__block_is_whole(segment->head);
}

// Does a lane have addresses without memory? PyTorch's own segments never do.
static bool lane_has_unmapped_locked(const tide__lane* lane) {
  return lane->free_index[TIDE__LARGE].unmapped.root != NULL ||
         lane->free_index[TIDE__SMALL].unmapped.root != NULL;
}

// The segment after `segment` (NULL: the first) in which nothing is mapped; NULL at the end. Segments come
// and go with the gate, which the caller has.
static tide__segment* segment_next_unmapped(tide__lane* lane, const tide__segment* segment) {
  tide__mutex_lock(&lane->lock);
  tide__link* link = segment != NULL ? segment->link.next : lane->segments.next;
  if (!lane_has_unmapped_locked(lane)) link = &lane->segments;
  while (link != &lane->segments && !segment_is_unmapped_locked(TIDE_OWNER(link, tide__segment, link))) {
    link = link->next;
  }
  tide__mutex_unlock(&lane->lock);
  return link != &lane->segments ? TIDE_OWNER(link, tide__segment, link) : NULL;
}

// False if the machine refuses to take the addresses back.
static bool segment_drop_unmapped(tide_device_cache* device, tide__segment* segment) {
  tide__lane* const lane = segment->lane;
  tide__block* const block = segment->head;
  tide__mutex_lock(&lane->lock);
  tide__free_index_take_unmapped_locked(block);
  tide__mutex_unlock(&lane->lock);
  const bool is_given = tide__range_clear(device, segment->address, segment->bytes) == TIDE_OK &&
                        tide_machine_address_release(device->machine, tide__pointer(segment->address),
                                                     segment->bytes) == TIDE_OK;
  tide__mutex_lock(&lane->lock);
  if (is_given) {
    tide__segment_unlink_locked(segment);
  } else {
    tide__free_index_put_unmapped_locked(block);
    lane->puts++;  // the next walk tries again
  }
  tide__mutex_unlock(&lane->lock);
  return is_given;
}

void tide__segments_drop_unmapped(tide_device_cache* device, tide__lane* lane) {
  const tide_error before = *tide_last_error();
  tide__segment* next = NULL;
  for (tide__segment* segment = segment_next_unmapped(lane, NULL); segment != NULL; segment = next) {
    next = segment_next_unmapped(lane, segment);
    if (!segment_drop_unmapped(device, segment)) continue;
    if (segment->kind->forget != NULL) segment->kind->forget(device, segment);
    tide__segment_free(device, segment);
  }
  tide__error_restore(&before);
}

// ---------------------------------------------------------------------------------------------------
// What is reserved

// Counts bytes that came from the machine, or went back, and the segment if it is one.
static void reserved_move(tide_device_cache* device, tide__pool* pool, int64_t bytes, int kind,
                          bool is_segment) {
  if (bytes > 0) tide__allowance_undo(device, (uint64_t)bytes);
  const int64_t segments = !is_segment ? 0 : bytes > 0 ? 1 : -1;
  const uint64_t segment_bytes = (uint64_t)(bytes > 0 ? bytes : -bytes);
  (void)tide__add_relaxed(&device->reserved_bytes, (uint64_t)bytes);
  tide__mutex_lock(&device->totals_lock);
  (void)tide__add_relaxed(&pool->reserved_bytes, (uint64_t)bytes);
  tide__tag_move_locked(tide__pool_tag_record(pool), bytes);
  tide_device_stats* const totals = &device->totals;
  for (int i = 0; i <= kind; i += kind) {
    tide__stat_move(&totals->reserved_bytes[i], bytes);
    tide__stat_move(&totals->segment[i], segments);
  }
  if (segment_bytes >= tide__device_options(device)->max_split_bytes) {
    tide__stat_move(&totals->oversize_segments, segments);
  }
  (*(bytes > 0 ? &totals->num_device_alloc : &totals->num_device_free))++;
  tide__mutex_unlock(&device->totals_lock);
}

void tide__mapped_tell(const tide__request* request, uint64_t address, uint64_t bytes) {
  tide_device_cache* const device = request->device;
  const int kind = request->kind == TIDE__SMALL ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  tide__store_relaxed(&device->has_mapped, 1);
  reserved_move(device, request->pool, (int64_t)bytes, kind, false);
  if (!tide__is_recording(device)) return;
  tide__entry_add(device, TIDE_ACTION_SEGMENT_MAP, &request->context, request->context.stack, request->lane,
                  address, bytes);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
}

static uint32_t end_stack(const tide__segment* segment, const tide__call_context* context) {
  return context->stack != 0 ? context->stack : segment->stack;
}

void tide__unmapping_tell(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                          const tide__call_context* context) {
  tide__end_announce(device, TIDE_ACTION_SEGMENT_UNMAP, context, end_stack(segment, context), segment->lane,
                     from, to - from);
}

void tide__unmapped_keep(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                         const tide__call_context* context) {
  const int kind = segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  if (from == to) return;
  reserved_move(device, segment->lane->pool, -(int64_t)(to - from), kind, false);
  tide__end_keep(device, TIDE_ACTION_SEGMENT_UNMAP, context, end_stack(segment, context), segment->lane, from,
                 to - from);
}

void tide__mapped_keep(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                       const tide__call_context* context) {
  const int kind = segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  reserved_move(device, segment->lane->pool, (int64_t)(to - from), kind, false);
  if (!tide__is_recording(device)) return;
  tide__entry_add(device, TIDE_ACTION_SEGMENT_MAP, context, end_stack(segment, context), segment->lane, from,
                  to - from);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
}

void tide__unmapping_revoke(tide_device_cache* device, const tide__segment* segment, uint64_t from,
                            uint64_t to, const tide__call_context* context) {
  if (from == to) return;
  tide__end_revoke(device, TIDE_ACTION_SEGMENT_MAP, context, segment->stack, segment->lane, from, to - from);
}

// ---------------------------------------------------------------------------------------------------
// Raw memory that could not be used

tide_status tide__stray_new(tide_device_cache* device, tide__stray** out) {
  *out = tide__heap_alloc(device->heap, 1, sizeof **out);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  return TIDE_OK;
}

void tide__stray_free(tide_device_cache* device, tide__stray* stray) {
  tide__heap_release(device->heap, stray, 1, sizeof *stray);
}

void tide__stray_give(tide_device_cache* device, tide__stray* stray, void* address) {
  const tide_error before = *tide_last_error();
  const bool is_given = tide_machine_raw_release(device->machine, device->index, address) == TIDE_OK;
  tide__error_restore(&before);
  stray->address = address;
  if (!is_given) {
    tide__mutex_lock(&device->pools_lock);
    stray->next = device->strays;
    device->strays = stray;
    tide__mutex_unlock(&device->pools_lock);
    return;
  }
  tide__stray_free(device, stray);
}

void tide__strays_retry(tide_device_cache* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__stray* list = device->strays;
  device->strays = NULL;
  tide__mutex_unlock(&device->pools_lock);
  while (list != NULL) {
    tide__stray* const stray = list;
    list = stray->next;
    tide__stray_give(device, stray, stray->address);
  }
}

// ---------------------------------------------------------------------------------------------------
// Growing

// With a scope open the thread may be capturing. It may ask for memory then, and give it back if it cannot be
// used after all: both are safe, which the machine is told by the mode RELAXED.
static tide_status relax(const tide__request* request, tide__relaxed* out) {
  *out = (tide__relaxed){ NULL, TIDE_CAPTURE_GLOBAL };
  return request->has_captures ? tide__relax(request->device->machine, out) : TIDE_OK;
}

static tide_status memory_alloc_relaxed(const tide__request* request, void** out) {
  const tide_device_cache* const device = request->device;
  const tide_pool_options* const own = &request->pool->options;
  if (own->segment_alloc == NULL) {
    return tide_machine_raw_alloc(device->machine, device->index, request->segment_bytes, out);
  }
  *out = own->segment_alloc(own->user, request->segment_bytes, device->index, request->stream);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_NO_MEMORY, "the pool's own function has no %llu bytes",
               (unsigned long long)request->segment_bytes);
  return TIDE_OK;
}

static tide_status memory_alloc(const tide__request* request, void** out) {
  tide__relaxed relaxed;
  TIDE_TRY(tide__allowance_take(request->device, request->segment_bytes));
  tide_status status = relax(request, &relaxed);
  if (status == TIDE_OK) status = memory_alloc_relaxed(request, out);
  tide__relax_end(&relaxed);
  if (status != TIDE_OK) tide__allowance_undo(request->device, request->segment_bytes);
  return status;
}

static tide_status memory_release(tide_device_cache* device, const tide__lane* lane, void* address,
                                  uint64_t bytes) {
  const tide_pool_options* const own = &lane->pool->options;
  if (own->segment_release == NULL) return tide_machine_raw_release(device->machine, device->index, address);
  own->segment_release(own->user, address, bytes, device->index, lane->stream);
  return TIDE_OK;
}

// Gives memory back that was taken for a request and cannot be used.
static void memory_give_up(const tide__request* request, tide__stray* stray, void* address) {
  const tide_error before = *tide_last_error();
  const tide_pool_options* const own = &request->pool->options;
  tide__relaxed relaxed;
  tide__allowance_undo(request->device, request->segment_bytes);
  tide__ignore(relax(request, &relaxed));
  if (own->segment_release == NULL) {
    tide__stray_give(request->device, stray, address);
  } else {
    tide__ignore(memory_release(request->device, request->lane, address, request->segment_bytes));
    tide__stray_free(request->device, stray);
  }
  tide__relax_end(&relaxed);
  tide__error_restore(&before);
}

// Puts new memory into the lane of the request.
static tide_status segment_adopt(const tide__request* request, tide__segment* segment, void* address,
                                 tide__block** out) {
  tide_device_cache* const device = request->device;
  const uint64_t bytes = request->segment_bytes;
  TIDE_TRY(tide__map_cover(&device->map, tide__address(address), bytes, segment->is_small));
  if (!tide__lane_lock_with_spares(device, request->lane)) return TIDE_ERR_NO_MEMORY;
  *out = tide__segment_link_locked(segment, tide__address(address), bytes, TIDE__BLOCK_BUSY);
  tide__mutex_unlock(&request->lane->lock);
  reserved_move(device, request->pool, (int64_t)bytes, tide__block_kind(*out), true);
  if (tide__is_recording(device)) {
    tide__entry_add(device, TIDE_ACTION_SEGMENT_ALLOC, &request->context, request->context.stack,
                    request->lane, tide__address(address), bytes);
  }
  return TIDE_OK;
}

// Makes the memory of a segment for which there are records.
static tide_status segment_make(const tide__request* request, tide__segment* segment, tide__stray* stray,
                                tide__block** out) {
  void* address = NULL;
  tide_status status = memory_alloc(request, &address);
  if (status == TIDE_OK) {
    segment->stack = request->context.stack;
    segment->ordinal = tide__add_relaxed(&request->device->next_ordinal, 1);
    status = segment_adopt(request, segment, address, out);
    if (status != TIDE_OK) {
      memory_give_up(request, stray, address);
      return status;
    }
  }
  tide__stray_free(request->device, stray);
  return status;
}

// After a failed wait at the end of an allocator the machine is NULL: the memory stays with it.
static void raw_destroy(tide_device_cache* device, tide__segment* segment) {
  const tide_pool_options* const own = &segment->lane->pool->options;
  void* const address = tide__pointer(segment->address);
  if (own->segment_release != NULL && device->machine != NULL) {
    own->segment_release(own->user, address, segment->bytes, device->index, segment->lane->stream);
  } else {
    tide__ignore(tide_machine_raw_release(device->machine, device->index, address));
  }
}

static tide_status raw_give_idle(tide_device_cache* device, tide__block* block, uint64_t target,
                                 const tide__call_context* context) {
  (void)target;
  return tide__segment_release(device, block->segment, context);
}

static const tide__segment_kind raw_kind = { .give_idle = raw_give_idle, .destroy = raw_destroy };

tide_status tide__segment_grow(const tide__request* request, tide__block** out) {
  tide_device_cache* const device = request->device;
  tide__stray* stray = NULL;
  TIDE_TRY(tide__stray_new(device, &stray));
  tide__segment* const segment =
      tide__segment_new(device, &raw_kind, request->lane, request->kind == TIDE__SMALL);
  if (segment == NULL) tide__stray_free(device, stray);
  TIDE_REQUIRE(segment != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  const tide_status status = segment_make(request, segment, stray, out);
  if (status != TIDE_OK) tide__segment_free(device, segment);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Giving back

tide_status tide__lane_quiesce(tide_device_cache* device, const tide__lane* lane, bool is_always) {
  if (device->waits_on_release && !is_always) return TIDE_OK;
  const bool is_there = !tide__load_relaxed(&lane->is_closed) && !tide__load_relaxed(&lane->is_external);
  if (!device->waits_on_release && is_there) {
    const tide_status status = tide_machine_stream_synchronize(device->machine, device->index, lane->stream);
    if (status != TIDE_ERR_HANDLE && status != TIDE_ERR_UNSUPPORTED) return status;
  }
  // The stream may be gone (cuda cannot tell), or the machine can wait only for the whole device.
  return tide_machine_device_synchronize(device->machine, device->index);
}

// Waits for work, tells observers, and gives the memory back. If the machine refuses, observers hear of the
// memory as of new memory.
static tide_status segment_memory_end(tide_device_cache* device, const tide__segment* segment,
                                      const tide__call_context* context) {
  const tide__lane* const lane = segment->lane;
  TIDE_TRY(tide__lane_quiesce(device, lane, lane->pool->options.segment_release != NULL));
  tide__end_announce(device, TIDE_ACTION_SEGMENT_FREE, context, end_stack(segment, context), lane,
                     segment->address, segment->bytes);
  const tide_status status = memory_release(device, lane, tide__pointer(segment->address), segment->bytes);
  if (status != TIDE_OK) {
    tide__end_revoke(device, TIDE_ACTION_SEGMENT_ALLOC, context, segment->stack, lane, segment->address,
                     segment->bytes);
  }
  return status;
}

// Memory that is lent to a view is told with the view, and the end of parked memory was told already.
void tide__segment_end_tell(tide_device_cache* device, const tide__segment* segment,
                            const tide__call_context* context) {
  uint64_t from = segment->address;
  uint64_t to = from;
  if (!segment->is_expandable) {
    tide__end_announce(device, TIDE_ACTION_SEGMENT_FREE, context, segment->stack, segment->lane, from,
                       segment->bytes);
    return;
  }
  if (tide__load_relaxed(&segment->lane->pool->is_parked)) return;
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    if (!tide__state_has_memory(block->state)) continue;
    if (block->address != to) {
      if (from < to) tide__unmapping_tell(device, segment, from, to, context);
      from = block->address;
    }
    to = tide__block_end(block);
  }
  if (from < to) tide__unmapping_tell(device, segment, from, to, context);
}

tide_status tide__segment_release(tide_device_cache* device, tide__segment* segment,
                                  const tide__call_context* context) {
  tide__lane* const lane = segment->lane;
  const int kind = tide__block_kind(segment->head);
  const tide_status status = segment_memory_end(device, segment, context);
  tide__mutex_lock(&lane->lock);
  if (status == TIDE_OK) {
    tide__segment_unlink_locked(segment);
  } else {
    tide__block_return_locked(segment->head, false);
    lane->puts++;  // a walk inside of an observer may not have seen it meanwhile
  }
  tide__mutex_unlock(&lane->lock);
  if (status != TIDE_OK) return status;
  reserved_move(device, lane->pool, -(int64_t)segment->bytes, kind, true);
  tide__end_keep(device, TIDE_ACTION_SEGMENT_FREE, context, end_stack(segment, context), lane,
                 segment->address, segment->bytes);
  tide__segment_free(device, segment);
  return TIDE_OK;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Homes: where the memory of the policy `tide` lives. Each lane has one for small and one for large blocks, a
// range of addresses for more than the device has. Physical memory is made in handles of several sizes, each
// with a place at the top of a home, so that idle memory grows together there; blocks and holes go across the
// borders of handles. A handle that was made for a view is mapped at home only when a block is placed there.
//
// Growing, mapping and giving back take the gate, and the machine is called with no lock held: what is being
// changed is BUSY meanwhile. The records of handles change with the gate and the lock of the lane, so that
// either is enough to read them.
#include <string.h>

#include "device/allocator.h"

static uint64_t handle_end(const tide__handle* handle) { return handle->address + handle->bytes; }

// ---------------------------------------------------------------------------------------------------
// Handles

// The index of the first handle that ends behind an address.
static size_t handle_index_at(const tide__home* home, uint64_t address) {
  size_t low = 0;
  size_t high = home->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (handle_end(home->handles[middle]) <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Where a range begins and ends in a handle.
static uint64_t handle_from(const tide__handle* handle, uint64_t address) {
  return tide__max(address, handle->address) - handle->address;
}

static uint64_t handle_to(const tide__handle* handle, uint64_t end) {
  return tide__min(end, handle_end(handle)) - handle->address;
}

#define HANDLES_EACH(i, home, begin, end) \
  for (size_t i = handle_index_at(home, begin); i < (home)->count && (home)->handles[i]->address < (end); i++)

static void handle_note_locked(tide_device* device, tide__handle* handle) {
  tide__home* const home = handle->home->home;
  const bool is_odd = !handle->is_mapped || tide__handle_readiness(device, handle, 0, handle->bytes,
                                                                   handle->home->lane) != TIDE__READY;
  if (is_odd && !handle->is_odd) home->odd_count++;
  if (!is_odd && handle->is_odd) home->odd_count--;
  handle->is_odd = is_odd;
}

void tide__home_note_locked(tide_device* device, tide__home* home, uint64_t address, uint64_t bytes) {
  HANDLES_EACH(i, home, address, address + bytes) handle_note_locked(device, home->handles[i]);
}

void tide__home_add_use_locked(tide_device* device, tide__home* home, uint64_t address, uint64_t bytes,
                               tide__lane* lane, uint64_t stamp) {
  const uint64_t end = address + bytes;
  HANDLES_EACH(i, home, address, end) {
    tide__handle* const handle = home->handles[i];
    const tide__user use = { lane, stamp, handle_from(handle, address), handle_to(handle, end) };
    tide__handle_note_use_locked(device, handle, &use);
    if (lane != home->segment->lane) handle_note_locked(device, handle);
  }
}

// What has no mark of its own counts for all memory of the lane: nearly always, it has the only stream.
void tide__home_block_end_locked(tide_device* device, tide__block* block) {
  tide__lane* const lane = block->segment->lane;
  if (block->last_use == 0) {
    lane->unmarked = tide__lane_next_stamp(lane);
    return;
  }
  tide__home_add_use_locked(device, block->segment->home, block->address, block->bytes, lane,
                            block->last_use);
}

tide__span tide__home_span(const tide__home* home, uint64_t address, uint64_t bytes) {
  const size_t first = handle_index_at(home, address);
  tide__span span = { &home->handles[first], 0, address - home->handles[first]->address };
  while (first + span.count < home->count && span.handles[span.count]->address < address + bytes) {
    span.count++;
  }
  return span;
}

bool tide__home_is_ready_locked(const tide__block* block, uint64_t bytes) {
  const tide__home* const home = block->segment->home;
  if (home == NULL || home->odd_count == 0) return true;
  HANDLES_EACH(i, home, block->address, block->address + bytes) {
    if (home->handles[i]->is_odd) return false;
  }
  return true;
}

void tide__home_survey_locked(tide__segment* segment) {
  const tide__home* const home = segment->home;
  size_t begins = 0;
  size_t ends = 0;
  for (tide__block* block = segment->head; block != NULL && ends < home->count; block = block->next) {
    const uint64_t end = tide__block_end(block);
    const bool is_idle = block->state == TIDE__BLOCK_FREE;
    for (; begins < home->count && home->handles[begins]->address < end; begins++) {
      tide__handle* const handle = home->handles[begins];
      handle->first = block;
      handle->prefix = is_idle ? tide__min(end, handle_end(handle)) - handle->address : 0;
    }
    for (; ends < home->count && handle_end(home->handles[ends]) <= end; ends++) {
      tide__handle* const handle = home->handles[ends];
      handle->suffix = is_idle ? handle_end(handle) - tide__max(block->address, handle->address) : 0;
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// New handles

void tide__handles_free(tide_device* device, tide__handle** handles, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (handles[i] == NULL) continue;
    if (handles[i]->physical != NULL) tide__physical_give(device, handles[i]->physical);
    tide__heap_release(device->heap, handles[i], 1, sizeof **handles);
  }
  tide__heap_release(device->heap, handles, count, sizeof *handles);
}

static tide_status handle_make(tide_device* device, uint64_t bytes, tide__handle** out) {
  tide__handle* const handle = tide__heap_alloc(device->heap, 1, sizeof *handle);
  TIDE_REQUIRE(handle != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a handle");
  *out = handle;
  handle->bytes = bytes;
  return tide__physical_new(device, bytes, &handle->physical);
}

tide_status tide__handles_make(tide_device* device, uint64_t bytes, uint64_t handle_bytes,
                               tide__handle*** out, size_t* out_count) {
  const size_t count = (size_t)((bytes + handle_bytes - 1) / handle_bytes);
  *out = NULL;
  *out_count = 0;
  if (count == 0) return TIDE_OK;
  TIDE_TRY(tide__orphans_reserve(device, count));
  tide__handle** const handles = tide__heap_alloc(device->heap, count, sizeof *handles);
  TIDE_REQUIRE(handles != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", count);
  tide_status status = TIDE_OK;
  uint64_t left = bytes;
  for (size_t i = 0; i < count && status == TIDE_OK; i++) {
    const uint64_t own = tide__min(left, handle_bytes);
    status = handle_make(device, own, &handles[i]);
    left -= own;
  }
  if (status != TIDE_OK) {
    const tide_error error = *tide_last_error();
    tide__handles_free(device, handles, count);
    tide__error_restore(&error);
    return status;
  }
  *out = handles;
  *out_count = count;
  return TIDE_OK;
}

// Makes room for `count` more handles in a home.
tide_status tide__home_make_room(tide_device* device, tide__segment* segment, size_t count) {
  tide__home* const home = segment->home;
  if (home->count + count <= home->capacity) return TIDE_OK;
  const size_t capacity = tide__max(home->count + count, home->capacity * 2);
  tide__handle** const grown = tide__heap_alloc(device->heap, capacity, sizeof *grown);
  TIDE_REQUIRE(grown != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", capacity);
  tide__handle** const before = home->handles;
  const size_t before_capacity = home->capacity;
  tide__mutex_lock(&segment->lane->lock);
  if (home->count > 0) memcpy(grown, before, home->count * sizeof *grown);
  home->handles = grown;
  home->capacity = capacity;
  tide__mutex_unlock(&segment->lane->lock);
  tide__heap_release(device->heap, before, before_capacity, sizeof *before);
  return TIDE_OK;
}

void tide__home_add_handles_locked(tide_device* device, tide__segment* segment, tide__handle** handles,
                                   size_t count, uint64_t address, bool is_mapped) {
  tide__home* const home = segment->home;
  for (size_t i = 0; i < count; i++) {
    tide__handle* const handle = handles[i];
    handle->address = address;
    handle->home = segment;
    handle->is_mapped = is_mapped;
    home->handles[home->count++] = handle;
    handle_note_locked(device, handle);
    address += handle->bytes;
  }
}

// ---------------------------------------------------------------------------------------------------
// Segments

static void home_free(tide_device* device, tide__home* home) {
  if (home == NULL) return;
  tide__heap_release(device->heap, home->handles, home->capacity, sizeof *home->handles);
  tide__heap_release(device->heap, home, 1, sizeof *home);
}

static tide_status home_reserve(const tide__request* request, tide__segment* segment, uint64_t bytes) {
  tide_device* const device = request->device;
  void* address = NULL;
  TIDE_TRY(tide_machine_address_reserve(device->machine, device->index, bytes, 0, NULL, &address));
  if (!tide__lane_lock_with_spares(device, request->lane)) {
    tide__ignore(tide_machine_address_release(device->machine, address, bytes));
    return TIDE_ERR_NO_MEMORY;
  }
  segment->home->top =
      tide__segment_link_locked(segment, tide__address(address), bytes, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(segment->home->top);
  tide__mutex_unlock(&request->lane->lock);
  return TIDE_OK;
}

static tide_status home_make(const tide__request* request, uint64_t least_bytes) {
  tide_device* const device = request->device;
  const uint64_t wanted = tide__reserve_wanted(device, &request->options->address_reserve);
  const uint64_t bytes = tide__round_up(tide__max(wanted, least_bytes), tide__home_unit(device));
  tide__segment* const segment = tide__segment_new(device, request->lane, request->kind == TIDE__SMALL);
  TIDE_REQUIRE(segment != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  segment->home = tide__heap_alloc(device->heap, 1, sizeof *segment->home);
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (segment->home != NULL) {
    tide__list_init(&segment->home->link);
    segment->home->segment = segment;
    segment->is_expandable = true;
    segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
    segment->stack = request->moment.stack;
    status = home_reserve(request, segment, bytes);
  } else {
    (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  }
  if (status != TIDE_OK) {
    home_free(device, segment->home);
    tide__segment_free(device, segment);
    return status;
  }
  if (!segment->is_small) tide__list_append(&device->homes, &segment->home->link);
  request->lane->homes[request->kind] = segment;
  return TIDE_OK;
}

tide_status tide__home_with_room(const tide__request* request, uint64_t bytes, tide__segment** out) {
  TIDE_REQUIRE(bytes <= request->device->total_bytes, TIDE_ERR_NO_MEMORY,
               "%llu bytes are more than the device has", (unsigned long long)bytes);
  const tide__segment* const newest = request->lane->homes[request->kind];
  const bool has_room = newest != NULL && newest->home->top != NULL && newest->home->top->bytes >= bytes;
  if (!has_room) TIDE_TRY(home_make(request, bytes));
  *out = request->lane->homes[request->kind];
  return TIDE_OK;
}

tide__block* tide__home_cut_top_locked(tide__segment* segment, uint64_t bytes) {
  tide__home* const home = segment->home;
  tide__block* const top = home->top;
  tide__free_index_take_unmapped_locked(top);
  if (top->bytes == bytes) {
    home->top = NULL;
    return top;
  }
  tide__block* const front = tide__block_cut_front_locked(segment->lane, top, bytes);
  tide__free_index_put_unmapped_locked(top);
  return front;
}

void tide__home_uncut_top_locked(tide__segment* segment, tide__block* block) {
  tide__block_merge_locked(segment->lane, block, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(block);
  if (block->next == NULL) segment->home->top = block;
}

// ---------------------------------------------------------------------------------------------------
// Mapping

// Maps handles one behind the other; how many are is counted in *out_mapped, also on failure.
static tide_status handles_map_at(tide_device* device, tide__handle* const* handles, size_t count,
                                  uint64_t address, size_t* out_mapped) {
  uint64_t at = address;
  for (*out_mapped = 0; *out_mapped < count; (*out_mapped)++) {
    TIDE_TRY(tide_machine_map(device->machine, tide__pointer(at), handles[*out_mapped]->physical));
    at += handles[*out_mapped]->bytes;
  }
  return tide__access_give(device, address, at - address);
}

tide__stuck* tide__stuck_new(tide_device* device, size_t handles) {
  tide__stuck* const stuck =
      tide__heap_alloc(device->heap, 1, sizeof *stuck + handles * sizeof *stuck->handles);
  if (stuck != NULL) stuck->capacity = handles;
  else (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %zu mappings", handles);
  return stuck;
}

void tide__stuck_free(tide_device* device, tide__stuck* stuck) {
  if (stuck == NULL) return;
  tide__heap_release(device->heap, stuck, 1, sizeof *stuck + stuck->capacity * sizeof *stuck->handles);
}

void tide__stuck_add(tide_device* device, tide__stuck* stuck) {
  stuck->next = device->stuck;
  device->stuck = stuck;
}

void tide__stuck_keep(tide__stuck* stuck, tide__handle** handles, size_t count) {
  if (stuck == NULL) return;
  for (size_t i = 0; i < count; i++) {
    stuck->handles[stuck->count++] = handles[i]->physical;
    handles[i]->physical = NULL;
  }
}

// Unmaps and gives back as much as goes; true when nothing is left.
static bool stuck_try(tide_device* device, tide__stuck* stuck) {
  void* const address = tide__pointer(stuck->address);
  if (stuck->bytes > 0 && tide_machine_unmap(device->machine, address, stuck->bytes) != TIDE_OK) return false;
  stuck->bytes = 0;
  while (stuck->count > 0) tide__physical_give(device, stuck->handles[--stuck->count]);
  return stuck->range_bytes == 0 ||
         tide_machine_address_release(device->machine, address, stuck->range_bytes) == TIDE_OK;
}

void tide__stuck_end(tide_device* device, tide__stuck* stuck) {
  const tide_error before = *tide_last_error();
  const bool is_done = tide__orphans_reserve(device, stuck->count) == TIDE_OK && stuck_try(device, stuck);
  if (is_done) tide__stuck_free(device, stuck);
  else tide__stuck_add(device, stuck);
  tide__error_restore(&before);
}

void tide__stuck_retry(tide_device* device) {
  tide__stuck* list = device->stuck;
  device->stuck = NULL;
  while (list != NULL) {
    tide__stuck* const stuck = list;
    list = stuck->next;
    tide__stuck_end(device, stuck);
  }
}

// Is a range free of what could not be unmapped? It is tried again first.
static tide_status range_clear(tide_device* device, uint64_t address, uint64_t bytes) {
  tide__stuck_retry(device);
  for (const tide__stuck* stuck = device->stuck; stuck != NULL; stuck = stuck->next) {
    TIDE_REQUIRE(stuck->address + stuck->bytes <= address || address + bytes <= stuck->address,
                 TIDE_ERR_MACHINE, "%llu bytes at %#llx could not be unmapped yet",
                 (unsigned long long)stuck->bytes, (unsigned long long)stuck->address);
  }
  return TIDE_OK;
}

tide_status tide__handles_map(tide_device* device, tide__handle* const* handles, size_t count,
                              uint64_t address, tide__stuck** out_stuck) {
  uint64_t bytes = 0;
  size_t mapped = 0;
  *out_stuck = NULL;
  for (size_t i = 0; i < count; i++) bytes += handles[i]->bytes;
  TIDE_TRY(range_clear(device, address, bytes));
  tide__stuck* const stuck = tide__stuck_new(device, count);
  if (stuck == NULL) return TIDE_ERR_NO_MEMORY;
  stuck->address = address;
  const tide_status status = handles_map_at(device, handles, count, address, &mapped);
  if (status != TIDE_OK) {
    const tide_error error = *tide_last_error();
    for (size_t i = 0; i < mapped; i++) stuck->bytes += handles[i]->bytes;
    if (!stuck_try(device, stuck)) *out_stuck = stuck;
    if (*out_stuck != NULL) tide__stuck_add(device, stuck);
    tide__error_restore(&error);
  }
  if (*out_stuck == NULL) tide__stuck_free(device, stuck);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Growing

// How soon the lane of a home may use a range of it.
static tide__readiness range_readiness_locked(tide_device* device, const tide__home* home, uint64_t address,
                                              uint64_t bytes) {
  tide__readiness worst = TIDE__READY;
  HANDLES_EACH(i, home, address, address + bytes) {
    const tide__handle* const handle = home->handles[i];
    const tide__readiness readiness = tide__handle_readiness(device, handle, handle_from(handle, address),
                                                             handle_to(handle, address + bytes),
                                                             home->segment->lane);
    if (readiness > worst) worst = readiness;
  }
  return worst;
}

static bool can_be_used(tide__readiness readiness, bool can_wait) {
  return readiness == TIDE__READY || (readiness == TIDE__READY_AFTER_WAIT && can_wait);
}

// What lies before the top of a home and is idle, if its lane can use it; or NULL.
static tide__block* top_hole_locked(tide_device* device, const tide__home* home, bool can_wait) {
  tide__block* const hole = home->top->prev;
  if (hole == NULL || hole->state != TIDE__BLOCK_FREE) return NULL;
  return can_be_used(range_readiness_locked(device, home, hole->address, hole->bytes), can_wait) ? hole
                                                                                                 : NULL;
}

// Makes and maps `bytes` at an address of a home, of which nothing is mapped.
static tide_status home_fill(const tide__request* request, tide__segment* segment, uint64_t address,
                             uint64_t bytes, uint64_t handle_bytes) {
  tide_device* const device = request->device;
  tide__handle** handles = NULL;
  size_t count = 0;
  TIDE_TRY(tide__map_cover(&device->map, address, bytes, segment->is_small));
  TIDE_TRY(tide__handles_make(device, bytes, handle_bytes, &handles, &count));
  tide__stuck* stuck = NULL;
  tide_status status = tide__home_make_room(device, segment, count);
  if (status == TIDE_OK) status = tide__handles_map(device, handles, count, address, &stuck);
  if (status != TIDE_OK) {
    const tide_error error = *tide_last_error();
    tide__stuck_keep(stuck, handles, count);
    tide__handles_free(device, handles, count);
    tide__error_restore(&error);
    return status;
  }
  tide__mutex_lock(&segment->lane->lock);
  tide__home_add_handles_locked(device, segment, handles, count, address, true);
  tide__mutex_unlock(&segment->lane->lock);
  tide__heap_release(device->heap, handles, count, sizeof *handles);
  return TIDE_OK;
}

void tide__home_tell_growth(const tide__request* request, uint64_t address, uint64_t bytes) {
  tide_device* const device = request->device;
  const int kind = request->kind == TIDE__SMALL ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  tide__reserved_rise(device, request->pool, bytes, kind, false);
  if (!tide__is_recording(device)) return;
  tide__entry_add(device, TIDE_ACTION_SEGMENT_MAP, &request->moment, request->moment.stack, request->lane,
                  address, bytes);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
}

// What is taken to grow: the idle block before the top, if there is one, and a part of the top.
typedef struct growing {
  tide__block* hole;
  tide__block* fresh;
} growing;

// False if it would take more than `most` bytes; without a part of the top if the hole alone is enough.
static bool grow_begin_locked(const tide__request* request, tide__segment* segment,
                              const tide__growth* growth, uint64_t most, growing* out) {
  const uint64_t unit = tide__home_unit(request->device);
  out->hole = top_hole_locked(request->device, segment->home, growth->can_wait);
  out->fresh = NULL;
  const uint64_t idle = out->hole != NULL ? out->hole->bytes : 0;
  const uint64_t missing = idle < request->rounded ? tide__round_up(request->rounded - idle, unit) : 0;
  if (missing > most || missing > segment->home->top->bytes) return false;
  if (out->hole != NULL) tide__free_index_take_locked(out->hole);
  if (missing > 0) out->fresh = tide__home_cut_top_locked(segment, missing);
  return true;
}

static void grow_give_up(tide__segment* segment, const growing* g) {
  tide__mutex_lock(&segment->lane->lock);
  if (g->fresh != NULL) tide__home_uncut_top_locked(segment, g->fresh);
  if (g->hole != NULL) tide__block_return_locked(g->hole, false);
  tide__mutex_unlock(&segment->lane->lock);
}

static tide__block* grow_join_locked(tide__lane* lane, const growing* g) {
  if (g->fresh == NULL) return g->hole;
  if (g->hole != NULL) tide__block_absorb_prev_locked(lane, g->fresh);
  return g->fresh;
}

tide_status tide__home_grow(const tide__request* request, const tide__growth* growth, uint64_t most,
                            tide__block** out) {
  tide_device* const device = request->device;
  tide__segment* segment = NULL;
  growing g = { NULL, NULL };
  TIDE_TRY(
      tide__home_with_room(request, tide__round_up(request->rounded, tide__home_unit(device)), &segment));
  if (!tide__lane_lock_with_spares(device, request->lane)) return TIDE_ERR_NO_MEMORY;
  const bool has_begun = grow_begin_locked(request, segment, growth, most, &g);
  tide__mutex_unlock(&request->lane->lock);
  if (!has_begun) return TIDE_OK;
  const uint64_t address = g.fresh != NULL ? g.fresh->address : 0;
  const uint64_t bytes = g.fresh != NULL ? g.fresh->bytes : 0;
  const tide_status status = bytes > 0 ? home_fill(request, segment, address, bytes, growth->handle_bytes)
                                       : TIDE_OK;
  if (status != TIDE_OK) {
    grow_give_up(segment, &g);
    return status;
  }
  tide__mutex_lock(&request->lane->lock);
  *out = grow_join_locked(request->lane, &g);
  tide__mutex_unlock(&request->lane->lock);
  if (bytes > 0) tide__home_tell_growth(request, address, bytes);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Preparing

// Maps the handles under a block that are not mapped at home yet, run by run.
static tide_status block_map_at_home(tide_device* device, const tide__block* block) {
  const tide__home* const home = block->segment->home;
  const uint64_t end = tide__block_end(block);
  size_t i = handle_index_at(home, block->address);
  while (i < home->count && home->handles[i]->address < end) {
    size_t run = 0;
    while (i + run < home->count && home->handles[i + run]->address < end &&
           !home->handles[i + run]->is_mapped &&
           (run == 0 || handle_end(home->handles[i + run - 1]) == home->handles[i + run]->address)) {
      run++;
    }
    if (run == 0) {
      i++;
      continue;
    }
    tide__stuck* stuck = NULL;
    TIDE_TRY(tide__handles_map(device, &home->handles[i], run, home->handles[i]->address, &stuck));
    tide__mutex_lock(&block->segment->lane->lock);
    for (size_t k = i; k < i + run; k++) {
      home->handles[k]->is_mapped = true;
      handle_note_locked(device, home->handles[k]);
    }
    tide__mutex_unlock(&block->segment->lane->lock);
    i += run;
  }
  return TIDE_OK;
}

static void block_want_locked(const tide__block* block) {
  const tide__home* const home = block->segment->home;
  const uint64_t end = tide__block_end(block);
  HANDLES_EACH(i, home, block->address, end) {
    const tide__handle* const handle = home->handles[i];
    tide__handle_want_locked(handle, handle_from(handle, block->address), handle_to(handle, end),
                             home->segment->lane);
  }
}

// Until the waits are queued the handles stay odd, so that no other thread of the lane takes a part of them
// without the gate.
tide_status tide__home_prepare(tide_device* device, tide__block* block, bool can_wait, bool* out_ready) {
  tide__segment* const segment = block->segment;
  tide__lane* const lane = segment->lane;
  tide__mutex_lock(&lane->lock);
  *out_ready =
      can_be_used(range_readiness_locked(device, segment->home, block->address, block->bytes), can_wait);
  if (*out_ready) block_want_locked(block);
  tide__mutex_unlock(&lane->lock);
  if (!*out_ready) return TIDE_OK;
  TIDE_TRY(tide__marks_wait(device, lane));
  TIDE_TRY(block_map_at_home(device, block));
  tide__mutex_lock(&lane->lock);
  tide__home_note_locked(device, segment->home, block->address, block->bytes);
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Giving back

// Takes the idle blocks of the homes of one kind out of a lane.
static tide__block* homes_take_idle(const tide_device* device, tide__lane* lane, bool is_small) {
  tide__block* list = NULL;
  tide__mutex_lock(&lane->lock);
  const bool has_room = tide__bins_peek(&lane->free_index[is_small].bins, device->granularity) != NULL;
  TIDE_LIST_EACH(it, &lane->segments) {
    if (!has_room) break;  // no handle lies wholly in an idle block
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->home == NULL || segment->is_small != is_small) continue;
    for (tide__block* block = segment->head; block != NULL; block = block->next) {
      if (block->state != TIDE__BLOCK_FREE) continue;
      tide__free_index_take_locked(block);
      block->list_next = list;
      list = block;
    }
  }
  tide__mutex_unlock(&lane->lock);
  return list;
}

// The handles that lie wholly in a block: from `first` to `end` - 1.
typedef struct handle_range {
  size_t first;
  size_t end;
} handle_range;

static handle_range block_handles(const tide__block* block) {
  const tide__home* const home = block->segment->home;
  handle_range range = { handle_index_at(home, block->address), 0 };
  if (range.first < home->count && home->handles[range.first]->address < block->address) range.first++;
  range.end = range.first;
  while (range.end < home->count && handle_end(home->handles[range.end]) <= tide__block_end(block)) {
    range.end++;
  }
  return range;
}

// Waits until no work uses handles that are idle.
static tide_status handles_quiesce(tide_device* device, const tide__segment* segment, handle_range range) {
  bool is_own = true;
  tide__mutex_lock(&segment->lane->lock);
  for (size_t i = range.first; i < range.end; i++) {
    const tide__handle* const handle = segment->home->handles[i];
    is_own &= tide__handle_readiness(device, handle, 0, handle->bytes, segment->lane) == TIDE__READY;
  }
  tide__mutex_unlock(&segment->lane->lock);
  return is_own ? tide__lane_quiesce(device, segment->lane, true)
                : tide_machine_device_synchronize(device->machine, device->index);
}

// Unmaps one idle handle everywhere and gives its memory back.
static tide_status handle_drop(tide_device* device, tide__segment* segment, size_t index) {
  tide__home* const home = segment->home;
  tide__handle* const handle = home->handles[index];
  TIDE_TRY(tide__views_drop_handle(device, handle));
  if (handle->is_mapped) {
    TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(handle->address), handle->bytes));
  }
  tide__physical_give(device, handle->physical);
  tide__mutex_lock(&segment->lane->lock);
  if (handle->is_odd) home->odd_count--;
  memmove(&home->handles[index], &home->handles[index + 1],
          (home->count - index - 1) * sizeof *home->handles);
  home->count--;
  tide__mutex_unlock(&segment->lane->lock);
  tide__heap_release(device->heap, handle, 1, sizeof *handle);
  return TIDE_OK;
}

// The part of a block whose handles are given back; empty at first.
typedef struct hollow {
  uint64_t from;
  uint64_t to;
} hollow;

// Makes the hollow part of a BUSY block unmapped, and what is left of it idle.
static void block_hollow_locked(tide__block* block, hollow h) {
  tide__lane* const lane = block->segment->lane;
  if (h.from == h.to) {
    tide__block_return_locked(block, false);
    return;
  }
  if (h.from > block->address) {
    tide__block_return_locked(tide__block_cut_front_locked(lane, block, h.from - block->address), true);
  }
  if (h.to < tide__block_end(block)) {
    tide__block_return_locked(tide__block_cut_back_locked(lane, block, tide__block_end(block) - h.to), true);
  }
  tide__home_uncut_top_locked(block->segment, block);
}

static void hollow_tell(tide_device* device, const tide__segment* segment, hollow h,
                        const tide__call_context* moment) {
  const int kind = segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  if (h.from == h.to) return;
  tide__reserved_fall(device, segment->lane->pool, h.to - h.from, kind, false);
  if (!tide__is_recording(device)) return;
  tide__entry_add(device, TIDE_ACTION_SEGMENT_UNMAP, moment,
                  moment->stack != 0 ? moment->stack : segment->stack, segment->lane, h.from, h.to - h.from);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
}

// Gives handles back from the high end, as far as the machine takes them and the floor allows.
static tide_status handles_give(tide_device* device, tide__segment* segment, handle_range range,
                                hollow* out) {
  const uint64_t floor = tide__device_options(device)->tide_floor_bytes;
  if (range.first == range.end) return TIDE_OK;
  TIDE_TRY(tide__orphans_reserve(device, range.end - range.first));
  TIDE_TRY(handles_quiesce(device, segment, range));
  for (size_t i = range.end; i-- > range.first;) {
    const hollow own = { segment->home->handles[i]->address, handle_end(segment->home->handles[i]) };
    const uint64_t left = tide__load_relaxed(&device->reserved_bytes) - (out->to - out->from);
    if (left < floor + (own.to - own.from)) break;
    TIDE_TRY(handle_drop(device, segment, i));
    out->from = own.from;
    if (out->to == 0) out->to = own.to;
  }
  return TIDE_OK;
}

// Gives back the handles that lie wholly in a BUSY block.
static tide_status block_give_handles(tide_device* device, tide__block* block,
                                      const tide__call_context* moment) {
  tide__segment* const segment = block->segment;
  tide__lane* const lane = segment->lane;
  tide__block* kept[2] = { NULL, NULL };  // for the cuts in the end: nobody else may use them meanwhile
  hollow h = { 0, 0 };
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (tide__lane_lock_with_spares(device, lane)) {
    for (int i = 0; i < 2; i++) kept[i] = tide__lane_take_spare_locked(lane);
    tide__mutex_unlock(&lane->lock);
    status = handles_give(device, segment, block_handles(block), &h);
  }
  tide__mutex_lock(&lane->lock);
  for (int i = 0; i < 2 && kept[i] != NULL; i++) tide__lane_give_spare_locked(lane, kept[i]);
  block_hollow_locked(block, h);
  tide__mutex_unlock(&lane->lock);
  hollow_tell(device, segment, h, moment);
  return status;
}

// Gives the addresses of a home back in which nothing is any more.
static void home_drop_if_empty(tide_device* device, tide__segment* segment) {
  tide__lane* const lane = segment->lane;
  tide__mutex_lock(&lane->lock);
  tide__block* const block = segment->head;
  const bool is_empty = tide__block_is_whole(block) && block->state == TIDE__BLOCK_UNMAPPED;
  if (is_empty) tide__free_index_take_unmapped_locked(block);
  tide__mutex_unlock(&lane->lock);
  if (!is_empty) return;
  const tide_status status =
      tide_machine_address_release(device->machine, tide__pointer(segment->address), segment->bytes);
  tide__mutex_lock(&lane->lock);
  if (status == TIDE_OK) tide__segment_unlink_locked(segment);
  else tide__free_index_put_unmapped_locked(block);
  tide__mutex_unlock(&lane->lock);
  if (status != TIDE_OK) return;
  tide__list_unlink(&segment->home->link);
  for (int i = 0; i < 2; i++) {
    if (lane->homes[i] == segment) lane->homes[i] = NULL;
  }
  home_free(device, segment->home);
  tide__segment_free(device, segment);
}

// The home of a lane that comes after `segment` (NULL: the first); NULL at the end.
static tide__segment* home_next(tide__lane* lane, const tide__segment* segment) {
  tide__link* link = segment != NULL ? segment->link.next : lane->segments.next;
  while (link != &lane->segments && TIDE_OWNER(link, tide__segment, link)->home == NULL) link = link->next;
  return link != &lane->segments ? TIDE_OWNER(link, tide__segment, link) : NULL;
}

static tide_status lane_give_homes(tide_device* device, tide__lane* lane, bool is_small,
                                   const tide__call_context* moment) {
  tide_status status = TIDE_OK;
  tide__block* list = homes_take_idle(device, lane, is_small);
  while (list != NULL) {
    tide__block* const block = list;
    list = block->list_next;
    if (status == TIDE_OK) {
      status = block_give_handles(device, block, moment);
      continue;
    }
    tide__mutex_lock(&lane->lock);
    tide__block_return_locked(block, false);
    tide__mutex_unlock(&lane->lock);
  }
  tide__segment* next = NULL;
  for (tide__segment* segment = home_next(lane, NULL); segment != NULL; segment = next) {
    next = home_next(lane, segment);
    home_drop_if_empty(device, segment);
  }
  return status;
}

tide_status tide__home_trim(tide_device* device, tide__pool* pool, bool is_small,
                            const tide__call_context* moment) {
  if (!device->has_tcaches) return TIDE_OK;  // only the policy `tide` has homes
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_TRY(lane_give_homes(device, lane, is_small, moment));
  }
  return TIDE_OK;
}

void tide__home_destroy(tide_device* device, tide__segment* segment) {
  tide__home* const home = segment->home;
  for (size_t i = 0; i < home->count; i++) {
    tide__handle* const handle = home->handles[i];
    if (handle->is_mapped) {
      tide__ignore(tide_machine_unmap(device->machine, tide__pointer(handle->address), handle->bytes));
    }
    tide__ignore(tide_machine_physical_free(device->machine, handle->physical));
    tide__heap_release(device->heap, handle, 1, sizeof *handle);
  }
  tide__ignore(
      tide_machine_address_release(device->machine, tide__pointer(segment->address), segment->bytes));
  home_free(device, home);
}

tide_status tide__home_add_peer(tide_device* device, const tide__segment* segment, int peer) {
  const tide__home* const home = segment->home;
  for (size_t i = 0; i < home->count; i++) {
    if (!home->handles[i]->is_mapped) continue;
    TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(home->handles[i]->address),
                                     home->handles[i]->bytes, peer, TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

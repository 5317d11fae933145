// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gives memory to parts of a range: the largest idle handles that fit first, then new ones. A gap is a
// stretch of addresses without memory; all its handles are mapped one behind the other, and access is given
// once. Everything that can fail comes before the first visible change. The caller has the gate.
#include <stdlib.h>

#include "device/tide/pieces.h"
#include "device/tide/range.h"

enum { FILL_ATTEMPTS = 8 };

// A stretch of addresses without memory. Its handles come one behind the other, the new ones last.
typedef struct range_gap {
  uint64_t address;
  uint64_t bytes;
  size_t part_count;
  size_t made_count;    // of these, new ones
  uint64_t made_bytes;  // of the new ones
  tide__handle** made;  // owned
  tide__mapping* mapping;
} range_gap;

typedef struct fill_part {
  tide__handle* handle;  // NULL: a new one
  uint64_t bytes;
} fill_part;

// A commit while it is being made.
typedef struct filling {
  tide__gathering own;
  tide_range* range;
  range_gap* gaps;  // owned; by address
  size_t gap_count;
  size_t gap_capacity;
  tide__handle** idle;  // owned; what may be used, in the order in which it is tried; NULL: taken
  size_t idle_count;
  size_t idle_capacity;
  fill_part* parts;  // owned; of all gaps
  size_t part_count;
  size_t part_capacity;
  uint64_t bytes;         // of all gaps
  uint64_t created;       // of these, in new handles
  uint64_t handle_bytes;  // of the largest new handle
  tide__segment* home;    // where new handles have their place
  uint64_t fresh;         // from this address on; 0: there are none
} filling;

static tide_device_cache* device_of(const filling* s) { return s->own.request->device; }

// ---------------------------------------------------------------------------------------------------
// Planning

static tide_status gap_add(filling* s, uint64_t from, uint64_t to) {
  TIDE_REQUIRE(tide__heap_grow(device_of(s)->heap, (void**)&s->gaps, &s->gap_capacity, s->gap_count + 1,
                               sizeof *s->gaps),
               TIDE_ERR_NO_MEMORY, "no memory for the records of a range");
  s->gaps[s->gap_count++] = (range_gap){ .address = from, .bytes = to - from };
  s->bytes += to - from;
  return TIDE_OK;
}

// The chain of a range changes with the gate only.
static tide_status gaps_find(filling* s, uint64_t from, uint64_t to) {
  s->gap_count = s->part_count = s->idle_count = 0;
  s->bytes = s->created = 0;
  for (const tide__block* b = tide__range_block_at(s->range, from); b != NULL && b->address < to;
       b = b->next) {
    if (b->state != TIDE__BLOCK_VACANT) continue;
    TIDE_TRY(gap_add(s, tide__max(from, b->address), tide__min(to, tide__block_end(b))));
  }
  return TIDE_OK;
}

// The largest first; of equal ones those that need no wait; then by age and place.
static int handle_compare(const void* a, const void* b) {
  const tide__handle* const x = *(tide__handle* const*)a;
  const tide__handle* const y = *(tide__handle* const*)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->prefix_waits != y->prefix_waits) return x->prefix_waits ? 1 : -1;
  if (x->home->ordinal != y->home->ordinal) return x->home->ordinal < y->home->ordinal ? -1 : 1;
  return x->address < y->address ? -1 : x->address > y->address;
}

static void idle_note_locked(filling* s, const tide__home* home) {
  for (size_t i = 0; i < home->count; i++) {
    tide__handle* const handle = home->handles[i];
    const bool fits = handle->bytes % s->range->unit == 0 && handle->bytes <= s->bytes;
    if (fits && tide__handle_is_whole_locked(&s->own, handle)) s->idle[s->idle_count++] = handle;
  }
}

// Notes the handles that are wholly idle.
static tide_status idle_find(filling* s) {
  const tide__request* const request = s->own.request;
  size_t count = 0;
  TIDE__HOMES_EACH(it, request) { count += TIDE_OWNER(it, tide__home, link)->count; }
  if (count == 0) return TIDE_OK;
  TIDE_REQUIRE(
      tide__heap_grow(device_of(s)->heap, (void**)&s->idle, &s->idle_capacity, count, sizeof *s->idle),
      TIDE_ERR_NO_MEMORY, "no memory to look at %zu handles", count);
  tide__homes_lock(request);
  tide__survey_locked(&s->own);
  TIDE__HOMES_EACH(it, request) { idle_note_locked(s, TIDE_OWNER(it, tide__home, link)); }
  tide__homes_unlock(request);
  if (s->idle_count > 1) qsort(s->idle, s->idle_count, sizeof *s->idle, handle_compare);
  return TIDE_OK;
}

static tide_status part_add(filling* s, range_gap* gap, tide__handle* handle, uint64_t bytes) {
  TIDE_REQUIRE(tide__heap_grow(device_of(s)->heap, (void**)&s->parts, &s->part_capacity, s->part_count + 1,
                               sizeof *s->parts),
               TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", s->part_count + 1);
  s->parts[s->part_count++] = (fill_part){ handle, bytes };
  gap->part_count++;
  return TIDE_OK;
}

static tide_status gap_plan(filling* s, range_gap* gap) {
  uint64_t missing = gap->bytes;
  for (size_t i = 0; i < s->idle_count && missing > 0; i++) {
    tide__handle* const handle = s->idle[i];
    if (handle == NULL || handle->bytes > missing) continue;
    TIDE_TRY(part_add(s, gap, handle, handle->bytes));
    s->idle[i] = NULL;
    missing -= handle->bytes;
  }
  gap->made_bytes = missing;
  s->created += missing;
  for (; missing > 0; gap->made_count++) {
    const uint64_t bytes = tide__min(missing, s->handle_bytes);
    TIDE_TRY(part_add(s, gap, NULL, bytes));
    missing -= bytes;
  }
  return TIDE_OK;
}

static tide_status fill_plan(filling* s, bool uses_idle) {
  tide_device_cache* const device = device_of(s);
  const uint64_t limit = tide__load_relaxed(&device->limit);
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  if (uses_idle) TIDE_TRY(idle_find(s));
  for (size_t i = 0; i < s->gap_count; i++) TIDE_TRY(gap_plan(s, &s->gaps[i]));
  TIDE_REQUIRE(s->created == 0 || limit == TIDE_NO_LIMIT ||
                   (reserved <= limit && s->created <= limit - reserved),
               TIDE_ERR_NO_MEMORY, "%llu bytes more are above the limit", (unsigned long long)s->created);
  TIDE_REQUIRE(s->created <= tide__budget_room(device, s->own.request->pool), TIDE_ERR_NO_MEMORY,
               "%llu bytes more leave no room for guarantees of tags", (unsigned long long)s->created);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Taking

// Takes the place of a new handle at the top of the home.
static void fresh_take_locked(filling* s, uint64_t bytes) {
  tide__lane_supply_locked(&s->own, s->own.request->lane);
  tide__block* const block = tide__home_cut_top_locked(s->home, bytes);
  block->state = TIDE__BLOCK_LENT;
  if (s->fresh == 0) s->fresh = block->address;
  tide__piece_add(&s->own, block);
}

// Takes a piece for each part; false if one is not idle any more.
static bool parts_take_locked(filling* s) {
  for (size_t i = 0; i < s->part_count; i++) {
    const fill_part* const part = &s->parts[i];
    if (part->handle == NULL) fresh_take_locked(s, part->bytes);
    else if (!tide__pieces_take_locked(&s->own, &part->handle, 1, 0, part->bytes)) return false;
  }
  return true;
}

static bool piece_is_fresh(const filling* s, const tide__block* piece) {
  return s->fresh != 0 && piece->segment == s->home && piece->address >= s->fresh;
}

// Gives back everything that was taken.
static void fill_give_up(filling* s) {
  const tide_error before = *tide_last_error();
  tide__lane* const lane = s->own.request->lane;
  tide__block* list = s->own.pieces;
  s->own.pieces = NULL;
  while (list != NULL) {
    tide__block* const piece = list;
    list = piece->heap_next;
    if (!piece_is_fresh(s, piece)) {
      tide__piece_add(&s->own, piece);
      continue;
    }
    tide__mutex_lock(&lane->lock);
    tide__home_uncut_top_locked(s->home, piece);
    tide__mutex_unlock(&lane->lock);
  }
  tide__pieces_give_up(&s->own);
  tide__error_restore(&before);
}

// Records: two for each piece at home, and two for each block in the range.
static tide_status fill_take(filling* s, bool* out_taken) {
  const tide__request* const request = s->own.request;
  s->fresh = 0;
  if (s->created > 0) TIDE_TRY(tide__home_with_room(request, s->created, &s->home));
  TIDE_TRY(tide__spares_get(&s->own, 2 * tide__spares_for(s->part_count)));
  tide__homes_lock(request);
  tide__survey_locked(&s->own);
  *out_taken = parts_take_locked(s);
  tide__homes_unlock(request);
  if (!*out_taken) fill_give_up(s);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Mapping

// Waits for earlier work on the memory, on the device where that is possible.
static tide_status fill_wait(const filling* s) {
  tide_device_cache* const device = device_of(s);
  if (!s->own.takes_all) return tide__marks_wait(device, s->own.request->lane, s->bytes);
  const uint64_t begin_ns = tide__host_wait_begin(device);
  const tide_status status = tide_machine_device_synchronize(device->machine, device->index);
  tide__host_wait_end(device, begin_ns);
  return status;
}

static tide_status gap_map(filling* s, range_gap* gap, const fill_part* parts) {
  tide_device_cache* const device = device_of(s);
  const size_t old_count = gap->part_count - gap->made_count;
  TIDE_TRY(tide__mapping_new(device, gap->address, gap->bytes, gap->made_count, &gap->mapping));
  if (gap->made_count > 0) {
    TIDE_TRY(tide__handles_make(device, gap->mapping, gap->made_bytes, tide__handles_of(s->handle_bytes),
                                &gap->made));
  }
  for (size_t i = 0; i < gap->part_count; i++) {
    const tide__handle* const handle = i < old_count ? parts[i].handle : gap->made[i - old_count];
    TIDE_TRY(tide__mapping_add(device, gap->mapping, handle->physical, handle->bytes));
  }
  return tide__access_give(device, gap->address, gap->bytes);
}

static tide_status fill_map(filling* s) {
  tide_device_cache* const device = device_of(s);
  const fill_part* parts = s->parts;
  TIDE_TRY(fill_wait(s));
  if (s->created > 0) {
    size_t count = 0;
    for (size_t i = 0; i < s->gap_count; i++) count += s->gaps[i].made_count;
    TIDE_TRY(tide__home_make_room(device, s->home, count));
    TIDE_TRY(tide__map_cover(&device->map, s->fresh, s->created, false));
  }
  for (size_t i = 0; i < s->gap_count; i++) {
    TIDE_TRY(gap_map(s, &s->gaps[i], parts));
    parts += s->gaps[i].part_count;
  }
  return TIDE_OK;
}

// Undoes all mappings, which gives new handles back.
static void fill_unmap(const filling* s) {
  tide_device_cache* const device = device_of(s);
  for (size_t i = 0; i < s->gap_count; i++) {
    range_gap* const gap = &s->gaps[i];
    if (gap->mapping != NULL) (void)tide__mapping_end(device, gap->mapping);
    tide__handles_free(device, gap->made, gap->made_count);
  }
}

// ---------------------------------------------------------------------------------------------------
// Publishing

// The new handles belong to the home, and the mappings to the range.
static void handles_settle(filling* s) {
  tide_device_cache* const device = device_of(s);
  uint64_t address = s->fresh;
  tide__pieces_settle(&s->own, s->own.pieces);
  for (size_t i = 0; i < s->gap_count; i++) {
    range_gap* const gap = &s->gaps[i];
    tide__mapping_free(device, gap->mapping);
    if (gap->made_count == 0) continue;
    tide__mutex_lock(&s->home->lane->lock);
    tide__home_add_handles_locked(device, s->home, gap->made, gap->made_count, address, false);
    tide__mutex_unlock(&s->home->lane->lock);
    address += gap->made_bytes;
    tide__heap_release(device->heap, gap->made, gap->made_count, sizeof(tide__handle*));
  }
}

// Gives a block the next piece.
static void block_commit_locked(filling* s, tide__block* block) {
  tide__block* const piece = s->own.pieces;
  s->own.pieces = piece->heap_next;
  piece->heap_next = NULL;
  block->pieces = piece;
  block->state = TIDE__BLOCK_COMMITTED;
  tide__store_relaxed(&block->requested_bytes, block->bytes);
  tide__store_relaxed(&block->stack, s->own.request->context.stack);
  tide__range_note_locked(s->range, block);
}

// Cuts the blocks of a gap out of vacant addresses.
static void gap_commit_locked(filling* s, const range_gap* gap, const fill_part* parts) {
  tide__lane* const lane = s->range->segment->lane;
  tide__block* rest = tide__range_block_at(s->range, gap->address);
  tide__range_unnote_locked(s->range, rest);
  tide__lane_supply_locked(&s->own, lane);
  if (gap->address > rest->address) {
    tide__block* const front = tide__block_cut_front_locked(lane, rest, gap->address - rest->address);
    front->state = TIDE__BLOCK_VACANT;
    tide__range_note_locked(s->range, front);
  }
  for (size_t i = 0; i < gap->part_count; i++) {
    const bool is_last = parts[i].bytes == rest->bytes;
    tide__lane_supply_locked(&s->own, lane);
    block_commit_locked(s, is_last ? rest : tide__block_cut_front_locked(lane, rest, parts[i].bytes));
  }
  if (rest->state == TIDE__BLOCK_VACANT) tide__range_note_locked(s->range, rest);
}

static void blocks_commit(filling* s) {
  tide__lane* const lane = s->range->segment->lane;
  const fill_part* parts = s->parts;
  tide__mutex_lock(&lane->lock);
  for (size_t i = 0; i < s->gap_count; i++) {
    gap_commit_locked(s, &s->gaps[i], parts);
    parts += s->gaps[i].part_count;
  }
  tide__mutex_unlock(&lane->lock);
  (void)tide__add_relaxed(&s->range->committed, s->bytes);
}

// Memory leaves its homes, comes into the range, and is handed out there.
static void fill_tell(const filling* s) {
  tide_device_cache* const device = device_of(s);
  const tide__call_context* const context = &s->own.request->context;
  const tide__lane* const lane = s->range->segment->lane;
  const fill_part* part = s->parts;
  if (!tide__is_recording(device)) return;
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + 2 * s->part_count + s->gap_count);
  for (const tide__block* piece = s->own.pieces; piece != NULL; piece = piece->heap_next) {
    tide__entry_add(device, TIDE_ACTION_SEGMENT_UNMAP, context, context->stack, tide__block_lane(piece),
                    piece->address, piece->bytes);
  }
  for (size_t i = 0; i < s->gap_count; i++) {
    uint64_t address = s->gaps[i].address;
    tide__entry_add(device, TIDE_ACTION_SEGMENT_MAP, context, context->stack, lane, address,
                    s->gaps[i].bytes);
    for (size_t k = 0; k < s->gaps[i].part_count; k++, part++) {
      tide__entry_add(device, TIDE_ACTION_ALLOC, context, context->stack, lane, address, part->bytes);
      address += part->bytes;
    }
  }
}

static void fill_commit(filling* s) {
  handles_settle(s);
  if (s->created > 0) tide__mapped_tell(s->own.request, s->fresh, s->created);
  fill_tell(s);
  tide__totals_commit(device_of(s), (int64_t)s->part_count, (int64_t)s->bytes);
  blocks_commit(s);
}

// ---------------------------------------------------------------------------------------------------
// Filling

static tide_status fill_try(filling* s, bool uses_idle, bool* out_done) {
  bool is_taken = false;
  TIDE_TRY(fill_plan(s, uses_idle));
  TIDE_TRY(fill_take(s, &is_taken));
  if (!is_taken) return TIDE_OK;
  const tide_status status = fill_map(s);
  if (status != TIDE_OK) {
    fill_unmap(s);
    fill_give_up(s);
    return status;
  }
  fill_commit(s);
  *out_done = true;
  return TIDE_OK;
}

// Another thread may take something of what was planned meanwhile. The last attempt needs nothing idle.
static tide_status fill_all(filling* s, uint64_t from, uint64_t to, bool uses_idle) {
  bool is_done = false;
  for (int i = 0; i < FILL_ATTEMPTS && !is_done; i++) {
    TIDE_TRY(gaps_find(s, from, to));
    if (s->bytes == 0) return TIDE_OK;
    TIDE_TRY(fill_try(s, uses_idle && i + 1 < FILL_ATTEMPTS, &is_done));
  }
  return TIDE_OK;
}

tide_status tide__range_fill(const tide__request* request, tide_range* range, uint64_t from, uint64_t to,
                             tide__fill how) {
  tide_device_cache* const device = request->device;
  const uint64_t most = request->options->tide_most_handle_bytes / range->unit * range->unit;
  filling s = { .own = { .request = request, .takes_all = how == TIDE__FILL_WAITED }, .range = range };
  s.handle_bytes = tide__max(range->unit, most);
  if (how == TIDE__FILL_QUEUED) {
    s.own.can_wait = tide__marks_poll(device, request->lane) && tide__marks_can_wait(device, request->lane);
  }
  const tide_status status = fill_all(&s, from, to, how != TIDE__FILL_NEW);
  tide__spares_give(&s.own);
  tide__heap_release(device->heap, s.gaps, s.gap_capacity, sizeof *s.gaps);
  tide__heap_release(device->heap, s.idle, s.idle_capacity, sizeof *s.idle);
  tide__heap_release(device->heap, s.parts, s.part_capacity, sizeof *s.parts);
  return status;
}

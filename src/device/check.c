// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The invariants of an allocator, recomputed from the chains of blocks alone and compared with every index
// and every statistic. The numbers are those of docs/device.md.
#include <string.h>

#include "device/tide/range.h"
#include "device/tide/view_list.h"

// What is found on a walk through everything.
typedef struct findings {
  tide_device_cache* device;
  uint64_t free_blocks;  // of the free index being looked at
  uint64_t unmapped_blocks;
  int64_t allocation[3];
  int64_t allocated_bytes[3];
  int64_t active[3];
  int64_t active_bytes[3];
  int64_t requested_bytes[3];
  int64_t inactive_split[3];
  int64_t inactive_split_bytes[3];
  int64_t segment[3];
  int64_t reserved_bytes[3];
  int64_t parked_bytes[3];
  int64_t committed;  // blocks of ranges
  uint64_t pending;
  uint64_t cached;  // idle blocks that are in magazines
  int64_t pool_bytes;
} findings;

// The number of a broken invariant, and what is known about it.
#define BROKEN(number, ...) \
  ((void)tide_error_set(TIDE_ERR_STATE, (number), __FILE__, __LINE__, __VA_ARGS__), (number))
#define CHECK(cond, number, ...)                     \
  do {                                               \
    if (!(cond)) return BROKEN(number, __VA_ARGS__); \
  } while (0)
#define CHECK_ALL(expr)               \
  do {                                \
    const int broken_ = (expr);       \
    if (broken_ != 0) return broken_; \
  } while (0)

static void findings_add(int64_t counts[3], int kind, uint64_t n) {
  counts[0] += (int64_t)n;
  counts[kind] += (int64_t)n;
}

static int block_check_chain(const tide__segment* segment, const tide__block* block, uint64_t address) {
  CHECK(block->address == address, 1, "a gap in the chain before %#llx", (unsigned long long)block->address);
  CHECK(block->segment == segment && block->is_small == segment->is_small, 1, "a block of another segment");
  CHECK(block->prev == NULL ? segment->head == block : block->prev->next == block, 1, "a broken link");
  CHECK(block->bytes > 0 && tide__is_aligned(block->bytes | block->address, TIDE__GRAIN), 4,
        "%llu bytes at %#llx are no multiple of %llu", (unsigned long long)block->bytes,
        (unsigned long long)block->address, (unsigned long long)TIDE__GRAIN);
  const bool is_same = block->next != NULL && block->next->state == block->state;
  const bool must_join = block->state == TIDE__BLOCK_FREE || block->state == TIDE__BLOCK_UNMAPPED ||
                         block->state == TIDE__BLOCK_VACANT;
  CHECK(!is_same || !must_join, 3, "two neighbours at %#llx are both in state %d",
        (unsigned long long)block->address, block->state);
  CHECK(block->state != TIDE__BLOCK_SPARE && block->state != TIDE__BLOCK_BUSY, 2,
        "the block at %#llx is in state %d", (unsigned long long)block->address, block->state);
  return 0;
}

// Is the block findable exactly when it is handed out?
static int block_check_map(findings* f, const tide__block* block) {
  uint32_t index = 0;
  const bool is_mapped = tide__map_find(&f->device->map, block->address, &index) &&
                         tide__slots_at(&f->device->blocks, index) == block;
  const bool is_allocated = tide__block_is_handed_out(block) && block->state != TIDE__BLOCK_COMMITTED;
  CHECK(is_mapped == (is_allocated || block->state == TIDE__BLOCK_MAGAZINE), 2,
        "the block at %#llx is %s in the map", (unsigned long long)block->address,
        is_mapped ? "wrongly" : "not");
  const bool has_handle = tide__slots_handle(&f->device->blocks, block) != 0;
  CHECK(has_handle == is_allocated, 2, "the block at %#llx has %s handle", (unsigned long long)block->address,
        has_handle ? "a" : "no");
  const tide__waiter* const waiter = &block->waiter;
  const bool waits = waiter->event_count != 0 || waiter->waits != NULL ||
                     (block->uses != NULL && !is_allocated);
  CHECK(waits == (block->state == TIDE__BLOCK_PENDING), 9,
        "the block at %#llx in state %d waits for %u events", (unsigned long long)block->address,
        block->state, waiter->event_count);
  return 0;
}

// Do the handles under a block that is not noted say what is idle there?
static int block_check_idle(const tide__home* home, const tide__block* block) {
  const bool is_idle = block->state == TIDE__BLOCK_FREE;
  const tide__block* const hole = is_idle ? block : NULL;
  for (size_t i = 0; i < home->count; i++) {
    const tide__handle* const handle = home->handles[i];
    const uint64_t handle_end = handle->address + handle->bytes;
    const uint64_t from = tide__max(handle->address, block->address);
    const uint64_t to = tide__min(handle_end, tide__block_end(block));
    if (from >= to) continue;
    const uint64_t bytes = is_idle ? to - from : 0;
    CHECK(from > handle->address || (handle->idle_prefix == bytes && handle->prefix_hole == hole), 11,
          "%llu idle bytes at the beginning of the handle at %#llx", (unsigned long long)handle->idle_prefix,
          (unsigned long long)handle->address);
    CHECK(to < handle_end || (handle->idle_suffix == bytes && handle->suffix_hole == hole), 11,
          "%llu idle bytes at the end of the handle at %#llx", (unsigned long long)handle->idle_suffix,
          (unsigned long long)handle->address);
    const bool is_inner = is_idle && from > handle->address && to < handle_end;
    CHECK(is_inner ? handle->idle_inner >= bytes : handle->inner_hole != block, 11,
          "%llu idle bytes inside the handle at %#llx", (unsigned long long)handle->idle_inner,
          (unsigned long long)handle->address);
    CHECK(((home->idle_bits[i / 64] >> i % 64) & 1) == (handle->idle_prefix + handle->idle_suffix > 0), 11,
          "the handle at %#llx is listed wrongly", (unsigned long long)handle->address);
  }
  return 0;
}

static int block_check_note(const tide__home* home, const tide__block* block) {
  if (home->is_noting && block->note == 0) return block_check_idle(home, block);
  CHECK(block->note == 0 || (block->note <= home->noted_count && home->noted[block->note - 1] == block), 11,
        "the block at %#llx is not noted", (unsigned long long)block->address);
  return 0;
}

// Is memory of a home behind each block that has or lends some?
static int block_check_home(const tide__segment* segment, const tide__block* block) {
  const bool is_unmapped = block->state == TIDE__BLOCK_UNMAPPED;
  uint64_t covered = 0;
  for (size_t i = 0; i < segment->home->count; i++) {
    const tide__handle* const handle = segment->home->handles[i];
    CHECK(segment->home->ends[i] == handle->address + handle->bytes, 11,
          "the end of handle %zu is noted wrongly", i);
    const uint64_t from = tide__max(handle->address, block->address);
    const uint64_t to = tide__min(handle->address + handle->bytes, tide__block_end(block));
    if (from < to) covered += to - from;
    CHECK(!is_unmapped || from >= to, 4, "a handle at %#llx under an unmapped block",
          (unsigned long long)handle->address);
  }
  CHECK(is_unmapped || covered == block->bytes, 4, "handles under the block at %#llx are missing",
        (unsigned long long)block->address);
  CHECK(block->state != TIDE__BLOCK_VACANT, 2, "a vacant block in a home");
  return block_check_note(segment->home, block);
}

// Is no run or hole of idle memory in a view longer than its bound?
static int view_check_idle(const tide__view_list* list, size_t entry) {
  const tide__view* const view = list->entries[entry].view;
  const int32_t bound = list->bounds[entry];
  const uint64_t most = bound == TIDE__VIEW_UNBOUNDED ? UINT64_MAX : tide__view_bound_bytes(bound);
  uint64_t run = 0;
  for (size_t i = 0; i < view->count; i++) {
    run += view->handles[i]->idle_prefix;
    CHECK(run <= most, 11, "a run of %llu idle bytes, where at most %llu are expected",
          (unsigned long long)run, (unsigned long long)most);
    CHECK(view->handles[i]->idle_inner <= most, 11, "a hole of %llu idle bytes is not expected",
          (unsigned long long)view->handles[i]->idle_inner);
    if (view->handles[i]->idle_prefix < view->handles[i]->bytes) run = view->handles[i]->idle_suffix;
  }
  return run <= most ? 0 : BROKEN(11, "a longer run of idle bytes than expected");
}

// Do the handles of a view find it in the list of its lane?
static int view_check_places(const tide__lane* lane, const tide__view* view) {
  for (size_t i = 0; i < view->count; i++) {
    const tide__view_place* const place = &view->places[i];
    CHECK(place->view == view && place->list == &lane->views && place->entry == view->entry, 11,
          "handle %zu does not find its view", i);
  }
  return 0;
}

static int lane_check_views(const tide__lane* lane) {
  size_t count = 0;
  for (size_t i = 0; i < lane->views.count; i++) {
    const tide__view* const view = lane->views.entries[i].view;
    CHECK(view != NULL || lane->views.bounds[i] == 0, 11, "an empty entry of a view has a bound");
    if (view == NULL) continue;
    CHECK(view->entry == i && !view->is_broken, 11, "a wrong entry of a view");
    CHECK_ALL(view_check_places(lane, view));
    CHECK_ALL(view_check_idle(&lane->views, i));
    count++;
  }
  CHECK(count <= lane->view_count, 11, "%zu entries of %zu views", count, lane->view_count);
  return 0;
}

// A block in a view is made of pieces that are lent, and vacant addresses of none.
static int block_check_view(const tide__block* block) {
  uint64_t bytes = 0;
  for (const tide__block* piece = block->pieces; piece != NULL; piece = piece->heap_next) {
    CHECK(piece->state == TIDE__BLOCK_LENT, 2, "a piece at %#llx is in state %d",
          (unsigned long long)piece->address, piece->state);
    bytes += piece->bytes;
  }
  const bool is_vacant = block->state == TIDE__BLOCK_VACANT;
  CHECK(is_vacant || block->state == TIDE__BLOCK_ALLOCATED || block->state == TIDE__BLOCK_PENDING, 2,
        "the block at %#llx of a view is in state %d", (unsigned long long)block->address, block->state);
  CHECK(bytes == (is_vacant ? 0 : block->bytes), 4, "the pieces of the block at %#llx have %llu bytes",
        (unsigned long long)block->address, (unsigned long long)bytes);
  return 0;
}

// A block in a range is made of one piece, which is lent and a whole handle.
static int block_check_range(const tide__block* block) {
  const tide__block* const piece = block->pieces;
  CHECK(tide__range_block_at(block->segment->range, block->address) == block, 2,
        "the block at %#llx of a range is not noted", (unsigned long long)block->address);
  if (block->state == TIDE__BLOCK_VACANT) return 0;
  CHECK(block->state == TIDE__BLOCK_COMMITTED, 2, "the block at %#llx of a range is in state %d",
        (unsigned long long)block->address, block->state);
  const bool is_lent = piece != NULL && piece->state == TIDE__BLOCK_LENT && piece->heap_next == NULL;
  CHECK(is_lent && piece->bytes == block->bytes, 4, "the block at %#llx of a range has no memory",
        (unsigned long long)block->address);
  const tide__span span = tide__home_span(piece->segment->home, piece->address, piece->bytes);
  CHECK(span.count == 1 && span.offset == 0 && span.handles[0]->bytes == piece->bytes, 4,
        "the block at %#llx of a range is no handle", (unsigned long long)block->address);
  return 0;
}

static int block_check_expandable(const tide__segment* segment, const tide__block* block) {
  if (segment->home != NULL) return block_check_home(segment, block);
  if (segment->view != NULL) return block_check_view(block);
  if (segment->range != NULL) return block_check_range(block);
  if (!segment->is_expandable) {
    CHECK(block->state != TIDE__BLOCK_UNMAPPED, 2, "an unmapped block in raw memory");
    return 0;
  }
  const uint64_t handle = segment->handle_bytes;
  const uint64_t from = block->address - segment->address;
  CHECK(block->state != TIDE__BLOCK_UNMAPPED || (from % handle == 0 && block->bytes % handle == 0), 4,
        "an unmapped block at %#llx is not made of handles", (unsigned long long)block->address);
  if (block->state == TIDE__BLOCK_UNMAPPED) return 0;
  for (size_t i = (size_t)(from / handle); i <= (size_t)((from + block->bytes - 1) / handle); i++) {
    CHECK(i < segment->handle_capacity && segment->handles[i] != NULL, 4,
          "handle %zu of the segment at %#llx is missing", i, (unsigned long long)segment->address);
  }
  return 0;
}

static void block_count(findings* f, const tide__segment* segment, const tide__block* block) {
  const int kind = tide__block_kind(block);
  const bool is_free = block->state == TIDE__BLOCK_FREE;
  if (block->state == TIDE__BLOCK_UNMAPPED) f->unmapped_blocks++;
  if (!tide__state_has_memory(block->state)) return;
  findings_add(f->reserved_bytes, kind, block->bytes);
  f->pool_bytes += (int64_t)block->bytes;
  if (is_free) f->free_blocks++;
  if (is_free && !segment->is_expandable && !tide__block_is_whole(block)) {
    findings_add(f->inactive_split, kind, 1);
    findings_add(f->inactive_split_bytes, kind, block->bytes);
  }
  if (is_free) return;
  const bool is_allocated = tide__block_is_handed_out(block);
  if (block->state == TIDE__BLOCK_MAGAZINE && !is_allocated) {
    f->cached++;
    return;
  }
  const uint64_t counted = tide__block_counted_bytes(block);
  findings_add(f->active, kind, 1);
  findings_add(f->active_bytes, kind, counted);
  findings_add(f->requested_bytes, kind, tide__load_relaxed(&block->requested_bytes));
  if (block->state == TIDE__BLOCK_PENDING) f->pending++;
  if (block->state == TIDE__BLOCK_COMMITTED) f->committed++;
  if (!is_allocated) return;
  findings_add(f->allocation, kind, 1);
  findings_add(f->allocated_bytes, kind, counted);
}

// Handles without memory are those of a parked pool. What they had is not reserved.
static int home_check_parked(findings* f, const tide__segment* segment) {
  const int kind = segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE;
  const tide__home* const home = segment->home;
  for (size_t i = 0; home != NULL && i < home->count; i++) {
    if (home->handles[i]->physical != NULL) continue;
    CHECK(segment->lane->pool->parked != NULL && !home->handles[i]->is_mapped, 4,
          "the handle at %#llx has no memory", (unsigned long long)home->handles[i]->address);
    findings_add(f->parked_bytes, kind, home->handles[i]->bytes);
    findings_add(f->reserved_bytes, kind, (uint64_t)0 - home->handles[i]->bytes);
    f->pool_bytes -= (int64_t)home->handles[i]->bytes;
  }
  return 0;
}

static int segment_check(findings* f, const tide__segment* segment) {
  uint64_t address = segment->address;
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    CHECK_ALL(block_check_chain(segment, block, address));
    CHECK_ALL(block_check_map(f, block));
    CHECK_ALL(block_check_expandable(segment, block));
    block_count(f, segment, block);
    address = tide__block_end(block);
  }
  CHECK(address == segment->address + segment->bytes, 1, "the chain of the segment at %#llx is too short",
        (unsigned long long)segment->address);
  CHECK_ALL(home_check_parked(f, segment));
  if (!segment->is_expandable)
    findings_add(f->segment, segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE, 1);
  return 0;
}

static uint64_t unmapped_count(const tide__tree* tree) {
  uint64_t count = 0;
  for (tide__tree_node* it = tide__tree_first(tree); it != NULL; it = tide__tree_next(it)) {
    const tide__block* const block = TIDE_OWNER(it, tide__block, tree);
    const uint64_t key = block->address - block->segment->tie_origin;
    if (block->state == TIDE__BLOCK_UNMAPPED && it->key == key) count++;
  }
  return count;
}

static int lane_check(findings* f, tide__lane* lane) {
  for (int kind = 0; kind < 2; kind++) {
    f->free_blocks = f->unmapped_blocks = 0;
    TIDE_LIST_EACH(it, &lane->segments) {
      const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
      if (segment->is_small != (kind == TIDE__SMALL)) continue;
      CHECK(segment->lane == lane, 10, "a segment in the wrong lane");
      CHECK_ALL(segment_check(f, segment));
    }
    const int broken = tide__bins_check(&lane->free_index[kind].bins);
    CHECK(broken == 0, 2, "the index of idle blocks is broken: I%d", broken);
    CHECK(lane->free_index[kind].bins.count == f->free_blocks, 2, "%llu idle blocks, %llu in the index",
          (unsigned long long)f->free_blocks, (unsigned long long)lane->free_index[kind].bins.count);
    CHECK(unmapped_count(&lane->free_index[kind].unmapped) == f->unmapped_blocks, 2,
          "%llu unmapped blocks are not in their index", (unsigned long long)f->unmapped_blocks);
  }
  return lane_check_views(lane);
}

static int pool_walk(findings* f, tide__pool* pool) {
  f->pool_bytes = 0;
  for (tide__lane* lane = tide__lane_next(f->device, pool, NULL); lane != NULL;
       lane = tide__lane_next(f->device, pool, lane)) {
    CHECK(lane->pool == pool, 10, "a lane in the wrong pool");
    tide__mutex_lock(&lane->lock);
    const int broken = lane_check(f, lane);
    tide__mutex_unlock(&lane->lock);
    if (broken != 0) return broken;
  }
  CHECK((uint64_t)f->pool_bytes == tide__load_relaxed(&pool->reserved_bytes), 5,
        "pool %u has %lld bytes and counts %llu", pool->base.number, (long long)f->pool_bytes,
        (unsigned long long)tide__load_relaxed(&pool->reserved_bytes));
  return 0;
}

static int stat_check(const char* name, const tide_stat* stat, const tide_stat* at_reset,
                      const int64_t* found) {
  for (int kind = 0; kind < TIDE_STAT_KINDS; kind++) {
    CHECK(stat[kind].current == at_reset[kind].current + stat[kind].allocated - stat[kind].freed, 7,
          "%s.%d rose by %lld and fell by %lld to %lld", name, kind, (long long)stat[kind].allocated,
          (long long)stat[kind].freed, (long long)stat[kind].current);
    CHECK(stat[kind].current == found[kind], 7, "%s.%d is %lld and counts %lld", name, kind,
          (long long)found[kind], (long long)stat[kind].current);
    CHECK(stat[kind].peak >= stat[kind].current, 7, "%s.%d has a peak of %lld below %lld", name, kind,
          (long long)stat[kind].peak, (long long)stat[kind].current);
  }
  CHECK(stat[0].current == stat[1].current + stat[2].current, 8, "%s does not add up", name);
  return 0;
}

// Where each statistic stands in the totals, and what was found for it.
typedef struct stat_row {
  const char* name;
  size_t stat_offset;
  size_t found_offset;
} stat_row;
#define STAT_ROW(name) { #name, offsetof(tide_device_stats, name), offsetof(findings, name) },
static const stat_row stat_rows[] = { TIDE_DEVICE_STAT_MAP(STAT_ROW) STAT_ROW(parked_bytes) };
#undef STAT_ROW

static const void* at_offset(const void* base, size_t offset) { return (const char*)base + offset; }

static int rows_check(const findings* f, const tide_device_stats* stats) {
  for (size_t i = 0; i < sizeof stat_rows / sizeof stat_rows[0]; i++) {
    const stat_row* const row = &stat_rows[i];
    CHECK_ALL(stat_check(row->name, at_offset(stats, row->stat_offset),
                         at_offset(&f->device->totals_at_reset, row->stat_offset),
                         at_offset(f, row->found_offset)));
  }
  return 0;
}

static int stats_check(const findings* f, const tide_device_stats* stats) {
  CHECK_ALL(rows_check(f, stats));
  CHECK(f->requested_bytes[0] <= f->active_bytes[0], 6, "more was requested than is active");
  CHECK(f->allocated_bytes[0] <= f->active_bytes[0] &&
            f->active_bytes[0] <= f->reserved_bytes[0] + f->parked_bytes[0],
        6, "allocated, active, and reserved with parked bytes do not rise");
  CHECK((uint64_t)f->reserved_bytes[0] == tide__load_relaxed(&f->device->reserved_bytes), 5,
        "%lld bytes are reserved, counted %llu", (long long)f->reserved_bytes[0],
        (unsigned long long)tide__load_relaxed(&f->device->reserved_bytes));
  CHECK(f->cached == tide__tcache_count(f->device), 2,
        "%llu idle blocks are for magazines, not all of them in one", (unsigned long long)f->cached);
  const uint64_t waiting = tide__load_relaxed(&f->device->waits.waiting);
  CHECK(f->pending == waiting, 9, "%llu blocks wait, counted %llu", (unsigned long long)f->pending,
        (unsigned long long)waiting);
  return 0;
}

// Is every handle that is valid that of a block in a chain, or of uncached memory? Blocks of ranges have
// none.
static int handles_check(const findings* f) {
  int64_t count = 0;
  for (uint32_t i = 0; i < tide__slots_count(&f->device->blocks); i++) {
    const tide__block* const block = tide__slots_at(&f->device->blocks, i);
    if (tide__slots_handle(&f->device->blocks, block) != 0 && block->segment != NULL) count++;
  }
  CHECK(count == f->allocation[0] - f->committed, 2, "%lld handles for %lld blocks", (long long)count,
        (long long)(f->allocation[0] - f->committed));
  return 0;
}

static int device_walk(tide_device_cache* device) {
  findings f;
  memset(&f, 0, sizeof f);
  f.device = device;
  CHECK_ALL(pool_walk(&f, &device->default_pool));
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) CHECK_ALL(pool_walk(&f, pool));
  CHECK_ALL(handles_check(&f));
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide__ignore(tide_device_get_stats(device, &stats));
  return stats_check(&f, &stats);
}

// The thread that answers other processes needs the gate to change anything.
int tide_device_check(tide_device_cache* device) {
  if (device == NULL || tide__is_inherited(device)) return 0;
  (void)tide__gate_enter(device);
  tide__gate_settle(device);  // a thread of the allocator may have paused with memory in its hands
  const int broken = device_walk(device);
  tide__gate_leave(device);
  return broken;
}

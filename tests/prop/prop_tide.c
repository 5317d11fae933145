// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the policy `tide` on a device so small that most large blocks are stitched: random requests
// of several streams and pools, announcements, trims, limits, captures, blocks that are shared, streams that
// go, and faults of the machine, beside a list of what is handed out. On the host machine every page of a
// block gets a tag of its own, written and read by late work on streams, so that bytes that two blocks share,
// or that are used too early, show in the data, whatever address they have.
//
// Besides what tide_device_check() finds, these hold after every operation: the bytes that a visit shows add
// up to the statistics, and so do those that the history tells of; no limit is passed; memory is made only
// within the slack above the peak, or when what is idle lies in parts of handles; and a request fails only if
// the device has not enough left after everything idle was given back.
#define T_THREADS
#include <unistd.h>

#include "prop/work.h"

#define SLOTS 28u
#define STREAMS 4u
#define GRAPHS 2u
#define GRAPH_BLOCKS 3u
#define RANGES 2048u
#define CAPACITY (96 * MIB)
#define SHARED_MOST (16 * MIB)
#define PARTS_MAX 16u

// ---------------------------------------------------------------------------------------------------
// The model

typedef struct item {
  bool is_used;
  uint8_t stream;
  uint8_t uses;  // other streams that read it, as bits
  size_t bytes;
  uint64_t tag;
  tide_block block;
  void* imported;  // the same memory, as another process would see it; or NULL
  bool is_plain;   // of a plain pool, which splits as PyTorch does: up to 1 MiB more may be handed out
} item;

// What was captured, and the memory that its launches write.
typedef struct graph {
  bool is_used;
  uint8_t value;
  uint8_t stream;
  tide_pool pool;
  tide_launch launch;
  size_t count;
  uint8_t* addresses[GRAPH_BLOCKS];
  size_t bytes[GRAPH_BLOCKS];
} graph;

// Where the history says that memory is, by address, without neighbours.
typedef struct atlas {
  size_t count;
  bool is_wrong;
  struct {
    uint64_t begin;
    uint64_t end;
  } ranges[RANGES];
} atlas;

typedef struct model {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;
  size_t free_before;
  tide_stream streams[STREAMS];
  tide_event ordering;
  item items[SLOTS];
  tide_block stale[SLOTS];
  graph graphs[GRAPHS];
  tide_pool pool;  // a private one, or TIDE_POOL_DEFAULT
  bool is_pool_plain;
  uint64_t tags;
  uint64_t peak;      // of active bytes of large blocks, with the request of the day
  uint64_t asked;     // by the last request, if it failed
  uint64_t reserved;  // of large blocks of the default pool, before the operation
  uint64_t total;     // of all pools, before the operation
  bool has_closed;    // a stream, with blocks of it handed out
  faults faults;
  tide_device_options options;
  atlas mapped;
} model;

// ---------------------------------------------------------------------------------------------------
// Data

static content content_of(const item* it) { return (content){ it->block.address, it->bytes, it->tag }; }

static bool is_shared_content(const model* s, const item* it) {
  return content_is_there(s->m, (content){ it->imported, it->bytes, it->tag });
}

static bool do_sweep(model* s, const op* o) {
  (void)o;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    EXPECT(!it->is_used || content_is_there(s->m, content_of(it)), "block %zu has other bytes", i);
    EXPECT(!it->is_used || it->imported == NULL || is_shared_content(s, it),
           "block %zu has other bytes for those who share it", i);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// History

// The first range that ends behind an address.
static size_t atlas_find(const atlas* a, uint64_t address) {
  size_t i = 0;
  while (i < a->count && a->ranges[i].end <= address) i++;
  return i;
}

static void atlas_insert(atlas* a, size_t at, uint64_t begin, uint64_t end) {
  T_LT(a->count, RANGES);
  memmove(&a->ranges[at + 1], &a->ranges[at], (a->count - at) * sizeof a->ranges[0]);
  a->ranges[at].begin = begin;
  a->ranges[at].end = end;
  a->count++;
}

static void atlas_erase(atlas* a, size_t at) {
  a->count--;
  memmove(&a->ranges[at], &a->ranges[at + 1], (a->count - at) * sizeof a->ranges[0]);
}

// Memory comes to addresses that had none.
static void atlas_map(atlas* a, uint64_t begin, uint64_t end) {
  size_t i = atlas_find(a, begin);
  if (i < a->count && a->ranges[i].begin < end) a->is_wrong = true;
  if (a->is_wrong) return;
  if (i < a->count && a->ranges[i].begin == end) {
    end = a->ranges[i].end;
    atlas_erase(a, i);
  }
  if (i > 0 && a->ranges[i - 1].end == begin) a->ranges[i - 1].end = end;
  else atlas_insert(a, i, begin, end);
}

// Memory goes from addresses that had it.
static void atlas_unmap(atlas* a, uint64_t begin, uint64_t end) {
  const size_t i = atlas_find(a, begin);
  if (i == a->count || a->ranges[i].begin > begin || a->ranges[i].end < end) a->is_wrong = true;
  if (a->is_wrong) return;
  const uint64_t behind = a->ranges[i].end;
  a->ranges[i].end = begin;
  if (end < behind) atlas_insert(a, i + 1, end, behind);
  if (a->ranges[i].begin == begin) atlas_erase(a, i);
}

static void atlas_hear(void* user, const tide_trace_entry* entry) {
  atlas* const a = user;
  const uint64_t end = entry->address + entry->bytes;
  if (entry->action == TIDE_ACTION_SEGMENT_MAP || entry->action == TIDE_ACTION_SEGMENT_ALLOC) {
    atlas_map(a, entry->address, end);
  }
  if (entry->action == TIDE_ACTION_SEGMENT_UNMAP || entry->action == TIDE_ACTION_SEGMENT_FREE) {
    atlas_unmap(a, entry->address, end);
  }
  if (entry->action != TIDE_ACTION_ALLOC) return;
  const size_t i = atlas_find(a, entry->address);
  if (i == a->count || a->ranges[i].begin > entry->address || a->ranges[i].end < end) a->is_wrong = true;
}

static bool atlas_agrees(const model* s, const tide_device_stats* stats) {
  uint64_t bytes = 0;
  EXPECT(!s->mapped.is_wrong, "the history maps, unmaps or hands out what it should not");
  for (size_t i = 0; i < s->mapped.count; i++) bytes += s->mapped.ranges[i].end - s->mapped.ranges[i].begin;
  EXPECT(bytes == (uint64_t)stats->reserved_bytes[0].current,
         "the history says that %llu bytes are mapped, reserved are %lld", (unsigned long long)bytes,
         (long long)stats->reserved_bytes[0].current);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Statistics

static bool stats_get(const model* s, tide_device_stats* out) {
  *out = (tide_device_stats)TIDE_DEVICE_STATS_INIT;
  EXPECT_OK(tide_device_get_stats(s->d, out));
  return true;
}

// Large blocks of the default pool; the private pools of this test have no small ones.
static bool reserved_get(const model* s, const tide_device_stats* stats, uint64_t* out) {
  EXPECT_OK(tide_device_pool_reserved(s->d, TIDE_POOL_DEFAULT, out));
  *out -= (uint64_t)stats->reserved_bytes[TIDE_STAT_SMALL].current;
  return true;
}

// A mark that failed, or a stream that was closed before its blocks were released, leaves memory that others
// cannot use before another mark has passed.
static bool marks_are_missing(const model* s) {
  static const tide_call calls[] = { TIDE_CALL_EVENT_NEW, TIDE_CALL_EVENT_RECORD, TIDE_CALL_EVENT_QUERY,
                                     TIDE_CALL_STREAM_WAIT, TIDE_CALL_CAPTURE_INFO };
  uint64_t failures = 0;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    failures += tide_machine_call_stats(s->m, calls[i]).failures;
  }
  return failures > 0 || s->has_closed;
}

// Memory is made only within the slack, which steady growth raises where there is no limit; up to two handles
// above it, if a view would need new memory as well; or if all that is idle lies in handles that blocks have
// parts of: each block has parts of two at most.
static bool growth_is_justified(model* s, const tide_device_stats* stats) {
  uint64_t reserved = 0;
  if (!reserved_get(s, stats, &reserved)) return false;
  const uint64_t total = (uint64_t)stats->reserved_bytes[TIDE_STAT_ALL].current;
  const uint64_t active = (uint64_t)stats->active_bytes[TIDE_STAT_LARGE].current + s->asked;
  const uint64_t parts = 2 * (uint64_t)stats->active[TIDE_STAT_LARGE].current + 3;
  const uint64_t large = (uint64_t)stats->reserved_bytes[TIDE_STAT_LARGE].current;
  const double growth = tide_device_limit(s->d) == TIDE_NO_LIMIT ? 10 : 1;
  const uint64_t unit = s->options.tide_least_handle_bytes;
  const double slack = (double)s->peak * (1 + growth * s->options.tide_slack) + 2 * (double)unit;
  // By memory, not by time, and not because streams keep some to themselves or have no marks of it.
  const bool is_bounded = s->options.tide_stitch_share == 1 && s->options.tide_idle_handles == 0 &&
                          !marks_are_missing(s);
  EXPECT(!is_bounded || reserved <= s->reserved || (double)large <= slack ||
             reserved <= active + parts * unit,
         "%llu bytes are reserved, before %llu, with %llu active in %lld blocks and a peak of %llu",
         (unsigned long long)reserved, (unsigned long long)s->reserved, (unsigned long long)active,
         (long long)stats->active[0].current, (unsigned long long)s->peak);
  const uint64_t limit = tide_device_limit(s->d);
  EXPECT(total <= limit || total <= s->total, "%llu bytes are reserved above a limit of %llu",
         (unsigned long long)total, (unsigned long long)limit);
  s->reserved = reserved;
  s->total = total;
  s->asked = 0;
  return true;
}

static bool stats_agree(model* s) {
  tide_device_stats stats;
  int64_t live = 0;
  int64_t live_bytes = 0;
  int64_t more_bytes = 0;
  if (!stats_get(s, &stats)) return false;
  for (size_t i = 0; i < SLOTS; i++) {
    live += s->items[i].is_used;
    live_bytes += s->items[i].is_used ? (int64_t)(s->items[i].bytes + 511) / 512 * 512 : 0;
    more_bytes += s->items[i].is_used && s->items[i].is_plain ? (int64_t)MIB : 0;
  }
  const int64_t more = stats.allocated_bytes[0].current - live_bytes;
  EXPECT(stats.allocation[0].current == live && more >= 0 && more <= more_bytes,
         "%lld blocks of %lld bytes are handed out, the model says %lld of %lld",
         (long long)stats.allocation[0].current, (long long)stats.allocated_bytes[0].current, (long long)live,
         (long long)live_bytes);
  EXPECT(stats.active_bytes[0].current <= stats.reserved_bytes[0].current, "more is active than reserved");
  EXPECT(free_bytes(s->m, 0) + (size_t)stats.reserved_bytes[0].current <= s->free_before,
         "the machine has %zu bytes left of %zu, with %lld reserved", free_bytes(s->m, 0), s->free_before,
         (long long)stats.reserved_bytes[0].current);
  return atlas_agrees(s, &stats) && growth_is_justified(s, &stats);
}

// What a visit shows.
typedef struct shown {
  const model* s;
  uint64_t end;  // of the segment before
  uint64_t bytes;
  uint64_t active;
  uint64_t in_blocks;
  size_t found;  // items
  bool is_wrong;
} shown;

static bool shown_segment(void* user, const tide_segment_info* segment) {
  shown* const w = user;
  w->is_wrong = w->is_wrong || segment->address < w->end;
  w->end = segment->address + segment->bytes;
  w->bytes += segment->bytes;
  w->active += segment->active_bytes;
  return true;
}

static bool shown_block(void* user, const tide_block_info* block) {
  shown* const w = user;
  w->in_blocks += block->bytes;
  for (size_t i = 0; i < SLOTS && block->state == TIDE_BLOCK_ALLOCATED; i++) {
    const item* const it = &w->s->items[i];
    if (!it->is_used || (uint64_t)(uintptr_t)it->block.address != block->address) continue;
    w->found++;
    w->is_wrong = w->is_wrong || block->requested_bytes != it->bytes;
  }
  return true;
}

static bool do_visit(model* s, const op* o) {
  shown w = { .s = s };
  const tide_device_visitor visitor = { shown_segment, shown_block, &w };
  tide_device_stats stats;
  size_t live = 0;
  (void)o;
  EXPECT_OK(tide_device_visit(s->d, &visitor));
  if (!stats_get(s, &stats)) return false;
  for (size_t i = 0; i < SLOTS; i++) live += s->items[i].is_used;
  EXPECT(!w.is_wrong && w.found == live, "a visit shows %zu of %zu blocks, or segments that overlap", w.found,
         live);
  EXPECT(w.bytes == (uint64_t)stats.reserved_bytes[0].current && w.in_blocks == w.bytes,
         "a visit shows %llu bytes in segments and %llu in blocks, reserved are %lld",
         (unsigned long long)w.bytes, (unsigned long long)w.in_blocks,
         (long long)stats.reserved_bytes[0].current);
  EXPECT(w.active == (uint64_t)stats.active_bytes[0].current, "a visit shows %llu active bytes",
         (unsigned long long)w.active);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static bool item_begin(model* s, size_t slot, item it) {
  const uint64_t address = (uint64_t)(uintptr_t)it.block.address;
  EXPECT(address % 512 == 0, "%p is not aligned", it.block.address);
  for (size_t i = 0; i < SLOTS; i++) {
    const uint64_t other = (uint64_t)(uintptr_t)s->items[i].block.address;
    EXPECT(!s->items[i].is_used || address >= other + s->items[i].bytes || other >= address + it.bytes,
           "%p with %zu bytes overlaps block %zu", it.block.address, it.bytes, i);
  }
  it.is_used = true;
  it.tag = ++s->tags;
  s->items[slot] = it;
  EXPECT_OK(work_write(s->m, s->streams[it.stream], content_of(&it)));
  return true;
}

// One in 16 small, one in 32 a large part of the device, the others 1 to 10 MiB.
static size_t op_bytes(const op* o) {
  if (o->value % 16 == 0) return 1 + o->number % (512 * KIB);
  if (o->value % 32 == 1) return 12 * MIB + o->number % (48 * MIB);
  return 513 * KIB + o->number % (o->value % 4 == 0 ? 10 * MIB : 4 * MIB);
}

static bool note_request(model* s, size_t bytes) {
  tide_device_stats stats;
  if (!stats_get(s, &stats)) return false;
  const size_t more = bytes > 512 * KIB ? (bytes + 511) / 512 * 512 : 0;
  const uint64_t active = (uint64_t)stats.active_bytes[TIDE_STAT_LARGE].current + more;
  if (active > s->peak) s->peak = active;
  return true;
}

// A request failed: what the device has left, now that everything idle was given back, is not enough.
static bool is_true_alarm(model* s, size_t bytes) {
  tide_device_stats stats;
  if (!stats_get(s, &stats)) return false;
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[0].current;
  const uint64_t limit = tide_device_limit(s->d);
  const uint64_t allowed = limit > reserved ? limit - reserved : 0;
  const uint64_t left = allowed < free_bytes(s->m, 0) ? allowed : free_bytes(s->m, 0);
  const uint64_t unit = s->options.tide_least_handle_bytes;
  EXPECT((bytes + unit - 1) / unit * unit > left, "alloc of %zu bytes failed with %llu left (%.200s)", bytes,
         (unsigned long long)left, tide_last_error()->text);
  return true;
}

static bool item_alloc(model* s, size_t slot, uint8_t stream, size_t bytes) {
  item it = { .stream = stream, .bytes = bytes };
  if (!note_request(s, bytes)) return false;
  const tide_status status = ASK(&s->faults, tide_device_alloc(s->d, s->streams[stream], bytes, &it.block));
  if (status == TIDE_OK) return item_begin(s, slot, it);
  s->asked = bytes;
  EXPECT(it.block.address == NULL && it.block.handle == 0, "a request that failed returned a block");
  if (s->faults.is_met) return expect_unless_faulty(&s->faults, "alloc", status);
  return expect_status("alloc", status, TIDE_ERR_NO_MEMORY) && is_true_alarm(s, bytes);
}

static bool do_alloc(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  return s->items[slot].is_used || item_alloc(s, slot, o->other % STREAMS, op_bytes(o));
}

// Asks for memory where a released block was, or near.
static bool do_alloc_at(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  item it = { .stream = o->other % STREAMS, .bytes = 513 * KIB + o->number % (3 * MIB) };
  if (s->items[slot].is_used || s->stale[slot].address == NULL) return true;
  uint8_t* const where = (uint8_t*)s->stale[slot].address + o->value % 4 * (512 * KIB);
  if (!note_request(s, it.bytes)) return false;
  const tide_status status =
      ASK(&s->faults, tide_device_alloc_at(s->d, s->streams[it.stream], it.bytes, where, &it.block));
  if (status != TIDE_OK) return s->faults.is_met || expect_status("alloc_at", status, TIDE_ERR_NO_MEMORY);
  EXPECT(it.block.address == where, "alloc_at: %p instead of %p", it.block.address, (void*)where);
  return item_begin(s, slot, it);
}

// Opens a block as another process would.
static bool do_share(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[PARTS_MAX];
  if (!is_host(s->m) || !it->is_used || it->imported != NULL || it->bytes > SHARED_MOST) return true;
  tide_status status = ASK(&s->faults, tide_device_share(s->d, it->block.address, &share, parts, PARTS_MAX));
  if (status != TIDE_OK) return expect_unless_faulty(&s->faults, "share", status);
  if (share.part_count == 0) return true;  // raw memory of a plain pool is not imported by its own process
  status = ASK(&s->faults, tide_device_import(s->d, &share, parts, &it->imported));
  for (size_t i = 0; i < share.part_count; i++) (void)close(parts[i].descriptor);
  EXPECT((status == TIDE_OK) == (it->imported != NULL), "import is %s, at %p", tide_status_name(status),
         it->imported);
  return expect_unless_faulty(&s->faults, "import", status);
}

// Before a block is released, all its work done. The release of shared memory may be tried again.
static bool item_unshare(model* s, item* it) {
  if (it->imported == NULL) return true;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT(is_shared_content(s, it), "a block has other bytes for those who share it");
  const tide_status status = ASK(&s->faults, tide_device_unimport(s->d, it->imported));
  if (!expect_unless_faulty(&s->faults, "unimport", status)) return false;
  if (status != TIDE_OK) EXPECT_OK(tide_device_unimport(s->d, it->imported));
  it->imported = NULL;
  return true;
}

static bool item_release(model* s, size_t slot, bool is_by_address) {
  item* const it = &s->items[slot];
  if (!item_unshare(s, it)) return false;
  EXPECT_OK(work_read(s->m, s->streams[it->stream], content_of(it)));
  const tide_status status = ASK(&s->faults, is_by_address
                                                 ? tide_device_release_address(s->d, it->block.address)
                                                 : tide_device_release(s->d, it->block));
  if (!expect_status("release", status, TIDE_OK)) return false;
  s->stale[slot] = it->block;
  it->is_used = false;
  EXPECT_STATUS(tide_device_release(s->d, it->block), TIDE_ERR_HANDLE);
  return true;
}

static bool do_release(model* s, const op* o) {
  return !s->items[o->slot % SLOTS].is_used || item_release(s, o->slot % SLOTS, o->value % 2 == 0);
}

// Every other block, as programs do at the end of a step: many holes at once.
static bool do_comb(model* s, const op* o) {
  for (size_t i = o->slot % 2; i < SLOTS; i += 2) {
    if (s->items[i].is_used && !item_release(s, i, false)) return false;
  }
  return true;
}

static bool do_find(model* s, const op* o) {
  const item* const it = &s->items[o->slot % SLOTS];
  tide_block found;
  if (!it->is_used) return true;
  EXPECT_OK(tide_device_find(s->d, it->block.address, &found));
  EXPECT(found.handle == it->block.handle, "find: another block");
  if (it->bytes <= 512) return true;
  EXPECT_STATUS(tide_device_find(s->d, (const char*)it->block.address + 512, &found), TIDE_ERR_HANDLE);
  return true;
}

// Another stream reads the block, late.
static bool do_record(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  const uint8_t stream = o->other % STREAMS;
  if (!it->is_used || stream == it->stream) return true;
  EXPECT_OK(work_follow(s->m, s->streams[stream], s->streams[it->stream], s->ordering));
  EXPECT_OK(work_delay(s->m, s->streams[stream], o->number % 128));
  EXPECT_OK(work_read(s->m, s->streams[stream], content_of(it)));
  EXPECT_OK(tide_device_record(s->d, it->block, s->streams[stream]));
  it->uses = (uint8_t)(it->uses | 1u << stream);
  return true;
}

static bool do_delay(model* s, const op* o) {
  EXPECT_OK(work_delay(s->m, s->streams[o->other % STREAMS], o->number % 256));
  return true;
}

static bool do_fault(model* s, const op* o) {
  faults_draw(&s->faults, o);
  return true;
}

static bool do_poll(model* s, const op* o) {
  if (o->value % 4 == 0) EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  return expect_unless_faulty(&s->faults, "poll", ASK(&s->faults, tide_device_poll(s->d)));
}

// After a trim the peak is what large blocks have reserved then, whether active or not.
static bool do_trim(model* s, const op* o) {
  tide_device_stats stats;
  (void)o;
  const tide_status status = ASK(&s->faults, tide_device_trim(s->d, 0));
  if (!expect_unless_faulty(&s->faults, "trim", status) || !stats_get(s, &stats)) return false;
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[TIDE_STAT_LARGE].current;
  if (status == TIDE_OK || reserved > s->peak) s->peak = reserved;
  return true;
}

static bool do_limit(model* s, const op* o) {
  const uint64_t many = o->value % 2 == 0 ? CAPACITY : TIDE_NO_LIMIT;
  const uint64_t bytes = o->value % 3 == 0 ? many : (30 + o->number % 60) * MIB;
  EXPECT_OK(tide_device_set_limit(s->d, bytes));
  return true;
}

static bool configure(model* s, const tide_device_options* options) {
  EXPECT_OK(tide_device_configure(s->d, options));
  s->options = *options;
  return true;
}

static bool do_configure(model* s, const op* o) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.tide_idle_handles = o->other % 8 == 1 ? o->number % 4u : 0;
  options.tide_stitch_share = 1;
  if (o->value % 2 == 0) options.tide_slack = (double)(o->number % 100) / 1000;
  if (o->value % 8 == 1) options.tide_stitch_share = (double)(o->number % 10) / 100;
  if (o->value % 8 == 3) options.tide_stitch_share = 0;  // always in a hurry
  if (o->value % 8 == 3) options.tide_most_slack = (double)(o->number % 3) / 2;
  if (o->value % 4 == 2) options.tide_floor_bytes = o->number % 64 * MIB;
  if (o->other % 8 == 0) options.tide_least_handle_bytes = 4 * MIB;
  return configure(s, &options);
}

static bool do_reset(model* s, const op* o) {
  if (o->value % 2 == 0) tide_device_reset_accumulated(s->d);
  else tide_device_reset_peaks(s->d);
  return true;
}

static bool stream_has_graph(const model* s, uint8_t stream) {
  for (size_t i = 0; i < GRAPHS; i++) {
    if (s->graphs[i].is_used && s->graphs[i].stream == stream) return true;
  }
  return false;
}

// Blocks of a stream, or those announced to it.
static size_t stream_count_items(const model* s, uint8_t stream, bool is_own) {
  size_t count = 0;
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    if (it->is_used) count += is_own ? it->stream == stream : (it->uses >> stream & 1u);
  }
  return count;
}

// Blocks that outlive their stream are used on the new one, which is announced.
static bool items_move_on(model* s, uint8_t stream) {
  for (size_t i = 0; i < SLOTS; i++) {
    item* const it = &s->items[i];
    if (!it->is_used || it->stream != stream) continue;
    EXPECT_OK(tide_device_record(s->d, it->block, s->streams[stream]));
    it->uses |= (uint8_t)(1u << stream);
  }
  return true;
}

// A stream goes and a new one comes; idle memory of the old one stays. If blocks of it are handed out, the
// allocator is told.
static bool do_renew(model* s, const op* o) {
  const uint8_t stream = o->other % STREAMS;
  if (stream == 0 || stream_has_graph(s, stream) || stream_count_items(s, stream, false) != 0) return true;
  const bool is_closed = o->value % 2 == 0;
  if (!is_closed && stream_count_items(s, stream, true) != 0) return true;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT_OK(tide_device_poll(s->d));
  if (is_closed) EXPECT_OK(tide_device_close_stream(s->d, s->streams[stream]));
  EXPECT_OK(tide_machine_stream_free(s->m, 0, s->streams[stream]));
  EXPECT_OK(tide_machine_stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING, 0, &s->streams[stream]));
  s->has_closed |= is_closed && stream_count_items(s, stream, true) != 0;
  return items_move_on(s, stream);
}

static void job_wait(void* user) {
  while (!atomic_load((atomic_bool*)user)) t_sleep_us(50);
}

static void job_raise(void* user) { atomic_store((atomic_bool*)user, true); }

// A stream stops for something that another will do later, as a receive waits for a peer that waits for us.
// What the other takes meanwhile must not make it wait for the first.
static bool do_hold(model* s, const op* o) {
  const uint8_t late = (uint8_t)(1 + o->other % (STREAMS - 1));
  const uint8_t other = (uint8_t)(1 + late % (STREAMS - 1));
  tide_block blocks[3];
  static atomic_bool flag;
  bool is_idle = false;
  if (!is_host(s->m) || free_bytes(s->m, 0) < 64 * MIB || tide_device_limit(s->d) < CAPACITY) return true;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT_OK(tide_device_poll(s->d));
  atomic_store(&flag, false);
  EXPECT_OK(tide_machine_call(s->m, 0, s->streams[late], job_wait, &flag));
  for (size_t i = 0; i < 3; i++) {
    const size_t bytes = (1 + o->number % 15) * MIB;
    if (!note_request(s, bytes)) return false;
    EXPECT_OK(tide_device_alloc(s->d, s->streams[other], bytes, &blocks[i]));
    EXPECT_OK(tide_machine_fill(s->m, 0, s->streams[other], blocks[i].address, 1, MIB));
  }
  EXPECT_OK(tide_machine_call(s->m, 0, s->streams[other], job_raise, &flag));
  for (int i = 0; i < 200000 && !is_idle; i++) {
    EXPECT_OK(tide_machine_stream_query(s->m, 0, s->streams[other], &is_idle));
    if (!is_idle) t_sleep_us(100);
  }
  atomic_store(&flag, true);
  EXPECT(is_idle, "a stream waits for work that waits for it");
  for (size_t i = 0; i < 3; i++) EXPECT_OK(tide_device_release(s->d, blocks[i]));
  tide_device_stats stats;
  return stats_get(s, &stats) && reserved_get(s, &stats, &s->reserved);  // it grew while they were there
}

// ---------------------------------------------------------------------------------------------------
// Private pools and captures

static bool pool_is_plain(const op* o) { return o->value % 2 == 1; }

// A private pool, plain or not.
static tide_status pool_make(model* s, const op* o, tide_pool* out) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.is_plain = pool_is_plain(o);
  return tide_device_pool_new(s->d, &options, out);
}

// A large block from a private pool; in a plain one, up to 1 MiB are small.
static bool do_pool_alloc(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  item it = { .stream = o->other % STREAMS, .bytes = MIB + KIB + o->number % (5 * MIB) };
  if (s->items[slot].is_used) return true;
  if (s->pool == TIDE_POOL_DEFAULT) {
    EXPECT_OK(pool_make(s, o, &s->pool));
    s->is_pool_plain = pool_is_plain(o);
  }
  it.is_plain = s->is_pool_plain;
  EXPECT_OK(tide_device_pool_begin(s->d, s->pool, NULL));
  if (!note_request(s, it.bytes)) return false;
  const tide_status status =
      ASK(&s->faults, tide_device_alloc(s->d, s->streams[it.stream], it.bytes, &it.block));
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));  // announced work is joined before a scope ends
  EXPECT_OK(tide_device_pool_end(s->d, s->pool));
  if (status == TIDE_OK) return item_begin(s, slot, it);
  return s->faults.is_met ? expect_unless_faulty(&s->faults, "alloc", status)
                          : expect_status("alloc", status, TIDE_ERR_NO_MEMORY);
}

static bool do_pool_leave(model* s, const op* o) {
  (void)o;
  if (s->pool == TIDE_POOL_DEFAULT) return true;
  EXPECT_OK(tide_device_pool_drop(s->d, s->pool));
  s->pool = TIDE_POOL_DEFAULT;
  return true;
}

// Inside a capture: takes memory, fills it, and gives it back. A fault of any call would also hit those that
// ask whether a stream is captured, and then nobody can know where its memory belongs.
static bool graph_record(model* s, graph* g, const op* o) {
  if (s->faults.fault.call == TIDE_CALL_ANY) s->faults.calls = 0;
  for (size_t i = 0; i < GRAPH_BLOCKS; i++) {
    const size_t bytes = MIB + KIB + (o->number >> i) % (2 * MIB);
    tide_block block;
    if (!note_request(s, bytes)) return false;
    const tide_status status = ASK(&s->faults, tide_device_alloc(s->d, s->streams[g->stream], bytes, &block));
    if (status != TIDE_OK) {
      EXPECT(s->faults.is_met || status == TIDE_ERR_NO_MEMORY, "alloc is %s", tide_status_name(status));
      continue;
    }
    EXPECT_OK(tide_machine_fill(s->m, 0, s->streams[g->stream], block.address, g->value, bytes));
    g->addresses[g->count] = block.address;
    g->bytes[g->count++] = bytes;
    if (i > 0) EXPECT_OK(tide_device_release(s->d, block));
    else EXPECT_OK(tide_device_release_address(s->d, block.address));
  }
  return true;
}

static bool do_capture(model* s, const op* o) {
  graph* const g = &s->graphs[o->slot % GRAPHS];
  tide_scope scope = TIDE_SCOPE_INIT;
  if (g->is_used) return true;
  *g = (graph){ .is_used = true, .value = o->value, .stream = (uint8_t)(1 + o->other % (STREAMS - 1)) };
  scope.kind = TIDE_SCOPE_CAPTURE;
  scope.stream = s->streams[g->stream];
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT_OK(pool_make(s, o, &g->pool));
  EXPECT_OK(tide_machine_capture_begin(s->m, 0, scope.stream, TIDE_CAPTURE_THREAD_LOCAL));
  EXPECT_OK(tide_device_pool_begin(s->d, g->pool, &scope));
  if (!graph_record(s, g, o)) return false;
  EXPECT_OK(tide_machine_capture_end(s->m, 0, scope.stream, &g->launch));
  EXPECT_OK(tide_device_pool_end(s->d, g->pool));
  return true;
}

// Launches a graph again, which writes all its memory; the last block that had some of it shows.
static bool do_launch(model* s, const op* o) {
  const graph* const g = &s->graphs[o->slot % GRAPHS];
  if (!g->is_used) return true;
  EXPECT_OK(tide_machine_launch(s->m, 0, g->launch, s->streams[g->stream]));
  EXPECT_OK(tide_machine_stream_synchronize(s->m, 0, s->streams[g->stream]));
  for (size_t i = 0; i < g->count && is_host(s->m); i++) {
    EXPECT(g->addresses[i][0] == g->value && g->addresses[i][g->bytes[i] - 1] == g->value,
           "the memory of a graph has other bytes");
  }
  return true;
}

static bool graph_end(model* s, graph* g) {
  if (!g->is_used) return true;
  EXPECT_OK(tide_machine_launch_free(s->m, g->launch));
  EXPECT_OK(tide_device_pool_drop(s->d, g->pool));
  g->is_used = false;
  return true;
}

static bool do_graph_end(model* s, const op* o) {
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  return graph_end(s, &s->graphs[o->slot % GRAPHS]);
}

// ---------------------------------------------------------------------------------------------------
// Verbs

// Name, function, how often of 1000.
// clang-format off
#define VERB_MAP(X)                                                                                      \
  X(ALLOC, do_alloc, 409) X(ALLOC_AT, do_alloc_at, 15) X(RELEASE, do_release, 290) X(COMB, do_comb, 12)  \
  X(FIND, do_find, 10) X(RECORD, do_record, 60) X(DELAY, do_delay, 20) X(POLL, do_poll, 15)              \
  X(TRIM, do_trim, 8) X(LIMIT, do_limit, 10) X(CONFIGURE, do_configure, 5) X(RESET, do_reset, 6)         \
  X(RENEW, do_renew, 10) X(HOLD, do_hold, 6) X(POOL_ALLOC, do_pool_alloc, 25)                            \
  X(POOL_LEAVE, do_pool_leave, 5) X(CAPTURE, do_capture, 8) X(LAUNCH, do_launch, 15)                     \
  X(GRAPH_END, do_graph_end, 6) X(FAULT, do_fault, 30) X(VISIT, do_visit, 15) X(SWEEP, do_sweep, 10)     \
  X(SHARE, do_share, 10)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static bool (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

// ---------------------------------------------------------------------------------------------------
// Runs

static void model_open(model* s, tide_machine* m) {
  memset(s, 0, sizeof *s);
  s->m = s->faults.m = m;
  for (size_t i = 1; i < STREAMS; i++) s->streams[i] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  s->ordering = event_new(m, 0);
  s->free_before = free_bytes(m, 0);
  counting_heap_init(&s->records, SIZE_MAX, false);
  s->options = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
  s->options.policy = TIDE_POLICY_TIDE;
  s->options.tide_idle_handles = 0;
  s->options.tide_stitch_share = 1;
  s->options.heap = &s->records.heap;
  tide_observer observer = 0;
  T_OK(tide_device_new(m, 0, &s->options, &s->d));
  T_OK(tide_device_observe_trace(s->d, atlas_hear, &s->mapped, &observer));
  for (size_t i = 0; i < STREAMS; i++) {  // with a second stream, releases leave marks
    tide_block block;
    T_OK(tide_device_alloc(s->d, s->streams[i], 512, &block));
    T_OK(tide_device_release(s->d, block));
  }
}

static bool model_agrees(model* s) {
  EXPECT(!atomic_load(&is_content_wrong), "a stream read other bytes than were written");
  const int broken = tide_device_check(s->d);
  EXPECT(broken == 0, "check: %d (%.200s)", broken, tide_last_error()->text);
  return true;
}

static bool model_close(model* s) {
  const op any = { 0 };
  const tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  s->faults.calls = 0;
  if (!configure(s, &options)) return false;
  if (!do_sweep(s, &any) || !do_visit(s, &any)) return false;
  for (size_t i = 0; i < SLOTS; i++) {
    if (s->items[i].is_used && !item_release(s, i, i % 2 == 0)) return false;
  }
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  for (size_t i = 0; i < GRAPHS; i++) {
    if (!graph_end(s, &s->graphs[i])) return false;
  }
  if (!do_pool_leave(s, &any)) return false;
  EXPECT_OK(tide_device_trim(s->d, 0));
  if (!model_agrees(s) || !stats_agree(s)) return false;
  EXPECT(s->total == 0, "%llu bytes are reserved after a trim", (unsigned long long)s->total);
  EXPECT(free_bytes(s->m, 0) == s->free_before, "%zu bytes of %zu are free after a trim", free_bytes(s->m, 0),
         s->free_before);
  return true;
}

static bool model_free(model* s) {
  tide_device_free(s->d);
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT(atomic_load(&s->records.outstanding) == 0, "%zu bytes of records are left",
         atomic_load(&s->records.outstanding));
  EXPECT(free_bytes(s->m, 0) == s->free_before, "%zu bytes of %zu are free at the end", free_bytes(s->m, 0),
         s->free_before);
  tide_machine_free(s->m);
  return true;
}

static bool play(const op* list, size_t count, size_t check_every) {
  static model s;
  atomic_store(&is_content_wrong, false);
  model_open(&s, prop_machine_new(CAPACITY));
  // Half of the lists begin with a limit that they never reach: then steady growth gets no more slack.
  if (list->value % 2 == 0) EXPECT_OK(tide_device_set_limit(s.d, CAPACITY));
  for (size_t i = 0; i < count; ++i) {
    outcome->at = i;
    if (!functions[list[i].verb](&s, &list[i])) return false;
    if (i % check_every == 0 && !model_agrees(&s)) return false;
    if (!stats_agree(&s)) return false;
  }
  return model_close(&s) && model_free(&s);
}

static const op_suite suite = { "the policy", verbs, sizeof verbs / sizeof *verbs, play, 1024, 4, 16 };

T_TEST_OVER(prop_tide__agrees_with_a_list_of_blocks, machine_emulated) {
  const size_t count = strcmp(t_variant(), "host") == 0 ? 8000 : 40000;
  suite_run(&suite, t_scaled(T_HAS_SANITIZER ? count / 4 : count), true);
}

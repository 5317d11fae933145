// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the device allocator: random calls are compared with a simple model, a list of the blocks
// that are handed out. Every block is filled on its stream as soon as it is handed out, and read late on its
// streams before it is released. So memory that is used too early or twice shows in the data. A released
// block also leaves events on its streams, and whoever gets the memory next must find them done; on dry,
// which has no data, this is the only check. tide_device_check() runs again and again, and faults of the
// machine hit some operations.
//
// The policy tide has several addresses for the same memory and lets streams wait for each other, so there
// only the data decide. Its requests are larger, so that many blocks are stitched.
//
// Other code captures streams of the model now and then. It queues no work there meanwhile, so a block waits
// only for work that was queued before the capture began.
//
// The lists of operations on cuda are played in this process and printed whole.
#define T_THREADS
#include "prop/work.h"

#define SLOTS 96u     // blocks that are handed out at a time
#define STREAMS 5u    // the first is the legacy stream
#define POOLS 4u      // private ones at a time
#define SAVES 3u      // checkpoints at a time
#define RETIRED 128u  // released blocks that are remembered
#define CAPACITY (192 * MIB)

// ---------------------------------------------------------------------------------------------------
// The model

static const char* const variants[] = { "host", "dry", "cuda", "host tide", "dry tide", "cuda tide", NULL };

// A block that is handed out.
typedef struct item {
  bool is_used;
  bool is_cached;
  uint8_t stream;    // an index
  uint8_t uses;      // streams that read it, as bits
  bool is_restored;  // its size in the statistics is that of the block
  bool is_borrowed;  // by a request of the default pool: no checkpoint has it, no restore takes it back
  bool is_written;   // by the one other stream that uses it, which alone may look at it now
  uint8_t writer;    // that stream
  tide_pool pool;
  size_t bytes;
  uint64_t tag;  // what it holds
  tide_block block;
} item;

// A block that was released, and the events at which its streams stood then.
typedef struct retired {
  bool is_used;
  uint8_t stream;
  uint64_t address;
  size_t bytes;
  tide_event events[STREAMS];  // NULL: the stream had nothing to do with it, or
  uint8_t captured;            // others captured it then, as bits: it stood at its tail
} retired;

typedef struct own_pool {
  bool is_used;
  bool has_scope;
  bool use_on_oom;
  uint32_t users;
  tide_pool number;
  tide_scope scope;
} own_pool;

typedef struct save {
  tide_checkpoint* checkpoint;
  tide_pool pool;
  size_t count;
  item items[SLOTS];  // of the pool, when it was made
} save;

typedef struct model {
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;
  size_t free_before;  // bytes of the machine
  uint64_t tags;
  tide_stream streams[STREAMS];
  tide_event ordering;  // makes one stream follow another
  item items[SLOTS];
  tide_block stale[SLOTS];  // the last block that each slot had
  retired past[RETIRED];
  size_t past_next;
  tide_event events[RETIRED * STREAMS];  // idle ones
  size_t event_count;
  own_pool pools[POOLS];
  uint8_t scopes[POOLS];  // pools with an open scope, the newest last
  size_t scope_count;
  save saves[SAVES];
  uint8_t captured;           // streams that others capture, as bits
  tide_event tails[STREAMS];  // where streams stood when others began to capture them last
  // Statistics, by the model.
  int64_t live;        // cached blocks
  int64_t live_bytes;  // that were asked for
  int64_t restored;    // blocks of live that a checkpoint brought back
  int64_t peak;        // of live
  int64_t allocated;   // since the last reset
  int64_t freed;
  int64_t told_bytes;  // taken from the machine, as an observer heard
  bool has_observer;   // in half of the runs, because it makes the allocator note more
  faults faults;
} model;

// ---------------------------------------------------------------------------------------------------
// Captures of others

static bool is_captured(const model* s, size_t stream) { return (s->captured >> stream & 1u) != 0; }

// What the allocator asked of the machine meanwhile may have broken the capture; it ends all the same.
static bool capture_end(model* s, size_t stream) {
  tide_launch graph = NULL;
  const tide_status status = tide_machine_capture_end(s->m, 0, s->streams[stream], &graph);
  s->captured = (uint8_t)(s->captured & ~(1u << stream));
  EXPECT(status == TIDE_OK || status == TIDE_ERR_CAPTURE, "capture_end is %s", tide_status_name(status));
  EXPECT_OK(tide_machine_launch_free(s->m, graph));
  return true;
}

static bool captures_end(model* s) {
  for (size_t i = 0; i < STREAMS; i++) {
    if (is_captured(s, i) && !capture_end(s, i)) return false;
  }
  return true;
}

// While others capture, the machine may refuse to wait.
static bool is_refused_in_capture(const model* s, tide_status status) {
  return s->captured != 0 && status == TIDE_ERR_CAPTURE;
}

// ---------------------------------------------------------------------------------------------------
// Data

static content content_of(const item* it) { return (content){ it->block.address, it->bytes, it->tag }; }

static bool items_are_intact(model* s) {
  if (!captures_end(s)) return false;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    EXPECT(!it->is_used || content_is_there(s->m, content_of(it)), "block %zu has other bytes", i);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Released blocks, and when their memory may be used again

// Where a stream stood when a block was released; NULL: it had nothing to do with it.
static tide_event past_event(const model* s, const retired* r, size_t stream) {
  return (r->captured >> stream & 1u) != 0 ? s->tails[stream] : r->events[stream];
}

static bool past_is_done(const model* s, const retired* r, bool* out) {
  *out = true;
  for (size_t k = 0; k < STREAMS && *out; k++) {
    const tide_event event = past_event(s, r, k);
    if (event != NULL) EXPECT_OK(tide_machine_event_query(s->m, event, out));
  }
  return true;
}

static void past_forget(model* s, retired* r) {
  for (size_t k = 0; k < STREAMS; k++) {
    if (r->events[k] != NULL) s->events[s->event_count++] = r->events[k];
  }
  memset(r, 0, sizeof *r);
}

static bool past_forget_done(model* s) {
  for (size_t i = 0; i < RETIRED; i++) {
    bool is_done = false;
    if (!s->past[i].is_used) continue;
    if (!past_is_done(s, &s->past[i], &is_done)) return false;
    if (is_done) past_forget(s, &s->past[i]);
  }
  return true;
}

// Notes where the streams of a block stand that is about to be released.
static bool past_add(model* s, const item* it, retired** out) {
  retired* const r = &s->past[s->past_next++ % RETIRED];
  for (size_t k = 0; k < STREAMS && r->is_used; k++) {
    const tide_event event = past_event(s, r, k);
    if (event != NULL) EXPECT_OK(tide_machine_event_synchronize(s->m, event));
  }
  if (r->is_used) past_forget(s, r);
  *r = (retired){ .is_used = true, .stream = it->stream, .bytes = it->bytes };
  r->address = (uint64_t)(uintptr_t)it->block.address;
  for (size_t k = 0; k < STREAMS; k++) {
    if (k != it->stream && (it->uses >> k & 1u) == 0) continue;
    if (is_captured(s, k)) {
      r->captured = (uint8_t)(r->captured | 1u << k);
      continue;
    }
    r->events[k] = s->events[--s->event_count];
    EXPECT_OK(tide_machine_event_record(s->m, 0, r->events[k], s->streams[k]));
  }
  *out = r;
  return true;
}

static bool overlaps(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Is the memory of a new block out of use? Work of its own stream comes before what the new owner queues.
static bool past_allows(model* s, const item* it) {
  const uint64_t address = (uint64_t)(uintptr_t)it->block.address;
  for (size_t i = 0; i < RETIRED && !is_tide(); i++) {
    const retired* const r = &s->past[i];
    if (!r->is_used || !overlaps(address, it->bytes, r->address, r->bytes)) continue;
    for (uint8_t k = 0; k < STREAMS; k++) {
      bool is_done = true;
      const tide_event event = past_event(s, r, k);
      if (event == NULL || (k == r->stream && k == it->stream)) continue;
      EXPECT_OK(tide_machine_event_query(s->m, event, &is_done));
      EXPECT(is_done, "%p is handed out on stream %u while stream %u still uses it", it->block.address,
             it->stream, k);
    }
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static bool item_is_apart(const model* s, const item* it) {
  const uint64_t address = (uint64_t)(uintptr_t)it->block.address;
  EXPECT(address % 512 == 0, "%p is not aligned", it->block.address);
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const other = &s->items[i];
    if (!other->is_used || other == it) continue;
    EXPECT(!overlaps(address, it->bytes, (uint64_t)(uintptr_t)other->block.address, other->bytes),
           "%p with %zu bytes overlaps block %zu: %p with %zu bytes", it->block.address, it->bytes, i,
           other->block.address, other->bytes);
  }
  return true;
}

// The pool that the open scopes send a request to.
static own_pool* scope_pool(model* s, uint8_t stream) {
  for (size_t i = s->scope_count; i-- > 0;) {
    own_pool* const p = &s->pools[s->scopes[i]];
    const tide_scope* const c = &p->scope;
    if (c->kind == TIDE_SCOPE_ALL || c->kind == TIDE_SCOPE_THREAD) return p;
    if (c->kind == TIDE_SCOPE_STREAM && c->stream == s->streams[stream]) return p;
    if (c->kind == TIDE_SCOPE_FILTER && c->filter(c->user, s->streams[stream])) return p;
  }
  return NULL;
}

static size_t pool_items(const model* s, tide_pool pool, const void** out) {
  size_t count = 0;
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    if (it->is_used && it->is_cached && it->pool == pool) out[count++] = it->block.address;
  }
  return count;
}

// A pool of the model, or NULL; one without users and blocks may have gone meanwhile.
static own_pool* pool_at(model* s, uint8_t slot) {
  own_pool* const p = &s->pools[slot % POOLS];
  const void* addresses[SLOTS];
  uint32_t users = 0;
  if (p->is_used && p->users == 0 && pool_items(s, p->number, addresses) == 0) {
    p->is_used = tide_device_pool_users(s->d, p->number, &users) == TIDE_OK;
  }
  return p->is_used ? p : NULL;
}

typedef struct search {
  uint64_t address;
  bool is_found;
} search;

static bool search_segment(void* user, const tide_segment_info* segment) {
  search* const w = user;
  if (w->address - segment->address < segment->bytes) w->is_found = true;
  return true;
}

// A request that found no memory elsewhere may have got it from a pool that lends.
static bool item_find_lender(model* s, item* it) {
  for (size_t i = 0; i < POOLS; i++) {
    search w = { (uint64_t)(uintptr_t)it->block.address, false };
    const tide_device_visitor visitor = { search_segment, NULL, &w };
    if (!s->pools[i].use_on_oom || pool_at(s, (uint8_t)i) == NULL) continue;
    EXPECT_OK(tide_device_visit_pool(s->d, s->pools[i].number, &visitor));
    if (!w.is_found) continue;
    it->pool = s->pools[i].number;
    it->is_borrowed = true;
  }
  return true;
}

// A block comes to the model.
static bool item_begin(model* s, size_t slot, item it) {
  it.is_used = true;
  s->items[slot] = it;
  if (!item_is_apart(s, &s->items[slot]) || !past_allows(s, &it)) return false;
  if (it.is_cached) {
    s->live++;
    s->live_bytes += (int64_t)it.bytes;
    s->allocated++;
    s->restored += it.is_restored;
    if (s->live > s->peak) s->peak = s->live;
  }
  if (it.is_cached && it.pool == 0 && !item_find_lender(s, &s->items[slot])) return false;
  EXPECT_OK(work_write(s->m, s->streams[it.stream], content_of(&it)));
  return true;
}

// A block leaves the model.
static void item_end(model* s, size_t slot) {
  item* const it = &s->items[slot];
  if (it->is_cached) {
    s->live--;
    s->live_bytes -= (int64_t)it->bytes;
    s->freed++;
    s->restored -= it->is_restored;
  }
  s->stale[slot] = it->block;
  it->is_used = false;
}

// Is there so much memory that a request cannot have failed for want of it? Asking settles the statistics, so
// it is asked afterwards only: what idled then was given back, and more is free than before.
static bool has_plenty(model* s, size_t bytes) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(s->d, &stats));
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[0].current;
  const uint64_t limit = tide_device_limit(s->d);
  const uint64_t need = 2 * (uint64_t)bytes + 64 * MIB;
  return need <= free_bytes(s->m, 0) && (limit == TIDE_NO_LIMIT || need + reserved <= limit);
}

// 1 byte to 8 MiB, each power of two as likely as any; one in 32 is larger, one in 256 far too large. With
// the policy tide half of the others are about a MiB and more.
static size_t op_bytes(const op* o) {
  if (o->value == 255) return o->number % 2 == 0 ? GIB : (size_t)1 << 61;
  if (o->value % 32 == 31) return 8 * MIB + o->number % (64 * MIB);
  if (is_tide() && o->value % 2 == 0) return MIB / 2 + (o->number >> 8) % (4 * MIB);
  const size_t power = (size_t)1 << (o->number >> 8) % 23;
  return power + (o->number >> 8) / 23 % power;
}

static bool do_alloc(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  if (s->items[slot].is_used) return true;
  const uint8_t stream = o->other % STREAMS;
  if (is_captured(s, stream)) return true;
  const own_pool* const pool = scope_pool(s, stream);
  item it = { .tag = ++s->tags, .stream = stream, .bytes = op_bytes(o) };
  it.pool = pool != NULL ? pool->number : TIDE_POOL_DEFAULT;
  it.is_cached = tide_device_is_caching(s->d);
  const tide_status status =
      ASK(&s->faults, tide_device_alloc(s->d, s->streams[stream], it.bytes, &it.block));
  if (it.bytes >= (size_t)1 << 60) return expect_status("alloc", status, TIDE_ERR_ARGUMENT);
  if (status == TIDE_OK) return item_begin(s, slot, it);
  if (is_refused_in_capture(s, status)) return true;
  EXPECT(it.block.address == NULL && it.block.handle == 0, "a request that failed returned a block");
  EXPECT(s->faults.is_met || s->captured != 0 || !has_plenty(s, it.bytes),
         "alloc of %zu bytes is %s with memory in plenty (%.200s)", it.bytes, tide_status_name(status),
         tide_last_error()->text);
  if (s->faults.is_met) return expect_unless_faulty(&s->faults, "alloc", status);
  return expect_status("alloc", status, TIDE_ERR_NO_MEMORY);
}

// Asks for memory where a released block was.
static bool do_alloc_at(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  const uint8_t stream = o->other % STREAMS;
  const own_pool* const pool = scope_pool(s, stream);
  if (s->items[slot].is_used || s->stale[slot].address == NULL || !tide_device_is_caching(s->d)) return true;
  if (is_captured(s, stream)) return true;
  if ((uintptr_t)s->stale[slot].address % 512 != 0) return true;
  item it = { .tag = ++s->tags, .stream = stream, .bytes = 1 + o->number % (2 * MIB), .is_cached = true };
  it.pool = pool != NULL ? pool->number : TIDE_POOL_DEFAULT;
  void* const where = s->stale[slot].address;
  const tide_status status =
      ASK(&s->faults, tide_device_alloc_at(s->d, s->streams[stream], it.bytes, where, &it.block));
  if (is_refused_in_capture(s, status)) return true;
  if (status != TIDE_OK) return s->faults.is_met || expect_status("alloc_at", status, TIDE_ERR_NO_MEMORY);
  EXPECT(it.block.address == where, "alloc_at: %p instead of %p", it.block.address, where);
  return item_begin(s, slot, it);
}

// Looks at a block a last time, on the streams that may.
static bool item_read_last(const model* s, const item* it) {
  const uint8_t stream = it->is_written ? it->writer : it->stream;
  if (!is_captured(s, stream)) EXPECT_OK(work_read(s->m, s->streams[stream], content_of(it)));
  return true;
}

static bool item_release(model* s, size_t slot, bool is_by_address) {
  item* const it = &s->items[slot];
  retired* r = NULL;
  if (!item_read_last(s, it) || !past_add(s, it, &r)) return false;
  const tide_status status = ASK(&s->faults, is_by_address
                                                 ? tide_device_release_address(s->d, it->block.address)
                                                 : tide_device_release(s->d, it->block));
  if (status == TIDE_OK) {
    item_end(s, slot);
    return true;
  }
  EXPECT(!it->is_cached && (s->faults.is_met || is_refused_in_capture(s, status)), "release is %s (%.200s)",
         tide_status_name(status), tide_last_error()->text);
  past_forget(s, r);
  return true;
}

static bool do_release(model* s, const op* o) {
  return !s->items[o->slot % SLOTS].is_used || item_release(s, o->slot % SLOTS, false);
}

static bool do_release_address(model* s, const op* o) {
  return !s->items[o->slot % SLOTS].is_used || item_release(s, o->slot % SLOTS, true);
}

static bool is_handed_out(const model* s, const void* address) {
  for (size_t i = 0; i < SLOTS; i++) {
    if (s->items[i].is_used && s->items[i].block.address == address) return true;
  }
  return false;
}

static bool do_release_twice(model* s, const op* o) {
  const tide_block block = s->stale[o->slot % SLOTS];
  if (block.address == NULL) return true;
  EXPECT_STATUS(tide_device_release(s->d, block), TIDE_ERR_HANDLE);
  EXPECT_STATUS(tide_device_record(s->d, block, s->streams[o->other % STREAMS]), TIDE_ERR_HANDLE);
  if (is_handed_out(s, block.address)) return true;
  tide_block found;
  EXPECT_STATUS(tide_device_release_address(s->d, block.address), TIDE_ERR_HANDLE);
  EXPECT_STATUS(tide_device_find(s->d, block.address, &found), TIDE_ERR_HANDLE);
  return true;
}

static bool do_find(model* s, const op* o) {
  const item* const it = &s->items[o->slot % SLOTS];
  tide_block found;
  void* base = NULL;
  size_t bytes = 0;
  if (!it->is_used) return true;
  EXPECT_OK(tide_device_find(s->d, it->block.address, &found));
  EXPECT(found.address == it->block.address && found.handle == it->block.handle, "find: another block");
  EXPECT_STATUS(tide_device_find(s->d, (const char*)it->block.address + 1, &found), TIDE_ERR_HANDLE);
  const tide_status status = tide_device_base(s->d, it->block.address, &base, &bytes);
  if (status == TIDE_ERR_UNSUPPORTED) return true;
  if (!expect_status("base", status, TIDE_OK)) return false;
  const size_t offset = (size_t)((char*)it->block.address - (char*)base);
  EXPECT(offset + it->bytes <= bytes, "base: %zu bytes at %zu of %zu", it->bytes, offset, bytes);
  EXPECT_OK(tide_device_largest(s->d, &bytes));
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Other streams

// Lets another stream read a block late, or fill it again late, and announces that.
static bool do_record(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  const uint8_t stream = o->other % STREAMS;
  if (!it->is_used || it->is_written || is_captured(s, stream) || is_captured(s, it->stream)) return true;
  const bool writes = o->value % 4 == 0 && it->uses == 0 && stream != it->stream;
  if (stream != it->stream) {
    EXPECT_OK(work_follow(s->m, s->streams[stream], s->streams[it->stream], s->ordering));
  }
  if (o->value % 2 == 0) EXPECT_OK(work_delay(s->m, s->streams[stream], o->number % 128));
  if (writes) EXPECT_OK(work_write(s->m, s->streams[stream], content_of(it)));
  else EXPECT_OK(work_read(s->m, s->streams[stream], content_of(it)));
  if (stream == it->stream) {
    EXPECT_OK(tide_device_record(s->d, it->block, s->streams[stream]));
    return true;
  }
  EXPECT_OK(tide_device_record(s->d, it->block, s->streams[stream]));
  it->uses = (uint8_t)(it->uses | 1u << stream);
  it->is_written = writes;
  it->writer = stream;
  return true;
}

// Others begin to capture a stream, or end it. What was released in an earlier capture of it and still waits
// is waited for first, because its tail is another then. Blocking streams stay free, and the legacy one with
// them.
static bool do_capture(model* s, const op* o) {
  const size_t stream = o->other % 2 == 0 ? 2 : 4;
  if (is_captured(s, stream)) return capture_end(s, stream);
  EXPECT_OK(tide_machine_event_synchronize(s->m, s->tails[stream]));
  for (size_t i = 0; i < RETIRED; i++) {
    s->past[i].captured = (uint8_t)(s->past[i].captured & ~(1u << stream));
  }
  EXPECT_OK(tide_machine_event_record(s->m, 0, s->tails[stream], s->streams[stream]));
  EXPECT_OK(tide_machine_capture_begin(s->m, 0, s->streams[stream], TIDE_CAPTURE_RELAXED));
  s->captured = (uint8_t)(s->captured | 1u << stream);
  return true;
}

static bool do_delay(model* s, const op* o) {
  if (is_captured(s, o->other % STREAMS)) return true;
  EXPECT_OK(work_delay(s->m, s->streams[o->other % STREAMS], o->number % 256));
  return true;
}

static bool do_fault(model* s, const op* o) {
  faults_draw(&s->faults, o);
  return true;
}

static bool do_pause(model* s, const op* o) {
  if (o->value % 8 == 0 && s->captured == 0) EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  else if (is_dry(s->m)) EXPECT_OK(tide_dry_advance(s->m, o->number % 100000));
  else t_sleep_us(o->number % 50);
  return true;
}

static bool do_poll(model* s, const op* o) {
  (void)o;
  return expect_unless_faulty(&s->faults, "poll", ASK(&s->faults, tide_device_poll(s->d)));
}

// ---------------------------------------------------------------------------------------------------
// Pools

// Memory of a pool with functions of its own. What comes back is taken back, faults or not.
static void* own_alloc(void* user, size_t bytes, int device, tide_stream stream) {
  model* const s = user;
  void* address = NULL;
  (void)stream;
  T_ANY(tide_machine_raw_alloc(s->m, device, bytes, &address));
  return address;
}

static void own_release(void* user, void* address, size_t bytes, int device, tide_stream stream) {
  model* const s = user;
  (void)bytes;
  (void)stream;
  tide_machine_fault_clear(s->m);
  T_OK(tide_machine_raw_release(s->m, device, address));
}

static bool odd_streams(void* user, tide_stream stream) {
  const model* const s = user;
  return stream == s->streams[1] || stream == s->streams[3];
}

static bool do_pool_new(model* s, const op* o) {
  own_pool* const p = &s->pools[o->slot % POOLS];
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  if (p->is_used) return true;
  options.no_split = o->value % 8 == 1;
  options.use_on_oom = o->value % 4 == 2;
  options.is_plain = o->value % 8 >= 5;
  if (o->value % 8 == 3) {
    options.segment_alloc = own_alloc;
    options.segment_release = own_release;
    options.user = s;
  }
  *p = (own_pool){ .is_used = true, .users = 1, .use_on_oom = options.use_on_oom };
  EXPECT_OK(tide_device_pool_new(s->d, &options, &p->number));
  EXPECT(p->number != TIDE_POOL_DEFAULT, "a new pool has the number of the default one");
  return true;
}

static bool do_pool_retain(model* s, const op* o) {
  own_pool* const p = pool_at(s, o->slot);
  uint32_t users = 0;
  if (p == NULL) return true;
  EXPECT_STATUS(tide_device_pool_retain(s->d, p->number), p->users > 0 ? TIDE_OK : TIDE_ERR_STATE);
  if (p->users > 0) p->users++;
  EXPECT_OK(tide_device_pool_users(s->d, p->number, &users));
  EXPECT(users == p->users, "pool %u has %u users, the model says %u", p->number, users, p->users);
  if (o->value % 4 != 0 || p->users == 0) return true;
  p->use_on_oom = p->use_on_oom || o->value % 8 == 0;
  EXPECT_OK(tide_device_pool_set_use_on_oom(s->d, p->number, o->value % 8 == 0));
  return true;
}

static bool pool_release(model* s, own_pool* p) {
  const bool is_refused = p->users == 0 || (p->users == 1 && p->has_scope);
  EXPECT_STATUS(tide_device_pool_drop(s->d, p->number), is_refused ? TIDE_ERR_STATE : TIDE_OK);
  if (!is_refused) p->users--;
  return true;
}

static bool do_pool_release(model* s, const op* o) {
  own_pool* const p = pool_at(s, o->slot);
  return p == NULL || pool_release(s, p);
}

static bool do_pool_begin(model* s, const op* o) {
  static const uint32_t kinds[] = { TIDE_SCOPE_ALL, TIDE_SCOPE_THREAD, TIDE_SCOPE_STREAM, TIDE_SCOPE_FILTER };
  own_pool* const p = pool_at(s, o->slot);
  if (p == NULL) return true;
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = kinds[o->value % 4];
  scope.stream = s->streams[o->other % STREAMS];
  scope.filter = odd_streams;
  scope.user = s;
  const bool is_refused = p->users == 0 || p->has_scope;
  EXPECT_STATUS(tide_device_pool_begin(s->d, p->number, &scope), is_refused ? TIDE_ERR_STATE : TIDE_OK);
  if (is_refused) return true;
  p->scope = scope;
  p->has_scope = true;
  s->scopes[s->scope_count++] = (uint8_t)(p - s->pools);
  return true;
}

// Work that was announced in a scope is joined before the last scope closes: that is the caller's part.
static bool pool_end(model* s, own_pool* p) {
  size_t at = 0;
  if (s->scope_count == 1 && !captures_end(s)) return false;
  if (s->scope_count == 1) EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT_OK(tide_device_pool_end(s->d, p->number));
  p->has_scope = false;
  while (s->scopes[at] != p - s->pools) at++;
  for (s->scope_count--; at < s->scope_count; at++) s->scopes[at] = s->scopes[at + 1];
  return true;
}

static bool do_pool_end(model* s, const op* o) {
  own_pool* const p = pool_at(s, o->slot);
  if (p == NULL) return true;
  if (p->has_scope) return pool_end(s, p);
  EXPECT_STATUS(tide_device_pool_end(s->d, p->number), TIDE_ERR_STATE);
  return true;
}

// Does every pool have the blocks that the model says, and no other?
static bool pools_agree(model* s) {
  const void* addresses[SLOTS];
  for (size_t i = 0; i <= POOLS; i++) {
    const tide_pool number = i < POOLS ? s->pools[i].number : TIDE_POOL_DEFAULT;
    bool is_exact = false;
    if (i < POOLS && pool_at(s, (uint8_t)i) == NULL) continue;
    const size_t count = pool_items(s, number, addresses);
    EXPECT_OK(tide_device_pool_check(s->d, number, addresses, count, &is_exact));
    EXPECT(is_exact, "pool %u has not the %zu blocks of the model", number, count);
  }
  return true;
}

// After a trim without a fault, pools that nobody uses and that hold nothing are gone.
static bool pools_forget(model* s) {
  const void* addresses[SLOTS];
  uint32_t users = 0;
  for (size_t i = 0; i < POOLS; i++) {
    own_pool* const p = &s->pools[i];
    if (!p->is_used || p->users > 0 || pool_items(s, p->number, addresses) > 0) continue;
    EXPECT_STATUS(tide_device_pool_users(s->d, p->number, &users), TIDE_ERR_HANDLE);
    p->is_used = false;
  }
  return true;
}

static bool do_trim(model* s, const op* o) {
  (void)o;
  const bool waits = s->scope_count == 0;
  const tide_status status = ASK(&s->faults, tide_device_trim(s->d, 0));
  if (is_refused_in_capture(s, status)) return true;
  if (!expect_unless_faulty(&s->faults, "trim", status)) return false;
  if (status != TIDE_OK || !waits || s->captured != 0) return true;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  EXPECT_OK(tide_device_get_stats(s->d, &stats));
  EXPECT(stats.active[0].current == s->live, "%lld blocks are active after a trim, the model says %lld",
         (long long)stats.active[0].current, (long long)s->live);
  return s->faults.is_met || pools_forget(s);
}

static bool do_trim_pool(model* s, const op* o) {
  own_pool* const p = pool_at(s, o->slot);
  const void* addresses[SLOTS];
  uint32_t users = 0;
  uint64_t bytes = 0;
  if (p == NULL) return true;
  EXPECT_OK(tide_device_pool_reserved(s->d, p->number, &bytes));
  const tide_status status = ASK(&s->faults, tide_device_trim_pool(s->d, p->number));
  if (is_refused_in_capture(s, status)) return true;
  if (!expect_unless_faulty(&s->faults, "trim_pool", status)) return false;
  if (tide_device_pool_users(s->d, p->number, &users) == TIDE_OK) return true;
  EXPECT(p->users == 0 && pool_items(s, p->number, addresses) == 0, "pool %u is gone", p->number);
  p->is_used = false;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Checkpoints

static bool stats_get(model* s, tide_device_stats* out) {
  *out = (tide_device_stats)TIDE_DEVICE_STATS_INIT;
  EXPECT_OK(tide_device_get_stats(s->d, out));
  return true;
}

// A restore hands idle blocks out and back again: the model takes these sums over.
static bool stats_adopt(model* s) {
  tide_device_stats stats;
  if (!stats_get(s, &stats)) return false;
  s->allocated = stats.allocation[0].allocated;
  s->freed = stats.allocation[0].freed;
  s->peak = stats.allocation[0].peak;
  return true;
}

static bool is_refused_for_pending(model* s, tide_status status, bool* out) {
  tide_device_stats stats;
  if (!stats_get(s, &stats)) return false;
  *out = status == TIDE_ERR_STATE && stats.active[0].current > stats.allocation[0].current;
  return true;
}

// Does a block belong to a pool, which alone may take it back?
static bool item_is_own(const item* it, tide_pool pool) {
  return it->is_used && it->is_cached && it->pool == pool && !it->is_borrowed;
}

static bool do_checkpoint(model* s, const op* o) {
  save* const v = &s->saves[o->other % SAVES];
  const own_pool* const p = pool_at(s, o->slot);
  bool is_pending = false;
  if (p == NULL || p->users == 0) return true;
  tide_checkpoint_free(v->checkpoint);
  memset(v, 0, sizeof *v);
  const tide_status status = ASK(&s->faults, tide_device_checkpoint(s->d, p->number, &v->checkpoint));
  if (!is_refused_for_pending(s, status, &is_pending)) return false;
  if (!is_pending && !expect_unless_faulty(&s->faults, "checkpoint", status)) return false;
  if (status != TIDE_OK) return true;
  v->pool = p->number;
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    if (item_is_own(it, p->number)) v->items[v->count++] = *it;
  }
  return true;
}

static size_t item_at(const item* items, size_t count, const void* address) {
  size_t i = 0;
  while (i < count && (!items[i].is_used || items[i].block.address != address)) i++;
  return i;
}

static bool restore_end_items(model* s, const tide_restore_delta* delta, tide_pool pool) {
  size_t wanted = 0;
  for (size_t i = 0; i < SLOTS; i++) wanted += item_is_own(&s->items[i], pool);
  EXPECT(delta->released_count == wanted, "restore took %zu blocks back, the model says %zu",
         delta->released_count, wanted);
  for (size_t i = 0; i < delta->released_count; i++) {
    const size_t at = item_at(s->items, SLOTS, delta->released[i]);
    retired* r = NULL;
    EXPECT(at < SLOTS && item_is_own(&s->items[at], pool), "restore took back %p", delta->released[i]);
    if (!past_add(s, &s->items[at], &r)) return false;
    item_end(s, at);
  }
  return true;
}

static bool restore_begin_items(model* s, const tide_restore_delta* delta, const save* v) {
  size_t slot = 0;
  EXPECT(delta->created_count == v->count, "restore made %zu blocks, the model says %zu",
         delta->created_count, v->count);
  for (size_t i = 0; i < delta->created_count; i++) {
    const size_t at = item_at(v->items, v->count, delta->created[i].address);
    EXPECT(at < v->count, "restore made a block at %p", delta->created[i].address);
    while (slot < SLOTS && s->items[slot].is_used) slot++;
    if (slot == SLOTS) {
      EXPECT_OK(tide_device_release(s->d, delta->created[i]));
      continue;
    }
    item it = v->items[at];
    it.block = delta->created[i];
    it.uses = 0;
    it.is_written = false;
    it.is_restored = true;
    if (!item_begin(s, slot, it)) return false;
  }
  return true;
}

static bool do_restore(model* s, const op* o) {
  const save* const v = &s->saves[o->other % SAVES];
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  if (v->checkpoint == NULL) return true;
  if (!captures_end(s)) return false;
  const tide_status status = ASK(&s->faults, tide_device_restore(s->d, v->checkpoint, &delta));
  if (status != TIDE_OK) {
    EXPECT(delta.released == NULL && delta.created == NULL, "a restore that failed returned blocks");
    EXPECT(s->faults.is_met || status == TIDE_ERR_STATE || status == TIDE_ERR_HANDLE, "restore is %s",
           tide_status_name(status));
    return pools_agree(s);
  }
  const bool is_right = restore_end_items(s, &delta, v->pool) && restore_begin_items(s, &delta, v);
  tide_restore_delta_clear(&delta);
  return is_right && stats_adopt(s) && pools_agree(s);
}

// What was just saved can be put back, unless a block of it waits or is announced.
static bool do_save_and_restore(model* s, const op* o) {
  const own_pool* const p = pool_at(s, o->slot);
  if (p == NULL || p->users == 0) return true;
  if (!captures_end(s) || !do_checkpoint(s, o)) return false;
  const save* const v = &s->saves[o->other % SAVES];
  if (v->checkpoint == NULL || s->faults.calls > 0) return true;
  for (size_t i = 0; i < v->count; i++) {
    if (v->items[i].uses != 0) return true;
  }
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  EXPECT_OK(tide_device_restore(s->d, v->checkpoint, &delta));
  const bool is_right = restore_end_items(s, &delta, v->pool) && restore_begin_items(s, &delta, v);
  tide_restore_delta_clear(&delta);
  return is_right && stats_adopt(s) && pools_agree(s);
}

// A pool that has idle memory and lends is saved, the default pool asks for more than the limit leaves it,
// and the pool is put back.
static bool do_lend(model* s, const op* o) {
  own_pool* const p = pool_at(s, o->slot);
  const op save_op = { .slot = o->slot, .other = o->other };
  if (p == NULL || p->users == 0 || s->scope_count > 0 || !tide_device_is_caching(s->d)) return true;
  EXPECT_OK(tide_device_pool_set_use_on_oom(s->d, p->number, true));
  p->use_on_oom = true;
  if (!do_checkpoint(s, &save_op)) return false;
  const uint64_t limit = tide_device_limit(s->d);
  EXPECT_OK(tide_device_set_limit(s->d, 0));
  for (uint8_t i = 0; i < 4; i++) {
    const op alloc_op = { .slot = (uint8_t)(o->value + i),
                          .other = (uint8_t)(o->value + i),
                          .value = 2 * i,
                          .number = o->number + 977 * i };
    if (!do_alloc(s, &alloc_op)) return false;
  }
  EXPECT_OK(tide_device_set_limit(s->d, limit));
  return do_restore(s, &save_op);
}

// ---------------------------------------------------------------------------------------------------
// Everything that changes how the allocator decides, and looks

static bool do_configure(model* s, const op* o) {
  static const uint64_t mib[] = { 12, 20, 20, 32 };
  tide_device_options options = device_defaults();
  options.expandable_segments = (o->value & 1u) != 0;
  options.fixes = (o->value & 2u) != 0;
  options.is_capture_reuse = (o->value & 4u) != 0;
  options.large_segment_bytes = mib[o->slot % 4] * MIB;
  if (o->value & 8u) options.max_split_bytes = (32 + o->number % 32) * MIB;
  if (o->value & 16u) options.non_split_excess_bytes = (32 + o->number % 40) * MIB;
  if (o->value & 32u) options.collect_threshold = (1 + o->other % 8) / 10.0;
  if (o->value & 64u) options.memory_fraction = (2 + o->other % 8) / 10.0;
  for (size_t i = 0; i < TIDE_ROUNDUP_SLOTS && (o->value & 128u) != 0; i++) {
    options.roundup_divisions[i] = 1u << (o->number >> i) % 6;
  }
  options.has_audits = o->other == 0;
  EXPECT_OK(tide_device_configure(s->d, &options));
  tide_device_get_options(s->d, &options);
  EXPECT(options.heap == &s->records.heap, "configure changed the heap");
  return true;
}

static bool do_limit(model* s, const op* o) {
  const uint64_t bytes = o->value % 4 == 0 ? TIDE_NO_LIMIT : (40 + o->number % 200) * MIB;
  EXPECT_OK(tide_device_set_limit(s->d, bytes));
  EXPECT(tide_device_limit(s->d) == bytes, "another limit is in force");
  return true;
}

static bool do_caching(model* s, const op* o) {
  tide_device_set_caching(s->d, o->value % 4 != 0);
  return true;
}

static bool do_reset(model* s, const op* o) {
  if (o->value % 2 == 0) {
    tide_device_reset_accumulated(s->d);
    s->allocated = s->freed = 0;
  } else {
    tide_device_reset_peaks(s->d);
    s->peak = s->live;
  }
  return true;
}

static size_t gather_frames(void* user, uint64_t* frames, size_t capacity) {
  const model* const s = user;
  for (size_t i = 0; i < 3 && i < capacity; i++) frames[i] = (uint64_t)s->live % 7 + i;
  return capacity < 3 ? capacity : 3;
}

static bool count_entries(void* user, const tide_trace_entry* entries, size_t count) {
  (void)entries;
  *(size_t*)user += count;
  return true;
}

static bool do_history(model* s, const op* o) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  size_t count = 0;
  options.is_on = o->value % 2 == 0;
  options.clears = o->value % 8 == 0;
  options.level = o->slot % 4;
  options.max_entries = 1 + o->number % 500;
  options.gather = gather_frames;
  options.user = s;
  EXPECT_OK(tide_device_annotate(s->d, "a remark"));
  EXPECT_OK(tide_device_history(s->d, &options));
  EXPECT_OK(tide_device_history_visit(s->d, count_entries, &count));
  EXPECT(count <= options.max_entries, "%zu entries of history, %zu wanted", count,
         (size_t)options.max_entries);
  EXPECT(tide_device_has_history(s->d) == options.is_on, "the history is not as it was set");
  return true;
}

// What a child of a fork may do with what it inherited: nothing, at once. The model does not change.
static bool child_is_refused(model* s, const op* o) {
  const item* const it = &s->items[o->slot % SLOTS];
  tide_block block;
  switch (o->value % 6) {
    case 0: return tide_device_alloc(s->d, s->streams[o->other % STREAMS], 512, &block) == TIDE_ERR_STATE;
    case 1: return tide_device_alloc(s->d, s->streams[o->other % STREAMS], 9 * MIB, &block) == TIDE_ERR_STATE;
    case 2: return tide_device_trim(s->d, 0) == TIDE_ERR_STATE;
    case 3: return tide_machine_device_synchronize(s->m, 0) == TIDE_ERR_STATE;
    case 4: return !it->is_used || tide_device_release(s->d, it->block) == TIDE_OK;
    default:
      tide_device_free(s->d);
      tide_machine_free(s->m);
      return true;
  }
}

static bool do_fork(model* s, const op* o) {
  int status = 0;
  if (is_cuda(s->m)) return true;
  const pid_t child = fork();
  if (child == 0) {
    (void)alarm(20);
    _exit(child_is_refused(s, o) ? 0 : 1);
  }
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0,
         "a child of a fork was not refused: %d", status);
  return true;
}

static bool do_sweep(model* s, const op* o) {
  (void)o;
  return items_are_intact(s) && pools_agree(s);
}

// ---------------------------------------------------------------------------------------------------
// Verbs

// Name, function, how often of 1000.
// clang-format off
#define VERB_MAP(X)                                                                                        \
  X(ALLOC, do_alloc, 370) X(ALLOC_AT, do_alloc_at, 15) X(RELEASE, do_release, 200)                         \
  X(RELEASE_ADDRESS, do_release_address, 110) X(RELEASE_TWICE, do_release_twice, 15)                       \
  X(FIND, do_find, 15) X(RECORD, do_record, 80) X(DELAY, do_delay, 20) X(PAUSE, do_pause, 25)              \
  X(CAPTURE, do_capture, 12) X(POLL, do_poll, 15) X(TRIM, do_trim, 7) X(TRIM_POOL, do_trim_pool, 5)        \
  X(POOL_NEW, do_pool_new, 8) X(POOL_RETAIN, do_pool_retain, 5) X(POOL_RELEASE, do_pool_release, 10)       \
  X(POOL_BEGIN, do_pool_begin, 10) X(POOL_END, do_pool_end, 20) X(CHECKPOINT, do_checkpoint, 8)            \
  X(RESTORE, do_restore, 6) X(SAVE_AND_RESTORE, do_save_and_restore, 6) X(LEND, do_lend, 6)                \
  X(CONFIGURE, do_configure, 10) X(LIMIT, do_limit, 4) X(CACHING, do_caching, 6) X(RESET, do_reset, 6)     \
  X(HISTORY, do_history, 5) X(FAULT, do_fault, 14) X(SWEEP, do_sweep, 5) X(FORK, do_fork, 1)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static bool (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

// ---------------------------------------------------------------------------------------------------
// Runs

// Adds up what an observer hears of memory taken and given back.
static void hear(void* user, const tide_trace_entry* entry) {
  model* const s = user;
  if (entry->action == TIDE_ACTION_SEGMENT_ALLOC || entry->action == TIDE_ACTION_SEGMENT_MAP) {
    s->told_bytes += (int64_t)entry->bytes;
  }
  if (entry->action == TIDE_ACTION_SEGMENT_FREE || entry->action == TIDE_ACTION_SEGMENT_UNMAP) {
    s->told_bytes -= (int64_t)entry->bytes;
  }
}

static void model_listen(model* s) {
  tide_observer observer = 0;
  s->has_observer = true;
  T_OK(tide_device_observe_trace(s->d, hear, s, &observer));
}

static void model_open(model* s, tide_machine* m) {
  memset(s, 0, sizeof *s);
  s->m = s->faults.m = m;
  for (size_t i = 1; i < STREAMS; i++) {
    s->streams[i] = stream_new(m, 0, i % 2 == 0 ? TIDE_STREAM_NON_BLOCKING : 0);
  }
  s->ordering = event_new(m, 0);
  for (size_t i = 0; i < STREAMS; i++) s->tails[i] = event_new(m, 0);
  while (s->event_count < RETIRED * STREAMS) s->events[s->event_count++] = event_new(m, 0);
  if (is_cuda(m)) window_prepare(m, 0);
  s->free_before = free_bytes(m, 0);
  counting_heap_init(&s->records, SIZE_MAX, false);
  tide_device_options options = device_defaults();
  options.heap = &s->records.heap;
  T_OK(tide_device_new(m, 0, &options, &s->d));
}

static bool stat_is_sound(const char* name, const tide_stat* stat) {
  EXPECT(stat->current >= 0 && stat->peak >= stat->current, "%s: current %lld, peak %lld", name,
         (long long)stat->current, (long long)stat->peak);
  return true;
}

static bool stats_agree(model* s) {
  tide_device_stats stats;
  if (!stats_get(s, &stats)) return false;
#define SOUND(name) \
  if (!stat_is_sound(#name, &stats.name[0])) return false;
  TIDE_DEVICE_STAT_MAP(SOUND)
#undef SOUND
  const tide_stat* const n = &stats.allocation[0];
  EXPECT(n->current == s->live && n->peak == s->peak && n->allocated == s->allocated && n->freed == s->freed,
         "allocation is { %lld, %lld, %lld, %lld }, the model says { %lld, %lld, %lld, %lld }",
         (long long)n->current, (long long)n->peak, (long long)n->allocated, (long long)n->freed,
         (long long)s->live, (long long)s->peak, (long long)s->allocated, (long long)s->freed);
  const int64_t requested = stats.requested_bytes[0].current;
  const bool is_exact = stats.active[0].current == n->current && s->restored == 0;
  EXPECT(is_exact ? requested == s->live_bytes : requested >= s->live_bytes,
         "%lld bytes are requested, the model says %lld", (long long)requested, (long long)s->live_bytes);
  EXPECT(stats.active[0].current >= n->current, "fewer blocks are active than handed out");
  EXPECT(!s->has_observer || stats.reserved_bytes[0].current == s->told_bytes,
         "%lld bytes are reserved, an observer heard of %lld", (long long)stats.reserved_bytes[0].current,
         (long long)s->told_bytes);
  return true;
}

static bool model_agrees(model* s) {
  EXPECT(!atomic_load(&is_content_wrong), "a stream read other bytes than were written");
  const int broken = tide_device_check(s->d);
  EXPECT(broken == 0, "check: %d (%.200s)", broken, tide_last_error()->text);
  return stats_agree(s);
}

// Takes everything back: nothing may be left but records, and after tide_device_free() none of them.
static bool model_close(model* s) {
  s->faults.calls = 0;
  if (!items_are_intact(s)) return false;
  while (s->scope_count > 0) {
    if (!pool_end(s, &s->pools[s->scopes[s->scope_count - 1]])) return false;
  }
  for (size_t i = 0; i < SLOTS; i++) {
    if (s->items[i].is_used && !item_release(s, i, i % 2 == 0)) return false;
  }
  for (size_t i = 0; i < SAVES; i++) tide_checkpoint_free(s->saves[i].checkpoint);
  for (uint8_t i = 0; i < POOLS; i++) {
    while (pool_at(s, i) != NULL && s->pools[i].users > 0) {
      if (!pool_release(s, &s->pools[i])) return false;
    }
  }
  EXPECT_OK(tide_device_trim(s->d, 0));
  tide_device_stats stats;
  if (!model_agrees(s) || !stats_get(s, &stats)) return false;
  EXPECT(stats.reserved_bytes[0].current == 0, "%lld bytes are reserved after a trim",
         (long long)stats.reserved_bytes[0].current);
  EXPECT(is_cuda(s->m) || free_bytes(s->m, 0) == s->free_before, "%zu bytes of %zu are free after a trim",
         free_bytes(s->m, 0), s->free_before);
  return true;
}

static bool model_free(model* s) {
  tide_device_free(s->d);
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT(atomic_load(&s->records.outstanding) == 0, "%zu bytes of records are left",
         atomic_load(&s->records.outstanding));
  EXPECT(is_cuda(s->m) || free_bytes(s->m, 0) == s->free_before, "%zu bytes of %zu are free at the end",
         free_bytes(s->m, 0), s->free_before);
  tide_machine_free(s->m);
  return true;
}

// Frees the allocator with everything that is handed out, while streams still read it. If others capture one,
// the machine does not wait, and keeps the memory.
static bool model_drop(model* s) {
  const bool is_left = s->captured != 0;
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    if (!it->is_used) continue;
    if (!is_captured(s, it->stream)) EXPECT_OK(work_delay(s->m, s->streams[it->stream], 20));
    if (!item_read_last(s, it)) return false;
  }
  for (size_t i = 0; i < SAVES; i++) tide_checkpoint_free(s->saves[i].checkpoint);
  tide_device_free(s->d);
  if (!captures_end(s)) return false;
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT(!atomic_load(&is_content_wrong), "a stream read other bytes than were written, at the end");
  EXPECT(atomic_load(&s->records.outstanding) == 0, "%zu bytes of records are left",
         atomic_load(&s->records.outstanding));
  EXPECT(is_left || is_cuda(s->m) || free_bytes(s->m, 0) == s->free_before,
         "%zu bytes of %zu are free at the end", free_bytes(s->m, 0), s->free_before);
  tide_machine_free(s->m);
  return true;
}

static bool play(const op* list, size_t count, size_t check_every) {
  static model s;
  atomic_store(&is_content_wrong, false);
  model_open(&s, prop_machine_new(CAPACITY));
  if (count > 0 && list[count - 1].number % 2 == 0) model_listen(&s);
  for (size_t i = 0; i < count; ++i) {
    outcome->at = i;
    if (!functions[list[i].verb](&s, &list[i])) return false;
    if (i % check_every == 0 && !model_agrees(&s)) return false;
    if (i % check_every % 16 == 0 && !stats_agree(&s)) return false;
    if (i % 64 == 0 && !past_forget_done(&s)) return false;
  }
  if (count > 0 && list[count - 1].number % 4 == 1) return model_drop(&s);
  return model_close(&s) && model_free(&s);
}

static const op_suite suite = { "the allocator", verbs, sizeof verbs / sizeof *verbs, play, 2048, 32, 32 };

T_TEST_OVER(prop_device__agrees_with_a_list_of_blocks, variants) {
  const bool is_apart = strcmp(machine_variant(), "cuda") != 0;
  const bool is_on_host = strcmp(machine_variant(), "host") == 0;
  const size_t on_host = is_tide() ? 12000 : 25000;  // whose blocks are larger
  const size_t count = is_apart ? is_on_host ? on_host : 80000 : 2000;
  suite_run(&suite, t_scaled_alone(T_HAS_THREAD_SANITIZER ? count / 2 : count), is_apart);
}

// ---------------------------------------------------------------------------------------------------
// Several threads: each allocates on a stream of its own and on shared ones, and releases what it finds on
// the board, whoever put it there. What each thread holds is its alone, so the data tell whether the
// allocator gave the same memory to two, or too early. Scopes and announcements take turns, round by round,
// because announcements made in the scope of another thread end with it.

enum { THREADS = 4, SHARED = 2, BOARD = 96, HELD = 16 };

typedef struct crowd {
  model s;  // of which the machine, the allocator and the work on streams are used
  tide_stream streams[THREADS + SHARED];
  pthread_mutex_t lock;  // guards the board
  item board[BOARD];
  size_t steps;
  bool has_scopes;  // this round
} crowd;

typedef struct member {
  crowd* c;
  uint8_t number;
  t_rng rng;
  tide_event ordering;
  item held[HELD];
} member;

static void member_alloc(member* w, item* it) {
  crowd* const c = w->c;
  const bool is_shared = t_rng_below(&w->rng, 2) == 0;
  *it = (item){ .tag = t_rng_next(&w->rng) };
  it->stream = is_shared ? (uint8_t)(THREADS + t_rng_below(&w->rng, SHARED)) : w->number;
  it->bytes = (size_t)1 << (t_rng_below(&w->rng, 2) == 0 ? t_rng_below(&w->rng, 22) : 18);
  it->bytes += t_rng_below(&w->rng, it->bytes);
  if (is_tide() && t_rng_below(&w->rng, 2) == 0) it->bytes = MIB / 2 + t_rng_below(&w->rng, 3 * MIB);
  const tide_status status = tide_device_alloc(c->s.d, c->streams[it->stream], it->bytes, &it->block);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_NO_MEMORY);
  if (status != TIDE_OK) return;
  it->is_used = true;
  T_OK(work_write(c->s.m, c->streams[it->stream], content_of(it)));
}

// Lets the member's own stream read a block, late, and announces it.
static void member_use(member* w, const item* it) {
  const crowd* const c = w->c;
  stream_follow(c->s.m, c->streams[w->number], c->streams[it->stream], w->ordering);
  T_OK(work_delay(c->s.m, c->streams[w->number], 30));
  T_OK(work_read(c->s.m, c->streams[w->number], content_of(it)));
  T_OK(tide_device_record(c->s.d, it->block, c->streams[w->number]));
}

static void member_release(member* w, item* it) {
  crowd* const c = w->c;
  if (!it->is_used) return;
  if (!c->has_scopes && t_rng_below(&w->rng, 2) == 0) member_use(w, it);
  T_OK(work_read(c->s.m, c->streams[it->stream], content_of(it)));
  tide_block found;
  T_OK(tide_device_find(c->s.d, it->block.address, &found));
  T_EQ(found.handle, it->block.handle);
  if (t_rng_below(&w->rng, 2) == 0) T_OK(tide_device_release(c->s.d, it->block));
  else T_OK(tide_device_release_address(c->s.d, it->block.address));
  T_STATUS(tide_device_release(c->s.d, it->block), TIDE_ERR_HANDLE);
  it->is_used = false;
}

// Swaps a block with one of the board.
static void member_swap(member* w, item* it) {
  item* const place = &w->c->board[t_rng_below(&w->rng, BOARD)];
  T_EQ(pthread_mutex_lock(&w->c->lock), 0);
  const item other = *place;
  *place = *it;
  *it = other;
  T_EQ(pthread_mutex_unlock(&w->c->lock), 0);
}

static void member_scope(member* w) {
  tide_device_cache* const d = w->c->s.d;
  tide_pool pool = 0;
  T_OK(tide_device_pool_new(d, NULL, &pool));
  T_OK(tide_device_pool_begin(d, pool, NULL));
  for (size_t i = 0; i < HELD; i++) {
    if (!w->held[i].is_used) member_alloc(w, &w->held[i]);
  }
  T_OK(tide_device_pool_end(d, pool));
  T_OK(tide_device_pool_drop(d, pool));
}

static void member_configure(member* w) {
  tide_device_options options = device_defaults();
  options.expandable_segments = t_rng_below(&w->rng, 2) == 0;
  options.fixes = t_rng_below(&w->rng, 2) == 0;
  if (t_rng_below(&w->rng, 2) == 0) options.max_split_bytes = 20 * MIB;
  T_OK(tide_device_configure(w->c->s.d, &options));
}

static void* member_run(void* user) {
  member* const w = user;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  for (size_t step = 0; step < w->c->steps; step++) {
    item* const it = &w->held[t_rng_below(&w->rng, HELD)];
    const uint64_t what = t_rng_below(&w->rng, 1000);
    if (what < 450 && !it->is_used) member_alloc(w, it);
    else if (what < 700) member_swap(w, it);
    else if (what < 970) member_release(w, it);
    else if (what < 975) T_OK(tide_device_poll(w->c->s.d));
    else if (what < 980) T_OK(tide_device_get_stats(w->c->s.d, &stats));
    else if (what < 990) T_OK(tide_device_trim(w->c->s.d, 0));
    else if (what < 994) member_configure(w);
    else if (w->c->has_scopes) member_scope(w);
  }
  return NULL;
}

// Everything that is handed out, in one list.
static size_t crowd_gather(crowd* c, member* members, item** out) {
  size_t count = 0;
  for (size_t i = 0; i < BOARD; i++) {
    if (c->board[i].is_used) out[count++] = &c->board[i];
  }
  for (size_t i = 0; i < THREADS * HELD; i++) {
    item* const it = &members[i / HELD].held[i % HELD];
    if (it->is_used) out[count++] = it;
  }
  return count;
}

// All threads are stopped: now everything must add up.
static void crowd_check(crowd* c, item** items, size_t count) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_machine_device_synchronize(c->s.m, 0));
  T_CHECK(!atomic_load(&is_content_wrong));
  for (size_t i = 0; i < count; i++) {
    const uint64_t address = (uint64_t)(uintptr_t)items[i]->block.address;
    for (size_t j = 0; j < i; j++) {
      T_CHECK(
          !overlaps(address, items[i]->bytes, (uint64_t)(uintptr_t)items[j]->block.address, items[j]->bytes));
    }
    T_CHECK(content_is_there(c->s.m, content_of(items[i])));
  }
  if (tide_device_check(c->s.d) != 0) T_FAIL("check: %s", tide_last_error()->text);
  T_OK(tide_device_get_stats(c->s.d, &stats));
  T_EQ(stats.allocation[0].current, count);
}

// Makes the calls slow that grow and shrink the allocator, so that the other threads get far meanwhile.
static void crowd_slow_down(crowd* c) {
  static const tide_call calls[] = { TIDE_CALL_UNMAP, TIDE_CALL_SET_ACCESS, TIDE_CALL_RAW_ALLOC,
                                     TIDE_CALL_EVENT_QUERY };
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    tide_fault fault = TIDE_FAULT_INIT;
    fault.call = (uint32_t)calls[i];
    fault.status = TIDE_OK;
    fault.count = UINT64_MAX;
    fault.latency_ns = 20000;
    T_OK(tide_machine_fault_add(c->s.m, &fault));
  }
}

static void crowd_open(crowd* c, member* members) {
  memset(c, 0, sizeof *c);
  memset(members, 0, THREADS * sizeof *members);
  model_open(&c->s, prop_machine_new(CAPACITY));
  T_EQ(pthread_mutex_init(&c->lock, NULL), 0);
  for (size_t i = 0; i < THREADS + SHARED; i++) c->streams[i] = stream_new(c->s.m, 0, i % 2);
  for (uint8_t i = 0; i < THREADS; i++) {
    members[i] = (member){ .c = c, .number = i, .rng = t_rng_new(100 + i), .ordering = event_new(c->s.m, 0) };
  }
}

static void crowd_close(crowd* c, item** items, size_t count) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  for (size_t i = 0; i < count; i++) T_OK(tide_device_release(c->s.d, items[i]->block));
  T_OK(tide_device_trim(c->s.d, 0));
  T_OK(tide_device_get_stats(c->s.d, &stats));
  T_EQ(stats.reserved_bytes[0].current, 0);
  if (!model_free(&c->s)) T_FAIL("%s", outcome->text);
}

T_TEST_OVER(prop_device__serves_threads_at_once, variants) {
  static crowd c;
  static member members[THREADS];
  item* items[BOARD + THREADS * HELD];
  size_t count = 0;
  outcome_open();
  crowd_open(&c, members);
  for (size_t round = 0; round < t_scaled(T_HAS_THREAD_SANITIZER ? 40 : 80); round++) {
    pthread_t threads[THREADS];
    c.steps = 64;
    c.has_scopes = round % 2 == 1;
    if (round % 4 >= 2) crowd_slow_down(&c);
    for (size_t i = 0; i < THREADS; i++) t_thread_start(&threads[i], member_run, &members[i]);
    for (size_t i = 0; i < THREADS; i++) t_thread_join(threads[i]);
    tide_machine_fault_clear(c.s.m);

    count = crowd_gather(&c, members, items);
    crowd_check(&c, items, count);
  }
  crowd_close(&c, items, count);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the device allocator: random calls beside an obviously right model, a list of the blocks that
// are handed out. Every block is filled on its stream as soon as it is handed out, and read on its streams,
// late, before it is released; so memory that is used too early or twice shows in the data. Where there is no
// data (dry), and everywhere else too, each released block leaves the events of its streams behind: who gets
// the memory next must find them done. tide_device_check() runs after every operation, and faults of the
// machine hit some of them.
//
// An operation is a few small numbers that mean something in any list. A list runs in a process of its own,
// so that a crash is a failure like any other: it is made shorter until no range of it can be left out, and
// printed. The tests on cuda run in this process and print the whole list.
#include <sys/mman.h>
#include <sys/wait.h>

#include "machine/machines.h"
#include "tidemark/device.h"

#define SLOTS 96u        // blocks that are handed out at a time
#define STREAMS 5u       // the first is the legacy stream
#define POOLS 4u         // private ones at a time
#define SAVES 3u         // checkpoints at a time
#define RETIRED 128u     // released blocks that are remembered
#define LIST_MAX 4096u   // operations of a run
#define CAPACITY (192 * MIB)
#define SHRINK_SECONDS 60u

// One operation.
typedef struct op {
  uint8_t verb;
  uint8_t slot;
  uint8_t other;
  uint8_t value;
  uint32_t number;
} op;

// ---------------------------------------------------------------------------------------------------
// The model

// A block that is handed out.
typedef struct item {
  bool is_used;
  bool is_cached;
  uint8_t pattern;    // what its bytes are
  uint8_t stream;     // an index
  uint8_t uses;       // streams that read it, as bits
  bool is_written;    // by the one other stream that uses it, which alone may look at it now
  uint8_t writer;     // that stream
  tide_pool pool;
  size_t bytes;
  tide_block block;
} item;

// A block that was released, and the events at which its streams stood then.
typedef struct retired {
  bool is_used;
  uint8_t stream;
  uint64_t address;
  size_t bytes;
  tide_event events[STREAMS];  // NULL: the stream had nothing to do with it
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
  tide_device* d;
  counting_heap records;
  size_t free_before;  // bytes of the machine
  bool has_memory;
  bool is_readable;
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
  // Statistics, by the model.
  int64_t live;            // cached blocks
  int64_t live_bytes;      // that were asked for
  int64_t peak;            // of live
  int64_t allocated;       // since the last reset
  int64_t freed;
  // Faults that hit the calls to come.
  uint32_t fault_calls;
  tide_fault fault;
  bool is_faulty;  // the last call may have met one
} model;

// What a run says, readable by the process that started it.
typedef struct verdict {
  size_t at;  // the operation under way
  char text[512];
} verdict;

static verdict* outcome;           // shared with the processes of runs
static atomic_bool is_data_wrong;  // a reader on a stream found other bytes than it should

#define EXPECT(condition, ...)                                          \
  do {                                                                  \
    if (!(condition)) {                                                 \
      (void)snprintf(outcome->text, sizeof outcome->text, __VA_ARGS__); \
      return false;                                                     \
    }                                                                   \
  } while (0)

static bool expect_status(const char* call, tide_status got, tide_status want) {
  EXPECT(got == want, "%s is %s, the model says %s (%.200s)", call, tide_status_name(got),
         tide_status_name(want), tide_last_error()->text);
  return true;
}
#define EXPECT_STATUS(call, want)                              \
  do {                                                         \
    if (!expect_status(#call, (call), (want))) return false; \
  } while (0)
#define EXPECT_OK(call) EXPECT_STATUS(call, TIDE_OK)

// ---------------------------------------------------------------------------------------------------
// Faults: they are in force during calls of the allocator only, not during those of the model

static void fault_arm(model* s) {
  s->is_faulty = s->fault_calls > 0;
  if (!s->is_faulty) return;
  s->fault_calls--;
  T_OK(tide_machine_fault_add(s->m, &s->fault));
}

static tide_status fault_disarm(model* s, tide_status status) {
  if (s->is_faulty) tide_machine_fault_clear(s->m);
  return status;
}

// The status of a call of the allocator, made under the fault of the day.
#define ASK(s, call) (fault_arm(s), fault_disarm((s), (call)))

// A call that cannot fail, except by a fault.
static bool expect_unless_faulty(const model* s, const char* call, tide_status got) {
  if (s->is_faulty && (got == TIDE_ERR_MACHINE || got == TIDE_ERR_NO_MEMORY)) return true;
  return expect_status(call, got, TIDE_OK);
}

static bool do_fault(model* s, const op* o) {
  static const tide_call kinds[] = {
    TIDE_CALL_ANY,          TIDE_CALL_ANY,         TIDE_CALL_RAW_ALLOC,         TIDE_CALL_RAW_RELEASE,
    TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP,         TIDE_CALL_SET_ACCESS,        TIDE_CALL_UNMAP,
    TIDE_CALL_EVENT_NEW,    TIDE_CALL_EVENT_RECORD, TIDE_CALL_EVENT_QUERY,      TIDE_CALL_EVENT_SYNCHRONIZE,
    TIDE_CALL_PHYSICAL_FREE, TIDE_CALL_ADDRESS_RESERVE, TIDE_CALL_ADDRESS_RELEASE, TIDE_CALL_STREAM_SYNCHRONIZE
  };
  const tide_fault defaults = TIDE_FAULT_INIT;
  s->fault = defaults;
  s->fault.call = (uint32_t)kinds[o->slot % (sizeof kinds / sizeof kinds[0])];
  s->fault.status = o->other % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
  s->fault.skip = o->number % 8;
  s->fault.count = o->value % 8 == 0 ? UINT64_MAX : 1 + o->value % 3;
  s->fault_calls = 1 + o->value / 16;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Work on streams

typedef struct read_job {
  const uint8_t* address;
  size_t bytes;
  uint8_t pattern;
} read_job;

static bool bytes_are(const uint8_t* p, uint8_t pattern, size_t bytes) {
  return p[0] == pattern && memcmp(p, p + 1, bytes - 1) == 0;
}

static void job_read(void* user) {
  read_job* const job = user;
  if (!bytes_are(job->address, job->pattern, job->bytes)) atomic_store(&is_data_wrong, true);
  free(job);
}

static void job_sleep(void* user) { t_sleep_us((uintptr_t)user); }

static bool work_delay(const model* s, uint8_t stream, uint32_t us) {
  if (is_dry(s->m)) EXPECT_OK(tide_dry_work(s->m, 0, s->streams[stream], (uint64_t)us * 1000));
  else EXPECT_OK(tide_machine_call(s->m, 0, s->streams[stream], job_sleep, (void*)(uintptr_t)us));
  return true;
}

static bool work_fill(const model* s, const item* it, uint8_t stream) {
  EXPECT_OK(tide_machine_fill(s->m, 0, s->streams[stream], it->block.address, it->pattern, it->bytes));
  return true;
}

// Reads a block when the stream comes to it.
static bool work_read(const model* s, const item* it, uint8_t stream) {
  if (!s->is_readable) return true;
  read_job* const job = malloc(sizeof *job);
  T_CHECK(job != NULL);
  *job = (read_job){ it->block.address, it->bytes, it->pattern };
  EXPECT_OK(tide_machine_call(s->m, 0, s->streams[stream], job_read, job));
  return true;
}

static bool work_follow(const model* s, uint8_t after, uint8_t before) {
  EXPECT_OK(tide_machine_event_record(s->m, 0, s->ordering, s->streams[before]));
  EXPECT_OK(tide_machine_stream_wait(s->m, 0, s->streams[after], s->ordering));
  return true;
}

static bool items_are_intact(model* s) {
  EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  for (size_t i = 0; i < SLOTS && s->has_memory; i++) {
    const item* const it = &s->items[i];
    if (!it->is_used) continue;
    if (!s->is_readable) expect_filled(s->m, 0, it->block.address, it->pattern, it->bytes);
    else EXPECT(bytes_are(it->block.address, it->pattern, it->bytes), "block %zu has other bytes", i);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Released blocks, and when their memory may be used again

static bool past_is_done(const model* s, const retired* r, bool* out) {
  *out = true;
  for (size_t k = 0; k < STREAMS && *out; k++) {
    if (r->events[k] != NULL) EXPECT_OK(tide_machine_event_query(s->m, r->events[k], out));
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
    if (r->events[k] != NULL) EXPECT_OK(tide_machine_event_synchronize(s->m, r->events[k]));
  }
  if (r->is_used) past_forget(s, r);
  *r = (retired){ .is_used = true, .stream = it->stream, .bytes = it->bytes };
  r->address = (uint64_t)(uintptr_t)it->block.address;
  for (size_t k = 0; k < STREAMS; k++) {
    if (k != it->stream && (it->uses >> k & 1u) == 0) continue;
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
  for (size_t i = 0; i < RETIRED; i++) {
    const retired* const r = &s->past[i];
    if (!r->is_used || !overlaps(address, it->bytes, r->address, r->bytes)) continue;
    for (uint8_t k = 0; k < STREAMS; k++) {
      bool is_done = true;
      if (r->events[k] == NULL || (k == r->stream && k == it->stream)) continue;
      EXPECT_OK(tide_machine_event_query(s->m, r->events[k], &is_done));
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
    if (!s->pools[i].is_used || !s->pools[i].use_on_oom) continue;
    EXPECT_OK(tide_device_visit_pool(s->d, s->pools[i].number, &visitor));
    if (w.is_found) it->pool = s->pools[i].number;
  }
  return true;
}

// A block comes to the model.
static bool item_begin(model* s, size_t slot, item it) {
  it.is_used = true;
  s->items[slot] = it;
  if (!item_is_apart(s, &it) || !past_allows(s, &it)) return false;
  if (it.is_cached) {
    s->live++;
    s->live_bytes += (int64_t)it.bytes;
    s->allocated++;
    if (s->live > s->peak) s->peak = s->live;
  }
  if (it.is_cached && it.pool == 0 && !item_find_lender(s, &s->items[slot])) return false;
  return work_fill(s, &it, it.stream);
}

// A block leaves the model.
static void item_end(model* s, size_t slot) {
  item* const it = &s->items[slot];
  if (it->is_cached) {
    s->live--;
    s->live_bytes -= (int64_t)it->bytes;
    s->freed++;
  }
  s->stale[slot] = it->block;
  it->is_used = false;
}

// Must a request of this many bytes succeed? Only said where there is memory in plenty.
static bool has_plenty(model* s, size_t bytes) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(s->d, &stats));
  const uint64_t reserved = (uint64_t)stats.reserved_bytes[0].current;
  const uint64_t limit = tide_device_limit(s->d);
  const uint64_t need = 2 * (uint64_t)bytes + 64 * MIB;
  return need <= free_bytes(s->m, 0) && (limit == TIDE_NO_LIMIT || need + reserved <= limit);
}

// 1 byte to 8 MiB, each power of two as likely as any; one in 32 is larger, one in 256 far too large.
static size_t op_bytes(const op* o) {
  if (o->value == 255) return o->number % 2 == 0 ? GIB : (size_t)1 << 61;
  if (o->value % 32 == 31) return 8 * MIB + o->number % (64 * MIB);
  const size_t power = (size_t)1 << (o->number >> 8) % 23;
  return power + (o->number >> 8) / 23 % power;
}

static bool do_alloc(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  if (s->items[slot].is_used) return true;
  const uint8_t stream = o->other % STREAMS;
  const own_pool* const pool = scope_pool(s, stream);
  item it = { .pattern = (uint8_t)(o->number >> 24), .stream = stream, .bytes = op_bytes(o) };
  it.pool = pool != NULL ? pool->number : TIDE_POOL_DEFAULT;
  it.is_cached = tide_device_is_caching(s->d);
  const bool is_sure = s->fault_calls == 0 && has_plenty(s, it.bytes);
  const tide_status status = ASK(s, tide_device_alloc(s->d, s->streams[stream], it.bytes, &it.block));
  if (it.bytes >= (size_t)1 << 60) return expect_status("alloc", status, TIDE_ERR_ARGUMENT);
  if (status == TIDE_OK) return item_begin(s, slot, it);
  EXPECT(it.block.address == NULL && it.block.handle == 0, "a request that failed returned a block");
  EXPECT(!is_sure, "alloc of %zu bytes is %s with memory in plenty (%.200s)", it.bytes,
         tide_status_name(status), tide_last_error()->text);
  if (s->is_faulty) return expect_unless_faulty(s, "alloc", status);
  return expect_status("alloc", status, TIDE_ERR_NO_MEMORY);
}

// Asks for memory where a released block was.
static bool do_alloc_at(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  const uint8_t stream = o->other % STREAMS;
  const own_pool* const pool = scope_pool(s, stream);
  if (s->items[slot].is_used || s->stale[slot].address == NULL || !tide_device_is_caching(s->d)) return true;
  if ((uintptr_t)s->stale[slot].address % 512 != 0) return true;
  item it = { .pattern = o->value, .stream = stream, .bytes = 1 + o->number % (2 * MIB), .is_cached = true };
  it.pool = pool != NULL ? pool->number : TIDE_POOL_DEFAULT;
  void* const where = s->stale[slot].address;
  const tide_status status =
      ASK(s, tide_device_alloc_at(s->d, s->streams[stream], it.bytes, where, &it.block));
  if (status != TIDE_OK) return s->is_faulty || expect_status("alloc_at", status, TIDE_ERR_NO_MEMORY);
  EXPECT(it.block.address == where, "alloc_at: %p instead of %p", it.block.address, where);
  return item_begin(s, slot, it);
}

// Looks at a block a last time, on the streams that may.
static bool item_read_last(const model* s, const item* it) {
  if (it->is_written) return work_read(s, it, it->writer);
  return work_read(s, it, it->stream);
}

static bool item_release(model* s, size_t slot, bool is_by_address) {
  item* const it = &s->items[slot];
  retired* r = NULL;
  if (!item_read_last(s, it) || !past_add(s, it, &r)) return false;
  const tide_status status = ASK(s, is_by_address ? tide_device_release_address(s->d, it->block.address)
                                                  : tide_device_release(s->d, it->block));
  if (status == TIDE_OK) {
    item_end(s, slot);
    return true;
  }
  EXPECT(!it->is_cached && s->is_faulty, "release is %s (%.200s)", tide_status_name(status),
         tide_last_error()->text);
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
  if (!it->is_used || it->is_written) return true;
  const bool writes = o->value % 4 == 0 && it->uses == 0 && stream != it->stream;
  if (stream != it->stream && !work_follow(s, stream, it->stream)) return false;
  if (o->value % 2 == 0 && !work_delay(s, stream, o->number % 128)) return false;
  if (!(writes ? work_fill(s, it, stream) : work_read(s, it, stream))) return false;
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

static bool do_delay(model* s, const op* o) { return work_delay(s, o->other % STREAMS, o->number % 256); }

static bool do_pause(model* s, const op* o) {
  if (o->value % 8 == 0) EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  else if (is_dry(s->m)) EXPECT_OK(tide_dry_advance(s->m, o->number % 100000));
  else t_sleep_us(o->number % 50);
  return true;
}

static bool do_poll(model* s, const op* o) {
  (void)o;
  return expect_unless_faulty(s, "poll", ASK(s, tide_device_poll(s->d)));
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
  own_pool* const p = &s->pools[o->slot % POOLS];
  uint32_t users = 0;
  if (!p->is_used) return true;
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
  EXPECT_STATUS(tide_device_pool_release(s->d, p->number), is_refused ? TIDE_ERR_STATE : TIDE_OK);
  if (!is_refused) p->users--;
  return true;
}

static bool do_pool_release(model* s, const op* o) {
  own_pool* const p = &s->pools[o->slot % POOLS];
  return !p->is_used || pool_release(s, p);
}

static bool do_pool_begin(model* s, const op* o) {
  static const uint32_t kinds[] = { TIDE_SCOPE_ALL, TIDE_SCOPE_THREAD, TIDE_SCOPE_STREAM, TIDE_SCOPE_FILTER };
  own_pool* const p = &s->pools[o->slot % POOLS];
  if (!p->is_used) return true;
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
  p->users++;
  s->scopes[s->scope_count++] = (uint8_t)(p - s->pools);
  return true;
}

// Work that was announced in a scope is joined before the last scope closes: that is the caller's part.
static bool pool_end(model* s, own_pool* p) {
  size_t at = 0;
  if (s->scope_count == 1) EXPECT_OK(tide_machine_device_synchronize(s->m, 0));
  EXPECT_OK(tide_device_pool_end(s->d, p->number));
  p->has_scope = false;
  while (s->scopes[at] != p - s->pools) at++;
  for (s->scope_count--; at < s->scope_count; at++) s->scopes[at] = s->scopes[at + 1];
  return pool_release(s, p);
}

static bool do_pool_end(model* s, const op* o) {
  own_pool* const p = &s->pools[o->slot % POOLS];
  if (!p->is_used) return true;
  if (p->has_scope) return pool_end(s, p);
  EXPECT_STATUS(tide_device_pool_end(s->d, p->number), TIDE_ERR_STATE);
  return true;
}

static size_t pool_items(const model* s, tide_pool pool, const void** out) {
  size_t count = 0;
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const it = &s->items[i];
    if (it->is_used && it->is_cached && it->pool == pool) out[count++] = it->block.address;
  }
  return count;
}

// Does every pool have the blocks that the model says, and no other?
static bool pools_agree(model* s) {
  const void* addresses[SLOTS];
  for (size_t i = 0; i <= POOLS; i++) {
    const tide_pool number = i < POOLS ? s->pools[i].number : TIDE_POOL_DEFAULT;
    bool is_exact = false;
    if (i < POOLS && !s->pools[i].is_used) continue;
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
  const tide_status status = ASK(s, tide_device_trim(s->d));
  if (!expect_unless_faulty(s, "trim", status)) return false;
  if (status != TIDE_OK || !waits) return true;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  EXPECT_OK(tide_device_get_stats(s->d, &stats));
  EXPECT(stats.active[0].current == s->live, "%lld blocks are active after a trim, the model says %lld",
         (long long)stats.active[0].current, (long long)s->live);
  return s->is_faulty || pools_forget(s);
}

static bool do_trim_pool(model* s, const op* o) {
  own_pool* const p = &s->pools[o->slot % POOLS];
  const void* addresses[SLOTS];
  uint32_t users = 0;
  uint64_t bytes = 0;
  if (!p->is_used) return true;
  EXPECT_OK(tide_device_pool_reserved(s->d, p->number, &bytes));
  const tide_status status = ASK(s, tide_device_trim_pool(s->d, p->number));
  if (!expect_unless_faulty(s, "trim_pool", status)) return false;
  if (tide_device_pool_users(s->d, p->number, &users) == TIDE_OK) return true;
  EXPECT(p->users == 0 && pool_items(s, p->number, addresses) == 0, "pool %u is gone", p->number);
  p->is_used = false;
  return true;
}

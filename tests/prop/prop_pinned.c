// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the pinned-host cache: random calls, compared with a simple model, a list of the blocks that
// are handed out and a list of those that wait. On host and dry each piece of work on a stream waits at a
// gate of its own, so the model knows exactly how far each stream is. Memory of a block whose announced work
// is not done may neither be handed out nor given back, and a poll must free every block whose work is done.
// Blocks are filled when they are handed out and compared when they are released. Copies that run late must
// find the bytes that were there when they were queued. On cuda the streams run freely and are queried.
//
// tide_pinned_check() and a walk over all segments follow the operations, and faults of the machine hit some.
//
// The lists of operations on cuda are played in this process and printed whole.
#define T_THREADS
#include "machine/machines.h"
#include "prop/oplist.h"
#include "tidemark/pinned.h"

#define SLOTS 64u    // blocks that are handed out at a time
#define LANES 5u     // streams; the last is the thread's own
#define WAITS 512u   // blocks that wait, and those whose memory has not been met again
#define POOLS 3u     // private ones at a time
#define TARGETS 64u  // places on the device that copies go to
#define TARGET_BYTES (4 * KIB)
#define DEPTH 48u  // pieces of work on a stream at a time

// ---------------------------------------------------------------------------------------------------
// The model

// A stream. Pieces of work are numbered from 1.
typedef struct lane {
  tide_stream stream;
  uint64_t queued;
  uint64_t done;
  atomic_ulong allowed;          // pieces that may begin
  tide_event events[DEPTH + 8];  // behind piece n: n modulo their number
} lane;
#define LANE_EVENTS (DEPTH + 8)

// A block that is handed out.
typedef struct item {
  bool is_used;
  bool is_scoped;
  bool is_late;         // see wait_row
  uint8_t pattern;      // what its bytes are
  uint8_t announced;    // streams, as bits
  uint8_t noted;        // those of them that count until the release
  uint64_t now[LANES];  // the piece of work up to which others were announced
  tide_pool pool;
  size_t bytes;
  size_t rounded;
  tide_block block;
} item;

// A block that was released and has uses, and the pieces of work that must be done.
typedef struct wait_row {
  bool is_used;
  bool is_kept;  // for its pool
  bool is_late;  // it may wait for more, because an event could not be recorded in time
  tide_pool pool;
  uint64_t address;
  size_t rounded;
  uint64_t until[LANES];
} wait_row;

typedef struct own_pool {
  tide_pool number;  // 0: none
  uint32_t users;
  bool has_scope;
} own_pool;

// A place on the device that a copy goes to, or went.
typedef struct target {
  bool is_used;
  uint8_t lane;
  uint8_t pattern;
  uint64_t piece;
  size_t bytes;
} target;

typedef struct model {
  tide_machine* m;
  tide_pinned_cache* p;
  counting_heap records;
  uint64_t pieces_before;  // what the machine has given beside the cache
  bool is_exact;           // every piece of work waits for its gate
  bool is_readable;        // pinned memory is memory
  uint64_t cap;
  lane lanes[LANES];
  item items[SLOTS];
  tide_block stale[SLOTS];  // the last block that each slot had
  wait_row waits[WAITS];
  own_pool pools[POOLS];
  own_pool* scope;  // the pool with the open scope, or NULL
  target targets[TARGETS];
  uint8_t* device;     // the memory of the targets
  int64_t handed_out;  // since the last reset
  // Faults that hit the calls to come.
  uint32_t fault_calls;
  tide_fault fault;
  bool is_faulty;    // the last call may have met one
  bool has_refusal;  // since the last look that met none
} model;

// ---------------------------------------------------------------------------------------------------
// Faults: they are in force during calls of the cache only, not during those of the model

static void fault_arm(model* s) {
  s->is_faulty = s->fault_calls > 0;
  s->has_refusal |= s->is_faulty;
  if (!s->is_faulty) return;
  s->fault_calls--;
  T_OK(tide_machine_fault_add(s->m, &s->fault));
}

static tide_status fault_disarm(model* s, tide_status status) {
  if (s->is_faulty) tide_machine_fault_clear(s->m);
  return status;
}

// The status of a call of the cache, made with the current fault in force.
#define ASK(s, call) (fault_arm(s), fault_disarm((s), (call)))

// A call that cannot fail, except by a fault.
static bool expect_unless_faulty(const model* s, const char* call, tide_status got) {
  if (s->is_faulty && (got == TIDE_ERR_MACHINE || got == TIDE_ERR_NO_MEMORY)) return true;
  return expect_status(call, got, TIDE_OK);
}

// Where streams really wait at gates, a request without memory would wait for them for ever. There only the
// first of these calls fail.
static bool do_fault(model* s, const op* o) {
  static const tide_call kinds[] = {
    TIDE_CALL_EVENT_RECORD, TIDE_CALL_EVENT_QUERY,      TIDE_CALL_EVENT_NEW,
    TIDE_CALL_CLOCK,        TIDE_CALL_PINNED_RELEASE,   TIDE_CALL_PINNED_UNREGISTER,
    TIDE_CALL_CAPTURE_INFO, TIDE_CALL_CAPTURE_EXCHANGE, TIDE_CALL_ANY,
    TIDE_CALL_ANY,          TIDE_CALL_PINNED_REGISTER,  TIDE_CALL_PINNED_ALLOC
  };
  const size_t kind_count = sizeof kinds / sizeof kinds[0] - (is_dry(s->m) ? 0 : 4);
  const tide_fault defaults = TIDE_FAULT_INIT;
  s->fault = defaults;
  s->fault.call = (uint32_t)kinds[o->slot % kind_count];
  s->fault.status = o->other % 2 == 0 && is_dry(s->m) ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
  s->fault.skip = o->number % 6;
  s->fault.count = o->value % 8 == 0 ? UINT64_MAX : 1u + o->value % 3u;
  s->fault_calls = 1 + o->value / 16;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Work on streams

typedef struct ticket {
  lane* lane;
  uint64_t number;
} ticket;

static void job_wait(void* user) {
  ticket* const t = user;
  while (atomic_load(&t->lane->allowed) < t->number) t_sleep_us(20);
  free(t);
}

static void job_sleep(void* user) {
  (void)user;
  t_sleep_us(20);
}

static bool lane_gate(model* s, lane* l) {
  l->queued++;
  if (is_dry(s->m)) {
    EXPECT_OK(tide_dry_work(s->m, 0, l->stream, 1));
  } else if (!s->is_exact) {
    EXPECT_OK(tide_machine_call(s->m, 0, l->stream, job_sleep, NULL));
  } else {
    ticket* const t = malloc(sizeof *t);
    T_CHECK(t != NULL);
    *t = (ticket){ l, l->queued };
    EXPECT_OK(tide_machine_call(s->m, 0, l->stream, job_wait, t));
  }
  return true;
}

// Behind the gate, and whatever was queued with it, the model's own event.
static bool lane_mark(model* s, lane* l) {
  EXPECT_OK(tide_machine_event_record(s->m, 0, l->events[l->queued % LANE_EVENTS], l->stream));
  return true;
}

// Lets a stream do its work up to a piece, and waits until it is done.
static bool lane_run(model* s, lane* l, uint64_t piece) {
  if (piece <= l->done) return true;
  const tide_event event = l->events[piece % LANE_EVENTS];
  atomic_store(&l->allowed, piece);
  if (is_dry(s->m)) EXPECT_OK(tide_dry_finish(s->m, event));
  EXPECT_OK(tide_machine_event_synchronize(s->m, event));
  l->done = piece;
  return true;
}

// How far streams are that run freely.
static bool lanes_look(model* s) {
  for (size_t k = 0; k < LANES && !s->is_exact; k++) {
    lane* const l = &s->lanes[k];
    for (bool is_done = true; is_done && l->done < l->queued;) {
      EXPECT_OK(tide_machine_event_query(s->m, l->events[(l->done + 1) % LANE_EVENTS], &is_done));
      if (is_done) l->done++;
    }
  }
  return true;
}

static bool lane_has_room(model* s, lane* l) {
  return l->queued - l->done < DEPTH || lane_run(s, l, l->done + DEPTH / 2);
}

// ---------------------------------------------------------------------------------------------------
// Contents: of large blocks both ends are written and read, or the test would do little else

static size_t span_bytes(size_t bytes) { return bytes <= 2 * TARGET_BYTES ? bytes : TARGET_BYTES; }

static bool span_is(const uint8_t* p, uint8_t pattern, size_t bytes) {
  return p[0] == pattern && memcmp(p, p + 1, bytes - 1) == 0;
}

static bool item_is_intact(const model* s, const item* it) {
  const uint8_t* const first = it->block.address;
  const size_t span = span_bytes(it->bytes);
  return !s->is_readable ||
         (span_is(first, it->pattern, span) && span_is(first + it->bytes - span, it->pattern, span));
}

static void item_paint(const model* s, const item* it) {
  uint8_t* const first = it->block.address;
  const size_t span = span_bytes(it->bytes);
  if (!s->is_readable) return;
  memset(first, it->pattern, span);
  memset(first + it->bytes - span, it->pattern, span);
}

// Copies that are done have brought what was there when they were queued.
static bool targets_agree(model* s) {
  for (size_t i = 0; i < TARGETS; i++) {
    target* const t = &s->targets[i];
    if (!t->is_used || t->piece > s->lanes[t->lane].done) continue;
    t->is_used = false;
    const uint8_t* const address = s->device + i * TARGET_BYTES;
    if (is_cuda(s->m)) expect_filled(s->m, 0, address, t->pattern, t->bytes);
    else if (s->is_readable)
      EXPECT(span_is(address, t->pattern, t->bytes), "a late copy found 0x%02x, not 0x%02x", *address,
             t->pattern);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Blocks that wait

static bool overlaps(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

static bool wait_is_over(const model* s, const wait_row* w) {
  for (size_t k = 0; k < LANES; k++) {
    if (w->until[k] > s->lanes[k].done) return false;
  }
  return true;
}

// Must it be kept for its pool? One without users may have given it up.
static bool wait_is_kept(const model* s, const wait_row* w) {
  bool has_users = false;
  for (size_t i = 0; i < POOLS; i++) {
    has_users |= s->pools[i].number == w->pool && s->pools[i].users > 0;
  }
  return w->is_kept && has_users;
}

static wait_row* wait_new(model* s) {
  for (size_t i = 0; i < WAITS; i++) {
    wait_row* const w = &s->waits[i];
    if (!w->is_used || (!w->is_kept && !w->is_late && wait_is_over(s, w))) return w;
  }
  T_FAIL("the model has no room for blocks that wait");
}

static void wait_add(model* s, const item* it, bool is_late) {
  wait_row* const w = wait_new(s);
  *w = (wait_row){ .is_used = true, .is_late = is_late, .pool = it->pool, .rounded = it->rounded };
  w->address = (uint64_t)(uintptr_t)it->block.address;
  w->is_kept = it->is_scoped;
  for (size_t k = 0; k < LANES; k++) {
    w->until[k] = (it->noted >> k & 1u) != 0 ? s->lanes[k].queued : it->now[k];
  }
}

// Memory of blocks whose work is not done, or that a graph may use, is pinned, and no other block has it.
static bool waits_are_pinned(model* s) {
  if (!lanes_look(s)) return false;
  for (size_t i = 0; i < WAITS; i++) {
    const wait_row* const w = &s->waits[i];
    tide_pointer_info info = TIDE_POINTER_INFO_INIT;
    if (!w->is_used || (!wait_is_kept(s, w) && wait_is_over(s, w))) continue;
    EXPECT_OK(tide_machine_pointer_info(s->m, (const void*)(uintptr_t)w->address, &info));
    EXPECT(info.kind == TIDE_MEMORY_PINNED, "%#llx went back while a stream uses it",
           (unsigned long long)w->address);
  }
  return true;
}

static bool waits_allow(model* s, const item* it) {
  const uint64_t address = (uint64_t)(uintptr_t)it->block.address;
  if (!lanes_look(s)) return false;
  for (size_t i = 0; i < WAITS; i++) {
    wait_row* const w = &s->waits[i];
    if (!w->is_used || !overlaps(address, it->rounded, w->address, w->rounded)) continue;
    EXPECT(wait_is_over(s, w), "%p is handed out while a stream still uses it", it->block.address);
    EXPECT(!wait_is_kept(s, w), "%p is handed out although a graph may use it", it->block.address);
    w->is_used = false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Blocks that are handed out

static bool item_is_apart(const model* s, const item* it) {
  const uint64_t address = (uint64_t)(uintptr_t)it->block.address;
  EXPECT(address % 512 == 0, "%p is not aligned", it->block.address);
  for (size_t i = 0; i < SLOTS; i++) {
    const item* const other = &s->items[i];
    if (!other->is_used || other == it) continue;
    EXPECT(!overlaps(address, it->rounded, (uint64_t)(uintptr_t)other->block.address, other->rounded),
           "%p with %zu bytes overlaps block %zu: %p with %zu bytes", it->block.address, it->rounded, i,
           other->block.address, other->rounded);
    EXPECT(it->block.handle != other->block.handle, "two blocks have one handle");
  }
  return true;
}

// A pool that is gone keeps nothing.
static bool pools_forget(model* s) {
  for (size_t i = 0; i < POOLS; i++) {
    uint32_t users = 0;
    own_pool* const pool = &s->pools[i];
    if (pool->number == 0 || pool->users != 0) continue;
    if (tide_pinned_pool_users(s->p, pool->number, &users) == TIDE_OK) continue;
    for (size_t n = 0; n < WAITS; n++) {
      if (s->waits[n].is_used && s->waits[n].pool == pool->number) s->waits[n].is_kept = false;
      if (s->waits[n].is_used && s->waits[n].pool == pool->number) s->waits[n].is_late = true;
    }
    for (size_t n = 0; n < SLOTS; n++) {
      EXPECT(!s->items[n].is_used || s->items[n].pool != pool->number, "a pool with blocks is gone");
    }
    pool->number = 0;
  }
  return true;
}

static size_t bytes_wanted(const op* o) {
  const size_t power = (size_t)1 << (9 + o->value % 13);
  if (o->value % 4 == 0) return (size_t)1 << (9 + o->number % 12);
  return 1 + o->number % power;
}

static bool do_alloc(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  if (it->is_used) return true;
  *it = (item){ .pattern = (uint8_t)(o->number >> 8), .bytes = bytes_wanted(o) };
  it->rounded = tide_pinned_round(s->p, it->bytes);
  it->is_scoped = s->scope != NULL;
  it->pool = s->scope != NULL ? s->scope->number : TIDE_POOL_DEFAULT;
  const tide_status status = ASK(s, tide_pinned_alloc(s->p, it->bytes, &it->block));
  if (!expect_unless_faulty(s, "alloc", status) || !pools_forget(s)) return false;
  if (status != TIDE_OK) {
    EXPECT(it->block.address == NULL && it->block.handle == 0, "a failed request left a block");
    return true;
  }
  it->is_used = true;
  s->handed_out++;
  if (!item_is_apart(s, it) || !waits_allow(s, it)) return false;
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  EXPECT_OK(tide_machine_pointer_info(s->m, it->block.address, &info));
  EXPECT(info.kind == TIDE_MEMORY_PINNED, "%p is not pinned", it->block.address);
  item_paint(s, it);
  return true;
}

static uint64_t failed_calls(const model* s) { return tide_machine_call_stats(s->m, TIDE_CALL_ANY).failures; }

// An event may come late after a call that failed: it was not recorded, or the stream counted as captured,
// because the machine could not tell.
static bool item_release(model* s, size_t slot, bool by_address) {
  item* const it = &s->items[slot];
  const uint64_t before = failed_calls(s);
  EXPECT(item_is_intact(s, it), "block %zu has other bytes", slot);
  EXPECT_OK(by_address ? ASK(s, tide_pinned_release_address(s->p, it->block.address))
                       : ASK(s, tide_pinned_release(s->p, it->block)));
  if (it->announced != 0) wait_add(s, it, it->is_late || failed_calls(s) != before);
  it->is_used = false;
  s->stale[slot] = it->block;
  return true;
}

static bool do_release(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  return !s->items[slot].is_used || item_release(s, slot, o->value % 3 == 0);
}

// A handle of a released block never names another block.
static bool do_release_twice(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  const tide_block stale = s->stale[slot];
  if (stale.address == NULL) return true;
  const tide_status status = ASK(s, tide_pinned_release(s->p, stale));
  EXPECT(status == TIDE_ERR_STATE || status == TIDE_ERR_HANDLE, "a second release is %s",
         tide_status_name(status));
  for (size_t i = 0; i < SLOTS && status == TIDE_ERR_STATE; i++) {
    const item* const it = &s->items[i];
    const uint64_t address = (uint64_t)(uintptr_t)stale.address;
    EXPECT(!it->is_used || !overlaps(address, 1, (uint64_t)(uintptr_t)it->block.address, it->rounded),
           "memory that is handed out anew is called released");
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Announcing

// The block by its handle, by its handle and an address inside, or by its address alone.
static tide_block name_of(const item* it, const op* o) {
  tide_block name = it->block;
  if (o->value % 3 == 1) name.address = (uint8_t*)name.address + o->number % it->bytes;
  if (o->value % 3 == 2) name.handle = o->number % 2;
  return name;
}

// Each record of the thread's own stream counts what is queued now.
static void item_note(const model* s, item* it, size_t k, bool is_now) {
  it->announced |= (uint8_t)(1u << k);
  if (is_now || k == LANES - 1) it->now[k] = s->lanes[k].queued;
  else it->noted |= (uint8_t)(1u << k);
}

// Work that is queued before it is announced.
static bool lane_work(model* s, size_t k) {
  lane* const l = &s->lanes[k];
  return lane_has_room(s, l) && lane_gate(s, l) && lane_mark(s, l);
}

static bool do_work(model* s, const op* o) { return lane_work(s, o->other % LANES); }

static bool do_record(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  const size_t k = o->other % LANES;
  if (!it->is_used) return true;
  if (o->value % 4 != 0 && !lane_work(s, k)) return false;
  const bool is_now = o->value % 2 == 0;
  const tide_block name = name_of(it, o);
  const uint64_t before = failed_calls(s);
  const tide_status status = is_now ? ASK(s, tide_pinned_record_now(s->p, name, 0, s->lanes[k].stream))
                                    : ASK(s, tide_pinned_record(s->p, name, 0, s->lanes[k].stream));
  if (!expect_unless_faulty(s, "record", status)) return false;
  it->is_late |= failed_calls(s) != before;
  if (status == TIDE_OK) item_note(s, it, k, is_now);
  return true;
}

// A copy out of a block, which is late; the block may be gone before.
static bool do_copy(model* s, const op* o) {
  item* const it = &s->items[o->slot % SLOTS];
  const size_t at = o->number % TARGETS;
  target* const t = &s->targets[at];
  const size_t k = o->other % LANES;
  lane* const l = &s->lanes[k];
  if (!targets_agree(s)) return false;
  if (!it->is_used || t->is_used || !lane_has_room(s, l)) return outcome->text[0] == '\0';
  *t = (target){ true, (uint8_t)k, it->pattern, 0, span_bytes(it->bytes) };
  if (t->bytes > TARGET_BYTES) t->bytes = TARGET_BYTES;
  if (!lane_gate(s, l)) return false;
  const uint64_t failures = tide_machine_call_stats(s->m, TIDE_CALL_COPY).failures;
  const uint64_t copies = tide_machine_call_stats(s->m, TIDE_CALL_COPY).calls;
  const tide_status status =
      ASK(s, tide_pinned_copy(s->p, it->block, 0, l->stream, s->device + at * TARGET_BYTES, it->block.address,
                              t->bytes));
  if (!expect_unless_faulty(s, "copy", status) || !lane_mark(s, l)) return false;
  t->piece = l->queued;
  const bool is_queued = tide_machine_call_stats(s->m, TIDE_CALL_COPY).calls > copies &&
                         tide_machine_call_stats(s->m, TIDE_CALL_COPY).failures == failures;
  t->is_used = is_queued;
  // What was refused may have been announced or not; now it certainly is.
  if (status != TIDE_OK) EXPECT_OK(tide_pinned_record(s->p, it->block, 0, l->stream));
  item_note(s, it, k, false);
  return true;
}

// A copy into a block that nothing else uses and that is released at once: whoever has the memory next must
// not find it changed.
static bool do_copy_back(model* s, const op* o) {
  const size_t slot = o->slot % SLOTS;
  item* const it = &s->items[slot];
  const size_t k = o->other % LANES;
  lane* const l = &s->lanes[k];
  const size_t bytes = it->is_used ? span_bytes(it->bytes) % (TARGET_BYTES + 1) : 0;
  if (bytes == 0 || it->is_scoped || it->announced != 0 || !lane_has_room(s, l))
    return outcome->text[0] == '\0';
  if (!item_is_intact(s, it) || !lane_gate(s, l)) EXPECT(false, "block %zu has other bytes", slot);
  EXPECT_OK(tide_pinned_copy(s->p, it->block, 0, l->stream, it->block.address,
                             s->device + TARGETS * TARGET_BYTES, bytes));
  if (!lane_mark(s, l)) return false;
  item_note(s, it, k, false);
  return item_release(s, slot, o->value % 2 == 0);
}

// Lets a stream go on: by some pieces, or until it is idle.
static bool do_run(model* s, const op* o) {
  lane* const l = &s->lanes[o->other % LANES];
  const uint64_t left = l->queued - l->done;
  if (left == 0) return true;
  const uint64_t piece = o->value % 2 == 0 ? l->queued : l->done + 1 + o->number % left;
  return lane_run(s, l, piece) && targets_agree(s);
}

// ---------------------------------------------------------------------------------------------------
// Polling

typedef struct wait_counts {
  int64_t waiting;  // whose work is not done
  int64_t late;     // that may wait for more
  int64_t kept;     // for a pool with users
  int64_t given;    // for one without, which may have given them up
} wait_counts;

static wait_counts count_waits(const model* s) {
  wait_counts counts = { 0, 0, 0, 0 };
  for (size_t i = 0; i < WAITS; i++) {
    const wait_row* const w = &s->waits[i];
    if (!w->is_used) continue;
    const bool is_over = wait_is_over(s, w);
    counts.kept += wait_is_kept(s, w);
    counts.given += w->is_kept && !wait_is_kept(s, w);
    counts.waiting += !w->is_kept && !is_over;
    counts.late += !w->is_kept && w->is_late && is_over;
  }
  return counts;
}

// After a poll without a fault exactly the blocks wait whose work is not done. A block whose event was
// recorded late also waits for work that was queued meanwhile.
static bool do_poll(model* s, const op* o) {
  (void)o;
  const tide_status status = ASK(s, tide_pinned_poll(s->p));
  if (!expect_unless_faulty(s, "poll", status)) return false;
  s->has_refusal &= s->is_faulty;
  if (s->is_faulty || !s->is_exact) return true;
  const wait_counts counts = count_waits(s);
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  EXPECT_OK(tide_pinned_get_stats(s->p, &stats));
  const int64_t most = counts.waiting + counts.late + counts.given;
  EXPECT(stats.waiting.current >= counts.waiting && stats.waiting.current <= most,
         "%lld blocks wait, the model says %lld to %lld", (long long)stats.waiting.current,
         (long long)counts.waiting, (long long)most);
  return true;
}

// A block whose event came late is like any other once all streams were idle and a look has seen it.
static bool do_settle(model* s, const op* o) {
  for (size_t i = 0; i < 2; i++) {
    for (size_t k = 0; k < LANES; k++) {
      if (!lane_run(s, &s->lanes[k], s->lanes[k].queued)) return false;
    }
    s->fault_calls = 0;
    EXPECT_OK(tide_pinned_poll(s->p));
  }
  for (size_t i = 0; i < WAITS; i++) s->waits[i].is_late = false;
  return do_poll(s, o);
}

static bool do_trim(model* s, const op* o) {
  const tide_status status = ASK(s, tide_pinned_trim(s->p, o->number % (8 * MIB)));
  return expect_unless_faulty(s, "trim", status);
}

static bool do_empty(model* s, const op* o) {
  (void)o;
  const tide_status status = ASK(s, tide_pinned_empty(s->p));
  return expect_unless_faulty(s, "empty", status) && pools_forget(s);
}

// ---------------------------------------------------------------------------------------------------
// Pools

static bool do_pool_new(model* s, const op* o) {
  own_pool* const pool = &s->pools[o->slot % POOLS];
  if (pool->number != 0) return true;
  EXPECT_OK(tide_pinned_pool_new(s->p, &pool->number));
  pool->users = 1;
  return true;
}

static bool do_pool_begin(model* s, const op* o) {
  own_pool* const pool = &s->pools[o->slot % POOLS];
  if (pool->number == 0) return true;
  const tide_status status = tide_pinned_pool_begin(s->p, pool->number, NULL);
  const bool is_possible = pool->users > 0 && !pool->has_scope;
  if (!expect_status("pool_begin", status, is_possible ? TIDE_OK : TIDE_ERR_STATE)) return false;
  if (!is_possible) return true;
  if (s->scope != NULL) {
    EXPECT_OK(tide_pinned_pool_end(s->p, s->scope->number));
    s->scope->has_scope = false;
  }
  pool->has_scope = true;
  s->scope = pool;
  return true;
}

static bool do_pool_end(model* s, const op* o) {
  own_pool* const pool = &s->pools[o->slot % POOLS];
  if (pool->number == 0) return true;
  EXPECT_STATUS(tide_pinned_pool_end(s->p, pool->number), pool->has_scope ? TIDE_OK : TIDE_ERR_STATE);
  if (pool->has_scope) s->scope = NULL;
  pool->has_scope = false;
  return true;
}

static bool do_pool_release(model* s, const op* o) {
  own_pool* const pool = &s->pools[o->slot % POOLS];
  uint32_t users = 0;
  if (pool->number == 0) return true;
  const bool is_possible = pool->users > (pool->has_scope ? 1u : 0u);
  EXPECT_STATUS(tide_pinned_pool_drop(s->p, pool->number), is_possible ? TIDE_OK : TIDE_ERR_STATE);
  if (is_possible) pool->users--;
  EXPECT_OK(tide_pinned_pool_users(s->p, pool->number, &users));
  EXPECT(users == pool->users, "a pool has %u users, the model says %u", users, pool->users);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Other calls

static bool do_reset(model* s, const op* o) {
  if (o->value % 2 == 0) {
    tide_pinned_reset_accumulated(s->p);
    s->handed_out = 0;
  } else {
    tide_pinned_reset_peaks(s->p);
  }
  return true;
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
  options.max_entries = 1 + o->number % 300;
  EXPECT_OK(tide_pinned_history(s->p, &options));
  EXPECT_OK(tide_pinned_history_visit(s->p, count_entries, &count));
  EXPECT(count <= options.max_entries, "%zu entries of history, %zu wanted", count,
         (size_t)options.max_entries);
  return true;
}

// Time passes, and memory ages.
static bool do_pause(model* s, const op* o) {
  if (is_dry(s->m)) EXPECT_OK(tide_dry_advance(s->m, o->number % 200000));
  else t_sleep_us(o->number % 100);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Everything, segment by segment

typedef struct walk {
  const model* s;
  uint64_t end;         // of the segment before
  uint64_t idle_bytes;  // of single blocks of the default pool
  size_t live;          // blocks that are shown as handed out
  bool is_wrong;
} walk;

static bool walk_segment(void* user, const tide_segment_info* segment) {
  walk* const w = user;
  w->is_wrong |= segment->address < w->end || segment->device != -1;
  w->end = segment->address + segment->bytes;
  if (segment->pool == TIDE_POOL_DEFAULT && segment->is_large && segment->active_bytes == 0) {
    w->idle_bytes += segment->bytes;
  }
  return !w->is_wrong;
}

static bool walk_block(void* user, const tide_block_info* block) {
  walk* const w = user;
  const model* const s = w->s;
  bool is_live = false;
  for (size_t i = 0; i < SLOTS && !is_live; i++) {
    is_live = s->items[i].is_used && (uint64_t)(uintptr_t)s->items[i].block.address == block->address &&
              s->items[i].rounded <= block->bytes && s->items[i].bytes == block->requested_bytes;
  }
  w->live += is_live;
  w->is_wrong |= is_live != (block->state == TIDE_BLOCK_ALLOCATED);
  for (size_t i = 0; i < WAITS && s->is_exact; i++) {
    const wait_row* const row = &s->waits[i];
    if (!row->is_used || row->address != block->address || wait_is_over(s, row)) continue;
    w->is_wrong |= block->state == TIDE_BLOCK_INACTIVE;
  }
  return !w->is_wrong;
}

static bool segments_agree(model* s) {
  walk w = { .s = s };
  size_t live = 0;
  const tide_device_visitor visitor = { walk_segment, walk_block, &w };
  for (size_t i = 0; i < SLOTS; i++) live += s->items[i].is_used;
  EXPECT_OK(tide_pinned_visit(s->p, &visitor));
  EXPECT(!w.is_wrong, "a segment or block is shown that the model does not know like this");
  EXPECT(w.live == live, "%zu blocks are shown as handed out, the model says %zu", w.live, live);
  EXPECT(s->has_refusal || w.idle_bytes <= s->cap, "%llu bytes are cached, above the cap",
         (unsigned long long)w.idle_bytes);
  return true;
}

static bool stats_agree(model* s) {
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  int64_t live = 0;
  int64_t live_bytes = 0;
  EXPECT_OK(tide_pinned_get_stats(s->p, &stats));
#define SOUND(name)                                                                                   \
  EXPECT(stats.name.current >= 0 && stats.name.peak >= stats.name.current, #name ": %lld, peak %lld", \
         (long long)stats.name.current, (long long)stats.name.peak);
  TIDE_PINNED_STAT_MAP(SOUND)
#undef SOUND
  for (size_t i = 0; i < SLOTS; i++) {
    live += s->items[i].is_used;
    live_bytes += s->items[i].is_used ? (int64_t)s->items[i].rounded : 0;
  }
  const int64_t waiting = stats.waiting.current;
  const wait_counts counts = count_waits(s);
  const int64_t least = live + waiting + counts.kept;
  EXPECT(stats.active_requests.current >= least && stats.active_requests.current <= least + counts.given,
         "%lld blocks are active, the model says %lld handed out, %lld waiting, %lld kept",
         (long long)stats.active_requests.current, (long long)live, (long long)waiting,
         (long long)counts.kept);
  EXPECT(stats.active_bytes.current >= live_bytes + stats.waiting_bytes.current, "too few bytes are active");
  EXPECT(!s->is_exact || waiting >= counts.waiting, "%lld blocks wait, the model says at least %lld",
         (long long)waiting, (long long)counts.waiting);
  EXPECT(stats.active_requests.allocated == s->handed_out, "%lld blocks were handed out, the model says %lld",
         (long long)stats.active_requests.allocated, (long long)s->handed_out);
  EXPECT(stats.allocated_bytes.current <= stats.reserved_bytes.current, "more bytes in blocks than reserved");
  return true;
}

static bool model_agrees(model* s) {
  const int broken = tide_pinned_check(s->p);
  EXPECT(broken == 0, "check: %d (%.200s)", broken, tide_last_error()->text);
  return lanes_look(s) && targets_agree(s) && stats_agree(s) && segments_agree(s) && waits_are_pinned(s);
}

// ---------------------------------------------------------------------------------------------------
// Verbs

// Name, function, how often of 1000.
// clang-format off
#define VERB_MAP(X)                                                                                      \
  X(ALLOC, do_alloc, 330) X(RELEASE, do_release, 240) X(RELEASE_TWICE, do_release_twice, 15)             \
  X(WORK, do_work, 35) X(RECORD, do_record, 120) X(COPY, do_copy, 50)               \
  X(COPY_BACK, do_copy_back, 20) X(RUN, do_run, 60) X(POLL, do_poll, 30) X(SETTLE, do_settle, 6)         \
  X(TRIM, do_trim, 8) X(EMPTY, do_empty, 8) X(POOL_NEW, do_pool_new, 8) X(POOL_BEGIN, do_pool_begin, 10) \
  X(POOL_END, do_pool_end, 10) X(POOL_RELEASE, do_pool_release, 12) X(RESET, do_reset, 8)                \
  X(HISTORY, do_history, 5) X(PAUSE, do_pause, 10) X(FAULT, do_fault, 15)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static bool (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

// ---------------------------------------------------------------------------------------------------
// Runs

static const char* const prop_modes[] = {
  "dry",          "dry registered",  "dry powers", "dry reserve", "dry tight", "host",
  "host reserve", "host registered", "host tight", "cuda",        NULL
};

static bool mode_is(const char* part) { return strstr(t_variant(), part) != NULL; }

static void options_set(tide_pinned_options* options) {
  options->uses_register = mode_is("registered");
  options->register_threads = 2;
  options->powers_of_two = mode_is("powers");
  if (mode_is("reserve")) options->reserve_bytes = 1 * MIB;
  if (!mode_is("tight")) return;
  options->max_cached_bytes = 512 * KIB;
  options->max_block_bytes = 1 * MIB;
  options->max_round_bytes = 100 * KIB;
  options->idle_ns = 100000;
}

static tide_machine* prop_machine_new(void) {
  if (mode_is("host")) return machine_open("host", NULL);
  return machine_open(mode_is("dry") ? "dry" : "cuda", NULL);
}

static uint64_t pieces_out(const tide_machine* m) {
  static const tide_call calls[] = { TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_RELEASE,
                                     TIDE_CALL_PINNED_REGISTER, TIDE_CALL_PINNED_UNREGISTER };
  uint64_t count = 0;
  for (size_t i = 0; i < 4; i++) {
    const tide_call_stats stats = tide_machine_call_stats(m, calls[i]);
    count += i % 2 == 0 ? stats.calls - stats.failures : stats.failures - stats.calls;
  }
  return count;
}

static void lane_open(model* s, size_t k) {
  lane* const l = &s->lanes[k];
  l->stream = k == LANES - 1 ? TIDE_STREAM_PER_THREAD : stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < LANE_EVENTS; i++) l->events[i] = event_new(s->m, 0);
  if (is_dry(s->m)) T_OK(tide_dry_hold(s->m, 0, l->stream, true));
}

static void model_open(model* s, tide_machine* m) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  memset(s, 0, sizeof *s);
  s->m = m;
  s->is_exact = !is_cuda(m);
  s->is_readable = machine_has_memory(m);
  s->device = raw_new(m, 0, (TARGETS + 1) * TARGET_BYTES);
  device_fill(m, 0, s->device, 0xdd, (TARGETS + 1) * TARGET_BYTES);
  for (size_t k = 0; k < LANES; k++) lane_open(s, k);
  s->pieces_before = pieces_out(m);
  counting_heap_init(&s->records, SIZE_MAX, false);
  options_set(&options);
  options.heap = &s->records.heap;
  s->cap = options.max_cached_bytes;
  T_OK(tide_pinned_new(m, &options, &s->p));
}

// Releases everything: only records may be left, and none of them after tide_pinned_free().
static bool model_close(model* s) {
  const op none = { 0 };
  s->fault_calls = 0;
  if (s->scope != NULL) EXPECT_OK(tide_pinned_pool_end(s->p, s->scope->number));
  for (size_t i = 0; i < SLOTS; i++) {
    if (s->items[i].is_used && !item_release(s, i, i % 2 == 0)) return false;
  }
  for (size_t i = 0; i < POOLS; i++) {
    for (; s->pools[i].number != 0 && s->pools[i].users > 0; s->pools[i].users--) {
      EXPECT_OK(tide_pinned_pool_drop(s->p, s->pools[i].number));
    }
  }
  if (!do_settle(s, &none) || !do_empty(s, &none) || !do_settle(s, &none) || !do_empty(s, &none))
    return false;
  if (!model_agrees(s)) return false;
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  EXPECT_OK(tide_pinned_get_stats(s->p, &stats));
#define NOTHING_LEFT(name) \
  EXPECT(stats.name.current == 0, #name " is %lld at the end", (long long)stats.name.current);
  TIDE_PINNED_STAT_MAP(NOTHING_LEFT)
#undef NOTHING_LEFT
  return true;
}

static bool model_free(model* s) {
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  tide_pinned_free(s->p, &leaks);
  EXPECT(leaks.blocks == 0 && leaks.refused_pieces == 0, "%llu blocks are left, %llu pieces refused",
         (unsigned long long)leaks.blocks, (unsigned long long)leaks.refused_pieces);
  EXPECT(pieces_out(s->m) == s->pieces_before, "the machine misses pinned memory");
  EXPECT(atomic_load(&s->records.outstanding) == 0, "%zu bytes of records are left",
         atomic_load(&s->records.outstanding));
  tide_machine_free(s->m);
  return true;
}

static bool play(const op* list, size_t count, size_t check_every) {
  static model s;
  model_open(&s, prop_machine_new());
  for (size_t i = 0; i < count; ++i) {
    outcome->at = i;
    if (!functions[list[i].verb](&s, &list[i])) return false;
    if (i % check_every == 0 && !model_agrees(&s)) return false;
    if (i % check_every % 4 == 0 && !stats_agree(&s)) return false;
  }
  return model_close(&s) && model_free(&s);
}

static const op_suite suite = { "the cache", verbs, sizeof verbs / sizeof *verbs, play, 1024, 8, 16 };

T_TEST_OVER(prop_pinned__agrees_with_a_list_of_blocks, prop_modes) {
  const size_t many = mode_is("dry") ? 8000 : 2500;
  suite_run(&suite, t_scaled_alone(T_HAS_SANITIZER ? many / 16 : many), !mode_is("cuda"));
}

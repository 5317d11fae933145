// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the cache of pinned memory on a dry machine. An input says the options, which request for records is
// the last that is granted, and then calls in any order: requests of any size, releases by handle, by address
// and wrong ones, announcements, copies, looks, trims, pools and scopes, the history, and faults of the
// machine. The streams are held, and finish their work piece by piece when the input says so.
//
// A model knows what is handed out and how far each stream is. A block that is handed out overlaps no other,
// and none that was released and whose announced work is not done, nor one that is kept for a pool.
// Releasing a block that is handed out always works, and any other release is refused. In the end the machine
// has everything back.
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "tidemark/pinned.h"

enum {
  FUZZ_PIECES = 40,
  FUZZ_WAITS = 200,
  FUZZ_LANES = 3,  // streams; the last is the thread's own
  FUZZ_EVENTS = 32,
  FUZZ_POOLS = 2,
  FUZZ_STEPS = 400
};

// ---------------------------------------------------------------------------------------------------
// The model

// A stream. Pieces of work are numbered from 1; behind each stands an event.
typedef struct fuzz_lane {
  tide_stream stream;
  uint64_t queued;
  uint64_t done;
  tide_event events[FUZZ_EVENTS];
} fuzz_lane;

// A block that is handed out.
typedef struct fuzz_piece {
  tide_block block;
  size_t bytes;
  size_t rounded;
  uint8_t announced;         // streams, as bits
  uint8_t noted;             // those of them that count until the release
  uint64_t now[FUZZ_LANES];  // up to which work the others count
  size_t pool;               // one of ours plus 1, 0: the default pool
} fuzz_piece;

// One that was released.
typedef struct fuzz_wait {
  uint64_t address;
  size_t rounded;
  uint64_t until[FUZZ_LANES];
  size_t pool;
} fuzz_wait;

typedef struct fuzz_pool {
  tide_pool number;
  uint32_t users;
  bool has_scope;
} fuzz_pool;

typedef struct fuzz_world {
  tide_machine* machine;
  tide_pinned_cache* pinned;
  tide_heap heap;
  size_t heap_blocks;
  size_t heap_calls;
  size_t heap_last;  // the call that gets memory for the last time; 0: every one does
  bool has_failed;   // a record was refused, or a fault is in force
  void* device;      // memory to copy to
  fuzz_lane lanes[FUZZ_LANES];
  fuzz_piece pieces[FUZZ_PIECES];
  size_t count;
  fuzz_wait waits[FUZZ_WAITS];
  size_t wait_count;
  fuzz_pool pools[FUZZ_POOLS];
  size_t scope;  // the pool with the scope plus 1
  tide_block gone[4];
} fuzz_world;

static void* fuzz_heap_alloc(void* user, size_t bytes, size_t alignment) {
  fuzz_world* const w = user;
  void* address = NULL;
  if (w->heap_last > 0 && ++w->heap_calls > w->heap_last) {
    w->has_failed = true;
    return NULL;
  }
  FUZZ_REQUIRE(posix_memalign(&address, alignment < 8 ? 8 : alignment, bytes) == 0);
  w->heap_blocks++;
  return address;
}

static void fuzz_heap_release(void* user, void* address, size_t bytes) {
  (void)bytes;
  ((fuzz_world*)user)->heap_blocks--;
  free(address);
}

static bool fuzz_is_excused(const fuzz_world* w, tide_status status) {
  return status == TIDE_OK || (w->has_failed && (status == TIDE_ERR_NO_MEMORY || status == TIDE_ERR_MACHINE));
}

static bool fuzz_overlaps(uint64_t a, size_t a_bytes, uint64_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

static uint64_t fuzz_address(tide_block block) { return (uint64_t)(uintptr_t)block.address; }

// ---------------------------------------------------------------------------------------------------
// Streams

// Calls of the model meet no fault.
static tide_status fuzz_work(fuzz_world* w, fuzz_lane* lane) {
  lane->queued++;
  return tide_dry_work(w->machine, 0, lane->stream, 1);
}

static void fuzz_mark(fuzz_world* w, const fuzz_lane* lane) {
  const tide_event event = lane->events[lane->queued % FUZZ_EVENTS];
  FUZZ_REQUIRE(tide_machine_event_record(w->machine, 0, event, lane->stream) == TIDE_OK);
}

static void fuzz_run_to(fuzz_world* w, fuzz_lane* lane, uint64_t piece) {
  if (piece <= lane->done) return;
  FUZZ_REQUIRE(tide_dry_finish(w->machine, lane->events[piece % FUZZ_EVENTS]) == TIDE_OK);
  lane->done = piece;
}

static void fuzz_queue(fuzz_world* w, fuzz_lane* lane) {
  if (lane->queued - lane->done >= FUZZ_EVENTS - 2) fuzz_run_to(w, lane, lane->queued);
  FUZZ_REQUIRE(fuzz_work(w, lane) == TIDE_OK);
  fuzz_mark(w, lane);
}

// Without the faults in force: those hit calls of the cache only.
static void fuzz_pause_faults(const fuzz_world* w) { tide_machine_fault_clear(w->machine); }

// ---------------------------------------------------------------------------------------------------
// Blocks

static bool fuzz_is_waiting(const fuzz_world* w, const fuzz_wait* row) {
  for (size_t k = 0; k < FUZZ_LANES; k++) {
    if (row->until[k] > w->lanes[k].done) return true;
  }
  return row->pool != 0 && w->pools[row->pool - 1].users > 0;
}

static void fuzz_check_apart(const fuzz_world* w, const fuzz_piece* piece) {
  const uint64_t address = fuzz_address(piece->block);
  FUZZ_REQUIRE(address % 512 == 0 && piece->rounded >= piece->bytes);
  for (size_t i = 0; i < w->count; i++) {
    const fuzz_piece* const other = &w->pieces[i];
    FUZZ_REQUIRE(!fuzz_overlaps(address, piece->rounded, fuzz_address(other->block), other->rounded));
    FUZZ_REQUIRE(piece->block.handle != other->block.handle);
  }
  for (size_t i = 0; i < w->wait_count; i++) {
    const fuzz_wait* const row = &w->waits[i];
    if (!fuzz_overlaps(address, piece->rounded, row->address, row->rounded)) continue;
    FUZZ_REQUIRE(!fuzz_is_waiting(w, row));
  }
}

static size_t fuzz_bytes_of(uint8_t b, uint8_t c) {
  static const size_t sizes[] = { 0,
                                  512,
                                  4096,
                                  4097,
                                  32768,
                                  65536,
                                  1 << 20,
                                  3 << 20,
                                  (size_t)20400 << 20,
                                  (size_t)1 << 59,
                                  ((size_t)1 << 60) - 1,
                                  (size_t)1 << 60,
                                  (size_t)1 << 63,
                                  SIZE_MAX - 4095,
                                  SIZE_MAX,
                                  1 };
  if (b < 0xf0) return ((size_t)(b % 16) << 9 << c % 8) + c;
  return sizes[b % 16];
}

static void fuzz_alloc(fuzz_world* w, uint8_t b, uint8_t c) {
  fuzz_piece piece = { .bytes = fuzz_bytes_of(b, c), .pool = w->scope };
  if (w->count == FUZZ_PIECES) return;
  piece.rounded = tide_pinned_round(w->pinned, piece.bytes);
  piece.block = (tide_block){ w, 1 };
  const tide_status status = tide_pinned_alloc(w->pinned, piece.bytes, &piece.block);
  FUZZ_REQUIRE((piece.block.address != NULL) == (status == TIDE_OK && piece.bytes > 0));
  if (piece.bytes == 0) {
    FUZZ_REQUIRE(status == TIDE_OK);
  } else if (piece.bytes >= (size_t)1 << 60) {
    FUZZ_REQUIRE(status == TIDE_ERR_ARGUMENT && piece.rounded == 0);
  } else {
    // Registered memory takes addresses of this process, of which a sanitizer leaves few.
    FUZZ_REQUIRE(fuzz_is_excused(w, status) ||
                 (status == TIDE_ERR_NO_MEMORY && piece.bytes >= (size_t)1 << 34));
  }
  if (piece.block.address == NULL) return;
  fuzz_check_apart(w, &piece);
  w->pieces[w->count++] = piece;
}

static void fuzz_wait_add(fuzz_world* w, const fuzz_piece* piece) {
  size_t kept = 0;
  for (size_t i = 0; i < w->wait_count; i++) {
    if (fuzz_is_waiting(w, &w->waits[i])) w->waits[kept++] = w->waits[i];
  }
  w->wait_count = kept;
  if (w->wait_count == FUZZ_WAITS) return;
  fuzz_wait row = { .address = fuzz_address(piece->block), .rounded = piece->rounded, .pool = piece->pool };
  for (size_t k = 0; k < FUZZ_LANES; k++) {
    row.until[k] = (piece->noted >> k & 1) != 0 ? w->lanes[k].queued : piece->now[k];
  }
  w->waits[w->wait_count++] = row;
}

static void fuzz_release(fuzz_world* w, size_t at, bool by_address) {
  const fuzz_piece piece = w->pieces[at];
  const tide_status status = by_address ? tide_pinned_release_address(w->pinned, piece.block.address)
                                        : tide_pinned_release(w->pinned, piece.block);
  FUZZ_REQUIRE(status == TIDE_OK);
  w->gone[at % 4] = piece.block;
  w->pieces[at] = w->pieces[--w->count];
  if (piece.announced != 0) fuzz_wait_add(w, &piece);
}

// Stale and random handles, and addresses of no block.
static void fuzz_release_wrong(fuzz_world* w, uint8_t b, uint8_t c) {
  tide_block block = w->gone[b % 4];
  if (block.address == NULL) return;
  if (b & 8) block.handle ^= (uint64_t)1 << c % 64;
  if (b & 16) block.address = (uint8_t*)block.address + c;
  for (size_t i = 0; i < w->count; i++) {
    if (block.handle == w->pieces[i].block.handle) return;
  }
  FUZZ_REQUIRE(tide_pinned_release(w->pinned, block) != TIDE_OK);
}

// ---------------------------------------------------------------------------------------------------
// Announcing

static void fuzz_note(const fuzz_world* w, fuzz_piece* piece, size_t k, bool is_now) {
  piece->announced |= (uint8_t)(1u << k);
  if (is_now || k == FUZZ_LANES - 1) piece->now[k] = w->lanes[k].queued;
  else piece->noted |= (uint8_t)(1u << k);
}

static void fuzz_record(fuzz_world* w, uint8_t b, uint8_t c) {
  if (w->count == 0) return;
  fuzz_piece* const piece = &w->pieces[b % w->count];
  const size_t k = c % FUZZ_LANES;
  const bool is_now = (c & 8) != 0;
  tide_block name = piece->block;
  if (c & 16) name.handle = c;
  else if (c & 32) name.address = (uint8_t*)name.address + piece->bytes - 1;
  const tide_status status = is_now ? tide_pinned_record_now(w->pinned, name, 0, w->lanes[k].stream)
                                    : tide_pinned_record(w->pinned, name, 0, w->lanes[k].stream);
  FUZZ_REQUIRE(fuzz_is_excused(w, status));
  if (status == TIDE_OK) fuzz_note(w, piece, k, is_now);
  name.handle = (uint64_t)c << 40;  // nobody's
  name.address = (uint8_t*)piece->block.address + 1;
  FUZZ_REQUIRE(tide_pinned_record(w->pinned, name, 0, NULL) == TIDE_ERR_ARGUMENT);
}

// A refused copy queues no work. On the thread's own stream a copy is announced after it is queued, which may
// fail; then the stream is run at once.
static void fuzz_copy(fuzz_world* w, uint8_t b, uint8_t c) {
  if (w->count == 0) return;
  fuzz_piece* const piece = &w->pieces[b % w->count];
  const size_t k = c % FUZZ_LANES;
  fuzz_lane* const lane = &w->lanes[k];
  const tide_status status = tide_pinned_copy(w->pinned, piece->block, 0, lane->stream, w->device,
                                              piece->block.address, piece->bytes < 512 ? piece->bytes : 512);
  FUZZ_REQUIRE(fuzz_is_excused(w, status));
  fuzz_pause_faults(w);
  w->has_failed = w->heap_last > 0;
  fuzz_queue(w, lane);
  if (status != TIDE_OK) fuzz_run_to(w, lane, lane->queued);
  else if (k == FUZZ_LANES - 1) piece->now[k] = lane->queued - 1, piece->announced |= (uint8_t)(1u << k);
  else fuzz_note(w, piece, k, false);
}

// ---------------------------------------------------------------------------------------------------
// Pools

static void fuzz_pool_new(fuzz_world* w, fuzz_pool* pool) {
  uint32_t users = 0;
  if (pool->number != 0 && pool->users > 0) return;
  if (pool->number != 0 && tide_pinned_pool_users(w->pinned, pool->number, &users) == TIDE_OK) return;
  for (size_t i = 0; i < w->count; i++)
    FUZZ_REQUIRE(w->pieces[i].pool != (size_t)(pool - w->pools) + 1 || pool->number == 0);
  for (size_t i = 0; i < w->wait_count; i++) {
    if (w->waits[i].pool == (size_t)(pool - w->pools) + 1) w->waits[i].pool = 0;
  }
  const tide_status status = tide_pinned_pool_new(w->pinned, &pool->number);
  FUZZ_REQUIRE(fuzz_is_excused(w, status) && (pool->number != 0) == (status == TIDE_OK));
  pool->users = status == TIDE_OK;
}

static void fuzz_scope(fuzz_world* w, fuzz_pool* pool) {
  const size_t self = (size_t)(pool - w->pools) + 1;
  if (pool->number == 0) return;
  if (pool->has_scope) {
    FUZZ_REQUIRE(tide_pinned_pool_begin(w->pinned, pool->number, NULL) == TIDE_ERR_STATE);
    FUZZ_REQUIRE(tide_pinned_pool_end(w->pinned, pool->number) == TIDE_OK);
    pool->has_scope = false;
    w->scope = 0;
    return;
  }
  if (w->scope != 0) return;
  const tide_status status = tide_pinned_pool_begin(w->pinned, pool->number, NULL);
  FUZZ_REQUIRE((status == TIDE_OK) == (pool->users > 0));
  if (status != TIDE_OK) return;
  pool->has_scope = true;
  w->scope = self;
}

static void fuzz_pool_release(fuzz_world* w, fuzz_pool* pool) {
  if (pool->number == 0) return;
  const bool is_possible = pool->users > (pool->has_scope ? 1u : 0u);
  FUZZ_REQUIRE((tide_pinned_pool_drop(w->pinned, pool->number) == TIDE_OK) == is_possible);
  pool->users -= is_possible;
}

// ---------------------------------------------------------------------------------------------------
// The rest

static bool fuzz_see_segment(void* user, const tide_segment_info* segment) {
  uint64_t* const end = user;
  FUZZ_REQUIRE(segment->address >= *end && segment->bytes > 0 && segment->device == -1);
  *end = segment->address + segment->bytes;
  return true;
}

// With records for the check itself.
static void fuzz_check(fuzz_world* w) {
  const size_t heap_last = w->heap_last;
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  uint64_t end = 0;
  const tide_device_visitor visitor = { fuzz_see_segment, NULL, &end };
  w->heap_last = 0;
  FUZZ_REQUIRE(tide_pinned_check(w->pinned) == 0);
  w->heap_last = heap_last;
  FUZZ_REQUIRE(tide_pinned_get_stats(w->pinned, &stats) == TIDE_OK);
  FUZZ_REQUIRE(stats.active_requests.current >= (int64_t)w->count);
  FUZZ_REQUIRE(fuzz_is_excused(w, tide_pinned_visit(w->pinned, &visitor)));
}

static void fuzz_fault(fuzz_world* w, uint8_t b, uint8_t c) {
  static const tide_call calls[] = {
    TIDE_CALL_ANY,         TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_RELEASE, TIDE_CALL_EVENT_RECORD,
    TIDE_CALL_EVENT_QUERY, TIDE_CALL_EVENT_NEW,    TIDE_CALL_CLOCK,          TIDE_CALL_PINNED_REGISTER
  };
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = (uint32_t)calls[b % 8];
  fault.status = b & 8 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
  fault.skip = c % 16;
  fault.count = c & 128 ? UINT64_MAX : 1u + c / 16 % 4;
  fuzz_pause_faults(w);
  FUZZ_REQUIRE(tide_machine_fault_add(w->machine, &fault) == TIDE_OK);
  w->has_failed = true;
}

static void fuzz_history(fuzz_world* w, uint8_t b) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = b % 2 == 0;
  options.max_entries = 1 + b;
  FUZZ_REQUIRE(fuzz_is_excused(w, tide_pinned_history(w->pinned, &options)));
}

// Work on a stream, or its end.
static void fuzz_stream(fuzz_world* w, uint8_t b, uint8_t c) {
  fuzz_lane* const lane = &w->lanes[b % FUZZ_LANES];
  fuzz_pause_faults(w);
  w->has_failed = w->heap_last > 0;
  if (b & 128) fuzz_queue(w, lane);
  else fuzz_run_to(w, lane, c & 1 ? lane->queued : lane->done + (lane->queued > lane->done));
}

static void fuzz_look_after(fuzz_world* w, uint8_t b, uint8_t c) {
  switch (b % 6) {
    case 0: FUZZ_REQUIRE(fuzz_is_excused(w, tide_pinned_trim(w->pinned, (uint64_t)c << 16))); break;
    case 1: FUZZ_REQUIRE(fuzz_is_excused(w, tide_pinned_empty(w->pinned))); break;
    case 2: FUZZ_REQUIRE(tide_dry_advance(w->machine, (uint64_t)c * 1000) == TIDE_OK); break;
    case 3: fuzz_history(w, c); break;
    case 4: tide_pinned_reset_peaks(w->pinned); break;
    default: FUZZ_REQUIRE(fuzz_is_excused(w, tide_pinned_poll(w->pinned))); break;
  }
}

static void fuzz_do(fuzz_world* w, uint8_t a, uint8_t b, uint8_t c) {
  fuzz_pool* const pool = &w->pools[b % FUZZ_POOLS];
  switch (a % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: fuzz_alloc(w, b, c); break;
    case 5:
    case 6:
    case 7:
      if (w->count > 0) fuzz_release(w, b % w->count, (c & 1) != 0);
      break;
    case 8:
    case 9: fuzz_record(w, b, c); break;
    case 10: fuzz_copy(w, b, c); break;
    case 11: fuzz_stream(w, b, c); break;
    case 12: fuzz_look_after(w, b, c); break;
    case 13:
      if (c % 4 == 0) fuzz_pool_new(w, pool);
      else if (c % 4 < 3) fuzz_scope(w, pool);
      else fuzz_pool_release(w, pool);
      break;
    case 14: fuzz_fault(w, b, c); break;
    default: fuzz_release_wrong(w, b, c); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// A whole input

static void fuzz_take_options(fuzz_bytes* b, tide_pinned_options* o) {
  const uint8_t first = fuzz_take(b);
  const uint8_t second = fuzz_take(b);
  o->powers_of_two = (first & 1) != 0;
  o->uses_register = (first & 2) != 0;
  o->reserve_bytes = first & 4 ? (uint64_t)1 << (12 + second % 10) : 0;
  if (first & 8) o->max_cached_bytes = (uint64_t)second << 12;
  if (first & 16) o->max_block_bytes = (uint64_t)second << 10;
  if (first & 32) o->max_round_bytes = (uint64_t)second << 9;
  if (first & 64) o->idle_ns = 1 + (uint64_t)second * 500;
}

static void fuzz_lanes_open(fuzz_world* w) {
  for (size_t k = 0; k < FUZZ_LANES; k++) {
    fuzz_lane* const lane = &w->lanes[k];
    lane->stream = TIDE_STREAM_PER_THREAD;
    if (k < FUZZ_LANES - 1) {
      FUZZ_REQUIRE(tide_machine_stream_new(w->machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &lane->stream) ==
                   TIDE_OK);
    }
    for (size_t i = 0; i < FUZZ_EVENTS; i++) {
      FUZZ_REQUIRE(tide_machine_event_new(w->machine, 0, &lane->events[i]) == TIDE_OK);
    }
    FUZZ_REQUIRE(tide_dry_hold(w->machine, 0, lane->stream, true) == TIDE_OK);
  }
}

static uint64_t fuzz_out(const tide_machine* machine, tide_call take, tide_call give) {
  const tide_call_stats taken = tide_machine_call_stats(machine, take);
  const tide_call_stats given = tide_machine_call_stats(machine, give);
  return taken.calls - taken.failures - (given.calls - given.failures);
}

// Finishes all queued work, releases all blocks, and drops the pools.
static void fuzz_settle(fuzz_world* w, bool releases) {
  fuzz_pause_faults(w);
  w->heap_last = 0;
  w->has_failed = false;
  for (size_t k = 0; k < FUZZ_LANES; k++) {
    fuzz_run_to(w, &w->lanes[k], w->lanes[k].queued);
    FUZZ_REQUIRE(tide_dry_hold(w->machine, 0, w->lanes[k].stream, false) == TIDE_OK);
  }
  while (releases && w->count > 0) fuzz_release(w, w->count - 1, false);
  for (size_t i = 0; i < FUZZ_POOLS; i++) {
    if (w->pools[i].has_scope) fuzz_scope(w, &w->pools[i]);
    while (w->pools[i].users > 0) fuzz_pool_release(w, &w->pools[i]);
  }
  for (size_t i = 0; i < 2; i++) {
    FUZZ_REQUIRE(tide_pinned_empty(w->pinned) == TIDE_OK);
    FUZZ_REQUIRE(tide_machine_device_synchronize(w->machine, 0) == TIDE_OK);
  }
  FUZZ_REQUIRE(tide_pinned_empty(w->pinned) == TIDE_OK);
}

static void fuzz_close(fuzz_world* w, bool releases) {
  const uint64_t events = (uint64_t)FUZZ_LANES * FUZZ_EVENTS;  // the model's own
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  fuzz_settle(w, releases);
  fuzz_check(w);
  FUZZ_REQUIRE(tide_pinned_get_stats(w->pinned, &stats) == TIDE_OK);
  FUZZ_REQUIRE(stats.active_requests.current == (int64_t)w->count && stats.waiting.current == 0);
  FUZZ_REQUIRE(w->count > 0 || stats.reserved_bytes.current == 0);
  tide_pinned_free(w->pinned, &leaks);
  FUZZ_REQUIRE(leaks.blocks == w->count && leaks.refused_pieces == 0 && w->heap_blocks == 0);
  FUZZ_REQUIRE(fuzz_out(w->machine, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_RELEASE) == 0);
  FUZZ_REQUIRE(fuzz_out(w->machine, TIDE_CALL_PINNED_REGISTER, TIDE_CALL_PINNED_UNREGISTER) == 0);
  FUZZ_REQUIRE(fuzz_out(w->machine, TIDE_CALL_EVENT_NEW, TIDE_CALL_EVENT_FREE) == events);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_bytes b = { data, bytes };
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  fuzz_world* const w = calloc(1, sizeof *w);
  FUZZ_REQUIRE(w != NULL && tide_machine_new_dry(NULL, &w->machine) == TIDE_OK);
  FUZZ_REQUIRE(tide_machine_raw_alloc(w->machine, 0, 4096, &w->device) == TIDE_OK);
  fuzz_lanes_open(w);
  w->heap = (tide_heap){ fuzz_heap_alloc, fuzz_heap_release, w };
  fuzz_take_options(&b, &options);
  options.heap = &w->heap;
  const uint8_t last = fuzz_take(&b);
  w->heap_last = last < 200 ? 0 : (size_t)(last - 199) * 2;
  const tide_status status = tide_pinned_new(w->machine, &options, &w->pinned);
  FUZZ_REQUIRE(fuzz_is_excused(w, status) && (w->pinned != NULL) == (status == TIDE_OK));
  for (size_t i = 0; i < FUZZ_STEPS && b.left > 0 && status == TIDE_OK; i++) {
    const uint8_t a = fuzz_take(&b);
    const uint8_t first = fuzz_take(&b);
    fuzz_do(w, a, first, fuzz_take(&b));
    if (i % 32 == 31) fuzz_check(w);
  }
  if (status == TIDE_OK) fuzz_close(w, bytes % 2 == 0);
  FUZZ_REQUIRE(w->heap_blocks == 0);
  tide_machine_free(w->machine);
  free(w);
  return 0;
}

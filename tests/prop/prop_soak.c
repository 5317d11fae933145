// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` at work for as long as one likes: random blocks on several streams, close to a limit, so
// that idle memory is stitched and lent from stream to stream all the time. Every chunk of a block has bytes
// of its own, written by its stream; before a block is released, and by other streams while it is used,
// they are copied back and compared, late and without waiting, so that memory that two blocks share, or that
// is used too early, shows, whatever address it has.
//
// Three tests: one thread with blocks of up to several GiB; 16 threads with streams of their own and shared
// ones; the same with faults of the machine at any time. Each ends with everything given back.
//
//   TIDE_TEST_SCALE    makes them longer: 1 is a second and a half
//   TIDE_SOAK_GIB      the limit of the first test; by default an eighth
#define T_THREADS
#include "prop/work.h"

enum { THREADS = 16, SHARED = 5, PLACES = 768, BOARD = 64, SPANS = 32, ROUNDS = 8 };
#define STREAMS (THREADS + SHARED)
#define SMALLEST_BYTES KIB

// ---------------------------------------------------------------------------------------------------
// What is soaked

typedef struct plan {
  size_t threads;
  uint64_t limit;       // bytes that may be reserved
  uint64_t most_bytes;  // of a block
  size_t chunk_bytes;   // of blocks, each with bytes of its own
  bool has_faults;
} plan;

typedef struct item {
  bool is_used;
  uint8_t stream;
  size_t bytes;
  uint64_t tag;  // of no other block
  tide_block block;
} item;

typedef struct tally {
  atomic_uint_fast64_t tags;
  atomic_uint_fast64_t refused;
  atomic_uint_fast64_t filled_bytes;
  atomic_uint_fast64_t checked_bytes;
  atomic_uint_fast64_t follows;      // waits between streams that the test itself asked for
  atomic_uint_fast64_t lent_bytes;   // handed out in views, and of these
  atomic_uint_fast64_t lent_across;  // from other streams
  atomic_uint_fast64_t wrong;        // spans
} tally;

typedef struct soak {
  plan p;
  tide_machine* m;
  tide_device_cache* d;
  counting_heap records;
  size_t free_before;
  tide_stream streams[STREAMS];
  uint8_t* bank;   // random bytes in memory of the device, which blocks are filled from
  uint8_t* image;  // the same where they can be read
  size_t power_count;
  uint64_t end_ns;       // of the round
  pthread_mutex_t lock;  // guards the board
  item board[BOARD];
  tally done;
} soak;

typedef struct worker {
  soak* s;
  uint8_t number;
  t_rng rng;
  tide_event ordering;
  uint8_t* landing;  // pinned; a chunk for each stream, where bytes come back to
  size_t place_count;
  item places[PLACES];
  // What the allocator told of memory, if it is asked to.
  tide_stream asking;     // the stream of the request under way
  uint64_t left_bytes;    // that just left their addresses,
  uint64_t left_across;   //   of them from other streams,
  uint64_t came_address;  // and came together there
} worker;

// Calls of the test itself are made again when they meet a fault.
static void pardon(const soak* s, const char* call, tide_status status) {
  if (!s->p.has_faults || !is_fault(status)) t_check_status(__FILE__, __LINE__, call, status, TIDE_OK);
  t_sleep_us(50);
}
#define INSIST(s, call) \
  for (tide_status got_ = (call); got_ != TIDE_OK; got_ = (call)) pardon((s), #call, got_)

// ---------------------------------------------------------------------------------------------------
// Patterns: a chunk is filled with one byte, or with a part of the bank

static uint64_t chunk_mark(uint64_t tag, size_t chunk) {
  t_rng rng = { tag * 0xff51afd7ed558ccdu + chunk };
  return t_rng_next(&rng);
}

static bool mark_is_byte(uint64_t mark) { return mark >> 63 != 0; }

static size_t mark_offset(const soak* s, uint64_t mark) {
  return (mark & UINT32_MAX) * 64 % s->p.chunk_bytes;
}

static void bank_open(soak* s) {
  const size_t bytes = 2 * s->p.chunk_bytes;
  t_rng rng = t_rng_new(2);
  void* bank = NULL;
  s->image = pinned_new(s->m, bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = t_rng_next(&rng);
    memcpy(s->image + i, &word, sizeof word);
  }
  T_OK(tide_machine_raw_alloc(s->m, 0, bytes, &bank));
  s->bank = bank;
  T_OK(tide_machine_copy(s->m, 0, s->streams[0], s->bank, s->image, bytes));
  T_OK(tide_machine_device_synchronize(s->m, 0));
}

static void bank_close(soak* s) {
  T_OK(tide_machine_raw_release(s->m, 0, s->bank));
  T_OK(tide_machine_pinned_release(s->m, s->image));
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void block_fill(soak* s, const item* it) {
  const tide_stream stream = s->streams[it->stream];
  for (size_t at = 0; at < it->bytes; at += s->p.chunk_bytes) {
    const uint64_t mark = chunk_mark(it->tag, at / s->p.chunk_bytes);
    const size_t bytes = least(s->p.chunk_bytes, it->bytes - at);
    uint8_t* const to = (uint8_t*)it->block.address + at;
    if (mark_is_byte(mark)) INSIST(s, tide_machine_fill(s->m, 0, stream, to, (uint8_t)mark, bytes));
    else INSIST(s, tide_machine_copy(s->m, 0, stream, to, s->bank + mark_offset(s, mark), bytes));
  }
  atomic_fetch_add(&s->done.filled_bytes, it->bytes);
}

static bool span_is(const soak* s, uint64_t tag, size_t at, const uint8_t* bytes, size_t count) {
  const uint64_t mark = chunk_mark(tag, at / s->p.chunk_bytes);
  if (!mark_is_byte(mark)) {
    return memcmp(bytes, s->image + mark_offset(s, mark) + at % s->p.chunk_bytes, count) == 0;
  }
  return bytes[0] == (uint8_t)mark && memcmp(bytes, bytes + 1, count - 1) == 0;
}

// ---------------------------------------------------------------------------------------------------
// Looking at blocks

// Some chunks of a block, of each of which a span is compared.
typedef struct look {
  soak* s;
  item it;
  size_t first;  // chunk
  size_t end;
  size_t span_bytes;
  uint8_t* landing;
  uint8_t stream;  // that looks
} look;

typedef struct span {
  size_t at;  // in the block
  size_t bytes;
} span;

// Of the first chunk the head, of the last the tail, of others anything.
static span span_of(const look* l, size_t chunk) {
  const size_t begin = chunk * l->s->p.chunk_bytes;
  const size_t room = least(l->s->p.chunk_bytes, l->it.bytes - begin);
  const size_t bytes = least(l->span_bytes, room);
  const size_t rest = room - bytes;
  if (begin == 0) return (span){ begin, bytes };
  if (begin + room == l->it.bytes) return (span){ begin + rest, bytes };
  return (span){ begin + (size_t)(chunk_mark(l->it.tag, chunk) >> 8) % (rest + 1), bytes };
}

static void look_complain(const look* l, span part, const uint8_t* bytes) {
  if (atomic_fetch_add(&l->s->done.wrong, 1) >= 8) return;
  (void)fprintf(stderr,
                "block %" PRIu64 " of stream %u, %zu bytes at %p, as stream %u sees it: wrong in %zu bytes "
                "from byte %zu on, which begin with %02x %02x %02x %02x\n",
                l->it.tag, l->it.stream, l->it.bytes, l->it.block.address, l->stream, part.bytes, part.at,
                bytes[0], bytes[1 % part.bytes], bytes[2 % part.bytes], bytes[3 % part.bytes]);
}

static void look_compare(void* user) {
  look* const l = user;
  const uint8_t* bytes = l->landing;
  for (size_t chunk = l->first; chunk < l->end; chunk++) {
    const span part = span_of(l, chunk);
    if (!span_is(l->s, l->it.tag, part.at, bytes, part.bytes)) look_complain(l, part, bytes);
    atomic_fetch_add(&l->s->done.checked_bytes, part.bytes);
    bytes += part.bytes;
  }
  free(l);
}

// Queues the copies, and the comparison behind them.
static void look_queue(const look* wanted) {
  soak* const s = wanted->s;
  const tide_stream stream = s->streams[wanted->stream];
  uint8_t* to = wanted->landing;
  look* const l = malloc(sizeof *l);
  T_CHECK(l != NULL);
  *l = *wanted;
  for (size_t chunk = wanted->first; chunk < wanted->end; chunk++) {
    const span part = span_of(wanted, chunk);
    const uint8_t* const from = (const uint8_t*)wanted->it.block.address + part.at;
    INSIST(s, tide_machine_copy(s->m, 0, stream, to, from, part.bytes));
    to += part.bytes;
  }
  INSIST(s, tide_machine_call(s->m, 0, stream, look_compare, l));
}

// Compares a block when a stream comes to it: all of it, or a span of each chunk.
static void block_check(worker* w, const item* it, uint8_t stream, bool is_whole) {
  soak* const s = w->s;
  const size_t chunk_bytes = s->p.chunk_bytes;
  const size_t chunk_count = (it->bytes + chunk_bytes - 1) / chunk_bytes;
  const size_t together = is_whole || chunk_count == 1 ? 1 : SPANS;
  look l = { .s = s, .it = *it, .stream = stream, .span_bytes = chunk_bytes / together };
  l.landing = w->landing + stream * chunk_bytes;
  for (size_t chunk = 0; chunk < chunk_count; chunk += together) {
    l.first = chunk;
    l.end = least(chunk + together, chunk_count);
    look_queue(&l);
  }
}

// ---------------------------------------------------------------------------------------------------
// What a thread does

// The thread's own stream, or a shared one.
static uint8_t worker_stream(worker* w) {
  const size_t which = (size_t)t_rng_below(&w->rng, 1 + SHARED);
  return (uint8_t)(which == 0 ? w->number : THREADS + which - 1);
}

// From a KiB up, each power of two as likely as any.
static size_t worker_bytes(worker* w) {
  const size_t power = SMALLEST_BYTES << t_rng_below(&w->rng, w->s->power_count);
  return power + (size_t)t_rng_below(&w->rng, power);
}

static void do_release(worker* w, item* it) {
  soak* const s = w->s;
  if (!it->is_used) return;
  block_check(w, it, it->stream, t_rng_below(&w->rng, 8) == 0);
  if (t_rng_below(&w->rng, 2) == 0) T_OK(tide_device_release(s->d, it->block));
  else T_OK(tide_device_release_address(s->d, it->block.address));
  it->is_used = false;
}

// Every other block of some, so that many holes come at once.
static void do_comb(worker* w) {
  const size_t count = w->place_count / 4;
  const size_t first = (size_t)t_rng_below(&w->rng, w->place_count);
  for (size_t i = 0; i < count; i += 2) do_release(w, &w->places[(first + i) % w->place_count]);
}

static void do_alloc(worker* w, item* it) {
  soak* const s = w->s;
  if (it->is_used) return;
  *it = (item){ .stream = worker_stream(w), .bytes = worker_bytes(w) };
  w->asking = s->streams[it->stream];
  const tide_status status = tide_device_alloc(s->d, w->asking, it->bytes, &it->block);
  if (status != TIDE_OK) {
    T_CHECK(status == TIDE_ERR_NO_MEMORY || (s->p.has_faults && is_fault(status)));
    atomic_fetch_add(&s->done.refused, 1);
    do_comb(w);
    return;
  }
  it->is_used = true;
  it->tag = atomic_fetch_add(&s->done.tags, 1);
  block_fill(s, it);
}

// Lets another stream look at a block, late, and announces it.
static void do_record(worker* w, const item* it) {
  soak* const s = w->s;
  const uint8_t stream = worker_stream(w);
  if (!it->is_used || stream == it->stream) return;
  INSIST(s, work_follow(s->m, s->streams[stream], s->streams[it->stream], w->ordering));
  atomic_fetch_add(&s->done.follows, 1);
  INSIST(s, work_delay(s->m, s->streams[stream], (uint32_t)t_rng_below(&w->rng, 128)));
  block_check(w, it, stream, false);
  INSIST(s, tide_device_record(s->d, it->block, s->streams[stream]));
}

// Swaps a block with one of the board, so that threads release what others allocated.
static void do_swap(worker* w, item* it) {
  item* const place = &w->s->board[t_rng_below(&w->rng, BOARD)];
  T_EQ(pthread_mutex_lock(&w->s->lock), 0);
  const item other = *place;
  *place = *it;
  *it = other;
  T_EQ(pthread_mutex_unlock(&w->s->lock), 0);
}

// The limit is at times lower than what is handed out.
static void do_limit(worker* w) {
  const uint64_t limit = w->s->p.limit;
  T_OK(tide_device_set_limit(w->s->d, limit - t_rng_below(&w->rng, 2) * t_rng_below(&w->rng, limit / 8)));
}

static void do_snapshot(worker* w) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(w->s->d, NULL, trace));
  tide_trace_free(trace);
}

static void do_stats(worker* w) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  T_OK(tide_device_get_stats(w->s->d, &stats));
  T_LE(stats.reserved_bytes[0].peak, w->s->p.limit);
}

// The queue of a stream may not grow for ever.
static void do_wait(worker* w) {
  const tide_stream stream = w->s->streams[worker_stream(w)];
  bool is_idle = false;
  while (!is_idle) {
    INSIST(w->s, tide_machine_stream_query(w->s->m, 0, stream, &is_idle));
    if (!is_idle) t_sleep_us(20);
  }
}

static void worker_step(worker* w) {
  soak* const s = w->s;
  item* const it = &w->places[t_rng_below(&w->rng, w->place_count)];
  const uint64_t what = t_rng_below(&w->rng, 1000);
  if (what < 480) do_alloc(w, it);
  else if (what < 740) do_release(w, it);
  else if (what < 840) do_swap(w, it);
  else if (what < 920) do_record(w, it);
  else if (what < 960) do_wait(w);
  else if (what < 975) INSIST(s, work_delay(s->m, s->streams[worker_stream(w)], 200));
  else if (what < 982) INSIST(s, tide_device_poll(s->d));
  else if (what < 990) do_stats(w);
  else if (what < 995) do_limit(w);
  else if (what < 997) do_comb(w);
  else if (what < 999) do_snapshot(w);
  else INSIST(s, tide_device_trim(s->d, 0));
}

static void* worker_run(void* user) {
  worker* const w = user;
  while (t_now_ns() < w->s->end_ns) worker_step(w);
  return NULL;
}

// Fails calls of the machine, whoever makes them.
static void* saboteur_run(void* user) {
  worker* const w = user;
  faults f = { .m = w->s->m };
  while (t_now_ns() < w->s->end_ns) {
    const uint64_t bits = t_rng_next(&w->rng);
    const op o = { 0, (uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint32_t)(bits >> 32) };
    faults_draw(&f, &o);
    T_OK(tide_machine_fault_add(f.m, &f.fault));
    t_sleep_us(t_rng_below(&w->rng, 2000));
    tide_machine_fault_clear(f.m);
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// What the allocator tells

// Memory that is handed out in a view is told of as leaving its homes, piece by piece, then as coming to the
// view, then as handed out there. When other memory left just before, it is not counted.
static void hear(void* user, const tide_trace_entry* entry) {
  worker* const w = user;
  if (entry->action == TIDE_ACTION_SEGMENT_UNMAP) {
    w->left_bytes += entry->bytes;
    if (entry->stream != (uint64_t)(uintptr_t)w->asking) w->left_across += entry->bytes;
    return;
  }
  if (entry->action == TIDE_ACTION_SEGMENT_MAP && entry->bytes == w->left_bytes) {
    w->came_address = entry->address;
    return;
  }
  if (entry->action == TIDE_ACTION_ALLOC && entry->address == w->came_address) {
    atomic_fetch_add(&w->s->done.lent_bytes, w->left_bytes);
    atomic_fetch_add(&w->s->done.lent_across, w->left_across);
  }
  w->left_bytes = w->left_across = w->came_address = 0;
}

// ---------------------------------------------------------------------------------------------------
// Runs

static uint64_t calls_of(const soak* s, tide_call call) {
  const tide_call_stats stats = tide_machine_call_stats(s->m, call);
  return stats.calls - stats.failures;
}

// Mappings of handles beside their first.
static uint64_t alias_count(const soak* s) {
  const uint64_t maps = calls_of(s, TIDE_CALL_MAP);
  const uint64_t handles = calls_of(s, TIDE_CALL_PHYSICAL_NEW);
  return maps > handles ? maps - handles : 0;
}

// Streams that the allocator made wait for others.
static uint64_t wait_count(soak* s) {
  return calls_of(s, TIDE_CALL_STREAM_WAIT) - atomic_load(&s->done.follows);
}

static void soak_open(soak* s, worker* workers, const plan* p) {
  tide_device_options options = device_defaults();
  tide_observer observer = 0;
  *s = (soak){ .p = *p, .m = prop_machine_new(p->limit + p->limit / 16 + 16 * MIB) };
  while (SMALLEST_BYTES << (s->power_count + 1) <= p->most_bytes) s->power_count++;
  for (size_t i = 0; i < STREAMS; i++) s->streams[i] = stream_new(s->m, 0, TIDE_STREAM_NON_BLOCKING);
  T_EQ(pthread_mutex_init(&s->lock, NULL), 0);
  bank_open(s);
  for (size_t i = 0; i <= p->threads; i++) {
    workers[i] = (worker){ .s = s, .number = (uint8_t)i, .rng = t_rng_new(100 + i) };
    workers[i].place_count = PLACES / p->threads;
    workers[i].ordering = event_new(s->m, 0);
    workers[i].landing = pinned_new(s->m, STREAMS * p->chunk_bytes);
  }
  s->free_before = free_bytes(s->m, 0);
  counting_heap_init(&s->records, SIZE_MAX, false);
  options.heap = &s->records.heap;
  T_OK(tide_device_new(s->m, 0, &options, &s->d));
  T_OK(tide_device_set_limit(s->d, p->limit));
  if (p->threads == 1) T_OK(tide_device_observe_trace(s->d, hear, &workers[0], &observer));
}

// Lets the threads work until a time; the one behind the last is the saboteur.
static void soak_round(soak* s, worker* workers, uint64_t end_ns) {
  pthread_t threads[THREADS + 1];
  s->end_ns = end_ns;
  for (size_t i = 0; i < s->p.threads; i++) t_thread_start(&threads[i], worker_run, &workers[i]);
  if (s->p.has_faults) t_thread_start(&threads[s->p.threads], saboteur_run, &workers[s->p.threads]);
  for (size_t i = 0; i < s->p.threads + s->p.has_faults; i++) t_thread_join(threads[i]);
}

// Every place where a block may be: those of the board and of the threads.
static size_t place_total(const soak* s) { return BOARD + s->p.threads * (PLACES / s->p.threads); }

static item* place_at(soak* s, worker* workers, size_t i) {
  const size_t own = PLACES / s->p.threads;
  return i < BOARD ? &s->board[i] : &workers[(i - BOARD) / own].places[(i - BOARD) % own];
}

// All threads have stopped: everything must add up, and every block have its bytes.
static void soak_check(soak* s, worker* workers, bool is_whole) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  size_t count = 0;
  for (size_t i = 0; i < place_total(s); i++) {
    const item* const it = place_at(s, workers, i);
    if (!it->is_used) continue;
    block_check(&workers[0], it, it->stream, is_whole);
    count++;
  }
  T_OK(tide_machine_device_synchronize(s->m, 0));
  if (atomic_load(&s->done.wrong) > 0) T_FAIL("blocks have other bytes than were written");
  if (tide_device_check(s->d) != 0) T_FAIL("check: %s", tide_last_error()->text);
  T_OK(tide_device_get_stats(s->d, &stats));
  T_EQ(stats.allocation[0].current, count);
  T_LE(stats.reserved_bytes[0].peak, s->p.limit);
}

static double gib(uint64_t bytes) { return (double)bytes / (double)GIB; }

static void soak_print(soak* s) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tally* const t = &s->done;
  T_OK(tide_device_get_stats(s->d, &stats));
  (void)printf("  %s, %zu threads: %" PRIu64 " blocks, %" PRIu64
               " refused, %.2f GiB filled, %.2f GiB checked, "
               "%" PRIu64 " spans wrong\n",
               tide_machine_name(s->m), s->p.threads, (uint64_t)atomic_load(&t->tags),
               (uint64_t)atomic_load(&t->refused), gib(atomic_load(&t->filled_bytes)),
               gib(atomic_load(&t->checked_bytes)), (uint64_t)atomic_load(&t->wrong));
  (void)printf("  %" PRIu64 " handles, mapped %" PRIu64 " times more, %" PRIu64 " ranges of addresses, "
               "%" PRIu64 " waits between streams, ",
               calls_of(s, TIDE_CALL_PHYSICAL_NEW), alias_count(s), calls_of(s, TIDE_CALL_ADDRESS_RESERVE),
               wait_count(s));
  if (s->p.threads == 1) {
    (void)printf("%.2f GiB handed out in views, %.2f GiB of it from other streams, ",
                 gib(atomic_load(&t->lent_bytes)), gib(atomic_load(&t->lent_across)));
  }
  (void)printf("peaks: %.3f GiB allocated, %.3f GiB reserved\n", gib((uint64_t)stats.allocated_bytes[0].peak),
               gib((uint64_t)stats.reserved_bytes[0].peak));
}

// Gives everything back: nothing may be left, neither memory nor records.
static void soak_close(soak* s, worker* workers) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  for (size_t i = 0; i < place_total(s); i++) {
    const item* const it = place_at(s, workers, i);
    if (it->is_used) T_OK(tide_device_release(s->d, it->block));
  }
  T_OK(tide_device_trim(s->d, 0));
  T_OK(tide_device_get_stats(s->d, &stats));
  T_EQ(stats.reserved_bytes[0].current, 0);
  if (tide_device_check(s->d) != 0) T_FAIL("check: %s", tide_last_error()->text);
  if (!is_cuda(s->m)) T_EQ(free_bytes(s->m, 0), s->free_before);
  tide_device_free(s->d);
  T_EQ(atomic_load(&s->records.outstanding), 0);
  if (!is_cuda(s->m)) T_EQ(free_bytes(s->m, 0), s->free_before);
  T_OK(tide_machine_device_synchronize(s->m, 0));
  bank_close(s);
  for (size_t i = 0; i <= s->p.threads; i++) T_OK(tide_machine_pinned_release(s->m, workers[i].landing));
  tide_machine_free(s->m);
}

// As long as the scale says, and until it has met what it is about.
static void soak_run(const plan* p) {
  static soak s;
  static worker workers[THREADS + 1];
  const uint64_t round_ns = (uint64_t)t_scaled(1500) * 1000000u / ROUNDS;
  soak_open(&s, workers, p);
  for (size_t round = 0; round < ROUNDS || alias_count(&s) == 0 || wait_count(&s) == 0; round++) {
    soak_round(&s, workers, t_now_ns() + round_ns);
    soak_check(&s, workers, round + 1 == ROUNDS);
  }
  soak_print(&s);
  soak_close(&s, workers);
}

// ---------------------------------------------------------------------------------------------------
// The three of them

static const char* const variants[] = { "host tide", "cuda tide", NULL };

T_TEST_OVER(prop_soak__no_byte_is_wrong, variants) {
  const uint64_t limit = (uint64_t)(t_env_number("TIDE_SOAK_GIB", 0.125) * (double)GIB) / MIB * MIB;
  const plan p = {
    .threads = 1, .limit = limit, .most_bytes = limit / 24, .chunk_bytes = limit < GIB ? 64 * KIB : 2 * MIB
  };
  soak_run(&p);
}

T_TEST_OVER(prop_soak__many_threads_at_once, variants) {
  const plan p = { .threads = THREADS, .limit = 192 * MIB, .most_bytes = 2 * MIB, .chunk_bytes = 64 * KIB };
  soak_run(&p);
}

T_TEST_OVER(prop_soak__little_memory_and_faults_at_any_time, variants) {
  const plan p = {
    .threads = THREADS, .limit = 64 * MIB, .most_bytes = 2 * MIB, .chunk_bytes = 64 * KIB, .has_faults = true
  };
  soak_run(&p);
}

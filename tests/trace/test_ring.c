// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ring of entries against a model that knows all entries ever added; sizes that change; many threads at
// once, which hand addresses to each other, against the list of each address.
#define T_THREADS
#include "trace/ring.h"

#include "base/atomic.h"
#include "machine/counting_heap.h"

// An entry all of whose fields follow from one number.
static tide_trace_entry entry_of(uint64_t number) {
  tide_trace_entry entry = { .time_ns = number, .address = number * 3, .bytes = number * 5 };
  entry.stream = ~number;
  entry.stack = (uint32_t)number;
  entry.note = (uint32_t)(number * 7);
  entry.pool = (uint32_t)(number >> 3);
  entry.action = (uint8_t)(number % TIDE_ACTION_COUNT);
  entry.device = (uint8_t)number;
  entry.absent = (uint16_t)(number * 11);
  return entry;
}

static void entry_check(const tide_trace_entry* entry) {
  const tide_trace_entry wanted = entry_of(entry->time_ns);
  T_EQ(memcmp(entry, &wanted, sizeof wanted), 0);
}

static void ring_new(tide__ring* ring, const tide_heap* heap, uint64_t capacity) {
  tide__ring_init(ring, heap != NULL ? heap : &tide__system_heap);
  T_OK(tide__ring_resize(ring, capacity));
}

// The memory that a ring has.
static size_t bytes_of(uint64_t capacity) {
  size_t slots = capacity != 0;
  while (slots < capacity) slots *= 2;
  return slots * 64;
}

static void add_numbers(tide__ring* ring, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const tide_trace_entry entry = entry_of(first + i);
    tide__ring_add(ring, &entry);
  }
}

// Copies all there is in pieces of `room`, and expects the numbers from `first` to below `next`.
static void expect_numbers(tide__ring* ring, uint64_t first, uint64_t next, size_t room) {
  tide_trace_entry piece[64];
  uint64_t from = 0;
  uint64_t end = 0;
  tide__ring_range(ring, &from, &end);
  T_EQ(from, first);
  T_EQ(end, next);
  uint64_t wanted = first;
  uint64_t number = 0;
  for (size_t count = 0; (count = tide__ring_copy(ring, &number, end, piece, room)) != 0;) {
    T_LE(count, room);
    for (size_t i = 0; i < count; i++, wanted++) {
      T_EQ(piece[i].time_ns, wanted);
      entry_check(&piece[i]);
    }
    T_EQ(number, wanted);
  }
  T_EQ(wanted, next);
}

T_TEST(test_ring__stays_as_it_was_without_memory) {
  counting_heap h;
  tide__ring ring;
  counting_heap_init(&h, 1, true);
  ring_new(&ring, &h.heap, 16);
  add_numbers(&ring, 0, 20);

  T_STATUS(tide__ring_resize(&ring, 32), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide__ring_resize(&ring, UINT64_MAX), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide__ring_resize(&ring, UINT64_MAX / sizeof(tide__ring_slot) + 2), TIDE_ERR_NO_MEMORY);

  expect_numbers(&ring, 4, 20, 5);
  T_OK(tide__ring_resize(&ring, 16));
  T_OK(tide__ring_resize(&ring, 0));
  tide__ring_fini(&ring);
  T_EQ(atomic_load(&h.outstanding), 0);
}

T_TEST(test_ring__copies_what_was_asked_for) {
  tide__ring ring;
  tide_trace_entry out[8];
  ring_new(&ring, NULL, 8);
  add_numbers(&ring, 0, 20);  // 12 to 19 are kept

  uint64_t number = 15;
  T_EQ(tide__ring_copy(&ring, &number, 17, out, 8), 2);
  T_EQ(number, 17);
  T_EQ(out[0].time_ns, 15);
  T_EQ(tide__ring_copy(&ring, &number, 17, out, 8), 0);
  T_EQ(number, 17);
  T_EQ(tide__ring_copy(&ring, &number, UINT64_MAX, out, 0), 0);
  T_EQ(number, 17);

  number = 3;  // all entries before 10 are gone
  T_EQ(tide__ring_copy(&ring, &number, 10, out, 8), 0);
  T_EQ(number, 12);

  number = 30;  // not there yet
  T_EQ(tide__ring_copy(&ring, &number, 40, out, 8), 0);
  T_EQ(number, 30);
  tide__ring_fini(&ring);
}

// The model knows the numbers alone: what an entry holds follows from its number.
typedef struct ring_model {
  uint64_t capacity;
  uint64_t first;
  uint64_t next;
} ring_model;

static void model_trim(ring_model* model) {
  if (model->next - model->first > model->capacity) model->first = model->next - model->capacity;
}

static void model_step(ring_model* model, tide__ring* ring, t_rng* rng) {
  const uint64_t dice = t_rng_below(rng, 100);
  if (dice == 0) {
    tide__ring_clear(ring);
    model->first = model->next;
  } else if (dice < 10) {
    model->capacity = t_rng_below(rng, 4) == 0 ? t_rng_below(rng, 3) : t_rng_below(rng, 1200);
    T_OK(tide__ring_resize(ring, model->capacity));
  } else {
    const uint64_t count = t_rng_below(rng, 1 + t_rng_below(rng, 400));
    add_numbers(ring, model->next, count);
    if (model->capacity != 0) model->next += count;
  }
  model_trim(model);
}

T_TEST(test_ring__behaves_like_its_model) {
  tide__ring ring;
  counting_heap h;
  ring_model model = { 0, 0, 0 };
  t_rng rng = t_rng_new(0);
  counting_heap_init(&h, SIZE_MAX, false);
  tide__ring_init(&ring, &h.heap);

  for (size_t i = 0; i < t_scaled(2000); i++) {
    model_step(&model, &ring, &rng);
    expect_numbers(&ring, model.first, model.next, 1 + t_rng_below(&rng, 64));
    T_EQ(atomic_load(&h.outstanding), bytes_of(model.capacity));
  }
  tide__ring_fini(&ring);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct ring_shared {
  tide__ring ring;
  uint64_t total;
  tide__atomic_u32 is_over;
} ring_shared;

static void* thread_adds(void* user) {
  ring_shared* const s = user;
  add_numbers(&s->ring, 0, s->total);
  tide__store_release(&s->is_over, 1);
  return NULL;
}

// Reads the ring once from beginning to end in pieces; returns the number of entries.
static size_t read_once(tide__ring* ring) {
  tide_trace_entry piece[32];
  uint64_t number = 0;
  uint64_t end = 0;
  size_t total = 0;
  tide__ring_range(ring, &number, &end);
  for (size_t count = 0; (count = tide__ring_copy(ring, &number, end, piece, 32)) != 0; total += count) {
    for (size_t i = 0; i < count; i++) {
      T_EQ(piece[i].time_ns, number - count + i);  // as there is one writer, an entry holds its own number
      entry_check(&piece[i]);
    }
  }
  T_LE(end, number);
  return total;
}

T_TEST(test_ring__is_read_in_pieces_while_it_is_written) {
  static ring_shared s;
  pthread_t writer;
  s.total = t_scaled(200000);
  ring_new(&s.ring, NULL, 500);
  t_thread_start(&writer, thread_adds, &s);

  while (tide__load_acquire(&s.is_over) == 0) T_LE(read_once(&s.ring), 500);

  t_thread_join(writer);
  T_EQ(read_once(&s.ring), s.total < 500 ? s.total : 500);
  expect_numbers(&s.ring, s.total < 500 ? 0 : s.total - 500, s.total, 64);
  tide__ring_fini(&s.ring);
}

static void* thread_reads(void* user) {
  ring_shared* const s = user;
  while (tide__load_acquire(&s->is_over) == 0) (void)read_once(&s->ring);
  return NULL;
}

typedef struct ring_resizer {
  ring_shared* shared;
  uint64_t id;
} ring_resizer;

static void* thread_resizes(void* user) {
  const ring_resizer* const resizer = user;
  ring_shared* const s = resizer->shared;
  t_rng rng = t_rng_new(resizer->id);
  while (tide__load_acquire(&s->is_over) == 0) {
    T_OK(tide__ring_resize(&s->ring, 1 + t_rng_below(&rng, 3000)));
    if (t_rng_below(&rng, 20) == 0) tide__ring_clear(&s->ring);
  }
  return NULL;
}

T_TEST(test_ring__changes_its_size_while_it_is_written_and_read) {
  static ring_shared s;
  ring_resizer resizers[2] = { { &s, 1 }, { &s, 2 } };
  counting_heap h;
  pthread_t threads[4];
  counting_heap_init(&h, SIZE_MAX, false);
  s.total = t_scaled(200000);
  ring_new(&s.ring, &h.heap, 1000);

  t_thread_start(&threads[0], thread_adds, &s);
  t_thread_start(&threads[1], thread_reads, &s);
  t_thread_start(&threads[2], thread_resizes, &resizers[0]);
  t_thread_start(&threads[3], thread_resizes, &resizers[1]);
  for (int i = 0; i < 4; i++) t_thread_join(threads[i]);

  uint64_t first = 0;
  uint64_t next = 0;
  tide__ring_range(&s.ring, &first, &next);
  T_EQ(next, s.total);
  expect_numbers(&s.ring, first, next, 64);
  T_EQ(atomic_load(&h.outstanding), bytes_of(s.ring.memories[s.ring.side].capacity));
  tide__ring_fini(&s.ring);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// Grows without a clear or a shrink: no entry may be lost, however the pieces and the new entries meet.
T_TEST(test_ring__loses_nothing_while_it_grows) {
  static ring_shared s;
  pthread_t writer;
  s.total = t_scaled(100000);
  ring_new(&s.ring, NULL, s.total);
  t_thread_start(&writer, thread_adds, &s);

  for (uint64_t more = 1; tide__load_acquire(&s.is_over) == 0; more++) {
    T_OK(tide__ring_resize(&s.ring, s.total + more));
  }

  t_thread_join(writer);
  expect_numbers(&s.ring, 0, s.total, 64);
  tide__ring_fini(&s.ring);
}

typedef struct ring_writer {
  tide__ring* ring;
  uint64_t count;
  uint64_t id;
} ring_writer;

static void* thread_adds_its_own(void* user) {
  const ring_writer* const w = user;
  add_numbers(w->ring, w->id << 32, w->count);
  return NULL;
}

T_TEST(test_ring__takes_entries_from_many_threads) {
  tide__ring ring;
  pthread_t threads[4];
  ring_writer writers[4];
  tide_trace_entry piece[64];
  uint64_t seen[4] = { 0 };
  uint64_t number = 0;
  const uint64_t each = t_scaled(20000);
  ring_new(&ring, NULL, 4 * each);

  for (uint64_t i = 0; i < 4; i++) {
    writers[i] = (ring_writer){ &ring, each, i };
    t_thread_start(&threads[i], thread_adds_its_own, &writers[i]);
  }
  for (int i = 0; i < 4; i++) t_thread_join(threads[i]);

  for (size_t count = 0; (count = tide__ring_copy(&ring, &number, UINT64_MAX, piece, 64)) != 0;) {
    for (size_t i = 0; i < count; i++) {
      entry_check(&piece[i]);
      T_EQ((uint32_t)piece[i].time_ns, seen[piece[i].time_ns >> 32]++);  // each thread's in its order
    }
  }
  for (int i = 0; i < 4; i++) T_EQ(seen[i], each);
  tide__ring_fini(&ring);
}

// ---------------------------------------------------------------------------------------------------
// Threads that hand addresses to each other. Who has an address adds the next entry of its list; so the
// entries of an address are in the ring in the order of its list, whichever threads added them.

enum { PLACES = 8, CROWD = 6 };

typedef struct ring_place {
  tide__mutex lock;
  uint64_t count;  // of entries so far; under lock
} ring_place;

typedef struct ring_crowd {
  tide__ring ring;
  ring_place places[PLACES];
  uint64_t each;
  tide__atomic_u32 done;  // threads that have added all theirs
} ring_crowd;

typedef struct crowd_member {
  ring_crowd* crowd;
  uint64_t id;
} crowd_member;

// Entry `i` of the list of place `p`.
static tide_trace_entry place_entry(uint64_t p, uint64_t i) { return entry_of(p << 32 | i); }

static void* crowd_adds(void* user) {
  const crowd_member* const m = user;
  ring_crowd* const c = m->crowd;
  t_rng rng = t_rng_new(m->id);
  for (uint64_t i = 0; i < c->each; i++) {
    const uint64_t p = t_rng_below(&rng, PLACES);
    tide__mutex_lock(&c->places[p].lock);
    const tide_trace_entry entry = place_entry(p, c->places[p].count++);
    tide__ring_add(&c->ring, &entry);
    tide__mutex_unlock(&c->places[p].lock);
  }
  (void)tide__add_seq(&c->done, 1);
  return NULL;
}

// The number after the newest entry read so far of each thread; 0 if there was none.
typedef struct crowd_sight {
  uint64_t after[PLACES];
} crowd_sight;

static void sight_entries(crowd_sight* sight, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; i++) {
    entry_check(&entries[i]);
    const uint64_t p = entries[i].time_ns >> 32;
    const uint64_t at = (uint32_t)entries[i].time_ns;
    T_LT(p, PLACES);
    if (sight->after[p] != 0) T_EQ(at, sight->after[p]);
    sight->after[p] = at + 1;
  }
}

// Reads all there is; returns how many entries. Those that are overtaken are a gap, behind which the lists
// are seen anew.
static size_t crowd_read(ring_crowd* c, crowd_sight* sight) {
  tide_trace_entry piece[48];
  uint64_t number = 0;
  uint64_t end = 0;
  size_t total = 0;
  tide__ring_range(&c->ring, &number, &end);
  uint64_t wanted = number;
  *sight = (crowd_sight){ { 0 } };
  for (size_t count = 0; (count = tide__ring_copy(&c->ring, &number, end, piece, 48)) != 0; total += count) {
    if (number - count != wanted) *sight = (crowd_sight){ { 0 } };
    sight_entries(sight, piece, count);
    wanted = number;
  }
  T_LE(end, number);
  return total;
}

static void crowd_start(ring_crowd* c, uint64_t capacity, crowd_member* members, pthread_t* threads) {
  memset(c, 0, sizeof *c);
  c->each = t_scaled(T_HAS_SANITIZER ? 8000 : 30000);
  ring_new(&c->ring, NULL, capacity);
  for (size_t p = 0; p < PLACES; p++) tide__mutex_init(&c->places[p].lock, TIDE__RANK_LANE);
  for (uint64_t i = 0; i < CROWD; i++) {
    members[i] = (crowd_member){ c, i };
    t_thread_start(&threads[i], crowd_adds, &members[i]);
  }
}

// All threads are done: `kept` entries are there, and they are the newest of all lists.
static void crowd_end(ring_crowd* c, pthread_t* threads, uint64_t kept) {
  crowd_sight sight;
  uint64_t first = 0;
  uint64_t next = 0;
  for (size_t i = 0; i < CROWD; i++) t_thread_join(threads[i]);
  tide__ring_range(&c->ring, &first, &next);
  T_EQ(next, CROWD * c->each);
  T_EQ(next - first, kept);
  T_EQ(crowd_read(c, &sight), kept);
  for (size_t p = 0; p < PLACES; p++) T_CHECK(sight.after[p] == 0 || sight.after[p] == c->places[p].count);
  tide__ring_fini(&c->ring);
}

static void crowd_plays(uint64_t capacity) {
  static ring_crowd c;
  crowd_member members[CROWD];
  pthread_t threads[CROWD];
  crowd_sight sight;
  crowd_start(&c, capacity, members, threads);
  while (tide__load_seq(&c.done) != CROWD) T_LE(crowd_read(&c, &sight), capacity);
  crowd_end(&c, threads, capacity < CROWD * c.each ? capacity : CROWD * c.each);
}

T_TEST(test_ring__of_threads_keeps_the_order_of_every_address) { crowd_plays(5000); }

// Laps so short that threads meet in their slots.
T_TEST(test_ring__of_threads_and_few_entries_keeps_the_order) {
  crowd_plays(1);
  crowd_plays(7);
}

T_TEST(test_ring__of_threads_keeps_the_order_while_it_changes_its_size) {
  static ring_crowd c;
  crowd_member members[CROWD];
  pthread_t threads[CROWD];
  crowd_sight sight;
  t_rng rng = t_rng_new(0);
  crowd_start(&c, 100, members, threads);
  while (tide__load_seq(&c.done) != CROWD) {
    if (t_rng_below(&rng, 10) == 0) tide__ring_clear(&c.ring);
    T_OK(tide__ring_resize(&c.ring, 1 + t_rng_below(&rng, 2000)));
    (void)crowd_read(&c, &sight);
  }
  uint64_t first = 0;
  uint64_t next = 0;
  tide__ring_range(&c.ring, &first, &next);
  crowd_end(&c, threads, next - first);
}

// Switched off and on: what is added meanwhile is lost, and numbers go on.
T_TEST(test_ring__of_threads_is_switched_off_and_on) {
  static ring_crowd c;
  crowd_member members[CROWD];
  pthread_t threads[CROWD];
  crowd_start(&c, 100, members, threads);
  for (uint64_t before = 0; tide__load_seq(&c.done) != CROWD;) {
    uint64_t first = 0;
    uint64_t next = 0;
    T_OK(tide__ring_resize(&c.ring, 0));
    tide__ring_range(&c.ring, &first, &next);
    T_EQ(first, next);
    T_LE(before, next);
    before = next;
    T_OK(tide__ring_resize(&c.ring, 64));
  }
  for (size_t i = 0; i < CROWD; i++) t_thread_join(threads[i]);
  tide__ring_fini(&c.ring);
}

// ---------------------------------------------------------------------------------------------------
// A thread that was stopped in the midst of an entry: it has drawn the number, and writes later.

static uint64_t entry_begin(tide__ring* ring) { return tide__add_seq(&ring->next, 1) & TIDE__RING_NUMBERS; }

static void entry_finish(tide__ring* ring, uint64_t number) {
  tide__ring_slot* const slot = tide__slot_of(&ring->memories[ring->side], number);
  const tide_trace_entry entry = entry_of(number);
  tide__slot_write(slot, &entry);
  tide__store_release(&slot->turn, number + 1);
}

static void* thread_adds_behind(void* user) {
  ring_shared* const s = user;
  add_numbers(&s->ring, 1, s->total);
  tide__store_release(&s->is_over, 1);
  return NULL;
}

T_TEST(test_ring__of_a_stopped_thread_is_not_overtaken_by_a_lap) {
  static ring_shared s;
  pthread_t writer;
  s.total = 9;
  ring_new(&s.ring, NULL, 4);
  const uint64_t number = entry_begin(&s.ring);

  t_thread_start(&writer, thread_adds_behind, &s);
  while ((tide__load_seq(&s.ring.next) & TIDE__RING_NUMBERS) < 5) t_sleep_us(100);
  t_sleep_us(5000);

  T_EQ(tide__load_acquire(&s.is_over), 0);
  entry_finish(&s.ring, number);
  t_thread_join(writer);
  expect_numbers(&s.ring, 6, 10, 8);
  tide__ring_fini(&s.ring);
}

static void* thread_reads_all(void* user) {
  ring_shared* const s = user;
  expect_numbers(&s->ring, 0, 3, 8);
  tide__store_release(&s->is_over, 1);
  return NULL;
}

T_TEST(test_ring__of_a_stopped_thread_is_read_when_it_is_whole) {
  static ring_shared s;
  pthread_t reader;
  ring_new(&s.ring, NULL, 4);
  add_numbers(&s.ring, 0, 1);
  const uint64_t number = entry_begin(&s.ring);
  add_numbers(&s.ring, 2, 1);

  t_thread_start(&reader, thread_reads_all, &s);
  t_sleep_us(5000);

  T_EQ(tide__load_acquire(&s.is_over), 0);
  entry_finish(&s.ring, number);
  t_thread_join(reader);
  tide__ring_fini(&s.ring);
}

static void* thread_clears(void* user) {
  ring_shared* const s = user;
  tide__ring_clear(&s->ring);
  tide__store_release(&s->is_over, 1);
  return NULL;
}

T_TEST(test_ring__of_a_stopped_thread_is_cleared_when_it_is_whole) {
  static ring_shared s;
  pthread_t clearer;
  ring_new(&s.ring, NULL, 4);
  const uint64_t number = entry_begin(&s.ring);

  t_thread_start(&clearer, thread_clears, &s);
  t_sleep_us(5000);

  T_EQ(tide__load_acquire(&s.is_over), 0);
  entry_finish(&s.ring, number);
  t_thread_join(clearer);
  expect_numbers(&s.ring, 1, 1, 8);
  tide__ring_fini(&s.ring);
}

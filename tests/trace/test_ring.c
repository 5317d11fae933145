// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ring of entries against an array of all entries ever added; sizes that change; many threads at once.
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

T_TEST(test_ring__keeps_the_newest) {
  tide__ring ring;
  ring_new(&ring, NULL, 10);

  for (uint64_t n = 0; n < 100; n++) {
    expect_numbers(&ring, n < 10 ? 0 : n - 10, n, 1 + n % 12);
    add_numbers(&ring, n, 1);
  }
  tide__ring_fini(&ring);
}

T_TEST(test_ring__of_no_capacity_keeps_nothing) {
  tide__ring ring;
  tide__ring_init(&ring, &tide__system_heap);
  add_numbers(&ring, 0, 5);
  expect_numbers(&ring, 0, 0, 8);

  T_OK(tide__ring_resize(&ring, 0));
  tide__ring_clear(&ring);

  add_numbers(&ring, 0, 5);
  expect_numbers(&ring, 0, 0, 8);
  tide__ring_fini(&ring);
}

T_TEST(test_ring__of_one_entry_has_the_last) {
  tide__ring ring;
  ring_new(&ring, NULL, 1);

  add_numbers(&ring, 0, 7);

  expect_numbers(&ring, 6, 7, 3);
  tide__ring_fini(&ring);
}

T_TEST(test_ring__goes_on_counting_after_a_clear) {
  tide__ring ring;
  ring_new(&ring, NULL, 8);
  add_numbers(&ring, 0, 5);

  tide__ring_clear(&ring);

  expect_numbers(&ring, 5, 5, 8);
  add_numbers(&ring, 5, 3);
  expect_numbers(&ring, 5, 8, 8);
  tide__ring_fini(&ring);
}

T_TEST(test_ring__shrinks_to_the_newest_and_grows_with_all) {
  tide__ring ring;
  ring_new(&ring, NULL, 100);
  add_numbers(&ring, 0, 130);

  T_OK(tide__ring_resize(&ring, 7));
  expect_numbers(&ring, 123, 130, 64);

  T_OK(tide__ring_resize(&ring, 50));
  expect_numbers(&ring, 123, 130, 64);

  add_numbers(&ring, 130, 60);
  expect_numbers(&ring, 140, 190, 64);
  tide__ring_fini(&ring);
}

T_TEST(test_ring__gives_its_memory_back_at_capacity_0) {
  counting_heap h;
  tide__ring ring;
  counting_heap_init(&h, SIZE_MAX, false);
  ring_new(&ring, &h.heap, 64);
  T_EQ(atomic_load(&h.outstanding), 64 * sizeof(tide_trace_entry));
  add_numbers(&ring, 0, 70);

  T_OK(tide__ring_resize(&ring, 0));

  T_EQ(atomic_load(&h.outstanding), 0);
  expect_numbers(&ring, 70, 70, 8);
  T_OK(tide__ring_resize(&ring, 4));
  add_numbers(&ring, 70, 2);
  expect_numbers(&ring, 70, 72, 8);
  tide__ring_fini(&ring);
  T_EQ(atomic_load(&h.outstanding), 0);
}

T_TEST(test_ring__stays_as_it_was_without_memory) {
  counting_heap h;
  tide__ring ring;
  counting_heap_init(&h, 1, true);
  ring_new(&ring, &h.heap, 16);
  add_numbers(&ring, 0, 20);

  T_STATUS(tide__ring_resize(&ring, 32), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide__ring_resize(&ring, UINT64_MAX), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide__ring_resize(&ring, UINT64_MAX / sizeof(tide_trace_entry) + 2), TIDE_ERR_NO_MEMORY);

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

  number = 3;  // all of it is gone: nothing, and the visit is over
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
    T_EQ(atomic_load(&h.outstanding), model.capacity * sizeof(tide_trace_entry));
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
  T_EQ(atomic_load(&h.outstanding), s.ring.capacity * sizeof(tide_trace_entry));
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

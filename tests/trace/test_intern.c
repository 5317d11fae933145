// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Interned texts, stacks, notes, frames and values: against an array of what was added, with a heap that
// fails, and with many threads at once.
#define T_THREADS
#include "trace/intern.h"

#include "base/lock.h"
#include "machine/counting_heap.h"

static tide_intern* names_new(const tide_heap* heap) {
  tide_intern* names = NULL;
  T_OK(tide_intern_new(heap, &names));
  return names;
}

// How many values of all kinds there are.
static size_t value_count(const tide_intern* names) {
  const tide_intern_counts counts = tide_intern_counts_of(names);
  return (size_t)counts.texts + counts.stacks + counts.notes + counts.frames + counts.values;
}

static uint32_t text_add(tide_intern* names, const char* text, size_t bytes) {
  uint32_t id = UINT32_MAX;
  T_OK(tide_intern_add_text(names, text, bytes, &id));
  return id;
}

static uint32_t stack_add(tide_intern* names, const uint64_t* frames, size_t count) {
  uint32_t id = UINT32_MAX;
  T_OK(tide_intern_add_stack(names, frames, count, &id));
  return id;
}

static uint32_t note_add(tide_intern* names, uint32_t metadata, uint32_t compile_context) {
  uint32_t id = UINT32_MAX;
  T_OK(tide_intern_add_note(names, (tide_note){ metadata, compile_context, 0 }, &id));
  return id;
}

static void expect_text(const tide_intern* names, uint32_t id, const char* text, size_t bytes) {
  size_t got_bytes = 0;
  const char* const got = tide_intern_text(names, id, &got_bytes);
  T_CHECK(got != NULL);
  T_EQ(got_bytes, bytes);
  T_EQ(memcmp(got, text, bytes), 0);
  T_EQ(got[bytes], 0);
}

static void expect_stack(const tide_intern* names, uint32_t id, const uint64_t* frames, size_t count) {
  size_t got_count = 0;
  const uint64_t* const got = tide_intern_stack(names, id, &got_count);
  T_CHECK(got != NULL);
  T_EQ((uintptr_t)got % sizeof *got, 0);
  T_EQ(got_count, count);
  T_EQ(memcmp(got, frames, count * sizeof *frames), 0);
}

static void expect_note(const tide_intern* names, uint32_t id, uint32_t metadata, uint32_t compile_context) {
  const tide_note note = tide_intern_note(names, id);
  T_EQ(note.metadata, metadata);
  T_EQ(note.compile_context, compile_context);
}

// ---------------------------------------------------------------------------------------------------
// One after the other

T_TEST(test_intern__nothing_is_0) {
  tide_intern* const names = names_new(NULL);

  T_EQ(text_add(names, "", 0), 0);
  T_EQ(text_add(names, NULL, 0), 0);
  T_EQ(stack_add(names, NULL, 0), 0);
  T_EQ(note_add(names, 0, 0), 0);

  T_EQ(value_count(names), 0);
  tide_intern_free(names);
}

static void expect_nothing(const tide_intern* names, uint32_t id) {
  size_t bytes = 1;
  size_t count = 1;
  T_PTR_EQ(tide_intern_text(names, id, &bytes), NULL);
  T_PTR_EQ(tide_intern_stack(names, id, &count), NULL);
  T_PTR_EQ(tide_intern_text(names, id, NULL), NULL);
  T_PTR_EQ(tide_intern_stack(names, id, NULL), NULL);
  T_EQ(bytes, 0);
  T_EQ(count, 0);
  expect_note(names, id, 0, 0);
}

T_TEST(test_intern__unknown_numbers_are_nothing) {
  const uint64_t frame = 1;
  tide_intern* const names = names_new(NULL);
  t_rng rng = t_rng_new(0);
  expect_nothing(names, 0);
  expect_nothing(names, 1);

  (void)text_add(names, "a", 1);
  (void)stack_add(names, &frame, 1);
  (void)note_add(names, 1, 1);

  expect_nothing(names, 0);
  for (uint32_t id = 2; id < 1000; id++) expect_nothing(names, id);
  for (uint32_t bit = 1; bit < 32; bit++) {
    expect_nothing(names, 1u << bit);
    expect_nothing(names, UINT32_MAX - (1u << bit));
  }
  expect_nothing(names, UINT32_MAX);
  for (size_t i = 0; i < t_scaled(10000); i++)
    expect_nothing(names, 2 + (uint32_t)t_rng_below(&rng, UINT32_MAX - 1));
  expect_nothing(NULL, 1);
  tide_intern_free(names);
}

T_TEST(test_intern__texts_may_hold_any_byte) {
  tide_intern* const names = names_new(NULL);
  char zeros[70] = { 0 };

  for (uint32_t n = 1; n <= 70; n++) T_EQ(text_add(names, zeros, n), n);
  T_EQ(text_add(names, "a\0b", 3), 71);
  T_EQ(text_add(names, "a\0c", 3), 72);
  T_EQ(text_add(names, "a", 1), 73);
  T_EQ(text_add(names, "\xff\n\x80", 3), 74);

  for (uint32_t n = 1; n <= 70; n++) {
    T_EQ(text_add(names, zeros, n), n);
    expect_text(names, n, zeros, n);
  }
  expect_text(names, 71, "a\0b", 3);
  expect_text(names, 72, "a\0c", 3);
  expect_text(names, 74, "\xff\n\x80", 3);
  tide_intern_free(names);
}

T_TEST(test_intern__tells_values_apart_that_differ_in_one_bit) {
  enum { BYTES = 40 };
  tide_intern* const names = names_new(NULL);
  char text[BYTES] = { 0 };
  uint32_t wanted = 0;

  for (size_t bytes = 1; bytes <= BYTES; bytes++) {
    T_EQ(text_add(names, text, bytes), ++wanted);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
      text[bit / 8] = (char)(1u << bit % 8);
      T_EQ(text_add(names, text, bytes), ++wanted);
      text[bit / 8] = 0;
    }
  }
  T_EQ(value_count(names), wanted);
  tide_intern_free(names);
}

// If the first half of 16 bytes is this factor of the hash, the hash forgets all up to the second half's end.
T_TEST(test_intern__tells_values_of_the_same_hash_apart) {
  tide_intern* const names = names_new(NULL);
  uint64_t frames[2] = { 0xe7037ed1a0b428dbu, 0 };

  for (uint32_t i = 1; i <= 500; i++) {
    frames[1] = i;
    T_EQ(stack_add(names, frames, 2), i);
  }

  for (uint32_t i = 1; i <= 500; i++) {
    frames[1] = i;
    T_EQ(stack_add(names, frames, 2), i);
    expect_stack(names, i, frames, 2);
  }
  T_EQ(tide__intern_check(names), 0);
  tide_intern_free(names);
}

T_TEST(test_intern__pointers_stay_good) {
  enum { COUNT = 20000 };
  static const char* texts[COUNT];
  tide_intern* const names = names_new(NULL);
  char text[32];

  for (uint32_t i = 0; i < COUNT; i++) {
    const size_t bytes = (size_t)snprintf(text, sizeof text, "value %u", i);
    T_EQ(text_add(names, text, bytes), i + 1);
    texts[i] = tide_intern_text(names, i + 1, NULL);
  }

  for (uint32_t i = 0; i < COUNT; i++) {
    (void)snprintf(text, sizeof text, "value %u", i);
    T_PTR_EQ(tide_intern_text(names, i + 1, NULL), texts[i]);
    T_STR_EQ(texts[i], text);
  }
  tide_intern_free(names);
}

T_TEST(test_intern__refuses_bad_input) {
  const tide_heap half = { counting_alloc, NULL, NULL };
  tide_intern* names = (tide_intern*)&names;
  uint32_t id = 5;
  T_STATUS(tide_intern_new(&half, &names), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(names, NULL);
  T_STATUS(tide_intern_new(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_text(NULL, "a", 1, &id), TIDE_ERR_ARGUMENT);
  T_EQ(id, 0);
  tide_intern_free(NULL);
  T_EQ(tide_intern_counts_of(NULL).texts, 0);

  const uint64_t frame = 1;
  names = names_new(NULL);
  T_STATUS(tide_intern_add_text(names, NULL, 1, &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_text(names, "a", 1, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_stack(names, NULL, 1, &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_stack(names, &frame, 1, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_note(names, (tide_note){ 1, 1, 0 }, NULL), TIDE_ERR_ARGUMENT);
  for (size_t less = 0; less < 100; less++) {
    T_STATUS(tide_intern_add_text(names, "a", SIZE_MAX - less, &id), TIDE_ERR_NO_MEMORY);
  }
  T_STATUS(tide_intern_add_stack(names, &frame, SIZE_MAX / 2, &id), TIDE_ERR_NO_MEMORY);
  T_EQ(value_count(names), 0);
  tide_intern_free(names);
}

// ---------------------------------------------------------------------------------------------------
// Against an array

// A value of the model; texts and stacks are bytes alike. Kinds: 0 text, 1 stack, 2 note.
typedef struct model_value {
  char* data;
  size_t bytes;
} model_value;

typedef struct intern_model {
  model_value* values[3];
  uint32_t count[3];
} intern_model;

static uint32_t model_add(intern_model* model, int kind, const void* data, size_t bytes) {
  for (uint32_t i = 0; i < model->count[kind]; i++) {
    const model_value* const v = &model->values[kind][i];
    if (v->bytes == bytes && memcmp(v->data, data, bytes) == 0) return i + 1;
  }
  const uint32_t count = ++model->count[kind];
  model->values[kind] = realloc(model->values[kind], count * sizeof(model_value));
  model_value* const added = &model->values[kind][count - 1];
  *added = (model_value){ malloc(bytes), bytes };
  memcpy(added->data, data, bytes);
  return count;
}

static void model_free(intern_model* model) {
  for (int kind = 0; kind < 3; kind++) {
    for (uint32_t i = 0; i < model->count[kind]; i++) free(model->values[kind][i].data);
    free(model->values[kind]);
  }
}

static void model_expect(const intern_model* model, const tide_intern* names, int kind, uint32_t id) {
  const model_value* const v = &model->values[kind][id - 1];
  uint64_t frames[1024];
  uint32_t note[2];
  switch (kind) {
    case 0: expect_text(names, id, v->data, v->bytes); break;
    case 1:
      memcpy(frames, v->data, v->bytes);
      expect_stack(names, id, frames, v->bytes / 8);
      break;
    default: memcpy(note, v->data, sizeof note); expect_note(names, id, note[0], note[1]);
  }
}

// Mostly short values of few different bytes, so that many are the same; now and then a large one.
static size_t random_value(t_rng* rng, int kind, uint64_t* words) {
  const size_t most = t_rng_below(rng, 50) == 0 ? 1024 : 6;
  const size_t count = kind == 2 ? 1 : 1 + t_rng_below(rng, most);
  for (size_t i = 0; i < count; i++) words[i] = t_rng_below(rng, 4);
  if (kind == 2) words[0] = 1 + t_rng_below(rng, 2000) * 0x100000001u;
  return kind == 0 ? count * 8 - t_rng_below(rng, 8) : count * 8;
}

static uint32_t add_value(tide_intern* names, int kind, const uint64_t* words, size_t bytes) {
  if (kind == 0) return text_add(names, (const char*)words, bytes);
  if (kind == 1) return stack_add(names, words, bytes / 8);
  return note_add(names, (uint32_t)words[0], (uint32_t)(words[0] >> 32));
}

static size_t model_count(const intern_model* model) {
  return (size_t)model->count[0] + model->count[1] + model->count[2];
}

T_TEST(test_intern__behaves_like_an_array) {
  intern_model model = { 0 };
  counting_heap h;
  uint64_t words[1024];
  t_rng rng = t_rng_new(0);
  counting_heap_init(&h, SIZE_MAX, false);
  tide_intern* const names = names_new(&h.heap);

  for (size_t i = 0; i < t_scaled(10000); i++) {
    const int kind = (int)t_rng_below(&rng, 3);
    const size_t bytes = random_value(&rng, kind, words);
    const uint32_t id = add_value(names, kind, words, bytes);
    T_EQ(id, model_add(&model, kind, words, bytes));
    model_expect(&model, names, kind, id);
    model_expect(&model, names, kind, 1 + (uint32_t)t_rng_below(&rng, model.count[kind]));
    T_EQ(value_count(names), model_count(&model));
    if (i % 64 == 0) T_EQ(tide__intern_check(names), 0);
  }

  for (int kind = 0; kind < 3; kind++) {
    for (uint32_t id = 1; id <= model.count[kind]; id++) model_expect(&model, names, kind, id);
  }
  tide_intern_free(names);
  T_EQ(atomic_load(&h.outstanding), 0);
  model_free(&model);
}

// ---------------------------------------------------------------------------------------------------
// Memory

T_TEST(test_intern__takes_no_memory_for_what_it_has) {
  counting_heap h;
  counting_heap_init(&h, SIZE_MAX, false);
  tide_intern* const names = names_new(&h.heap);
  for (uint64_t i = 1; i <= 1000; i++) (void)stack_add(names, &i, 1);
  const size_t allocs = atomic_load(&h.allocs);

  for (uint64_t i = 1; i <= 1000; i++) T_EQ(stack_add(names, &i, 1), i);

  T_EQ(atomic_load(&h.allocs), allocs);
  tide_intern_free(names);
}

// As the head of intern_table.c says: 16 + 16 + 22 bytes beside a value, and a quarter for what is left over.
T_TEST(test_intern__has_a_bounded_overhead) {
  static const size_t counts[] = { 2000, 12289, 50000, 2000, 12289, 2000, 12289, 500, 200, 60 };
  static const size_t lengths[] = { 1, 1, 1, 5, 5, 64, 64, 300, 5000, 17500 };
  static uint64_t frames[17500];
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    counting_heap h;
    counting_heap_init(&h, SIZE_MAX, false);
    tide_intern* const names = names_new(&h.heap);

    for (frames[0] = 1; frames[0] <= counts[k]; frames[0]++) (void)stack_add(names, frames, lengths[k]);

    T_EQ(value_count(names), counts[k]);
    T_LE(atomic_load(&h.outstanding), counts[k] * (lengths[k] * 8 + 54) / 4 * 5 + (512 << 10));
    tide_intern_free(names);
  }
}

static void fill_under_failure(tide_intern* names, const counting_heap* h, uint32_t count) {
  static char large[20000];
  uint32_t id = 0;
  for (uint32_t i = 1; i <= count; i++) {
    const uint64_t frames[2] = { i, ~(uint64_t)i };
    const size_t bytes = i % 16 == 0 ? i * 100 : i;
    for (tide_status s = tide_intern_add_text(names, large, bytes, &id); s != TIDE_OK;) {
      T_STATUS(s, TIDE_ERR_NO_MEMORY);
      T_EQ(id, 0);
      T_CHECK(atomic_load(&h->has_failed));
      T_EQ(value_count(names), 3 * (size_t)(i - 1));
      s = tide_intern_add_text(names, large, bytes, &id);
    }
    T_EQ(id, i);
    if (tide_intern_add_stack(names, frames, 2, &id) != TIDE_OK) T_EQ(stack_add(names, frames, 2), i);
    if (tide_intern_add_note(names, (tide_note){ i, 1, 0 }, &id) != TIDE_OK) T_EQ(note_add(names, i, 1), i);
    T_EQ(stack_add(names, frames, 2), i);
    T_EQ(note_add(names, i, 1), i);
    expect_text(names, i, large, bytes);
    expect_stack(names, i, frames, 2);
    expect_note(names, i, i, 1);
  }
}

static bool run_with_failure_at(size_t fail_at) {
  counting_heap h;
  tide_intern* names = NULL;
  counting_heap_init(&h, fail_at, false);
  if (tide_intern_new(&h.heap, &names) != TIDE_OK) {
    T_PTR_EQ(names, NULL);
    T_OK(tide_intern_new(&h.heap, &names));
  }
  fill_under_failure(names, &h, 200);
  T_EQ(value_count(names), 600);
  T_EQ(tide__intern_check(names), 0);
  tide_intern_free(names);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

T_TEST(test_intern__may_fail_at_any_alloc) {
  size_t fail_at = 0;
  while (run_with_failure_at(fail_at)) fail_at++;
  T_LT(20, fail_at);
}

// Adds texts of 200 bytes until one fails; returns how many there are.
static uint32_t fill_up(tide_intern* names, uint32_t from) {
  char text[200] = { 0 };
  for (uint32_t i = from;; i++) {
    uint32_t id = 0;
    memcpy(text, &i, sizeof i);
    const tide_status status = tide_intern_add_text(names, text, sizeof text, &id);
    T_EQ(id, status == TIDE_OK ? i + 1 : 0);
    if (status == TIDE_OK) continue;
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    return i;
  }
}

T_TEST(test_intern__stays_usable_when_memory_is_gone_for_good) {
  char text[200] = { 0 };
  counting_heap h;
  for (size_t fail_at = 1; fail_at < 40; fail_at++) {
    counting_heap_init(&h, fail_at, true);
    tide_intern* const names = names_new(&h.heap);

    const uint32_t full = fill_up(names, 0);
    T_EQ(fill_up(names, full), full);

    T_EQ(value_count(names), full);
    T_EQ(tide__intern_check(names), 0);
    for (uint32_t i = 0; i < full; i++) {
      memcpy(text, &i, sizeof i);
      T_EQ(text_add(names, text, sizeof text), i + 1);
      expect_text(names, i + 1, text, sizeof text);
    }
    atomic_store(&h.fail_at, atomic_load(&h.allocs) + 4);  // and again there is some
    T_LT(full, fill_up(names, full) + 1);
    tide_intern_free(names);
    T_EQ(atomic_load(&h.outstanding), 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { SHARED_THREADS = 8, SHARED_VALUES = 3000 };

typedef struct shared_adder {
  tide_intern* names;
  uint64_t id;
  uint32_t numbers[3][SHARED_VALUES];
} shared_adder;

// The n-th value of all threads.
static size_t shared_value(uint32_t n, int kind, uint64_t* words) {
  const size_t count = kind == 2 ? 1 : 1 + n % 7 + (n % 500 == 0 ? 600 : 0);
  for (size_t i = 0; i < count; i++) words[i] = (n + 1) * (i + 1);
  return count * 8;
}

static void shared_expect(const tide_intern* names, int kind, uint32_t id, const uint64_t* words,
                          size_t bytes) {
  if (kind == 0) expect_text(names, id, (const char*)words, bytes);
  else if (kind == 1) expect_stack(names, id, words, bytes / 8);
  else expect_note(names, id, (uint32_t)words[0], (uint32_t)(words[0] >> 32));
}

// Looks up a number that another thread may be adding: the value is complete, or missing.
static void shared_peek(const tide_intern* names, uint32_t id) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(names, id, &count);
  T_EQ(frames != NULL, count != 0);
  for (size_t i = 0; i < count; i++) T_EQ(frames[i], frames[0] * (i + 1));
}

static void* thread_adds_shared(void* user) {
  shared_adder* const a = user;
  uint64_t words[700];
  t_rng rng = t_rng_new(a->id);
  static const uint32_t strides[] = { 1, 1, 7, 11 };  // coprime to the count, so that all values come
  const uint32_t stride = strides[t_rng_below(&rng, 4)];
  uint32_t n = (uint32_t)(a->id / 2 * 700);
  for (uint32_t i = 0; i < SHARED_VALUES; i++, n += stride) {
    for (int kind = 0; kind < 3; kind++) {
      const size_t bytes = shared_value(n % SHARED_VALUES, kind, words);
      const uint32_t id = add_value(a->names, kind, words, bytes);
      a->numbers[kind][n % SHARED_VALUES] = id;
      shared_expect(a->names, kind, id, words, bytes);
    }
    shared_peek(a->names, 1 + (uint32_t)t_rng_below(&rng, SHARED_VALUES + 100));
  }
  return NULL;
}

// Every number from 1 to the count was given to one value, the same for all threads.
static void shared_check(const shared_adder* adders, int kind) {
  bool is_given[SHARED_VALUES + 1] = { 0 };
  for (uint32_t n = 0; n < SHARED_VALUES; n++) {
    const uint32_t id = adders[0].numbers[kind][n];
    for (int t = 1; t < SHARED_THREADS; t++) T_EQ(adders[t].numbers[kind][n], id);
    T_LE(1, id);
    T_LE(id, SHARED_VALUES);
    T_CHECK(!is_given[id]);
    is_given[id] = true;
  }
}

// Now and then it takes long, so that the table has grown twice when a thread comes back with its memory.
static void* alloc_slowly(void* user, size_t bytes, size_t alignment) {
  const counting_heap* const h = user;
  if (atomic_load(&h->allocs) % 5 == 4) t_sleep_us(4000);
  return counting_alloc(user, bytes, alignment);
}

T_TEST(test_intern__gives_all_threads_the_same_numbers) {
  static shared_adder adders[SHARED_THREADS];
  pthread_t threads[SHARED_THREADS];
  counting_heap h;
  for (size_t round = 0; round < t_scaled(3); round++) {
    counting_heap_init(&h, SIZE_MAX, false);
    if (round % 3 != 0) h.heap.alloc = alloc_slowly;
    tide_intern* const names = names_new(&h.heap);
    memset(adders, 0, sizeof adders);

    for (uint64_t t = 0; t < SHARED_THREADS; t++) {
      adders[t].names = names;
      adders[t].id = t + round * SHARED_THREADS;
      t_thread_start(&threads[t], thread_adds_shared, &adders[t]);
    }
    for (int t = 0; t < SHARED_THREADS; t++) t_thread_join(threads[t]);

    T_EQ(value_count(names), 3 * SHARED_VALUES);
    T_EQ(tide__intern_check(names), 0);
    for (int kind = 0; kind < 3; kind++) shared_check(adders, kind);
    tide_intern_free(names);
    T_EQ(atomic_load(&h.outstanding), 0);
  }
}

// Follows the writer by numbers alone, without other synchronisation.
static void* thread_follows(void* user) {
  const tide_intern* const names = user;
  const uint32_t total = (uint32_t)t_scaled(20000);
  for (uint32_t id = 1; id <= total; id++) {
    size_t count = 0;
    const uint64_t* frames = NULL;
    while ((frames = tide_intern_stack(names, id, &count)) == NULL) T_EQ(count, 0);
    T_EQ(count, 1 + id % 5);
    for (size_t i = 0; i < count; i++) T_EQ(frames[i], (uint64_t)id * (i + 1));
  }
  return NULL;
}

T_TEST(test_intern__is_read_without_a_lock) {
  pthread_t readers[2];
  tide_intern* const names = names_new(NULL);
  for (int i = 0; i < 2; i++) t_thread_start(&readers[i], thread_follows, names);

  for (uint32_t id = 1; id <= (uint32_t)t_scaled(20000); id++) {
    uint64_t frames[5];
    for (size_t i = 0; i < 5; i++) frames[i] = (uint64_t)id * (i + 1);
    T_EQ(stack_add(names, frames, 1 + id % 5), id);
  }

  for (int i = 0; i < 2; i++) t_thread_join(readers[i]);
  tide_intern_free(names);
}

static void* alloc_without_lock(void* user, size_t bytes, size_t alignment) {
  T_CHECK(tide__holds_no_lock());
  return counting_alloc(user, bytes, alignment);
}

static void release_without_lock(void* user, void* address, size_t bytes) {
  T_CHECK(tide__holds_no_lock());
  counting_release(user, address, bytes);
}

T_TEST(test_intern__holds_no_lock_when_it_asks_the_heap) {
  counting_heap h;
  counting_heap_init(&h, SIZE_MAX, false);
  h.heap.alloc = alloc_without_lock;
  h.heap.release = release_without_lock;
  tide_intern* const names = names_new(&h.heap);

  for (uint64_t i = 1; i <= 5000; i++) (void)stack_add(names, &i, 1);

  tide_intern_free(names);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// ---------------------------------------------------------------------------------------------------
// Frames

static uint32_t frame_add(tide_intern* names, tide_frame frame) {
  uint32_t id = UINT32_MAX;
  T_OK(tide_intern_add_frame(names, &frame, &id));
  return id;
}

T_TEST(test_intern__keeps_each_frame_once) {
  tide_intern* const names = names_new(NULL);
  const tide_frame frame = { .name = 1, .file = 2, .extra = 3, .absent = TIDE_FRAME_LINE, .line = -5 };

  for (int round = 0; round < 2; round++) {
    T_EQ(frame_add(names, frame), 1);
    T_EQ(frame_add(names, (tide_frame){ .name = 2, .file = 2, .extra = 3, .absent = 4, .line = -5 }), 2);
    T_EQ(frame_add(names, (tide_frame){ .name = 1, .file = 1, .extra = 3, .absent = 4, .line = -5 }), 3);
    T_EQ(frame_add(names, (tide_frame){ .name = 1, .file = 2, .extra = 4, .absent = 4, .line = -5 }), 4);
    T_EQ(frame_add(names, (tide_frame){ .name = 1, .file = 2, .extra = 3, .absent = 0, .line = -5 }), 5);
    T_EQ(frame_add(names, (tide_frame){ .name = 1, .file = 2, .extra = 3, .absent = 4, .line = INT64_MIN }),
         6);
  }

  const tide_frame got = tide_intern_frame(names, 1);
  T_EQ(got.name, 1);
  T_EQ(got.file, 2);
  T_EQ(got.extra, 3);
  T_EQ(got.absent, TIDE_FRAME_LINE);
  T_EQ(got.line, -5);
  T_EQ(tide_intern_frame(names, 6).line, INT64_MIN);
  T_EQ(tide_intern_counts_of(names).frames, 6);
  tide_intern_free(names);
}

// An empty frame is a frame: a file may have one.
T_TEST(test_intern__an_empty_frame_has_a_number) {
  tide_intern* const names = names_new(NULL);
  T_EQ(frame_add(names, (tide_frame){ 0 }), 1);
  T_EQ(tide_intern_frame(names, 0).line, 0);
  T_EQ(tide_intern_frame(names, 2).name, 0);
  T_EQ(tide_intern_frame(names, UINT32_MAX).name, 0);
  T_EQ(tide_intern_frame(NULL, 1).name, 0);
  tide_intern_free(names);
}

// ---------------------------------------------------------------------------------------------------
// Values

static uint32_t value_add(tide_intern* names, tide_value value) {
  uint32_t id = UINT32_MAX;
  T_OK(tide_intern_add_value(names, &value, &id));
  T_LT(0, id);
  return id;
}

static uint32_t items_add(tide_intern* names, uint32_t kind, const uint64_t* items, size_t count) {
  return value_add(names, (tide_value){ .kind = kind, .items = items, .count = count });
}

static uint32_t int_add(tide_intern* names, int64_t integer) {
  return value_add(names, (tide_value){ .kind = TIDE_VALUE_INT, .integer = integer });
}

static uint64_t pair_of(uint32_t key, uint32_t value) { return (uint64_t)key << 32 | value; }

// What does not belong to the kind does not count.
T_TEST(test_intern__values_are_told_apart_by_kind_and_field) {
  const uint64_t item = 1;
  tide_intern* const names = names_new(NULL);

  for (int round = 0; round < 2; round++) {
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_NONE, .integer = round, .number = round }), 1);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = 0, .text = (uint32_t)round }), 2);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = 1 + round }), 3);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_INT, .integer = 1 }), 4);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_INT, .integer = -1 }), 5);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_UINT, .integer = -1 }), 6);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_FLOAT, .number = 1 }), 7);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_FLOAT, .number = 0.0 }), 8);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_FLOAT, .number = -0.0 }), 9);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_TEXT, .text = 0 }), 10);
    T_EQ(value_add(names, (tide_value){ .kind = TIDE_VALUE_TEXT, .text = 1 }), 11);
    T_EQ(items_add(names, TIDE_VALUE_LIST, NULL, 0), 12);
    T_EQ(items_add(names, TIDE_VALUE_TUPLE, NULL, 0), 13);
    T_EQ(items_add(names, TIDE_VALUE_DICT, NULL, 0), 14);
    T_EQ(items_add(names, TIDE_VALUE_LIST, &item, 1), 15);
    T_EQ(items_add(names, TIDE_VALUE_TUPLE, &item, 1), 16);
    T_EQ(items_add(names, TIDE_VALUE_DICT, &item, 1), 17);
  }
  T_EQ(tide_intern_counts_of(names).values, 17);
  T_EQ(tide_intern_value(names, 3).integer, 1);
  T_EQ(tide_intern_value(names, 6).integer, -1);
  T_CHECK(tide_intern_value(names, 7).number == 1.0);
  T_EQ(tide_intern_value(names, 11).text, 1);
  T_EQ(tide_intern_value(names, 17).kind, TIDE_VALUE_DICT);
  T_EQ(tide_intern_value(names, 17).count, 1);
  T_EQ(tide_intern_value(names, 14).count, 0);
  T_EQ(tide__intern_check(names), 0);
  tide_intern_free(names);
}

T_TEST(test_intern__items_come_back_in_their_order) {
  uint64_t items[100];
  tide_intern* const names = names_new(NULL);
  for (int64_t i = 0; i < 100; i++) T_EQ(int_add(names, i), i + 1);

  for (size_t count = 0; count <= 100; count++) {
    for (size_t i = 0; i < count; i++) items[i] = 1 + (i * 37 + count) % 100;
    const tide_value list = tide_intern_value(names, items_add(names, TIDE_VALUE_LIST, items, count));
    T_EQ(list.count, count);
    if (count > 0) T_EQ(memcmp(list.items, items, count * sizeof *items), 0);
    for (size_t i = 0; i < count; i++) items[i] = pair_of((uint32_t)((i * 37) % 101), 1 + (uint32_t)i);
    const tide_value dict = tide_intern_value(names, items_add(names, TIDE_VALUE_DICT, items, count));
    T_EQ(dict.count, count);
    if (count > 0) T_EQ(memcmp(dict.items, items, count * sizeof *items), 0);
  }
  T_EQ(tide__intern_check(names), 0);
  tide_intern_free(names);
}

T_TEST(test_intern__refuses_bad_values) {
  tide_intern* const names = names_new(NULL);
  uint32_t id = 7;
  T_EQ(int_add(names, 5), 1);
  const uint64_t unknown[] = { 1, 2 };
  const uint64_t zero = 0;
  const uint64_t keyed = pair_of(1, 1);
  const uint64_t repeated[] = { pair_of(1, 1), pair_of(2, 1), pair_of(1, 1) };
  const tide_value wrong[] = {
    { .kind = TIDE_VALUE_KIND_COUNT },
    { .kind = UINT32_MAX },
    { .kind = TIDE_VALUE_LIST, .items = NULL, .count = 1 },
    { .kind = TIDE_VALUE_LIST, .items = unknown, .count = 2 },
    { .kind = TIDE_VALUE_TUPLE, .items = &zero, .count = 1 },
    { .kind = TIDE_VALUE_LIST, .items = &keyed, .count = 1 },
    { .kind = TIDE_VALUE_DICT, .items = &zero, .count = 1 },
    { .kind = TIDE_VALUE_DICT, .items = repeated, .count = 3 },
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    id = 7;
    T_STATUS(tide_intern_add_value(names, &wrong[i], &id), TIDE_ERR_ARGUMENT);
    T_EQ(id, 0);
  }
  T_STATUS(tide_intern_add_value(NULL, &wrong[0], &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_value(names, NULL, &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_value(names, &wrong[0], NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_frame(NULL, &(tide_frame){ 0 }, &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_frame(names, NULL, &id), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_intern_add_frame(names, &(tide_frame){ 0 }, NULL), TIDE_ERR_ARGUMENT);
  T_EQ(tide_intern_counts_of(names).values, 1);
  tide_intern_free(names);
}

// A repeated key is found in a dict of any size, wherever the two stand.
T_TEST(test_intern__finds_a_repeated_key_anywhere) {
  uint64_t items[200];
  t_rng rng = t_rng_new(0);
  tide_intern* const names = names_new(NULL);
  const uint32_t value = int_add(names, 1);
  for (size_t count = 2; count <= 200; count += 1 + count / 5) {
    uint32_t id = 0;
    const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items, .count = count };
    for (size_t i = 0; i < count; i++) items[i] = pair_of((uint32_t)(i * 7919 % 100003), value);
    T_OK(tide_intern_add_value(names, &dict, &id));
    const size_t first = t_rng_below(&rng, count);
    items[(first + 1 + t_rng_below(&rng, count - 1)) % count] = items[first];
    T_STATUS(tide_intern_add_value(names, &dict, &id), TIDE_ERR_ARGUMENT);
  }
  tide_intern_free(names);
}

// Scalars and empty lists have depth 1.
T_TEST(test_intern__values_nest_64_deep) {
  for (uint32_t kind = TIDE_VALUE_LIST; kind <= TIDE_VALUE_DICT; kind++) {
    tide_intern* const names = names_new(NULL);
    uint64_t item = int_add(names, 1);
    uint32_t id = 0;
    for (int depth = 2; depth <= 64; depth++) item = items_add(names, kind, &item, 1);

    const tide_value deeper = { .kind = kind, .items = &item, .count = 1 };
    T_STATUS(tide_intern_add_value(names, &deeper, &id), TIDE_ERR_LIMIT);

    T_EQ(id, 0);
    T_EQ(tide_intern_value_weight(names, (uint32_t)item), 64);
    tide_intern_free(names);
  }
}

T_TEST(test_intern__weighs_values_as_if_written_out) {
  tide_intern* const names = names_new(NULL);
  const uint32_t one = int_add(names, 1);
  T_EQ(tide_intern_value_weight(names, 0), 0);
  T_EQ(tide_intern_value_weight(names, 77), 0);
  T_EQ(tide_intern_value_weight(NULL, 1), 0);
  T_EQ(tide_intern_value_weight(names, one), 1);
  T_EQ(tide_intern_value_weight(names, items_add(names, TIDE_VALUE_TUPLE, NULL, 0)), 1);

  uint64_t wanted = 1;
  uint32_t value = one;
  for (int level = 0; level < 60; level++) {
    const uint64_t items[] = { value, value };
    value = items_add(names, level % 2 == 0 ? TIDE_VALUE_LIST : TIDE_VALUE_TUPLE, items, 2);
    wanted = 2 * wanted + 1;
    const uint64_t most = (uint64_t)1 << 32;
    if (wanted > most) wanted = most;
    T_EQ(tide_intern_value_weight(names, value), wanted);
  }
  tide_intern_free(names);
}

T_TEST(test_intern__finds_the_value_of_a_key) {
  tide_intern* const names = names_new(NULL);
  const uint32_t a = text_add(names, "a", 1);
  const uint32_t ab = text_add(names, "ab", 2);
  const uint32_t zero = text_add(names, "a\0b", 3);
  const uint32_t values[] = { int_add(names, 1), int_add(names, 2), int_add(names, 3), int_add(names, 4) };
  const uint64_t items[] = { pair_of(a, values[0]), pair_of(ab, values[1]), pair_of(zero, values[2]),
                             pair_of(0, values[3]) };
  const uint32_t dict = items_add(names, TIDE_VALUE_DICT, items, 4);
  const uint64_t list_items[] = { values[0] };
  const uint32_t list = items_add(names, TIDE_VALUE_LIST, list_items, 1);

  T_EQ(tide_intern_value_find(names, dict, "a"), values[0]);
  T_EQ(tide_intern_value_find(names, dict, "ab"), values[1]);
  T_EQ(tide_intern_value_find(names, dict, ""), values[3]);
  T_EQ(tide_intern_value_find(names, dict, "b"), 0);
  T_EQ(tide_intern_value_find(names, dict, "abc"), 0);
  T_EQ(tide_intern_value_find(names, dict, NULL), 0);
  T_EQ(tide_intern_value_find(names, list, "a"), 0);
  T_EQ(tide_intern_value_find(names, values[0], "a"), 0);
  T_EQ(tide_intern_value_find(names, 0, "a"), 0);
  T_EQ(tide_intern_value_find(names, 999, "a"), 0);
  T_EQ(tide_intern_value_find(NULL, dict, "a"), 0);
  tide_intern_free(names);
}

T_TEST(test_intern__unknown_values_are_none) {
  tide_intern* const names = names_new(NULL);
  T_EQ(tide_intern_value(names, 0).kind, TIDE_VALUE_NONE);
  T_EQ(tide_intern_value(names, 1).count, 0);
  T_PTR_EQ(tide_intern_value(names, UINT32_MAX).items, NULL);
  T_EQ(tide_intern_value(NULL, 1).kind, TIDE_VALUE_NONE);
  T_EQ(tide_intern_counts_of(NULL).values, 0);
  tide_intern_free(names);
}

T_TEST(test_intern__counts_each_kind) {
  const uint64_t frame = 1;
  tide_intern* const names = names_new(NULL);
  for (int i = 0; i < 3; i++) {
    (void)text_add(names, "abc", (size_t)i + 1);
    if (i > 0) (void)note_add(names, (uint32_t)i, 0);
    (void)int_add(names, i);
  }
  (void)stack_add(names, &frame, 1);
  (void)frame_add(names, (tide_frame){ 0 });

  const tide_intern_counts counts = tide_intern_counts_of(names);

  T_EQ(counts.texts, 3);
  T_EQ(counts.notes, 2);
  T_EQ(counts.stacks, 1);
  T_EQ(counts.frames, 1);
  T_EQ(counts.values, 3);
  tide_intern_free(names);
}

// Lists and dicts that are too large for the stack ask the heap, which may fail.
static bool values_with_failure_at(size_t fail_at) {
  counting_heap h;
  uint64_t items[100];
  counting_heap_init(&h, fail_at, false);
  tide_intern* names = NULL;
  if (tide_intern_new(&h.heap, &names) != TIDE_OK) T_OK(tide_intern_new(&h.heap, &names));
  for (uint32_t n = 0; n < 150; n++) {
    uint32_t id = 0;
    tide_value value = { .kind = TIDE_VALUE_INT, .integer = n };
    if (n >= 100) {
      for (uint32_t i = 0; i < n - 50; i++) items[i] = pair_of(n % 2 == 0 ? i : 0, i + 1);
      value.kind = n % 2 == 0 ? TIDE_VALUE_DICT : TIDE_VALUE_LIST;
      value.items = items;
      value.count = n - 50;
    }
    if (tide_intern_add_value(names, &value, &id) != TIDE_OK) {
      T_STATUS(tide_last_error()->status, TIDE_ERR_NO_MEMORY);
      T_EQ(id, 0);
      T_OK(tide_intern_add_value(names, &value, &id));
    }
    T_EQ(id, n + 1);
  }
  T_EQ(tide__intern_check(names), 0);
  tide_intern_free(names);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

T_TEST(test_intern__values_may_fail_at_any_alloc) {
  size_t fail_at = 0;
  while (values_with_failure_at(fail_at)) fail_at++;
  T_LT(55, fail_at);
}

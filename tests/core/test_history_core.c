// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history without an allocator: options, entries and observers, compared with a plain list of what was
// added; faults; and the order in which several threads report entries.
#define T_THREADS
#include <stdatomic.h>

#include "base/arith.h"
#include "core/history.h"
#include "machine/counting_heap.h"
#include "t.h"
#include "tidemark/machine.h"

enum { KEPT = 1, OBSERVED = 2, OTHER_BITS = 0x40 };

typedef struct history_fixture {
  tide_machine* machine;
  counting_heap heap;
  tide__atomic_u32 word;
  tide__history history;
} history_fixture;

static void fixture_init(history_fixture* f) {
  memset(f, 0, sizeof *f);
  T_OK(tide_machine_new_dry(NULL, &f->machine));
  counting_heap_init(&f->heap, SIZE_MAX, false);
  tide__store_relaxed(&f->word, OTHER_BITS);
  T_OK(tide__history_init(&f->history, f->machine, &f->heap.heap, &f->word, KEPT, OBSERVED));
}

static void fixture_fini(history_fixture* f) {
  tide__history_fini(&f->history);
  T_EQ(atomic_load(&f->heap.outstanding), 0);
  tide_machine_free(f->machine);
}

static tide_observer observe(history_fixture* f, tide_entry_fn function, void* user) {
  tide_observer observer = 0;
  T_OK(tide__observers_attach(&f->history.observers, "test", TIDE__OBSERVE_ENTRIES,
                              (tide__observer_fn)function, user, &observer));
  return observer;
}

static void unobserve(history_fixture* f, tide_observer observer) {
  T_OK(tide__observers_detach(&f->history.observers, "test", observer));
}

// ---------------------------------------------------------------------------------------------------
// Beside a list

enum { MODEL_MOST = 40, MODEL_NEW = 4096 };

// What should be in the ring, and what an observer should have been told.
typedef struct history_model {
  tide_trace_entry kept[MODEL_MOST];
  size_t count;
  tide_history_options options;
  tide_trace_entry told[MODEL_NEW];
  size_t told_count;
  size_t heard_count;
  uint64_t next_number;  // of entries while somebody is attached
  bool is_observed;
  uint64_t stack_frame;  // what is gathered now
  size_t gathered;
} history_model;

static size_t gather_frame(void* user, uint64_t* frames, size_t capacity) {
  history_model* const m = user;
  T_LT(0, capacity);
  m->gathered++;
  frames[0] = m->stack_frame;
  return 1;
}

static void expect_same_entry(const tide_trace_entry* a, const tide_trace_entry* b) {
  T_EQ(a->address, b->address);
  T_EQ(a->bytes, b->bytes);
  T_EQ(a->action, b->action);
  T_EQ(a->device, b->device);
  T_EQ(a->pool, b->pool);
  T_EQ(a->stream, b->stream);
  T_EQ(a->stack, b->stack);
}

static void hear(void* user, const tide_trace_entry* entry, uint64_t number) {
  history_model* const m = user;
  T_LT(m->heard_count, m->told_count);
  expect_same_entry(entry, &m->told[m->heard_count++]);
  T_EQ(number, m->next_number - (m->told_count - m->heard_count) - 1);
}

static void model_keep(history_model* m, const tide_trace_entry* entry) {
  const size_t most = m->options.max_entries > 0 ? m->options.max_entries : 1;
  if (!m->options.is_on || (m->options.skips >> entry->action & 1u) != 0) return;
  T_LE(most, MODEL_MOST);
  while (m->count >= most) memmove(m->kept, m->kept + 1, --m->count * sizeof *m->kept);
  m->kept[m->count++] = *entry;
}

static void model_add(history_model* m, const tide_trace_entry* entry) {
  model_keep(m, entry);
  if (!m->is_observed) return;
  T_LT(m->told_count, MODEL_NEW);
  m->told[m->told_count++] = *entry;
  m->next_number++;
}

static bool compare_kept(void* user, const tide_trace_entry* entries, size_t count) {
  history_model* const m = user;
  for (size_t i = 0; i < count; ++i) {
    T_LT(m->heard_count, m->count);
    expect_same_entry(&entries[i], &m->kept[m->heard_count++]);
  }
  return true;
}

static void expect_kept(history_fixture* f, history_model* m) {
  const size_t heard = m->heard_count;
  m->heard_count = 0;
  T_OK(tide__ring_visit(&f->history.ring, compare_kept, m));
  T_EQ(m->heard_count, m->count);
  m->heard_count = heard;
  T_EQ(tide__load_relaxed(&f->word),
       OTHER_BITS | (m->options.is_on ? KEPT : 0) | (m->is_observed ? OBSERVED : 0));
}

static void do_configure(history_fixture* f, history_model* m, t_rng* rng) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = t_rng_below(rng, 4) != 0;
  options.clears = t_rng_below(rng, 8) == 0;
  options.level = (uint8_t)t_rng_below(rng, 4);
  options.skips = t_rng_below(rng, 3) == 0 ? (uint32_t)t_rng_next(rng) & 0x3ffu : 0;
  options.max_entries = t_rng_below(rng, MODEL_MOST + 1);
  options.gather = gather_frame;
  options.user = m;
  T_OK(tide__history_configure(&f->history, "test", &options));
  const size_t most = !options.is_on || options.clears ? 0 : tide__max(1, options.max_entries);
  while (m->count > most) memmove(m->kept, m->kept + 1, --m->count * sizeof *m->kept);
  m->options = options;
}

// What a call does: a context, some entries, telling. A stack is gathered if the level asks for it, and shown
// from ALLOC on.
static void do_call(history_fixture* f, history_model* m, t_rng* rng) {
  const uint32_t level = (uint32_t)t_rng_below(rng, 4);
  const uint32_t now = m->options.is_on ? m->options.level : TIDE_HISTORY_NEVER;
  const size_t gathered = m->gathered + (level != 0 && now >= level ? 1 : 0);
  m->stack_frame = 1 + t_rng_below(rng, 9);
  const tide__call_context context = tide__history_context(&f->history, level, TIDE__STEP_ENTRIES);
  T_EQ(m->gathered, gathered);
  T_EQ(context.stack != 0, level != 0 && now >= level);
  const size_t count = t_rng_below(rng, TIDE__STEP_ENTRIES + 1);
  for (size_t i = 0; i < count; ++i) {
    tide_trace_entry entry = { .address = t_rng_next(rng),
                               .bytes = t_rng_next(rng),
                               .stream = t_rng_below(rng, 5),
                               .stack = context.stack,
                               .pool = (uint32_t)t_rng_below(rng, 3),
                               .action = (uint8_t)t_rng_below(rng, 10),
                               .device = (uint8_t)t_rng_below(rng, 3) };
    tide__history_add(&f->history, &context, entry);
    if (now < TIDE_HISTORY_ALLOC) entry.stack = 0;
    model_add(m, &entry);
  }
  T_EQ(tide__untold_count, m->is_observed ? count : 0);
  tide__history_tell(&f->history);
  T_EQ(m->heard_count, m->told_count);
  T_EQ(tide__untold_count, 0);
  m->heard_count = m->told_count = 0;
}

T_TEST(test_history_core__keeps_and_tells_what_was_added) {
  t_rng rng = t_rng_new(1);
  static history_fixture f;
  static history_model m;
  tide_observer observer = 0;
  fixture_init(&f);
  for (size_t i = 0; i < t_scaled_alone(5000); ++i) {
    const uint64_t what = t_rng_below(&rng, 20);
    if (what == 0) do_configure(&f, &m, &rng);
    else if (what == 1 && m.is_observed) unobserve(&f, observer);
    else if (what == 1) observer = observe(&f, hear, &m);
    else do_call(&f, &m, &rng);
    if (what == 1) m.is_observed = !m.is_observed;
    expect_kept(&f, &m);
  }
  fixture_fini(&f);
}

static void hear_remark(void* user, const tide_trace_entry* entry) {
  history_fixture* const f = user;
  const tide_intern* const names = f->history.names;
  T_EQ(entry->action, TIDE_ACTION_USER_DEFINED);
  T_STR_EQ(tide_intern_text(names, tide_intern_note(names, entry->note).metadata, NULL), "a remark");
  tide__store_relaxed(&f->word, tide__load_relaxed(&f->word) | OTHER_BITS << 1);
}

T_TEST(test_history_core__tells_annotations_while_something_records) {
  history_fixture f;
  tide_observer observer = 0;
  fixture_init(&f);
  T_OK(tide__history_annotate(&f.history, TIDE_HISTORY_ALL, "nobody hears this"));
  T_OK(tide__observers_attach(&f.history.observers, "test", TIDE__OBSERVE_TRACE,
                              (tide__observer_fn)hear_remark, &f, &observer));

  T_OK(tide__history_annotate(&f.history, TIDE_HISTORY_ALL, "a remark"));

  T_NE(tide__load_relaxed(&f.word) & OTHER_BITS << 1, 0);
  unobserve(&f, observer);
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Options

static uint32_t number_of(void* user) { return ++*(uint32_t*)user; }
static size_t gather_none(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  (void)frames;
  (void)capacity;
  return 0;
}

T_TEST(test_history_core__options_are_checked_in_the_name_of_the_call) {
  history_fixture f;
  fixture_init(&f);
  const struct {
    uint32_t size;
    uint8_t level;
    bool is_on;
    bool has_gather;
    bool has_number;
    tide_status want;
  } rows[] = {
    { sizeof(tide_history_options), TIDE_HISTORY_NEVER, true, false, false, TIDE_OK },
    { sizeof(tide_history_options), TIDE_HISTORY_STATE, true, false, false, TIDE_ERR_ARGUMENT },
    { sizeof(tide_history_options), TIDE_HISTORY_STATE, true, true, false, TIDE_OK },
    { sizeof(tide_history_options), TIDE_HISTORY_STATE, true, false, true, TIDE_OK },
    { sizeof(tide_history_options), TIDE_HISTORY_STATE, true, true, true, TIDE_ERR_ARGUMENT },
    { sizeof(tide_history_options), TIDE_HISTORY_STATE, false, false, false, TIDE_OK },
    { sizeof(tide_history_options), TIDE_HISTORY_ALL + 1, true, true, false, TIDE_ERR_ARGUMENT },
    { offsetof(tide_history_options, number), TIDE_HISTORY_ALL, true, true, true, TIDE_OK },  // an older one
    { sizeof(tide_history_options) + 8, TIDE_HISTORY_NEVER, true, false, false, TIDE_ERR_ARGUMENT },
    { 2, TIDE_HISTORY_NEVER, true, false, false, TIDE_ERR_ARGUMENT },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
    options.size = rows[i].size;
    options.level = rows[i].level;
    options.is_on = rows[i].is_on;
    options.gather = rows[i].has_gather ? gather_none : NULL;
    options.number = rows[i].has_number ? number_of : NULL;
    T_STATUS(tide__history_configure(&f.history, "some_call", &options), rows[i].want);
    if (rows[i].want != TIDE_OK) T_STR_HAS(tide_last_error()->text, "some_call: ");
  }
  fixture_fini(&f);
}

T_TEST(test_history_core__numbers_stand_for_stacks) {
  history_fixture f;
  uint32_t last = 6;
  fixture_init(&f);
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALLOC;
  options.number = number_of;
  options.user = &last;
  T_CHECK(!tide__history_has_numbers(&f.history));
  T_OK(tide__history_configure(&f.history, "test", &options));

  T_CHECK(tide__history_has_numbers(&f.history));
  T_EQ(tide__history_context(&f.history, TIDE_HISTORY_STATE, 1).stack, 7);
  T_EQ(tide__history_context(&f.history, TIDE_HISTORY_ALL, 1).stack, 0);
  T_EQ(tide__history_context(&f.history, TIDE_HISTORY_ALLOC, 1).stack, 8);
  T_EQ(tide_intern_counts_of(f.history.names).stacks, 0);
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Neither a clock that fails nor a table without memory fails a call, or hides what failed before.
T_TEST(test_history_core__a_context_never_changes_the_error) {
  history_fixture f;
  history_model m = { .stack_frame = 3 };
  fixture_init(&f);
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather_frame;
  options.user = &m;
  T_OK(tide__history_configure(&f.history, "test", &options));
  T_STATUS(tide_machine_raw_alloc(f.machine, 9, 512, NULL), TIDE_ERR_ARGUMENT);
  const tide_error before = *tide_last_error();
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_CLOCK;
  fault.status = TIDE_ERR_MACHINE;
  T_OK(tide_machine_fault_add(f.machine, &fault));
  atomic_store(&f.heap.fail_at, atomic_load(&f.heap.allocs));
  f.heap.is_exhausted = true;

  const tide__call_context context = tide__history_context(&f.history, TIDE_HISTORY_STATE, 1);

  T_EQ(context.time_ns, 0);
  T_EQ(m.gathered, 1);
  T_EQ(tide_last_error()->status, before.status);
  T_STR_EQ(tide_last_error()->text, before.text);
  fixture_fini(&f);
}

T_TEST(test_history_core__without_memory_options_stay_as_they_were) {
  history_fixture f;
  fixture_init(&f);
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.skips = 1;
  atomic_store(&f.heap.fail_at, atomic_load(&f.heap.allocs));

  T_STATUS(tide__history_configure(&f.history, "test", &options), TIDE_ERR_NO_MEMORY);

  T_CHECK(!tide__history_is_kept(&f.history));
  T_EQ(tide__load_relaxed(&f.history.skips), 0);
  T_OK(tide__history_configure(&f.history, "test", &options));
  T_CHECK(tide__history_is_kept(&f.history));
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Several threads and several histories

enum { TELLERS = 4 };

// Threads make entries about segments one after the other, numbered as they are made; each is told in turn.
typedef struct turns {
  history_fixture f;
  pthread_mutex_t lock;
  uint64_t made;
  uint64_t heard;  // only the observer, which runs one at a time
} turns;

static void hear_in_turn(void* user, const tide_trace_entry* entry, uint64_t number) {
  turns* const t = user;
  (void)number;
  if (entry->action != TIDE_ACTION_SEGMENT_ALLOC) return;
  T_EQ(entry->address, t->heard);
  t->heard++;
}

static void* make_in_turn(void* user) {
  turns* const t = user;
  for (size_t i = 0; i < t_scaled(300); ++i) {
    const tide__call_context context = tide__history_context(&t->f.history, 0, TIDE__STEP_ENTRIES);
    for (size_t k = 0; k < 1 + i % 3; ++k) {
      pthread_mutex_lock(&t->lock);
      tide__history_add(&t->f.history, &context,
                        (tide_trace_entry){ .address = t->made++, .action = TIDE_ACTION_SEGMENT_ALLOC });
      pthread_mutex_unlock(&t->lock);
      tide__history_add(&t->f.history, &context, (tide_trace_entry){ .action = TIDE_ACTION_ALLOC });
    }
    tide__history_tell(&t->f.history);
  }
  return NULL;
}

T_TEST(test_history_core__segments_are_told_in_the_order_they_were_made) {
  static turns t = { .lock = PTHREAD_MUTEX_INITIALIZER };
  pthread_t threads[TELLERS];
  fixture_init(&t.f);
  const tide_observer observer = observe(&t.f, hear_in_turn, &t);
  for (size_t i = 0; i < TELLERS; ++i) t_thread_start(&threads[i], make_in_turn, &t);
  for (size_t i = 0; i < TELLERS; ++i) t_thread_join(threads[i]);
  T_EQ(t.heard, t.made);
  unobserve(&t.f, observer);
  fixture_fini(&t.f);
}

// Observers of two histories make entries about segments in the other one.
typedef struct crossing {
  history_fixture* own;
  history_fixture* other;
  atomic_int heard;
} crossing;

static _Thread_local bool is_inside;

static void make_segment(history_fixture* f) {
  const tide__call_context context = tide__history_context(&f->history, 0, TIDE__STEP_ENTRIES);
  tide__history_add(&f->history, &context, (tide_trace_entry){ .action = TIDE_ACTION_SEGMENT_MAP });
  tide__history_tell(&f->history);
}

static void make_in_the_other(void* user, const tide_trace_entry* entry, uint64_t number) {
  crossing* const c = user;
  (void)entry;
  (void)number;
  atomic_fetch_add(&c->heard, 1);
  if (is_inside) return;
  is_inside = true;
  make_segment(c->other);
  is_inside = false;
}

static void* make_segments(void* user) {
  crossing* const c = user;
  for (size_t i = 0; i < t_scaled(200); ++i) make_segment(c->own);
  return NULL;
}

T_TEST(test_history_core__observers_of_two_histories_may_use_each_other) {
  static history_fixture f[2];
  for (size_t i = 0; i < 2; ++i) fixture_init(&f[i]);
  crossing crossings[2] = { { .own = &f[0], .other = &f[1] }, { .own = &f[1], .other = &f[0] } };
  pthread_t threads[TELLERS];
  tide_observer observers[2];
  for (size_t i = 0; i < 2; ++i) observers[i] = observe(&f[i], make_in_the_other, &crossings[i]);

  for (size_t i = 0; i < TELLERS; ++i) t_thread_start(&threads[i], make_segments, &crossings[i % 2]);
  for (size_t i = 0; i < TELLERS; ++i) t_thread_join(threads[i]);

  // Each of a thread's entries is heard where it was made, and the one that the observer made in the other.
  const size_t made = t_scaled(200) * TELLERS / 2;
  for (size_t i = 0; i < 2; ++i) {
    T_EQ(atomic_load(&crossings[i].heard), 2 * made);
    unobserve(&f[i], observers[i]);
    fixture_fini(&f[i]);
  }
}

// Untold entries of a history that is gone do not reach a new one at the same address.
T_TEST(test_history_core__untold_entries_of_a_history_that_is_gone_are_forgotten) {
  static history_fixture f;
  static history_model m;
  fixture_init(&f);
  const tide_observer first = observe(&f, hear, &m);
  const tide__call_context context = tide__history_context(&f.history, 0, TIDE__STEP_ENTRIES);
  tide__history_add(&f.history, &context, (tide_trace_entry){ .address = 1 });
  unobserve(&f, first);
  fixture_fini(&f);

  fixture_init(&f);
  const tide_observer second = observe(&f, hear, &m);
  m.is_observed = true;
  const tide_trace_entry entry = { .address = 2 };
  (void)tide__history_context(&f.history, 0, TIDE__STEP_ENTRIES);
  tide__history_add(&f.history, &context, entry);
  model_add(&m, &entry);
  tide__history_tell(&f.history);
  T_EQ(m.heard_count, 1);
  unobserve(&f, second);
  fixture_fini(&f);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers without an allocator: which are called and in which order, compared with a list; and detaching
// while one runs.
#define T_THREADS
#include <sched.h>
#include <stdatomic.h>

#include "core/observers.h"
#include "t.h"

enum { BIT = 4, OTHER_BITS = 0x30 };

typedef struct observers_fixture {
  tide__observers observers;
  tide__atomic_u32 word;
} observers_fixture;

static void fixture_init(observers_fixture* f) {
  memset(f, 0, sizeof *f);
  tide__store_relaxed(&f->word, OTHER_BITS);
  tide__observers_init(&f->observers, &f->word, BIT);
}

static void fixture_fini(observers_fixture* f) { tide__observers_fini(&f->observers); }

static tide_observer attach(observers_fixture* f, tide__observer_kind kind, tide__observer_fn function,
                            void* user) {
  tide_observer observer = 0;
  T_OK(tide__observers_attach(&f->observers, "test", kind, function, user, &observer));
  T_CHECK(observer != 0);
  return observer;
}

static void detach(observers_fixture* f, tide_observer observer) {
  T_OK(tide__observers_detach(&f->observers, "test", observer));
}

// An observer of these tests, and how all of them are called: with the argument of the call.
typedef void (*plain_fn)(void* user, void* argument);
static void invoke(tide__observer_fn function, void* user, void* argument) {
  ((plain_fn)function)(user, argument);
}
static void call(observers_fixture* f, tide__observer_kind kind, void* argument) {
  tide__observers_call(&f->observers, kind, invoke, argument);
}

// ---------------------------------------------------------------------------------------------------
// Beside a list

typedef struct called_list {
  size_t users[TIDE__MAX_OBSERVERS];
  size_t count;
} called_list;

static void note_user(void* user, void* argument) {
  called_list* const list = argument;
  T_LT(list->count, TIDE__MAX_OBSERVERS);
  list->users[list->count++] = (size_t)(uintptr_t)user;
}

typedef struct model_observer {
  tide_observer id;
  size_t user;
} model_observer;

typedef struct model_list {
  model_observer items[TIDE__MAX_OBSERVERS];
  size_t count;
} model_list;

static void expect_called(observers_fixture* f, const model_list* models) {
  for (int kind = 0; kind < TIDE__OBSERVER_KINDS; ++kind) {
    called_list list = { .count = 0 };
    call(f, (tide__observer_kind)kind, &list);
    T_EQ(list.count, models[kind].count);
    for (size_t i = 0; i < list.count; ++i) T_EQ(list.users[i], models[kind].items[i].user);
  }
  const bool is_heard = models[TIDE__OBSERVE_TRACE].count + models[TIDE__OBSERVE_ENTRIES].count > 0;
  T_EQ(tide__load_relaxed(&f->word), OTHER_BITS | (is_heard ? BIT : 0));
}

static void model_attach(observers_fixture* f, model_list* models, tide__observer_kind kind, size_t user) {
  model_list* const list = &models[kind];
  if (list->count == TIDE__MAX_OBSERVERS) {
    tide_observer none = 77;
    T_STATUS(tide__observers_attach(&f->observers, "test", kind, (tide__observer_fn)note_user, NULL, &none),
             TIDE_ERR_LIMIT);
    T_EQ(none, 0);
    return;
  }
  const tide_observer id = attach(f, kind, (tide__observer_fn)note_user, (void*)(uintptr_t)user);
  for (int i = 0; i < TIDE__OBSERVER_KINDS; ++i) {
    for (size_t k = 0; k < models[i].count; ++k) T_NE(models[i].items[k].id, id);
  }
  list->items[list->count++] = (model_observer){ id, user };
}

static void model_detach(observers_fixture* f, model_list* list, size_t at) {
  if (at >= list->count) return;
  const tide_observer id = list->items[at].id;
  detach(f, id);
  T_STATUS(tide__observers_detach(&f->observers, "test", id), TIDE_ERR_HANDLE);
  T_STR_HAS(tide_last_error()->text, "test: ");
  memmove(&list->items[at], &list->items[at + 1], (list->count - at - 1) * sizeof *list->items);
  list->count--;
}

T_TEST(test_observers_core__are_called_by_kind_in_the_order_they_came) {
  t_rng rng = t_rng_new(1);
  observers_fixture f;
  static model_list models[TIDE__OBSERVER_KINDS];
  fixture_init(&f);
  for (size_t i = 0; i < t_scaled_alone(4000); ++i) {
    const size_t kind = t_rng_below(&rng, TIDE__OBSERVER_KINDS);
    // Fills the lists up, and empties them again.
    if (t_rng_below(&rng, 400) < (i / 500 % 2 == 0 ? 240 : 160)) {
      model_attach(&f, models, (tide__observer_kind)kind, i + 1);
    } else {
      model_detach(&f, &models[kind], t_rng_below(&rng, TIDE__MAX_OBSERVERS));
    }
    expect_called(&f, models);
  }
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Detaching while one runs

// The data of an observer, freed when it is detached.
typedef struct stay {
  atomic_int is_entered;
  atomic_int is_open;
  atomic_int is_detached;
} stay;

typedef struct stay_fixture {
  observers_fixture f;
  stay* data;
  tide_observer observer;
  atomic_int is_detaching;
  atomic_int is_detached;
} stay_fixture;

static void stay_inside(void* user, void* argument) {
  stay_fixture* const s = argument;
  stay* const data = user;
  atomic_store(&data->is_entered, 1);
  while (!atomic_load(&data->is_open)) sched_yield();
  T_EQ(atomic_load(&s->is_detached), 0);
  T_EQ(atomic_load(&data->is_detached), 0);
}

static void* call_thread(void* user) {
  stay_fixture* const s = user;
  call(&s->f, TIDE__OBSERVE_OOM, s);
  return NULL;
}

static void* detach_thread(void* user) {
  stay_fixture* const s = user;
  atomic_store(&s->is_detaching, 1);
  detach(&s->f, s->observer);
  atomic_store(&s->is_detached, 1);
  atomic_store(&s->data->is_detached, 1);
  free(s->data);
  return NULL;
}

// Gives another thread time to do what it must not do.
static void let_others_run(const atomic_int* until) {
  for (int i = 0; i < 2000 && atomic_load(until) == 0; ++i) sched_yield();
}

T_TEST(test_observers_core__detaching_waits_until_nobody_is_inside) {
  stay_fixture s;
  pthread_t threads[2];
  memset(&s, 0, sizeof s);
  fixture_init(&s.f);
  s.data = calloc(1, sizeof *s.data);
  T_CHECK(s.data != NULL);
  s.observer = attach(&s.f, TIDE__OBSERVE_OOM, (tide__observer_fn)stay_inside, s.data);

  t_thread_start(&threads[0], call_thread, &s);
  T_WAIT(atomic_load(&s.data->is_entered));
  t_thread_start(&threads[1], detach_thread, &s);
  T_WAIT(atomic_load(&s.is_detaching));
  let_others_run(&s.is_detached);
  T_EQ(atomic_load(&s.is_detached), 0);
  atomic_store(&s.data->is_open, 1);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  T_EQ(atomic_load(&s.is_detached), 1);
  fixture_fini(&s.f);
}

static void ignore_call(void* user, void* argument) {
  (void)user;
  (void)argument;
}

// Those of another kind, and a kind that nobody calls, are detached at once.
T_TEST(test_observers_core__detaching_does_not_wait_for_other_kinds) {
  stay_fixture s;
  pthread_t thread;
  memset(&s, 0, sizeof s);
  fixture_init(&s.f);
  stay data = { 0 };
  const tide_observer busy = attach(&s.f, TIDE__OBSERVE_OOM, (tide__observer_fn)stay_inside, &data);
  const tide_observer idle = attach(&s.f, TIDE__OBSERVE_RECLAIM, (tide__observer_fn)ignore_call, NULL);

  t_thread_start(&thread, call_thread, &s);
  T_WAIT(atomic_load(&data.is_entered));
  detach(&s.f, idle);
  atomic_store(&data.is_open, 1);
  t_thread_join(thread);

  detach(&s.f, busy);
  fixture_fini(&s.f);
}

// An observer that detaches itself, and the one behind it, which is still called: it was copied.
typedef struct self_detaching {
  observers_fixture* f;
  tide_observer ids[2];
  size_t calls;
} self_detaching;

static void detach_both(void* user, void* argument) {
  self_detaching* const s = user;
  (void)argument;
  for (size_t i = 0; i < 2; ++i) detach(s->f, s->ids[i]);
  s->calls++;
}

static void count_call(void* user, void* argument) {
  (void)argument;
  ((self_detaching*)user)->calls++;
}

T_TEST(test_observers_core__an_observer_may_detach_itself_and_others) {
  observers_fixture f;
  fixture_init(&f);
  self_detaching s = { .f = &f };
  s.ids[0] = attach(&f, TIDE__OBSERVE_TRACE, (tide__observer_fn)detach_both, &s);
  s.ids[1] = attach(&f, TIDE__OBSERVE_TRACE, (tide__observer_fn)count_call, &s);

  call(&f, TIDE__OBSERVE_TRACE, NULL);
  call(&f, TIDE__OBSERVE_TRACE, NULL);

  T_EQ(s.calls, 2);
  T_EQ(tide__load_relaxed(&f.word), OTHER_BITS);
  fixture_fini(&f);
}

// Two threads, each inside an observer of its own allocator, detach the other's. Neither may wait.
typedef struct crossing {
  observers_fixture f[2];
  tide_observer ids[2];
  atomic_int inside;
} crossing;

typedef struct crossing_side {
  crossing* c;
  size_t index;
} crossing_side;

static void detach_the_other(void* user, void* argument) {
  const crossing_side* const side = user;
  crossing* const c = side->c;
  (void)argument;
  atomic_fetch_add(&c->inside, 1);
  T_WAIT(atomic_load(&c->inside) == 2);
  detach(&c->f[1 - side->index], c->ids[1 - side->index]);
}

static void* call_side(void* user) {
  crossing_side* const side = user;
  call(&side->c->f[side->index], TIDE__OBSERVE_ENTRIES, NULL);
  return NULL;
}

T_TEST(test_observers_core__observers_of_two_allocators_may_detach_each_other) {
  static crossing c;
  crossing_side sides[2] = { { &c, 0 }, { &c, 1 } };
  pthread_t threads[2];
  for (size_t i = 0; i < 2; ++i) {
    fixture_init(&c.f[i]);
    c.ids[i] = attach(&c.f[i], TIDE__OBSERVE_ENTRIES, (tide__observer_fn)detach_the_other, &sides[i]);
  }
  for (size_t i = 0; i < 2; ++i) t_thread_start(&threads[i], call_side, &sides[i]);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);
  for (size_t i = 0; i < 2; ++i) fixture_fini(&c.f[i]);
}

// Threads call, while others attach observers, detach them and free their data at once.
typedef struct crowd {
  observers_fixture f;
  atomic_int is_over;
} crowd;

static void touch_data(void* user, void* argument) {
  (void)argument;
  T_EQ(atomic_load((atomic_int*)user), 42);
}

static void* call_always(void* user) {
  crowd* const c = user;
  while (!atomic_load(&c->is_over)) call(&c->f, TIDE__OBSERVE_TRACE, NULL);
  return NULL;
}

static void* come_and_go(void* user) {
  crowd* const c = user;
  for (size_t i = 0; i < t_scaled(300); ++i) {
    atomic_int* const data = malloc(sizeof *data);
    T_CHECK(data != NULL);
    atomic_init(data, 42);
    const tide_observer observer = attach(&c->f, TIDE__OBSERVE_TRACE, (tide__observer_fn)touch_data, data);
    if (i % 3 == 0) call(&c->f, TIDE__OBSERVE_TRACE, NULL);
    detach(&c->f, observer);
    atomic_store(data, 0);
    free(data);
  }
  return NULL;
}

T_TEST(test_observers_core__data_may_go_after_detaching_whoever_calls) {
  static crowd c;
  pthread_t callers[2];
  pthread_t others[2];
  fixture_init(&c.f);
  for (size_t i = 0; i < 2; ++i) t_thread_start(&callers[i], call_always, &c);
  for (size_t i = 0; i < 2; ++i) t_thread_start(&others[i], come_and_go, &c);
  for (size_t i = 0; i < 2; ++i) t_thread_join(others[i]);
  atomic_store(&c.is_over, 1);
  for (size_t i = 0; i < 2; ++i) t_thread_join(callers[i]);
  T_EQ(tide__load_relaxed(&c.f.word), OTHER_BITS);
  fixture_fini(&c.f);
}

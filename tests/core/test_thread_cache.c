// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Thread caches and their biased lock. Owners enter their caches while other threads take them. A counter and
// contents that are not atomic show whether two threads were ever inside at once. The thread sanitizer shows
// whether their accesses were ordered.
#define T_THREADS
#include "core/thread_cache.h"

#include "machine/counting_heap.h"

#define WORDS 8u

typedef struct cache {
  tide__thread_cache base;
  uint64_t count;           // how often somebody was inside
  uint64_t content[WORDS];  // each equals `count`
  void* owner;
} cache;

typedef struct object {
  tide__thread_caches caches;
  counting_heap heap;
} object;

static void cache_init(void* made, void* owner) { ((cache*)made)->owner = owner; }

static void object_open(object* o) {
  counting_heap_init(&o->heap, SIZE_MAX, false);
  T_CHECK(tide__thread_caches_init(&o->caches, &o->heap.heap, sizeof(cache), cache_init, o));
}

static void object_close(object* o) {
  tide__thread_caches_fini(&o->caches);
  T_EQ(atomic_load(&o->heap.outstanding), 0);
}

static uint32_t object_count(object* o) {
  uint32_t count = 0;
  for (tide__thread_cache* it = tide__thread_caches_first(&o->caches); it != NULL; it = it->next) count++;
  return count;
}

static uint64_t object_sum(object* o) {
  uint64_t sum = 0;
  for (tide__thread_cache* it = tide__thread_caches_first(&o->caches); it != NULL; it = it->next) {
    sum += ((cache*)(void*)it)->count;
  }
  return sum;
}

// What a thread does inside. Two at once would leave words that differ, or lose a count.
static void cache_touch(cache* c) {
  const uint64_t count = c->count;
  for (uint32_t i = 0; i < WORDS; i++) T_EQ(c->content[i], count);
  for (uint32_t i = 0; i < WORDS; i++) c->content[i] = count + 1;
  c->count = count + 1;
}

static cache* own_touch(object* o) {
  cache* const c = tide__thread_caches_enter(&o->caches);
  T_PTR_EQ(c->owner, o);
  cache_touch(c);
  tide__thread_caches_leave(c);
  return c;
}

static void thread_run(void* (*body)(void*), void* user) {
  pthread_t thread;
  T_EQ(pthread_create(&thread, NULL, body, user), 0);
  T_EQ(pthread_join(thread, NULL), 0);
}

// ---------------------------------------------------------------------------------------------------
// Mutual exclusion

enum { OWNERS = 3, TAKERS = 2 };

typedef struct race {
  object o;
  tide__atomic_u64 touches;
  tide__atomic_u32 takers_left;
  size_t turns;  // of a taker
} race;

static void* race_own(void* user) {
  race* const r = user;
  uint64_t count = 0;
  for (; tide__load_relaxed(&r->takers_left) != 0; count++) (void)own_touch(&r->o);
  (void)tide__add_relaxed(&r->touches, count);
  return NULL;
}

// As allocators do it: the fast path if possible, otherwise the slow one.
static void* race_own_fast(void* user) {
  race* const r = user;
  uint64_t count = 0;
  for (; tide__load_relaxed(&r->takers_left) != 0; count++) {
    cache* const c = tide__thread_caches_enter_fast(r->o.caches.id);
    if (c != NULL) {
      cache_touch(c);
      tide__thread_cache_leave_fast(c);
    } else {
      (void)own_touch(&r->o);
    }
  }
  (void)tide__add_relaxed(&r->touches, count);
  return NULL;
}

static void race_take_one(race* r, t_rng* rng) {
  tide__thread_cache* it = tide__thread_caches_first(&r->o.caches);
  for (uint64_t skip = t_rng_below(rng, OWNERS + 1); skip > 0 && it->next != NULL; skip--) it = it->next;
  tide__thread_cache_take(it);
  cache_touch((cache*)(void*)it);
  tide__thread_cache_give(it);
  (void)tide__add_relaxed(&r->touches, 1);
}

static void race_take_all(race* r) {
  uint64_t count = 0;
  tide__thread_cache* const first = tide__thread_caches_take_all(&r->o.caches);
  for (tide__thread_cache* it = first; it != NULL; it = it->next, count++) cache_touch((cache*)(void*)it);
  tide__thread_caches_give_all(first);
  (void)tide__add_relaxed(&r->touches, count);
}

static void* race_take(void* user) {
  race* const r = user;
  t_rng rng = t_rng_new(7);
  for (size_t i = 0; i < r->turns; i++) {
    if (t_rng_below(&rng, 4) == 0) race_take_all(r);
    else race_take_one(r, &rng);
  }
  (void)atomic_fetch_sub(&r->takers_left, 1);
  return NULL;
}

T_TEST(test_thread_cache__two_are_never_inside_at_once) {
  static race r;
  pthread_t threads[OWNERS + TAKERS];
  r.turns = t_scaled(3000);
  tide__store_relaxed(&r.takers_left, TAKERS);
  object_open(&r.o);
  for (int i = 0; i < OWNERS; i++) {
    T_EQ(pthread_create(&threads[i], NULL, i == 0 ? race_own : race_own_fast, &r), 0);
  }
  for (int i = 0; i < TAKERS; i++) T_EQ(pthread_create(&threads[OWNERS + i], NULL, race_take, &r), 0);
  for (int i = 0; i < OWNERS + TAKERS; i++) T_EQ(pthread_join(threads[i], NULL), 0);
  T_EQ(object_sum(&r.o), tide__load_relaxed(&r.touches));
  T_LE(object_count(&r.o), 1 + OWNERS);
  object_close(&r.o);
}

// A thread that takes a cache keeps its owner waiting until it gives the cache back.
typedef struct holding {
  object o;
  _Atomic(cache*) own;
  tide__atomic_u32 may_enter;
  tide__atomic_u32 has_entered;
} holding;

static void* holding_own(void* user) {
  holding* const h = user;
  tide__store_release(&h->own, own_touch(&h->o));
  T_WAIT(tide__load_acquire(&h->may_enter) != 0);
  (void)own_touch(&h->o);
  tide__store_release(&h->has_entered, 1);
  return NULL;
}

T_TEST(test_thread_cache__its_owner_waits_for_who_took_it) {
  static holding h;
  pthread_t owner;
  object_open(&h.o);
  T_EQ(pthread_create(&owner, NULL, holding_own, &h), 0);
  T_WAIT(tide__load_acquire(&h.own) != NULL);
  cache* const c = tide__load_acquire(&h.own);
  tide__thread_cache_take(&c->base);
  tide__store_release(&h.may_enter, 1);
  T_WAIT(tide__load_relaxed(&c->base.hurdles) != 0);
  for (uint32_t i = 0; i < 1000; i++) cache_touch(c);
  T_EQ(tide__load_acquire(&h.has_entered), 0);
  T_EQ(c->count, 1001);
  tide__thread_cache_give(&c->base);
  T_EQ(pthread_join(owner, NULL), 0);
  T_EQ(c->count, 1002);
  object_close(&h.o);
}

// ---------------------------------------------------------------------------------------------------
// Owners

static void* visit(void* user) {
  object* const o = user;
  return own_touch(o);
}

static cache* visit_on_a_new_thread(object* o) {
  pthread_t thread;
  void* got = NULL;
  T_EQ(pthread_create(&thread, NULL, visit, o), 0);
  T_EQ(pthread_join(thread, &got), 0);
  return got;
}

T_TEST(test_thread_cache__a_thread_that_ends_gives_its_cache_to_the_next) {
  static object o;
  object_open(&o);
  cache* const own = own_touch(&o);
  cache* const first = visit_on_a_new_thread(&o);
  T_CHECK(first != own && !first->base.is_common);
  for (int i = 0; i < 10; i++) T_PTR_EQ(visit_on_a_new_thread(&o), first);
  T_EQ(first->count, 11);
  T_EQ(object_count(&o), 3);  // and the common one
  T_PTR_EQ(own_touch(&o), own);
  object_close(&o);
}

T_TEST(test_thread_cache__a_thread_finds_its_own_among_many_objects) {
  enum { OBJECTS = 12 };
  static object objects[OBJECTS];
  cache* own[OBJECTS];
  t_rng rng = t_rng_new(1);
  for (int i = 0; i < OBJECTS; i++) object_open(&objects[i]);
  for (int i = 0; i < OBJECTS; i++) own[i] = own_touch(&objects[i]);
  for (size_t n = 0; n < t_scaled_alone(10000); n++) {
    const uint64_t i = t_rng_below(&rng, OBJECTS);
    T_PTR_EQ(own_touch(&objects[i]), own[i]);
    T_EQ(object_count(&objects[i]), 2);
  }
  for (int i = 0; i < OBJECTS; i += 2) object_close(&objects[i]);
  for (int i = 0; i < OBJECTS; i += 2) object_open(&objects[i]);  // others by now, though in the same place
  for (int i = 0; i < OBJECTS; i++) T_EQ(own_touch(&objects[i])->count > 1, i % 2 != 0);
  for (int i = 0; i < OBJECTS; i++) object_close(&objects[i]);
}

static void* visit_common(void* user) {
  object* const o = user;
  for (int i = 0; i < 1000; i++) T_CHECK(own_touch(o)->base.is_common);
  return NULL;
}

static void visit_common_at_once(object* o) {
  pthread_t threads[OWNERS];
  for (int i = 0; i < OWNERS; i++) T_EQ(pthread_create(&threads[i], NULL, visit_common, o), 0);
  for (int i = 0; i < OWNERS; i++) T_EQ(pthread_join(threads[i], NULL), 0);
}

T_TEST(test_thread_cache__without_memory_threads_share_the_common_one) {
  static object o;
  object_open(&o);
  atomic_store(&o.heap.fail_at, atomic_load(&o.heap.allocs));
  o.heap.is_exhausted = true;
  visit_common_at_once(&o);
  T_EQ(object_sum(&o), OWNERS * 1000);
  o.heap.is_exhausted = false;
  T_CHECK(!own_touch(&o)->base.is_common);
  object_close(&o);
}

T_TEST(test_thread_cache__after_the_close_no_thread_gets_one) {
  static object o;
  object_open(&o);
  cache* const own = own_touch(&o);
  tide__thread_caches_close(&o.caches);
  visit_common_at_once(&o);
  T_PTR_EQ(own_touch(&o), own);
  T_EQ(object_count(&o), 2);
  T_EQ(object_sum(&o), OWNERS * 1000 + 2);
  object_close(&o);
}

T_TEST(test_thread_cache__its_owner_can_be_told_to_take_the_slow_path) {
  static object o;
  object_open(&o);
  cache* const own = own_touch(&o);
  tide__thread_cache_take(&own->base);
  tide__thread_cache_make_slow(&own->base);
  tide__thread_cache_give(&own->base);
  T_PTR_EQ(tide__thread_caches_enter_fast(o.caches.id), NULL);
  T_PTR_EQ(own_touch(&o), own);
  T_EQ(own->count, 2);
  object_close(&o);
}

T_TEST(test_thread_cache__without_memory_there_is_no_object) {
  counting_heap heap;
  tide__thread_caches caches;
  counting_heap_init(&heap, 0, false);
  T_CHECK(!tide__thread_caches_init(&caches, &heap.heap, sizeof(cache), cache_init, NULL));
}

// ---------------------------------------------------------------------------------------------------
// Forks

typedef struct bystander {
  object o;
  _Atomic(cache*) own;
  tide__atomic_u32 is_over;
} bystander;

static void* bystander_run(void* user) {
  bystander* const b = user;
  while (tide__load_acquire(&b->is_over) == 0) tide__store_release(&b->own, own_touch(&b->o));
  return NULL;
}

// In the child the caller's cache is its own, nobody is inside another, and new threads get those of threads
// that are not there. The thread sanitizer starts no thread in a child.
static void child_check(bystander* b, cache* own) {
  const uint64_t before = own->count;
  T_PTR_EQ(own_touch(&b->o), own);
  T_EQ(own->count, before + 1);
  cache* const other = tide__load_relaxed(&b->own);
  tide__thread_cache_take(&other->base);
  cache_touch(other);
  tide__thread_cache_give(&other->base);
  if (!T_HAS_THREAD_SANITIZER) T_PTR_EQ(visit_on_a_new_thread(&b->o), other);
  T_EQ(object_count(&b->o), 3);
  _exit(0);
}

T_TEST(test_thread_cache__a_forked_child_has_its_own_and_finds_nobody_inside) {
  static bystander b;
  pthread_t thread;
  object_open(&b.o);
  cache* const own = own_touch(&b.o);
  T_EQ(pthread_create(&thread, NULL, bystander_run, &b), 0);
  T_WAIT(tide__load_acquire(&b.own) != NULL);
  for (int i = 0; i < 5; i++) {
    int status = 0;
    tide__thread_caches_lock_all();
    tide__thread_caches_before_fork(&b.o.caches);
    const pid_t child = fork();
    tide__thread_caches_after_fork(&b.o.caches, child == 0);
    tide__thread_caches_unlock_all();
    if (child == 0) child_check(&b, own);
    T_CHECK(child > 0);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
  }
  tide__store_release(&b.is_over, 1);
  T_EQ(pthread_join(thread, NULL), 0);
  T_EQ(own->count, 1);
  object_close(&b.o);
}

static void* last_visit(void* user) {
  (void)own_touch(user);
  return NULL;
}

T_TEST(test_thread_cache__threads_may_outlive_an_object_and_objects_their_threads) {
  static object o;
  for (int i = 0; i < 20; i++) {
    object_open(&o);
    (void)own_touch(&o);
    thread_run(last_visit, &o);
    object_close(&o);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Many threads at once, with contents checked. Also callbacks, which are called with no lock held: one that
// blocks delays no other thread, and each may use the allocator.
#define T_THREADS
#include "device/devices.h"

enum { THREADS = 8, LIVE = 12, MARK = 64 };

// ---------------------------------------------------------------------------------------------------
// A thread that requests, marks, checks and releases

typedef struct worker {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream stream;
  uint8_t* window;  // pinned memory of its own
  size_t max_bytes;
  size_t steps;
  t_rng rng;
  pthread_t thread;
} worker;

typedef struct piece {
  tide_block block;
  size_t bytes;
  uint8_t value;
} piece;

static void piece_mark(const worker* w, const piece* p) {
  const size_t part = p->bytes < MARK ? p->bytes : MARK;
  T_OK(tide_machine_fill(w->m, 0, w->stream, p->block.address, p->value, part));
  T_OK(tide_machine_fill(w->m, 0, w->stream, bytes_of(p->block) + p->bytes - part, p->value, part));
  stream_finish(w->m, 0, w->stream);  // another thread may look at it
}

static void piece_check(const worker* w, const piece* p) {
  const size_t part = p->bytes < MARK ? p->bytes : MARK;
  T_OK(tide_machine_copy(w->m, 0, w->stream, w->window, p->block.address, part));
  T_OK(tide_machine_copy(w->m, 0, w->stream, w->window + MARK, bytes_of(p->block) + p->bytes - part, part));
  stream_finish(w->m, 0, w->stream);
  if (!machine_has_memory(w->m)) return;
  T_FILLED(w->window, p->value, part);
  T_FILLED(w->window + MARK, p->value, part);
}

static void piece_take(worker* w, piece* p) {
  p->bytes = 1 + (size_t)t_rng_below(&w->rng, t_rng_below(&w->rng, 4) == 0 ? w->max_bytes : 8 * KIB);
  p->value = (uint8_t)t_rng_next(&w->rng);
  p->block = take(w->d, w->stream, p->bytes);
  piece_mark(w, p);
}

static void piece_give(worker* w, piece* p) {
  if (p->bytes == 0) return;
  piece_check(w, p);
  if (t_rng_below(&w->rng, 4) == 0) T_OK(tide_device_release_address(w->d, p->block.address));
  else give(w->d, p->block);
  p->bytes = 0;
}

static void* worker_run(void* user) {
  worker* const w = user;
  piece pieces[LIVE] = { 0 };
  for (size_t i = 0; i < w->steps; ++i) {
    piece* const p = &pieces[t_rng_below(&w->rng, LIVE)];
    if (p->bytes == 0) piece_take(w, p);
    else piece_give(w, p);
  }
  for (size_t i = 0; i < LIVE; ++i) piece_give(w, &pieces[i]);
  return NULL;
}

// Of two threads in a row, one has a stream of its own, and one the common stream.
static void crew_make(worker* crew, tide_machine* m, tide_device_cache* d) {
  for (size_t i = 0; i < THREADS; ++i) {
    crew[i] = (worker){ .m = m, .d = d, .max_bytes = 256 * KIB, .steps = t_scaled(300), .rng = t_rng_new(i) };
    crew[i].stream = i % 2 == 0 && i > 0 ? crew[0].stream : side_new(m);
    crew[i].window = pinned_new(m, 2 * MARK);
  }
}

static void crew_start(worker* crew) {
  for (size_t i = 0; i < THREADS; ++i) t_thread_start(&crew[i].thread, worker_run, &crew[i]);
}

static void crew_join(worker* crew) {
  for (size_t i = 0; i < THREADS; ++i) t_thread_join(crew[i].thread);
}

static void crew_expect_done(tide_device_cache* d) {
  trim(d);
  T_EQ(current(d, allocation), 0);
  T_EQ(current(d, active), 0);
  T_EQ(current(d, reserved_bytes), 0);
}

// ---------------------------------------------------------------------------------------------------
// While others look, trim, change

typedef struct meddler {
  tide_device_cache* d;
  atomic_bool is_over;
  pthread_t thread;
} meddler;

static void meddler_start(meddler* x, tide_device_cache* d, void* (*function)(void*)) {
  x->d = d;
  atomic_store(&x->is_over, false);
  t_thread_start(&x->thread, function, x);
}

static void meddler_end(meddler* x) {
  atomic_store(&x->is_over, true);
  t_thread_join(x->thread);
}

static void* trim_again_and_again(void* user) {
  meddler* const x = user;
  while (!atomic_load(&x->is_over)) trim(x->d);
  return NULL;
}

// The crew works while another thread does something again and again.
static void crew_run_beside(tide_machine* m, tide_device_cache* d, void* (*function)(void*)) {
  worker crew[THREADS];
  meddler x;
  crew_make(crew, m, d);
  meddler_start(&x, d, function);
  crew_start(crew);
  crew_join(crew);
  meddler_end(&x);
}

DEVICE_TEST(test_device__threads_work_while_another_trims) {
  crew_run_beside(m, d, trim_again_and_again);
  crew_expect_done(d);
}

static bool add_segment(void* user, const tide_segment_info* segment) {
  *(uint64_t*)user = segment->bytes;
  return true;
}

static bool check_block(void* user, const tide_block_info* block) {
  T_LE(block->bytes, *(uint64_t*)user);
  return true;
}

static bool check_entries(void* user, const tide_trace_entry* entries, size_t count) {
  (void)user;
  for (size_t i = 0; i < count; ++i) T_LT(entries[i].action, TIDE_ACTION_COUNT);
  return true;
}

static void* look_again_and_again(void* user) {
  meddler* const x = user;
  while (!atomic_load(&x->is_over)) {
    uint64_t bytes = 0;
    size_t largest = 1;
    const tide_device_visitor visitor = { add_segment, check_block, &bytes };
    T_OK(tide_device_visit(x->d, &visitor));
    T_OK(tide_device_history_visit(x->d, check_entries, NULL));
    T_OK(tide_device_largest(x->d, &largest));
    const tide_device_stats s = stats_of(x->d);
    T_LE(0, s.reserved_bytes[0].current);
  }
  return NULL;
}

DEVICE_TEST(test_device__threads_work_while_another_looks) {
  history_on(d);
  crew_run_beside(m, d, look_again_and_again);
  crew_expect_done(d);
}

static void history_keep(tide_device_cache* d, uint64_t entries, bool is_on, bool clears) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = entries;
  options.is_on = is_on;
  options.clears = clears;
  T_OK(tide_device_history(d, &options));
}

static uint64_t entries_enough(void) { return 64 * THREADS * t_scaled(300); }

static void* grow_history_again_and_again(void* user) {
  meddler* const x = user;
  for (uint64_t more = 1; !atomic_load(&x->is_over); ++more) {
    history_keep(x->d, entries_enough() + more, true, false);
  }
  return NULL;
}

static bool count_entries(void* user, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) ++((int64_t*)user)[entries[i].action];
  return true;
}

DEVICE_TEST(test_device__no_entry_of_threads_is_lost_while_another_lengthens_the_history) {
  int64_t counts[TIDE_ACTION_COUNT] = { 0 };
  history_keep(d, entries_enough(), true, false);
  crew_run_beside(m, d, grow_history_again_and_again);
  T_OK(tide_device_history_visit(d, count_entries, counts));
  T_EQ(counts[TIDE_ACTION_ALLOC], stats_of(d).allocation[0].allocated);
  T_EQ(counts[TIDE_ACTION_FREE_REQUESTED], stats_of(d).allocation[0].freed);
}

static void* change_history_again_and_again(void* user) {
  meddler* const x = user;
  t_rng rng = t_rng_new(THREADS);
  while (!atomic_load(&x->is_over)) {
    history_keep(x->d, 1 + t_rng_below(&rng, 3000), t_rng_below(&rng, 4) != 0, t_rng_below(&rng, 4) == 0);
    T_OK(tide_device_history_visit(x->d, check_entries, NULL));
  }
  return NULL;
}

DEVICE_TEST(test_device__threads_work_while_another_clears_and_switches_the_history) {
  int64_t counts[TIDE_ACTION_COUNT] = { 0 };
  crew_run_beside(m, d, change_history_again_and_again);
  history_keep(d, 1, true, true);
  T_OK(tide_device_history_visit(d, count_entries, counts));
  for (size_t i = 0; i < TIDE_ACTION_COUNT; ++i) T_EQ(counts[i], 0);
  crew_expect_done(d);
}

static void* configure_again_and_again(void* user) {
  meddler* const x = user;
  static const char* const texts[] = { "expandable_segments:True", "max_split_size_mb:20", "fixes:True",
                                       "roundup_power2_divisions:4", "" };
  for (size_t i = 0; !atomic_load(&x->is_over) && i < 200; ++i) {
    configure(x->d, texts[i % 5]);
    t_sleep_us(100);
  }
  return NULL;
}

DEVICE_TEST(test_device__threads_work_while_another_changes_options) {
  need_virtual(m);
  crew_run_beside(m, d, configure_again_and_again);
  crew_expect_done(d);
}

static void count_allocs(void* user, const tide_trace_entry* entry) {
  if (entry->action == TIDE_ACTION_ALLOC) atomic_fetch_add((atomic_int*)user, 1);
}

static void* attach_again_and_again(void* user) {
  static atomic_int ignored;
  meddler* const x = user;
  while (!atomic_load(&x->is_over)) {
    T_OK(tide_device_detach(x->d, observe_trace(x->d, count_allocs, &ignored)));
  }
  return NULL;
}

DEVICE_TEST(test_device__observers_hear_every_request_of_every_thread) {
  atomic_int heard = 0;
  const tide_observer observer = observe_trace(d, count_allocs, &heard);
  crew_run_beside(m, d, attach_again_and_again);
  T_EQ(atomic_load(&heard), stats_of(d).allocation[0].allocated);
  T_OK(tide_device_detach(d, observer));
}

static void* fill_to_the_limit(void* user) {
  tide_device_cache* const d = user;
  for (size_t i = 0; i < t_scaled(50); ++i) {
    tide_block block = { NULL, 0 };
    const tide_status status = tide_device_alloc(d, NULL, 10 * MIB, &block);
    if (status == TIDE_OK) give(d, block);
    else T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (i % 5 == 0) trim(d);
  }
  return NULL;
}

DEVICE_TEST(test_device__threads_together_stay_within_the_limit) {
  limit_to(d, 35 * MIB);

  run_threads(THREADS, fill_to_the_limit, d);

  T_LE(stats_of(d).reserved_bytes[0].peak, 35 * MIB);
  T_EQ(current(d, allocation), 0);
}

typedef struct two_releases {
  tide_device_cache* d;
  tide_block block;
  atomic_int ready;
  atomic_int successes;
} two_releases;

static void* release_in_a_race(void* user) {
  two_releases* const r = user;
  atomic_fetch_add(&r->ready, 1);
  while (atomic_load(&r->ready) < 2) continue;
  const tide_status status = tide_device_release(r->d, r->block);
  if (status == TIDE_OK) atomic_fetch_add(&r->successes, 1);
  else T_STATUS(status, TIDE_ERR_HANDLE);
  return NULL;
}

DEVICE_TEST(test_device__of_two_releases_at_once_one_succeeds) {
  for (size_t i = 0; i < t_scaled(100); ++i) {
    two_releases r = { .d = d, .block = take(d, NULL, 4096) };
    run_threads(2, release_in_a_race, &r);
    T_EQ(atomic_load(&r.successes), 1);
  }

  T_EQ(current(d, active), 0);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks that block hold up nobody else

typedef struct blocker {
  tide_device_cache* d;
  tide_machine* m;
  atomic_int entered;
  atomic_bool is_open;
  atomic_bool is_armed;  // only the first call blocks
  pthread_t thread;
  size_t bytes;  // that the blocked thread asks for
  tide_pool pool;
} blocker;

static void blocker_wait(blocker* b) {
  if (!atomic_exchange(&b->is_armed, false)) return;
  atomic_fetch_add(&b->entered, 1);
  for (int i = 0; i < 100000 && !atomic_load(&b->is_open); ++i) t_sleep_us(100);
}

static void* blocked_request(void* user) {
  blocker* const b = user;
  if (b->pool != 0) scope_open(b->d, b->pool);
  give(b->d, take(b->d, NULL, b->bytes));
  if (b->pool != 0) scope_close(b->d, b->pool);
  return NULL;
}

// Starts a request on another thread and waits until its callback blocks.
static void blocker_start(blocker* b) {
  atomic_store(&b->is_armed, true);
  t_thread_start(&b->thread, blocked_request, b);
  wait_for(&b->entered, 1);
}

static void blocker_end(blocker* b) {
  atomic_store(&b->is_open, true);
  t_thread_join(b->thread);
}

static bool block_on_reclaim(void* user, tide_device_cache* device) {
  (void)device;
  blocker_wait(user);
  return false;
}

// Others go on while the callback blocks.
static void expect_nobody_held_up(blocker* b) {
  blocker_start(b);
  give(b->d, take(b->d, NULL, 14 * MIB));
  trim(b->d);
  blocker_end(b);
  T_EQ(counter(b->d, num_device_alloc), 2);
}

DEVICE_TEST(test_device__a_reclaim_callback_that_blocks_holds_up_nobody) {
  blocker b = { .d = d, .m = m, .bytes = 12 * MIB };
  observe_reclaim(d, block_on_reclaim, &b);
  expect_nobody_held_up(&b);
}

static void block_on_alloc(void* user, const tide_trace_entry* entry) {
  if (entry->action == TIDE_ACTION_ALLOC) blocker_wait(user);
}

DEVICE_TEST(test_device__a_trace_observer_that_blocks_holds_up_nobody) {
  blocker b = { .d = d, .m = m, .bytes = 12 * MIB };
  observe_trace(d, block_on_alloc, &b);
  expect_nobody_held_up(&b);
}

static void block_on_oom(void* user, const tide_oom* oom) {
  (void)oom;
  blocker_wait(user);
}

static void* blocked_oom(void* user) {
  blocker* const b = user;
  expect_oom(b->d, NULL, 100 * MIB);
  return NULL;
}

DEVICE_TEST(test_device__an_oom_observer_that_blocks_holds_up_nobody) {
  blocker b = { .d = d, .m = m };
  limit_to(d, 40 * MIB);
  observe_oom(d, block_on_oom, &b);

  atomic_store(&b.is_armed, true);
  t_thread_start(&b.thread, blocked_oom, &b);
  wait_for(&b.entered, 1);
  give(d, take(d, NULL, 14 * MIB));
  expect_oom(d, NULL, 100 * MIB);
  blocker_end(&b);

  T_EQ(counter(d, num_ooms), 2);
}

static bool block_in_filter(void* user, tide_stream stream) {
  (void)stream;
  blocker_wait(user);
  return false;
}

DEVICE_TEST(test_device__a_filter_that_blocks_holds_up_nobody) {
  blocker b = { .d = d, .m = m, .bytes = 12 * MIB };
  const tide_pool pool = pool_new(d, NULL);
  filter_open(d, pool, block_in_filter, &b);

  blocker_start(&b);
  give(d, take(d, NULL, 14 * MIB));
  T_OK(tide_device_pool_retain(d, pool));
  blocker_end(&b);

  T_EQ(pool_users(d, pool), 3);
  T_OK(tide_device_pool_end(d, pool));
}

// A filter that is asked when its scope is closed: it goes on for a while then.
typedef struct parting {
  tide_device_cache* d;
  tide_pool pool;
  atomic_int entered;
  atomic_bool is_closing;
  atomic_bool has_left;
} parting;

static bool part_late(void* user, tide_stream stream) {
  parting* const p = user;
  (void)stream;
  if (atomic_fetch_add(&p->entered, 1) != 0) return false;
  for (int i = 0; i < 100000 && !atomic_load(&p->is_closing); ++i) t_sleep_us(100);
  t_sleep_us(20000);
  atomic_store(&p->has_left, true);
  return true;
}

static void* request_once(void* user) {
  const parting* const p = user;
  give(p->d, take(p->d, NULL, 12 * MIB));
  return NULL;
}

DEVICE_TEST(test_device__a_scope_is_closed_when_its_filter_is_asked_no_more) {
  parting p = { .d = d, .pool = pool_new(d, NULL) };
  pthread_t thread;
  filter_open(d, p.pool, part_late, &p);

  t_thread_start(&thread, request_once, &p);
  wait_for(&p.entered, 1);
  atomic_store(&p.is_closing, true);
  T_OK(tide_device_pool_end(d, p.pool));

  T_CHECK(atomic_load(&p.has_left));
  t_thread_join(thread);
  T_EQ(atomic_load(&p.entered), 1);
}

static bool close_own_scope(void* user, tide_stream stream) {
  parting* const p = user;
  (void)stream;
  atomic_fetch_add(&p->entered, 1);
  T_OK(tide_device_pool_end(p->d, p->pool));
  return true;
}

DEVICE_TEST(test_device__a_filter_may_close_its_own_scope) {
  parting p = { .d = d, .pool = pool_new(d, NULL) };
  filter_open(d, p.pool, close_own_scope, &p);

  give(d, take(d, NULL, 12 * MIB));

  T_EQ(atomic_load(&p.entered), 1);
  T_STATUS(tide_device_pool_end(d, p.pool), TIDE_ERR_STATE);
}

static void* supply_slowly(void* user, size_t bytes, int device, tide_stream stream) {
  blocker* const b = user;
  void* address = NULL;
  (void)stream;
  blocker_wait(b);
  T_OK(tide_machine_raw_alloc(b->m, device, bytes, &address));
  return address;
}

static void take_back(void* user, void* address, size_t bytes, int device, tide_stream stream) {
  blocker* const b = user;
  (void)bytes;
  (void)stream;
  T_OK(tide_machine_raw_release(b->m, device, address));
}

DEVICE_TEST(test_device__a_segment_function_that_blocks_does_not_hold_up_cached_memory) {
  static blocker b;
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.segment_alloc = supply_slowly;
  options.segment_release = take_back;
  options.user = &b;
  b = (blocker){ .d = d, .m = m, .bytes = 12 * MIB, .pool = pool_new(d, &options) };
  const tide_block cached = take(d, NULL, 14 * MIB);
  give(d, cached);

  blocker_start(&b);
  const tide_block block = take(d, NULL, 14 * MIB);
  give(d, block);
  (void)stats_of(d);
  blocker_end(&b);

  T_PTR_EQ(block.address, cached.address);
  T_EQ(pool_reserved(d, b.pool), 12 * MIB);
}

static size_t gather_slowly(void* user, uint64_t* frames, size_t capacity) {
  (void)capacity;
  blocker_wait(user);
  frames[0] = 1;
  return 1;
}

DEVICE_TEST(test_device__a_gathering_of_stacks_that_blocks_holds_up_nobody) {
  blocker b = { .d = d, .m = m, .bytes = 12 * MIB };
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather_slowly;
  options.user = &b;
  T_OK(tide_device_history(d, &options));
  expect_nobody_held_up(&b);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks that use the allocator

typedef struct user_of {
  tide_device_cache* d;
  bool is_inside;
  int calls;
} user_of;

static void use_everything(user_of* u) {
  if (u->is_inside) return;
  u->is_inside = true;
  ++u->calls;
  const tide_block small = take(u->d, NULL, 700);
  const tide_block large = take(u->d, NULL, 16 * MIB);
  give(u->d, large);
  give(u->d, small);
  trim(u->d);
  u->is_inside = false;
}

static bool use_in_filter(void* user, tide_stream stream) {
  (void)stream;
  use_everything(user);
  return false;
}

DEVICE_TEST(test_device__a_filter_may_use_the_allocator) {
  user_of u = { .d = d };
  const tide_pool pool = pool_new(d, NULL);
  filter_open(d, pool, use_in_filter, &u);

  (void)take(d, NULL, 12 * MIB);

  T_EQ(u.calls, 1);
  scope_close(d, pool);
}

static bool use_on_reclaim(void* user, tide_device_cache* device) {
  (void)device;
  use_everything(user);
  return true;
}

DEVICE_TEST(test_device__a_reclaim_callback_may_use_the_allocator) {
  user_of u = { .d = d };
  observe_reclaim(d, use_on_reclaim, &u);

  (void)take(d, NULL, 12 * MIB);

  T_EQ(u.calls, 1);
}

static void* supply_from_other(void* user, size_t bytes, int device, tide_stream stream) {
  (void)device;
  return take(user, stream, bytes).address;
}

static void return_to_other(void* user, void* address, size_t bytes, int device, tide_stream stream) {
  (void)bytes;
  (void)device;
  (void)stream;
  T_OK(tide_device_release_address(user, address));
}

DEVICE_TEST(test_device__segment_functions_may_use_another_allocator) {
  tide_device_cache* const inner = device_new(m, 0, NULL);
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.segment_alloc = supply_from_other;
  options.segment_release = return_to_other;
  options.user = inner;
  const tide_pool pool = pool_new(d, &options);

  const tide_block block = take_in(d, pool, NULL, 3 * MIB);
  device_fill(m, 0, bytes_of(block), 7, 3 * MIB);
  T_EQ(current(inner, allocated_bytes), 20 * MIB);
  give(d, block);
  T_OK(tide_device_pool_drop(d, pool));
  trim(d);

  T_EQ(current(inner, allocation), 0);
  tide_device_free(inner);
}

static void note_thread(void* user, const tide_trace_entry* entry) {
  (void)entry;
  T_CHECK(pthread_equal(pthread_self(), *(pthread_t*)user));
}

DEVICE_TEST(test_device__observers_are_called_on_the_thread_that_made_the_request) {
  pthread_t self = pthread_self();
  const tide_observer observer = observe_trace(d, note_thread, &self);

  give(d, take(d, NULL, 12 * MIB));
  trim(d);

  T_OK(tide_device_detach(d, observer));
}

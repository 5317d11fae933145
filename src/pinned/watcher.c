// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread of a cache that looks after its streams, so that requests find blocks that are done. It sleeps
// until a block begins to wait; while some wait it looks again and again, ever more seldom, from 50 µs to
// 5 ms apart. With idle_ns it also wakes twice in that time. One for each cache; it ends with it.
#include "base/sys.h"
#include "pinned/pinned_cache.h"

#define LOOK_LEAST_NS ((uint64_t)50000)
#define LOOK_MOST_NS ((uint64_t)5000000)

// How long to sleep when a look was in vain; UINT64_MAX: until called.
static uint64_t watcher_rest_ns(tide_pinned_cache* pinned, uint64_t last_ns) {
  const uint64_t idle_ns = pinned->options.idle_ns;
  const uint64_t age_ns = idle_ns != 0 ? tide__max(LOOK_LEAST_NS, idle_ns / 2) : UINT64_MAX;
  if (!tide__pin_is_waiting(pinned)) return age_ns;
  return tide__min(age_ns, tide__min(last_ns * 2, LOOK_MOST_NS));
}

static void watcher_sleep(tide__pin_watcher* watcher, uint32_t seen, uint64_t ns) {
  tide__store_seq(&watcher->is_asleep, 1);
  if (ns == UINT64_MAX) tide__sys_futex_wait(&watcher->calls, seen);
  else tide__sys_futex_wait_for(&watcher->calls, seen, ns);
  tide__store_seq(&watcher->is_asleep, 0);
}

static void watcher_flush(tide_pinned_cache* pinned) {
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  for (uint32_t i = 0; i < TIDE__PIN_CLASSES; i++) tide__pin_tcache_flush_locked(pinned, tcache, i, 0);
  tide__pin_leave(tcache);
}

// Looks, and puts what it found where all threads find it.
static void watcher_look(tide_pinned_cache* pinned) {
  tide__pin_watcher* const watcher = &pinned->watcher;
  const bool has_waiting = tide__pin_is_waiting(pinned);
  tide__store_seq(&watcher->is_looking, 1);
  if (tide__load_seq(&watcher->is_paused) == 0) {
    tide__ignore(tide__pin_look(pinned));
    if (has_waiting) watcher_flush(pinned);
  }
  tide__store_seq(&watcher->is_looking, 0);
}

static void* watcher_run(void* argument) {
  tide_pinned_cache* const pinned = argument;
  tide__pin_watcher* const watcher = &pinned->watcher;
  uint64_t rest_ns = LOOK_LEAST_NS / 2;
  while (tide__load_acquire(&watcher->is_ending) == 0) {  // pairs with tide__pin_watcher_stop
    const uint32_t seen = tide__load_seq(&watcher->calls);
    watcher_look(pinned);
    rest_ns = watcher_rest_ns(pinned, rest_ns);
    if (tide__load_relaxed(&watcher->is_ending) == 0) watcher_sleep(watcher, seen, rest_ns);
    if (tide__load_seq(&watcher->calls) != seen) rest_ns = LOOK_LEAST_NS / 2;
  }
  return NULL;
}

tide_status tide__pin_watcher_start(tide_pinned_cache* pinned) {
  pinned->watcher.is_running = true;
  const int error = tide__sys_thread_start(&pinned->watcher.thread, watcher_run, pinned);
  if (error == 0) return TIDE_OK;
  pinned->watcher.is_running = false;
  return TIDE_FAIL_NATIVE(TIDE_ERR_UNSUPPORTED, error, "pinned_new: the helper could not be started");
}

void tide__pin_watcher_call(tide_pinned_cache* pinned) {
  tide__pin_watcher* const watcher = &pinned->watcher;
  (void)tide__add_seq(&watcher->calls, 1);
  if (tide__load_seq(&watcher->is_asleep) != 0) tide__sys_futex_wake(&watcher->calls);
}

void tide__pin_watcher_pause(tide_pinned_cache* pinned) {
  tide__pin_watcher* const watcher = &pinned->watcher;
  tide__store_seq(&watcher->is_paused, 1);
  while (tide__load_seq(&watcher->is_looking) != 0) tide__sys_sleep_ns(LOOK_LEAST_NS);
}

void tide__pin_watcher_resume(tide_pinned_cache* pinned) { tide__store_seq(&pinned->watcher.is_paused, 0); }

void tide__pin_watcher_stop(tide_pinned_cache* pinned) {
  tide__pin_watcher* const watcher = &pinned->watcher;
  if (!watcher->is_running) return;
  tide__store_release(&watcher->is_ending, 1);  // pairs with watcher_run
  (void)tide__add_seq(&watcher->calls, 1);
  tide__sys_futex_wake(&watcher->calls);
  (void)pthread_join(watcher->thread, NULL);
  watcher->is_running = false;
}

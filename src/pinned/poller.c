// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The helper thread of a cache, which polls waiting blocks so that requests find blocks whose work is done.
// It sleeps until a block begins to wait. While blocks wait it sweeps in intervals that grow from 50 us to 5
// ms. With idle_ns it also wakes twice in that time. Calls trim.c and the rooms `stream` and `idle`.
#include "base/sys.h"
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/stream/stream.h"

#define SWEEP_LEAST_NS ((uint64_t)50000)
#define SWEEP_MOST_NS ((uint64_t)5000000)

// How long to sleep after a sweep; UINT64_MAX: until the next call.
static uint64_t helper_rest_ns(tide_pinned_cache* pinned, uint64_t last_ns) {
  const uint64_t idle_ns = pinned->options.idle_ns;
  const uint64_t age_ns = idle_ns != 0 ? tide__max(SWEEP_LEAST_NS, idle_ns / 2) : UINT64_MAX;
  if (tide__waits_is_empty(&pinned->waits)) return age_ns;
  return tide__min(age_ns, tide__min(last_ns * 2, SWEEP_MOST_NS));
}

static void helper_sleep(tide__pin_helper* helper, uint32_t seen, uint64_t ns) {
  tide__store_seq(&helper->is_asleep, 1);
  if (ns == UINT64_MAX) tide__sys_futex_wait(&helper->calls, seen);
  else tide__sys_futex_wait_for(&helper->calls, seen, ns);
  tide__store_seq(&helper->is_asleep, 0);
}

static void helper_flush(tide_pinned_cache* pinned) {
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  for (uint32_t i = 0; i < TIDE__PIN_CLASSES; i++) tide__pin_tcache_flush_locked(pinned, tcache, i, 0);
  tide__pin_leave(tcache);
}

// Blocks that became idle are flushed to the depot, where all threads find them.
static void helper_sweep(tide_pinned_cache* pinned) {
  tide__pin_helper* const helper = &pinned->helper;
  const bool has_waiting = !tide__waits_is_empty(&pinned->waits);
  tide__store_seq(&helper->is_sweeping, 1);
  if (tide__load_seq(&helper->is_paused) == 0) {
    tide__ignore(tide__pin_sweep(pinned));
    if (has_waiting) helper_flush(pinned);
  }
  tide__store_seq(&helper->is_sweeping, 0);
}

static void* helper_run(void* argument) {
  tide_pinned_cache* const pinned = argument;
  tide__pin_helper* const helper = &pinned->helper;
  uint64_t rest_ns = SWEEP_LEAST_NS / 2;
  while (tide__load_acquire(&helper->is_ending) == 0) {  // pairs with tide__pin_helper_stop
    const uint32_t seen = tide__load_seq(&helper->calls);
    helper_sweep(pinned);
    rest_ns = helper_rest_ns(pinned, rest_ns);
    if (tide__load_relaxed(&helper->is_ending) == 0) helper_sleep(helper, seen, rest_ns);
    if (tide__load_seq(&helper->calls) != seen) rest_ns = SWEEP_LEAST_NS / 2;
  }
  return NULL;
}

tide_status tide__pin_helper_start(tide_pinned_cache* pinned) {
  pinned->helper.is_running = true;
  const int error = tide__sys_thread_start(&pinned->helper.thread, helper_run, pinned);
  if (error == 0) return TIDE_OK;
  pinned->helper.is_running = false;
  return TIDE_FAIL_NATIVE(TIDE_ERR_UNSUPPORTED, error, "pinned_new: the helper thread could not be started");
}

void tide__pin_helper_pause(tide_pinned_cache* pinned) {
  tide__pin_helper* const helper = &pinned->helper;
  tide__store_seq(&helper->is_paused, 1);
  while (tide__load_seq(&helper->is_sweeping) != 0) tide__sys_sleep_ns(SWEEP_LEAST_NS);
}

void tide__pin_helper_resume(tide_pinned_cache* pinned) { tide__store_seq(&pinned->helper.is_paused, 0); }

void tide__pin_helper_stop(tide_pinned_cache* pinned) {
  tide__pin_helper* const helper = &pinned->helper;
  if (!helper->is_running) return;
  tide__store_release(&helper->is_ending, 1);  // pairs with helper_run
  tide__pin_helper_wake(pinned);
  (void)pthread_join(helper->thread, NULL);
  helper->is_running = false;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Passes over stream waits: asking events, waiting for them, and trying deferred waiters again.
//
// A pass takes a queue's waits out while it asks them, and puts those back that have not passed. Other
// threads append to the queue meanwhile.
#include "base/error.h"
#include "core/capture.h"
#include "core/stream_waits.h"

// A list of waits with its end.
typedef struct wait_chain {
  tide__wait* first;
  tide__wait* last;
} wait_chain;

static void chain_add(wait_chain* chain, tide__wait* wait) {
  wait->next = NULL;
  if (chain->first == NULL) chain->first = wait;
  else chain->last->next = wait;
  chain->last = wait;
}

// A list of waiters with its end.
typedef struct waiter_chain {
  tide__waiter* first;
  tide__waiter* last;
} waiter_chain;

static void waiters_add(waiter_chain* chain, tide__waiter* waiter) {
  waiter->next = NULL;
  if (chain->first == NULL) chain->first = waiter;
  else chain->last->next = waiter;
  chain->last = waiter;
}

// ---------------------------------------------------------------------------------------------------
// One pass

typedef struct pass_run {
  tide__stream_waits* w;
  const tide__waits_pass* how;
  uint64_t number;
  bool waits;       // for what is not done
  bool is_joining;  // where another thread is at work, its end is waited for
  bool has_passed;
  tide__first_failure* failure;  // borrowed
} pass_run;

// Is one event enough, and has it passed?
static bool run_is_over(const pass_run* run) {
  return run->how->mode == TIDE__WAITS_FOR_ONE && run->has_passed;
}

static void changed_locked(tide__stream_waits* w) TIDE_REQUIRES(&w->lock) {
  if (w->listeners != 0) tide__signal_all(&w->changed);
}

static void listen_locked(tide__stream_waits* w) TIDE_REQUIRES(&w->lock) {
  w->listeners++;
  tide__signal_wait(&w->changed, &w->lock);
  w->listeners--;
}

// May the device be synchronized instead, after this failure?
static bool run_may_synchronize(const pass_run* run, tide_status status) {
  return run->waits && (run->w->options.survives_failures || status == TIDE_ERR_HANDLE);
}

// ---------------------------------------------------------------------------------------------------
// Asking

// Has the work before a wait ended? A pass that waits waits for it. An event of a capture is not asked before
// that is over; then it is recorded again. *out_known: the stream is in no capture, as far as we know.
static tide_status wait_ask(const pass_run* run, tide__wait* wait, bool* out_done, bool* out_known) {
  tide__stream_waits* const w = run->w;
  *out_done = *out_known = false;
  for (int attempt = 0; attempt < 2; attempt++) {
    bool is_under_way = false;
    if (wait->is_captured || w->options.identity == TIDE__STREAMS_ASKED_LATE) {
      TIDE_TRY(tide__capture_ask(w->machine, wait->device, wait->stream, &is_under_way));
    }
    if (is_under_way) return TIDE_OK;
    *out_known = true;
    if (wait->is_captured) {
      TIDE_TRY(tide__wait_record(w, wait));
      wait->end = UINT64_MAX;  // it may be recorded behind any other now
      if (wait->is_captured) return TIDE_OK;
    }
    const tide_status status = run->waits ? tide_machine_event_synchronize(w->machine, wait->event)
                                          : tide_machine_event_query(w->machine, wait->event, out_done);
    *out_done = *out_done || (run->waits && status == TIDE_OK);
    if (status != TIDE_ERR_ARGUMENT && status != TIDE_ERR_CAPTURE) return status;
    wait->is_captured = true;  // it belongs to a capture that we did not see
  }
  return TIDE_OK;
}

// The same. If the event cannot be waited for, the device is synchronized.
static bool wait_is_done(pass_run* run, tide__wait* wait) {
  bool is_done = false;
  bool is_known = false;
  tide_status status = wait_ask(run, wait, &is_done, &is_known);
  if (status != TIDE_OK && is_known && run_may_synchronize(run, status)) {
    status = tide_machine_device_synchronize(run->w->machine, wait->device);
    is_done = status == TIDE_OK;
  }
  tide__first_failure_note(run->failure, status);
  if (status != TIDE_OK) tide__waits_failed(run->w, wait->waiter, TIDE__WAITS_ASK_FAILED);
  return is_done;
}

// What a look at a queue found.
typedef struct queue_answer {
  wait_chain rest;     // waits that have not passed
  tide__wait* left;    // records of those that have, but for those that their waiters keep
  waiter_chain ready;  // waiters that wait for nothing else, to be told
  uint64_t ended;      // how many there were
  bool gives_all;      // all records may go with their waiters
} queue_answer;

// Has the waiter of a wait that has passed nothing else to wait for?
static bool wait_was_last(tide__stream_waits* w, const tide__wait* wait) {
  tide__waiter* const waiter = wait->waiter;
  if (wait->is_only) {
    waiter->event_count = 0;
    return true;
  }
  tide__mutex_lock(&w->lock);
  const bool is_last = --waiter->event_count == 0;
  tide__mutex_unlock(&w->lock);
  return is_last;
}

// Whoever reuses a record may need a queue, and this one is in use until the pass leaves it. So one record
// does not go with its waiter, unless this pass has the extra queue.
static void answer_record(queue_answer* answer, tide__wait* wait) {
  tide__waiter* const waiter = wait->waiter;
  const bool has_queue = answer->gives_all || answer->left != NULL;
  const bool is_kept = waiter->keeps_record && has_queue && wait->is_only && waiter->spare == NULL;
  wait->next = is_kept ? NULL : answer->left;
  if (is_kept) waiter->spare = wait;
  else answer->left = wait;
}

static void answer_tell(const pass_run* run, queue_answer* answer) {
  tide__stream_waits* const w = run->w;
  if (answer->ready.first != NULL) w->callbacks->ready(w->owner, answer->ready.first, run->how->call);
  answer->ready = (waiter_chain){ NULL, NULL };
}

// A wait has passed. A pass that waits makes its waiter ready at once, before it waits for the next.
static void answer_done(pass_run* run, queue_answer* answer, tide__wait* wait) {
  tide__waiter* const waiter = wait->waiter;
  const bool is_last = wait_was_last(run->w, wait);
  run->has_passed = true;
  answer_record(answer, wait);
  if (!is_last) return;
  waiters_add(&answer->ready, waiter);
  answer->ended++;
  if (run->waits) answer_tell(run, answer);
}

static bool run_wants(const pass_run* run, const tide__wait* wait) {
  return run->how->matches == NULL || run->how->matches(wait->waiter, run->how->filter);
}

// The last wait of a queue has passed. Was this one certainly recorded before, on the same stream?
static bool wait_is_inferred(const tide__wait* wait, const tide__wait* last) {
  return wait == last || (wait->end <= last->begin && wait->number == last->number);
}

// Asks the waits of a queue, and parts those that have passed from the rest.
static void queue_ask(pass_run* run, const tide__wait_queue* queue, const wait_chain* waits,
                      queue_answer* answer) {
  const bool is_ordered = queue->stream != TIDE_STREAM_PER_THREAD;
  const bool infers = is_ordered && waits->last->number != 0 && !run->waits;
  bool has_last_passed = false;
  bool is_stopped = false;
  for (tide__wait* wait = waits->first; wait != NULL;) {
    tide__wait* const next = wait->next;
    const bool is_inferred = has_last_passed && wait_is_inferred(wait, waits->last);
    const bool is_asked = !is_inferred && !is_stopped && !run_is_over(run) && run_wants(run, wait);
    const bool is_done = is_inferred || (is_asked && wait_is_done(run, wait));
    if (is_done && infers && wait == waits->first && wait != waits->last) {
      has_last_passed = wait_is_done(run, waits->last);
    }
    is_stopped = is_stopped || (is_asked && !is_done && is_ordered);
    if (is_done) answer_done(run, answer, wait);
    else chain_add(&answer->rest, wait);
    wait = next;
  }
}

// ---------------------------------------------------------------------------------------------------
// Going through the queues

// Does this pass have to ask a queue? Not if a later pass has asked it, unless this one waits.
static bool queue_is_due(const pass_run* run, const tide__wait_queue* queue) {
  return run->waits || queue->pass < run->number;
}

// Takes the turn to ask the next queue behind `queue` (NULL: the first), and its waits. NULL at the end.
static tide__wait_queue* queue_enter(const pass_run* run, tide__wait_queue* queue, wait_chain* out) {
  tide__stream_waits* const w = run->w;
  tide__mutex_lock(&w->lock);
  queue = queue == NULL ? w->queues : queue->next;
  for (; queue != NULL; queue = queue->next) {
    while (run->is_joining && queue->is_asked && queue_is_due(run, queue)) listen_locked(w);
    if (queue->first != NULL && !queue->is_asked && queue_is_due(run, queue)) break;
  }
  if (queue != NULL) {
    queue->is_asked = true;
    queue->gives_all = !w->is_extra_taken;
    w->is_extra_taken = true;
    queue->pass = run->number;
    *out = (wait_chain){ queue->first, queue->last };
    queue->first = queue->last = NULL;
  }
  tide__mutex_unlock(&w->lock);
  return queue;
}

// Ends the turn: waits that have not passed go back to the front. Records are only given back now, because
// the queue may lie in one of them. False if this is the last queue.
static bool queue_leave(tide__stream_waits* w, tide__wait_queue* queue, const queue_answer* answer) {
  const wait_chain* const rest = &answer->rest;
  tide__mutex_lock(&w->lock);
  if (rest->first != NULL) {
    rest->last->next = queue->first;
    if (queue->first == NULL) queue->last = rest->last;
    queue->first = rest->first;
  }
  queue->is_asked = false;
  if (answer->gives_all) w->is_extra_taken = false;
  tide__store_relaxed(&w->waiting, tide__load_relaxed(&w->waiting) - answer->ended);
  if (w->callbacks->spent == NULL) tide__waits_give_locked(w, answer->left);
  const bool has_next = queue->next != NULL;
  changed_locked(w);
  tide__mutex_unlock(&w->lock);
  if (w->callbacks->spent != NULL && answer->left != NULL) w->callbacks->spent(w->owner, answer->left);
  return has_next;
}

// Waiters become ready before other threads may ask the queue.
static void run_queues(pass_run* run) {
  wait_chain waits = { NULL, NULL };
  tide__wait_queue* queue = queue_enter(run, NULL, &waits);
  while (queue != NULL) {
    queue_answer answer = { .gives_all = queue->gives_all };
    queue_ask(run, queue, &waits, &answer);
    answer_tell(run, &answer);
    const bool has_next = queue_leave(run->w, queue, &answer);
    queue = has_next && !run_is_over(run) ? queue_enter(run, queue, &waits) : NULL;
  }
}

// ---------------------------------------------------------------------------------------------------
// Deferred waiters

// Drops a wait that has no event, when the work of its device is done. Not while its stream is captured.
static tide_status wait_synchronize(const pass_run* run, tide__waiter* waiter, tide__wait* wait) {
  tide__stream_waits* const w = run->w;
  if (tide__capture_has(w->machine, wait->device, wait->stream)) return TIDE_ERR_CAPTURE;
  TIDE_TRY(tide_machine_device_synchronize(w->machine, wait->device));
  tide__wait** place = &waiter->waits;
  while (*place != wait) place = &(*place)->next;
  *place = wait->next;
  wait->next = NULL;
  tide__waits_spend(w, wait);
  return TIDE_OK;
}

static tide_status deferred_prepare(const pass_run* run, tide__waiter* waiter) {
  tide__wait* at = NULL;
  tide_status status = tide__waiter_prepare(run->w, waiter, &at);
  while (status != TIDE_OK && at != NULL && run_may_synchronize(run, status)) {
    TIDE_TRY(wait_synchronize(run, waiter, at));
    status = tide__waiter_prepare(run->w, waiter, &at);
  }
  return status;
}

static void deferred_retry(pass_run* run, tide__waiter* waiter) {
  tide__stream_waits* const w = run->w;
  const tide_status status = deferred_prepare(run, waiter);
  if (status != TIDE_ERR_CAPTURE) tide__first_failure_note(run->failure, status);
  waiter->next = NULL;
  if (status == TIDE_OK && waiter->waits == NULL) {
    tide__waiters_end(w, waiter, 1, run->how->call);
    return;
  }
  tide__mutex_lock(&w->lock);
  if (status == TIDE_OK) tide__waits_queue_locked(w, waiter);
  else tide__waits_defer_locked(w, waiter);
  tide__mutex_unlock(&w->lock);
}

// Takes the deferred waiters to try them again; NULL: there are none, or another thread has them.
static tide__waiter* deferred_enter(const pass_run* run) {
  tide__stream_waits* const w = run->w;
  tide__mutex_lock(&w->lock);
  while (run->is_joining && w->is_retried) listen_locked(w);
  tide__waiter* const list = w->is_retried ? NULL : w->deferred;
  if (list != NULL) {
    w->is_retried = true;
    w->deferred = w->deferred_last = NULL;
  }
  tide__mutex_unlock(&w->lock);
  return list;
}

static void run_deferred(pass_run* run) {
  tide__stream_waits* const w = run->w;
  tide__waiter* list = deferred_enter(run);
  if (list == NULL) return;
  while (list != NULL) {
    tide__waiter* const waiter = list;
    list = waiter->next;
    deferred_retry(run, waiter);
  }
  tide__mutex_lock(&w->lock);
  w->is_retried = false;
  changed_locked(w);
  tide__mutex_unlock(&w->lock);
}

// Puts waiters back in front of those that were deferred meanwhile.
static void waits_defer_again(tide__stream_waits* w, const waiter_chain* chain) {
  if (chain->first == NULL) return;
  tide__mutex_lock(&w->lock);
  chain->last->next = w->deferred;
  if (w->deferred == NULL) w->deferred_last = chain->last;
  w->deferred = chain->first;
  tide__mutex_unlock(&w->lock);
}

void tide__waits_end_deferred(tide__stream_waits* w, bool (*is_over)(tide__waiter*, const void*),
                              const void* user, void* call) {
  waiter_chain over = { NULL, NULL };
  waiter_chain rest = { NULL, NULL };
  uint64_t count = 0;
  tide__mutex_lock(&w->lock);
  tide__waiter* list = w->deferred;
  w->deferred = w->deferred_last = NULL;
  tide__mutex_unlock(&w->lock);
  while (list != NULL) {
    tide__waiter* const waiter = list;
    list = waiter->next;
    const bool ends = is_over(waiter, user);
    waiters_add(ends ? &over : &rest, waiter);
    if (!ends) continue;
    count++;
    tide__waits_spend(w, waiter->waits);
    waiter->waits = NULL;
  }
  waits_defer_again(w, &rest);
  tide__waiters_end(w, over.first, count, call);
}

// ---------------------------------------------------------------------------------------------------
// Passes

tide_status tide__waits_run(tide__stream_waits* w, const tide__waits_pass* pass, bool* out_passed) {
  tide__first_failure failure;  // not in `run`, which is set to 0
  pass_run run = { .w = w, .how = pass, .is_joining = pass->mode != TIDE__WAITS_POLL, .failure = &failure };
  run.waits = pass->mode == TIDE__WAITS_FOR_ALL || pass->mode == TIDE__WAITS_FOR_ONE;
  if (out_passed != NULL) *out_passed = false;
  if (tide__waits_is_empty(w)) return TIDE_OK;
  tide__first_failure_begin(&failure);
  const tide__relaxed relaxed = tide__relax_or_not(w->machine);
  run_deferred(&run);
  run.number = tide__add_seq(&w->passes, 1) + 1;
  run_queues(&run);
  tide__relax_end(&relaxed);
  if (out_passed != NULL) *out_passed = run.has_passed;
  return tide__first_failure_end(&failure);
}

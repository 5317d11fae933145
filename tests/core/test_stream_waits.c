// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stream waits, compared with a model that gets the truth from the streams themselves. Each piece of work
// increments its stream's `done` when it runs, and runs when the test lets it. When a block becomes ready,
// its streams must have reached the count that they had queued when it was announced or released. A block
// whose work is done must become ready in the next pass, unless a fault or a capture intervened. At the end
// all blocks must.
#define T_THREADS
#include "core/stream_waits.h"

#include "base/list.h"
#include "machine/caches.h"

enum { STREAMS = 5, BLOCKS = 24, AHEAD = 16 };

// ---------------------------------------------------------------------------------------------------
// Streams whose work the test lets go on step by step

typedef struct paced_stream {
  tide_machine* m;
  tide_stream stream;
  int device;
  bool is_captured;
  uint64_t queued;
  _Atomic uint64_t allowed;
  _Atomic uint64_t done;
  tide_event events[AHEAD];  // behind the last steps
} paced_stream;

static void step_run(void* user) {
  paced_stream* const s = user;
  const uint64_t number = atomic_load(&s->done) + 1;
  while (!is_dry(s->m) && atomic_load(&s->allowed) < number) t_sleep_us(20);
  atomic_store(&s->done, number);
}

static void paced_init(paced_stream* s, tide_machine* m, int device, tide_stream stream) {
  s->m = m;
  s->device = device;
  s->stream = stream;
  for (int i = 0; i < AHEAD; i++) s->events[i] = event_new(m, device);
  if (is_dry(m)) T_OK(tide_dry_hold(m, device, stream, true));
}

static void paced_queue(paced_stream* s) {
  if (s->is_captured || s->queued - atomic_load(&s->allowed) >= AHEAD) return;
  if (is_dry(s->m)) T_OK(tide_dry_work(s->m, s->device, s->stream, 1000));
  T_OK(tide_machine_call(s->m, s->device, s->stream, step_run, s));
  T_OK(tide_machine_event_record(s->m, s->device, s->events[s->queued % AHEAD], s->stream));
  s->queued++;
}

// Lets the stream run up to a step, and waits until it has.
static void paced_allow(paced_stream* s, uint64_t step) {
  if (step <= atomic_load(&s->allowed) || step > s->queued) return;
  const tide_event event = s->events[(step - 1) % AHEAD];
  atomic_store(&s->allowed, step);
  if (is_dry(s->m)) T_OK(tide_dry_finish(s->m, event));
  T_OK(tide_machine_event_synchronize(s->m, event));
  T_LE(step, atomic_load(&s->done));
}

// ---------------------------------------------------------------------------------------------------
// The model

typedef struct model_block {
  tide__waiter waiter;
  uint32_t unadded;         // streams whose wait has yet to be added, as bits
  uint32_t uses;            // streams that were announced, likewise
  uint64_t needs[STREAMS];  // steps of each stream that must be done
  bool is_waiting;
  bool is_exempt;  // a fault or a capture got in between: when it becomes ready is not known
  bool may_match;  // for passes with a filter
} model_block;

typedef struct model {
  tide_machine* m;
  counting_heap records;
  tide__stream_waits w;
  paced_stream streams[STREAMS];
  model_block blocks[BLOCKS];
  t_rng rng;
  uint64_t ready_count;
  const model_block* ready[BLOCKS];  // the last ones, in order
  uint64_t failures;
  void* call;  // what `ready` has to be told
  bool has_replaced;
} model;

static bool block_is_done(const model* s, const model_block* block) {
  for (int i = 0; i < STREAMS; i++) {
    if (atomic_load(&s->streams[i].done) < block->needs[i]) return false;
  }
  return true;
}

static void model_ready(void* owner, tide__waiter* list, void* call) {
  model* const s = owner;
  T_CHECK(tide__holds_no_lock());
  T_CHECK(call == s->call);
  while (list != NULL) {
    model_block* const block = TIDE_OWNER(list, model_block, waiter);
    list = list->next;
    T_CHECK(block->is_waiting);
    T_CHECK(block_is_done(s, block));
    T_EQ(block->waiter.event_count, 0);
    T_CHECK(block->waiter.waits == NULL);
    block->is_waiting = false;
    s->ready[s->ready_count++ % BLOCKS] = block;
  }
}

static tide_status model_prepare(void* owner, tide__waiter* waiter) {
  model* const s = owner;
  model_block* const block = TIDE_OWNER(waiter, model_block, waiter);
  T_CHECK(tide__holds_no_lock());
  for (uint32_t i = 0; i < STREAMS; i++) {
    if ((block->unadded >> i & 1u) == 0) continue;
    const tide_status status = tide__waiter_add(&s->w, waiter, s->streams[i].device, s->streams[i].stream);
    if (status != TIDE_OK) return status;
    block->unadded &= ~(1u << i);
  }
  return TIDE_OK;
}

static void model_failed(void* owner, tide__waiter* waiter, tide__waits_failure what) {
  T_CHECK(TIDE_OWNER(waiter, model_block, waiter)->is_waiting || what == TIDE__WAITS_RECORD_FAILED);
  ((model*)owner)->failures++;
}

static const tide__waits_callbacks model_callbacks = { model_ready, model_prepare, NULL, model_failed };

static tide__waits_options options_of_variant(void) {
  tide__waits_options options = { TIDE__STREAMS_ASKED_AFTER, false };
  if (strstr(t_variant(), "before") != NULL) options.identity = TIDE__STREAMS_ASKED_BEFORE;
  if (strstr(t_variant(), "late") != NULL) options.identity = TIDE__STREAMS_ASKED_LATE;
  options.survives_failures = options.identity != TIDE__STREAMS_ASKED_AFTER;
  return options;
}

// The test's own calls are made in the mode RELAXED, those under test in GLOBAL.
static void mode_set(tide_machine* m, tide_capture_mode mode, tide_capture_mode expected) {
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  T_OK(tide_machine_capture_exchange(m, mode, &before));
  T_EQ(before, expected);
}

static void model_init(model* s, tide_machine* m) {
  memset(s, 0, sizeof *s);
  s->m = m;
  s->call = s;
  s->rng = t_rng_new(0);
  counting_heap_init(&s->records, SIZE_MAX, false);
  for (int i = 0; i < STREAMS; i++) {
    const int device = i == STREAMS - 1 ? 1 : 0;
    const tide_stream stream = i == 0 ? TIDE_STREAM_PER_THREAD
                                      : stream_new(m, device, TIDE_STREAM_NON_BLOCKING);
    paced_init(&s->streams[i], m, device, stream);
  }
  tide__waits_init(&s->w, m, &s->records.heap, &model_callbacks, s, options_of_variant());
  mode_set(m, TIDE_CAPTURE_RELAXED, TIDE_CAPTURE_GLOBAL);
}

static void model_fini(model* s) {
  for (int i = 0; i < BLOCKS; i++) tide__waits_give(&s->w, s->blocks[i].waiter.spare);
  tide__waits_fini(&s->w);
  T_EQ(atomic_load(&s->records.outstanding), 0);
  if (is_dry(s->m)) {
    for (int i = 0; i < STREAMS; i++) {
      T_OK(tide_dry_hold(s->m, s->streams[i].device, s->streams[i].stream, false));
    }
  }
  mode_set(s->m, TIDE_CAPTURE_GLOBAL, TIDE_CAPTURE_RELAXED);
}

// ---------------------------------------------------------------------------------------------------
// Steps of the model

// Waiting blocks that a stream's capture, or a fault, may keep waiting.
static void model_exempt(model* s, uint32_t stream_bits) {
  for (int i = 0; i < BLOCKS; i++) {
    if ((s->blocks[i].uses & stream_bits) != 0) s->blocks[i].is_exempt = true;
  }
}

static uint32_t captured_bits(const model* s) {
  uint32_t bits = 0;
  for (uint32_t k = 0; k < STREAMS; k++) bits |= s->streams[k].is_captured ? 1u << k : 0;
  return bits;
}

static const tide_call faulty_calls[] = {
  TIDE_CALL_EVENT_NEW,          TIDE_CALL_EVENT_RECORD, TIDE_CALL_EVENT_QUERY, TIDE_CALL_EVENT_SYNCHRONIZE,
  TIDE_CALL_DEVICE_SYNCHRONIZE, TIDE_CALL_CAPTURE_INFO, TIDE_CALL_STREAM_INFO,
};

// Lets calls fail for one step; true if so.
static bool faults_draw(model* s) {
  static const tide_status statuses[] = { TIDE_ERR_MACHINE, TIDE_ERR_NO_MEMORY, TIDE_ERR_HANDLE };
  if (t_rng_below(&s->rng, 4) != 0) return false;
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = faulty_calls[t_rng_below(&s->rng, sizeof faulty_calls / sizeof *faulty_calls)];
  // A stream is never said to be gone while it is there.
  const bool is_info = fault.call == TIDE_CALL_CAPTURE_INFO || fault.call == TIDE_CALL_STREAM_INFO;
  fault.status = statuses[t_rng_below(&s->rng, is_info ? 2 : 3)];
  fault.skip = t_rng_below(&s->rng, 3);
  fault.count = 1 + t_rng_below(&s->rng, 4);
  T_OK(tide_machine_fault_add(s->m, &fault));
  return true;
}

// Announces a stream to a block: a note, or an event that is recorded early.
static void block_announce(model* s, model_block* block, uint32_t k) {
  block->uses |= 1u << k;
  paced_stream* const stream = &s->streams[k];
  if (t_rng_below(&s->rng, 3) != 0) {
    block->unadded |= 1u << k;
    return;
  }
  tide__wait* wait = block->waiter.spare;
  uint32_t count = 0;
  if (wait != NULL && wait->device == stream->device) block->waiter.spare = NULL;
  else wait = tide__waits_take_idle(&s->w, stream->device, 1, &count);
  if (wait == NULL) T_OK(tide__wait_make(&s->w, stream->device, &wait));
  tide__wait_reset(wait, stream->stream);
  T_OK(tide__wait_record_early(&s->w, wait));
  block->needs[k] = stream->queued;
  block->is_exempt = block->is_exempt || stream->is_captured;
  wait->next = block->waiter.waits;
  block->waiter.waits = wait;
}

static void step_announce(model* s) {
  model_block* const block = &s->blocks[t_rng_below(&s->rng, BLOCKS)];
  const uint32_t k = (uint32_t)t_rng_below(&s->rng, STREAMS);
  if (block->is_waiting || (block->uses >> k & 1u) != 0) return;
  block_announce(s, block, k);
}

static void block_begin(model* s, model_block* block) {
  mode_set(s->m, TIDE_CAPTURE_GLOBAL, TIDE_CAPTURE_RELAXED);
  if (t_rng_below(&s->rng, 8) == 0) {
    block->is_exempt = true;  // until the next pass, and its events come later
    tide__waits_defer(&s->w, &block->waiter);
  } else {
    tide__waits_begin(&s->w, &block->waiter, s->call);
  }
  mode_set(s->m, TIDE_CAPTURE_RELAXED, TIDE_CAPTURE_GLOBAL);
}

// Releases a block. If it has nothing to wait for, it is ready at once.
static void step_release(model* s) {
  model_block* const block = &s->blocks[t_rng_below(&s->rng, BLOCKS)];
  if (block->is_waiting || (block->unadded == 0 && t_rng_below(&s->rng, 4) != 0)) return;
  for (uint32_t k = 0; k < STREAMS; k++) {
    if ((block->unadded >> k & 1u) != 0) block->needs[k] = s->streams[k].queued;
  }
  block->is_waiting = true;
  block->is_exempt = block->is_exempt || (block->unadded & captured_bits(s)) != 0 || faults_draw(s);
  block->may_match = t_rng_below(&s->rng, 2) != 0;
  block->waiter.keeps_record = t_rng_below(&s->rng, 2) != 0;
  block_begin(s, block);
  tide_machine_fault_clear(s->m);
}

// Blocks that are over may be announced anew.
static void blocks_forget(model* s) {
  for (int i = 0; i < BLOCKS; i++) {
    model_block* const block = &s->blocks[i];
    if (block->is_waiting || block->waiter.waits != NULL || block->unadded != 0) continue;
    memset(block->needs, 0, sizeof block->needs);
    block->uses = 0;
    block->is_exempt = false;
  }
}

// The streams of blocks that may wait for longer: they hold back what is behind them in a queue.
static uint32_t exempt_bits(const model* s) {
  uint32_t bits = 0;
  for (int i = 0; i < BLOCKS; i++) {
    if (s->blocks[i].is_waiting && s->blocks[i].is_exempt) bits |= s->blocks[i].uses;
  }
  return bits;
}

// What must be ready after a pass without a fault.
static void expect_none_done(const model* s) {
  const uint32_t bits = exempt_bits(s);
  for (int i = 0; i < BLOCKS; i++) {
    const model_block* const block = &s->blocks[i];
    const bool is_sure = block->is_waiting && !block->is_exempt && (block->uses & bits) == 0;
    if (is_sure) T_CHECK(!block_is_done(s, block));
  }
}

static bool block_matches(tide__waiter* waiter, const void* filter) {
  T_CHECK(filter == &model_callbacks);
  return TIDE_OWNER(waiter, model_block, waiter)->may_match;
}

static tide_status model_pass(model* s, tide__waits_mode mode, bool is_filtered, bool* out_passed) {
  const tide__waits_pass pass = { mode, is_filtered ? block_matches : NULL, &model_callbacks, s->call };
  mode_set(s->m, TIDE_CAPTURE_GLOBAL, TIDE_CAPTURE_RELAXED);
  const tide_status status = tide__waits_run(&s->w, &pass, out_passed);
  mode_set(s->m, TIDE_CAPTURE_RELAXED, TIDE_CAPTURE_GLOBAL);
  return status;
}

static void step_poll(model* s) {
  const bool is_faulty = faults_draw(s);
  const tide__waits_mode mode = t_rng_below(&s->rng, 2) != 0 ? TIDE__WAITS_POLL : TIDE__WAITS_POLL_ALL;
  const tide_status status = model_pass(s, mode, false, NULL);
  tide_machine_fault_clear(s->m);
  if (!is_faulty && status != TIDE_ERR_HANDLE) T_OK(status);
  if (status == TIDE_ERR_HANDLE) T_CHECK(is_faulty || s->has_replaced);  // a stream without events is gone
  if (!is_faulty) expect_none_done(s);
  blocks_forget(s);
}

static void streams_allow_all(model* s) {
  for (int k = 0; k < STREAMS; k++) paced_allow(&s->streams[k], s->streams[k].queued);
}

// Does a block wait that a pass which waits must make ready?
static bool any_waits(const model* s, bool matching_only) {
  const uint32_t bits = exempt_bits(s);
  for (int i = 0; i < BLOCKS; i++) {
    const model_block* const block = &s->blocks[i];
    const bool is_sure = block->is_waiting && !block->is_exempt && (block->uses & bits) == 0;
    if (is_sure && (block->may_match || !matching_only)) return true;
  }
  return false;
}

// Waits for all, for some, or for one. Waiting may synchronize a device, which would break captures there.
static void step_wait(model* s) {
  if (captured_bits(s) != 0) return;
  const bool is_filtered = t_rng_below(&s->rng, 2) != 0;
  const bool is_one = t_rng_below(&s->rng, 2) != 0;
  streams_allow_all(s);
  const bool has_some = any_waits(s, is_filtered);
  const bool is_faulty = faults_draw(s);
  bool has_passed = false;
  const tide_status status =
      model_pass(s, is_one ? TIDE__WAITS_FOR_ONE : TIDE__WAITS_FOR_ALL, is_filtered, &has_passed);
  tide_machine_fault_clear(s->m);
  if (!is_faulty) T_OK(status);
  if (!is_faulty && has_some) T_CHECK(has_passed);
  if (!is_faulty && !is_one) T_CHECK(!any_waits(s, is_filtered));
  blocks_forget(s);
}

// Somebody else captures a stream, or ends that. The capture must have come to no harm.
static void step_capture(model* s, uint32_t k) {
  paced_stream* const stream = &s->streams[k];
  if (!stream->is_captured) {
    T_OK(tide_machine_capture_begin(s->m, stream->device, stream->stream, TIDE_CAPTURE_GLOBAL));
    stream->is_captured = true;
    model_exempt(s, 1u << k);
    return;
  }
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(s->m, stream->device, stream->stream, &graph));
  T_OK(tide_machine_launch_free(s->m, graph));
  stream->is_captured = false;
}

// Replaces a stream by a new one. Its work is done, but blocks may not have been told yet.
static void step_replace(model* s) {
  const uint32_t k = 1 + (uint32_t)t_rng_below(&s->rng, STREAMS - 1);
  paced_stream* const stream = &s->streams[k];
  if (stream->is_captured || t_rng_below(&s->rng, 8) != 0) return;
  for (int i = 0; i < BLOCKS; i++) {
    if ((s->blocks[i].unadded >> k & 1u) != 0 && !s->blocks[i].is_waiting) return;
  }
  s->has_replaced = true;
  paced_allow(stream, stream->queued);
  model_exempt(s, 1u << k);  // those without an event cannot get one any more
  T_OK(tide_machine_stream_free(s->m, stream->device, stream->stream));
  stream->stream = stream_new(s->m, stream->device, TIDE_STREAM_NON_BLOCKING);
  if (is_dry(s->m)) T_OK(tide_dry_hold(s->m, stream->device, stream->stream, true));
}

static void model_step(model* s) {
  paced_stream* const stream = &s->streams[t_rng_below(&s->rng, STREAMS)];
  switch (t_rng_below(&s->rng, 16)) {
    case 0:
    case 1:
    case 2: paced_queue(stream); return;
    case 3:
    case 4: paced_allow(stream, atomic_load(&stream->allowed) + 1 + t_rng_below(&s->rng, 3)); return;
    case 5:
    case 6:
    case 7: step_announce(s); return;
    case 8:
    case 9:
    case 10: step_release(s); return;
    case 11: step_wait(s); return;
    case 12: step_capture(s, 1 + (uint32_t)t_rng_below(&s->rng, STREAMS - 1)); return;
    case 13: step_replace(s); return;
    default: step_poll(s); return;
  }
}

// When no stream is captured and no call fails, waiting for all makes all ready.
static void model_end(model* s) {
  for (uint32_t k = 0; k < STREAMS; k++) {
    if (s->streams[k].is_captured) step_capture(s, k);
  }
  for (int i = 0; i < BLOCKS; i++) {
    model_block* const block = &s->blocks[i];
    if (block->is_waiting || (block->unadded == 0 && block->waiter.waits == NULL)) continue;
    for (uint32_t k = 0; k < STREAMS; k++) {
      if ((block->unadded >> k & 1u) != 0) block->needs[k] = s->streams[k].queued;
    }
    block->is_waiting = true;
    tide__waits_begin(&s->w, &block->waiter, s->call);
  }
  streams_allow_all(s);
  T_OK(model_pass(s, TIDE__WAITS_FOR_ALL, false, NULL));
  for (int i = 0; i < BLOCKS; i++) T_CHECK(!s->blocks[i].is_waiting);
  T_CHECK(tide__waits_is_empty(&s->w));
  T_EQ(tide__waits_devices(&s->w), 0);
}

static const char* const all_variants[] = { "host after", "dry after", "host before", "dry before",
                                            "host late",  "dry late",  NULL };
static const char* const host_variants[] = { "host after", "host before", "host late", NULL };
static const char* const numbered_variants[] = { "host before", "dry before", "host late", "dry late", NULL };

MACHINE_TEST_OVER(test_stream_waits__agree_with_the_streams, all_variants) {
  model* const s = calloc(1, sizeof *s);
  T_CHECK(s != NULL);
  model_init(s, m);
  const int steps = (int)t_scaled(4000);
  for (int i = 0; i < steps; i++) model_step(s);
  model_end(s);
  T_LT(0, s->ready_count);
  model_fini(s);
  free(s);
}

// ---------------------------------------------------------------------------------------------------
// One property at a time

static void model_release(model* s, int index, uint32_t stream_bits) {
  model_block* const block = &s->blocks[index];
  block->unadded = block->uses = stream_bits;
  for (uint32_t k = 0; k < STREAMS; k++)
    block->needs[k] = (stream_bits >> k & 1u) != 0 ? s->streams[k].queued : 0;
  block->is_waiting = true;
  tide__waits_begin(&s->w, &block->waiter, s->call);
}

static uint64_t calls_made(const tide_machine* m, tide_call call) {
  return tide_machine_call_stats(m, call).calls;
}

MACHINE_TEST_OVER(test_stream_waits__ask_only_the_first_of_a_stream, all_variants) {
  static model s;
  model_init(&s, m);
  for (int i = 0; i < 8; i++) {
    paced_queue(&s.streams[1]);
    model_release(&s, i, 1u << 1);
  }
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_QUERY);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(calls_made(m, TIDE_CALL_EVENT_QUERY), before + 1);
  T_EQ(s.ready_count, 0);
  paced_allow(&s.streams[1], 3);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 3);
  for (int i = 0; i < 3; i++) T_PTR_EQ(s.ready[i], &s.blocks[i]);
  model_end(&s);
  model_fini(&s);
}

MACHINE_TEST_OVER(test_stream_waits__infer_what_was_recorded_before, numbered_variants) {
  static model s;
  model_init(&s, m);
  paced_queue(&s.streams[1]);
  for (int i = 0; i < 10; i++) model_release(&s, i, 1u << 1);
  paced_allow(&s.streams[1], 1);
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_QUERY);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(calls_made(m, TIDE_CALL_EVENT_QUERY), before + 2);
  T_EQ(s.ready_count, 10);
  model_end(&s);
  model_fini(&s);
}

MACHINE_TEST_OVER(test_stream_waits__follow_all_streams_of_a_block, all_variants) {
  static model s;
  model_init(&s, m);
  for (int k = 1; k < STREAMS; k++) paced_queue(&s.streams[k]);
  model_release(&s, 0, (1u << STREAMS) - 2);
  T_EQ(tide__waits_devices(&s.w), 3);
  for (int k = STREAMS - 1; k > 0; k--) {
    T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
    T_EQ(s.ready_count, 0);
    paced_allow(&s.streams[k], 1);
  }
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 1);
  model_fini(&s);
}

MACHINE_TEST_OVER(test_stream_waits__record_again_after_a_capture, all_variants) {
  static model s;
  model_init(&s, m);
  paced_stream* const stream = &s.streams[1];
  paced_queue(stream);
  T_OK(tide_machine_capture_begin(m, 0, stream->stream, TIDE_CAPTURE_GLOBAL));
  model_release(&s, 0, 1u << 1);
  paced_allow(stream, 1);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_OK(model_pass(&s, TIDE__WAITS_FOR_ALL, false, NULL));
  T_EQ(s.ready_count, 0);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream->stream, &graph));
  T_OK(tide_machine_launch_free(m, graph));
  paced_queue(stream);
  s.blocks[0].needs[1] = 2;
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 0);
  paced_allow(stream, 2);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 1);
  model_fini(&s);
}

static bool is_even(tide__waiter* waiter, const void* blocks) {
  return (TIDE_OWNER(waiter, model_block, waiter) - (const model_block*)blocks) % 2 == 0;
}

MACHINE_TEST_OVER(test_stream_waits__end_deferred_blocks_that_need_no_event, all_variants) {
  static model s;
  model_init(&s, m);
  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, UINT64_MAX);
  for (int i = 0; i < 6; i++) model_release(&s, i, 1u << 1);
  tide_machine_fault_clear(m);
  T_EQ(s.failures, 6);
  tide__waits_end_deferred(&s.w, is_even, s.blocks, s.call);
  T_EQ(s.ready_count, 3);
  for (int i = 0; i < 3; i++) T_PTR_EQ(s.ready[i], &s.blocks[2 * i]);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 6);
  model_fini(&s);
}

MACHINE_TEST_OVER(test_stream_waits__keep_the_error_record, all_variants) {
  static model s;
  model_init(&s, m);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_PER_THREAD), TIDE_ERR_ARGUMENT);
  const tide_error before = *tide_last_error();
  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, 1);
  model_release(&s, 0, 1u << 1);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 1);
  T_EQ(tide_last_error()->status, before.status);
  T_STR_EQ(tide_last_error()->text, before.text);
  tide_machine_fault_clear(m);
  model_fini(&s);
}

// An owner whose waiter is not complete at first.
typedef struct half {
  tide__stream_waits w;
  tide__waiter waiter;
  tide_status prepared;
  int ready_count;
} half;

static tide_status half_prepare(void* owner, tide__waiter* waiter) {
  (void)waiter;
  const half* const h = owner;
  return h->prepared == TIDE_OK ? TIDE_OK : TIDE_ERROR_SET(h->prepared, 0, "half a waiter");
}

static void half_ready(void* owner, tide__waiter* list, void* call) {
  (void)list, (void)call;
  ((half*)owner)->ready_count++;
}

// Neither is the waiter complete nor can its event be recorded.
MACHINE_TEST_OVER(test_stream_waits__name_the_first_of_two_failures, all_variants) {
  static const tide__waits_callbacks callbacks = { .ready = half_ready, .prepare = half_prepare };
  static half h = { .prepared = TIDE_ERR_LIMIT };
  const tide__waits_pass pass = { .mode = TIDE__WAITS_FOR_ALL };
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  tide__waits_init(&h.w, m, &records.heap, &callbacks, &h, options_of_variant());
  T_OK(tide__waiter_add(&h.w, &h.waiter, 0, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING)));
  tide__waits_defer(&h.w, &h.waiter);
  break_calls(m, TIDE_CALL_EVENT_RECORD, TIDE_ERR_MACHINE, 1);
  T_EQ(tide__waits_run(&h.w, &pass, NULL), TIDE_ERR_LIMIT);
  T_EQ(tide_last_error()->status, TIDE_ERR_LIMIT);
  T_STR_HAS(tide_last_error()->text, "half a waiter");
  h.prepared = TIDE_OK;
  T_OK(tide__waits_run(&h.w, &pass, NULL));
  T_EQ(h.ready_count, 1);
  tide__waits_fini(&h.w);
  T_EQ(atomic_load(&records.outstanding), 0);
}

enum { HOPS = 12 };

// A block that waits for the next stream as soon as it is ready, while its last queue is still asked.
typedef struct hopper {
  tide__stream_waits w;
  tide__waiter waiter;
  tide_stream streams[HOPS];
  int hops;
  bool is_nested;  // a second pass asks while the first does
} hopper;

static void hopper_ready(void* owner, tide__waiter* list, void* call) {
  hopper* const h = owner;
  const tide__waits_pass pass = { .mode = TIDE__WAITS_POLL, .call = call };
  T_PTR_EQ(list, &h->waiter);
  T_CHECK(list->next == NULL);
  if (++h->hops >= HOPS) return;
  tide__wait* const spare = h->waiter.spare;
  h->waiter.spare = NULL;
  if (spare != NULL) tide__wait_reset(spare, h->streams[h->hops]);
  else T_OK(tide__waiter_add(&h->w, &h->waiter, 0, h->streams[h->hops]));
  if (spare != NULL) h->waiter.waits = spare;
  tide__waits_begin(&h->w, &h->waiter, call);
  if (h->is_nested) T_OK(tide__waits_run(&h->w, &pass, NULL));
}

// Lets a block wait for all streams in turn; returns how many records that took.
static uint64_t hopper_run(tide_machine* m, bool is_nested) {
  static const tide__waits_callbacks callbacks = { .ready = hopper_ready };
  counting_heap records;
  hopper h = { .waiter.keeps_record = true, .is_nested = is_nested };
  const tide__waits_pass pass = { .mode = TIDE__WAITS_POLL };
  const uint64_t before = calls_made(m, TIDE_CALL_EVENT_NEW);
  counting_heap_init(&records, SIZE_MAX, false);
  for (int i = 0; i < HOPS; i++) h.streams[i] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  tide__waits_init(&h.w, m, &records.heap, &callbacks, &h, options_of_variant());
  T_OK(tide__waiter_add(&h.w, &h.waiter, 0, h.streams[0]));
  tide__waits_begin(&h.w, &h.waiter, NULL);
  for (int i = 0; i < HOPS; i++) T_OK(tide__waits_run(&h.w, &pass, NULL));
  T_EQ(h.hops, HOPS);
  T_CHECK(tide__waits_is_empty(&h.w));
  tide__waits_give(&h.w, h.waiter.spare);
  tide__waits_fini(&h.w);
  T_EQ(atomic_load(&records.outstanding), 0);
  return calls_made(m, TIDE_CALL_EVENT_NEW) - before;
}

MACHINE_TEST_OVER(test_stream_waits__let_a_ready_block_wait_again_with_its_record, all_variants) {
  T_EQ(hopper_run(m, false), 1);
  T_LE(hopper_run(m, true), HOPS);
}

// ---------------------------------------------------------------------------------------------------
// Threads

static void* wait_for_all(void* user) {
  model* const s = user;
  const tide__waits_pass pass = { .mode = TIDE__WAITS_FOR_ALL, .call = s->call };
  T_OK(tide__waits_run(&s->w, &pass, NULL));
  return NULL;
}

static bool first_queue_is_asked(model* s) {
  tide__mutex_lock(&s->w.lock);
  const bool is_asked = s->w.queues->is_asked;
  tide__mutex_unlock(&s->w.lock);
  return is_asked;
}

MACHINE_TEST_OVER(test_stream_waits__let_others_poll_while_one_waits, host_variants) {
  static model s;
  pthread_t thread;
  model_init(&s, m);
  paced_queue(&s.streams[1]);
  model_release(&s, 0, 1u << 1);
  t_thread_start(&thread, wait_for_all, &s);
  T_WAIT(first_queue_is_asked(&s));
  model_release(&s, 1, 1u << 2);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_CHECK(s.blocks[0].is_waiting);
  T_CHECK(!s.blocks[1].is_waiting);
  paced_allow(&s.streams[1], 1);
  t_thread_join(thread);
  T_CHECK(!s.blocks[0].is_waiting);
  model_fini(&s);
}

static void* release_second(void* user) {
  model_release(user, 1, 1u << 0);
  return NULL;
}

MACHINE_TEST_OVER(test_stream_waits__ask_the_stream_of_each_thread, host_variants) {
  static model s;
  pthread_t thread;
  model_init(&s, m);
  paced_queue(&s.streams[0]);
  model_release(&s, 0, 1u << 0);
  t_thread_start(&thread, release_second, &s);
  t_thread_join(thread);
  s.blocks[1].needs[0] = 0;  // that thread's stream had no work
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 1);
  T_PTR_EQ(s.ready[0], &s.blocks[1]);
  paced_allow(&s.streams[0], 1);
  T_OK(model_pass(&s, TIDE__WAITS_POLL, false, NULL));
  T_EQ(s.ready_count, 2);
  model_fini(&s);
}

enum { MEMBERS = 3, MEMBER_BLOCKS = 8 };

typedef struct shared_stream {
  tide_stream stream;
  _Atomic uint64_t queued;
  _Atomic uint64_t done;
} shared_stream;

typedef struct shared_block {
  tide__waiter waiter;
  uint64_t needs[MEMBERS];
  atomic_bool is_waiting;
} shared_block;

typedef struct crowd {
  tide_machine* m;
  tide__stream_waits w;
  shared_stream streams[MEMBERS];
} crowd;

typedef struct member {
  crowd* c;
  int index;
  shared_block blocks[MEMBER_BLOCKS];
} member;

static void crowd_ready(void* owner, tide__waiter* list, void* call) {
  crowd* const c = owner;
  (void)call;
  while (list != NULL) {
    shared_block* const block = TIDE_OWNER(list, shared_block, waiter);
    list = list->next;
    for (int k = 0; k < MEMBERS; k++) T_LE(block->needs[k], atomic_load(&c->streams[k].done));
    T_CHECK(atomic_exchange(&block->is_waiting, false));
  }
}

static void shared_step(void* user) { (void)atomic_fetch_add(&((shared_stream*)user)->done, 1); }

static void member_queue(const member* me) {
  shared_stream* const stream = &me->c->streams[me->index];
  T_OK(tide_machine_call(me->c->m, 0, stream->stream, shared_step, stream));
  (void)atomic_fetch_add(&stream->queued, 1);
}

static void member_release(member* me, t_rng* rng) {
  shared_block* const block = &me->blocks[t_rng_below(rng, MEMBER_BLOCKS)];
  if (atomic_load(&block->is_waiting)) return;
  for (int k = 0; k < MEMBERS; k++) {
    const bool is_used = t_rng_below(rng, 2) != 0;
    block->needs[k] = is_used ? atomic_load(&me->c->streams[k].queued) : 0;
    if (is_used) T_OK(tide__waiter_add(&me->c->w, &block->waiter, 0, me->c->streams[k].stream));
  }
  atomic_store(&block->is_waiting, true);
  tide__waits_begin(&me->c->w, &block->waiter, NULL);
}

static void* member_run(void* user) {
  member* const me = user;
  t_rng rng = t_rng_new((uint64_t)me->index);
  const size_t steps = t_scaled(3000);
  for (size_t i = 0; i < steps; i++) {
    static const tide__waits_mode modes[] = {
      TIDE__WAITS_POLL,     TIDE__WAITS_POLL,    TIDE__WAITS_POLL_ALL,
      TIDE__WAITS_POLL_ALL, TIDE__WAITS_FOR_ONE, TIDE__WAITS_FOR_ALL
    };
    const tide__waits_pass pass = { .mode = modes[t_rng_below(&rng, 6)] };
    member_queue(me);
    member_release(me, &rng);
    if (t_rng_below(&rng, 4) == 0) T_OK(tide__waits_run(&me->c->w, &pass, NULL));
    if (pass.mode != TIDE__WAITS_FOR_ALL || i % 16 != 0) continue;
    T_OK(tide__waits_run(&me->c->w, &pass, NULL));
    for (int k = 0; k < MEMBER_BLOCKS; k++) T_CHECK(!atomic_load(&me->blocks[k].is_waiting));
  }
  return NULL;
}

MACHINE_TEST_OVER(test_stream_waits__serve_many_threads, host_variants) {
  static const tide__waits_callbacks callbacks = { .ready = crowd_ready };
  static crowd c;
  static member members[MEMBERS];
  pthread_t threads[MEMBERS];
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);
  c.m = m;
  tide__waits_init(&c.w, m, &records.heap, &callbacks, &c, options_of_variant());
  for (int i = 0; i < MEMBERS; i++) c.streams[i].stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  for (int i = 0; i < MEMBERS; i++) {
    members[i].c = &c;
    members[i].index = i;
    t_thread_start(&threads[i], member_run, &members[i]);
  }
  for (int i = 0; i < MEMBERS; i++) t_thread_join(threads[i]);
  const tide__waits_pass pass = { .mode = TIDE__WAITS_FOR_ALL };
  T_OK(tide__waits_run(&c.w, &pass, NULL));
  T_CHECK(tide__waits_is_empty(&c.w));
  tide__waits_fini(&c.w);
  T_EQ(atomic_load(&records.outstanding), 0);
}

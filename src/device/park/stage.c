// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: the way of contents that do not lie in locked memory. The machine copies between the device
// and a ring of locked memory, and threads move bytes between the ring and the store. Without threads, the
// thread that queues copies does that itself.
#include "device/park/carrier.h"

#include "core/capture.h"

// The states of a run. To a store: free, queued, done. From a store: free, ready, queued.
enum { RUN_FREE, RUN_READY, RUN_QUEUED, RUN_DONE, RUN_LOST };

void tide__stage_init(tide__stage* stage, tide_device_cache* device, tide__store* store, bool is_fetch) {
  *stage = (tide__stage){ .device = device, .store = store, .is_fetch = is_fetch, .is_cut = true };
  tide__mutex_init(&stage->lock, TIDE__RANK_LEAF);
  tide__signal_init(&stage->changed);
}

static tide_status run_add(tide__stage* stage, uint64_t offset) {
  TIDE_REQUIRE(tide__heap_grow(stage->device->heap, (void**)&stage->runs, &stage->run_capacity,
                               stage->run_count + 1, sizeof *stage->runs),
               TIDE_ERR_NO_MEMORY, "park: no memory for the records of a backup");
  stage->runs[stage->run_count++] = (tide__stage_run){ .offset = offset };
  stage->is_cut = false;
  return TIDE_OK;
}

tide_status tide__stage_add(tide__stage* stage, uint64_t offset, uint64_t bytes) {
  while (bytes > 0) {
    tide__stage_run* last = stage->run_count > 0 ? &stage->runs[stage->run_count - 1] : NULL;
    const bool fits = !stage->is_cut && last->bytes < stage->store->slot_bytes;
    if (!fits || last->offset + last->bytes != offset) TIDE_TRY(run_add(stage, offset));
    last = &stage->runs[stage->run_count - 1];
    const uint64_t some = tide__min(bytes, stage->store->slot_bytes - last->bytes);
    last->bytes += some;
    offset += some;
    bytes -= some;
  }
  return TIDE_OK;
}

void tide__stage_cut(tide__stage* stage) { stage->is_cut = true; }

// ---------------------------------------------------------------------------------------------------
// The threads

static tide__store* stage_ring(const tide__stage* stage) { return stage->device->carrier->ring; }

static void* slot_of(const tide__stage* stage, size_t run) {
  uint64_t bytes = stage->store->slot_bytes;
  return tide__store_window(stage_ring(stage), run % stage->slot_count * bytes, &bytes);
}

static tide_status slot_synchronize(const tide__stage* stage, size_t run) {
  const tide_event event = stage->device->carrier->slots[run % stage->slot_count];
  return tide_machine_event_synchronize(stage->device->machine, event);
}

static tide_status run_write(tide__stage* stage, size_t run) {
  const tide__stage_run* const it = &stage->runs[run];
  TIDE_TRY(slot_synchronize(stage, run));
  return tide__store_write(stage->store, it->offset, it->bytes, slot_of(stage, run));
}

// What cannot be read is lost, but not a failure.
static tide_status run_read(tide__stage* stage, size_t run, bool* out_lost) {
  const tide__stage_run* const it = &stage->runs[run];
  if (run >= stage->slot_count) TIDE_TRY(slot_synchronize(stage, run));
  *out_lost = tide__store_read(stage->store, it->offset, it->bytes, slot_of(stage, run)) != TIDE_OK;
  return TIDE_OK;
}

// To a store: the copies to the slot are queued. From a store: those of the run before it in the same slot.
static bool run_can_begin_locked(const tide__stage* stage, size_t run) {
  if (!stage->is_fetch) return stage->runs[run].state == RUN_QUEUED;
  return run < stage->slot_count || stage->runs[run - stage->slot_count].state == RUN_QUEUED;
}

static void run_move(tide__stage* stage, size_t run) {
  bool is_lost = false;
  const tide_status status = stage->is_fetch ? run_read(stage, run, &is_lost) : run_write(stage, run);
  const uint8_t after = is_lost ? RUN_LOST : stage->is_fetch ? RUN_READY : RUN_DONE;
  tide__mutex_lock(&stage->lock);
  if (status == TIDE_OK) {
    stage->runs[run].state = after;
  } else if (stage->status == TIDE_OK) {
    stage->status = status;
    stage->error = *tide_last_error();
  }
  tide__signal_all(&stage->changed);
  tide__mutex_unlock(&stage->lock);
}

// Takes the next run, when it can begin. False at the end.
static bool run_take(tide__stage* stage, size_t* out) {
  tide__mutex_lock(&stage->lock);
  const size_t run = stage->next;
  const bool is_left = run < stage->run_count;
  if (is_left) stage->next++;
  while (is_left && !stage->is_ending && stage->status == TIDE_OK && !run_can_begin_locked(stage, run)) {
    tide__signal_wait(&stage->changed, &stage->lock);
  }
  const bool goes_on = is_left && !stage->is_ending && stage->status == TIDE_OK;
  tide__mutex_unlock(&stage->lock);
  *out = run;
  return goes_on;
}

static void* stage_run(void* user) {
  tide__stage* const stage = user;
  size_t run = 0;
  const tide__relaxed relaxed = tide__relax_or_not(stage->device->machine);
  while (run_take(stage, &run)) run_move(stage, run);
  tide__relax_end(&relaxed);
  return NULL;
}

// The events are made before threads see them. The ring of an earlier call is there only if it could not be
// closed.
tide_status tide__stage_start(tide__stage* stage) {
  tide__carrier* const carrier = stage->device->carrier;
  const tide__store* const store = stage->store;
  stage->slot_count =
      (uint32_t)tide__min(tide__min(store->slot_count, TIDE__CARRIER_SLOTS), stage->run_count);
  if (stage->slot_count == 0) return TIDE_OK;
  TIDE_TRY(tide__carrier_close_ring(stage->device));
  TIDE_TRY(tide__store_new(stage->device, TIDE_BACKUP_PINNED, NULL, stage->slot_count * store->slot_bytes,
                           &carrier->ring));
  carrier->ring->chunk_bytes = store->slot_bytes;
  carrier->ring->thread_count = store->thread_count;
  TIDE_TRY(tide__store_prepare(carrier->ring));
  for (uint32_t i = 0; i < stage->slot_count; i++) {
    TIDE_TRY(tide__carrier_mark(stage->device, &carrier->slots[i]));
    (void)tide__chunk_wait(carrier->ring, i);
  }
  tide__crew_start(&stage->crew, tide__min(store->thread_count, stage->run_count), stage_run, stage);
  return TIDE_OK;
}

void tide__stage_fini(tide__stage* stage) {
  tide__mutex_lock(&stage->lock);
  stage->is_ending = true;
  tide__signal_all(&stage->changed);
  tide__mutex_unlock(&stage->lock);
  tide__crew_join(&stage->crew);
  tide__heap_release(stage->device->heap, stage->runs, stage->run_capacity, sizeof *stage->runs);
  tide__signal_fini(&stage->changed);
  tide__mutex_fini(&stage->lock);
}

// ---------------------------------------------------------------------------------------------------
// The thread that queues copies

// Waits for a state of a run.
static tide_status state_wait(tide__stage* stage, size_t run, uint8_t state, uint8_t* out) {
  if (stage->crew.count == 0) {
    while (stage->next <= run && stage->status == TIDE_OK) run_move(stage, stage->next++);
  }
  tide__mutex_lock(&stage->lock);
  while (stage->status == TIDE_OK && stage->runs[run].state < state) {
    tide__signal_wait(&stage->changed, &stage->lock);
  }
  const tide_status status = stage->status;
  *out = stage->runs[run].state;
  tide__mutex_unlock(&stage->lock);
  if (status != TIDE_OK) tide__error_restore(&stage->error);
  return status;
}

tide_status tide__stage_place(tide__stage* stage, uint64_t* bytes, void** out, bool* out_lost) {
  const size_t run = stage->run;
  uint8_t state = RUN_FREE;
  *out_lost = false;
  if (stage->is_fetch) {
    TIDE_TRY(state_wait(stage, run, RUN_READY, &state));
    *out_lost = state == RUN_LOST;
  } else if (run >= stage->slot_count) {
    TIDE_TRY(state_wait(stage, run - stage->slot_count, RUN_DONE, &state));
  }
  *bytes = tide__min(*bytes, stage->runs[run].bytes - stage->run_done);
  *out = (char*)slot_of(stage, run) + stage->run_done;
  return TIDE_OK;
}

tide_status tide__stage_queued(tide__stage* stage, uint64_t bytes) {
  stage->run_done += bytes;
  if (stage->run_done < stage->runs[stage->run].bytes) return TIDE_OK;
  TIDE_TRY(tide__carrier_mark(stage->device, &stage->device->carrier->slots[stage->run % stage->slot_count]));
  tide__mutex_lock(&stage->lock);
  stage->runs[stage->run].state = RUN_QUEUED;
  tide__signal_all(&stage->changed);
  tide__mutex_unlock(&stage->lock);
  stage->run++;
  stage->run_done = 0;
  return TIDE_OK;
}

size_t tide__stage_begun(const tide__stage* stage) { return stage->run + (stage->run_done > 0 ? 1 : 0); }

tide_status tide__stage_wait(tide__stage* stage, size_t runs) {
  for (uint8_t state = RUN_FREE; stage->written < runs; stage->written++) {
    TIDE_TRY(state_wait(stage, stage->written, RUN_DONE, &state));
  }
  return TIDE_OK;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: the way of contents that do not lie in locked memory. The machine copies between the device
// and a ring of locked memory, and threads move bytes between the ring and the store. Without threads, the
// thread that queues copies does that itself.
#include "device/park/carrier.h"

#include "base/sys.h"
#include "core/capture.h"
#include "machine/pages.h"

// The states of a run. To a store: free, queued, done. From a store: free, ready, queued.
enum { RUN_FREE, RUN_READY, RUN_QUEUED, RUN_DONE, RUN_LOST };

void tide__relay_init(tide__relay* relay, tide_device_cache* device, tide__store* store, bool is_fetch) {
  *relay = (tide__relay){ .device = device, .store = store, .is_fetch = is_fetch, .is_cut = true };
  tide__mutex_init(&relay->lock, TIDE__RANK_LEAF);
  tide__signal_init(&relay->changed);
}

static tide_status run_add(tide__relay* relay, uint64_t offset) {
  TIDE_REQUIRE(tide__heap_grow(relay->device->heap, (void**)&relay->runs, &relay->run_capacity,
                               relay->run_count + 1, sizeof *relay->runs),
               TIDE_ERR_NO_MEMORY, "park: no memory for the records of a backup");
  relay->runs[relay->run_count++] = (tide__relay_run){ .offset = offset };
  relay->is_cut = false;
  return TIDE_OK;
}

tide_status tide__relay_add(tide__relay* relay, uint64_t offset, uint64_t bytes) {
  while (bytes > 0) {
    tide__relay_run* last = relay->run_count > 0 ? &relay->runs[relay->run_count - 1] : NULL;
    const bool fits = last != NULL && !relay->is_cut && last->bytes < relay->store->slot_bytes;
    if (!fits || last->offset + last->bytes != offset) TIDE_TRY(run_add(relay, offset));
    last = &relay->runs[relay->run_count - 1];
    const uint64_t some = tide__min(bytes, relay->store->slot_bytes - last->bytes);
    last->bytes += some;
    offset += some;
    bytes -= some;
  }
  return TIDE_OK;
}

void tide__relay_cut(tide__relay* relay) { relay->is_cut = true; }

// ---------------------------------------------------------------------------------------------------
// The threads

static tide__store* relay_ring(const tide__relay* relay) { return relay->device->carrier->ring; }

static void* slot_of(const tide__relay* relay, size_t run) {
  const uint64_t slot = run % relay->slot_count;
  return tide__pointer(relay_ring(relay)->address + slot * relay->slot_bytes);
}

static tide_status slot_synchronize(const tide__relay* relay, size_t run) {
  const tide_event event = relay->device->carrier->slots[run % relay->slot_count];
  return tide_machine_event_synchronize(relay->device->machine, event);
}

static tide_status run_write(tide__relay* relay, size_t run) {
  const tide__relay_run* const it = &relay->runs[run];
  TIDE_TRY(slot_synchronize(relay, run));
  return tide__store_write(relay->store, it->offset, it->bytes, slot_of(relay, run));
}

// What cannot be read is lost, but not a failure.
static tide_status run_read(tide__relay* relay, size_t run, bool* out_lost) {
  const tide__relay_run* const it = &relay->runs[run];
  if (run >= relay->slot_count) TIDE_TRY(slot_synchronize(relay, run));
  *out_lost = tide__store_read(relay->store, it->offset, it->bytes, slot_of(relay, run)) != TIDE_OK;
  return TIDE_OK;
}

// To a store: the copies to the slot are queued. From a store: those of the run before it in the same slot.
static bool run_can_begin_locked(const tide__relay* relay, size_t run) {
  if (!relay->is_fetch) return relay->runs[run].state == RUN_QUEUED;
  return run < relay->slot_count || relay->runs[run - relay->slot_count].state == RUN_QUEUED;
}

static void run_move(tide__relay* relay, size_t run) {
  bool is_lost = false;
  const tide_status status = relay->is_fetch ? run_read(relay, run, &is_lost) : run_write(relay, run);
  const uint8_t after = is_lost ? RUN_LOST : relay->is_fetch ? RUN_READY : RUN_DONE;
  tide__mutex_lock(&relay->lock);
  if (status == TIDE_OK) {
    relay->runs[run].state = after;
  } else if (relay->status == TIDE_OK) {
    relay->status = status;
    relay->error = *tide_last_error();
  }
  tide__signal_all(&relay->changed);
  tide__mutex_unlock(&relay->lock);
}

// Takes the next run, when it can begin. False at the end.
static bool run_take(tide__relay* relay, size_t* out) {
  tide__mutex_lock(&relay->lock);
  const size_t run = relay->next;
  const bool is_left = run < relay->run_count;
  if (is_left) relay->next++;
  while (is_left && !relay->is_ending && relay->status == TIDE_OK && !run_can_begin_locked(relay, run)) {
    tide__signal_wait(&relay->changed, &relay->lock);
  }
  const bool goes_on = is_left && !relay->is_ending && relay->status == TIDE_OK;
  tide__mutex_unlock(&relay->lock);
  *out = run;
  return goes_on;
}

static void* relay_run(void* user) {
  tide__relay* const relay = user;
  size_t run = 0;
  const tide__relaxed relaxed = tide__relax_or_not(relay->device->machine);
  while (run_take(relay, &run)) run_move(relay, run);
  tide__relax_end(&relaxed);
  return NULL;
}

// No larger than the largest run needs. No slot goes across the border of two pieces of the ring, which have
// at least 2 MiB.
static uint64_t slot_bytes_needed(const tide__relay* relay) {
  uint64_t most = 0;
  uint64_t bytes = tide__sys_page_bytes();
  for (size_t i = 0; i < relay->run_count; i++) most = tide__max(most, relay->runs[i].bytes);
  if (most > TIDE__PAGES_HUGE_BYTES) return tide__round_up(most, TIDE__PAGES_HUGE_BYTES);
  while (bytes < most) bytes *= 2;
  return bytes;
}

// The events are made before threads see them. The ring of an earlier call is there only if it could not be
// closed.
tide_status tide__relay_start(tide__relay* relay) {
  tide__carrier* const carrier = relay->device->carrier;
  const tide__store* const store = relay->store;
  relay->slot_count =
      (uint32_t)tide__min(tide__min(store->slot_count, TIDE__CARRIER_SLOTS), relay->run_count);
  relay->slot_bytes = slot_bytes_needed(relay);
  if (relay->slot_count == 0) return TIDE_OK;
  TIDE_TRY(tide__carrier_close_ring(relay->device));
  TIDE_TRY(tide__store_new(relay->device, TIDE_BACKUP_PINNED, NULL, relay->slot_count * relay->slot_bytes,
                           &carrier->ring));
  carrier->ring->piece_bytes = relay->slot_bytes;
  carrier->ring->thread_count = store->thread_count;
  TIDE_TRY(tide__store_prepare(carrier->ring));
  for (uint32_t i = 0; i < relay->slot_count; i++) {
    TIDE_TRY(tide__carrier_mark(relay->device, &carrier->slots[i]));
    uint64_t bytes = relay->slot_bytes;
    (void)tide__store_window(carrier->ring, i * bytes, &bytes);
  }
  tide__crew_start(&relay->crew, tide__min(store->thread_count, relay->run_count), relay_run, relay);
  return TIDE_OK;
}

void tide__relay_fini(tide__relay* relay) {
  tide__mutex_lock(&relay->lock);
  relay->is_ending = true;
  tide__signal_all(&relay->changed);
  tide__mutex_unlock(&relay->lock);
  tide__crew_join(&relay->crew);
  tide__heap_release(relay->device->heap, relay->runs, relay->run_capacity, sizeof *relay->runs);
  tide__signal_fini(&relay->changed);
  tide__mutex_fini(&relay->lock);
}

// ---------------------------------------------------------------------------------------------------
// The thread that queues copies

// Waits for a state of a run.
static tide_status state_wait(tide__relay* relay, size_t run, uint8_t state, uint8_t* out) {
  if (relay->crew.count == 0) {
    while (relay->next <= run && relay->status == TIDE_OK) run_move(relay, relay->next++);
  }
  tide__mutex_lock(&relay->lock);
  while (relay->status == TIDE_OK && relay->runs[run].state < state) {
    tide__signal_wait(&relay->changed, &relay->lock);
  }
  const tide_status status = relay->status;
  *out = relay->runs[run].state;
  tide__mutex_unlock(&relay->lock);
  if (status != TIDE_OK) tide__error_restore(&relay->error);
  return status;
}

tide_status tide__relay_place(tide__relay* relay, uint64_t* bytes, void** out, bool* out_lost) {
  const size_t run = relay->run;
  uint8_t state = RUN_FREE;
  *out_lost = false;
  if (relay->is_fetch) {
    TIDE_TRY(state_wait(relay, run, RUN_READY, &state));
    *out_lost = state == RUN_LOST;
  } else if (run >= relay->slot_count) {
    TIDE_TRY(state_wait(relay, run - relay->slot_count, RUN_DONE, &state));
  }
  *bytes = tide__min(*bytes, relay->runs[run].bytes - relay->run_done);
  *out = (char*)slot_of(relay, run) + relay->run_done;
  return TIDE_OK;
}

tide_status tide__relay_queued(tide__relay* relay, uint64_t bytes) {
  relay->run_done += bytes;
  if (relay->run_done < relay->runs[relay->run].bytes) return TIDE_OK;
  TIDE_TRY(tide__carrier_mark(relay->device, &relay->device->carrier->slots[relay->run % relay->slot_count]));
  tide__mutex_lock(&relay->lock);
  relay->runs[relay->run].state = RUN_QUEUED;
  tide__signal_all(&relay->changed);
  tide__mutex_unlock(&relay->lock);
  relay->run++;
  relay->run_done = 0;
  return TIDE_OK;
}

size_t tide__relay_begun(const tide__relay* relay) { return relay->run + (relay->run_done > 0 ? 1 : 0); }

tide_status tide__relay_wait(tide__relay* relay, size_t runs) {
  for (uint8_t state = RUN_FREE; relay->written < runs; relay->written++) {
    TIDE_TRY(state_wait(relay, relay->written, RUN_DONE, &state));
  }
  return TIDE_OK;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Uses: which streams a block was announced to. A use is a record with an event of its own, taken when
// the use is announced, carried by the block until it is released, then by the queue of the stream until
// the event has passed; so announcing takes memory, and releasing takes none.
//
// The uses of a block are guarded by one word of the block: bit 0 says that somebody looks at them, bit 1
// that there are some. Who announces sets bit 0 and then looks whether the handle is still good; who
// releases ends the handle and then looks at the word. So either the use is found by the release, or the
// announcement finds the handle gone; and a release of a block without uses writes nothing here.
#include "base/sys.h"
#include "pinned/pinned_cache.h"

enum { USES_LOCKED = 1, USES_SOME = 2 };
enum { FRONT_USES = 64 };  // idle records at hand
enum { MANY_USES = 8 };    // events of one block

// ---------------------------------------------------------------------------------------------------
// Records

static tide__pin_use* use_pop(tide__pin_use** list) {
  tide__pin_use* const use = *list;
  if (use != NULL) *list = use->next;
  return use;
}

static void use_push(tide__pin_use** list, tide__pin_use* use) {
  use->next = *list;
  *list = use;
}

static tide__pin_use* use_take_idle(tide_pinned* pinned, int device) {
  tide__pin_use* use = NULL;
  tide__pin_front* const front = tide__pin_enter(pinned);
  if (front->uses != NULL && front->uses->device == device) use = use_pop(&front->uses);
  if (use != NULL) front->use_count--;
  tide__pin_leave(front);
  if (use != NULL) return use;
  tide__mutex_lock(&pinned->pending.lock);
  use = use_pop(&pinned->pending.idle_uses[device]);
  tide__mutex_unlock(&pinned->pending.lock);
  return use;
}

static tide_status use_make(tide_pinned* pinned, int device, tide__pin_use** out) {
  tide__pin_use* const use = tide__heap_alloc(pinned->heap, 1, sizeof *use);
  TIDE_REQUIRE(use != NULL, TIDE_ERR_NO_MEMORY, "pinned: no memory for the record of an event");
  const tide_status status = tide_machine_event_new(pinned->machine, device, &use->event);
  if (status != TIDE_OK) {
    tide__heap_release(pinned->heap, use, 1, sizeof *use);
    return status;
  }
  use->device = device;
  tide__mutex_lock(&pinned->pending.lock);
  use->queue.next = pinned->pending.idle_queues;
  pinned->pending.idle_queues = &use->queue;
  tide__mutex_unlock(&pinned->pending.lock);
  *out = use;
  return TIDE_OK;
}

tide_status tide__pin_use_take(tide_pinned* pinned, int device, tide__pin_use** out) {
  *out = use_take_idle(pinned, device);
  if (*out == NULL) TIDE_TRY(use_make(pinned, device, out));
  (*out)->is_recorded = false;
  (*out)->next = NULL;
  (*out)->block = NULL;
  return TIDE_OK;
}

void tide__pin_use_give_locked(tide_pinned* pinned, tide__pin_front* front, tide__pin_use* use) {
  if (front->use_count < FRONT_USES) {
    use_push(&front->uses, use);
    front->use_count++;
    return;
  }
  tide__mutex_lock(&pinned->pending.lock);
  use_push(&pinned->pending.idle_uses[use->device], use);
  tide__mutex_unlock(&pinned->pending.lock);
}

void tide__pin_use_give(tide_pinned* pinned, tide__pin_use* use) {
  tide__pin_front* const front = tide__pin_enter(pinned);
  tide__pin_use_give_locked(pinned, front, use);
  tide__pin_leave(front);
}

void tide__pin_uses_free(tide_pinned* pinned, tide__pin_use* use) {
  while (use != NULL) {
    tide__pin_use* const next = use->next;
    tide__ignore(tide_machine_event_free(pinned->machine, use->event));
    tide__heap_release(pinned->heap, use, 1, sizeof *use);
    use = next;
  }
}

// ---------------------------------------------------------------------------------------------------
// The uses of a block

static void uses_lock(tide__pin* block) {
  for (uint32_t turn = 0;; turn++) {
    uint32_t word = tide__load_relaxed(&block->use_word);
    if ((word & USES_LOCKED) == 0 &&
        atomic_compare_exchange_strong(&block->use_word, &word, word | USES_LOCKED)) {
      return;
    }
    if (turn < 64) tide__cpu_relax();
    else tide__sys_sleep_ns(20000);  // the other thread may have lost its processor
  }
}

static void uses_unlock(tide__pin* block) {
  tide__store_release(&block->use_word, block->uses != NULL ? USES_SOME : 0);  // pairs with uses_lock
}

tide__pin_use* tide__pin_uses_take(tide__pin* block) {
  if (tide__load_seq(&block->use_word) == 0) return NULL;
  uses_lock(block);
  tide__pin_use* const uses = block->uses;
  block->uses = NULL;
  uses_unlock(block);
  return uses;
}

tide_status tide__pin_use_record(tide_pinned* pinned, tide__pin_use* use) {
  TIDE_TRY(tide_machine_event_record(pinned->machine, use->device, use->event, use->stream));
  use->ticket = tide__add_relaxed(&pinned->pending.tickets, 1);
  use->is_recorded = true;
  return TIDE_OK;
}

// Has the block a use of this stream that is only noted? It covers all that comes until the release.
static bool uses_have_note_locked(const tide__pin* block, const tide__pin_use* use) {
  const tide__pin_use* other = block->uses;
  for (; other != NULL; other = other->next) {
    if (!other->is_recorded && other->stream == use->stream && other->device == use->device) return true;
  }
  return false;
}

// The oldest recorded use, if there are more than a few; else NULL. Events of one stream are all kept,
// because a stream may have been freed between them, and another may have its name now.
static const tide__pin_use* uses_oldest_locked(const tide__pin* block) {
  const tide__pin_use* oldest = NULL;
  uint32_t count = 0;
  for (const tide__pin_use* use = block->uses; use != NULL; use = use->next) {
    if (!use->is_recorded) continue;
    count++;
    if (oldest == NULL || use->ticket < oldest->ticket) oldest = use;
  }
  return count > MANY_USES ? oldest : NULL;
}

// Gives a use to a block whose handle has this generation; if it is over, nothing is done. *out_old is a
// copy of the oldest use if there are many.
static bool uses_add(tide_pinned* pinned, tide__pin* block, uint32_t generation, tide__pin_use* use,
                     tide__pin_use* out_old) {
  uses_lock(block);
  const bool is_live = tide__load_seq(&block->slot.generation) == generation;
  const bool is_spare = !is_live || uses_have_note_locked(block, use);
  if (!is_spare) use_push(&block->uses, use);
  const tide__pin_use* const old = is_live ? uses_oldest_locked(block) : NULL;
  if (old != NULL) *out_old = *old;
  uses_unlock(block);
  if (is_spare) tide__pin_use_give(pinned, use);
  return is_live;
}

// Takes the use with this ticket off a block, if it still has it.
static void uses_remove(tide_pinned* pinned, tide__pin* block, uint32_t generation, uint64_t ticket) {
  tide__pin_use* found = NULL;
  uses_lock(block);
  if (tide__load_seq(&block->slot.generation) == generation) {
    tide__pin_use** place = &block->uses;
    while (*place != NULL && (!(*place)->is_recorded || (*place)->ticket != ticket)) place = &(*place)->next;
    found = *place;
    if (found != NULL) *place = found->next;
  }
  uses_unlock(block);
  if (found != NULL) tide__pin_use_give(pinned, found);
}

// So that a block that lives long and is announced often does not gather events: the oldest goes if its
// work is done.
static void uses_prune(tide_pinned* pinned, tide__pin* block, uint32_t generation, const tide__pin_use* old) {
  bool is_done = false;
  const tide_error before = *tide_last_error();
  const tide__pin_mode mode = tide__pin_relax(pinned);
  const tide_status status = tide_machine_event_query(pinned->machine, old->event, &is_done);
  tide__pin_unrelax(pinned, mode);
  if (status != TIDE_OK) tide__error_restore(&before);
  if (is_done) uses_remove(pinned, block, generation, old->ticket);
}

bool tide__pin_stream_is_captured(tide_pinned* pinned, int device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  const tide_error before = *tide_last_error();
  if (tide_machine_capture_info(pinned->machine, device, stream, &state, &id) == TIDE_OK) {
    return state != TIDE_CAPTURE_NONE;
  }
  tide__error_restore(&before);
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status pin_record_use(tide_pinned* pinned, const char* call, tide_block block, int device,
                                  tide_stream stream, bool is_now) {
  tide__pin* found = NULL;
  tide__pin_use* use = NULL;
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE_REQUIRE(device >= 0 && device < tide_machine_device_count(pinned->machine), TIDE_ERR_DEVICE,
               "%s: there is no device %d", call, device);
  if (block.address == NULL) return TIDE_OK;
  TIDE_TRY(tide__pin_name(pinned, call, block, &found, &generation));
  TIDE_TRY(tide__pin_use_take(pinned, device, &use));
  use->stream = stream;
  if (is_now && !tide__pin_stream_is_captured(pinned, device, stream)) {
    const tide_status status = tide__pin_use_record(pinned, use);
    if (status != TIDE_OK) {
      tide__pin_use_give(pinned, use);
      return status;
    }
  }
  tide__pin_use old = { .event = NULL };
  TIDE_REQUIRE(uses_add(pinned, found, generation, use, &old), TIDE_ERR_STATE,
               "%s: the block at %p was released meanwhile", call, block.address);
  if (old.event != NULL) uses_prune(pinned, found, generation, &old);
  return TIDE_OK;
}

tide_status tide_pinned_record(tide_pinned* pinned, tide_block block, int device, tide_stream stream) {
  return pin_record_use(pinned, "pinned_record", block, device, stream, stream == TIDE_STREAM_PER_THREAD);
}

tide_status tide_pinned_record_now(tide_pinned* pinned, tide_block block, int device, tide_stream stream) {
  return pin_record_use(pinned, "pinned_record_now", block, device, stream, true);
}

// Does a range lie in a block?
static bool block_has(const tide__pin* block, const void* address, uint64_t bytes) {
  const uint64_t begin = tide__address(address);
  const uint64_t first = tide__pin_address(block);
  uint64_t end = 0;
  return tide__add(begin, bytes, &end) && begin >= first && end <= first + tide__pin_bytes(block);
}

tide_status tide_pinned_copy(tide_pinned* pinned, tide_block block, int device, tide_stream stream,
                             void* destination, const void* source, size_t bytes) {
  tide__pin* found = NULL;
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL && block.address != NULL, TIDE_ERR_ARGUMENT, "pinned_copy: no cache or block");
  TIDE_TRY(tide__pin_name(pinned, "pinned_copy", block, &found, &generation));
  const bool is_read = block_has(found, source, bytes);
  TIDE_REQUIRE(is_read || block_has(found, destination, bytes), TIDE_ERR_ARGUMENT,
               "pinned_copy: neither %p nor %p begins %zu bytes inside the block at %p", destination, source,
               bytes, block.address);
  const bool is_thread_stream = stream == TIDE_STREAM_PER_THREAD;
  if (!is_thread_stream) TIDE_TRY(tide_pinned_record(pinned, block, device, stream));
  TIDE_TRY(tide_machine_copy(pinned->machine, device, stream, destination, source, bytes));
  if (is_read) tide__pin_copy_note(pinned, found, device, stream, source, bytes);
  return is_thread_stream ? tide_pinned_record_now(pinned, block, device, stream) : TIDE_OK;
}

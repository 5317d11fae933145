// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Uses: which streams a block was announced to. A use is a wait record (core/stream_waits.h), taken when the
// use is announced and carried by the block until it is released. So announcing takes memory, and releasing
// takes none. When its event has passed, the block keeps the record for its next use, until the block leaves
// the tcache.
//
// The uses of a block are guarded by one word of the block: bit 0 says that somebody looks at them, bit 1
// that there may be some. Who announces sets bit 0 and then looks whether the handle is still good; who
// releases ends the handle and then looks at the word. So either the use is found by the release, or the
// announcement finds the handle gone and leaves the uses alone. If the release finds bit 0 clear, all uses
// are its own, and it takes them without a lock; bit 1 stays, for the next announcement.
#include "base/sys.h"
#include "pinned/pinned_cache.h"

enum { USES_LOCKED = 1, USES_SOME = 2 };
enum { FRONT_USES = 64 };  // idle records at hand
enum { MANY_USES = 8 };    // events of one block

// ---------------------------------------------------------------------------------------------------
// Records

static tide__wait* use_pop(tide__wait** list) {
  tide__wait* const use = *list;
  if (use != NULL) *list = use->next;
  return use;
}

static void use_push(tide__wait** list, tide__wait* use) {
  use->next = *list;
  *list = use;
}

// Fills an empty tcache with idle records of a device.
static void uses_fill_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, int device) {
  uint32_t count = 0;
  if (tcache->use_count >= FRONT_USES / 2) return;
  tide__wait* list =
      tide__waits_take_idle(&pinned->waits, device, FRONT_USES / 2 - tcache->use_count, &count);
  while (list != NULL) use_push(&tcache->uses, use_pop(&list));
  tcache->use_count += count;
}

static tide__wait* use_take_idle(tide_pinned_cache* pinned, int device) {
  tide__wait* use = NULL;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  if (tcache->uses == NULL || tcache->uses->device != device) uses_fill_locked(pinned, tcache, device);
  if (tcache->uses != NULL && tcache->uses->device == device) {
    use = use_pop(&tcache->uses);
    tcache->use_count--;
  }
  tide__pin_leave(tcache);
  return use;
}

static tide_status use_take(tide_pinned_cache* pinned, int device, tide_stream stream, tide__wait** out) {
  *out = use_take_idle(pinned, device);
  if (*out == NULL) TIDE_TRY(tide__wait_make(&pinned->waits, device, out));
  tide__wait_reset(*out, stream);
  return TIDE_OK;
}

static void uses_give_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__wait* list) {
  while (list != NULL && tcache->use_count < FRONT_USES) {
    use_push(&tcache->uses, use_pop(&list));
    tcache->use_count++;
  }
  tide__waits_give(&pinned->waits, list);
}

void tide__pin_uses_give(tide_pinned_cache* pinned, tide__wait* list) {
  if (list == NULL) return;
  tide__pin_tcache* const tcache = tide__pin_enter(pinned);
  uses_give_locked(pinned, tcache, list);
  tide__pin_leave(tcache);
}

void tide__pin_spares_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* list) {
  tide__wait* spares = NULL;
  for (; list != NULL; list = list->next) {
    if (list->waiter.spare != NULL) use_push(&spares, list->waiter.spare);
    list->waiter.spare = NULL;
  }
  uses_give_locked(pinned, tcache, spares);
}

static void pin_use_give(tide_pinned_cache* pinned, tide__wait* use) {
  use->next = NULL;
  tide__pin_uses_give(pinned, use);
}

// ---------------------------------------------------------------------------------------------------
// The uses of a block

static inline bool uses_try_lock(tide__pin* block) {
  uint32_t word = tide__load_relaxed(&block->use_word);
  return (word & USES_LOCKED) == 0 &&
         atomic_compare_exchange_strong(&block->use_word, &word, word | USES_LOCKED);
}

static void uses_lock(tide__pin* block) {
  for (uint32_t turn = 0; !uses_try_lock(block); turn++) {
    if (turn < 64) tide__cpu_relax();
    else tide__sys_sleep_ns(20000);  // the other thread may have lost its processor
  }
}

static void uses_unlock(tide__pin* block) {
  const bool has_some = tide__load_relaxed(&block->uses) != NULL;
  tide__store_release(&block->use_word, has_some ? USES_SOME : 0);  // pairs with uses_lock, uses_take
}

tide__wait* tide__pin_uses_take(tide__pin* block) {
  const uint32_t word = tide__load_seq(&block->use_word);
  if (word == 0) return NULL;
  const bool is_locked = (word & USES_LOCKED) != 0;
  if (is_locked) uses_lock(block);
  tide__wait* const uses = tide__load_relaxed(&block->uses);
  tide__store_relaxed(&block->uses, NULL);
  uint32_t some = USES_SOME;
  if (is_locked) uses_unlock(block);
  else if (uses == NULL) (void)atomic_compare_exchange_strong(&block->use_word, &some, 0);
  return uses;
}

// What a use was known by before it may have gone elsewhere.
typedef struct old_use {
  tide_event event;
  uint32_t version;
} old_use;

// Has the block a use of this stream that is only noted? It covers all that comes until the release.
static bool uses_have_note_locked(const tide__pin* block, const tide__wait* use) {
  const tide__wait* other = tide__load_relaxed(&block->uses);
  for (; other != NULL; other = other->next) {
    if (!other->is_recorded && other->stream == use->stream && other->device == use->device) return true;
  }
  return false;
}

// The oldest recorded use, if there are more than a few; else NULL. Events of one stream are all kept,
// because a stream may have been freed between them, and another may have its name now.
static const tide__wait* uses_oldest_locked(const tide__pin* block) {
  const tide__wait* oldest = NULL;
  uint32_t count = 0;
  for (const tide__wait* use = tide__load_relaxed(&block->uses); use != NULL; use = use->next) {
    if (!use->is_recorded) continue;
    count++;
    if (oldest == NULL || use->begin < oldest->begin) oldest = use;
  }
  return count > MANY_USES ? oldest : NULL;
}

// Gives a use to a block whose handle has this generation; if it is over, nothing is done. *out_old names
// the oldest use if there are many.
static bool uses_add(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation, tide__wait* use,
                     old_use* out_old) {
  uses_lock(block);
  const bool is_live = tide__load_seq(&block->slot.generation) == generation;
  const bool is_spare = !is_live || uses_have_note_locked(block, use);
  if (!is_spare) {
    use->next = tide__load_relaxed(&block->uses);
    tide__store_relaxed(&block->uses, use);
  }
  const tide__wait* const old = is_live ? uses_oldest_locked(block) : NULL;
  if (old != NULL) *out_old = (old_use){ old->event, old->version };
  uses_unlock(block);
  if (is_spare) pin_use_give(pinned, use);
  return is_live;
}

// Takes a use off a block, if it still has it.
static void uses_remove(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation,
                        const old_use* old) {
  tide__wait* found = NULL;
  uses_lock(block);
  if (tide__load_seq(&block->slot.generation) == generation) {
    tide__wait* before = NULL;
    found = tide__load_relaxed(&block->uses);
    while (found != NULL && (found->event != old->event || found->version != old->version)) {
      before = found;
      found = found->next;
    }
    if (found != NULL && before != NULL) before->next = found->next;
    else if (found != NULL) tide__store_relaxed(&block->uses, found->next);
  }
  uses_unlock(block);
  if (found != NULL) pin_use_give(pinned, found);
}

// So that a block that lives long and is announced often does not gather events: the oldest goes if its
// work is done.
static void uses_prune(tide_pinned_cache* pinned, tide__pin* block, uint32_t generation, const old_use* old) {
  bool is_done = false;
  tide_error before;
  tide__error_keep(&before);
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  const tide_status status = tide_machine_event_query(pinned->machine, old->event, &is_done);
  tide__relax_end(&relaxed);
  if (status != TIDE_OK) tide__error_restore(&before);
  if (is_done) uses_remove(pinned, block, generation, old);
}

// ---------------------------------------------------------------------------------------------------
// Calls

// The short way: the block has a record left, and was not announced since it was handed out.
static inline bool record_again(tide_pinned_cache* pinned, tide_block name, int device, tide_stream stream) {
  tide__pin* const block = tide__pin_named(pinned, name);
  if (block == NULL || !uses_try_lock(block)) return false;
  const bool is_live = tide__load_seq(&block->slot.generation) == (uint32_t)(name.handle >> 32);
  tide__wait* const use = is_live && tide__load_relaxed(&block->uses) == NULL ? block->waiter.spare : NULL;
  const bool is_done = use != NULL && use->device == device;
  if (is_done) {
    tide__wait_reset(use, stream);
    tide__store_relaxed(&block->uses, use);
    block->waiter.spare = NULL;
  }
  uses_unlock(block);
  return is_done;
}

static __attribute__((noinline)) tide_status pin_record_use(tide_pinned_cache* pinned, const char* call,
                                                            tide_block block, int device, tide_stream stream,
                                                            bool is_now) {
  tide__pin* found = NULL;
  tide__wait* use = NULL;
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE_REQUIRE(device >= 0 && device < pinned->device_count, TIDE_ERR_DEVICE, "%s: there is no device %d",
               call, device);
  if (block.address == NULL) return TIDE_OK;
  TIDE__PIN_REQUIRE_OWN(pinned, call);
  TIDE_TRY(tide__pin_name(pinned, call, block, &found, &generation));
  TIDE_TRY(use_take(pinned, device, stream, &use));
  if (is_now && !tide__capture_has(pinned->machine, device, stream)) {
    const tide_status status = tide__wait_record_early(&pinned->waits, use);
    if (status != TIDE_OK) {
      pin_use_give(pinned, use);
      return status;
    }
  }
  old_use old = { NULL, 0 };
  TIDE_REQUIRE(uses_add(pinned, found, generation, use, &old), TIDE_ERR_STATE,
               "%s: the block at %p was released meanwhile", call, block.address);
  if (old.event != NULL) uses_prune(pinned, found, generation, &old);
  return TIDE_OK;
}

tide_status tide_pinned_record(tide_pinned_cache* pinned, tide_block block, int device, tide_stream stream) {
  const bool is_now = stream == TIDE_STREAM_PER_THREAD;
  if (pinned != NULL && !is_now && record_again(pinned, block, device, stream)) return TIDE_OK;
  return pin_record_use(pinned, "pinned_record", block, device, stream, is_now);
}

tide_status tide_pinned_record_now(tide_pinned_cache* pinned, tide_block block, int device,
                                   tide_stream stream) {
  return pin_record_use(pinned, "pinned_record_now", block, device, stream, true);
}

// Does a range lie in a block?
static bool block_has(const tide__pin* block, const void* address, uint64_t bytes) {
  const uint64_t begin = tide__address(address);
  const uint64_t first = tide__pin_address(block);
  uint64_t end = 0;
  return tide__add(begin, bytes, &end) && begin >= first && end <= first + tide__pin_bytes(block);
}

tide_status tide_pinned_copy(tide_pinned_cache* pinned, tide_block block, int device, tide_stream stream,
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

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Joining and leaving a ledger, taking and giving.
#include "quota/member.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "base/sys.h"

// ---------------------------------------------------------------------------------------------------
// The words of this member

void tide__quota_set_locked(tide_quota* quota, tide__quota_word word, uint64_t value) {
  quota->own[word] = value;
  tide__quota_put(&quota->file, tide__load_relaxed(&quota->slot), word, value);
}

static bool is_share(tide__quota_word word) {
  return word == TIDE__WORD_GUARANTEE || word == TIDE__WORD_LIMIT || word == TIDE__WORD_PRIORITY;
}

static void name_publish(const tide_quota* quota) {
  uint64_t words[TIDE__QUOTA_NAME_WORDS];
  tide__quota_slot* const slot = &quota->file.map->slots[tide__load_relaxed(&quota->slot)];
  memcpy(words, quota->name, sizeof words);
  for (size_t i = 0; i < TIDE__QUOTA_NAME_WORDS; i++) tide__store_relaxed(&slot->name[i], words[i]);
}

// The number of the process is written last.
static void words_publish_locked(tide_quota* quota) {
  name_publish(quota);
  for (int word = TIDE__WORD_COUNT - 1; word >= 0; word--)
    tide__quota_set_locked(quota, (tide__quota_word)word, quota->own[word]);
}

uint64_t tide__quota_now_ms(void) { return tide__sys_clock_ns() / 1000000u & TIDE__QUOTA_VALUE_MASK; }

// Shares come from the file if they are good there. All other words come from here.
static void words_repair_locked(tide_quota* quota) {
  const uint32_t slot = tide__load_relaxed(&quota->slot);
  bool is_damaged = false;
  for (int i = 0; i < TIDE__WORD_COUNT; i++) {
    const tide__quota_word word = (tide__quota_word)i;
    uint64_t value = 0;
    const bool is_good = tide__quota_get(&quota->file, slot, word, &value);
    if (is_good && is_share(word)) quota->own[word] = value;
    if (is_good && value == quota->own[word]) continue;
    tide__quota_set_locked(quota, word, quota->own[word]);
    is_damaged = true;
  }
  if (is_damaged) name_publish(quota);
}

static void seen_forget(tide_quota* quota) {
  memset(quota->seen, 0, sizeof quota->seen);
  for (int slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++)
    quota->seen[slot][TIDE__WORD_GUARANTEE] = TIDE__QUOTA_UNLIMITED;
  memset(quota->answered, 0, sizeof quota->answered);
  quota->round = (tide__quota_round){ .stage = 0 };
}

// Takes a free slot; false: there is none.
static bool slot_find_locked(tide_quota* quota) {
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    if (!tide__quota_slot_take(&quota->file, slot)) continue;
    tide__store_relaxed(&quota->slot, slot);
    tide__store_relaxed(&quota->bell_seen, tide__load_relaxed(&quota->file.map->slots[slot].bell));
    tide__quota_slot_clear(&quota->file, slot);
    return true;
  }
  return false;
}

// Somebody removed the file: this member joins the new one of that name, with all that it holds.
static tide_status file_rejoin_locked(tide_quota* quota, const char* call) {
  TIDE_TRY(tide__quota_file_replace(call, quota->ledger, quota->total, &quota->file));
  TIDE_REQUIRE(slot_find_locked(quota), TIDE_ERR_STATE,
               "%s: the ledger '%s' was removed, and the new one of that name is full", call, quota->ledger);
  seen_forget(quota);
  words_publish_locked(quota);
  return TIDE_OK;
}

tide_status tide__quota_refresh_locked(tide_quota* quota, const char* call) {
  const int error = tide__quota_file_mend(&quota->file);
  if (error == ENOENT) TIDE_TRY(file_rejoin_locked(quota, call));
  else if (error != 0)
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "%s: the ledger '%s' was truncated: %s", call,
                            quota->ledger, strerror(error));
  tide__quota_mend_total(&quota->file, &quota->total);
  words_repair_locked(quota);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Joining

static tide_status options_check(const tide_quota_options* options) {
  const uint64_t guarantee = options->guarantee_bytes;
  const uint64_t limit = options->limit_bytes;
  TIDE_REQUIRE(options->total_bytes <= TIDE_QUOTA_MOST_BYTES, TIDE_ERR_ARGUMENT,
               "quota_join: the total of %llu bytes is too large", (unsigned long long)options->total_bytes);
  TIDE_REQUIRE(limit == TIDE_NO_LIMIT || limit <= TIDE_QUOTA_MOST_BYTES, TIDE_ERR_ARGUMENT,
               "quota_join: the limit of %llu bytes is too large", (unsigned long long)limit);
  TIDE_REQUIRE(guarantee <= TIDE_QUOTA_MOST_BYTES && guarantee <= limit, TIDE_ERR_ARGUMENT,
               "quota_join: the guarantee of %llu bytes is above the limit", (unsigned long long)guarantee);
  TIDE_REQUIRE(options->priority >= -TIDE_QUOTA_PRIORITY && options->priority <= TIDE_QUOTA_PRIORITY,
               TIDE_ERR_ARGUMENT, "quota_join: the priority %d is not between -%d and %d",
               (int)options->priority, TIDE_QUOTA_PRIORITY, TIDE_QUOTA_PRIORITY);
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT, "quota_join: the heap is incomplete");
  return TIDE_OK;
}

// In a child: the lock of the slot belongs to the parent alone.
static void child_close(void* user) {
  tide_quota* const quota = user;
  if (quota->file.descriptor >= 0) tide__sys_file_close(quota->file.descriptor);
  quota->file.descriptor = -1;
}

static void quota_fill(tide_quota* quota, const tide_quota_options* options) {
  tide__mutex_init(&quota->lock, TIDE__RANK_LEAF);
  quota->wait_ns = options->wait_ns;
  quota->on_ask = options->on_ask;
  quota->user = options->user;
  quota->has_helper = options->has_helper;
  (void)snprintf(quota->ledger, sizeof quota->ledger, "%s", options->ledger);
  if (options->name != NULL) (void)snprintf(quota->name, sizeof quota->name, "%s", options->name);
  else tide__sys_command(quota->name, sizeof quota->name);
  uint64_t* const own = quota->own;
  own[TIDE__WORD_PID] = (uint64_t)tide__sys_process();
  own[TIDE__WORD_SPACE] = tide__sys_process_space() & TIDE__QUOTA_VALUE_MASK;
  own[TIDE__WORD_JOINED] = tide__sys_wall_clock_ns() / 1000000000u;
  own[TIDE__WORD_FLAGS] = options->has_helper ? 1 : 0;
  own[TIDE__WORD_GUARANTEE] = tide__quota_units_up(options->guarantee_bytes);
  own[TIDE__WORD_LIMIT] = tide__quota_limit_units(options->limit_bytes);
  own[TIDE__WORD_PRIORITY] = tide__quota_priority_word(options->priority);
  quota->last_request = (uint32_t)tide__sys_random() & ~1u;  // the member before had others
}

// The control lock is held, so that the guarantees together stay within the total.
static tide_status slot_join(tide_quota* quota) {
  const uint64_t guarantee = quota->own[TIDE__WORD_GUARANTEE];
  const uint64_t others = tide__quota_guarantees(&quota->file, UINT32_MAX);
  if (!tide__quota_get_total(&quota->file, &quota->total)) {
    return TIDE_FAIL(TIDE_ERR_FORMAT, "quota_join: the total of the ledger '%s' is damaged", quota->ledger);
  }
  TIDE_REQUIRE(guarantee <= quota->total && others <= quota->total - guarantee, TIDE_ERR_LIMIT,
               "quota_join: a guarantee of %llu bytes and those of others, %llu bytes, exceed the total of "
               "%llu bytes",
               (unsigned long long)tide__quota_bytes(guarantee),
               (unsigned long long)tide__quota_bytes(others),
               (unsigned long long)tide__quota_bytes(quota->total));
  TIDE_REQUIRE(slot_find_locked(quota), TIDE_ERR_LIMIT, "quota_join: the ledger '%s' has %d members already",
               quota->ledger, TIDE_QUOTA_MEMBERS);
  seen_forget(quota);
  words_publish_locked(quota);
  return TIDE_OK;
}

static tide_status ledger_join(tide_quota* quota, const tide_quota_options* options) {
  TIDE_TRY(tide__quota_file_open("quota_join", options->ledger, TIDE__QUOTA_JOINS,
                                 tide__quota_units(options->total_bytes), &quota->file));
  TIDE_TRY(tide__quota_control_take("quota_join", &quota->file));
  const tide_status status = slot_join(quota);
  tide__quota_control_drop(&quota->file);
  return status;
}

static void quota_free(tide_quota* quota) {
  tide__mutex_fini(&quota->lock);
  tide__heap_release(quota->heap, quota, 1, sizeof *quota);
}

// Forks are watched from before the file is open, so that no child keeps its locks.
static tide_status quota_begin(tide_quota* quota, const tide_quota_options* options) {
  quota_fill(quota, options);
  quota->file.descriptor = -1;
  quota->fork_note.in_child = child_close;
  quota->fork_note.user = quota;
  tide__fork_watch(&quota->fork_note, &quota->is_inherited, 1);
  tide_status status = ledger_join(quota, options);
  const int error = status == TIDE_OK && quota->has_helper ? tide__quota_helper_start(quota) : 0;
  if (error != 0) {
    tide__quota_slot_clear(&quota->file, tide__load_relaxed(&quota->slot));
    status = TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "quota_join: no thread: %s", strerror(error));
  }
  if (status == TIDE_OK) return TIDE_OK;
  tide__quota_file_close(&quota->file);
  tide__fork_unwatch(&quota->fork_note);
  return status;
}

tide_status tide_quota_join(const tide_quota_options* options, tide_quota** out) {
  tide_quota_options own = TIDE_QUOTA_OPTIONS_INIT;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "quota_join: no result pointer");
  *out = NULL;
  TIDE_TRY(tide__sized_read("quota_join", options, &own, sizeof own));
  TIDE_TRY(options_check(&own));
  TIDE_REQUIRE(own.ledger != NULL && strlen(own.ledger) < TIDE_QUOTA_LEDGER, TIDE_ERR_ARGUMENT,
               "quota_join: no ledger is named, or its name is too long");
  const tide_heap* const heap = tide__heap_or_system(own.heap);
  tide_quota* const quota = tide__heap_alloc(heap, 1, sizeof *quota);
  TIDE_REQUIRE(quota != NULL, TIDE_ERR_NO_MEMORY, "quota_join: no memory for the member");
  quota->heap = heap;
  const tide_status status = quota_begin(quota, &own);
  if (status == TIDE_OK) *out = quota;
  else quota_free(quota);
  return status;
}

// Others see an empty slot before its lock is dropped.
void tide_quota_leave(tide_quota* quota) {
  if (quota == NULL) return;
  const bool is_inherited = tide__load_relaxed(&quota->is_inherited) != 0;
  if (quota->has_helper && !is_inherited) tide__quota_helper_end(quota);
  tide__fork_unwatch(&quota->fork_note);
  if (!is_inherited) {
    if (tide__sys_page_is_whole(quota->file.descriptor, TIDE__QUOTA_FILE_BYTES)) {
      tide__quota_slot_clear(&quota->file, tide__load_relaxed(&quota->slot));
      tide__quota_wake(&quota->file);
    }
    tide__quota_file_close(&quota->file);
  }
  tide__store_relaxed(&quota->lock.state, 0);  // a thread of the parent may have held it
  quota_free(quota);
}

// ---------------------------------------------------------------------------------------------------
// Taking and giving

static tide_status quota_check(const char* call, const tide_quota* quota, uint64_t bytes) {
  TIDE_REQUIRE(quota != NULL, TIDE_ERR_ARGUMENT, "%s: no quota", call);
  TIDE_REQUIRE(tide__load_relaxed(&quota->is_inherited) == 0, TIDE_ERR_STATE,
               "%s: this process is a child of the member; it must join the ledger itself", call);
  TIDE_REQUIRE(bytes <= TIDE_QUOTA_MOST_BYTES, TIDE_ERR_ARGUMENT, "%s: %llu bytes are too many", call,
               (unsigned long long)bytes);
  return TIDE_OK;
}

// What a take that failed says.
static tide_status take_failed(tide_quota* quota, uint64_t bytes, tide__quota_fit fit, uint64_t waited_ns) {
  tide__mutex_lock(&quota->lock);
  const uint64_t used = quota->used_bytes;
  const uint64_t limit = tide__quota_bytes(tide__min(quota->own[TIDE__WORD_LIMIT], quota->total));
  const uint64_t total = tide__quota_bytes(quota->total);
  tide__mutex_unlock(&quota->lock);
  const unsigned long long more = bytes;
  if (fit == TIDE__QUOTA_OVER) {
    return TIDE_FAIL(TIDE_ERR_LIMIT,
                     "quota_take: %llu bytes more than the %llu held exceed the limit of %llu bytes in the "
                     "ledger '%s'",
                     more, (unsigned long long)used, (unsigned long long)limit, quota->ledger);
  }
  if (fit == TIDE__QUOTA_HOPELESS) {
    return TIDE_FAIL(TIDE_ERR_LIMIT,
                     "quota_take: %llu bytes more than the %llu held do not fit beside the guarantees of "
                     "others in the ledger '%s' of %llu bytes",
                     more, (unsigned long long)used, quota->ledger, (unsigned long long)total);
  }
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY,
                   "quota_take: others hold too much of the %llu bytes of the ledger '%s' for %llu bytes "
                   "more than the %llu held; waited %llu ms for them",
                   (unsigned long long)total, quota->ledger, more, (unsigned long long)used,
                   (unsigned long long)(waited_ns / 1000000u));
}

static void failure_count(tide_quota* quota) {
  tide__mutex_lock(&quota->lock);
  tide__quota_set_locked(quota, TIDE__WORD_FAILURES, quota->own[TIDE__WORD_FAILURES] + 1);
  tide__mutex_unlock(&quota->lock);
}

static tide_status quota_refresh(tide_quota* quota) {
  tide__mutex_lock(&quota->lock);
  const tide_status status = tide__quota_refresh_locked(quota, "quota_take");
  tide__mutex_unlock(&quota->lock);
  return status;
}

// The members that have ended are looked for only if something does not fit.
static tide__quota_fit take_at_once(tide_quota* quota, uint64_t bytes) {
  uint64_t missing = 0;
  tide__mutex_lock(&quota->lock);
  tide__quota_fit fit = tide__quota_try_locked(quota, bytes, &missing);
  const bool is_short = fit == TIDE__QUOTA_FULL || fit == TIDE__QUOTA_HOPELESS;
  if (is_short && tide__quota_reap_locked(quota)) fit = tide__quota_try_locked(quota, bytes, &missing);
  tide__mutex_unlock(&quota->lock);
  return fit;
}

tide_status tide_quota_take(tide_quota* quota, uint64_t bytes) {
  TIDE_TRY(quota_check("quota_take", quota, bytes));
  TIDE_TRY(quota_refresh(quota));
  tide_quota_poll(quota);
  tide__quota_fit fit = take_at_once(quota, bytes);
  if (fit == TIDE__QUOTA_FULL && quota->wait_ns > 0 && !tide__quota_is_answering(quota))
    fit = tide__quota_wait(quota, bytes);
  if (fit == TIDE__QUOTA_FITS) return TIDE_OK;
  failure_count(quota);
  return take_failed(quota, bytes, fit, quota->wait_ns);
}

tide_status tide_quota_take_now(tide_quota* quota, uint64_t bytes) {
  TIDE_TRY(quota_check("quota_take_now", quota, bytes));
  TIDE_TRY(quota_refresh(quota));
  const tide__quota_fit fit = take_at_once(quota, bytes);
  return fit == TIDE__QUOTA_FITS ? TIDE_OK : take_failed(quota, bytes, fit, 0);
}

// What is used falls before the claim, which is never below it. A file that cannot be mended changes nothing
// here: what this member holds is known without it.
tide_status tide_quota_give(tide_quota* quota, uint64_t bytes) {
  TIDE_TRY(quota_check("quota_give", quota, bytes));
  tide__mutex_lock(&quota->lock);
  const uint64_t used = quota->used_bytes;
  if (bytes <= used) {
    const uint64_t units = tide__quota_units_up(used - bytes);
    quota->used_bytes = used - bytes;
    quota->own[TIDE__WORD_USED] = quota->own[TIDE__WORD_CLAIM] = quota->own[TIDE__WORD_COPY] = units;
    tide_error before;
    tide__error_keep(&before);
    if (tide__quota_refresh_locked(quota, "quota_give") == TIDE_OK) tide__quota_wake(&quota->file);
    else tide__error_restore(&before);
  }
  tide__mutex_unlock(&quota->lock);
  TIDE_REQUIRE(bytes <= used, TIDE_ERR_ARGUMENT, "quota_give: %llu bytes are given, but only %llu are held",
               (unsigned long long)bytes, (unsigned long long)used);
  tide_quota_poll(quota);
  return TIDE_OK;
}

uint64_t tide_quota_room(tide_quota* quota) {
  uint64_t most = 0;
  tide_error before;
  if (quota == NULL || tide__load_relaxed(&quota->is_inherited) != 0) return 0;
  tide__error_keep(&before);
  tide__mutex_lock(&quota->lock);
  const bool is_good = tide__quota_refresh_locked(quota, "quota_room") == TIDE_OK;
  if (is_good) {
    (void)tide__quota_reap_locked(quota);
    most = tide__quota_bytes(tide__quota_most_locked(quota));
  }
  const uint64_t used = quota->used_bytes;
  tide__mutex_unlock(&quota->lock);
  if (!is_good) tide__error_restore(&before);
  return most - tide__min(most, used);
}

void tide_quota_poll(tide_quota* quota) {
  if (quota == NULL || quota->has_helper || tide__load_relaxed(&quota->is_inherited) != 0) return;
  if (tide__quota_is_rung(quota, TIDE_QUOTA_PARK)) tide__quota_answer(quota, TIDE_QUOTA_PARK);
}

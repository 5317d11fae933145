// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recording entries and telling observers.
//
// A thread that waits for its turn holds no lock and nothing else that another thread needs to tell its
// entries. Only an observer could block the others, by a call that waits for a later turn; so such a call
// ends the turn of the observer that makes it.
#include "core/history.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/sized.h"
#include "trace/words.h"

enum { MAX_FRAMES = 64 };

static tide__atomic_u64 histories_made;

tide_status tide__history_init(tide__history* history, tide_machine* machine, const tide_heap* heap,
                               tide__atomic_u32* word, uint32_t kept_bit, uint32_t observed_bit) {
  history->machine = machine;
  history->uid = tide__add_relaxed(&histories_made, 1) + 1;
  history->word = word;
  history->kept_bit = kept_bit;
  history->observed_bit = observed_bit;
  history->device = 0;
  tide__store_relaxed(&history->level, TIDE_HISTORY_NEVER);
  tide__store_relaxed(&history->skips, 0);
  tide__ring_init(&history->ring, heap);
  tide__observers_init(&history->observers, word, observed_bit);
  tide__mutex_init(&history->lock, TIDE__RANK_HISTORY);
  history->options = (tide_history_options){ .is_on = false };
  history->next_number = history->latest_ns = 0;
  history->next_turn = history->told_turns = 0;
  tide__signal_init(&history->turn_passed);
  history->names = NULL;
  return tide_intern_new(heap, &history->names);
}

void tide__history_fini(tide__history* history) {
  tide_intern_free(history->names);
  tide__signal_fini(&history->turn_passed);
  tide__mutex_fini(&history->lock);
  tide__observers_fini(&history->observers);
  tide__ring_fini(&history->ring);
}

// ---------------------------------------------------------------------------------------------------
// The journal: entries of this thread that observers were not told about yet. They are told when the thread
// holds nothing, because an observer may call the allocator; until then a trim of many segments makes many.

typedef struct untold_entry {
  uint64_t uid;     // of the history
  uint64_t number;  // of the entry
  uint64_t turn;    // among those about segments; NO_TURN: it has none
  tide_trace_entry entry;
} untold_entry;
#define NO_TURN UINT64_MAX

typedef struct entry_journal {
  untold_entry* entries;  // owned
  size_t first;           // those before were told
  size_t count;
  size_t capacity;
} entry_journal;

static _Thread_local entry_journal journal;
_Thread_local size_t tide__untold_count;
static pthread_once_t journal_once = PTHREAD_ONCE_INIT;
static pthread_key_t journal_key;

static void journal_free(void* value) {
  (void)value;
  tide__heap_release(&tide__system_heap, journal.entries, journal.capacity, sizeof *journal.entries);
  journal = (entry_journal){ .entries = NULL };
  tide__untold_count = 0;
}

static void journal_key_make(void) { (void)pthread_key_create(&journal_key, journal_free); }

void tide__history_make_room(tide__history* history, size_t entries) {
  if (!tide__history_is_observed(history) || journal.capacity - journal.count >= entries) return;
  (void)pthread_once(&journal_once, journal_key_make);
  if (tide__heap_grow(&tide__system_heap, (void**)&journal.entries, &journal.capacity,
                      journal.count + entries, sizeof *journal.entries)) {
    (void)pthread_setspecific(journal_key, &journal);
  }
}

// ---------------------------------------------------------------------------------------------------
// Contexts

uint64_t tide__history_clock(tide__history* history) {
  uint64_t ns = 0;
  tide_error before;
  tide__error_keep(&before);
  if (tide_machine_clock(history->machine, &ns) != TIDE_OK) tide__error_restore(&before);
  return ns;
}

static tide_history_options options_now(tide__history* history) {
  tide__mutex_lock(&history->lock);
  const tide_history_options options = history->options;
  tide__mutex_unlock(&history->lock);
  return options;
}

static uint32_t stack_now(tide__history* history) {
  const tide_history_options options = options_now(history);
  uint64_t frames[MAX_FRAMES];
  uint32_t id = 0;
  if (options.number != NULL) return options.number(options.user);
  if (options.gather == NULL) return 0;
  const size_t count = options.gather(options.user, frames, MAX_FRAMES);
  tide_error before;
  tide__error_keep(&before);
  const tide_status status = tide_intern_add_stack(history->names, frames, tide__min(count, MAX_FRAMES), &id);
  if (status != TIDE_OK) tide__error_restore(&before);
  return status == TIDE_OK ? id : 0;
}

tide__call_context tide__history_context(tide__history* history, uint32_t level, size_t entries) {
  tide__call_context context = { .time_ns = tide__history_clock(history) };
  const bool has_stack = level != 0 && tide__load_relaxed(&history->level) >= level;
  if (has_stack) context.stack = stack_now(history);
  context.note = tide__words_note(history->names);
  tide__history_make_room(history, entries);
  return context;
}

// ---------------------------------------------------------------------------------------------------
// Entries

static bool action_has_turn(uint32_t action) {
  return action >= TIDE_ACTION_SEGMENT_ALLOC && action <= TIDE_ACTION_SEGMENT_UNMAP;
}

// Numbers an entry for observers. Numbers, turns and times have one order.
static void entry_number(tide__history* history, untold_entry* out) {
  const bool has_turn = action_has_turn(out->entry.action);
  tide__mutex_lock(&history->lock);
  out->number = history->next_number++;
  out->turn = has_turn ? history->next_turn++ : NO_TURN;
  history->latest_ns = tide__max(history->latest_ns, out->entry.time_ns);
  out->entry.time_ns = history->latest_ns;
  tide__mutex_unlock(&history->lock);
}

static void entry_complete(const tide__history* history, const tide__call_context* context,
                           tide_trace_entry* entry) {
  const bool shows_stack = tide__load_relaxed(&history->level) >= TIDE_HISTORY_ALLOC;
  entry->time_ns = context->time_ns;
  entry->note = context->note;
  if (!shows_stack) entry->stack = 0;
}

static void entry_keep(tide__history* history, const tide_trace_entry* entry) {
  const bool is_skipped = (tide__load_relaxed(&history->skips) >> entry->action & 1u) != 0;
  if (tide__history_is_kept(history) && !is_skipped) tide__ring_add(&history->ring, entry);
}

static void entry_report(tide__history* history, const tide_trace_entry* entry) {
  if (!tide__history_is_observed(history) || journal.count >= journal.capacity) return;
  untold_entry* const untold = &journal.entries[journal.count++];
  *untold = (untold_entry){ .uid = history->uid, .entry = *entry };
  entry_number(history, untold);
  tide__untold_count++;
}

void tide__history_add(tide__history* history, const tide__call_context* context, tide_trace_entry entry) {
  entry_complete(history, context, &entry);
  entry_keep(history, &entry);
  entry_report(history, &entry);
}

void tide__history_keep(tide__history* history, const tide__call_context* context, tide_trace_entry entry) {
  entry_complete(history, context, &entry);
  entry_keep(history, &entry);
}

void tide__history_report(tide__history* history, const tide__call_context* context, tide_trace_entry entry) {
  entry_complete(history, context, &entry);
  entry_report(history, &entry);
}

uint64_t tide__history_turns(tide__history* history) {
  tide__mutex_lock(&history->lock);
  const uint64_t turns = history->next_turn;
  tide__mutex_unlock(&history->lock);
  return turns;
}

bool tide__history_has_told(tide__history* history, uint64_t turns) {
  tide__mutex_lock(&history->lock);
  const bool has_told = history->told_turns >= turns;
  tide__mutex_unlock(&history->lock);
  return has_told;
}

// ---------------------------------------------------------------------------------------------------
// Telling

// An observer that the thread is inside of.
typedef struct telling {
  struct telling* outer;   // borrowed from the stack of the thread
  tide__history* history;  // borrowed
  uint64_t turn;           // that others wait for; NO_TURN: none
} telling;
static _Thread_local telling* innermost;

// The history of an entry, if it is this one, or one whose observer the thread is inside of; else NULL.
static tide__history* entry_history(const untold_entry* entry, tide__history* history) {
  if (entry->uid == history->uid) return history;
  for (const telling* it = innermost; it != NULL; it = it->outer) {
    if (entry->uid == it->history->uid) return it->history;
  }
  return NULL;
}

static bool journal_has(const tide__history* history) {
  size_t i = journal.first;
  while (i < journal.count && journal.entries[i].uid != history->uid) i++;
  return i < journal.count;
}

// Takes the first entry of such histories out of the journal, and returns its own.
static tide__history* journal_take(tide__history* history, untold_entry* out) {
  size_t i = journal.first;
  tide__history* own = entry_history(&journal.entries[i], history);
  while (own == NULL) own = entry_history(&journal.entries[++i], history);
  *out = journal.entries[i];
  for (; i > journal.first; i--) journal.entries[i] = journal.entries[i - 1];
  if (++journal.first == journal.count) journal.first = journal.count = 0;
  tide__untold_count--;
  return own;
}

static void turn_end(telling* it) {
  if (it->turn == NO_TURN) return;
  it->turn = NO_TURN;
  tide__mutex_lock(&it->history->lock);
  it->history->told_turns++;
  tide__signal_all(&it->history->turn_passed);
  tide__mutex_unlock(&it->history->lock);
}

// Waits for a turn, after ending those that the thread has in observers around.
static void turn_begin(const telling* own) {
  tide__history* const history = own->history;
  if (own->turn == NO_TURN) return;
  for (telling* it = own->outer; it != NULL; it = it->outer) turn_end(it);
  tide__mutex_lock(&history->lock);
  while (history->told_turns != own->turn) tide__signal_wait(&history->turn_passed, &history->lock);
  tide__mutex_unlock(&history->lock);
}

static void invoke_trace(tide__observer_fn function, void* user, void* argument) {
  const untold_entry* const untold = argument;
  ((tide_trace_fn)function)(user, &untold->entry);
}

static void invoke_entries(tide__observer_fn function, void* user, void* argument) {
  const untold_entry* const untold = argument;
  ((tide_entry_fn)function)(user, &untold->entry, untold->number);
}

// Tells the entries from the first on. An observer that calls an allocator makes entries of its own, which
// are told before that call returns. Entries of the calls around it that are still untold come first, in the
// order they happened. So a thread that waits for a turn has told everything before, and two threads, each
// inside an observer, do not wait for one another.
void tide__history_tell_all(tide__history* history) {
  untold_entry untold;
  while (journal_has(history)) {
    tide__history* const teller = journal_take(history, &untold);
    telling own = { innermost, teller, untold.turn };
    turn_begin(&own);
    innermost = &own;
    tide__observers_call(&teller->observers, TIDE__OBSERVE_TRACE, invoke_trace, &untold);
    tide__observers_call(&teller->observers, TIDE__OBSERVE_ENTRIES, invoke_entries, &untold);
    innermost = own.outer;
    turn_end(&own);
  }
}

// ---------------------------------------------------------------------------------------------------
// Entries of no block

static void add_and_tell(tide__history* history, const tide__call_context* context, tide_action action,
                         uint64_t bytes) {
  const tide_trace_entry entry = {
    .bytes = bytes, .stack = context->stack, .action = (uint8_t)action, .device = history->device
  };
  tide__history_add(history, context, entry);
  tide__history_tell(history);
}

tide_status tide__history_annotate(tide__history* history, uint32_t level, const char* text) {
  if (!tide__history_is_recording(history)) return TIDE_OK;
  tide__call_context context = tide__history_context(history, level, TIDE__STEP_ENTRIES);
  TIDE_TRY(tide__words_remark(history->names, text, &context.note));
  add_and_tell(history, &context, TIDE_ACTION_USER_DEFINED, 0);
  return TIDE_OK;
}

void tide__history_add_snapshot(tide__history* history, uint64_t active_bytes) {
  if (!tide__history_is_recording(history)) return;
  const tide__call_context context = tide__history_context(history, TIDE_HISTORY_NEVER, TIDE__STEP_ENTRIES);
  add_and_tell(history, &context, TIDE_ACTION_SNAPSHOT, active_bytes);
}

// ---------------------------------------------------------------------------------------------------
// Options

static tide_status options_check(const char* call, const tide_history_options* options,
                                 tide_history_options* out) {
  TIDE_TRY(tide__sized_read(call, options, out, sizeof *out));
  TIDE_REQUIRE(out->level <= TIDE_HISTORY_ALL, TIDE_ERR_ARGUMENT, "%s: level %u", call, out->level);
  const bool needs_stacks = out->is_on && out->level != TIDE_HISTORY_NEVER;
  TIDE_REQUIRE(!needs_stacks || (out->gather != NULL) != (out->number != NULL), TIDE_ERR_ARGUMENT,
               "%s: level %u needs a function that gathers stacks or one that numbers them", call,
               out->level);
  return TIDE_OK;
}

tide_status tide__history_configure(tide__history* history, const char* call,
                                    const tide_history_options* options) {
  tide_history_options whole = TIDE_HISTORY_OPTIONS_INIT;
  TIDE_TRY(options_check(call, options, &whole));
  if (whole.is_on) TIDE_TRY(tide__ring_resize(&history->ring, tide__max(1, whole.max_entries)));
  if (whole.clears || !whole.is_on) tide__ring_clear(&history->ring);
  tide__mutex_lock(&history->lock);
  history->options = whole;
  tide__store_relaxed(&history->skips, whole.skips);
  tide__store_relaxed(&history->level, whole.is_on ? whole.level : (uint32_t)TIDE_HISTORY_NEVER);
  tide__bits_set(history->word, history->kept_bit, whole.is_on);
  tide__mutex_unlock(&history->lock);
  return whole.is_on ? TIDE_OK : tide__ring_resize(&history->ring, 0);
}

bool tide__history_has_numbers(tide__history* history) { return options_now(history).number != NULL; }

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// History: entries for what happens, with the clock, the call stack and the note of the thread. Entries are
// made while locks are held; observers are told afterwards, from a list of the thread, with none held.
//
// An entry for observers gets its number while the thread has what changed, so in the order of the numbers
// everything happened as it did. Threads tell their own entries, each in its order, and so two threads may
// tell theirs the other way round. Entries about segments also have a turn among themselves: a thread tells
// one when all before were told, and the others wait meanwhile. As nobody tells with a lock or the gate, who
// waits for a turn keeps nobody from telling; only an observer could, by a call that waits for a later turn.
// Such a call ends the turn of the observer that makes it.
#include "base/sized.h"
#include "device/allocator.h"
#include "trace/words.h"

// ---------------------------------------------------------------------------------------------------
// What observers are still to be told

// Entries of this thread that observers were not told about yet. They are told when the thread has neither a
// lock nor the gate, because an observer may call the allocator; until then a trim of many segments may make
// many.
typedef struct untold_entry {
  uint64_t uid;     // of the allocator
  uint64_t number;  // of the entry
  uint64_t turn;    // among those about segments; NO_TURN: it is none
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
_Thread_local size_t tide__untold_count;  // in the journal
static pthread_once_t journal_once = PTHREAD_ONCE_INIT;
static pthread_key_t journal_key;

static void journal_free(void* value) {
  (void)value;
  tide__heap_release(&tide__system_heap, journal.entries, journal.capacity, sizeof *journal.entries);
  journal = (entry_journal){ .entries = NULL };
  tide__untold_count = 0;
}

static void journal_key_make(void) { (void)pthread_key_create(&journal_key, journal_free); }

void tide__history_make_room(tide_device* device, size_t entries) {
  if ((tide__load_relaxed(&device->detours) & TIDE__RECORDS_TRACE) == 0) return;
  if (journal.capacity - journal.count >= entries) return;
  (void)pthread_once(&journal_once, journal_key_make);
  if (tide__heap_grow(&tide__system_heap, (void**)&journal.entries, &journal.capacity,
                      journal.count + entries, sizeof *journal.entries)) {
    (void)pthread_setspecific(journal_key, &journal);
  }
}

// ---------------------------------------------------------------------------------------------------
// Moments

enum { MAX_FRAMES = 64 };

static uint32_t stack_now(tide_device* device) {
  tide__mutex_lock(&device->pools_lock);
  const tide_history_options history = device->history;
  tide__mutex_unlock(&device->pools_lock);
  uint64_t frames[MAX_FRAMES];
  uint32_t id = 0;
  if (history.number != NULL) return history.number(history.user);
  if (history.gather == NULL) return 0;
  const size_t count = history.gather(history.user, frames, MAX_FRAMES);
  const tide_status status =
      tide_intern_add_stack(device->names, frames, count < MAX_FRAMES ? count : MAX_FRAMES, &id);
  return status == TIDE_OK ? id : 0;
}

tide__moment tide__moment_now(tide_device* device, uint32_t level) {
  tide__moment moment = { 0, 0, 0 };
  tide__ignore(tide_machine_clock(device->machine, &moment.time_ns));  // an entry without a time is one still
  if (level != 0 && tide__load_relaxed(&device->history_level) >= level) moment.stack = stack_now(device);
  moment.note = tide__words_note(device->names);
  tide__history_make_room(device, TIDE__STEP_ENTRIES + tide__load_relaxed(&device->most_pieces));
  return moment;
}

// ---------------------------------------------------------------------------------------------------
// Entries

static bool action_has_turn(tide_action action) {
  return action >= TIDE_ACTION_SEGMENT_ALLOC && action <= TIDE_ACTION_SEGMENT_UNMAP;
}

// Numbers an entry for observers. Of entries about segments the numbers and the turns have one order.
static void entry_number(tide_device* device, tide_action action, untold_entry* out) {
  if (!action_has_turn(action)) {
    out->number = tide__add_relaxed(&device->next_entry, 1);
    out->turn = NO_TURN;
    return;
  }
  tide__mutex_lock(&device->turns_lock);
  out->number = tide__add_relaxed(&device->next_entry, 1);
  out->turn = device->next_turn++;
  tide__mutex_unlock(&device->turns_lock);
}

void tide__history_add(tide_device* device, tide_action action, const tide__moment* moment, uint32_t stack,
                       const tide__lane* lane, uint64_t address, uint64_t bytes) {
  const uint32_t recording = tide__load_relaxed(&device->detours);
  const bool shows_stack = tide__load_relaxed(&device->history_level) >= TIDE_HISTORY_ALLOC;
  const tide_trace_entry entry = {
    .time_ns = moment->time_ns,
    .address = address,
    .bytes = bytes,
    .stream = lane != NULL ? tide__address(lane->stream) : 0,
    .stack = shows_stack ? stack : 0,
    .note = moment->note,
    .pool = lane != NULL ? lane->pool->number : 0,
    .action = (uint8_t)action,
    .device = (uint8_t)device->index,
  };
  const bool is_kept = (tide__load_relaxed(&device->history_skips) >> action & 1u) == 0;
  if ((recording & TIDE__RECORDS_HISTORY) != 0 && is_kept) tide__ring_add(&device->ring, &entry);
  if ((recording & TIDE__RECORDS_TRACE) != 0 && journal.count < journal.capacity) {
    untold_entry* const untold = &journal.entries[journal.count++];
    *untold = (untold_entry){ .uid = device->uid, .entry = entry };
    entry_number(device, action, untold);
    tide__untold_count++;
  }
}

// ---------------------------------------------------------------------------------------------------
// Telling

// An observer that the thread is inside of.
typedef struct telling {
  struct telling* outer;  // borrowed from the stack of the thread
  tide_device* device;    // borrowed
  uint64_t turn;          // that others wait for; NO_TURN: none
} telling;
static _Thread_local telling* innermost;

// The allocator of an entry, if it is this one, or one whose observer the thread is inside of; else NULL.
static tide_device* entry_device(const untold_entry* entry, tide_device* device) {
  if (entry->uid == device->uid) return device;
  for (const telling* it = innermost; it != NULL; it = it->outer) {
    if (entry->uid == it->device->uid) return it->device;
  }
  return NULL;
}

static bool journal_has(const tide_device* device) {
  size_t i = journal.first;
  while (i < journal.count && journal.entries[i].uid != device->uid) i++;
  return i < journal.count;
}

// Takes the first entry of such allocators out of the journal, and returns its own.
static tide_device* journal_take(tide_device* device, untold_entry* out) {
  size_t i = journal.first;
  tide_device* own = entry_device(&journal.entries[i], device);
  while (own == NULL) own = entry_device(&journal.entries[++i], device);
  *out = journal.entries[i];
  for (; i > journal.first; i--) journal.entries[i] = journal.entries[i - 1];
  if (++journal.first == journal.count) journal.first = journal.count = 0;
  tide__untold_count--;
  return own;
}

static void turn_end(telling* it) {
  if (it->turn == NO_TURN) return;
  it->turn = NO_TURN;
  tide__mutex_lock(&it->device->gate_lock);
  it->device->told_turns++;
  tide__signal_all(&it->device->turn_passed);
  tide__mutex_unlock(&it->device->gate_lock);
}

// Waits for a turn, after ending those that the thread has in observers around.
static void turn_begin(const telling* own) {
  tide_device* const device = own->device;
  if (own->turn == NO_TURN) return;
  for (telling* it = own->outer; it != NULL; it = it->outer) turn_end(it);
  tide__mutex_lock(&device->gate_lock);
  while (device->told_turns != own->turn) tide__signal_wait(&device->turn_passed, &device->gate_lock);
  tide__mutex_unlock(&device->gate_lock);
}

// Tells the entries from the first on. An observer that calls an allocator makes entries of its own, which
// are told before that call returns. Those that are still there of the calls around it come first, as they
// happened: so a thread that waits for a turn has told everything before, and two threads, each inside of an
// observer, do not wait for one another.
void tide__history_tell_all(tide_device* device) {
  untold_entry untold;
  while (journal_has(device)) {
    tide_device* const teller = journal_take(device, &untold);
    telling own = { innermost, teller, untold.turn };
    turn_begin(&own);
    innermost = &own;
    tide__observers_entry(teller, &untold.entry, untold.number);
    innermost = own.outer;
    turn_end(&own);
  }
}

tide_status tide_device_annotate(tide_device* device, const char* text) {
  TIDE_REQUIRE(device != NULL && text != NULL, TIDE_ERR_ARGUMENT, "device_annotate: no device or text");
  if (!tide__is_recording(device)) return TIDE_OK;
  tide__moment moment = tide__moment_now(device, TIDE_HISTORY_NEVER);
  TIDE_TRY(tide__words_remark(device->names, text, &moment.note));
  tide__history_add(device, TIDE_ACTION_USER_DEFINED, &moment, moment.stack, NULL, 0, 0);
  tide__history_tell(device);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Switching on and off, and looking

tide_status tide_device_history(tide_device* device, const tide_history_options* options) {
  tide_history_options whole = TIDE_HISTORY_OPTIONS_INIT;
  TIDE_REQUIRE(device != NULL && options != NULL, TIDE_ERR_ARGUMENT, "device_history: no device or options");
  TIDE_REQUIRE(tide__sized_in(&whole, sizeof whole, options, TIDE__END_OF(tide_history_options, user)) &&
                   options->level <= TIDE_HISTORY_ALL,
               TIDE_ERR_ARGUMENT, "device_history: options of %u bytes and level %u", options->size,
               options->level);
  options = &whole;
  const bool needs_stacks = options->is_on && options->level != TIDE_HISTORY_NEVER;
  TIDE_REQUIRE(!needs_stacks || (options->gather != NULL) != (options->number != NULL), TIDE_ERR_ARGUMENT,
               "device_history: level %u needs a function that gathers stacks or one that numbers them",
               options->level);
  if (options->is_on) TIDE_TRY(tide__ring_resize(&device->ring, tide__max(1, options->max_entries)));
  if (options->clears || !options->is_on) {
    tide__ring_clear(&device->ring);
    tide__labels_forget(device);
  }
  tide__mutex_lock(&device->pools_lock);
  device->history = *options;
  tide__store_relaxed(&device->history_skips, options->skips);
  tide__store_relaxed(&device->history_level, options->is_on ? options->level : TIDE_HISTORY_NEVER);
  tide__detour(device, TIDE__RECORDS_HISTORY, options->is_on);
  tide__mutex_unlock(&device->pools_lock);
  if (!options->is_on) TIDE_TRY(tide__ring_resize(&device->ring, 0));
  return TIDE_OK;
}

bool tide_device_has_history(const tide_device* device) {
  return device != NULL && (tide__load_relaxed(&device->detours) & TIDE__RECORDS_HISTORY) != 0;
}

tide_intern* tide_device_names(tide_device* device) { return device != NULL ? device->names : NULL; }

tide_status tide_device_history_visit(tide_device* device, tide_history_fn function, void* user) {
  TIDE_REQUIRE(device != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "device_history_visit: no device or function");
  return tide__ring_visit(&device->ring, function, user);
}

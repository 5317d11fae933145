// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of both allocators, compared with a model, through files. Random operations are recorded:
// requests in pools with and without labels, releases, trims, refusals, annotations, metadata of the thread,
// and pools that are dropped. After each operation the model notes what every new entry must contain:
// metadata, pool and stack. Then snapshots are written in every format. What is read back must be the same,
// and a replay of our own file must match it. Finally, the entries that several threads report to an observer
// can be sorted into one valid history.
#define T_THREADS
#include "device/devices.h"
#include "format/traces.h"
#include "prop/oplist.h"
#include "tidemark/pinned.h"
#include "tidemark/replay.h"

enum { SLOTS = 24, POOLS = 6, NUMBERS = 1024, ENTRIES = 1 << 15 };

static const char* const variants[] = { "host torch",  "dry torch",  "host tide", "dry tide",
                                        "host pinned", "dry pinned", NULL };

static const char* const device_variants[] = { "host torch", "dry torch", "host tide", "dry tide", NULL };

static bool mode_is(const char* part) { return strstr(t_variant(), part) != NULL; }

// What a new entry must say.
typedef struct wanted {
  tide_trace_entry entry;  // as it was told; pool: the allocator's number
  const char* metadata;
  const char* context;
  uint64_t frame;  // 0: no stack
} wanted;

typedef struct item {
  bool is_used;
  tide_block block;
  size_t bytes;
  tide_pool pool;
} item;

typedef struct pool {
  tide_pool number;  // 0: none
  uint32_t users;
} pool;

typedef struct model {
  tide_machine* m;
  tide_device_cache* d;  // or
  tide_pinned_cache* p;
  tide_stream streams[2];
  item items[SLOTS];
  pool pools[POOLS];
  uint64_t labels[NUMBERS][2];  // by the number of the pool
  const char* metadata;
  const char* contexts[64];
  size_t depth;
  uint64_t where;    // the frame that is gathered now
  bool was_refused;  // a replay does not know the limit
  bool was_trimmed;  // and takes two trims with no request or release between for one
  wanted* entries;
  size_t count;
} model;

static model s;

// Few texts, so that numbers of texts, of notes and of stacks are the same by chance.
static const char* const texts[] = { "epoch 1",
                                     "batch \"7\"",
                                     "N/A",
                                     "\xc3\xa9t\xc3\xa9\n\\",
                                     "a",
                                     "b",
                                     ("a rather long text, longer than what is kept inline anywhere, "
                                      "longer even than two lines of a terminal that has 80 columns") };
static const char* text_of(const op* o) { return texts[o->other % (sizeof texts / sizeof *texts)]; }

static size_t gather(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  (void)capacity;
  frames[0] = s.where;
  return 1;
}

// ---------------------------------------------------------------------------------------------------
// What was recorded

static bool note_new(void* user, const tide_trace_entry* entries, size_t count) {
  size_t* const at = user;
  for (size_t i = 0; i < count; ++i, ++*at) {
    if (*at < s.count) continue;
    T_LT(s.count, ENTRIES);
    s.entries[s.count++] = (wanted){ .entry = entries[i],
                                     .metadata = s.metadata != NULL ? s.metadata : "",
                                     .context = s.depth > 0 ? s.contexts[s.depth - 1] : "N/A",
                                     .frame = s.where };
  }
  return true;
}

// Notes what the operation recorded, as many entries of an action as it must have; the newest of them.
static bool note_entries(tide_action action, size_t times, wanted** out) {
  size_t at = 0;
  size_t found = 0;
  const size_t first = s.count;
  EXPECT_OK(s.d != NULL ? tide_device_history_visit(s.d, note_new, &at)
                        : tide_pinned_history_visit(s.p, note_new, &at));
  for (size_t i = first; i < s.count; ++i) {
    if (s.entries[i].entry.action != action) continue;
    *out = &s.entries[i];
    found++;
  }
  EXPECT(found == times, "%zu entries %s, not %zu", found, tide_action_name(action), times);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Operations

static tide_status take_any(const op* o, size_t bytes, tide_block* out) {
  const tide_stream stream = s.streams[o->value % 2];
  return s.d != NULL ? tide_device_alloc(s.d, stream, bytes, out)
                     : tide_pinned_alloc_on(s.p, 0, stream, bytes, out);
}

static bool do_take(const op* o, const pool* from) {
  item* const it = &s.items[o->slot % SLOTS];
  wanted* w = NULL;
  if (it->is_used) return true;
  const tide_pool number = from != NULL ? from->number : TIDE_POOL_DEFAULT;
  const size_t bytes = 1 + (o->number % 3 == 0 ? o->number % (3 * MIB) : o->number % 5000);
  *it = (item){ .is_used = true, .bytes = bytes, .pool = number };
  EXPECT_OK(take_any(o, bytes, &it->block));
  s.was_trimmed = false;
  if (!note_entries(TIDE_ACTION_ALLOC, 1, &w)) return false;
  EXPECT(w->entry.address == (uintptr_t)it->block.address && w->entry.bytes == bytes &&
             w->entry.pool == number && w->entry.stream == (uintptr_t)s.streams[o->value % 2],
         "the ALLOC is of another block");
  return true;
}

static bool do_alloc(const op* o) { return do_take(o, NULL); }

static bool do_alloc_in_pool(const op* o) {
  const pool* const p = &s.pools[o->other % POOLS];
  if (p->users == 0) return true;
  EXPECT_OK(s.d != NULL ? tide_device_pool_begin(s.d, p->number, NULL)
                        : tide_pinned_pool_begin(s.p, p->number, NULL));
  const bool is_well = do_take(o, p);
  EXPECT_OK(s.d != NULL ? tide_device_pool_end(s.d, p->number) : tide_pinned_pool_end(s.p, p->number));
  return is_well;
}

static bool do_release(const op* o) {
  item* const it = &s.items[o->slot % SLOTS];
  wanted* w = NULL;
  if (!it->is_used) return true;
  EXPECT_OK(s.d != NULL ? tide_device_release(s.d, it->block) : tide_pinned_release(s.p, it->block));
  it->is_used = false;
  s.was_trimmed = false;
  if (!note_entries(TIDE_ACTION_FREE_COMPLETED, 1, &w)) return false;
  EXPECT(w->entry.address == (uintptr_t)it->block.address && w->entry.bytes == it->bytes &&
             w->entry.pool == it->pool,
         "the FREE_COMPLETED is of another block");
  return true;
}

static bool do_trim(const op* o) {
  wanted* w = NULL;
  (void)o;
  if (s.was_trimmed) return true;
  EXPECT_OK(s.d != NULL ? tide_device_trim(s.d, 0) : tide_pinned_empty(s.p));
  s.was_trimmed = true;
  for (size_t i = 0; i < POOLS; ++i) {
    bool is_held = s.pools[i].users > 0;
    for (size_t k = 0; k < SLOTS; ++k) is_held |= s.items[k].is_used && s.items[k].pool == s.pools[i].number;
    if (!is_held) s.pools[i].number = 0;  // it is gone
  }
  return note_entries(TIDE_ACTION_ALLOC, 0, &w);
}

// A request that is refused. Only a device allocator has a limit.
static bool do_refuse(const op* o) {
  tide_block block;
  wanted* w = NULL;
  if (s.d == NULL || o->value > 64) return true;
  EXPECT_OK(tide_device_set_limit(s.d, MIB));
  EXPECT_STATUS(take_any(o, 64 * MIB, &block), TIDE_ERR_NO_MEMORY);
  EXPECT_OK(tide_device_set_limit(s.d, TIDE_NO_LIMIT));
  s.was_refused = true;
  return note_entries(TIDE_ACTION_OOM, 1, &w);
}

static bool do_annotate(const op* o) {
  const char* const text = o->value % 8 == 0 ? "" : text_of(o);
  wanted* w = NULL;
  if (s.d == NULL) return true;
  EXPECT_OK(tide_device_annotate(s.d, text));
  if (!note_entries(TIDE_ACTION_USER_DEFINED, 1, &w)) return false;
  w->metadata = text;
  w->frame = 0;
  return true;
}

static bool do_metadata(const op* o) {
  s.metadata = o->value % 4 == 0 ? NULL : text_of(o);
  EXPECT_OK(tide_thread_set_metadata(s.metadata));
  return true;
}

static bool do_push(const op* o) {
  if (s.depth == 64) return true;
  EXPECT_OK(tide_thread_push_context(text_of(o)));
  s.contexts[s.depth++] = text_of(o);
  return true;
}

static bool do_pop(const op* o) {
  (void)o;
  if (s.depth == 0) return true;
  EXPECT_OK(tide_thread_pop_context());
  s.depth--;
  return true;
}

static bool do_pool_new(const op* o) {
  pool* const p = &s.pools[o->slot % POOLS];
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  if (p->number != 0) return true;
  if (s.d != NULL && o->value % 2 == 0) {  // a pinned pool has no label
    options.label[0] = 1000 + o->number % 100000;
    options.label[1] = o->other % 3;
  }
  EXPECT_OK(s.d != NULL ? tide_device_pool_new(s.d, o->value % 4 == 1 ? NULL : &options, &p->number)
                        : tide_pinned_pool_new(s.p, &p->number));
  EXPECT(p->number < NUMBERS, "pool %u", p->number);
  const bool has_label = options.label[0] != 0;
  s.labels[p->number][0] = options.label[0];
  s.labels[p->number][1] = has_label ? options.label[1] : p->number;
  p->users = 1;
  return true;
}

static bool do_pool_release(const op* o) {
  pool* const p = &s.pools[o->slot % POOLS];
  wanted* w = NULL;
  if (p->users == 0) return true;
  p->users--;
  EXPECT_OK(s.d != NULL ? tide_device_pool_drop(s.d, p->number) : tide_pinned_pool_drop(s.p, p->number));
  return note_entries(TIDE_ACTION_ALLOC, 0, &w);  // with the policy tide it gives memory back
}

// ---------------------------------------------------------------------------------------------------
// What a trace says

static const char* words_of(const tide_trace* trace, uint32_t text) {
  const char* const words = tide_intern_text(tide_trace_names(trace), text, NULL);
  return words != NULL ? words : "";
}

static bool expect_pool(const tide_trace* trace, uint32_t id, tide_pool number, const char* what, size_t i) {
  const tide_pool_label label = tide_trace_pool(trace, id);
  EXPECT(label.first == s.labels[number][0] && label.second == s.labels[number][1],
         "%s %zu: pool (%llu, %llu), not (%llu, %llu)", what, i, (unsigned long long)label.first,
         (unsigned long long)label.second, (unsigned long long)s.labels[number][0],
         (unsigned long long)s.labels[number][1]);
  return true;
}

static bool expect_stack(const tide_trace* trace, const tide_trace_entry* entry, uint64_t frame, size_t i) {
  size_t count = 0;
  char name[32];
  const uint64_t* const frames = tide_intern_stack(tide_trace_names(trace), entry->stack, &count);
  EXPECT(count == (frame != 0), "entry %zu: a stack of %zu frames", i, count);
  if (frame == 0) return true;
  (void)snprintf(name, sizeof name, "0x%" PRIx64, frame);
  const tide_frame got = tide_intern_frame(tide_trace_names(trace), (uint32_t)frames[0]);
  EXPECT(strcmp(words_of(trace, got.name), name) == 0, "entry %zu: %s, not %s", i, words_of(trace, got.name),
         name);
  return true;
}

static bool entry_agrees(const tide_trace* trace, const tide_trace_entry* got, const wanted* w, size_t i) {
  const tide_trace_entry* const e = &w->entry;
  const tide_note note = tide_intern_note(tide_trace_names(trace), got->note);
  EXPECT(got->action == e->action && got->address == e->address && got->bytes == e->bytes &&
             got->stream == e->stream && got->device == 0 && got->time_ns / 1000 == e->time_ns / 1000,
         "entry %zu: %s of %llu bytes, not %s of %llu", i, tide_action_name(got->action),
         (unsigned long long)got->bytes, tide_action_name(e->action), (unsigned long long)e->bytes);
  EXPECT(strcmp(words_of(trace, note.metadata), w->metadata) == 0,
         "entry %zu: %s is noted \"%s\", not \"%s\"", i, tide_action_name(e->action),
         words_of(trace, note.metadata), w->metadata);
  EXPECT(strcmp(words_of(trace, note.compile_context), w->context) == 0,
         "entry %zu: the context is \"%s\", not \"%s\"", i, words_of(trace, note.compile_context),
         w->context);
  const uint64_t frame = e->action == TIDE_ACTION_SNAPSHOT ? 0 : w->frame;
  return expect_pool(trace, got->pool, e->pool, "entry", i) && expect_stack(trace, got, frame, i);
}

static bool item_agrees(const tide_trace* trace, const item* it, size_t slot) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL);
  const uint64_t address = (uintptr_t)it->block.address;
  for (size_t i = 0; i < count; ++i) {
    if (address - segments[i].address >= segments[i].bytes) continue;
    const tide_trace_block* block = &blocks[segments[i].first_block];
    const tide_trace_block* const end = block + segments[i].block_count;
    while (block < end && block->address != address) ++block;
    EXPECT(block < end && block->state == TIDE_BLOCK_ALLOCATED && block->requested_bytes == it->bytes,
           "the block of slot %zu is not there", slot);
    return expect_pool(trace, segments[i].pool, it->pool, "segment", i);
  }
  EXPECT(false, "no segment has the block of slot %zu", slot);
}

static bool trace_agrees(const tide_trace* trace) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  EXPECT(count == s.count, "%zu entries, not %zu", count, s.count);
  for (size_t i = 0; i < count; ++i) {
    if (!entry_agrees(trace, &entries[i], &s.entries[i], i)) return false;
  }
  for (size_t i = 0; i < SLOTS; ++i) {
    if (s.items[i].is_used && !item_agrees(trace, &s.items[i], i)) return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Through files

static size_t count_of(const tide_trace* trace, tide_action action) {
  size_t count = 0;
  size_t found = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; ++i) found += entries[i].action == action;
  return found;
}

// What can be asked of a format: all of a snapshot, or the requests, or that it can be written.
static bool read_agrees(const tide_trace* trace, const tide_trace* again, tide_format format) {
  if (format <= TIDE_FORMAT_NATIVE && !trace_agrees(again)) return false;
  if (format == TIDE_FORMAT_NATIVE) {
    return traces_are_equal(trace, again, outcome->text, sizeof outcome->text);
  }
  const size_t before = count_of(trace, TIDE_ACTION_ALLOC);
  const size_t after = count_of(again, TIDE_ACTION_ALLOC);
  EXPECT(format != TIDE_FORMAT_RMM || before == after, "%zu requests, not %zu", after, before);
  return true;
}

static bool replay_holds(const tide_trace* trace) {
  tide_replay* replay = NULL;
  tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  EXPECT_OK(tide_replay_new(trace, 0, NULL, &replay));
  options.checks = true;
  const tide_device_options device = tide_replay_recorded_options(replay);
  options.device = &device;
  EXPECT_OK(tide_replay_run(replay, &options, &result));
  EXPECT(result.mismatched_addresses + result.mismatched_segments == 0, "replay: %.300s", result.mismatch);
  tide_replay_free(replay);
  return true;
}

static bool format_agrees(const tide_trace* trace, tide_format format) {
  memory_file file = { 0 };
  tide_trace* again = NULL;
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  const tide_sink sink = memory_file_sink(&file);
  EXPECT_OK(tide_trace_write(trace, (uint32_t)format, &sink));
  if (tide_format_describe((uint32_t)format).can_read) {
    const tide_source source = memory_file_source(&file);
    options.format = (uint32_t)format;
    EXPECT_OK(tide_trace_read(&source, &options, &again));
    if (!read_agrees(trace, again, format)) return false;
    const bool is_replayed = mode_is("torch") && format == TIDE_FORMAT_PICKLE && !s.was_refused;
    if (is_replayed && !replay_holds(again)) return false;
  }
  tide_trace_free(again);
  memory_file_fini(&file);
  return true;
}

static bool do_snapshot(const op* o) {
  tide_trace* trace = NULL;
  wanted* w = NULL;
  (void)o;
  EXPECT_OK(tide_trace_new(NULL, &trace));
  EXPECT_OK(s.d != NULL ? tide_device_snapshot(s.d, NULL, trace) : tide_pinned_snapshot(s.p, NULL, 0, trace));
  if (!trace_agrees(trace)) return false;
  for (uint32_t format = 0; format < TIDE_FORMAT_COUNT; ++format) {
    if (!format_agrees(trace, (tide_format)format)) return false;
  }
  tide_trace_free(trace);
  return note_entries(TIDE_ACTION_SNAPSHOT, 1, &w);
}

// ---------------------------------------------------------------------------------------------------
// Runs

#define VERB_MAP(X)                      \
  X(alloc, do_alloc, 12)                 \
  X(alloc_in_pool, do_alloc_in_pool, 12) \
  X(release, do_release, 20)             \
  X(trim, do_trim, 4)                    \
  X(refuse, do_refuse, 1)                \
  X(annotate, do_annotate, 6)            \
  X(metadata, do_metadata, 6)            \
  X(push, do_push, 3)                    \
  X(pop, do_pop, 3)                      \
  X(pool_new, do_pool_new, 5)            \
  X(pool_release, do_pool_release, 3)    \
  X(snapshot, do_snapshot, 2)

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static bool (*const functions[])(const op*) = { VERB_MAP(OP_FUNCTION) };

static void model_open(void) {
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  memset(&s, 0, sizeof s);
  s.entries = calloc(ENTRIES, sizeof *s.entries);
  T_CHECK(s.entries != NULL);
  s.m = machine_open(mode_is("host") ? "host" : "dry", NULL);
  s.streams[1] = stream_new(s.m, 0, TIDE_STREAM_NON_BLOCKING);
  history.level = TIDE_HISTORY_ALL;
  history.gather = gather;
  history.max_entries = ENTRIES;
  if (mode_is("pinned")) {
    T_OK(tide_pinned_new(s.m, NULL, &s.p));
    T_OK(tide_pinned_history(s.p, &history));
  } else {
    s.d = device_new(s.m, 0, NULL);
    T_OK(tide_device_history(s.d, &history));
  }
}

static bool play(const op* list, size_t count, size_t check_every) {
  const op none = { 0 };
  (void)check_every;
  model_open();
  for (size_t i = 0; i < count; ++i) {
    outcome->at = i;
    s.where = 1 + list[i].number % 50;
    if (!functions[list[i].verb](&list[i])) return false;
  }
  if (!do_snapshot(&none)) return false;
  tide_device_free(s.d);
  tide_pinned_free(s.p, NULL);
  tide_machine_free(s.m);
  free(s.entries);
  return true;
}

static const op_suite suite = { "the history", verbs, sizeof verbs / sizeof *verbs, play, 300, 8, 16 };

T_TEST_OVER(prop_history__is_read_back_as_it_was_recorded, variants) {
  suite_run(&suite, t_scaled_alone(T_HAS_SANITIZER ? 800 : 6000), true);
}

// ---------------------------------------------------------------------------------------------------
// What several threads tell an observer

enum { TELLERS = 4, BOARD = 32, TOLD = 1 << 16 };

typedef struct told {
  uint64_t number;
  size_t place;  // among all that were told
  tide_trace_entry entry;
} told;

// Blocks change hands on a board: who takes one from it releases it.
static struct crowd {
  tide_device_cache* d;
  tide_stream streams[3];
  pthread_mutex_t lock;  // guards all below
  tide_block board[BOARD];
  told log[TOLD];
  size_t count;
} crowd = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void crowd_hear(void* user, const tide_trace_entry* entry, uint64_t number) {
  (void)user;
  pthread_mutex_lock(&crowd.lock);
  T_LT(crowd.count, TOLD);
  crowd.log[crowd.count] = (told){ number, crowd.count, *entry };
  crowd.count++;
  pthread_mutex_unlock(&crowd.lock);
}

// Puts a block on the board, or none, for the one that lies there.
static tide_block crowd_swap(size_t slot, tide_block block) {
  pthread_mutex_lock(&crowd.lock);
  const tide_block before = crowd.board[slot];
  crowd.board[slot] = block;
  pthread_mutex_unlock(&crowd.lock);
  return before;
}

static void crowd_step(t_rng* rng) {
  const uint64_t what = t_rng_below(rng, 100);
  const tide_stream stream = crowd.streams[t_rng_below(rng, 2)];
  tide_block block = block_none;
  if (what == 0) T_OK(tide_device_trim(crowd.d, 0));
  if (what >= 60) block = take(crowd.d, stream, 1 + t_rng_below(rng, what >= 95 ? 16 * MIB : 8000));
  if (what >= 90) T_OK(tide_device_record(crowd.d, block, crowd.streams[2]));
  give(crowd.d, crowd_swap(t_rng_below(rng, BOARD), block));
}

static void* crowd_run(void* user) {
  t_rng rng = t_rng_new(*(uint64_t*)user);
  for (size_t i = 0; i < 400; ++i) crowd_step(&rng);
  return NULL;
}

static bool is_about_segments(const tide_trace_entry* e) {
  return e->action >= TIDE_ACTION_SEGMENT_ALLOC && e->action <= TIDE_ACTION_SEGMENT_UNMAP;
}

static int told_by_number(const void* a, const void* b) {
  const uint64_t x = ((const told*)a)->number;
  const uint64_t y = ((const told*)b)->number;
  return (x > y) - (x < y);
}

static int told_by_address(const void* a, const void* b) {
  const uint64_t x = ((const told*)a)->entry.address;
  const uint64_t y = ((const told*)b)->entry.address;
  return x != y ? (x > y) - (x < y) : told_by_number(a, b);
}

// The segments that there are, as the entries say in the order of their numbers.
typedef struct segments {
  uint64_t begins[4096];
  uint64_t ends[4096];
  size_t count;
} segments;

static size_t segments_around(const segments* g, uint64_t begin, uint64_t end) {
  size_t i = 0;
  while (i < g->count && !(begin < g->ends[i] && g->begins[i] < end)) ++i;
  return i;
}

static void segments_follow(segments* g, const tide_trace_entry* e) {
  const uint64_t end = e->address + e->bytes;
  const size_t i = segments_around(g, e->address, end);
  if (e->action == TIDE_ACTION_SEGMENT_ALLOC) {
    T_EQ(i, g->count);
    T_LT(g->count, 4096);
    g->begins[g->count] = e->address;
    g->ends[g->count++] = end;
  } else if (e->action == TIDE_ACTION_SEGMENT_FREE) {
    T_LT(i, g->count);
    T_EQ(g->begins[i], e->address);
    T_EQ(g->ends[i], end);
    g->begins[i] = g->begins[--g->count];
    g->ends[i] = g->ends[g->count];
  } else if (e->action == TIDE_ACTION_ALLOC) {
    T_LT(i, g->count);
    T_CHECK(g->begins[i] <= e->address && end <= g->ends[i]);
  }
}

// No number is missing; segments were told in their order; with the policy torch, every block lies in one.
static void crowd_expect_order(void) {
  static segments g;
  size_t last = 0;
  qsort(crowd.log, crowd.count, sizeof *crowd.log, told_by_number);
  for (size_t i = 0; i < crowd.count; ++i) {
    const told* const t = &crowd.log[i];
    T_EQ(t->number, i);
    if (mode_is("torch")) segments_follow(&g, &t->entry);
    if (!is_about_segments(&t->entry)) continue;
    T_LE(last, t->place);
    last = t->place;
  }
}

// Every address is handed out, released, completed, and handed out again.
static void crowd_expect_lives(void) {
  uint64_t address = 0;
  uint8_t before = TIDE_ACTION_FREE_COMPLETED;
  qsort(crowd.log, crowd.count, sizeof *crowd.log, told_by_address);
  for (size_t i = 0; i < crowd.count; ++i) {
    const tide_trace_entry* const e = &crowd.log[i].entry;
    if (e->action > TIDE_ACTION_FREE_COMPLETED) continue;
    if (e->address != address) before = TIDE_ACTION_FREE_COMPLETED;
    T_EQ(e->action, (before + 1) % 3);
    address = e->address;
    before = e->action;
  }
}

T_TEST_OVER(prop_history__of_threads_can_be_put_in_order, device_variants) {
  tide_machine* const m = machine_open(mode_is("host") ? "host" : "dry", NULL);
  for (size_t i = 1; i < 3; ++i) crowd.streams[i] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  for (size_t round = 0; round < t_scaled(40); ++round) {
    pthread_t threads[TELLERS];
    uint64_t numbers[TELLERS];
    tide_observer observer = 0;
    crowd.d = device_new(m, 0, NULL);
    crowd.count = 0;
    T_OK(tide_device_observe_entries(crowd.d, crowd_hear, NULL, &observer));
    for (size_t i = 0; i < TELLERS; ++i) {
      numbers[i] = round * TELLERS + i;
      t_thread_start(&threads[i], crowd_run, &numbers[i]);
    }
    for (size_t i = 0; i < TELLERS; ++i) t_thread_join(threads[i]);
    for (size_t i = 0; i < BOARD; ++i) give(crowd.d, crowd_swap(i, block_none));
    T_OK(tide_device_trim(crowd.d, 0));
    crowd_expect_order();
    crowd_expect_lives();
    tide_device_free(crowd.d);
  }
  tide_machine_free(m);
}

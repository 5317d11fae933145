// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What reading and writing a memory snapshot of a million entries costs, in each format that holds a whole
// trace, and what reading it costs as CPython writes it (with every dict and text remembered):
//   read     megabytes of the file in a second, and the most memory for an entry while it is read
//   write    megabytes of the file in a second
//
// The snapshot is synthetic: 1000 blocks come and go on two streams, every entry has all keys of PyTorch 2.11
// and one of 2000 call stacks of 20 frames. JSON has these written out, so there it is a tenth of the
// entries. Files are read from memory, so that no disk is measured.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/format.h"

enum { FORMAT_ENTRIES = 1000000, FORMAT_STACKS = 2000, FORMAT_FRAMES = 20, FORMAT_LIVE = 1000 };
enum { FORMAT_TEXTS = FORMAT_STACKS * FORMAT_FRAMES + 16, FORMAT_WORDS = 16 };  // more than there are

// ---------------------------------------------------------------------------------------------------
// A heap that records its peak

typedef struct format_heap {
  tide_heap heap;
  size_t taken;
  size_t most;
} format_heap;

static void* format_heap_alloc(void* user, size_t bytes, size_t alignment) {
  format_heap* const h = user;
  void* address = NULL;
  if (posix_memalign(&address, alignment, bytes) != 0) return NULL;
  h->taken += bytes;
  if (h->taken > h->most) h->most = h->taken;
  return address;
}

static void format_heap_release(void* user, void* address, size_t bytes) {
  ((format_heap*)user)->taken -= bytes;
  free(address);
}

// ---------------------------------------------------------------------------------------------------
// The snapshot

static uint32_t format_text(tide_intern* names, const char* form, uint64_t number) {
  char text[96];
  uint32_t id = 0;
  const int length = snprintf(text, sizeof text, form, (unsigned long long)number);
  bench_require(tide_intern_add_text(names, text, (size_t)length, &id), "add_text");
  return id;
}

// Stacks share their outer frames, as those of a program do.
static uint32_t format_stack(tide_intern* names, uint64_t number) {
  uint64_t frames[FORMAT_FRAMES];
  uint32_t id = 0;
  for (uint64_t i = 0; i < FORMAT_FRAMES; i++) {
    const uint64_t of = i < 4 ? number * 7 + i : number / 50 + i;
    const tide_frame frame = { .name = format_text(names, "forward_of_layer_%llu", of % 5000),
                               .file = format_text(
                                   names, "/usr/lib/python3/site-packages/model/layer_%llu.py", of % 300),
                               .line = (int64_t)(of * 31 % 2000) };
    uint32_t added = 0;
    bench_require(tide_intern_add_frame(names, &frame, &added), "add_frame");
    frames[i] = added;
  }
  bench_require(tide_intern_add_stack(names, frames, FORMAT_FRAMES, &id), "add_stack");
  return id;
}

static void format_add(tide_trace* trace, uint64_t number, uint64_t slot, uint32_t note, uint32_t stack,
                       uint8_t action) {
  const tide_trace_entry entry = { .time_ns = (UINT64_C(1700000000000000) + 3 * number) * 1000,
                                   .address = UINT64_C(0x7f0000000000) + slot * (2 << 20),
                                   .bytes = 512 + slot * 7919 % 2000000,
                                   .stream = slot % 2 * 94000000000,
                                   .stack = stack,
                                   .note = note,
                                   .action = action,
                                   .absent = TIDE_ENTRY_POOL };
  bench_require(tide_trace_add_entry(trace, &entry), "add_entry");
}

// An allocation and the two entries of its release, or the release of the block that was there before.
static tide_trace* format_trace(size_t entries) {
  tide_trace* trace = NULL;
  uint32_t stacks[FORMAT_STACKS];
  uint32_t note = 0;
  uint64_t state = 7;
  bench_require(tide_trace_new(NULL, &trace), "trace_new");
  tide_intern* const names = tide_trace_names(trace);
  for (uint64_t i = 0; i < FORMAT_STACKS; i++) stacks[i] = format_stack(names, i);
  tide_note said = { 0 };
  bench_require(tide_intern_add_text(names, "N/A", 3, &said.compile_context), "add_text");
  bench_require(tide_intern_add_note(names, said, &note), "add_note");
  for (uint64_t i = 0; i < entries;) {
    const uint64_t slot = bench_random(&state) % FORMAT_LIVE;
    const uint32_t stack = stacks[bench_random(&state) % FORMAT_STACKS];
    for (uint8_t action = TIDE_ACTION_ALLOC; action <= TIDE_ACTION_FREE_COMPLETED && i < entries; action++)
      format_add(trace, i++, slot, note, stack, action);
  }
  const tide_trace_about about = { .has_segments = true, .has_entries = true };
  tide_trace_set_about(trace, &about);
  return trace;
}

// ---------------------------------------------------------------------------------------------------
// Files in memory

typedef struct format_file {
  uint8_t* data;  // owned
  size_t bytes;
  size_t room;
  size_t at;
} format_file;

static tide_status format_file_write(void* user, const void* data, size_t bytes) {
  format_file* const file = user;
  if (file->data == NULL || file->room - file->bytes < bytes) {
    file->room = 2 * file->room + bytes;
    file->data = realloc(file->data, file->room);
    if (file->data == NULL) abort();
  }
  memcpy(file->data + file->bytes, data, bytes);
  file->bytes += bytes;
  return TIDE_OK;
}

static tide_status format_file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  format_file* const file = user;
  const size_t left = file->bytes - file->at;
  *out_bytes = left < room ? left : room;
  memcpy(out, file->data + file->at, *out_bytes);
  file->at += *out_bytes;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The snapshot as CPython's pickler writes it, without its segments

typedef struct format_cpython {
  format_file file;
  const tide_trace* trace;             // borrowed
  const tide_intern* names;            // borrowed from the trace
  uint32_t texts[FORMAT_TEXTS];        // number by which a text is remembered + 1; 0: not yet
  uint32_t frames[FORMAT_TEXTS];       // likewise
  uint32_t stacks[FORMAT_STACKS + 1];  // likewise
  uint32_t words[FORMAT_WORDS];        // likewise
  uint32_t remembered;
} format_cpython;

static void cpython_put(format_cpython* c, const void* data, size_t bytes) {
  (void)format_file_write(&c->file, data, bytes);
}

static void cpython_put_number(format_cpython* c, char code, uint64_t number, size_t bytes) {
  uint8_t text[9] = { (uint8_t)code };
  for (size_t i = 0; i < bytes; i++) text[i + 1] = (uint8_t)(number >> 8 * i);
  cpython_put(c, text, bytes + 1);
}

static void cpython_remember(format_cpython* c, uint32_t* number) {
  cpython_put(c, "\x94", 1);
  c->remembered++;
  if (number != NULL) *number = c->remembered;
}

static bool cpython_recall(format_cpython* c, uint32_t number) {
  if (number == 0) return false;
  cpython_put_number(c, number <= 256 ? 'h' : 'j', number - 1, number <= 256 ? 1 : 4);
  return true;
}

static void cpython_put_text(format_cpython* c, const char* text, size_t bytes, uint32_t* number) {
  if (cpython_recall(c, *number)) return;
  cpython_put_number(c, (char)0x8c, bytes, 1);
  cpython_put(c, text, bytes);
  cpython_remember(c, number);
}

static void cpython_put_word(format_cpython* c, size_t word) {
  static const char* const words[FORMAT_WORDS] = {
    "action",         "addr",     "size",          "stream",       "time_us", "compile_context",
    "frames",         "name",     "filename",      "line",         "alloc",   "free_requested",
    "free_completed", "segments", "device_traces", "user_metadata"
  };
  cpython_put_text(c, words[word], strlen(words[word]), &c->words[word]);
}

static void cpython_put_id(format_cpython* c, uint32_t id) {
  size_t bytes = 0;
  const char* const text = tide_intern_text(c->names, id, &bytes);
  cpython_put_text(c, bytes > 0 ? text : "", bytes, &c->texts[id]);
}

static void cpython_put_int(format_cpython* c, uint64_t number) {
  if (number <= UINT8_MAX) cpython_put_number(c, 'K', number, 1);
  else if (number <= UINT16_MAX) cpython_put_number(c, 'M', number, 2);
  else if (number <= INT32_MAX) cpython_put_number(c, 'J', number, 4);
  else cpython_put_number(c, (char)0x8a, 7 | number << 8, 8);
}

static void cpython_put_frame(format_cpython* c, uint32_t id) {
  const tide_frame frame = tide_intern_frame(c->names, id);
  if (cpython_recall(c, c->frames[id])) return;
  cpython_put(c, "}", 1);
  cpython_remember(c, &c->frames[id]);
  cpython_put(c, "(", 1);
  cpython_put_word(c, 7);
  cpython_put_id(c, frame.name);
  cpython_put_word(c, 8);
  cpython_put_id(c, frame.file);
  cpython_put_word(c, 9);
  cpython_put_int(c, (uint64_t)frame.line);
  cpython_put(c, "u", 1);
}

static void cpython_put_stack(format_cpython* c, uint32_t id) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(c->names, id, &count);
  if (cpython_recall(c, c->stacks[id])) return;
  cpython_put(c, "]", 1);
  cpython_remember(c, &c->stacks[id]);
  cpython_put(c, "(", 1);
  for (size_t i = 0; i < count; i++) cpython_put_frame(c, (uint32_t)frames[i]);
  cpython_put(c, "e", 1);
}

static void cpython_put_entry(format_cpython* c, const tide_trace_entry* entry) {
  const tide_note note = tide_intern_note(c->names, entry->note);
  const uint64_t numbers[] = { entry->address, entry->bytes, entry->stream, entry->time_ns / 1000 };
  cpython_put(c, "}", 1);
  cpython_remember(c, NULL);
  cpython_put(c, "(", 1);
  cpython_put_word(c, 0);
  cpython_put_word(c, 10 + (size_t)entry->action);
  for (size_t i = 0; i < 4; i++) {
    cpython_put_word(c, 1 + i);
    cpython_put_int(c, numbers[i]);
  }
  cpython_put_word(c, 5);
  cpython_put_id(c, note.compile_context);
  cpython_put_word(c, 15);
  cpython_put_id(c, note.metadata);
  cpython_put_word(c, 6);
  cpython_put_stack(c, entry->stack);
  cpython_put(c, "u", 1);
}

static format_file format_as_cpython(const tide_trace* trace) {
  format_cpython* const c = bench_alloc(1, sizeof *c);
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  c->trace = trace;
  c->names = tide_trace_names(trace);
  cpython_put(c, "\x80\x04}", 3);
  cpython_remember(c, NULL);
  cpython_put(c, "(", 1);
  cpython_put_word(c, 13);
  cpython_put(c, "]", 1);
  cpython_remember(c, NULL);
  cpython_put_word(c, 14);
  cpython_put(c, "]", 1);
  cpython_remember(c, NULL);
  cpython_put(c, "]", 1);
  cpython_remember(c, NULL);
  for (size_t i = 0; i < count; i++) {
    if (i % 1000 == 0) cpython_put(c, i == 0 ? "(" : "e(", i == 0 ? 1 : 2);
    cpython_put_entry(c, &entries[i]);
  }
  cpython_put(c, "eau.", 4);
  const format_file file = c->file;
  free(c);
  return file;
}

// ---------------------------------------------------------------------------------------------------
// Measuring

typedef struct format_rig {
  const tide_trace* trace;  // borrowed
  size_t entries;
  uint32_t format;
  format_file file;
  format_heap heap;
  tide_trace* read;
} format_rig;

static void format_write_work(void* user, uint64_t count) {
  format_rig* const rig = user;
  const tide_sink sink = { format_file_write, &rig->file };
  while (count-- > 0) {
    rig->file.bytes = 0;
    bench_require(tide_trace_write(rig->trace, rig->format, &sink), "trace_write");
  }
}

static void format_read_before(void* user) {
  format_rig* const rig = user;
  rig->file.at = 0;
  rig->heap = (format_heap){ .heap = { format_heap_alloc, format_heap_release, &rig->heap } };
}

static void format_read_work(void* user, uint64_t count) {
  format_rig* const rig = user;
  const tide_source source = { format_file_read, &rig->file };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  bench_verify(count == 1, "a file is read once");
  options.format = rig->format;
  options.heap = &rig->heap.heap;
  bench_require(tide_trace_read(&source, &options, &rig->read), "trace_read");
}

static void format_read_after(void* user) {
  format_rig* const rig = user;
  size_t count = 0;
  (void)tide_trace_entries(rig->read, 0, &count);
  bench_verify(count == rig->entries, "entries are missing");
  tide_trace_free(rig->read);
  bench_verify(rig->heap.taken == 0, "memory is left");
}

static void format_row(bench* run, const char* name, const char* what, double value, const char* unit) {
  char label[64];
  (void)snprintf(label, sizeof label, "%s, %s", name, what);
  bench_row(run, "format", label, value, unit);
}

static void format_measure_read(bench* run, format_rig* rig, const char* name) {
  const bench_job job = { .work = format_read_work,
                          .before = format_read_before,
                          .after = format_read_after,
                          .user = rig,
                          .count = 1 };
  const double ns = bench_ns(&job);
  const double bytes = (double)rig->file.bytes;
  format_row(run, name, "bytes of an entry in the file", bytes / (double)rig->entries, "B");
  format_row(run, name, "read", bytes * 1e3 / ns, "MB/s");
  format_row(run, name, "most memory while reading", (double)rig->heap.most * 1e-6, "MB");
  format_row(run, name, "most memory for an entry", (double)rig->heap.most / (double)rig->entries, "B");
}

static void format_measure(bench* run, const tide_trace* trace, uint32_t format) {
  format_rig rig = { .trace = trace, .format = format };
  (void)tide_trace_entries(trace, 0, &rig.entries);
  const char* const name = tide_format_describe(format).name;
  const bench_job job = { .work = format_write_work, .user = &rig, .count = 1 };
  const double ns = bench_ns(&job);
  format_measure_read(run, &rig, name);
  format_row(run, name, "write", (double)rig.file.bytes * 1e3 / ns, "MB/s");
  free(rig.file.data);
}

void bench_format(bench* run) {
  tide_trace* const trace = format_trace(FORMAT_ENTRIES);
  format_rig cpython = { .entries = FORMAT_ENTRIES,
                         .format = TIDE_FORMAT_PICKLE,
                         .file = format_as_cpython(trace) };
  format_measure_read(run, &cpython, "pickle of CPython");
  free(cpython.file.data);
  format_measure(run, trace, TIDE_FORMAT_PICKLE);
  format_measure(run, trace, TIDE_FORMAT_NATIVE);
  tide_trace_free(trace);
  tide_trace* const tenth = format_trace(FORMAT_ENTRIES / 10);
  format_measure(run, tenth, TIDE_FORMAT_JSON);
  tide_trace_free(tenth);
}

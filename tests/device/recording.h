// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Recordings of what an allocator was asked for and did, as recording.py and model_case.py write them; the
// form stands there. A recording is held in memory whole.
//
//   recording rec;
//   while (recording_read(file, &rec)) { ...; recording_fini(&rec); }
#ifndef TIDEMARK_TESTS_RECORDING_H
#define TIDEMARK_TESTS_RECORDING_H

#include "t.h"
#include "tidemark/device.h"

#define RECORDING_STREAMS 64
#define RECORDING_POOLS 64

// One thing that was done or happened.
typedef struct recording_entry {
  uint64_t address;
  uint64_t bytes;
  uint32_t stream;  // a number below stream_count
  uint32_t pool;    // a number below pool_count
  char kind;
} recording_entry;

// A segment that was left at the end (kind 'S'), or a block of the segment before it (kind 'B').
typedef struct recording_row {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested;
  uint32_t stream;
  uint32_t pool;
  char kind;
  char state;  // of a block: 'a', 'p' or 'i'
  bool is_large;
  bool is_expandable;
} recording_row;

// What the allocator counted.
typedef struct recording_figures {
  uint64_t peak_reserved;
  uint64_t device_allocs;
  uint64_t device_frees;
  uint64_t retries;
  uint64_t ooms;
} recording_figures;

typedef struct recording {
  char options[512];
  uint64_t total;
  uint64_t limit;  // TIDE_NO_LIMIT: none
  uint32_t stream_count;
  uint32_t pool_count;  // the default pool, 0, included
  uint64_t labels[RECORDING_POOLS][2];
  recording_entry* entries;  // owned
  size_t entry_count;
  recording_row* rows;  // owned
  size_t row_count;
  bool has_figures;
  recording_figures figures;
} recording;

static inline void recording_fini(recording* rec) {
  free(rec->entries);
  free(rec->rows);
  memset(rec, 0, sizeof *rec);
}

// Makes room for one more of the rows of an array, which grows at each power of two.
static inline void* recording_grow(void* rows, size_t count, size_t row_bytes) {
  if (count != 0 && (count & (count - 1)) != 0) return rows;
  void* const grown = realloc(rows, (count == 0 ? 1 : 2 * count) * row_bytes);
  if (grown == NULL) T_FAIL("no memory for %zu rows", 2 * count);
  return grown;
}

// Takes up to `count` numbers in base 16 off the front of a text, sets the others to 0, and returns the rest.
static inline const char* recording_numbers(const char* text, uint64_t* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    char* end = NULL;
    out[i] = strtoull(text, &end, 16);
    text = end;
  }
  return text;
}

static inline void recording_add_entry(recording* rec, const char* line) {
  uint64_t numbers[4];
  const char* const rest = recording_numbers(line + 1, numbers, 4);
  if (*rest != '\n' || numbers[2] >= rec->stream_count || numbers[3] >= rec->pool_count)
    T_FAIL("entry %zu is \"%s\"", rec->entry_count, line);
  rec->entries = recording_grow(rec->entries, rec->entry_count, sizeof *rec->entries);
  rec->entries[rec->entry_count++] = (recording_entry){
    numbers[0], numbers[1], (uint32_t)numbers[2], (uint32_t)numbers[3], line[0],
  };
}

static inline void recording_add_row(recording* rec, const char* line) {
  const bool is_segment = line[0] == 'S';
  uint64_t numbers[4] = { 0, 0, 0, 0 };
  const char* const rest = recording_numbers(line + 1, numbers, is_segment ? 4 : 3);
  recording_row row = { .address = numbers[0], .bytes = numbers[1], .kind = line[0] };
  if (strlen(rest) != (is_segment ? 5 : 3)) T_FAIL("row %zu is \"%s\"", rec->row_count, line);
  if (is_segment) {
    row.stream = (uint32_t)numbers[2];
    row.pool = (uint32_t)numbers[3];
    row.is_large = rest[1] == 'l';
    row.is_expandable = rest[3] == 'x';
  } else {
    row.requested = numbers[2];
    row.state = rest[1];
  }
  rec->rows = recording_grow(rec->rows, rec->row_count, sizeof *rec->rows);
  rec->rows[rec->row_count++] = row;
}

static inline void recording_add_figures(recording* rec, const char* line) {
  uint64_t numbers[5];
  (void)recording_numbers(line + 1, numbers, 5);
  rec->figures = (recording_figures){ numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] };
  rec->has_figures = true;
}

static inline void recording_add_pool(recording* rec, const char* text) {
  if (rec->pool_count == RECORDING_POOLS) T_FAIL("more than %d pools", RECORDING_POOLS);
  char* end = NULL;
  rec->labels[rec->pool_count][0] = strtoull(text, &end, 10);
  rec->labels[rec->pool_count++][1] = strtoull(end, NULL, 10);
}

// A line of the settings; false if it is none.
static inline bool recording_add_setting(recording* rec, const char* line) {
  if (strncmp(line, "options ", 8) == 0) {
    (void)snprintf(rec->options, sizeof rec->options, "%.*s", (int)strcspn(line + 8, "\n"), line + 8);
  } else if (strncmp(line, "total ", 6) == 0) {
    rec->total = strtoull(line + 6, NULL, 10);
  } else if (strncmp(line, "limit ", 6) == 0) {
    rec->limit = strtoull(line + 6, NULL, 10);
  } else if (strncmp(line, "stream ", 7) == 0) {
    if (rec->stream_count++ == RECORDING_STREAMS) T_FAIL("more than %d streams", RECORDING_STREAMS);
  } else if (strncmp(line, "pool ", 5) == 0) {
    recording_add_pool(rec, line + 5);
  } else {
    return false;
  }
  return true;
}

static inline void recording_add_line(recording* rec, const char* line) {
  if (recording_add_setting(rec, line)) return;
  if (line[0] == 'S' || line[0] == 'B') recording_add_row(rec, line);
  else if (line[0] == 'T') recording_add_figures(rec, line);
  else if (strchr("aodfcsrnmuepx", line[0]) != NULL) recording_add_entry(rec, line);
  else T_FAIL("entry %zu is \"%s\"", rec->entry_count, line);
}

// Reads the next recording of a file; false when there is none. One that ends too early is a failure.
static inline bool recording_read(FILE* file, recording* out) {
  *out = (recording){ .limit = TIDE_NO_LIMIT, .pool_count = 1 };
  char line[600];
  bool is_begun = false;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strcmp(line, "end\n") == 0) return true;
    recording_add_line(out, line);
    is_begun = true;
  }
  if (is_begun) T_FAIL("a recording of %zu entries has no end", out->entry_count);
  return false;
}

#endif

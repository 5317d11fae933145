// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A place is read twice: before the recording is read, to report a wrong one at once, and when the number of
// entries is known.
#include "parking.h"

#include <stdlib.h>
#include <string.h>

static const char* const backup_names[] = {
  [TIDE_BACKUP_NONE] = "none",
  [TIDE_BACKUP_PINNED] = "pinned",
  [TIDE_BACKUP_PAGEABLE] = "pageable",
  [TIDE_BACKUP_FILE] = "file",
};

// ---------------------------------------------------------------------------------------------------
// Places

typedef enum place_kind { PLACE_WRONG, PLACE_ENTRY, PLACE_PERCENT, PLACE_STEPS } place_kind;

typedef struct park_place {
  place_kind kind;
  uint64_t entry;
  double percent;
} park_place;

// Reads the text up to a comma or the end.
static park_place place_read(const char* text, size_t length) {
  char copy[32];
  char* end = NULL;
  park_place place = { .kind = PLACE_WRONG };
  if (length == 0 || length >= sizeof copy) return place;
  memcpy(copy, text, length);
  copy[length] = '\0';
  if (strcmp(copy, "steps") == 0) place.kind = PLACE_STEPS;
  if (tool_number_parse(copy, UINT64_MAX, &place.entry)) place.kind = PLACE_ENTRY;
  if (copy[length - 1] != '%' || strspn(copy, "0123456789.") != length - 1) return place;
  place.percent = strtod(copy, &end);
  if (end == copy + length - 1 && place.percent >= 0 && place.percent <= 100) place.kind = PLACE_PERCENT;
  return place;
}

static int backup_parse(const tool_call* call, uint32_t* out) {
  const char* const text = tool_option_value(call, "park-backup");
  if (text == NULL) return TOOL_DONE;
  if (tool_option_value(call, "park") == NULL) return tool_fail("--park-backup needs --park");
  for (uint32_t i = 0; i < sizeof backup_names / sizeof backup_names[0]; i++) {
    if (strcmp(backup_names[i], text) != 0) continue;
    *out = i;
    return TOOL_DONE;
  }
  return tool_fail("--park-backup must be pinned, pageable, file or none, not '%s'", text);
}

int tool_parking_parse(const tool_call* call, tide_replay_options* o) {
  const char* at = tool_option_value(call, "park");
  if (at != NULL && o->checks)
    return tool_fail("--check compares with the recording, so it cannot be combined with --park");
  while (at != NULL) {
    const size_t length = strcspn(at, ",");
    if (place_read(at, length).kind == PLACE_WRONG)
      return tool_fail("--park: '%.*s' is not an entry number, a percentage such as 50%%, or steps",
                       (int)length, at);
    at = at[length] == ',' ? at + length + 1 : NULL;
  }
  return backup_parse(call, &o->park_backup);
}

// ---------------------------------------------------------------------------------------------------
// Entries

static void parking_add(tool_parking* parking, uint64_t entry) {
  if (parking->count == parking->room) {
    parking->room = 2 * parking->room + 16;
    parking->parks = tool_grow(parking->parks, parking->room, sizeof *parking->parks);
  }
  parking->parks[parking->count++] = (tide_replay_park){ .entry = entry };
}

static int park_order(const void* a, const void* b) {
  return tool_compare(((const tide_replay_park*)a)->entry, ((const tide_replay_park*)b)->entry);
}

static void parking_sort(tool_parking* parking) {
  size_t kept = 0;
  if (parking->count > 1) qsort(parking->parks, parking->count, sizeof *parking->parks, park_order);
  for (size_t i = 0; i < parking->count; i++) {
    if (kept == 0 || parking->parks[kept - 1].entry != parking->parks[i].entry)
      parking->parks[kept++] = parking->parks[i];
  }
  parking->count = kept;
}

static int parking_add_steps(tool_parking* parking, const tool_call* call, const tool_recording* recording) {
  tool_sites sites;
  tool_steps steps;
  size_t count = 0;
  tool_sites_init(&sites, recording->trace);
  const int status = tool_recording_steps(call, recording, &sites, &steps);
  tool_sites_fini(&sites);
  if (status != TOOL_DONE) return status;
  const tide_step* const items = tide_steps_items(steps.steps, &count);
  const size_t whole = tide_steps_whole(steps.steps);
  for (size_t i = 0; i < count; i++) {
    if (items[i].is_whole) parking_add(parking, items[i].end);
  }
  tool_steps_fini(&steps);
  if (whole > 0) return TOOL_DONE;
  return tool_fail("--park steps: %s shows no steps; name entries or percentages", recording->file);
}

static int parking_add_place(tool_parking* parking, const park_place* place, uint64_t entry_count,
                             const tool_call* call, const tool_recording* recording) {
  switch (place->kind) {
    case PLACE_STEPS: return parking_add_steps(parking, call, recording);
    case PLACE_PERCENT:
      parking_add(parking, (uint64_t)((double)entry_count * place->percent / 100));
      return TOOL_DONE;
    default:
      if (place->entry > entry_count)
        return tool_fail("--park: there is no entry %llu; the recording has %llu",
                         (unsigned long long)place->entry, (unsigned long long)entry_count);
      parking_add(parking, place->entry);
      return TOOL_DONE;
  }
}

int tool_parking_find(tool_parking* parking, const tool_call* call, const tool_recording* recording,
                      tide_replay_options* o) {
  const char* at = tool_option_value(call, "park");
  size_t entry_count = 0;
  int status = TOOL_DONE;
  if (at != NULL && o->device->policy != TIDE_POLICY_TIDE)
    return tool_fail("--park: only the policy tide can park memory; add --policy tide");
  (void)tide_trace_entries(recording->trace, recording->device, &entry_count);
  while (at != NULL && status == TOOL_DONE) {
    const size_t length = strcspn(at, ",");
    const park_place place = place_read(at, length);
    status = parking_add_place(parking, &place, entry_count, call, recording);
    at = at[length] == ',' ? at + length + 1 : NULL;
  }
  parking_sort(parking);
  o->parks = parking->parks;
  o->park_count = parking->count;
  return status;
}

void tool_parking_fini(tool_parking* parking) { free(parking->parks); }

// ---------------------------------------------------------------------------------------------------
// The answer

// The first parking has to make its backup, so it stands alone; the others are a mean.
static tide_replay_park parks_mean(const tide_replay_park* parks, size_t count) {
  tide_replay_park sum = { .entry = 0 };
  for (size_t i = 0; i < count; i++) {
    sum.block_bytes += parks[i].block_bytes;
    sum.physical_bytes += parks[i].physical_bytes;
    sum.copied_bytes += parks[i].copied_bytes;
    sum.backup_bytes += parks[i].backup_bytes;
    sum.park_ns += parks[i].park_ns;
    sum.unpark_ns += parks[i].unpark_ns;
  }
  return (tide_replay_park){ .block_bytes = sum.block_bytes / count,
                             .physical_bytes = sum.physical_bytes / count,
                             .copied_bytes = sum.copied_bytes / count,
                             .backup_bytes = sum.backup_bytes / count,
                             .park_ns = sum.park_ns / count,
                             .unpark_ns = sum.unpark_ns / count };
}

static void row_emit(tool_emit* emit, const char* name, const tide_replay_park* park) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, name);
  tool_emit_bytes(emit, NULL, NULL, park->block_bytes);
  tool_emit_bytes(emit, NULL, NULL, park->physical_bytes);
  tool_emit_bytes(emit, NULL, NULL, park->copied_bytes);
  tool_emit_bytes(emit, NULL, NULL, park->backup_bytes);
  tool_emit_real(emit, NULL, NULL, (double)park->park_ns / 1e6, 3);
  tool_emit_real(emit, NULL, NULL, (double)park->unpark_ns / 1e6, 3);
}

static void summary_emit(tool_emit* emit, const tide_replay_park* parks, size_t count) {
  static const tool_column columns[] = { { NULL, "" },           { NULL, "live blocks" },
                                         { NULL, "given back" }, { NULL, "copied" },
                                         { NULL, "backup" },     { NULL, "park (ms)" },
                                         { NULL, "unpark (ms)" } };
  char name[64];
  tool_emit_table(emit, NULL, columns, sizeof columns / sizeof columns[0]);
  (void)snprintf(name, sizeof name, "entry %llu", (unsigned long long)parks[0].entry);
  row_emit(emit, name, &parks[0]);
  if (count == 2) {
    (void)snprintf(name, sizeof name, "entry %llu", (unsigned long long)parks[1].entry);
    row_emit(emit, name, &parks[1]);
  }
  if (count > 2) {
    const tide_replay_park mean = parks_mean(parks + 1, count - 1);
    (void)snprintf(name, sizeof name, "%zu later, mean", count - 1);
    row_emit(emit, name, &mean);
  }
  tool_emit_table_end(emit);
}

static void parks_emit(tool_emit* emit, const tide_replay_park* parks, size_t count) {
  static const tool_column columns[] = { { "entry", NULL },      { "live", NULL },
                                         { "given_back", NULL }, { "taken_again", NULL },
                                         { "copied", NULL },     { "backup_bytes", NULL },
                                         { "park_ms", NULL },    { "unpark_ms", NULL } };
  tool_emit_table(emit, "parks", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < count; i++) {
    tool_emit_row(emit);
    tool_emit_uint(emit, NULL, NULL, parks[i].entry);
    tool_emit_uint(emit, NULL, NULL, parks[i].block_bytes);
    tool_emit_uint(emit, NULL, NULL, parks[i].physical_bytes);
    tool_emit_uint(emit, NULL, NULL, parks[i].taken_bytes);
    tool_emit_uint(emit, NULL, NULL, parks[i].copied_bytes);
    tool_emit_uint(emit, NULL, NULL, parks[i].backup_bytes);
    tool_emit_real(emit, NULL, NULL, (double)parks[i].park_ns / 1e6, 6);
    tool_emit_real(emit, NULL, NULL, (double)parks[i].unpark_ns / 1e6, 6);
  }
  tool_emit_table_end(emit);
}

static void times_emit(tool_emit* emit, const tide_replay_park* parks, size_t count) {
  const tide_replay_park later = count > 1 ? parks_mean(parks + 1, count - 1) : (tide_replay_park){ 0 };
  const double unknown = (double)NAN;
  tool_emit_real(emit, "first_park_ms", NULL, count > 0 ? (double)parks[0].park_ns / 1e6 : unknown, 6);
  tool_emit_real(emit, "first_unpark_ms", NULL, count > 0 ? (double)parks[0].unpark_ns / 1e6 : unknown, 6);
  tool_emit_real(emit, "later_park_ms", NULL, count > 1 ? (double)later.park_ns / 1e6 : unknown, 6);
  tool_emit_real(emit, "later_unpark_ms", NULL, count > 1 ? (double)later.unpark_ns / 1e6 : unknown, 6);
}

static void words_emit(tool_emit* emit, const tide_replay_options* o, size_t count) {
  const bool is_slower = o->park_backup == TIDE_BACKUP_PAGEABLE || o->park_backup == TIDE_BACKUP_FILE;
  if (count < o->park_count)
    tool_emit_words(emit, "The run ended before %zu of the places.", o->park_count - count);
  if (is_slower)
    tool_emit_words(emit, "The times contain the bus alone: copies within host memory%s are not priced.",
                    o->park_backup == TIDE_BACKUP_FILE ? " and the disk" : "");
}

void tool_parking_emit(tool_emit* emit, const tool_call* call, const tide_replay_options* o,
                       const tide_replay_result* r) {
  const size_t count = (size_t)r->parks;
  if (o->park_count == 0) {
    tool_emit_text(emit, "parking", NULL, NULL);
    return;
  }
  tool_emit_title(emit, "What parking costs");
  tool_emit_open(emit, "parking", NULL);
  tool_emit_text(emit, "backup", "backup", backup_names[o->park_backup]);
  tool_emit_uint(emit, "count", "times parked", count);
  times_emit(emit, o->parks, count);
  if (call->is_json) parks_emit(emit, o->parks, count);
  else if (count > 0) summary_emit(emit, o->parks, count);
  words_emit(emit, o, count);
  tool_emit_close(emit);
}

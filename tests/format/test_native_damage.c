// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Native files that are cut off, damaged or hostile; the order of chunks that a recorder may choose; and
// memory, sources and sinks that fail.
#include "machine/counting_heap.h"
#include "native_file.h"

// ---------------------------------------------------------------------------------------------------
// A small trace with everything in it

static tide_trace* small_trace(void) {
  tide_trace* trace = NULL;
  uint32_t text = 0;
  uint32_t pool = 0;
  T_OK(tide_trace_new(NULL, &trace));
  tide_intern* const names = tide_trace_names(trace);
  T_OK(tide_intern_add_text(names, "forward", 7, &text));
  tide_trace_about about = { .has_segments = true, .has_entries = true };
  const tide_value number = { .kind = TIDE_VALUE_FLOAT, .number = 0.5 };
  T_OK(tide_intern_add_value(names, &number, &about.settings));
  const uint64_t item = (uint64_t)text << 32 | about.settings;
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = &item, .count = 1 };
  T_OK(tide_intern_add_value(names, &dict, &about.extra));
  const tide_frame frame = { .name = text, .file = text, .line = -7 };
  uint32_t frame_number = 0;
  T_OK(tide_intern_add_frame(names, &frame, &frame_number));
  const uint64_t frames[2] = { frame_number, frame_number };
  tide_trace_entry entry = { .time_ns = 1700000000000000000, .address = 1u << 21, .bytes = 512, .stream = 3 };
  T_OK(tide_intern_add_stack(names, frames, 2, &entry.stack));
  T_OK(tide_intern_add_note(names, (tide_note){ .metadata = text, .extra = about.extra }, &entry.note));
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 1 }, &pool));
  tide_trace_set_about(trace, &about);
  T_OK(tide_trace_add_segment(trace,
                              &(tide_trace_segment){ .bytes = 1u << 21, .pool = pool, .is_large = true }));
  for (uint8_t i = 0; i < 3; i++) {
    T_OK(tide_trace_add_block(trace, &(tide_trace_block){ .address = i * 512u, .bytes = 512, .state = i }));
    entry.device = i / 2;
    entry.time_ns += 1000;
    entry.absent = (uint16_t)(i << 1);
    T_OK(tide_trace_add_entry(trace, &entry));
  }
  return trace;
}

static void expect_prefix(const tide_trace* part, const tide_trace* whole) {
  char text[300];
  T_CHECK(tide_trace_get_about(part).is_cut);
  if (!trace_is_prefix(part, whole, text, sizeof text)) T_FAIL("%s", text);
  if (!traces_have_same_numbers(part, whole, text, sizeof text)) T_FAIL("%s", text);
}

static void expect_same(const tide_trace* a, const tide_trace* b) {
  char text[300];
  if (!traces_are_equal(a, b, text, sizeof text)) T_FAIL("%s", text);
}

static size_t entry_total(const tide_trace* trace) {
  size_t total = 0;
  for (size_t device = 0; device < tide_trace_device_count(trace); device++) {
    size_t count = 0;
    (void)tide_trace_entries(trace, device, &count);
    total += count;
  }
  return total;
}

// ---------------------------------------------------------------------------------------------------
// Files that end too early, and wrong bytes

// The offsets of the chunks and of the foot, by walking over the file.
static size_t find_chunks(const memory_file* file, size_t* offsets, size_t room) {
  size_t count = 0;
  size_t at = TIDE__NATIVE_HEAD_BYTES;
  while (file->bytes - at > TIDE__NATIVE_FOOT_BYTES) {
    T_LT(count + 1, room);
    offsets[count++] = at;
    at += TIDE__NATIVE_CHUNK_BYTES + (size_t)tide__load_fixed(file->data + at + 8, 8);
  }
  offsets[count++] = at;
  return count;
}

// How many items there are of all kinds, in the trace and in its names.
static size_t item_total(const tide_trace* trace) {
  size_t segments = 0;
  size_t blocks = 0;
  (void)tide_trace_segments(trace, &segments);
  (void)tide_trace_blocks(trace, &blocks);
  const tide_intern_counts names = tide_intern_counts_of(tide_trace_names(trace));
  return entry_total(trace) + segments + blocks + tide_trace_pool_count(trace) + names.texts + names.stacks +
         names.notes + names.frames + names.values;
}

T_TEST(test_native_damage__a_cut_loses_no_more_than_a_chunk) {
  tide_trace* const whole = small_trace();
  memory_file file = { 0 };
  size_t offsets[32] = { 0 };
  size_t items = 1;  // the default pool
  T_OK(native_write(whole, &file));
  const size_t chunks = find_chunks(&file, offsets, 32);
  const size_t bytes = file.bytes;

  for (size_t k = 0; k < chunks; k++) {
    const size_t end = k + 1 < chunks ? offsets[k + 1] : bytes;
    size_t found = items;
    for (file.bytes = offsets[k]; file.bytes < end; file.bytes++) {
      tide_trace* part = NULL;
      T_OK(native_read(&file, NULL, &part));
      expect_prefix(part, whole);
      if (file.bytes == offsets[k]) found = item_total(part);
      T_EQ(item_total(part), found);  // all chunks before the cut, and nothing of the cut one
      tide_trace_free(part);
    }
    T_LE(items, found);
    items = found;
  }
  T_EQ(items, item_total(whole));
  memory_file_fini(&file);
  tide_trace_free(whole);
}

T_TEST(test_native_damage__a_cut_head_is_an_error) {
  tide_trace* const whole = small_trace();
  memory_file file = { 0 };
  T_OK(native_write(whole, &file));

  for (file.bytes = 0; file.bytes < TIDE__NATIVE_HEAD_BYTES; file.bytes++) {
    tide_trace* part = NULL;
    T_CHECK(tide__native_is(file.data, file.bytes) == (file.bytes >= 8));
    T_STATUS(native_read(&file, NULL, &part), TIDE_ERR_FORMAT);
    T_PTR_EQ(part, NULL);
  }
  memory_file_fini(&file);
  tide_trace_free(whole);
}

T_TEST(test_native_damage__a_wrong_byte_ends_the_reading) {
  tide_trace* const whole = small_trace();
  memory_file file = { 0 };
  T_OK(native_write(whole, &file));

  for (size_t i = 0; i < file.bytes; i++) {
    for (unsigned flip = 1; flip < 256; flip = flip == 128 ? 255 : flip * 2) {
      tide_trace* part = NULL;
      file.data[i] ^= (uint8_t)flip;
      const tide_status status = native_read(&file, NULL, &part);
      T_EQ(status, i < TIDE__NATIVE_HEAD_BYTES ? TIDE_ERR_FORMAT : TIDE_OK);
      if (status == TIDE_OK) expect_prefix(part, whole);
      tide_trace_free(part);
      file.data[i] ^= (uint8_t)flip;
      if (flip == 255) break;
    }
  }
  memory_file_fini(&file);
  tide_trace_free(whole);
}

T_TEST(test_native_damage__random_traces_survive_cuts_and_wrong_bytes) {
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < t_scaled(300); i++) {
    tide_trace* const whole = random_trace(NULL, (t_rng){ t_rng_next(&rng) }, 1 + i % 100);
    tide_trace* part = NULL;
    memory_file file = { 0 };
    T_OK(native_write(whole, &file));
    const size_t at = TIDE__NATIVE_HEAD_BYTES + t_rng_below(&rng, file.bytes - TIDE__NATIVE_HEAD_BYTES);
    if (i % 2 == 0) file.bytes = at;
    else file.data[at] ^= (uint8_t)(1 + t_rng_below(&rng, 255));
    T_OK(native_read(&file, NULL, &part));
    expect_prefix(part, whole);
    tide_trace_free(part);
    tide_trace_free(whole);
    memory_file_fini(&file);
  }
}

T_TEST(test_native_damage__bytes_behind_the_end_are_damage) {
  tide_trace* const whole = small_trace();
  tide_trace* part = NULL;
  memory_file file = { 0 };
  T_OK(native_write(whole, &file));
  memory_file_add(&file, "x", 1);

  T_OK(native_read(&file, NULL, &part));

  expect_prefix(part, whole);
  T_EQ(item_total(part), item_total(whole));
  memory_file_fini(&file);
  tide_trace_free(part);
  tide_trace_free(whole);
}

T_TEST(test_native_damage__pieces_of_any_length_are_read) {
  tide_trace* const whole = small_trace();
  memory_file file = { 0 };
  T_OK(native_write(whole, &file));

  for (file.piece = 1; file.piece < 80; file.piece++) {
    tide_trace* again = NULL;
    T_OK(native_read(&file, NULL, &again));
    expect_same(whole, again);
    tide_trace_free(again);
  }
  memory_file_fini(&file);
  tide_trace_free(whole);
}

// ---------------------------------------------------------------------------------------------------
// Hostile files: right checksums, wrong contents

#define AT_HEAD (-(int)TIDE__NATIVE_CHUNK_BYTES)

typedef struct hostile_chunk {
  const char* name;
  int at;  // the byte of the payload that the error names
  tide__native_chunk chunk;
  size_t bytes;
  uint8_t payload[24];
} hostile_chunk;

#define CASE(name, count) \
  { .kind = TIDE__NATIVE_##name, .items = (count) }

// What the cases can refer to: texts 1 and 2, values 1 (none) and 2 (a dict), and one of all else.
static void add_prelude(file_maker* maker) {
  static const hostile_chunk prelude[] = {
    { "texts", 0, CASE(TEXTS, 2), 4, { 1, 'a', 1, 'b' } },  { "values", 0, CASE(VALUES, 2), 3, { 0, 8, 0 } },
    { "frames", 0, CASE(FRAMES, 1), 5, { 1, 2, 0, 2, 0 } }, { "stacks", 0, CASE(STACKS, 1), 2, { 1, 1 } },
    { "notes", 0, CASE(NOTES, 1), 3, { 1, 2, 0 } },         { "pools", 0, CASE(POOLS, 1), 2, { 0, 1 } },
    { "about", 0, CASE(ABOUT, 1), 5, { 3, 1, 2, 2, 1 } },
  };
  for (size_t i = 0; i < sizeof prelude / sizeof *prelude; i++) {
    file_add_chunk(maker, prelude[i].chunk, prelude[i].payload, prelude[i].bytes);
  }
}

static const hostile_chunk hostile_names[] = {
  { "a text that is there", 0, CASE(TEXTS, 1), 2, { 1, 'a' } },
  { "an empty text", 0, CASE(TEXTS, 1), 1, { 0 } },
  { "a text longer than its chunk", 0, CASE(TEXTS, 1), 3, { 3, 'x', 'y' } },
  { "a text of 2^64 - 1 bytes",
    0,
    CASE(TEXTS, 1),
    11,
    { 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 'x' } },
  { "fewer texts than items", 2, CASE(TEXTS, 2), 2, { 1, 'x' } },
  { "more texts than items", 2, CASE(TEXTS, 1), 4, { 1, 'x', 1, 'y' } },
  { "no items, but bytes", 0, CASE(TEXTS, 0), 1, { 0 } },
  { "2^60 items", 2, CASE(TEXTS, (uint64_t)1 << 60), 2, { 1, 'x' } },
  { "a number of 65 bits", 0, CASE(TEXTS, 1), 11, { 128, 128, 128, 128, 128, 128, 128, 128, 128, 2, 'x' } },
  { "a number of 11 bytes",
    0,
    CASE(TEXTS, 1),
    12,
    { 129, 128, 128, 128, 128, 128, 128, 128, 128, 129, 0, 'x' } },
  { "a number without an end", 0, CASE(TEXTS, 1), 2, { 128, 128 } },
  { "a kind that is none", 0, CASE(VALUES, 1), 1, { 9 } },
  { "neither true nor false", 1, CASE(VALUES, 1), 2, { 1, 2 } },
  { "half a number", 1, CASE(VALUES, 1), 5, { 4, 0, 0, 0, 0 } },
  { "the value of no text", 1, CASE(VALUES, 1), 2, { 5, 3 } },
  { "a value that is there", 0, CASE(VALUES, 1), 1, { 0 } },
  { "an item that is itself", 2, CASE(VALUES, 1), 3, { 6, 1, 3 } },
  { "an item that comes later", 2, CASE(VALUES, 2), 5, { 6, 1, 4, 2, 0 } },
  { "an item that is 0", 0, CASE(VALUES, 1), 3, { 6, 1, 0 } },
  { "an item of 33 bits", 2, CASE(VALUES, 1), 7, { 6, 1, 129, 128, 128, 128, 16 } },
  { "more items than bytes", 1, CASE(VALUES, 1), 3, { 7, 3, 1 } },
  { "2^63 items", 1, CASE(VALUES, 1), 12, { 6, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1, 1 } },
  { "a key twice", 0, CASE(VALUES, 1), 6, { 8, 2, 1, 1, 1, 2 } },
  { "a key that is no text", 2, CASE(VALUES, 1), 4, { 8, 1, 3, 1 } },
  { "half a pair", 3, CASE(VALUES, 1), 3, { 8, 1, 1 } },
  { "a frame with no name", 0, CASE(FRAMES, 1), 5, { 3, 1, 0, 0, 0 } },
  { "a frame with no file", 1, CASE(FRAMES, 1), 5, { 1, 9, 0, 0, 0 } },
  { "a frame with a value that is no dict", 3, CASE(FRAMES, 1), 5, { 1, 1, 0, 1, 0 } },
  { "a frame with no value", 3, CASE(FRAMES, 1), 5, { 1, 1, 0, 3, 0 } },
  { "half a frame", 2, CASE(FRAMES, 1), 2, { 1, 1 } },
  { "33 bits of keys", 4, CASE(FRAMES, 1), 9, { 1, 1, 0, 0, 128, 128, 128, 128, 16 } },
  { "a stack that is there", 0, CASE(STACKS, 1), 2, { 1, 1 } },
  { "an empty stack", 0, CASE(STACKS, 1), 1, { 0 } },
  { "a stack longer than its chunk", 0, CASE(STACKS, 1), 3, { 3, 1, 1 } },
  { "a stack with half a number", 2, CASE(STACKS, 1), 3, { 2, 1, 128 } },
  { "a note of no text", 0, CASE(NOTES, 1), 3, { 3, 1, 0 } },
  { "a note with no context", 1, CASE(NOTES, 1), 3, { 1, 3, 0 } },
  { "a note with a value that is no dict", 2, CASE(NOTES, 1), 3, { 1, 1, 1 } },
  { "an empty note", 0, CASE(NOTES, 1), 3, { 0, 0, 0 } },
  { "half a note", 2, CASE(NOTES, 1), 2, { 1, 0 } },
  { "a pool that is there", 0, CASE(POOLS, 1), 2, { 0, 1 } },
  { "the default pool", 0, CASE(POOLS, 1), 2, { 0, 0 } },
  { "half a pool", 1, CASE(POOLS, 1), 1, { 4 } },
};

static const hostile_chunk hostile_others[] = {
  { "about twice", AT_HEAD, CASE(ABOUT, 1), 5, { 0, 0, 0, 0, 0 } },
  { "kind 0", AT_HEAD, { .kind = 0 }, 0, { 0 } },
  { "an unknown kind", AT_HEAD, { .kind = 11 }, 0, { 0 } },
  { "an unknown kind with unknown flags", AT_HEAD, { .kind = 11, .flags = 3 }, 0, { 0 } },
  { "a known kind with flags",
    AT_HEAD,
    { .kind = TIDE__NATIVE_TEXTS, .flags = TIDE__NATIVE_CAN_SKIP },
    0,
    { 0 } },
  { "no entries", AT_HEAD, CASE(ENTRIES, 0), 0, { 0 } },
  { "entries without bytes", 0, CASE(ENTRIES, 65536), 1, { 0 } },
  { "too many entries", AT_HEAD, CASE(ENTRIES, 65537), 1, { 0 } },
  { "2^63 entries", AT_HEAD, CASE(ENTRIES, (uint64_t)1 << 63), 1, { 0 } },
  { "columns that are missing", 3, CASE(ENTRIES, 1), 3, { 0, 0, 0 } },
  { "a column that is too short", 6, CASE(ENTRIES, 3), 6, { 0, 0, 0, 0, 1, 0 } },
  { "a byte too many", 19, CASE(ENTRIES, 1), 20, { 0 } },
  { "an action that is none", 0, CASE(ENTRIES, 1), 19, { 11 } },
  { "device 256", 1, CASE(ENTRIES, 1), 20, { 0, 128, 2, 0 } },
  { "device -1", 2, CASE(ENTRIES, 2), 21, { 0, 0, 0, 1, 1 } },
  { "a stack that is none", 11, CASE(ENTRIES, 1), 19, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0 } },
  { "a note that is none", 13, CASE(ENTRIES, 1), 19, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0 } },
  { "a pool that is none", 15, CASE(ENTRIES, 1), 19, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0 } },
  { "17 bits of keys", 17, CASE(ENTRIES, 1), 21, { 0, 0, 0, 0, 0, 0, 0,   0,   0, 0, 0,
                                                   0, 0, 0, 0, 0, 0, 128, 128, 4, 0 } },
  { "a wrong time", AT_HEAD, CASE(ENTRIES, 1), 19, { 0, 0, 0, 1, 0 } },
  { "a wrong first time",
    AT_HEAD,
    { .kind = TIDE__NATIVE_ENTRIES, .items = 1, .first_ns = 1, .last_ns = 2 },
    19,
    { 0, 0, 0, 2, 0 } },
  { "segments without bytes", 1, CASE(SEGMENTS, 9), 1, { 0 } },
  { "2^62 segments", 1, CASE(SEGMENTS, (uint64_t)1 << 62), 1, { 0 } },
  { "blocks without bytes", 0, CASE(SEGMENTS, 0), 1, { 5 } },
  { "blocks without a segment", AT_HEAD, CASE(SEGMENTS, 0), 14, { 1 } },
  { "a state that is none", 1, CASE(SEGMENTS, 0), 14, { 1, 3 } },
  { "a block with a value that is no dict",
    10,
    CASE(SEGMENTS, 0),
    14,
    { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 } },
  { "large: 2", 1, CASE(SEGMENTS, 1), 24, { 0, 2 } },
  { "a segment without columns", 2, CASE(SEGMENTS, 1), 2, { 0, 1 } },
};

static void expect_hostile(const hostile_chunk* bad) {
  file_maker maker;
  char place[40];
  tide_trace* trace = NULL;
  file_begin(&maker);
  add_prelude(&maker);
  (void)snprintf(place, sizeof place,
                 "native: byte %d: ", (int)(maker.file.bytes + TIDE__NATIVE_CHUNK_BYTES) + bad->at);
  file_add_chunk(&maker, bad->chunk, bad->payload, bad->bytes);
  file_end(&maker);
  const tide_status status = native_read(&maker.file, NULL, &trace);
  if (status != TIDE_ERR_FORMAT) T_FAIL("%s: %s", bad->name, tide_status_name(status));
  if (strncmp(tide_last_error()->text, place, strlen(place)) != 0) {
    T_FAIL("%s: not \"%s\", but \"%s\"", bad->name, place, tide_last_error()->text);
  }
  file_fini(&maker);
}

static void expect_format(file_maker* maker, const char* part) {
  tide_trace* trace = NULL;
  T_STATUS(native_read(&maker->file, NULL, &trace), TIDE_ERR_FORMAT);
  T_STR_HAS(tide_last_error()->text, part);
  file_fini(maker);
}

T_TEST(test_native_damage__the_cases_refer_to_what_is_there) {
  static const uint8_t entry[19] = { 8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0 };
  file_maker maker;
  tide_trace* trace = NULL;
  file_begin(&maker);
  add_prelude(&maker);
  file_add_chunk(&maker, (tide__native_chunk)CASE(ENTRIES, 1), entry, sizeof entry);
  file_end(&maker);

  T_OK(native_read(&maker.file, NULL, &trace));

  T_EQ(item_total(trace), 10);
  T_CHECK(!tide_trace_get_about(trace).is_cut);
  T_CHECK(!tide_trace_get_about(trace).has_segments);  // they were announced, but never came
  tide_trace_free(trace);
  file_fini(&maker);
}

T_TEST(test_native_damage__hostile_names_are_refused) {
  for (size_t i = 0; i < sizeof hostile_names / sizeof *hostile_names; i++) expect_hostile(&hostile_names[i]);
}

T_TEST(test_native_damage__hostile_rows_are_refused) {
  for (size_t i = 0; i < sizeof hostile_others / sizeof *hostile_others; i++)
    expect_hostile(&hostile_others[i]);
}

// Flags, settings, annotations, other keys and devices, with value 1, which is no dict, as all there is.
T_TEST(test_native_damage__hostile_words_about_the_trace_are_refused) {
  static const uint8_t cases[][6] = { { 32, 0, 0, 0, 0 }, { 0, 2, 0, 0, 0 }, { 0, 0, 2, 0, 0 },
                                      { 0, 0, 0, 2, 0 },  { 0, 0, 0, 1, 0 }, { 0, 0, 0, 0, 129, 2 },
                                      { 0, 0, 0, 0, 129 } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    file_maker maker;
    tide_trace* trace = NULL;
    file_begin(&maker);
    file_add_chunk(&maker, (tide__native_chunk)CASE(VALUES, 1), "", 1);
    file_add_chunk(&maker, (tide__native_chunk)CASE(ABOUT, 1), cases[i], i == 5 ? 6 : 5);
    file_end(&maker);
    T_STATUS(native_read(&maker.file, NULL, &trace), TIDE_ERR_FORMAT);
    file_fini(&maker);
  }
}

T_TEST(test_native_damage__a_segment_with_the_blocks_of_others_is_refused) {
  static const uint8_t segments[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
  file_maker maker;
  file_begin(&maker);
  add_prelude(&maker);
  file_add_chunk(&maker, (tide__native_chunk)CASE(SEGMENTS, 1), segments, sizeof segments);
  file_end(&maker);
  expect_format(&maker, "segment 0 has more blocks than the chunk has left");
}

T_TEST(test_native_damage__values_nested_too_deep_are_refused) {
  uint8_t payload[3 * 100];
  file_maker maker;
  tide_trace* trace = NULL;
  payload[0] = TIDE_VALUE_NONE;
  for (uint8_t i = 1; i < 100; i++) {
    payload[3 * i - 2] = TIDE_VALUE_LIST;
    payload[3 * i - 1] = 1;
    payload[3 * i] = i;
  }
  file_begin(&maker);
  file_add_chunk(&maker, (tide__native_chunk)CASE(VALUES, 100), payload, 298);
  file_end(&maker);

  T_STATUS(native_read(&maker.file, NULL, &trace), TIDE_ERR_FORMAT);

  file_fini(&maker);
}

T_TEST(test_native_damage__segments_before_what_is_said_of_the_trace_are_refused) {
  file_maker maker;
  file_begin(&maker);
  file_add_chunk(&maker, (tide__native_chunk)CASE(SEGMENTS, 0), "", 1);
  expect_format(&maker, "a chunk \"about\" must come first");
}

T_TEST(test_native_damage__a_file_that_says_nothing_is_refused) {
  file_maker maker;
  file_begin(&maker);
  file_end(&maker);
  expect_format(&maker, "there is no chunk \"about\"");
}

T_TEST(test_native_damage__segments_that_come_twice_are_refused) {
  file_maker maker;
  file_begin(&maker);
  add_prelude(&maker);
  file_add_chunk(&maker, (tide__native_chunk)CASE(SEGMENTS, 0), "", 1);
  file_add_chunk(&maker, (tide__native_chunk)CASE(SEGMENTS, 0), "", 1);
  file_end(&maker);
  expect_format(&maker, "a second chunk of segments");
}

T_TEST(test_native_damage__a_wrong_index_is_refused) {
  for (size_t i = 0; i < 7 * TIDE__NATIVE_INDEX_BYTES; i++) {
    file_maker maker;
    file_begin(&maker);
    add_prelude(&maker);
    maker.index.data[i] ^= 1;
    file_end(&maker);
    expect_format(&maker, "the index");
  }
}

T_TEST(test_native_damage__an_index_that_is_too_short_is_refused) {
  file_maker maker;
  file_begin(&maker);
  add_prelude(&maker);
  maker.index.bytes -= TIDE__NATIVE_INDEX_BYTES;
  file_end(&maker);
  expect_format(&maker, "the index");
}

// Makes the checksum of the head right again.
static void seal_head(file_maker* maker) {
  tide__store_fixed(maker->file.data + 12, tide__crc_of(&maker->crc, maker->file.data, 12), 4);
}

T_TEST(test_native_damage__another_major_version_is_refused) {
  file_maker maker;
  tide_trace* trace = NULL;
  file_begin(&maker);
  add_prelude(&maker);
  file_end(&maker);

  maker.file.data[10] = 7;
  seal_head(&maker);
  T_OK(native_read(&maker.file, NULL, &trace));
  tide_trace_free(trace);

  maker.file.data[8] = 2;
  seal_head(&maker);
  expect_format(&maker, "version 2");
}

// A payload that is announced with 2^62 bytes is the end of the file, and takes no memory.
T_TEST(test_native_damage__a_claim_takes_no_memory) {
  uint8_t head[TIDE__NATIVE_CHUNK_BYTES];
  file_maker maker;
  counting_heap heap;
  tide_trace* trace = NULL;
  const tide__native_chunk chunk = { .kind = TIDE__NATIVE_TEXTS, .bytes = (uint64_t)1 << 62, .items = 1 };
  counting_heap_init(&heap, SIZE_MAX, false);
  file_begin(&maker);
  tide__native_store_chunk(&maker.crc, &chunk, head);
  memory_file_add(&maker.file, head, sizeof head);

  T_OK(native_read(&maker.file, &heap.heap, &trace));

  T_CHECK(tide_trace_get_about(trace).is_cut);
  T_LT(atomic_load(&heap.allocs), 10);
  tide_trace_free(trace);
  T_EQ(atomic_load(&heap.outstanding), 0);
  file_fini(&maker);
}

T_TEST(test_native_damage__a_file_may_need_more_memory_than_is_allowed) {
  tide_trace* trace = NULL;
  memory_file file = { 0 };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  T_OK(tide_trace_new(NULL, &trace));
  for (int i = 0; i < 50000; i++) T_OK(tide_trace_add_entry(trace, &(tide_trace_entry){ .bytes = 1 }));
  T_OK(native_write(trace, &file));
  T_LT(file.bytes, 52000);
  tide_trace_free(trace);

  for (options.memory = 100000; options.memory < 3000000; options.memory += 100000) {
    const tide_source source = memory_file_source(&file);
    T_STATUS(tide_trace_read(&source, &options, &trace), TIDE_ERR_LIMIT);
    T_PTR_EQ(trace, NULL);
  }
  options.memory = 10000000;
  const tide_source source = memory_file_source(&file);
  T_OK(tide_trace_read(&source, &options, &trace));
  T_EQ(entry_total(trace), 50000);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// What a recorder may do

T_TEST(test_native_damage__unknown_chunks_may_be_skipped) {
  const tide__native_chunk unknown = { .kind = 99, .flags = TIDE__NATIVE_CAN_SKIP, .items = 5 };
  file_maker maker;
  tide_trace* trace = NULL;
  file_begin(&maker);
  file_add_chunk(&maker, unknown, "anything", 8);
  add_prelude(&maker);
  file_add_chunk(&maker, unknown, NULL, 0);
  file_end(&maker);

  T_OK(native_read(&maker.file, NULL, &trace));

  T_EQ(item_total(trace), 9);
  T_CHECK(!tide_trace_get_about(trace).is_cut);
  tide_trace_free(trace);
  file_fini(&maker);
}

// Names between entries, and the segments last.
static void make_recording(file_maker* maker) {
  static const uint8_t first[19] = { 0 };
  static const uint8_t second[19] = { 1, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0 };
  static const uint8_t segment[28] = { 0, 1 };
  file_begin(maker);
  add_prelude(maker);
  file_add_chunk(maker, (tide__native_chunk)CASE(ENTRIES, 1), first, sizeof first);
  file_add_chunk(maker, (tide__native_chunk)CASE(STACKS, 1), (const uint8_t[]){ 2, 1, 1 }, 3);
  const tide__native_chunk entries = { TIDE__NATIVE_ENTRIES, 0, 0, 1, 9, 9, 0 };
  file_add_chunk(maker, entries, second, sizeof second);
  file_add_chunk(maker, (tide__native_chunk)CASE(SEGMENTS, 1), segment, sizeof segment);
  file_end(maker);
}

T_TEST(test_native_damage__names_may_come_late_and_segments_last) {
  file_maker maker;
  tide_trace* trace = NULL;
  size_t count = 0;
  make_recording(&maker);

  T_OK(native_read(&maker.file, NULL, &trace));

  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  T_EQ(count, 2);
  T_EQ(entries[1].stack, 2);
  T_EQ(entries[1].time_ns, 9);
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 1);
  T_CHECK(tide_trace_get_about(trace).has_segments && !tide_trace_get_about(trace).is_cut);
  tide_trace_free(trace);
  file_fini(&maker);
}

T_TEST(test_native_damage__segments_that_are_lost_are_not_there) {
  file_maker maker;
  tide_trace* trace = NULL;
  size_t offsets[32] = { 0 };
  make_recording(&maker);
  const size_t chunks = find_chunks(&maker.file, offsets, 32);
  T_LE(2, chunks);
  maker.file.bytes = offsets[chunks - 2] - 1;  // within the segments, which the index follows

  T_OK(native_read(&maker.file, NULL, &trace));

  T_EQ(entry_total(trace), 2);
  T_CHECK(tide_trace_get_about(trace).is_cut);
  T_CHECK(!tide_trace_get_about(trace).has_segments);
  tide_trace_free(trace);
  file_fini(&maker);
}

// ---------------------------------------------------------------------------------------------------
// Failures around it

static tide_trace* mixed_trace(const tide_heap* heap) { return random_trace(heap, (t_rng){ 4 }, 150); }

// A writer takes its memory where the trace has its own.
T_TEST(test_native_damage__writing_may_fail_at_any_alloc) {
  counting_heap heap;
  counting_heap_init(&heap, SIZE_MAX, false);
  tide_trace* const trace = mixed_trace(&heap.heap);
  const size_t outstanding = atomic_load(&heap.outstanding);
  bool is_done = false;
  for (size_t at = 0; !is_done; at++) {
    memory_file file = { 0 };
    atomic_store(&heap.has_failed, false);
    atomic_store(&heap.fail_at, atomic_load(&heap.allocs) + at);
    const tide_status status = native_write(trace, &file);
    is_done = !atomic_load(&heap.has_failed);
    T_EQ(status, is_done ? TIDE_OK : TIDE_ERR_NO_MEMORY);
    T_EQ(atomic_load(&heap.outstanding), outstanding);
    memory_file_fini(&file);
  }
  tide_trace_free(trace);
}

T_TEST(test_native_damage__reading_may_fail_at_any_alloc) {
  tide_trace* const trace = mixed_trace(NULL);
  memory_file file = { 0 };
  bool is_done = false;
  T_OK(native_write(trace, &file));
  for (size_t at = 0; !is_done; at++) {
    counting_heap heap;
    tide_trace* again = NULL;
    counting_heap_init(&heap, at, false);
    const tide_status status = native_read(&file, &heap.heap, &again);
    is_done = !atomic_load(&heap.has_failed);
    T_EQ(status, is_done ? TIDE_OK : TIDE_ERR_NO_MEMORY);
    if (is_done) expect_same(trace, again);
    tide_trace_free(again);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
  memory_file_fini(&file);
  tide_trace_free(trace);
}

T_TEST(test_native_damage__a_source_may_fail_at_any_call) {
  tide_trace* const trace = small_trace();
  memory_file file = { 0 };
  tide_trace* again = NULL;
  T_OK(native_write(trace, &file));
  file.piece = 7;
  T_OK(native_read(&file, NULL, &again));
  const size_t calls = file.calls;
  tide_trace_free(again);

  T_LT(file.bytes / 7, calls);
  for (file.fail_at = 1; file.fail_at <= calls; file.fail_at++) {
    T_STATUS(native_read(&file, NULL, &again), MEMORY_FILE_FAILURE);
    T_PTR_EQ(again, NULL);
  }
  memory_file_fini(&file);
  tide_trace_free(trace);
}

T_TEST(test_native_damage__a_sink_may_fail_at_any_call) {
  tide_trace* const trace = random_trace(NULL, (t_rng){ 8 }, 20000);
  memory_file file = { 0 };
  T_OK(native_write(trace, &file));
  const size_t calls = file.calls;

  T_LT(2, calls);
  for (size_t at = 1; at <= calls; at++) {
    file.bytes = file.calls = 0;
    file.fail_at = at;
    T_STATUS(native_write(trace, &file), MEMORY_FILE_FAILURE);
    T_EQ(file.calls, at);  // nothing is sent after a failure
  }
  memory_file_fini(&file);
  tide_trace_free(trace);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Native files: every trace comes back as it was, with the same numbers; the bytes are those of the document;
// columns have the expected size; and a reference that does not exist is not written.
#include "native_file.h"

// ---------------------------------------------------------------------------------------------------
// Round trips

static void expect_equal(const tide_trace* a, const tide_trace* b) {
  char text[300];
  if (!traces_are_equal(a, b, text, sizeof text)) T_FAIL("%s", text);
  if (!traces_have_same_numbers(a, b, text, sizeof text)) T_FAIL("numbers: %s", text);
  if (!traces_have_same_numbers(b, a, text, sizeof text)) T_FAIL("numbers: %s", text);
  T_EQ(tide_trace_pool_count(a), tide_trace_pool_count(b));
}

// Writes and reads it back; returns the bytes of the file.
static size_t expect_round_trip(const tide_trace* trace) {
  memory_file file = { 0 };
  tide_trace* again = NULL;
  T_OK(native_write(trace, &file));
  T_CHECK(tide__native_is(file.data, file.bytes));
  T_OK(native_read(&file, NULL, &again));
  expect_equal(trace, again);
  const size_t bytes = file.bytes;
  tide_trace_free(again);
  memory_file_fini(&file);
  return bytes;
}

static tide_trace* new_trace(void) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  return trace;
}

// What all these tests lean on: the comparison sees every bit of an entry.
T_TEST(test_native__entries_that_differ_are_told_apart) {
  tide_trace* const trace = new_trace();
  const tide_trace_entry entry = { .bytes = 1 };
  T_OK(tide_trace_add_entry(trace, &entry));
  for (size_t bit = 0; bit < 8 * sizeof entry; bit++) {
    tide_trace* const other = new_trace();
    tide_trace_entry changed = entry;
    char text[300];
    ((uint8_t*)&changed)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    if (changed.action >= TIDE_ACTION_COUNT) changed.action = TIDE_ACTION_OTHER;
    T_OK(tide_trace_add_entry(other, &changed));
    const bool is_pool = bit / 32 == offsetof(tide_trace_entry, pool) / 4;  // no pool is like the default one
    T_EQ(traces_are_equal(trace, other, text, sizeof text), is_pool);
    tide_trace_free(other);
  }
  tide_trace_free(trace);
}

T_TEST(test_native__keeps_an_empty_trace) {
  tide_trace* const trace = new_trace();

  T_EQ(expect_round_trip(trace), 16 + (48 + 5) + (48 + 40) + 16);

  tide_trace_free(trace);
}

T_TEST(test_native__is_found_from_its_first_bytes) {
  tide_trace* const trace = new_trace();
  tide_trace* again = NULL;
  memory_file file = { 0 };
  T_OK(native_write(trace, &file));
  const tide_source source = memory_file_source(&file);

  T_OK(tide_trace_read(&source, NULL, &again));

  expect_equal(trace, again);
  memory_file_fini(&file);
  tide_trace_free(trace);
  tide_trace_free(again);
}

T_TEST(test_native__keeps_lists_without_entries) {
  tide_trace* const trace = new_trace();
  const tide_trace_entry entry = { .device = 2, .bytes = 5 };
  T_OK(tide_trace_add_entry(trace, &entry));
  T_OK(tide_trace_add_device(trace, 7));

  expect_round_trip(trace);
  T_OK(tide_trace_add_device(trace, 255));
  expect_round_trip(trace);

  tide_trace_free(trace);
}

T_TEST(test_native__keeps_what_is_said_of_a_trace) {
  tide_trace* const trace = new_trace();
  const tide_value number = { .kind = TIDE_VALUE_INT, .integer = 3 };
  const tide_value dict = { .kind = TIDE_VALUE_DICT };
  tide_trace_about about = { 0 };
  T_OK(tide_intern_add_value(tide_trace_names(trace), &number, &about.settings));
  T_OK(tide_intern_add_value(tide_trace_names(trace), &dict, &about.extra));
  about.annotations = about.extra;

  for (unsigned flags = 0; flags < 32; flags++) {
    about.has_segments = flags & 1;
    about.has_entries = flags >> 1 & 1;
    about.is_segments_only = flags >> 2 & 1;
    about.is_cut = flags >> 3 & 1;
    about.has_steps = flags >> 4 & 1;
    tide_trace_set_about(trace, &about);
    expect_round_trip(trace);
  }
  tide_trace_free(trace);
}

T_TEST(test_native__keeps_segments_with_and_without_blocks) {
  tide_trace* const trace = new_trace();
  tide_trace_set_about(trace, &(tide_trace_about){ .has_segments = true });
  for (uint32_t i = 0; i < 5; i++) {
    const tide_trace_segment segment = { .address = 1u << 20, .bytes = i << 21, .device = (uint8_t)i };
    T_OK(tide_trace_add_segment(trace, &segment));
    for (uint32_t k = 0; k < i * (i % 2); k++) {
      const tide_trace_block block = { .address = k << 9, .bytes = 512, .state = (uint8_t)(k % 3) };
      T_OK(tide_trace_add_block(trace, &block));
    }
  }

  expect_round_trip(trace);

  tide_trace_free(trace);
}

static uint32_t add_value(tide_trace* trace, tide_value value) {
  uint32_t number = 0;
  T_OK(tide_intern_add_value(tide_trace_names(trace), &value, &number));
  return number;
}

T_TEST(test_native__keeps_every_kind_of_value) {
  static const int64_t integers[] = { 0, 1, -1, 63, 64, -64, -65, INT64_MAX, INT64_MIN };
  static const uint64_t doubles[] = {
    0, 0x8000000000000000, 0x7ff0000000000000, 0x7ff8000000000001, 0xfff4000000000002, 1, 0x3ff8000000000000
  };
  tide_trace* const trace = new_trace();
  uint32_t text = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), "a\0b", 3, &text));
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_NONE });
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = 0 });
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = 1 });
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_TEXT, .text = text });
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_TEXT });
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
    (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_INT, .integer = integers[i] });
    (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_UINT, .integer = integers[i] });
  }
  for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
    tide_value value = { .kind = TIDE_VALUE_FLOAT };
    memcpy(&value.number, &doubles[i], sizeof value.number);
    (void)add_value(trace, value);
  }
  for (uint32_t kind = TIDE_VALUE_LIST; kind <= TIDE_VALUE_DICT; kind++) {
    const uint64_t key = kind == TIDE_VALUE_DICT ? (uint64_t)text << 32 : 0;
    const uint64_t items[2] = { 2, key | 3 };
    (void)add_value(trace, (tide_value){ .kind = kind });
    (void)add_value(trace, (tide_value){ .kind = kind, .items = items, .count = 2 });
  }

  expect_round_trip(trace);

  tide_trace_free(trace);
}

// Shared at every level: written out without sharing it would have 2^63 parts.
T_TEST(test_native__keeps_values_that_are_nested_and_shared) {
  tide_trace* const trace = new_trace();
  uint64_t inner = add_value(trace, (tide_value){ .kind = TIDE_VALUE_NONE });
  for (int depth = 1; depth < 64; depth++) {
    const uint64_t items[2] = { inner, inner };
    inner = add_value(trace, (tide_value){ .kind = TIDE_VALUE_LIST, .items = items, .count = 2 });
  }
  tide_trace_set_about(trace, &(tide_trace_about){ .settings = (uint32_t)inner });

  expect_round_trip(trace);

  tide_trace_free(trace);
}

// Frames of a stack may be anything, such as addresses of code.
T_TEST(test_native__keeps_stacks_of_plain_numbers) {
  const uint64_t frames[] = { 0, UINT64_MAX, 0x7fffdeadbeef, 1 };
  tide_trace* const trace = new_trace();
  tide_trace_entry entry = { 0 };
  T_OK(tide_intern_add_stack(tide_trace_names(trace), frames, 4, &entry.stack));
  T_OK(tide_trace_add_entry(trace, &entry));

  expect_round_trip(trace);

  tide_trace_free(trace);
}

// Differences that wrap around, and those whose only divisors are large.
T_TEST(test_native__keeps_numbers_at_the_edges) {
  static const uint64_t numbers[] = {
    0, UINT64_MAX, 0, (uint64_t)1 << 63, 0, INT64_MAX, (uint64_t)INT64_MAX + 2, UINT64_MAX - 1, 1
  };
  const size_t count = sizeof numbers / sizeof *numbers;
  for (size_t from = 0; from < count; from++) {
    for (size_t to = from + 1; to <= count; to++) {
      tide_trace* const trace = new_trace();
      for (size_t i = from; i < to; i++) {
        const uint64_t n = numbers[i];
        const uint64_t address = n / 3 * 3;
        const uint64_t room = UINT64_MAX - address;
        const uint64_t bytes = ~n % TIDE_FORMAT_BYTES;
        const tide_trace_entry entry = {
          .time_ns = n, .address = address, .bytes = bytes < room ? bytes : room, .stream = n << 62
        };
        T_OK(tide_trace_add_entry(trace, &entry));
      }
      expect_round_trip(trace);
      tide_trace_free(trace);
    }
  }
}

T_TEST(test_native__keeps_lists_of_many_chunks) {
  tide_trace* const trace = new_trace();
  char text[1000];
  for (uint32_t i = 0; i < 40000; i++) {
    uint32_t number = 0;
    tide_trace_entry entry = { .time_ns = i, .device = (uint8_t)(i % 2), .action = (uint8_t)(i % 3) };
    memset(text, 'x', sizeof text);
    (void)snprintf(text, sizeof text, "%" PRIu32, i);
    if (i % 20 == 0) T_OK(tide_intern_add_text(tide_trace_names(trace), text, sizeof text, &number));
    T_OK(tide_intern_add_note(tide_trace_names(trace), (tide_note){ .metadata = number }, &entry.note));
    T_OK(tide_trace_add_entry(trace, &entry));
  }

  T_LT(2000000, expect_round_trip(trace));

  tide_trace_free(trace);
}

T_TEST(test_native__keeps_random_traces) {
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < t_scaled(400); i++) {
    tide_trace* const trace = random_trace(NULL, (t_rng){ t_rng_next(&rng) }, 1 + i % 200);
    expect_round_trip(trace);
    tide_trace_free(trace);
  }
}

// ---------------------------------------------------------------------------------------------------
// The bytes

T_TEST(test_native__has_the_checksum_of_the_standards) {
  tide__crc crc;
  uint8_t bytes[32];
  tide__crc_init(&crc);

  T_EQ(tide__crc_of(&crc, "123456789", 9), 0xe3069283);  // the usual example
  T_EQ(tide__crc_of(&crc, NULL, 0), 0);
  memset(bytes, 0, sizeof bytes);  // RFC 3720, B.4
  T_EQ(tide__crc_of(&crc, bytes, sizeof bytes), 0x8a9136aa);
  memset(bytes, 0xff, sizeof bytes);
  T_EQ(tide__crc_of(&crc, bytes, sizeof bytes), 0x62a8ab43);
  for (uint8_t i = 0; i < 32; i++) bytes[i] = i;
  T_EQ(tide__crc_of(&crc, bytes, sizeof bytes), 0x46dd794e);
}

static void expect_bytes(const memory_file* file, size_t offset, const uint8_t* wanted, size_t bytes) {
  T_LE(offset + bytes, file->bytes);
  for (size_t i = 0; i < bytes; i++) {
    if (file->data[offset + i] != wanted[i]) {
      T_FAIL("byte %zu is 0x%02x, not 0x%02x", offset + i, file->data[offset + i], wanted[i]);
    }
  }
}

// The example of the document, byte for byte: a change here is a new version of the format.
T_TEST(test_native__writes_the_bytes_of_the_document) {
  static const uint8_t entries[] = { 0,    1,    2,                   // action
                                     0,    0,                         // device
                                     0x88, 0x27, 0xe8, 0x07, 4,       // time: 5000, unit 1000, +2, then
                                     1,                               // -1
                                     0x80, 0x08, 0x80, 0x04, 2,       // address: 1024, unit 512, +1, then
                                     0,                               // 0
                                     100,  0,    7,    0,    0, 0,    // bytes, stream, stack: all the same
                                     0,    0,    0,    0,    0, 0 };  // note, pool, absent
  static const uint8_t head[] = { 0x89, 'T', 'I', 'D', 'E', '\r', '\n', 0x1a, 1, 0, 0, 0 };
  static const uint8_t chunk[] = { 9, 0, 0, 0, 0, 0, 0, 0,    sizeof entries, 0, 0, 0, 0, 0, 0, 0,    3,
                                   0, 0, 0, 0, 0, 0, 0, 0x88, 0x13,           0, 0, 0, 0, 0, 0, 0x58, 0x1b };
  tide_trace* const trace = new_trace();
  memory_file file = { 0 };
  tide_trace_entry entry = { .time_ns = 5000, .address = 1024, .bytes = 100, .stream = 7 };
  T_OK(tide_trace_add_entry(trace, &entry));
  entry.action = TIDE_ACTION_FREE_REQUESTED;
  entry.time_ns = 7000;
  entry.address = 1536;
  T_OK(tide_trace_add_entry(trace, &entry));
  entry.action = TIDE_ACTION_FREE_COMPLETED;
  entry.time_ns = 6000;
  T_OK(tide_trace_add_entry(trace, &entry));

  T_OK(native_write(trace, &file));

  expect_bytes(&file, 0, head, sizeof head);
  expect_bytes(&file, 16 + 53, chunk, sizeof chunk);
  expect_bytes(&file, 16 + 53 + 48, entries, sizeof entries);
  expect_round_trip(trace);
  memory_file_fini(&file);
  tide_trace_free(trace);
}

T_TEST(test_native__writes_the_same_bytes_again) {
  tide_trace* const trace = random_trace(NULL, t_rng_new(1), 300);
  tide_trace* again = NULL;
  memory_file first = { 0 };
  memory_file second = { 0 };

  T_OK(native_write(trace, &first));
  T_OK(native_read(&first, NULL, &again));
  T_OK(native_write(again, &second));

  T_EQ(first.bytes, second.bytes);
  T_EQ(memcmp(first.data, second.data, first.bytes), 0);
  memory_file_fini(&first);
  memory_file_fini(&second);
  tide_trace_free(trace);
  tide_trace_free(again);
}

// A column without changes takes two or three bytes a chunk, whatever its value is.
T_TEST(test_native__constant_columns_cost_nothing) {
  tide_trace* const trace = new_trace();
  for (int i = 0; i < 16384; i++) {
    const tide_trace_entry entry = {
      .time_ns = 1000, .address = UINT64_MAX >> 1, .bytes = 1u << 30, .absent = 510
    };
    T_OK(tide_trace_add_entry(trace, &entry));
  }

  T_LT(expect_round_trip(trace), 16384 + 1000);

  tide_trace_free(trace);
}

// Times in whole µs and addresses on 512 bytes are counted in these units: a byte for a change below 64.
T_TEST(test_native__units_are_found) {
  tide_trace* const trace = new_trace();
  t_rng rng = t_rng_new(0);
  for (uint64_t i = 0; i < 16384; i++) {
    const tide_trace_entry entry = { .time_ns = 123456789000 + 7000 * i,
                                     .address = 0x7fff00000000 + 512 * t_rng_below(&rng, 60),
                                     .stream = t_rng_below(&rng, 2) * 0x55aaffff1234 };
    T_OK(tide_trace_add_entry(trace, &entry));
  }

  T_LT(expect_round_trip(trace), 4 * 16384 + 1000);

  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// What is not written

static void expect_refused(tide_trace* trace, const char* part) {
  memory_file file = { 0 };
  T_STATUS(native_write(trace, &file), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, part);
  memory_file_fini(&file);
  tide_trace_free(trace);
}

static void expect_entry_refused(tide_trace_entry entry, const char* part) {
  tide_trace* const trace = new_trace();
  T_OK(tide_trace_add_entry(trace, &entry));
  expect_refused(trace, part);
}

T_TEST(test_native__refuses_entries_that_refer_to_nothing) {
  expect_entry_refused((tide_trace_entry){ .stack = 1 }, "entry 0 has stack 1");
  expect_entry_refused((tide_trace_entry){ .note = UINT32_MAX }, "note 4294967295");
  expect_entry_refused((tide_trace_entry){ .pool = 1 }, "pool 1");
}

// A trace with a segment and a block, and value 1, which is no dict.
static tide_trace* trace_with_block(tide_trace_segment segment, tide_trace_block block) {
  tide_trace* const trace = new_trace();
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_LIST });
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &block));
  return trace;
}

T_TEST(test_native__refuses_segments_that_refer_to_nothing) {
  const tide_trace_segment segment = { 0 };
  const tide_trace_block block = { 0 };
  expect_refused(trace_with_block((tide_trace_segment){ .stack = 1 }, block), "segment 0 has stack 1");
  expect_refused(trace_with_block((tide_trace_segment){ .pool = 3 }, block), "pool 3");
  expect_refused(trace_with_block((tide_trace_segment){ .extra = 1 }, block), "extra 1");
  expect_refused(trace_with_block(segment, (tide_trace_block){ .extra = 2 }), "block 0 has extra 2");
  expect_refused(trace_with_block(segment, (tide_trace_block){ .stack = 9 }), "stack 9");
}

T_TEST(test_native__refuses_names_that_refer_to_nothing) {
  const uint64_t item = (uint64_t)5 << 32 | 1;
  uint32_t number = 0;

  tide_trace* trace = new_trace();
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_TEXT, .text = 1 });
  expect_refused(trace, "value 1 is text 1");

  trace = new_trace();
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_NONE });
  (void)add_value(trace, (tide_value){ .kind = TIDE_VALUE_DICT, .items = &item, .count = 1 });
  expect_refused(trace, "key 0 of value 2 is text 5");

  trace = new_trace();
  T_OK(tide_intern_add_frame(tide_trace_names(trace), &(tide_frame){ .file = 1 }, &number));
  expect_refused(trace, "frame 1");

  trace = new_trace();
  T_OK(tide_intern_add_note(tide_trace_names(trace), (tide_note){ .compile_context = 1 }, &number));
  expect_refused(trace, "note 1");

  trace = new_trace();
  tide_trace_set_about(trace, &(tide_trace_about){ .settings = 1 });
  expect_refused(trace, "tide_trace_about refers to a value");
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pickles of memory snapshots: every instruction of plain data is understood, every other is refused, and no
// program, however hostile, takes much memory or time. What a pickle means is compared as JSON; notation.h
// has the notation.
#include "machine/counting_heap.h"
#include "notation.h"

// ---------------------------------------------------------------------------------------------------
// Instructions

// The value is under a key that no snapshot has.
static void expect_value(const value_row* row) {
  char wanted[512];
  memory_file file = pickle_of("}( 'segments' ] 'x' ");
  file_add_pickle(&file, row->notation);
  file_add_pickle(&file, "u.");
  (void)snprintf(wanted, sizeof wanted, "{\"segments\": [], \"x\": %s}", row->json);
  expect_json(file, wanted);
}

static void expect_values(const value_row* rows, size_t count) {
  for (size_t i = 0; i < count; i++) expect_value(&rows[i]);
}
#define EXPECT_VALUES(rows) expect_values(rows, sizeof(rows) / sizeof *(rows))

T_TEST(test_pickle__reads_words_and_numbers) {
  static const value_row rows[] = {
    { "N", "null" },
    { "<88>", "true" },
    { "<89>", "false" },
    { "K<00>", "0" },
    { "K<ff>", "255" },
    { "M<00 00>", "0" },
    { "M<ff fe>", "65279" },
    { "J<00 00 00 80>", "-2147483648" },
    { "J<ff ff ff 7f>", "2147483647" },
    { "J<ff ff ff ff>", "-1" },
    { "G<3f e0 00 00 00 00 00 00>", "0.5" },
    { "G<c0 5e dd 2f 1a 9f be 77>", "-123.456" },
    { "G<00 00 00 00 00 00 00 00>", "0.0" },
    { "G<80 00 00 00 00 00 00 00>", "-0.0" },
    { "G<7f f0 00 00 00 00 00 00>", "Infinity" },
    { "G<ff f0 00 00 00 00 00 00>", "-Infinity" },
    { "G<7f f8 00 00 00 00 00 00>", "NaN" },
    { "G<41 f0 00 00 00 00 00 00>", "4294967296.0" },
    { "G<7f ef ff ff ff ff ff ff>", "1.7976931348623157e+308" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__reads_integers_of_any_length_that_have_64_bits) {
  static const value_row rows[] = {
    { "<8a 00>", "0" },
    { "<8a 01 ff>", "-1" },
    { "<8a 01 7f>", "127" },
    { "<8a 02 ff 00>", "255" },
    { "<8a 03 00 00 80>", "-8388608" },
    { "<8a 05 00 00 00 00 01>", "4294967296" },
    { "<8a 07 00 00 00 00 00 00 80>", "-36028797018963968" },
    { "<8a 08 ff ff ff ff ff ff ff 7f>", "9223372036854775807" },
    { "<8a 08 00 00 00 00 00 00 00 80>", "-9223372036854775808" },
    { "<8a 08 ff ff ff ff ff ff ff ff>", "-1" },
    { "<8a 09 00 00 00 00 00 00 00 80 00>", "9223372036854775808" },
    { "<8a 09 ff ff ff ff ff ff ff ff 00>", "18446744073709551615" },
    { "<8a 09 05 00 00 00 00 00 00 00 00>", "5" },
    { "<8b 00 00 00 00>", "0" },
    { "<8b 02 00 00 00 ff 00>", "255" },
    { "<8b 09 00 00 00 ff ff ff ff ff ff ff ff 00>", "18446744073709551615" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__refuses_integers_beyond_64_bits) {
  static const char* const notations[] = {
    "<8a 09 00 00 00 00 00 00 00 00 01>",
    "<8a 09 00 00 00 00 00 00 00 80 ff>",
    "<8a 0a 00 00 00 00 00 00 00 00 00 00>",
    "<8a ff>",
    "<8b 0a 00 00 00 00>",
    "<8b ff ff ff ff>",
    "<8b 00 00 00 80>",
  };
  for (size_t i = 0; i < sizeof notations / sizeof *notations; i++) {
    memory_file file = pickle_of(notations[i]);
    file_add_pickle(&file, "<00 00 00 00 00 00 00 00 00 00> .");
    expect_refused(file, "byte 2: an integer");
  }
}

T_TEST(test_pickle__reads_texts) {
  static const value_row rows[] = {
    { "''", "\"\"" },
    { "'a'", "\"a\"" },
    { "X<00 00 00 00>", "\"\"" },
    { "X<02 00 00 00 61 62>", "\"ab\"" },
    { "<8d 03 00 00 00 00 00 00 00 61 62 63>", "\"abc\"" },
    { "X<03 00 00 00 61 00 62>", "\"a\\u0000b\"" },
    { "'\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80'", "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__reads_lists_tuples_and_dicts) {
  static const value_row rows[] = {
    { "]", "[]" },
    { "](e", "[]" },
    { "](#1#2e", "[1, 2]" },
    { "](#1e(#2e", "[1, 2]" },
    { "]#1a#2a", "[1, 2]" },
    { "(l", "[]" },
    { "(#1#2l", "[1, 2]" },
    { ")", "[]" },
    { "#1<85>", "[1]" },
    { "#1#2<86>", "[1, 2]" },
    { "#1#2#3<87>", "[1, 2, 3]" },
    { "(t", "[]" },
    { "(#1#2#3#4t", "[1, 2, 3, 4]" },
    { "}", "{}" },
    { "}(u", "{}" },
    { "}('a'#1'b'#2u", "{\"a\": 1, \"b\": 2}" },
    { "}'a'#1s'b'#2s", "{\"a\": 1, \"b\": 2}" },
    { "}('a'#1u'b'#2s('c'#3u", "{\"a\": 1, \"b\": 2, \"c\": 3}" },
    { "(d", "{}" },
    { "('a'#1'b'#2d", "{\"a\": 1, \"b\": 2}" },
    { "}''#1s", "{\"\": 1}" },
    { "](](}('a'](#1eu#2#3<86>ee", "[[{\"a\": [1]}, [2, 3]]]" },
    { "]('frames'](}('name''f'uee", "[\"frames\", [{\"name\": \"f\"}]]" },
    { "}('segments'](#1e'device_traces''n'u", "{\"segments\": [1], \"device_traces\": \"n\"}" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__the_last_of_many_equal_keys_counts_in_plain_data) {
  static const value_row rows[] = {
    { "}('a'#1'a'#2u", "{\"a\": 2}" },
    { "}('a'#1'b'#2'a'#3u", "{\"b\": 2, \"a\": 3}" },
    { "}('a'#1u('a'#2u'a'#3s", "{\"a\": 3}" },
    { "('a'#1'a'#2d", "{\"a\": 2}" },
  };
  memory_file file = pickle_of("}( 'segments' ] 'x' }(");
  EXPECT_VALUES(rows);

  for (int i = 0; i < 100; i++) file_add_pickle(&file, i % 2 == 0 ? "'a' #1 'b' #2" : "'c' #3 'a' #4");
  file_add_pickle(&file, "u u.");

  expect_json(file, "{\"segments\": [], \"x\": {\"b\": 2, \"c\": 3, \"a\": 4}}");
}

T_TEST(test_pickle__keeps_tuples_apart_from_lists) {
  memory_file tuple = pickle_of("}( 'segments' ] 'x' #1 #2 <86> u .");
  memory_file list = pickle_of("}( 'segments' ] 'x' ](#1 #2 e u .");
  tide_trace* const first = trace_of(&tuple);
  tide_trace* const second = trace_of(&list);
  const tide_intern* const names = tide_trace_names(first);

  const uint32_t extra = tide_trace_get_about(first).extra;
  T_EQ(tide_intern_value(names, tide_intern_value_find(names, extra, "x")).kind, TIDE_VALUE_TUPLE);
  memory_file tuple_again = file_written(first, TIDE_FORMAT_PICKLE);
  memory_file list_again = file_written(second, TIDE_FORMAT_PICKLE);
  T_CHECK(memchr(tuple_again.data, 0x86, tuple_again.bytes) != NULL);
  T_CHECK(memchr(list_again.data, 0x86, list_again.bytes) == NULL);

  tide_trace_free(first);
  tide_trace_free(second);
  memory_file_fini(&tuple);
  memory_file_fini(&list);
  memory_file_fini(&tuple_again);
  memory_file_fini(&list_again);
}

T_TEST(test_pickle__forgets_what_is_popped) {
  static const value_row rows[] = {
    { "#1 N 0", "1" },
    { "#1 ( 'a' #2 ]( #3 e } 1", "1" },
    { "#1 ( 1", "1" },
    { "](#1 #2 0 e", "[1]" },
    { "}('a' #1 'b' #2 0 0 u", "{\"a\": 1}" },
    { "](] ]0 e", "[[]]" },
    { "]( ]^0 'a'^0 h1 e", "[\"a\"]" },
  };
  EXPECT_VALUES(rows);
}

// Records cannot be removed from a trace: such a file gives an error, or the right result.
T_TEST(test_pickle__popped_entries_and_lists_leave_nothing_behind) {
  static const char* const notations[] = {
    "}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' u N 0 0 eeu.",
    "}( 'segments' ] 'device_traces' ]( ] ] 0 eu.",
    "}( 'segments' ] 'device_traces' ]( ](}( 'action' 'alloc' u e 0 ] eu.",
    "}( 'segments' ](}( 'address' #1 'total_size' #5 u N 0 0 e 'device_traces' ](] eu.",
    "}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' u ^ e 0 ]( h0 0 eeu.",
  };
  for (size_t i = 0; i < sizeof notations / sizeof *notations; i++) {
    memory_file file = pickle_of(notations[i]);
    tide_trace* trace = NULL;
    const tide_status status = file_read(&file, NULL, &trace);
    if (status == TIDE_OK) {
      expect_trace_json(__FILE__, __LINE__, trace, "{\"segments\": [], \"device_traces\": [[]]}");
    } else {
      T_STATUS(status, TIDE_ERR_FORMAT);
    }
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

T_TEST(test_pickle__a_popped_list_of_blocks_does_not_change_another) {
  memory_file file = pickle_of_segments("}( 'address' #1 'total_size' #6 'blocks' ](}( 'size' #1 u e"
                                        " 'blocks' ](}( 'size' #2 u }( 'size' #3 u e 0 0 u");
  tide_trace* trace = NULL;

  const tide_status status = file_read(&file, NULL, &trace);

  if (status == TIDE_OK) {
    size_t count = 0;
    const tide_trace_block* const blocks = tide_trace_blocks(trace, &count);
    T_EQ(count, 1);
    T_EQ(blocks[0].bytes, 1);
  } else {
    T_STATUS(status, TIDE_ERR_FORMAT);
  }
  tide_trace_free(trace);
  memory_file_fini(&file);
}

static bool is_known_instruction(uint8_t code) {
  static const uint8_t known[] = { 0x2e, 0x95, 0x28, 0x7d, 0x75, 0x73, 0x5d, 0x65, 0x61, 0x58, 0x8c, 0x8d,
                                   0x71, 0x72, 0x94, 0x68, 0x6a, 0x4b, 0x4d, 0x4a, 0x8a, 0x47, 0x88, 0x89,
                                   0x4e, 0x86, 0x29, 0x85, 0x87, 0x74, 0x6c, 0x64, 0x8b, 0x30, 0x31 };
  return memchr(known, code, sizeof known) != NULL;
}

// The stack has operands for every instruction, so that only the instruction itself can be wrong.
T_TEST(test_pickle__refuses_every_other_instruction_with_its_place) {
  size_t refused = 0;
  for (unsigned code = 0; code <= UINT8_MAX; code++) {
    if (is_known_instruction((uint8_t)code)) continue;
    char words[64];
    memory_file file = pickle_of("'os' 'system' ('ls' t } ");
    (void)snprintf(words, sizeof words, "pickle: byte %zu: instruction 0x%02x", file.bytes, code);
    file_add_little(&file, code, 1);
    file_add_text(&file, "os\nsystem\n0\n\n.");

    expect_refused(file, words);
    refused++;
  }
  T_EQ(refused, 256 - 35);
}

T_TEST(test_pickle__reads_protocols_2_to_5) {
  for (uint8_t protocol = 0; protocol < 10; protocol++) {
    memory_file file = pickle_of("}( 'segments' ] u .");
    tide_read_options options = TIDE_READ_OPTIONS_INIT;
    tide_trace* trace = NULL;
    options.format = TIDE_FORMAT_PICKLE;
    file.data[1] = protocol;

    const bool is_right = protocol >= 2 && protocol <= 5;
    T_STATUS(file_read(&file, &options, &trace), is_right ? TIDE_OK : TIDE_ERR_FORMAT);
    if (!is_right) T_STR_HAS(tide_last_error()->text, "protocol");
    tide_trace_free(trace);
    T_STATUS(file_read(&file, NULL, &trace), is_right ? TIDE_OK : TIDE_ERR_FORMAT);

    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

T_TEST(test_pickle__takes_frames_as_a_hint) {
  expect_json(pickle_of("<95 0d 00 00 00 00 00 00 00> }( 'segments' ] u ."), "{\"segments\": []}");
  expect_json(pickle_of("<95 00 00 00 00 00 00 00 00> }( <95 01 00 00 00 00 00 00 00> 'segments' ] u ."),
              "{\"segments\": []}");
  expect_refused(pickle_of("<95 00 00 00 00 00 00 00 80> }( 'segments' ] u ."), "byte 2: a frame");
  expect_refused(pickle_of("<95 ff ff ff ff ff ff ff ff> }( 'segments' ] u ."), "byte 2: a frame");
}

T_TEST(test_pickle__keeps_to_the_discipline_of_the_stack) {
  static const char* const wrong[] = {
    ".",                 // nothing
    "]].",               // two parts
    "(].",               // a mark is left
    "](.",               // likewise
    "e.",                // no mark
    "](#1u.",            // no dict
    "}(#1e.",            // no list
    "}('a'u.",           // a key without a value
    "}(#1#2u.",          // a key that is no text
    "}(N#2u.",           //
    "}(]#2u.",           //
    "(#1#2d.",           //
    "('a'd.",            //
    "a.",                // nothing to append
    "]a.",               //
    "#1#2a.",            // to no list
    "}'a's.",            //
    "s.",                //
    "'a'#1s.",           //
    "0.",                // nothing to pop
    "1.",                //
    "](0e.",             // a mark is not popped like a part
    "](#1<86>e.",        // a tuple does not reach over a mark
    "]#1(#2a e.",        // nor does an append
    "<85>.",             //
    "#1<86>.",           //
    "#1#2<87>.",         //
    "t.",                //
    "l.",                //
    "d.",                //
    "^.",                // nothing to remember
    "h0.",               // nothing is remembered
    "]^ h1 .",           //
    "j<00 00 00 00>.",   //
    "]q1.",              // a gap
    "]r<ff ff ff ff>.",  //
    "]#1q0a h0 .",       // two parts are left
    ")#1a.",             // a tuple is never filled
    "](l(#1e.",          // nor is a list that is complete
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) expect_refused(pickle_of(wrong[i]), "pickle: ");
}

// ---------------------------------------------------------------------------------------------------
// The memo

T_TEST(test_pickle__recalls_what_was_remembered) {
  static const value_row rows[] = {
    { "](]^ h0 e", "[[], []]" },
    { "](]q0(#1e h0 h0 e", "[[1], [1], [1]]" },
    { "](](#1eq0 h0 e", "[[1], [1]]" },
    { "](](#1er<00 00 00 00> j<00 00 00 00> e", "[[1], [1]]" },
    { "](}^('a'#1u h0 e", "[{\"a\": 1}, {\"a\": 1}]" },
    { "](}('a'#1uq0 h0 e", "[{\"a\": 1}, {\"a\": 1}]" },
    { "](#1#2<86>^ h0 e", "[[1, 2], [1, 2]]" },
    { "]('a'^ h0 e", "[\"a\", \"a\"]" },
    { "](#70000q0 h0 e", "[70000, 70000]" },
    { "](<8a 09 ff ff ff ff ff ff ff ff 00>q0 h0 e", "[18446744073709551615, 18446744073709551615]" },
    { "](G<3f e0 00 00 00 00 00 00>q0 h0 e", "[0.5, 0.5]" },
    { "](Nq0<88>q1<89>q2 h0h1h2e", "[null, true, false, null, true, false]" },
    { "](]((#1 #2 lq0 h0 e e", "[[[1, 2], [1, 2]]]" },
    { "}('a'^#1 h0 #2 u", "{\"a\": 2}" },
    { "}('x' }^('a'#1u 'y' h0 u", "{\"x\": {\"a\": 1}, \"y\": {\"a\": 1}}" },
    { "]('a'q0 'b'q1 h0 h1 'c'q0 h0 h1e", "[\"a\", \"b\", \"a\", \"b\", \"c\", \"c\", \"b\"]" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__a_number_can_be_given_again) {
  static const value_row rows[] = {
    { "](](#1eq0 (#2lq0 h0 e", "[[1], [2], [2]]" },    { "](]q0 }q0 h0 'a' e", "[[], {}, {}, \"a\"]" },
    { "](]q0 'a'q0 ](h0e e", "[[], \"a\", [\"a\"]]" }, { "]( ](]q0 'a'q0 e h0 e", "[[[], \"a\"], \"a\"]" },
    { "]( ](]q0 ]q0(#1e e h0 e", "[[[], [1]], [1]]" },
  };
  EXPECT_VALUES(rows);
}

T_TEST(test_pickle__refuses_a_part_that_contains_itself) {
  static const char* const wrong[] = {
    "}( 'segments' ] 'x' ]^(h0e u.",        "}( 'segments' ] 'x' ]^h0a u.",
    "}( 'segments' ] 'x' }^('a'h0u u.",     "}( 'segments' ] 'x' }^'a'h0s u.",
    "}( 'segments' ] 'x' ]^(]^h0a h1e u.",  "}^( 'segments' ] 'x' h0 u.",
    "}( 'segments' ]^ 'x' h0 'y' h0 u h0.", "}( 'segments' ]^( h0 e u.",
    "}( 'segments' ] 'x' ]^(h0<85>e u.",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_refused(pickle_of(wrong[i]), "pickle: byte");
}

// An item is complete when it is used: filling it later is an error, and never changes what was used.
T_TEST(test_pickle__refuses_to_fill_what_was_used_already) {
  expect_refused(pickle_of("}( 'segments' ] 'x' ]^ 'y' h0 'z' ]( h0 e u u."), "pickle: byte");
  expect_refused(pickle_of("](]^ h0 #1 a e."), "pickle: byte");
}

static tide_status read_with_memory(memory_file* file, uint64_t memory, tide_trace** out) {
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  options.memory = memory;
  return file_read(file, &options, out);
}

T_TEST(test_pickle__a_high_number_costs_nothing) {
  memory_file file = pickle_of("}( 'segments' ] 'x' ]r<ff ff ff ff> u.");
  tide_trace* trace = NULL;

  T_STATUS(read_with_memory(&file, 1 << 20, &trace), TIDE_ERR_FORMAT);

  T_STR_HAS(tide_last_error()->text, "memo number 4294967295 is stored after 0");
  memory_file_fini(&file);
}

T_TEST(test_pickle__a_length_that_is_not_there_costs_nothing) {
  static const char* const notations[] = { "X<ff ff ff ff> 'a'", "<8d ff ff ff ff ff ff ff 7f> 'a'",
                                           "<8d 00 00 00 00 01 00 00 00> 'a'", "<8c ff> 'a'" };
  for (size_t i = 0; i < sizeof notations / sizeof *notations; i++) {
    memory_file file = pickle_of(notations[i]);
    tide_trace* trace = NULL;
    T_STATUS(read_with_memory(&file, 1 << 20, &trace), TIDE_ERR_FORMAT);
    T_STR_HAS(tide_last_error()->text, "byte");
    memory_file_fini(&file);
  }
  expect_refused(pickle_of("<8d ff ff ff ff ff ff ff ff> 'a'"), "byte 2: a text of 18446744073709551615");
}

// ---------------------------------------------------------------------------------------------------
// Hostile shapes

// Each part has ten of the one before: 10^levels parts when they are written out.
static memory_file laughs_of(const char* begin, const char* end, const char* key, int levels) {
  memory_file file = pickle_of("}( 'segments' ] 'x' ](");
  file_add_pickle(&file, "N ^ ");
  for (int level = 0; level < levels; level++) {
    file_add_pickle(&file, begin);
    for (int i = 0; i < 10; i++) {
      char part[32];
      const char name[] = { (char)('a' + i), '\0' };
      if (*key != '\0') (void)snprintf(part, sizeof part, "'%s' h%d ", name, level);
      else (void)snprintf(part, sizeof part, "h%d ", level);
      file_add_pickle(&file, part);
    }
    file_add_pickle(&file, end);
    file_add_pickle(&file, "^ ");
  }
  file_add_pickle(&file, "eu.");
  return file;
}

static void expect_cheap(memory_file file) {
  tide_trace* trace = NULL;
  memory_file json = { 0 };
  const tide_sink sink = memory_file_sink(&json);
  T_OK(read_with_memory(&file, 2 << 20, &trace));

  T_STATUS(tide_trace_write(trace, TIDE_FORMAT_JSON, &sink), TIDE_ERR_LIMIT);
  T_LT(json.bytes, 1 << 20);
  memory_file pickle = file_written(trace, TIDE_FORMAT_PICKLE);
  T_LT(pickle.bytes, 10000);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);

  tide_trace_free(trace);
  memory_file_fini(&json);
  memory_file_fini(&pickle);
  memory_file_fini(&file);
}

T_TEST(test_pickle__a_billion_laughs_are_cheap_as_lists) { expect_cheap(laughs_of("](", "e", "", 30)); }
T_TEST(test_pickle__a_billion_laughs_are_cheap_as_gathered_lists) {
  expect_cheap(laughs_of("(", "l", "", 30));
}
T_TEST(test_pickle__a_billion_laughs_are_cheap_as_tuples) { expect_cheap(laughs_of("(", "t", "", 30)); }
T_TEST(test_pickle__a_billion_laughs_are_cheap_as_dicts) { expect_cheap(laughs_of("}(", "u", "key", 30)); }

// Many entries name one long call stack, which was plain data before; or the other way round. Such a file may
// be refused, but it may not take long.
static void expect_quick(memory_file* file) {
  tide_trace* trace = NULL;
  const uint64_t begin = t_processor_ns();
  const tide_status status = file_read(file, NULL, &trace);
  T_LT((t_processor_ns() - begin) / 1000000000u, T_HAS_SANITIZER ? 40 : 10);
  if (status != TIDE_OK) T_STR_HAS(tide_last_error()->text, "shared");
  tide_trace_free(trace);
}

T_TEST(test_pickle__a_stack_shared_as_plain_data_takes_little_time) {
  enum { MANY = 20000 };
  memory_file file = pickle_of("}( 'segments' ] 'x' ]( }( 'name' 'f' 'line' #1 u ^ ");
  for (int i = 0; i < MANY; i++) file_add_pickle(&file, "h0");
  file_add_pickle(&file, "e^ 'action'^0 'alloc'^0 'frames'^0 'device_traces' ](](");
  for (int i = 0; i < MANY; i++) file_add_pickle(&file, "}(h2h3h4h1u");
  file_add_pickle(&file, "eeu.");
  expect_quick(&file);
  memory_file_fini(&file);
}

T_TEST(test_pickle__plain_data_shared_as_a_stack_takes_little_time) {
  enum { MANY = 20000 };
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' 'frames' ](");
  file_add_pickle(&file, "}( 'name' 'f' 'line' #1 u ^ ");
  for (int i = 0; i < MANY; i++) file_add_pickle(&file, "h0");
  file_add_pickle(&file, "e^ uee 'x' ](");
  for (int i = 0; i < MANY; i++) file_add_pickle(&file, "h1");
  file_add_pickle(&file, "eu.");
  expect_quick(&file);
  memory_file_fini(&file);
}

static memory_file nested(size_t depth, const char* begin, const char* inner, const char* end) {
  memory_file file = pickle_of("}( 'segments' ] 'x' ");
  for (size_t i = 0; i < depth; i++) file_add_pickle(&file, begin);
  file_add_pickle(&file, inner);
  for (size_t i = 0; i < depth; i++) file_add_pickle(&file, end);
  file_add_pickle(&file, "u.");
  return file;
}

// The value and the dict of unknown keys around it are 64 deep together.
T_TEST(test_pickle__plain_data_may_be_nested_64_deep) {
  static const value_row ways[] = { { "](", "e" }, { "(", "l" }, { "}('a'", "u" }, { "}'a'", "s" } };
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    memory_file file = nested(62, ways[i].notation, "N", ways[i].json);
    tide_trace* const trace = trace_of(&file);
    expect_round_trip(trace, TIDE_FORMAT_PICKLE);
    expect_round_trip(trace, TIDE_FORMAT_JSON);
    tide_trace_free(trace);
    memory_file_fini(&file);
    expect_refused(nested(63, ways[i].notation, "N", ways[i].json), "deeper than 64");
    expect_refused(nested(200, ways[i].notation, "N", ways[i].json), "deeper than 64");
  }
}

T_TEST(test_pickle__says_once_where_it_is_too_deep) {
  memory_file file = nested(70, "](", "N", "e");
  tide_trace* trace = NULL;

  T_STATUS(file_read(&file, NULL, &trace), TIDE_ERR_FORMAT);

  const char* const first = strstr(tide_last_error()->text, "byte ");
  T_CHECK(first != NULL && strstr(first + 1, "byte ") == NULL);
  memory_file_fini(&file);
}

T_TEST(test_pickle__a_million_marks_are_refused) {
  memory_file file = pickle_of("");
  for (size_t i = 0; i < 1000000; i++) memory_file_add(&file, "(", 1);
  expect_refused(file, "more than 256 marks on the stack");
}

// Parts on the stack may take a megabyte or more, if that is allowed.
T_TEST(test_pickle__a_million_parts_are_within_the_limit) {
  memory_file file = pickle_of("(");
  for (size_t i = 0; i < 1000000; i++) memory_file_add(&file, "N", 1);
  tide_trace* trace = NULL;

  T_STATUS(read_with_memory(&file, 1 << 20, &trace), TIDE_ERR_LIMIT);
  T_STATUS(file_read(&file, NULL, &trace), TIDE_ERR_FORMAT);

  T_STR_HAS(tide_last_error()->text, "truncated at byte 1000003");
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// Texts of any bytes

static memory_file entry_with_text(const char* text, size_t bytes) {
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' 'user_metadata' X");
  file_add_little(&file, bytes, 4);
  memory_file_add(&file, text, bytes);
  file_add_pickle(&file, "u eeu.");
  return file;
}

static void expect_metadata(const tide_trace* trace, const char* text, size_t bytes) {
  const tide_intern* const names = tide_trace_names(trace);
  const tide_note note = tide_intern_note(names, tide_trace_entries(trace, 0, NULL)->note);
  size_t got_bytes = 0;
  const char* const got = tide_intern_text(names, note.metadata, &got_bytes);
  T_EQ(got_bytes, bytes);
  if (bytes > 0) T_EQ(memcmp(got, text, bytes), 0);
}

static void expect_text_kept(const char* text, size_t bytes) {
  memory_file file = entry_with_text(text, bytes);
  tide_trace* const trace = trace_of(&file);
  expect_metadata(trace, text, bytes);
  for (uint32_t format = TIDE_FORMAT_PICKLE; format <= TIDE_FORMAT_JSON; format++) {
    memory_file written = file_written(trace, format);
    tide_trace* const again = trace_of(&written);
    expect_metadata(again, text, bytes);
    expect_same_traces(trace, again);
    tide_trace_free(again);
    memory_file_fini(&written);
  }
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_pickle__texts_that_are_not_utf8_come_through_both_formats) {
  static const char* const texts[] = {
    "\xff",
    "\x80",
    "a\xc3",
    "\xc3\x28",
    "\xed\xa0\x80",              // a surrogate
    "\xed\xb2\x80",              // one that stands for a byte elsewhere
    "\xed\xa0\x80\xed\xb0\x80",  // two of them
    "\xf4\x90\x80\x80",          // beyond the last code point
    "\xc0\x80",                  // longer than needed
    "\xe0\x80\x80",
    "\xf0\x80\x80\x80",
    "\xf8\x88\x80\x80\x80",
    "\xe2\x82",
    "\xf0\x9f\x98",
    "\x7f\x01\x1f\"\\/\b\f\n\r\t",
    "\\udc80",
    "\\u0041",
    "\xef\xbf\xbd",
    "\xef\xbb\xbf",
    "\xf0\x9f\x98\x80",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect_text_kept(texts[i], strlen(texts[i]));
  for (unsigned first = 0; first <= UINT8_MAX; first++) {
    const char text[] = { (char)first, 'a', (char)(first ^ 0x80), (char)first };
    expect_text_kept(text, sizeof text);
  }
}

T_TEST(test_pickle__random_texts_come_through_both_formats) {
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < t_scaled(300); i++) {
    char text[64];
    const size_t bytes = t_rng_below(&rng, sizeof text);
    for (size_t k = 0; k < bytes; k++) {
      const uint64_t near_utf8 = 0x80 + t_rng_below(&rng, 0x80);
      text[k] = (char)(t_rng_below(&rng, 3) == 0 ? t_rng_next(&rng) : near_utf8);
    }
    expect_text_kept(text, bytes);
  }
}

T_TEST(test_pickle__texts_of_any_length_come_through_both_formats) {
  static const size_t lengths[] = { 0, 1, 255, 256, 65535, 65536, 131071, 131072, 131073, 400000, 1000000 };
  char* const text = malloc(1000000);
  T_CHECK(text != NULL);
  memset(text, 'x', 1000000);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) expect_text_kept(text, lengths[i]);
  free(text);
}

T_TEST(test_pickle__long_tuples_and_dicts_come_through_both_formats) {
  for (size_t count = 0; count <= 3000; count += count < 5 ? 1 : 599) {
    memory_file file = pickle_of("}( 'segments' ] 'x' ((");
    for (size_t i = 0; i < count; i++) file_add_pickle(&file, "#1");
    file_add_pickle(&file, "t }(");
    for (size_t i = 0; i < count; i++) {
      char pair[64];
      (void)snprintf(pair, sizeof pair, "'k%zu' #%zu", i, i);
      file_add_pickle(&file, pair);
    }
    file_add_pickle(&file, "u t u.");
    tide_trace* const trace = trace_of(&file);
    expect_round_trip(trace, TIDE_FORMAT_PICKLE);
    expect_round_trip(trace, TIDE_FORMAT_JSON);
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

// ---------------------------------------------------------------------------------------------------
// The length of things

T_TEST(test_pickle__ignores_what_follows_the_end) {
  memory_file file = pickle_of("}( 'segments' ] u .");
  for (int i = 0; i < 300000; i++) memory_file_add(&file, "\0c\xff", 3);
  expect_json(file, "{\"segments\": []}");
}

T_TEST(test_pickle__says_where_a_file_is_cut) {
  char words[64];
  memory_file file = pickle_of("}( 'segments' ] u");
  (void)snprintf(words, sizeof words, "pickle: truncated at byte %zu", file.bytes);
  expect_refused(file, words);
  expect_refused(pickle_of(""), "truncated at byte 2");
  expect_refused(pickle_of("X<05 00 00 00 61>"), "byte 8");
}

T_TEST(test_pickle__reads_long_lists_with_and_without_batches) {
  static const size_t batches[] = { 1, 7, 1000, SIZE_MAX };
  for (size_t k = 0; k < 4; k++) {
    memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](]");
    for (size_t i = 0; i < 3500; i++) {
      char entry[64];
      if (i % batches[k] == 0) file_add_pickle(&file, i == 0 ? "(" : "e(");
      (void)snprintf(entry, sizeof entry, "}( 'action' 'alloc' 'addr' #%zu 'size' #%zu u", 512 * i, i);
      file_add_pickle(&file, entry);
    }
    file_add_pickle(&file, "eeu.");
    tide_trace* const trace = trace_of(&file);
    size_t count = 0;
    const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
    T_EQ(count, 3500);
    for (size_t i = 0; i < count; i++) T_EQ(entries[i].bytes, i);
    expect_round_trip(trace, TIDE_FORMAT_PICKLE);
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

// A frame in several stacks, or often in one, is written once: two bytes refer to it.
T_TEST(test_pickle__a_frame_is_written_once) {
  enum { MANY = 1000 };
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' 'frames' ](");
  memory_file again = { 0 };
  file_add_pickle(&file, "}( 'name' 'f' 'filename' 'g' 'line' #1 u ^");
  for (int i = 1; i < MANY; i++) file_add_pickle(&file, "h0");
  file_add_pickle(&file, "e u e e u.");
  tide_trace* const trace = trace_of(&file);
  const tide_sink sink = memory_file_sink(&again);

  T_OK(tide_trace_write(trace, TIDE_FORMAT_PICKLE, &sink));

  T_LT(again.bytes, 3 * MANY);
  tide_trace_free(trace);
  memory_file_fini(&again);
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// Damage

// Something of everything.
static memory_file small_file(void) {
  return pickle_of(
      "<95 a0 00 00 00 00 00 00 00> }^( 'segments'^ ]( }( 'device' K<00> 'address' #1099511627776"
      " 'total_size' M<00 20> 'segment_type' 'small' 'segment_pool_id' K<00>K<00><86> 'is_expandable' <89>"
      " 'frames' ] 'blocks' ]}( 'size' M<00 20> 'state' 'inactive' 'frames' ] ua u e 'device_traces'^ ](]("
      "}( 'action'^ 'alloc'^ 'addr'^ <8a 06 00 00 00 00 00 01> 'size'^ J<00 02 00 00> 'frames'^"
      " ](}^('name'^'f'^'filename'^'g'^'line'^K<05>u}(h9X<01 00 00 00 67>h11 h10 h13 J<ff ff ff ff>ue^ u"
      " }( h3 h4 h5 N h6 K<01> h7 h14 'x' ](<88>NG<3f e0 00 00 00 00 00 00>)(K<01>K<02>K<03>K<04>t e u e] e"
      " 'allocator_settings' ('a' #1 d 'b' (#1l u.");
}

T_TEST(test_pickle__a_file_cut_anywhere_is_an_error) {
  memory_file file = small_file();
  tide_trace_free(trace_of(&file));
  expect_cuts_refused(&file, file.bytes);
  memory_file_fini(&file);
}

T_TEST(test_pickle__a_wrong_byte_anywhere_does_no_harm) {
  memory_file file = small_file();
  for (size_t i = 0; i < file.bytes; i++) {
    const uint8_t right = file.data[i];
    for (unsigned byte = 0; byte <= UINT8_MAX; byte += T_HAS_SANITIZER || !t_is_thorough() ? 61 : 5) {
      file.data[i] = (uint8_t)(byte + i);
      read_anything(&file, TIDE_FORMAT_PICKLE);
    }
    file.data[i] = right;
  }
  memory_file_fini(&file);
}

T_TEST(test_pickle__random_damage_does_no_harm) {
  memory_file file = small_file();
  read_damaged(&file, TIDE_FORMAT_PICKLE, t_scaled(T_HAS_SANITIZER ? 1500 : 5000));
  memory_file_fini(&file);
}

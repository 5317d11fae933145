// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory snapshots as JSON: every form that JSON has for a value, what Python adds to it, and what is
// refused, with its place. What was read is compared as it is written again, on one line.
#include <locale.h>
#include <math.h>

#include "machine/counting_heap.h"
#include "notation.h"

// ---------------------------------------------------------------------------------------------------
// Values

typedef struct json_row {
  const char* text;  // of a value
  const char* json;  // as it is written
} json_row;

static memory_file json_of_value(const char* text) {
  memory_file file = file_of_text("{\"segments\": [], \"x\": ");
  file_add_text(&file, text);
  file_add_text(&file, "}");
  return file;
}

static void expect_rows(const json_row* rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char wanted[1024];
    (void)snprintf(wanted, sizeof wanted, "{\"segments\": [], \"x\": %s}", rows[i].json);
    expect_json(json_of_value(rows[i].text), wanted);
  }
}
#define EXPECT_ROWS(rows) expect_rows(rows, sizeof(rows) / sizeof *(rows))

static void expect_values_refused(const char* const* texts, size_t count, const char* words) {
  for (size_t i = 0; i < count; i++) expect_refused(json_of_value(texts[i]), words);
}

T_TEST(test_json__reads_words_lists_and_dicts) {
  static const json_row rows[] = {
    { "null", "null" },
    { "true", "true" },
    { "false", "false" },
    { "[]", "[]" },
    { "[ ]", "[]" },
    { "[1,2 , 3]", "[1, 2, 3]" },
    { "{}", "{}" },
    { "{ }", "{}" },
    { "{\"a\":1,\"b\" : [ null ] }", "{\"a\": 1, \"b\": [null]}" },
    { "{\"\":{\"\":{}}}", "{\"\": {\"\": {}}}" },
    { "[\r\n\t [ ] , { } ]", "[[], {}]" },
    { "{\"a\": 1, \"a\": 2}", "{\"a\": 2}" },
    { "{\"a\": 1, \"b\": 2, \"a\": 3}", "{\"b\": 2, \"a\": 3}" },
  };
  EXPECT_ROWS(rows);
}

T_TEST(test_json__reads_integers_of_64_bits) {
  static const json_row rows[] = {
    { "0", "0" },
    { "-0", "0" },
    { "1", "1" },
    { "-1", "-1" },
    { "9223372036854775807", "9223372036854775807" },
    { "-9223372036854775807", "-9223372036854775807" },
    { "-9223372036854775808", "-9223372036854775808" },
    { "9223372036854775808", "9223372036854775808" },
    { "18446744073709551615", "18446744073709551615" },
  };
  static const char* const wrong[] = { "18446744073709551616", "-9223372036854775809",
                                       "100000000000000000000000000000", "-18446744073709551615" };
  EXPECT_ROWS(rows);
  expect_values_refused(wrong, sizeof wrong / sizeof *wrong, "json: byte 22: an integer");
}

T_TEST(test_json__floats_come_back_in_few_digits) {
  static const json_row rows[] = {
    { "0.5", "0.5" },
    { "0.1", "0.1" },
    { "-0.0", "-0.0" },
    { "1.0", "1.0" },
    { "1e0", "1.0" },
    { "1E2", "100.0" },
    { "1e+2", "100.0" },
    { "100e-2", "1.0" },
    { "123.456", "123.456" },
    { "0.30000000000000004", "0.30000000000000004" },
    { "2.2250738585072014e-308", "2.2250738585072014e-308" },
    { "1.7976931348623157e+308", "1.7976931348623157e+308" },
    { "1e22", "1e+22" },
    { "1e400", "Infinity" },
    { "-1e400", "-Infinity" },
    { "1e-400", "0.0" },
    { "NaN", "NaN" },
    { "Infinity", "Infinity" },
    { "-Infinity", "-Infinity" },
    { "9007199254740993.0", "9007199254740992.0" },
  };
  EXPECT_ROWS(rows);
}

// The bits of a float in a snapshot that was written and read back.
static uint64_t float_again(const tide_trace* trace, uint32_t format) {
  memory_file file = file_written(trace, format);
  tide_trace* const again = trace_of(&file);
  const tide_intern* const names = tide_trace_names(again);
  const uint32_t value = tide_intern_value_find(names, tide_trace_get_about(again).extra, "x");
  T_EQ(tide_intern_value(names, value).kind, TIDE_VALUE_FLOAT);
  const double number = tide_intern_value(names, value).number;
  uint64_t bits = 0;
  memcpy(&bits, &number, sizeof bits);
  tide_trace_free(again);
  memory_file_fini(&file);
  return bits;
}

T_TEST(test_json__every_float_comes_back_exactly) {
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < t_scaled(2000); i++) {
    uint64_t bits = t_rng_next(&rng);
    double number = 0;
    if (i < 64) bits = (uint64_t)1 << i;
    memcpy(&number, &bits, sizeof number);
    if (isnan(number)) continue;
    tide_trace* trace = NULL;
    uint32_t key = 0;
    uint32_t value = 0;
    tide_trace_about about = { .has_segments = true };
    T_OK(tide_trace_new(NULL, &trace));
    tide_intern* const names = tide_trace_names(trace);
    T_OK(tide_intern_add_text(names, "x", 1, &key));
    T_OK(tide_intern_add_value(names, &(tide_value){ .kind = TIDE_VALUE_FLOAT, .number = number }, &value));
    const uint64_t item = (uint64_t)key << 32 | value;
    const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = &item, .count = 1 };
    T_OK(tide_intern_add_value(names, &dict, &about.extra));
    tide_trace_set_about(trace, &about);

    T_EQ(float_again(trace, TIDE_FORMAT_PICKLE), bits);
    T_EQ(float_again(trace, TIDE_FORMAT_JSON), bits);
    tide_trace_free(trace);
  }
}

T_TEST(test_json__refuses_numbers_that_are_none) {
  static const char* const wrong[] = { "01",  "-",        "+1",    "1.",        ".5",  "1e",       "1e+",
                                       "--1", "1-2",      "1.2.3", "0x10",      "-01", "1e1.5",    "1e5e5",
                                       "00",  "-Infinit", "1_0",   "-NaN",      "Nan", "infinity", "INF",
                                       "nul", "True",     "nulll", "-Infinityx" };
  expect_values_refused(wrong, sizeof wrong / sizeof *wrong, "json: byte ");
}

T_TEST(test_json__refuses_a_number_that_is_too_long) {
  memory_file file = json_of_value("");
  file.bytes--;
  for (int i = 0; i < 5000; i++) file_add_text(&file, "1");
  file_add_text(&file, "}");
  expect_refused(file, "json: byte");
}

// ---------------------------------------------------------------------------------------------------
// Texts

T_TEST(test_json__reads_escapes) {
  static const json_row rows[] = {
    { "\"\"", "\"\"" },
    { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\"" },
    { "\"\\u0041\\u00e9\\u20AC\"", "\"A\xc3\xa9\xe2\x82\xac\"" },
    { "\"\\u0000\\u001f\\u007f\"", "\"\\u0000\\u001f\\u007f\"" },
    { "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"" },
    { "\"\\uD83D\\uDE00!\"", "\"\xf0\x9f\x98\x80!\"" },
    { "\"\\ud800\\udc00\\udbff\\udfff\"", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"" },
    { "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"" },
    { "\"\\udc80\\udcff\"", "\"\\udc80\\udcff\"" },
    { "\"a\xff\"", "\"a\\udcff\"" },
    { "\"\\uffff\\ufffe\\ufeff\"", "\"\xef\xbf\xbf\xef\xbf\xbe\xef\xbb\xbf\"" },
  };
  EXPECT_ROWS(rows);
}

// Half a pair is kept, whatever it is written as, and does not take what follows with it.
T_TEST(test_json__lone_surrogates_come_through) {
  static const char* const texts[] = { "\"\\ud800\"",        "\"\\udfff\"",
                                       "\"\\ud800a\"",       "\"\\ud800\\n\"",
                                       "\"\\ud800\\u0041\"", "\"\\ud800\\ud800\\udc00\"",
                                       "\"\\udc00\\ud800\"", "\"\\ude00\\ud83d\"",
                                       "\"\\ud800\\udc\"" };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    memory_file file = json_of_value(texts[i]);
    tide_trace* trace = NULL;
    const bool is_right = i + 1 < sizeof texts / sizeof *texts;
    T_STATUS(file_read(&file, NULL, &trace), is_right ? TIDE_OK : TIDE_ERR_FORMAT);
    if (is_right) {
      expect_round_trip(trace, TIDE_FORMAT_PICKLE);
      expect_round_trip(trace, TIDE_FORMAT_JSON);
    }
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

T_TEST(test_json__refuses_texts_that_are_none) {
  static const char* const wrong[] = { "\"a",     "\"\\x\"",     "\"\\u12\"", "\"\\u12g4\"",
                                       "\"\\",    "\"a\nb\"",    "\"a\tb\"",  "'a'",
                                       "\"\\u\"", "\"\\U0041\"", "\"\x01\"",  "\"\\ud800\\u\"",
                                       "\"\\u00" };
  expect_values_refused(wrong, sizeof wrong / sizeof *wrong, "byte ");
}

T_TEST(test_json__a_zero_byte_in_a_text_is_refused) {
  memory_file file = json_of_value("\"a?b\"");
  *(char*)memchr(file.data, '?', file.bytes) = '\0';
  expect_refused(file, "control character 0x00");
}

// A text that lies across the end of the reader's buffer, at every place of its escapes.
T_TEST(test_json__texts_lie_anywhere) {
  static const char text[] = "ab\\u00e9\\ud83d\\ude00\\n\xc3\xa9"
                             "cd";
  static const char wanted[] = "\"ab\xc3\xa9\xf0\x9f\x98\x80\\n\xc3\xa9"
                               "cd\"";
  for (size_t before = 131072 - 80; before < 131072 + 8; before += 1) {
    memory_file file = file_of_text("{\"segments\": [],");
    while (file.bytes < before) file_add_text(&file, " ");
    file_add_text(&file, "\"x\": \"");
    file_add_text(&file, text);
    file_add_text(&file, "\"}");
    tide_trace* const trace = trace_of(&file);
    memory_file json = json_line(trace);
    T_STR_HAS((const char*)json.data, wanted);
    memory_file_fini(&json);
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

// ---------------------------------------------------------------------------------------------------
// The whole

T_TEST(test_json__reads_a_snapshot_with_white_space_anywhere) {
  expect_json(
      file_of_text(" \t\r\n{ \"device_traces\" : [ [ { \"size\" : 1 , \"action\" : \"alloc\" , \"pool_id\" :"
                   " [ 0 , 1 ] } ] , [ ] ] , \"segments\" : [ { \"address\" : 1 , \"total_size\" : 2,"
                   " \"segment_pool_id\": [0, 0], \"blocks\": [ { \"size\": 2, \"state\": \"inactive\","
                   " \"frames\": [ { \"name\": \"f\", \"line\": 3 } ] } ] } ] } \n\t"),
      "{\"segments\": [{\"address\": 1, \"total_size\": 2, \"segment_pool_id\": [0, 0], \"blocks\": "
      "[{\"size\": 2, \"state\": \"inactive\", \"frames\": [{\"name\": \"f\", \"line\": 3}]}]}], "
      "\"device_traces\": [[{\"action\": \"alloc\", \"size\": 1, \"pool_id\": [0, 1]}], []]}");
}

T_TEST(test_json__a_pool_is_a_list_of_two_integers) {
  memory_file file = file_of_text("{\"device_traces\": [[{\"action\": \"alloc\", \"pool_id\": [1, 2]},"
                                  " {\"action\": \"alloc\", \"pool_id\": [1]}]]}");
  tide_trace* const trace = trace_of(&file);
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, NULL);
  T_EQ(tide_trace_pool(trace, entries[0].pool).second, 2);
  T_EQ(entries[0].absent & TIDE_ENTRY_POOL, 0);
  T_NE(entries[1].absent & TIDE_ENTRY_POOL, 0);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_json__a_list_alone_is_the_segments) {
  expect_json(file_of_text("[]"), "[]");
  expect_json(file_of_text(" [ {\"address\": 1, \"total_size\": 2, \"a\": null} ]"),
              "[{\"address\": 1, \"total_size\": 2, \"a\": null}]");
}

T_TEST(test_json__refuses_what_is_no_snapshot) {
  static const char* const wrong[] = {
    "{}",
    "[1]",
    "[[]]",
    "[null]",
    "{\"segments\": {}}",
    "{\"segments\": null}",
    "{\"segments\": [1]}",
    "{\"device_traces\": [1]}",
    "{\"device_traces\": [{}]}",
    "{\"device_traces\": [[1]]}",
    "{\"device_traces\": [[{}]]}",
    "{\"a\": 1}",
    "{\"segments\": [], \"segments\": []}",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_refused(file_of_text(wrong[i]), "json: byte");
}

T_TEST(test_json__wrong_values_are_named_by_their_path) {
  expect_refused(
      file_of_text(
          "{\"device_traces\": [[], [{\"action\": \"oom\"}, {\"action\": \"alloc\", \"size\": 1.5}]]}"),
      "device_traces[1][1].size is a number");
  expect_refused(
      file_of_text("{\"segments\": [{\"address\": 1, \"total_size\": 1, \"blocks\": [{\"size\": -1}]}]}"),
      "segments[0].blocks[0].size is");
}

T_TEST(test_json__refuses_wrong_signs_with_their_place) {
  static const char* const wrong[] = {
    "{\"segments\" []}",
    "{\"segments\": [,]}",
    "{\"segments\": []]",
    "{\"segments\": [}",
    "{segments: []}",
    "{\"segments\": [],}",
    "{,\"segments\": []}",
    "{\"segments\": [] \"a\": 1}",
    "{\"segments\"}",
    "{\"segments\":}",
    "{1: []}",
    "{\"segments\": [1 2]}",
    "{\"segments\": []:1}",
    "{null: []}",
    "{\"a\": @}",
    "[}",
    "{]",
    "{\"segments\": [\x80]}",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_refused(file_of_text(wrong[i]), "json: byte");
}

T_TEST(test_json__refuses_anything_but_blanks_after_the_end) {
  expect_json(file_of_text("{\"segments\": []}\n\n  \t\r\n"), "{\"segments\": []}");
  expect_refused(file_of_text("{\"segments\": []}x"), "json: byte 16");
  expect_refused(file_of_text("{\"segments\": []} {\"segments\": []}"), "json: byte 17");
  expect_refused(file_of_text("[],"), "json: byte 2");
}

static memory_file json_nested(size_t depth, const char* begin, const char* end) {
  memory_file file = json_of_value("");
  file.bytes--;
  for (size_t i = 0; i < depth; i++) file_add_text(&file, begin);
  file_add_text(&file, "null");
  for (size_t i = 0; i < depth; i++) file_add_text(&file, end);
  file_add_text(&file, "}");
  return file;
}

T_TEST(test_json__plain_data_may_be_nested_64_deep) {
  static const json_row ways[] = { { "[", "]" }, { "{\"a\": ", "}" } };
  for (size_t i = 0; i < 2; i++) {
    memory_file file = json_nested(62, ways[i].text, ways[i].json);
    tide_trace* const trace = trace_of(&file);
    expect_round_trip(trace, TIDE_FORMAT_PICKLE);
    expect_round_trip(trace, TIDE_FORMAT_JSON);
    tide_trace_free(trace);
    memory_file_fini(&file);
    expect_refused(json_nested(63, ways[i].text, ways[i].json), "deeper than");
    expect_refused(json_nested(100, ways[i].text, ways[i].json), "deeper than");
    expect_refused(json_nested(100000, ways[i].text, ways[i].json), "deeper than");
  }
}

// As deep as plain data may be, in the deepest place that a snapshot has.
T_TEST(test_json__a_frame_may_hold_deep_data) {
  memory_file file =
      file_of_text("{\"segments\": [{\"address\": 1, \"total_size\": 1, \"blocks\": [{\"size\": 1,"
                   " \"frames\": [{\"name\": \"f\", \"x\": ");
  for (int i = 0; i < 62; i++) file_add_text(&file, "[");
  file_add_text(&file, "1");
  for (int i = 0; i < 62; i++) file_add_text(&file, "]");
  file_add_text(&file, "}]}]}]}");
  tide_trace* const trace = trace_of(&file);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);
  expect_round_trip(trace, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_json__says_where_a_file_is_cut) {
  expect_refused(file_of_text("{\"segments\": ["), "truncated at byte 14");
  expect_refused(file_of_text("{\"segments\": []"), "truncated at byte 15");
  expect_refused(file_of_text("{\"segm"), "truncated at byte 6");
  expect_refused(file_of_text("{"), "truncated at byte 1");
  expect_refused(file_of_text("{\"a\": tru"), "truncated at byte");
}

// What a pickle holds goes to JSON and back to the same pickle; only tuples become lists, those of pools not.
T_TEST(test_json__a_pickle_comes_back_through_json) {
  memory_file file = pickle_of(
      "}( 'segments' ](}( 'device' #0 'address' #139637976727552 'total_size' #2097152 'allocated_size' #512"
      " 'active_size' #512 'requested_size' #5 'stream' #0 'segment_type' 'small' 'segment_pool_id' #0 #1 "
      "<86>"
      " 'is_expandable' <89> 'frames' ] 'blocks' ](}( 'address' #139637976727552 'size' #512 "
      "'requested_size' #5"
      " 'state' 'active_allocated' 'frames' ](}('name''f\xff''filename''a.py''line'#12 u^ e u e u e"
      " 'device_traces' ](](}( 'action' 'alloc' 'addr' #139637976727552 'size' #5 'stream' #0 'time_us' "
      "#1700000000000000"
      " 'compile_context' 'N/A' 'user_metadata' '' 'pool_id' #0 #1 <86> 'frames' ](h0h0e 'odd' G<3f b9 99 99 "
      "99 99 99 9a> u"
      " }( 'action' 'annotate' 'addr' N 'size' #0 u e ] e 'allocator_settings' }('a' ](N <88> <89> #-5 e u "
      "'z' } u.");
  tide_trace* const trace = trace_of(&file);
  memory_file pickle = file_written(trace, TIDE_FORMAT_PICKLE);
  memory_file json = file_written(trace, TIDE_FORMAT_JSON);
  tide_trace* const again = trace_of(&json);
  memory_file pickle_again = file_written(again, TIDE_FORMAT_PICKLE);

  expect_same_bytes(&pickle, &pickle_again);

  tide_trace_free(trace);
  tide_trace_free(again);
  memory_file_fini(&file);
  memory_file_fini(&pickle);
  memory_file_fini(&json);
  memory_file_fini(&pickle_again);
}

// ---------------------------------------------------------------------------------------------------
// Damage

static const char small_text[] =
    "{\"segments\": [{\"device\": 0, \"address\": 1099511627776, \"total_size\": 8192, \"segment_type\": "
    "\"small\", "
    "\"segment_pool_id\": [0, 1], \"is_expandable\": false, \"frames\": [], \"blocks\": [{\"size\": 8192, "
    "\"state\": \"inactive\"}]}], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": "
    "18446744073709500000, "
    "\"size\": 1, \"frames\": [{\"name\": \"\\ud83d\\ude00\\udc80\\n\", \"line\": -1}], \"x\": [null, true, "
    "1.5e3, "
    "NaN, -Infinity]}, {\"action\": \"oom\", \"device_free\": 0}], []], \"allocator_settings\": {\"a\": "
    "{}}} ";

T_TEST(test_json__a_file_cut_anywhere_is_an_error) {
  memory_file file = file_of_text(small_text);
  tide_trace_free(trace_of(&file));
  expect_cuts_refused(&file, file.bytes - 1);  // the last byte is a blank
  memory_file_fini(&file);
}

T_TEST(test_json__a_wrong_byte_anywhere_does_no_harm) {
  static const char signs[] = "\"\\{}[],: -+.0eE9aN\n\x7f\x80\xff";
  memory_file file = file_of_text(small_text);
  for (size_t i = 0; i < file.bytes; i++) {
    const uint8_t right = file.data[i];
    const size_t step = T_HAS_SANITIZER ? 4 : 1;
    for (size_t k = i % step; k < sizeof signs; k += step) {  // the zero byte at the end is one of them
      file.data[i] = (uint8_t)signs[k];
      read_anything(&file, TIDE_FORMAT_JSON);
    }
    file.data[i] = right;
  }
  memory_file_fini(&file);
}

T_TEST(test_json__random_damage_does_no_harm) {
  memory_file file = file_of_text(small_text);
  read_damaged(&file, TIDE_FORMAT_JSON, t_scaled(T_HAS_SANITIZER ? 1500 : 4000));
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// Locales

// A program may have a locale in which a number has a comma; a file never does.
T_TEST(test_json__numbers_do_not_depend_on_the_locale) {
  static const char* const locales[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                         "fr_FR.utf8",  "de_DE",      NULL };
  size_t i = 0;
  while (locales[i] != NULL && setlocale(LC_NUMERIC, locales[i]) == NULL) i++;
  if (locales[i] == NULL) t_skip("no locale that writes a comma is installed");
  char text[16];
  (void)snprintf(text, sizeof text, "%.1f", 0.5);
  T_STR_EQ(text, "0,5");

  expect_json(json_of_value("[0.5, -1.25e-3]"), "{\"segments\": [], \"x\": [0.5, -0.00125]}");

  T_STR_HAS(setlocale(LC_NUMERIC, NULL), locales[i]);
}

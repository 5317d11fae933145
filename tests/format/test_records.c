// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The records of a memory snapshot: which key goes where, what is kept of values that are not usual, what is
// shared, and what is refused by its path. The snapshots are pickles, in the notation of notation.h.
#include "notation.h"

// ---------------------------------------------------------------------------------------------------
// Entries

#define WITH_ENTRIES(text) "{\"segments\": [], \"device_traces\": [[" text "]]}"

T_TEST(test_records__reads_an_entry) {
  memory_file file = pickle_of_entries(
      "}( 'action' 'alloc' 'addr' #140000000000000 'size' #513 'stream' #7 'time_us' #1700000000000000"
      " 'compile_context' 'N/A' 'user_metadata' 'step 1' 'pool_id' #0 #3 <86>"
      " 'frames' ](}( 'name' 'f' 'filename' 'a.py' 'line' #12 u e u");
  tide_trace* const trace = trace_of(&file);
  const tide_intern* const names = tide_trace_names(trace);
  size_t count = 0;
  const tide_trace_entry* const entry = tide_trace_entries(trace, 0, &count);

  T_EQ(count, 1);
  T_EQ(entry->action, TIDE_ACTION_ALLOC);
  T_EQ(entry->address, 140000000000000u);
  T_EQ(entry->bytes, 513);
  T_EQ(entry->stream, 7);
  T_EQ(entry->time_ns, 1700000000000000000u);
  T_EQ(entry->device, 0);
  T_EQ(entry->absent, 0);
  T_EQ(tide_trace_pool(trace, entry->pool).second, 3);
  const tide_note note = tide_intern_note(names, entry->note);
  T_STR_EQ(tide_intern_text(names, note.compile_context, NULL), "N/A");
  T_STR_EQ(tide_intern_text(names, note.metadata, NULL), "step 1");
  T_EQ(note.extra, 0);
  size_t frames = 0;
  const tide_frame frame =
      tide_intern_frame(names, (uint32_t)tide_intern_stack(names, entry->stack, &frames)[0]);
  T_EQ(frames, 1);
  T_STR_EQ(tide_intern_text(names, frame.name, NULL), "f");
  T_STR_EQ(tide_intern_text(names, frame.file, NULL), "a.py");
  T_EQ(frame.line, 12);
  T_EQ(frame.absent, 0);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_records__knows_every_action) {
  for (uint32_t action = 0; action < TIDE_ACTION_COUNT; action++) {
    char notation[128];
    char json[128];
    const char* const name = tide_action_name(action);
    const char* const key = action == TIDE_ACTION_OOM ? "device_free" : "addr";
    (void)snprintf(notation, sizeof notation, "}( 'action' '%s' '%s' #5 u", name, key);
    (void)snprintf(json, sizeof json, WITH_ENTRIES("{\"action\": \"%s\", \"%s\": 5}"), name, key);
    memory_file file = pickle_of_entries(notation);
    tide_trace* const trace = trace_of(&file);
    T_EQ(tide_trace_entries(trace, 0, NULL)->action, action);
    T_EQ(tide_trace_entries(trace, 0, NULL)->address, 5);
    tide_trace_free(trace);
    expect_json(file, json);
  }
}

T_TEST(test_records__keeps_what_it_does_not_know_of_an_entry) {
  expect_json(
      pickle_of_entries("}( 'action' 'annotate' 'addr' #5 'size' #0 'category' 'unknown' u"),
      WITH_ENTRIES("{\"addr\": 5, \"size\": 0, \"action\": \"annotate\", \"category\": \"unknown\"}"));
  expect_json(pickle_of_entries("}( 'action' 'alloc' 'forward_frames' ]( 'a' 'b' e '' #1 u"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"forward_frames\": [\"a\", \"b\"], \"\": 1}"));
}

// Values of another kind than usual are written back as they were.
T_TEST(test_records__keeps_unusual_values_of_an_entry) {
  static const value_row rows[] = {
    { "'addr' N", "\"addr\": null" },
    { "'addr' #-1", "\"addr\": -1" },
    { "'addr' ]", "\"addr\": []" },
    { "'addr' <8a 09 ff ff ff ff ff ff ff ff 00>", "\"addr\": 18446744073709551615" },
    { "'stream' #-1", "\"stream\": -1" },
    { "'stream' 'main'", "\"stream\": \"main\"" },
    { "'time_us' G<3f e0 00 00 00 00 00 00>", "\"time_us\": 0.5" },
    { "'time_us' <8a 08 ff ff ff ff ff ff ff 7f>", "\"time_us\": 9223372036854775807" },
    { "'time_us' N", "\"time_us\": null" },
    { "'compile_context' N", "\"compile_context\": null" },
    { "'compile_context' ''", "\"compile_context\": \"\"" },
    { "'user_metadata' #5", "\"user_metadata\": 5" },
    { "'user_metadata' ''", "\"user_metadata\": \"\"" },
    { "'frames' N", "\"frames\": null" },
    { "'frames' ]", "\"frames\": []" },
    { "'frames' ](#1e", "\"frames\": [1]" },
    { "'frames' ](}('name''f'uNe", "\"frames\": [{\"name\": \"f\"}, null]" },
    { "'frames' )", "\"frames\": []" },
    { "'frames' ](]e", "\"frames\": [[]]" },
    { "'pool_id' #1", "\"pool_id\": 1" },
    { "'pool_id' #1#2#3<87>", "\"pool_id\": [1, 2, 3]" },
    { "'pool_id' #-1#2<86>", "\"pool_id\": [-1, 2]" },
    { "'device_free' #9", "\"device_free\": 9" },
    { "'addr' #5 'device_free' #9", "\"addr\": 5, \"device_free\": 9" },
    { "'device_free' #9 'addr' #5", "\"addr\": 5, \"device_free\": 9" },
    { "'size' #0", "\"size\": 0" },
    { "'size' <8a 08 ff ff ff ff ff ff ff 01>", "\"size\": 144115188075855871" },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char notation[256];
    char wanted[256];
    (void)snprintf(notation, sizeof notation, "}( 'action' 'alloc' %s u", rows[i].notation);
    (void)snprintf(wanted, sizeof wanted, WITH_ENTRIES("{\"action\": \"alloc\", %s}"), rows[i].json);
    expect_json(pickle_of_entries(notation), wanted);
  }
}

T_TEST(test_records__understands_a_time_with_a_fraction) {
  memory_file file = pickle_of_entries("}( 'action' 'alloc' 'time_us' G<40 23 f0 00 00 00 00 00> u");
  tide_trace* const trace = trace_of(&file);
  const tide_trace_entry* const entry = tide_trace_entries(trace, 0, NULL);
  T_EQ(entry->time_ns, 9968);
  T_CHECK((entry->absent & TIDE_ENTRY_TIME) != 0);
  tide_trace_free(trace);
  expect_json(file, WITH_ENTRIES("{\"action\": \"alloc\", \"time_us\": 9.96875}"));
}

T_TEST(test_records__takes_the_address_of_the_key_that_belongs_to_the_action) {
  static const char* const notations[] = { "}( 'action' 'alloc' 'addr' #5 'device_free' #9 u",
                                           "}( 'device_free' #9 'addr' #5 'action' 'alloc' u",
                                           "}( 'action' 'oom' 'addr' #9 'device_free' #5 u",
                                           "}( 'device_free' #5 'addr' #9 'action' 'oom' u" };
  for (size_t i = 0; i < 4; i++) {
    memory_file file = pickle_of_entries(notations[i]);
    tide_trace* const trace = trace_of(&file);
    T_EQ(tide_trace_entries(trace, 0, NULL)->address, 5);
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

T_TEST(test_records__a_pool_is_a_tuple_or_a_list) {
  memory_file file = pickle_of_entries(
      "}( 'action' 'alloc' 'pool_id' #1#2<86> u }( 'action' 'alloc' 'pool_id' ](#1#2e u"
      " }( 'action' 'alloc' 'pool_id' #0#0<86> u }( 'action' 'alloc' u }( 'action' 'alloc' 'pool_id' N u");
  tide_trace* const trace = trace_of(&file);
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, NULL);

  T_EQ(entries[0].pool, 1);
  T_EQ(entries[1].pool, 1);
  T_EQ(entries[2].pool, 0);
  T_EQ(entries[3].pool, 0);
  T_EQ(entries[0].absent & TIDE_ENTRY_POOL, 0);
  T_EQ(entries[2].absent & TIDE_ENTRY_POOL, 0);
  T_NE(entries[3].absent & TIDE_ENTRY_POOL, 0);
  T_NE(entries[4].absent & TIDE_ENTRY_POOL, 0);
  T_EQ(tide_trace_pool_count(trace), 2);
  tide_trace_free(trace);
  expect_json(file, WITH_ENTRIES("{\"action\": \"alloc\", \"pool_id\": [1, 2]}, "
                                 "{\"action\": \"alloc\", \"pool_id\": [1, 2]}, "
                                 "{\"action\": \"alloc\", \"pool_id\": [0, 0]}, {\"action\": \"alloc\"}, "
                                 "{\"action\": \"alloc\", \"pool_id\": null}"));
}

T_TEST(test_records__the_last_of_two_equal_keys_counts) {
  static const value_row rows[] = {
    { "'addr' #1 'addr' #2", "\"addr\": 2" },
    { "'addr' N 'addr' #2", "\"addr\": 2" },
    { "'addr' #1 'addr' N", "\"addr\": null" },
    { "'size' #1 'size' #2", "\"size\": 2" },
    { "'stream' N 'stream' #5", "\"stream\": 5" },
    { "'stream' #5 'stream' N", "\"stream\": null" },
    { "'time_us' #5 'time_us' 'now'", "\"time_us\": \"now\"" },
    { "'compile_context' 'a' 'compile_context' #1", "\"compile_context\": 1" },
    { "'user_metadata' #1 'user_metadata' 'a'", "\"user_metadata\": \"a\"" },
    { "'frames' N 'frames' ](}('line'#1'line'#2ue", "\"frames\": [{\"line\": 2}]" },
    { "'frames' ](}('line'#1ue 'frames' N", "\"frames\": null" },
    { "'frames' ](}('line'N'line'#2ue", "\"frames\": [{\"line\": 2}]" },
    { "'frames' ](}('name''a''name'#1ue", "\"frames\": [{\"name\": 1}]" },
    { "'pool_id' N 'pool_id' #1#2<86>", "\"pool_id\": [1, 2]" },
    { "'pool_id' #1#2<86> 'pool_id' N", "\"pool_id\": null" },
    { "'x' #1 'y' #2 'x' #3", "\"y\": 2, \"x\": 3" },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char notation[256];
    char wanted[256];
    (void)snprintf(notation, sizeof notation, "}( 'action' 'alloc' %s u", rows[i].notation);
    (void)snprintf(wanted, sizeof wanted, WITH_ENTRIES("{\"action\": \"alloc\", %s}"), rows[i].json);
    expect_json(pickle_of_entries(notation), wanted);
  }
  expect_json(pickle_of_entries("}( 'action' 'oom' 'action' 'alloc' 'addr' #1 u"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"addr\": 1}"));
  expect_json(pickle_of_entries("}( 'action' 'alloc' 'action' 'mine' u"),
              WITH_ENTRIES("{\"action\": \"mine\"}"));
  expect_json(pickle_of_entries("}( 'action' 'mine' 'action' 'alloc' u"),
              WITH_ENTRIES("{\"action\": \"alloc\"}"));
}

T_TEST(test_records__the_fields_of_an_entry_are_those_of_the_last_key) {
  memory_file file = pickle_of_entries("}( 'action' 'alloc' 'stream' #5 'stream' N 'addr' #1 'addr' #2 u");
  tide_trace* const trace = trace_of(&file);
  T_EQ(tide_trace_entries(trace, 0, NULL)->stream, 0);
  T_EQ(tide_trace_entries(trace, 0, NULL)->address, 2);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_records__wrong_values_are_named_by_their_path) {
  static const value_row entries[] = {
    { "}( 'action' #1 u", "device_traces[0][0].action is an integer" },
    { "}( 'action' N u", "device_traces[0][0].action is None" },
    { "}( 'size' #1 u", "device_traces[0][0] has no action" },
    { "}", "device_traces[0][0] has no action" },
    { "}( 'action' 'alloc' 'size' N u", "device_traces[0][0].size is None" },
    { "}( 'action' 'alloc' 'size' #-1 u", "device_traces[0][0].size is" },
    { "}( 'action' 'alloc' 'size' ] u", "device_traces[0][0].size is" },
    { "}( 'action' 'alloc' u }( 'action' 'oom' 'size' 'a' u", "device_traces[0][1].size is a text" },
    { "N", "None" },
    { "]", "" },
    { "#5", "an integer" },
  };
  static const value_row segments[] = {
    { "}( 'address' N u", "segments[0].address is None" },
    { "}( 'address' #-1 u", "segments[0].address is" },
    { "}( 'address' #1 'total_size' #1 u }( 'address' #1 'total_size' 'a' u",
      "segments[1].total_size is a text" },
    { "}( 'address' #1 'total_size' #1 'blocks' N u", "segments[0].blocks is None" },
    { "}( 'address' #1 'total_size' #1 'blocks' ](Ne u", "None" },
    { "}( 'address' #1 'total_size' #1 'blocks' ](}('size'#1u}('size'Nue u",
      "segments[0].blocks[1].size is None" },
    { "N", "None" },
    { "]", "" },
  };
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
    expect_refused(pickle_of_entries(entries[i].notation), entries[i].json);
  for (size_t i = 0; i < sizeof segments / sizeof *segments; i++)
    expect_refused(pickle_of_segments(segments[i].notation), segments[i].json);
}

T_TEST(test_records__names_the_entry_among_many) {
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](](");
  for (int i = 0; i < 5; i++) file_add_pickle(&file, "}( 'action' 'alloc' 'size' #1 u");
  file_add_pickle(&file, "e](");
  for (int i = 0; i < 17; i++) file_add_pickle(&file, "}( 'action' 'alloc' 'size' #1 u");
  file_add_pickle(&file, "}( 'action' 'alloc' 'size' N u eeu.");
  expect_refused(file, "device_traces[1][17].size is None");
}

// ---------------------------------------------------------------------------------------------------
// Stacks and entries that are shared

T_TEST(test_records__equal_stacks_are_kept_once) {
  memory_file file =
      pickle_of_entries("}( 'action' 'alloc' 'frames' ](}('name''f''filename''a''line'#1u^ "
                        "}('name''g''filename''a''line'#2u e^ u"
                        " }( 'action' 'alloc' 'frames' h1 u }( 'action' 'alloc' 'frames' ](h0 e u"
                        " }( 'action' 'alloc' 'frames' ](}('line'#1'name''f''filename''a'u "
                        "}('name''g''filename''a''line'#2u e u");
  tide_trace* const trace = trace_of(&file);
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, NULL);
  const tide_intern_counts counts = tide_intern_counts_of(tide_trace_names(trace));

  T_EQ(counts.frames, 2);
  T_EQ(counts.stacks, 2);
  T_EQ(entries[1].stack, entries[0].stack);
  T_EQ(entries[3].stack, entries[0].stack);
  T_NE(entries[2].stack, entries[0].stack);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);
  expect_round_trip(trace, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_records__keeps_what_it_does_not_know_of_a_frame) {
  expect_json(pickle_of_entries(
                  "}( 'action' 'alloc' 'frames' ](}( 'name' 'f' 'fx_node_op' 'call' 'line' 'x' u } e u"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"frames\": [{\"name\": \"f\", \"fx_node_op\": \"call\", "
                           "\"line\": \"x\"}, {}]}"));
}

T_TEST(test_records__stacks_and_frames_may_stand_anywhere) {
  static const char frame_json[] = "{\"name\": \"f\", \"line\": 1}";
  char wanted[512];
  (void)snprintf(
      wanted, sizeof wanted,
      "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"frames\": [%s]}, "
      "{\"action\": \"alloc\", \"frames\": [%s]}, {\"action\": \"alloc\", \"x\": [%s], \"y\": %s}]], "
      "\"z\": [[%s], %s]}",
      frame_json, frame_json, frame_json, frame_json, frame_json, frame_json);
  expect_json(
      pickle_of("}( 'segments' ] 'device_traces' ](](}( 'action' 'alloc' 'frames' ](}('name''f''line'#1u^e^u"
                " }( 'action' 'alloc' 'frames' ](h0eu }( 'action' 'alloc' 'x' h1 'y' h0 u ee"
                " 'z' ](h1h0e u."),
      wanted);
  expect_json(pickle_of("}( 'z' ](](}('name''f''line'#1u^e^h0e 'segments' ] 'device_traces' ]("
                        "](}( 'action' 'alloc' 'frames' h1 u }( 'action' 'alloc' 'frames' ](h0e u"
                        " }( 'action' 'alloc' 'x' h1 'y' h0 u ee u."),
              wanted);
}

// An entry that stands in the list twice is two entries.
T_TEST(test_records__a_shared_entry_is_one_more_entry) {
  const char* const wanted = "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"size\": 1}, "
                             "{\"action\": \"oom\"}, {\"action\": \"alloc\", \"size\": 1}], "
                             "[{\"action\": \"alloc\", \"size\": 1}]]}";
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ]("
                               "](}^( 'action' 'alloc' 'size' #1 u }( 'action' 'oom' u h0 e ](h0e eu.");
  tide_trace* const trace = trace_of(&file);
  T_EQ(tide_trace_entries(trace, 1, NULL)->device, 1);
  tide_trace_free(trace);
  expect_json(file, wanted);
}

// Python's own pickler makes none of these; a file that has them must not be read wrongly.
T_TEST(test_records__other_parts_of_a_snapshot_cannot_be_shared) {
  static const char* const wrong[] = {
    "}( 'segments' ](}^( 'address' #1 'total_size' #1 u h0 e u.",
    "}( 'segments' ](}( 'address' #1 'total_size' #1 'blocks' ](}^('size'#1u h0 e u e u.",
    "}('segments'](}('address'#1'total_size'#1'blocks']^u}('address'#2'total_size'#1'blocks'h0u e u.",
    "}( 'segments' ] 'device_traces' ](]^(}('action''alloc'ue h0 e u.",
    "}( 'segments' ]^ 'device_traces' h0 u.",
    "}( 'segments' ] 'device_traces' ](](}^('action''alloc'u e e 'x' h0 u.",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_refused(pickle_of(wrong[i]), "pickle: byte");
}

// Dicts and lists that are filled one by one, so that no mark of their own tells where a part belongs.
T_TEST(test_records__a_plain_list_without_a_mark_is_plain) {
  expect_json(pickle_of_entries("} 'x' ] } 'a' N s a s 'action' 'alloc' s"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"x\": [{\"a\": null}]}"));
}

T_TEST(test_records__a_plain_dict_without_a_mark_is_plain) {
  expect_json(pickle_of_entries("} 'x' } 'a' N s s 'action' 'alloc' s"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"x\": {\"a\": null}}"));
  expect_json(pickle_of("}( 'x' } 'segments' ] #1 a s 'segments' ] u."),
              "{\"segments\": [], \"x\": {\"segments\": [1]}}");
}

T_TEST(test_records__a_dict_in_a_tuple_is_plain) {
  expect_json(pickle_of_entries("} 'x' ] #1 } <87> s 'action' 'alloc' s"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"x\": [[], 1, {}]}"));
  expect_json(pickle_of_entries("} 'x' } } <86> s 'action' 'alloc' s } 'action' 'oom' s"),
              WITH_ENTRIES("{\"action\": \"alloc\", \"x\": [{}, {}]}, {\"action\": \"oom\"}"));
}

// ---------------------------------------------------------------------------------------------------
// Segments

static const char segment_notation[] =
    "}( 'device' #1 'address' #4096 'total_size' #100 'allocated_size' #10 'active_size' #30 "
    "'requested_size' #9"
    " 'stream' #3 'segment_type' 'large' 'segment_pool_id' #2#0<86> 'is_expandable' <88> 'frames' ]"
    " 'blocks' ](}( 'address' #4096 'size' #10 'requested_size' #9 'state' 'active_allocated' 'frames' ] u"
    " }( 'address' #4106 'size' #20 'requested_size' #0 'state' 'active_pending_free' u"
    " }( 'address' #4126 'size' #70 'requested_size' #0 'state' 'inactive' u e u"
    " }( 'address' #1 'total_size' #2 'segment_type' 'small' u";

T_TEST(test_records__reads_a_segment) {
  memory_file file = pickle_of_segments(segment_notation);
  tide_trace* const trace = trace_of(&file);
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);

  T_EQ(count, 2);
  T_EQ(segments[0].device, 1);
  T_EQ(segments[0].address, 4096);
  T_EQ(segments[0].bytes, 100);
  T_EQ(segments[0].allocated_bytes, 10);
  T_EQ(segments[0].active_bytes, 30);
  T_EQ(segments[0].requested_bytes, 9);
  T_EQ(segments[0].stream, 3);
  T_CHECK(segments[0].is_large && segments[0].is_expandable);
  T_EQ(tide_trace_pool(trace, segments[0].pool).first, 2);
  T_EQ(segments[0].absent, 0);
  T_EQ(segments[0].first_block, 0);
  T_EQ(segments[0].block_count, 3);
  T_EQ(segments[1].block_count, 0);
  T_CHECK(!segments[1].is_large);
  T_NE(segments[1].absent & TIDE_SEGMENT_BLOCKS, 0);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);
  expect_round_trip(trace, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_records__reads_the_blocks_of_a_segment) {
  memory_file file = pickle_of_segments(segment_notation);
  tide_trace* const trace = trace_of(&file);
  size_t count = 0;
  const tide_trace_block* const blocks = tide_trace_blocks(trace, &count);

  T_EQ(count, 3);
  T_EQ(blocks[0].state, TIDE_BLOCK_ALLOCATED);
  T_EQ(blocks[1].state, TIDE_BLOCK_PENDING);
  T_EQ(blocks[2].state, TIDE_BLOCK_INACTIVE);
  T_EQ(blocks[1].address, 4106);
  T_EQ(blocks[2].bytes, 70);
  T_EQ(blocks[0].requested_bytes, 9);
  T_EQ(blocks[0].absent, 0);
  T_EQ(blocks[1].absent, TIDE_BLOCK_KEY_STACK);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

#define WITH_SEGMENT(text) \
  "{\"segments\": [{\"address\": 1, \"total_size\": 2, " text "}], \"device_traces\": []}"

T_TEST(test_records__keeps_unusual_values_of_segments_and_blocks) {
  static const value_row rows[] = {
    { "'device' #300", "\"device\": 300" },
    { "'device' #-1", "\"device\": -1" },
    { "'allocated_size' N", "\"allocated_size\": null" },
    { "'stream' #-5", "\"stream\": -5" },
    { "'segment_type' 'huge'", "\"segment_type\": \"huge\"" },
    { "'segment_type' N", "\"segment_type\": null" },
    { "'segment_pool_id' ](#1#0e", "\"segment_pool_id\": [1, 0]" },
    { "'is_expandable' #1", "\"is_expandable\": 1" },
    { "'frames' N", "\"frames\": null" },
    { "'x' }", "\"x\": {}" },
    { "'blocks' ](}e", "\"blocks\": [{}]" },
    { "'blocks' ](}('address'#-1'x'Nue", "\"blocks\": [{\"address\": -1, \"x\": null}]" },
    { "'blocks' ](}('state''lost'ue", "\"blocks\": [{\"state\": \"lost\"}]" },
    { "'blocks' ](}('state'#1ue", "\"blocks\": [{\"state\": 1}]" },
    { "'blocks' ](}('state''active_awaiting_free'ue", "\"blocks\": [{\"state\": \"active_awaiting_free\"}]" },
    { "'blocks' ](}('requested_size'Nue", "\"blocks\": [{\"requested_size\": null}]" },
    { "'blocks' ](}('history'](}('addr'#1'real_size'#2ueue",
      "\"blocks\": [{\"history\": [{\"addr\": 1, \"real_size\": 2}]}]" },
    { "'stream' N 'stream' #3", "\"stream\": 3" },
    { "'blocks' ](}('size'#1ue 'blocks' ](}('size'#2ue", "\"blocks\": [{\"size\": 2}]" },
    { "'blocks' ](}('state''lost''state''inactive'ue", "\"blocks\": [{\"state\": \"inactive\"}]" },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char notation[256];
    char wanted[256];
    (void)snprintf(notation, sizeof notation, "}( 'address' #1 'total_size' #2 %s u", rows[i].notation);
    (void)snprintf(wanted, sizeof wanted, WITH_SEGMENT("%s"), rows[i].json);
    expect_json(pickle_of_segments(notation), wanted);
  }
}

T_TEST(test_records__knows_the_older_name_of_a_state) {
  memory_file file = pickle_of_segments(
      "}( 'address' #1 'total_size' #2 'blocks' ](}( 'size' #2 'state' 'active_awaiting_free' u e u");
  tide_trace* const trace = trace_of(&file);
  T_EQ(tide_trace_blocks(trace, NULL)->state, TIDE_BLOCK_PENDING);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// The whole

T_TEST(test_records__reads_snapshots_of_any_number_of_devices) {
  expect_json(pickle_of("}( 'segments' ] 'device_traces' ] u."), "{\"segments\": [], \"device_traces\": []}");
  expect_json(pickle_of("}( 'segments' ](e 'device_traces' ](e u."),
              "{\"segments\": [], \"device_traces\": []}");
  expect_json(pickle_of("}( 'segments' ] 'device_traces' ](]](e](}('action''oom'ue] eu."),
              "{\"segments\": [], \"device_traces\": [[], [], [{\"action\": \"oom\"}], []]}");
}

static memory_file devices_of(size_t count) {
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](");
  for (size_t i = 0; i < count; i++) file_add_pickle(&file, i % 2 == 0 ? "]" : "](}('action''oom'ue");
  file_add_pickle(&file, "eu.");
  return file;
}

T_TEST(test_records__reads_256_devices_and_no_more) {
  memory_file file = devices_of(256);
  tide_trace* const trace = trace_of(&file);
  T_EQ(tide_trace_device_count(trace), 256);
  T_EQ(tide_trace_entries(trace, 255, NULL)->device, 255);
  expect_round_trip(trace, TIDE_FORMAT_PICKLE);
  expect_round_trip(trace, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  memory_file_fini(&file);
  expect_refused(devices_of(257), "devices");
}

T_TEST(test_records__a_list_alone_is_the_segments) {
  expect_json(pickle_of("]."), "[]");
  expect_json(pickle_of("](}( 'address' #1 'total_size' #2 u }( 'address' #3 'total_size' #4 u e."),
              "[{\"address\": 1, \"total_size\": 2}, {\"address\": 3, \"total_size\": 4}]");
  expect_json(pickle_of("(}( 'address' #1 'total_size' #2 u l."), "[{\"address\": 1, \"total_size\": 2}]");
  memory_file file = pickle_of("].");
  tide_trace* const trace = trace_of(&file);
  T_CHECK(tide_trace_get_about(trace).is_segments_only);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

T_TEST(test_records__refuses_what_is_no_snapshot) {
  static const char* const wrong[] = {
    "N.",
    "#1.",
    "'segments'.",
    ").",
    "}.",
    "(d.",
    "}('a'#1u.",
    "](#1e.",
    "](]e.",
    "](Ne.",
    "}('segments'Nu.",
    "}('segments'#1u.",
    "}('segments'}u.",
    "}('segments'](Neu.",
    "}('device_traces'}u.",
    "}('device_traces'](Neu.",
    "}('device_traces'](}eu.",
    "}('segments')u.",
    "('segments'#1d.",
    "<88>.",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    expect_refused(pickle_of(wrong[i]), "pickle: byte");
}

T_TEST(test_records__keeps_settings_annotations_and_unknown_keys) {
  expect_json(pickle_of("}( 'host_segments' ] 'external_annotations' ](}('name''a''stage''START'ue"
                        " 'allocator_settings' }('conf' '' 'max_split_size' #-1 u 'device_traces' ]"
                        " 'segments' ] '' N u."),
              "{\"segments\": [], \"device_traces\": [], \"allocator_settings\": "
              "{\"conf\": \"\", \"max_split_size\": -1}, \"external_annotations\": "
              "[{\"name\": \"a\", \"stage\": \"START\"}], \"host_segments\": [], \"\": null}");
  expect_json(pickle_of("}( 'segments' ] 'allocator_settings' N 'external_annotations' #1 u."),
              "{\"segments\": [], \"allocator_settings\": null, \"external_annotations\": 1}");
  expect_json(pickle_of("}( 'segments' ] 'allocator_settings' N 'allocator_settings' } 'x' #1 'x' #2 u."),
              "{\"segments\": [], \"allocator_settings\": {}, \"x\": 2}");
}

T_TEST(test_records__a_list_that_the_file_lacks_is_not_added) {
  expect_json(pickle_of("}( 'segments' ] u."), "{\"segments\": []}");
  expect_json(pickle_of("}( 'device_traces' ] u."), "{\"device_traces\": []}");
  expect_json(pickle_of("}( 'device_traces' ](](}('action''oom'uee u."),
              "{\"device_traces\": [[{\"action\": \"oom\"}]]}");
}

// The same snapshot as CPython writes it (memo before the items), as the C++ pickler of PyTorch does (memo
// after them, one mark for a whole list, long integers), piece by piece, and gathered at the end.
T_TEST(test_records__reads_the_same_snapshot_in_every_way) {
  static const char wanted[] =
      "{\"segments\": [{\"address\": 512, \"total_size\": 4294967296, \"blocks\": [{\"size\": 1}]}], "
      "\"device_traces\": [[{\"action\": \"alloc\", \"addr\": 512, \"size\": 1, \"frames\": "
      "[{\"name\": \"f\", \"line\": 3}]}, {\"action\": \"oom\", \"device_free\": 0}], []]}";
  static const char* const ways[] = {
    "}^('segments'^]^}^('address'^M<00 02>'total_size'^<8a 05 00 00 00 00 01>'blocks'^]^}^'size'^K<01>sa ua"
    " 'device_traces'^]^(]^(}^('action'^'alloc'^'addr'^M<00 02> h9 K<01> "
    "'frames'^]^}^('name'^'f'^'line'^K<03>"
    "u a u}^(h14 'oom'^ 'device_free'^K<00>ue]^eu.",
    "}('segments'q0](}('address'q1<8a 08 00 02 00 00 00 00 00 00>'total_size'q2<8a 08 00 00 00 00 01 00 00 "
    "00>"
    "'blocks'q3](}('size'q4K<01>ueue'device_traces'q5](](}('action'q6'alloc'q7'addr'q8M<00 02>h4K<01>"
    "'frames'q9](}('name'q10'f'q11'line'q12K<03>ueq13u}(h6'oom'q14'device_free'q15K<00>ue](eeu.",
    "}'segments']}'address'#512s'total_size'#4294967296s'blocks']}'size'#1sasas'device_traces']]}'action'"
    "'alloc's'addr'#512s'size'#1s'frames']}'name''f's'line'#3sasa}'action''oom's'device_free'#0saa]as.",
    "('segments'(('address'#512'total_size'#4294967296'blocks'(('size'#1dldl'device_traces'((('action''alloc'"
    "'addr'#512'size'#1'frames'(('name''f''line'#3dld('action''oom''device_free'#0dl(lld.",
  };
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) expect_json(pickle_of(ways[i]), wanted);
}

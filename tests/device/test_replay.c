// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `torch` decides as PyTorch 2.11 does: recordings of real programs are repeated exactly, and
// random programs are answered as an executable model of that policy answers them.
//
// Small recordings lie in tests/device/recordings, made by recording.py from snapshots; each shows some
// rules. The large ones are read from $TIDEMARK_DATA/traces, and the model from $TIDEMARK_DATA/checks, where
// they are.
#include "device/replay.h"
#include "device/script.h"

// ---------------------------------------------------------------------------------------------------
// What PyTorch itself counted

typedef struct known {
  const char* name;
  size_t allocations;
  recording_figures figures;
  size_t empty_caches;
} known;

static const known known_small[] = {
  // One block >= max(size, max_split) is released, or several from the largest down; refusals afterwards.
  { "release_available", 79, { 1073741824, 72, 64, 9, 5 }, 0 },
  { "events", 240, { 425721856, 15, 0, 0, 0 }, 0 },      // blocks that wait for other streams
  { "limit_edge", 14, { 260046848, 13, 10, 6, 4 }, 0 },  // a limit filled to the last byte
  { "research", 4, { 419430400, 4, 1, 3, 2 }, 0 },       // what a flush made free is not searched again
  { "oversize", 40, { 1306525696, 16, 0, 0, 0 }, 0 },    // both rules of max_split_size, at equality
  { "expand", 416, { 834666496, 110, 37, 0, 0 }, 10 },   // holes in reserves, and reserves made again
  { "roundup", 552, { 1625292800, 15, 0, 0, 0 }, 0 },    // divisions as a list
  { "expand_limit", 149, { 633339904, 47, 36, 29, 21 }, 0 },
  { "expand_split", 416, { 855638016, 113, 39, 0, 0 }, 10 },
  { "after_oom", 58, { 727711744, 29, 27, 51, 50 }, 0 },  // life after a refusal
  { "gc_mix", 326, { 1556086784, 13, 6, 0, 0 }, 0 },      // collection by age
  { "pools", 32, { 939524096, 29, 4, 0, 0 }, 4 },         // graphs in their own and in shared pools
  { "graphs", 2239, { 2334130176, 124, 61, 0, 0 }, 5 },
  { "gnn_gc_split", 2936, { 15695085568, 117, 84, 0, 0 }, 0 },
  { "gnn_retry", 2936, { 14115930112, 39, 27, 2, 0 }, 0 },
  { "resnet_stacks", 920, { 3527409664, 24, 0, 0, 0 }, 0 },
};

static const known known_large[] = {
  { "gnn_varsize", 3350, { 27097300992, 36, 0, 0, 0 }, 0 },
  { "resnet_infer_varsize", 2673, { 3527409664, 24, 0, 0, 0 }, 0 },
  { "multistream_prefetch", 13819, { 6278873088, 104, 0, 0, 0 }, 0 },
  { "llama_train_varlen", 24583, { 28485615616, 193, 0, 0, 0 }, 0 },
  { "llama_train_fixed", 24625, { 11060379648, 180, 0, 0, 0 }, 0 },
  { "llama_ckpt_varlen", 42611, { 38002491392, 58, 0, 0, 0 }, 0 },
  { "llama_generate", 513431, { 4267704320, 134, 0, 0, 0 }, 0 },
  { "gnn_empty", 2936, { 11922309120, 58, 47, 0, 0 }, 4 },
  { "varlen_oom", 19063, { 17710448640, 191, 27, 3, 1 }, 0 },
  { "varlen_round", 21547, { 24542969856, 191, 0, 0, 0 }, 0 },
  { "varlen_split", 21547, { 70107791360, 428, 0, 0, 0 }, 0 },
  { "varlen_expand", 21547, { 18618515456, 197, 0, 0, 0 }, 0 },
  { "multistream_expand", 12117, { 6069157888, 96, 0, 0, 0 }, 0 },
};

#define SMALL_COUNT (sizeof known_small / sizeof known_small[0])
#define LARGE_COUNT (sizeof known_large / sizeof known_large[0])

static const char* small_names[SMALL_COUNT + 1];
static const char* large_names[LARGE_COUNT + 1];

__attribute__((constructor)) static void names_fill(void) {
  for (size_t i = 0; i < SMALL_COUNT; ++i) small_names[i] = known_small[i].name;
  for (size_t i = 0; i < LARGE_COUNT; ++i) large_names[i] = known_large[i].name;
}

static const known* known_of(const known* list, size_t count, const char* name) {
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(list[i].name, name) == 0) return &list[i];
  }
  T_FAIL("nothing is known of %s", name);
}

// ---------------------------------------------------------------------------------------------------
// Reading and comparing

static void read_small(const char* name, recording* out) {
  char file[128];
  char path[SCRIPT_PATH];
  (void)snprintf(file, sizeof file, "tests/device/recordings/%s.txt", name);
  script_path(path, SCRIPT_SOURCE, file);
  FILE* const lines = fopen(path, "r");
  T_CHECK(lines != NULL);
  T_CHECK(recording_read(lines, out));
  (void)fclose(lines);
}

static void read_large(const char* name, recording* out) {
  char file[128];
  char path[SCRIPT_PATH];
  (void)snprintf(file, sizeof file, "traces/%s.pickle.xz", name);
  script_path(path, "TIDEMARK_DATA", file);
  script s = script_open("tests/device/recording.py", (const char* const[]){ path, NULL });
  T_CHECK(recording_read(s.output, out));
  script_close(&s);
}

static void expect_figures(const recording_figures* got, const recording_figures* want) {
  T_EQ(got->peak_reserved, want->peak_reserved);
  T_EQ(got->device_allocs, want->device_allocs);
  T_EQ(got->device_frees, want->device_frees);
  T_EQ(got->retries, want->retries);
  T_EQ(got->ooms, want->ooms);
}

static void expect_exact(recording* rec, const known* want) {
  replay_result result;
  replay_run(rec, &result);
  T_STR_EQ(result.text, "");
  T_EQ(result.mismatched_addresses, 0);
  T_EQ(result.mismatched_segments, 0);
  T_EQ(result.allocations, want->allocations);
  T_EQ(result.empty_caches, want->empty_caches);
  expect_figures(&result.figures, &want->figures);
}

// ---------------------------------------------------------------------------------------------------
// Recordings

T_TEST_OVER(test_replay__repeats_a_recording, small_names) {
  recording rec;
  read_small(t_variant(), &rec);

  expect_exact(&rec, known_of(known_small, SMALL_COUNT, t_variant()));

  recording_fini(&rec);
}

T_TEST_OVER(test_replay__repeats_a_large_recording, large_names) {
  recording rec;
  read_large(t_variant(), &rec);

  expect_exact(&rec, known_of(known_large, LARGE_COUNT, t_variant()));

  recording_fini(&rec);
}

// The committed text is what the script makes of the snapshot.
T_TEST(test_replay__has_recordings_as_the_script_makes_them) {
  recording kept;
  recording made;
  read_large("resnet_stacks", &made);
  read_small("resnet_stacks", &kept);

  T_EQ(kept.entry_count, made.entry_count);
  T_EQ(kept.row_count, made.row_count);
  for (size_t i = 0; i < kept.entry_count; ++i) {
    T_EQ(kept.entries[i].kind, made.entries[i].kind);
    T_EQ(kept.entries[i].address, made.entries[i].address);
    T_EQ(kept.entries[i].bytes, made.entries[i].bytes);
  }

  recording_fini(&kept);
  recording_fini(&made);
}

// ---------------------------------------------------------------------------------------------------
// The replay is no answer by itself: what is wrong is seen

// The first entry of a kind in the second half.
static size_t entry_find(const recording* rec, char kind) {
  for (size_t i = rec->entry_count / 2; i < rec->entry_count; ++i) {
    if (rec->entries[i].kind == kind) return i;
  }
  T_FAIL("there is no '%c' in the second half", kind);
}

// Moves an allocation and its release.
static void entry_move(recording* rec, size_t index, uint64_t distance) {
  const uint64_t before = rec->entries[index].address;
  rec->entries[index].address += distance;
  for (size_t i = index + 1; i < rec->entry_count; ++i) {
    recording_entry* const entry = &rec->entries[i];
    if (entry->address != before || strchr("dfc", entry->kind) == NULL) continue;
    entry->address += distance;
    if (entry->kind != 'f') return;
  }
}

T_TEST(test_replay__sees_a_moved_address) {
  recording rec;
  read_small("resnet_stacks", &rec);
  const size_t index = entry_find(&rec, 'a');
  entry_move(&rec, index, 512);

  replay_result result;
  replay_run(&rec, &result);

  T_EQ(result.mismatched_addresses, 1);
  char where[40];
  (void)snprintf(where, sizeof where, "entry %zu: alloc", index);
  T_STR_HAS(result.text, where);
  recording_fini(&rec);
}

T_TEST(test_replay__sees_a_segment_that_was_not_given_back) {
  recording rec;
  read_small("gnn_retry", &rec);
  const size_t index = entry_find(&rec, 'r');
  memmove(&rec.entries[index], &rec.entries[index + 1], (--rec.entry_count - index) * sizeof *rec.entries);

  replay_result result;
  replay_run(&rec, &result);

  T_EQ(result.mismatched_segments, 1);
  recording_fini(&rec);
}

T_TEST(test_replay__sees_another_refusal) {
  recording rec;
  read_small("after_oom", &rec);
  const size_t index = entry_find(&rec, 'o');
  rec.entries[index].kind = 'a';

  replay_result result;
  replay_run(&rec, &result);

  T_EQ(result.mismatched_segments, 1);
  recording_fini(&rec);
}

T_TEST(test_replay__sees_a_block_that_is_not_left) {
  recording rec;
  read_small("resnet_stacks", &rec);
  T_LT(1, rec.row_count);
  rec.rows[rec.row_count - 1].requested += 1;

  replay_result result;
  replay_run(&rec, &result);

  T_EQ(result.mismatched_segments, 1);
  T_STR_HAS(result.text, "left is another block");
  recording_fini(&rec);
}

// ---------------------------------------------------------------------------------------------------
// Random programs

static void expect_case(recording* rec, const char* seed, size_t index) {
  replay_result result;
  replay_run(rec, &result);
  if (result.text[0] != '\0')
    T_FAIL("model_case.py MODEL %s %zu 1, options \"%s\": %s", seed, index, rec->options, result.text);
  T_CHECK(rec->has_figures);
  expect_figures(&result.figures, &rec->figures);
}

T_TEST(test_replay__decides_as_the_model) {
  char model[SCRIPT_PATH];
  script_path(model, "TIDEMARK_DATA", "checks/torch_model.py");
  char seed[32];
  char count[32];
  const size_t cases = t_scaled(300);
  (void)snprintf(seed, sizeof seed, "%" PRIu64, t_seed());
  (void)snprintf(count, sizeof count, "%zu", cases);
  script s =
      script_open("tests/device/model_case.py", (const char* const[]){ model, seed, "0", count, NULL });

  recording rec;
  for (size_t i = 0; i < cases; ++i) {
    T_CHECK(recording_read(s.output, &rec));
    expect_case(&rec, seed, i);
    recording_fini(&rec);
  }

  T_CHECK(!recording_read(s.output, &rec));
  script_close(&s);
}

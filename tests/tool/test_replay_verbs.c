// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The verbs replay and whatif as their users meet them: what they print, and how they end.
#include "device/script.h"

#define ANSWER_BYTES 65536
#define ARGUMENTS_MAX 12

typedef struct answer {
  int status;
  char out[ANSWER_BYTES];
} answer;

// Runs the program; "@NAME" stands for a recording of the tests. Skipped without the program.
static const answer* run(const char* const* arguments) {
  static answer a;
  static char texts[ARGUMENTS_MAX][SCRIPT_PATH];
  char* argv[ARGUMENTS_MAX + 1] = { NULL };
  const char* const program = getenv("TIDEMARK_BIN");
  if (program == NULL) t_skip("TIDEMARK_BIN is not set");
  // Looking for leaks takes seconds on some processors; whoever wants it asks for it.
  if (T_HAS_ADDRESS_SANITIZER) (void)setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
  (void)snprintf(texts[0], SCRIPT_PATH, "%s", program);
  argv[0] = texts[0];
  for (size_t i = 0; arguments[i] != NULL; i++) {
    char file[128];
    T_LT(i + 1, ARGUMENTS_MAX);
    argv[i + 1] = texts[i + 1];
    (void)snprintf(texts[i + 1], SCRIPT_PATH, "%s", arguments[i]);
    if (arguments[i][0] != '@') continue;
    (void)snprintf(file, sizeof file, "tests/data/%s.tide", arguments[i] + 1);
    script_path(texts[i + 1], SCRIPT_SOURCE, file);
  }
  pid_t pid = 0;
  FILE* const output = fdopen(script_spawn(argv, &pid), "r");
  T_CHECK(output != NULL);
  a.out[fread(a.out, 1, sizeof a.out - 1, output)] = '\0';
  (void)fclose(output);
  int status = 0;
  T_EQ(waitpid(pid, &status, 0), pid);
  T_CHECK(WIFEXITED(status));
  a.status = WEXITSTATUS(status);
  return &a;
}
#define RUN(...) run((const char* const[]){ __VA_ARGS__, NULL })

static void expect_number(const answer* a, const char* key, const char* value) {
  char text[128];
  (void)snprintf(text, sizeof text, "\"%s\": %s", key, value);
  const char* const found = strstr(a->out, text);
  if (found == NULL || strchr(",\n }", found[strlen(text)]) == NULL) T_FAIL("no %s in %s", text, a->out);
}

// ---------------------------------------------------------------------------------------------------
// replay

T_TEST(test_replay_verbs__replay_repeats_a_recording) {
  const answer* const a =
      RUN("replay", "@gnn_retry", "--policy", "torch", "--check", "--limit", "14GiB", "--json");

  T_EQ(a->status, 0);
  expect_number(a, "mismatched_addresses", "0");
  expect_number(a, "mismatched_segments", "0");
  expect_number(a, "mismatch", "null");
  expect_number(a, "allocations", "2936");
  expect_number(a, "peak_allocated", "9226588160");
  expect_number(a, "peak_allocated_blocks", "9229527040");
  expect_number(a, "peak_reserved", "14115930112");
  expect_number(a, "utilisation", "0.6536");
  expect_number(a, "driver_allocs", "39");
  expect_number(a, "driver_frees", "27");
  expect_number(a, "retries", "2");
  expect_number(a, "ooms", "0");
  expect_number(a, "inferred_empty_cache", "0");
  static const char* const others[] = { "\"driver_ms\": ",
                                        "\"driver_calls_by_tenth\": [",
                                        "\"driver_ms_by_tenth\": [",
                                        "\"remap_ms_by_tenth\": [",
                                        "\"span_ms\": ",
                                        "\"ns_per_event\": " };
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) T_STR_HAS(a->out, others[i]);
}

T_TEST(test_replay_verbs__replay_says_no_when_it_differs) {
  const answer* const a =
      RUN("replay", "@gnn_retry", "--check", "--policy", "torch:max_split_size_mb=64", "--json");

  T_EQ(a->status, 1);
  T_STR_HAS(a->out, "\"mismatch\": \"entry ");
  expect_number(a, "allocations", "2936");
}

T_TEST(test_replay_verbs__replay_says_no_when_memory_is_short) {
  const answer* const a = RUN("replay", "@gnn_retry", "--limit", "8G", "--json");

  T_EQ(a->status, 1);
  T_CHECK(strstr(a->out, "\"ooms\": 0") == NULL);
  expect_number(a, "limit", "8589934592");
  T_EQ(RUN("replay", "@gnn_retry", "--limit", "10G")->status, 0);
}

T_TEST(test_replay_verbs__replay_takes_the_recorded_settings) {
  const answer* a = RUN("replay", "@expand", "--json");

  T_EQ(a->status, 0);
  T_STR_HAS(a->out, "\"settings\": \"expandable_segments:True\"");
  a = RUN("replay", "@expand", "--policy", "torch", "--json");
  T_STR_HAS(a->out, "\"settings\": \"\"");
}

T_TEST(test_replay_verbs__replay_is_printed_for_people) {
  const answer* const a = RUN("replay", "@graphs", "--check");

  T_EQ(a->status, 0);
  T_STR_HAS(a->out, "identical to the recording");
  T_STR_HAS(a->out, "2.17 GiB");
}

T_TEST(test_replay_verbs__replay_refuses_bad_lines) {
  T_EQ(RUN("replay", "@graphs", "--policy", "nobodys")->status, 2);
  T_EQ(RUN("replay", "@graphs", "--policy", "torch:max_split_size_mb:1")->status, 2);
  T_EQ(RUN("replay", "@graphs", "--limit", "much")->status, 2);
  T_EQ(RUN("replay", "@graphs", "--limit", "0")->status, 2);
  T_EQ(RUN("replay", "@graphs", "--device", "7")->status, 2);
  T_EQ(RUN("replay", "@graphs", "--device", "x")->status, 2);
  T_EQ(RUN("replay", "/nowhere/at/all")->status, 2);
}

// ---------------------------------------------------------------------------------------------------
// whatif

static size_t count_of(const char* text, const char* part) {
  size_t count = 0;
  for (const char* at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
  return count;
}

T_TEST(test_replay_verbs__whatif_has_a_row_for_each_setting) {
  const answer* const a = RUN("whatif", "@gnn_retry", "--limit", "14GiB", "--json");

  T_EQ(a->status, 0);
  T_LE(12, count_of(a->out, "\"smallest_memory\": "));
  T_EQ(count_of(a->out, "\"smallest_memory\": null"), 0);
  T_EQ(count_of(a->out, "\"is_recorded\": true"), 1);
  T_STR_HAS(a->out, "\"environment\": \"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\"");
  expect_number(a, "limit", "15032385536");
  expect_number(a, "is_repeated", "true");
  T_STR_HAS(a->out, "garbage_collection_threshold");
}

T_TEST(test_replay_verbs__whatif_sorts_the_lowest_peak_first) {
  const answer* const a = RUN("whatif", "@resnet_stacks", "--json");
  const char* const rows = strstr(a->out, "\"rows\"");
  unsigned long long before = 0;

  T_EQ(a->status, 0);
  T_CHECK(rows != NULL);
  for (const char* at = strstr(rows, "\"peak_reserved\": "); at != NULL;
       at = strstr(at + 1, "\"peak_reserved\": ")) {
    const unsigned long long bytes = strtoull(at + strlen("\"peak_reserved\": "), NULL, 10);
    T_LE(before, bytes);
    before = bytes;
  }
  T_LT(0, before);
}

T_TEST(test_replay_verbs__whatif_prints_the_line_to_paste) {
  const answer* const a = RUN("whatif", "@graphs", "--quick");

  T_EQ(a->status, 0);
  T_STR_HAS(a->out, "repeated in every row: 5.");
  T_STR_HAS(a->out, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
  T_STR_HAS(a->out, "when it was recorded");
  T_STR_HAS(a->out, "(as recorded)");
  T_CHECK(strstr(a->out, "smallest") == NULL);
}

T_TEST(test_replay_verbs__whatif_says_what_the_least_is_when_nothing_runs) {
  const answer* const a = RUN("whatif", "@gnn_retry", "--limit", "5GiB");

  T_EQ(a->status, 1);
  T_STR_HAS(a->out, "No setting runs in 5.00 GiB. The smallest memory is 8.");
  T_CHECK(strstr(a->out, "PYTORCH_CUDA_ALLOC_CONF") == NULL);
}

T_TEST(test_replay_verbs__replay_makes_the_calls_of_empty_cache) {
  const answer* const a = RUN("replay", "@graphs", "--json");

  T_EQ(a->status, 0);
  expect_number(a, "inferred_empty_cache", "5");
  expect_number(a, "peak_reserved", "2334130176");
}

T_TEST(test_replay_verbs__whatif_takes_further_policies) {
  const answer* const a =
      RUN("whatif", "@resnet_stacks", "-q", "--json", "-p", "torch:max_split_size_mb:777  torch:fixes=on");

  T_EQ(a->status, 0);
  T_EQ(count_of(a->out, "max_split_size_mb:777"), 1);
  T_EQ(count_of(a->out, "\"settings\": \"fixes:True\""), 1);
  T_EQ(RUN("whatif", "@resnet_stacks", "-p", "torch nobodys")->status, 2);
}

T_TEST(test_replay_verbs__whatif_says_no_when_nothing_fits) {
  const answer* const a = RUN("whatif", "@resnet_stacks", "-q", "--limit", "1GiB");

  T_EQ(a->status, 1);
  T_STR_HAS(a->out, "no, at entry ");
}

// What a thread finds does not depend on the others.
T_TEST(test_replay_verbs__whatif_finds_the_same_twice) {
  static char first[ANSWER_BYTES];
  memcpy(first, RUN("whatif", "@gnn_retry", "--json")->out, sizeof first);
  T_STR_EQ(RUN("whatif", "@gnn_retry", "--json")->out, first);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory snapshots through the command and back, compared by Python's own pickle and json (roundtrip.py):
// random ones, and every recording of the optional data. It needs python3 and the program, and for the
// recordings the data.
#include "device/script.h"

#define NO_LIMIT "1000000000"
#define SMALL_LIMIT "1500000"  // bytes of a pickle that a viewer written in Python is done with in a second

static void run_script(const char* const* arguments) {
  const char* const program = getenv("TIDEMARK_BIN");
  char line[1024];
  const char* all[SCRIPT_ARGUMENTS + 1] = { program };
  if (program == NULL || access(program, X_OK) != 0) t_skip("TIDEMARK_BIN names no program");
  for (size_t i = 0; i < 4 && arguments[i] != NULL; i++) all[i + 1] = arguments[i];
  script s = script_open("tests/format/roundtrip.py", all);
  size_t lines = 0;
  while (fgets(line, sizeof line, s.output) != NULL) lines += strstr(line, "come back") != NULL;
  script_close(&s);
  T_EQ(lines, 1);
}

T_TEST(test_roundtrip__random_snapshots_come_back) {
  char seed[32];
  char count[32];
  (void)snprintf(seed, sizeof seed, "%" PRIu64, t_seed() % 1000000007u);
  (void)snprintf(count, sizeof count, "%zu", t_scaled(T_HAS_SANITIZER ? 5 : 12));
  run_script((const char*[]){ "random", seed, count, NULL });
}

static const char* const small_files[] = {
  "corners/after_oom",
  "corners/events",
  "corners/expand",
  "corners/expand_limit",
  "corners/expand_split",
  "corners/gc_mix",
  "corners/limit_edge",
  "corners/oversize",
  "corners/pools",
  "corners/release_available",
  "corners/research",
  "corners/roundup",
  "gnn_empty",
  "gnn_gc_split",
  "gnn_retry",
  "gnn_varsize",
  "graphs",
  "resnet_infer_varsize",
  "resnet_stacks",
  NULL,
};

static const char* const large_files[] = {
  "llama_ckpt_varlen",
  "llama_generate",
  "llama_train_fixed",
  "llama_train_varlen",
  "multistream_expand",
  "multistream_prefetch",
  "varlen_expand",
  "varlen_oom",
  "varlen_round",
  "varlen_split",
  NULL,
};

static void run_recording(const char* limit) {
  char file[256];
  char path[SCRIPT_PATH];
  (void)snprintf(file, sizeof file, "traces/%s.pickle.xz", t_variant());
  script_path(path, "TIDEMARK_DATA", file);
  run_script((const char*[]){ "file", path, limit, NULL });
}

T_TEST_OVER(test_roundtrip__a_recording_comes_back, small_files) {
  if (T_HAS_SANITIZER && t_scaled(100) <= 100 && strchr(t_variant(), '/') == NULL)
    t_skip("everyday runs with a sanitizer convert the smallest recordings only");
  run_recording(NO_LIMIT);
}

T_TEST_OVER(test_roundtrip__a_large_recording_comes_back, large_files) {
  if (strcmp(t_variant(), "llama_generate") == 0 && t_scaled(1) < 10)
    t_skip("only with --full: Python takes a minute to load it");
  if (T_HAS_SANITIZER && t_scaled(100) <= 100)
    t_skip("everyday runs with a sanitizer convert the smallest recordings only");
  run_recording(t_scaled(100) > 100 ? NO_LIMIT : SMALL_LIMIT);
}

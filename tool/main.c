// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark` command: finds the verb and runs it. For an unknown verb it suggests the nearest one, by
// edit distance.
#include <signal.h>
#include <string.h>

#include "display.h"
#include "tidemark/base.h"
#include "tool.h"

const tool_verb* const tool_verbs[] = { &tool_info,     &tool_report, &tool_plot,   &tool_leaks,
                                        &tool_view,     &tool_replay, &tool_whatif, &tool_diff,
                                        &tool_survey,   &tool_plan,   &tool_verify, &tool_convert,
                                        &tool_machines, &tool_top,    &tool_ledger, NULL };

#define NAME_MAX_LETTERS 24
#define TYPO_LETTERS 2

static void program_help_print(FILE* to) {
  (void)fputs(
      "usage: tidemark VERB [OPTION ...] [OPERAND ...]\n\n"
      "Explains the GPU memory of a recorded run: where it went, why it ran out, and which allocator\n"
      "setting would have helped. Reads PyTorch memory snapshots and other recordings. FILE may be '-'\n"
      "for standard input, and may be compressed with xz, gzip or zstd.\n\n",
      to);
  for (size_t i = 0; tool_verbs[i] != NULL; i++)
    (void)fprintf(to, "  %-12s %s\n", tool_verbs[i]->name, tool_verbs[i]->summary);
  (void)fputs("\n  help VERB     describe a verb and its options, like VERB --help\n"
              "  -h, --help    print this text\n"
              "  -V, --version print the version\n\n"
              "exit status: 0 success; 1 something differs, leaks or does not fit; 2 wrong command line or\n"
              "unreadable file; 3 out of time\n",
              to);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// The edit distance of `a` and `b`, where swapping two neighbouring letters is one edit (optimal string
// alignment).
static size_t typo_distance(const char* a, const char* b) {
  const size_t rows = strnlen(a, NAME_MAX_LETTERS);
  const size_t columns = strnlen(b, NAME_MAX_LETTERS);
  size_t cost[NAME_MAX_LETTERS + 1][NAME_MAX_LETTERS + 1];
  for (size_t i = 0; i <= rows; i++) {
    for (size_t j = 0; j <= columns; j++) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t change = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = least(change, 1 + least(cost[i - 1][j], cost[i][j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[rows][columns];
}

static const char* nearest_verb(const char* name) {
  const char* nearest = NULL;
  size_t best = TYPO_LETTERS + 1;
  for (size_t i = 0; tool_verbs[i] != NULL; i++) {
    const size_t distance = typo_distance(name, tool_verbs[i]->name);
    if (distance >= best) continue;
    best = distance;
    nearest = tool_verbs[i]->name;
  }
  return nearest;
}

static int named_verb_run(int argc, char** argv) {
  for (size_t i = 0; tool_verbs[i] != NULL; i++) {
    if (strcmp(argv[0], tool_verbs[i]->name) == 0) return tool_verb_run(tool_verbs[i], argc, argv);
  }
  const char* what = argv[0][0] == '-' ? "option" : "verb";
  const char* nearest = nearest_verb(argv[0]);
  if (nearest != NULL)
    return tool_fail("unknown verb '%s'; did you mean '%s'? See tidemark --help", argv[0], nearest);
  return tool_fail("unknown %s '%s'; see tidemark --help", what, argv[0]);
}

static bool is_word(const char* word, const char* one, const char* other) {
  return strcmp(word, one) == 0 || strcmp(word, other) == 0;
}

// `help VERB` is `VERB --help`; `help` itself is not in the list of verbs.
static int help_run(int argc, char** argv) {
  if (argc > 2) return tool_fail("help takes one verb; see tidemark --help");
  if (argc == 2 && strcmp(argv[1], "help") != 0 && !is_word(argv[1], "--help", "-h")) {
    char flag[] = "--help";
    char* line[] = { argv[1], flag, NULL };
    return named_verb_run(2, line);
  }
  program_help_print(stdout);
  return TOOL_DONE;
}

static int line_run(int argc, char** argv) {
  if (argc < 2) {
    program_help_print(stderr);
    return TOOL_USAGE;
  }
  if (strcmp(argv[1], "help") == 0) return help_run(argc - 1, argv + 1);
  if (is_word(argv[1], "--help", "-h")) return help_run(1, argv);
  if (is_word(argv[1], "--version", "-V")) {
    (void)printf("tidemark %s\n", tide_version());
    return TOOL_DONE;
  }
  if (strcmp(argv[1], "--completion") == 0 && argc == 3) return tool_completion_print(argv[2]);
  return named_verb_run(argc - 1, argv + 1);
}

// SIGPIPE ends the program silently, even if the parent process ignores the signal. A verb that fails has
// said why, also if it could not write.
int main(int argc, char** argv) {
  (void)signal(SIGPIPE, SIG_DFL);
  const int status = line_run(argc, argv);
  if (fflush(stdout) != 0 || (status == TOOL_DONE && ferror(stdout))) return tool_output_failed();
  return status;
}

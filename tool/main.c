// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The `tidemark` command: finds the verb and calls it.
#include <stdio.h>
#include <string.h>

#include "tidemark/base.h"
#include "tool.h"

typedef struct verb {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
} verb;

static const verb verbs[] = {
  { "machines", "say which machines are here, and why one is not", tool_machines },
};

#define VERB_COUNT (sizeof verbs / sizeof verbs[0])

static void help_print(FILE* to) {
  (void)fputs("usage: tidemark VERB [OPTION ...]\n\n", to);
  for (size_t i = 0; i < VERB_COUNT; i++) (void)fprintf(to, "  %-12s %s\n", verbs[i].name, verbs[i].summary);
  (void)fputs("\n  --help       print this text\n  --version    print the version\n", to);
}

static int verb_run(int argc, char** argv) {
  for (size_t i = 0; i < VERB_COUNT; i++) {
    if (strcmp(argv[0], verbs[i].name) == 0) return verbs[i].run(argc, argv);
  }
  (void)fprintf(stderr, "tidemark: there is no verb '%s'; see tidemark --help\n", argv[0]);
  return TOOL_USAGE;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    help_print(stderr);
    return TOOL_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    help_print(stdout);
    return 0;
  }
  if (strcmp(argv[1], "--version") == 0) {
    (void)printf("tidemark %s\n", tide_version());
    return 0;
  }
  return verb_run(argc - 1, argv + 1);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writing a file, and signals during that. This program replaces unlink(), so that a second signal arrives at
// the worst moment: while the first is handled, and before the unfinished file is removed.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"
#include "tool.h"

static volatile sig_atomic_t second_signal;

int unlink(const char* path) {
  if (second_signal != 0) (void)raise(second_signal);
  return unlinkat(AT_FDCWD, path, 0);
}

typedef struct interruption {
  int first;
  int second;  // 0: none
} interruption;

static tide_status interrupted_write(const void* what, const tide_sink* sink) {
  const interruption* const now = what;
  const tide_status status = sink->write(sink->user, "half", 4);
  second_signal = now->second;
  (void)raise(now->first);
  return status;
}

// The number of files in the folder.
static size_t count_files(const char* folder) {
  size_t count = 0;
  DIR* const at = opendir(folder);
  T_CHECK(at != NULL);
  while (readdir(at) != NULL) count++;
  (void)closedir(at);
  return count - 2;
}

static void make_folder(char folder[], char target[], size_t room) {
  T_CHECK(mkdtemp(folder) != NULL);
  (void)snprintf(target, room, "%s/target", folder);
  FILE* const file = fopen(target, "w");
  T_CHECK(file != NULL);
  T_EQ(fwrite("before", 1, 6, file), 6);
  const int closed = fclose(file);
  T_EQ(closed, 0);
}

static void expect_target_only(const char* folder, const char* target) {
  char text[16] = "";
  FILE* const file = fopen(target, "r");
  T_CHECK(file != NULL);
  T_EQ(fread(text, 1, sizeof text - 1, file), 6);
  const int closed = fclose(file);
  T_EQ(closed, 0);
  T_STR_EQ(text, "before");
  T_EQ(count_files(folder), 1);
}

static void expect_nothing_left(interruption now) {
  char folder[] = "/tmp/tide_save_XXXXXX";
  char target[64];
  int status = 0;
  make_folder(folder, target, sizeof target);

  const pid_t child = fork();
  T_CHECK(child >= 0);
  if (child == 0) {
    (void)tool_file_write(target, interrupted_write, &now, NULL);
    _exit(0);
  }
  T_EQ(waitpid(child, &status, 0), child);

  T_CHECK(WIFSIGNALED(status));
  expect_target_only(folder, target);
  T_EQ(unlinkat(AT_FDCWD, target, 0), 0);
  T_EQ(rmdir(folder), 0);
}

T_TEST(test_save__a_signal_leaves_what_was_there) {
  expect_nothing_left((interruption){ SIGINT, 0 });
  expect_nothing_left((interruption){ SIGTERM, 0 });
  expect_nothing_left((interruption){ SIGHUP, 0 });
}

T_TEST(test_save__a_second_interrupt_left_the_unfinished_file) {
  expect_nothing_left((interruption){ SIGINT, SIGINT });
  expect_nothing_left((interruption){ SIGTERM, SIGTERM });
  expect_nothing_left((interruption){ SIGINT, SIGTERM });
  expect_nothing_left((interruption){ SIGTERM, SIGINT });
  expect_nothing_left((interruption){ SIGHUP, SIGINT });
}

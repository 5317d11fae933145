// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where a page lies, who may see it, and what happens if others prepared the place, or if there is no room.
#define T_THREADS
#include <sys/syscall.h>

#include "pages.h"

static void mode_expect(const char* path, mode_t want) {
  struct stat found;
  T_EQ(lstat(path, &found), 0);
  T_EQ(found.st_mode, want);
  T_EQ(found.st_uid, geteuid());
}

// Opening fails with this errno, and leaves nothing behind.
static void open_refused(const char* path, int error) {
  char none[PATH_BYTES];
  T_STATUS(tide_monitor_open(path), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, error);
  T_STR_HAS(tide_last_error()->text, path);
  T_EQ(tide_monitor_path(none, sizeof none), 0);
}

static bool ignore_sight(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  (void)user;
  (void)process;
  (void)row;
  return true;
}

T_TEST(test_monitor_folder__modes_do_not_depend_on_the_umask) {
  static const mode_t masks[] = { 0, 022, 077, 0277 };
  char path[PATH_BYTES * 2];
  char inner[PATH_BYTES * 2];
  folder_make();
  (void)snprintf(inner, sizeof inner, "%s/inner", folder);
  for (size_t i = 0; i < 4; i++) {
    (void)umask(masks[i] & 077);  // a folder that its owner cannot use is another matter
    T_EQ(tide_monitor_open(inner), TIDE_OK);
    tide_monitor_close();
    (void)umask(masks[i]);
    T_OK(tide_monitor_open(inner));
    T_LT(0, tide_monitor_path(path, sizeof path));
    T_EQ(strncmp(path, inner, strlen(inner)), 0);
    mode_expect(path, S_IFREG | 0600);
    mode_expect(inner, S_IFDIR | 0700);
    tide_monitor_close();
    T_EQ(rmdir(inner), 0);  // it is empty
  }
  folder_remove();
}

T_TEST(test_monitor_folder__refuses_a_link) {
  char path[PATH_BYTES * 2];
  folder_make();
  (void)snprintf(path, sizeof path, "%s-link", folder);
  T_EQ(symlink(folder, path), 0);
  T_STATUS(tide_monitor_open(path), TIDE_ERR_STATE);
  T_STATUS(tide_monitor_read(path, ignore_sight, NULL), TIDE_ERR_STATE);
  T_EQ(folder_count(NULL), 0);
  T_EQ(unlink(path), 0);
  folder_remove();
}

T_TEST(test_monitor_folder__refuses_one_that_others_may_enter) {
  static const mode_t modes[] = { 0755, 0710, 0701, 0770, 01777 };
  folder_make();
  for (size_t i = 0; i < 5; i++) {
    T_EQ(chmod(folder, modes[i]), 0);
    open_refused(folder, EACCES);
    T_STATUS(tide_monitor_read(folder, ignore_sight, NULL), TIDE_ERR_STATE);
    T_EQ(folder_count(NULL), 0);
  }
  folder_remove();
}

T_TEST(test_monitor_folder__refuses_one_of_another_user) {
  if (geteuid() != 0) t_skip("only root can make a folder of another user");
  folder_make();
  T_EQ(chown(folder, 12345, 12345), 0);
  open_refused(folder, EPERM);
  T_STATUS(tide_monitor_read(folder, ignore_sight, NULL), TIDE_ERR_STATE);
  T_EQ(tide_last_error()->native, EPERM);
  folder_remove();
}

T_TEST(test_monitor_folder__bad_paths) {
  char path[PATH_BYTES * 2];
  char* const longest = calloc(1, 5000);
  folder_make();
  (void)snprintf(path, sizeof path, "%s/no/folder", folder);
  open_refused(path, ENOENT);
  T_OK(tide_monitor_read(path, ignore_sight, NULL));  // it has no pages
  T_STATUS(tide_monitor_open("relative"), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_monitor_read("", ignore_sight, NULL), TIDE_ERR_ARGUMENT);
  memset(longest, '/', 4999);
  T_STATUS(tide_monitor_open(longest), TIDE_ERR_ARGUMENT);
  (void)snprintf(path, sizeof path, "%s/file", folder);
  T_EQ(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
  T_STATUS(tide_monitor_open(path), TIDE_ERR_STATE);
  free(longest);
  folder_remove();
}

// Failures of the environment's wish do not disturb the program.
T_TEST(test_monitor_folder__a_cache_is_made_without_a_page) {
  tide_cpu_cache* cpu = NULL;
  T_EQ(setenv("TIDEMARK_MONITOR", "/proc/no/folder", 1), 0);
  T_OK(tide_cpu_new(NULL, &cpu));
  T_EQ(tide_last_error()->status, TIDE_OK);
  T_STATUS(tide_monitor_open(NULL), TIDE_ERR_STATE);  // says why
  T_EQ(tide_last_error()->native, ENOENT);
  T_STR_HAS(tide_last_error()->text, "/proc/no/folder");
  tide_cpu_free(cpu, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Files that others put there

static void file_put(const char* name, mode_t mode, size_t bytes) {
  char path[PATH_BYTES * 2];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  const int file = open(path, O_CREAT | O_WRONLY, mode);
  T_LE(0, file);
  T_EQ(fchmod(file, mode), 0);
  char* const junk = malloc(bytes + 1);
  memset(junk, 'x', bytes + 1);
  T_EQ(write(file, junk, bytes), (ssize_t)bytes);
  free(junk);
  T_EQ(close(file), 0);
}

T_TEST(test_monitor_folder__foreign_files_are_ignored_and_kept) {
  char path[PATH_BYTES * 2];
  folder_make();
  file_put("1-1-1-0", 0644, 100000);
  file_put("2-1-1-0", 0600, 0);
  file_put("3-1-1-0", 0600, 100000);
  file_put("notes.txt", 0600, 100);
  (void)snprintf(path, sizeof path, "%s/4-1-1-0", folder);
  T_EQ(mkfifo(path, 0600), 0);  // opening it must not wait
  (void)snprintf(path, sizeof path, "%s/5-1-1-0", folder);
  T_EQ(symlink("/etc/passwd", path), 0);
  T_OK(tide_monitor_open(folder));
  T_EQ(look()->count, 1);
  T_EQ(look()->all[0].process.pid, getpid());
  T_EQ(folder_count(NULL), 7);
  tide_monitor_close();
  T_EQ(folder_count(NULL), 6);
  folder_remove();
}

// A page of a process that has another start time than the one with its number today.
T_TEST(test_monitor_folder__a_reused_pid_is_not_mistaken) {
  uint64_t ticks = 0;
  char path[PATH_BYTES * 2];
  folder_make();
  T_OK(tide_monitor_open(folder));
  T_EQ(look()->count, 1);
  T_LT(0, tide_monitor_path(path, sizeof path));
  const int file = open(path, O_RDWR);
  T_EQ(pread(file, &ticks, sizeof ticks, 24), (ssize_t)sizeof ticks);
  ticks++;
  T_EQ(pwrite(file, &ticks, sizeof ticks, 24), (ssize_t)sizeof ticks);
  T_EQ(close(file), 0);
  T_EQ(look()->count, 0);
  T_EQ(folder_count(NULL), 0);
  T_OK(tide_monitor_update());  // and it comes back
  T_EQ(look()->count, 1);
  tide_monitor_close();
  folder_remove();
}

static const char* const mishaps[] = { "removed", "truncated", "emptied", NULL };

T_TEST_OVER(test_monitor_folder__a_damaged_page_is_made_again, mishaps) {
  char path[PATH_BYTES * 2];
  tide_cpu_cache* cpu = NULL;
  folder_make();
  T_OK(tide_cpu_new(NULL, &cpu));
  T_LT(0, tide_monitor_path(path, sizeof path));
  if (strcmp(t_variant(), "removed") == 0) T_EQ(unlink(path), 0);
  else T_EQ(truncate(path, strcmp(t_variant(), "emptied") == 0 ? 0 : 5000), 0);
  T_OK(tide_monitor_update());
  T_EQ(look()->count, 1);
  T_EQ(look()->all[0].row.kind, TIDE_MONITOR_CPU);
  T_EQ(folder_count(NULL), 1);
  tide_cpu_free(cpu, NULL);
  tide_monitor_close();
  T_EQ(folder_count(NULL), 0);
  folder_remove();
}

// ---------------------------------------------------------------------------------------------------
// No room

// Exceeding the limit sends SIGXFSZ, which ends a process.
T_TEST(test_monitor_folder__a_limit_on_the_size_of_files) {
  const struct rlimit limit = { 4096, 4096 };
  folder_make();
  T_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  open_refused(folder, EFBIG);
  T_EQ(folder_count(NULL), 0);
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_cpu_new(NULL, &cpu));  // the same without a message
  tide_cpu_free(cpu, NULL);
  T_EQ(folder_count(NULL), 0);
  folder_remove();
}

T_TEST(test_monitor_folder__no_more_descriptors) {
  struct rlimit before;
  folder_make();
  T_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  T_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, before.rlim_max }), 0);
  open_refused(folder, EMFILE);
  T_STATUS(tide_monitor_read(folder, ignore_sight, NULL), TIDE_ERR_STATE);
  T_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  T_OK(tide_monitor_open(folder));
  tide_monitor_close();
  folder_remove();
}

// ---------------------------------------------------------------------------------------------------
// The user's own folders

T_TEST(test_monitor_folder__the_session_comes_first) {
  char path[PATH_BYTES * 2];
  char want[PATH_BYTES * 2];
  folder_make();
  T_EQ(unsetenv("TIDEMARK_MONITOR"), 0);
  T_EQ(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
  T_OK(tide_monitor_open(NULL));
  T_LT(0, tide_monitor_path(path, sizeof path));
  (void)snprintf(want, sizeof want, "%s/tidemark/", folder);
  T_EQ(strncmp(path, want, strlen(want)), 0);
  sights* const seen = look();  // in the folder itself there is none
  T_EQ(seen->count, 0);
  T_OK(tide_monitor_read(NULL, sight_add, seen));
  T_LE(1, seen->count);  // other processes of this user may be there
  tide_monitor_close();
  T_EQ(rmdir(want), 0);
  folder_remove();
}

T_TEST(test_monitor_folder__shared_memory_comes_second) {
  char path[PATH_BYTES * 2];
  char want[PATH_BYTES];
  if (access("/dev/shm", W_OK) != 0) t_skip("/dev/shm cannot be written");
  folder_make();
  T_EQ(chmod(folder, 0755), 0);  // not what a session has
  T_EQ(setenv("TIDEMARK_MONITOR", "1", 1), 0);
  T_EQ(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
  T_OK(tide_monitor_open(NULL));
  T_LT(0, tide_monitor_path(path, sizeof path));
  (void)snprintf(want, sizeof want, "/dev/shm/tidemark-%u/", (unsigned)geteuid());
  T_EQ(strncmp(path, want, strlen(want)), 0);
  tide_monitor_close();
  (void)rmdir(want);  // fails if another process uses it
  folder_remove();
}

// ---------------------------------------------------------------------------------------------------
// Containers

#define CLONE_NEWPID_FLAG 0x20000000

long syscall(long number, ...);  // beyond POSIX

// Process 1 of another PID namespace, which lives until it is killed.
static _Noreturn void contained_run(int ready) {
  tide_cpu_cache* cpu = NULL;
  T_OK(tide_cpu_new(NULL, &cpu));
  T_OK(tide_monitor_update());
  T_EQ(getpid(), 1);
  T_EQ(write(ready, "x", 1), 1);
  for (;;) (void)pause();
}

// Runs it, and kills it when `over` is closed.
static _Noreturn void container_run(int ready, int over) {
  char byte = 0;
  if (syscall(SYS_unshare, CLONE_NEWPID_FLAG) != 0) _exit(77);
  const pid_t inner = fork();
  if (inner == 0) contained_run(ready);
  T_EQ(close(ready), 0);
  T_EQ(read(over, &byte, 1), 0);
  T_EQ(kill(inner, SIGKILL), 0);
  T_EQ(waitpid(inner, NULL, 0), inner);
  _exit(0);
}

T_TEST(test_monitor_folder__a_process_of_another_namespace) {
  int ready[2];
  int over[2];
  char byte = 0;
  folder_make();
  T_EQ(pipe(ready), 0);
  T_EQ(pipe(over), 0);
  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) {
    T_EQ(close(over[1]), 0);
    container_run(ready[1], over[0]);
  }
  T_EQ(close(ready[1]), 0);
  if (read(ready[0], &byte, 1) != 1) {
    T_EQ(waitpid(child, NULL, 0), child);
    folder_remove();
    t_skip("this process may not make a PID namespace");
  }
  const sights* const seen = look();
  T_EQ(seen->count, 1);
  T_EQ(seen->all[0].process.pid, 1);
  T_CHECK(!seen->all[0].process.is_in_namespace);
  T_EQ(seen->all[0].row.kind, TIDE_MONITOR_CPU);
  T_EQ(folder_count(NULL), 1);
  T_EQ(close(over[1]), 0);
  T_EQ(waitpid(child, NULL, 0), child);
  T_EQ(look()->count, 0);
  T_EQ(folder_count(NULL), 0);
  folder_remove();
}

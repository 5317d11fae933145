// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All functions that write files, each with everything that may be in the way. A file that the user names is
// replaced whole or not at all; links are followed, devices and pipes are written to. A file that the library
// names itself never goes through a link, into a pipe, or over anything but a file of its own.
#define T_THREADS
#include <ftw.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "device/park.h"
#include "tidemark/tidemark.h"
#include "tool.h"

#define NOBODY 65534u
#define STRANGER 12345u
#define PATH_ROOM 300
#define SECONDS 60u  // for a call that hangs

static char folder[64];         // of this test
static char victim[PATH_ROOM];  // a file that only the named writers may change, and only through a link
static char failed[400];        // the names of the callers that did wrong

static const char* path_of(const char* name) {
  static char paths[4][PATH_ROOM];
  static unsigned next;
  char* const path = paths[next++ % 4];
  (void)snprintf(path, PATH_ROOM, "%s/%s", folder, name);
  return path;
}

static void file_put(const char* path, const char* text, mode_t mode) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  T_LE(0, file);
  T_EQ(write(file, text, strlen(text)), (ssize_t)strlen(text));
  T_EQ(fchmod(file, mode), 0);
  T_EQ(close(file), 0);
}

static void folder_begin(void) {
  (void)alarm(SECONDS);
  (void)snprintf(folder, sizeof folder, "/tmp/tidemark-files-XXXXXX");
  T_CHECK(mkdtemp(folder) != NULL);
  (void)snprintf(victim, sizeof victim, "%s-victim", folder);
  file_put(victim, "before", 0640);
}

static size_t folder_count(void) {
  size_t count = 0;
  DIR* const list = opendir(folder);
  T_CHECK(list != NULL);
  for (const struct dirent* it = NULL; (it = readdir(list)) != NULL;)
    count += strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0;
  T_EQ(closedir(list), 0);
  return count;
}

static int entry_remove(const char* path, const struct stat* about, int kind, struct FTW* at) {
  (void)about, (void)kind, (void)at;
  return remove(path);
}

static void folder_end(void) {
  T_EQ(nftw(folder, entry_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
  if (remove(victim) != 0) T_EQ(errno, ENOENT);
  (void)alarm(0);
}

static bool text_is(const char* path, const char* want) {
  char text[64] = "";
  const int file = open(path, O_RDONLY | O_NONBLOCK);
  if (file < 0) return false;
  const ssize_t got = read(file, text, sizeof text - 1);
  (void)close(file);
  return got >= 0 && strcmp(text, want) == 0;
}

// Both checks are called for each caller, so that all that fail are listed.
static void caller_expect(const char* caller, bool is_right) {
  const size_t used = strlen(failed);
  if (!is_right) (void)snprintf(failed + used, sizeof failed - used, " %s", caller);
}

static struct stat about_of(const char* path) {
  struct stat about;
  T_EQ(lstat(path, &about), 0);
  return about;
}

static bool is_unchanged(const char* path, const struct stat* before) {
  struct stat now;
  return lstat(path, &now) == 0 && now.st_ino == before->st_ino && now.st_mode == before->st_mode &&
         now.st_size == before->st_size && now.st_uid == before->st_uid &&
         memcmp(&now.st_mtim, &before->st_mtim, sizeof now.st_mtim) == 0;
}

// A device of the kernel: 3 swallows everything, 7 is full.
static void device_make(const char* path, unsigned minor_number) {
  const bool is_made = mknod(path, S_IFCHR | 0600, makedev(1, minor_number)) == 0;
  const int file = is_made ? open(path, O_WRONLY | O_NONBLOCK) : -1;
  if (file < 0) {
    folder_end();
    t_skip("this process may make no device here");
  }
  T_EQ(close(file), 0);
}

// From now on, the process is a user who owns the folder, and may not write to it.
static void folder_close(void) {
  if (geteuid() == 0) T_EQ(chown(folder, NOBODY, NOBODY), 0);
  T_EQ(chmod(folder, 0500), 0);
  if (geteuid() == 0) T_EQ(seteuid(NOBODY), 0);
}

static void folder_reopen(void) {
  T_EQ(seteuid(getuid()), 0);
  T_EQ(chmod(folder, 0700), 0);
  T_EQ(chown(folder, geteuid(), (gid_t)-1), 0);
}

static struct rlimit limit_set(rlim_t bytes) {
  struct rlimit before;
  T_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  T_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ bytes, before.rlim_max }), 0);
  return before;
}

// ---------------------------------------------------------------------------------------------------
// Those who write what the user names

typedef struct named_writer {
  const char* name;
  bool (*write)(const char* path);
} named_writer;

static tide_trace* trace_new(void) {
  static const tide_trace_entry entry = { .bytes = 512, .action = TIDE_ACTION_ALLOC };
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_trace_add_device(trace, 0));
  for (int i = 0; i < 50; i++) T_OK(tide_trace_add_entry(trace, &entry));
  return trace;
}

static bool save_trace(const char* path) {
  tide_trace* const trace = trace_new();
  const tide_status status = tide_trace_save(trace, path);
  tide_trace_free(trace);
  return status == TIDE_OK;
}

static bool save_snapshot(const char* path) {
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  T_OK(tide_machine_new_dry(NULL, &machine));
  T_OK(tide_device_new(machine, 0, NULL, &device));
  const tide_status status = tide_device_snapshot_to(device, path);
  tide_device_free(device);
  tide_machine_free(machine);
  return status == TIDE_OK;
}

static bool tool_save_trace(const char* path) {
  tide_trace* const trace = trace_new();
  const int status = tool_trace_write(trace, path, TIDE_FORMAT_JSON);
  tide_trace_free(trace);
  return status == TOOL_DONE;
}

static tide_status text_write(const void* what, const tide_sink* sink) {
  return sink->write(sink->user, what, strlen(what));
}

static bool tool_save(const char* path) {
  return tool_file_write(path, text_write, "more than ten bytes", NULL) == TOOL_DONE;
}

static const named_writer named_writers[] = {
  { "tide_trace_save", save_trace },
  { "tide_device_snapshot_to", save_snapshot },
  { "tool_trace_write", tool_save_trace },
  { "tool_file_write", tool_save },
};
#define NAMED_COUNT (sizeof named_writers / sizeof named_writers[0])

// Calls `run` in a new folder for each of them; it returns whether the writer did right.
static void named_all(bool (*run)(const named_writer* writer, const char* path)) {
  for (size_t i = 0; i < NAMED_COUNT; i++) {
    folder_begin();
    caller_expect(named_writers[i].name, run(&named_writers[i], path_of("x.json")));
    folder_end();
  }
  T_STR_EQ(failed, "");
}

static bool is_replaced(const char* path, mode_t mode) {
  const struct stat about = about_of(path);
  return S_ISREG(about.st_mode) && (about.st_mode & 07777) == mode && about.st_size > 10 &&
         !text_is(path, "before") && folder_count() == 1;
}

static bool replace_file(const named_writer* writer, const char* path) {
  file_put(path, "before", 0640);
  return writer->write(path) && is_replaced(path, 0640);
}

T_TEST(test_written_files__a_file_is_replaced_and_keeps_its_rights) { named_all(replace_file); }

static bool make_file(const named_writer* writer, const char* path) {
  const mode_t mask = umask(027);
  const bool is_written = writer->write(path);
  (void)umask(mask);
  return is_written && is_replaced(path, 0640);
}

T_TEST(test_written_files__a_new_file_has_the_rights_of_the_umask) { named_all(make_file); }

static bool keep_owner(const named_writer* writer, const char* path) {
  file_put(path, "before", 0660);
  T_EQ(chown(path, STRANGER, STRANGER), 0);
  return writer->write(path) && is_replaced(path, 0660) && about_of(path).st_uid == STRANGER &&
         about_of(path).st_gid == STRANGER;
}

T_TEST(test_written_files__a_file_keeps_its_owner_and_group) {
  if (geteuid() != 0) t_skip("only root can give files away");
  named_all(keep_owner);
}

static bool follow_link(const named_writer* writer, const char* path) {
  T_EQ(symlink(victim, path), 0);
  return writer->write(path) && S_ISLNK(about_of(path).st_mode) && is_replaced(victim, 0640);
}

T_TEST(test_written_files__a_link_is_followed) { named_all(follow_link); }

static bool follow_to_nothing(const named_writer* writer, const char* path) {
  T_EQ(unlink(victim), 0);
  T_EQ(symlink("second", path), 0);
  T_EQ(symlink(victim, path_of("second")), 0);
  const bool is_written = writer->write(path) && S_ISLNK(about_of(path).st_mode) && folder_count() == 2;
  return is_written && access(victim, F_OK) == 0 && S_ISREG(about_of(victim).st_mode);
}

T_TEST(test_written_files__a_link_to_nothing_is_followed) { named_all(follow_to_nothing); }

static bool follow_in_circles(const named_writer* writer, const char* path) {
  T_EQ(symlink("x.json", path), 0);
  return !writer->write(path) && folder_count() == 1;
}

T_TEST(test_written_files__links_in_a_circle_end) { named_all(follow_in_circles); }

// As the kernel does it: nobody follows what another user put into a folder like /tmp.
static bool leave_planted_link(const named_writer* writer, const char* path) {
  T_EQ(chown(folder, NOBODY, NOBODY), 0);
  T_EQ(chmod(folder, 01777), 0);
  T_EQ(symlink(victim, path), 0);
  T_EQ(lchown(path, STRANGER, STRANGER), 0);
  const struct stat before = about_of(victim);
  bool is_left = !writer->write(path) && is_unchanged(victim, &before) && folder_count() == 1;
  T_EQ(unlink(victim), 0);
  is_left = is_left && !writer->write(path) && access(victim, F_OK) != 0 && folder_count() == 1;
  return is_left;
}

T_TEST(test_written_files__a_link_that_another_user_planted_is_not_followed) {
  if (geteuid() != 0) t_skip("only root can make a link of another user");
  named_all(leave_planted_link);
}

// Another process reads all that comes through a pipe; it fails if that is too little.
static pid_t reader_new(const char* path) {
  const pid_t child = fork();
  T_LE(0, child);
  if (child != 0) return child;
  char text[4096];
  ssize_t bytes = 0;
  const int file = open(path, O_RDONLY);
  for (ssize_t got = 1; got > 0; bytes += got) got = read(file, text, sizeof text);
  _exit(bytes > 10 ? 0 : 1);
}

static bool write_to_pipe(const named_writer* writer, const char* path) {
  int status = 0;
  T_EQ(mkfifo(path, 0600), 0);
  const pid_t reader = reader_new(path);
  const bool is_written = writer->write(path);
  if (!is_written || !S_ISFIFO(about_of(path).st_mode)) (void)kill(reader, SIGKILL);
  T_EQ(waitpid(reader, &status, 0), reader);
  return is_written && status == 0 && folder_count() == 1;
}

T_TEST(test_written_files__a_pipe_is_written_to) { named_all(write_to_pipe); }

static bool write_to_device(const named_writer* writer, const char* path) {
  device_make(path, 3);
  const struct stat before = about_of(path);
  if (!writer->write(path) || about_of(path).st_ino != before.st_ino) return false;
  T_EQ(unlink(path), 0);
  device_make(path, 7);
  return !writer->write(path) && S_ISCHR(about_of(path).st_mode) && folder_count() == 1;
}

T_TEST(test_written_files__a_device_is_written_to) { named_all(write_to_device); }

static bool leave_folder(const named_writer* writer, const char* path) {
  T_EQ(mkdir(path, 0700), 0);
  return !writer->write(path) && S_ISDIR(about_of(path).st_mode) && folder_count() == 1;
}

T_TEST(test_written_files__a_folder_is_refused) { named_all(leave_folder); }

static bool leave_closed_folder(const named_writer* writer, const char* path) {
  file_put(path, "before", 0600);
  folder_close();
  const bool is_written = writer->write(path);
  folder_reopen();
  return !is_written && text_is(path, "before") && folder_count() == 1;
}

T_TEST(test_written_files__a_folder_that_cannot_be_written_keeps_the_old_file) {
  named_all(leave_closed_folder);
}

static bool leave_full_disk(const named_writer* writer, const char* path) {
  file_put(path, "before", 0640);
  const struct rlimit before = limit_set(10);
  const bool is_written = writer->write(path);
  T_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  return !is_written && text_is(path, "before") && folder_count() == 1;
}

T_TEST(test_written_files__a_full_disk_keeps_the_old_file) {
  T_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  named_all(leave_full_disk);
}

static bool longest_name(const named_writer* writer, const char* path) {
  char name[256];
  (void)path;
  memset(name, 'x', sizeof name);
  memcpy(name + sizeof name - sizeof ".json", ".json", sizeof ".json");
  file_put(path_of(name), "before", 0640);
  return writer->write(path_of(name)) && is_replaced(path_of(name), 0640);
}

T_TEST(test_written_files__a_name_may_have_the_most_bytes) { named_all(longest_name); }

// ---------------------------------------------------------------------------------------------------
// Those who write or read what they name themselves

typedef struct own_writer {
  const char* name;
  const char* (*place)(void);  // the path of its file, in the folder
  bool (*run)(void);           // returns whether it has what it wanted; leaves nothing behind
  bool finds_another_name;
} own_writer;

static const char* plain_place(void) { return path_of("own"); }

// The name has the number of the process and more, so a page is made to see it.
static const char* page_place(void) {
  static char path[PATH_ROOM];
  T_OK(tide_monitor_open(folder));
  T_LT(0, tide_monitor_path(path, sizeof path));
  tide_monitor_close();
  return path;
}

static bool page_run(void) {
  const bool is_open = tide_monitor_open(folder) == TIDE_OK;
  if (is_open) tide_monitor_close();
  return is_open;
}

static bool sight_ignore(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  (void)process;
  (void)row;
  *(bool*)user = true;
  return true;
}

static bool page_read(void) {
  bool has_seen = false;
  T_ANY(tide_monitor_read(folder, sight_ignore, &has_seen));
  return has_seen;
}

static bool ledger_make(void) {
  const bool is_made = tide_quota_make(plain_place(), 100 * MIB) == TIDE_OK;
  if (is_made) T_OK(tide_quota_remove(plain_place()));
  return is_made;
}

static bool ledger_join(void) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  tide_quota* quota = NULL;
  options.ledger = plain_place();
  options.total_bytes = 100 * MIB;
  options.wait_ns = 0;
  if (tide_quota_join(&options, &quota) != TIDE_OK) return false;
  tide_quota_leave(quota);
  T_OK(tide_quota_remove(plain_place()));
  return true;
}

static bool ledger_remove(void) { return tide_quota_remove(plain_place()) == TIDE_OK; }

static bool ledger_set(void) { return tide_quota_set_total(plain_place(), 200 * MIB) == TIDE_OK; }

static bool ledger_ignore(void* user, const tide_quota_ledger* ledger, const tide_quota_member* member) {
  (void)user;
  (void)ledger;
  (void)member;
  return true;
}

static bool ledger_read(void) { return tide_quota_read(plain_place(), ledger_ignore, NULL) == TIDE_OK; }

// A backup has no name. So what is in its way is in the place of its folder.
static tide_machine* parked_machine;
static tide_device_cache* parked_device;
static tide_block parked_block;

static const char* backup_place(void) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = TIDE_POLICY_TIDE;
  options.plain_pools = false;
  T_OK(tide_machine_new_host(NULL, &parked_machine));
  T_OK(tide_device_new(parked_machine, 0, &options, &parked_device));
  parked_block = take_tagged(parked_device, tagged(parked_device, "own"), NULL, 2 * MIB);
  return plain_place();
}

static bool backup_run_in(const char* where) {
  tide_park_options options = park_how(TIDE_BACKUP_FILE);
  options.folder = where;
  const bool is_parked = tide_device_park(parked_device, "own", &options, NULL) == TIDE_OK;
  if (is_parked) (void)unpark(parked_device, "own");
  T_OK(tide_device_release(parked_device, parked_block));
  tide_device_free(parked_device);
  tide_machine_free(parked_machine);
  return is_parked;
}

static bool backup_run(void) { return backup_run_in(plain_place()); }
static bool backup_run_inside(void) { return backup_run_in(folder); }

static const own_writer own_writers[] = {
  { "tide_monitor_open", page_place, page_run, true },
  { "tide_monitor_read", page_place, page_read, false },
  { "tide_quota_make", plain_place, ledger_make, false },
  { "tide_quota_join", plain_place, ledger_join, false },
  { "tide_quota_remove", plain_place, ledger_remove, false },
  { "tide_quota_set_total", plain_place, ledger_set, false },
  { "tide_quota_read", plain_place, ledger_read, false },
  { "tide_device_park", backup_place, backup_run, false },
};
#define OWN_COUNT (sizeof own_writers / sizeof own_writers[0])

static const char* const planted[] = { "a link",        "a link to nothing", "a pipe", "a device",
                                       "a shared file", "a link to a pipe",  NULL };

static void plant(const char* what, const char* path) {
  const bool is_to_pipe = strcmp(what, "a link to a pipe") == 0;
  if (is_to_pipe || strcmp(what, "a link to nothing") == 0) T_EQ(unlink(victim), 0);
  if (is_to_pipe) T_EQ(mkfifo(victim, 0600), 0);
  if (strcmp(what, "a pipe") == 0) T_EQ(mkfifo(path, 0600), 0);
  else if (strcmp(what, "a device") == 0) device_make(path, 3);
  else if (strcmp(what, "a shared file") == 0) file_put(path, "before", 0640);
  else T_EQ(symlink(victim, path), 0);
}

static bool leave_planted(const own_writer* writer, const char* path) {
  struct stat target = { .st_ino = 0 };
  plant(t_variant(), path);
  const struct stat before = about_of(path);
  const bool has_target = lstat(victim, &target) == 0;
  const bool is_done = writer->run();
  return is_done == writer->finds_another_name && is_unchanged(path, &before) && folder_count() == 1 &&
         (has_target ? is_unchanged(victim, &target) : access(victim, F_OK) != 0);
}

T_TEST_OVER(test_written_files__what_others_planted_stays, planted) {
  for (size_t i = 0; i < OWN_COUNT; i++) {
    folder_begin();
    char path[PATH_ROOM];
    (void)snprintf(path, sizeof path, "%s", own_writers[i].place());
    caller_expect(own_writers[i].name, leave_planted(&own_writers[i], path));
    folder_end();
  }
  T_STR_EQ(failed, "");
}

// Those who make files: in a folder that is closed, and on a disk that is full.
static const own_writer makers[] = {
  { "tide_monitor_open", plain_place, page_run, false },
  { "tide_quota_make", plain_place, ledger_make, false },
  { "tide_quota_join", plain_place, ledger_join, false },
  { "tide_device_park", backup_place, backup_run_inside, false },
};
#define MAKER_COUNT (sizeof makers / sizeof makers[0])

T_TEST(test_written_files__nothing_is_left_in_a_closed_folder) {
  for (size_t i = 0; i < MAKER_COUNT; i++) {
    folder_begin();
    (void)makers[i].place();
    folder_close();
    const bool is_done = makers[i].run();
    folder_reopen();
    caller_expect(makers[i].name, !is_done && folder_count() == 0);
    folder_end();
  }
  T_STR_EQ(failed, "");
}

static const char* const maker_names[] = { "tide_monitor_open", "tide_quota_make", "tide_quota_join",
                                           "tide_device_park", NULL };

// The kernel ends a process that exceeds this limit, and a library must not bring that about.
T_TEST_OVER(test_written_files__a_full_disk_ends_no_process, maker_names) {
  size_t i = 0;
  while (strcmp(makers[i].name, t_variant()) != 0) i++;
  folder_begin();
  (void)makers[i].place();
  const struct rlimit before = limit_set(100);
  const bool is_done = makers[i].run();
  T_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  T_CHECK(!is_done);
  if (makers[i].run == ledger_join) T_CHECK(ledger_join());  // an empty ledger, which the next one fills
  T_EQ(folder_count(), 0);
  folder_end();
}

// Without anything in the way they all have what they want, so that the tests above test something.
T_TEST(test_written_files__makers_make) {
  for (size_t i = 0; i < MAKER_COUNT; i++) {
    folder_begin();
    (void)makers[i].place();
    caller_expect(makers[i].name, makers[i].run() && folder_count() == 0);
    folder_end();
  }
  T_STR_EQ(failed, "");
}

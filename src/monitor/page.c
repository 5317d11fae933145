// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where the page of a process lies, how it is made and removed, and how slots are written and read.
#include "monitor/page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/sys.h"

#define SLOT_TRIES 20000  // most of them are 20 us long
#define NAME_TRIES 8      // copies of the library in one process

// ---------------------------------------------------------------------------------------------------
// Folders

// The folder that the environment names, or NULL.
static const char* folder_named(void) {
  const char* const value = tide__sys_environment("TIDEMARK_MONITOR");
  return value != NULL && *value == '/' ? value : NULL;
}

// The folder of the user's session, if it is the user's own: root may have the variable of another user.
static bool folder_of_session(char out[TIDE__PAGE_PATH]) {
  char session[TIDE__PAGE_PATH];
  int folder = -1;
  const char* const named = tide__sys_environment("XDG_RUNTIME_DIR");
  int length = 0;
  if (named != NULL && *named == '/') length = snprintf(session, sizeof session, "%s", named);
  else length = snprintf(session, sizeof session, "/run/user/%u", tide__sys_user());
  if (length < 0 || (size_t)length + sizeof "/tidemark" > sizeof session) return false;
  if (tide__sys_folder_open(session, false, &folder) != 0) return false;
  tide__sys_file_close(folder);
  memcpy(out, session, (size_t)length);
  memcpy(out + length, "/tidemark", sizeof "/tidemark");
  return true;
}

uint32_t tide__page_folders(const char* folder, char out[TIDE__PAGE_FOLDERS][TIDE__PAGE_PATH]) {
  uint32_t count = 0;
  if (folder == NULL) folder = folder_named();
  if (folder != NULL) {
    (void)snprintf(out[0], TIDE__PAGE_PATH, "%s", folder);
    return 1;
  }
  if (folder_of_session(out[0])) count++;
  (void)snprintf(out[count], TIDE__PAGE_PATH, "/dev/shm/tidemark-%u", tide__sys_user());
  return count + 1;
}

tide_status tide__page_folder_check(const char* call, const char* folder) {
  if (folder == NULL) folder = folder_named();
  if (folder == NULL) return TIDE_OK;
  TIDE_REQUIRE(*folder == '/', TIDE_ERR_ARGUMENT, "%s: the path of the folder '%s' does not begin with '/'",
               call, folder);
  TIDE_REQUIRE(strlen(folder) < TIDE__PAGE_PATH, TIDE_ERR_ARGUMENT, "%s: the path of the folder is too long",
               call);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Making a page

static tide__page_head head_now(void) {
  tide__page_head head = { .magic = TIDE__PAGE_MAGIC,
                           .version = TIDE__PAGE_VERSION,
                           .row_bytes = sizeof(tide_monitor_row),
                           .pid = (uint64_t)tide__sys_process(),
                           .start_ticks = tide__sys_process_start(tide__sys_process()),
                           .space = tide__sys_process_space(),
                           .opened_ns = tide__sys_wall_clock_ns() };
  tide__sys_command(head.command, sizeof head.command);
  (void)snprintf(head.library, sizeof head.library, "%s", tide_version());
  return head;
}

// A page of this name without a lock was left by a program that this process ran before exec().
static bool name_is_stale(int folder, const char* name) {
  int file = -1;
  if (tide__sys_page_open(folder, name, &file) != 0) return false;
  const bool is_stale = !tide__sys_file_is_locked(file, 0, TIDE__PAGE_BYTES);
  tide__sys_file_close(file);
  return is_stale;
}

// Other copies of the library in this process have names with other numbers.
static int file_make(int folder, const tide__page_head* head, tide__page* page, int* out) {
  int error = EEXIST;
  for (int i = 0; i < NAME_TRIES && error == EEXIST; i++) {
    (void)snprintf(page->name, sizeof page->name, "%llu-%llu-%llx-%d", (unsigned long long)head->pid,
                   (unsigned long long)head->start_ticks, (unsigned long long)head->space, i);
    error = tide__sys_page_new(folder, page->name, TIDE__PAGE_BYTES, out);
    if (error != EEXIST || !name_is_stale(folder, page->name)) continue;
    (void)tide__sys_folder_remove(folder, page->name);
    error = tide__sys_page_new(folder, page->name, TIDE__PAGE_BYTES, out);
  }
  return error;
}

// Locks the page, and writes the magic number when all else is there.
static int file_begin(int file, const tide__page_head* head) {
  const size_t magic_bytes = sizeof head->magic;
  int error = tide__sys_file_lock(file, 0, TIDE__PAGE_BYTES);
  if (error == 0) {
    error =
        tide__sys_page_put(file, magic_bytes, (const char*)head + magic_bytes, sizeof *head - magic_bytes);
  }
  return error == 0 ? tide__sys_page_put(file, 0, &head->magic, magic_bytes) : error;
}

static int page_create_in(const char* path, const tide__page_head* head, tide__page* page) {
  int folder = -1;
  int file = -1;
  int error = tide__sys_folder_open(path, true, &folder);
  if (error != 0) return error;
  error = file_make(folder, head, page, &file);
  if (error == 0) {
    error = file_begin(file, head);
    if (error != 0) (void)tide__sys_folder_remove(folder, page->name);
    if (error != 0) tide__sys_file_close(file);
    else page->file = file;
  }
  tide__sys_file_close(folder);
  return error;
}

int tide__page_create(const char* folder, tide__page* page) {
  char folders[TIDE__PAGE_FOLDERS][TIDE__PAGE_PATH];
  const tide__page_head head = head_now();
  const uint32_t count = tide__page_folders(folder, folders);
  int error = ENOENT;
  for (uint32_t i = 0; i < count && error != 0; i++) {
    memcpy(page->folder, folders[i], sizeof page->folder);
    error = page_create_in(folders[i], &head, page);
  }
  return error;
}

void tide__page_remove(tide__page* page) {
  int folder = -1;
  if (page->file < 0) return;
  if (tide__sys_folder_open(page->folder, false, &folder) == 0) {
    if (tide__sys_page_is_whole(page->file, 0)) (void)tide__sys_folder_remove(folder, page->name);
    tide__sys_file_close(folder);
  }
  tide__sys_file_close(page->file);
  page->file = -1;
}

// ---------------------------------------------------------------------------------------------------
// Slots: the kernel orders the system calls on one file, so no fences are needed

int tide__slot_put(int file, uint64_t offset, uint64_t* sequence, const void* values, size_t bytes) {
  const uint64_t busy = *sequence | 1;
  int error = tide__sys_page_put(file, offset, &busy, sizeof busy);
  if (error != 0) return error;
  *sequence = busy;
  error = tide__sys_page_put(file, offset + sizeof busy, values, bytes);
  if (error != 0) return error;
  const uint64_t done = busy + 1;
  error = tide__sys_page_put(file, offset, &done, sizeof done);
  if (error == 0) *sequence = done;
  return error;
}

int tide__slot_get(int file, uint64_t offset, void* values, size_t bytes) {
  for (uint32_t times = 0; times < SLOT_TRIES; times++) {
    uint64_t before = 0;
    uint64_t after = 0;
    int error = tide__sys_page_get(file, offset, &before, sizeof before);
    if (error == 0) error = tide__sys_page_get(file, offset + sizeof before, values, bytes);
    if (error == 0) error = tide__sys_page_get(file, offset, &after, sizeof after);
    if (error != 0) return error;
    if (before == after && before % 2 == 0) return 0;
    tide__wait_a_moment(times);
  }
  return EBUSY;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reading the pages of all processes. The names are gathered first, so that processes come in the order of
// their numbers, from whichever folder. A page is removed if its process is dead: the kernel dropped its
// lock, or its number belongs to another process now.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/sys.h"
#include "monitor/page.h"

#define UNFINISHED_NS UINT64_C(60000000000)  // a page without a head that is older was given up

// A file that may be a page.
typedef struct page_name {
  uint32_t folder;
  uint64_t pid;
  char name[96];
} page_name;

// One call of tide_monitor_read().
typedef struct page_reading {
  uint32_t folder_count;
  uint32_t folder;  // that is listed now
  int folders[TIDE__PAGE_FOLDERS];
  page_name* names;  // owned
  size_t name_count;
  size_t name_capacity;
  bool has_no_memory;
  tide_monitor_process process;
  tide_monitor_row rows[TIDE_MONITOR_ROWS];  // of that process
} page_reading;

// ---------------------------------------------------------------------------------------------------
// Names

static bool names_grow(page_reading* reading) {
  void* names = reading->names;
  const bool has_room = tide__heap_grow(tide__heap_or_system(NULL), &names, &reading->name_capacity,
                                        reading->name_count + 1, sizeof *reading->names);
  reading->names = names;
  return has_room;
}

static bool name_take(void* user, const char* name) {
  page_reading* const reading = user;
  page_name* it = NULL;
  if (!isdigit((unsigned char)*name) || strlen(name) >= sizeof it->name) return true;
  reading->has_no_memory = !names_grow(reading);
  if (reading->has_no_memory) return false;
  it = &reading->names[reading->name_count++];
  it->folder = reading->folder;
  it->pid = strtoull(name, NULL, 10);
  memcpy(it->name, name, strlen(name) + 1);
  return true;
}

// The last part of a name.
static uint32_t name_copy(const char* name) {
  const char* const dash = strrchr(name, '-');
  return dash != NULL ? (uint32_t)strtoul(dash + 1, NULL, 10) : 0;
}

static int name_compare(const void* a, const void* b) {
  const page_name* const x = a;
  const page_name* const y = b;
  if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
  return strcmp(x->name, y->name);
}

// ---------------------------------------------------------------------------------------------------
// A page

// The processes of other PID namespaces are known by their locks alone.
static bool page_is_dead(int file, const tide__page_head* head) {
  if (!tide__sys_file_is_locked(file, 0, TIDE__PAGE_BYTES)) return true;
  if (head->space == 0 || head->space != tide__sys_process_space()) return false;
  return tide__sys_process_start((int64_t)head->pid) != head->start_ticks;
}

// A page without a head is about to get one, or its process died before.
static bool page_is_given_up(int file) {
  uint64_t age_ns = 0;
  if (tide__sys_file_is_locked(file, 0, TIDE__PAGE_BYTES)) return false;
  return tide__sys_page_age(file, &age_ns) == 0 && age_ns > UNFINISHED_NS;
}

static bool row_is_sound(tide_monitor_row* row) {
  row->policy[sizeof row->policy - 1] = '\0';
  row->machine[sizeof row->machine - 1] = '\0';
  row->label[sizeof row->label - 1] = '\0';
  return row->serial != 0 && *tide_monitor_kind_name((tide_monitor_kind)row->kind) != '\0' &&
         row->point_count <= TIDE_MONITOR_POINTS;
}

// A slot whose writer is stopped in the middle is left out.
static void page_load(page_reading* reading, int file, const tide__page_head* head) {
  tide__page_state state = { .updated_ns = 0 };
  uint32_t count = 0;
  if (tide__slot_get(file, TIDE__PAGE_STATE_AT, &state, sizeof state) != 0) {
    state = (tide__page_state){ .updated_ns = 0 };
  }
  for (uint64_t i = 0; i < TIDE_MONITOR_ROWS; i++) {
    tide_monitor_row* const row = &reading->rows[count];
    const uint64_t offset = TIDE__PAGE_ROWS_AT + i * TIDE__PAGE_ROW_STRIDE;
    if (tide__slot_get(file, offset, row, sizeof *row) == 0 && row_is_sound(row)) count++;
  }
  tide_monitor_process* const process = &reading->process;
  *process = (tide_monitor_process){ .pid = (int64_t)head->pid,
                                     .is_in_namespace = head->space == tide__sys_process_space(),
                                     .pid_namespace = head->space,
                                     .row_count = count,
                                     .left_out = state.left_out,
                                     .opened_ns = head->opened_ns,
                                     .updated_ns = state.updated_ns };
  memcpy(process->command, head->command, sizeof process->command - 1);
  memcpy(process->version, head->library, sizeof process->version - 1);
}

// Reads a page into `reading`; false: it has none to show.
static bool page_read(page_reading* reading, const page_name* it) {
  tide__page_head head = { .magic = 0 };
  int file = -1;
  if (tide__sys_page_open(reading->folders[it->folder], it->name, &file) != 0) return false;
  const int error = tide__sys_page_get(file, 0, &head, sizeof head);
  const bool has_head = error == 0 && head.magic == TIDE__PAGE_MAGIC;
  const bool is_dead = has_head ? page_is_dead(file, &head) : page_is_given_up(file);
  const bool is_known = has_head && !is_dead && head.version == TIDE__PAGE_VERSION &&
                        head.row_bytes == sizeof(tide_monitor_row);
  if (is_dead) (void)tide__sys_folder_remove(reading->folders[it->folder], it->name);
  if (is_known) page_load(reading, file, &head);
  if (is_known) reading->process.copy = name_copy(it->name);
  tide__sys_file_close(file);
  return is_known;
}

// ---------------------------------------------------------------------------------------------------
// All pages

// Gathers the names in a folder. One that does not exist has none.
static tide_status folder_list(page_reading* reading, const char* path) {
  int* const folder = &reading->folders[reading->folder_count];
  int error = tide__sys_folder_open(path, false, folder);
  if (error == ENOENT) return TIDE_OK;
  if (error == 0) {
    reading->folder = reading->folder_count++;
    error = tide__sys_folder_visit(*folder, name_take, reading);
  }
  TIDE_REQUIRE(!reading->has_no_memory, TIDE_ERR_NO_MEMORY, "monitor_read: no memory for the names of pages");
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error,
                          "monitor_read: %s: %s; the folder must belong to this user, be closed to others "
                          "(mode 0700), and be no link",
                          path, strerror(error));
}

static void pages_show(page_reading* reading, tide_monitor_fn function, void* user) {
  if (reading->name_count == 0) return;
  qsort(reading->names, reading->name_count, sizeof *reading->names, name_compare);
  for (size_t i = 0; i < reading->name_count; i++) {
    if (!page_read(reading, &reading->names[i])) continue;
    const uint32_t count = reading->process.row_count;
    bool goes_on = count > 0 || function(user, &reading->process, NULL);
    for (uint32_t k = 0; k < count && goes_on; k++)
      goes_on = function(user, &reading->process, &reading->rows[k]);
    if (!goes_on) return;
  }
}

// One folder that is refused does not hide the others.
tide_status tide_monitor_read(const char* folder, tide_monitor_fn function, void* user) {
  char paths[TIDE__PAGE_FOLDERS][TIDE__PAGE_PATH];
  const tide_heap* const heap = tide__heap_or_system(NULL);
  TIDE_REQUIRE(function != NULL, TIDE_ERR_ARGUMENT, "monitor_read: no function");
  TIDE_TRY(tide__page_folder_check("monitor_read", folder));
  page_reading* const reading = tide__heap_alloc(heap, 1, sizeof *reading);
  TIDE_REQUIRE(reading != NULL, TIDE_ERR_NO_MEMORY, "monitor_read: no memory for a page");
  tide_status status = TIDE_OK;
  const uint32_t count = tide__page_folders(folder, paths);
  for (uint32_t i = 0; i < count; i++) {
    const tide_status listed = folder_list(reading, paths[i]);
    if (listed != TIDE_OK) status = listed;
  }
  pages_show(reading, function, user);
  for (uint32_t i = 0; i < reading->folder_count; i++) tide__sys_file_close(reading->folders[i]);
  tide__heap_release(heap, reading->names, reading->name_capacity, sizeof *reading->names);
  tide__heap_release(heap, reading, 1, sizeof *reading);
  return status;
}

const char* tide_monitor_kind_name(tide_monitor_kind kind) {
  switch (kind) {
    case TIDE_MONITOR_DEVICE: return "device";
    case TIDE_MONITOR_PINNED: return "pinned";
    case TIDE_MONITOR_CPU: return "cpu";
  }
  return "";
}

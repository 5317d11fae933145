// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Publishing. One helper thread makes the page and writes it: once a second with a new point of each history,
// and whenever a call asks for it. Only this thread touches the file, because it blocks all signals: writing
// beyond a limit on the size of files sends one.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/sys.h"
#include "monitor/monitored.h"
#include "monitor/page.h"

#define TICK_NS UINT64_C(1000000000)

// A row of the page, as it was written last.
typedef struct page_row {
  uint64_t sequence;  // of its slot
  tide_monitor_row row;
  bool is_seen;  // its cache was met in this round
} page_row;

// What the helper thread works with; nobody else touches it while there is one.
static struct {
  tide__page page;
  const char* folder;  // borrowed until the helper has made the page, then `kept`
  char kept[TIDE__PAGE_PATH];
  uint64_t sequence;  // of the first slot
  page_row rows[TIDE_MONITOR_ROWS];
} image = { .page = { .file = -1 } };

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;  // held by every call below
static bool is_open;                                         // shared under control, like all here
static bool has_exit_handler;
static pthread_t helper;
static tide__atomic_u32 asked;      // rounds that were asked for; wakes the helper
static tide__atomic_u32 answered;   // of these, how many are done; wakes the callers
static tide__atomic_u32 is_ending;  // the helper should end
static tide__atomic_u32 failure;    // the errno of the last round
static tide__mutex path_lock = TIDE__MUTEX_INIT(TIDE__RANK_LEAF);
static char path[TIDE__PAGE_PATH + sizeof image.page.name];  // of the page; shared under path_lock

// ---------------------------------------------------------------------------------------------------
// A round of the helper

// The row of a cache, or a free one; NULL: there is no room.
static page_row* row_find(uint64_t serial) {
  page_row* free_row = NULL;
  for (int i = 0; i < TIDE_MONITOR_ROWS; i++) {
    if (image.rows[i].row.serial == serial) return &image.rows[i];
    if (image.rows[i].row.serial == 0 && free_row == NULL) free_row = &image.rows[i];
  }
  return free_row;
}

static uint64_t at_least_zero(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static void point_add(tide_monitor_row* row) {
  if (row->point_count == TIDE_MONITOR_POINTS) {
    memmove(&row->points[0], &row->points[1], (TIDE_MONITOR_POINTS - 1) * sizeof row->points[0]);
    row->point_count--;
  }
  row->points[row->point_count++] = (tide_monitor_point){ at_least_zero(row->reserved_bytes.current),
                                                          at_least_zero(row->allocated_bytes.current) };
}

static int row_write(page_row* it) {
  const uint64_t offset = TIDE__PAGE_ROWS_AT + (uint64_t)(it - image.rows) * TIDE__PAGE_ROW_STRIDE;
  return tide__slot_put(image.page.file, offset, &it->sequence, &it->row, sizeof it->row);
}

// Shows one cache. The history stays with its row.
static int cache_publish(tide__monitored* entry, const char* label, page_row* it, bool adds_point) {
  tide_monitor_row now = { .serial = entry->serial };
  if (!entry->fill(entry->cache, &now)) return 0;
  memcpy(now.label, label, sizeof now.label);
  now.updated_ns = tide__sys_wall_clock_ns();
  if (it->row.serial == now.serial) {
    now.point_count = it->row.point_count;
    memcpy(now.points, it->row.points, sizeof now.points);
  }
  if (adds_point) point_add(&now);
  it->row = now;
  it->is_seen = true;
  return row_write(it);
}

// Shows all caches, the oldest first, as far as there is room. Returns how many have none.
static uint32_t caches_publish(bool adds_point, int* error) {
  char label[TIDE_MONITOR_LABEL];
  uint32_t left_out = 0;
  tide__monitored* entry = NULL;
  for (int i = 0; i < TIDE_MONITOR_ROWS; i++) image.rows[i].is_seen = false;
  for (uint64_t serial = 0; (entry = tide__monitored_hold_after(serial, label)) != NULL;) {
    serial = entry->serial;
    page_row* const it = row_find(serial);
    const int failed = it != NULL ? cache_publish(entry, label, it, adds_point) : 0;
    tide__monitored_drop(entry);
    if (it == NULL) left_out++;
    if (failed != 0) *error = failed;
  }
  return left_out;
}

// Empties the rows of caches that are gone. Returns whether there were any.
static bool rows_sweep(int* error) {
  bool has_swept = false;
  for (int i = 0; i < TIDE_MONITOR_ROWS; i++) {
    page_row* const it = &image.rows[i];
    if (it->row.serial == 0 || it->is_seen) continue;
    it->row = (tide_monitor_row){ .serial = 0 };
    const int failed = row_write(it);
    if (failed != 0) *error = failed;
    has_swept = true;
  }
  return has_swept;
}

// A page that somebody removed or truncated is made again; rows are written anew.
static int page_ensure(void) {
  if (image.page.file >= 0 && tide__sys_page_is_whole(image.page.file, TIDE__PAGE_BYTES)) return 0;
  tide__page_remove(&image.page);
  image.sequence = 0;
  for (int i = 0; i < TIDE_MONITOR_ROWS; i++) image.rows[i].sequence = 0;
  const int error = tide__page_create(image.folder, &image.page);
  tide__mutex_lock(&path_lock);
  (void)snprintf(path, sizeof path, "%s/%s", image.page.folder, image.page.name);
  tide__mutex_unlock(&path_lock);
  return error;
}

// A row that has become free serves a cache that had none.
static int page_publish(bool adds_point) {
  tide__page_state state = { .left_out = 0 };
  int error = page_ensure();
  if (error != 0) return error;
  state.left_out = caches_publish(adds_point, &error);
  if (rows_sweep(&error) && state.left_out > 0) state.left_out = caches_publish(false, &error);
  state.updated_ns = tide__sys_wall_clock_ns();
  const int failed =
      tide__slot_put(image.page.file, TIDE__PAGE_STATE_AT, &image.sequence, &state, sizeof state);
  return failed != 0 ? failed : error;
}

// ---------------------------------------------------------------------------------------------------
// The helper

static void helper_answer(uint32_t round, int error) {
  tide__store_relaxed(&failure, (uint32_t)error);
  tide__store_release(&answered, round);  // pairs with helper_wait
  tide__sys_futex_wake(&answered);
}

// If the first round fails, there is no second one.
static void* helper_run(void* argument) {
  (void)argument;
  uint64_t due_ns = tide__sys_clock_ns();
  for (bool is_first = true;; is_first = false) {
    const uint32_t round = tide__load_acquire(&asked);  // pairs with helper_ask
    const uint64_t now_ns = tide__sys_clock_ns();
    const bool is_due = now_ns >= due_ns;
    if (is_due) due_ns = now_ns + TICK_NS;
    if (tide__load_relaxed(&is_ending) != 0) break;
    if (is_due || round != tide__load_relaxed(&answered)) {
      const int error = page_publish(is_due);
      helper_answer(round, error);
      if (is_first && error != 0) break;
    }
    const uint64_t after_ns = tide__sys_clock_ns();
    if (after_ns < due_ns) tide__sys_futex_wait_for(&asked, round, due_ns - after_ns);
  }
  tide__page_remove(&image.page);
  return NULL;
}

// Waits for the end of a round; returns its errno.
static int helper_wait(uint32_t round) {
  for (;;) {
    const uint32_t done = tide__load_acquire(&answered);  // pairs with helper_answer
    if ((int32_t)(done - round) >= 0) return (int)tide__load_relaxed(&failure);
    tide__sys_futex_wait(&answered, done);
  }
}

static int helper_ask(void) {
  const uint32_t round = tide__add_release(&asked, 1) + 1;  // pairs with helper_run
  tide__sys_futex_wake(&asked);
  return helper_wait(round);
}

static void helper_end(void) {
  tide__store_relaxed(&is_ending, 1);
  (void)tide__add_release(&asked, 1);  // pairs with helper_run
  tide__sys_futex_wake(&asked);
  (void)pthread_join(helper, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Calls

void tide_monitor_close(void) {
  (void)pthread_mutex_lock(&control);
  if (is_open) helper_end();
  is_open = false;
  (void)pthread_mutex_unlock(&control);
}

void tide__monitor_disown(void) {
  if (image.page.file >= 0) tide__sys_file_close(image.page.file);
  image.page.file = -1;
  is_open = false;
  tide__store_relaxed(&path_lock.state, 0);
  control = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static void image_reset(const char* folder) {
  memset(&image, 0, sizeof image);
  image.page.file = -1;
  if (folder != NULL) (void)snprintf(image.kept, sizeof image.kept, "%s", folder);
  image.folder = folder != NULL ? image.kept : NULL;
  tide__store_relaxed(&asked, 1);  // the first round makes the page
  tide__store_relaxed(&answered, 0);
  tide__store_relaxed(&is_ending, 0);
}

// A helper whose first round failed has ended.
static tide_status helper_start(const char* folder) {
  image_reset(folder);
  int error = tide__sys_thread_start(&helper, helper_run, NULL);
  if (error != 0)
    return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "monitor_open: no thread: %s", strerror(error));
  error = helper_wait(1);
  if (error == 0) return TIDE_OK;
  helper_end();
  return TIDE_FAIL_NATIVE(
      TIDE_ERR_STATE, error,
      "monitor_open: no page in %s: %s; the folder must belong to this user, be closed to "
      "others (mode 0700), and be no link",
      image.page.folder, strerror(error));
}

tide_status tide_monitor_open(const char* folder) {
  TIDE_TRY(tide__page_folder_check("monitor_open", folder));
  tide__monitored_watch_forks();
  (void)pthread_mutex_lock(&control);
  const tide_status status = is_open ? TIDE_OK : helper_start(folder);
  is_open = status == TIDE_OK;
  if (is_open && !has_exit_handler) has_exit_handler = atexit(tide_monitor_close) == 0;
  (void)pthread_mutex_unlock(&control);
  return status;
}

tide_status tide_monitor_update(void) {
  (void)pthread_mutex_lock(&control);
  const bool has_page = is_open;
  const int error = has_page ? helper_ask() : 0;
  (void)pthread_mutex_unlock(&control);
  TIDE_REQUIRE(has_page, TIDE_ERR_STATE, "monitor_update: no page is open");
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "monitor_update: the page cannot be written: %s",
                          strerror(error));
}

size_t tide_monitor_path(char* text, size_t capacity) {
  (void)pthread_mutex_lock(&control);
  tide__mutex_lock(&path_lock);
  const int length = snprintf(text, capacity, "%s", is_open ? path : "");
  tide__mutex_unlock(&path_lock);
  (void)pthread_mutex_unlock(&control);
  return length > 0 ? (size_t)length : 0;
}

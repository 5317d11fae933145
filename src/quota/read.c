// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reading ledgers. A member counts if its slot is locked, so one whose process has ended is not shown.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/sys.h"
#include "quota/file.h"

// The members of one ledger.
typedef struct quota_reading {
  tide_quota_ledger ledger;
  tide_quota_member members[TIDE_QUOTA_MEMBERS];
} quota_reading;

// ---------------------------------------------------------------------------------------------------
// A ledger

// A word, or 0 if it is damaged.
static uint64_t word_read(quota_reading* reading, const tide__quota_file* file, uint32_t slot,
                          tide__quota_word word) {
  uint64_t value = 0;
  if (!tide__quota_get(file, slot, word, &value)) reading->ledger.is_damaged = true;
  return value;
}

static uint64_t size_read(quota_reading* reading, const tide__quota_file* file, uint32_t slot,
                          tide__quota_word word) {
  return tide__quota_bytes(word_read(reading, file, slot, word));
}

static void member_read(quota_reading* reading, const tide__quota_file* file, uint32_t slot) {
  tide_quota_member* const member = &reading->members[reading->ledger.member_count++];
  *member = (tide_quota_member){
    .pid = (int64_t)word_read(reading, file, slot, TIDE__WORD_PID),
    .pid_namespace = word_read(reading, file, slot, TIDE__WORD_SPACE),
    .has_helper = word_read(reading, file, slot, TIDE__WORD_FLAGS) != 0,
    .priority = (int32_t)word_read(reading, file, slot, TIDE__WORD_PRIORITY) - TIDE_QUOTA_PRIORITY,
    .index = slot,
    .joined_ns = word_read(reading, file, slot, TIDE__WORD_JOINED) % (UINT64_C(1) << 34) * 1000000000u,
    .held_bytes = size_read(reading, file, slot, TIDE__WORD_USED),
    .peak_bytes = size_read(reading, file, slot, TIDE__WORD_PEAK),
    .guarantee_bytes = size_read(reading, file, slot, TIDE__WORD_GUARANTEE),
    .limit_bytes = tide__quota_limit_bytes(word_read(reading, file, slot, TIDE__WORD_LIMIT)),
    .wanted_bytes = size_read(reading, file, slot, TIDE__WORD_WANT),
    .num_waits = word_read(reading, file, slot, TIDE__WORD_WAITS),
    .num_failures = word_read(reading, file, slot, TIDE__WORD_FAILURES),
    .given_bytes = size_read(reading, file, slot, TIDE__WORD_GIVEN),
  };
  member->is_in_namespace = member->pid_namespace == tide__sys_process_space();
  tide__quota_get_name(file, slot, member->name);
  reading->ledger.held_bytes += member->held_bytes;
  reading->ledger.guarantee_bytes += member->guarantee_bytes;
}

static tide_status ledger_read(const char* ledger, quota_reading* reading) {
  tide__quota_path path;
  tide__quota_file file;
  uint64_t total = 0;
  memset(reading, 0, sizeof *reading);
  TIDE_TRY(tide__quota_path_find("quota_read", ledger, &path));
  TIDE_TRY(tide__quota_file_open("quota_read", ledger, TIDE__QUOTA_READS, 0, &file));
  tide_quota_ledger* const found = &reading->ledger;
  const int length = snprintf(found->path, sizeof found->path, "%s/%s", path.folder, path.name);
  if (length < 0 || (size_t)length >= sizeof found->path) found->path[0] = '\0';
  found->made_ns = file.head.made_ns;
  found->is_damaged = !tide__quota_get_total(&file, &total);
  found->total_bytes = tide__quota_bytes(total);
  for (uint32_t slot = 0; slot < TIDE_QUOTA_MEMBERS; slot++) {
    uint64_t pid = 0;
    const bool is_empty = tide__quota_get(&file, slot, TIDE__WORD_PID, &pid) && pid == 0;
    if (!is_empty && tide__quota_slot_is_taken(&file, slot)) member_read(reading, &file, slot);
  }
  tide__quota_file_close(&file);
  return TIDE_OK;
}

static bool ledger_show(const quota_reading* reading, tide_quota_fn function, void* user) {
  const uint32_t count = reading->ledger.member_count;
  bool goes_on = count > 0 || function(user, &reading->ledger, NULL);
  for (uint32_t i = 0; i < count && goes_on; i++)
    goes_on = function(user, &reading->ledger, &reading->members[i]);
  return goes_on;
}

// ---------------------------------------------------------------------------------------------------
// All ledgers

typedef struct quota_names {
  char (*names)[TIDE_QUOTA_LEDGER];  // owned
  size_t count;
  size_t capacity;
  bool has_no_memory;
} quota_names;

static bool name_take(void* user, const char* name) {
  quota_names* const list = user;
  const size_t prefix = strlen(TIDE__QUOTA_PREFIX);
  if (strncmp(name, TIDE__QUOTA_PREFIX, prefix) != 0 || strlen(name) >= TIDE_QUOTA_LEDGER) return true;
  void* names = list->names;
  list->has_no_memory = !tide__heap_grow(tide__heap_or_system(NULL), &names, &list->capacity, list->count + 1,
                                         sizeof *list->names);
  list->names = names;
  if (list->has_no_memory) return false;
  (void)snprintf(list->names[list->count++], sizeof *list->names, "%s", name);
  return true;
}

static int name_compare(const void* a, const void* b) { return strcmp(a, b); }

static tide_status names_gather(const tide__quota_path* path, quota_names* list) {
  int folder = -1;
  int error = tide__sys_folder_open(path->folder, false, &folder);
  if (error == ENOENT) return TIDE_OK;
  if (error == 0) {
    error = tide__sys_folder_visit(folder, name_take, list);
    tide__sys_file_close(folder);
  }
  TIDE_REQUIRE(!list->has_no_memory, TIDE_ERR_NO_MEMORY, "quota_read: no memory for the names of ledgers");
  if (list->count > 0) qsort(list->names, list->count, sizeof *list->names, name_compare);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(
      TIDE_ERR_STATE, error,
      "quota_read: %s: %s; the folder must belong to this user, be closed to others (mode "
      "0700), and be no link",
      path->folder, strerror(error));
}

static tide_status folder_find(const char* folder, tide__quota_path* out) {
  char any[TIDE_QUOTA_LEDGER + 8];
  if (folder == NULL) return tide__quota_path_find("quota_read", "any", out);
  (void)snprintf(any, sizeof any, "%sany", folder);
  return tide__quota_path_find("quota_read", any, out);
}

// A ledger that cannot be read hides no other.
static tide_status ledgers_show(quota_reading* reading, const char* folder, tide_quota_fn function,
                                void* user) {
  quota_names list = { .count = 0 };
  tide__quota_path path;
  tide_error before;
  TIDE_TRY(folder_find(folder, &path));
  tide__error_keep(&before);
  const tide_status status = names_gather(&path, &list);
  for (size_t i = 0; status == TIDE_OK && i < list.count; i++) {
    char full[2 * TIDE_QUOTA_LEDGER];
    (void)snprintf(full, sizeof full, "%s/%s", path.folder, list.names[i]);
    const bool is_read = ledger_read(full, reading) == TIDE_OK;
    if (is_read && !ledger_show(reading, function, user)) break;
  }
  if (status == TIDE_OK) tide__error_restore(&before);
  tide__heap_release(tide__heap_or_system(NULL), list.names, list.capacity, sizeof *list.names);
  return status;
}

tide_status tide_quota_read(const char* ledger, tide_quota_fn function, void* user) {
  const tide_heap* const heap = tide__heap_or_system(NULL);
  TIDE_REQUIRE(function != NULL, TIDE_ERR_ARGUMENT, "quota_read: no function");
  quota_reading* const reading = tide__heap_alloc(heap, 1, sizeof *reading);
  TIDE_REQUIRE(reading != NULL, TIDE_ERR_NO_MEMORY, "quota_read: no memory for a ledger");
  tide_status status = TIDE_OK;
  const size_t length = ledger != NULL ? strnlen(ledger, TIDE_QUOTA_LEDGER) : 0;
  const bool is_folder = ledger == NULL || (length > 0 && ledger[length - 1] == '/');
  if (is_folder) status = ledgers_show(reading, ledger, function, user);
  else status = ledger_read(ledger, reading);
  if (!is_folder && status == TIDE_OK) (void)ledger_show(reading, function, user);
  tide__heap_release(heap, reading, 1, sizeof *reading);
  return status;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The file of a ledger: finding, making, checking and mapping it, and the kernel's locks on it. A lock
// belongs to an open file description, and the kernel drops it when its process ends, however it ends. So no
// lock lies in the file, and none can be damaged.
#ifndef TIDEMARK_SRC_QUOTA_FILE_H
#define TIDEMARK_SRC_QUOTA_FILE_H

#include "quota/format.h"

// An open ledger.
typedef struct tide__quota_file {
  int descriptor;         // owned; -1: none
  tide__quota_map* map;   // owned; never trusted
  tide__quota_head head;  // a copy, which was checked
} tide__quota_file;

typedef enum tide__quota_access {
  TIDE__QUOTA_READS,   // maps it for reading
  TIDE__QUOTA_WRITES,  // it must exist
  TIDE__QUOTA_JOINS,   // it is made if it does not exist and the total is not 0
  TIDE__QUOTA_MAKES    // it must not exist
} tide__quota_access;

// Opens a ledger by its name or path. Totals are in units. `call` names the caller in error texts.
tide_status tide__quota_file_open(const char* call, const char* ledger, tide__quota_access access,
                                  uint64_t total, tide__quota_file* out);
void tide__quota_file_close(tide__quota_file* file);
// Opens it again by its name, in place of a file that was removed. Address and descriptor stay the same.
tide_status tide__quota_file_replace(const char* call, const char* ledger, uint64_t total,
                                     tide__quota_file* file);

// The folder and the name of the file of a ledger.
typedef struct tide__quota_path {
  char folder[TIDE_QUOTA_LEDGER];
  char name[TIDE_QUOTA_LEDGER];
  bool is_default;  // the folder is the user's, and is made if it does not exist
} tide__quota_path;
tide_status tide__quota_path_find(const char* call, const char* ledger, tide__quota_path* out);
// What the names of files in the user's folder begin with.
#define TIDE__QUOTA_PREFIX "ledger-"

// Writes the head again if it was damaged, and gives a file back its size. Returns an errno: ENOENT if the
// file has no name any more.
int tide__quota_file_mend(tide__quota_file* file);

// The control lock: held by a process that makes the file or changes shares. Waits for some seconds.
tide_status tide__quota_control_take(const char* call, const tide__quota_file* file);
void tide__quota_control_drop(const tide__quota_file* file);

// The lock of a slot, which a member holds for as long as it lives; and whether another description holds it.
bool tide__quota_slot_take(const tide__quota_file* file, uint32_t slot);
void tide__quota_slot_drop(const tide__quota_file* file, uint32_t slot);
bool tide__quota_slot_is_taken(const tide__quota_file* file, uint32_t slot);

// Makes a slot empty. Its lock must be held.
void tide__quota_slot_clear(const tide__quota_file* file, uint32_t slot);

// Reads a word. False: it is damaged, or out of range.
bool tide__quota_get(const tide__quota_file* file, uint32_t slot, tide__quota_word word, uint64_t* out);
void tide__quota_put(const tide__quota_file* file, uint32_t slot, tide__quota_word word, uint64_t value);
// The total: the first of its words that is good.
bool tide__quota_get_total(const tide__quota_file* file, uint64_t* out);
void tide__quota_put_total(const tide__quota_file* file, uint64_t total);
// Makes both words of the total equal and good, if need be from `good`, and follows a change.
void tide__quota_mend_total(const tide__quota_file* file, uint64_t* good);
// The name of a member: any bytes, up to a 0.
void tide__quota_get_name(const tide__quota_file* file, uint32_t slot, char out[TIDE_QUOTA_NAME]);

// Tells a member to look for requests.
void tide__quota_ring(const tide__quota_file* file, uint32_t slot);
// Tells members that wait to try again.
void tide__quota_wake(const tide__quota_file* file);

// The guarantees of all members but `except` (which may be UINT32_MAX), in units. A damaged word counts 0.
uint64_t tide__quota_guarantees(const tide__quota_file* file, uint32_t except);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The page of a process: a file with a head that never changes, and slots whose values change. The format
// is described in docs/monitor.md.
//
// Both sides use pread() and pwrite(), never a mapping: a file that somebody truncates cannot end a process
// by SIGBUS. A slot begins with a sequence number, which is odd while the slot is written. A reader takes the
// number, the values and the number again, and repeats that until both numbers are equal and even.
#ifndef TIDEMARK_SRC_MONITOR_PAGE_H
#define TIDEMARK_SRC_MONITOR_PAGE_H

#include "base/check.h"
#include "tidemark/monitor.h"

#define TIDE__PAGE_MAGIC UINT64_C(0x31454741504d4954)  // "TIMPAGE1"
#define TIDE__PAGE_VERSION 1
#define TIDE__PAGE_PATH 512

// Written once. The magic number is written last, when the page is locked; so a page with it has a lock for
// as long as its process lives.
typedef struct tide__page_head {
  uint64_t magic;
  uint32_t version;
  uint32_t row_bytes;    // of a row without its sequence number
  uint64_t pid;          // in its own PID namespace
  uint64_t start_ticks;  // of the process; another process with this pid has another number
  uint64_t space;        // the PID namespace; 0: not known
  uint64_t opened_ns;
  char command[TIDE_MONITOR_COMMAND];
  char library[16];
} tide__page_head;

// The values of the first slot.
typedef struct tide__page_state {
  uint64_t updated_ns;
  uint32_t left_out;
  uint32_t unused;
} tide__page_state;

// Where slots lie.
#define TIDE__PAGE_STATE_AT UINT64_C(512)
#define TIDE__PAGE_ROWS_AT UINT64_C(1024)
#define TIDE__PAGE_ROW_STRIDE UINT64_C(2560)
#define TIDE__PAGE_BYTES (TIDE__PAGE_ROWS_AT + TIDE_MONITOR_ROWS * TIDE__PAGE_ROW_STRIDE)
TIDE_STATIC_ASSERT(sizeof(tide__page_head) <= TIDE__PAGE_STATE_AT);
TIDE_STATIC_ASSERT(sizeof(uint64_t) + sizeof(tide_monitor_row) <= TIDE__PAGE_ROW_STRIDE);

// A page that this process has open for writing.
typedef struct tide__page {
  int file;  // -1: none
  char folder[TIDE__PAGE_PATH];
  char name[96];
} tide__page;

// The folders in which pages may lie: `folder` alone, or those of the user for NULL. Returns their number.
#define TIDE__PAGE_FOLDERS 2
uint32_t tide__page_folders(const char* folder, char out[TIDE__PAGE_FOLDERS][TIDE__PAGE_PATH]);
tide_status tide__page_folder_check(const char* call, const char* folder);

// Makes the page of this process in the first folder where that works. The calling thread must block all
// signals: a limit on the size of files sends one. Returns an errno, for the folder that was tried last.
int tide__page_create(const char* folder, tide__page* page);
void tide__page_remove(tide__page* page);

// Writes and reads the values of a slot. `sequence` is the writer's number of the slot. EBUSY: the writer
// stopped in the middle.
int tide__slot_put(int file, uint64_t offset, uint64_t* sequence, const void* values, size_t bytes);
int tide__slot_get(int file, uint64_t offset, void* values, size_t bytes);

#endif

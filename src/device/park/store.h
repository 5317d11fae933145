// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of a store, for the files of this room.
#ifndef TIDEMARK_SRC_DEVICE_PARK_STORE_H
#define TIDEMARK_SRC_DEVICE_PARK_STORE_H

#include "device/park/park.h"

struct tide__store {
  tide_device_cache* device;  // borrowed
  tide_backup kind;
  uint64_t bytes;    // whole pages
  uint64_t address;  // of its pages; 0: none
  int file;          // -1: none
  bool is_open;
  bool is_dry;  // its addresses have no memory
  size_t path_bytes;
  char path[];  // of the folder
};

// Makes the file, or maps the pages. Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__store_open(tide__store* store);
tide_status tide__store_write(tide__store* store, uint64_t offset, uint64_t bytes, const void* source);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The table of a device allocator's options. options.h lists their ranges.
#ifndef TIDEMARK_SRC_DEVICE_OPTION_TABLE_H
#define TIDEMARK_SRC_DEVICE_OPTION_TABLE_H

#include "device/options.h"

#define TIDE__OPTION_MIB ((uint64_t)1 << 20)

// How a value is read from a text and written to one: see options.c.
typedef enum tide__option_kind {
  TIDE__OPTION_BOOL,     // bool; True, False
  TIDE__OPTION_SWITCH,   // bool; also on, off
  TIDE__OPTION_POLICY,   // uint32_t; a name
  TIDE__OPTION_BACKEND,  // no field; "native"
  TIDE__OPTION_COUNT,    // uint32_t
  TIDE__OPTION_MIBS,     // uint64_t, bytes; whole MiB
  TIDE__OPTION_LIMIT,    // uint64_t, bytes; whole MiB, also 0
  TIDE__OPTION_REAL,     // double
  TIDE__OPTION_SHARE,    // double, off at 0
  TIDE__OPTION_RESERVE,  // tide_reserve; a share or GiB
  TIDE__OPTION_ROUNDUP,  // the array of divisions
  TIDE__OPTION_NO_BOOL,  // no field and no effect; True, False
  TIDE__OPTION_NO_LIST   // no field and no effect; a list of reserves by name
} tide__option_kind;

typedef struct tide__option_row {
  const char* key;
  const char* alias;  // another key for the same option, or NULL
  const char* field;
  size_t offset;
  tide__option_kind kind;
  bool (*is_valid)(const tide_device_options* options);  // (optional) range; none: all of its kind
  const char* wants;
} tide__option_row;

extern const tide__option_row tide__option_rows[];
extern const size_t tide__option_row_count;
// The row of a key or alias; NULL: none.
const tide__option_row* tide__option_find(const char* key);
// What replaces a key that was removed; NULL: it is not one of those.
const char* tide__option_instead(const char* key);

enum { TIDE__POLICY_COUNT = 2 };
extern const char* const tide__policy_names[TIDE__POLICY_COUNT];  // by tide_policy

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings in TIDEMARK_PRELOAD, and messages to the user.
#ifndef TIDEMARK_PRELOAD_SETTINGS_H
#define TIDEMARK_PRELOAD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct preload_settings {
  uint64_t threshold;  // bytes; requests up to it are passed on
  uint64_t cached;     // bytes of idle memory that are kept
  uint64_t idle;       // ns after which idle memory goes back; 0: never
  bool huge_pages;
  bool helper;  // a thread of the cache's own gives idle memory back in time
  bool stats;   // one line about it all at exit
} preload_settings;

// The settings in a text such as "threshold=1M,idle=10s,stats=on"; NULL and what it does not name are the
// defaults. The first part that is not understood is reported; all such parts are ignored.
preload_settings preload_settings_read(const char* text);

// Writes one line to standard error, without stdio's buffers and so without memory.
void preload_say(const char* format, ...) __attribute__((format(printf, 1, 2)));

#endif

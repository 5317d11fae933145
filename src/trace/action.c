// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The names of actions, from the list in the public header. A search by name is linear, because there are
// few.
#include "tidemark/trace.h"

#include <string.h>

#include "base/check.h"

// The size of an entry decides the memory of a long history.
TIDE_STATIC_ASSERT(sizeof(tide_trace_entry) == 48);
// A set of actions is a word of bits.
TIDE_STATIC_ASSERT(TIDE_ACTION_COUNT <= 32);

static const char* const action_names[TIDE_ACTION_COUNT] = {
#define ACTION_TEXT(name, value, text) [value] = text,
  TIDE_ACTION_MAP(ACTION_TEXT)
#undef ACTION_TEXT
};

const char* tide_action_name(uint32_t action) {
  return action < TIDE_ACTION_COUNT ? action_names[action] : NULL;
}

int tide_action_from_name(const char* name) {
  for (int i = 0; name != NULL && i < TIDE_ACTION_COUNT; i++) {
    if (strcmp(name, action_names[i]) == 0) return i;
  }
  return -1;
}

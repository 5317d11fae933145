// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The names of actions and the layout of an entry, as files and other programs rely on them.
#include "tidemark/trace.h"

#include "t.h"

T_TEST(test_action__has_its_name_and_value) {
  T_STR_EQ(tide_action_name(TIDE_ACTION_ALLOC), "alloc");
  T_STR_EQ(tide_action_name(1), "free_requested");
  T_STR_EQ(tide_action_name(2), "free_completed");
  T_STR_EQ(tide_action_name(3), "segment_alloc");
  T_STR_EQ(tide_action_name(4), "segment_free");
  T_STR_EQ(tide_action_name(5), "segment_map");
  T_STR_EQ(tide_action_name(6), "segment_unmap");
  T_STR_EQ(tide_action_name(7), "snapshot");
  T_STR_EQ(tide_action_name(8), "oom");
  T_STR_EQ(tide_action_name(TIDE_ACTION_USER_DEFINED), "user_defined");
  T_EQ(TIDE_ACTION_COUNT, 11);
}

T_TEST(test_action__is_found_by_its_name) {
  for (int action = 0; action < TIDE_ACTION_COUNT; action++) {
    T_EQ(tide_action_from_name(tide_action_name((uint32_t)action)), action);
  }
}

T_TEST(test_action__knows_no_others) {
  T_PTR_EQ(tide_action_name(TIDE_ACTION_COUNT), NULL);
  T_PTR_EQ(tide_action_name(UINT32_MAX), NULL);

  T_EQ(tide_action_from_name(NULL), -1);
  T_EQ(tide_action_from_name(""), -1);
  T_EQ(tide_action_from_name("allo"), -1);
  T_EQ(tide_action_from_name("allocs"), -1);
  T_EQ(tide_action_from_name("ALLOC"), -1);
}

T_TEST(test_action__entry_keeps_its_layout) {
  T_EQ(sizeof(tide_trace_entry), 48);
  T_EQ(offsetof(tide_trace_entry, time_ns), 0);
  T_EQ(offsetof(tide_trace_entry, address), 8);
  T_EQ(offsetof(tide_trace_entry, bytes), 16);
  T_EQ(offsetof(tide_trace_entry, stream), 24);
  T_EQ(offsetof(tide_trace_entry, stack), 32);
  T_EQ(offsetof(tide_trace_entry, note), 36);
  T_EQ(offsetof(tide_trace_entry, pool), 40);
  T_EQ(offsetof(tide_trace_entry, action), 44);
  T_EQ(offsetof(tide_trace_entry, device), 45);
}

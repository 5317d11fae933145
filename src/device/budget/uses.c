// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `budget`: the order of uses. Each tag remembers the one that was used after it. Two times the same
// is taken for a rule: so a program that repeats itself is known after its second round.
#include "device/budget/budget.h"

void tide__uses_learn(tide_device_cache* device, tide__tag* tag) {
  tide__tag* const last = device->last_used;
  device->last_used = tag;
  if (last == NULL || last == tag) return;
  last->is_confirmed = last->follower == tag;
  last->follower = tag;
}

tide__tag* tide__uses_next(const tide__tag* tag) {
  return tag != NULL && tag->is_confirmed ? tag->follower : NULL;
}

void tide__uses_expect(tide_device_cache* device) {
  uint64_t steps = 0;
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) tag->steps_ahead = UINT64_MAX;
  tide__tag* tag = tide__uses_next(device->last_used);
  for (; tag != NULL && tag->steps_ahead == UINT64_MAX; tag = tide__uses_next(tag))
    tag->steps_ahead = ++steps;
}

uint64_t tide__tag_steps_ahead(const tide__tag* tag) {
  uint64_t steps = UINT64_MAX;
  for (; tag != NULL; tag = tag->parent) steps = tide__min(steps, tag->steps_ahead);
  return steps;
}

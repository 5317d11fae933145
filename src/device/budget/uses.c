// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `budget`: the order of uses. A sequence that was repeated once, and begins again, is taken for a round
// that goes on. A tag may come several times in it. Whoever leaves the order is looked for in the rest of the
// round, and the round is believed again as soon as one more use follows it.
#include "device/budget/budget.h"

enum { ROUND_MOST = 1023, RECENT_MOST = 2048 };  // uses; two rounds and one more use are looked at

struct tide__use_order {
  tide__tag* recent[RECENT_MOST];  // a ring; repeated uses of one tag count once
  uint64_t count;                  // of uses so far
  tide__tag* round[ROUND_MOST];
  size_t round_count;  // 0: none is known
  size_t at;           // the place of the last use in the round
  bool is_sure;        // the last use followed the round
};

// The last use is number 1, the one before it number 2.
static tide__tag* use_before(const tide__use_order* order, uint64_t number) {
  return order->recent[(order->count - number) % RECENT_MOST];
}

// Do the last uses repeat those before, and one more?
static bool repeats_after(const tide__use_order* order, uint64_t length) {
  uint64_t number = 1;
  while (number <= length + 1 && use_before(order, number) == use_before(order, number + length)) number++;
  return number > length + 1;
}

// The shortest sequence that has just begun for the third time becomes the round.
static void round_find(tide__use_order* order) {
  size_t length = 2;
  while (length <= ROUND_MOST && 2 * length + 1 <= order->count && !repeats_after(order, length)) length++;
  if (length > ROUND_MOST || 2 * length + 1 > order->count) return;
  for (size_t i = 0; i < length; i++) order->round[i] = use_before(order, length + 1 - i);
  order->round_count = length;
  order->at = 0;
  order->is_sure = true;
}

static size_t place_after(const tide__use_order* order, size_t steps) {
  return (order->at + steps) % order->round_count;
}

static void round_follow(tide__use_order* order, const tide__tag* tag) {
  size_t steps = 1;
  while (steps < order->round_count && order->round[place_after(order, steps)] != tag) steps++;
  order->is_sure = steps == 1;
  if (steps < order->round_count) order->at = place_after(order, steps);
}

void tide__uses_learn(tide_device_cache* device, tide__tag* tag) {
  if (device->order == NULL) device->order = tide__heap_alloc(device->heap, 1, sizeof *device->order);
  tide__use_order* const order = device->order;
  if (order == NULL || (order->count > 0 && use_before(order, 1) == tag)) return;
  order->recent[order->count++ % RECENT_MOST] = tag;
  if (order->round_count > 0) round_follow(order, tag);
  if (!order->is_sure) round_find(order);
}

void tide__uses_free(tide_device_cache* device) {
  tide__heap_release(device->heap, device->order, 1, sizeof *device->order);
  device->order = NULL;
}

size_t tide__round_count(const tide_device_cache* device) {
  return device->order != NULL && device->order->is_sure ? device->order->round_count : 0;
}

tide__tag* tide__round_tag(const tide_device_cache* device, size_t place) {
  return device->order->round[place];
}

tide__tag* tide__uses_next(const tide_device_cache* device, size_t steps) {
  if (steps >= tide__round_count(device)) return NULL;
  return device->order->round[place_after(device->order, steps)];
}

void tide__uses_expect(tide_device_cache* device) {
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) tag->steps_ahead = UINT64_MAX;
  for (size_t steps = tide__round_count(device); steps > 0; steps--) {
    device->order->round[place_after(device->order, steps)]->steps_ahead = steps;
  }
}

uint64_t tide__tag_steps_ahead(const tide__tag* tag) {
  uint64_t steps = UINT64_MAX;
  for (; tag != NULL; tag = tag->parent) steps = tide__min(steps, tag->steps_ahead);
  return steps;
}

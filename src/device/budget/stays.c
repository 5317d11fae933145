// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `budget`: which tags of a round stay in place, if not all of them fit. The others come and go, each
// while the one before it works. So there must be room for two of them that follow each other, and the bus
// should never rest: those that stay are spread evenly over the round, by their bytes. Memory goes to the
// highest priority first.
#include "device/budget/budget.h"

#define NO_PLACE SIZE_MAX
enum { TRIES = 9 };  // each halves the range in which the best share lies

void tide__stays_begin(tide_device_cache* device) {
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    tag->round_place = NO_PLACE;
    tag->round_bytes = 0;
    tag->stays = false;
  }
  for (size_t i = tide__round_count(device); i-- > 0;) tide__round_tag(device, i)->round_place = i;
}

// A use of a tag is one of all tags below it. The one that comes first in the round counts.
static tide__tag* tag_of_round(tide__tag* tag) {
  tide__tag* first = NULL;
  for (; tag != NULL; tag = tag->parent) {
    if (tag->round_place != NO_PLACE && (first == NULL || tag->round_place < first->round_place)) first = tag;
  }
  return first;
}

bool tide__stays_add(tide__tag* tag, uint64_t bytes) {
  tide__tag* const owner = tag_of_round(tag);
  if (owner != NULL) owner->round_bytes += bytes;
  return owner != NULL;
}

bool tide__tag_stays(tide__tag* tag) {
  const tide__tag* const owner = tag_of_round(tag);
  return owner != NULL && owner->stays;
}

// A tag of the round, at the first of its places; NULL at others.
static tide__tag* tag_first_at(tide_device_cache* device, size_t place) {
  tide__tag* const tag = tide__round_tag(device, place);
  return tag->round_place == place && tag->round_bytes > 0 ? tag : NULL;
}

// Tags with one priority, and what they have.
typedef struct stay_class {
  int64_t priority;
  uint64_t bytes;
} stay_class;

// The class with the highest priority below another one. It has no bytes if there is none.
static stay_class class_below(tide_device_cache* device, int64_t priority) {
  stay_class found = { INT64_MIN, 0 };
  for (size_t i = 0; i < tide__round_count(device); i++) {
    const tide__tag* const tag = tag_first_at(device, i);
    const int64_t own = tag != NULL ? tide__budget_of(tag)->priority : INT64_MIN;
    if (tag == NULL || own >= priority || own < found.priority) continue;
    if (own > found.priority) found = (stay_class){ own, 0 };
    found.bytes += tag->round_bytes;
  }
  return found;
}

// Each tag of a class earns its part of the share. Whenever there is enough for one, it stays.
static uint64_t class_spread(tide_device_cache* device, const stay_class* class, uint64_t share) {
  const double part = (double)share / (double)class->bytes;
  double earned = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tide__round_count(device); i++) {
    tide__tag* const tag = tag_first_at(device, i);
    if (tag == NULL || tide__budget_of(tag)->priority != class->priority) continue;
    const double cost = (double)tag->round_bytes;
    earned += cost * part;
    tag->stays = earned + 0.5 >= cost;  // a fraction of a byte may be lost by rounding
    if (!tag->stays) continue;
    earned -= cost;
    bytes += tag->round_bytes;
  }
  return bytes;
}

static uint64_t stays_choose(tide_device_cache* device, uint64_t share) {
  uint64_t bytes = 0;
  stay_class class = class_below(device, INT64_MAX);
  for (; class.bytes > 0; class = class_below(device, class.priority)) {
    const uint64_t left = tide__min(share, class.bytes);
    bytes += class_spread(device, &class, left);
    share -= left;
  }
  return bytes;
}

// The most that two tags need that follow each other and do not stay.
static uint64_t passing_bytes(tide_device_cache* device) {
  const size_t count = tide__round_count(device);
  const tide__tag* before = NULL;
  uint64_t most = 0;
  for (size_t i = 0; i < 2 * count; i++) {  // twice, because the first one follows the last one
    const tide__tag* const tag = tide__round_tag(device, i % count);
    if (tag->stays || tag->round_bytes == 0 || tag == before) continue;
    most = tide__max(most, tag->round_bytes + (before != NULL ? before->round_bytes : 0));
    before = tag;
  }
  return most;
}

void tide__stays_end(tide_device_cache* device, uint64_t capacity) {
  uint64_t share = 0;
  uint64_t above = capacity;
  if (tide__round_count(device) == 0) return;
  for (int i = 0; i < TRIES; i++) {
    const uint64_t middle = share + (above - share) / 2;
    if (stays_choose(device, middle) + passing_bytes(device) <= capacity) share = middle;
    else above = middle;
  }
  // What stays is spread most evenly if the share is no more than that.
  const uint64_t bytes = stays_choose(device, share);
  const uint64_t evenly = stays_choose(device, bytes);
  if (evenly < bytes || evenly + passing_bytes(device) > capacity) (void)stays_choose(device, share);
}

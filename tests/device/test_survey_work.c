// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How much a survey of idle memory looks at. It writes down, for each handle under a block that it looks at,
// which idle block begins there. So a mark in that place counts: it is gone from the handles that were looked
// at. Nothing reads it where no memory is idle.
#include "device/allocator.h"
#include "device/devices.h"

enum { FEW = 100, MANY = 1000, FREED = 8, TOO_MANY = TIDE__NOTED_MOST + 1 };
#define PIECE (2 * MIB)  // a handle each

typedef struct field {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream stream;
  tide_block blocks[MANY];
  size_t at;  // the next to release
} field;

static void field_open(field* f, size_t count) {
  f->at = 0;
  f->m = dry_of((uint64_t)16 << 30);
  f->stream = side_new(f->m);
  f->d = device_with(f->m, "policy:tide,tide_idle_handles:0,tide_stitch_share:1");
  for (size_t i = 0; i < count; ++i) f->blocks[i] = take(f->d, f->stream, PIECE);
}

static void field_close(field* f) {
  device_expect_valid(f->d);
  tide_device_free(f->d);
  tide_machine_free(f->m);
}

static tide__block marked;

// Marks the handles that had no idle memory at their beginnings at the last survey; returns how many.
static size_t marks_set(tide_device_cache* d) {
  size_t count = 0;
  TIDE_LIST_EACH(it, &d->homes) {
    const tide__home* const home = TIDE_OWNER(it, tide__home, link);
    for (size_t i = 0; i < home->count; ++i) {
      if (home->handles[i]->idle_prefix != 0) continue;
      home->handles[i]->prefix_hole = &marked;
      ++count;
    }
  }
  return count;
}

// Removes the marks that are left, and returns how many there were.
static size_t marks_take(tide_device_cache* d) {
  size_t count = 0;
  TIDE_LIST_EACH(it, &d->homes) {
    const tide__home* const home = TIDE_OWNER(it, tide__home, link);
    for (size_t i = 0; i < home->count; ++i) {
      if (home->handles[i]->prefix_hole != &marked) continue;
      home->handles[i]->prefix_hole = NULL;
      ++count;
    }
  }
  return count;
}

// Releases every other block, so that only stitching serves a request for all of their memory. Returns how
// many handles the survey for that looked at.
static size_t handles_looked_at(field* f, size_t freed) {
  for (size_t i = 0; i < freed; ++i, f->at += 2) give(f->d, f->blocks[f->at]);
  const uint64_t before = f->d->survey.number;
  const int64_t grown = current(f->d, reserved_bytes);
  const size_t marks = marks_set(f->d);
  (void)take(f->d, f->stream, freed * PIECE);
  const size_t left = marks_take(f->d);
  T_EQ(f->d->survey.number, before + 1);
  T_EQ(current(f->d, reserved_bytes), grown);
  return marks - left;
}

// The first survey of a home looks at all blocks. Later ones look at those that were released since then.
T_TEST(test_survey_work__is_that_of_what_was_released) {
  static const size_t counts[] = { FEW, MANY };
  static field f;
  for (size_t i = 0; i < 2; ++i) {
    field_open(&f, counts[i]);
    T_EQ(handles_looked_at(&f, FREED), counts[i]);
    for (size_t round = 0; round < 4; ++round) T_EQ(handles_looked_at(&f, FREED), FREED);
    field_close(&f);
  }
}

// What a stitched block takes has changed, too. After the large one, so have too many.
T_TEST(test_survey_work__is_small_again_after_a_large_one) {
  static field f;
  field_open(&f, MANY);
  T_EQ(handles_looked_at(&f, FREED), MANY);
  T_EQ(handles_looked_at(&f, TIDE__NOTED_MOST - FREED), TIDE__NOTED_MOST - FREED);
  T_EQ(handles_looked_at(&f, FREED), FREED);
  for (size_t i = 0; i < 2; ++i) T_LT(MANY / 2, handles_looked_at(&f, i == 0 ? TOO_MANY : FREED));
  T_EQ(handles_looked_at(&f, FREED), FREED);
  field_close(&f);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Giving way: makes room for memory that is to come, by the rules of budgets. The caller has the gate, and
// is a guest of the pools that want memory. The functions may leave the gate for observers in between.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_GIVING_H
#define TIDEMARK_SRC_DEVICE_TIDE_GIVING_H

#include "device/tide/tide.h"

// Memory that nobody has asked for yet. Others give way for it if they are expected later and do not stay,
// and if that is enough.
typedef struct tide__ahead {
  uint64_t steps;            // uses until it is expected
  const tide__tag* working;  // its work was queued just now, so it stays where it is; NULL: none
  bool waits;                // for work and copies of those that give way
} tide__ahead;

// Who wants memory, and why others must give way.
typedef struct tide__giving {
  tide_device_cache* device;
  const tide__want* wants;  // borrowed
  size_t want_count;
  tide__tag* lowered;      // a tag whose limit was lowered; NULL: none
  uint64_t refused_bytes;  // the machine had no memory, although no budget is in the way; 0: it was not asked
  const tide__ahead* ahead;  // NULL: somebody has asked for the memory
  const tide__call_context* context;
} tide__giving;

// Whose idle memory goes.
typedef enum tide__giver { TIDE__GIVES_OWN, TIDE__GIVES_EXCESS, TIDE__GIVES_ALL } tide__giver;

// How much less is reserved than before.
uint64_t tide__given_since(tide_device_cache* device, uint64_t before);
// How much must go now, and where.
tide__lack tide__giving_lack(const tide__giving* giving);
// Gives back idle memory of pools with tags, as much as is needed. With TIDE__GIVES_ALL and no tag in the
// way, also idle memory of the default pool, after waiting for all work.
tide_status tide__give_idle(const tide__giving* giving, tide__giver giver);
// Parks one pool that yields, and gives back idle memory where another tag is in the way now; false if
// there is none, or if all of them together are not enough. A pool that cannot be parked is passed over,
// until the next giving. `*turn` is 0 at first.
bool tide__give_next(const tide__giving* giving, uint64_t* turn);
// All of these, until enough has gone. Errors are those of the machine: too little memory is none.
tide_status tide__give_way(const tide__giving* giving);

#endif

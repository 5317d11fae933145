// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Assigns items to pools.
#ifndef TIDEMARK_SRC_PLAN_ASSIGN_H
#define TIDEMARK_SRC_PLAN_ASSIGN_H

#include "base/segment_tree.h"
#include "plan/model.h"

typedef struct tide__assign {
  tide__scratch scratch;
  const tide__items* items;          // borrowed
  const tide_plan_problem* problem;  // borrowed
  uint32_t* pools;                   // of scratch; by item
  uint32_t* list;                    // of scratch; items by pool
  size_t* first;                     // of scratch; by pool, and one more: where its items begin in `list`
  uint32_t pool_count;
  bool is_open;               // some item may go to any of several pools
  tide__model all;            // (is_open) all items as if they were in one pool
  uint32_t* boxes;            // of scratch, (is_open) by item: its box in `all`; UINT32_MAX: none
  tide__segment_tree* loads;  // of scratch, (is_open) what each pool holds by section
  bool has_loads;             // they do not overflow
  uint32_t* free;             // of scratch, (is_open) the free items, which may go to any pool
  uint32_t free_count;
  uint32_t ways;          // to distribute them; 0: too many to try
  uint32_t next_way;      // of these
  tide_plan_proof proof;  // why there is no plan, whatever the assignment
} tide__assign;

// Assigns every item to the first pool whose load leaves room for it. Items with the most bytes times
// duration choose first.
tide_status tide__assign_init(tide__assign* assign, const tide__items* items,
                              const tide_plan_problem* problem, const tide_heap* heap);
void tide__assign_fini(tide__assign* assign);

uint64_t tide__assign_capacity(const tide__assign* assign, uint32_t pool);

// Lists the items of each pool as they are assigned now.
void tide__assign_list(tide__assign* assign);

// Distributes the free items in another way, numbered from 0; false if there are no more ways. If there are
// few ways, they are tried one by one, and `*out_all` says that all were tried. Ways that overload a pool
// are skipped.
bool tide__assign_again(tide__assign* assign, uint32_t way, bool* out_all);

// Assigns all free items to one pool.
void tide__assign_all(tide__assign* assign, uint32_t pool);

// Moves a free item to the next pool with room after its own; false if there is none.
bool tide__assign_move(tide__assign* assign, uint32_t item);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Live memory is counted as the ledger does: from ALLOC to FREE_COMPLETED, rounded up to 512 bytes. A block's
// life ends for the search of leaks when the program frees it, even if it still waits for a stream. What is
// freed after the last whole step is alive for that search: programs free everything when they end.
#include "steps/measure.h"

#include "base/error.h"
#include "base/heap.h"

#define BORN_BEFORE UINT32_MAX  // before the first whole step

typedef struct life {
  tide__survivor block;
  uint64_t rounded;  // 0: the record is not in use
  uint32_t next;     // index + 1 of the next unused record
  bool is_released;
} life;

typedef struct measure_pass {
  tide__measure* measure;
  tide__hash_map blocks;  // from an address to the index of the life + 1
  life* lives;            // owned
  size_t life_count;
  size_t life_room;
  uint32_t unused;  // index + 1
  uint64_t live;
  uint64_t reserved;
  uint32_t now;  // number of the whole step; BORN_BEFORE before the first
  bool is_over;  // the last whole step has ended
} measure_pass;

// ---------------------------------------------------------------------------------------------------
// Places

static uint64_t spot_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0xff51afd7ed558ccd);
  return hash ^ (hash >> 32);
}

// The index + 1 of a spot. Its key is a hash: with 64 bits, two spots share one practically never.
static tide_status spot_find(tide__measure* m, uint32_t level, uint64_t site, uint64_t stream, uint64_t size,
                             uint32_t* out) {
  const uint64_t key = spot_mix(spot_mix(spot_mix(level + 1, site), stream), size);
  *out = (uint32_t)tide__hash_map_find(&m->numbers, key);
  if (*out != 0) return TIDE_OK;
  void* spots = m->spots;
  const bool has_room =
      tide__heap_grow(m->run->heap, &spots, &m->spot_room, m->spot_count + 1, sizeof *m->spots);
  m->spots = spots;
  TIDE_REQUIRE(has_room && (tide__hash_map_has_room(&m->numbers) ||
                            tide__hash_map_reserve(&m->numbers, 2 * m->numbers.count + 64)),
               TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu call sites", m->spot_count + 1);
  m->spots[m->spot_count++] = (tide__spot){ .site = site, .level = level };
  *out = (uint32_t)m->spot_count;
  (void)tide__hash_map_put(&m->numbers, key, *out);
  return TIDE_OK;
}

static uint64_t stack_to_site(const tide_steps_options* options, uint32_t stack) {
  if (stack == 0 || options->site == NULL) return stack;
  return options->site(options->user, stack);
}

static tide_status block_find_spots(tide__measure* m, tide__survivor* block) {
  const uint64_t site = stack_to_site(m->options, block->stack);
  if (site != 0) return spot_find(m, TIDE__SPOT_SITE, site, 0, 0, &block->spots[TIDE__SPOT_SITE]);
  const uint64_t power = block->bytes > 1 ? 64 - (uint64_t)__builtin_clzll(block->bytes - 1) : 0;
  TIDE_TRY(spot_find(m, TIDE__SPOT_SIZE, 0, block->stream, block->bytes, &block->spots[TIDE__SPOT_SIZE]));
  TIDE_TRY(spot_find(m, TIDE__SPOT_POWER, 0, block->stream, power, &block->spots[TIDE__SPOT_POWER]));
  return spot_find(m, TIDE__SPOT_STREAM, 0, block->stream, 0, &block->spots[TIDE__SPOT_STREAM]);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static tide_status life_take(measure_pass* pass, uint32_t* out) {
  *out = pass->unused;
  if (*out != 0) {
    pass->unused = pass->lives[*out - 1].next;
    return TIDE_OK;
  }
  void* lives = pass->lives;
  const bool has_room = tide__heap_grow(pass->measure->run->heap, &lives, &pass->life_room,
                                        pass->life_count + 1, sizeof *pass->lives);
  pass->lives = lives;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu blocks", pass->life_count + 1);
  *out = (uint32_t)++pass->life_count;
  return TIDE_OK;
}

// The program frees a block: its life counts, if it began in a whole step.
static void life_release(measure_pass* pass, life* l) {
  if (l->is_released) return;
  l->is_released = true;
  if (pass->is_over || l->block.born == BORN_BEFORE) return;
  const uint32_t age = pass->now - l->block.born;
  for (size_t i = 0; i < TIDE__SPOT_LEVELS; i++) {
    if (l->block.spots[i] == 0) continue;
    tide__spot* const spot = &pass->measure->spots[l->block.spots[i] - 1];
    spot->longest = age > spot->longest ? age : spot->longest;
  }
}

static void block_complete(measure_pass* pass, uint64_t address) {
  const uint32_t number = (uint32_t)tide__hash_map_take(&pass->blocks, address);
  if (number == 0) return;
  life* const l = &pass->lives[number - 1];
  life_release(pass, l);
  pass->live -= l->rounded;
  *l = (life){ .next = pass->unused };
  pass->unused = number;
}

static void block_request_free(measure_pass* pass, uint64_t address) {
  const uint32_t number = (uint32_t)tide__hash_map_find(&pass->blocks, address);
  if (number != 0) life_release(pass, &pass->lives[number - 1]);
}

// A block that is still there, in a recording that contradicts itself, is replaced.
static tide_status block_add(measure_pass* pass, uint64_t address, const tide__survivor* block) {
  uint32_t number = 0;
  block_complete(pass, address);
  TIDE_REQUIRE(tide__hash_map_has_room(&pass->blocks) ||
                   tide__hash_map_reserve(&pass->blocks, 2 * pass->blocks.count + 64),
               TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu blocks", pass->blocks.count + 1);
  TIDE_TRY(life_take(pass, &number));
  life* const l = &pass->lives[number - 1];
  *l = (life){ .block = *block, .rounded = tide__request_bytes(block->bytes) };
  (void)tide__hash_map_put(&pass->blocks, address, number);
  pass->live += l->rounded;
  return TIDE_OK;
}

static tide_status entry_alloc(measure_pass* pass, const tide_trace_entry* e) {
  tide__survivor block = { .bytes = e->bytes, .stream = e->stream, .stack = e->stack, .born = pass->now };
  const bool is_judged = pass->now != BORN_BEFORE && !pass->is_over;
  if (is_judged) TIDE_TRY(block_find_spots(pass->measure, &block));
  return block_add(pass, e->address, &block);
}

// ---------------------------------------------------------------------------------------------------
// What existed before the first entry

typedef struct before_visit {
  measure_pass* pass;
  tide_status status;
} before_visit;

static bool before_add(void* user, const tide_ledger_block* block) {
  before_visit* const visit = user;
  if (block->state == TIDE_BLOCK_INACTIVE) return true;
  const tide__survivor before = { .bytes = block->requested_bytes, .born = BORN_BEFORE };
  visit->status = block_add(visit->pass, block->address, &before);
  return visit->status == TIDE_OK;
}

static tide_status pass_begin(measure_pass* pass, tide_ledger* ledger) {
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  if (faults.is_from_start) return TIDE_OK;
  before_visit visit = { pass, TIDE_OK };
  TIDE_TRY(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));
  pass->reserved = tide_ledger_get_totals(ledger).reserved_bytes;
  tide_ledger_visit(ledger, NULL, before_add, &visit);
  return visit.status;
}

// ---------------------------------------------------------------------------------------------------
// The pass

static tide_status pass_entry(measure_pass* pass, const tide_trace_entry* e) {
  switch (e->action) {
    case TIDE_ACTION_ALLOC: return entry_alloc(pass, e);
    case TIDE_ACTION_FREE_REQUESTED: block_request_free(pass, e->address); break;
    case TIDE_ACTION_FREE_COMPLETED: block_complete(pass, e->address); break;
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_MAP: pass->reserved += e->bytes; break;
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_UNMAP:
      pass->reserved -= e->bytes < pass->reserved ? e->bytes : pass->reserved;
      break;
    default: break;
  }
  return TIDE_OK;
}

static tide_status pass_keep_survivors(measure_pass* pass) {
  tide__measure* const m = pass->measure;
  size_t count = 0;
  for (size_t i = 0; i < pass->life_count; i++) {
    const life* const l = &pass->lives[i];
    count += l->rounded != 0 && !l->is_released && l->block.born != BORN_BEFORE;
  }
  if (count == 0) return TIDE_OK;
  m->survivors = tide__heap_alloc(m->run->heap, count, sizeof *m->survivors);
  TIDE_REQUIRE(m->survivors != NULL, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu blocks", count);
  m->survivor_room = count;
  for (size_t i = 0; i < pass->life_count; i++) {
    const life* const l = &pass->lives[i];
    if (l->rounded != 0 && !l->is_released && l->block.born != BORN_BEFORE)
      m->survivors[m->survivor_count++] = l->block;
  }
  return TIDE_OK;
}

static tide_status pass_step(measure_pass* pass, uint64_t first, uint64_t end, bool is_whole) {
  tide_step step = {
    .first = first, .end = end, .is_whole = is_whole, .peak_at = first, .live_before = pass->live
  };
  if (first == end) return TIDE_OK;
  for (uint64_t i = first; i < end; i++) {
    TIDE_TRY(pass_entry(pass, &pass->measure->run->entries[i]));
    if (pass->live > step.peak_bytes) {
      step.peak_bytes = pass->live;
      step.peak_at = i;
    }
    if (pass->reserved > step.reserved_bytes) step.reserved_bytes = pass->reserved;
  }
  step.live_bytes = pass->live;
  pass->measure->steps[pass->measure->step_count++] = step;
  return TIDE_OK;
}

static tide_status pass_run(measure_pass* pass) {
  const tide__cuts* const cuts = pass->measure->cuts;
  TIDE_TRY(pass_step(pass, 0, cuts->items[0], false));
  for (size_t i = 0; i + 1 < cuts->count; i++) {
    pass->now = (uint32_t)i;
    TIDE_TRY(pass_step(pass, cuts->items[i], cuts->items[i + 1], true));
  }
  TIDE_TRY(pass_keep_survivors(pass));
  pass->is_over = true;
  return pass_step(pass, cuts->items[cuts->count - 1], pass->measure->run->count, false);
}

tide_status tide__measure_run(tide__measure* measure, tide_ledger* ledger) {
  const tide_heap* const heap = measure->run->heap;
  measure_pass pass = { .measure = measure, .now = BORN_BEFORE };
  tide__hash_map_init(&pass.blocks, heap);
  tide__hash_map_init(&measure->numbers, heap);
  tide_status status = pass_begin(&pass, ledger);
  if (status == TIDE_OK) status = pass_run(&pass);
  tide__hash_map_fini(&pass.blocks);
  tide__heap_release(heap, pass.lives, pass.life_room, sizeof *pass.lives);
  return status;
}

void tide__measure_fini(tide__measure* measure) {
  const tide_heap* const heap = measure->run->heap;
  tide__hash_map_fini(&measure->numbers);
  tide__heap_release(heap, measure->spots, measure->spot_room, sizeof *measure->spots);
  tide__heap_release(heap, measure->survivors, measure->survivor_room, sizeof *measure->survivors);
}

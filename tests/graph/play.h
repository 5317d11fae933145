// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs the graph of a model on a planner with byte patterns instead of numbers. Each node first checks that
// its inputs still hold their bytes, then fills its outputs with new ones. Views point into their sources,
// containers hold their elements, loops take 0 to 3 iterations, MAY_SKIP nodes skip, in-place outputs
// overwrite their inputs, and some runs are cancelled. Outputs are checked again after the run, and as long
// as their generation is in use.
//
// All decisions follow from the seed, the run and the names of the values, so a graph that was made
// smaller, or printed and pasted, still runs as before.
#ifndef TIDEMARK_TESTS_GRAPH_PLAY_H
#define TIDEMARK_TESTS_GRAPH_PLAY_H

#include "memory/memory_table.h"
#include "graph/model.h"

#define PLAY_PARTS 24
#define PLAY_KEPT 1024
#define PLAY_SCRAPS 4096

// Bytes that a value holds: those of a pattern, from `shift` on.
typedef struct play_part {
  uint8_t* address;
  size_t bytes;
  uint64_t pattern;
  size_t shift;
  uint32_t owner;  // the value that it was allocated for; TIDE_GRAPH_NONE: memory of the program itself
} play_part;

// A tensor has one part, or none if it was skipped; a container has those of its elements.
typedef struct play_value {
  play_part parts[PLAY_PARTS];
  uint32_t count;
} play_value;

// An output of an earlier run that must not change.
typedef struct play_kept {
  play_part part;
  uint64_t generation;  // 0: until the next run begins; UINT64_MAX: it was taken
} play_kept;

typedef struct play {
  const model* m;
  uint64_t seed;
  tide_graph_options options;
  tide_planner* planner;
  table memory;
  uint32_t run;
  uint64_t shape;
  bool is_presized;
  uint32_t nodes_left;          // until the run is cancelled; UINT32_MAX: never
  bool is_over;                 // the run is cancelled, or a check failed
  char fault[300];              // the failed check; "": none
  uint32_t turns[MODEL_NODES];  // that each node has had in this run
  play_value values[MODEL_VALUES];
  play_kept kept[PLAY_KEPT];
  uint32_t kept_count;
  void* scraps[PLAY_SCRAPS];  // owned; memory of the program itself
  uint32_t scrap_count;
  uint64_t covers;  // outputs that were written over an input
  uint64_t planned;
  uint64_t swapped;  // storages that the program swapped
} play;

// ---------------------------------------------------------------------------------------------------
// Decisions and faults

static inline uint64_t play_mix(uint64_t a, uint64_t b) {
  t_rng rng = { a ^ (b * 0xd1342543de82ef95u) };
  return t_rng_next(&rng);
}

static inline uint64_t play_name(const model* m, uint32_t value) {
  uint64_t hash = 0;
  for (const char* c = m->names[value]; *c != '\0'; c++) hash = play_mix(hash, (uint64_t)*c);
  return hash;
}

// A number below `limit` for something about a value in this run.
static inline uint64_t play_decide(const play* p, uint32_t value, uint64_t what, uint64_t limit) {
  const uint32_t maker = model_maker(p->m, value);
  const uint64_t turn = maker == TIDE_GRAPH_NONE ? 0 : p->turns[maker];
  return play_mix(play_mix(p->seed, play_name(p->m, value)), play_mix(p->run, what * 64 + turn)) % limit;
}

__attribute__((format(printf, 2, 3))) static inline void play_fail(play* p, const char* format, ...) {
  va_list list;
  p->is_over = true;
  if (p->fault[0] != '\0') return;
  va_start(list, format);
  (void)vsnprintf(p->fault, sizeof p->fault, format, list);
  va_end(list);
}

static inline bool play_ok(play* p, const char* what, tide_status status) {
  if (status != TIDE_OK) play_fail(p, "run %u: %s: %s", p->run, what, tide_last_error()->text);
  return status == TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Bytes

static inline uint8_t play_byte(const play_part* part, size_t i) {
  return (uint8_t)((part->pattern + part->shift + i) * 0x9e3779b97f4a7c15u >> 56);
}

static inline void play_write(const play_part* part) {
  for (size_t i = 0; i < part->bytes; i++) part->address[i] = play_byte(part, i);
}

static inline bool play_is_right(const play_part* part) {
  for (size_t i = 0; i < part->bytes; i++) {
    if (part->address[i] != play_byte(part, i)) return false;
  }
  return true;
}

static inline void play_verify(play* p, uint32_t value, const char* when) {
  for (uint32_t i = 0; i < p->values[value].count; i++) {
    if (!play_is_right(&p->values[value].parts[i]))
      play_fail(p, "run %u: the bytes of %s were damaged %s", p->run, p->m->names[value], when);
  }
}

static inline void play_verify_all(play* p, const model_ports* values, const char* when) {
  for (uint32_t i = 0; i < values->count; i++) play_verify(p, values->at[i], when);
}

static inline void play_gather(play_value* to, const play_value* from) {
  for (uint32_t i = 0; i < from->count && to->count < PLAY_PARTS; i++)
    to->parts[to->count++] = from->parts[i];
}

static inline bool play_meet(const play_part* a, const play_part* b) {
  return a->bytes != 0 && b->bytes != 0 && a->address < b->address + b->bytes &&
         b->address < a->address + a->bytes;
}

// Memory of the program, kept until the graph is freed.
static inline uint8_t* play_scrap(play* p, size_t bytes) {
  T_LT(p->scrap_count, PLAY_SCRAPS);
  void* const memory = malloc(bytes + 1);
  T_CHECK(memory != NULL);
  p->scraps[p->scrap_count++] = memory;
  return memory;
}

// ---------------------------------------------------------------------------------------------------
// Outputs of nodes

// The size of a value: mostly the same in all runs of the shape, sometimes another one, sometimes 0.
static inline size_t play_bytes(const play* p, uint32_t value) {
  const uint64_t usual = play_mix(play_mix(p->seed, play_name(p->m, value)), p->shape + 1000);
  const uint64_t dice = play_decide(p, value, 1, 24);
  if (dice == 0) return 0;
  if (dice < 3) return (size_t)play_decide(p, value, 2, 700);
  if (p->seed % 3 == 0) return (size_t)(100 + 50 * p->shape);
  return usual % 20 == 0 ? 0 : (size_t)(1 + usual % 300);
}

static inline void play_put(play* p, uint32_t value, play_part part) {
  p->values[value].parts[0] = part;
  p->values[value].count = 1;
}

static inline void play_adopt(play* p, uint32_t value, play_part part) {
  play_put(p, value, part);
  (void)play_ok(p, "adopt", tide_planner_adopt(p->planner, value, part.address, part.bytes));
}

// Checks what the planner says of a value that it has just allocated.
static inline void play_check_storage(play* p, uint32_t value, const uint8_t* address, size_t bytes) {
  const tide_storage* const storage = tide_planner_storage(p->planner, value);
  if (storage->address != address || storage->bytes != bytes)
    play_fail(p, "the storage tells of something else");
  if ((address == NULL) != (bytes == 0)) play_fail(p, "no memory for %zu bytes", bytes);
  if ((uintptr_t)address % p->options.alignment != 0) play_fail(p, "an address that is not aligned");
  const bool is_inside = tide_planner_is_inside(p->planner, address) ||
                         tide_planner_is_managed_output(p->planner, address);
  if (bytes != 0 && storage->is_planned != is_inside) play_fail(p, "planned, and not inside, or not planned");
  p->planned += storage->is_planned;
}

static inline void play_own(play* p, uint32_t value, bool is_written_out) {
  const uint32_t maker = model_maker(p->m, value);
  const uint64_t pattern = play_mix(play_decide(p, value, 3, UINT64_MAX), p->turns[maker]);
  play_part part = { .bytes = play_bytes(p, value), .pattern = pattern, .owner = value };
  void* address = NULL;
  if (!is_written_out && play_decide(p, value, 4, 2) == 0) {
    part.address = play_scrap(p, part.bytes);
    part.owner = TIDE_GRAPH_NONE;
    play_adopt(p, value, part);
    return;
  }
  const bool is_in_turns = maker != TIDE_GRAPH_NONE && p->m->nodes[maker].block != TIDE_GRAPH_ROOT;
  if (!is_in_turns && play_decide(p, value, 5, 10) == 0)
    (void)play_ok(p, "alloc", tide_planner_alloc(p->planner, value, part.bytes / 2 + 1, &address));
  (void)play_ok(p, "alloc", tide_planner_alloc(p->planner, value, part.bytes, &address));
  if (p->is_over) return;
  part.address = address;
  play_check_storage(p, value, address, part.bytes);
  // The program may swap the storage without a call.
  if (!is_in_turns && tide_planner_role(p->planner, value) == TIDE_ROLE_MANAGED && part.bytes != 0 &&
      play_decide(p, value, 12, 16) == 0) {
    tide_storage* const storage = tide_planner_storage(p->planner, value);
    storage->address = part.address = play_scrap(p, part.bytes);
    part.owner = TIDE_GRAPH_NONE;
    p->swapped++;
  }
  play_put(p, value, part);
}

// A part of what may be shared, from some byte on.
static inline void play_show(play* p, uint32_t value, const play_value* shared, bool is_whole) {
  play_part part = shared->parts[play_decide(p, value, 6, shared->count)];
  const size_t from = is_whole ? 0 : (size_t)play_decide(p, value, 7, part.bytes + 1);
  part.address += from;
  part.shift += from;
  part.bytes -= from;
  play_adopt(p, value, part);
}

// What an output may share memory with: inputs, and what blocks of the node have handed out.
static inline void play_find_shared(const play* p, const model_node* node, uint32_t output,
                                    play_value* shared) {
  for (uint32_t i = 0; i < node->inputs.count; i++) {
    const uint32_t input = node->inputs.at[i];
    if ((node->flags & TIDE_NODE_ALIASES_ALL) != 0 || model_is_pair(&node->aliases, input, output))
      play_gather(shared, &p->values[input]);
  }
}

static inline bool play_is_reported(const uint32_t* values, size_t count, uint32_t value) {
  for (size_t i = 0; i < count && i < MODEL_PORTS; i++) {
    if (values[i] == value) return true;
  }
  return false;
}

// A node breaks its promise and puts an output where an input is. The guard must find it if it lies in the
// arena.
static inline void play_break_promise(play* p, const model_node* node, uint32_t output) {
  const play_value* const input = &p->values[node->inputs.at[0]];
  uint32_t values[MODEL_PORTS];
  size_t count = 0;
  if (input->count == 0 || input->parts[0].bytes == 0) return;
  play_adopt(p, output, input->parts[0]);
  (void)play_ok(p, "guard",
                tide_planner_guard(p->planner, (uint32_t)(node - p->m->nodes), values, MODEL_PORTS, &count));
  const bool is_first = p->run == 0 && !p->is_presized;
  const bool must_find = is_first || tide_planner_is_inside(p->planner, input->parts[0].address);
  if (must_find && !play_is_reported(values, count, output))
    play_fail(p, "run %u: the guard does not find %s", p->run, p->m->names[output]);
}

// An output that is skipped this time, though it may exist from the iteration before.
static inline bool play_skip(play* p, const model_node* node, uint32_t output) {
  void* nothing = NULL;
  if (p->turns[node - p->m->nodes] > 0)
    (void)play_ok(p, "alloc", tide_planner_alloc(p->planner, output, 0, &nothing));
  return false;
}

// Decides what an output is, and gets memory if it has its own; true if it is to be written.
static inline bool play_output(play* p, const model_node* node, uint32_t output, const play_value* given) {
  const tide_graph_kind kind = p->m->kinds[output];
  const bool borrows = (node->flags & TIDE_NODE_BORROWS) != 0;
  play_value shared = *given;
  p->values[output].count = 0;
  play_find_shared(p, node, output, &shared);
  if (kind == TIDE_KIND_CONTAINER || kind == TIDE_KIND_OBJECT) play_gather(&p->values[output], &shared);
  if (kind != TIDE_KIND_TENSOR) return false;
  if ((node->flags & TIDE_NODE_MAY_SKIP) != 0 && play_decide(p, output, 8, 3) == 0)
    return play_skip(p, node, output);
  if (shared.count > 0 && (borrows || play_decide(p, output, 9, 3) > 0)) {
    play_show(p, output, &shared, borrows);
    return false;
  }
  if (borrows) return play_skip(p, node, output);
  if ((node->flags & TIDE_NODE_GUARDED) != 0 && node->inputs.count > 0 && play_decide(p, output, 10, 4) == 0)
    play_break_promise(p, node, output);
  play_own(p, output, (node->flags & TIDE_NODE_WRITES_OUT) != 0);
  return !p->is_over;
}

// Does an output overwrite this input, and may it? They must begin together.
static inline bool play_covers(play* p, const model_node* node, uint32_t output, uint32_t input) {
  const play_value* const held = &p->values[input];
  const play_part* const part = &p->values[output].parts[0];
  for (uint32_t i = 0; i < held->count; i++) {
    if (!play_meet(&held->parts[i], part)) continue;
    if (p->m->kinds[input] == TIDE_KIND_TENSOR && model_is_pair(&node->over, input, output) &&
        held->parts[i].address == part->address)
      return true;
    play_fail(p, "run %u: %s lies over %s", p->run, p->m->names[output], p->m->names[input]);
  }
  return false;
}

// Writes the outputs that have memory of their own. Then all must hold what was written, and all inputs but
// those that were written over what they held before.
static inline void play_write_outputs(play* p, const model_node* node, const bool* is_written) {
  bool is_covered[MODEL_PORTS] = { false };
  for (uint32_t k = 0; k < node->outputs.count && !p->is_over; k++) {
    for (uint32_t i = 0; i < node->inputs.count && is_written[k]; i++) {
      if (!play_covers(p, node, node->outputs.at[k], node->inputs.at[i])) continue;
      is_covered[i] = true;
      p->covers++;
    }
  }
  for (uint32_t k = 0; k < node->outputs.count && !p->is_over; k++) {
    if (is_written[k]) play_write(&p->values[node->outputs.at[k]].parts[0]);
  }
  for (uint32_t k = 0; k < node->outputs.count && !p->is_over; k++) {
    if (is_written[k]) play_verify(p, node->outputs.at[k], "by another output of its node");
  }
  for (uint32_t i = 0; i < node->inputs.count && !p->is_over; i++) {
    if (!is_covered[i]) play_verify(p, node->inputs.at[i], "by the node that reads it");
  }
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static inline void play_block(play* p, uint32_t block);

// What a turn hands to the next must be copied, unless a node of this very block has got the memory in this
// turn: what came in with the turn, or out of a block inside, may be taken for something else.
static inline bool play_must_copy(const play* p, const model_block* block, const play_part* part) {
  const uint32_t number = (uint32_t)(block - p->m->blocks);
  if (part->owner != TIDE_GRAPH_NONE && p->m->nodes[model_maker(p->m, part->owner)].block != number)
    return true;
  for (uint32_t i = 0; i < block->inputs.count; i++) {
    const play_value* const input = &p->values[block->inputs.at[i]];
    if (input->count > 0 && play_meet(&input->parts[0], part)) return true;
  }
  return false;
}

// Inputs of a block are inputs of its node, or what the turn before has handed out, as it is or copied.
static inline void play_enter(play* p, const model_node* node, const model_block* block, bool is_first_turn) {
  play_value around = { .count = 0 };
  play_value next[MODEL_PORTS];
  for (uint32_t i = 0; i < node->inputs.count; i++) play_gather(&around, &p->values[node->inputs.at[i]]);
  for (uint32_t i = 0; i < block->inputs.count; i++) {
    const uint32_t input = block->inputs.at[i];
    const bool is_carried = !is_first_turn && block->outputs.count > 0;
    const play_value* const from = is_carried ? &p->values[block->outputs.at[i % block->outputs.count]]
                                              : &around;
    next[i].count = 0;
    if (from->count == 0) continue;
    play_part part = from->parts[play_decide(p, input, 11, from->count)];
    if (is_carried && (play_decide(p, input, 16, 2) == 0 || play_must_copy(p, block, &part))) {
      part.address = play_scrap(p, part.bytes);
      part.owner = TIDE_GRAPH_NONE;
      play_write(&part);
    }
    next[i].parts[0] = part;
    next[i].count = 1;
  }
  for (uint32_t i = 0; i < block->inputs.count && !p->is_over; i++) {
    p->values[block->inputs.at[i]].count = 0;
    if (next[i].count > 0) play_adopt(p, block->inputs.at[i], next[i].parts[0]);
  }
}

static inline void play_turn(play* p, const model_node* node, uint32_t block, bool is_first_turn,
                             play_value* given) {
  play_enter(p, node, &p->m->blocks[block], is_first_turn);
  if (!p->is_over) play_block(p, block);
  given->count = 0;
  for (uint32_t i = 0; i < p->m->blocks[block].outputs.count; i++)
    play_gather(given, &p->values[p->m->blocks[block].outputs.at[i]]);
}

// A node with one block is a loop; of several blocks one is at work, and now and then another one after it.
// What the node hands on is of the block that was at work last.
static inline void play_blocks(play* p, const model_node* node, play_value* given) {
  uint32_t blocks[MODEL_BLOCKS];
  uint32_t count = 0;
  for (uint32_t i = 1; i < p->m->block_count; i++) {
    if (&p->m->nodes[p->m->blocks[i].node] == node) blocks[count++] = i;
  }
  if (count == 0) return;
  const uint32_t key = node->outputs.count > 0 ? node->outputs.at[0] : 0;
  const uint64_t turns = count == 1 ? play_decide(p, key, 12, 4) : 1 + (play_decide(p, key, 13, 4) == 0);
  for (uint64_t turn = 0; turn < turns && !p->is_over; turn++) {
    const uint32_t block = blocks[(play_decide(p, key, 14, count) + turn) % count];
    play_turn(p, node, block, turn == 0 || count > 1, given);
  }
}

static inline void play_node(play* p, uint32_t number) {
  const model_node* const node = &p->m->nodes[number];
  bool is_written[MODEL_PORTS] = { false };
  play_value given = { .count = 0 };
  if (p->nodes_left-- == 0) p->is_over = true;
  if (p->options.has_audits && !p->is_over) (void)play_ok(p, "check", tide_planner_check(p->planner, number));
  if (!p->is_over) play_verify_all(p, &node->inputs, "before they were read");
  if (!p->is_over) play_blocks(p, node, &given);
  for (uint32_t i = 0; i < node->outputs.count && !p->is_over; i++)
    is_written[i] = play_output(p, node, node->outputs.at[i], &given);
  if (!p->is_over) play_write_outputs(p, node, is_written);
  p->turns[number]++;
}

static inline void play_block(play* p, uint32_t block) {
  for (uint32_t i = 0; i < p->m->node_count && !p->is_over; i++) {
    if (p->m->nodes[i].block == block) play_node(p, i);
  }
  if (!p->is_over) play_verify_all(p, &p->m->blocks[block].outputs, "before they were handed out");
}

// ---------------------------------------------------------------------------------------------------
// Outputs of runs

static inline void play_keep(play* p, play_part part, uint64_t generation) {
  T_LT(p->kept_count, PLAY_KEPT);
  p->kept[p->kept_count++] = (play_kept){ part, generation };
}

static inline void play_verify_kept(play* p, const char* when) {
  for (uint32_t i = 0; i < p->kept_count; i++) {
    if (!play_is_right(&p->kept[i].part)) {
      play_fail(p, "run %u: an output of a generation (%" PRIu64 ") was damaged %s", p->run,
                p->kept[i].generation, when);
    }
  }
}

// Looks no longer after the outputs of a generation.
static inline void play_drop(play* p, uint64_t generation) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < p->kept_count; i++) {
    if (p->kept[i].generation != generation) p->kept[left++] = p->kept[i];
  }
  p->kept_count = left;
}

static inline void play_release(play* p, uint64_t generation) {
  play_verify_kept(p, "before it was released");
  play_drop(p, generation);
  (void)play_ok(p, "release", tide_planner_drop_outputs(p->planner, generation));
}

// Sometimes takes an output that has memory of its own.
static inline void play_take(play* p, uint32_t value) {
  const play_part part = p->values[value].parts[0];
  void* taken = NULL;
  if (p->m->kinds[value] != TIDE_KIND_TENSOR || p->values[value].count == 0 || part.bytes == 0) return;
  if (play_decide(p, value, 15, 4) > 0 || tide_planner_take(p->planner, value, &taken) != TIDE_OK) return;
  if (taken != part.address) play_fail(p, "what was taken is something else");
  // Views of it that are outputs too go on showing it.
  play_keep(p, part, UINT64_MAX);
}

// After the end of a run: all outputs are right, and those of a generation are looked at from now on.
static inline void play_keep_outputs(play* p) {
  const model_ports* const outputs = &p->m->blocks[0].outputs;
  const uint64_t generation = tide_planner_generation(p->planner);
  play_verify_all(p, outputs, "by the end of the run");
  for (uint32_t i = 0; i < outputs->count && !p->is_over; i++) {
    const play_value* const output = &p->values[outputs->at[i]];
    for (uint32_t k = 0; k < output->count; k++) {
      const bool is_kept = output->parts[k].bytes != 0 &&
                           tide_planner_is_managed_output(p->planner, output->parts[k].address);
      play_keep(p, output->parts[k], is_kept ? generation : 0);
    }
  }
  for (uint32_t i = 0; i < outputs->count && !p->is_over; i++) play_take(p, outputs->at[i]);
  play_verify_all(p, outputs, "by being taken");
  const bool is_done = p->options.output_generations == 1 || play_mix(p->seed, p->run) % 3 > 0;
  if (generation == 0 || !is_done || p->is_over) return;
  (void)play_ok(p, "retain", tide_planner_retain_outputs(p->planner, generation));
  (void)play_ok(p, "release", tide_planner_drop_outputs(p->planner, generation));
  play_release(p, generation);
}

// ---------------------------------------------------------------------------------------------------
// Runs

static inline void play_externals(play* p) {
  const model_ports* const sides[] = { &p->m->blocks[0].inputs, &p->m->constants };
  for (size_t i = 0; i < 2; i++) {
    for (uint32_t k = 0; k < sides[i]->count; k++) {
      const uint32_t value = sides[i]->at[k];
      play_part part = { .bytes = 1 + play_bytes(p, value), .pattern = play_decide(p, value, 3, UINT64_MAX) };
      part.owner = TIDE_GRAPH_NONE;
      part.address = play_scrap(p, part.bytes);
      play_write(&part);
      play_adopt(p, value, part);
    }
  }
}

static inline void play_end(play* p) {
  const bool is_given_up = p->is_over;
  if (p->fault[0] != '\0') return;
  p->is_over = false;
  if (is_given_up) {
    (void)play_ok(p, "cancel", tide_planner_cancel(p->planner));
  } else {
    play_verify_all(p, &p->m->escapes, "while something else held them");
    play_verify_all(p, &p->m->blocks[0].inputs, "though they are inputs");
    (void)play_ok(p, "end", tide_planner_end(p->planner));
    if (!p->is_over) play_keep_outputs(p);
  }
  if (tide_planner_leak(p->planner) != TIDE_GRAPH_NONE)
    play_fail(p, "run %u: %s leaks", p->run, p->m->names[tide_planner_leak(p->planner)]);
  play_verify_kept(p, "by a later run");
}

static inline void play_one_run(play* p, uint32_t run) {
  p->run = run;
  p->shape = play_mix(p->seed, run * 7 + 1) % 4 / 3;
  p->nodes_left = play_mix(p->seed, run * 7 + 2) % 8 == 0 ? (uint32_t)(play_mix(p->seed, run) % 8)
                                                          : UINT32_MAX;
  memset(p->turns, 0, sizeof p->turns);
  memset(p->values, 0, sizeof p->values);
  play_verify_kept(p, "between runs");
  play_drop(p, 0);
  if (!play_ok(p, "begin", tide_planner_begin(p->planner, p->shape))) return;
  play_externals(p);
  play_block(p, TIDE_GRAPH_ROOT);
  play_end(p);
}

// Sometimes announces sizes before the first run.
static inline void play_presize(play* p) {
  uint64_t bytes[MODEL_VALUES];
  if (play_mix(p->seed, 99) % 4 > 0) return;
  p->is_presized = true;
  for (uint32_t i = 0; i < p->m->value_count; i++) bytes[i] = play_bytes(p, i);
  (void)play_ok(p, "presize", tide_planner_presize(p->planner, 0, bytes, p->m->value_count));
}

static inline void play_finish(play* p) {
  uint32_t taken = 0;
  tide_planner_free(p->planner);
  for (uint32_t i = 0; i < p->kept_count; i++) {
    if (p->kept[i].generation != UINT64_MAX) continue;
    if (!play_is_right(&p->kept[i].part)) play_fail(p, "what was taken was damaged");
    (void)p->memory.memory.release(&p->memory.memory, p->kept[i].part.address);
    taken++;
  }
  if (p->memory.count != 0)
    play_fail(p, "%zu pieces of memory are lost (%u were taken)", p->memory.count, taken);
  for (uint32_t i = 0; i < p->scrap_count; i++) free(p->scraps[i]);
  table_fini(&p->memory);
}

// Runs a graph several times. Afterwards `fault` describes the first failed check.
static inline void play_graph(play* p, const model* m, uint64_t seed, tide_graph_options options,
                              uint32_t runs) {
  tide_graph* graph = NULL;
  memset(p, 0, sizeof *p);
  p->m = m;
  p->seed = seed;
  table_init(&p->memory);
  p->memory.keeps = true;
  options.memory = p->memory.memory;
  p->options = options;
  if (play_ok(p, "new", tide_graph_new(NULL, &graph)) && play_ok(p, "graph", model_put(m, graph)) &&
      play_ok(p, "planner", tide_planner_new(graph, &p->options, &p->planner))) {
    play_presize(p);
    for (uint32_t run = 0; run < runs && !p->is_over; run++) {
      play_one_run(p, run);
      if (play_mix(seed, run + 500) % 40 == 0 && !p->is_over)
        (void)play_ok(p, "disable", tide_planner_disable_outputs(p->planner));
    }
  }
  play_finish(p);
  tide_graph_free(graph);
}

#endif

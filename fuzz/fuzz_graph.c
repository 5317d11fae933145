// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the graph planner. A graph is built from bytes: values, nodes, aliases, blocks inside nodes, some
// with invalid numbers. If it is sealed, it is laid out with any sizes under every algorithm, and by random
// offsets, which are mostly refused. A check of every pair finds values that overlap in time and memory
// without permission of their node. Then the graph is run: every reader must find a value's bytes, a view may
// be where the graph says so, and outputs stay until their generation is released. Meanwhile sizes change,
// memory fails, runs are cancelled, and other calls come in any order. Nothing is left at the end.
//
// The bytes: the building (see fuzz_build), options, sizes for the layouts, then runs (see fuzz_run_planner).
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "graph/graph_parts.h"
#include "tidemark/graph.h"

enum {
  FUZZ_VALUES = 48,
  FUZZ_NODES = 24,
  FUZZ_BLOCKS = 10,
  FUZZ_ENDS = 4,   // inputs or outputs of a node
  FUZZ_PARTS = 8,  // inputs or outputs of a block
  FUZZ_REFERENCES = 4,
  FUZZ_RUNS = 6,
  FUZZ_KEPT = 16,
  FUZZ_TAKEN = 256,
  FUZZ_STEPS = 4000,      // nodes that are run
  FUZZ_LARGEST = 1 << 17  // the memory gives no more at once
};

// ---------------------------------------------------------------------------------------------------
// Bytes

static uint64_t fuzz_take_size(fuzz_bytes* b) {
  static const uint64_t far[] = { 0,
                                  1,
                                  1000000,
                                  UINT32_MAX,
                                  (uint64_t)1 << 40,
                                  (uint64_t)1 << 55,
                                  (uint64_t)1 << 60,
                                  ((uint64_t)1 << 61) - 1,
                                  (uint64_t)1 << 61,
                                  ((uint64_t)1 << 62) - 64,
                                  ((uint64_t)1 << 62) - 1,
                                  (uint64_t)1 << 62,
                                  INT64_MAX,
                                  (uint64_t)1 << 63,
                                  UINT64_MAX - 63,
                                  UINT64_MAX };
  const uint8_t first = fuzz_take(b);
  if (first < 0xa0) return 16 * (uint64_t)first;
  if (first < 0xf0) return (uint64_t)(first - 0xa0) << 8 | fuzz_take(b);
  return far[first % 16];
}

// ---------------------------------------------------------------------------------------------------
// The graph beside the graph

typedef struct fuzz_node {
  uint32_t block;
  uint32_t inputs[FUZZ_ENDS];
  uint32_t outputs[FUZZ_ENDS];
  tide_graph_pair aliases[FUZZ_ENDS];
  tide_graph_pair in_place[FUZZ_ENDS];
  tide_graph_node told;  // what the graph was told: points to the above
} fuzz_node;

typedef struct fuzz_block {
  uint32_t node;  // around it; TIDE_GRAPH_NONE: the root has none
  uint32_t inputs[FUZZ_PARTS];
  uint32_t outputs[FUZZ_PARTS];
  size_t input_count;
  size_t output_count;
} fuzz_block;

typedef struct fuzz_net {
  tide_graph* graph;  // owned
  fuzz_node nodes[FUZZ_NODES];
  fuzz_block blocks[FUZZ_BLOCKS];
  tide_graph_kind kinds[FUZZ_VALUES];
  bool is_constant[FUZZ_VALUES];
  uint32_t node_count;
  uint32_t block_count;
  uint32_t value_count;
  uint32_t block;  // that nodes are added to
} fuzz_net;

static void fuzz_add_value(fuzz_net* n, tide_graph_kind kind) {
  uint32_t value = 0;
  if (n->value_count == FUZZ_VALUES) return;
  const tide_status status = tide_graph_add_value(n->graph, kind, &value);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
  if (status != TIDE_OK) return;
  FUZZ_REQUIRE(value == n->value_count);
  n->kinds[n->value_count++] = kind;
}

// A value of the graph, most often a late one; now and then an invalid number.
static uint32_t fuzz_take_value(fuzz_bytes* b, const fuzz_net* n) {
  const uint8_t byte = fuzz_take(b);
  if (byte >= 0xfc || n->value_count == 0) return byte == 0xff ? TIDE_GRAPH_NONE : n->value_count + byte % 4;
  return n->value_count - 1 - byte % 64 % n->value_count;
}

static bool fuzz_has(const uint32_t* values, size_t count, uint32_t value) {
  for (size_t i = 0; i < count; i++) {
    if (values[i] == value) return true;
  }
  return false;
}

static size_t fuzz_take_pairs(fuzz_bytes* b, const fuzz_node* node, size_t inputs, size_t outputs,
                              tide_graph_pair* pairs) {
  const uint8_t byte = fuzz_take(b);
  const size_t count = byte % (FUZZ_ENDS + 1);
  for (size_t i = 0; i < count; i++) {
    const uint8_t which = fuzz_take(b);
    const bool is_sense = inputs > 0 && outputs > 0 && which < 0xf8;
    pairs[i].input = is_sense ? node->inputs[which % inputs] : which % 8;
    pairs[i].output = is_sense ? node->outputs[which / 16 % outputs] : which / 8;
  }
  return count;
}

static bool fuzz_is_node(const fuzz_net* n, const fuzz_node* node, uint32_t block) {
  const tide_graph_node* const told = &node->told;
  bool is_node = block < n->block_count;
  for (size_t i = 0; i < told->input_count; i++) is_node = is_node && node->inputs[i] < n->value_count;
  for (size_t i = 0; i < told->output_count; i++) is_node = is_node && node->outputs[i] < n->value_count;
  for (size_t i = 0; i < told->alias_count; i++) {
    is_node = is_node && fuzz_has(node->inputs, told->input_count, node->aliases[i].input) &&
              fuzz_has(node->outputs, told->output_count, node->aliases[i].output);
  }
  for (size_t i = 0; i < told->in_place_count; i++) {
    is_node = is_node && fuzz_has(node->inputs, told->input_count, node->in_place[i].input) &&
              fuzz_has(node->outputs, told->output_count, node->in_place[i].output);
  }
  return is_node;
}

// Outputs are new values, unless the fuzzer wants others.
static void fuzz_take_node(fuzz_bytes* b, fuzz_net* n, uint8_t how) {
  fuzz_node* const node = &n->nodes[n->node_count];
  const uint8_t counts = fuzz_take(b);
  uint32_t number = 0;
  if (n->node_count == FUZZ_NODES || n->value_count + FUZZ_ENDS > FUZZ_VALUES) return;
  memset(node, 0, sizeof *node);
  node->told = (tide_graph_node){ .size = sizeof(tide_graph_node),
                                  .inputs = node->inputs,
                                  .input_count = counts % 4,
                                  .outputs = node->outputs,
                                  .output_count = 1 + counts / 4 % 3,
                                  .aliases = node->aliases,
                                  .in_place = node->in_place,
                                  .flags = how & 128 ? fuzz_take(b) : (uint32_t)TIDE_NODE_WRITES_OUT };
  node->block = counts >= 0xf8 ? counts % 16 : n->block;
  for (size_t i = 0; i < node->told.input_count; i++) node->inputs[i] = fuzz_take_value(b, n);
  for (size_t i = 0; i < node->told.output_count; i++) {
    node->outputs[i] = how >= 0xf8 ? fuzz_take_value(b, n) : n->value_count;
    if (how < 0xf8) fuzz_add_value(n, how & 64 ? (tide_graph_kind)(fuzz_take(b) % 6) : TIDE_KIND_TENSOR);
  }
  const size_t inputs = node->told.input_count;
  const size_t outputs = node->told.output_count;
  if (how & 8) node->told.alias_count = fuzz_take_pairs(b, node, inputs, outputs, node->aliases);
  if (how & 16) node->told.in_place_count = fuzz_take_pairs(b, node, inputs, outputs, node->in_place);
  const tide_status status = tide_graph_add_node(n->graph, node->block, &node->told, &number);
  FUZZ_REQUIRE((status == TIDE_OK) <= fuzz_is_node(n, node, node->block));
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
  if (status == TIDE_OK) FUZZ_REQUIRE(number == n->node_count++);
}

static void fuzz_take_block(fuzz_bytes* b, fuzz_net* n) {
  const uint8_t byte = fuzz_take(b);
  uint32_t block = 0;
  if (n->block_count == FUZZ_BLOCKS) return;
  const uint32_t node = byte >= 0xf8 || n->node_count == 0 ? byte : n->node_count - 1;
  const tide_status status = tide_graph_add_block(n->graph, node, &block);
  FUZZ_REQUIRE((status == TIDE_OK) == (node < n->node_count));
  if (status != TIDE_OK) return;
  FUZZ_REQUIRE(block == n->block_count);
  n->blocks[n->block_count++].node = node;
  n->block = block;
}

static void fuzz_take_mark(fuzz_bytes* b, fuzz_net* n, uint8_t how) {
  const uint32_t value = fuzz_take_value(b, n);
  const uint32_t block = how >= 0xf8 ? n->block + how % 4 : n->block;
  fuzz_block* const part = &n->blocks[block % FUZZ_BLOCKS];
  const bool is_there = value < n->value_count;
  const bool has_block = block < n->block_count;
  tide_status status = TIDE_OK;
  switch (how / 8 % 4) {
    case 0:
      if (part->input_count == FUZZ_PARTS) return;
      status = tide_graph_add_input(n->graph, block, value);
      if (status == TIDE_OK) part->inputs[part->input_count++] = value;
      FUZZ_REQUIRE(status != TIDE_OK || has_block);
      break;
    case 1:
      if (part->output_count == FUZZ_PARTS) return;
      status = tide_graph_add_output(n->graph, block, value);
      if (status == TIDE_OK) part->outputs[part->output_count++] = value;
      FUZZ_REQUIRE(status != TIDE_OK || has_block);
      break;
    case 2:
      status = tide_graph_add_constant(n->graph, value);
      if (status == TIDE_OK) n->is_constant[value] = true;
      break;
    default: status = tide_graph_add_escape(n->graph, value); break;
  }
  FUZZ_REQUIRE(status == TIDE_OK ? is_there : status == TIDE_ERR_ARGUMENT);
}

static void fuzz_build(fuzz_bytes* b, fuzz_net* n) {
  n->block_count = 1;
  n->blocks[0].node = TIDE_GRAPH_NONE;
  for (size_t left = fuzz_take(b) % 64; left > 0; left--) {
    const uint8_t how = fuzz_take(b);
    switch (how % 8) {
      case 0: fuzz_add_value(n, (tide_graph_kind)(how / 8 % 6)); break;
      case 1: fuzz_take_block(b, n); break;
      case 2:
        if (n->block > 0) n->block = n->nodes[n->blocks[n->block].node].block;
        break;
      case 3:
      case 4: fuzz_take_mark(b, n, how); break;
      default: fuzz_take_node(b, n, how); break;
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Layouts

static bool fuzz_is_over_input(const fuzz_net* n, const tide_graph_options* options, uint32_t input,
                               uint32_t output) {
  const tide_graph_lifetime dying = tide_graph_get_lifetime(n->graph, input);
  const tide_graph_lifetime born = tide_graph_get_lifetime(n->graph, output);
  if (!options->in_place || dying.block != born.block || dying.last != born.first) return false;
  for (size_t i = 0; i < n->node_count; i++) {
    const tide_graph_node* const told = &n->nodes[i].told;
    for (size_t k = 0; k < told->in_place_count; k++) {
      if (told->in_place[k].input == input && told->in_place[k].output == output) return true;
    }
  }
  return false;
}

static void fuzz_check_pair(const fuzz_net* n, const tide_graph_options* options,
                            const tide_graph_layout* layout, uint32_t a, uint32_t b) {
  const tide_graph_place x = tide_graph_layout_place(layout, a);
  const tide_graph_place y = tide_graph_layout_place(layout, b);
  const tide__value* const first = &n->graph->values[a];
  const tide__value* const second = &n->graph->values[b];
  const bool overlap = first->begin <= second->end && second->begin <= first->end;
  if (x.group == TIDE_GRAPH_NONE || y.group == TIDE_GRAPH_NONE || x.role != y.role) return;
  const bool is_apart = x.offset >= y.offset + y.bytes || y.offset >= x.offset + x.bytes;
  if (x.role == TIDE_ROLE_MANAGED_OUTPUT) FUZZ_REQUIRE(is_apart);
  if (!overlap || is_apart) return;
  FUZZ_REQUIRE(fuzz_is_over_input(n, options, a, b) || fuzz_is_over_input(n, options, b, a));
}

static void fuzz_check_layout(const fuzz_net* n, const tide_graph_options* options, const uint64_t* bytes,
                              const tide_graph_layout* layout) {
  const tide_graph_layout_info info = tide_graph_layout_describe(layout);
  uint32_t managed = 0;
  for (uint32_t i = 0; i < n->value_count; i++) {
    const tide_graph_place place = tide_graph_layout_place(layout, i);
    const bool is_output = place.role == TIDE_ROLE_MANAGED_OUTPUT;
    if (place.group == TIDE_GRAPH_NONE) continue;
    const uint64_t limit = is_output ? info.output_bytes : info.bytes;
    FUZZ_REQUIRE(bytes[i] > 0 && (is_output || place.role == TIDE_ROLE_MANAGED));
    FUZZ_REQUIRE(place.bytes >= bytes[i] && place.bytes % options->alignment == 0);
    FUZZ_REQUIRE(place.offset % options->alignment == 0);
    FUZZ_REQUIRE(place.bytes <= limit && place.offset <= limit - place.bytes);
    managed += !is_output;
    for (uint32_t k = 0; k < i; k++) fuzz_check_pair(n, options, layout, k, i);
  }
  FUZZ_REQUIRE(managed == info.managed && info.reused == info.managed - info.groups);
  FUZZ_REQUIRE(info.over_inputs > 0 || info.bytes >= info.lower_bound);
}

// Offsets that may be right, seldom far away.
static tide_status fuzz_offsets(void* user, const tide_graph_lodging* values, size_t count,
                                uint64_t* offsets) {
  uint64_t* const state = user;
  for (size_t i = 0; i < count; i++) {
    FUZZ_REQUIRE(values[i].first <= values[i].last && values[i].bytes > 0);
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    offsets[i] = (*state >> 33) % 16 * 64;
    if (*state >> 56 == 0) offsets[i] = *state;
  }
  return TIDE_OK;
}

static void fuzz_lay_out_own(const fuzz_net* n, const tide_graph_options* like, const uint64_t* bytes,
                             uint64_t state) {
  tide_graph_options options = *like;
  tide_graph_layout* layout = NULL;
  options.on_layout = fuzz_offsets;
  options.user = &state;
  const tide_status status = tide_graph_layout_new(n->graph, &options, bytes, n->value_count, &layout);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
  if (status == TIDE_OK) fuzz_check_layout(n, &options, bytes, layout);
  tide_graph_layout_free(layout);
}

// Bytes of the arena; UINT64_MAX when the sizes are refused.
static uint64_t fuzz_lay_out(const fuzz_net* n, const tide_graph_options* options, const uint64_t* bytes) {
  tide_graph_layout* layout = NULL;
  uint64_t found = UINT64_MAX;
  uint64_t sum = 0;
  bool is_far = false;
  for (size_t i = 0; i < n->value_count; i++) {
    is_far = is_far || bytes[i] >= (uint64_t)1 << 61 || sum >= (uint64_t)1 << 61;
    sum += is_far ? 0 : bytes[i] + options->alignment;
  }
  const tide_status status = tide_graph_layout_new(n->graph, options, bytes, n->value_count, &layout);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_ARGUMENT && is_far));
  FUZZ_REQUIRE((status == TIDE_OK) == (layout != NULL));
  if (layout != NULL) {
    fuzz_check_layout(n, options, bytes, layout);
    found = tide_graph_layout_describe(layout).bytes;
  }
  tide_graph_layout_free(layout);
  return found;
}

static void fuzz_lay_out_all(fuzz_bytes* b, const fuzz_net* n, const tide_graph_options* like) {
  uint64_t bytes[FUZZ_VALUES];
  uint64_t found[TIDE_GRAPH_ALGORITHM_COUNT];
  tide_graph_options options = *like;
  for (size_t i = 0; i < FUZZ_VALUES; i++) bytes[i] = i < n->value_count ? fuzz_take_size(b) : 0;
  for (int i = 0; i < TIDE_GRAPH_ALGORITHM_COUNT; i++) {
    options.algorithm = (tide_graph_algorithm)i;
    found[i] = fuzz_lay_out(n, &options, bytes);
    FUZZ_REQUIRE(found[TIDE_GRAPH_SMALLEST] <= found[i]);
    FUZZ_REQUIRE((found[i] == UINT64_MAX) == (found[0] == UINT64_MAX));
  }
  for (uint64_t i = 0; i < 4; i++) fuzz_lay_out_own(n, like, bytes, b->left * 4 + i);
}

// ---------------------------------------------------------------------------------------------------
// Memory that is counted and fails

typedef struct fuzz_memory {
  void* blocks[FUZZ_TAKEN];
  size_t count;
  size_t calls;
  size_t failing;  // the call that fails; 0: none
  size_t heap_blocks;
  size_t heap_calls;
  size_t heap_last;  // the call that gets memory for the last time; 0: every one does
  bool has_failed;
} fuzz_memory;

static tide_status fuzz_memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  fuzz_memory* const m = memory->user;
  FUZZ_REQUIRE(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
  *out = NULL;
  m->calls++;
  if (m->calls == m->failing || bytes > FUZZ_LARGEST || m->count == FUZZ_TAKEN) {
    m->has_failed = true;
    return TIDE_ERR_NO_MEMORY;
  }
  if (alignment < sizeof(void*)) alignment = sizeof(void*);
  FUZZ_REQUIRE(posix_memalign(out, alignment, bytes) == 0);
  memset(*out, 0x5a, bytes);
  m->blocks[m->count++] = *out;
  return TIDE_OK;
}

static tide_status fuzz_memory_release(const tide_memory* memory, void* address) {
  fuzz_memory* const m = memory->user;
  size_t at = 0;
  while (at < m->count && m->blocks[at] != address) at++;
  FUZZ_REQUIRE(address != NULL && at < m->count);
  m->blocks[at] = m->blocks[--m->count];
  free(address);
  return TIDE_OK;
}

static void* fuzz_heap_alloc(void* user, size_t bytes, size_t alignment) {
  fuzz_memory* const m = user;
  void* address = NULL;
  m->heap_calls++;
  if (m->heap_last > 0 && m->heap_calls > m->heap_last) {
    m->has_failed = true;
    return NULL;
  }
  FUZZ_REQUIRE(posix_memalign(&address, alignment, bytes) == 0);
  m->heap_blocks++;
  return address;
}

static void fuzz_heap_release(void* user, void* address, size_t bytes) {
  (void)bytes;
  ((fuzz_memory*)user)->heap_blocks--;
  free(address);
}

// ---------------------------------------------------------------------------------------------------
// Running a graph

// Bytes that a value holds or refers to.
typedef struct fuzz_reference {
  uint8_t* address;
  size_t bytes;
  uint8_t stamp;
} fuzz_reference;

typedef struct fuzz_holding {
  fuzz_reference references[FUZZ_REFERENCES];
  size_t count;
  bool is_own;      // the planner gave it memory in this run
  bool is_defined;  // in this run
} fuzz_holding;

typedef struct fuzz_kept {
  fuzz_reference reference;
  uint64_t generation;
  uint32_t releases;  // until it is gone
} fuzz_kept;

typedef struct fuzz_player {
  fuzz_bytes* bytes;    // borrowed
  const fuzz_net* net;  // borrowed
  fuzz_memory memory;
  tide_heap heap;
  tide_graph_options options;
  tide_planner* planner;  // owned
  fuzz_holding holdings[FUZZ_VALUES];
  fuzz_kept kept[FUZZ_KEPT];  // outputs of generations that are in use
  size_t kept_count;
  tide_graph_reset last_reset;
  size_t steps_left;
  bool is_broken;     // a call failed: the run goes no further
  bool is_cancelled;  // resets come in another order
  uint8_t stamp;
} fuzz_player;

static void fuzz_write(const fuzz_reference* r) {
  for (size_t i = 0; i < r->bytes; i++) r->address[i] = (uint8_t)(r->stamp + i);
}

static void fuzz_check(const fuzz_reference* r) {
  for (size_t i = 0; i < r->bytes; i++) FUZZ_REQUIRE(r->address[i] == (uint8_t)(r->stamp + i));
}

static bool fuzz_touch(const fuzz_reference* a, const fuzz_reference* b) {
  return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

static void fuzz_check_value(const fuzz_player* p, uint32_t value) {
  const fuzz_holding* const holding = &p->holdings[value];
  FUZZ_REQUIRE(holding->is_defined || p->net->is_constant[value]);
  for (size_t i = 0; i < holding->count; i++) fuzz_check(&holding->references[i]);
}

// Inputs that an output was just written over, as their node permits, are gone.
static void fuzz_forget_overwritten(fuzz_player* p, const tide_graph_node* told, uint32_t output) {
  const fuzz_reference* const written = &p->holdings[output].references[0];
  for (size_t i = 0; i < told->in_place_count && p->options.in_place; i++) {
    fuzz_holding* const input = &p->holdings[told->in_place[i].input];
    if (told->in_place[i].output != output || input->count != 1 || !input->is_own) continue;
    if (fuzz_touch(written, &input->references[0])) input->count = 0;
  }
}

static void fuzz_refer(fuzz_holding* to, const fuzz_holding* from) {
  for (size_t i = 0; i < from->count && to->count < FUZZ_REFERENCES; i++)
    to->references[to->count++] = from->references[i];
}

static bool fuzz_may_share(const tide_graph_node* told, uint32_t input, uint32_t output) {
  if (told->flags & TIDE_NODE_ALIASES_ALL) return true;
  for (size_t i = 0; i < told->alias_count; i++) {
    if (told->aliases[i].input == input && told->aliases[i].output == output) return true;
  }
  return false;
}

// Makes an output refer to what it may share memory with: inputs, and outputs of the block `inside` that its
// node has run last; false if there is nothing.
static bool fuzz_make_view(fuzz_player* p, const tide_graph_node* told, uint32_t output, uint32_t inside) {
  fuzz_holding* const holding = &p->holdings[output];
  for (size_t i = 0; i < told->input_count; i++) {
    if (fuzz_may_share(told, told->inputs[i], output)) fuzz_refer(holding, &p->holdings[told->inputs[i]]);
  }
  for (size_t i = 0; inside != TIDE_GRAPH_NONE && i < p->net->blocks[inside].output_count; i++)
    fuzz_refer(holding, &p->holdings[p->net->blocks[inside].outputs[i]]);
  if (holding->count == 0) return false;
  const fuzz_reference* const first = &holding->references[0];
  const tide_status status = tide_planner_adopt(p->planner, output, first->address, first->bytes);
  p->is_broken = p->is_broken || status != TIDE_OK;
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && p->memory.has_failed));
  return true;
}

static void fuzz_make_value(fuzz_player* p, const tide_graph_node* told, uint32_t output, size_t bytes) {
  fuzz_holding* const holding = &p->holdings[output];
  void* address = NULL;
  const tide_status status = tide_planner_alloc(p->planner, output, bytes, &address);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && p->memory.has_failed));
  p->is_broken = p->is_broken || status != TIDE_OK;
  if (status != TIDE_OK || bytes == 0) {
    FUZZ_REQUIRE(address == NULL);
    return;
  }
  FUZZ_REQUIRE(address != NULL && (uintptr_t)address % p->options.alignment == 0);
  holding->references[0] = (fuzz_reference){ address, bytes, p->stamp++ };
  holding->count = 1;
  holding->is_own = true;
  fuzz_forget_overwritten(p, told, output);
}

static void fuzz_run_block(fuzz_player* p, uint32_t block);

// The inputs of a block refer to inputs of its node, or to what the turn before has written and put out; what
// has no memory refers to nothing.
static void fuzz_hand_inputs(fuzz_player* p, const tide_graph_node* told, const fuzz_block* inside,
                             bool is_carried) {
  fuzz_holding carried[FUZZ_PARTS];
  for (size_t i = 0; i < inside->output_count; i++) carried[i] = p->holdings[inside->outputs[i]];
  for (size_t i = 0; i < inside->input_count; i++) {
    fuzz_holding* const input = &p->holdings[inside->inputs[i]];
    *input = (fuzz_holding){ .is_defined = true };
    if (p->net->kinds[inside->inputs[i]] >= TIDE_KIND_IMMUTABLE) continue;
    if (is_carried && i < inside->output_count && carried[i].is_own) fuzz_refer(input, &carried[i]);
    else if (i < told->input_count) fuzz_refer(input, &p->holdings[told->inputs[i]]);
  }
}

// The blocks inside a node, one after the other, each a few times. Returns the last that has run.
static uint32_t fuzz_run_inside(fuzz_player* p, uint32_t node) {
  const tide_graph_node* const told = &p->net->nodes[node].told;
  uint32_t last = TIDE_GRAPH_NONE;
  for (uint32_t block = 1; block < p->net->block_count && !p->is_broken; block++) {
    const fuzz_block* const inside = &p->net->blocks[block];
    if (inside->node != node) continue;
    const uint8_t how = fuzz_take(p->bytes);
    for (size_t turn = 0; turn < how % 4u && !p->is_broken; turn++) {
      fuzz_hand_inputs(p, told, inside, turn > 0 && (how & 4) == 0);
      fuzz_run_block(p, block);
      last = block;
    }
  }
  return last;
}

static void fuzz_make_outputs(fuzz_player* p, const tide_graph_node* told, uint32_t inside) {
  for (size_t i = 0; i < told->output_count && !p->is_broken; i++) {
    const uint32_t output = told->outputs[i];
    const uint8_t byte = fuzz_take(p->bytes);
    p->holdings[output] = (fuzz_holding){ .is_defined = true };
    if (p->net->kinds[output] >= TIDE_KIND_IMMUTABLE) continue;
    if ((told->flags & TIDE_NODE_MAY_SKIP) && byte % 8 == 0) continue;
    if (byte % 4 == 1 && fuzz_make_view(p, told, output, inside)) continue;
    fuzz_make_value(p, told, output, 8 * (size_t)byte);
  }
}

static void fuzz_run_node(fuzz_player* p, uint32_t node) {
  const tide_graph_node* const told = &p->net->nodes[node].told;
  if (p->steps_left == 0) return;
  p->steps_left--;
  if (p->options.has_audits) FUZZ_REQUIRE(tide_planner_check(p->planner, node) == TIDE_OK);
  for (size_t i = 0; i < told->input_count; i++) fuzz_check_value(p, told->inputs[i]);
  const uint32_t inside = fuzz_run_inside(p, node);
  if (!p->is_broken) fuzz_make_outputs(p, told, inside);
  if (p->is_broken) return;
  for (size_t i = 0; i < told->output_count; i++) {
    const fuzz_holding* const holding = &p->holdings[told->outputs[i]];
    if (holding->is_own) fuzz_write(&holding->references[0]);
  }
  for (size_t i = 0; i < told->input_count; i++) fuzz_check_value(p, told->inputs[i]);
  for (size_t i = 0; i < told->output_count; i++) fuzz_check_value(p, told->outputs[i]);
}

static void fuzz_run_block(fuzz_player* p, uint32_t block) {
  const fuzz_block* const part = &p->net->blocks[block];
  for (uint32_t node = 0; node < p->net->node_count && !p->is_broken; node++) {
    if (p->net->nodes[node].block == block) fuzz_run_node(p, node);
  }
  if (p->is_broken || p->steps_left == 0) return;
  for (size_t i = 0; i < part->output_count; i++) fuzz_check_value(p, part->outputs[i]);
}

// ---------------------------------------------------------------------------------------------------
// Other calls

static void fuzz_check_kept(const fuzz_player* p) {
  for (size_t i = 0; i < p->kept_count; i++) fuzz_check(&p->kept[i].reference);
}

static void fuzz_release_generation(fuzz_player* p, uint64_t generation) {
  size_t count = 0;
  fuzz_check_kept(p);
  const tide_status status = tide_planner_drop_outputs(p->planner, generation);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_HANDLE || status == TIDE_ERR_STATE);
  if (status != TIDE_OK) return;
  for (size_t i = 0; i < p->kept_count; i++) {
    const bool is_of_it = p->kept[i].generation == generation;
    p->kept[i].releases -= is_of_it;
    if (!is_of_it || p->kept[i].releases > 0) p->kept[count++] = p->kept[i];
  }
  p->kept_count = count;
}

static void fuzz_retain_generation(fuzz_player* p, uint64_t generation) {
  const tide_status status = tide_planner_retain_outputs(p->planner, generation);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_HANDLE);
  for (size_t i = 0; i < p->kept_count; i++)
    p->kept[i].releases += status == TIDE_OK && p->kept[i].generation == generation;
}

static void fuzz_presize(fuzz_player* p) {
  uint64_t bytes[FUZZ_VALUES];
  const size_t count = p->net->value_count;
  const uint8_t how = fuzz_take(p->bytes);
  for (size_t i = 0; i < count; i++) bytes[i] = how < 0xe0 ? fuzz_take(p->bytes) : fuzz_take_size(p->bytes);
  const tide_status status =
      tide_planner_presize(p->planner, how % 3, bytes, how == 0xff ? count + 1 : count);
  FUZZ_REQUIRE(status == TIDE_OK || how >= 0xe0 || p->memory.has_failed);
}

static void fuzz_query_storage(const fuzz_player* p, uint32_t number) {
  const tide_storage* const storage = tide_planner_storage(p->planner, number);
  FUZZ_REQUIRE((storage != NULL) == (number < p->net->value_count));
  if (storage != NULL) {
    FUZZ_REQUIRE(!storage->is_planned || storage->group != TIDE_GRAPH_NONE);
    FUZZ_REQUIRE(!storage->is_planned || storage->address != NULL);
  }
}

static void fuzz_query(fuzz_player* p, uint32_t number) {
  size_t count = 0;
  uint32_t values[2];
  fuzz_query_storage(p, number);
  FUZZ_REQUIRE(!tide_planner_is_inside(p->planner, &count));
  FUZZ_REQUIRE(!tide_planner_is_managed_output(p->planner, &count));
  (void)tide_planner_role(p->planner, number);
  if (tide_planner_guard(p->planner, number, values, 2, &count) == TIDE_OK)
    FUZZ_REQUIRE(number < p->net->node_count && count <= FUZZ_ENDS);
  if (tide_planner_check(p->planner, number) == TIDE_OK) FUZZ_REQUIRE(number < p->net->node_count);
}

// A call at any time. Memory that is requested out of turn is written, to check that it exists.
static void fuzz_do_any(fuzz_player* p) {
  const uint8_t how = fuzz_take(p->bytes);
  const uint32_t value = fuzz_take_value(p->bytes, p->net);
  static uint8_t foreign[64];
  void* address = NULL;
  switch (how % 8) {
    case 0:
    case 1:
      if (tide_planner_alloc(p->planner, value, 4 * (size_t)how, &address) == TIDE_OK && how > 0)
        memset(address, how, 4 * (size_t)how);
      break;
    case 2: (void)!tide_planner_adopt(p->planner, value, foreign, sizeof foreign); break;
    case 3:
      if (tide_planner_take(p->planner, value, &address) == TIDE_OK)
        FUZZ_REQUIRE(fuzz_memory_release(&p->options.memory, address) == TIDE_OK);
      break;
    case 4:
      if (how & 128) fuzz_retain_generation(p, how / 8 % 16);
      else fuzz_release_generation(p, how / 8);
      break;
    case 5: fuzz_query(p, value); break;
    case 6: FUZZ_REQUIRE(tide_planner_alloc(p->planner, TIDE_GRAPH_NONE, 8, &address) != TIDE_OK); break;
    default: fuzz_query(p, how / 8); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// Runs of the planner

static void fuzz_on_reset(void* user, uint32_t value, tide_graph_reset reset) {
  fuzz_player* const p = user;
  FUZZ_REQUIRE(value < p->net->value_count);
  FUZZ_REQUIRE(p->is_cancelled || reset >= p->last_reset);
  p->last_reset = reset;
}

static void fuzz_keep_references(fuzz_player* p, const fuzz_holding* holding, uint64_t generation) {
  for (size_t i = 0; i < holding->count; i++) {
    fuzz_check(&holding->references[i]);
    if (!tide_planner_is_managed_output(p->planner, holding->references[i].address)) continue;
    FUZZ_REQUIRE(generation > 0);
    if (p->kept_count < FUZZ_KEPT)
      p->kept[p->kept_count++] = (fuzz_kept){ holding->references[i], generation, 1 };
  }
}

// What the outputs of the graph hold or refer to is there after the run: what is of a generation is looked at
// until that is released, the rest now.
static void fuzz_keep_outputs(fuzz_player* p) {
  const uint64_t generation = tide_planner_generation(p->planner);
  const fuzz_block* const root = &p->net->blocks[TIDE_GRAPH_ROOT];
  for (size_t i = 0; i < root->output_count; i++)
    fuzz_keep_references(p, &p->holdings[root->outputs[i]], generation);
}

static void fuzz_finish(fuzz_player* p, bool is_whole) {
  p->last_reset = TIDE_RESET_OWN;
  p->is_cancelled = !is_whole;
  const tide_status status = is_whole ? tide_planner_end(p->planner) : tide_planner_cancel(p->planner);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && p->memory.has_failed));
  FUZZ_REQUIRE(tide_planner_end(p->planner) == TIDE_ERR_STATE);
  FUZZ_REQUIRE(tide_planner_leak(p->planner) == TIDE_GRAPH_NONE);
}

// Inputs and constants are the program's: here they are nowhere.
static void fuzz_define_inputs(fuzz_player* p) {
  const fuzz_block* const root = &p->net->blocks[TIDE_GRAPH_ROOT];
  memset(p->holdings, 0, sizeof p->holdings);
  for (size_t i = 0; i < root->input_count; i++) p->holdings[root->inputs[i]].is_defined = true;
}

static void fuzz_run_once(fuzz_player* p) {
  const uint8_t head = fuzz_take(p->bytes);
  if (head % 16 == 15) fuzz_presize(p);
  if (head % 16 == 14)
    FUZZ_REQUIRE(tide_planner_disable_outputs(p->planner) == TIDE_OK || p->memory.has_failed);
  const tide_status begun = tide_planner_begin(p->planner, head / 16 % 3);
  if (begun != TIDE_OK) {
    FUZZ_REQUIRE(begun == TIDE_ERR_STATE || (begun == TIDE_ERR_NO_MEMORY && p->memory.has_failed));
    FUZZ_REQUIRE(begun != TIDE_ERR_STATE || p->options.output_generations > 0);
    while (p->kept_count > 0) fuzz_release_generation(p, p->kept[0].generation);
    return;
  }
  FUZZ_REQUIRE(tide_planner_begin(p->planner, 0) == TIDE_ERR_STATE);
  p->is_broken = false;
  fuzz_define_inputs(p);
  const size_t steps = head >= 0xe0 ? head % 8 : FUZZ_STEPS;
  p->steps_left = steps;
  fuzz_run_block(p, TIDE_GRAPH_ROOT);
  fuzz_check_kept(p);
  const bool is_soup = head % 16 >= 12;
  for (size_t i = 0; i < 8 && is_soup; i++) fuzz_do_any(p);
  const bool is_whole = !p->is_broken && p->steps_left > 0 && head % 16 != 11;
  fuzz_finish(p, is_whole);
  if (is_whole && !is_soup) fuzz_keep_outputs(p);
  if (head % 4 == 0 && p->kept_count > 0) fuzz_release_generation(p, p->kept[0].generation);
  for (size_t i = 0; i < 4 && head % 16 == 13; i++) fuzz_do_any(p);
  fuzz_check_kept(p);
}

static void fuzz_run_planner(fuzz_bytes* b, const fuzz_net* n, const tide_graph_options* like) {
  fuzz_player* const p = calloc(1, sizeof *p);
  FUZZ_REQUIRE(p != NULL);
  p->bytes = b;
  p->net = n;
  p->heap = (tide_heap){ fuzz_heap_alloc, fuzz_heap_release, &p->memory };
  p->options = *like;
  p->options.heap = &p->heap;
  p->options.memory = (tide_memory){ fuzz_memory_alloc, fuzz_memory_release, &p->memory, 0, true };
  p->options.on_reset = fuzz_on_reset;
  p->options.user = p;
  p->memory.failing = fuzz_take(b);
  p->memory.heap_last = fuzz_take(b);
  const tide_status status = tide_planner_new(n->graph, &p->options, &p->planner);
  FUZZ_REQUIRE(status == TIDE_OK || (status == TIDE_ERR_NO_MEMORY && p->memory.has_failed));
  for (size_t run = 0; run < FUZZ_RUNS && status == TIDE_OK && b->left > 0; run++) fuzz_run_once(p);
  fuzz_check_kept(p);
  tide_planner_free(p->planner);
  FUZZ_REQUIRE(p->memory.count == 0 && p->memory.heap_blocks == 0);
  free(p);
}

static tide_graph_options fuzz_take_options(fuzz_bytes* b) {
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  const unsigned first = fuzz_take(b);
  const unsigned second = fuzz_take(b);
  options.algorithm = (tide_graph_algorithm)(first % TIDE_GRAPH_ALGORITHM_COUNT);
  options.in_place = (first & 8) == 0;
  options.nests = (first & 16) == 0;
  options.manages_outputs = (first & 32) != 0;
  options.manages_direct_outputs = options.manages_outputs && (first & 64) != 0;
  options.decides_once = (first & 128) != 0;
  options.remembers_runs = second % 4;
  options.waste = second & 4 ? 0 : 0.25;
  options.output_generations = second / 8 % 4;
  options.max_layouts = 1 + second / 32 % 2;
  options.has_audits = (second & 64) != 0;
  options.shares = (second & 128) == 0;
  options.alignment = (uint64_t)1 << fuzz_take(b) % 8;
  options.plan_nodes = 200;
  return options;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_bytes b = { data, bytes };
  fuzz_net* const n = calloc(1, sizeof *n);
  FUZZ_REQUIRE(n != NULL && tide_graph_new(NULL, &n->graph) == TIDE_OK);
  fuzz_build(&b, n);
  const tide_status status = tide_graph_seal(n->graph);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
  if (status == TIDE_OK) {
    const tide_graph_options options = fuzz_take_options(&b);
    fuzz_lay_out_all(&b, n, &options);
    fuzz_run_planner(&b, n, &options);
  }
  tide_graph_free(n->graph);
  free(n);
  return 0;
}

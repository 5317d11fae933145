// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: graph, which gives storage to the values of a static graph that is run again and again: values
// whose lifetimes do not meet share one arena.
//
//   uint32_t x = 0;                               // x -> y = f(x)
//   uint32_t y = 0;
//   uint32_t number = 0;
//   const tide_graph_node f = { .size = sizeof f, .inputs = &x, .input_count = 1,
//                               .outputs = &y, .output_count = 1, .flags = TIDE_NODE_WRITES_OUT };
//   tide_graph* graph = NULL;
//   tide_planner* planner = NULL;
//   tide_status status = tide_graph_new(NULL, &graph);
//   if (status == TIDE_OK) status = tide_graph_add_value(graph, TIDE_KIND_TENSOR, &x);
//   if (status == TIDE_OK) status = tide_graph_add_value(graph, TIDE_KIND_TENSOR, &y);
//   if (status == TIDE_OK) status = tide_graph_add_input(graph, TIDE_GRAPH_ROOT, x);
//   if (status == TIDE_OK) status = tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &f, &number);
//   if (status == TIDE_OK) status = tide_graph_seal(graph);
//   if (status == TIDE_OK) status = tide_planner_new(graph, NULL, &planner);
//   for (int run = 0; run < 100 && status == TIDE_OK; run++) {
//     status = tide_planner_begin(planner, 0);
//     if (status == TIDE_OK) status = tide_planner_alloc(planner, y, 4096, &address);
//     if (status == TIDE_OK) status = tide_planner_end(planner);
//   }
//   tide_planner_free(planner);
//   tide_graph_free(graph);
//
// Values, nodes and blocks are named by numbers that count from 0 in the order in which they were added. A
// value may be used where PyTorch's static runtime would hold a tensor, a container or a number.
#ifndef TIDEMARK_GRAPH_H
#define TIDEMARK_GRAPH_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Graphs

typedef struct tide_graph tide_graph;  // opaque; freed by tide_graph_free()

#define TIDE_GRAPH_ROOT 0u               // the block that every graph has
#define TIDE_GRAPH_NONE UINT32_MAX       // no value, node or block
#define TIDE_GRAPH_MAX_PARTS (1u << 28)  // values, nodes, uses and pairs, of each

typedef enum tide_graph_kind {
  TIDE_KIND_TENSOR,
  TIDE_KIND_CONTAINER,  // a list of tensors, or a tuple that holds one
  TIDE_KIND_OBJECT,     // anything else that can change or hold tensors
  TIDE_KIND_IMMUTABLE,  // what cannot change and holds no tensor, such as a text
  TIDE_KIND_SCALAR,     // a number, a truth value, a device, a stream, nothing: never to be reset
} tide_graph_kind;

enum {
  TIDE_NODE_WRITES_OUT = 1 << 0,   // it can write into memory that it is given: its outputs may be managed
  TIDE_NODE_ALIASES_ALL = 1 << 1,  // any output may share memory with any input: containers, several views
  TIDE_NODE_BORROWS = 1 << 2,      // its outputs are borrowed references to what others hold
  TIDE_NODE_MAY_SKIP = 1 << 3,     // an output may come out as nothing, where an input serves instead
  TIDE_NODE_GUARDED = 1 << 4,      // it promises that no output shares memory with an input: see _guard()
};

// An input and an output of one node.
typedef struct tide_graph_pair {
  uint32_t input;
  uint32_t output;
} tide_graph_pair;

// All arrays are borrowed during the call.
typedef struct tide_graph_node {
  uint32_t size;           // set by TIDE_GRAPH_NODE_INIT
  const uint32_t* inputs;  // values; one may stand there twice
  size_t input_count;
  const uint32_t* outputs;  // values that nothing else defines
  size_t output_count;
  const tide_graph_pair* aliases;  // that may share memory: views, slices, what is put into a container
  size_t alias_count;
  // Where the output may be written over the input while the node runs. It is, if the input dies there, is no
  // smaller, and is known to share its memory with nothing; at most one output over one input.
  const tide_graph_pair* in_place;
  size_t in_place_count;
  uint32_t flags;  // TIDE_NODE_...
} tide_graph_node;
#define TIDE_GRAPH_NODE_INIT TIDE_SIZED(tide_graph_node)

// NULL for a heap is malloc.
TIDE_API TIDE_NODISCARD tide_status tide_graph_new(const tide_heap* heap, tide_graph** out);
// Planners of the graph must be freed before.
TIDE_API void tide_graph_free(tide_graph* graph);

// Adds a part. What a graph must keep to is checked when it is sealed, all but the numbers.
// Errors:  TIDE_ERR_ARGUMENT for numbers that are not there yet, or pairs that are no input and output;
//          TIDE_ERR_STATE when the graph is sealed; TIDE_ERR_LIMIT; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_value(tide_graph* graph, tide_graph_kind kind,
                                                         uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_node(tide_graph* graph, uint32_t block,
                                                        const tide_graph_node* node, uint32_t* out);
// A block inside a node: the body of a loop, a branch. At most one of the blocks of a node is at work at a
// time. Any output of a block may share memory with any output of its node, and any input of it with any
// input of the node; their numbers need not be the same. With several blocks, the outputs of the node share
// memory with those of the block that was at work last; where none may have been, name what they share with
// the inputs. A block may take any number of turns. An output of a block with inputs may be handed to the
// next turn as one of them: memory of its own that a node of this block has written stays as it is until the
// turn after, if the value is asked for once in a turn. What is to last longer, or comes from blocks further
// in, is copied.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_block(tide_graph* graph, uint32_t node, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_input(tide_graph* graph, uint32_t block, uint32_t value);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_output(tide_graph* graph, uint32_t block, uint32_t value);
// A value that is there before and after every run, such as a weight, and one that may come to be held by
// something unknown, so that its memory, and that of what it may share memory with, is not to be managed.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_constant(tide_graph* graph, uint32_t value);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_escape(tide_graph* graph, uint32_t value);

// Ends the building and finds the lifetimes. Then the graph does not change any more, and any number of
// threads and planners may use it.
// Errors:  TIDE_ERR_ARGUMENT, which names the value and the node, where a value is defined twice, used before
//          it is defined, or used where it cannot be seen; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_seal(tide_graph* graph);

TIDE_API uint32_t tide_graph_value_count(const tide_graph* graph);
TIDE_API uint32_t tide_graph_node_count(const tide_graph* graph);

// When a value lives: from the node that defines it to the last that may read it, both included, as
// positions among the nodes of the block that it is defined in; the outputs of a block live until `last` is
// the number of its nodes. Uses inside nested blocks count as uses by the node that holds them, and what may
// share memory with a value keeps it alive. Inputs, constants and values that cannot change have no
// lifetime.
typedef struct tide_graph_lifetime {
  bool is_tracked;
  uint32_t block;
  uint32_t first;
  uint32_t last;
} tide_graph_lifetime;

TIDE_API tide_graph_lifetime tide_graph_get_lifetime(const tide_graph* graph, uint32_t value);
// Do two values live at the same time, if only for the one node that reads one and defines the other? Also
// for values of different blocks, those inside a node being there while it runs. False if one has no
// lifetime.
TIDE_API bool tide_graph_overlap(const tide_graph* graph, uint32_t value, uint32_t other);

// ---------------------------------------------------------------------------------------------------
// Layouts

// How places are found.
#define TIDE_GRAPH_ALGORITHM_MAP(X)                                                                       \
  X(SMALLEST, "smallest")       /* the smallest that any of the others finds */                           \
  X(LIFO_GROUPS, "lifo")        /* PyTorch's: the group that became free last, whatever its size */       \
  X(FITTING_GROUPS, "fitting")  /* the smallest free group that is large enough, or the largest, grown */ \
  X(BY_SIZE, "by-size")         /* offsets, largest first, each in the smallest gap that it fits into */  \
  X(BY_AREA, "by-area")         /* the same by size times duration */                                     \
  X(BY_DURATION, "by-duration") /* the same by duration */                                                \
  X(SOLVER, "solver")           /* offsets from tide_plan_solve() */                                      \
  X(APART, "apart")             /* every value for itself */

typedef enum tide_graph_algorithm {
#define TIDE_GRAPH_ALGORITHM_ENUM(name, text) TIDE_GRAPH_##name,
  TIDE_GRAPH_ALGORITHM_MAP(TIDE_GRAPH_ALGORITHM_ENUM)
#undef TIDE_GRAPH_ALGORITHM_ENUM
      TIDE_GRAPH_ALGORITHM_COUNT
} tide_graph_algorithm;

// "lifo" and so on; "unknown" for a number that is none.
TIDE_API const char* tide_graph_algorithm_name(tide_graph_algorithm algorithm);

// What becomes of a value.
typedef enum tide_value_role {
  TIDE_ROLE_EXTERNAL,         // an input or a constant: not ours
  TIDE_ROLE_MANAGED,          // a place in the arena
  TIDE_ROLE_MANAGED_OUTPUT,   // a place in an arena of outputs
  TIDE_ROLE_LEAKED,           // a container that the program keeps from run to run, on purpose
  TIDE_ROLE_UNMANAGED,        // to be reset after each run
  TIDE_ROLE_BORROWED,         // a borrowed reference, to be dropped after each run
  TIDE_ROLE_SCALAR,           // never reset
  TIDE_ROLE_OUTPUT,           // an output of the graph: belongs to the caller
  TIDE_ROLE_BORROWED_OUTPUT,  // an output of the graph that is a borrowed reference, to be made an owning one
} tide_value_role;

// What a program does with the values that are not managed, at the end of a run.
typedef enum tide_graph_reset {
  TIDE_RESET_OWN,       // make an owning reference of a borrowed output
  TIDE_RESET_CLEAR,     // drop the contents of an unmanaged value
  TIDE_RESET_UNBORROW,  // forget a borrowed reference without dropping what it refers to
  TIDE_RESET_DETACH,    // a managed value: its storage is no longer its own
} tide_graph_reset;

// A value that a layout of one's own is to place.
typedef struct tide_graph_lodging {
  uint32_t value;
  // The first and the last instant of its life, both included, on one line of time through all blocks: a node
  // takes one instant, or one before and one behind the blocks that it holds.
  uint32_t first;
  uint32_t last;
  uint64_t bytes;  // rounded up to the alignment, not 0
} tide_graph_lodging;

typedef struct tide_graph_options {
  uint32_t size;  // set by TIDE_GRAPH_OPTIONS_INIT
  tide_graph_algorithm algorithm;
  bool writes_out;              // nodes are given the memory they write to; without it nothing is managed
  bool shares;                  // values share memory; otherwise each lies apart. Needs writes_out
  bool manages_outputs;         // tensors inside the outputs of the graph are managed. Needs writes_out
  bool manages_direct_outputs;  // also those that are outputs themselves. Needs manages_outputs
  bool in_place;  // outputs may lie over dying inputs where their node permits it (SOLVER and SMALLEST)
  bool nests;     // blocks inside nodes are planned together with what is around them (all but the groups)
  bool decides_once;  // a value that a MAY_SKIP node did not make in the first run is not managed ever after
  // Sizes are the largest of the last so many runs; 0: of all. A new layout is made when a value did not fit,
  // and when the places together are larger than needed by more than `waste` times.
  uint32_t remembers_runs;
  double waste;
  // How many runs may have their outputs in use at once. 1: the outputs of a run must be released before the
  // next begins. 0: any number.
  uint32_t output_generations;
  uint32_t max_layouts;   // one for each shape; the one that was not used for longest goes
  bool has_audits;        // tide_planner_check() works; costs time and memory
  uint64_t alignment;     // of all places, and sizes are rounded up to it; a power of two
  uint64_t plan_nodes;    // placements that tide_plan_solve() may try
  tide_memory memory;     // of arenas and of what is not planned; all 0: the computer's own
  const tide_heap* heap;  // (optional) caller keeps until planner or layout is freed; NULL for malloc
  // (optional) Called at the end of a run for each value that there is something to be done with: first OWN,
  // then CLEAR, then UNBORROW, and DETACH last. It may not call the planner.
  void (*on_reset)(void* user, uint32_t value, tide_graph_reset reset);
  void* user;  // caller keeps
  // (optional) A layout of one's own instead of an algorithm: writes the offset in the arena of each of the
  // values, which come in the order of time. Values that share an instant may not share bytes, and offsets
  // are multiples of the alignment; this is verified, and a layout that is wrong is refused. What it returns
  // other than TIDE_OK is returned by who asked for the layout. Without `shares` it is not called. It may not
  // call the planner.
  tide_status (*on_layout)(void* user, const tide_graph_lodging* values, size_t count, uint64_t* offsets);
} tide_graph_options;
// clang-format off
#define TIDE_GRAPH_OPTIONS_INIT                                                                      \
  { TIDE_FIELD(size, sizeof(tide_graph_options)), TIDE_FIELD(algorithm, TIDE_GRAPH_SMALLEST),        \
    TIDE_FIELD(writes_out, true), TIDE_FIELD(shares, true), TIDE_FIELD(manages_outputs, false),      \
    TIDE_FIELD(manages_direct_outputs, false), TIDE_FIELD(in_place, true), TIDE_FIELD(nests, true),  \
    TIDE_FIELD(decides_once, false), TIDE_FIELD(remembers_runs, 16), TIDE_FIELD(waste, 0.25),        \
    TIDE_FIELD(output_generations, 0), TIDE_FIELD(max_layouts, 8), TIDE_FIELD(has_audits, false),    \
    TIDE_FIELD(alignment, 64), TIDE_FIELD(plan_nodes, 200000), TIDE_FIELD(memory, TIDE_MEMORY_NONE), \
    TIDE_FIELD(heap, NULL), TIDE_FIELD(on_reset, NULL), TIDE_FIELD(user, NULL),                      \
    TIDE_FIELD(on_layout, NULL) }
// As PyTorch's static runtime does it: groups, sizes that only grow, one generation of outputs. It knows no
// shapes: name the same for all runs.
#define TIDE_GRAPH_OPTIONS_ORIGINAL                                                                   \
  { TIDE_FIELD(size, sizeof(tide_graph_options)), TIDE_FIELD(algorithm, TIDE_GRAPH_LIFO_GROUPS),      \
    TIDE_FIELD(writes_out, true), TIDE_FIELD(shares, true), TIDE_FIELD(manages_outputs, false),       \
    TIDE_FIELD(manages_direct_outputs, false), TIDE_FIELD(in_place, false), TIDE_FIELD(nests, false), \
    TIDE_FIELD(decides_once, true), TIDE_FIELD(remembers_runs, 0), TIDE_FIELD(waste, 0.0),            \
    TIDE_FIELD(output_generations, 1), TIDE_FIELD(max_layouts, 1), TIDE_FIELD(has_audits, false),     \
    TIDE_FIELD(alignment, 64), TIDE_FIELD(plan_nodes, 200000), TIDE_FIELD(memory, TIDE_MEMORY_NONE),  \
    TIDE_FIELD(heap, NULL), TIDE_FIELD(on_reset, NULL), TIDE_FIELD(user, NULL),                       \
    TIDE_FIELD(on_layout, NULL) }
// clang-format on

typedef struct tide_graph_layout tide_graph_layout;  // opaque; freed by tide_graph_layout_free()

// Finds a place for every managed value; `bytes` has the size of each value of the graph, 0 for those that
// need none, which get no place. Every layout was verified. NULL options are the defaults.
// Errors:  TIDE_ERR_STATE for a graph that is not sealed; TIDE_ERR_ARGUMENT for options that make no sense,
//          another count than the graph's values, sums of 2^62 bytes and more, or offsets of on_layout that
//          are wrong: the text names the two values that overlap; what on_layout returned;
//          TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_layout_new(const tide_graph* graph,
                                                          const tide_graph_options* options,
                                                          const uint64_t* bytes, size_t count,
                                                          tide_graph_layout** out);
TIDE_API void tide_graph_layout_free(tide_graph_layout* layout);

// Where a value lies.
typedef struct tide_graph_place {
  tide_value_role role;
  uint32_t group;   // values of one group have the same offset; TIDE_GRAPH_NONE: no place
  uint64_t offset;  // in the arena, or in that of the outputs
  uint64_t bytes;   // it may take there, a multiple of the alignment
} tide_graph_place;

TIDE_API tide_graph_place tide_graph_layout_place(const tide_graph_layout* layout, uint32_t value);

typedef struct tide_graph_layout_info {
  tide_graph_algorithm algorithm;  // that found it
  uint32_t managed;                // values with a place in the arena
  uint32_t groups;                 // places there
  uint32_t reused;                 // managed - groups
  uint32_t over_inputs;            // values that lie over an input of the node that makes them
  uint32_t outputs;                // values with a place in the arena of outputs
  uint64_t bytes;                  // of the arena
  uint64_t output_bytes;           // of the arena of outputs
  // The most bytes that live at once, those of blocks inside nodes included: with these lifetimes no arena
  // can be smaller, unless outputs lie over inputs.
  uint64_t lower_bound;
  bool is_own;  // the offsets are those of on_layout
} tide_graph_layout_info;

TIDE_API tide_graph_layout_info tide_graph_layout_describe(const tide_graph_layout* layout);

// The values of a group, which have one offset in the arena, rising; NULL, and none, for a number that is no
// group. Groups of the arena are numbered from 0 by rising offset. Each managed output is alone in its place.
// Owner:   the layout.
TIDE_API const uint32_t* tide_graph_layout_members(const tide_graph_layout* layout, uint32_t group,
                                                   size_t* out_count);

// ---------------------------------------------------------------------------------------------------
// Planners: a graph that is run

// One planner runs one graph on one thread at a time; several planners may share a graph.
typedef struct tide_planner tide_planner;  // opaque; freed by tide_planner_free()

TIDE_API TIDE_NODISCARD tide_status tide_planner_new(const tide_graph* graph,
                                                     const tide_graph_options* options, tide_planner** out);
// Gives all memory back but what was taken; a run that is open is cancelled.
TIDE_API void tide_planner_free(tide_planner* planner);

// Says how large values will be in runs of a shape, so that already the first is planned. `bytes` has one
// number for each value of the graph; 0: not known, or no memory.
TIDE_API TIDE_NODISCARD tide_status tide_planner_presize(tide_planner* planner, uint64_t shape,
                                                         const uint64_t* bytes, size_t count);

// Begins a run. `shape` is a number that the program chooses: sizes and layouts are kept for each. The first
// run of a shape has no layout: its memory comes from the table `memory` piece by piece.
// Errors:  TIDE_ERR_STATE if a run is open, or if too many generations of outputs are in use;
//          TIDE_ERR_NO_MEMORY or what the memory returned. After a failure no run is open.
TIDE_API TIDE_NODISCARD tide_status tide_planner_begin(tide_planner* planner, uint64_t shape);
// Ends it: calls on_reset, gives back what was not planned and is no output, learns the sizes, and makes a
// new layout if need be; where that fails the old one stays. The run is over in any case.
TIDE_API TIDE_NODISCARD tide_status tide_planner_end(tide_planner* planner);
// Ends it without learning anything: the program has failed. Values are reset in the reverse order of their
// nodes, the inputs of the graph last.
TIDE_API tide_status tide_planner_cancel(tide_planner* planner);

// Where a value is to be written in this run: its place, if it fits, or memory of its own, which is counted.
// Asked again in the same run, with another size or in the next turn of a loop, answers anew, and what the
// value held is gone. An output of the graph that is not managed, or what may share memory with one, gets
// memory of its own, which lives until it is taken or the next run begins. 0 bytes are NULL.
// Errors:  TIDE_ERR_STATE outside a run; TIDE_ERR_ARGUMENT for a value that no node makes; what the memory
//          returned.
TIDE_API TIDE_NODISCARD tide_status tide_planner_alloc(tide_planner* planner, uint32_t value, size_t bytes,
                                                       void** out);
// Says where the program itself has put a value in this run: an input, a view, a result in other memory.
TIDE_API TIDE_NODISCARD tide_status tide_planner_adopt(tide_planner* planner, uint32_t value, void* address,
                                                       size_t bytes);
// Takes the memory of an output of the last run, which has memory of its own: it is to be released through
// the table `memory` from now on.
// Errors:  TIDE_ERR_HANDLE for a value that has none.
TIDE_API TIDE_NODISCARD tide_status tide_planner_take(tide_planner* planner, uint32_t value, void** out);

// The managed outputs of each run with some lie in an arena of their own, a generation. They stay as they are
// until it is released as often as it was retained, and once more. Generations count from 1; 0: the last run
// has none, as the first of a shape, whose outputs have memory of their own: tide_planner_take().
// Errors:  TIDE_ERR_HANDLE for a generation that is gone already; TIDE_ERR_STATE to give up that of the run
//          that is open.
TIDE_API uint64_t tide_planner_generation(const tide_planner* planner);
TIDE_API TIDE_NODISCARD tide_status tide_planner_retain_outputs(tide_planner* planner, uint64_t generation);
TIDE_API tide_status tide_planner_drop_outputs(tide_planner* planner, uint64_t generation);
// No outputs are managed any more; sizes and layouts are forgotten, and the next run learns them again.
// Generations in use stay until they are released.
// Errors:  TIDE_ERR_STATE in a run.
TIDE_API TIDE_NODISCARD tide_status tide_planner_disable_outputs(tide_planner* planner);

// ---------------------------------------------------------------------------------------------------
// Queries

// Where a value is stored in this run, or was in the last one. Storages of a graph's values stand in one
// array for all its life.
typedef struct tide_storage {
  void* address;  // NULL: nowhere
  uint64_t bytes;
  uint32_t group;   // its place in the layout; TIDE_GRAPH_NONE: none
  bool is_planned;  // it lies in its place
} tide_storage;

// NULL for a number that is no value. While a run is open, a model whose tensors refer to this record may put
// another address and size into it, and need not tell: a value whose storage was swapped is noticed by
// _guard(), by _check() and when the run ends. The memory that it has then stays the program's, its size is
// learnt, and the next run gives the value its place again; see `swapped`.
TIDE_API tide_storage* tide_planner_storage(const tide_planner* planner, uint32_t value);

// The managed values that lie in their places in the run that is open, and those that could.
typedef struct tide_managed_storages {
  uint64_t count;           // that are stored there now
  uint64_t bytes;           // that they asked for
  uint64_t capacity;        // managed values that have a place
  uint64_t capacity_bytes;  // of these places, one by one
} tide_managed_storages;

// Cost:    O(n) for n values.
TIDE_API tide_managed_storages tide_planner_managed_storages(const tide_planner* planner);
// Does a pointer point into the array of storages?
TIDE_API bool tide_planner_is_storage(const tide_planner* planner, const void* pointer);
// Does an address lie in the arena of the run that is open? In a generation of outputs that is in use?
TIDE_API bool tide_planner_is_inside(const tide_planner* planner, const void* address);
TIDE_API bool tide_planner_is_managed_output(const tide_planner* planner, const void* address);

// After a GUARDED node has run: which of its outputs share memory with its inputs all the same, and must be
// copied elsewhere by the program? Writes up to `capacity` of them; `out_count` is how many there are. Looks
// closely in the first run of a shape and at nodes that were found once; otherwise only whether an output
// that is not in its place lies in the arena.
TIDE_API TIDE_NODISCARD tide_status tide_planner_guard(tide_planner* planner, uint32_t node, uint32_t* values,
                                                       size_t capacity, size_t* out_count);
// Before a node runs, with has_audits: are the bytes of its inputs, as far as they were allocated or adopted,
// still theirs? TIDE_ERR_STATE names the value and the one that has taken its memory: an alias that the graph
// does not tell of.
TIDE_API TIDE_NODISCARD tide_status tide_planner_check(tide_planner* planner, uint32_t node);
// Between runs: is there a value that still holds memory, and is neither an output to be taken nor in a
// generation of outputs? TIDE_GRAPH_NONE: none.
TIDE_API uint32_t tide_planner_leak(const tide_planner* planner);

// The node's position in its block, and the values whose lifetimes end with it and that are managed, rising.
// The number of the block's nodes stands for its end.
// Owner:   the planner.
TIDE_API const uint32_t* tide_planner_freed_after(const tide_planner* planner, uint32_t block,
                                                  uint32_t position, size_t* out_count);
TIDE_API tide_value_role tide_planner_role(const tide_planner* planner, uint32_t value);
// The layout of the shape of this run or the last one, or NULL.
// Owner:   the planner, until a run begins or ends, or sizes are told.
TIDE_API const tide_graph_layout* tide_planner_layout(const tide_planner* planner);

typedef struct tide_planner_stats {
  uint32_t size;     // set by TIDE_PLANNER_STATS_INIT
  uint64_t managed;  // values with the role MANAGED
  uint64_t managed_outputs;
  uint64_t leaked;
  uint64_t unmanaged;  // to be reset, borrowed ones included
  uint64_t borrowed;
  uint64_t borrowed_outputs;
  uint64_t scalars;
  uint64_t total_unmanaged;  // unmanaged + scalars
  uint64_t reused;           // of the layout in force, like the next two
  uint64_t managed_bytes;
  uint64_t output_bytes;
  uint64_t runs;          // that ended
  uint64_t planned;       // requests that were served from their place
  uint64_t unplanned;     // requests for managed values that were not: no layout yet, or too large
  uint64_t layouts;       // made so far
  uint64_t generations;   // of outputs in use
  uint64_t arena_allocs;  // times that the memory was asked for an arena
  uint64_t arena_bytes;   // held now, those of outputs included
  uint64_t own_bytes;     // held now outside of arenas, by values with memory of their own
  uint64_t peak_bytes;    // the most that the two were together in the run that is open or the last one
  uint64_t swapped;       // times that the program was found to have put another storage in place of ours
} tide_planner_stats;
#define TIDE_PLANNER_STATS_INIT TIDE_SIZED(tide_planner_stats)

TIDE_API TIDE_NODISCARD tide_status tide_planner_get_stats(const tide_planner* planner,
                                                           tide_planner_stats* out);
// Requests of a value that were not served from its place, over all runs.
TIDE_API uint64_t tide_planner_unplanned(const tide_planner* planner, uint32_t value);

TIDE_END_DECLS
#endif

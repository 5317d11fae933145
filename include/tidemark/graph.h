// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: graph. It places the values of a static graph that runs many times: values whose lifetimes do not
// overlap share memory in one arena.
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
// Values, nodes and blocks are numbered from 0 in the order in which they are added. A value is what
// PyTorch's static runtime calls an IValue: a tensor, a container or a number.
#ifndef TIDEMARK_GRAPH_H
#define TIDEMARK_GRAPH_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Graphs

typedef struct tide_graph tide_graph;  // opaque; freed by tide_graph_free()

#define TIDE_GRAPH_ROOT 0u               // the outermost block, which every graph has
#define TIDE_GRAPH_NONE UINT32_MAX       // no value, node or block
#define TIDE_GRAPH_MAX_PARTS (1u << 28)  // limit for each of: values, nodes, uses, pairs

typedef enum tide_graph_kind {
  TIDE_KIND_TENSOR,
  TIDE_KIND_CONTAINER,  // a list of tensors, or a tuple that holds one
  TIDE_KIND_OBJECT,     // any other mutable value, or one that can hold tensors
  TIDE_KIND_IMMUTABLE,  // an immutable value that holds no tensor, such as a string
  TIDE_KIND_SCALAR,     // a number, a bool, a device, a stream or none: never reset
} tide_graph_kind;

enum {
  TIDE_NODE_WRITES_OUT = 1 << 0,   // it writes into memory that it is given, so its outputs may be managed
  TIDE_NODE_ALIASES_ALL = 1 << 1,  // any output may share memory with any input
  TIDE_NODE_BORROWS = 1 << 2,      // its outputs are borrowed references
  TIDE_NODE_MAY_SKIP = 1 << 3,     // it may leave an output empty because an input serves instead
  TIDE_NODE_GUARDED = 1 << 4,      // it promises that no output shares memory with an input: see _guard()
};

// An input and an output of one node.
typedef struct tide_graph_pair {
  uint32_t input;
  uint32_t output;
} tide_graph_pair;

// The arrays are borrowed during the call.
typedef struct tide_graph_node {
  uint32_t size;           // set by TIDE_GRAPH_NODE_INIT
  const uint32_t* inputs;  // values; duplicates are allowed
  size_t input_count;
  const uint32_t* outputs;  // values that no other node defines
  size_t output_count;
  const tide_graph_pair* aliases;  // pairs that may share memory: views, slices, elements of a container
  size_t alias_count;
  // Pairs whose output may overwrite the input while the node runs. The planner uses this if the input dies
  // at the node, is at least as large, and shares memory with no other value. One input serves at most one
  // output.
  const tide_graph_pair* in_place;
  size_t in_place_count;
  uint32_t flags;  // TIDE_NODE_...
} tide_graph_node;
#define TIDE_GRAPH_NODE_INIT TIDE_SIZED(tide_graph_node)

// A NULL heap means malloc.
TIDE_API TIDE_NODISCARD tide_status tide_graph_new(const tide_heap* heap, tide_graph** out);
// Free all planners of the graph first.
TIDE_API void tide_graph_free(tide_graph* graph);

// Add a part to the graph. These calls check numbers only; sealing checks the rest.
// Errors:  TIDE_ERR_ARGUMENT for an unknown number, or for a pair that is not an input and an output of the
//          node; TIDE_ERR_STATE if the graph is sealed; TIDE_ERR_LIMIT; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_value(tide_graph* graph, tide_graph_kind kind,
                                                         uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_node(tide_graph* graph, uint32_t block,
                                                        const tide_graph_node* node, uint32_t* out);
// Adds a block inside a node: the body of a loop, or a branch. At most one block of a node runs at a time.
// Any output of a block may share memory with any output of its node, and any input with any input of the
// node; their counts may differ. With several blocks, the outputs of the node share memory with those of
// the block that ran last. If it is possible that none ran, list what the outputs share with the inputs.
//
// A block may run any number of times in a row. A block with inputs may receive its own output of the
// previous iteration as an input. If a node of this block wrote that output, and the value is allocated
// once per iteration, its memory stays valid for one more iteration. Copy what must live longer, or what
// comes from a block further inside.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_block(tide_graph* graph, uint32_t node, uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_input(tide_graph* graph, uint32_t block, uint32_t value);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_output(tide_graph* graph, uint32_t block, uint32_t value);
// A constant exists before and after every run, such as a weight. A value escapes if code outside the graph
// may hold it; its memory, and that of all values that may share memory with it, is not managed.
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_constant(tide_graph* graph, uint32_t value);
TIDE_API TIDE_NODISCARD tide_status tide_graph_add_escape(tide_graph* graph, uint32_t value);

// Finishes the graph and computes the lifetimes. A sealed graph never changes, and any number of threads and
// planners may use it.
// Errors:  TIDE_ERR_ARGUMENT if a value is defined twice, used before it is defined, or used outside the
//          block that defines it (the text names the value and the node); TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_seal(tide_graph* graph);

// The lifetime of a value runs from the node that defines it to the last node that may read it, both
// included. `first` and `last` are positions among the nodes of the defining block. For an output of that
// block, `last` is the number of its nodes. A use inside a nested block counts as a use by the node that
// holds the block. A value stays alive as long as any value that is made from it and may share its memory.
// Inputs, constants, scalars and immutable values have no lifetime.
typedef struct tide_graph_lifetime {
  bool is_tracked;
  uint32_t block;
  uint32_t first;
  uint32_t last;
} tide_graph_lifetime;

TIDE_API tide_graph_lifetime tide_graph_get_lifetime(const tide_graph* graph, uint32_t value);

// ---------------------------------------------------------------------------------------------------
// Layouts

// The placement algorithms.
#define TIDE_GRAPH_ALGORITHM_MAP(X)                                                                       \
  X(SMALLEST, "smallest")       /* the smallest result of all others */                                   \
  X(LIFO_GROUPS, "lifo")        /* PyTorch's: the group that was freed last, whatever its size */         \
  X(FITTING_GROUPS, "fitting")  /* the smallest free group that is large enough, or the largest, grown */ \
  X(BY_SIZE, "by-size")         /* offsets, largest first, each in the smallest gap that fits */          \
  X(BY_AREA, "by-area")         /* the same by size times duration */                                     \
  X(BY_DURATION, "by-duration") /* the same by duration */                                                \
  X(SOLVER, "solver")           /* offsets from tide_plan_solve() */                                      \
  X(APART, "apart")             /* no sharing */

typedef enum tide_graph_algorithm {
#define TIDE_GRAPH_ALGORITHM_ENUM(name, text) TIDE_GRAPH_##name,
  TIDE_GRAPH_ALGORITHM_MAP(TIDE_GRAPH_ALGORITHM_ENUM)
#undef TIDE_GRAPH_ALGORITHM_ENUM
      TIDE_GRAPH_ALGORITHM_COUNT
} tide_graph_algorithm;

// "lifo" and so on; "unknown" if the value is out of range.
TIDE_API const char* tide_graph_algorithm_name(tide_graph_algorithm algorithm);

// How the planner treats a value.
typedef enum tide_value_role {
  TIDE_ROLE_EXTERNAL,         // an input or a constant
  TIDE_ROLE_MANAGED,          // has a place in the arena
  TIDE_ROLE_MANAGED_OUTPUT,   // has a place in an arena for outputs
  TIDE_ROLE_LEAKED,           // a container that the program keeps from run to run on purpose
  TIDE_ROLE_UNMANAGED,        // reset after each run
  TIDE_ROLE_BORROWED,         // a borrowed reference, dropped after each run
  TIDE_ROLE_SCALAR,           // never reset
  TIDE_ROLE_OUTPUT,           // an output of the graph; belongs to the caller
  TIDE_ROLE_BORROWED_OUTPUT,  // an output of the graph that is a borrowed reference and becomes an owning one
} tide_value_role;

// What the program must do with a value at the end of a run.
typedef enum tide_graph_reset {
  TIDE_RESET_OWN,       // turn a borrowed output into an owning reference
  TIDE_RESET_CLEAR,     // drop the contents of an unmanaged value
  TIDE_RESET_UNBORROW,  // forget a borrowed reference without dropping its target
  TIDE_RESET_DETACH,    // stop using the storage of a managed value
} tide_graph_reset;

// A value that on_layout() places.
typedef struct tide_graph_lodging {
  uint32_t value;
  // The first and the last instant of its life, both included, on one timeline through all blocks. A node
  // takes one instant; a node with blocks takes one before them and one after them.
  uint32_t first;
  uint32_t last;
  uint64_t bytes;  // rounded up to the alignment, not 0
} tide_graph_lodging;

typedef struct tide_graph_options {
  uint32_t size;  // set by TIDE_GRAPH_OPTIONS_INIT
  tide_graph_algorithm algorithm;
  bool writes_out;              // nodes write into memory that they are given; otherwise nothing is managed
  bool shares;                  // values share memory. Needs writes_out
  bool manages_outputs;         // tensors inside the outputs of the graph are managed. Needs writes_out
  bool manages_direct_outputs;  // and tensors that are outputs themselves. Needs manages_outputs
  bool in_place;      // outputs may overwrite dying inputs where their node permits it (SOLVER and SMALLEST)
  bool nests;         // nested blocks are planned with the code around them (not by LIFO_ and FITTING_GROUPS)
  bool decides_once;  // a value that a MAY_SKIP node did not make in the first run is never managed
  // The size of a value is the largest of the last `remembers_runs` runs, or of all runs if 0. A new layout
  // is made when a value did not fit, or when the places together exceed the need by more than the fraction
  // `waste`.
  uint32_t remembers_runs;
  double waste;
  // How many runs may have their outputs in use at once. 1: the outputs of a run must be dropped before the
  // next run begins. 0: any number.
  uint32_t output_generations;
  uint32_t max_layouts;   // one per shape; the least recently used one is dropped
  bool has_audits;        // enables tide_planner_check(); costs time and memory
  uint64_t alignment;     // of all places; sizes are rounded up to it; a power of two
  uint64_t plan_nodes;    // node limit of tide_plan_solve()
  tide_memory memory;     // for arenas and for values without a place; all 0: the C library's memory
  const tide_heap* heap;  // (optional) caller keeps until planner or layout is freed; NULL for malloc
  // (optional) Called at the end of a run for each value that needs an action: first all OWN, then CLEAR,
  // then UNBORROW, then DETACH. It must not call the planner.
  void (*on_reset)(void* user, uint32_t value, tide_graph_reset reset);
  void* user;  // caller keeps
  // (optional) Replaces the algorithm: writes the offset of each value in the arena. The values come in the
  // order of time. Values that share an instant must not share bytes, and offsets must be multiples of the
  // alignment. The result is verified, and a wrong one is refused. An error that it returns is passed on to
  // the caller. It is not called without `shares`, and must not call the planner.
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
// The behaviour of PyTorch's static runtime: groups, sizes that only grow, one generation of outputs. It
// does not distinguish shapes: pass the same shape for all runs.
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

// Finds a place for every managed value. `bytes` has the size of each value of the graph; a value of size 0
// gets no place. Every layout is verified. NULL options mean the defaults.
// Errors:  TIDE_ERR_STATE if the graph is not sealed; TIDE_ERR_ARGUMENT for invalid options, a count that
//          is not the number of values, a sum of 2^62 bytes or more, or wrong offsets from on_layout (the
//          text names two values that overlap); an error from on_layout; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_graph_layout_new(const tide_graph* graph,
                                                          const tide_graph_options* options,
                                                          const uint64_t* bytes, size_t count,
                                                          tide_graph_layout** out);
TIDE_API void tide_graph_layout_free(tide_graph_layout* layout);

typedef struct tide_graph_place {
  tide_value_role role;
  // Values with the same offset in the arena form a group. Groups are numbered from 0 by rising offset. Each
  // managed output is a group of its own. TIDE_GRAPH_NONE: no place.
  uint32_t group;
  uint64_t offset;  // in the arena, or in the arena for outputs
  uint64_t bytes;   // available there; a multiple of the alignment
} tide_graph_place;

// Returns the place of a value.
TIDE_API tide_graph_place tide_graph_layout_place(const tide_graph_layout* layout, uint32_t value);

typedef struct tide_graph_layout_info {
  tide_graph_algorithm algorithm;  // that found the offsets
  uint32_t managed;                // values with a place in the arena
  uint32_t groups;                 // distinct offsets there
  uint32_t reused;                 // managed - groups
  uint32_t over_inputs;            // values that overwrite an input of their node
  uint32_t outputs;                // values with a place in the arena for outputs
  uint64_t bytes;                  // of the arena
  uint64_t output_bytes;           // of the arena for outputs
  // The most bytes that live at once, nested blocks included. No arena can be smaller, unless outputs
  // overwrite inputs.
  uint64_t lower_bound;
  bool is_own;  // the offsets come from on_layout
} tide_graph_layout_info;

TIDE_API tide_graph_layout_info tide_graph_layout_describe(const tide_graph_layout* layout);

// ---------------------------------------------------------------------------------------------------
// Planners

// A planner serves the runs of one graph, on one thread at a time. Several planners may share a graph.
typedef struct tide_planner tide_planner;  // opaque; freed by tide_planner_free()

TIDE_API TIDE_NODISCARD tide_status tide_planner_new(const tide_graph* graph,
                                                     const tide_graph_options* options, tide_planner** out);
// Releases all memory except what tide_planner_take() handed over. Cancels an open run.
TIDE_API void tide_planner_free(tide_planner* planner);
// Releases the memory that the planner keeps for its next run: the arena, and the arenas of outputs that
// nobody uses. Sizes and layouts stay, and the next run takes memory again. For programs with many planners
// of which few run; with a trim after each run, memory is held during runs only.
// Errors:  TIDE_ERR_STATE if a run is open.
TIDE_API tide_status tide_planner_trim(tide_planner* planner);

// Announces the sizes of values in runs of a shape, so that the first run is planned already. `bytes` has one
// entry for each value of the graph; 0: unknown, or no memory.
TIDE_API TIDE_NODISCARD tide_status tide_planner_presize(tide_planner* planner, uint64_t shape,
                                                         const uint64_t* bytes, size_t count);

// Begins a run. The program chooses `shape`; sizes and layouts are kept per shape. The first run of a shape
// has no layout: each value gets memory of its own from `memory`.
// Errors:  TIDE_ERR_STATE if a run is open, or if too many generations of outputs are in use;
//          TIDE_ERR_NO_MEMORY; an error from `memory`. After a failure no run is open.
TIDE_API TIDE_NODISCARD tide_status tide_planner_begin(tide_planner* planner, uint64_t shape);
// Ends the run: calls on_reset, releases unplanned memory except that of outputs, records the sizes, and
// makes a new layout if necessary. If that fails, the old layout stays. The run is over in any case.
TIDE_API TIDE_NODISCARD tide_status tide_planner_end(tide_planner* planner);
// Ends a run that failed, and learns nothing from it. Values are reset in the reverse order of their nodes,
// the inputs of the graph last.
TIDE_API tide_status tide_planner_cancel(tide_planner* planner);

// Returns memory for a value in this run: its place if it fits there, otherwise memory of its own. A second
// call in the same run, with another size or in the next iteration of a loop, discards the old contents. An
// unmanaged output of the graph, or a value that may share memory with one, gets memory of its own. That
// memory lives until it is taken or the next run begins. 0 bytes yield NULL.
// Errors:  TIDE_ERR_STATE outside a run; TIDE_ERR_ARGUMENT for a value that no node makes; an error from
//          `memory`.
TIDE_API TIDE_NODISCARD tide_status tide_planner_alloc(tide_planner* planner, uint32_t value, size_t bytes,
                                                       void** out);
// Tells the planner where the program has put a value in this run: an input, a view, a result in other
// memory.
TIDE_API TIDE_NODISCARD tide_status tide_planner_adopt(tide_planner* planner, uint32_t value, void* address,
                                                       size_t bytes);
// Takes over the memory of an output of the last run that has memory of its own. The caller releases it
// through `memory`.
// Errors:  TIDE_ERR_HANDLE if the value has no memory of its own.
TIDE_API TIDE_NODISCARD tide_status tide_planner_take(tide_planner* planner, uint32_t value, void** out);

// The managed outputs of a run share an arena, called a generation. A generation starts with one reference,
// and its outputs stay valid until the last reference is dropped. Generations are numbered from 1. The
// result is 0 if the last run has no generation, such as the first run of a shape: see tide_planner_take().
// Errors:  TIDE_ERR_HANDLE for a generation that is no longer in use; TIDE_ERR_STATE for dropping the last
//          reference to the generation of the open run.
TIDE_API uint64_t tide_planner_generation(const tide_planner* planner);
TIDE_API TIDE_NODISCARD tide_status tide_planner_retain_outputs(tide_planner* planner, uint64_t generation);
TIDE_API tide_status tide_planner_drop_outputs(tide_planner* planner, uint64_t generation);
// Stops managing outputs. Sizes and layouts are forgotten, and the next run learns them again. Generations
// stay valid until they are dropped.
// Errors:  TIDE_ERR_STATE if a run is open.
TIDE_API TIDE_NODISCARD tide_status tide_planner_disable_outputs(tide_planner* planner);

// ---------------------------------------------------------------------------------------------------
// Queries

// Where a value is stored in this run, or was in the last one. The record of a value keeps its address as
// long as the planner exists.
typedef struct tide_storage {
  void* address;  // NULL: nowhere
  uint64_t bytes;
  uint32_t group;   // its group in the layout; TIDE_GRAPH_NONE: none
  bool is_planned;  // it lies in its place
} tide_storage;

// Returns the storage record of a value, or NULL if there is no such value. While a run is open, the
// program may swap the storage: write another address and size into the record, without a call. The planner
// notices this in _guard(), in _check() and at the end of the run, and counts it in `swapped`. The new
// memory stays the program's, its size is learned, and the next run gives the value its place again.
TIDE_API tide_storage* tide_planner_storage(const tide_planner* planner, uint32_t value);
// The number of storage records, one for each value of the graph.
TIDE_API size_t tide_planner_storage_count(const tide_planner* planner);
// Does a pointer point into one of these records? They lie side by side, so the answer takes one comparison.
TIDE_API bool tide_planner_is_storage(const tide_planner* planner, const void* pointer);

// Does an address lie in the arena of the open run? In a generation of outputs that is in use?
TIDE_API bool tide_planner_is_inside(const tide_planner* planner, const void* address);
TIDE_API bool tide_planner_is_managed_output(const tide_planner* planner, const void* address);

// Call it after a GUARDED node has run. It finds the outputs that share memory with an input although the
// node promised not to; the program must copy these elsewhere. Writes up to `capacity` values; `out_count`
// is their full number. It compares all inputs and outputs in the first run of a shape, and for nodes that
// it has reported before. Otherwise it only finds outputs that are not in their places but inside the
// arena.
TIDE_API TIDE_NODISCARD tide_status tide_planner_guard(tide_planner* planner, uint32_t node, uint32_t* values,
                                                       size_t capacity, size_t* out_count);
// Call it before a node runs; it needs has_audits. It checks that no other value has been given memory of
// an input since that input was allocated or adopted. That happens if the graph lacks an alias.
// Errors:  TIDE_ERR_STATE, which names both values.
TIDE_API TIDE_NODISCARD tide_status tide_planner_check(tide_planner* planner, uint32_t node);
// Call it between runs. Returns a value that still holds memory although it is neither an output that can
// be taken nor in a generation of outputs; TIDE_GRAPH_NONE if there is none.
TIDE_API uint32_t tide_planner_leak(const tide_planner* planner);

TIDE_API tide_value_role tide_planner_role(const tide_planner* planner, uint32_t value);
// Returns the layout for the shape of the current or last run, or NULL.
// Owner:   the planner; valid until a run begins or ends, or sizes are announced.
TIDE_API const tide_graph_layout* tide_planner_layout(const tide_planner* planner);

typedef struct tide_planner_stats {
  uint32_t size;     // set by TIDE_PLANNER_STATS_INIT
  uint64_t managed;  // values with the role MANAGED
  uint64_t managed_outputs;
  uint64_t leaked;
  uint64_t unmanaged;  // reset after each run, borrowed ones included
  uint64_t borrowed;
  uint64_t borrowed_outputs;
  uint64_t scalars;
  uint64_t total_unmanaged;  // unmanaged + scalars
  uint64_t reused;           // of the current layout, like the next two
  uint64_t managed_bytes;
  uint64_t output_bytes;
  uint64_t runs;          // ended, not cancelled
  uint64_t planned;       // requests served from their place
  uint64_t unplanned;     // other requests for managed values: no layout yet, or too large
  uint64_t layouts;       // made so far
  uint64_t generations;   // of outputs in use
  uint64_t arena_allocs;  // arenas allocated so far
  uint64_t arena_bytes;   // held now, those of outputs included
  uint64_t own_bytes;     // held now by values with memory of their own
  uint64_t peak_bytes;    // the peak of arena_bytes + own_bytes in the current or last run
  uint64_t swapped;       // storages that the program replaced
} tide_planner_stats;
#define TIDE_PLANNER_STATS_INIT TIDE_SIZED(tide_planner_stats)

TIDE_API TIDE_NODISCARD tide_status tide_planner_get_stats(const tide_planner* planner,
                                                           tide_planner_stats* out);

TIDE_END_DECLS
#endif

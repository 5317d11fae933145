// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark view share. docs/view.md describes the page that they write.
#ifndef TIDEMARK_TOOL_VIEW_H
#define TIDEMARK_TOOL_VIEW_H

#include "base/hash_map.h"
#include "base/tree.h"
#include "report.h"
#include "serve.h"
#include "timeline.h"

// ---------------------------------------------------------------------------------------------------
// Bytes and columns (view_bytes.c)

typedef struct tool_view_bytes {
  unsigned char* data;  // owned
  size_t count;
  size_t room;
} tool_view_bytes;

void tool_view_put(tool_view_bytes* bytes, uint64_t value);                     // a varint
void tool_view_put_change(tool_view_bytes* bytes, uint64_t from, uint64_t to);  // zigzag, modulo 2^64

// A part of the page, compressed.
typedef struct tool_view_part {
  char name[48];
  unsigned char* data;  // owned
  size_t count;         // of the data
  size_t whole_bytes;   // before compression
  uint32_t rank;        // parts are written in the order of their ranks
  // Of a part of blocks: how long they lived at least, as a power of two; and their number.
  uint32_t level;
  uint64_t block_count;  // 0: it has no blocks
  size_t device;         // number among all devices of the page
  bool is_deflated;
  bool is_left_out;
} tool_view_part;

typedef struct tool_view_parts {
  tool_view_part* items;  // owned
  size_t count;
  size_t room;
} tool_view_parts;

// Compresses bytes, which are freed, and adds them. Returns the part, until the next is added.
tool_view_part* tool_view_parts_add(tool_view_parts* parts, const char* name, uint32_t rank,
                                    tool_view_bytes* bytes);
void tool_view_parts_fini(tool_view_parts* parts);
// The length of a part in the page.
size_t tool_view_part_length(const tool_view_part* part);
tide_status tool_view_part_write(const tool_view_part* part, const tide_sink* sink);

// Ranks. Parts of blocks have TOOL_VIEW_BLOCKS and above, those with the longest lives first.
enum { TOOL_VIEW_CURVES, TOOL_VIEW_SEGMENTS, TOOL_VIEW_WHATIF, TOOL_VIEW_STACKS, TOOL_VIEW_BLOCKS };
#define TOOL_VIEW_LEVELS 21u  // blocks of the highest one live for 2^20 entries and more, or to the end
#define TOOL_VIEW_OTHERS (TOOL_VIEW_BLOCKS + TOOL_VIEW_LEVELS)
#define TOOL_VIEW_TIMES (TOOL_VIEW_OTHERS + 1)

// ---------------------------------------------------------------------------------------------------
// Stacks of a file (view_stacks.c), numbered in the order of their use; 0: none

typedef struct tool_view_list {
  uint32_t* numbers;  // owned: the number in the trace, by the number here; [0] is 0
  uint32_t* places;   // owned: the number here, by the number in the trace; 0: not used yet
  uint32_t count;     // of numbers, with 0
  uint32_t room;
  uint32_t known;  // numbers in the trace are below it
} tool_view_list;

typedef struct tool_view_stacks {
  const tide_intern* names;  // borrowed from the trace
  tool_view_list stacks;
  tool_view_list frames;
  tool_view_list texts;
} tool_view_stacks;

void tool_view_stacks_init(tool_view_stacks* stacks, const tide_trace* trace);
void tool_view_stacks_fini(tool_view_stacks* stacks);
// The number in the page of a stack and of a text.
uint32_t tool_view_stack(tool_view_stacks* stacks, uint32_t stack);
uint32_t tool_view_text(tool_view_stacks* stacks, uint32_t text);
// The part, as JSON.
void tool_view_stacks_write(tool_view_stacks* stacks, tool_sites* sites, tool_view_bytes* out);

// ---------------------------------------------------------------------------------------------------
// The memory of a device (view_gather.c)
//
// A position is a number of entries: 0 before the first, i + 1 after entry i.

typedef struct tool_view_block {
  uint64_t address;
  uint64_t bytes;
  uint64_t slack;  // bytes that were not requested
  uint32_t begin;  // position; TOOL_VIEW_GONE: it did not exist at any position
  uint32_t life;   // positions until its release; 0: it lives to the end, or was released before the first
  uint32_t wait;   // positions from there to its end
  uint32_t stack;  // number in the page, like the next two
  uint32_t stream;
  uint32_t pool;
} tool_view_block;

typedef struct tool_view_range {
  uint64_t address;
  uint64_t bytes;
  uint32_t begin;
  uint32_t life;  // 0: to the end
  uint32_t stream;
  uint32_t pool;
  uint32_t stack;
  uint32_t cause;
  uint32_t flags;
  uint32_t lane;
} tool_view_range;

#define TOOL_VIEW_GONE UINT32_MAX
#define TOOL_VIEW_EXPANDABLE 1u
#define TOOL_VIEW_LARGE 2u
#define TOOL_VIEW_INVENTED 8u
#define TOOL_VIEW_PARKED 16u

// A row of the picture: addresses that ranges used, one after another or side by side.
typedef struct tool_view_lane {
  uint64_t address;
  uint64_t end;
} tool_view_lane;

enum { TOOL_VIEW_RESERVED, TOOL_VIEW_ALLOCATED, TOOL_VIEW_REQUESTED, TOOL_VIEW_CURVE_COUNT };
extern const char* const tool_view_curve_names[TOOL_VIEW_CURVE_COUNT];
#define TOOL_VIEW_BUCKETS 2000u  // of the overview at most
#define TOOL_VIEW_FINE 64u       // entries of a bucket of the exact curves

// The curves in buckets of entries. A bucket has the values after its entries; the first also those before.
typedef struct tool_view_curves {
  tide_timeline_bucket* buckets;  // owned
  size_t count;
} tool_view_curves;

// A curve in a bucket. Allocated memory is that of PyTorch's statistics.
const tide_timeline_range* tool_view_range_of(const tool_view_curves* curves, size_t curve, size_t bucket);

typedef struct tool_view_memory {
  const tide_trace* trace;  // borrowed
  const tide_trace_entry* entries;
  uint64_t entry_count;
  tool_view_stacks* stacks;
  tool_view_block* blocks;  // owned; by begin, then as the ledger has them
  size_t block_count;
  size_t block_room;
  tool_view_range* ranges;  // owned; by begin
  size_t range_count;
  size_t range_room;
  tool_view_lane* lanes;  // owned; by address
  size_t lane_count;
  uint64_t unit;      // a power of two that divides all addresses and sizes; at most 512
  uint64_t* streams;  // owned: handles
  size_t stream_count;
  uint32_t* pools;  // owned: numbers in the trace
  size_t pool_count;
  tool_view_curves overview;  // of at most TOOL_VIEW_BUCKETS buckets
  tool_view_curves fine;
} tool_view_memory;

// The first entry of a bucket of the overview; for their count, the number of entries.
uint64_t tool_view_bucket_begin(const tool_view_memory* memory, size_t bucket);
// Follows all entries. On failure it prints why and returns TOOL_USAGE.
int tool_view_memory_gather(tool_view_memory* memory, const tide_trace* trace, size_t device,
                            tide_ledger* ledger, tool_view_stacks* stacks);
void tool_view_memory_fini(tool_view_memory* memory);
// Finds the lanes and the unit (view_lanes.c); and the lane of an address.
void tool_view_lanes_find(tool_view_memory* memory);
uint32_t tool_view_lane_of(const tool_view_memory* memory, uint64_t address);

// ---------------------------------------------------------------------------------------------------
// Settings that are replayed with their curves (view_whatif.c)

typedef struct tool_view_whatif {
  tool_trials trials;
  uint64_t* curves;  // owned
} tool_view_whatif;

// Replays the settings of a diagnosis; none, if a replay proves nothing.
void tool_view_whatif_run(tool_view_whatif* whatif, const tool_diagnosis* r, size_t buckets);
void tool_view_whatif_fini(tool_view_whatif* whatif);

// ---------------------------------------------------------------------------------------------------
// A device (view_device.c, view_parts.c, view_facts.c, view_bands.c)

// What is known about a device while its file is open.
typedef struct tool_view_device {
  size_t number;  // among all devices of the page
  size_t file;
  tool_diagnosis diagnosis;
  tool_steps steps;
  tool_view_memory memory;
  tool_view_whatif whatif;
} tool_view_device;

// Names of parts: "d2-segments"; those of stacks are "f1-stacks".
#define TOOL_VIEW_NAME 72
const char* tool_view_name(char letter, size_t number, const char* part, char out[TOOL_VIEW_NAME]);

// Adds all parts but stacks.
void tool_view_parts_of(tool_view_parts* parts, const tool_view_device* device);
// The columns of some blocks, which are in the order of their begin; and the level of a block.
void tool_view_blocks_put(tool_view_bytes* out, const tool_view_memory* memory, const uint32_t* numbers,
                          size_t count);
uint32_t tool_view_block_level(const tool_view_memory* memory, const tool_view_block* block);

// The facts of a device as one JSON object; without "parts" and "left_out". Freed by free().
char* tool_view_facts_of(const tool_call* call, tool_view_device* device);
// The lists "marks" and "bands"; the axis is that of entries.
void tool_view_marks_emit(tool_emit* emit, const tool_view_device* device, const tool_axis* axis);
void tool_view_bands_emit(tool_emit* emit, const tool_view_device* device, const tool_axis* axis);

// ---------------------------------------------------------------------------------------------------
// The page (view_page.c)

typedef struct tool_view_file {
  char* facts;  // owned: name and report, as members of a JSON object
  size_t device_count;
} tool_view_file;

typedef struct tool_view_page {
  tool_view_file* files;  // owned
  size_t file_count;
  char** devices;  // owned: the facts of each device, as members of a JSON object; by file
  size_t device_count;
  tool_view_parts parts;
  uint32_t level;  // blocks of lower levels are left out
  uint64_t entry_count;
  bool is_served;             // it can ask for what is left out, and `details` has it
  tool_view_memory* details;  // owned: by device; only blocks and what tells their places
} tool_view_page;

// The page without data: up to the end of its policy, from there to the facts, between them and the parts,
// and behind these (made by page/join.cmake).
typedef struct tool_view_piece {
  const unsigned char* data;
  size_t bytes;
} tool_view_piece;
#define TOOL_VIEW_PIECES 4u
extern const tool_view_piece tool_view_shell[TOOL_VIEW_PIECES];

// Add a file, set the facts of the last file, and add a device to it. Facts are JSON objects, which are
// freed.
void tool_view_page_add_file(tool_view_page* page);
void tool_view_page_set_file(tool_view_page* page, char* facts);
void tool_view_page_add_device(tool_view_page* page, char* facts);

// Leaves out parts until the page has at most `most` bytes. Returns the bytes that it has then.
uint64_t tool_view_page_fit(tool_view_page* page, uint64_t most);
// The number of blocks that are left out, of all devices.
uint64_t tool_view_page_left_out(const tool_view_page* page);
tide_status tool_view_page_write(const void* page, const tide_sink* sink);
void tool_view_page_fini(tool_view_page* page);

// ---------------------------------------------------------------------------------------------------
// What is left out of a page that is served (view_details.c)

// Answers have at most this many blocks.
#define TOOL_VIEW_DETAILS 500000u

// Takes the blocks of the last device out of its memory and keeps them; and drops those that are in the page,
// once it fits.
void tool_view_details_keep(tool_view_page* page, tool_view_memory* memory);
void tool_view_details_trim(tool_view_page* page);

// Write the columns of left-out blocks, behind a column with their number alone. The first is about blocks
// that exist at a position from `from` up to `to` - 1; if they are too many, there is only their number. The
// second is about units from `low` up to `high` - 1 of a lane: the block that ended there last before or at a
// position, and the one that begins there first after it. They return false for a device or lane that does
// not exist.
bool tool_view_details_window(const tool_view_page* page, uint64_t device, uint64_t from, uint64_t to,
                              tool_view_bytes* out);
bool tool_view_details_nearest(const tool_view_page* page, uint64_t device, uint64_t position, uint64_t lane,
                               uint64_t low, uint64_t high, tool_view_bytes* out);

// Serves a page until a signal comes (view_serve.c). Takes and closes the server; returns the exit status.
int tool_view_serve(const tool_call* call, tool_view_page* page, tool_serve* serve);

#endif

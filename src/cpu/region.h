// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A region: a long range of addresses that is cut into blocks of whole pages. Adjacent idle blocks are joined
// at once. A request takes the low end of the smallest idle block that it finds, or else pages at the top
// that were never used. So what is used stays together at the low end.
//
// All records lie apart: one for each page, of which those of the first and last page of a block count. Idle
// blocks are in lists by size class. Cost: O(1), with a look at a few blocks of one class.
//
// For each page a bit says whether it has memory of the system. New pages have none; used pages keep theirs
// until they are purged. A region of another source has all of its memory until it is freed.
//
// Only the first pages of a region are open, which means that they and their records can be read and written.
// More are opened as needed, a quarter more at a time. So a program that locks all its memory (mlockall)
// locks little more than it uses.
//
// The owner's lock guards everything here, with two exceptions: any thread may change the tag of a live block
// from LIVE to RELEASED, and finding the region of an address takes no lock.
#ifndef TIDEMARK_SRC_CPU_REGION_H
#define TIDEMARK_SRC_CPU_REGION_H

#include "base/atomic.h"
#include "base/heap.h"
#include "core/classes.h"
#include "tidemark/memory.h"

#define TIDE__PAGE_SHIFT 12
#define TIDE__PAGE_BYTES ((uint64_t)1 << TIDE__PAGE_SHIFT)
#define TIDE__REGION_SHIFT 21  // addresses and sizes of regions are multiples of 2 MiB
#define TIDE__REGION_UNIT ((uint64_t)1 << TIDE__REGION_SHIFT)
#define TIDE__REGION_MAX_PAGES ((uint64_t)1 << 32)
#define TIDE__REGION_BINS 240  // size classes of up to 2^32 pages

typedef enum tide__page_kind {
  TIDE__PAGE_INSIDE,    // not the first page of a block, or never used
  TIDE__PAGE_IDLE,      // the first of an idle block; it is in a bin
  TIDE__PAGE_TAIL,      // the last of an idle block of several pages
  TIDE__PAGE_LIVE,      // the first of a block that is handed out
  TIDE__PAGE_RELEASED,  // the first of one that was released and not taken back yet
  TIDE__PAGE_BUSY,      // the first of one that is out of the bins while its memory goes back
  TIDE__PAGE_SLAB       // any page of a slab: see slab.h
} tide__page_kind;

// The tag of a page has its kind and, for the first or last page of a block, the number of pages and the tick
// in which the block became idle; or it has the slab of the page.
typedef struct tide__page {
  tide__atomic_u64 tag;
  uint32_t next;  // in its bin or among remote frees: page + 1; 0: none
  uint32_t previous;
} tide__page;

#define TIDE__TAG_STAMP_SHIFT 4
#define TIDE__TAG_PAGES_SHIFT 28
#define TIDE__STAMP_MASK 0xffffffu

static inline uint64_t tide__tag(tide__page_kind kind, uint64_t pages, uint32_t stamp) {
  return pages << TIDE__TAG_PAGES_SHIFT | (uint64_t)(stamp & TIDE__STAMP_MASK) << TIDE__TAG_STAMP_SHIFT |
         (uint64_t)kind;
}
static inline tide__page_kind tide__tag_kind(uint64_t tag) { return (tide__page_kind)(tag & 15u); }
static inline uint64_t tide__tag_pages(uint64_t tag) { return tag >> TIDE__TAG_PAGES_SHIFT; }
static inline uint32_t tide__tag_stamp(uint64_t tag) {
  return (uint32_t)(tag >> TIDE__TAG_STAMP_SHIFT) & TIDE__STAMP_MASK;
}

struct tide__zone;
struct tide__slab;

static inline uint64_t tide__slab_tag(const struct tide__slab* slab) {
  return (uint64_t)(uintptr_t)slab | TIDE__PAGE_SLAB;
}
static inline struct tide__slab* tide__tag_slab(uint64_t tag) {
  if (tide__tag_kind(tag) != TIDE__PAGE_SLAB) return NULL;
  return (struct tide__slab*)(uintptr_t)(tag - TIDE__PAGE_SLAB);
}

// [R1] every page below top belongs to exactly one block, and no two idle blocks are neighbours
// [R2] bit n of words is set iff bins[n] is not empty
// [R3] resident_pages is the number of bits set in `resident`, and all of these are below top, or, without
//      has_purge, all bits are set
// [R4] used_pages are those below top that are in no idle or busy block
// [R5] top <= open_pages <= page_count
typedef struct tide__region {
  uint64_t address;
  uint64_t page_count;
  struct tide__zone* zone;     // borrowed; its owner
  struct tide__region* below;  // borrowed; the region it lies in, of a cache that is its source, or NULL
  tide__page* pages;           // owned
  tide__atomic_u64 top;        // written under the lock
  uint64_t used_pages;
  uint64_t resident_pages;
  uint64_t* resident;             // owned; one bit a page
  tide__atomic_u8* marks;         // owned, or the window's; NULL: it has no slabs
  struct tide__region* next;      // in its zone
  uint64_t open_pages;            // the first ones, which can be used
  tide__atomic_u32 remote_frees;  // blocks that other threads released: page + 1, linked by `next`
  uint32_t busy_blocks;           // BUSY blocks, and calls that are opening pages
  bool has_purge;                 // memory of single pages can go back
  bool is_single;                 // made for one block that is not to be kept
  bool has_marks;                 // `marks` is owned
  uint64_t words[TIDE__REGION_BINS / 64 + 1];
  uint32_t bins[TIDE__REGION_BINS];  // first pages + 1; 0: none
} tide__region;

// What a region is made for.
typedef struct tide__region_need {
  uint64_t pages;      // at least
  uint64_t bytes;      // of addresses wanted, if they cost nothing
  uint64_t caches_id;  // of the cache, for slabs; 0: no slabs
  bool is_single;
  bool has_huge_pages;
} tide__region_need;

// Makes a region of a source, or of the system if its functions are NULL, and adds it to the map. Calls the
// system: no lock may be held.
tide_status tide__region_new(const tide_memory* memory, const tide_heap* heap, const tide__region_need* need,
                             struct tide__zone* zone, tide__region** out);
void tide__region_free(tide__region* region, const tide_memory* memory, const tide_heap* heap);

// Opens at least the first `pages` of a region of the system, of which `from` are open. `out` is how many are
// open then; the caller stores it in the region. Calls the system: no lock may be held.
tide_status tide__region_open(const tide__region* region, uint64_t from, uint64_t pages, uint64_t* out);

// Finds room for `pages` at a multiple of `alignment` pages (at least 1) and hands it out as one block. First
// calls `charge` with the number of pages that have no memory yet, if there are any. Returns false if there
// is no room, or if charge() returned false.
typedef bool (*tide__region_charge)(void* user, uint64_t new_pages);
typedef struct tide__region_place {
  uint64_t page;
  uint64_t new_pages;  // pages that had no memory and so hold zeros
  bool is_refused;     // there is room, but charge() refused
} tide__region_place;
bool tide__region_take(tide__region* region, uint64_t pages, uint64_t alignment, tide__region_charge charge,
                       void* user, tide__region_place* out);

// Makes a live block shorter, or longer if the pages after it are idle. False if they are not.
bool tide__region_resize(tide__region* region, uint64_t page, uint64_t pages, uint32_t stamp,
                         tide__region_charge charge, void* user);
// Could the block grow if the region had more open pages?
bool tide__region_needs_open(const tide__region* region, uint64_t page, uint64_t pages);

// Makes a RELEASED block BUSY, until it is put back.
void tide__region_make_busy(tide__region* region, uint64_t page);
// Takes an idle block out of the bins. It is BUSY until it is put back.
void tide__region_detach(tide__region* region, uint64_t page);
// Notes that pages of a busy block have no memory any more. Returns how many had some.
uint64_t tide__region_forget_memory(tide__region* region, uint64_t page, uint64_t pages);

// The number of pages of a range that have memory.
uint64_t tide__region_resident(const tide__region* region, uint64_t page, uint64_t pages);

static inline uint64_t tide__region_address(const tide__region* region, uint64_t page) {
  return region->address + (page << TIDE__PAGE_SHIFT);
}
static inline uint64_t tide__region_page(const tide__region* region, uint64_t address) {
  return (address - region->address) >> TIDE__PAGE_SHIFT;
}
// The slab of a page, or NULL.
static inline struct tide__slab* tide__region_slab(const tide__region* region, uint64_t page) {
  return tide__tag_slab(tide__load_relaxed(&region->pages[page].tag));
}

// ---------------------------------------------------------------------------------------------------
// Marks and the window
//
// Regions for slabs have a mark for every 64 bytes: whether an object begins there, its size class, and
// whether it is live. The regions of the first caches lie in one window of addresses, which is never freed
// and has one array of marks. So a release finds the state of an object with one load.

#define TIDE__MARK_SHIFT 6
#define TIDE__MARK_NONE 0u     // no object begins here, or a free one
#define TIDE__MARK_LIVE 0x80u  // added to the mark of an idle object, which is its size class + 1
#define TIDE__WINDOW_SLOT_SHIFT 30
#define TIDE__WINDOW_SLOT_BYTES ((uint64_t)1 << TIDE__WINDOW_SLOT_SHIFT)
#define TIDE__WINDOW_SLOTS 16
#define TIDE__WINDOW_BYTES (TIDE__WINDOW_SLOTS * TIDE__WINDOW_SLOT_BYTES)
#define TIDE__WINDOW_NOWHERE ((uint64_t)1 << 63)  // no program has memory there
#define TIDE__WINDOW_NOBODY UINT64_MAX

typedef struct tide__window_of_slabs {
  tide__atomic_u64 ids[TIDE__WINDOW_SLOTS];  // of the cache that has a slot
  tide__atomic_u64 address;                  // TIDE__WINDOW_NOWHERE: there is none
  tide__atomic_u8* marks;
} tide__window_of_slabs;
extern tide__window_of_slabs tide__window __attribute__((visibility("hidden")));

// ---------------------------------------------------------------------------------------------------
// Finding the region of an address

#define TIDE__REGIONS_ADDRESS_BITS 48
#define TIDE__REGIONS_LEAF_BITS 13
#define TIDE__REGIONS_ROOT_BITS (TIDE__REGIONS_ADDRESS_BITS - TIDE__REGION_SHIFT - TIDE__REGIONS_LEAF_BITS)

typedef _Atomic(tide__region*) tide__region_link;
extern _Atomic(tide__region_link*) tide__regions[(size_t)1 << TIDE__REGIONS_ROOT_BITS]
    __attribute__((visibility("hidden")));

// Keeps all regions from being freed, to look at an address that may belong to no block.
void tide__regions_lock(void);
void tide__regions_unlock(void);

// The region around an address, of any cache, or NULL. A caller that has a block of it needs no stronger
// memory order, since it got the block after the region was made; others hold the lock. A new leaf is all
// zeros, and is read through a dependent load.
static inline tide__region* tide__region_at(uint64_t address) {
  if (address >> TIDE__REGIONS_ADDRESS_BITS != 0) return NULL;
  const uint64_t unit = address >> TIDE__REGION_SHIFT;
  tide__region_link* const leaf = tide__load_ordered(&tide__regions[unit >> TIDE__REGIONS_LEAF_BITS]);
  if (leaf == NULL) return NULL;
  return tide__load_relaxed(&leaf[unit & (((uint64_t)1 << TIDE__REGIONS_LEAF_BITS) - 1)]);
}

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Interned byte strings.
//
// A value is stored in a block, behind its hash and its length, and never moves. Chunks of pointers, which
// double in size and never move either, map numbers to values. They are published with release and read with
// acquire, so a lookup takes no lock. Slots (open addressing, linear probing, at most 3/4 full) map hashes to
// numbers. They are not a tide__hash_map, whose slots are twice as large: a value keeps its hash, so a slot
// needs only 8 bytes.
//
// Adding searches under the lock. If the table needs memory for a new value (larger slots, a chunk, a block),
// the thread releases the lock, allocates it, and tries again. Memory that is not needed, because another
// thread was faster, is released. Larger slots are filled before they are installed: no value can be added
// meanwhile, because there is no slot for it.
//
// Cost: O(length) to add, amortised for a new value; O(1) to look up. A value takes 16 bytes beside its own,
// a
//       pointer of 8 to 16, and 11 to 22 of slots. The unused end of a block is below a quarter of the next.
// Lock: TIDE__RANK_INTERN, one a table, never two at once. The heap is called without it.
#include "trace/intern_table.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

#define INTERN_LIMIT (TIDE__INTERN_FIRST_CHUNK * ((1u << TIDE__INTERN_CHUNKS) - 1))
#define INTERN_FIRST_SLOTS 64u
#define INTERN_BLOCK_MIN ((size_t)4 << 10)  // a block is as large as all memory before it, between these
#define INTERN_BLOCK_MAX ((size_t)256 << 10)

// A value to find or add.
typedef struct intern_key {
  const void* data;  // caller keeps
  size_t bytes;
  size_t room;  // bytes that it takes in a block
  uint64_t hash;
} intern_key;

// --------------------------------------------------------------------------------------------------- The
// hash multiplies 16 bytes at a time to 128 bits and folds the halves, as wyhash does. The length is mixed in
// at the end, because the last bytes are padded with zeros.

__extension__ typedef unsigned __int128 intern_wide;

#define HASH_FIRST 0xa0761d6478bd642fu
#define HASH_SECOND 0xe7037ed1a0b428dbu
#define HASH_THIRD 0x8ebc6af09c88c6e3u

static uint64_t hash_fold(uint64_t a, uint64_t b) {
  const intern_wide product = (intern_wide)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_bytes(const void* data, size_t bytes) {
  const char* at = data;
  uint64_t hash = HASH_FIRST;
  uint64_t word[2];
  size_t left = bytes;
  for (; left > sizeof word; at += sizeof word, left -= sizeof word) {
    memcpy(word, at, sizeof word);
    hash = hash_fold(word[0] ^ HASH_SECOND, word[1] ^ hash);
  }
  word[0] = word[1] = 0;
  memcpy(word, at, left);
  hash = hash_fold(word[0] ^ HASH_SECOND, word[1] ^ hash);
  return hash_fold(hash ^ HASH_THIRD, bytes ^ HASH_SECOND);
}

static size_t intern_chunk_bytes(uint32_t chunk) {
  return ((size_t)TIDE__INTERN_FIRST_CHUNK << chunk) * sizeof(tide__intern_entry);
}

// ---------------------------------------------------------------------------------------------------
// From a value to its number

static bool intern_is_same(const tide__intern_value* value, const intern_key* key) {
  return value->hash == key->hash && value->bytes == key->bytes &&
         memcmp(value->data, key->data, key->bytes) == 0;
}

static uint32_t intern_find_locked(const tide__intern_table* table, const intern_key* key)
    TIDE_REQUIRES(&table->lock) {
  if (table->slot_count == 0) return 0;
  const uint32_t tag = (uint32_t)(key->hash >> 32);
  const size_t mask = table->slot_count - 1;
  for (size_t i = key->hash & mask;; i = (i + 1) & mask) {
    const tide__intern_slot slot = table->slots[i];
    if (slot.number == 0) return 0;
    if (slot.tag == tag && intern_is_same(tide__intern_at(table, slot.number), key)) return slot.number;
  }
}

// Puts a new number into slots that have room.
static void slots_put(tide__intern_slot* slots, size_t slot_count, uint64_t hash, uint32_t number) {
  const size_t mask = slot_count - 1;
  size_t i = hash & mask;
  while (slots[i].number != 0) i = (i + 1) & mask;
  slots[i] = (tide__intern_slot){ (uint32_t)(hash >> 32), number };
}

// ---------------------------------------------------------------------------------------------------
// Memory that a thread allocates without the lock

typedef struct intern_piece {
  void* address;  // owned until the table takes it; NULL: none
  size_t bytes;   // at `address`
  size_t wanted;  // bytes that the table needs; 0: none
} intern_piece;

typedef struct intern_spare {
  intern_piece slots;
  uint32_t count;  // number of values when slots were requested; they are filled with these
  intern_piece chunk;
  intern_piece block;
} intern_spare;

// Is there a piece of this size? Otherwise requests one.
static bool piece_is_here(intern_piece* piece, size_t bytes) {
  const bool is_here = piece->address != NULL && piece->bytes == bytes;
  if (!is_here) piece->wanted = bytes;
  return is_here;
}

static void* piece_take(intern_piece* piece) {
  void* const address = piece->address;
  piece->address = NULL;
  return address;
}

static void piece_release(const tide_heap* heap, intern_piece* piece) {
  tide__heap_release(heap, piece_take(piece), 1, piece->bytes);
}

// Allocates the requested piece and releases the old one.
static bool piece_make(const tide_heap* heap, intern_piece* piece) {
  piece_release(heap, piece);
  piece->bytes = piece->wanted;
  piece->wanted = 0;
  piece->address = tide__heap_alloc(heap, 1, piece->bytes);
  return piece->address != NULL;
}

// Allocates larger slots and fills them. The values of that time never go away.
static bool spare_make_slots(const tide__intern_table* table, const tide_heap* heap, intern_spare* spare) {
  if (!piece_make(heap, &spare->slots)) return false;
  const size_t slot_count = spare->slots.bytes / sizeof(tide__intern_slot);
  for (uint32_t number = 1; number <= spare->count; number++) {
    slots_put(spare->slots.address, slot_count, tide__intern_at(table, number)->hash, number);
  }
  return true;
}

static void spare_release(const tide_heap* heap, intern_spare* spare) {
  piece_release(heap, &spare->slots);
  piece_release(heap, &spare->chunk);
  piece_release(heap, &spare->block);
}

// Allocates what the last attempt needed.
static tide_status spare_make(const tide__intern_table* table, const tide_heap* heap, intern_spare* spare) {
  TIDE_ASSERT_UNLOCKED();
  bool is_made = false;
  if (spare->slots.wanted != 0) is_made = spare_make_slots(table, heap, spare);
  else if (spare->chunk.wanted != 0) is_made = piece_make(heap, &spare->chunk);
  else if (spare->block.wanted != 0) is_made = piece_make(heap, &spare->block);
  else return TIDE_FAIL(TIDE_ERR_LIMIT, "intern: the table is full with %u values", INTERN_LIMIT);
  return is_made ? TIDE_OK : TIDE_FAIL(TIDE_ERR_NO_MEMORY, "intern: no memory for one more value");
}

// ---------------------------------------------------------------------------------------------------
// Adding

static void intern_count_memory(tide__intern_table* table, uint64_t more) {
  (void)tide__add_relaxed(&table->memory, more);
}

// Is there a slot for one more value? Larger slots from `spare` replace the old ones, which it then holds.
static bool intern_slots_ready_locked(tide__intern_table* table, uint32_t count, intern_spare* spare)
    TIDE_REQUIRES(&table->lock) {
  if (count < table->slot_count / 4 * 3) return true;
  const size_t old_bytes = table->slot_count * sizeof(tide__intern_slot);
  const size_t bytes = old_bytes != 0 ? 2 * old_bytes : INTERN_FIRST_SLOTS * sizeof(tide__intern_slot);
  if (!piece_is_here(&spare->slots, bytes)) {
    spare->count = count;
    return false;
  }
  TIDE_ASSERT(spare->count == count);  // the slots were full then, so nothing was added since
  tide__intern_slot* const old = table->slots;
  table->slots = piece_take(&spare->slots);
  table->slot_count = bytes / sizeof(tide__intern_slot);
  spare->slots = (intern_piece){ old, old_bytes, 0 };
  intern_count_memory(table, bytes - old_bytes);
  return true;
}

static bool intern_chunk_ready_locked(tide__intern_table* table, uint32_t index, intern_spare* spare)
    TIDE_REQUIRES(&table->lock) {
  uint32_t place = 0;
  const uint32_t chunk = tide__intern_chunk_of(index, &place);
  if (tide__load_relaxed(&table->chunks[chunk]) != NULL) return true;
  if (!piece_is_here(&spare->chunk, intern_chunk_bytes(chunk))) return false;
  intern_count_memory(table, spare->chunk.bytes);
  tide__store_release(&table->chunks[chunk], piece_take(&spare->chunk));  // pairs with tide__intern_at
  return true;
}

static size_t block_room(const tide__intern_block* block) {
  return block != NULL ? block->bytes - block->used : 0;
}

// A large value gets a block of its own, so that a shared block never wastes much.
static size_t block_bytes_for(uint64_t memory, size_t room) {
  const size_t shared = tide__min(tide__max(memory, INTERN_BLOCK_MIN), INTERN_BLOCK_MAX);
  return room <= shared / 4 ? shared : sizeof(tide__intern_block) + room;
}

// The block with more room left goes first.
static void intern_link_locked(tide__intern_table* table, tide__intern_block* block, size_t room)
    TIDE_REQUIRES(&table->lock) {
  const bool is_first = block_room(block) - room >= block_room(table->blocks);
  tide__intern_block** const link = is_first ? &table->blocks : &table->blocks->next;
  block->next = *link;
  *link = block;
}

// Room for a value, or NULL.
static tide__intern_value* intern_carve_locked(tide__intern_table* table, size_t room, intern_spare* spare)
    TIDE_REQUIRES(&table->lock) {
  tide__intern_block* block = table->blocks;
  if (block_room(block) < room) {
    const size_t bytes = block_bytes_for(tide__load_relaxed(&table->memory), room);
    if (!piece_is_here(&spare->block, bytes)) return NULL;
    block = piece_take(&spare->block);
    block->bytes = bytes;
    block->used = sizeof *block;
    intern_link_locked(table, block, room);
    intern_count_memory(table, bytes);
  }
  void* const value = (char*)block + block->used;
  block->used += room;
  return value;
}

static void intern_publish_locked(tide__intern_table* table, uint32_t index, const tide__intern_value* value)
    TIDE_REQUIRES(&table->lock) {
  uint32_t place = 0;
  const uint32_t chunk = tide__intern_chunk_of(index, &place);
  tide__intern_entry* const entries = tide__load_relaxed(&table->chunks[chunk]);
  tide__store_release(&entries[place], value);  // pairs with tide__intern_at
  tide__store_relaxed(&table->count, index + 1);
  slots_put(table->slots, table->slot_count, value->hash, index + 1);
}

// The number of the value; 0 if memory is needed first or, if `spare` requests none, the table is full.
static uint32_t intern_add_locked(tide__intern_table* table, const intern_key* key, intern_spare* spare)
    TIDE_REQUIRES(&table->lock) {
  const uint32_t known = intern_find_locked(table, key);
  const uint32_t index = tide__load_relaxed(&table->count);
  if (known != 0 || index == INTERN_LIMIT) return known;
  if (!intern_slots_ready_locked(table, index, spare)) return 0;
  if (!intern_chunk_ready_locked(table, index, spare)) return 0;
  tide__intern_value* const value = intern_carve_locked(table, key->room, spare);
  if (value == NULL) return 0;
  value->hash = key->hash;
  value->bytes = key->bytes;
  memcpy(value->data, key->data, key->bytes);
  intern_publish_locked(table, index, value);
  return index + 1;
}

tide_status tide__intern_table_add(tide__intern_table* table, const tide_heap* heap, const void* data,
                                   size_t bytes, size_t zeros, uint32_t* out) {
  intern_spare spare = { 0 };
  tide_status status = TIDE_OK;
  uint64_t room = 0;
  TIDE_REQUIRE(tide__add(bytes, sizeof(tide__intern_value) + zeros, &room) &&
                   tide__align_up(room, sizeof(uint64_t), &room) && room <= SIZE_MAX / 2,
               TIDE_ERR_NO_MEMORY, "intern: no memory for a value of %zu bytes", bytes);
  const intern_key key = { data, bytes, room, hash_bytes(data, bytes) };
  uint32_t number = 0;
  while (number == 0 && status == TIDE_OK) {
    tide__mutex_lock(&table->lock);
    number = intern_add_locked(table, &key, &spare);
    tide__mutex_unlock(&table->lock);
    if (number == 0) status = spare_make(table, heap, &spare);
  }
  spare_release(heap, &spare);
  *out = number;
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Life

void tide__intern_table_init(tide__intern_table* table) { tide__mutex_init(&table->lock, TIDE__RANK_INTERN); }

void tide__intern_table_fini(tide__intern_table* table, const tide_heap* heap) {
  tide__heap_release(heap, table->slots, table->slot_count, sizeof(tide__intern_slot));
  for (uint32_t k = 0; k < TIDE__INTERN_CHUNKS; k++) {
    tide__heap_release(heap, tide__load_relaxed(&table->chunks[k]), 1, intern_chunk_bytes(k));
  }
  for (tide__intern_block* block = table->blocks; block != NULL;) {
    tide__intern_block* const next = block->next;
    tide__heap_release(heap, block, 1, block->bytes);
    block = next;
  }
  tide__mutex_fini(&table->lock);
}

// ---------------------------------------------------------------------------------------------------
// The invariants

static bool intern_slots_are_right_locked(const tide__intern_table* table, uint32_t count)
    TIDE_REQUIRES(&table->lock) {
  size_t used = 0;
  for (size_t i = 0; i < table->slot_count; i++) used += table->slots[i].number != 0;
  for (uint32_t number = 1; number <= count; number++) {
    const tide__intern_value* const value = tide__intern_at(table, number);
    const intern_key key = { value->data, value->bytes, 0, hash_bytes(value->data, value->bytes) };
    if (intern_find_locked(table, &key) != number) return false;
  }
  return used == count;
}

static uint64_t intern_sum_locked(const tide__intern_table* table) TIDE_REQUIRES(&table->lock) {
  uint64_t sum = table->slot_count * sizeof(tide__intern_slot);
  for (uint32_t k = 0; k < TIDE__INTERN_CHUNKS; k++) {
    if (tide__load_relaxed(&table->chunks[k]) != NULL) sum += intern_chunk_bytes(k);
  }
  for (const tide__intern_block* block = table->blocks; block != NULL; block = block->next)
    sum += block->bytes;
  return sum;
}

static int intern_check_locked(const tide__intern_table* table) TIDE_REQUIRES(&table->lock) {
  const uint32_t count = tide__load_relaxed(&table->count);
  const size_t slots = table->slot_count;
  if ((slots != 0 && !tide__is_power_of_two(slots)) || count > slots / 4 * 3) return 1;
  for (uint32_t number = 1; number <= count; number++) {
    if (tide__intern_at(table, number) == NULL) return 2;
  }
  if (tide__intern_at(table, count + 1) != NULL) return 2;
  if (!intern_slots_are_right_locked(table, count)) return 3;
  return intern_sum_locked(table) == tide__load_relaxed(&table->memory) ? 0 : 4;
}

int tide__intern_table_check(tide__intern_table* table) {
  tide__mutex_lock(&table->lock);
  const int broken = intern_check_locked(table);
  tide__mutex_unlock(&table->lock);
  return broken;
}

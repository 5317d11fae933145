// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "tensor/parcel.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/lock.h"

#define PARCEL_SHARDS 64
#define PARCEL_LISTS 256  // of a shard

typedef struct parcel_shard {
  _Alignas(64) tide__mutex lock;
  tide__parcel* lists[PARCEL_LISTS];  // owned
} parcel_shard;

static parcel_shard parcel_shards[PARCEL_SHARDS];
static pthread_once_t parcel_once = PTHREAD_ONCE_INIT;

// ---------------------------------------------------------------------------------------------------
// Forks: a child finds every list whole and no lock taken

static void parcel_fork_prepare(void) {
  for (int i = 0; i < PARCEL_SHARDS; i++) tide__mutex_lock_many(&parcel_shards[i].lock);
}

static void parcel_fork_end(void) {
  for (int i = PARCEL_SHARDS; i-- > 0;) tide__mutex_unlock_many(&parcel_shards[i].lock);
}

static void parcel_start(void) {
  for (int i = 0; i < PARCEL_SHARDS; i++) tide__mutex_init(&parcel_shards[i].lock, TIDE__RANK_LEAF);
  (void)pthread_atfork(parcel_fork_prepare, parcel_fork_end, parcel_fork_end);
}

// ---------------------------------------------------------------------------------------------------
// Records

tide__parcel* tide__parcel_new(void) {
  (void)pthread_once(&parcel_once, parcel_start);
  return malloc(sizeof(tide__parcel));
}

void tide__parcel_free(tide__parcel* parcel) { free(parcel); }

// Addresses differ in their middle bits; the product has mixed them in its upper ones.
static uint32_t parcel_hash(uint64_t address) { return (uint32_t)((address * 0x9e3779b97f4a7c15u) >> 50); }

_Static_assert(PARCEL_SHARDS* PARCEL_LISTS == 1 << 14, "the hash has as many bits as there are lists");

void tide__parcel_add(tide__parcel* parcel) {
  const uint32_t hash = parcel_hash(parcel->address);
  parcel_shard* const shard = &parcel_shards[hash % PARCEL_SHARDS];
  tide__parcel** const list = &shard->lists[hash / PARCEL_SHARDS];
  tide__mutex_lock(&shard->lock);
  parcel->next = *list;
  *list = parcel;
  tide__mutex_unlock(&shard->lock);
}

tide__parcel* tide__parcel_take(uint64_t address) {
  const uint32_t hash = parcel_hash(address);
  parcel_shard* const shard = &parcel_shards[hash % PARCEL_SHARDS];
  (void)pthread_once(&parcel_once, parcel_start);
  tide__mutex_lock(&shard->lock);
  tide__parcel** link = &shard->lists[hash / PARCEL_SHARDS];
  while (*link != NULL && (*link)->address != address) link = &(*link)->next;
  tide__parcel* const parcel = *link;
  if (parcel != NULL) *link = parcel->next;
  tide__mutex_unlock(&shard->lock);
  return parcel;
}

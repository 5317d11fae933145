// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: the backups of an allocator, which are stores with contents of parked pools, or stores that
// are kept or made ahead for the next time. One list has them all, and changes with the gate.
#include <string.h>

#include "device/park/park.h"

static bool folder_is_same(const char* a, const char* b) {
  return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool backup_is(const tide__backup* backup, const tide__backup_wish* wish) {
  return backup->kind == wish->kind && strcmp(backup->tag, wish->tag) == 0 &&
         folder_is_same(backup->folder, wish->folder);
}

tide__backup* tide__backup_take(tide_device_cache* device, const tide__backup_wish* wish) {
  tide__backup* backup = device->backups;
  while (backup != NULL && (backup->users > 0 || !backup->is_kept || !backup_is(backup, wish))) {
    backup = backup->next;
  }
  if (backup != NULL) backup->users = 1;
  return backup;
}

tide_status tide__backup_new(tide_device_cache* device, const tide__backup_wish* wish, uint64_t bytes,
                             tide__backup** out) {
  tide__backup* const backup = tide__heap_alloc(device->heap, 1, sizeof *backup);
  TIDE_REQUIRE(backup != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a backup");
  const tide_status status =
      tide__store_new(device, (tide_backup)wish->kind, wish->folder, bytes, &backup->store);
  if (status != TIDE_OK) {
    tide__heap_release(device->heap, backup, 1, sizeof *backup);
    return status;
  }
  backup->tag = wish->tag;
  backup->folder = wish->folder;
  backup->kind = wish->kind;
  backup->bytes = bytes;
  backup->users = 1;
  backup->next = device->backups;
  device->backups = backup;
  *out = backup;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Contents

void tide__backup_forget(tide_device_cache* device, tide__backup* backup) {
  tide__heap_release(device->heap, backup->contents, backup->content_capacity, sizeof *backup->contents);
  backup->contents = NULL;
  backup->content_count = 0;
  backup->content_capacity = 0;
}

void tide__backup_set_contents(tide_device_cache* device, tide__backup* backup, tide__content* contents,
                               size_t count, size_t capacity) {
  tide__backup_forget(device, backup);
  backup->contents = contents;
  backup->content_count = count;
  backup->content_capacity = capacity;
}

size_t tide__backup_content_at(const tide__backup* backup, uint64_t address) {
  size_t low = 0;
  size_t high = backup->content_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (backup->contents[middle].address + backup->contents[middle].bytes <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---------------------------------------------------------------------------------------------------
// The end of a backup

void tide__backup_share(tide__backup* backup) { backup->users++; }

void tide__backup_leave(tide_device_cache* device, tide__backup* backup) {
  backup->users--;
  tide__backups_sweep(device);
}

// Frees the backups that `ends` names.
static void backups_free(tide_device_cache* device, bool (*ends)(const tide__backup* backup, const char* tag),
                         const char* tag) {
  tide__backup** place = &device->backups;
  while (*place != NULL) {
    tide__backup* const backup = *place;
    if (!ends(backup, tag)) {
      place = &backup->next;
      continue;
    }
    *place = backup->next;
    tide__store_free(backup->store);
    tide__backup_forget(device, backup);
    tide__heap_release(device->heap, backup, 1, sizeof *backup);
  }
}

static bool backup_is_over(const tide__backup* backup, const char* tag) {
  (void)tag;
  return backup->users == 0 && !backup->is_kept;
}

static bool backup_is_idle_under(const tide__backup* backup, const char* tag) {
  if (backup->users > 0) return false;
  return !backup->is_kept || tag == NULL || tide__tag_covers(tag, backup->tag);
}

static bool backup_is_any(const tide__backup* backup, const char* tag) {
  (void)backup;
  (void)tag;
  return true;
}

// Copies may still read from a store until the last arrival is over.
void tide__backups_sweep(tide_device_cache* device) {
  if (device->backups != NULL && tide__arrival_is_over(device)) backups_free(device, backup_is_over, NULL);
}

void tide__backups_trim(tide_device_cache* device, const char* tag) {
  if (tide__arrival_is_over(device)) backups_free(device, backup_is_idle_under, tag);
}

void tide__backups_fini(tide_device_cache* device) { backups_free(device, backup_is_any, NULL); }

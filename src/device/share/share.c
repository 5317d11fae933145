// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory for other devices and other processes. A raw segment is shared as a whole by the machine's 64 bytes;
// of an expandable one, and of homes and views, the handles around the block, as file descriptors. What was
// imported is kept in a list, so that a raw segment that is imported again is opened once; it is touched by
// the thread that has the gate.
#include <errno.h>
#include <string.h>

#include "base/sized.h"
#include "base/sys.h"
#include "device/segment/virtual.h"
#include "device/share/share.h"
#include "device/tide/tide.h"

static tide_status lane_add_peer(tide_device_cache* device, tide__lane* lane, int peer) {
  TIDE_LIST_EACH(it, &lane->segments) {  // it changes with the gate only
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->kind->add_peer != NULL) TIDE_TRY(segment->kind->add_peer(device, segment, peer));
  }
  return TIDE_OK;
}

static tide_status segments_add_peer(tide_device_cache* device, int peer) {
  tide__pool_cursor at = { 0 };
  for (tide__pool* pool = &device->default_pool; pool != NULL; pool = tide__pool_next(device, &at)) {
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane))
      TIDE_TRY(lane_add_peer(device, lane, peer));
  }
  return TIDE_OK;
}

tide_status tide_device_enable_peer(tide_device_cache* device, int peer) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_enable_peer: no device");
  TIDE_REQUIRE(peer != device->index, TIDE_ERR_DEVICE, "device_enable_peer: %d is the device itself", peer);
  TIDE__REQUIRE_OWN(device, "device_enable_peer");
  TIDE_TRY(tide_machine_peer_enable(device->machine, peer, device->index));
  (void)tide__gate_enter(device);
  bool is_known = false;
  for (uint32_t i = 0; i < device->peer_count; i++) is_known = is_known || device->peers[i] == (uint32_t)peer;
  tide_status status = TIDE_OK;
  if (!is_known) status = segments_add_peer(device, peer);
  for (tide__import* import = device->imports; import != NULL && !is_known && status == TIDE_OK;
       import = import->next) {
    if (import->parts == NULL) continue;
    status = tide_machine_set_access(device->machine, tide__pointer(import->base), import->bytes, peer,
                                     TIDE_ACCESS_READ_WRITE);
  }
  if (!is_known && status == TIDE_OK) device->peers[device->peer_count++] = (uint32_t)peer;
  tide__gate_leave(device);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Export

// Where the parts of a share go.
typedef struct part_room {
  tide_physical_share* parts;  // borrowed; NULL: none
  size_t capacity;
  bool is_kept;  // the descriptors are the allocator's, and stay open
} part_room;

static tide_status room_check(tide_device_cache* device, const tide_share* share, part_room room) {
  const bool can_share = (tide__load_relaxed(&device->physical_flags) & TIDE_PHYSICAL_SHAREABLE) != 0;
  TIDE_REQUIRE(can_share, TIDE_ERR_UNSUPPORTED, "device_share: the machine cannot share");
  TIDE_REQUIRE(share->part_count <= room.capacity && room.parts != NULL, TIDE_ERR_LIMIT,
               "device_share: there are %u parts", share->part_count);
  return TIDE_OK;
}

// Exports one more part; if that fails, those before it are closed, unless they are kept.
static tide_status part_export(tide_device_cache* device, tide_physical physical, uint64_t bytes,
                               part_room room, size_t index) {
  tide_physical_share* const parts = room.parts;
  if (room.is_kept) {
    TIDE_TRY(tide__kept_open(device, physical, &parts[index]));
    parts[index] = (tide_physical_share){ parts[index].descriptor, 0, bytes };
    return TIDE_OK;
  }
  const tide_status status = tide_machine_physical_export(device->machine, physical, &parts[index]);
  while (status != TIDE_OK && index-- > 0) tide__sys_file_close(parts[index].descriptor);
  return status;
}

static tide_status share_expandable(tide_device_cache* device, const tide__place* block, tide_share* out,
                                    part_room room) {
  const tide__segment* const segment = block->segment;
  const uint64_t handle = segment->handle_bytes;
  const uint64_t from = block->address - segment->address;
  const size_t first = (size_t)(from / handle);
  const size_t count = (size_t)((from + block->bytes - 1) / handle) - first + 1;
  out->part_count = (uint32_t)count;
  out->part_bytes = handle;
  out->offset = from - first * handle;
  TIDE_TRY(room_check(device, out, room));
  for (size_t i = 0; i < count; i++) {
    TIDE_TRY(part_export(device, segment->handles[first + i], handle, room, i));
  }
  return TIDE_OK;
}

// The size of all handles of a span, or 0 if they have several.
static uint64_t span_handle_bytes(tide__span span) {
  const uint64_t bytes = span.handles[0]->bytes;
  size_t i = 1;
  while (i < span.count && span.handles[i]->bytes == bytes) i++;
  return i == span.count ? bytes : 0;
}

// The handles of a block of the policy `tide`, at home or in its view, whatever their sizes. From now on no
// view is made of them, and none that is there uses them: see view.c.
static tide_status share_span(tide_device_cache* device, tide__span span, tide_share* out, part_room room) {
  out->part_count = (uint32_t)span.count;
  out->part_bytes = span_handle_bytes(span);
  out->offset = span.offset;
  TIDE_TRY(room_check(device, out, room));
  for (size_t i = 0; i < span.count; i++) {
    TIDE_REQUIRE(span.handles[i]->physical != NULL && !tide__pool_is_away(span.handles[i]->home->lane->pool),
                 TIDE_ERR_STATE, "device_share: the memory is parked");
  }
  for (size_t i = 0; i < span.count; i++) {
    TIDE_TRY(part_export(device, span.handles[i]->physical, span.handles[i]->bytes, room, i));
  }
  for (size_t i = 0; i < span.count; i++) span.handles[i]->is_shared = true;
  return TIDE_OK;
}

static tide_status block_share(tide_device_cache* device, const tide__place* block, tide_share* out,
                               part_room room) {
  const tide__segment* const segment = block->segment;
  const uint64_t base = segment != NULL ? segment->address : block->address;
  const uint64_t offset = block->address - base;
  if (segment != NULL && segment->home != NULL) {
    return share_span(device, tide__home_span(segment->home, block->address, block->bytes), out, room);
  }
  if (segment != NULL && segment->view != NULL) {
    return share_span(device, tide__view_span(segment->view, offset, block->bytes), out, room);
  }
  if (segment != NULL && segment->is_expandable) return share_expandable(device, block, out, room);
  out->offset = offset;
  return tide_machine_raw_export(device->machine, device->index, tide__pointer(base), &out->raw);
}

static tide_status share_at_gate(tide_device_cache* device, const void* address, tide_share* out,
                                 part_room room) {
  tide_block block = { NULL, 0 };
  tide__place place = { NULL, 0, 0 };
  TIDE_TRY(tide_device_find(device, address, &block));
  TIDE_TRY(tide__block_place(device, block, "device_share", &place));
  out->bytes = place.bytes;
  return block_share(device, &place, out, room);
}

static tide_status share_to(tide_device_cache* device, const void* address, tide_share* out, part_room room) {
  tide_share share = TIDE_SHARE_INIT;
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_share: no device");
  TIDE_TRY(tide__sized_write("device_share", &share, out, sizeof share));
  TIDE__REQUIRE_OWN(device, "device_share");
  (void)tide__gate_enter(device);
  const tide_status status = share_at_gate(device, address, &share, room);
  tide__gate_leave(device);
  if (status == TIDE_OK || status == TIDE_ERR_LIMIT) {
    tide__ignore(tide__sized_write("device_share", &share, out, sizeof share));
  }
  return status;
}

tide_status tide_device_share(tide_device_cache* device, const void* address, tide_share* out,
                              tide_physical_share* parts, size_t capacity) {
  return share_to(device, address, out, (part_room){ parts, capacity, false });
}

tide_status tide_device_share_kept(tide_device_cache* device, const void* address, tide_share* out,
                                   tide_physical_share* parts, size_t capacity) {
  return share_to(device, address, out, (part_room){ parts, capacity, true });
}

// ---------------------------------------------------------------------------------------------------
// Import

static tide__import* import_find_raw(tide_device_cache* device, const tide_share* share) {
  tide__import* import = device->imports;
  while (import != NULL &&
         (import->parts != NULL || memcmp(&import->share.raw, &share->raw, sizeof share->raw) != 0)) {
    import = import->next;
  }
  return import;
}

static void parts_close(tide_device_cache* device, tide__import* import) {
  (void)tide__mapping_end(device, import->parts);
  import->parts = NULL;
  import->base = 0;
}

// Opens and maps the parts one behind the other; the mapping has what is open, also on failure.
static tide_status parts_open(tide_device_cache* device, tide__mapping* mapping,
                              const tide_physical_share* parts) {
  for (; mapping->count < mapping->capacity; mapping->count++) {
    TIDE_TRY(tide_machine_physical_import(device->machine, device->index, &parts[mapping->count],
                                          &mapping->handles[mapping->count]));
  }
  for (size_t i = 0; i < mapping->count; i++) {
    TIDE_TRY(tide__mapping_add(device, mapping, mapping->handles[i], parts[i].bytes));
  }
  return tide__access_give(device, mapping->address, mapping->bytes);
}

// Reserves the addresses at which the parts are mapped.
static tide_status parts_reserve(tide_device_cache* device, tide__import* import) {
  void* base = NULL;
  TIDE_TRY(tide_machine_address_reserve(device->machine, device->index, import->bytes, 0, NULL, &base));
  const tide_status status =
      tide__mapping_new(device, tide__address(base), import->bytes, import->share.part_count, &import->parts);
  if (status != TIDE_OK) {
    tide__ignore(tide_machine_address_release(device->machine, base, import->bytes));
    return status;
  }
  import->base = import->parts->address;
  import->parts->range_bytes = import->bytes;
  return TIDE_OK;
}

// Does a block lie in what is shared?
static tide_status block_check(const tide_share* share, uint64_t shared_bytes) {
  uint64_t end = 0;
  TIDE_REQUIRE(share->bytes != 0 && tide__add(share->offset, share->bytes, &end) && end <= shared_bytes,
               TIDE_ERR_ARGUMENT, "device_import: %llu bytes at %llu are not inside the %llu that are shared",
               (unsigned long long)share->bytes, (unsigned long long)share->offset,
               (unsigned long long)shared_bytes);
  return TIDE_OK;
}

// How much was opened is asked of the machine: the share may say anything.
static tide_status raw_open(tide_device_cache* device, tide__import* import) {
  void* base = NULL;
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  TIDE_TRY(tide_machine_raw_import(device->machine, device->index, &import->share.raw, &base));
  tide_status status = tide_machine_pointer_info(device->machine, base, &info);
  if (status == TIDE_OK && (info.kind == TIDE_MEMORY_UNKNOWN || info.base != base)) {
    status =
        TIDE_FAIL(TIDE_ERR_MACHINE, "device_import: the machine does not know what it opened at %p", base);
  }
  import->base = tide__address(base);
  import->bytes = info.bytes;
  return status;
}

static tide_status import_open(tide_device_cache* device, tide__import* import,
                               const tide_physical_share* parts) {
  const tide_share* const share = &import->share;
  if (share->part_count == 0) return raw_open(device, import);
  for (uint32_t i = 0; i < share->part_count; i++) import->bytes += parts[i].bytes;
  TIDE_TRY(parts_reserve(device, import));
  const tide_status status = parts_open(device, import->parts, parts);
  if (status != TIDE_OK) parts_close(device, import);
  return status;
}

static void import_free(tide_device_cache* device, tide__import* import) {
  tide__heap_release(device->heap, import, 1, sizeof *import);
}

static tide_status import_close(tide_device_cache* device, tide__import* import) {
  if (import->parts == NULL) return tide_machine_raw_unimport(device->machine, tide__pointer(import->base));
  parts_close(device, import);
  return TIDE_OK;
}

// What is open, although the share turns out to be wrong, and cannot be closed again just now is kept without
// a use: it goes with the allocator at the latest.
static tide_status import_new(tide_device_cache* device, const tide_share* share,
                              const tide_physical_share* parts, tide__import** out) {
  tide__import* const import = tide__heap_alloc(device->heap, 1, sizeof *import);
  TIDE_REQUIRE(import != NULL, TIDE_ERR_NO_MEMORY, "device_import: no memory for the record of it");
  import->share = *share;
  tide_status status = import_open(device, import, parts);
  if (status == TIDE_OK) status = block_check(share, import->bytes);
  const tide_error error = *tide_last_error();
  if (status != TIDE_OK && (import->base == 0 || import_close(device, import) == TIDE_OK)) {
    import_free(device, import);
    return status;
  }
  import->next = device->imports;
  device->imports = import;
  if (status != TIDE_OK) tide__error_restore(&error);
  *out = import;
  return status;
}

static tide_status parts_check(const tide_share* share, const tide_physical_share* parts) {
  TIDE_REQUIRE(share->part_count == 0 || parts != NULL, TIDE_ERR_ARGUMENT, "device_import: no parts");
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < share->part_count; i++) {
    TIDE_REQUIRE(parts[i].bytes != 0 && tide__add(bytes, parts[i].bytes, &bytes), TIDE_ERR_ARGUMENT,
                 "device_import: part %u has %llu bytes", i, (unsigned long long)parts[i].bytes);
  }
  return share->part_count != 0 ? block_check(share, bytes) : TIDE_OK;
}

tide_status tide_device_import(tide_device_cache* device, const tide_share* share,
                               const tide_physical_share* parts, void** out) {
  tide_share whole = TIDE_SHARE_INIT;
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_import: no device or out");
  *out = NULL;
  TIDE_TRY(tide__sized_read("device_import", share, &whole, sizeof whole));
  TIDE_REQUIRE(share->size >= offsetof(tide_share, raw) + sizeof share->raw, TIDE_ERR_ARGUMENT,
               "device_import: a share of %u bytes lacks its end", share->size);
  share = &whole;
  TIDE__REQUIRE_OWN(device, "device_import");
  TIDE_TRY(parts_check(share, parts));
  (void)tide__gate_enter(device);
  tide__import* import = share->part_count == 0 ? import_find_raw(device, share) : NULL;
  tide_status status = TIDE_OK;
  if (import == NULL) status = import_new(device, share, parts, &import);
  else status = block_check(share, import->bytes);
  if (status == TIDE_OK) {
    import->uses++;
    *out = tide__pointer(import->base + share->offset);
  }
  tide__gate_leave(device);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Import from a process

static tide_status fetch_fail(int process, int descriptor, int error) {
  const bool is_denied = error == EPERM || error == EACCES;
  const tide_status status = is_denied                            ? TIDE_ERR_ACCESS
                             : error == ENOSYS                    ? TIDE_ERR_UNSUPPORTED
                             : error == EMFILE || error == ENFILE ? TIDE_ERR_LIMIT
                                                                  : TIDE_ERR_STATE;
  return TIDE_FAIL(status, "device_import_from: descriptor %d of process %d cannot be copied: %s%s",
                   descriptor, process, strerror(error),
                   is_denied ? "; this process may not trace that one" : "");
}

static void fetched_free(tide_device_cache* device, tide_physical_share* own, size_t fetched, size_t count) {
  for (size_t i = 0; i < fetched; i++) tide__sys_file_close(own[i].descriptor);
  tide__heap_release(device->heap, own, count, sizeof *own);
}

tide_status tide_device_import_from(tide_device_cache* device, int process, const tide_share* share,
                                    const tide_physical_share* parts, void** out) {
  TIDE_REQUIRE(device != NULL && share != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_import_from: no device, share or out");
  *out = NULL;
  TIDE_REQUIRE(process > 0 && parts != NULL && share->part_count > 0, TIDE_ERR_ARGUMENT,
               "device_import_from: no process or no parts");
  const size_t count = share->part_count;
  tide_physical_share* const own = tide__heap_alloc(device->heap, count, sizeof *own);
  TIDE_REQUIRE(own != NULL, TIDE_ERR_NO_MEMORY, "device_import_from: no memory for %zu parts", count);
  tide_status status = TIDE_OK;
  size_t fetched = 0;
  while (fetched < count && status == TIDE_OK) {
    own[fetched] = parts[fetched];
    const int error = tide__sys_file_fetch(process, parts[fetched].descriptor, &own[fetched].descriptor);
    if (error != 0) status = fetch_fail(process, parts[fetched].descriptor, error);
    else fetched++;
  }
  if (status == TIDE_OK) status = tide_device_import(device, share, own, out);
  fetched_free(device, own, fetched, count);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Closing

// Where the list points to the import an address belongs to; NULL: none.
static tide__import** import_place(tide_device_cache* device, uint64_t address) {
  for (tide__import** place = &device->imports; *place != NULL; place = &(*place)->next) {
    const uint64_t base = (*place)->base;
    if ((*place)->uses > 0 && address >= base && address - base < (*place)->bytes) return place;
  }
  return NULL;
}

tide_status tide_device_unimport(tide_device_cache* device, void* address) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_unimport: no device");
  TIDE__REQUIRE_OWN(device, "device_unimport");
  (void)tide__gate_enter(device);
  tide__import** const place = import_place(device, tide__address(address));
  tide_status status = TIDE_ERR_HANDLE;
  if (place != NULL) {
    tide__import* const import = *place;
    status = import->uses > 1 ? TIDE_OK : tide_machine_device_synchronize(device->machine, device->index);
    if (status == TIDE_OK && import->uses == 1) status = import_close(device, import);
    if (status == TIDE_OK && --import->uses == 0) {
      *place = import->next;
      import_free(device, import);
    }
  }
  tide__gate_leave(device);
  TIDE_REQUIRE(place != NULL, TIDE_ERR_HANDLE, "device_unimport: nothing was imported at %p", address);
  return status;
}

void tide__imports_close(tide_device_cache* device) {
  while (device->imports != NULL) {
    tide__import* const import = device->imports;
    device->imports = import->next;
    tide__ignore(import_close(device, import));
    import_free(device, import);
  }
}

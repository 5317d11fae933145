// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The dry machine: addresses without memory, and calls that cost virtual time. The search for free addresses
// continues where the last one ended, in a range that Linux gives to no program. So the same calls always
// return the same addresses.
#include "machine/dry/dry.h"

#include <stdio.h>
#include <string.h>

#include "base/arith.h"
#include "base/sized.h"

#define ADDRESS_FIRST ((uint64_t)1 << 44)
#define ADDRESS_LAST ((uint64_t)1 << 46)
#define PAGE_BYTES 512u
#define MIB ((uint64_t)1 << 20)
#define NO_PRICE UINT64_MAX

static tide__range* range_of_node(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__range, node) : NULL;
}

// The last range that has an address in [begin, begin + bytes), or NULL.
static const tide__range* range_over(const tide__soft* soft, uint64_t begin, uint64_t bytes) {
  const tide__range* range = range_of_node(tide__tree_floor(&soft->ranges, begin + bytes - 1));
  return range != NULL && range->node.key + range->span > begin ? range : NULL;
}

// ---------------------------------------------------------------------------------------------------
// Costs

// Costs saturate, as the clock does.
static uint64_t sum_of(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return tide__add(a, b, &sum) ? sum : UINT64_MAX - 1;
}

static uint64_t product_of(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return tide__mul(a, b, &product) ? product : UINT64_MAX - 1;
}

static uint64_t per_mib(uint64_t fixed, uint64_t each, uint64_t bytes) {
  const uint64_t whole = product_of(each, bytes / MIB);
  const uint64_t part = product_of(each, bytes % MIB) / MIB;
  return sum_of(fixed, sum_of(whole, part));
}

// The cost of a call that has its own price, or NO_PRICE.
static uint64_t call_cost(const tide_dry_costs* costs, tide_call call, uint64_t mappings, uint64_t bytes) {
  switch ((uint32_t)call) {
    case TIDE_CALL_RAW_ALLOC: return bytes <= MIB ? costs->raw_alloc_small : costs->raw_alloc_large;
    case TIDE_CALL_RAW_RELEASE: return bytes <= MIB ? costs->raw_release_small : costs->raw_release_large;
    case TIDE_CALL_PINNED_ALLOC:
    case TIDE_CALL_PINNED_RELEASE:
    case TIDE_CALL_PINNED_UNREGISTER: return per_mib(costs->pinned, costs->pinned_per_mib, bytes);
    case TIDE_CALL_PINNED_REGISTER: return per_mib(costs->pinned, costs->register_per_mib, bytes);
    case TIDE_CALL_ADDRESS_RESERVE:
    case TIDE_CALL_ADDRESS_RELEASE: return costs->reserve;
    case TIDE_CALL_PHYSICAL_NEW: return costs->physical_new;
    case TIDE_CALL_PHYSICAL_FREE: return per_mib(costs->physical_free, costs->physical_free_per_mib, bytes);
    case TIDE_CALL_MAP: return costs->map;
    case TIDE_CALL_UNMAP: return product_of(costs->unmap_per_mapping, mappings);
    case TIDE_CALL_SET_ACCESS: return product_of(costs->access_per_mapping, mappings);
    case TIDE_CALL_EVENT_RECORD:
    case TIDE_CALL_EVENT_RECORD_ALL: return costs->event_record;
    case TIDE_CALL_EVENT_QUERY: return costs->event_query;
    default: return NO_PRICE;
  }
}

static void dry_spend(tide__dry* dry, tide_call call, uint64_t ns) {
  tide__dry_pass(dry, ns);
  tide__machine_charge(dry->soft.machine, call, ns);
}

static void dry_charge(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes) {
  tide__dry* dry = tide__dry_of(soft);
  dry_spend(dry, call, call_cost(&dry->costs, call, mappings, bytes));
}

// Charges a call without its own price.
static void dry_charge_other(void* self, tide_call call) {
  tide__dry* dry = self;
  if (dry->costs.other == 0 || call_cost(&dry->costs, call, 0, 0) != NO_PRICE) return;
  dry_spend(dry, call, dry->costs.other);
}

// ---------------------------------------------------------------------------------------------------
// Addresses

// Takes the next dictated address from a script; 0 if there is none.
static uint64_t script_take(tide__dry_script* script) {
  if (script->first == script->count) return 0;
  const uint64_t address = script->addresses[script->first++];
  if (script->first == script->count) script->first = script->count = 0;
  return address;
}

static tide_status reserve_dictated(tide__soft* soft, const char* name, uint64_t address, uint64_t bytes,
                                    uint64_t alignment, uint64_t* out) {
  uint64_t end = 0;
  TIDE_REQUIRE(tide__add(address, bytes, &end) && tide__is_aligned(address, alignment), TIDE_ERR_ARGUMENT,
               "%s: the dictated address %p is not a multiple of %llu, or %llu bytes do not fit after it",
               name, tide__pointer(address), (unsigned long long)alignment, (unsigned long long)bytes);
  const tide__range* other = range_over(soft, address, bytes);
  TIDE_REQUIRE(other == NULL, TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at the dictated address %p are taken from %p on", name,
               (unsigned long long)bytes, tide__pointer(address), tide__pointer(other->node.key));
  *out = address;
  return TIDE_OK;
}

// Searches [from, ADDRESS_LAST) for a gap; 0 if there is none.
static uint64_t gap_find(const tide__soft* soft, uint64_t from, uint64_t bytes, uint64_t alignment) {
  for (uint64_t at = from;;) {
    if (!tide__align_up(at, alignment, &at) || at >= ADDRESS_LAST || bytes > ADDRESS_LAST - at) return 0;
    const tide__range* other = range_over(soft, at, bytes);
    if (other == NULL) return at;
    at = other->node.key + other->span;
  }
}

static tide_status reserve_free(tide__dry* dry, const char* name, uint64_t bytes, uint64_t alignment,
                                uint64_t* out) {
  uint64_t address = gap_find(&dry->soft, dry->next_address, bytes, alignment);
  if (address == 0) address = gap_find(&dry->soft, ADDRESS_FIRST, bytes, alignment);
  TIDE_REQUIRE(address != 0, TIDE_ERR_NO_MEMORY, "%s: no free range of %llu addresses is left", name,
               (unsigned long long)bytes);
  dry->next_address = address + bytes;
  *out = address;
  return TIDE_OK;
}

static tide_status dry_reserve(tide__soft* soft, int device, tide_call call, uint64_t bytes,
                               uint64_t alignment, uint64_t hint, uint64_t* out) {
  tide__dry* dry = tide__dry_of(soft);
  tide__dry_device* owner = &dry->devices[device];
  const uint64_t dictated = script_take(call == TIDE_CALL_RAW_ALLOC ? &owner->raw : &owner->reserve);
  if (dictated != 0) return reserve_dictated(soft, tide_call_name(call), dictated, bytes, alignment, out);
  uint64_t end = 0;
  const bool is_usable = hint != 0 && tide__is_aligned(hint, alignment) && tide__add(hint, bytes, &end);
  if (is_usable && range_over(soft, hint, bytes) == NULL) {
    *out = hint;
    return TIDE_OK;
  }
  return reserve_free(dry, tide_call_name(call), bytes, alignment, out);
}

static tide_status dry_pinned_take(tide__soft* soft, tide__range* range) {
  if (range->is_registered) return TIDE_OK;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status =
      reserve_free(tide__dry_of(soft), "pinned_alloc", range->span, PAGE_BYTES, &range->node.key);
  tide__mutex_unlock(&soft->memory_lock);
  return status;
}

// Without memory, these functions have nothing to do.

static void dry_unreserve(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft, (void)address, (void)bytes;
}

static tide_status dry_physical_take(tide__soft* soft, const char* name, tide__physical* physical) {
  (void)soft, (void)name;
  physical->offset = 0;
  return TIDE_OK;
}

static bool dry_physical_give(tide__soft* soft, tide__physical* physical) {
  (void)soft, (void)physical;
  return true;
}

static tide_status dry_map(tide__soft* soft, const tide__physical* physical, uint64_t address) {
  (void)soft, (void)physical, (void)address;
  return TIDE_OK;
}

static tide_status dry_unmap(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft, (void)address, (void)bytes;
  return TIDE_OK;
}

static tide_status dry_protect(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read,
                               bool can_write) {
  (void)soft, (void)address, (void)bytes;
  (void)can_read, (void)can_write;
  return TIDE_OK;
}

static void dry_pinned_give(tide__soft* soft, tide__range* range) { (void)soft, (void)range; }

// ---------------------------------------------------------------------------------------------------
// The machine

static uint64_t dry_now(tide__soft* soft) { return tide__dry_now(tide__dry_of(soft)); }

static uint64_t dry_copy_ns(tide__soft* soft, uint64_t bytes) {
  return per_mib(0, tide__dry_of(soft)->costs.copy_per_mib, bytes);
}

static const tide__soft_backend dry_backend = {
  .reserve = dry_reserve,
  .unreserve = dry_unreserve,
  .physical_take = dry_physical_take,
  .physical_give = dry_physical_give,
  .map = dry_map,
  .unmap = dry_unmap,
  .protect = dry_protect,
  .pinned_take = dry_pinned_take,
  .pinned_give = dry_pinned_give,
  .charge = dry_charge,
  .stream_start = tide__dry_stream_start,
  .stream_kick = tide__dry_stream_kick,
  .stream_stop = tide__dry_stream_stop,
  .settle = tide__dry_settle,
  .now = dry_now,
  .copy_ns = dry_copy_ns,
  .drain = tide__dry_drain,
  .await = tide__dry_await,
};

static void script_fini(const tide_heap* heap, tide__dry_script* script) {
  tide__heap_release(heap, script->addresses, script->capacity, sizeof(uint64_t));
}

static void dry_free(void* self) {
  tide__dry* dry = self;
  const tide_heap* heap = dry->soft.heap;
  const size_t device_count = (size_t)dry->soft.device_count;
  tide__soft_fini(&dry->soft);
  for (size_t i = 0; i < device_count; i++) {
    script_fini(heap, &dry->devices[i].raw);
    script_fini(heap, &dry->devices[i].reserve);
  }
  tide__heap_release(heap, dry->devices, device_count, sizeof *dry->devices);
  tide__signal_fini(&dry->runner_left);
  tide__mutex_fini(&dry->runner_lock);
  tide__heap_release(heap, dry, 1, sizeof *dry);
}

static void dry_delay(void* self, uint64_t ns) { tide__dry_pass(self, ns); }

static tide_status dry_clock(void* self, uint64_t* out_ns) {
  *out_ns = tide__dry_now(self);
  return TIDE_OK;
}

static tide_status dry_device_info(void* self, int device, tide_device_info* out) {
  const tide__dry* dry = self;
  out->total_bytes = dry->soft.capacity;
  out->granularity = dry->soft.granularity;
  out->is_pinned_locked = out->has_rdma = out->has_fabric = true;
  (void)snprintf(out->name, sizeof out->name, "dry device %d", device);
  return TIDE_OK;
}

// clang-format off
static const tide_machine_ops dry_ops = {
  .size = sizeof(tide_machine_ops),
  .version = TIDE_MACHINE_OPS_VERSION,
  .flags = TIDE_MACHINE_NO_MEMORY | TIDE_MACHINE_TRUSTED,
  .name = "dry",
  .free = dry_free,
  .delay = dry_delay,
  .charge = dry_charge_other,
  .device_info = dry_device_info,
  .clock = dry_clock,
  .is_in_callback = tide__soft_is_in_callback,
  TIDE__SOFT_CALL_MAP(TIDE__SOFT_ENTRY)
};
// clang-format on

static tide_status dry_init(tide__dry* dry, const tide_dry_options* options, const tide_heap* heap) {
  dry->devices = tide__heap_alloc(heap, options->device_count, sizeof *dry->devices);
  TIDE_REQUIRE(dry->devices != NULL, TIDE_ERR_NO_MEMORY, "machine_new_dry: no memory for its records");
  dry->costs = *options->costs;
  dry->next_address = ADDRESS_FIRST;
  const tide_status status = tide__soft_init(&dry->soft, &dry_backend, heap, (int)options->device_count,
                                             options->capacity, options->granularity, PAGE_BYTES);
  if (status != TIDE_OK) {
    tide__heap_release(heap, dry->devices, options->device_count, sizeof *dry->devices);
    return status;
  }
  tide__mutex_init(&dry->runner_lock, TIDE__RANK_LEAF);
  tide__signal_init(&dry->runner_left);
  return TIDE_OK;
}

tide_status tide_machine_new_dry(const tide_dry_options* options, tide_machine** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "machine_new_dry: needs out != NULL");
  *out = NULL;
  tide_dry_options whole = TIDE_DRY_OPTIONS_INIT;
  tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("machine_new_dry", options, &whole, sizeof whole));
  if (whole.costs != NULL) TIDE_TRY(tide__sized_read("machine_new_dry", whole.costs, &costs, sizeof costs));
  whole.costs = &costs;
  options = &whole;
  TIDE_TRY(tide__soft_check_options("machine_new_dry", options->device_count, options->capacity,
                                    options->granularity, PAGE_BYTES, options->heap));
  TIDE_REQUIRE(options->capacity != 0, TIDE_ERR_ARGUMENT, "machine_new_dry: the capacity is 0");
  const tide_heap* heap = tide__heap_or_system(options->heap);
  tide__dry* dry = tide__heap_alloc(heap, 1, sizeof *dry);
  TIDE_REQUIRE(dry != NULL, TIDE_ERR_NO_MEMORY, "machine_new_dry: no memory for its records");
  tide_status status = dry_init(dry, options, heap);
  if (status != TIDE_OK) {
    tide__heap_release(heap, dry, 1, sizeof *dry);
    return status;
  }
  status = tide_machine_new(&dry_ops, dry, (int)options->device_count, heap, &dry->soft.machine);
  if (status != TIDE_OK) {
    dry_free(dry);
    return status;
  }
  *out = dry->soft.machine;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Control

// The dry machine of a machine, and the check of a device (0 if a call has none).
static tide_status control_enter(tide_machine* machine, const char* name, int device, tide__dry** out) {
  TIDE_REQUIRE(machine != NULL, TIDE_ERR_ARGUMENT, "%s: needs a machine", name);
  *out = tide__machine_self(machine, &dry_ops);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_UNSUPPORTED, "%s: this is not a dry machine", name);
  TIDE_REQUIRE(device >= 0 && device < machine->device_count, TIDE_ERR_DEVICE,
               "%s: there is no device %d, only 0 to %d", name, device, machine->device_count - 1);
  TIDE_REQUIRE(!tide__soft_is_in_callback(*out), TIDE_ERR_STATE,
               "%s: a callback of a stream must not call the machine", name);
  return TIDE_OK;
}

tide_status tide_dry_advance(tide_machine* machine, uint64_t ns) {
  tide__dry* dry = NULL;
  TIDE_TRY(control_enter(machine, "dry_advance", 0, &dry));
  tide__dry_pass(dry, ns);
  tide__dry_settle(&dry->soft);
  return TIDE_OK;
}

tide_status tide_dry_work(tide_machine* machine, int device, tide_stream stream, uint64_t ns) {
  tide__dry* dry = NULL;
  TIDE_TRY(control_enter(machine, "dry_work", device, &dry));
  return tide__dry_work(dry, device, stream, ns);
}

tide_status tide_dry_hold(tide_machine* machine, int device, tide_stream stream, bool is_held) {
  tide__dry* dry = NULL;
  TIDE_TRY(control_enter(machine, "dry_hold", device, &dry));
  return tide__dry_hold(dry, device, stream, is_held);
}

tide_status tide_dry_finish(tide_machine* machine, tide_event event) {
  tide__dry* dry = NULL;
  TIDE_TRY(control_enter(machine, "dry_finish", 0, &dry));
  return tide__dry_finish(dry, event);
}

static bool script_append(const tide_heap* heap, tide__dry_script* script, uint64_t address) {
  if (script->first > 0 && script->count == script->capacity) {
    script->count -= script->first;
    memmove(script->addresses, script->addresses + script->first, script->count * sizeof(uint64_t));
    script->first = 0;
  }
  void* addresses = script->addresses;
  if (!tide__heap_grow(heap, &addresses, &script->capacity, script->count + 1, sizeof(uint64_t)))
    return false;
  script->addresses = addresses;
  script->addresses[script->count++] = address;
  return true;
}

tide_status tide_dry_dictate(tide_machine* machine, int device, tide_call call, void* address) {
  tide__dry* dry = NULL;
  TIDE_TRY(control_enter(machine, "dry_dictate", device, &dry));
  const bool is_raw = call == TIDE_CALL_RAW_ALLOC;
  TIDE_REQUIRE(address != NULL && (is_raw || call == TIDE_CALL_ADDRESS_RESERVE), TIDE_ERR_ARGUMENT,
               "dry_dictate: needs an address, and raw_alloc or address_reserve");
  tide__dry_device* owner = &dry->devices[device];
  tide__mutex_lock(&dry->soft.memory_lock);
  const bool is_kept =
      script_append(dry->soft.heap, is_raw ? &owner->raw : &owner->reserve, tide__address(address));
  tide__mutex_unlock(&dry->soft.memory_lock);
  TIDE_REQUIRE(is_kept, TIDE_ERR_NO_MEMORY, "dry_dictate: no memory for its records");
  return TIDE_OK;
}

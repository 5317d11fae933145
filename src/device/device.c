// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The life of an allocator: how it is made, configured, and freed with everything it holds; the gate; and the
// table of default allocators.
#include "device/allocator.h"
#include "device/options.h"

// ---------------------------------------------------------------------------------------------------
// Numbers

static tide__mutex registry_lock;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static uint64_t registry_ids;   // bit n: an allocator has the number n; shared under registry_lock
static uint64_t registry_uids;  // how many allocators were made; likewise
static tide_device* registry_defaults[TIDE_DEVICE_MAX];

static void registry_init(void) {
  tide__mutex_init(&registry_lock, TIDE__RANK_REGISTRY);
  tide__fork_hold(&registry_lock);
}

static void registry_add(tide_device* device) {
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  device->uid = ++registry_uids;
  const bool has_id = ~registry_ids != 0;
  device->id = has_id ? (uint32_t)__builtin_ctzll(~registry_ids) : (uint32_t)(device->uid % 64);
  device->has_own_id = has_id;
  if (has_id) registry_ids |= (uint64_t)1 << device->id;
  tide__mutex_unlock(&registry_lock);
}

static void registry_remove(const tide_device* device) {
  tide__mutex_lock(&registry_lock);
  if (device->has_own_id) registry_ids &= ~((uint64_t)1 << device->id);
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) {
    if (registry_defaults[i] == device) registry_defaults[i] = NULL;
  }
  tide__mutex_unlock(&registry_lock);
}

tide_status tide_device_set_default(int index, tide_device* device) {
  TIDE_REQUIRE(index >= 0 && index < TIDE_DEVICE_MAX, TIDE_ERR_DEVICE, "device_set_default: index %d", index);
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  registry_defaults[index] = device;
  tide__mutex_unlock(&registry_lock);
  return TIDE_OK;
}

tide_device* tide_device_default(int index) {
  if (index < 0 || index >= TIDE_DEVICE_MAX) return NULL;
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  tide_device* const device = registry_defaults[index];
  tide__mutex_unlock(&registry_lock);
  return device;
}

tide_status tide_device_trim_all(void) {
  tide_status first = TIDE_OK;
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) {
    tide_device* const device = tide_device_default(i);
    if (device == NULL) continue;
    const tide_error before = *tide_last_error();
    const tide_status status = tide_device_trim(device);
    if (first == TIDE_OK) first = status;
    else if (status != TIDE_OK) tide__error_restore(&before);  // that of the first stays
  }
  return first;
}

uint64_t tide__thread_number(void) {
  static tide__atomic_u64 last;
  static _Thread_local uint64_t number;
  if (number == 0) number = tide__add_relaxed(&last, 1) + 1;
  return number;
}

void tide__detour(tide_device* device, uint32_t bit, bool is_set) {
  tide__bits_set(&device->detours, bit, is_set);
}

tide_status tide__inherited_refuse(const char* call) {
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: the allocator is that of the process which forked this one", call);
}

bool tide__has_scopes(tide_device* device) { return tide__load_relaxed(&device->scope_count) != 0; }

bool tide__is_capturing(tide_device* device, tide_stream stream) {
  if (!tide__has_scopes(device)) return false;
  return !tide__device_options(device)->captures_by_stream || tide__stream_capture(device, stream) != 0;
}

// ---------------------------------------------------------------------------------------------------
// The gate

uint64_t tide__gate_enter(tide_device* device) {
  tide__mutex_lock(&device->gate_lock);
  while (device->is_gate_taken) tide__signal_wait(&device->gate_open, &device->gate_lock);
  device->is_gate_taken = true;
  const uint64_t turn = tide__load_relaxed(&device->gate_turn);
  tide__mutex_unlock(&device->gate_lock);
  return turn;
}

void tide__gate_leave(tide_device* device) {
  tide__mutex_lock(&device->gate_lock);
  tide__store_release(&device->gate_turn,
                      tide__load_relaxed(&device->gate_turn) + 1);  // pairs with request_begin
  device->is_gate_taken = false;
  tide__signal_all(&device->gate_open);
  tide__mutex_unlock(&device->gate_lock);
}

// ---------------------------------------------------------------------------------------------------
// Options

static uint64_t fraction_limit(const tide_device* device, double fraction) {
  return fraction < 1.0 ? (uint64_t)(fraction * (double)device->total_bytes) : TIDE_NO_LIMIT;
}

// Readers hold no lock and may still look at the settings before: those are kept until the allocator is
// freed.
static tide_status settings_publish(tide_device* device, const tide_device_options* options) {
  tide__settings* const settings = tide__heap_alloc(device->heap, 1, sizeof *settings);
  TIDE_REQUIRE(settings != NULL, TIDE_ERR_NO_MEMORY, "no memory for the options of an allocator");
  settings->options = *options;
  tide__mutex_lock(&device->pools_lock);
  settings->older = tide__load_relaxed(&device->settings);
  tide__detour(device, TIDE__IS_AUDITED, options->has_audits);
  tide__store_release(&device->settings, settings);  // pairs with tide__device_options
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

// Can the device do what the options ask for?
static tide_status options_check(const tide_device* device, const tide_device_options* options,
                                 const char* call) {
  TIDE_REQUIRE(!options->expandable_segments || device->granularity != 0, TIDE_ERR_UNSUPPORTED,
               "%s: expandable segments need virtual memory, which the device does not have", call);
  TIDE_REQUIRE(options->policy != TIDE_POLICY_TIDE || device->granularity != 0, TIDE_ERR_UNSUPPORTED,
               "%s: the policy tide needs virtual memory, which the device does not have", call);
  return TIDE_OK;
}

tide_status tide_device_configure(tide_device* device, const tide_device_options* options) {
  TIDE_REQUIRE(device != NULL && options != NULL, TIDE_ERR_ARGUMENT,
               "device_configure: no device or options");
  tide_device_options wanted;
  TIDE_TRY(tide__device_options_take(options, "device_configure", &wanted));
  TIDE_TRY(options_check(device, &wanted, "device_configure"));
  TIDE__REQUIRE_OWN(device, "device_configure");
  const tide_device_options now = *tide__device_options(device);
  wanted.heap = now.heap;
  wanted.policy = now.policy;
  wanted.ties_by_age = now.ties_by_age;
  wanted.memory_fraction = now.memory_fraction;
  return settings_publish(device, &wanted);
}

void tide_device_get_options(tide_device* device, tide_device_options* out) {
  if (device == NULL || out == NULL) return;
  tide__ignore(tide__sized_write("device_get_options", tide__device_options(device), out, sizeof *out));
}

tide_status tide_device_set_fraction(tide_device* device, double fraction) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_set_fraction: no device");
  TIDE_REQUIRE(fraction >= 0.0 && fraction <= 1.0, TIDE_ERR_ARGUMENT,
               "device_set_fraction: %g is not between 0 and 1", fraction);
  tide__store_relaxed(&device->limit, fraction_limit(device, fraction));
  return TIDE_OK;
}

double tide_device_fraction(tide_device* device) {
  const uint64_t limit = device != NULL ? tide__load_relaxed(&device->limit) : TIDE_NO_LIMIT;
  return limit == TIDE_NO_LIMIT ? 1.0 : (double)limit / (double)device->total_bytes;
}

tide_status tide_device_set_limit(tide_device* device, uint64_t bytes) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_set_limit: no device");
  tide__store_relaxed(&device->limit, bytes);
  return TIDE_OK;
}

uint64_t tide_device_limit(tide_device* device) {
  return device != NULL ? tide__load_relaxed(&device->limit) : TIDE_NO_LIMIT;
}

void tide_device_set_caching(tide_device* device, bool is_on) {
  if (device != NULL) tide__detour(device, TIDE__IS_UNCACHED, !is_on);
}

bool tide_device_is_caching(const tide_device* device) {
  return device != NULL && (tide__load_relaxed(&device->detours) & TIDE__IS_UNCACHED) == 0;
}

tide_machine* tide_device_machine(const tide_device* device) {
  return device != NULL ? device->machine : NULL;
}
int tide_device_index(const tide_device* device) { return device != NULL ? device->index : -1; }

const char* tide_device_name(const tide_device* device) {
  if (device == NULL) return "";
  const tide__settings* const settings =
      tide__load_acquire(&device->settings);  // pairs with settings_publish
  return settings->options.policy == TIDE_POLICY_TIDE ? tide__policy_tide.name : tide__policy_torch.name;
}

// ---------------------------------------------------------------------------------------------------
// The beginning

static tide_status device_learn(tide_device* device, const tide_device_options* options) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  TIDE_TRY(tide_machine_device_info(device->machine, device->index, &info));
  device->total_bytes = info.total_bytes;
  device->granularity = info.granularity;
  device->has_physical_sharing = info.has_physical_sharing;
  const char* const name = tide_machine_name(device->machine);
  device->waits_on_release = name[0] == 'c';  // the driver does
  return options_check(device, options, "device_new");
}

static void device_init(tide_device* device) {
  tide__slots_init(&device->blocks, device->heap, 9, sizeof(tide__block), NULL, NULL);
  tide__map_init(&device->map, device->heap);
  tide__timeline_init(device);
  tide__mutex_init(&device->gate_lock, TIDE__RANK_GATE);
  tide__signal_init(&device->gate_open);
  tide__mutex_init(&device->pools_lock, TIDE__RANK_POOLS);
  tide__askers_init(&device->askers);
  tide__mutex_init(&device->totals_lock, TIDE__RANK_TOTALS);
  tide__pool_init(&device->default_pool, TIDE_POOL_DEFAULT);
  tide__list_init(&device->homes);
  device->next_pool = 1;
  tide__store_relaxed(&device->detours, TIDE__HAS_NO_RACKS);
  device->totals.size = sizeof device->totals;
}

static void settings_free(tide_device* device) {
  tide__settings* settings = tide__load_relaxed(&device->settings);
  while (settings != NULL) {
    tide__settings* const older = settings->older;
    tide__heap_release(device->heap, settings, 1, sizeof *settings);
    settings = older;
  }
}

// Frees the records of an allocator whose memory is given back.
static void device_fini(tide_device* device) {
  const tide_heap* const heap = device->heap;
  tide__pool_fini(device, &device->default_pool);
  while (device->idle_lanes != NULL) {
    tide__lane* const lane = device->idle_lanes;
    device->idle_lanes = lane->next_idle;
    tide__lane_fini(device, lane);
  }
  while (device->idle_pools != NULL) {
    tide__pool* const pool = device->idle_pools;
    device->idle_pools = pool->next_idle;
    tide__heap_release(heap, pool, 1, sizeof *pool);
  }
  tide__heap_release(heap, device->orphans, device->orphan_capacity, sizeof *device->orphans);
  if (device->has_racks) tide__fronts_fini(&device->fronts);
  settings_free(device);
  tide__labels_forget(device);
  tide__history_fini(&device->history);
  tide__map_fini(&device->map);
  tide__slots_fini(&device->blocks);
  tide__signal_fini(&device->gate_open);
  tide__mutex_fini(&device->gate_lock);
  tide__askers_fini(&device->askers);
  tide__mutex_fini(&device->pools_lock);
  tide__mutex_fini(&device->totals_lock);
  tide__heap_release(heap, device, 1, sizeof *device);
}

tide_status tide_device_new(tide_machine* machine, int index, const tide_device_options* options,
                            tide_device** out) {
  TIDE_REQUIRE(machine != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_new: no machine or out");
  *out = NULL;
  tide_device_options wanted = TIDE_DEVICE_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__device_options_take(options, "device_new", &wanted));
  const tide_heap* const heap = tide__heap_or_system(wanted.heap);
  tide_device* const device = tide__heap_alloc(heap, 1, sizeof *device);
  TIDE_REQUIRE(device != NULL, TIDE_ERR_NO_MEMORY, "device_new: no memory for an allocator");
  device->machine = machine;
  device->index = index;
  device->heap = heap;
  device_init(device);
  tide_status status = tide__history_init(&device->history, machine, heap, &device->detours,
                                          TIDE__RECORDS_HISTORY, TIDE__RECORDS_TRACE);
  device->history.device = (uint8_t)index;
  if (status == TIDE_OK) status = device_learn(device, &wanted);
  if (status == TIDE_OK) status = settings_publish(device, &wanted);
  if (status == TIDE_OK && wanted.policy == TIDE_POLICY_TIDE) status = tide__racks_init(device);
  if (status != TIDE_OK) {
    tide__timeline_fini(device);
    device_fini(device);
    return status;
  }
  device->totals.max_split_bytes = wanted.max_split_bytes;
  tide__store_relaxed(&device->limit, fraction_limit(device, wanted.memory_fraction));
  registry_add(device);
  tide__fork_watch(&device->fork_note, &device->detours, TIDE__IS_INHERITED);
  *out = device;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end

static void segment_destroy(tide_device* device, tide__segment* segment) {
  const tide_pool_options* const own = &segment->lane->pool->options;
  void* const address = tide__pointer(segment->address);
  if (segment->home != NULL) {
    tide__home_destroy(device, segment);
  } else if (segment->is_expandable) {
    tide__expand_destroy(device, segment);
  } else if (own->segment_release != NULL && device->machine != NULL) {
    own->segment_release(own->user, address, segment->bytes, device->index, segment->lane->stream);
  } else {
    tide__ignore(tide_machine_raw_release(device->machine, device->index, address));
  }
  tide__list_unlink(&segment->link);
  tide__segment_free(device, segment);
}

// Frees the records of uses that blocks still have.
static void segment_free_uses(tide_device* device, const tide__segment* segment) {
  for (tide__block* block = segment->head; block != NULL; block = block->next) {
    tide__markers_free(device, block);
    while (block->uses != NULL) {
      tide__use* const use = block->uses;
      block->uses = use->next;
      tide__heap_release(device->heap, use, 1, sizeof *use);
    }
  }
}

// Views go before the memory that is mapped in them.
static void pool_destroy_views(tide_device* device, tide__pool* pool) {
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    for (tide__link* link = lane->segments.next; link != &lane->segments;) {
      tide__segment* const segment = TIDE_OWNER(link, tide__segment, link);
      link = link->next;
      if (segment->view == NULL) continue;
      segment_free_uses(device, segment);
      tide__view_destroy(device, segment);
      tide__list_unlink(&segment->link);
      tide__segment_free(device, segment);
    }
  }
}

static void pool_destroy(tide_device* device, tide__pool* pool) {
  pool_destroy_views(device, pool);
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    while (!tide__list_is_empty(&lane->segments)) {
      tide__segment* const segment = TIDE_OWNER(lane->segments.next, tide__segment, link);
      segment_free_uses(device, segment);
      segment_destroy(device, segment);
    }
  }
}

// Uncached memory that is still handed out.
static void uncached_destroy(tide_device* device) {
  for (uint32_t i = 0; i < tide__slots_count(&device->blocks); i++) {
    const tide__block* const block = tide__slots_at(&device->blocks, i);
    if (block->state != TIDE__BLOCK_ALLOCATED || block->segment != NULL) continue;
    tide__ignore(tide_machine_raw_release(device->machine, device->index, tide__pointer(block->address)));
  }
}

// Gives all memory back that the machine takes; the records of the rest are freed.
static void memory_destroy(tide_device* device) {
  uncached_destroy(device);
  tide__imports_close(device);
  pool_destroy(device, &device->default_pool);
  for (tide__tree_node* node = tide__tree_first(&device->pools); node != NULL;
       node = tide__tree_first(&device->pools)) {
    tide__pool* const pool = TIDE_OWNER(node, tide__pool, node);
    pool_destroy(device, pool);
    tide__tree_remove(&device->pools, node);
    tide__pool_fini(device, pool);
    tide__heap_release(device->heap, pool, 1, sizeof *pool);
  }
  tide__addresses_fini(device);
  tide__stuck_retry(device);
  while (device->stuck != NULL) {  // the machine will not have them at all
    tide__stuck* const stuck = device->stuck;
    device->stuck = stuck->next;
    tide__stuck_free(device, stuck);
  }
  tide__strays_retry(device);
  while (device->strays != NULL) {
    tide__stray* const stray = device->strays;
    device->strays = stray->next;
    tide__stray_free(device, stray);
  }
  tide__expand_free_orphans(device);
}

// The devices whose work may use the memory, as bits.
static uint64_t devices_in_use(tide_device* device) {
  uint64_t devices = (uint64_t)1 << device->index;
  for (const tide__queue* queue = device->timeline.queues; queue != NULL; queue = queue->next) {
    if (queue->first != NULL) devices |= (uint64_t)1 << queue->device;
  }
  for (uint32_t i = 0; i < tide__slots_count(&device->blocks); i++) {
    const tide__block* const block = tide__slots_at(&device->blocks, i);
    if (block->state == TIDE__BLOCK_SPARE) continue;
    for (const tide__use* use = block->uses; use != NULL; use = use->next) {
      devices |= (uint64_t)1 << use->device;
    }
  }
  return devices;
}

// Waits for their work. A machine that has waited may still report work that failed before, once.
static tide_status devices_wait(tide_device* device) {
  const uint64_t devices = devices_in_use(device);
  tide_status status = TIDE_OK;
  for (int i = 0; i < TIDE_DEVICE_MAX && status == TIDE_OK; i++) {
    if ((devices >> i & 1u) == 0) continue;
    status = tide_machine_device_synchronize(device->machine, i);
    if (status != TIDE_OK) status = tide_machine_device_synchronize(device->machine, i);
  }
  return status;
}

// Waits for all work, because nothing is taken away from what may still run, and ends the events. An
// allocator that cannot wait for it leaves the machine, and with that all of its memory: no later call of it
// reaches the machine.
static tide_status device_settle(tide_device* device) {
  const tide_status status = devices_wait(device);
  tide__timeline_fini(device);
  if (status == TIDE_OK) return TIDE_OK;
  const tide_error reason = *tide_last_error();
  device->machine = NULL;
  return TIDE_FAIL(status, "device_free: %llu bytes stay with the machine: %.150s",
                   (unsigned long long)tide__load_relaxed(&device->reserved_bytes), reason.text);
}

void tide_device_free(tide_device* device) {
  if (device == NULL || tide__is_inherited(device)) return;
  tide_error error = *tide_last_error();
  tide_machine* const machine = device->machine;
  tide_capture_mode mode = TIDE_CAPTURE_GLOBAL;
  tide__fork_unwatch(&device->fork_note);
  registry_remove(device);
  tide__offers_close(device);
  const bool is_relaxed = tide_machine_capture_exchange(machine, TIDE_CAPTURE_RELAXED, &mode) == TIDE_OK;
  if (device_settle(device) != TIDE_OK) error = *tide_last_error();
  memory_destroy(device);
  if (is_relaxed) tide__ignore(tide_machine_capture_exchange(machine, mode, &mode));
  device_fini(device);
  tide__error_restore(&error);
}

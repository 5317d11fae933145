// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Probes: whether virtual memory of a device works, and with which flags. A trial uses one granule: it
// reserves addresses, then makes, maps, uses and frees memory in rounds. The first round has no flags. Each
// later one adds the flag of a feature, which stays if the round succeeds, so what is chosen was tried
// together.
//
// The table is called directly, with faults but without counting: a probe is no call of the machine's user.
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "machine/machine.h"

#define FULL_GRANULES 64u  // with fewer free, a device is too full to tell why it has no memory

static const char* const feature_names[TIDE_FEATURE_COUNT] = { "virtual_memory", "descriptors", "rdma",
                                                               "fabric" };
// What physical memory is made with to use a feature, and why a device without it does not work.
static const uint32_t feature_flags[TIDE_FEATURE_COUNT] = { 0, TIDE_PHYSICAL_SHAREABLE, TIDE_PHYSICAL_RDMA,
                                                            TIDE_PHYSICAL_FABRIC };
static const char* const feature_lacks[TIDE_FEATURE_COUNT] = {
  "the device has no virtual memory", "the device offers no file descriptors of memory",
  "the device offers no GPUDirect RDMA for virtual memory", "the device offers no fabric handles"
};

const char* tide_feature_name(tide_feature feature) {
  return (uint32_t)feature < TIDE_FEATURE_COUNT ? feature_names[feature] : "unknown";
}

// ---------------------------------------------------------------------------------------------------
// Calls of a trial

typedef struct trial {
  tide_machine* machine;
  int device;
  size_t bytes;
  void* address;           // reserved; NULL: none
  tide_physical physical;  // NULL: none
  bool is_mapped;
  tide_stream stream;
  bool has_stream;
  uint32_t call_count;
} trial;

static tide_status trial_enter(trial* t, tide_call call, uint64_t bytes) {
  uint64_t delay_ns = 0;
  t->call_count++;
  const tide_status fault = tide__faults_apply(&t->machine->faults, call, bytes, &delay_ns);
  if (delay_ns != 0) t->machine->ops.delay(t->machine->self, delay_ns);
  TIDE_REQUIRE(fault == TIDE_OK, fault, "%s: failed by an injected fault", tide_call_name(call));
  return TIDE_OK;
}

static tide_status trial_leave(const trial* t, tide_call call, tide_status status) {
  if (status == TIDE_OK || tide_last_error()->status == status) return status;
  return TIDE_FAIL(status, "%s: the %s machine failed and gave no reason", tide_call_name(call),
                   t->machine->ops.name);
}

// The body of a call: faults, then the function of the table, which is there if any of its kind is.
#define TRIAL_CALL(t, name, upper, bytes, ...)                                               \
  tide_status status_ = trial_enter((t), TIDE_CALL_##upper, (bytes));                        \
  if (status_ == TIDE_OK) status_ = (t)->machine->ops.name((t)->machine->self, __VA_ARGS__); \
  return trial_leave((t), TIDE_CALL_##upper, status_)

static tide_status trial_reserve(trial* t) {
  TRIAL_CALL(t, address_reserve, ADDRESS_RESERVE, t->bytes, t->device, t->bytes, 0, NULL, &t->address);
}
static tide_status trial_make(trial* t, uint32_t flags) {
  TRIAL_CALL(t, physical_new, PHYSICAL_NEW, t->bytes, t->device, t->bytes, flags, &t->physical);
}
static tide_status trial_map(trial* t) { TRIAL_CALL(t, map, MAP, 0, t->address, t->physical); }
static tide_status trial_access(trial* t) {
  TRIAL_CALL(t, set_access, SET_ACCESS, 0, t->address, t->bytes, t->device, TIDE_ACCESS_READ_WRITE);
}
static tide_status trial_unmap(trial* t) { TRIAL_CALL(t, unmap, UNMAP, 0, t->address, t->bytes); }
static tide_status trial_free(trial* t) { TRIAL_CALL(t, physical_free, PHYSICAL_FREE, 0, t->physical); }
static tide_status trial_release(trial* t) {
  TRIAL_CALL(t, address_release, ADDRESS_RELEASE, 0, t->address, t->bytes);
}
static tide_status trial_stream_new(trial* t) {
  TRIAL_CALL(t, stream_new, STREAM_NEW, 0, t->device, TIDE_STREAM_NON_BLOCKING, 0, &t->stream);
}
static tide_status trial_stream_free(trial* t) {
  TRIAL_CALL(t, stream_free, STREAM_FREE, 0, t->device, t->stream);
}
static tide_status trial_copy(trial* t, void* destination, const void* source, size_t bytes) {
  TRIAL_CALL(t, copy, COPY, bytes, t->device, t->stream, destination, source, bytes);
}
static tide_status trial_wait(trial* t) {
  TRIAL_CALL(t, stream_synchronize, STREAM_SYNCHRONIZE, 0, t->device, t->stream);
}

// ---------------------------------------------------------------------------------------------------
// Using memory

static bool can_write(const tide_machine* machine) {
  const tide_machine_ops* const ops = &machine->ops;
  return (ops->flags & TIDE_MACHINE_NO_MEMORY) == 0 && ops->stream_new != NULL && ops->stream_free != NULL &&
         ops->copy != NULL && ops->stream_synchronize != NULL;
}

// A stream of its own, so that no other work is waited for. The second copy is only queued when the first is
// done, because ordinary memory must stay valid until then.
static tide_status trial_write_on_stream(trial* t) {
  const uint64_t written = UINT64_C(0x7469646570726f62);
  uint64_t found = 0;
  TIDE_TRY(trial_copy(t, t->address, &written, sizeof written));
  TIDE_TRY(trial_wait(t));
  TIDE_TRY(trial_copy(t, &found, t->address, sizeof found));
  TIDE_TRY(trial_wait(t));
  TIDE_REQUIRE(found == written, TIDE_ERR_MACHINE, "copy: mapped memory does not keep what is written");
  return TIDE_OK;
}

// Queued copies use the caller's stack, so a stream that was used is waited for before it is freed.
static tide_status trial_write(trial* t) {
  TIDE_TRY(trial_stream_new(t));
  t->has_stream = true;
  const tide_status status = trial_write_on_stream(t);
  const tide_error error = *tide_last_error();
  if (status != TIDE_OK)
    tide__ignore(t->machine->ops.stream_synchronize(t->machine->self, t->device, t->stream));
  const tide_status end = trial_stream_free(t);
  if (end == TIDE_OK) t->has_stream = false;
  if (status != TIDE_OK) tide__error_restore(&error);
  return status != TIDE_OK ? status : end;
}

// Waiting is unsafe while the thread captures another stream; the mode RELAXED says that it is meant.
static tide_status trial_write_relaxed(trial* t) {
  const tide_machine_ops* const ops = &t->machine->ops;
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  tide_capture_mode relaxed = TIDE_CAPTURE_RELAXED;
  if (!can_write(t->machine)) return TIDE_OK;
  TIDE_TRY(ops->capture_exchange(t->machine->self, relaxed, &before));
  const tide_status status = trial_write(t);
  tide__ignore(ops->capture_exchange(t->machine->self, before, &relaxed));
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Rounds

// Gives back what a round has. On failure it is still there.
static tide_status trial_end_round(trial* t) {
  if (t->is_mapped) TIDE_TRY(trial_unmap(t));
  t->is_mapped = false;
  if (t->physical != NULL) TIDE_TRY(trial_free(t));
  t->physical = NULL;
  return TIDE_OK;
}

// Gives back as much as the machine takes. The status is that of the last failure.
static tide_status trial_end(trial* t) {
  tide_status status = trial_end_round(t);
  if (t->address != NULL && !t->is_mapped) {
    const tide_status release = trial_release(t);
    if (release == TIDE_OK) t->address = NULL;
    else status = release;
  }
  if (t->has_stream) {
    const tide_status end = trial_stream_free(t);
    if (end == TIDE_OK) t->has_stream = false;
    else status = end;
  }
  return status;
}

static tide_status round_begin(trial* t, uint32_t flags) {
  TIDE_TRY(trial_make(t, flags));
  TIDE_TRY(trial_map(t));
  t->is_mapped = true;
  TIDE_TRY(trial_access(t));
  return flags == 0 ? trial_write_relaxed(t) : TIDE_OK;
}

static void result_set(tide__probe_results* results, tide_feature feature, tide_status status) {
  results->works[feature] = status == TIDE_OK;
  if (status == TIDE_OK) return;
  (void)snprintf(results->reasons[feature], TIDE_PROBE_REASON, "%.*s", TIDE_PROBE_REASON - 1,
                 tide_last_error()->text);
}

static bool is_full(const trial* t) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const tide_machine_ops* const ops = &t->machine->ops;
  return ops->memory_info != NULL &&
         ops->memory_info(t->machine->self, t->device, &free_bytes, &total_bytes) == TIDE_OK &&
         free_bytes / FULL_GRANULES < t->bytes;
}

// One round for each feature that the device offers. A feature whose round fails is left out. Memory that is
// not taken back ends the trial, and virtual memory with it.
static tide_status trial_rounds(trial* t, const bool offers[TIDE_FEATURE_COUNT],
                                tide__probe_results* results) {
  uint32_t flags = 0;
  TIDE_TRY(trial_reserve(t));
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
    if (!offers[i]) continue;
    const tide_status status = round_begin(t, flags | feature_flags[i]);
    result_set(results, (tide_feature)i, status);
    if (status == TIDE_OK) flags |= feature_flags[i];
    else if (i == TIDE_FEATURE_VIRTUAL_MEMORY || (status == TIDE_ERR_NO_MEMORY && is_full(t))) return status;
    TIDE_TRY(trial_end_round(t));
  }
  return trial_end(t);
}

// Virtual memory does not work, and so nothing does.
static void results_refuse(tide__probe_results* results, tide_status status) {
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
    results->reasons[i][0] = '\0';
    result_set(results, (tide_feature)i, status);
  }
}

// What cannot be given back at the first attempt is tried once more. False if the device was too full.
static bool trial_run(trial* t, const bool offers[TIDE_FEATURE_COUNT], tide__probe_results* results) {
  const tide_status status = trial_rounds(t, offers, results);
  if (status != TIDE_OK) results_refuse(results, status);
  if (status != TIDE_OK && trial_end(t) != TIDE_OK) tide__ignore(trial_end(t));
  results->call_count = t->call_count;
  return status != TIDE_ERR_NO_MEMORY || !is_full(t);
}

// ---------------------------------------------------------------------------------------------------
// Results

static void results_lack(tide__probe_results* results, const bool offers[TIDE_FEATURE_COUNT]) {
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
    if (offers[i]) continue;
    results->works[i] = false;
    (void)snprintf(results->reasons[i], TIDE_PROBE_REASON, "%s", feature_lacks[i]);
  }
}

// Without a trial, what the device offers works; on a full device only what is likely to.
static void results_trust(tide__probe_results* results, const bool offers[TIDE_FEATURE_COUNT], bool is_sure) {
  memset(results, 0, sizeof *results);
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
    results->works[i] = offers[i] && (is_sure || i <= TIDE_FEATURE_DESCRIPTORS);
    if (!results->works[i]) {
      (void)snprintf(results->reasons[i], TIDE_PROBE_REASON, "the device is too full for a probe");
    }
  }
}

// *out_sure is false if the results are not to be remembered.
static tide_status device_probe(tide_machine* machine, int device, tide__probe_results* out, bool* out_sure) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  TIDE_TRY(machine->ops.device_info(machine->self, device, &info));
  const bool has_memory = info.granularity != 0 && machine->ops.address_reserve != NULL;
  const bool offers[TIDE_FEATURE_COUNT] = { has_memory, has_memory && info.has_physical_sharing,
                                            has_memory && info.has_rdma, has_memory && info.has_fabric };
  const bool is_trusted = (machine->ops.flags & TIDE_MACHINE_TRUSTED) != 0 &&
                          tide__load_acquire(&machine->faults.count) ==
                              0;  // pairs with tide_machine_fault_add
  *out_sure = !is_trusted;
  if (is_trusted || !has_memory) {
    results_trust(out, offers, true);
  } else {
    trial t = { .machine = machine, .device = device, .bytes = (size_t)info.granularity };
    *out_sure = trial_run(&t, offers, out);
    if (!*out_sure) results_trust(out, offers, false);
    out->call_count = t.call_count;
  }
  results_lack(out, offers);
  return TIDE_OK;
}

// Keeps results for a device, unless another thread was faster.
static tide_status results_keep(tide_machine* machine, int device, const tide__probe_results* results) {
  tide__probe_results* const kept = tide__heap_alloc(machine->heap, 1, sizeof *kept);
  TIDE_REQUIRE(kept != NULL, TIDE_ERR_NO_MEMORY, "probe: no memory for its record");
  *kept = *results;
  tide__probe_results* first = NULL;
  if (!atomic_compare_exchange_strong(&machine->probed[device], &first, kept)) {
    tide__heap_release(machine->heap, kept, 1, sizeof *kept);
  }
  return TIDE_OK;
}

static tide_status results_find(tide_machine* machine, int device, tide__probe_results* out) {
  const tide__probe_results* const known = tide__load_acquire(&machine->probed[device]);  // with results_keep
  bool is_sure = false;
  if (known != NULL) {
    *out = *known;
    return TIDE_OK;
  }
  memset(out, 0, sizeof *out);
  const tide_error before = *tide_last_error();
  TIDE_TRY(device_probe(machine, device, out, &is_sure));
  tide__error_restore(&before);
  return is_sure ? results_keep(machine, device, out) : TIDE_OK;
}

tide_status tide_machine_probe(tide_machine* machine, int device, tide_feature feature, tide_probe* out) {
  tide_probe probe = TIDE_PROBE_INIT;
  tide__probe_results results;
  TIDE_REQUIRE(machine != NULL, TIDE_ERR_ARGUMENT, "probe: needs a machine");
  TIDE_TRY(tide__sized_write("probe", &probe, out, sizeof probe));
  TIDE_REQUIRE((uint32_t)feature < TIDE_FEATURE_COUNT, TIDE_ERR_ARGUMENT, "probe: there is no feature %u",
               (unsigned)feature);
  TIDE_REQUIRE(tide__load_relaxed(&machine->is_inherited) == 0, TIDE_ERR_STATE,
               "probe: the machine belongs to the parent process");
  TIDE_REQUIRE(device >= 0 && device < machine->device_count, TIDE_ERR_DEVICE,
               "probe: there is no device %d, only 0 to %d", device, machine->device_count - 1);
  TIDE_ASSERT_UNLOCKED();
  TIDE_TRY(results_find(machine, device, &results));
  probe.works = results.works[feature];
  probe.call_count = results.call_count;
  memcpy(probe.reason, results.reasons[feature], sizeof probe.reason);
  return tide__sized_write("probe", &probe, out, sizeof probe);
}

void tide__probes_free(tide_machine* machine) {
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) {
    tide__probe_results* const results = tide__load_relaxed(&machine->probed[i]);
    tide__heap_release(machine->heap, results, 1, sizeof *results);
  }
}

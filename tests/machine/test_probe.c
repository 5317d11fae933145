// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_machine_probe(): which features of virtual memory work. The truth is what the test makes fail: a fault
// in one call of one round, or the answers of a machine of the test's own.
#define T_THREADS
#include "machine/machines.h"
#include "tidemark/machine_ops.h"

static tide_probe probe(tide_machine* m, tide_feature feature) {
  tide_probe result = TIDE_PROBE_INIT;
  T_OK(tide_machine_probe(m, 0, feature, &result));
  T_EQ(result.works, result.reason[0] == '\0');
  return result;
}

static bool works(tide_machine* m, tide_feature feature) { return probe(m, feature).works; }

// What works, as bits by feature.
static uint32_t all_that_works(tide_machine* m) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) bits |= (uint32_t)works(m, (tide_feature)i) << i;
  return bits;
}

// What a device offers, as bits by feature.
static uint32_t all_that_is_offered(tide_machine* m) {
  const tide_device_info info = device_info(m, 0);
  if (info.granularity == 0) return 0;
  return 1u | (uint32_t)info.has_physical_sharing << TIDE_FEATURE_DESCRIPTORS |
         (uint32_t)info.has_rdma << TIDE_FEATURE_RDMA | (uint32_t)info.has_fabric << TIDE_FEATURE_FABRIC;
}

static void fault_at(tide_machine* m, tide_call call, uint64_t skip, uint64_t count, tide_status status) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.skip = skip;
  fault.count = count;
  fault.status = (uint32_t)status;
  T_OK(tide_machine_fault_add(m, &fault));
}

// A fault that hits nothing: on host and dry a probe is only made while there is one.
static void fault_none(tide_machine* m) { fault_at(m, TIDE_CALL_LAUNCH, 1000, 1, TIDE_ERR_MACHINE); }

// ---------------------------------------------------------------------------------------------------
// Without a failure

MACHINE_TEST(test_probe__says_what_the_device_can_do) {
  const uint32_t offered = all_that_is_offered(m);
  const uint32_t found = all_that_works(m);
  const tide_probe memory = probe(m, TIDE_FEATURE_VIRTUAL_MEMORY);
  T_EQ(found & ~offered, 0);
  if (is_cuda(m)) {
    T_LT(memory.call_count, 40);
    if (device_info(m, 0).granularity != 0) T_LT(0, memory.call_count);
    for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
      const tide_probe p = probe(m, (tide_feature)i);
      (void)fprintf(stderr, "%s: %s %s (%u calls)\n", tide_feature_name((tide_feature)i),
                    p.works ? "works" : "does not work:", p.reason, (unsigned)p.call_count);
    }
  } else {
    T_EQ(found, offered);
    T_EQ(memory.call_count, 0);
  }
}

// Every flag that the probe lets through can be used, alone and together.
MACHINE_TEST(test_probe__what_works_can_be_used) {
  const size_t unit = granularity(m);
  uint32_t flags = 0;
  if (works(m, TIDE_FEATURE_DESCRIPTORS)) flags |= TIDE_PHYSICAL_SHAREABLE;
  if (works(m, TIDE_FEATURE_RDMA)) flags |= TIDE_PHYSICAL_RDMA;
  if (works(m, TIDE_FEATURE_FABRIC)) flags |= TIDE_PHYSICAL_FABRIC;
  tide_physical physical = NULL;
  void* address = NULL;
  T_OK(tide_machine_physical_new(m, 0, unit, flags, &physical));
  T_OK(tide_machine_address_reserve(m, 0, unit, 0, NULL, &address));
  T_OK(tide_machine_map(m, address, physical));
  T_OK(tide_machine_set_access(m, address, unit, 0, TIDE_ACCESS_READ_WRITE));
  if ((flags & TIDE_PHYSICAL_SHAREABLE) != 0) {
    tide_physical_share share = { -1, 0, 0 };
    T_OK(tide_machine_physical_export(m, physical, &share));
    T_LE(0, share.descriptor);
    T_EQ(close(share.descriptor), 0);
  }
  T_OK(tide_machine_unmap(m, address, unit));
  T_OK(tide_machine_address_release(m, address, unit));
  T_OK(tide_machine_physical_free(m, physical));
}

// A probe is no call of the machine's user, and costs nothing but time.
MACHINE_TEST(test_probe__is_not_counted_and_leaves_nothing) {
  if (!is_cuda(m)) fault_none(m);
  const size_t before = free_bytes(m, 0);
  const uint64_t calls = tide_machine_call_stats(m, TIDE_CALL_ANY).calls;

  const uint32_t found = all_that_works(m);

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).calls, calls);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);  // others use a real device as well
  if (!is_cuda(m)) T_EQ(found, all_that_is_offered(m));
  if (granularity(m) != 0) T_LT(0, probe(m, TIDE_FEATURE_FABRIC).call_count);
}

EMULATED_TEST(test_probe__is_made_once_for_each_device) {
  fault_none(m);
  const uint32_t found = all_that_works(m);
  fault_at(m, TIDE_CALL_ADDRESS_RESERVE, 0, UINT64_MAX, TIDE_ERR_MACHINE);
  T_EQ(all_that_works(m), found);

  tide_probe other = TIDE_PROBE_INIT;
  T_OK(tide_machine_probe(m, 1, TIDE_FEATURE_VIRTUAL_MEMORY, &other));
  T_CHECK(!other.works);
  tide_machine_fault_clear(m);
  T_OK(tide_machine_probe(m, 1, TIDE_FEATURE_RDMA, &other));
  T_CHECK(!other.works);
}

EMULATED_TEST(test_probe__keeps_the_error_of_the_thread) {
  T_STATUS(tide_machine_raw_release(m, 0, (void*)(uintptr_t)512), TIDE_ERR_ARGUMENT);
  char text[TIDE_ERROR_TEXT];
  (void)snprintf(text, sizeof text, "%s", tide_last_error()->text);
  fault_at(m, TIDE_CALL_MAP, 0, 1, TIDE_ERR_MACHINE);
  T_CHECK(!works(m, TIDE_FEATURE_VIRTUAL_MEMORY));
  T_STR_EQ(tide_last_error()->text, text);
}

// ---------------------------------------------------------------------------------------------------
// Faults

// The features in the order of their rounds.
static uint32_t feature_of_round(tide_machine* m, uint64_t round) {
  const uint32_t offered = all_that_is_offered(m);
  uint32_t feature = 0;
  for (uint64_t left = round + 1; feature < TIDE_FEATURE_COUNT; feature++) {
    left -= offered >> feature & 1u;
    if (left == 0) break;
  }
  return feature;
}

static uint64_t round_count(tide_machine* m) { return (uint64_t)__builtin_popcount(all_that_is_offered(m)); }

// What works if one call of a round fails.
static uint32_t expected_after(tide_machine* m, tide_call call, uint64_t round) {
  const bool is_undo = call == TIDE_CALL_UNMAP || call == TIDE_CALL_PHYSICAL_FREE;
  const uint32_t offered = all_that_is_offered(m);
  if (round >= round_count(m)) return offered;  // no such call was made
  if (round == 0 || is_undo) return 0;
  return offered & ~(1u << feature_of_round(m, round));
}

typedef struct fault_row {
  tide_call call;
  bool is_once;  // in all rounds together
} fault_row;
static const fault_row fault_rows[] = {
  { TIDE_CALL_ADDRESS_RESERVE, true }, { TIDE_CALL_PHYSICAL_NEW, false }, { TIDE_CALL_MAP, false },
  { TIDE_CALL_SET_ACCESS, false },     { TIDE_CALL_UNMAP, false },        { TIDE_CALL_PHYSICAL_FREE, false },
  { TIDE_CALL_ADDRESS_RELEASE, true },
};

static tide_machine* machine_with_fault(const fault_row* row, uint64_t skip, uint64_t count,
                                        tide_status status) {
  tide_machine* const m = machine_open(machine_variant(), NULL);
  fault_at(m, row->call, skip, count, status);
  return m;
}

// Does the reason of every feature that fell by the fault name the call?
static void expect_named(tide_machine* m, tide_call call, uint32_t found) {
  for (uint32_t i = 0; i < TIDE_FEATURE_COUNT; i++) {
    if ((all_that_is_offered(m) >> i & 1u) == 0 || (found >> i & 1u) != 0) continue;
    const tide_probe p = probe(m, (tide_feature)i);
    if (strncmp(p.reason, tide_call_name(call), strlen(tide_call_name(call))) != 0) {
      T_FAIL("%s does not name %s: %s", tide_feature_name((tide_feature)i), tide_call_name(call), p.reason);
    }
  }
}

T_TEST_OVER(test_probe__each_failing_call_is_the_reason, machine_emulated) {
  const tide_status statuses[] = { TIDE_ERR_MACHINE, TIDE_ERR_UNSUPPORTED, TIDE_ERR_STATE,
                                   TIDE_ERR_NO_MEMORY };
  for (size_t i = 0; i < sizeof fault_rows / sizeof fault_rows[0]; i++) {
    for (uint64_t n = 0; n < (fault_rows[i].is_once ? 2 : 5); n++) {
      for (size_t s = 0; s < 4; s++) {
        tide_machine* const m = machine_with_fault(&fault_rows[i], n, 1, statuses[s]);
        const size_t before = free_bytes(m, 0);
        const uint32_t expected = !fault_rows[i].is_once ? expected_after(m, fault_rows[i].call, n)
                                  : n == 0               ? 0
                                                         : all_that_is_offered(m);
        T_EQ(all_that_works(m), expected);
        expect_named(m, fault_rows[i].call, expected);
        T_EQ(free_bytes(m, 0), before);
        tide_machine_free(m);
      }
    }
  }
}

// A call that always fails: what the machine refuses to take back is one granule at most.
T_TEST_OVER(test_probe__a_call_that_always_fails, machine_emulated) {
  for (size_t i = 0; i < sizeof fault_rows / sizeof fault_rows[0]; i++) {
    tide_machine* const m = machine_with_fault(&fault_rows[i], 0, UINT64_MAX, TIDE_ERR_MACHINE);
    const bool is_undo = fault_rows[i].call == TIDE_CALL_UNMAP ||
                         fault_rows[i].call == TIDE_CALL_PHYSICAL_FREE;
    const size_t before = free_bytes(m, 0);
    T_EQ(all_that_works(m), 0);
    expect_named(m, fault_rows[i].call, 0);
    T_LE(before - free_bytes(m, 0), is_undo ? granularity(m) : 0);
    tide_machine_free(m);
  }
}

// Memory that is mapped but cannot be used does not work either.
T_TEST_OVER(test_probe__writes_and_reads, machine_host) {
  const tide_call used[] = { TIDE_CALL_STREAM_NEW, TIDE_CALL_COPY, TIDE_CALL_STREAM_SYNCHRONIZE,
                             TIDE_CALL_STREAM_FREE };
  for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
    for (uint64_t n = 0; n < 2; n++) {
      tide_machine* const m = machine_open("host", NULL);
      const bool is_made = n == 0 || used[i] == TIDE_CALL_COPY || used[i] == TIDE_CALL_STREAM_SYNCHRONIZE;
      fault_at(m, used[i], n, 1, TIDE_ERR_MACHINE);
      const size_t before = free_bytes(m, 0);
      T_EQ(all_that_works(m), is_made ? 0 : all_that_is_offered(m));
      if (is_made) expect_named(m, used[i], 0);
      T_EQ(free_bytes(m, 0), before);
      tide_machine_free(m);
    }
  }
}

// A capture of the same thread is not disturbed, although waiting would break it.
HOST_TEST(test_probe__is_safe_in_a_capture) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  tide_launch graph = NULL;
  fault_none(m);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  T_EQ(all_that_works(m), all_that_is_offered(m));
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_OK(tide_machine_launch_free(m, graph));
}

EMULATED_TEST(test_probe__a_full_device_proves_nothing) {
  void* all = NULL;
  T_OK(tide_machine_raw_alloc(m, 0, free_bytes(m, 0), &all));
  fault_none(m);
  const uint32_t likely = 1u << TIDE_FEATURE_VIRTUAL_MEMORY | 1u << TIDE_FEATURE_DESCRIPTORS;
  T_EQ(all_that_works(m), all_that_is_offered(m) & likely);
  T_CHECK(strstr(probe(m, TIDE_FEATURE_RDMA).reason, "full") != NULL);
  T_OK(tide_machine_raw_release(m, 0, all));
  T_EQ(all_that_works(m), all_that_is_offered(m));
}

// ---------------------------------------------------------------------------------------------------
// A machine whose answers depend on the flags

typedef struct picky {
  uint32_t offers;      // as bits by feature
  uint32_t refused[3];  // sets of flags that memory cannot be made with, 0: none
  int made;             // physical memory that exists
  int reserved;
  int mapped;
} picky;

static void picky_free(void* self) { (void)self; }

static tide_status picky_info(void* self, int device, tide_device_info* out) {
  const picky* const p = self;
  (void)device;
  out->total_bytes = 64 * MIB;
  out->granularity = (p->offers & 1u) != 0 ? 2 * MIB : 0;
  out->has_physical_sharing = (p->offers >> TIDE_FEATURE_DESCRIPTORS & 1u) != 0;
  out->has_rdma = (p->offers >> TIDE_FEATURE_RDMA & 1u) != 0;
  out->has_fabric = (p->offers >> TIDE_FEATURE_FABRIC & 1u) != 0;
  return TIDE_OK;
}

static tide_status picky_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                 void** out) {
  (void)device, (void)bytes, (void)alignment, (void)hint;
  ((picky*)self)->reserved++;
  *out = self;
  return TIDE_OK;
}
static tide_status picky_unreserve(void* self, void* address, size_t bytes) {
  (void)address, (void)bytes;
  ((picky*)self)->reserved--;
  return TIDE_OK;
}
static tide_status picky_new(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out) {
  picky* const p = self;
  (void)device, (void)bytes;
  for (size_t i = 0; i < 3; i++) {
    const bool is_refused = p->refused[i] != 0 && (flags & p->refused[i]) == p->refused[i];
    if (is_refused) return TIDE_ERROR_SET(TIDE_ERR_STATE, 800, "physical_new: not permitted (800)");
  }
  p->made++;
  *out = (tide_physical)(void*)p;
  return TIDE_OK;
}
static tide_status picky_end(void* self, tide_physical physical) {
  (void)physical;
  ((picky*)self)->made--;
  return TIDE_OK;
}
static tide_status picky_map(void* self, void* address, tide_physical physical) {
  (void)address, (void)physical;
  ((picky*)self)->mapped++;
  return TIDE_OK;
}
static tide_status picky_unmap(void* self, void* address, size_t bytes) {
  (void)address, (void)bytes;
  ((picky*)self)->mapped--;
  return TIDE_OK;
}
static tide_status picky_access(void* self, void* address, size_t bytes, int device, tide_access access) {
  (void)self, (void)address, (void)bytes, (void)device, (void)access;
  return TIDE_OK;
}

static const tide_machine_ops picky_ops = {
  .size = sizeof(tide_machine_ops),
  .version = TIDE_MACHINE_OPS_VERSION,
  .name = "picky",
  .free = picky_free,
  .device_info = picky_info,
  .address_reserve = picky_reserve,
  .address_release = picky_unreserve,
  .physical_new = picky_new,
  .physical_free = picky_end,
  .map = picky_map,
  .unmap = picky_unmap,
  .set_access = picky_access,
};

enum {
  MEMORY = 1,
  DESCRIPTORS = 2,
  RDMA = 4,
  FABRIC = 8,
  ALL = 15,
  BY_FILE = TIDE_PHYSICAL_SHAREABLE,
  BY_CARD = TIDE_PHYSICAL_RDMA,
  BY_FABRIC = TIDE_PHYSICAL_FABRIC
};

T_TEST(test_probe__chooses_what_works_together) {
  const struct {
    uint32_t offers;
    uint32_t refused[3];
    uint32_t works;
  } rows[] = {
    { ALL, { 0 }, ALL },
    { 0, { 0 }, 0 },
    { DESCRIPTORS | RDMA | FABRIC, { 0 }, 0 },  // without virtual memory nothing works
    { MEMORY, { 0 }, MEMORY },
    { MEMORY | RDMA, { 0 }, MEMORY | RDMA },
    { MEMORY | FABRIC, { 0 }, MEMORY | FABRIC },
    { ALL, { BY_FABRIC }, MEMORY | DESCRIPTORS | RDMA },  // no right to use fabric handles
    { ALL, { BY_CARD }, MEMORY | DESCRIPTORS | FABRIC },
    { ALL, { BY_FILE }, MEMORY | RDMA | FABRIC },
    { ALL, { BY_FILE, BY_FABRIC }, MEMORY | RDMA },
    { ALL, { BY_FILE, BY_CARD, BY_FABRIC }, MEMORY },
    { ALL, { BY_FILE | BY_FABRIC }, MEMORY | DESCRIPTORS | RDMA },  // file descriptors come first
    { ALL, { BY_FILE | BY_CARD }, MEMORY | DESCRIPTORS | FABRIC },
    { ALL, { BY_CARD | BY_FABRIC }, MEMORY | DESCRIPTORS | RDMA },
    { MEMORY | RDMA | FABRIC, { BY_FABRIC }, MEMORY | RDMA },
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    picky p = { .offers = rows[i].offers };
    tide_machine* m = NULL;
    memcpy(p.refused, rows[i].refused, sizeof p.refused);
    T_OK(tide_machine_new(&picky_ops, &p, 1, NULL, &m));
    if (all_that_works(m) != rows[i].works) {
      T_FAIL("row %zu: found %#x, not %#x", i, (unsigned)all_that_works(m), (unsigned)rows[i].works);
    }
    T_EQ(p.made + p.reserved + p.mapped, 0);
    tide_machine_free(m);
  }
}

T_TEST(test_probe__shows_the_error_of_the_machine) {
  picky p = { .offers = ALL, .refused = { BY_FABRIC } };
  tide_machine* m = NULL;
  T_OK(tide_machine_new(&picky_ops, &p, 1, NULL, &m));
  T_STR_EQ(probe(m, TIDE_FEATURE_FABRIC).reason, "physical_new: not permitted (800)");
  T_EQ(probe(m, TIDE_FEATURE_FABRIC).call_count, 1 + 3 * 5 + 1 + 1);
  tide_machine_free(m);
}

// ---------------------------------------------------------------------------------------------------
// Bad input

EMULATED_TEST(test_probe__refuses_bad_input) {
  tide_probe out = TIDE_PROBE_INIT;
  T_STATUS(tide_machine_probe(NULL, 0, TIDE_FEATURE_RDMA, &out), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_probe(m, 0, TIDE_FEATURE_RDMA, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_probe(m, 2, TIDE_FEATURE_RDMA, &out), TIDE_ERR_DEVICE);
  T_STATUS(tide_machine_probe(m, -1, TIDE_FEATURE_RDMA, &out), TIDE_ERR_DEVICE);
  T_STATUS(tide_machine_probe(m, 0, TIDE_FEATURE_COUNT, &out), TIDE_ERR_ARGUMENT);
  T_STR_EQ(tide_feature_name(TIDE_FEATURE_FABRIC), "fabric");
  T_STR_EQ(tide_feature_name(TIDE_FEATURE_COUNT), "unknown");
}

// Whichever record cannot be had, nothing is left.
T_TEST_OVER(test_probe__survives_the_loss_of_every_record, machine_emulated) {
  bool has_failed = true;
  for (size_t more = 0; has_failed; more++) {
    counting_heap records;
    tide_probe out = TIDE_PROBE_INIT;
    counting_heap_init(&records, SIZE_MAX, false);
    tide_machine* const m = machine_open(machine_variant(), &records.heap);
    const size_t before = free_bytes(m, 0);
    fault_none(m);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + more);
    const tide_status status = tide_machine_probe(m, 0, TIDE_FEATURE_VIRTUAL_MEMORY, &out);
    has_failed = atomic_load(&records.has_failed);
    if (status != TIDE_OK) T_CHECK(has_failed && status == TIDE_ERR_NO_MEMORY);
    if (!has_failed) T_CHECK(out.works);
    T_EQ(free_bytes(m, 0), before);
    tide_machine_free(m);
    T_EQ(atomic_load(&records.outstanding), 0);
  }
}

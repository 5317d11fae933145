// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Faults: a short list that every call consults while it is not empty. Each fault counts the calls that match
// it, so "the n-th raw_alloc" means the same on every machine and with any number of threads.
#include "base/error.h"
#include "base/sized.h"
#include "machine/machine.h"

void tide__faults_init(tide__faults* faults) { tide__mutex_init(&faults->lock, TIDE__RANK_LEAF); }
void tide__faults_fini(tide__faults* faults) { tide__mutex_fini(&faults->lock); }

static bool status_is_known(uint32_t status) {
#define STATUS_IS(name, value, text) \
  if (status == (value)) return true;
  TIDE_STATUS_MAP(STATUS_IS)
#undef STATUS_IS
  return false;
}

static tide_status fault_validate(const tide_fault* fault) {
  TIDE_REQUIRE(fault->call <= TIDE_CALL_ANY, TIDE_ERR_ARGUMENT, "fault_add: there is no call %u",
               (unsigned)fault->call);
  TIDE_REQUIRE(status_is_known(fault->status), TIDE_ERR_ARGUMENT, "fault_add: there is no status %u",
               (unsigned)fault->status);
  return TIDE_OK;
}

tide_status tide_machine_fault_add(tide_machine* machine, const tide_fault* fault) {
  tide_fault whole = TIDE_FAULT_INIT;
  TIDE_REQUIRE(machine != NULL, TIDE_ERR_ARGUMENT, "fault_add: needs a machine");
  TIDE_TRY(tide__sized_read("fault_add", fault, &whole, sizeof whole));
  TIDE_TRY(fault_validate(&whole));
  tide__faults* faults = &machine->faults;
  tide__mutex_lock(&faults->lock);
  const uint32_t count = tide__load_relaxed(&faults->count);
  if (count < TIDE__FAULT_MAX) {
    faults->plan[count].fault = whole;
    faults->plan[count].seen = faults->plan[count].bytes = 0;
    tide__store_release(&faults->count, count + 1);  // pairs with tide__faults_exist
  }
  tide__mutex_unlock(&faults->lock);
  TIDE_REQUIRE(count < TIDE__FAULT_MAX, TIDE_ERR_LIMIT, "fault_add: there are %d faults already",
               TIDE__FAULT_MAX);
  return TIDE_OK;
}

void tide_machine_fault_clear(tide_machine* machine) {
  if (machine == NULL) return;
  tide__mutex_lock(&machine->faults.lock);
  tide__store_release(&machine->faults.count, 0);
  tide__mutex_unlock(&machine->faults.lock);
}

// Counts one matching call and returns whether the fault hits it.
static bool fault_hits_locked(tide__faults* faults, uint32_t i, uint64_t bytes) {
  const tide_fault* fault = &faults->plan[i].fault;
  const uint64_t before = faults->plan[i].bytes;
  faults->plan[i].bytes = before + bytes < before ? UINT64_MAX : before + bytes;
  if (fault->byte_budget != 0 && faults->plan[i].bytes <= fault->byte_budget) return false;
  const uint64_t nth = faults->plan[i].seen++;
  const bool is_hit = nth >= fault->skip && nth - fault->skip < fault->count;
  if (is_hit && fault->status != TIDE_OK) faults->plan[i].bytes = before;  // a refused call takes nothing
  return is_hit;
}

tide_status tide__faults_apply(tide__faults* faults, tide_call call, uint64_t bytes, uint64_t* out_delay_ns) {
  *out_delay_ns = 0;
  tide_status status = TIDE_OK;
  tide__mutex_lock(&faults->lock);
  for (uint32_t i = 0; i < tide__load_relaxed(&faults->count) && status == TIDE_OK; i++) {
    const tide_fault* fault = &faults->plan[i].fault;
    if (fault->call != TIDE_CALL_ANY && fault->call != (uint32_t)call) continue;
    if (!fault_hits_locked(faults, i, bytes)) continue;
    *out_delay_ns += fault->latency_ns;
    status = (tide_status)fault->status;
  }
  tide__mutex_unlock(&faults->lock);
  return status;
}

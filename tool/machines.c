// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark machines: the available machines with their devices, and why a machine is unavailable.
#include "tidemark/machine.h"

#include "tool.h"

static tide_status host_machine_make(tide_machine** out) { return tide_machine_new_host(NULL, out); }
static tide_status dry_machine_make(tide_machine** out) { return tide_machine_new_dry(NULL, out); }
static tide_status cuda_machine_make(tide_machine** out) { return tide_machine_new_cuda(NULL, out); }

static const struct {
  const char* name;
  const char* note;
  tide_status (*make)(tide_machine** out);
} kinds[] = {
  { "host", "memory of this computer, with a thread for each stream", host_machine_make },
  { "dry", "addresses without memory, for replays", dry_machine_make },
  { "cuda", "GPUs of the CUDA driver", cuda_machine_make },
};

static const tool_column columns[] = {
  { "machine", "machine" },    { "device", "device" }, { "name", "name" },
  { "total_bytes", "memory" }, { "is_here", NULL },    { "note", "description, or why it is unavailable" },
};

static void device_emit(tool_emit* emit, const char* machine, int device, const tide_device_info* info,
                        const char* note) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, machine);
  tool_emit_uint(emit, NULL, NULL, (uint64_t)device);
  tool_emit_text(emit, NULL, NULL, info->name);
  tool_emit_bytes(emit, NULL, NULL, info->total_bytes);
  tool_emit_bool(emit, NULL, NULL, true);
  tool_emit_text(emit, NULL, NULL, note);
}

static void absence_emit(tool_emit* emit, const char* machine) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, machine);
  for (int i = 0; i < 3; i++) tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_bool(emit, NULL, NULL, false);
  tool_emit_text(emit, NULL, NULL, tool_error());
}

static tide_status devices_emit(tool_emit* emit, tide_machine* machine, const char* note) {
  for (int i = 0; i < tide_machine_device_count(machine); i++) {
    tide_device_info info = TIDE_DEVICE_INFO_INIT;
    const tide_status status = tide_machine_device_info(machine, i, &info);
    if (status != TIDE_OK) return status;
    device_emit(emit, tide_machine_name(machine), i, &info, note);
  }
  return TIDE_OK;
}

static int machines_run(const tool_call* call) {
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_table(emit, "machines", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    tide_machine* machine = NULL;
    tide_status status = kinds[i].make(&machine);
    if (status == TIDE_OK) status = devices_emit(emit, machine, kinds[i].note);
    if (status != TIDE_OK) absence_emit(emit, kinds[i].name);
    tide_machine_free(machine);
  }
  tool_emit_table_end(emit);
  return tool_emit_end(emit);
}

const tool_verb tool_machines = {
  .name = "machines",
  .summary = "list the available machines and their devices",
  .operands = "",
  .run = machines_run,
};

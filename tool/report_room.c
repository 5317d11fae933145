// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part of the report about room for a refused request: by how much it missed, and the cheapest live
// blocks without which it would have been served, by call site.
#include "report.h"
#include "sums.h"

// " It missed by 82.00 MiB: 11.71 GiB reserved + 378.00 MiB for a new segment = 12.08 GiB; the limit was
// 12.00 GiB."
void tool_words_add_missed(const tool_diagnosis* r, size_t index, tool_words* w) {
  const tool_refusal* const refusal = &r->refusals[index];
  const tool_room* const room = &r->rooms[index];
  const uint64_t wanted = refusal->reserved + refusal->segment_bytes;
  tool_words_add_size(w, room->is_exact ? " It missed by " : " It missed by at most ", room->missing_bytes,
                      "");
  tool_words_add_size(w, ": ", refusal->reserved, " reserved");
  tool_words_add_size(w, " + ", refusal->segment_bytes, " for a new segment");
  tool_words_add_size(w, " = ", wanted, "");
  tool_words_add_size(w, room->is_exact ? "; the limit was " : "; the limit was at least ",
                      wanted - room->missing_bytes, ".");
}

// Sums over the blocks of a room by call site, the largest first.
static tool_sums room_sites(tool_diagnosis* r, const tool_room* room) {
  tool_sums sums = { .items = NULL };
  for (size_t i = 0; i < room->block_count; i++) {
    const tide_ledger_block* const block = &room->blocks[i];
    const tool_site site = tool_sites_find(&r->sites, block->stack);
    const uint64_t key = (uint64_t)site.file << 32 | site.function;
    tool_sums_add(&sums, key, (uint64_t)site.line, block->bytes)->stack = block->stack;
  }
  tool_sums_sort_by_bytes(&sums);
  return sums;
}

static void words_add_sites(tool_diagnosis* r, const tool_room* room, tool_words* w) {
  tool_sums sums = room_sites(r, room);
  char site[TOOL_SITE_TEXT];
  if (sums.count > 0 && sums.items[0].key != 0) {
    tool_words_add(w, ", %s from %s", sums.count == 1 ? "all" : "most",
                   tool_site_text(&r->sites, tool_sites_find(&r->sites, sums.items[0].stack), site));
  }
  tool_sums_fini(&sums);
}

void tool_words_add_room(tool_diagnosis* r, size_t index, tool_words* w) {
  const tool_room* const room = &r->rooms[index];
  if (room->way == TOOL_ROOM_NONE) {
    tool_words_add(w, " Releasing live blocks would not have made room for it.");
    return;
  }
  if (room->block_count == 0 && room->way == TOOL_ROOM_HOLE) {
    tool_words_add(
        w, " A free block was large enough, but PyTorch does not search again after it has given memory "
           "back.");
    return;
  }
  if (room->block_count == 0) {
    tool_words_add_size(w, " Empty segments of ", room->given_bytes, " were not given back to the device.");
    return;
  }
  const bool is_least = room->is_least && room->is_exact;
  tool_words_add(w, " %s to release %zu live block%s",
                 is_least ? "The cheapest way to make room was" : "It would have been enough",
                 room->block_count, room->block_count == 1 ? "" : "s");
  tool_words_add_size(w, " of ", tool_room_bytes(room), room->block_count == 1 ? "" : " in total");
  words_add_sites(r, room, w);
  if (room->way == TOOL_ROOM_HOLE) tool_words_add(w, ": then one free block is large enough.");
  else tool_words_add_size(w, ": then ", room->given_bytes, " of empty segments can be given back.");
}

// ---------------------------------------------------------------------------------------------------
// Tables

static void sites_emit(tool_emit* emit, tool_diagnosis* r) {
  const tool_column columns[] = {
    { "entry", "refused at entry" },
    { "blocks", "live blocks in the way" },
    { "bytes", "bytes" },
    { "call_site", tool_diagnosis_site_label(r) },
  };
  tool_emit_table(emit, "oom_room", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->refusal_count; i++) {
    tool_sums sums = room_sites(r, &r->rooms[i]);
    for (size_t k = 0; k < sums.count && k < r->top; k++) {
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, r->refusals[i].at);
      tool_emit_uint(emit, NULL, NULL, sums.items[k].count);
      tool_emit_bytes(emit, NULL, NULL, sums.items[k].bytes);
      tool_diagnosis_emit_site(emit, r, sums.items[k].stack, 0);
    }
    tool_sums_fini(&sums);
  }
  tool_emit_table_end(emit);
}

static void blocks_emit(tool_emit* emit, tool_diagnosis* r) {
  static const tool_column columns[] = {
    { "entry", NULL }, { "address", NULL }, { "bytes", NULL }, { "state", NULL }, { "call_site", NULL },
  };
  tool_emit_table(emit, "oom_blockers", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < r->refusal_count; i++) {
    for (size_t k = 0; k < r->rooms[i].block_count; k++) {
      const tide_ledger_block* const block = &r->rooms[i].blocks[k];
      tool_emit_row(emit);
      tool_emit_uint(emit, NULL, NULL, r->refusals[i].at);
      tool_emit_format(emit, NULL, NULL, "0x%llx", (unsigned long long)block->address);
      tool_emit_bytes(emit, NULL, NULL, block->bytes);
      tool_emit_text(emit, NULL, NULL, tide_block_state_name(block->state));
      tool_diagnosis_emit_site(emit, r, block->stack, block->made_at);
    }
  }
  tool_emit_table_end(emit);
}

void tool_diagnosis_emit_rooms(tool_emit* emit, tool_diagnosis* r) {
  size_t total = 0;
  for (size_t i = 0; i < r->refusal_count; i++) total += r->rooms[i].block_count;
  if (total > 0 || r->call->is_json) sites_emit(emit, r);
  if (r->call->is_json) blocks_emit(emit, r);
}

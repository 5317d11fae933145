// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The recordings of a job. Every process lists the operands as it sees them and announces its list; process 0
// merges the lists and divides the files. Two processes see the same file if its path and its size are the
// same. Everything is sorted, so the result depends neither on the order of a folder nor on the number of
// processes. Cost: O(n log n) for n announced files.
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arith.h"
#include "survey.h"

// Memory for each byte of a file, while it is replayed. Measured with recordings of PyTorch.
#define TIMES_PACKED 48u
#define TIMES_NATIVE 28u
#define TIMES_PLAIN 2u

static const char* const packed_endings[] = { ".xz", ".gz", ".zst", NULL };
static const char* const endings[] = { ".pickle", ".pkl", ".tide", ".json", ".rmm.csv", NULL };

// ---------------------------------------------------------------------------------------------------
// Names

static const char* name_of(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

// The length of a name without one of these endings; its whole length if it has none.
static size_t length_without(const char* name, size_t length, const char* const* list) {
  for (size_t i = 0; list[i] != NULL; i++) {
    const size_t bytes = strlen(list[i]);
    if (length > bytes && strncasecmp(name + length - bytes, list[i], bytes) == 0) return length - bytes;
  }
  return length;
}

static bool is_packed(const char* name) {
  return length_without(name, strlen(name), packed_endings) < strlen(name);
}

// A timeline, which convert writes, is no recording.
static bool is_recording(const char* name) {
  static const char* const others[] = { ".trace.json", NULL };
  const size_t length = length_without(name, strlen(name), packed_endings);
  return name[0] != '.' && length_without(name, length, endings) < length &&
         length_without(name, length, others) == length;
}

uint64_t tool_survey_file_memory(const tool_survey_file* file) {
  static const char* const native[] = { ".tide", NULL };
  const size_t length = length_without(file->path, strlen(file->path), packed_endings);
  uint64_t times = is_packed(file->path) ? TIMES_PACKED : TIMES_PLAIN;
  if (length_without(file->path, length, native) < length) times = TIMES_NATIVE;
  uint64_t bytes = 0;
  return tide__mul(file->bytes, times, &bytes) ? bytes : UINT64_MAX;
}

// The number after "rank", which a separator may precede, in `length` letters.
static bool rank_in(const char* text, size_t length, uint64_t* out) {
  static const char word[] = "rank";
  for (size_t i = 0; i + sizeof word - 1 < length; i++) {
    if (strncasecmp(text + i, word, sizeof word - 1) != 0) continue;
    size_t at = i + sizeof word - 1;
    if (at < length && strchr("_-.=", text[at]) != NULL) at++;
    size_t digits = 0;
    *out = 0;
    for (; at + digits < length && isdigit((unsigned char)text[at + digits]) && digits < 18; digits++)
      *out = *out * 10 + (uint64_t)(text[at + digits] - '0');
    if (digits > 0) return true;
  }
  return false;
}

bool tool_survey_rank_of(const char* path, uint64_t* out) {
  const char* const name = name_of(path);
  if (rank_in(name, strlen(name), out)) return true;
  const char* folder = name;
  while (folder > path && (folder == name || folder[-1] != '/')) folder--;
  return folder < name && rank_in(folder, (size_t)(name - folder), out);
}

// Natural order: digits are compared as numbers. Equal numbers with different zeros before them are told
// apart by their letters.
static int compare_names(const char* a, const char* b) {
  const char* x = a;
  const char* y = b;
  while (*x != '\0' && *y != '\0') {
    if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
      x += strspn(x, "0");
      y += strspn(y, "0");
      const size_t lengths[] = { strspn(x, "0123456789"), strspn(y, "0123456789") };
      if (lengths[0] != lengths[1]) return lengths[0] < lengths[1] ? -1 : 1;
      const int order = strncmp(x, y, lengths[0]);
      if (order != 0) return order;
      x += lengths[0];
      y += lengths[1];
      continue;
    }
    if (*x != *y) return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
    x++;
    y++;
  }
  if (*x != *y) return *x == '\0' ? -1 : 1;
  return strcmp(a, b);
}

// ---------------------------------------------------------------------------------------------------
// Lists

void tool_survey_files_fini(tool_survey_files* files) {
  for (size_t i = 0; i < files->count; i++) free(files->items[i].path);
  free(files->items);
  *files = (tool_survey_files){ .count = 0 };
}

// Takes over the path.
static void files_add(tool_survey_files* files, const tool_survey_file* file) {
  if (files->count == files->room) {
    files->room = 2 * files->room + 16;
    files->items = tool_grow(files->items, files->room, sizeof *files->items);
  }
  files->items[files->count++] = *file;
}

void tool_survey_files_add(tool_survey_files* files, const tool_survey_file* file) {
  tool_survey_file copy = *file;
  copy.path = tool_text_copy(file->path);
  files_add(files, &copy);
}

static int compare_files(const void* a, const void* b) {
  const tool_survey_file* const one = a;
  const tool_survey_file* const other = b;
  if (one->operand != other->operand) return one->operand < other->operand ? -1 : 1;
  const int order = compare_names(one->path, other->path);
  if (order != 0) return order;
  if (one->bytes != other->bytes) return one->bytes < other->bytes ? -1 : 1;
  return (int)one->found - (int)other->found;
}

static void files_sort(tool_survey_files* files) {
  if (files->count > 1) qsort(files->items, files->count, sizeof *files->items, compare_files);
}

static void folder_list(const char* path, size_t operand, tool_survey_files* out) {
  DIR* const folder = opendir(path);
  if (folder == NULL) return;
  const size_t length = strlen(path);
  const char* const slash = length > 0 && path[length - 1] == '/' ? "" : "/";
  for (struct dirent* item; (item = readdir(folder)) != NULL;) {
    struct stat about;
    const size_t room = length + strlen(item->d_name) + 2;
    if (!is_recording(item->d_name)) continue;
    tool_survey_file file = { .operand = operand, .found = TOOL_FOUND_FILE, .path = tool_alloc(room, 1) };
    (void)snprintf(file.path, room, "%s%s%s", path, slash, item->d_name);
    const bool is_gone = stat(file.path, &about) != 0;
    file.bytes = is_gone ? 0 : (uint64_t)about.st_size;
    file.is_closed = access(file.path, R_OK) != 0;
    if (!is_gone && !S_ISREG(about.st_mode)) free(file.path);  // nobody named it, and a pipe would wait
    else files_add(out, &file);
  }
  (void)closedir(folder);
}

void tool_survey_files_find(char* const* operands, size_t count, tool_survey_files* out) {
  for (size_t i = 0; i < count; i++) {
    struct stat about;
    tool_survey_file file = { .operand = i, .path = operands[i] };
    const size_t before = out->count;
    const bool is_there = stat(file.path, &about) == 0;
    file.is_closed = access(file.path, R_OK) != 0;
    if (is_there && S_ISDIR(about.st_mode)) {
      file.found = TOOL_FOUND_FOLDER;
      folder_list(file.path, i, out);
    } else if (is_there) {
      file.found = TOOL_FOUND_FILE;
      file.bytes = (uint64_t)about.st_size;
    }
    if (out->count == before) tool_survey_files_add(out, &file);
  }
  files_sort(out);
}

// ---------------------------------------------------------------------------------------------------
// Merging and dividing

struct tool_survey_pool {
  size_t processes;
  tool_survey_files files;  // `process` is one that sees the file; a file may stand there several times
};

tool_survey_pool* tool_survey_pool_new(size_t processes) {
  tool_survey_pool* const pool = tool_alloc(1, sizeof *pool);
  pool->processes = processes;
  return pool;
}

void tool_survey_pool_add(tool_survey_pool* pool, size_t process, tool_survey_files* files) {
  for (size_t i = 0; i < files->count; i++) {
    files->items[i].process = process;
    files_add(&pool->files, &files->items[i]);
  }
  files->count = 0;
  tool_survey_files_fini(files);
}

// A file and the processes that see it: items [first, first + count) of the sorted pool.
typedef struct seen_file {
  size_t first;
  size_t count;
  uint64_t memory;
} seen_file;

static bool file_is_same(const tool_survey_file* a, const tool_survey_file* b) {
  return a->operand == b->operand && a->bytes == b->bytes && a->found == b->found &&
         strcmp(a->path, b->path) == 0;
}

// The most that any process found for each operand.
static tool_found* operands_found(const tool_survey_files* files) {
  const size_t count = files->count > 0 ? files->items[files->count - 1].operand + 1 : 0;
  tool_found* const found = tool_alloc(count, sizeof *found);
  for (size_t i = 0; i < files->count; i++) {
    const tool_survey_file* const file = &files->items[i];
    if (file->found > found[file->operand]) found[file->operand] = file->found;
  }
  return found;
}

// What one process does not find is no file if another finds it. Returns the number of files.
static size_t pool_list(const tool_survey_files* files, seen_file* out) {
  tool_found* const found = operands_found(files);
  size_t count = 0;
  for (size_t i = 0; i < files->count;) {
    const tool_survey_file* const file = &files->items[i];
    size_t seen = 1;
    while (i + seen < files->count && file_is_same(file, &files->items[i + seen])) seen++;
    if (file->found == found[file->operand]) {
      out[count] = (seen_file){ .first = i, .count = seen, .memory = tool_survey_file_memory(file) };
      count++;
    }
    i += seen;
  }
  free(found);
  return count;
}

static int compare_seen(const void* a, const void* b) {
  const seen_file* const one = *(const seen_file* const*)a;
  const seen_file* const other = *(const seen_file* const*)b;
  if (one->memory != other->memory) return one->memory > other->memory ? -1 : 1;
  return one->first < other->first ? -1 : one->first > other->first;
}

// Of the processes that see it, one that may read it, then the one with the least to read, then the first.
static size_t process_choose(const tool_survey_files* files, const seen_file* file, const uint64_t* loads) {
  const tool_survey_file* best = &files->items[file->first];
  for (size_t i = 1; i < file->count; i++) {
    const tool_survey_file* const it = &files->items[file->first + i];
    bool is_better = it->process < best->process;
    if (loads[it->process] != loads[best->process]) is_better = loads[it->process] < loads[best->process];
    if (it->is_closed != best->is_closed) is_better = best->is_closed;
    if (is_better) best = it;
  }
  return best->process;
}

static void pool_assign(tool_survey_pool* pool, seen_file* list, size_t count) {
  uint64_t* const loads = tool_alloc(pool->processes, sizeof *loads);
  seen_file** const order = tool_alloc(count, sizeof *order);
  for (size_t i = 0; i < count; i++) order[i] = &list[i];
  if (count > 1) qsort(order, count, sizeof *order, compare_seen);
  for (size_t i = 0; i < count; i++) {
    const size_t process = process_choose(&pool->files, order[i], loads);
    pool->files.items[order[i]->first].process = process;
    // A small file takes time, too.
    if (!tide__add(loads[process], tide__max(order[i]->memory, 1), &loads[process]))
      loads[process] = UINT64_MAX;
  }
  free(order);
  free(loads);
}

void tool_survey_pool_divide(tool_survey_pool* pool, tool_survey_files* out) {
  files_sort(&pool->files);
  seen_file* const list = tool_alloc(pool->files.count, sizeof *list);
  const size_t count = pool_list(&pool->files, list);
  pool_assign(pool, list, count);
  for (size_t i = 0; i < count; i++) {
    tool_survey_file* const file = &pool->files.items[list[i].first];
    file->place = i;
    tool_survey_files_add(out, file);
  }
  free(list);
  tool_survey_files_fini(&pool->files);
  free(pool);
}

// ---------------------------------------------------------------------------------------------------
// Between processes

static void files_put(const tool_survey_file* file, tool_bytes* out) {
  tool_bytes_put(out, file->operand);
  tool_bytes_put(out, file->bytes);
  tool_bytes_put(out, file->found);
  tool_bytes_put(out, file->is_closed);
  tool_bytes_put(out, file->place);
  tool_bytes_put_text(out, file->path);
}

static bool file_take(tool_bytes* bytes, tool_survey_file* out) {
  uint64_t numbers[5];
  for (size_t i = 0; i < 5; i++) {
    if (!tool_bytes_take(bytes, &numbers[i])) return false;
  }
  *out = (tool_survey_file){ .operand = (size_t)numbers[0],
                             .bytes = numbers[1],
                             .found = (tool_found)numbers[2],
                             .is_closed = numbers[3] != 0,
                             .place = (size_t)numbers[4] };
  return tool_bytes_take_text(bytes, &out->path) && out->path != NULL;
}

static void files_take(tool_bytes* bytes, tool_survey_files* out) {
  tool_survey_file file;
  while (file_take(bytes, &file)) files_add(out, &file);
}

static void announced_take(void* user, size_t from, tool_bytes* bytes) {
  tool_survey_files files = { .count = 0 };
  files_take(bytes, &files);
  tool_survey_pool_add(user, from, &files);
}

static void announce(const tool_team* team, tool_survey_files* mine, tool_survey_pool* pool) {
  tool_bytes bytes = { .count = 0 };
  for (size_t i = 0; i < mine->count; i++) files_put(&mine->items[i], &bytes);
  team->gather(&bytes, announced_take, pool);
  tool_bytes_fini(&bytes);
  tool_survey_files_fini(mine);
}

void tool_survey_files_share(const tool_team* team, char* const* operands, size_t count,
                             tool_survey_files* out_all, tool_survey_files* out_mine) {
  const bool is_first = team->number == 0;
  tool_survey_pool* const pool = tool_survey_pool_new(team->count);
  tool_survey_files seen = { .count = 0 };
  tool_survey_files_find(operands, count, &seen);
  announce(team, &seen, pool);
  tool_survey_pool_divide(pool, out_all);
  tool_bytes* const shares = tool_alloc(team->count, sizeof *shares);
  for (size_t i = 0; i < out_all->count; i++)
    files_put(&out_all->items[i], &shares[out_all->items[i].process]);
  tool_bytes mine = { .count = 0 };
  team->scatter(is_first ? shares : NULL, &mine);
  files_take(&mine, out_mine);
  for (size_t i = 0; i < team->count; i++) tool_bytes_fini(&shares[i]);
  free(shares);
  tool_bytes_fini(&mine);
}

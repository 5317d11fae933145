// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Byte strings for CUDA memory of other processes: bytes that are no such string are refused, and memory of
// the host machine goes to another process. That process is Tidemark, or reads the bytes as PyTorch does;
// and the bytes are Tidemark's, or written as PyTorch does.
#include "../shim_share.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace {

using tidemark::Shared;

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (condition) break;                                                                  \
    (void)std::fprintf(stderr, "%s:%d: failed: %s (%s)\n", __FILE__, __LINE__, #condition, \
                       tide_last_error()->text);                                           \
    std::exit(1);                                                                          \
  } while (false)

constexpr uint64_t mib = 1 << 20;

// ---------------------------------------------------------------------------------------------------
// Bytes, written here as PyTorch writes them

template <typename Value> std::string raw(Value value) {
  return { reinterpret_cast<const char*>(&value), sizeof value };
}

std::string handles(char version, int32_t process, uint64_t bytes, uint64_t count,
                    const std::vector<int32_t>& descriptors, int32_t type = 1) {
  std::string text = { version, 'e' };
  text += raw(process) + raw(int32_t{ 0 }) + raw(bytes) + raw(count);
  if (version >= 3) text += raw(type) + raw(int32_t{ 0 });
  for (const int32_t descriptor : descriptors) text += raw(descriptor);
  return text;
}

std::string why_not(const std::string& bytes) {
  Shared shared;
  return tidemark::read_shared(bytes, shared);
}

void expect_read() {
  Shared shared;
  const std::string name(64, '\x07');
  for (const std::string& plain : { name,
                                    "\x01"
                                    "c" +
                                        name,
                                    "\x02"
                                    "c" +
                                        name,
                                    "\x03"
                                    "c" +
                                        name }) {
    CHECK(tidemark::read_shared(plain, shared).empty());
    CHECK(shared.kind == Shared::Kind::plain && std::memcmp(shared.raw.bytes, name.data(), 64) == 0);
  }
  for (const char version : { '\1', '\2', '\3' }) {
    CHECK(tidemark::read_shared(handles(version, 77, 20 * mib, 2, { 5, 9 }), shared).empty());
    CHECK(shared.kind == Shared::Kind::handles && shared.process == 77);
    CHECK(shared.handle_bytes == 20 * mib && shared.descriptors == (std::vector<int32_t>{ 5, 9 }));
    CHECK(!shared.has_offer);
  }
}

void expect_written() {
  Shared shared;
  std::memset(shared.raw.bytes, 3, sizeof shared.raw.bytes);
  CHECK(tidemark::write_shared(shared, 2) == "\x01"
                                             "c" +
                                                 std::string(64, '\x03'));
  shared.kind = Shared::Kind::handles;
  shared.process = 77;
  shared.handle_bytes = 2 * mib;
  shared.descriptors = { 4, 5, 6 };
  for (const char version : { '\1', '\2', '\3' }) {
    CHECK(tidemark::write_shared(shared, version) == handles(version, 77, 2 * mib, 3, { 4, 5, 6 }));
  }
  CHECK(tidemark::share_format(2, 7) == 1 && tidemark::share_format(2, 8) == 2);
  CHECK(tidemark::share_format(2, 12) == 2 && tidemark::share_format(2, 13) == 3);
}

struct Row {
  std::string bytes;
  const char* part;  // of the reason
};

void expect_reasons(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (why_not(row.bytes).find(row.part) != std::string::npos) continue;
    (void)std::fprintf(stderr, "not \"%s\": \"%s\"\n", row.part, why_not(row.bytes).c_str());
    std::exit(1);
  }
}

void expect_kinds_refused() {
  const std::string name(64, '\x07');
  expect_reasons({
      { "", "too few" },
      { "\x02", "too few" },
      { "\x02"
        "c",
        "too few" },
      { "\x02"
        "c" +
            name.substr(1),
        "too few" },
      { "\x04"
        "c" +
            name,
        "later PyTorch" },
      { "\xff"
        "e" +
            name,
        "later PyTorch" },
      { "\x02"
        "x" +
            name,
        "does not know" },
      { "\x7f"
        "c" +
            name,
        "does not know" },
      { "\x7f"
        "t",
        "unknown" },
      { "\x7f"
        "t" +
            std::string(144, 'x'),
        "unknown" },
      { "\x02"
        "e",
        "too few" },
  });
}

void expect_handles_refused() {
  expect_reasons({
      { handles(2, 77, mib, 1, {}), "fewer descriptors" },
      { handles(2, 77, mib, 2, { 1 }), "fewer descriptors" },
      { handles(2, 77, mib, 1, { 1 }) + "x", "unknown" },
      { handles(2, 77, mib, 1, { 1 }) + std::string(144, 'x'), "unknown" },
      { handles(2, 77, mib, 1, { -1 }), "below 0" },
      { handles(2, 77, mib, 0, {}), "cannot be" },
      { handles(2, 77, 0, 1, { 1 }), "cannot be" },
      { handles(2, 0, mib, 1, { 1 }), "cannot be" },
      { handles(2, -5, mib, 1, { 1 }), "cannot be" },
      { handles(2, 77, mib, UINT64_MAX, { 1 }), "cannot be" },
      { handles(2, 77, UINT64_MAX, 2, { 1, 2 }), "cannot be" },
      { handles(2, 77, mib, uint64_t{ 1 } << 62, { 1 }), "cannot be" },
      { handles(2, 77, mib, 1 << 20, { 1 }), "fewer descriptors" },
  });
}

void expect_other_handles_refused() {
  const std::string name(64, '\x07');
  expect_reasons({
      { handles(2, 77, mib, 1, {}) + name, "fabric" },
      { handles(2, 77, mib, 2, {}) + name + name, "fabric" },
      { handles(3, 77, mib, 1, {}, 2) + name, "fabric" },
      { handles(3, 77, mib, 1, { 1 }, 3), "does not know: 3" },
      { handles(3, 77, mib, 1, { 1 }, -1), "does not know: -1" },
  });
}

// Cut, lengthened and changed at random: never a crash, and what is read is consistent.
void expect_robust(uint32_t seed) {
  std::mt19937 random(seed);
  Shared offered;
  offered.kind = Shared::Kind::handles;
  offered.process = 1;
  offered.handle_bytes = mib;
  offered.descriptors = { 3, 4 };
  offered.has_offer = true;
  const std::string seeds[] = { "\x02"
                                "c" +
                                    std::string(64, 'h'),
                                handles(2, 9, mib, 3, { 1, 2, 3 }), handles(3, 9, mib, 1, { 1 }),
                                tidemark::write_shared(offered, 2) };
  for (int i = 0; i < 200000; i++) {
    std::string bytes = seeds[random() % 4];
    for (uint32_t k = random() % 4; k > 0; k--) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 3 == 0) bytes.resize(random() % (bytes.size() + 80));
    Shared out;
    if (!tidemark::read_shared(bytes, out).empty() || out.kind != Shared::Kind::handles) continue;
    CHECK(!out.descriptors.empty() && out.descriptors.size() * 4 <= bytes.size());
    CHECK(out.handle_bytes <= UINT64_MAX / out.descriptors.size() && out.process > 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Two processes

struct Rig {
  explicit Rig(const char* settings) {
    tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
    if (std::strstr(settings, "tide") != nullptr) options.policy = TIDE_POLICY_TIDE;
    if (std::strchr(settings, ':') != nullptr)
      CHECK(tide_device_options_parse(settings, &options) == TIDE_OK);
    CHECK(tide_machine_new_host(nullptr, &machine) == TIDE_OK);
    CHECK(tide_device_new(machine, 0, &options, &device) == TIDE_OK);
  }
  ~Rig() {
    tide_device_free(device);
    tide_machine_free(machine);
  }
  unsigned char* take(size_t bytes) const {
    tide_block block = { nullptr, 0 };
    CHECK(tide_device_alloc(device, nullptr, bytes, &block) == TIDE_OK);
    return static_cast<unsigned char*>(block.address);
  }

  tide_machine* machine = nullptr;
  tide_device_cache* device = nullptr;
};

struct Message {
  char reader[16];  // "tidemark" or "pytorch"
  uint64_t offset;
  uint64_t count;
  char bytes[1024];
};

enum Outcome : int32_t { WRONG, GOOD, DENIED, REFUSED };

void close_memory(tide_device_cache* device, void* address) {
  CHECK(tide_device_unimport(device, address) == TIDE_OK);
}

// Looks at the memory that the other process has filled with 42, and changes it.
bool touch(unsigned char* block) {
  const bool is_good = block[0] == 42 && block[mib - 1] == 42;
  block[1] = 43;
  return is_good;
}

Outcome read_with_tidemark(const Rig& rig, const Message& message) {
  std::string why;
  const std::string bytes(message.bytes, message.count);
  const auto base = tidemark::open_memory(rig.device, bytes, close_memory, why);
  if (!why.empty()) return REFUSED;
  if (!base) return tide_last_error()->status == TIDE_ERR_ACCESS ? DENIED : REFUSED;
  CHECK(tidemark::open_memory(rig.device, bytes, close_memory, why) == base);
  return touch(static_cast<unsigned char*>(base.get()) + message.offset) ? GOOD : WRONG;
}

// Maps handles of one size one behind the other; nullptr if the system does not let us.
void* map_like_pytorch(const Rig& rig, const char* bytes) {
  int32_t process = 0;
  uint64_t sizes[2] = { 0, 0 };
  void* base = nullptr;
  std::memcpy(&process, bytes, sizeof process);
  std::memcpy(sizes, bytes + 8, sizeof sizes);
  const size_t all = sizes[0] * sizes[1];
  const int there = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  CHECK(tide_machine_address_reserve(rig.machine, 0, all, 0, nullptr, &base) == TIDE_OK);
  for (size_t i = 0; i < sizes[1]; i++) {
    int32_t descriptor = 0;
    tide_physical physical = nullptr;
    std::memcpy(&descriptor, bytes + 24 + 4 * i, sizeof descriptor);
    const int own = static_cast<int>(syscall(SYS_pidfd_getfd, there, descriptor, 0));
    if (own < 0) return nullptr;
    const tide_physical_share share = { own, 0, sizes[0] };
    CHECK(tide_machine_physical_import(rig.machine, 0, &share, &physical) == TIDE_OK);
    CHECK(tide_machine_map(rig.machine, static_cast<char*>(base) + i * sizes[0], physical) == TIDE_OK);
  }
  CHECK(tide_machine_set_access(rig.machine, base, all, 0, TIDE_ACCESS_READ_WRITE) == TIDE_OK);
  return base;
}

// As PyTorch 2.11, which ignores what follows.
Outcome read_like_pytorch(const Rig& rig, const Message& message) {
  void* base = nullptr;
  if (message.bytes[0] > 2) return REFUSED;
  if (message.bytes[1] == 'c') {
    tide_raw_share share;
    std::memcpy(&share, message.bytes + 2, sizeof share);
    CHECK(tide_machine_raw_import(rig.machine, 0, &share, &base) == TIDE_OK);
  } else {
    base = map_like_pytorch(rig, message.bytes + 2);
  }
  if (base == nullptr) return DENIED;
  return touch(static_cast<unsigned char*>(base) + message.offset) ? GOOD : WRONG;
}

// The second process: answers messages until the socket is closed.
void serve(int socket) {
  const Rig rig("");
  Message message;
  while (recv(socket, &message, sizeof message, 0) == static_cast<ssize_t>(sizeof message)) {
    const Outcome outcome = std::strcmp(message.reader, "tidemark") == 0 ? read_with_tidemark(rig, message)
                                                                         : read_like_pytorch(rig, message);
    CHECK(send(socket, &outcome, sizeof outcome, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof outcome));
  }
}

class Other {
public:
  Other() {
    int ends[2];
    char program[] = "/proc/self/exe";
    char flag[] = "--serve";
    char number[] = "3";
    char* const arguments[] = { program, flag, number, nullptr };
    posix_spawn_file_actions_t actions;
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], 3) == 0);
    CHECK(posix_spawn(&process, program, &actions, nullptr, arguments, environ) == 0);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
    (void)close(ends[1]);
    socket = ends[0];
  }
  ~Other() {
    int status = 1;
    (void)close(socket);
    CHECK(waitpid(process, &status, 0) == process && status == 0);
  }

  Outcome ask(const char* reader, const std::string& bytes, uint64_t offset) const {
    Message message = {};
    Outcome outcome = WRONG;
    (void)std::snprintf(message.reader, sizeof message.reader, "%s", reader);
    message.offset = offset;
    message.count = bytes.size();
    CHECK(bytes.size() <= sizeof message.bytes);
    std::memcpy(message.bytes, bytes.data(), bytes.size());
    CHECK(send(socket, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message));
    CHECK(recv(socket, &outcome, sizeof outcome, 0) == static_cast<ssize_t>(sizeof outcome));
    return outcome;
  }

private:
  pid_t process = 0;
  int socket = -1;
};

// Memory of Tidemark, for both kinds of readers.
void expect_given(const Other& other, const char* settings, char kind) {
  const Rig rig(settings);
  (void)rig.take(3 * mib);
  unsigned char* const block = rig.take(4 * mib);
  for (const char* const reader : { "tidemark", "pytorch" }) {
    std::string bytes;
    uint64_t offset = 0;
    bool is_for_all = false;
    std::memset(block, 42, 4 * mib);
    CHECK(tidemark::share_memory(rig.device, block, 2, bytes, offset, is_for_all) == TIDE_OK);
    CHECK(is_for_all && bytes[1] == kind);
    const Outcome outcome = other.ask(reader, bytes, offset);
    if (outcome == DENIED) (void)std::printf("skip %s: the system does not allow pidfd_getfd\n", reader);
    else CHECK(outcome == GOOD && block[1] == 43);
  }
}

// Handles of different sizes: PyTorch refuses, Tidemark reads.
void expect_mixed(const Other& other) {
  const Rig rig("tide");
  std::vector<unsigned char*> blocks;
  for (size_t i = 1; i < 5; i++) blocks.push_back(rig.take(i * 250 * mib));
  size_t mixed = 0;
  for (unsigned char* const block : blocks) {
    std::string bytes;
    uint64_t offset = 0;
    bool is_for_all = true;
    CHECK(tidemark::share_memory(rig.device, block, 2, bytes, offset, is_for_all) == TIDE_OK);
    if (is_for_all) continue;
    std::memset(block, 42, mib);
    CHECK(other.ask("pytorch", bytes, offset) == REFUSED);
    CHECK(other.ask("tidemark", bytes, offset) == GOOD && block[1] == 43);
    mixed++;
  }
  CHECK(mixed > 0);
}

// Handles of one size at any peak.
void expect_even() {
  const Rig rig("tide_most_handle_mb:2");
  for (size_t i = 1; i < 4; i++) {
    std::string bytes;
    uint64_t offset = 0;
    bool is_for_all = false;
    unsigned char* const block = rig.take(i * 150 * mib);
    CHECK(tidemark::share_memory(rig.device, block, 2, bytes, offset, is_for_all) == TIDE_OK);
    CHECK(is_for_all);
  }
}

// Strings as PyTorch writes them, for Tidemark. The memory is the machine's own.
void expect_plain_taken(const Other& other, tide_machine* machine) {
  void* plain = nullptr;
  tide_raw_share share = {};
  CHECK(tide_machine_raw_alloc(machine, 0, 4 * mib, &plain) == TIDE_OK);
  CHECK(tide_machine_raw_export(machine, 0, plain, &share) == TIDE_OK);
  std::memset(plain, 42, 4 * mib);
  const std::string name(reinterpret_cast<const char*>(share.bytes), sizeof share.bytes);
  CHECK(other.ask("tidemark",
                  "\x02"
                  "c" +
                      name,
                  2 * mib) == GOOD);
  CHECK(static_cast<unsigned char*>(plain)[2 * mib + 1] == 43);
}

int32_t map_shareable(tide_machine* machine, char* address, uint64_t bytes) {
  tide_physical physical = nullptr;
  tide_physical_share part = {};
  CHECK(tide_machine_physical_new(machine, 0, bytes, TIDE_PHYSICAL_SHAREABLE, &physical) == TIDE_OK);
  CHECK(tide_machine_map(machine, address, physical) == TIDE_OK);
  CHECK(tide_machine_physical_export(machine, physical, &part) == TIDE_OK);
  return part.descriptor;
}

void expect_handles_taken(const Other& other, tide_machine* machine) {
  void* mapped = nullptr;
  CHECK(tide_machine_address_reserve(machine, 0, 8 * mib, 0, nullptr, &mapped) == TIDE_OK);
  char* const first = static_cast<char*>(mapped);
  const std::vector<int32_t> descriptors = { map_shareable(machine, first, 4 * mib),
                                             map_shareable(machine, first + 4 * mib, 4 * mib) };
  CHECK(tide_machine_set_access(machine, mapped, 8 * mib, 0, TIDE_ACCESS_READ_WRITE) == TIDE_OK);
  std::memset(mapped, 42, 8 * mib);
  for (const char version : { '\2', '\3' }) {
    const auto bytes = handles(version, static_cast<int32_t>(getpid()), 4 * mib, 2, descriptors);
    const Outcome outcome = other.ask("tidemark", bytes, 7 * mib / 2);
    CHECK(outcome == DENIED || (outcome == GOOD && first[7 * mib / 2 + 1] == 43));
    first[7 * mib / 2 + 1] = 42;
    if (outcome == DENIED) (void)std::printf("skip: the system does not allow pidfd_getfd\n");
  }
  CHECK(other.ask("tidemark", handles(2, 1 << 30, mib, 1, { 3 }), 0) == REFUSED);
}

void expect_taken(const Other& other) {
  tide_machine* machine = nullptr;
  CHECK(tide_machine_new_host(nullptr, &machine) == TIDE_OK);
  expect_plain_taken(other, machine);
  expect_handles_taken(other, machine);
  tide_machine_free(machine);
}

}  // namespace

int main(int count, char** values) {
  if (count == 3) {
    serve(static_cast<int>(std::strtol(values[2], nullptr, 10)));
    return 0;
  }
  const char* const text = std::getenv("TIDE_TEST_SEED");
  expect_read();
  expect_written();
  expect_kinds_refused();
  expect_handles_refused();
  expect_other_handles_refused();
  expect_robust(text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : 1);
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // a child may not trace its parent otherwise
  const Other other;
  expect_given(other, "", 'c');
  expect_given(other, "expandable_segments:True", 'e');
  expect_given(other, "tide", 'e');
  expect_mixed(other);
  expect_even();
  expect_taken(other);
  (void)std::printf("1 passed\n");
  return 0;
}

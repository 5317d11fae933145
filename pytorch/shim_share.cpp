// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes, reads and opens the byte strings of shim_share.h.
#include "shim_share.h"

#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace tidemark {
namespace {

constexpr char kind_plain = 'c';
constexpr char kind_handles = 'e';
constexpr char kind_offer = 't';
constexpr char offer_version = 127;  // PyTorch refuses it as the version of a later PyTorch
constexpr int newest_format = 3;
constexpr size_t fabric_bytes = 64;  // of a handle for other computers
constexpr size_t most_handles = 1 << 20;
constexpr char mark[8] = { 't', 'i', 'd', 'e', 'm', 'a', 'r', 'k' };
constexpr size_t trailer_bytes = sizeof mark + sizeof(uint64_t) + sizeof(tide_offer);

// PyTorch writes these structs as they lie in memory.
struct HandlesHeader {
  int32_t process;
  int32_t padding;
  uint64_t handle_bytes;
  uint64_t count;
};
struct HandlesHeader3 {
  HandlesHeader first;
  int32_t type;  // 0 if the writer did not choose
  int32_t padding;
};
static_assert(sizeof(HandlesHeader) == 24 && sizeof(HandlesHeader3) == 32, "as in PyTorch");
constexpr int32_t type_descriptor = 1;
constexpr int32_t type_fabric = 2;

template <typename Value> void put(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes values off the front of bytes.
class Reader {
public:
  explicit Reader(const std::string& text) : at(text.data()), left(text.size()) {}

  template <typename Value> bool get(Value& out) {
    if (left < sizeof out) return false;
    std::memcpy(&out, at, sizeof out);
    at += sizeof out;
    left -= sizeof out;
    return true;
  }

  size_t rest() const { return left; }

private:
  const char* at;
  size_t left;
};

std::string number(uint64_t value) { return std::to_string(value); }

// ---------------------------------------------------------------------------------------------------
// Bytes

void put_offer(std::string& bytes, const Shared& shared) {
  bytes.append(mark, sizeof mark);
  put(bytes, shared.offset);
  put(bytes, shared.offer);
}

void put_handles(std::string& bytes, const Shared& shared, int format) {
  const HandlesHeader header = { shared.process, 0, shared.handle_bytes, shared.descriptors.size() };
  if (format < newest_format) put(bytes, header);
  else put(bytes, HandlesHeader3{ header, type_descriptor, 0 });
  for (const int32_t descriptor : shared.descriptors) put(bytes, descriptor);
}

std::string get_offer(Reader& reader, Shared& out) {
  char text[sizeof mark] = {};
  const bool is_whole = reader.rest() == trailer_bytes && reader.get(text) && reader.get(out.offset) &&
                        reader.get(out.offer);
  if (!is_whole || std::memcmp(text, mark, sizeof mark) != 0) {
    return "the shared CUDA memory is described by bytes that end in something unknown";
  }
  out.has_offer = true;
  return {};
}

std::string get_header(Reader& reader, int format, HandlesHeader& out) {
  HandlesHeader3 header = {};
  const bool is_whole = format < newest_format ? reader.get(header.first) : reader.get(header);
  out = header.first;
  if (!is_whole) return "the shared CUDA memory is described by too few bytes";
  const bool is_fabric = header.type == type_fabric ||
                         (format < newest_format && out.count != 0 && out.count <= most_handles &&
                          reader.rest() == out.count * fabric_bytes);
  if (is_fabric) {
    return "the shared CUDA memory has fabric handles, which Tidemark cannot open: share it without "
           "expandable "
           "segments";
  }
  if (header.type != 0 && header.type != type_descriptor) {
    return "the shared CUDA memory has handles of a kind that Tidemark does not know: " +
           std::to_string(header.type);
  }
  if (out.count == 0 || out.count > most_handles || out.handle_bytes == 0 ||
      out.handle_bytes > UINT64_MAX / out.count || out.process <= 0) {
    return "the shared CUDA memory is described as " + number(out.count) + " handles of " +
           number(out.handle_bytes) + " bytes, which cannot be";
  }
  return {};
}

std::string get_handles(Reader& reader, int format, Shared& out) {
  HandlesHeader header = {};
  std::string why = get_header(reader, format, header);
  if (!why.empty()) return why;
  out.process = header.process;
  out.handle_bytes = header.handle_bytes;
  if (reader.rest() < header.count * sizeof(int32_t)) {
    return "the shared CUDA memory has " + number(header.count) + " handles, but fewer descriptors";
  }
  out.descriptors.resize(header.count);
  for (int32_t& descriptor : out.descriptors) {
    (void)reader.get(descriptor);
    if (descriptor < 0) return "the shared CUDA memory has a descriptor below 0";
  }
  return reader.rest() != 0 ? get_offer(reader, out) : std::string();
}

}  // namespace

// Plain memory is written as the oldest PyTorch with this format does, so that all can open it.
std::string write_shared(const Shared& shared, int format) {
  std::string bytes;
  switch (shared.kind) {
    case Shared::Kind::plain:
      bytes = { 1, kind_plain };
      put(bytes, shared.raw);
      return bytes;
    case Shared::Kind::handles:
      bytes = { static_cast<char>(format), kind_handles };
      put_handles(bytes, shared, format);
      break;
    case Shared::Kind::offer: bytes = { offer_version, kind_offer }; break;
  }
  if (shared.has_offer) put_offer(bytes, shared);
  return bytes;
}

// 64 bytes are what PyTorch before 2.6 writes for plain memory.
std::string read_shared(const std::string& bytes, Shared& out) {
  Reader reader(bytes);
  unsigned char version = 0;
  char kind = kind_plain;
  out = Shared();
  if (bytes.size() != sizeof out.raw) {
    if (!reader.get(version) || !reader.get(kind)) return "shared CUDA memory is described by too few bytes";
    if (version > newest_format && version != offer_version) {
      return "the shared CUDA memory was described by a later PyTorch, in its format " + number(version);
    }
  }
  if (version == offer_version && kind == kind_offer) {
    out.kind = Shared::Kind::offer;
    return get_offer(reader, out);
  }
  if (version <= newest_format && kind == kind_handles) {
    out.kind = Shared::Kind::handles;
    return get_handles(reader, version, out);
  }
  if (version > newest_format || kind != kind_plain) {
    return "the shared CUDA memory is of a kind that Tidemark does not know: " +
           number(static_cast<unsigned char>(kind));
  }
  if (!reader.get(out.raw)) return "the shared CUDA memory is described by too few bytes";
  return {};
}

// ---------------------------------------------------------------------------------------------------
// Sharing

namespace {

// The descriptors of a block's handles, which stay open; none if these have several sizes.
void share_handles(tide_device_cache* device, const void* address, tide_share share, Shared& out) {
  std::vector<tide_physical_share> parts(share.part_count);
  if (share.part_bytes == 0) return;
  if (tide_device_share_kept(device, address, &share, parts.data(), parts.size()) != TIDE_OK) return;
  for (const tide_physical_share& part : parts) out.descriptors.push_back(part.descriptor);
  out.process = static_cast<int32_t>(getpid());
  out.handle_bytes = share.part_bytes;
}

}  // namespace

tide_status share_memory(tide_device_cache* device, const void* address, int format, std::string& bytes,
                         uint64_t& offset, bool& is_for_all) {
  tide_share share = TIDE_SHARE_INIT;
  Shared shared;
  tide_status status = tide_device_share_kept(device, address, &share, nullptr, 0);
  is_for_all = true;
  offset = share.offset;
  if (status == TIDE_OK) {
    shared.raw = share.raw;
    bytes = write_shared(shared, format);
    return TIDE_OK;
  }
  if (status != TIDE_ERR_LIMIT) return status;
  uint64_t none = 0;
  share_handles(device, address, share, shared);
  status = tide_device_offer(device, address, &shared.offer, &none);
  is_for_all = !shared.descriptors.empty();
  if (status != TIDE_OK && !is_for_all) return status;
  shared.kind = is_for_all ? Shared::Kind::handles : Shared::Kind::offer;
  shared.has_offer = status == TIDE_OK;
  shared.offset = offset;
  bytes = write_shared(shared, format);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Opening

namespace {

tide_status open_handles(tide_device_cache* device, const Shared& shared, void** out) {
  std::vector<tide_physical_share> parts;
  for (const int32_t descriptor : shared.descriptors) {
    parts.push_back({ descriptor, 0, shared.handle_bytes });
  }
  tide_share share = TIDE_SHARE_INIT;
  share.part_count = static_cast<uint32_t>(parts.size());
  share.bytes = parts.size() * shared.handle_bytes;
  return tide_device_import_from(device, shared.process, &share, parts.data(), out);
}

// Where the offer cannot be reached, as from another network namespace, the descriptors may be. An offer
// gives the address of the block, and PyTorch wants that of the memory around it; `closes_at` is closed.
tide_status open_shared(tide_device_cache* device, const Shared& shared, void** base, void** closes_at) {
  tide_status status = TIDE_ERR_STATE;
  if (shared.kind == Shared::Kind::plain) {
    tide_share share = TIDE_SHARE_INIT;
    share.bytes = 1;
    share.raw = shared.raw;
    status = tide_device_import(device, &share, nullptr, closes_at);
  } else if (shared.has_offer) {
    status = tide_device_accept(device, &shared.offer, closes_at);
    *base = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(*closes_at) - shared.offset);
    if (status == TIDE_OK) return TIDE_OK;
  }
  if (status == TIDE_ERR_STATE && !shared.descriptors.empty()) {
    status = open_handles(device, shared, closes_at);
  }
  *base = *closes_at;
  return status;
}

using Key = std::pair<tide_device_cache*, std::string>;
struct Openings {
  std::mutex lock;
  std::map<Key, std::weak_ptr<void>> known;
};

// Never destroyed: tensors may outlive everything.
Openings& openings() {
  static auto* const made = new Openings;
  return *made;
}

void forget(const Key& key) {
  const std::lock_guard<std::mutex> guard(openings().lock);
  const auto found = openings().known.find(key);
  if (found != openings().known.end() && found->second.expired()) openings().known.erase(found);
}

}  // namespace

std::shared_ptr<void> open_memory(tide_device_cache* device, const std::string& bytes,
                                  void (*close)(tide_device_cache*, void*), std::string& why) {
  Shared shared;
  void* base = nullptr;
  void* closes_at = nullptr;
  why = read_shared(bytes, shared);
  if (!why.empty()) return nullptr;
  const Key key(device, bytes);
  const std::lock_guard<std::mutex> guard(openings().lock);
  std::shared_ptr<void> known = openings().known[key].lock();
  if (known) return known;
  if (open_shared(device, shared, &base, &closes_at) != TIDE_OK) {
    openings().known.erase(key);
    return nullptr;
  }
  std::shared_ptr<void> opened(base, [key, close, closes_at](void*) {
    forget(key);
    close(key.first, closes_at);
  });
  openings().known[key] = opened;
  return opened;
}

}  // namespace tidemark

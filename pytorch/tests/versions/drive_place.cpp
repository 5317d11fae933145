// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Installing: what is refused, what is compared, and what is noticed later.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <native.h>

#include "drive.h"

namespace drive {
namespace {

struct Stranger final : model::Native {
  std::string name() override { return "stranger"; }
};
Stranger stranger;

bool is_in(const std::string& part, const char* text) {
  return text != nullptr && std::string(text).find(part) != std::string::npos;
}

const char* install() { return tidemark_torch_install(settings.c_str(), 1); }

void refuses_wrong_settings() {
  CHECK(is_in("no_such_option", tidemark_torch_install("no_such_option:1", 1)));
  CHECK(cuda()->name() == "native");
}

void refuses_another_allocator() {
  ca::CUDAAllocator* const native = cuda();
  ca::allocator.store(&stranger);
  const char* const text = install();
  CHECK(is_in("\"stranger\"", text));
  CHECK(is_in("Stranger", text));  // the type
  CHECK(cuda() == &stranger);
  ca::allocator.store(native);
}

void refuses_another_registration() {
  c10::Allocator* const native = c10::GetAllocator(c10::kCUDA);
  c10::SetAllocator(c10::kCUDA, &stranger, MODEL_NATIVE_PRIORITY);
  CHECK(is_in("Stranger", install()));
  CHECK(cuda()->name() == "native");
  c10::SetAllocator(c10::kCUDA, native, MODEL_NATIVE_PRIORITY);
}

// The version whose pluggable class is loaded: that of another version stands for a PyTorch that was replaced
// after the shim was compiled; "none" for one that does not export it.
std::string pluggable() {
  const char* const other = std::getenv("DRIVE_PLUGGABLE");
  if (other != nullptr) return other;
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

void loads_the_pluggable_class() {
  const std::string file = folder + "/libmodel_pluggable_" + pluggable() + ".so";
  if (pluggable() != "none") CHECK(dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr);
}

void compares_slots() {
  const std::string text = tidemark_torch_slots();
  if (std::getenv("DRIVE_PLUGGABLE") == nullptr) {
    CHECK(is_in("methods are where they should be", text.c_str()));
    CHECK(std::atoi(text.c_str()) >= 30);
    CHECK(is_in("Tidemark leaves 1 that it does not know", text.c_str()) == (TORCH_VERSION_MINOR >= 16));
  } else if (pluggable() == "none") {
    CHECK(is_in("not compared", text.c_str()));
  } else {
    CHECK(is_in("where the headers have ", text.c_str()));
    CHECK(is_in(text, install()));
    CHECK(cuda()->name() == "native" && c10::GetAllocator(c10::kCUDA) == cuda());
    throw Refused();
  }
}

void installs() {
  const char* const failure = install();
  if (failure != nullptr) throw Failure(failure);
  CHECK(cuda()->name() == "tidemark");
  CHECK(c10::GetAllocator(c10::kCUDA) == cuda());
  CHECK(!cuda()->initialized());
  cuda()->init(1);
  CHECK(cuda()->initialized());
  CHECK(is_in("already installed", install()));
}

// A ledger in a folder of its own.
struct Ledger {
  Ledger() {
    CHECK(mkdtemp(folder) != nullptr);
    path = std::string(folder) + "/ledger";
  }
  ~Ledger() {
    (void)std::remove(path.c_str());
    (void)std::remove(folder);
  }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // How many members it has, and what they hold.
  std::pair<uint32_t, uint64_t> look() const {
    std::pair<uint32_t, uint64_t> found;
    const auto note = [](void* user, const tide_quota_ledger* ledger, const tide_quota_member*) {
      *static_cast<decltype(found)*>(user) = { ledger->member_count, ledger->held_bytes };
      return true;
    };
    CHECK(tide_quota_read(path.c_str(), note, &found) == TIDE_OK);
    return found;
  }

  char folder[32] = "/tmp/tidemark-drive-XXXXXX";
  std::string path;
};

using Found = std::pair<uint32_t, uint64_t>;

// A device joins before its first request, which fails until it can.
void joins_a_ledger() {
  if (std::getenv("DRIVE_NO_VIRTUAL") != nullptr) return;  // it has had requests
  const Ledger ledger;
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  {
    const std::string path = ledger.path;
    const std::string member = "driven";
    options.ledger = path.c_str();
    options.name = member.c_str();
    CHECK(tidemark_torch_join(3, &options) == nullptr);  // a device that is never used
    CHECK(tidemark_torch_join(0, &options) == nullptr);
  }
  const char* failure = nullptr;
  CHECK(tidemark_torch_device(0) == nullptr);
  CHECK(throws<c10::Error>([] { (void)cuda()->allocate(mib); }));
  CHECK(tidemark_torch_make_device(0, &failure) == nullptr && is_in("there is no ledger", failure));
  CHECK(used() == 0);
  CHECK(tide_quota_make(ledger.path.c_str(), 100 * mib) == TIDE_OK);
  CHECK(cuda()->allocate(mib).get() != nullptr);
  CHECK(ledger.look() == Found(1, used()) && used() > 0);
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(120 * mib); }));
  options.ledger = ledger.path.c_str();
  options.name = nullptr;
  CHECK(is_in("member of a ledger already", tidemark_torch_join(0, &options)));
  tide_device_leave(tidemark_torch_device(0));
  CHECK(ledger.look() == Found(0, 0));
  CHECK(tidemark_torch_join(0, &options) == nullptr);  // at once
  CHECK(ledger.look() == Found(1, used()));
  tide_device_leave(tidemark_torch_device(0));
  cuda()->emptyCache({ 0, 0 });
}

// Without virtual memory the first request warns, once, and is served.
void falls_back() {
  if (std::getenv("DRIVE_NO_VIRTUAL") == nullptr) return;
  for (int i = 0; i < 2; i++) CHECK(cuda()->allocate(mib).get() != nullptr);
  CHECK(model::warnings == 1);
  CHECK(is_in("tidemark: ", model::last_warning.c_str()) && is_in("set_access", model::last_warning.c_str()));
  CHECK(is_in("set_access", tidemark_torch_fallback(0)));
}

void notices_a_replacement() {
  ca::CUDAAllocator* const ours = cuda();
  CHECK(tidemark_torch_replaced_by() == nullptr);
  ca::allocator.store(&stranger);
  CHECK(is_in("stranger", tidemark_torch_replaced_by()));
  ca::allocator.store(ours);
  c10::SetAllocator(c10::kCUDA, &stranger, UINT8_MAX);
  CHECK(is_in("Stranger", tidemark_torch_replaced_by()));
  c10::SetAllocator(c10::kCUDA, ours, UINT8_MAX);
  CHECK(tidemark_torch_replaced_by() == nullptr);
}

}  // namespace

const std::vector<Test> place_tests = {
  { "refuses_wrong_settings", refuses_wrong_settings },
  { "refuses_another_allocator", refuses_another_allocator },
  { "refuses_another_registration", refuses_another_registration },
  { "loads_the_pluggable_class", loads_the_pluggable_class },
  { "compares_slots", compares_slots },
  { "installs", installs },
  { "falls_back", falls_back },
  { "joins_a_ledger", joins_a_ledger },
  { "notices_a_replacement", notices_a_replacement },
};

}  // namespace drive

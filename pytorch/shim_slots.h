// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compares the vtable that the shim was compiled for with the one that the running PyTorch has. A class with
// one method more or less would send every later call to the wrong method. PyTorch exports one class with
// nearly all methods of an allocator, so the symbols in its vtable tell which method each slot is for.
//
// Only for the C++ ABI of Itanium, which gcc and clang use on Linux.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <typeinfo>
#include <vector>

namespace tidemark {

// A virtual method, and where the headers place it: bytes from the first method of the vtable.
struct Slot {
  const char* name;
  size_t offset;
};
using Slots = std::vector<Slot>;

// The place of a virtual method, which its pointer contains.
template <typename Method> size_t slot_of(Method method) {
  static_assert(sizeof method == 2 * sizeof(ptrdiff_t), "a pointer to a method has two words");
  ptrdiff_t words[2];
  std::memcpy(words, &method, sizeof words);
#if defined(__aarch64__) || defined(__arm__)
  return static_cast<size_t>(words[0]);
#else
  return static_cast<size_t>(words[0] - 1);
#endif
}

// Defines add_NAME(slots), which adds the method if the class has exactly one of that name.
#define SHIM_SLOT(method)                                                           \
  template <typename Class>                                                         \
  auto add_##method(Slots& slots, int)->decltype(slot_of(&Class::method), void()) { \
    slots.push_back({ #method, slot_of(&Class::method) });                          \
  }                                                                                 \
  template <typename Class> void add_##method(Slots&, long) {}

// Is it the symbol of a method with this name? A mangled name has each part after its length; E ends the last
// one, after the tag of an ABI if there is one.
inline bool symbol_names(const std::string& symbol, const std::string& method) {
  const std::string part = std::to_string(method.size()) + method;
  for (size_t at = symbol.find(part, 1); at != std::string::npos; at = symbol.find(part, at + 1)) {
    const char before = symbol[at - 1];
    const char after = symbol.c_str()[at + part.size()];
    if ((before < '0' || before > '9') && (after == 'E' || after == 'B')) return true;
  }
  return false;
}

// The symbol that begins at an address; nullptr if it is not exported, or not a method.
inline const char* symbol_at(void* address) {
  Dl_info info;
  const bool is_known = dladdr(address, &info) != 0 && info.dli_saddr == address && info.dli_sname != nullptr;
  return is_known && std::strncmp(info.dli_sname, "_ZN", 3) == 0 ? info.dli_sname : nullptr;
}

// How the slots compare.
struct SlotReport {
  size_t equal = 0;     // slots with the expected method
  size_t unknown = 0;   // slots whose symbol is not exported
  size_t strange = 0;   // slots of methods that the shim does not name
  std::string problem;  // the first difference; empty if there is none
};

// How many of the slots that a class has are neither named nor those of its destructor.
template <typename Class> size_t strange_slots(const Slots& slots) {
  struct Longer : Class {
    virtual void behind_all() = 0;
  };
  return slot_of(&Longer::behind_all) / sizeof(void*) - 2 - slots.size();
}

inline SlotReport compare_slots(const char* vtable_symbol, const Slots& slots) {
  SlotReport report;
  auto* const vtable = static_cast<char*>(dlsym(RTLD_DEFAULT, vtable_symbol));
  report.unknown = slots.size();
  if (vtable == nullptr) return report;
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  const bool has_size = dladdr1(vtable, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
                                RTLD_DL_SYMENT) != 0 &&
                        symbol != nullptr;
  if (!has_size) return report;
  for (const Slot& slot : slots) {
    const size_t at = 2 * sizeof(void*) + slot.offset;  // after the offset to the top and the type
    const char* found = "nothing: PyTorch's class has fewer methods";
    void* address = nullptr;
    if (at + sizeof address <= symbol->st_size) {
      std::memcpy(&address, vtable + at, sizeof address);
      found = symbol_at(address);
    }
    if (found == nullptr) continue;
    report.unknown--;
    if (symbol_names(found, slot.name)) report.equal++;
    else if (report.problem.empty())
      report.problem = std::string("where the headers have ") + slot.name + ", the library has " + found;
  }
  return report;
}

// The name of a type as C++ writes it.
inline std::string type_name(const std::type_info& type) {
  int status = 0;
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  return name;
}

}  // namespace tidemark
